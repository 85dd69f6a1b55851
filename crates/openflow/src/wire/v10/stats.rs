//! STATS_REQUEST and STATS_REPLY, the multipart messages of 1.0 (5.3.5).

use bytes::Bytes;

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::frame::Frame;
use crate::message::{FlowModFlags, Message, MultipartReply, MultipartRequest};
use crate::multipart::{
    FlowStats, FlowStatsRequest, PortStats, QueueStats, ReplyBody, RequestBody, TableStats,
    TableStatsV10, UnreadableRow,
};
use crate::types::{Cookie, GroupId, PortNo, QueueId, TableId};
use crate::wire::reader::Reader;
use crate::wire::v13;
use crate::wire::writer::Writer;

use super::actions;
use super::matching;
use super::numbers::{port_from_wire, port_to_wire};

/// OFPST_*.
mod stats_type {
    pub const DESC: u16 = 0;
    pub const FLOW: u16 = 1;
    pub const AGGREGATE: u16 = 2;
    pub const TABLE: u16 = 3;
    pub const PORT: u16 = 4;
    pub const QUEUE: u16 = 5;
    pub const VENDOR: u16 = 0xffff;
}

const TABLE_NAME_LEN: usize = 32;

/// An entry of a flow reply without its actions.
const FLOW_STATS_LEN: usize = 88;

/// OFPSF_REPLY_MORE; requests have no flags yet, and the same bit is kept.
const MORE: u16 = 1;

pub(super) fn decode_request(frame: &Frame) -> Result<Message, DecodeError> {
    use stats_type as t;
    let mut r = Reader::body_of(frame, "STATS_REQUEST");
    let kind = r.u16()?;
    let more = r.u16()? & MORE != 0;
    let body = match kind {
        t::DESC => RequestBody::Desc,
        t::FLOW => RequestBody::Flow(flow_request(&mut r)?),
        t::AGGREGATE => RequestBody::Aggregate(flow_request(&mut r)?),
        t::TABLE => RequestBody::Table,
        t::PORT => {
            let port = port_from_wire(r.u16()?);
            r.skip(6)?;
            RequestBody::PortStats(port)
        }
        t::QUEUE => {
            let port = queue_port_from_wire(r.u16()?);
            r.skip(2)?;
            let queue = QueueId(r.u32()?);
            RequestBody::Queue { port, queue }
        }
        t::VENDOR => RequestBody::Experimenter {
            experimenter: r.u32()?,
            data: r.rest(),
        },
        kind => RequestBody::Other {
            kind,
            body: r.rest(),
        },
    };
    r.done()?;
    Ok(Message::MultipartRequest(MultipartRequest { more, body }))
}

pub(super) fn encode_request(m: &MultipartRequest, w: &mut Writer) -> Result<(), EncodeError> {
    use stats_type as t;
    let head = |kind: u16, w: &mut Writer| {
        w.u16(kind);
        w.u16(u16::from(m.more));
    };
    match &m.body {
        RequestBody::Desc => head(t::DESC, w),
        RequestBody::Flow(request) => {
            head(t::FLOW, w);
            encode_flow_request(request, w)?;
        }
        RequestBody::Aggregate(request) => {
            head(t::AGGREGATE, w);
            encode_flow_request(request, w)?;
        }
        RequestBody::Table => head(t::TABLE, w),
        RequestBody::PortStats(port) => {
            head(t::PORT, w);
            w.u16(port_to_wire(*port, w)?);
            w.zeros(6);
        }
        RequestBody::Queue { port, queue } => {
            head(t::QUEUE, w);
            w.u16(queue_port_to_wire(*port, w)?);
            w.zeros(2);
            w.u32(queue.0);
        }
        RequestBody::Experimenter { experimenter, data } => {
            head(t::VENDOR, w);
            w.u32(*experimenter);
            w.bytes(data);
        }
        RequestBody::Other { kind, body } if is_unnamed(*kind) => {
            head(*kind, w);
            w.bytes(body);
        }
        _ => return w.unsupported("such statistics"),
    }
    Ok(())
}

pub(super) fn decode_reply(frame: &Frame) -> Result<Message, DecodeError> {
    use stats_type as t;
    let mut r = Reader::body_of(frame, "STATS_REPLY");
    let kind = r.u16()?;
    let more = r.u16()? & MORE != 0;
    let body = match kind {
        t::DESC => ReplyBody::Desc(v13::multipart::decode_desc(&mut r)?),
        t::FLOW => ReplyBody::Flow(r.list(flow_stats)?),
        t::AGGREGATE => ReplyBody::Aggregate(v13::flow::decode_aggregate(&mut r)?),
        t::TABLE => ReplyBody::Table(r.list(table_stats)?),
        t::PORT => ReplyBody::PortStats(r.list(port_stats)?),
        t::QUEUE => ReplyBody::Queue(r.list(queue_stats)?),
        t::VENDOR => ReplyBody::Experimenter {
            experimenter: r.u32()?,
            data: r.rest(),
        },
        kind => ReplyBody::Other {
            kind,
            body: r.rest(),
        },
    };
    r.done()?;
    Ok(Message::MultipartReply(MultipartReply { more, body }))
}

