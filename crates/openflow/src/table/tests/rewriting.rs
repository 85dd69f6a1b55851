//! Actions: their order, the packets that they make, and where they send them.

use std::net::Ipv6Addr;

use super::*;
use crate::message::AsyncConfig;

#[test]
fn the_action_set_is_carried_out_in_its_own_order_at_the_end() {
    let mut s = Switch::with_ports(1..=4);
    let mut first = FlowMod::add(1, to_ip(2), vec![out(4)]);
    first.instructions.extend([
        Instruction::WriteActions(vec![out(2), set(Field::EthDst, 7u8)]),
        Instruction::GotoTable(TableId(1)),
    ]);
    add(&mut s, first);
    let mut second = FlowMod {
        table_id: TableId(1),
        ..FlowMod::add(1, Match::any(), vec![])
    };
    second.instructions = vec![Instruction::WriteActions(vec![out(3)])];
    add(&mut s, second.clone());
    let outputs = s.process(at(0), P1, &udp(2, 53));
    let [
        Output::Port {
            port: PortNo(4),
            packet: now,
            ..
        },
        Output::Port {
            port: PortNo(3),
            packet: later,
            ..
        },
    ] = outputs.as_slice()
    else {
        panic!("{outputs:?}")
    };
    assert_eq!(&now[..], udp(2, 53), "APPLY_ACTIONS at once");
    assert_eq!(
        later[..6],
        [0, 0, 0, 0, 0, 7],
        "set before output, the later output replaces"
    );

    second.instructions = vec![
        Instruction::WriteActions(vec![out(2)]),
        Instruction::ClearActions,
    ];
    add(&mut s, second.clone());
    assert_eq!(
        ports(&s, 2),
        [4, 2],
        "CLEAR_ACTIONS comes before WRITE_ACTIONS"
    );
    second.instructions = vec![Instruction::ClearActions];
    add(&mut s, second);
    assert_eq!(ports(&s, 2), [4], "CLEAR_ACTIONS empties the set");
}

#[test]
fn metadata_is_written_under_its_mask_and_matched_in_the_next_table() {
    let mut s = Switch::with_ports(1..=3);
    let mut first = FlowMod::add(1, Match::any(), vec![]);
    first.instructions = vec![
        Instruction::GotoTable(TableId(1)),
        Instruction::WriteMetadata {
            metadata: 0xff,
            mask: 0x0f,
        },
    ];
    add(&mut s, first);
    let on = |metadata: u64| FlowMod {
        table_id: TableId(1),
        ..FlowMod::add(
            1,
            Match::any().with(Field::Metadata, metadata),
            vec![out(2)],
        )
    };
    add(&mut s, on(0xff));
    assert_eq!(ports(&s, 2), []);
    add(&mut s, on(0x0f));
    assert_eq!(ports(&s, 2), [2]);
}

