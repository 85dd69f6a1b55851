//! The application for all switches: discovery, hosts, paths and the flow entries that carry them.
//!
//! Its principles:
//!
//! - *Discovery first.* A port that comes up is held for `port_hold`, in which LLDP is sent three
//!   times. During the hold the port learns no hosts and receives no floods, and packets received
//!   there wait.
//! - *Nothing floods inside the network.* A broadcast goes to the controller from the edge port
//!   where it enters. The controller sends it out of every other edge port by packet-outs. There is
//!   no spanning tree to converge and no loop to find, on any topology. The price is controller
//!   time, so each port has a budget of broadcasts, and all ports together have one
//!   (`ingress/flood.rs`).
//! - *A first packet arrives.* The controller sends it out at its destination, and sets entries
//!   from there back to the ingress. Barriers confirm each step. A packet that misses half-way is
//!   also sent to its destination, and its path is repaired.
//! - *Wanted entries are remembered.* On every connection the controller asks the switch for its
//!   entries. Correct entries stay, wrong or missing entries are repaired, and foreign entries are
//!   left alone.
//!
//! Outputs are ordered per connection; between connections only barriers order anything.

mod access;
mod administered;
mod ageing;
mod bonds;
mod bpdu;
mod config;
mod counts;
mod crowds;
mod dhcp;
mod discovery;
mod entries;
mod event;
mod fabric;
mod facts;
mod first;
#[cfg(test)]
pub(crate) mod fixture;
mod forwarding;
mod gateways;
mod guards;
mod guests;
mod hosts;
mod ingress;
mod injected;
pub(crate) mod known;
mod lifetimes;
mod limits;
mod links;
mod local;
mod mending;
mod mirrors;
mod multicast;
mod named;
mod network;
mod outbox;
mod output;
mod packet;
mod parts;
mod path_setup;
mod paths;
mod policies;
mod port_state;
mod ports;
mod qos;
pub mod questions;
mod reconcile;
mod removed;
mod resolve;
mod room;
mod routes;
mod scan;
mod sending;
mod services;
mod shared;
mod stage;
mod stated;
mod switch;
mod tables;
mod taps;
pub mod trace;
mod updates;
mod views;
mod vlans;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clock::{Duration, Instant, SplitMix64};
use openflow::message::PortStatus;
use openflow::multipart::ReplyBody;
use openflow::{DatapathId, Frame, MacAddr, Message, PortNo, decode_rows};
use sha2::{Digest, Sha256};

use crate::ConnectionId;
use crate::entry::Entry;
use crate::fair_table::Shares;
use crate::flows::FlowLimits;
use crate::lldp::Prover;
use crate::pipeline::Numbering;
use crate::session::SwitchUp;
use crate::vlan::VlanId;

pub use crate::Location;
pub use config::{ControllerConfig, FabricConfig, LinkPolicy, Mode, MulticastConfig};
pub use event::{
    Alarm, BondPortView, BondView, Event, HostView, LinkView, SwitchView, TableCounters, TableView,
    TimeoutsView, VlanView,
};
pub use output::{ControllerCounters, ControllerOutput, RefusedReason};

use access::AccessControl;
pub use access::AccessCounts;
use administered::Administered;
use ageing::AgeingTurns;
use bonds::Bonding;
use bpdu::Guarded;
use counts::Counts;
use crowds::Crowds;
use discovery::Discovery;
use entries::SETTLE;
use fabric::Fabric;
use facts::{Facts, facts};
use first::FirstPacketState;
use gateways::Gatekeeper;
pub use gateways::can_be_gateway;
use guests::Guests;
pub use hosts::HostCounters;
use hosts::Hosts;
use ingress::Ingress;
pub use injected::Sending;
pub use known::Shape;
pub use links::Drained;
use mending::Mending;
use mirrors::Mirroring;
use multicast::Multicast;
pub use named::Setting;
use network::Network;
use outbox::{Outbox, Request, Timer};
use packet::Held;
use paths::Paths;
use port_state::PortRole;
use ports::LEAVE_AFTER;
use qos::QosState;
pub use qos::{
    CircuitReport, Count, HopVerdict, Installation, PolicyReport, QosReport, QosWork, VerifyReport,
};
use questions::Questions;
use resolve::Flooded;
use routes::Routes;
pub use scan::{HostPage, HostQuery, HostScan, Names};
use shared::SharedEntries;
use stated::StaticEntries;
use tables::{Table, Tables};
use taps::Taps;
use updates::Updates;
pub use views::{
    Cable, HostDetail, HostName, PathQuery, PathView, PortDetail, PortUse, SwitchesPart,
};

