//! The groups of guests, in the switch that two of them share.

use openflow::Bucket;
use openflow::PacketFields;
use openflow::message::{FlowModFlags, FlowRemovedReason, GroupMod, GroupModCommand, GroupType};
use openflow::multipart::{GroupDesc, GroupStats};
use openflow::table::Output as Packets;

use super::*;

pub(super) fn bucket(actions: &str) -> Bucket {
    Bucket {
        weight: 0,
        watch_port: PortNo::ANY,
        watch_group: GroupId::ANY,
        actions: parse_actions(actions).unwrap(),
        bucket_id: None,
        properties: Vec::new(),
    }
}

fn group(command: GroupModCommand, id: u32, buckets: &[&str]) -> Message {
    let buckets = buckets.iter().map(|actions| bucket(actions)).collect();
    Message::GroupMod(GroupMod::new(command, GroupType::All, GroupId(id), buckets))
}

fn add(id: u32, buckets: &[&str]) -> Message {
    group(GroupModCommand::Add, id, buckets)
}

fn delete(id: GroupId) -> Message {
    group(GroupModCommand::Delete, id.0, &[])
}

impl Bench {
    pub(super) fn descs(&mut self, guest: usize) -> Vec<GroupDesc> {
        let replies = self.send(guest, &ask(RequestBody::GroupDesc(GroupId::ALL)));
        let [Message::MultipartReply(reply)] = &replies[..] else {
            panic!("{replies:?}");
        };
        match &reply.body {
            ReplyBody::GroupDesc(groups) => groups.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn stats(&mut self, guest: usize, id: GroupId) -> Vec<GroupStats> {
        let replies = self.send(guest, &ask(RequestBody::Group(id)));
        let [Message::MultipartReply(reply)] = &replies[..] else {
            panic!("{replies:?}");
        };
        match &reply.body {
            ReplyBody::Group(groups) => groups.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn ports_of(&self, port: u32, packet: &Bytes) -> Vec<PortNo> {
        let outputs = self.switch.output_of(PortNo(port), packet);
        let port_of = |output| match output {
            Packets::Port { port, .. } => port,
            Packets::Controller(_) => PortNo::CONTROLLER,
        };
        outputs.into_iter().map(port_of).collect()
    }

    /// Reports a guest's entries in the switch, as read after all messages.
    pub(super) fn read_rows(&mut self, guest: u8) {
        self.now += Duration::from_secs(1);
        let (rows, now) = (self.held(Some(guest)), self.now);
        let _ = self.guests[usize::from(guest)].handle_rows(now, now, rows);
        self.settle();
    }
}

#[test]
fn guests_have_groups_of_the_same_numbers_and_none_has_anothers() {
    let mut bench = Bench::new(&[guest(0, &["in_port=1"]), guest(1, &["in_port=2"])]);
    for (guest, to) in [(0, "output:1"), (1, "output:2")] {
        assert_eq!(
            error_of(&bench.send(guest, &add(7, &["in_port", to]))),
            None
        );
        assert_eq!(error_of(&bench.send(guest, &add(8, &["group:7"]))), None);
        assert_eq!(error_of(&bench.add(guest, 5, "", "group:8")), None);
    }
    assert_eq!(bench.switch.group_count(), 4);
    assert_eq!(bench.ports_of(1, &tcp(80)), [PortNo(1)]);
    assert_eq!(bench.ports_of(2, &tcp(80)), [PortNo(2)]);
    // The stated groups are read back, and the entries have the guest's numbers.
    let [seven, eight] = &bench.descs(0)[..] else {
        panic!("two groups");
    };
    assert_eq!(seven.buckets, [bucket("in_port"), bucket("output:1")]);
    assert_eq!(eight.buckets, [bucket("group:7")]);
    let rows = bench.read(0);
    let actions = parse_actions("group:8").unwrap();
    assert_eq!(rows[0].instructions, [Instruction::ApplyActions(actions)]);
    let counts: Vec<(GroupId, u32)> = bench
        .stats(0, GroupId::ALL)
        .iter()
        .map(|it| (it.group_id, it.ref_count))
        .collect();
    assert_eq!(counts, [(GroupId(7), 1), (GroupId(8), 1)]);
    assert_eq!(bench.stats(0, GroupId(8)).len(), 1);
    assert_eq!(bench.stats(0, GroupId(9)), []);
    let selected = FlowStatsRequest {
        out_group: GroupId(7),
        ..FlowStatsRequest::all()
    };
    let none = bench.send(0, &ask(RequestBody::Flow(selected)));
    assert_eq!(rows_len(none), 0);
    // One guest deletes all groups: its entries are deleted with them, and nothing of the other's.
    let others = sorted(&bench.held(Some(1)));
    let entry = FlowMod {
        flags: FlowModFlags::SEND_FLOW_REM,
        ..FlowMod::add(9, Match::any(), parse_actions("group:7").unwrap())
    };
    bench.send(0, &Message::FlowMod(entry));
    let replies = bench.send(0, &delete(GroupId::ALL));
    let [Message::FlowRemoved(removed)] = &replies[..] else {
        panic!("{replies:?}");
    };
    assert_eq!(removed.reason, FlowRemovedReason::GROUP_DELETE);
    assert_eq!((bench.descs(0), bench.held(Some(0))), (vec![], vec![]));
    assert_eq!(bench.switch.group_count(), 2);
    assert_eq!(sorted(&bench.held(Some(1))), others);
    assert_eq!(bench.ports_of(2, &tcp(80)), [PortNo(2)]);
}

fn rows_len(replies: Vec<Message>) -> usize {
    rows(replies).len()
}

#[test]
fn a_group_is_no_way_to_what_is_not_the_guests() {
    let mut bench = Bench::new(&[guest(
        0,
        &["in_port=1,dl_vlan=100", "in_port=2,dl_vlan=100"],
    )]);
    use ErrorKind as E;
    use GroupModCommand as C;
    let watching = |port, group| {
        let bucket = Bucket {
            watch_port: PortNo(port),
            watch_group: GroupId(group),
            ..bucket("output:1")
        };
        Message::GroupMod(GroupMod::new(
            C::Add,
            GroupType::FastFailover,
            GroupId(1),
            vec![bucket],
        ))
    };
    let none = GroupId::ANY.0;
    for (message, error) in [
        (add(1, &["output:3"]), E::ACTION_BAD_OUT_PORT),
        (add(1, &["normal"]), E::ACTION_BAD_OUT_PORT),
        (add(1, &["flood"]), E::ACTION_BAD_OUT_PORT),
        (add(1, &["strip_vlan,output:1"]), E::ACTION_EPERM),
        (add(1, &["group:2"]), E::ACTION_BAD_OUT_GROUP),
        (add(1, &["group:1"]), E::GROUP_LOOP),
        (add(0xffff_ff01, &["output:1"]), E::GROUP_INVALID),
        (add(1, &["output:1"; 65]), E::GROUP_OUT_OF_BUCKETS),
        (group(C::Modify, 1, &["output:1"]), E::GROUP_UNKNOWN_GROUP),
        (watching(3, none), E::GROUP_BAD_WATCH),
        (watching(1, 5), E::GROUP_BAD_WATCH),
    ] {
        let replies = bench.send(0, &message);
        assert_eq!(error_of(&replies), Some(error), "{message:?}");
    }
    assert_eq!((bench.switch.group_count(), bench.descs(0)), (0, vec![]));
    assert_eq!(error_of(&bench.send(0, &watching(2, none))), None);
    assert_eq!(error_of(&bench.send(0, &add(2, &["group:1"]))), None);
    for (message, error) in [
        (add(1, &[]), E::GROUP_EXISTS),
        (delete(GroupId(1)), E::GROUP_CHAINED_GROUP),
    ] {
        assert_eq!(error_of(&bench.send(0, &message)), Some(error));
    }
    assert_eq!(
        error_of(&bench.add(0, 1, "", "group:3")),
        Some(E::ACTION_BAD_OUT_GROUP)
    );
    // Deleting a missing group is no mistake.
    assert_eq!(error_of(&bench.send(0, &delete(GroupId(9)))), None);
    // A set of actions has one output: all ports would be the last of them.
    let flood = FlowMod {
        instructions: vec![Instruction::WriteActions(parse_actions("flood").unwrap())],
        ..FlowMod::add(1, Match::any(), Vec::new())
    };
    let replies = bench.send(0, &Message::FlowMod(flood));
    assert_eq!(error_of(&replies), Some(E::ACTION_BAD_OUT_PORT));
}

#[test]
fn a_group_that_the_switch_refuses_is_what_it_was() {
    let mut bench = Bench::new(&[guest(0, &[])]);
    bench.send(0, &add(1, &["output:1"]));
    // The switch has no place for an indirect group of two.
    let two = |command, id| {
        let buckets = vec![bucket("output:1"), bucket("output:2")];
        Message::GroupMod(GroupMod::new(
            command,
            GroupType::Indirect,
            GroupId(id),
            buckets,
        ))
    };
    for (command, id) in [(GroupModCommand::Modify, 1), (GroupModCommand::Add, 2)] {
        let replies = bench.send(0, &two(command, id));
        assert_eq!(error_of(&replies), Some(ErrorKind::GROUP_INVALID));
        let descs = bench.descs(0);
        assert_eq!(descs.len(), 1);
        assert_eq!(descs[0].buckets, [bucket("output:1")]);
    }
    // Two in a row, both refused.
    let frame = encode(Version::V13, Xid(5), &two(GroupModCommand::Modify, 1)).unwrap();
    let now = bench.now;
    bench.guests[0].handle_frame(now, &frame, true);
    bench.send(0, &two(GroupModCommand::Modify, 1));
    assert_eq!(bench.descs(0)[0].buckets, [bucket("output:1")]);
}

/// The guest changes a group that another group leads to, while a change of the other group is
/// under way which the switch refuses. In every case, the guest is shown what the switch has.
#[test]
fn a_group_whose_refused_change_leaves_it_unfit_is_in_neither_view() {
    use GroupModCommand as C;
    // The switch has no place for an indirect group of two.
    let refused = |command, id| {
        let buckets = vec![bucket("output:1"), bucket("output:2")];
        let group = GroupMod::new(command, GroupType::Indirect, GroupId(id), buckets);
        Message::GroupMod(group)
    };
    let led = [add(2, &["output:1"]), add(1, &["group:2"])];
    let cases = [
        // The group that it led to is deleted.
        (&led[..], [refused(C::Modify, 1), delete(GroupId(2))]),
        // The group that it led to leads back.
        (
            &led[..],
            [refused(C::Modify, 1), group(C::Modify, 2, &["group:1"])],
        ),
        // Another group leads to one that does not exist.
        (&[], [refused(C::Add, 1), add(2, &["group:1"])]),
        // The groups that lead to it are deleted with it.
        (
            &[
                add(3, &["output:1"]),
                add(2, &["group:3"]),
                add(1, &["group:2"]),
            ],
            [refused(C::Modify, 2), delete(GroupId(3))],
        ),
    ];
    for (made, then) in cases {
        let mut bench = Bench::new(&[guest(0, &[])]);
        for message in made {
            assert_eq!(error_of(&bench.send(0, message)), None);
        }
        if !made.is_empty() {
            assert_eq!(bench.add(0, 5, "", "group:1"), []);
        }
        // The machine knows what the switch has.
        bench.read_rows(0);
        for message in &then {
            let frame = encode(Version::V13, Xid(5), message).unwrap();
            bench.guests[0].handle_frame(bench.now, &frame, true);
        }
        bench.settle();
        // Groups that the switch has refused to delete are deleted after the next readings.
        for _ in 0..2 {
            bench.now += Duration::from_secs(1);
            bench.read_rows(0);
        }
        let request = MultipartRequest {
            more: false,
            body: RequestBody::GroupDesc(GroupId::ALL),
        };
        let replies = bench
            .switch_takes(Message::MultipartRequest(request))
            .unwrap();
        let in_switch = replies.into_iter().flat_map(|reply| match reply {
            Message::MultipartReply(reply) => match reply.body {
                ReplyBody::GroupDesc(groups) => groups,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        });
        let what = format!("{then:?}");
        assert_eq!(in_switch.collect::<Vec<_>>(), [], "{what}");
        assert_eq!(bench.descs(0), [], "{what}");
        assert_eq!(
            (bench.read(0), bench.held(Some(0))),
            (vec![], vec![]),
            "{what}"
        );
        // Its numbers are free for others.
        for message in &led {
            assert_eq!(error_of(&bench.send(0, message)), None, "{what}");
        }
        assert_eq!(bench.descs(0).len(), 2);
    }
}

#[test]
fn groups_that_others_delete_or_change_are_set_again_before_their_entries() {
    let mut bench = Bench::new(&[guest(0, &["in_port=1"]), guest(1, &["in_port=2"])]);
    bench.send(0, &add(1, &["output:1"]));
    bench.send(0, &add(2, &["group:1"]));
    bench.add(0, 5, "ip", "group:2");
    bench.read_rows(0);
    let wanted: Vec<GroupDesc> = bench.switch.groups().collect();
    let by_hand = |bench: &mut Bench, message: GroupMod| {
        bench.now += Duration::from_secs(1);
        let now = bench.now;
        let gone = bench.switch.apply(now, &Message::GroupMod(message));
        gone.unwrap()
    };
    let deletes_all = || {
        let none = Vec::new();
        GroupMod::new(GroupModCommand::Delete, GroupType::All, GroupId::ALL, none)
    };
    // Deleted, and the switch reports the entry.
    let gone = by_hand(&mut bench, deletes_all());
    assert_eq!(gone.len(), 1);
    bench.report(&gone);
    bench.settle();
    assert_eq!(bench.switch.groups().collect::<Vec<_>>(), wanted);
    assert_eq!(bench.held(Some(0)).len(), 1);
    // Deleted without a report; changed; and a group that nobody has stated.
    by_hand(&mut bench, deletes_all());
    bench.read_rows(0);
    assert_eq!(bench.switch.groups().collect::<Vec<_>>(), wanted);
    assert_eq!(bench.held(Some(0)).len(), 1);
    let (first, none) = (wanted[0].group_id, Vec::new());
    bench.read_rows(0);
    by_hand(
        &mut bench,
        GroupMod::new(GroupModCommand::Modify, GroupType::All, first, none.clone()),
    );
    let stray = GroupId(first.0 + 500);
    by_hand(
        &mut bench,
        GroupMod::new(GroupModCommand::Add, GroupType::All, stray, none.clone()),
    );
    let others = GroupId(first.0 + 0x1_0000);
    by_hand(
        &mut bench,
        GroupMod::new(GroupModCommand::Add, GroupType::All, others, none),
    );
    bench.read_rows(0);
    let mut found: Vec<GroupDesc> = bench.switch.groups().collect();
    found.retain(|group| group.group_id != others);
    assert_eq!(found, wanted, "the stray one is gone");
    // The other guest's machine reports that it has no such group.
    bench.read_rows(1);
    assert_eq!(bench.switch.groups().collect::<Vec<_>>(), wanted);
}

#[test]
fn groups_come_back_with_their_switch_and_go_with_their_guest() {
    let mut bench = Bench::new(&[guest(0, &["in_port=1"])]);
    bench.send(0, &add(1, &["output:1"]));
    bench.send(0, &add(2, &["group:1"]));
    bench.add(0, 5, "ip", "group:2");
    let (rows, groups) = (sorted(&bench.held(Some(0))), bench.switch.group_count());
    // A switch that has restarted.
    bench.guests[0].handle_switch_down();
    bench.switch = Bench::new(&[]).switch;
    bench.read_rows(0);
    assert_eq!(sorted(&bench.held(Some(0))), rows);
    assert_eq!(bench.switch.group_count(), groups);
    // Another process of ours, which knows of no groups: the guest waits for the switch's report.
    let config = Arc::new(Guest {
        is_kept: false,
        ..(*guest(0, &["in_port=1"])).clone()
    });
    bench.guests[0] = Machine::new(0, DPID, 254, config);
    let (held, now) = (bench.held(Some(0)), bench.now);
    let _ = bench.guests[0].handle_rows(now, now, held);
    assert!(bench.guests[0].is_behind());
    bench.settle();
    assert!(!bench.guests[0].is_behind());
    assert_eq!(
        (bench.switch.group_count(), bench.held(Some(0))),
        (0, vec![])
    );
    // A guest whose entries are deleted when its connection ends.
    bench.guests[0].handle_connected();
    let hello = openflow::hello::Hello::offering(&[Version::V13]);
    bench.send(0, &Message::Hello(hello));
    bench.send(0, &add(1, &["output:1"]));
    bench.add(0, 5, "ip", "group:1");
    assert_eq!(bench.switch.group_count(), 1);
    assert_eq!(bench.guests[0].size(), 3);
    bench.guests[0].handle_disconnected();
    bench.settle();
    assert_eq!(
        (bench.switch.group_count(), bench.held(Some(0))),
        (0, vec![])
    );
    assert_eq!(bench.guests[0].size(), 0);
}

/// A packet meets the fields of a group's bucket as those of an entry.
#[test]
fn a_sent_packet_takes_the_guests_group() {
    let mut bench = Bench::new(&[guest(0, &["in_port=1"])]);
    let packet = |actions| {
        Message::PacketOut(PacketOut {
            buffer_id: None,
            in_port: PortNo(0),
            actions: parse_actions(actions).unwrap(),
            data: tcp(80),
            pipeline: Match::default(),
        })
    };
    let error = error_of(&bench.send(0, &packet("group:4")));
    assert_eq!(error, Some(ErrorKind::ACTION_BAD_OUT_GROUP));
    bench.send(0, &add(4, &["output:1"]));
    let frame = encode(Version::V13, Xid(5), &packet("group:4")).unwrap();
    let now = bench.now;
    bench.guests[0].handle_frame(now, &frame, true);
    let Some(Output::PacketOut(sent)) = bench.guests[0].poll_output() else {
        panic!("a packet");
    };
    assert_eq!(sent.in_port, PortNo::CONTROLLER);
    let outputs = bench.switch.packet_out(now, &sent).unwrap();
    let fields = PacketFields::parse(PortNo(1), &tcp(80));
    assert!(fields.matches(&Match::any().with_in_port(PortNo(1))));
    assert_eq!(outputs.len(), 1);
}
