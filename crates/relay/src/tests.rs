//! Tests both ends of a relay over a network that interleaves streams at will, cuts them at any
//! byte, and loses the connection.

mod policies;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use clock::{Duration, Instant};
use openflow::Frame;
use proptest::prelude::*;
use sched::{Direction, Lane, Place, PolicyMap};

use super::wire::{Control, LaneHeader};
use super::*;

/// xorshift64*: enough to choose with, and a failing seed can be typed in again.
struct Choice(u64);

impl Choice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}

/// One end with the bytes on the way to the other.
struct End {
    session: Session,
    control: Vec<u8>,
    control_parsed: BytesMut,
    lanes: BTreeMap<(ChannelId, Lane), Stream>,
    /// Datagrams on the way.
    copies: Vec<Bytes>,
    input: BTreeMap<ChannelId, VecDeque<Bytes>>,
    unread: BTreeMap<ChannelId, BytesMut>,
    output: BTreeMap<ChannelId, Vec<u8>>,
    ended: Vec<ChannelId>,
    closed: Vec<(ChannelId, String)>,
}

#[derive(Default)]
struct Stream {
    flight: VecDeque<u8>,
    arrived: BytesMut,
    admitted: bool,
}

impl End {
    fn new(side: Side, window_bytes: usize) -> End {
        End::of(side, window_bytes, None, false)
    }

    fn of(side: Side, window_bytes: usize, map: Option<&PolicyMap>, is_copied: bool) -> End {
        let mut copied = PerKind::default();
        Kind::ALL
            .iter()
            .for_each(|kind| copied.set(*kind, is_copied));
        let config = Config {
            window_bytes,
            flow_lanes: 4,
            copied,
            ..Config::new(side)
        };
        End {
            session: match map {
                None => Session::new(Instant::START, config, SessionId([1; 16])),
                Some(map) => Session::with_policy(Instant::START, config, SessionId([1; 16]), map),
            },
            control: Vec::new(),
            control_parsed: BytesMut::new(),
            lanes: BTreeMap::new(),
            copies: Vec::new(),
            input: BTreeMap::new(),
            unread: BTreeMap::new(),
            output: BTreeMap::new(),
            ended: Vec::new(),
            closed: Vec::new(),
        }
    }

    fn feed(&mut self, id: ChannelId) -> bool {
        let unread = self.unread.entry(id).or_default();
        if !unread.is_empty() {
            let before = unread.len();
            self.session.handle_local(Instant::START, id, unread);
            return unread.len() < before;
        }
        match self.input.get_mut(&id).and_then(VecDeque::pop_front) {
            Some(bytes) => {
                unread.extend_from_slice(&bytes);
                self.session.handle_local(Instant::START, id, unread);
                true
            }
            None => false,
        }
    }

    /// Moves a little of one lane into the network.
    fn send(&mut self, id: ChannelId, lane: Lane) -> bool {
        let first = self.session.lane_position(id, lane);
        let Some(chunks) = self
            .session
            .poll_lane(id, lane, 60)
            .filter(|c| !c.is_empty())
        else {
            return false;
        };
        let copies = self.session.take_copies();
        self.copies.extend(copies.iter().map(CopiedRecord::encode));
        let stream = self.lanes.entry((id, lane)).or_insert_with(|| Stream {
            flight: LaneHeader {
                channel: id,
                lane,
                first,
            }
            .encode()
            .into_iter()
            .collect(),
            ..Stream::default()
        });
        chunks.iter().for_each(|chunk| stream.flight.extend(chunk));
        true
    }

    fn write(&mut self, id: ChannelId) -> bool {
        let Some(write) = self.session.poll_local(Instant::START, id, 100) else {
            return false;
        };
        let some = write != LocalWrite::default();
        self.output
            .entry(id)
            .or_default()
            .extend(write.chunks.concat());
        if write.end {
            self.ended.push(id);
        }
        self.session.handle_written(Instant::START, id);
        some
    }

