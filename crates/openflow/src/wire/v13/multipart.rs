//! Multipart requests and replies: the common header, and which body belongs to which type.

use crate::error::{DecodeError, EncodeError};
use crate::frame::Frame;
use crate::multipart::{
    Description, FlowStats, MultipartReply, MultipartRequest, ReplyBody, RequestBody, UnreadableRow,
};
use crate::types::{GroupId, PortNo};

use super::super::reader::Reader;
use super::super::writer::Writer;
use super::{flow, group, meter, port, queue, table, table_features};

/// OFPMP_*.
pub(in crate::wire) mod mp {
    pub const DESC: u16 = 0;
    pub const FLOW: u16 = 1;
    pub const AGGREGATE: u16 = 2;
    pub const TABLE: u16 = 3;
    pub const PORT_STATS: u16 = 4;
    pub const QUEUE: u16 = 5;
    pub const GROUP: u16 = 6;
    pub const GROUP_DESC: u16 = 7;
    pub const GROUP_FEATURES: u16 = 8;
    pub const METER: u16 = 9;
    pub const METER_CONFIG: u16 = 10;
    pub const METER_FEATURES: u16 = 11;
    pub const TABLE_FEATURES: u16 = 12;
    pub const PORT_DESC: u16 = 13;
    /// 1.4 and later.
    pub const TABLE_DESC: u16 = 14;
    pub const QUEUE_DESC: u16 = 15;
    pub const FLOW_MONITOR: u16 = 16;
    /// 1.5.
    pub const FLOW_COUNTERS: u16 = 17;
    pub const CONTROLLER_STATUS: u16 = 18;
    pub const BUNDLE_FEATURES: u16 = 19;
    pub const EXPERIMENTER: u16 = 0xffff;
}

/// OFPMPF_REQ_MORE and OFPMPF_REPLY_MORE.
const MORE: u16 = 1;

/// DESC_STR_LEN and SERIAL_NUM_LEN.
const DESC_STR_LEN: usize = 256;
const SERIAL_NUM_LEN: usize = 32;

/// Reads a request; `body` reads its body.
pub(in crate::wire) fn decode_request(
    r: &mut Reader,
    body: fn(u16, &mut Reader) -> Result<RequestBody, DecodeError>,
) -> Result<MultipartRequest, DecodeError> {
    let (kind, more) = decode_header(r)?;
    let body = body(kind, r)?;
    Ok(MultipartRequest { more, body })
}

pub(in crate::wire) fn decode_request_body(
    kind: u16,
    r: &mut Reader,
) -> Result<RequestBody, DecodeError> {
    Ok(match kind {
        mp::DESC => RequestBody::Desc,
        mp::FLOW => RequestBody::Flow(flow::decode_stats_request(r)?),
        mp::AGGREGATE => RequestBody::Aggregate(flow::decode_stats_request(r)?),
        mp::TABLE => RequestBody::Table,
        mp::PORT_STATS => RequestBody::PortStats(port::decode_stats_request(r)?),
        mp::QUEUE => {
            let (port, queue) = queue::decode_stats_request(r)?;
            RequestBody::Queue { port, queue }
        }
        mp::GROUP => {
            let group = GroupId(r.u32()?);
            r.skip(4)?;
            RequestBody::Group(group)
        }
        mp::GROUP_DESC => RequestBody::GroupDesc(GroupId::ALL),
        mp::GROUP_FEATURES => RequestBody::GroupFeatures,
        mp::METER => RequestBody::Meter(meter::decode_request(r)?),
        mp::METER_CONFIG => RequestBody::MeterConfig(meter::decode_request(r)?),
        mp::METER_FEATURES => RequestBody::MeterFeatures,
        mp::TABLE_FEATURES => RequestBody::TableFeatures(r.list(table_features::decode)?),
        mp::PORT_DESC => RequestBody::PortDesc(PortNo::ANY),
        mp::EXPERIMENTER => RequestBody::Experimenter {
            experimenter: r.u32()?,
            data: r.rest(),
        },
        kind => RequestBody::Other {
            kind,
            body: r.rest(),
        },
    })
}

