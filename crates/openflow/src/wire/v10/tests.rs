use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::actions::{Action, Instruction};
use crate::match_fields::VLAN_PRESENT;
use crate::message::{
    ErrorMessage, Experimenter, PacketQueue, Port, PortConfig, PortMod, PortName, PortReason,
    PortState, PortStatus, QueueConfig, QueueProperty,
};
use crate::message::{MultipartReply, MultipartRequest};
use crate::multipart::*;
use crate::types::{MacAddr, QueueId, Version, Xid};

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
    let body = RequestBody::PortDesc;
    let request = Message::MultipartRequest(MultipartRequest { more, body });
    assert_eq!(refusal(request), "such statistics");
    let error = |kind| {
        Message::Error(ErrorMessage {
            kind,
            experimenter: None,
            data: Bytes::new(),
        })
    };
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
    for ty in 0..0x1000 {
        for code in 0..20 {
            assert_eq!(error_to_wire(error_from_wire(ty, code)), Some((ty, code)));
        }
    }
    assert_eq!(error_from_wire(3, 0), ErrorKind::FLOW_MOD_TABLE_FULL);
    assert_eq!(error_from_wire(4, 1), ErrorKind::PORT_MOD_BAD_HW_ADDR);
    assert_eq!(error_from_wire(5, 1), ErrorKind::QUEUE_BAD_QUEUE);
    assert_eq!(error_from_wire(1, 8), ErrorKind::BUFFER_UNKNOWN);
    assert_eq!(error_from_wire(2, 8), ErrorKind::ACTION_BAD_QUEUE);
    // Numbers that are other errors in 1.3 get no name of theirs.
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

/// Whatever is wrong with bytes of 1.0, the error to answer can be said in 1.0.
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

fn a_port_no() -> impl Strategy<Value = PortNo> {
    prop_oneof![1u32..0xff00, 0xffff_fff8u32..=0xffff_ffff].prop_map(PortNo)
}

fn some_bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn a_text(len: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(1u8.., 0..len).prop_map(Bytes::from)
}

fn prefixed(m: Match, field: Field, address: u32, bits: u32) -> Match {
    match bits {
        0 => m,
        32 => m.with(field, address),
        bits => {
            let mask = u32::MAX << (32 - bits);
            m.with_masked(field, address & mask, mask)
        }
    }
}

/// Matches in the order they are read in.
fn a_match() -> impl Strategy<Value = Match> {
    let link = (
        prop::option::of(a_port_no()),
        prop::option::of(0u64..1 << 48),
        prop::option::of(0u64..1 << 48),
        0u8..5,
        0u16..0x1000,
        0u8..8,
    );
    let network = (
        0u8..5,
        0u8..64,
        any::<[u32; 2]>(),
        0u32..=32,
        0u32..=32,
        0usize..7,
    );
    let ports = (
        prop::option::of(any::<u16>()),
        prop::option::of(any::<u16>()),
    );
    (link, network, ports).prop_map(|(link, network, (tp_src, tp_dst))| {
        let (in_port, dst, src, vlan, vid, pcp) = link;
        let (kind, dscp, [nw_src, nw_dst], src_bits, dst_bits, proto) = network;
        let mut m = Match::any();
        if let Some(port) = in_port {
            m = m.with_in_port(port);
        }
        if let Some(dst) = dst {
            m = m.with(Field::EthDst, dst);
        }
        if let Some(src) = src {
            m = m.with(Field::EthSrc, src);
        }
        let eth_type = [0, 0x0800, 0x86dd, 0x0806, 0x88cc][usize::from(kind)];
        if eth_type != 0 {
            m = m.with(Field::EthType, eth_type as u16);
        }
        let tag = u128::from(vid) | VLAN_PRESENT;
        m = match vlan {
            1 => m.with(Field::VlanVid, 0u8),
            2 => m.with(Field::VlanVid, tag),
            3 => m.with(Field::VlanVid, tag).with(Field::VlanPcp, pcp),
            4 => m
                .with_masked(Field::VlanVid, VLAN_PRESENT, VLAN_PRESENT)
                .with(Field::VlanPcp, pcp),
            _ => m,
        };
        match eth_type {
            0x0800 | 0x86dd => {
                use Field as F;
                let v4 = eth_type == 0x0800;
                let (proto, tp) = [
                    (6, Some((F::TcpSrc, F::TcpDst))),
                    (17, Some((F::UdpSrc, F::UdpDst))),
                    (132, Some((F::SctpSrc, F::SctpDst))),
                    (1, v4.then_some((F::Icmpv4Type, F::Icmpv4Code))),
                    (58, (!v4).then_some((F::Icmpv6Type, F::Icmpv6Code))),
                    (47, None),
                    (0, None),
                ][proto];
                m = m.with(F::IpDscp, dscp).with(F::IpProto, proto as u8);
                if v4 {
                    m = prefixed(m, F::Ipv4Src, nw_src, src_bits);
                    m = prefixed(m, F::Ipv4Dst, nw_dst, dst_bits);
                }
                if let Some((src, dst)) = tp {
                    for (field, value) in [(src, tp_src), (dst, tp_dst)] {
                        if let Some(value) = value {
                            m = m.with(field, u128::from(value) & field.ones());
                        }
                    }
                }
                m
            }
            0x0806 => {
                m = m.with(Field::ArpOp, dscp);
                m = prefixed(m, Field::ArpSpa, nw_src, src_bits);
                prefixed(m, Field::ArpTpa, nw_dst, dst_bits)
            }
            _ => m,
        }
    })
}

