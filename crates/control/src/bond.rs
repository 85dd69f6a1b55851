//! Bonds: ports of one switch that connect to the same device, and that the network treats as one
//! port.
//!
//! The lowest port of a bond is its place: hosts behind any of its ports are located there. Packets
//! to the place go to an OpenFlow group, which chooses one of the ports that carry packets. A match
//! names the port at which a packet actually arrives.

use std::collections::{BTreeMap, BTreeSet};

use openflow::message::{FlowMod, GroupMod, PacketOut};
use openflow::multipart::{FlowStats, GroupDesc};
use openflow::{Action, DatapathId, GroupId, Instruction, MacAddr, Message, PortNo};

use crate::Location;
use crate::entry::EntryKind;

/// The upper half of the group numbers of bonds; the lower half is the place.
const GROUPS: u32 = 0x6176_0000;

/// The highest port that may be in a bond: groups and LACP name it in 16 bits.
pub const PORT_MAX: u32 = 0xfeff;

/// How the ends of a bond agree on its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// LACP, and auster sends first.
    Active,
    /// LACP, once the partner sends.
    Passive,
    /// All ports that are up carry packets.
    Static,
}

/// The ports of one bond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bond {
    pub name: String,
    pub dpid: DatapathId,
    /// At least one.
    pub ports: BTreeSet<PortNo>,
    pub protocol: Protocol,
    /// Whether the partner is asked for a message every second instead of every thirty.
    pub is_fast: bool,
}

impl Bond {
    /// The place of the hosts behind the bond.
    pub fn place(&self) -> Location {
        let port = self.ports.first().copied().unwrap_or(PortNo::ANY);
        self.at(port)
    }

    pub(crate) fn at(&self, port: PortNo) -> Location {
        let dpid = self.dpid;
        Location { dpid, port }
    }
}

/// The bonds of all switches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bonds {
    bonds: BTreeMap<Location, Bond>,
    /// The place of each port in a bond.
    places: BTreeMap<Location, PortNo>,
}

/// The group of the bond with this place.
pub(crate) fn group(place: PortNo) -> GroupId {
    GroupId(GROUPS | place.0 & 0xffff)
}

/// Whether a group is that of a bond.
pub(crate) fn is_group(group: GroupId) -> bool {
    group.0 & 0xffff_0000 == GROUPS
}

impl Bonds {
    /// Makes the set of these bonds, which share no port.
    pub fn new(bonds: impl IntoIterator<Item = Bond>) -> Bonds {
        let bonds = bonds.into_iter().map(|bond| (bond.place(), bond));
        let bonds: BTreeMap<Location, Bond> = bonds.collect();
        let ports = bonds.iter().flat_map(|(place, bond)| {
            let ports = bond.ports.iter();
            ports.map(|port| (bond.at(*port), place.port))
        });
        let places = ports.collect();
        Bonds { bonds, places }
    }

    pub fn is_empty(&self) -> bool {
        self.bonds.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Bond> {
        self.bonds.values()
    }

    /// The bond of a port.
    pub fn of(&self, at: Location) -> Option<&Bond> {
        self.bonds.get(&self.place(at))
    }

    /// Whether a port belongs to a bond.
    pub fn contains(&self, at: Location) -> bool {
        self.places.contains_key(&at)
    }

    /// The place of a port: its bond's, or its own.
    pub fn place(&self, at: Location) -> Location {
        let port = self.places.get(&at).copied().unwrap_or(at.port);
        Location { port, ..at }
    }

    /// The ports of a place: all ports of its bond, or the place itself.
    pub(crate) fn ports(&self, place: Location) -> Vec<Location> {
        match self.bonds.get(&place) {
            Some(bond) => bond.ports.iter().map(|port| bond.at(*port)).collect(),
            None => vec![place],
        }
    }

    /// The bonds of a switch.
    pub(crate) fn of_switch(&self, dpid: DatapathId) -> impl Iterator<Item = &Bond> {
        let at = |port| Location { dpid, port };
        let bonds = self.bonds.range(at(PortNo(0))..=at(PortNo(u32::MAX)));
        bonds.map(|(_, bond)| bond)
    }

    /// The bonds that differ between this and `other`.
    pub(crate) fn changed<'a>(&'a self, other: &'a Bonds) -> impl Iterator<Item = &'a Bond> {
        let differs = |of: &'a Bonds| move |bond: &&Bond| of.bonds.get(&bond.place()) != Some(bond);
        let gone = other.iter().filter(differs(self));
        self.iter().filter(differs(other)).chain(gone)
    }

    /// Replaces outputs to places of bonds with outputs to their groups.
    pub(crate) fn lead(&self, dpid: DatapathId, actions: &mut [Action]) {
        for action in actions {
            if let Action::Output { port, .. } = action {
                let at = Location { dpid, port: *port };
                if self.bonds.contains_key(&at) {
                    *action = Action::Group(group(*port));
                }
            }
        }
    }

    /// The reverse, for actions that a switch reports: the group of a bond becomes its place again.
    /// An output to the place itself reaches one port only, which is not what auster sets.
    fn unlead(&self, dpid: DatapathId, actions: &mut [Action]) {
        for action in actions {
            let to = match action {
                Action::Output { port, .. } => Location { dpid, port: *port },
                Action::Group(id) if is_group(*id) => Location {
                    dpid,
                    port: PortNo(id.0 & 0xffff),
                },
                _ => continue,
            };
            if self.bonds.contains_key(&to) {
                *action = match action {
                    Action::Group(_) => Action::output(to.port),
                    _ => Action::output(PortNo::ANY),
                };
            }
        }
    }

    /// The same for rows of the entry kinds that forward.
    pub(crate) fn unlead_rows(&self, dpid: DatapathId, rows: &mut [FlowStats]) {
        const FORWARD: [EntryKind; 5] = [
            EntryKind::Fabric,
            EntryKind::Tree,
            EntryKind::Local,
            EntryKind::Routed,
            EntryKind::Sender,
        ];
        if self.of_switch(dpid).next().is_none() {
            return;
        }
        let forwards = |row: &&mut FlowStats| {
            EntryKind::of(row.cookie).is_some_and(|kind| FORWARD.contains(&kind))
        };
        for instruction in rows
            .iter_mut()
            .filter(forwards)
            .flat_map(|row| &mut row.instructions)
        {
            if let Instruction::ApplyActions(actions) = instruction {
                self.unlead(dpid, actions);
            }
        }
    }

    /// The same for groups, except the groups of bonds.
    pub(crate) fn unlead_groups(&self, dpid: DatapathId, groups: &mut [GroupDesc]) {
        let others = groups.iter_mut().filter(|it| !is_group(it.group_id));
        for bucket in others.flat_map(|it| &mut it.buckets) {
            self.unlead(dpid, &mut bucket.actions);
        }
    }

    /// Replaces a message's outputs to places with groups, unless it sets the group of a bond.
    pub(crate) fn lead_message(&self, dpid: DatapathId, message: &mut Message) {
        if self.of_switch(dpid).next().is_none() {
            return;
        }
        match message {
            Message::PacketOut(PacketOut { actions, .. }) => self.lead(dpid, actions),
            Message::FlowMod(FlowMod { instructions, .. }) => {
                for instruction in instructions {
                    if let Instruction::ApplyActions(actions) = instruction {
                        self.lead(dpid, actions);
                    }
                }
            }
            Message::GroupMod(GroupMod {
                group_id, buckets, ..
            }) if !is_group(*group_id) => {
                for bucket in buckets {
                    self.lead(dpid, &mut bucket.actions);
                }
            }
            _ => {}
        }
    }
}

/// The treatment of a spanning tree message that arrives at a port with hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bpdu {
    #[default]
    Drop,
    /// Sends it out of the other ports that pass such messages.
    Pass,
    /// Closes the port until it has been down, or for five minutes.
    Guard,
}

