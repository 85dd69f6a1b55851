//! Two relay sessions and the connection between them, which sends ready data at its rate, delays
//! and loses packets stream by stream, and breaks.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use clock::{Duration, Instant, SplitMix64};
use openflow::Frame;
use relay::wire::{BareRecords, Control};
use relay::{Agent, ChannelId, Config, Event as SessionEvent, Kind, Session, SessionId, Side};
use sched::Lane;

use super::{Breaks, DIRECTIONS, Experiment, Network, Report, Talk};
use crate::channel::EventQueue;

/// Payload of one packet, in bytes.
const PACKET_BYTES: usize = 1200;
/// The most bytes written to a local socket at once.
const WRITE_BYTES: usize = 64 * 1024;
/// Bytes that a local socket holds while it is not read, and the time until the next try.
const UNREAD_BYTES_MAX: usize = 64 * 1024;
const RETRY: Duration = Duration::from_millis(1);
/// Time from a record to its copy.
const COPY_DELAY: Duration = Duration::from_millis(2);
/// Time without a message after which none will arrive: longer than any loss, break or pause.
const DEADLOCK: Duration = Duration::from_secs(60);
/// Time from a break to the next connection.
const RECONNECT: Duration = Duration::from_millis(20);

pub(super) struct Pair {
    network: Network,
    ends: [End; 2],
    events: EventQueue<Event>,
    random: SplitMix64,
    /// The number of connections so far, so that data under way on an old one is recognised.
    connection: u32,
    is_held: bool,
    is_connected: bool,
    /// The number of messages in all, and the number made so far.
    messages: u64,
    made: u64,
    breaks_asked: u64,
    report: Report,
}

struct End {
    session: Session,
    talks: BTreeMap<ChannelId, Talk>,
    /// Lanes that may have something to send, and streams of this end.
    ready: BTreeSet<(ChannelId, Lane)>,
    streams: BTreeMap<(ChannelId, Lane), Stream>,
    has_control: bool,
    control_due: Instant,
    is_sending: bool,
    /// Bytes written to its local sockets, by channel.
    written: BTreeMap<ChannelId, BytesMut>,
}

struct Stream {
    first: u64,
    last_due: Instant,
    is_admitted: bool,
    arrived: BytesMut,
    records: BareRecords,
}

enum Event {
    Talk {
        at: usize,
        id: ChannelId,
    },
    Send {
        at: usize,
        connection: u32,
    },
    Lane {
        from: usize,
        connection: u32,
        id: ChannelId,
        lane: Lane,
        chunks: Vec<Bytes>,
    },
    Control {
        from: usize,
        connection: u32,
        message: Control,
    },
    Copy {
        from: usize,
        connection: u32,
        datagram: Bytes,
    },
    Break,
    Connect,
}

impl Pair {
    pub fn new(experiment: &Experiment, seed: u64, is_held: bool) -> Pair {
        let mut seeds = SplitMix64::new(seed);
        let ends = [Side::Switch, Side::Controller].map(|side| {
            let (id, mut config) = (SessionId([1; 16]), Config::new(side));
            config.window_bytes = experiment.relay.window_bytes;
            config.order = experiment.relay.order;
            for kind in Kind::ALL {
                config.copied.set(kind, experiment.relay.is_copied);
            }
            End {
                session: Session::with_policy(Instant::START, config, id, &experiment.map),
                talks: BTreeMap::new(),
                ready: BTreeSet::new(),
                streams: BTreeMap::new(),
                has_control: false,
                control_due: Instant::START,
                is_sending: false,
                written: BTreeMap::new(),
            }
        });
        let mut pair = Pair {
            network: experiment.network,
            ends,
            events: EventQueue::default(),
            random: SplitMix64::new(seeds.next()),
            connection: 0,
            is_held,
            is_connected: false,
            messages: experiment.messages,
            made: 0,
            breaks_asked: 0,
            report: Report::default(),
        };
        let ids: Vec<ChannelId> = (0..experiment.channels)
            .map(|n| {
                pair.ends[0]
                    .session
                    .open(Agent::OpenFlow, &format!("br{n}"))
            })
            .map(|id| id.expect("few channels"))
            .collect();
        for (at, direction) in DIRECTIONS.into_iter().enumerate() {
            let talks = experiment.talks(direction, &mut seeds);
            for (id, mut talk) in ids.iter().zip(talks) {
                pair.events
                    .push(talk.source.next(), Event::Talk { at, id: *id });
                pair.ends[at].talks.insert(*id, talk);
            }
        }
        if let Breaks::Every(breaks) = pair.network.breaks {
            pair.events.push(Instant::START + breaks, Event::Break);
        }
        pair
    }

