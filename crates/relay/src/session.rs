//! One end of a relay pair: its channels, and the state that survives when the connection between
//! the ends breaks.
//!
//! The driver moves bytes: from local sockets to [`Session::handle_local`] and back from
//! [`Session::poll_local`], from lanes to [`Session::handle_lane`] and back from
//! [`Session::poll_lane`], and likewise for the control stream. After any of these calls, it calls
//! [`Session::schedule`], which moves messages from the queues to the lanes, and drains
//! [`Session::poll_event`], which reports new work. The driver exchanges [`Settings`] first,
//! because the controller side must read the session's id to find the session.
//!
//! Without a connection, the local sockets stay open for the grace time. On the next connection,
//! both ends list their channels and the position received in each lane, and send the rest. If the
//! other end has restarted, it does not know the session. Then every channel that it knew of is
//! closed, because a protocol session cannot be resumed in the middle.

mod policy;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use clock::{Duration, Instant};
use openflow::{DatapathId, Frame};
use sched::policy::MapDigest;
use sched::{Direction, Lane, PolicyMap};

use super::carriers::{CARRIERS_MAX, Carriers};
use super::channel::{Inbound, LocalWrite, Outbound, Taken};
use super::copies::{CopiedRecord, CopyCounters};
use super::datapaths::Claims;
use super::kind::{Kind, PerKind};
use super::line::{Item, Line, LineStatus};
use super::policy::PolicyExchange;
use super::tally::{Shed, Tally};
use super::wire::{
    Agent, ChannelId, Control, CopyHeader, Cursor, OrderMode, Record, SessionId, Settings, Side,
    WireError,
};

/// Maximum number of channels of one session.
pub const CHANNELS_MAX: usize = 4096;

/// Maximum bytes dealt to lanes and not yet taken by the connection, if messages are scheduled. The
/// limit applies to each connection, for all channels together. An urgent message waits for up to
/// this many bytes: measured on 20 Mbit/s, 4 KiB cost 2.8 ms and default buffers cost 93 ms. A
/// lower limit would leave the connection idle between wake-ups.
pub const LOWER_BYTES_MAX: usize = 4 * 1024;

/// Divisor of the queues' capacity: the quotient is the part that one channel may use.
const QUEUE_SHARE: usize = 4;

/// The name of the agent whose channels carry OVSDB.
pub const OVSDB: &str = "ovsdb";

/// Maximum number of ended channels whose counts no caller has fetched.
const FINISHED_MAX: usize = 1024;

/// The number of lanes with [`Config::shares_lanes`].
pub const SHARED_LANES: u16 = 8;

/// The configuration of a relay end.
#[derive(Clone, Debug)]
pub struct Config {
    pub side: Side,
    /// Maximum bytes under way or held, per channel and direction.
    pub window_bytes: usize,
    /// Lanes for the packets of one channel, 1 to 256.
    pub flow_lanes: u16,
    /// Whether all channels of the session share [`SHARED_LANES`] lanes. From its first packet on,
    /// each channel has an equal part of these lanes, and at least one. Packets of all channels
    /// that are sent together cost one header for each lane among them, and are lost together
    /// anyway. Has no effect if messages are scheduled.
    pub shares_lanes: bool,
    /// How long local sockets outlive the connection between the ends.
    pub grace: Duration,
    /// The kinds of messages that are sent a second time, by datagram.
    pub copied: PerKind<bool>,
    /// The mode of order. The keyed mode is used only if the other end is keyed, too.
    pub order: OrderMode,
    /// The class of streams and datagrams of agents other than OpenFlow, by the agent's name. An
    /// agent that is not listed has [`Kind::Other`].
    pub classes: BTreeMap<String, Kind>,
}

impl Config {
    pub fn new(side: Side) -> Config {
        Config {
            side,
            window_bytes: 4 << 20,
            flow_lanes: 16,
            shares_lanes: false,
            grace: Duration::from_secs(10),
            copied: PerKind::default(),
            order: OrderMode::Strict,
            classes: BTreeMap::new(),
        }
    }

    /// The class of the agent called `name`.
    pub fn class_of(&self, name: &str) -> Kind {
        self.classes.get(name).copied().unwrap_or(Kind::Other)
    }
}

/// New work for the driver.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The other end has a new channel: dial its destination.
    Opened {
        channel: ChannelId,
        agent: Agent,
        name: String,
    },
    /// The channel was closed: close its local socket.
    Closed { channel: ChannelId, reason: String },
    /// The lane has something to send. Reported only while connected.
    Transmit { channel: ChannelId, lane: Lane },
    /// There are bytes for the local socket.
    Deliver { channel: ChannelId },
    /// There is room again for bytes from the local socket.
    Room { channel: ChannelId },
    /// There is a message for the control stream.
    Control,
    /// Another map is in use: it may require other connections.
    Mapped,
    /// A channel was closed because its switch claims a datapath other than the one in its relay's
    /// certificate. Repetitions of the same claim are not reported.
    WrongDatapath {
        channel: ChannelId,
        said: DatapathId,
        certified: DatapathId,
    },
    /// The outcome of the policy map that was pushed.
    Policy { outcome: Result<MapDigest, String> },
}

