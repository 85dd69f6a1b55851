//! Replays messages and frames in the order of their times, through two ends and the link between
//! them.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use clock::{Duration, Instant};

use super::quic::{Packet, Quic, QuicSetup};
use super::setup::{Carrier, Host, Message, Outcome, QuicCarrier, Records, Setup, Streams};
use super::tcp::{Segment, Tcp};
use super::{MS, Nanos};
use crate::link::Link;

/// Time between the handshakes and the first message.
const SETTLE: Nanos = 100 * MS;
/// Time for the last acknowledgements: delayed ones wait for 40 ms.
const ACKNOWLEDGE: Nanos = 100 * MS;
/// The time after the last message's due time at which a message still missing counts as lost.
const GIVE_UP: Nanos = 20_000 * MS;

/// The first bidirectional stream.
const CONTROL_STREAM: u64 = 0;

enum Connection {
    Tcp(Box<Tcp>),
    Quic(Box<Quic>),
}

#[derive(Clone)]
enum Frame {
    Handshake,
    Tcp(u16, Segment),
    Quic(u16, Packet),
}

/// A piece of work for an end's thread.
enum Work {
    Message(Message),
    Read(u16),
    Packet(u16, Packet),
    Flush(u16),
}

struct End {
    connections: Vec<Connection>,
    /// Bytes by stream, for each connection, that wait for the window to close.
    held: Vec<Vec<(u64, u32)>>,
    work: Vec<Work>,
    turn_at: Option<Nanos>,
    free_at: Nanos,
    /// The lateness of timers.
    timer: Nanos,
    due: VecDeque<Message>,
    sent: u64,
    /// Lanes whose stream has begun.
    begun: BTreeSet<u64>,
    /// Streams with deliveries to report to the other end, and the latest time for the report.
    unreported: BTreeSet<u64>,
    report_at: Option<Nanos>,
}

pub struct Replay<'a> {
    setup: &'a Setup,
    now: Nanos,
    ends: [End; 2],
    /// The link from either end.
    links: [Link<Frame>; 2],
    /// Times at which windows close, each with its end and connection.
    flushes: BinaryHeap<Reverse<(Nanos, usize, u16)>>,
    outcome: Outcome,
}

