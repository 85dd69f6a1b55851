use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;
use crate::actions::Bucket;
use crate::match_fields::Field;
use crate::message::FlowModFlags;
use crate::packet::build::{self, Host};
use crate::table::plain_port;
use crate::types::Cookie;

const P1: PortNo = PortNo(1);

fn row(table: u8, priority: u16, r#match: Match, instructions: Vec<Instruction>) -> FlowStats {
    FlowStats {
        table_id: TableId(table),
        duration_sec: 0,
        duration_nsec: 0,
        priority,
        idle_timeout: 0,
        hard_timeout: 0,
        flags: FlowModFlags::empty(),
        cookie: Cookie(u64::from(priority)),
        packet_count: 7,
        byte_count: 70,
        r#match,
        instructions,
        importance: 0,
        stats: Vec::new(),
    }
}

fn apply(actions: Vec<Action>) -> Vec<Instruction> {
    vec![Instruction::ApplyActions(actions)]
}

fn out(port: u32) -> Action {
    Action::output(PortNo(port))
}

fn group(id: u32, group_type: GroupType, buckets: Vec<Vec<Action>>) -> GroupDesc {
    let bucket = |(at, actions): (usize, Vec<Action>)| Bucket {
        weight: 1,
        watch_port: match group_type {
            GroupType::FastFailover => PortNo(at as u32 + 2),
            _ => PortNo::ANY,
        },
        watch_group: GroupId::ANY,
        actions,
        bucket_id: None,
        properties: Vec::new(),
    };
    GroupDesc {
        group_type,
        group_id: GroupId(id),
        buckets: buckets.into_iter().enumerate().map(bucket).collect(),
        properties: Vec::new(),
    }
}

fn report(rows: Vec<FlowStats>, groups: Vec<GroupDesc>) -> Report {
    let ports = (1..6).map(|port| plain_port(PortNo(port)));
    Report::new(Version::V13, rows, groups, ports)
}

fn packet() -> Bytes {
    let (from, to) = (Host::numbered(1), Host::numbered(2));
    build::udp(from, to, (1000, 5060), b"payload").into()
}

fn to_ip(last: u8) -> Match {
    let ip = u32::from(Ipv4Addr::new(10, 0, 0, last));
    Match::any()
        .with(Field::EthType, 0x0800u16)
        .with(Field::Ipv4Dst, ip)
}

/// The steps in short.
fn short(steps: &[Step]) -> Vec<String> {
    let short = |step: &Step| match step {
        Step::Entry { entry, doubt } => {
            let doubt = doubt.map_or("", |_| "?");
            format!("{}/{}{doubt}", entry.table_id.0, entry.priority)
        }
        Step::Miss { table, doubt } => {
            let doubt = doubt.map_or("", |_| "?");
            format!("{}/miss{doubt}", table.0)
        }
        Step::Meter(meter) => format!("meter {}", meter.0),
        Step::Rewrite { before, .. } => format!("set {before:?}"),
        Step::Group { buckets, .. } => format!("group {buckets:?}"),
        Step::Output { port, only_if, .. } => {
            let buckets: Vec<usize> = only_if.iter().map(|choice| choice.bucket).collect();
            format!("out {port} {buckets:?}")
        }
        Step::Controller { .. } => "controller".to_owned(),
        Step::Drop { reason, .. } => format!("{reason:?}"),
        Step::Unknown { why, .. } => format!("{why:?}"),
    };
    steps.iter().map(short).collect()
}

fn whole() -> Allowance {
    Allowance::WALK
}

fn by_group() -> Vec<Instruction> {
    apply(vec![Action::Group(GroupId(1))])
}

fn walk(report: &Report) -> Vec<String> {
    short(&report.walk(P1, &packet(), &mut whole()))
}

#[test]
fn each_table_says_its_entry_and_the_actions_what_they_change() {
    let goto = Instruction::GotoTable(TableId(2));
    let set = Action::SetField(MatchField::exact(Field::UdpDst, 53));
    let mut first = apply(vec![set]);
    first.extend([Instruction::Meter(MeterId(9)), goto]);
    let dns = Match::any()
        .with(Field::EthType, 0x0800u16)
        .with(Field::IpProto, 17u8)
        .with(Field::UdpDst, 53u16);
    let rows = vec![
        row(0, 5, to_ip(2), first),
        row(0, 1, Match::any(), apply(vec![out(9)])),
        row(2, 8, dns, vec![Instruction::WriteActions(vec![out(3)])]),
    ];
    let found = walk(&report(rows, Vec::new()));
    let expected = ["0/5", "meter 9", "set Some(5060)", "2/8", "out 3 []"];
    assert_eq!(found, expected);
}

