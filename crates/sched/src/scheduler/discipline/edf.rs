//! Strict priority with a guard: messages that have waited past their queue's deadline go first,
//! the earliest deadline before others.
//!
//! The guard takes at most every second message while something more urgent waits. Otherwise a
//! standing backlog of old messages, all past their deadline, would go before every fresh one.

use clock::{Duration, Instant};

use super::{Discipline, Head, by_queue, queues_in};
use crate::policy::{QUEUES_MAX, Scheduling};

#[derive(Debug)]
pub(super) struct Edf {
    deadline: [Duration; QUEUES_MAX],
    /// Whether the last message went before its turn.
    was_guard: bool,
}

impl Edf {
    pub(super) fn new(scheduling: &Scheduling) -> Edf {
        Edf {
            deadline: by_queue(scheduling, |q| q.deadline),
            was_guard: false,
        }
    }
}

impl Discipline for Edf {
    fn backlogged(&mut self, _: usize) {}

    fn idle(&mut self, _: usize) {}

    fn pick(&mut self, now: Instant, backlogged: u16, head: &dyn Fn(usize) -> Head) -> usize {
        let urgent = backlogged.trailing_zeros() as usize;
        if self.was_guard {
            self.was_guard = false;
            return urgent;
        }
        let due = queues_in(backlogged)
            .map(|q| (head(q).since + self.deadline[q], q))
            .filter(|(due, _)| *due <= now)
            .min();
        let queue = due.map_or(urgent, |(_, queue)| queue);
        self.was_guard = queue != urgent;
        queue
    }

    fn served(&mut self, _: Instant, _: usize, _: u32) {}
}
