//! Mirrors: copies of the packets of some ports, sent out of another port of the same switch.
//!
//! The first table of the switch copies incoming packets, before anything is decided. Outgoing
//! packets are copied where the controller writes outputs: a list of actions gets one more output,
//! and a bucket, which can have only one output, points to a group with all outputs.
//! `Mirrors::lead` makes this change in outgoing messages, and `Mirrors::unlead` reverts it in a
//! switch's reports. So no other code knows about mirrors.

use std::collections::{BTreeMap, BTreeSet};

use openflow::message::{FlowMod, GroupMod, PacketOut};
use openflow::{Action, Bucket, DatapathId, GroupId, Instruction, Message, PortNo};

use crate::Location;
use crate::bond::{self, Bonds};

/// The upper half of the numbers of groups with copies; the lower half is the port.
const GROUPS: u32 = 0x6177_0000;
/// The same for packets that go out of the port where they came in.
const BACK: u32 = 0x6178_0000;

/// The highest port with copies: groups name it in 16 bits.
pub const PORT_MAX: u32 = bond::PORT_MAX;

/// The packets of a port that are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    #[default]
    Both,
    /// Packets that come in at the port.
    In,
    /// Packets that go out of the port.
    Out,
}

/// Ports of one switch, and the port that gets copies of their packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    pub name: String,
    pub dpid: DatapathId,
    /// The place of a bond stands for all of its ports.
    pub from: BTreeSet<PortNo>,
    pub direction: Direction,
    pub to: PortNo,
}

impl Mirror {
    /// The port that gets the copies.
    pub fn target(&self) -> Location {
        self.at(self.to)
    }

    pub(crate) fn at(&self, port: PortNo) -> Location {
        let dpid = self.dpid;
        Location { dpid, port }
    }
}

/// The ports that get copies.
pub type Targets = BTreeSet<PortNo>;

/// The mirrors of all switches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirrors {
    all: Vec<Mirror>,
    ins: BTreeMap<Location, Targets>,
    outs: BTreeMap<Location, Targets>,
    targets: BTreeSet<Location>,
}

/// Whether a group is one of the groups with copies, by its number.
pub(crate) fn is_group(group: GroupId) -> bool {
    [GROUPS, BACK].contains(&(group.0 & 0xffff_0000))
}

fn group(upper: u32, port: PortNo) -> GroupId {
    GroupId(upper | port.0 & 0xffff)
}

impl Mirrors {
    pub fn new(all: impl IntoIterator<Item = Mirror>) -> Mirrors {
        let mut mirrors = Mirrors {
            all: all.into_iter().collect(),
            ..Mirrors::default()
        };
        for mirror in &mirrors.all {
            mirrors.targets.insert(mirror.target());
            for port in &mirror.from {
                let add = |side: &mut BTreeMap<Location, Targets>| {
                    side.entry(mirror.at(*port)).or_default().insert(mirror.to);
                };
                if mirror.direction != Direction::Out {
                    add(&mut mirrors.ins);
                }
                if mirror.direction != Direction::In {
                    add(&mut mirrors.outs);
                }
            }
        }
        mirrors
    }

    /// Returns the same mirrors with all ports of a bond in place of the bond.
    #[must_use]
    pub fn of_ports(&self, bonds: &Bonds) -> Mirrors {
        let each = self.all.iter().map(|mirror| {
            let ports = mirror.from.iter();
            let ports = ports.flat_map(|port| bonds.ports(mirror.at(*port)));
            let from = ports.map(|at| at.port).collect();
            Mirror {
                from,
                ..mirror.clone()
            }
        });
        Mirrors::new(each)
    }

