//! The queues of one line: the messages that wait for one carrier, and the choice of the next one.
//!
//! Three rules decide. A [`Discipline`] chooses the queue. Within the queue the oldest message goes
//! next, or channels and ports take turns. OpenFlow's order
//! ([`must_follow`](crate::order::must_follow)) has the last word: if the chosen message must
//! follow other waiting messages, in whatever queue, these go first and are charged to the chosen
//! queue. So an urgent message never overtakes the messages it depends on, but lends them its
//! urgency.
//!
//! A queue over its limits sheds only messages that may be shed (by type only packet-ins): first an
//! older packet of the flow whose new packet has just arrived, then messages that have waited too
//! long, then the oldest message of the port that has most. A packet-in that has waited too long is
//! not sent either. All other messages stay, and [`Scheduler::has_room`] asks the caller to stop
//! reading.
//!
//! The scheduler has no clock and no I/O, and once warmed up it allocates nothing.

mod classes;
mod discipline;
mod entry;
mod lanes;
mod slab;
mod table;

use std::collections::VecDeque;

use clock::Instant;

use crate::classify::Tag;
use crate::order::Direction;
use crate::policy::{Algorithm, QUEUES_MAX, Scheduling};
use classes::Classes;
pub use discipline::{Discipline, Head};
use entry::Entry;
use lanes::Lanes;
use slab::{Id, Slab};

/// Length that bounds the number of waiting messages, however short they are: no more wait than
/// `bytes_hard` has room for at this length. Keeping a message costs us more than that.
const MESSAGE_BYTES_MIN: usize = 64;

/// Limit of shed messages that the caller has not polled yet. The counters include all of them.
const SHED_UNASKED_MAX: usize = 4096;

/// Reason why a packet-in was shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShedReason {
    /// Its queue was full, and a newer packet of its flow arrived.
    Duplicate,
    /// It waited longer than its queue allows.
    Stale,
    /// Its queue was full, and its port had the most packet-ins in it.
    QueueFull,
}

/// Counters of one queue since the start. Each message that came in was sent, shed or forgotten, or
/// waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Messages that came in.
    pub messages_in: u64,
    /// Bytes that came in.
    pub bytes_in: u64,
    /// Messages that were sent.
    pub messages_out: u64,
    /// Bytes that were sent.
    pub bytes_out: u64,
    /// Messages sent before their turn because an urgent message had to follow them.
    pub promoted: u64,
    /// Packet-ins shed because a newer packet of their flow arrived.
    pub shed_duplicate: u64,
    /// Packet-ins shed because they waited too long.
    pub shed_stale: u64,
    /// Packet-ins shed because the queue was full.
    pub shed_full: u64,
    /// Messages dropped with their channel.
    pub forgotten: u64,
    /// Messages that wait now.
    pub messages_waiting: usize,
    /// Bytes that wait now.
    pub bytes_waiting: usize,
}

impl QueueCounters {
    /// Applies `change` for a waiting message of `bytes` that changes its queue.
    fn move_one(&mut self, bytes: u32, change: fn(&mut u64, u64)) {
        let mut waiting = [self.messages_waiting as u64, self.bytes_waiting as u64];
        change(&mut self.messages_in, 1);
        change(&mut self.bytes_in, u64::from(bytes));
        change(&mut waiting[0], 1);
        change(&mut waiting[1], u64::from(bytes));
        [self.messages_waiting, self.bytes_waiting] = waiting.map(|n| n as usize);
    }
}

/// Messages that wait, by queue, in an order that OpenFlow allows.
///
/// ```
/// use clock::Instant;
/// use sched::{Binding, Direction, PolicyMap, Scheduler, Tag};
///
/// let tag = |queue, binding| Tag {
///     queue,
///     dscp: None,
///     binding,
///     domain: 0,
///     channel: 1,
///     port: 0,
///     bytes: 8,
///     shed: None,
/// };
/// let scheduling = PolicyMap::auster().scheduling;
/// let mut scheduler = Scheduler::new(Direction::ToSwitch, &scheduling);
/// let now = Instant::START;
/// scheduler.push(now, tag(0, Binding::Fence), "hello");
/// scheduler.push(now, tag(2, Binding::Exchange), "statistics");
/// scheduler.push(now, tag(0, Binding::Free), "echo");
///
/// let mut next = || scheduler.pop(now).map(|(_, message)| message);
/// assert_eq!([next(), next(), next()], [Some("hello"), Some("echo"), Some("statistics")]);
/// ```
#[derive(Debug)]
pub struct Scheduler<T> {
    waiting: Waiting,
    /// Indexed by the place of the message's entry.
    messages: Vec<Option<T>>,
    shed: VecDeque<(ShedReason, Tag, T)>,
}

