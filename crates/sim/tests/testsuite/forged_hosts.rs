//! A port that forges addresses. Meanwhile hosts at other ports are learned, move and keep talking,
//! and five minutes after the attack nothing is left of it.
//!
//! *Whole again* means here: only real hosts are known, each IP address belongs to its host, and
//! the switches have the entries that they had before.
//!
//! `FORGED=1000000 cargo test --profile checked -p auster-sim --test testsuite forged_hosts::`
//! forges a million.

#![allow(clippy::disallowed_methods, reason = "a test reads its environment")]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clock::{Duration, ms};
use control::controller::{Alarm, ControllerConfig, Event, FabricConfig, HostView, Mode};
use control::vlan::{PortVlans, VlanId, Vlans};
use openflow::packet::build::{
    Host as Address, arp_request, ethernet, neighbour_advertisement, tagged,
};
use openflow::{MacAddr, PortNo};
use sim::network::{HostId, Network, SwitchId};

const WHOLE_AFTER: Duration = Duration::from_secs(300);

/// The frames of an attacker, each from another address: in turn with a claim by ARP, with one by
/// neighbour discovery, and without a claim.
struct Forger {
    at: (SwitchId, PortNo),
    /// IP addresses of real hosts, which every eighth claim is about.
    wanted: Vec<Ipv4Addr>,
    /// VLANs whose tags the frames have in turn.
    vlans: Vec<u16>,
    sent: u32,
}

impl Forger {
    fn new(at: (SwitchId, PortNo), wanted: Vec<Ipv4Addr>) -> Forger {
        Forger {
            at,
            wanted,
            vlans: Vec::new(),
            sent: 0,
        }
    }

    fn frame(&self) -> Vec<u8> {
        let [_, a, b, c] = (self.sent / 3).to_be_bytes();
        let kind = (self.sent % 3) as u8;
        let mac = MacAddr([6, 0, kind, a, b, c]);
        let claim = self.sent as usize / 3;
        let real = self.wanted.get(claim / 8 % self.wanted.len().max(1));
        let ip = real.filter(|_| claim.is_multiple_of(8)).copied();
        let ip = ip.unwrap_or(Ipv4Addr::new(172, a, b, c));
        match kind {
            0 => arp_request(Address { mac, ip }, Ipv4Addr::new(10, 200, 0, 1)),
            1 => {
                let ip = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, a.into(), u16::from_be_bytes([b, c]));
                neighbour_advertisement((mac, ip), false)
            }
            _ => ethernet(mac, MacAddr::BROADCAST, 0x88b5, &[0; 46]),
        }
    }

    /// Sends 50 frames each millisecond.
    fn send(&mut self, network: &mut Network, count: u32) {
        for n in 0..count {
            let frame = self.frame();
            let vlan = self.vlans.get(self.sent as usize % self.vlans.len().max(1));
            let frame = match vlan {
                Some(vlan) => tagged(&frame, *vlan, 0),
                None => frame,
            };
            network.inject_at(self.at.0, self.at.1, frame);
            self.sent += 1;
            if n % 50 == 49 {
                network.run_for(ms(1));
            }
        }
    }
}

/// Three switches in a line. The attacker is at the first; the others are everywhere.
struct Trial {
    network: Network,
    switches: [SwitchId; 3],
    forger: Forger,
    /// Hosts that keep talking.
    hosts: Vec<HostId>,
    mover: HostId,
    seq: u16,
}

impl Trial {
    fn new(controller: ControllerConfig) -> Trial {
        let mut network = Network::new(controller.into(), 1);
        let switches = [(); 3].map(|()| network.add_switch());
        network.link(switches[0], switches[1]);
        network.link(switches[1], switches[2]);
        let port = network.add_port(switches[0]);
        let hosts: Vec<HostId> = switches.iter().map(|at| network.add_host(*at)).collect();
        let mover = network.add_host(switches[2]);
        let late = (0..40).map(|n| Ipv4Addr::new(10, 0, 0, n));
        network.run_for(ms(2000));
        let forger = Forger::new((switches[0], port), late.collect());
        let mut trial = Trial {
            network,
            switches,
            forger,
            hosts,
            mover,
            seq: 0,
        };
        trial.check_all(0);
        trial
    }

