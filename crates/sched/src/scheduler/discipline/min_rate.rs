//! Guaranteed rates: queues within their rates go first, by priority; the rest of the capacity goes
//! by priority.
//!
//! A queue without a rate of its own could starve below a flood, so it sends at least one message
//! per deadline.

use clock::{Duration, Instant};

use super::{Discipline, Head, by_queue, queues_in};
use crate::policy::{QUEUES_MAX, Scheduling};

/// The burst that a queue may send beyond its rate: two Ethernet packets.
const DEPTH_BYTES: i64 = 2 * 1500;

/// Tokens are counted in bytes times nanoseconds per second, so that no rate rounds.
const TOKENS_PER_BYTE: i64 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct MinRate {
    /// Bytes per second.
    rate: [Option<u64>; QUEUES_MAX],
    deadline: [Duration; QUEUES_MAX],
    tokens: [i64; QUEUES_MAX],
    filled: [Instant; QUEUES_MAX],
    served: [Instant; QUEUES_MAX],
}

impl MinRate {
    pub(super) fn new(scheduling: &Scheduling) -> MinRate {
        MinRate {
            rate: by_queue(scheduling, |q| q.min_rate),
            deadline: by_queue(scheduling, |q| q.deadline),
            tokens: [DEPTH_BYTES * TOKENS_PER_BYTE; QUEUES_MAX],
            filled: [Instant::START; QUEUES_MAX],
            served: [Instant::START; QUEUES_MAX],
        }
    }

    fn fill(&mut self, now: Instant, queue: usize) {
        let nanos = now.since(self.filled[queue]).as_nanos() as u64;
        let rate = self.rate[queue].unwrap_or(0);
        let more = i64::try_from(nanos.saturating_mul(rate)).unwrap_or(i64::MAX);
        let full = DEPTH_BYTES * TOKENS_PER_BYTE;
        self.tokens[queue] = self.tokens[queue].saturating_add(more).min(full);
        self.filled[queue] = now;
    }

    fn is_due(&self, now: Instant, queue: usize, head: Head) -> bool {
        let waits_since = head.since.max(self.served[queue]);
        self.rate[queue].is_none() && now.since(waits_since) >= self.deadline[queue]
    }
}

impl Discipline for MinRate {
    fn backlogged(&mut self, _: usize) {}

    fn idle(&mut self, _: usize) {}

    fn pick(&mut self, now: Instant, backlogged: u16, head: &dyn Fn(usize) -> Head) -> usize {
        for queue in queues_in(backlogged) {
            self.fill(now, queue);
            let is_within = self.rate[queue].is_some() && self.tokens[queue] > 0;
            if is_within || self.is_due(now, queue, head(queue)) {
                return queue;
            }
        }
        backlogged.trailing_zeros() as usize
    }

    fn served(&mut self, now: Instant, queue: usize, bytes: u32) {
        self.served[queue] = now;
        // Bytes beyond the rate are not charged to the queue: no other queue had a claim to them.
        let cost = i64::from(bytes) * TOKENS_PER_BYTE;
        if self.tokens[queue] > 0 {
            self.tokens[queue] -= cost;
        }
    }
}
