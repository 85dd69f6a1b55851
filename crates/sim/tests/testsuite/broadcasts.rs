//! Broadcasts in the fabric: one packet-out, along a tree, to every edge port once.

use std::collections::BTreeMap;

use clock::{SplitMix64, ms};
use control::bond::Bonds;
use control::controller::{Alarm, ControllerConfig, Drained, Event, FabricConfig};
use control::entry::EntryKind;
use control::fabric::{Label, tree};
use control::vlan::{PortVlans, VlanId, Vlans};
use openflow::message::{ErrorMessage, GroupMod, GroupModCommand, GroupType};
use openflow::packet::build::{ethernet, tagged};
use openflow::{ErrorKind, Field, MacAddr, Message, Version, Xid, encode};
use sim::network::{HostId, Network, NetworkConfig};
use sim::topology::{self, Topology};

const FLOW_MOD: u8 = 14;
const GROUP_MOD: u8 = 15;

/// An EtherType for experiments (IEEE 802, 9.2.3).
const ETH_TYPE: u16 = 0x88b5;

fn config() -> NetworkConfig {
    let controller = ControllerConfig {
        fabric: Some(FabricConfig::default()),
        ..ControllerConfig::default()
    };
    controller.into()
}

fn heard(network: &Network, topology: &Topology, kind: u8) -> u64 {
    let switches = topology.switches.iter();
    switches.map(|switch| network.heard(*switch, kind)).sum()
}

/// Makes all hosts record the frames that they receive.
fn record(network: &mut Network) {
    for host in network.hosts().collect::<Vec<_>>() {
        network.host_mut(host).record = true;
    }
}

fn broadcast_to(network: &mut Network, from: HostId, dst: MacAddr, number: u64) {
    let src = network.host(from).address.mac;
    let mut payload = vec![0; 46];
    payload[..8].copy_from_slice(&number.to_be_bytes());
    let frame = ethernet(src, dst, ETH_TYPE, &payload);
    let frame = match network.host(from).vlan {
        Some(vlan) => tagged(&frame, vlan, 0),
        None => frame,
    };
    network.inject(from, frame);
}

fn broadcast(network: &mut Network, from: HostId, number: u64) {
    broadcast_to(network, from, MacAddr::BROADCAST, number);
}

/// How often a host has heard each number, in the form of its own frames.
fn numbers(network: &Network, host: HostId) -> BTreeMap<u64, u32> {
    let host = network.host(host);
    let mut numbers = BTreeMap::new();
    for frame in &host.recorded {
        let at = match host.vlan {
            Some(_) if frame[12..14] == [0x81, 0] => 16,
            _ => 12,
        };
        if frame[at..at + 2] == ETH_TYPE.to_be_bytes() {
            let number = frame[at + 2..at + 10].try_into().expect("eight bytes");
            *numbers.entry(u64::from_be_bytes(number)).or_default() += 1;
        }
    }
    numbers
}

/// Sends a broadcast from each host, and checks that all others receive it once. Returns the
/// packet-outs of each.
fn all_hear(network: &mut Network, topology: &Topology, first: u64) -> Vec<u64> {
    let mut costs = Vec::new();
    for (n, from) in topology.hosts.iter().enumerate() {
        let before = packet_outs(network);
        broadcast(network, *from, first + n as u64);
        network.run_for(ms(5));
        costs.push(packet_outs(network) - before);
    }
    for (n, from) in topology.hosts.iter().enumerate() {
        for to in &topology.hosts {
            let times = numbers(network, *to).get(&(first + n as u64)).copied();
            let wanted = (from != to).then_some(1);
            assert_eq!(times, wanted, "{from:?} to {to:?}");
        }
    }
    costs
}

/// Packet-outs of broadcasts.
fn packet_outs(network: &Network) -> u64 {
    let counters = network.process().controller.counters();
    counters.flood_packet_outs
}

