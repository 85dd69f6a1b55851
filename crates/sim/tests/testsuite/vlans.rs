//! VLANs: the same addresses in two of them are different hosts, and whatever happens no frame goes
//! from one to the other.
//!
//! `VLAN_SEEDS=0..1000 cargo test --profile checked -p auster-sim --test testsuite vlans::` runs
//! more random faults.

#![allow(clippy::disallowed_methods, reason = "a test reads its environment")]

mod restart;

use std::collections::BTreeMap;

use clock::{SplitMix64, ms};
use control::controller::{Alarm, ControllerConfig, Event, FabricConfig, Location};
use control::pipeline::{LABEL_TABLE, Numbering};
use control::vlan::{PortVlans, VlanId, Vlans};
use openflow::packet::build::{Host as Address, ethernet, tagged};
use openflow::table::{FlowEntry, Switch};
use openflow::{MacAddr, PortNo};
use sim::network::{HostId, Network, SwitchId};
use sim::topology::{self, Topology};

use crate::seeds;

/// The EtherType of broadcasts that begin with the VLAN of their sender.
const MARKED: u16 = 0x1234;

fn vlan(id: u16) -> VlanId {
    VlanId::new(id).expect("a VLAN id")
}

/// Hosts in VLANs on a network of switches.
struct Tenants {
    network: Network,
    switches: Vec<SwitchId>,
    topology: Topology,
    /// The hosts of each VLAN.
    hosts: BTreeMap<u16, Vec<HostId>>,
    vlans: Vlans,
}

impl Tenants {
    /// Every switch has a host of each VLAN. All VLANs have the same addresses, except at the last
    /// switch, where a host's address shows its VLAN. A host on an odd switch tags its frames.
    fn new(seed: u64, ids: &[u16], build: impl FnOnce(&mut Network) -> Topology) -> Tenants {
        let controller = ControllerConfig {
            fabric: Some(FabricConfig::default()),
            ..ControllerConfig::default()
        };
        let mut network = Network::new(controller.into(), seed);
        let topology = build(&mut network);
        let switches = topology.switches.clone();
        let mut tenants = Tenants {
            network,
            switches: switches.clone(),
            topology,
            hosts: BTreeMap::new(),
            vlans: Vlans::default(),
        };
        for id in ids {
            for (n, switch) in switches.iter().enumerate() {
                let host = tenants.network.add_host(*switch);
                let is_last = n + 1 == switches.len();
                let number = if is_last { *id } else { 0x1000 + n as u16 };
                let [high, low] = number.to_be_bytes();
                let at = tenants.network.host_mut(host);
                at.address =
                    Address::new(MacAddr([2, 0, 0, 1, high, low]), [10, 1, high, low].into());
                at.record = true;
                at.vlan = (n % 2 == 1).then_some(*id);
                tenants.hosts.entry(*id).or_default().push(host);
                tenants.admit(host, *id);
            }
        }
        tenants.network.set_vlans(tenants.vlans.clone());
        tenants.network.run_for(ms(2000));
        tenants
    }

    /// Makes the port of a host a member of a VLAN, in the form in which the host sends.
    fn admit(&mut self, host: HostId, id: u16) {
        let port = match self.network.host(host).vlan {
            None => PortVlans::Access(vlan(id)),
            Some(_) => PortVlans::Trunk {
                tagged: [vlan(id)].into(),
                native: None,
            },
        };
        self.vlans.ports.insert(self.network.place(host), port);
    }

    fn topology_of(&self, id: u16) -> Topology {
        Topology {
            switches: self.switches.clone(),
            links: Vec::new(),
            hosts: self.hosts[&id].clone(),
        }
    }

    fn introduce(&mut self) {
        for id in self.hosts.keys().copied().collect::<Vec<_>>() {
            let topology = self.topology_of(id);
            for (n, host) in topology.hosts.iter().enumerate() {
                let next = topology.hosts[(n + 1) % topology.hosts.len()];
                self.network.resolve(*host, next);
                self.network.run_for(ms(10));
            }
        }
        self.network.run_for(ms(800));
    }

    /// Pairs within a VLAN that do not talk.
    fn silent_pairs(&mut self, seq: u16) -> Vec<(u16, HostId, HostId)> {
        let mut silent = Vec::new();
        for id in self.hosts.keys().copied().collect::<Vec<_>>() {
            let topology = self.topology_of(id);
            let pairs = topology.silent_pairs(&mut self.network, seq);
            silent.extend(pairs.into_iter().map(|(from, to)| (id, from, to)));
        }
        silent
    }

