//! Switches, and their counters.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use control::controller::SwitchView;
use driver::databases::DatapathView;
use openflow::multipart::{MeterStats, ReplyBody, RequestBody};
use openflow::{DatapathId, MeterId, PortNo, QueueId};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::problem::Problem;

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_switches))
        .routes(routes!(get_switch))
        .routes(routes!(port_statistics))
        .routes(routes!(queue_statistics))
        .routes(routes!(meter_statistics))
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Switches {
    pub switches: Vec<SwitchDocument>,
}

/// A switch, and its database if that is connected.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct SwitchDocument {
    #[schema(example = "0000000000000001")]
    pub dpid: String,
    pub is_connected: bool,
    /// The OpenFlow version.
    #[schema(example = "1.3")]
    pub version: String,
    pub software: Option<String>,
    pub port_count: u64,
    /// Entries that the controller has set here.
    pub flow_count: u64,
    pub database: Option<DatabaseDocument>,
}

/// The state that a switch's database reports (OVSDB).
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct DatabaseDocument {
    pub address: String,
    pub bridge: String,
    /// `system` is the kernel's, which chooses queues by `set_queue`; others do by code point.
    #[schema(example = "netdev")]
    pub datapath_type: String,
    pub ports: Vec<DatabasePort>,
}

/// The progress of a port towards its requested queues.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct DatabasePort {
    pub name: String,
    /// The OpenFlow port numbers; a bond has more than one.
    pub numbers: Vec<u32>,
    /// absent, left, taken, no port, changing, failed, written, in effect.
    #[schema(example = "in effect")]
    pub queues: String,
    pub problem: Option<String>,
}

