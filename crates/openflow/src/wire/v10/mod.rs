//! OpenFlow 1.0 (wire version 1), byte for byte as the specification of December 2009 has it.
//!
//! Messages decoded here and encoded again give the same bytes, except for parts without meaning:
//! padding, `ofp_match` as described in [`matching`], undefined bits of capabilities, port features
//! and port states, flags of STATS messages beyond MORE, and undefined error types (0x1000 to
//! 0x100d). Anything that 1.0 lacks is refused as unsupported, with two exceptions that lose
//! nothing: the LIVE state of a port, and speeds that its features imply.

mod actions;
mod matching;
mod numbers;
mod port;
mod stats;

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::frame::Frame;
use crate::kind::MessageKind;
use crate::match_fields::{Field, Match, MatchField};
use crate::message::{
    Capabilities, FlowMod, FlowModCommand, FlowModFlags, FlowRemoved, FlowRemovedReason, Message,
    PacketIn, PacketInReason, PacketOut, SwitchConfig, SwitchFeatures,
};
use crate::types::{BufferId, Cookie, DatapathId, GroupId, PortNo, TableId};

use super::reader::Reader;
use super::v13;
use super::writer::Writer;

pub(super) use numbers::{error_from_wire, error_to_wire};
use numbers::{port_from_wire, port_to_wire};
pub(super) use port::{decode_queue, encode_queues};

/// `buffer_id` of a packet that is not buffered.
const NO_BUFFER: u32 = 0xffff_ffff;

/// Cookie of a 1.0 packet-in, which has none, as later versions write it.
const NO_COOKIE: Cookie = Cookie(u64::MAX);

/// OFPC_FLOW_STATS to OFPC_ARP_MATCH_IP.
const CAPABILITIES: u32 = 0xff;

/// OFPFF_EMERG on the wire.
const EMERG: u16 = 1 << 2;

/// Reads `frame`, whose version is 1.0 and which is no symmetric message.
pub(super) fn decode(frame: &Frame) -> Result<Message, DecodeError> {
    match frame.kind() {
        MessageKind::FeaturesRequest => bare(frame, Message::FeaturesRequest),
        MessageKind::FeaturesReply => decode_features(frame),
        MessageKind::GetConfigRequest => bare(frame, Message::GetConfigRequest),
        MessageKind::GetConfigReply => decode_config(frame).map(Message::GetConfigReply),
        MessageKind::SetConfig => decode_config(frame).map(Message::SetConfig),
        MessageKind::PacketIn => decode_packet_in(frame),
        MessageKind::FlowRemoved => decode_flow_removed(frame),
        MessageKind::PortStatus => port::decode_status(frame),
        MessageKind::PacketOut => decode_packet_out(frame),
        MessageKind::FlowMod => decode_flow_mod(frame),
        MessageKind::PortMod => port::decode_mod(frame),
        MessageKind::MultipartRequest => stats::decode_request(frame),
        MessageKind::MultipartReply => stats::decode_reply(frame),
        MessageKind::BarrierRequest => bare(frame, Message::BarrierRequest),
        MessageKind::BarrierReply => bare(frame, Message::BarrierReply),
        MessageKind::QueueGetConfigRequest => port::decode_queue_request(frame),
        MessageKind::QueueGetConfigReply => port::decode_queue_reply(frame),
        _ => Err(DecodeError {
            kind: ErrorKind::BAD_TYPE,
            what: "message type",
            offset: 1,
        }),
    }
}

/// Writes the body of `message`, which is no symmetric message and has a type byte in 1.0.
pub(super) fn encode(message: &Message, w: &mut Writer) -> Result<(), EncodeError> {
    match message {
        Message::FeaturesRequest
        | Message::GetConfigRequest
        | Message::BarrierRequest
        | Message::BarrierReply => Ok(()),
        Message::FeaturesReply(m) => encode_features(m, w),
        Message::GetConfigReply(m) | Message::SetConfig(m) => {
            w.u16(m.flags);
            w.u16(m.miss_send_len);
            Ok(())
        }
        Message::PacketIn(m) => encode_packet_in(m, w),
        Message::FlowRemoved(m) => encode_flow_removed(m, w),
        Message::PortStatus(m) => v13::port::encode_status(m, w, port::encode_port),
        Message::PacketOut(m) => encode_packet_out(m, w),
        Message::FlowMod(m) => encode_flow_mod(m, w),
        Message::PortMod(m) => port::encode_mod(m, w),
        Message::MultipartRequest(m) => stats::encode_request(m, w),
        Message::MultipartReply(m) => stats::encode_reply(m, w),
        Message::QueueGetConfigRequest { port } => port::encode_queue_request(*port, w),
        Message::QueueGetConfigReply(m) => port::encode_queue_reply(m, w),
        _ => w.unsupported("message of this kind"),
    }
}

pub(super) use stats::decode_flow_rows;

fn bare(frame: &Frame, message: Message) -> Result<Message, DecodeError> {
    Reader::body_of(frame, "message without a body").done()?;
    Ok(message)
}

