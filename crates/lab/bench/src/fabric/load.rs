//! The conversations of a run: their first packets are sent, followed to their hosts and timed. The
//! time until their paths are ready is measured too. No socket and no clock.

use std::collections::{HashMap, VecDeque};

use bytes::{Bytes, BytesMut};
use clock::Instant;
use openflow::packet::build::{self, Host, arp_reply, arp_request};
use openflow::{Field, MacAddr, PacketFields};
use serde::Serialize;
use testbed::topology::Attachment;

use super::net::number_of;
use super::pairs::Pairs;
use super::recovery::Delay;
use super::switch::Effect;
use super::walk::{Arrival, Fabric, Verdict};
use crate::controller::switch::{Announce, Broken};
use crate::controller::wire::{MAGIC, Packet, UDP_PORTS};
use crate::histogram::Histogram;

/// Conversations of one run: each costs some 100 bytes of memory at most.
const CONVERSATIONS_MAX: usize = 1 << 24;
/// Packets of an open loop that are sent before the controller's messages are read again.
const SENT_AT_ONCE: usize = 1024;
/// An open loop leaves out packets later than this. Otherwise the load would starve the reading of
/// answers, and the controller would seem to be behind.
const LATE_MAX_NS: u64 = 20_000_000;
/// A path that is not ready after this many packet timeouts counts as never ready.
const READY_TIMEOUTS: u64 = 2;
const ARP_ETHERTYPE: u128 = 0x0806;
const ARP_REQUEST: u128 = 1;
/// The address that storms ask for; no host has it.
const NOBODY: std::net::Ipv4Addr = std::net::Ipv4Addr::new(10, 255, 255, 254);

/// How conversations begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// With a packet to the other host.
    Packet,
    /// With an ARP request; the packet waits for its answer.
    Arp,
}

/// When conversations begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    Idle,
    /// Up to `window` first packets of each switch with hosts are in flight.
    Closed {
        window: u32,
    },
    /// First packets are sent on a schedule from `from_ns` on.
    Open {
        rate: f64,
        from_ns: u64,
    },
}

/// The fate of conversations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub sent: u64,
    /// Packets of an open loop that were left out because the emulator was behind.
    pub not_sent: u64,
    /// First packets that reached their host in time.
    pub delivered: u64,
    pub lost: u64,
    /// Conversations whose packets the tables alone would forward from one host to the other.
    pub ready: u64,
    pub never_ready: u64,
    /// First packets that arrived again.
    pub duplicates: u64,
    /// Packets that came out where their host is not connected.
    pub strays: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Conversation {
    pub source: u32,
    pub destination: u32,
    due_ns: u64,
    edge: u32,
    pub delivered: bool,
    given_up: bool,
    pub ready: bool,
    /// Whether the conversation counts in the tally.
    recorded: bool,
    /// Whether its packet was sent more than once.
    repeated: bool,
}

/// Recorded conversations: delays in nanoseconds.
#[derive(Default)]
pub struct Record {
    pub tally: Tally,
    /// From the time a first packet was due to its delivery.
    pub first: Histogram,
    /// From the same time until the path was ready.
    pub ready: Histogram,
    pub echo: Histogram,
    /// First packets delivered while the clock ran, whenever they were sent.
    pub delivered_meanwhile: u64,
}

/// The network and its load.
pub struct World {
    pub fabric: Fabric,
    pub record: Record,
    pub conversations: Vec<Conversation>,
    pub pairs_exhausted: bool,
    /// Broadcasts that were sent, and their copies that reached ports with hosts.
    pub broadcasts: u64,
    pub broadcast_copies: u64,
    /// Switches whose hosts take no part.
    pub is_out: Vec<bool>,
    opening: Opening,
    timeout_ns: u64,
    pairs: Pairs,
    edges: Vec<u32>,
    pace: Pace,
    /// Broadcasts a second, the time of the first, and their number so far.
    storm: Option<(f64, u64, u64)>,
    is_recording: bool,
    /// The first conversation of a calm time, and the delays of those delivered since.
    calm: Option<(usize, Vec<Delay>)>,
    opened: u64,
    in_flight: Vec<u32>,
    /// Switches that may have room in their window.
    room: Vec<u32>,
    /// First packets in flight, and paths not yet ready, in the order they are given up.
    under_way: VecDeque<u32>,
    not_ready: VecDeque<u32>,
    /// Conversations that wait for a path, by pair, at each switch whose entries may complete it.
    waiting: Vec<HashMap<u64, u32>>,
    /// The switches at which each conversation waits.
    waiting_at: HashMap<u32, Vec<u32>>,
    /// Conversations that wait for an ARP reply, by pair.
    asking: HashMap<u64, u32>,
    changed: Vec<(u32, Effect)>,
    arrivals: Vec<Arrival>,
    visited: Vec<u32>,
}