    /// Sends datagrams and a broadcast that name their VLAN.
    fn send_marked(&mut self, id: u16, from: HostId, to: HostId, first: u64, count: u64) {
        let first = u64::from(id) << 32 | first;
        self.network.stream(from, to, first, count, ms(1));
        let own = self.network.host(from);
        let mac = own.address.mac;
        let frame = ethernet(mac, MacAddr::BROADCAST, MARKED, &id.to_be_bytes());
        let frame = match own.vlan {
            Some(id) => tagged(&frame, id, 0),
            None => frame,
        };
        self.network.inject(from, frame);
    }

    /// The frames that hosts have received, and that are not of their VLAN.
    fn crossed(&self) -> Vec<(u16, Vec<u8>)> {
        let ids: Vec<u16> = self.hosts.keys().copied().collect();
        let mut crossed = Vec::new();
        for (id, hosts) in &self.hosts {
            for host in hosts {
                let host = self.network.host(*host);
                let strange = |frame: &&Vec<u8>| is_strange(frame, host.vlan, *id, &ids);
                let frames = host.recorded.iter().filter(strange);
                crossed.extend(frames.map(|frame| (*id, frame.clone())));
                let datagrams = host.datagrams.keys().map(|number| (number >> 32) as u16);
                let strange = datagrams.filter(|of| of != id);
                crossed.extend(strange.map(|of| (*id, of.to_be_bytes().to_vec())));
            }
        }
        crossed
    }
}

/// Whether a frame that a host of a VLAN has received has the wrong tag, or comes from another
/// VLAN.
fn is_strange(frame: &[u8], tag: Option<u16>, id: u16, ids: &[u16]) -> bool {
    let word = |at: usize| {
        let bytes = frame.get(at..at + 2).unwrap_or(&[0, 0]);
        u16::from_be_bytes([bytes[0], bytes[1]])
    };
    let is_lldp = word(12) == 0x88cc;
    let found = (word(12) == 0x8100).then(|| word(14) & 0xfff);
    let at = if found.is_some() { 16 } else { 12 };
    let is_marked = word(at) == MARKED;
    let sender = word(10);
    let is_told = ids.contains(&sender) && frame.get(6..10) == Some(&[2, 0, 0, 1]);
    !is_lldp && found != tag || is_marked && word(at + 2) != id || is_told && sender != id
}

/// Two tenants with the same addresses on the same switches.
#[test]
fn tenants_with_the_same_addresses_talk_among_themselves() {
    type Build = fn(&mut Network) -> Topology;
    let builds: [(&str, Build); 3] = [
        ("line", |network| topology::line(network, 4)),
        ("ring", |network| topology::ring(network, 5)),
        ("leaf-spine", |network| {
            topology::leaf_spine(network, 2, 3, 1)
        }),
    ];
    for (name, build) in builds {
        let mut tenants = Tenants::new(1, &[10, 20], build);
        tenants.introduce();
        let silent = tenants.silent_pairs(1);
        assert!(silent.is_empty(), "{name}: {silent:?}");
        for (id, hosts) in tenants.hosts.clone() {
            for pair in hosts.windows(2) {
                tenants.send_marked(id, pair[0], pair[1], 0, 20);
            }
        }
        tenants.network.run_for(ms(500));
        for (id, hosts) in &tenants.hosts {
            for pair in hosts.windows(2) {
                let got = &tenants.network.host(pair[1]).datagrams;
                let whole = (0..20).all(|n| got.get(&(u64::from(*id) << 32 | n)) == Some(&1));
                assert!(whole, "{name}: VLAN {id}: {got:?}");
            }
            let marked = |host: &HostId| {
                let frames = tenants.network.host(*host).recorded.iter();
                let own = frames.filter(|frame| {
                    frame[12..14] == MARKED.to_be_bytes() || frame[16..18] == MARKED.to_be_bytes()
                });
                own.count()
            };
            let counts: Vec<usize> = hosts.iter().map(marked).collect();
            let wanted = hosts.len() - 1;
            let is_first = |n: usize| n + 1 < hosts.len();
            for (n, count) in counts.iter().enumerate() {
                let own = usize::from(is_first(n));
                assert_eq!(*count, wanted - own, "{name}: VLAN {id}: broadcasts");
            }
        }
        assert_eq!(tenants.crossed(), [], "{name}");
        assert_eq!(tenants.network.errors().count(), 0, "{name}");
        let views = tenants.network.process().controller.vlans();
        let hosts = tenants.hosts.iter().map(|(id, hosts)| (*id, hosts.len()));
        let shown = views.iter().map(|view| (view.vlan.number(), view.hosts));
        assert!(hosts.eq(shown), "{name}: {views:?}");
        assert!(views.iter().all(|view| view.packet_ins > 0), "{views:?}");
    }
}

