//! Nicira's messages that Open vSwitch sends or accepts in addition to OpenFlow's: packets with
//! data from their entry, and the settings that ask for such packets (`nicira-ext.h` of Open
//! vSwitch).
//!
//! [`decode`](crate::decode) keeps them as [`Experimenter`] messages; [`decode_nicira`] reads them.

use bytes::Bytes;

use crate::error::{DecodeError, ErrorKind};
use crate::frame::Frame;
use crate::kind::MessageKind;
use crate::match_fields::Match;
use crate::message::{Experimenter, PacketIn, PacketInReason};
use crate::types::{BufferId, Cookie, TableId};

use super::oxm::{self, IN_MATCH};
use super::reader::Reader;
use super::v14::property;

/// One of Nicira's messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NiciraMessage {
    /// NXT_SET_PACKET_IN_FORMAT: 0 OpenFlow's own, 1 NXT_PACKET_IN, 2 NXT_PACKET_IN2.
    SetPacketInFormat(u32),
    /// NXT_SET_CONTROLLER_ID: the id in `controller(id=…)` whose packets go to this controller.
    SetControllerId(u16),
    /// NXT_PACKET_IN2.
    PacketIn2(PacketIn2),
}

/// NXT_PACKET_IN2: a packet for the controller, with data from its entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketIn2 {
    /// The packet; `total_len` is at most 65,535.
    pub packet: PacketIn,
    /// Data of the action `controller(userdata=…)`.
    pub userdata: Bytes,
    /// The switch's own data, with which it resumes a packet of `controller(pause)`.
    pub continuation: Bytes,
}

/// Types of the messages, after Nicira's id.
const SET_PACKET_IN_FORMAT: u32 = 16;
const SET_CONTROLLER_ID: u32 = 20;
const PACKET_IN2: u32 = 30;

/// Returns the message's name in `ovs-ofctl`, read from its first bytes.
#[cfg(feature = "text")]
pub(crate) fn name(message: &[u8]) -> Option<&'static str> {
    let kind = MessageKind::from_wire(*message.first()?, *message.get(1)?);
    let ids: [u8; 8] = *message.get(8..)?.first_chunk()?;
    let [a, b, c, d, ty @ ..] = ids;
    let is_nicira = u32::from_be_bytes([a, b, c, d]) == Experimenter::NICIRA;
    match u32::from_be_bytes(ty) {
        _ if kind != MessageKind::Experimenter || !is_nicira => None,
        SET_PACKET_IN_FORMAT => Some("NXT_SET_PACKET_IN_FORMAT"),
        SET_CONTROLLER_ID => Some("NXT_SET_CONTROLLER_ID"),
        PACKET_IN2 => Some("NXT_PACKET_IN2"),
        _ => None,
    }
}

/// Reads `frame` if it is one of Nicira's messages that have a name here.
///
/// # Errors
/// Fails if `frame` is such a message and its bytes are wrong.
pub fn decode_nicira(frame: &Frame) -> Result<Option<NiciraMessage>, DecodeError> {
    if frame.kind() != MessageKind::Experimenter {
        return Ok(None);
    }
    let mut r = Reader::body_of(frame, "message of Nicira's");
    if r.u32()? != Experimenter::NICIRA || r.left() < 4 {
        return Ok(None);
    }
    let message = match r.u32()? {
        SET_PACKET_IN_FORMAT => NiciraMessage::SetPacketInFormat(r.u32()?),
        SET_CONTROLLER_ID => {
            r.skip(6)?;
            NiciraMessage::SetControllerId(r.u16()?)
        }
        PACKET_IN2 => NiciraMessage::PacketIn2(decode_packet_in2(&mut r)?),
        _ => return Ok(None),
    };
    r.done()?;
    Ok(Some(message))
}

fn decode_packet_in2(r: &mut Reader) -> Result<PacketIn2, DecodeError> {
    let mut full_len = None;
    let mut found = PacketIn2 {
        packet: PacketIn {
            buffer_id: None,
            total_len: 0,
            reason: PacketInReason(0),
            table_id: TableId(0),
            cookie: Cookie(u64::MAX),
            r#match: Match::any(),
            data: Bytes::new(),
        },
        userdata: Bytes::new(),
        continuation: Bytes::new(),
    };
    property::each(r, |ty, r| {
        let packet = &mut found.packet;
        match ty {
            0 => packet.data = r.rest(),
            1 => full_len = Some(r.u32()?),
            2 => packet.buffer_id = Some(BufferId(r.u32()?)),
            3 => packet.table_id = TableId(one_byte(r)?),
            4 => {
                r.skip(4)?;
                packet.cookie = Cookie(r.u64()?);
            }
            5 => packet.reason = PacketInReason(one_byte(r)?),
            6 => packet.r#match.fields = r.list(|r| oxm::decode_field(r, &IN_MATCH))?,
            7 => found.userdata = r.rest(),
            8 => found.continuation = r.rest(),
            _ => return Err(r.error(ErrorKind::BAD_TYPE)),
        }
        Ok(())
    })?;
    let len = full_len.unwrap_or(found.packet.data.len() as u32);
    found.packet.total_len = u16::try_from(len).unwrap_or(u16::MAX);
    Ok(found)
}

/// A number of one byte, and its padding within the property.
fn one_byte(r: &mut Reader) -> Result<u8, DecodeError> {
    let n = r.u8()?;
    r.skip(r.left())?;
    Ok(n)
}
