use std::net::Ipv6Addr;

use proptest::prelude::*;

use super::*;
use crate::actions::{Action, Bucket, Instruction};
use crate::match_fields::{Field, Match, MatchField};
use crate::message::{
    FlowMod, FlowModCommand, FlowModFlags, FlowRemoved, GroupMod, GroupModCommand, GroupType,
    MeterFlags, MeterMod, MeterModCommand, MultipartRequest, PacketInReason,
};
use crate::multipart::{FlowStatsRequest, ReplyBody, RequestBody};
use crate::packet::PacketFields;
use crate::packet::build::{self, Host};
use crate::time::Duration;
use crate::types::{Cookie, GroupId};

const P1: PortNo = PortNo(1);

fn at(ms: u64) -> Instant {
    Instant::START + Duration::from_millis(ms)
}

fn udp(dst: u8, port: u16) -> Vec<u8> {
    build::udp(
        Host::numbered(1),
        Host::numbered(dst),
        (1000, port),
        b"payload",
    )
}

fn out(port: u32) -> Action {
    Action::output(PortNo(port))
}

fn to_ip(dst: u8) -> Match {
    let ip = u32::from(Host::numbered(dst).ip);
    Match::any()
        .with(Field::EthType, 0x0800u16)
        .with(Field::Ipv4Dst, ip)
}

fn set(field: Field, value: impl Into<u128>) -> Action {
    let value = value.into();
    Action::SetField(MatchField::Basic {
        field,
        value,
        mask: None,
    })
}

fn add(switch: &mut Switch, m: FlowMod) {
    assert_eq!(apply(switch, 0, m), Ok(Vec::new()));
}

fn apply(switch: &mut Switch, ms: u64, m: FlowMod) -> Result<Vec<Message>, ErrorKind> {
    switch.apply(at(ms), &Message::FlowMod(m))
}

fn add_group(switch: &mut Switch, id: u32, group_type: GroupType, buckets: Vec<Bucket>) {
    let m = GroupMod {
        command: GroupModCommand::Add,
        group_type,
        group_id: GroupId(id),
        buckets,
    };
    assert_eq!(switch.apply(at(0), &Message::GroupMod(m)), Ok(Vec::new()));
}

fn bucket(actions: Vec<Action>) -> Bucket {
    Bucket {
        weight: 0,
        watch_port: PortNo::ANY,
        watch_group: GroupId::ANY,
        actions,
    }
}

/// The ports a packet to 10.0.0.`dst` reaches from port 1.
fn ports(switch: &Switch, dst: u8) -> Vec<u32> {
    let ports = switch.ports_of(P1, &udp(dst, 53));
    ports.into_iter().map(|p| p.0).collect()
}

fn only_packet(outputs: Vec<Output>) -> Bytes {
    match outputs.as_slice() {
        [Output::Port { packet, .. }] => packet.clone(),
        other => panic!("not one packet: {other:?}"),
    }
}

fn removed(messages: &[Message]) -> Vec<&FlowRemoved> {
    let mut list = Vec::new();
    for message in messages {
        match message {
            Message::FlowRemoved(r) => list.push(r),
            other => panic!("not a FLOW_REMOVED: {other:?}"),
        }
    }
    list
}

#[test]
fn the_matching_entry_of_highest_priority_decides() {
    let mut s = Switch::with_ports(1..=4);
    add(&mut s, FlowMod::add(1, Match::any(), vec![out(2)]));
    add(&mut s, FlowMod::add(10, to_ip(2), vec![out(3)]));
    add(
        &mut s,
        FlowMod::add(5, to_ip(2).with(Field::IpProto, 17u8), vec![out(4)]),
    );
    assert_eq!(ports(&s, 2), [3]);
    assert_eq!(ports(&s, 9), [2]);
}