impl<'a> Replay<'a> {
    pub fn new(setup: &'a Setup) -> Replay<'a> {
        let mut link = setup.link.clone();
        link.delay += setup.host.late;
        let mut replay = Replay {
            now: 0,
            ends: [0, 1].map(|side| End::new(setup, side)),
            links: [0, 1].map(|side| Link::new(link.clone(), setup.seeds[side])),
            flushes: BinaryHeap::new(),
            outcome: Outcome::default(),
            setup,
        };
        for side in [0, 1] {
            for _ in 0..setup.connections() {
                for bytes in &setup.handshake()[side] {
                    replay.put(side, *bytes, Frame::Handshake);
                }
            }
        }
        replay.outcome.handshake_frames = replay.outcome.frames;
        replay.outcome.handshake_bytes = replay.outcome.frame_bytes;
        let sent = setup.messages.iter().flatten();
        replay.outcome.messages = sent.clone().count() as u64;
        replay.outcome.application_bytes = sent.map(|m| u64::from(m.bytes)).sum();
        replay
    }

    pub fn run(mut self) -> Outcome {
        let messages = self.setup.messages.iter().flatten();
        let last = SETTLE + messages.map(|m| m.due).max().unwrap_or(0);
        let mut done_at = None;
        while let Some(next) = self.next_time() {
            self.now = self.now.max(next);
            if self.now > last + GIVE_UP || done_at.is_some_and(|at| self.now > at + ACKNOWLEDGE) {
                break;
            }
            self.step();
            if self.now < last || !self.ends.iter().all(End::is_idle) {
                done_at = None;
            } else if done_at.is_none() {
                done_at = Some(self.now);
            }
        }
        self.leave_out_what_is_left();
        self.outcome
    }

    fn leave_out_what_is_left(&mut self) {
        let left: u64 = self.ends.iter().map(End::left_bytes).sum();
        let outcome = &mut self.outcome;
        if left > 0 && outcome.messages > 0 {
            let left = left.min(outcome.application_bytes);
            let mean = outcome.application_bytes as f64 / outcome.messages as f64;
            outcome.undelivered = ((left as f64 / mean).ceil() as u64).min(outcome.messages);
            outcome.messages -= outcome.undelivered;
            outcome.application_bytes -= left;
        }
    }

    fn next_time(&self) -> Option<Nanos> {
        let links = self
            .links
            .iter()
            .filter_map(|l| Some(l.poll_timeout()?.0.0));
        let flush = self.flushes.peek().map(|Reverse(f)| f.0);
        let ends = self.ends.iter().filter_map(End::next_time);
        links.chain(flush).chain(ends).min()
    }

    fn step(&mut self) {
        let now = self.now;
        for from in [0, 1] {
            while let Some((_, frame)) = self.links[from].poll_deliver(Instant(now)) {
                self.arrive(1 - from, frame);
            }
        }
        while self.flushes.peek().is_some_and(|Reverse(f)| f.0 <= now) {
            if let Some(Reverse((_, side, connection))) = self.flushes.pop() {
                self.ends[side].add(now, self.setup.host, Work::Flush(connection));
            }
        }
        for side in [0, 1] {
            let end = &mut self.ends[side];
            while end.due.front().is_some_and(|m| m.due <= now) {
                if let Some(message) = end.due.pop_front() {
                    end.add(now, self.setup.host, Work::Message(message));
                }
            }
            self.expire(side);
            if self.ends[side].turn_at.is_some_and(|at| at <= now) {
                self.turn(side);
            }
        }
    }

    /// Handles a frame at the end of the link: TCP is in the kernel and answers at once, QUIC waits
    /// for its thread.
    fn arrive(&mut self, side: usize, frame: Frame) {
        let (now, host) = (self.now, self.setup.host);
        match frame {
            Frame::Handshake => {}
            Frame::Tcp(number, segment) => {
                let end = &mut self.ends[side];
                if let Connection::Tcp(tcp) = &mut end.connections[usize::from(number)]
                    && tcp.handle(now, &segment)
                {
                    end.add(now, host, Work::Read(number));
                }
                self.transmit(side, number);
            }
            Frame::Quic(number, packet) => {
                self.ends[side].add(now, host, Work::Packet(number, packet));
            }
        }
    }

    fn expire(&mut self, side: usize) {
        for number in 0..self.setup.connections() {
            let end = &mut self.ends[side];
            match &mut end.connections[usize::from(number)] {
                Connection::Tcp(tcp) => {
                    if tcp.timeout().is_some_and(|at| at <= self.now) {
                        tcp.handle_timeout(self.now);
                        self.transmit(side, number);
                    }
                }
                Connection::Quic(quic) => {
                    let timeouts = [quic.timeout(), end.report_at];
                    let is_due = |at| at + end.timer <= self.now;
                    let is_due = timeouts.into_iter().flatten().any(is_due);
                    if end.turn_at.is_none() && is_due {
                        end.turn_at = Some(self.now.max(end.free_at));
                    }
                }
            }
        }
    }

    /// Runs the end's thread, which does all work that has arrived since its last turn.
    fn turn(&mut self, side: usize) {
        let now = self.now;
        let mut work = std::mem::take(&mut self.ends[side].work);
        let item = match self.setup.carrier {
            Carrier::Tcp(_) => self.setup.host.tcp_item,
            Carrier::Quic(_) => self.setup.host.quic_item,
        };
        let mut items = work.len() as u64;
        let is_sending = work.iter().any(|work| match work {
            Work::Message(_) => self.setup.window.is_zero(),
            Work::Flush(_) => true,
            Work::Read(_) | Work::Packet(..) => false,
        });
        self.ends[side].turn_at = None;
        for work in work.drain(..) {
            match work {
                Work::Message(message) => self.send(side, message),
                Work::Flush(number) => self.flush(side, number),
                Work::Read(number) => {
                    if let Connection::Tcp(tcp) =
                        &mut self.ends[side].connections[usize::from(number)]
                    {
                        tcp.read();
                    }
                    self.transmit(side, number);
                }
                Work::Packet(number, packet) => {
                    let end = &mut self.ends[side];
                    if let Connection::Quic(quic) = &mut end.connections[usize::from(number)] {
                        quic.handle(now, &packet);
                    }
                    end.note_delivered(now, self.setup, &packet);
                }
            }
        }
        self.ends[side].report(now, self.setup, is_sending);
        for number in 0..self.setup.connections() {
            if let Connection::Quic(quic) = &mut self.ends[side].connections[usize::from(number)] {
                let late = self.ends[side].timer;
                if quic.timeout().is_some_and(|at| at + late <= now) {
                    quic.handle_timeout(now);
                }
                items += self.transmit(side, number);
            }
        }
        self.ends[side].free_at = now + items * nanos(item);
    }

    fn send(&mut self, side: usize, message: Message) {
        let setup = self.setup;
        let number = match setup.connections() {
            1 => 0,
            _ => message.agent,
        };
        let end = &mut self.ends[side];
        end.sent += 1;
        let stream = stream_of(setup, message, end.sent);
        let (bytes, begins_lane) = match records(setup) {
            None => (message.bytes, false),
            Some(records) => end.record(records, stream, message.bytes),
        };
        // The first message of a lane leaves with the lane's header.
        if setup.window.is_zero() || begins_lane {
            end.write(setup, number, stream, bytes);
            self.transmit_if_tcp(side, number);
            return;
        }
        let held = &mut end.held[usize::from(number)];
        if held.is_empty() {
            let at = self.now + nanos(setup.window);
            self.flushes.push(Reverse((at, side, number)));
        }
        match held.iter_mut().find(|(s, _)| *s == stream) {
            Some((_, held_bytes)) => *held_bytes += bytes,
            None => held.push((stream, bytes)),
        }
    }

    fn flush(&mut self, side: usize, number: u16) {
        let held = std::mem::take(&mut self.ends[side].held[usize::from(number)]);
        for (stream, bytes) in held {
            self.ends[side].write(self.setup, number, stream, bytes);
        }
        self.transmit_if_tcp(side, number);
    }

    fn transmit_if_tcp(&mut self, side: usize, number: u16) {
        if matches!(self.setup.carrier, Carrier::Tcp(_)) {
            self.transmit(side, number);
        }
    }

    /// Sends all that the connection has to send now. Returns the number of frames.
    fn transmit(&mut self, side: usize, number: u16) -> u64 {
        let mut count = 0;
        loop {
            let (bytes, frame) = match &mut self.ends[side].connections[usize::from(number)] {
                Connection::Tcp(tcp) => match tcp.poll_transmit(self.now) {
                    Some(segment) => (segment.frame_bytes(), Frame::Tcp(number, segment)),
                    None => return count,
                },
                Connection::Quic(quic) => match quic.poll_transmit(self.now) {
                    Some(packet) => (packet.frame_bytes(), Frame::Quic(number, packet)),
                    None => return count,
                },
            };
            self.put(side, bytes, frame);
            count += 1;
        }
    }

    fn put(&mut self, side: usize, bytes: u32, frame: Frame) {
        self.outcome.frames += 1;
        self.outcome.frame_bytes += u64::from(bytes);
        // The link counts its losses; for the connection, a full queue is a loss as well.
        let _ = self.links[side].handle_frame(Instant(self.now), bytes as usize, frame);
    }
}

fn records(setup: &Setup) -> Option<Records> {
    match setup.carrier {
        Carrier::Quic(quic) => quic.records,
        Carrier::Tcp(_) => None,
    }
}

/// The QUIC stream of an end's `sent`th message: a unidirectional stream of the end that opened it.
fn stream_of(setup: &Setup, message: Message, sent: u64) -> u64 {
    let index = match setup.carrier {
        Carrier::Quic(QuicCarrier { streams, .. }) => match streams {
            Streams::PerAgent => u64::from(message.agent),
            Streams::RoundRobin(count) => sent % u64::from(count.max(1)),
            Streams::PerMessage => sent,
            Streams::Lanes(count) => {
                u64::from(message.agent) * u64::from(count) + u64::from(message.lane)
            }
        },
        // All messages of a connection go one after the other.
        Carrier::Tcp(_) => 0,
    };
    4 * index + 2
}

impl End {
    fn new(setup: &Setup, side: usize) -> End {
        let rtt = 2 * nanos(setup.link.delay + setup.host.late + setup.host.wake);
        let connection = |_| match setup.carrier {
            Carrier::Tcp(tcp) => {
                let tcp = Tcp::new(tcp.is_tls, tcp.nodelay, nanos(tcp.rto_min), rtt);
                Connection::Tcp(Box::new(tcp))
            }
            Carrier::Quic(quic) => Connection::Quic(Box::new(Quic::new(QuicSetup {
                connection_id: match (quic.is_thin, side) {
                    (false, _) => 8,
                    (true, 0) => 4,
                    (true, _) => 0,
                },
                ack_threshold: if quic.is_thin { 10 } else { 1 },
                reorder_threshold: if quic.is_thin { 2 } else { 1 },
                ack_delay: nanos(quic.ack_delay),
                congestion: quic.congestion,
                window_floor: quic.window_floor_bytes as f64,
                rtt,
            }))),
        };
        let connections: Vec<Connection> = (0..setup.connections()).map(connection).collect();
        let mut due = setup.messages[side].clone();
        due.sort_by_key(|message| message.due);
        for message in &mut due {
            message.due += SETTLE;
        }
        End {
            held: vec![Vec::new(); connections.len()],
            connections,
            work: Vec::new(),
            turn_at: None,
            free_at: 0,
            timer: nanos(setup.host.timer),
            due: due.into(),
            sent: 0,
            begun: BTreeSet::new(),
            unreported: BTreeSet::new(),
            report_at: None,
        }
    }

