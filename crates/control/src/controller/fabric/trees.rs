//! The trees of broadcasts: one for each VLAN with broadcasts, and one for those outside of all.
//!
//! A tree is used only while everything that it relies on is as it was: each broadcast asks, and
//! the answer is kept until something changes. Otherwise a broadcast costs a packet-out for each
//! switch, as it does where there is no fabric. So nothing has to take a tree out of use in time.
//!
//! A new tree has a label that no switch holds a piece of. It is used when all its switches have
//! confirmed their pieces, and the pieces of the former one are deleted then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clock::{Duration, Instant};
use openflow::{DatapathId, PortNo};

use crate::Location;
use crate::controller::entries::{DRAIN, SETTLE};
use crate::controller::ingress::Ingress;
use crate::controller::network::Network;
use crate::controller::outbox::{Outbox, Timer};
use crate::controller::port_state::PortRole;
use crate::controller::stage::Stage;
use crate::fabric::Label;
use crate::fabric::plan::Graph;
use crate::fabric::tree::{self, Edges, Forest, Piece};
use crate::vlan::VlanId;

use super::change::{FabricChange, TreeChange, What};
use super::delivery::Delivery;
use super::{Fabric, GATHER, Map, Node};

/// The time to gather changes grows by this for each switch: a tree costs each two messages.
const GATHER_PER_SWITCH: Duration = Duration::from_millis(1);
const GATHER_MAX: Duration = Duration::from_secs(1);

/// The trees of all VLANs.
#[derive(Default)]
pub(super) struct Trees {
    by_vlan: BTreeMap<VlanId, Tree>,
    /// Switches that refuse a piece: they get packet-outs.
    refusing: BTreeSet<DatapathId>,
    /// Counts changes of members and their inlets.
    revision: u64,
    ground: Option<Arc<Ground>>,
    next_change: u64,
    /// Whether pieces may be left that belong to no tree.
    has_leftovers: bool,
    due: Option<Instant>,
}

/// The tree of one VLAN.
#[derive(Default)]
struct Tree {
    current: Option<Version>,
    /// The next one, whose pieces are not confirmed, and the change that sets them.
    building: Option<(u64, Version)>,
    /// The change under way of edge ports of the current one.
    syncing: Option<u64>,
    /// Whether to examine it.
    is_wanted: bool,
    /// Whether the pieces that switches hold may no longer be taken for a tree.
    is_begun: bool,
    delivery: Option<(Seen, Option<Arc<Delivery>>)>,
}

struct Version {
    label: Label,
    /// The ports of its links, of the switches with any.
    links: BTreeMap<DatapathId, BTreeSet<PortNo>>,
}

/// The revisions of all that trees rely on.
type Seen = [u64; 3];

/// The switches and links that trees may use.
struct Ground {
    seen: Seen,
    members: Vec<DatapathId>,
    graph: Graph,
    /// The best trees.
    links: Vec<BTreeSet<PortNo>>,
    best: Forest,
}

/// A tree beside the network as it is.
enum State {
    Ready(Delivery, bool),
    /// Some port of a piece is held.
    Unsettled,
    /// Pieces with other edge ports.
    Differs(Vec<(DatapathId, Piece)>),
    Void,
}

/// The edge ports of a switch's piece. The group of a bond comes and goes with its ports, and other
/// groups that lead to it would keep it or go along, so the controller serves such a switch.
fn edges_of_piece(
    (dpid, vlan): (DatapathId, VlanId),
    net: &Network,
    ingress: &mut Ingress,
    outbox: &Outbox,
) -> Edges {
    match outbox.bonds.of_switch(dpid).next() {
        Some(_) => Edges::default(),
        None => ingress.edges(net, (dpid, vlan), &[], outbox),
    }
}

