//! The application of the driver: a controller, alone or as a member of a cluster.
//!
//! The controller does not know about clusters. When this member starts to serve a switch, the
//! controller sees a switch that has just connected. When another member takes over a switch, the
//! controller sees it disconnect.

mod late;
mod replica;
#[cfg(test)]
mod replica_tests;
mod source;
mod wire;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Deref, DerefMut};

use clock::{Budget, Duration, Instant};
use openflow::message::{ErrorMessage, PortReason, PortStatus, RoleMessage};
use openflow::{
    DatapathId, ErrorKind, Frame, Message, MessageKind, PortNo, Version, Xid, decode, encode,
};

use crate::cluster::{
    Cluster, ClusterEvent, ClusterOutput, MemberId, RoleRefusal, ShardId, StoreRequest,
};
use crate::controller::{
    Admission, Alarm, Controller, ControllerOutput, Event, PeerIdentity, RefusedReason,
};
use crate::edge::EdgeUpdate;
use crate::requests::EDGE_XID;
use crate::session::SwitchUp;
use crate::{ConnectionId, Location};

use late::{Early, Sent};
pub use late::{PACKET_BYTES_MAX, PACKETS_PER_SECOND_MAX};
use replica::Replica;
pub use replica::{CopyCounts, Learned, Listener};
use source::Source;
pub use source::{Follower, Said};
pub use wire::{Batch, FRAME_BYTES_MAX, LENGTH_BYTES};

/// The time between two ticks of the application. The cluster needs one every 50 ms.
const TICK: Duration = Duration::from_millis(40);
/// The maximum number of unanswered role requests of one connection. Beyond it, the oldest is given
/// up: the cluster asks again.
const ASKED_MAX: usize = 8;
/// OFPT_ROLE_REQUEST of OpenFlow 1.3, as an error quotes it.
const ROLE_REQUEST_TYPE: u8 = 24;

/// How long a member without any switch counts as able to serve. Restarted switches reconnect in
/// this time.
const EMPTY_MAX: Duration = Duration::from_secs(5);

/// How often the member that serves a switch reports its edge ports.
const EDGES_EVERY: Duration = Duration::from_millis(500);
/// The number of switches whose edges are reported at one tick.
const EDGES_AT_ONCE: usize = 250;
/// How long such a report is believed.
const EDGES_FOR: Duration = Duration::from_secs(3);

/// The ports of switches that have no switch behind them.
pub type Edges = Vec<(DatapathId, Vec<PortNo>)>;

/// Output of a member for recipients other than its switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outward {
    /// A request to the store, a message to a peer, the high-water mark, the peers, an event.
    Cluster(ClusterOutput),
    /// The edges of the switches that this member serves, for all other members. Each of them
    /// passes the edges to [`Clustered::hear_edges`].
    Edges(Edges),
    /// A packet for the member that now serves the switch. The member passes the packet to
    /// [`Clustered::hear_packet`].
    Packet {
        to: MemberId,
        dpid: DatapathId,
        frame: Frame,
    },
    /// Whether this member reaches switches, and so can serve them. Call [`Cluster::set_ready`]
    /// once the store has this value.
    Reaches(bool),
}

/// The receiver of outward output. The application's thread calls it, so it must not block.
pub type Sink = Box<dyn FnMut(Outward) + Send>;

/// A controller, alone or as a member of a cluster. Its settings and its state are those of the
/// [`Controller`].
pub struct Clustered {
    controller: Controller,
    membership: Option<Box<Membership>>,
}

struct Membership {
    cluster: Cluster,
    sink: Sink,
    /// [`ControllerConfig::port_count_max`](crate::controller::ControllerConfig::port_count_max).
    ports_max: usize,
    /// The admitted connections, whether this member serves their switches or stands by.
    lines: BTreeMap<ConnectionId, Line>,
    by_dpid: BTreeMap<DatapathId, ConnectionId>,
    outputs: VecDeque<ControllerOutput>,
    ticked: Instant,
    /// When the last switch disconnected; `None` while one is connected.
    empty_since: Option<Instant>,
    reaches: bool,
    edges_due: Instant,
    /// The last switch whose edges were reported in this round.
    edges_said: Option<DatapathId>,
    source: Source,
    replica: Replica,
    /// Changes whenever this member begins to serve.
    term: u64,
    /// Messages from switches that another member serves.
    passed_over: u64,
    sent: Sent,
    early: Early,
    /// The budgets for packets handed over to other members, and for packets received from them.
    giving: Budget,
    hearing: Budget,
    /// Packets handed over to the member that now serves their switch.
    handed_over: u64,
    /// Packets that exceeded a limit, or that this member received and could not use.
    packets_dropped: u64,
}

struct Line {
    /// Kept up to date, for the moment when the controller starts to serve the switch.
    up: SwitchUp,
    peer: PeerIdentity,
    is_served: bool,
    /// When this member last yielded the switch to another member.
    yielded_at: Option<Instant>,
    /// The ports that the serving member reported as edges, and when it did.
    edges: Option<(Instant, BTreeSet<PortNo>)>,
    /// Role requests without an answer, oldest first, with their numbers.
    asked: VecDeque<(Xid, u32)>,
    next_xid: u32,
}

/// Whether the controller gets a message.
#[derive(PartialEq, Eq)]
enum Taken {
    ForController,
    Done,
}

impl Deref for Clustered {
    type Target = Controller;

    fn deref(&self) -> &Controller {
        &self.controller
    }
}

impl DerefMut for Clustered {
    fn deref_mut(&mut self) -> &mut Controller {
        &mut self.controller
    }
}

impl From<Controller> for Clustered {
    /// Makes a controller that serves every switch that connects.
    fn from(controller: Controller) -> Clustered {
        Clustered {
            controller,
            membership: None,
        }
    }
}

impl Clustered {
    /// Makes a member that serves the switches assigned by the cluster. `cluster` is new.
    pub fn member(
        now: Instant,
        mut controller: Controller,
        cluster: Cluster,
        sink: Sink,
    ) -> Clustered {
        controller.want_news();
        let config = controller.config();
        let ports_max = config
            .switch_count_max
            .saturating_mul(config.port_count_max);
        let budget = Budget::new(now, PACKETS_PER_SECOND_MAX, PACKETS_PER_SECOND_MAX);
        let membership = Membership {
            cluster,
            sink,
            ports_max: config.port_count_max,
            lines: BTreeMap::new(),
            by_dpid: BTreeMap::new(),
            outputs: VecDeque::new(),
            ticked: now,
            empty_since: Some(now),
            reaches: false,
            edges_due: now,
            edges_said: None,
            source: Source::default(),
            replica: Replica::new(ports_max),
            term: 0,
            passed_over: 0,
            sent: Sent::default(),
            early: Early::default(),
            giving: budget,
            hearing: budget,
            handed_over: 0,
            packets_dropped: 0,
        };
        Clustered {
            controller,
            membership: Some(Box::new(membership)),
        }
    }