    pub fn run(mut self) -> Report {
        self.connect(Instant::START, false);
        while let Some((now, event)) = self.events.pop() {
            let quiet = now.since(Instant::START + self.report.virtual_time);
            if quiet > DEADLOCK {
                self.report.is_deadlocked = true;
                break;
            }
            self.handle(now, event);
        }
        for end in &self.ends {
            let channels = end.session.channels();
            self.report.shed += channels.map(|status| status.shed.messages).sum::<u64>();
            end.talks
                .values()
                .for_each(|talk| self.report.conclude(talk));
        }
        self.report
    }

    fn handle(&mut self, now: Instant, event: Event) {
        match event {
            Event::Talk { at, id } => self.talk(now, at, id),
            Event::Send { at, connection } if connection == self.connection => {
                self.ends[at].is_sending = false;
                self.settle(now, at);
            }
            Event::Lane {
                from,
                connection,
                id,
                lane,
                chunks,
            } if connection == self.connection => {
                if let Some(stream) = self.ends[from].streams.get_mut(&(id, lane)) {
                    chunks
                        .iter()
                        .for_each(|chunk| stream.arrived.extend_from_slice(chunk));
                }
                self.receive(now, from, id, lane);
                self.settle(now, 1 - from);
            }
            Event::Control {
                from,
                connection,
                message,
            } if connection == self.connection => {
                let to = &mut self.ends[1 - from].session;
                to.handle_control(message)
                    .expect("our own peer speaks the protocol");
                self.settle(now, 1 - from);
                // A stream may have waited for its channel to be opened.
                let waiting: Vec<(ChannelId, Lane)> = self.ends[from]
                    .streams
                    .iter()
                    .filter(|(_, stream)| !stream.is_admitted && !stream.arrived.is_empty())
                    .map(|(key, _)| *key)
                    .collect();
                for (id, lane) in waiting {
                    self.receive(now, from, id, lane);
                }
                self.settle(now, 1 - from);
            }
            Event::Copy {
                from,
                connection,
                datagram,
            } if connection == self.connection => {
                let taken = self.ends[1 - from].session.handle_copy(datagram);
                taken.expect("our own peer speaks the protocol");
                self.settle(now, 1 - from);
            }
            Event::Break => self.disconnect(now),
            Event::Connect => self.connect(now, true),
            // Events of an earlier connection.
            Event::Send { .. }
            | Event::Lane { .. }
            | Event::Control { .. }
            | Event::Copy { .. } => {}
        }
    }

    /// Makes the next message of a channel, which arrives at its socket.
    fn talk(&mut self, now: Instant, at: usize, id: ChannelId) {
        let end = &mut self.ends[at];
        let Some(talk) = end.talks.get_mut(&id) else {
            return;
        };
        if end.session.agent(id).is_none() || talk.unread.len() > UNREAD_BYTES_MAX {
            return self.events.push(now + RETRY, Event::Talk { at, id });
        }
        let Some(frame) = talk.next(now) else {
            return;
        };
        self.made += 1;
        if let Breaks::Times(times) = self.network.breaks
            && self.breaks_asked < times
            && self.made * (times + 1) >= self.messages * (self.breaks_asked + 1)
        {
            self.breaks_asked += 1;
            self.events.push(now, Event::Break);
        }
        talk.unread.extend_from_slice(frame.bytes());
        end.session.handle_local(now, id, &mut talk.unread);
        self.events
            .push(talk.source.next().max(now), Event::Talk { at, id });
        self.settle(now, at);
    }

