//! Four switches in a line, as far as packets go over them.

use openflow::{Message, PortNo, Version};

use super::super::tests::{Bench, MS, flow_mod, packet_out};
use super::super::{Load, Stage, Traffic, Wanted};
use super::*;
use crate::controller::layout::Layout;

const FIRST: Layout = Layout {
    switch: 0,
    dpid_first: 1,
    port_count: 3,
    source_count: 10,
    line: 4,
};
const DESTINATION_PORT: u32 = 1;
const TO_NEXT: u32 = 4;
const TO_PREVIOUS: u32 = 5;

fn bench(switch: u16) -> Bench {
    let layout = Layout { switch, ..FIRST };
    Bench::of(layout, Traffic::Across, Version::V13, false, Wanted::Any)
}

fn loaded(switch: u16) -> Bench {
    let mut bench = bench(switch);
    bench.switch.set_load(Load::Closed);
    bench.switch.record_from(0);
    bench
}

/// Hands the crossings of one switch to another, and returns the number of those meant for it.
fn cross(from: &mut Bench, to: &mut Bench, number: u16) -> usize {
    let crossings = std::mem::take(&mut from.switch.crossings);
    let its = crossings
        .into_iter()
        .filter(|crossing| crossing.to == number);
    let mut count = 0;
    for crossing in its {
        count += 1;
        let Bench {
            switch,
            delays,
            out,
            ..
        } = to;
        switch.handle_crossing(crossing.what, delays, out).unwrap();
    }
    count
}

#[test]
fn a_packet_is_answered_where_its_destination_is_and_once() {
    let (mut source, mut hop, mut far) = (loaded(0), bench(1), bench(2));
    let sent = source.packet_ins(0);
    assert_eq!(
        Packet::read(&sent[0].data).unwrap().eth_dst,
        FIRST.far().mac(0)
    );
    let on = Message::PacketOut(packet_out(&sent[0], TO_NEXT));
    hop.tell(1, &on);
    assert_eq!(hop.switch.tally.companion, 1, "on its way");
    assert_eq!(hop.switch.crossings.len(), 1);
    hop.tell(2, &Message::PacketOut(packet_out(&sent[0], TO_PREVIOUS)));
    assert_eq!(hop.switch.tally.wrong_port, 1, "back again");
    far.tell(
        3,
        &Message::PacketOut(packet_out(&sent[0], DESTINATION_PORT + 1)),
    );
    assert_eq!(far.switch.tally.wrong_port, 1);
    far.tell(
        4,
        &Message::PacketOut(packet_out(&sent[0], PortNo::FLOOD.0)),
    );
    assert_eq!(far.switch.tally.flooded, 1);
    far.switch.crossings.clear();
    for at in [5, 6] {
        let arrived = Message::PacketOut(packet_out(&sent[0], DESTINATION_PORT));
        far.tell(at, &arrived);
        assert_eq!(cross(&mut far, &mut source, 0), 1);
    }
    let tally = source.switch.tally;
    assert_eq!((tally.answered, tally.duplicate), (1, 1));
    assert_eq!(source.delays.answers.max(), 5, "until it came out");
    assert_eq!(far.switch.tally.answered, 0);
    assert_eq!(source.packet_ins(8).len(), 1, "one place, not two");
}

#[test]
fn a_packet_at_the_wrong_destination_is_none_of_ours() {
    let (mut source, mut last) = (loaded(0), bench(3));
    let sent = source.packet_ins(0);
    last.tell(
        1,
        &Message::PacketOut(packet_out(&sent[0], DESTINATION_PORT)),
    );
    assert_eq!(last.switch.tally.wrong_port, 1, "it is not here");
    assert!(last.switch.crossings.is_empty());
}

fn lldp(bench: &mut Bench, port: u32) {
    let mut data = vec![0; 60];
    data[12..14].copy_from_slice(&[0x88, 0xcc]);
    let out = openflow::message::PacketOut {
        buffer_id: None,
        in_port: PortNo::CONTROLLER,
        actions: vec![openflow::Action::Output {
            port: PortNo(port),
            max_len: 0,
        }],
        data: data.into(),
        pipeline: Default::default(),
    };
    bench.tell(0, &Message::PacketOut(out));
}

#[test]
fn links_answer_lldp_at_the_other_end_and_are_waited_for() {
    let (mut first, mut second) = (bench(0), bench(1));
    lldp(&mut first, DESTINATION_PORT);
    assert!(first.switch.crossings.is_empty(), "no link there");
    lldp(&mut first, TO_NEXT);
    assert_eq!(cross(&mut first, &mut second, 1), 1);
    assert!(
        second.said().is_empty(),
        "nobody has asked for its features"
    );

    second.tell(0, &Message::FeaturesRequest);
    second.said();
    lldp(&mut first, TO_NEXT);
    cross(&mut first, &mut second, 1);
    let [Message::PacketIn(packet_in)] = &second.said()[..] else {
        panic!("one packet-in");
    };
    assert_eq!(packet_in.r#match.in_port(), Some(PortNo(TO_PREVIOUS)));

    // The second switch has one more link: LLDP has left over it, but none has arrived.
    lldp(&mut second, TO_NEXT);
    assert!(!second.switch.has_heard_links());
    let mut third = bench(2);
    lldp(&mut third, TO_PREVIOUS);
    cross(&mut third, &mut second, 1);
    assert!(second.switch.has_heard_links());
    assert_eq!(second.switch.tally.discovery, 1);
}

#[test]
fn a_switch_is_ready_when_a_probe_came_across_known_links() {
    let (mut source, mut far) = (bench(0), bench(2));
    source.tell(0, &Message::FeaturesRequest);
    let mut now_ns = 0;
    for heard in [false, true] {
        now_ns += 1000 * MS / 2;
        source.said();
        let Bench { switch, out, .. } = &mut source;
        switch.handle_tick(now_ns, out).unwrap();
        let said = source.said();
        let Some(Message::PacketIn(probe)) = said.last() else {
            panic!("a probe");
        };
        if heard {
            let mut second = bench(1);
            lldp(&mut second, TO_PREVIOUS);
            cross(&mut second, &mut source, 0);
        } else {
            lldp(&mut source, TO_NEXT);
            source.switch.crossings.clear();
        }
        far.tell(
            now_ns,
            &Message::PacketOut(packet_out(probe, DESTINATION_PORT)),
        );
        cross(&mut far, &mut source, 0);
        assert_eq!(source.switch.stage() == Stage::Ready, heard);
    }
}

#[test]
fn entries_of_a_path_are_right_where_they_lead_on() {
    let (mut source, mut hop) = (loaded(0), bench(1));
    let mut packet_in = source.packet_ins(0).remove(0);
    let mut entry = |in_port: u32, out: u32| {
        packet_in.r#match = openflow::Match::any().with_in_port(PortNo(in_port));
        hop.tell(1, &Message::FlowMod(flow_mod(&packet_in, out)));
        let tally = hop.switch.tally;
        (tally.companion, tally.wrong_port, tally.wrong_match)
    };
    assert_eq!(entry(TO_PREVIOUS, TO_NEXT), (1, 0, 0));
    assert_eq!(entry(TO_PREVIOUS, DESTINATION_PORT), (1, 1, 0));
    assert_eq!(entry(2, TO_NEXT), (1, 1, 1));
}
