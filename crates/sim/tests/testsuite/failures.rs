//! Failures of links, switches and controllers, and how little of them traffic sees.

use clock::{Duration, ms};
use control::controller::{Alarm, ControllerConfig, Event, Mode};
use openflow::packet::build::{Host as Address, arp_request};
use openflow::{Field, MacAddr, Match, Version};
use sim::network::{HostId, Network, NetworkConfig, SwitchId};
use sim::topology;

const MODES: [Mode; 3] = [Mode::Reactive, Mode::Proactive, Mode::Hybrid];
const FLOW_MOD: u8 = 14;

fn network(mode: Mode) -> Network {
    network_of(mode, Version::V13)
}

fn network_of(mode: Mode, version: Version) -> Network {
    let controller = ControllerConfig {
        mode,
        ..ControllerConfig::default()
    };
    Network::new(
        NetworkConfig {
            version,
            ..controller.into()
        },
        1,
    )
}

/// Pings in both directions, so that both ARP caches are filled and both paths exist.
fn establish(network: &mut Network, a: HostId, b: HostId) {
    network.run_for(ms(2000));
    for seq in 0..3 {
        network.ping(a, b, seq);
        network.ping(b, a, seq);
        network.run_for(ms(100));
    }
    assert_eq!(network.host(a).pongs.len(), 3, "nothing to break yet");
}

fn lost(network: &Network, at: HostId, first: u64, count: u64) -> u64 {
    let got = &network.host(at).datagrams;
    (first..first + count)
        .filter(|n| !got.contains_key(n))
        .count() as u64
}

fn duplicated(network: &Network, at: HostId) -> usize {
    network
        .host(at)
        .datagrams
        .values()
        .filter(|count| **count > 1)
        .count()
}

fn alarms(network: &Network) -> Vec<&Alarm> {
    network
        .events()
        .filter_map(|event| match event {
            Event::Alarm(alarm) => Some(alarm),
            _ => None,
        })
        .collect()
}

/// 1,000 packets a second for 4 s while one link of a ring of five goes down. Only packets sent
/// into the dead link before the new entries were set are lost: some control round trips.
#[test]
fn a_dead_link_costs_milliseconds() {
    for mode in MODES {
        let mut network = network(mode);
        let ring = topology::ring(&mut network, 5);
        let (a, b) = (ring.hosts[0], ring.hosts[1]);
        establish(&mut network, a, b);
        network.stream(a, b, 0, 4000, ms(1));
        network.run_for(ms(1000));
        network.set_link(ring.links[0], false);
        network.run_for(ms(4000));
        let lost = lost(&network, b, 0, 4000);
        assert!(lost <= 10, "{mode:?}: {lost} of 4,000 lost");
        assert_eq!(duplicated(&network, b), 0, "{mode:?}");
        // The link returns: the better path must cost no packet.
        network.set_link(ring.links[0], true);
        network.stream(a, b, 10_000, 3000, ms(1));
        network.run_for(ms(4000));
        assert_eq!(
            self::lost(&network, b, 10_000, 3000),
            0,
            "{mode:?}, link back"
        );
    }
}

/// The ports stay up, and only LLDP is missing: three intervals and a little.
#[test]
fn a_link_that_goes_dark_is_left_within_five_seconds() {
    for mode in MODES {
        let mut network = network(mode);
        let ring = topology::ring(&mut network, 4);
        let (a, b) = (ring.hosts[0], ring.hosts[1]);
        establish(&mut network, a, b);
        network.set_dark(ring.links[0], true);
        network.run_for(ms(5000));
        network.stream(a, b, 0, 100, ms(10));
        network.run_for(ms(2000));
        assert_eq!(lost(&network, b, 0, 100), 0, "{mode:?}");
    }
}

