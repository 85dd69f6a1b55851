use openflow::message::{FlowModFlags, GroupType};
use openflow::multipart::{FlowStats, GroupDesc};
use openflow::packet::build::{self, Host};
use openflow::table::plain_port;
use openflow::{Action, Bucket, Cookie, GroupId, Instruction, Match, TableId, Version};

use super::*;
use crate::entry::EntryKind;

fn at(dpid: u64, port: u32) -> Location {
    Location::new(DatapathId(dpid), PortNo(port))
}

fn entry(actions: Vec<Action>) -> FlowStats {
    FlowStats {
        table_id: TableId(0),
        duration_sec: 0,
        duration_nsec: 0,
        priority: 1,
        idle_timeout: 0,
        hard_timeout: 0,
        flags: FlowModFlags::empty(),
        cookie: Cookie(0),
        packet_count: 0,
        byte_count: 0,
        r#match: Match::any(),
        instructions: vec![Instruction::ApplyActions(actions)],
        importance: 0,
        stats: Vec::new(),
    }
}

fn out(port: u32) -> Action {
    Action::output(PortNo(port))
}

/// A group of a switch that sends through one of these ports, chosen by the switch's hash.
fn shared(ports: &[u32]) -> GroupDesc {
    let bucket = |port: &u32| Bucket::new(1, vec![out(*port)]);
    GroupDesc {
        group_type: GroupType::Select,
        group_id: GroupId(1),
        buckets: ports.iter().map(bucket).collect(),
        properties: Vec::new(),
    }
}

fn by_group() -> Vec<Action> {
    vec![Action::Group(GroupId(1))]
}

/// Switches by number, with their actions for every packet and their groups. Port 1 of switch n
/// leads to port 2 of switch n + 1; port 3 to port 4 of switch n + 2; the hosts are at ports 5 and
/// 6.
type Net = [(u64, Vec<Action>, Vec<GroupDesc>)];

fn follow(net: &Net, place: Location) -> (Course, Vec<u64>) {
    let (from, to) = (Host::numbered(1), Host::numbered(2));
    let packet = build::udp(from, to, (1, 2), b"payload").into();
    let destination = Destination {
        mac: Some(to.mac),
        ports: vec![place],
        tag: None,
    };
    let mut course = Course::new(at(1, 5), packet, destination);
    let mut asked = Vec::new();
    while let Some(dpid) = course.wants() {
        asked.push(dpid.0);
        let found = net.iter().find(|(number, ..)| *number == dpid.0);
        let read = found.map(|(number, actions, groups)| {
            let ports = (1..8).map(|port| plain_port(PortNo(port)));
            let rows = [entry(actions.clone())];
            let last = net.len() as u64;
            let far = |by: u64, port| at((number - 1 + by) % last + 1, port);
            let links = [(PortNo(1), far(1, 2)), (PortNo(3), far(2, 4))];
            Around {
                report: Report::new(Version::V13, rows, groups.clone(), ports),
                links: links.into(),
            }
        });
        course.give(dpid, read.ok_or_else(|| "it does not answer".to_owned()));
    }
    (course, asked)
}

fn fate(net: &Net, place: Location) -> (Outcome, usize) {
    let fate = follow(net, place).0.fate();
    (fate.outcome, fate.hop)
}

fn plain(dpid: u64, port: u32) -> (u64, Vec<Action>, Vec<GroupDesc>) {
    (dpid, vec![out(port)], Vec::new())
}

#[test]
fn a_packet_is_followed_to_its_host_and_only_switches_on_its_way_are_asked() {
    let net = [plain(1, 1), plain(2, 1), plain(3, 6), plain(4, 1)];
    let (course, asked) = follow(&net, at(3, 6));
    assert_eq!(asked, [1, 2, 3]);
    let fate = course.fate();
    assert_eq!((fate.outcome, fate.hop), (Outcome::Delivered, 2));
    assert_eq!(
        course.hops()[2].leads[&1],
        Lead::Edge {
            is_destination: true
        }
    );
    assert!(!course.has_copies_to_controller());
}