    /// Handles events. Returns whether there was new work.
    fn drain_events(&mut self) -> bool {
        self.session.schedule(Instant::START);
        let mut some = false;
        while let Some(event) = self.session.poll_event() {
            some |= matches!(event, Event::Transmit { .. } | Event::Room { .. });
            if let Event::Closed { channel, reason } = event {
                self.closed.push((channel, reason));
            }
        }
        some
    }

    fn say(&mut self, reports: bool) -> bool {
        let mut some = false;
        while let Some(message) = self.session.poll_control(reports) {
            self.control.extend_from_slice(&message.encode());
            some = true;
        }
        some
    }
}

struct Pair {
    ends: [End; 2],
    connected: bool,
    /// The channels that the switch side has named already, while it does not know that it is
    /// connected.
    early: Option<BTreeSet<ChannelId>>,
    flow_lanes: usize,
}

impl Pair {
    fn new(window_bytes: usize) -> Pair {
        Pair::scheduled(window_bytes, None)
    }

    fn scheduled(window_bytes: usize, map: Option<&PolicyMap>) -> Pair {
        Pair::of(window_bytes, map, false)
    }

    fn of(window_bytes: usize, map: Option<&PolicyMap>, is_copied: bool) -> Pair {
        let ends = [
            End::of(Side::Switch, window_bytes, map, is_copied),
            End::of(Side::Controller, window_bytes, map, is_copied),
        ];
        Pair {
            ends,
            connected: false,
            early: None,
            // Four lanes for each queue.
            flow_lanes: map.map_or(4, |map| 4 * map.scheduling.queues.len()),
        }
    }

    fn connect(&mut self, resumed: bool) {
        let [a, b] = &mut self.ends;
        let settings = [a.session.settings(resumed), b.session.settings(resumed)];
        a.session.handle_connected(&settings[1], resumed).unwrap();
        b.session.handle_connected(&settings[0], resumed).unwrap();
        self.connected = true;
    }

    /// Connects, and lets the switch side continue before it learns that the other end knows the
    /// session.
    fn connect_early(&mut self) {
        let [a, b] = &mut self.ends;
        let settings = a.session.settings(true);
        let early = a.session.resume_early();
        for message in &early.messages {
            a.control.extend(message.encode());
        }
        a.copies
            .extend(early.records.iter().map(CopiedRecord::encode));
        b.session.handle_connected(&settings, true).unwrap();
        self.early = Some(early.said);
        self.connected = true;
    }

    /// Notifies the switch side.
    fn take_up(&mut self) {
        let [a, b] = &mut self.ends;
        if let Some(said) = self.early.take() {
            let settings = b.session.settings(true);
            a.session.handle_taken_up(&settings, &said).unwrap();
        }
    }

    /// Whether the switch side does not read the bytes of this end yet.
    fn is_unread(&self, from: usize) -> bool {
        from == 1 && self.early.is_some()
    }

    fn disconnect(&mut self) {
        self.early = None;
        for end in &mut self.ends {
            end.session.handle_disconnected(Instant::START);
            end.control.clear();
            end.control_parsed.clear();
            end.lanes.clear();
            end.copies.clear();
        }
        self.connected = false;
    }

    /// Lets `count` bytes of one stream of end `from` arrive.
    fn arrive(&mut self, from: usize, id: ChannelId, lane: Lane, count: usize) -> bool {
        if self.is_unread(from) {
            return false;
        }
        let [a, b] = &mut self.ends;
        let (from, to) = if from == 0 { (a, b) } else { (b, a) };
        let Some(stream) = from.lanes.get_mut(&(id, lane)) else {
            return false;
        };
        let count = count.min(stream.flight.len());
        stream.arrived.extend(stream.flight.drain(..count));
        let before = stream.arrived.len();
        if !stream.admitted {
            let mut peek = stream.arrived.clone();
            let Some(header) = LaneHeader::take(&mut peek).unwrap() else {
                return count > 0;
            };
            match to
                .session
                .admits(header.channel, header.lane, header.first)
                .unwrap()
            {
                None => return count > 0,
                Some(admitted) => stream.admitted = admitted,
            }
            stream.arrived = peek;
            if !stream.admitted {
                stream.arrived.clear();
                stream.flight.clear();
                return true;
            }
        }
        to.session
            .handle_lane(id, lane, &mut stream.arrived)
            .unwrap();
        count > 0 || stream.arrived.len() < before
    }