/// The state of the scheduler, except the messages.
#[derive(Debug)]
struct Waiting {
    scheduling: Scheduling,
    discipline: Box<dyn Discipline>,
    entries: Slab<Entry>,
    lanes: Lanes,
    classes: Classes,
    len: usize,
    bytes: usize,
    seq: u64,
    counters: [QueueCounters; QUEUES_MAX],
}

impl<T> Scheduler<T> {
    /// Makes an empty scheduler for messages of one direction.
    ///
    /// # Panics
    /// If `scheduling` has no queue, or more than [`QUEUES_MAX`]. A parsed [`PolicyMap`] never has
    /// either.
    ///
    /// [`PolicyMap`]: crate::policy::PolicyMap
    pub fn new(direction: Direction, scheduling: &Scheduling) -> Scheduler<T> {
        Scheduler {
            waiting: Waiting::new(direction, scheduling),
            messages: Vec::new(),
            shed: VecDeque::new(),
        }
    }

    /// Reports whether to read from the sources: less than [`Scheduling::bytes_hard`] waits.
    pub fn has_room(&self) -> bool {
        let bytes_max = self.waiting.scheduling.bytes_hard;
        self.bytes() < bytes_max && self.len() < (bytes_max / MESSAGE_BYTES_MIN).max(1)
    }

    /// Queues a message. Always takes it, since the caller reads only while there is room, but may
    /// shed packet-ins; [`Scheduler::poll_shed`] returns these.
    pub fn push(&mut self, now: Instant, mut tag: Tag, message: T) {
        let waiting = &mut self.waiting;
        tag.queue = waiting.queue_of(tag.queue);
        if waiting.refuses(&tag) {
            waiting.count_in(&tag);
            waiting.count_shed(&tag, ShedReason::QueueFull);
            self.keep_shed(ShedReason::QueueFull, tag, message);
            return;
        }
        let id = waiting.insert(now, tag);
        let at = id as usize;
        if at >= self.messages.len() {
            self.messages.resize_with(at + 1, || None);
        }
        self.messages[at] = Some(message);
        self.relieve(now, self.waiting.entries[id].queue, Some(id));
    }

    /// Takes the next message to send, with its tag as it was pushed.
    pub fn pop(&mut self, now: Instant) -> Option<(Tag, T)> {
        self.pop_if(now, |_| true)
    }

    /// Takes the next message that `admits` accepts, for a caller with several carriers. A queue
    /// waits while its next message is not admitted, and so does a queue whose next message must
    /// follow such a message. The other queues continue.
    pub fn pop_if(
        &mut self,
        now: Instant,
        mut admits: impl FnMut(&Tag) -> bool,
    ) -> Option<(Tag, T)> {
        let mut held_back = 0;
        loop {
            let turn = self.waiting.choose(now, !held_back)?;
            if self.waiting.is_stale(now, turn.id) {
                self.shed(ShedReason::Stale, turn.id);
                continue;
            }
            // Ask about the message to send, which may be from another queue than the chosen one.
            if !admits(&self.waiting.entries[turn.id].tag) {
                held_back |= 1 << turn.queue;
                continue;
            }
            self.waiting.take_turn(now, &turn);
            return Some(self.take(turn.id));
        }
    }

    /// Takes a packet-in that was shed, with the reason. The last 4,096 are kept.
    pub fn poll_shed(&mut self) -> Option<(ShedReason, Tag, T)> {
        self.shed.pop_front()
    }

    /// Blocks a channel, whose messages then wait, or unblocks it.
    pub fn set_blocked(&mut self, channel: u64, is_blocked: bool) {
        self.waiting.set_blocked(channel, is_blocked);
    }

    /// Drops a channel with its waiting messages. The next message under its number begins a new
    /// channel.
    pub fn forget(&mut self, channel: u64) {
        let Some(place) = self.waiting.lanes.find_channel(channel) else {
            return;
        };
        while let Some(id) = self.waiting.lanes.any_of(place) {
            let queue = self.waiting.entries[id].tag.queue;
            self.waiting.counters[usize::from(queue)].forgotten += 1;
            self.waiting.remove(id);
            self.take(id);
        }
        self.waiting.classes.forget(place);
        self.waiting.lanes.forget(channel);
    }

    /// Changes the service of the queues. Waiting messages keep their queues, or move to the last
    /// queue if there are fewer now. They are not classified again.
    ///
    /// A queue that exceeds its new limits sheds packet-ins when more messages arrive.
    pub fn set_scheduling(&mut self, scheduling: &Scheduling) {
        let messages = self.messages.iter().enumerate();
        let waiting = messages.filter_map(|(id, m)| m.is_some().then_some(id as Id));
        self.waiting.set_scheduling(scheduling, waiting.collect());
    }

    /// Number of messages that wait.
    pub fn len(&self) -> usize {
        self.waiting.len
    }

