//! Gateways: hosts of VLANs with a gateway reach each other by routing alone, and hosts of other
//! VLANs do not.
//!
//! `GATEWAY_SEEDS=0..1000 cargo test --profile checked -p auster-sim --test testsuite gateways::`
//! runs more random faults.

#![allow(clippy::disallowed_methods, reason = "a test reads its environment")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clock::{SplitMix64, ms};
use control::controller::{Alarm, ControllerConfig, Event, FabricConfig};
use control::entry::EntryKind;
use control::routing::{GATEWAY_MAC, Gateway, Gateways};
use control::vlan::{PortVlans, VlanId, Vlans};
use openflow::message::{ErrorMessage, FlowMod};
use openflow::packet::build::{
    Host as Address, arp_reply, arp_request, neighbour_answer, neighbour_solicitation, tagged, udp,
    udp6,
};
use openflow::packet::ip::Datagram;
use openflow::{
    Action, ErrorKind, Field, Instruction, MacAddr, Match, MatchField, Message, Version, Xid,
    encode,
};
use sim::network::{HostId, Network, SwitchId};
use sim::topology::{self, Topology};

fn vlan(id: u16) -> VlanId {
    VlanId::new(id).expect("a VLAN id")
}

fn gateway_ip(id: u16) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, id as u8, 254)
}

fn ip6(id: u16, n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, id, 0, 0, 0, 0, 0, n)
}

/// The address of host `n` of a VLAN.
fn address(id: u16, n: u8) -> Address {
    Address::new(
        MacAddr([2, 0, 0, id as u8, 0, n]),
        Ipv4Addr::new(10, 0, id as u8, n + 1),
    )
}

fn gateways(ids: &[u16]) -> Gateways {
    let gateway = |id: &u16| {
        let texts = [
            format!("{}/24", gateway_ip(*id)),
            format!("{}/64", ip6(*id, 0xfe)),
        ];
        let subnets = texts.map(|text| text.parse().expect("a gateway"));
        let (mac, subnets) = (GATEWAY_MAC, subnets.into());
        (vlan(*id), Gateway { mac, subnets })
    };
    Gateways {
        vlans: ids.iter().map(gateway).collect(),
        ..Gateways::default()
    }
}

/// Hosts in VLANs, some of which have a gateway.
struct Campus {
    network: Network,
    switches: Vec<SwitchId>,
    topology: Topology,
    hosts: BTreeMap<u16, Vec<HostId>>,
    vlans: Vlans,
    with_gateway: Vec<u16>,
}

impl Campus {
    /// Every switch has a host of each VLAN; one on an odd switch tags its frames. VLAN 30 has no
    /// gateway.
    fn new(seed: u64, ids: &[u16], build: impl FnOnce(&mut Network) -> Topology) -> Campus {
        let with_gateway: Vec<u16> = ids.iter().copied().filter(|id| *id != 30).collect();
        let controller = ControllerConfig {
            fabric: Some(FabricConfig::default()),
            gateways: gateways(&with_gateway),
            ..ControllerConfig::default()
        };
        let mut network = Network::new(controller.into(), seed);
        let topology = build(&mut network);
        let mut campus = Campus {
            network,
            switches: topology.switches.clone(),
            topology,
            hosts: BTreeMap::new(),
            vlans: Vlans::default(),
            with_gateway,
        };
        for id in ids {
            for n in 0..campus.switches.len() {
                let tag = (n % 2 == 1).then_some(*id);
                campus.add(*id, campus.switches[n], address(*id, n as u8), tag);
            }
        }
        campus.network.set_vlans(campus.vlans.clone());
        campus.network.run_for(ms(2000));
        campus
    }

    fn line(seed: u64, length: usize) -> Campus {
        Campus::new(seed, &[10, 20, 30], |network| {
            topology::line(network, length)
        })
    }

    fn add(&mut self, id: u16, switch: SwitchId, at: Address, tag: Option<u16>) -> HostId {
        let host = self.network.add_host(switch);
        let own = self.network.host_mut(host);
        own.address = at;
        own.ip6 = Some(ip6(id, u16::from(at.ip.octets()[3])));
        own.gateway = Some((gateway_ip(id), 256));
        own.record = true;
        own.vlan = tag;
        self.hosts.entry(id).or_default().push(host);
        self.admit(host, id);
        host
    }

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

    fn routed(&self) -> Topology {
        let hosts = self.with_gateway.iter().flat_map(|id| &self.hosts[id]);
        Topology {
            switches: self.switches.clone(),
            links: Vec::new(),
            hosts: hosts.copied().collect(),
        }
    }

    /// Pairs of hosts that do not talk, in VLANs with gateways.
    fn silent(&mut self, seq: u16) -> Vec<(HostId, HostId)> {
        let routed = self.routed();
        // The first packets to a host wait until its address is resolved.
        let _ = routed.silent_pairs(&mut self.network, seq);
        routed.silent_pairs(&mut self.network, seq + 1)
    }

    fn counters(&self) -> control::controller::ControllerCounters {
        self.network.process().controller.counters()
    }

    /// Packet-ins other than those of discovery.
    fn packet_ins(&self) -> u64 {
        self.counters().packet_ins - self.counters().lldp_accepted
    }

    fn arrivals(&self, host: HostId) -> usize {
        self.network.host(host).arrivals.len()
    }

