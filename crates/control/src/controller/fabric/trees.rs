//! Broadcast trees: one for each VLAN with broadcasts, and one for broadcasts outside of all VLANs.
//!
//! A tree is used only while everything that it relies on is unchanged: each broadcast checks this,
//! and the result is kept until something changes. Otherwise a broadcast costs a packet-out for
//! each switch, as it does without a fabric. So no other code has to take a tree out of use in
//! time.
//!
//! A new tree has a label of which no switch has a piece. It is used when all its switches have
//! confirmed their pieces. Then the pieces of the former tree are deleted.

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

/// The time to gather changes grows by this for each switch: a tree costs each switch two messages.
const GATHER_PER_SWITCH: Duration = Duration::from_millis(1);
const GATHER_MAX: Duration = Duration::from_secs(1);

/// A tree that was made `OFTEN` times within a minute, and is void again, waits for `PAUSE`, then
/// twice as long each time, up to the maximum.
const OFTEN: u32 = 3;
const OFTEN_WITHIN: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Maximum number of comparisons of a tree with the network in the time to gather changes. Beyond
/// it, broadcasts are sent switch by switch, and may overtake a broadcast under way along the tree.
const EXAMINED_MAX: u32 = 8;

/// Time for which a switch that did not confirm a piece gets none.
const RETRY: Duration = Duration::from_secs(60);

/// Pieces of trees that may be under way at once; one tree always may.
const PIECES_AT_ONCE: usize = 4096;

/// The trees of all VLANs.
#[derive(Default)]
pub(super) struct Trees {
    by_vlan: BTreeMap<VlanId, Tree>,
    /// Switches that refuse a piece: they get packet-outs until they reconnect or it is time to ask
    /// them again.
    refusing: BTreeMap<DatapathId, Option<Instant>>,
    /// Counts changes of members and their inlets.
    revision: u64,
    ground: Option<Arc<Ground>>,
    next_change: u64,
    /// Whether pieces may be left that belong to no tree.
    has_leftovers: bool,
    /// Whether a tree has ended for which there is no timer.
    has_lost: bool,
    due: Option<Instant>,
}

/// The tree of one VLAN.
#[derive(Default)]
struct Tree {
    current: Option<Version>,
    /// The next version, whose pieces are not confirmed, and the change that sets them.
    building: Option<(u64, Version)>,
    /// The change under way to edge ports of the current version.
    syncing: Option<u64>,
    /// Whether to examine it.
    is_wanted: bool,
    /// Whether the pieces on switches may no longer be adopted as a tree.
    is_begun: bool,
    /// When it was last made, and how often in a row.
    made_at: Option<Instant>,
    made: u32,
    /// The end of the pause before the next one.
    not_before: Instant,
    /// The end of the time in which it may be compared with the network `EXAMINED_MAX` times, and
    /// how often it was.
    examined_until: Instant,
    examined: u32,
    delivery: Option<(Seen, Option<Arc<Delivery>>)>,
}

struct Version {
    label: Label,
    /// The ports of its links, for each switch with links.
    links: BTreeMap<DatapathId, BTreeSet<PortNo>>,
}

/// The revisions of everything that trees rely on.
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

/// The result of comparing a tree with the network.
enum State {
    Ready(Delivery, bool),
    /// Some port of a piece is held.
    Unsettled,
    /// Pieces with other edge ports.
    Differs(Vec<(DatapathId, Piece)>),
    Void,
}

/// The edge ports of a switch's piece. The group of a bond is set and deleted with its ports, and
/// other groups that lead to it would keep it or be deleted along, so the controller serves such a
/// switch.
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

impl Tree {
    fn labels(&self) -> impl Iterator<Item = Label> + '_ {
        let building = self.building.as_ref().map(|(_, version)| version.label);
        let current = self.current.as_ref().map(|version| version.label);
        current.into_iter().chain(building)
    }
}