fn an_action() -> impl Strategy<Value = Action> {
    let set = |field, value| {
        Action::SetField(MatchField::Basic {
            field,
            value,
            mask: None,
        })
    };
    prop_oneof![
        (a_port_no(), any::<u16>()).prop_map(|(port, max_len)| Action::Output { port, max_len }),
        any::<u16>().prop_map(Action::SetVlanVid),
        any::<u8>().prop_map(Action::SetVlanPcp),
        Just(Action::StripVlan),
        (0u128..1 << 48).prop_map(move |v| set(Field::EthSrc, v)),
        (0u128..1 << 48).prop_map(move |v| set(Field::EthDst, v)),
        any::<u32>().prop_map(move |v| set(Field::Ipv4Src, v.into())),
        any::<u32>().prop_map(move |v| set(Field::Ipv4Dst, v.into())),
        any::<u8>().prop_map(Action::SetNwTos),
        any::<u16>().prop_map(Action::SetTpSrc),
        any::<u16>().prop_map(Action::SetTpDst),
        (a_port_no(), any::<u32>()).prop_map(|(port, q)| Action::Enqueue {
            port,
            queue: QueueId(q)
        }),
        (any::<u32>(), prop::collection::vec(any::<u64>(), 0..4)).prop_map(|(experimenter, d)| {
            let data = d.iter().flat_map(|n| n.to_be_bytes()).collect();
            Action::Experimenter { experimenter, data }
        }),
    ]
}

fn a_port() -> impl Strategy<Value = Port> {
    let features = (0u32..1 << 12)
        .prop_map(numbers::features_from_wire)
        .boxed();
    let all = (
        features.clone(),
        features.clone(),
        features.clone(),
        features,
    );
    (
        a_port_no(),
        any::<[u8; 6]>(),
        any::<[u8; 16]>(),
        any::<u32>(),
        0u32..8,
        all,
    )
        .prop_map(
            |(port_no, mac, name, config, state, (curr, advertised, supported, peer))| Port {
                port_no,
                hw_addr: MacAddr(mac),
                name: PortName(name),
                config: PortConfig(config),
                state: PortState(state & 1 | (state & 6) << 7),
                curr,
                advertised,
                supported,
                peer,
                curr_speed: numbers::speed_of(curr),
                max_speed: numbers::speed_of(supported),
            },
        )
}

