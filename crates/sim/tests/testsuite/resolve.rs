//! Questions for addresses in the fabric: edges answer for known hosts, and the controller still
//! learns what it did when it saw them all.

use clock::{Duration, SplitMix64, ms};
use control::controller::{Alarm, ControllerConfig, ControllerCounters, Event, FabricConfig};
use control::timeouts::{FirstPackets, Timeouts};
use openflow::packet::PacketFields;
use openflow::packet::build::{Host as Address, arp_reply, arp_request};
use openflow::{Field, MacAddr, PortNo};
use sim::network::{HostId, Network};
use sim::topology::{self, Topology};

const FLOW_MOD: u8 = 14;
const PACKET_OUT: u8 = 13;

fn network(controller: ControllerConfig) -> Network {
    let controller = ControllerConfig {
        fabric: Some(FabricConfig::default()),
        ..controller
    };
    Network::new(controller.into(), 1)
}

/// A line of four switches whose hosts have all spoken.
fn line(controller: ControllerConfig) -> (Network, Topology) {
    let mut network = network(controller);
    let topology = topology::line(&mut network, 4);
    network.run_for(ms(2000));
    for (n, host) in topology.hosts.iter().enumerate() {
        network.resolve(*host, topology.hosts[(n + 1) % 4]);
        network.run_for(ms(20));
    }
    network.run_for(ms(1000));
    (network, topology)
}

fn counters(network: &Network) -> ControllerCounters {
    network.process().controller.counters()
}

fn asked(network: &Network, who: HostId) -> u32 {
    network.host(who).arp_heard.values().sum()
}

/// Asks with an empty cache. Returns whether the host got an answer.
fn ask(network: &mut Network, from: HostId, to: HostId) -> bool {
    network.host_mut(from).forget_addresses();
    network.resolve(from, to);
    network.run_for(ms(100));
    let ip = network.host(to).address.ip;
    network.host(from).has_resolved(ip)
}

fn heard(network: &Network, topology: &Topology, kind: u8) -> u64 {
    let switches = topology.switches.iter();
    switches.map(|switch| network.heard(*switch, kind)).sum()
}

/// The host that is asked for sees no question, nor does the controller, but for one question of
/// the asker in a minute.
#[test]
fn questions_for_known_hosts_are_answered_at_the_edge() {
    let (mut network, topology) = line(ControllerConfig::default());
    let (a, b) = (topology.hosts[0], topology.hosts[3]);
    assert!(ask(&mut network, a, b));
    network.run_for(ms(600));
    let before = (counters(&network), asked(&network, b));
    let sent = [FLOW_MOD, PACKET_OUT].map(|kind| heard(&network, &topology, kind));
    for _ in 0..10 {
        assert!(ask(&mut network, a, b));
        network.run_for(ms(600));
    }
    let after = (counters(&network), asked(&network, b));
    assert_eq!(after.0.packet_ins - after.0.lldp_accepted, {
        before.0.packet_ins - before.0.lldp_accepted
    });
    assert_eq!(after.0.flooded, before.0.flooded);
    assert_eq!(after.1, before.1, "nobody asked the host itself");
    let flow_mods = heard(&network, &topology, FLOW_MOD) - sent[0];
    assert_eq!(flow_mods, 10, "an entry with each answer");
}

/// Entries precede conversations, or do not, as `first_packets` says.
#[test]
fn the_askers_entry_comes_before_the_answer() {
    for (first_packets, entries) in [(FirstPackets::PreInstall, 1), (FirstPackets::Controller, 0)] {
        let timeouts = Timeouts {
            first_packets,
            ..Timeouts::default()
        };
        let (mut network, topology) = line(ControllerConfig {
            timeouts,
            ..ControllerConfig::default()
        });
        let (a, b) = (topology.hosts[0], topology.hosts[2]);
        let before = heard(&network, &topology, FLOW_MOD);
        assert!(ask(&mut network, a, b));
        let after = heard(&network, &topology, FLOW_MOD);
        assert_eq!(after - before, entries, "{first_packets:?}");
    }
}

/// A question that nobody can answer is flooded once in half a second.
#[test]
fn a_question_for_an_unknown_address_is_flooded_once_in_a_while() {
    let (mut network, topology) = line(ControllerConfig::default());
    let a = topology.hosts[0];
    let unknown = [10, 0, 99, 99].into();
    let frame = arp_request(network.host(a).address, unknown);
    let before = counters(&network);
    for _ in 0..100 {
        network.inject(a, frame.clone());
        network.run_for(ms(10));
    }
    let after = counters(&network);
    assert_eq!(after.flooded - before.flooded, 2);
    assert_eq!(after.questions_repeated - before.questions_repeated, 98);
    let b = topology.hosts[1];
    let same = arp_request(network.host(b).address, unknown);
    network.inject(b, same);
    network.run_for(ms(10));
    let flooded = counters(&network).flooded;
    assert_eq!(flooded - after.flooded, 1, "another's question is its own");
}

/// A host whose own address is new: the controller learns it, and answers.
#[test]
fn the_first_question_of_a_host_is_answered_by_the_controller() {
    let (mut network, topology) = line(ControllerConfig::default());
    let (a, b) = (topology.hosts[0], topology.hosts[3]);
    let before = (counters(&network), asked(&network, b));
    let ip = [10, 0, 77, 77].into();
    network.host_mut(a).address.ip = ip;
    network.host_mut(a).forget_addresses();
    network.resolve(a, b);
    network.run_for(ms(100));
    assert!(network.host(a).has_resolved(network.host(b).address.ip));
    let after = (counters(&network), asked(&network, b));
    assert_eq!(after.0.flooded, before.0.flooded);
    assert_eq!(after.0.questions_answered, before.0.questions_answered + 1);
    assert_eq!(after.1, before.1);
    network.host_mut(a).forget_addresses();
    assert!(ask(&mut network, b, a), "its new address is known");
}

