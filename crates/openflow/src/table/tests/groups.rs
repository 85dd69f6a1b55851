//! Groups and meters, and the fate of the entries that name them.

use super::*;

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
        Message::GroupMod(GroupMod::new(command, group_type, GroupId(id), buckets))
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
    // In 1.5 a meter is an action.
    let metered =
        |meter| FlowMod::add(2, Match::any(), vec![Action::Meter(MeterId(meter)), out(2)]);
    let unknown = s.apply(at(0), &Message::FlowMod(metered(5)));
    assert_eq!(unknown, Err(ErrorKind::METER_UNKNOWN_METER));
    add(&mut s, metered(4));
    let _ = s.process(at(0), P1, &udp(2, 53));
    let ask = RequestBody::Meter(MeterId::ALL);
    let ReplyBody::Meter(stats) = ask_one(&mut s, ask) else {
        panic!("not meters")
    };
    assert_eq!((stats[0].packet_in_count, stats[0].flow_count), (2, 2));
    s.apply(at(0), &m(MeterModCommand::Delete)).unwrap();
    assert_eq!(s.entries().count(), 0);
}