    /// The cluster that this controller is a member of.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.membership
            .as_ref()
            .map(|membership| &membership.cluster)
    }

    /// The number of messages from switches that other members served.
    pub fn passed_over(&self) -> u64 {
        self.membership
            .as_ref()
            .map_or(0, |membership| membership.passed_over)
    }

    /// The number of packets handed over to members that served their switch by then.
    pub fn handed_over(&self) -> u64 {
        self.membership
            .as_ref()
            .map_or(0, |membership| membership.handed_over)
    }

    /// The number of packets not handed over because there were too many, and of packets that this
    /// member received and dropped.
    pub fn packets_dropped(&self) -> u64 {
        self.membership
            .as_ref()
            .map_or(0, |membership| membership.packets_dropped)
    }

    /// Passes an input to the cluster, and carries out the outputs. Does nothing without a cluster.
    pub fn tell_cluster(&mut self, now: Instant, input: impl FnOnce(&mut Cluster)) {
        if let Some(membership) = &mut self.membership {
            input(&mut membership.cluster);
            membership.carry_out(now, &mut self.controller);
        }
    }

    /// Handles another member's report of edge ports. The report is believed for three seconds, for
    /// switches that the sender serves and ports that they have. If this member takes over a switch
    /// in this time, it need not hold the switch's ports until LLDP has had its chance.
    pub fn hear_edges(&mut self, now: Instant, from: &MemberId, edges: Edges) {
        let Some(membership) = &mut self.membership else {
            return;
        };
        let statuses = membership.cluster.shards();
        let of_peer = statuses.iter().filter(|s| s.holder.as_ref() == Some(from));
        let shards: BTreeSet<ShardId> = of_peer.map(|status| status.shard).collect();
        let count = membership.cluster.config().shards;
        for (dpid, ports) in edges {
            let connection = membership.by_dpid.get(&dpid);
            let line = connection.and_then(|c| membership.lines.get_mut(c));
            if let Some(line) = line
                && shards.contains(&ShardId::of(dpid, count))
            {
                let ports = ports.into_iter().filter(|port| line.port(*port).is_ok());
                line.edges = Some((now, ports.collect()));
            }
        }
    }

    /// Handles a packet from another member, for a switch that this member now serves: a PACKET_OUT
    /// that the switch has refused, or a PACKET_IN without an answer.
    pub fn hear_packet(&mut self, now: Instant, dpid: DatapathId, frame: Frame) {
        let Some(membership) = &mut self.membership else {
            return;
        };
        if !membership.hear_packet(now, &mut self.controller, dpid, frame) {
            membership.packets_dropped += 1;
        }
    }

    /// Returns the next hosts and links for another member, if this member serves the switches.
    pub fn say(&mut self, now: Instant, follower: &mut Follower) -> Said {
        let Some(membership) = &mut self.membership else {
            return Said::NotServing;
        };
        let shards = membership.cluster.shards();
        if !shards.iter().any(|shard| shard.is_held) {
            return Said::NotServing;
        }
        let (source, term) = (&mut membership.source, membership.term);
        source.say(now, &mut self.controller, follower, term)
    }

    /// Learns hosts and links from another member. Only those at switches that the sender serves
    /// count, and only while this member serves none.
    pub fn learn(
        &mut self,
        now: Instant,
        from: &MemberId,
        listener: &mut Listener,
        batch: &mut Batch,
    ) -> Learned {
        let Some(membership) = &mut self.membership else {
            return Learned::Refused;
        };
        let statuses = membership.cluster.shards();
        let is_held = statuses.iter().any(|status| status.is_held);
        let of_sender = statuses.iter().filter(|s| s.holder.as_ref() == Some(from));
        let shards: BTreeSet<ShardId> = of_sender.map(|status| status.shard).collect();
        if is_held || shards.is_empty() || membership.lines.values().any(|line| line.is_served) {
            return Learned::Refused;
        }
        let count = membership.cluster.config().shards;
        let is_of_sender = |dpid| shards.contains(&ShardId::of(dpid, count));
        let replica = &mut membership.replica;
        replica.learn(now, &mut self.controller, listener, batch, is_of_sender)
    }

    /// Counters of the hosts and links received from other members, and the state of the copy.
    pub fn copy_counts(&self, now: Instant) -> CopyCounts {
        let membership = self.membership.as_ref();
        membership.map_or_else(CopyCounts::default, |membership| {
            membership.replica.counts(now)
        })
    }

    /// Handles a switch that is up, like [`Controller::handle_up`]. In a cluster, the controller
    /// learns of the switch once this member serves it.
    pub fn handle_up(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        up: SwitchUp,
        peer: PeerIdentity,
    ) -> Admission {
        let controller = &mut self.controller;
        let Some(membership) = &mut self.membership else {
            return controller.handle_up(now, connection, up, peer);
        };
        if let Some(reason) = membership.refusal(controller, connection, &up, peer) {
            return Admission::Refused(reason);
        }
        let dpid = up.features.datapath_id;
        if let Some(older) = membership.by_dpid.get(&dpid).copied() {
            let reason = RefusedReason::DuplicateDatapath { dpid };
            let close = ControllerOutput::Close {
                connection: older,
                reason,
            };
            membership.outputs.push_back(close);
            membership.take_down(now, controller, older);
        }
        let line = Line {
            up,
            peer,
            is_served: false,
            yielded_at: None,
            edges: None,
            asked: VecDeque::new(),
            next_xid: 0,
        };
        membership.lines.insert(connection, line);
        membership.by_dpid.insert(dpid, connection);
        membership.look_at_reach(now);
        let shard = ShardId::of(dpid, membership.cluster.config().shards);
        membership
            .cluster
            .handle_switch_up(now, dpid, connection, shard);
        membership.carry_out(now, controller);
        Admission::Admitted
    }

    /// Handles a message of an admitted connection.
    pub fn handle_frame(&mut self, now: Instant, connection: ConnectionId, frame: Frame) {
        if let Some(membership) = &mut self.membership {
            let taken = membership.take_frame(now, connection, &frame);
            membership.carry_out(now, &mut self.controller);
            if taken == Taken::Done {
                return;
            }
        }
        self.controller.handle_frame(now, connection, frame);
    }

    /// Handles the end of a connection.
    pub fn handle_down(&mut self, now: Instant, connection: ConnectionId) {
        match &mut self.membership {
            None => self.controller.handle_down(now, connection),
            Some(membership) => {
                membership.take_down(now, &mut self.controller, connection);
                membership.carry_out(now, &mut self.controller);
            }
        }
    }

    /// Handles what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(membership) = &mut self.membership {
            membership.handle_timeout(now);
            membership.carry_out(now, &mut self.controller);
            membership.say_edges(now, &self.controller);
        }
        self.controller.handle_timeout(now);
    }

    /// The next deadline and its purpose.
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        let own = self.membership.as_ref().map(|membership| {
            let tick = membership.ticked + TICK;
            let due = membership.cluster.poll_timeout();
            (due.map_or(tick, |due| due.min(tick)), "cluster")
        });
        let of_controller = self.controller.poll_timeout();
        own.into_iter()
            .chain(of_controller)
            .min_by_key(|(due, _)| *due)
    }

    /// The next output, or `None` when there is none.
    pub fn poll_output(&mut self) -> Option<ControllerOutput> {
        let Some(membership) = &mut self.membership else {
            return self.controller.poll_output();
        };
        if let Some(output) = membership.outputs.pop_front() {
            return Some(output);
        }
        // Drop the controller's output for a switch that another member serves by now.
        loop {
            match self.controller.poll_output()? {
                ControllerOutput::Send { connection, .. }
                | ControllerOutput::Edge { connection, .. }
                    if !membership.serves(connection) => {}
                ControllerOutput::Send { connection, frame } => {
                    membership.sent.note(membership.ticked, connection, &frame);
                    return Some(ControllerOutput::Send { connection, frame });
                }
                output => return Some(output),
            }
        }
    }

    /// Repairs the state after another method has panicked.
    pub fn handle_panicked(&mut self, now: Instant) {
        self.controller.handle_panicked(now);
        if let Some(membership) = &mut self.membership {
            membership.close_unserved(&self.controller);
        }
    }
}

