//! Flow monitors (1.4, 7.3.5.17).

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::message::FlowRemovedReason;
use crate::multipart::{
    FlowEvent, FlowMonitor, FlowMonitorCommand, FlowMonitorFlags, FlowUpdate, FlowUpdateEntry,
};
use crate::types::{Cookie, GroupId, PortNo, TableId, Xid};

use super::super::actions::{decode_instructions, encode_instructions};
use super::super::oxm::{decode_match, encode_match};
use super::super::reader::Reader;
use super::super::writer::Writer;

/// OFPFME_* of updates without an entry.
const ABBREV: u16 = 4;
const PAUSED: u16 = 5;
const RESUMED: u16 = 6;

pub(super) fn decode_request(r: &mut Reader) -> Result<FlowMonitor, DecodeError> {
    let monitor_id = r.u32()?;
    let (out_port, out_group) = (PortNo(r.u32()?), GroupId(r.u32()?));
    let flags = FlowMonitorFlags(r.u16()?);
    let table_id = TableId(r.u8()?);
    let refused = r.error(ErrorKind::FLOW_MONITOR_BAD_COMMAND);
    let command = match r.u8()? {
        0 => FlowMonitorCommand::Add,
        1 => FlowMonitorCommand::Modify,
        2 => FlowMonitorCommand::Delete,
        _ => return Err(refused),
    };
    Ok(FlowMonitor {
        monitor_id,
        out_port,
        out_group,
        flags,
        table_id,
        command,
        r#match: decode_match(r)?,
    })
}

pub(super) fn encode_request(monitor: &FlowMonitor, w: &mut Writer) -> Result<(), EncodeError> {
    w.u32(monitor.monitor_id);
    w.u32(monitor.out_port.0);
    w.u32(monitor.out_group.0);
    w.u16(monitor.flags.0);
    w.u8(monitor.table_id.0);
    w.u8(monitor.command as u8);
    encode_match(&monitor.r#match, w)
}

pub(super) fn decode_update(r: &mut Reader) -> Result<FlowUpdate, DecodeError> {
    let len = usize::from(r.peek_u16(0)?);
    let mut r = r.part(len, ErrorKind::BAD_LEN, "flow update")?;
    r.skip(2)?;
    let refused = r.error(ErrorKind::BAD_TYPE);
    let event = match r.u16()? {
        0 => FlowEvent::Initial,
        1 => FlowEvent::Added,
        2 => FlowEvent::Removed,
        3 => FlowEvent::Modified,
        other => {
            let update = match other {
                ABBREV => FlowUpdate::Abbreviated(Xid(r.u32()?)),
                PAUSED | RESUMED => {
                    r.skip(4)?;
                    match other {
                        PAUSED => FlowUpdate::Paused,
                        _ => FlowUpdate::Resumed,
                    }
                }
                _ => return Err(refused),
            };
            r.done()?;
            return Ok(update);
        }
    };
    let (table_id, reason) = (TableId(r.u8()?), FlowRemovedReason(r.u8()?));
    let (idle_timeout, hard_timeout, priority) = (r.u16()?, r.u16()?, r.u16()?);
    r.skip(4)?;
    Ok(FlowUpdate::Entry(FlowUpdateEntry {
        event,
        table_id,
        reason,
        idle_timeout,
        hard_timeout,
        priority,
        cookie: Cookie(r.u64()?),
        r#match: decode_match(&mut r)?,
        instructions: decode_instructions(&mut r)?,
    }))
}

pub(super) fn encode_update(update: &FlowUpdate, w: &mut Writer) -> Result<(), EncodeError> {
    let start = w.at();
    w.zeros(2);
    match update {
        FlowUpdate::Entry(entry) => {
            w.u16(entry.event as u16);
            w.u8(entry.table_id.0);
            w.u8(entry.reason.0);
            w.u16(entry.idle_timeout);
            w.u16(entry.hard_timeout);
            w.u16(entry.priority);
            w.zeros(4);
            w.u64(entry.cookie.0);
            encode_match(&entry.r#match, w)?;
            encode_instructions(&entry.instructions, w)?;
        }
        FlowUpdate::Abbreviated(xid) => {
            w.u16(ABBREV);
            w.u32(xid.0);
        }
        FlowUpdate::Paused => {
            w.u16(PAUSED);
            w.zeros(4);
        }
        FlowUpdate::Resumed => {
            w.u16(RESUMED);
            w.zeros(4);
        }
    }
    w.close(start, 0, "flow update")
}
