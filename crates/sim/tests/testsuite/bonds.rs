//! Bonds: whichever ports of a bond carry packets, the network sees one port with its hosts. No
//! packet arrives twice or returns into the bond, and the failure of a port needs no controller.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use clock::ms;
use control::access::{Access, Acl, Rule};
use control::bond::{Bond, Bonds, Bpdu, Protocol};
use control::controller::{
    Alarm, ControllerConfig, Event, FabricConfig, Location, MulticastConfig,
};
use control::lacp::{Config, Lacp, Output};
use control::qos::flow::Matching;
use control::routing::{GATEWAY_MAC, Gateway, Gateways};
use control::vlan::{PortVlans, VlanId, Vlans};
use openflow::message::{GroupType, PortReason, PortStatus};
use openflow::packet::build::{
    Host as Address, arp_request, ethernet, group_join, icmp_echo_request, tagged, udp,
};
use openflow::packet::lacp;
use openflow::packet::membership::Sender;
use openflow::table::plain_port;
use openflow::text::parse_match;
use openflow::{DatapathId, MacAddr, Message, Version, Xid};
use sim::network::{HostId, Network, NetworkConfig, Part, SwitchId};
use sim::topology;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const GROUP_MAC: MacAddr = MacAddr([1, 0, 0x5e, 1, 2, 3]);
/// The EtherType of broadcasts that are counted.
const MARKED: u16 = 0x1234;
const BPDU: MacAddr = MacAddr([1, 0x80, 0xc2, 0, 0, 0]);

/// A server with several ports at the first of two switches, and hosts at both.
struct World {
    network: Network,
    /// The server's ports: hosts with one address.
    nics: Vec<HostId>,
    near: HostId,
    far: HostId,
    /// The server's end of the bond, and the frames that it has read of each port.
    partner: Option<Lacp>,
    read: Vec<usize>,
    bond: Bond,
}

impl World {
    /// `active`: whether the server sends LACP first; `None`: it has no LACP.
    fn new(protocol: Protocol, active: Option<bool>) -> World {
        World::with(protocol, active, |config| config)
    }

    fn with(
        protocol: Protocol,
        active: Option<bool>,
        change: impl FnOnce(NetworkConfig) -> NetworkConfig,
    ) -> World {
        let controller = ControllerConfig {
            fabric: Some(FabricConfig::default()),
            multicast: Some(MulticastConfig::default()),
            ..ControllerConfig::default()
        };
        let mut network = Network::new(change(controller.into()), 7);
        let topology = topology::line(&mut network, 2);
        let (near, far) = (topology.hosts[0], topology.hosts[1]);
        let nics: Vec<HostId> = (0..2)
            .map(|_| network.add_host(topology.switches[0]))
            .collect();
        let address = network.host(nics[0]).address;
        for nic in &nics {
            network.host_mut(*nic).address = address;
        }
        for host in nics.iter().chain([&near, &far]) {
            network.host_mut(*host).record = true;
        }
        let ports = nics.iter().map(|nic| network.place(*nic));
        let ports: Vec<Location> = ports.collect();
        let bond = Bond {
            name: "server".to_owned(),
            dpid: ports[0].dpid,
            ports: ports.iter().map(|at| at.port).collect(),
            protocol,
            is_fast: true,
        };
        let config = |is_active| Config {
            system: MacAddr([2, 7, 7, 7, 7, 7]),
            key: 9,
            is_active,
            is_fast: true,
        };
        let mut partner = active.map(|active| Lacp::new(config(active), 1..=2));
        if let Some(partner) = &mut partner {
            for port in 1..=2 {
                partner.set_up(network.now(), port, true);
            }
        }
        let mut world = World {
            network,
            nics,
            near,
            far,
            partner,
            read: vec![0; 2],
            bond,
        };
        let bonds = Bonds::new([world.bond.clone()]);
        world.network.set_bonds(bonds, BTreeMap::new());
        world.run(3000);
        world
    }

    fn run(&mut self, time_ms: u64) {
        for _ in 0..time_ms / 10 {
            self.network.run_for(ms(10));
            let now = self.network.now();
            let Some(partner) = &mut self.partner else {
                continue;
            };
            for (n, nic) in self.nics.iter().enumerate() {
                let recorded = &self.network.host(*nic).recorded;
                for frame in &recorded[self.read[n].min(recorded.len())..] {
                    if let Some(pdu) = lacp::read(frame) {
                        partner.handle_pdu(now, n as u16 + 1, &pdu);
                    }
                }
                self.read[n] = recorded.len();
            }
            partner.due(now);
            while let Some(output) = partner.poll_output() {
                if let Output::Send { port, pdu } = output {
                    let nic = self.nics[usize::from(port) - 1];
                    let frame = pdu.frame(self.network.host(nic).address.mac);
                    self.network.inject(nic, frame);
                }
            }
        }
    }

