//! The first packets of a conversation: the number that pass the controller, and the number that
//! later packets overtake.

use clock::{Duration, Instant, ms};
use control::controller::{Alarm, ControllerConfig, Event, Mode};
use control::entry::{Entry, EntryKind};
use control::timeouts::{FirstPackets, Timeouts};
use openflow::message::{FlowMod, FlowModCommand};
use openflow::packet::build::{arp_reply, arp_request, ethernet, udp};
use openflow::{MacAddr, Match, Message, PortNo, Version};
use sim::network::{HostId, Network, NetworkConfig, SwitchId};
use sim::topology;

/// Delay in one direction; both add up to the 17 ms of the paper's testbed.
const CONTROL_DELAY: Duration = Duration::from_micros(8500);

/// The longest activation delay measured on Open vSwitch.
const ACTIVATION_DELAY: Duration = Duration::from_millis(17);

/// 425 packets a second: 5 Mbit/s of 1470 bytes.
const INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / 425);

/// Rate × delay.
const IN_DETOUR: usize = 7;

fn network(first_packets: FirstPackets, mode: Mode, version: Version) -> Network {
    let timeouts = Timeouts {
        first_packets,
        ..Timeouts::fixed(2, 0)
    };
    network_of(mode, version, timeouts)
}

fn network_of(mode: Mode, version: Version, timeouts: Timeouts) -> Network {
    let holds = timeouts.first_packets == FirstPackets::Hold;
    let controller = ControllerConfig {
        mode,
        timeouts,
        ..ControllerConfig::default()
    };
    let config = NetworkConfig {
        version,
        control_delay: CONTROL_DELAY,
        activation_delay: ACTIVATION_DELAY,
        hold: holds,
        ..controller.into()
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

/// Asks for an address. Returns the time until it is resolved.
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

/// Packet-ins other than those of discovery.
fn packet_ins(network: &Network, switches: &[SwitchId]) -> u64 {
    let counters = network.process().controller.counters();
    let edges = switches.iter().map(|switch| {
        let connection = network.connection(*switch).expect("connected");
        let edge = network.process().edge(connection).expect("there");
        edge.counters().packet_ins
    });
    counters.packet_ins - counters.lldp_accepted + edges.sum::<u64>()
}

/// The number of reordered packets (RFC 4737): those that arrive after one that was sent later.
fn reordered(arrivals: &[u64]) -> usize {
    let mut next = 0;
    let late = arrivals.iter().filter(|number| {
        let is_late = **number < next;
        next = next.max(**number + 1);
        is_late
    });
    late.count()
}

/// The fate of a stream of 400 packets.
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
        let mut network = network_of(Mode::Reactive, Version::V13, Timeouts::default());
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
        // The question and the answer, each up and down; a barrier round trip, and another for the
        // ingress where it is not alone.
        let stages = if is_local { 1 } else { 2 };
        let expected = CONTROL_DELAY * (4 + 2 * stages);
        assert!(took >= expected, "local {is_local}: {took:?}");
        assert!(took < expected + ms(2), "local {is_local}: {took:?}");
    }
}

/// If everything is in place already, an answer takes the same time as without any hold.
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

