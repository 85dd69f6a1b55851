//! What becomes of the first packets of a conversation: how many take the way over the controller,
//! and how many are overtaken by those behind them.

use control::controller::{ControllerConfig, Mode};
use control::entry::Entry;
use control::timeouts::{FirstPackets, Timeouts};
use openflow::packet::build::{arp_reply, arp_request, ethernet};
use openflow::time::{Duration, Instant};
use openflow::{MacAddr, Version};
use sim::network::{HostId, Network, NetworkConfig, SwitchId};
use sim::process::ProcessConfig;
use sim::topology;

/// One way; both ways are the 17 ms of the paper's testbed.
const CONTROL_DELAY: Duration = Duration::from_micros(8500);

/// As on Open vSwitch at its worst.
const ACTIVATION_DELAY: Duration = Duration::from_millis(17);

/// 425 packets a second: 5 Mbit/s of 1470 bytes.
const INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / 425);

/// Rate × delay.
const IN_DETOUR: usize = 7;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn network(first_packets: FirstPackets, mode: Mode, version: Version) -> Network {
    let controller = ControllerConfig {
        mode,
        timeouts: Timeouts {
            first_packets,
            ..Timeouts::fixed(2, 0)
        },
        ..ControllerConfig::default()
    };
    let process = ProcessConfig {
        controller,
        ..ProcessConfig::default()
    };
    let config = NetworkConfig {
        process,
        version,
        control_delay: CONTROL_DELAY,
        activation_delay: ACTIVATION_DELAY,
        ..NetworkConfig::default()
    };
    Network::new(config, 1)
}

/// Two hosts of one switch, or at the ends of five in a row.
fn two_hosts(network: &mut Network, is_local: bool) -> (HostId, HostId, Vec<SwitchId>) {
    if is_local {
        let switch = network.add_switch();
        let (a, b) = (network.add_host(switch), network.add_host(switch));
        (a, b, vec![switch])
    } else {
        let line = topology::line(network, 5);
        (line.hosts[0], line.hosts[4], line.switches)
    }
}

/// Asks for an address, and how long until it is there.
fn resolve(network: &mut Network, a: HostId, b: HostId) -> Duration {
    let start = network.now();
    network.resolve(a, b);
    wait_for(network, start, |network| {
        let ip = network.host(b).address.ip;
        network.host(a).has_resolved(ip)
    })
}

fn wait_for(network: &mut Network, start: Instant, is_so: impl Fn(&Network) -> bool) -> Duration {
    while !is_so(network) {
        network.run_for(Duration::from_micros(100));
        assert!(network.now().since(start) < ms(3000), "it never came");
    }
    network.now().since(start)
}

/// Packets that came up, but for discovery's.
fn packet_ins(network: &Network, switches: &[SwitchId]) -> u64 {
    let counters = network.process().controller.counters();
    let edges = switches.iter().map(|switch| {
        let connection = network.connection(*switch).expect("connected");
        let edge = network.process().edge(connection).expect("there");
        edge.counters().packet_ins
    });
    counters.packet_ins - counters.lldp_accepted + edges.sum::<u64>()
}

/// RFC 4737: those that come after one that was sent later.
fn reordered(arrivals: &[u64]) -> usize {
    let mut next = 0;
    let late = arrivals.iter().filter(|number| {
        let is_late = **number < next;
        next = next.max(**number + 1);
        is_late
    });
    late.count()
}

/// What became of a stream of 400 packets.
#[derive(Debug, PartialEq)]
struct Streamed {
    packet_ins: u64,
    reordered: usize,
    lost: usize,
}

fn stream(network: &mut Network, a: HostId, b: HostId, switches: &[SwitchId]) -> Streamed {
    let before = packet_ins(network, switches);
    network.host_mut(b).arrivals.clear();
    network.host_mut(b).datagrams.clear();
    network.stream(a, b, 0, 400, INTERVAL);
    network.run_for(ms(1500));
    let host = network.host(b);
    Streamed {
        packet_ins: packet_ins(network, switches) - before,
        reordered: reordered(&host.arrivals),
        lost: 400 - host.datagrams.len(),
    }
}

