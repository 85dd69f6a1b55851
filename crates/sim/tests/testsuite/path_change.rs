//! The effect of a change of path on a stream: packets lost, and packets overtaken.

use std::collections::BTreeSet;

use clock::{Duration, ms};
use control::controller::{ControllerConfig, Drained, Mode};
use control::entry::{Entry, EntryKind};
use control::timeouts::{FlowClass, HostName, Lifetime, Timeouts};
use openflow::packet::build::udp;
use openflow::{DatapathId, MacAddr};
use sim::network::{HostId, Network, NetworkConfig, SwitchId};
use sim::topology::{self, Topology};

use crate::services_order::class;

const MODES: [Mode; 3] = [Mode::Reactive, Mode::Proactive, Mode::Hybrid];

/// The time between two packets.
const INTERVAL: Duration = Duration::from_millis(1);

/// A controller with a round trip of 17 ms, and switches whose entries are active up to 17 ms after
/// they were confirmed.
fn network(mode: Mode) -> Network {
    network_at(mode, Duration::from_micros(8500))
}

fn network_at(mode: Mode, control_delay: Duration) -> Network {
    Network::new(config(mode, control_delay), 1)
}

fn config(mode: Mode, control_delay: Duration) -> NetworkConfig {
    let controller = ControllerConfig {
        mode,
        ..ControllerConfig::default()
    };
    NetworkConfig {
        control_delay,
        activation_delay: ms(17),
        ..controller.into()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    lost: usize,
    reordered: usize,
    /// The number of packet-ins.
    packet_ins: u64,
}

const NOTHING: Seen = Seen {
    lost: 0,
    reordered: 0,
    packet_ins: 0,
};

/// A second of a stream while `change` happens in its middle, and two more.
fn during(
    network: &mut Network,
    (a, b): (HostId, HostId),
    change: impl FnOnce(&mut Network),
) -> Seen {
    let before = packet_ins(network);
    network.host_mut(b).arrivals.clear();
    network.stream(a, b, 0, 3000, INTERVAL);
    network.run_for(ms(500));
    change(network);
    network.run_for(ms(3500));
    seen(network, b, 3000, before)
}

/// Four bursts of 900 ms with rests of two seconds; `change` happens amid the first.
fn in_bursts(
    network: &mut Network,
    (a, b): (HostId, HostId),
    change: impl FnOnce(&mut Network),
) -> Seen {
    let before = packet_ins(network);
    network.host_mut(b).arrivals.clear();
    let mut change = Some(change);
    for burst in 0..4 {
        network.stream(a, b, burst * 900, 900, INTERVAL);
        network.run_for(ms(150));
        if let Some(change) = change.take() {
            change(network);
        }
        network.run_for(ms(2750));
    }
    seen(network, b, 3600, before)
}

fn packet_ins(network: &Network) -> u64 {
    let counters = network.process().controller.counters();
    counters.packet_ins - counters.lldp_accepted
}

fn seen(network: &Network, at: HostId, sent: usize, packet_ins_before: u64) -> Seen {
    let arrivals = &network.host(at).arrivals;
    let mut next = 0;
    let late = arrivals.iter().filter(|number| {
        let is_late = **number < next;
        next = next.max(**number + 1);
        is_late
    });
    let reordered = late.count();
    let mut distinct = arrivals.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), arrivals.len(), "none is there twice");
    Seen {
        lost: sent - distinct.len(),
        reordered,
        packet_ins: packet_ins(network) - packet_ins_before,
    }
}

fn drain_links(network: &mut Network, ring: &Topology, links: &[usize]) {
    drain_waiting(network, ring, links, Duration::ZERO);
}

fn drain_waiting(network: &mut Network, ring: &Topology, links: &[usize], wait: Duration) {
    let ends = links.iter().map(|n| network.link_ends(ring.links[*n])[0]);
    let drained = Drained {
        links: ends.collect(),
        wait,
        ..Drained::default()
    };
    network.set_drained(drained);
}

/// Five switches in a circle, and two hosts: one hop of 5 ms, or four of 2 ms each in the other
/// direction.
fn ring(mode: Mode, to: usize) -> (Network, Topology, (HostId, HostId)) {
    ring_in(network(mode), to)
}

fn ring_in(mut network: Network, to: usize) -> (Network, Topology, (HostId, HostId)) {
    let ring = topology::ring(&mut network, 5);
    for (n, link) in ring.links.iter().enumerate() {
        network.set_delay(*link, if n == 0 { ms(5) } else { ms(2) });
    }
    let pair = (ring.hosts[0], ring.hosts[to]);
    network.run_for(ms(2000));
    network.resolve(pair.0, pair.1);
    network.run_for(ms(1000));
    (network, ring, pair)
}

