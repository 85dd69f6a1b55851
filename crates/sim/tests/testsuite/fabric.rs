//! Forwarding by labels: what it costs, what it survives, and where it is not used.

use clock::{Duration, SplitMix64, ms};
use control::controller::{Alarm, ControllerConfig, Drained, Event, FabricConfig};
use control::entry::EntryKind;
use control::fabric::{Label, form};
use control::pipeline::{LABEL_TABLE, Numbering};
use openflow::message::{ErrorMessage, FlowMod, GroupType};
use openflow::table::SwitchOptions;
use openflow::{DatapathId, ErrorKind, MacAddr, Match, Message, Version, Xid, encode};
use sim::network::{HostId, LinkId, Network, NetworkConfig, SwitchId};
use sim::topology::{self, Topology};

const FLOW_MOD: u8 = 14;
const GROUP_MOD: u8 = 15;

fn network(seed: u64) -> Network {
    network_of(seed, FabricConfig::default())
}

fn network_of(seed: u64, fabric: FabricConfig) -> Network {
    Network::new(config(fabric), seed)
}

fn config(fabric: FabricConfig) -> NetworkConfig {
    let controller = ControllerConfig {
        fabric: Some(fabric),
        ..ControllerConfig::default()
    };
    controller.into()
}

fn heard(network: &Network, topology: &Topology, kind: u8) -> u64 {
    let switches = topology.switches.iter();
    switches.map(|switch| network.heard(*switch, kind)).sum()
}

/// A conversation costs one entry each way, however far apart its hosts are.
#[test]
fn a_new_pair_costs_an_entry_each_way_on_any_distance() {
    for length in [4, 12] {
        let mut network = network(1);
        let topology = topology::line(&mut network, length);
        topology.introduce(&mut network);
        let (a, b) = (topology.hosts[0], topology.hosts[length - 2]);
        let before = [FLOW_MOD, GROUP_MOD].map(|t| heard(&network, &topology, t));
        network.ping(a, b, 1);
        network.run_for(ms(50));
        let after = [FLOW_MOD, GROUP_MOD].map(|t| heard(&network, &topology, t));
        assert_eq!(
            after[0] - before[0],
            2,
            "an entry each way over {length} switches"
        );
        assert_eq!(after[1], before[1], "no group");
        assert_eq!(network.host(a).pongs.len(), 1);
        assert_eq!(network.process().controller.path_count(), 0);
        for (view, switch) in
            (network.process().controller.switches().iter()).zip(&topology.switches)
        {
            let entries = network.switch(*switch).entries();
            let kinds = entries.map(|entry| EntryKind::of(entry.cookie));
            let led = kinds
                .filter(|kind| matches!(kind, Some(EntryKind::Fabric | EntryKind::Tree)))
                .count();
            let own = network.process().controller.entries(view.dpid).count();
            assert_eq!(view.flow_count, led + own, "a line has no detours");
        }
    }
}

#[test]
fn all_pairs_of_every_topology_talk() {
    type Build = fn(&mut Network) -> Topology;
    let builds: [(&str, Build); 5] = [
        ("line", |network| topology::line(network, 6)),
        ("ring", |network| topology::ring(network, 7)),
        ("leaf-spine", |network| {
            topology::leaf_spine(network, 2, 4, 2)
        }),
        ("fat tree", |network| topology::fat_tree(network, 4)),
        ("torus", |network| topology::torus(network, 3, 3)),
    ];
    for (name, build) in builds {
        let mut network = network(2);
        let topology = build(&mut network);
        topology.introduce(&mut network);
        let silent = topology.silent_pairs(&mut network, 1);
        assert!(silent.is_empty(), "{name}: {silent:?}");
        assert_eq!(network.process().controller.path_count(), 0, "{name}");
        assert_eq!(network.errors().count(), 0, "{name}");
    }
}