fn decode_features(frame: &Frame) -> Result<Message, DecodeError> {
    let mut r = Reader::body_of(frame, "FEATURES_REPLY");
    let datapath_id = DatapathId(r.u64()?);
    let n_buffers = r.u32()?;
    let n_tables = r.u8()?;
    r.skip(3)?;
    Ok(Message::FeaturesReply(SwitchFeatures {
        datapath_id,
        n_buffers,
        n_tables,
        auxiliary_id: 0,
        capabilities: Capabilities(r.u32()? & CAPABILITIES),
        actions: r.u32()?,
        ports: r.list(port::decode_port)?,
    }))
}

fn encode_features(m: &SwitchFeatures, w: &mut Writer) -> Result<(), EncodeError> {
    if m.auxiliary_id != 0 {
        return w.unsupported("auxiliary connection");
    }
    if m.capabilities.0 & !CAPABILITIES != 0 {
        return w.unsupported("such capability");
    }
    w.u64(m.datapath_id.0);
    w.u32(m.n_buffers);
    w.u8(m.n_tables);
    w.zeros(3);
    w.u32(m.capabilities.0);
    w.u32(m.actions);
    m.ports.iter().try_for_each(|p| port::encode_port(p, w))
}

fn decode_config(frame: &Frame) -> Result<SwitchConfig, DecodeError> {
    let mut r = Reader::body_of(frame, "ofp_switch_config");
    let config = SwitchConfig {
        flags: r.u16()?,
        miss_send_len: r.u16()?,
    };
    r.done()?;
    Ok(config)
}

fn decode_packet_in(frame: &Frame) -> Result<Message, DecodeError> {
    let mut r = Reader::body_of(frame, "PACKET_IN");
    let buffer_id = decode_buffer(&mut r)?;
    let total_len = r.u16()?;
    let in_port = port_from_wire(r.u16()?);
    let reason = PacketInReason(r.u8()?);
    r.skip(1)?;
    Ok(Message::PacketIn(PacketIn {
        buffer_id,
        total_len,
        reason,
        table_id: TableId(0),
        cookie: NO_COOKIE,
        r#match: Match::any().with_in_port(in_port),
        data: r.rest(),
    }))
}

fn encode_packet_in(m: &PacketIn, w: &mut Writer) -> Result<(), EncodeError> {
    let [
        MatchField::Basic {
            field: Field::InPort,
            value,
            mask: None,
        },
    ] = m.r#match.fields[..]
    else {
        return w.unsupported("field but in_port in a packet-in");
    };
    if (m.table_id, m.cookie) != (TableId(0), NO_COOKIE) {
        return w.unsupported("table or cookie in a packet-in");
    }
    encode_buffer(m.buffer_id, w);
    w.u16(m.total_len);
    w.u16(port_to_wire(PortNo(value as u32), w)?);
    w.u8(m.reason.0);
    w.zeros(1);
    w.bytes(&m.data);
    Ok(())
}

fn decode_buffer(r: &mut Reader) -> Result<Option<BufferId>, DecodeError> {
    Ok(Some(r.u32()?).filter(|id| *id != NO_BUFFER).map(BufferId))
}

fn encode_buffer(id: Option<BufferId>, w: &mut Writer) {
    w.u32(id.map_or(NO_BUFFER, |id| id.0));
}

fn decode_flow_removed(frame: &Frame) -> Result<Message, DecodeError> {
    let mut r = Reader::body_of(frame, "FLOW_REMOVED");
    let r#match = matching::decode(&mut r)?;
    let cookie = Cookie(r.u64()?);
    let priority = r.u16()?;
    let reason = FlowRemovedReason(r.u8()?);
    r.skip(1)?;
    let (duration_sec, duration_nsec) = (r.u32()?, r.u32()?);
    let idle_timeout = r.u16()?;
    r.skip(2)?;
    let (packet_count, byte_count) = (r.u64()?, r.u64()?);
    r.done()?;
    Ok(Message::FlowRemoved(FlowRemoved {
        cookie,
        priority,
        reason,
        table_id: TableId(0),
        duration_sec,
        duration_nsec,
        idle_timeout,
        hard_timeout: 0,
        packet_count,
        byte_count,
        r#match,
        stats: Vec::new(),
    }))
}

