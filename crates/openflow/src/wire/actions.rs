//! Actions and instructions as 1.1 and later write them (OpenFlow 1.3.1, 7.2.4 and 7.2.5).
//!
//! Only the form is checked here. The datapath decides whether a port exists, or whether an
//! EtherType may be pushed.

use crate::actions::{Action, Instruction};
use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::types::{GroupId, MeterId, PortNo, QueueId, TableId, Version};

use super::oxm;
use super::reader::Reader;
use super::v11;
use super::v15::oxs;
use super::writer::Writer;

/// OFPAT_*.
mod action_type {
    pub const OUTPUT: u16 = 0;
    pub const COPY_TTL_OUT: u16 = 11;
    pub const COPY_TTL_IN: u16 = 12;
    pub const SET_MPLS_TTL: u16 = 15;
    pub const DEC_MPLS_TTL: u16 = 16;
    pub const PUSH_VLAN: u16 = 17;
    pub const POP_VLAN: u16 = 18;
    pub const PUSH_MPLS: u16 = 19;
    pub const POP_MPLS: u16 = 20;
    pub const SET_QUEUE: u16 = 21;
    pub const GROUP: u16 = 22;
    pub const SET_NW_TTL: u16 = 23;
    pub const DEC_NW_TTL: u16 = 24;
    pub const SET_FIELD: u16 = 25;
    pub const PUSH_PBB: u16 = 26;
    pub const POP_PBB: u16 = 27;
    /// 1.5.
    pub const COPY_FIELD: u16 = 28;
    pub const METER: u16 = 29;
    pub const EXPERIMENTER: u16 = 0xffff;
}

/// OFPIT_*.
mod instruction_type {
    pub const GOTO_TABLE: u16 = 1;
    pub const WRITE_METADATA: u16 = 2;
    pub const WRITE_ACTIONS: u16 = 3;
    pub const APPLY_ACTIONS: u16 = 4;
    pub const CLEAR_ACTIONS: u16 = 5;
    /// Up to 1.4.
    pub const METER: u16 = 6;
    /// 1.5.
    pub const STAT_TRIGGER: u16 = 7;
    pub const EXPERIMENTER: u16 = 0xffff;
}

/// Reads actions until `r` is used up.
pub(super) fn decode_actions(r: &mut Reader) -> Result<Vec<Action>, DecodeError> {
    r.list(decode_action)
}

pub(super) fn encode_actions(actions: &[Action], w: &mut Writer) -> Result<(), EncodeError> {
    actions
        .iter()
        .try_for_each(|action| encode_action(action, w))
}

/// Reads instructions until `r` is used up.
pub(super) fn decode_instructions(r: &mut Reader) -> Result<Vec<Instruction>, DecodeError> {
    r.list(decode_instruction)
}

pub(super) fn encode_instructions(
    instructions: &[Instruction],
    w: &mut Writer,
) -> Result<(), EncodeError> {
    instructions
        .iter()
        .try_for_each(|instruction| encode_instruction(instruction, w))
}

/// Returns the next TLV of `r` as a part, if its length is a multiple of 8 and not 0.
pub(super) fn aligned_tlv<'a>(
    r: &mut Reader<'a>,
    bad_len: ErrorKind,
    what: &'static str,
) -> Result<Reader<'a>, DecodeError> {
    let refused = DecodeError {
        what,
        ..r.error(bad_len)
    };
    let len = usize::from(r.peek_u16(2).map_err(|_| refused)?);
    if len < 8 || !len.is_multiple_of(8) {
        return Err(refused);
    }
    r.part(len, bad_len, what)
}

