//! One end of a TCP connection as Linux 6 keeps it, as far as it decides the traffic on the wire:
//! segments, Nagle's algorithm, the windows, delayed and duplicate acknowledgements, RACK, tail
//! loss probes and timeouts. Names are the kernel's.

use std::collections::VecDeque;

use super::bytes::{MSS, TCP_FRAME, TLS_RECORD, TLS_RECORD_MAX, sack};
use super::{MS, Nanos};

/// The shortest wait of a delayed acknowledgement (`TCP_ATO_MIN`, `TCP_DELACK_MIN`).
const ATO_MIN: Nanos = 40 * MS;
const RTO_MAX: Nanos = 120_000 * MS;
/// Two jiffies and a half at 250 Hz: the least that a reordering timer waits.
const REORDER_TIMER_MIN: Nanos = 2 * MS;
/// Segments acknowledged at once at the start and after a long gap (`TCP_MAX_QUICKACKS`).
const QUICK_ACKS: u32 = 16;
/// A receiver's full segment until it has seen a longer one (`TCP_MSS_DEFAULT`).
const RECEIVE_MSS_FIRST: u32 = 536;
const CWND_FIRST: f64 = 10.0;
const CWND_MIN: f64 = 2.0;
/// CUBIC keeps this share of the window at a loss, and grows like Reno at this pace after it.
const BETA: f64 = 0.7;
const FRIENDLY: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

#[derive(Clone, Debug)]
pub struct Segment {
    seq: u64,
    pub len: u32,
    ack: u64,
    /// Ranges that the receiver has beyond `ack`.
    sacked: Vec<(u64, u64)>,
}

impl Segment {
    pub fn frame_bytes(&self) -> u32 {
        TCP_FRAME + sack(self.sacked.len()) + self.len
    }
}

#[derive(Clone, Debug)]
struct InFlight {
    seq: u64,
    len: u32,
    sent_at: Nanos,
    is_retransmitted: bool,
    is_sacked: bool,
    is_lost: bool,
}

#[derive(Debug)]
pub struct Tcp {
    is_tls: bool,
    nodelay: bool,
    rto_min: Nanos,
    sender: Sender,
    receiver: Receiver,
}

#[derive(Debug)]
struct Sender {
    unsent: u64,
    next: u64,
    in_flight: VecDeque<InFlight>,
    cwnd: f64,
    ssthresh: f64,
    /// Whether the window limited the bytes in flight since the last acknowledgement.
    is_limited: bool,
    phase: Phase,
    srtt: Nanos,
    rttvar: Nanos,
    rtt_min: Nanos,
    backoff: u32,
    /// Sending time of the newest segment that is known to have arrived.
    delivered_sent_at: Nanos,
    reorder_at: Option<Nanos>,
    /// Time of the next timeout, or of the probe before the first one.
    rto_at: Option<Nanos>,
    is_probed: bool,
    probe: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Open,
    /// Proportional rate reduction (RFC 6937): the data that arrives decides how much may be sent.
    Recovery {
        until: u64,
        window_before: f64,
        delivered: f64,
        out: f64,
    },
    /// The state after a timeout.
    Loss {
        until: u64,
    },
}

#[derive(Debug)]
struct Receiver {
    next: u64,
    /// The `rcv_nxt` of the last acknowledgement.
    told: u64,
    beyond: Vec<(u64, u64)>,
    mss: u32,
    is_pending: bool,
    has_unread: bool,
    pushed: u32,
    ack_now: bool,
    quick: u32,
    is_ping_pong: bool,
    ato: Nanos,
    received_at: Nanos,
    delayed_at: Option<Nanos>,
}

