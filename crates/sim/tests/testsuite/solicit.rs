//! Questions for IPv6 addresses in the fabric: known ones are answered where they are asked, unless
//! the host that is asked for is a router.

use std::net::Ipv6Addr;

use clock::{SplitMix64, ms};
use control::controller::{Alarm, ControllerConfig, ControllerCounters, Event, FabricConfig};
use control::timeouts::{FirstPackets, Timeouts};
use openflow::packet::PacketFields;
use openflow::packet::build::{ethernet, neighbour_advertisement, neighbour_solicitation};
use openflow::{Field, MacAddr, PortNo};
use sim::host::Neighbour;
use sim::network::{HostId, Network};
use sim::topology::{self, Topology};

const FLOW_MOD: u8 = 14;
const PACKET_OUT: u8 = 13;

/// A line of switches whose hosts have an IPv6 address and have said nothing.
fn silent_line(count: usize, controller: ControllerConfig) -> (Network, Topology) {
    let controller = ControllerConfig {
        fabric: Some(FabricConfig::default()),
        ..controller
    };
    let mut network = Network::new(controller.into(), 1);
    let topology = topology::line(&mut network, count);
    for (n, host) in topology.hosts.iter().enumerate() {
        network.host_mut(*host).ip6 = Some(ip6(n as u16 + 1));
    }
    network.run_for(ms(2000));
    (network, topology)
}

/// The same, where all hosts have asked and answered.
fn line(count: usize, controller: ControllerConfig) -> (Network, Topology) {
    let (mut network, topology) = silent_line(count, controller);
    acquaint(&mut network, &topology);
    (network, topology)
}

fn acquaint(network: &mut Network, topology: &Topology) {
    let hosts = &topology.hosts;
    for (n, host) in hosts.iter().enumerate() {
        network.solicit(*host, hosts[(n + 1) % hosts.len()]);
        network.run_for(ms(100));
    }
    network.run_for(ms(1000));
}

fn ip6(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n)
}

fn counters(network: &Network) -> ControllerCounters {
    network.process().controller.counters()
}

fn heard(network: &Network, topology: &Topology, kind: u8) -> u64 {
    let switches = topology.switches.iter();
    switches.map(|switch| network.heard(*switch, kind)).sum()
}

fn own(network: &Network, host: HostId) -> (MacAddr, Ipv6Addr) {
    let host = network.host(host);
    (host.address.mac, host.ip6.expect("an IPv6 address"))
}

/// The answer to a question of a host with an empty cache.
fn ask(network: &mut Network, from: HostId, to: HostId) -> Option<Neighbour> {
    network.host_mut(from).forget_addresses();
    network.solicit(from, to);
    network.run_for(ms(100));
    let (_, ip) = own(network, to);
    network.host(from).neighbour(ip)
}

fn found(network: &Network, host: HostId, is_router: bool) -> Option<Neighbour> {
    let (mac, _) = own(network, host);
    Some(Neighbour { mac, is_router })
}

/// The host that is asked for sees no question, nor does the controller, and each answer comes with
/// an entry, as `first_packets` says.
#[test]
fn questions_for_known_hosts_are_answered_at_the_edge() {
    for (first_packets, entries) in [
        (FirstPackets::PreInstall, 10),
        (FirstPackets::Controller, 0),
    ] {
        let timeouts = Timeouts {
            first_packets,
            ..Timeouts::default()
        };
        let (mut network, topology) = line(
            16,
            ControllerConfig {
                timeouts,
                ..ControllerConfig::default()
            },
        );
        let (a, b) = (topology.hosts[0], topology.hosts[11]);
        let wanted = found(&network, b, false);
        assert_eq!(ask(&mut network, a, b), wanted);
        network.run_for(ms(600));
        let before = (counters(&network), network.host(b).solicited);
        let sent = heard(&network, &topology, FLOW_MOD);
        for _ in 0..10 {
            assert_eq!(ask(&mut network, a, b), wanted);
            network.run_for(ms(600));
        }
        let after = (counters(&network), network.host(b).solicited);
        assert_eq!(after.0.packet_ins - after.0.lldp_accepted, {
            before.0.packet_ins - before.0.lldp_accepted
        });
        assert_eq!(after.0.flooded, before.0.flooded);
        assert_eq!(after.1, before.1, "nobody asked the host itself");
        assert_eq!(heard(&network, &topology, FLOW_MOD) - sent, entries);
    }
}

/// A network of sixteen switches gets one packet-out for a question, whether the edge answers it or
/// it is flooded.
#[test]
fn a_question_for_a_known_host_costs_one_packet_out() {
    let (mut network, topology) = silent_line(16, ControllerConfig::default());
    let [a, b, router] = [0, 11, 14].map(|n| topology.hosts[n]);
    network.host_mut(router).is_router = true;
    acquaint(&mut network, &topology);
    let mut packet_outs = |to| {
        // Beside LLDP, full-size frames prove that links carry them.
        let sent =
            |network: &Network| heard(network, &topology, PACKET_OUT) - counters(network).lldp_sent;
        let before = sent(&network);
        for _ in 0..10 {
            if let Some(to) = to {
                assert!(ask(&mut network, a, to).is_some());
                network.run_for(ms(600));
            } else {
                network.run_for(ms(700));
            }
        }
        sent(&network) - before
    };
    let [idle, known, flooded] = [None, Some(b), Some(router)].map(&mut packet_outs);
    eprintln!("packet-outs: {idle} idle, {known} for a host, {flooded} for a router");
    assert!(known <= idle + 40, "{known} against {idle}");
    assert!(flooded <= idle + 40, "{flooded} against {idle}");
}