impl Trees {
    fn labels(&self) -> impl Iterator<Item = Label> + '_ {
        self.by_vlan.values().flat_map(|tree| {
            let building = tree.building.as_ref().map(|(_, version)| version.label);
            let current = tree.current.as_ref().map(|version| version.label);
            current.into_iter().chain(building)
        })
    }

    /// Whether a tree has a label, or is about to.
    pub(super) fn has_label(&self, label: Label) -> bool {
        self.labels().any(|of| of == label)
    }

    pub(super) fn forget(&mut self, dpid: DatapathId) {
        self.refusing.remove(&dpid);
        self.revision += 1;
    }

    /// Notes that members or their inlets have changed.
    pub(super) fn touch(&mut self) {
        self.revision += 1;
    }

    fn next_change(&mut self) -> u64 {
        self.next_change += 1;
        self.next_change
    }
}

impl Ground {
    fn number(&self, dpid: DatapathId) -> Option<usize> {
        self.members.binary_search(&dpid).ok()
    }

    /// The ports of all switches with links of a version; `None` if it has other switches.
    fn place(
        &self,
        links: &BTreeMap<DatapathId, BTreeSet<PortNo>>,
    ) -> Option<Vec<BTreeSet<PortNo>>> {
        let mut placed = vec![BTreeSet::new(); self.members.len()];
        for (dpid, ports) in links {
            placed[self.number(*dpid)?].clone_from(ports);
        }
        Some(placed)
    }

    /// The trees of a version, if it has no link that is not there.
    fn check(&self, links: &BTreeMap<DatapathId, BTreeSet<PortNo>>) -> Option<Forest> {
        tree::check(&self.graph, &self.place(links)?)
    }

    fn has_links(&self) -> bool {
        self.links.iter().any(|ports| !ports.is_empty())
    }
}

impl Fabric {
    /// How the broadcasts of a VLAN, or outside of all, reach all switches; `None` if not by trees.
    pub(in crate::controller) fn delivery(
        &mut self,
        vlan: VlanId,
        net: &Network,
        ingress: &mut Ingress,
        outbox: &mut Outbox,
    ) -> Option<Arc<Delivery>> {
        if !self.is_on() || !self.domains.contains_key(&vlan) {
            return None;
        }
        let seen = self.seen(net);
        let tree = self.trees.by_vlan.entry(vlan).or_default();
        if let Some((_, delivery)) = tree.delivery.as_ref().filter(|(as_of, _)| *as_of == seen) {
            return delivery.clone();
        }
        let (is_busy, is_syncing) = (tree.building.is_some(), tree.syncing.is_some());
        let (delivery, is_wanted) = match self.examine(vlan, net, ingress, outbox) {
            _ if is_syncing => (None, false),
            State::Ready(delivery, is_best) => (Some(Arc::new(delivery)), !is_best),
            State::Unsettled => (None, false),
            State::Differs(_) | State::Void => (None, true),
        };
        if is_wanted && !is_busy {
            self.want(vlan, outbox);
        }
        let tree = self.trees.by_vlan.entry(vlan).or_default();
        tree.delivery = Some((seen, delivery.clone()));
        delivery
    }

    fn seen(&self, net: &Network) -> Seen {
        [net.revision(), net.links.revision(), self.trees.revision]
    }

    fn want(&mut self, vlan: VlanId, outbox: &mut Outbox) {
        let members = self.nodes.len() as u32;
        let wait = GATHER + (GATHER_PER_SWITCH * members).min(GATHER_MAX);
        self.trees.by_vlan.entry(vlan).or_default().is_wanted = true;
        self.trees_soon(wait, outbox);
    }

    fn trees_soon(&mut self, wait: Duration, outbox: &mut Outbox) {
        let due = outbox.now + wait;
        if self.trees.due.is_none_or(|set| due < set) {
            self.trees.due = Some(due);
            outbox.timer(due, Timer::Trees);
        }
    }

    /// Has all trees examined: what they rely on may have gone, also where nobody sends
    /// broadcasts.
    pub(super) fn doubt_trees(&mut self, outbox: &mut Outbox) {
        self.trees.revision += 1;
        let trees = self.trees.by_vlan.iter();
        let used = trees.filter(|(_, tree)| tree.current.is_some());
        for vlan in used.map(|(vlan, _)| *vlan).collect::<Vec<_>>() {
            self.want(vlan, outbox);
        }
    }