    fn forged(&self) -> Vec<HostView> {
        let hosts = self.network.process().controller.hosts();
        let is_forged = |host: &HostView| host.mac.0[0] == 6;
        hosts.into_iter().filter(is_forged).collect()
    }

    /// Every host pings the next one while the attacker sends.
    fn check_all(&mut self, forged: u32) {
        self.seq += 1;
        let all: Vec<HostId> = self.hosts.iter().chain([&self.mover]).copied().collect();
        let others = all.iter().cycle().skip(1);
        let pairs: Vec<(HostId, HostId)> = all.iter().copied().zip(others.copied()).collect();
        for (from, to) in &pairs {
            self.network.ping(*from, *to, self.seq);
        }
        self.forger.send(&mut self.network, forged);
        self.network.run_for(ms(500));
        for (from, to) in pairs {
            let ip = self.network.host(to).address.ip;
            let pongs = self.network.host(from).pongs.get(&(ip, self.seq));
            assert_eq!(pongs, Some(&1), "{from:?} to {to:?}, ping {}", self.seq);
        }
    }

    /// Adds a host never seen before, moves one while its old port stays up, and lets all talk.
    fn round(&mut self, round: usize, forged: u32) {
        let new = self.network.add_host(self.switches[round % 3]);
        self.hosts.push(new);
        self.network.run_for(ms(700));
        if round.is_multiple_of(2) {
            let to = self.switches[(round / 2) % 3];
            self.network.move_host(self.mover, to, false);
            self.network.run_for(ms(700));
            let to = self.hosts[0];
            self.network.resolve(self.mover, to);
            self.forger.send(&mut self.network, forged / 2);
            self.network.run_for(ms(1500));
            let place = self.network.place(self.mover);
            let mac = self.network.host(self.mover).address.mac;
            let known = self.network.process().controller.hosts();
            let known = known.iter().find(|host| host.mac == mac);
            assert_eq!(known.map(|host| host.at), Some(place), "it has moved");
        }
        self.check_all(forged / 2);
    }

    /// Five minutes in which the hosts talk and the attacker is silent.
    fn wait(&mut self) {
        for _ in 0..10 {
            self.network.run_for(WHOLE_AFTER / 10 - ms(500));
            self.check_all(0);
        }
    }

    fn check_whole(&mut self) {
        assert_eq!(self.forged().len(), 0, "forged hosts are known");
        let known = self.network.process().controller.hosts();
        assert_eq!(known.len(), self.hosts.len() + 1);
        assert_eq!(self.network.process().controller.host_count(), known.len());
        for host in self.hosts.iter().chain([&self.mover]) {
            let Address { mac, ip } = self.network.host(*host).address;
            let view = known.iter().find(|view| view.mac == mac).expect("known");
            assert_eq!(view.at, self.network.place(*host));
            assert!(view.ips.contains(&IpAddr::from(ip)), "{ip} of {mac}");
        }
    }
}

#[test]
fn forged_addresses_cost_others_nothing_and_are_gone_in_five_minutes() {
    // More than a port's share.
    let count = std::env::var("FORGED").map_or(200_000, |count| count.parse().expect("a number"));
    let mut trial = Trial::new(ControllerConfig::default());
    for round in 0..20 {
        trial.round(round, count / 20);
    }
    let left = count - trial.forger.sent;
    trial.forger.send(&mut trial.network, left);
    let forged = trial.forged().len();
    assert!(
        (100_000..=131_072).contains(&forged),
        "{forged} at the peak"
    );
    let counters = trial.network.process().controller.host_counters();
    assert!(counters.details_evicted > 0);
    trial.wait();
    trial.check_whole();
}

