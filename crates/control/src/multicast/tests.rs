use openflow::{DatapathId, MacAddr, PortNo};
use proptest::prelude::*;

use super::*;

const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 100));

fn at(port: u32) -> Location {
    Location::new(DatapathId(1), PortNo(port))
}

fn vlan(id: u16) -> VlanId {
    VlanId::new(id).expect("a VLAN id")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn group_of(message: &Message) -> IpAddr {
    match message {
        Message::Query(query) => query.group,
        Message::Join { group, .. } | Message::Leave { group } => *group,
        Message::Records { records, .. } => records.first().map_or(OWN, |it| it.group),
        Message::PimHello { .. } => OWN,
    }
}

/// A message of a host with an address of the message's family.
fn heard(message: Message) -> Heard {
    let from = match Family::new(group_of(&message)) {
        Family::Ipv4 => ip("10.0.0.1"),
        Family::Ipv6 => ip("fe80::1"),
    };
    heard_from(from, message)
}

fn heard_from(from: IpAddr, message: Message) -> Heard {
    Heard {
        tag: None,
        eth_src: MacAddr([2, 0, 0, 0, 0, 1]),
        from,
        message,
    }
}

fn join(group: &str) -> Heard {
    heard(Message::Join {
        group: ip(group),
        is_igmp1: false,
    })
}

fn leave(group: &str) -> Heard {
    heard(Message::Leave { group: ip(group) })
}

fn record(kind: RecordKind, group: &str, source_count: u16) -> Heard {
    let record = Record {
        kind,
        group: ip(group),
        source_count,
    };
    heard(Message::Records {
        records: vec![record],
        beyond: 0,
    })
}

fn general(from: &str) -> Heard {
    let from = ip(from);
    let query = Query {
        group: Family::new(from).unspecified(),
        response_max: seconds(10),
        extended: None,
    };
    heard_from(from, Message::Query(query))
}

/// A machine with its clock, and a listener who believes its outputs.
struct World {
    now: Instant,
    machine: Membership,
    members: BTreeMap<GroupKey, BTreeSet<Location>>,
    routers: BTreeMap<NetworkKey, BTreeSet<Location>>,
    /// Queries, with their times.
    asked: Vec<(Instant, VlanId, Option<Location>, Query)>,
}

impl World {
    fn new(config: Config) -> World {
        World {
            now: Instant::START,
            machine: Membership::new(config),
            members: BTreeMap::new(),
            routers: BTreeMap::new(),
            asked: Vec::new(),
        }
    }

    fn hear(&mut self, id: u16, port: u32, heard: &Heard) {
        self.machine
            .handle_message(self.now, vlan(id), at(port), heard);
        self.drain();
    }

    fn set_querier(&mut self, id: u16, ipv4: Option<IpAddr>) {
        let ipv4 = match ipv4 {
            Some(IpAddr::V4(ipv4)) => Some(ipv4),
            _ => None,
        };
        let addresses = QuerierAddresses { ipv4, ipv6: None };
        self.machine.set_querier(self.now, vlan(id), addresses);
        self.drain();
    }

    /// Passes time, with a stop wherever the machine wants one.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.machine.next_due().filter(|next| *next <= end) {
            assert!(next > self.now, "nothing is left undone");
            self.now = next;
            self.machine.due(next);
            self.drain();
        }
        self.now = end;
    }

    fn drain(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Joined { vlan, group, at } => {
                    let is_new = self.members.entry((vlan, group)).or_default().insert(at);
                    assert!(is_new, "{output:?} twice");
                }
                Output::Left { vlan, group, at } => {
                    let members = self.members.get_mut(&(vlan, group)).expect("members");
                    assert!(members.remove(&at), "{output:?} twice");
                    if members.is_empty() {
                        self.members.remove(&(vlan, group));
                    }
                }
                Output::RouterFound { vlan, family, at } => {
                    let is_new = self.routers.entry((vlan, family)).or_default().insert(at);
                    assert!(is_new, "{output:?} twice");
                }
                Output::RouterLost { vlan, family, at } => {
                    let routers = self.routers.get_mut(&(vlan, family)).expect("routers");
                    assert!(routers.remove(&at), "{output:?} twice");
                    if routers.is_empty() {
                        self.routers.remove(&(vlan, family));
                    }
                }
                Output::Ask { vlan, to, query } => self.asked.push((self.now, vlan, to, query)),
            }
        }
        self.check();
    }

    /// Checks that the listener agrees with the machine, bounds hold, and no timer is lost or left
    /// over.
    fn check(&self) {
        let machine = &self.machine;
        let config = &machine.config;
        let groups: Vec<_> = machine.groups().collect();
        assert_eq!(groups, self.members.keys().copied().collect::<Vec<_>>());
        for ((vlan, group), members) in &self.members {
            let mut all: BTreeSet<_> = machine.members(*vlan, *group).collect();
            assert_eq!(&all, members);
            all.extend(machine.routers(*vlan, Family::new(*group)));
            assert_eq!(machine.receivers(*vlan, *group), all);
        }
        for id in [vlan(1), vlan(2)] {
            for family in Family::ALL {
                let routers = machine.routers(id, family).collect();
                let heard = self.routers.get(&(id, family)).cloned().unwrap_or_default();
                assert_eq!(heard, routers);
            }
            let of_vlan = groups.iter().filter(|key| key.0 == id).count();
            let counted = machine.vlan_groups.get(&id).copied();
            assert_eq!(counted.unwrap_or_default(), of_vlan);
            assert!(of_vlan <= config.groups_per_vlan_max);
        }
        let members: Vec<_> = machine.groups.values().flatten().collect();
        assert_eq!(members.len(), machine.membership_count);
        assert!(members.len() <= config.memberships_max);
        assert!(groups.len() <= config.groups_max);
        let routers: usize = machine.routers.values().map(BTreeMap::len).sum();
        assert_eq!(routers, machine.router_count);
        assert!(routers <= config.router_ports_max);
        let ports = machine.ports.values();
        let of_ports = ports.map(|port| (port.groups.len(), port.routers.len()));
        let (mut group_sum, mut router_sum) = (0, 0);
        for (groups, routers) in of_ports {
            assert!(groups <= config.groups_per_port_max);
            assert!(groups + routers > 0, "a port of which nothing is known");
            (group_sum, router_sum) = (group_sum + groups, router_sum + routers);
        }
        assert_eq!((group_sum, router_sum), (members.len(), routers));
        let asking = members.iter().filter(|(_, it)| {
            let left = it.asking.map(|(left, _)| left);
            left.is_some_and(|left| left > 0)
        });
        let queriers = machine.networks.values().map(querier::Network::timers);
        let timers = members.len() + routers + asking.count() + queriers.sum::<usize>();
        assert_eq!(machine.timers.len(), timers, "{:?}", machine.timers);
    }

    fn ports(&self, id: u16, group: &str) -> Vec<u32> {
        let members = self.machine.members(vlan(id), ip(group));
        members.map(|at| at.port.0).collect()
    }

    /// The seconds at which hosts at this port, or at all ports, were queried.
    fn times(&mut self, to: Option<u32>) -> Vec<u64> {
        let to = to.map(at);
        let asked = self.asked.iter().filter(|(_, _, asked, _)| *asked == to);
        let times = asked.map(|(time, ..)| time.since(Instant::START).as_secs());
        let times = times.collect();
        self.asked.clear();
        times
    }
}