    /// One of the datagrams of end `from` arrives, or is lost.
    fn arrive_copy(&mut self, from: usize, choice: &mut Choice) {
        if self.is_unread(from) {
            return;
        }
        let [a, b] = &mut self.ends;
        let (from, to) = if from == 0 { (a, b) } else { (b, a) };
        if from.copies.is_empty() {
            return;
        }
        let copy = from.copies.swap_remove(choice.below(from.copies.len()));
        if choice.below(4) > 0 {
            to.session.handle_copy(copy).unwrap();
        }
    }

    fn arrive_control(&mut self, from: usize, count: usize) -> bool {
        if self.is_unread(from) {
            return false;
        }
        let [a, b] = &mut self.ends;
        let (from, to) = if from == 0 { (a, b) } else { (b, a) };
        let count = count.min(from.control.len());
        from.control_parsed.extend(from.control.drain(..count));
        while let Some(message) = Control::take(&mut from.control_parsed).unwrap() {
            to.session.handle_control(message).unwrap();
        }
        count > 0
    }

    /// One random event.
    fn step(&mut self, choice: &mut Choice, ids: &[ChannelId]) {
        let at = choice.below(2);
        let id = ids[choice.below(ids.len())];
        let lanes = [
            Lane::STATE,
            Lane::ECHO,
            Lane::EXCHANGE,
            Lane::flow(choice.below(self.flow_lanes) as u16),
        ];
        let lane = lanes[choice.below(4)];
        match choice.below(16) {
            0..3 => drop(self.ends[at].feed(id)),
            3..6 => drop(self.ends[at].send(id, lane)),
            6..9 => drop(self.arrive(at, id, lane, 1 + choice.below(150))),
            9..11 => drop(self.ends[at].write(id)),
            11 => drop(self.ends[at].say(choice.below(2) == 0)),
            12 => drop(self.arrive_control(at, 1 + choice.below(40))),
            13..15 => self.arrive_copy(at, choice),
            _ if !self.connected && choice.below(2) == 0 => self.connect_early(),
            _ if !self.connected => self.connect(true),
            _ if self.early.is_some() => self.take_up(),
            _ if choice.below(12) == 0 => self.disconnect(),
            _ => {}
        }
        for end in &mut self.ends {
            end.drain_events();
        }
    }

    /// Moves everything until nothing can move.
    fn settle(&mut self, ids: &[ChannelId]) {
        if !self.connected {
            self.connect(true);
        }
        self.take_up();
        let mut moved = true;
        while moved {
            moved = false;
            for at in 0..2 {
                for id in ids {
                    moved |= self.ends[at].feed(*id);
                    let kinds = [Lane::STATE, Lane::ECHO, Lane::EXCHANGE];
                    for lane in kinds
                        .into_iter()
                        .chain((0..self.flow_lanes as u16).map(Lane::flow))
                    {
                        moved |= self.ends[at].send(*id, lane);
                        moved |= self.arrive(at, *id, lane, usize::MAX);
                    }
                    moved |= self.ends[at].write(*id);
                }
                moved |= self.ends[at].say(true);
                moved |= self.arrive_control(at, usize::MAX);
            }
            for end in &mut self.ends {
                moved |= end.drain_events();
            }
        }
    }
}