/// Streams whose entries end every second and are made again from reported packets.
#[test]
fn entries_made_from_reports_overtake_nothing() {
    for (mode, is_local) in [Mode::Reactive, Mode::Hybrid]
        .map(|m| [(m, true), (m, false)])
        .as_flattened()
    {
        let run = |first_packets| {
            let mut network = network_of(
                *mode,
                Version::V13,
                Timeouts {
                    first_packets,
                    ..Timeouts::fixed(0, 1)
                },
            );
            let (a, b, switches) = two_hosts(&mut network, *is_local);
            network.run_for(ms(2000));
            resolve(&mut network, a, b);
            let before = packet_ins(&network, &switches);
            network.stream(a, b, 0, 2000, INTERVAL);
            network.run_for(ms(6000));
            let host = network.host(b);
            assert_eq!(host.datagrams.len(), 2000, "none is lost");
            assert_eq!(host.arrivals.len(), 2000, "none is there twice");
            (
                reordered(&host.arrivals),
                packet_ins(&network, &switches) - before,
            )
        };
        let what = format!("{mode:?} local {is_local}");
        let (reordered, packet_ins) = run(FirstPackets::Controller);
        assert!(reordered >= 4 * (IN_DETOUR - 1), "{what}: {reordered}");
        let (reordered, copies) = run(FirstPackets::Report);
        assert_eq!(reordered, 0, "{what}");
        // Only packets sent while the entry is on its way are reported.
        assert!(
            copies >= 4 && copies <= packet_ins * 2,
            "{what}: {copies} of {packet_ins}"
        );
    }
}

/// Two paths of the same length in hops, one of them much longer in time: the entry takes the
/// path of the packets before it.
#[test]
fn an_entry_goes_the_way_of_the_route_before_it() {
    let timeouts = Timeouts {
        first_packets: FirstPackets::Report,
        ..Timeouts::fixed(60, 0)
    };
    let mut network = network_of(Mode::Reactive, Version::V13, timeouts);
    let fabric = topology::leaf_spine(&mut network, 2, 2, 6);
    for (n, link) in fabric.links.iter().enumerate() {
        network.set_delay(*link, ms(1 + 10 * (n as u64 % 2)));
    }
    network.run_for(ms(2000));
    // A host whose first frame is its answer is not known in time.
    for host in &fabric.hosts {
        let address = network.host(*host).address;
        network.inject(*host, arp_request(address, address.ip));
    }
    network.run_for(ms(200));
    let (left, right) = fabric.hosts.split_at(6);
    for (a, b) in left
        .iter()
        .flat_map(|a| right.iter().map(move |b| (*a, *b)))
    {
        resolve(&mut network, a, b);
        network.host_mut(b).arrivals.clear();
        network.stream(a, b, 0, 200, ms(1));
        network.run_for(ms(400));
        let arrivals = &network.host(b).arrivals;
        assert_eq!(
            (arrivals.len(), reordered(arrivals)),
            (200, 0),
            "{a:?} to {b:?}"
        );
    }
    let paths = network.process().controller.counters().paths_installed;
    assert!(paths >= 36, "or there were no entries: {paths}");
}

#[test]
fn whoever_is_reported_is_looked_at() {
    let timeouts = Timeouts {
        first_packets: FirstPackets::Report,
        ..Timeouts::fixed(60, 0)
    };
    let mut network = network_of(Mode::Reactive, Version::V13, timeouts);
    let line = topology::line(&mut network, 3);
    let (victim, peer, attacker) = (line.hosts[0], line.hosts[1], line.hosts[2]);
    network.run_for(ms(2000));
    resolve(&mut network, victim, peer);
    network.run_for(ms(100));
    let (spoofed, to) = (network.host(victim).address, network.host(peer).address);
    for n in 0..100u64 {
        let frame = udp(spoofed, to, (1, 2), &n.to_be_bytes());
        network.inject(attacker, frame);
        network.run_for(ms(10));
    }
    let counters = network.process().controller.counters();
    assert!(counters.packet_ins_contested >= 90, "{counters:?}");
    let spoofs = network
        .events()
        .filter(|event| matches!(event, Event::Alarm(Alarm::HostSpoofed { .. })));
    assert_eq!(spoofs.count(), 1);
    // The cost: the packets were forwarded before anybody looked at them.
    assert_eq!(network.host(peer).datagrams.len(), 100);
}