    fn send(&mut self, from: HostId, frame: Vec<u8>) {
        let frame = match self.network.host(from).vlan {
            Some(tag) => tagged(&frame, tag, 0),
            None => frame,
        };
        self.network.inject(from, frame);
    }

    /// A datagram with this TTL.
    fn datagram(&self, from: HostId, to: Ipv4Addr, ttl: u8) -> Vec<u8> {
        let own = self.network.host(from).address;
        let to = Address::new(GATEWAY_MAC, to);
        let mut frame = udp(own, to, (4000, 4001), &7u64.to_be_bytes());
        while frame[22] != ttl {
            let packet = Datagram::read(&frame).expect("IP").expect("right");
            frame = packet.forwarded(own.mac, to.mac).expect("more hops");
        }
        frame
    }

    /// Frames that hosts have received from another VLAN, and that no router has sent; with those
    /// of VLANs without a gateway that one has.
    fn crossed(&self) -> Vec<(u16, Vec<u8>)> {
        let mut crossed = Vec::new();
        for (id, hosts) in &self.hosts {
            let has_gateway = self.with_gateway.contains(id);
            for host in hosts.iter().map(|host| self.network.host(*host)) {
                let strange = |frame: &&Vec<u8>| is_strange(frame, host.vlan, *id, has_gateway);
                let frames = host.recorded.iter().filter(strange);
                crossed.extend(frames.map(|frame| (*id, frame.clone())));
            }
        }
        crossed
    }

    fn alarms(&self) -> Vec<(Option<IpAddr>, MacAddr)> {
        let events = self.network.events();
        let claims = events.filter_map(|event| match event {
            Event::Alarm(Alarm::GatewayClaimed { ip, claimant, .. }) => Some((*ip, *claimant)),
            _ => None,
        });
        claims.collect()
    }
}

fn is_strange(frame: &[u8], tag: Option<u16>, id: u16, has_gateway: bool) -> bool {
    let is_tagged = frame[12..14] == [0x81, 0];
    let found = is_tagged.then(|| u16::from_be_bytes([frame[14], frame[15]]) & 0xfff);
    let rest = match is_tagged {
        true => [&frame[..12], &frame[16..]].concat(),
        false => frame.to_vec(),
    };
    if rest[12..14] == [0x88, 0xcc] {
        return false;
    }
    let sender = &rest[6..12];
    let is_of_host = sender[..3] == [2, 0, 0];
    let is_routed = sender == GATEWAY_MAC.0;
    let comes_from_30 = match Datagram::read(&rest) {
        Some(Ok(packet)) => match packet.from {
            IpAddr::V4(ip) => ip.octets()[2] == 30,
            IpAddr::V6(ip) => ip.segments()[1] == 30,
        },
        _ => false,
    };
    found != tag
        || is_of_host && u16::from(sender[3]) != id
        || is_routed && (!has_gateway || comes_from_30)
}

#[test]
fn hosts_of_vlans_with_gateways_talk_and_no_others() {
    type Build = fn(&mut Network) -> Topology;
    let builds: [(&str, Build); 3] = [
        ("line", |network| topology::line(network, 3)),
        ("ring", |network| topology::ring(network, 4)),
        ("leaf-spine", |network| {
            topology::leaf_spine(network, 2, 3, 1)
        }),
    ];
    for (name, build) in builds {
        let mut campus = Campus::new(1, &[10, 20, 30], build);
        let silent = campus.silent(1);
        assert!(silent.is_empty(), "{name}: {silent:?}");
        let alone = campus.hosts[&30].clone();
        for (n, other) in alone.iter().enumerate() {
            let own = campus.hosts[&10][n];
            campus.network.ping(own, *other, 9);
            campus.network.ping(*other, own, 9);
            // They know where routers usually are.
            let to = campus.network.host(own).address.ip;
            let frame = campus.datagram(*other, to, 64);
            campus.send(*other, frame);
        }
        campus.network.run_for(ms(5000));
        for host in alone.iter().chain(&campus.hosts[&10]) {
            let pongs = &campus.network.host(*host).pongs;
            let strange = |(ip, seq): &(Ipv4Addr, u16)| *seq == 9 || ip.octets()[2] == 30;
            assert!(!pongs.keys().any(strange), "{name}: {pongs:?}");
        }
        assert_eq!(campus.crossed(), [], "{name}");
        assert_eq!(campus.network.errors().count(), 0, "{name}");
    }
}

/// A conversation between VLANs costs the controller no packet once its entries are there.
#[test]
fn conversations_are_routed_by_switches_alone() {
    let mut campus = Campus::line(2, 4);
    assert!(campus.silent(1).is_empty());
    let pairs = [
        (campus.hosts[&10][0], campus.hosts[&20][3]),
        (campus.hosts[&20][1], campus.hosts[&10][1]),
        (campus.hosts[&20][2], campus.hosts[&10][2]),
    ];
    let before = campus.packet_ins();
    for (n, (from, to)) in (0u64..).zip(pairs) {
        campus.network.host_mut(to).recorded.clear();
        campus.network.stream(from, to, n << 32, 500, ms(1));
    }
    campus.network.run_for(ms(900));
    assert_eq!(campus.packet_ins() - before, 0, "packets came up");
    for (from, to) in pairs {
        assert_eq!(campus.arrivals(to), 500, "{from:?} to {to:?}");
        let host = campus.network.host(to);
        let is_ip = |frame: &&Vec<u8>| frame[12..14] == [8, 0] || frame[16..18] == [8, 0];
        for frame in host.recorded.iter().filter(is_ip) {
            let at = if host.vlan.is_some() { 18 } else { 14 };
            assert_eq!(frame[at + 8], 63, "one hop less");
            assert_eq!(frame[6..12], GATEWAY_MAC.0);
        }
    }
    assert_eq!(campus.crossed(), []);
}

