//! The administrator's topology, beside the actual network.

use clock::Duration;
use control::controller::{Controller, ControllerConfig, Event, Location, Mode};
use control::topology::{Difference, Place, Topology};
use openflow::packet::build::udp;
use openflow::{DatapathId, MacAddr, PortNo};
use sim::network::{HostId, Network};
use sim::topology::{self, Topology as Built};

fn build(mode: Mode, said: Option<Topology>) -> (Network, Built) {
    let controller = ControllerConfig {
        mode,
        topology: said,
        ..ControllerConfig::default()
    };
    let mut network = Network::new(controller.into(), 1);
    let line = topology::line(&mut network, 3);
    (network, line)
}

fn mac(network: &Network, id: HostId) -> MacAddr {
    network.host(id).address.mac
}

type Link = (Location, Location);

/// The hosts of a line of three as they are, and the links as a controller has found them.
fn hosts_and_links() -> (Vec<(MacAddr, Place)>, Vec<Link>) {
    let (mut network, line) = build(Mode::Reactive, None);
    network.run_for(Duration::from_secs(2));
    let place = |id: &HostId| {
        let ip = Some(network.host(*id).address.ip.into());
        let at = network.place(*id);
        (mac(&network, *id), Place { at, ip })
    };
    let found = network.process().controller.links();
    let once = found.iter().filter(|link| link.from < link.to);
    let links: Vec<_> = once.map(|link| (link.from, link.to)).collect();
    assert_eq!(links.len(), 2, "both links are found");
    (line.hosts.iter().map(place).collect(), links)
}

/// Packet-ins other than those of discovery.
fn packet_ins(controller: &Controller) -> u64 {
    let counters = controller.counters();
    counters.packet_ins - counters.lldp_accepted
}

fn told(network: &Network) -> Vec<Difference> {
    let told = network.events().filter_map(|event| match event {
        Event::TopologyDiffers(difference) => Some(difference.clone()),
        _ => None,
    });
    told.collect()
}

/// No host has sent anything, and yet the first packet of a pair takes its path. The path stays for
/// long.
#[test]
fn in_hybrid_mode_known_paths_are_there_before_traffic() {
    let (hosts, links) = hosts_and_links();
    let said = Topology::new([], &links, &hosts).unwrap();
    let (mut network, line) = build(Mode::Hybrid, Some(said));
    network.run_for(Duration::from_secs(5));
    assert_eq!(told(&network), []);
    for (number, wait) in [(1, 1), (2, 600), (3, 1)] {
        network.run_for(Duration::from_secs(wait));
        let (from, to) = (line.hosts[0], line.hosts[2]);
        let (a, b) = (network.host(from).address, network.host(to).address);
        let before = packet_ins(&network.process().controller);
        let mut payload = u64::to_be_bytes(number).to_vec();
        payload.resize(100, 0);
        network.inject(from, udp(a, b, (1000, 2000), &payload));
        network.run_for(Duration::from_secs(1));
        assert_eq!(packet_ins(&network.process().controller), before);
        assert_eq!(network.host(to).datagrams.get(&number), Some(&1));
    }
}

#[test]
fn in_reactive_mode_a_first_packet_still_comes_up() {
    let (hosts, links) = hosts_and_links();
    let said = Topology::new([], &links, &hosts).unwrap();
    let (mut network, line) = build(Mode::Reactive, Some(said));
    network.run_for(Duration::from_secs(5));
    let (from, to) = (line.hosts[0], line.hosts[2]);
    let (a, b) = (network.host(from).address, network.host(to).address);
    let before = packet_ins(&network.process().controller);
    network.inject(from, udp(a, b, (1000, 2000), &1u64.to_be_bytes()));
    network.run_for(Duration::from_secs(1));
    assert_eq!(packet_ins(&network.process().controller), before + 1);
    // Its destination is known all the same: nothing is flooded.
    assert_eq!(network.process().controller.counters().flooded, 0);
    assert_eq!(network.host(to).datagrams.get(&1), Some(&1));
}

#[test]
fn what_differs_is_told_once_and_again_when_nothing_does() {
    let (hosts, links) = hosts_and_links();
    let said = Topology::new([], &links, &hosts).unwrap();
    let (mut network, line) = build(Mode::Reactive, Some(said));
    network.run_for(Duration::from_secs(5));
    assert_eq!(told(&network), []);
    network.set_link(line.links[0], false);
    network.run_for(Duration::from_secs(10));
    let (a, b) = links[0];
    assert_eq!(told(&network), [Difference::LinkMissing(a, b)]);
    assert_eq!(
        network.process().controller.topology_differences(),
        told(&network)
    );
    network.set_link(line.links[0], true);
    network.run_for(Duration::from_secs(10));
    let agreed = |event: &&Event| **event == Event::TopologyAgrees;
    assert_eq!(network.events().filter(agreed).count(), 1);
    assert_eq!(network.process().controller.topology_differences(), []);
}

/// A port that a connected switch lacks is a mistake in the file, and the file is refused.
#[test]
fn a_topology_with_a_port_that_is_not_there_is_refused() {
    let (hosts, links) = hosts_and_links();
    let said = Topology::new([], &links, &hosts).unwrap();
    let (mut network, _) = build(Mode::Reactive, Some(said));
    network.run_for(Duration::from_secs(5));
    let dpid = links[0].0.dpid;
    let missing = Location::new(dpid, PortNo(77));
    let elsewhere = Location::new(DatapathId(99), PortNo(1));
    let wrong = [links[0], (missing, elsewhere)];
    let wrong = Topology::new([], &wrong, &[]).unwrap();
    let refused = network.ask(|controller, now| controller.set_topology(now, Some(wrong)));
    assert_eq!(refused, Err(vec![Difference::PortMissing(missing)]));
    let controller = &network.process().controller;
    assert_eq!(controller.topology_differences(), [], "the first is in use");
    let taken_out = network.ask(|controller, now| controller.set_topology(now, None));
    assert_eq!(taken_out, Ok(()));
    assert!(!network.process().controller.has_topology());
}
