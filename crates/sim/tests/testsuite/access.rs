//! Access lists, bindings and guards on whole networks: they hold whatever happens to links and
//! controllers, a change costs what it changes, and nothing else is disturbed.

mod routed;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clock::ms;
use control::access::{Access, Acl, Binding, Rule};
use control::bond::{Bonds, Bpdu};
use control::controller::{Alarm, ControllerConfig, Event, FabricConfig, Location};
use control::entry::EntryKind;
use control::qos::flow::Matching;
use control::vlan::{PortVlans, VlanId, Vlans};
use openflow::message::{
    ErrorMessage, FlowMod, FlowModCommand, FlowModFlags, PacketIn, PacketInReason,
};
use openflow::packet::build::{self, Host as Address};
use openflow::packet::dhcp;
use openflow::table::FlowEntry;
use openflow::text::parse_match;
use openflow::{
    Cookie, DatapathId, ErrorKind, Field, Instruction, MacAddr, Match, Message, TableId, Version,
    Xid, encode,
};
use sim::network::{HostId, Network};
use sim::topology::{self, Topology};

const FLOW_MOD: u8 = 14;

/// An EtherType for experiments (IEEE 802, 9.2.3).
const MARKED: u16 = 0x88b5;

fn rule(text: &str, allows: bool) -> Rule {
    let matching = parse_match(text).expect("a match");
    Rule {
        name: String::new(),
        matching: Matching::from_match(&matching).expect("a match of packets"),
        allows,
        mirror: None,
    }
}

fn acl(rules: &[(&str, bool)]) -> Acl {
    Acl {
        name: "list".to_owned(),
        rules: rules
            .iter()
            .map(|(text, allows)| rule(text, *allows))
            .collect(),
    }
}

/// One list at the ports of some hosts.
fn at_ports(network: &Network, hosts: &[HostId], acl: Acl) -> Access {
    let ports = hosts.iter().map(|host| (network.place(*host), vec![0]));
    Access {
        ports: ports.collect(),
        acls: vec![acl],
        ..Access::default()
    }
}

fn network(
    seed: u64,
    by_fabric: bool,
    build: impl FnOnce(&mut Network) -> Topology,
) -> (Network, Topology) {
    let controller = ControllerConfig {
        fabric: by_fabric.then(FabricConfig::default),
        ..ControllerConfig::default()
    };
    let mut network = Network::new(controller.into(), seed);
    let topology = build(&mut network);
    network.run_for(ms(2000));
    topology.introduce(&mut network);
    network.run_for(ms(500));
    (network, topology)
}

/// Whether a ping is answered.
fn pings(network: &mut Network, from: HostId, to: HostId, seq: u16) -> bool {
    network.ping(from, to, seq);
    network.run_for(ms(200));
    let ip = network.host(to).address.ip;
    network.host(from).pongs.contains_key(&(ip, seq))
}

/// The first list of a network is added and the last is removed, with and without mirrors, under
/// streams of all pairs and broadcasts. Nothing is lost, reordered or received twice, and no switch
/// reconnects.
#[test]
fn the_first_list_and_the_last_disturb_nobody() {
    let (mut network, topology) = network(31, true, |network| topology::ring(network, 5));
    let hosts = topology.hosts.clone();
    for (n, switch) in topology.switches.iter().enumerate() {
        network.set_away(*switch, ms(5 * (n as u64 % 3)));
    }
    for host in &hosts {
        network.host_mut(*host).record = true;
    }
    network.run_for(ms(3000));
    assert!(topology.silent_pairs(&mut network, 1).is_empty());
    network.run_for(ms(3000));
    let ip = network.host(hosts[2]).address.ip;
    let list = at_ports(&network, &hosts[..2], no_ping_to(ip));
    let guard = Access {
        dhcp_servers: Some(BTreeSet::new()),
        ..Access::default()
    };
    let none = Access::default();
    let steps = [
        (&list, "the first list"),
        (&none, "the last list"),
        (&guard, "the first guard"),
        (&none, "the last guard"),
        (&list, "a list again"),
    ];
    let marked = |number: u64| [&number.to_be_bytes()[..], &[0; 38]].concat();
    for (step, (access, when)) in (1u64..).zip(steps) {
        let first = step * 1_000_000;
        let pairs = hosts
            .iter()
            .flat_map(|a| hosts.iter().map(move |b| (*a, *b)));
        let pairs: Vec<_> = pairs.filter(|(a, b)| a != b).collect();
        for (n, (from, to)) in (0u64..).zip(&pairs) {
            network.stream(*from, *to, first + n * 1000, 400, ms(1));
        }
        for n in 0..200u64 {
            if n == 50 {
                network.set_access(access.clone()).expect("all can");
            }
            let from = hosts[n as usize % hosts.len()];
            let mac = network.host(from).address.mac;
            let frame = build::ethernet(mac, MacAddr::BROADCAST, MARKED, &marked(first + n));
            network.inject(from, frame);
            network.run_for(ms(2));
        }
        network.run_for(ms(500));
        for (n, (_, to)) in (0u64..).zip(&pairs) {
            let got = &network.host(*to).datagrams;
            let numbers = first + n * 1000..first + n * 1000 + 400;
            assert_eq!(
                numbers.filter(|n| got.get(n) == Some(&1)).count(),
                400,
                "{when}"
            );
        }
        for (n, host) in hosts.iter().enumerate() {
            let heard = |number: u64| {
                let payload = marked(first + number);
                let recorded = &network.host(*host).recorded;
                recorded
                    .iter()
                    .filter(|f| f.get(14..60) == Some(&payload))
                    .count()
            };
            for number in 0..200 {
                let wanted = usize::from(number as usize % hosts.len() != n);
                assert_eq!(
                    heard(number),
                    wanted,
                    "{when}: broadcast {number} at host {n}"
                );
            }
        }
        let is_listed = !access.ports.is_empty();
        let seq = 100 + step as u16;
        assert_eq!(
            pings(&mut network, hosts[0], hosts[2], seq),
            !is_listed,
            "{when}"
        );
        assert!(pings(&mut network, hosts[0], hosts[1], seq), "{when}");
    }
    let is_down = |event: &&Event| matches!(event, Event::SwitchDown { .. });
    assert_eq!(network.events().find(is_down), None);
}