/// A message of a random kind; its xid is its number.
fn message(choice: &mut Choice, direction: Direction, number: u32) -> Bytes {
    let (type_byte, len) = match direction {
        _ if number == 0 => (0, 8),
        Direction::ToSwitch => match choice.below(12) {
            0 => (20, 8),
            1..4 => (14, 56),
            4..8 => (13, 40 + 60),
            8 => (18, 16),
            9 => (2, 8 + choice.below(8)),
            10 => (4, 16),
            _ => (77, 12),
        },
        Direction::ToController => match choice.below(12) {
            0 => (21, 8),
            1..7 => (10, 8 + 16 + 8 + 2 + 60),
            7 => (12, 80),
            8 => (19, 16 + choice.below(400)),
            9 => (3, 8),
            10 => (1, 12),
            _ => (11, 56),
        },
    };
    let mut bytes = vec![0; len];
    bytes[0] = 4;
    bytes[1] = type_byte;
    bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    bytes[4..8].copy_from_slice(&number.to_be_bytes());
    let flow = choice.below(6) as u8;
    match type_byte {
        10 => {
            bytes[24..28].copy_from_slice(&[0, 1, 0, 4]);
            bytes[34..46].copy_from_slice(&[2, 0, 0, 0, 0, flow, 2, 0, 0, 0, 1, flow]);
        }
        13 => {
            bytes[8..12].copy_from_slice(&[0xff; 4]);
            bytes[16..18].copy_from_slice(&[0, 16]);
            bytes[24..28].copy_from_slice(&[0, 0, 0, 16]);
            bytes[40..52].copy_from_slice(&[2, 0, 0, 0, 0, flow, 2, 0, 0, 0, 1, flow]);
        }
        _ => {}
    }
    bytes.into()
}

fn must_stay_behind(direction: Direction, earlier: Place, later: Place) -> bool {
    use Place::*;
    match (earlier, later) {
        (Free, Free) => true,
        (Free, _) | (_, Free) => false,
        (Fence, _) | (_, Fence) | (State, State | Exchange) | (Exchange, Exchange) => true,
        (Flow(a), Flow(b)) => a == b,
        (State, Flow(_)) | (Exchange, State) => direction == Direction::ToSwitch,
        _ => false,
    }
}

fn frames(bytes: &[u8]) -> Vec<Frame> {
    let mut buf = BytesMut::from(bytes);
    let mut frames = Vec::new();
    while let Some(frame) = Frame::split_from(&mut buf).unwrap() {
        frames.push(frame);
    }
    assert!(buf.is_empty(), "no message is left in half");
    frames
}

/// Asserts that the messages of one end left the other: each once, bytes unchanged, in an order
/// that OpenFlow allows. Returns the number of messages that overtook another.
fn assert_carried(direction: Direction, sent: &[Bytes], output: &[u8], lanes: u16) -> usize {
    let out = frames(output);
    assert_eq!(out.len(), sent.len(), "no loss and no duplicate");
    let order: Vec<usize> = out.iter().map(|frame| frame.xid().0 as usize).collect();
    let places: Vec<Place> = sent
        .iter()
        .map(|bytes| place_of(&Frame::new(bytes.clone()).unwrap(), direction, lanes))
        .collect();
    for (at, number) in order.iter().enumerate() {
        assert_eq!(out[at].bytes(), &sent[*number], "bytes unchanged");
    }
    assert_eq!(order.first(), Some(&0), "hello first");
    let mut overtakes = 0;
    for (at, later) in order.iter().enumerate() {
        for earlier in order[at + 1..].iter().filter(|earlier| *earlier < later) {
            overtakes += 1;
            let crossed = must_stay_behind(direction, places[*earlier], places[*later]);
            assert!(
                !crossed,
                "{:?} overtook {:?}",
                places[*later], places[*earlier]
            );
        }
    }
    overtakes
}

/// Random traffic both ways on two OpenFlow channels and a raw one, over a network that breaks.
fn carry(seed: u64, window_bytes: usize) -> usize {
    carry_by(seed, window_bytes, None, false)
}

