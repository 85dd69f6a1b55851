//! Messages such as two switches send a controller: mostly packet-ins of many flows.

use bytes::Bytes;
use clock::{Duration, Instant};
use openflow::Frame;
use sched::policy::{Algorithm, QueueConfig, Scheduling};
use sched::{Binding, Direction, Droppable, Scheduler, Tag};

/// The number of messages that always wait: a tenth of the four queues' capacity.
const BACKLOG_MESSAGES: usize = 400;

/// One message each tenth of a millisecond: a link of 20 Mbit/s.
const STEP: Duration = Duration::from_micros(100);

/// Puts one message in and takes one out, again and again.
pub struct Load {
    scheduler: Scheduler<Bytes>,
    tags: Vec<Tag>,
    message: Bytes,
    now: Instant,
    next: usize,
}

impl Load {
    pub fn new(algorithm: Algorithm) -> Load {
        let queue = |n: usize| QueueConfig {
            weight: 8 >> n,
            min_rate: Some(100_000),
            ..QueueConfig::default()
        };
        let scheduling = Scheduling {
            algorithm,
            queues: (0..4).map(queue).collect(),
            bytes_hard: 4 << 20,
            packet_out_free: false,
        };
        let mut load = Load {
            scheduler: Scheduler::new(Direction::ToController, &scheduling),
            tags: tags(),
            message: Bytes::from_static(&[0; 64]),
            now: Instant::START,
            next: 0,
        };
        for _ in 0..BACKLOG_MESSAGES {
            load.push();
        }
        load
    }

    pub fn step(&mut self) -> Option<(Tag, Bytes)> {
        self.push();
        self.scheduler.pop(self.now)
    }

    fn push(&mut self) {
        let tag = self.tags[self.next % self.tags.len()];
        self.next += 1;
        self.now += STEP;
        self.scheduler.push(self.now, tag, self.message.clone());
        while self.scheduler.poll_shed().is_some() {}
    }
}

/// 4096 of them: of 100, 90 are packet-ins, 5 notices, 3 replies, 2 echoes; one of 1000 a fence.
fn tags() -> Vec<Tag> {
    let header = Bytes::from_static(&[4, 10, 0, 8, 0, 0, 0, 0]);
    let packet_in = Frame::new(header).expect("a header");
    let shed = Droppable::of(&packet_in, Direction::ToController);
    let mut seed = 4u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    let mut tag = |_| {
        let kind = random(1000);
        let flow = Binding::Flow {
            key: random(1000).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            after_state: false,
        };
        let (queue, binding) = match kind {
            0 => (2, Binding::Fence),
            1..50 => (3, Binding::State),
            50..80 => (3, Binding::Exchange),
            80..100 => (0, Binding::Free),
            100..200 => (1, flow),
            _ => (2, flow),
        };
        Tag {
            queue,
            dscp: None,
            binding,
            domain: 0,
            channel: random(2),
            port: random(24) as u32,
            bytes: 120 + random(200) as u32,
            shed: shed.filter(|_| kind >= 100),
        }
    };
    (0..4096).map(&mut tag).collect()
}
