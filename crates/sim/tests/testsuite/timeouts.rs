//! How long entries live: leases, limits of tables, what is forbidden, and the paper's rule.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use clock::{Instant, ms};
use control::ConnectionId;
use control::controller::{
    Admission, Alarm, Controller, ControllerConfig, ControllerOutput, Event, PeerIdentity,
    TableCounters,
};
use control::edge::EdgeUpdate;
use control::entry::{Entry, EntryKey, EntryKind};
use control::session::SwitchUp;
use control::timeouts::{FirstPackets, FlowClass, HostName, Lease, Lifetime, Paper, Timeouts};
use openflow::message::{FlowRemoved, FlowRemovedReason, Role};
use openflow::packet::build::{Host as Address, ethernet, udp};
use openflow::table::{FlowEntry, Output, Switch, SwitchOptions, plain_port};
use openflow::{ErrorKind, MacAddr, Message, PortNo, TableId, Version, Xid, decode, encode};
use sim::network::{HostId, Network, NetworkConfig, SwitchId};

const VERSIONS: [Version; 2] = [Version::V13, Version::V10];

fn leases(lease_s: u16) -> Timeouts {
    Timeouts {
        default: Lifetime::Lease(Lease {
            lease_s: Some(lease_s),
            ..Lease::default()
        }),
        first_packets: FirstPackets::Controller,
        ..Timeouts::default()
    }
}

fn network(timeouts: Timeouts, version: Version, entries_max: usize) -> Network {
    let controller = ControllerConfig {
        timeouts,
        ..ControllerConfig::default()
    };
    let config = NetworkConfig {
        version,
        entries_max,
        ..controller.into()
    };
    Network::new(config, 1)
}

const ROOMY: usize = 65_536;

/// Two hosts at the first switch and one at the second, which have spoken.
struct Three {
    here: SwitchId,
    there: SwitchId,
    local: [HostId; 2],
    far: HostId,
}

fn three(network: &mut Network) -> Three {
    let (here, there) = (network.add_switch(), network.add_switch());
    network.link(here, there);
    let local = [(); 2].map(|()| network.add_host(here));
    let far = network.add_host(there);
    network.run_for(ms(2000));
    let hosts = Three {
        here,
        there,
        local,
        far,
    };
    for (a, b) in [(local[0], local[1]), (local[0], far), (local[1], far)] {
        network.ping(a, b, 1);
        network.run_for(ms(100));
        network.ping(b, a, 2);
        network.run_for(ms(100));
    }
    hosts
}

/// A switch's messages are sorted by class, so that the end of an entry can arrive after the
/// packet that missed it.
#[test]
fn the_end_of_an_earlier_entry_does_not_take_out_the_one_set_since() {
    for version in VERSIONS {
        const FLOW_MOD: u8 = 14;
        let fixed = Timeouts {
            default: Lifetime::Fixed {
                idle_s: 0,
                hard_s: 2,
            },
            first_packets: FirstPackets::Controller,
            ..Timeouts::default()
        };
        let mut network = network(fixed, version, ROOMY);
        let hosts = three(&mut network);
        let (from, to) = (hosts.local[0], hosts.far);
        let told = |network: &Network| network.heard(hosts.here, FLOW_MOD);
        let before = told(&network);
        network.run_for(ms(3000));
        assert_eq!(entry(&network, hosts.here, from, to), None);
        // The rests of the two paths from there, and not what the switch says is gone: the next
        // change would wait for that one.
        assert_eq!(told(&network), before + 2, "{version}");
        network.ping(from, to, 3);
        network.run_for(ms(100));
        let set = entry(&network, hosts.here, from, to).expect("set again");
        let late = Message::FlowRemoved(FlowRemoved {
            cookie: set.cookie,
            priority: set.priority,
            reason: FlowRemovedReason::HARD_TIMEOUT,
            table_id: TableId(0),
            duration_sec: 2,
            duration_nsec: 0,
            idle_timeout: 0,
            // 1.0 does not report it.
            hard_timeout: if version == Version::V10 { 0 } else { 2 },
            packet_count: 1,
            byte_count: 64,
            r#match: set.r#match.clone(),
            stats: Vec::new(),
        });
        let paths = |network: &mut Network| network.ask(|controller, _| controller.path_count());
        let before = paths(&mut network);
        network.say(hosts.here, Xid(0), &late);
        network.run_for(ms(500));
        assert!(entry(&network, hosts.here, from, to).is_some(), "{version}");
        assert_eq!(paths(&mut network), before, "{version}");
        // The entry's own end is reported.
        network.run_for(ms(2000));
        assert_eq!(entry(&network, hosts.here, from, to), None);
        assert_eq!(paths(&mut network), 0, "{version}");
    }
}