/// A ring has no shortest alternate: packets turn back at the break. Only packets on the cable are
/// lost.
#[test]
fn a_link_of_a_ring_fails_and_no_packet_is_lost() {
    for cut in 0..3 {
        let mut network = network(3);
        let topology = topology::ring(&mut network, 8);
        topology.introduce(&mut network);
        let (a, b) = (topology.hosts[0], topology.hosts[3]);
        for seq in 0..2 {
            network.ping(a, b, seq);
            network.run_for(ms(100));
        }
        network.stream(a, b, 1000, 1000, ms(1));
        network.run_for(Duration::from_micros(300_500));
        let before = heard(&network, &topology, GROUP_MOD);
        network.set_link(topology.links[cut], false);
        network.run_for(ms(1500));
        let got = &network.host(b).datagrams;
        let lost = (1000..2000u64).filter(|n| !got.contains_key(n)).count();
        assert!(lost <= 1, "link {cut}: {lost} packets of 1,000 lost");
        assert!(
            got.values().all(|count| *count == 1),
            "link {cut}: no duplicates"
        );
        let sent = heard(&network, &topology, GROUP_MOD) - before;
        assert!(sent <= 3 * 8 * 8, "link {cut}: {sent} group-mods");
        let silent = topology.silent_pairs(&mut network, 9);
        assert!(silent.is_empty(), "link {cut}: {silent:?}");
    }
}

/// A link that was dark and is found again takes its traffic back without loss.
#[test]
fn a_dark_link_that_returns_costs_nothing() {
    for activation_delay in [ms(0), ms(17)] {
        let config = NetworkConfig {
            activation_delay,
            ..config(FabricConfig::default())
        };
        let mut network = Network::new(config, 4);
        let topology = topology::ring(&mut network, 8);
        topology.introduce(&mut network);
        let (a, b) = (topology.hosts[0], topology.hosts[2]);
        assert_eq!(topology.silent_pairs(&mut network, 1), []);
        network.set_dark(topology.links[1], true);
        network.run_for(ms(8000));
        let numbers = 1000..31_000;
        network.stream(a, b, numbers.start, 30_000, Duration::from_micros(100));
        network.run_for(ms(100));
        network.set_dark(topology.links[1], false);
        network.run_for(ms(4000));
        let arrivals = network.host(b).arrivals.iter();
        let arrived = arrivals.filter(|n| numbers.contains(n)).count();
        assert_eq!(arrived, 30_000, "{activation_delay:?}");
        assert_eq!(network.host(b).passed, 3);
    }
}

/// The number of switches that a new packet between two hosts passes.
fn passed(network: &mut Network, from: HostId, to: HostId, number: u64) -> Option<usize> {
    network.stream(from, to, number, 1, ms(1));
    network.run_for(ms(50));
    let host = network.host(to);
    host.datagrams.get(&number).map(|_| host.passed)
}

/// A link that drops full-size frames with a tag still carries LLDP, and would take small packets
/// only. The fabric does not use a link before a full-size frame has passed.
#[test]
fn a_narrow_link_is_named_and_not_used_until_it_is_wide() {
    let mut network = network(5);
    let topology = topology::ring(&mut network, 5);
    let narrow = topology.links[0];
    network.set_longest(narrow, 1514);
    topology.introduce(&mut network);
    let (a, b) = (topology.hosts[0], topology.hosts[1]);
    assert_eq!(topology.silent_pairs(&mut network, 1), []);
    let named = |network: &Network| {
        let is_it = |event: &&Event| matches!(event, Event::Alarm(Alarm::LinkNarrow { .. }));
        network.events().filter(is_it).count()
    };
    assert_eq!(named(&network), 0);
    assert_eq!(passed(&mut network, a, b, 9), Some(5), "not known yet");
    network.run_for(ms(8000));
    assert_eq!(named(&network), 1, "the link once");
    assert_eq!(passed(&mut network, a, b, 10), Some(5));
    assert_eq!(topology.silent_pairs(&mut network, 2), []);
    network.set_longest(narrow, usize::MAX);
    network.run_for(ms(10_000));
    assert_eq!(passed(&mut network, a, b, 11), Some(2));
    assert_eq!(named(&network), 1, "nothing new");
}