    /// Gives up all trees: what is under way may be lost.
    pub(in crate::controller) fn restart_trees(&mut self, outbox: &mut Outbox) {
        self.trees.due = None;
        for tree in self.trees.by_vlan.values_mut() {
            *tree = Tree {
                is_wanted: true,
                is_begun: true,
                ..Tree::default()
            };
        }
        self.trees.ground = None;
        self.trees.revision += 1;
        self.trees_soon(GATHER, outbox);
    }

    /// Ends the trees of VLANs that are no more.
    pub(super) fn end_trees(&mut self, outbox: &mut Outbox) {
        let before = self.trees.by_vlan.len();
        let domains = &self.domains;
        self.trees
            .by_vlan
            .retain(|vlan, _| domains.contains_key(vlan));
        self.trees.revision += 1;
        if self.trees.by_vlan.len() < before {
            self.trees.has_leftovers = true;
            self.trees_soon(GATHER, outbox);
        }
    }

    /// Leaves a switch out of all trees that refuses a piece. Returns whether that is new.
    pub(in crate::controller) fn handle_tree_refused(
        &mut self,
        dpid: DatapathId,
        outbox: &mut Outbox,
    ) -> bool {
        let is_new = self.trees.refusing.insert(dpid);
        self.doubt_trees(outbox);
        is_new
    }

    /// The switches that can have a piece, and the links between them by which labelled packets
    /// may come in.
    fn ground(&mut self, net: &Network) -> Arc<Ground> {
        let seen = self.seen(net);
        if let Some(ground) = self.trees.ground.as_ref().filter(|it| it.seen == seen) {
            return ground.clone();
        }
        let takes_part = |dpid: &DatapathId, node: &Node| {
            node.is_ready && net.is_connected(*dpid) && !self.trees.refusing.contains(dpid)
        };
        let map = Map::new(net, &self.nodes);
        let lets_in = |at: usize, port: PortNo| {
            let dpid = &map.members[at];
            let node = self.nodes.get(dpid);
            node.is_some_and(|node| {
                let is_left = node.leaving_inlets.contains_key(&port);
                // A copy would also be made of what is not sent back where it came in.
                let copies = net.copies_out(Location { dpid: *dpid, port });
                let is_inlet = node.sent.inlets.contains(&port) && !is_left;
                takes_part(dpid, node) && is_inlet && !copies
            })
        };
        let mut numbers = vec![None; map.members.len()];
        let mut members = Vec::new();
        for (at, dpid) in map.members.iter().enumerate() {
            if self.nodes.get(dpid).is_some_and(|it| takes_part(dpid, it)) {
                numbers[at] = Some(members.len());
                members.push(*dpid);
            }
        }
        let mut graph = Graph::default();
        for (at, links) in map.graph.neighbours.iter().enumerate() {
            if numbers[at].is_none() {
                continue;
            }
            let own = links.iter().filter_map(|link| {
                let switch = numbers[link.switch]?;
                let is_open = lets_in(at, link.out_port) && lets_in(link.switch, link.in_port);
                is_open.then_some(crate::fabric::plan::Neighbour { switch, ..*link })
            });
            graph.neighbours.push(own.collect());
        }
        let mut links = tree::plan(&graph);
        let best = tree::check(&graph, &links).unwrap_or_else(|| {
            links = vec![BTreeSet::new(); members.len()];
            let roots = (0..members.len()).collect();
            Forest { roots, cost: 0 }
        });
        let ground = Arc::new(Ground {
            seen,
            members,
            graph,
            links,
            best,
        });
        self.trees.ground = Some(ground.clone());
        ground
    }