/// The process is killed and another one, of another seed, takes over while packets flow. The
/// switches connect to it one after the other.
#[test]
fn a_controller_restart_loses_no_packet_of_an_established_flow() {
    let runs = MODES.map(|mode| (mode, Version::V13));
    for (mode, version) in runs.into_iter().chain([(Mode::Reactive, Version::V10)]) {
        let mut network = network_of(mode, version);
        let hosts = topology::leaf_spine(&mut network, 2, 3, 2).hosts;
        let pairs = [
            (hosts[0], hosts[5]),
            (hosts[1], hosts[2]),
            (hosts[3], hosts[4]),
        ];
        for (a, b) in pairs {
            establish(&mut network, a, b);
        }
        for (i, (a, b)) in pairs.into_iter().enumerate() {
            network.stream(a, b, 10_000 * i as u64, 8000, ms(1));
        }
        network.run_for(ms(1000));
        network.kill_controller();
        network.run_for(ms(1000));
        network.start_controller(99);
        network.run_for(ms(7000));
        for (i, (_, b)) in pairs.into_iter().enumerate() {
            assert_eq!(
                lost(&network, b, 10_000 * i as u64, 8000),
                0,
                "{mode:?}, pair {i}"
            );
            assert_eq!(duplicated(&network, b), 0, "{mode:?}, pair {i}");
        }
        let deleted: usize = network
            .events()
            .map(|event| match event {
                Event::Reconciled { deleted, .. } => *deleted,
                _ => 0,
            })
            .sum();
        assert_eq!(deleted, 0, "{mode:?}: every entry was right");
    }
}

/// The switches reconnect to the new process 3 s apart, the one in the middle last, or first. Until
/// then a port towards an absent switch looks like one with hosts.
#[test]
fn switches_that_come_back_late_cost_established_flows_nothing() {
    let orders = [[0, 2, 1], [1, 0, 2], [0, 1, 2]];
    for (mode, order) in MODES.into_iter().flat_map(|m| orders.map(|o| (m, o))) {
        let controller = ControllerConfig {
            mode,
            ..ControllerConfig::default()
        };
        let config = NetworkConfig {
            reconnect_delay: ms(3000),
            ..controller.into()
        };
        let mut network = Network::new(config, 1);
        let switches = [(); 3].map(|()| network.add_switch());
        let [left, middle, right] = order.map(|n| switches[n]);
        network.link(left, middle);
        network.link(middle, right);
        let hosts = [left, middle, right].map(|switch| network.add_host(switch));
        let pairs = [(0, 2), (2, 0), (0, 1), (1, 2)].map(|(a, b)| (hosts[a], hosts[b]));
        for (a, b) in pairs {
            establish(&mut network, a, b);
            for host in [a, b] {
                network.host_mut(host).pongs.clear();
            }
        }
        network.kill_controller();
        network.start_controller(99);
        for (i, (a, b)) in pairs.into_iter().enumerate() {
            network.stream(a, b, 100_000 * i as u64, 650, ms(20));
        }
        network.run_for(ms(14_000));
        for (i, (_, b)) in pairs.into_iter().enumerate() {
            let lost = lost(&network, b, 100_000 * i as u64, 650);
            assert_eq!(lost, 0, "{mode:?}, {order:?}, pair {i}");
        }
    }
}

/// A new process must also mend the paths that it adopted.
#[test]
fn adopted_paths_are_moved_when_their_link_dies() {
    for mode in MODES {
        let mut network = network(mode);
        let ring = topology::ring(&mut network, 4);
        let (a, b) = (ring.hosts[0], ring.hosts[1]);
        establish(&mut network, a, b);
        network.kill_controller();
        network.start_controller(99);
        network.run_for(ms(4000));
        network.stream(a, b, 0, 2000, ms(1));
        network.run_for(ms(500));
        network.set_link(ring.links[0], false);
        network.run_for(ms(3000));
        let lost = lost(&network, b, 0, 2000);
        assert!(lost <= 10, "{mode:?}: {lost} of 2,000 lost");
    }
}

/// A channel breaks for 100 ms. The switch still has all its entries, so only requests are sent.
#[test]
fn a_reconnect_changes_no_entry() {
    for mode in MODES {
        let mut network = network(mode);
        let line = topology::line(&mut network, 3);
        let (a, b) = (line.hosts[0], line.hosts[2]);
        establish(&mut network, a, b);
        let mods = |n: &Network| {
            line.switches
                .iter()
                .map(|s| n.heard(*s, FLOW_MOD))
                .sum::<u64>()
        };
        let before = mods(&network);
        network.stream(a, b, 0, 2000, ms(1));
        network.run_for(ms(300));
        network.disconnect(line.switches[1]);
        network.run_for(ms(3000));
        assert_eq!(lost(&network, b, 0, 2000), 0, "{mode:?}");
        assert_eq!(
            mods(&network),
            before,
            "{mode:?}: flow-mods after a reconnect"
        );
    }
}

