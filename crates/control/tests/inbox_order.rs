//! The inbox against OpenFlow's law of order, and against starvation.

use std::collections::BTreeMap;

use bytes::Bytes;
use clock::Instant;
use control::ConnectionId;
use control::inbox::{Inbox, InboxConfig, PASSED_OVER_MAX};
use openflow::message::PacketIn;
use openflow::{Frame, Message, PortNo, Version, Xid, encode};
use proptest::prelude::*;
use sched::order::must_follow;
use sched::{Binding, Direction, Droppable, Tag};

const CONFIG: InboxConfig = InboxConfig {
    packet_ins_max: 12,
    packet_in_bytes_max: 1 << 20,
    messages_max: 8,
};

fn packet_in(xid: u32) -> Frame {
    let message = Message::PacketIn(PacketIn::new(PortNo(1), Bytes::new()));
    encode(Version::V13, Xid(xid), &message).unwrap()
}

fn message(xid: u32, binding: Binding) -> Frame {
    match binding {
        Binding::Flow { .. } => packet_in(xid),
        _ => encode(Version::V13, Xid(xid), &Message::EchoReply(Bytes::new())).unwrap(),
    }
}

fn tag(frame: &Frame, connection: u64, queue: u8, port: u32, binding: Binding) -> Tag {
    Tag {
        queue,
        dscp: None,
        binding,
        domain: 0,
        channel: connection,
        port,
        bytes: frame.len() as u32,
        shed: Droppable::of(frame, Direction::ToController),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push {
        connection: u64,
        queue: u8,
        binding: Binding,
    },
    Poll,
    Down(u64),
}

fn binding() -> impl Strategy<Value = Binding> {
    prop_oneof![
        1 => Just(Binding::Fence),
        3 => Just(Binding::State),
        2 => Just(Binding::Exchange),
        8 => (0..6u64).prop_map(|key| Binding::Flow { key, after_state: false }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => (0..4u64, 0..4u8, binding())
            .prop_map(|(connection, queue, binding)| Step::Push { connection, queue, binding }),
        50 => Just(Step::Poll),
        1 => (0..4u64).prop_map(Step::Down),
    ]
}

proptest! {
    /// A connection's messages are delivered in a lawful order, each once, and only packet-ins are
    /// missing, whatever the class of each message and whatever is shed.
    #[test]
    fn nothing_overtakes_what_it_must_follow(steps in prop::collection::vec(step(), 0..400)) {
        let mut inbox = Inbox::new(CONFIG);
        // Undelivered messages, by connection.
        let mut waiting = BTreeMap::<u64, Vec<(u32, Binding)>>::new();
        let polls = std::iter::repeat_n(Step::Poll, 200);
        for (xid, step) in (0..).zip(steps.into_iter().chain(polls)) {
            match step {
                Step::Push { connection, queue, binding } => {
                    let frame = message(xid, binding);
                    // A flow has one port.
                    let port = match binding {
                        Binding::Flow { key, .. } => (key % 3) as u32,
                        _ => 0,
                    };
                    let tag = tag(&frame, connection, queue, port, binding);
                    let id = ConnectionId(connection);
                    if inbox.handle_tagged(Instant::START, id, &tag, frame).is_ok() {
                        waiting.entry(connection).or_default().push((xid, binding));
                    }
                }
                Step::Poll => {
                    let Some(delivery) = inbox.poll_frame(Instant::START) else {
                        prop_assert!(inbox.is_empty());
                        continue;
                    };
                    let lane = waiting.get_mut(&delivery.connection.0).unwrap();
                    let xid = delivery.frame.xid().0;
                    let at = lane.iter().position(|(waits, _)| *waits == xid).unwrap();
                    let (_, delivered) = lane.remove(at);
                    let mut lost = Vec::new();
                    for (n, (_, earlier)) in lane[..at].iter().enumerate() {
                        let (earlier, later) = ((*earlier, 0), (delivered, 0));
                        if must_follow(Direction::ToController, earlier, later) {
                            lost.push(n);
                        }
                    }
                    // They were shed, or the message has overtaken them and they are delivered
                    // later.
                    for n in lost.into_iter().rev() {
                        let (xid, binding) = lane.remove(n);
                        let is_packet_in = matches!(binding, Binding::Flow { .. });
                        prop_assert!(is_packet_in, "{xid} {binding:?} was overtaken");
                    }
                }
                Step::Down(connection) => {
                    inbox.handle_down(ConnectionId(connection));
                    waiting.remove(&connection);
                }
            }
        }
        prop_assert!(inbox.is_empty());
        let left: usize = waiting.values().map(Vec::len).sum();
        prop_assert!(left as u64 <= inbox.counters().packet_ins_shed);
        for lane in waiting.values() {
            let are_packet_ins = lane.iter().all(|(_, b)| matches!(b, Binding::Flow { .. }));
            prop_assert!(are_packet_ins);
        }
        for class in inbox.class_counters() {
            prop_assert_eq!(class.waiting, 0);
            prop_assert_eq!(class.messages_in, class.delivered + class.shed + class.forgotten);
        }
    }
}

#[test]
fn what_is_urgent_goes_first_and_no_class_starves() {
    let mut inbox = Inbox::new(InboxConfig::default());
    let push = |inbox: &mut Inbox, connection: u64, queue: u8, xid: u32| {
        let key = u64::from(xid);
        let binding = Binding::Flow {
            key,
            after_state: false,
        };
        let frame = packet_in(xid);
        let tag = tag(&frame, connection, queue, 1, binding);
        let id = ConnectionId(connection);
        inbox
            .handle_tagged(Instant::START, id, &tag, frame)
            .unwrap();
    };
    for xid in 0..500 {
        push(&mut inbox, 1, 2, xid);
    }
    push(&mut inbox, 2, 1, 1000);
    let first = inbox.poll_frame(Instant::START).unwrap();
    assert_eq!(first.frame.xid(), Xid(1000), "the class above goes first");
    // Now a flood in the class above: the class below still gets its turn.
    let mut below = 0;
    for n in 0..340 {
        push(&mut inbox, 2, 0, 2000 + n);
        let delivery = inbox.poll_frame(Instant::START).unwrap();
        below += u32::from(delivery.frame.xid().0 < 1000);
    }
    assert_eq!(below, 340 / (PASSED_OVER_MAX + 1));
}

#[test]
fn a_notice_above_a_long_reply_has_the_notices_before_it_go_first() {
    let mut inbox = Inbox::new(InboxConfig::default());
    let order = [
        (2, Binding::Exchange),
        (2, Binding::State),
        (2, Binding::Exchange),
        (0, Binding::State),
    ];
    for (xid, (queue, binding)) in (0..).zip(order) {
        let frame = message(xid, binding);
        let tag = tag(&frame, 1, queue, 0, binding);
        let id = ConnectionId(1);
        inbox
            .handle_tagged(Instant::START, id, &tag, frame)
            .unwrap();
    }
    let mut next = || inbox.poll_frame(Instant::START).map(|d| d.frame.xid().0);
    let delivered: Vec<u32> = std::iter::from_fn(&mut next).collect();
    assert_eq!(delivered, [1, 3, 0, 2]);
}
