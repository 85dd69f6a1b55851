//! Multipart bodies that 1.4 changes or adds.

use crate::error::{DecodeError, EncodeError};
use crate::multipart::{ReplyBody, RequestBody};
use crate::types::{PortNo, QueueId};

use super::super::reader::Reader;
use super::super::v13::multipart::{self, mp};
use super::super::writer::Writer;
use super::{monitor, port, table};

pub(in crate::wire) fn decode_request(
    kind: u16,
    r: &mut Reader,
) -> Result<RequestBody, DecodeError> {
    Ok(match kind {
        mp::TABLE_DESC => RequestBody::TableDesc,
        mp::QUEUE_DESC => RequestBody::QueueDesc {
            port: PortNo(r.u32()?),
            queue: QueueId(r.u32()?),
        },
        mp::FLOW_MONITOR => RequestBody::FlowMonitor(r.list(monitor::decode_request)?),
        kind => multipart::decode_request_body(kind, r)?,
    })
}

pub(in crate::wire) fn encode_request(
    body: &RequestBody,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    match body {
        RequestBody::TableDesc => {}
        RequestBody::QueueDesc { port, queue } => {
            w.u32(port.0);
            w.u32(queue.0);
        }
        RequestBody::FlowMonitor(monitors) => {
            monitors
                .iter()
                .try_for_each(|m| monitor::encode_request(m, w))?;
        }
        body => multipart::encode_request_body(body, w)?,
    }
    Ok(())
}

pub(in crate::wire) fn decode_reply(kind: u16, r: &mut Reader) -> Result<ReplyBody, DecodeError> {
    Ok(match kind {
        mp::PORT_STATS => ReplyBody::PortStats(r.list(port::decode_stats)?),
        mp::QUEUE => ReplyBody::Queue(r.list(port::decode_queue_stats)?),
        mp::PORT_DESC => ReplyBody::PortDesc(r.list(port::decode_port)?),
        mp::TABLE_DESC => ReplyBody::TableDesc(r.list(table::decode_desc)?),
        mp::QUEUE_DESC => ReplyBody::QueueDesc(r.list(port::decode_queue_desc)?),
        mp::FLOW_MONITOR => ReplyBody::FlowMonitor(r.list(monitor::decode_update)?),
        kind => multipart::decode_reply_body(kind, r)?,
    })
}

pub(in crate::wire) fn encode_reply(body: &ReplyBody, w: &mut Writer) -> Result<(), EncodeError> {
    match body {
        ReplyBody::PortStats(list) => list.iter().try_for_each(|s| port::encode_stats(s, w)),
        ReplyBody::Queue(list) => list.iter().try_for_each(|s| port::encode_queue_stats(s, w)),
        ReplyBody::PortDesc(list) => list.iter().try_for_each(|p| port::encode_port(p, w)),
        ReplyBody::TableDesc(list) => list.iter().try_for_each(|t| table::encode_desc(t, w)),
        ReplyBody::QueueDesc(list) => list.iter().try_for_each(|q| port::encode_queue_desc(q, w)),
        ReplyBody::FlowMonitor(list) => list.iter().try_for_each(|u| monitor::encode_update(u, w)),
        body => multipart::encode_reply_body(body, w),
    }
}
