//! One end of a QUIC connection as quinn keeps it, as far as it decides the traffic on the wire:
//! packets and their frames, acknowledgements sent alone, the congestion window, losses and probes.

use std::collections::{BTreeMap, VecDeque};

use super::bytes::{
    QUIC_MTU, STREAM_HEADER_MAX, UDP_FRAME, packet_number, short_header, stream_header, varint,
};
use super::congestion::Window;
use super::setup::Congestion;
use super::{MS, Nanos};

/// The granularity of quinn's timers.
const GRANULARITY: Nanos = MS;
const PACKET_THRESHOLD: u64 = 3;
/// The unit in which an ACK frame counts its delay.
const ACK_DELAY_UNIT: Nanos = 8000;
const ACK_BLOCKS_MAX: usize = 64;
/// The number of newer packets after which a missing packet counts as lost.
const MISSING_FOR_MAX: u64 = 128;

#[derive(Clone, Copy, Debug)]
pub struct QuicSetup {
    /// Bytes of the id in packets to the other end.
    pub connection_id: u32,
    /// The number of packets that may arrive before an acknowledgement is sent alone, and the
    /// number of packets that one packet may overtake.
    pub ack_threshold: u64,
    pub reorder_threshold: u64,
    /// The delay of acknowledgements that both ends announce, or ask for with ACK_FREQUENCY.
    pub ack_delay: Nanos,
    pub congestion: Congestion,
    pub window_floor: f64,
    pub rtt: Nanos,
}

#[derive(Clone, Debug)]
struct Chunk {
    stream: u64,
    offset: u64,
    len: u32,
    is_new: bool,
}

#[derive(Clone, Debug)]
pub struct Packet {
    number: u64,
    bytes: u32,
    /// Stream data; a packet with only an acknowledgement has none.
    chunks: Vec<(u64, u64, u32)>,
    acks: Option<AckRanges>,
    is_eliciting: bool,
    asks_at_once: bool,
}

/// The contents of an ACK frame: ranges, the lowest first, and how long the largest has waited.
#[derive(Clone, Debug)]
struct AckRanges {
    ranges: Vec<(u64, u64)>,
    delay: Nanos,
}

impl Packet {
    pub fn frame_bytes(&self) -> u32 {
        UDP_FRAME + self.bytes
    }

    /// The streams that the packet has data of.
    pub fn streams(&self) -> impl Iterator<Item = u64> {
        self.chunks.iter().map(|chunk| chunk.0)
    }
}

#[derive(Debug)]
struct Sent {
    at: Nanos,
    bytes: u32,
    chunks: Vec<(u64, u64, u32)>,
    largest_told: Option<u64>,
}

#[derive(Debug)]
pub struct Quic {
    setup: QuicSetup,
    offsets: BTreeMap<u64, u64>,
    waiting: VecDeque<Chunk>,
    next_number: u64,
    sent: BTreeMap<u64, Sent>,
    largest_acked: u64,
    in_flight: u64,
    window: Window,
    is_blocked: bool,
    srtt: Nanos,
    rttvar: Nanos,
    rtt_min: Nanos,
    last_eliciting_at: Nanos,
    loss_at: Option<Nanos>,
    probes: u32,
    probe_count: u32,
    acks: Acks,
}

#[derive(Debug, Default)]
struct Acks {
    /// Ranges of received packets to report, without those whose acknowledgement the peer is known
    /// to have received.
    ranges: Vec<(u64, u64)>,
    /// Packets below the largest that have not arrived.
    missing: VecDeque<u64>,
    largest: u64,
    largest_at: Nanos,
    largest_told: u64,
    eliciting: u64,
    first_at: Option<Nanos>,
    at_once: bool,
    /// Packets received with an ECN mark: all of them.
    marked: u64,
}

impl Quic {
    pub fn new(setup: QuicSetup) -> Quic {
        Quic {
            setup,
            offsets: BTreeMap::new(),
            waiting: VecDeque::new(),
            next_number: 1,
            sent: BTreeMap::new(),
            largest_acked: 0,
            in_flight: 0,
            window: Window::new(setup.congestion, setup.window_floor, setup.ack_delay),
            is_blocked: false,
            srtt: setup.rtt,
            rttvar: setup.rtt / 2,
            rtt_min: Nanos::MAX,
            last_eliciting_at: 0,
            loss_at: None,
            probes: 0,
            probe_count: 0,
            acks: Acks::default(),
        }
    }

