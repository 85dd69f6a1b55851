//! The outputs of all machines: messages to switches, updates for edges, events and deadlines.
//!
//! A machine receives the outbox with each input and puts its outputs there, in order. The outbox
//! keeps the requests to switches and the messages that wait for confirmations ([`pipe`]). It
//! decides nothing.

mod bundle;
#[cfg(test)]
mod bundle_tests;
mod pipe;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use clock::{Duration, Instant, SplitMix64};
use openflow::message::{FlowMod, FlowModCommand, MultipartReply, PacketOut};
use openflow::{Action, Cookie, DatapathId, Frame, MacAddr, Message, PortNo, Version, Xid, encode};

use crate::bond::Bonds;
use crate::edge::EdgeUpdate;
use crate::entry::{Entry, EntryKind};
use crate::fabric::form::Place;
use crate::guest::Ticket;
use crate::mirror::Mirrors;
use crate::pipeline::Numbering;
use crate::requests::{Reply, Requests};
use crate::vlan::{self, Form, HostKey, VlanId, Vlans};
use crate::{ConnectionId, Location};

use super::config::{ControllerConfig, Mode};
use super::event::{Alarm, Event};
use super::output::{ControllerCounters, ControllerOutput, RefusedReason};
use pipe::Pipe;

/// Minimum time between two alarms of one kind at one port.
const ALARM_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of pairs of a port and a kind with an alarm in that time.
const ALARMED_MAX: usize = 4096;

pub(super) struct Outbox {
    /// The time of the last input.
    pub now: Instant,
    pub counters: ControllerCounters,
    /// The part of every cookie that separates this process's entries from its predecessors'.
    pub generation: u16,
    /// The VLANs of all ports: a packet leaves a port in the form of its VLAN there.
    pub vlans: Arc<Vlans>,
    /// The bonds of all ports: an output to a place is sent through its bond.
    pub bonds: Arc<Bonds>,
    /// The mirrors of all ports: a message that outputs to a port sends copies as well.
    pub mirrors: Arc<Mirrors>,
    outputs: VecDeque<ControllerOutput>,
    timers: BTreeSet<(Instant, Timer)>,
    channels: BTreeMap<DatapathId, Channel>,
    /// Switches with outputs since the last [`Outbox::flush`].
    touched: Vec<DatapathId>,
    /// Changes to switches whose requested reports have not yet arrived.
    sent: BTreeMap<DatapathId, Sent>,
    /// When alarms were last raised, by kind and port.
    alarmed: BTreeMap<(&'static str, Location), Instant>,
    request_timeout: Duration,
    has_edges: bool,
    is_qos_used: bool,
    /// Whether changes are sent as bundles, and the number of nested changes under construction.
    has_bundles: bool,
    changes_open: usize,
    /// Switches with messages of changes under construction.
    changing: Vec<DatapathId>,
    random: SplitMix64,
}

/// Things of a switch that have changed since its report was requested.
#[derive(Default)]
struct Sent {
    /// Entries and groups that messages have changed.
    places: BTreeSet<Place>,
    /// Hosts that were announced to its edge.
    hosts: BTreeSet<MacAddr>,
}

/// The messages to one switch.
struct Channel {
    /// `None` while the switch is in its grace.
    connection: Option<ConnectionId>,
    version: Version,
    requests: Requests<Request>,
    pipe: Pipe,
    /// Whether the entries of its paths continue to the policy table.
    leads_on: bool,
    /// The numbers of its tables.
    numbering: Numbering,
}

/// Names a question to a switch from outside the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuestionId(pub(super) u64);

/// The purpose of a request of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Entries,
    /// The barrier after LLDP.
    Pulse {
        asked: Instant,
    },
    /// The barrier after the first entry of a path that was requested at `since`.
    Delay {
        since: Instant,
    },
    /// Table statistics.
    Table,
    /// Flow statistics, to read single entries.
    Rows,
    TableFeatures,
    /// The configuration of tables.
    TableDesc,
    /// The groups, to compare the fabric's.
    Groups,
    /// Statistics for a question from outside the controller.
    Question(QuestionId),
    MeterFeatures,
    /// The settings of meters.
    Meters,
    /// The barrier after a portion of QoS.
    Qos,
    /// Counters of policies and circuits.
    QosRows,
    QosMeters,
    QosQueues,
    /// Counters of access lists and bindings.
    Access,
    /// The barrier after static entries.
    Static,
    /// The static entries of a switch.
    StaticRows,
    /// A question or a barrier of a guest.
    Guest(u8, Ticket),
    /// The entries of all guests.
    GuestRows,
    /// The groups and meters of a switch, for the static ones.
    StaticGroups,
    StaticMeters,
    /// The entries and groups, to set the copies of other mirrors in them.
    MirroredRows,
    MirroredGroups,
}

