//! Broadcasts: a tree over the switches, along which one packet reaches all of them.
//!
//! A broadcast enters with the label of the tree. Each switch copies it to the other links of the
//! tree and, without the label, to its own edge ports. A tree has no loop, and a label belongs to
//! one tree only, so that pieces of two trees never carry the same packet.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use openflow::message::{ErrorMessage, GroupType};
use openflow::{Action, Bucket, Cookie, Field, GroupId, Instruction, MatchField, PortNo};

use crate::entry::EntryKind;
use crate::pipeline::LABEL_TABLE;
use crate::vlan::{self, Form, VlanId};

use super::Label;
use super::form::{self, Part};
use super::plan::{Graph, link};

/// The upper part of the numbers of trees' groups.
const GROUPS: u32 = 0x6175_2000;

/// Above routes: a label belongs to a tree or to an egress, and a former route may be left.
const PRIORITY_TREE: u16 = 3000;

/// The part of a tree at one switch, for broadcasts of one VLAN, or outside of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub vlan: VlanId,
    /// The ports with links of the tree.
    pub links: BTreeSet<PortNo>,
    /// Edge ports that send a packet as it is, and edge ports that send it with its VLAN's tag.
    pub edges: Edges,
}

/// The edge ports of a switch for one VLAN, or outside of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edges {
    pub untagged: Vec<PortNo>,
    pub tagged: Vec<PortNo>,
}

impl Edges {
    pub fn is_empty(&self) -> bool {
        self.untagged.is_empty() && self.tagged.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = PortNo> + '_ {
        self.untagged.iter().chain(&self.tagged).copied()
    }

    /// Each port, and whether packets leave it with a tag.
    pub fn forms(&self) -> BTreeSet<(bool, PortNo)> {
        let untagged = self.untagged.iter().map(|port| (false, *port));
        untagged
            .chain(self.tagged.iter().map(|port| (true, *port)))
            .collect()
    }
}

/// The links of trees over some switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forest {
    /// For each switch, the first switch of its tree.
    pub roots: Vec<usize>,
    /// The cost of all links together.
    pub cost: u64,
}

impl Forest {
    pub fn tree_count(&self) -> usize {
        let own = self.roots.iter().enumerate();
        own.filter(|(at, root)| at == *root).count()
    }

    /// Whether the forest joins as many switches as `other`, by links that are no worse.
    pub fn is_as_good_as(&self, other: &Forest) -> bool {
        self.tree_count() <= other.tree_count() && self.cost <= other.cost
    }
}

/// The group of a tree.
pub fn group(label: Label) -> GroupId {
    GroupId(GROUPS | u32::from(label.0))
}

/// The label of a tree's group, if it is one.
pub fn label_of(group: GroupId) -> Option<Label> {
    let label = Label((group.0 & 0xfff) as u16);
    let is_tree = group.0 & !0xfff == GROUPS && (Label::MIN..=Label::MAX).contains(&label);
    is_tree.then_some(label)
}

/// Whether an entry sends packets to the group of a tree.
pub fn is_led_by(instructions: &[Instruction]) -> bool {
    let [Instruction::ApplyActions(actions)] = instructions else {
        return false;
    };
    matches!(actions[..], [Action::Group(id)] if label_of(id).is_some())
}

/// Whether a switch refuses a part of a tree. An error repeats the beginning of the message.
pub fn is_refused(error: &ErrorMessage) -> bool {
    const FLOW_MOD: u8 = 14;
    const GROUP_MOD: u8 = 15;
    let data = &error.data;
    match data.get(1) {
        Some(&FLOW_MOD) => {
            let cookie = data.get(8..16).and_then(|bytes| bytes.try_into().ok());
            let cookie = Cookie(cookie.map_or(0, u64::from_be_bytes));
            EntryKind::of(cookie) == Some(EntryKind::Tree)
        }
        Some(&GROUP_MOD) => {
            let id = data.get(12..16).and_then(|id| id.try_into().ok());
            id.is_some_and(|id| label_of(GroupId(u32::from_be_bytes(id))).is_some())
        }
        _ => false,
    }
}

