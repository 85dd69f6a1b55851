//! Limits, times, links and edges that change while a controller runs.

use std::collections::BTreeSet;

use clock::Duration;
use control::controller::{ControllerConfig, LinkPolicy, Location};
use control::topology::Topology;
use sim::network::Network;
use sim::topology;

fn build() -> (Network, ControllerConfig) {
    let config = ControllerConfig::default();
    let mut network = Network::new(config.clone().into(), 1);
    topology::line(&mut network, 3);
    network.run_for(Duration::from_secs(3));
    (network, config)
}

fn links(network: &Network) -> BTreeSet<(Location, Location)> {
    let links = network.process().controller.links();
    links.iter().map(|link| (link.from, link.to)).collect()
}

fn flow_mods(network: &Network) -> u64 {
    network.process().controller.counters().flow_mods
}

#[test]
fn limits_and_times_change_without_a_message_to_a_switch() {
    let (mut network, config) = build();
    let before = (links(&network), flow_mods(&network));
    let other = ControllerConfig {
        lldp_interval: Duration::from_millis(200),
        port_hold: Duration::from_millis(100),
        switch_grace: Duration::from_secs(1),
        host_count_max: 10,
        hosts_per_port_max: 2,
        path_count_max: 1,
        path_rate_max: 3,
        flood_rate_max: 2,
        flood_packet_outs_max: 100,
        ..config.clone()
    };
    let sent = network.process().controller.counters().packet_outs;
    network.ask(|controller, now| controller.set_limits(now, &other));
    assert_eq!(network.process().controller.counters().packet_outs, sent);
    network.run_for(Duration::from_secs(5));
    assert_eq!((links(&network), flow_mods(&network)), before);
    // LLDP is sent as often as it is now configured: the next was not due for a second.
    let often = network.process().controller.counters().lldp_accepted;
    network.run_for(Duration::from_secs(5));
    let often = network.process().controller.counters().lldp_accepted - often;
    assert!(often > 60, "{often} of about 100");
    network.ask(|controller, now| controller.set_limits(now, &config));
    network.run_for(Duration::from_secs(5));
    assert_eq!((links(&network), flow_mods(&network)), before);
}

#[test]
fn a_port_that_is_an_edge_from_now_on_has_no_link_and_one_that_is_none_gets_it_back() {
    let (mut network, config) = build();
    let all = links(&network);
    assert_eq!(all.len(), 4);
    let (edge, _) = *all.first().unwrap();
    let other = ControllerConfig {
        edge_ports: [edge].into(),
        ..config.clone()
    };
    network.ask(|controller, now| controller.set_limits(now, &other));
    let left = links(&network);
    assert_eq!(left.len(), 2, "both ways are gone at once");
    assert!(left.iter().all(|(from, to)| *from != edge && *to != edge));
    network.run_for(Duration::from_secs(5));
    assert_eq!(links(&network), left);
    network.ask(|controller, now| controller.set_limits(now, &config));
    network.run_for(Duration::from_secs(10));
    assert_eq!(links(&network), all);
}

#[test]
fn only_links_of_the_topology_stay_once_they_are_enforced() {
    let (mut network, config) = build();
    let all = links(&network);
    let stated = *all.first().unwrap();
    let topology = Topology::new([], &[stated], &[]).unwrap();
    let set = network.ask(|controller, now| controller.set_topology(now, Some(topology)));
    assert_eq!(set, Ok(()));
    let other = ControllerConfig {
        links: LinkPolicy::Enforce,
        ..config.clone()
    };
    network.ask(|controller, now| controller.set_limits(now, &other));
    network.run_for(Duration::from_secs(5));
    let (a, b) = stated;
    assert_eq!(links(&network), BTreeSet::from([(a, b), (b, a)]));
    network.ask(|controller, now| controller.set_limits(now, &config));
    network.run_for(Duration::from_secs(10));
    assert_eq!(links(&network), all);
}

#[test]
fn inspection_is_set_and_taken_out_of_every_switch() {
    let (mut network, config) = build();
    let before = flow_mods(&network);
    let other = ControllerConfig {
        arp_inspection: true,
        ..config.clone()
    };
    network.ask(|controller, now| controller.set_limits(now, &other));
    let set = flow_mods(&network) - before;
    assert!(
        set >= 3 && set.is_multiple_of(3),
        "the same on three switches: {set}"
    );
    network.ask(|controller, now| controller.set_limits(now, &other));
    assert_eq!(flow_mods(&network) - before, set, "nothing has changed");
    network.ask(|controller, now| controller.set_limits(now, &config));
    assert_eq!(
        flow_mods(&network) - before,
        2 * set,
        "they are taken out again"
    );
}
