use bytes::Bytes;

use super::*;
use crate::actions::{Action, Instruction};
use crate::message::{ErrorMessage, MultipartRequest, PacketQueue, QueueConfig, QueueProperty};
use crate::multipart::RequestBody;
use crate::types::{QueueId, Version, Xid};

fn written(message: &Message) -> Vec<u8> {
    let frame = crate::encode(Version::V10, Xid(1), message).expect("a message of 1.0");
    frame.bytes().to_vec()
}

fn read(bytes: &[u8]) -> Result<Message, ErrorKind> {
    let frame = Frame::new(Bytes::copy_from_slice(bytes)).expect("a frame");
    crate::decode(&frame).map_err(|error| error.kind)
}

fn refusal(message: Message) -> &'static str {
    match crate::encode(Version::V10, Xid(1), &message) {
        Err(EncodeError::Unsupported { what, .. }) => what,
        other => panic!("{message:?} became {other:?}"),
    }
}

fn flow_mod(m: Match) -> FlowMod {
    FlowMod::add(1, m, Vec::new())
}

fn tcp() -> Match {
    let m = Match::any().with(Field::EthType, 0x0800u16);
    m.with(Field::IpProto, 6u8)
}

#[test]
fn a_match_stands_where_the_specification_says() {
    let m = Match::any()
        .with_in_port(PortNo::LOCAL)
        .with(Field::EthType, 0x0800u16)
        .with(Field::VlanVid, 0x1007u16)
        .with(Field::IpDscp, 46u8)
        .with(Field::IpProto, 6u8)
        .with_masked(Field::Ipv4Src, 0x0a00_0000u32, 0xffff_ff00u32)
        .with(Field::TcpDst, 80u16);
    #[rustfmt::skip]
    let expected = [
        0x00, 0x18, 0x08, 0x4c, // wild: pcp, nw_dst 32, nw_src 8, tp_src, dl_src, dl_dst
        0xff, 0xfe,             // in_port: OFPP_LOCAL
        0, 0, 0, 0, 0, 0,       // dl_src
        0, 0, 0, 0, 0, 0,       // dl_dst
        0x00, 0x07, 0, 0,       // dl_vlan, dl_vlan_pcp, padding
        0x08, 0x00,             // dl_type
        46 << 2, 6, 0, 0,       // nw_tos, nw_proto, padding
        10, 0, 0, 0,            // nw_src
        0, 0, 0, 0,             // nw_dst
        0, 0, 0, 80,            // tp_src, tp_dst
    ];
    let bytes = written(&Message::FlowMod(flow_mod(m.clone())));
    assert_eq!(bytes[8..48], expected);
    assert_eq!(read(&bytes), Ok(Message::FlowMod(flow_mod(m))));
}

#[test]
fn vlan_matches_are_told_apart() {
    let any = Match::any;
    let cases = [
        (
            any().with(Field::VlanVid, 0u16),
            0x0028_20fd,
            [0xff, 0xff, 0],
        ),
        (
            any().with(Field::VlanVid, 0x1005u16),
            0x0038_20fd,
            [0, 5, 0],
        ),
        (
            any()
                .with(Field::VlanVid, 0x1005u16)
                .with(Field::VlanPcp, 3u8),
            0x0028_20fd,
            [0, 5, 3],
        ),
        (
            any()
                .with_masked(Field::VlanVid, 0x1000u16, 0x1000u16)
                .with(Field::VlanPcp, 3u8),
            0x0028_20ff,
            [0, 0, 3],
        ),
    ];
    for (m, wildcards, tag) in cases {
        let bytes = written(&Message::FlowMod(flow_mod(m.clone())));
        assert_eq!(bytes[8..12], u32::to_be_bytes(wildcards), "{m:?}");
        assert_eq!(bytes[26..29], tag, "{m:?}");
        assert_eq!(read(&bytes), Ok(Message::FlowMod(flow_mod(m))));
    }
}

