//! The inbox between the sessions and the application: bounded and fair. It sheds only packet-ins.
//!
//! Each waiting message has a class: the queue that the policy map assigns to it. These rules
//! choose the next message:
//!
//! - *Classes.* The most urgent class is served first, unless another class has been passed over
//!   [`PASSED_OVER_MAX`] times. So no class starves during a flood in a more urgent class.
//! - *Connections.* Within a class, connections take turns, one message each. A flood from one
//!   switch therefore delays another switch by one message, not by a queue. Idle connections cost
//!   nothing, whatever their number. Within a connection, packet-ins and other messages take turns,
//!   and so do the ports of packet-ins.
//! - *Answers.* A barrier reply completes a change, and a packet-in begins one. So replies go
//!   before all classes, as soon as the earlier messages that they must follow are delivered. No
//!   reply waits for earlier packet-ins. There are no more replies than barriers. If a peer sends
//!   more, the classes still get a turn after every [`PASSED_OVER_MAX`] replies.
//! - *Order*, as OpenFlow requires on one connection ([`sched::order::must_follow`]): no message
//!   crosses a fence, state messages stay in order with replies behind them, and packet-ins of one
//!   flow stay in order. The messages that an urgent message must follow are delivered first, in
//!   its turn.
//!
//! Messages other than PACKET_IN are never dropped. When `messages_max` of them wait on one
//! connection, [`Inbox::handle_frame`] returns the frame, and the driver stops reading that
//! connection until [`Inbox::has_room`]. When `packet_ins_max` or `packet_in_bytes_max` are
//! waiting, the inbox drops the oldest packet-in of the fullest port in the least urgent class. So
//! a flooding port pays for its flood, and a quiet port loses nothing. If all packet-ins wait
//! behind a fence, the inbox drops the newest. Echoes never enter the inbox.

use std::collections::{BTreeMap, VecDeque};

use clock::{Duration, Instant};
use openflow::{Frame, MessageKind, PortNo, Version};
use sched::policy::QUEUES_MAX;
use sched::{Binding, Direction, Droppable, Order, Tag, class_of};

use crate::ConnectionId;
use crate::histogram::Histogram;

mod lane;
mod thinning;

use lane::{Item, Lane};
use thinning::Flood;
pub use thinning::Thinning;

/// Maximum number of messages of other classes before a waiting class is served.
pub const PASSED_OVER_MAX: u32 = 16;

#[derive(Clone, Copy, Debug)]
pub struct InboxConfig {
    /// Maximum number of waiting packet-ins of one connection.
    pub packet_ins_max: usize,
    /// Maximum total bytes of these packet-ins; one of any length is always kept.
    pub packet_in_bytes_max: usize,
    /// Maximum number of other waiting messages of one connection.
    pub messages_max: usize,
}

impl Default for InboxConfig {
    fn default() -> Self {
        InboxConfig {
            packet_ins_max: 1024,
            packet_in_bytes_max: 4 << 20,
            messages_max: 1024,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InboxCounters {
    pub packet_ins: u64,
    /// Packet-ins dropped because their connection's queue was full.
    pub packet_ins_shed: u64,
    pub messages: u64,
    /// Messages returned because their queue was full.
    pub backpressure: u64,
}

/// Counters of one class. Each incoming message was delivered, was shed, was forgotten with its
/// connection, or still waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounters {
    pub messages_in: u64,
    pub delivered: u64,
    pub shed: u64,
    pub forgotten: u64,
    pub waiting: usize,
    /// Waiting times of the delivered messages.
    pub waited: Histogram,
}

/// A message for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub connection: ConnectionId,
    pub frame: Frame,
    pub waited: Duration,
}

pub struct Inbox {
    config: InboxConfig,
    lanes: BTreeMap<ConnectionId, Line>,
    classes: [Class; QUEUES_MAX],
    /// Connections with a reply that may be delivered; each once.
    answering: VecDeque<ConnectionId>,
    /// The number of replies delivered in a row.
    answers_in_row: u32,
    waiting: usize,
    counters: InboxCounters,
}

/// A connection. An empty line uses no memory for messages.
#[derive(Default)]
struct Line {
    lane: Option<Box<Lane>>,
    shed: u64,
    /// The class and port shed last.
    flood: Option<Flood>,
}

#[derive(Default)]
struct Class {
    /// Connections that have messages of the class, or had some when they were added; each once.
    /// The first has the next turn.
    turns: VecDeque<ConnectionId>,
    passed_over: u32,
    counters: ClassCounters,
}

impl Inbox {
    /// Replaces the limits. Messages already waiting beyond the new limits go in their turn.
    pub fn set_config(&mut self, config: InboxConfig) {
        assert!(config.packet_ins_max > 0 && config.messages_max > 0);
        self.config = config;
    }