fn carry_by(seed: u64, window_bytes: usize, map: Option<&PolicyMap>, is_copied: bool) -> usize {
    let mut choice = Choice(seed | 1);
    let mut pair = Pair::of(window_bytes, map, is_copied);
    pair.connect(false);
    let ids = [
        pair.ends[0].session.open(Agent::OpenFlow, "br0").unwrap(),
        pair.ends[0].session.open(Agent::OpenFlow, "br1").unwrap(),
        pair.ends[1].session.open(Agent::Raw, "ovsdb").unwrap(),
    ];
    let directions = [Direction::ToController, Direction::ToSwitch];
    let mut sent = BTreeMap::new();
    for (at, direction) in directions.into_iter().enumerate() {
        for id in ids {
            let count = 1 + choice.below(60) as u32;
            let messages: Vec<Bytes> = (0..count)
                .map(|n| message(&mut choice, direction, n))
                .collect();
            pair.ends[at].input.insert(id, messages.clone().into());
            sent.insert((at, id), messages);
        }
    }
    for _ in 0..choice.below(3000) {
        pair.step(&mut choice, &ids);
    }
    pair.settle(&ids);
    let mut overtakes = 0;
    for (at, direction) in directions.into_iter().enumerate() {
        for id in ids {
            let output = &pair.ends[1 - at].output[&id];
            let sent = &sent[&(at, id)];
            if id == ids[2] {
                assert_eq!(output, &sent.concat(), "raw bytes in order");
            } else {
                overtakes += assert_carried(
                    direction,
                    sent,
                    output,
                    if map.is_some() { 4096 } else { 4 },
                );
            }
        }
    }
    for end in &pair.ends {
        assert_eq!(end.closed, [], "no channel was given up");
        for status in end.session.channels() {
            assert_eq!(
                (status.kept_bytes, status.held_bytes, status.held_count),
                (0, 0, 0)
            );
            assert_eq!((status.queued_count, status.queued_bytes), (0, 0));
            assert_eq!(status.shed, Shed::default());
        }
    }
    for ours in pair.ends[0].session.channels() {
        let theirs = pair.ends[1]
            .session
            .channels()
            .find(|s| s.channel == ours.channel)
            .unwrap();
        assert_eq!(ours.taken.digest(), theirs.given.digest());
        assert_eq!(theirs.taken.digest(), ours.given.digest());
    }
    overtakes
}

proptest! {
    #[test]
    fn nothing_is_lost_doubled_or_out_of_order_whatever_the_network_does(seed: u64) {
        carry(seed, 4 << 20);
    }

    #[test]
    fn copies_neither_double_nor_reorder_anything(seed: u64, is_tiny: bool) {
        carry_by(seed, if is_tiny { 100 } else { 4 << 20 }, None, true);
    }

    /// A window smaller than one message: each message waits for the one before to be delivered.
    #[test]
    fn a_tiny_window_slows_down_and_does_not_stop(seed: u64, window_bytes in 1usize..200) {
        carry(seed, window_bytes);
    }
}

/// A map under which packets of one destination are more urgent than others. A copy that was ahead
/// of its lane when the connection broke was handed over before its record was sent on the next
/// one.
#[test]
fn a_copy_does_not_outlive_its_connection() {
    carry_by(8_408_365_951_361_897_946, 100, None, true);
}

fn map(algorithm: &str) -> PolicyMap {
    let text = format!(
        "Rule #1: traffic_type=1, action=queue_id:0
Rule #2: traffic_type=2, eth_dst=02:00:00:00:00:03, action=queue_id:1
Rule #3: traffic_type=2, action=queue_id:2
Rule #4: traffic_type=3, action=queue_id:3
Scheduler: algo={algorithm}
"
    );
    PolicyMap::parse(&text).unwrap().0
}

proptest! {
    #[test]
    fn no_policy_loses_doubles_or_breaks_the_order(
        seed: u64,
        algorithm in prop::sample::select(vec!["fifo", "strict", "wfq", "drr", "hierarchy"]),
    ) {
        carry_by(seed, 4 << 20, Some(&map(algorithm)), seed % 2 == 0);
    }

    #[test]
    fn no_policy_stops_on_a_tiny_window(seed: u64, window_bytes in 1usize..200) {
        carry_by(seed, window_bytes, Some(&map("strict")), false);
    }
}