#[test]
fn what_ends_a_way_is_said() {
    let end = |instructions| walk(&report(vec![row(0, 1, Match::any(), instructions)], vec![]));
    assert_eq!(end(Vec::new()), ["0/1", "NoOutput"]);
    assert_eq!(end(apply(vec![out(1)])), ["0/1", "BackToInPort"]);
    assert_eq!(end(apply(vec![out(9)])), ["0/1", "OutPortClosed"]);
    assert_eq!(
        end(apply(vec![Action::controller()])),
        ["0/1", "controller"]
    );
    assert_eq!(
        end(apply(vec![Action::Group(GroupId(1))])),
        ["0/1", "NoBucket"]
    );
    assert_eq!(
        walk(&report(Vec::new(), Vec::new())),
        ["0/miss", "TableMiss"]
    );
    let none = report(Vec::new(), Vec::new()).walk(PortNo(77), &packet(), &mut whole());
    assert_eq!(short(&none), ["InPortClosed"]);
}

/// The switch has a hash of its own, so the walk follows every bucket that the hash may choose.
#[test]
fn a_hash_may_choose_each_live_bucket_and_a_fast_failover_takes_the_first() {
    let rows = || {
        vec![row(
            0,
            1,
            Match::any(),
            apply(vec![Action::Group(GroupId(1))]),
        )]
    };
    let select = group(
        1,
        GroupType::Select,
        vec![vec![out(2)], vec![out(3)], vec![]],
    );
    let found = walk(&report(rows(), vec![select.clone()]));
    let expected = [
        "0/1",
        "group [0, 1, 2]",
        "out 2 [0]",
        "out 3 [1]",
        "NoOutput",
    ];
    assert_eq!(found, expected);
    let mut idle = select;
    idle.buckets.truncate(2);
    idle.buckets[0].weight = 0;
    let found = walk(&report(rows(), vec![idle]));
    assert_eq!(
        found,
        ["0/1", "group [1]", "out 3 []"],
        "one choice is none"
    );
    let failover = group(1, GroupType::FastFailover, vec![vec![out(2)], vec![out(3)]]);
    let mut ports: Vec<Port> = (1..6).map(|port| plain_port(PortNo(port))).collect();
    ports[1].state = crate::message::PortState::LINK_DOWN;
    let report = Report::new(Version::V13, rows(), [failover], ports);
    assert_eq!(walk(&report), ["0/1", "group [1]", "out 3 []"]);
}

#[test]
fn doubts_are_of_entries_that_may_come_first() {
    let foreign = |value: u16| {
        let mut r#match = Match::any().with(Field::EthType, value);
        r#match.fields.push(MatchField::Other {
            header: 0x0001_0004,
            payload: Bytes::from_static(&[0; 4]),
        });
        r#match
    };
    let known = row(0, 5, to_ip(2), apply(vec![out(2)]));
    let with = |other| walk(&report(vec![known.clone(), other], Vec::new()));
    assert_eq!(with(row(0, 5, foreign(0x0800), vec![]))[0], "0/5?");
    assert_eq!(
        with(row(0, 4, foreign(0x0800), vec![]))[0],
        "0/5",
        "it is below"
    );
    assert_eq!(
        with(row(0, 9, foreign(0x0806), vec![]))[0],
        "0/5",
        "it is of ARP"
    );
    assert_eq!(
        with(row(1, 9, foreign(0x0800), vec![]))[0],
        "0/5",
        "another table"
    );
    let rival = Match::any().with(Field::EthType, 0x0800u16);
    assert_eq!(with(row(0, 5, rival.clone(), vec![]))[0], "0/5?");
    let same = row(0, 5, rival, apply(vec![out(2)]));
    assert_eq!(with(same)[0], "0/5", "it does the same");
    let only = walk(&report(
        vec![row(0, 5, foreign(0x0800), vec![])],
        Vec::new(),
    ));
    assert_eq!(only, ["0/miss?", "TableMiss"]);
}