fn between_hosts(network: &Network, at: SwitchId) -> Vec<FlowEntry> {
    let entries = network.switch(at).entries();
    let between = entries.filter(|entry| {
        let kind = EntryKind::of(entry.cookie);
        matches!(kind, Some(EntryKind::Pair | EntryKind::Local))
    });
    between.cloned().collect()
}

fn entry(network: &Network, at: SwitchId, from: HostId, to: HostId) -> Option<FlowEntry> {
    let mac = |host| network.host(host).address.mac;
    let (src, dst) = (mac(from), mac(to));
    let is_it = |entry: &FlowEntry| {
        let key = EntryKey::from_match(entry.priority, &entry.r#match);
        key.is_some_and(|key| (key.eth_src, key.eth_dst) == (Some(src), Some(dst)))
    };
    network
        .switch(at)
        .entries()
        .find(|entry| is_it(entry))
        .cloned()
}

fn counters(network: &Network, at: usize) -> TableCounters {
    network.process().controller.switches()[at].table.counters
}

/// All packet-ins: those at the edge too.
fn packet_ins(network: &Network, hosts: &Three) -> u64 {
    let edges = [hosts.here, hosts.there].map(|at| {
        let edge = network
            .connection(at)
            .and_then(|id| network.process().edge(id));
        edge.map_or(0, |edge| edge.counters().packet_ins)
    });
    network.process().controller.counters().packet_ins + edges.iter().sum::<u64>()
}

fn arrived(network: &Network, at: HostId, first: u64, count: u64) -> u64 {
    let got = &network.host(at).datagrams;
    (first..first + count)
        .filter(|n| got.contains_key(n))
        .count() as u64
}

/// 30 s of packets over leases of 3 s, on the edge's entries and on a path, in both versions: none
/// is asked about again. When the packets end the entries lapse, though their idle timeout is 60 s.
#[test]
fn an_active_entry_never_lapses_and_an_idle_one_does() {
    for version in VERSIONS {
        let mut network = network(leases(3), version, ROOMY);
        let hosts = three(&mut network);
        let (a, b, far) = (hosts.local[0], hosts.local[1], hosts.far);
        network.stream(a, b, 0, 10, ms(100));
        network.stream(a, far, 0, 10, ms(100));
        network.run_for(ms(1000));
        let before = counters(&network, 0);
        let asked = packet_ins(&network, &hosts);
        let lldp = network.process().controller.counters().lldp_accepted;
        network.stream(a, b, 1000, 300, ms(100));
        network.stream(a, far, 2000, 300, ms(100));
        network.run_for(ms(29_900));
        let heard = network.process().controller.counters().lldp_accepted - lldp;
        let missed = packet_ins(&network, &hosts) - asked - heard;
        assert_eq!(missed, 0, "{version:?}: an active flow was asked about");
        assert!(entry(&network, hosts.here, a, b).is_some_and(|e| e.hard_timeout == 3));
        assert!(entry(&network, hosts.here, a, far).is_some_and(|e| e.hard_timeout == 3));
        let renewals = counters(&network, 0).renewals - before.renewals;
        // Two flows, renewed every 2 s, or sooner by a reading.
        assert!(
            (20..=60).contains(&renewals),
            "{version:?}: {renewals} renewals"
        );
        network.run_for(ms(8000));
        assert_eq!(arrived(&network, b, 1000, 300), 300, "{version:?}");
        assert_eq!(arrived(&network, far, 2000, 300), 300, "{version:?}");
        assert_eq!(between_hosts(&network, hosts.here), [], "{version:?}");
        assert_eq!(network.errors().count(), 0, "{version:?}");
    }
}

/// A controller that takes over renews the entries of the one before, also those of its edges.
#[test]
fn a_new_controller_goes_on_renewing() {
    let mut network = network(leases(3), Version::V13, ROOMY);
    let hosts = three(&mut network);
    let (a, b, far) = (hosts.local[0], hosts.local[1], hosts.far);
    network.stream(a, b, 1000, 200, ms(100));
    network.stream(a, far, 2000, 200, ms(100));
    network.run_for(ms(5000));
    network.kill_controller();
    network.start_controller(7);
    network.run_for(ms(15_000));
    assert_eq!(arrived(&network, b, 1000, 200), 200);
    assert_eq!(arrived(&network, far, 2000, 200), 200);
    assert!(counters(&network, 0).renewals > 8);
}

fn class(name: &str, src: HostName, dst: HostName) -> FlowClass {
    FlowClass {
        name: name.to_owned(),
        src: Some(src),
        dst: Some(dst),
        service: None,
        lifetime: None,
        first_packets: None,
        forbid: false,
        priority: false,
    }
}

fn ip(network: &Network, host: HostId) -> HostName {
    HostName::Ip(network.host(host).address.ip.into())
}

/// Reading an unchanged file again changes nothing, so nothing is sent. Reading one with a new
/// class does.
#[test]
fn the_same_timeouts_again_send_nothing() {
    const FLOW_MOD: u8 = 14;
    const BARRIER_REQUEST: u8 = 20;
    let mut network = network(leases(10), Version::V13, ROOMY);
    let hosts = three(&mut network);
    let (a, far) = (hosts.local[0], hosts.far);
    network.stream(a, far, 1000, 20, ms(10));
    network.run_for(ms(1000));
    let mut barring = class("none", ip(&network, a), ip(&network, far));
    barring.forbid = true;
    let barring = Timeouts {
        classes: vec![barring],
        ..leases(10)
    };
    let told = |network: &Network| -> u64 {
        let kinds = [FLOW_MOD, BARRIER_REQUEST];
        let of = |id| {
            kinds
                .map(|kind| network.heard(id, kind))
                .iter()
                .sum::<u64>()
        };
        of(hosts.here) + of(hosts.there)
    };
    let again = |network: &mut Network| {
        let before = told(network);
        network.set_timeouts(barring.clone());
        network.run_for(ms(1000));
        told(network) - before
    };
    assert!(again(&mut network) > 0);
    assert_eq!(again(&mut network), 0);
}

/// While packets flow, one pair of a switch and one of two switches are forbidden. Their packets
/// stop at once, and all other packets arrive. Then the pairs are allowed again.
#[test]
fn what_is_forbidden_ends_at_once_and_may_be_allowed_again() {
    for version in VERSIONS {
        let mut network = network(leases(10), version, ROOMY);
        let hosts = three(&mut network);
        let (a, b, far) = (hosts.local[0], hosts.local[1], hosts.far);
        network.stream(a, b, 10_000, 600, ms(10));
        network.stream(a, far, 20_000, 600, ms(10));
        network.stream(b, far, 30_000, 600, ms(10));
        network.run_for(ms(2000));
        let forbidden = [(a, b), (a, far)].map(|(from, to)| {
            let mut class = class("none", ip(&network, from), ip(&network, to));
            class.name = format!("{} to {}", from.0, to.0);
            class.forbid = true;
            class
        });
        let barring = Timeouts {
            classes: forbidden.to_vec(),
            ..leases(10)
        };
        network.tell_controller(|controller, now| controller.set_timeouts(now, barring));
        network.run_for(ms(2000));
        network.tell_controller(|controller, now| controller.set_timeouts(now, leases(10)));
        network.run_for(ms(3000));
        let counts = [(b, 10_000), (far, 20_000)].map(|(at, first)| {
            let before = arrived(&network, at, first, 200);
            let meanwhile = arrived(&network, at, first + 202, 198);
            (before, meanwhile, arrived(&network, at, first + 400, 200))
        });
        for (before, meanwhile, after) in counts {
            assert_eq!((before, meanwhile), (200, 0), "{version:?}");
            assert!(
                after >= 195,
                "{version:?}: {after} of 200 once allowed again"
            );
        }
        assert_eq!(
            arrived(&network, far, 30_000, 600),
            600,
            "{version:?}: a third pair"
        );
        let dropped = network.process().controller.counters().packets_forbidden;
        assert!(dropped >= 2, "{version:?}");
        let barred = network.switch(hosts.here).entries();
        let barred = barred.filter(|e| EntryKind::of(e.cookie) == Some(EntryKind::Barred));
        assert_eq!(barred.count(), 0, "{version:?}");
    }
}

/// A network is forbidden in which one host has an address from the beginning, and another
/// announces one while it sends. The traffic of each ends as soon as its address is known. A host
/// beside them goes on.
#[test]
fn a_forbidden_network_is_every_host_with_an_address_in_it() {
    let mut network = network(leases(10), Version::V13, ROOMY);
    let hosts = three(&mut network);
    let (a, b, far) = (hosts.local[0], hosts.local[1], hosts.far);
    let mut barred = class("barred", ip(&network, a), ip(&network, far));
    let HostName::Ip(first) = ip(&network, a) else {
        panic!("by its address");
    };
    barred.src = Some(format!("{first}/32").parse().unwrap());
    barred.forbid = true;
    let mut late = barred.clone();
    late.name = "late".to_owned();
    late.src = Some("2001:db8::/64".parse().unwrap());
    let mut other = class("other", ip(&network, b), ip(&network, far));
    other.priority = true;
    let barring = Timeouts {
        classes: vec![barred, late, other],
        ..leases(10)
    };
    network.stream(a, far, 0, 200, ms(10));
    network.stream(b, far, 1000, 400, ms(10));
    network.stream(far, a, 2000, 400, ms(10));
    network.run_for(ms(1000));
    network.tell_controller(|controller, now| controller.set_timeouts(now, barring));
    network.run_for(ms(1000));
    assert_eq!(arrived(&network, far, 0, 100), 100);
    assert_eq!(arrived(&network, far, 102, 98), 0, "of the network");
    assert_eq!(arrived(&network, far, 1000, 200), 200, "not of it yet");
    let mac = network.host(b).address.mac;
    network.inject(b, solicitation(mac, "2001:db8::b".parse().unwrap()));
    network.run_for(ms(3000));
    assert_eq!(
        arrived(&network, far, 1202, 198),
        0,
        "of it since it has told"
    );
    assert_eq!(arrived(&network, a, 2000, 400), 400, "the other direction");
}

/// A neighbour solicitation from this host to a multicast group, for an address that no host has.
fn solicitation(mac: MacAddr, ip: Ipv6Addr) -> Vec<u8> {
    let group = MacAddr([0x33, 0x33, 0xff, 0, 0, 9]);
    let to: Ipv6Addr = "ff02::1:ff00:9".parse().unwrap();
    let asked: Ipv6Addr = "2001:db8::9".parse().unwrap();
    let header = [0x60, 0, 0, 0, 0, 32, 58, 255];
    let icmp = [135, 0, 0, 0, 0, 0, 0, 0];
    let option = [1, 1];
    let parts: [&[u8]; 7] = [
        &header,
        &ip.octets(),
        &to.octets(),
        &icmp,
        &asked.octets(),
        &option,
        &mac.0,
    ];
    ethernet(mac, group, 0x86dd, &parts.concat())
}

/// All packets of a forbidden pair are counted: the first by the controller, the rest by the entry
/// that drops them.
#[test]
fn forbidden_packets_are_counted() {
    for version in VERSIONS {
        let mut network = network(leases(10), version, ROOMY);
        let hosts = three(&mut network);
        let (a, far) = (hosts.local[0], hosts.far);
        let mut barred = class("barred", ip(&network, a), ip(&network, far));
        barred.forbid = true;
        let barring = Timeouts {
            classes: vec![barred],
            ..leases(10)
        };
        network.tell_controller(|controller, now| controller.set_timeouts(now, barring));
        network.run_for(ms(1000));
        network.stream(a, far, 0, 500, ms(2));
        network.run_for(ms(20_000));
        assert_eq!(arrived(&network, far, 0, 500), 0, "{version:?}");
        let dropped = network.process().controller.counters().packets_forbidden;
        assert_eq!(dropped, 500, "{version:?}");
    }
}

/// Room for forty entries, and 12 hosts of which each sends to six at the other switch: 72 entries.
/// `limit` is the administrator's limit.
fn crowded(version: Version, limit: Option<u32>) -> (Network, SwitchId) {
    let timeouts = Timeouts {
        table_entries_max: limit,
        first_packets: FirstPackets::Controller,
        ..Timeouts::fixed(60, 0)
    };
    let mut network = network(timeouts, version, 40);
    let (at, other) = (network.add_switch(), network.add_switch());
    network.link(at, other);
    let hosts: Vec<HostId> = (0..12)
        .map(|n| network.add_host(if n % 2 == 0 { at } else { other }))
        .collect();
    network.run_for(ms(2000));
    let mut number = 0;
    for round in 0..6 {
        for (at, from) in hosts.iter().enumerate() {
            let to = hosts[(at + 2 * round + 1) % hosts.len()];
            network.stream(*from, to, number, 5, ms(20));
            number += 10;
        }
        network.run_for(ms(2000));
    }
    let expected: usize = hosts.len() * 6 * 5;
    let got: usize = hosts.iter().map(|h| network.host(*h).datagrams.len()).sum();
    assert_eq!(
        got, expected,
        "{version:?}, limit {limit:?}: nothing is lost"
    );
    (network, at)
}

#[test]
fn a_table_that_is_full_is_made_room_in_and_nothing_is_lost() {
    for version in VERSIONS {
        let (network, at) = crowded(version, None);
        let refused = network
            .errors()
            .filter(|e| *e == ErrorKind::FLOW_MOD_TABLE_FULL);
        let refused = refused.count() as u64;
        assert!(refused > 0, "{version:?}: the table was never full");
        let told = [0, 1].map(|at| counters(&network, at));
        assert_eq!(told.map(|t| t.table_full).iter().sum::<u64>(), refused);
        assert!(
            told.iter().any(|t| t.evictions > 0),
            "{version:?}: {told:?}"
        );
        let is_full = |event: &&Event| matches!(event, Event::Alarm(Alarm::FlowTableFull { .. }));
        assert!(network.events().any(|event| is_full(&event)));
        // The limit is learnt: in the end there is room.
        let view = &network.process().controller.switches()[0].table;
        assert!(
            view.limit.is_some_and(|limit| (38..=40).contains(&limit)),
            "{view:?}"
        );
        assert!(network.switch(at).entries().count() <= 40);
    }
}

/// An entry that the full table refused is set after all, once others are silent.
#[test]
fn a_refused_entry_is_sent_again() {
    let timeouts = Timeouts {
        first_packets: FirstPackets::Controller,
        ..Timeouts::fixed(60, 0)
    };
    let mut network = network(timeouts, Version::V13, 12);
    let (at, other) = (network.add_switch(), network.add_switch());
    network.link(at, other);
    let hosts: Vec<HostId> = (0..8)
        .map(|n| network.add_host(if n % 2 == 0 { at } else { other }))
        .collect();
    network.run_for(ms(2000));
    for pair in [[0, 1], [2, 3], [4, 5]] {
        let [a, b] = pair.map(|at| hosts[at]);
        network.ping(a, b, 1);
        network.run_for(ms(500));
        network.ping(b, a, 2);
        network.run_for(ms(1000));
    }
    // Two infrastructure entries, six of paths, and as many of others as there is room for.
    let free = 12 - network.switch(at).entries().count();
    for n in 0..free as u64 {
        let m = openflow::Match::any().with_eth_src(MacAddr::from_u64(0xff00 + n));
        let add = openflow::message::FlowMod::add(7, m, Vec::new());
        network.apply(at, &Message::FlowMod(add));
    }
    network.run_for(ms(2000));
    let (a, b) = (hosts[6], hosts[7]);
    // One packet alone. The entry for the answer to its address resolution is refused, and no other
    // packet asks for that entry again.
    network.stream(a, b, 0, 1, ms(20));
    network.run_for(ms(2500));
    assert!(
        network
            .errors()
            .any(|e| e == ErrorKind::FLOW_MOD_TABLE_FULL)
    );
    assert_eq!(arrived(&network, b, 0, 1), 1);
    assert!(
        entry(&network, at, b, a).is_some(),
        "its entry came in the end"
    );
    let others = network.switch(at).entries().filter(|e| e.priority == 7);
    assert_eq!(others.count(), free, "others' entries stay");
}

#[test]
fn where_the_limit_is_known_no_switch_has_to_refuse() {
    for version in VERSIONS {
        let (network, _) = crowded(version, Some(40));
        assert_eq!(network.errors().count(), 0, "{version:?}");
        let told = [0, 1].map(|at| counters(&network, at));
        assert!(
            told.iter().all(|t| t.table_full == 0) && told[0].evictions > 0,
            "{told:?}"
        );
    }
}

/// Hard timeout of the ingress of a path, and idle timeout of its end.
fn paper_timeouts(percent: f64, priority_is_other: bool) -> (u16, u16, u16) {
    let timeouts = Timeouts {
        default: Lifetime::Paper(Paper::default()),
        first_packets: FirstPackets::Controller,
        ..Timeouts::default()
    };
    let mut network = network(timeouts.clone(), Version::V13, ROOMY);
    let hosts = three(&mut network);
    let (a, b, far) = (hosts.local[0], hosts.local[1], hosts.far);
    network.run_for(ms(5000));
    if priority_is_other {
        let mut other = class("other", ip(&network, far), ip(&network, a));
        other.priority = true;
        let timeouts = Timeouts {
            classes: vec![other],
            ..timeouts
        };
        network.tell_controller(|controller, now| controller.set_timeouts(now, timeouts));
    }
    network.tell_controller(|controller, now| controller.handle_load(now, percent));
    network.stream(a, far, 0, 10, ms(10));
    network.stream(a, b, 0, 10, ms(10));
    network.run_for(ms(200));
    let first = entry(&network, hosts.here, a, far).expect("a path");
    let last = entry(&network, hosts.there, a, far).expect("its end");
    let local = entry(&network, hosts.here, a, b).expect("by the edge");
    assert_eq!((first.idle_timeout, last.hard_timeout), (0, 0));
    (first.hard_timeout, last.idle_timeout, local.hard_timeout)
}

#[test]
fn the_papers_rule_raises_the_ingress_above_75_percent() {
    assert_eq!(paper_timeouts(75.0, false), (1, 1, 1));
    assert_eq!(paper_timeouts(76.0, false), (2, 1, 2));
    assert_eq!(
        paper_timeouts(76.0, true),
        (1, 1, 1),
        "of priority flows alone"
    );
}

/// The paper's objection: under its rule a flow is interrupted every second.
#[test]
fn under_the_papers_rule_entries_lapse_while_packets_come() {
    let timeouts = Timeouts {
        default: Lifetime::Paper(Paper::default()),
        first_packets: FirstPackets::Controller,
        ..Timeouts::default()
    };
    let mut network = network(timeouts, Version::V13, ROOMY);
    let hosts = three(&mut network);
    let (a, far) = (hosts.local[0], hosts.far);
    let before = counters(&network, 0).misses;
    network.stream(a, far, 0, 100, ms(100));
    network.run_for(ms(10_000));
    let misses = counters(&network, 0).misses - before;
    assert!((7..=11).contains(&misses), "{misses} in 10 s");
    assert_eq!(arrived(&network, far, 0, 100), 100);
}

/// A controller and one switch with nothing between them, so that 50,000 flows are affordable.
struct Bench {
    controller: Controller,
    switch: Switch,
    now: Instant,
    told: (u16, u16),
    /// Entries that the controller has set again, by second.
    renewed: BTreeMap<u64, u32>,
}

const SWITCH: ConnectionId = ConnectionId(1);
const IN: PortNo = PortNo(1);
const OUT: PortNo = PortNo(2);

impl Bench {
    fn new(timeouts: Timeouts) -> Bench {
        let config = ControllerConfig {
            timeouts,
            ..ControllerConfig::default()
        };
        let options = SwitchOptions {
            n_tables: 1,
            // More than a switch is believed to have: no limit is known.
            entries_max: 2_000_000,
            ..SwitchOptions::default()
        };
        let mut switch = Switch::new(options);
        for port in [IN, OUT] {
            let _ = switch.set_port(Instant::START, plain_port(port));
        }
        let mut bench = Bench {
            controller: Controller::new(config, [3; 32]),
            switch,
            now: Instant::START,
            told: (0, 0),
            renewed: BTreeMap::new(),
        };
        let up = SwitchUp {
            version: Version::V13,
            features: bench.switch.features(),
            ports: bench.switch.ports().cloned().collect(),
            description: None,
            role: Role::Equal,
        };
        let peer = PeerIdentity::default();
        let admitted = bench.controller.handle_up(bench.now, SWITCH, up, peer);
        assert_eq!(admitted, Admission::Admitted);
        bench.drain();
        bench
    }

    fn drain(&mut self) {
        while let Some(output) = self.controller.poll_output() {
            match output {
                ControllerOutput::Send { frame, .. } => {
                    let message = decode(&frame).expect("what it sends can be read");
                    if let Message::PacketOut(_) = message {
                        continue;
                    }
                    if let Message::FlowMod(m) = &message
                        && m.hard_timeout > 0
                    {
                        let second = self.now.as_nanos() / 1_000_000_000;
                        *self.renewed.entry(second).or_default() += 1;
                    }
                    let answers = self.switch.apply(self.now, &message).expect("taken");
                    for answer in answers {
                        let frame = encode(Version::V13, frame.xid(), &answer).unwrap();
                        self.controller.handle_frame(self.now, SWITCH, frame);
                    }
                }
                ControllerOutput::Edge {
                    update: EdgeUpdate::Timeouts { idle_s, hard_s },
                    ..
                } => self.told = (idle_s, hard_s),
                ControllerOutput::Edge {
                    update: EdgeUpdate::Start(config),
                    ..
                } => self.told = (config.idle_timeout_s, config.hard_timeout_s),
                _ => {}
            }
        }
    }

    fn run_until(&mut self, end: Instant) {
        while let Some((due, _)) = self
            .controller
            .poll_timeout()
            .filter(|(due, _)| *due <= end)
        {
            self.now = self.now.max(due);
            let _ = self.switch.handle_timeout(self.now);
            self.controller.handle_timeout(self.now);
            self.drain();
        }
        self.now = end;
        let _ = self.switch.handle_timeout(self.now);
    }

    /// Sets an entry like an edge.
    fn set(&mut self, flow: u32) {
        let (src, dst) = (host(flow).mac, host(u32::MAX).mac);
        let entry = Entry {
            key: EntryKey::pair(IN, src, dst),
            kind: EntryKind::Local,
            out: OUT,
            idle_timeout_s: self.told.0,
            hard_timeout_s: self.told.1,
            notify: false,
        };
        let add = Message::FlowMod(entry.to_add(0));
        self.switch.apply(self.now, &add).expect("there is room");
    }

    /// Whether the packet found its entry.
    fn send(&mut self, flow: u32) -> bool {
        let frame = udp(host(flow), host(u32::MAX), (1, 2), &[]);
        let outputs = self.switch.process(self.now, IN, &frame);
        outputs
            .iter()
            .all(|output| matches!(output, Output::Port { .. }))
    }
}

fn host(n: u32) -> Address {
    let [a, b, c, d] = n.to_be_bytes();
    Address::new(MacAddr([2, 0, a, b, c, d]), Ipv4Addr::new(10, b, c, d))
}

/// 2,000 new flows a second until there are 50,000, each of which sends every 3 s: no more than
/// the 1,000 renewals a second that are allowed, and a twentieth at once, and no flow is cut off.
#[test]
fn renewals_are_bounded_and_cut_off_no_flow_of_fifty_thousand() {
    const FLOWS: u32 = 50_000;
    const PER_TICK: u32 = 200;
    let mut bench = Bench::new(leases(10));
    let tick = ms(100);
    let mut end = Instant::START + ms(2000);
    bench.run_until(end);
    let mut cut_off = 0;
    for at in 0..800_u32 {
        end += tick;
        bench.run_until(end);
        let there = (at * PER_TICK).min(FLOWS);
        // Each thirtieth tick is one flow's turn.
        for flow in (at % 30..there).step_by(30) {
            cut_off += u32::from(!bench.send(flow));
        }
        for flow in there..((at + 1) * PER_TICK).min(FLOWS) {
            bench.set(flow);
        }
    }
    assert_eq!(cut_off, 0, "packets that found no entry");
    let most = bench.renewed.values().max().copied().unwrap_or(0);
    assert!(most <= 1050, "{most} renewals in one second");
    let total: u32 = bench.renewed.values().sum();
    assert!(total > 40_000, "{total} renewals in all");
    let last: Vec<u32> = bench.renewed.values().rev().take(30).copied().collect();
    let mean = last.iter().sum::<u32>() / 30;
    assert!(
        (400..=1000).contains(&mean),
        "{mean} renewals a second in the end"
    );
    // The lease is doubled until two thirds of it have room for all: 80 s.
    assert_eq!(bench.told.1, 80);
    let leased = bench.controller.timeouts_view().leases;
    assert_eq!(leased, FLOWS as usize);
}
