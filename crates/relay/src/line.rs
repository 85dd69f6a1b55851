//! The queues of a policy map before a limited connection to the other end, with their counters.
//!
//! A relay's session has one line for all of its channels. A relay that carries each connection
//! over another one has one line per connection.

use bytes::Bytes;
use clock::Instant;
use openflow::{DatapathId, Frame};
use sched::classify::Buffers;
use sched::policy::{Algorithm, PolicyMap};
use sched::scheduler::{QueueCounters, ShedReason};
use sched::{Binding, Classifier, Direction, Scheduler, Tag};

use super::carriers::queue_of_kind;
use super::kind::Kind;

/// An item of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Message(Bytes),
    /// The end of this channel.
    End,
}

/// A scheduler with the policy map that fills it.
#[derive(Debug)]
pub struct Line {
    direction: Direction,
    map: PolicyMap,
    classifier: Classifier,
    scheduler: Scheduler<Item>,
    hits: Vec<u64>,
    default_hits: u64,
    /// The buffers, if the map depends on their packets.
    buffers: Option<Buffers>,
}

/// The counters of a line, since the start or the last map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineStatus {
    pub algorithm: Algorithm,
    pub generation: u64,
    pub queues: Vec<QueueCounters>,
    /// The number of messages by rule.
    pub rules: Vec<(u16, u64)>,
    /// The number of messages that no rule matched.
    pub default_hits: u64,
}

impl Line {
    pub fn new(direction: Direction, map: &PolicyMap) -> Line {
        let classifier = Classifier::new(map);
        Line {
            direction,
            buffers: buffers(direction, &classifier),
            classifier,
            scheduler: Scheduler::new(direction, &map.scheduling),
            hits: vec![0; map.rules.len()],
            default_hits: 0,
            map: map.clone(),
        }
    }

    /// Changes the map. Waiting messages stay where they are.
    pub fn set_map(&mut self, map: &PolicyMap) {
        self.classifier = Classifier::new(map);
        let before = self.buffers.take();
        self.buffers = buffers(self.direction, &self.classifier).map(|new| before.unwrap_or(new));
        self.scheduler.set_scheduling(&map.scheduling);
        self.hits = vec![0; map.rules.len()];
        self.default_hits = 0;
        self.map = map.clone();
    }

    /// Queues a message of `channel`, a connection of switch `datapath` if that is known.
    pub fn push(
        &mut self,
        now: Instant,
        channel: u64,
        datapath: Option<DatapathId>,
        frame: &Frame,
    ) {
        let buffers = self.buffers.as_ref();
        let kept = buffers.and_then(|buffers| buffers.fields(now, channel, datapath, frame));
        let verdict = self
            .classifier
            .classify_kept(frame, self.direction, channel, datapath, kept);
        match verdict.rule.and_then(|rule| self.hits.get_mut(rule)) {
            Some(hits) => *hits += 1,
            None => self.default_hits += 1,
        }
        let message = Item::Message(frame.bytes().clone());
        self.scheduler.push(now, verdict.tag, message);
    }

    /// Notes a message in the other direction, to which messages in this direction may refer.
    pub fn handle_other_way(
        &mut self,
        now: Instant,
        channel: u64,
        datapath: Option<DatapathId>,
        message: &Bytes,
    ) {
        let Some(buffers) = &mut self.buffers else {
            return;
        };
        if let Ok(frame) = Frame::new(message.clone()) {
            buffers.handle_packet_in(now, channel, datapath, &frame);
        }
    }

    /// Queues a piece of a byte stream that is of class `kind`.
    pub fn push_piece(&mut self, now: Instant, channel: u64, kind: Kind, piece: Bytes) {
        let tag = self.tag(channel, kind, Binding::State, piece.len());
        self.scheduler.push(now, tag, Item::Message(piece));
    }