/// All datapaths but one follow their tables a while later. Each switch of a changing route waits
/// for those behind it, so that a stream which leaves a link and returns loses nothing.
#[test]
fn a_planned_change_loses_nothing_where_datapaths_are_late() {
    let config = NetworkConfig {
        activation_delay: ms(17),
        ..config(FabricConfig::default())
    };
    let mut network = Network::new(config, 4);
    let topology = topology::ring(&mut network, 8);
    topology.introduce(&mut network);
    network.set_activation_delay(topology.switches[0], Duration::ZERO);
    let (a, b) = (topology.hosts[0], topology.hosts[2]);
    for seq in 0..2 {
        network.ping(a, b, seq);
        network.run_for(ms(200));
    }
    let numbers = 1000..13_000;
    network.stream(a, b, numbers.start, 12_000, Duration::from_micros(300));
    network.run_for(ms(500));
    for drained in [Some(topology.links[1]), None] {
        let links = drained.map(|link| network.link_ends(link)[0]);
        network.set_drained(Drained {
            links: links.into_iter().collect(),
            ..Drained::default()
        });
        network.run_for(ms(1500));
    }
    network.run_for(ms(1500));
    let arrivals = network.host(b).arrivals.iter();
    let arrived: Vec<u64> = arrivals.filter(|n| numbers.contains(n)).copied().collect();
    assert!(
        arrived.iter().copied().eq(numbers),
        "{} arrived in order",
        arrived.len()
    );
}

/// Switches that watch their links notice one that is dark. Groups lead around it at once, and the
/// controller changes routes without waiting for LLDP.
#[test]
fn a_link_that_is_not_live_is_left_at_once() {
    let mut network = network(6);
    let topology = topology::ring(&mut network, 6);
    topology.introduce(&mut network);
    assert_eq!(topology.silent_pairs(&mut network, 1), []);
    let (a, b) = (topology.hosts[0], topology.hosts[1]);
    let cut = topology.links[0];
    network.stream(a, b, 0, 1000, ms(1));
    network.run_for(ms(200));
    network.set_live(cut, false);
    network.run_for(ms(100));
    let links = network.process().controller.links().len();
    assert_eq!(links, 2 * 5, "the controller knows");
    network.run_for(ms(1000));
    let lost = 1000 - network.host(b).datagrams.len();
    assert!(lost <= 1, "{lost} packets of 1,000 lost");
    // The link stays unused while the switches call it dead, whatever LLDP shows.
    network.set_dark(cut, false);
    network.run_for(ms(5000));
    assert_eq!(network.process().controller.links().len(), 2 * 5);
    network.set_live(cut, true);
    network.run_for(ms(100));
    assert_eq!(network.process().controller.links().len(), 2 * 6);
    assert_eq!(topology.silent_pairs(&mut network, 2), []);
    assert_eq!(network.circled, 0);
}

/// The controller is away when the link fails: the groups do it alone.
#[test]
fn groups_protect_without_a_controller() {
    let mut network = network(4);
    let topology = topology::ring(&mut network, 6);
    topology.introduce(&mut network);
    let (a, b) = (topology.hosts[0], topology.hosts[2]);
    network.ping(a, b, 1);
    network.run_for(ms(200));
    assert_eq!(network.host(a).pongs.len(), 1);
    network.kill_controller();
    for (n, link) in topology.links.clone().into_iter().enumerate() {
        network.set_link(link, false);
        network.run_for(ms(5));
        let seq = 10 + n as u16;
        network.ping(a, b, seq);
        network.run_for(ms(50));
        let ip = network.host(b).address.ip;
        assert!(
            network.host(a).pongs.contains_key(&(ip, seq)),
            "link {n} is down"
        );
        network.set_link(link, true);
        network.run_for(ms(5));
    }
}