/// A copy for a mirror is no path of the packet: the packet neither arrives nor leaves by it.
#[test]
fn a_packet_that_only_a_mirror_gets_is_dropped() {
    let net = [plain(1, 1), plain(2, 5), plain(3, 6)];
    let is_mirror = |is: bool| {
        let (mut course, _) = follow(&net, at(3, 6));
        if is {
            course = Course::new(
                at(1, 5),
                course.hops()[0].packet.clone(),
                course.destination,
            )
            .with_mirrors([at(2, 5)].into());
            while let Some(dpid) = course.wants() {
                let (other, _) = follow(&net, at(3, 6));
                let around = other.around(dpid).cloned();
                course.give(dpid, around.ok_or_else(String::new));
            }
        }
        let fate = course.fate();
        (fate.outcome, fate.hop, course.hops()[1].leads[&1])
    };
    let edge = Lead::Edge {
        is_destination: false,
    };
    assert_eq!(is_mirror(false), (Outcome::Elsewhere, 1, edge));
    assert_eq!(is_mirror(true), (Outcome::Dropped, 1, Lead::Mirror));
}

#[test]
fn a_way_ends_where_nothing_leads_on() {
    let to_host = at(3, 6);
    let net = [plain(1, 1), plain(2, 6), plain(3, 6)];
    assert_eq!(fate(&net, to_host), (Outcome::Elsewhere, 1), "another port");
    let net = [plain(1, 1), (2, Vec::new(), Vec::new()), plain(3, 6)];
    assert_eq!(fate(&net, to_host), (Outcome::Dropped, 1));
    let net = [
        plain(1, 1),
        (2, vec![Action::controller()], Vec::new()),
        plain(3, 6),
    ];
    assert_eq!(fate(&net, to_host), (Outcome::Controller, 1));
    // The address is another host's: the host at that port accepts no such packet.
    let other = Action::SetField(openflow::MatchField::Basic {
        field: openflow::Field::EthDst,
        value: 7,
        mask: None,
    });
    let net = [
        plain(1, 1),
        plain(2, 1),
        (3, vec![other, out(6)], Vec::new()),
    ];
    assert_eq!(fate(&net, to_host), (Outcome::Elsewhere, 2));
    // The packet still has a label.
    let label = vec![Action::PushVlan(0x8100), out(6)];
    let net = [plain(1, 1), plain(2, 1), (3, label, Vec::new())];
    assert_eq!(fate(&net, to_host), (Outcome::Elsewhere, 2));
    let (course, _) = follow(&[plain(1, 1)], to_host);
    assert_eq!(course.fate().outcome, Outcome::Loops, "a cable to itself");
}

#[test]
fn a_switch_that_cannot_be_read_is_said() {
    let net = [plain(1, 1), plain(3, 6)];
    let (course, _) = follow(&net, at(3, 6));
    assert_eq!(course.fate().outcome, Outcome::Unknown);
    assert_eq!(
        course.hops()[1].problem.as_deref(),
        Some("it does not answer")
    );
}

#[test]
fn a_loop_is_found_and_a_copy_that_arrives_counts() {
    let ring = [plain(1, 1), plain(2, 1), plain(3, 1)];
    let (course, _) = follow(&ring, at(3, 6));
    assert_eq!(course.fate().outcome, Outcome::Loops);
    assert!(course.hops().len() <= 5, "{}", course.hops().len());
    let copies = [
        plain(1, 1),
        plain(2, 1),
        (3, vec![out(1), out(6)], Vec::new()),
    ];
    let (course, _) = follow(&copies, at(3, 6));
    assert_eq!(course.fate().outcome, Outcome::Delivered);
}