/// The entries that all packets take are set again when somebody else deletes them.
#[test]
fn the_way_to_the_paths_is_set_again() {
    let (mut network, topology) = network(32, true, |network| topology::line(network, 2));
    let hosts = topology.hosts.clone();
    assert!(pings(&mut network, hosts[0], hosts[1], 1));
    for table in [0, 1] {
        let deletion = FlowMod {
            command: FlowModCommand::Delete,
            table_id: TableId(table),
            ..FlowMod::add(0, Match::any(), Vec::new())
        };
        network.apply(topology.switches[0], &Message::FlowMod(deletion));
        network.run_for(ms(100));
        assert!(
            pings(&mut network, hosts[0], hosts[1], 2 + u16::from(table)),
            "{table}"
        );
    }
}

/// Entries of an earlier version whose end no switch reports are set again once. From then on,
/// their deletion by somebody else is reported.
#[test]
fn the_way_of_an_earlier_version_is_set_anew_once() {
    let (mut network, topology) = network(33, true, |network| topology::line(network, 2));
    let hosts = topology.hosts.clone();
    let switch = topology.switches[0];
    network.kill_controller();
    let way = |network: &Network, table| -> FlowEntry {
        let mut entries = network.switch(switch).entries();
        let way = entries.find(|entry| (entry.table_id.0, entry.priority) == (table, 0));
        way.expect("a way").clone()
    };
    for table in [0, 1] {
        let held = way(&network, table);
        let earlier = FlowMod {
            table_id: held.table_id,
            cookie: held.cookie,
            instructions: held.instructions.clone(),
            ..FlowMod::add(0, Match::any(), Vec::new())
        };
        network.apply(switch, &Message::FlowMod(earlier));
        assert!(way(&network, table).flags.is_empty());
    }
    network.run_for(ms(500));
    for (round, wanted) in [(0, 2), (1, 0)] {
        let before = network.heard(switch, FLOW_MOD);
        network.start_controller(10 + round);
        network.run_for(ms(6000));
        assert_eq!(network.heard(switch, FLOW_MOD) - before, wanted);
        assert!(pings(&mut network, hosts[0], hosts[1], 1 + round as u16));
        let is_heard_of = |table| {
            let flags = way(&network, table).flags;
            flags.contains(FlowModFlags::SEND_FLOW_REM)
        };
        assert!(is_heard_of(0) && is_heard_of(1));
        network.kill_controller();
        network.run_for(ms(500));
    }
}

/// Foreign entries in the first table take packets before all tables of the fabric. They are
/// reported once a connection, unless they lead on.
#[test]
fn entries_of_others_before_the_way_are_named() {
    let (mut network, topology) = network(34, true, |network| topology::line(network, 2));
    network.kill_controller();
    let entry = |priority, eth_type: u16, instructions| FlowMod {
        cookie: Cookie(0xdead + u64::from(priority)),
        instructions,
        ..FlowMod::add(
            priority,
            Match::any().with(Field::EthType, eth_type),
            Vec::new(),
        )
    };
    let leading_on = vec![Instruction::GotoTable(TableId(1))];
    let all = [
        (0, entry(9, 0x1234, Vec::new())),
        (0, entry(70, 0x1235, Vec::new())),
        (0, entry(80, 0x1236, leading_on.clone())),
        (1, entry(90, 0x1234, leading_on)),
    ];
    for (n, entry) in all {
        network.apply(topology.switches[n], &Message::FlowMod(entry));
    }
    network.start_controller(10);
    network.run_for(ms(6000));
    let alarms = |network: &Network| -> Vec<Event> {
        let is_it = |e: &&Event| matches!(e, Event::Alarm(Alarm::ForeignEntries { .. }));
        network.events().filter(is_it).cloned().collect()
    };
    let named = Event::Alarm(Alarm::ForeignEntries {
        dpid: DatapathId(1),
        count: 2,
        cookie: Cookie(0xdead + 70),
        priority: 70,
    });
    assert_eq!(alarms(&network), std::slice::from_ref(&named));
    // Not again when the connection is lost and returns.
    network.disconnect(topology.switches[0]);
    network.run_for(ms(6000));
    assert_eq!(alarms(&network), [named]);
}

/// A list that lets everything pass but pings to one address.
/// A switch that refuses the way through tables that nothing needs connects again without them.
#[test]
fn a_switch_that_refuses_the_way_goes_on_without_it() {
    let (mut network, topology) = network(9, true, |network| topology::line(network, 2));
    let switch = topology.switches[0];
    for round in 0..3 {
        let entries = network.switch(switch).entries();
        let ways = entries.filter(|entry| EntryKind::of(entry.cookie) == Some(EntryKind::Access));
        let ways: Vec<_> = ways.map(|way| (way.table_id, way.cookie)).collect();
        assert_eq!(ways.len(), if round == 0 { 2 } else { 0 });
        for (table_id, cookie) in ways {
            let add = FlowMod {
                table_id,
                cookie,
                ..FlowMod::add(0, Match::any(), Vec::new())
            };
            // Without instructions the entry drops packets.
            network.apply(switch, &Message::FlowMod(add.clone()));
            let frame = encode(Version::V13, Xid(9), &Message::FlowMod(add)).unwrap();
            let error = ErrorMessage::new(ErrorKind::FLOW_MOD_TABLE_FULL, frame.bytes().clone());
            network.say(switch, Xid(9), &Message::Error(error));
        }
        network.run_for(ms(3000));
    }
    topology.introduce(&mut network);
    network.run_for(ms(500));
    assert_eq!(topology.silent_pairs(&mut network, 7), []);
}

fn no_ping_to(ip: Ipv4Addr) -> Acl {
    acl(&[
        (&format!("icmp,icmp_type=8,nw_dst={ip}"), false),
        ("", true),
    ])
}