/// The controller reports such a packet before there is an entry, and the switch once there is one.
#[test]
fn a_packet_that_has_made_its_hops_is_reported() {
    let mut campus = Campus::line(3, 3);
    campus.introduce();
    for host in [campus.hosts[&10][0], campus.hosts[&10][1]] {
        let (to, target) = (address(20, 2).ip, campus.hosts[&20][2]);
        let expected = (gateway_ip(10), 11, 0);
        let frame = campus.datagram(host, to, 1);
        for round in 1..=3 {
            campus.send(host, frame.clone());
            campus.network.run_for(ms(50));
            let reports = &campus.network.host(host).reports;
            assert_eq!(reports[..], vec![expected; round], "{host:?}");
            campus.network.ping_address(host, to, round as u16);
            campus.network.run_for(ms(100));
        }
        let before = campus.arrivals(target);
        let frame = campus.datagram(host, to, 2);
        campus.send(host, frame);
        campus.network.run_for(ms(50));
        assert_eq!(campus.arrivals(target), before + 1);
    }
}

impl Campus {
    /// Every host asks for its gateway, and so becomes known.
    fn introduce(&mut self) {
        for (id, hosts) in self.hosts.clone() {
            for host in hosts {
                let frame = self.network.host_mut(host).resolve(gateway_ip(id));
                self.send(host, frame);
                self.network.run_for(ms(10));
            }
        }
        self.network.run_for(ms(800));
    }

    /// Has a host of each VLAN send a broadcast, upon which the VLAN's tree is checked and
    /// improved.
    fn shout(&mut self) {
        for (id, hosts) in self.hosts.clone() {
            let nobody = Ipv4Addr::new(10, 0, id as u8, 250);
            let frame = self.network.host_mut(hosts[0]).resolve(nobody);
            self.send(hosts[0], frame);
        }
    }
}

#[test]
fn a_gateway_answers_echoes() {
    let mut campus = Campus::line(4, 3);
    for (id, n) in [(10, 0), (10, 1), (20, 2)] {
        let host = campus.hosts[&id][n];
        for (seq, of) in [(1, 10), (2, 20)] {
            campus.network.ping_address(host, gateway_ip(of), seq);
            campus.network.run_for(ms(50));
            let pongs = &campus.network.host(host).pongs;
            assert_eq!(pongs.get(&(gateway_ip(of), seq)), Some(&1), "{id} {of}");
        }
    }
    let alone = campus.hosts[&30][0];
    campus.network.ping_address(alone, gateway_ip(30), 3);
    campus.network.ping_address(alone, gateway_ip(10), 3);
    campus.network.run_for(ms(50));
    assert!(campus.network.host(alone).pongs.is_empty());
}

#[test]
fn what_is_not_reached_is_reported() {
    let mut campus = Campus::line(5, 3);
    campus.introduce();
    let host = campus.hosts[&10][0];
    campus.network.ping_address(host, [192, 0, 2, 1].into(), 1);
    campus.network.run_for(ms(50));
    let no_route = (gateway_ip(10), 3, 0);
    assert_eq!(campus.network.host(host).reports, [no_route]);
    campus.network.ping_address(host, [10, 0, 20, 99].into(), 1);
    campus.network.run_for(ms(2900));
    assert_eq!(campus.network.host(host).reports, [no_route], "it is asked");
    campus.network.run_for(ms(200));
    let no_host = (gateway_ip(10), 3, 1);
    assert_eq!(campus.network.host(host).reports, [no_route, no_host]);
    let asked = (gateway_ip(20), [10, 0, 20, 99].into());
    let heard = |host: &HostId| campus.network.host(*host).arp_heard.get(&asked).copied();
    let heard: Vec<_> = campus.hosts[&20].iter().map(heard).collect();
    assert_eq!(heard, [Some(3); 3], "three questions in its VLAN");
    let elsewhere = campus.hosts[&10].iter().chain(&campus.hosts[&30]);
    for host in elsewhere {
        let host = campus.network.host(*host);
        assert!(!host.arp_heard.contains_key(&asked), "and in no other");
    }
    assert_eq!(campus.crossed(), []);
}

