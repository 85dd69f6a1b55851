//! Hosts are forgotten, and the traffic of one port takes nothing from the others.

use std::net::Ipv4Addr;

use clock::{Duration, ms};
use control::controller::{Alarm, ControllerConfig, ControllerCounters, Event, Mode};
use control::timeouts::{FlowClass, HostName, Timeouts};
use openflow::packet::build::{Host as Address, arp_reply, arp_request, ethernet, udp};
use openflow::{MacAddr, PortNo};
use sim::network::{HostId, Network, SwitchId};

fn network(controller: ControllerConfig) -> Network {
    Network::new(controller.into(), 1)
}

fn counters(network: &Network) -> ControllerCounters {
    network.process().controller.counters()
}

fn alarms(network: &Network, is_it: impl Fn(&Alarm) -> bool) -> usize {
    let alarms = network.events().filter(|event| match event {
        Event::Alarm(alarm) => is_it(alarm),
        _ => false,
    });
    alarms.count()
}

/// The address of a host that does not exist.
fn forged(n: u32) -> Address {
    let [_, a, b, c] = n.to_be_bytes();
    Address::new(MacAddr([6, 0, 0, a, b, c]), Ipv4Addr::new(172, a, b, c))
}

/// Forged hosts ask for an address, 50,000 of them a second.
fn forge(network: &mut Network, (switch, port): (SwitchId, PortNo), numbers: std::ops::Range<u32>) {
    for (sent, n) in numbers.enumerate() {
        let frame = arp_request(forged(n), Ipv4Addr::new(10, 200, 0, 1));
        network.inject_at(switch, port, frame);
        if sent % 50 == 49 {
            network.run_for(ms(1));
        }
    }
    network.run_for(ms(10));
}

fn pings(network: &mut Network, from: HostId, to: HostId, seq: u16) -> bool {
    network.ping(from, to, seq);
    network.run_for(ms(500));
    let ip = network.host(to).address.ip;
    network.host(from).pongs.get(&(ip, seq)) == Some(&1)
}

fn place(network: &Network, host: HostId) -> Option<control::controller::Location> {
    let mac = network.host(host).address.mac;
    let hosts = network.process().controller.hosts();
    hosts.into_iter().find(|h| h.mac == mac).map(|h| h.at)
}

/// Finding 4 a and F3. 65,536 addresses of one port once filled the host table for good: no host
/// could move, and nothing was forbidden to a new host.
#[test]
fn a_port_that_forges_addresses_neither_holds_others_nor_frees_who_is_forbidden() {
    let barred = FlowClass {
        name: "barred".to_owned(),
        src: Some(HostName::Ip(Ipv4Addr::new(10, 0, 0, 4).into())),
        dst: None,
        service: None,
        lifetime: None,
        first_packets: None,
        forbid: true,
        priority: false,
    };
    let timeouts = Timeouts {
        classes: vec![barred],
        ..Timeouts::default()
    };
    let mut network = network(ControllerConfig {
        timeouts,
        ..ControllerConfig::default()
    });
    let (here, there) = (network.add_switch(), network.add_switch());
    network.link(here, there);
    let attacker = network.add_port(here);
    let hosts = [here, there, there, here].map(|switch| network.add_host(switch));
    let [a, b, mover, barred] = hosts;
    network.run_for(ms(2000));
    assert!(pings(&mut network, a, mover, 1));
    forge(&mut network, (here, attacker), 1..70_000);
    let is_full = |alarm: &Alarm| matches!(alarm, Alarm::HostAddressesFull { .. });
    assert_eq!(alarms(&network, is_full), 1, "and it is said");
    assert!(pings(&mut network, a, b, 2), "new hosts are learned");
    assert!(
        !pings(&mut network, barred, b, 3),
        "forbidden before it was heard"
    );
    // The host changes its port while the old one stays up: the old place is asked.
    network.move_host(mover, here, false);
    network.run_for(ms(1000));
    network.ping(mover, a, 4);
    network.run_for(ms(2000));
    assert_eq!(place(&network, mover), Some(network.place(mover)));
    // The forbidden host stays forbidden.
    forge(&mut network, (here, attacker), 100_000..170_000);
    assert!(!pings(&mut network, barred, b, 5));
    let known = network.process().controller.host_counters();
    assert!(known.details_evicted > 0);
}

/// Finding 4 b in small: the port bounces sixteen times.
#[test]
fn a_port_that_bounces_leaves_room_and_is_forgotten_in_five_minutes() {
    let mut network = network(ControllerConfig {
        host_count_max: 8000,
        hosts_per_switch_max: 2000,
        hosts_per_port_max: 500,
        ..ControllerConfig::default()
    });
    let (here, there) = (network.add_switch(), network.add_switch());
    network.link(here, there);
    let attacker = network.add_host(here);
    let [a, b, late] = [here, there, there].map(|switch| network.add_host(switch));
    network.run_for(ms(2000));
    assert!(pings(&mut network, a, b, 1));
    let (port, cable) = (network.place(attacker).port, network.link_of(attacker));
    for round in 0..16 {
        forge(
            &mut network,
            (here, port),
            round * 500 + 1..round * 500 + 501,
        );
        network.set_link(cable, false);
        network.run_for(ms(200));
        network.set_link(cable, true);
        network.run_for(ms(1000));
    }
    let controller = &network.process().controller;
    assert!(
        controller.host_count() <= 500 + 2,
        "{}",
        controller.host_count()
    );
    assert!(pings(&mut network, late, a, 2), "who is new is learned");
    network.set_link(cable, false);
    network.run_for(Duration::from_secs(300));
    assert_eq!(network.process().controller.host_count(), 3);
}

