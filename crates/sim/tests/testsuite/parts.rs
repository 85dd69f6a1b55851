//! A network in parts: once it is certain that no path of links joins two switches, the controller
//! carries nothing between them. It carries everything before, and where something else joins them.
//!
//! `PARTS_SEEDS=17..18 cargo test -p auster-sim --test testsuite parts::` runs one seed.

#![allow(
    clippy::disallowed_methods,
    reason = "a test reads its environment and uses all cores"
)]

use std::collections::{BTreeMap, BTreeSet};

use clock::{Duration, SplitMix64, ms};
use control::controller::{ControllerConfig, Event, FabricConfig};
use control::vlan::{PortVlans, VlanId, Vlans};
use openflow::MacAddr;
use openflow::packet::build::ethernet;
use sim::network::{HostId, LinkId, Network};
use sim::topology::{self, Topology};

use crate::seeds;

/// The EtherType of frames here, one for experiments (IEEE 802, 9.2.3).
const ETH_TYPE: u16 = 0x88b5;

/// Longer than the time for which the parts must be the same.
const QUIET: Duration = ms(5500);

/// Both modes of forwarding.
fn networks() -> [Network; 2] {
    let fabric = ControllerConfig {
        fabric: Some(FabricConfig::default()),
        ..ControllerConfig::default()
    };
    [ControllerConfig::default(), fabric].map(|controller| Network::new(controller.into(), 1))
}

fn dropped(network: &Network) -> u64 {
    network.process().controller.counters().packets_no_way
}

/// The number of parts in each event, and 1 for each event that all is one again.
fn parts(network: &Network) -> Vec<usize> {
    let parts = network.events().filter_map(|event| match event {
        Event::NoWay { parts, .. } => Some(*parts),
        Event::NoWayMended => Some(1),
        _ => None,
    });
    parts.collect()
}

/// A line of four switches that know each other's hosts, some time after its start.
fn line(network: &mut Network) -> (Topology, LinkId) {
    let line = topology::line(network, 4);
    line.introduce(network);
    assert!(line.silent_pairs(network, 1).is_empty());
    let cable = line.links[1];
    (line, cable)
}

/// Whether an echo request of one host is answered by the other.
fn talks(network: &mut Network, (from, to): (HostId, HostId), seq: u16) -> bool {
    network.ping(from, to, seq);
    network.run_for(ms(300));
    let ip = network.host(to).address.ip;
    network.host(from).pongs.contains_key(&(ip, seq))
}

/// The number of hosts of `to` that receive a broadcast.
fn hear(network: &mut Network, from: HostId, to: &[HostId], number: u8) -> usize {
    for host in to {
        network.host_mut(*host).record = true;
    }
    let mac = network.host(from).address.mac;
    let frame = ethernet(mac, MacAddr::BROADCAST, ETH_TYPE, &[number; 46]);
    network.inject(from, frame.clone());
    network.run_for(ms(100));
    let heard = to
        .iter()
        .filter(|host| network.host(**host).recorded.contains(&frame));
    heard.count()
}

#[test]
fn a_cut_cable_ends_what_it_carried() {
    for mut network in networks() {
        let (line, cable) = line(&mut network);
        let hosts = &line.hosts;
        let (across, within) = ((hosts[0], hosts[3]), (hosts[0], hosts[1]));
        assert_eq!(parts(&network), []);
        network.set_link(cable, false);
        network.run_for(QUIET);
        assert_eq!(parts(&network), [2], "one event for a change");
        let before = dropped(&network);
        assert!(!talks(&mut network, across, 10));
        assert!(talks(&mut network, within, 10));
        assert!(dropped(&network) > before);
        network.stream(hosts[1], hosts[2], 100, 50, ms(1));
        network.run_for(ms(500));
        assert!(network.host(hosts[2]).datagrams.is_empty());
        assert_eq!(hear(&mut network, hosts[0], hosts, 1), 1, "its own part");
        assert_eq!(parts(&network), [2]);
        network.set_link(cable, true);
        network.run_for(ms(2000));
        assert!(line.silent_pairs(&mut network, 11).is_empty());
        assert_eq!(hear(&mut network, hosts[0], hosts, 2), 3);
        network.run_for(QUIET);
        assert_eq!(parts(&network), [2, 1]);
    }
}

/// Until it is certain that a link has not merely been missed, the controller carries packets.
#[test]
fn a_moment_after_a_change_packets_are_carried() {
    for mut network in networks() {
        let (line, cable) = line(&mut network);
        network.set_link(cable, false);
        for seq in 10..14 {
            network.run_for(ms(1000) - ms(300));
            assert!(talks(&mut network, (line.hosts[0], line.hosts[3]), seq));
        }
    }
}