/// A conversation in a VLAN costs the controller no packet once its entries are there.
#[test]
fn conversations_in_vlans_are_the_switches_alone() {
    let mut tenants = Tenants::new(2, &[10, 20], |network| topology::line(network, 4));
    tenants.introduce();
    assert!(tenants.silent_pairs(1).is_empty());
    let packet_ins = |tenants: &mut Tenants| {
        let count = |tenants: &Tenants| {
            let counters = tenants.network.process().controller.counters();
            counters.packet_ins - counters.lldp_accepted
        };
        let before = count(tenants);
        tenants.network.run_for(ms(1500));
        count(tenants) - before
    };
    for (id, hosts) in tenants.hosts.clone() {
        tenants
            .network
            .stream(hosts[0], hosts[3], u64::from(id) << 32, 1000, ms(1));
    }
    let more = packet_ins(&mut tenants);
    assert_eq!(more, 0, "packets came up, of 2,000");
    for (id, hosts) in &tenants.hosts {
        let got = tenants.network.host(hosts[3]).arrivals.iter();
        let own = got.filter(|n| **n >> 32 == u64::from(*id));
        assert_eq!(own.count(), 1000, "VLAN {id}");
    }
    assert_eq!(tenants.crossed(), []);
}

/// Packets in a VLAN that their port is no member of are dropped.
#[test]
fn strangers_tags_are_dropped_and_counted() {
    let mut tenants = Tenants::new(3, &[10, 20], |network| topology::line(network, 3));
    tenants.introduce();
    assert!(tenants.silent_pairs(1).is_empty());
    let refused = |tenants: &Tenants| {
        let counters = tenants.network.process().controller.counters();
        counters.packets_vlan_refused
    };
    let before = refused(&tenants);
    let (access, trunk) = (tenants.hosts[&10][0], tenants.hosts[&10][1]);
    let mut sent = 0;
    let peers = [
        tenants.hosts[&10][1],
        tenants.hosts[&10][2],
        tenants.hosts[&20][2],
    ];
    let peers = peers.map(|host| tenants.network.host(host).address.mac);
    for (host, tag) in [
        (access, Some(20)),
        (access, Some(10)),
        (trunk, Some(20)),
        (trunk, None),
    ] {
        let mac = tenants.network.host(host).address.mac;
        for dst in peers.into_iter().chain([MacAddr::BROADCAST]) {
            let frame = ethernet(mac, dst, MARKED, &10u16.to_be_bytes());
            let frame = match tag {
                Some(tag) => tagged(&frame, tag, 0),
                None => frame,
            };
            tenants.network.inject(host, frame);
            sent += 1;
        }
    }
    tenants.network.run_for(ms(300));
    assert_eq!(refused(&tenants) - before, sent);
    // A tag behind a priority is another VLAN's where this one is native; a priority is none.
    let [from, to] = [0, 2].map(|n| tenants.network.host(tenants.hosts[&10][n]).address);
    let frame = ethernet(from.mac, to.mac, MARKED, &10u16.to_be_bytes());
    for _ in 0..5 {
        tenants
            .network
            .inject(access, tagged(&tagged(&frame, 20, 0), 0, 3));
        tenants.network.run_for(ms(20));
    }
    let mut service = tagged(&frame, 20, 0);
    service[12..14].copy_from_slice(&[0x88, 0xa8]);
    tenants.network.inject(access, service);
    tenants.network.run_for(ms(20));
    assert_eq!(refused(&tenants) - before, sent + 6);
    let heard = |tenants: &Tenants| tenants.network.host(tenants.hosts[&10][2]).recorded.len();
    let count = heard(&tenants);
    for _ in 0..5 {
        tenants.network.inject(access, tagged(&frame, 0, 3));
        tenants.network.run_for(ms(20));
    }
    assert_eq!(heard(&tenants) - count, 5, "with a priority");
    assert_eq!(tenants.crossed(), []);
}

