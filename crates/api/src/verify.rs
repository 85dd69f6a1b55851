//! Verifies whether policies and circuits take effect: the findings at each of their hops, from
//! counters.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use clock::{Duration, Instant};
use control::controller::{HopVerdict, QosReport, VerifyReport};
use control::qos::verify::{MarkProof, MeterVerdict, Verdict};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::problem::Problem;
use super::state::{ago_s, installation};

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(verify))
}

/// The results by name.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct VerifyDocument {
    /// The time of this answer, by the clock of `from_ms`.
    pub at_ms: u64,
    pub policies: BTreeMap<String, VerifiedDocument>,
    pub circuits: BTreeMap<String, VerifiedDocument>,
}

/// The result for a policy or circuit.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct VerifiedDocument {
    /// The state as in `/v1/state`: of the last minute, whatever `from_ms` says.
    #[schema(example = "active")]
    pub state: String,
    pub reasons: Vec<String>,
    /// Seconds since counters last showed that it takes effect; null if they never have.
    pub seen_ago_s: Option<u64>,
    /// The hops where its packets leave switches. The hops of a circuit are in path order, and
    /// those of the answers follow.
    pub hops: Vec<HopEffect>,
}

/// The packets of a policy or circuit at one switch.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct HopEffect {
    #[schema(example = "0000000000000001")]
    pub dpid: String,
    /// The ports by which they leave; empty means any port.
    pub ports: Vec<u32>,
    /// Whether these are the answers of a circuit.
    pub answers: bool,
    /// The worst of queue, meter and mark. `yes`: at least half of what entries counted came there;
    /// `partly`: at least a tenth; `no`: less; `no traffic`: they counted nothing; `unknown`.
    #[schema(example = "yes")]
    pub effect: String,
    pub why: Option<String>,
    /// Packets that its entries counted.
    pub counted: u64,
    /// The length of the measurement in seconds.
    pub seconds: f64,
    pub queue: Option<QueueEffect>,
    pub meter: Option<MeterEffect>,
    pub mark: Option<MarkEffect>,
    /// They are dropped.
    pub drops: bool,
}

/// Queues that packets are sent into.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct QueueEffect {
    /// Mostly one; more where ports number them differently.
    pub numbers: Vec<u32>,
    /// Packets that all entries which name them have counted, without what meters dropped.
    pub expected: u64,
    /// Packets that came, also those that were dropped for want of room; null if nobody counts.
    pub got: Option<u64>,
    pub dropped: Option<u64>,
}

/// A meter.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct MeterEffect {
    pub number: u32,
    /// Packets that it met, and what of them it dropped; null if the switch does not report it.
    pub packets: Option<u64>,
    pub dropped: Option<u64>,
}

/// A code point that packets get.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct MarkEffect {
    pub dscp: u8,
    /// The proof. `queue`: the mark has chosen the packets' queue. `entry`: the entry that writes
    /// the mark has counted them; nothing shows the packets after the switch.
    pub proved_by: Option<String>,
}

/// Returns the counters' evidence for each hop, and has the counters read anew. Ask twice, some
/// seconds apart, to see the packets counted meanwhile.
#[utoipa::path(get, path = "/v1/verify", tag = "qos", operation_id = "verify",
    params(("from_ms" = Option<u64>, Query,
        description = "What was counted since, by `at_ms` of an answer before; at most a minute of \
                       it, and without it the last minute")),
    responses(
        (status = 200, body = VerifyDocument),
        (status = 400, description = "`from_ms` is no number"),
    ))]
async fn verify(
    State(api): State<Api>,
    RawQuery(query): RawQuery,
) -> Result<Json<VerifyDocument>, Problem> {
    let from = from(query.as_deref().unwrap_or_default())?;
    let now = api.clock.now();
    let (state, found) = api
        .ask_soon(move |controller| {
            controller.read_qos_counts(now);
            (controller.qos_report(), controller.verify_report(now, from))
        })
        .await?;
    Ok(Json(document(now, &state, &found)))
}

fn from(query: &str) -> Result<Instant, Problem> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut said = pairs.filter(|(name, _)| *name == "from_ms");
    let Some((_, text)) = said.next_back() else {
        return Ok(Instant::START);
    };
    let ms: u64 = text.parse().map_err(|_| {
        let detail = format!("from_ms={text}: write the at_ms of an answer before, a whole number");
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    Ok(Instant::START + Duration::from_millis(ms))
}

fn document(now: Instant, state: &QosReport, found: &VerifyReport) -> VerifyDocument {
    let hops = |of: Option<&Vec<HopVerdict>>| of.into_iter().flatten().map(hop).collect();
    let policies = state.policies.iter().map(|(name, report)| {
        let verified = VerifiedDocument {
            state: installation(report.state),
            reasons: report.reasons.iter().cloned().collect(),
            seen_ago_s: ago_s(now, report.seen),
            hops: hops(found.policies.get(name)),
        };
        (name.clone(), verified)
    });
    let circuits = state.circuits.iter().map(|(name, report)| {
        let verified = VerifiedDocument {
            state: installation(report.state),
            reasons: report.reasons.iter().cloned().collect(),
            seen_ago_s: ago_s(now, report.seen),
            hops: hops(found.circuits.get(name)),
        };
        (name.clone(), verified)
    });
    VerifyDocument {
        at_ms: now.as_nanos() / 1_000_000,
        policies: policies.collect(),
        circuits: circuits.collect(),
    }
}

fn hop(hop: &HopVerdict) -> HopEffect {
    let verdict = &hop.verdict;
    let claim = &verdict.claim;
    let meter = claim.meter.map(|number| MeterEffect {
        number: number.0,
        packets: verdict.meter.map(|meter: MeterVerdict| meter.packets),
        dropped: verdict.meter.map(|meter| meter.dropped),
    });
    let mark = claim.mark.map(|dscp| MarkEffect {
        dscp,
        proved_by: verdict.mark.map(|proof| match proof {
            MarkProof::Queue => "queue".to_owned(),
            MarkProof::Entry => "entry".to_owned(),
        }),
    });
    HopEffect {
        dpid: hop.dpid.to_string(),
        ports: claim.ports().iter().map(|port| port.0).collect(),
        answers: claim.is_back,
        effect: verdict.effect.name().to_owned(),
        why: verdict.why.clone(),
        counted: verdict.counted,
        seconds: verdict.window.as_secs_f64(),
        queue: queue(verdict),
        meter,
        mark,
        drops: claim.drops,
    }
}

fn queue(verdict: &Verdict) -> Option<QueueEffect> {
    let numbers = verdict.claim.numbers();
    (!numbers.is_empty()).then(|| QueueEffect {
        numbers: numbers.into_iter().collect(),
        expected: verdict
            .queue
            .map_or(verdict.counted, |queue| queue.expected),
        got: verdict.queue.map(|queue| queue.got),
        dropped: verdict.queue.map(|queue| queue.dropped),
    })
}
