//! Flow entries: the messages that change, report and count them.

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::message::{FlowMod, FlowModCommand, FlowModFlags, FlowRemoved, FlowRemovedReason};
use crate::multipart::{AggregateStats, FlowStats, FlowStatsRequest, UnreadableRow};
use crate::types::{Cookie, GroupId, PortNo, TableId, Version};

use super::super::actions::{decode_instructions, encode_instructions};
use super::super::oxm::{decode_match, encode_match};
use super::super::reader::Reader;
use super::super::writer::Writer;
use super::{decode_buffer_id, encode_buffer_id};

/// Statistics without a field of their message.
const STATS: &str = "such statistics of an entry";

/// Every flag that a version names; a FLOW_MOD with another one is refused.
fn known_flags(version: Option<Version>) -> u16 {
    match version {
        Some(Version::V10 | Version::V11) => 0x3,
        Some(Version::V12) => 0x7,
        _ => 0x1f,
    }
}

pub(super) fn decode_flow_mod(r: &mut Reader) -> Result<FlowMod, DecodeError> {
    let (cookie, cookie_mask) = (Cookie(r.u64()?), Cookie(r.u64()?));
    let table_id = TableId(r.u8()?);
    let bad_command = r.error(ErrorKind::FLOW_MOD_BAD_COMMAND);
    let command = FlowModCommand::from_wire(r.u8()?).ok_or(bad_command)?;
    let (idle_timeout, hard_timeout) = (r.u16()?, r.u16()?);
    let priority = r.u16()?;
    let buffer_id = decode_buffer_id(r)?;
    let (out_port, out_group) = (PortNo(r.u32()?), GroupId(r.u32()?));
    let bad_flags = r.error(ErrorKind::FLOW_MOD_BAD_FLAGS);
    let flags = FlowModFlags(r.u16()?);
    if flags.0 & !known_flags(r.version()) != 0 {
        return Err(bad_flags);
    }
    let importance = decode_importance(r)?;
    Ok(FlowMod {
        cookie,
        cookie_mask,
        table_id,
        command,
        idle_timeout,
        hard_timeout,
        priority,
        buffer_id,
        out_port,
        out_group,
        flags,
        r#match: decode_match(r)?,
        instructions: decode_instructions(r)?,
        importance,
    })
}

/// Reads the importance; 1.3 has padding in its place.
fn decode_importance(r: &mut Reader) -> Result<u16, DecodeError> {
    let importance = r.u16()?;
    Ok(if r.is_since(Version::V14) {
        importance
    } else {
        0
    })
}

fn encode_importance(importance: u16, w: &mut Writer) -> Result<(), EncodeError> {
    let is_there = importance != 0 && !w.is_since(Version::V14);
    w.refuse(is_there, "importance of an entry")?;
    w.u16(importance);
    Ok(())
}