#[test]
fn a_membership_ends_260_seconds_after_the_last_report() {
    for group in ["239.1.1.1", "ff05::1"] {
        let mut world = World::new(Config::default());
        world.hear(1, 1, &join(group));
        world.pass(seconds(100));
        world.hear(1, 2, &join(group));
        world.pass(seconds(100));
        world.hear(1, 1, &join(group));
        world.pass(seconds(159));
        assert_eq!(world.ports(1, group), [1, 2]);
        assert_eq!(world.ports(2, group), [0; 0], "another VLAN");
        world.pass(seconds(1));
        assert_eq!(world.ports(1, group), [1]);
        world.pass(seconds(99));
        assert_eq!(world.ports(1, group), [1]);
        world.pass(seconds(1));
        assert_eq!(world.ports(1, group), [0; 0]);
        assert_eq!(world.machine.next_due(), None);
        assert_eq!(world.asked, []);
    }
}

#[test]
fn the_others_behind_a_port_are_asked_twice_after_a_leave() {
    let mut world = World::new(Config::default());
    for port in [1, 2, 3] {
        world.hear(1, port, &join("239.1.1.1"));
    }
    world.pass(seconds(10));
    world.hear(1, 1, &leave("239.1.1.1"));
    world.hear(1, 2, &leave("239.1.1.1"));
    world.hear(1, 2, &leave("239.1.1.1"));
    let (_, _, _, query) = world.asked[0];
    assert_eq!(
        (query.group, query.response_max),
        (ip("239.1.1.1"), seconds(1))
    );
    world.pass(Duration::from_millis(1500));
    world.hear(1, 2, &join("239.1.1.1"));
    world.pass(seconds(1));
    assert_eq!(world.ports(1, "239.1.1.1"), [2, 3], "one has answered");
    let asked = world.asked.clone();
    assert_eq!(world.times(Some(1)), [10, 11]);
    world.asked = asked;
    assert_eq!(world.times(Some(2)), [10, 11]);
    world.pass(seconds(257));
    assert_eq!(world.ports(1, "239.1.1.1"), [2]);
}