    /// Compares the current tree of a VLAN with the network as it is now.
    fn examine(
        &mut self,
        vlan: VlanId,
        net: &Network,
        ingress: &mut Ingress,
        outbox: &Outbox,
    ) -> State {
        let ground = self.ground(net);
        let tree = self.trees.by_vlan.get(&vlan);
        let Some(version) = tree.and_then(|tree| tree.current.as_ref()) else {
            return match ground.has_links() {
                true => State::Void,
                false => State::Unsettled,
            };
        };
        let Some(forest) = ground.check(&version.links) else {
            return State::Void;
        };
        let (mut different, mut is_held) = (Vec::new(), false);
        for (dpid, links) in &version.links {
            let node = self.nodes.get(dpid);
            let sent = node.and_then(|node| node.sent.trees.get(&version.label));
            let edges = edges_of_piece((*dpid, vlan), net, ingress, outbox);
            let Some(sent) = sent.filter(|sent| sent.links == *links) else {
                let links = links.clone();
                different.push((*dpid, Piece { vlan, links, edges }));
                continue;
            };
            if sent.edges == edges {
                continue;
            }
            // A port that has just come up may be an edge again, after a restart above all.
            let is_waiting = |port: PortNo| {
                let at = Location { dpid: *dpid, port };
                net.role(at) == PortRole::Held
            };
            let mut kept = sent.edges.clone();
            let now: BTreeSet<PortNo> = edges.iter().collect();
            kept.untagged.retain(|p| now.contains(p) || is_waiting(*p));
            kept.tagged.retain(|p| now.contains(p) || is_waiting(*p));
            is_held = true;
            let is_more = now.iter().any(|port| !kept.iter().any(|of| of == *port));
            if kept != sent.edges || is_more {
                let piece = Piece {
                    edges,
                    ..sent.clone()
                };
                different.push((*dpid, piece));
            }
        }
        if !different.is_empty() {
            return State::Differs(different);
        }
        if is_held {
            return State::Unsettled;
        }
        let is_best = forest.is_as_good_as(&ground.best);
        let numbers = version.links.keys().filter_map(|dpid| ground.number(*dpid));
        let roots = numbers.map(|at| (ground.members[at], ground.members[forest.roots[at]]));
        let roots: BTreeMap<DatapathId, DatapathId> = roots.collect();
        let connected = net.connected().map(|switch| switch.dpid);
        let outside = connected.filter(|dpid| !version.links.contains_key(dpid));
        let members = version.links.keys().copied();
        let by_packet_out = members.filter(|dpid| outbox.bonds.of_switch(*dpid).next().is_some());
        let delivery = Delivery {
            label: version.label,
            tag: self.tag(),
            links: version.links.clone(),
            firsts: roots.values().copied().collect(),
            roots,
            by_packet_out: by_packet_out.collect(),
            outside: outside.collect(),
        };
        State::Ready(delivery, is_best)
    }

    /// Changes the trees for which it is time. Returns an update for each.
    pub(in crate::controller) fn trees_due(
        &mut self,
        now: Instant,
        net: &Network,
        ingress: &mut Ingress,
        outbox: &mut Outbox,
    ) -> Vec<Vec<Stage>> {
        if self.trees.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        self.trees.due = None;
        // Links may still be found, and their inlets set.
        if self.is_stale {
            self.trees_soon(GATHER, outbox);
            return Vec::new();
        }
        let wanted = self.trees.by_vlan.iter_mut();
        let wanted = wanted.filter(|(_, tree)| tree.building.is_none() && tree.syncing.is_none());
        let wanted =
            wanted.filter_map(|(vlan, tree)| std::mem::take(&mut tree.is_wanted).then_some(*vlan));
        let mut updates = Vec::new();
        for vlan in wanted.collect::<Vec<_>>() {
            updates.push(self.change_tree(vlan, net, ingress, outbox));
        }
        if std::mem::take(&mut self.trees.has_leftovers) {
            updates.push(vec![self.leftovers(None)]);
        }
        updates
    }

