//! The fabric: labels, routes and hosts on the switches that support it, and when each is in use.
//!
//! The machine compares the state that every switch should have with the state sent to it, and
//! returns the difference as stages. A stage is sent when all switches have confirmed the one
//! before. So no packet loops while routes change ([`plan::ranks`]), and a host is published to the
//! edges only when its egress and all routes to it are ready.
//!
//! A switch without OpenFlow 1.3 or without enough tables, or one that refuses a fast-failover
//! group, stays outside. Paths from and to it are set hop by hop. A switch that refuses a group
//! that shares ports gets fast-failover groups instead.

mod adopt;
pub(super) mod change;
mod delivery;
mod ingress;
mod routes;
mod trees;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clock::{Duration, Instant, mix};
use openflow::message::{Capabilities, GroupModCommand};
use openflow::{DatapathId, ErrorKind, Message, PortNo, Version};

use crate::Location;
use crate::edge::{DomainView, EdgeUpdate, FabricView};
use crate::fabric::addresses::Addresses;
use crate::fabric::form::{self, Holdings, HostPort, Part};
use crate::fabric::places::Writer;
use crate::fabric::plan::{self, Graph, Neighbour, Route};
use crate::fabric::tree::{self, Piece};
use crate::fabric::{Exit, Label, Labels, replication};
use crate::session::SwitchUp;
use crate::timeouts::{FirstPackets, Timeouts};
use crate::vlan::{HostKey, VlanId};

use super::config::{ControllerConfig, FabricConfig};
use super::entries::{DRAIN, SETTLE};
use super::event::Alarm;
use super::hosts::Hosts;
use super::network::Network;
use super::outbox::{Outbox, Timer};
use super::stage::Stage;

use change::{FabricChange, What};
pub(super) use delivery::Delivery;
use routes::Routes;
use trees::Trees;

/// Time to gather learned hosts before their entries are set.
const GATHER: Duration = Duration::from_millis(20);

/// Time to gather failures that happen together.
const GATHER_FAILURES: Duration = Duration::from_millis(2);

/// The maximum factor by which `GATHER_FAILURES` grows to gather new links and switches.
const GATHERED_MAX: usize = 512;

/// The cost of a link of a switch without a connection: it is used only where there is no other
/// path.
const AWAY_COST: u32 = 1 << 20;

/// The number of tables that the fabric needs.
const TABLES_MIN: u8 = 4;

/// Time after which routes of an earlier process are examined again.
const EXAMINE: Duration = Duration::from_millis(100);

/// Time between two deletions of the same stale entries.
const CORRECT_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of stale hosts remembered to keep `CORRECT_INTERVAL`.
const CORRECTED_MAX: usize = 256;

pub(super) struct Fabric {
    config: Option<FabricConfig>,
    /// Whether switches copy multicast.
    copies: bool,
    /// The network outside of VLANs, and each VLAN.
    domains: BTreeMap<VlanId, Domain>,
    /// The seed of the domains' tables.
    seed: u64,
    /// Whether edges set a pair's entry before they answer the question of one host for the other's
    /// address.
    presets: bool,
    nodes: BTreeMap<DatapathId, Node>,
    egresses: BTreeMap<Label, Egress>,
    /// The label that is tried first for the next egress. Labels are assigned from the highest
    /// down, since hosts use low VLAN ids.
    next_label: u16,
    revision: u64,
    /// Whether a change of this revision is under way.
    is_changing: bool,
    /// Whether the change under way relies on outdated state, so that the next change ends it.
    is_outdated: bool,
    /// Whether members or their links have changed since a change has considered them.
    is_stale: bool,
    /// Egresses whose routes are computed first: they use a lost link.
    urgent: BTreeSet<Label>,
    /// Egresses whose routes are to be computed.
    waiting: BTreeSet<Label>,
    /// The label in `waiting` from which the next change continues.
    next_waiting: Label,
    /// The egresses of the change under way.
    under_way: BTreeSet<Label>,
    /// Egresses to which routes were set, so that hosts may be published there.
    planned: Labels,
    due: Option<Instant>,
    /// The latest time until which routes of an earlier process are left as they are.
    adopted_until: Option<Instant>,
    /// Whether the reach of an edge may have changed.
    is_reach_stale: bool,
    /// Whether anything else that edges know has changed.
    is_view_stale: bool,
    /// Hosts whose entry was sent, and which are not yet published to the edges.
    unpublished: BTreeMap<HostKey, DatapathId>,
    corrected: BTreeMap<(DatapathId, HostKey), Instant>,
    /// Switches with an earlier process's entry for a host whose place has not been found since.
    held_at: BTreeMap<HostKey, BTreeSet<DatapathId>>,
    /// The broadcast trees.
    trees: Trees,
}

/// The hosts of one VLAN, or those outside of all VLANs, as edges know them.
struct Domain {
    places: Writer,
    /// The owners of addresses.
    addresses: Arc<Addresses>,
}

/// The end of a label: a switch with hosts of one VLAN, or outside of all VLANs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Egress {
    dpid: DatapathId,
    vlan: VlanId,
}

/// A switch.
#[derive(Default)]
struct Node {
    is_capable: bool,
    is_connected: bool,
    /// Whether its groups and entries are known.
    is_ready: bool,
    /// Its entries, until its groups are known.
    holdings: Option<Holdings>,
    /// Its label for each VLAN in which it has hosts.
    labels: BTreeMap<VlanId, Label>,
    /// VLANs in which it has hosts, and for which no label was left.
    unlabelled: BTreeSet<VlanId>,
    /// Whether it has refused a group that shares ports.
    refuses_shares: bool,
    sent: Sent,
    /// Routes about to be deleted, each with the revision that deletes it. The switch's edge must
    /// not use them.
    leaving: BTreeMap<Label, u64>,
    /// Inlets about to be deleted, each with the revision that deletes it.
    leaving_inlets: BTreeMap<PortNo, u64>,
    /// Hosts whose entries are to be set.
    new_hosts: BTreeMap<HostKey, PortNo>,
    /// Hosts whose entries a change under way sets.
    coming_hosts: BTreeMap<HostKey, PortNo>,
    /// The egresses reported to its edge as reachable; `None` before the first report.
    told: Option<Labels>,
    /// The labels that entries of an earlier edge lead to, each with the VLAN of the packets.
    adopted: BTreeSet<(Label, VlanId)>,
    /// The last change of a tree before the switch connected.
    last_tree: u64,
}