    pub fn new(config: InboxConfig) -> Inbox {
        assert!(config.packet_ins_max > 0 && config.messages_max > 0);
        Inbox {
            config,
            lanes: BTreeMap::new(),
            classes: Default::default(),
            answering: VecDeque::new(),
            answers_in_row: 0,
            waiting: 0,
            counters: InboxCounters::default(),
        }
    }

    /// Queues `frame` like [`Inbox::handle_tagged`], with all frames in one class.
    pub fn handle_frame(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        frame: Frame,
    ) -> Result<(), Frame> {
        let tag = untagged(&frame, connection);
        self.handle_tagged(now, connection, &tag, frame)
    }

    /// Queues `frame`, or returns it when the connection must wait: keep it, stop reading that
    /// connection, and offer it again when [`Inbox::has_room`].
    pub fn handle_tagged(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        tag: &Tag,
        frame: Frame,
    ) -> Result<(), Frame> {
        let line = self.lanes.entry(connection).or_default();
        let lane = line.lane.get_or_insert_default();
        let is_packet_in = frame.kind() == MessageKind::PacketIn;
        if is_packet_in {
            self.counters.packet_ins += 1;
        } else if lane.message_count() >= self.config.messages_max {
            self.counters.backpressure += 1;
            return Err(frame);
        } else {
            self.counters.messages += 1;
        }
        let class = lane.push(Item::new(now, tag, is_packet_in, frame));
        self.classes[class].counters.messages_in += 1;
        self.classes[class].counters.waiting += 1;
        self.waiting += 1;
        if lane.join_turns(class) {
            self.classes[class].turns.push_back(connection);
        }
        if !lane.is_answering && lane.has_answer() {
            lane.is_answering = true;
            self.answering.push_back(connection);
        }
        while is_packet_in && let Some((class, port)) = lane.shed_excess(self.config) {
            line.flood = port.map(|port| Flood { class, port });
            line.shed += 1;
            self.waiting -= 1;
            self.counters.packet_ins_shed += 1;
            self.classes[class].counters.shed += 1;
            self.classes[class].counters.waiting -= 1;
        }
        Ok(())
    }

    /// Runs `queue`, which queues messages of this connection. Counts the packet-ins that
    /// `thinning` has dropped. Decides, from the packet-ins shed, which ones `thinning` drops from
    /// now on.
    pub fn thin(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        thinning: &mut Thinning,
        queue: impl FnOnce(&mut Inbox),
    ) {
        if let Some((flood, dropped)) = thinning.take_dropped() {
            let class = &mut self.classes[flood.class].counters;
            class.messages_in += dropped;
            class.shed += dropped;
            self.counters.packet_ins += dropped;
            self.counters.packet_ins_shed += dropped;
            self.lanes.entry(connection).or_default().shed += dropped;
        }
        let before = (self.counters.packet_ins, self.shed(connection));
        queue(self);
        let given = self.counters.packet_ins - before.0;
        let shed = self.shed(connection) - before.1;
        let line = self
            .lanes
            .get(&connection)
            .filter(|_| shed > 0 && 2 * shed >= given);
        thinning.handle_delivered(now, line.and_then(|line| line.flood));
    }

    /// Whether a message other than a packet-in would be accepted.
    pub fn has_room(&self, connection: ConnectionId) -> bool {
        let waiting = self.lane(connection).map_or(0, Lane::message_count);
        waiting < self.config.messages_max
    }