    /// Pings each host from every other. Returns the pairs without an answer.
    fn silent(&mut self, seq: u16) -> Vec<(&'static str, &'static str)> {
        let server = self.nics[0];
        let hosts = [("near", self.near), ("far", self.far), ("server", server)];
        let mut silent = Vec::new();
        for (from_name, from) in hosts {
            for (to_name, to) in hosts.iter().filter(|(name, _)| *name != from_name) {
                let ip = self.network.host(*to).address.ip;
                match from == server {
                    true => self.server_pings(*to, seq),
                    false => self.network.ping(from, *to, seq),
                }
                self.run(300);
                let ends = match from == server {
                    true => self.nics.clone(),
                    false => vec![from],
                };
                let pongs = ends.iter().map(|end| {
                    let pongs = &self.network.host(*end).pongs;
                    pongs.get(&(ip, seq)).copied().unwrap_or(0)
                });
                if pongs.sum::<u32>() != 1 {
                    silent.push((from_name, *to_name));
                }
            }
        }
        silent
    }

    /// Pings from a port of the server, whose ports have no common ARP cache.
    fn server_pings(&mut self, to: HostId, seq: u16) {
        let nic = self.nics[usize::from(seq) % self.nics.len()];
        let ends = [nic, to].map(|host| self.network.host(host).address);
        let frame = icmp_echo_request(ends[0], ends[1], 1, seq, &[0; 8]);
        self.send(nic, &frame);
    }

    fn send(&mut self, nic: HostId, frame: &[u8]) {
        let frame = match self.network.host(nic).vlan {
            Some(vlan) => tagged(frame, vlan, 0),
            None => frame.to_vec(),
        };
        self.network.inject(nic, frame);
    }

    /// Sends numbered datagrams from a port of the server, one a millisecond or so.
    fn server_sends(&mut self, nic: HostId, to: HostId, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let ends = [nic, to].map(|host| self.network.host(host).address);
            let frame = udp(ends[0], ends[1], (4000, 4001), &number.to_be_bytes());
            self.send(nic, &frame);
            self.network.run_for(ms(1));
        }
        self.run(200);
    }

    /// The number of datagrams that the server has received over all of its ports, and of those
    /// that arrived twice.
    fn received(&self) -> (usize, usize) {
        let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
        for nic in &self.nics {
            for (number, count) in &self.network.host(*nic).datagrams {
                *counts.entry(*number).or_default() += count;
            }
        }
        let twice = counts.values().filter(|count| **count > 1);
        (counts.len(), twice.count())
    }

    fn moves(&self) -> usize {
        let events = self.network.events();
        let moves = events.filter(|event| matches!(event, Event::HostMoved { .. }));
        moves.count()
    }

    fn has_alarm(&self, wanted: impl Fn(&Alarm) -> bool) -> bool {
        let mut events = self.network.events();
        events.any(|event| matches!(event, Event::Alarm(alarm) if wanted(alarm)))
    }

    /// The marked frames that a host has received.
    fn marked(&self, host: HostId) -> usize {
        let recorded = self.network.host(host).recorded.iter();
        let marked = recorded.filter(|frame| frame[12..14] == MARKED.to_be_bytes());
        marked.count()
    }

    fn broadcast(&mut self, from: HostId) {
        let mac = self.network.host(from).address.mac;
        let frame = ethernet(mac, MacAddr::BROADCAST, MARKED, &[1; 46]);
        self.network.inject(from, frame);
        self.run(200);
    }
}

#[test]
fn hosts_behind_a_bond_reach_all_others_over_any_port() {
    let cases = [
        (Protocol::Active, Some(true)),
        (Protocol::Active, Some(false)),
        (Protocol::Passive, Some(true)),
        (Protocol::Static, None),
    ];
    for (protocol, active) in cases {
        let mut world = World::new(protocol, active);
        assert_eq!(world.silent(1), [], "{protocol:?}");
        let (near, nics) = (world.near, world.nics.clone());
        for round in 0..5 {
            for nic in &nics {
                world.server_sends(*nic, near, round..round + 1);
            }
        }
        world.network.stream(world.far, nics[0], 100, 200, ms(1));
        world.run(400);
        assert_eq!(world.received(), (200, 0), "{protocol:?}");
        assert_eq!(world.network.host(near).datagrams.len(), 5);
        assert_eq!(world.moves(), 0, "{protocol:?}");
        let mac = world.network.host(nics[0]).address.mac;
        let hosts = world.network.process().controller.hosts();
        let own = hosts.iter().filter(|host| host.mac == mac);
        let places: Vec<Location> = own.map(|host| host.at).collect();
        assert_eq!(places, [world.bond.place()]);
        assert_eq!(world.network.errors().count(), 0, "{protocol:?}");
    }
}

