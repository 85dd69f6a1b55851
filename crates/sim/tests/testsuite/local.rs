//! Hosts of one switch, between whom its edge answers: as right as the controller's own paths.

use clock::{Duration, ms};
use control::controller::{ControllerConfig, Event, Mode};
use control::entry::{Entry, EntryKind};
use control::timeouts::Timeouts;
use openflow::packet::build::{arp_request, udp};
use openflow::{MacAddr, PortNo, Version};
use proptest::prelude::*;
use sim::network::{HostId, Network, NetworkConfig, SwitchId};

const CASES: [(Mode, Version); 4] = [
    (Mode::Reactive, Version::V13),
    (Mode::Reactive, Version::V10),
    (Mode::Hybrid, Version::V13),
    (Mode::Hybrid, Version::V10),
];

/// Two switches with a link, four hosts at the first and one at the second.
fn network(mode: Mode, version: Version, idle_timeout_s: u16) -> (Network, Hosts) {
    let controller = ControllerConfig {
        mode,
        timeouts: Timeouts {
            default: Timeouts::fixed(idle_timeout_s, 0).default,
            ..Timeouts::default()
        },
        ..ControllerConfig::default()
    };
    let config = NetworkConfig {
        version,
        ..controller.into()
    };
    let mut network = Network::new(config, 1);
    let (here, there) = (network.add_switch(), network.add_switch());
    network.link(here, there);
    let local = [(); 4].map(|()| network.add_host(here));
    let far = network.add_host(there);
    network.run_for(ms(2000));
    (
        network,
        Hosts {
            here,
            there,
            local,
            far,
        },
    )
}

struct Hosts {
    here: SwitchId,
    there: SwitchId,
    local: [HostId; 4],
    far: HostId,
}

fn ping_both_ways(network: &mut Network, a: HostId, b: HostId, seq: u16) {
    network.ping(a, b, seq);
    network.ping(b, a, seq);
    network.run_for(ms(100));
    let pongs = |of: HostId, from: HostId| {
        let from = network.host(from).address.ip;
        network.host(of).pongs.get(&(from, seq)).copied()
    };
    assert_eq!((pongs(a, b), pongs(b, a)), (Some(1), Some(1)), "ping {seq}");
}

/// The entries of edges in a switch: in-port, source, destination, out-port.
fn local_entries(network: &Network, at: SwitchId) -> Vec<(PortNo, MacAddr, MacAddr, PortNo)> {
    let entries = network.switch(at).entries();
    let entries = entries.filter_map(|entry| Entry::from_stats(&entry.stats(network.now())));
    let local = entries.filter(|entry| entry.kind == EntryKind::Local);
    let mut found: Vec<_> = local
        .filter_map(|e| Some((e.key.in_port?, e.key.eth_src?, e.key.eth_dst?, e.out)))
        .collect();
    found.sort();
    found
}

fn answered(network: &Network, at: SwitchId) -> u64 {
    let connection = network.connection(at).expect("connected");
    let edge = network.process().edge(connection).expect("there");
    edge.counters().packet_ins
}

#[test]
fn the_edge_answers_and_the_controller_keeps_no_path() {
    for (mode, version) in CASES {
        let (mut network, hosts) = network(mode, version, 2);
        for seq in 1..=2 {
            for (i, a) in hosts.local.into_iter().enumerate() {
                for b in &hosts.local[i + 1..] {
                    ping_both_ways(&mut network, a, *b, seq);
                }
            }
            if seq == 1 {
                // Their entries end, and all hosts know each other's addresses.
                network.run_for(ms(4000));
                assert_eq!(local_entries(&network, hosts.here), []);
            }
        }
        assert_eq!(network.process().controller.path_count(), 0);
        assert_eq!(local_entries(&network, hosts.here).len(), 12);
        assert!(answered(&network, hosts.here) > 0, "{mode:?} {version}");
        let packet_ins = |n: &Network| {
            let counters = n.process().controller.counters();
            counters.packet_ins - counters.lldp_accepted + answered(n, hosts.here)
        };
        let before = packet_ins(&network);
        ping_both_ways(&mut network, hosts.local[0], hosts.local[3], 3);
        assert_eq!(packet_ins(&network), before, "the entries are there");
        assert_eq!(network.errors().count(), 0);
    }
}

/// An answer to the packet would replace the path's entry, and the path's end would go unnoticed.
#[test]
fn a_stray_packet_between_hosts_of_one_switch_sets_no_path() {
    for (mode, version) in CASES {
        let (mut network, hosts) = network(mode, version, 60);
        let [a, b, ..] = hosts.local;
        ping_both_ways(&mut network, a, b, 1);
        let (from, to) = (network.host(a).address, network.host(b).address);
        // The port of the link at the other switch.
        network.inject_at(hosts.there, PortNo(1), udp(from, to, (1, 2), &[0; 8]));
        network.run_for(ms(100));
        let heard = network.host(b).datagrams.len();
        assert_eq!(heard, 1, "{mode:?} {version}: it is sent on");
        let paths = network.process().controller.path_count();
        assert_eq!(paths, 0, "{mode:?} {version}");
        assert_eq!(local_entries(&network, hosts.here).len(), 2);
    }
}