/// Two hosts behind one port reach each other there.
#[test]
fn what_stays_behind_a_port_is_not_reported() {
    let timeouts = Timeouts {
        first_packets: FirstPackets::Report,
        ..Timeouts::fixed(60, 0)
    };
    let mut network = network_of(Mode::Reactive, Version::V13, timeouts);
    let switch = network.add_switch();
    let host = network.add_host(switch);
    network.run_for(ms(2000));
    let [a, b] = [1, 2].map(|n| MacAddr([2, 9, 9, 9, 9, n]));
    for mac in [a, b] {
        network.inject(host, ethernet(mac, MacAddr::BROADCAST, 0x88b5, &[7; 46]));
    }
    network.run_for(ms(200));
    let before = packet_ins(&network, &[switch]);
    for _ in 0..100 {
        network.inject(host, ethernet(a, b, 0x88b5, &[7; 46]));
        network.run_for(ms(1));
    }
    network.run_for(ms(100));
    assert_eq!(packet_ins(&network, &[switch]), before);
}

/// A switch of 1.0 does not mark a packet-in as a copy, so none is taken for one.
#[test]
fn switches_of_1_0_report_nothing_and_lose_nothing() {
    for is_local in [true, false] {
        let mut network = network(FirstPackets::Report, Mode::Reactive, Version::V10);
        let (a, b, switches) = two_hosts(&mut network, is_local);
        network.run_for(ms(2000));
        resolve(&mut network, a, b);
        let streamed = stream(&mut network, a, b, &switches);
        assert_eq!(streamed.lost, 0);
        assert_eq!(network.process().controller.counters().packet_ins_copied, 0);
        assert_eq!(network.errors().count(), 0);
        assert_eq!(network.host(b).arrivals.len(), 400, "none is there twice");
    }
}

#[test]
fn report_entries_outlive_a_controller_and_go_with_the_policy() {
    let timeouts = Timeouts {
        first_packets: FirstPackets::Report,
        ..Timeouts::fixed(60, 0)
    };
    let mut network = network_of(Mode::Reactive, Version::V13, timeouts.clone());
    let ring = topology::ring(&mut network, 4);
    let (a, b) = (ring.hosts[0], ring.hosts[1]);
    network.run_for(ms(2000));
    resolve(&mut network, a, b);
    network.run_for(ms(500));
    let routes = |network: &Network| -> usize {
        let of = |switch: &SwitchId| {
            let entries = network.switch(*switch).entries();
            let ours = entries.filter_map(|e| Entry::from_stats(&e.stats(network.now())));
            let is_route = |e: &Entry| matches!(e.kind, EntryKind::Report | EntryKind::Destination);
            ours.filter(is_route).count()
        };
        ring.switches.iter().map(of).sum()
    };
    let before = routes(&network);
    assert!(before >= 8, "of two hosts on four switches: {before}");
    network.stream(a, b, 0, 6000, ms(1));
    network.run_for(ms(500));
    network.kill_controller();
    network.start_controller(9);
    network.run_for(ms(4000));
    let deleted = network.events().map(|event| match event {
        Event::Reconciled { deleted, .. } => *deleted,
        _ => 0,
    });
    assert_eq!(deleted.sum::<usize>(), 0, "every entry was right");
    network.set_link(ring.links[0], false);
    network.run_for(ms(3000));
    let host = network.host(b);
    let lost = 6000 - host.datagrams.len();
    assert!(
        lost <= 60,
        "{lost}: what is sent until the switch's message is there, and back"
    );
    assert_eq!(
        host.arrivals.len(),
        host.datagrams.len(),
        "none is there twice"
    );
    network.set_timeouts(Timeouts::default());
    network.run_for(ms(1000));
    assert_eq!(routes(&network), 0);
    assert_eq!(network.errors().count(), 0);
}