fn a_reply() -> impl Strategy<Value = ReplyBody> {
    let flow = (
        a_match(),
        any::<[u16; 3]>(),
        any::<[u32; 2]>(),
        any::<[u64; 3]>(),
        any::<u8>(),
    );
    let actions = prop::collection::vec(an_action(), 0..4);
    let flow =
        (flow, actions).prop_map(
            |((m, [a, b, c], [d, e], [f, g, h], table), actions)| FlowStats {
                table_id: TableId(table),
                duration_sec: d,
                duration_nsec: e,
                priority: a,
                idle_timeout: b,
                hard_timeout: c,
                flags: FlowModFlags::empty(),
                cookie: Cookie(f),
                packet_count: g,
                byte_count: h,
                r#match: m,
                instructions: vec![Instruction::ApplyActions(actions)],
            },
        );
    let table = (
        a_text(32),
        any::<[u32; 3]>(),
        any::<[u64; 2]>(),
        any::<u8>(),
    );
    let table = table.prop_map(
        |(name, [wildcards, max_entries, active_count], [l, m], id)| TableStats {
            table_id: TableId(id),
            active_count,
            lookup_count: l,
            matched_count: m,
            v10: Some(TableStatsV10 {
                name,
                wildcards,
                max_entries,
            }),
        },
    );
    let port = (a_port_no(), any::<[u64; 12]>()).prop_map(|(port_no, c)| PortStats {
        port_no,
        rx_packets: c[0],
        tx_packets: c[1],
        rx_bytes: c[2],
        tx_bytes: c[3],
        rx_dropped: c[4],
        tx_dropped: c[5],
        rx_errors: c[6],
        tx_errors: c[7],
        rx_frame_err: c[8],
        rx_over_err: c[9],
        rx_crc_err: c[10],
        collisions: c[11],
        duration_sec: 0,
        duration_nsec: 0,
    });
    let queue =
        (a_port_no(), any::<u32>(), any::<[u64; 3]>()).prop_map(|(port_no, q, c)| QueueStats {
            port_no,
            queue_id: QueueId(q),
            tx_bytes: c[0],
            tx_packets: c[1],
            tx_errors: c[2],
            duration_sec: 0,
            duration_nsec: 0,
        });
    let texts = (
        a_text(256),
        a_text(256),
        a_text(256),
        a_text(32),
        a_text(256),
    );
    prop_oneof![
        prop::collection::vec(flow, 0..4).prop_map(ReplyBody::Flow),
        prop::collection::vec(table, 0..3).prop_map(ReplyBody::Table),
        prop::collection::vec(port, 0..3).prop_map(ReplyBody::PortStats),
        prop::collection::vec(queue, 0..3).prop_map(ReplyBody::Queue),
        any::<(u64, u64, u32)>().prop_map(|(packet_count, byte_count, flow_count)| {
            ReplyBody::Aggregate(AggregateStats {
                packet_count,
                byte_count,
                flow_count,
            })
        }),
        texts.prop_map(|(manufacturer, hardware, software, serial, datapath)| {
            ReplyBody::Desc(Description {
                manufacturer,
                hardware,
                software,
                serial,
                datapath,
            })
        }),
        (any::<u32>(), some_bytes())
            .prop_map(|(experimenter, data)| ReplyBody::Experimenter { experimenter, data }),
        (6u16..0xffff, some_bytes()).prop_map(|(kind, body)| ReplyBody::Other { kind, body }),
    ]
}

fn a_request() -> impl Strategy<Value = RequestBody> {
    let flow = || {
        (a_match(), any::<u8>(), a_port_no()).prop_map(|(r#match, table, out_port)| {
            let table_id = TableId(table);
            FlowStatsRequest {
                table_id,
                out_port,
                r#match,
                ..FlowStatsRequest::all()
            }
        })
    };
    let queue_port = a_port_no().prop_map(|p| if p == PortNo::ALL { PortNo::ANY } else { p });
    prop_oneof![
        Just(RequestBody::Desc),
        Just(RequestBody::Table),
        flow().prop_map(RequestBody::Flow),
        flow().prop_map(RequestBody::Aggregate),
        a_port_no().prop_map(RequestBody::PortStats),
        (queue_port, any::<u32>()).prop_map(|(port, q)| RequestBody::Queue {
            port,
            queue: QueueId(q)
        }),
        (any::<u32>(), some_bytes())
            .prop_map(|(experimenter, data)| RequestBody::Experimenter { experimenter, data }),
    ]
}

