//! The waiting messages of one connection, and which of them may go next.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use clock::Instant;
use openflow::{Frame, MessageKind, PortNo};
use sched::policy::QUEUES_MAX;
use sched::{Binding, Tag};

use super::InboxConfig;

/// Number of places for ports. More ports share places by number: the work for each place is
/// bounded.
const PORT_PLACES: u32 = 64;

/// The place of a port among the queues of packet-ins.
pub(super) fn place(port: PortNo) -> u8 {
    (port.0 % PORT_PLACES) as u8
}

pub(super) struct Item {
    queued_at: Instant,
    frame: Frame,
    class: u8,
    kind: Kind,
}

enum Kind {
    Fence,
    State,
    /// Follows this number of state messages of its lane.
    Exchange {
        after: u64,
    },
    /// The reply to a barrier. Follows this number of state messages, and earlier replies.
    Reply {
        after: u64,
    },
    PacketIn {
        port: u8,
        flow: u64,
    },
}

impl Item {
    pub(super) fn new(now: Instant, tag: &Tag, is_packet_in: bool, frame: Frame) -> Item {
        let kind = match tag.binding {
            Binding::Flow { key, .. } if is_packet_in => Kind::PacketIn {
                port: place(PortNo(tag.port)),
                flow: key,
            },
            // A barrier reply concerns messages to the switch, and does not bind packets behind it.
            _ if frame.kind() == MessageKind::BarrierReply => Kind::Reply { after: 0 },
            Binding::Fence => Kind::Fence,
            Binding::Exchange => Kind::Exchange { after: 0 },
            Binding::State | Binding::Free | Binding::Flow { .. } => Kind::State,
        };
        Item {
            queued_at: now,
            class: tag.queue.min(QUEUES_MAX as u8 - 1),
            kind,
            frame,
        }
    }

    pub(super) fn class(&self) -> usize {
        usize::from(self.class)
    }

    pub(super) fn queued_at(&self) -> Instant {
        self.queued_at
    }

    pub(super) fn into_frame(self) -> Frame {
        self.frame
    }
}

/// The queues of one connection. Messages before the first fence are sorted by their binding. The
/// fence and later messages wait in `held` in order of arrival. They are sorted once the fence is
/// taken.
#[derive(Default)]
pub(super) struct Lane {
    state: VecDeque<Item>,
    exchange: VecDeque<Item>,
    replies: VecDeque<Item>,
    packet_ins: BTreeMap<u8, Ports>,
    held: VecDeque<Item>,
    /// Flows with waiting packet-ins: their class and number.
    flows: BTreeMap<u64, (u8, u32)>,
    state_of: Counts,
    exchange_of: Counts,
    replies_of: Counts,
    all_of: Counts,
    len: usize,
    packet_in_count: usize,
    packet_in_bytes: usize,
    /// State messages sorted in, and taken out, so far.
    state_in: u64,
    state_out: u64,
    /// Bits by class: the connection is among the turns of the class; its next turn takes a
    /// packet-in.
    in_turns: u16,
    packet_in_next: u16,
    /// Whether the connection is among those with a reply that may be delivered.
    pub(super) is_answering: bool,
}

/// Counts by class.
type Counts = [u32; QUEUES_MAX];

/// Packet-ins of one class.
#[derive(Default)]
struct Ports {
    queues: BTreeMap<u8, PortQueue>,
    served: Option<u8>,
}

#[derive(Default)]
struct PortQueue {
    items: VecDeque<Item>,
    bytes: usize,
}

impl Lane {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The number of messages other than packet-ins.
    pub(super) fn message_count(&self) -> usize {
        self.len - self.packet_in_count
    }

    pub(super) fn count(&self, class: usize) -> usize {
        self.all_of[class] as usize
    }

    /// Joins the turns of a class. Returns whether the connection was not yet among them.
    pub(super) fn join_turns(&mut self, class: usize) -> bool {
        let is_new = !self.is_in_turns(class);
        self.in_turns |= 1 << class;
        is_new
    }

    pub(super) fn leave_turns(&mut self, class: usize) {
        self.in_turns &= !(1 << class);
    }