    /// Does everything that has become possible at one end.
    fn settle(&mut self, now: Instant, at: usize) {
        loop {
            self.ends[at].session.schedule(now);
            let Some(event) = self.ends[at].session.poll_event() else {
                break;
            };
            let end = &mut self.ends[at];
            match event {
                SessionEvent::Opened { .. }
                | SessionEvent::Mapped
                | SessionEvent::WrongDatapath { .. }
                | SessionEvent::Policy { .. } => {}
                SessionEvent::Closed { channel, reason } => {
                    let broken = format!("channel {} was closed: {reason}", channel.0);
                    self.report.violations += 1;
                    self.report.examples.push(broken);
                }
                SessionEvent::Transmit { channel, lane } => drop(end.ready.insert((channel, lane))),
                SessionEvent::Deliver { channel } => self.write(now, at, channel),
                SessionEvent::Room { channel } => {
                    if let Some(talk) = end.talks.get_mut(&channel) {
                        end.session.handle_local(now, channel, &mut talk.unread);
                    }
                }
                SessionEvent::Control => end.has_control = true,
            }
        }
        self.send(now, at);
    }

    /// Gives the connection the next packet, if it is idle.
    fn send(&mut self, now: Instant, at: usize) {
        let end = &mut self.ends[at];
        if end.is_sending {
            return;
        }
        if end.has_control {
            if let Some(message) = end.session.poll_control(true) {
                let due = self.transmit(now, at, message.encode().len());
                let end = &mut self.ends[at];
                end.control_due = end.control_due.max(due);
                let (due, connection) = (end.control_due, self.connection);
                let event = Event::Control {
                    from: at,
                    connection,
                    message,
                };
                return self.events.push(due, event);
            }
            end.has_control = false;
        }
        // Any lane: below the scheduler, the connection interleaves the lanes.
        while !self.ends[at].ready.is_empty() {
            let pick = self.random.next() as usize % self.ends[at].ready.len();
            let end = &mut self.ends[at];
            let Some((id, lane)) = end.ready.iter().nth(pick).copied() else {
                return;
            };
            let first = end.session.lane_position(id, lane);
            let chunks = end
                .session
                .poll_lane(id, lane, PACKET_BYTES)
                .unwrap_or_default();
            let copies = end.session.take_copies();
            end.session.schedule(now);
            if chunks.is_empty() {
                end.ready.remove(&(id, lane));
                continue;
            }
            let due = self.transmit(now, at, chunks.iter().map(Bytes::len).sum());
            for copy in copies {
                self.copy(now, at, copy.encode());
            }
            let stream = self.ends[at].streams.entry((id, lane)).or_insert(Stream {
                first,
                last_due: now,
                is_admitted: false,
                arrived: BytesMut::new(),
                records: BareRecords::default(),
            });
            stream.last_due = stream.last_due.max(due);
            let (due, connection) = (stream.last_due, self.connection);
            let event = Event::Lane {
                from: at,
                connection,
                id,
                lane,
                chunks,
            };
            return self.events.push(due, event);
        }
    }

    /// Sends a packet of this length. Returns its arrival time, including a delay for each loss.
    fn transmit(&mut self, now: Instant, at: usize, bytes: usize) -> Instant {
        let nanos = bytes as u64 * 8 * 1_000_000_000 / self.network.rate_bps;
        let sent = now + Duration::from_nanos(nanos);
        self.ends[at].is_sending = true;
        let connection = self.connection;
        self.events.push(sent, Event::Send { at, connection });
        let jitter = self.network.jitter.as_nanos() as u64;
        let mut due =
            sent + self.network.delay + Duration::from_nanos(self.random.next() % (jitter + 1));
        while self.random.next() % 1_000_000 < u64::from(self.network.loss_ppm) {
            due += self.network.resend;
        }
        due
    }