/// A packet sent out to its host returns where a switch hides a link from discovery.
#[test]
fn stray_packets_are_carried_at_a_rate() {
    let (mut network, hosts) = network(Mode::Reactive, Version::V13, 60);
    let [a, b, ..] = hosts.local;
    ping_both_ways(&mut network, a, b, 1);
    let (from, to) = (network.host(a).address, network.host(b).address);
    for _ in 0..60 {
        for _ in 0..150 {
            let stray = udp(from, to, (1, 2), &[0; 8]);
            network.inject_at(hosts.there, PortNo(1), stray);
        }
        network.run_for(ms(1));
    }
    network.run_for(ms(100));
    let limited = network.process().controller.counters();
    let limited = limited.packet_ins_half_way_limited;
    // All but 5,000, and 25 a millisecond.
    assert!((2300..=2700).contains(&limited), "{limited} of 9000");
}

#[test]
fn a_dead_port_takes_its_entries_along_and_no_other() {
    for (mode, version) in CASES {
        let (mut network, hosts) = network(mode, version, 60);
        let [a, b, c, _] = hosts.local;
        for (x, y) in [(a, b), (b, c), (a, c), (a, hosts.far)] {
            ping_both_ways(&mut network, x, y, 1);
        }
        let dead = network.place(b).port;
        // In hybrid mode, entries towards a host from a link are removed with the host.
        let others = |network: &Network| {
            let entries = network.switch(hosts.here).entries();
            entries.filter(|entry| entry.priority != 1000).count()
        };
        let before = others(&network);
        let link = network.link_of(b);
        network.set_link(link, false);
        network.run_for(ms(300));
        let left = local_entries(&network, hosts.here);
        assert!(left.iter().all(|e| e.0 != dead && e.3 != dead), "{left:?}");
        assert_eq!(left.len(), 2, "{mode:?} {version}: a and c still talk");
        assert_eq!(others(&network), before - 4);
        network.set_link(link, true);
        network.run_for(ms(1000));
        ping_both_ways(&mut network, a, b, 2);
    }
}

/// Moves to another port of the switch and to the other switch, with the old port down or not.
#[test]
fn a_host_that_moves_leaves_no_entry_behind() {
    for ((mode, version), unplug) in CASES.into_iter().flat_map(|c| [(c, true), (c, false)]) {
        for is_far in [false, true] {
            let (mut network, hosts) = network(mode, version, 60);
            let [a, b, ..] = hosts.local;
            ping_both_ways(&mut network, a, b, 1);
            let old = network.place(b).port;
            let to = if is_far { hosts.there } else { hosts.here };
            network.move_host(b, to, unplug);
            network.run_for(ms(700));
            let address = network.host(b).address;
            network.inject(b, arp_request(address, address.ip));
            network.run_for(ms(1300));
            ping_both_ways(&mut network, a, b, 2);
            let left = local_entries(&network, hosts.here);
            let what = format!("{mode:?} {version} unplug {unplug} far {is_far}: {left:?}");
            assert!(left.iter().all(|e| e.0 != old && e.3 != old), "{what}");
            assert_eq!(left.is_empty(), is_far, "{what}");
        }
    }
}

/// The victim is busy, and its edge answers all its packets: the packet of its port that the
/// controller sees now and then is its neighbour's. It has no IP address that anybody could ask.
/// Still a claim from the next port must not move it.
#[test]
fn a_host_whose_packets_the_edge_answers_is_not_taken_for_silent() {
    let (mut network, hosts) = network(Mode::Reactive, Version::V13, 60);
    let [victim, peer, attacker, _] = hosts.local;
    let mac = |n: u64| MacAddr::from_u64(0x0200_0000_9000 + n);
    let frame = |src: MacAddr, dst: MacAddr| [&dst.0[..], &src.0, &[0x88, 0xb5], &[7; 46]].concat();
    let silent = MacAddr([2, 7, 7, 7, 7, 7]);
    let neighbour = MacAddr([2, 7, 7, 7, 7, 8]);
    network.inject(victim, frame(silent, MacAddr::BROADCAST));
    network.inject(victim, frame(neighbour, MacAddr::BROADCAST));
    for n in 0..4000 {
        network.inject(peer, frame(mac(n), MacAddr::BROADCAST));
        network.run_for(ms(3));
    }
    // Each packet goes to another host, so that each is a packet-in.
    for n in 0..4000 {
        network.inject(victim, frame(neighbour, mac(n)));
        network.inject(victim, frame(silent, mac(n)));
        if n % 100 > 50 {
            network.inject(attacker, frame(silent, mac(n)));
        }
        network.run_for(ms(3));
    }
    assert!(answered(&network, hosts.here) > 1000, "or it says nothing");
    let hosts = network.process().controller.hosts();
    let found = hosts
        .iter()
        .find(|host| host.mac == silent)
        .map(|host| host.at);
    assert_eq!(found, Some(network.place(victim)));
    let moves = network
        .events()
        .filter(|e| matches!(e, Event::HostMoved { .. }));
    assert_eq!(moves.count(), 0);
}