#[test]
fn a_list_holds_through_failures_restarts_and_reloads() {
    for by_fabric in [true, false] {
        let (mut network, topology) = network(1, by_fabric, |network| topology::ring(network, 4));
        let hosts = topology.hosts.clone();
        let ip = network.host(hosts[2]).address.ip;
        let access = at_ports(&network, &hosts[..1], no_ping_to(ip));
        network.set_access(access.clone()).expect("all can");
        network.run_for(ms(4000));
        let mut seq = 0;
        let mut check = |network: &mut Network, may: bool, when: &str| {
            seq += 1;
            for (n, from) in hosts.iter().enumerate() {
                for (m, to) in hosts.iter().enumerate().filter(|(m, _)| *m != n) {
                    let wanted = may || ![(0, 2)].contains(&(n, m));
                    let found = pings(network, *from, *to, seq);
                    assert_eq!(found, wanted, "fabric {by_fabric}, {when}: {n} to {m}");
                }
            }
        };
        check(&mut network, false, "at first");
        network.set_link(topology.links[0], false);
        network.run_for(ms(500));
        check(&mut network, false, "after a failure");
        network.set_link(topology.links[0], true);
        network.kill_controller();
        network.run_for(ms(500));
        network.start_controller(9);
        network.run_for(ms(4000));
        check(&mut network, false, "after a restart");
        let other = at_ports(&network, &hosts[..1], no_ping_to(Ipv4Addr::LOCALHOST));
        network.set_access(other).expect("all can");
        network.run_for(ms(50));
        check(&mut network, true, "after a reload");
        network.set_access(access).expect("all can");
        network.run_for(ms(50));
        check(&mut network, false, "after another");
        network.set_access(Access::default()).expect("all can");
        network.run_for(ms(4000));
        check(&mut network, true, "without lists");
        assert_eq!(network.errors().count(), 0);
    }
}

/// One rule that changes costs one entry set and one deleted, at the switch that it concerns.
#[test]
fn a_reload_of_one_rule_is_two_messages_and_no_packet_lost() {
    let (mut network, topology) = network(2, true, |network| topology::ring(network, 4));
    let hosts = topology.hosts.clone();
    let rules = |changed: u16| {
        let mut rules = vec![rule(&format!("tcp,tp_dst={changed}"), false)];
        rules.extend((1000..1200).map(|port| rule(&format!("tcp,tp_dst={port}"), false)));
        rules.push(rule("", true));
        Acl {
            name: "list".to_owned(),
            rules,
        }
    };
    let access = at_ports(&network, &hosts[..1], rules(7));
    network.set_access(access).expect("all can");
    network.run_for(ms(4000));
    assert!(pings(&mut network, hosts[0], hosts[2], 1));
    let sent = |network: &Network| -> Vec<u64> {
        let switches = topology.switches.iter();
        switches
            .map(|switch| network.heard(*switch, FLOW_MOD))
            .collect()
    };
    network.stream(hosts[0], hosts[2], 0, 1000, ms(1));
    network.stream(hosts[1], hosts[3], 1 << 32, 1000, ms(1));
    network.run_for(ms(500));
    let before = sent(&network);
    let access = at_ports(&network, &hosts[..1], rules(8));
    network.set_access(access).expect("all can");
    network.run_for(ms(1000));
    let after = sent(&network);
    let more: Vec<u64> = before.iter().zip(&after).map(|(a, b)| b - a).collect();
    assert_eq!(more, [2, 0, 0, 0]);
    for (host, first) in [(2, 0), (3, 1u64 << 32)] {
        let got = &network.host(hosts[host]).datagrams;
        let whole = (first..first + 1000).all(|n| got.get(&n) == Some(&1));
        assert!(whole, "host {host}: {}", got.len());
    }
}

/// Open vSwitch reads the ports of a first fragment while access is decided, so that fragments do
/// not evade a rule that drops a port. Other switches have no such mode.
#[test]
fn a_rule_holds_for_the_first_fragment_on_open_vswitch() {
    let controller = ControllerConfig {
        fabric: Some(FabricConfig::default()),
        ..ControllerConfig::default()
    };
    let mut network = Network::new(controller.into(), 4);
    let switches = [(1, "Open vSwitch"), (2, "another")].map(|(dpid, hardware)| {
        network.add_switch_with(DatapathId(dpid), |options| options.hardware = hardware)
    });
    let host = network.add_host(switches[0]);
    network.run_for(ms(2000));
    let flags = |network: &Network| {
        switches.map(|at| {
            let mut switch = network.switch(at).clone();
            let answers = switch.apply(network.now(), &Message::GetConfigRequest);
            match &answers.expect("an answer")[..] {
                [Message::GetConfigReply(config)] => config.flags,
                other => panic!("{other:?}"),
            }
        })
    };
    assert_eq!(flags(&network), [0, 0]);
    let access = at_ports(
        &network,
        &[host],
        acl(&[("udp,tp_dst=53", false), ("", true)]),
    );
    network.set_access(access).expect("it can");
    network.run_for(ms(500));
    assert_eq!(flags(&network), [3, 0]);
    network.kill_controller();
    network.start_controller(9);
    network.run_for(ms(2000));
    assert_eq!(flags(&network), [3, 0]);
    network.set_access(Access::default()).expect("it can");
    network.run_for(ms(500));
    assert_eq!(flags(&network), [0, 0]);
}

#[test]
fn a_list_of_a_vlan_holds_at_all_of_its_ports_and_no_other() {
    let (mut network, topology) = network(3, true, |network| topology::line(network, 3));
    let ten = VlanId::new(10).expect("a VLAN id");
    let mut hosts = topology.hosts.clone();
    for switch in topology.switches.clone() {
        hosts.push(network.add_host(switch));
    }
    let members = hosts[3..].iter().enumerate().map(|(n, host)| {
        let vlans = match n {
            1 => PortVlans::Trunk {
                tagged: [ten].into(),
                native: None,
            },
            _ => PortVlans::Access(ten),
        };
        (network.place(*host), vlans)
    });
    let vlans = Vlans {
        ports: members.collect(),
        ..Vlans::default()
    };
    network.host_mut(hosts[4]).vlan = Some(10);
    network.set_vlans(vlans);
    let access = Access {
        acls: vec![acl(&[("arp", true), ("udp", true)])],
        vlans: [(ten, vec![0])].into(),
        ..Access::default()
    };
    network.set_access(access).expect("all can");
    network.run_for(ms(4000));
    assert!(
        pings(&mut network, hosts[0], hosts[2], 1),
        "outside of VLANs"
    );
    for (from, to) in [(3, 4), (4, 5), (5, 3)] {
        assert!(
            !pings(&mut network, hosts[from], hosts[to], 2),
            "{from} to {to}"
        );
        network.stream(hosts[from], hosts[to], from as u64 * 100, 20, ms(5));
        network.run_for(ms(300));
        assert_eq!(
            network.host(hosts[to]).datagrams.len(),
            20,
            "{from} to {to}"
        );
    }
}