    /// Queues the end of `channel`.
    pub fn push_end(&mut self, now: Instant, channel: u64) {
        let tag = self.tag(channel, Kind::Other, Binding::Fence, 0);
        self.scheduler.push(now, tag, Item::End);
    }

    /// Takes the next message to send.
    pub fn pop(&mut self, now: Instant) -> Option<(Tag, Item)> {
        self.scheduler.pop(now)
    }

    /// Takes the next message like [`Line::pop`], among those that may be sent.
    pub fn pop_if(
        &mut self,
        now: Instant,
        admits: impl FnMut(&Tag) -> bool,
    ) -> Option<(Tag, Item)> {
        self.scheduler.pop_if(now, admits)
    }

    /// Returns a packet-in that was shed.
    pub fn poll_shed(&mut self) -> Option<(ShedReason, Tag, Item)> {
        self.scheduler.poll_shed()
    }

    /// Whether sources may be read.
    pub fn has_room(&self) -> bool {
        self.scheduler.has_room()
    }

    /// Blocks a channel: its messages stay where they are.
    pub fn set_blocked(&mut self, channel: u64, is_blocked: bool) {
        self.scheduler.set_blocked(channel, is_blocked);
    }

    pub fn forget(&mut self, channel: u64) {
        self.scheduler.forget(channel);
    }

    pub fn len(&self) -> usize {
        self.scheduler.len()
    }

    pub fn is_empty(&self) -> bool {
        self.scheduler.is_empty()
    }

    /// Whether anything waits in `queue`.
    pub fn has_waiting(&self, queue: u8) -> bool {
        let counters = self.scheduler.counters().get(usize::from(queue));
        counters.is_some_and(|counters| counters.messages_waiting > 0)
    }

    pub fn bytes(&self) -> usize {
        self.scheduler.bytes()
    }

    /// The limit in bytes of all queues together: above it sources are not read.
    pub fn bytes_hard(&self) -> usize {
        self.map.scheduling.bytes_hard
    }

    pub fn status(&self) -> LineStatus {
        let rules = self.map.rules.iter().map(|rule| rule.id);
        LineStatus {
            algorithm: self.map.scheduling.algorithm,
            generation: self.map.generation,
            queues: self.scheduler.counters().to_vec(),
            rules: rules.zip(self.hits.iter().copied()).collect(),
            default_hits: self.default_hits,
        }
    }

    fn tag(&self, channel: u64, kind: Kind, binding: Binding, bytes: usize) -> Tag {
        Tag {
            queue: queue_of_kind(&self.map, kind),
            dscp: None,
            binding,
            domain: 0,
            channel,
            port: 0,
            bytes: bytes as u32,
            shed: None,
        }
    }
}

/// The buffers, if needed: only PACKET_OUTs name buffers, and not every map depends on the buffered
/// packets.
fn buffers(direction: Direction, classifier: &Classifier) -> Option<Buffers> {
    let asks = direction == Direction::ToSwitch && classifier.reads_packet_outs();
    asks.then(Buffers::default)
}

impl LineStatus {
    /// Adds the counts of another line under the same map.
    pub fn add(&mut self, other: &LineStatus) {
        for (sum, more) in self.queues.iter_mut().zip(&other.queues) {
            sum.messages_in += more.messages_in;
            sum.bytes_in += more.bytes_in;
            sum.messages_out += more.messages_out;
            sum.bytes_out += more.bytes_out;
            sum.promoted += more.promoted;
            sum.shed_duplicate += more.shed_duplicate;
            sum.shed_stale += more.shed_stale;
            sum.shed_full += more.shed_full;
            sum.forgotten += more.forgotten;
            sum.messages_waiting += more.messages_waiting;
            sum.bytes_waiting += more.bytes_waiting;
        }
        for ((_, sum), (_, more)) in self.rules.iter_mut().zip(&other.rules) {
            *sum += more;
        }
        self.default_hits += other.default_hits;
    }
}
