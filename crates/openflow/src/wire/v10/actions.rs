//! Actions of 1.0 (5.2.4). Setting a MAC or IPv4 address is a `SetField` of later versions. Actions
//! that add a VLAN tag, or apply to any transport protocol, have no counterpart and keep their own
//! names.

use crate::actions::{Action, Instruction};
use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::match_fields::{Field, MatchField};
use crate::types::QueueId;
use crate::wire::reader::Reader;
use crate::wire::writer::Writer;

use super::numbers::{port_from_wire, port_to_wire};

/// OFPAT_*.
mod action_type {
    pub const OUTPUT: u16 = 0;
    pub const SET_VLAN_VID: u16 = 1;
    pub const SET_VLAN_PCP: u16 = 2;
    pub const STRIP_VLAN: u16 = 3;
    pub const SET_DL_SRC: u16 = 4;
    pub const SET_DL_DST: u16 = 5;
    pub const SET_NW_SRC: u16 = 6;
    pub const SET_NW_DST: u16 = 7;
    pub const SET_NW_TOS: u16 = 8;
    pub const SET_TP_SRC: u16 = 9;
    pub const SET_TP_DST: u16 = 10;
    pub const ENQUEUE: u16 = 11;
    pub const VENDOR: u16 = 0xffff;
}

/// Reads actions until `r` is used up.
pub(super) fn decode(r: &mut Reader) -> Result<Vec<Action>, DecodeError> {
    r.list(decode_one)
}

/// The actions of an entry, as the one instruction that 1.0 knows.
pub(super) fn decode_instructions(r: &mut Reader) -> Result<Vec<Instruction>, DecodeError> {
    Ok(vec![Instruction::ApplyActions(decode(r)?)])
}

pub(super) fn encode_instructions(
    instructions: &[Instruction],
    w: &mut Writer,
) -> Result<(), EncodeError> {
    match instructions {
        [] => Ok(()),
        [Instruction::ApplyActions(actions)] => encode(actions, w),
        _ => w.unsupported("instruction but one APPLY_ACTIONS"),
    }
}

fn decode_one(r: &mut Reader) -> Result<Action, DecodeError> {
    use action_type as t;
    let len = usize::from(r.peek_u16(2)?);
    if len < 8 || !len.is_multiple_of(8) {
        return Err(r.error(ErrorKind::ACTION_BAD_LEN));
    }
    let mut r = r.part(len, ErrorKind::ACTION_BAD_LEN, "action")?;
    let ty = r.u16()?;
    r.skip(2)?;
    let address = |field, r: &mut Reader| {
        let value = r.uint(Field::len(field))?;
        Ok(Action::SetField(MatchField::exact(field, value)))
    };
    let (action, padding) = match ty {
        t::OUTPUT => {
            let port = port_from_wire(r.u16()?);
            let max_len = r.u16()?;
            (Action::Output { port, max_len }, 0)
        }
        t::SET_VLAN_VID => (Action::SetVlanVid(r.u16()?), 2),
        t::SET_VLAN_PCP => (Action::SetVlanPcp(r.u8()?), 3),
        t::STRIP_VLAN => (Action::StripVlan, 4),
        t::SET_DL_SRC => (address(Field::EthSrc, &mut r)?, 6),
        t::SET_DL_DST => (address(Field::EthDst, &mut r)?, 6),
        t::SET_NW_SRC => (address(Field::Ipv4Src, &mut r)?, 0),
        t::SET_NW_DST => (address(Field::Ipv4Dst, &mut r)?, 0),
        t::SET_NW_TOS => (Action::SetNwTos(r.u8()?), 3),
        t::SET_TP_SRC => (Action::SetTpSrc(r.u16()?), 2),
        t::SET_TP_DST => (Action::SetTpDst(r.u16()?), 2),
        t::ENQUEUE => {
            let port = port_from_wire(r.u16()?);
            r.skip(6)?;
            let queue = QueueId(r.u32()?);
            (Action::Enqueue { port, queue }, 0)
        }
        t::VENDOR => {
            let experimenter = r.u32()?;
            let data = r.rest();
            (Action::Experimenter { experimenter, data }, 0)
        }
        _ => return Err(r.error(ErrorKind::ACTION_BAD_TYPE)),
    };
    r.skip(padding)?;
    r.done()?;
    Ok(action)
}

pub(super) fn encode(actions: &[Action], w: &mut Writer) -> Result<(), EncodeError> {
    actions.iter().try_for_each(|action| encode_one(action, w))
}

fn encode_one(action: &Action, w: &mut Writer) -> Result<(), EncodeError> {
    use action_type as t;
    let start = w.at();
    let head = |ty: u16, w: &mut Writer| {
        w.u16(ty);
        w.u16(0);
    };
    match action {
        Action::Output { port, max_len } => {
            head(t::OUTPUT, w);
            w.u16(port_to_wire(*port, w)?);
            w.u16(*max_len);
        }
        Action::SetVlanVid(vid) => {
            head(t::SET_VLAN_VID, w);
            w.u16(*vid);
        }
        Action::SetVlanPcp(pcp) => {
            head(t::SET_VLAN_PCP, w);
            w.u8(*pcp);
        }
        Action::StripVlan => {
            head(t::STRIP_VLAN, w);
            w.zeros(4);
        }
        Action::SetField(field) => encode_set_field(field, w)?,
        Action::SetNwTos(tos) => {
            head(t::SET_NW_TOS, w);
            w.u8(*tos);
        }
        Action::SetTpSrc(port) => {
            head(t::SET_TP_SRC, w);
            w.u16(*port);
        }
        Action::SetTpDst(port) => {
            head(t::SET_TP_DST, w);
            w.u16(*port);
        }
        Action::Enqueue { port, queue } => {
            head(t::ENQUEUE, w);
            w.u16(port_to_wire(*port, w)?);
            w.zeros(6);
            w.u32(queue.0);
        }
        Action::Experimenter { experimenter, data } => {
            head(t::VENDOR, w);
            w.u32(*experimenter);
            w.bytes(data);
        }
        _ => return w.unsupported("such action"),
    }
    w.align8(start);
    w.close(start, 2, "action")
}

fn encode_set_field(field: &MatchField, w: &mut Writer) -> Result<(), EncodeError> {
    use action_type as t;
    let MatchField::Basic {
        field,
        value,
        mask: None,
    } = field
    else {
        return w.unsupported("such SET_FIELD");
    };
    if value & !field.ones() != 0 {
        return w.unsupported("value wider than its field");
    }
    // SET_NW_TOS leaves the ECN bits alone, and so sets the DSCP.
    let (ty, value, len) = match field {
        Field::EthSrc => (t::SET_DL_SRC, *value, 6),
        Field::EthDst => (t::SET_DL_DST, *value, 6),
        Field::Ipv4Src => (t::SET_NW_SRC, *value, 4),
        Field::Ipv4Dst => (t::SET_NW_DST, *value, 4),
        Field::IpDscp => (t::SET_NW_TOS, *value << 2, 1),
        _ => return w.unsupported("such SET_FIELD"),
    };
    w.u16(ty);
    w.u16(0);
    w.uint(value, len);
    Ok(())
}