/// A labelled packet without a route stays in the VLAN of its label. A packet with an unassigned
/// label goes nowhere: the label may be left from a VLAN.
#[test]
fn labels_without_a_route_lead_nowhere_else() {
    let mut tenants = Tenants::new(8, &[10, 20], |network| topology::line(network, 3));
    tenants.introduce();
    tenants.topology.introduce(&mut tenants.network);
    let outside = tenants.topology.hosts.clone();
    for host in &outside {
        tenants.network.host_mut(*host).record = true;
    }
    let link = tenants.network.link_ends(tenants.topology.links[0])[0];
    let switch = tenants.switches[0];
    let own = tenants.network.host(outside[1]).address.mac;
    let everybody = outside
        .iter()
        .chain(tenants.hosts.values().flatten())
        .map(|host| tenants.network.host(*host).address.mac)
        .chain([MacAddr::BROADCAST]);
    for dst in everybody.collect::<Vec<_>>() {
        let frame = ethernet(own, dst, MARKED, &0u16.to_be_bytes());
        for label in [1, 2000] {
            let frame = tagged(&frame, label, 0);
            tenants.network.inject_at(switch, link.port, frame);
        }
    }
    tenants.network.run_for(ms(300));
    for host in outside.iter().chain(tenants.hosts.values().flatten()) {
        let recorded = tenants.network.host(*host).recorded.iter();
        let marked = recorded.filter(|frame| {
            [12, 16].map(|at| frame.get(at..at + 2) == Some(&MARKED.to_be_bytes())) != [false; 2]
        });
        assert_eq!(marked.count(), 0, "{host:?}");
    }
}

/// A port whose VLAN changes at a reload no longer receives its former VLAN, and receives its new
/// one.
#[test]
fn a_port_changes_its_vlan_at_a_reload() {
    let mut tenants = Tenants::new(4, &[10, 20], |network| topology::ring(network, 4));
    tenants.introduce();
    assert!(tenants.silent_pairs(1).is_empty());
    // The host of VLAN 10 at the last switch has an address that nobody in VLAN 20 has.
    let moved = tenants.hosts[&10][3];
    let old = tenants.hosts[&10][0];
    tenants.network.stream(old, moved, 10 << 32, 2000, ms(1));
    tenants.network.run_for(ms(100));
    tenants.network.host_mut(moved).vlan = Some(20);
    tenants.admit(moved, 20);
    tenants.network.set_vlans(tenants.vlans.clone());
    // Frames that were on their way arrive.
    tenants.network.run_for(ms(20));
    let got = tenants.network.host(moved).recorded.len();
    tenants.network.run_for(ms(1500));
    let frames = &tenants.network.host(moved).recorded[got..];
    let of_old = frames
        .iter()
        .filter(|frame| frame[14..16] != 20u16.to_be_bytes());
    let is_lldp = |frame: &&Vec<u8>| frame[12..14] == [0x88, 0xcc];
    let of_old: Vec<_> = of_old.filter(|frame| !is_lldp(frame)).collect();
    assert!(of_old.is_empty(), "{of_old:?}");
    let hosts = tenants.hosts.get_mut(&10).expect("the VLAN");
    hosts.retain(|host| *host != moved);
    tenants.network.host_mut(moved).recorded.clear();
    tenants.network.host_mut(moved).datagrams.clear();
    tenants.hosts.get_mut(&20).expect("the VLAN").push(moved);
    for host in tenants.hosts[&20].clone() {
        tenants.network.host_mut(host).forget_addresses();
    }
    tenants.introduce();
    let silent = tenants.silent_pairs(2);
    assert!(silent.is_empty(), "{silent:?}");
}