/// Packets of one pair come in over either port, and the switch alone carries them.
#[test]
fn conversations_over_both_ports_are_the_switchs_alone() {
    let mut world = World::new(Protocol::Active, Some(true));
    assert_eq!(world.silent(1), []);
    let (far, nics) = (world.far, world.nics.clone());
    for nic in &nics {
        world.server_sends(*nic, far, 0..1);
    }
    let count = |world: &World| {
        let counters = world.network.process().controller.counters();
        counters.packet_ins - counters.lldp_accepted
    };
    let before = count(&world);
    for (n, nic) in nics.iter().enumerate() {
        let first = 1000 * (n as u64 + 1);
        world.server_sends(*nic, far, first..first + 500);
    }
    assert_eq!(world.network.host(far).arrivals.len(), 2 + 1000);
    let more = count(&world) - before;
    assert!(more <= 6, "{more} packet-ins beside LACP");
}

#[test]
fn a_broadcast_leaves_by_one_port_and_never_comes_back() {
    let mut world = World::new(Protocol::Active, Some(true));
    assert_eq!(world.silent(1), []);
    let (near, far, nics) = (world.near, world.far, world.nics.clone());
    world.broadcast(far);
    let at_server: usize = nics.iter().map(|nic| world.marked(*nic)).sum();
    assert_eq!((world.marked(near), at_server), (1, 1));
    for (n, nic) in nics.iter().enumerate() {
        world.broadcast(*nic);
        let at_server: usize = nics.iter().map(|nic| world.marked(*nic)).sum();
        assert_eq!(at_server, 1, "it came back");
        assert_eq!((world.marked(near), world.marked(far)), (2 + n, 1 + n));
    }
}

#[test]
fn a_port_that_goes_down_costs_a_few_packets() {
    for protocol in [Protocol::Active, Protocol::Static] {
        let active = (protocol == Protocol::Active).then_some(true);
        for failing in 0..2 {
            let mut world = World::new(protocol, active);
            assert_eq!(world.silent(1), []);
            let (far, nics) = (world.far, world.nics.clone());
            world.network.stream(far, nics[0], 0, 1000, ms(1));
            world.run(300);
            let link = world.network.link_of(nics[failing]);
            // The switch itself stops using the failed port.
            world.network.stop(Part::Controller);
            world.network.set_link(link, false);
            world.run(500);
            world.network.cont(Part::Controller);
            if let Some(partner) = &mut world.partner {
                partner.set_up(world.network.now(), failing as u16 + 1, false);
            }
            world.run(1000);
            let (got, twice) = world.received();
            assert!(got >= 998 && twice == 0, "{protocol:?}: {got} of 1000");
            let other = nics[1 - failing];
            world.server_sends(other, far, 0..100);
            assert_eq!(world.network.host(far).datagrams.len(), 100);
            assert_eq!(world.moves(), 0);
            world.network.set_link(link, true);
            if let Some(partner) = &mut world.partner {
                partner.set_up(world.network.now(), failing as u16 + 1, true);
            }
            world.run(3000);
            let views = world.network.process().controller.bonds();
            assert!(views[0].ports.iter().all(|port| port.is_distributing));
            assert_eq!(world.network.errors().count(), 0);
        }
    }
}

/// A cable that carries nothing is found by LACP alone, after its three seconds.
#[test]
fn a_silent_port_is_left_after_three_seconds() {
    for failing in 0..2 {
        let mut world = World::new(Protocol::Active, Some(true));
        assert_eq!(world.silent(1), []);
        let (far, nics) = (world.far, world.nics.clone());
        let link = world.network.link_of(nics[failing]);
        world.network.set_dark(link, true);
        world.run(3500);
        world.network.stream(far, nics[0], 0, 300, ms(1));
        world.run(600);
        assert_eq!(world.received(), (300, 0));
    }
}

#[test]
fn all_ports_down_is_a_bond_that_is_down() {
    let mut world = World::new(Protocol::Active, Some(true));
    assert_eq!(world.silent(1), []);
    let links = world.nics.iter().map(|nic| world.network.link_of(*nic));
    let links: Vec<_> = links.collect();
    for link in &links {
        world.network.set_link(*link, false);
    }
    world.run(200);
    let mac = world.network.host(world.nics[0]).address.mac;
    let hosts = world.network.process().controller.hosts();
    assert!(hosts.iter().all(|host| host.mac != mac), "{hosts:?}");
    for link in links {
        world.network.set_link(link, true);
    }
    world.run(4000);
    assert_eq!(world.silent(2), []);
}

/// Without LACP from the other end, the ports of a bond carry nothing either way.
#[test]
fn ports_that_do_not_agree_are_closed() {
    let mut world = World::new(Protocol::Active, None);
    let (near, nics) = (world.near, world.nics.clone());
    world.broadcast(near);
    for nic in &nics {
        world.broadcast(*nic);
        world.server_sends(*nic, near, 0..50);
    }
    let at_server: usize = nics.iter().map(|nic| world.marked(*nic)).sum();
    assert_eq!((world.marked(near), at_server), (0, 0));
    assert!(world.network.host(near).datagrams.is_empty());
    let mac = world.network.host(nics[0]).address.mac;
    let hosts = world.network.process().controller.hosts();
    assert!(hosts.iter().all(|host| host.mac != mac));
    let before = world.network.process().controller.counters().packet_ins;
    for n in 0..100 {
        let from = world.network.host(nics[0]).address;
        let to = world.network.host(near).address;
        let frame = udp(from, to, (1, 2), &[n; 20]);
        world.network.inject(nics[0], frame);
    }
    world.run(100);
    let more = world.network.process().controller.counters().packet_ins - before;
    assert!(more < 10, "the switch drops them: {more}");
}