/// A new process finds the entries correct, also those of links that it has not discovered yet.
#[test]
fn a_restart_changes_nothing() {
    let (mut network, topology) = network(8, true, |network| topology::ring(network, 4));
    let hosts = topology.hosts.clone();
    let access = Access {
        dhcp_servers: Some(BTreeSet::new()),
        ..at_ports(&network, &hosts[..2], no_ping_to(Ipv4Addr::LOCALHOST))
    };
    network.set_access(access).expect("all can");
    network.run_for(ms(4000));
    assert!(topology.silent_pairs(&mut network, 1).is_empty());
    network.kill_controller();
    network.run_for(ms(500));
    let entries = |network: &Network| -> Vec<String> {
        let switches = topology
            .switches
            .iter()
            .map(|switch| network.switch(*switch));
        let entries = switches.flat_map(|switch| switch.entries());
        let kept = entries.filter(|entry| entry.table_id.0 < 5);
        kept.map(|entry| format!("{entry:?}")).collect()
    };
    let flow_mods = |network: &Network| -> u64 {
        let switches = topology.switches.iter();
        switches.map(|switch| network.heard(*switch, 14)).sum()
    };
    let (before, sent) = (entries(&network).len(), flow_mods(&network));
    network.start_controller(10);
    network.run_for(ms(13_000));
    assert_eq!(entries(&network).len(), before);
    assert_eq!(flow_mods(&network), sent);
    let changed = network.events().filter_map(|event| match event {
        Event::Reconciled { added, deleted, .. } => Some(added + deleted),
        _ => None,
    });
    assert_eq!(changed.sum::<usize>(), 0);
    // Access applies again to a port that is no link any more.
    network.set_link(topology.links[0], false);
    network.run_for(ms(500));
    assert_eq!(entries(&network).len(), before - 2);
}

/// Somebody else's change of the entries is mended, and the counters are read.
#[test]
fn what_others_delete_is_set_again_and_counters_count() {
    let (mut network, topology) = network(4, true, |network| topology::line(network, 3));
    let hosts = topology.hosts.clone();
    let ip = network.host(hosts[2]).address.ip;
    let access = at_ports(&network, &hosts[..1], no_ping_to(ip));
    network.set_access(access).expect("all can");
    network.run_for(ms(4000));
    for seq in 1..=5 {
        assert!(!pings(&mut network, hosts[0], hosts[2], seq));
    }
    network.run_for(ms(11_000));
    let counts = network.process().controller.access_counts();
    let denied = counts.rules.iter().find(|(.., allows, _)| !allows);
    assert_eq!(denied.map(|(.., count)| *count), Some(5), "{counts:?}");
    let deletion = FlowMod {
        command: FlowModCommand::Delete,
        table_id: TableId(3),
        ..FlowMod::add(0, Match::any(), Vec::new())
    };
    network.apply(topology.switches[0], &Message::FlowMod(deletion));
    assert!(
        !pings(&mut network, hosts[0], hosts[1], 6),
        "the way is gone"
    );
    network.run_for(ms(11_000));
    assert!(pings(&mut network, hosts[0], hosts[1], 7));
    assert!(!pings(&mut network, hosts[0], hosts[2], 8));
}

/// Attempts of a host to pass for somebody else: each with its name and its frame.
fn spoofs(
    own: Address,
    own6: Ipv6Addr,
    victim: Address,
    victim6: Ipv6Addr,
) -> Vec<(&'static str, Vec<u8>)> {
    let other = Address::new(
        MacAddr([2, 0, 0, 0, 0x66, 0x66]),
        Ipv4Addr::new(10, 9, 9, 9),
    );
    let all = Address::new(MacAddr::BROADCAST, Ipv4Addr::BROADCAST);
    let everybody = (
        MacAddr([0x33, 0x33, 0, 0, 0, 1]),
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
    );
    let as_own = |ip| Address { ip, ..own };
    let asks = |from: Address, ip| build::arp_request(from, ip);
    let from_src = |mut frame: Vec<u8>, mac: MacAddr| {
        frame[6..12].copy_from_slice(&mac.0);
        frame
    };
    let other6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x99);
    let router = |kind: u8| build::icmpv6((own.mac, own6), everybody, kind, &[0; 12]);
    vec![
        (
            "ARP request with the victim's IP address",
            asks(as_own(victim.ip), other.ip),
        ),
        (
            "ARP announcement of the victim's IP address",
            asks(as_own(victim.ip), victim.ip),
        ),
        (
            "ARP reply with the victim's IP address",
            build::arp_reply(as_own(victim.ip), all),
        ),
        (
            "ARP reply with the victim's two addresses",
            build::arp_reply(victim, all),
        ),
        (
            "ARP reply with the victim's hardware address inside",
            from_src(build::arp_reply(victim, all), own.mac),
        ),
        (
            "ARP request with another hardware address inside",
            from_src(
                asks(
                    Address {
                        ip: own.ip,
                        ..other
                    },
                    victim.ip,
                ),
                own.mac,
            ),
        ),
        (
            "neighbour solicitation from the victim's address",
            build::neighbour_solicitation((own.mac, victim6), other6),
        ),
        (
            "neighbour solicitation with another hardware address inside",
            from_src(
                build::neighbour_solicitation((other.mac, own6), victim6),
                own.mac,
            ),
        ),
        (
            "neighbour advertisement of the victim's address",
            build::neighbour_advertisement((own.mac, victim6), false),
        ),
        (
            "neighbour advertisement with the victim's hardware address",
            build::neighbour_advertisement((victim.mac, victim6), false),
        ),
        (
            "probe for the victim's address",
            build::neighbour_probe(own.mac, everybody.0, victim6),
        ),
        ("router advertisement", router(134)),
        ("redirect", router(137)),
        ("DHCP offer", build::udp(own, all, (67, 68), &[2; 240])),
        (
            "DHCP offer from the victim's IP address",
            build::udp(as_own(victim.ip), all, (67, 68), &[2; 240]),
        ),
        (
            "DHCPv6 answer",
            build::udp6((own.mac, own6), everybody, (547, 546), &[2; 8]),
        ),
        (
            "IPv4 from the victim's IP address",
            build::udp(as_own(victim.ip), victim, (9, 9), b"x"),
        ),
        (
            "IPv4 from an address of nobody",
            build::udp(as_own(other.ip), victim, (9, 9), b"x"),
        ),
        (
            "IPv6 from the victim's address",
            build::udp6((own.mac, victim6), (victim.mac, victim6), (9, 9), b"x"),
        ),
        (
            "IPv4 from another hardware address",
            build::udp(
                Address {
                    ip: own.ip,
                    ..other
                },
                victim,
                (9, 9),
                b"x",
            ),
        ),
        (
            "IPv4 from the victim's two addresses",
            build::udp(victim, all, (9, 9), b"x"),
        ),
        (
            "another protocol from another hardware address",
            build::ethernet(other.mac, all.mac, 0x88b5, b"x"),
        ),
    ]
}