impl Tcp {
    pub fn new(is_tls: bool, nodelay: bool, rto_min: Nanos, rtt: Nanos) -> Tcp {
        Tcp {
            is_tls,
            nodelay,
            rto_min,
            sender: Sender {
                unsent: 0,
                next: 0,
                in_flight: VecDeque::new(),
                cwnd: CWND_FIRST,
                ssthresh: f64::INFINITY,
                is_limited: false,
                phase: Phase::Open,
                srtt: rtt,
                rttvar: rtt / 2,
                rtt_min: rtt,
                backoff: 0,
                delivered_sent_at: 0,
                reorder_at: None,
                rto_at: None,
                is_probed: false,
                probe: false,
            },
            receiver: Receiver {
                next: 0,
                told: 0,
                beyond: Vec::new(),
                mss: RECEIVE_MSS_FIRST,
                is_pending: false,
                has_unread: false,
                pushed: 0,
                ack_now: false,
                quick: QUICK_ACKS,
                is_ping_pong: false,
                ato: ATO_MIN,
                received_at: 0,
                delayed_at: None,
            },
        }
    }

    /// Handles one write of the application: with TLS a record, or as many records as the write
    /// needs.
    pub fn write(&mut self, bytes: u32) {
        let records = bytes.div_ceil(TLS_RECORD_MAX);
        let added = if self.is_tls { records * TLS_RECORD } else { 0 };
        self.sender.unsent += u64::from(bytes + added);
    }

    /// Handles a received segment, in the interrupt. Returns `true` when the application has
    /// something to read.
    pub fn handle(&mut self, now: Nanos, segment: &Segment) -> bool {
        self.sender.handle_ack(now, segment, self.rto_min);
        if segment.len == 0 {
            return false;
        }
        let rto = self.sender.rto(self.rto_min);
        self.receiver
            .handle_data(now, segment, rto, self.sender.srtt)
    }

    /// Handles a read of all data by the application (`tcp_cleanup_rbuf`).
    pub fn read(&mut self) {
        let receiver = &mut self.receiver;
        receiver.has_unread = false;
        let is_time = receiver.pushed >= 2 || receiver.pushed == 1 && !receiver.is_ping_pong;
        if receiver.is_pending && (is_time || receiver.is_a_segment_untold()) {
            receiver.ack_now = true;
        }
    }

    /// Whether nothing waits for the wire or for an acknowledgement.
    pub fn is_idle(&self) -> bool {
        self.sender.unsent == 0 && self.sender.in_flight.is_empty()
    }

    pub fn unsent_bytes(&self) -> u64 {
        self.sender.unsent
    }

    pub fn timeout(&self) -> Option<Nanos> {
        let sender = &self.sender;
        let all = [sender.rto_at, sender.reorder_at, self.receiver.delayed_at];
        all.into_iter().flatten().min()
    }

    pub fn handle_timeout(&mut self, now: Nanos) {
        self.receiver
            .handle_timeout(now, self.sender.rto(self.rto_min));
        self.sender.handle_timeout(now, self.rto_min);
    }

    /// The next segment to send now.
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<Segment> {
        let data = self.sender.poll(now, self.nodelay, self.rto_min);
        if data.is_some() && now - self.receiver.received_at < self.receiver.ato {
            self.receiver.is_ping_pong |= self.receiver.received_at > 0;
        }
        if data.is_none() && !self.receiver.ack_now {
            return None;
        }
        let (seq, len) = data.unwrap_or((self.sender.next, 0));
        self.receiver.told(len == 0);
        Some(Segment {
            seq,
            len,
            ack: self.receiver.next,
            sacked: self.receiver.beyond.clone(),
        })
    }
}

impl Sender {
    fn rto(&self, rto_min: Nanos) -> Nanos {
        ((self.srtt + (4 * self.rttvar).max(rto_min)) << self.backoff.min(9)).min(RTO_MAX)
    }

    fn outstanding(&self) -> usize {
        let flying = |s: &&InFlight| !s.is_sacked && !s.is_lost;
        self.in_flight.iter().filter(flying).count()
    }