#[test]
fn rewritten_packets_are_those_their_sender_would_have_built() {
    let (a, b, c) = (Host::numbered(1), Host::numbered(2), Host::numbered(3));
    let addresses = vec![
        set(Field::EthDst, c.mac.to_u64()),
        set(Field::Ipv4Dst, u32::from(c.ip)),
    ];
    let with = |more: Vec<Action>| [addresses.clone(), more, vec![out(2)]].concat();
    let v6 = |n: u16| {
        (
            MacAddr([2, 0, 0, 0, 0, n as u8]),
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n),
        )
    };
    let tcp_ports = vec![set(Field::TcpSrc, 5u16), set(Field::TcpDst, 6u16)];
    let v6_actions = vec![
        set(Field::EthDst, v6(3).0.to_u64()),
        set(Field::Ipv6Dst, u128::from(v6(3).1)),
        set(Field::UdpDst, 99u16),
        out(2),
    ];
    let cases = [
        (
            build::udp(a, b, (1, 2), b"odd"),
            with(vec![set(Field::UdpDst, 9u16)]),
            build::udp(a, c, (1, 9), b"odd"),
        ),
        (
            build::tcp_syn(a, b, (1, 2)),
            with(tcp_ports),
            build::tcp_syn(a, c, (5, 6)),
        ),
        (
            build::icmp_echo_request(a, b, 1, 2, b"abc"),
            with(vec![set(Field::Icmpv4Type, 0u8)]),
            build::icmp_echo_reply(a, c, 1, 2, b"abc"),
        ),
        (
            build::udp6(v6(1), v6(2), (1, 2), b"x"),
            v6_actions,
            build::udp6(v6(1), v6(3), (1, 99), b"x"),
        ),
        (
            build::udp(a, b, (1, 2), b""),
            vec![
                Action::PushVlan(0x8100),
                set(Field::VlanVid, 0x1007u16),
                set(Field::VlanPcp, 5u8),
                out(2),
            ],
            build::tagged(&build::udp(a, b, (1, 2), b""), 7, 5),
        ),
        (
            build::udp(a, b, (1, 2), b""),
            vec![
                Action::SetVlanPcp(5),
                Action::SetVlanVid(7),
                Action::SetTpDst(8),
                out(2),
            ],
            build::tagged(&build::udp(a, b, (1, 8), b""), 7, 5),
        ),
        (
            build::tagged(&build::udp(a, b, (1, 2), b""), 7, 5),
            vec![Action::PopVlan, out(2)],
            build::udp(a, b, (1, 2), b""),
        ),
        (
            build::udp(a, b, (1, 2), b"m"),
            vec![Action::PushMpls(0x8847), Action::PopMpls(0x0800), out(2)],
            build::udp(a, b, (1, 2), b"m"),
        ),
        (
            build::udp(a, b, (1, 2), b""),
            vec![Action::StripVlan, set(Field::TcpDst, 4u8), out(2)],
            build::udp(a, b, (1, 2), b""),
        ),
        (
            build::arp_request(a, b.ip),
            vec![
                set(Field::ArpOp, 2u8),
                set(Field::ArpTha, 9u8),
                set(Field::ArpTha, 0u8),
                set(Field::ArpOp, 1u8),
                out(2),
            ],
            build::arp_request(a, b.ip),
        ),
    ];
    for (given, actions, expected) in cases {
        let mut s = Switch::new(SwitchOptions {
            version: Version::V10,
            ..Default::default()
        });
        for port in 1..=2 {
            let _ = s.set_port(at(0), plain_port(PortNo(port)));
        }
        add(&mut s, FlowMod::add(1, Match::any(), actions.clone()));
        let got = only_packet(s.process(at(0), P1, &given));
        assert_eq!(got, expected, "{actions:?}");
    }
}

#[test]
fn dscp_and_ttl_are_set_with_the_header_checksum_right() {
    let mut s = Switch::with_ports(1..=2);
    let ip = Match::any().with(Field::EthType, 0x0800u16);
    let actions = vec![set(Field::IpDscp, 46u8), Action::DecNwTtl, out(2)];
    add(&mut s, FlowMod::add(1, ip.clone(), actions));
    let got = only_packet(s.process(at(0), P1, &udp(2, 53)));
    let (header, _) = etherparse::Ipv4Header::from_slice(&got[14..]).expect("IPv4");
    assert_eq!((header.dscp.value(), header.time_to_live), (46, 63));
    assert_eq!(header.header_checksum, header.calc_header_checksum());

    let actions = vec![Action::SetNwTtl(1), Action::DecNwTtl, out(2)];
    add(&mut s, FlowMod::add(2, ip, actions));
    let outputs = s.process(at(0), P1, &udp(2, 53));
    assert!(outputs.is_empty(), "nobody has asked for it");
    let all = Message::SetAsync(AsyncConfig::of_v13([0b111, 0], [0b111, 0], [0b1111, 0]));
    s.apply(at(0), &all).expect("it takes it");
    let outputs = s.process(at(0), P1, &udp(2, 53));
    let [Output::Controller(p)] = outputs.as_slice() else {
        panic!("{outputs:?}")
    };
    assert_eq!(p.reason, PacketInReason::INVALID_TTL);
}