/// A host that nobody hears is asked before it is forgotten; a host whose packets use entries is
/// not even asked.
#[test]
fn only_hosts_that_are_gone_are_forgotten() {
    for mode in [Mode::Reactive, Mode::Hybrid, Mode::Proactive] {
        let mut network = network(ControllerConfig {
            mode,
            host_idle: Duration::from_secs(600),
            ..ControllerConfig::default()
        });
        let (here, there) = (network.add_switch(), network.add_switch());
        network.link(here, there);
        let [quiet, gone, sender] = [here, here, here].map(|switch| network.add_host(switch));
        let receiver = network.add_host(there);
        network.run_for(ms(2000));
        assert!(pings(&mut network, sender, receiver, 1), "{mode:?}");
        assert!(pings(&mut network, quiet, receiver, 2), "{mode:?}");
        assert!(pings(&mut network, gone, receiver, 3), "{mode:?}");
        network.host_mut(gone).silent = true;
        network.host_mut(sender).silent = true;
        network.stream(sender, receiver, 0, 1500, Duration::from_secs(1));
        network.run_for(Duration::from_secs(1300));
        let is_known = |host| place(&network, host).is_some();
        assert!(is_known(quiet), "{mode:?}: it has answered");
        assert!(!is_known(gone), "{mode:?}");
        let carries = mode != Mode::Proactive;
        assert_eq!(is_known(sender), carries, "{mode:?}: its path is there");
        assert!(is_known(receiver), "{mode:?}");
        let controller = &network.process().controller;
        assert!(controller.host_counters().aged >= 1, "{mode:?}");
        // It comes back, and is known again.
        network.host_mut(gone).silent = false;
        assert!(pings(&mut network, gone, quiet, 4), "{mode:?}");
    }
}

/// Finding 12: the cost of all broadcasts is bounded in packet-outs per second, and one port that
/// storms leaves room for the others.
#[test]
fn broadcasts_cost_so_many_packet_outs_a_second_and_no_more() {
    const SWITCHES: usize = 40;
    let mut network = network(ControllerConfig {
        flood_packet_outs_max: 4000,
        ..ControllerConfig::default()
    });
    let switches: Vec<SwitchId> = (0..SWITCHES).map(|_| network.add_switch()).collect();
    let hosts: Vec<HostId> = switches.iter().map(|at| network.add_host(*at)).collect();
    network.run_for(ms(3000));
    let storm = |network: &mut Network, host: HostId| {
        let from = network.host(host).address;
        network.inject(
            host,
            ethernet(from.mac, MacAddr::BROADCAST, 0x88b5, &[0; 46]),
        );
    };
    let before = counters(&network);
    for _ in 0..5000 {
        storm(&mut network, hosts[0]);
        network.run_for(ms(2));
    }
    let after = counters(&network);
    let lldp = after.lldp_sent - before.lldp_sent;
    let spent = after.packet_outs - before.packet_outs - lldp;
    // A quarter of 4,000 a second for ten seconds, and one second's worth at once.
    assert!(
        (9_000..=11_500).contains(&spent),
        "{spent} packet-outs in 10 s"
    );
    let is_storm = |alarm: &Alarm| matches!(alarm, Alarm::BroadcastStorm { .. });
    assert_eq!(alarms(&network, is_storm), 0, "not for long yet");
    // Others' broadcasts pass meanwhile.
    for _ in 0..1000 {
        storm(&mut network, hosts[0]);
        network.run_for(ms(2));
    }
    assert_eq!(alarms(&network, is_storm), 1, "and it is said, once");
    let before = counters(&network).flooded;
    for host in &hosts[1..20] {
        storm(&mut network, *host);
    }
    network.run_for(ms(100));
    assert!(counters(&network).flooded - before >= 19);
    // All together: one switch may use half of the budget, and all switches the whole.
    let before = counters(&network);
    for _ in 0..1000 {
        for host in &hosts {
            storm(&mut network, *host);
        }
        network.run_for(ms(10));
    }
    let after = counters(&network);
    let lldp = after.lldp_sent - before.lldp_sent;
    let spent = after.packet_outs - before.packet_outs - lldp;
    assert!(spent <= 4000 * 11, "{spent} packet-outs in 10 s");
    assert!(after.flood_limited_shared > before.flood_limited_shared);
}