/// Moves to a slower path, where nothing can overtake.
#[test]
fn a_planned_change_loses_nothing_and_reorders_nothing() {
    // A nearby controller is faster than entries become active, and the ingress is faster than the
    // rest.
    let delays = [200, 8500].map(Duration::from_micros);
    for (mode, delay) in MODES.into_iter().flat_map(|mode| delays.map(|d| (mode, d))) {
        let (mut network, ring, pair) = ring_in(network_at(mode, delay), 1);
        network.set_activation_delay(ring.switches[0], Duration::ZERO);
        assert_eq!(during(&mut network, pair, |_| {}), NOTHING, "{mode:?}");
        let seen = during(&mut network, pair, |network| {
            drain_links(network, &ring, &[0])
        });
        assert_eq!(seen, NOTHING, "{mode:?}");
        // The link carries nothing any more, as its failure shows.
        let seen = during(&mut network, pair, |network| {
            network.set_dark(ring.links[0], true)
        });
        assert_eq!(seen, NOTHING, "{mode:?}: the link was still in use");
    }
}

/// Moves to a faster path: packets sent in the difference of the delays overtake.
#[test]
fn a_planned_change_to_a_faster_way_reorders_the_difference_and_loses_nothing() {
    for mode in MODES {
        let (mut network, ring, pair) = ring(mode, 1);
        drain_links(&mut network, &ring, &[0]);
        network.run_for(ms(1000));
        let seen = during(&mut network, pair, |network| {
            drain_links(network, &ring, &[2])
        });
        assert_eq!((seen.lost, seen.packet_ins), (0, 0), "{mode:?}");
        assert!(
            (1..=3).contains(&seen.reordered),
            "{mode:?}: {seen:?}, of 3 ms"
        );
    }
}

/// Both directions on the slow path at the start.
fn on_the_slow_way() -> (Network, Topology, (HostId, HostId)) {
    on_the_slow_way_of(network(Mode::Reactive))
}

fn on_the_slow_way_of(network: Network) -> (Network, Topology, (HostId, HostId)) {
    let (mut network, ring, pair) = ring_in(network, 1);
    drain_links(&mut network, &ring, &[0]);
    network.run_for(ms(1000));
    (network, ring, pair)
}

/// Paths that found a pause, and those that did not.
fn moved(network: &Network) -> (u64, u64) {
    let counters = network.process().controller.counters();
    (
        counters.paths_moved_in_pause,
        counters.paths_moved_under_traffic,
    )
}

#[test]
fn a_planned_change_in_a_pause_reorders_nothing_even_to_a_faster_way() {
    let wait = ms(6000);
    let (mut network, ring, pair) = on_the_slow_way();
    let seen = in_bursts(&mut network, pair, |network| {
        drain_waiting(network, &ring, &[2], wait)
    });
    assert_eq!((seen, moved(&network)), (NOTHING, (2, 0)));
    network.set_dark(ring.links[2], true);
    let seen = in_bursts(&mut network, pair, |_| {});
    assert_eq!(seen, NOTHING, "the link was still in use");
    // The same change without a wait for a pause.
    let (mut network, ring, pair) = on_the_slow_way();
    let seen = in_bursts(&mut network, pair, |network| {
        drain_links(network, &ring, &[2])
    });
    assert!(seen.reordered > 0, "{seen:?}");
    assert_eq!(moved(&network), (0, 0));
}

/// Packets within the difference of the two delays are overtaken, and the controller reports it.
#[test]
fn who_does_not_pause_is_moved_under_traffic_when_the_wait_is_over() {
    let (mut network, ring, pair) = on_the_slow_way();
    let seen = during(&mut network, pair, |network| {
        drain_waiting(network, &ring, &[2], ms(2000))
    });
    assert_eq!((seen.lost, seen.packet_ins), (0, 0));
    assert!((1..=3).contains(&seen.reordered), "{seen:?}, of 3 ms");
    // The reverse path has no traffic.
    assert_eq!(moved(&network), (1, 1));
    network.set_dark(ring.links[2], true);
    let after = during(&mut network, pair, |_| {});
    assert_eq!(after, NOTHING, "the link was still in use");
}