/// The second port leads to another device.
#[test]
fn a_port_with_another_partner_stays_closed_and_raises_an_alarm() {
    let mut world = World::new(Protocol::Active, Some(true));
    assert_eq!(world.silent(1), []);
    let mut stranger = Lacp::new(
        Config {
            system: MacAddr([2, 8, 8, 8, 8, 8]),
            key: 1,
            is_active: true,
            is_fast: true,
        },
        [2],
    );
    stranger.set_up(world.network.now(), 2, true);
    while let Some(output) = stranger.poll_output() {
        if let Output::Send { pdu, .. } = output {
            let frame = pdu.frame(MacAddr([2, 8, 8, 8, 8, 8]));
            world.network.inject(world.nics[1], frame);
        }
    }
    world.network.run_for(ms(50));
    let views = world.network.process().controller.bonds();
    let ports = views[0].ports.iter().map(|port| port.is_collecting);
    assert_eq!(ports.collect::<Vec<_>>(), [true, false]);
    let at = world.network.place(world.nics[1]);
    assert!(world.has_alarm(|alarm| matches!(
        alarm,
        Alarm::BondOtherPartner { at: port, .. } if *port == at
    )));
}

fn join(world: &mut World, host: HostId) {
    let address = world.network.host(host).address;
    let sender = Sender {
        mac: address.mac,
        ipv4: address.ip,
        ipv6: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, u16::from(address.mac.0[5])),
    };
    world.network.inject(host, group_join(sender, GROUP.into()));
    world.run(100);
}

fn send_to_group(world: &mut World, host: HostId, count: u64) {
    let from = world.network.host(host).address;
    let to = Address::new(GROUP_MAC, GROUP);
    for number in 0..count {
        // Each datagram is a conversation of its own, so that a bond uses all of its ports.
        let ports = (4000 + number as u16, 4001);
        let frame = udp(from, to, ports, &number.to_be_bytes());
        world.network.inject(host, frame);
        world.run(10);
    }
}

/// The packets of the group that a host has received.
fn of_group(world: &World, host: HostId) -> usize {
    let recorded = world.network.host(host).recorded.iter();
    recorded
        .filter(|frame| frame[..6] == GROUP_MAC.0 && frame[23] == 17)
        .count()
}

#[test]
fn multicast_leaves_a_bond_once_and_never_comes_back() {
    let mut world = World::new(Protocol::Active, Some(true));
    assert_eq!(world.silent(1), []);
    let (near, far, nics) = (world.near, world.far, world.nics.clone());
    join(&mut world, nics[0]);
    join(&mut world, far);
    let at_server = |world: &World| nics.iter().map(|nic| of_group(world, *nic)).sum::<usize>();
    for from in [near, far] {
        let before = at_server(&world);
        send_to_group(&mut world, from, 20);
        assert_eq!(at_server(&world) - before, 20, "from {from:?}");
    }
    let before = (at_server(&world), of_group(&world, far));
    for nic in &nics {
        send_to_group(&mut world, *nic, 20);
    }
    let after = (at_server(&world), of_group(&world, far));
    assert_eq!((after.0 - before.0, after.1 - before.1), (0, 40));
    assert_eq!(world.network.errors().count(), 0);
}

#[test]
fn a_bond_is_a_member_of_the_vlans_of_its_first_port() {
    let mut world = World::new(Protocol::Active, Some(true));
    let vlan = VlanId::new(10).expect("an id");
    let trunk = PortVlans::Trunk {
        tagged: [vlan].into(),
        native: None,
    };
    let places = [world.near, world.far].map(|host| world.network.place(host));
    let mut ports: BTreeMap<Location, PortVlans> =
        places.map(|at| (at, PortVlans::Access(vlan))).into();
    ports.insert(world.bond.place(), trunk);
    for nic in world.nics.clone() {
        world.network.host_mut(nic).vlan = Some(10);
    }
    let names = BTreeMap::new();
    world.network.set_vlans(Vlans { names, ports });
    world.run(500);
    assert_eq!(world.silent(1), []);
    let (near, nics) = (world.near, world.nics.clone());
    for nic in &nics {
        world.server_sends(*nic, near, 7..27);
    }
    world.network.stream(near, nics[0], 0, 50, ms(1));
    world.run(200);
    assert_eq!(world.received(), (50, 0));
    assert_eq!(world.network.host(near).datagrams.len(), 20);
    // A packet without a tag belongs to no VLAN there.
    let frame = ethernet(
        world.network.host(nics[1]).address.mac,
        MacAddr::BROADCAST,
        MARKED,
        &[1; 46],
    );
    world.network.inject(nics[1], frame.clone());
    world.run(100);
    assert_eq!(world.marked(near), 0);
    world.network.inject(nics[1], tagged(&frame, 10, 0));
    world.run(100);
    assert_eq!(world.marked(near), 1);
    assert_eq!(world.moves(), 0);
    assert_eq!(world.network.errors().count(), 0);
}