/// A host in VLAN 20 is the router of further networks.
#[test]
fn static_routes_lead_to_their_next_hop() {
    let mut campus = Campus::line(6, 3);
    let router = campus.hosts[&20][2];
    let mut with_routes = gateways(&[10, 20]);
    for (to, via) in [
        ("0.0.0.0/0", campus.network.host(router).address.ip),
        ("198.51.100.0/24", [10, 0, 20, 99].into()),
    ] {
        with_routes
            .routes
            .insert(to.parse().expect("a network"), via.into());
    }
    campus.network.set_gateways(with_routes);
    let host = campus.hosts[&10][0];
    campus.introduce();
    let mut sent = 0;
    for to in [[192, 0, 2, 1], [192, 0, 2, 2], [193, 0, 113, 1]] {
        for _ in 0..2 {
            let frame = campus.datagram(host, to.into(), 64);
            campus.send(host, frame);
            campus.network.run_for(ms(30));
            sent += 1;
        }
    }
    let own = campus.network.host(router);
    let is_reply = |frame: &&Vec<u8>| {
        let (mac, from) = (own.address.mac.0, GATEWAY_MAC.0);
        frame[..12] == [mac, from].concat() && frame[26..30] == [10, 0, 10, 1]
    };
    assert_eq!(own.recorded.iter().filter(is_reply).count(), sent);
    let flows = campus.network.process().controller.routed_count();
    assert_eq!(flows, 1, "one entry for all of them");
    campus
        .network
        .ping_address(host, [198, 51, 100, 1].into(), 1);
    campus.network.run_for(ms(3500));
    let reports = &campus.network.host(host).reports;
    assert_eq!(
        reports[..],
        [(gateway_ip(10), 3, 1)],
        "its router is silent"
    );
}

#[test]
fn errors_to_a_port_are_limited() {
    let mut campus = Campus::line(7, 3);
    campus.introduce();
    let (host, other) = (campus.hosts[&10][0], campus.hosts[&10][2]);
    let frame = campus.datagram(host, address(20, 2).ip, 1);
    for _ in 0..2000 {
        campus.send(host, frame.clone());
    }
    let frame = campus.datagram(other, address(20, 2).ip, 1);
    campus.send(other, frame);
    campus.network.run_for(ms(500));
    let reports = campus.network.host(host).reports.len();
    assert!((20..80).contains(&reports), "{reports}");
    assert_eq!(campus.network.host(other).reports.len(), 1, "another port");
    assert!(campus.counters().icmp_limited > 1900);
}

/// A scan of a whole network costs bounded memory and floods, and others are served meanwhile.
#[test]
fn a_scan_is_bounded() {
    let mut campus = Campus::line(8, 3);
    campus.introduce();
    let (scanner, host) = (campus.hosts[&10][0], campus.hosts[&10][1]);
    let before = campus.counters();
    for n in 0..5000u32 {
        let to = Ipv4Addr::from(0x0a00_1400 + n % 250 + (n / 250) * 0x1_0000);
        let frame = campus.datagram(scanner, to, 64);
        campus.send(scanner, frame);
    }
    campus.network.ping_address(host, address(20, 2).ip, 1);
    campus.network.run_for(ms(300));
    let floods = campus.counters().flooded - before.flooded;
    assert!(floods <= 64, "{floods}");
    let pongs = &campus.network.host(host).pongs;
    assert!(pongs.contains_key(&(address(20, 2).ip, 1)), "{pongs:?}");
    campus.network.run_for(ms(10_000));
    assert!(campus.silent(2).is_empty());
    assert_eq!(campus.crossed(), []);
}

#[test]
fn nobody_is_believed_to_be_the_gateway() {
    let mut campus = Campus::line(9, 3);
    campus.introduce();
    let (liar, victim) = (campus.hosts[&10][0], campus.hosts[&10][2]);
    let own = campus.network.host(liar).address;
    let as_gateway = Address::new(own.mac, gateway_ip(10));
    let to = campus.network.host(victim).address;
    let everybody = Address {
        mac: MacAddr::BROADCAST,
        ..to
    };
    let with_mac = Address {
        mac: GATEWAY_MAC,
        ..own
    };
    campus.network.host_mut(victim).recorded.clear();
    for frame in [
        arp_request(as_gateway, gateway_ip(10)),
        arp_reply(as_gateway, everybody),
        arp_reply(as_gateway, to),
    ] {
        campus.send(liar, frame);
        campus.network.run_for(ms(50));
    }
    let claim = (Some(gateway_ip(10).into()), own.mac);
    assert_eq!(campus.alarms(), [claim], "once a minute");
    let heard = &campus.network.host(victim).recorded;
    let is_arp = |frame: &&Vec<u8>| frame[12..14] == [8, 6];
    let senders: Vec<&[u8]> = heard
        .iter()
        .filter(is_arp)
        .map(|frame| &frame[22..32])
        .collect();
    let gateway = [&GATEWAY_MAC.0[..], &gateway_ip(10).octets()].concat();
    assert_eq!(senders, vec![&gateway[..]; 3], "the gateway defends itself");
    campus.network.run_for(ms(61_000));
    let frame = udp(with_mac, to, (1, 2), &5u64.to_be_bytes());
    campus.send(liar, frame);
    campus.network.run_for(ms(50));
    assert_eq!(campus.alarms()[1..], [(None, GATEWAY_MAC)]);
    assert_eq!(campus.arrivals(victim), 0);
    assert!(campus.silent(1).is_empty());
}