#[test]
fn a_fast_leave_asks_nobody() {
    let mut world = World::new(Config {
        is_fast_leave: true,
        ..Config::default()
    });
    world.hear(1, 1, &join("239.1.1.1"));
    world.hear(1, 2, &join("239.1.1.1"));
    world.hear(1, 1, &leave("239.1.1.1"));
    assert_eq!(world.ports(1, "239.1.1.1"), [2]);
    assert_eq!(world.asked, []);
    let block = record(RecordKind::Block, "239.1.1.1", 1);
    world.hear(1, 2, &block);
    assert_eq!(world.ports(1, "239.1.1.1"), [2], "it may want others");
    assert_eq!(world.times(Some(2)), [0]);
}

#[test]
fn leaves_are_not_believed_where_an_igmpv1_host_is() {
    let mut world = World::new(Config::default());
    let old = heard(Message::Join {
        group: ip("239.1.1.1"),
        is_igmp1: true,
    });
    world.hear(1, 1, &old);
    world.pass(seconds(200));
    world.hear(1, 1, &join("239.1.1.1"));
    world.hear(1, 1, &leave("239.1.1.1"));
    world.pass(seconds(59));
    assert_eq!(
        (world.ports(1, "239.1.1.1"), &world.asked[..]),
        (vec![1], &[][..])
    );
    world.pass(seconds(1));
    world.hear(1, 1, &leave("239.1.1.1"));
    world.pass(seconds(2));
    assert_eq!(world.ports(1, "239.1.1.1"), [0; 0]);
}

#[test]
fn records_join_but_for_an_empty_include() {
    use RecordKind as Kind;
    let group = "239.1.1.1";
    let cases = [
        (Kind::IsInclude, 0, false, false),
        (Kind::IsInclude, 1, true, true),
        (Kind::ToInclude, 0, false, false),
        (Kind::ToInclude, 1, true, true),
        (Kind::IsExclude, 0, true, true),
        (Kind::IsExclude, 1, true, true),
        (Kind::ToExclude, 0, true, true),
        (Kind::ToExclude, 1, true, true),
        (Kind::Allow, 0, false, true),
        (Kind::Allow, 1, true, true),
        // Linux leaves its only source like this.
        (Kind::Block, 1, false, false),
    ];
    for (kind, source_count, joins, stays) in cases {
        let record = record(kind, group, source_count);
        let mut world = World::new(Config::default());
        world.hear(1, 1, &record);
        assert_eq!(!world.ports(1, group).is_empty(), joins, "{record:?}");
        world.hear(1, 1, &join(group));
        world.hear(1, 1, &record);
        world.pass(seconds(3));
        assert_eq!(!world.ports(1, group).is_empty(), stays, "{record:?}");
    }
}

#[test]
fn groups_of_the_link_are_not_tracked() {
    let links = [
        "224.0.0.1",
        "224.0.0.251",
        "ff02::fb",
        "ff02::1:ff00:1",
        "ff12::1",
        "ff01::1",
        "ff00::1",
        "10.0.0.1",
    ];
    let others = [
        "224.0.1.1",
        "232.0.0.1",
        "239.0.0.1",
        "ff03::1",
        "ff05::2",
        "ff3e::1",
    ];
    for group in links {
        let mut world = World::new(Config::default());
        world.hear(1, 1, &join(group));
        assert_eq!(
            (is_tracked(ip(group)), world.ports(1, group)),
            (false, vec![]),
            "{group}"
        );
    }
    for group in others {
        assert!(is_tracked(ip(group)), "{group}");
    }
}

#[test]
fn our_querier_asks_quickly_at_first_and_gives_way_to_a_lower_address() {
    let mut world = World::new(Config::default());
    world.set_querier(1, Some(OWN));
    assert_eq!(world.machine.querier(vlan(1), Family::Ipv4), Querier::Own);
    assert_eq!(
        world.machine.querier(vlan(1), Family::Ipv6),
        Querier::Absent
    );
    world.pass(seconds(300));
    assert_eq!(world.times(None), [0, 31, 156, 281]);
    world.hear(1, 7, &general("10.0.0.101"));
    world.hear(1, 7, &general("0.0.0.0"));
    world.hear(2, 7, &general("10.0.0.1"));
    assert_eq!(world.machine.querier(vlan(1), Family::Ipv4), Querier::Own);
    world.pass(seconds(110));
    assert_eq!(world.times(None), [406]);
    world.hear(1, 8, &general("10.0.0.99"));
    world.hear(1, 7, &general("10.0.0.98"));
    world.hear(1, 9, &general("10.0.0.99"));
    let other = Querier::Other {
        address: ip("10.0.0.98"),
        at: at(7),
    };
    assert_eq!(world.machine.querier(vlan(1), Family::Ipv4), other);
    world.pass(seconds(254));
    assert_eq!(world.times(None), [0; 0]);
    world.pass(seconds(1));
    assert_eq!(world.times(None), [665], "other querier present interval");
    assert_eq!(world.machine.querier(vlan(1), Family::Ipv4), Querier::Own);
    world.hear(1, 7, &general("10.0.0.98"));
    world.pass(seconds(20));
    world.machine.handle_port_gone(world.now, at(7));
    world.drain();
    assert_eq!(world.times(None), [685], "its port is gone");
    world.set_querier(1, None);
    assert_eq!(
        world.machine.querier(vlan(1), Family::Ipv4),
        Querier::Absent
    );
    world.pass(seconds(1000));
    assert_eq!(world.times(None), [0; 0]);
    assert!(world.machine.networks.is_empty());
}