#[test]
fn fields_without_their_prerequisite_are_not_read() {
    // tp_dst 80 of any IP protocol, nw_src of any EtherType: both mean nothing.
    let mut bytes = written(&Message::FlowMod(flow_mod(Match::any())));
    bytes[8..12].copy_from_slice(&0x0038_007f_u32.to_be_bytes());
    bytes[46..48].copy_from_slice(&80u16.to_be_bytes());
    assert_eq!(read(&bytes), Ok(Message::FlowMod(flow_mod(Match::any()))));
}

#[test]
fn what_1_0_has_no_words_for_is_refused_by_name() {
    let matching = |m| refusal(Message::FlowMod(flow_mod(m)));
    let any = Match::any;
    let such = "such match field, or not without its prerequisite";
    assert_eq!(matching(any().with(Field::Ipv6Src, 1u8)), such);
    assert_eq!(matching(any().with(Field::TcpDst, 1u8)), such);
    assert_eq!(matching(tcp().with(Field::UdpDst, 1u8)), such);
    assert_eq!(matching(any().with(Field::IpEcn, 1u8)), such);
    let masked = any().with_masked(Field::EthDst, 1u8, 1u8);
    assert_eq!(matching(masked), "mask on such a match field");
    let holes = tcp().with_masked(Field::Ipv4Dst, 0u8, 0xff00_ff00u32);
    assert_eq!(matching(holes), "address mask that is no prefix");
    let any_tag = any().with_masked(Field::VlanVid, 0x1000u16, 0x1000u16);
    assert_eq!(matching(any_tag), "match on any VLAN tag");
    assert_eq!(
        matching(any().with_in_port(PortNo(0xff00))),
        "port number above 65279"
    );

    let changed = |change: fn(&mut FlowMod)| {
        let mut m = flow_mod(Match::any());
        change(&mut m);
        refusal(Message::FlowMod(m))
    };
    assert_eq!(changed(|m| m.table_id = TableId(1)), "table in FLOW_MOD");
    assert_eq!(changed(|m| m.cookie_mask = Cookie(1)), "cookie_mask");
    assert_eq!(changed(|m| m.out_group = GroupId(1)), "out_group");
    let flag = "such FLOW_MOD flag";
    assert_eq!(changed(|m| m.flags = FlowModFlags::RESET_COUNTS), flag);
    let goto = "instruction but one APPLY_ACTIONS";
    assert_eq!(
        changed(|m| m.instructions = vec![Instruction::GotoTable(TableId(1))]),
        goto
    );
    let group = |m: &mut FlowMod| {
        m.instructions = vec![Instruction::ApplyActions(vec![Action::Group(GroupId(1))])];
    };
    assert_eq!(changed(group), "such action");
    let more = false;
    let body = RequestBody::PortDesc(PortNo::ANY);
    let request = Message::MultipartRequest(MultipartRequest { more, body });
    assert_eq!(refusal(request), "such statistics");
    let error = |kind| Message::Error(ErrorMessage::new(kind, Bytes::new()));
    assert_eq!(refusal(error(ErrorKind::MATCH_BAD_PREREQ)), "such error");
}