    /// Writes bytes on a stream. New data that already waits there goes with them in one frame.
    pub fn write(&mut self, stream: u64, bytes: u32) {
        let end = self.offsets.entry(stream).or_default();
        let offset = *end;
        *end += u64::from(bytes);
        let same = |c: &&mut Chunk| c.stream == stream && c.is_new;
        match self.waiting.iter_mut().find(same) {
            Some(chunk) => chunk.len += bytes,
            None => self.waiting.push_back(Chunk {
                stream,
                offset,
                len: bytes,
                is_new: true,
            }),
        }
    }

    /// Writes bytes on a stream that carries nothing else and ends after them.
    pub fn write_once(&mut self, stream: u64, bytes: u32) {
        self.waiting.push_back(Chunk {
            stream,
            offset: 0,
            len: bytes,
            is_new: true,
        });
    }

    pub fn handle(&mut self, now: Nanos, packet: &Packet) {
        if let Some(told) = &packet.acks {
            self.handle_acks(now, told);
        }
        self.acks.marked += 1;
        self.acks.handle(now, packet, self.setup);
    }

    /// Whether nothing waits for the wire or for an acknowledgement.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.sent.values().all(|sent| sent.chunks.is_empty())
    }

    pub fn unsent_bytes(&self) -> u64 {
        self.waiting.iter().map(|chunk| u64::from(chunk.len)).sum()
    }

    pub fn timeout(&self) -> Option<Nanos> {
        let ack_at = self.acks.first_at.map(|at| at + self.setup.ack_delay);
        [
            ack_at.filter(|_| !self.acks.at_once),
            self.loss_or_probe_at(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn loss_or_probe_at(&self) -> Option<Nanos> {
        let probe = || {
            let base = self.srtt + (4 * self.rttvar).max(GRANULARITY) + self.setup.ack_delay;
            self.last_eliciting_at + (base << self.probe_count.min(16))
        };
        self.loss_at.or_else(|| (!self.sent.is_empty()).then(probe))
    }

    pub fn handle_timeout(&mut self, now: Nanos) {
        if self
            .acks
            .first_at
            .is_some_and(|at| at + self.setup.ack_delay <= now)
        {
            self.acks.at_once = true;
        }
        if self.loss_or_probe_at().is_none_or(|at| at > now) {
            return;
        }
        if self.loss_at.is_some() {
            self.find_losses(now);
        } else {
            self.probes = 2;
            self.probe_count += 1;
            self.last_eliciting_at = now;
        }
    }

    pub fn poll_transmit(&mut self, now: Nanos) -> Option<Packet> {
        let is_probe = self.probes > 0;
        if is_probe && self.waiting.is_empty() {
            self.offer_the_oldest_again();
        }
        let has_room = (self.in_flight + u64::from(QUIC_MTU)) as f64 <= self.window.bytes();
        let wants_data = !self.waiting.is_empty();
        let may_send = (wants_data && has_room) || is_probe;
        self.is_blocked = wants_data && !may_send;
        if !may_send && !self.acks.at_once {
            return None;
        }
        let number = self.next_number;
        self.next_number += 1;
        let header = short_header(
            self.setup.connection_id,
            packet_number(number, self.largest_acked),
        );
        let mut room = QUIC_MTU - header;
        let mut acks = self.acks.take(now, may_send);
        let ack_bytes = acks.as_ref().map_or(0, |(_, bytes)| *bytes);
        room -= ack_bytes;
        // IMMEDIATE_ACK if the acknowledgement would be late otherwise; else a PING if the packet
        // has nothing else.
        let asks_at_once = is_probe && self.setup.ack_threshold > 1;
        let mut payload = ack_bytes + u32::from(asks_at_once);
        let mut chunks = Vec::new();
        if may_send {
            self.probes = self.probes.saturating_sub(1);
            payload += self.fill(room, &mut chunks);
            if chunks.is_empty() && !asks_at_once {
                payload += 1;
            }
        }
        let bytes = header + payload;
        let acks = acks.take().map(|(told, _)| told);
        if may_send {
            self.in_flight += u64::from(bytes);
            self.last_eliciting_at = now;
            let largest_told = acks.as_ref().and_then(|told| told.ranges.last());
            let largest_told = largest_told.map(|range| range.1);
            self.sent.insert(
                number,
                Sent {
                    at: now,
                    bytes,
                    chunks: chunks.clone(),
                    largest_told,
                },
            );
        }
        Some(Packet {
            number,
            bytes,
            chunks,
            acks,
            is_eliciting: may_send,
            asks_at_once,
        })
    }

    /// Adds STREAM frames of the waiting data, one stream after the other.
    fn fill(&mut self, mut room: u32, chunks: &mut Vec<(u64, u64, u32)>) -> u32 {
        let mut filled = 0;
        while room > STREAM_HEADER_MAX {
            let Some(chunk) = self.waiting.front_mut() else {
                break;
            };
            // quinn sets eight bytes aside for the length, or writes none.
            let bare = stream_header(chunk.stream, chunk.offset, 0, false);
            let has_length = chunk.len < room - bare;
            let most = room - bare - if has_length { 8 } else { 0 };
            let len = chunk.len.min(most);
            let bytes = stream_header(chunk.stream, chunk.offset, len, has_length) + len;
            chunks.push((chunk.stream, chunk.offset, len));
            (filled, room) = (filled + bytes, room.saturating_sub(bytes));
            if len == chunk.len {
                self.waiting.pop_front();
            } else {
                chunk.offset += u64::from(len);
                chunk.len -= len;
            }
        }
        filled
    }

    fn offer_the_oldest_again(&mut self) {
        let oldest = self.sent.values_mut().find(|sent| !sent.chunks.is_empty());
        let chunks = oldest.map(|sent| std::mem::take(&mut sent.chunks));
        self.again(chunks.unwrap_or_default());
    }

    fn again(&mut self, chunks: Vec<(u64, u64, u32)>) {
        for (stream, offset, len) in chunks {
            self.waiting.push_back(Chunk {
                stream,
                offset,
                len,
                is_new: false,
            });
        }
    }

    fn handle_acks(&mut self, now: Nanos, told: &AckRanges) {
        let ranges = &told.ranges;
        let largest = ranges.last().map_or(0, |range| range.1);
        let known = |number: &u64| ranges.iter().any(|r| r.0 <= *number && *number <= r.1);
        let acked: Vec<u64> = self.sent.keys().copied().filter(known).collect();
        self.largest_acked = self.largest_acked.max(largest);
        for number in &acked {
            let Some(sent) = self.sent.remove(number) else {
                continue;
            };
            self.in_flight -= u64::from(sent.bytes);
            if *number == largest {
                self.handle_rtt(now - sent.at, told.delay);
            }
            if let Some(told) = sent.largest_told {
                self.acks.forget(told);
            }
            let (window, is_blocked) = (&mut self.window, self.is_blocked);
            window.handle_ack(now, sent.at, sent.bytes, is_blocked, self.srtt);
        }
        if !acked.is_empty() {
            self.window.handle_acks_end(now, self.srtt);
            self.probe_count = 0;
            self.find_losses(now);
        }
    }

    /// RFC 9002, 5.3: subtracts the peer's delay, unless the result would be less than the minimum
    /// so far.
    fn handle_rtt(&mut self, rtt: Nanos, delay: Nanos) {
        self.window.handle_rtt(rtt);
        self.rtt_min = self.rtt_min.min(rtt);
        let delay = delay.min(self.setup.ack_delay);
        let rtt = if self.rtt_min + delay <= rtt {
            rtt - delay
        } else {
            rtt
        };
        self.rttvar = (3 * self.rttvar + self.srtt.abs_diff(rtt)) / 4;
        self.srtt = (7 * self.srtt + rtt) / 8;
    }

    fn find_losses(&mut self, now: Nanos) {
        self.loss_at = None;
        let patience = (self.srtt * 9 / 8).max(GRANULARITY);
        let mut lost = Vec::new();
        for (&number, sent) in self.sent.range(..self.largest_acked) {
            let is_overtaken = self.largest_acked >= number + PACKET_THRESHOLD;
            if is_overtaken || sent.at + patience <= now {
                lost.push(number);
            } else {
                let due = sent.at + patience;
                self.loss_at = Some(self.loss_at.map_or(due, |at| at.min(due)));
            }
        }
        for number in lost {
            let Some(sent) = self.sent.remove(&number) else {
                continue;
            };
            self.in_flight -= u64::from(sent.bytes);
            self.window.handle_loss(now, sent.at);
            self.again(sent.chunks);
        }
    }
}

impl Acks {
    fn handle(&mut self, now: Nanos, packet: &Packet, setup: QuicSetup) {
        let number = packet.number;
        let is_gap = number != self.largest + 1;
        self.insert(number);
        self.missing.retain(|missing| *missing != number);
        if number > self.largest {
            self.missing.extend(self.largest + 1..number);
            while self
                .missing
                .front()
                .is_some_and(|n| n + MISSING_FOR_MAX < number)
            {
                self.missing.pop_front();
            }
            (self.largest, self.largest_at) = (number, now);
        }
        if !packet.is_eliciting {
            return;
        }
        self.eliciting += 1;
        self.at_once |= self.eliciting > setup.ack_threshold || packet.asks_at_once;
        self.at_once |= match setup.reorder_threshold {
            1 => is_gap,
            threshold => self.is_overdue(threshold),
        };
        if self.first_at.is_none() {
            self.first_at = Some(now);
        }
    }

    /// Whether an acknowledgement would let the peer see a loss that it does not know of
    /// (draft-ietf-quic-ack-frequency, 6.1).
    fn is_overdue(&self, threshold: u64) -> bool {
        if threshold > self.largest_told {
            return false;
        }
        let from = self.largest_told - threshold + 1;
        let missing = self.missing.iter().find(|number| **number >= from);
        missing.is_some_and(|number| self.largest - number >= threshold)
    }

    fn insert(&mut self, number: u64) {
        let at = self.ranges.partition_point(|r| r.1 + 1 < number);
        match self.ranges.get_mut(at) {
            Some(range) if range.0 <= number + 1 => {
                range.0 = range.0.min(number);
                range.1 = range.1.max(number);
            }
            _ => self.ranges.insert(at, (number, number)),
        }
        if at + 1 < self.ranges.len() && self.ranges[at].1 + 1 == self.ranges[at + 1].0 {
            self.ranges[at].1 = self.ranges[at + 1].1;
            self.ranges.remove(at + 1);
        }
        if self.ranges.len() > ACK_BLOCKS_MAX {
            self.ranges.remove(0);
        }
    }

    /// Forgets ranges up to `told`: the peer knows that these packets have been acknowledged.
    fn forget(&mut self, told: u64) {
        self.ranges.retain_mut(|range| {
            range.0 = range.0.max(told + 1);
            range.0 <= range.1
        });
    }

    /// Returns the ACK frame and its length, if the frame is due or a packet is sent anyway.
    fn take(&mut self, now: Nanos, is_company: bool) -> Option<(AckRanges, u32)> {
        let is_due = self.at_once || is_company && self.eliciting > 0;
        if !is_due || self.ranges.is_empty() {
            return None;
        }
        (self.at_once, self.eliciting, self.first_at) = (false, 0, None);
        self.largest_told = self.largest;
        let delay = now - self.largest_at;
        let first = self.ranges.last().map_or(0, |r| r.1 - r.0);
        let gaps: u32 = self
            .ranges
            .windows(2)
            .map(|pair| varint(pair[1].0 - pair[0].1 - 2) + varint(pair[0].1 - pair[0].0))
            .sum();
        // With the three counts of ECN marks, of which two are zero.
        let bytes = 1
            + varint(self.largest)
            + varint(delay / ACK_DELAY_UNIT)
            + 1
            + varint(first)
            + gaps
            + varint(self.marked)
            + 2;
        let ranges = self.ranges.clone();
        Some((AckRanges { ranges, delay }, bytes))
    }
}