#[test]
fn own_queries_have_the_configured_version_and_times() {
    for (is_extended, robustness, wanted) in
        [(true, 2, Some(2)), (true, 9, Some(0)), (false, 2, None)]
    {
        let mut world = World::new(Config {
            is_extended,
            robustness,
            ..Config::default()
        });
        let addresses = QuerierAddresses {
            ipv4: None,
            ipv6: Some("fe80::1".parse().expect("an address")),
        };
        world.machine.set_querier(world.now, vlan(1), addresses);
        world.drain();
        let (_, _, _, query) = world.asked[0];
        assert_eq!((query.group, query.response_max), (ip("::"), seconds(10)));
        assert_eq!(query.extended.map(|it| it.robustness), wanted);
        let interval = query.extended.map(|it| it.interval);
        assert_eq!(interval, wanted.map(|_| seconds(125)));
    }
}

#[test]
fn routers_receive_all_groups_of_their_family() {
    let mut world = World::new(Config::default());
    let hello = |from: &str, hold| {
        heard_from(
            ip(from),
            Message::PimHello {
                hold: seconds(hold),
            },
        )
    };
    world.hear(1, 1, &join("239.1.1.1"));
    world.hear(1, 2, &general("10.0.0.1"));
    world.hear(1, 3, &general("0.0.0.0"));
    world.hear(1, 4, &hello("10.0.0.4", 105));
    world.hear(1, 5, &hello("fe80::5", 105));
    world.hear(1, 4, &hello("10.0.0.5", 0));
    let receivers = world.machine.receivers(vlan(1), ip("239.1.1.1"));
    assert_eq!(receivers, [1, 2, 4].map(at).into());
    let receivers = world.machine.receivers(vlan(1), ip("ff05::1"));
    assert_eq!(receivers, [at(5)].into());
    assert!(world.machine.receivers(vlan(2), ip("239.1.1.1")).is_empty());
    // The router's port is not queried after a leave.
    world.hear(1, 2, &join("239.1.1.1"));
    world.hear(1, 2, &leave("239.1.1.1"));
    assert_eq!(world.asked, []);
    world.pass(seconds(105));
    let receivers = world.machine.receivers(vlan(1), ip("239.1.1.1"));
    assert_eq!(receivers, [1, 2].map(at).into());
    world.pass(seconds(150));
    assert_eq!(world.routers, BTreeMap::new());
}

#[test]
fn ports_that_go_or_change_their_vlans_are_forgotten() {
    let mut world = World::new(Config::default());
    for id in [1, 2] {
        for port in [1, 2] {
            world.hear(id, port, &join("239.1.1.1"));
            world.hear(id, port, &join("ff05::1"));
        }
        world.hear(id, 1, &general("10.0.0.1"));
    }
    world
        .machine
        .handle_vlan_ports(world.now, vlan(1), |port| port != at(1));
    world.drain();
    assert_eq!(world.ports(1, "239.1.1.1"), [2]);
    assert_eq!(world.ports(2, "239.1.1.1"), [1, 2]);
    let families: Vec<_> = world.routers.keys().copied().collect();
    assert_eq!(families, [(vlan(2), Family::Ipv4)]);
    world.machine.handle_port_gone(world.now, at(1));
    world.machine.handle_port_gone(world.now, at(9));
    world.drain();
    assert_eq!(world.ports(2, "ff05::1"), [2]);
    assert_eq!(world.routers, BTreeMap::new());
    assert_eq!(
        world.machine.querier(vlan(2), Family::Ipv4),
        Querier::Absent
    );
}

#[test]
fn ports_that_ask_for_everything_leave_room_for_others() {
    let group = |n: u32| IpAddr::from(Ipv4Addr::from_bits(0xef00_0000 + n));
    let ask = |world: &mut World, port: u32| {
        for n in 0..2000 {
            let message = Message::Join {
                group: group(port * 2000 + n),
                is_igmp1: false,
            };
            let now = world.now;
            world
                .machine
                .handle_message(now, vlan(1), at(port), &heard(message));
        }
        let port = world.machine.ports.get(&at(port));
        port.map_or(0, |port| port.groups.len())
    };
    let mut world = World::new(Config {
        groups_per_vlan_max: 8192,
        ..Config::default()
    });
    for hostile in 1..=20 {
        let held = ask(&mut world, hostile);
        assert!(held <= 1024);
    }
    assert!(world.machine.groups.len() <= 8192);
    let refused = world.machine.refused();
    assert!(
        refused.beyond_port > 0 && refused.beyond_room > 0,
        "{refused:?}"
    );
    let held = ask(&mut world, 21);
    assert!(held > 0, "a port that comes later has room");
    world.drain();
}