/// Writes a request; `body` writes its body.
pub(in crate::wire) fn encode_request(
    request: &MultipartRequest,
    w: &mut Writer,
    body: fn(&RequestBody, &mut Writer) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    encode_header(request_kind(&request.body), request.more, w);
    body(&request.body, w)
}

pub(in crate::wire) fn encode_request_body(
    body: &RequestBody,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    match body {
        RequestBody::Desc
        | RequestBody::Table
        | RequestBody::GroupDesc(GroupId::ALL)
        | RequestBody::GroupFeatures
        | RequestBody::MeterFeatures
        | RequestBody::PortDesc(PortNo::ANY) => {}
        RequestBody::Flow(request) | RequestBody::Aggregate(request) => {
            flow::encode_stats_request(request, w)?;
        }
        RequestBody::PortStats(port) => port::encode_stats_request(*port, w),
        RequestBody::Queue { port, queue } => {
            w.u32(port.0);
            w.u32(queue.0);
        }
        RequestBody::Group(group) => {
            w.u32(group.0);
            w.zeros(4);
        }
        RequestBody::Meter(meter) | RequestBody::MeterConfig(meter) => {
            meter::encode_request(*meter, w);
        }
        RequestBody::TableFeatures(tables) => {
            for table in tables {
                table_features::encode(table, w)?;
            }
        }
        RequestBody::Experimenter { experimenter, data } => {
            w.u32(*experimenter);
            w.bytes(data);
        }
        RequestBody::Other { body, .. } => w.bytes(body),
        RequestBody::GroupDesc(_) => return w.unsupported("description of one group"),
        RequestBody::PortDesc(_) => return w.unsupported("description of one port"),
        RequestBody::TableDesc
        | RequestBody::QueueDesc { .. }
        | RequestBody::FlowMonitor(_)
        | RequestBody::FlowCounters(_)
        | RequestBody::ControllerStatus
        | RequestBody::BundleFeatures(_) => return w.unsupported("such multipart request"),
    }
    Ok(())
}

pub(in crate::wire) fn request_kind(body: &RequestBody) -> u16 {
    match body {
        RequestBody::Desc => mp::DESC,
        RequestBody::Flow(_) => mp::FLOW,
        RequestBody::Aggregate(_) => mp::AGGREGATE,
        RequestBody::Table => mp::TABLE,
        RequestBody::PortStats(_) => mp::PORT_STATS,
        RequestBody::Queue { .. } => mp::QUEUE,
        RequestBody::Group(_) => mp::GROUP,
        RequestBody::GroupDesc(_) => mp::GROUP_DESC,
        RequestBody::GroupFeatures => mp::GROUP_FEATURES,
        RequestBody::Meter(_) => mp::METER,
        RequestBody::MeterConfig(_) => mp::METER_CONFIG,
        RequestBody::MeterFeatures => mp::METER_FEATURES,
        RequestBody::TableFeatures(_) => mp::TABLE_FEATURES,
        RequestBody::PortDesc(_) => mp::PORT_DESC,
        RequestBody::TableDesc => mp::TABLE_DESC,
        RequestBody::QueueDesc { .. } => mp::QUEUE_DESC,
        RequestBody::FlowMonitor(_) => mp::FLOW_MONITOR,
        RequestBody::FlowCounters(_) => mp::FLOW_COUNTERS,
        RequestBody::ControllerStatus => mp::CONTROLLER_STATUS,
        RequestBody::BundleFeatures(_) => mp::BUNDLE_FEATURES,
        RequestBody::Experimenter { .. } => mp::EXPERIMENTER,
        RequestBody::Other { kind, .. } => *kind,
    }
}

/// Reads a reply; `body` reads its body.
pub(in crate::wire) fn decode_reply(
    r: &mut Reader,
    body: fn(u16, &mut Reader) -> Result<ReplyBody, DecodeError>,
) -> Result<MultipartReply, DecodeError> {
    let (kind, more) = decode_header(r)?;
    let body = body(kind, r)?;
    Ok(MultipartReply { more, body })
}