/// Deadlines. A timer is examined when it fires: code that moves a deadline leaves the timer in
/// place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Lldp(Location),
    PortChange(Location),
    PortOpen(Location),
    HoldOver(DatapathId),
    Leave(DatapathId),
    /// Someone else has deleted entries that a switch needs.
    Emptied(ConnectionId),
    Round,
    Grace(DatapathId),
    HostQuestion(HostKey),
    AddressQuestion(VlanId, IpAddr),
    Requests(DatapathId),
    Poll(DatapathId),
    Renewals(DatapathId),
    Update(u64),
    Resolution(u64),
    Routes,
    Adopt,
    Ageing,
    Topology,
    /// The parts of the network have changed, or have stayed the same for long enough.
    Parts,
    Qos,
    Fabric,
    /// The trees of broadcasts are to change.
    Trees,
    Multicast,
    Access,
    Bonds,
    Neighbours,
    Readings,
    Static,
    Guests,
}

impl Timer {
    /// The switch of this timer.
    pub(super) fn dpid(self) -> Option<DatapathId> {
        match self {
            Timer::Lldp(at) | Timer::PortChange(at) | Timer::PortOpen(at) => Some(at.dpid),
            Timer::Grace(dpid)
            | Timer::HoldOver(dpid)
            | Timer::Leave(dpid)
            | Timer::Requests(dpid)
            | Timer::Poll(dpid)
            | Timer::Renewals(dpid) => Some(dpid),
            Timer::Emptied(_)
            | Timer::HostQuestion(_)
            | Timer::AddressQuestion(..)
            | Timer::Update(_)
            | Timer::Resolution(_)
            | Timer::Round
            | Timer::Routes
            | Timer::Adopt
            | Timer::Ageing
            | Timer::Topology
            | Timer::Parts
            | Timer::Qos
            | Timer::Fabric
            | Timer::Trees
            | Timer::Multicast
            | Timer::Access
            | Timer::Bonds
            | Timer::Neighbours
            | Timer::Readings
            | Timer::Static
            | Timer::Guests => None,
        }
    }

    pub(super) fn reason(self) -> &'static str {
        match self {
            Timer::Lldp(_) => "lldp",
            Timer::PortChange(_) => "port change",
            Timer::PortOpen(_) => "closed port",
            Timer::HoldOver(_) => "port hold",
            Timer::Leave(_) => "switch away",
            Timer::Emptied(_) => "deleted entries",
            Timer::Round => "round of barriers",
            Timer::Grace(_) => "switch grace",
            Timer::HostQuestion(_) => "host question",
            Timer::AddressQuestion(..) => "address question",
            Timer::Requests(_) => "request",
            Timer::Poll(_) => "table statistics",
            Timer::Renewals(_) => "renewals",
            Timer::Update(_) => "update",
            Timer::Resolution(_) => "held resolution",
            Timer::Routes => "routes",
            Timer::Adopt => "adopt",
            Timer::Ageing => "hosts that are silent",
            Timer::Topology => "topology",
            Timer::Parts => "parts of the network",
            Timer::Qos => "qos",
            Timer::Fabric => "fabric",
            Timer::Trees => "trees of broadcasts",
            Timer::Multicast => "multicast",
            Timer::Access => "access",
            Timer::Bonds => "bonds",
            Timer::Neighbours => "next hops",
            Timer::Readings => "readings of entries",
            Timer::Static => "static entries",
            Timer::Guests => "entries of guests",
        }
    }
}