#[test]
fn what_no_switch_should_hold_ends_the_walk() {
    let end = |instructions| walk(&report(vec![row(3, 1, Match::any(), instructions)], vec![]));
    let first = |instructions| {
        let way = row(0, 1, Match::any(), vec![Instruction::GotoTable(TableId(3))]);
        let rows = vec![way, row(3, 1, Match::any(), instructions)];
        walk(&report(rows, Vec::new()))
    };
    assert_eq!(end(Vec::new()), ["0/miss", "TableMiss"]);
    let unknown = Action::Experimenter {
        experimenter: 0x2320,
        data: Bytes::from_static(&[0; 12]),
    };
    let bad = [
        vec![Instruction::GotoTable(TableId(3))],
        vec![Instruction::GotoTable(TableId(0))],
        vec![Instruction::GotoTable(TableId(255))],
        apply(vec![unknown.clone()]),
        vec![Instruction::WriteActions(vec![unknown.clone()])],
        apply(vec![Action::CopyTtlIn]),
    ];
    for instructions in bad {
        let found = first(instructions.clone());
        assert_eq!(found, ["0/1", "3/1", "Instructions"], "{instructions:?}");
    }
    // A row of a table that no switch can have is ignored.
    let beyond = report(vec![row(255, 1, Match::any(), Vec::new())], Vec::new());
    assert_eq!(beyond.entry_count(), 0);
    let rows = vec![row(
        0,
        1,
        Match::any(),
        apply(vec![Action::Group(GroupId(1))]),
    )];
    let found = walk(&report(
        rows,
        vec![group(1, GroupType::All, vec![vec![unknown]])],
    ));
    // A bucket has an action set, in which an unknown action has no place.
    assert_eq!(found.last().map(String::as_str), Some("Bucket"));
}

/// Without a bound this would take 16 to the 16th steps.
#[test]
fn groups_in_a_circle_end() {
    let all = |id| vec![vec![Action::Group(GroupId(id)), out(2)]; 16];
    for group_type in [GroupType::All, GroupType::Select] {
        let groups = vec![group(1, group_type, all(2)), group(2, group_type, all(1))];
        let rows = vec![row(
            0,
            1,
            Match::any(),
            apply(vec![Action::Group(GroupId(1))]),
        )];
        let steps = report(rows, groups).walk(P1, &packet(), &mut whole());
        assert!(steps.len() <= WORK_MAX, "{}", steps.len());
        let last = steps.iter().any(|step| {
            let why = Unjudged::TooLong;
            matches!(step, Step::Unknown { why: found, .. } if *found == why)
        });
        assert!(last, "{group_type:?}");
    }
}

/// Followed bucket by bucket, this would take 10 to the 16th steps.
#[test]
fn groups_that_watch_themselves_are_not_live_and_each_is_looked_at_once() {
    let dead = 77;
    let watching = |id, port, watched: &[u32]| {
        let mut group = group(
            id,
            GroupType::FastFailover,
            vec![vec![out(2)]; watched.len()],
        );
        for (bucket, watched) in group.buckets.iter_mut().zip(watched) {
            (bucket.watch_port, bucket.watch_group) = (port, GroupId(*watched));
        }
        group
    };
    let found = |groups| walk(&report(vec![row(0, 1, Match::any(), by_group())], groups));
    let none = ["0/1", "group []", "NoBucket"];
    for port in [PortNo(dead), PortNo::ANY] {
        assert_eq!(found(vec![watching(1, port, &[1; 10])]), none);
    }
    let (any, nothing) = (PortNo::ANY, GroupId::ANY.0);
    let circle = |last| {
        vec![
            watching(1, any, &[2; 10]),
            watching(2, any, &[1, 3]),
            watching(3, any, &[2, last]),
        ]
    };
    assert_eq!(found(circle(1)), none, "nothing but a circle");
    let live = ["0/1", "group [0]", "out 2 []"];
    assert_eq!(found(circle(nothing)), live, "one leaves the circle");
    let first = || watching(1, any, &[2]);
    let by_port = |port| found(vec![first(), watching(2, PortNo(port), &[nothing])]);
    assert_eq!(by_port(3), live);
    assert_eq!(by_port(dead), none);
    assert_eq!(found(vec![first()]), none, "there is no such group");
    let alive = || watching(2, any, &[nothing]);
    let own = watching(1, PortNo(dead), &[2]);
    assert_eq!(found(vec![own, alive()]), none, "its port is dead");
}

