//! The network as one document, for a page: switches, ports and links, at one moment of the event
//! stream.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use clock::Instant;
use control::controller::{Cable, Controller, Location, PortDetail, SwitchView};
use control::topology::Difference;
use driver::ConnectionView;
use openflow::DatapathId;
use openflow::message::PortName;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::compressed::{accepts_gzip, gzip, mark};
use super::problem::Problem;
use super::rates::{PortRates, Rated};

/// The time for which later readers share an answer of the controller's thread, unless an event has
/// occurred.
const SHARED_FOR: std::time::Duration = std::time::Duration::from_millis(250);

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(topology))
        .routes(routes!(links))
}

/// The network at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct TopologyDocument {
    /// Every event up to this number is in the document: read on with `/v1/events?since=`.
    pub seq: u64,
    /// Whether the network is compared with an administrator's topology.
    pub is_compared: bool,
    pub differences: Vec<String>,
    pub host_count: u64,
    /// Seconds since counters of ports were last read; null if nobody has watched lately.
    pub rates_age_s: Option<f64>,
    /// Sorted by datapath id.
    pub switches: Vec<SwitchNode>,
    pub links: Vec<LinkDocument>,
    /// Links of the administrator's topology that are not found.
    pub missing_links: Vec<MissingLink>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct SwitchNode {
    #[schema(example = "0000000000000001")]
    pub dpid: String,
    /// The bridge's.
    pub name: Option<String>,
    pub is_connected: bool,
    /// `serving`, `standing by` (another member of the cluster serves it) or `away` (it is not
    /// connected, and its ports and links are the last that were known).
    #[schema(example = "serving")]
    pub role: &'static str,
    /// The OpenFlow version.
    #[schema(example = "1.3")]
    pub version: Option<String>,
    pub software: Option<String>,
    pub hardware: Option<String>,
    pub address: Option<String>,
    pub transport: Option<&'static str>,
    pub tls: Option<&'static str>,
    pub up_s: Option<f64>,
    pub host_count: u64,
    /// Entries that the controller has set here.
    pub flow_count: u64,
    pub ports: Vec<PortNode>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PortNode {
    pub number: u32,
    #[schema(example = "0000000000000001:2")]
    pub port: String,
    pub name: String,
    pub hw_addr: String,
    pub is_up: bool,
    /// The use that forwarding makes of it: `edge`, `link`, `bond`, `held`, `claimed`, `silent`,
    /// `closed` or `down`.
    #[schema(example = "edge")]
    pub role: &'static str,
    pub speed_bps: Option<u64>,
    pub host_count: u64,
    /// Null unless they were read lately.
    pub rates: Option<PortRates>,
}

/// A link in both directions. `from` is the lower end.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct LinkDocument {
    #[schema(example = "0000000000000001:2")]
    pub from: String,
    #[schema(example = "0000000000000002:1")]
    pub to: String,
    /// Whether both directions are proven.
    pub is_usable: bool,
    /// Whether the operator drains it, or one of its switches.
    pub is_drained: bool,
    /// Whether paths avoid it until it has proved itself.
    pub is_doubted: bool,
    /// Whether it drops full-size frames.
    pub is_narrow: bool,
    /// Whether the administrator's topology has it; null without one.
    pub is_stated: Option<bool>,
    pub speed_bps: Option<u64>,
    /// The load from `from` to `to`.
    pub there: Option<Load>,
    /// The load from `to` to `from`.
    pub back: Option<Load>,
}