    fn change_tree(
        &mut self,
        vlan: VlanId,
        net: &Network,
        ingress: &mut Ingress,
        outbox: &mut Outbox,
    ) -> Vec<Stage> {
        let ground = self.ground(net);
        let tree = self.trees.by_vlan.get_mut(&vlan);
        if tree.is_some_and(|tree| !std::mem::replace(&mut tree.is_begun, true)) {
            self.adopt_tree(vlan, &ground);
        }
        match self.examine(vlan, net, ingress, outbox) {
            State::Ready(_, true) | State::Unsettled => Vec::new(),
            State::Differs(pieces) => self.sync_tree(vlan, pieces),
            State::Ready(_, false) | State::Void => {
                self.build_tree(vlan, &ground, (net, ingress, outbox))
            }
        }
    }

    /// Takes over the tree whose pieces the switches hold, if there is one that is as good as any.
    fn adopt_tree(&mut self, vlan: VlanId, ground: &Ground) {
        let mut held: BTreeMap<Label, BTreeMap<DatapathId, BTreeSet<PortNo>>> = BTreeMap::new();
        for dpid in &ground.members {
            let pieces = self.nodes.get(dpid).map(|node| &node.sent.trees);
            let pieces = pieces.into_iter().flatten();
            for (label, piece) in pieces.filter(|(_, piece)| piece.vlan == vlan) {
                let links = held.entry(*label).or_default();
                links.insert(*dpid, piece.links.clone());
            }
        }
        let is_right = |links: &BTreeMap<DatapathId, BTreeSet<PortNo>>| {
            let forest = ground.check(links);
            forest.is_some_and(|forest| forest.is_as_good_as(&ground.best))
        };
        let found = held.into_iter().find(|(_, links)| is_right(links));
        if let (Some((label, links)), Some(tree)) = (found, self.trees.by_vlan.get_mut(&vlan)) {
            tree.current = Some(Version { label, links });
            (tree.delivery, self.trees.has_leftovers) = (None, true);
        }
    }

    /// Gives pieces of the current tree other edge ports.
    fn sync_tree(&mut self, vlan: VlanId, pieces: Vec<(DatapathId, Piece)>) -> Vec<Stage> {
        let revision = self.trees.next_change();
        self.trees.revision += 1;
        let Some(tree) = self.trees.by_vlan.get_mut(&vlan) else {
            return Vec::new();
        };
        let Some(label) = tree.current.as_ref().map(|version| version.label) else {
            return Vec::new();
        };
        (tree.syncing, tree.delivery) = (Some(revision), None);
        self.set_pieces((vlan, revision, label), pieces)
    }

    /// Makes a new tree beside the current one.
    fn build_tree(
        &mut self,
        vlan: VlanId,
        ground: &Ground,
        (net, ingress, outbox): (&Network, &mut Ingress, &Outbox),
    ) -> Vec<Stage> {
        self.trees.revision += 1;
        let label = self.free_tree_label().filter(|_| ground.has_links());
        let Some(label) = label else {
            if let Some(tree) = self.trees.by_vlan.get_mut(&vlan) {
                tree.current = None;
            }
            return vec![self.leftovers(Some(vlan))];
        };
        let links = ground.members.iter().copied().zip(&ground.links);
        let links = links.filter(|(_, ports)| !ports.is_empty());
        let links: BTreeMap<_, _> = links.map(|(dpid, ports)| (dpid, ports.clone())).collect();
        let piece = |(dpid, links): (&DatapathId, &BTreeSet<PortNo>)| {
            let piece = Piece {
                vlan,
                links: links.clone(),
                edges: edges_of_piece((*dpid, vlan), net, ingress, outbox),
            };
            (*dpid, piece)
        };
        let pieces = links.iter().map(piece).collect();
        let revision = self.trees.next_change();
        if let Some(tree) = self.trees.by_vlan.get_mut(&vlan) {
            tree.building = Some((revision, Version { label, links }));
        }
        let mut stages = self.set_pieces((vlan, revision, label), pieces);
        stages.push(self.leftovers(None));
        stages
    }