#[test]
fn records_beyond_a_report_and_queries_beyond_all_patience_are_counted() {
    let mut world = World::new(Config::default());
    let records = heard(Message::Records {
        records: Vec::new(),
        beyond: 7,
    });
    world.hear(1, 1, &records);
    let query = Query {
        group: ip("0.0.0.0"),
        response_max: seconds(3174),
        extended: Some(ExtendedQuery {
            suppress: false,
            robustness: 7,
            interval: seconds(31_744),
            source_count: 0,
        }),
    };
    world.hear(1, 1, &heard_from(ip("10.0.0.1"), Message::Query(query)));
    let refused = world.machine.refused();
    assert_eq!((refused.records, refused.queries), (7, 1));
    assert_eq!(
        world.machine.querier(vlan(1), Family::Ipv4),
        Querier::Absent
    );
    assert_eq!(world.routers, BTreeMap::new());
}

/// A configuration small enough to reach its bounds, in which all times differ.
const SMALL: Config = Config {
    robustness: 2,
    query_interval: Duration::from_secs(20),
    response_interval: Duration::from_secs(4),
    last_member_interval: Duration::from_secs(1),
    last_member_count: 2,
    is_fast_leave: false,
    is_extended: true,
    silence_max: Duration::from_secs(300),
    groups_per_port_max: 3,
    groups_per_vlan_max: 5,
    groups_max: 8,
    memberships_max: 12,
    router_ports_max: 9,
};

#[derive(Clone, Debug)]
enum Event {
    Hear(u16, u32, Heard),
    PortGone(u32),
    /// The VLAN has ports up to this one.
    VlanPorts(u16, u32),
    Querier(u16, Option<IpAddr>),
    /// In milliseconds.
    Pass(u64),
}

fn groups() -> impl Strategy<Value = IpAddr> {
    let groups = [
        "239.1.1.1",
        "239.1.1.2",
        "239.1.1.3",
        "239.1.1.4",
        "239.1.1.5",
        "224.0.0.9",
        "ff05::1",
        "ff05::2",
        "ff02::1",
    ];
    (0..groups.len()).prop_map(move |at| ip(groups[at]))
}

fn queries() -> impl Strategy<Value = Heard> {
    let from = [
        "0.0.0.0",
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.100",
        "10.0.0.200",
        "fe80::1",
    ];
    let extended = proptest::option::of((0..8u8, 0..100u64));
    let all = (
        0..from.len(),
        groups(),
        any::<bool>(),
        0..60_000u64,
        extended,
    );
    all.prop_map(move |(at, group, is_general, response_ms, extended)| {
        let from = ip(from[at]);
        let is_general = is_general || group.is_ipv4() != from.is_ipv4();
        let query = Query {
            group: match is_general {
                true => Family::new(from).unspecified(),
                false => group,
            },
            response_max: Duration::from_millis(response_ms),
            extended: extended.map(|(robustness, interval_s)| ExtendedQuery {
                suppress: false,
                robustness,
                interval: seconds(interval_s),
                source_count: 0,
            }),
        };
        heard_from(from, Message::Query(query))
    })
}

fn messages() -> impl Strategy<Value = Heard> {
    let records = (groups(), 0..6usize, 0..2u16);
    let records = records.prop_map(|(group, kind, source_count)| Record {
        kind: RecordKind::ALL[kind],
        group,
        source_count,
    });
    prop_oneof![
        4 => (groups(), proptest::bool::weighted(0.1)).prop_map(|(group, is_igmp1)| {
            let is_igmp1 = is_igmp1 && group.is_ipv4();
            heard(Message::Join { group, is_igmp1 })
        }),
        2 => groups().prop_map(|group| heard(Message::Leave { group })),
        3 => proptest::collection::vec(records, 1..4).prop_map(|mut records| {
            let is_ipv4 = records[0].group.is_ipv4();
            records.retain(|it| it.group.is_ipv4() == is_ipv4);
            heard(Message::Records { records, beyond: 0 })
        }),
        2 => queries(),
        1 => (0..400u64).prop_map(|hold| {
            heard_from(ip("10.0.0.4"), Message::PimHello { hold: seconds(hold) })
        }),
    ]
}

fn events() -> impl Strategy<Value = Event> {
    let own = prop_oneof![1..4u8, 99..102u8];
    let querier = proptest::option::of(own.prop_map(|n| IpAddr::from([10, 0, 0, n])));
    let times = prop_oneof![0..3000u64, 0..60_000u64];
    prop_oneof![
        12 => (1..3u16, 1..5u32, messages()).prop_map(|(id, port, it)| Event::Hear(id, port, it)),
        1 => (1..5u32).prop_map(Event::PortGone),
        1 => (1..3u16, 1..5u32).prop_map(|(id, port)| Event::VlanPorts(id, port)),
        1 => (1..3u16, querier).prop_map(|(id, address)| Event::Querier(id, address)),
        6 => times.prop_map(Event::Pass),
    ]
}