pub(super) fn encode_flow_mod(flow_mod: &FlowMod, w: &mut Writer) -> Result<(), EncodeError> {
    w.u64(flow_mod.cookie.0);
    w.u64(flow_mod.cookie_mask.0);
    w.u8(flow_mod.table_id.0);
    w.u8(flow_mod.command as u8);
    w.u16(flow_mod.idle_timeout);
    w.u16(flow_mod.hard_timeout);
    w.u16(flow_mod.priority);
    encode_buffer_id(flow_mod.buffer_id, w);
    w.u32(flow_mod.out_port.0);
    w.u32(flow_mod.out_group.0);
    if flow_mod.flags.0 & !known_flags(Some(w.version())) != 0 {
        return w.unsupported("such FLOW_MOD flag");
    }
    w.u16(flow_mod.flags.0);
    encode_importance(flow_mod.importance, w)?;
    encode_match(&flow_mod.r#match, w)?;
    encode_instructions(&flow_mod.instructions, w)
}

pub(super) fn decode_flow_removed(r: &mut Reader) -> Result<FlowRemoved, DecodeError> {
    let is_v12 = r.is_since(Version::V12);
    Ok(FlowRemoved {
        cookie: Cookie(r.u64()?),
        priority: r.u16()?,
        reason: FlowRemovedReason(r.u8()?),
        table_id: TableId(r.u8()?),
        duration_sec: r.u32()?,
        duration_nsec: r.u32()?,
        idle_timeout: r.u16()?,
        // Padding in 1.1.
        hard_timeout: r.u16().map(|sec| if is_v12 { sec } else { 0 })?,
        packet_count: r.u64()?,
        byte_count: r.u64()?,
        r#match: decode_match(r)?,
        stats: Vec::new(),
    })
}

pub(super) fn encode_flow_removed(
    removed: &FlowRemoved,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    w.refuse(!removed.stats.is_empty(), STATS)?;
    let has_hard_timeout = removed.hard_timeout != 0 && !w.is_since(Version::V12);
    w.refuse(has_hard_timeout, "hard timeout in FLOW_REMOVED")?;
    w.u64(removed.cookie.0);
    w.u16(removed.priority);
    w.u8(removed.reason.0);
    w.u8(removed.table_id.0);
    w.u32(removed.duration_sec);
    w.u32(removed.duration_nsec);
    w.u16(removed.idle_timeout);
    w.u16(removed.hard_timeout);
    w.u64(removed.packet_count);
    w.u64(removed.byte_count);
    encode_match(&removed.r#match, w)
}

pub(in crate::wire) fn decode_stats_request(
    r: &mut Reader,
) -> Result<FlowStatsRequest, DecodeError> {
    let table_id = TableId(r.u8()?);
    r.skip(3)?;
    let (out_port, out_group) = (PortNo(r.u32()?), GroupId(r.u32()?));
    r.skip(4)?;
    Ok(FlowStatsRequest {
        table_id,
        out_port,
        out_group,
        cookie: Cookie(r.u64()?),
        cookie_mask: Cookie(r.u64()?),
        r#match: decode_match(r)?,
    })
}

pub(in crate::wire) fn encode_stats_request(
    request: &FlowStatsRequest,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    w.u8(request.table_id.0);
    w.zeros(3);
    w.u32(request.out_port.0);
    w.u32(request.out_group.0);
    w.zeros(4);
    w.u64(request.cookie.0);
    w.u64(request.cookie_mask.0);
    encode_match(&request.r#match, w)
}

pub(in crate::wire) fn decode_stats(r: &mut Reader) -> Result<FlowStats, DecodeError> {
    let len = usize::from(r.peek_u16(0)?);
    let mut r = r.part(len, ErrorKind::BAD_LEN, "flow statistics")?;
    r.skip(2)?;
    let table_id = TableId(r.u8()?);
    r.skip(1)?;
    let (duration_sec, duration_nsec) = (r.u32()?, r.u32()?);
    let priority = r.u16()?;
    let (idle_timeout, hard_timeout) = (r.u16()?, r.u16()?);
    let mut flags = FlowModFlags(r.u16()?);
    if !r.is_since(Version::V13) {
        // Padding there.
        flags = FlowModFlags::empty();
    }
    let importance = decode_importance(&mut r)?;
    r.skip(2)?;
    Ok(FlowStats {
        table_id,
        duration_sec,
        duration_nsec,
        priority,
        idle_timeout,
        hard_timeout,
        flags,
        cookie: Cookie(r.u64()?),
        packet_count: r.u64()?,
        byte_count: r.u64()?,
        r#match: decode_match(&mut r)?,
        instructions: decode_instructions(&mut r)?,
        importance,
        stats: Vec::new(),
    })
}

/// Reads the part of a row that identifies its entry.
pub(in crate::wire) fn decode_unreadable(
    r: &mut Reader,
    error: DecodeError,
) -> Result<UnreadableRow, DecodeError> {
    r.skip(2)?;
    let table_id = TableId(r.u8()?);
    r.skip(9)?;
    let priority = r.u16()?;
    r.skip(10)?;
    let cookie = Cookie(r.u64()?);
    r.skip(16)?;
    Ok(UnreadableRow {
        table_id,
        priority,
        cookie,
        r#match: decode_match(r).ok(),
        error,
    })
}

pub(super) fn encode_stats(stats: &FlowStats, w: &mut Writer) -> Result<(), EncodeError> {
    w.refuse(!stats.stats.is_empty(), STATS)?;
    let has_flags = !stats.flags.is_empty() && !w.is_since(Version::V13);
    w.refuse(has_flags, "flags in flow statistics")?;
    let start = w.at();
    w.zeros(2);
    w.u8(stats.table_id.0);
    w.zeros(1);
    w.u32(stats.duration_sec);
    w.u32(stats.duration_nsec);
    w.u16(stats.priority);
    w.u16(stats.idle_timeout);
    w.u16(stats.hard_timeout);
    w.u16(stats.flags.0);
    encode_importance(stats.importance, w)?;
    w.zeros(2);
    w.u64(stats.cookie.0);
    w.u64(stats.packet_count);
    w.u64(stats.byte_count);
    encode_match(&stats.r#match, w)?;
    encode_instructions(&stats.instructions, w)?;
    w.close(start, 0, "flow statistics")
}

pub(in crate::wire) fn decode_aggregate(r: &mut Reader) -> Result<AggregateStats, DecodeError> {
    let stats = AggregateStats {
        packet_count: r.u64()?,
        byte_count: r.u64()?,
        flow_count: r.u32()?,
        stats: Vec::new(),
    };
    r.skip(4)?;
    Ok(stats)
}

pub(in crate::wire) fn encode_aggregate(
    stats: &AggregateStats,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    w.refuse(!stats.stats.is_empty(), STATS)?;
    w.u64(stats.packet_count);
    w.u64(stats.byte_count);
    w.u32(stats.flow_count);
    w.zeros(4);
    Ok(())
}