/// A deadline that is this late proves that the process was stopped.
const STOPPED: Duration = Duration::from_secs(2);

/// Pause after a stop: the process handles messages received meanwhile, but no deadlines.
const RESUME: Duration = Duration::from_millis(200);

/// The peer's identity as the transport proved it; all unknown on plain TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The datapath id that the peer's certificate is bound to.
    pub dpid: Option<DatapathId>,
    pub role: PeerRole,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerRole {
    #[default]
    Unknown,
    Switch,
    Controller,
}

#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Admitted,
    /// Close the connection; none of its messages reached the application.
    Refused(RefusedReason),
}

/// The sizes of the controller's tables, apart from switches, hosts, paths and entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    pub timers: usize,
    /// Packets that wait until discovery has decided on their ports.
    pub held_packets: usize,
    /// Requests to all switches that wait for their replies.
    pub requests: usize,
}

pub struct Controller {
    config: ControllerConfig,
    outbox: Outbox,
    connections: BTreeMap<ConnectionId, DatapathId>,
    network: Network,
    discovery: Discovery,
    /// The end of the pause after the process was stopped: no deadline is handled before.
    resumes_at: Instant,
    /// Whether changes of hosts are recorded, in all VLANs.
    wants_news: bool,
    /// The hosts outside of all VLANs.
    hosts: Hosts,
    /// The hosts of each VLAN.
    vlan_hosts: BTreeMap<VlanId, Hosts>,
    /// The number of packet-ins of each VLAN.
    vlan_packet_ins: BTreeMap<VlanId, u64>,
    crowds: Crowds,
    ageing: AgeingTurns,
    paths: Paths,
    coarse: SharedEntries,
    updates: Updates,
    mending: Mending,
    held: VecDeque<Held>,
    held_by: Counts,
    ingress: Ingress,
    first: FirstPacketState,
    fabric: Fabric,
    multicast: Multicast,
    access: AccessControl,
    bonding: Bonding,
    mirroring: Mirroring,
    guarded: Guarded,
    gateways: Gatekeeper,
    stated: StaticEntries,
    flooded: Flooded,
    administered: Administered,
    qos: QosState,
    tables: Tables,
    taps: Taps,
    guests: Guests,
    questions: Questions,
    /// Policy talks with switches and the relays beside them.
    shared: BTreeMap<ConnectionId, policies::Shared>,
    routes: Routes,
    /// Whether `Timer::Adopt` is set.
    adopt_pending: bool,
    /// The switch that the current message or timer is about: a panic is attributed to it.
    in_hand: Option<DatapathId>,
}

fn shares_of_hosts(config: &ControllerConfig) -> Shares {
    Shares {
        count_max: config.host_count_max,
        per_switch_max: config.hosts_per_switch_max,
        per_port_max: config.hosts_per_port_max,
    }
}