    /// Sequence number and length of the segment that may be sent now.
    fn poll(&mut self, now: Nanos, nodelay: bool, rto_min: Nanos) -> Option<(u64, u32)> {
        let has_room = (self.outstanding() as f64) < self.cwnd.floor();
        let first_lost = self.in_flight.iter().position(|s| s.is_lost);
        if let Some(at) = first_lost.filter(|_| has_room) {
            return Some(self.retransmit(at, now, rto_min));
        }
        // A probe sends new data, whatever holds that data back.
        let is_probe = std::mem::take(&mut self.probe);
        if is_probe && self.unsent == 0 {
            let last = self.in_flight.iter().rposition(|s| !s.is_sacked);
            return last.map(|at| self.retransmit(at, now, rto_min));
        }
        if self.unsent == 0 {
            return None;
        }
        if !has_room && !is_probe {
            self.is_limited = true;
            return None;
        }
        if self.waits_for_more(nodelay) && !is_probe {
            return None;
        }
        let len = self.unsent.min(u64::from(MSS)) as u32;
        let seq = self.next;
        self.next += u64::from(len);
        self.unsent -= u64::from(len);
        self.in_flight.push_back(InFlight {
            seq,
            len,
            sent_at: now,
            is_retransmitted: false,
            is_sacked: false,
            is_lost: false,
        });
        self.is_limited |= self.outstanding() as f64 >= self.cwnd.floor();
        self.went(now, rto_min);
        Some((seq, len))
    }

    /// Nagle's algorithm: a short segment does not follow unacknowledged data.
    fn waits_for_more(&self, nodelay: bool) -> bool {
        self.unsent < u64::from(MSS) && !nodelay && !self.in_flight.is_empty()
    }

    /// Retransmits a segment, and merges short segments that follow into it.
    fn retransmit(&mut self, at: usize, now: Nanos, rto_min: Nanos) -> (u64, u32) {
        while let Some(next) = self.in_flight.get(at + 1) {
            if next.is_sacked || self.in_flight[at].len + next.len > MSS {
                break;
            }
            self.in_flight[at].len += next.len;
            self.in_flight.remove(at + 1);
        }
        let segment = &mut self.in_flight[at];
        segment.is_lost = false;
        segment.is_retransmitted = true;
        segment.sent_at = now;
        let sent = (segment.seq, segment.len);
        self.went(now, rto_min);
        sent
    }

    fn went(&mut self, now: Nanos, rto_min: Nanos) {
        if let Phase::Recovery { out, .. } = &mut self.phase {
            *out += 1.0;
        }
        self.arm(now, rto_min);
    }

    /// Arms a probe after two round trips if more than one segment is out, otherwise a timeout.
    fn arm(&mut self, now: Nanos, rto_min: Nanos) {
        let rto = self.rto(rto_min);
        let probe = 2 * self.srtt
            + if self.in_flight.len() == 1 {
                rto_min
            } else {
                2 * MS
            };
        let is_calm = self.phase == Phase::Open && !self.is_probed;
        self.rto_at = match self.in_flight.is_empty() {
            true => None,
            false => Some(now + if is_calm { probe.min(rto) } else { rto }),
        };
    }

