//! The answers of an emulated switch to its controller's requests: it has no entries, groups,
//! meters or queues, and its ports are up.

use bytes::Bytes;
use openflow::message::{
    AsyncConfig, Capabilities, ErrorMessage, Port, PortConfig, PortName, PortState, QueueConfig,
    Role, RoleMessage, SwitchConfig, SwitchFeatures,
};
use openflow::multipart::{
    AggregateStats, Description, GroupFeatures, MeterFeatures, MultipartReply, ReplyBody,
    RequestBody,
};
use openflow::{ErrorKind, Frame, MacAddr, Message, PortNo, Version};

use super::layout::Layout;

/// The number of tables that Open vSwitch reports.
const TABLE_COUNT: u8 = 254;
/// Bytes of the message that an error quotes.
const QUOTED_BYTES: usize = 64;
/// 10 Gbit/s.
const SPEED_KBPS: u32 = 10_000_000;
/// Above the addresses of hosts.
const PORT_MAC_BASE: u32 = 0xff_0000;

/// Returns the answer to a message; `None` if the switch does not answer it.
pub fn answer_control(
    version: Version,
    layout: &Layout,
    frame: &Frame,
    message: Message,
) -> Option<Message> {
    Some(match message {
        Message::FeaturesRequest => Message::FeaturesReply(SwitchFeatures {
            datapath_id: layout.datapath_id(),
            n_buffers: 256,
            n_tables: TABLE_COUNT,
            auxiliary_id: 0,
            capabilities: Capabilities::FLOW_STATS
                | Capabilities::TABLE_STATS
                | Capabilities::PORT_STATS,
            // OUTPUT to STRIP_VLAN and on: all of 1.0.
            actions: if version == Version::V10 { 0xfff } else { 0 },
            ports: match version {
                Version::V10 => ports(layout, 0),
                _ => Vec::new(),
            },
        }),
        Message::EchoRequest(data) => Message::EchoReply(data),
        Message::BarrierRequest => Message::BarrierReply,
        Message::GetConfigRequest => Message::GetConfigReply(SwitchConfig {
            flags: 0,
            miss_send_len: 0xffff,
        }),
        Message::RoleRequest(request) => Message::RoleReply(RoleMessage {
            role: match request.role {
                Role::NoChange => Role::Equal,
                role => role,
            },
            ..request
        }),
        Message::GetAsyncRequest => {
            Message::GetAsyncReply(AsyncConfig::of_v13([3, 0], [7, 7], [15, 0]))
        }
        Message::QueueGetConfigRequest { port } => Message::QueueGetConfigReply(QueueConfig {
            port,
            queues: Vec::new(),
        }),
        Message::MultipartRequest(request) => match reply_body(layout, request.body) {
            Some(body) => Message::MultipartReply(MultipartReply { more: false, body }),
            None => refusal(ErrorKind::BAD_MULTIPART, frame),
        },
        Message::Experimenter(_) | Message::BundleControl(_) | Message::BundleAdd(_) => {
            refusal(ErrorKind::BAD_EXPERIMENTER, frame)
        }
        _ => return None,
    })
}

/// Returns the error that answers a refused message.
pub fn refusal(kind: ErrorKind, frame: &Frame) -> Message {
    let quoted = frame.len().min(QUOTED_BYTES);
    Message::Error(ErrorMessage::new(kind, frame.bytes().slice(..quoted)))
}

fn reply_body(layout: &Layout, body: RequestBody) -> Option<ReplyBody> {
    let none = AggregateStats {
        packet_count: 0,
        byte_count: 0,
        flow_count: 0,
        stats: Vec::new(),
    };
    Some(match body {
        RequestBody::Desc => ReplyBody::Desc(Description {
            manufacturer: Bytes::from_static(b"auster"),
            hardware: Bytes::from_static(b"emulated switch"),
            software: Bytes::from_static(env!("CARGO_PKG_VERSION").as_bytes()),
            serial: Bytes::from(layout.switch.to_string()),
            datapath: Bytes::from_static(b"auster bench"),
        }),
        RequestBody::Flow(_) => ReplyBody::Flow(Vec::new()),
        RequestBody::Aggregate(_) => ReplyBody::Aggregate(none),
        RequestBody::Table => ReplyBody::Table(Vec::new()),
        RequestBody::PortStats(_) => ReplyBody::PortStats(Vec::new()),
        RequestBody::Queue { .. } => ReplyBody::Queue(Vec::new()),
        RequestBody::Group(_) => ReplyBody::Group(Vec::new()),
        RequestBody::GroupDesc(_) => ReplyBody::GroupDesc(Vec::new()),
        RequestBody::GroupFeatures => ReplyBody::GroupFeatures(GroupFeatures {
            types: 0,
            capabilities: 0,
            max_groups: [0; 4],
            actions: [0; 4],
        }),
        RequestBody::Meter(_) => ReplyBody::Meter(Vec::new()),
        RequestBody::MeterConfig(_) => ReplyBody::MeterConfig(Vec::new()),
        RequestBody::MeterFeatures => ReplyBody::MeterFeatures(MeterFeatures {
            max_meter: 0,
            band_types: 0,
            capabilities: 0,
            max_bands: 0,
            max_color: 0,
            features: None,
        }),
        RequestBody::TableFeatures(_) => ReplyBody::TableFeatures(Vec::new()),
        RequestBody::PortDesc(_) => ReplyBody::PortDesc(ports(layout, SPEED_KBPS)),
        RequestBody::TableDesc
        | RequestBody::QueueDesc { .. }
        | RequestBody::FlowMonitor(_)
        | RequestBody::FlowCounters(_)
        | RequestBody::ControllerStatus
        | RequestBody::BundleFeatures(_)
        | RequestBody::Experimenter { .. }
        | RequestBody::Other { .. } => return None,
    })
}

/// Returns the ports. OpenFlow 1.0 has no field for a speed.
fn ports(layout: &Layout, speed: u32) -> Vec<Port> {
    let port = |no: PortNo| Port {
        port_no: no,
        hw_addr: MacAddr::from_u64(layout.mac(PORT_MAC_BASE + no.0)),
        name: PortName::new(&format!("s{}-p{}", layout.switch, no.0)),
        config: PortConfig::empty(),
        state: PortState::empty(),
        curr: 0,
        advertised: 0,
        supported: 0,
        peer: 0,
        curr_speed: speed,
        max_speed: speed,
        properties: Vec::new(),
    };
    layout.ports().map(port).collect()
}