/// Lets streams pass and forbids all other UDP traffic.
fn only_streams() -> Timeouts {
    const STREAM_PORT: u16 = 4001;
    Timeouts {
        classes: vec![
            class("streams", &[STREAM_PORT], false),
            class("rest", &[], true),
        ],
        ..Timeouts::default()
    }
}

/// Paths are separate where services are distinguished: each moves in its own pause, and its
/// packets never meet the entry that drops the rest.
#[test]
fn services_turn_in_a_pause_and_what_is_forbidden_stays_so() {
    let (mut network, ring, pair) = on_the_slow_way();
    network.set_timeouts(only_streams());
    network.run_for(ms(1000));
    let seen = in_bursts(&mut network, pair, |network| {
        drain_waiting(network, &ring, &[2], ms(6000))
    });
    assert_eq!((seen, moved(&network)), (NOTHING, (2, 0)));
    network.set_dark(ring.links[2], true);
    let seen = in_bursts(&mut network, pair, |_| {});
    assert_eq!(seen, NOTHING, "the link was still in use");
    // While entries wait for a pause, and when they have found it.
    let (mut network, ring, pair) = on_the_slow_way();
    network.set_timeouts(only_streams());
    network.run_for(ms(1000));
    drain_waiting(&mut network, &ring, &[2], ms(6000));
    let [from, to] = [pair.0, pair.1].map(|host| network.host(host).address);
    for number in 0..100 {
        let frame = udp(from, to, (9, 53), &u64::to_be_bytes(number));
        network.inject(pair.0, frame);
        network.run_for(ms(100));
    }
    assert_eq!(network.host(pair.1).arrivals, [0_u64; 0]);
}

/// A service that does not pause is overtaken, and this is reported, although the pair's own entry
/// has ended.
#[test]
fn a_service_that_does_not_pause_is_moved_under_traffic() {
    let (mut network, ring, pair) = on_the_slow_way();
    network.set_timeouts(only_streams());
    network.run_for(ms(1000));
    let seen = during(&mut network, pair, |network| {
        drain_waiting(network, &ring, &[2], ms(2000))
    });
    assert_eq!((seen.lost, seen.packet_ins), (0, 0));
    assert!((1..=3).contains(&seen.reordered), "{seen:?}, of 3 ms");
    assert_eq!(moved(&network), (1, 1));
    network.set_dark(ring.links[2], true);
    let after = during(&mut network, pair, |_| {});
    assert_eq!(after, NOTHING, "the link was still in use");
}

/// The service's own entry has ended. Its packets use the pair's entry, and move with it and not
/// before.
#[test]
fn a_service_without_an_entry_turns_in_the_pause_of_its_pair() {
    let (mut network, ring, pair) = on_the_slow_way();
    // What is set first is seen, however short.
    network.set_activation_delay(ring.switches[0], Duration::ZERO);
    let mut streams = only_streams();
    streams.classes.truncate(1);
    streams.classes[0].lifetime = Some(Lifetime::Fixed {
        idle_s: 1,
        hard_s: 0,
    });
    network.set_timeouts(streams);
    let has_entry = |network: &Network| {
        let mut entries = network.switch(ring.switches[0]).entries();
        entries.any(|entry| EntryKind::of(entry.cookie) == Some(EntryKind::Service))
    };
    network.run_for(ms(200));
    assert!(has_entry(&network));
    network.run_for(ms(4000));
    assert!(!has_entry(&network));
    let seen = in_bursts(&mut network, pair, |network| {
        drain_waiting(network, &ring, &[2], ms(6000))
    });
    assert_eq!((seen, moved(&network)), (NOTHING, (2, 0)));
}

/// Others are refused where it waits, and nothing may go: what it has there is not taken for what
/// was refused.
#[test]
fn a_path_waits_on_where_the_table_is_full_for_others() {
    // Two entries that every switch has, the path, both return paths, and the entry that takes
    // over.
    const ENTRIES: usize = 6;
    let never_chosen_to_go = |host: u8| FlowClass {
        name: format!("from {host}"),
        src: Some(HostName::Mac(MacAddr([2, 0, 0, 0, 0, host]))),
        dst: None,
        service: None,
        lifetime: None,
        first_packets: None,
        forbid: false,
        priority: true,
    };
    let mut config = config(Mode::Reactive, ms(1));
    config.entries_max = ENTRIES;
    config.process.controller.timeouts = Timeouts {
        classes: (1..=5).map(never_chosen_to_go).collect(),
        switches: [(DatapathId(1), 100)].into(),
        ..Timeouts::default()
    };
    let (mut network, ring, pair) = on_the_slow_way_of(Network::new(config, 1));
    let seen = during(&mut network, pair, |network| {
        drain_waiting(network, &ring, &[2], ms(60_000));
        network.run_for(ms(300));
        network.resolve(ring.hosts[0], ring.hosts[3]);
        network.run_for(ms(1700));
        let switches = network.process().controller.switches();
        assert!(switches[0].table.counters.table_full > 0);
    });
    assert_eq!((seen.lost, seen.reordered), (0, 0));
    assert_eq!(moved(&network), (2, 0));
}