    fn is_idle(&self) -> bool {
        let is_quiet = |connection: &Connection| match connection {
            Connection::Tcp(tcp) => tcp.is_idle(),
            Connection::Quic(quic) => quic.is_idle(),
        };
        let holds = self.held.iter().any(|held| !held.is_empty());
        self.due.is_empty()
            && self.work.is_empty()
            && !holds
            && self.connections.iter().all(is_quiet)
    }

    fn next_time(&self) -> Option<Nanos> {
        let timers = self
            .connections
            .iter()
            .filter_map(|connection| match connection {
                Connection::Tcp(tcp) => tcp.timeout(),
                Connection::Quic(quic) if self.turn_at.is_none() => {
                    quic.timeout().map(|at| at + self.timer)
                }
                Connection::Quic(_) => None,
            });
        let due = self.due.front().map(|message| message.due);
        let report_at = self.report_at.filter(|_| self.turn_at.is_none());
        let report_at = report_at.map(|at| at + self.timer);
        timers.chain(due).chain(self.turn_at).chain(report_at).min()
    }

    /// Adds work for the thread. A sleeping thread takes a while to wake; a busy one checks for
    /// work when it is done.
    fn add(&mut self, now: Nanos, host: Host, work: Work) {
        self.work.push(work);
        if self.turn_at.is_none() {
            let is_awake = self.free_at > now;
            self.turn_at = Some(if is_awake {
                self.free_at
            } else {
                now + nanos(host.wake)
            });
        }
    }

