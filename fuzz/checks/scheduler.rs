//! Any operations on a scheduler, beside a slow model of what it may do: everything comes out once
//! or is shed for the reason it gives, only packet-ins are shed, nothing overtakes what it must
//! follow, something comes out whenever something may, and the figures add up.
//!
//! The first byte says which discipline and direction, the second which limits; then one operation
//! after the other.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use clock::{Duration, Instant};
use openflow::Frame;
use sched::order::must_follow;
use sched::policy::{Algorithm, QueueConfig, Scheduling};
use sched::scheduler::ShedReason;
use sched::{Binding, Direction, Droppable, Scheduler, Tag};

const QUEUES: usize = 4;

pub fn check(data: &[u8]) {
    if let Err(why) = run(data, |scheduler| scheduler) {
        panic!("{why}");
    }
}

/// Carries the operations out on what `prepare` makes of a scheduler. What is wrong, if anything.
pub fn run(
    data: &[u8],
    prepare: impl FnOnce(Scheduler<u64>) -> Scheduler<u64>,
) -> Result<(), String> {
    let Some(([kind, limits], ops)) = data.split_first_chunk() else {
        return Ok(());
    };
    let direction = match kind & 0x80 {
        0 => Direction::ToController,
        _ => Direction::ToSwitch,
    };
    let scheduling = scheduling(*kind, *limits);
    let mut model = Model {
        direction,
        scheduler: prepare(Scheduler::new(direction, &scheduling)),
        scheduling,
        limits: *limits,
        now: Instant::START,
        pushed: 0,
        waiting: BTreeMap::new(),
        firsts: BTreeMap::new(),
        blocked: BTreeSet::new(),
    };
    for op in ops.chunks_exact(4) {
        model.step(op.try_into().expect("four bytes"))?;
    }
    model.drain()
}

fn scheduling(kind: u8, limits: u8) -> Scheduling {
    let queue = |n: usize| QueueConfig {
        weight: 1 << n,
        min_rate: (n != 2).then_some(1000 << n),
        deadline: Duration::from_millis(5 << n),
        messages_max: usize::from(limits & 7) * 4 + 1,
        bytes_max: match limits & 0x10 {
            0 => 256 * 1024,
            _ => 4000,
        },
        age_max: Duration::from_millis(match limits & 0x20 {
            0 => 1000,
            _ => 20,
        }),
    };
    Scheduling {
        algorithm: Algorithm::ALL[usize::from(kind & 0x7f) % Algorithm::ALL.len()],
        queues: (0..QUEUES).map(queue).collect(),
        bytes_hard: 20_000,
        packet_out_free: false,
    }
}

struct Model {
    direction: Direction,
    scheduler: Scheduler<u64>,
    scheduling: Scheduling,
    limits: u8,
    now: Instant,
    pushed: u64,
    /// Waiting messages by number, which is the order of arrival.
    waiting: BTreeMap<u64, (Tag, Instant)>,
    /// The first message of each channel.
    firsts: BTreeMap<u64, u64>,
    blocked: BTreeSet<u64>,
}

impl Model {
    fn step(&mut self, op: [u8; 4]) -> Result<(), String> {
        let [kind, a, b, c] = op;
        let channel = u64::from(a & 3);
        match kind % 16 {
            0..=6 => self.push(a, b, c)?,
            7..=10 => self.pop(u8::MAX)?,
            11 => self.pop(!a)?,
            12 => self.now += Duration::from_millis(u64::from(a)),
            13 => {
                self.scheduler.set_blocked(channel, b & 1 == 1);
                match b & 1 {
                    1 => self.blocked.insert(channel),
                    _ => self.blocked.remove(&channel),
                };
            }
            14 if b & 7 == 0 => {
                self.scheduler.forget(channel);
                self.waiting.retain(|_, (tag, _)| tag.channel != channel);
                self.firsts.remove(&channel);
                self.blocked.remove(&channel);
            }
            15 if b & 7 == 0 => {
                self.scheduling = scheduling(a, self.limits);
                self.scheduling.queues.truncate(1 + usize::from(c & 3));
                self.scheduler.set_scheduling(&self.scheduling);
                let last = self.scheduling.queues.len() as u8 - 1;
                for (tag, _) in self.waiting.values_mut() {
                    tag.queue = tag.queue.min(last);
                }
            }
            _ => {}
        }
        self.figures()
    }

