//! The VLAN of every packet: the VLANs of each port, and the meaning of its tags.
//!
//! A VLAN is a broadcast domain. The same addresses in two VLANs are different hosts, and no packet
//! goes from one to the other. Packets of an access port have no tag; those of a trunk have the tag
//! of their VLAN, or none in its native VLAN (IEEE 802.1Q-2018, 5.3 and 6.9). A port that the
//! settings do not name is outside of all VLANs, in [`VlanId::NONE`]: the hosts on such ports reach
//! only each other, and their tags are their own business.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use openflow::{Action, DatapathId, Field, MacAddr, Match, MatchField, PortNo};

use crate::Location;

/// The EtherType of a VLAN's tag (IEEE 802.1Q-2018, table 9-1).
pub(crate) const TAG: u16 = 0x8100;
/// The EtherType of a tag around another.
const SERVICE_TAG: u16 = 0x88a8;

/// The OXM value of a present tag (OpenFlow 1.3.5, table 13).
const PRESENT: u16 = 0x1000;

/// The id of a VLAN, from 1 to 4094, or [`VlanId::NONE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VlanId(u16);

impl VlanId {
    /// The network of the ports that belong to no VLAN.
    pub const NONE: VlanId = VlanId(0);
    pub const MIN: VlanId = VlanId(1);
    /// 4095 is reserved.
    pub const MAX: VlanId = VlanId(4094);

    /// The VLAN with this id; `None` if no VLAN can have it.
    pub fn new(id: u16) -> Option<VlanId> {
        (VlanId::MIN.0..=VlanId::MAX.0)
            .contains(&id)
            .then_some(VlanId(id))
    }

    pub fn number(self) -> u16 {
        self.0
    }

    pub fn is_none(self) -> bool {
        self == VlanId::NONE
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A host: the same address in two VLANs is two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostKey {
    pub vlan: VlanId,
    pub mac: MacAddr,
}

impl HostKey {
    /// The host outside of all VLANs.
    pub fn untagged(mac: MacAddr) -> HostKey {
        let vlan = VlanId::NONE;
        HostKey { vlan, mac }
    }
}

/// The VLANs of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortVlans {
    /// Hosts behind the port send no tags.
    Access(VlanId),
    Trunk {
        /// The VLANs whose packets are tagged.
        tagged: BTreeSet<VlanId>,
        /// The VLAN whose packets are not tagged.
        native: Option<VlanId>,
    },
}

impl PortVlans {
    /// The VLAN of a packet with this tag, as with [`Vlans::classify`].
    pub(crate) fn classify(&self, tag: Option<u16>) -> Option<VlanId> {
        match (self, tag.filter(|id| *id != 0)) {
            (PortVlans::Access(vlan), None) => Some(*vlan),
            (PortVlans::Access(_), Some(_)) => None,
            (PortVlans::Trunk { native, .. }, None) => *native,
            (PortVlans::Trunk { tagged, .. }, Some(id)) => {
                VlanId::new(id).filter(|vlan| tagged.contains(vlan))
            }
        }
    }

    pub(crate) fn form(&self, vlan: VlanId) -> Option<Form> {
        match self {
            PortVlans::Access(own) => (*own == vlan).then_some(Form::Untagged),
            PortVlans::Trunk { native, .. } if *native == Some(vlan) => Some(Form::Untagged),
            PortVlans::Trunk { tagged, .. } => tagged.contains(&vlan).then_some(Form::Tagged),
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = VlanId> {
        let (one, tagged) = match self {
            PortVlans::Access(vlan) => (Some(*vlan), None),
            PortVlans::Trunk { tagged, native } => (*native, Some(tagged)),
        };
        one.into_iter().chain(tagged.into_iter().flatten().copied())
    }
}

/// The VLAN id in a frame's outer 802.1Q tag.
pub(crate) fn tag_of(frame: &[u8]) -> Option<u16> {
    let [a, b, c, d] = *frame.get(12..)?.first_chunk()?;
    (u16::from_be_bytes([a, b]) == TAG).then(|| u16::from_be_bytes([c, d]) & 0xfff)
}

/// The VLAN id in a frame's outer tag, whichever EtherType it has.
pub(crate) fn outer_id(frame: &[u8]) -> Option<u16> {
    let [a, b, c, d] = *frame.get(12..)?.first_chunk()?;
    let is_tag = [TAG, SERVICE_TAG].contains(&u16::from_be_bytes([a, b]));
    is_tag.then(|| u16::from_be_bytes([c, d]) & 0xfff)
}

/// Whether a frame that counts as untagged has a tag nevertheless: a service tag, or a tag behind
/// one that gives only a priority.
pub(crate) fn hides_tag(frame: &[u8]) -> bool {
    let kind = |at: usize| {
        let kind = frame.get(at..at + 2).and_then(|kind| kind.try_into().ok());
        kind.map_or(0, u16::from_be_bytes)
    };
    match tag_of(frame) {
        None => kind(12) == SERVICE_TAG,
        Some(0) => [TAG, SERVICE_TAG].contains(&kind(16)),
        Some(_) => false,
    }
}

/// Removes the outer tag of a frame, which must have one.
pub(crate) fn without_tag(frame: &[u8]) -> Bytes {
    let parts = frame.get(..12).zip(frame.get(16..));
    parts.map_or(Bytes::new(), |(head, tail)| [head, tail].concat().into())
}

/// Narrows a match to the packets with this tag, or without one.
pub(crate) fn with_tag(m: Match, tag: Option<u16>) -> Match {
    m.with(Field::VlanVid, tag.map_or(0, |id| PRESENT | id))
}

/// The actions that send a packet out of a port in the form of its VLAN there. `tag`: the packet's
/// current tag.
pub(crate) fn output(tag: Option<u16>, vlan: VlanId, form: Form, port: PortNo) -> Vec<Action> {
    let id = Action::SetField(MatchField::exact(
        Field::VlanVid,
        u128::from(PRESENT | vlan.number()),
    ));
    let mut actions = match (tag, form) {
        (None, Form::Untagged) => vec![],
        (None, Form::Tagged) => vec![Action::PushVlan(TAG), id],
        (Some(_), Form::Untagged) => vec![Action::PopVlan],
        // The tag keeps its priority.
        (Some(tag), Form::Tagged) if tag == vlan.number() => vec![],
        (Some(_), Form::Tagged) => vec![id],
    };
    actions.push(Action::output(port));
    actions
}

/// The form of a VLAN's packets at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Untagged,
    Tagged,
}

/// The VLANs of all ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vlans {
    /// The VLANs that exist, with their names.
    pub names: BTreeMap<VlanId, String>,
    pub ports: BTreeMap<Location, PortVlans>,
}

impl Vlans {
    /// Whether there are VLANs.
    pub fn is_on(&self) -> bool {
        !self.ports.is_empty()
    }

