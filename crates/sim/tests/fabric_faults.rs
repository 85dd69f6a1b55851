//! Random networks of the fabric under random faults: whatever has happened, in quiet times every
//! pair talks by a shortest path, a broadcast reaches every host by one packet-out, and nothing
//! stale is left. At no time does a packet go in circles, or reach a host twice. A planned change
//! loses and reorders nothing.
//!
//! `FABRIC_SEEDS=1000..11000 cargo test --profile checked -p auster-sim --test fabric_faults` runs
//! the seeds of `make test`. `FABRIC_SEEDS=17..18` runs one that has failed.

#![allow(
    clippy::disallowed_methods,
    reason = "a test reads its environment and uses all cores"
)]

mod seeds;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clock::{Duration, Instant, SplitMix64, ms};
use control::Location;
use control::controller::{ControllerConfig, Drained, FabricConfig, RefusedReason};
use control::entry::EntryKind;
use control::fabric::plan::PORTS_MAX;
use control::fabric::{Label, form, tree};
use control::pipeline::{HOST_TABLE, LABEL_TABLE, Numbering, PATH_TABLE};
use openflow::message::{FlowMod, FlowModCommand, GroupMod, GroupModCommand, GroupType};
use openflow::packet::build::ethernet;
use openflow::table::FlowEntry;
use openflow::{
    Action, Bucket, Cookie, DatapathId, Field, GroupId, Instruction, MacAddr, Match, Message,
    PortNo, TableId,
};
use sim::network::{HostId, LinkId, Network, NetworkConfig, SwitchId};
use sim::topology::{self, Topology};

/// Seeds in `cargo test` without a range.
const SEEDS: std::ops::Range<u64> = 0..50;

/// Further seeds, which found other faults: a path whose first entry an edge replaced, and a link
/// that lost all LLDP of the hold.
const SEEDS_THAT_FOUND: [u64; 5] = [1399, 6030, 7091, 7278, 10_589];

const FLOW_MOD: u8 = 14;
const GROUP_MOD: u8 = 15;

/// A cookie and a group that are not the controller's.
const FOREIGN: u64 = 0xdead;
const FOREIGN_GROUP: GroupId = GroupId(7);

const TAG: u16 = 0x8100;

/// The EtherType of broadcasts here, one for experiments (IEEE 802, 9.2.3).
const NUMBERED: u16 = 0x88b5;

/// Time after which a silent host is probed, and time that paths to it last.
const HOST_IDLE: Duration = Duration::from_secs(60);

/// Whether this is a switch's host table, in either numbering.
fn is_of_hosts(table: TableId) -> bool {
    let all = [Numbering::Plain, Numbering::Access];
    all.map(|one| one.switch_number(HOST_TABLE))
        .contains(&table)
}