/// The first question for a host finds out whether it is a router; the second is answered in its
/// place.
#[test]
fn the_first_question_for_a_host_is_its_own() {
    let (mut network, topology) = silent_line(4, ControllerConfig::default());
    let (a, b) = (topology.hosts[0], topology.hosts[3]);
    // Both are known as owners by their questions, and neither has answered one.
    for host in [a, b] {
        let (_, ip) = own(&network, host);
        let frame = network.host(host).solicit(ip6(99)).expect("a question");
        network.inject(host, frame);
        network.run_for(ms(100));
        assert!(network.host(host).neighbour(ip).is_none());
    }
    for asked in [1, 1, 1] {
        assert_eq!(ask(&mut network, a, b), found(&network, b, false));
        assert_eq!(network.host(b).solicited, asked);
        network.run_for(ms(600));
    }
}

/// Hosts would stop using a router if an answer denied that it is one.
#[test]
fn a_router_answers_for_itself_and_asks_as_any_host() {
    let (mut network, topology) = silent_line(4, ControllerConfig::default());
    let (a, router) = (topology.hosts[0], topology.hosts[3]);
    network.host_mut(router).is_router = true;
    acquaint(&mut network, &topology);
    for _ in 0..3 {
        let before = network.host(router).solicited;
        assert_eq!(ask(&mut network, a, router), found(&network, router, true));
        assert_eq!(network.host(router).solicited, before + 1);
        network.run_for(ms(600));
    }
    let before = (counters(&network).flooded, network.host(a).solicited);
    assert_eq!(ask(&mut network, router, a), found(&network, a, false));
    let after = (counters(&network).flooded, network.host(a).solicited);
    assert_eq!(after, before, "a known host's address is known to the edge");
}

/// A host that becomes a router, and sends advertisements, answers for itself from then on; and no
/// longer once it has said that it is none.
#[test]
fn a_host_that_becomes_a_router_is_asked_itself() {
    let (mut network, topology) = line(4, ControllerConfig::default());
    let (a, b) = (topology.hosts[0], topology.hosts[3]);
    let (mac, ip) = own(&network, b);
    let asked = |network: &mut Network, is_router| {
        network.run_for(ms(600));
        let before = network.host(b).solicited;
        assert_eq!(ask(network, a, b), found(network, b, is_router));
        network.host(b).solicited - before
    };
    assert_eq!(asked(&mut network, false), 0);
    network.host_mut(b).is_router = true;
    network.inject(b, router_advertisement(mac, ip));
    assert_eq!(asked(&mut network, true), 1);
    assert_eq!(asked(&mut network, true), 1);
    network.host_mut(b).is_router = false;
    network.inject(b, neighbour_advertisement((mac, ip), false));
    assert_eq!(asked(&mut network, false), 0);
}

