//! OpenFlow 1.5: what it changes in 1.4 and adds to it. The rest is read and written as in 1.4.

pub(super) mod flow;
pub(super) mod group;
pub(super) mod multipart;
pub(super) mod oxs;
pub(super) mod packet;
pub(super) mod switch;

use crate::error::{DecodeError, EncodeError};
use crate::kind::MessageKind as K;
use crate::message::Message;

use super::reader::Reader;
use super::writer::Writer;
use super::{v13, v14};

/// Reads the body of a message of `kind`, which is no symmetric one.
pub(super) fn decode(kind: K, r: &mut Reader) -> Result<Message, DecodeError> {
    Ok(match kind {
        K::PacketOut => Message::PacketOut(packet::decode_out(r)?),
        K::FlowRemoved => Message::FlowRemoved(flow::decode_removed(r)?),
        K::GroupMod => Message::GroupMod(group::decode_mod(r)?),
        K::MultipartRequest => {
            let decode = multipart::decode_request;
            Message::MultipartRequest(v13::multipart::decode_request(r, decode)?)
        }
        K::MultipartReply => {
            let decode = multipart::decode_reply;
            Message::MultipartReply(v13::multipart::decode_reply(r, decode)?)
        }
        K::RoleRequest => Message::RoleRequest(switch::decode_role(r)?),
        K::RoleReply => Message::RoleReply(switch::decode_role(r)?),
        K::ControllerStatus => Message::ControllerStatus(switch::decode_controller(r)?),
        kind => v14::decode(kind, r)?,
    })
}

/// Writes the body of `message`, which is no symmetric one and has a type byte in 1.5.
pub(super) fn encode(message: &Message, w: &mut Writer) -> Result<(), EncodeError> {
    match message {
        Message::PacketOut(packet) => packet::encode_out(packet, w),
        Message::FlowRemoved(removed) => flow::encode_removed(removed, w),
        Message::GroupMod(group_mod) => group::encode_mod(group_mod, w),
        Message::MultipartRequest(request) => {
            v13::multipart::encode_request(request, w, multipart::encode_request)
        }
        Message::MultipartReply(reply) => {
            v13::multipart::encode_reply(reply, w, multipart::encode_reply)
        }
        Message::RoleRequest(role) | Message::RoleReply(role) => {
            switch::encode_role(role, w);
            Ok(())
        }
        Message::ControllerStatus(status) => switch::encode_controller(status, w),
        message => v14::encode(message, w),
    }
}