/// A restarted controller takes everything over: not one message changes a table.
#[test]
fn a_restart_changes_nothing() {
    let mut network = network(5);
    let topology = topology::leaf_spine(&mut network, 4, 4, 2);
    topology.introduce(&mut network);
    assert_eq!(topology.silent_pairs(&mut network, 1), []);
    network.kill_controller();
    network.run_for(ms(100));
    let before = [FLOW_MOD, GROUP_MOD].map(|t| heard(&network, &topology, t));
    network.start_controller(77);
    network.run_for(ms(5000));
    let after = [FLOW_MOD, GROUP_MOD].map(|t| heard(&network, &topology, t));
    assert_eq!(after, before);
    let (a, b) = (topology.hosts[0], topology.hosts[7]);
    network.ping(a, b, 9);
    network.run_for(ms(200));
    assert_eq!(topology.silent_pairs(&mut network, 10), []);
    let after = [FLOW_MOD, GROUP_MOD].map(|t| heard(&network, &topology, t));
    assert_eq!(
        after, before,
        "entries of all conversations are still there"
    );
}

/// Switches at different distances from the controller: it finds a link before it has read what the
/// switch at the other end holds, and waits for that.
#[test]
fn a_restart_changes_nothing_where_some_switches_answer_later() {
    for seed in 0..60 {
        let mut network = network(seed);
        let mut random = SplitMix64::new(seed);
        let topology = match seed % 2 {
            0 => topology::random(&mut network, 8, 6, seed),
            _ => topology::leaf_spine(&mut network, 3, 4, 1),
        };
        for switch in &topology.switches {
            network.set_away(*switch, Duration::from_micros(random.next() % 3000));
        }
        topology.introduce(&mut network);
        assert_eq!(topology.silent_pairs(&mut network, 1), []);
        let before = [FLOW_MOD, GROUP_MOD].map(|t| heard(&network, &topology, t));
        network.kill_controller();
        network.start_controller(77);
        network.run_for(ms(5000));
        let after = [FLOW_MOD, GROUP_MOD].map(|t| heard(&network, &topology, t));
        assert_eq!(after, before, "seed {seed}");
    }
}

/// A link fails and returns under traffic, at switches that take their changes at different times:
/// routes turn one after the other, so that no packet meets a switch twice.
#[test]
fn routes_turn_without_circles_where_some_switches_take_them_later() {
    for seed in 0..8 {
        let mut network = network(seed);
        let mut random = SplitMix64::new(seed);
        let topology = match seed % 2 {
            0 => topology::ring(&mut network, 4 + (seed % 5) as usize),
            _ => topology::random(&mut network, 8, 4, seed),
        };
        for switch in &topology.switches {
            network.set_away(*switch, Duration::from_micros(random.next() % 10_000));
        }
        topology.introduce(&mut network);
        assert_eq!(topology.silent_pairs(&mut network, 1), []);
        let link = topology.links[(random.next() % topology.links.len() as u64) as usize];
        for is_up in [false, true] {
            for (n, (from, to)) in topology.pairs().enumerate() {
                network.stream(from, to, n as u64 * 10_000, 700, ms(2));
            }
            network.set_link(link, is_up);
            network.run_for(ms(1500));
        }
        assert_eq!(network.circled, 0, "seed {seed}");
    }
}

/// A host moves to another switch. Packets that still go to its former one reach the controller,
/// and the entry that sent them is deleted.
#[test]
fn a_host_moves() {
    let mut network = network(6);
    let topology = topology::line(&mut network, 5);
    topology.introduce(&mut network);
    let (a, b) = (topology.hosts[0], topology.hosts[2]);
    network.ping(a, b, 1);
    network.run_for(ms(200));
    assert_eq!(network.host(a).pongs.len(), 1);
    network.move_host(b, topology.switches[4], true);
    network.run_for(ms(1000));
    network.resolve(b, a);
    network.run_for(ms(300));
    for seq in 2..6 {
        network.ping(a, b, seq);
        network.run_for(ms(100));
    }
    assert_eq!(network.host(a).pongs.len(), 5);
    assert_eq!(network.errors().count(), 0);
}

/// The warnings about the fabric.
fn warnings(network: &Network) -> Vec<Alarm> {
    let of_fabric = |event: &Event| match event {
        Event::Alarm(
            alarm @ (Alarm::FabricFull { .. }
            | Alarm::FabricRefused { .. }
            | Alarm::FabricUnshared { .. }),
        ) => Some(alarm.clone()),
        _ => None,
    };
    network.events().filter_map(of_fabric).collect()
}