#[test]
fn a_link_that_fails_while_a_path_waits_costs_no_more_than_any() {
    let (mut network, ring, pair) = on_the_slow_way();
    drain_waiting(&mut network, &ring, &[2], ms(60_000));
    network.stream(pair.0, pair.1, 0, 1000, INTERVAL);
    // No pause of a second.
    network.run_for(ms(1100));
    let failed = during(&mut network, pair, |network| {
        network.set_link(ring.links[2], false)
    });
    assert!(failed.lost <= 5 + 17 * 2 + 17 + 5, "{failed:?}");
    let after = during(&mut network, pair, |_| {});
    assert_eq!(after, NOTHING);
}

#[test]
fn another_drain_while_a_path_waits_loses_nothing() {
    let (mut network, ring, pair) = on_the_slow_way();
    let seen = during(&mut network, pair, |network| {
        drain_waiting(network, &ring, &[2], ms(60_000));
        network.run_for(ms(300));
        drain_waiting(network, &ring, &[0], ms(60_000));
    });
    assert_eq!((seen.lost, seen.packet_ins), (0, 0), "{seen:?}");
    network.set_dark(ring.links[0], true);
    let after = during(&mut network, pair, |_| {});
    assert_eq!(after, NOTHING, "the link was still in use");
}

fn fixed(idle_s: u16, hard_s: u16) -> Timeouts {
    Timeouts {
        default: Lifetime::Fixed { idle_s, hard_s },
        ..Timeouts::default()
    }
}

/// A FLOW_REMOVED may arrive after the next entry of its key was sent: here the old entry ends at
/// the moment when the wait for a pause is over.
#[test]
fn an_end_that_is_told_late_ends_nothing_that_was_sent_since() {
    let mut network = network(Mode::Reactive);
    network.set_timeouts(fixed(0, 60));
    let (mut network, ring, _) = on_the_slow_way_of(network);
    drain_waiting(&mut network, &ring, &[2], ms(1000));
    network.run_for(ms(500));
    network.set_control_delay(ms(20));
    network.run_for(ms(2000));
    assert_eq!(moved(&network).0 + moved(&network).1, 2);
    assert_eq!(network.process().controller.path_count(), 2);
    assert_entries_are_as_wanted(&network, &ring.switches);
}

/// The successor entries are removed although the path moves on before their removal.
#[test]
fn no_successor_outlives_its_turn() {
    let (mut network, ring, pair) = on_the_slow_way();
    network.stream(pair.0, pair.1, 0, 4000, INTERVAL);
    drain_waiting(&mut network, &ring, &[2], ms(1000));
    let has_turned = |network: &Network| moved(network).1 > 0;
    let end = network.now() + ms(3000);
    while !has_turned(&network) && network.now() < end {
        network.run_for(ms(1));
    }
    assert!(has_turned(&network));
    drain_links(&mut network, &ring, &[0]);
    network.run_for(ms(1000));
    for switch in &ring.switches {
        let dpid = network.switch(*switch).features().datapath_id;
        let mut wanted = network.process().controller.entries(dpid);
        assert!(!wanted.any(|entry| entry.key.is_successor()), "{dpid}");
    }
    assert_entries_are_as_wanted(&network, &ring.switches);
}

/// No packet takes the new path during the wait, which is longer than unused entries last.
#[test]
fn the_new_way_is_there_when_a_long_wait_is_over() {
    let mut network = network(Mode::Reactive);
    network.set_timeouts(fixed(1, 0));
    let (mut network, ring, pair) = on_the_slow_way_of(network);
    network.stream(pair.0, pair.1, 0, 6000, INTERVAL);
    network.run_for(ms(500));
    let before = packet_ins(&network);
    drain_waiting(&mut network, &ring, &[2], ms(3000));
    network.run_for(ms(5000));
    assert_eq!(moved(&network).1, 1);
    assert_eq!(packet_ins(&network), before);
}