/// Switches that have just connected may have a path over one that has not connected yet.
#[test]
fn islands_are_apart_half_a_minute_after_they_have_connected() {
    for mut network in networks() {
        let switches = [(); 2].map(|()| network.add_switch());
        let hosts = switches.map(|switch| network.add_host(switch));
        let line = Topology {
            switches: switches.into(),
            links: Vec::new(),
            hosts: hosts.into(),
        };
        line.introduce(&mut network);
        network.run_for(ms(25_000));
        assert!(talks(&mut network, (hosts[0], hosts[1]), 1));
        assert_eq!(parts(&network), []);
        network.run_for(ms(5000));
        assert!(!talks(&mut network, (hosts[0], hosts[1]), 2));
        assert_eq!(hear(&mut network, hosts[0], &hosts, 1), 0);
        assert_eq!(parts(&network), [2]);
        network.link(switches[0], switches[1]);
        network.run_for(ms(2000));
        assert!(talks(&mut network, (hosts[0], hosts[1]), 3));
    }
}

/// A foreign switch joins the parts: LLDP does not pass it, but broadcasts do.
#[test]
fn parts_that_something_else_joins_are_one() {
    for mut network in networks() {
        network.set_lldp_loss(1_000_000);
        let (line, _) = line(&mut network);
        for seq in 10..20 {
            network.run_for(ms(7000));
            assert!(line.silent_pairs(&mut network, seq).is_empty(), "{seq}");
        }
        assert_eq!(dropped(&network), 0);
        assert_eq!(parts(&network), []);
    }
}

/// The same if no host has sent anything before the parts were apart.
#[test]
fn a_broadcast_shows_what_joins_the_parts() {
    for mut network in networks() {
        network.set_lldp_loss(1_000_000);
        let line = topology::line(&mut network, 2);
        network.run_for(ms(40_000));
        assert_eq!(parts(&network), [2]);
        line.introduce(&mut network);
        for seq in 1..3 {
            line.silent_pairs(&mut network, seq);
        }
        assert!(line.silent_pairs(&mut network, 3).is_empty());
        network.run_for(QUIET);
        assert_eq!(parts(&network), [2, 1]);
    }
}

/// A switch that has lost its controller may still forward, and nobody knows whether it does.
#[test]
fn a_lost_switch_between_them_keeps_parts_together() {
    for mut network in networks() {
        let (line, _) = line(&mut network);
        network.set_away(line.switches[1], Duration::from_secs(100_000));
        network.disconnect(line.switches[1]);
        network.run_for(ms(30_000));
        assert!(talks(&mut network, (line.hosts[0], line.hosts[3]), 10));
        assert_eq!(parts(&network), []);
        network.set_link(line.links[0], false);
        network.run_for(QUIET);
        assert!(!talks(&mut network, (line.hosts[0], line.hosts[3]), 11));
        assert_eq!(parts(&network), [2]);
    }
}

/// A cable that drops everything while its ports stay up.
#[test]
fn a_dark_cable_is_no_way() {
    for mut network in networks() {
        let (line, cable) = line(&mut network);
        network.set_dark(cable, true);
        network.run_for(ms(12_000));
        assert!(!talks(&mut network, (line.hosts[0], line.hosts[3]), 10));
        network.set_dark(cable, false);
        network.run_for(ms(6000));
        assert!(line.silent_pairs(&mut network, 11).is_empty());
        network.run_for(QUIET);
        assert_eq!(parts(&network), [2, 1]);
    }
}

/// The parts stay apart through other changes on either side.
#[test]
fn changes_elsewhere_carry_nothing() {
    for mut network in networks() {
        let (line, cable) = line(&mut network);
        let ring = network.link(line.switches[0], line.switches[1]);
        network.run_for(ms(2000));
        network.set_link(cable, false);
        network.run_for(QUIET);
        let mut heard = BTreeSet::new();
        for seq in 10..30 {
            network.set_link(ring, seq % 2 == 0);
            network.disconnect(line.switches[2]);
            network.run_for(ms(700));
            if talks(&mut network, (line.hosts[0], line.hosts[3]), seq) {
                heard.insert(seq);
            }
        }
        assert!(heard.is_empty(), "{heard:?}");
        assert_eq!(parts(&network), [2]);
    }
}