/// The labels of the trees whose pieces the switches hold, and the number of pieces of each.
fn trees(network: &Network, topology: &Topology) -> BTreeMap<Label, usize> {
    let mut trees = BTreeMap::new();
    for switch in &topology.switches {
        for group in network.switch(*switch).groups() {
            if let Some(label) = tree::label_of(group.group_id) {
                assert_eq!(group.group_type, GroupType::All);
                *trees.entry(label).or_default() += 1;
            }
        }
        let entries = network.switch(*switch).entries();
        let own = entries.filter(|entry| EntryKind::of(entry.cookie) == Some(EntryKind::Tree));
        let mut of_entries: Vec<Label> = own
            .map(|entry| Label(entry.r#match.exact(Field::VlanVid).unwrap() as u16 & 0xfff))
            .collect();
        let groups = network.switch(*switch).groups();
        let mut of_groups: Vec<Label> = groups
            .filter_map(|group| tree::label_of(group.group_id))
            .collect();
        of_entries.sort();
        of_entries.dedup();
        of_groups.sort();
        assert_eq!(of_entries, of_groups, "entries for each group");
    }
    trees
}

/// A tree stays in use through quick changes that do not alter it, and through a drain until
/// another tree is ready. A broadcast that goes switch by switch may overtake the one before.
#[test]
fn a_tree_is_used_through_changes_that_leave_it() {
    let mut network = Network::new(config(), 5);
    let topology = topology::ring(&mut network, 6);
    network.run_for(ms(2000));
    topology.introduce(&mut network);
    record(&mut network);
    for first in [100, 200] {
        all_hear(&mut network, &topology, first);
        network.run_for(ms(1000));
    }
    let from = topology.hosts[0];
    let mut number = 1000;
    let mut spread = |network: &mut Network| {
        let before = packet_outs(network);
        broadcast(network, from, number);
        number += 1;
        network.run_for(ms(2));
        packet_outs(network) - before
    };
    for _ in 0..8 {
        network.set_bonds(Bonds::default(), BTreeMap::new());
        assert_eq!(spread(&mut network), 1);
    }
    for link in &topology.links {
        let end = network.link_ends(*link)[0];
        network.set_drained(Drained {
            links: [end].into(),
            ..Drained::default()
        });
        for _ in 0..200 {
            assert_eq!(spread(&mut network), 1);
        }
    }
    for host in &topology.hosts[1..] {
        let payloads = network.host(*host).recorded.iter();
        let own = payloads.filter(|frame| frame[12..14] == ETH_TYPE.to_be_bytes());
        let heard: Vec<u64> = own
            .map(|frame| u64::from_be_bytes(frame[14..22].try_into().expect("eight bytes")))
            .filter(|heard| *heard >= 1000)
            .collect();
        assert!(heard.into_iter().eq(1000..number), "{host:?}");
    }
}

/// A broadcast costs one packet-out, however many switches there are.
#[test]
fn a_broadcast_costs_one_packet_out() {
    type Build = fn(&mut Network) -> Topology;
    let builds: [(&str, Build); 6] = [
        ("line", |network| topology::line(network, 6)),
        ("ring", |network| topology::ring(network, 16)),
        ("leaf-spine", |network| {
            topology::leaf_spine(network, 2, 14, 2)
        }),
        ("fat tree", |network| topology::fat_tree(network, 4)),
        ("torus", |network| topology::torus(network, 8, 8)),
        ("random", |network| topology::random(network, 12, 12, 7)),
    ];
    for (name, build) in builds {
        let mut network = Network::new(config(), 1);
        let topology = build(&mut network);
        record(&mut network);
        topology.introduce(&mut network);
        let costs = all_hear(&mut network, &topology, 1000);
        assert!(costs.iter().all(|cost| *cost == 1), "{name}: {costs:?}");
        let trees = trees(&network, &topology);
        let pieces: Vec<usize> = trees.values().copied().collect();
        assert_eq!(pieces, [topology.switches.len()], "{name}: one tree");
        assert_eq!(network.circled, 0, "{name}");
        assert_eq!(network.errors().count(), 0, "{name}");
    }
}

/// Before the tree is there, and where there is no fabric, each switch gets a packet-out.
#[test]
fn without_a_tree_each_switch_gets_a_packet_out() {
    let mut network = Network::new(ControllerConfig::default().into(), 1);
    let topology = topology::ring(&mut network, 16);
    record(&mut network);
    topology.introduce(&mut network);
    let costs = all_hear(&mut network, &topology, 1000);
    // The sender's own port is the only one of its switch.
    assert!(costs.iter().all(|cost| *cost == 15), "{costs:?}");
    assert!(trees(&network, &topology).is_empty());
}

/// A link of the tree fails, and later broadcasts reach the other hosts at once: by packet-outs
/// first, and then along another tree with another label.
#[test]
fn a_link_fails_and_another_tree_takes_over() {
    let mut network = Network::new(config(), 3);
    let topology = topology::ring(&mut network, 6);
    record(&mut network);
    topology.introduce(&mut network);
    all_hear(&mut network, &topology, 1000);
    let mut renewed = 0;
    for (n, link) in topology.links.clone().into_iter().enumerate() {
        let first = 10_000 * (n as u64 + 1);
        let before = trees(&network, &topology);
        network.set_link(link, false);
        network.run_for(ms(1));
        let costs = all_hear(&mut network, &topology, first);
        assert!(costs.iter().all(|cost| [1, 5].contains(cost)), "{costs:?}");
        network.run_for(ms(1000));
        let costs = all_hear(&mut network, &topology, first + 100);
        assert!(costs.iter().all(|cost| *cost == 1), "{costs:?}");
        let after = trees(&network, &topology);
        assert_eq!(
            after.len(),
            1,
            "nothing is left of the former tree: {after:?}"
        );
        renewed += usize::from(after.keys().ne(before.keys()));
        network.set_link(link, true);
        network.run_for(ms(2000));
        let costs = all_hear(&mut network, &topology, first + 200);
        assert!(costs.iter().all(|cost| *cost == 1), "{costs:?}");
    }
    // The tree leaves out one link of a ring.
    assert!(renewed >= 5, "{renewed} trees with another label");
    assert_eq!(network.circled, 0);
}

/// Somebody deletes a switch's group, and with it the entries that lead there. The first broadcast
/// shows it, and another tree takes over.
#[test]
fn a_piece_that_is_lost_is_mended() {
    let mut network = Network::new(config(), 4);
    let topology = topology::line(&mut network, 4);
    record(&mut network);
    topology.introduce(&mut network);
    all_hear(&mut network, &topology, 1000);
    let before = trees(&network, &topology);
    let label = *before.keys().next().expect("a tree");
    let delete = GroupMod::new(
        GroupModCommand::Delete,
        GroupType::All,
        tree::group(label),
        Vec::new(),
    );
    network.apply(topology.switches[1], &Message::GroupMod(delete));
    broadcast(&mut network, topology.hosts[0], 5000);
    network.run_for(ms(1000));
    let costs = all_hear(&mut network, &topology, 6000);
    assert!(costs.iter().all(|cost| *cost == 1), "{costs:?}");
    let after = trees(&network, &topology);
    assert!(!after.contains_key(&label), "{after:?}");
    assert_eq!((after.len(), network.circled), (1, 0));
}

/// A switch installs its piece later than the others. No broadcast uses the tree before then.
#[test]
fn no_broadcast_is_lost_while_a_switch_is_late() {
    let mut network = Network::new(config(), 3);
    let topology = topology::ring(&mut network, 6);
    network.set_away(topology.switches[3], ms(60));
    record(&mut network);
    topology.introduce(&mut network);
    network.run_for(ms(1000));
    let mut number = 1000;
    let mut send = |network: &mut Network, count: u64| {
        for _ in 0..count {
            broadcast(network, topology.hosts[number as usize % 3], number);
            network.run_for(ms(5));
            number += 1;
        }
    };
    send(&mut network, 40);
    network.set_link(topology.links[0], false);
    network.run_for(ms(2));
    send(&mut network, 80);
    network.run_for(ms(500));
    for number in 1000..1120 {
        for (n, host) in topology.hosts.iter().enumerate() {
            let wanted = (n != number as usize % 3).then_some(1);
            let times = numbers(&network, *host).get(&number).copied();
            assert_eq!(times, wanted, "{number} at {host:?}");
        }
    }
}

/// A network in two parts has a tree in each. A broadcast goes to both, with a packet-out for each,
/// until it is certain that they are separate.
#[test]
fn each_part_of_a_network_gets_a_packet_out() {
    let mut network = Network::new(config(), 3);
    let topology = topology::line(&mut network, 6);
    record(&mut network);
    topology.introduce(&mut network);
    network.set_link(topology.links[2], false);
    network.run_for(ms(1000));
    all_hear(&mut network, &topology, 1000);
    network.run_for(ms(1000));
    let costs = all_hear(&mut network, &topology, 2000);
    assert!(costs.iter().all(|cost| *cost == 2), "{costs:?}");
    network.run_for(ms(5000));
    let before = packet_outs(&network);
    broadcast(&mut network, topology.hosts[0], 3000);
    network.run_for(ms(10));
    assert_eq!(packet_outs(&network), before + 1);
}

/// New ports receive broadcasts at once, and ports that are down do not count.
#[test]
fn hosts_move_and_hear_all_broadcasts() {
    let mut network = Network::new(config(), 4);
    let topology = topology::torus(&mut network, 3, 3);
    record(&mut network);
    topology.introduce(&mut network);
    let mut random = SplitMix64::new(5);
    let mut below = |n: usize| (random.next() % n as u64) as usize;
    for round in 0..20 {
        let host = topology.hosts[below(9)];
        let to = topology.switches[below(9)];
        network.move_host(host, to, below(2) == 0);
        network.run_for(ms(900));
        for other in &topology.hosts {
            network.resolve(host, *other);
            network.run_for(ms(20));
        }
        network.run_for(ms(1200));
        let first = 1000 * (round + 1);
        all_hear(&mut network, &topology, first);
        network.run_for(ms(100));
        let costs = all_hear(&mut network, &topology, first + 100);
        assert!(costs.iter().all(|cost| *cost == 1), "{costs:?}");
    }
    assert_eq!(trees(&network, &topology).len(), 1);
}

/// A new process takes the tree over: not one message changes a table.
#[test]
fn a_restart_keeps_the_tree() {
    let mut network = Network::new(config(), 5);
    let topology = topology::leaf_spine(&mut network, 2, 4, 2);
    record(&mut network);
    topology.introduce(&mut network);
    all_hear(&mut network, &topology, 1000);
    let before = [FLOW_MOD, GROUP_MOD].map(|t| heard(&network, &topology, t));
    for round in 0..3 {
        network.kill_controller();
        network.run_for(ms(100));
        network.start_controller(70 + round);
        network.run_for(ms(3000));
        let first = 10_000 * (round + 1);
        all_hear(&mut network, &topology, first);
        network.run_for(ms(100));
        let costs = all_hear(&mut network, &topology, first + 100);
        assert!(costs.iter().all(|cost| *cost == 1), "{costs:?}");
        let after = [FLOW_MOD, GROUP_MOD].map(|t| heard(&network, &topology, t));
        assert_eq!(after, before);
    }
}

/// Has a switch refuse the group of its piece.
fn refuse_piece(network: &mut Network, topology: &Topology, kind: ErrorKind) {
    let label = *trees(network, topology).first_key_value().unwrap().0;
    let group = GroupMod::new(
        GroupModCommand::Modify,
        GroupType::All,
        tree::group(label),
        Vec::new(),
    );
    let frame = encode(Version::V13, Xid(9), &Message::GroupMod(group)).unwrap();
    let error = ErrorMessage::new(kind, frame.bytes().clone());
    network.say(topology.switches[2], Xid(9), &Message::Error(error));
}

/// A switch that refuses a piece gets packet-outs, and the others have a tree without it, which
/// they keep.
#[test]
fn a_switch_that_refuses_gets_packet_outs() {
    const GROUP_REFUSED: ErrorKind = ErrorKind { ty: 6, code: 1 };
    for kind in [GROUP_REFUSED, ErrorKind::FLOW_MOD_TABLE_FULL] {
        let mut network = Network::new(config(), 6);
        let topology = topology::ring(&mut network, 5);
        record(&mut network);
        topology.introduce(&mut network);
        all_hear(&mut network, &topology, 1000);
        refuse_piece(&mut network, &topology, kind);
        network.run_for(ms(1000));
        all_hear(&mut network, &topology, 2000);
        network.run_for(ms(1000));
        let costs = all_hear(&mut network, &topology, 3000);
        assert!(costs.iter().all(|cost| (1..=2).contains(cost)), "{costs:?}");
        let sizes = |network: &Network| trees(network, &topology).into_values().collect::<Vec<_>>();
        assert_eq!(sizes(&network), [4]);
        let is_it = |event: &&Event| matches!(event, Event::Alarm(Alarm::TreeRefused { .. }));
        assert_eq!(network.events().filter(is_it).count(), 1);
        for minute in 1..5 {
            network.run_for(ms(61_000));
            let costs = all_hear(&mut network, &topology, 4000 * minute);
            assert!(costs.iter().all(|cost| (1..=2).contains(cost)), "{costs:?}");
        }
        assert_eq!(sizes(&network), [4], "{kind:?}");
    }
}

/// Packets to unknown hosts also go to everybody.
#[test]
fn packets_to_unknown_hosts_go_along_the_tree() {
    let mut network = Network::new(config(), 7);
    let topology = topology::ring(&mut network, 5);
    record(&mut network);
    topology.introduce(&mut network);
    all_hear(&mut network, &topology, 1000);
    let unknown = MacAddr([2, 9, 9, 9, 9, 9]);
    broadcast_to(&mut network, topology.hosts[0], unknown, 5000);
    network.run_for(ms(10));
    for host in &topology.hosts[1..] {
        assert_eq!(numbers(&network, *host).get(&5000), Some(&1), "{host:?}");
    }
}

/// Each VLAN has a tree of its own, and its broadcasts leave in the form of each port.
#[test]
fn each_vlan_has_a_tree() {
    let vlan = |n: u16| VlanId::new(n).unwrap();
    let mut network = Network::new(config(), 8);
    let topology = topology::ring(&mut network, 5);
    let mut extra = Vec::new();
    for switch in &topology.switches {
        extra.push(network.add_host(*switch));
    }
    let mut ports = BTreeMap::new();
    for (n, host) in topology.hosts.iter().enumerate() {
        let at = network.place(*host);
        let form = match n % 2 {
            0 => PortVlans::Access(vlan(10)),
            _ => {
                network.host_mut(*host).vlan = Some(10);
                PortVlans::Trunk {
                    tagged: [vlan(10), vlan(20)].into(),
                    native: None,
                }
            }
        };
        ports.insert(at, form);
    }
    let names = [10, 20].map(|n| (vlan(n), n.to_string())).into();
    network.set_vlans(Vlans { names, ports });
    record(&mut network);
    let outside = Topology {
        switches: topology.switches.clone(),
        links: topology.links.clone(),
        hosts: extra,
    };
    topology.introduce(&mut network);
    outside.introduce(&mut network);
    for round in 1..4 {
        all_hear(&mut network, &topology, 1000 * round);
        all_hear(&mut network, &outside, 1000 * round + 500);
        network.run_for(ms(200));
    }
    let costs = all_hear(&mut network, &topology, 9000);
    assert!(costs.iter().all(|cost| *cost == 1), "{costs:?}");
    let costs = all_hear(&mut network, &outside, 9500);
    assert!(costs.iter().all(|cost| *cost == 1), "{costs:?}");
    for host in topology.hosts.iter().chain(&outside.hosts) {
        let heard = numbers(&network, *host);
        let of_others = match outside.hosts.contains(host) {
            true => 9000..9500,
            false => 9500..9999,
        };
        assert_eq!(heard.range(of_others).count(), 0, "{host:?}");
    }
    assert_eq!(trees(&network, &topology).len(), 2);
    let before = [FLOW_MOD, GROUP_MOD].map(|t| heard(&network, &topology, t));
    network.kill_controller();
    network.start_controller(99);
    network.run_for(ms(3000));
    all_hear(&mut network, &topology, 10_000);
    all_hear(&mut network, &outside, 10_500);
    let after = [FLOW_MOD, GROUP_MOD].map(|t| heard(&network, &topology, t));
    assert_eq!(after, before, "a restart takes them over");
    network.set_vlans(Vlans::default());
    network.run_for(ms(2000));
    assert_eq!(trees(&network, &topology).len(), 1, "its VLAN is no more");
}