/// The truth by the RFCs, in plain lists. The model learns of our own general queries from the
/// outputs.
#[derive(Default)]
struct Model {
    members: BTreeMap<(GroupKey, Location), ModelMember>,
    routers: BTreeMap<(NetworkKey, Location), Instant>,
    others: BTreeMap<NetworkKey, (IpAddr, Location, Instant, Duration)>,
    own: BTreeMap<NetworkKey, IpAddr>,
    held: BTreeMap<NetworkKey, Instant>,
}

#[derive(Clone, Copy)]
struct ModelMember {
    until: Instant,
    igmp1_until: Instant,
    is_asked: bool,
}

impl Model {
    /// Forgets expired state.
    fn expire(&mut self, now: Instant) {
        self.others.retain(|_, (_, _, until, _)| *until > now);
        self.routers.retain(|_, until| *until > now);
        let held = &self.held;
        self.members.retain(|((vlan, group), _), member| {
            let held = held.get(&(*vlan, Family::new(*group))).copied();
            let is_held = !member.is_asked && held.is_some_and(|held| held > now);
            member.until > now || is_held
        });
    }

    fn hear(&mut self, now: Instant, id: VlanId, port: Location, heard: &Heard) {
        match &heard.message {
            Message::Join { group, is_igmp1 } => self.join(now, (id, *group), port, *is_igmp1),
            Message::Leave { group } => self.leave(now, (id, *group), port),
            Message::Records { records, .. } => {
                for record in records {
                    let key = (id, record.group);
                    match (record.kind as u8, record.source_count) {
                        (1 | 3, 0) | (6, _) => self.leave(now, key, port),
                        (5, 0) => {}
                        _ => self.join(now, key, port, false),
                    }
                }
            }
            Message::Query(query) => self.query(now, id, port, heard.from, query),
            Message::PimHello { hold } if hold.is_zero() => {}
            Message::PimHello { hold } => {
                let hold = (*hold).min(SMALL.silence_max);
                self.router((id, Family::new(heard.from)), port, now + hold);
            }
        }
    }

    fn join(&mut self, now: Instant, key: GroupKey, port: Location, is_igmp1: bool) {
        if !is_tracked(key.1) {
            return;
        }
        let keys: Vec<_> = self.members.keys().copied().collect();
        let held = keys.iter().filter(|(_, at)| *at == port).count();
        let groups: BTreeSet<_> = keys.iter().map(|(key, _)| *key).collect();
        let in_vlan = groups.iter().filter(|it| it.0 == key.0).count();
        let is_new = !groups.contains(&key);
        let has_room = held < SMALL.groups_per_port_max
            && 4 * held < SMALL.memberships_max - keys.len()
            && (!is_new || 4 * held < SMALL.groups_max - groups.len())
            && (!is_new || 4 * held < SMALL.groups_per_vlan_max - in_vlan);
        let before = self.members.get(&(key, port)).copied();
        if before.is_none() && !has_room {
            return;
        }
        let own = Duration::from_secs(2 * 20 + 4);
        let other = self.others.get(&(key.0, Family::new(key.1)));
        let until = now + other.map_or(own, |(.., interval)| *interval);
        let igmp1_until = before.map_or(Instant::START, |it| it.igmp1_until);
        let member = ModelMember {
            until,
            igmp1_until: if is_igmp1 { until } else { igmp1_until },
            is_asked: false,
        };
        self.members.insert((key, port), member);
    }

    fn leave(&mut self, now: Instant, key: GroupKey, port: Location) {
        let network = (key.0, Family::new(key.1));
        if self.routers.contains_key(&(network, port)) {
            return;
        }
        if let Some(member) = self.members.get_mut(&(key, port))
            && member.igmp1_until <= now
            && !member.is_asked
        {
            member.until = now + seconds(2);
            member.is_asked = true;
        }
    }

    fn query(&mut self, now: Instant, id: VlanId, port: Location, from: IpAddr, query: &Query) {
        let stated = |value: u64, or: u64| if value == 0 { or } else { value };
        let extended = query.extended;
        let interval = stated(extended.map_or(0, |it| it.interval.as_secs()), 20);
        let robustness = stated(extended.map_or(0, |it| it.robustness.into()), 2);
        let response = query.response_max;
        let is_long = seconds(interval * robustness) + response > SMALL.silence_max;
        if from.is_unspecified() || is_long {
            return;
        }
        let queries = seconds(interval.max(20) * robustness.max(2));
        let longer = response.max(seconds(4));
        let until = (now + (queries + longer / 2)).max(now + (response + TRANSIT));
        let network = (id, Family::new(from));
        if !self.router(network, port, until) || !query.group.is_unspecified() {
            return;
        }
        let is_lowest = self.others.get(&network).is_none_or(|it| from <= it.0)
            && self.own.get(&network).is_none_or(|own| from < *own);
        if is_lowest {
            let other = (from, port, until, queries + longer);
            self.others.insert(network, other);
            self.hold(network, now + (response + TRANSIT));
        }
    }