const CLEAN: Streamed = Streamed {
    packet_ins: 0,
    reordered: 0,
    lost: 0,
};

#[test]
fn a_conversation_that_begins_with_a_resolution_takes_no_detour() {
    let v13 = Version::V13;
    let cases = [
        (Mode::Reactive, v13),
        (Mode::Reactive, Version::V10),
        (Mode::Hybrid, v13),
        (Mode::Proactive, v13),
    ];
    for ((mode, version), is_local) in cases.into_iter().flat_map(|c| [(c, true), (c, false)]) {
        let what = format!("{mode:?} {version} local {is_local}");
        let run = |first_packets| {
            let mut network = network(first_packets, mode, version);
            let (a, b, switches) = two_hosts(&mut network, is_local);
            network.run_for(ms(2000));
            resolve(&mut network, a, b);
            stream(&mut network, a, b, &switches)
        };
        let without = run(FirstPackets::Controller);
        assert_eq!(without.lost, 0, "{what}");
        assert!(
            without.packet_ins as usize >= IN_DETOUR,
            "{what}: {without:?}"
        );
        if mode != Mode::Proactive {
            assert!(without.reordered >= IN_DETOUR - 1, "{what}: {without:?}");
        }
        assert_eq!(run(FirstPackets::PreInstall), CLEAN, "{what}");
    }
}

/// The answerer is known this time, and one direction's entries are there: its own packets have
/// kept them alive. The answer does not pass the controller.
#[test]
fn nor_does_one_in_the_other_direction_of_a_stream() {
    for mode in [Mode::Reactive, Mode::Hybrid] {
        for is_local in [true, false] {
            let mut network = network(FirstPackets::PreInstall, mode, Version::V13);
            let (a, b, switches) = two_hosts(&mut network, is_local);
            network.run_for(ms(2000));
            resolve(&mut network, a, b);
            network.stream(a, b, 1000, 4000, INTERVAL);
            network.run_for(ms(5000));
            network.host_mut(b).forget_addresses();
            resolve(&mut network, b, a);
            let streamed = stream(&mut network, b, a, &switches);
            assert_eq!(streamed, CLEAN, "{mode:?} local {is_local}");
        }
    }
}

/// Hosts confirm an address by asking its owner alone.
#[test]
fn nor_does_one_after_a_unicast_question() {
    for mode in [Mode::Reactive, Mode::Hybrid] {
        for is_local in [true, false] {
            let mut network = network(FirstPackets::PreInstall, mode, Version::V13);
            let (a, b, switches) = two_hosts(&mut network, is_local);
            network.run_for(ms(2000));
            resolve(&mut network, a, b);
            network.run_for(ms(6000));
            network.host_mut(a).forget_addresses();
            let (asker, asked) = (network.host(a).address, network.host(b).address);
            let mut question = arp_request(asker, asked.ip);
            question[..6].copy_from_slice(&asked.mac.0);
            let before = packet_ins(&network, &switches);
            network.inject(a, question);
            let start = network.now();
            wait_for(&mut network, start, |n| n.host(a).has_resolved(asked.ip));
            assert_eq!(
                packet_ins(&network, &switches),
                before + 1,
                "and the answer does not pass"
            );
            let streamed = stream(&mut network, a, b, &switches);
            assert_eq!(streamed, CLEAN, "{mode:?} local {is_local}");
        }
    }
}

