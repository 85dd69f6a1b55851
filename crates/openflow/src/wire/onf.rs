//! Messages of 1.4 that the ONF gave to 1.3 as extensions: EXPERIMENTER messages whose type stands
//! for a message of 1.4 with the same body.

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::frame::HEADER_LEN;
use crate::kind::MessageKind as K;
use crate::message::{Experimenter, Message};
use crate::types::Version;

use super::reader::Reader;
use super::v14::{bundle, switch};
use super::writer::Writer;

const TYPES: [(K, u32); 4] = [
    (K::RoleStatus, Experimenter::ONF_ROLE_STATUS),
    (K::BundleControl, Experimenter::ONF_BUNDLE_CONTROL),
    (K::BundleAddMessage, Experimenter::ONF_BUNDLE_ADD_MESSAGE),
    (K::RequestForward, Experimenter::ONF_REQUEST_FORWARD),
];

/// Experimenter id and type.
const IDS_LEN: usize = 8;

/// Returns the ONF's type of `message`, if it is an ONF extension.
pub(super) fn ty(message: &Message) -> Option<u32> {
    match message {
        Message::RoleStatus(_) => Some(Experimenter::ONF_ROLE_STATUS),
        Message::BundleControl(_) => Some(Experimenter::ONF_BUNDLE_CONTROL),
        Message::BundleAdd(_) => Some(Experimenter::ONF_BUNDLE_ADD_MESSAGE),
        Message::RequestForward(_) => Some(Experimenter::ONF_REQUEST_FORWARD),
        _ => None,
    }
}

/// Returns the kind of `message`, if it begins like an ONF extension.
pub(crate) fn kind(message: &[u8]) -> Option<K> {
    let (header, body) = message.split_first_chunk::<HEADER_LEN>()?;
    if header[0] != Version::V13.wire() || K::from_wire(header[0], header[1]) != K::Experimenter {
        return None;
    }
    let (id, body) = body.split_first_chunk()?;
    let (given, _) = body.split_first_chunk()?;
    let is_onf = u32::from_be_bytes(*id) == Experimenter::ONF;
    let given = u32::from_be_bytes(*given);
    let found = TYPES.iter().find(|(_, ty)| is_onf && *ty == given);
    found.map(|(kind, _)| *kind)
}

/// Reads the body of a message that [`kind`] has found.
pub(super) fn decode(kind: K, r: &mut Reader) -> Result<Message, DecodeError> {
    r.skip(IDS_LEN)?;
    Ok(match kind {
        K::RoleStatus => Message::RoleStatus(switch::decode_role_status(r)?),
        K::BundleControl => Message::BundleControl(bundle::decode_control(r)?),
        K::BundleAddMessage => Message::BundleAdd(bundle::decode_add(r)?),
        K::RequestForward => Message::RequestForward(bundle::decode_forward(r)?),
        _ => return Err(r.error(ErrorKind::BAD_EXPERIMENTER_TYPE)),
    })
}

/// Writes the body of a message for which [`ty`] returned `ty`.
pub(super) fn encode(ty: u32, message: &Message, w: &mut Writer) -> Result<(), EncodeError> {
    w.u32(Experimenter::ONF);
    w.u32(ty);
    match message {
        Message::RoleStatus(status) => switch::encode_role_status(status, w),
        Message::BundleControl(control) => bundle::encode_control(control, w),
        Message::BundleAdd(add) => bundle::encode_add(add, w),
        Message::RequestForward(forward) => bundle::encode_forward(forward, w),
        _ => w.unsupported("message of this kind"),
    }
}