/// A walk that takes too long ends, and spends no more than its allowance.
#[test]
fn whatever_takes_long_ends_the_whole_walk() {
    let way = |table: u8, actions| {
        let mut instructions = apply(actions);
        instructions.push(Instruction::GotoTable(TableId(table + 1)));
        row(table, 1, Match::any(), instructions)
    };
    let end = || row(1, 1, Match::any(), apply(vec![out(2)]));
    let last = |steps: &[Step]| short(steps).pop();
    let empty = || group(1, GroupType::Select, vec![Vec::new(); 4094]);
    let groups = vec![Action::Group(GroupId(1)); 4095];
    let floods = vec![Action::output(PortNo::FLOOD); 8000];
    let pushes = vec![[Action::PushVlan(0x8100), out(2)]; 2000].concat();
    for (actions, is_large) in [(groups, false), (floods, false), (pushes, true)] {
        let report = report(vec![way(0, actions), end()], vec![empty()]);
        let mut left = whole();
        let steps = report.walk(P1, &packet(), &mut left);
        assert_eq!(last(&steps).as_deref(), Some("TooLong"));
        assert!(steps.len() <= WORK_MAX, "{}", steps.len());
        let spent = [WORK_MAX - left.work, BYTES_MAX - left.bytes];
        assert!(spent[usize::from(is_large)] > 0);
        let tables = steps
            .iter()
            .filter(|step| matches!(step, Step::Entry { .. }));
        assert_eq!(tables.count(), 1);
    }
    let sets = || vec![Action::SetQueue(QueueId(1)); 3000];
    let rows: Vec<FlowStats> = (0..200).map(|table| way(table, vec![])).collect();
    let mut large: Vec<FlowStats> = rows.clone();
    for row in &mut large {
        row.instructions
            .insert(0, Instruction::WriteActions(sets()));
    }
    let steps = report(large, Vec::new()).walk(P1, &packet(), &mut whole());
    assert!(steps.len() < 100, "{}", steps.len());
    assert_eq!(last(&steps).as_deref(), Some("TooLong"));
    let steps = report(rows, Vec::new()).walk(P1, &packet(), &mut whole());
    assert_eq!(steps.len(), 202, "small ones are followed to the end");
}

#[test]
fn walks_share_what_is_left() {
    let actions = vec![out(2); 100];
    let report = report(vec![row(0, 1, Match::any(), apply(actions))], Vec::new());
    let mut left = Allowance {
        work: 500,
        ..whole()
    };
    let mut lengths = (0..4).map(|_| report.walk(P1, &packet(), &mut left).len());
    assert_eq!(lengths.next(), Some(101));
    assert_eq!(lengths.next(), Some(101));
    assert!(lengths.next().is_some_and(|len| len < 101));
    assert!(lengths.next().is_some_and(|len| len <= 2));
    let mut none = Allowance { work: 0, bytes: 0 };
    let steps = report.walk(P1, &packet(), &mut none);
    assert_eq!(short(&steps), ["TooLong"]);
}

proptest! {
    /// A walk ends, whatever the report contains.
    #[test]
    fn a_walk_of_any_report_ends(
        rows in prop::collection::vec((0u8..=255, any::<u16>(), 0u8..=255, 0usize..12), 0..40),
        frame in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        let action = |kind: usize, value: u8| match kind {
            0 => Action::PopVlan,
            1 => Action::PushVlan(0x8100),
            2 => Action::PushMpls(0x8847),
            3 => Action::PopMpls(0x0800),
            4 => Action::DecNwTtl,
            5 => Action::SetNwTtl(value),
            6 => Action::Group(GroupId(value.into())),
            7 => out(value.into()),
            8 => Action::SetVlanVid(value.into()),
            9 => Action::SetTpDst(value.into()),
            10 => Action::StripVlan,
            _ => Action::DecMplsTtl,
        };
        let groups = (0..20).map(|id| {
            let buckets = vec![vec![Action::Group(GroupId((id * 7) % 20)), out(id % 5)]; 3];
            group(id, GroupType::All, buckets)
        });
        let rows = rows.into_iter().map(|(table, priority, value, kind)| {
            let mut instructions = apply(vec![action(kind, value); 3]);
            instructions.push(Instruction::GotoTable(TableId(value)));
            row(table, priority, Match::any(), instructions)
        });
        let report = report(rows.collect(), groups.collect());
        let steps = report.walk(P1, &Bytes::from(frame), &mut whole());
        prop_assert!(steps.len() <= WORK_MAX);
    }

    /// An explained walk and a counted one share their code; where no hash chooses, they agree.
    #[test]
    fn the_outputs_are_those_of_the_reference_switch(
        entries in prop::collection::vec((0u8..3, 0u16..4, 1u8..4, 1u32..7), 1..12),
    ) {
        let rows: Vec<FlowStats> = entries.iter().map(|(table, priority, ip, port)| {
            let mut instructions = apply(vec![out(*port)]);
            if *table < 2 {
                instructions.push(Instruction::GotoTable(TableId(table + 1)));
            }
            row(*table, *priority, to_ip(*ip), instructions)
        }).collect();
        let report = report(rows, Vec::new());
        let steps = report.walk(P1, &packet(), &mut whole());
        let found: Vec<PortNo> = steps.iter().filter_map(|step| match step {
            Step::Output { port, .. } => Some(*port),
            _ => None,
        }).collect();
        prop_assert_eq!(found, report.switch.ports_of(P1, &packet()));
    }
}