/// The load of a link in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct Load {
    pub bps: f64,
    /// The fraction of the link's speed.
    pub load: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct MissingLink {
    pub from: String,
    pub to: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Links {
    /// Every event up to this number is in the document.
    pub seq: u64,
    pub links: Vec<LinkDocument>,
    /// Links of the administrator's topology that are not found.
    pub missing: Vec<MissingLink>,
}

/// The controller's knowledge, except hosts and paths.
#[derive(Clone, Debug, Default)]
pub struct Network {
    pub switches: Vec<SwitchView>,
    /// Sorted by switch and number.
    pub ports: Vec<PortDetail>,
    cables: Vec<Cable>,
    /// Differences from the administrator's topology; `None` without one.
    differences: Option<Vec<Difference>>,
    host_count: usize,
}

impl Network {
    fn add(&mut self, controller: &Controller, part: Part) -> Option<Part> {
        match part {
            Part::Switches(after) => match controller.switches_after(after) {
                Some(part) => {
                    self.switches.extend(part.switches);
                    self.ports.extend(part.ports);
                    let last = self.switches.last().map(|switch| switch.dpid);
                    Some(Part::Switches(last))
                }
                None => Some(Part::Cables),
            },
            Part::Cables => {
                self.cables = controller.cables();
                self.host_count = controller.host_count();
                controller.has_topology().then_some(Part::Differences)
            }
            Part::Differences => {
                self.differences = Some(controller.topology_differences());
                None
            }
        }
    }
}

/// The network, and the number of the last event before.
pub struct Snapshot {
    pub seq: u64,
    pub taken: Instant,
    /// The time that the controller's thread took for the snapshot.
    pub took: std::time::Duration,
    pub network: Network,
    /// Connections of switches that are up or standing by.
    pub connections: BTreeMap<DatapathId, ConnectionView>,
    /// `/v1/topology`, once somebody has asked for it: megabytes in a large network, and after an
    /// event all pages read it.
    document: OnceLock<Bytes>,
    /// The same document in gzip.
    gzipped: OnceLock<Bytes>,
}

/// A part of the network that is read in one step, while switches wait.
#[derive(Clone, Copy)]
enum Part {
    /// The switches after this one.
    Switches(Option<DatapathId>),
    Cables,
    Differences,
}

impl Api {
    /// Reads a part. Returns the next one.
    async fn read_part(
        &self,
        network: &mut Network,
        part: Part,
        took: &mut std::time::Duration,
    ) -> Result<Option<Part>, Problem> {
        let (clock, mut read) = (self.clock, std::mem::take(network));
        let (read, next, time) = self
            .ask_soon(move |controller| {
                let begun = clock.now();
                let next = read.add(controller, part);
                (read, next, clock.now().since(begun))
            })
            .await?;
        *network = read;
        *took = took.saturating_add(time);
        Ok(next)
    }

    /// The network. Readers that ask at the same time, or during another read, share one answer.
    pub async fn snapshot(&self) -> Result<Arc<Snapshot>, Problem> {
        let asked = self.clock.now();
        let mut kept = self.reads.snapshot.lock().await;
        // Taken before the question: every event up to this number is in the answer.
        let seq = self.reads.feed.last();
        let now = self.clock.now();
        let is_new = |of: &Arc<Snapshot>| of.seq == seq && now.since(of.taken) < SHARED_FOR;
        let serves = |of: &&Arc<Snapshot>| of.taken >= asked || is_new(of);
        if let Some(snapshot) = kept.as_ref().filter(serves) {
            return Ok(snapshot.clone());
        }
        let mut network = Network::default();
        let mut took = std::time::Duration::ZERO;
        let mut part = Part::Switches(None);
        while let Some(next) = self.read_part(&mut network, part, &mut took).await? {
            part = next;
        }
        let up = self.driver.connections().into_iter();
        let up = up.filter(|connection| connection.is_admitted || connection.is_aside);
        let connections = up.filter_map(|c| Some((c.datapath_id?, c))).collect();
        let snapshot = Arc::new(Snapshot {
            seq,
            taken: now,
            took,
            network,
            connections,
            document: OnceLock::new(),
            gzipped: OnceLock::new(),
        });
        *kept = Some(snapshot.clone());
        Ok(snapshot)
    }
}

impl Snapshot {
    pub fn role(&self, switch: &SwitchView) -> &'static str {
        match switch.connection.is_some() {
            true => "serving",
            false if self.stands_by(switch.dpid) => "standing by",
            false => "away",
        }
    }

    fn stands_by(&self, dpid: DatapathId) -> bool {
        self.connections.get(&dpid).is_some_and(|c| c.is_aside)
    }

    fn document(&self, rated: &Rated) -> TopologyDocument {
        let mut by_switch: BTreeMap<DatapathId, Vec<&PortDetail>> = BTreeMap::new();
        for port in &self.network.ports {
            by_switch.entry(port.at.dpid).or_default().push(port);
        }
        let switches = self.network.switches.iter();
        let mut nodes: Vec<SwitchNode> = switches
            .map(|switch| {
                let ports = by_switch.remove(&switch.dpid).unwrap_or_default();
                self.switch(switch, &ports, rated)
            })
            .collect();
        let known: BTreeSet<DatapathId> = self.network.switches.iter().map(|s| s.dpid).collect();
        let aside = self.connections.iter().filter(|(_, c)| c.is_aside);
        let aside = aside.filter(|(dpid, _)| !known.contains(dpid));
        nodes.extend(aside.map(|(dpid, connection)| standing_by(*dpid, connection)));
        nodes.sort_by(|a, b| a.dpid.cmp(&b.dpid));
        let differences = self.network.differences.as_deref();
        TopologyDocument {
            seq: self.seq,
            is_compared: differences.is_some(),
            differences: differences
                .into_iter()
                .flatten()
                .map(ToString::to_string)
                .collect(),
            host_count: self.network.host_count as u64,
            rates_age_s: rated.age_s,
            switches: nodes,
            links: self.links(rated),
            missing_links: self.missing(),
        }
    }

    fn switch(&self, switch: &SwitchView, ports: &[&PortDetail], rated: &Rated) -> SwitchNode {
        let text = |bytes: &bytes::Bytes| String::from_utf8_lossy(bytes).into_owned();
        let connection = self.connections.get(&switch.dpid);
        let described = switch.description.as_ref();
        let is_connected = switch.connection.is_some();
        SwitchNode {
            dpid: switch.dpid.to_string(),
            name: name(switch.name),
            is_connected,
            role: self.role(switch),
            version: Some(switch.version.to_string()),
            software: described.map(|d| text(&d.software)),
            hardware: described.map(|d| text(&d.hardware)),
            address: connection.map(|c| c.peer.address.clone()),
            transport: connection.map(|c| c.peer.transport.name()),
            tls: connection.and_then(|c| c.peer.tls.as_ref().map(|tls| tls.version)),
            up_s: is_connected.then(|| self.taken.since(switch.up_since).as_secs_f64()),
            host_count: ports.iter().map(|port| port.host_count as u64).sum(),
            flow_count: switch.flow_count as u64,
            ports: ports.iter().map(|port| node(port, rated)).collect(),
        }
    }

    /// The links with their loads.
    pub fn links(&self, rated: &Rated) -> Vec<LinkDocument> {
        let speeds: BTreeMap<Location, u64> = self
            .network
            .ports
            .iter()
            .filter_map(|port| Some((port.at, speed(port)?)))
            .collect();
        let link = |cable: &Cable| link(cable, &speeds, rated);
        self.network.cables.iter().map(link).collect()
    }

    fn missing(&self) -> Vec<MissingLink> {
        let differences = self.network.differences.iter().flatten();
        let missing = differences.filter_map(|difference| match difference {
            Difference::LinkMissing(from, to) => Some(MissingLink {
                from: from.to_string(),
                to: to.to_string(),
            }),
            _ => None,
        });
        missing.collect()
    }
}