    /// Forgets a connection and its waiting messages.
    pub fn handle_down(&mut self, connection: ConnectionId) {
        let line = self.lanes.remove(&connection);
        let Some(lane) = line.and_then(|line| line.lane) else {
            return;
        };
        self.waiting -= lane.len();
        if lane.is_answering {
            self.answering.retain(|turn| *turn != connection);
        }
        for (number, class) in self.classes.iter_mut().enumerate() {
            let forgotten = lane.count(number);
            class.counters.waiting -= forgotten;
            class.counters.forgotten += forgotten as u64;
            if lane.is_in_turns(number) {
                class.turns.retain(|turn| *turn != connection);
            }
        }
    }

    /// Returns the next message.
    pub fn poll_frame(&mut self, now: Instant) -> Option<Delivery> {
        let (connection, item) = match self.next_answer() {
            Some(next) => next,
            None => self.next_in_turn()?,
        };
        if let Some(line) = self.lanes.get_mut(&connection)
            && let Some(lane) = line.lane.as_mut()
        {
            // A reply may have waited for this message.
            if !lane.is_answering && lane.has_answer() {
                lane.is_answering = true;
                self.answering.push_back(connection);
            }
            if lane.is_done() {
                line.lane = None;
            }
        }
        self.waiting -= 1;
        let counters = &mut self.classes[item.class()].counters;
        counters.waiting -= 1;
        counters.delivered += 1;
        let waited = now.since(item.queued_at());
        counters.waited.handle(waited);
        Some(Delivery {
            connection,
            waited,
            frame: item.into_frame(),
        })
    }

    fn next_answer(&mut self) -> Option<(ConnectionId, Item)> {
        if self.answers_in_row >= PASSED_OVER_MAX {
            self.answers_in_row = 0;
            if self.next_class().is_some() {
                return None;
            }
        }
        while let Some(connection) = self.answering.pop_front() {
            let line = self.lanes.get_mut(&connection)?;
            let lane = line.lane.as_mut()?;
            lane.is_answering = false;
            if let Some(item) = lane.pop_answer() {
                self.answers_in_row += 1;
                return Some((connection, item));
            }
            // The reply was delivered in a turn of its class.
            if lane.is_done() {
                line.lane = None;
            }
        }
        None
    }

    fn next_in_turn(&mut self) -> Option<(ConnectionId, Item)> {
        loop {
            let class = self.next_class()?;
            let connection = self.classes[class].turns.pop_front()?;
            let line = self.lanes.get_mut(&connection)?;
            let lane = line.lane.as_mut()?;
            if lane.count(class) == 0 {
                // The connection's messages of the class were delivered in other turns.
                lane.leave_turns(class);
                if lane.is_done() {
                    line.lane = None;
                }
                continue;
            }
            let item = lane.pop(class);
            if lane.count(class) > 0 {
                self.classes[class].turns.push_back(connection);
            } else {
                lane.leave_turns(class);
            }
            self.note_turn(class);
            self.answers_in_row = 0;
            return Some((connection, item));
        }
    }

    /// The most urgent class that may have messages, or the one that was passed over too often.
    fn next_class(&self) -> Option<usize> {
        let waits = |class: &usize| !self.classes[*class].turns.is_empty();
        let is_due = |class: &usize| self.classes[*class].passed_over >= PASSED_OVER_MAX;
        let most_urgent = (0..QUEUES_MAX).find(waits)?;
        let mut others = (most_urgent..QUEUES_MAX).filter(waits).filter(is_due);
        let due = others.next();
        let due = others.fold(due, |due, class| {
            let passed_over = |class: usize| self.classes[class].passed_over;
            due.filter(|due| passed_over(*due) >= passed_over(class))
                .or(Some(class))
        });
        Some(due.unwrap_or(most_urgent))
    }

    fn note_turn(&mut self, served: usize) {
        for (number, class) in self.classes.iter_mut().enumerate() {
            class.passed_over = match number == served || class.counters.waiting == 0 {
                true => 0,
                false => class.passed_over + 1,
            };
        }
    }

    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    pub fn counters(&self) -> InboxCounters {
        self.counters
    }

    /// The counters by class, the most urgent first.
    pub fn class_counters(&self) -> [ClassCounters; QUEUES_MAX] {
        std::array::from_fn(|class| self.classes[class].counters)
    }

    /// Packet-ins of one connection dropped so far.
    pub fn shed(&self, connection: ConnectionId) -> u64 {
        self.lanes.get(&connection).map_or(0, |line| line.shed)
    }