impl Controller {
    fn facts(&self) -> Facts<'_> {
        facts!(self)
    }

    /// Makes a controller. `seed` is the only randomness: LLDP key and epoch, cookie generation,
    /// jitter. Take it from the operating system's generator; whoever knows it can forge links.
    pub fn new(config: ControllerConfig, seed: [u8; 32]) -> Controller {
        let derived = Sha256::new()
            .chain_update(seed)
            .chain_update(b"auster epoch")
            .finalize();
        let word = |at: usize| {
            derived[at..at + 8]
                .iter()
                .fold(0, |n, b| n << 8 | u64::from(*b))
        };
        let hosts = Hosts::new(VlanId::NONE, shares_of_hosts(&config), 1, word(24));
        let mut controller = Controller {
            outbox: Outbox::new(&config, word(8) as u16, SplitMix64::new(word(16))),
            connections: BTreeMap::new(),
            network: Network::new(&config),
            discovery: Discovery::new(&config, Prover::new(seed, word(0))),
            resumes_at: Instant::START,
            wants_news: false,
            fabric: Fabric::new(&config, word(0) ^ word(24), hosts.addresses()),
            flooded: Flooded::default(),
            access: AccessControl::new(
                config.access.clone(),
                &config.bonds,
                config.fabric.is_some(),
            ),
            bonding: Bonding::default(),
            mirroring: Mirroring::default(),
            guarded: Guarded::default(),
            multicast: Multicast::new(config.multicast.clone().filter(|_| config.fabric.is_some())),
            gateways: Gatekeeper::new(&config),
            stated: StaticEntries::new(match config.is_forwarding {
                true => FlowLimits::BESIDE,
                false => FlowLimits::ALONE,
            }),
            hosts,
            crowds: Crowds::new(config.hosts_per_port_max),
            ageing: AgeingTurns::default(),
            paths: Paths::new(&config, word(24)),
            coarse: SharedEntries::default(),
            updates: Updates::default(),
            mending: Mending::default(),
            held: VecDeque::new(),
            held_by: Counts::default(),
            ingress: Ingress::new(&config, word(16) ^ word(24)),
            first: FirstPacketState::default(),
            administered: Administered::default(),
            qos: QosState::new(config.port_hold),
            tables: Tables::new(&config.timeouts, word(24)),
            taps: Taps::new(word(8) as u16),
            guests: Guests::new(&config.guests),
            questions: Questions::default(),
            shared: BTreeMap::new(),
            routes: Routes::default(),
            adopt_pending: false,
            in_hand: None,
            vlan_hosts: BTreeMap::new(),
            vlan_packet_ins: BTreeMap::new(),
            config,
        };
        controller.follow_vlans(&BTreeSet::new());
        controller.start_bonds();
        let guarded = &controller.config.crowd_guards;
        controller.crowds.set_guarded(Instant::START, guarded);
        controller.start_mirrors();
        controller
    }

    /// Handles a switch that is up. Refuses a second connection of a live datapath id and probes
    /// the first, unless `peer` proves by certificate that it is that switch: then the first
    /// connection is closed.
    pub fn handle_up(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        up: SwitchUp,
        peer: PeerIdentity,
    ) -> Admission {
        self.outbox.now = now;
        let dpid = up.features.datapath_id;
        self.in_hand = Some(dpid);
        let admission = self.take_up(now, connection, up, peer);
        self.in_hand = None;
        admission
    }

    fn take_up(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        up: SwitchUp,
        peer: PeerIdentity,
    ) -> Admission {
        let dpid = up.features.datapath_id;
        if let Some(reason) = self.refusal(connection, &up, peer) {
            if let RefusedReason::DuplicateDatapath { .. } = reason {
                self.outbox
                    .event(Event::Alarm(Alarm::DuplicateDatapath { dpid, connection }));
            }
            return Admission::Refused(reason);
        }
        if let Some(older) = self.network.switch(dpid).and_then(|s| s.connection) {
            self.outbox
                .close(older, RefusedReason::DuplicateDatapath { dpid });
            self.handle_down(now, older);
        }
        self.connections.insert(connection, dpid);
        self.admit(now, connection, up);
        self.share_policy(connection);
        Admission::Admitted
    }

    /// Handles a message of an admitted connection. Ignores messages of other connections.
    pub fn handle_frame(&mut self, now: Instant, connection: ConnectionId, frame: Frame) {
        self.outbox.now = now;
        let Some(dpid) = self.connections.get(&connection).copied() else {
            self.outbox.counters.frames_ignored += 1;
            return;
        };
        self.in_hand = Some(dpid);
        self.take_frame(now, connection, dpid, &frame);
        self.in_hand = None;
    }

    fn take_frame(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        dpid: DatapathId,
        frame: &Frame,
    ) {
        if self.handle_policy(connection, frame) {
            return;
        }
        let Ok((mut message, mut unreadable)) = decode_rows(frame) else {
            self.outbox.counters.frames_ignored += 1;
            return;
        };
        let xid = frame.xid();
        let numbering = self.outbox.numbering(dpid);
        if numbering != Numbering::Plain && !self.outbox.is_question(dpid, xid) {
            numbering.translate_received(&mut message);
            for row in &mut unreadable {
                row.table_id = numbering.our_number(row.table_id);
            }
        }
        if let Message::MultipartReply(reply) = &mut message {
            forget_numbers(&mut reply.body);
        }
        if let Message::MultipartReply(reply) = &mut message
            && matches!(
                self.outbox.asked(dpid, xid),
                Some(
                    Request::Rows
                        | Request::QosRows
                        | Request::StaticRows
                        | Request::Guest(..)
                        | Request::GuestRows
                )
            )
        {
            self.read_copies(dpid, reply);
        }
        match message {
            Message::PacketIn(packet_in) => self.handle_packet_in(now, dpid, packet_in),
            Message::PortStatus(status) => {
                let outbox = &mut self.outbox;
                self.guests.handle_port_status(dpid, &status, outbox);
                let PortStatus { reason, port } = status;
                self.handle_port_status(now, dpid, reason, port);
            }
            Message::FlowRemoved(removed) => self.handle_flow_removed(now, dpid, &removed),
            Message::TableStatus(status) => self.handle_table_status(now, dpid, &status),
            Message::BarrierReply => self.handle_answer(now, dpid, xid),
            Message::MultipartReply(reply) => {
                self.handle_multipart(now, dpid, xid, frame.len(), reply, unreadable);
            }
            Message::Error(error) => self.handle_error(now, dpid, xid, &error),
            Message::BundleControl(answer) => self.handle_bundle(now, dpid, xid, &answer),
            // The session has requested and handled these; nothing here depends on them.
            _ => self.outbox.counters.unsolicited += 1,
        }
    }

    /// Handles the end of a connection. Its switch keeps its links and paths for `switch_grace`. A
    /// switch without links, hosts and paths is forgotten at once, so that peers that only claim to
    /// be switches do not fill `switch_count_max`.
    pub fn handle_down(&mut self, now: Instant, connection: ConnectionId) {
        self.outbox.now = now;
        if let Some(dpid) = self.connections.remove(&connection) {
            let outer = self.in_hand.replace(dpid);
            self.take_down(now, connection, dpid);
            self.in_hand = outer;
        }
    }

    fn take_down(&mut self, now: Instant, connection: ConnectionId, dpid: DatapathId) {
        self.shared.remove(&connection);
        if !self.network.handle_down(now, dpid) {
            return;
        }
        self.fabric.handle_down(dpid);
        self.access.handle_down(dpid);
        self.stated.handle_down(dpid);
        self.mirroring.handle_down(dpid);
        self.taps.handle_down(dpid);
        self.guests.handle_down(dpid, &mut self.outbox);
        self.outbox.handle_down(dpid);
        let unanswered = self.outbox.end_requests(dpid);
        let grace = now + self.config.switch_grace;
        self.outbox.timer(grace, Timer::Grace(dpid));
        self.outbox.timer(now + LEAVE_AFTER, Timer::Leave(dpid));
        self.outbox.event(Event::SwitchDown { dpid });
        self.topology_soon(now);
        self.with_qos(|qos, around| qos.qos_down(around, now, dpid));
        self.pipe_down(now, dpid);
        for request in unanswered {
            self.handle_unanswered(now, dpid, request);
        }
        self.round_answered(now, dpid);
        if !self.is_of_use(dpid) {
            self.forget_switch(now, dpid);
        }
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        self.note_stop(now);
        if now < self.resumes_at {
            return;
        }
        self.outbox.now = now;
        while let Some(timer) = self.outbox.pop_timer(now) {
            self.in_hand = timer.dpid();
            match timer {
                Timer::Lldp(at) => self.lldp_due(now, at),
                Timer::PortChange(at) => self.port_change_due(now, at),
                Timer::PortOpen(at) => self.port_open_due(now, at),
                Timer::HoldOver(dpid) => self.settle_ports(now, dpid),
                Timer::Leave(dpid) => self.leave_switch(now, dpid),
                Timer::Emptied(connection) => {
                    self.close_unknown(now, connection, RefusedReason::Emptied);
                }
                Timer::Round => self.next_round(now),
                Timer::Grace(dpid) => self.grace_over(now, dpid),
                Timer::HostQuestion(host) => self.host_question_due(now, host),
                Timer::AddressQuestion(vlan, ip) => self.address_question_due(now, vlan, ip),
                Timer::Requests(dpid) => self.requests_due(now, dpid),
                Timer::Poll(dpid) => self.poll_due(now, dpid),
                Timer::Renewals(dpid) => self.renewals_due(now, dpid),
                Timer::Update(id) => self.update_due(now, id),
                Timer::Resolution(id) => self.resolution_due(now, id),
                Timer::Routes => {
                    self.routes.handle_due();
                    // Paths that work until then are moved as gently as possible.
                    self.change_routes(now, SETTLE);
                }
                Timer::Adopt => {
                    self.adopt_pending = false;
                    self.adopt_entries(now);
                }
                Timer::Ageing => self.ageing_due(now),
                Timer::Topology => self.topology_due(now),
                Timer::Parts => self.parts_due(now),
                Timer::Qos => self.with_qos(|qos, around| qos.qos_due(around, now)),
                Timer::Fabric => self.fabric_due(now),
                Timer::Trees => self.trees_due(now),
                Timer::Multicast => self.multicast_due(now),
                Timer::Access => self.access_due(now),
                Timer::Static => self.static_due(now),
                Timer::Guests => self.guests_due(now),
                Timer::Bonds => self.bonds_due(now),
                Timer::Neighbours => self.neighbours_due(now),
                Timer::Readings => self.tables.next_readings(now, &mut self.outbox),
            }
            self.in_hand = None;
        }
    }

    /// Repairs the state after the caller has caught a panic of another method. The controller
    /// forgets the switch it was serving, as when its grace is over, and closes its connection. A
    /// timer that panicked does not fire again by itself.
    ///
    /// Starting one switch anew is enough, although the panic may leave state half-changed. State
    /// of one switch (ports, entries, requests, statistics) is dropped with it. State of all
    /// switches together (links in use, paths, routes) is computed from ports, links and hosts:
    /// here, and again when the switch is back. Entries of other switches stay correct, because the
    /// controller notes an entry and queues its flow-mod in one step, and keeps the queue. A step
    /// may lose its unfinished work: packets that wait, or one reading of counters.
    pub fn handle_panicked(&mut self, now: Instant) {
        self.outbox.counters.panics += 1;
        let dpid = self.in_hand.take();
        self.outbox.alarm(Alarm::Panicked { dpid });
        // The panic may have happened in one of these timers.
        self.routes.handle_due();
        self.adopt_pending = false;
        self.topology_again();
        self.parts_again(now);
        self.with_qos(|qos, around| qos.qos_restart_timers(around));
        self.fabric.restart_trees(&mut self.outbox);
        self.fabric.again(now, &mut self.outbox);
        if let Some(dpid) = dpid {
            self.forget_switch(now, dpid);
        }
        self.routes_soon(now);
        self.adopt_soon(now);
        self.outbox.timer(now, Timer::Readings);
        self.outbox.timer(now, Timer::Access);
        self.outbox.timer(now, Timer::Static);
        self.outbox.timer(now, Timer::Guests);
        let others: Vec<DatapathId> = self.network.switches().map(|s| s.dpid).collect();
        for dpid in others {
            self.outbox.timer(now, Timer::HoldOver(dpid));
        }
    }

    /// Returns the next output, or `None` when there is none. Barriers are sent only when no output
    /// is left, so that all changes since the previous barriers share them.
    pub fn poll_output(&mut self) -> Option<ControllerOutput> {
        if self.outbox.is_empty() {
            self.tell_view();
            self.outbox.flush();
        }
        self.outbox.pop()
    }

    /// Notes that the process itself was stopped. Then the controller handles messages received
    /// meanwhile before any deadline.
    fn note_stop(&mut self, now: Instant) {
        let late = self.outbox.poll_timeout().map_or(now, |(due, _)| due);
        if now.since(late) < STOPPED || now.since(self.resumes_at) < STOPPED {
            return;
        }
        self.resumes_at = now + RESUME;
        let grace = now + self.config.switch_grace;
        for dpid in self.network.restart_graces(now) {
            self.outbox.timer(grace, Timer::Grace(dpid));
        }
    }

    /// The next deadline and its purpose.
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let (due, timer) = self.outbox.poll_timeout()?;
        Some((due.max(self.resumes_at), timer.reason()))
    }

    /// Sets the drained switches and links. Paths over them that have an alternative move to it
    /// without loss. New paths again use switches and links that are no longer drained.
    pub fn set_drained(&mut self, now: Instant, drained: Drained) {
        self.outbox.now = now;
        self.outbox.begin_change();
        if self.network.links.set_drained(drained) {
            if self.config.mode != Mode::Hybrid {
                self.refresh_coarse(now);
                self.drain_paths(now);
            }
            self.change_routes(now, SETTLE);
            self.fabric.again(now, &mut self.outbox);
        }
        self.outbox.end_change();
    }

    /// The switches, by datapath id.
    pub fn switches(&self) -> Vec<SwitchView> {
        let switches = self.network.switches();
        switches.map(|switch| self.switch(switch)).collect()
    }

    fn switch(&self, switch: &network::Switch) -> SwitchView {
        let dpid = switch.dpid;
        let state = self.tables.get(dpid);
        let table = state.map_or(TableView::default(), Table::view);
        SwitchView {
            dpid,
            connection: switch.connection,
            version: switch.version,
            port_count: switch.ports.len(),
            flow_count: state.map_or(0, |table| table.entries().len())
                + self.fabric.entry_count(dpid),
            up_since: switch.up_since,
            description: switch.description.clone(),
            name: switch.name,
            table: TableView {
                coarse: self.coarse.count(dpid),
                ..table
            },
        }
    }

    pub fn links(&self) -> Vec<LinkView> {
        self.network
            .links
            .iter()
            .map(|(from, to)| LinkView { from, to })
            .collect()
    }

    /// The links and their revision, which changes whenever the links may have changed. `None`
    /// while the revision is `known`.
    pub fn links_since(&self, known: u64) -> Option<(u64, Vec<LinkView>)> {
        let revision = self.network.links.revision();
        (revision != known).then(|| (revision, self.links()))
    }

    /// Whether a port has certainly no switch behind it.
    pub fn is_edge(&self, at: Location) -> bool {
        self.network.role_of_port(at) == PortRole::Edge
    }

    /// Whether a connection's switch was admitted and has not gone.
    pub(crate) fn has_connection(&self, connection: ConnectionId) -> bool {
        self.connections.contains_key(&connection)
    }

    /// The ports that have certainly no switch behind them, for at most `max` switches after
    /// `after`.
    pub(crate) fn edges_after(
        &self,
        after: Option<DatapathId>,
        max: usize,
    ) -> impl Iterator<Item = (DatapathId, Vec<PortNo>)> {
        let connected = self.network.connected();
        let later = connected.filter(move |switch| Some(switch.dpid) > after);
        later.take(max).map(|switch| {
            let dpid = switch.dpid;
            let ports = switch.ports.keys().copied();
            let edges = ports.filter(|port| self.is_edge(Location { dpid, port: *port }));
            (dpid, edges.collect())
        })
    }

    /// Treats ports of a switch as edges when it next comes up, without the hold of
    /// [`ControllerConfig::port_hold`]: another controller served the switch until now and knew
    /// them as edges.
    pub(crate) fn expect_edges(&mut self, now: Instant, dpid: DatapathId, ports: BTreeSet<PortNo>) {
        self.discovery.expect_edges(now, dpid, ports);
    }

    /// The hosts whose place is known, by address.
    pub fn hosts(&self) -> Vec<HostView> {
        self.first_hosts(usize::MAX)
    }

    /// At most `max` hosts whose place is known, by address. Examines no more hosts, however many
    /// there are.
    pub fn first_hosts(&self, max: usize) -> Vec<HostView> {
        let all = [(&VlanId::NONE, &self.hosts)].into_iter();
        let all = all.chain(&self.vlan_hosts);
        let placed = all.flat_map(|(vlan, hosts)| {
            let view = move |(mac, at)| (mac, *vlan, at, hosts);
            hosts.placed().map(view)
        });
        let mut first: Vec<_> = placed.take(max).collect();
        first.sort_unstable_by_key(|(mac, vlan, at, _)| (*mac, *vlan, *at));
        let view = |(mac, vlan, at, hosts): (MacAddr, VlanId, Location, &Hosts)| {
            let ips = hosts.ips(mac);
            HostView { mac, vlan, at, ips }
        };
        first.into_iter().map(view).collect()
    }

    /// The number of known hosts, placed or not.
    pub fn host_count(&self) -> usize {
        let vlans = self.vlan_hosts.values().map(Hosts::len);
        self.hosts.len() + vlans.sum::<usize>()
    }

    /// The VLANs, by id.
    pub fn vlans(&self) -> Vec<VlanView> {
        let vlans = self.vlan_hosts.iter();
        let view = vlans.map(|(vlan, hosts)| VlanView {
            vlan: *vlan,
            name: self.config.vlans.names.get(vlan).cloned(),
            hosts: hosts.len(),
            packet_ins: self.vlan_packet_ins.get(vlan).copied().unwrap_or(0),
        });
        view.collect()
    }

    /// The number of pairs of hosts that have a path of their own.
    pub fn path_count(&self) -> usize {
        self.paths.len()
    }

    /// The entries that a switch should have: entries that were sent or adopted, and not removed
    /// since.
    pub fn entries(&self, dpid: DatapathId) -> impl Iterator<Item = Entry> {
        let table = self.tables.get(dpid).into_iter();
        table.flat_map(|table| table.entries().values().copied())
    }

    /// The sizes of the controller's tables; every one is bounded.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            timers: self.outbox.timer_count(),
            held_packets: self.held.len(),
            requests: self.outbox.request_count(),
        }
    }

    pub fn counters(&self) -> ControllerCounters {
        self.outbox.counters
    }

    pub(crate) fn config(&self) -> &ControllerConfig {
        &self.config
    }

    /// The reason to refuse a switch, if any, whatever other switches are connected.
    pub(crate) fn refusal_of(
        &mut self,
        up: &SwitchUp,
        peer: PeerIdentity,
    ) -> Option<RefusedReason> {
        let dpid = up.features.datapath_id;
        if peer.role == PeerRole::Controller {
            return Some(RefusedReason::NotASwitch);
        }
        if let Some(certified) = peer.dpid.filter(|certified| *certified != dpid) {
            return Some(RefusedReason::IdentityMismatch { dpid, certified });
        }
        if up.features.auxiliary_id != 0 {
            return Some(RefusedReason::Auxiliary);
        }
        if self
            .access
            .refuses(up, &self.outbox.vlans, &self.config.gateways)
        {
            return Some(RefusedReason::NoAccess);
        }
        if up.ports.len() > self.config.port_count_max {
            self.outbox.counters.too_many_ports += 1;
            return Some(RefusedReason::TooManyPorts);
        }
        None
    }

    fn refusal(
        &mut self,
        connection: ConnectionId,
        up: &SwitchUp,
        peer: PeerIdentity,
    ) -> Option<RefusedReason> {
        if let Some(reason) = self.refusal_of(up, peer) {
            return Some(reason);
        }
        let dpid = up.features.datapath_id;
        match self.network.switch(dpid) {
            Some(switch) => {
                let older = switch.connection.filter(|older| *older != connection)?;
                if peer.dpid.is_some() {
                    return None;
                }
                self.outbox
                    .push_output(ControllerOutput::Probe { connection: older });
                Some(RefusedReason::DuplicateDatapath { dpid })
            }
            None if self.network.switch_count() >= self.config.switch_count_max => {
                Some(RefusedReason::TooManySwitches)
            }
            None => None,
        }
    }
}