/// One packet-in of a flow.
fn packet_in(flow: u8, number: u32) -> Bytes {
    let mut bytes = vec![0; 8 + 16 + 8 + 2 + 60];
    bytes[..4].copy_from_slice(&[4, 10, 0, 94]);
    bytes[4..8].copy_from_slice(&number.to_be_bytes());
    bytes[24..28].copy_from_slice(&[0, 1, 0, 4]);
    bytes[34..46].copy_from_slice(&[2, 0, 0, 0, 0, flow, 2, 0, 0, 0, 1, flow]);
    bytes.into()
}

/// While nothing is sent, few bytes are dealt to lanes. A late urgent message overtakes those that
/// wait, and the end is last.
#[test]
fn a_backlog_waits_above_the_lanes_and_what_matters_passes_it() {
    const BACKLOG: u32 = 300;
    let mut pair = Pair::scheduled(4 << 20, Some(&map("strict")));
    let id = hello_both_ways(&mut pair);
    let mut input: Vec<u8> = Vec::new();
    (1..=BACKLOG).for_each(|n| input.extend(packet_in(n as u8 % 8 + 8, n)));
    input.extend(packet_in(3, BACKLOG + 1));
    let end = &mut pair.ends[0];
    end.unread.entry(id).or_default().extend_from_slice(&input);
    end.feed(id);
    end.drain_events();
    end.session.handle_local_end(Instant::START, id);
    let status = end.session.channels().next().unwrap();
    assert!(status.kept_bytes < LOWER_BYTES_MAX + 200, "{status:?}");
    assert!(status.queued_count > 250, "{status:?}");
    pair.settle(&[id]);
    let out = frames(&pair.ends[1].output[&id]);
    assert_eq!(out.len() as u32, 1 + BACKLOG + 1);
    let place = out.iter().position(|f| f.xid().0 == BACKLOG + 1).unwrap();
    assert!(place < 50, "{place} messages were before it");
    assert_eq!(pair.ends[1].ended, [id]);
    assert_eq!(pair.ends[0].session.channels().count(), 0);
}

/// A peer that reads nothing more: packet-ins are shed, counted, and absent from the ledger.
#[test]
fn what_is_shed_is_counted_apart() {
    let mut pair = Pair::scheduled(4 << 20, Some(&map("strict")));
    let id = hello_both_ways(&mut pair);
    let input: Vec<u8> = (1..=5000).flat_map(|n| packet_in(n as u8, n)).collect();
    let end = &mut pair.ends[0];
    end.unread.entry(id).or_default().extend_from_slice(&input);
    end.feed(id);
    end.drain_events();
    let status = end.session.channels().next().unwrap();
    assert!(status.shed.messages > 3000, "{status:?}");
    let line = end.session.line().unwrap();
    let shed = |q: &sched::scheduler::QueueCounters| q.shed_full + q.shed_duplicate + q.shed_stale;
    assert_eq!(
        line.queues.iter().map(shed).sum::<u64>(),
        status.shed.messages
    );
    pair.settle(&[id]);
    let ours = pair.ends[0].session.channels().next().unwrap();
    let theirs = pair.ends[1].session.channels().next().unwrap();
    assert_eq!(ours.taken.messages + ours.shed.messages, 5001);
    assert_eq!(ours.taken.digest(), theirs.given.digest());
}

#[test]
fn lanes_do_overtake() {
    let overtakes: usize = (0..40).map(|seed| carry(seed * 7919, 4 << 20)).sum();
    assert!(
        overtakes > 100,
        "{overtakes}: the order tests would pass on a single stream too"
    );
}

