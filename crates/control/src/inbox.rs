//! What stands between the sessions and the application: bounded, fair, and sheds packet-ins only.
//!
//! Each connection has two queues. Messages other than PACKET_IN are kept in order and never
//! dropped: when they are `messages_max`, [`Inbox::handle_frame`] gives the frame back and the
//! driver stops reading that connection until [`Inbox::has_room`]. Packet-ins are queued by
//! ingress port; when `packet_ins_max` or `packet_in_bytes_max` are waiting, the oldest of the
//! fullest port goes, so that a port which floods pays for it and a quiet port loses nothing. Echoes
//! never come here.
//!
//! The application takes connections in turn, one message each, so that one switch's flood costs
//! another switch one message of delay, not a queue of them. Those that have messages stand in a
//! queue of their own: idle ones cost nothing, however many they are.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use openflow::time::{Duration, Instant};
use openflow::{Frame, MessageKind, PortNo, Version};

use crate::ConnectionId;

#[derive(Clone, Copy, Debug)]
pub struct InboxConfig {
    /// Packet-ins of one connection that may wait.
    pub packet_ins_max: usize,
    /// Their bytes; one of any length is always kept.
    pub packet_in_bytes_max: usize,
    /// Other messages of one connection that may wait.
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
    /// Times a message was given back because its queue was full.
    pub backpressure: u64,
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
    lanes: BTreeMap<ConnectionId, Lane>,
    /// Connections with messages, each once; the first has its turn.
    turns: VecDeque<ConnectionId>,
    counters: InboxCounters,
}

#[derive(Default)]
struct Lane {
    messages: VecDeque<(Instant, Frame)>,
    packet_ins: BTreeMap<PortNo, PortQueue>,
    packet_in_count: usize,
    packet_in_bytes: usize,
    port_served: Option<PortNo>,
    /// Packet-ins and messages take turns, so that neither starves the other.
    packet_in_next: bool,
    shed: u64,
}

#[derive(Default)]
struct PortQueue {
    frames: VecDeque<(Instant, Frame)>,
    bytes: usize,
}

impl Inbox {
    pub fn new(config: InboxConfig) -> Inbox {
        assert!(config.packet_ins_max > 0 && config.messages_max > 0);
        Inbox {
            config,
            lanes: BTreeMap::new(),
            turns: VecDeque::new(),
            counters: InboxCounters::default(),
        }
    }

    /// Queues `frame`, or gives it back when the connection must wait: keep it, stop reading that
    /// connection, and offer it again when [`Inbox::has_room`].
    pub fn handle_frame(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        frame: Frame,
    ) -> Result<(), Frame> {
        let lane = self.lanes.entry(connection).or_default();
        let was_empty = lane.is_empty();
        if frame.kind() == MessageKind::PacketIn {
            self.counters.packet_ins += 1;
            lane.push_packet_in(now, frame);
            self.counters.packet_ins_shed += lane.shed_excess(self.config);
        } else if lane.messages.len() >= self.config.messages_max {
            self.counters.backpressure += 1;
            return Err(frame);
        } else {
            self.counters.messages += 1;
            lane.messages.push_back((now, frame));
        }
        if was_empty {
            self.turns.push_back(connection);
        }
        Ok(())
    }

    /// Whether a message other than a packet-in would be taken.
    pub fn has_room(&self, connection: ConnectionId) -> bool {
        let waiting = self.lanes.get(&connection).map_or(0, |l| l.messages.len());
        waiting < self.config.messages_max
    }

    /// Forgets a connection and what waits of it.
    pub fn handle_down(&mut self, connection: ConnectionId) {
        let lane = self.lanes.remove(&connection);
        if lane.is_some_and(|lane| !lane.is_empty()) {
            self.turns.retain(|turn| *turn != connection);
        }
    }

    /// The next message, connections in turn.
    pub fn poll_frame(&mut self, now: Instant) -> Option<Delivery> {
        let connection = self.turns.pop_front()?;
        let lane = self.lanes.get_mut(&connection)?;
        let (queued_at, frame) = lane.pop()?;
        if !lane.is_empty() {
            self.turns.push_back(connection);
        }
        Some(Delivery {
            connection,
            frame,
            waited: now.since(queued_at),
        })
    }

    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    pub fn counters(&self) -> InboxCounters {
        self.counters
    }

    /// Packet-ins of one connection dropped so far.
    pub fn shed(&self, connection: ConnectionId) -> u64 {
        self.lanes.get(&connection).map_or(0, |lane| lane.shed)
    }