#[test]
fn stated_ports_that_are_links_or_missing_are_reported_once() {
    let mut tenants = Tenants::new(1, &[10], |network| topology::ring(network, 3));
    tenants.introduce();
    let mut vlans = tenants.vlans.clone();
    let of_host = vlans.ports.values().next().expect("a host").clone();
    let dpid = vlans.ports.keys().next().expect("a host").dpid;
    let links = tenants.network.events().filter_map(|event| match event {
        Event::LinkUp { from, .. } if from.dpid == dpid => Some(*from),
        _ => None,
    });
    let link = links.last().expect("a link");
    let missing = Location::new(dpid, PortNo(77));
    for at in [missing, link] {
        vlans.ports.insert(at, of_host.clone());
    }
    for _ in 0..2 {
        tenants.network.set_vlans(vlans.clone());
        tenants.network.run_for(ms(500));
    }
    let count = |is: &dyn Fn(&Alarm) -> bool| {
        let events = tenants.network.events();
        let found = events.filter(|event| matches!(event, Event::Alarm(alarm) if is(alarm)));
        found.count()
    };
    let is_missing =
        |alarm: &Alarm| matches!(alarm, Alarm::PortMissing { at, .. } if *at == missing);
    let is_link = |alarm: &Alarm| matches!(alarm, Alarm::PortIsLink { at, .. } if *at == link);
    assert_eq!((count(&is_missing), count(&is_link)), (1, 1));
}

/// Two hosts of one switch talk until one of them is moved to another VLAN, at a reload or while no
/// controller runs.
#[test]
fn neighbours_are_parted() {
    for is_reload in [true, false] {
        let mut tenants = Tenants::new(6, &[10, 20], |network| topology::line(network, 3));
        let (own, switch) = (tenants.hosts[&10][0], tenants.switches[0]);
        let moved = tenants.network.add_host(switch);
        tenants.hosts.get_mut(&10).expect("the VLAN").push(moved);
        tenants.admit(moved, 10);
        tenants.network.set_vlans(tenants.vlans.clone());
        tenants.network.run_for(ms(1000));
        tenants.introduce();
        assert!(tenants.silent_pairs(1).is_empty());
        tenants.network.stream(own, moved, 10 << 32, 3000, ms(1));
        tenants.network.stream(moved, own, 20 << 32, 3000, ms(1));
        tenants.network.run_for(ms(100));
        if !is_reload {
            tenants.network.kill_controller();
        }
        tenants.admit(moved, 20);
        tenants.network.set_vlans(tenants.vlans.clone());
        if !is_reload {
            tenants.network.start_controller(9);
            tenants.network.run_for(ms(900));
        }
        tenants.network.run_for(ms(20));
        let count =
            |tenants: &Tenants| [moved, own].map(|host| tenants.network.host(host).arrivals.len());
        let before = count(&tenants);
        assert!(
            before.iter().all(|count| *count > 50),
            "they talked: {before:?}"
        );
        tenants.network.run_for(ms(1000));
        assert_eq!(count(&tenants), before, "reload: {is_reload}");
    }
}

/// Entries of an earlier process for a port's former VLAN do not outlive a change beside it.
#[test]
fn a_port_changes_its_vlan_while_nobody_controls() {
    let mut tenants = Tenants::new(5, &[10, 20], |network| topology::line(network, 3));
    tenants.introduce();
    assert!(tenants.silent_pairs(1).is_empty());
    let (moved, old) = (tenants.hosts[&10][0], tenants.hosts[&10][2]);
    tenants.network.kill_controller();
    tenants.network.run_for(ms(50));
    tenants.admit(moved, 20);
    tenants.network.set_vlans(tenants.vlans.clone());
    tenants.network.start_controller(9);
    tenants.network.run_for(ms(1500));
    let count = |tenants: &Tenants| {
        let [to, from] = [moved, old].map(|host| tenants.network.host(host).arrivals.len());
        (to, from)
    };
    let before = count(&tenants);
    tenants.network.stream(old, moved, 10 << 32, 50, ms(1));
    tenants.network.stream(moved, old, 20 << 32, 50, ms(1));
    tenants.network.run_for(ms(1000));
    assert_eq!(count(&tenants), before, "the former VLAN is still led to");
}

