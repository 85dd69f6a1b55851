//! The progress of requests: what switches and databases have confirmed, and why the rest waits.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::State;
use clock::Instant;
use control::controller::{CircuitReport, Count, Installation, Location, PolicyReport, QosReport};
use driver::databases::{PortView, QueuesState, Views};
use openflow::{DatapathId, PortNo};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::problem::Problem;
use config::qos::held::Layers;

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(state))
}

/// The state of policies and circuits by name, and of queues by port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct StateDocument {
    pub queues: BTreeMap<String, PortState>,
    pub policies: BTreeMap<String, PolicyState>,
    pub circuits: BTreeMap<String, CircuitState>,
}

/// The state of a port's queues.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PortState {
    /// The state in the switch's database: `in effect`, `written`, `changing`, `failed`, `taken`
    /// (another program has given the port queues), `no port`, `absent`, or `no database`.
    #[schema(example = "in effect")]
    pub state: String,
    pub reasons: Vec<String>,
}

/// The state of a policy. `installed` means that switches have confirmed it; `active`, that packets
/// get it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PolicyState {
    /// `waiting`, `installing`, `installed`, `active` (counters have shown that packets get what it
    /// names) or `not in effect` (they have shown that they do not).
    #[schema(example = "active")]
    pub state: String,
    /// Seconds since counters last showed that it takes effect; null if they never have.
    pub seen_ago_s: Option<u64>,
    /// The reasons why it waits or has no effect, everywhere or at some switches.
    pub reasons: Vec<String>,
    /// The packets that met the policy, by switch.
    pub switches: BTreeMap<String, CountDocument>,
}

/// The state of a circuit.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct CircuitState {
    /// The same states as a policy's.
    #[schema(example = "active")]
    pub state: String,
    pub seen_ago_s: Option<u64>,
    pub reasons: Vec<String>,
    /// The hops from the sender on; empty without a path.
    pub hops: Vec<HopDocument>,
    /// The packets that the sender's switch let in.
    pub sent: CountDocument,
    pub answered: CountDocument,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = CircuitHop)]
pub struct HopDocument {
    #[schema(example = "0000000000000001")]
    pub dpid: String,
    pub in_port: u32,
    pub out_port: u32,
}

/// The counters as last read, which happens every ten seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct CountDocument {
    pub packets: u64,
    pub bytes: u64,
}

/// How far everything is that is asked for.
#[utoipa::path(get, path = "/v1/state", tag = "qos", operation_id = "get_state",
    responses((status = 200, body = StateDocument)))]
async fn state(State(api): State<Api>) -> Result<Json<StateDocument>, Problem> {
    let layers = api.held.layers().await;
    let report = api.ask_soon(|controller| controller.qos_report()).await?;
    let views = api.views.borrow().clone();
    Ok(Json(document(&layers, &report, &views, api.clock.now())))
}

fn document(layers: &Layers, report: &QosReport, views: &Views, now: Instant) -> StateDocument {
    let places = places(layers, report, |at| has_queues(at, views));
    let ports = places.iter().map(|at| (at.to_string(), port(*at, views)));
    let policies = report.policies.iter();
    let policies = policies.map(|(name, report)| (name.clone(), policy(report, now)));
    let circuits = report.circuits.iter();
    let circuits = circuits.map(|(name, report)| (name.clone(), circuit(report, now)));
    StateDocument {
        queues: ports.collect(),
        policies: policies.collect(),
        circuits: circuits.collect(),
    }
}

/// Ports with requested queues, and ports on a circuit's path that have queues.
fn places(
    layers: &Layers,
    report: &QosReport,
    has_queues: impl Fn(Location) -> bool,
) -> BTreeSet<Location> {
    let mut places: BTreeSet<Location> = layers.whole().ports.into_keys().collect();
    for hop in report.circuits.values().flat_map(|circuit| &circuit.hops) {
        let ports = [hop.in_port, hop.out_port].map(|port| Location::new(hop.dpid, port));
        places.extend(ports.into_iter().filter(|at| has_queues(*at)));
    }
    places
}

