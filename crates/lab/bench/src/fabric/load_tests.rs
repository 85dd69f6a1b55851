use openflow::message::{FlowMod, PacketOut};
use openflow::{Action, Frame, Match, Message, PortNo, Version, Xid, decode, encode};

use super::*;
use crate::fabric::net::Net;
use crate::fabric::pairs::Choice;

const TIMEOUT_NS: u64 = 1_000_000_000;

fn world(opening: Opening, same_switch: bool) -> World {
    let net = Net::generate("linear,2", 2, 4).unwrap();
    let pairs = Pairs::new(&net, Choice::Uniform, same_switch, 1);
    let mut world = World::new(Fabric::new(net), pairs, opening, TIMEOUT_NS);
    let miss = Message::FlowMod(FlowMod::add(0, Match::any(), vec![Action::controller()]));
    for switch in 0..2 {
        world.fabric.switches[switch].handle_connected();
        receive(&mut world, switch);
        send(&mut world, at(0), switch, &miss);
    }
    world.set_recording(true);
    world
}

fn at(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

/// Sends a message from the controller to a switch.
fn send(world: &mut World, now: Instant, switch: usize, message: &Message) {
    let frame = encode(Version::V13, Xid(9), message).unwrap();
    let mut bytes = BytesMut::from(&frame.bytes()[..]);
    assert_eq!(world.handle_bytes(now, switch, &mut bytes), Ok(()));
    assert_eq!(
        world.fabric.switches[switch].counts.refused, 0,
        "{message:?}"
    );
}

/// Takes the messages that a switch has queued for its controller.
fn receive(world: &mut World, switch: usize) -> Vec<Message> {
    let mut bytes = BytesMut::from(&world.fabric.switches[switch].out[..]);
    world.fabric.switches[switch].out.clear();
    let mut messages = Vec::new();
    while let Some(frame) = Frame::split_from(&mut bytes).unwrap() {
        messages.push(decode(&frame).unwrap());
    }
    messages
}

/// The packets in a switch's packet-ins.
fn asked(world: &mut World, switch: usize) -> Vec<Bytes> {
    let packet = |message| match message {
        Message::PacketIn(packet_in) => Some(packet_in.data),
        _ => None,
    };
    receive(world, switch)
        .into_iter()
        .filter_map(packet)
        .collect()
}

fn packet_out(port: PortNo, data: Bytes) -> Message {
    Message::PacketOut(PacketOut::new(
        PortNo::CONTROLLER,
        vec![Action::output(port)],
        data,
    ))
}

/// The entry for a conversation at one switch.
fn hop(world: &World, id: usize, port: PortNo) -> Message {
    let Conversation {
        source,
        destination,
        ..
    } = world.conversations[id];
    let net = &world.fabric.net;
    let pair = Match::any()
        .with_eth_src(net.host(source).mac)
        .with_eth_dst(net.host(destination).mac);
    Message::FlowMod(FlowMod::add(5, pair, vec![Action::output(port)]))
}

/// The link is at port 3 of both switches.
const LINK: PortNo = PortNo(3);

#[test]
fn a_first_packet_is_delivered_by_the_controller_and_its_path_is_ready_when_it_is_whole() {
    let mut world = world(Opening::Packet, false);
    world.set_pace(Pace::Closed { window: 1 });
    world.handle_tick(at(10));
    assert_eq!(world.conversations.len(), 2, "one of each switch");
    let id = world
        .conversations
        .iter()
        .position(|c| c.edge == 0)
        .unwrap();
    let packets = asked(&mut world, 0);
    assert_eq!(packets.len(), 1);
    let place = world.fabric.net.place(world.conversations[id].destination);

    // Out of the wrong port, the packet is a stray; out of the right port, it is delivered.
    let other = PortNo(3 - place.port.0);
    send(
        &mut world,
        at(11),
        1,
        &packet_out(other, packets[0].clone()),
    );
    assert_eq!(
        (world.record.tally.strays, world.record.tally.delivered),
        (1, 0)
    );
    for ms in [12, 13] {
        let message = packet_out(place.port, packets[0].clone());
        send(&mut world, at(ms), 1, &message);
    }
    assert_eq!(
        (world.record.tally.delivered, world.record.tally.duplicates),
        (1, 1)
    );
    assert!((1_990_000..=2_010_000).contains(&world.record.first.max()));

    // The path is ready once both of its hops have their entry, in any order.
    let message = hop(&world, id, LINK);
    send(&mut world, at(14), 0, &message);
    assert_eq!(world.record.tally.ready, 0);
    let message = hop(&world, id, place.port);
    send(&mut world, at(15), 1, &message);
    assert_eq!(world.record.tally.ready, 1);
    assert!((4_990_000..=5_010_000).contains(&world.record.ready.max()));
    assert!(world.is_carried(id as u32));

    // The window has room again.
    world.handle_tick(at(16));
    assert_eq!(world.conversations.len(), 3);
}

#[test]
fn what_is_not_delivered_in_time_is_lost_and_its_path_has_twice_the_time() {
    let mut world = world(Opening::Packet, false);
    world.set_pace(Pace::Closed { window: 2 });
    world.handle_tick(at(0));
    assert_eq!(world.record.tally.sent, 4);
    world.set_pace(Pace::Idle);
    let packets = asked(&mut world, 0);
    world.handle_tick(at(999));
    assert_eq!(world.record.tally.lost, 0);
    world.handle_tick(at(1000));
    assert_eq!(world.record.tally.lost, 4);
    // Too late.
    let id = world
        .conversations
        .iter()
        .position(|c| c.edge == 0)
        .unwrap();
    let place = world.fabric.net.place(world.conversations[id].destination);
    for packet in packets {
        send(&mut world, at(1001), 1, &packet_out(place.port, packet));
    }
    assert_eq!(world.record.tally.delivered, 0);
    let message = hop(&world, id, place.port);
    send(&mut world, at(1002), 1, &message);
    let message = hop(&world, id, LINK);
    send(&mut world, at(1002), 0, &message);
    assert_eq!(world.record.tally.ready, 1);
    assert!(!world.is_drained());
    world.handle_tick(at(2000));
    assert_eq!(world.record.tally.never_ready, 3);
    assert!(world.is_drained());
}

#[test]
fn the_open_loop_keeps_its_schedule_whatever_the_controller_does() {
    let mut world = world(Opening::Packet, true);
    let from_ns = at(100).0;
    world.set_pace(Pace::Open {
        rate: 1000.0,
        from_ns,
    });
    assert_eq!(world.next_due_ns(), Some(from_ns));
    world.handle_tick(at(99));
    assert_eq!(world.conversations.len(), 0);
    world.handle_tick(at(107));
    let due: Vec<u64> = world.conversations.iter().map(|c| c.due_ns).collect();
    let expected: Vec<u64> = (100..=107).map(|ms| at(ms).0).collect();
    assert_eq!(due, expected);
    for conversation in &world.conversations {
        let [a, b] = [conversation.source, conversation.destination]
            .map(|host| world.fabric.net.place(host));
        assert!(a.switch == b.switch && a.port != b.port);
    }
    assert_eq!(world.next_due_ns(), Some(at(108).0));
    assert_eq!(world.record.tally.not_sent, 0);
    // After a pause, only packets that are at most 20 ms late are sent.
    world.handle_tick(at(160));
    assert_eq!(world.record.tally.not_sent, 140 - 108);
    let due = world.conversations[8].due_ns;
    assert_eq!((due, world.next_due_ns()), (at(140).0, Some(at(161).0)));
}

#[test]
fn a_packet_waits_for_the_answer_to_arp() {
    let mut world = world(Opening::Arp, false);
    world.set_pace(Pace::Closed { window: 1 });
    world.handle_tick(at(0));
    world.set_pace(Pace::Idle);
    let id = world
        .conversations
        .iter()
        .position(|c| c.edge == 0)
        .unwrap();
    let Conversation {
        source,
        destination,
        ..
    } = world.conversations[id];
    let [from, to] = [source, destination].map(|host| world.fabric.net.place(host));
    let requests = asked(&mut world, 0);
    assert_eq!(requests[0][..6], [0xff; 6]);
    asked(&mut world, 1);

    // The controller sends the request to all ports of the other switch: only its host answers.
    for port in [1, 2] {
        let message = packet_out(PortNo(port), requests[0].clone());
        send(&mut world, at(1), 1, &message);
    }
    assert_eq!(world.broadcast_copies, 2);
    let answers = asked(&mut world, 1);
    assert_eq!(answers.len(), 1);
    assert_eq!(world.record.tally.delivered, 0);
    send(
        &mut world,
        at(2),
        0,
        &packet_out(from.port, answers[0].clone()),
    );
    let packets = asked(&mut world, 0);
    assert_eq!(packets.len(), 1, "now the packet is sent, once");
    assert_eq!(world.record.tally.ready, 0);
    send(
        &mut world,
        at(3),
        1,
        &packet_out(to.port, packets[0].clone()),
    );
    assert_eq!(world.record.tally.delivered, 1);
}

#[test]
fn a_path_that_was_set_before_a_question_is_ready_at_once() {
    let mut world = world(Opening::Arp, false);
    let everywhere = FlowMod::add(5, Match::any(), vec![Action::output(PortNo::FLOOD)]);
    let unicast = Match::any().with_masked(Field::EthDst, 0u64, 1u64 << 40);
    let everywhere = Message::FlowMod(FlowMod {
        r#match: unicast,
        ..everywhere
    });
    for switch in 0..2 {
        send(&mut world, at(0), switch, &everywhere);
    }
    world.set_pace(Pace::Closed { window: 1 });
    world.handle_tick(at(1));
    assert_eq!(asked(&mut world, 0).len(), 1);
    assert_eq!(world.record.tally.ready, 2);
}

#[test]
fn a_storm_is_sent_on_its_schedule_and_its_copies_are_counted() {
    let mut world = world(Opening::Packet, false);
    let flood = FlowMod::add(9, Match::any(), vec![Action::output(PortNo::FLOOD)]);
    for switch in 0..2 {
        send(&mut world, at(0), switch, &Message::FlowMod(flood.clone()));
    }
    world.set_broadcasts(Some(100.0), at(0));
    world.handle_tick(at(45));
    // Each broadcast reaches the other three ports with hosts.
    assert_eq!((world.broadcasts, world.broadcast_copies), (5, 15));
    world.set_broadcasts(None, at(45));
    world.handle_tick(at(90));
    assert_eq!(world.broadcasts, 5);
}

#[test]
fn the_same_seed_begins_the_same_conversations() {
    let begun = || -> Vec<(u32, u32)> {
        let mut world = world(Opening::Packet, false);
        world.set_pace(Pace::Closed { window: 5 });
        world.handle_tick(at(0));
        let pairs = world.conversations.iter();
        pairs.map(|c| (c.source, c.destination)).collect()
    };
    assert_eq!(begun().len(), 10);
    assert_eq!(begun(), begun());
}