pub(in crate::wire) fn decode_reply_body(
    kind: u16,
    r: &mut Reader,
) -> Result<ReplyBody, DecodeError> {
    Ok(match kind {
        mp::DESC => ReplyBody::Desc(decode_desc(r)?),
        mp::FLOW => ReplyBody::Flow(r.list(flow::decode_stats)?),
        mp::AGGREGATE => ReplyBody::Aggregate(flow::decode_aggregate(r)?),
        mp::TABLE => ReplyBody::Table(r.list(table::decode_stats)?),
        mp::PORT_STATS => ReplyBody::PortStats(r.list(port::decode_stats)?),
        mp::QUEUE => ReplyBody::Queue(r.list(queue::decode_stats)?),
        mp::GROUP => ReplyBody::Group(r.list(group::decode_stats)?),
        mp::GROUP_DESC => ReplyBody::GroupDesc(r.list(group::decode_desc)?),
        mp::GROUP_FEATURES => ReplyBody::GroupFeatures(group::decode_features(r)?),
        mp::METER => ReplyBody::Meter(r.list(meter::decode_stats)?),
        mp::METER_CONFIG => ReplyBody::MeterConfig(r.list(meter::decode_config)?),
        mp::METER_FEATURES => ReplyBody::MeterFeatures(meter::decode_features(r)?),
        mp::TABLE_FEATURES => ReplyBody::TableFeatures(r.list(table_features::decode)?),
        mp::PORT_DESC => ReplyBody::PortDesc(r.list(port::decode_port)?),
        mp::EXPERIMENTER => ReplyBody::Experimenter {
            experimenter: r.u32()?,
            data: r.rest(),
        },
        kind => ReplyBody::Other {
            kind,
            body: r.rest(),
        },
    })
}

/// Reads a reply of flow statistics, and the readable part of rows that cannot be decoded.
pub(in crate::wire) fn decode_flow_rows(
    frame: &Frame,
    row: fn(&mut Reader) -> Result<FlowStats, DecodeError>,
    unreadable: fn(&mut Reader, DecodeError) -> Result<UnreadableRow, DecodeError>,
) -> Result<Option<(MultipartReply, Vec<UnreadableRow>)>, DecodeError> {
    let mut r = Reader::body_of(frame, "MULTIPART_REPLY");
    let (kind, more) = decode_header(&mut r)?;
    if kind != mp::FLOW {
        return Ok(None);
    }
    let (rows, unreadable) = r.rows("flow statistics", row, unreadable)?;
    let body = ReplyBody::Flow(rows);
    Ok(Some((MultipartReply { more, body }, unreadable)))
}

/// Writes a reply; `body` writes its body.
pub(in crate::wire) fn encode_reply(
    reply: &MultipartReply,
    w: &mut Writer,
    body: fn(&ReplyBody, &mut Writer) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    encode_header(reply_kind(&reply.body), reply.more, w);
    body(&reply.body, w)
}

pub(in crate::wire) fn encode_reply_body(
    body: &ReplyBody,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    match body {
        ReplyBody::Desc(desc) => encode_desc(desc, w)?,
        ReplyBody::Flow(flows) => {
            flows.iter().try_for_each(|s| flow::encode_stats(s, w))?;
        }
        ReplyBody::Aggregate(stats) => flow::encode_aggregate(stats, w)?,
        ReplyBody::Table(tables) => {
            tables.iter().try_for_each(|s| table::encode_stats(s, w))?;
        }
        ReplyBody::PortStats(ports) => {
            ports.iter().try_for_each(|s| port::encode_stats(s, w))?;
        }
        ReplyBody::Queue(queues) => {
            queues.iter().try_for_each(|s| queue::encode_stats(s, w))?;
        }
        ReplyBody::Group(groups) => {
            groups.iter().try_for_each(|s| group::encode_stats(s, w))?;
        }
        ReplyBody::GroupDesc(groups) => {
            groups.iter().try_for_each(|d| group::encode_desc(d, w))?;
        }
        ReplyBody::GroupFeatures(features) => group::encode_features(features, w),
        ReplyBody::Meter(meters) => {
            meters.iter().try_for_each(|s| meter::encode_stats(s, w))?;
        }
        ReplyBody::MeterConfig(meters) => {
            meters.iter().try_for_each(|c| meter::encode_config(c, w))?;
        }
        ReplyBody::MeterFeatures(features) => meter::encode_features(features, w)?,
        ReplyBody::TableFeatures(tables) => {
            tables
                .iter()
                .try_for_each(|f| table_features::encode(f, w))?;
        }
        ReplyBody::PortDesc(ports) => {
            ports.iter().try_for_each(|p| port::encode_port(p, w))?;
        }
        ReplyBody::Experimenter { experimenter, data } => {
            w.u32(*experimenter);
            w.bytes(data);
        }
        ReplyBody::Other { body, .. } => w.bytes(body),
        ReplyBody::TableDesc(_)
        | ReplyBody::QueueDesc(_)
        | ReplyBody::FlowMonitor(_)
        | ReplyBody::FlowCounters(_)
        | ReplyBody::ControllerStatus(_)
        | ReplyBody::BundleFeatures(_) => return w.unsupported("such multipart reply"),
    }
    Ok(())
}