impl Membership {
    fn serves(&self, connection: ConnectionId) -> bool {
        self.lines
            .get(&connection)
            .is_some_and(|line| line.is_served)
    }

    /// Returns the reason to refuse a connection, either the controller's or the cluster's.
    fn refusal(
        &mut self,
        controller: &mut Controller,
        connection: ConnectionId,
        up: &SwitchUp,
        peer: PeerIdentity,
    ) -> Option<RefusedReason> {
        let dpid = up.features.datapath_id;
        if let Some(reason) = controller.refusal_of(up, peer) {
            return Some(reason);
        }
        let Some(older) = self.by_dpid.get(&dpid).copied() else {
            let is_full = self.by_dpid.len() >= controller.config().switch_count_max;
            return is_full.then_some(RefusedReason::TooManySwitches);
        };
        if peer.dpid.is_some() {
            return None;
        }
        let alarm = Alarm::DuplicateDatapath { dpid, connection };
        let probe = ControllerOutput::Probe { connection: older };
        let alarm = ControllerOutput::Event(Event::Alarm(alarm));
        self.outputs.extend([probe, alarm]);
        Some(RefusedReason::DuplicateDatapath { dpid })
    }

    fn take_down(&mut self, now: Instant, controller: &mut Controller, connection: ConnectionId) {
        let Some(line) = self.lines.remove(&connection) else {
            return;
        };
        let dpid = line.up.features.datapath_id;
        self.by_dpid.remove(&dpid);
        if line.is_served {
            controller.handle_down(now, connection);
        }
        self.cluster.handle_switch_down(now, dpid, connection);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if now >= self.ticked + TICK {
            self.sent.tick(now, self.ticked);
            self.packets_dropped += self.early.age(now);
            self.ticked = now;
            self.cluster.handle_application_tick(now);
            self.look_at_reach(now);
        }
        self.cluster.handle_timeout(now);
    }

    /// Reports the edges of some switches at each tick: with thousands, all at once would take too
    /// long.
    fn say_edges(&mut self, now: Instant, controller: &Controller) {
        if now < self.edges_due {
            return;
        }
        let edges: Edges = controller
            .edges_after(self.edges_said, EDGES_AT_ONCE)
            .collect();
        self.edges_said = edges.last().map(|(dpid, _)| *dpid);
        if edges.len() < EDGES_AT_ONCE {
            self.edges_said = None;
            self.edges_due = now + EDGES_EVERY;
        }
        if !edges.is_empty() {
            (self.sink)(Outward::Edges(edges));
        }
    }

    /// Closes the connections of served switches that the controller lost in a panic: they
    /// reconnect.
    fn close_unserved(&mut self, controller: &Controller) {
        let lost = self.lines.iter().filter(|(connection, line)| {
            line.is_served && !controller.has_connection(**connection)
        });
        let reason = RefusedReason::Fault;
        let close = lost.map(|(connection, _)| ControllerOutput::Close {
            connection: *connection,
            reason,
        });
        self.outputs.extend(close);
    }

    fn look_at_reach(&mut self, now: Instant) {
        self.empty_since = match self.by_dpid.is_empty() {
            true => self.empty_since.or(Some(now)),
            false => None,
        };
        let reaches = match self.empty_since {
            None => true,
            Some(since) => self.reaches && now.since(since) < EMPTY_MAX,
        };
        if reaches != self.reaches {
            self.reaches = reaches;
            (self.sink)(Outward::Reaches(reaches));
        }
    }

    /// Handles the parts of a switch's message that concern the cluster.
    fn take_frame(&mut self, now: Instant, connection: ConnectionId, frame: &Frame) -> Taken {
        let Some(line) = self.lines.get_mut(&connection) else {
            return Taken::Done;
        };
        let dpid = line.up.features.datapath_id;
        let otherwise = match line.is_served {
            true => Taken::ForController,
            false => Taken::Done,
        };
        let concerns = matches!(
            frame.kind(),
            MessageKind::RoleReply
                | MessageKind::Experimenter
                | MessageKind::Error
                | MessageKind::PortStatus
        );
        let message = if concerns { decode(frame).ok() } else { None };
        match message {
            Some(Message::RoleReply(reply)) => {
                if let Some(number) = line.answered(frame.xid()) {
                    self.cluster
                        .handle_role_reply(now, dpid, connection, number, reply);
                }
                return Taken::Done;
            }
            Some(Message::RoleStatus(status)) => {
                let status = RoleMessage::new(status.role, status.generation_id);
                self.cluster
                    .handle_role_status(now, dpid, connection, status);
                return Taken::Done;
            }
            Some(Message::Error(error)) => {
                let refused = self.sent.take_refused(now, connection, &error);
                if let Some(refusal) = line.refused(frame.xid(), &error) {
                    self.cluster
                        .handle_role_refused(now, dpid, connection, refusal);
                    if let Some(packet) = refused {
                        self.hand_over(now, dpid, packet);
                    }
                    return Taken::Done;
                }
            }
            // A slave gets no packets: the switch sent this one while this member was its master.
            None if frame.kind() == MessageKind::PacketIn
                && line
                    .yielded_at
                    .is_some_and(|at| now.since(at) <= late::LATE_MAX)
                && late::may_be_handed_over(frame) =>
            {
                self.hand_over(now, dpid, frame.clone());
            }
            Some(Message::PortStatus(status)) => {
                line.port_changed(&status);
                let port = status.port.port_no;
                self.replica.port_changed(Location { dpid, port });
                if line.up.ports.len() > self.ports_max && !line.is_served {
                    let reason = RefusedReason::TooManyPorts;
                    self.outputs
                        .push_back(ControllerOutput::Close { connection, reason });
                    return Taken::Done;
                }
            }
            _ => {}
        }
        if otherwise == Taken::Done {
            self.passed_over += 1;
        }
        otherwise
    }