    pub(super) fn is_in_turns(&self, class: usize) -> bool {
        self.in_turns & 1 << class != 0
    }

    /// Whether no message waits and no turn is pending.
    pub(super) fn is_done(&self) -> bool {
        self.len == 0 && self.in_turns == 0 && !self.is_answering
    }

    /// Queues an item and returns its class: packet-ins of one flow wait in one class, or a later
    /// one could overtake an earlier one.
    pub(super) fn push(&mut self, mut item: Item) -> usize {
        if let Kind::PacketIn { flow, .. } = item.kind {
            let (class, count) = self.flows.entry(flow).or_insert((item.class, 0));
            *count += 1;
            item.class = *class;
            self.packet_in_count += 1;
            self.packet_in_bytes += item.frame.len();
        }
        let class = item.class();
        self.len += 1;
        self.all_of[class] += 1;
        if self.held.is_empty() && !matches!(item.kind, Kind::Fence) {
            self.sort(item);
        } else {
            self.held.push_back(item);
        }
        class
    }

    fn sort(&mut self, mut item: Item) {
        let class = item.class();
        match &mut item.kind {
            Kind::Fence => unreachable!("a fence is held"),
            Kind::State => {
                self.state_in += 1;
                self.state_of[class] += 1;
                self.state.push_back(item);
            }
            Kind::Exchange { after } => {
                *after = self.state_in;
                self.exchange_of[class] += 1;
                self.exchange.push_back(item);
            }
            Kind::Reply { after } => {
                *after = self.state_in;
                self.replies_of[class] += 1;
                self.replies.push_back(item);
            }
            Kind::PacketIn { port, .. } => {
                let ports = self.packet_ins.entry(item.class).or_default();
                let queue = ports.queues.entry(*port).or_default();
                queue.bytes += item.frame.len();
                queue.items.push_back(item);
            }
        }
    }

    /// Takes the next message in a turn of `class`: a message of the class, or one that it must
    /// follow. At least one message of the class must wait.
    pub(super) fn pop(&mut self, class: usize) -> Item {
        let bit = 1 << class;
        let has_packet_ins = self.packet_ins.contains_key(&(class as u8));
        let sorted = self.state_of[class] + self.exchange_of[class] + self.replies_of[class];
        let has_others = sorted > 0 || self.held_of(class) > 0;
        let item = if has_packet_ins && (self.packet_in_next & bit != 0 || !has_others) {
            self.packet_in_next &= !bit;
            self.pop_packet_in(class as u8)
        } else {
            self.packet_in_next |= bit;
            if self.replies_of[class] > 0 && self.has_answer() {
                self.pop_reply()
            } else if self.state_of[class] > 0 {
                self.pop_state()
            } else if self.exchange_of[class] > 0 {
                self.pop_exchange()
            } else if self.replies_of[class] > 0 {
                self.pop_reply()
            } else {
                self.pop_towards_fence()
            }
        };
        let item = item.expect("one of the class waits");
        self.note_gone(&item);
        item
    }

    /// Whether there is a reply that need not follow any waiting message.
    pub(super) fn has_answer(&self) -> bool {
        match self.replies.front().map(|item| &item.kind) {
            Some(Kind::Reply { after }) => *after <= self.state_out,
            _ => false,
        }
    }

    /// Takes the reply that may go, if there is one.
    pub(super) fn pop_answer(&mut self) -> Option<Item> {
        let item = self.has_answer().then(|| self.pop_reply())??;
        self.note_gone(&item);
        Some(item)
    }

    /// The number of messages of a class in `held`: the fence and those behind it.
    fn held_of(&self, class: usize) -> u32 {
        if self.held.is_empty() {
            return 0;
        }
        let packet_ins = self.packet_ins.get(&(class as u8));
        let packet_ins = packet_ins.map_or(0, |ports| {
            let queues = ports.queues.values();
            queues.map(|queue| queue.items.len() as u32).sum()
        });
        let sorted = self.state_of[class] + self.exchange_of[class] + self.replies_of[class];
        self.all_of[class] - sorted - packet_ins
    }