/// Neither is an answer to one host alone, which the edge of its switch sends on.
#[test]
fn an_answer_to_one_host_makes_nobody_the_gateway() {
    let mut campus = Campus::line(9, 3);
    campus.introduce();
    let [liar, victim] = [0, 2].map(|n| campus.hosts[&10][n]);
    let ends = [liar, victim].map(|host| campus.network.host(host).address);
    let ip = ip6(10, 0xfe);
    // The edge has answered for these two before, and shows what it sends on.
    for number in 0u64..20 {
        campus.send(liar, udp(ends[0], ends[1], (1, 2), &number.to_be_bytes()));
        campus.network.run_for(ms(100));
    }
    campus.network.run_for(ms(120_000));
    let asker = (ends[1].mac, ip6(10, 3));
    let frame = neighbour_answer((ends[0].mac, ip), asker, true);
    campus.send(liar, frame);
    campus.network.run_for(ms(100));
    let hosts = campus.network.process().controller.hosts();
    assert!(
        hosts.iter().all(|host| !host.ips.contains(&ip.into())),
        "{hosts:?}"
    );
    assert_eq!(campus.alarms(), [(Some(ip.into()), ends[0].mac)]);
}

/// A host that had the gateway's addresses before gives them up.
#[test]
fn a_gateway_takes_its_addresses_from_hosts() {
    let mut campus = Campus::line(10, 3);
    campus.network.set_gateways(gateways(&[20]));
    let host = campus.hosts[&10][0];
    campus.network.host_mut(host).address = Address::new(GATEWAY_MAC, gateway_ip(10));
    let other = campus.hosts[&10][1];
    campus.network.ping(host, other, 1);
    campus.network.run_for(ms(100));
    assert!(!campus.network.host(host).pongs.is_empty(), "it is a host");
    campus.network.set_gateways(gateways(&[10, 20]));
    campus.network.host_mut(host).silent = true;
    campus.network.run_for(ms(100));
    campus.network.ping_address(other, gateway_ip(10), 2);
    campus.network.run_for(ms(100));
    let pongs = &campus.network.host(other).pongs;
    assert!(pongs.contains_key(&(gateway_ip(10), 2)), "{pongs:?}");
}

/// A host moves with its address, and another takes an address over.
#[test]
fn entries_follow_the_owner_of_an_address() {
    for unplug in [true, false] {
        let mut campus = Campus::line(11, 4);
        assert!(campus.silent(1).is_empty());
        let (from, moved) = (campus.hosts[&10][0], campus.hosts[&20][2]);
        campus.network.stream(from, moved, 0, 6000, ms(1));
        campus.network.run_for(ms(500));
        assert!(campus.arrivals(moved) > 450);
        campus.network.move_host(moved, campus.switches[3], unplug);
        campus.admit(moved, 20);
        campus.network.set_vlans(campus.vlans.clone());
        campus.network.run_for(ms(1000));
        for _ in 0..4 {
            campus.network.ping_address(moved, gateway_ip(20), 9);
            campus.network.run_for(ms(500));
        }
        let (before, came_up) = (campus.arrivals(moved), campus.packet_ins());
        campus.network.run_for(ms(1000));
        let arrived = campus.arrivals(moved) - before;
        assert!(arrived >= 990, "unplugged: {unplug}: {arrived}");
        let came_up = campus.packet_ins() - came_up;
        assert!(came_up < 5, "unplugged: {unplug}: {came_up} came up");
        assert_eq!(campus.crossed(), []);
    }
    let mut campus = Campus::line(12, 4);
    assert!(campus.silent(1).is_empty());
    let (from, old, new) = (
        campus.hosts[&10][0],
        campus.hosts[&20][2],
        campus.hosts[&20][0],
    );
    campus.network.stream(from, old, 0, 9000, ms(1));
    campus.network.run_for(ms(300));
    let ip = campus.network.host(old).address.ip;
    campus.network.host_mut(old).silent = true;
    campus.network.host_mut(new).address.ip = ip;
    campus.network.host_mut(new).gateway = Some((gateway_ip(20), 256));
    for _ in 0..4 {
        let frame = campus.network.host_mut(new).resolve(gateway_ip(20));
        campus.send(new, frame);
        campus.network.run_for(ms(500));
    }
    let before = campus.arrivals(new);
    campus.network.run_for(ms(1000));
    let arrived = campus.arrivals(new) - before;
    assert!(arrived >= 990, "another owner: {arrived}");
}

#[test]
fn routes_go_around_failed_links() {
    let mut campus = Campus::new(13, &[10, 20, 30], |network| topology::ring(network, 4));
    assert!(campus.silent(1).is_empty());
    let (from, to) = (campus.hosts[&10][0], campus.hosts[&20][1]);
    campus.network.stream(from, to, 0, 3000, ms(1));
    campus.network.run_for(ms(500));
    campus.network.set_link(campus.topology.links[0], false);
    campus.network.run_for(ms(3000));
    let arrived = campus.arrivals(to);
    assert!(arrived >= 2950, "{arrived}");
    assert!(campus.silent(3).is_empty());
    assert_eq!(campus.crossed(), []);
}

/// Entries keep forwarding while no controller runs. They do not outlive changes made meanwhile.
#[test]
fn a_restart_ends_what_is_no_longer_right() {
    for stays in [true, false] {
        let mut campus = Campus::line(14, 3);
        assert!(campus.silent(1).is_empty());
        let (from, to) = (campus.hosts[&10][0], campus.hosts[&20][0]);
        campus.network.stream(from, to, 0, 8000, ms(1));
        campus.network.run_for(ms(300));
        campus.network.kill_controller();
        let before = campus.arrivals(to);
        campus.network.run_for(ms(500));
        assert!(campus.arrivals(to) - before >= 499, "nobody controls");
        if !stays {
            campus.network.set_gateways(gateways(&[10]));
        }
        campus.network.start_controller(9);
        campus.network.run_for(ms(3000));
        campus.network.host_mut(from).forget_addresses();
        campus.introduce();
        campus.network.run_for(ms(500));
        let before = campus.arrivals(to);
        campus.network.run_for(ms(1000));
        let arrived = campus.arrivals(to) - before;
        assert_eq!(arrived > 0, stays, "{arrived}");
    }
}