/// A list at the place of a bond holds for packets of all of its ports, and LACP passes it.
#[test]
fn a_list_of_a_bond_holds_at_all_of_its_ports() {
    let mut world = World::new(Protocol::Active, Some(true));
    let rule = |text: &str, allows| Rule {
        name: String::new(),
        matching: Matching::from_match(&parse_match(text).unwrap()).unwrap(),
        allows,
        mirror: None,
    };
    let access = Access {
        acls: vec![Acl {
            name: "no datagrams".to_owned(),
            rules: vec![rule("udp,tp_dst=4001", false), rule("", true)],
        }],
        ports: [(world.bond.place(), vec![0])].into(),
        ..Access::default()
    };
    world.network.set_access(access).expect("it can");
    world.run(5000);
    assert_eq!(world.silent(1), []);
    let (near, nics) = (world.near, world.nics.clone());
    for nic in nics {
        world.server_sends(nic, near, 0..5);
    }
    assert_eq!(world.network.host(near).datagrams.len(), 0);
    world.network.set_access(Access::default()).expect("it can");
    world.run(5000);
    world.server_sends(world.nics[1], near, 5..10);
    assert_eq!(world.network.host(near).datagrams.len(), 5);
    assert_eq!(world.network.errors().count(), 0);
}

/// The statement of a bond is removed and added again. Meanwhile its ports are single ones.
#[test]
fn bonds_are_read_again() {
    let mut world = World::new(Protocol::Static, None);
    assert_eq!(world.silent(1), []);
    world.network.set_bonds(Bonds::default(), BTreeMap::new());
    world.run(2500);
    let (far, nics) = (world.far, world.nics.clone());
    world.broadcast(far);
    let at_server: usize = nics.iter().map(|nic| world.marked(*nic)).sum();
    assert_eq!(at_server, 2, "each port by itself");
    let bonds = Bonds::new([world.bond.clone()]);
    world.network.set_bonds(bonds, BTreeMap::new());
    world.run(500);
    assert_eq!(world.silent(2), []);
    world.broadcast(far);
    let at_server: usize = nics.iter().map(|nic| world.marked(*nic)).sum();
    assert_eq!(at_server, 3);
    assert_eq!(world.network.errors().count(), 0);
}

#[test]
fn a_bond_outlives_a_connection_and_a_controller() {
    for protocol in [Protocol::Static, Protocol::Active] {
        let mut world = World::new(protocol, (protocol == Protocol::Active).then_some(true));
        assert_eq!(world.silent(1), []);
        let (far, nics) = (world.far, world.nics.clone());
        world.network.stream(far, nics[0], 0, 1000, ms(1));
        world.run(200);
        world.network.disconnect(SwitchId(0));
        world.run(1500);
        assert_eq!(world.received(), (1000, 0), "{protocol:?}");
        world.network.kill_controller();
        world.run(500);
        world.network.start_controller(9);
        world.run(6000);
        assert_eq!(world.silent(2), [], "{protocol:?}");
        assert_eq!(world.network.errors().count(), 0, "{protocol:?}");
    }
}

/// A server with a bond in a VLAN, or outside of all, whose hosts all know each other.
fn settled(protocol: Protocol, active: Option<bool>, in_vlan: bool) -> World {
    let mut world = World::new(protocol, active);
    if in_vlan {
        let vlan = VlanId::new(10).expect("an id");
        let at = [
            world.network.place(world.near),
            world.network.place(world.far),
            world.bond.place(),
        ];
        let ports = at.map(|at| (at, PortVlans::Access(vlan))).into();
        let names = BTreeMap::new();
        world.network.set_vlans(Vlans { names, ports });
        world.run(1000);
    }
    assert_eq!(world.silent(1), []);
    assert_eq!(world.silent(2), [], "by the server's other port");
    world.run(1000);
    world
}

/// The number of flow-mods and group-mods that each switch has received.
fn changes(world: &World) -> [u64; 2] {
    const KINDS: [u8; 2] = [14, 15];
    let switches = [SwitchId(0), SwitchId(1)];
    switches.map(|at| KINDS.map(|kind| world.network.heard(at, kind)).iter().sum())
}

/// The entries of both switches, with their cookies.
fn held(world: &World) -> Vec<String> {
    let switches = [SwitchId(0), SwitchId(1)];
    let entries = switches.into_iter().flat_map(|at| {
        let entries = world.network.switch(at).entries();
        entries.map(move |e| {
            let (cookie, table, priority) = (e.cookie.0, e.table_id, e.priority);
            format!(
                "{at:?} {cookie:x} {table:?} {priority} {:?} {:?}",
                e.r#match, e.instructions
            )
        })
    });
    entries.collect()
}