impl Outbox {
    pub(super) fn new(config: &ControllerConfig, generation: u16, random: SplitMix64) -> Outbox {
        Outbox {
            now: Instant::START,
            counters: ControllerCounters::default(),
            generation,
            outputs: VecDeque::new(),
            timers: BTreeSet::new(),
            channels: BTreeMap::new(),
            touched: Vec::new(),
            sent: BTreeMap::new(),
            alarmed: BTreeMap::new(),
            request_timeout: config.requests.timeout,
            has_edges: config.is_forwarding && config.mode != Mode::Proactive,
            is_qos_used: false,
            has_bundles: config.has_bundles,
            changes_open: 0,
            changing: Vec::new(),
            random,
            vlans: Arc::new(config.vlans.clone()),
            bonds: Arc::new(config.bonds.clone()),
            mirrors: Arc::new(config.mirrors.of_ports(&config.bonds)),
        }
    }

    /// Opens the channel to a connected switch. `requests` makes the requests of a new switch.
    pub(super) fn open(
        &mut self,
        dpid: DatapathId,
        (connection, version): (ConnectionId, Version),
        requests: impl FnOnce() -> Requests<Request>,
    ) {
        let fresh = || Channel {
            connection: None,
            version,
            requests: requests(),
            pipe: Pipe::default(),
            leads_on: false,
            numbering: Numbering::Plain,
        };
        let channel = self.channels.entry(dpid).or_insert_with(fresh);
        (channel.connection, channel.version) = (Some(connection), version);
    }

    /// Notes that a switch's connection has ended, or is about to end.
    pub(super) fn handle_down(&mut self, dpid: DatapathId) {
        self.sent.remove(&dpid);
        if let Some(channel) = self.channels.get_mut(&dpid) {
            channel.connection = None;
        }
    }

    /// Ends the requests of a switch, and returns them.
    pub(super) fn end_requests(&mut self, dpid: DatapathId) -> Vec<Request> {
        let channel = self.channels.get_mut(&dpid);
        channel.map_or(Vec::new(), |channel| channel.requests.handle_down())
    }

    /// Forgets a switch. Returns its requests.
    pub(super) fn forget(&mut self, dpid: DatapathId) -> Vec<Request> {
        let unanswered = self.end_requests(dpid);
        self.channels.remove(&dpid);
        unanswered
    }

    pub(super) fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    pub(super) fn pop(&mut self) -> Option<ControllerOutput> {
        self.outputs.pop_front()
    }

    pub(super) fn push_output(&mut self, output: ControllerOutput) {
        self.outputs.push_back(output);
    }

    pub(super) fn close(&mut self, connection: ConnectionId, reason: RefusedReason) {
        self.push_output(ControllerOutput::Close { connection, reason });
    }

    pub(super) fn event(&mut self, event: Event) {
        self.push_output(ControllerOutput::Event(event));
    }

    pub(super) fn alarm(&mut self, alarm: Alarm) {
        self.event(Event::Alarm(alarm));
    }

    /// Raises an alarm that a peer can cause at will: once a minute for each port and kind. Further
    /// alarms are counted.
    pub(super) fn alarm_once(&mut self, now: Instant, alarm: Alarm) {
        if let Some(key) = alarm.damped_by() {
            let is_recent = |at: &Instant| now.since(*at) < ALARM_INTERVAL;
            if self.alarmed.get(&key).is_some_and(is_recent) {
                self.counters.alarms_damped += 1;
                return;
            }
            if self.alarmed.len() >= ALARMED_MAX {
                self.alarmed.retain(|_, at| is_recent(at));
            }
            if self.alarmed.len() >= ALARMED_MAX {
                self.counters.alarms_damped += 1;
                return;
            }
            self.alarmed.insert(key, now);
        }
        self.alarm(alarm);
    }