/// The same where switches have an entry for each host. In the end they have the same entries as
/// before.
#[test]
fn the_entries_of_forged_hosts_go_too() {
    let mut trial = Trial::new(ControllerConfig {
        fabric: Some(FabricConfig::default()),
        hosts_per_port_max: 1000,
        ..ControllerConfig::default()
    });
    let entries = |trial: &Trial| {
        let counts = trial
            .switches
            .map(|at| trial.network.switch(at).entry_count());
        counts.iter().sum::<usize>()
    };
    trial.forger.send(&mut trial.network, 5000);
    trial.check_all(0);
    let forged = trial.forged().len();
    assert!((900..=1000).contains(&forged), "{forged} at the peak");
    assert!(entries(&trial) > 900);
    trial.wait();
    trial.check_whole();
    trial.network.run_for(WHOLE_AFTER);
    let places = trial.hosts.len() + 1;
    assert!(entries(&trial) < 200 + places, "{}", entries(&trial));
}

/// In proactive mode hosts without a known address are kept, since the controller sees none of
/// their packets. That is no reason to keep the forged hosts of a port.
#[test]
fn forged_hosts_that_nobody_would_hear_are_gone_too() {
    let mut trial = Trial::new(ControllerConfig {
        mode: Mode::Proactive,
        hosts_per_port_max: 400,
        ..ControllerConfig::default()
    });
    for round in 0..4 {
        trial.round(round, 400);
    }
    assert!(trial.forged().len() > 350);
    trial.wait();
    trial.check_whole();
}

/// Hosts behind the attacker's port answer when they are asked, and neither the flood nor what
/// follows from it takes their place.
#[test]
fn a_host_that_has_answered_outlasts_forged_ones_at_its_port() {
    let mut trial = Trial::new(ControllerConfig {
        hosts_per_port_max: 400,
        ..ControllerConfig::default()
    });
    // It shares the attacker's port, and says nothing unless it is asked.
    let neighbour = trial.network.add_host(trial.switches[0]);
    trial.hosts.push(neighbour);
    trial.network.run_for(ms(1000));
    trial.forger.at.1 = trial.network.place(neighbour).port;
    trial.check_all(0);
    trial.check_all(390);
    trial.network.run_for(WHOLE_AFTER);
    trial.check_whole();
    // The neighbour was known before all of these, and stays.
    let mac = trial.network.host(neighbour).address.mac;
    trial.forger.send(&mut trial.network, 1500);
    let known = trial.network.process().controller.hosts();
    assert!(trial.forged().len() > 350);
    assert!(known.iter().any(|host| host.mac == mac));
    trial.wait();
    trial.check_whole();
}

fn vlan(id: u16) -> VlanId {
    VlanId::new(id).expect("a VLAN id")
}