/// The counters of a channel.
#[derive(Clone, Debug)]
pub struct ChannelStatus {
    pub channel: ChannelId,
    pub agent: Agent,
    pub name: String,
    /// The class of all lanes of an agent other than OpenFlow. OpenFlow's lanes have their own
    /// classes.
    pub class: Option<Kind>,
    /// Traffic from the local socket.
    pub taken: Tally,
    /// Traffic to the local socket.
    pub given: Tally,
    pub lanes_out: Vec<Cursor>,
    pub lanes_in: Vec<Cursor>,
    /// Bytes kept until the other end has delivered them.
    pub kept_bytes: usize,
    /// Messages that wait in the session's queues.
    pub queued_count: usize,
    pub queued_bytes: usize,
    pub shed: Shed,
    /// Bytes received that the local socket has not taken yet.
    pub held_bytes: usize,
    /// The number of received messages that wait for one they must not overtake.
    pub held_count: usize,
}

/// The messages for a session that one end sends before it learns whether the other end knows the
/// session.
#[derive(Clone, Debug, Default)]
pub struct Early {
    /// Messages for the control stream, up to the end of the resumption.
    pub messages: Vec<Control>,
    /// The channels named in these messages.
    pub said: BTreeSet<ChannelId>,
    /// Copies of records that the other end may not have, in the order of each lane. The other end
    /// recognises the records it already has by their place, and drops their copies.
    pub records: Vec<CopiedRecord>,
}

/// One end of a relay pair.
#[derive(Debug)]
pub struct Session {
    config: Config,
    id: SessionId,
    /// See [`Settings::life`].
    life: u64,
    link: Link,
    channels: BTreeMap<ChannelId, Channel>,
    next_own: u64,
    /// Ids of the other end below this have been seen.
    next_peer: u64,
    peer_window_bytes: usize,
    /// The order that both ends keep; strict until the other end has answered.
    order: OrderMode,
    peer_takes_datagrams: bool,
    /// Whether records may have no heads.
    is_bare: bool,
    control: VecDeque<Control>,
    events: VecDeque<Event>,
    finished: VecDeque<ChannelStatus>,
    /// The messages that wait to be dealt to lanes, if there is a policy map.
    line: Option<Line>,
    /// The exchange of the policy map with the other end.
    policy: Option<PolicyExchange>,
    /// The connection of each lane.
    carriers: Carriers,
    /// Bytes dealt to lanes that their connection has not taken.
    lower_bytes: [usize; CARRIERS_MAX],
    /// Channels that are not read because the queues have no room.
    stalled: BTreeSet<ChannelId>,
    /// Copies of the last output of [`Session::poll_lane`].
    copies: Vec<CopiedRecord>,
    /// Counts of copies for channels that were closed or never existed.
    copies_past: CopyCounters,
    /// At the controller side: the only datapath that the other relay's certificate allows.
    certified: Option<DatapathId>,
    /// The number of channels closed because they claimed another datapath.
    datapaths_refused: u64,
    refused_last: Option<DatapathId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// Local sockets are closed at `until`, once.
    Down {
        until: Option<Instant>,
    },
    /// Until the other end has named all of its channels.
    Resuming,
    Up,
}

#[derive(Debug)]
struct Channel {
    agent: Agent,
    name: String,
    /// The class of all lanes of an agent other than OpenFlow.
    class: Kind,
    out: Outbound,
    inn: Inbound,
    /// Whether the other end may know of this channel.
    announced: bool,
    /// On resumption: whether the other end still has this channel.
    named: bool,
    /// Whether the channel's lanes are full, as noted in the line.
    is_blocked: bool,
    /// The switch of this connection, once it is known.
    datapath: Option<DatapathId>,
    /// The datapaths that a database claims.
    claims: Claims,
}

impl Channel {
    /// The datapath that `chunks` from the switch claim, if it contradicts the certificate.
    fn foreign(&mut self, certified: DatapathId, chunks: &[Bytes]) -> Option<DatapathId> {
        match self.agent {
            Agent::OpenFlow => {
                let mut said = chunks.iter().filter_map(|chunk| datapath_in(chunk));
                said.find(|said| *said != certified)
            }
            Agent::Raw if self.name == OVSDB => {
                let claims = &mut self.claims;
                chunks
                    .iter()
                    .find_map(|chunk| claims.handle(chunk, certified))
            }
            Agent::Raw => None,
        }
    }

    fn kind_of(&self, lane: Lane) -> Kind {
        match self.agent {
            Agent::OpenFlow => Kind::of(lane),
            Agent::Raw => self.class,
        }
    }

    fn status(&self, id: ChannelId) -> ChannelStatus {
        ChannelStatus {
            channel: id,
            agent: self.agent,
            name: self.name.clone(),
            class: (self.agent == Agent::Raw).then_some(self.class),
            taken: self.out.tally.clone(),
            given: self.inn.tally.clone(),
            lanes_out: self.out.lane_counts(),
            lanes_in: self.inn.cursors(),
            kept_bytes: self.out.kept_bytes(),
            queued_count: self.out.queued.count,
            queued_bytes: self.out.queued.bytes,
            shed: self.out.shed,
            held_bytes: self.inn.held_bytes(),
            held_count: self.inn.held_count(),
        }
    }
}

impl Session {
    pub fn new(now: Instant, config: Config, id: SessionId) -> Session {
        let parity = u64::from(config.side == Side::Controller);
        Session {
            id,
            life: 0,
            link: Link::Down {
                until: Some(now + config.grace),
            },
            channels: BTreeMap::new(),
            next_own: parity,
            next_peer: 1 - parity,
            peer_window_bytes: config.window_bytes,
            order: OrderMode::Strict,
            peer_takes_datagrams: false,
            is_bare: false,
            control: VecDeque::new(),
            events: VecDeque::new(),
            finished: VecDeque::new(),
            line: None,
            policy: None,
            carriers: Carriers::default(),
            lower_bytes: [0; CARRIERS_MAX],
            stalled: BTreeSet::new(),
            copies: Vec::new(),
            copies_past: CopyCounters::default(),
            certified: None,
            datapaths_refused: 0,
            refused_last: None,
            config,
        }
    }