#[test]
fn an_sctp_checksum_is_that_of_the_rfc() {
    let mut packet = *b"\x30\x39\x00\x50\x00\x00\x00\x01\xff\xff\xff\xff\x00\x03\x00\x10";
    super::actions::sum_sctp(&mut packet, 0, 16);
    let sum = u32::from_le_bytes([packet[8], packet[9], packet[10], packet[11]]);
    assert_eq!(
        sum,
        crc32c(&{
            let mut zeroed = packet;
            zeroed[8..12].fill(0);
            zeroed
        })
    );
    assert_eq!(
        crc32c(b"123456789"),
        0xe306_9283,
        "the check value of CRC-32C"
    );
}

/// CRC-32C by long division of the reflected polynomial, a byte's table entry at a time.
fn crc32c(bytes: &[u8]) -> u32 {
    let entry = |n: u8| {
        (0..8).fold(u32::from(n), |c, _| {
            if c & 1 == 1 {
                c >> 1 ^ 0x82f6_3b78
            } else {
                c >> 1
            }
        })
    };
    !bytes
        .iter()
        .fold(u32::MAX, |crc, b| entry(crc as u8 ^ b) ^ crc >> 8)
}

#[test]
fn reserved_ports_reach_the_ports_they_name() {
    let mut s = Switch::with_ports(1..=4);
    let config = |port, config| {
        Message::PortMod(PortMod {
            port_no: PortNo(port),
            hw_addr: plain_port(PortNo(port)).hw_addr,
            config,
            mask: config,
            advertise: 0,
            properties: Vec::new(),
        })
    };
    s.apply(at(0), &config(3, PortConfig::NO_FLOOD)).unwrap();
    let status = s.apply(at(0), &config(4, PortConfig::PORT_DOWN)).unwrap();
    assert!(
        matches!(status.as_slice(), [Message::PortStatus(p)] if p.reason == PortReason::MODIFY)
    );
    let cases = [
        (PortNo::FLOOD, vec![2]),
        (PortNo::ALL, vec![2, 3]),
        (PortNo::IN_PORT, vec![1]),
        (PortNo::NORMAL, vec![2]),
        (PortNo(1), vec![]),
        (PortNo(4), vec![]),
        (PortNo(77), vec![]),
    ];
    for (port, reached) in cases {
        add(
            &mut s,
            FlowMod::add(1, Match::any(), vec![Action::output(port)]),
        );
        assert_eq!(ports(&s, 2), reached, "{port}");
    }
    s.apply(at(0), &config(1, PortConfig::NO_RECV)).unwrap();
    add(&mut s, FlowMod::add(1, Match::any(), vec![out(2)]));
    assert_eq!(s.process(at(0), P1, &udp(2, 1)), []);
    assert_eq!(s.drops(DropReason::InPortClosed), 1);
}

#[test]
fn normal_learns_from_packets_and_not_from_questions() {
    let mut s = Switch::with_ports(1..=3);
    add(
        &mut s,
        FlowMod::add(1, Match::any(), vec![Action::output(PortNo::NORMAL)]),
    );
    let (a, b) = (Host::numbered(1), Host::numbered(2));
    let there = build::udp(a, b, (1, 2), b"");
    let back = build::udp(b, a, (2, 1), b"");
    assert_eq!(s.ports_of(P1, &there), [PortNo(2), PortNo(3)]);
    assert_eq!(
        s.ports_of(PortNo(3), &back),
        [P1, PortNo(2)],
        "asking taught nothing"
    );
    let _ = s.process(at(0), P1, &there);
    assert_eq!(s.ports_of(PortNo(3), &back), [P1]);
    let tagged = build::tagged(&back, 9, 0);
    assert_eq!(
        s.ports_of(PortNo(3), &tagged),
        [P1, PortNo(2)],
        "VLANs apart"
    );
    let _ = s.remove_port(P1);
    assert_eq!(
        s.ports_of(PortNo(3), &back),
        [PortNo(2)],
        "forgotten with its port"
    );
}