    fn push(&mut self, a: u8, b: u8, c: u8) -> Result<(), String> {
        let to_switch = self.direction == Direction::ToSwitch;
        let mut tag = Tag {
            queue: (a >> 2) & 3,
            dscp: None,
            binding: match b & 15 {
                0 => Binding::Fence,
                1..=3 => Binding::State,
                4 | 5 => Binding::Exchange,
                6 | 7 => Binding::Free,
                _ => Binding::Flow {
                    key: u64::from(b >> 4 & 3),
                    after_state: to_switch && b & 8 != 0,
                },
            },
            domain: [0, 0, 1, 2][usize::from(a >> 4 & 3)],
            channel: u64::from(a & 3),
            port: 0,
            bytes: 8 + u32::from(c) * u32::from(c) / 16,
            shed: None,
        };
        if matches!(tag.binding, Binding::Flow { .. }) && !to_switch {
            tag.port = u32::from(b >> 6);
            tag.shed = packet_in();
        }
        self.pushed += 1;
        self.scheduler.push(self.now, tag, self.pushed);
        tag.queue = tag.queue.min(self.scheduling.queues.len() as u8 - 1);
        self.waiting.insert(self.pushed, (tag, self.now));
        self.take_shed(Some(self.pushed))?;
        // A first message that is refused was never there.
        if self.waiting.contains_key(&self.pushed) {
            self.firsts.entry(tag.channel).or_insert(self.pushed);
        } else if self.scheduling.algorithm != Algorithm::Fifo {
            self.firsts.entry(tag.channel).or_insert(0);
        }
        self.bounds(tag.queue)
    }

    /// Messages of `queues`, one bit each, have somewhere to go.
    fn pop(&mut self, queues: u8) -> Result<(), String> {
        let admits = |tag: &Tag| queues >> tag.queue & 1 == 1;
        let popped = match queues {
            u8::MAX => self.scheduler.pop(self.now),
            _ => self.scheduler.pop_if(self.now, admits),
        };
        self.take_shed(None)?;
        let Some((tag, number)) = popped else {
            return self.nothing_was_due(&admits);
        };
        if !admits(&tag) {
            return Err(format!("{number} {tag:?} sent, which was held back"));
        }
        let Some((was, _)) = self.waiting.remove(&number) else {
            return Err(format!("{number} sent, which does not wait"));
        };
        if was != tag {
            return Err(format!("{number} was {was:?} and is {tag:?}"));
        }
        if self.blocked.contains(&tag.channel) {
            return Err(format!("{number} of a blocked channel sent"));
        }
        match self.predecessors(number, &tag).next() {
            Some(before) => Err(format!("{number} {tag:?} overtook {before}")),
            None => Ok(()),
        }
    }

    /// The waiting messages that `number` must follow.
    fn predecessors<'a>(&'a self, number: u64, tag: &'a Tag) -> impl Iterator<Item = u64> + 'a {
        let earlier = self.waiting.range(..number);
        let binding = earlier.filter(move |(earlier, (of, _))| {
            let is_first = self.firsts.get(&of.channel) == Some(earlier);
            let binds = must_follow(
                self.direction,
                (of.binding, of.domain),
                (tag.binding, tag.domain),
            );
            of.channel == tag.channel && (is_first || binds)
        });
        binding.map(|(earlier, _)| *earlier)
    }

    /// Every queue is empty, or something in it is held back or follows what is.
    fn nothing_was_due(&self, admits: &dyn Fn(&Tag) -> bool) -> Result<(), String> {
        let mut held_back = BTreeSet::new();
        let (mut backlogged, mut excused) = (BTreeSet::new(), BTreeSet::new());
        for (number, (tag, _)) in &self.waiting {
            let follows = |n: u64| held_back.contains(&n);
            let is_held = !admits(tag) || self.predecessors(*number, tag).any(follows);
            if is_held {
                held_back.insert(*number);
            }
            if !self.blocked.contains(&tag.channel) {
                let is_fifo = self.scheduling.algorithm == Algorithm::Fifo;
                let queue = if is_fifo { 0 } else { tag.queue };
                backlogged.insert(queue);
                if is_held {
                    excused.insert(queue);
                }
            }
        }
        match backlogged.difference(&excused).next() {
            Some(queue) => Err(format!("nothing sent while queue {queue} may be")),
            None => Ok(()),
        }
    }