    /// Hands a packet that this member could not answer in time to the member that now serves the
    /// switch.
    fn hand_over(&mut self, now: Instant, dpid: DatapathId, frame: Frame) {
        let shard = ShardId::of(dpid, self.cluster.config().shards);
        let holder = self.cluster.holder(shard).cloned();
        let other = holder.filter(|holder| *holder != self.cluster.config().id);
        if let Some(to) = other.filter(|_| self.sent.is_new(now, self.ticked)) {
            if !self.giving.take(now) {
                self.packets_dropped += 1;
                return;
            }
            self.handed_over += 1;
            (self.sink)(Outward::Packet { to, dpid, frame });
        }
    }

    /// Takes over a packet, or keeps it until this member serves its switch. Returns `false` if it
    /// does neither.
    fn hear_packet(
        &mut self,
        now: Instant,
        controller: &mut Controller,
        dpid: DatapathId,
        frame: Frame,
    ) -> bool {
        let connection = self.by_dpid.get(&dpid).copied();
        let line = connection.and_then(|connection| self.lines.get(&connection));
        let (Some(connection), Some(line)) = (connection, line) else {
            return false;
        };
        let is_usable = self.hearing.take(now)
            && frame.version() == Some(line.up.version)
            && late::may_be_handed_over(&frame);
        match line.is_served {
            _ if !is_usable => return false,
            true => self.take_over(now, controller, connection, frame),
            false => self.packets_dropped += self.early.keep(now, connection, frame),
        }
        true
    }

    /// Sends or answers a packet that the previous member could not.
    fn take_over(
        &mut self,
        now: Instant,
        controller: &mut Controller,
        connection: ConnectionId,
        frame: Frame,
    ) {
        if frame.kind() == MessageKind::PacketIn {
            return controller.handle_frame(now, connection, frame);
        }
        // If the switch refuses it again, it is lost.
        let frame = frame.with_xid(Xid(EDGE_XID));
        self.outputs
            .push_back(ControllerOutput::Send { connection, frame });
    }

    /// Carries out the cluster's outputs.
    fn carry_out(&mut self, now: Instant, controller: &mut Controller) {
        while let Some(output) = self.cluster.poll_output() {
            match output {
                ClusterOutput::Role {
                    connection,
                    number,
                    request,
                    ..
                } => self.ask_role(now, connection, number, request),
                ClusterOutput::Serve { connection, .. } => {
                    self.serve(now, controller, connection);
                }
                ClusterOutput::Yield { connection, .. } => {
                    if let Some(line) = self.lines.get_mut(&connection) {
                        line.is_served = false;
                        line.yielded_at = Some(now);
                        controller.handle_down(now, connection);
                        // Its edge answers packet-ins by itself.
                        let update = EdgeUpdate::Stop;
                        self.outputs
                            .push_back(ControllerOutput::Edge { connection, update });
                    }
                }
                ClusterOutput::Close { connection, .. } => {
                    let reason = RefusedReason::NoRoles;
                    self.outputs
                        .push_back(ControllerOutput::Close { connection, reason });
                }
                output => {
                    let is_order = matches!(
                        &output,
                        ClusterOutput::Store {
                            request: StoreRequest::PutOwn { .. },
                            ..
                        }
                    );
                    let begins = matches!(
                        &output,
                        ClusterOutput::Event(
                            ClusterEvent::Holds { .. } | ClusterEvent::TookOver { .. }
                        )
                    );
                    self.term += u64::from(begins);
                    // A member that gets switches by this order should know their edges first.
                    if is_order {
                        (self.edges_said, self.edges_due) = (None, now);
                        self.say_edges(now, controller);
                    }
                    (self.sink)(Outward::Cluster(output));
                }
            }
        }
    }

    /// Requests a role. OpenFlow 1.0 has no roles: to the cluster, such a switch refuses them.
    fn ask_role(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        number: u32,
        request: RoleMessage,
    ) {
        let Some(line) = self.lines.get_mut(&connection) else {
            return;
        };
        if line.up.version == Version::V10 {
            let dpid = line.up.features.datapath_id;
            let refusal = RoleRefusal::Other { number };
            self.cluster
                .handle_role_refused(now, dpid, connection, refusal);
            return;
        }
        line.next_xid = line.next_xid.wrapping_add(1) & !crate::session::SESSION_XID;
        let xid = Xid(line.next_xid);
        let message = Message::RoleRequest(request);
        if let Ok(frame) = encode(line.up.version, xid, &message) {
            if line.asked.len() == ASKED_MAX {
                line.asked.pop_front();
            }
            line.asked.push_back((xid, number));
            self.outputs
                .push_back(ControllerOutput::Send { connection, frame });
        }
    }

    fn serve(&mut self, now: Instant, controller: &mut Controller, connection: ConnectionId) {
        let Some(line) = self.lines.get_mut(&connection) else {
            return;
        };
        (line.is_served, line.yielded_at) = (true, None);
        self.packets_dropped += self.early.age(now);
        let early = self.early.take(connection);
        if let Some((at, ports)) = line.edges.take()
            && now.since(at) < EDGES_FOR
        {
            controller.expect_edges(now, line.up.features.datapath_id, ports);
        }
        if let Some(links) = self.replica.take_links(now) {
            controller.expect_links(now, links);
        }
        let admission = controller.handle_up(now, connection, line.up.clone(), line.peer);
        if let Admission::Refused(reason) = admission {
            line.is_served = false;
            self.outputs
                .push_back(ControllerOutput::Close { connection, reason });
            return;
        }
        for frame in early {
            self.take_over(now, controller, connection, frame);
        }
    }
}

impl Line {
    /// Takes the number of the request with this xid, which is now answered.
    fn answered(&mut self, xid: Xid) -> Option<u32> {
        let at = self.asked.iter().position(|(asked, _)| *asked == xid)?;
        self.asked.remove(at).map(|(_, number)| number)
    }