/// Nothing crosses once a reload has taken a gateway away; what others route is left alone.
#[test]
fn a_reload_takes_a_gateway_away() {
    let mut campus = Campus::new(15, &[10, 20, 40], |network| topology::line(network, 3));
    assert!(campus.silent(1).is_empty());
    let (from, kept, lost) = (
        campus.hosts[&10][0],
        campus.hosts[&20][2],
        campus.hosts[&40][2],
    );
    campus.network.stream(from, kept, 0, 3000, ms(1));
    campus.network.stream(from, lost, 1 << 32, 3000, ms(1));
    campus.network.stream(lost, from, 2 << 32, 3000, ms(1));
    campus.network.run_for(ms(500));
    let before = campus.counters().packets_routed;
    let flows = campus.network.process().controller.routed_count();
    campus.network.set_gateways(gateways(&[10, 20]));
    campus.network.run_for(ms(20));
    let left = campus.network.process().controller.routed_count();
    assert!(left > 0 && left < flows, "{left} of {flows} entries");
    let counts = |campus: &Campus| [kept, lost, from].map(|host| campus.arrivals(host));
    let then = counts(&campus);
    campus.network.run_for(ms(1000));
    let now = counts(&campus);
    assert_eq!(now[1..], then[1..], "packets cross");
    assert!(now[0] - then[0] >= 999, "the others go on");
    assert_eq!(campus.counters().packets_routed, before);
    campus.network.set_gateways(gateways(&[10, 20, 40]));
    campus.network.run_for(ms(1000));
    assert!(campus.arrivals(lost) > then[1] + 900, "it is back");
    assert_eq!(campus.crossed(), []);
}

/// A switch that refuses one routing entry keeps none: nobody would update them when a host moves.
#[test]
fn a_switch_that_refuses_an_entry_loses_the_others() {
    let mut campus = Campus::line(18, 3);
    assert!(campus.silent(1).is_empty());
    let count = |campus: &Campus| {
        let entries = campus.network.switch(campus.switches[0]).entries();
        let is_it = |cookie| EntryKind::of(cookie) == Some(EntryKind::Routed);
        entries.filter(|entry| is_it(entry.cookie)).count()
    };
    assert!(count(&campus) > 0);
    let refused = FlowMod {
        cookie: EntryKind::Routed.cookie(1),
        ..FlowMod::add(1, Match::any(), Vec::new())
    };
    let refused = encode(Version::V13, Xid(7), &Message::FlowMod(refused));
    let error = Message::Error(ErrorMessage::new(
        ErrorKind::ACTION_BAD_TYPE,
        refused.expect("a message").bytes().clone(),
    ));
    campus.network.say(campus.switches[0], Xid(7), &error);
    campus.network.run_for(ms(100));
    assert_eq!(count(&campus), 0);
    assert!(campus.silent(3).is_empty(), "the controller routes");
}

/// Both VLANs are behind one trunk: packets go back to where they came from, by the controller and
/// by the switch.
#[test]
fn a_trunk_has_packets_routed_back_to_it() {
    let mut campus = Campus::line(16, 3);
    let trunk = campus.add(10, campus.switches[0], address(10, 77), Some(10));
    let port = PortVlans::Trunk {
        tagged: [vlan(10), vlan(20)].into(),
        native: None,
    };
    campus.vlans.ports.insert(campus.network.place(trunk), port);
    campus.network.set_vlans(campus.vlans.clone());
    campus.network.run_for(ms(1000));
    let [a, b] = [address(10, 77), address(20, 78)];
    for (id, own) in [(10, a), (20, b)] {
        let frame = tagged(&arp_request(own, gateway_ip(id)), id, 0);
        campus.network.inject(trunk, frame);
        campus.network.run_for(ms(50));
    }
    let mut sent = 0;
    for _ in 0..3 {
        let before = campus.packet_ins();
        campus.network.host_mut(trunk).recorded.clear();
        let to = Address::new(GATEWAY_MAC, b.ip);
        let frame = udp(a, to, (1, 2), b"abcdefgh");
        campus.network.inject(trunk, tagged(&frame, 10, 0));
        campus.network.run_for(ms(20));
        let came_up = campus.packet_ins() - before;
        let recorded = &campus.network.host(trunk).recorded;
        let is_it = |frame: &&Vec<u8>| {
            frame[..6] == b.mac.0 && frame[14..16] == 20u16.to_be_bytes() && frame[26] == 63
        };
        assert_eq!(recorded.iter().filter(is_it).count(), 1);
        sent += u64::from(came_up > 0);
    }
    assert_eq!(sent, 1, "only the first one came up");
}

