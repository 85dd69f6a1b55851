//! Actions of 1.1 that set one field each (A.2.5), where later versions have SET_FIELD. Actions
//! that apply to any transport protocol keep their 1.0 names.

use crate::actions::Action;
use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::match_fields::{Field, MatchField, VLAN_PRESENT};

use super::super::reader::Reader;
use super::super::writer::Writer;

/// OFPAT_*, the field, and the number of bytes of its value.
const SET: [(u16, Field, usize); 9] = [
    (1, Field::VlanVid, 2),
    (2, Field::VlanPcp, 1),
    (3, Field::EthSrc, 6),
    (4, Field::EthDst, 6),
    (5, Field::Ipv4Src, 4),
    (6, Field::Ipv4Dst, 4),
    (8, Field::IpEcn, 1),
    (13, Field::MplsLabel, 4),
    (14, Field::MplsTc, 1),
];
const SET_NW_TOS: u16 = 7;
const SET_TP_SRC: u16 = 9;
const SET_TP_DST: u16 = 10;

/// Bits that setting a field implies: a VLAN id implies a tag.
fn implied(field: Field) -> u128 {
    match field {
        Field::VlanVid => VLAN_PRESENT,
        _ => 0,
    }
}

/// Reads the action of type `ty` and the number of padding bytes after it, if it is one of these.
pub(in crate::wire) fn decode(
    ty: u16,
    r: &mut Reader,
) -> Result<Option<(Action, usize)>, DecodeError> {
    let bad_value = r.error(ErrorKind::ACTION_BAD_ARGUMENT);
    let read = match ty {
        SET_NW_TOS => (Action::SetNwTos(r.u8()?), 3),
        SET_TP_SRC => (Action::SetTpSrc(r.u16()?), 2),
        SET_TP_DST => (Action::SetTpDst(r.u16()?), 2),
        ty => {
            let Some((_, field, len)) = SET.iter().find(|(known, ..)| *known == ty) else {
                return Ok(None);
            };
            let value = r.uint(*len)?;
            if value & !(field.ones() & !implied(*field)) != 0 {
                return Err(bad_value);
            }
            let set = MatchField::exact(*field, value | implied(*field));
            // Type, length and value fill a multiple of 8.
            (
                Action::SetField(set),
                (4 + len).next_multiple_of(8) - 4 - len,
            )
        }
    };
    Ok(Some(read))
}

/// Writes type, room for the length, and value.
pub(in crate::wire) fn encode(action: &Action, w: &mut Writer) -> Result<(), EncodeError> {
    let (ty, value, len) = match action {
        Action::SetNwTos(tos) => (SET_NW_TOS, u128::from(*tos), 1),
        Action::SetTpSrc(port) => (SET_TP_SRC, u128::from(*port), 2),
        Action::SetTpDst(port) => (SET_TP_DST, u128::from(*port), 2),
        Action::SetField(MatchField::Basic {
            field,
            value,
            mask: None,
        }) => {
            let implied = implied(*field);
            let has_room = value & !field.ones() == 0 && value & implied == implied;
            match SET.iter().find(|(_, known, _)| known == field && has_room) {
                Some((ty, _, len)) => (*ty, value & !implied, *len),
                None => return w.unsupported("such SET_FIELD"),
            }
        }
        _ => return w.unsupported("such SET_FIELD"),
    };
    w.u16(ty);
    w.u16(0);
    w.uint(value, len);
    Ok(())
}