/// The bytes that one end has sent on flow lanes for these packets, by lane; both ends take records
/// without heads if `is_bare`.
fn sent_of(packets: &[Bytes], channels: usize, shares_lanes: bool, is_bare: bool) -> Vec<Vec<u8>> {
    let session = |side, id| {
        let mut config = Config::new(side);
        config.shares_lanes = shares_lanes;
        Session::new(Instant::START, config, id)
    };
    let mut ours = session(Side::Switch, SessionId([1; 16]));
    let peer = Settings {
        takes_bare_records: is_bare,
        ..session(Side::Controller, SessionId([1; 16])).settings(false)
    };
    ours.handle_connected(&peer, false).unwrap();
    ours.handle_control(Control::ResumeEnd).unwrap();
    let ids: Vec<ChannelId> = (0..channels)
        .map(|_| ours.open(Agent::OpenFlow, "br0").unwrap())
        .collect();
    let mut sent = Vec::new();
    for id in ids {
        let mut input = BytesMut::from(&packets.concat()[..]);
        assert!(ours.handle_local(Instant::START, id, &mut input));
        for index in 0..16 {
            let chunks = ours.poll_lane(id, Lane::flow(index), usize::MAX).unwrap();
            sent.push(chunks.concat());
        }
    }
    sent.retain(|lane| !lane.is_empty());
    sent
}

#[test]
fn only_the_first_record_of_a_lane_says_what_the_rest_has_too() {
    // The first message of a channel is a fence, whatever it is.
    let packets: Vec<Bytes> = (0..6).map(|n| packet_in(7, n)).collect();
    let messages: usize = packets[1..].iter().map(Bytes::len).sum();
    let bytes = |is_bare| {
        let lanes = sent_of(&packets, 1, false, is_bare);
        assert_eq!(lanes.len(), 1, "one flow");
        lanes[0].len() - messages
    };
    assert_eq!((bytes(true), bytes(false)), (3, 5 * 2));
}

#[test]
fn channels_that_share_lanes_have_a_part_of_them_each() {
    let packets: Vec<Bytes> = (0..255).map(|flow| packet_in(flow, 1)).collect();
    let lanes = |channels, shares| sent_of(&packets, channels, shares, true).len();
    assert_eq!([1, 4].map(|n| lanes(n, false)), [16, 64]);
    assert_eq!([1, 2, 4, 16, 20].map(|n| lanes(n, true)), [8, 8, 8, 16, 20]);
}

fn hello_both_ways(pair: &mut Pair) -> ChannelId {
    pair.connect(false);
    let id = pair.ends[0].session.open(Agent::OpenFlow, "br0").unwrap();
    let hello = Bytes::from_static(&[4, 0, 0, 8, 0, 0, 0, 0]);
    pair.ends[0].input.insert(id, [hello.clone()].into());
    pair.ends[1].input.insert(id, [hello].into());
    pair.settle(&[id]);
    id
}

#[test]
fn an_end_is_handed_over_after_everything_else_and_frees_the_channel() {
    let mut pair = Pair::new(4 << 20);
    let id = hello_both_ways(&mut pair);
    let mut choice = Choice(5);
    let more: Vec<Bytes> = (1..50)
        .map(|n| message(&mut choice, Direction::ToController, n))
        .collect();
    pair.ends[0]
        .unread
        .entry(id)
        .or_default()
        .extend_from_slice(&more.concat());
    pair.ends[0].feed(id);
    pair.ends[0].session.handle_local_end(Instant::START, id);
    pair.settle(&[id]);
    assert_eq!(frames(&pair.ends[1].output[&id]).len(), 50);
    assert_eq!(pair.ends[1].ended, [id]);
    for end in &pair.ends {
        assert_eq!(end.session.channels().count(), 0);
        assert_eq!(end.closed, [(id, "ended".to_owned())]);
    }
}

#[test]
fn a_raw_channel_may_be_half_closed() {
    let mut pair = Pair::new(4 << 20);
    pair.connect(false);
    let id = pair.ends[1].session.open(Agent::Raw, "ovsdb").unwrap();
    pair.ends[1]
        .input
        .insert(id, [Bytes::from_static(b"question")].into());
    pair.ends[1].feed(id);
    pair.ends[1].session.handle_local_end(Instant::START, id);
    pair.settle(&[id]);
    assert_eq!(pair.ends[0].ended, [id]);
    let answer = Bytes::from(vec![b'x'; 100_000]);
    pair.ends[0].input.insert(id, [answer.clone()].into());
    pair.settle(&[id]);
    assert_eq!(pair.ends[1].output[&id], answer);
    pair.ends[0].session.handle_local_end(Instant::START, id);
    pair.settle(&[id]);
    assert_eq!(pair.ends[1].ended, [id]);
    assert_eq!(pair.ends[1].session.channels().count(), 0);
}

