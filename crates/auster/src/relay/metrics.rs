//! The counters of a relay, for Prometheus, with those of its process.
//!
//! A label names the relay at the other end, an agent or a queue: the number of series is bounded
//! by the relays that have certificates, and by configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use net::clock::Clock;
use net::tls::{Expiry, Security};
use net::transport::{Refusal, TransportKind};
use tokio::task::JoinSet;
use tunnel::{Dropped, EndStatus};

use crate::version;

use super::report::{Source, shed_count};
use api::access::Access;
use api::exposition::{Family, Labels, Value, count, gauge, info, text};
use api::metrics::of_expiries;
use api::metrics_alone;
use api::process;
use cli::failure::Failure;
use cli::output::say;
use config::api::{ApiAddress, Stated};

/// The most relays named by a label; further relays are counted together.
const RELAYS_MAX: usize = 1024;

#[derive(clap::Args)]
pub struct Args {
    /// Serve /metrics for Prometheus at [HOST:]PORT, for this machine only without a HOST; or at
    /// unix:FILE
    #[arg(long, value_name = "ADDR", value_parser = config::api::address)]
    metrics: Option<ApiAddress>,

    /// Token file of the users who may read the metrics, by auster api token. Required for access
    /// from other machines
    #[arg(long, value_name = "FILE", requires = "metrics")]
    metrics_tokens: Option<PathBuf>,
}

/// The checked options, and the users that the file names.
pub struct Ready {
    stated: Stated,
    access: Arc<Access>,
}

impl Ready {
    pub fn at(&self) -> &ApiAddress {
        &self.stated.listen[0]
    }
}

impl Args {
    /// Checks the options and reads the file; `None` without metrics.
    pub fn ready(&self) -> Result<Option<Ready>, Failure> {
        let Some(at) = &self.metrics else {
            return Ok(None);
        };
        let mut stated = Stated {
            listen: vec![at.clone()],
            tokens: self.metrics_tokens.clone(),
            ..Stated::default()
        };
        if at.is_beyond_this_machine() && stated.tokens.is_none() {
            return Err(Failure::usage(format!(
                "--metrics {at} is beyond this machine: give it --metrics-tokens FILE (auster api \
                 token add NAME --role read --file FILE), or serve it on 127.0.0.1"
            )));
        }
        stated.complete(&[])?;
        let access = Arc::new(Access::load(&stated, Clock::start())?);
        Ok(Some(Ready { stated, access }))
    }
}

/// Serves the metrics for as long as the set is kept.
pub async fn serve(
    ready: Option<&Ready>,
    source: Source,
    security: Vec<Security>,
) -> Result<JoinSet<()>, Failure> {
    let mut tasks = JoinSet::new();
    let Some(Ready { stated, access }) = ready else {
        return Ok(tasks);
    };
    let exposition = move || {
        let (source, security) = (source.clone(), security.clone());
        async move { text(families(&source, &security)) }
    };
    let mut served = metrics_alone(access, exposition);
    let bound = served.bind(&stated.listen).await;
    let bound = bound.map_err(|mut failures| failures.remove(0))?;
    for at in served.serve(bound) {
        say!("metrics on {at}");
    }
    tasks.spawn(async move {
        let _served = served;
        std::future::pending().await
    });
    Ok(tasks)
}