/// Hosts of a VLAN are apart as those outside of all are.
#[test]
fn a_cut_cable_cuts_a_vlan() {
    let [_, mut network] = networks();
    let line = topology::line(&mut network, 4);
    let vlan = VlanId::new(10).expect("a VLAN");
    let ports = line
        .hosts
        .iter()
        .map(|host| (network.place(*host), PortVlans::Access(vlan)));
    network.set_vlans(Vlans {
        names: [(vlan, "ten".to_owned())].into(),
        ports: ports.collect(),
    });
    line.introduce(&mut network);
    assert!(line.silent_pairs(&mut network, 1).is_empty());
    network.set_link(line.links[1], false);
    network.run_for(QUIET);
    assert_eq!(line.silent_pairs(&mut network, 2).len(), 8);
    assert_eq!(hear(&mut network, line.hosts[0], &line.hosts, 1), 1);
    assert!(dropped(&network) > 0);
    network.set_link(line.links[1], true);
    network.run_for(ms(2000));
    line.silent_pairs(&mut network, 3);
    assert!(line.silent_pairs(&mut network, 4).is_empty());
}

/// The part of each switch by the actual cables, named by its first switch.
fn cabled(network: &Network, line: &Topology, cut: &BTreeSet<LinkId>) -> BTreeMap<u64, u64> {
    let dpids = line.switches.iter().map(|switch| switch.0 as u64 + 1);
    let mut of: BTreeMap<u64, u64> = dpids.map(|dpid| (dpid, dpid)).collect();
    for link in line.links.iter().filter(|link| !cut.contains(link)) {
        let ends: Vec<u64> = network
            .link_ends(*link)
            .iter()
            .map(|end| of[&end.dpid.0])
            .collect();
        let [first, last] = [ends[0].min(ends[1]), ends[0].max(ends[1])];
        of.values_mut()
            .filter(|of| **of == last)
            .for_each(|of| *of = first);
    }
    of
}

/// Cuts cables of a random network at random, after other faults. Afterwards exactly the pairs that
/// have a path talk, and nothing is carried to others. All talk when the cables are back.
fn run(seed: u64) -> Result<(), String> {
    let mut random = SplitMix64::new(seed);
    let mut below = move |end: usize| (random.next() % end as u64) as usize;
    let [paths, fabric] = networks();
    let mut network = if seed.is_multiple_of(2) {
        paths
    } else {
        fabric
    };
    let size = 3 + below(5);
    let line = topology::random(&mut network, size, below(4), seed);
    line.introduce(&mut network);
    for _ in 0..below(4) {
        match below(3) {
            0 => network.disconnect(line.switches[below(size)]),
            1 => {
                network.kill_controller();
                network.start_controller(seed + 1);
            }
            _ => {
                let link = line.links[below(line.links.len())];
                network.set_link(link, false);
                network.run_for(ms(below(9000) as u64));
                network.set_link(link, true);
            }
        }
        network.run_for(ms(below(1500) as u64));
    }
    network.run_for(ms(35_000));
    line.silent_pairs(&mut network, 1);
    let cut: BTreeSet<LinkId> = line
        .links
        .iter()
        .copied()
        .filter(|_| below(2) == 0)
        .collect();
    for link in &cut {
        network.set_link(*link, false);
        network.run_for(ms(below(300) as u64));
    }
    network.run_for(QUIET);
    let of = cabled(&network, &line, &cut);
    let home = |network: &Network, host: HostId| of[&network.place(host).dpid.0];
    let is_apart = |network: &Network, (a, b)| home(network, a) != home(network, b);
    let apart: Vec<_> = line
        .pairs()
        .filter(|pair| is_apart(&network, *pair))
        .collect();
    let silent = line.silent_pairs(&mut network, 2);
    if silent != apart {
        return Err(format!("silent: {silent:?}, without a way: {apart:?}"));
    }
    for host in &line.hosts {
        let wanted = line
            .hosts
            .iter()
            .filter(|to| home(&network, **to) == home(&network, *host));
        let wanted = wanted.count() - 1;
        let number = host.0 as u8 + 1;
        let heard = hear(&mut network, *host, &line.hosts, number);
        if heard != wanted {
            return Err(format!(
                "{heard} hear the broadcast of {host:?}, not {wanted}"
            ));
        }
    }
    let count = of.values().collect::<BTreeSet<_>>().len();
    let told = parts(&network);
    if told.last().copied().unwrap_or(1) != count {
        return Err(format!("told {told:?} of {count} parts"));
    }
    for link in &cut {
        network.set_link(*link, true);
    }
    network.run_for(ms(3000));
    line.silent_pairs(&mut network, 3);
    match line.silent_pairs(&mut network, 4) {
        silent if silent.is_empty() => Ok(()),
        silent => Err(format!("cables are back, and silent: {silent:?}")),
    }
}

#[test]
fn random_networks_in_parts() {
    seeds::run_all("PARTS_SEEDS", 0..60, |seed, _| run(seed));
}