/// With inspection every ARP message passes through the controller.
#[test]
fn inspection_sees_every_question() {
    let (mut network, topology) = line(ControllerConfig {
        arp_inspection: true,
        ..ControllerConfig::default()
    });
    let (a, b) = (topology.hosts[0], topology.hosts[3]);
    let (before, asked_before) = (counters(&network), asked(&network, b));
    for _ in 0..10 {
        assert!(ask(&mut network, a, b));
    }
    let after = counters(&network);
    assert_eq!(after.questions_answered - before.questions_answered, 10);
    assert_eq!(asked(&network, b), asked_before, "nobody asked it itself");
}

/// An edge does not answer for an address that another host claims: the controller sees the owner
/// defend its address by a question of its own.
#[test]
fn a_claim_is_seen_and_the_owner_keeps_its_address() {
    let (mut network, topology) = line(ControllerConfig::default());
    let (a, b, thief) = (topology.hosts[0], topology.hosts[1], topology.hosts[3]);
    assert!(ask(&mut network, a, b));
    let own = network.host(thief).address;
    let claim = Address::new(own.mac, network.host(b).address.ip);
    network.host_mut(a).record = true;
    for _ in 0..20 {
        network.inject(thief, arp_request(claim, network.host(a).address.ip));
        network.run_for(ms(90));
        network.host_mut(a).forget_addresses();
        network.resolve(a, b);
        network.run_for(ms(90));
    }
    let is_alarm = |event: &&Event| matches!(event, Event::Alarm(Alarm::AddressClaimed { .. }));
    assert_eq!(network.events().filter(is_alarm).count(), 1);
    assert!(counters(&network).address_claims >= 10);
    for frame in &network.host(a).recorded {
        let fields = PacketFields::parse(PortNo(1), frame);
        let is_answer = fields.get(Field::ArpOp) == Some(2);
        let of_b = fields.get(Field::ArpSpa) == Some(u128::from(u32::from(claim.ip)));
        if is_answer && of_b {
            let sha = fields.get(Field::ArpSha);
            assert_eq!(sha, Some(u128::from(network.host(b).address.mac.to_u64())));
        }
    }
}

/// Nobody answers for a host that has left: its port is down, or it is silent when another claims
/// its address.
#[test]
fn nobody_answers_for_a_host_that_has_gone() {
    let (mut network, topology) = line(ControllerConfig::default());
    let (a, b) = (topology.hosts[0], topology.hosts[3]);
    assert!(ask(&mut network, a, b));
    let link = network.link_of(b);
    network.set_link(link, false);
    network.run_for(ms(100));
    assert!(!ask(&mut network, a, b));
    network.set_link(link, true);
    network.run_for(ms(3000));
    assert!(ask(&mut network, a, b), "it is back");
}

/// A host that only asks, and is answered at the edge, is not forgotten.
#[test]
fn a_host_that_only_asks_stays_known() {
    let (mut network, topology) = line(ControllerConfig {
        host_idle: Duration::from_secs(120),
        ..ControllerConfig::default()
    });
    let (a, b) = (topology.hosts[0], topology.hosts[3]);
    // It answers no question, so only its own are heard.
    for other in [a, b] {
        assert!(ask(&mut network, other, topology.hosts[1]));
    }
    network.host_mut(a).silent = true;
    for _ in 0..60 {
        network.resolve(a, topology.hosts[1]);
        network.run_for(Duration::from_secs(10));
    }
    let mac = network.host(a).address.mac;
    let hosts = network.process().controller.hosts();
    assert!(hosts.iter().any(|host| host.mac == mac));
    assert!(ask(&mut network, b, a));
}

/// Hosts ask at random while others claim their addresses: every answer that an edge
/// or the controller gives names the host that owns the address.
#[test]
fn every_answer_names_the_owner() {
    for seed in 0..60 {
        let (mut network, topology) = line(ControllerConfig::default());
        let mut random = SplitMix64::new(seed);
        let mut below = |n: usize| (random.next() % n as u64) as usize;
        let hosts = &topology.hosts;
        for host in hosts {
            network.host_mut(*host).record = true;
        }
        for _ in 0..60 {
            let (a, b) = (hosts[below(4)], hosts[below(4)]);
            let address = network.host(a).address;
            let other = network.host(b).address.ip;
            match below(8) {
                0 => {
                    let claim = Address::new(address.mac, other);
                    network.inject(a, arp_request(claim, other));
                }
                1 => {
                    let claim = Address::new(address.mac, other);
                    let everybody = Address::new(MacAddr::BROADCAST, other);
                    network.inject(a, arp_reply(claim, everybody));
                }
                2 => network.inject(a, arp_request(address, address.ip)),
                _ => network.resolve(a, b),
            }
            network.run_for(ms(below(400) as u64));
        }
        for host in hosts {
            let own = network.host(*host).address.mac;
            for frame in &network.host(*host).recorded {
                let fields = PacketFields::parse(PortNo(1), frame);
                if fields.eth_dst() != Some(own) || fields.get(Field::ArpOp) != Some(2) {
                    continue;
                }
                let ip = fields.get(Field::ArpSpa).unwrap_or_default() as u32;
                let mac = hosts
                    .iter()
                    .map(|host| network.host(*host).address)
                    .find(|address| u32::from(address.ip) == ip)
                    .map(|address| u128::from(address.mac.to_u64()));
                assert_eq!(fields.get(Field::ArpSha), mac, "seed {seed}");
            }
        }
    }
}