#[test]
fn local_sockets_outlive_the_connection_for_the_grace_time_and_no_longer() {
    let mut pair = Pair::new(4 << 20);
    let id = hello_both_ways(&mut pair);
    pair.disconnect();
    let end = &mut pair.ends[0];
    let (at, why) = end.session.poll_timeout().unwrap();
    assert_eq!(
        (at, why),
        (Instant::START + Duration::from_secs(10), "grace")
    );
    end.session.handle_timeout(Instant(at.0 - 1));
    assert!(end.session.is_resumable());
    end.session.handle_timeout(at);
    end.drain_events();
    assert_eq!(end.closed[0].0, id);
    assert!(!end.session.is_resumable());
    assert_eq!(end.session.poll_timeout(), None);
}

/// Channels that a dead relay knew are closed; those that it never knew are carried.
#[test]
fn a_restarted_peer_closes_old_channels_and_keeps_those_it_never_knew() {
    let mut pair = Pair::new(4 << 20);
    let old = hello_both_ways(&mut pair);
    pair.disconnect();
    let new = pair.ends[0].session.open(Agent::OpenFlow, "br1").unwrap();
    let hello = Bytes::from_static(&[1, 0, 0, 8, 0, 0, 0, 9]);
    pair.ends[0].input.insert(new, [hello.clone()].into());
    pair.ends[0].feed(new);
    pair.ends[1] = End::new(Side::Controller, 4 << 20);
    pair.connect(false);
    pair.settle(&[new]);
    assert_eq!(pair.ends[0].closed.len(), 1);
    assert_eq!(pair.ends[0].closed[0].0, old);
    assert_eq!(pair.ends[1].output[&new], hello);
}

#[test]
fn a_channel_closed_while_disconnected_is_closed_at_the_other_end() {
    for closer in 0..2 {
        let mut pair = Pair::new(4 << 20);
        let id = hello_both_ways(&mut pair);
        pair.disconnect();
        pair.ends[closer].session.reset(id, "gone".into());
        pair.settle(&[]);
        for end in &pair.ends {
            assert_eq!(end.closed.len(), 1, "closed by {closer}");
            assert_eq!(end.session.channels().count(), 0);
        }
    }
}

#[test]
fn a_peer_that_breaks_the_rules_is_told_which() {
    let mut pair = Pair::new(64);
    let id = hello_both_ways(&mut pair);
    let session = &mut pair.ends[0].session;
    let cursors = vec![(Lane::STATE, 99)];
    let delivered = Control::Delivered {
        channel: id,
        cursors,
    };
    assert_eq!(
        session.handle_control(delivered),
        Err(WireError("delivered what was never sent"))
    );
    let opened = Control::Open {
        channel: id,
        agent: Agent::OpenFlow,
        name: "x".into(),
    };
    assert_eq!(
        session.handle_control(opened),
        Err(WireError("a channel opened twice"))
    );
    let ahead = session.admits(id, Lane::STATE, 7);
    assert_eq!(ahead, Ok(None), "the rest comes by another connection");
    let settings = session.settings(false);
    assert_eq!(
        session.handle_connected(&settings, false),
        Err(WireError("both ends are the same side"))
    );
    // Messages that wait for a state message which never arrives, beyond the window.
    let mut flood = BytesMut::new();
    for _ in 0..10 {
        flood.extend_from_slice(&[0, 1, 2, 4, 10, 0x80, 0]);
        flood.extend_from_slice(&[0; 0x7ffc]);
    }
    let refused = session.handle_lane(id, Lane::flow(0), &mut flood);
    assert_eq!(refused, Err(WireError("more bytes than the window allows")));
    assert_eq!(
        session.admits(id, Lane::flow(0), 0),
        Err(WireError("a lane that starts before where it stands"))
    );
}