impl World {
    pub fn new(fabric: Fabric, pairs: Pairs, opening: Opening, timeout_ns: u64) -> World {
        let switches = fabric.switches.len();
        World {
            record: Record::default(),
            conversations: Vec::new(),
            pairs_exhausted: false,
            broadcasts: 0,
            broadcast_copies: 0,
            storm: None,
            is_out: vec![false; switches],
            opening,
            timeout_ns,
            pairs,
            edges: fabric.net.edges().map(|edge| edge as u32).collect(),
            pace: Pace::Idle,
            is_recording: false,
            calm: None,
            opened: 0,
            in_flight: vec![0; switches],
            room: Vec::new(),
            under_way: VecDeque::new(),
            not_ready: VecDeque::new(),
            waiting: vec![HashMap::new(); switches],
            waiting_at: HashMap::new(),
            asking: HashMap::new(),
            changed: Vec::new(),
            arrivals: Vec::new(),
            visited: Vec::new(),
            fabric,
        }
    }

    pub fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
        self.opened = 0;
        self.room = self.edges.clone();
    }

    /// Begins a storm of this many broadcasts a second, or ends it.
    pub fn set_broadcasts(&mut self, rate: Option<f64>, now: Instant) {
        self.storm = rate.map(|rate| (rate, now.0, 0));
    }

    /// Begins or ends the time in which new conversations are recorded.
    pub fn set_recording(&mut self, is_recording: bool) {
        self.is_recording = is_recording;
    }

    /// Notes the delay of each first packet sent from now on, until [`World::end_calm`].
    pub fn begin_calm(&mut self) {
        self.calm = Some((self.conversations.len(), Vec::new()));
    }

    /// Returns the noted delays in the order in which the packets were due. A packet in flight or
    /// lost has its delay so far; without `with_late` it is left out.
    pub fn end_calm(&mut self, now: Instant, with_late: bool) -> Vec<Delay> {
        let (first, mut delays) = self.calm.take().unwrap_or_default();
        if with_late {
            let late = self.conversations[first..].iter().filter(|c| !c.delivered);
            delays.extend(late.map(|c| (c.due_ns, now.0.saturating_sub(c.due_ns))));
        }
        delays.sort_unstable();
        delays
    }

    /// The time of the next scheduled packet.
    pub fn next_due_ns(&self) -> Option<u64> {
        let storm = self
            .storm
            .map(|(rate, from_ns, sent)| due_ns(rate, from_ns, sent));
        self.next_open_ns().into_iter().chain(storm).min()
    }

    fn next_open_ns(&self) -> Option<u64> {
        match self.pace {
            Pace::Open { rate, from_ns } => Some(due_ns(rate, from_ns, self.opened)),
            Pace::Idle | Pace::Closed { .. } => None,
        }
    }

    /// Whether no first packet is in flight and no path is awaited.
    pub fn is_drained(&self) -> bool {
        self.under_way.is_empty() && self.not_ready.is_empty()
    }

    /// Handles bytes from a switch's controller.
    ///
    /// # Errors
    /// The reason why the connection cannot continue.
    pub fn handle_bytes(
        &mut self,
        now: Instant,
        switch: usize,
        bytes: &mut BytesMut,
    ) -> Result<(), Broken> {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        let changed = &mut self.changed;
        let echo = &mut self.record.echo;
        let is_recording = self.is_recording;
        let note = |effect: Effect| match effect {
            Effect::Echoed { sent_ns } if is_recording => {
                echo.saturating_record(now.0.saturating_sub(sent_ns));
            }
            effect => changed.push((switch as u32, effect)),
        };
        let handled = self
            .fabric
            .handle_bytes(now, switch, bytes, &mut arrivals, note);
        self.arrive(now, &mut arrivals);
        self.arrivals = arrivals;
        self.look_at_changes(now);
        handled
    }

    /// Gives up packets and paths that have waited too long, and sends packets that are due.
    pub fn handle_tick(&mut self, now: Instant) {
        while let Some(id) = self.under_way.front().copied() {
            let conversation = &mut self.conversations[id as usize];
            if !conversation.delivered {
                if conversation.due_ns + self.timeout_ns > now.0 {
                    break;
                }
                conversation.given_up = true;
                let (pair, recorded) = (conversation.pair(), conversation.recorded);
                self.record.tally.lost += u64::from(recorded);
                self.asking.remove(&pair);
                self.release(id);
            }
            self.under_way.pop_front();
        }
        while let Some(id) = self.not_ready.front().copied() {
            let conversation = self.conversations[id as usize];
            if !conversation.ready {
                if conversation.due_ns + READY_TIMEOUTS * self.timeout_ns > now.0 {
                    break;
                }
                self.record.tally.never_ready += u64::from(conversation.recorded);
                self.forget_waiting(id);
            }
            self.not_ready.pop_front();
        }
        self.send_due(now);
        while let Some((rate, from_ns, sent)) = self.storm
            && due_ns(rate, from_ns, sent) <= now.0
        {
            self.storm = Some((rate, from_ns, sent + 1));
            self.broadcasts += 1;
            let host = sent % u64::from(self.fabric.net.host_count());
            self.broadcast(now, host as u32);
        }
    }

    fn send_due(&mut self, now: Instant) {
        match self.pace {
            Pace::Idle => {}
            Pace::Closed { window } => {
                while let Some(edge) = self.room.pop() {
                    while self.in_flight[edge as usize] < window && self.open(now, now.0, edge) {}
                }
            }
            Pace::Open { .. } => {
                let mut left = SENT_AT_ONCE;
                while left > 0
                    && let Some(due_ns) = self.next_open_ns().filter(|due_ns| *due_ns <= now.0)
                {
                    let edge = self.edges[(self.opened % self.edges.len() as u64) as usize];
                    self.opened += 1;
                    if due_ns + LATE_MAX_NS < now.0 {
                        self.record.tally.not_sent += u64::from(self.is_recording);
                        continue;
                    }
                    left -= 1;
                    self.open(now, due_ns, edge);
                }
            }
        }
    }

    /// Begins a conversation of a host of this switch; false if there is none left to begin.
    fn open(&mut self, now: Instant, due_ns: u64, edge: u32) -> bool {
        let net = &self.fabric.net;
        let is_out = &self.is_out;
        if is_out[edge as usize] {
            return false;
        }
        let is_usable = |host| !is_out[net.place(host).switch];
        let has_room = self.conversations.len() < CONVERSATIONS_MAX;
        let drawn = self.pairs.next(net, edge as usize, is_usable);
        let Some((source, destination)) = drawn.filter(|_| has_room) else {
            self.pairs_exhausted = true;
            return false;
        };
        let id = self.conversations.len() as u32;
        let conversation = Conversation {
            source,
            destination,
            due_ns,
            edge,
            delivered: false,
            given_up: false,
            ready: false,
            recorded: self.is_recording,
            repeated: false,
        };
        self.conversations.push(conversation);
        self.record.tally.sent += u64::from(self.is_recording);
        self.in_flight[edge as usize] += 1;
        self.under_way.push_back(id);
        self.not_ready.push_back(id);
        let (from, to) = (net.host(source), net.host(destination));
        let at = net.place(source);
        let asked = self.fabric.switches[at.switch].counts.packet_ins;
        match self.opening {
            Opening::Packet => self.send(now, id),
            Opening::Arp => {
                self.asking.insert(conversation.pair(), id);
                self.inject(now, at, arp_request(from, to.ip).into());
            }
        }
        let is_asked = self.fabric.switches[at.switch].counts.packet_ins > asked;
        match is_asked && self.opening == Opening::Packet {
            // Its first switch has no entry for it.
            true => self.wait(id, vec![at.switch as u32]),
            false => self.probe(now, id),
        }
        true
    }

    /// Sends the packet of a conversation again.
    pub fn send_again(&mut self, now: Instant, id: u32) {
        self.conversations[id as usize].repeated = true;
        self.send(now, id);
    }

    fn send(&mut self, now: Instant, id: u32) {
        let at = self
            .fabric
            .net
            .place(self.conversations[id as usize].source);
        let packet = self.packet(id);
        self.inject(now, at, packet);
    }

    fn packet(&self, id: u32) -> Bytes {
        let Conversation {
            source,
            destination,
            ..
        } = self.conversations[id as usize];
        let net = &self.fabric.net;
        let mut payload = [0; 16];
        payload[..4].copy_from_slice(&MAGIC.to_be_bytes());
        payload[4..8].copy_from_slice(&id.to_be_bytes());
        let (from, to) = (net.host(source), net.host(destination));
        build::udp(from, to, UDP_PORTS, &payload).into()
    }

    /// Sends this packet from a host.
    fn inject(&mut self, now: Instant, at: Attachment, packet: Bytes) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        self.fabric.carry(now, at, packet, &mut arrivals);
        self.arrive(now, &mut arrivals);
        self.arrivals = arrivals;
    }

    /// Announces a host.
    pub fn announce(&mut self, now: Instant, host: u32, how: Announce) {
        let net = &self.fabric.net;
        let (at, host) = (net.place(host), net.host(host));
        self.inject(now, at, how.frame(host).into());
    }

    /// Broadcasts a host's ARP request for an address that no host has.
    fn broadcast(&mut self, now: Instant, host: u32) {
        let net = &self.fabric.net;
        let packet = arp_request(net.host(host), NOBODY);
        self.inject(now, net.place(host), packet.into());
    }

    /// Handles packets that came out at ports with hosts, and the answers of these hosts.
    fn arrive(&mut self, now: Instant, arrivals: &mut Vec<Arrival>) {
        while let Some(Arrival { at, packet }) = arrivals.pop() {
            let Some(seen) = Packet::read(&packet) else {
                continue;
            };
            if let Some(id) = seen.tag {
                self.deliver(now, at, id, seen.eth_dst);
            } else if packet[12..14] == (ARP_ETHERTYPE as u16).to_be_bytes() {
                self.handle_arp(now, at, &packet, arrivals);
            } else if seen.eth_dst & 1 << 40 != 0 {
                self.broadcast_copies += 1;
            }
        }
    }

    fn deliver(&mut self, now: Instant, at: Attachment, id: u32, eth_dst: u64) {
        let tally = &mut self.record.tally;
        let Some(conversation) = self.conversations.get_mut(id as usize) else {
            return;
        };
        let is_its = number_of(eth_dst) == Some(conversation.destination)
            && self.fabric.net.place(conversation.destination) == at;
        let recorded = u64::from(conversation.recorded);
        if !is_its {
            tally.strays += recorded;
            return;
        }
        if conversation.delivered {
            tally.duplicates += recorded * u64::from(!conversation.repeated);
            return;
        }
        if conversation.given_up {
            return;
        }
        conversation.delivered = true;
        let delay_ns = now.0.saturating_sub(conversation.due_ns);
        if let Some((first, delays)) = &mut self.calm
            && id as usize >= *first
        {
            delays.push((conversation.due_ns, delay_ns));
        }
        if conversation.recorded {
            tally.delivered += 1;
            self.record.first.saturating_record(delay_ns);
        }
        self.record.delivered_meanwhile += u64::from(self.is_recording);
        self.release(id);
    }

    fn handle_arp(
        &mut self,
        now: Instant,
        at: Attachment,
        packet: &[u8],
        arrivals: &mut Vec<Arrival>,
    ) {
        let fields = PacketFields::parse(at.port, packet);
        let number = |field| fields.get(field).unwrap_or(0);
        let asker = Host::new(
            MacAddr::from_u64(number(Field::ArpSha) as u64),
            std::net::Ipv4Addr::from_bits(number(Field::ArpSpa) as u32),
        );
        let is_broadcast = number(Field::EthDst) as u64 == MacAddr::BROADCAST.to_u64();
        self.broadcast_copies += u64::from(is_broadcast);
        let net = &self.fabric.net;
        if number(Field::ArpOp) == ARP_REQUEST {
            let asked = net.host_of_ip(number(Field::ArpTpa) as u32);
            let is_here = |host: &u32| net.place(*host) == at && net.host(*host).mac != asker.mac;
            if let Some(host) = asked.filter(is_here) {
                let reply = arp_reply(net.host(host), asker);
                self.fabric.carry(now, at, reply.into(), arrivals);
            }
            return;
        }
        let answered = number_of(asker.mac.to_u64())
            .filter(|h| net.host_of_ip(asker.ip.to_bits()) == Some(*h));
        let asking = net.host_of(number(Field::EthDst) as u64);
        let asking = asking.filter(|host| net.place(*host) == at);
        if let Some((source, destination)) = asking.zip(answered)
            && let Some(id) = self.asking.remove(&pair(source, destination))
        {
            let packet = self.packet(id);
            self.fabric.carry(now, at, packet, arrivals);
        }
    }

    /// Marks the first packet of a conversation as no longer in flight.
    fn release(&mut self, id: u32) {
        let edge = self.conversations[id as usize].edge;
        self.in_flight[edge as usize] -= 1;
        self.room.push(edge);
    }

    /// Checks the conversations that may now have a path.
    fn look_at_changes(&mut self, now: Instant) {
        if self.changed.is_empty() {
            return;
        }
        let mut ids: Vec<u32> = Vec::new();
        for (switch, effect) in std::mem::take(&mut self.changed) {
            let waiting = &self.waiting[switch as usize];
            let Effect::Changed { src, dst } = effect else {
                continue;
            };
            // An address that no host has belongs to no conversation.
            match (src.map(number_of), dst.map(number_of)) {
                (Some(None), _) | (_, Some(None)) => {}
                (Some(Some(source)), Some(Some(destination))) => {
                    ids.extend(waiting.get(&pair(source, destination)));
                }
                (source, destination) => {
                    let fits = |key: u64| {
                        source.flatten().is_none_or(|s| s == (key >> 32) as u32)
                            && destination.flatten().is_none_or(|d| d == key as u32)
                    };
                    let waiting = waiting.iter().filter(|(key, _)| fits(**key));
                    ids.extend(waiting.map(|(_, id)| *id));
                }
            }
        }
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            self.probe(now, id);
        }
    }

    /// Whether the tables alone carry a packet of the conversation to its destination.
    pub fn is_carried(&mut self, id: u32) -> bool {
        let conversation = self.conversations[id as usize];
        let net = &self.fabric.net;
        let from = net.place(conversation.source);
        let to = net.place(conversation.destination);
        let packet = self.packet(id);
        self.fabric.trace(from, to, packet, &mut self.visited) == Verdict::Arrives
    }

    fn probe(&mut self, now: Instant, id: u32) {
        let is_carried = self.is_carried(id);
        self.forget_waiting(id);
        if !is_carried {
            let visited = self.visited.clone();
            return self.wait(id, visited);
        }
        let conversation = &mut self.conversations[id as usize];
        conversation.ready = true;
        if conversation.recorded {
            self.record.tally.ready += 1;
            let delay_ns = now.0.saturating_sub(conversation.due_ns);
            self.record.ready.saturating_record(delay_ns);
        }
    }

    fn wait(&mut self, id: u32, switches: Vec<u32>) {
        let pair = self.conversations[id as usize].pair();
        for switch in &switches {
            self.waiting[*switch as usize].insert(pair, id);
        }
        self.waiting_at.insert(id, switches);
    }

    fn forget_waiting(&mut self, id: u32) {
        let pair = self.conversations[id as usize].pair();
        for switch in self.waiting_at.remove(&id).unwrap_or_default() {
            self.waiting[switch as usize].remove(&pair);
        }
    }
}

impl Conversation {
    fn pair(&self) -> u64 {
        pair(self.source, self.destination)
    }
}

/// Returns the time when the packet of this number is due.
fn due_ns(rate: f64, from_ns: u64, number: u64) -> u64 {
    from_ns + (number as f64 * 1e9 / rate) as u64
}

fn pair(source: u32, destination: u32) -> u64 {
    u64::from(source) << 32 | u64::from(destination)
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