    fn pop_state(&mut self) -> Option<Item> {
        let item = self.state.pop_front()?;
        self.state_out += 1;
        self.state_of[item.class()] -= 1;
        Some(item)
    }

    fn pop_exchange(&mut self) -> Option<Item> {
        if let Some(Kind::Exchange { after }) = self.exchange.front().map(|item| &item.kind)
            && *after > self.state_out
        {
            return self.pop_state();
        }
        let item = self.exchange.pop_front()?;
        self.exchange_of[item.class()] -= 1;
        Some(item)
    }

    fn pop_reply(&mut self) -> Option<Item> {
        if !self.has_answer() && !self.replies.is_empty() {
            return self.pop_state();
        }
        let item = self.replies.pop_front()?;
        self.replies_of[item.class()] -= 1;
        Some(item)
    }

    /// Takes the messages before the first fence, then the fence.
    fn pop_towards_fence(&mut self) -> Option<Item> {
        if !self.state.is_empty() {
            return self.pop_state();
        }
        if !self.replies.is_empty() {
            return self.pop_reply();
        }
        if !self.exchange.is_empty() {
            return self.pop_exchange();
        }
        if let Some((&class, _)) = self.packet_ins.first_key_value() {
            return self.pop_packet_in(class);
        }
        let fence = self.held.pop_front();
        while let Some(item) = self.held.pop_front() {
            if matches!(item.kind, Kind::Fence) {
                self.held.push_front(item);
                break;
            }
            self.sort(item);
        }
        fence
    }

    /// Takes a packet-in of the next port after the one served last, round robin.
    fn pop_packet_in(&mut self, class: u8) -> Option<Item> {
        let ports = self.packet_ins.get_mut(&class)?;
        let from = ports.served.map_or(Bound::Unbounded, Bound::Excluded);
        let later = ports.queues.range((from, Bound::Unbounded)).next();
        let next = later.or_else(|| ports.queues.iter().next());
        let port = next.map(|(port, _)| *port)?;
        ports.served = Some(port);
        self.pop_port(class, port)
    }

    fn pop_port(&mut self, class: u8, port: u8) -> Option<Item> {
        let ports = self.packet_ins.get_mut(&class)?;
        let queue = ports.queues.get_mut(&port)?;
        let item = queue.items.pop_front()?;
        queue.bytes -= item.frame.len();
        if queue.items.is_empty() {
            ports.queues.remove(&port);
            if ports.queues.is_empty() {
                self.packet_ins.remove(&class);
            }
        }
        Some(item)
    }

    fn note_gone(&mut self, item: &Item) {
        self.len -= 1;
        self.all_of[item.class()] -= 1;
        if let Kind::PacketIn { flow, .. } = item.kind {
            self.packet_in_count -= 1;
            self.packet_in_bytes -= item.frame.len();
            if let Some((_, count)) = self.flows.get_mut(&flow) {
                *count -= 1;
                if *count == 0 {
                    self.flows.remove(&flow);
                }
            }
        }
    }

    /// Sheds one packet-in if there are too many. Returns its class, and its port's place if it was
    /// in a queue.
    pub(super) fn shed_excess(&mut self, config: InboxConfig) -> Option<(usize, Option<u8>)> {
        let too_many = self.packet_in_count > config.packet_ins_max;
        let too_long =
            self.packet_in_bytes > config.packet_in_bytes_max && self.packet_in_count > 1;
        if !too_many && !too_long {
            return None;
        }
        let (item, port) = match self.packet_ins.last_key_value() {
            Some((&class, ports)) => {
                let queues = ports.queues.iter();
                let fullest = queues.max_by_key(|(_, queue)| match too_many {
                    true => queue.items.len(),
                    false => queue.bytes,
                });
                let port = fullest.map(|(port, _)| *port)?;
                (self.pop_port(class, port)?, Some(port))
            }
            // All packet-ins are behind a fence, with the newest last.
            None => (self.held.pop_back()?, None),
        };
        self.note_gone(&item);
        Some((item.class(), port))
    }
}