#[test]
fn lengths_that_do_not_move_on_are_refused() {
    let with_action = |len: u16| {
        let m = FlowMod::add(1, Match::any(), vec![Action::output(PortNo(1))]);
        let mut bytes = written(&Message::FlowMod(m));
        bytes[74..76].copy_from_slice(&len.to_be_bytes());
        read(&bytes)
    };
    assert!(with_action(8).is_ok());
    for len in [0, 1, 4, 7, 9, 16, 0xffff] {
        assert_eq!(with_action(len), Err(ErrorKind::ACTION_BAD_LEN), "{len}");
    }
    let queue = |queue_len: u16, property_len: u16| {
        let properties = vec![QueueProperty::MinRate(10)];
        let queues = vec![PacketQueue {
            queue_id: QueueId(1),
            port: PortNo(1),
            properties,
        }];
        let reply = QueueConfig {
            port: PortNo(1),
            queues,
        };
        let mut bytes = written(&Message::QueueGetConfigReply(reply));
        bytes[20..22].copy_from_slice(&queue_len.to_be_bytes());
        bytes[26..28].copy_from_slice(&property_len.to_be_bytes());
        read(&bytes)
    };
    assert!(queue(24, 16).is_ok());
    for (queue_len, property_len) in [(0, 16), (7, 16), (25, 16), (24, 0), (24, 7), (24, 17)] {
        assert_eq!(queue(queue_len, property_len), Err(ErrorKind::BAD_LEN));
    }
    let unknown = {
        let m = FlowMod::add(1, Match::any(), vec![Action::output(PortNo(1))]);
        let mut bytes = written(&Message::FlowMod(m));
        bytes[73] = 12;
        read(&bytes)
    };
    assert_eq!(unknown, Err(ErrorKind::ACTION_BAD_TYPE));
}

#[test]
fn every_error_number_of_1_0_comes_back_and_known_ones_have_their_names() {
    for ty in 0..=u16::MAX {
        for code in 0..20 {
            let kind = error_from_wire(ty, code);
            let wire = error_to_wire(kind).expect("it came from 1.0");
            // The error read back is the same. Its numbers are too, except in the range of unnamed
            // errors.
            assert_eq!(error_from_wire(wire.0, wire.1), kind, "{ty} {code}");
            assert!(
                wire == (ty, code) || (0x1000..0x100e).contains(&ty),
                "{ty} {code}"
            );
        }
    }
    assert_eq!(error_from_wire(3, 0), ErrorKind::FLOW_MOD_TABLE_FULL);
    assert_eq!(error_from_wire(4, 1), ErrorKind::PORT_MOD_BAD_HW_ADDR);
    assert_eq!(error_from_wire(5, 1), ErrorKind::QUEUE_BAD_QUEUE);
    assert_eq!(error_from_wire(1, 8), ErrorKind::BUFFER_UNKNOWN);
    assert_eq!(error_from_wire(2, 8), ErrorKind::ACTION_BAD_QUEUE);
    // Numbers that mean other errors in 1.3 do not get the names of those errors.
    for (ty, code) in [(4, 9), (3, 6), (1, 9), (2, 9), (5, 3), (6, 0)] {
        assert_eq!(error_from_wire(ty, code).name(), None, "{ty} {code}");
    }
    assert_eq!(error_to_wire(ErrorKind::GROUP_LOOP), None);
}

#[test]
fn port_features_move_with_their_names() {
    // 10GB_FD, COPPER and PAUSE_ASYM in both numberings.
    let w = Writer::new(Version::V10, 0, Xid(0));
    assert_eq!(numbers::features_from_wire(0x8c0), 0x8840);
    assert_eq!(numbers::features_to_wire(0x8840, &w), Ok(0x8c0));
    assert!(numbers::features_to_wire(1 << 8, &w).is_err(), "100 Gb/s");
    for wire in [0, 1, 0xfeff, 0xff00, 0xfffd, 0xffff] {
        assert_eq!(port_to_wire(port_from_wire(wire), &w), Ok(wire));
    }
    assert_eq!(port_from_wire(0xfffd), PortNo::CONTROLLER);
}

/// Every decode error of a 1.0 message can be answered with an error that 1.0 has.
#[test]
fn every_refusal_has_a_number_in_1_0() {
    let whole = written(&Message::FlowMod(FlowMod::add(
        1,
        tcp().with(Field::TcpDst, 80u16),
        vec![
            Action::output(PortNo(1)),
            Action::Enqueue {
                port: PortNo(1),
                queue: QueueId(1),
            },
        ],
    )));
    let mut refused = 0;
    for at in 8..whole.len() {
        for byte in [0, 1, 2, 3, 7, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            if let Err(kind) = read(&bytes) {
                refused += 1;
                assert!(error_to_wire(kind).is_some(), "{kind} for byte {at}");
            }
        }
    }
    assert!(refused > 20, "{refused}");
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("hex");
        u8::from_str_radix(pair, 16).expect("hex")
    };
    digits.map(byte).collect()
}

