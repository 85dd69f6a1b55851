//! Flow syntax to actions and instructions.

use bytes::Bytes;

use crate::actions::{Action, Instruction};
use crate::match_fields::{Field, Match, MatchField, VLAN_PRESENT};
use crate::types::{GroupId, MeterId, PortNo, QueueId, TableId, Version};

use super::error::TextError;
use super::flow::instruction_rank;
use super::items::{Item, Items};
use super::read_match::{field_value, masked_number, number, oxm, port};
use super::values;

/// Parses actions for OpenFlow 1.3, such as `set_field:10.0.0.1->ip_dst,output:2`; `drop` is none.
///
/// # Errors
/// Fails for unknown actions, values out of range, and instructions, which an action list cannot
/// have.
pub fn parse_actions(text: &str) -> Result<Vec<Action>, TextError> {
    read_actions(Version::V13, text, 0, &Match::any())
}

/// A group or a meter by its name, where `ovs-ofctl` has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named<'a> {
    /// `group:NAME`.
    Group(&'a str),
    /// `meter:NAME`.
    Meter(&'a str),
}

/// Looks up the number of a group or a meter that a text names.
pub type Numbers<'a> = &'a dyn Fn(Named<'_>) -> Option<u32>;

/// Parses the meter and the actions of an OpenFlow 1.3 entry with this match, such as
/// `meter:video,mod_vlan_vid:7,group:3`.
///
/// # Errors
/// Fails as [`parse_actions`] does, and for a second meter.
pub fn parse_actions_of(
    text: &str,
    m: &Match,
    numbers: Numbers<'_>,
) -> Result<(Option<MeterId>, Vec<Action>), TextError> {
    let mut items = Items::new(text, 0);
    let (mut meter, mut actions) = (None, Vec::new());
    let mut reader = ActionReader::new(Version::V13, m);
    reader.numbers = Some(numbers);
    while let Some(item) = items.next()? {
        match item.key {
            "meter" if meter.is_none() => {
                meter = Some(MeterId(reader.number(
                    &item,
                    Named::Meter,
                    MeterId::MAX.0,
                )?));
            }
            "meter" => return Err(item.unknown("one meter")),
            key if instruction_key(key) => {
                return Err(item.unknown("actions and a meter only"));
            }
            _ => reader.action(&item, &mut actions)?,
        }
    }
    Ok((meter, actions))
}

/// Parses actions of `version`; `m` decides what `mod_vlan_vid` and `mod_tp_src` must do.
pub(super) fn read_actions(
    version: Version,
    text: &str,
    base: usize,
    m: &Match,
) -> Result<Vec<Action>, TextError> {
    let mut items = Items::new(text, base);
    let mut actions = Vec::new();
    let mut reader = ActionReader::new(version, m);
    while let Some(item) = items.next()? {
        if instruction_key(item.key) {
            return Err(item.unknown("actions only: instructions stand in a flow"));
        }
        reader.action(&item, &mut actions)?;
    }
    Ok(actions)
}

/// Parses everything after `actions=` of a flow, in the order the switch carries it out.
pub(super) fn read_instructions(
    version: Version,
    text: &str,
    base: usize,
    m: &Match,
) -> Result<Vec<Instruction>, TextError> {
    let mut items = Items::new(text, base);
    let mut instructions: Vec<Instruction> = Vec::new();
    let mut apply = Vec::new();
    let mut reader = ActionReader::new(version, m);
    while let Some(item) = items.next()? {
        if !instruction_key(item.key) {
            reader.action(&item, &mut apply)?;
            continue;
        }
        if item.key == "apply_actions" {
            apply.extend(read_actions(version, item.value()?, item.value_at, m)?);
            continue;
        }
        let one = instruction(version, &item, m)?;
        let rank = instruction_rank(&one);
        if rank < 6
            && instructions
                .iter()
                .any(|before| instruction_rank(before) == rank)
        {
            return Err(item.unknown(format!("{} once", item.key)));
        }
        instructions.push(one);
    }
    if !apply.is_empty() {
        instructions.push(Instruction::ApplyActions(apply));
    }
    instructions.sort_by_key(instruction_rank);
    Ok(instructions)
}

fn instruction_key(key: &str) -> bool {
    matches!(
        key,
        "goto_table"
            | "write_metadata"
            | "write_actions"
            | "apply_actions"
            | "clear_actions"
            | "meter"
            | "instruction"
    )
}

fn instruction(version: Version, item: &Item<'_>, m: &Match) -> Result<Instruction, TextError> {
    Ok(match item.key {
        "goto_table" => Instruction::GotoTable(TableId(small(item, u128::from(TableId::MAX.0))?)),
        "write_metadata" => {
            let wanted = "VALUE or VALUE/MASK of 64 bits";
            let (metadata, mask) =
                masked_number(item.value()?).ok_or_else(|| item.wrong(wanted))?;
            let metadata = u64::try_from(metadata).map_err(|_| item.wrong(wanted))?;
            Instruction::WriteMetadata {
                metadata,
                mask: mask as u64,
            }
        }
        "write_actions" => {
            let list = read_actions(version, item.value.unwrap_or(""), item.value_at, m)?;
            Instruction::WriteActions(list)
        }
        "clear_actions" => Instruction::ClearActions,
        "meter" => Instruction::Meter(MeterId(small(item, u128::from(MeterId::MAX.0))?)),
        _ => {
            let (experimenter, data) = vendor(item)?;
            Instruction::Experimenter { experimenter, data }
        }
    })
}

struct ActionReader<'n> {
    version: Version,
    numbers: Option<Numbers<'n>>,
    /// Whether the packet has a VLAN tag, because one was matched, pushed or set.
    has_vlan: bool,
    ip_proto: Option<u128>,
}

impl<'n> ActionReader<'n> {
    fn new(version: Version, m: &Match) -> ActionReader<'n> {
        let vlan = m.get(Field::VlanVid);
        ActionReader {
            version,
            numbers: None,
            has_vlan: vlan.is_some_and(|(vid, mask)| vid & mask & VLAN_PRESENT != 0),
            ip_proto: m.exact(Field::IpProto),
        }
    }

    fn is_v10(&self) -> bool {
        self.version == Version::V10
    }

    fn action(&mut self, item: &Item<'_>, list: &mut Vec<Action>) -> Result<(), TextError> {
        let action = match item.key.to_ascii_lowercase().as_str() {
            "drop" => return Ok(()),
            "output" => match port(item, item.value()?)? {
                PortNo::CONTROLLER => Action::controller(),
                port => Action::output(port),
            },
            "controller" => controller(item)?,
            "in_port" | "table" | "normal" | "flood" | "all" | "local" => {
                Action::output(port(item, item.key)?)
            }
            "group" => Action::Group(GroupId(self.number(item, Named::Group, GroupId::MAX.0)?)),
            "set_queue" => Action::SetQueue(QueueId(small(item, u128::from(u32::MAX))?)),
            "enqueue" => self.enqueue(item)?,
            "set_field" => return self.set_field(item, list),
            "push_vlan" => {
                self.has_vlan = true;
                Action::PushVlan(ether_type(item, &[0x8100, 0x88a8])?)
            }
            "pop_vlan" | "strip_vlan" => {
                self.has_vlan = false;
                if self.is_v10() {
                    Action::StripVlan
                } else {
                    Action::PopVlan
                }
            }
            "push_mpls" => Action::PushMpls(ether_type(item, &[0x8847, 0x8848])?),
            "pop_mpls" => Action::PopMpls(ether_type(item, &[])?),
            "push_pbb" => Action::PushPbb(ether_type(item, &[])?),
            "pop_pbb" => Action::PopPbb,
            "set_mpls_ttl" => Action::SetMplsTtl(small(item, 255)?),
            "dec_mpls_ttl" => Action::DecMplsTtl,
            "mod_nw_ttl" => Action::SetNwTtl(small(item, 255)?),
            "dec_ttl" if item.value.is_none() => Action::DecNwTtl,
            "copy_ttl_out" => Action::CopyTtlOut,
            "copy_ttl_in" => Action::CopyTtlIn,
            "experimenter" => {
                let (experimenter, data) = vendor(item)?;
                Action::Experimenter { experimenter, data }
            }
            key if key.starts_with("mod_") || key.starts_with("set_") => {
                return self.old_set(item, list);
            }
            _ => match number(item.key) {
                Some(_) if item.value.is_none() => Action::output(port(item, item.key)?),
                _ => {
                    return Err(item.unknown(
                        "an action such as output:2, set_field:…, drop; Nicira's are not read",
                    ));
                }
            },
        };
        list.push(action);
        Ok(())
    }

    /// Parses a number, or looks up the number of a name.
    fn number<'t>(
        &self,
        item: &Item<'t>,
        named: fn(&'t str) -> Named<'t>,
        max: u32,
    ) -> Result<u32, TextError> {
        let value = item.value()?;
        let found = self.numbers.filter(|_| number(value).is_none());
        match found.and_then(|numbers| numbers(named(value))) {
            Some(number) => Ok(number),
            None => small(item, u128::from(max)),
        }
    }

    /// Parses `enqueue`, an action of OpenFlow 1.0; later versions use two actions.
    fn enqueue(&self, item: &Item<'_>) -> Result<Action, TextError> {
        let wanted = if self.is_v10() {
            "enqueue:PORT:QUEUE"
        } else {
            "set_queue:QUEUE,output:PORT: only OpenFlow 1.0 has enqueue"
        };
        let split = item.value()?.split_once([':', ',']);
        let (to, queue) = split
            .filter(|_| self.is_v10())
            .ok_or_else(|| item.wrong(wanted))?;
        let queue = number(queue).and_then(|n| u32::try_from(n).ok());
        let queue = QueueId(queue.ok_or_else(|| item.wrong(wanted))?);
        Ok(Action::Enqueue {
            port: port(item, to)?,
            queue,
        })
    }

    /// Parses `VALUE->FIELD`.
    fn set_field(&self, item: &Item<'_>, list: &mut Vec<Action>) -> Result<(), TextError> {
        let wanted = "set_field:VALUE->FIELD";
        let (text, name) = item
            .value()?
            .split_once("->")
            .ok_or_else(|| item.wrong(wanted))?;
        if name == "oxm" {
            list.push(Action::SetField(oxm(item, text)?));
            return Ok(());
        }
        let field = match name {
            "tp_src" | "tp_dst" => self.transport_port(item, name == "tp_src")?,
            name => Field::from_name(name).ok_or_else(|| {
                item.wrong("set_field:VALUE->FIELD, a field such as eth_dst, ip_src")
            })?,
        };
        let (value, mask) = field_value(item, field, text)?
            .ok_or_else(|| item.wrong("a value: setting a field to anything sets nothing"))?;
        let mask = Some(mask).filter(|mask| *mask != field.ones());
        list.push(Action::SetField(MatchField::Basic { field, value, mask }));
        Ok(())
    }

    fn transport_port(&self, item: &Item<'_>, is_source: bool) -> Result<Field, TextError> {
        Ok(match (self.ip_proto, is_source) {
            (Some(6), true) => Field::TcpSrc,
            (Some(6), false) => Field::TcpDst,
            (Some(17), true) => Field::UdpSrc,
            (Some(17), false) => Field::UdpDst,
            (Some(132), true) => Field::SctpSrc,
            (Some(132), false) => Field::SctpDst,
            _ => return Err(item.unknown("tcp, udp or sctp in the match: whose port is it?")),
        })
    }

    /// Parses the actions of OpenFlow 1.0 that later versions express with SET_FIELD.
    fn old_set(&mut self, item: &Item<'_>, list: &mut Vec<Action>) -> Result<(), TextError> {
        let set = |field: Field, value: u128| Action::SetField(MatchField::exact(field, value));
        let exact = |field: Field| match field_value(item, field, item.value()?)? {
            Some((value, mask)) if mask == field.ones() => Ok(set(field, value)),
            _ => Err(item.wrong("one value, without a mask")),
        };
        let v10 = self.is_v10();
        // 1.0 and 1.1 have no SET_FIELD, but actions that apply to any transport protocol.
        let is_old = self.version <= Version::V11;
        let action = match item.key {
            "mod_dl_src" => exact(Field::EthSrc)?,
            "mod_dl_dst" => exact(Field::EthDst)?,
            "mod_nw_src" => exact(Field::Ipv4Src)?,
            "mod_nw_dst" => exact(Field::Ipv4Dst)?,
            "mod_vlan_vid" | "set_vlan_vid" => {
                let vid: u16 = small(item, 0xfff)?;
                if v10 {
                    Action::SetVlanVid(vid)
                } else {
                    self.push_if_untagged(item, list);
                    set(Field::VlanVid, VLAN_PRESENT | u128::from(vid))
                }
            }
            "mod_vlan_pcp" | "set_vlan_pcp" => {
                let pcp: u8 = small(item, 7)?;
                if v10 {
                    Action::SetVlanPcp(pcp)
                } else {
                    self.push_if_untagged(item, list);
                    set(Field::VlanPcp, u128::from(pcp))
                }
            }
            "mod_nw_tos" => {
                let tos: u8 = small(item, 0xff)?;
                if tos & 3 != 0 {
                    return Err(item.wrong("a TOS byte without its ECN bits: a multiple of 4"));
                }
                if is_old {
                    Action::SetNwTos(tos)
                } else {
                    set(Field::IpDscp, u128::from(tos >> 2))
                }
            }
            "mod_nw_ecn" => set(Field::IpEcn, u128::from(small::<u8>(item, 3)?)),
            "set_mpls_label" => set(Field::MplsLabel, u128::from(small::<u32>(item, 0xf_ffff)?)),
            "set_mpls_tc" => set(Field::MplsTc, u128::from(small::<u8>(item, 7)?)),
            "set_tunnel" | "set_tunnel64" => exact(Field::TunnelId)?,
            "mod_tp_src" if is_old => Action::SetTpSrc(small(item, 0xffff)?),
            "mod_tp_dst" if is_old => Action::SetTpDst(small(item, 0xffff)?),
            "mod_tp_src" => exact(self.transport_port(item, true)?)?,
            "mod_tp_dst" => exact(self.transport_port(item, false)?)?,
            _ => return Err(item.unknown("an action such as set_field:VALUE->FIELD")),
        };
        list.push(action);
        Ok(())
    }

    /// Adds a missing tag for `mod_…`; `set_…` expects the tag.
    fn push_if_untagged(&mut self, item: &Item<'_>, list: &mut Vec<Action>) {
        if !self.has_vlan && item.key.starts_with("mod_") {
            list.push(Action::PushVlan(0x8100));
            self.has_vlan = true;
        }
    }
}