/// A stream that begins again every second. Each beginning goes through relays beside the switches.
#[test]
fn what_is_held_beside_the_switch_is_not_overtaken() {
    for (version, is_local) in [
        (Version::V13, true),
        (Version::V13, false),
        (Version::V10, true),
    ] {
        let run = |timeouts: Timeouts, streams: u64, count: u64| {
            let mut network = network_of(Mode::Reactive, version, timeouts);
            let (a, b, _) = two_hosts(&mut network, is_local);
            network.run_for(ms(2000));
            resolve(&mut network, a, b);
            network.run_for(ms(500));
            for n in 0..streams {
                network.stream(a, b, count * n, count, INTERVAL);
                network.run_for(INTERVAL * count as u32 + ms(4500));
            }
            let host = network.host(b);
            let sent = (streams * count) as usize;
            assert_eq!(host.datagrams.len(), sent, "none is lost");
            assert_eq!(host.arrivals.len(), sent, "none is there twice");
            reordered(&host.arrivals)
        };
        let fixed = |first_packets, idle_s, hard_s| Timeouts {
            first_packets,
            ..Timeouts::fixed(idle_s, hard_s)
        };
        let what = format!("{version} local {is_local}");
        let without = run(fixed(FirstPackets::Controller, 2, 0), 4, 200);
        assert!(without >= 4 * (IN_DETOUR - 1), "{what}: {without}");
        let held = run(fixed(FirstPackets::Hold, 2, 0), 4, 200);
        assert_eq!(held, 0, "{what}");
        if is_local {
            let held = run(fixed(FirstPackets::Hold, 0, 1), 1, 2000);
            assert_eq!(held, 0, "{what}, hard timeout");
        }
    }
}

/// With a nearby controller no delay is as long as an entry's activation. Only packets that the
/// switches may keep make an answer wait.
fn nearby(is_local: bool, timeouts: Timeouts) -> (Network, HostId, HostId, Vec<SwitchId>) {
    let controller = ControllerConfig {
        timeouts,
        ..ControllerConfig::default()
    };
    let config = NetworkConfig {
        activation_delay: ACTIVATION_DELAY,
        ..controller.into()
    };
    let mut network = Network::new(config, 1);
    let (a, b, switches) = two_hosts(&mut network, is_local);
    network.run_for(ms(2000));
    (network, a, b, switches)
}

/// A packet of this kind to a host that is nowhere.
fn stray(network: &mut Network, from: HostId, eth_type: u16) {
    let (src, dst) = (network.host(from).address.mac, MacAddr([2, 9, 9, 9, 9, 9]));
    network.inject(from, ethernet(src, dst, eth_type, &[0; 46]));
    network.run_for(ms(50));
}

const SETTLED: Duration = Duration::from_millis(20);
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

#[test]
fn an_entry_is_active_when_the_answer_is_there_however_near_the_controller_is() {
    for is_local in [true, false] {
        let check = |what: &str, waits: bool, before: &dyn Fn(&mut Network, HostId, HostId)| {
            let (mut network, a, b, switches) = nearby(is_local, Timeouts::default());
            before(&mut network, a, b);
            let took = resolve(&mut network, a, b);
            assert_eq!(took >= SETTLED, waits, "local {is_local}, {what}: {took:?}");
            let streamed = stream(&mut network, a, b, &switches);
            assert_eq!(streamed, CLEAN, "local {is_local}, {what}");
        };
        check("nothing before", false, &|_, _, _| {});
        check("from the asker", true, &|n, a, _| stray(n, a, IPV4));
        check("from the answerer", true, &|n, _, b| stray(n, b, IPV4));
        check("of a tag", true, &|n, a, _| stray(n, a, 0x8100));
        check("IPv6", false, &|n, a, b| {
            stray(n, a, IPV6);
            stray(n, b, IPV6);
        });
        check("long ago", false, &|n, a, _| {
            stray(n, a, IPV4);
            n.run_for(ms(16_000));
        });
        check("not so long ago", true, &|n, a, _| {
            stray(n, a, IPV4);
            n.run_for(ms(15_000));
        });
        check("before the switch connected", false, &|n, a, _| {
            let switch = SwitchId(n.place(a).dpid.0 as usize - 1);
            let all = FlowMod {
                command: FlowModCommand::Delete,
                ..FlowMod::add(0, Match::any(), Vec::new())
            };
            n.apply(switch, &Message::FlowMod(all));
            n.run_for(ms(50));
            stray(n, a, IPV4);
            n.disconnect(switch);
            n.run_for(ms(5000));
        });
        check("the switch had entries before", true, &|n, a, _| {
            let switch = SwitchId(n.place(a).dpid.0 as usize - 1);
            let to = Match::any().with_eth_dst(MacAddr([2, 9, 9, 9, 9, 9]));
            let theirs = FlowMod::add(1, to, Vec::new());
            n.apply(switch, &Message::FlowMod(theirs));
            n.disconnect(switch);
            n.run_for(ms(5000));
        });
    }
}

