//! Packets to and from the controller.

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::match_fields::Match;
use crate::message::{PacketIn, PacketInReason, PacketOut};
use crate::types::{Cookie, PortNo, TableId};

use super::super::actions::{decode_actions, encode_actions};
use super::super::oxm::{decode_match, encode_match};
use super::super::reader::Reader;
use super::super::writer::Writer;
use super::{decode_buffer_id, encode_buffer_id};

pub(super) fn decode_packet_in(r: &mut Reader) -> Result<PacketIn, DecodeError> {
    let buffer_id = decode_buffer_id(r)?;
    let total_len = r.u16()?;
    let reason = PacketInReason(r.u8()?);
    let table_id = TableId(r.u8()?);
    let cookie = Cookie(r.u64()?);
    let r#match = decode_match(r)?;
    r.skip(2)?;
    Ok(PacketIn {
        buffer_id,
        total_len,
        reason,
        table_id,
        cookie,
        r#match,
        data: r.rest(),
    })
}

pub(super) fn encode_packet_in(packet: &PacketIn, w: &mut Writer) -> Result<(), EncodeError> {
    encode_buffer_id(packet.buffer_id, w);
    w.u16(packet.total_len);
    w.u8(packet.reason.0);
    w.u8(packet.table_id.0);
    w.u64(packet.cookie.0);
    encode_match(&packet.r#match, w)?;
    w.zeros(2);
    w.bytes(&packet.data);
    Ok(())
}

pub(super) fn decode_packet_out(r: &mut Reader) -> Result<PacketOut, DecodeError> {
    let buffer_id = decode_buffer_id(r)?;
    let in_port = PortNo(r.u32()?);
    let actions_len = usize::from(r.u16()?);
    r.skip(6)?;
    // A list longer than the message is an error of the message; missing bytes inside it, of an
    // action.
    let mut actions = r
        .part(actions_len, ErrorKind::BAD_LEN, "actions of PACKET_OUT")?
        .renamed(ErrorKind::ACTION_BAD_LEN, "action");
    Ok(PacketOut {
        buffer_id,
        in_port,
        actions: decode_actions(&mut actions)?,
        data: r.rest(),
        pipeline: Match::any(),
    })
}

pub(super) fn encode_packet_out(packet: &PacketOut, w: &mut Writer) -> Result<(), EncodeError> {
    w.refuse(
        !packet.pipeline.fields.is_empty(),
        "pipeline fields in PACKET_OUT",
    )?;
    encode_buffer_id(packet.buffer_id, w);
    w.u32(packet.in_port.0);
    let actions_len_at = w.at();
    w.zeros(8);
    let actions_at = w.at();
    encode_actions(&packet.actions, w)?;
    w.set_len(actions_len_at, actions_at, "actions of PACKET_OUT")?;
    w.bytes(&packet.data);
    Ok(())
}