/// The state that the messages sent to a switch produce.
#[derive(Default)]
struct Sent {
    base: bool,
    own: BTreeMap<VlanId, Label>,
    inlets: BTreeSet<PortNo>,
    routes: Routes,
    hosts: BTreeMap<HostKey, HostPort>,
    trees: BTreeMap<Label, Piece>,
}

impl Sent {
    fn is_empty(&self) -> bool {
        let has_ways = !self.routes.is_empty() || !self.trees.is_empty();
        !self.base && self.own.is_empty() && self.inlets.is_empty() && !has_ways
    }

    /// The number of entries, without those of detours.
    fn entry_count(&self, copies: bool) -> usize {
        let base = usize::from(self.base) * base(copies).len();
        let of_trees = self.trees.values().map(|piece| piece.links.len());
        let ways = 2 * self.routes.len() + of_trees.sum::<usize>();
        base + self.own.len() + self.inlets.len() + ways + self.hosts.len()
    }

    /// The messages that delete all of this state.
    fn clear(self, copies: bool) -> Vec<Message> {
        let mut parts = Vec::new();
        if self.base {
            parts.extend(base(copies));
        }
        let own = self.own.into_iter();
        parts.extend(own.flat_map(|(vlan, label)| form::own(vlan, label)));
        parts.extend(self.inlets.into_iter().flat_map(form::inlet));
        let hosts = self.hosts.into_iter();
        parts.extend(hosts.flat_map(|(key, at)| form::host(key, &at)));
        let routes = self.routes.iter();
        parts.extend(routes.flat_map(|(label, route)| form::route(*label, route)));
        let trees = self.trees.iter();
        parts.extend(trees.flat_map(|(label, piece)| tree::parts(*label, piece)));
        form::change(parts, Vec::new(), 0)
    }
}

impl Domain {
    fn new(seed: u64, addresses: &Arc<Addresses>) -> Domain {
        Domain {
            places: Writer::new(seed),
            addresses: addresses.clone(),
        }
    }
}

impl Node {
    /// Whether the switch takes part, also while it is disconnected: its entries still exist.
    fn is_member(&self) -> bool {
        self.is_capable && (self.is_ready || self.sent.base)
    }
}