/// A restart changes nothing in the switches, and no packet of a conversation is lost.
#[test]
fn a_restart_keeps_a_bond_as_it_is() {
    let lacp = Some(true);
    for (protocol, active) in [
        (Protocol::Active, lacp),
        (Protocol::Active, Some(false)),
        (Protocol::Passive, lacp),
        (Protocol::Static, None),
    ] {
        for in_vlan in [false, true] {
            let case = format!("{protocol:?}, in a VLAN: {in_vlan}");
            let mut world = settled(protocol, active, in_vlan);
            let (far, nics) = (world.far, world.nics.clone());
            world.network.stream(far, nics[0], 0, 5000, ms(1));
            world.network.stream(nics[1], far, 10_000, 5000, ms(1));
            world.run(200);
            let (before, entries) = (changes(&world), held(&world));
            world.network.kill_controller();
            world.run(500);
            world.network.start_controller(9);
            world.run(6000);
            assert_eq!(held(&world), entries, "{case}");
            assert_eq!(changes(&world), before, "{case}");
            assert_eq!(world.received(), (5000, 0), "{case}");
            assert_eq!(world.network.host(far).arrivals.len(), 5000, "{case}");
            let views = world.network.process().controller.bonds();
            let mut ports = views[0].ports.iter();
            assert!(ports.all(|port| port.is_distributing), "{case}");
            let counters = world.network.process().controller.counters();
            assert_eq!(
                [counters.lacp_refused, counters.fabric_parts_wrong],
                [0, 0],
                "{case}"
            );
            assert_eq!(world.silent(3), [], "{case}");
        }
    }
}

/// A bond found in a switch is believed only as long as LACP would believe it.
#[test]
fn a_partner_that_leaves_while_nobody_controls_is_left_after_its_time() {
    let mut world = settled(Protocol::Active, Some(true), false);
    world.network.kill_controller();
    world.partner = None;
    world.run(500);
    world.network.start_controller(9);
    world.run(2500);
    let open = |world: &World| {
        let views = world.network.process().controller.bonds();
        let open = views[0].ports.iter().filter(|port| port.is_collecting);
        open.count()
    };
    assert_eq!(open(&world), 2, "not yet");
    world.run(1500);
    assert_eq!(open(&world), 0);
    let (near, nics) = (world.near, world.nics.clone());
    for nic in nics {
        world.server_sends(nic, near, 0..5);
    }
    assert!(world.network.host(near).datagrams.is_empty());
}

/// A port goes down while no controller runs. The other ports carry packets all the time, and the
/// group is mended in place.
#[test]
fn a_port_that_is_lost_while_nobody_controls_costs_nothing_more() {
    for failing in 0..2 {
        let mut world = settled(Protocol::Active, Some(true), false);
        let (far, nics) = (world.far, world.nics.clone());
        world.network.kill_controller();
        let link = world.network.link_of(nics[failing]);
        world.network.set_link(link, false);
        let now = world.network.now();
        let partner = world.partner.as_mut().expect("LACP");
        partner.set_up(now, failing as u16 + 1, false);
        world.run(200);
        world.network.stream(far, nics[0], 0, 5000, ms(1));
        world.run(200);
        world.network.start_controller(9);
        world.run(6000);
        assert_eq!(world.received(), (5000, 0), "port {failing}");
        assert_eq!(world.network.errors().count(), 0);
    }
}

/// A cable between two bonds of ours is a loop, whichever switches they are at.
#[test]
fn a_bond_that_leads_to_another_of_ours_carries_nothing() {
    let mut world = World::new(Protocol::Active, None);
    let heard: Vec<Vec<u8>> = world
        .nics
        .iter()
        .map(|nic| {
            let recorded = &world.network.host(*nic).recorded;
            recorded
                .iter()
                .rfind(|frame| lacp::is_lacp(frame))
                .expect("LACP")
                .clone()
        })
        .collect();
    let other = Bond {
        name: "other".to_owned(),
        dpid: world.network.place(world.far).dpid,
        ports: [world.network.place(world.far).port].into(),
        ..world.bond.clone()
    };
    let bonds = Bonds::new([world.bond.clone(), other.clone()]);
    world.network.set_bonds(bonds, BTreeMap::new());
    world.run(1000);
    let far = world.far;
    world.network.inject(far, heard[0].clone());
    world.network.run_for(ms(50));
    assert!(world.has_alarm(|alarm| matches!(
        alarm,
        Alarm::BondLoop { at } if *at == other.place()
    )));
}

#[test]
fn a_switch_without_a_fabric_has_no_bonds() {
    let world = World::with(Protocol::Static, None, |config| NetworkConfig {
        version: Version::V10,
        ..config
    });
    assert!(world.has_alarm(|alarm| matches!(alarm, Alarm::BondUnsupported { .. })));
}

