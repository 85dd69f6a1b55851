//! Flow entries with OXS statistics (1.5.1, 7.3.5.2 to 7.3.5.4 and 7.4.2).

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::message::{FlowModFlags, FlowRemoved, FlowRemovedReason};
use crate::multipart::{AggregateStats, FlowCounters, FlowStats, UnreadableRow};
use crate::stat::Stat;
use crate::types::{Cookie, TableId};

use super::super::actions::{decode_instructions, encode_instructions};
use super::super::oxm::{decode_match, encode_match};
use super::super::reader::Reader;
use super::super::writer::Writer;
use super::oxs;

pub(super) fn decode_removed(r: &mut Reader) -> Result<FlowRemoved, DecodeError> {
    let (table_id, reason) = (TableId(r.u8()?), FlowRemovedReason(r.u8()?));
    let priority = r.u16()?;
    let (idle_timeout, hard_timeout) = (r.u16()?, r.u16()?);
    let cookie = Cookie(r.u64()?);
    let r#match = decode_match(r)?;
    let known = oxs::decode_known(r)?;
    Ok(FlowRemoved {
        cookie,
        priority,
        reason,
        table_id,
        duration_sec: known.duration.0,
        duration_nsec: known.duration.1,
        idle_timeout,
        hard_timeout,
        packet_count: known.packet_count,
        byte_count: known.byte_count,
        r#match,
        stats: known.others,
    })
}

pub(super) fn encode_removed(removed: &FlowRemoved, w: &mut Writer) -> Result<(), EncodeError> {
    w.u8(removed.table_id.0);
    w.u8(removed.reason.0);
    w.u16(removed.priority);
    w.u16(removed.idle_timeout);
    w.u16(removed.hard_timeout);
    w.u64(removed.cookie.0);
    encode_match(&removed.r#match, w)?;
    oxs::encode_known(
        (removed.duration_sec, removed.duration_nsec),
        removed.packet_count,
        removed.byte_count,
        &removed.stats,
        w,
    )
}

pub(in crate::wire) fn decode_desc(r: &mut Reader) -> Result<FlowStats, DecodeError> {
    let len = usize::from(r.peek_u16(0)?);
    let mut r = r.part(len, ErrorKind::BAD_LEN, "flow description")?;
    r.skip(4)?;
    let table_id = TableId(r.u8()?);
    r.skip(1)?;
    let priority = r.u16()?;
    let (idle_timeout, hard_timeout) = (r.u16()?, r.u16()?);
    let flags = FlowModFlags(r.u16()?);
    let importance = r.u16()?;
    let cookie = Cookie(r.u64()?);
    let r#match = decode_match(&mut r)?;
    let known = oxs::decode_known(&mut r)?;
    Ok(FlowStats {
        table_id,
        duration_sec: known.duration.0,
        duration_nsec: known.duration.1,
        priority,
        idle_timeout,
        hard_timeout,
        flags,
        cookie,
        packet_count: known.packet_count,
        byte_count: known.byte_count,
        r#match,
        instructions: decode_instructions(&mut r)?,
        importance,
        stats: known.others,
    })
}

/// Reads the part of a row that identifies its entry.
pub(in crate::wire) fn decode_unreadable(
    r: &mut Reader,
    error: DecodeError,
) -> Result<UnreadableRow, DecodeError> {
    r.skip(4)?;
    let table_id = TableId(r.u8()?);
    r.skip(1)?;
    let priority = r.u16()?;
    r.skip(8)?;
    Ok(UnreadableRow {
        table_id,
        priority,
        cookie: Cookie(r.u64()?),
        r#match: decode_match(r).ok(),
        error,
    })
}

pub(super) fn encode_desc(stats: &FlowStats, w: &mut Writer) -> Result<(), EncodeError> {
    let start = w.at();
    w.zeros(4);
    w.u8(stats.table_id.0);
    w.zeros(1);
    w.u16(stats.priority);
    w.u16(stats.idle_timeout);
    w.u16(stats.hard_timeout);
    w.u16(stats.flags.0);
    w.u16(stats.importance);
    w.u64(stats.cookie.0);
    encode_match(&stats.r#match, w)?;
    oxs::encode_known(
        (stats.duration_sec, stats.duration_nsec),
        stats.packet_count,
        stats.byte_count,
        &stats.stats,
        w,
    )?;
    encode_instructions(&stats.instructions, w)?;
    w.close(start, 0, "flow description")
}

pub(super) fn decode_counters(r: &mut Reader) -> Result<FlowCounters, DecodeError> {
    let len = usize::from(r.peek_u16(0)?);
    let mut r = r.part(len, ErrorKind::BAD_LEN, "flow statistics")?;
    r.skip(4)?;
    let counters = FlowCounters {
        table_id: TableId(r.u8()?),
        reason: r.u8()?,
        priority: r.u16()?,
        r#match: decode_match(&mut r)?,
        stats: oxs::decode(&mut r)?,
    };
    r.done()?;
    Ok(counters)
}

pub(super) fn encode_counters(counters: &FlowCounters, w: &mut Writer) -> Result<(), EncodeError> {
    let start = w.at();
    w.zeros(4);
    w.u8(counters.table_id.0);
    w.u8(counters.reason);
    w.u16(counters.priority);
    encode_match(&counters.r#match, w)?;
    oxs::encode(&counters.stats, w)?;
    w.close(start, 0, "flow statistics")
}

pub(super) fn decode_aggregate(r: &mut Reader) -> Result<AggregateStats, DecodeError> {
    let mut aggregate = AggregateStats {
        packet_count: u64::MAX,
        byte_count: u64::MAX,
        flow_count: u32::MAX,
        stats: Vec::new(),
    };
    for stat in oxs::decode(r)? {
        match stat {
            Stat::PacketCount(count) => aggregate.packet_count = count,
            Stat::ByteCount(count) => aggregate.byte_count = count,
            Stat::FlowCount(count) => aggregate.flow_count = count,
            other => aggregate.stats.push(other),
        }
    }
    Ok(aggregate)
}

pub(super) fn encode_aggregate(stats: &AggregateStats, w: &mut Writer) -> Result<(), EncodeError> {
    let mut others = stats.stats.clone();
    if stats.flow_count != u32::MAX {
        others.push(Stat::FlowCount(stats.flow_count));
    }
    let none = (u32::MAX, u32::MAX);
    oxs::encode_known(none, stats.packet_count, stats.byte_count, &others, w)
}