    /// `newest`: what came just now, if anything.
    fn take_shed(&mut self, newest: Option<u64>) -> Result<(), String> {
        while let Some((reason, tag, number)) = self.scheduler.poll_shed() {
            let Some((was, at)) = self.waiting.remove(&number) else {
                return Err(format!("{number} shed, which does not wait"));
            };
            if was != tag || tag.shed.is_none() {
                return Err(format!("{number} shed: {tag:?}"));
            }
            let queue = &self.scheduling.queues[usize::from(tag.queue)];
            let is_right = match (reason, self.scheduling.algorithm) {
                (ShedReason::QueueFull, Algorithm::Fifo) => newest == Some(number),
                (_, Algorithm::Fifo) => false,
                (ShedReason::QueueFull, _) => newest.is_some() && self.is_longest(number, &tag),
                (ShedReason::Stale, _) => self.now.since(at) > queue.age_max,
                (ShedReason::Duplicate, _) => newest
                    .and_then(|newest| self.waiting.get(&newest))
                    .is_some_and(|(newest, _)| same_flow(newest, &tag)),
            };
            if !is_right {
                return Err(format!("{number} shed as {reason:?}: {tag:?} since {at:?}"));
            }
        }
        Ok(())
    }

    /// Whether the port of `tag` had the most, before `number` was shed, and that was its oldest.
    fn is_longest(&self, number: u64, tag: &Tag) -> bool {
        let of_port = |t: &Tag| (t.channel, t.port);
        let mut lengths = BTreeMap::from([(of_port(tag), 1)]);
        let droppable =
            |(_, (t, _)): &(&u64, &(Tag, Instant))| t.shed.is_some() && t.queue == tag.queue;
        let mut is_oldest = true;
        for (other, (t, _)) in self.waiting.iter().filter(droppable) {
            *lengths.entry(of_port(t)).or_insert(0) += 1;
            is_oldest &= *other > number || of_port(t) != of_port(tag);
        }
        is_oldest && lengths.values().all(|len| *len <= lengths[&of_port(tag)])
    }

    /// A queue is over its limits only with what may not be shed.
    fn bounds(&self, queue: u8) -> Result<(), String> {
        let is_fifo = self.scheduling.algorithm == Algorithm::Fifo;
        let limits = &self.scheduling.queues[if is_fifo { 0 } else { usize::from(queue) }];
        let of: Vec<&Tag> = self
            .waiting
            .values()
            .map(|(tag, _)| tag)
            .filter(|tag| is_fifo || tag.queue == queue)
            .collect();
        let bytes: usize = of.iter().map(|tag| tag.bytes as usize).sum();
        let is_over = of.len() > limits.messages_max || (bytes > limits.bytes_max && of.len() > 1);
        match is_over && !is_fifo && of.iter().any(|tag| tag.shed.is_some()) {
            true => Err(format!("queue {queue}: {} with {bytes} bytes", of.len())),
            false => Ok(()),
        }
    }

    fn figures(&self) -> Result<(), String> {
        let bytes = |queue: Option<usize>| -> (usize, usize) {
            let of = self.waiting.values().map(|(tag, _)| tag);
            let of = of.filter(|tag| queue.is_none_or(|q| usize::from(tag.queue) == q));
            of.fold((0, 0), |(n, sum), tag| (n + 1, sum + tag.bytes as usize))
        };
        let (messages, sum) = bytes(None);
        if (self.scheduler.len(), self.scheduler.bytes()) != (messages, sum) {
            return Err(format!("{messages} messages of {sum} bytes wait"));
        }
        if self.scheduler.has_room() != (sum < 20_000 && messages < 20_000 / 64) {
            return Err(format!("room for more beside {messages} of {sum} bytes"));
        }
        for (queue, c) in self.scheduler.counters().iter().enumerate() {
            let left = c.messages_out
                + c.shed_duplicate
                + c.shed_stale
                + c.shed_full
                + c.forgotten
                + c.messages_waiting as u64;
            let waiting = (c.messages_waiting, c.bytes_waiting);
            if waiting != bytes(Some(queue)) || c.messages_in != left {
                return Err(format!("queue {queue}: {c:?}"));
            }
        }
        Ok(())
    }

    /// Everything that waits comes out.
    fn drain(&mut self) -> Result<(), String> {
        for channel in std::mem::take(&mut self.blocked) {
            self.scheduler.set_blocked(channel, false);
        }
        for _ in 0..self.waiting.len() {
            self.pop(u8::MAX)?;
            self.figures()?;
        }
        match self.waiting.is_empty() && self.scheduler.is_empty() {
            true => Ok(()),
            false => Err(format!("{:?} never came out", self.waiting)),
        }
    }
}

fn same_flow(a: &Tag, b: &Tag) -> bool {
    let key = |tag: &Tag| match tag.binding {
        Binding::Flow { key, .. } => Some((tag.channel, tag.queue, key)),
        _ => None,
    };
    key(a).is_some() && key(a) == key(b)
}

fn packet_in() -> Option<Droppable> {
    let bytes = Bytes::from_static(&[4, 10, 0, 8, 0, 0, 0, 0]);
    let frame = Frame::new(bytes).expect("a header");
    Droppable::of(&frame, Direction::ToController)
}