fn bpdu(world: &mut World, from: HostId) {
    let mac = world.network.host(from).address.mac;
    let frame = ethernet(mac, BPDU, 39, &[0x42; 46]);
    world.network.inject(from, frame);
    world.run(100);
}

fn bpdus(world: &World, host: HostId) -> usize {
    let recorded = world.network.host(host).recorded.iter();
    recorded.filter(|frame| frame[..6] == BPDU.0).count()
}

#[test]
fn bpdus_are_dropped_passed_or_close_their_port() {
    let mut world = World::new(Protocol::Static, None);
    assert_eq!(world.silent(1), []);
    let (near, far, server) = (world.near, world.far, world.nics[0]);
    let bonds = Bonds::new([world.bond.clone()]);
    let places = [near, far].map(|host| world.network.place(host));
    bpdu(&mut world, near);
    assert_eq!((bpdus(&world, far), bpdus(&world, server)), (0, 0));

    let pass = places.map(|at| (at, Bpdu::Pass)).into();
    world.network.set_bonds(bonds.clone(), pass);
    bpdu(&mut world, near);
    assert_eq!((bpdus(&world, far), bpdus(&world, server)), (1, 0));
    assert_eq!(bpdus(&world, near), 0, "it does not come back");

    let guard: BTreeMap<Location, Bpdu> = [(places[0], Bpdu::Guard)].into();
    world.network.set_bonds(bonds, guard);
    assert_eq!(world.silent(2), []);
    bpdu(&mut world, near);
    assert!(world.has_alarm(|alarm| matches!(
        alarm,
        Alarm::BpduGuard { at } if *at == places[0]
    )));
    world.broadcast(near);
    world.broadcast(far);
    assert_eq!(
        (world.marked(near), world.marked(far)),
        (0, 0),
        "closed both ways"
    );
    let mac = world.network.host(near).address.mac;
    let hosts = world.network.process().controller.hosts();
    assert!(hosts.iter().all(|host| host.mac != mac));
    let before = world.network.process().controller.counters().packet_ins;
    world.network.stream(near, far, 0, 100, ms(1));
    world.run(200);
    let more = world.network.process().controller.counters().packet_ins - before;
    assert!(more < 10, "the switch drops them: {more}");
    assert!(world.network.host(far).datagrams.is_empty());

    let link = world.network.link_of(near);
    world.network.set_link(link, false);
    world.run(100);
    world.network.set_link(link, true);
    world.run(2500);
    assert_eq!(world.silent(3), [], "it was down");

    bpdu(&mut world, near);
    world.run(290_000);
    world.broadcast(near);
    assert_eq!(world.marked(far), 0);
    world.run(12_000);
    assert_eq!(world.silent(4), [], "five minutes are over");
    assert_eq!(world.network.errors().count(), 0);
}

/// Both bonds of a switch that takes no select groups use one port at a time, and the switch stays
/// in the fabric, which it names once.
#[test]
fn bonds_of_a_switch_that_refuses_to_share_use_one_port_each() {
    let controller = ControllerConfig {
        fabric: Some(FabricConfig::default()),
        ..ControllerConfig::default()
    };
    let mut network = Network::new(controller.into(), 3);
    let switch = network.add_switch_with(DatapathId(1), |options| {
        options.group_types &= !(1 << GroupType::Select as u32);
    });
    let near = network.add_host(switch);
    let mut servers = Vec::new();
    let mut bonds = Vec::new();
    for name in ["a", "b"] {
        let nics = [0, 1].map(|_| network.add_host(switch));
        let address = network.host(nics[0]).address;
        network.host_mut(nics[1]).address = address;
        let ports = nics.map(|nic| network.place(nic).port).into();
        servers.push(nics);
        bonds.push(Bond {
            name: name.to_owned(),
            dpid: DatapathId(1),
            ports,
            protocol: Protocol::Static,
            is_fast: true,
        });
    }
    network.set_bonds(Bonds::new(bonds), BTreeMap::new());
    network.run_for(ms(3000));
    let groups: Vec<GroupType> = network
        .switch(switch)
        .groups()
        .map(|it| it.group_type)
        .collect();
    assert!(
        groups.len() >= 2 && !groups.contains(&GroupType::Select),
        "{groups:?}"
    );
    for nics in &servers {
        let ends = [nics[0], near].map(|host| network.host(host).address);
        let frame = icmp_echo_request(ends[0], ends[1], 1, 1, &[0; 8]);
        network.inject(nics[0], frame);
        network.run_for(ms(200));
        network.ping(near, nics[0], 2);
        network.run_for(ms(200));
        let ip = network.host(nics[0]).address.ip;
        assert_eq!(network.host(near).pongs.get(&(ip, 2)), Some(&1));
    }
    let alarms = network
        .events()
        .filter(|event| matches!(event, Event::Alarm(_)));
    let alarms: Vec<&Event> = alarms.collect();
    let [Event::Alarm(Alarm::BondUnshared { .. })] = alarms[..] else {
        panic!("{alarms:?}");
    };
}