impl Fabric {
    pub(super) fn new(config: &ControllerConfig, seed: u64, addresses: &Arc<Addresses>) -> Fabric {
        Fabric {
            config: config.fabric,
            copies: config.multicast.is_some(),
            domains: [(VlanId::NONE, Domain::new(seed, addresses))].into(),
            seed,
            presets: presets(&config.timeouts),
            nodes: BTreeMap::new(),
            egresses: BTreeMap::new(),
            next_label: Label::MAX.0,
            revision: 0,
            is_changing: false,
            is_outdated: false,
            is_stale: false,
            urgent: BTreeSet::new(),
            waiting: BTreeSet::new(),
            next_waiting: Label::MIN,
            under_way: BTreeSet::new(),
            planned: Labels::default(),
            due: None,
            adopted_until: None,
            is_reach_stale: false,
            is_view_stale: false,
            unpublished: BTreeMap::new(),
            corrected: BTreeMap::new(),
            held_at: BTreeMap::new(),
            trees: Trees::default(),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.config.is_some()
    }

    /// The number of entries of a switch, without those of detours.
    pub(super) fn entry_count(&self, dpid: DatapathId) -> usize {
        let node = self.nodes.get(&dpid);
        node.map_or(0, |node| node.sent.entry_count(self.copies))
    }

    /// The exit from a switch to a host behind an egress, if it is in use.
    pub(super) fn exit(&self, from: DatapathId, dst: HostKey, to: Location) -> Option<Exit> {
        let label = self.published(dst)?;
        let egress = Egress {
            dpid: to.dpid,
            vlan: dst.vlan,
        };
        let is_there = self.egresses.get(&label) == Some(&egress);
        let told = self.nodes.get(&from)?.told.as_ref()?;
        (is_there && told.contains(label)).then_some(Exit::Egress(label))
    }

    /// The label of an egress to which routes were set, also while the switch is away.
    pub(super) fn egress_label(&self, dpid: DatapathId, vlan: VlanId) -> Option<Label> {
        let label = *self.nodes.get(&dpid)?.labels.get(&vlan)?;
        self.planned.contains(label).then_some(label)
    }

    /// Whether a switch leads to an egress, as last reported to its edge.
    pub(super) fn leads_to(&self, dpid: DatapathId, label: Label) -> bool {
        let told = self.nodes.get(&dpid).and_then(|node| node.told.as_ref());
        told.is_some_and(|told| told.contains(label))
    }

    /// Whether a switch takes groups that share ports, as far as is known.
    pub(super) fn shares_ports(&self, dpid: DatapathId) -> bool {
        let node = self.nodes.get(&dpid);
        node.is_some_and(|node| !node.refuses_shares)
    }

    /// Whether a switch can take part.
    pub(super) fn is_capable(&self, dpid: DatapathId) -> bool {
        self.nodes.get(&dpid).is_some_and(|node| node.is_capable)
    }

    /// Whether a switch takes part by now.
    pub(super) fn has_tables(&self, dpid: DatapathId) -> bool {
        self.nodes.get(&dpid).is_some_and(|node| node.is_ready)
    }

    pub(super) fn tag(&self) -> u16 {
        self.config.unwrap_or_default().tag
    }

    /// The egress of a host as the edges know it.
    fn published(&self, host: HostKey) -> Option<Label> {
        let domain = self.domains.get(&host.vlan)?;
        domain.places.places().get(host.mac)
    }

    fn unpublish(&mut self, host: HostKey) {
        if let Some(domain) = self.domains.get_mut(&host.vlan) {
            domain.places.remove(host.mac);
        }
    }

    /// Replaces the set of VLANs, with the owners of their addresses. Frees the labels of VLANs
    /// that no longer exist.
    pub(super) fn set_vlans(
        &mut self,
        vlans: impl Iterator<Item = (VlanId, Arc<Addresses>)>,
        outbox: &mut Outbox,
    ) {
        let vlans: BTreeMap<VlanId, Arc<Addresses>> = vlans.collect();
        self.domains
            .retain(|vlan, _| vlan.is_none() || vlans.contains_key(vlan));
        for (vlan, addresses) in &vlans {
            let fresh = || Domain::new(self.seed ^ u64::from(vlan.number()) << 32, addresses);
            self.domains.entry(*vlan).or_insert_with(fresh);
        }
        let is_gone = |vlan: &VlanId| !vlan.is_none() && !vlans.contains_key(vlan);
        for node in self.nodes.values_mut() {
            node.unlabelled.retain(|vlan| !is_gone(vlan));
            for (_, label) in node.labels.extract_if(.., |vlan, _| is_gone(vlan)) {
                self.egresses.remove(&label);
                self.planned.remove(label);
                (self.is_stale, self.is_reach_stale) = (true, true);
            }
        }
        self.unpublished.retain(|host, _| !is_gone(&host.vlan));
        self.end_trees(outbox);
        self.is_view_stale = true;
        if self.is_on() {
            self.tell_edges(outbox);
            self.soon(outbox.now, GATHER, outbox);
        }
    }

    /// The VLAN of the hosts that a label leads to.
    pub(super) fn vlan_of(&self, label: u16) -> Option<VlanId> {
        let egress = self.egresses.get(&Label(label));
        egress.map(|egress| egress.vlan)
    }

    /// Whether the fabric forwards packets between two switches, or will in a moment, so that no
    /// path is set for them.
    pub(super) fn will_lead(&self, from: DatapathId, dst: HostKey, to: Location) -> bool {
        let (Some(here), Some(there)) = (self.nodes.get(&from), self.nodes.get(&to.dpid)) else {
            return false;
        };
        if !self.is_on() || !here.is_ready || !there.is_ready {
            return false;
        }
        if there.unlabelled.contains(&dst.vlan) {
            return false;
        }
        let published = self.published(dst);
        let is_published = published.is_some() && published.as_ref() == there.labels.get(&dst.vlan);
        !is_published || self.is_changing || self.exit(from, dst, to).is_some()
    }

    /// Whether a port was a link of an earlier process, or may have been one: the switch at its
    /// other end may not have connected yet.
    pub(super) fn was_link(&self, at: Location) -> bool {
        let is_link = |node: &Node| match node.is_ready {
            true => node.sent.inlets.contains(&at.port),
            false => node.is_capable,
        };
        self.nodes.get(&at.dpid).is_some_and(is_link)
    }

    pub(super) fn handle_up(&mut self, dpid: DatapathId, up: &SwitchUp) {
        if !self.is_on() {
            return;
        }
        let node = self.nodes.entry(dpid).or_default();
        let has_groups = up.features.capabilities.contains(Capabilities::GROUP_STATS);
        let has_tables = up.features.n_tables >= TABLES_MIN;
        node.is_capable = up.version >= Version::V13 && has_groups && has_tables;
        (node.is_connected, node.is_ready) = (true, false);
        (node.holdings, node.told) = (None, None);
        node.adopted.clear();
        node.last_tree = self.trees.forget(dpid);
    }

    pub(super) fn handle_down(&mut self, dpid: DatapathId) {
        if let Some(node) = self.nodes.get_mut(&dpid) {
            (node.is_connected, node.is_ready) = (false, false);
            (node.holdings, node.told) = (None, None);
        }
        self.trees.touch();
    }

    /// Forgets a switch. Returns whether it took part.
    pub(super) fn forget(&mut self, dpid: DatapathId) -> bool {
        self.free(dpid);
        self.trees.forget(dpid);
        let took_part = self
            .nodes
            .remove(&dpid)
            .is_some_and(|node| node.is_member());
        self.held_at.retain(|_, switches| {
            switches.remove(&dpid);
            !switches.is_empty()
        });
        took_part
    }

    /// Frees the labels of a switch, so that edges stop sending packets to its hosts.
    fn free(&mut self, dpid: DatapathId) {
        let Some(node) = self.nodes.get_mut(&dpid) else {
            return;
        };
        let labels = std::mem::take(&mut node.labels);
        let hosts: Vec<HostKey> = node.sent.hosts.keys().copied().collect();
        for label in labels.values() {
            self.egresses.remove(label);
            self.planned.remove(*label);
        }
        for host in hosts {
            if self.published(host).as_ref() == labels.get(&host.vlan) {
                self.unpublish(host);
            }
        }
        self.unpublished.retain(|_, of| *of != dpid);
    }

    /// Marks the routes to all egresses to be computed again.
    fn compute_all(&mut self) {
        self.is_stale = true;
        self.waiting.extend(self.egresses.keys());
    }

    /// Marks the routes that use lost links to be computed again. The other routes are the same
    /// without these links.
    fn compute_without(&mut self, lost: &[(Location, Location)]) {
        (self.is_stale, self.is_outdated) = (true, true);
        for end in lost.iter().flat_map(|(from, to)| [from, to]) {
            let node = self.nodes.get(&end.dpid).filter(|node| node.is_member());
            let Some(node) = node else {
                continue;
            };
            // The routes sent to a switch are the computed ones only if the switch was ready.
            if !node.is_ready {
                self.waiting.extend(self.egresses.keys());
            }
            let uses =
                |route: &Route| route.ports.contains(end.port) || route.other == Some(end.port);
            let users = node.sent.routes.iter().filter(|(_, route)| uses(route));
            self.urgent.extend(users.map(|(label, _)| *label));
        }
    }

    /// The hosts that the switches' entries name.
    pub(super) fn hosts_told(&self) -> Vec<(HostKey, Location)> {
        let mut told = Vec::new();
        for (dpid, node) in self.nodes.iter().filter(|(_, node)| node.is_ready) {
            let at = |host: &HostPort| Location::new(*dpid, host.port);
            told.extend(node.sent.hosts.iter().map(|(key, host)| (*key, at(host))));
        }
        told
    }

    /// Excludes a switch that refuses a part of the fabric. Returns whether it took part. Its
    /// entries and groups are deleted when no other switch's routes lead through it.
    fn exclude(&mut self, dpid: DatapathId, outbox: &mut Outbox) -> bool {
        let Some(node) = self.nodes.get_mut(&dpid).filter(|node| node.is_capable) else {
            return false;
        };
        (node.is_capable, node.is_ready) = (false, false);
        node.new_hosts.clear();
        node.coming_hosts.clear();
        self.trees.touch();
        if node.told.take().is_some() {
            outbox.tell_edge(dpid, EdgeUpdate::Fabric(self.view(Labels::default())));
        }
        self.free(dpid);
        true
    }

    /// Handles a host at an edge port.
    pub(super) fn handle_host(&mut self, host: HostKey, at: Location, outbox: &mut Outbox) {
        if self.is_on() && self.note_host(host, at, outbox) {
            self.soon(outbox.now, GATHER, outbox);
        }
    }

    /// Notes that a host is at an edge port. Returns whether there is something to do.
    fn note_host(&mut self, host: HostKey, at: Location, outbox: &mut Outbox) -> bool {
        for dpid in self.held_at.remove(&host).unwrap_or_default() {
            if dpid != at.dpid {
                self.forget_host(host, dpid, outbox);
            }
        }
        let published = self.published(host);
        let Some(node) = self.nodes.get_mut(&at.dpid).filter(|node| node.is_capable) else {
            return false;
        };
        if node.sent.hosts.get(&host).map(|sent| sent.port) != Some(at.port) {
            return node.new_hosts.insert(host, at.port) != Some(at.port);
        }
        let is_published = published.is_some() && published.as_ref() == node.labels.get(&host.vlan);
        !is_published && self.unpublished.insert(host, at.dpid) != Some(at.dpid)
    }

    /// Notes that a host is no longer at a switch: packets to it become packet-ins there.
    pub(super) fn forget_host(&mut self, host: HostKey, dpid: DatapathId, outbox: &mut Outbox) {
        let published = self.published(host);
        let Some(node) = self.nodes.get_mut(&dpid) else {
            return;
        };
        node.new_hosts.remove(&host);
        node.coming_hosts.remove(&host);
        if let Some(at) = node.sent.hosts.remove(&host) {
            for message in form::change(form::host(host, &at), Vec::new(), 0) {
                outbox.send(dpid, message);
            }
        }
        if published.is_some() && published.as_ref() == node.labels.get(&host.vlan) {
            self.unpublish(host);
        }
        if self.unpublished.get(&host) == Some(&dpid) {
            self.unpublished.remove(&host);
        }
    }

    /// Whether to delete the entries of a switch towards a host that has left: not if they were
    /// deleted a moment ago.
    fn may_correct(&mut self, now: Instant, dpid: DatapathId, host: HostKey) -> bool {
        let is_recent = |at: &Instant| now.since(*at) < CORRECT_INTERVAL;
        if self.corrected.len() >= CORRECTED_MAX {
            self.corrected.retain(|_, at| is_recent(at));
        }
        if self.corrected.len() >= CORRECTED_MAX {
            return false;
        }
        let before = self.corrected.insert((dpid, host), now);
        !before.as_ref().is_some_and(is_recent)
    }

    /// Computes the routes again: links or switches have changed.
    pub(super) fn again(&mut self, now: Instant, outbox: &mut Outbox) {
        self.doubt_trees(outbox);
        self.is_outdated = true;
        self.compute_all();
        self.soon(now, GATHER_FAILURES, outbox);
    }

    /// Computes the routes over these lost links again.
    pub(super) fn handle_lost(
        &mut self,
        now: Instant,
        lost: &[(Location, Location)],
        outbox: &mut Outbox,
    ) {
        if !lost.is_empty() {
            self.doubt_trees(outbox);
            self.compute_without(lost);
            self.soon(now, GATHER_FAILURES, outbox);
        }
    }

    /// Moves routes away from a link that drops full-size frames with a tag.
    pub(super) fn handle_narrow(
        &mut self,
        now: Instant,
        (from, to): (Location, Location),
        outbox: &mut Outbox,
    ) {
        let nodes = [from, to].map(|end| self.nodes.get(&end.dpid));
        if nodes.iter().flatten().filter(|n| n.is_member()).count() == 2 {
            outbox.alarm_once(now, Alarm::LinkNarrow { from, to });
            self.handle_lost(now, &[(from, to)], outbox);
        }
    }

    /// Computes the routes again after links or switches were added. The larger the fabric, the
    /// longer such additions are gathered.
    pub(super) fn handle_more(&mut self, now: Instant, outbox: &mut Outbox) {
        self.doubt_trees(outbox);
        self.compute_all();
        let members = self.nodes.len();
        let changes = members.div_ceil(self.egresses_at_once(members));
        let wait = GATHER_FAILURES * changes.pow(2).min(GATHERED_MAX) as u32;
        self.soon(now, wait, outbox);
    }

    /// Excludes a switch that does not accept its groups or entries.
    pub(super) fn handle_refused(
        &mut self,
        now: Instant,
        (dpid, error): (DatapathId, Option<ErrorKind>),
        outbox: &mut Outbox,
    ) {
        if self.exclude(dpid, outbox) {
            outbox.alarm(Alarm::FabricRefused { dpid, error });
            self.again(now, outbox);
        }
    }

    /// Makes a switch that refuses a group that shares ports use the first of the ports. The change
    /// under way relied on the group, so it is computed and confirmed again.
    pub(super) fn handle_unshared(
        &mut self,
        now: Instant,
        (dpid, error): (DatapathId, ErrorKind),
        (command, label): (GroupModCommand, Label),
        outbox: &mut Outbox,
    ) {
        let Some(node) = self.nodes.get_mut(&dpid).filter(|node| node.is_ready) else {
            return;
        };
        let is_first = !std::mem::replace(&mut node.refuses_shares, true);
        if let Some(route) = node.sent.routes.get_mut(&label).filter(|r| r.shares) {
            let held = match command {
                GroupModCommand::Modify => form::route(label, route),
                _ => Vec::new(),
            };
            route.shares = false;
            send_change(dpid, held, form::route(label, route), outbox);
        }
        if is_first {
            outbox.alarm(Alarm::FabricUnshared { dpid, error });
            self.revision += 1;
            self.again(now, outbox);
        }
    }

    /// Handles a labelled packet that has reached a switch without its receiver: the entry that
    /// sent the packet there is stale.
    pub(super) fn correct_ingress(
        &mut self,
        hosts: &Hosts,
        now: Instant,
        (at, src, dst): (Location, HostKey, HostKey),
        outbox: &mut Outbox,
    ) {
        if !self.is_on() {
            return;
        }
        let from = hosts.place(src.mac).filter(|from| from.dpid != at.dpid);
        if let Some(from) = from
            && hosts.place(dst.mac).is_none_or(|to| to.dpid != at.dpid)
            && self.may_correct(now, from.dpid, dst)
        {
            outbox.tell_edge(from.dpid, EdgeUpdate::Stale(dst));
        }
    }

    /// Computes the necessary changes, if they are due.
    pub(super) fn due(&mut self, now: Instant, net: &Network, outbox: &mut Outbox) -> Vec<Stage> {
        match self.due {
            Some(due) if due <= now => self.change(now, net, outbox),
            _ => Vec::new(),
        }
    }

    fn soon(&mut self, now: Instant, wait: Duration, outbox: &mut Outbox) {
        let due = now + wait;
        if self.is_on() && self.due.is_none_or(|set| due < set) {
            self.due = Some(due);
            outbox.timer(due, Timer::Fabric);
        }
    }

    /// Gives every switch a label for each VLAN of its hosts, as long as labels are left.
    fn assign_labels(&mut self, outbox: &mut Outbox) {
        let mut without = BTreeSet::new();
        for (dpid, node) in self.nodes.iter().filter(|(_, node)| node.is_ready) {
            let hosts = node.new_hosts.keys().chain(node.sent.hosts.keys());
            let vlans = hosts.map(|host| host.vlan);
            let new = vlans.filter(|vlan| !node.labels.contains_key(vlan));
            without.extend(new.map(|vlan| (*dpid, vlan)));
        }
        for (dpid, vlan) in without {
            let label = self.free_label();
            if let Some(label) = label {
                self.take_label(Egress { dpid, vlan }, label, outbox);
            }
            let Some(node) = self.nodes.get_mut(&dpid) else {
                continue;
            };
            if let Some(label) = label {
                node.unlabelled.remove(&vlan);
                node.labels.insert(vlan, label);
            } else if node.unlabelled.insert(vlan) {
                outbox.alarm(Alarm::FabricFull { dpid });
            }
        }
    }

    /// A label that no switch has or leads to: entries of a former egress may be left.
    fn free_label(&mut self) -> Option<Label> {
        if self.egresses.len() >= self.config.unwrap_or_default().egress_count_max {
            return None;
        }
        for _ in Label::MIN.0..=Label::MAX.0 {
            let label = Label(self.next_label);
            self.next_label = match label == Label::MIN {
                true => Label::MAX.0,
                false => self.next_label - 1,
            };
            if self.is_free(label) {
                return Some(label);
            }
        }
        None
    }

    /// Whether no egress or tree uses a label, and no switch has entries of it.
    fn is_free(&self, label: Label) -> bool {
        let is_held = |node: &Node| {
            let mut own = node.sent.own.values();
            let leads = node.sent.routes.contains_key(&label);
            leads || node.sent.trees.contains_key(&label) || own.any(|own| *own == label)
        };
        let is_used = self.egresses.contains_key(&label) || self.under_way.contains(&label);
        let is_used = is_used || self.trees.has_label(label);
        !is_used && !self.nodes.values().any(is_held)
    }

    /// Whether links that an earlier process used may still be found, so that the routes over them
    /// stay.
    fn awaits_links(&self, now: Instant, net: &Network) -> bool {
        let may_be_found = |dpid: DatapathId, port: PortNo| {
            let at = Location { dpid, port };
            let is_known = |to| net.links.carries_wide(at, to) || net.links.is_narrow(at, to);
            net.is_up(at) && !net.links.peer(at).is_some_and(is_known)
        };
        // A link may be found before the groups of the switch at its other end are read.
        let is_unread = |node: &Node| node.is_capable && node.is_connected && !node.is_ready;
        let awaits = |dpid: DatapathId, node: &Node| {
            is_unread(node)
                || node.is_ready && node.sent.inlets.iter().any(|p| may_be_found(dpid, *p))
        };
        self.adopted_until.is_some_and(|until| now < until)
            && self.nodes.iter().any(|(dpid, node)| awaits(*dpid, node))
    }

    /// Computes the necessary changes, as stages.
    fn change(&mut self, now: Instant, net: &Network, outbox: &mut Outbox) -> Vec<Stage> {
        self.due = None;
        self.assign_labels(outbox);
        if self.is_stale && self.awaits_links(now, net) {
            self.soon(now, EXAMINE, outbox);
            self.is_reach_stale = true;
            self.tell_edges(outbox);
            return Vec::new();
        }
        self.adopted_until = None;
        // Another revision would end the one under way, so changes that can wait are left for
        // later.
        if self.is_changing && !self.is_outdated {
            return Vec::new();
        }
        if self.is_changing {
            self.is_stale = true;
            self.urgent.append(&mut self.under_way);
        }
        self.is_outdated = false;
        let revision = self.revision + 1;
        let mut work = Work::new(revision);
        let egresses = self.take_egresses();
        let is_stale = std::mem::take(&mut self.is_stale);
        if is_stale || !egresses.is_empty() {
            let map = Map::new(net, &self.nodes);
            self.plan_members(&map, &mut work);
            for label in &egresses {
                if let Some(egress) = self.egresses.get(label) {
                    self.plan_egress(&map, *label, egress.dpid, &mut work);
                }
            }
            self.plan_ends(&map, &mut work);
            self.note_leaving(&egresses, &work);
            self.is_reach_stale = true;
            self.tell_edges(outbox);
        }
        for (dpid, node) in &mut self.nodes {
            let is_led_to = |label| self.planned.contains(label) || egresses.contains(&label);
            let labels = &node.labels;
            let is_due = |host: &HostKey| labels.get(&host.vlan).copied().is_some_and(is_led_to);
            if node.is_ready {
                for (host, port) in node.new_hosts.extract_if(.., |host, _| is_due(host)) {
                    node.coming_hosts.insert(host, port);
                    work.first.push(work.change(*dpid, What::Host(host, port)));
                }
            }
        }
        let mut unpublished = self.unpublished.iter();
        let is_published = unpublished.all(|(host, dpid)| !self.is_planned(*dpid, host.vlan));
        if work.is_empty() && !is_stale && egresses.is_empty() && is_published {
            return Vec::new();
        }
        // Switches must confirm the messages of the last change before this one relies on them.
        let members = self.nodes.iter().filter(|(_, node)| node.is_ready);
        let unsure = match self.is_changing {
            true => members.map(|(dpid, _)| *dpid).collect(),
            false => Vec::new(),
        };
        (self.revision, self.is_changing) = (revision, true);
        self.under_way = egresses;
        work.into_stages(unsure)
    }

    /// Takes the egresses whose routes are computed next.
    fn take_egresses(&mut self) -> BTreeSet<Label> {
        let members = self.nodes.values().filter(|node| node.is_member()).count();
        let count = self.egresses_at_once(members);
        let exists = |label: &Label| self.egresses.contains_key(label);
        self.urgent.retain(exists);
        self.waiting.retain(exists);
        let from = self.next_waiting;
        let waiting = self.waiting.range(from..).chain(self.waiting.range(..from));
        let mut taken = BTreeSet::new();
        for label in self.urgent.iter().chain(waiting) {
            if taken.len() < count && taken.insert(*label) && !self.urgent.contains(label) {
                self.next_waiting = *label;
            }
        }
        self.urgent.retain(|label| !taken.contains(label));
        self.waiting.retain(|label| !taken.contains(label));
        taken
    }

    fn egresses_at_once(&self, members: usize) -> usize {
        let routes = self.config.unwrap_or_default().routes_at_once;
        (routes / members.max(1)).max(1)
    }

    /// Whether routes to a switch have been set, for a VLAN.
    fn is_planned(&self, dpid: DatapathId, vlan: VlanId) -> bool {
        let node = self.nodes.get(&dpid);
        let label = node.and_then(|node| node.labels.get(&vlan));
        label.is_some_and(|label| self.planned.contains(*label))
    }

    /// Plans the parts of every member: table misses, its own label, and its links as inlets.
    fn plan_members(&self, map: &Map, work: &mut Work) {
        for (dpid, node) in self.nodes.iter().filter(|(_, node)| node.is_ready) {
            if !node.sent.base {
                work.first.push(work.change(*dpid, What::Base));
            }
            let held = &node.sent.own;
            let labels = node
                .labels
                .iter()
                .map(|(vlan, label)| (*vlan, Some(*label)));
            let former = held.keys().filter(|vlan| !node.labels.contains_key(vlan));
            for (vlan, label) in labels.chain(former.map(|vlan| (*vlan, None))) {
                if held.get(&vlan).copied() != label {
                    work.first.push(work.change(*dpid, What::Own(vlan, label)));
                }
            }
            let links = map.ports(*dpid);
            for port in links.difference(&node.sent.inlets) {
                work.first
                    .push(work.change(*dpid, What::Inlet(*port, true)));
            }
        }
    }

    /// Plans deletions: routes to former egresses and, when no route uses them any more, inlets and
    /// the parts of excluded switches.
    fn plan_ends(&self, map: &Map, work: &mut Work) {
        let is_last = self.urgent.is_empty() && self.waiting.is_empty();
        let egresses: Labels = self.egresses.keys().copied().collect();
        for (dpid, node) in &self.nodes {
            let mut ends = Vec::new();
            let gone = node.sent.routes.labels().without(&egresses);
            let gone = gone
                .iter()
                .filter(|label| !node.leaving.contains_key(label));
            ends.extend(gone.map(|label| What::Route(label, None)));
            if is_last && node.is_ready {
                let links = map.ports(*dpid);
                let gone = node.sent.inlets.difference(&links);
                ends.extend(gone.map(|port| What::Inlet(*port, false)));
            }
            if is_last && !node.is_capable && node.is_connected && !node.sent.is_empty() {
                ends = vec![What::Everything];
            }
            let ends = ends.into_iter().map(|what| work.change(*dpid, what));
            work.deletes.extend(ends.collect::<Vec<_>>());
        }
    }

    /// Notes the routes and inlets about to be deleted, and that no other routes to these egresses
    /// are.
    fn note_leaving(&mut self, egresses: &BTreeSet<Label>, work: &Work) {
        self.trees.touch();
        for node in self.nodes.values_mut() {
            node.leaving.retain(|label, _| !egresses.contains(label));
            node.leaving_inlets.clear();
        }
        for change in &work.deletes {
            let Some(node) = self.nodes.get_mut(&change.dpid) else {
                continue;
            };
            match change.what {
                What::Route(label, None) => {
                    node.leaving.insert(label, change.revision);
                }
                What::Inlet(port, false) => {
                    node.leaving_inlets.insert(port, change.revision);
                }
                _ => {}
            }
        }
    }

    fn may_share(&self, dpid: DatapathId) -> bool {
        let refuses = |node: &Node| node.refuses_shares;
        self.config.unwrap_or_default().shares && !self.nodes.get(&dpid).is_some_and(refuses)
    }

    fn plan_egress(&self, map: &Map, label: Label, egress: DatapathId, work: &mut Work) {
        let Some(root) = map.number(egress) else {
            return;
        };
        let mut plan = plan::plan(&map.graph, root, mix(egress.0));
        for (dpid, route) in map.members.iter().zip(&mut plan.routes) {
            if let Some(route) = route {
                route.shares &= self.may_share(*dpid);
            }
        }
        let sent = |at: usize| self.nodes.get(&map.members[at])?.sent.routes.get(&label);
        let is_turned = |at: usize| match (sent(at), &plan.routes[at]) {
            (Some(old), Some(new)) => old.ports != new.ports,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        // Where no switch has a route yet, no packet can loop.
        let is_new = (0..map.members.len()).all(|at| sent(at).is_none());
        let ranks = match is_new {
            true => vec![0; map.members.len()],
            false => plan::ranks(&map.graph, &plan, is_turned),
        };
        for (at, dpid) in map.members.iter().enumerate() {
            if !self.nodes.get(dpid).is_some_and(|node| node.is_ready) {
                continue;
            }
            let revision = work.revision;
            let change = |route| FabricChange {
                dpid: *dpid,
                revision,
                what: What::Route(label, route),
            };
            match (sent(at).copied(), plan.routes[at]) {
                (None, None) => {}
                (Some(_), None) => work.deletes.push(change(None)),
                (_, Some(new)) if is_turned(at) => {
                    let bare = change(Some(new.bare()));
                    match ranks[at] {
                        0 => work.first.push(bare),
                        rank => {
                            work.turns.entry(rank).or_default().push(bare);
                            work.leaves.extend(sent(at).map(|_| rank));
                        }
                    }
                    if new != new.bare() {
                        work.last.push(change(Some(new)));
                    }
                }
                (Some(old), Some(new)) if old != new => {
                    work.before_last.push(change(Some(old.common(new))));
                    work.last.push(change(Some(new)));
                }
                _ => {}
            }
        }
    }

    /// Sends a change to its switch, if it is still wanted.
    pub(super) fn apply(&mut self, change: FabricChange, outbox: &mut Outbox) {
        let FabricChange {
            dpid,
            revision,
            what,
        } = change;
        let is_current = revision == self.revision;
        let copies = self.copies;
        if matches!(what, What::Tree(label, None) if !self.is_left_over(dpid, label)) {
            return;
        }
        let Some(node) = self.nodes.get_mut(&dpid) else {
            return;
        };
        if matches!(what, What::Everything) && !node.is_capable {
            for message in std::mem::take(&mut node.sent).clear(copies) {
                outbox.send(dpid, message);
            }
        }
        if !node.is_ready {
            return;
        }
        let sent = &mut node.sent;
        let (old, new) = match what {
            // A host that has left meanwhile is no longer wanted; a new host is wanted in any
            // revision.
            What::Host(host, port) => {
                if node.coming_hosts.get(&host) != Some(&port) {
                    return;
                }
                let at = Location { dpid, port };
                let form = outbox.vlans.form(at, host.vlan);
                let label = node.labels.get(&host.vlan).copied();
                let at = HostPort {
                    port,
                    vlan: label.zip(form).filter(|_| !host.vlan.is_none()),
                };
                node.coming_hosts.remove(&host);
                if at.vlan.is_none() && !host.vlan.is_none() {
                    return;
                }
                let old = sent.hosts.insert(host, at);
                self.unpublished.insert(host, dpid);
                let old = old.map(|old| form::host(host, &old));
                (old, form::host(host, &at))
            }
            // Deletions are sent after the change, when the next change may be under way.
            What::Route(label, None) => {
                if node.leaving.get(&label) != Some(&revision) {
                    return;
                }
                node.leaving.remove(&label);
                let old = sent.routes.remove(&label);
                (old.map(|old| form::route(label, &old)), Vec::new())
            }
            What::Inlet(port, false) => {
                if node.leaving_inlets.get(&port) != Some(&revision) {
                    return;
                }
                node.leaving_inlets.remove(&port);
                sent.inlets.remove(&port);
                self.trees.lose_link(Location { dpid, port });
                (Some(form::inlet(port)), Vec::new())
            }
            What::Tree(label, piece) => {
                let old = sent.trees.remove(&label);
                if let Some(piece) = &piece {
                    sent.trees.insert(label, piece.clone());
                }
                let parts = |piece: Piece| tree::parts(label, &piece);
                (old.map(parts), piece.map_or(Vec::new(), parts))
            }
            _ if !is_current => return,
            What::Everything => return,
            What::Base => {
                sent.base = true;
                (None, base(copies))
            }
            What::Own(vlan, label) => {
                let old = match label {
                    Some(label) => sent.own.insert(vlan, label),
                    None => sent.own.remove(&vlan),
                };
                let own = |label| form::own(vlan, label);
                (old.map(own), label.map_or(Vec::new(), own))
            }
            What::Inlet(port, true) => {
                sent.inlets.insert(port);
                self.trees.touch();
                (None, form::inlet(port))
            }
            What::Route(label, Some(route)) => {
                self.is_reach_stale = true;
                let old = sent.routes.insert(label, route);
                (
                    old.map(|old| form::route(label, &old)),
                    form::route(label, &route),
                )
            }
        };
        send_change(dpid, old.unwrap_or_default(), new, outbox);
        if self.trees.take_lost() {
            self.trees_soon(GATHER, outbox);
        }
    }

    /// Publishes the egresses and hosts of a change, when all switches have confirmed it. Returns
    /// whether routes have changed.
    pub(super) fn publish(&mut self, revision: u64, outbox: &mut Outbox) -> bool {
        if revision != self.revision {
            return false;
        }
        self.is_changing = false;
        let has_turned = self.is_reach_stale || !self.under_way.is_empty();
        for label in std::mem::take(&mut self.under_way) {
            if self.egresses.contains_key(&label) {
                self.planned.insert(label);
            }
        }
        let is_left = self.is_stale || !self.urgent.is_empty() || !self.waiting.is_empty();
        let has_new_hosts = |node: &Node| {
            let mut vlans = node.new_hosts.keys().map(|host| host.vlan);
            let is_planned = |label: &Label| self.planned.contains(*label);
            vlans.any(|vlan| node.labels.get(&vlan).is_some_and(is_planned))
        };
        if is_left || self.nodes.values().any(has_new_hosts) {
            self.soon(outbox.now, Duration::ZERO, outbox);
        }
        for (host, dpid) in std::mem::take(&mut self.unpublished) {
            let node = self.nodes.get(&dpid);
            let node = node.filter(|node| node.sent.hosts.contains_key(&host));
            let label = node.and_then(|node| node.labels.get(&host.vlan));
            let Some((label, domain)) = label.zip(self.domains.get_mut(&host.vlan)) else {
                continue;
            };
            match self.planned.contains(*label) {
                true => domain.places.set(host.mac, *label),
                false => {
                    self.unpublished.insert(host, dpid);
                }
            }
        }
        self.tell_edges(outbox);
        has_turned
    }

    /// Takes over the owners of a VLAN's addresses, and whether entries are set before
    /// conversations.
    pub(super) fn handle_view(
        &mut self,
        (vlan, addresses): (VlanId, &Arc<Addresses>),
        presets: bool,
        outbox: &mut Outbox,
    ) {
        let domain = self
            .domains
            .get_mut(&vlan)
            .filter(|domain| !Arc::ptr_eq(&domain.addresses, addresses) || self.presets != presets);
        if let Some(domain) = domain.filter(|_| self.config.is_some()) {
            domain.addresses = addresses.clone();
            self.presets = presets;
            self.is_view_stale = true;
            self.tell_edges(outbox);
        }
    }

    /// The fabric as seen by an edge that reaches these egresses.
    fn view(&self, reach: Labels) -> FabricView {
        let views = self.domains.iter().map(|(vlan, domain)| {
            let view = DomainView {
                places: domain.places.places().clone(),
                addresses: domain.addresses.clone(),
            };
            (*vlan, view)
        });
        let mut vlans: BTreeMap<VlanId, DomainView> = views.collect();
        FabricView {
            untagged: vlans.remove(&VlanId::NONE).expect("it always exists"),
            vlans: Arc::new(vlans),
            presets: self.presets,
            reach,
            tag: self.config.unwrap_or_default().tag,
        }
    }

    /// Informs each edge of its reach, if the reach has changed.
    fn tell_edges(&mut self, outbox: &mut Outbox) {
        let mut is_new_table = std::mem::take(&mut self.is_view_stale);
        for domain in self.domains.values_mut() {
            is_new_table |= domain.places.take_new();
        }
        if !std::mem::take(&mut self.is_reach_stale) && !is_new_table {
            return;
        }
        let view = self.view(Labels::default());
        let egresses: Labels = self.egresses.keys().copied().collect();
        for (dpid, node) in self.nodes.iter_mut().filter(|(_, node)| node.is_ready) {
            let mut reach = node.sent.routes.labels().within(&egresses);
            for label in node.leaving.keys() {
                reach.remove(*label);
            }
            if node.told.as_ref() != Some(&reach) || is_new_table {
                let view = FabricView {
                    reach: reach.clone(),
                    ..view.clone()
                };
                if outbox.tell_edge(*dpid, EdgeUpdate::Fabric(view)) {
                    node.told = Some(reach);
                }
            }
        }
    }
}

/// The parts of every member.
fn base(copies: bool) -> Vec<Part> {
    let mut base = form::base();
    if copies {
        base.extend(replication::base());
    }
    base
}

/// Sends a switch the messages that turn `old` into `new`.
pub(super) fn send_change(dpid: DatapathId, old: Vec<Part>, new: Vec<Part>, outbox: &mut Outbox) {
    for message in form::change(old, new, outbox.generation) {
        outbox.counters.flow_mods += u64::from(matches!(message, Message::FlowMod(_)));
        outbox.send(dpid, message);
    }
}

pub(super) fn presets(timeouts: &Timeouts) -> bool {
    timeouts.first_packets(None) == FirstPackets::PreInstall
}

/// The members as a graph.
struct Map {
    members: Vec<DatapathId>,
    graph: Graph,
}

impl Map {
    fn new(net: &Network, nodes: &BTreeMap<DatapathId, Node>) -> Map {
        let members = nodes.iter().filter(|(_, node)| node.is_member());
        let members: Vec<DatapathId> = members.map(|(dpid, _)| *dpid).collect();
        let away = |dpid: &DatapathId| !nodes.get(dpid).is_some_and(|node| node.is_connected);
        let mut neighbours = Vec::new();
        for dpid in &members {
            let links = net.links.from(*dpid);
            let own = links.filter_map(|(out_port, to, hops)| {
                let from = Location::new(*dpid, out_port);
                if !net.links.carries_wide(from, to) {
                    return None;
                }
                let switch = members.binary_search(&to.dpid).ok()?;
                let is_away = away(dpid) || away(&to.dpid);
                Some(Neighbour {
                    switch,
                    out_port,
                    in_port: to.port,
                    cost: hops + if is_away { AWAY_COST } else { 0 },
                    order: mix(dpid.0 ^ u64::from(out_port.0) << 48),
                })
            });
            let mut own: Vec<Neighbour> = own.collect();
            own.sort_unstable_by_key(|link| link.out_port);
            neighbours.push(own);
        }
        let graph = Graph { neighbours };
        Map { members, graph }
    }

    fn number(&self, dpid: DatapathId) -> Option<usize> {
        self.members.binary_search(&dpid).ok()
    }

    /// The ports with links to other members.
    fn ports(&self, dpid: DatapathId) -> BTreeSet<PortNo> {
        let links = self.number(dpid).map(|at| &self.graph.neighbours[at]);
        links
            .into_iter()
            .flatten()
            .map(|link| link.out_port)
            .collect()
    }
}

/// The changes of one revision, in their order.
struct Work {
    revision: u64,
    /// Changes that may be sent at once.
    first: Vec<FabricChange>,
    /// Routes that turn, by rank.
    turns: BTreeMap<u32, Vec<FabricChange>>,
    /// The ranks with a switch that leaves an old route.
    leaves: BTreeSet<u32>,
    /// Detours that are no longer valid.
    before_last: Vec<FabricChange>,
    /// Detours that are valid from now on.
    last: Vec<FabricChange>,
    deletes: Vec<FabricChange>,
}

impl Work {
    fn new(revision: u64) -> Work {
        Work {
            revision,
            first: Vec::new(),
            turns: BTreeMap::new(),
            leaves: BTreeSet::new(),
            before_last: Vec::new(),
            last: Vec::new(),
            deletes: Vec::new(),
        }
    }

    fn change(&self, dpid: DatapathId, what: What) -> FabricChange {
        FabricChange {
            dpid,
            revision: self.revision,
            what,
        }
    }

    fn is_empty(&self) -> bool {
        let rest = [&self.first, &self.before_last, &self.last, &self.deletes];
        self.turns.is_empty() && rest.iter().all(|changes| changes.is_empty())
    }

    fn into_stages(self, unsure: Vec<DatapathId>) -> Vec<Stage> {
        let of = |fabric: Vec<FabricChange>| Stage {
            fabric,
            ..Stage::default()
        };
        let mut stages = vec![Stage {
            confirm: unsure,
            ..Stage::default()
        }];
        stages.push(of(self.first));
        // The datapath of a switch may follow its old route for a while, and drop packets that
        // arrive by the next switch's new route.
        let mut delay = Duration::ZERO;
        for (rank, turns) in self.turns {
            stages.push(Stage { delay, ..of(turns) });
            delay = if self.leaves.contains(&rank) {
                SETTLE
            } else {
                Duration::ZERO
            };
        }
        stages.extend([of(self.before_last), of(self.last)]);
        stages.push(Stage {
            publish: Some(self.revision),
            ..Stage::default()
        });
        stages.push(Stage {
            delay: DRAIN,
            ..of(self.deletes)
        });
        stages
    }
}