    fn handle_ack(&mut self, now: Nanos, segment: &Segment, rto_min: Nanos) {
        let (mut acked, mut delivered) = (0, 0);
        let mut sample = None;
        while let Some(first) = self.in_flight.front() {
            if first.seq + u64::from(first.len) > segment.ack {
                break;
            }
            if !first.is_retransmitted {
                sample = Some(now - first.sent_at);
            }
            self.delivered_sent_at = self.delivered_sent_at.max(first.sent_at);
            delivered += u32::from(!first.is_sacked);
            self.in_flight.pop_front();
            acked += 1;
        }
        for &(start, end) in &segment.sacked {
            for s in &mut self.in_flight {
                let is_within = start <= s.seq && s.seq + u64::from(s.len) <= end;
                if is_within && !s.is_sacked {
                    s.is_sacked = true;
                    s.is_lost = false;
                    delivered += 1;
                    self.delivered_sent_at = self.delivered_sent_at.max(s.sent_at);
                }
            }
        }
        if let Some(rtt) = sample {
            self.rttvar = (3 * self.rttvar + self.srtt.abs_diff(rtt)) / 4;
            self.srtt = (7 * self.srtt + rtt) / 8;
            self.rtt_min = self.rtt_min.min(rtt);
        }
        if acked + delivered == 0 {
            return;
        }
        if acked > 0 {
            (self.backoff, self.is_probed) = (0, false);
        }
        match self.phase {
            Phase::Recovery { until, .. } if segment.ack >= until => {
                (self.phase, self.cwnd) = (Phase::Open, self.ssthresh);
            }
            Phase::Loss { until } if segment.ack >= until => self.phase = Phase::Open,
            _ => {}
        }
        self.grow(acked);
        let is_worse = self.find_losses(now);
        self.reduce_in_proportion(delivered, acked > 0 && !is_worse);
        self.arm(now, rto_min);
    }

    fn reduce_in_proportion(&mut self, news: u32, is_better: bool) {
        let flying = self.outstanding() as f64;
        let Phase::Recovery {
            window_before,
            delivered,
            out,
            ..
        } = &mut self.phase
        else {
            return;
        };
        *delivered += f64::from(news);
        let spare = self.ssthresh - flying;
        let send = match spare < 0.0 {
            true => (self.ssthresh * *delivered / *window_before).ceil() - *out,
            false => {
                let send = (*delivered - *out).max(f64::from(news));
                spare.min(send + f64::from(u8::from(is_better)))
            }
        };
        let least = if *out == 0.0 { 1.0 } else { 0.0 };
        self.cwnd = flying + send.max(least);
    }

    fn grow(&mut self, acked: u32) {
        let is_limited = std::mem::take(&mut self.is_limited);
        if matches!(self.phase, Phase::Recovery { .. }) {
            return;
        }
        let slow_start = self.cwnd < self.ssthresh;
        let out = self.in_flight.len() as f64 + f64::from(acked);
        match slow_start {
            true if self.cwnd < 2.0 * out => self.cwnd += f64::from(acked),
            false if is_limited && self.phase == Phase::Open => {
                self.cwnd += FRIENDLY * f64::from(acked) / self.cwnd;
            }
            _ => {}
        }
    }

    /// RACK: a segment sent before one that has arrived is lost, or may still arrive for a quarter
    /// of a round trip.
    fn find_losses(&mut self, now: Nanos) -> bool {
        self.reorder_at = None;
        let sacked = self.in_flight.iter().filter(|s| s.is_sacked).count();
        let patience = match self.phase != Phase::Open || sacked >= 3 {
            true => 0,
            false => (self.rtt_min / 4).max(REORDER_TIMER_MIN),
        };
        let (newest, srtt) = (self.delivered_sent_at, self.srtt);
        let (mut lost, mut next_at) = (false, None::<Nanos>);
        for s in &mut self.in_flight {
            if s.is_sacked || s.is_lost || s.sent_at >= newest {
                continue;
            }
            let due = s.sent_at + srtt + patience;
            if patience == 0 || due <= now {
                s.is_lost = true;
                lost = true;
            } else {
                next_at = Some(next_at.map_or(due, |at| at.min(due)));
            }
        }
        self.reorder_at = next_at;
        if lost && self.phase == Phase::Open {
            self.reduce();
            self.phase = Phase::Recovery {
                until: self.next,
                window_before: self.cwnd,
                delivered: 0.0,
                out: 0.0,
            };
            self.cwnd = self.outstanding() as f64 + 1.0;
        }
        lost
    }

    fn reduce(&mut self) {
        self.ssthresh = (self.cwnd * BETA).floor().max(CWND_MIN);
    }