/// More than twenty kinds of forgeries: with bindings and guards none gets through.
#[test]
fn a_bound_port_can_be_nobody_else() {
    let mut passed = Vec::new();
    for bound in [false, true] {
        let (mut network, topology) = network(5, true, |network| topology::line(network, 3));
        let hosts = topology.hosts.clone();
        for (n, host) in hosts.iter().enumerate() {
            let host = network.host_mut(*host);
            host.ip6 = Some(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1 + n as u16));
            host.record = true;
        }
        let of = |network: &Network, n: usize| {
            let host = network.host(hosts[n]);
            (host.address, host.ip6.expect("an address"))
        };
        let ((own, own6), (victim, victim6)) = (of(&network, 0), of(&network, 2));
        let binding = Binding {
            mac: own.mac,
            ips: [IpAddr::from(own.ip), own6.into()].into(),
        };
        if bound {
            let access = Access {
                bindings: [(network.place(hosts[0]), vec![binding])].into(),
                dhcp_servers: Some([network.place(hosts[1])].into()),
                routers: Some(BTreeSet::new()),
                ..Access::default()
            };
            network.set_access(access).expect("all can");
        }
        network.run_for(ms(4000));
        let mut through = Vec::new();
        let attempts = spoofs(own, own6, victim, victim6);
        assert!(attempts.len() >= 20);
        for (name, frame) in attempts {
            let payload = frame.clone();
            network.inject(hosts[0], frame);
            network.run_for(ms(100));
            let is_heard = |host: &HostId| network.host(*host).recorded.contains(&payload);
            if hosts[1..].iter().any(is_heard) {
                through.push(name);
            }
        }
        // The host itself works as ever.
        if bound {
            assert_eq!(through, Vec::<&str>::new());
        }
        assert!(pings(&mut network, hosts[0], hosts[2], 1), "bound: {bound}");
        network.solicit(hosts[0], hosts[2]);
        network.run_for(ms(100));
        assert!(
            network.host(hosts[0]).neighbour(victim6).is_some(),
            "bound: {bound}"
        );
        passed.push(through.len());
    }
    assert!(
        passed[0] > 10,
        "without bindings most get through: {passed:?}"
    );
}

/// Edges and the fabric keep their entries right where access has the first tables: hosts that move
/// are reached, and no old entry stays.
#[test]
fn hosts_move_where_access_is_decided() {
    for by_fabric in [true, false] {
        let (mut network, topology) = network(9, by_fabric, |network| topology::ring(network, 4));
        let hosts = topology.hosts.clone();
        let access = Access {
            routers: Some(BTreeSet::new()),
            ..Access::default()
        };
        network.set_access(access).expect("all can");
        network.run_for(ms(4000));
        let beside = network.add_host(topology.switches[0]);
        network.run_for(ms(1000));
        let all = [hosts[0], hosts[1], hosts[2], beside];
        let mut seq = 0;
        let mut all_talk = |network: &mut Network| {
            seq += 1;
            for from in all {
                for to in all.into_iter().filter(|to| *to != from) {
                    assert!(pings(network, from, to, seq), "{from:?} to {to:?}, {seq}");
                }
            }
        };
        all_talk(&mut network);
        network.move_host(hosts[0], topology.switches[2], true);
        network.run_for(ms(2500));
        all_talk(&mut network);
        network.set_link(network.link_of(beside), false);
        network.run_for(ms(500));
        let at = network.place(beside).port;
        let entries = network.switch(topology.switches[0]).entries();
        let stale = entries.filter(|entry| entry.r#match.in_port() == Some(at));
        assert_eq!(stale.count(), 0, "of a port that is down");
        assert_eq!(network.errors().count(), 0);
    }
}

/// A server behind a trusted port is heard; its answers pass links as well.
#[test]
fn a_trusted_server_is_heard_across_the_network() {
    let (mut network, topology) = network(6, true, |network| topology::line(network, 4));
    let hosts = topology.hosts.clone();
    let access = Access {
        dhcp_servers: Some([network.place(hosts[0])].into()),
        ..Access::default()
    };
    network.set_access(access).expect("all can");
    network.run_for(ms(4000));
    network.host_mut(hosts[3]).record = true;
    let offer = |network: &Network, from: usize| {
        let [from, to] = [from, 3].map(|n| network.host(hosts[n]).address);
        build::udp(from, to, (67, 68), &[2; 240])
    };
    assert!(pings(&mut network, hosts[0], hosts[3], 1));
    assert!(pings(&mut network, hosts[1], hosts[3], 1));
    // Access does not apply to a link that returns, either.
    network.set_link(topology.links[1], false);
    network.run_for(ms(500));
    network.set_link(topology.links[1], true);
    network.run_for(ms(3000));
    assert!(pings(&mut network, hosts[0], hosts[3], 2));
    for (from, is_heard) in [(0, true), (1, false)] {
        let frame = offer(&network, from);
        network.inject(hosts[from], frame.clone());
        network.run_for(ms(100));
        let heard = network.host(hosts[3]).recorded.contains(&frame);
        assert_eq!(heard, is_heard, "from host {from}");
    }
}

/// A list is complete before packets reach it. It is set from its first rule on, so that no rule
/// acts before those above it.
#[test]
fn a_list_is_set_from_its_first_rule_on() {
    let (mut network, topology) = network(10, true, |network| topology::line(network, 2));
    let rules = (1..100u16).map(|n| rule(&format!("tcp,tp_dst={n}"), n.is_multiple_of(2)));
    let list = |last| Acl {
        name: "list".to_owned(),
        rules: rules.clone().chain([rule("", last)]).collect(),
    };
    let hosts = topology.hosts.clone();
    let access = at_ports(&network, &hosts[..1], list(true));
    network.set_access(access).expect("all can");
    network.run_for(ms(4000));
    // The list of another port is added to tables in use.
    let access = at_ports(&network, &hosts, list(false));
    network.set_access(access).expect("all can");
    network.run_for(ms(500));
    for switch in &topology.switches {
        let entries = network.switch(*switch).entries();
        let list = entries.filter(|entry| entry.table_id == TableId(3) && entry.priority > 0);
        let priorities: Vec<u16> = list.map(|entry| entry.priority).collect();
        assert_eq!(priorities.len(), 101);
        // The last rule of the first list has changed in its place.
        let falls = priorities
            .windows(2)
            .filter(|pair| pair[0] <= pair[1])
            .count();
        assert!(falls <= 1, "{priorities:?}");
    }
}

/// Edges answer in a VLAN with lists as in any other: the packet-ins look alike.
#[test]
fn edges_answer_behind_the_lists_of_a_vlan() {
    let (mut network, topology) = network(11, true, |network| topology::line(network, 2));
    let ten = VlanId::new(10).expect("a VLAN id");
    let hosts = topology.hosts.clone();
    let more: Vec<HostId> = topology
        .switches
        .iter()
        .map(|at| network.add_host(*at))
        .collect();
    let hosts: Vec<HostId> = hosts.into_iter().chain(more).collect();
    let members = hosts
        .iter()
        .map(|host| (network.place(*host), PortVlans::Access(ten)));
    let vlans = Vlans {
        ports: members.collect(),
        ..Vlans::default()
    };
    network.set_vlans(vlans);
    let access = Access {
        acls: vec![acl(&[("", true)])],
        vlans: [(ten, vec![0])].into(),
        ..Access::default()
    };
    network.set_access(access).expect("all can");
    network.run_for(ms(4000));
    for (seq, (from, to)) in [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3)]
        .into_iter()
        .enumerate()
    {
        assert!(pings(&mut network, hosts[from], hosts[to], seq as u16 + 1));
    }
    let connection = network.connection(topology.switches[0]).expect("connected");
    let edge = network
        .process()
        .edge(connection)
        .expect("there")
        .counters();
    assert!(edge.packet_ins > 0, "{edge:?}");
}