/// Reads a reply of flow statistics, and the readable part of rows that cannot be decoded.
pub(in crate::wire) fn decode_flow_rows(
    frame: &Frame,
) -> Result<Option<(MultipartReply, Vec<UnreadableRow>)>, DecodeError> {
    let mut r = Reader::body_of(frame, "STATS_REPLY");
    let kind = r.u16()?;
    let more = r.u16()? & MORE != 0;
    if kind != stats_type::FLOW {
        return Ok(None);
    }
    let (rows, unreadable) = r.rows("ofp_flow_stats", flow_stats, unreadable_row)?;
    let body = ReplyBody::Flow(rows);
    Ok(Some((MultipartReply { more, body }, unreadable)))
}

/// Reads the part of a row that identifies its entry.
fn unreadable_row(r: &mut Reader, error: DecodeError) -> Result<UnreadableRow, DecodeError> {
    r.skip(2)?;
    let table_id = TableId(r.u8()?);
    r.skip(1)?;
    let r#match = matching::decode(r).ok();
    r.skip(8)?;
    let priority = r.u16()?;
    r.skip(10)?;
    Ok(UnreadableRow {
        table_id,
        priority,
        cookie: Cookie(r.u64()?),
        r#match,
        error,
    })
}

pub(super) fn encode_reply(m: &MultipartReply, w: &mut Writer) -> Result<(), EncodeError> {
    use stats_type as t;
    let head = |kind: u16, w: &mut Writer| {
        w.u16(kind);
        w.u16(u16::from(m.more));
    };
    match &m.body {
        ReplyBody::Desc(d) => {
            head(t::DESC, w);
            v13::multipart::encode_desc(d, w)?;
        }
        ReplyBody::Flow(list) => {
            head(t::FLOW, w);
            list.iter().try_for_each(|s| encode_flow_stats(s, w))?;
        }
        ReplyBody::Aggregate(stats) => {
            head(t::AGGREGATE, w);
            v13::flow::encode_aggregate(stats, w)?;
        }
        ReplyBody::Table(list) => {
            head(t::TABLE, w);
            list.iter().try_for_each(|s| encode_table_stats(s, w))?;
        }
        ReplyBody::PortStats(list) => {
            head(t::PORT, w);
            list.iter().try_for_each(|s| encode_port_stats(s, w))?;
        }
        ReplyBody::Queue(list) => {
            head(t::QUEUE, w);
            list.iter().try_for_each(|s| encode_queue_stats(s, w))?;
        }
        ReplyBody::Experimenter { experimenter, data } => {
            head(t::VENDOR, w);
            w.u32(*experimenter);
            w.bytes(data);
        }
        ReplyBody::Other { kind, body } if is_unnamed(*kind) => {
            head(*kind, w);
            w.bytes(body);
        }
        _ => return w.unsupported("such statistics"),
    }
    Ok(())
}

fn is_unnamed(kind: u16) -> bool {
    kind > stats_type::QUEUE && kind != stats_type::VENDOR
}

/// "Every port" is OFPP_ALL in queue requests of 1.0, and ANY later.
fn queue_port_from_wire(port: u16) -> PortNo {
    match port_from_wire(port) {
        PortNo::ALL => PortNo::ANY,
        port => port,
    }
}

fn queue_port_to_wire(port: PortNo, w: &Writer) -> Result<u16, EncodeError> {
    match port {
        PortNo::ANY => port_to_wire(PortNo::ALL, w),
        port => port_to_wire(port, w),
    }
}

fn flow_request(r: &mut Reader) -> Result<FlowStatsRequest, DecodeError> {
    let r#match = matching::decode(r)?;
    let table_id = TableId(r.u8()?);
    r.skip(1)?;
    Ok(FlowStatsRequest {
        table_id,
        out_port: port_from_wire(r.u16()?),
        out_group: GroupId::ANY,
        cookie: Cookie(0),
        cookie_mask: Cookie(0),
        r#match,
    })
}

