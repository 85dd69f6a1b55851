//! An emulated switch against answers of every kind: what counts, and what is counted apart.

use bytes::BytesMut;
use openflow::message::{FlowMod, PacketIn, PacketOut};
use openflow::{Action, BufferId, Field, MacAddr, Match, MessageKind, PortNo, decode};

use super::*;
use crate::controller::wire::Packet;

pub(super) const MS: u64 = 1_000_000;
const LAYOUT: Layout = Layout {
    switch: 3,
    dpid_first: 1,
    port_count: 4,
    source_count: 10,
    line: 0,
};

/// A switch, the bytes it has sent, and its records.
pub(super) struct Bench {
    pub switch: Switch,
    version: Version,
    pub delays: Delays,
    pub out: Vec<u8>,
}

impl Bench {
    fn new(version: Version, is_buffered: bool, wanted: Wanted) -> Bench {
        let traffic = Traffic::ToDestination;
        Bench::of(LAYOUT, traffic, version, is_buffered, wanted)
    }

    pub(super) fn of(
        layout: Layout,
        traffic: Traffic,
        version: Version,
        is_buffered: bool,
        wanted: Wanted,
    ) -> Bench {
        let profile = Profile {
            version,
            is_buffered,
            wanted,
            window: 4,
            learn_window: 4,
            in_flight_max: 4,
            timeout_ns: 1000 * MS,
            settle_ns: 100 * MS,
            ready_max_ns: 1000 * MS,
            announce: Announce::Arp,
            traffic,
        };
        Bench {
            switch: Switch::new(Rc::new(profile), layout).unwrap(),
            version,
            delays: Delays::default(),
            out: Vec::new(),
        }
    }

    /// A switch under closed load from the start, all recorded.
    fn loaded(is_buffered: bool, wanted: Wanted) -> Bench {
        let mut bench = Bench::new(Version::V13, is_buffered, wanted);
        bench.switch.set_load(Load::Closed);
        bench.switch.record_from(0);
        bench
    }

    pub(super) fn tell(&mut self, now_ns: u64, message: &Message) {
        let frame = encode(self.version, Xid(9), message).unwrap();
        let told = self
            .switch
            .handle_bytes(now_ns, frame.bytes(), &mut self.delays, &mut self.out);
        assert_eq!(told, Ok(frame.len()));
    }

    pub(super) fn said(&mut self) -> Vec<Message> {
        let mut bytes = BytesMut::from(&std::mem::take(&mut self.out)[..]);
        let mut said = Vec::new();
        while let Some(frame) = Frame::split_from(&mut bytes).unwrap() {
            said.push(decode(&frame).unwrap());
        }
        assert!(bytes.is_empty());
        said
    }

    /// The packet-ins that the switch sends as far as the window allows.
    pub(super) fn packet_ins(&mut self, now_ns: u64) -> Vec<PacketIn> {
        self.switch.fill(now_ns, &mut self.out);
        let said = self.said().into_iter();
        said.filter_map(|message| match message {
            Message::PacketIn(packet_in) => Some(packet_in),
            _ => None,
        })
        .collect()
    }
}

fn output(port: u32) -> Vec<Action> {
    vec![Action::Output {
        port: PortNo(port),
        max_len: 0,
    }]
}

pub(super) fn packet_out(to: &PacketIn, port: u32) -> PacketOut {
    PacketOut {
        buffer_id: to.buffer_id,
        in_port: to.r#match.in_port().unwrap(),
        actions: output(port),
        data: match to.buffer_id {
            Some(_) => Bytes::new(),
            None => to.data.clone(),
        },
        pipeline: Default::default(),
    }
}