/// Whether only bridges that build a spanning tree use this address: the address of IEEE 802.1D, or
/// Cisco's for a tree per VLAN.
pub(crate) fn is_bpdu(dst: MacAddr) -> bool {
    const STP: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0]);
    const PVST: MacAddr = MacAddr([0x01, 0x00, 0x0c, 0xcc, 0xcc, 0xcd]);
    [STP, PVST].contains(&dst)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DPID: DatapathId = DatapathId(1);

    fn bonds() -> Bonds {
        let bond = |name: &str, ports: &[u32]| Bond {
            name: name.to_owned(),
            dpid: DPID,
            ports: ports.iter().map(|port| PortNo(*port)).collect(),
            protocol: Protocol::Active,
            is_fast: true,
        };
        Bonds::new([bond("a", &[3, 2]), bond("b", &[5, 7])])
    }

    fn at(port: u32) -> Location {
        let port = PortNo(port);
        Location { dpid: DPID, port }
    }

    #[test]
    fn the_lowest_port_is_the_place_of_all() {
        let bonds = bonds();
        let places = [1, 2, 3, 4, 5, 7].map(|port| bonds.place(at(port)).port.0);
        assert_eq!(places, [1, 2, 2, 4, 5, 5]);
        assert_eq!(bonds.ports(at(5)), [at(5), at(7)]);
        assert_eq!(bonds.ports(at(7)), [at(7)]);
        assert_eq!(bonds.of(at(3)).map(|bond| &bond.name[..]), Some("a"));
        assert!(bonds.of(at(4)).is_none());
        let elsewhere = Location {
            dpid: DatapathId(2),
            ..at(3)
        };
        assert!(!bonds.contains(elsewhere) && bonds.contains(at(3)));
    }

    #[test]
    fn outputs_to_a_place_lead_to_its_group_and_others_stay() {
        let bonds = bonds();
        let out = |port| Action::output(PortNo(port));
        let mut actions = vec![Action::PopVlan, out(2), out(3), out(4), out(5)];
        bonds.lead(DPID, &mut actions);
        let [to_a, to_b] = [2, 5].map(|place| Action::Group(group(PortNo(place))));
        assert_eq!(actions, [Action::PopVlan, to_a, out(3), out(4), to_b]);
        let mut actions = vec![out(2)];
        bonds.lead(DatapathId(2), &mut actions);
        assert_eq!(actions, [out(2)]);
    }

    #[test]
    fn what_a_switch_reports_leads_to_places_again() {
        let bonds = bonds();
        let out = |port| Action::output(PortNo(port));
        let to = |place| Action::Group(group(PortNo(place)));
        let sent = vec![Action::PopVlan, out(2), out(3), out(5)];
        let mut actions = sent.clone();
        bonds.lead(DPID, &mut actions);
        bonds.unlead(DPID, &mut actions);
        assert_eq!(actions, sent);
        // Neither an output to one port of a bond nor the group of no bond is right.
        let mut actions = vec![out(2), to(9)];
        bonds.unlead(DPID, &mut actions);
        assert_eq!(actions, [Action::output(PortNo::ANY), to(9)]);
    }

    #[test]
    fn the_changed_bonds_are_those_of_before_and_after() {
        let before = bonds();
        assert_eq!(before.changed(&before).count(), 0);
        let mut other: Vec<Bond> = before.iter().cloned().collect();
        other[0].protocol = Protocol::Static;
        let after = Bonds::new(other);
        let changed = before.changed(&after).map(|bond| bond.protocol);
        let changed: Vec<Protocol> = changed.collect();
        assert_eq!(changed, [Protocol::Active, Protocol::Static]);
    }
}
