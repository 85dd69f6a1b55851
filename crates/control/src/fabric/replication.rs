//! Multicast: copies of a packet for each egress with receivers, and for each receiver there.
//!
//! The switch of a sender makes one copy for each egress. Each copy travels like any packet of a
//! conversation: with the egress's label, around failed links. The egress copies it to its
//! receivers. So no other switch knows of the group, a packet never meets itself again, and a link
//! near the sender may carry a packet several times.

use std::net::IpAddr;

use openflow::message::{ErrorMessage, FlowMod, FlowModFlags, GroupType};
use openflow::{Action, Bucket, Field, GroupId, Instruction, MacAddr, Match, PortNo};

use crate::entry::EntryKind;
use crate::pipeline::{HOST_TABLE, LABEL_TABLE, PATH_TABLE};
use crate::vlan::{self, Form, VlanId};

use super::Label;
use super::form::{self, Part};

/// A multicast group in one VLAN, or outside of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    pub vlan: VlanId,
    pub ip: IpAddr,
}

/// The upper part of the numbers of OpenFlow groups that copy.
const GROUPS: u32 = 0x6175_4000;
/// The number of such groups of one switch.
pub const SLOTS: u16 = 0x2000;

/// Above all entries of hosts, and below those that forbid packets.
const PRIORITY_SENDER: u16 = 2500;
const PRIORITY_RECEIVERS: u16 = 1600;
/// Copies for which there are no receivers any more.
const PRIORITY_NO_RECEIVERS: u16 = 500;
/// Messages about membership, whatever else is sent to their group.
const PRIORITY_MEMBERSHIP: u16 = 3120;

/// A sender's entry ends after this many seconds without a packet.
const IDLE_TIMEOUT_S: u16 = 60;

const ETH_TYPE_IPV4: u16 = 0x0800;
const ETH_TYPE_IPV6: u16 = 0x86dd;
const IGMP: u8 = 2;
const ICMPV6: u8 = 58;
/// Queries, reports and leaves of MLD (RFC 3810, 5).
const MLD: [u8; 4] = [130, 131, 132, 143];

impl GroupKey {
    fn narrow(self, m: Match) -> Match {
        match self.ip {
            IpAddr::V4(ip) => {
                let m = m.with(Field::EthType, ETH_TYPE_IPV4);
                m.with(Field::Ipv4Dst, u32::from(ip))
            }
            IpAddr::V6(ip) => {
                let m = m.with(Field::EthType, ETH_TYPE_IPV6);
                m.with(Field::Ipv6Dst, u128::from(ip))
            }
        }
    }
}

/// The OpenFlow group of a slot.
pub fn group(slot: u16) -> GroupId {
    GroupId(GROUPS | u32::from(slot))
}

/// Whether the number of an OpenFlow group is one of those for groups that copy.
pub fn is_group(group: GroupId) -> bool {
    group.0 & !u32::from(SLOTS - 1) == GROUPS
}

/// Whether a switch refuses a group that copies. An error repeats the beginning of the message.
pub fn is_refused(error: &ErrorMessage) -> bool {
    const GROUP_MOD: u8 = 15;
    let id = error.data.get(12..16).and_then(|id| id.try_into().ok());
    let is_copying = id.is_some_and(|id| is_group(GroupId(u32::from_be_bytes(id))));
    error.data.get(1) == Some(&GROUP_MOD) && is_copying
}

/// The parts of every switch: messages about membership go to the controller, and copies without
/// receivers are dropped.
pub fn base() -> Vec<Part> {
    const MULTICAST: MacAddr = MacAddr([1, 0, 0, 0, 0, 0]);
    let to_controller = vec![Instruction::ApplyActions(vec![Action::controller()])];
    let up = |m: Match| form::entry(PATH_TABLE, PRIORITY_MEMBERSHIP, m, to_controller.clone());
    let igmp = Match::any().with(Field::EthType, ETH_TYPE_IPV4);
    let mut parts = vec![up(igmp.with(Field::IpProto, IGMP))];
    for kind in MLD {
        let mld = Match::any().with(Field::EthType, ETH_TYPE_IPV6);
        let mld = mld.with(Field::IpProto, ICMPV6);
        parts.push(up(mld.with(Field::Icmpv6Type, kind)));
    }
    let all = MULTICAST.to_u64();
    let copies = Match::any().with_masked(Field::EthDst, all, all);
    for table in [LABEL_TABLE, HOST_TABLE] {
        let none = (PRIORITY_NO_RECEIVERS, copies.clone(), Vec::new());
        parts.push(form::entry(table, none.0, none.1, none.2));
    }
    parts
}