pub(super) fn flow_mod(to: &PacketIn, port: u32) -> FlowMod {
    let packet = Packet::read(&to.data).unwrap();
    let r#match = Match::any()
        .with(Field::InPort, to.r#match.in_port().unwrap().0)
        .with(Field::EthSrc, packet.eth_src)
        .with(Field::EthDst, packet.eth_dst);
    let mut flow_mod = FlowMod::add(1, r#match, output(port));
    flow_mod.buffer_id = to.buffer_id;
    flow_mod
}

#[test]
fn three_replies_to_one_packet_in_count_once() {
    let mut bench = Bench::loaded(false, Wanted::Any);
    let sent = bench.packet_ins(0);
    assert_eq!(sent.len(), 4, "the window");
    bench.tell(5, &Message::FlowMod(flow_mod(&sent[0], 1)));
    bench.tell(6, &Message::PacketOut(packet_out(&sent[0], 1)));
    bench.tell(7, &Message::PacketOut(packet_out(&sent[0], 1)));
    let tally = bench.switch.tally;
    assert_eq!(
        (tally.answered, tally.companion, tally.duplicate),
        (1, 1, 1)
    );
    assert_eq!(bench.delays.answers.len(), 1);
    assert_eq!(bench.delays.answers.max(), 5);
    assert_eq!(bench.packet_ins(8).len(), 1, "one place, not three");
}

#[test]
fn what_is_asked_for_is_what_counts() {
    for (wanted, flow_mods, packet_outs) in [
        (Wanted::Any, 1, 1),
        (Wanted::FlowMod, 1, 0),
        (Wanted::PacketOut, 0, 1),
        (Wanted::Both, 0, 0),
    ] {
        let mut bench = Bench::loaded(false, wanted);
        let sent = bench.packet_ins(0);
        bench.tell(5, &Message::FlowMod(flow_mod(&sent[0], 1)));
        assert_eq!(bench.switch.tally.answered, flow_mods, "{wanted:?}");
        bench.tell(5, &Message::PacketOut(packet_out(&sent[1], 1)));
        let answered = bench.switch.tally.answered - flow_mods;
        assert_eq!(answered, packet_outs, "{wanted:?}");
        if wanted == Wanted::Both {
            bench.tell(6, &Message::PacketOut(packet_out(&sent[0], 1)));
            assert_eq!(bench.switch.tally.answered, 1);
        }
    }
}

#[test]
fn answers_that_are_wrong_are_no_answers() {
    let mut bench = Bench::loaded(false, Wanted::Any);
    let sent = bench.packet_ins(0);
    let to = &sent[0];

    bench.tell(1, &Message::PacketOut(packet_out(to, 3)));
    bench.tell(1, &Message::FlowMod(flow_mod(to, 4)));
    assert_eq!(bench.switch.tally.wrong_port, 2);

    bench.tell(1, &Message::PacketOut(packet_out(to, PortNo::FLOOD.0)));
    let everywhere = [output(1), output(3), output(4)].concat();
    bench.tell(
        1,
        &Message::PacketOut(PacketOut {
            actions: everywhere,
            ..packet_out(to, 1)
        }),
    );
    assert_eq!(bench.switch.tally.flooded, 2);

    let mut wrong = flow_mod(to, 1);
    wrong.buffer_id = Some(BufferId(7));
    bench.tell(1, &Message::FlowMod(wrong));
    assert_eq!(bench.switch.tally.wrong_buffer, 1);

    let packet = Packet::read(&to.data).unwrap();
    let r#match = Match::any()
        .with(Field::EthSrc, packet.eth_src)
        .with(Field::EthDst, LAYOUT.mac(5));
    bench.tell(1, &Message::FlowMod(FlowMod::add(1, r#match, output(1))));
    assert_eq!(bench.switch.tally.wrong_match, 1);

    let mut changed = to.data.to_vec();
    changed[11] ^= 7;
    bench.tell(
        1,
        &Message::PacketOut(PacketOut {
            data: changed.into(),
            ..packet_out(to, 1)
        }),
    );
    assert_eq!(bench.switch.tally.wrong_packet, 1);

    let r#match = Match::any().with(Field::EthSrc, 0x0200_dead_beefu64);
    bench.tell(1, &Message::FlowMod(FlowMod::add(1, r#match, output(1))));
    assert_eq!(bench.switch.tally.unsolicited, 1);

    assert_eq!(bench.switch.tally.answered, 0);
    assert_eq!(bench.switch.in_flight(), 4, "all still wait");
    bench.tell(2, &Message::PacketOut(packet_out(to, 1)));
    assert_eq!(bench.switch.tally.answered, 1, "the right one counts");
}

#[test]
fn an_answer_names_the_buffer_that_waits() {
    let mut bench = Bench::loaded(true, Wanted::Any);
    let sent = bench.packet_ins(0);
    let buffers: std::collections::BTreeSet<_> = sent.iter().map(|p| p.buffer_id).collect();
    assert_eq!(buffers.len(), 4, "distinct");
    bench.tell(1, &Message::PacketOut(packet_out(&sent[2], 1)));
    assert_eq!(bench.switch.tally.answered, 1);
    let mut other = flow_mod(&sent[1], 1);
    other.buffer_id = sent[0].buffer_id;
    bench.tell(1, &Message::FlowMod(other));
    assert_eq!(bench.switch.tally.wrong_match, 1, "another packet's");
    assert_eq!(bench.switch.tally.answered, 1);
}

#[test]
fn what_is_not_answered_in_time_is_missing_and_then_late() {
    let mut bench = Bench::loaded(false, Wanted::Any);
    let sent = bench.packet_ins(0);
    // No tick has handled the timeouts yet.
    bench.tell(1001 * MS, &Message::PacketOut(packet_out(&sent[0], 1)));
    bench.switch.handle_tick(1002 * MS, &mut bench.out).unwrap();
    bench.tell(1003 * MS, &Message::PacketOut(packet_out(&sent[1], 1)));
    let tally = bench.switch.tally;
    assert_eq!((tally.answered, tally.missing, tally.late), (0, 4, 2));
    assert_eq!(bench.packet_ins(1004 * MS).len(), 4, "the load goes on");
}

#[test]
fn an_open_loop_does_not_wait_and_counts_from_the_intended_time() {
    let mut bench = Bench::new(Version::V13, false, Wanted::Any);
    bench.switch.set_load(Load::Open);
    bench.switch.record_from(0);
    for due_ns in [10, 20, 30] {
        bench.switch.send(due_ns, &mut bench.out);
    }
    let sent = bench.packet_ins(500);
    bench.tell(510, &Message::PacketOut(packet_out(&sent[0], 1)));
    assert_eq!(bench.delays.answers.max(), 500);
    for due_ns in 40..100 {
        bench.switch.send(due_ns, &mut bench.out);
    }
    let tally = bench.switch.tally;
    assert_eq!(tally.sent + tally.unsent, 63, "none is forgotten");
    assert!(tally.unsent > 0, "the places are bounded");
}

/// Returns a switch after HELLO and features, with which a controller begins.
fn shaken(version: Version) -> Bench {
    let mut bench = Bench::new(version, false, Wanted::Any);
    bench.switch.handle_connected(&mut bench.out).unwrap();
    let said = bench.said();
    assert_eq!(said[0].kind(), MessageKind::Hello);
    bench.tell(10 * MS, &Message::Hello(Hello::default()));
    bench.tell(10 * MS, &Message::FeaturesRequest);
    let said = bench.said();
    match &said[..] {
        [Message::FeaturesReply(features)] => {
            assert_eq!(features.datapath_id, LAYOUT.datapath_id());
            assert_eq!(
                features.ports.len(),
                if version == Version::V10 { 4 } else { 0 }
            );
        }
        other => panic!("{other:?}"),
    }
    bench
}

#[test]
fn hosts_announce_themselves_when_the_controller_is_done() {
    for version in [Version::V10, Version::V13, Version::V14, Version::V15] {
        let mut bench = shaken(version);
        bench.switch.handle_tick(50 * MS, &mut bench.out).unwrap();
        assert_eq!(bench.said(), []);
        // The controller is still setting up.
        bench.tell(90 * MS, &Message::BarrierRequest);
        assert_eq!(bench.said(), [Message::BarrierReply]);
        bench.switch.handle_tick(150 * MS, &mut bench.out).unwrap();
        assert_eq!(bench.said(), []);
        // Echoes are no set-up.
        bench.tell(
            180 * MS,
            &Message::EchoRequest(Bytes::from_static(b"payload")),
        );
        let payload = Bytes::from_static(b"payload");
        assert_eq!(bench.said(), [Message::EchoReply(payload)]);
        bench.switch.handle_tick(191 * MS, &mut bench.out).unwrap();
        let said = bench.said();
        let [Message::PacketIn(arp), Message::PacketIn(probe)] = &said[..] else {
            panic!("{said:?}");
        };
        assert_eq!(arp.r#match.in_port(), Some(PortNo(DESTINATION_PORT)));
        assert_eq!(
            arp.data[6..12],
            MacAddr::from_u64(LAYOUT.mac(DESTINATION)).0
        );
        assert_eq!(arp.data.len(), 42, "not a byte too long");

        // A flood does not make the switch ready; it probes again.
        bench.tell(
            200 * MS,
            &Message::PacketOut(packet_out(probe, PortNo::FLOOD.0)),
        );
        assert!(matches!(bench.switch.stage(), Stage::Probing { .. }));
        bench.switch.handle_tick(400 * MS, &mut bench.out).unwrap();
        let said = bench.said();
        let Message::PacketIn(probe) = &said[1] else {
            panic!("{said:?}");
        };
        bench.tell(410 * MS, &Message::FlowMod(flow_mod(probe, 1)));
        assert_eq!(bench.switch.stage(), Stage::Ready);
    }
}

#[test]
fn a_controller_that_only_floods_is_found_out() {
    let mut bench = shaken(Version::V13);
    for now_ms in (50..2000).step_by(50) {
        bench
            .switch
            .handle_tick(now_ms * MS, &mut bench.out)
            .unwrap();
        for message in bench.said() {
            if let Message::PacketIn(packet_in) = message {
                let flood = packet_out(&packet_in, PortNo::FLOOD.0);
                bench.tell(now_ms * MS, &Message::PacketOut(flood));
            }
        }
    }
    assert_eq!(bench.switch.stage(), Stage::NotLearned);
    assert!(bench.switch.tally.flooded > 0);
    assert_eq!(bench.switch.tally.answered, 0);
}

#[test]
fn every_source_is_sent_once_while_learning() {
    let mut bench = Bench::new(Version::V13, false, Wanted::Any);
    bench.switch.set_load(Load::Learn);
    let mut sources = Vec::new();
    for now_ns in 0..10 {
        for packet_in in bench.packet_ins(now_ns) {
            sources.push(Packet::read(&packet_in.data).unwrap().eth_src);
            bench.tell(now_ns, &Message::PacketOut(packet_out(&packet_in, 1)));
        }
    }
    let expected: Vec<u64> = (1..=10).map(|source| LAYOUT.mac(source)).collect();
    assert_eq!(sources, expected);
    assert!(bench.switch.has_learned());
}

#[test]
fn messages_may_come_in_any_pieces() {
    let mut whole = Bench::loaded(false, Wanted::Any);
    let sent = whole.packet_ins(0);
    let mut bytes = Vec::new();
    for packet_in in &sent {
        let answer = Message::PacketOut(packet_out(packet_in, 1));
        push(Version::V13, Xid(1), &answer, &mut bytes).unwrap();
    }
    for cut in 0..bytes.len() {
        let mut bench = Bench::loaded(false, Wanted::Any);
        bench.packet_ins(0);
        let Bench {
            switch,
            delays,
            out,
            ..
        } = &mut bench;
        let first = switch.handle_bytes(1, &bytes[..cut], delays, out).unwrap();
        assert!(first <= cut);
        let rest = switch
            .handle_bytes(1, &bytes[first..], delays, out)
            .unwrap();
        assert_eq!(first + rest, bytes.len());
        assert_eq!(switch.tally.answered, 4, "cut at {cut}");
    }
}

#[test]
fn a_length_below_the_header_ends_the_connection() {
    let mut bench = Bench::loaded(false, Wanted::Any);
    let Bench {
        switch,
        delays,
        out,
        ..
    } = &mut bench;
    let said = switch.handle_bytes(0, &[4, 13, 0, 4, 0, 0, 0, 0], delays, out);
    assert_eq!(said, Err(Broken::Framing));
}

#[test]
fn a_controller_of_another_version_is_told_apart() {
    let mut bench = Bench::new(Version::V13, false, Wanted::Any);
    let hello = encode(Version::V10, Xid(1), &Message::Hello(Hello::default())).unwrap();
    let Bench {
        switch,
        delays,
        out,
        ..
    } = &mut bench;
    let said = switch.handle_bytes(0, hello.bytes(), delays, out);
    assert_eq!(said, Err(Broken::Version { theirs: 1 }));
    assert!(said.unwrap_err().to_string().contains("OpenFlow 1.0"));
}

#[test]
fn a_pair_is_answered_at_its_own_port() {
    let mut bench = Bench::loaded(false, Wanted::Any);
    Rc::get_mut(&mut bench.switch.profile).unwrap().traffic = Traffic::Paired;
    let sent = bench.packet_ins(0);
    for to in &sent {
        let packet = Packet::read(&to.data).unwrap();
        let target = LAYOUT.host_of(packet.eth_dst).unwrap();
        assert_ne!(target, DESTINATION);
        let before = bench.switch.tally.answered;
        let r#match = Match::any()
            .with(Field::EthSrc, packet.eth_dst)
            .with(Field::EthDst, packet.eth_src);
        let in_port = to.r#match.in_port().unwrap().0;
        let back = FlowMod::add(1, r#match, output(in_port));
        bench.tell(1, &Message::FlowMod(back));
        bench.tell(1, &Message::PacketOut(packet_out(to, DESTINATION_PORT)));
        assert_eq!(bench.switch.tally.answered, before);
        let port = LAYOUT.port(target);
        bench.tell(1, &Message::PacketOut(packet_out(to, port)));
        assert_eq!(bench.switch.tally.answered, before + 1);
    }
    assert_eq!(bench.switch.tally.wrong_port, 4);
    assert_eq!(bench.switch.tally.companion, 4, "the ways back");
}

#[test]
fn nobody_waits_for_a_storm() {
    let mut bench = Bench::loaded(false, Wanted::Any);
    bench.switch.send_stray(&mut bench.out);
    let said = bench.said();
    let [Message::PacketIn(stray)] = &said[..] else {
        panic!("{said:?}");
    };
    bench.tell(1, &Message::PacketOut(packet_out(stray, DESTINATION_PORT)));
    assert_eq!(bench.switch.tally.answered, 0);
    assert_eq!(bench.switch.in_flight(), 0);
}