    pub(super) fn timer(&mut self, due: Instant, timer: Timer) {
        self.timers.insert((due, timer));
    }

    /// The next deadline.
    pub(super) fn poll_timeout(&self) -> Option<(Instant, Timer)> {
        self.timers.first().copied()
    }

    /// Takes the next timer that is due.
    pub(super) fn pop_timer(&mut self, now: Instant) -> Option<Timer> {
        let (due, timer) = self.poll_timeout()?;
        if due > now {
            return None;
        }
        self.timers.pop_first();
        Some(timer)
    }

    pub(super) fn timer_count(&self) -> usize {
        self.timers.len()
    }

    /// The number of requests to all switches that wait for their replies.
    pub(super) fn request_count(&self) -> usize {
        let channels = self.channels.values();
        channels.map(|channel| channel.requests.len()).sum()
    }

    /// A number for jitter, never for a secret.
    pub(super) fn random(&mut self) -> u64 {
        self.random.next()
    }

    /// Sends a message without a reply. Returns its xid if it could be sent.
    pub(super) fn send(&mut self, dpid: DatapathId, mut message: Message) -> Option<Xid> {
        let channel = self.channels.get_mut(&dpid)?;
        let (xid, numbering) = (channel.requests.next_xid(), channel.numbering);
        if let Some(sent) = self.sent.get_mut(&dpid) {
            sent.places.extend(Place::of_message(&message));
        }
        self.lead(dpid, &mut message);
        numbering.translate_sent(&mut message);
        self.send_as(dpid, xid, &message, false).then_some(xid)
    }

    /// Adds the groups of bonds and the copies of mirrors to a message.
    pub(super) fn lead(&self, dpid: DatapathId, message: &mut Message) {
        self.bonds.lead_message(dpid, message);
        self.mirrors.lead_message(dpid, message);
    }

    /// Starts to note the entries and groups of a switch that messages change: a report requested
    /// now may not show these changes.
    pub(super) fn note_sent(&mut self, dpid: DatapathId) {
        self.sent.entry(dpid).or_default();
    }

    pub(super) fn forget_sent(&mut self, dpid: DatapathId) {
        self.sent.remove(&dpid);
    }

    pub(super) fn has_sent(&self, dpid: DatapathId, place: &Place) -> bool {
        let sent = self.sent.get(&dpid);
        sent.is_some_and(|sent| sent.places.contains(place))
    }

    /// Whether the edge of a switch may forward packets to a host in another way since the switch's
    /// report was requested.
    pub(super) fn has_told(&self, dpid: DatapathId, host: MacAddr) -> bool {
        let sent = self.sent.get(&dpid);
        sent.is_some_and(|sent| sent.hosts.contains(&host))
    }

    /// Sends a frame out of the port itself, whatever its bond.
    pub(super) fn send_at_port(&mut self, at: Location, data: Vec<u8>) {
        let Some(channel) = self.channels.get_mut(&at.dpid) else {
            return;
        };
        let xid = channel.requests.next_xid();
        let mut actions = vec![Action::output(at.port)];
        self.mirrors.lead(at.dpid, None, &mut actions);
        let message = Message::PacketOut(PacketOut::new(
            match channel.version {
                Version::V10 => PortNo::ANY,
                _ => PortNo::CONTROLLER,
            },
            actions,
            data.into(),
        ));
        self.counters.packet_outs += 1;
        self.send_as(at.dpid, xid, &message, false);
    }

    /// Sends a request. Returns `None` if it could not be sent; then nothing waits for a reply.
    pub(super) fn request(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        request: Request,
        message: &Message,
    ) -> Option<Xid> {
        self.now = now;
        let channel = self.channels.get_mut(&dpid)?;
        let xid = channel.requests.start(request)?;
        let mut message = message.clone();
        // A question from outside is about the switch as it is.
        if !matches!(request, Request::Question(_)) {
            channel.numbering.translate_sent(&mut message);
        }
        if !self.send_as(dpid, xid, &message, true) {
            self.channels.get_mut(&dpid)?.requests.finish(xid);
            return None;
        }
        Some(xid)
    }