    /// Reports whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.len == 0
    }

    /// Number of bytes that wait.
    pub fn bytes(&self) -> usize {
        self.waiting.bytes
    }

    /// Counters of each queue.
    pub fn counters(&self) -> &[QueueCounters] {
        &self.waiting.counters[..self.waiting.scheduling.queues.len()]
    }

    /// Sends in the order of the queues alone, regardless of OpenFlow's order: for tests of order,
    /// which must detect this.
    #[doc(hidden)]
    pub fn without_order(mut self) -> Scheduler<T> {
        self.waiting.lanes.is_lawless = true;
        self
    }

    /// Sheds the messages of `queue` above its limits, after `newest` has arrived.
    fn relieve(&mut self, now: Instant, queue: u8, mut newest: Option<Id>) {
        while let Some((reason, id)) = self.waiting.victim(now, queue, newest) {
            if newest == Some(id) {
                newest = None;
            }
            self.shed(reason, id);
        }
    }

    fn shed(&mut self, reason: ShedReason, id: Id) {
        let tag = self.waiting.entries[id].tag;
        self.waiting.count_shed(&tag, reason);
        self.waiting.remove(id);
        let (tag, message) = self.take(id);
        self.keep_shed(reason, tag, message);
    }

    fn keep_shed(&mut self, reason: ShedReason, tag: Tag, message: T) {
        if self.shed.len() == SHED_UNASKED_MAX {
            self.shed.pop_front();
        }
        self.shed.push_back((reason, tag, message));
    }

    /// Takes the message of an entry that was removed.
    fn take(&mut self, id: Id) -> (Tag, T) {
        let message = self.messages[id as usize].take();
        let message = message.expect("an entry has its message");
        (self.waiting.entries[id].tag, message)
    }
}

/// The next message, and the queue whose turn pays for it.
struct Turn {
    queue: u8,
    chosen: Id,
    /// The chosen message, or one that it must follow.
    id: Id,
}

impl Waiting {
    fn new(direction: Direction, scheduling: &Scheduling) -> Waiting {
        assert!((1..=QUEUES_MAX).contains(&scheduling.queues.len()));
        Waiting {
            scheduling: scheduling.clone(),
            discipline: discipline::discipline_of(scheduling),
            entries: Slab::default(),
            lanes: Lanes::new(direction),
            classes: Classes::new(scheduling.algorithm),
            len: 0,
            bytes: 0,
            seq: 0,
            counters: Default::default(),
        }
    }

    fn is_fifo(&self) -> bool {
        self.scheduling.algorithm == Algorithm::Fifo
    }

    fn queue_of(&self, queue: u8) -> u8 {
        queue.min((self.scheduling.queues.len() - 1) as u8)
    }

    /// Returns the queue that serves messages tagged with `queue`.
    fn served_by(&self, queue: u8) -> u8 {
        if self.is_fifo() { 0 } else { queue }
    }

    /// Reports whether a full FIFO refuses the message: the last to arrive finds no room.
    fn refuses(&self, tag: &Tag) -> bool {
        let limits = &self.scheduling.queues[0];
        let bytes = self.bytes + tag.bytes as usize;
        let is_full = self.len >= limits.messages_max || bytes > limits.bytes_max;
        self.is_fifo() && tag.shed.is_some() && self.len > 0 && is_full
    }

    fn insert(&mut self, now: Instant, tag: Tag) -> Id {
        self.count_in(&tag);
        let counters = &mut self.counters[usize::from(tag.queue)];
        counters.messages_waiting += 1;
        counters.bytes_waiting += tag.bytes as usize;
        self.len += 1;
        self.bytes += tag.bytes as usize;
        self.seq += 1;
        let mut entry = Entry::new(tag, now, self.seq, self.served_by(tag.queue));
        entry.channel = self.lanes.channel(tag.channel);
        let id = self.entries.insert(entry);
        self.lanes.insert(&mut self.entries, id);
        self.change(|w| w.classes.insert(&mut w.entries, id));
        id
    }

    fn remove(&mut self, id: Id) {
        let tag = &self.entries[id].tag;
        let counters = &mut self.counters[usize::from(tag.queue)];
        counters.messages_waiting -= 1;
        counters.bytes_waiting -= tag.bytes as usize;
        self.len -= 1;
        self.bytes -= tag.bytes as usize;
        self.lanes.remove(&mut self.entries, id);
        self.change(|w| w.classes.remove(&mut w.entries, id));
        self.entries.release(id);
    }

    /// Reports to the discipline which queues became backlogged or idle in `change`.
    fn change(&mut self, change: impl FnOnce(&mut Waiting)) {
        let before = self.classes.backlogged();
        change(self);
        let after = self.classes.backlogged();
        if before == after {
            return;
        }
        for queue in discipline::queues_in(before & !after) {
            self.discipline.idle(queue);
        }
        for queue in discipline::queues_in(after & !before) {
            self.discipline.backlogged(queue);
        }
    }

