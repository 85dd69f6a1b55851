//! One end of a relay pair: its channels, and what survives when the connection between the ends
//! breaks.
//!
//! The driver carries bytes: local sockets to [`Session::handle_local`] and from
//! [`Session::poll_local`], lanes to [`Session::handle_lane`] and from [`Session::poll_lane`], the
//! control stream likewise. After any `handle_*` it drains [`Session::poll_event`], which says what
//! has become possible. The exchange of [`Settings`] comes first and is the driver's, because the
//! controller side must read the session's id to find the session.
//!
//! While there is no connection the local sockets stay open for the grace time. On the next
//! connection both ends name their channels and what they have received of each lane, and send the
//! rest. If the other end has been restarted it knows nothing of the session: every channel that it
//! had been told of is closed, since a protocol session cannot be taken up in the middle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use openflow::time::{Duration, Instant};
use sched::{Direction, Lane};

use super::channel::{Inbound, LocalWrite, Outbound};
use super::tally::Tally;
use super::wire::{Agent, ChannelId, Control, Cursor, SessionId, Settings, Side, WireError};

/// Channels that one session may have.
pub const CHANNELS_MAX: usize = 4096;

/// Channels that are gone and whose counts nobody has asked for.
const FINISHED_MAX: usize = 1024;

/// What a relay end is told once.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub side: Side,
    /// Per channel and direction: bytes that may be under way or held.
    pub window_bytes: usize,
    /// Lanes for the packets of one channel, 1 to 256.
    pub flow_lanes: u16,
    /// How long local sockets outlive the connection between the ends.
    pub grace: Duration,
}

impl Config {
    pub fn new(side: Side) -> Config {
        Config {
            side,
            window_bytes: 4 << 20,
            flow_lanes: 16,
            grace: Duration::from_secs(10),
        }
    }
}

/// What has become possible, or must be done.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The other end has a new channel: dial what it is for.
    Opened {
        channel: ChannelId,
        agent: Agent,
        name: String,
    },
    /// The channel is gone: close its local socket.
    Closed { channel: ChannelId, reason: String },
    /// The lane has something to send. Comes only while connected.
    Transmit { channel: ChannelId, lane: Lane },
    /// There is something for the local socket.
    Deliver { channel: ChannelId },
    /// There is room again for what the local socket gives.
    Room { channel: ChannelId },
    /// There is something for the control stream.
    Control,
}

/// A channel in numbers.
#[derive(Clone, Debug)]
pub struct ChannelStatus {
    pub channel: ChannelId,
    pub agent: Agent,
    pub name: String,
    /// From the local socket.
    pub taken: Tally,
    /// To the local socket.
    pub given: Tally,
    pub lanes_out: Vec<Cursor>,
    pub lanes_in: Vec<Cursor>,
    /// Kept until the other end has delivered it.
    pub kept_bytes: usize,
    /// Arrived, and not yet taken by the local socket.
    pub held_bytes: usize,
    /// Of these, messages that wait for something they must not overtake.
    pub held_count: usize,
}

/// One end of a relay pair.
#[derive(Debug)]
pub struct Session {
    config: Config,
    id: SessionId,
    link: Link,
    channels: BTreeMap<ChannelId, Channel>,
    next_own: u64,
    /// Ids of the other end below this have been seen.
    next_peer: u64,
    peer_window_bytes: usize,
    control: VecDeque<Control>,
    events: VecDeque<Event>,
    finished: VecDeque<ChannelStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// Local sockets are given up at `until`, once.
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
    out: Outbound,
    inn: Inbound,
    /// The other end may know of it.
    announced: bool,
    /// On resumption: the other end still has it.
    named: bool,
}

impl Channel {
    fn status(&self, id: ChannelId) -> ChannelStatus {
        ChannelStatus {
            channel: id,
            agent: self.agent,
            name: self.name.clone(),
            taken: self.out.tally.clone(),
            given: self.inn.tally.clone(),
            lanes_out: self.out.lane_counts(),
            lanes_in: self.inn.cursors(),
            kept_bytes: self.out.kept_bytes(),
            held_bytes: self.inn.held_bytes(),
            held_count: self.inn.held_count(),
        }
    }
}

impl Session {
    pub fn new(now: Instant, config: Config, id: SessionId) -> Session {
        let parity = u64::from(config.side == Side::Controller);
        Session {
            config,
            id,
            link: Link::Down {
                until: Some(now + config.grace),
            },
            channels: BTreeMap::new(),
            next_own: parity,
            next_peer: 1 - parity,
            peer_window_bytes: config.window_bytes,
            control: VecDeque::new(),
            events: VecDeque::new(),
            finished: VecDeque::new(),
        }
    }