/// The switches that hold groups.
fn group_holders(network: &Network, topology: &Topology) -> Vec<usize> {
    let holds = |at: &usize| network.switch(topology.switches[*at]).group_count() > 0;
    (0..topology.switches.len()).filter(holds).collect()
}

/// Two labels for five switches with hosts: one warning for each of the others, and all pairs talk.
#[test]
fn more_egresses_than_labels_fall_back_to_paths() {
    let fabric = FabricConfig {
        egress_count_max: 2,
        ..FabricConfig::default()
    };
    let mut network = network_of(8, fabric);
    let topology = topology::line(&mut network, 5);
    topology.introduce(&mut network);
    let silent = topology.silent_pairs(&mut network, 1);
    assert_eq!(silent, []);
    assert!(network.process().controller.path_count() > 0);
    network.run_for(ms(30_000));
    assert_eq!(topology.silent_pairs(&mut network, 2), []);
    let warnings = warnings(&network);
    let mut named: Vec<u64> = warnings
        .iter()
        .filter_map(|alarm| match alarm {
            Alarm::FabricFull { dpid } => Some(dpid.0),
            _ => None,
        })
        .collect();
    named.sort_unstable();
    named.dedup();
    assert_eq!((warnings.len(), named.len()), (3, 3), "{warnings:?}");
    assert_eq!(network.errors().count(), 0);
}

/// A switch in the middle has room for one group only. It is named once and left out, with nothing
/// left behind. All pairs talk, and the fabric continues on both sides of it.
#[test]
fn a_switch_that_refuses_groups_is_left_out() {
    let mut network = network(9);
    let topology = line_with(&mut network, 5, 2, |options| options.groups_max = 1);
    topology.introduce(&mut network);
    assert_eq!(topology.silent_pairs(&mut network, 1), []);
    network.run_for(ms(5000));
    assert_eq!(topology.silent_pairs(&mut network, 2), []);
    let warnings = warnings(&network);
    let dpid = DatapathId(3);
    assert!(
        matches!(&warnings[..], [Alarm::FabricRefused { dpid: of, .. }] if *of == dpid),
        "{warnings:?}"
    );
    assert_eq!(group_holders(&network, &topology), [0, 1, 3, 4]);
    let left = network.switch(topology.switches[2]).entries();
    let is_fabric = |cookie| EntryKind::of(cookie) == Some(EntryKind::Fabric);
    assert_eq!(left.filter(|entry| is_fabric(entry.cookie)).count(), 0);
}

/// A line with a host at each switch, one of which has options of its own.
fn line_with(
    network: &mut Network,
    length: usize,
    at: usize,
    change: impl Fn(&mut SwitchOptions),
) -> Topology {
    let mut topology = Topology {
        switches: Vec::new(),
        links: Vec::new(),
        hosts: Vec::new(),
    };
    for n in 0..length {
        let dpid = DatapathId(n as u64 + 1);
        let switch = match n == at {
            true => network.add_switch_with(dpid, &change),
            false => network.add_switch_as(dpid),
        };
        if let Some(last) = topology.switches.last() {
            topology.links.push(network.link(*last, switch));
        }
        topology.switches.push(switch);
        topology.hosts.push(network.add_host(switch));
    }
    topology
}