    fn write(&mut self, setup: &Setup, number: u16, stream: u64, bytes: u32) {
        match &mut self.connections[usize::from(number)] {
            Connection::Tcp(tcp) => tcp.write(bytes),
            Connection::Quic(quic) => match setup.carrier {
                Carrier::Quic(QuicCarrier {
                    streams: Streams::PerMessage,
                    ..
                }) => quic.write_once(stream, bytes),
                _ => quic.write(stream, bytes),
            },
        }
    }

    /// Bytes of a message on its lane, and whether it is the lane's first.
    fn record(&mut self, records: Records, stream: u64, bytes: u32) -> (u32, bool) {
        let begins_lane = self.begun.insert(stream);
        let lane_header = if begins_lane {
            records.lane_header_bytes
        } else {
            0
        };
        (lane_header + records.header_bytes + bytes, begins_lane)
    }

    fn note_delivered(&mut self, now: Nanos, setup: &Setup, packet: &Packet) {
        let Some(records) = records(setup) else {
            return;
        };
        self.unreported
            .extend(packet.streams().filter(|s| *s != CONTROL_STREAM));
        if !self.unreported.is_empty() && self.report_at.is_none() {
            self.report_at = Some(now + nanos(records.report_every));
        }
    }

    /// Sends a report of deliveries, one message for each channel, on the control stream.
    fn report(&mut self, now: Nanos, setup: &Setup, is_sending: bool) {
        let (Some(records), Some(at)) = (records(setup), self.report_at) else {
            return;
        };
        let rides_from = at - nanos(records.report_every - records.report_rides_after);
        if now < if is_sending { rides_from } else { at } {
            return;
        }
        self.report_at = None;
        let streams = std::mem::take(&mut self.unreported);
        let lanes = match setup.carrier {
            Carrier::Quic(QuicCarrier {
                streams: Streams::Lanes(count),
                ..
            }) => u64::from(count),
            _ => 1,
        };
        let channel = |stream: &u64| stream / 4 / lanes;
        let channels: BTreeSet<u64> = streams.iter().map(channel).collect();
        let bytes = channels.len() as u32 * records.report_bytes
            + streams.len() as u32 * records.report_lane_bytes;
        if let Some(Connection::Quic(quic)) = self.connections.first_mut() {
            quic.write(CONTROL_STREAM, bytes);
        }
    }

    /// Bytes that have not left when the run is over.
    fn left_bytes(&self) -> u64 {
        let of = |connection: &Connection| match connection {
            Connection::Tcp(tcp) => tcp.unsent_bytes(),
            Connection::Quic(quic) => quic.unsent_bytes(),
        };
        let due: u64 = self
            .due
            .iter()
            .map(|message| u64::from(message.bytes))
            .sum();
        due + self.connections.iter().map(of).sum::<u64>()
    }
}

fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