/// A switch that refuses an entry is named in an alarm: packets that the entry was to drop may
/// pass.
#[test]
fn a_refused_entry_is_an_alarm_of_its_own() {
    let (mut network, topology) = network(12, true, |network| topology::line(network, 2));
    let access = at_ports(
        &network,
        &topology.hosts[..1],
        acl(&[("tcp", false), ("", true)]),
    );
    network.set_access(access).expect("all can");
    network.run_for(ms(4000));
    let refused = FlowMod {
        cookie: EntryKind::Access.cookie(1),
        ..FlowMod::add(9, Match::any(), Vec::new())
    };
    let frame = openflow::encode(Version::V13, Xid(77), &Message::FlowMod(refused));
    let data = frame.expect("it can be said").bytes().slice(..32);
    for kind in [ErrorKind::FLOW_MOD_TABLE_FULL, ErrorKind::MATCH_BAD_FIELD] {
        let message = Message::Error(ErrorMessage::new(kind, data.clone()));
        network.say(topology.switches[0], Xid(77), &message);
        network.run_for(ms(100));
        let told = network.events().filter_map(|event| match event {
            Event::Alarm(Alarm::AccessRefused { error, .. }) => Some(*error),
            _ => None,
        });
        assert_eq!(told.filter(|error| *error == kind).count(), 1, "{kind:?}");
    }
}

/// A port of a switch that cannot hold lists joins a VLAN that has some: better no switch than one
/// that lets all packets pass.
#[test]
fn no_port_comes_into_a_vlan_without_its_lists() {
    let controller = ControllerConfig {
        fabric: Some(FabricConfig::default()),
        ..ControllerConfig::default()
    };
    let mut network = Network::new(controller.into(), 13);
    let switch = network.add_switch_with(DatapathId(7), |options| options.n_tables = 8);
    let host = network.add_host(switch);
    network.run_for(ms(3000));
    let ten = VlanId::new(10).expect("a VLAN id");
    let access = Access {
        acls: vec![acl(&[("arp", true)])],
        vlans: [(ten, vec![0])].into(),
        ..Access::default()
    };
    let vlans = Vlans {
        ports: [(network.place(host), PortVlans::Access(ten))].into(),
        ..Vlans::default()
    };
    // Both at once are refused, and nothing changes.
    let (both, access_alone) = ((access.clone(), vlans.clone()), access);
    let refused = network
        .ask(move |controller, now| controller.set_access_with(now, both.0, Some(both.1), None));
    assert_eq!(refused, Err(vec![DatapathId(7)]));
    network.run_for(ms(500));
    assert!(network.connection(switch).is_some());
    // The VLANs of databases arrive later, and cannot be refused.
    network
        .set_access(access_alone)
        .expect("it concerns no switch");
    network.run_for(ms(3000));
    assert!(network.connection(switch).is_some());
    network.set_vlans(vlans);
    network.run_for(ms(3000));
    let is_up = network
        .process()
        .controller
        .switches()
        .iter()
        .any(|view| view.connection.is_some());
    assert!(!is_up);
}

