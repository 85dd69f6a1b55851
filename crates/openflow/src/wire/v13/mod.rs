//! OpenFlow 1.3, by message family, and the parts that the versions around it share with it.
//! Structures are in the order of the specification (1.3.1, 7.3).

pub(super) mod flow;
pub(super) mod group;
mod meter;
pub(super) mod multipart;
mod packet;
pub(super) mod port;
pub(super) mod queue;
pub(super) mod switch;
mod table;
mod table_features;

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::kind::MessageKind as K;
use crate::message::Message;
use crate::types::{BufferId, PortNo, Version};

use super::reader::Reader;
use super::writer::Writer;

/// OFP_NO_BUFFER.
const NO_BUFFER: u32 = 0xffff_ffff;

/// Reads the body of a message of `kind`, which is no symmetric one.
pub(super) fn decode(kind: K, r: &mut Reader) -> Result<Message, DecodeError> {
    Ok(match kind {
        K::FeaturesRequest => Message::FeaturesRequest,
        K::FeaturesReply => Message::FeaturesReply(switch::decode_features(r)?),
        K::GetConfigRequest => Message::GetConfigRequest,
        K::GetConfigReply => Message::GetConfigReply(switch::decode_config(r)?),
        K::SetConfig => Message::SetConfig(switch::decode_config(r)?),
        K::PacketIn => Message::PacketIn(packet::decode_packet_in(r)?),
        K::FlowRemoved => Message::FlowRemoved(flow::decode_flow_removed(r)?),
        K::PortStatus => Message::PortStatus(port::decode_status(r, port::decode_port)?),
        K::PacketOut => Message::PacketOut(packet::decode_packet_out(r)?),
        K::FlowMod => Message::FlowMod(flow::decode_flow_mod(r)?),
        K::GroupMod => Message::GroupMod(group::decode_group_mod(r)?),
        K::PortMod => Message::PortMod(port::decode_port_mod(r)?),
        K::TableMod => Message::TableMod(table::decode_table_mod(r)?),
        K::MultipartRequest => Message::MultipartRequest(multipart::decode_request(
            r,
            multipart::decode_request_body,
        )?),
        K::MultipartReply => {
            Message::MultipartReply(multipart::decode_reply(r, multipart::decode_reply_body)?)
        }
        K::BarrierRequest => Message::BarrierRequest,
        K::BarrierReply => Message::BarrierReply,
        K::QueueGetConfigRequest => {
            let port = PortNo(r.u32()?);
            r.skip(4)?;
            Message::QueueGetConfigRequest { port }
        }
        K::QueueGetConfigReply => Message::QueueGetConfigReply(queue::decode_config(r)?),
        K::RoleRequest => Message::RoleRequest(switch::decode_role(r)?),
        K::RoleReply => Message::RoleReply(switch::decode_role(r)?),
        K::GetAsyncRequest => Message::GetAsyncRequest,
        K::GetAsyncReply => Message::GetAsyncReply(switch::decode_async(r)?),
        K::SetAsync => Message::SetAsync(switch::decode_async(r)?),
        K::MeterMod => Message::MeterMod(meter::decode_meter_mod(r)?),
        // The symmetric messages are read elsewhere, the others have no number in 1.3.
        _ => return Err(r.error(ErrorKind::BAD_TYPE)),
    })
}