    fn router(&mut self, network: NetworkKey, port: Location, until: Instant) -> bool {
        let of_port = self.routers.keys().filter(|(_, at)| *at == port).count();
        let room = SMALL.router_ports_max - self.routers.len();
        let is_known = self.routers.contains_key(&(network, port));
        if is_known || 4 * of_port < room {
            let known = self.routers.entry((network, port)).or_insert(until);
            *known = (*known).max(until);
            return true;
        }
        false
    }

    fn hold(&mut self, network: NetworkKey, until: Instant) {
        let held = self.held.entry(network).or_insert(until);
        *held = (*held).max(until);
    }

    fn gone(&mut self, is_gone: impl Fn(VlanId, Location) -> bool) {
        self.members.retain(|(key, at), _| !is_gone(key.0, *at));
        self.routers.retain(|(key, at), _| !is_gone(key.0, *at));
        self.others.retain(|key, (_, at, ..)| !is_gone(key.0, *at));
    }
}

/// Applies an event to machine and model, and compares them at every stop.
fn apply(world: &mut World, model: &mut Model, event: &Event) {
    let now = world.now;
    match event {
        Event::Hear(id, port, heard) => {
            world.hear(*id, *port, heard);
            model.hear(now, vlan(*id), at(*port), heard);
        }
        Event::PortGone(port) => {
            world.machine.handle_port_gone(now, at(*port));
            model.gone(|_, gone| gone == at(*port));
        }
        Event::VlanPorts(id, last) => {
            let is_member = |port: Location| port <= at(*last);
            world.machine.handle_vlan_ports(now, vlan(*id), is_member);
            model.gone(|of, port| of == vlan(*id) && !is_member(port));
        }
        Event::Querier(id, address) => {
            world.set_querier(*id, *address);
            let network = (vlan(*id), Family::Ipv4);
            model.own.remove(&network);
            if let Some(address) = address {
                model.own.insert(network, *address);
                model
                    .others
                    .retain(|key, other| *key != network || other.0 <= *address);
            }
        }
        Event::Pass(millis) => {
            let end = now + Duration::from_millis(*millis);
            while world.now < end {
                let next = world.machine.next_due().filter(|next| *next < end);
                world.pass(next.unwrap_or(end) - world.now);
                compare(world, model);
            }
        }
    }
    world.drain();
    compare(world, model);
}

fn compare(world: &mut World, model: &mut Model) {
    // The querier that goes is known before the query that follows, and that before members end.
    for (time, vlan, to, query) in world.asked.drain(..) {
        if to.is_none() {
            let network = (vlan, Family::new(query.group));
            let other = model.others.get(&network);
            assert!(model.own.contains_key(&network), "it is not wanted");
            assert!(other.is_none_or(|other| other.2 <= time), "another asks");
            model.hold(network, time + (SMALL.response_interval + TRANSIT));
        } else {
            let is_asked = |((key, at), it): (&(GroupKey, Location), &ModelMember)| {
                *key == (vlan, query.group) && Some(*at) == to && it.is_asked
            };
            // A record of the same report may have joined again since.
            let is_any = model.members.iter().any(is_asked);
            let is_joined = model
                .members
                .contains_key(&((vlan, query.group), to.unwrap_or(at(0))));
            assert!(is_any || is_joined, "nobody left: {query:?}");
        }
    }
    model.expire(world.now);
    let members = world.machine.groups.iter();
    let members = members.flat_map(|(key, ports)| ports.keys().map(|port| (*key, *port)));
    let members: Vec<_> = members.collect();
    let wanted: Vec<_> = model.members.keys().copied().collect();
    assert_eq!(members, wanted, "members at {:?}", world.now);
    let routers = world.machine.routers.iter();
    let routers = routers.flat_map(|(key, ports)| ports.keys().map(|port| (*key, *port)));
    let routers: BTreeSet<_> = routers.collect();
    let wanted: BTreeSet<_> = model.routers.keys().copied().collect();
    assert_eq!(routers, wanted, "routers at {:?}", world.now);
    for id in [vlan(1), vlan(2)] {
        for family in Family::ALL {
            let network = (id, family);
            let wanted = match (model.others.get(&network), model.own.get(&network)) {
                (Some((address, at, ..)), _) => Querier::Other {
                    address: *address,
                    at: *at,
                },
                (None, Some(_)) => Querier::Own,
                (None, None) => Querier::Absent,
            };
            assert_eq!(world.machine.querier(id, family), wanted);
        }
    }
}

/// A host that answers each general query that it receives.
struct Host {
    port: u32,
    group: IpAddr,
    /// The part of the response time that the host waits, in percent.
    patience: u32,
    answers_at: Option<Instant>,
}

impl Host {
    fn hear(&mut self, now: Instant, query: &Query) {
        let is_mine =
            query.group == self.group || query.group == Family::new(self.group).unspecified();
        if is_mine {
            let at = now + query.response_max * self.patience / 100;
            self.answers_at = Some(self.answers_at.map_or(at, |before| before.min(at)));
        }
    }
}