/// Lists that a switch cannot hold are refused: the network stays as it is.
#[test]
fn a_switch_without_tables_is_named() {
    let controller = ControllerConfig {
        fabric: Some(FabricConfig::default()),
        ..ControllerConfig::default()
    };
    let mut network = Network::new(controller.into(), 7);
    // The fabric fits, and access does not.
    let switch = network.add_switch_with(DatapathId(7), |options| options.n_tables = 8);
    let host = network.add_host(switch);
    let other = network.add_host(switch);
    network.run_for(ms(3000));
    let at: Location = network.place(host);
    let access = Access {
        acls: vec![acl(&[("arp", true)])],
        ports: [(at, vec![0])].into(),
        ..Access::default()
    };
    assert_eq!(network.set_access(access.clone()), Err(vec![at.dpid]));
    assert!(pings(&mut network, host, other, 1));
    let elsewhere = Location {
        dpid: DatapathId(99),
        ..at
    };
    let access = Access {
        ports: [(elsewhere, vec![0])].into(),
        ..access
    };
    assert_eq!(network.set_access(access), Ok(()));
    network.run_for(ms(3000));
    assert!(pings(&mut network, host, other, 2));
}

/// A port that is bound by DHCP, a DHCP server, and another host.
struct Lan {
    network: Network,
    client: HostId,
    other: HostId,
    server: HostId,
    by_dhcp: Access,
}

impl Lan {
    fn new(by_fabric: bool, vlan: Option<u16>) -> Lan {
        let (mut network, topology) = network(21, by_fabric, |network| topology::line(network, 3));
        let [client, other, server] = [0, 1, 2].map(|n| topology.hosts[n]);
        if let Some(id) = vlan {
            let vlan = VlanId::new(id).expect("an id");
            let mut ports: std::collections::BTreeMap<_, _> = topology
                .hosts
                .iter()
                .map(|host| (network.place(*host), PortVlans::Access(vlan)))
                .collect();
            let trunk = PortVlans::Trunk {
                tagged: [vlan].into(),
                native: None,
            };
            ports.insert(network.place(server), trunk);
            network.host_mut(server).vlan = Some(id);
            network.set_vlans(Vlans {
                ports,
                ..Vlans::default()
            });
        }
        for host in [client, other, server] {
            network.host_mut(host).record = true;
        }
        let by_dhcp = Access {
            by_dhcp: [network.place(client)].into(),
            dhcp_servers: Some([network.place(server)].into()),
            ..Access::default()
        };
        network.set_access(by_dhcp.clone()).expect("all can");
        network.run_for(ms(4000));
        Lan {
            network,
            client,
            other,
            server,
            by_dhcp,
        }
    }

    fn send(&mut self, from: HostId, frame: Vec<u8>) {
        let frame = match self.network.host(from).vlan {
            Some(tag) => build::tagged(&frame, tag, 0),
            None => frame,
        };
        self.network.inject(from, frame);
        self.network.run_for(ms(100));
    }

    /// The messages of DHCP that a host has received.
    fn heard(&self, host: HostId) -> Vec<dhcp::Message> {
        let host = self.network.host(host);
        let frames = host.recorded.iter();
        let untagged = frames.map(|frame| match frame[12..14] == [0x81, 0] {
            true => [&frame[..12], &frame[16..]].concat(),
            false => frame.clone(),
        });
        untagged
            .filter_map(|frame| dhcp::Message::read(&frame))
            .collect()
    }

    /// Has the client ask for an address.
    fn ask(&mut self, kind: dhcp::Kind, xid: u32) -> dhcp::Message {
        let own = self.network.host(self.client).address;
        let message = dhcp::Message {
            kind,
            xid,
            client: own.mac,
            client_ip: Ipv4Addr::UNSPECIFIED,
            your_ip: Ipv4Addr::UNSPECIFIED,
            lease_s: None,
        };
        let from = Address {
            ip: Ipv4Addr::UNSPECIFIED,
            ..own
        };
        self.send(self.client, message.frame(from, everybody()));
        message
    }

    /// Has the server give the client its address.
    fn give(&mut self, question: dhcp::Message, lease_s: u32) -> dhcp::Message {
        let own = self.network.host(self.client).address;
        let answer = dhcp::Message {
            kind: dhcp::Kind::Ack,
            your_ip: own.ip,
            lease_s: Some(lease_s),
            ..question
        };
        let server = self.network.host(self.server).address;
        self.send(self.server, answer.frame(server, own));
        answer
    }

    fn refused(&self) -> u64 {
        self.network.process().controller.counters().dhcp_refused
    }
}

fn everybody() -> Address {
    Address::new(MacAddr::BROADCAST, Ipv4Addr::BROADCAST)
}

#[test]
fn a_port_is_bound_to_the_address_that_its_host_has_by_dhcp() {
    for (by_fabric, vlan) in [(true, None), (false, None), (true, Some(10))] {
        let mut lan = Lan::new(by_fabric, vlan);
        let (client, other, server) = (lan.client, lan.other, lan.server);
        let case = format!("fabric {by_fabric}, VLAN {vlan:?}");
        assert!(!pings(&mut lan.network, client, other, 1), "{case}");
        let question = lan.ask(dhcp::Kind::Request, 7);
        assert_eq!(lan.heard(server), [question], "{case}");
        let answer = lan.give(question, 60);
        assert_eq!(lan.heard(client), [answer], "{case}");
        lan.network.run_for(ms(500));
        assert!(pings(&mut lan.network, client, other, 2), "{case}");
        assert!(pings(&mut lan.network, other, client, 3), "{case}");

        let own = lan.network.host(client).address;
        let to = lan.network.host(other).address;
        let with_ip = Address {
            ip: Ipv4Addr::new(10, 66, 0, 1),
            ..own
        };
        let with_mac = Address {
            mac: MacAddr([2, 0, 0, 0, 0x66, 1]),
            ..own
        };
        let before = lan.network.host(other).recorded.len();
        for from in [with_ip, with_mac] {
            lan.send(client, build::udp(from, to, (1, 2), b"abcdefgh"));
        }
        assert_eq!(lan.network.host(other).recorded.len(), before, "{case}");

        // A new process takes over what the switch knows.
        lan.network.kill_controller();
        lan.network.start_controller(9);
        lan.network.run_for(ms(5000));
        assert!(pings(&mut lan.network, client, other, 4), "{case}");
        let question = lan.ask(dhcp::Kind::Request, 8);
        lan.give(question, 60);
        assert!(pings(&mut lan.network, client, other, 5), "{case}");
        lan.network.run_for(ms(45_000));
        assert!(pings(&mut lan.network, client, other, 6), "{case}");
        assert_eq!(lan.network.process().controller.learned().all().count(), 1);
        lan.network.run_for(ms(30_000));
        // The time of an adopted address is not known, and a renewal sets it.
        assert!(
            !pings(&mut lan.network, client, other, 7),
            "{case}: time is over"
        );
        let mut access = lan.by_dhcp.clone();
        access.by_dhcp.clear();
        lan.network.set_access(access).expect("all can");
        lan.network.run_for(ms(500));
        assert!(
            pings(&mut lan.network, client, other, 8),
            "{case}: no binding"
        );
        assert_eq!(lan.network.errors().count(), 0, "{case}");
    }
}