/// A trunk of sixteen VLANs has one share over all of them. Hosts of other ports are learned and
/// talk meanwhile, also those behind the trunk of another switch.
#[test]
fn a_trunk_that_forges_in_each_vlan_has_one_share_over_all() {
    const SHARE: u32 = 800;
    let ids: Vec<u16> = (1..=16).collect();
    let mut network = Network::new(
        ControllerConfig {
            fabric: Some(FabricConfig::default()),
            hosts_per_port_max: SHARE,
            host_count_max: 17 * 1000,
            ..ControllerConfig::default()
        }
        .into(),
        1,
    );
    let (here, there) = (network.add_switch(), network.add_switch());
    network.link(here, there);
    let port = network.add_port(here);
    let trunk = |ids: &[u16]| PortVlans::Trunk {
        tagged: ids.iter().copied().map(vlan).collect(),
        native: None,
    };
    let mut vlans = Vlans::default();
    vlans
        .ports
        .insert(network.location(here, port), trunk(&ids));
    // Two hosts in each of three VLANs, and one in each that is added later.
    let mut pairs = Vec::new();
    let mut host = |network: &mut Network, id: u16, at: SwitchId| {
        let host = network.add_host(at);
        network.host_mut(host).vlan = Some(id);
        vlans.ports.insert(network.place(host), trunk(&[id]));
        host
    };
    for id in [1, 2, 16] {
        let hosts = [here, there, there].map(|at| host(&mut network, id, at));
        pairs.push(hosts);
    }
    network.set_vlans(vlans);
    network.run_for(ms(2000));
    let mut forger = Forger::new((here, port), vec![Ipv4Addr::new(10, 0, 0, 3)]);
    forger.vlans = ids;
    let mut ping = |network: &mut Network, from: HostId, to: HostId, seq: u16, forged: u32| {
        network.ping(from, to, seq);
        forger.send(network, forged);
        network.run_for(ms(500));
        let ip = network.host(to).address.ip;
        assert_eq!(network.host(from).pongs.get(&(ip, seq)), Some(&1), "{seq}");
    };
    for [a, b, _] in &pairs {
        ping(&mut network, *a, *b, 1, 0);
    }
    for seq in 2..5 {
        for [a, b, _] in &pairs {
            ping(&mut network, *b, *a, seq, 1600);
        }
    }
    let forged = |network: &Network| {
        let hosts = network.process().controller.hosts();
        hosts.iter().filter(|host| host.mac.0[0] == 6).count()
    };
    let at_peak = forged(&network);
    assert!(at_peak <= SHARE as usize, "{at_peak} of one port");
    assert!(at_peak > SHARE as usize * 9 / 10, "{at_peak} of one port");
    for [a, _, late] in &pairs {
        ping(&mut network, *late, *a, 5, 1600);
    }
    network.run_for(WHOLE_AFTER);
    assert_eq!(forged(&network), 0);
    assert_eq!(network.process().controller.host_count(), 9);
    for [a, b, late] in &pairs {
        ping(&mut network, *a, *b, 6, 0);
        ping(&mut network, *late, *b, 7, 0);
    }
}

/// A guarded port is closed within a hundredth of a second or so, each time it opens, and nothing
/// is left of its forgeries. A port with a few hundred hosts is left alone.
#[test]
fn a_crowd_closes_a_guarded_port_and_no_other() {
    let mut trial = Trial::new(ControllerConfig {
        fabric: Some(FabricConfig::default()),
        ..ControllerConfig::default()
    });
    let at = trial.network.location(trial.forger.at.0, trial.forger.at.1);
    trial.network.set_crowd_guards([at].into());
    trial.forger.send(&mut trial.network, 400);
    trial.network.run_for(ms(10_000));
    assert!(trial.network.process().controller.is_edge(at));
    let closed = |trial: &Trial| {
        let alarms = trial.network.events().filter(|event| {
            matches!(event, Event::Alarm(Alarm::CrowdGuard { at: closed }) if *closed == at)
        });
        alarms.count()
    };
    assert_eq!(closed(&trial), 0);
    let packet_ins = |trial: &Trial| trial.network.process().controller.counters().packet_ins;
    let before = packet_ins(&trial);
    trial.forger.send(&mut trial.network, 100_000);
    let more = packet_ins(&trial) - before;
    assert!(more < 1500, "{more} of 100,000 have come up");
    assert_eq!(closed(&trial), 1);
    assert!(trial.forged().is_empty(), "{:?}", trial.forged().len());
    // The port opens by itself, and closes again as the attack continues.
    trial.network.run_for(ms(31_000));
    assert!(trial.network.process().controller.is_edge(at));
    trial.forger.send(&mut trial.network, 100_000);
    let more = packet_ins(&trial) - before;
    assert!(more < 3000, "{more} of 200,000 have come up");
    assert!(trial.forged().is_empty());
    trial.network.run_for(WHOLE_AFTER);
    let known = trial.network.process().controller.host_count();
    assert!(known < 10, "{known} hosts are known");
    trial.network.set_crowd_guards(BTreeSet::new());
    trial.network.run_for(ms(100));
    trial.forger.send(&mut trial.network, 3000);
    assert!(trial.forged().len() > 1000, "it is not guarded any more");
}