/// Counters of all ports; null where the switch does not count.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PortStatistics {
    pub ports: Vec<PortCounters>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PortCounters {
    /// A number, or a name such as LOCAL.
    pub port: String,
    pub rx_packets: Option<u64>,
    pub tx_packets: Option<u64>,
    pub rx_bytes: Option<u64>,
    pub tx_bytes: Option<u64>,
    pub rx_dropped: Option<u64>,
    pub tx_dropped: Option<u64>,
    pub rx_errors: Option<u64>,
    pub tx_errors: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct QueueStatistics {
    pub queues: Vec<QueueCounters>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct QueueCounters {
    pub port: String,
    pub queue: u32,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    /// Packets that the queue had no room for.
    pub tx_errors: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct MeterStatistics {
    pub meters: Vec<MeterCounters>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct MeterCounters {
    pub meter: u32,
    pub flow_count: u32,
    pub packets_in: u64,
    pub bytes_in: u64,
    /// The packets above the rate of each band.
    pub bands: Vec<BandCounters>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct BandCounters {
    pub packets: u64,
    pub bytes: u64,
}

impl Api {
    /// The switches by datapath id.
    pub async fn switches(&self) -> Result<Vec<SwitchView>, Problem> {
        self.ask_soon(|controller| controller.switches()).await
    }

    fn switch(&self, view: &SwitchView) -> SwitchDocument {
        let text = |bytes: &bytes::Bytes| String::from_utf8_lossy(bytes).into_owned();
        let views = self.views.borrow();
        SwitchDocument {
            dpid: view.dpid.to_string(),
            is_connected: view.connection.is_some(),
            version: view.version.to_string(),
            software: view.description.as_ref().map(|d| text(&d.software)),
            port_count: view.port_count as u64,
            flow_count: view.flow_count as u64,
            database: views.get(&view.dpid).map(database),
        }
    }
}

fn database(view: &DatapathView) -> DatabaseDocument {
    let ports = view.ports.iter().map(|(name, port)| DatabasePort {
        name: name.clone(),
        numbers: port.numbers.clone(),
        queues: port.queues.name().to_owned(),
        problem: port.queues.problem(),
    });
    DatabaseDocument {
        address: view.database.clone(),
        bridge: view.bridge.clone(),
        datapath_type: view.datapath_type.clone(),
        ports: ports.collect(),
    }
}

pub fn dpid(text: &str) -> Result<DatapathId, Problem> {
    let dpid = text.parse::<DatapathId>();
    dpid.map_err(|problem| Problem::new(StatusCode::NOT_FOUND, problem))
}

/// The switches that are connected, or were until lately.
#[utoipa::path(get, path = "/v1/switches", tag = "network", operation_id = "list_switches",
    responses((status = 200, body = Switches)))]
async fn list_switches(State(api): State<Api>) -> Result<Json<Switches>, Problem> {
    let views = api.switches().await?;
    let switches = views.iter().map(|view| api.switch(view)).collect();
    Ok(Json(Switches { switches }))
}

/// One of them.
#[utoipa::path(get, path = "/v1/switches/{dpid}", tag = "network", operation_id = "get_switch",
    params(("dpid" = String, Path, example = "0000000000000001")),
    responses(
        (status = 200, body = SwitchDocument),
        (status = 404),
    ))]
async fn get_switch(
    State(api): State<Api>,
    Path(text): Path<String>,
) -> Result<Json<SwitchDocument>, Problem> {
    let dpid = dpid(&text)?;
    let views = api.switches().await?;
    let view = views.iter().find(|view| view.dpid == dpid);
    let unknown = || Problem::new(StatusCode::NOT_FOUND, format!("there is no switch {dpid}"));
    view.map(|view| Json(api.switch(view))).ok_or_else(unknown)
}

macro_rules! statistics {
    (
        $(#[$doc:meta])* $name:ident $id:literal, $path:literal, $document:ident, $body:expr,
        $read:expr
    ) => {
        $(#[$doc])*
        #[utoipa::path(get, path = $path, tag = "network", operation_id = $id,
            params(("dpid" = String, Path, example = "0000000000000001")),
            responses(
                (status = 200, body = $document),
                (status = 404, description = "It is not connected"),
                (status = 501, description = "The switch has none"),
                (status = 504, description = "It does not answer"),
            ))]
        async fn $name(
            State(api): State<Api>,
            Path(text): Path<String>,
        ) -> Result<Json<$document>, Problem> {
            let bodies = api.ask_switch(dpid(&text)?, $body).await?;
            let read: fn(Vec<ReplyBody>) -> $document = $read;
            Ok(Json(read(bodies)))
        }
    };
}

statistics!(
    /// The counters of the switch's ports.
    port_statistics "port_statistics", "/v1/switches/{dpid}/ports", PortStatistics,
    RequestBody::PortStats(PortNo::ANY), ports
);

statistics!(
    /// The counters of the queues of the switch's ports.
    queue_statistics "queue_statistics", "/v1/switches/{dpid}/queues", QueueStatistics,
    RequestBody::Queue { port: PortNo::ANY, queue: QueueId::ALL }, queues
);

statistics!(
    /// The counters of the switch's meters.
    meter_statistics "meter_statistics", "/v1/switches/{dpid}/meters", MeterStatistics,
    RequestBody::Meter(MeterId::ALL), meters
);

/// A count, unless it is all ones: then the switch does not count it (OpenFlow 1.3.5, 7.3.5.6).
fn counted(count: u64) -> Option<u64> {
    Some(count).filter(|count| *count != u64::MAX)
}

fn ports(bodies: Vec<ReplyBody>) -> PortStatistics {
    let rows = bodies.into_iter().flat_map(|body| match body {
        ReplyBody::PortStats(rows) => rows,
        _ => Vec::new(),
    });
    let ports = rows.map(|row| PortCounters {
        port: row.port_no.to_string(),
        rx_packets: counted(row.rx_packets),
        tx_packets: counted(row.tx_packets),
        rx_bytes: counted(row.rx_bytes),
        tx_bytes: counted(row.tx_bytes),
        rx_dropped: counted(row.rx_dropped),
        tx_dropped: counted(row.tx_dropped),
        rx_errors: counted(row.rx_errors),
        tx_errors: counted(row.tx_errors),
    });
    PortStatistics {
        ports: ports.collect(),
    }
}

fn queues(bodies: Vec<ReplyBody>) -> QueueStatistics {
    let rows = bodies.into_iter().flat_map(|body| match body {
        ReplyBody::Queue(rows) => rows,
        _ => Vec::new(),
    });
    let queues = rows.map(|row| QueueCounters {
        port: row.port_no.to_string(),
        queue: row.queue_id.0,
        tx_packets: row.tx_packets,
        tx_bytes: row.tx_bytes,
        tx_errors: row.tx_errors,
    });
    QueueStatistics {
        queues: queues.collect(),
    }
}

fn meters(bodies: Vec<ReplyBody>) -> MeterStatistics {
    let rows = bodies.into_iter().flat_map(|body| match body {
        ReplyBody::Meter(rows) => rows,
        _ => Vec::new(),
    });
    let band = |(packets, bytes): &(u64, u64)| BandCounters {
        packets: *packets,
        bytes: *bytes,
    };
    let meters = rows.map(|row: MeterStats| MeterCounters {
        meter: row.meter_id.0,
        flow_count: row.flow_count,
        packets_in: row.packet_in_count,
        bytes_in: row.byte_in_count,
        bands: row.bands.iter().map(band).collect(),
    });
    MeterStatistics {
        meters: meters.collect(),
    }
}
