//! More pairs in use than fit into a switch between others: they share entries. Sharing loses
//! nothing, lets nothing forbidden through and leaves nothing behind.

use std::collections::BTreeMap;

use clock::{Duration, Instant, ms};
use control::controller::{ControllerConfig, TableView};
use control::entry::{EntryKey, EntryKind};
use control::timeouts::budget::high_mark;
use control::timeouts::{
    FirstPackets, FlowClass, HostName, Lease, Lifetime, Proto, Service, Timeouts,
};
use openflow::packet::build::udp;
use openflow::{Action, DatapathId, Instruction, MacAddr, PortNo, Version};
use proptest::prelude::*;
use sim::network::{HostId, LinkId, Network, NetworkConfig, SwitchId};

const VERSIONS: [Version; 2] = [Version::V13, Version::V10];

/// Entries in the table of a core switch.
const LIMIT: u32 = 100;

const EDGES: usize = 4;
const HOSTS_PER_EDGE: usize = 4;

/// Time between two datagrams of a pair.
const GAP: Duration = Duration::from_millis(200);

/// Numbers of a pair's datagrams.
const NUMBERS: u64 = 10_000;

fn timeouts(cores: &[DatapathId]) -> Timeouts {
    Timeouts {
        default: Lifetime::Lease(Lease::default()),
        first_packets: FirstPackets::Controller,
        switches: cores.iter().map(|core| (*core, LIMIT)).collect(),
        ..Timeouts::default()
    }
}

/// Edge switches with hosts around cores whose tables are too small.
struct Star {
    network: Network,
    cores: Vec<SwitchId>,
    edges: Vec<SwitchId>,
    hosts: Vec<HostId>,
    /// Links from each edge to each core.
    links: Vec<LinkId>,
    sent: BTreeMap<(HostId, HostId), Vec<(Instant, u64)>>,
    occupancy_max: usize,
    /// Forbidden service; without one, all traffic of a forbidden pair is barred.
    barred_service: Option<Service>,
}

impl Star {
    fn new(version: Version, core_count: usize, seed: u64) -> Star {
        let dpids = (1..=core_count as u64).map(DatapathId);
        let dpids: Vec<DatapathId> = dpids.collect();
        let controller = ControllerConfig {
            timeouts: timeouts(&dpids),
            ..ControllerConfig::default()
        };
        let config = NetworkConfig {
            version,
            ..controller.into()
        };
        let mut network = Network::new(config, seed);
        let cores = dpids
            .iter()
            .map(|dpid| network.add_switch_of(*dpid, LIMIT as usize));
        let cores: Vec<SwitchId> = cores.collect();
        let edges = [(); EDGES].map(|()| network.add_switch());
        let mut links = Vec::new();
        for edge in edges {
            links.extend(cores.iter().map(|core| network.link(edge, *core)));
        }
        let hosts = edges.iter().flat_map(|edge| [*edge; HOSTS_PER_EDGE]);
        let hosts = hosts.map(|edge| network.add_host(edge)).collect();
        let mut star = Star {
            network,
            cores,
            edges: edges.to_vec(),
            hosts,
            links,
            sent: BTreeMap::new(),
            occupancy_max: 0,
            barred_service: None,
        };
        star.run(ms(2000));
        star
    }

    /// Runs in steps, so that the fullest state of the tables is seen.
    fn run(&mut self, time: Duration) {
        let step = ms(20);
        let end = self.network.now() + time;
        while self.network.now() < end {
            self.network
                .run_for(step.min(end.since(self.network.now())));
            for core in &self.cores {
                let entries = self.network.switch(*core).entries().count();
                self.occupancy_max = self.occupancy_max.max(entries);
            }
        }
    }

    /// Datagrams of one pair from now on.
    fn stream(&mut self, from: HostId, to: HostId, count: u64) {
        let pair = (from.0 * self.hosts.len() + to.0) as u64;
        let now = self.network.now();
        let sent = self.sent.entry((from, to)).or_default();
        let first = pair * NUMBERS + sent.len() as u64;
        sent.extend((0..count).map(|n| (now + GAP * n as u32, first + n)));
        self.network.stream(from, to, first, count, GAP);
    }

    /// Every pair of hosts at different edges, one after the other.
    fn stream_all(&mut self, count: u64) {
        for (from, to) in self.pairs() {
            self.stream(from, to, count);
            self.run(ms(10));
        }
    }

    fn pairs(&self) -> Vec<(HostId, HostId)> {
        let edge = |host: &HostId| host.0 / HOSTS_PER_EDGE;
        let to = |from: &HostId| {
            let from = *from;
            let others = self.hosts.iter().filter(move |to| edge(to) != edge(&from));
            others.map(move |to| (from, *to))
        };
        self.hosts.iter().flat_map(to).collect()
    }