    /// What this end says first. `resumed`: the controller side has found the session again; the
    /// switch side has channels to resume.
    pub fn settings(&self, resumed: bool) -> Settings {
        Settings {
            side: self.config.side,
            session: self.id,
            resumed,
            window_bytes: self.config.window_bytes as u64,
        }
    }

    /// Whether a channel is there that the other end has been told of.
    pub fn is_resumable(&self) -> bool {
        self.channels.values().any(|channel| channel.announced)
    }

    pub fn is_up(&self) -> bool {
        self.link == Link::Up
    }

    /// A connection is there and settings are exchanged. `resumed`: both ends know the session.
    pub fn handle_connected(&mut self, peer: &Settings, resumed: bool) -> Result<(), WireError> {
        if peer.side == self.config.side {
            return Err(WireError("both ends are the same side"));
        }
        self.peer_window_bytes = usize::try_from(peer.window_bytes).unwrap_or(usize::MAX);
        self.control.clear();
        if !resumed {
            self.close_announced("the other relay was restarted");
            self.next_peer %= 2;
        }
        for (id, channel) in &mut self.channels {
            channel.announced = true;
            channel.named = false;
            channel.out.window_bytes = self.config.window_bytes.min(self.peer_window_bytes);
            channel.inn.forget_reports();
            channel.out.rewind(&[])?;
            let (channel_id, agent, name) = (*id, channel.agent, channel.name.clone());
            self.control.push_back(Control::Open {
                channel: channel_id,
                agent,
                name,
            });
            let cursors = channel.inn.cursors();
            if resumed {
                self.control.push_back(Control::Received {
                    channel: channel_id,
                    cursors,
                });
            }
        }
        self.control.push_back(Control::ResumeEnd);
        self.link = if resumed { Link::Resuming } else { Link::Up };
        self.events.push_back(Event::Control);
        self.transmit_all();
        Ok(())
    }

    pub fn handle_disconnected(&mut self, now: Instant) {
        if !matches!(self.link, Link::Down { .. }) {
            self.link = Link::Down {
                until: Some(now + self.config.grace),
            };
        }
        self.control.clear();
        self.events
            .retain(|event| !matches!(event, Event::Transmit { .. } | Event::Control));
    }