/// No host gets, keeps or gives back an address in the name of another.
#[test]
fn forged_messages_of_dhcp_bind_nobody() {
    let mut lan = Lan::new(true, None);
    let (client, other, server) = (lan.client, lan.other, lan.server);
    let question = lan.ask(dhcp::Kind::Request, 7);
    lan.give(question, 3600);
    lan.network.run_for(ms(200));
    assert!(pings(&mut lan.network, client, other, 1));
    let before = lan.heard(server).len();
    let own = lan.network.host(client).address;
    let victim = lan.network.host(other).address;
    let from = Address {
        ip: Ipv4Addr::UNSPECIFIED,
        ..own
    };
    let release = dhcp::Message {
        kind: dhcp::Kind::Release,
        client_ip: victim.ip,
        ..question
    };
    let as_victim = dhcp::Message {
        client: victim.mac,
        ..question
    };
    let mut unreadable = question.frame(from, everybody());
    unreadable.truncate(200);
    let forged = [
        release.frame(own, lan.network.host(server).address),
        as_victim.frame(from, everybody()),
        unreadable,
    ];
    let count = forged.len() as u64;
    for frame in forged {
        lan.send(client, frame);
    }
    assert_eq!(lan.heard(server).len(), before);
    assert_eq!(lan.refused(), count);
    // An answer from an untrusted port, and an unsolicited one.
    let answer = dhcp::Message {
        kind: dhcp::Kind::Ack,
        your_ip: Ipv4Addr::new(10, 66, 0, 1),
        lease_s: Some(3600),
        ..question
    };
    let question = lan.ask(dhcp::Kind::Request, 8);
    lan.send(other, dhcp::Message { xid: 8, ..answer }.frame(victim, own));
    let server_address = lan.network.host(server).address;
    lan.send(
        server,
        dhcp::Message { xid: 9, ..answer }.frame(server_address, own),
    );
    let learned = |lan: &Lan| -> Vec<(MacAddr, Ipv4Addr)> {
        let all = lan.network.process().controller.learned().all();
        all.map(|(_, mac, lease)| (mac, lease.ip)).collect()
    };
    assert_eq!(learned(&lan), [(own.mac, own.ip)]);
    // A switch wrongly reports that such an answer came from a trusted port.
    let frame = dhcp::Message { xid: 8, ..answer }.frame(victim, own);
    let told = PacketIn {
        reason: PacketInReason::ACTION,
        cookie: EntryKind::Access.cookie(0),
        ..PacketIn::new(lan.network.place(other).port, frame.into())
    };
    let switch = lan.network.place(other).dpid;
    let switch = sim::network::SwitchId(switch.0 as usize - 1);
    lan.network.say(switch, Xid(0), &Message::PacketIn(told));
    lan.network.run_for(ms(100));
    assert_eq!(learned(&lan), [(own.mac, own.ip)]);
    // The client gives its own address back.
    let release = dhcp::Message {
        kind: dhcp::Kind::Release,
        client_ip: own.ip,
        ..question
    };
    lan.send(client, release.frame(own, server_address));
    assert_eq!(learned(&lan), []);
    assert!(!pings(&mut lan.network, client, other, 2));
    // The client's port has moved to another VLAN.
    let question = lan.ask(dhcp::Kind::Request, 10);
    lan.give(question, 3600);
    assert_eq!(learned(&lan), [(own.mac, own.ip)]);
    let vlan = PortVlans::Access(VlanId::new(10).expect("an id"));
    lan.network.set_vlans(Vlans {
        ports: [(lan.network.place(client), vlan)].into(),
        ..Vlans::default()
    });
    assert_eq!(learned(&lan), []);
}

/// The switch drops requests at a port that a guard has closed.
#[test]
fn a_closed_port_asks_no_server() {
    let mut lan = Lan::new(true, None);
    let at = lan.network.place(lan.client);
    lan.network
        .set_bonds(Bonds::default(), [(at, Bpdu::Guard)].into());
    let own = lan.network.host(lan.client).address.mac;
    let bpdu = build::ethernet(own, MacAddr([1, 0x80, 0xc2, 0, 0, 0]), 39, &[0x42; 46]);
    lan.send(lan.client, bpdu);
    let packet_ins = |lan: &Lan| {
        let counters = lan.network.process().controller.counters();
        counters.packet_ins - counters.lldp_accepted
    };
    let before = packet_ins(&lan);
    for xid in 0..50 {
        lan.ask(dhcp::Kind::Discover, xid);
    }
    assert!(packet_ins(&lan) - before < 5);
    assert_eq!(lan.heard(lan.server), []);
}

/// A lease that has ended while its switch was away is not adopted again from that switch.
#[test]
fn an_ended_lease_is_not_taken_over_again() {
    let mut lan = Lan::new(true, None);
    let (client, other) = (lan.client, lan.other);
    let question = lan.ask(dhcp::Kind::Request, 7);
    lan.give(question, 5);
    assert!(pings(&mut lan.network, client, other, 1));
    lan.network.set_control_delay(ms(15_000));
    lan.network.disconnect(sim::network::SwitchId(0));
    let usual = sim::network::NetworkConfig::from(ControllerConfig::default()).control_delay;
    lan.network.set_control_delay(usual);
    lan.network.run_for(ms(14_000));
    assert_eq!(lan.network.process().controller.learned().all().count(), 0);
    lan.network.run_for(ms(6000));
    assert_eq!(lan.network.process().controller.learned().all().count(), 0);
    assert!(!pings(&mut lan.network, client, other, 2));
}
