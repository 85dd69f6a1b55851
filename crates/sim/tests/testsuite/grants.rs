//! Edges set entries without asking: no more than there is room for, where the table is small.

use clock::ms;
use control::controller::ControllerConfig;
use control::timeouts::{FirstPackets, Timeouts};
use openflow::{DatapathId, Version};
use sim::network::{HostId, Network, NetworkConfig, SwitchId};

const VERSIONS: [Version; 2] = [Version::V13, Version::V10];

/// The number of entries that fit into the switch's table.
const LIMIT: u32 = 100;

/// Hosts of one switch whose pairs, 240, are more than fit, all sending at once.
fn crowd(version: Version) -> (Network, SwitchId, u64) {
    let controller = ControllerConfig {
        timeouts: Timeouts {
            table_entries_max: Some(LIMIT),
            first_packets: FirstPackets::Controller,
            ..Timeouts::default()
        },
        ..ControllerConfig::default()
    };
    let config = NetworkConfig {
        version,
        entries_max: LIMIT as usize,
        ..controller.into()
    };
    let mut network = Network::new(config, 1);
    let at = network.add_switch();
    let hosts: Vec<HostId> = (0..16).map(|_| network.add_host(at)).collect();
    network.run_for(ms(2000));
    let mut sent = 0;
    for from in &hosts {
        for to in hosts.iter().filter(|to| *to != from) {
            network.stream(*from, *to, sent, 50, ms(100));
            sent += 50;
        }
    }
    (network, at, sent)
}

#[test]
fn edges_fill_no_table_and_nothing_is_lost() {
    for version in VERSIONS {
        let (mut network, at, sent) = crowd(version);
        let mut most = 0;
        for _ in 0..400 {
            network.run_for(ms(20));
            most = most.max(network.switch(at).entries().count());
        }
        let arrived: usize = network
            .hosts()
            .map(|h| network.host(h).datagrams.len())
            .sum();
        assert_eq!(arrived as u64, sent, "{version:?}");
        assert_eq!(network.errors().count(), 0, "{version:?}: at most {most}");
        assert!((50..=LIMIT as usize).contains(&most), "{version:?}: {most}");
        let connection = network.connection(at).expect("it is up");
        let edge = network.process().edge(connection).expect("it has one");
        let counters = edge.counters();
        assert!(counters.entries_withheld > 100, "{version:?}: {counters:?}");
        assert!(counters.flow_mods >= 50, "{version:?}: {counters:?}");
    }
}

/// Where no limit is known, edges have none.
#[test]
fn an_edge_with_room_withholds_nothing() {
    let mut network = Network::new(NetworkConfig::default(), 1);
    let at = network.add_switch();
    let hosts: Vec<HostId> = (0..16).map(|_| network.add_host(at)).collect();
    network.run_for(ms(2000));
    for (n, from) in hosts.iter().enumerate() {
        network.stream(*from, hosts[(n + 1) % 16], n as u64 * 10, 5, ms(100));
    }
    network.run_for(ms(2000));
    let connection = network.connection(at).expect("it is up");
    let edge = network.process().edge(connection).expect("it has one");
    assert_eq!(edge.counters().entries_withheld, 0);
}

/// A switch's database reports the limit before the switch connects, and later a new one.
#[test]
fn a_limit_that_a_database_tells_holds_as_one_that_is_configured() {
    let dpid = DatapathId(1);
    let mut network = Network::new(NetworkConfig::default(), 1);
    network.ask(|controller, now| controller.set_table_limit(now, dpid, Some(LIMIT)));
    let at = network.add_switch_as(dpid);
    network.run_for(ms(2000));
    let limit = |network: &mut Network| {
        let tables = network.ask(|controller, _| controller.switches());
        tables[0].table.limit
    };
    assert_eq!(limit(&mut network), Some(LIMIT));
    assert!(network.connection(at).is_some());
    network.ask(|controller, now| controller.set_table_limit(now, dpid, Some(2 * LIMIT)));
    assert_eq!(limit(&mut network), Some(2 * LIMIT));
    network.ask(|controller, now| controller.set_table_limit(now, dpid, None));
    let own = NetworkConfig::default().entries_max as u32;
    assert_eq!(limit(&mut network), Some(own), "as the switch says itself");

    // A limit configured for a switch is meant to apply whatever the switch reports.
    let timeouts = Timeouts {
        switches: [(dpid, 50)].into(),
        table_entries_max: Some(70),
        ..Timeouts::default()
    };
    network.ask(|controller, now| controller.set_timeouts(now, timeouts));
    network.ask(|controller, now| controller.set_table_limit(now, dpid, Some(LIMIT)));
    assert_eq!(limit(&mut network), Some(50));
    let timeouts = Timeouts {
        table_entries_max: Some(70),
        ..Timeouts::default()
    };
    network.ask(|controller, now| controller.set_timeouts(now, timeouts));
    assert_eq!(
        limit(&mut network),
        Some(LIMIT),
        "the database knows better"
    );
}