    /// The stages that set pieces and wait for all switches to confirm them.
    fn set_pieces(
        &self,
        (vlan, revision, label): (VlanId, u64, Label),
        pieces: Vec<(DatapathId, Piece)>,
    ) -> Vec<Stage> {
        let pieces = pieces.into_iter().map(|(dpid, piece)| FabricChange {
            dpid,
            revision,
            what: What::Tree(label, Some(piece)),
        });
        let set = Stage {
            fabric: pieces.collect(),
            ..Stage::default()
        };
        let is_confirmed = true;
        // Datapaths may follow their tables a while later.
        let confirmed = Stage {
            delay: SETTLE,
            tree: Some(TreeChange {
                vlan,
                revision,
                is_confirmed,
            }),
            ..Stage::default()
        };
        vec![set, confirmed]
    }

    /// The stage that deletes all pieces but those of trees that are used then, or that may be
    /// found to be one. `of`: also all of this VLAN.
    fn leftovers(&self, of: Option<VlanId>) -> Stage {
        let is_begun = |vlan: VlanId| match self.domains.contains_key(&vlan) {
            true => {
                let tree = self.trees.by_vlan.get(&vlan);
                tree.is_some_and(|tree| tree.current.is_some() || tree.building.is_some())
            }
            false => true,
        };
        let building = self.trees.by_vlan.values();
        let building = building.filter_map(|tree| Some(tree.building.as_ref()?.1.label));
        let building: BTreeSet<Label> = building.collect();
        let mut old = Vec::new();
        for (dpid, node) in &self.nodes {
            let pieces = node.sent.trees.iter();
            let pieces = pieces.filter(|(_, piece)| Some(piece.vlan) == of || is_begun(piece.vlan));
            let labels = pieces.map(|(label, _)| *label);
            old.extend(
                labels
                    .filter(|it| !building.contains(it))
                    .map(|it| (*dpid, it)),
            );
        }
        let old = old.into_iter().map(|(dpid, label)| FabricChange {
            dpid,
            revision: 0,
            what: What::Tree(label, None),
        });
        Stage {
            delay: DRAIN,
            fabric: old.collect(),
            ..Stage::default()
        }
    }

    /// A label that no egress has, and that no switch holds anything of.
    fn free_tree_label(&self) -> Option<Label> {
        let labels = (Label::MIN.0..=Label::MAX.0).rev().map(Label);
        let mut free = labels.filter(|label| self.is_free(*label));
        free.next()
    }

    /// Handles the confirmation of a change of a tree, or that some switch has not confirmed it.
    pub(in crate::controller) fn tree_changed(&mut self, change: TreeChange, outbox: &mut Outbox) {
        let Some(tree) = self.trees.by_vlan.get_mut(&change.vlan) else {
            return;
        };
        let is_it = |(revision, _): &mut (u64, Version)| *revision == change.revision;
        if let Some((_, version)) = tree.building.take_if(is_it)
            && change.is_confirmed
        {
            tree.current = Some(version);
        } else if tree.syncing == Some(change.revision) {
            tree.syncing = None;
            if !change.is_confirmed {
                tree.current = None;
            }
        }
        // A tree that is only partly there is deleted with the next one.
        if tree.is_wanted || !change.is_confirmed {
            self.want(change.vlan, outbox);
        }
        self.trees.revision += 1;
    }

    /// Notes that a switch holds pieces of an earlier process, or of a time when it was away.
    pub(super) fn handle_pieces(&mut self, dpid: DatapathId, outbox: &mut Outbox) {
        self.trees.revision += 1;
        let pieces = self.nodes.get(&dpid).map(|node| node.sent.trees.values());
        let vlans = pieces.into_iter().flatten().map(|piece| piece.vlan);
        let vlans: BTreeSet<VlanId> = vlans.collect();
        self.trees.has_leftovers |= !vlans.is_empty();
        for vlan in vlans {
            self.want(vlan, outbox);
        }
    }

    /// Whether a piece is still to be deleted: its tree is not used.
    pub(super) fn is_left_over(&self, label: Label) -> bool {
        !self.trees.has_label(label)
    }
}