/// Removes the bucket numbers that 1.5 has: our numbers are the positions of the buckets, as in any
/// version.
fn forget_numbers(body: &mut ReplyBody) {
    if let ReplyBody::GroupDesc(groups) = body {
        let buckets = groups.iter_mut().flat_map(|group| &mut group.buckets);
        buckets.for_each(|bucket| bucket.bucket_id = None);
    }
}

#[cfg(test)]
mod tests {
    use openflow::message::{MultipartReply, PacketIn};
    use openflow::multipart::{ReplyBody, RequestBody};
    use openflow::{Cookie, MessageKind, Version, Xid};

    use super::fixture::up;
    use super::*;

    fn drain(controller: &mut Controller) -> Vec<ControllerOutput> {
        std::iter::from_fn(|| controller.poll_output()).collect()
    }

    /// The connections whose switches are asked for their entries now, with the xids.
    fn asked(controller: &mut Controller) -> Vec<(ConnectionId, Xid)> {
        let asks = |output| match output {
            ControllerOutput::Send { connection, frame } => match openflow::decode(&frame) {
                Ok(Message::MultipartRequest(request)) => {
                    matches!(request.body, RequestBody::Flow(_))
                        .then_some((connection, frame.xid()))
                }
                _ => None,
            },
            _ => None,
        };
        drain(controller).into_iter().filter_map(asks).collect()
    }