    /// The number of a pair's datagrams sent in that time, and the number of these that arrived.
    fn told(&self, pair: (HostId, HostId), from: Instant, until: Instant) -> (usize, usize) {
        let sent = &self.sent[&pair];
        let within = sent.iter().filter(|(at, _)| (from..until).contains(at));
        let got = &self.network.host(pair.1).datagrams;
        let arrived = within.clone().filter(|(_, n)| got.contains_key(n)).count();
        (within.count(), arrived)
    }

    fn lost(&self, from: Instant, until: Instant) -> Vec<((HostId, HostId), usize)> {
        let pairs = self.sent.keys().map(|pair| {
            let (sent, arrived) = self.told(*pair, from, until);
            (*pair, sent - arrived)
        });
        pairs.filter(|(_, lost)| *lost > 0).collect()
    }

    /// The time before which every datagram sent has had its time to arrive.
    fn settled(&self) -> Instant {
        Instant(self.network.now().as_nanos() - 500_000_000)
    }

    fn coarse(&self, at: SwitchId) -> usize {
        let kinds = self.network.switch(at).entries();
        kinds
            .filter(|entry| EntryKind::of(entry.cookie) == Some(EntryKind::Coarse))
            .count()
    }

    /// The ports to which coarse entries for a host lead.
    fn ways(&self, at: SwitchId, to: HostId) -> Vec<PortNo> {
        let mac = self.network.host(to).address.mac;
        let entries = self.network.switch(at).entries();
        let to_host = entries.filter(|entry| {
            let key = EntryKey::from_match(entry.priority, &entry.r#match);
            EntryKind::of(entry.cookie) == Some(EntryKind::Coarse)
                && key.is_some_and(|key| key.eth_dst == Some(mac))
        });
        let out = to_host.flat_map(|entry| match &entry.instructions[..] {
            [Instruction::ApplyActions(actions)] => actions.clone(),
            _ => Vec::new(),
        });
        let port = out.filter_map(|action| match action {
            Action::Output { port, .. } => Some(port),
            _ => None,
        });
        port.collect()
    }

    fn view(&self, at: usize) -> TableView {
        self.network.process().controller.switches()[at].table
    }

    fn barred(&self, from: HostId, to: HostId) -> FlowClass {
        let mac = |host: HostId| HostName::Mac(self.network.host(host).address.mac);
        FlowClass {
            name: "barred".to_owned(),
            src: Some(mac(from)),
            dst: Some(mac(to)),
            service: self.barred_service.clone(),
            lifetime: None,
            first_packets: None,
            forbid: true,
            priority: false,
        }
    }

    fn bar(&mut self, from: HostId, to: HostId) {
        let core = DatapathId(1);
        let timeouts = Timeouts {
            classes: vec![self.barred(from, to)],
            ..timeouts(&[core])
        };
        self.network.set_timeouts(timeouts);
    }
}

/// 192 pairs through a table of 100: none of their packets is lost, the table is never full, and an
/// hour later nothing is left of it.
#[test]
fn pairs_share_entries_where_they_do_not_fit_and_nothing_is_lost() {
    for version in VERSIONS {
        let mut star = Star::new(version, 1, 1);
        let core = star.cores[0];
        let begin = star.network.now();
        star.stream_all(100);
        star.run(ms(10_000));
        let view = star.view(0);
        assert!(star.coarse(core) > 20, "{version:?}: {view:?}");
        assert_eq!(view.coarse, star.coarse(core), "{version:?}");
        assert!(view.counters.coarsened > 100, "{version:?}: {view:?}");
        // Most pairs now use entries that existed before.
        star.occupancy_max = 0;
        let misses = star.network.process().controller.counters().packet_ins;
        star.run(ms(5000));
        let later = star.network.process().controller.counters().packet_ins - misses;
        assert!(
            later < 100,
            "{version:?}: {later} packet-ins in 5 s of 192 pairs"
        );
        star.run(ms(10_000));
        assert_eq!(star.lost(begin, star.network.now()), [], "{version:?}");
        assert_eq!(star.network.errors().count(), 0, "{version:?}");
        // This holds once all pairs have begun; until then the entries set between two readings are
        // on top.
        let bound = high_mark(LIMIT) as usize;
        assert!(
            star.occupancy_max <= bound,
            "{version:?}: {}",
            star.occupancy_max
        );
        star.run(ms(150_000));
        assert_eq!(
            star.network.switch(core).entries().count(),
            2,
            "{version:?}"
        );
        assert_eq!(star.view(0).coarse, 0, "{version:?}");
    }
}

/// Without a limit no entry is shared: the test above sees an effect of the table's limit.
#[test]
fn where_all_fit_each_pair_has_its_own() {
    let mut star = Star::new(Version::V13, 1, 1);
    for edge in 0..2 {
        let [from, to] = [edge, edge + 2].map(|edge| star.hosts[edge * HOSTS_PER_EDGE]);
        star.stream(from, to, 50);
    }
    star.run(ms(10_000));
    assert_eq!(
        (star.coarse(star.cores[0]), star.view(0).counters.coarsened),
        (0, 0)
    );
}

/// One pair is forbidden beforehand, and one while its packets share an entry: all of its traffic,
/// or only the service that is sent here.
#[test]
fn what_is_forbidden_stays_so_where_entries_are_coarse() {
    let streams = Service {
        proto: Proto::UDP,
        src_ports: Vec::new(),
        dst_ports: vec![4001],
    };
    let both = [None, Some(streams)];
    let cases = VERSIONS
        .into_iter()
        .flat_map(|v| both.clone().map(|s| (v, s)));
    for (version, service) in cases {
        let mut star = Star::new(version, 1, 2);
        star.barred_service = service;
        let core = star.cores[0];
        let pairs = star.pairs();
        let (before, meanwhile) = (pairs[5], pairs[100]);
        star.bar(before.0, before.1);
        star.stream_all(100);
        star.run(ms(5000));
        assert!(star.coarse(core) > 20, "{version:?}");
        let end = star.network.now();
        let (sent, arrived) = star.told(before, Instant::START, end);
        assert!(sent > 20 && arrived == 0, "{version:?}: {arrived}");
        let classes = [before, meanwhile].map(|(from, to)| star.barred(from, to));
        let timeouts = Timeouts {
            classes: classes.to_vec(),
            ..timeouts(&[DatapathId(1)])
        };
        star.network.set_timeouts(timeouts);
        let then = star.network.now() + ms(10);
        star.run(ms(5000));
        for pair in [before, meanwhile] {
            let (sent, arrived) = star.told(pair, then, star.settled());
            assert!(
                sent >= 10 && arrived == 0,
                "{version:?}: {arrived} of {sent}"
            );
        }
        let others = star.lost(Instant::START, star.settled());
        // A host that may not answer a request for its address is not found either.
        let back = (before.1, before.0);
        let others = others.iter().map(|(pair, _)| *pair);
        let others = others.filter(|pair| ![before, meanwhile, back].contains(pair));
        assert_eq!(others.collect::<Vec<_>>(), [], "{version:?}");
    }
}

/// Edge switches are too small as well, and one port has many hosts behind it. An unknown host
/// there sends to one for which all pairs share entries.
#[test]
fn a_new_sender_is_learned_where_entries_are_coarse() {
    let mut star = Star::new(Version::V13, 1, 3);
    let all: Vec<DatapathId> = (1..=1 + EDGES as u64).map(DatapathId).collect();
    let mut small = timeouts(&all);
    small
        .switches
        .extend(all[1..].iter().map(|edge| (*edge, 60)));
    star.network.set_timeouts(small);
    let begin = star.network.now();
    star.stream_all(150);
    let (here, to) = (star.hosts[1], star.hosts[HOSTS_PER_EDGE]);
    let to = star.network.host(to).address;
    let place = star.network.place(here);
    let frame = |n: u8| {
        let mut from = star.network.host(here).address;
        from.mac = MacAddr([2, 0, 0, 0, 9, n]);
        (from.mac, udp(from, to, (1, 2), &u64::from(n).to_be_bytes()))
    };
    let (many, (unheard, last)) = ([1, 2, 3, 4, 5, 6].map(frame), frame(7));
    for _ in 0..100 {
        for (_, frame) in &many {
            star.network
                .inject_at(star.edges[0], place.port, frame.clone());
        }
        star.run(ms(100));
    }
    assert!(star.coarse(star.cores[0]) >= 20 && star.coarse(star.edges[0]) > 0);
    star.network.inject_at(star.edges[0], place.port, last);
    star.run(ms(1000));
    let known = star.network.process().controller.hosts();
    let known = known.iter().find(|host| host.mac == unheard);
    assert_eq!(known.map(|host| host.at), Some(place));
    let got = &star.network.host(star.hosts[HOSTS_PER_EDGE]).datagrams;
    assert!(got.contains_key(&7));
    assert_eq!(star.lost(begin, star.settled()), []);
}

/// A host for which all share entries moves to another edge. Once the controller has a packet
/// from it there, all packets for it arrive there.
#[test]
fn coarse_entries_follow_a_host_that_moves() {
    for (version, unplug) in VERSIONS.into_iter().flat_map(|v| [(v, true), (v, false)]) {
        let mut star = Star::new(version, 1, 4);
        let core = star.cores[0];
        star.stream_all(200);
        star.run(ms(5000));
        assert!(star.coarse(core) > 20, "{version:?}");
        let host = star.hosts[0];
        let new = star.edges[2];
        star.network.move_host(host, new, unplug);
        // The port is held for discovery, then the host is seen by its constant traffic, and asked
        // for at its old port.
        star.run(ms(3000));
        let begin = star.network.now();
        star.run(ms(8000));
        let until = star.settled();
        let lost = star.lost(begin, until);
        assert_eq!(lost, [], "{version:?}: after it was heard");
        assert!(star.coarse(core) > 10, "{version:?}");
        let ends = star.network.link_ends(star.links[2]);
        let to_new = ends
            .iter()
            .find(|end| end.dpid == DatapathId(1))
            .expect("it is linked");
        let ways = star.ways(core, host);
        assert!(
            ways.iter().all(|way| *way == to_new.port),
            "{version:?}: {ways:?}"
        );
        let errors: Vec<_> = star.network.errors().collect();
        assert_eq!(errors, [], "{version:?} {:?}", star.view(0));
    }
}

/// Few pairs go on. They get entries of their own again before the coarse ones are removed, and
/// lose no packet.
#[test]
fn when_nothing_presses_pairs_have_their_own_entries_again() {
    for version in VERSIONS {
        let mut star = Star::new(version, 1, 5);
        let core = star.cores[0];
        let kept: Vec<_> = star.pairs().into_iter().step_by(10).collect();
        let begin = star.network.now();
        star.stream_all(40);
        for (from, to) in &kept {
            star.stream(*from, *to, 1500);
        }
        star.run(ms(10_000));
        assert!(star.coarse(core) > 20, "{version:?}");
        star.run(ms(150_000));
        let view = star.view(0);
        assert_eq!(
            (star.coarse(core), view.coarse),
            (0, 0),
            "{version:?}: {view:?}"
        );
        assert!(view.counters.refined > 10, "{version:?}: {view:?}");
        star.run(ms(20_000));
        assert_eq!(star.lost(begin, star.settled()), [], "{version:?}");
    }
}

/// A controller that takes over keeps coarse entries, and their traffic goes on.
#[test]
fn a_new_controller_takes_coarse_entries_over() {
    let mut star = Star::new(Version::V13, 1, 6);
    let core = star.cores[0];
    star.stream_all(200);
    star.run(ms(12_000));
    let before = star.coarse(core);
    assert!(before > 20);
    let begin = star.network.now();
    star.network.kill_controller();
    star.network.start_controller(9);
    star.run(ms(8000));
    assert!(
        star.coarse(core) * 2 > before,
        "{} of {before}",
        star.coarse(core)
    );
    assert_eq!(star.view(0).coarse, star.coarse(core));
    assert_eq!(star.lost(begin, star.settled()), []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Links between edges and two cores come and go and hosts move, all while entries are coarse.
    /// Two seconds after any change nothing is lost, and no packet has gone in circles.
    #[test]
    fn whatever_changes_nothing_is_lost_or_goes_in_circles(
        seed in 0u64..1000,
        changes in prop::collection::vec((0usize..8, 0usize..3, 0usize..EDGES), 1..4),
    ) {
        let mut star = Star::new(Version::V13, 2, seed);
        star.stream_all(200);
        star.run(ms(3000));
        let mut down = None;
        for (link, what, edge) in changes {
            match what {
                // One at a time, so that there is always a path.
                0 => {
                    if let Some(link) = down.replace(star.links[link]) {
                        star.network.set_link(link, true);
                    }
                    star.network.set_link(star.links[link], false);
                }
                1 => {
                    if let Some(link) = down.take() {
                        star.network.set_link(link, true);
                    }
                }
                _ => {
                    let host = star.hosts[link];
                    star.network.move_host(host, star.edges[edge], true);
                }
            }
            star.run(ms(3500));
            let (begin, carried) = (star.network.now(), star.network.carried);
            star.run(ms(1500));
            let until = star.settled();
            let lost = star.lost(begin, until);
            prop_assert_eq!(lost, []);
            // 192 pairs of 5 packets a second, over at most six cables, and LLDP.
            let carried = star.network.carried - carried;
            prop_assert!(carried < 192 * 5 * 2 * 6, "{} packets", carried);
        }
    }
}
