//! The VLAN of every packet: what each port is a member of, and what its tags mean.
//!
//! A VLAN is a broadcast domain. The same addresses in two VLANs are different hosts, and no packet
//! goes from one to the other. Packets of an access port have no tag; those of a trunk have the tag
//! of their VLAN, or none in its native VLAN (IEEE 802.1Q-2018, 5.3 and 6.9). A port that the
//! settings do not name is outside of all VLANs, in [`VlanId::NONE`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::Location;

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

/// The VLANs of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortVlans {
    /// Hosts behind the port send no tags.
    Access(VlanId),
    Trunk {
        /// Their packets are tagged.
        tagged: BTreeSet<VlanId>,
        /// Its packets are not.
        native: Option<VlanId>,
    },
}

/// How the packets of a VLAN look at a port.
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
    /// Whether there are VLANs. Without any, tags are the hosts' own business.
    pub fn is_on(&self) -> bool {
        !self.ports.is_empty()
    }

    /// The VLAN of a packet that comes in at a port; `None` if the port is no member of it. `tag`
    /// is the VLAN id in the packet's outer 802.1Q tag, where it has one: 0 gives a priority only.
    pub fn classify(&self, at: Location, tag: Option<u16>) -> Option<VlanId> {
        let tag = tag.filter(|id| *id != 0);
        match (self.ports.get(&at), tag) {
            (None, None) => Some(VlanId::NONE),
            (None, Some(_)) | (Some(PortVlans::Access(_)), Some(_)) => None,
            (Some(PortVlans::Access(vlan)), None) => Some(*vlan),
            (Some(PortVlans::Trunk { native, .. }), None) => *native,
            (Some(PortVlans::Trunk { tagged, .. }), Some(id)) => {
                VlanId::new(id).filter(|vlan| tagged.contains(vlan))
            }
        }
    }

    /// The form of a VLAN's packets at a port; `None` if the port is no member.
    pub fn form(&self, at: Location, vlan: VlanId) -> Option<Form> {
        let is_member = |is: bool, form| is.then_some(form);
        match self.ports.get(&at) {
            None => is_member(vlan.is_none(), Form::Untagged),
            Some(PortVlans::Access(own)) => is_member(*own == vlan, Form::Untagged),
            Some(PortVlans::Trunk { native, .. }) if *native == Some(vlan) => Some(Form::Untagged),
            Some(PortVlans::Trunk { tagged, .. }) => {
                is_member(tagged.contains(&vlan), Form::Tagged)
            }
        }
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
    use openflow::{DatapathId, PortNo};
    use proptest::prelude::*;

    use super::*;

    fn at(port: u32) -> Location {
        Location {
            dpid: DatapathId(1),
            port: PortNo(port),
        }
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
            (4, Some(10), None, "a port without VLANs, tagged"),
        ];
        for (port, tag, wanted, what) in cases {
            let found = vlans.classify(at(port), tag);
            assert_eq!(found.map(VlanId::number), wanted, "{what}");
        }
    }

    proptest! {
        /// A packet that left a port in the form of its VLAN would come in there as the same VLAN.
        #[test]
        fn forms_and_tags_agree(port in 1u32..6, id in 0u16..40) {
            let (vlans, id) = (vlans(), VlanId(id));
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
