//! Explains a packet's path: `GET /v1/trace`.
//!
//! The trace follows the packet's path through the entries that the switches have now. It asks a
//! switch when the packet reaches it, once for one trace. At most [`TRACES_MAX`] traces run at
//! once, and no switch is read later than [`READ_MAX`] after the beginning. All parts end by one
//! [deadline](Deadlines), before the request's own. Long computations run on a separate thread.

mod document;
mod question;
mod read;

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::{RawQuery, State};
use control::trace::Course;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::problem::Problem;
use super::server::REQUEST_MAX;
use document::{Found, TraceDocument};
use read::{entries, parts};

/// The time for reading all switches, less if the counters are read much later.
const READ_MAX: Duration = Duration::from_secs(6);
const TRACES_MAX: usize = 2;
/// The time to wait for other traces.
const TURN_MAX: Duration = Duration::from_secs(2);
/// The entries whose counters are read again.
const COUNTED_MAX: usize = 256;

/// The time that the controller has to name the owners of the entries.
const OWNERS_MAX: Duration = Duration::from_secs(1);
/// The time reserved for reading the counters again.
const COUNT_MIN: Duration = Duration::from_secs(1);
/// The part of a request's time that is left for the document.
const DOCUMENT_MAX: Duration = Duration::from_secs(2);

static TURNS: Semaphore = Semaphore::const_new(TRACES_MAX);

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(trace))
}

/// Where a packet goes and why: the entry of each switch that takes it, and its end.
#[utoipa::path(get, path = "/v1/trace", tag = "network", operation_id = "trace",
    params(
        ("src" = String, Query, description = "IP or Ethernet address", example = "10.0.0.1"),
        ("dst" = String, Query, description = "IP or Ethernet address", example = "10.0.0.2"),
        ("proto" = Option<String>, Query, description = "tcp, udp, sctp, icmp or a number; udp"),
        ("sport" = Option<u16>, Query),
        ("dport" = Option<u16>, Query),
        ("vlan" = Option<u16>, Query, description = "That of the sender"),
        ("dscp" = Option<u8>, Query),
        ("src_mac" = Option<String>, Query),
        ("dst_mac" = Option<String>, Query),
        ("in" = Option<String>, Query, description = "Where it comes in, if not at the sender's \
                                                      place", example = "1:2"),
        ("seconds" = Option<u64>, Query, description = "Between the two readings of the counters, \
                                                        0 to 10; with 0 they are read once"),
    ),
    responses(
        (status = 200, body = TraceDocument),
        (status = 414),
        (status = 422, description = "Parameters are wrong, or a host is not known"),
    ))]
async fn trace(
    State(api): State<Api>,
    RawQuery(query): RawQuery,
) -> Result<Json<TraceDocument>, Problem> {
    let asked = question::read(query.as_deref().unwrap_or_default())?;
    let by = Deadlines::new(Instant::now(), asked.wait);
    let turn = timeout(TURN_MAX, TURNS.acquire()).await;
    let _turn = turn.map_err(|_| Problem::busy())?;
    let (now, question) = (api.clock.now(), asked.question);
    let start = api
        .ask_soon(move |controller| controller.trace_start(now, &question))
        .await?
        .map_err(question::problem)?;

    let until = by.read.min(Instant::now() + READ_MAX);
    let destination = start.destination.clone();
    let course = Course::new(start.at, start.packet.clone(), destination);
    let mut course = course.with_mirrors(start.mirrors.clone());
    let mut reads = BTreeMap::new();
    loop {
        let next;
        (course, next) = apart(move || {
            let next = course.wants();
            (course, next)
        })
        .await?;
        let Some(dpid) = next else {
            break;
        };
        let late = || Err(format!("switch {dpid} was not read in time"));
        let read = timeout_at(until, api.read_switch(dpid, &start)).await;
        let around = read.unwrap_or_else(|_| late());
        let around = around.map(|(around, read)| {
            reads.insert(dpid.0, read);
            around
        });
        course.give(dpid, around);
    }

    let (mut owners, mut guests) = (BTreeMap::new(), BTreeMap::new());
    for (number, hop) in course.hops().iter().enumerate() {
        let now = api.clock.now();
        let found = entries(&hop.steps).map(|(at, entry)| (at, entry.stats(now)));
        let (places, rows): (Vec<usize>, Vec<_>) = found.unzip();
        if rows.is_empty() {
            continue;
        }
        let of = timeout_at(by.owners, api.owners(hop.at.dpid, rows)).await;
        let of = of.unwrap_or_else(|_| Err(Problem::busy()))?;
        let keys = places.into_iter().map(|at| (number, at));
        owners.extend(keys.zip(of));
        let (places, parts): (Vec<usize>, Vec<_>) = parts(&hop.steps).unzip();
        if parts.is_empty() {
            continue;
        }
        let of = timeout_at(by.owners, api.guests_of(hop.at.dpid, parts)).await;
        let of = of.unwrap_or_else(|_| Err(Problem::busy()))?;
        let keys = places.into_iter().map(|at| (number, at));
        guests.extend(keys.zip(of).filter_map(|(key, guest)| Some((key, guest?))));
    }

    let mut counts = None;
    if !asked.wait.is_zero() {
        sleep(asked.wait).await;
        let until = by.count.min(Instant::now() + READ_MAX);
        let later = counts.insert(BTreeMap::new());
        'hops: for (number, hop) in course.hops().iter().enumerate() {
            for (at, entry) in entries(&hop.steps) {
                if later.len() >= COUNTED_MAX {
                    break 'hops;
                }
                match timeout_at(until, api.count(hop.at.dpid, entry)).await {
                    Ok(Some(count)) => drop(later.insert((number, at), count)),
                    Ok(None) => {}
                    Err(_) => break 'hops,
                }
            }
        }
    }
    let document = apart(move || {
        let found = Found {
            start: &start,
            course: &course,
            reads: &reads,
            owners: &owners,
            guests: &guests,
            counts: counts.as_ref(),
            waited_s: asked.wait.as_secs(),
        };
        found.document()
    });
    Ok(Json(document.await?))
}

/// Runs a computation that is too long for other requests to wait for.
async fn apart<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Result<R, Problem> {
    let done = spawn_blocking(work).await;
    done.map_err(|_| Problem::busy())
}

/// The deadlines of the parts of a trace, which all belong to one request.
#[derive(Clone, Copy, Debug)]
struct Deadlines {
    read: Instant,
    owners: Instant,
    /// The deadline for reading the counters again, after the wait.
    count: Instant,
}

impl Deadlines {
    fn new(begun: Instant, wait: Duration) -> Deadlines {
        let left = REQUEST_MAX.saturating_sub(DOCUMENT_MAX);
        let owners = left.saturating_sub(COUNT_MIN + wait);
        Deadlines {
            read: begun + owners.saturating_sub(OWNERS_MAX),
            owners: begun + owners,
            count: begun + left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ask::ASK_MAX;
    use super::*;

    #[test]
    fn all_parts_of_the_longest_trace_end_within_one_request() {
        for wait in (0..=question::SECONDS_MAX).map(Duration::from_secs) {
            let begun = Instant::now();
            let by = Deadlines::new(begun, wait);
            assert!(by.read > begun + TURN_MAX + ASK_MAX, "it reads nothing");
            assert!(by.read + OWNERS_MAX <= by.owners);
            assert!(by.owners + wait + COUNT_MIN <= by.count);
            assert!(by.count + DOCUMENT_MAX <= begun + REQUEST_MAX);
        }
    }
}