/// `icmp,icmp_type=300`, which Open vSwitch stores and prints.
const ICMP_300: &str = "010e005000000007003fff8f000000000000000000000000000000000000080000\
0100000000000000000000012c000000000000000012340000000000000064ffffffffffff00000000000800020000";

#[test]
fn an_icmp_type_that_no_packet_has_is_kept_and_matches_no_packet() {
    let bytes = unhex(ICMP_300);
    let Ok(Message::FlowMod(flow_mod)) = read(&bytes) else {
        panic!("it is read");
    };
    assert_eq!(flow_mod.r#match.exact(Field::Icmpv4Type), Some(300));
    // The encoder writes its wildcards in another way with the same meaning.
    let again = written(&Message::FlowMod(flow_mod.clone()));
    assert_eq!(read(&again), Ok(Message::FlowMod(flow_mod.clone())));
    let frame = Frame::new(bytes.into()).expect("a frame");
    let text = crate::text::print(&frame);
    let wanted = "ADD priority=100,icmp,icmp_type=300 cookie:0x1234 actions=output:2";
    assert!(text.contains(wanted), "{text}");
    // 300 is 44 in eight bits.
    let mut packet = vec![0; 14 + 20 + 8];
    packet[12..15].copy_from_slice(&[8, 0, 0x45]);
    packet[17] = 28;
    packet[14 + 9] = 1;
    packet[34] = 44;
    let packet = crate::PacketFields::parse(PortNo(1), &packet);
    assert_eq!(packet.get(Field::Icmpv4Type), Some(44));
    assert!(!packet.matches(&flow_mod.r#match));
    // 1.3 has eight bits for it.
    let message = Message::FlowMod(flow_mod);
    assert!(crate::encode(Version::V13, Xid(1), &message).is_err());
}

#[test]
fn an_entry_without_wildcards_has_the_highest_priority_whatever_it_says() {
    // Open vSwitch prints priority=65535,tcp,in_port=1,...
    let exact = "010e0050000000000000000000010200000000010200000000\
02ffff00000800000600000a0000010a0000020050005100000000000000000000000000000007ffffffffffff0000\
0000000800020000";
    let mut bytes = unhex(exact);
    let priority = |bytes: &[u8]| match read(bytes) {
        Ok(Message::FlowMod(flow_mod)) => flow_mod.priority,
        other => panic!("{other:?}"),
    };
    assert_eq!(priority(&bytes), u16::MAX);
    // With one wildcard, the stated priority counts.
    bytes[11] = 1;
    assert_eq!(priority(&bytes), 7);
}

#[test]
fn errors_of_1_0_alone_have_their_own_names() {
    for (code, name) in [(3, "OFPFMFC_BAD_EMERG_TIMEOUT"), (5, "OFPFMFC_UNSUPPORTED")] {
        let bytes = [1, 1, 0, 12, 0, 0, 0, 1, 0, 3, 0, code];
        let Ok(Message::Error(error)) = read(&bytes) else {
            panic!("it is read");
        };
        assert!(error.kind.is_of_flow_mod());
        assert_eq!(written(&Message::Error(error)), bytes);
        let frame = Frame::new(Bytes::copy_from_slice(&bytes)).expect("a frame");
        let text = crate::text::print(&frame);
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn an_entry_for_emergencies_says_so() {
    let add = FlowMod {
        flags: FlowModFlags::EMERG,
        ..flow_mod(tcp())
    };
    let frame = crate::encode(Version::V10, Xid(1), &Message::FlowMod(add)).expect("of 1.0");
    let text = crate::text::print(&frame);
    assert!(text.contains(" emerg actions="), "{text}");
}

/// Rows of flow statistics after an unreadable one are still read.
#[test]
fn a_row_that_cannot_be_read_costs_that_row_only() {
    let row = |cookie: u64, priority: u16| crate::multipart::FlowStats {
        table_id: TableId(0),
        duration_sec: 1,
        duration_nsec: 2,
        priority,
        idle_timeout: 3,
        hard_timeout: 4,
        flags: FlowModFlags::empty(),
        cookie: Cookie(cookie),
        packet_count: 5,
        byte_count: 6,
        r#match: Match::any().with_in_port(PortNo(1)),
        instructions: vec![Instruction::ApplyActions(vec![Action::output(PortNo(2))])],
        importance: 0,
        stats: Vec::new(),
    };
    for version in [Version::V10, Version::V13] {
        let rows = vec![row(1, 10), row(2, 20), row(3, 30)];
        let reply = crate::message::MultipartReply {
            more: true,
            body: crate::multipart::ReplyBody::Flow(rows.clone()),
        };
        let message = Message::MultipartReply(reply);
        let frame = crate::encode(version, Xid(1), &message).expect("sayable");
        assert_eq!(crate::decode_rows(&frame), Ok((message, Vec::new())));
        let head = if version == Version::V10 { 12 } else { 16 };
        let row_len = (frame.len() - head) / 3;
        // The length of the second row's action.
        let mut bytes = frame.bytes().to_vec();
        let action_at = head
            + row_len
            + if version == Version::V10 {
                88
            } else {
                48 + 16 + 8
            };
        bytes[action_at + 3] = 3;
        let spoiled = Frame::new(bytes.clone().into()).expect("a frame");
        assert!(crate::decode(&spoiled).is_err());
        let Ok((Message::MultipartReply(reply), unreadable)) = crate::decode_rows(&spoiled) else {
            panic!("{version}: the others are read");
        };
        let others = vec![rows[0].clone(), rows[2].clone()];
        assert!(reply.more);
        assert_eq!(reply.body, crate::multipart::ReplyBody::Flow(others));
        let [row] = &unreadable[..] else {
            panic!("{version}: {unreadable:?}");
        };
        assert_eq!(
            (row.table_id, row.priority, row.cookie),
            (TableId(0), 20, Cookie(2))
        );
        assert_eq!(row.r#match, Some(rows[1].r#match.clone()));
        // After a row with an impossible length, nobody knows where the next row begins.
        for len in [0, 1, 87, u16::MAX] {
            let at = head + row_len;
            bytes[at..at + 2].copy_from_slice(&len.to_be_bytes());
            let frame = Frame::new(bytes.clone().into()).expect("a frame");
            assert!(crate::decode_rows(&frame).is_err(), "{version}: {len}");
        }
    }
}

#[test]
fn stray_bytes_after_a_hello_element_are_passed_over() {
    let hello = unhex("0400001200000001000100080000001200ff");
    let bitmaps = Some(vec![0x12]);
    assert_eq!(
        read(&hello),
        Ok(Message::Hello(crate::hello::Hello { bitmaps }))
    );
    // An element that announces more bytes than there are is still refused.
    let broken = unhex("0400001400000001000100080000001200010008");
    assert_eq!(read(&broken), Err(ErrorKind::BAD_LEN));
}

#[test]
fn the_tag_behind_a_tag_is_printed() {
    let data = unhex(
        "0000000000ff0000000000aa88a860058100400608004500001400000000400100000a0000010a000002",
    );
    let packet_in = Message::PacketIn(PacketIn {
        reason: crate::message::PacketInReason(0),
        cookie: NO_COOKIE,
        ..PacketIn::new(PortNo(1), data.into())
    });
    let frame = crate::encode(Version::V10, Xid(1), &packet_in).expect("of 1.0");
    let text = crate::text::print(&frame);
    let tags = "dl_vlan=5,dl_vlan_pcp=3,dl_vlan1=6,dl_vlan_pcp1=2,dl_src";
    assert!(text.contains(tags), "{text}");
}