    /// Returns the role refusal that an error reports. The controller's messages have xids of their
    /// own, so an error answers a role request only if it quotes one.
    fn refused(&mut self, xid: Xid, error: &ErrorMessage) -> Option<RoleRefusal> {
        if error.kind == ErrorKind::IS_SLAVE {
            return Some(RoleRefusal::IsSlave);
        }
        if error.data.get(1) != Some(&ROLE_REQUEST_TYPE) {
            return None;
        }
        let number = self.answered(xid)?;
        Some(match error.kind {
            ErrorKind::ROLE_STALE => RoleRefusal::Stale { number },
            _ => RoleRefusal::Other { number },
        })
    }

    fn port(&self, number: PortNo) -> Result<usize, usize> {
        let ports = &self.up.ports;
        ports.binary_search_by_key(&number, |port| port.port_no)
    }

    /// Updates the ports that the controller gets when this member starts to serve the switch.
    fn port_changed(&mut self, status: &PortStatus) {
        let at = self.port(status.port.port_no);
        // Another switch may be behind the port now.
        if let Some((_, edges)) = &mut self.edges {
            edges.remove(&status.port.port_no);
        }
        let ports = &mut self.up.ports;
        match (status.reason, at) {
            (PortReason::DELETE, Ok(at)) => drop(ports.remove(at)),
            (PortReason::DELETE, Err(_)) => {}
            (_, Ok(at)) => ports[at] = status.port.clone(),
            (_, Err(at)) => ports.insert(at, status.port.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use openflow::message::{PacketIn, PacketOut, PortStatus, Role, RoleReason, RoleStatus};
    use openflow::{Action, MacAddr};

    use super::wire::Record;
    use super::*;
    use crate::cluster::{
        Changed, ClusterConfig, Heartbeat, Member, Own, PeerMessage, Snapshot, StoreAnswer,
        StoreChange,
    };
    use crate::controller::ControllerConfig;
    use crate::controller::fixture::{port, up};
    use crate::controller::known::KnownHost;
    use crate::vlan::HostKey;

    const CONNECTION: ConnectionId = ConnectionId(1);
    const DPID: DatapathId = DatapathId(7);

    /// A lone member, its store and one switch with roles.
    struct Trial {
        now: Instant,
        member: Clustered,
        outward: mpsc::Receiver<Outward>,
        store: Snapshot,
        role: Role,
        generation: u64,
        /// Kinds of the messages to the switch, except role requests.
        sent: Vec<MessageKind>,
        /// The controller's multipart requests without an answer.
        asked: Vec<Xid>,
        closed: Vec<RefusedReason>,
        packets: Vec<Frame>,
    }

    impl Trial {
        fn new() -> Trial {
            let now = Instant::START + Duration::from_secs(1);
            let id = MemberId::new("a").unwrap();
            let config = ClusterConfig {
                id: id.clone(),
                shards: 1,
                seed: 1,
                reads: 1,
            };
            let cluster = Cluster::new(now, config, None);
            let (sender, outward) = mpsc::channel();
            let sink: Sink = Box::new(move |output| sender.send(output).unwrap());
            let controller = Controller::new(ControllerConfig::default(), [7; 32]);
            let entry = Member {
                address: "tcp:127.0.0.1:1".to_owned(),
                is_ready: true,
                reads: 1,
            };
            Trial {
                now,
                member: Clustered::member(now, controller, cluster, sink),
                outward,
                store: Snapshot {
                    cluster_id: 5,
                    revision: 10,
                    members: BTreeMap::from([(id, entry)]),
                    ..Snapshot::default()
                },
                role: Role::Equal,
                generation: u64::MAX,
                sent: Vec::new(),
                asked: Vec::new(),
                closed: Vec::new(),
                packets: Vec::new(),
            }
        }

        fn come_up(&mut self) -> Admission {
            let switch = up(DPID.0);
            self.member
                .handle_up(self.now, CONNECTION, switch, PeerIdentity::default())
        }

        /// Lets time pass while the store and the switch answer.
        fn pass(&mut self, time: Duration) {
            let end = self.now + time;
            while self.now < end {
                self.answer();
                self.now += Duration::from_millis(10);
                self.member.handle_timeout(self.now);
            }
            self.answer();
        }

        fn answer(&mut self) {
            loop {
                let outward: Vec<Outward> = self.outward.try_iter().collect();
                for output in &outward {
                    self.outward_came(output);
                }
                let mut is_quiet = outward.is_empty();
                while let Some(output) = self.member.poll_output() {
                    is_quiet = false;
                    match output {
                        ControllerOutput::Send { frame, .. } => self.frame_came(&frame),
                        ControllerOutput::Close { reason, .. } => self.closed.push(reason),
                        _ => {}
                    }
                }
                if is_quiet {
                    return;
                }
            }
        }

        fn outward_came(&mut self, output: &Outward) {
            let now = self.now;
            match output {
                Outward::Reaches(reaches) => {
                    let reaches = *reaches;
                    self.member
                        .tell_cluster(now, |cluster| cluster.set_ready(now, reaches));
                }
                Outward::Cluster(ClusterOutput::Store { number, request }) => {
                    let answer = self.stored(request);
                    let number = *number;
                    self.member.tell_cluster(now, |cluster| {
                        cluster.handle_store_answer(now, number, answer);
                    });
                }
                Outward::Cluster(_) | Outward::Edges(_) | Outward::Packet { .. } => {}
            }
        }

        fn stored(&mut self, request: &StoreRequest) -> StoreAnswer {
            match request {
                StoreRequest::Read => return StoreAnswer::Read(self.store.clone()),
                StoreRequest::PutOwn { shard, order, .. } => {
                    self.store.revision += 1;
                    let own = Own {
                        order: order.clone(),
                        revision: self.store.revision,
                    };
                    self.store.own.insert(*shard, own);
                }
                StoreRequest::PutEpoch { epoch, .. } => {
                    self.store.revision += 1;
                    self.store.epoch = Some((*epoch, self.store.revision));
                }
                StoreRequest::PutSchema { schema, .. } => {
                    self.store.revision += 1;
                    self.store.schema = Some((*schema, self.store.revision));
                }
            }
            StoreAnswer::Written {
                cluster_id: 5,
                revision: self.store.revision,
            }
        }

        fn frame_came(&mut self, frame: &Frame) {
            let Ok(Message::RoleRequest(request)) = decode(frame) else {
                if frame.kind() == MessageKind::MultipartRequest {
                    self.asked.push(frame.xid());
                }
                if frame.kind() == MessageKind::PacketOut {
                    self.packets.push(frame.clone());
                }
                self.sent.push(frame.kind());
                if frame.kind() == MessageKind::BarrierRequest {
                    self.say(frame.xid(), &Message::BarrierReply);
                }
                return;
            };
            if request.role != Role::NoChange {
                (self.role, self.generation) = (request.role, request.generation_id);
            }
            let reply = RoleMessage::new(self.role, self.generation);
            self.say(frame.xid(), &Message::RoleReply(reply));
        }

        fn say(&mut self, xid: Xid, message: &Message) {
            let frame = encode(Version::V13, xid, message).unwrap();
            self.member.handle_frame(self.now, CONNECTION, frame);
        }

        /// Answers the controller's requests for the switch's entries: it has none.
        fn report_no_entries(&mut self) {
            use openflow::message::MultipartReply;
            use openflow::multipart::ReplyBody;
            for xid in std::mem::take(&mut self.asked) {
                let body = ReplyBody::Flow(Vec::new());
                let reply = Message::MultipartReply(MultipartReply { more: false, body });
                self.say(xid, &reply);
            }
            self.answer();
        }

        fn ports(&self) -> Vec<usize> {
            let switches = self.member.switches();
            let connected = switches.iter().filter(|view| view.connection.is_some());
            connected.map(|view| view.port_count).collect()
        }
    }

    /// The controller sees a switch only once this member is its master, with the ports that the
    /// switch has then. When another member takes the switch, the controller drops it.
    #[test]
    fn the_controller_has_a_switch_while_this_member_serves_it() {
        let mut trial = Trial::new();
        assert_eq!(trial.come_up(), Admission::Admitted);
        assert_eq!(trial.ports(), [], "not before the switch has agreed");

        let status = PortStatus {
            reason: PortReason::ADD,
            port: port(3),
        };
        trial.say(Xid(0), &Message::PortStatus(status));
        trial.pass(Duration::from_secs(2));
        assert_eq!(trial.role, Role::Primary);
        assert_eq!(trial.ports(), [3]);
        assert!(!trial.sent.is_empty());

        // Another member takes it.
        trial.sent.clear();
        trial.generation += 1;
        trial.role = Role::Secondary;
        let status = RoleStatus {
            role: Role::Secondary,
            reason: RoleReason::PRIMARY_REQUEST,
            generation_id: trial.generation,
            properties: Vec::new(),
        };
        trial.say(Xid(0), &Message::RoleStatus(status));
        trial.answer();
        assert_eq!(trial.ports(), []);
        assert_eq!(trial.sent, [], "nothing is written any more");
        assert_eq!(trial.closed, []);
    }

    /// A switch without roles is served by the member that has its shard, and by no other.
    #[test]
    fn a_switch_of_openflow_1_0_is_served_by_one_member() {
        let mut trial = Trial::new();
        let mut old = up(DPID.0);
        old.version = Version::V10;
        let peer = PeerIdentity::default();
        let _ = trial
            .member
            .handle_up(trial.now, CONNECTION, old.clone(), peer);
        trial.answer();
        assert_eq!(
            trial.closed,
            [RefusedReason::NoRoles],
            "nobody has its shard yet"
        );
        trial.member.handle_down(trial.now, CONNECTION);
        trial.pass(Duration::from_secs(2));
        let _ = trial.member.handle_up(trial.now, CONNECTION, old, peer);
        trial.pass(Duration::from_millis(100));
        assert_eq!(trial.ports(), [2]);
        assert_eq!(trial.role, Role::Equal, "it was asked for none");
    }

    #[test]
    fn a_refused_message_of_the_controllers_is_no_answer_to_a_role_request() {
        let mut line = Line {
            up: up(1),
            peer: PeerIdentity::default(),
            is_served: true,
            yielded_at: None,
            edges: None,
            asked: VecDeque::from([(Xid(1), 9)]),
            next_xid: 1,
        };
        let error = |kind, type_byte: u8| {
            ErrorMessage::new(kind, vec![4, type_byte, 0, 8, 0, 0, 0, 1].into())
        };
        let of_flow_mod = error(ErrorKind::FLOW_MOD_TABLE_FULL, 14);
        assert_eq!(line.refused(Xid(1), &of_flow_mod), None);
        let stale = error(ErrorKind::ROLE_STALE, ROLE_REQUEST_TYPE);
        assert_eq!(line.refused(Xid(2), &stale), None);
        let refused = line.refused(Xid(1), &stale);
        assert_eq!(refused, Some(RoleRefusal::Stale { number: 9 }));
        assert_eq!(line.refused(Xid(1), &stale), None, "answered once");
        let slave = error(ErrorKind::IS_SLAVE, 14);
        assert_eq!(line.refused(Xid(5), &slave), Some(RoleRefusal::IsSlave));
    }

    /// The packets handed over to `b` after it has become master of the switch.
    fn handed_over(trial: &mut Trial) -> Vec<Frame> {
        let outward: Vec<Outward> = trial.outward.try_iter().collect();
        let packet = |output| match output {
            Outward::Packet { to, dpid, frame } => {
                assert_eq!((to.as_str(), dpid), ("b", DPID));
                Some(frame)
            }
            _ => None,
        };
        outward.into_iter().filter_map(packet).collect()
    }

    /// A broadcast, or a frame for the next device alone.
    fn packet_in(is_link_local: bool) -> Frame {
        let mut data = vec![0xff; 6];
        if is_link_local {
            data = vec![0x01, 0x80, 0xc2, 0, 0, 0x0e];
        }
        data.extend([2, 0, 0, 0, 0, 9, 0x88, 0xb5]);
        data.resize(60, 7);
        let message = Message::PacketIn(PacketIn {
            total_len: 60,
            ..PacketIn::new(PortNo(1), data.into())
        });
        encode(Version::V13, Xid(0), &message).unwrap()
    }

    /// Makes `b` the master of the switch.
    fn demoted(trial: &mut Trial) {
        let b = MemberId::new("b").unwrap();
        let order = crate::cluster::Order::repeating(&[b, MemberId::new("a").unwrap()]);
        let change = StoreChange {
            cluster_id: 5,
            revision: 99,
            changed: Changed::Own(ShardId(0), Some(order)),
        };
        let now = trial.now;
        trial
            .member
            .tell_cluster(now, |cluster| cluster.handle_store_change(now, change));
        trial.role = Role::Secondary;
        trial.generation = u64::MAX >> 13;
        let status = RoleStatus {
            role: Role::Secondary,
            reason: RoleReason::PRIMARY_REQUEST,
            generation_id: trial.generation,
            properties: Vec::new(),
        };
        trial.say(Xid(0), &Message::RoleStatus(status));
    }

    /// A packet that the switch sent before its master changed is handed over once.
    #[test]
    fn packets_that_are_late_go_to_the_next_master() {
        for (waits_ms, is_quoted, counts) in
            [(0, true, true), (900, true, false), (0, false, false)]
        {
            let mut trial = Trial::new();
            let _ = trial.come_up();
            // Until both ports are edges.
            for _ in 0..20 {
                trial.pass(Duration::from_millis(500));
                trial.report_no_entries();
            }
            trial.packets.clear();
            trial
                .member
                .handle_frame(trial.now, CONNECTION, packet_in(false));
            trial.answer();
            let sent = std::mem::take(&mut trial.packets);
            assert_eq!(sent.len(), 1, "it is flooded");
            demoted(&mut trial);
            trial.now += Duration::from_millis(waits_ms);
            let mut error = ErrorMessage::new(ErrorKind::IS_SLAVE, sent[0].bytes().slice(..64));
            if !is_quoted {
                error.data = error.data.slice(..12);
            }
            trial.say(sent[0].xid(), &Message::Error(error.clone()));
            // A second refusal of the same packet does not count.
            trial.say(sent[0].xid(), &Message::Error(error));
            trial
                .member
                .handle_frame(trial.now, CONNECTION, packet_in(true));
            trial
                .member
                .handle_frame(trial.now, CONNECTION, packet_in(false));
            let mut expected = Vec::new();
            if counts {
                expected.extend(sent);
            }
            if waits_ms == 0 {
                expected.push(packet_in(false));
            }
            assert_eq!(handed_over(&mut trial), expected, "{waits_ms} {is_quoted}");
            assert_eq!(trial.member.handed_over(), expected.len() as u64);
        }
    }

    /// Hosts cannot flood the connection that carries heartbeats.
    #[test]
    fn a_flood_is_handed_over_within_a_budget_and_heartbeats_go() {
        let mut trial = Trial::new();
        let entry = trial.store.members.values().next().unwrap().clone();
        trial
            .store
            .members
            .insert(MemberId::new("b").unwrap(), entry);
        let _ = trial.come_up();
        // The member hears `b`, so it may serve.
        let (now, b) = (trial.now, MemberId::new("b").unwrap());
        trial.member.tell_cluster(now, |cluster| {
            let beat = PeerMessage::Heartbeat(Heartbeat::default());
            cluster.handle_peer_message(now, &b, beat);
        });
        trial.pass(Duration::from_secs(3));
        demoted(&mut trial);
        let _ = trial.outward.try_iter().count();
        let at_once = u64::from(PACKETS_PER_SECOND_MAX);
        let (mut packets, mut beats) = (0, 0);
        for _ in 0..20 {
            for _ in 0..100 {
                let frame = packet_in(false);
                trial.member.handle_frame(trial.now, CONNECTION, frame);
            }
            trial.now += Duration::from_millis(10);
            trial.member.handle_timeout(trial.now);
            for output in trial.outward.try_iter() {
                match output {
                    Outward::Packet { .. } => packets += 1,
                    Outward::Cluster(ClusterOutput::Peer {
                        message: PeerMessage::Heartbeat(_),
                        ..
                    }) => beats += 1,
                    _ => {}
                }
            }
        }
        let in_200_ms = at_once / 5;
        assert!((at_once..=at_once + in_200_ms).contains(&packets));
        assert_eq!(trial.member.handed_over(), packets);
        assert_eq!(trial.member.packets_dropped(), 2000 - packets);
        assert!(beats >= 1, "{beats}");
    }

    /// Another member cannot make this one send a switch more packets than it may hand over.
    #[test]
    fn a_flood_of_another_member_is_heard_within_a_budget() {
        let mut trial = Trial::new();
        let _ = trial.come_up();
        trial.pass(Duration::from_millis(500));
        trial.packets.clear();
        let message = Message::PacketOut(PacketOut::new(
            PortNo::CONTROLLER,
            vec![Action::output(PortNo(2))],
            vec![0xff; 60].into(),
        ));
        let packet = encode(Version::V13, Xid(7), &message).unwrap();
        for _ in 0..1000 {
            trial.member.hear_packet(trial.now, DPID, packet.clone());
        }
        trial.member.hear_packet(trial.now, DatapathId(8), packet);
        trial.answer();
        let is_host = |frame: &&Frame| late::may_be_handed_over(frame);
        let sent = trial.packets.iter().filter(is_host).count();
        assert_eq!(sent, PACKETS_PER_SECOND_MAX as usize);
        assert_eq!(trial.member.packets_dropped(), 1001 - sent as u64);
    }

    /// The next master sends a packet on, even if the packet arrives before the role.
    #[test]
    fn packets_of_the_member_before_are_sent_on() {
        let out = |trial: &mut Trial| {
            trial.answer();
            let sent = std::mem::take(&mut trial.packets);
            let is_host = |frame: &Frame| late::may_be_handed_over(frame);
            sent.into_iter().filter(is_host).collect::<Vec<_>>()
        };
        let message = Message::PacketOut(PacketOut::new(
            PortNo::CONTROLLER,
            vec![Action::output(PortNo(2))],
            vec![0xff; 60].into(),
        ));
        let packet = |version| encode(version, Xid(7), &message).unwrap();
        let mut trial = Trial::new();
        let _ = trial.come_up();
        let now = trial.now;
        trial.member.hear_packet(now, DPID, packet(Version::V13));
        trial.member.hear_packet(now, DPID, packet(Version::V10));
        trial
            .member
            .hear_packet(now, DatapathId(8), packet(Version::V13));
        assert_eq!(out(&mut trial), []);
        trial.pass(Duration::from_millis(500));
        let early = out(&mut trial);
        assert_eq!(trial.ports(), [2]);
        assert_eq!(early, [packet(Version::V13).with_xid(Xid(EDGE_XID))]);
        trial
            .member
            .hear_packet(trial.now, DPID, packet(Version::V13));
        trial.member.hear_packet(trial.now, DPID, packet_in(true));
        assert_eq!(out(&mut trial), early);
    }

    /// A report of edges counts if the member that serves the switch sends it, for ports that have
    /// not changed since.
    #[test]
    fn edges_of_the_member_before_are_edges_at_once() {
        for (says_it, changes, edges) in [("b", false, 2), ("c", false, 0), ("b", true, 1)] {
            let mut trial = Trial::new();
            let b = MemberId::new("b").unwrap();
            let own = Own {
                order: crate::cluster::Order::repeating(&[b.clone(), MemberId::new("a").unwrap()]),
                revision: 9,
            };
            trial.store.own.insert(ShardId(0), own);
            let entry = trial.store.members.values().next().unwrap().clone();
            trial.store.members.insert(b.clone(), entry);
            let _ = trial.come_up();
            trial.pass(Duration::from_millis(100));
            assert_eq!(trial.ports(), []);
            let from = MemberId::new(says_it).unwrap();
            let said = vec![(DPID, vec![PortNo(1), PortNo(2), PortNo(9)])];
            let now = trial.now;
            trial.member.hear_edges(now, &from, said);
            if changes {
                let status = PortStatus {
                    reason: PortReason::MODIFY,
                    port: port(2),
                };
                trial.say(Xid(0), &Message::PortStatus(status));
            }
            // No other member hears `b`: with two members, an answer from the member's own switch
            // is enough.
            trial
                .member
                .tell_cluster(now, |cluster| cluster.handle_peer_reset(now, &b));
            let mut at_once = None;
            for _ in 0..300 {
                trial.pass(Duration::from_millis(10));
                if !trial.ports().is_empty() && at_once.is_none() {
                    trial.report_no_entries();
                    let is_edge = |n: &u32| {
                        let port = PortNo(*n);
                        trial.member.is_edge(crate::Location { dpid: DPID, port })
                    };
                    at_once = Some((1..=2).filter(is_edge).count());
                }
            }
            assert_eq!(at_once, Some(edges), "{says_it}, {changes}");
        }
    }

    /// Only the member that serves the switches is believed, and only while this one does not.
    #[test]
    fn hosts_are_learned_from_the_member_that_serves_until_this_one_takes_over() {
        let mut trial = Trial::new();
        let [a, b, c] = ["a", "b", "c"].map(|name| MemberId::new(name).unwrap());
        let own = Own {
            order: crate::cluster::Order::repeating(&[b.clone(), a]),
            revision: 9,
        };
        trial.store.own.insert(ShardId(0), own);
        let entry = trial.store.members.values().next().unwrap().clone();
        trial.store.members.insert(b.clone(), entry);
        let _ = trial.come_up();
        let host = |n: u64| HostKey::untagged(MacAddr::from_u64(0x0200_0000_0000 | n));
        let known = |port| KnownHost {
            at: Location::new(DPID, PortNo(port)),
            is_no_router: false,
            ips: Vec::new(),
        };
        let learn = |trial: &mut Trial, from, listener: &mut Listener| {
            // The switch has no port 9.
            let places = [(1, 1), (2, 2), (3, 9)];
            let record = |(n, port)| Record::Host(host(n), Some(known(port)));
            let mut batch = Batch {
                begins: true,
                ends: true,
                records: places.map(record).into(),
            };
            let now = trial.now;
            trial.member.learn(now, from, listener, &mut batch)
        };
        let mut listener = Listener::default();
        let early = learn(&mut trial, &b, &mut listener);
        assert_eq!(early, Learned::Refused, "nobody knows yet who serves");
        trial.pass(Duration::from_millis(100));
        let wrong = learn(&mut trial, &c, &mut listener);
        assert_eq!(wrong, Learned::Refused, "another serves");
        let mut follower = Follower::default();
        let said = trial.member.say(trial.now, &mut follower);
        assert_eq!(said, Said::NotServing);
        assert_eq!(learn(&mut trial, &b, &mut listener), Learned::Done);
        assert!(trial.member.copy_counts(trial.now).is_whole);
        assert_eq!(trial.member.host_count(), 3);

        let now = trial.now;
        trial
            .member
            .tell_cluster(now, |cluster| cluster.handle_peer_reset(now, &b));
        trial.pass(Duration::from_secs(2));
        assert_eq!(trial.ports(), [2]);
        let late = learn(&mut trial, &b, &mut listener);
        assert_eq!(late, Learned::Refused, "this one serves");
        let hosts: Vec<MacAddr> = trial.member.hosts().iter().map(|h| h.mac).collect();
        assert_eq!(hosts, [host(1).mac, host(2).mac]);
        let said = trial.member.say(trial.now, &mut follower);
        assert!(matches!(said, Said::Frame { .. }), "{said:?}");
    }

    /// A member that gets switches by an order knows their edges first, even if they connected to
    /// it after the last report of edges.
    #[test]
    fn edges_are_said_before_an_order_is_written() {
        let mut trial = Trial::new();
        let _ = trial.come_up();
        trial.pass(Duration::from_secs(1));
        trial.report_no_entries();
        trial.pass(Duration::from_secs(1));
        // A member joins, so the order is rewritten.
        let b = MemberId::new("b").unwrap();
        let entry = trial.store.members.values().next().unwrap().clone();
        trial.store.members.insert(b.clone(), entry);
        let now = trial.now;
        let reread = |cluster: &mut Cluster| cluster.handle_watch_lost(now);
        trial.member.tell_cluster(now, reread);
        let mut before = None;
        for _ in 0..500 {
            trial.now += Duration::from_millis(10);
            let now = trial.now;
            let beat = Heartbeat {
                is_ready: true,
                ..Heartbeat::default()
            };
            trial.member.tell_cluster(now, |cluster| {
                cluster.handle_peer_message(now, &b, PeerMessage::Heartbeat(beat));
            });
            trial.member.handle_timeout(now);
            let outward: Vec<Outward> = trial.outward.try_iter().collect();
            let is_order = |output: &Outward| {
                let Outward::Cluster(ClusterOutput::Store { request, .. }) = output else {
                    return false;
                };
                matches!(request, StoreRequest::PutOwn { .. })
            };
            if let Some(at) = outward.iter().position(is_order) {
                before = at.checked_sub(1).map(|at| outward[at].clone());
                break;
            }
            for output in &outward {
                trial.outward_came(output);
            }
            trial.answer();
        }
        let Some(Outward::Edges(edges)) = before else {
            panic!("{before:?}");
        };
        assert_eq!(edges.len(), 1);
    }

    /// A switch cannot make a standby member keep more ports than the controller would.
    #[test]
    fn a_switch_that_adds_ports_without_end_is_closed() {
        let mut trial = Trial::new();
        let _ = trial.come_up();
        for number in 3..=5000 {
            let status = PortStatus {
                reason: PortReason::ADD,
                port: port(number),
            };
            trial.say(Xid(0), &Message::PortStatus(status));
        }
        trial.answer();
        assert!(trial.closed.contains(&RefusedReason::TooManyPorts));
    }

    #[test]
    fn who_has_a_datapath_id_that_is_there_is_refused() {
        let mut trial = Trial::new();
        let refused = |member: &mut Clustered, connection, switch| {
            member.handle_up(
                Instant::START,
                ConnectionId(connection),
                switch,
                PeerIdentity::default(),
            )
        };
        assert_eq!(trial.come_up(), Admission::Admitted);
        let reason = RefusedReason::DuplicateDatapath { dpid: DPID };
        assert_eq!(
            refused(&mut trial.member, 6, up(DPID.0)),
            Admission::Refused(reason)
        );
    }
}