    /// Messages of one connection that wait.
    pub fn backlog(&self, connection: ConnectionId) -> usize {
        let lane = self.lanes.get(&connection);
        lane.map_or(0, |l| l.messages.len() + l.packet_in_count)
    }
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.packet_in_count == 0
    }

    fn pop(&mut self) -> Option<(Instant, Frame)> {
        let packet_in =
            self.packet_in_count > 0 && (self.packet_in_next || self.messages.is_empty());
        self.packet_in_next = !packet_in;
        if !packet_in {
            return self.messages.pop_front();
        }
        let port = self.next_port()?;
        self.port_served = Some(port);
        self.pop_port(port)
    }

    /// The first port after the one served last, around the end.
    fn next_port(&self) -> Option<PortNo> {
        let from = self.port_served.map_or(Bound::Unbounded, Bound::Excluded);
        let mut later = self.packet_ins.range((from, Bound::Unbounded));
        let next = later.next().or_else(|| self.packet_ins.iter().next());
        next.map(|(port, _)| *port)
    }

    fn push_packet_in(&mut self, now: Instant, frame: Frame) {
        let queue = self.packet_ins.entry(ingress_port(&frame)).or_default();
        queue.bytes += frame.len();
        self.packet_in_bytes += frame.len();
        self.packet_in_count += 1;
        queue.frames.push_back((now, frame));
    }

    /// Sheds the oldest of the fullest port until the bounds are kept; how many.
    fn shed_excess(&mut self, config: InboxConfig) -> u64 {
        let mut shed = 0;
        loop {
            let ports = self.packet_ins.iter();
            let fullest = if self.packet_in_count > config.packet_ins_max {
                ports.max_by_key(|(_, queue)| queue.frames.len())
            } else if self.packet_in_bytes > config.packet_in_bytes_max && self.packet_in_count > 1
            {
                ports.max_by_key(|(_, queue)| queue.bytes)
            } else {
                break;
            };
            let Some(port) = fullest.map(|(port, _)| *port) else {
                break;
            };
            self.pop_port(port);
            shed += 1;
        }
        self.shed += shed;
        shed
    }

    fn pop_port(&mut self, port: PortNo) -> Option<(Instant, Frame)> {
        let queue = self.packet_ins.get_mut(&port)?;
        let (queued_at, frame) = queue.frames.pop_front()?;
        queue.bytes -= frame.len();
        self.packet_in_bytes -= frame.len();
        self.packet_in_count -= 1;
        if queue.frames.is_empty() {
            self.packet_ins.remove(&port);
        }
        Some((queued_at, frame))
    }
}

/// The ingress port as it stands in the bytes, `ANY` if it cannot be found. A packet-in is queued
/// by it before anybody knows whether it will be read at all, so it is not worth a whole decode.
fn ingress_port(frame: &Frame) -> PortNo {
    let bytes = frame.bytes();
    let read = || match frame.version()? {
        Version::V10 => Some(u32::from(u16::from_be_bytes(
            *bytes.get(14..)?.first_chunk()?,
        ))),
        _ => {
            // ofp_match at 24: type, length, then OXMs, of which IN_PORT is 0x8000_0004.
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
    use openflow::message::{PacketIn, PacketInReason};
    use openflow::{Cookie, Match, Message, TableId, Xid, encode};

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
            buffer_id: None,
            total_len: 0,
            reason: PacketInReason::NO_MATCH,
            table_id: TableId(0),
            cookie: if version == Version::V10 {
                Cookie(u64::MAX)
            } else {
                Cookie(0)
            },
            r#match: Match::any().with_in_port(PortNo(port)),
            data: bytes::Bytes::new(),
        });
        encode(version, Xid(xid), &message).expect("sayable")
    }

    fn barrier(xid: u32) -> Frame {
        encode(Version::V13, Xid(xid), &Message::BarrierReply).expect("sayable")
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
                .handle_frame(Instant::START, A, barrier(n))
                .expect("room");
        }
        assert!(!inbox.has_room(A) && inbox.has_room(B));
        assert_eq!(
            inbox.handle_frame(Instant::START, A, barrier(2)),
            Err(barrier(2))
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
                .handle_frame(Instant::START, A, barrier(n))
                .expect("room");
        }
        inbox
            .handle_frame(Instant::START, B, barrier(20))
            .expect("room");
        let order = drained(&mut inbox);
        assert_eq!(order, [(1, 10), (2, 20), (1, 0), (1, 11), (1, 1), (1, 2)]);
        assert!(inbox.is_empty());
    }

    #[test]
    fn a_connection_that_went_is_forgotten() {
        let mut inbox = inbox(4, 4);
        inbox
            .handle_frame(Instant::START, A, barrier(1))
            .expect("room");
        inbox.handle_down(A);
        assert!(inbox.is_empty());
        assert_eq!(inbox.poll_frame(Instant::START), None);
    }
}