/// A path is moved beyond its first switch without touching its first entry. That entry ends when
/// it would have: seconds after the move, and sooner after the move than its timeout.
#[test]
fn a_path_that_was_moved_ends_with_its_first_entry() {
    let mut network = network(Mode::Reactive);
    network.set_timeouts(fixed(3, 0));
    let switches = [(); 6].map(|()| network.add_switch());
    let [a, b, c, d, e, f] = switches;
    let [_, way, _] = [(a, b), (b, c), (c, d)].map(|(from, to)| network.link(from, to));
    for (from, to) in [(b, e), (e, f), (f, d)] {
        network.link(from, to);
    }
    let (src, dst) = (network.add_host(a), network.add_host(d));
    network.run_for(ms(2000));
    network.resolve(src, dst);
    network.run_for(ms(2500));
    assert_eq!(network.process().controller.path_count(), 2);
    let ends = network.link_ends(way)[0];
    network.set_drained(Drained {
        links: [ends].into(),
        ..Drained::default()
    });
    network.run_for(ms(5000));
    let counters = network.process().controller.counters();
    assert_eq!(counters.paths_rerouted, 2);
    assert_eq!(network.process().controller.path_count(), 0);
    assert_entries_are_as_wanted(&network, &switches);
}

/// Checks that switches have the wanted entries of pairs, by key and by output.
fn assert_entries_are_as_wanted(network: &Network, switches: &[SwitchId]) {
    let of_pairs = |entry: Entry| {
        let shape = (entry.key, entry.out);
        (entry.kind == EntryKind::Pair).then_some(shape)
    };
    for switch in switches {
        let dpid = network.switch(*switch).features().datapath_id;
        let wanted = network.process().controller.entries(dpid);
        let wanted: BTreeSet<_> = wanted.filter_map(of_pairs).collect();
        let held = network.switch(*switch).entries();
        let held = held.filter_map(|entry| Entry::from_stats(&entry.stats(network.now())));
        let held: BTreeSet<_> = held.filter_map(of_pairs).collect();
        assert_eq!(held, wanted, "{dpid}");
    }
}

#[test]
fn a_switch_is_taken_out_without_loss() {
    for mode in MODES {
        let (mut network, ring, pair) = ring(mode, 3);
        // Its path is over switch 4.
        let out = ring.switches[4];
        let dpid = network.switch(out).features().datapath_id;
        let seen = during(&mut network, pair, |network| {
            network.set_drained(Drained {
                switches: [dpid].into(),
                ..Drained::default()
            });
        });
        assert_eq!((seen.lost, seen.packet_ins), (0, 0), "{mode:?}");
        let seen = during(&mut network, pair, |network| {
            for n in [3, 4] {
                network.set_dark(ring.links[n], true);
            }
        });
        assert_eq!(seen, NOTHING, "{mode:?}: the switch was still in use");
    }
}

#[test]
fn what_has_no_other_way_stays() {
    for mode in MODES {
        let mut network = network(mode);
        let line = topology::line(&mut network, 3);
        let pair = (line.hosts[0], line.hosts[2]);
        network.run_for(ms(2000));
        network.resolve(pair.0, pair.1);
        network.run_for(ms(500));
        let seen = during(&mut network, pair, |network| {
            drain_links(network, &line, &[0, 1])
        });
        assert_eq!(seen, NOTHING, "{mode:?}");
    }
}

/// Packets on a failed link are lost, and those sent until the switch has reported the failure
/// and the new path is active. When the link returns, nothing is lost.
#[test]
fn a_failure_costs_its_round_trip_and_a_return_nothing() {
    for (mode, to) in MODES.into_iter().flat_map(|mode| [(mode, 1), (mode, 2)]) {
        let (mut network, ring, pair) = ring(mode, to);
        // The link before the destination; that of 5 ms where the two are neighbours.
        let link = ring.links[to - 1];
        let failed = during(&mut network, pair, |network| network.set_link(link, false));
        let what = format!("{mode:?} to {to}");
        assert!(failed.lost <= 5 + 17 * 2 + 17 + 5, "{what}: {failed:?}");
        assert!(failed.reordered <= 5, "{what}: {failed:?}");
        let back = during(&mut network, pair, |network| network.set_link(link, true));
        assert_eq!(back.lost, 0, "{what}: {back:?}");
        assert!(back.reordered <= 5, "{what}: {back:?}");
        let after = during(&mut network, pair, |_| {});
        assert_eq!(after, NOTHING, "{what}: not even long after");
        println!("{what}: failure {failed:?}, return {back:?}");
    }
}