    fn send_as(&mut self, dpid: DatapathId, xid: Xid, message: &Message, is_request: bool) -> bool {
        let Some(channel) = self.channels.get(&dpid) else {
            return false;
        };
        let Some(connection) = channel.connection else {
            return false;
        };
        let Ok(frame) = encode(channel.version, xid, message) else {
            self.counters.unencodable += 1;
            return false;
        };
        match message {
            Message::PacketOut(_) => self.push_output(ControllerOutput::Send { connection, frame }),
            _ => {
                let is_member = !is_request && self.is_member(dpid, message, &frame);
                self.push(dpid, frame, (is_request.then_some(xid), is_member));
            }
        }
        true
    }

    pub(super) fn send_flow_mod(&mut self, dpid: DatapathId, flow_mod: FlowMod) {
        self.flow_mod(dpid, flow_mod);
    }

    /// Sends a flow-mod. Returns its xid if it could be sent.
    pub(super) fn flow_mod(&mut self, dpid: DatapathId, mut flow_mod: FlowMod) -> Option<Xid> {
        if let Some(channel) = self.channels.get(&dpid) {
            if channel.version == Version::V10 {
                flow_mod.cookie_mask = Cookie(0);
            }
            if channel.leads_on && self.is_qos_used {
                lead_on(&mut flow_mod);
            }
        }
        self.counters.flow_mods += 1;
        self.send(dpid, Message::FlowMod(flow_mod))
    }

    /// The version that a connected switch speaks.
    pub(super) fn version(&self, dpid: DatapathId) -> Option<Version> {
        let channel = self.channels.get(&dpid)?;
        channel.connection.map(|_| channel.version)
    }

    pub(super) fn set_numbering(&mut self, dpid: DatapathId, numbering: Numbering) {
        if let Some(channel) = self.channels.get_mut(&dpid) {
            channel.numbering = numbering;
        }
    }

    /// The numbers of a switch's tables.
    pub(super) fn numbering(&self, dpid: DatapathId) -> Numbering {
        let channel = self.channels.get(&dpid);
        channel.map_or(Numbering::Plain, |channel| channel.numbering)
    }

    /// Sets whether the entries of a switch's paths continue to the policy table.
    pub(super) fn set_leads_on(&mut self, dpid: DatapathId, leads_on: bool) {
        if let Some(channel) = self.channels.get_mut(&dpid) {
            channel.leads_on = leads_on;
        }
    }

    /// Notes whether there are any policies or circuits; without them no entry continues to the
    /// policy table.
    pub(super) fn set_qos_used(&mut self, is_used: bool) {
        self.is_qos_used = is_used;
    }

    /// Sends `data` out of `ports`, without an in-port.
    pub(super) fn packet_out(&mut self, dpid: DatapathId, ports: &[PortNo], data: &[u8]) {
        let actions = ports.iter().map(|port| Action::output(*port)).collect();
        self.packet_out_by(dpid, actions, data);
    }

    fn packet_out_by(&mut self, dpid: DatapathId, actions: Vec<Action>, data: &[u8]) {
        let Some(channel) = self.channels.get(&dpid) else {
            return;
        };
        let in_port = match channel.version {
            Version::V10 => PortNo::ANY,
            _ => PortNo::CONTROLLER,
        };
        let message = PacketOut::new(in_port, actions, bytes::Bytes::copy_from_slice(data));
        self.counters.packet_outs += 1;
        self.send(dpid, Message::PacketOut(message));
    }