fn encode_flow_removed(m: &FlowRemoved, w: &mut Writer) -> Result<(), EncodeError> {
    w.refuse(!m.stats.is_empty(), "such statistics of an entry")?;
    if (m.table_id, m.hard_timeout) != (TableId(0), 0) {
        return w.unsupported("table or hard timeout in FLOW_REMOVED");
    }
    matching::encode(&m.r#match, w)?;
    w.u64(m.cookie.0);
    w.u16(m.priority);
    w.u8(m.reason.0);
    w.zeros(1);
    w.u32(m.duration_sec);
    w.u32(m.duration_nsec);
    w.u16(m.idle_timeout);
    w.zeros(2);
    w.u64(m.packet_count);
    w.u64(m.byte_count);
    Ok(())
}

fn decode_packet_out(frame: &Frame) -> Result<Message, DecodeError> {
    let mut r = Reader::body_of(frame, "PACKET_OUT");
    let buffer_id = decode_buffer(&mut r)?;
    let in_port = port_from_wire(r.u16()?);
    let actions_len = usize::from(r.u16()?);
    let mut list = r
        .part(actions_len, ErrorKind::BAD_LEN, "PACKET_OUT")?
        .renamed(ErrorKind::ACTION_BAD_LEN, "actions");
    Ok(Message::PacketOut(PacketOut {
        buffer_id,
        in_port,
        actions: actions::decode(&mut list)?,
        data: r.rest(),
        pipeline: Match::any(),
    }))
}

fn encode_packet_out(m: &PacketOut, w: &mut Writer) -> Result<(), EncodeError> {
    w.refuse(
        !m.pipeline.fields.is_empty(),
        "pipeline fields in PACKET_OUT",
    )?;
    encode_buffer(m.buffer_id, w);
    w.u16(port_to_wire(m.in_port, w)?);
    let len_at = w.at();
    w.u16(0);
    actions::encode(&m.actions, w)?;
    w.set_len(len_at, len_at + 2, "actions")?;
    w.bytes(&m.data);
    Ok(())
}

fn decode_flow_mod(frame: &Frame) -> Result<Message, DecodeError> {
    let mut r = Reader::body_of(frame, "FLOW_MOD");
    let (r#match, is_exact) = matching::decode_exactness(&mut r)?;
    let cookie = Cookie(r.u64()?);
    let command = u8::try_from(r.u16()?)
        .ok()
        .and_then(FlowModCommand::from_wire)
        .ok_or(r.error(ErrorKind::FLOW_MOD_BAD_COMMAND))?;
    let (idle_timeout, hard_timeout, priority) = (r.u16()?, r.u16()?, r.u16()?);
    // An entry without wildcards has the highest priority, whatever the message says (1.0, 3.4).
    let priority = if is_exact { u16::MAX } else { priority };
    let buffer_id = decode_buffer(&mut r)?;
    let out_port = port_from_wire(r.u16()?);
    let flags = decode_flags(&mut r)?;
    let mut r = r.renamed(ErrorKind::ACTION_BAD_LEN, "actions");
    Ok(Message::FlowMod(FlowMod {
        cookie,
        cookie_mask: Cookie(0),
        table_id: TableId(0),
        command,
        idle_timeout,
        hard_timeout,
        priority,
        buffer_id,
        out_port,
        out_group: GroupId::ANY,
        flags,
        r#match,
        instructions: actions::decode_instructions(&mut r)?,
        importance: 0,
    }))
}

/// Bits past EMERG are refused: later versions give them meanings that 1.0 does not have.
fn decode_flags(r: &mut Reader) -> Result<FlowModFlags, DecodeError> {
    let wire = r.u16()?;
    if wire & !(EMERG | (EMERG - 1)) != 0 {
        return Err(r.error(ErrorKind::FLOW_MOD_EPERM));
    }
    let shared = FlowModFlags(wire & !EMERG);
    Ok(if wire & EMERG != 0 {
        shared | FlowModFlags::EMERG
    } else {
        shared
    })
}

fn encode_flags(flags: FlowModFlags, w: &mut Writer) -> Result<(), EncodeError> {
    let shared = flags.0 & !FlowModFlags::EMERG.0;
    if shared & !(EMERG - 1) != 0 {
        return w.unsupported("such FLOW_MOD flag");
    }
    let emerg = flags.contains(FlowModFlags::EMERG);
    w.u16(shared | if emerg { EMERG } else { 0 });
    Ok(())
}

fn encode_flow_mod(m: &FlowMod, w: &mut Writer) -> Result<(), EncodeError> {
    let deletes = matches!(
        m.command,
        FlowModCommand::Delete | FlowModCommand::DeleteStrict
    );
    if m.table_id != TableId(0) && !(deletes && m.table_id == TableId::ALL) {
        return w.unsupported("table in FLOW_MOD");
    }
    if m.cookie_mask != Cookie(0) {
        return w.unsupported("cookie_mask");
    }
    if m.out_group != GroupId::ANY {
        return w.unsupported("out_group");
    }
    w.refuse(m.importance != 0, "importance of an entry")?;
    matching::encode(&m.r#match, w)?;
    w.u64(m.cookie.0);
    w.u16(m.command as u16);
    w.u16(m.idle_timeout);
    w.u16(m.hard_timeout);
    w.u16(m.priority);
    encode_buffer(m.buffer_id, w);
    w.u16(port_to_wire(m.out_port, w)?);
    encode_flags(m.flags, w)?;
    actions::encode_instructions(&m.instructions, w)
}

#[cfg(all(test, feature = "text"))]
mod tests;
