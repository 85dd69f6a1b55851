//! Exchanges with controllers that do what they should and some that do not.

use openflow::message::PacketIn;
use openflow::{Message, PortNo, Version};

use super::super::tests::{Bench, packet_out};
use super::super::{Load, Traffic, Wanted};
use super::*;

const LAYOUT: Layout = Layout {
    switch: 3,
    dpid_first: 1,
    port_count: 4,
    source_count: 100,
    line: 0,
};
const FLOOD: u32 = PortNo::FLOOD.0;

fn loaded() -> Bench {
    let mut bench = Bench::of(LAYOUT, Traffic::Exchanges, Version::V13, false, Wanted::Any);
    bench.switch.set_load(Load::Closed);
    bench.switch.record_from(0);
    bench
}

/// The switch's reply to a packet-out of `packet_in` to `port`: the next frame's packet-in.
fn next(bench: &mut Bench, now_ns: u64, packet_in: &PacketIn, port: u32) -> Option<PacketIn> {
    bench.tell(now_ns, &Message::PacketOut(packet_out(packet_in, port)));
    match bench.said().pop() {
        Some(Message::PacketIn(packet_in)) => Some(packet_in),
        _ => None,
    }
}

#[test]
fn a_whole_exchange_is_one_answer_since_its_arp_request() {
    let mut bench = loaded();
    assert!(bench.switch.has_learned(), "nothing is, ahead");
    let requests = bench.packet_ins(10);
    assert_eq!(requests.len(), 4, "the window");
    let request = &requests[0];
    assert_eq!(request.data[..6], [0xff; 6]);
    assert_eq!(request.data.len(), 60);
    assert_eq!(request.r#match.in_port(), Some(PortNo(2)));
    let reply = next(&mut bench, 20, request, FLOOD).unwrap();
    assert_eq!(reply.r#match.in_port(), Some(PortNo(3)), "who is asked");
    let there = next(&mut bench, 30, &reply, 2).unwrap();
    let back = next(&mut bench, 40, &there, 3).unwrap();
    assert_eq!(back.data[12..14], [0x08, 0x00]);
    assert_eq!(bench.switch.tally.answered, 0, "not yet");
    assert!(next(&mut bench, 50, &back, 2).is_none());
    let tally = bench.switch.tally;
    assert_eq!((tally.answered, tally.duplicate), (1, 0));
    assert_eq!(bench.delays.answers.max(), 40);
    // The same frames again: none of them counts twice.
    for (packet_in, port) in [(request, FLOOD), (&reply, 2), (&there, 3), (&back, 2)] {
        assert!(next(&mut bench, 60, packet_in, port).is_none());
    }
    let tally = bench.switch.tally;
    assert_eq!((tally.answered, tally.duplicate), (1, 4));
    assert_eq!(bench.packet_ins(70).len(), 1, "one place");
}

#[test]
fn only_the_broadcast_may_be_flooded() {
    let mut bench = loaded();
    let request = bench.packet_ins(0).remove(0);
    assert!(
        next(&mut bench, 1, &request, 4).is_none(),
        "not where it is"
    );
    assert_eq!(bench.switch.tally.wrong_port, 1);
    let reply = next(&mut bench, 1, &request, FLOOD).unwrap();
    assert!(next(&mut bench, 2, &reply, FLOOD).is_none());
    assert_eq!(bench.switch.tally.flooded, 1);
    let there = next(&mut bench, 3, &reply, 2).unwrap();
    assert!(next(&mut bench, 4, &there, 2).is_none());
    assert_eq!(bench.switch.tally.wrong_port, 2);
    assert!(next(&mut bench, 5, &reply, 2).is_none());
    assert_eq!(bench.switch.tally.duplicate, 1);
    assert!(next(&mut bench, 6, &there, 3).is_some());
}

#[test]
fn a_controller_may_answer_arp_with_the_truth() {
    let mut bench = loaded();
    let request = bench.packet_ins(0).remove(0);
    for (told, is_right) in [(3, false), (2, true)] {
        let mut by_controller = request.clone();
        let answer = arp_reply(
            openflow::packet::build::Host::new(LAYOUT.host(told).mac, LAYOUT.host(2).ip),
            LAYOUT.host(1),
        );
        by_controller.data = answer.into();
        let there = next(&mut bench, 1, &by_controller, 2);
        assert_eq!(there.is_some(), is_right, "{told}");
        if let Some(there) = there {
            assert_eq!(there.data[12..14], [0x08, 0x00]);
        }
    }
    assert_eq!(bench.switch.tally.unsolicited, 1);
}

#[test]
fn another_switchs_broadcast_is_no_flood_and_no_answer() {
    let mut bench = loaded();
    let other = Layout {
        switch: 4,
        ..LAYOUT
    };
    let mut request = bench.packet_ins(0).remove(0);
    for (step, counted) in [(Step::Request, (1, 0)), (Step::There, (1, 1))] {
        request.data = frame(&other, step, (1, 2), 16).into();
        assert!(next(&mut bench, 1, &request, FLOOD).is_none());
        let tally = bench.switch.tally;
        assert_eq!((tally.companion, tally.flooded), counted);
    }
}

#[test]
fn hosts_are_new_until_all_have_spoken() {
    let mut bench = loaded();
    let mut seen = std::collections::BTreeSet::new();
    for turn in 0..60u64 {
        let mut out = Vec::new();
        let Bench { switch, .. } = &mut bench;
        switch.send(turn, &mut out);
        bench.out = out;
        let Some(Message::PacketIn(request)) = bench.said().pop() else {
            panic!("a request");
        };
        let ips = [&request.data[28..32], &request.data[38..42]].map(<[u8]>::to_vec);
        let is_new = ips.map(|ip| seen.insert(ip));
        assert_eq!(is_new, [turn < 50; 2], "turn {turn}");
        let expire = turn + 5_000_000_000;
        let Bench { switch, out, .. } = &mut bench;
        switch.handle_tick(expire, out).unwrap();
    }
}