#[test]
fn all_ways_of_a_hash_must_arrive() {
    let to_host = at(3, 6);
    let share = || (1, by_group(), vec![shared(&[1, 3])]);
    let net = [share(), plain(2, 1), plain(3, 6)];
    let (course, _) = follow(&net, to_host);
    assert_eq!(course.fate().outcome, Outcome::Delivered);
    assert_eq!(course.hops().len(), 4, "two ways into the last switch");
    let net = [share(), (2, Vec::new(), Vec::new()), plain(3, 6)];
    assert_eq!(
        fate(&net, to_host),
        (Outcome::Depends, 1),
        "one way ends there"
    );
    let net = [share(), (2, Vec::new(), Vec::new()), plain(3, 5)];
    assert_eq!(fate(&net, to_host).0, Outcome::Elsewhere, "no way arrives");
    // An unconditional copy beside the chosen ones always arrives.
    let actions = [by_group(), vec![out(6)]].concat();
    let net = [
        (1, actions, vec![shared(&[1, 3])]),
        (2, Vec::new(), Vec::new()),
        plain(3, 5),
    ];
    assert_eq!(fate(&net, at(1, 6)), (Outcome::Delivered, 0));
}

/// A flood in a full ring makes ever more copies, each with another TTL.
#[test]
fn a_course_has_a_bound() {
    let spread = vec![Action::DecNwTtl, out(1), out(3)];
    let net: Vec<_> = (1..=5).map(|n| (n, spread.clone(), Vec::new())).collect();
    let (course, _) = follow(&net, at(3, 6));
    assert!(course.hops().len() <= HOPS_MAX);
    assert_ne!(course.fate().outcome, Outcome::Delivered);
}

/// Each of many hops takes as long as a walk may: the course ends long before it has walked all
/// hops.
#[test]
fn the_walks_of_a_course_share_a_bound() {
    let mut actions = vec![Action::DecNwTtl, out(1), out(3)];
    actions.extend(vec![Action::output(PortNo::FLOOD); 400]);
    let net: Vec<_> = (1..=5).map(|n| (n, actions.clone(), Vec::new())).collect();
    let (course, _) = follow(&net, at(3, 9));
    let steps: usize = course.hops().iter().map(|hop| hop.steps.len()).sum();
    assert!(steps <= WALKS_MAX.work + HOPS_MAX, "{steps}");
    assert!(course.left.work < Allowance::WALK.work);
    let last = course.hops().last().map(|hop| &hop.steps[..]);
    assert!(matches!(last, Some([Step::Unknown { .. }])), "{last:?}");
    assert_eq!(course.fate().outcome, Outcome::Unknown);
}

/// The packet continues after the copy of a tap, and ends where that path leads.
#[test]
fn a_copy_for_an_application_is_no_way_of_the_packet() {
    let (from, to) = (Host::numbered(1), Host::numbered(2));
    let packet: Bytes = build::udp(from, to, (1, 2), b"payload").into();
    let end_with = |cookie, behind: Vec<Instruction>| {
        let up = Instruction::ApplyActions(vec![Action::controller()]);
        let first = FlowStats {
            cookie,
            instructions: vec![up, Instruction::GotoTable(TableId(1))],
            ..entry(Vec::new())
        };
        let second = FlowStats {
            table_id: TableId(1),
            instructions: behind,
            ..entry(Vec::new())
        };
        let ports = (1..8).map(|port| plain_port(PortNo(port)));
        let report = Report::new(Version::V13, [first, second], Vec::new(), ports);
        let destination = Destination {
            mac: Some(to.mac),
            ports: vec![at(1, 6)],
            tag: None,
        };
        let mut course = Course::new(at(1, 5), packet.clone(), destination);
        let links = BTreeMap::new();
        course.give(DatapathId(1), Ok(Around { report, links }));
        assert_eq!(course.wants(), None);
        assert!(course.has_copies_to_controller());
        course.fate().outcome
    };
    let tap = EntryKind::Tap.cookie(1);
    let apply = |port| vec![Instruction::ApplyActions(vec![out(port)])];
    assert_eq!(end_with(tap, Vec::new()), Outcome::Dropped);
    assert_eq!(end_with(tap, apply(6)), Outcome::Delivered);
    assert_eq!(end_with(tap, apply(4)), Outcome::Elsewhere);
    let of_another = Cookie(7);
    assert_eq!(end_with(of_another, Vec::new()), Outcome::Controller);
}