fn families(source: &Source, security: &[Security]) -> Vec<Family> {
    let ends = source.status();
    let expiries = security.iter().filter_map(Security::credentials);
    let expiries: Vec<Expiry> = expiries.flat_map(|held| held.expiries().to_vec()).collect();
    let mut families = vec![info(version::commit()), of_expiries(expiries)];
    families.extend(process::families());
    let up = ends.iter().filter(|end| end.is_up).count();
    families.push(gauge(
        "auster_relay_sessions",
        "Relays at the other end",
        up as f64,
    ));
    let mut named: BTreeMap<&str, Vec<&EndStatus>> = BTreeMap::new();
    for end in &ends {
        let is_room = named.len() < RELAYS_MAX || named.contains_key(&*end.peer);
        let name = if is_room { &*end.peer } else { "others" };
        named.entry(name).or_default().push(end);
    }
    let each = |name, help, value: &dyn Fn(&EndStatus) -> u64| Family {
        name,
        help,
        samples: named
            .iter()
            .map(|(name, ends)| {
                (
                    label(name),
                    Value::Count(ends.iter().map(|e| value(e)).sum()),
                )
            })
            .collect(),
    };
    families.extend([
        each(
            "auster_relay_session_begins",
            "Sessions that were begun with a relay",
            &|end| end.sessions,
        ),
        each(
            "auster_relay_reconnects",
            "Connections with a relay after the first",
            &|end| end.reconnects,
        ),
        each(
            "auster_relay_failovers",
            "Changes of the address dialled",
            &|end| end.failovers,
        ),
        each(
            "auster_relay_fallbacks",
            "Connections with a relay by TLS, because QUIC was not answered",
            &|end| end.fallbacks,
        ),
        each(
            "auster_relay_channels_closed",
            "Channels that are gone",
            &|end| end.closed,
        ),
        each(
            "auster_relay_packet_ins_shed",
            "Packet-ins that were dropped, by the policy map",
            &|end| end.line.as_ref().map_or(0, shed_count),
        ),
        each(
            "auster_relay_datapaths_refused",
            "Channels of switches that are not who they say",
            &|end| end.datapaths_refused,
        ),
        each(
            "auster_relay_lost_packets",
            "Packets that QUIC has sent again",
            &|end| end.lost_packets(),
        ),
    ]);
    let now = |name, help, value: &dyn Fn(&EndStatus) -> Option<f64>| Family {
        name,
        help,
        samples: ends
            .iter()
            .take(RELAYS_MAX)
            .filter_map(|end| Some((label(&end.peer), Value::Gauge(value(end)?))))
            .collect::<BTreeMap<Labels, Value>>()
            .into_iter()
            .collect(),
    };
    families.extend([
        now(
            "auster_relay_by_tls",
            "1 while TLS carries a relay's session in the place of QUIC",
            &|end| Some(f64::from(end.transport == Some(TransportKind::Tls))),
        ),
        now("auster_relay_channels", "Channels with a relay", &|end| {
            Some(end.channels.len() as f64)
        }),
        now(
            "auster_relay_rtt_seconds",
            "Round trip between the relays, as QUIC sees it",
            &|end| Some(end.rtt()?.as_secs_f64()),
        ),
        now(
            "auster_relay_kept_bytes",
            "Bytes that are kept until the other relay has them",
            &|end| {
                let kept = end.channels.iter().map(|channel| channel.kept_bytes as f64);
                Some(kept.sum())
            },
        ),
    ]);
    families.push(refused(source, &ends));
    let dropped = named.iter().flat_map(|(name, ends)| {
        let sum =
            |of: fn(&Dropped) -> u64| ends.iter().map(|e| of(&e.datagrams.dropped)).sum::<u64>();
        DROPS.map(|(reason, of)| (*name, reason, sum(of)))
    });
    let mut dropped: Vec<(&str, &str, u64)> = dropped.collect();
    if let Source::Hub(hub) = source {
        families.push(count(
            "auster_relay_same_name_conflicts",
            "Times that relays of one certificate name ended each other's sessions again and again",
            hub.rivals().conflicts,
        ));
        dropped.push(("", "no_relay", hub.datagrams_dropped()));
    }
    let sample = |(relay, reason, dropped): (&str, &str, u64)| {
        let mut labels = label(relay);
        labels.push(("reason", reason.to_owned()));
        (labels, Value::Count(dropped))
    };
    families.push(Family {
        name: "auster_relay_datagrams_dropped",
        help: "Datagrams of agents that were not carried",
        samples: dropped.into_iter().map(sample).collect(),
    });
    families
}

/// A reason to drop datagrams, and their number.
type DropCount = (&'static str, fn(&Dropped) -> u64);

const DROPS: [DropCount; 7] = [
    ("disconnected", |dropped| dropped.disconnected),
    ("unwanted", |dropped| dropped.unwanted),
    ("overflowed", |dropped| dropped.overflowed),
    ("too_long", |dropped| dropped.too_long),
    ("no_target", |dropped| dropped.no_target),
    ("late", |dropped| dropped.late),
    ("unsent", |dropped| dropped.unsent),
];

/// Handshakes refused by either of two relays, or at a relay's listener.
fn refused(source: &Source, ends: &[EndStatus]) -> Family {
    let refused: BTreeMap<Refusal, u64> = match source {
        Source::End(_) => ends.iter().flat_map(|end| end.refused.clone()).collect(),
        Source::Hub(hub) => hub.refused(),
        Source::Direct(_, refusals) => refusals.all(),
    };
    let sample = |reason: Refusal| {
        let labels = vec![("reason", reason.name().to_owned())];
        let count = refused.get(&reason).copied().unwrap_or_default();
        (labels, Value::Count(count))
    };
    Family {
        name: "auster_relay_handshakes_refused",
        help: "Handshakes between relays that were refused",
        samples: Refusal::ALL.map(sample).into(),
    }
}

fn label(relay: &str) -> Labels {
    vec![("relay", relay.to_owned())]
}