#[test]
fn ipv6_is_routed_too() {
    let mut campus = Campus::line(17, 3);
    campus.introduce();
    let ends = [(10, 0, 20, 2), (20, 1, 10, 1)];
    for (id, n, of, m) in ends {
        let (from, to) = (campus.hosts[&id][n], campus.hosts[&of][m]);
        let own = campus.network.host(from);
        let own = (own.address.mac, own.ip6.expect("it has one"));
        let target = campus.network.host(to).ip6.expect("it has one");
        let gateway = ip6(id, 0xfe);
        campus.send(from, neighbour_solicitation(own, gateway));
        campus.network.run_for(ms(50));
        let known = campus.network.host(from).neighbour(gateway);
        assert_eq!(
            known.map(|it| (it.mac, it.is_router)),
            Some((GATEWAY_MAC, true))
        );
        let frame = udp6(own, (GATEWAY_MAC, target), (1, 2), b"abc");
        let before = campus.packet_ins();
        for _ in 0..5 {
            campus.send(from, frame.clone());
            campus.network.run_for(ms(50));
        }
        // The waiting packet, the answer that it waits for, and the packet that gets the entry.
        assert_eq!(campus.packet_ins() - before, 3);
        let host = campus.network.host(to);
        let at = if host.vlan.is_some() { 16 } else { 12 };
        let is_it = |frame: &&Vec<u8>| {
            frame[at..at + 2] == [0x86, 0xdd] && frame[at + 8] == 17 && frame[at + 9] == 63
        };
        assert_eq!(host.recorded.iter().filter(is_it).count(), 5);
        // No host has this address.
        campus.network.host_mut(from).recorded.clear();
        let frame = udp6(own, (GATEWAY_MAC, ip6(of, 0x99)), (1, 2), b"abc");
        campus.send(from, frame);
        campus.network.run_for(ms(3200));
        let host = campus.network.host(from);
        let at = if host.vlan.is_some() { 16 } else { 12 };
        let is_report = |frame: &&Vec<u8>| {
            frame[at..at + 2] == [0x86, 0xdd]
                && frame[at + 8] == 58
                && frame[at + 42..at + 44] == [1, 3]
        };
        assert_eq!(host.recorded.iter().filter(is_report).count(), 1);
    }
    assert_eq!(campus.crossed(), []);
}

/// Runs one seed of random faults, and returns its fault, if any.
fn run(seed: u64) -> Result<(), String> {
    let mut random = SplitMix64::new(seed);
    let mut below = move |end: usize| (random.next() % end as u64) as usize;
    let size = 3 + below(2);
    let kind = below(3);
    let ids = [10, 20, 30];
    let mut campus = Campus::new(seed, &ids, |network| match kind {
        0 => topology::line(network, size),
        1 => topology::ring(network, size),
        _ => topology::leaf_spine(network, 2, size, 1),
    });
    campus.introduce();
    let mut down = Vec::new();
    for round in 0..12u64 {
        let links = campus.topology.links.clone();
        match below(9) {
            0 => {
                let switch = campus.switches[below(campus.switches.len())];
                campus.network.disconnect(switch);
            }
            1 => {
                campus.network.kill_controller();
                campus.network.run_for(ms(below(50) as u64));
                campus.network.start_controller(seed ^ round);
            }
            2 => {
                let id = ids[below(3)];
                let hosts = &campus.hosts[&id];
                let host = hosts[below(hosts.len())];
                let to = campus.switches[below(campus.switches.len())];
                campus.network.move_host(host, to, below(2) == 0);
                campus.admit(host, id);
                campus.network.set_vlans(campus.vlans.clone());
                campus.network.run_for(ms(below(900) as u64));
            }
            3 => {
                campus.network.set_gateways(gateways(&[10]));
                campus.network.run_for(ms(below(100) as u64));
                campus.network.set_gateways(gateways(&[10, 20]));
            }
            4..7 => {
                let link = links[below(links.len())];
                campus.network.set_link(link, false);
                down.push(link);
            }
            _ => {
                if let Some(link) = down.pop() {
                    campus.network.set_link(link, true);
                }
            }
        }
        for (id, of) in [(10, 20), (20, 10), (10, 30), (30, 20)] {
            let from = campus.hosts[&id][below(campus.hosts[&id].len())];
            let to = campus.hosts[&of][below(campus.hosts[&of].len())];
            campus.network.stream(from, to, round << 32, 20, ms(1));
            let ip = campus.network.host(to).address.ip;
            let frame = campus.datagram(from, ip, 64);
            campus.send(from, frame);
        }
        campus.network.run_for(ms(below(60) as u64 + 1));
        let crossed = campus.crossed();
        if !crossed.is_empty() {
            return Err(format!("round {round}: frames crossed: {crossed:02x?}"));
        }
    }
    for link in down {
        campus.network.set_link(link, true);
    }
    // Broadcast trees that have changed often wait this long.
    campus.network.run_for(ms(30_000));
    for _ in 0..6 {
        campus.introduce();
        campus.shout();
    }
    let silent = campus.silent(77);
    if !silent.is_empty() {
        return Err(format!("pairs do not talk: {silent:?}"));
    }
    is_adopted(&mut campus, seed)?;
    if campus.network.circled > 0 {
        return Err("a packet went in a circle".to_owned());
    }
    match campus.crossed() {
        crossed if crossed.is_empty() => Ok(()),
        crossed => Err(format!("frames crossed: {crossed:02x?}")),
    }
}