#[test]
fn the_answer_waits_until_both_directions_are_confirmed_and_no_longer() {
    for is_local in [true, false] {
        let mut network = network(FirstPackets::PreInstall, Mode::Reactive, Version::V13);
        let (a, b, switches) = two_hosts(&mut network, is_local);
        network.run_for(ms(2000));
        let took = resolve(&mut network, a, b);
        let (from, to) = (network.host(a).address.mac, network.host(b).address.mac);
        for switch in &switches {
            for (src, dst) in [(from, to), (to, from)] {
                let entries = network.switch(*switch).entries();
                let ours = entries.filter_map(|e| Entry::from_stats(&e.stats(network.now())));
                let is_it = |e: &Entry| e.key.eth_src == Some(src) && e.key.eth_dst == Some(dst);
                let count = ours.filter(is_it).count();
                assert_eq!(count, 1, "local {is_local}, {switch:?}");
            }
        }
        // The question and the answer, up and down; barriers there and back, of the ingress on top
        // where it is not alone; 20 ms.
        let stages = if is_local { 1 } else { 2 };
        let expected = CONTROL_DELAY * (4 + 2 * stages) + ms(20);
        assert!(took >= expected, "local {is_local}: {took:?}");
        assert!(took < expected + ms(2), "local {is_local}: {took:?}");
    }
}

/// Where everything is there, an answer takes what it takes without any of this.
#[test]
fn nothing_is_held_that_waits_for_nothing() {
    for mode in [Mode::Reactive, Mode::Hybrid, Mode::Proactive] {
        let mut network = network(FirstPackets::PreInstall, mode, Version::V13);
        let (a, b, _) = two_hosts(&mut network, false);
        network.run_for(ms(2000));
        resolve(&mut network, a, b);
        network.run_for(ms(500));
        let held = |n: &Network| n.process().controller.counters().resolutions_held;
        let before = held(&network);
        network.host_mut(a).forget_addresses();
        let took = resolve(&mut network, a, b);
        assert!(took < CONTROL_DELAY * 2 + ms(1), "{mode:?}: {took:?}");
        assert_eq!(held(&network), before, "{mode:?}");
    }
}

#[test]
fn a_switch_that_confirms_nothing_delays_an_answer_and_loses_none() {
    for is_local in [true, false] {
        let mut network = network(FirstPackets::PreInstall, Mode::Reactive, Version::V13);
        let (a, b, switches) = two_hosts(&mut network, is_local);
        network.run_for(ms(2000));
        network.set_mute(switches[switches.len() / 2]);
        let took = resolve(&mut network, a, b);
        assert!(
            took >= ms(500) && took < ms(600),
            "local {is_local}: {took:?}"
        );
        let counters = network.process().controller.counters();
        assert_eq!(
            (counters.resolutions_held, counters.resolutions_timed_out),
            (1, 1)
        );
        network.ping(a, b, 1);
        network.run_for(ms(1500));
        assert_eq!(network.host(a).pongs.len(), 1);
    }
}

/// 100 answers from one port at once.
#[test]
fn beyond_the_bound_answers_go_at_once_and_none_is_lost() {
    for is_local in [true, false] {
        let mut network = network(FirstPackets::PreInstall, Mode::Reactive, Version::V13);
        let (a, b, _) = two_hosts(&mut network, is_local);
        network.run_for(ms(2000));
        let asker = network.host(a).address;
        network.inject(a, arp_request(asker, asker.ip));
        let mut answerer = network.host(b).address;
        let macs: Vec<MacAddr> = (0..100).map(|n| MacAddr([2, 9, 9, 9, 9, n])).collect();
        for mac in &macs {
            network.inject(b, ethernet(*mac, MacAddr::BROADCAST, 0x88b5, &[7; 46]));
        }
        network.run_for(ms(200));
        network.host_mut(a).record = true;
        for mac in &macs {
            answerer.mac = *mac;
            network.inject(b, arp_reply(answerer, asker));
        }
        network.run_for(CONTROL_DELAY * 2 + ms(1));
        assert_eq!(network.host(a).recorded.len(), 100 - 64, "local {is_local}");
        network.run_for(ms(200));
        assert_eq!(network.host(a).recorded.len(), 100);
        let counters = network.process().controller.counters();
        assert_eq!(
            (counters.resolutions_held, counters.resolutions_hold_full),
            (64, 36)
        );
        assert_eq!(counters.resolutions_timed_out, 0);
    }
}
