//! Self-clocked fair queueing: weighted fair shares, message by message.
//!
//! A queue's first message would end at its start plus its length divided by the queue's weight.
//! The earliest end goes first, and the clock stands at the end of the last message sent. A queue
//! that becomes backlogged starts at the clock, so an idle queue saves nothing up.

use clock::Instant;

use super::{Discipline, Head, by_queue, queues_in};
use crate::policy::{QUEUES_MAX, Scheduling};

/// Virtual time of one byte at weight 1. A weight has 16 bits, so no length rounds to zero.
const TICKS_PER_BYTE: u64 = 1 << 16;

#[derive(Debug)]
pub(super) struct Wfq {
    weight: [u64; QUEUES_MAX],
    /// When the first message of a queue starts, in virtual time.
    start: [u64; QUEUES_MAX],
    clock: u64,
}

impl Wfq {
    pub(super) fn new(scheduling: &Scheduling) -> Wfq {
        Wfq {
            weight: by_queue(scheduling, |q| u64::from(q.weight.max(1))),
            start: [0; QUEUES_MAX],
            clock: 0,
        }
    }

    fn end(&self, queue: usize, bytes: u32) -> u64 {
        self.start[queue] + u64::from(bytes) * TICKS_PER_BYTE / self.weight[queue]
    }
}

impl Discipline for Wfq {
    fn backlogged(&mut self, queue: usize) {
        self.start[queue] = self.start[queue].max(self.clock);
    }

    fn idle(&mut self, _: usize) {}

    fn pick(&mut self, _: Instant, backlogged: u16, head: &dyn Fn(usize) -> Head) -> usize {
        let queues = queues_in(backlogged);
        let earliest = queues.min_by_key(|q| self.end(*q, head(*q).bytes));
        earliest.expect("asked only while something waits")
    }

    fn served(&mut self, _: Instant, queue: usize, bytes: u32) {
        let end = self.end(queue, bytes);
        self.start[queue] = end;
        self.clock = self.clock.max(end);
    }
}