    /// Makes a session like [`Session::new`], with messages scheduled by `map`.
    pub fn with_policy(now: Instant, config: Config, id: SessionId, map: &PolicyMap) -> Session {
        Session {
            line: Some(Line::new(direction(config.side), map)),
            policy: Some(PolicyExchange::new(map.clone())),
            ..Session::new(now, config, id)
        }
    }

    /// Changes the map, if there is one already.
    fn set_policy(&mut self, map: &PolicyMap) {
        if let Some(line) = &mut self.line {
            line.set_map(map);
        }
    }

    /// The counters of the queues; `None` where messages are not scheduled.
    pub fn line(&self) -> Option<LineStatus> {
        self.line.as_ref().map(Line::status)
    }

    /// The first message that this end sends. `resumed`: the controller side has found the session
    /// again, or the switch side has channels to resume.
    pub fn settings(&self, resumed: bool) -> Settings {
        let map = self.policy_map();
        let points = map.map(Carriers::of);
        Settings {
            side: self.config.side,
            session: self.id,
            resumed,
            window_bytes: self.config.window_bytes as u64,
            code_points: points.map_or_else(Vec::new, |c| c.code_points().to_vec()),
            generation: map.map_or(0, |map| map.generation),
            life: self.life,
            early: false,
            order: self.config.order,
            takes_datagrams: true,
            takes_bare_records: true,
        }
    }

    /// Sets, at the controller side, a random number that distinguishes a new session from others
    /// with the same id. A switch that was connected elsewhere in the meantime has begun another
    /// session there, and must not resume this one.
    pub fn set_life(&mut self, life: u64) {
        self.life = life;
    }

    /// Sets, at the controller side, the only datapath that switches behind the other relay may
    /// claim. A channel with another claim is closed before its controller or manager learns of the
    /// claim.
    pub fn set_certified(&mut self, certified: Option<DatapathId>) {
        self.certified = certified;
    }

    /// The number of channels closed because their switch claimed another datapath.
    pub fn datapaths_refused(&self) -> u64 {
        self.datapaths_refused
    }

    /// Whether, at the controller side, a peer with these settings refers to this session.
    pub fn is_meant(&self, peer: &Settings) -> bool {
        peer.session == self.id && peer.resumed && (peer.life == self.life || peer.life == 0)
    }

    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Whether the other end knows of any existing channel.
    pub fn is_resumable(&self) -> bool {
        self.channels.values().any(|channel| channel.announced)
    }

    /// The order in use.
    pub fn order(&self) -> OrderMode {
        self.order
    }

    pub fn is_up(&self) -> bool {
        self.link == Link::Up
    }

    /// The messages that the switch side may send right after settings that are
    /// [`Settings::early`]: its channels and the positions received in their lanes. Afterwards,
    /// call [`Session::handle_taken_up`] if the other end knows the session, and
    /// [`Session::handle_connected`] if it does not.
    pub fn resume_early(&self) -> Early {
        let mut early = Early::default();
        for (id, channel) in self.channels.iter().filter(|(_, c)| c.announced) {
            early.said.insert(*id);
            early.messages.push(Control::Open {
                channel: *id,
                agent: channel.agent,
                name: channel.name.clone(),
            });
            early.messages.push(Control::Received {
                channel: *id,
                cursors: channel.inn.cursors(),
            });
            early.records.extend(channel.out.kept(*id));
        }
        early.messages.push(Control::ResumeEnd);
        early
    }

    /// Notes that the other end knows the session. `said`: the channels named to that end before
    /// its answer.
    pub fn handle_taken_up(
        &mut self,
        peer: &Settings,
        said: &BTreeSet<ChannelId>,
    ) -> Result<(), WireError> {
        self.connect(peer, true, Some(said))
    }

    /// Notes a connection with exchanged settings. `resumed`: both ends know the session.
    pub fn handle_connected(&mut self, peer: &Settings, resumed: bool) -> Result<(), WireError> {
        self.connect(peer, resumed, None)
    }

    fn connect(
        &mut self,
        peer: &Settings,
        resumed: bool,
        said: Option<&BTreeSet<ChannelId>>,
    ) -> Result<(), WireError> {
        if peer.side == self.config.side {
            return Err(WireError("both ends are the same side"));
        }
        self.peer_window_bytes = usize::try_from(peer.window_bytes).unwrap_or(usize::MAX);
        self.order = self.config.order.min(peer.order);
        self.peer_takes_datagrams = peer.takes_datagrams;
        self.is_bare = peer.takes_bare_records;
        self.control.clear();
        if !resumed {
            self.close_announced("the other relay does not know the session");
            self.next_peer %= 2;
        }
        if self.config.side == Side::Switch {
            self.life = peer.life;
        }
        for (id, channel) in &mut self.channels {
            channel.announced = true;
            channel.named = false;
            channel.out.window_bytes = self.config.window_bytes.min(self.peer_window_bytes);
            channel.inn.set_sender_window(self.peer_window_bytes);
            channel.inn.forget_reports();
            channel.inn.rewind(self.is_bare);
            channel.out.rewind(&[])?;
            channel.out.set_keyed(self.order == OrderMode::Keyed);
            channel.out.set_bare(self.is_bare);
            let (channel_id, agent, name) = (*id, channel.agent, channel.name.clone());
            if said.is_some_and(|said| said.contains(id)) {
                continue;
            }
            self.control.push_back(Control::Open {
                channel: channel_id,
                agent,
                name,
            });
            let cursors = channel.inn.cursors();
            // The other end may have read the end of the resumption: this channel is new to it.
            channel.named |= said.is_some();
            if resumed && said.is_none() {
                self.control.push_back(Control::Received {
                    channel: channel_id,
                    cursors,
                });
            }
        }
        self.count_lower();
        match said {
            None => self.control.push_back(Control::ResumeEnd),
            Some(said) => {
                let gone = said.iter().filter(|id| !self.channels.contains_key(id));
                self.control.extend(gone.map(|id| Control::Reset {
                    channel: *id,
                    reason: "closed meanwhile".into(),
                }));
            }
        }
        self.link = if resumed { Link::Resuming } else { Link::Up };
        self.events.push_back(Event::Control);
        self.policy_connected();
        self.transmit_all();
        Ok(())
    }

