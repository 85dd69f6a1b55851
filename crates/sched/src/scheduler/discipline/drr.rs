//! Deficit round robin by weight.
//!
//! In its turn a queue may send its quantum. Its last message may exceed the quantum; the excess is
//! deducted from its next turn. So the length of a message need not be known beforehand, and a
//! chain sent at a queue's expense is charged at its real length. A queue that has been idle for a
//! round goes first when it has a message again, for one quantum: rare messages hardly wait, and a
//! queue that returns at once has not been idle.

use clock::Instant;

use super::{Discipline, Head, by_queue};
use crate::policy::{QUEUES_MAX, Scheduling};

/// Bytes per turn and weight: about one packet-in without much of its packet. Smaller turns mix the
/// queues more finely, and longer messages are averaged over turns.
const QUANTUM_BYTES: i64 = 256;

#[derive(Debug)]
pub(super) struct Drr {
    quantum: [i64; QUEUES_MAX],
    /// The bytes that a queue may still send in its turn; negative when it owes some.
    deficit: [i64; QUEUES_MAX],
    /// Queues in turn.
    ring: [u8; QUEUES_MAX],
    ring_len: usize,
    /// Bytes sent by all queues, and that number when a queue became idle.
    served: u64,
    idle_since: [u64; QUEUES_MAX],
}

impl Drr {
    pub(super) fn new(scheduling: &Scheduling) -> Drr {
        let quantum = by_queue(scheduling, |q| QUANTUM_BYTES * i64::from(q.weight.max(1)));
        Drr {
            quantum,
            deficit: quantum,
            ring: [0; QUEUES_MAX],
            ring_len: 0,
            served: 0,
            idle_since: [0; QUEUES_MAX],
        }
    }

    fn insert(&mut self, at: usize, queue: usize) {
        self.ring.copy_within(at..self.ring_len, at + 1);
        self.ring[at] = queue as u8;
        self.ring_len += 1;
    }

    fn remove(&mut self, at: usize) {
        self.ring.copy_within(at + 1..self.ring_len, at);
        self.ring_len -= 1;
    }
}

impl Discipline for Drr {
    fn backlogged(&mut self, queue: usize) {
        let others = &self.ring[..self.ring_len];
        let round: i64 = others.iter().map(|q| self.quantum[usize::from(*q)]).sum();
        if (self.served - self.idle_since[queue]) as i64 >= round {
            self.deficit[queue] = self.quantum[queue];
        }
        match self.deficit[queue] > 0 {
            true => self.insert(0, queue),
            false => self.insert(self.ring_len, queue),
        }
    }

    fn idle(&mut self, queue: usize) {
        self.idle_since[queue] = self.served;
        let others = &self.ring[..self.ring_len];
        if let Some(at) = others.iter().position(|q| usize::from(*q) == queue) {
            self.remove(at);
        }
    }

    fn pick(&mut self, _: Instant, backlogged: u16, _: &dyn Fn(usize) -> Head) -> usize {
        loop {
            // A queue that is in the ring but held back keeps its place.
            let ring = &mut self.ring[..self.ring_len];
            let at = ring.iter().position(|q| backlogged >> q & 1 == 1);
            let at = at.expect("who is backlogged is in the ring");
            let queue = usize::from(ring[at]);
            if self.deficit[queue] > 0 {
                return queue;
            }
            // The queue's turn starts, or starts again: after a long message it misses a few.
            self.deficit[queue] += self.quantum[queue];
            if self.deficit[queue] <= 0 {
                ring[at..].rotate_left(1);
            }
        }
    }

    fn served(&mut self, _: Instant, queue: usize, bytes: u32) {
        self.served += u64::from(bytes);
        self.deficit[queue] -= i64::from(bytes);
        let ring = &mut self.ring[..self.ring_len];
        let at = ring.iter().position(|q| usize::from(*q) == queue);
        if let Some(at) = at.filter(|_| self.deficit[queue] <= 0) {
            ring[at..].rotate_left(1);
        }
    }
}