/// The switch's channel is lost for good, but its tables still forward. Nothing is lost while the
/// controller waits for it, nor when the paths are moved around it.
#[test]
fn a_lost_switch_is_left_without_loss() {
    for mode in MODES {
        let controller = ControllerConfig {
            mode,
            ..ControllerConfig::default()
        };
        let config = NetworkConfig {
            reconnect_delay: Duration::from_secs(600),
            ..controller.into()
        };
        let mut network = Network::new(config, 1);
        let ring = topology::ring(&mut network, 5);
        let (a, b) = (ring.hosts[0], ring.hosts[2]);
        establish(&mut network, a, b);
        let detour = ring.switches[4];
        let before = network.switch(detour).entries().count();
        network.stream(a, b, 0, 10_000, ms(1));
        network.run_for(ms(500));
        network.disconnect(ring.switches[1]);
        network.run_for(ms(11_000));
        assert_eq!(lost(&network, b, 0, 10_000), 0, "{mode:?}");
        assert_eq!(duplicated(&network, b), 0, "{mode:?}");
        // The old path is cut unnoticed: it must not matter any more.
        network.set_dark(ring.links[0], true);
        network.stream(a, b, 20_000, 1000, ms(1));
        network.run_for(ms(2000));
        assert_eq!(lost(&network, b, 20_000, 1000), 0, "{mode:?}");
        // The other modes have entries there from the beginning.
        let gained = network.switch(detour).entries().count() > before;
        assert!(gained || mode != Mode::Reactive, "the detour is used");
    }
}

/// LLDP with an epoch of another process, with a changed proof, and genuine frames played again,
/// 1,000 in all, and frames that crash other controllers.
#[test]
fn forged_and_replayed_lldp_makes_no_link() {
    let mut network = network(Mode::Reactive);
    let line = topology::line(&mut network, 2);
    let spare = network.add_port(line.switches[0]);
    network.run_for(ms(2000));
    let links = network.process().controller.links();
    assert_eq!(links.len(), 2, "one cable, two directions");

    // A genuine frame as the neighbour received it: the process sent it out of the spare port.
    let genuine = sim_lldp(&mut network, line.switches[0]);
    for n in 0..1000usize {
        let mut frame = genuine.clone();
        match n % 3 {
            0 => {}
            1 => *frame.last_mut().expect("not empty") ^= 1,
            _ => frame[40 + n % 60] ^= 1 << (n % 8),
        }
        let (switch, port) = match n % 2 {
            0 => (line.switches[1], openflow::PortNo(2)),
            _ => (line.switches[0], spare),
        };
        network.inject_at(switch, port, frame);
        network.run_for(ms(5));
    }
    let head = [&[0x01, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 9, 0x88, 0xcc][..]];
    for body in [&[0x02, 0x00][..], &[0x03, 0xff, 7], &[0xff; 1200]] {
        network.inject_at(line.switches[0], spare, [head[0], body].concat());
        network.run_for(ms(100));
    }
    assert_eq!(network.process().controller.links(), links);
    assert!(
        network.connection(line.switches[0]).is_some(),
        "no switch was disconnected"
    );
}

/// An LLDP frame of the running process, received on the port of a host that records it.
fn sim_lldp(network: &mut Network, at: SwitchId) -> Vec<u8> {
    let host = network.add_host(at);
    network.host_mut(host).record = true;
    network.run_for(ms(1500));
    let recorded = &network.host(host).recorded;
    let lldp = recorded
        .iter()
        .rfind(|f| f.get(12..14) == Some(&[0x88, 0xcc]));
    lldp.cloned().expect("LLDP goes to every port")
}