/// The actions that send an untagged packet of a VLAN out of edge ports.
pub fn outputs(vlan: VlanId, edges: &Edges) -> Vec<Action> {
    let out = |port: &PortNo| Action::output(*port);
    let mut actions: Vec<Action> = edges.untagged.iter().map(out).collect();
    if let Some((first, rest)) = edges.tagged.split_first() {
        actions.extend(vlan::output(None, vlan, Form::Tagged, *first));
        actions.extend(rest.iter().map(out));
    }
    actions
}

/// The actions that send a packet into a tree, and out of the edge ports of its first switch.
pub fn entry_actions(
    tag: u16,
    label: Label,
    links: &BTreeSet<PortNo>,
    (vlan, edges): (VlanId, &Edges),
) -> Vec<Action> {
    let untagged = Edges {
        untagged: edges.untagged.clone(),
        tagged: Vec::new(),
    };
    let tagged = Edges {
        untagged: Vec::new(),
        tagged: edges.tagged.clone(),
    };
    let mut actions = outputs(vlan, &untagged);
    actions.extend(form::label_actions(tag, label));
    actions.extend(links.iter().map(|port| Action::output(*port)));
    if !tagged.tagged.is_empty() {
        actions.push(Action::PopVlan);
        actions.extend(outputs(vlan, &tagged));
    }
    actions
}

/// The group of a piece, and an entry for each link that leads to the group. A packet does not
/// leave by the port on which it arrived.
pub fn parts(label: Label, piece: &Piece) -> Vec<Part> {
    let bucket = |actions| Bucket::new(0, actions);
    let links = piece.links.iter();
    let links = links.map(|port| bucket(vec![Action::output(*port)]));
    // A switch carries out a bucket's actions as a set, which has one output.
    let untagged = piece
        .edges
        .untagged
        .iter()
        .map(|port| (*port, Form::Untagged));
    let tagged = piece.edges.tagged.iter().map(|port| (*port, Form::Tagged));
    let own = untagged.chain(tagged).map(|(port, form)| {
        let mut actions = vec![Action::PopVlan];
        actions.extend(vlan::output(None, piece.vlan, form, port));
        bucket(actions)
    });
    // This bucket names the VLAN of the tree for a restarted controller, and sends no packet.
    let named = (!piece.vlan.is_none()).then(|| bucket(vec![form::set_vid(piece.vlan)]));
    let group_part = Part::Group {
        id: group(label),
        group_type: GroupType::All,
        buckets: links.chain(own).chain(named).collect(),
    };
    let mut parts = vec![group_part];
    // Behind a hub a copy may arrive on a port that has no link of the tree.
    parts.extend(piece.links.iter().map(|port| {
        let to_group = vec![Instruction::ApplyActions(vec![Action::Group(group(label))])];
        let of_link = form::labelled(label).with_in_port(*port);
        form::entry(LABEL_TABLE, PRIORITY_TREE, of_link, to_group)
    }));
    parts
}

/// The piece that a group may belong to. It does so only if the piece has the same parts.
pub fn read(buckets: &[Bucket]) -> Piece {
    let mut piece = Piece {
        vlan: VlanId::NONE,
        links: BTreeSet::new(),
        edges: Edges::default(),
    };
    for bucket in buckets {
        match &bucket.actions[..] {
            [Action::Output { port, .. }] => {
                piece.links.insert(*port);
            }
            [Action::SetField(id)] => piece.vlan = vlan_of(id).unwrap_or(VlanId::NONE),
            [Action::PopVlan, Action::Output { port, .. }] => piece.edges.untagged.push(*port),
            [Action::PopVlan, .., Action::Output { port, .. }] => piece.edges.tagged.push(*port),
            _ => {}
        }
    }
    // In the order in which pieces are made.
    piece.edges.untagged.sort_unstable();
    piece.edges.tagged.sort_unstable();
    piece
}

fn vlan_of(id: &MatchField) -> Option<VlanId> {
    match id {
        MatchField::Basic {
            field: Field::VlanVid,
            value,
            ..
        } => VlanId::new(*value as u16 & 0xfff),
        _ => None,
    }
}

