//! OpenFlow 1.1: its match of a fixed form ([`matching`]), actions per field ([`actions`]), and its
//! other differences from 1.2. The rest is read and written as in 1.2.

pub(super) mod actions;
pub(super) mod matching;

use crate::error::{DecodeError, EncodeError};
use crate::kind::MessageKind as K;
use crate::match_fields::{Field, Match};
use crate::message::{Message, PacketIn, PacketInReason, QueueConfig};
use crate::types::{PortNo, TableId};

use super::reader::Reader;
use super::v12::NO_COOKIE;
use super::writer::Writer;
use super::{v10, v12, v13};

/// Reads the body of a message of `kind`, which is no symmetric one.
pub(super) fn decode(kind: K, r: &mut Reader) -> Result<Message, DecodeError> {
    Ok(match kind {
        K::PacketIn => Message::PacketIn(decode_packet_in(r)?),
        K::QueueGetConfigReply => {
            let port = PortNo(r.u32()?);
            r.skip(4)?;
            let queues = r.list(|r| v10::decode_queue(port, r))?;
            Message::QueueGetConfigReply(QueueConfig { port, queues })
        }
        kind => v12::decode(kind, r)?,
    })
}

/// Writes the body of `message`, which is no symmetric one and has a type byte in 1.1.
pub(super) fn encode(message: &Message, w: &mut Writer) -> Result<(), EncodeError> {
    match message {
        Message::PacketIn(packet) => encode_packet_in(packet, w),
        Message::QueueGetConfigReply(config) => {
            w.u32(config.port.0);
            w.zeros(4);
            v10::encode_queues(config, w)
        }
        message => v12::encode(message, w),
    }
}

/// Reads a packet-in, whose match is the port and, if it differs, the physical port.
fn decode_packet_in(r: &mut Reader) -> Result<PacketIn, DecodeError> {
    let buffer_id = v13::decode_buffer_id(r)?;
    let (in_port, in_phy_port) = (r.u32()?, r.u32()?);
    let mut r#match = Match::any().with(Field::InPort, in_port);
    if in_phy_port != in_port {
        r#match = r#match.with(Field::InPhyPort, in_phy_port);
    }
    Ok(PacketIn {
        buffer_id,
        total_len: r.u16()?,
        reason: PacketInReason(r.u8()?),
        table_id: TableId(r.u8()?),
        cookie: NO_COOKIE,
        r#match,
        data: r.rest(),
    })
}

fn encode_packet_in(packet: &PacketIn, w: &mut Writer) -> Result<(), EncodeError> {
    w.refuse(packet.cookie != NO_COOKIE, "cookie in a packet-in")?;
    let Some(in_port) = packet.r#match.exact(Field::InPort) else {
        return w.unsupported("packet-in without in_port");
    };
    let in_phy_port = packet.r#match.exact(Field::InPhyPort);
    let mut said = Match::any().with(Field::InPort, in_port);
    if let Some(port) = in_phy_port {
        said = said.with(Field::InPhyPort, port);
    }
    if packet.r#match != said || in_phy_port == Some(in_port) {
        return w.unsupported("such match in a packet-in");
    }
    v13::encode_buffer_id(packet.buffer_id, w);
    w.uint(in_port, 4);
    w.uint(in_phy_port.unwrap_or(in_port), 4);
    w.u16(packet.total_len);
    w.u8(packet.reason.0);
    w.u8(packet.table_id.0);
    w.bytes(&packet.data);
    Ok(())
}