/// A switch takes no select groups. It is named once, uses the first of equal paths, and loses
/// nothing, also when the second path appears or the controller restarts.
#[test]
fn a_switch_that_refuses_to_share_uses_the_first_of_equal_paths() {
    let mut network = network(11);
    let refuses = |options: &mut SwitchOptions| {
        options.group_types &= !(1 << GroupType::Select as u32);
    };
    let mut topology = line_with(&mut network, 4, 0, refuses);
    let ends = [3, 0].map(|n| topology.switches[n]);
    let closing = network.link(ends[0], ends[1]);
    network.set_link(closing, false);
    topology.links.push(closing);
    topology.introduce(&mut network);
    assert_eq!(topology.silent_pairs(&mut network, 1), []);
    assert_eq!(warnings(&network), []);
    let (a, c) = (topology.hosts[0], topology.hosts[2]);
    network.stream(a, c, 0, 12_000, ms(1));
    network.stream(c, a, 0, 12_000, ms(1));
    network.set_link(closing, true);
    network.run_for(ms(5000));
    let named = |network: &Network| {
        let warnings = warnings(network);
        let is_it =
            |alarm: &&Alarm| matches!(alarm, Alarm::FabricUnshared { dpid, .. } if dpid.0 == 1);
        assert_eq!(
            warnings.iter().filter(is_it).count(),
            warnings.len(),
            "{warnings:?}"
        );
        warnings.len()
    };
    assert_eq!(named(&network), 1);
    let shares = |network: &Network, n: usize| {
        let groups = network.switch(topology.switches[n]).groups();
        groups
            .filter(|group| group.group_type == GroupType::Select)
            .count()
    };
    assert_eq!([0, 1, 2, 3].map(|n| shares(&network, n)), [0, 1, 1, 1]);
    network.disconnect(topology.switches[0]);
    network.run_for(ms(3000));
    assert_eq!(named(&network), 1);
    network.kill_controller();
    network.start_controller(77);
    network.run_for(ms(5000));
    assert_eq!(named(&network), 1, "the new one warns as well");
    for host in [a, c] {
        assert_eq!(network.host(host).datagrams.len(), 12_000);
    }
    assert_eq!(topology.silent_pairs(&mut network, 2), []);
    assert_eq!(network.process().controller.path_count(), 0);
    assert_eq!(network.circled, 0);
}

/// The same where it refuses the groups of the first routes.
#[test]
fn a_switch_that_refuses_to_share_from_the_start_is_in_the_fabric() {
    for seed in 0..8 {
        let mut network = network(seed);
        let refuses = |options: &mut SwitchOptions| {
            options.group_types &= !(1 << GroupType::Select as u32);
        };
        let mut topology = line_with(&mut network, 4, 0, refuses);
        let ends = [3, 0].map(|n| topology.switches[n]);
        topology.links.push(network.link(ends[0], ends[1]));
        for (n, switch) in topology.switches.iter().enumerate() {
            network.set_away(*switch, Duration::from_micros(seed * n as u64 * 700));
        }
        topology.introduce(&mut network);
        assert_eq!(topology.silent_pairs(&mut network, 1), [], "seed {seed}");
        let warnings = warnings(&network);
        assert!(
            matches!(
                &warnings[..],
                [Alarm::FabricUnshared {
                    dpid: DatapathId(1),
                    ..
                }]
            ),
            "seed {seed}: {warnings:?}"
        );
        assert_eq!(network.process().controller.path_count(), 0, "seed {seed}");
    }
}

/// The number of packets that each spine has forwarded.
fn passed_on(network: &Network, spines: &[SwitchId]) -> Vec<u64> {
    let labels = Numbering::Access.switch_number(LABEL_TABLE);
    let labelled = |switch: &SwitchId| {
        let entries = network.switch(*switch).entries();
        let labelled = entries.filter(|e| e.table_id == labels && e.priority > 0);
        labelled.map(|e| e.packet_count).sum()
    };
    spines.iter().map(labelled).collect()
}