/// Two hosts on different switches relay each other's LLDP, frame by frame, in time.
#[test]
fn lldp_relayed_between_hosts_makes_no_link() {
    let mut network = network(Mode::Reactive);
    let line = topology::line(&mut network, 3);
    let (a, b) = (line.hosts[0], line.hosts[2]);
    establish(&mut network, a, b);
    let before = network.process().controller.links();
    for host in [a, b] {
        network.host_mut(host).record = true;
    }
    for _ in 0..500 {
        network.run_for(ms(10));
        for (from, to) in [(a, b), (b, a)] {
            let heard = std::mem::take(&mut network.host_mut(from).recorded);
            for frame in heard
                .into_iter()
                .filter(|f| f.get(12..14) == Some(&[0x88, 0xcc]))
            {
                network.inject(to, frame);
            }
        }
    }
    assert_eq!(network.process().controller.links(), before);
    let relayed = alarms(&network)
        .iter()
        .any(|a| matches!(a, Alarm::LldpForged { .. }));
    assert!(relayed, "or nothing was relayed");
}

/// A second switch with the same datapath id, a hundred times.
#[test]
fn a_datapath_id_cannot_be_taken_over() {
    let mut network = network(Mode::Reactive);
    let line = topology::line(&mut network, 2);
    establish(&mut network, line.hosts[0], line.hosts[1]);
    let victim = network.connection(line.switches[0]);
    let attacker = network.add_switch_as(openflow::DatapathId(1));
    network.run_for(Duration::from_secs(11));
    let spoofs = alarms(&network)
        .iter()
        .filter(|a| matches!(a, Alarm::DuplicateDatapath { .. }))
        .count();
    assert!(spoofs >= 90, "{spoofs} attempts");
    assert_eq!(network.connection(line.switches[0]), victim);
    assert_eq!(network.heard(attacker, FLOW_MOD), 0);
    network.ping(line.hosts[0], line.hosts[1], 77);
    network.run_for(ms(100));
    let to = network.host(line.hosts[1]).address.ip;
    assert_eq!(network.host(line.hosts[0]).pongs.get(&(to, 77)), Some(&1));
}

/// 1,000 frames with a victim's address from another port: its place stays, one alarm.
#[test]
fn a_spoofed_host_stays_where_it_is() {
    let mut network = network(Mode::Reactive);
    let line = topology::line(&mut network, 3);
    let (victim, peer, attacker) = (line.hosts[0], line.hosts[1], line.hosts[2]);
    establish(&mut network, victim, peer);
    let address = network.host(victim).address;
    for n in 0..1000u32 {
        let frame = arp_request(address, std::net::Ipv4Addr::from(0x0a00_0900 + n));
        network.inject(attacker, frame);
        network.run_for(ms(10));
    }
    let hosts = network.process().controller.hosts();
    let place = hosts
        .iter()
        .find(|host| host.mac == address.mac)
        .map(|host| host.at);
    assert_eq!(place, Some(network.place(victim)));
    let spoofs = alarms(&network)
        .into_iter()
        .filter(|a| matches!(a, Alarm::HostSpoofed { .. }))
        .count();
    assert_eq!(spoofs, 1);
    let moves = network
        .events()
        .filter(|e| matches!(e, Event::HostMoved { .. }))
        .count();
    assert_eq!(moves, 0);
}

#[test]
fn a_host_that_moves_is_reached_again_within_a_second() {
    for (unplug, bound) in [(true, ms(300)), (false, ms(1300))] {
        for mode in MODES {
            let mut network = network(mode);
            let line = topology::line(&mut network, 3);
            let (a, b) = (line.hosts[0], line.hosts[1]);
            establish(&mut network, a, b);
            network.move_host(b, line.switches[2], unplug);
            // The port's hold, then the host announces itself, as hosts do. In proactive mode a
            // silent move would show only with the next broadcast: unicast never reaches the
            // controller.
            network.run_for(ms(700));
            let address = network.host(b).address;
            network.inject(b, arp_request(address, address.ip));
            network.ping(b, a, 50);
            network.run_for(bound);
            network.ping(b, a, 51);
            network.ping(a, b, 52);
            network.run_for(ms(100));
            let (ip_a, ip_b) = (network.host(a).address.ip, network.host(b).address.ip);
            let what = format!("{mode:?}, old port down: {unplug}");
            assert_eq!(network.host(b).pongs.get(&(ip_a, 51)), Some(&1), "{what}");
            assert_eq!(network.host(a).pongs.get(&(ip_b, 52)), Some(&1), "{what}");
        }
    }
}

