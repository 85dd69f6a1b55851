//! FLOW_MODs that add, change and delete, and those that are refused.

use super::*;

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
