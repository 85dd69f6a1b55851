//! OXS TLVs and the lists made of them (1.5.1, 7.2.4).

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::stat::{OXS_CLASS_BASIC, Stat};

use super::super::reader::Reader;
use super::super::writer::Writer;

const BAD_LEN: ErrorKind = ErrorKind::MATCH_BAD_LEN;

/// OFPXST_OFB_*, and the number of bytes of each.
const DURATION: (u8, u8) = (0, 8);
const IDLE_TIME: (u8, u8) = (1, 8);
const FLOW_COUNT: (u8, u8) = (3, 4);
const PACKET_COUNT: (u8, u8) = (4, 8);
const BYTE_COUNT: (u8, u8) = (5, 8);

/// Reads an `ofp_stats` and the padding to 8 bytes after it.
pub(in crate::wire) fn decode(r: &mut Reader) -> Result<Vec<Stat>, DecodeError> {
    let refused = r.error(BAD_LEN);
    let len = usize::from(r.peek_u16(2).map_err(|_| refused)?);
    if len < 4 {
        return Err(refused);
    }
    let mut padded = r.part(len.next_multiple_of(8), BAD_LEN, "statistics")?;
    let mut fields = padded.part(len, BAD_LEN, "OXS field")?;
    fields.skip(4)?;
    fields.list(decode_field)
}

fn decode_field(r: &mut Reader) -> Result<Stat, DecodeError> {
    let header = r.u32()?;
    let len = header as u8;
    let mut payload = r.part(usize::from(len), BAD_LEN, "OXS payload")?;
    let number = (header >> 9 & 0x7f) as u8;
    let is_basic = header >> 16 == u32::from(OXS_CLASS_BASIC) && header >> 8 & 1 == 0;
    let stat = match (number, len) {
        DURATION if is_basic => Stat::Duration(payload.u32()?, payload.u32()?),
        IDLE_TIME if is_basic => Stat::IdleTime(payload.u32()?, payload.u32()?),
        FLOW_COUNT if is_basic => Stat::FlowCount(payload.u32()?),
        PACKET_COUNT if is_basic => Stat::PacketCount(payload.u64()?),
        BYTE_COUNT if is_basic => Stat::ByteCount(payload.u64()?),
        _ => Stat::Other {
            header,
            payload: payload.rest(),
        },
    };
    Ok(stat)
}

pub(in crate::wire) fn encode<'a>(
    stats: impl IntoIterator<Item = &'a Stat>,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    let start = w.at();
    w.zeros(4);
    for stat in stats {
        encode_field(stat, w)?;
    }
    w.close(start, 2, "statistics")?;
    w.align8(start);
    Ok(())
}

fn encode_field(stat: &Stat, w: &mut Writer) -> Result<(), EncodeError> {
    let header = |(number, len): (u8, u8), w: &mut Writer| {
        w.u16(OXS_CLASS_BASIC);
        w.u8(number << 1);
        w.u8(len);
    };
    let times = |sec: u32, nsec: u32, w: &mut Writer| {
        w.u32(sec);
        w.u32(nsec);
    };
    match stat {
        Stat::Duration(sec, nsec) => {
            header(DURATION, w);
            times(*sec, *nsec, w);
        }
        Stat::IdleTime(sec, nsec) => {
            header(IDLE_TIME, w);
            times(*sec, *nsec, w);
        }
        Stat::FlowCount(count) => {
            header(FLOW_COUNT, w);
            w.u32(*count);
        }
        Stat::PacketCount(count) => {
            header(PACKET_COUNT, w);
            w.u64(*count);
        }
        Stat::ByteCount(count) => {
            header(BYTE_COUNT, w);
            w.u64(*count);
        }
        Stat::Other { header, payload } => {
            if (header & 0xff) as usize != payload.len() {
                return w.unsupported("OXS header that announces another length than its payload");
            }
            w.u32(*header);
            w.bytes(payload);
        }
    }
    Ok(())
}

/// Statistics that messages have fields for (all ones if one is absent), and the others.
pub(super) struct Known {
    pub duration: (u32, u32),
    pub packet_count: u64,
    pub byte_count: u64,
    pub others: Vec<Stat>,
}

pub(super) fn decode_known(r: &mut Reader) -> Result<Known, DecodeError> {
    let mut known = Known {
        duration: (u32::MAX, u32::MAX),
        packet_count: u64::MAX,
        byte_count: u64::MAX,
        others: Vec::new(),
    };
    for stat in decode(r)? {
        match stat {
            Stat::Duration(sec, nsec) => known.duration = (sec, nsec),
            Stat::PacketCount(count) => known.packet_count = count,
            Stat::ByteCount(count) => known.byte_count = count,
            other => known.others.push(other),
        }
    }
    // In the order in which they are written.
    known.others.sort_by_key(is_flow_count);
    Ok(known)
}

/// Whether `stat` comes after the fields of messages, in Open vSwitch's order.
fn is_flow_count(stat: &Stat) -> bool {
    matches!(stat, Stat::FlowCount(_))
}

/// Writes the statistics in Open vSwitch's order.
pub(super) fn encode_known(
    duration: (u32, u32),
    packet_count: u64,
    byte_count: u64,
    others: &[Stat],
    w: &mut Writer,
) -> Result<(), EncodeError> {
    let duration = Stat::Duration(duration.0, duration.1);
    let counts = [Stat::PacketCount(packet_count), Stat::ByteCount(byte_count)];
    let is_there = |stat: &&Stat| {
        !matches!(
            stat,
            Stat::Duration(u32::MAX, u32::MAX)
                | Stat::PacketCount(u64::MAX)
                | Stat::ByteCount(u64::MAX)
        )
    };
    let first = std::iter::once(&duration).filter(is_there);
    let last = counts.iter().filter(is_there);
    let (after, before): (Vec<&Stat>, Vec<&Stat>) =
        others.iter().partition(|stat| is_flow_count(stat));
    encode(first.chain(before).chain(last).chain(after), w)
}