    /// Sends an untagged packet of a VLAN out of a port that is a member, in the form of its
    /// packets there.
    pub(super) fn packet_out_in(&mut self, vlan: VlanId, to: Location, data: &[u8]) {
        match self.vlans.form(to, vlan) {
            Some(Form::Tagged) => {
                let actions = vlan::output(None, vlan, Form::Tagged, to.port);
                self.packet_out_by(to.dpid, actions, data);
            }
            Some(Form::Untagged) => self.packet_out(to.dpid, &[to.port], data),
            None => self.counters.packets_vlan_refused += 1,
        }
    }

    /// Sends an encoded packet-out, which may be the same for several switches.
    pub(super) fn send_packet_out(&mut self, connection: ConnectionId, frame: Frame) {
        self.counters.packet_outs += 1;
        self.push_output(ControllerOutput::Send { connection, frame });
    }

    /// Sends an update to the edge of a switch. Returns whether there is an edge.
    pub(super) fn tell_edge(&mut self, dpid: DatapathId, update: EdgeUpdate) -> bool {
        let channel = self.channels.get(&dpid);
        let connection = channel.and_then(|channel| channel.connection);
        let Some(connection) = connection.filter(|_| self.has_edges) else {
            return false;
        };
        if let Some(sent) = self.sent.get_mut(&dpid) {
            sent.hosts.extend(match &update {
                EdgeUpdate::Host { host, .. } => Some(host.mac),
                EdgeUpdate::Deliver(packet) => Some(packet.dst),
                EdgeUpdate::Install { dst, .. } => Some(*dst),
                _ => None,
            });
        }
        self.push_output(ControllerOutput::Edge { connection, update });
        true
    }

    /// Ends the request of this xid, and returns it.
    pub(super) fn finish(&mut self, dpid: DatapathId, xid: Xid) -> Option<Request> {
        self.channels.get_mut(&dpid)?.requests.finish(xid)
    }

    /// Ends the request of this xid at the reply to a barrier, and returns it.
    pub(super) fn finish_request_barrier(&mut self, dpid: DatapathId, xid: Xid) -> Option<Request> {
        self.channels.get_mut(&dpid)?.requests.finish_barrier(xid)
    }

    /// Handles a part of a multipart reply.
    pub(super) fn handle_part(
        &mut self,
        dpid: DatapathId,
        xid: Xid,
        len: usize,
        reply: MultipartReply,
    ) -> Option<Reply<Request>> {
        let channel = self.channels.get_mut(&dpid)?;
        Some(channel.requests.handle_part(xid, len, reply))
    }

    /// The request that waits under this xid.
    pub(super) fn asked(&self, dpid: DatapathId, xid: Xid) -> Option<Request> {
        self.channels.get(&dpid)?.requests.tag(xid).copied()
    }

    /// Whether the request is a question from outside, whose answer stays as it is.
    pub(super) fn is_question(&self, dpid: DatapathId, xid: Xid) -> bool {
        matches!(self.asked(dpid, xid), Some(Request::Question(_)))
    }

    pub(super) fn waits_for(&self, dpid: DatapathId, request: Request) -> bool {
        let channel = self.channels.get(&dpid);
        channel.is_some_and(|channel| channel.requests.waits_for(&request))
    }

    /// Whether a request has waited this long and a later barrier was answered.
    pub(super) fn is_ignored(
        &self,
        now: Instant,
        dpid: DatapathId,
        request: Request,
        wait: Duration,
    ) -> bool {
        let channel = self.channels.get(&dpid);
        channel.is_some_and(|channel| channel.requests.is_ignored(now, &request, wait))
    }

    /// Whether a switch has the maximum number of requests.
    pub(super) fn has_requests_max(&self, dpid: DatapathId) -> bool {
        let channel = self.channels.get(&dpid);
        channel.is_some_and(|channel| channel.requests.is_full())
    }
}

/// Makes an entry of a path continue to the policy table.
fn lead_on(flow_mod: &mut FlowMod) {
    let is_path = flow_mod.command == FlowModCommand::Add
        && EntryKind::of(flow_mod.cookie).is_some_and(EntryKind::leads_on);
    if is_path {
        Entry::lead_on(&mut flow_mod.instructions);
    }
}