/// Conversations between two leaves use all spines, and each keeps to one. The switches leave a
/// lost spine without the controller.
#[test]
fn conversations_share_equal_paths() {
    const PACKETS: u64 = 20;
    let mut network = network(12);
    let topology = topology::leaf_spine(&mut network, 4, 2, 5);
    let spines = &topology.switches[..4];
    topology.introduce(&mut network);
    assert_eq!(topology.silent_pairs(&mut network, 1), []);
    let (here, there) = topology.hosts.split_at(5);
    let mut shares = [0; 4];
    let mut number = 0;
    let mut converse = |network: &mut Network, from: HostId, to: HostId| {
        let before = passed_on(network, spines);
        network.stream(from, to, number, PACKETS, ms(1));
        network.run_for(ms(50));
        let arrived = network.host(to).datagrams.range(number..).count();
        number += PACKETS;
        let passed = passed_on(network, spines).into_iter().zip(before);
        let passed: Vec<u64> = passed.map(|(after, before)| after - before).collect();
        let spine = passed.iter().position(|count| *count == PACKETS);
        assert_eq!((arrived as u64, passed.iter().sum()), (PACKETS, PACKETS));
        spine.expect("one spine takes all of a conversation")
    };
    for (from, to) in here
        .iter()
        .flat_map(|a| there.iter().map(move |b| (*a, *b)))
    {
        shares[converse(&mut network, from, to)] += 1;
    }
    assert!(shares.iter().all(|share| *share >= 2), "{shares:?}");
    network.kill_controller();
    let (from, to) = (here[0], there[0]);
    let used = converse(&mut network, from, to);
    let is_used = |link: &&LinkId| {
        let ends = network.link_ends(**link);
        ends.iter().map(|end| end.dpid.0).eq([used as u64 + 1, 5])
    };
    let cut = *topology.links.iter().find(is_used).expect("a link");
    network.set_link(cut, false);
    assert_ne!(converse(&mut network, from, to), used);
}

/// A switch refuses the tag of an edge's entry: it is left out, and its packets take paths.
#[test]
fn a_switch_that_refuses_the_tag_is_left_out() {
    let mut network = network(10);
    let topology = topology::line(&mut network, 4);
    topology.introduce(&mut network);
    assert_eq!(topology.silent_pairs(&mut network, 1), []);
    assert_eq!(network.process().controller.path_count(), 0);
    let entry = FlowMod {
        cookie: EntryKind::Local.cookie(1),
        ..FlowMod::add(
            2000,
            Match::any(),
            form::ingress_actions(0x8100, Label::MAX),
        )
    };
    let frame = encode(Version::V13, Xid(7), &Message::FlowMod(entry)).expect("a flow-mod");
    let error = |kind| Message::Error(ErrorMessage::new(kind, frame.bytes().slice(..64)));
    let at = topology.switches[1];
    network.say(at, Xid(7), &error(ErrorKind::ACTION_BAD_OUT_GROUP));
    network.run_for(ms(500));
    assert_eq!(warnings(&network), [], "the group may have gone meanwhile");
    for _ in 0..3 {
        network.say(at, Xid(7), &error(ErrorKind::ACTION_BAD_ARGUMENT));
        network.run_for(ms(500));
    }
    let warnings = warnings(&network);
    assert!(
        matches!(&warnings[..], [Alarm::FabricRefused { dpid, .. }] if dpid.0 == 2),
        "{warnings:?}"
    );
    assert_eq!(topology.silent_pairs(&mut network, 2), []);
    assert_eq!(
        group_holders(&network, &topology),
        [2, 3],
        "the first is alone"
    );
}

/// A host gains nothing by tagging its own packets with a label.
#[test]
fn a_host_cannot_choose_a_label() {
    let mut network = network(7);
    let topology = topology::line(&mut network, 3);
    topology.introduce(&mut network);
    let (a, b) = (topology.hosts[0], topology.hosts[2]);
    network.ping(a, b, 1);
    network.run_for(ms(100));
    network.host_mut(b).record = true;
    let before = network.host(b).recorded.len();
    let stranger = MacAddr([2, 9, 9, 9, 9, 9]);
    for label in 4080u16..=4094 {
        for tag in [0x8100u16, 0x88a8] {
            let target = network.host(b).address.mac;
            let mut frame = [&target.0[..], &stranger.0].concat();
            frame.extend(tag.to_be_bytes());
            frame.extend(label.to_be_bytes());
            frame.extend([0x12, 0x34]);
            frame.extend([0; 46]);
            network.inject(a, frame);
            network.run_for(ms(2));
        }
    }
    network.run_for(ms(100));
    let arrived = &network.host(b).recorded[before..];
    let popped = |frame: &&Vec<u8>| frame.get(12..14) == Some(&[0x12, 0x34]);
    assert_eq!(
        arrived.iter().filter(popped).count(),
        0,
        "no switch took a tag off"
    );
}