fn encode_flow_request(m: &FlowStatsRequest, w: &mut Writer) -> Result<(), EncodeError> {
    if m.out_group != GroupId::ANY {
        return w.unsupported("out_group");
    }
    if (m.cookie, m.cookie_mask) != (Cookie(0), Cookie(0)) {
        return w.unsupported("cookie in a statistics request");
    }
    matching::encode(&m.r#match, w)?;
    w.u8(m.table_id.0);
    w.zeros(1);
    w.u16(port_to_wire(m.out_port, w)?);
    Ok(())
}

fn flow_stats(r: &mut Reader) -> Result<FlowStats, DecodeError> {
    let len = usize::from(r.peek_u16(0)?);
    if len < FLOW_STATS_LEN {
        return Err(r.error(ErrorKind::BAD_LEN));
    }
    let mut r = r.part(len, ErrorKind::BAD_LEN, "ofp_flow_stats")?;
    r.skip(2)?;
    let table_id = TableId(r.u8()?);
    r.skip(1)?;
    let r#match = matching::decode(&mut r)?;
    let (duration_sec, duration_nsec) = (r.u32()?, r.u32()?);
    let (priority, idle_timeout, hard_timeout) = (r.u16()?, r.u16()?, r.u16()?);
    r.skip(6)?;
    Ok(FlowStats {
        table_id,
        duration_sec,
        duration_nsec,
        priority,
        idle_timeout,
        hard_timeout,
        flags: FlowModFlags::empty(),
        cookie: Cookie(r.u64()?),
        packet_count: r.u64()?,
        byte_count: r.u64()?,
        r#match,
        instructions: actions::decode_instructions(&mut r)?,
        importance: 0,
        stats: Vec::new(),
    })
}

fn encode_flow_stats(s: &FlowStats, w: &mut Writer) -> Result<(), EncodeError> {
    let later = !s.stats.is_empty() || s.importance != 0;
    w.refuse(later, "such statistics of an entry")?;
    if !s.flags.is_empty() {
        return w.unsupported("flags in flow statistics");
    }
    let start = w.at();
    w.u16(0);
    w.u8(s.table_id.0);
    w.zeros(1);
    matching::encode(&s.r#match, w)?;
    w.u32(s.duration_sec);
    w.u32(s.duration_nsec);
    w.u16(s.priority);
    w.u16(s.idle_timeout);
    w.u16(s.hard_timeout);
    w.zeros(6);
    w.u64(s.cookie.0);
    w.u64(s.packet_count);
    w.u64(s.byte_count);
    actions::encode_instructions(&s.instructions, w)?;
    w.close(start, 0, "ofp_flow_stats")
}

fn table_stats(r: &mut Reader) -> Result<TableStats, DecodeError> {
    let table_id = TableId(r.u8()?);
    r.skip(3)?;
    let v10 = TableStatsV10 {
        name: r.text(TABLE_NAME_LEN)?,
        wildcards: r.u32()?,
        features: Bytes::new(),
        max_entries: r.u32()?,
    };
    Ok(TableStats {
        table_id,
        active_count: r.u32()?,
        lookup_count: r.u64()?,
        matched_count: r.u64()?,
        v10: Some(v10),
    })
}

fn encode_table_stats(s: &TableStats, w: &mut Writer) -> Result<(), EncodeError> {
    let Some(v10) = &s.v10 else {
        return w.unsupported("table statistics without name and size");
    };
    w.refuse(!v10.features.is_empty(), "bitmaps of what a table can do")?;
    w.u8(s.table_id.0);
    w.zeros(3);
    w.text(&v10.name, TABLE_NAME_LEN, "table name")?;
    w.u32(v10.wildcards);
    w.u32(v10.max_entries);
    w.u32(s.active_count);
    w.u64(s.lookup_count);
    w.u64(s.matched_count);
    Ok(())
}

fn port_stats(r: &mut Reader) -> Result<PortStats, DecodeError> {
    let port_no = port_from_wire(r.u16()?);
    r.skip(6)?;
    let mut stats = v13::port::decode_counters(port_no, r)?;
    v13::port::decode_ethernet(&mut stats, r)?;
    Ok(stats)
}

fn encode_port_stats(s: &PortStats, w: &mut Writer) -> Result<(), EncodeError> {
    w.refuse(!s.properties.is_empty(), "properties of port statistics")?;
    no_duration(s.duration_sec, s.duration_nsec, w)?;
    w.u16(port_to_wire(s.port_no, w)?);
    w.zeros(6);
    v13::port::encode_counters(s, w);
    v13::port::encode_ethernet(s, w);
    Ok(())
}

fn queue_stats(r: &mut Reader) -> Result<QueueStats, DecodeError> {
    let port_no = port_from_wire(r.u16()?);
    r.skip(2)?;
    Ok(QueueStats {
        port_no,
        queue_id: QueueId(r.u32()?),
        tx_bytes: r.u64()?,
        tx_packets: r.u64()?,
        tx_errors: r.u64()?,
        duration_sec: 0,
        duration_nsec: 0,
        properties: Vec::new(),
    })
}

fn encode_queue_stats(s: &QueueStats, w: &mut Writer) -> Result<(), EncodeError> {
    w.refuse(!s.properties.is_empty(), "properties of queue statistics")?;
    no_duration(s.duration_sec, s.duration_nsec, w)?;
    w.u16(port_to_wire(s.port_no, w)?);
    w.zeros(2);
    w.u32(s.queue_id.0);
    w.u64(s.tx_bytes);
    w.u64(s.tx_packets);
    w.u64(s.tx_errors);
    Ok(())
}

fn no_duration(sec: u32, nsec: u32, w: &Writer) -> Result<(), EncodeError> {
    match (sec, nsec) {
        (0, 0) => Ok(()),
        _ => w.unsupported("age in port or queue statistics"),
    }
}