/// The next process finds the entries that edges of the last one have set. Correct entries stay,
/// and show where the hosts are.
#[test]
fn a_restart_keeps_what_is_right_and_takes_out_what_is_not() {
    for (mode, version) in CASES {
        let (mut network, hosts) = network(mode, version, 60);
        let [a, b, c, _] = hosts.local;
        ping_both_ways(&mut network, a, b, 1);
        ping_both_ways(&mut network, b, c, 1);
        network.stream(a, b, 0, 6000, ms(1));
        network.run_for(ms(500));
        network.kill_controller();
        network.run_for(ms(500));
        network.start_controller(77);
        network.run_for(ms(6000));
        let got = &network.host(b).datagrams;
        let lost = (0..6000).filter(|n| !got.contains_key(n)).count();
        assert_eq!(lost, 0, "{mode:?} {version}");
        let known = network.process().controller.hosts();
        for host in [a, b, c] {
            let mac = network.host(host).address.mac;
            let at = known.iter().find(|h| h.mac == mac).map(|h| h.at);
            assert_eq!(at, Some(network.place(host)), "{mode:?} {version}");
        }
        assert_eq!(local_entries(&network, hosts.here).len(), 4);
        // Entries that the new process never set are removed with their port all the same.
        let link = network.link_of(b);
        network.set_link(link, false);
        network.run_for(ms(300));
        assert_eq!(
            local_entries(&network, hosts.here),
            [],
            "{mode:?} {version}"
        );
    }
}

#[test]
fn idle_entries_of_an_edge_are_forgotten_by_everybody() {
    let (mut network, hosts) = network(Mode::Reactive, Version::V13, 60);
    let [a, b, ..] = hosts.local;
    ping_both_ways(&mut network, a, b, 1);
    network.kill_controller();
    network.start_controller(5);
    network.run_for(ms(3000));
    network.run_for(Duration::from_secs(70));
    assert_eq!(network.switch(hosts.here).entries().count(), 2);
    for view in network.process().controller.switches() {
        assert_eq!(view.flow_count, 0, "and none is thought to be there");
    }
}

#[derive(Clone, Debug)]
enum Change {
    Ping(usize, usize),
    Unplug(usize),
    Plug(usize),
    Move(usize, bool),
    Reconnect,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        8 => (0usize..4, 0usize..4).prop_map(|(a, b)| Change::Ping(a, b)),
        2 => (0usize..4).prop_map(Change::Unplug),
        2 => (0usize..4).prop_map(Change::Plug),
        2 => (0usize..4, any::<bool>()).prop_map(|(a, far)| Change::Move(a, far)),
        1 => Just(Change::Reconnect),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever happens: when it is over, no entry of an edge leads where its host is not, and
    /// everybody reaches everybody.
    #[test]
    fn after_any_changes_everybody_is_reached(
        case in 0usize..4,
        changes in prop::collection::vec((change(), 1u64..400), 1..14),
    ) {
        let (mode, version) = CASES[case];
        let (mut network, hosts) = network(mode, version, 60);
        let mut is_down = [false; 4];
        for (n, (change, wait)) in changes.into_iter().enumerate() {
            match change {
                Change::Ping(a, b) => network.ping(hosts.local[a], hosts.local[b], 100 + n as u16),
                Change::Unplug(a) | Change::Plug(a) => {
                    is_down[a] = matches!(change, Change::Unplug(_));
                    let link = network.link_of(hosts.local[a]);
                    network.set_link(link, !is_down[a]);
                }
                Change::Move(a, is_far) => {
                    let to = if is_far { hosts.there } else { hosts.here };
                    network.move_host(hosts.local[a], to, true);
                    is_down[a] = false;
                }
                Change::Reconnect => network.disconnect(hosts.here),
            }
            network.run_for(ms(wait));
        }
        for host in hosts.local {
            let link = network.link_of(host);
            network.set_link(link, true);
        }
        network.run_for(ms(3000));
        for host in hosts.local {
            let address = network.host(host).address;
            network.inject(host, arp_request(address, address.ip));
        }
        // A claim that is not answered takes three probes; a switch may come back late.
        network.run_for(ms(6000));
        for (i, a) in hosts.local.into_iter().enumerate() {
            for b in &hosts.local[i + 1..] {
                network.ping(a, *b, 5000);
                network.run_for(ms(100));
                let ip = network.host(*b).address.ip;
                prop_assert_eq!(network.host(a).pongs.get(&(ip, 5000)), Some(&1));
            }
        }
        for at in [hosts.here, hosts.there] {
            for (in_port, src, dst, out) in local_entries(&network, at) {
                for (mac, port) in [(src, in_port), (dst, out)] {
                    let host = hosts.local.iter().find(|h| network.host(**h).address.mac == mac);
                    let place = network.place(*host.expect("one of ours"));
                    prop_assert_eq!(place, network.location(at, port));
                }
            }
        }
    }
}
