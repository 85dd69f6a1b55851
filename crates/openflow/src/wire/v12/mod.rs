//! OpenFlow 1.2: its differences from 1.3 other than missing fields. The rest is read and written
//! as in 1.3.

pub(super) mod multipart;

use crate::error::{DecodeError, EncodeError};
use crate::kind::MessageKind as K;
use crate::message::{Message, PacketIn, PacketInReason};
use crate::types::{Cookie, TableId};

use super::oxm::{decode_match, encode_match};
use super::reader::Reader;
use super::v13;
use super::writer::Writer;

/// Cookie of a packet-in before 1.3, which has none, as later versions write it.
pub(super) const NO_COOKIE: Cookie = Cookie(u64::MAX);

/// Reads the body of a message of `kind`, which is no symmetric one.
pub(super) fn decode(kind: K, r: &mut Reader) -> Result<Message, DecodeError> {
    Ok(match kind {
        K::PacketIn => Message::PacketIn(decode_packet_in(r)?),
        K::MultipartRequest => {
            let decode = multipart::decode_request;
            Message::MultipartRequest(v13::multipart::decode_request(r, decode)?)
        }
        K::MultipartReply => {
            let decode = multipart::decode_reply;
            Message::MultipartReply(v13::multipart::decode_reply(r, decode)?)
        }
        kind => v13::decode(kind, r)?,
    })
}

/// Writes the body of `message`, which is no symmetric one and has a type byte in 1.2.
pub(super) fn encode(message: &Message, w: &mut Writer) -> Result<(), EncodeError> {
    match message {
        Message::PacketIn(packet) => encode_packet_in(packet, w),
        Message::MultipartRequest(request) => {
            v13::multipart::encode_request(request, w, multipart::encode_request)
        }
        Message::MultipartReply(reply) => {
            v13::multipart::encode_reply(reply, w, multipart::encode_reply)
        }
        message => v13::encode(message, w),
    }
}

fn decode_packet_in(r: &mut Reader) -> Result<PacketIn, DecodeError> {
    let buffer_id = v13::decode_buffer_id(r)?;
    let total_len = r.u16()?;
    let reason = PacketInReason(r.u8()?);
    let table_id = TableId(r.u8()?);
    let r#match = decode_match(r)?;
    r.skip(2)?;
    Ok(PacketIn {
        buffer_id,
        total_len,
        reason,
        table_id,
        cookie: NO_COOKIE,
        r#match,
        data: r.rest(),
    })
}

fn encode_packet_in(packet: &PacketIn, w: &mut Writer) -> Result<(), EncodeError> {
    w.refuse(packet.cookie != NO_COOKIE, "cookie in a packet-in")?;
    v13::encode_buffer_id(packet.buffer_id, w);
    w.u16(packet.total_len);
    w.u8(packet.reason.0);
    w.u8(packet.table_id.0);
    encode_match(&packet.r#match, w)?;
    w.zeros(2);
    w.bytes(&packet.data);
    Ok(())
}
