//! Roles with controller numbers, and controller connections (1.5.1, 7.3.8 and 7.4.7).

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::message::{ControllerProperty, ControllerStatus, RoleMessage};

use super::super::reader::Reader;
use super::super::v13::switch::role_from_wire;
use super::super::v14::property;
use super::super::writer::Writer;

/// OFPCID_UNDEFINED.
const NO_SHORT_ID: u16 = 0xffff;

/// OFPCSPT_URI.
const URI: u16 = 0;

pub(super) fn decode_role(r: &mut Reader) -> Result<RoleMessage, DecodeError> {
    let refused = r.error(ErrorKind::ROLE_BAD_ROLE);
    let role = role_from_wire(r.u32()?).ok_or(refused)?;
    let short_id = Some(r.u16()?).filter(|id| *id != NO_SHORT_ID);
    r.skip(2)?;
    let generation_id = r.u64()?;
    Ok(RoleMessage {
        role,
        generation_id,
        short_id,
    })
}

pub(super) fn encode_role(message: &RoleMessage, w: &mut Writer) {
    w.u32(message.role as u32);
    w.u16(message.short_id.unwrap_or(NO_SHORT_ID));
    w.zeros(2);
    w.u64(message.generation_id);
}

pub(super) fn decode_controller(r: &mut Reader) -> Result<ControllerStatus, DecodeError> {
    let len = usize::from(r.peek_u16(0)?);
    let mut r = r.part(len, ErrorKind::BAD_LEN, "controller status")?;
    r.skip(2)?;
    let short_id = r.u16()?;
    let refused = r.error(ErrorKind::ROLE_BAD_ROLE);
    let role = role_from_wire(r.u32()?).ok_or(refused)?;
    let (reason, channel_status) = (r.u8()?, r.u8()?);
    r.skip(6)?;
    let known = |ty, r: &mut Reader| match ty {
        URI => Ok(Some(ControllerProperty::Uri(r.rest()))),
        _ => Ok(None),
    };
    Ok(ControllerStatus {
        short_id,
        role,
        reason,
        channel_status,
        properties: property::list(&mut r, known, ControllerProperty::Other)?,
    })
}

pub(super) fn encode_controller(
    status: &ControllerStatus,
    w: &mut Writer,
) -> Result<(), EncodeError> {
    let start = w.at();
    w.zeros(2);
    w.u16(status.short_id);
    w.u32(status.role as u32);
    w.u8(status.reason);
    w.u8(status.channel_status);
    w.zeros(6);
    for property in &status.properties {
        match property {
            ControllerProperty::Uri(uri) => property::put(URI, w, |w| w.bytes(uri))?,
            ControllerProperty::Other(property) => property::put_raw(property, w)?,
        }
    }
    w.close(start, 0, "controller status")
}