    /// The number of waiting messages of one connection.
    pub fn backlog(&self, connection: ConnectionId) -> usize {
        self.lane(connection).map_or(0, Lane::len)
    }

    fn lane(&self, connection: ConnectionId) -> Option<&Lane> {
        self.lanes.get(&connection)?.lane.as_deref()
    }
}

/// The tag without a policy map: one class, and the order that the type requires.
fn untagged(frame: &Frame, connection: ConnectionId) -> Tag {
    let port = match frame.kind() {
        MessageKind::PacketIn => ingress_port(frame).0,
        _ => 0,
    };
    Tag {
        queue: 0,
        dscp: None,
        binding: match class_of(frame.kind()).order {
            Order::Fence => Binding::Fence,
            Order::State => Binding::State,
            Order::Exchange => Binding::Exchange,
            Order::Free => Binding::Free,
            // All packet-ins of one port stay in order, so the packet-ins of each flow do too.
            Order::Flow => Binding::Flow {
                key: u64::from(port),
                after_state: false,
            },
        },
        domain: 0,
        channel: connection.0,
        port,
        bytes: frame.len() as u32,
        shed: Droppable::of(frame, Direction::ToController),
    }
}

/// Reads the ingress port from the bytes; `ANY` if it cannot be found. A packet-in is queued by its
/// port and may never be read, so decoding all of it is not worth the cost.
fn ingress_port(frame: &Frame) -> PortNo {
    let bytes = frame.bytes();
    let read = || match frame.version()? {
        Version::V10 => Some(u32::from(u16::from_be_bytes(
            *bytes.get(14..)?.first_chunk()?,
        ))),
        _ => {
            // ofp_match at 24: type, length, then OXMs; IN_PORT is 0x8000_0004.
            let len = u16::from_be_bytes(*bytes.get(26..)?.first_chunk()?);
            let mut oxms = bytes.get(28..24 + usize::from(len))?;
            while let Some(header) = oxms.first_chunk::<4>() {
                if *header == [0x80, 0, 0, 4] {
                    return Some(u32::from_be_bytes(*oxms.get(4..)?.first_chunk()?));
                }
                oxms = oxms.get(4 + usize::from(header[3])..)?;
            }
            None
        }
    };
    read().map_or(PortNo::ANY, PortNo)
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::message::{ErrorMessage, PacketIn};
    use openflow::{Cookie, ErrorKind, Message, Xid, encode};

    const A: ConnectionId = ConnectionId(1);
    const B: ConnectionId = ConnectionId(2);

    fn inbox(packet_ins_max: usize, messages_max: usize) -> Inbox {
        Inbox::new(InboxConfig {
            packet_ins_max,
            messages_max,
            ..InboxConfig::default()
        })
    }

    fn packet_in(version: Version, port: u32, xid: u32) -> Frame {
        let message = Message::PacketIn(PacketIn {
            cookie: if version == Version::V10 {
                Cookie(u64::MAX)
            } else {
                Cookie(0)
            },
            total_len: 0,
            ..PacketIn::new(PortNo(port), bytes::Bytes::new())
        });
        encode(version, Xid(xid), &message).expect("sayable")
    }

    /// A message that is neither packet-in nor fence.
    fn notice(xid: u32) -> Frame {
        encode(Version::V13, Xid(xid), &Message::GetConfigRequest).expect("sayable")
    }

    fn drained(inbox: &mut Inbox) -> Vec<(u64, u32)> {
        let next = || inbox.poll_frame(Instant::START);
        std::iter::from_fn(next)
            .map(|d| (d.connection.0, d.frame.xid().0))
            .collect()
    }

    #[test]
    fn the_flooding_port_pays_and_the_quiet_one_loses_nothing() {
        for version in [Version::V10, Version::V13] {
            let mut inbox = inbox(10, 1);
            inbox
                .handle_frame(Instant::START, A, packet_in(version, 7, 700))
                .expect("taken");
            for n in 0..100 {
                inbox
                    .handle_frame(Instant::START, A, packet_in(version, 1, n))
                    .expect("taken");
            }
            assert_eq!((inbox.shed(A), inbox.backlog(A)), (91, 10));
            let xids: Vec<u32> = drained(&mut inbox)
                .into_iter()
                .map(|(_, xid)| xid)
                .collect();
            assert_eq!(
                xids,
                [91, 700, 92, 93, 94, 95, 96, 97, 98, 99],
                "the oldest went"
            );
        }
    }

    #[test]
    fn other_messages_are_given_back_in_order_and_never_dropped() {
        let mut inbox = inbox(1, 2);
        for n in 0..2 {
            inbox
                .handle_frame(Instant::START, A, notice(n))
                .expect("room");
        }
        assert!(!inbox.has_room(A) && inbox.has_room(B));
        assert_eq!(
            inbox.handle_frame(Instant::START, A, notice(2)),
            Err(notice(2))
        );
        assert_eq!(drained(&mut inbox), [(1, 0), (1, 1)]);
        assert!(inbox.has_room(A));
        assert_eq!(
            (
                inbox.counters().backpressure,
                inbox.counters().packet_ins_shed
            ),
            (1, 0)
        );
    }

    #[test]
    fn connections_take_turns_and_so_do_kinds() {
        let mut inbox = inbox(100, 100);
        for n in 0..3 {
            inbox
                .handle_frame(Instant::START, A, packet_in(Version::V13, 1, n))
                .expect("taken");
        }
        for n in 10..12 {
            inbox
                .handle_frame(Instant::START, A, notice(n))
                .expect("room");
        }
        inbox
            .handle_frame(Instant::START, B, notice(20))
            .expect("room");
        let order = drained(&mut inbox);
        assert_eq!(order, [(1, 10), (2, 20), (1, 0), (1, 11), (1, 1), (1, 2)]);
        assert!(inbox.is_empty());
    }

    fn reply(xid: u32) -> Frame {
        encode(Version::V13, Xid(xid), &Message::BarrierReply).expect("sayable")
    }

    #[test]
    fn replies_to_barriers_go_before_packet_ins_and_behind_what_was_said_before_them() {
        let mut inbox = inbox(100, 100);
        let mut push = |connection, frame| {
            let taken = inbox.handle_frame(Instant::START, connection, frame);
            taken.expect("taken");
        };
        for n in 0..50 {
            push(A, packet_in(Version::V13, 1, n));
            push(B, packet_in(Version::V13, 1, n));
        }
        push(A, reply(100));
        let error = Message::Error(ErrorMessage::new(
            ErrorKind::FLOW_MOD_TABLE_FULL,
            bytes::Bytes::new(),
        ));
        push(B, encode(Version::V13, Xid(200), &error).expect("sayable"));
        push(B, reply(201));
        push(A, reply(101));
        push(A, packet_in(Version::V13, 1, 50));
        let order = drained(&mut inbox);
        // The reply of B follows the error, which has its turn among packet-ins.
        assert_eq!(order[..2], [(1, 100), (1, 101)]);
        let at = |message| order.iter().position(|m| *m == message).expect("delivered");
        assert!(at((2, 200)) < at((2, 201)) && at((2, 201)) < 6, "{order:?}");
        assert!(inbox.is_empty() && order.len() == 105);
    }

    #[test]
    fn a_flood_of_replies_leaves_turns_to_others() {
        let mut inbox = inbox(100, 1000);
        for n in 0..500 {
            let taken = inbox.handle_frame(Instant::START, A, reply(n));
            taken.expect("room");
        }
        for n in 0..10 {
            let taken = inbox.handle_frame(Instant::START, B, packet_in(Version::V13, 1, n));
            taken.expect("taken");
        }
        let order = drained(&mut inbox);
        let last = order.iter().rposition(|(connection, _)| *connection == 2);
        let turns = 2 * 10 * (PASSED_OVER_MAX as usize + 1);
        assert!(last.expect("delivered") < turns, "{last:?}");
        assert_eq!(order.len(), 510);
    }

    #[test]
    fn a_connection_that_went_is_forgotten() {
        let mut inbox = inbox(4, 4);
        inbox
            .handle_frame(Instant::START, A, notice(1))
            .expect("room");
        inbox.handle_down(A);
        assert!(inbox.is_empty());
        assert_eq!(inbox.poll_frame(Instant::START), None);
    }
}