fn has_queues(at: Location, views: &Views) -> bool {
    let view = views.get(&at.dpid);
    let port = view.and_then(|view| named(view.ports.values(), at.port));
    port.is_some_and(|port| !matches!(port.queues, QueuesState::Absent | QueuesState::NoPort))
}

fn port(at: Location, views: &Views) -> PortState {
    let Some(view) = views.get(&at.dpid) else {
        return PortState {
            state: "no database".to_owned(),
            reasons: vec!["the switch's database is not connected (auster run --ovsdb)".to_owned()],
        };
    };
    match named(view.ports.values(), at.port) {
        Some(port) => PortState {
            state: port.queues.name().to_owned(),
            reasons: port.queues.problem().into_iter().collect(),
        },
        None => PortState {
            state: "no port".to_owned(),
            reasons: vec!["the database has no port of this number".to_owned()],
        },
    }
}

fn named<'v>(mut ports: impl Iterator<Item = &'v PortView>, port: PortNo) -> Option<&'v PortView> {
    ports.find(|view| view.numbers.contains(&port.0))
}

fn policy(report: &PolicyReport, now: Instant) -> PolicyState {
    let counts = report.counts.iter();
    let counts = counts.map(|(dpid, count): (&DatapathId, _)| (dpid.to_string(), counted(*count)));
    PolicyState {
        state: installation(report.state),
        seen_ago_s: ago_s(now, report.seen),
        reasons: report.reasons.iter().cloned().collect(),
        switches: counts.collect(),
    }
}

fn circuit(report: &CircuitReport, now: Instant) -> CircuitState {
    let hops = report.hops.iter().map(|hop| HopDocument {
        dpid: hop.dpid.to_string(),
        in_port: hop.in_port.0,
        out_port: hop.out_port.0,
    });
    CircuitState {
        state: installation(report.state),
        seen_ago_s: ago_s(now, report.seen),
        reasons: report.reasons.iter().cloned().collect(),
        hops: hops.collect(),
        sent: counted(report.sent),
        answered: counted(report.answered),
    }
}

pub fn ago_s(now: Instant, seen: Option<Instant>) -> Option<u64> {
    seen.map(|at| now.since(at).as_secs())
}

pub fn installation(state: Installation) -> String {
    let name = match state {
        Installation::Waiting => "waiting",
        Installation::Installing => "installing",
        Installation::Installed => "installed",
        Installation::Active => "active",
        Installation::NotInEffect => "not in effect",
    };
    name.to_owned()
}

fn counted(count: Count) -> CountDocument {
    CountDocument {
        packets: count.packets,
        bytes: count.bytes,
    }
}

#[cfg(test)]
mod tests {
    use control::qos::circuits::Hop;
    use control::qos::{PortQueues, Rate};

    use super::*;

    #[test]
    fn queues_on_a_circuits_way_are_told_too() {
        let at = |dpid, port| Location::new(DatapathId(dpid), PortNo(port));
        let mut layers = Layers::default();
        let stated = PortQueues {
            rate: Rate::mbit(1),
            queues: BTreeMap::new(),
        };
        layers.file.ports.insert(at(9, 1), stated);
        let hop = |dpid| Hop {
            dpid: DatapathId(dpid),
            in_port: PortNo(1),
            out_port: PortNo(2),
        };
        let circuit = CircuitReport {
            state: Installation::Installed,
            seen: None,
            reasons: BTreeSet::new(),
            hops: vec![hop(1), hop(2)],
            sent: Count::default(),
            answered: Count::default(),
        };
        let mut report = QosReport::default();
        report.circuits.insert("video".to_owned(), circuit);
        let found = places(&layers, &report, |at| at.port == PortNo(2));
        assert_eq!(found, BTreeSet::from([at(1, 2), at(2, 2), at(9, 1)]));
    }
}