/// Runs one seed of random faults, and returns what went wrong, if anything.
fn run(seed: u64) -> Result<(), String> {
    let mut random = SplitMix64::new(seed);
    let mut below = move |end: usize| (random.next() % end as u64) as usize;
    let size = 3 + below(3);
    let kind = below(3);
    let mut tenants = Tenants::new(seed, &[10, 20, 30], |network| match kind {
        0 => topology::line(network, size),
        1 => topology::ring(network, size),
        _ => topology::leaf_spine(network, 2, size, 1),
    });
    tenants.introduce();
    let ids = [10, 20, 30];
    let mut down = Vec::new();
    for round in 0..14u64 {
        let links = tenants.topology.links.clone();
        match below(8) {
            0 => {
                let switch = tenants.switches[below(tenants.switches.len())];
                tenants.network.disconnect(switch);
            }
            1 => {
                tenants.network.kill_controller();
                tenants.network.run_for(ms(below(50) as u64));
                tenants.network.start_controller(seed ^ round);
            }
            2 => {
                // A host moves to a port of its own VLAN elsewhere.
                let id = ids[below(3)];
                let hosts = &tenants.hosts[&id];
                let host = hosts[below(hosts.len())];
                let to = tenants.switches[below(tenants.switches.len())];
                tenants.network.move_host(host, to, below(2) == 0);
                tenants.admit(host, id);
                tenants.network.set_vlans(tenants.vlans.clone());
                tenants.network.run_for(ms(below(900) as u64));
            }
            3..6 => {
                let link = links[below(links.len())];
                tenants.network.set_link(link, false);
                down.push(link);
            }
            _ => {
                if let Some(link) = down.pop() {
                    tenants.network.set_link(link, true);
                }
            }
        }
        for id in ids {
            let hosts = tenants.hosts[&id].clone();
            let (from, to) = (hosts[below(hosts.len())], hosts[below(hosts.len())]);
            if from != to {
                tenants.send_marked(id, from, to, round * 100, 20);
            }
        }
        tenants.network.run_for(ms(below(60) as u64 + 1));
        let crossed = tenants.crossed();
        if !crossed.is_empty() {
            return Err(format!("round {round}: frames crossed: {crossed:02x?}"));
        }
    }
    for link in down {
        tenants.network.set_link(link, true);
    }
    for round in 0..10 {
        for id in ids {
            let hosts = tenants.hosts[&id].clone();
            for (n, host) in hosts.iter().enumerate() {
                let other = hosts[(n + 1 + round) % hosts.len()];
                tenants.network.resolve(*host, other);
            }
        }
        tenants.network.run_for(ms(1000));
    }
    let silent = tenants.silent_pairs(77);
    if !silent.is_empty() {
        return Err(format!("pairs do not talk: {silent:?}"));
    }
    if tenants.network.circled > 0 {
        return Err("a packet went in a circle".to_owned());
    }
    restart::is_adopted(&mut tenants, seed)?;
    match tenants.crossed() {
        crossed if crossed.is_empty() => Ok(()),
        crossed => Err(format!("frames crossed: {crossed:02x?}")),
    }
}

#[test]
fn nothing_crosses_whatever_fails() {
    seeds::run_all("VLAN_SEEDS", 0..20, |seed, _| run(seed));
}

/// The labels of removed VLANs become free: 4,094 serve any number of reloads.
#[test]
fn labels_of_former_vlans_are_used_again() {
    let mut tenants = Tenants::new(9, &[10, 20], |network| topology::line(network, 3));
    tenants.introduce();
    assert!(tenants.silent_pairs(1).is_empty());
    let groups = |tenants: &Tenants| -> Vec<(usize, usize)> {
        let switches = tenants.switches.iter();
        let switches = switches.map(|id| tenants.network.switch(*id));
        let labels = Numbering::Access.switch_number(LABEL_TABLE);
        let of_labels = |entry: &&FlowEntry| entry.table_id == labels;
        let count = |of: &Switch| (of.groups().count(), of.entries().filter(of_labels).count());
        switches.map(count).collect()
    };
    let before = groups(&tenants);
    for id in 100..104 {
        for host in tenants.hosts[&10].clone() {
            tenants.network.host_mut(host).vlan = tenants.network.host(host).vlan.map(|_| id);
            tenants.admit(host, id);
            tenants.network.host_mut(host).forget_addresses();
        }
        tenants.network.set_vlans(tenants.vlans.clone());
        tenants.network.run_for(ms(1500));
        tenants.introduce();
        let silent = tenants.silent_pairs(id);
        assert!(silent.is_empty(), "VLAN {id}: {silent:?}");
        tenants.network.run_for(ms(1500));
        assert_eq!(groups(&tenants), before, "VLAN {id}");
    }
}