/// The ports of each switch with links of a tree: the shortest paths from the first switch that can
/// reach the others.
pub fn plan(graph: &Graph) -> Vec<BTreeSet<PortNo>> {
    let count = graph.neighbours.len();
    let mut outs = vec![BTreeSet::new(); count];
    let mut best: Vec<Option<u64>> = vec![None; count];
    let mut by: Vec<Option<(usize, PortNo, PortNo)>> = vec![None; count];
    for root in 0..count {
        if best[root].is_some() {
            continue;
        }
        best[root] = Some(0);
        let mut queue = BinaryHeap::from([Reverse((0, root))]);
        while let Some(Reverse((distance, at))) = queue.pop() {
            if best[at] != Some(distance) {
                continue;
            }
            if let Some((from, out_port, in_port)) = by[at].take() {
                outs[from].insert(out_port);
                outs[at].insert(in_port);
            }
            for link in &graph.neighbours[at] {
                let next = distance + u64::from(link.cost);
                if best[link.switch].is_none_or(|known| next < known) {
                    best[link.switch] = Some(next);
                    by[link.switch] = Some((at, link.out_port, link.in_port));
                    queue.push(Reverse((next, link.switch)));
                }
            }
        }
    }
    outs
}

/// The trees that these ports of each switch make; `None` if they lead elsewhere or form a loop.
pub fn check(graph: &Graph, outs: &[BTreeSet<PortNo>]) -> Option<Forest> {
    let mut roots: Vec<usize> = (0..graph.neighbours.len()).collect();
    let mut cost = 0;
    for (at, ports) in outs.iter().enumerate() {
        for port in ports {
            let there = link(graph, at, *port)?;
            let back = link(graph, there.switch, there.in_port)?;
            let is_both_ways = (back.switch, back.in_port) == (at, *port);
            if !is_both_ways || !outs.get(there.switch)?.contains(&there.in_port) {
                return None;
            }
            // Each link once.
            if (at, *port) > (there.switch, there.in_port) {
                continue;
            }
            let [one, other] = [at, there.switch].map(|of| root(&mut roots, of));
            if one == other {
                return None;
            }
            roots[one.max(other)] = one.min(other);
            cost += u64::from(there.cost);
        }
    }
    for at in 0..roots.len() {
        roots[at] = root(&mut roots, at);
    }
    Some(Forest { roots, cost })
}

fn root(roots: &mut [usize], mut at: usize) -> usize {
    while roots[at] != at {
        roots[at] = roots[roots[at]];
        at = roots[at];
    }
    at
}

#[cfg(test)]
mod tests {
    use clock::{Instant, SplitMix64};
    use openflow::table::Switch;
    use proptest::prelude::*;

    use super::super::plan::Neighbour;
    use super::*;

    /// A random graph whose link `n` has port `n` at both ends, from 1.
    fn random(size: usize, links: usize, seed: u64) -> Graph {
        let mut random = SplitMix64::new(seed);
        let mut below = |n: usize| (random.next() % n as u64) as usize;
        let mut neighbours = vec![Vec::new(); size];
        for n in 0..links {
            let (a, b, cost) = (below(size), below(size), 1 + below(2) * 1000);
            if a == b {
                continue;
            }
            let port = PortNo(n as u32 + 1);
            for (from, to) in [(a, b), (b, a)] {
                neighbours[from].push(Neighbour {
                    switch: to,
                    out_port: port,
                    in_port: port,
                    cost: cost as u32,
                    order: 0,
                });
            }
        }
        Graph { neighbours }
    }

    /// The number of times that a packet from one switch reaches each switch.
    fn reached(graph: &Graph, outs: &[BTreeSet<PortNo>], from: usize) -> Vec<usize> {
        let mut times = vec![0; graph.neighbours.len()];
        let mut under_way = vec![(from, None)];
        while let Some((at, in_port)) = under_way.pop() {
            times[at] += 1;
            assert!(times[at] < 3, "in circles");
            for port in outs[at].iter().filter(|port| Some(**port) != in_port) {
                let next = link(graph, at, *port).expect("a link");
                under_way.push((next.switch, Some(next.in_port)));
            }
        }
        times
    }