    pub fn handle_disconnected(&mut self, now: Instant) {
        if !matches!(self.link, Link::Down { .. }) {
            self.link = Link::Down {
                until: Some(now + self.config.grace),
            };
        }
        self.policy_disconnected();
        self.control.clear();
        self.events
            .retain(|event| !matches!(event, Event::Transmit { .. } | Event::Control));
    }

    /// The time at which the local sockets are closed because there is no connection.
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        match self.link {
            Link::Down { until } => Some((until?, "grace")),
            _ => None,
        }
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|(at, _)| at <= now) {
            self.link = Link::Down { until: None };
            self.close_announced("no connection to the other relay");
        }
        self.policy_timeout(now);
    }

    /// Opens a channel for an accepted local socket. Returns `None` when there are too many.
    pub fn open(&mut self, agent: Agent, name: &str) -> Option<ChannelId> {
        if self.channels.len() >= CHANNELS_MAX {
            return None;
        }
        let id = ChannelId(self.next_own);
        self.next_own += 2;
        let mut channel = self.channel(agent, name.to_owned());
        if !matches!(self.link, Link::Down { .. }) {
            channel.announced = true;
            // On resumption the other end cannot name a channel that it does not know.
            channel.named = true;
            self.say(Control::Open {
                channel: id,
                agent,
                name: name.to_owned(),
            });
        }
        self.channels.insert(id, channel);
        Some(id)
    }

    /// Takes bytes from the local socket, as far as there is room; the rest stays in `buf` until
    /// [`Event::Room`]. Returns false when the channel does not exist or takes no more bytes.
    pub fn handle_local(&mut self, now: Instant, id: ChannelId, buf: &mut BytesMut) -> bool {
        if self.line.is_some() {
            return self.queue_local(now, id, buf);
        }
        let dealt = self.channels.get(&id).and_then(|c| c.out.dealt_lanes());
        let flow_lanes = dealt.unwrap_or_else(|| self.share_of_lanes());
        let Some(channel) = self.channels.get_mut(&id) else {
            return false;
        };
        match channel.out.handle_local(buf, flow_lanes) {
            Ok(lanes) => {
                let open = !channel.out.ended;
                self.transmit(id, lanes);
                open
            }
            Err(error) => {
                self.reset(id, format!("not OpenFlow: {error}"));
                false
            }
        }
    }

    /// The number of lanes for the packets of a channel whose first packet arrives now.
    fn share_of_lanes(&self) -> u16 {
        let lanes = self.config.flow_lanes;
        if !self.config.shares_lanes {
            return lanes;
        }
        let is_openflow = |channel: &&Channel| channel.agent == Agent::OpenFlow;
        let channels = self.channels.values().filter(is_openflow).count();
        let share = usize::from(lanes.min(SHARED_LANES)) / channels.max(1);
        share.max(1) as u16
    }

    fn queue_local(&mut self, now: Instant, id: ChannelId, buf: &mut BytesMut) -> bool {
        loop {
            if !self.has_room(id) {
                self.stalled.insert(id);
                return self.channels.get(&id).is_some_and(|c| !c.out.ended);
            }
            let (Some(line), Some(channel)) = (&mut self.line, self.channels.get_mut(&id)) else {
                return false;
            };
            let before = buf.len();
            match channel.out.take(buf) {
                Ok(None) => return !channel.out.ended,
                Ok(Some(Taken::Piece(piece))) => line.push_piece(now, id.0, channel.class, piece),
                Ok(Some(Taken::Message(frame))) => {
                    channel.datapath = channel.datapath.or_else(|| datapath_of(&frame));
                    line.push(now, id.0, channel.datapath, &frame);
                }
                Err(error) => {
                    self.reset(id, format!("not OpenFlow: {error}"));
                    return false;
                }
            }
            channel.out.queued.count += 1;
            channel.out.queued.bytes += before - buf.len();
            self.take_shed();
        }
    }

    /// Moves messages from the queues to the lanes while the connection takes them. Call this after
    /// any other method, before draining events.
    pub fn schedule(&mut self, now: Instant) {
        self.schedule_some(now, usize::MAX);
    }

    /// Moves messages like [`Session::schedule`], for a line with a rate. Moves at most one message
    /// beyond `bytes_max`, and stops after the last message of a queue, so that this message is not
    /// joined to less urgent ones. Returns the number of bytes moved, at least 1 if any message was
    /// moved.
    pub fn schedule_some(&mut self, now: Instant, bytes_max: usize) -> usize {
        let mut moved = 0;
        if self.line.is_none() {
            return moved;
        }
        while self.link == Link::Up && moved < bytes_max {
            let count = self.carriers.code_points().len();
            let is_full = |bytes: &usize| *bytes >= LOWER_BYTES_MAX;
            if self.lower_bytes[..count].iter().all(is_full) {
                break;
            }
            let (channels, carriers) = (&self.channels, &self.carriers);
            let lower_bytes = &self.lower_bytes;
            let lanes = self.config.flow_lanes;
            let admits = |tag: &sched::Tag| match channels.get(&ChannelId(tag.channel)) {
                _ if count == 1 => true,
                Some(channel) => {
                    let lane = channel.out.lane_of(tag);
                    let carrier = carriers.carrier_of(channel.kind_of(lane), lane, lanes);
                    !is_full(&lower_bytes[carrier])
                }
                None => true,
            };
            let line = self.line.as_mut();
            let popped = line.and_then(|line| line.pop_if(now, admits));
            let Some((tag, item)) = popped else { break };
            moved += match &item {
                Item::Message(body) => body.len(),
                Item::End => 1,
            };
            self.deal(tag, item);
            self.take_shed();
            let has_more = |line: &Line| line.has_waiting(tag.queue);
            if bytes_max < usize::MAX && !self.line.as_ref().is_some_and(has_more) {
                break;
            }
        }
        self.take_shed();
        self.wake_stalled();
        moved
    }

    /// Whether messages wait for their turn while there is a connection.
    pub fn has_queued(&self) -> bool {
        self.link == Link::Up && self.line.as_ref().is_some_and(|line| !line.is_empty())
    }

    /// Puts a message from the queues on its lane.
    fn deal(&mut self, tag: sched::Tag, item: Item) {
        let id = ChannelId(tag.channel);
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let body = match item {
            Item::Message(body) => Some(body),
            Item::End => None,
        };
        channel.out.queued.count -= 1;
        channel.out.queued.bytes -= body.as_ref().map_or(0, Bytes::len);
        let before = channel.out.unsent_bytes();
        let lane = channel.out.push_scheduled(&tag, body);
        let lanes = self.config.flow_lanes;
        let carrier = self.carriers.carrier_of(channel.kind_of(lane), lane, lanes);
        self.lower_bytes[carrier] += channel.out.unsent_bytes() - before;
        self.set_blocked(id);
        self.transmit(id, [lane].into());
    }

    fn take_shed(&mut self) {
        let Some(line) = &mut self.line else { return };
        while let Some((_, tag, item)) = line.poll_shed() {
            let channel = self.channels.get_mut(&ChannelId(tag.channel));
            if let (Some(channel), Item::Message(body)) = (channel, item) {
                channel.out.queued.count -= 1;
                channel.out.queued.bytes -= body.len();
                channel.out.shed.add(body.len());
            }
        }
    }

    fn wake_stalled(&mut self) {
        let stalled = self.stalled.iter().copied();
        let awake: Vec<ChannelId> = stalled.filter(|id| self.has_room(*id)).collect();
        for channel in awake {
            self.stalled.remove(&channel);
            self.events.push_back(Event::Room { channel });
        }
    }

    /// Notes in the line whether the channel's lanes have room.
    fn set_blocked(&mut self, id: ChannelId) {
        if let (Some(line), Some(channel)) = (&mut self.line, self.channels.get_mut(&id)) {
            let is_blocked = !channel.out.has_room();
            if is_blocked != channel.is_blocked {
                channel.is_blocked = is_blocked;
                line.set_blocked(id.0, is_blocked);
            }
        }
    }

    /// Counts unsent bytes again, after all lanes were rewound to the other end's positions.
    fn count_lower(&mut self) {
        let ids: Vec<ChannelId> = self.channels.keys().copied().collect();
        ids.into_iter().for_each(|id| self.set_blocked(id));
        self.lower_bytes = [0; CARRIERS_MAX];
        for channel in self.channels.values() {
            for (lane, bytes) in channel.out.unsent_by_lane() {
                let lanes = self.config.flow_lanes;
                let carrier = self.carriers.carrier_of(channel.kind_of(lane), lane, lanes);
                self.lower_bytes[carrier] += bytes;
            }
        }
    }

    /// Sets the connections to which lanes are assigned from now on. Records that a lane has given
    /// to a connection stay there; the lane's next stream begins after them.
    pub fn set_carriers(&mut self, carriers: Carriers) {
        self.carriers = carriers;
        self.count_lower();
        self.transmit_all();
    }

    /// The connection that carries `lane` of channel `id`.
    pub fn carrier_of(&self, id: ChannelId, lane: Lane) -> usize {
        let lanes = self.config.flow_lanes;
        self.carriers
            .carrier_of(self.kind_of(id, lane), lane, lanes)
    }

    /// The kind of messages on `lane` of channel `id`.
    pub fn kind_of(&self, id: ChannelId, lane: Lane) -> Kind {
        let channel = self.channels.get(&id);
        channel.map_or(Kind::Other, |channel| channel.kind_of(lane))
    }

    /// The code point of the connection for datagrams of class `kind`.
    pub fn code_point_of(&self, kind: Kind) -> u8 {
        self.carriers.code_points()[self.carriers.carrier_of_kind(kind)]
    }

    /// Whether the other end knows datagrams of agents.
    pub fn peer_takes_datagrams(&self) -> bool {
        self.peer_takes_datagrams
    }

    pub fn code_points(&self) -> &[u8] {
        self.carriers.code_points()
    }

    /// The agent of a channel; `None` when the channel does not exist.
    pub fn agent(&self, id: ChannelId) -> Option<Agent> {
        self.channels.get(&id).map(|channel| channel.agent)
    }

    /// Whether the local socket should be read.
    pub fn has_room(&self, id: ChannelId) -> bool {
        let Some(channel) = self.channels.get(&id) else {
            return false;
        };
        match &self.line {
            None => channel.out.has_room(),
            Some(line) => {
                let share = line.bytes_hard() / QUEUE_SHARE;
                line.has_room() && channel.out.queued.bytes < share && channel.out.has_queue_room()
            }
        }
    }

    /// Notes that the local socket has ended.
    pub fn handle_local_end(&mut self, now: Instant, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(&id).filter(|c| !c.out.ended) else {
            return;
        };
        if let Some(line) = &mut self.line {
            channel.out.ended = true;
            channel.out.queued.count += 1;
            line.push_end(now, id.0);
        } else {
            let lane = channel.out.end();
            self.transmit(id, [lane].into());
        }
    }

    /// Closes a channel whose local socket is broken, or could not be dialled.
    pub fn reset(&mut self, id: ChannelId, reason: String) {
        if self.close(id, &reason) {
            self.say(Control::Reset {
                channel: id,
                reason,
            });
        }
    }

    /// Returns the next bytes for the local socket to write, about `bytes_max`. Call
    /// [`Session::handle_written`] afterwards. `None` when the channel does not exist.
    pub fn poll_local(
        &mut self,
        now: Instant,
        id: ChannelId,
        bytes_max: usize,
    ) -> Option<LocalWrite> {
        let channel = self.channels.get_mut(&id)?;
        let write = channel.inn.take_ready(bytes_max);
        let is_from_switch = self.config.side == Side::Controller;
        if let Some(certified) = self.certified.filter(|_| is_from_switch)
            && let Some(said) = channel.foreign(certified, &write.chunks)
        {
            self.refuse_datapath(id, said, certified);
            return None;
        }
        if let Some(line) = self.line.as_mut().filter(|_| is_from_switch)
            && channel.agent == Agent::OpenFlow
        {
            for message in &write.chunks {
                if channel.datapath.is_none() {
                    let frame = Frame::new(message.clone()).ok();
                    channel.datapath = frame.as_ref().and_then(datapath_of);
                }
                line.handle_other_way(now, id.0, channel.datapath, message);
            }
        }
        Some(write)
    }

    fn refuse_datapath(&mut self, channel: ChannelId, said: DatapathId, certified: DatapathId) {
        self.datapaths_refused += 1;
        if self.refused_last.replace(said) != Some(said) {
            self.events.push_back(Event::WrongDatapath {
                channel,
                said,
                certified,
            });
        }
        let reason = format!("it says that it is {said}, its relay's certificate {certified}");
        self.reset(channel, reason);
    }

    /// Notes that the local socket has taken the bytes of [`Session::poll_local`].
    pub fn handle_written(&mut self, now: Instant, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let had_report = channel.inn.has_report();
        channel.inn.handle_written();
        let urgent = channel.inn.report_is_urgent();
        // An OpenFlow session cannot be half open: messages that its peer no longer reads need not
        // be sent.
        let end = channel.inn.ended && channel.agent == Agent::OpenFlow && !channel.out.ended;
        if end {
            self.handle_local_end(now, id);
        }
        if urgent || !had_report {
            self.events.push_back(Event::Control);
        }
        self.remove_if_done(id);
    }

    /// Takes whole records of `lane` off `buf`.
    pub fn handle_lane(
        &mut self,
        id: ChannelId,
        lane: Lane,
        buf: &mut BytesMut,
    ) -> Result<(), WireError> {
        let Some(channel) = self.channels.get_mut(&id) else {
            buf.clear();
            return Ok(());
        };
        let had = channel.inn.has_ready();
        channel.inn.handle_lane(lane, buf)?;
        if !had && channel.inn.has_ready() {
            self.events.push_back(Event::Deliver { channel: id });
        }
        Ok(())
    }

    /// Whether a stream for a lane of channel `id` may be read. `None` while a control message may
    /// still open the channel, or while earlier records of the lane are still expected on its
    /// former connection. False when the channel was closed.
    ///
    /// # Errors
    /// The stream starts with records that were received already.
    pub fn admits(&self, id: ChannelId, lane: Lane, first: u64) -> Result<Option<bool>, WireError> {
        match self.channels.get(&id) {
            Some(channel) => match channel.inn.streamed(lane).cmp(&first) {
                Ordering::Less => Ok(None),
                Ordering::Equal => Ok(Some(true)),
                Ordering::Greater => Err(WireError("a lane that starts before where it stands")),
            },
            None if self.is_own(id) || id.0 < self.next_peer => Ok(Some(false)),
            None => Ok(None),
        }
    }

    /// The position at which a new stream for `lane` starts.
    pub fn lane_position(&self, id: ChannelId, lane: Lane) -> u64 {
        self.channels
            .get(&id)
            .map_or(0, |channel| channel.out.sent(lane))
    }

    /// The next records of a lane, about `bytes_max` bytes. `None` when the channel does not exist.
    pub fn poll_lane(&mut self, id: ChannelId, lane: Lane, bytes_max: usize) -> Option<Vec<Bytes>> {
        let channel = self.channels.get_mut(&id)?;
        if self.link != Link::Up {
            return Some(Vec::new());
        }
        let before = channel.out.unsent_bytes();
        let had_room = channel.out.has_room();
        let since = channel.out.sent(lane);
        let chunks = channel.out.take_unsent(lane, bytes_max);
        if *self.config.copied.get(channel.kind_of(lane)) {
            self.copies = channel.out.copies(id, lane, since);
        }
        if self.line.is_some() {
            let lanes = self.config.flow_lanes;
            let carrier = self.carriers.carrier_of(channel.kind_of(lane), lane, lanes);
            self.lower_bytes[carrier] += channel.out.unsent_bytes();
            self.lower_bytes[carrier] -= before;
        }
        // Records that a copy delivered before they were sent are no longer needed.
        if channel.out.has_room() != had_room || channel.out.is_done() {
            self.note_delivered(id, had_room);
        }
        Some(chunks)
    }

    /// Copies of the last output of [`Session::poll_lane`], to be sent by datagram a little later.
    pub fn take_copies(&mut self) -> Vec<CopiedRecord> {
        std::mem::take(&mut self.copies)
    }

    /// Handles a datagram from the other end.
    pub fn handle_copy(&mut self, mut datagram: Bytes) -> Result<(), WireError> {
        let CopyHeader {
            channel: id,
            lane,
            place,
        } = CopyHeader::take(&mut datagram)?;
        let Some(channel) = self.channels.get_mut(&id) else {
            // The copy may arrive before the control message that opens its channel, or after its
            // channel's end.
            self.copies_past.refused += 1;
            return Ok(());
        };
        let had = channel.inn.has_ready();
        let mut bytes = BytesMut::from(&datagram[..]);
        let record = Record::take(&mut bytes, channel.agent)?;
        let record = record.filter(|_| bytes.is_empty());
        let record = record.ok_or(WireError("a copy that is not of one record"))?;
        channel.inn.handle_copy(lane, place, record)?;
        if !had && channel.inn.has_ready() {
            self.events.push_back(Event::Deliver { channel: id });
        }
        Ok(())
    }

    /// The outcomes of the copies received.
    pub fn copies(&self) -> CopyCounters {
        let mut all = self.copies_past;
        let channels = self.channels.values();
        channels.for_each(|channel| all.add(channel.inn.copies()));
        all
    }

    /// Handles a control message from the other end, except [`Control::Settings`].
    pub fn handle_control(&mut self, message: Control) -> Result<(), WireError> {
        match message {
            Control::Settings(_) => Err(WireError("settings twice")),
            Control::Join { .. } => Err(WireError("a join on the first connection")),
            Control::Open {
                channel,
                agent,
                name,
            } => self.handle_open(channel, agent, name),
            Control::Received { channel, cursors } => {
                if self.link != Link::Resuming {
                    return Err(WireError("received outside of resumption"));
                }
                match self.channels.get_mut(&channel) {
                    Some(channel) => channel.out.rewind(&cursors)?,
                    None => return Ok(()),
                }
                self.count_lower();
                Ok(())
            }
            Control::ResumeEnd => {
                self.handle_resume_end();
                Ok(())
            }
            Control::Delivered { channel, cursors } => self.handle_delivered(channel, &cursors),
            Control::Policy(message) => {
                self.handle_policy(message);
                Ok(())
            }
            Control::Reset { channel, reason } => {
                self.close(channel, &reason);
                Ok(())
            }
        }
    }

    /// The next message for the control stream. Reports of delivered positions are included if they
    /// are urgent, or with `reports`, which the driver sets when convenient.
    pub fn poll_control(&mut self, reports: bool) -> Option<Control> {
        if matches!(self.link, Link::Down { .. }) {
            return None;
        }
        if let Some(message) = self.control.pop_front() {
            return Some(message);
        }
        let (id, channel) = self
            .channels
            .iter_mut()
            .find(|(_, c)| c.inn.has_report() && (reports || c.inn.report_is_urgent()))?;
        Some(Control::Delivered {
            channel: *id,
            cursors: channel.inn.take_report(),
        })
    }

    /// Whether [`Session::poll_control`] would return a report.
    pub fn has_report(&self) -> bool {
        self.channels
            .values()
            .any(|channel| channel.inn.has_report())
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the final status of an ended channel. The oldest statuses are dropped if they are
    /// not fetched.
    pub fn poll_finished(&mut self) -> Option<ChannelStatus> {
        self.finished.pop_front()
    }

    pub fn channels(&self) -> impl Iterator<Item = ChannelStatus> {
        self.channels
            .iter()
            .map(|(id, channel)| channel.status(*id))
    }

    /// Closes a channel. Every channel ends here.
    fn close(&mut self, id: ChannelId, reason: &str) -> bool {
        let Some(channel) = self.channels.remove(&id) else {
            return false;
        };
        if self.finished.len() == FINISHED_MAX {
            self.finished.pop_front();
        }
        self.finished.push_back(channel.status(id));
        self.copies_past.add(channel.inn.copies());
        for (lane, bytes) in channel.out.unsent_by_lane() {
            let lanes = self.config.flow_lanes;
            let carrier = self.carriers.carrier_of(channel.kind_of(lane), lane, lanes);
            let lower = &mut self.lower_bytes[carrier];
            *lower = lower.saturating_sub(bytes);
        }
        self.stalled.remove(&id);
        if let Some(line) = &mut self.line {
            line.forget(id.0);
        }
        let reason = reason.to_owned();
        self.events.push_back(Event::Closed {
            channel: id,
            reason,
        });
        true
    }

    fn channel(&self, agent: Agent, name: String) -> Channel {
        let direction = direction(self.config.side);
        let window = self.config.window_bytes.min(self.peer_window_bytes);
        let mut inn = Inbound::new(agent, self.config.window_bytes);
        inn.set_sender_window(self.peer_window_bytes);
        let mut out = Outbound::new(agent, direction, self.config.flow_lanes, window);
        out.set_keyed(self.order == OrderMode::Keyed);
        out.set_bare(self.is_bare);
        inn.rewind(self.is_bare);
        Channel {
            agent,
            class: self.config.class_of(&name),
            name,
            out,
            inn,
            announced: false,
            named: false,
            is_blocked: false,
            datapath: None,
            claims: Claims::default(),
        }
    }

    fn is_own(&self, id: ChannelId) -> bool {
        id.0 % 2 == self.next_own % 2
    }

    fn handle_open(&mut self, id: ChannelId, agent: Agent, name: String) -> Result<(), WireError> {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.named = true;
            return if self.link == Link::Resuming && channel.agent == agent {
                Ok(())
            } else {
                Err(WireError("a channel opened twice"))
            };
        }
        if self.is_own(id) || id.0 < self.next_peer {
            // The channel existed and was closed.
            self.say(Control::Reset {
                channel: id,
                reason: "closed meanwhile".into(),
            });
            return Ok(());
        }
        self.next_peer = id.0 + 2;
        if self.channels.len() >= CHANNELS_MAX {
            self.say(Control::Reset {
                channel: id,
                reason: "too many channels".into(),
            });
            return Ok(());
        }
        let mut channel = self.channel(agent, name.clone());
        channel.announced = true;
        channel.named = true;
        self.channels.insert(id, channel);
        self.events.push_back(Event::Opened {
            channel: id,
            agent,
            name,
        });
        Ok(())
    }

    fn handle_resume_end(&mut self) {
        if self.link != Link::Resuming {
            return;
        }
        self.link = Link::Up;
        let gone = |(id, channel): (&ChannelId, &Channel)| {
            (!channel.named && !self.is_own(*id)).then_some(*id)
        };
        let gone: Vec<ChannelId> = self.channels.iter().filter_map(gone).collect();
        for channel in gone {
            self.close(channel, "closed meanwhile");
        }
        self.transmit_all();
    }

    fn handle_delivered(&mut self, id: ChannelId, cursors: &[Cursor]) -> Result<(), WireError> {
        let Some(channel) = self.channels.get_mut(&id) else {
            return Ok(());
        };
        let had_room = channel.out.has_room();
        channel.out.handle_delivered(cursors)?;
        self.note_delivered(id, had_room);
        Ok(())
    }

    /// Handles the consequences of fewer kept bytes.
    fn note_delivered(&mut self, id: ChannelId, had_room: bool) {
        let has_room = self.channels.get(&id).is_some_and(|c| c.out.has_room());
        if self.line.is_none() && !had_room && has_room {
            self.events.push_back(Event::Room { channel: id });
        }
        self.set_blocked(id);
        self.remove_if_done(id);
    }

    fn remove_if_done(&mut self, id: ChannelId) {
        let done = |channel: &Channel| channel.out.is_done() && channel.inn.ended;
        if let Some(channel) = self.channels.get_mut(&id).filter(|c| done(c)) {
            let cursors = channel.inn.take_report();
            self.say(Control::Delivered {
                channel: id,
                cursors,
            });
            self.close(id, "ended");
        }
    }

    fn close_announced(&mut self, reason: &str) {
        let announced = self
            .channels
            .iter()
            .filter(|(_, channel)| channel.announced);
        let announced: Vec<ChannelId> = announced.map(|(id, _)| *id).collect();
        for channel in announced {
            self.close(channel, reason);
        }
    }

    fn transmit(&mut self, id: ChannelId, lanes: BTreeSet<Lane>) {
        if self.link == Link::Up {
            let events = lanes
                .into_iter()
                .map(|lane| Event::Transmit { channel: id, lane });
            self.events.extend(events);
        }
    }

    fn transmit_all(&mut self) {
        let lanes =
            |(id, channel): (&ChannelId, &Channel)| (*id, channel.out.unsent_lanes().collect());
        let all: Vec<(ChannelId, BTreeSet<Lane>)> = self.channels.iter().map(lanes).collect();
        for (id, lanes) in all {
            self.transmit(id, lanes);
        }
    }

    fn say(&mut self, message: Control) {
        if !matches!(self.link, Link::Down { .. }) {
            self.control.push_back(message);
            self.events.push_back(Event::Control);
        }
    }
}

/// The direction in which the local sockets of `side` send.
fn direction(side: Side) -> Direction {
    match side {
        Side::Switch => Direction::ToController,
        Side::Controller => Direction::ToSwitch,
    }
}

/// The datapath id in a switch's FEATURES_REPLY.
pub fn datapath_of(frame: &Frame) -> Option<DatapathId> {
    datapath_in(frame.bytes())
}

/// The same id, from the bytes of one message of any version: all versions share this type.
fn datapath_in(message: &[u8]) -> Option<DatapathId> {
    const FEATURES_REPLY: u8 = 6;
    let id = message.get(8..)?.first_chunk::<8>()?;
    (message[1] == FEATURES_REPLY).then(|| DatapathId(u64::from_be_bytes(*id)))
}