fn standing_by(dpid: DatapathId, connection: &ConnectionView) -> SwitchNode {
    SwitchNode {
        dpid: dpid.to_string(),
        name: None,
        is_connected: true,
        role: "standing by",
        version: connection.version.map(|version| version.to_string()),
        software: None,
        hardware: None,
        address: Some(connection.peer.address.clone()),
        transport: Some(connection.peer.transport.name()),
        tls: connection.peer.tls.as_ref().map(|tls| tls.version),
        up_s: None,
        host_count: 0,
        flow_count: 0,
        ports: Vec::new(),
    }
}

fn name(name: Option<PortName>) -> Option<String> {
    name.map(PortName::to_text).filter(|name| !name.is_empty())
}

/// Returns the speed of a port in bits per second.
pub fn speed(port: &PortDetail) -> Option<u64> {
    (port.speed_kbit > 0).then(|| u64::from(port.speed_kbit) * 1000)
}

fn node(port: &PortDetail, rated: &Rated) -> PortNode {
    PortNode {
        number: port.at.port.0,
        port: port.at.to_string(),
        name: port.name.to_text(),
        hw_addr: port.hw_addr.to_string(),
        is_up: port.is_up,
        role: port.used_as.name(),
        speed_bps: speed(port),
        host_count: port.host_count as u64,
        rates: rated.of(port.at),
    }
}

fn link(cable: &Cable, speeds: &BTreeMap<Location, u64>, rated: &Rated) -> LinkDocument {
    let (from, to) = (cable.from, cable.to);
    let ends = [from, to];
    let speed = ends.iter().filter_map(|end| speeds.get(end)).min().copied();
    let load = |out: Location, into: Location| {
        let sent = rated.of(out).map(|rates| rates.tx_bps);
        let bps = sent.or_else(|| rated.of(into).map(|rates| rates.rx_bps))?;
        let load = speed.map(|speed| bps / speed as f64);
        Some(Load { bps, load })
    };
    LinkDocument {
        from: from.to_string(),
        to: to.to_string(),
        is_usable: cable.is_usable,
        is_drained: cable.is_drained,
        is_doubted: cable.is_doubted,
        is_narrow: cable.is_narrow,
        is_stated: cable.is_stated,
        speed_bps: speed,
        there: load(from, to),
        back: load(to, from),
    }
}

/// Switches with their ports, and links. While somebody asks, or reads `/v1/live`,
/// auster reads the counters of ports each 2 seconds.
#[utoipa::path(get, path = "/v1/topology", tag = "network", operation_id = "topology",
    responses((status = 200, body = TopologyDocument)))]
async fn topology(State(api): State<Api>, asked: HeaderMap) -> Result<Response, Problem> {
    api.want_rates();
    let snapshot = api.snapshot().await?;
    let document = || {
        let document = serde_json::to_vec(&snapshot.document(&api.rated()));
        document.expect("all keys are strings").into()
    };
    let plain = snapshot.document.get_or_init(document);
    let kind = [(CONTENT_TYPE, "application/json")];
    if !accepts_gzip(&asked) {
        return Ok((kind, plain.clone()).into_response());
    }
    let gzipped = snapshot.gzipped.get_or_init(|| gzip(plain)).clone();
    Ok(mark((kind, gzipped).into_response()))
}

/// The links, each with both of its directions.
#[utoipa::path(get, path = "/v1/links", tag = "network", operation_id = "links",
    responses((status = 200, body = Links)))]
async fn links(State(api): State<Api>) -> Result<Json<Links>, Problem> {
    api.want_rates();
    let snapshot = api.snapshot().await?;
    Ok(Json(Links {
        seq: snapshot.seq,
        links: snapshot.links(&api.rated()),
        missing: snapshot.missing(),
    }))
}
