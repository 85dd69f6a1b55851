//! Compares the hand-written bytes with the `openflow` crate.

use openflow::message::{FlowMod, FlowModCommand, PacketOut};
use openflow::{Action, Field, Frame, Instruction, MacAddr, Match, decode, encode};
use proptest::prelude::*;

use super::*;

const LAYOUT: Layout = Layout {
    switch: 0x1234,
    dpid_first: 1,
    port_count: 4,
    source_count: 1000,
    line: 0,
};

fn output(port: u32) -> Action {
    Action::Output {
        port: PortNo(port),
        max_len: 0,
    }
}

fn written(version: Version, is_buffered: bool, hosts: (u32, u32), tag: u32) -> PacketIn {
    let template = PacketInTemplate::new(version, &LAYOUT, is_buffered).unwrap();
    let mut out = b"before".to_vec();
    template.write(&LAYOUT, hosts, tag, &mut out);
    let frame = Frame::new(Bytes::copy_from_slice(&out[6..])).unwrap();
    match decode(&frame).unwrap() {
        Message::PacketIn(packet_in) => packet_in,
        other => panic!("{other:?}"),
    }
}

const VERSIONS: [Version; 4] = [Version::V10, Version::V13, Version::V14, Version::V15];

fn versions() -> impl Strategy<Value = Version> {
    proptest::sample::select(VERSIONS.to_vec())
}

proptest! {
    #[test]
    fn a_packet_in_says_what_was_patched(
        version in versions(),
        is_buffered: bool,
        source in 1u32..=1000,
        target in 0u32..=1000,
        tag in 0u32..u32::MAX,
    ) {
        let packet_in = written(version, is_buffered, (source, target), tag);
        prop_assert_eq!(packet_in.buffer_id, is_buffered.then_some(BufferId(tag)));
        prop_assert_eq!(packet_in.r#match.in_port(), Some(PortNo(LAYOUT.port(source))));
        prop_assert_eq!(usize::from(packet_in.total_len), packet_in.data.len());
        let packet = Packet::read(&packet_in.data).unwrap();
        prop_assert_eq!(packet.tag, Some(tag));
        prop_assert_eq!(packet.eth_src, LAYOUT.mac(source));
        prop_assert_eq!(packet.eth_dst, LAYOUT.mac(target));
        let fields = openflow::PacketFields::parse(PortNo(1), &packet_in.data);
        prop_assert_eq!(fields.get(Field::UdpSrc), Some(u128::from(UDP_PORTS.0)));
    }

    #[test]
    fn a_flow_mod_is_read_as_it_was_meant(
        version in versions(),
        in_port in proptest::option::of(1u32..100),
        eth_src in proptest::option::of(0u64..1 << 48),
        eth_dst in proptest::option::of(0u64..1 << 48),
        tcp: bool,
        ports in proptest::collection::vec(1u32..100, 0..3),
        buffer_id in proptest::option::of(0u32..1000),
    ) {
        let mut r#match = Match::any();
        for (field, value) in [
            (Field::InPort, in_port.map(u64::from)),
            (Field::EthSrc, eth_src),
            (Field::EthDst, eth_dst),
            (Field::EthType, tcp.then_some(0x0800)),
            (Field::IpProto, tcp.then_some(6)),
        ] {
            if let Some(value) = value {
                r#match = r#match.with(field, value);
            }
        }
        let mut flow_mod = FlowMod::add(7, r#match, ports.iter().map(|p| output(*p)).collect());
        flow_mod.buffer_id = buffer_id.map(BufferId);
        let frame = encode(version, Xid(3), &Message::FlowMod(flow_mod)).unwrap();
        let answer = Answer::read(version, frame.bytes()).unwrap();
        prop_assert_eq!(answer, Answer {
            is_flow_mod: true,
            buffer_id: buffer_id.unwrap_or(NO_BUFFER),
            in_port,
            eth_src,
            eth_dst,
            output: match ports[..] {
                [] => Output::Nowhere,
                [port] => Output::Port(port),
                _ => Output::Flood,
            },
            data: &[],
        });
    }

    #[test]
    fn a_packet_out_is_read_as_it_was_meant(
        version in versions(),
        port in prop_oneof![1u32..100, Just(PortNo::FLOOD.0), Just(PortNo::ALL.0)],
        data in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let (actions, bytes) = (vec![output(port)], Bytes::from(data.clone()));
        let packet_out = PacketOut::new(PortNo(2), actions, bytes);
        let frame = encode(version, Xid(3), &Message::PacketOut(packet_out)).unwrap();
        let answer = Answer::read(version, frame.bytes()).unwrap();
        let floods = port > 100;
        prop_assert_eq!(answer.output, if floods { Output::Flood } else { Output::Port(port) });
        prop_assert_eq!(answer.data, &data[..]);
        prop_assert_eq!(answer.buffer_id, NO_BUFFER);
    }

    #[test]
    fn nonsense_is_read_without_harm(
        version in versions(),
        flow_mod: bool,
        mut bytes in proptest::collection::vec(any::<u8>(), 8..200),
    ) {
        bytes[1] = if flow_mod { TYPE_FLOW_MOD } else { TYPE_PACKET_OUT };
        let _ = Answer::read(version, &bytes);
        let _ = Packet::read(&bytes);
    }
}

#[test]
fn a_deletion_is_no_answer() {
    for version in VERSIONS {
        let mut flow_mod = FlowMod::add(7, Match::any(), vec![]);
        flow_mod.command = FlowModCommand::Delete;
        flow_mod.instructions = vec![];
        let frame = encode(version, Xid(3), &Message::FlowMod(flow_mod)).unwrap();
        assert_eq!(Answer::read(version, frame.bytes()), None);
    }
}

#[test]
fn write_actions_count_as_apply_actions_do() {
    let mut flow_mod = FlowMod::add(7, Match::any().with_eth_src(MacAddr([1; 6])), vec![]);
    flow_mod.instructions = vec![Instruction::WriteActions(vec![output(4)])];
    let frame = encode(Version::V13, Xid(3), &Message::FlowMod(flow_mod)).unwrap();
    let answer = Answer::read(Version::V13, frame.bytes()).unwrap();
    assert_eq!(answer.output, Output::Port(4));
}