/// Type, hop limit and group of a router advertisement without options.
fn router_advertisement(mac: MacAddr, ip: Ipv6Addr) -> Vec<u8> {
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let header = [0x60, 0, 0, 0, 0, 16, 58, 255];
    let message = [134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    let packet = [&header[..], &ip.octets(), &group.octets(), &message].concat();
    ethernet(mac, MacAddr([0x33, 0x33, 0, 0, 0, 1]), 0x86dd, &packet)
}

/// A question that nobody can answer is flooded once in half a second; probes for an address are no
/// questions.
#[test]
fn a_question_for_an_unknown_address_is_flooded_once_in_a_while() {
    let (mut network, topology) = line(4, ControllerConfig::default());
    let a = topology.hosts[0];
    let frame = network.host(a).solicit(ip6(99)).expect("a question");
    let before = counters(&network);
    for _ in 0..100 {
        network.inject(a, frame.clone());
        network.run_for(ms(10));
    }
    let after = counters(&network);
    assert_eq!(after.flooded - before.flooded, 2);
    assert_eq!(after.questions_repeated - before.questions_repeated, 98);
    let (mac, _) = own(&network, a);
    let probe = neighbour_solicitation((mac, Ipv6Addr::UNSPECIFIED), ip6(99));
    for _ in 0..2 {
        network.inject(a, probe.clone());
        network.run_for(ms(10));
    }
    assert_eq!(counters(&network).flooded - after.flooded, 2);
}

/// A host whose own address is new: the controller learns it, and answers.
#[test]
fn the_first_question_of_a_host_is_answered_by_the_controller() {
    let (mut network, topology) = line(4, ControllerConfig::default());
    let (a, b) = (topology.hosts[0], topology.hosts[3]);
    let before = (counters(&network), network.host(b).solicited);
    network.host_mut(a).ip6 = Some(ip6(77));
    assert_eq!(ask(&mut network, a, b), found(&network, b, false));
    let after = (counters(&network), network.host(b).solicited);
    assert_eq!(after.0.flooded, before.0.flooded);
    assert_eq!(after.0.questions_answered, before.0.questions_answered + 1);
    assert_eq!(after.1, before.1);
    assert_eq!(ask(&mut network, b, a), found(&network, a, false));
}

/// With inspection all neighbour discovery passes through the controller.
#[test]
fn inspection_sees_every_question() {
    let (mut network, topology) = line(
        4,
        ControllerConfig {
            arp_inspection: true,
            ..ControllerConfig::default()
        },
    );
    let (a, b) = (topology.hosts[0], topology.hosts[3]);
    let (before, solicited) = (counters(&network), network.host(b).solicited);
    for _ in 0..10 {
        assert_eq!(ask(&mut network, a, b), found(&network, b, false));
    }
    let after = counters(&network);
    assert_eq!(after.questions_answered - before.questions_answered, 10);
    assert_eq!(
        network.host(b).solicited,
        solicited,
        "nobody asked it itself"
    );
}

/// Nobody answers for a host that has left.
#[test]
fn nobody_answers_for_a_host_that_has_gone() {
    let (mut network, topology) = line(4, ControllerConfig::default());
    let (a, b) = (topology.hosts[0], topology.hosts[3]);
    assert!(ask(&mut network, a, b).is_some());
    let link = network.link_of(b);
    network.set_link(link, false);
    network.run_for(ms(100));
    assert_eq!(ask(&mut network, a, b), None);
    network.set_link(link, true);
    network.run_for(ms(3000));
    assert!(ask(&mut network, a, b).is_some(), "it is back");
}

/// Only the owner answers for an address in dispute.
#[test]
fn a_claim_is_seen_and_the_owner_keeps_its_address() {
    let (mut network, topology) = line(4, ControllerConfig::default());
    let (a, b, thief) = (topology.hosts[0], topology.hosts[1], topology.hosts[3]);
    let (mac, _) = own(&network, thief);
    let (_, ip) = own(&network, b);
    let mut answers = 0;
    for _ in 0..20 {
        network.inject(thief, neighbour_solicitation((mac, ip), ip6(1)));
        network.run_for(ms(90));
        answers += u32::from(ask(&mut network, a, b).is_some());
        if let Some(neighbour) = network.host(a).neighbour(ip) {
            assert_eq!(Some(neighbour), found(&network, b, false));
        }
    }
    assert!(answers >= 10, "{answers} answers");
    let is_alarm = |event: &&Event| matches!(event, Event::Alarm(Alarm::AddressClaimed { .. }));
    assert_eq!(network.events().filter(is_alarm).count(), 1);
    assert!(counters(&network).address_claims >= 10);
}

/// Hosts ask at random while others claim their addresses, and become routers: every answer that an
/// edge or the controller gives names the owner, and none denies that a router is one.
#[test]
fn every_answer_names_the_owner() {
    for seed in 0..60 {
        let (mut network, topology) = silent_line(4, ControllerConfig::default());
        let hosts = &topology.hosts;
        network.host_mut(hosts[0]).is_router = true;
        acquaint(&mut network, &topology);
        let mut random = SplitMix64::new(seed);
        let mut below = |n: usize| (random.next() % n as u64) as usize;
        for host in hosts {
            network.host_mut(*host).record = true;
        }
        for _ in 0..60 {
            let (a, b) = (hosts[below(4)], hosts[below(4)]);
            let ((mac, ip), (_, other)) = (own(&network, a), own(&network, b));
            match below(8) {
                0 => network.inject(a, neighbour_solicitation((mac, other), ip6(99))),
                // By this message the router would deny that it is one.
                1 if a == hosts[0] => {}
                1 => network.inject(a, neighbour_advertisement((mac, other), false)),
                2 => network.inject(a, neighbour_solicitation((mac, ip), ip)),
                _ => network.solicit(a, b),
            }
            network.run_for(ms(below(400) as u64));
        }
        for host in hosts {
            let asker = network.host(*host);
            for frame in &asker.recorded {
                let fields = PacketFields::parse(PortNo(1), frame);
                let target = fields.get(Field::Ipv6NdTarget).map(Ipv6Addr::from);
                let Some(is_router) = fields.says_router(frame) else {
                    continue;
                };
                let is_for_it = fields.eth_dst() == Some(asker.address.mac);
                let owner = hosts.iter().find(|host| network.host(**host).ip6 == target);
                let (Some(owner), true) = (owner, is_for_it) else {
                    continue;
                };
                let owner = network.host(*owner);
                let tll = fields.get(Field::Ipv6NdTll);
                assert_eq!(tll, Some(owner.address.mac.to_u64().into()), "seed {seed}");
                assert_eq!(is_router, owner.is_router, "seed {seed}");
            }
        }
    }
}