    /// Chooses the next message among `queues`, one bit each.
    fn choose(&mut self, now: Instant, queues: u16) -> Option<Turn> {
        let backlogged = self.classes.backlogged() & queues;
        if backlogged == 0 {
            return None;
        }
        let (classes, entries) = (&self.classes, &self.entries);
        let head = |queue: usize| classes.head(entries, queue as u8);
        let queue = self.discipline.pick(now, backlogged, &head) as u8;
        let chosen = self.classes.select(queue);
        let id = self.lanes.first_due(&self.entries, chosen);
        Some(Turn { queue, chosen, id })
    }

    fn take_turn(&mut self, now: Instant, turn: &Turn) {
        let tag = self.entries[turn.id].tag;
        let counters = &mut self.counters[usize::from(tag.queue)];
        counters.messages_out += 1;
        counters.bytes_out += u64::from(tag.bytes);
        if turn.id != turn.chosen {
            counters.promoted += 1;
        }
        self.classes.use_turn(&self.entries, turn.chosen, tag.bytes);
        // Charge the queue while it is still backlogged: then it is known whether its turn is over.
        self.discipline
            .served(now, usize::from(turn.queue), tag.bytes);
        self.remove(turn.id);
    }

    fn is_stale(&self, now: Instant, id: Id) -> bool {
        let entry = &self.entries[id];
        let queue = &self.scheduling.queues[usize::from(entry.queue)];
        entry.tag.shed.is_some() && !self.is_fifo() && now.since(entry.at) > queue.age_max
    }

    /// The message to shed while `queue` is over its limits.
    fn victim(&mut self, now: Instant, queue: u8, newest: Option<Id>) -> Option<(ShedReason, Id)> {
        let limits = &self.scheduling.queues[usize::from(queue)];
        let of = self.classes.queue(queue);
        let is_over = of.messages > limits.messages_max
            // A single message longer than the limit must pass.
            || (of.bytes > limits.bytes_max && of.messages > 1);
        if !is_over || self.is_fifo() {
            return None;
        }
        let oldest = of.droppable.head()?;
        if let Some(newest) = newest.filter(|n| self.entries[*n].tag.shed.is_some())
            && let Some(first) = self.lanes.oldest_of_flow(&self.entries, newest)
            && first != newest
            && self.entries[first].queue == queue
            && self.entries[first].tag.shed.is_some()
        {
            return Some((ShedReason::Duplicate, first));
        }
        if self.is_stale(now, oldest) {
            return Some((ShedReason::Stale, oldest));
        }
        let longest = self.classes.head_of_longest(&self.entries, queue)?;
        Some((ShedReason::QueueFull, longest))
    }

    fn set_blocked(&mut self, channel: u64, is_blocked: bool) {
        let place = self.lanes.channel(channel);
        self.change(|w| w.classes.set_blocked(&w.entries, place, is_blocked));
    }

    /// Changes the service of the queues. `ids` are all waiting messages.
    fn set_scheduling(&mut self, scheduling: &Scheduling, mut ids: Vec<Id>) {
        assert!((1..=QUEUES_MAX).contains(&scheduling.queues.len()));
        self.scheduling = scheduling.clone();
        self.discipline = discipline::discipline_of(scheduling);
        let blocked = self.classes.blocked();
        self.classes = Classes::new(scheduling.algorithm);
        for place in blocked {
            self.classes.set_blocked(&self.entries, place, true);
        }
        ids.sort_unstable_by_key(|id| self.entries[*id].seq);
        for id in ids {
            let was = self.entries[id].tag.queue;
            let queue = self.queue_of(was);
            let bytes = self.entries[id].tag.bytes;
            self.counters[usize::from(was)].move_one(bytes, |from, n| *from -= n);
            self.counters[usize::from(queue)].move_one(bytes, |to, n| *to += n);
            let served_by = self.served_by(queue);
            let entry = &mut self.entries[id];
            entry.tag.queue = queue;
            entry.queue = served_by;
            entry.leaf = slab::NIL;
            self.change(|w| w.classes.insert(&mut w.entries, id));
        }
    }

    fn count_in(&mut self, tag: &Tag) {
        let counters = &mut self.counters[usize::from(tag.queue)];
        counters.messages_in += 1;
        counters.bytes_in += u64::from(tag.bytes);
    }

    fn count_shed(&mut self, tag: &Tag, reason: ShedReason) {
        let counters = &mut self.counters[usize::from(tag.queue)];
        *match reason {
            ShedReason::Duplicate => &mut counters.shed_duplicate,
            ShedReason::Stale => &mut counters.shed_stale,
            ShedReason::QueueFull => &mut counters.shed_full,
        } += 1;
    }
}