impl Trees {
    fn labels(&self) -> impl Iterator<Item = Label> + '_ {
        self.by_vlan.values().flat_map(Tree::labels)
    }

    /// Whether a tree has a label, or is about to.
    pub(super) fn has_label(&self, label: Label) -> bool {
        self.labels().any(|of| of == label)
    }

    /// Handles a connection of a switch. Returns the last change before it.
    pub(super) fn forget(&mut self, dpid: DatapathId) -> u64 {
        self.refusing.remove(&dpid);
        self.revision += 1;
        self.next_change
    }

    /// Excludes a switch from all trees until it reconnects or is to be asked again. Returns
    /// whether that is new.
    fn refuse(&mut self, dpid: DatapathId, until: Option<Instant>) -> bool {
        self.revision += 1;
        let is_new = !self.refusing.contains_key(&dpid);
        let known = self.refusing.entry(dpid).or_insert(until);
        *known = known.and(until);
        is_new
    }

    /// Lets refusing switches that are due take part again. Returns when the next one is due.
    fn ask_again(&mut self, now: Instant) -> Option<Instant> {
        let before = self.refusing.len();
        let is_due = |until: &Option<Instant>| until.is_some_and(|until| until <= now);
        self.refusing.retain(|_, until| !is_due(until));
        if self.refusing.len() < before {
            self.revision += 1;
            for tree in self.by_vlan.values_mut() {
                tree.is_wanted = true;
            }
        }
        self.refusing.values().flatten().min().copied()
    }

    /// Ends the use of trees with a link from which a switch accepts no packets for a while.
    pub(super) fn lose_link(&mut self, at: Location) {
        self.revision += 1;
        for tree in self.by_vlan.values_mut() {
            let has_it = |version: &Version| {
                let links = version.links.get(&at.dpid);
                links.is_some_and(|ports| ports.contains(&at.port))
            };
            if tree.current.take_if(|version| has_it(version)).is_some() {
                (tree.is_wanted, self.has_lost) = (true, true);
            }
        }
    }

    /// Whether a tree has ended since the last time.
    pub(super) fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.has_lost)
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

    /// The ports of all switches with links of a version; `None` if the version has other switches.
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

    /// The trees of a version, if all its links exist.
    fn check(&self, links: &BTreeMap<DatapathId, BTreeSet<PortNo>>) -> Option<Forest> {
        tree::check(&self.graph, &self.place(links)?)
    }

    fn has_links(&self) -> bool {
        self.links.iter().any(|ports| !ports.is_empty())
    }
}

impl Fabric {
    /// Returns how the broadcasts of a VLAN, or those outside of all VLANs, reach all switches;
    /// `None` if not by trees.
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
        let (seen, wait) = (self.seen(net), self.gather());
        let tree = self.trees.by_vlan.entry(vlan).or_default();
        if let Some((_, delivery)) = tree.delivery.as_ref().filter(|(as_of, _)| *as_of == seen) {
            return delivery.clone();
        }
        // Where much changes, the tree would be compared for each packet.
        if outbox.now >= tree.examined_until {
            (tree.examined_until, tree.examined) = (outbox.now + wait, 0);
        }
        if tree.examined >= EXAMINED_MAX {
            return None;
        }
        tree.examined += 1;
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

    /// The time to gather changes.
    fn gather(&self) -> Duration {
        let members = self.nodes.len() as u32;
        GATHER + (GATHER_PER_SWITCH * members).min(GATHER_MAX)
    }

    fn want(&mut self, vlan: VlanId, outbox: &mut Outbox) {
        let wait = self.gather();
        self.trees.by_vlan.entry(vlan).or_default().is_wanted = true;
        self.trees_soon(wait, outbox);
    }

    pub(super) fn trees_soon(&mut self, wait: Duration, outbox: &mut Outbox) {
        let due = outbox.now + wait;
        if self.trees.due.is_none_or(|set| due < set) {
            self.trees.due = Some(due);
            outbox.timer(due, Timer::Trees);
        }
    }