    /// Some switches answer, some leave, and some never do either.
    #[test]
    fn many_switches_are_asked_for_their_entries_in_turns() {
        let now = Instant::START + Duration::from_secs(1);
        let mut controller = Controller::new(ControllerConfig::default(), [7; 32]);
        for n in 1..=100 {
            let admission =
                controller.handle_up(now, ConnectionId(n), up(n), PeerIdentity::default());
            assert_eq!(admission, Admission::Admitted);
        }
        let first = asked(&mut controller);
        assert_eq!(first.len(), 32);
        for (connection, xid) in &first[..10] {
            let body = ReplyBody::Flow(Vec::new());
            let reply = Message::MultipartReply(MultipartReply { more: false, body });
            let frame = openflow::encode(Version::V13, *xid, &reply).unwrap();
            controller.handle_frame(now, *connection, frame);
        }
        assert_eq!(asked(&mut controller).len(), 10);
        for (connection, _) in &first[10..20] {
            controller.handle_down(now, *connection);
        }
        // One of the waiting switches leaves as well.
        controller.handle_down(now, ConnectionId(100));
        assert_eq!(asked(&mut controller).len(), 10);
        let later = now + Duration::from_millis(250);
        controller.handle_timeout(later);
        assert_eq!(asked(&mut controller).len(), 32);
        controller.handle_timeout(later + Duration::from_millis(250));
        assert_eq!(asked(&mut controller).len(), 100 - 1 - 84);
    }