fn a_flow_mod() -> impl Strategy<Value = FlowMod> {
    let numbers = (
        any::<u64>(),
        0u8..5,
        any::<[u16; 3]>(),
        0u32..,
        a_port_no(),
        0u16..8,
    );
    let actions = prop::collection::vec(an_action(), 0..5);
    (a_match(), numbers, actions).prop_map(|(r#match, n, actions)| {
        let (cookie, command, [idle, hard, priority], buffer, out_port, flags) = n;
        let shared = FlowModFlags(flags & 3);
        FlowMod {
            cookie: Cookie(cookie),
            command: FlowModCommand::from_wire(command).expect("a command"),
            idle_timeout: idle,
            hard_timeout: hard,
            buffer_id: Some(buffer).filter(|b| *b != NO_BUFFER).map(BufferId),
            out_port,
            flags: if flags & 4 != 0 {
                shared | FlowModFlags::EMERG
            } else {
                shared
            },
            ..FlowMod::add(priority, r#match, actions)
        }
    })
}

fn a_message() -> impl Strategy<Value = Message> {
    let packet_in =
        (any::<(u16, u8)>(), a_port_no(), some_bytes()).prop_map(|((len, reason), port, data)| {
            Message::PacketIn(PacketIn {
                buffer_id: None,
                total_len: len,
                reason: PacketInReason(reason),
                table_id: TableId(0),
                cookie: NO_COOKIE,
                r#match: Match::any().with_in_port(port),
                data,
            })
        });
    let actions = prop::collection::vec(an_action(), 0..5);
    let packet_out = (a_port_no(), actions, some_bytes()).prop_map(|(in_port, actions, data)| {
        let buffer_id = None;
        Message::PacketOut(PacketOut {
            buffer_id,
            in_port,
            actions,
            data,
        })
    });
    let removed = (
        a_match(),
        any::<(u64, u16, u8)>(),
        any::<(u32, u32, u16, u64, u64)>(),
    );
    let removed = removed.prop_map(|(r#match, (cookie, priority, reason), n)| {
        Message::FlowRemoved(FlowRemoved {
            cookie: Cookie(cookie),
            priority,
            reason: FlowRemovedReason(reason),
            table_id: TableId(0),
            duration_sec: n.0,
            duration_nsec: n.1,
            idle_timeout: n.2,
            hard_timeout: 0,
            packet_count: n.3,
            byte_count: n.4,
            r#match,
        })
    });
    let property = prop_oneof![
        any::<u16>().prop_map(QueueProperty::MinRate),
        (2u16.., some_bytes()).prop_map(|(property, data)| QueueProperty::Other { property, data }),
    ];
    let queue = (any::<u32>(), prop::collection::vec(property, 0..3));
    let queues = (a_port_no(), prop::collection::vec(queue, 0..3)).prop_map(|(port, list)| {
        let queue = |(id, properties)| PacketQueue {
            queue_id: QueueId(id),
            port,
            properties,
        };
        let queues = list.into_iter().map(queue).collect();
        Message::QueueGetConfigReply(QueueConfig { port, queues })
    });
    let features = (
        any::<(u64, u32, u8, u8, u32)>(),
        prop::collection::vec(a_port(), 0..4),
    );
    let features = features.prop_map(|(n, ports)| {
        Message::FeaturesReply(SwitchFeatures {
            datapath_id: DatapathId(n.0),
            n_buffers: n.1,
            n_tables: n.2,
            auxiliary_id: 0,
            capabilities: Capabilities(n.3.into()),
            actions: n.4,
            ports,
        })
    });
    let port_mod = (a_port(), any::<(u32, u32)>()).prop_map(|(p, (config, mask))| {
        Message::PortMod(PortMod {
            port_no: p.port_no,
            hw_addr: p.hw_addr,
            config: PortConfig(config),
            mask: PortConfig(mask),
            advertise: p.curr,
        })
    });
    let config = any::<(u16, u16)>().prop_map(|(flags, miss_send_len)| SwitchConfig {
        flags,
        miss_send_len,
    });
    let error = (any::<(u16, u16)>(), some_bytes()).prop_map(|((ty, code), data)| {
        let kind = error_from_wire(ty & 0xefff, code);
        Message::Error(ErrorMessage {
            kind,
            experimenter: None,
            data,
        })
    });
    prop_oneof![
        packet_in,
        packet_out,
        removed,
        queues,
        features,
        port_mod,
        error,
        config.clone().prop_map(Message::SetConfig),
        config.prop_map(Message::GetConfigReply),
        (any::<u8>(), a_port()).prop_map(|(r, port)| {
            Message::PortStatus(PortStatus {
                reason: PortReason(r),
                port,
            })
        }),
        a_flow_mod().prop_map(Message::FlowMod),
        a_flow_mod().prop_map(Message::FlowMod),
        (any::<bool>(), a_request())
            .prop_map(|(more, body)| Message::MultipartRequest(MultipartRequest { more, body })),
        (any::<bool>(), a_reply())
            .prop_map(|(more, body)| Message::MultipartReply(MultipartReply { more, body })),
        a_port_no().prop_map(|port| Message::QueueGetConfigRequest { port }),
        prop::sample::select(vec![
            Message::FeaturesRequest,
            Message::GetConfigRequest,
            Message::BarrierRequest,
            Message::BarrierReply,
        ]),
        some_bytes().prop_map(Message::EchoRequest),
        (any::<u32>(), some_bytes()).prop_map(|(experimenter, data)| {
            Message::Experimenter(Experimenter { experimenter, data })
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn what_is_written_is_read_back(message in a_message()) {
        let bytes = written(&message);
        let again = read(&bytes);
        prop_assert_eq!(again.as_ref(), Ok(&message));
        prop_assert_eq!(written(&again.expect("just read")), bytes);
    }

    #[test]
    fn a_message_cut_anywhere_is_refused_in_1_0_or_read(message in a_message(), cut: prop::sample::Index) {
        let mut bytes = written(&message);
        bytes.truncate(8 + cut.index(bytes.len() - 7));
        let len = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        if let Err(kind) = read(&bytes) {
            prop_assert!(error_to_wire(kind).is_some(), "{}", kind);
        }
    }
}