/// 10,000 changes a second for 5 s: at most ten a second are taken over, and the last one counts.
#[test]
fn a_flapping_port_is_calmed() {
    let mut network = network(Mode::Reactive);
    let line = topology::line(&mut network, 2);
    network.run_for(ms(2000));
    let before = network.events().count();
    for n in 0..50_000u32 {
        network.set_link(line.links[0], n % 2 == 1);
        network.run_for(Duration::from_micros(100));
    }
    network.run_for(ms(300));
    let changes = network
        .events()
        .skip(before)
        .filter(|e| matches!(e, Event::PortUp(at) | Event::PortDown(at) if at.dpid.0 == 1))
        .count();
    assert!((2..=52).contains(&changes), "{changes} changes in 5 s");
    network.run_for(ms(1000));
    assert_eq!(network.process().controller.links().len(), 2, "up at last");
}

/// Foreign entries, and entries of ours in a shape that we do not make, before auster comes.
#[test]
fn foreign_entries_stay_and_wrong_ones_of_ours_go() {
    use control::entry::COOKIE_PREFIX;
    use openflow::message::FlowMod;
    use openflow::{Action, Cookie, Message, PortNo};
    let mut network = network(Mode::Reactive);
    let id = network.add_switch();
    let (a, b) = (network.add_host(id), network.add_host(id));
    let mac = |n: u8| MacAddr([2, 9, 9, 9, 9, n]);
    let entry = |cookie, n, m: Match| FlowMod {
        cookie: Cookie(cookie),
        ..FlowMod::add(n, m, vec![Action::output(PortNo(1))])
    };
    let foreign = entry(0x1234, 77, Match::any().with_eth_dst(mac(1)));
    let odd = entry(
        COOKIE_PREFIX.0 | 0x200,
        78,
        Match::any().with(Field::EthType, 0x0800u32),
    );
    let dead = FlowMod {
        cookie: Cookie(COOKIE_PREFIX.0 | 0x200),
        ..FlowMod::add(
            2000,
            Match::any()
                .with_in_port(PortNo(1))
                .with_eth_src(mac(2))
                .with_eth_dst(mac(3)),
            vec![Action::output(PortNo(99))],
        )
    };
    for flow_mod in [foreign, odd, dead] {
        network.apply(id, &Message::FlowMod(flow_mod));
    }
    establish(&mut network, a, b);
    let mut left: Vec<u16> = network.switch(id).entries().map(|e| e.priority).collect();
    left.sort();
    assert_eq!(
        left,
        [0, 77, 2000, 2000, 65535],
        "miss, foreign, two pairs, LLDP"
    );
    let reconciled = Event::Reconciled {
        dpid: openflow::DatapathId(1),
        kept: 0,
        added: 2,
        deleted: 2,
        unreadable: 0,
        is_unread: false,
    };
    assert!(network.events().any(|event| *event == reconciled));
}

/// Idle entries time out, and with them the path. Only infrastructure is left in any switch.
#[test]
fn an_idle_path_is_forgotten_everywhere() {
    let mut network = network(Mode::Reactive);
    let line = topology::line(&mut network, 3);
    establish(&mut network, line.hosts[0], line.hosts[2]);
    assert_eq!(network.process().controller.path_count(), 2);
    network.run_for(Duration::from_secs(70));
    assert_eq!(network.process().controller.path_count(), 0);
    for switch in &line.switches {
        assert_eq!(
            network.switch(*switch).entries().count(),
            2,
            "table-miss and LLDP"
        );
    }
    for view in network.process().controller.switches() {
        assert_eq!(view.flow_count, 0, "and none is thought to be there");
    }
}

/// A silent peer of a spoofer: the address that asks is the controller's own and no host's.
#[test]
fn a_probe_is_not_taken_for_a_host() {
    let mut network = network(Mode::Reactive);
    let line = topology::line(&mut network, 2);
    establish(&mut network, line.hosts[0], line.hosts[1]);
    let address: Address = network.host(line.hosts[0]).address;
    network.inject(
        line.hosts[1],
        arp_request(address, "10.9.9.9".parse().expect("an address")),
    );
    network.run_for(ms(2000));
    assert_eq!(network.process().controller.hosts().len(), 2);
}