    /// The time until the controller learns a host from an earlier packet-in of a switch that
    /// reports no entries, as cbench's. The switch answers all barriers but number `lost`.
    fn learned_after(lost: Option<usize>) -> Duration {
        let start = Instant::START + Duration::from_secs(1);
        let mut controller = Controller::new(ControllerConfig::default(), [7; 32]);
        let connection = ConnectionId(1);
        let _ = controller.handle_up(start, connection, up(1), PeerIdentity::default());
        let message = Message::PacketIn(PacketIn {
            cookie: Cookie(u64::MAX),
            total_len: 60,
            ..PacketIn::new(
                PortNo(1),
                [&[2, 0, 0, 0, 0, 9][..], &[2, 0, 0, 0, 0, 1], &[8; 48]]
                    .concat()
                    .into(),
            )
        });
        let packet_in = openflow::encode(Version::V13, Xid(0), &message).unwrap();
        controller.handle_frame(start, connection, packet_in);
        let mut now = start;
        let (mut learned_at, mut barriers) = (None, 0);
        while now < start + Duration::from_secs(5) && learned_at.is_none() {
            for output in drain(&mut controller) {
                if let ControllerOutput::Send { frame, .. } = output
                    && frame.kind() == MessageKind::BarrierRequest
                {
                    barriers += 1;
                    if lost == Some(barriers) {
                        continue;
                    }
                    let reply = Message::BarrierReply;
                    let reply = openflow::encode(Version::V13, frame.xid(), &reply).unwrap();
                    controller.handle_frame(now, connection, reply);
                }
            }
            learned_at = (controller.host_count() > 0).then_some(now);
            now += Duration::from_millis(10);
            controller.handle_timeout(now);
        }
        learned_at.expect("it is learned") - start
    }