    proptest! {
        /// A packet reaches every reachable switch once, wherever it enters.
        #[test]
        fn a_packet_reaches_each_switch_once(size in 1usize..12, links in 0usize..24, seed: u64) {
            let graph = random(size, links, seed);
            let outs = plan(&graph);
            let forest = check(&graph, &outs).expect("trees");
            prop_assert!(forest.is_as_good_as(&forest));
            for from in 0..size {
                for (at, times) in reached(&graph, &outs, from).into_iter().enumerate() {
                    let is_joined = forest.roots[at] == forest.roots[from];
                    prop_assert_eq!(times, usize::from(is_joined));
                }
            }
            // Whatever is joined by any links is joined by the trees.
            for (at, neighbours) in graph.neighbours.iter().enumerate() {
                for link in neighbours {
                    prop_assert_eq!(forest.roots[at], forest.roots[link.switch]);
                }
            }
        }

        /// One more link makes a loop, and half a link leads nowhere.
        #[test]
        fn a_circle_is_no_tree(size in 2usize..10, links in 1usize..24, seed: u64) {
            let graph = random(size, links, seed);
            let outs = plan(&graph);
            for (at, neighbours) in graph.neighbours.iter().enumerate() {
                for link in neighbours.iter().filter(|link| !outs[at].contains(&link.out_port)) {
                    let mut more = outs.clone();
                    more[at].insert(link.out_port);
                    prop_assert_eq!(check(&graph, &more), None, "half a link");
                    more[link.switch].insert(link.in_port);
                    prop_assert_eq!(check(&graph, &more), None, "a circle");
                }
            }
        }

        /// A packet of a tree is forwarded only from a link of the tree: behind a hub a copy may
        /// arrive elsewhere, and would loop.
        #[test]
        fn a_packet_that_comes_in_beside_the_tree_goes_nowhere(in_port in 1u32..8) {
            let piece = Piece {
                vlan: VlanId::NONE,
                links: BTreeSet::from([PortNo(1), PortNo(2), PortNo(3)]),
                edges: Edges { untagged: vec![PortNo(7)], tagged: Vec::new() },
            };
            let label = Label(4000);
            let mut switch = Switch::with_ports(1..8);
            let inlets = (1..8).flat_map(|port| form::inlet(PortNo(port)));
            let parts = inlets.chain(parts(label, &piece)).collect();
            for message in form::change(Vec::new(), parts, 1) {
                prop_assert!(switch.apply(Instant::START, &message).is_ok());
            }
            let mut frame = vec![0xff; 12];
            frame.extend([0x88, 0xa8]);
            frame.extend(label.0.to_be_bytes());
            frame.extend([0x08, 0x06]);
            frame.resize(64, 0);
            let out = switch.ports_of(PortNo(in_port), &frame);
            let copies = if in_port <= 3 { 3 } else { 0 };
            prop_assert_eq!(out.len(), copies);
        }

        /// A piece that a switch takes can be read back.
        #[test]
        fn a_piece_is_read_again(
            links in prop::collection::btree_set(1u32..5, 1..4),
            untagged in prop::collection::btree_set(5u32..8, 0..3),
            tagged in prop::collection::btree_set(8u32..11, 0..3),
            vlan in 0u16..3,
        ) {
            let vlan = VlanId::new(vlan).unwrap_or(VlanId::NONE);
            let ports = |of: BTreeSet<u32>| of.into_iter().map(PortNo);
            let tagged = ports(tagged).filter(|_| !vlan.is_none()).collect();
            let piece = Piece {
                vlan,
                links: ports(links).collect(),
                edges: Edges { untagged: ports(untagged).collect(), tagged },
            };
            let label = Label(4000);
            let mut switch = Switch::with_ports(1..12);
            for message in form::change(Vec::new(), parts(label, &piece), 1) {
                let taken = switch.apply(Instant::START, &message);
                prop_assert!(taken.is_ok(), "{message:?}: {taken:?}");
            }
            let parts = parts(label, &piece);
            let Part::Group { id, buckets, .. } = &parts[0] else {
                panic!("a group");
            };
            prop_assert_eq!(label_of(*id), Some(label));
            prop_assert_eq!(read(buckets), piece);
        }
    }
}