fn decode_action(r: &mut Reader) -> Result<Action, DecodeError> {
    use action_type as t;
    let mut a = aligned_tlv(r, ErrorKind::ACTION_BAD_LEN, "action")?;
    let unknown = a.error(ErrorKind::ACTION_BAD_TYPE);
    let ty = a.u16()?;
    a.skip(2)?;
    let (action, padding) = match ty {
        t::OUTPUT => {
            let (port, max_len) = (PortNo(a.u32()?), a.u16()?);
            (Action::Output { port, max_len }, 6)
        }
        t::COPY_TTL_OUT => (Action::CopyTtlOut, 4),
        t::COPY_TTL_IN => (Action::CopyTtlIn, 4),
        t::SET_MPLS_TTL => (Action::SetMplsTtl(a.u8()?), 3),
        t::DEC_MPLS_TTL => (Action::DecMplsTtl, 4),
        t::PUSH_VLAN => (Action::PushVlan(a.u16()?), 2),
        t::POP_VLAN => (Action::PopVlan, 4),
        t::PUSH_MPLS => (Action::PushMpls(a.u16()?), 2),
        t::POP_MPLS => (Action::PopMpls(a.u16()?), 2),
        t::SET_QUEUE => (Action::SetQueue(QueueId(a.u32()?)), 0),
        t::GROUP => (Action::Group(GroupId(a.u32()?)), 0),
        t::SET_NW_TTL => (Action::SetNwTtl(a.u8()?), 3),
        t::DEC_NW_TTL => (Action::DecNwTtl, 4),
        t::SET_FIELD if a.is_since(Version::V12) => {
            let field = oxm::decode_field(&mut a, &oxm::IN_SET_FIELD)?;
            // Padding to a multiple of 8, and no more than that.
            let padding = a.left().min(7);
            (Action::SetField(field), padding)
        }
        t::PUSH_PBB if a.is_since(Version::V13) => (Action::PushPbb(a.u16()?), 2),
        t::POP_PBB if a.is_since(Version::V13) => (Action::PopPbb, 4),
        t::COPY_FIELD if a.is_since(Version::V15) => {
            let (n_bits, src_offset, dst_offset) = (a.u16()?, a.u16()?, a.u16()?);
            a.skip(2)?;
            let copy = Action::CopyField {
                n_bits,
                src_offset,
                dst_offset,
                src: oxm::decode_id(&mut a)?,
                dst: oxm::decode_id(&mut a)?,
            };
            (copy, a.left().min(7))
        }
        t::METER if a.is_since(Version::V15) => (Action::Meter(MeterId(a.u32()?)), 0),
        t::EXPERIMENTER => {
            let (experimenter, data) = (a.u32()?, a.rest());
            (Action::Experimenter { experimenter, data }, 0)
        }
        ty => {
            let is_v11 = !a.is_since(Version::V12);
            let read = is_v11.then(|| v11::actions::decode(ty, &mut a));
            read.transpose()?.flatten().ok_or(unknown)?
        }
    };
    a.skip(padding)?;
    a.done()?;
    Ok(action)
}

fn encode_action(action: &Action, w: &mut Writer) -> Result<(), EncodeError> {
    use action_type as t;
    let start = w.at();
    let is_v15 = w.is_since(Version::V15);
    let (is_v13, is_v11) = (w.is_since(Version::V13), !w.is_since(Version::V12));
    let mut header = |ty: u16| {
        w.u16(ty);
        w.u16(0);
    };
    match action {
        Action::SetField(_) | Action::SetNwTos(_) | Action::SetTpSrc(_) | Action::SetTpDst(_)
            if is_v11 =>
        {
            v11::actions::encode(action, w)?;
        }
        Action::PushPbb(_) | Action::PopPbb if !is_v13 => {
            return w.unsupported("action of OpenFlow 1.3");
        }
        Action::Output { port, max_len } => {
            header(t::OUTPUT);
            w.u32(port.0);
            w.u16(*max_len);
        }
        Action::Group(group) => {
            header(t::GROUP);
            w.u32(group.0);
        }
        Action::SetQueue(queue) => {
            header(t::SET_QUEUE);
            w.u32(queue.0);
        }
        Action::SetField(field) => {
            header(t::SET_FIELD);
            oxm::encode_field(field, w)?;
        }
        Action::PushVlan(ty) | Action::PushMpls(ty) | Action::PopMpls(ty) | Action::PushPbb(ty) => {
            header(match action {
                Action::PushVlan(_) => t::PUSH_VLAN,
                Action::PushMpls(_) => t::PUSH_MPLS,
                Action::PopMpls(_) => t::POP_MPLS,
                _ => t::PUSH_PBB,
            });
            w.u16(*ty);
        }
        Action::SetMplsTtl(ttl) => {
            header(t::SET_MPLS_TTL);
            w.u8(*ttl);
        }
        Action::SetNwTtl(ttl) => {
            header(t::SET_NW_TTL);
            w.u8(*ttl);
        }
        Action::PopVlan => header(t::POP_VLAN),
        Action::PopPbb => header(t::POP_PBB),
        Action::DecMplsTtl => header(t::DEC_MPLS_TTL),
        Action::DecNwTtl => header(t::DEC_NW_TTL),
        Action::CopyTtlOut => header(t::COPY_TTL_OUT),
        Action::CopyTtlIn => header(t::COPY_TTL_IN),
        Action::CopyField { .. } | Action::Meter(_) if !is_v15 => {
            return w.unsupported("action of OpenFlow 1.5");
        }
        Action::CopyField {
            n_bits,
            src_offset,
            dst_offset,
            src,
            dst,
        } => {
            header(t::COPY_FIELD);
            w.u16(*n_bits);
            w.u16(*src_offset);
            w.u16(*dst_offset);
            w.zeros(2);
            oxm::encode_id(*src, w)?;
            oxm::encode_id(*dst, w)?;
        }
        Action::Meter(meter) => {
            header(t::METER);
            w.u32(meter.0);
        }
        Action::Experimenter { experimenter, data } => {
            header(t::EXPERIMENTER);
            encode_experimenter(*experimenter, data, w)?;
        }
        Action::SetVlanVid(_)
        | Action::SetVlanPcp(_)
        | Action::StripVlan
        | Action::SetNwTos(_)
        | Action::SetTpSrc(_)
        | Action::SetTpDst(_)
        | Action::Enqueue { .. } => return w.unsupported("action of earlier versions only"),
    }
    w.align8(start);
    w.close(start, 2, "action")
}

