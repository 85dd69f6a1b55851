//! One direction of the channel: the production scheduler, a FIFO below it that models a socket's
//! buffer, and the wire.

use std::collections::VecDeque;

use clock::{Duration, Instant};
use sched::policy::{QUEUES_MAX, Scheduling};
use sched::{Direction, Scheduler, Tag};

const NANOS_PER_SECOND: u64 = 1_000_000_000;
const BITS: u64 = 8;

/// The properties of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineSetup {
    pub rate_bps: u64,
    /// Time from the end of sending to arrival.
    pub propagation: Duration,
    /// The scheduler passes messages down while fewer bytes than this wait below it or are being
    /// sent. With 0, it passes one message down when the previous one has left.
    pub below_bytes: usize,
}

/// A message on a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub wire_bytes: u32,
    pub owner: Owner,
    /// Time at which the message was offered to this line.
    pub entered: Instant,
}

/// The owner of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// An attempt of a transaction of the target.
    Target { transaction: u32, attempt: u8 },
    /// A cross source, named by its index in the setup.
    Cross(u8),
}

/// One direction of the channel, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineTally {
    pub offered: u64,
    pub lost: u64,
    pub sent: u64,
    pub bytes_sent: u64,
    /// Time during which the wire was sending.
    pub busy_ns: u64,
    /// Time from offer to the start of sending, summed over all messages sent.
    pub waited_ns: u128,
    /// Number of times that the wire was idle while messages waited. A work-conserving line has
    /// none.
    pub idle_with_work: u64,
}

#[derive(Debug)]
pub(super) struct Line {
    setup: LineSetup,
    scheduler: Scheduler<Message>,
    limits: Vec<usize>,
    waiting: [usize; QUEUES_MAX],
    below: VecDeque<Message>,
    below_bytes: usize,
    is_sending: bool,
    pub tally: LineTally,
}

impl Line {
    pub fn new(direction: Direction, setup: LineSetup, scheduling: &Scheduling) -> Line {
        let limits = scheduling.queues.iter().map(|queue| queue.messages_max);
        Line {
            setup,
            scheduler: Scheduler::new(direction, scheduling),
            limits: limits.collect(),
            waiting: [0; QUEUES_MAX],
            below: VecDeque::new(),
            below_bytes: 0,
            is_sending: false,
            tally: LineTally::default(),
        }
    }

    /// Queues a message and adds the messages lost for it to `lost`. The scheduler sheds
    /// packet-ins. In production nothing else is shed; the published model drops other messages at
    /// the tail of a full queue, and so does this line.
    pub fn offer(&mut self, now: Instant, tag: Tag, message: Message, lost: &mut Vec<Owner>) {
        self.tally.offered += 1;
        let queue = usize::from(tag.queue);
        if tag.shed.is_none() && self.waiting[queue] >= self.limits[queue] {
            self.tally.lost += 1;
            lost.push(message.owner);
            return;
        }
        self.waiting[queue] += 1;
        self.scheduler.push(now, tag, message);
        self.collect_shed(lost);
    }

    /// Starts to send the next message, if the wire is idle. Returns the time at which the message
    /// has left.
    pub fn start(&mut self, now: Instant, lost: &mut Vec<Owner>) -> Option<Instant> {
        self.refill(now, lost);
        if self.is_sending {
            return None;
        }
        let Some(message) = self.below.front() else {
            self.tally.idle_with_work += u64::from(!self.scheduler.is_empty());
            return None;
        };
        self.is_sending = true;
        self.tally.waited_ns += now.since(message.entered).as_nanos();
        Some(now + self.sending_time(message.wire_bytes))
    }

    /// Removes the message that the wire has sent. Returns it with its arrival time.
    pub fn finish(&mut self, now: Instant) -> (Instant, Message) {
        let message = self.below.pop_front().expect("the one that was sent");
        self.is_sending = false;
        self.below_bytes -= message.wire_bytes as usize;
        self.tally.sent += 1;
        self.tally.bytes_sent += u64::from(message.wire_bytes);
        self.tally.busy_ns += self.sending_time(message.wire_bytes).as_nanos() as u64;
        (now + self.setup.propagation, message)
    }

    fn refill(&mut self, now: Instant, lost: &mut Vec<Owner>) {
        while self.below.is_empty() || self.below_bytes < self.setup.below_bytes {
            let Some((tag, message)) = self.scheduler.pop(now) else {
                break;
            };
            self.waiting[usize::from(tag.queue)] -= 1;
            self.below_bytes += message.wire_bytes as usize;
            self.below.push_back(message);
        }
        // Messages that are too old are shed when it would have been their turn.
        self.collect_shed(lost);
    }

    fn collect_shed(&mut self, lost: &mut Vec<Owner>) {
        while let Some((_, tag, message)) = self.scheduler.poll_shed() {
            self.waiting[usize::from(tag.queue)] -= 1;
            self.tally.lost += 1;
            lost.push(message.owner);
        }
    }

    fn sending_time(&self, bytes: u32) -> Duration {
        let bits = u64::from(bytes) * BITS;
        Duration::from_nanos(bits * NANOS_PER_SECOND / self.setup.rate_bps)
    }
}