    /// Adds the ports that get copies from other mirrors.
    pub(crate) fn unite_targets(&mut self, other: &Mirrors) {
        self.targets.extend(&other.targets);
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Mirror> {
        self.all.iter()
    }

    /// The port of a switch to which a mirror of this name copies.
    pub fn target_of(&self, name: &str, dpid: DatapathId) -> Option<PortNo> {
        let mut here = self.all.iter().filter(|mirror| mirror.dpid == dpid);
        let found = here.find(|mirror| mirror.name == name)?;
        Some(found.to)
    }

    /// Whether a port gets copies, and nothing else.
    pub fn is_target(&self, at: Location) -> bool {
        self.targets.contains(&at)
    }

    /// The ports that get copies.
    pub(crate) fn targets(&self) -> &BTreeSet<Location> {
        &self.targets
    }

    /// The switches with mirrors.
    pub(crate) fn switches(&self) -> BTreeSet<DatapathId> {
        self.targets.iter().map(|at| at.dpid).collect()
    }

    /// The ports of a switch whose incoming packets are copied, and the ports that get the copies.
    pub(crate) fn ins(&self, dpid: DatapathId) -> impl Iterator<Item = (PortNo, &Targets)> {
        of_switch(&self.ins, dpid)
    }

    /// The ports of a switch whose outgoing packets are copied, and the ports that get the copies.
    pub(crate) fn outs(&self, dpid: DatapathId) -> impl Iterator<Item = (PortNo, &Targets)> {
        of_switch(&self.outs, dpid)
    }

    /// Whether the outgoing packets of a port are copied.
    pub(crate) fn copies_out(&self, at: Location) -> bool {
        self.outs.contains_key(&at)
    }

    /// The ports whose outgoing packets are copied in only one of this and `other`.
    pub(crate) fn outs_changed(&self, other: &Mirrors) -> Vec<Location> {
        let only = |one: &Mirrors, two: &Mirrors| -> Vec<Location> {
            let all = one.outs.keys().copied();
            all.filter(|at| !two.copies_out(*at)).collect()
        };
        [only(self, other), only(other, self)].concat()
    }

    /// The groups of a switch: each output, and its copies.
    pub(crate) fn groups(&self, dpid: DatapathId) -> BTreeMap<GroupId, Vec<Bucket>> {
        let bucket = |port: PortNo| Bucket {
            weight: 0,
            watch_port: PortNo::ANY,
            watch_group: GroupId::ANY,
            actions: vec![Action::output(port)],
            bucket_id: None,
            properties: Vec::new(),
        };
        let mut groups = BTreeMap::new();
        for (port, targets) in self.outs(dpid) {
            for (upper, first) in [(GROUPS, port), (BACK, PortNo::IN_PORT)] {
                let all = [first].into_iter().chain(targets.iter().copied());
                groups.insert(group(upper, port), all.map(bucket).collect());
            }
        }
        groups
    }

    /// Adds copies to a list of actions. `in_port`: the port where its packets come in, if all of
    /// them come in there.
    pub(crate) fn lead(
        &self,
        dpid: DatapathId,
        in_port: Option<PortNo>,
        actions: &mut Vec<Action>,
    ) {
        let before = std::mem::take(actions);
        for action in before {
            let port = match action {
                Action::Output { port, .. } if port == PortNo::IN_PORT => in_port,
                Action::Output { port, .. } => Some(port),
                _ => None,
            };
            actions.push(action);
            let targets = port.and_then(|port| self.outs.get(&Location { dpid, port }));
            let targets = targets.into_iter().flatten();
            actions.extend(targets.map(|to| Action::output(*to)));
        }
    }

    /// Removes copies from a list of actions: nothing else goes out of ports that get copies.
    fn unlead(&self, dpid: DatapathId, actions: &mut Vec<Action>) {
        actions.retain(|action| match action {
            Action::Output { port, .. } => !self.is_target(Location { dpid, port: *port }),
            _ => true,
        });
    }

    /// Redirects the outputs of a bucket to the groups with copies.
    fn lead_bucket(&self, dpid: DatapathId, bucket: &mut Bucket) {
        let watched = bucket.watch_port;
        for action in &mut bucket.actions {
            let (upper, port) = match action {
                Action::Output { port, .. } if *port == PortNo::IN_PORT => (BACK, watched),
                Action::Output { port, .. } => (GROUPS, *port),
                _ => continue,
            };
            if self.copies_out(Location { dpid, port }) {
                *action = Action::Group(group(upper, port));
            }
        }
    }

    /// Adds copies to the outputs of a message.
    pub(crate) fn lead_message(&self, dpid: DatapathId, message: &mut Message) {
        if self.outs(dpid).next().is_none() {
            return;
        }
        match message {
            Message::PacketOut(PacketOut { actions, .. }) => self.lead(dpid, None, actions),
            Message::FlowMod(FlowMod {
                instructions,
                r#match,
                ..
            }) => self.lead_instructions(dpid, r#match.in_port(), instructions),
            Message::GroupMod(GroupMod {
                group_id, buckets, ..
            }) if !is_group(*group_id) => {
                for bucket in buckets {
                    self.lead_bucket(dpid, bucket);
                }
            }
            _ => {}
        }
    }

    fn lead_instructions(
        &self,
        dpid: DatapathId,
        in_port: Option<PortNo>,
        instructions: &mut [Instruction],
    ) {
        for instruction in instructions {
            if let Instruction::ApplyActions(actions) = instruction {
                self.lead(dpid, in_port, actions);
            }
        }
    }

    /// Removes copies from the instructions of a switch's entry. Returns the instructions that the
    /// entry should have, if it has others. `before`: mirrors that the switch may still have.
    pub(crate) fn mend(
        &self,
        before: &Mirrors,
        (dpid, in_port): (DatapathId, Option<PortNo>),
        instructions: &mut [Instruction],
    ) -> Option<Vec<Instruction>> {
        let held = instructions.to_vec();
        for instruction in &mut *instructions {
            if let Instruction::ApplyActions(actions) = instruction {
                self.unlead(dpid, actions);
                before.unlead(dpid, actions);
            }
        }
        let mut wanted = instructions.to_vec();
        self.lead_instructions(dpid, in_port, &mut wanted);
        (wanted != held).then_some(wanted)
    }

    /// Does the same for the buckets of a group other than the groups with copies.
    pub(crate) fn mend_buckets(
        &self,
        dpid: DatapathId,
        buckets: &mut [Bucket],
    ) -> Option<Vec<Bucket>> {
        let held = buckets.to_vec();
        for bucket in &mut *buckets {
            for action in &mut bucket.actions {
                let Action::Group(id) = action else {
                    continue;
                };
                match id.0 & 0xffff_0000 {
                    GROUPS => *action = Action::output(PortNo(id.0 & 0xffff)),
                    BACK => *action = Action::output(PortNo::IN_PORT),
                    _ => {}
                }
            }
        }
        let mut wanted = buckets.to_vec();
        for bucket in &mut wanted {
            self.lead_bucket(dpid, bucket);
        }
        (wanted != held).then_some(wanted)
    }
}

fn of_switch(
    side: &BTreeMap<Location, Targets>,
    dpid: DatapathId,
) -> impl Iterator<Item = (PortNo, &Targets)> {
    let at = |port| Location { dpid, port };
    let here = side.range(at(PortNo(0))..=at(PortNo(u32::MAX)));
    here.map(|(at, targets)| (at.port, targets))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DPID: DatapathId = DatapathId(1);

    fn mirror(from: &[u32], direction: Direction, to: u32) -> Mirror {
        Mirror {
            name: format!("to-{to}"),
            dpid: DPID,
            from: from.iter().map(|port| PortNo(*port)).collect(),
            direction,
            to: PortNo(to),
        }
    }

    fn out(port: u32) -> Action {
        Action::output(PortNo(port))
    }

    fn at(port: u32) -> Location {
        let port = PortNo(port);
        Location { dpid: DPID, port }
    }

    fn mirrors() -> Mirrors {
        Mirrors::new([
            mirror(&[1, 2], Direction::Both, 8),
            mirror(&[1], Direction::Out, 9),
            mirror(&[3], Direction::In, 9),
        ])
    }

    #[test]
    fn each_output_is_followed_by_its_copies() {
        let mirrors = mirrors();
        let lead = |in_port: Option<u32>, actions: &[Action]| {
            let mut actions = actions.to_vec();
            mirrors.lead(DPID, in_port.map(PortNo), &mut actions);
            actions
        };
        let before = [out(1), Action::PopVlan, out(2), out(3)];
        let after = [
            out(1),
            out(8),
            out(9),
            Action::PopVlan,
            out(2),
            out(8),
            out(3),
        ];
        assert_eq!(lead(None, &before), after);
        let back = [Action::output(PortNo::IN_PORT)];
        assert_eq!(lead(Some(2), &back), [&back[..], &[out(8)]].concat());
        assert_eq!(lead(Some(3), &back), back);
        assert_eq!(lead(None, &back), back);
        let mut elsewhere = vec![out(1)];
        mirrors.lead(DatapathId(2), None, &mut elsewhere);
        assert_eq!(elsewhere, [out(1)]);
    }

    /// Entries with copies are read as those without and are right, and others are mended.
    #[test]
    fn entries_and_buckets_are_read_as_they_were_meant() {
        let (none, mirrors) = (Mirrors::default(), mirrors());
        let back = Action::output(PortNo::IN_PORT);
        let plain = vec![Instruction::ApplyActions(vec![out(1), back, out(2)])];
        let key = (DPID, Some(PortNo(2)));
        let mut read = plain.clone();
        let led = mirrors
            .mend(&none, key, &mut read)
            .expect("it has no copies");
        assert_eq!(read, plain);
        let mut read = led.clone();
        assert_eq!(mirrors.mend(&none, key, &mut read), None);
        assert_eq!(read, plain);
        let mut read = led;
        assert_eq!(none.mend(&mirrors, key, &mut read), Some(plain.clone()));
        assert_eq!(read, plain);

        let bucket = |watch_port: u32, action: Action| Bucket {
            weight: 0,
            watch_port: PortNo(watch_port),
            watch_group: GroupId::ANY,
            actions: vec![Action::PopVlan, action],
            bucket_id: None,
            properties: Vec::new(),
        };
        let back = Action::output(PortNo::IN_PORT);
        let plain = vec![bucket(1, out(1)), bucket(2, back), bucket(4, out(4))];
        let mut read = plain.clone();
        let led = mirrors.mend_buckets(DPID, &mut read).expect("no copies");
        let groups = mirrors.groups(DPID);
        let led_to = led.iter().filter_map(|bucket| match bucket.actions[1] {
            Action::Group(id) => Some(id),
            _ => None,
        });
        let led_to: Vec<GroupId> = led_to.collect();
        assert_eq!(led_to.len(), 2);
        assert!(
            led_to
                .iter()
                .all(|id| groups.contains_key(id) && is_group(*id))
        );
        assert_eq!(groups[&led_to[0]].len(), 3, "the output and two copies");
        let mut read = led.clone();
        assert_eq!(mirrors.mend_buckets(DPID, &mut read), None);
        assert_eq!(read, plain);
        let mut read = led;
        assert_eq!(none.mend_buckets(DPID, &mut read), Some(plain));
    }

    #[test]
    fn a_bond_stands_for_its_ports() {
        let bond = bond::Bond {
            name: "b".to_owned(),
            dpid: DPID,
            ports: [PortNo(2), PortNo(5)].into(),
            protocol: bond::Protocol::Static,
            is_fast: true,
        };
        let of_ports = mirrors().of_ports(&Bonds::new([bond]));
        let outs: Vec<u32> = of_ports.outs(DPID).map(|(port, _)| port.0).collect();
        let ins: Vec<u32> = of_ports.ins(DPID).map(|(port, _)| port.0).collect();
        assert_eq!((outs, ins), (vec![1, 2, 5], vec![1, 2, 3, 5]));
        assert!(of_ports.is_target(at(9)) && !of_ports.is_target(at(2)));
        assert_eq!(of_ports.target_of("to-8", DPID), Some(PortNo(8)));
        assert_eq!(of_ports.outs_changed(&mirrors()), [at(5)]);
    }
}
