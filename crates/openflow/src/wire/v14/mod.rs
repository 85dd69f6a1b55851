//! OpenFlow 1.4: what it changes in 1.3 and adds to it. The rest is read and written as in 1.3.

pub(super) mod bundle;
pub(super) mod monitor;
pub(super) mod multipart;
pub(super) mod port;
pub(super) mod property;
pub(super) mod switch;
pub(super) mod table;

use crate::error::{DecodeError, EncodeError};
use crate::kind::MessageKind as K;
use crate::message::Message;

use super::reader::Reader;
use super::v13;
use super::writer::Writer;

/// Reads the body of a message of `kind`, which is no symmetric one.
pub(super) fn decode(kind: K, r: &mut Reader) -> Result<Message, DecodeError> {
    Ok(match kind {
        K::PortStatus => Message::PortStatus(v13::port::decode_status(r, port::decode_port)?),
        K::PortMod => Message::PortMod(port::decode_mod(r)?),
        K::TableMod => Message::TableMod(table::decode_mod(r)?),
        K::MultipartRequest => {
            let decode = multipart::decode_request;
            Message::MultipartRequest(v13::multipart::decode_request(r, decode)?)
        }
        K::MultipartReply => {
            let decode = multipart::decode_reply;
            Message::MultipartReply(v13::multipart::decode_reply(r, decode)?)
        }
        K::GetAsyncReply => Message::GetAsyncReply(switch::decode_async(r)?),
        K::SetAsync => Message::SetAsync(switch::decode_async(r)?),
        K::RoleStatus => Message::RoleStatus(switch::decode_role_status(r)?),
        K::TableStatus => Message::TableStatus(table::decode_status(r)?),
        K::RequestForward => Message::RequestForward(bundle::decode_forward(r)?),
        K::BundleControl => Message::BundleControl(bundle::decode_control(r)?),
        K::BundleAddMessage => Message::BundleAdd(bundle::decode_add(r)?),
        kind => v13::decode(kind, r)?,
    })
}

/// Writes the body of `message`, which is no symmetric one and has a type byte in 1.4.
pub(super) fn encode(message: &Message, w: &mut Writer) -> Result<(), EncodeError> {
    match message {
        Message::PortStatus(status) => v13::port::encode_status(status, w, port::encode_port),
        Message::PortMod(port_mod) => port::encode_mod(port_mod, w),
        Message::TableMod(table_mod) => table::encode_mod(table_mod, w),
        Message::MultipartRequest(request) => {
            v13::multipart::encode_request(request, w, multipart::encode_request)
        }
        Message::MultipartReply(reply) => {
            v13::multipart::encode_reply(reply, w, multipart::encode_reply)
        }
        Message::GetAsyncReply(config) | Message::SetAsync(config) => {
            switch::encode_async(config, w)
        }
        Message::RoleStatus(status) => switch::encode_role_status(status, w),
        Message::TableStatus(status) => table::encode_status(status, w),
        Message::RequestForward(forward) => bundle::encode_forward(forward, w),
        Message::BundleControl(control) => bundle::encode_control(control, w),
        Message::BundleAdd(add) => bundle::encode_add(add, w),
        message => v13::encode(message, w),
    }
}
