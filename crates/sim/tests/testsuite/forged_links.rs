//! Hosts that forward LLDP, and cables that the file does not list.

use std::collections::BTreeSet;

use clock::{Duration, ms};
use control::controller::{Alarm, ControllerConfig, Event, LinkPolicy, Location};
use control::topology::Topology;
use openflow::packet::build::arp_request;
use sim::network::{HostId, Network};
use sim::topology::{self, Topology as Built};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn network(controller: ControllerConfig) -> Network {
    Network::new(controller.into(), 1)
}

/// A line of three, whose outer hosts have talked.
fn talked() -> (Network, Built, [HostId; 2]) {
    let mut network = network(ControllerConfig::default());
    let line = topology::line(&mut network, 3);
    let (a, b) = (line.hosts[0], line.hosts[2]);
    network.run_for(secs(2));
    for seq in 0..3 {
        network.ping(a, b, seq);
        network.ping(b, a, seq);
        network.run_for(ms(100));
    }
    assert_eq!(network.host(a).pongs.len(), 3);
    (network, line, [a, b])
}

/// The two hosts relay each other's LLDP, and send nothing else.
fn relay(network: &mut Network, [a, b]: [HostId; 2], time: Duration) {
    let end = network.now() + time;
    for host in [a, b] {
        network.host_mut(host).silent = true;
        network.host_mut(host).record = true;
    }
    while network.now() < end {
        network.run_for(ms(5));
        for (from, to) in [(a, b), (b, a)] {
            let heard = std::mem::take(&mut network.host_mut(from).recorded);
            let is_lldp = |frame: &Vec<u8>| frame.get(12..14) == Some(&[0x88, 0xcc]);
            for frame in heard.into_iter().filter(is_lldp) {
                network.inject(to, frame);
            }
        }
    }
}

fn alarms(network: &Network, of: impl Fn(&Alarm) -> bool) -> usize {
    let is_it = |event: &&Event| matches!(event, Event::Alarm(alarm) if of(alarm));
    network.events().filter(is_it).count()
}

fn is_relayed(alarm: &Alarm) -> bool {
    matches!(alarm, Alarm::LldpForged { why, .. } if why.contains("with hosts"))
}

fn is_turned(alarm: &Alarm) -> bool {
    matches!(alarm, Alarm::EdgeBecameLink { .. })
}

/// Checks that there is no link for nearly the hold-down and an alarm at once, and that the link
/// then comes up, with another alarm.
fn assert_held_down(network: &mut Network, hosts: [HostId; 2], what: &str) {
    let before = network.process().controller.links().len();
    relay(network, hosts, secs(25));
    assert_eq!(network.process().controller.links().len(), before, "{what}");
    let relayed = alarms(network, is_relayed);
    assert!(
        (1..=2).contains(&relayed),
        "{what}: {relayed} alarms, one a minute and port"
    );
    assert_eq!(alarms(network, is_turned), 0, "{what}");
    relay(network, hosts, secs(12));
    let links = network.process().controller.links().len();
    assert_eq!(links, before + 2, "{what}: it may as well be a new cable");
    assert!(alarms(network, is_turned) >= 1, "{what}: and is told");
}

fn bounce(network: &mut Network, hosts: [HostId; 2]) {
    for up in [false, true] {
        for host in hosts {
            let link = network.link_of(host);
            network.set_link(link, up);
        }
        network.run_for(ms(500));
    }
}

#[test]
fn hosts_that_take_their_ports_down_are_remembered() {
    let (mut network, _, hosts) = talked();
    bounce(&mut network, hosts);
    assert_held_down(&mut network, hosts, "after a bounce");
}

#[test]
fn hosts_are_remembered_over_a_reconnect_of_their_switch() {
    let (mut network, line, hosts) = talked();
    network.disconnect(line.switches[2]);
    bounce(&mut network, hosts);
    network.run_for(secs(1));
    assert_held_down(&mut network, hosts, "after a reconnect");
}

#[test]
fn hosts_are_remembered_when_their_switch_was_lost() {
    let (mut network, line, hosts) = talked();
    // Cut off for longer than its grace: the switch that returns is a new one.
    let part = sim::network::Part::Switch(line.switches[2]);
    network.stop(part);
    network.run_for(secs(40));
    network.cont(part);
    relay(&mut network, hosts, secs(3));
    network.run_for(ms(1));
    assert_held_down(&mut network, hosts, "after the switch was lost");
}

#[test]
fn entries_tell_a_new_controller_where_hosts_were() {
    let (mut network, _, hosts) = talked();
    network.kill_controller();
    network.start_controller(99);
    relay(&mut network, hosts, secs(20));
    let links = network.process().controller.links().len();
    assert_eq!(links, 4, "two cables, both ways");
    assert!(alarms(&network, is_relayed) >= 1);
}

/// A link that may be two hosts carries only traffic without another path: no new conversations,
/// and none that a cut has led there for a while, even after another bounce. The topology ends the
/// doubt.
#[test]
fn what_hosts_hand_on_carries_nothing_that_can_go_another_way() {
    let (mut network, line, hosts) = talked();
    let (x, y) = (
        network.add_host(line.switches[0]),
        network.add_host(line.switches[2]),
    );
    bounce(&mut network, hosts);
    assert_held_down(&mut network, hosts, "after a bounce");
    let mut seq = 0;
    let mut answered = |network: &mut Network| {
        let before = network.host(x).pongs.len();
        for _ in 0..10 {
            network.ping(x, y, seq);
            relay(network, hosts, ms(200));
            seq += 1;
        }
        network.host(x).pongs.len() - before
    };
    assert_eq!(answered(&mut network), 10, "a new pair");

    network.set_link(line.links[0], false);
    relay(&mut network, hosts, secs(1));
    assert!(answered(&mut network) == 0, "there is no other way");
    network.set_link(line.links[0], true);
    relay(&mut network, hosts, secs(15));
    assert_eq!(answered(&mut network), 10, "the cable is back");

    bounce(&mut network, hosts);
    relay(&mut network, hosts, secs(40));
    assert_eq!(network.process().controller.links().len(), 6);
    assert_eq!(answered(&mut network), 10, "after another bounce");

    // The operator states that it is a cable. It is the shortest path for all but the first packet,
    // which the controller delivers.
    let forged = (network.place(hosts[0]), network.place(hosts[1]));
    let said = Topology::new([], &[forged], &[]).unwrap();
    let set = network.ask(|controller, now| controller.set_topology(now, Some(said)));
    assert_eq!(set, Ok(()));
    network.run_for(secs(120));
    relay(&mut network, hosts, secs(5));
    assert!(answered(&mut network) <= 1, "the hosts swallow it");
}