    /// When the local sockets are given up for want of a connection.
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
    }

    /// A local socket was accepted: a new channel. `None` when there are too many.
    pub fn open(&mut self, agent: Agent, name: &str) -> Option<ChannelId> {
        if self.channels.len() >= CHANNELS_MAX {
            return None;
        }
        let id = ChannelId(self.next_own);
        self.next_own += 2;
        let mut channel = self.channel(agent, name.to_owned());
        if !matches!(self.link, Link::Down { .. }) {
            channel.announced = true;
            // On resumption the other end cannot name what it has not heard of.
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

    /// Takes what the local socket gave, as far as there is room; the rest stays in `buf` until
    /// [`Event::Room`]. False when the channel is gone or wants no more.
    pub fn handle_local(&mut self, id: ChannelId, buf: &mut BytesMut) -> bool {
        let Some(channel) = self.channels.get_mut(&id) else {
            return false;
        };
        match channel.out.handle_local(buf) {
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

    /// What the channel carries; `None` when it is gone.
    pub fn agent(&self, id: ChannelId) -> Option<Agent> {
        self.channels.get(&id).map(|channel| channel.agent)
    }

    /// Whether the local socket should be read.
    pub fn has_room(&self, id: ChannelId) -> bool {
        self.channels
            .get(&id)
            .is_some_and(|channel| channel.out.has_room())
    }

    /// The local socket will give no more.
    pub fn handle_local_end(&mut self, id: ChannelId) {
        if let Some(channel) = self.channels.get_mut(&id).filter(|c| !c.out.ended) {
            let lane = channel.out.end();
            self.transmit(id, [lane].into());
        }
    }

    /// The local socket is broken, or could not be dialled.
    pub fn reset(&mut self, id: ChannelId, reason: String) {
        if self.close(id, &reason) {
            self.say(Control::Reset {
                channel: id,
                reason,
            });
        }
    }

    /// What the local socket shall write next, about `bytes_max` of it. To be answered with
    /// [`Session::handle_written`]. `None` when the channel is gone.
    pub fn poll_local(&mut self, id: ChannelId, bytes_max: usize) -> Option<LocalWrite> {
        self.channels
            .get_mut(&id)
            .map(|channel| channel.inn.take_ready(bytes_max))
    }

    /// The local socket has taken what [`Session::poll_local`] gave.
    pub fn handle_written(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.get_mut(&id) else {
            return;
        };
        let had_report = channel.inn.has_report();
        channel.inn.handle_written();
        let urgent = channel.inn.report_is_urgent();
        // An OpenFlow session has no half: what its peer no longer reads need not be sent.
        let end = channel.inn.ended && channel.agent == Agent::OpenFlow && !channel.out.ended;
        if end {
            self.handle_local_end(id);
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

    /// Whether a stream for a lane of channel `id` may be read: `None` while the channel may yet
    /// be opened by a control message, false when it is gone. An error when the stream does not
    /// start where the lane stands.
    pub fn admits(&self, id: ChannelId, lane: Lane, first: u64) -> Result<Option<bool>, WireError> {
        match self.channels.get(&id) {
            Some(channel) if channel.inn.received(lane) == first => Ok(Some(true)),
            Some(_) => Err(WireError("a lane that starts where it did not end")),
            None if self.is_own(id) || id.0 < self.next_peer => Ok(Some(false)),
            None => Ok(None),
        }
    }

    /// Where a new stream for `lane` starts.
    pub fn lane_position(&self, id: ChannelId, lane: Lane) -> u64 {
        self.channels
            .get(&id)
            .map_or(0, |channel| channel.out.sent(lane))
    }

    /// The next records of a lane, about `bytes_max` of them. `None` when the channel is gone.
    pub fn poll_lane(&mut self, id: ChannelId, lane: Lane, bytes_max: usize) -> Option<Vec<Bytes>> {
        let channel = self.channels.get_mut(&id)?;
        if self.link != Link::Up {
            return Some(Vec::new());
        }
        Some(channel.out.take_unsent(lane, bytes_max))
    }

    /// A control message of the other end, other than [`Control::Settings`].
    pub fn handle_control(&mut self, message: Control) -> Result<(), WireError> {
        match message {
            Control::Settings(_) => Err(WireError("settings twice")),
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
                    Some(channel) => channel.out.rewind(&cursors),
                    None => Ok(()),
                }
            }
            Control::ResumeEnd => {
                self.handle_resume_end();
                Ok(())
            }
            Control::Delivered { channel, cursors } => self.handle_delivered(channel, &cursors),
            Control::Policy(_) => Ok(()),
            Control::Reset { channel, reason } => {
                self.close(channel, &reason);
                Ok(())
            }
        }
    }

    /// The next message for the control stream. What has been delivered is said with
    /// `reports`, which the driver asks for at its leisure, or at once when it is urgent.
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

    /// Whether [`Session::poll_control`] would give a report.
    pub fn has_report(&self) -> bool {
        self.channels
            .values()
            .any(|channel| channel.inn.has_report())
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// A channel that is gone, as it was at its end. The oldest are forgotten if nobody asks.
    pub fn poll_finished(&mut self) -> Option<ChannelStatus> {
        self.finished.pop_front()
    }

    pub fn channels(&self) -> impl Iterator<Item = ChannelStatus> {
        self.channels
            .iter()
            .map(|(id, channel)| channel.status(*id))
    }

    /// Every channel goes through here at its end.
    fn close(&mut self, id: ChannelId, reason: &str) -> bool {
        let Some(channel) = self.channels.remove(&id) else {
            return false;
        };
        if self.finished.len() == FINISHED_MAX {
            self.finished.pop_front();
        }
        self.finished.push_back(channel.status(id));
        let reason = reason.to_owned();
        self.events.push_back(Event::Closed {
            channel: id,
            reason,
        });
        true
    }

    fn channel(&self, agent: Agent, name: String) -> Channel {
        let direction = match self.config.side {
            Side::Switch => Direction::ToController,
            Side::Controller => Direction::ToSwitch,
        };
        let window = self.config.window_bytes.min(self.peer_window_bytes);
        Channel {
            agent,
            name,
            out: Outbound::new(agent, direction, self.config.flow_lanes, window),
            inn: Inbound::new(agent, self.config.window_bytes),
            announced: false,
            named: false,
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
            // It was here and is gone.
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
        if !had_room && channel.out.has_room() {
            self.events.push_back(Event::Room { channel: id });
        }
        self.remove_if_done(id);
        Ok(())
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
