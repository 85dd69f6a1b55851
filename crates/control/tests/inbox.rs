//! The inbox compared with a literal model of its description: lists, searched from the front.

use std::collections::BTreeMap;

use bytes::Bytes;
use clock::Instant;
use control::ConnectionId;
use control::inbox::{Inbox, InboxConfig};
use openflow::message::PacketIn;
use openflow::{Frame, Message, PortNo, Version, Xid, encode};
use proptest::prelude::*;

const CONFIG: InboxConfig = InboxConfig {
    packet_ins_max: 6,
    packet_in_bytes_max: 900,
    messages_max: 3,
};

#[derive(Default)]
struct Lane {
    messages: Vec<Frame>,
    /// In order of arrival.
    packet_ins: Vec<(u32, Frame)>,
    port_served: Option<u32>,
    packet_in_next: bool,
    shed: u64,
    /// Messages of other connections delivered while messages of this one waited.
    passed_over: usize,
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.packet_ins.is_empty()
    }

    fn push_packet_in(&mut self, port: u32, frame: Frame) {
        self.packet_ins.push((port, frame));
        let total = |lane: &Lane| lane.packet_ins.iter().map(|(_, f)| f.len()).sum::<usize>();
        loop {
            let weigh: fn(&Frame) -> usize = if self.packet_ins.len() > CONFIG.packet_ins_max {
                |_| 1
            } else if total(self) > CONFIG.packet_in_bytes_max && self.packet_ins.len() > 1 {
                Frame::len
            } else {
                return;
            };
            let mut weights = BTreeMap::<u32, usize>::new();
            for (port, frame) in &self.packet_ins {
                *weights.entry(*port).or_default() += weigh(frame);
            }
            let fullest = *weights.iter().max_by_key(|(_, weight)| **weight).unwrap().0;
            let oldest = self
                .packet_ins
                .iter()
                .position(|(port, _)| *port == fullest);
            self.packet_ins.remove(oldest.unwrap());
            self.shed += 1;
        }
    }

    fn pop(&mut self) -> Frame {
        let packet_in =
            self.messages.is_empty() || !self.packet_ins.is_empty() && self.packet_in_next;
        self.packet_in_next = !packet_in;
        if !packet_in {
            let message = self.messages.remove(0);
            self.forget_turns();
            return message;
        }
        let mut ports: Vec<u32> = self.packet_ins.iter().map(|(port, _)| *port).collect();
        ports.sort_unstable();
        let later = ports.iter().find(|port| Some(**port) > self.port_served);
        let port = *later.unwrap_or(&ports[0]);
        self.port_served = Some(port);
        let oldest = self.packet_ins.iter().position(|(at, _)| *at == port);
        let packet_in = self.packet_ins.remove(oldest.unwrap()).1;
        self.forget_turns();
        packet_in
    }

    /// Forgets whose turn is next once nothing waits.
    fn forget_turns(&mut self) {
        if self.packet_ins.is_empty() {
            self.port_served = None;
        }
        if self.is_empty() {
            self.packet_in_next = false;
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    PacketIn {
        connection: u64,
        port: u32,
        len: usize,
    },
    Message {
        connection: u64,
    },
    Poll,
    Down {
        connection: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let connection = 0..5u64;
    prop_oneof![
        6 => (connection.clone(), 1..4u32, 0..400usize)
            .prop_map(|(connection, port, len)| Step::PacketIn { connection, port, len }),
        3 => connection.clone().prop_map(|connection| Step::Message { connection }),
        6 => Just(Step::Poll),
        1 => connection.prop_map(|connection| Step::Down { connection }),
    ]
}

fn packet_in(xid: u32, port: u32, len: usize) -> Frame {
    let message = Message::PacketIn(PacketIn {
        total_len: 0,
        ..PacketIn::new(PortNo(port), Bytes::from(vec![0; len]))
    });
    encode(Version::V13, Xid(xid), &message).unwrap()
}

proptest! {
    #[test]
    fn order_turns_and_what_is_shed_are_as_described(
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let mut inbox = Inbox::new(CONFIG);
        let mut lanes = BTreeMap::<u64, Lane>::new();
        for (xid, step) in (0..).zip(steps) {
            match step {
                Step::PacketIn { connection, port, len } => {
                    let frame = packet_in(xid, port, len);
                    let id = ConnectionId(connection);
                    let taken = inbox.handle_frame(Instant::START, id, frame.clone());
                    prop_assert_eq!(taken, Ok(()));
                    lanes.entry(connection).or_default().push_packet_in(port, frame);
                }
                Step::Message { connection } => {
                    let reply = Message::EchoReply(Bytes::new());
                    let frame = encode(Version::V13, Xid(xid), &reply).unwrap();
                    let id = ConnectionId(connection);
                    let taken = inbox.handle_frame(Instant::START, id, frame.clone());
                    let lane = lanes.entry(connection).or_default();
                    let has_room = lane.messages.len() < CONFIG.messages_max;
                    prop_assert_eq!(taken.is_ok(), has_room);
                    if has_room {
                        lane.messages.push(frame);
                    }
                }
                Step::Poll => {
                    let delivery = inbox.poll_frame(Instant::START);
                    let is_empty = lanes.values().all(Lane::is_empty);
                    prop_assert_eq!(delivery.is_none(), is_empty);
                    let Some(delivery) = delivery else {
                        continue;
                    };
                    let lane = lanes.get_mut(&delivery.connection.0).unwrap();
                    prop_assert!(!lane.is_empty());
                    prop_assert_eq!(lane.pop(), delivery.frame);
                    for (connection, lane) in &mut lanes {
                        let waits = *connection != delivery.connection.0 && !lane.is_empty();
                        lane.passed_over = if waits { lane.passed_over + 1 } else { 0 };
                        prop_assert!(lane.passed_over < 5, "others had two turns");
                    }
                }
                Step::Down { connection } => {
                    inbox.handle_down(ConnectionId(connection));
                    lanes.remove(&connection);
                }
            }
            prop_assert_eq!(inbox.is_empty(), lanes.values().all(Lane::is_empty));
            for connection in 0..5 {
                let (id, lane) = (ConnectionId(connection), lanes.get(&connection));
                let backlog = lane.map_or(0, |l| l.messages.len() + l.packet_ins.len());
                prop_assert_eq!(inbox.backlog(id), backlog);
                prop_assert_eq!(inbox.shed(id), lane.map_or(0, |l| l.shed));
            }
        }
    }
}