/// Hosts that speak while LLDP is relayed past them keep the link from coming up, and are served.
#[test]
fn hosts_that_speak_are_no_cable() {
    let (mut network, line, [a, b]) = talked();
    for host in [a, b] {
        network.host_mut(host).record = true;
    }
    for seq in 0..600 {
        if seq % 10 == 0 {
            network.ping(a, line.hosts[1], 100 + seq);
        }
        network.run_for(ms(100));
        for (from, to) in [(a, b), (b, a)] {
            let heard = std::mem::take(&mut network.host_mut(from).recorded);
            let is_lldp = |frame: &Vec<u8>| frame.get(12..14) == Some(&[0x88, 0xcc]);
            heard
                .into_iter()
                .filter(is_lldp)
                .for_each(|frame| network.inject(to, frame));
        }
    }
    assert_eq!(network.process().controller.links().len(), 4);
    assert_eq!(alarms(&network, is_turned), 0);
    assert!(
        network.host(a).pongs.len() > 50,
        "{}",
        network.host(a).pongs.len()
    );
}

#[test]
fn a_stated_edge_is_never_a_link() {
    let mut network = network(ControllerConfig::default());
    let line = topology::line(&mut network, 3);
    let hosts = [line.hosts[0], line.hosts[2]];
    let edges: BTreeSet<Location> = hosts.iter().map(|host| network.place(*host)).collect();
    let mut network = self::network(ControllerConfig {
        edge_ports: edges,
        ..ControllerConfig::default()
    });
    let line = topology::line(&mut network, 3);
    let hosts = [line.hosts[0], line.hosts[2]];
    relay(&mut network, hosts, secs(60));
    assert_eq!(network.process().controller.links().len(), 4);
    let heard = &network.host(hosts[0]).recorded;
    let lldp = heard
        .iter()
        .filter(|frame| frame.get(12..14) == Some(&[0x88, 0xcc]));
    assert_eq!(lldp.count(), 0, "no LLDP goes out there");
}

/// A ring of three with two of its cables in the file: the third raises an alarm and is never
/// used, nor flooded to, and the links of the file come up.
#[test]
fn links_that_are_not_stated_are_not_used_where_links_are_enforced() {
    let mut plain = network(ControllerConfig::default());
    let ring = topology::ring(&mut plain, 3);
    let ends = |network: &Network, n: usize| match network.link_ends(ring.links[n])[..] {
        [a, b] => (a, b),
        _ => unreachable!("a cable has two ends"),
    };
    let stated = [ends(&plain, 0), ends(&plain, 1)];
    let unstated = ends(&plain, 2);
    let topology = Topology::new([], &stated, &[]).unwrap();
    let mut network = self::network(ControllerConfig {
        topology: Some(topology),
        links: LinkPolicy::Enforce,
        ..ControllerConfig::default()
    });
    let ring = topology::ring(&mut network, 3);
    for n in 0..100u32 {
        let host = ring.hosts[n as usize % 3];
        let address = network.host(host).address;
        network.inject(
            host,
            arp_request(address, std::net::Ipv4Addr::from(0x0a00_0900 + n)),
        );
        network.run_for(ms(100));
    }
    let found = network.process().controller.links();
    assert_eq!(found.len(), 4);
    assert!(
        found
            .iter()
            .all(|link| link.from != unstated.0 && link.to != unstated.0)
    );
    let is_told = |alarm: &Alarm| matches!(alarm, Alarm::LinkNotStated { .. });
    assert!(
        (1..=2).contains(&alarms(&network, is_told)),
        "one a minute and port"
    );
    assert!(network.process().controller.counters().alarms_damped > 10);
    // A question leaves by two other edges, and over the host's own cable: it reaches no link.
    assert!(
        network.carried < 100 * 4 + 4000,
        "{} packets",
        network.carried
    );
    // The operator states the third as well, and then takes it back.
    let all = Topology::new([], &[stated[0], stated[1], unstated], &[]).unwrap();
    let two = Topology::new([], &stated, &[]).unwrap();
    for (said, links) in [(all, 6), (two, 4)] {
        let set = network.ask(|controller, now| controller.set_topology(now, Some(said)));
        assert_eq!(set, Ok(()));
        network.run_for(secs(5));
        assert_eq!(network.process().controller.links().len(), links);
    }
}

/// LLDP that a slow control channel has delayed is ours and no forgery.
#[test]
fn our_own_late_lldp_is_counted_and_no_alarm() {
    let (mut network, line, _) = talked();
    let part = sim::network::Part::Relay(line.switches[1]);
    for _ in 0..5 {
        network.stop(part);
        network.run_for(secs(9));
        network.cont(part);
        network.run_for(secs(3));
    }
    assert_eq!(network.process().controller.links().len(), 4);
    assert_eq!(alarms(&network, |_| true), 0);
}