/// Writes the body of `message`, which is no symmetric message and has a type byte in 1.3.
pub(super) fn encode(message: &Message, w: &mut Writer) -> Result<(), EncodeError> {
    match message {
        Message::FeaturesRequest
        | Message::GetConfigRequest
        | Message::BarrierRequest
        | Message::BarrierReply
        | Message::GetAsyncRequest => {}
        Message::FeaturesReply(features) => switch::encode_features(features, w)?,
        Message::GetConfigReply(config) | Message::SetConfig(config) => {
            switch::encode_config(config, w);
        }
        Message::PacketIn(packet) => packet::encode_packet_in(packet, w)?,
        Message::FlowRemoved(removed) => flow::encode_flow_removed(removed, w)?,
        Message::PortStatus(status) => port::encode_status(status, w, port::encode_port)?,
        Message::PacketOut(packet) => packet::encode_packet_out(packet, w)?,
        Message::FlowMod(flow_mod) => flow::encode_flow_mod(flow_mod, w)?,
        Message::GroupMod(group_mod) => group::encode_group_mod(group_mod, w)?,
        Message::PortMod(port_mod) => port::encode_port_mod(port_mod, w)?,
        Message::TableMod(table_mod) => table::encode_table_mod(table_mod, w)?,
        Message::MultipartRequest(request) => {
            multipart::encode_request(request, w, multipart::encode_request_body)?;
        }
        Message::MultipartReply(reply) => {
            multipart::encode_reply(reply, w, multipart::encode_reply_body)?;
        }
        Message::QueueGetConfigRequest { port } => {
            w.u32(port.0);
            w.zeros(4);
        }
        Message::QueueGetConfigReply(config) => queue::encode_config(config, w)?,
        Message::RoleRequest(role) | Message::RoleReply(role) => switch::encode_role(role, w)?,
        Message::GetAsyncReply(config) | Message::SetAsync(config) => {
            switch::encode_async(config, w)?;
        }
        Message::MeterMod(meter_mod) => meter::encode_meter_mod(meter_mod, w)?,
        Message::Hello(_)
        | Message::Error(_)
        | Message::EchoRequest(_)
        | Message::EchoReply(_)
        | Message::Experimenter(_) => unreachable!("symmetric messages are written elsewhere"),
        Message::RoleStatus(_)
        | Message::TableStatus(_)
        | Message::RequestForward(_)
        | Message::BundleControl(_)
        | Message::BundleAdd(_)
        | Message::ControllerStatus(_) => return w.unsupported("message of this kind"),
    }
    Ok(())
}

/// Returns the name of a message for decode errors.
pub(super) fn name(kind: K) -> &'static str {
    match kind {
        K::FeaturesRequest => "FEATURES_REQUEST",
        K::FeaturesReply => "FEATURES_REPLY",
        K::GetConfigRequest => "GET_CONFIG_REQUEST",
        K::GetConfigReply => "GET_CONFIG_REPLY",
        K::SetConfig => "SET_CONFIG",
        K::PacketIn => "PACKET_IN",
        K::FlowRemoved => "FLOW_REMOVED",
        K::PortStatus => "PORT_STATUS",
        K::PacketOut => "PACKET_OUT",
        K::FlowMod => "FLOW_MOD",
        K::GroupMod => "GROUP_MOD",
        K::PortMod => "PORT_MOD",
        K::TableMod => "TABLE_MOD",
        K::MultipartRequest => "MULTIPART_REQUEST",
        K::MultipartReply => "MULTIPART_REPLY",
        K::BarrierRequest => "BARRIER_REQUEST",
        K::BarrierReply => "BARRIER_REPLY",
        K::QueueGetConfigRequest => "QUEUE_GET_CONFIG_REQUEST",
        K::QueueGetConfigReply => "QUEUE_GET_CONFIG_REPLY",
        K::RoleRequest => "ROLE_REQUEST",
        K::RoleReply => "ROLE_REPLY",
        K::RoleStatus => "ROLE_STATUS",
        K::TableStatus => "TABLE_STATUS",
        K::RequestForward => "REQUESTFORWARD",
        K::BundleControl => "BUNDLE_CONTROL",
        K::BundleAddMessage => "BUNDLE_ADD_MESSAGE",
        K::ControllerStatus => "CONTROLLER_STATUS",
        K::GetAsyncRequest => "GET_ASYNC_REQUEST",
        K::GetAsyncReply => "GET_ASYNC_REPLY",
        K::SetAsync => "SET_ASYNC",
        K::MeterMod => "METER_MOD",
        _ => "message",
    }
}

/// Reads the age of ports, queues and groups in seconds and nanoseconds; 0 before 1.3.
fn decode_age(r: &mut Reader) -> Result<(u32, u32), DecodeError> {
    match r.is_since(Version::V13) {
        true => Ok((r.u32()?, r.u32()?)),
        false => Ok((0, 0)),
    }
}

fn encode_age(sec: u32, nsec: u32, w: &mut Writer) -> Result<(), EncodeError> {
    if w.is_since(Version::V13) {
        w.u32(sec);
        w.u32(nsec);
        return Ok(());
    }
    w.refuse((sec, nsec) != (0, 0), "age in such statistics")
}

pub(super) fn decode_buffer_id(r: &mut Reader) -> Result<Option<BufferId>, DecodeError> {
    let id = r.u32()?;
    Ok((id != NO_BUFFER).then_some(BufferId(id)))
}

pub(super) fn encode_buffer_id(id: Option<BufferId>, w: &mut Writer) {
    w.u32(id.map_or(NO_BUFFER, |id| id.0));
}