/// A switch between the two hosts has sent the controller a packet that arrived over its link.
#[test]
fn nor_is_what_a_switch_on_the_way_keeps_in_its_way() {
    let (mut network, a, b, switches) = nearby(false, Timeouts::default());
    let (link, middle) = (network.location(switches[2], PortNo(2)), switches[2]);
    let (src, dst) = (network.host(b).address.mac, MacAddr([2, 9, 9, 9, 9, 9]));
    network.inject_at(middle, link.port, ethernet(src, dst, IPV4, &[0; 46]));
    network.run_for(ms(50));
    let took = resolve(&mut network, a, b);
    assert!(took >= SETTLED, "{took:?}");
    assert_eq!(stream(&mut network, a, b, &switches), CLEAN);
}

/// A flow outlives the entry it was made of, and from then on its packets reach the controller.
#[test]
fn nor_is_what_is_kept_of_entries_that_have_ended() {
    for is_local in [true, false] {
        for (idle_s, hard_s) in [(2, 0), (0, 2)] {
            let timeouts = Timeouts {
                first_packets: FirstPackets::PreInstall,
                ..Timeouts::fixed(idle_s, hard_s)
            };
            let what = format!("local {is_local}, {:?}", timeouts.default);
            let (mut network, a, b, switches) = nearby(is_local, timeouts);
            resolve(&mut network, a, b);
            network.stream(a, b, 1000, 40, ms(10));
            network.run_for(ms(6000));
            let entries = |network: &Network| {
                let entries = network.switch(switches[0]).entries();
                entries.filter(|e| e.r#match.fields.len() == 3).count()
            };
            assert_eq!(entries(&network), 0, "{what}");
            network.host_mut(a).forget_addresses();
            let took = resolve(&mut network, a, b);
            assert!(took >= SETTLED, "{what}: {took:?}");
            assert_eq!(stream(&mut network, a, b, &switches), CLEAN, "{what}");
        }
    }
}

/// Packets that an edge answers are shown to the controller every five seconds only.
#[test]
fn nor_is_what_only_an_edge_has_seen() {
    let (mut network, a, b, switches) = nearby(true, Timeouts::default());
    let others = [(); 2].map(|()| network.add_host(switches[0]));
    network.run_for(ms(2000));
    let send = |network: &mut Network, from: HostId, to: HostId| {
        let (from_to, n) = (
            (network.host(from).address, network.host(to).address),
            [0; 8],
        );
        network.inject(from, udp(from_to.0, from_to.1, (1, 2), &n));
        network.run_for(ms(50));
    };
    // Known to the controller, and then to the edge.
    for host in others {
        let address = network.host(host).address;
        network.inject(host, arp_request(address, address.ip));
        network.run_for(ms(50));
        send(&mut network, host, a);
        send(&mut network, a, host);
    }
    network.run_for(ms(17_000));
    let connection = network.connection(switches[0]).expect("connected");
    let answered = |network: &Network| {
        let edge = network.process().edge(connection).expect("there");
        edge.counters().packet_ins
    };
    let third = network.add_host(switches[0]);
    network.run_for(ms(2000));
    let address = network.host(third).address;
    network.inject(third, arp_request(address, address.ip));
    network.inject(third, arp_reply(address, network.host(a).address));
    network.run_for(ms(100));
    // A packet that is shown stands for those that are not, of whatever kind.
    let before = answered(&network);
    let to = network.host(others[0]).address.mac;
    network.inject(third, ethernet(address.mac, to, IPV6, &[0; 46]));
    network.run_for(ms(50));
    send(&mut network, third, others[1]);
    assert_eq!(
        answered(&network),
        before + 2,
        "or there is nothing to show"
    );
    let took = resolve(&mut network, third, b);
    assert!(took >= SETTLED, "{took:?}");
}

/// It is unknown when an entry is active in a switch that does not say it is Open vSwitch.
#[test]
fn of_other_switches_a_barrier_is_not_believed() {
    let mut network = Network::new(NetworkConfig::default(), 1);
    let (a, b, _) = two_hosts(&mut network, false);
    network.run_for(ms(2000));
    let took = resolve(&mut network, a, b);
    assert!(took >= SETTLED, "{took:?}");
}

/// Neighbour discovery is IPv6 itself: it leaves a flow that what it is asked for would match.
#[test]
fn neighbour_discovery_waits_until_entries_have_settled() {
    let (mut network, a, b, _) = nearby(false, Timeouts::default());
    for host in [a, b] {
        let address = network.host(host).address;
        network.inject(host, arp_request(address, address.ip));
    }
    network.run_for(ms(100));
    network.host_mut(a).record = true;
    // Of the same path, what IPv4 waits for goes before.
    let (from, to) = (network.host(b).address, network.host(a).address);
    network.inject(b, solicitation(from.mac, to.mac, 136));
    let mut question = arp_request(from, to.ip);
    question[..6].copy_from_slice(&to.mac.0);
    network.inject(b, question);
    let kinds = |network: &Network| -> Vec<u16> {
        let recorded = network.host(a).recorded.iter();
        let kinds = recorded.map(|frame| u16::from_be_bytes([frame[12], frame[13]]));
        kinds.filter(|kind| [ARP, IPV6].contains(kind)).collect()
    };
    let start = network.now();
    let took = wait_for(&mut network, start, |n| kinds(n) == [ARP]);
    assert!(took < SETTLED, "{took:?}");
    let took = wait_for(&mut network, start, |n| kinds(n) == [ARP, IPV6]);
    assert!(took >= SETTLED, "{took:?}");
}

/// A message of neighbour discovery, by its type.
fn solicitation(src: MacAddr, dst: MacAddr, kind: u8) -> Vec<u8> {
    let header = [&[0x60, 0, 0, 0, 0, 24, 58, 255][..], &[0xfe; 32]].concat();
    let message = [&[kind, 0, 0, 0][..], &[0; 20]].concat();
    ethernet(src, dst, IPV6, &[header, message].concat())
}

/// IPv6: an answer, and a question to one host, are held as ARP's are; a redirect is not.
#[test]
fn neighbour_discovery_is_held_as_arp_is() {
    let mut network = network(FirstPackets::PreInstall, Mode::Reactive, Version::V13);
    let line = topology::line(&mut network, 3);
    network.run_for(ms(2000));
    for (n, host) in line.hosts.iter().enumerate() {
        let mac = network.host(*host).address.mac;
        network.inject(
            *host,
            ethernet(mac, MacAddr::BROADCAST, 0x88b5, &[n as u8; 46]),
        );
    }
    network.run_for(ms(100));
    let [a, b, c] = line.hosts[..] else {
        panic!("three hosts");
    };
    for (from, to, kind, held) in [(b, a, 136, 1), (c, a, 135, 2), (c, b, 137, 2)] {
        let (src, dst) = (network.host(from).address.mac, network.host(to).address.mac);
        network.inject(from, solicitation(src, dst, kind));
        network.run_for(ms(200));
        let counters = network.process().controller.counters();
        assert_eq!(counters.resolutions_held, held, "type {kind}");
    }
}