pub(in crate::wire) fn reply_kind(body: &ReplyBody) -> u16 {
    match body {
        ReplyBody::Desc(_) => mp::DESC,
        ReplyBody::Flow(_) => mp::FLOW,
        ReplyBody::Aggregate(_) => mp::AGGREGATE,
        ReplyBody::Table(_) => mp::TABLE,
        ReplyBody::PortStats(_) => mp::PORT_STATS,
        ReplyBody::Queue(_) => mp::QUEUE,
        ReplyBody::Group(_) => mp::GROUP,
        ReplyBody::GroupDesc(_) => mp::GROUP_DESC,
        ReplyBody::GroupFeatures(_) => mp::GROUP_FEATURES,
        ReplyBody::Meter(_) => mp::METER,
        ReplyBody::MeterConfig(_) => mp::METER_CONFIG,
        ReplyBody::MeterFeatures(_) => mp::METER_FEATURES,
        ReplyBody::TableFeatures(_) => mp::TABLE_FEATURES,
        ReplyBody::PortDesc(_) => mp::PORT_DESC,
        ReplyBody::TableDesc(_) => mp::TABLE_DESC,
        ReplyBody::QueueDesc(_) => mp::QUEUE_DESC,
        ReplyBody::FlowMonitor(_) => mp::FLOW_MONITOR,
        ReplyBody::FlowCounters(_) => mp::FLOW_COUNTERS,
        ReplyBody::ControllerStatus(_) => mp::CONTROLLER_STATUS,
        ReplyBody::BundleFeatures(_) => mp::BUNDLE_FEATURES,
        ReplyBody::Experimenter { .. } => mp::EXPERIMENTER,
        ReplyBody::Other { kind, .. } => *kind,
    }
}

fn decode_header(r: &mut Reader) -> Result<(u16, bool), DecodeError> {
    let kind = r.u16()?;
    let more = r.u16()? & MORE != 0;
    r.skip(4)?;
    Ok((kind, more))
}

fn encode_header(kind: u16, more: bool, w: &mut Writer) {
    w.u16(kind);
    w.u16(if more { MORE } else { 0 });
    w.zeros(4);
}

pub(in crate::wire) fn decode_desc(r: &mut Reader) -> Result<Description, DecodeError> {
    Ok(Description {
        manufacturer: r.text(DESC_STR_LEN)?,
        hardware: r.text(DESC_STR_LEN)?,
        software: r.text(DESC_STR_LEN)?,
        serial: r.text(SERIAL_NUM_LEN)?,
        datapath: r.text(DESC_STR_LEN)?,
    })
}

pub(in crate::wire) fn encode_desc(desc: &Description, w: &mut Writer) -> Result<(), EncodeError> {
    let what = "text of a description";
    w.text(&desc.manufacturer, DESC_STR_LEN, what)?;
    w.text(&desc.hardware, DESC_STR_LEN, what)?;
    w.text(&desc.software, DESC_STR_LEN, what)?;
    w.text(&desc.serial, SERIAL_NUM_LEN, what)?;
    w.text(&desc.datapath, DESC_STR_LEN, what)
}