/// The place of a bond is its lowest port, whether or not its switch still has that one.
#[test]
fn a_bond_whose_first_port_is_deleted_gets_broadcasts() {
    let mut world = World::new(Protocol::Static, None);
    assert_eq!(world.silent(1), []);
    let link = world.network.link_of(world.nics[0]);
    world.network.set_link(link, false);
    let deleted = Message::PortStatus(PortStatus {
        reason: PortReason::DELETE,
        port: plain_port(world.bond.place().port),
    });
    world.network.say(SwitchId(0), Xid(0), &deleted);
    world.run(1500);
    world.broadcast(world.far);
    assert_eq!(world.marked(world.nics[1]), 1);
}

/// Nothing is learned from packets that waited at a port which a guard has closed meanwhile.
#[test]
fn packets_that_wait_at_a_port_that_a_guard_closes_are_not_handled() {
    let mut world = World::new(Protocol::Static, None);
    let at = world.network.place(world.near);
    let guard = [(at, Bpdu::Guard)].into();
    let bonds = Bonds::new([world.bond.clone()]);
    world.network.set_bonds(bonds, guard);
    let link = world.network.link_of(world.near);
    world.network.set_link(link, false);
    world.run(100);
    world.network.set_link(link, true);
    world.run(20);
    let mac = MacAddr([2, 9, 9, 9, 9, 9]);
    let frame = ethernet(mac, MacAddr::BROADCAST, MARKED, &[1; 46]);
    world.network.inject(world.near, frame);
    world.run(20);
    let near = world.near;
    bpdu(&mut world, near);
    world.run(3000);
    let hosts = world.network.process().controller.hosts();
    assert!(hosts.iter().all(|host| host.mac != mac), "{hosts:?}");
    assert_eq!(world.marked(world.far), 0);
}

/// A bond's switch routes its packets, whichever port they arrive at, also back into the bond.
#[test]
fn a_bond_is_routed_by_its_switch() {
    let mut world = World::new(Protocol::Static, None);
    let [ten, twenty] = [10, 20].map(|id| VlanId::new(id).expect("an id"));
    let trunk = PortVlans::Trunk {
        tagged: [ten, twenty].into(),
        native: None,
    };
    let mut ports: BTreeMap<Location, PortVlans> = BTreeMap::new();
    ports.insert(world.network.place(world.far), PortVlans::Access(twenty));
    ports.insert(world.bond.place(), trunk);
    let names = BTreeMap::new();
    world.network.set_vlans(Vlans { names, ports });
    let gateway = |text: &str| Gateway {
        mac: GATEWAY_MAC,
        subnets: vec![text.parse().expect("a subnet")],
    };
    world.network.set_gateways(Gateways {
        vlans: [
            (ten, gateway("10.1.0.254/16")),
            (twenty, gateway("10.2.0.254/16")),
        ]
        .into(),
        ..Gateways::default()
    });
    let address = |n: u8, vlan: u8| {
        Address::new(
            MacAddr([2, 0, 0, 8, vlan, n]),
            Ipv4Addr::new(10, vlan, 0, n),
        )
    };
    let far = address(1, 2);
    world.network.host_mut(world.far).address = far;
    let (server, other) = (address(2, 1), address(3, 2));
    world.run(1000);
    let asks = |own: Address, vlan: u8| arp_request(own, Ipv4Addr::new(10, vlan, 0, 254));
    world.network.inject(world.far, asks(far, 2));
    world
        .network
        .inject(world.nics[0], tagged(&asks(server, 1), 10, 0));
    world
        .network
        .inject(world.nics[1], tagged(&asks(other, 2), 20, 0));
    world.run(500);
    let count = |world: &World| {
        let counters = world.network.process().controller.counters();
        counters.packet_ins - counters.lldp_accepted
    };
    for (to, n) in [(far, 0u64), (other, 1)] {
        let send = |world: &mut World, number: u64| {
            let gateway = Address {
                mac: GATEWAY_MAC,
                ..to
            };
            let frame = udp(server, gateway, (1, 2), &number.to_be_bytes());
            let nic = world.nics[number as usize % 2];
            world.network.inject(nic, tagged(&frame, 10, 0));
            world.run(20);
        };
        (0..2).for_each(|number| send(&mut world, 1000 * n + number));
        let before = count(&world);
        for host in world.nics.iter().chain([&world.far]) {
            world.network.host_mut(*host).recorded.clear();
        }
        world.read.fill(0);
        (2..52).for_each(|number| send(&mut world, 1000 * n + number));
        let more = count(&world) - before;
        assert!(more < 5, "{more} came up");
        let ends = world.nics.iter().chain([&world.far]);
        let arrived = ends.flat_map(|host| &world.network.host(*host).recorded);
        let arrived = arrived.filter(|frame| frame[..6] == to.mac.0);
        assert_eq!(arrived.count(), 50, "to {to:?}");
    }
    assert_eq!(world.network.errors().count(), 0);
}
