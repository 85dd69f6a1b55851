//! Single messages, and their answers.

use openflow::BufferId;
use openflow::message::{
    FlowModFlags, FlowRemovedReason, GroupMod, GroupModCommand, GroupType, PacketIn,
    PacketInReason, PortReason, PortStatus, Role, RoleMessage,
};

use super::*;

#[test]
fn what_a_guest_cannot_have_gets_its_error_with_the_message() {
    let mut bench = Bench::new(&[guest(
        0,
        &["in_port=1,dl_vlan=100", "in_port=2,dl_vlan=100"],
    )]);
    let any = || parse_match("").unwrap();
    let with = |change: &dyn Fn(&mut FlowMod)| {
        let mut flow_mod = FlowMod::add(1, any(), vec![Action::output(PortNo(1))]);
        change(&mut flow_mod);
        Message::FlowMod(flow_mod)
    };
    let packet = |in_port, actions, tag: u8| {
        let mut data = vec![0; 60];
        data[12..16].copy_from_slice(&[0x81, 0x00, 0, tag]);
        Message::PacketOut(PacketOut {
            buffer_id: None,
            in_port,
            actions: parse_actions(actions).unwrap(),
            data: data.into(),
            pipeline: Match::default(),
        })
    };
    let instead = |instructions: Vec<Instruction>| {
        with(&move |it: &mut FlowMod| it.instructions.clone_from(&instructions))
    };
    let matching = |text: &str| {
        let matching = parse_match(text).unwrap();
        with(&move |it: &mut FlowMod| it.r#match = matching.clone())
    };
    use ErrorKind as E;
    for (message, error) in [
        (matching("dl_vlan=200"), E::MATCH_EPERM),
        (matching("in_port=3"), E::MATCH_EPERM),
        (
            instead(vec![Instruction::Meter(1.into())]),
            E::METER_UNKNOWN_METER,
        ),
        (
            instead(vec![Instruction::GotoTable(TableId(11))]),
            E::INST_BAD_TABLE_ID,
        ),
        (
            instead(vec![Instruction::ApplyActions(vec![Action::output(
                PortNo(3),
            )])]),
            E::ACTION_BAD_OUT_PORT,
        ),
        (
            instead(vec![Instruction::ApplyActions(vec![Action::output(
                PortNo::NORMAL,
            )])]),
            E::ACTION_BAD_OUT_PORT,
        ),
        (
            instead(vec![Instruction::ApplyActions(vec![Action::PopVlan])]),
            E::ACTION_EPERM,
        ),
        (
            instead(vec![Instruction::WriteActions(vec![Action::Group(
                GroupId(1),
            )])]),
            E::ACTION_BAD_OUT_GROUP,
        ),
        (
            with(&|it| it.table_id = TableId(11)),
            E::FLOW_MOD_BAD_TABLE_ID,
        ),
        (
            with(&|it| it.buffer_id = Some(BufferId(1))),
            E::BUFFER_UNKNOWN,
        ),
        (
            packet(PortNo::CONTROLLER, "output:3", 100),
            E::ACTION_BAD_OUT_PORT,
        ),
        (packet(PortNo(3), "output:1", 100), E::BAD_PORT),
        (packet(PortNo(1), "output:2", 200), E::REQUEST_EPERM),
        (ask(RequestBody::PortStats(PortNo(3))), E::BAD_PORT),
        (Message::PacketIn(packet_in(Cookie(0))), E::BAD_TYPE),
    ] {
        let replies = bench.send(0, &message);
        assert_eq!(error_of(&replies), Some(error), "{message:?}");
        let frame = encode(Version::V13, Xid(5), &message).unwrap();
        let quoted = &frame.bytes()[..frame.len().min(64)];
        let Some((xid, Message::Error(error))) = bench.replies[0].last() else {
            panic!("an error is the answer");
        };
        assert_eq!((*xid, &error.data[..]), (Xid(5), quoted));
    }
    assert_eq!(bench.held(Some(0)), [], "nothing has changed");
    assert_eq!(
        error_of(&bench.send(0, &packet(PortNo(1), "output:2", 100))),
        None
    );
}

fn packet_in(cookie: Cookie) -> PacketIn {
    PacketIn {
        buffer_id: Some(BufferId(9)),
        total_len: 60,
        reason: PacketInReason::ACTION,
        table_id: TableId(10),
        cookie,
        r#match: Match::any().with_in_port(PortNo(1)),
        data: tcp(80),
    }
}

#[test]
fn a_guest_has_packets_of_its_entries_and_no_more_than_its_rate() {
    let mut bench = Bench::new(&[guest(0, &[])]);
    let miss = FlowMod {
        cookie: Cookie(77),
        table_id: TableId(1),
        ..FlowMod::add(0, Match::any(), vec![Action::controller()])
    };
    bench.send(0, &Message::FlowMod(miss));
    let held = bench.held(Some(0));
    let (_, number) = of_cookie(held[0].cookie).unwrap();
    for _ in 0..1500 {
        bench.guests[0].handle_packet_in(bench.now, number, packet_in(held[0].cookie));
    }
    bench.guests[0].handle_packet_in(bench.now, number + 1, packet_in(held[0].cookie));
    bench.settle();
    assert_eq!(bench.replies[0].len(), 1000);
    let Some((_, Message::PacketIn(last))) = bench.replies[0].last() else {
        panic!("a packet-in");
    };
    let said = (last.cookie, last.table_id, last.reason, last.buffer_id);
    assert_eq!(
        said,
        (Cookie(77), TableId(1), PacketInReason::NO_MATCH, None)
    );
    let counts = bench.guests[0].take_counts();
    assert_eq!((counts.packet_ins, counts.packet_ins_shed), (1000, 500));
    // One that has asked for none has none, and no flow-removed either.
    let secondary = RoleMessage {
        role: Role::Secondary,
        generation_id: 1,
        short_id: None,
    };
    bench.send(0, &Message::RoleRequest(secondary));
    bench.now += Duration::from_secs(1);
    let before = bench.replies[0].len();
    bench.guests[0].handle_packet_in(bench.now, number, packet_in(held[0].cookie));
    bench.settle();
    assert_eq!(bench.replies[0].len(), before);
    assert_eq!(
        error_of(&bench.add(0, 1, "", "drop")),
        Some(ErrorKind::IS_SLAVE)
    );
}

#[test]
fn entries_that_others_delete_or_change_are_set_again() {
    let mut bench = Bench::new(&[
        guest(0, &["in_port=1", "in_port=2"]),
        guest(1, &["in_port=3"]),
    ]);
    bench.add(0, 100, "ip", "output:1");
    bench.add(0, 200, "arp", "output:2");
    bench.add(1, 100, "ip", "output:3");
    let wanted = sorted(&bench.held(Some(0)));
    assert_eq!(wanted.len(), 4, "two entries at two ports");
    let others = sorted(&bench.held(Some(1)));
    let asked_at = bench.now + Duration::from_secs(1);
    let read = |bench: &mut Bench| {
        let rows = bench.held(Some(0));
        bench.now = bench.now.max(asked_at) + Duration::from_secs(1);
        let now = bench.now;
        let counts = bench.guests[0].handle_rows(now, now, rows);
        bench.settle();
        counts
    };
    assert_eq!(read(&mut bench), [4, 0, 0]);
    // Deleted, and the switch reports it.
    let victim = bench.held(Some(0))[0].clone();
    let delete = crate::guest::delete_row(&victim);
    let gone = bench
        .switch
        .apply(bench.now, &Message::FlowMod(delete.clone()))
        .unwrap();
    bench.report(&gone);
    bench.settle();
    assert_eq!(sorted(&bench.held(Some(0))), wanted);
    // Deleted, changed, and added, with no report.
    bench
        .switch
        .apply(bench.now, &Message::FlowMod(delete))
        .unwrap();
    let change = FlowMod {
        command: FlowModCommand::ModifyStrict,
        instructions: vec![Instruction::ApplyActions(vec![Action::output(PortNo(4))])],
        ..FlowMod::add(
            victim.priority,
            bench.held(Some(0))[0].r#match.clone(),
            Vec::new(),
        )
    };
    let place = bench.held(Some(0))[0].clone();
    let change = FlowMod {
        priority: place.priority,
        ..change
    };
    bench
        .switch
        .apply(bench.now, &Message::FlowMod(change))
        .unwrap();
    let stray = FlowMod {
        cookie: crate::guest::entries::cookie(0, 4000),
        ..FlowMod::add(3390, Match::any(), Vec::new())
    };
    bench
        .switch
        .apply(bench.now, &Message::FlowMod(stray))
        .unwrap();
    assert_eq!(read(&mut bench), [2, 2, 1]);
    assert_eq!(sorted(&bench.held(Some(0))), wanted);
    assert_eq!(sorted(&bench.held(Some(1))), others);
    bench.check_places();
}

#[test]
fn entries_time_out_and_the_guest_is_informed_in_its_own_words() {
    let mut bench = Bench::new(&[guest(0, &["in_port=1", "in_port=2"])]);
    let entry = FlowMod {
        cookie: Cookie(5),
        idle_timeout: 10,
        flags: FlowModFlags::SEND_FLOW_REM,
        ..FlowMod::add(500, parse_match("ip").unwrap(), Vec::new())
    };
    bench.send(0, &Message::FlowMod(entry.clone()));
    assert_eq!(bench.held(Some(0)).len(), 2);
    bench.replies[0].clear();
    bench.now += Duration::from_secs(11);
    let now = bench.now;
    let gone = bench.switch.handle_timeout(now);
    assert_eq!(gone.len(), 2);
    bench.report(&gone[..1]);
    bench.settle();
    assert_eq!(bench.replies[0], [], "it has another one");
    assert_eq!(bench.read(0).len(), 1);
    bench.replies[0].clear();
    bench.report(&gone[1..]);
    bench.settle();
    let [(_, Message::FlowRemoved(removed))] = &bench.replies[0][..] else {
        panic!("{:?}", bench.replies[0]);
    };
    let said = (
        removed.cookie,
        removed.priority,
        removed.reason,
        &removed.r#match,
    );
    let wanted = (
        Cookie(5),
        500,
        FlowRemovedReason::IDLE_TIMEOUT,
        &entry.r#match,
    );
    assert_eq!(said, wanted);
    assert_eq!(bench.read(0), []);
}

/// Two changes of one entry are under way, and the switch refuses the first: the second stays.
#[test]
fn a_later_change_outlives_the_refusal_of_an_earlier_one() {
    let mut bench = Bench::new(&[guest(0, &[])]);
    bench.add(0, 100, "ip", "output:1");
    let mut tickets = Vec::new();
    for port in [2, 3] {
        let mut change = FlowMod::add(
            100,
            parse_match("ip").unwrap(),
            vec![Action::output(PortNo(port))],
        );
        change.command = FlowModCommand::ModifyStrict;
        let frame = encode(Version::V13, Xid(9), &Message::FlowMod(change)).unwrap();
        bench.guests[0].handle_frame(bench.now, &frame, true);
        while let Some(output) = bench.guests[0].poll_output() {
            if let Output::Change(Some(ticket), flow_mod) = output {
                tickets.push((ticket, flow_mod));
            }
        }
    }
    let error = ErrorKind::FLOW_MOD_UNKNOWN;
    let now = bench.now;
    bench.guests[0].handle_refused(now, tickets[0].0, error);
    let second = Message::FlowMod(FlowMod::clone(&tickets[1].1));
    bench.switch.apply(now, &second).unwrap();
    bench.settle();
    let refusals = bench.replies[0].iter();
    let refusals = refusals.filter(|(_, reply)| matches!(reply, Message::Error(_)));
    assert_eq!(refusals.count(), 1);
    let actions = |rows: &[FlowStats]| rows[0].instructions.clone();
    let wanted = vec![Instruction::ApplyActions(vec![Action::output(PortNo(3))])];
    assert_eq!(actions(&bench.read(0)), wanted);
    assert_eq!(actions(&bench.held(Some(0))), wanted);
}

#[test]
fn an_entry_that_the_switch_refuses_leaves_what_was_there() {
    let mut bench = Bench::new(&[guest(0, &[])]);
    bench.add(0, 100, "ip", "output:1");
    let wanted = bench.read(0);
    // The switch, unlike the guest's, has no room.
    let add = FlowMod::add(
        100,
        parse_match("ip").unwrap(),
        vec![Action::output(PortNo(2))],
    );
    let other = FlowMod::add(100, parse_match("arp").unwrap(), Vec::new());
    for (entry, is_new) in [(add, false), (other, true)] {
        let message = Message::FlowMod(entry);
        let frame = encode(Version::V13, Xid(9), &message).unwrap();
        bench.guests[0].handle_frame(bench.now, &frame, true);
        let Some(Output::Change(Some(ticket), _)) = bench.guests[0].poll_output() else {
            panic!("it is sent");
        };
        let error = ErrorKind::FLOW_MOD_TABLE_FULL;
        bench.guests[0].handle_refused(bench.now, ticket, error);
        bench.settle();
        let replies: Vec<Message> = bench.replies[0].iter().map(|it| it.1.clone()).collect();
        assert_eq!(error_of(&replies[replies.len() - 1..]), Some(error));
        assert_eq!(sorted(&bench.read(0)), sorted(&wanted), "new: {is_new}");
    }
}

/// auster restarts: entries that the guest could state stay until the guest's HELLO.
#[test]
fn what_an_earlier_process_has_left_of_a_guest_stays_until_the_guest_is_heard() {
    let config = guest(0, &["in_port=1"]);
    let mut bench = Bench::new(std::slice::from_ref(&config));
    let group = GroupMod::new(GroupModCommand::Add, GroupType::All, GroupId(3), Vec::new());
    bench.send(0, &Message::GroupMod(group));
    for (priority, matching, actions) in [
        (100, "ip", "drop"),
        (200, "tcp", "in_port"),
        (300, "udp", "controller"),
        (400, "sctp", "group:3"),
    ] {
        assert_eq!(error_of(&bench.add(0, priority, matching, actions)), None);
    }
    let mut goto = FlowMod::add(500, parse_match("arp").unwrap(), Vec::new());
    goto.instructions = vec![Instruction::GotoTable(TableId(2))];
    bench.send(0, &Message::FlowMod(goto));
    let behind = FlowMod {
        table_id: TableId(2),
        ..FlowMod::add(5, Match::any(), Vec::new())
    };
    bench.send(0, &Message::FlowMod(behind));
    assert_eq!(bench.held(Some(0)).len(), 6);
    let start = |bench: &mut Bench, config: &Arc<Guest>| {
        bench.guests[0] = Machine::new(0, DPID, 254, config.clone());
        bench.read_rows(0)
    };
    let held = bench.switch.clone();
    // Entries that lead to groups are deleted with the groups.
    start(&mut bench, &config);
    let kept = sorted(&bench.held(Some(0)));
    assert_eq!(kept.len(), 5, "{kept:?}");
    // For as long as nobody is heard, and however often the rows are read.
    bench.guests[0].handle_connected();
    assert!(bench.guests[0].has_rows());
    bench.read_rows(0);
    assert_eq!(sorted(&bench.held(Some(0))), kept);
    // The guest states one of them.
    let hello = openflow::hello::Hello::offering(&[Version::V13]);
    bench.send(0, &Message::Hello(hello));
    assert_eq!(error_of(&bench.add(0, 100, "ip", "drop")), None);
    bench.read_rows(0);
    assert_eq!(bench.held(Some(0)).len(), 1);
    assert_eq!(bench.read(0).len(), 1);

    // Rows that this guest could not state belong to another guest, which had its place before.
    let other = |change: fn(&mut Guest)| {
        let mut other = Guest::clone(&config);
        change(&mut other);
        Arc::new(other)
    };
    for (other, left) in [
        (other(|it| it.is_kept = false), 0),
        (other(|it| it.priority = 1000..=1999), 1),
        (other(|it| it.tables = None), 3),
        (
            other(|it| it.matches = vec![parse_match("in_port=2").unwrap()]),
            1,
        ),
        (other(|it| it.matches = Vec::new()), 5),
    ] {
        bench.switch = held.clone();
        start(&mut bench, &other);
        assert_eq!(bench.held(Some(0)).len(), left, "{other:?}");
    }
    bench.check_places();
}

#[test]
fn a_full_band_and_a_full_table_are_said() {
    let mut bench = Bench::new(&[guest(0, &[])]);
    for priority in 0..100 {
        assert_eq!(error_of(&bench.add(0, priority * 3, "ip", "drop")), None);
    }
    let full = Some(ErrorKind::FLOW_MOD_TABLE_FULL);
    assert_eq!(error_of(&bench.add(0, 1, "ip", "drop")), full);
    assert_eq!(
        error_of(&bench.add(0, 3, "arp", "drop")),
        None,
        "a priority that is there"
    );
    bench.check_places();
    let order: Vec<u16> = {
        let mut rows = bench.held(Some(0));
        rows.retain(|row| row.r#match == parse_match("ip").unwrap());
        rows.sort_by_key(|row| row.priority);
        let machine = &bench.guests[0];
        let stated = rows.iter().filter_map(|row| {
            let (_, number) = of_cookie(row.cookie)?;
            machine.stated_priority(number)
        });
        stated.collect()
    };
    assert_eq!(order.len(), 100);
    assert!(order.is_sorted(), "{order:?}");
    let frame = encode(
        Version::V13,
        Xid(1),
        &Message::FlowMod(FlowMod {
            table_id: TableId(1),
            ..FlowMod::add(1, Match::any(), Vec::new())
        }),
    );
    bench.guests[0].handle_frame(bench.now, &frame.unwrap(), false);
    bench.settle();
    let last = bench.replies[0].last().map(|it| it.1.clone());
    assert_eq!(
        error_of(&last.into_iter().collect::<Vec<_>>()),
        full,
        "of all guests"
    );
}

#[test]
fn ports_and_barriers_are_a_guests_own() {
    let mut bench = Bench::new(&[guest(0, &["in_port=1", "in_port=2"])]);
    let ports = |replies: Vec<Message>| -> Vec<u32> {
        let ports = replies.into_iter().flat_map(|reply| match reply {
            Message::MultipartReply(reply) => match reply.body {
                ReplyBody::PortDesc(ports) => ports.iter().map(|port| port.port_no.0).collect(),
                ReplyBody::PortStats(ports) => ports.iter().map(|port| port.port_no.0).collect(),
                _ => Vec::new(),
            },
            _ => Vec::new(),
        });
        ports.collect()
    };
    assert_eq!(
        ports(bench.send(0, &ask(RequestBody::PortDesc(PortNo::ANY)))),
        [1, 2]
    );
    assert_eq!(
        ports(bench.send(0, &ask(RequestBody::PortStats(PortNo::ANY)))),
        [1, 2]
    );
    for number in [1, 3] {
        bench.guests[0].handle_port_status(&PortStatus {
            reason: PortReason::MODIFY,
            port: plain_port(PortNo(number)),
        });
    }
    bench.replies[0].clear();
    bench.settle();
    assert_eq!(bench.replies[0].len(), 1, "of its port");
    // A barrier is answered when the switch has answered ours.
    bench.replies[0].clear();
    let barrier = encode(Version::V13, Xid(42), &Message::BarrierRequest).unwrap();
    let entry = FlowMod::add(1, Match::any(), Vec::new());
    let entry = encode(Version::V13, Xid(41), &Message::FlowMod(entry)).unwrap();
    let machine = &mut bench.guests[0];
    machine.handle_frame(bench.now, &entry, true);
    machine.handle_frame(bench.now, &barrier, true);
    let mut fence = None;
    while let Some(output) = machine.poll_output() {
        match output {
            Output::Fence(ticket) => fence = Some(ticket),
            Output::Reply(frame) => panic!("{frame:?}"),
            _ => {}
        }
    }
    machine.handle_confirmed(fence.expect("one of ours"));
    bench.settle();
    assert_eq!(bench.replies[0], [(Xid(42), Message::BarrierReply)]);
}

#[test]
fn one_that_speaks_another_version_is_turned_away() {
    for bytes in [&[1, 0, 0, 8, 0, 0, 0, 1][..], &[4, 5, 0, 8, 0, 0, 0, 1]] {
        let mut machine = Machine::new(0, DPID, 254, guest(0, &[]));
        machine.handle_connected();
        let frame = Frame::new(Bytes::copy_from_slice(bytes)).unwrap();
        machine.handle_frame(Instant::START, &frame, true);
        let mut outputs = Vec::new();
        while let Some(output) = machine.poll_output() {
            outputs.push(output);
        }
        assert_eq!(outputs.last(), Some(&Output::End), "{bytes:?}");
        let Some(Output::Reply(frame)) = outputs.get(1) else {
            panic!("it is told why");
        };
        let error = decode(frame).unwrap();
        assert_eq!(error_of(&[error]), Some(ErrorKind::HELLO_INCOMPATIBLE));
    }
}

#[test]
fn an_entry_comes_back_when_the_one_that_hid_it_goes() {
    let mut bench = Bench::new(&[guest(0, &["in_port=1"])]);
    bench.add(0, 100, "ip", "output:1");
    let first = sorted(&bench.held(Some(0)));
    // An entry that is the same once it is narrowed.
    bench.add(0, 100, "in_port=1,ip", "drop");
    assert_eq!(bench.held(Some(0)).len(), 1);
    assert_ne!(sorted(&bench.held(Some(0))), first);
    assert_eq!(bench.read(0).len(), 2);
    let delete = FlowMod {
        command: FlowModCommand::DeleteStrict,
        ..FlowMod::add(100, parse_match("in_port=1,ip").unwrap(), Vec::new())
    };
    bench.send(0, &Message::FlowMod(delete));
    assert_eq!(sorted(&bench.held(Some(0))), first);
    assert_eq!(bench.read(0).len(), 1);
}