fn decode_instruction(r: &mut Reader) -> Result<Instruction, DecodeError> {
    use instruction_type as t;
    let mut i = aligned_tlv(r, ErrorKind::INST_BAD_LEN, "instruction")?;
    let unknown = i.error(ErrorKind::UNKNOWN_INST);
    let ty = i.u16()?;
    i.skip(2)?;
    let (instruction, padding) = match ty {
        t::GOTO_TABLE => (Instruction::GotoTable(TableId(i.u8()?)), 3),
        t::WRITE_METADATA => {
            i.skip(4)?;
            let (metadata, mask) = (i.u64()?, i.u64()?);
            (Instruction::WriteMetadata { metadata, mask }, 0)
        }
        t::WRITE_ACTIONS => {
            i.skip(4)?;
            (Instruction::WriteActions(decode_actions(&mut i)?), 0)
        }
        t::APPLY_ACTIONS => {
            i.skip(4)?;
            (Instruction::ApplyActions(decode_actions(&mut i)?), 0)
        }
        t::CLEAR_ACTIONS => (Instruction::ClearActions, 4),
        t::METER if i.is_since(Version::V13) && !i.is_since(Version::V15) => {
            (Instruction::Meter(MeterId(i.u32()?)), 0)
        }
        t::STAT_TRIGGER if i.is_since(Version::V15) => {
            let flags = i.u32()?;
            let thresholds = oxs::decode(&mut i)?;
            (Instruction::StatTrigger { flags, thresholds }, 0)
        }
        t::EXPERIMENTER => {
            let (experimenter, data) = (i.u32()?, i.rest());
            (Instruction::Experimenter { experimenter, data }, 0)
        }
        _ => return Err(unknown),
    };
    i.skip(padding)?;
    i.done()?;
    Ok(instruction)
}

fn encode_instruction(instruction: &Instruction, w: &mut Writer) -> Result<(), EncodeError> {
    use instruction_type as t;
    let start = w.at();
    let (is_v13, is_v15) = (w.is_since(Version::V13), w.is_since(Version::V15));
    let mut header = |ty: u16| {
        w.u16(ty);
        w.u16(0);
    };
    match instruction {
        Instruction::GotoTable(table) => {
            header(t::GOTO_TABLE);
            w.u8(table.0);
        }
        Instruction::WriteMetadata { metadata, mask } => {
            header(t::WRITE_METADATA);
            w.zeros(4);
            w.u64(*metadata);
            w.u64(*mask);
        }
        Instruction::WriteActions(actions) => {
            header(t::WRITE_ACTIONS);
            w.zeros(4);
            encode_actions(actions, w)?;
        }
        Instruction::ApplyActions(actions) => {
            header(t::APPLY_ACTIONS);
            w.zeros(4);
            encode_actions(actions, w)?;
        }
        Instruction::ClearActions => header(t::CLEAR_ACTIONS),
        Instruction::Meter(_) if !is_v13 => return w.unsupported("instruction METER"),
        Instruction::Meter(_) if is_v15 => {
            return w.unsupported("instruction METER: a meter is an action");
        }
        Instruction::StatTrigger { .. } if !is_v15 => {
            return w.unsupported("instruction of OpenFlow 1.5");
        }
        Instruction::StatTrigger { flags, thresholds } => {
            header(t::STAT_TRIGGER);
            w.u32(*flags);
            oxs::encode(thresholds, w)?;
        }
        Instruction::Meter(meter) => {
            header(t::METER);
            w.u32(meter.0);
        }
        Instruction::Experimenter { experimenter, data } => {
            header(t::EXPERIMENTER);
            encode_experimenter(*experimenter, data, w)?;
        }
    }
    w.align8(start);
    w.close(start, 2, "instruction")
}

/// The data is kept with its padding, so it must include the padding.
fn encode_experimenter(experimenter: u32, data: &[u8], w: &mut Writer) -> Result<(), EncodeError> {
    if !data.len().is_multiple_of(8) {
        return w.unsupported("experimenter data of a length that is no multiple of 8");
    }
    w.u32(experimenter);
    w.bytes(data);
    Ok(())
}
