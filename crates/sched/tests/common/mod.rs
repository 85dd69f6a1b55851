//! A line under virtual time, with a scheduler before it.

#![allow(dead_code, reason = "each test file uses a part")]

use bytes::Bytes;
use clock::{Duration, Instant};
use openflow::Frame;
use sched::policy::{Algorithm, QueueConfig, Scheduling};
use sched::{Binding, Direction, Droppable, Scheduler, Tag};

/// A packet-in without much of its packet, with what TCP/IP adds.
pub const MESSAGE_BYTES: u32 = 220;

/// One byte per microsecond.
const NANOS_PER_BYTE: u64 = 1000;

pub fn conf(algorithm: Algorithm, queues: usize, messages_max: usize) -> Scheduling {
    let queue = QueueConfig {
        messages_max,
        ..QueueConfig::default()
    };
    Scheduling {
        algorithm,
        queues: vec![queue; queues],
        bytes_hard: 4 << 20,
        packet_out_free: false,
    }
}

/// Four queues of a hundred messages.
pub fn scheduling(algorithm: Algorithm) -> Scheduling {
    conf(algorithm, 4, 100)
}

/// With the deadlines of 10, 20, 50 and 200 ms.
pub fn edf(algorithm: Algorithm) -> Scheduling {
    let mut scheduling = scheduling(algorithm);
    let deadlines = [10, 20, 50, 200].map(Duration::from_millis);
    for (queue, deadline) in scheduling.queues.iter_mut().zip(deadlines) {
        queue.deadline = deadline;
    }
    scheduling.queues[2].deadline = Duration::from_millis(20);
    scheduling
}

pub fn weights(algorithm: Algorithm, weights: &[u16]) -> Scheduling {
    let mut scheduling = conf(algorithm, weights.len(), 100);
    for (queue, weight) in scheduling.queues.iter_mut().zip(weights) {
        queue.weight = *weight;
    }
    scheduling
}

/// A message of queue 3 that may not be shed.
pub fn flow(key: u64, channel: u64) -> Tag {
    Tag {
        queue: 3,
        dscp: None,
        binding: Binding::Flow {
            key,
            after_state: false,
        },
        domain: 0,
        channel,
        port: 0,
        bytes: MESSAGE_BYTES,
        shed: None,
    }
}

/// A packet-in of queue 1.
pub fn packet_in(channel: u64, port: u32, key: u64) -> Tag {
    let bytes = Bytes::from_static(&[4, 10, 0, 8, 0, 0, 0, 0]);
    let frame = Frame::new(bytes).unwrap();
    Tag {
        queue: 1,
        port,
        shed: Droppable::of(&frame, Direction::ToController),
        ..flow(key, channel)
    }
}

/// The number of messages that have arrived by `now` at `load` times the line's rate.
pub fn arrivals(now: Instant, load: f64) -> u64 {
    (now.as_nanos() as f64 * load / (NANOS_PER_BYTE * u64::from(MESSAGE_BYTES)) as f64) as u64
}

/// Messages are numbered as they are pushed.
pub struct Line {
    pub scheduler: Scheduler<u64>,
    pub now: Instant,
    pushed: u64,
    seed: u64,
}

impl Line {
    pub fn new(direction: Direction, scheduling: &Scheduling) -> Line {
        Line {
            scheduler: Scheduler::new(direction, scheduling),
            now: Instant::START,
            pushed: 0,
            seed: 4,
        }
    }

    pub fn time_of(bytes: u32) -> Duration {
        Duration::from_nanos(u64::from(bytes) * NANOS_PER_BYTE)
    }

    pub fn random(&mut self, below: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    pub fn waiting(&self, queue: usize) -> usize {
        self.scheduler.counters()[queue].messages_waiting
    }

    pub fn push(&mut self, tag: Tag) {
        self.scheduler.push(self.now, tag, self.pushed);
        self.pushed += 1;
    }

    /// Sends the next message; the line is busy for as long as that takes.
    pub fn pop(&mut self) -> Option<(Tag, u64)> {
        let (tag, number) = self.scheduler.pop(self.now)?;
        self.now += Line::time_of(tag.bytes);
        Some((tag, number))
    }

    /// Runs for `span`. `arrived` returns the number of packet-ins of a queue that have arrived by
    /// a time, each of another flow and all from one port per queue. `sent` is called with each
    /// message sent, and with its wait until sending began.
    pub fn run(
        &mut self,
        span: Duration,
        arrived: impl Fn(Instant) -> Vec<(u8, u64)>,
        mut sent: impl FnMut(Tag, Duration),
    ) {
        let mut came: Vec<Instant> = Vec::new();
        let mut have = [0u64; 16];
        let step = Duration::from_micros(10);
        let mut clock = Instant::START;
        while self.now < Instant::START + span {
            while clock <= self.now {
                for (queue, count) in arrived(clock) {
                    while have[usize::from(queue)] < count {
                        have[usize::from(queue)] += 1;
                        let number = came.len() as u64;
                        let tag = packet_in(u64::from(queue), u32::from(queue), number);
                        came.push(clock);
                        self.scheduler.push(clock, Tag { queue, ..tag }, number);
                    }
                }
                clock += step;
            }
            let started = self.now;
            match self.pop() {
                Some((tag, number)) => sent(tag, started.since(came[number as usize])),
                None => self.now = clock,
            }
        }
    }
}