/// The entry of an egress that copies a group's packets to the receivers there.
pub fn delivery(key: GroupKey, label: Label, ports: &[(PortNo, Form)]) -> Vec<Part> {
    if ports.is_empty() {
        return Vec::new();
    }
    let (table, to, mut actions) = match key.vlan.is_none() {
        true => (HOST_TABLE, Match::any(), Vec::new()),
        false => (LABEL_TABLE, form::labelled(label), vec![Action::PopVlan]),
    };
    let (tagged, untagged): (Vec<_>, Vec<_>) =
        ports.iter().partition(|(_, form)| *form == Form::Tagged);
    actions.extend(untagged.iter().map(|(port, _)| Action::output(*port)));
    if let Some((first, rest)) = tagged.split_first() {
        actions.extend(vlan::output(None, key.vlan, Form::Tagged, first.0));
        actions.extend(rest.iter().map(|(port, _)| Action::output(*port)));
    }
    let out = vec![Instruction::ApplyActions(actions)];
    vec![form::entry(table, PRIORITY_RECEIVERS, key.narrow(to), out)]
}

/// The group of a sender's switch: copies of its untagged packets for the receivers there, and for
/// each egress.
pub fn copies(
    slot: u16,
    vlan: VlanId,
    ports: &[(PortNo, Form)],
    egresses: &[Label],
    tag: u16,
) -> Part {
    let bucket = |actions| Bucket::new(0, actions);
    let here = ports.iter();
    let here = here.map(|(port, form)| bucket(vlan::output(None, vlan, *form, *port)));
    let away = egresses.iter();
    let away = away.map(|label| bucket(form::ingress_actions(tag, *label)));
    Part::Group {
        id: group(slot),
        group_type: GroupType::All,
        buckets: here.chain(away).collect(),
    }
}

/// The entry that sends a sender's packets to the group that copies them. `tag`: the packets' tag.
pub fn sender(
    key: GroupKey,
    (in_port, tag): (PortNo, Option<u16>),
    slot: u16,
    generation: u16,
) -> FlowMod {
    let mut actions: Vec<Action> = tag.map(|_| Action::PopVlan).into_iter().collect();
    actions.push(Action::Group(group(slot)));
    FlowMod {
        cookie: EntryKind::Sender.cookie(generation),
        idle_timeout: IDLE_TIMEOUT_S,
        flags: FlowModFlags::SEND_FLOW_REM,
        ..FlowMod::add(PRIORITY_SENDER, sender_match(key, (in_port, tag)), actions)
    }
}

fn sender_match(key: GroupKey, (in_port, tag): (PortNo, Option<u16>)) -> Match {
    let m = Match::any().with_in_port(in_port);
    key.narrow(vlan::with_tag(m, tag))
}

/// The sender of an ended entry: the group's address, the sender's port and its packets' tag.
pub fn sender_of(m: &Match) -> Option<(IpAddr, PortNo, Option<u16>)> {
    let ip = match (m.exact(Field::Ipv4Dst), m.exact(Field::Ipv6Dst)) {
        (Some(ip), _) => IpAddr::V4((ip as u32).into()),
        (None, Some(ip)) => IpAddr::V6(ip.into()),
        (None, None) => return None,
    };
    let vid = m.exact(Field::VlanVid)? as u16;
    let tag = (vid != 0).then_some(vid & 0xfff);
    Some((ip, m.in_port()?, tag))
}