/// Finding E5: frames that no bridge forwards are not forwarded.
#[test]
fn link_local_frames_are_not_flooded() {
    let mut network = network(ControllerConfig::default());
    let (here, there) = (network.add_switch(), network.add_switch());
    network.link(here, there);
    let [a, b] = [here, there].map(|switch| network.add_host(switch));
    network.run_for(ms(2000));
    network.host_mut(b).record = true;
    let from = network.host(a).address.mac;
    let mut all: Vec<MacAddr> = (0..16).map(|n| MacAddr([1, 0x80, 0xc2, 0, 0, n])).collect();
    all.push(MacAddr([1, 0, 0x0c, 0xcc, 0xcc, 0xcc]));
    all.push(MacAddr([1, 0, 0x0c, 0xcc, 0xcc, 0xcd]));
    for dst in &all {
        network.inject(a, ethernet(from, *dst, 0x8809, &[0; 46]));
    }
    network.run_for(ms(100));
    assert_eq!(network.host(b).recorded.len(), 0);
    assert_eq!(counters(&network).packet_ins_link_local, all.len() as u64);
    // Other multicast goes to everybody as before.
    network.inject(
        a,
        ethernet(from, MacAddr([1, 0x80, 0xc2, 0, 0, 0x10]), 0x8809, &[0; 46]),
    );
    network.run_for(ms(100));
    assert_eq!(network.host(b).recorded.len(), 1);
}

/// Finding F6: random sources to a known host. The controller sets a limited number of new paths a
/// second, and each port has its share of them; packets arrive all the same.
#[test]
fn random_sources_get_so_many_paths_and_others_theirs() {
    let mut network = network(ControllerConfig {
        paths_per_port_max: 6000,
        path_rate_max: 500,
        ..ControllerConfig::default()
    });
    let (here, there) = (network.add_switch(), network.add_switch());
    network.link(here, there);
    let attacker = network.add_port(here);
    let [a, b] = [here, there].map(|switch| network.add_host(switch));
    network.run_for(ms(2000));
    assert!(pings(&mut network, a, b, 1));
    let before = network.process().controller.path_count();
    let victim = network.host(b).address;
    let attack = |network: &mut Network, seconds: u32, from: u32| {
        for n in 0..seconds * 4000 {
            let frame = udp(forged(from + n), victim, (1, 2), &[0; 8]);
            network.inject_at(here, attacker, frame);
            if n % 20 == 19 {
                network.run_for(ms(5));
            }
        }
    };
    attack(&mut network, 4, 1);
    let paths = network.process().controller.path_count() - before;
    assert!((2000..=2500 + 10).contains(&paths), "{paths} in 4 s");
    let received = network.host(b).received;
    assert!(received >= 15_900, "{received} of 16,000 arrive");
    attack(&mut network, 16, 100_000);
    let paths = network.process().controller.path_count() - before;
    assert!(paths <= 6000, "{paths} in all");
    let c = counters(&network);
    assert!(c.paths_limited > 0 && c.paths_over_share > 0, "{c:?}");
    // A server that answers many does not pay for their paths.
    assert!(pings(&mut network, b, a, 2));
    let late = network.add_host(here);
    network.run_for(ms(1000));
    assert!(pings(&mut network, late, b, 3));
    let has_path = network.process().controller.path_count() - before;
    assert!(has_path > 6000 - 10, "and it got one");
}

/// Finding 24: the room for packets that wait for held ports is shared too.
#[test]
fn a_switch_whose_held_port_is_flooded_leaves_room_for_others() {
    let mut network = network(ControllerConfig::default());
    let (here, there) = (network.add_switch(), network.add_switch());
    network.link(here, there);
    let [a, b] = [here, there].map(|switch| network.add_host(switch));
    network.run_for(ms(2000));
    assert!(pings(&mut network, a, b, 1));
    // Ports come up, and are held.
    let flooded = [(); 8].map(|()| network.add_port(here));
    let (at_b, cable) = (network.place(b), network.link_of(b));
    network.set_link(cable, false);
    network.run_for(ms(150));
    network.set_link(cable, true);
    let flooded_again = flooded.map(|port| (here, port));
    for n in 0..1000u32 {
        for (at, (switch, port)) in flooded_again.into_iter().enumerate() {
            let frame = arp_request(forged(n * 8 + at as u32 + 1), Ipv4Addr::new(10, 200, 0, 1));
            network.inject_at(switch, port, frame);
        }
        if n % 5 == 4 {
            network.run_for(ms(1));
        }
    }
    assert!(counters(&network).packet_ins_hold_full > 0);
    let (asker, asked) = (network.host(b).address, network.host(a).address);
    network.inject_at(there, at_b.port, arp_reply(asker, asked));
    let mut first = arp_request(asker, asked.ip);
    first.truncate(60);
    let held = counters(&network).packet_ins_hold_full;
    network.inject_at(there, at_b.port, first);
    network.run_for(ms(50));
    assert_eq!(counters(&network).packet_ins_hold_full, held, "b's waits");
    network.run_for(ms(2000));
    assert!(pings(&mut network, b, a, 2));
}