proptest! {
    /// Checked at each stop: a port receives a group exactly while the model's membership lasts.
    /// In the end there is silence, and nothing is left.
    #[test]
    fn ports_receive_what_a_naive_model_says(
        events in proptest::collection::vec(events(), 0..60),
    ) {
        let (mut world, mut model) = (World::new(SMALL), Model::default());
        for event in &events {
            apply(&mut world, &mut model, event);
        }
        for id in [1, 2] {
            apply(&mut world, &mut model, &Event::Querier(id, None));
        }
        apply(&mut world, &mut model, &Event::Pass(1_000_000));
        let machine = &world.machine;
        prop_assert_eq!(machine.next_due(), None);
        prop_assert!(machine.groups.is_empty() && machine.routers.is_empty());
        prop_assert!(machine.ports.is_empty() && machine.networks.is_empty());
    }

    /// Timers, bounds and outputs agree at each step of a caller that is late for every deadline.
    #[test]
    fn a_late_caller_loses_nothing(events in proptest::collection::vec(events(), 0..60)) {
        let mut world = World::new(SMALL);
        let late = Event::Pass(1_000_000);
        for event in events.iter().chain([&late]) {
            let now = world.now;
            match event {
                Event::Hear(id, port, heard) => world.hear(*id, *port, heard),
                Event::PortGone(port) => world.machine.handle_port_gone(now, at(*port)),
                Event::VlanPorts(id, last) => {
                    let is_member = |port: Location| port <= at(*last);
                    world.machine.handle_vlan_ports(now, vlan(*id), is_member);
                }
                Event::Querier(id, address) => world.set_querier(*id, *address),
                // The next input arrives after deadlines, and before they are handled.
                Event::Pass(millis) => world.now += Duration::from_millis(*millis),
            }
            world.drain();
            prop_assert!(world.asked.len() <= 100, "no query is made up for");
            world.asked.clear();
        }
        world.machine.due(world.now);
        world.drain();
        prop_assert!(world.machine.next_due().is_none_or(|next| next > world.now));
    }

    /// While our querier asks when no other querier does, and queries reach all hosts, a host that
    /// answers them stays a member, whatever another port sends.
    #[test]
    fn no_port_ends_a_membership_of_another(
        hostile in proptest::collection::vec((messages(), 0..20_000u64), 0..60),
        patience in prop_oneof![0..101u32, Just(100)],
    ) {
        let mut world = World::new(SMALL);
        world.set_querier(1, Some(OWN));
        let mut host = Host { port: 1, group: ip("239.1.1.1"), patience, answers_at: None };
        world.hear(1, host.port, &join("239.1.1.1"));
        for (message, millis) in hostile {
            world.hear(1, 2, &message);
            if let Message::Query(query) = &message.message {
                host.hear(world.now, query);
            }
            let end = world.now + Duration::from_millis(millis);
            loop {
                for (time, _, to, query) in world.asked.drain(..) {
                    if to.is_none_or(|to| to == at(host.port)) {
                        host.hear(time, &query);
                    }
                }
                let next = [world.machine.next_due(), host.answers_at];
                let next = next.into_iter().flatten().min().filter(|next| *next < end);
                world.pass(next.unwrap_or(end) - world.now);
                let members = world.ports(1, "239.1.1.1");
                prop_assert_eq!(members.first(), Some(&host.port));
                if host.answers_at.is_some_and(|answer| answer <= world.now) {
                    host.answers_at = None;
                    world.hear(1, host.port, &join("239.1.1.1"));
                }
                if next.is_none() {
                    break;
                }
            }
        }
    }

    /// The other ports' state is the same whether or not a port has sent something, unless that
    /// port took room or became the querier.
    #[test]
    fn reports_of_a_port_concern_it_alone(
        events in proptest::collection::vec((1..5u32, messages(), 0..10_000u64), 0..40),
    ) {
        let roomy = Config {
            groups_per_port_max: 100,
            groups_per_vlan_max: 1000,
            groups_max: 1000,
            memberships_max: 1000,
            router_ports_max: 100,
            ..SMALL
        };
        let (mut with, mut without) = (World::new(roomy), World::new(roomy));
        for (port, message, millis) in events {
            let is_query = matches!(message.message, Message::Query(_));
            with.hear(1, port, &message);
            if port != 1 || is_query {
                without.hear(1, port, &message);
            }
            with.pass(Duration::from_millis(millis));
            without.pass(Duration::from_millis(millis));
            let others = |world: &World| -> Vec<(GroupKey, Location)> {
                let members = world.members.iter();
                let all = members.flat_map(|(key, ports)| ports.iter().map(|port| (*key, *port)));
                all.filter(|(_, port)| *port != at(1)).collect()
            };
            prop_assert_eq!(others(&with), others(&without));
        }
    }
}