    /// Requests an examination of all trees: state that they rely on may be lost, also where nobody
    /// sends broadcasts.
    pub(super) fn doubt_trees(&mut self, outbox: &mut Outbox) {
        self.trees.revision += 1;
        let trees = self.trees.by_vlan.iter();
        let used = trees.filter(|(_, tree)| tree.current.is_some());
        for vlan in used.map(|(vlan, _)| *vlan).collect::<Vec<_>>() {
            self.want(vlan, outbox);
        }
    }

    /// Gives up all trees: changes under way may be lost.
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

    /// Ends the trees of VLANs that no longer exist.
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

    /// Excludes a switch that refuses a piece from all trees until it reconnects: asking it again
    /// would cost all others their tree for a while. Returns whether that is new.
    pub(in crate::controller) fn handle_tree_refused(
        &mut self,
        dpid: DatapathId,
        outbox: &mut Outbox,
    ) -> bool {
        let is_new = self.trees.refuse(dpid, None);
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
            node.is_ready && net.is_connected(*dpid) && !self.trees.refusing.contains_key(dpid)
        };
        let map = Map::new(net, &self.nodes);
        let lets_in = |at: usize, port: PortNo| {
            let dpid = &map.members[at];
            let node = self.nodes.get(dpid);
            node.is_some_and(|node| {
                let is_left = node.leaving_inlets.contains_key(&port);
                let at = Location { dpid: *dpid, port };
                // A copy would also be made of packets that are not sent back to their ingress
                // port.
                let copies = net.copies_out(at);
                // Both directions of one link: behind a hub there are more.
                let is_sole = net.links.ends(at).links == 2;
                let is_inlet = node.sent.inlets.contains(&port) && !is_left;
                takes_part(dpid, node) && is_inlet && is_sole && !copies
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
            let (now, before) = (edges.forms(), sent.edges.forms());
            let mut is_other = !now.is_subset(&before);
            for (_, port) in before.difference(&now) {
                let at = Location {
                    dpid: *dpid,
                    port: *port,
                };
                let is_down = net.port(at).is_some_and(|port| !port.state.is_up());
                match net.role(at) {
                    // A port that has just come up may become an edge again, above all after a
                    // restart.
                    PortRole::Held => is_held = true,
                    // Nothing leaves by a port that is down, and when the port is up again it is
                    // held.
                    _ if is_down => {}
                    _ => is_other = true,
                }
            }
            if is_other {
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

    /// Changes the trees that are due. Returns an update for each.
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
        if let Some(next) = self.trees.ask_again(now) {
            self.trees_soon(next.since(now), outbox);
        }
        let is_busy = |tree: &&mut Tree| tree.building.is_some() || tree.syncing.is_some();
        let busy = self
            .trees
            .by_vlan
            .values_mut()
            .filter(|it| is_busy(it))
            .count();
        let at_once = (PIECES_AT_ONCE / self.nodes.len().max(1)).max(1);
        let room = at_once.saturating_sub(busy);
        let wanted = self.trees.by_vlan.iter_mut();
        let wanted = wanted.filter(|(_, tree)| tree.is_wanted && !is_busy(tree));
        let (late, mut wanted): (Vec<_>, Vec<_>) = wanted.partition(|(_, it)| now < it.not_before);
        let next = late.iter().map(|(_, tree)| tree.not_before).min();
        // The others' turn comes when one of these is confirmed.
        wanted.truncate(room);
        let take = |(vlan, tree): (&VlanId, &mut Tree)| {
            tree.is_wanted = false;
            *vlan
        };
        let wanted: Vec<VlanId> = wanted.into_iter().map(take).collect();
        if let Some(next) = next {
            self.trees_soon(next.since(now), outbox);
        }
        let mut updates = Vec::new();
        for vlan in wanted {
            updates.push(self.change_tree(vlan, net, ingress, outbox));
        }
        if std::mem::take(&mut self.trees.has_leftovers) {
            updates.push(vec![self.leftovers(None, false)]);
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

    /// Adopts a tree whose pieces the switches have, if there is one that is as good as the best.
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

    /// Changes the edge ports of pieces of the current tree.
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
            return vec![self.leftovers(Some(vlan), true)];
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
            let now = outbox.now;
            let is_often = tree.made_at.is_some_and(|at| now.since(at) < OFTEN_WITHIN);
            tree.made = if is_often {
                tree.made.saturating_add(1)
            } else {
                1
            };
            tree.made_at = Some(now);
            if let Some(more) = tree.made.checked_sub(OFTEN) {
                let pause = PAUSE * 2_u32.saturating_pow(more.min(16));
                tree.not_before = now + pause.min(PAUSE_MAX);
            }
        }
        let mut stages = self.set_pieces((vlan, revision, label), pieces);
        stages.push(self.leftovers(Some(vlan), false));
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
        let lacking = None;
        // Datapaths may follow their tables only after a while.
        let confirmed = Stage {
            delay: SETTLE,
            tree: Some(TreeChange {
                vlan,
                revision,
                lacking,
            }),
            ..Stage::default()
        };
        vec![set, confirmed]
    }

    /// The stage that deletes all pieces, or those of one VLAN, except pieces of trees that are in
    /// use by then, and pieces that may yet be adopted as a tree. `all`: also the latter.
    fn leftovers(&self, of: Option<VlanId>, all: bool) -> Stage {
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
            let pieces = pieces.filter(|(_, piece)| of.is_none_or(|vlan| piece.vlan == vlan));
            let pieces = pieces.filter(|(_, piece)| all || is_begun(piece.vlan));
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

    /// A label that no egress or tree has, and of which no switch has entries.
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
        let is_confirmed = change.lacking.is_none();
        if let Some((_, version)) = tree.building.take_if(is_it)
            && is_confirmed
        {
            tree.current = Some(version);
        } else if tree.syncing == Some(change.revision) {
            tree.syncing = None;
            // There may be a better tree by now.
            tree.is_wanted = true;
            if !is_confirmed {
                tree.current = None;
            }
        }
        // A tree that is only partly set is deleted with the next one.
        if !is_confirmed {
            self.want(change.vlan, outbox);
        }
        if self.trees.by_vlan.values().any(|tree| tree.is_wanted) {
            self.trees_soon(GATHER, outbox);
        }
        // This switch would keep all others waiting. Requests from before it connected prove
        // nothing.
        let is_later = |node: &Node| node.last_tree < change.revision;
        let node = |dpid: &DatapathId| self.nodes.get(dpid);
        let lacking = change.lacking;
        if let Some(dpid) = lacking.filter(|dpid| node(dpid).is_some_and(is_later)) {
            self.trees.refuse(dpid, Some(outbox.now + RETRY));
            self.trees_soon(RETRY, outbox);
        }
        self.trees.revision += 1;
    }

    /// Handles a packet-in of a tree's packet at a link of the tree: the switch has lost its piece.
    pub(in crate::controller) fn handle_tree_miss(
        &mut self,
        at: Location,
        label: Label,
        outbox: &mut Outbox,
    ) {
        let mut trees = self.trees.by_vlan.iter_mut();
        let is_it = |version: &Version| {
            let links = version.links.get(&at.dpid);
            version.label == label && links.is_some_and(|ports| ports.contains(&at.port))
        };
        let lost = trees.find(|(_, tree)| tree.current.as_ref().is_some_and(is_it));
        if let Some((vlan, tree)) = lost {
            tree.current = None;
            let vlan = *vlan;
            self.trees.revision += 1;
            self.want(vlan, outbox);
        }
    }

    /// Notes that a switch has pieces from an earlier process, or from a time when it was
    /// disconnected.
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
    pub(super) fn is_left_over(&self, dpid: DatapathId, label: Label) -> bool {
        let piece = self
            .nodes
            .get(&dpid)
            .and_then(|it| it.sent.trees.get(&label));
        let tree = piece.and_then(|piece| self.trees.by_vlan.get(&piece.vlan));
        !tree.is_some_and(|tree| tree.labels().any(|of| of == label))
    }
}