/// Parses `controller`, `controller:128` or `controller(max_len=128)`.
fn controller(item: &Item<'_>) -> Result<Action, TextError> {
    let wanted = "controller:BYTES or controller(max_len=BYTES), at most 65535";
    let max_len = match item.value {
        None | Some("") => 0xffff,
        Some(value) => match number(value.strip_prefix("max_len=").unwrap_or(value)) {
            Some(n) => u16::try_from(n).map_err(|_| item.wrong(wanted))?,
            None => return Err(item.wrong(wanted)),
        },
    };
    Ok(Action::Output {
        port: PortNo::CONTROLLER,
        max_len,
    })
}

/// Parses a number up to `max`.
pub(super) fn small<T: TryFrom<u128>>(item: &Item<'_>, max: u128) -> Result<T, TextError> {
    let wanted = || item.wrong(format!("{}=NUMBER, at most {max}", item.key));
    let value = number(item.value()?)
        .filter(|n| *n <= max)
        .ok_or_else(wanted)?;
    T::try_from(value).map_err(|_| wanted())
}

fn ether_type(item: &Item<'_>, allowed: &[u16]) -> Result<u16, TextError> {
    let ty: u16 = small(item, 0xffff)?;
    if allowed.is_empty() || allowed.contains(&ty) {
        return Ok(ty);
    }
    let words: Vec<String> = allowed.iter().map(|ty| format!("{ty:#06x}")).collect();
    Err(item.wrong(words.join(" or ")))
}

/// Parses `(ID,HEX)`.
fn vendor(item: &Item<'_>) -> Result<(u32, Bytes), TextError> {
    let wanted = || item.wrong(format!("{}(ID,HEX)", item.key));
    let (id, data) = item.value()?.split_once(',').ok_or_else(wanted)?;
    let id = number(id)
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(wanted)?;
    let data = values::unhex(data).ok_or_else(wanted)?;
    Ok((id, Bytes::from(data)))
}