    /// Sends a datagram, which arrives once or never.
    fn copy(&mut self, now: Instant, from: usize, datagram: Bytes) {
        let jitter = self.network.jitter.as_nanos() as u64;
        let late = Duration::from_nanos(self.random.next() % (jitter + 1));
        let is_lost = self.random.next() % 1_000_000 < u64::from(self.network.loss_ppm);
        if !is_lost {
            let connection = self.connection;
            let event = Event::Copy {
                from,
                connection,
                datagram,
            };
            self.events
                .push(now + COPY_DELAY + self.network.delay + late, event);
        }
    }

    fn receive(&mut self, now: Instant, from: usize, id: ChannelId, lane: Lane) {
        let [a, b] = &mut self.ends;
        let (from, to) = if from == 0 { (a, b) } else { (b, a) };
        let Some(stream) = from.streams.get_mut(&(id, lane)) else {
            return;
        };
        if !stream.is_admitted {
            match to.session.admits(id, lane, stream.first) {
                Ok(Some(true)) => stream.is_admitted = true,
                Ok(Some(false)) => return stream.arrived.clear(),
                Ok(None) => return,
                Err(error) => panic!("our own peer speaks the protocol: {error}"),
            }
        }
        if !self.is_held
            && let Some(talk) = from.talks.get_mut(&id)
        {
            let mut unheld = stream.arrived.clone();
            while let Ok(Some(record)) = stream.records.take(&mut unheld) {
                let frame = record.body.and_then(|body| Frame::new(body).ok());
                if let Some(frame) = frame {
                    self.report.judge(now, id.0, &mut talk.judge, &frame);
                }
            }
        }
        let taken = to.session.handle_lane(id, lane, &mut stream.arrived);
        taken.expect("our own peer speaks the protocol");
    }

    /// Writes the messages that may be handed over to the local socket, where they are judged.
    fn write(&mut self, now: Instant, at: usize, id: ChannelId) {
        let [a, b] = &mut self.ends;
        let (to, from) = if at == 0 { (a, b) } else { (b, a) };
        while let Some(write) = to.session.poll_local(now, id, WRITE_BYTES) {
            let is_done = write.chunks.is_empty();
            let written = to.written.entry(id).or_default();
            write
                .chunks
                .iter()
                .for_each(|chunk| written.extend_from_slice(chunk));
            to.session.handle_written(now, id);
            while let Ok(Some(frame)) = Frame::split_from(written) {
                if self.is_held
                    && let Some(talk) = from.talks.get_mut(&id)
                {
                    self.report
                        .judge(now, id.0 * 2 + at as u64, &mut talk.judge, &frame);
                    if at == 0 {
                        self.report.delay += talk.age(now, &frame);
                        self.report.delayed += 1;
                    }
                }
            }
            if is_done {
                return;
            }
        }
    }

    fn connect(&mut self, now: Instant, resumed: bool) {
        let [a, b] = &mut self.ends;
        let settings = [a.session.settings(resumed), b.session.settings(resumed)];
        let connected = a
            .session
            .handle_connected(&settings[1], resumed)
            .and_then(|()| b.session.handle_connected(&settings[0], resumed));
        connected.expect("our own peer speaks the protocol");
        self.is_connected = true;
        (0..2).for_each(|at| self.settle(now, at));
        if resumed && let Breaks::Every(breaks) = self.network.breaks {
            self.events.push(now + breaks, Event::Break);
        }
    }

    /// Breaks the connection, unless all messages have been made.
    fn disconnect(&mut self, now: Instant) {
        let mut talks = self.ends.iter().flat_map(|end| end.talks.values());
        if talks.all(|talk| talk.left == 0) {
            return;
        }
        if !self.is_connected {
            // The connection has not been resumed since the last break.
            return self.events.push(now + RECONNECT, Event::Break);
        }
        self.is_connected = false;
        self.connection += 1;
        self.report.breaks += 1;
        for end in &mut self.ends {
            end.session.handle_disconnected(now);
            end.ready.clear();
            end.streams.clear();
            (end.has_control, end.is_sending) = (false, false);
            end.control_due = now;
        }
        self.events.push(now + RECONNECT, Event::Connect);
    }
}