struct Random(SplitMix64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        (self.0.next() % end as u64) as usize
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// The number of tables of each switch, with or without those of mirrors and access. Descriptions
/// of 254 tables take a quarter of the time.
fn tables(seed: u64) -> u8 {
    if seed % 8 == 3 { 8 } else { 16 }
}

fn network(seed: u64) -> Network {
    let controller = ControllerConfig {
        fabric: Some(FabricConfig {
            // All routes at once, or those of one egress after another.
            routes_at_once: if seed.is_multiple_of(2) { 1 << 16 } else { 1 },
            ..FabricConfig::default()
        }),
        host_idle: HOST_IDLE,
        // Slower in most networks: LLDP is most of a quiet network's traffic, and a fifth of the
        // time.
        lldp_interval: ms(if seed % 4 == 1 { 1000 } else { 3000 }),
        ..ControllerConfig::default()
    };
    let mut config: NetworkConfig = controller.into();
    config.n_tables = tables(seed);
    if seed % 4 == 2 {
        config.activation_delay = ms(17);
    }
    Network::new(config, seed)
}

fn topology(network: &mut Network, random: &mut Random, seed: u64) -> Topology {
    match random.below(8) {
        0 => topology::line(network, 2 + random.below(6)),
        1 => topology::ring(network, 3 + random.below(6)),
        2 => topology::torus(network, 3, 2 + random.below(2)),
        3 => topology::leaf_spine(network, 1 + random.below(3), 2 + random.below(3), 2),
        4 => topology::fat_tree(network, 4),
        _ => {
            let (size, extra) = (3 + random.below(6), random.below(6));
            topology::random(network, size, extra, seed)
        }
    }
}

/// Sets an entry and a group that are not the controller's.
fn set_foreign(network: &mut Network, switch: SwitchId) {
    let group = GroupMod::new(
        GroupModCommand::Add,
        GroupType::All,
        FOREIGN_GROUP,
        Vec::new(),
    );
    network.apply(switch, &Message::GroupMod(group));
    let r#match = Match::any().with(Field::EthType, 0x1234u16);
    let entry = FlowMod {
        cookie: Cookie(FOREIGN),
        ..FlowMod::add(9, r#match, vec![Action::Group(FOREIGN_GROUP)])
    };
    network.apply(switch, &Message::FlowMod(entry));
}

/// The faults that last until they are mended.
#[derive(Default)]
struct Broken {
    down: BTreeSet<LinkId>,
    dark: BTreeSet<LinkId>,
    /// Dark links whose switches know it.
    dead: BTreeSet<LinkId>,
    lossy: BTreeSet<LinkId>,
    late: BTreeSet<SwitchId>,
}

impl Broken {
    fn mend(&mut self, network: &mut Network) {
        for link in std::mem::take(&mut self.down) {
            network.set_link(link, true);
        }
        for link in std::mem::take(&mut self.dark) {
            network.set_dark(link, false);
        }
        for link in std::mem::take(&mut self.dead) {
            network.set_live(link, true);
        }
        for link in std::mem::take(&mut self.lossy) {
            network.set_loss(link, 0);
        }
        for switch in std::mem::take(&mut self.late) {
            set_late(network, switch, Duration::ZERO);
        }
        network.set_control_delay(NetworkConfig::default().control_delay);
    }
}

/// Lets a switch connect again, by a channel with this delay.
fn set_late(network: &mut Network, switch: SwitchId, delay: Duration) {
    network.set_away(switch, delay);
    network.disconnect(switch);
}

/// One fault, or the end of one.
fn fault(network: &mut Network, topology: &Topology, broken: &mut Broken, random: &mut Random) {
    let link = random.one(&topology.links);
    match random.below(18) {
        0 => network.disconnect(random.one(&topology.switches)),
        1 => {
            let switch = random.one(&topology.switches);
            set_late(network, switch, ms(random.below(400) as u64));
            broken.late.insert(switch);
        }
        2 => {
            network.kill_controller();
            network.run_for(ms(random.below(50) as u64));
            network.start_controller(random.0.next());
        }
        3 | 4 => {
            let (host, to) = (random.one(&topology.hosts), random.one(&topology.switches));
            network.move_host(host, to, random.below(2) == 0);
            network.run_for(ms(random.below(900) as u64));
            network.resolve(host, random.one(&topology.hosts));
        }
        5 => {
            network.set_loss(link, 300_000);
            broken.lossy.insert(link);
        }
        6 => {
            network.set_dark(link, true);
            broken.dark.insert(link);
            network.run_for(ms(random.below(5000) as u64));
        }
        7 => network.set_control_delay(ms(random.below(40) as u64)),
        8 => drain(network, [link]),
        9 => {
            network.set_live(link, false);
            broken.dead.insert(link);
        }
        10..14 => {
            network.set_link(link, false);
            broken.down.insert(link);
        }
        _ => {
            if let Some(link) = broken.down.pop_first() {
                network.set_link(link, true);
            } else {
                broken.mend(network);
            }
        }
    }
}

fn drain(network: &mut Network, links: impl IntoIterator<Item = LinkId>) {
    let links = links.into_iter().map(|link| network.link_ends(link)[0]);
    network.set_drained(Drained {
        links: links.collect(),
        ..Drained::default()
    });
}

/// Runs one seed, and returns its fault, if any.
fn run(seed: u64) -> Result<(), String> {
    let mut random = Random(SplitMix64::new(seed));
    let mut network = network(seed);
    let mut topology = topology(&mut network, &mut random, seed);
    for switch in &topology.switches {
        set_foreign(&mut network, *switch);
        network.set_away(*switch, Duration::from_micros(random.below(3000) as u64));
    }
    topology.introduce(&mut network);
    for host in &topology.hosts {
        network.host_mut(*host).record = true;
    }
    let mut broken = Broken::default();
    for number in 0..12 {
        fault(&mut network, &topology, &mut broken, &mut random);
        broadcast(&mut network, random.one(&topology.hosts), number);
        let (a, b) = (random.one(&topology.hosts), random.one(&topology.hosts));
        if a != b {
            network.stream(a, b, 1, 20, Duration::from_micros(700));
        }
        network.run_for(ms(random.below(60) as u64 + 1));
        if network.circled > 0 {
            return Err("a packet went in a circle during the faults".to_owned());
        }
        broadcast(&mut network, random.one(&topology.hosts), 100 + number);
    }
    broken.mend(&mut network);
    drain(&mut network, []);
    // One host falls silent for good.
    if topology.hosts.len() > 2 && random.below(8) == 0 {
        let gone = topology
            .hosts
            .swap_remove(random.below(topology.hosts.len()));
        network.host_mut(gone).silent = true;
        network.run_for(HOST_IDLE * 3);
    }
    // Hosts go on asking, so that a move that nobody could confirm is believed in the end: ten
    // seconds after a late frame at the old place, and the questions.
    for round in 0..14 {
        for (n, host) in topology.hosts.iter().enumerate() {
            let other = topology.hosts[(n + 1 + round) % topology.hosts.len()];
            network.resolve(*host, other);
        }
        network.run_for(ms(1000));
    }
    for (from, to) in topology.pairs() {
        network.resolve(from, to);
        network.run_for(ms(4));
    }
    let quiet_since = network.now();
    let silent = topology.silent_pairs(&mut network, 50);
    if !silent.is_empty() {
        return Err(format!("{} pairs do not talk: {silent:?}", silent.len()));
    }
    are_heard_once(&mut network, &topology)?;
    are_shortest(&mut network, &topology)?;
    changes_as_planned(&mut network, &topology, random.one(&topology.links))?;
    equal_paths_are_shared(&network, &topology)?;
    let lapsing = holds_nothing_stale(&network, &topology, quiet_since)?;
    // The controller must not take its own deletions for somebody else's.
    if network.process().closed.contains(&RefusedReason::Emptied) {
        return Err("nobody has emptied a switch".to_owned());
    }
    is_adopted(&mut network, &topology, lapsing, random.0.next())?;
    is_computed_anew(&mut network, &topology, &mut random)?;
    let homes = homes(&network, &topology);
    let numbering = match tables(seed) {
        16.. => Numbering::Access,
        _ => Numbering::Plain,
    };
    let single = [PATH_TABLE, LABEL_TABLE, HOST_TABLE].map(|table| numbering.switch_number(table));
    let whole = [Emptied::ByPowerLoss, Emptied::ByDeletion, Emptied::OfGroups];
    for emptied in whole.into_iter().chain(single.map(Emptied::OfTable)) {
        is_filled_again(&mut network, homes[&random.one(&topology.hosts)], emptied)?;
    }
    let errors: Vec<_> = network.errors().collect();
    match (network.circled, errors.is_empty()) {
        (0, true) => Ok(()),
        (0, false) => Err(format!("switches answered errors: {errors:?}")),
        _ => Err("a packet went in a circle".to_owned()),
    }
}

/// Sends a frame to all hosts, with this number.
fn broadcast(network: &mut Network, from: HostId, number: u64) {
    let mut payload = vec![0; 46];
    payload[..8].copy_from_slice(&number.to_be_bytes());
    let mac = network.host(from).address.mac;
    let frame = ethernet(mac, MacAddr::BROADCAST, NUMBERED, &payload);
    network.inject(from, frame);
}

/// How often a host has heard each number.
fn heard(network: &Network, host: HostId) -> BTreeMap<u64, u32> {
    let mut heard = BTreeMap::new();
    let recorded = network.host(host).recorded.iter();
    for frame in recorded.filter(|frame| frame[12..14] == NUMBERED.to_be_bytes()) {
        let number = frame[14..22].try_into().expect("eight bytes");
        *heard.entry(u64::from_be_bytes(number)).or_default() += 1;
    }
    heard
}

/// A broadcast of each host costs one packet-out. No host has heard a broadcast twice at any time.
fn are_heard_once(network: &mut Network, topology: &Topology) -> Result<(), String> {
    const FIRST: u64 = 1000;
    let costs = |network: &Network| {
        let counters = network.process().controller.counters();
        (counters.flooded, counters.flood_packet_outs)
    };
    // What has changed in quiet times leads to another tree. One that has changed often waits for
    // up to half a minute.
    for round in 500..511 {
        let before = costs(network);
        broadcast(network, topology.hosts[0], round);
        network.run_for(ms(3000));
        if round > 500 && costs(network) == (before.0 + 1, before.1 + 1) {
            break;
        }
    }
    let before = costs(network);
    for (n, from) in topology.hosts.iter().enumerate() {
        broadcast(network, *from, FIRST + n as u64);
        network.run_for(ms(5));
    }
    network.run_for(ms(100));
    let after = costs(network);
    let (flooded, packet_outs) = (after.0 - before.0, after.1 - before.1);
    let count = topology.hosts.len() as u64;
    if flooded != count || packet_outs != count {
        return Err(format!(
            "{count} broadcasts: {flooded} flooded by {packet_outs} packet-outs"
        ));
    }
    for to in &topology.hosts {
        let heard = heard(network, *to);
        if let Some((number, times)) = heard.iter().find(|(_, times)| **times > 1) {
            return Err(format!("{to:?} heard broadcast {number} {times} times"));
        }
        for (n, from) in topology.hosts.iter().enumerate() {
            if heard.contains_key(&(FIRST + n as u64)) != (from != to) {
                return Err(format!("{to:?} and the broadcast of {from:?}"));
            }
        }
    }
    Ok(())
}

/// The switch of each host.
fn homes(network: &Network, topology: &Topology) -> BTreeMap<HostId, SwitchId> {
    let switch = |host: HostId| SwitchId(network.place(host).dpid.0 as usize - 1);
    let hosts = topology.hosts.iter();
    hosts.map(|host| (*host, switch(*host))).collect()
}

/// The number of switches on a shortest path from one to every other.
fn distances(network: &Network, topology: &Topology, from: SwitchId) -> BTreeMap<SwitchId, usize> {
    let mut neighbours: BTreeMap<SwitchId, Vec<SwitchId>> = BTreeMap::new();
    for link in &topology.links {
        let ends = network.link_ends(*link);
        if let [a, b] = ends[..] {
            let [a, b] = [a, b].map(|end| SwitchId(end.dpid.0 as usize - 1));
            neighbours.entry(a).or_default().push(b);
            neighbours.entry(b).or_default().push(a);
        }
    }
    let (mut found, mut next) = (BTreeMap::from([(from, 1)]), VecDeque::from([from]));
    while let Some(at) = next.pop_front() {
        let beyond = found[&at] + 1;
        for switch in neighbours.get(&at).into_iter().flatten() {
            if !found.contains_key(switch) {
                found.insert(*switch, beyond);
                next.push_back(*switch);
            }
        }
    }
    found
}

/// Every pair has its entries now, and its packets pass no more switches than they must.
fn are_shortest(network: &mut Network, topology: &Topology) -> Result<(), String> {
    let homes = homes(network, topology);
    for (n, (from, to)) in topology.pairs().enumerate() {
        let least = distances(network, topology, homes[&from])[&homes[&to]];
        let mut passed = None;
        // A question of the controller may come in between.
        for number in [1_000_000, 2_000_000].map(|first| first + n as u64) {
            network.stream(from, to, number, 1, ms(1));
            network.run_for(ms(3));
            let host = network.host(to);
            passed = host.datagrams.get(&number).map(|_| host.passed);
            if passed == Some(least) {
                break;
            }
        }
        if passed != Some(least) {
            return Err(format!(
                "{from:?} to {to:?}: {passed:?} switches, not {least}"
            ));
        }
    }
    Ok(())
}

/// A link is drained under streams between some pairs: no stream loses or reorders a packet.
fn changes_as_planned(
    network: &mut Network,
    topology: &Topology,
    link: LinkId,
) -> Result<(), String> {
    const PACKETS: u64 = 300;
    const STREAMS: usize = 3;
    let first = |n: usize| (n as u64 + 1) * 10_000_000;
    let pairs: Vec<_> = topology.pairs().collect();
    let pairs = pairs.iter().copied().step_by(pairs.len().div_ceil(STREAMS));
    for (n, (from, to)) in pairs.clone().enumerate() {
        network.host_mut(to).arrivals.clear();
        network.stream(from, to, first(n), PACKETS, Duration::from_micros(30));
    }
    network.run_for(ms(5));
    drain(network, [link]);
    network.run_for(ms(1000));
    for (n, (from, to)) in pairs.enumerate() {
        let numbers = first(n)..first(n) + PACKETS;
        let arrivals = network.host(to).arrivals.iter();
        let arrived: Vec<u64> = arrivals.filter(|n| numbers.contains(n)).copied().collect();
        if !arrived.iter().copied().eq(numbers) {
            let in_order = arrived.is_sorted();
            return Err(format!(
                "{from:?} to {to:?}, planned change of {link:?}: {} of {PACKETS}, in order: \
                 {in_order}",
                arrived.len()
            ));
        }
    }
    drain(network, []);
    network.run_for(ms(1000));
    Ok(())
}

/// The egresses by label.
fn labels(network: &Network, topology: &Topology) -> Result<BTreeMap<Label, SwitchId>, String> {
    let mut labels: BTreeMap<Label, SwitchId> = BTreeMap::new();
    for switch in &topology.switches {
        for entry in network.switch(*switch).entries() {
            let is_own = entry
                .instructions
                .iter()
                .any(|step| matches!(step, Instruction::GotoTable(to) if is_of_hosts(*to)));
            let vid = entry.r#match.exact(Field::VlanVid);
            if let Some(vid) = vid.filter(|_| is_own)
                && let Some(other) = labels.insert(Label(vid as u16 & 0xfff), *switch)
            {
                return Err(format!("{switch:?} and {other:?} have one label"));
            }
        }
    }
    Ok(labels)
}

/// Every group has the ports of all shortest paths to its egress, up to four, and shares them.
fn equal_paths_are_shared(network: &Network, topology: &Topology) -> Result<(), String> {
    let at = |dpid: DatapathId| SwitchId(dpid.0 as usize - 1);
    let links = topology.links.iter().map(|link| network.link_ends(*link));
    let peers = links.filter_map(|ends| <[Location; 2]>::try_from(ends).ok());
    let peers: BTreeMap<(SwitchId, PortNo), SwitchId> = peers
        .flat_map(|[a, b]| [(a, b), (b, a)])
        .map(|(from, to)| ((at(from.dpid), from.port), at(to.dpid)))
        .collect();
    for (label, egress) in labels(network, topology)? {
        let distances = distances(network, topology, egress);
        for switch in topology.switches.iter().filter(|switch| **switch != egress) {
            let mut groups = network.switch(*switch).groups();
            let group = groups.find(|g| g.group_id == form::group(label));
            let group = group.ok_or_else(|| format!("{switch:?} has no group of {label:?}"))?;
            let nearer = |port: &PortNo| {
                let peer = peers.get(&(*switch, *port));
                peer.is_some_and(|peer| distances[peer] < distances[switch])
            };
            let ports = peers.keys().filter(|(of, _)| of == switch);
            let wanted = ports
                .filter(|(_, port)| nearer(port))
                .count()
                .min(PORTS_MAX);
            let out = |bucket: &Bucket| match bucket.actions[..] {
                [Action::Output { port, .. }] => Some(port),
                _ => None,
            };
            let used: BTreeSet<PortNo> = group.buckets.iter().filter_map(out).collect();
            let is_shared = group.group_type == GroupType::Select;
            let is_whole = used.len() == wanted && used.iter().all(nearer);
            if !is_whole || is_shared != (wanted > 1) {
                return Err(format!(
                    "{switch:?} to {egress:?}, {wanted} ports: {group:?}"
                ));
            }
        }
    }
    Ok(())
}

/// The tables name hosts at their actual places, and egresses that exist. Foreign entries are kept.
///
/// An ingress's entry that no packet has used since may lapse by itself, as may the remains of a
/// path. Returns the number of those that lead elsewhere or belonged to a path.
fn holds_nothing_stale(
    network: &Network,
    topology: &Topology,
    quiet_since: Instant,
) -> Result<u64, String> {
    let mut lapsing = 0;
    let homes = homes(network, topology);
    let place = |mac: MacAddr| {
        let mut hosts = topology.hosts.iter();
        let host = hosts.find(|host| network.host(**host).address.mac == mac)?;
        Some((homes[host], network.place(*host).port))
    };
    let mac_of = |r#match: &Match| Some(MacAddr::from_u64(r#match.exact(Field::EthDst)? as u64));
    let labels = labels(network, topology)?;
    let mut trees: BTreeSet<Label> = BTreeSet::new();
    for switch in &topology.switches {
        let mut foreign = 0;
        let groups = network.switch(*switch).groups();
        let mut link_count = 0;
        let of_trees = groups.filter_map(|group| {
            let label = tree::label_of(group.group_id)?;
            link_count += tree::read(&group.buckets).links.len();
            Some(label)
        });
        let of_trees: Vec<Label> = of_trees.collect();
        let entries = network.switch(*switch).entries();
        let led = entries.filter(|e| EntryKind::of(e.cookie) == Some(EntryKind::Tree));
        trees.extend(&of_trees);
        if led.count() != link_count || of_trees.len() != 1 || trees.len() != 1 {
            return Err(format!("{switch:?} and trees: {of_trees:?}, {trees:?}"));
        }
        for entry in network.switch(*switch).entries() {
            foreign += usize::from(entry.cookie.0 == FOREIGN);
            let to = mac_of(&entry.r#match).and_then(place);
            let why = |what: &str| format!("{switch:?} holds {what}: {entry:?}");
            match (EntryKind::of(entry.cookie), &entry.instructions[..]) {
                (Some(EntryKind::Fabric), [Instruction::ApplyActions(actions)])
                    if is_of_hosts(entry.table_id) && entry.priority > 0 =>
                {
                    let is_there = |(home, port): (SwitchId, PortNo)| {
                        home == *switch && actions[..] == [Action::output(port)]
                    };
                    if !to.is_some_and(is_there) {
                        return Err(why("a host that is elsewhere"));
                    }
                }
                (Some(EntryKind::Local), [Instruction::ApplyActions(actions)]) => {
                    let label = labels
                        .iter()
                        .find(|(label, _)| form::ingress_actions(TAG, **label) == *actions);
                    let is_labelled = actions.len() > 1;
                    let leads_there = match (label, to) {
                        (Some((_, egress)), Some((home, _))) => *egress == home,
                        (None, Some(_)) => !is_labelled,
                        _ => false,
                    };
                    let is_exact = match to {
                        Some((home, port)) if !is_labelled => {
                            home == *switch && actions[..] == [Action::output(port)]
                        }
                        _ => leads_there,
                    };
                    let src = entry.r#match.exact(Field::EthSrc);
                    let from = src.and_then(|mac| place(MacAddr::from_u64(mac as u64)));
                    let in_port = entry.r#match.exact(Field::InPort);
                    let in_port = in_port.map(|port| PortNo(port as u32));
                    let is_from_here =
                        from.map(|(home, port)| (home, Some(port))) == Some((*switch, in_port));
                    if entry.used_at <= quiet_since {
                        lapsing += u64::from(!is_exact || !is_from_here);
                    } else if !leads_there {
                        return Err(why("an ingress's entry to another place"));
                    }
                }
                // The remains of a hop-by-hop path, from before labels led there.
                (Some(EntryKind::Pair), _) => lapsing += u64::from(entry.used_at <= quiet_since),
                _ => {}
            }
        }
        if foreign != 1 {
            return Err(format!("{foreign} foreign entries at {switch:?}"));
        }
        // A group for each other egress, at most another for packets that turn back.
        let others = labels.values().filter(|egress| *egress != switch).count();
        let groups = network.switch(*switch).group_count() - 1 - of_trees.len();
        if groups < others || groups > 2 * others {
            return Err(format!(
                "{groups} groups for {others} egresses at {switch:?}"
            ));
        }
    }
    Ok(lapsing)
}

/// A new controller takes over the entries in the switches. It deletes those that lead elsewhere
/// and have not lapsed.
fn is_adopted(
    network: &mut Network,
    topology: &Topology,
    lapsing: u64,
    seed: u64,
) -> Result<(), String> {
    let sent = |network: &Network| {
        let of = |kind| topology.switches.iter().map(move |switch| (kind, *switch));
        let heard = |(kind, switch)| network.heard(switch, kind);
        [FLOW_MOD, GROUP_MOD].map(|kind| of(kind).map(heard).sum::<u64>())
    };
    let before = sent(network);
    network.kill_controller();
    network.start_controller(seed);
    network.run_for(ms(6000));
    let after = sent(network);
    let [entries, groups] = [0, 1].map(|n| after[n] - before[n]);
    if entries > lapsing || groups > 0 {
        return Err(format!(
            "a restart sent {entries} flow-mods, {groups} group-mods"
        ));
    }
    Ok(())
}

/// With a failed link, a new controller computes the state that this one reached by changes.
fn is_computed_anew(
    network: &mut Network,
    topology: &Topology,
    random: &mut Random,
) -> Result<(), String> {
    network.set_link(random.one(&topology.links), false);
    network.run_for(ms(3000));
    let held = |network: &Network| {
        let mut held = Vec::new();
        for switch in &topology.switches {
            let entries = network.switch(*switch).entries();
            let own = entries.filter(|e| EntryKind::of(e.cookie) == Some(EntryKind::Fabric));
            held.extend(
                own.map(|e| (*switch, e.cookie, e.r#match.clone(), e.instructions.clone())),
            );
        }
        let groups = topology.switches.iter();
        let groups: u64 = groups.map(|s| network.heard(*s, GROUP_MOD)).sum();
        (held, groups)
    };
    let before = held(network);
    network.kill_controller();
    network.start_controller(random.0.next());
    network.run_for(ms(6000));
    match held(network) == before {
        true => Ok(()),
        false => Err("without a link, a restart computed other routes".to_owned()),
    }
}

/// The ways in which a switch is emptied.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Emptied {
    /// It loses its power, and comes back without entries and groups.
    ByPowerLoss,
    /// Somebody deletes all entries by another connection, as `ovs-ofctl del-flows` does.
    ByDeletion,
    /// The same for one table, by the switch's own number for it.
    OfTable(TableId),
    /// Somebody deletes all groups. The switch deletes the entries that lead to them.
    OfGroups,
}

/// An emptied switch is sent everything again, also the entries that lead to silent hosts.
fn is_filled_again(
    network: &mut Network,
    switch: SwitchId,
    emptied: Emptied,
) -> Result<(), String> {
    let held = |network: &Network| {
        let entries = network.switch(switch).entries();
        let own = entries.filter(|e| EntryKind::of(e.cookie) == Some(EntryKind::Fabric));
        // The switch may get another label than it had.
        let pops = |i: &Instruction| match i {
            Instruction::ApplyActions(actions) => actions[..] == [Action::PopVlan],
            _ => false,
        };
        let is_own = |e: &FlowEntry| e.instructions.iter().any(pops);
        let matches = |e: &FlowEntry| match is_own(e) {
            true => "its own label".to_owned(),
            false => format!("{:?}", e.r#match),
        };
        let own = own.map(|e| format!("{:?} {} {:?}", e.table_id, matches(e), e.instructions));
        (
            own.collect::<BTreeSet<_>>(),
            network.switch(switch).group_count(),
        )
    };
    let before = held(network);
    let all = FlowMod {
        command: FlowModCommand::Delete,
        table_id: match emptied {
            Emptied::OfTable(table) => table,
            _ => TableId::ALL,
        },
        ..FlowMod::add(0, Match::any(), Vec::new())
    };
    let groups = GroupMod::new(
        GroupModCommand::Delete,
        GroupType::All,
        GroupId::ALL,
        Vec::new(),
    );
    if emptied != Emptied::OfGroups {
        network.apply(switch, &Message::FlowMod(all));
    }
    if emptied == Emptied::OfGroups {
        network.apply(switch, &Message::GroupMod(groups.clone()));
        set_foreign(network, switch);
    }
    if emptied == Emptied::ByPowerLoss {
        network.apply(switch, &Message::GroupMod(groups));
        if network.switch(switch).group_count() > 0 {
            return Err(format!("{switch:?} still has groups"));
        }
        set_foreign(network, switch);
        network.disconnect(switch);
    }
    network.run_for(ms(4000));
    let after = held(network);
    // Nothing reports the end of a group to which no entry leads.
    let is_led_to = before.0.iter().any(|entry| entry.contains("Group("));
    if after.0 != before.0 || is_led_to && after.1 != before.1 {
        let missing: Vec<_> = before.0.difference(&after.0).collect();
        let new: Vec<_> = after.0.difference(&before.0).collect();
        return Err(format!(
            "{switch:?} was emptied ({emptied:?}), and lacks {missing:?}; new: {new:?}; groups: \
             {} and {}",
            before.1, after.1
        ));
    }
    Ok(())
}

#[test]
fn random_faults_leave_no_circles_no_holes_and_nothing_stale() {
    let seeds = SEEDS.chain(SEEDS_THAT_FOUND);
    seeds::run_all("FABRIC_SEEDS", seeds, |seed, _| run(seed));
}