    #[test]
    fn a_switch_that_reports_no_entries_is_used_after_a_second() {
        let waited = learned_after(None).as_millis();
        assert!((1000..1100).contains(&waited), "{waited} ms");
    }

    #[test]
    fn a_lost_barrier_delays_the_use_of_a_switch_by_about_half_a_second() {
        for lost in 1..8 {
            let waited = learned_after(Some(lost)).as_millis();
            assert!(
                (1000..1500).contains(&waited),
                "barrier {lost}: {waited} ms"
            );
        }
    }

    /// Panics once in a message of switch 1, and once in a timer of no switch.
    #[test]
    fn after_a_panic_one_switch_begins_anew_and_the_others_go_on() {
        let now = Instant::START + Duration::from_secs(1);
        let mut controller = Controller::new(ControllerConfig::default(), [7; 32]);
        for n in [1, 2] {
            let admission =
                controller.handle_up(now, ConnectionId(n), up(n), PeerIdentity::default());
            assert_eq!(admission, Admission::Admitted);
        }
        drain(&mut controller);
        let before = controller.switches();

        controller.in_hand = Some(DatapathId(1));
        controller.handle_panicked(now);
        let outputs = drain(&mut controller);
        let alarm = |dpid| ControllerOutput::Event(Event::Alarm(Alarm::Panicked { dpid }));
        assert!(outputs.contains(&alarm(Some(DatapathId(1)))));
        let close = ControllerOutput::Close {
            connection: ConnectionId(1),
            reason: RefusedReason::Fault,
        };
        assert!(outputs.contains(&close));
        assert_eq!(controller.switches(), before[1..]);
        assert_eq!(controller.counters().panics, 1);
        // Its connection now belongs to no switch, and its datapath id is free.
        controller.handle_down(now, ConnectionId(1));
        let again = controller.handle_up(now, ConnectionId(3), up(1), PeerIdentity::default());
        assert_eq!(again, Admission::Admitted);
        assert_eq!(controller.switches()[0].port_count, 2);

        drain(&mut controller);
        controller.handle_panicked(now);
        assert!(drain(&mut controller).contains(&alarm(None)));
        assert_eq!(controller.switches().len(), 2);
        controller.handle_timeout(now + Duration::from_secs(10));
    }
}
