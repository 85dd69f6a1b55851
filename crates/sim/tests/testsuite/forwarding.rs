//! All pairs reach each other, once, on every topology and in every mode.

use clock::Duration;
use control::controller::{ControllerConfig, Mode};
use openflow::Version;
use proptest::prelude::*;
use sim::network::{Network, NetworkConfig};
use sim::topology::{self, Topology};

const MODES: [Mode; 3] = [Mode::Reactive, Mode::Proactive, Mode::Hybrid];

fn network(mode: Mode, version: Version, seed: u64) -> Network {
    let controller = ControllerConfig {
        mode,
        ..ControllerConfig::default()
    };
    Network::new(
        NetworkConfig {
            version,
            ..controller.into()
        },
        seed,
    )
}

/// Pings between all pairs, one after the other, and their replies; then every host's records.
fn all_pairs_ping(mut network: Network, topology: &Topology) -> Network {
    network.run_for(Duration::from_millis(1500));
    for (i, from) in topology.hosts.iter().enumerate() {
        for (j, to) in topology.hosts.iter().enumerate() {
            if i != j {
                network.ping(*from, *to, j as u16);
                network.run_for(Duration::from_millis(20));
            }
        }
    }
    network.run_for(Duration::from_secs(1));
    for (i, from) in topology.hosts.iter().enumerate() {
        for (j, to) in topology.hosts.iter().enumerate() {
            let to = network.host(*to).address.ip;
            let expected = (i != j).then_some(1);
            let pongs = network.host(*from).pongs.get(&(to, j as u16)).copied();
            assert_eq!(pongs, expected, "host {i} asked host {j} once");
        }
    }
    for host in &topology.hosts {
        for (asked, count) in &network.host(*host).arp_heard {
            assert_eq!(*count, 1, "a broadcast came {count} times: {asked:?}");
        }
    }
    assert_eq!(network.errors().collect::<Vec<_>>(), []);
    network
}

#[test]
fn all_pairs_ping_on_every_topology_in_every_mode() {
    type Build = fn(&mut Network) -> Topology;
    let topologies: [(&str, Build); 6] = [
        ("one switch", |n| topology::leaf_spine(n, 0, 1, 4)),
        ("line", |n| topology::line(n, 5)),
        ("ring", |n| topology::ring(n, 5)),
        ("tree", |n| topology::tree(n, 2, 3)),
        ("leaf-spine", |n| topology::leaf_spine(n, 2, 3, 2)),
        ("fat tree", |n| topology::fat_tree(n, 4)),
    ];
    for mode in MODES {
        for (name, build) in topologies {
            println!("{name}, {mode:?}");
            let mut network = network(mode, Version::V13, 1);
            let topology = build(&mut network);
            all_pairs_ping(network, &topology);
        }
    }
}

/// Actions are lists, ports come with the features, cookies have no mask: the same outcome.
#[test]
fn all_pairs_ping_on_switches_of_openflow_1_0() {
    for mode in MODES {
        let mut network = network(mode, Version::V10, 1);
        let topology = topology::leaf_spine(&mut network, 2, 3, 2);
        all_pairs_ping(network, &topology);
    }
}

/// A network of switches 2 ms from the controller in each direction must be as right.
#[test]
fn a_distant_controller_changes_the_delay_and_nothing_else() {
    for mode in MODES {
        let controller = ControllerConfig {
            mode,
            ..ControllerConfig::default()
        };
        let config = NetworkConfig {
            control_delay: Duration::from_millis(2),
            ..controller.into()
        };
        let mut network = Network::new(config, 3);
        let topology = topology::ring(&mut network, 4);
        println!("{mode:?}");
        all_pairs_ping(network, &topology);
    }
}

/// The second ping of a pair must not come up: that is what entries are for.
#[test]
fn a_second_packet_does_not_meet_the_controller() {
    for mode in MODES {
        let mut network = network(mode, Version::V13, 1);
        let hosts = topology::line(&mut network, 3).hosts;
        network.run_for(Duration::from_secs(2));
        for seq in 0..2 {
            network.ping(hosts[0], hosts[2], seq);
            network.run_for(Duration::from_millis(50));
        }
        let lldp = |n: &Network| {
            let counters = n.process().controller.counters();
            counters.packet_ins - counters.lldp_accepted
        };
        let before = lldp(&network);
        for seq in 2..100 {
            network.ping(hosts[0], hosts[2], seq);
            network.run_for(Duration::from_millis(5));
        }
        assert_eq!(network.host(hosts[0]).pongs.len(), 100);
        assert_eq!(lldp(&network), before, "{mode:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Parallel links and links of a switch with itself are among them.
    #[test]
    fn all_pairs_ping_on_random_graphs(
        n in 2usize..9, extra in 0usize..8, seed in any::<u64>(), mode in 0usize..3,
    ) {
        let mut network = network(MODES[mode], Version::V13, seed);
        let topology = topology::random(&mut network, n, extra, seed);
        all_pairs_ping(network, &topology);
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let run = |seed| {
        let config = NetworkConfig {
            loss_ppm: 20_000,
            ..NetworkConfig::default()
        };
        let mut network = Network::new(config, seed);
        let hosts = topology::random(&mut network, 6, 5, 7).hosts;
        for seq in 0..200 {
            network.ping(hosts[seq % 6], hosts[(seq / 6) % 6], seq as u16);
            network.run_for(Duration::from_millis(10));
        }
        network.trace()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6), "or the trace says nothing");
}