    fn handle_timeout(&mut self, now: Nanos, rto_min: Nanos) {
        if self.reorder_at.is_some_and(|at| at <= now) {
            self.find_losses(now);
        }
        if self.rto_at.is_none_or(|at| at > now) {
            return;
        }
        self.rto_at = None;
        if self.phase == Phase::Open && !self.is_probed {
            (self.is_probed, self.probe) = (true, true);
            self.rto_at = Some(now + self.rto(rto_min));
            return;
        }
        if !matches!(self.phase, Phase::Loss { .. }) {
            self.reduce();
        }
        self.cwnd = 1.0;
        self.backoff += 1;
        self.phase = Phase::Loss { until: self.next };
        for s in &mut self.in_flight {
            s.is_lost = !s.is_sacked;
        }
    }
}

impl Receiver {
    fn is_a_segment_untold(&self) -> bool {
        self.next - self.told > u64::from(self.mss)
    }

    fn handle_data(&mut self, now: Nanos, segment: &Segment, rto: Nanos, srtt: Nanos) -> bool {
        self.is_pending = true;
        let end = segment.seq + u64::from(segment.len);
        if end <= self.next {
            // A duplicate: acknowledged at once, with the duplicated range.
            self.ack_now = true;
            return false;
        }
        let is_full = segment.len >= self.mss;
        if is_full {
            self.mss = segment.len.min(MSS);
        } else {
            self.pushed += 1;
        }
        self.measure_gap(now, rto);
        if segment.seq > self.next {
            insert(&mut self.beyond, segment.seq, end);
            self.ack_now = true;
            return false;
        }
        self.next = end;
        if !self.beyond.is_empty() {
            while let Some(&(start, end)) = self.beyond.first() {
                if start > self.next {
                    break;
                }
                self.next = self.next.max(end);
                self.beyond.remove(0);
            }
            self.ack_now = true;
        }
        let is_quick = self.quick > 0 && !self.is_ping_pong;
        let is_time = self.is_a_segment_untold() && !self.has_unread;
        self.has_unread = true;
        if is_quick || is_time || !self.beyond.is_empty() {
            self.ack_now = true;
        } else {
            self.delay(now, srtt);
        }
        true
    }

    fn measure_gap(&mut self, now: Nanos, rto: Nanos) {
        let gap = now - self.received_at;
        if gap <= ATO_MIN / 2 {
            self.ato = self.ato / 2 + ATO_MIN / 2;
        } else if gap < self.ato {
            self.ato = (self.ato / 2 + gap).min(rto);
        } else if gap > rto {
            self.quick = QUICK_ACKS;
        }
        self.received_at = now;
    }

    fn delay(&mut self, now: Nanos, srtt: Nanos) {
        let ato = self.ato.min(srtt.max(ATO_MIN));
        match self.delayed_at {
            // About to be acknowledged anyway.
            Some(at) if at <= now + ato / 4 => self.ack_now = true,
            Some(at) => self.delayed_at = Some(at.min(now + ato)),
            None => self.delayed_at = Some(now + ato),
        }
    }

    fn handle_timeout(&mut self, now: Nanos, rto: Nanos) {
        if self.delayed_at.is_none_or(|at| at > now) {
            return;
        }
        self.delayed_at = None;
        if self.is_ping_pong {
            (self.is_ping_pong, self.ato) = (false, ATO_MIN);
        } else {
            self.ato = (2 * self.ato).min(rto);
        }
        self.ack_now |= self.is_pending;
    }

    fn told(&mut self, is_bare: bool) {
        self.told = self.next;
        (self.is_pending, self.ack_now, self.pushed) = (false, false, 0);
        self.delayed_at = None;
        if is_bare || self.quick > 0 {
            self.quick = self.quick.saturating_sub(1);
        }
    }
}

/// Adds a range. On the wire the newest range comes first; here ranges are in order, and touching
/// ones are merged.
fn insert(ranges: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    ranges.push((start, end));
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for &(start, end) in ranges.iter() {
        match merged.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    *ranges = merged;
}