    /// All VLANs that ports are members of.
    pub fn all(&self) -> BTreeSet<VlanId> {
        let ports = self.ports.values();
        ports.flat_map(|port| port.all()).collect()
    }

    /// The VLAN of a packet that comes in at a port; `None` if the port is no member of it. `tag`
    /// is the VLAN id in the packet's outer 802.1Q tag, if it has one: 0 gives only a priority.
    pub fn classify(&self, at: Location, tag: Option<u16>) -> Option<VlanId> {
        match self.ports.get(&at) {
            None => Some(VlanId::NONE),
            Some(port) => port.classify(tag),
        }
    }

    /// The form of a VLAN's packets at a port; `None` if the port is no member.
    pub fn form(&self, at: Location, vlan: VlanId) -> Option<Form> {
        match self.ports.get(&at) {
            None => vlan.is_none().then_some(Form::Untagged),
            Some(port) => port.form(vlan),
        }
    }

    /// The ports of a switch that are members of VLANs.
    pub(crate) fn of_switch(&self, dpid: DatapathId) -> impl Iterator<Item = (PortNo, PortVlans)> {
        let at = |port| Location { dpid, port };
        let ports = self.ports.range(at(PortNo(0))..=at(PortNo(u32::MAX)));
        ports.map(|(at, vlans)| (at.port, vlans.clone()))
    }

    /// The ports whose VLANs differ between this and `other`.
    pub fn changed(&self, other: &Vlans) -> BTreeSet<Location> {
        let all = self.ports.keys().chain(other.ports.keys());
        let differs = |at: &&Location| self.ports.get(at) != other.ports.get(at);
        all.filter(differs).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(port: u32) -> Location {
        Location::new(DatapathId(1), PortNo(port))
    }

    fn vlan(id: u16) -> VlanId {
        VlanId::new(id).expect("a VLAN id")
    }

    fn vlans() -> Vlans {
        let trunk = |native| PortVlans::Trunk {
            tagged: [vlan(10), vlan(20)].into(),
            native,
        };
        Vlans {
            names: BTreeMap::new(),
            ports: [
                (at(1), PortVlans::Access(vlan(10))),
                (at(2), trunk(None)),
                (at(3), trunk(Some(vlan(30)))),
            ]
            .into(),
        }
    }

    #[test]
    fn tags_mean_what_their_port_says() {
        let vlans = vlans();
        let cases = [
            (1, None, Some(10), "access"),
            (1, Some(0), Some(10), "access with a priority"),
            (1, Some(10), None, "access with its own tag"),
            (1, Some(20), None, "access with another tag"),
            (2, None, None, "trunk without a native VLAN"),
            (2, Some(10), Some(10), "trunk"),
            (2, Some(20), Some(20), "trunk"),
            (2, Some(30), None, "trunk, not a member"),
            (2, Some(4095), None, "no VLAN has this id"),
            (3, None, Some(30), "native"),
            (3, Some(0), Some(30), "native with a priority"),
            (3, Some(30), None, "native with its tag"),
            (4, None, Some(0), "a port without VLANs"),
            (4, Some(10), Some(0), "a port without VLANs, tagged"),
        ];
        for (port, tag, wanted, what) in cases {
            let found = vlans.classify(at(port), tag);
            assert_eq!(found.map(VlanId::number), wanted, "{what}");
        }
    }

    proptest! {
        /// A packet that left a port in the form of its VLAN would come in there in the same VLAN.
        #[test]
        fn forms_and_tags_agree(port in 1u32..6, id in 0u16..40) {
            let (vlans, id) = (vlans(), VlanId(id));
            prop_assume!(vlans.ports.contains_key(&at(port)));
            let tag = match vlans.form(at(port), id) {
                Some(Form::Untagged) => None,
                Some(Form::Tagged) => Some(id.number()),
                None => {
                    let tags = (0u16..4096).map(Some).chain([None]);
                    let mut into = tags.filter_map(|tag| vlans.classify(at(port), tag));
                    prop_assert!(into.all(|found| found != id));
                    return Ok(());
                }
            };
            prop_assert_eq!(vlans.classify(at(port), tag), Some(id));
        }
    }
}