/// A new controller takes over the entries in the switches. It sends the switches nothing, and
/// keeps a record of the routing entries.
fn is_adopted(campus: &mut Campus, seed: u64) -> Result<(), String> {
    const FLOW_MOD: u8 = 14;
    const GROUP_MOD: u8 = 15;
    let is_routed = |cookie| EntryKind::of(cookie) == Some(EntryKind::Routed);
    let count = |campus: &Campus| {
        let switches = || campus.switches.iter();
        let heard = |kind| switches().map(move |s| campus.network.heard(*s, kind));
        let entries = switches().flat_map(|s| campus.network.switch(*s).entries());
        let routed = entries.filter(|entry| is_routed(entry.cookie)).count();
        (heard(FLOW_MOD).chain(heard(GROUP_MOD)).sum::<u64>(), routed)
    };
    let before = count(campus);
    campus.network.kill_controller();
    campus.network.start_controller(seed);
    campus.network.run_for(ms(6000));
    let after = count(campus);
    let known = campus.network.process().controller.routed_count();
    if after != before || known != after.1 {
        return Err(format!(
            "a restart: {before:?} messages and entries that route, then {after:?}; {known} known"
        ));
    }
    let silent = campus.silent(90);
    match silent.is_empty() {
        true => Ok(()),
        false => Err(format!("pairs do not talk after a restart: {silent:?}")),
    }
}

/// The same where nothing has failed, under a conversation that loses no packet.
#[test]
fn a_restart_keeps_entries_that_route() {
    let mut campus = Campus::line(21, 3);
    assert!(campus.silent(1).is_empty());
    let to = campus.hosts[&20][2];
    for from in [0, 1] {
        let from = campus.hosts[&10][from];
        campus
            .network
            .stream(from, to, (from.0 as u64) << 32, 5000, ms(1));
    }
    campus.network.run_for(ms(100));
    assert!(campus.network.process().controller.routed_count() > 10);
    is_adopted(&mut campus, 7).expect("it takes them over");
    assert_eq!(campus.arrivals(to), 10_000);
    // The target moves: no entry leads to its former place.
    campus.network.move_host(to, campus.switches[0], false);
    campus.admit(to, 20);
    campus.network.set_vlans(campus.vlans.clone());
    for _ in 0..6 {
        campus.introduce();
    }
    assert_eq!(campus.silent(91), []);
    assert_eq!(campus.crossed(), []);
}

/// Routing entries that somebody has changed: to the address of another gateway, or of a host other
/// than the one behind their port.
#[test]
fn a_restart_keeps_no_entry_that_routes_wrongly() {
    for field in [Field::EthSrc, Field::EthDst] {
        let mut campus = Campus::line(22, 3);
        assert!(campus.silent(1).is_empty());
        campus.network.kill_controller();
        let elsewhere = address(20, 2).mac.to_u64().into();
        let mut changed = 0;
        for switch in [campus.switches[0], campus.switches[1]] {
            let entries = campus.network.switch(switch).entries();
            let routed = entries.filter(|e| EntryKind::of(e.cookie) == Some(EntryKind::Routed));
            for entry in routed.cloned().collect::<Vec<_>>() {
                let mut instructions = entry.instructions;
                let [Instruction::ApplyActions(actions)] = &mut instructions[..] else {
                    panic!("actions");
                };
                if !matches!(actions.last(), Some(Action::Output { .. })) {
                    continue;
                }
                for action in actions {
                    if let Action::SetField(MatchField::Basic {
                        field: of, value, ..
                    }) = action
                        && *of == field
                    {
                        *value = elsewhere;
                        changed += 1;
                    }
                }
                let wrong = FlowMod {
                    cookie: entry.cookie,
                    idle_timeout: entry.idle_timeout,
                    hard_timeout: entry.hard_timeout,
                    instructions,
                    ..FlowMod::add(entry.priority, entry.r#match, Vec::new())
                };
                campus.network.apply(switch, &Message::FlowMod(wrong));
            }
        }
        assert!(changed > 0);
        campus.network.start_controller(9);
        campus.network.run_for(ms(3000));
        let sets = |action: &Action| {
            matches!(action, Action::SetField(MatchField::Basic { field: of, value, .. })
                if *of == field && *value == elsewhere)
        };
        for switch in [campus.switches[0], campus.switches[1]] {
            let entries = campus.network.switch(switch).entries();
            let left = entries.filter(|e| {
                matches!(&e.instructions[..], [Instruction::ApplyActions(actions)]
                    if actions.iter().any(sets)
                        && matches!(actions.last(), Some(Action::Output { .. })))
            });
            assert_eq!(left.count(), 0, "{field:?}");
        }
        assert_eq!(campus.silent(92), []);
    }
}

#[test]
fn nothing_crosses_unrouted_whatever_fails() {
    let range = std::env::var("GATEWAY_SEEDS").unwrap_or_else(|_| "0..16".to_owned());
    let (from, to) = range.split_once("..").expect("a range of seeds");
    let seeds = from.parse::<u64>().expect("a seed")..to.parse().expect("a seed");
    let wrong: Vec<_> = seeds
        .filter_map(|seed| Some((seed, run(seed).err()?)))
        .collect();
    assert!(
        wrong.is_empty(),
        "{} seeds: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(3)]
    );
}