#[test]
fn a_miss_drops_in_1_3_and_asks_in_1_0() {
    let mut s = Switch::with_ports(1..=2);
    assert_eq!(s.process(at(0), P1, &udp(2, 53)), []);
    assert_eq!(s.drops(DropReason::TableMiss), 1);

    let mut v10 = Switch::new(SwitchOptions {
        version: Version::V10,
        ..Default::default()
    });
    let _ = v10.set_port(at(0), plain_port(P1));
    let outputs = v10.process(at(0), P1, &udp(2, 53));
    let [Output::Controller(p)] = outputs.as_slice() else {
        panic!("{outputs:?}")
    };
    assert_eq!(
        (p.reason, p.r#match.in_port()),
        (PacketInReason::NO_MATCH, Some(P1))
    );
}

#[test]
fn a_table_miss_entry_gives_its_reason_table_and_cookie() {
    let mut s = Switch::with_ports(1..=2);
    let goto = vec![Instruction::GotoTable(TableId(7))];
    add(
        &mut s,
        FlowMod {
            instructions: goto,
            ..FlowMod::add(1, Match::any(), vec![])
        },
    );
    let miss = FlowMod::add(0, Match::any(), vec![Action::controller()]);
    add(
        &mut s,
        FlowMod {
            table_id: TableId(7),
            cookie: Cookie(0xc0),
            ..miss
        },
    );
    let packet = udp(2, 53);
    let outputs = s.process(at(0), P1, &packet);
    let [Output::Controller(p)] = outputs.as_slice() else {
        panic!("{outputs:?}")
    };
    assert_eq!(
        (p.reason, p.table_id),
        (PacketInReason::NO_MATCH, TableId(7))
    );
    assert_eq!((p.cookie, p.buffer_id), (Cookie(0xc0), None));
    assert_eq!(
        (&p.data[..], p.total_len),
        (&packet[..], packet.len() as u16)
    );
    let asked = FlowMod::add(3, Match::any(), vec![Action::controller()]);
    add(&mut s, asked);
    let outputs = s.process(at(0), P1, &packet);
    let [Output::Controller(p)] = outputs.as_slice() else {
        panic!("{outputs:?}")
    };
    assert_eq!(p.reason, PacketInReason::ACTION);
}

#[test]
fn masks_and_absent_fields_are_honoured() {
    let mut s = Switch::with_ports(1..=3);
    let net = Match::any().with(Field::EthType, 0x0800u16).with_masked(
        Field::Ipv4Dst,
        0x0a00_0000u32,
        0xffff_fff8u32,
    );
    add(&mut s, FlowMod::add(5, net, vec![out(2)]));
    assert_eq!(ports(&s, 7), [2]);
    assert_eq!(ports(&s, 8), []);
    let untagged = Match::any().with(Field::VlanVid, 0u16);
    let tagged = Match::any().with_masked(Field::VlanVid, 0x1000u16, 0x1000u16);
    add(&mut s, FlowMod::add(1, untagged, vec![out(3)]));
    add(&mut s, FlowMod::add(9, tagged, vec![out(2)]));
    assert_eq!(ports(&s, 8), [3]);
    assert_eq!(
        s.ports_of(P1, &build::tagged(&udp(8, 1), 5, 0)),
        [PortNo(2)]
    );
}

#[test]
fn modify_and_delete_select_loosely_or_strictly() {
    let narrow = || to_ip(2).with(Field::IpProto, 17u8);
    let base = || {
        let mut s = Switch::with_ports(1..=4);
        add(
            &mut s,
            FlowMod {
                cookie: Cookie(5),
                ..FlowMod::add(10, to_ip(2), vec![out(2)])
            },
        );
        add(
            &mut s,
            FlowMod {
                cookie: Cookie(6),
                ..FlowMod::add(20, narrow(), vec![out(3)])
            },
        );
        s
    };
    let command = |command, priority, m, actions| FlowMod {
        command,
        ..FlowMod::add(priority, m, actions)
    };
    use FlowModCommand as C;
    let priorities = |s: &Switch| s.entries().map(|e| e.priority).collect::<Vec<_>>();

    let mut s = base();
    apply(&mut s, 0, command(C::Modify, 0, to_ip(2), vec![out(4)])).unwrap();
    assert!(
        s.entries().all(|e| e.outputs_to(PortNo(4))),
        "loose: both, whatever their priority"
    );
    let cookies: Vec<_> = s.entries().map(|e| e.cookie.0).collect();
    assert_eq!(cookies, [5, 6], "MODIFY leaves the cookie");

    let mut s = base();
    apply(
        &mut s,
        0,
        command(C::ModifyStrict, 11, to_ip(2), vec![out(4)]),
    )
    .unwrap();
    assert!(
        !s.entries().any(|e| e.outputs_to(PortNo(4))),
        "strict: no such priority"
    );
    apply(
        &mut s,
        0,
        command(C::ModifyStrict, 10, to_ip(2), vec![out(4)]),
    )
    .unwrap();
    assert_eq!(s.entries().filter(|e| e.outputs_to(PortNo(4))).count(), 1);
    apply(&mut s, 0, command(C::Modify, 10, to_ip(9), vec![out(4)])).unwrap();
    assert_eq!(priorities(&s), [10, 20], "MODIFY adds nothing in 1.3");

    let mut s = base();
    apply(&mut s, 0, command(C::DeleteStrict, 20, to_ip(2), vec![])).unwrap();
    assert_eq!(priorities(&s), [10, 20]);
    apply(&mut s, 0, command(C::DeleteStrict, 20, narrow(), vec![])).unwrap();
    assert_eq!(priorities(&s), [10]);
    let mut s = base();
    apply(&mut s, 0, command(C::Delete, 0, narrow(), vec![])).unwrap();
    assert_eq!(
        priorities(&s),
        [10],
        "a wider entry is not within a narrower match"
    );

    let filtered = |change: fn(&mut FlowMod)| {
        let mut s = base();
        let mut m = command(C::Delete, 0, Match::any(), vec![]);
        m.table_id = TableId::ALL;
        change(&mut m);
        apply(&mut s, 0, m).unwrap();
        priorities(&s)
    };
    assert_eq!(filtered(|_| {}), []);
    assert_eq!(filtered(|m| m.out_port = PortNo(2)), [20]);
    assert_eq!(filtered(|m| m.out_group = GroupId(2)), [10, 20]);
    assert_eq!(
        filtered(|m| (m.cookie, m.cookie_mask) = (Cookie(6), Cookie(u64::MAX))),
        [10]
    );
    assert_eq!(
        filtered(|m| (m.cookie, m.cookie_mask) = (Cookie(4), Cookie(4))),
        []
    );
    assert_eq!(filtered(|m| m.table_id = TableId(3)), [10, 20]);
}

#[test]
fn modify_without_a_match_adds_in_1_0() {
    let mut s = Switch::new(SwitchOptions {
        version: Version::V10,
        ..Default::default()
    });
    let m = FlowMod {
        command: FlowModCommand::Modify,
        ..FlowMod::add(1, to_ip(2), vec![out(2)])
    };
    apply(&mut s, 0, m).unwrap();
    assert_eq!(s.entries().count(), 1);
}

#[test]
fn overlap_is_refused_only_at_equal_priority() {
    let mut s = Switch::with_ports(1..=2);
    add(&mut s, FlowMod::add(10, to_ip(2), vec![out(2)]));
    let checked = |priority, m| FlowMod {
        flags: FlowModFlags::CHECK_OVERLAP,
        ..FlowMod::add(priority, m, vec![])
    };
    let tcp = Match::any()
        .with(Field::EthType, 0x0800u16)
        .with(Field::IpProto, 6u8);
    assert_eq!(
        apply(&mut s, 0, checked(10, tcp.clone())),
        Err(ErrorKind::FLOW_MOD_OVERLAP)
    );
    assert_eq!(apply(&mut s, 0, checked(10, to_ip(3))), Ok(vec![]));
    assert_eq!(apply(&mut s, 0, checked(11, tcp)), Ok(vec![]));
}

#[test]
fn adding_again_restarts_the_clock_and_keeps_the_counters() {
    let mut s = Switch::with_ports(1..=2);
    let entry = || FlowMod {
        hard_timeout: 2,
        ..FlowMod::add(10, to_ip(2), vec![out(2)])
    };
    let stats = |s: &Switch| {
        let e = s.entries().next().expect("the entry");
        (e.packet_count, e.created_at)
    };
    add(&mut s, entry());
    let _ = s.process(at(500), P1, &udp(2, 1));
    apply(&mut s, 1_000, entry()).unwrap();
    assert_eq!(stats(&s), (1, at(1_000)));
    assert_eq!(
        s.handle_timeout(at(2_500)),
        [],
        "the first deadline is gone"
    );
    assert_eq!(s.entries().count(), 1);
    apply(
        &mut s,
        2_600,
        FlowMod {
            flags: FlowModFlags::RESET_COUNTS,
            ..entry()
        },
    )
    .unwrap();
    assert_eq!(stats(&s), (0, at(2_600)));
    assert_eq!(s.poll_timeout().map(|(t, _)| t), Some(at(4_600)));

    let mut v10 = Switch::new(SwitchOptions {
        version: Version::V10,
        ..Default::default()
    });
    let _ = v10.set_port(at(0), plain_port(P1));
    add(&mut v10, entry());
    let _ = v10.process(at(500), P1, &udp(2, 1));
    assert_eq!(stats(&v10).0, 1);
    add(&mut v10, entry());
    assert_eq!(stats(&v10).0, 0, "1.0 zeroes them");
}

#[test]
fn modify_leaves_the_hard_timeout_unless_told_as_ovs_does() {
    for (restarts, left) in [(false, 0), (true, 1)] {
        let options = SwitchOptions {
            modify_restarts_hard_timeout: restarts,
            ..Default::default()
        };
        let mut s = Switch::new(options);
        add(
            &mut s,
            FlowMod {
                hard_timeout: 2,
                ..FlowMod::add(10, to_ip(2), vec![out(2)])
            },
        );
        let modify = FlowMod {
            command: FlowModCommand::Modify,
            ..FlowMod::add(10, to_ip(2), vec![out(3)])
        };
        apply(&mut s, 1_000, modify).unwrap();
        let _ = s.handle_timeout(at(2_000));
        assert_eq!(s.entries().count(), left, "restarts: {restarts}");
        let _ = s.handle_timeout(at(3_000));
        assert_eq!(s.entries().count(), 0);
    }
}

#[test]
fn idle_entries_expire_from_their_last_packet_and_say_so_if_asked() {
    let mut s = Switch::with_ports(1..=2);
    let entry = FlowMod {
        idle_timeout: 1,
        flags: FlowModFlags::SEND_FLOW_REM,
        cookie: Cookie(9),
        ..FlowMod::add(10, to_ip(2), vec![out(2)])
    };
    add(&mut s, entry);
    add(
        &mut s,
        FlowMod {
            hard_timeout: 1,
            ..FlowMod::add(10, to_ip(3), vec![out(2)])
        },
    );
    let packet = udp(2, 53);
    let _ = s.process(at(900), P1, &packet);
    assert_eq!(
        s.handle_timeout(at(1_000)),
        [],
        "one used, the other silent"
    );
    assert_eq!(s.entries().count(), 1);
    assert_eq!(s.handle_timeout(at(1_899)), []);
    let messages = s.handle_timeout(at(1_900));
    let [r] = removed(&messages)[..] else {
        panic!("{messages:?}")
    };
    assert_eq!(
        (r.reason, r.cookie),
        (FlowRemovedReason::IDLE_TIMEOUT, Cookie(9))
    );
    assert_eq!((r.duration_sec, r.duration_nsec), (1, 900_000_000));
    assert_eq!((r.packet_count, r.byte_count), (1, packet.len() as u64));
    assert_eq!(s.poll_timeout(), None);
}

#[test]
fn the_earlier_of_two_timeouts_expires_an_entry() {
    for (idle, hard, reason) in [
        (1, 3, FlowRemovedReason::IDLE_TIMEOUT),
        (3, 1, FlowRemovedReason::HARD_TIMEOUT),
        (1, 1, FlowRemovedReason::HARD_TIMEOUT),
    ] {
        let mut s = Switch::with_ports(1..=2);
        let entry = FlowMod {
            idle_timeout: idle,
            hard_timeout: hard,
            flags: FlowModFlags::SEND_FLOW_REM,
            ..FlowMod::add(10, to_ip(2), vec![out(2)])
        };
        add(&mut s, entry);
        assert_eq!(s.handle_timeout(at(999)), []);
        let messages = s.handle_timeout(at(1_000));
        assert_eq!(removed(&messages)[0].reason, reason, "{idle} {hard}");
    }
}

#[test]
fn what_a_1_0_switch_says_can_be_said_in_1_0() {
    let mut s = Switch::new(SwitchOptions {
        version: Version::V10,
        n_tables: 2,
        ..Default::default()
    });
    let mut said = vec![s.set_port(at(0), plain_port(P1))];
    let entry = FlowMod {
        cookie: Cookie(7),
        hard_timeout: 2,
        flags: FlowModFlags::SEND_FLOW_REM,
        ..FlowMod::add(1, Match::any(), vec![Action::controller()])
    };
    add(&mut s, entry);
    for output in s.process(at(0), P1, &udp(2, 53)) {
        match output {
            Output::Controller(p) => said.push(Message::PacketIn(p)),
            other => panic!("{other:?}"),
        }
    }
    said.extend(s.apply(at(1), &Message::FeaturesRequest).unwrap());
    for body in [
        RequestBody::Desc,
        RequestBody::Flow(FlowStatsRequest::all()),
        RequestBody::Aggregate(FlowStatsRequest::all()),
        RequestBody::Table,
        RequestBody::PortStats(PortNo::ANY),
    ] {
        let request = MultipartRequest { more: false, body };
        said.extend(
            s.apply(at(1_500), &Message::MultipartRequest(request))
                .unwrap(),
        );
    }
    said.extend(s.set_link(P1, false));
    said.extend(s.handle_timeout(at(2_000)));
    assert_eq!(said.len(), 10);
    for message in said {
        let frame = crate::encode(Version::V10, crate::Xid(1), &message);
        assert!(frame.is_ok(), "{frame:?} for {message:?}");
    }
}

#[test]
fn asking_counts_nothing() {
    let mut s = Switch::with_ports(1..=2);
    add(&mut s, FlowMod::add(10, to_ip(2), vec![out(2)]));
    assert_eq!(ports(&s, 2), [2]);
    assert_eq!(s.entries().next().map(|e| e.packet_count), Some(0));
}

#[test]
fn a_full_table_takes_replacements_only() {
    let mut s = Switch::new(SwitchOptions {
        entries_max: 2,
        ..Default::default()
    });
    for dst in [1, 2, 1] {
        add(&mut s, FlowMod::add(10, to_ip(dst), vec![out(2)]));
    }
    let third = FlowMod::add(10, to_ip(3), vec![out(2)]);
    assert_eq!(apply(&mut s, 0, third), Err(ErrorKind::FLOW_MOD_TABLE_FULL));
    assert_eq!(s.entries().count(), 2);
}

#[test]
fn nonsense_is_refused_with_its_error() {
    let plain = || FlowMod::add(1, Match::any(), vec![]);
    let matching = |m| FlowMod {
        r#match: m,
        ..plain()
    };
    let acting = |m, a| FlowMod {
        instructions: vec![Instruction::ApplyActions(vec![a])],
        ..matching(m)
    };
    let doing = |i| FlowMod {
        instructions: vec![i],
        ..plain()
    };
    let any = Match::any;
    let cases = [
        (
            matching(any().with(Field::TcpDst, 80u16)),
            ErrorKind::MATCH_BAD_PREREQ,
        ),
        (
            matching(any().with(Field::VlanPcp, 1u8)),
            ErrorKind::MATCH_BAD_PREREQ,
        ),
        (
            matching(to_ip(1).with(Field::EthType, 0x0800u16)),
            ErrorKind::MATCH_DUP_FIELD,
        ),
        (
            matching(any().with_masked(Field::EthType, 0u16, 0xffu16)),
            ErrorKind::MATCH_BAD_MASK,
        ),
        (
            matching(any().with_masked(Field::EthDst, 3u8, 1u8)),
            ErrorKind::MATCH_BAD_WILDCARDS,
        ),
        (
            matching(any().with(Field::EthDst, u64::MAX)),
            ErrorKind::MATCH_BAD_VALUE,
        ),
        (
            FlowMod {
                table_id: TableId(254),
                ..plain()
            },
            ErrorKind::FLOW_MOD_BAD_TABLE_ID,
        ),
        (
            FlowMod {
                flags: FlowModFlags(1 << 9),
                ..plain()
            },
            ErrorKind::FLOW_MOD_BAD_FLAGS,
        ),
        (
            doing(Instruction::GotoTable(TableId(0))),
            ErrorKind::INST_BAD_TABLE_ID,
        ),
        (
            doing(Instruction::GotoTable(TableId(254))),
            ErrorKind::INST_BAD_TABLE_ID,
        ),
        (
            doing(Instruction::Meter(MeterId(1))),
            ErrorKind::METER_UNKNOWN_METER,
        ),
        (
            acting(any(), Action::Group(GroupId(1))),
            ErrorKind::ACTION_BAD_OUT_GROUP,
        ),
        (
            acting(any(), Action::output(PortNo::ANY)),
            ErrorKind::ACTION_BAD_OUT_PORT,
        ),
        (
            acting(any(), Action::output(PortNo::TABLE)),
            ErrorKind::ACTION_BAD_OUT_PORT,
        ),
        (
            acting(any(), set(Field::Ipv4Dst, 1u8)),
            ErrorKind::ACTION_MATCH_INCONSISTENT,
        ),
        (
            acting(any(), set(Field::InPort, 1u8)),
            ErrorKind::ACTION_BAD_SET_TYPE,
        ),
        (
            acting(any(), Action::PushVlan(0x0800)),
            ErrorKind::ACTION_BAD_ARGUMENT,
        ),
        (acting(any(), Action::PopPbb), ErrorKind::ACTION_BAD_TYPE),
    ];
    for (m, error) in cases {
        let mut s = Switch::with_ports(1..=2);
        assert_eq!(apply(&mut s, 0, m.clone()), Err(error), "{m:?}");
        assert_eq!(s.entries().count(), 0);
    }
}

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

#[test]
fn groups_copy_choose_or_fail_over() {
    let mut s = Switch::with_ports(1..=4);
    let watching = |port: u32| Bucket {
        watch_port: PortNo(port),
        ..bucket(vec![out(port)])
    };
    let weighing = |port: u32, weight| Bucket {
        weight,
        ..bucket(vec![out(port)])
    };
    let rewriting = bucket(vec![set(Field::EthDst, 7u8), out(2)]);
    add_group(
        &mut s,
        1,
        GroupType::All,
        vec![rewriting, bucket(vec![out(3)])],
    );
    add_group(
        &mut s,
        2,
        GroupType::FastFailover,
        vec![watching(2), watching(3)],
    );
    add_group(
        &mut s,
        3,
        GroupType::Select,
        vec![weighing(2, 1), weighing(3, 3), weighing(4, 0)],
    );
    add_group(
        &mut s,
        4,
        GroupType::Indirect,
        vec![bucket(vec![Action::Group(GroupId(2))])],
    );
    let use_group = |s: &mut Switch, id| {
        add(
            s,
            FlowMod::add(1, Match::any(), vec![Action::Group(GroupId(id))]),
        );
    };

    use_group(&mut s, 1);
    let outputs = s.process(at(0), P1, &udp(2, 53));
    let [
        Output::Port { packet: first, .. },
        Output::Port { packet: second, .. },
    ] = outputs.as_slice()
    else {
        panic!("{outputs:?}")
    };
    assert_eq!(first[5], 7);
    assert_eq!(&second[..], udp(2, 53), "each bucket has a copy of its own");

    use_group(&mut s, 4);
    assert_eq!(ports(&s, 2), [2]);
    let down = s.set_link(PortNo(2), false);
    assert!(matches!(down, Some(Message::PortStatus(_))));
    assert_eq!(ports(&s, 2), [3]);
    assert_eq!(s.set_link(PortNo(2), false), None, "nothing new");
    let _ = s.set_link(PortNo(3), false);
    assert_eq!(ports(&s, 2), []);
    let _ = (s.set_link(PortNo(2), true), s.set_link(PortNo(3), true));

    use_group(&mut s, 3);
    let mut counts = [0; 5];
    for port in 0..400 {
        for reached in s.ports_of(P1, &udp(2, port)) {
            counts[reached.0 as usize] += 1;
        }
    }
    assert_eq!((counts[2] + counts[3], counts[4]), (400, 0));
    assert!(
        (70..130).contains(&counts[2]),
        "a quarter of 400, by hash: {counts:?}"
    );
}

#[test]
fn groups_refuse_loops_and_unknowns_and_take_their_entries_with_them() {
    let mut s = Switch::with_ports(1..=4);
    let m = |command, id, group_type, buckets| {
        Message::GroupMod(GroupMod {
            command,
            group_type,
            group_id: GroupId(id),
            buckets,
        })
    };
    use {GroupModCommand as C, GroupType as T};
    let to = |id| vec![bucket(vec![Action::Group(GroupId(id))])];
    let port = || vec![bucket(vec![out(2)])];
    let mut refused = |message| s.apply(at(0), &message).expect_err("refused");
    assert_eq!(
        refused(m(C::Add, 1, T::All, to(2))),
        ErrorKind::ACTION_BAD_OUT_GROUP
    );
    assert_eq!(refused(m(C::Add, 1, T::All, to(1))), ErrorKind::GROUP_LOOP);
    assert_eq!(
        refused(m(C::Modify, 1, T::All, port())),
        ErrorKind::GROUP_UNKNOWN_GROUP
    );
    assert_eq!(
        refused(m(C::Add, 1, T::Indirect, vec![])),
        ErrorKind::GROUP_INVALID
    );
    assert_eq!(
        refused(m(C::Add, 1, T::FastFailover, port())),
        ErrorKind::GROUP_BAD_WATCH
    );
    add_group(&mut s, 1, T::All, port());
    add_group(&mut s, 2, T::All, to(1));
    let mut refused = |message| s.apply(at(0), &message).expect_err("refused");
    assert_eq!(
        refused(m(C::Add, 1, T::All, port())),
        ErrorKind::GROUP_EXISTS
    );
    assert_eq!(
        refused(m(C::Modify, 1, T::All, to(2))),
        ErrorKind::GROUP_LOOP
    );
    assert_eq!(
        refused(m(C::Delete, 1, T::All, vec![])),
        ErrorKind::GROUP_CHAINED_GROUP
    );

    let flags = FlowModFlags::SEND_FLOW_REM;
    let actions = vec![Action::Group(GroupId(2))];
    add(
        &mut s,
        FlowMod {
            flags,
            ..FlowMod::add(1, Match::any(), actions)
        },
    );
    let messages = s.apply(at(0), &m(C::Delete, 2, T::All, vec![])).unwrap();
    assert_eq!(
        removed(&messages)[0].reason,
        FlowRemovedReason::GROUP_DELETE
    );
    assert_eq!(s.entries().count(), 0);
}

#[test]
fn meters_count_and_take_their_entries_with_them() {
    let mut s = Switch::with_ports(1..=2);
    let m = |command| {
        Message::MeterMod(MeterMod {
            command,
            flags: MeterFlags::PKTPS,
            meter_id: MeterId(4),
            bands: vec![],
        })
    };
    s.apply(at(0), &m(MeterModCommand::Add)).unwrap();
    assert_eq!(
        s.apply(at(0), &m(MeterModCommand::Add)),
        Err(ErrorKind::METER_EXISTS)
    );
    let mut entry = FlowMod::add(1, Match::any(), vec![out(2)]);
    entry.instructions.push(Instruction::Meter(MeterId(4)));
    add(&mut s, entry);
    let _ = s.process(at(0), P1, &udp(2, 53));
    let ask = RequestBody::Meter(MeterId::ALL);
    let ReplyBody::Meter(stats) = ask_one(&mut s, ask) else {
        panic!("not meters")
    };
    assert_eq!((stats[0].packet_in_count, stats[0].flow_count), (1, 1));
    s.apply(at(0), &m(MeterModCommand::Delete)).unwrap();
    assert_eq!(s.entries().count(), 0);
}

fn ask_one(s: &mut Switch, body: RequestBody) -> ReplyBody {
    let request = Message::MultipartRequest(MultipartRequest { more: false, body });
    let mut answers = s.apply(at(2_500), &request).expect("an answer");
    match (answers.pop(), answers.is_empty()) {
        (Some(Message::MultipartReply(reply)), true) => reply.body,
        other => panic!("not one reply: {other:?}"),
    }
}

#[test]
fn statistics_say_what_was_counted() {
    let mut s = Switch::with_ports(1..=2);
    add(
        &mut s,
        FlowMod {
            cookie: Cookie(3),
            ..FlowMod::add(1, to_ip(2), vec![out(2)])
        },
    );
    add(&mut s, FlowMod::add(1, to_ip(3), vec![out(1)]));
    let packet = udp(2, 53);
    let _ = s.process(at(0), P1, &packet);
    let _ = s.process(at(0), P1, &udp(9, 53));

    let asked = FlowStatsRequest {
        out_port: PortNo(2),
        ..FlowStatsRequest::all()
    };
    let ReplyBody::Flow(flows) = ask_one(&mut s, RequestBody::Flow(asked)) else {
        panic!()
    };
    assert_eq!(flows.len(), 1);
    assert_eq!((flows[0].cookie, flows[0].packet_count), (Cookie(3), 1));
    assert_eq!(
        (flows[0].duration_sec, flows[0].duration_nsec),
        (2, 500_000_000)
    );
    let all = RequestBody::Aggregate(FlowStatsRequest::all());
    let ReplyBody::Aggregate(sum) = ask_one(&mut s, all) else {
        panic!()
    };
    assert_eq!((sum.flow_count, sum.byte_count), (2, packet.len() as u64));
    let ReplyBody::PortStats(p) = ask_one(&mut s, RequestBody::PortStats(PortNo(2))) else {
        panic!()
    };
    assert_eq!((p[0].tx_packets, p[0].rx_packets), (1, 0));

    let request = MultipartRequest {
        more: false,
        body: RequestBody::Table,
    };
    let tables = s.apply(at(0), &Message::MultipartRequest(request)).unwrap();
    assert_eq!(tables.len(), 254usize.div_ceil(64), "in parts");
    let Message::MultipartReply(first) = &tables[0] else {
        panic!()
    };
    let ReplyBody::Table(list) = &first.body else {
        panic!()
    };
    assert!(first.more);
    assert_eq!(
        (
            list[0].lookup_count,
            list[0].matched_count,
            list[0].active_count
        ),
        (2, 1, 2)
    );
}

#[test]
fn a_packet_out_does_its_actions_or_goes_through_the_tables() {
    let mut s = Switch::with_ports(1..=3);
    add(
        &mut s,
        FlowMod::add(1, Match::any().with_in_port(P1), vec![out(3)]),
    );
    let send = |in_port, port| PacketOut {
        buffer_id: None,
        in_port,
        actions: vec![Action::output(port)],
        data: udp(2, 1).into(),
    };
    let sent = |s: &mut Switch, m: PacketOut| match s.packet_out(at(0), &m).unwrap().as_slice() {
        [Output::Port { port, .. }] => Some(port.0),
        _ => None,
    };
    assert_eq!(sent(&mut s, send(PortNo::CONTROLLER, PortNo(2))), Some(2));
    assert_eq!(sent(&mut s, send(P1, PortNo::TABLE)), Some(3));
    assert_eq!(sent(&mut s, send(PortNo::CONTROLLER, PortNo::TABLE)), None);
    let buffered = PacketOut {
        buffer_id: Some(crate::BufferId(1)),
        ..send(P1, PortNo(2))
    };
    assert_eq!(
        s.packet_out(at(0), &buffered),
        Err(ErrorKind::BUFFER_UNKNOWN)
    );
}

#[test]
fn an_older_generation_is_stale() {
    let mut s = Switch::with_ports([]);
    let ask = |role, generation_id| {
        Message::RoleRequest(RoleMessage {
            role,
            generation_id,
        })
    };
    s.apply(at(0), &ask(Role::Primary, 5)).unwrap();
    assert_eq!(
        s.apply(at(0), &ask(Role::Primary, 4)),
        Err(ErrorKind::ROLE_STALE)
    );
    let reply = s.apply(at(0), &ask(Role::NoChange, 0)).unwrap();
    let told = RoleMessage {
        role: Role::Primary,
        generation_id: 5,
    };
    assert_eq!(reply, [Message::RoleReply(told)]);
}

/// A few values per field, so that matches overlap and hit.
fn a_match() -> impl Strategy<Value = Match> {
    let mask = prop::sample::select(vec![0u32, 0xffff_fffe, 0xffff_fffc, 0xffff_ffff]);
    let addresses = (
        prop::option::of(0u32..6),
        mask,
        prop::option::of(0u16..3),
        prop::option::of(1u32..3),
    );
    addresses.prop_map(|(dst, mask, port, in_port)| {
        let mut m = Match::any()
            .with(Field::EthType, 0x0800u16)
            .with(Field::IpProto, 17u8);
        if let Some(dst) = dst {
            m = m.with_masked(Field::Ipv4Dst, (0x0a00_0000 | dst) & mask, mask);
        }
        if let Some(port) = port {
            m = m.with(Field::UdpDst, port);
        }
        if let Some(in_port) = in_port {
            m = m.with_in_port(PortNo(in_port));
        }
        m
    })
}

proptest! {
    /// The lookup by kinds of match against the definition: of all entries that match, the
    /// highest priority, and of those the oldest. The cookie says which entry it was.
    #[test]
    fn lookup_agrees_with_trying_every_entry(
        mods in prop::collection::vec((a_match(), 0u16..4, prop::bool::weighted(0.2)), 1..40),
        packets in prop::collection::vec((0u8..6, 0u16..3, 1u32..3), 20),
    ) {
        let mut s = Switch::with_ports(1..=3);
        for (n, (m, priority, deletes)) in mods.into_iter().enumerate() {
            let command = if deletes { FlowModCommand::Delete } else { FlowModCommand::Add };
            let cookie = Cookie(n as u64);
            add(&mut s, FlowMod { command, cookie, ..FlowMod::add(priority, m, vec![Action::controller()]) });
        }
        for (dst, port, in_port) in packets {
            let frame = udp(dst, port);
            let fields = PacketFields::parse(PortNo(in_port), &frame);
            let matching = s.entries().filter(|e| fields.matches(&e.r#match));
            let naive = matching.min_by_key(|e| std::cmp::Reverse(e.priority));
            let got = match s.output_of(PortNo(in_port), &frame).as_slice() {
                [Output::Controller(p)] => Some(p.cookie),
                _ => None,
            };
            prop_assert_eq!(got, naive.map(|e| e.cookie));
        }
    }

    #[test]
    fn no_packet_and_no_rewriting_panics(
        frame in prop::collection::vec(any::<u8>(), 0..120),
        kind in 0usize..5,
        field in 0usize..40,
        value: u128,
    ) {
        let kind = [0x0800, 0x86dd, 0x0806, 0x8847, 0x8100][kind];
        let frame = build::ethernet(MacAddr([2; 6]), MacAddr([4; 6]), kind, &frame);
        let field = crate::match_fields::FIELDS[field].field;
        let mut packet = super::actions::Packet::new(P1, frame.into());
        packet.set_field(field, value & field.ones());
        for action in [
            Action::DecNwTtl, Action::DecMplsTtl, Action::PushMpls(0x8847), Action::SetMplsTtl(3),
            Action::PopMpls(0x0800), Action::SetVlanVid(3), Action::PopVlan, Action::SetTpSrc(1),
            Action::SetNwTos(4),
        ] {
            let _ = packet.rewrite(&action);
        }
    }
}
