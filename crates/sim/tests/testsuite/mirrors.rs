//! Mirrors: the frames at the port of a mirror are those of the mirrored ports, one copy each,
//! whatever else the network does.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use clock::{Duration, ms};
use control::Location;
use control::access::{Access, Acl, Rule};
use control::bond::{Bond, Bonds, Protocol};
use control::controller::{Alarm, ControllerConfig, Event, FabricConfig, MulticastConfig};
use control::mirror::{Direction, Mirror, Mirrors};
use control::qos::flow::Matching;
use control::routing::{GATEWAY_MAC, Gateway, Gateways};
use control::vlan::{PortVlans, VlanId, Vlans};
use openflow::packet::build::{Host as Address, ethernet, group_join, tagged, udp};
use openflow::packet::membership::Sender;
use openflow::text::parse_match;
use openflow::{MacAddr, PortNo};
use sim::network::{HostId, LinkId, Network, SwitchId};
use sim::topology;

const DIRECTIONS: [Direction; 3] = [Direction::Both, Direction::In, Direction::Out];
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const GROUP_MAC: MacAddr = MacAddr([1, 0, 0x5e, 1, 2, 3]);
/// The EtherType of packets that no rule is about.
const MARKED: u16 = 0x1234;
const FLOW_MOD: u8 = 14;
const MULTIPART_REQUEST: u8 = 18;

/// Two or more switches in a ring or line with a host each. The first has three more: `seen` is
/// mirrored, `other` is not, and `probe` gets the copies.
struct World {
    network: Network,
    switches: Vec<SwitchId>,
    cables: Vec<LinkId>,
    near: HostId,
    far: HostId,
    seen: HostId,
    other: HostId,
    probe: HostId,
    mirrors: Mirrors,
    seq: u16,
}

impl World {
    fn new(switches: usize) -> World {
        World::with(switches, |_| {})
    }

    fn with(switches: usize, change: impl FnOnce(&mut ControllerConfig)) -> World {
        let mut controller = ControllerConfig {
            fabric: Some(FabricConfig::default()),
            multicast: Some(MulticastConfig::default()),
            ..ControllerConfig::default()
        };
        change(&mut controller);
        let mut network = Network::new(controller.into(), 7);
        let topology = match switches {
            2 => topology::line(&mut network, switches),
            _ => topology::ring(&mut network, switches),
        };
        let first = topology.switches[0];
        let mut add = || network.add_host(first);
        let (seen, other, probe) = (add(), add(), add());
        let mut world = World {
            network,
            switches: topology.switches,
            cables: topology.links,
            near: topology.hosts[0],
            far: topology.hosts[1],
            seen,
            other,
            probe,
            mirrors: Mirrors::default(),
            seq: 0,
        };
        world.run(2500);
        world
    }

    fn run(&mut self, time_ms: u64) {
        self.network.run_for(ms(time_ms));
    }

    fn mirror(&self, from: &[Location], direction: Direction, to: HostId) -> Mirror {
        let to = self.network.place(to);
        Mirror {
            name: "m".to_owned(),
            dpid: to.dpid,
            from: from.iter().map(|at| at.port).collect(),
            direction,
            to: to.port,
        }
    }

    /// Uses a mirror of these ports, and listens from then on.
    fn set(&mut self, from: &[Location], direction: Direction) {
        let mirror = self.mirror(from, direction, self.probe);
        self.set_all([mirror]);
    }

    fn set_all(&mut self, all: impl IntoIterator<Item = Mirror>) {
        self.mirrors = Mirrors::new(all);
        self.network.set_mirrors(self.mirrors.clone());
        self.run(1500);
        self.listen();
    }

    fn listen(&mut self) {
        // Then no frame of a stream is in flight.
        self.network.run_for(Duration::from_micros(50_500));
        for at in self.network.hosts().collect::<Vec<_>>() {
            self.network.tap(self.network.link_of(at));
        }
        for cable in self.cables.clone() {
            self.network.tap(cable);
        }
    }

    /// The frames of a port, in and out.
    fn frames(&self, at: Location) -> [Vec<bytes::Bytes>; 2] {
        let of_hosts = self.network.hosts().map(|host| self.network.link_of(host));
        let mut all = of_hosts.chain(self.cables.iter().copied());
        let own = all.find_map(|link| {
            let frames = self.network.tapped(link, at);
            let is_there = self.network.link_ends(link).contains(&at);
            is_there.then_some(frames)
        });
        own.expect("a tapped port")
    }

    /// Checks that the port of each mirror has had the frames of its ports since `listen`, and no
    /// other. Returns the number of frames.
    fn check(&mut self, when: &str) -> usize {
        self.run(300);
        let bonds = self.network.process().controller.bonds();
        let bonds = Bonds::new(bonds.into_iter().map(|view| view.bond));
        let mut wanted: BTreeMap<Location, Vec<bytes::Bytes>> = BTreeMap::new();
        for mirror in self.mirrors.of_ports(&bonds).iter() {
            let of_target = wanted.entry(mirror.target()).or_default();
            for port in &mirror.from {
                let dpid = mirror.dpid;
                let [ins, outs] = self.frames(Location { dpid, port: *port });
                let both = mirror.direction == Direction::Both;
                of_target.extend(
                    ins.into_iter()
                        .filter(|_| both || mirror.direction == Direction::In),
                );
                of_target.extend(
                    outs.into_iter()
                        .filter(|_| both || mirror.direction == Direction::Out),
                );
            }
        }
        let mut count = 0;
        for (target, mut wanted) in wanted {
            let [_, mut found] = self.frames(target);
            wanted.sort();
            found.sort();
            let surplus = difference(&found, &wanted);
            let missing = difference(&wanted, &found);
            assert_eq!(
                missing,
                Vec::<String>::new(),
                "{when}: missing of {}",
                wanted.len()
            );
            assert_eq!(
                surplus,
                Vec::<String>::new(),
                "{when}: too many of {}",
                found.len()
            );
            count += found.len();
        }
        let errors: Vec<_> = self.network.errors().collect();
        assert!(errors.is_empty(), "{when}: {errors:?}");
        count
    }

    fn pings(&mut self, hosts: &[HostId]) {
        for from in hosts {
            for to in hosts.iter().filter(|to| *to != from) {
                self.seq += 1;
                self.network.ping(*from, *to, self.seq);
                self.run(60);
                let ip = self.network.host(*to).address.ip;
                let pongs = &self.network.host(*from).pongs;
                assert_eq!(pongs.get(&(ip, self.seq)), Some(&1), "{from:?} to {to:?}");
            }
        }
    }

    fn hosts(&self) -> [HostId; 4] {
        [self.near, self.far, self.seen, self.other]
    }

    /// Sends packets of all kinds, from and to all hosts.
    fn talk(&mut self) {
        let hosts = self.hosts();
        for _ in 0..2 {
            self.pings(&hosts);
        }
        for host in hosts {
            let mac = self.network.host(host).address.mac;
            let to_all = ethernet(mac, MacAddr::BROADCAST, MARKED, &[1; 46]);
            let unknown = ethernet(mac, MacAddr([2, 9, 9, 9, 9, 9]), MARKED, &[2; 46]);
            let reserved = ethernet(mac, MacAddr([1, 0x80, 0xc2, 0, 0, 0]), MARKED, &[3; 46]);
            for frame in [to_all, unknown, reserved] {
                self.network.inject(host, frame);
                self.run(20);
            }
        }
        self.run(100);
    }

    fn knows(&self, host: HostId) -> bool {
        let mac = self.network.host(host).address.mac;
        let hosts = self.network.process().controller.hosts();
        hosts.iter().any(|host| host.mac == mac)
    }

    fn place(&self, host: HostId) -> Location {
        self.network.place(host)
    }
}

/// The frames of one list that the other lacks, in short.
fn difference(one: &[bytes::Bytes], other: &[bytes::Bytes]) -> Vec<String> {
    let mut left: BTreeMap<&[u8], usize> = BTreeMap::new();
    for frame in other {
        *left.entry(frame).or_default() += 1;
    }
    let lacks = one.iter().filter(|frame| match left.get_mut(&frame[..]) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    });
    lacks
        .map(|frame| format!("{:02x?}", &frame[..frame.len().min(48)]))
        .collect()
}

#[test]
fn the_frames_of_a_port_are_copied_in_each_direction() {
    for direction in DIRECTIONS {
        let mut world = World::new(2);
        world.talk();
        world.set(&[world.place(world.seen)], direction);
        world.talk();
        let count = world.check(&format!("{direction:?}"));
        let least = match direction {
            Direction::Both => 30,
            Direction::In | Direction::Out => 12,
        };
        assert!(count >= least, "{direction:?}: {count}");
    }
}

/// Frames between two mirrored ports are copied twice: as they come in and as they go out.
#[test]
fn several_ports_and_several_mirrors_go_together() {
    let mut world = World::new(2);
    let second = world.network.add_host(world.switches[0]);
    let ports = [world.place(world.seen), world.place(world.other)];
    let one = world.mirror(&ports, Direction::Both, world.probe);
    let mut two = world.mirror(&ports[..1], Direction::Out, second);
    two.name = "n".to_owned();
    let mut three = world.mirror(&[world.place(world.near)], Direction::In, second);
    three.name = "o".to_owned();
    world.set_all([one, two, three]);
    world.talk();
    assert!(world.check("all") > 60);
}

#[test]
fn nothing_is_learned_at_the_port_of_a_mirror_and_nothing_passes() {
    for direction in DIRECTIONS {
        let mut world = World::new(2);
        let probe = world.probe;
        world.pings(&[world.near, probe]);
        assert!(world.knows(probe));
        world.set(&[world.place(world.seen)], direction);
        assert!(!world.knows(probe), "it has left with the mirror");
        let mac = world.network.host(probe).address.mac;
        let at_hosts = |world: &World| -> usize {
            let hosts = world
                .hosts()
                .map(|host| world.frames(world.place(host))[1].clone());
            let own = hosts.iter().flatten().filter(|frame| frame[6..12] == mac.0);
            own.count()
        };
        for host in world.hosts() {
            world.network.ping(probe, host, 999);
            world.network.ping(host, probe, 999);
            world.run(100);
        }
        let frame = ethernet(mac, MacAddr::BROADCAST, MARKED, &[1; 46]);
        world.network.inject(probe, frame);
        world.run(100);
        assert!(!world.knows(probe), "{direction:?}");
        assert_eq!(at_hosts(&world), 0, "{direction:?}");
        world.check("with a host that sends");
        world.set_all([]);
        world.run(2000);
        world.pings(&[world.near, probe, world.seen]);
        assert!(world.knows(probe), "it is an edge port again");
    }
}

/// Existing entries gain and lose copies, and no packet is lost or arrives twice.
#[test]
fn a_reload_changes_copies_and_nothing_else() {
    let mut world = World::new(3);
    let at = [world.place(world.seen), world.place(world.other)];
    let cable = world.network.link_ends(world.cables[0])[0];
    world.pings(&world.hosts());
    let second = world.network.add_host(world.switches[0]);
    world.run(2500);
    let one = world.mirror(&at[..1], Direction::Both, world.probe);
    let steps = [
        (vec![one.clone()], "one"),
        (vec![world.mirror(&at, Direction::Out, world.probe)], "out"),
        (
            vec![world.mirror(&at, Direction::Both, second)],
            "to another",
        ),
        (
            vec![world.mirror(&[cable], Direction::Both, second)],
            "a cable",
        ),
        (vec![world.mirror(&at[1..], Direction::In, second)], "in"),
        (vec![], "none"),
        (vec![one], "one again"),
    ];
    let (far, seen, near, other) = (world.far, world.seen, world.near, world.other);
    let mut first = 0;
    for (mirrors, when) in steps {
        let streams = [(far, seen), (seen, far), (near, other), (other, near)];
        for (n, (from, to)) in streams.iter().enumerate() {
            let number = first + 10_000 * (n as u64 + 1);
            world.network.stream(*from, *to, number, 800, ms(1));
        }
        world.run(300);
        let asked = |world: &World| world.network.heard(world.switches[0], MULTIPART_REQUEST);
        let before = asked(&world);
        let copies = if mirrors.is_empty() { 0 } else { 200 };
        world.mirrors = Mirrors::new(mirrors);
        world.network.set_mirrors(world.mirrors.clone());
        world.run(5);
        assert!(
            asked(&world) <= before + 3,
            "{when}: it did not connect again"
        );
        world.listen();
        world.run(600);
        assert!(world.check(when) >= copies, "{when}");
        for (n, (_, to)) in streams.iter().enumerate() {
            let number = first + 10_000 * (n as u64 + 1);
            let got = &world.network.host(*to).datagrams;
            let once = (number..number + 800).filter(|n| got.get(n) == Some(&1));
            assert_eq!(once.count(), 800, "{when}: stream {n}");
        }
        first += 100_000;
    }
    let disturbing = |event: &&Event| {
        let is_alarm = matches!(event, Event::Alarm(Alarm::MirrorUnsupported { .. }));
        is_alarm || matches!(event, Event::SwitchDown { .. })
    };
    assert_eq!(world.network.events().find(disturbing), None);
}

/// Switches continue to copy without a controller, and the next controller changes nothing about
/// it.
#[test]
fn copies_go_on_through_a_restart_of_the_controller() {
    for direction in DIRECTIONS {
        let mut world = World::new(3);
        let cable = world.network.link_ends(world.cables[0])[0];
        let from = [world.place(world.seen), cable];
        world.set(&from, direction);
        world.pings(&world.hosts());
        let (far, seen) = (world.far, world.seen);
        world.network.stream(far, seen, 0, 4000, ms(1));
        world.network.stream(seen, far, 10_000, 4000, ms(1));
        world.run(500);
        world.network.kill_controller();
        world.run(300);
        world.network.start_controller(99);
        world.run(4000);
        assert!(world.check(&format!("{direction:?}")) > 3000);
        for (host, first) in [(seen, 0), (far, 10_000)] {
            let got = &world.network.host(host).datagrams;
            let once = (first..first + 4000).filter(|n| got.get(n) == Some(&1));
            assert_eq!(once.count(), 4000);
        }
        let reconciled = world.network.events().filter_map(|event| match event {
            Event::Reconciled { added, deleted, .. } => Some(added + deleted),
            _ => None,
        });
        let last: Vec<usize> = reconciled.collect();
        assert_eq!(last[last.len() - 3..], [0; 3], "{last:?}");
        world.talk();
        world.check("after the restart");
    }
}

/// A controller with other mirrors finds those of the last one.
#[test]
fn a_restart_with_other_mirrors_takes_them_over() {
    for (before, after) in [(true, false), (false, true), (true, true)] {
        let mut world = World::new(3);
        let cable = world.network.link_ends(world.cables[0])[0];
        let second = world.network.add_host(world.switches[0]);
        world.run(2500);
        let seen = world.place(world.seen);
        let some = |world: &World, is_any: bool, to: HostId| {
            let all = is_any.then(|| world.mirror(&[seen, cable], Direction::Both, to));
            Mirrors::new(all)
        };
        let mirrors = some(&world, before, world.probe);
        world.network.set_mirrors(mirrors);
        world.run(1500);
        world.talk();
        world.network.kill_controller();
        world.mirrors = some(&world, after, second);
        world.network.set_mirrors(world.mirrors.clone());
        world.network.start_controller(99);
        world.run(5000);
        world.listen();
        world.talk();
        let count = world.check(&format!("{before} then {after}"));
        assert_eq!(count > 60, after, "{count}");
        let groups = world.network.switch(world.switches[0]).groups();
        let copying = groups.filter(|group| group.group_id.0 >> 16 >= 0x6177);
        assert_eq!(copying.count(), if after { 4 } else { 0 });
    }
}

/// Packets between switches are copied with their labels, also around a failed link.
#[test]
fn the_frames_of_a_link_are_copied() {
    for n in 0..2 {
        let mut world = World::new(4);
        world.pings(&world.hosts());
        let cables = world.cables.clone();
        let ends = cables
            .iter()
            .flat_map(|cable| world.network.link_ends(*cable));
        let place = world.place(world.probe);
        let own: Vec<Location> = ends.filter(|end| end.dpid == place.dpid).collect();
        assert_eq!(own.len(), 2);
        world.set(&own[n..=n], Direction::Both);
        world.talk();
        world.check("a link");
        for cable in cables {
            world.network.stream(world.far, world.seen, 0, 300, ms(1));
            world.run(100);
            world.network.set_link(cable, false);
            world.run(500);
            world.network.set_link(cable, true);
            world.run(2500);
        }
        assert!(world.check("around failed links") > 100);
        assert!(!world.network.process().controller.links().is_empty());
    }
}

#[test]
fn multicast_is_copied_once() {
    for direction in DIRECTIONS {
        let mut world = World::new(2);
        world.pings(&world.hosts());
        world.set(&[world.place(world.seen)], direction);
        let group = Address::new(GROUP_MAC, GROUP);
        let senders = world.hosts();
        for round in 0..3 {
            for host in [world.seen, world.far] {
                let address = world.network.host(host).address;
                let sender = Sender {
                    mac: address.mac,
                    ipv4: address.ip,
                    ipv6: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, u16::from(address.mac.0[5])),
                };
                let join = group_join(sender, GROUP.into());
                world.network.inject(host, join);
                world.run(50);
            }
            for from in senders {
                for n in 0..20u64 {
                    let address = world.network.host(from).address;
                    let frame = udp(
                        address,
                        group,
                        (4000, 4001),
                        &(round * 100 + n).to_be_bytes(),
                    );
                    world.network.inject(from, frame);
                    world.run(2);
                }
            }
            let count = world.check(&format!("{direction:?}, round {round}"));
            assert!(count >= 20, "{count}");
            // A reload moves no sender to a wrong group.
            let other = [Direction::Out, Direction::In][round as usize % 2];
            world.set(&[world.place(world.seen)], other);
        }
    }
}

#[test]
fn a_bond_is_mirrored_with_all_of_its_ports() {
    for direction in DIRECTIONS {
        let mut world = World::new(2);
        let address = world.network.host(world.seen).address;
        let (seen, other) = (world.seen, world.other);
        world.network.host_mut(other).address = address;
        let ports = [world.place(seen), world.place(other)];
        let bond = Bond {
            name: "b".to_owned(),
            dpid: ports[0].dpid,
            ports: ports.iter().map(|at| at.port).collect(),
            protocol: Protocol::Static,
            is_fast: true,
        };
        world.set(&ports[..1], direction);
        world.network.set_bonds(Bonds::new([bond]), BTreeMap::new());
        world.run(2000);
        world.listen();
        let (near, far) = (world.near, world.far);
        for (n, from) in [near, far].into_iter().enumerate() {
            for k in 0..40 {
                world.network.ping(from, seen, 100 * (n as u16 + 1) + k);
                world.run(20);
            }
        }
        for nic in [seen, other] {
            for to in [near, far] {
                let ends = [nic, to].map(|host| world.network.host(host).address);
                for port in 0..10 {
                    let frame = udp(ends[0], ends[1], (port, 4001), &[0; 8]);
                    world.network.inject(nic, frame);
                    world.run(5);
                }
            }
        }
        let count = world.check(&format!("{direction:?}"));
        assert!(count > 80, "{count}");
        world.network.set_link(world.network.link_of(seen), false);
        world.run(500);
        world.listen();
        for from in [near, far] {
            world.network.ping(from, seen, 900);
            world.run(50);
        }
        assert!(world.check("with one port") >= 2);
        world.network.kill_controller();
        world.network.start_controller(5);
        world.run(4000);
        world.listen();
        for from in [near, far] {
            world.network.ping(from, seen, 901);
            world.run(50);
        }
        assert!(world.check("after a restart") >= 2);
    }
}

/// A copy has the tag that the frame has at its port.
#[test]
fn the_frames_of_vlans_are_copied_as_they_are() {
    let ten = VlanId::new(10).expect("a VLAN id");
    for direction in DIRECTIONS {
        let mut world = World::new(2);
        let trunk = PortVlans::Trunk {
            tagged: [ten].into(),
            native: None,
        };
        let ports = [
            (world.place(world.seen), trunk),
            (world.place(world.near), PortVlans::Access(ten)),
            (world.place(world.far), PortVlans::Access(ten)),
        ];
        let vlans = Vlans {
            ports: ports.into(),
            ..Vlans::default()
        };
        world.network.host_mut(world.seen).vlan = Some(10);
        world.network.set_vlans(vlans);
        world.set(&[world.place(world.seen)], direction);
        let hosts = [world.near, world.far, world.seen];
        for _ in 0..3 {
            world.pings(&hosts);
        }
        let mac = world.network.host(world.seen).address.mac;
        let stray = ethernet(mac, MacAddr::BROADCAST, MARKED, &[1; 46]);
        world.network.inject(world.seen, tagged(&stray, 20, 0));
        world.network.inject(world.seen, tagged(&stray, 10, 0));
        assert!(world.check(&format!("{direction:?}")) > 12);
    }
}

/// The port of a mirror may go down and come back without a change to any entry.
#[test]
fn a_probe_that_is_unplugged_disturbs_nobody() {
    let mut world = World::new(2);
    world.set(&[world.place(world.seen)], Direction::Both);
    world.pings(&world.hosts());
    world.network.stream(world.far, world.seen, 0, 900, ms(1));
    world.run(100);
    let link = world.network.link_of(world.probe);
    let changes = |world: &World| world.network.heard(world.switches[0], FLOW_MOD);
    let before = changes(&world);
    for up in [false, true] {
        world.network.set_link(link, up);
        world.run(300);
    }
    assert_eq!(changes(&world), before, "its switch keeps all entries");
    let got = &world.network.host(world.seen).datagrams;
    assert!(got.values().all(|count| *count == 1) && got.len() > 600);
    world.listen();
    world.talk();
    assert!(world.check("plugged in again") > 30);
}

#[test]
fn ports_of_no_switch_do_no_harm() {
    let mut world = World::new(2);
    let mut mirror = world.mirror(&[world.place(world.seen)], Direction::Both, world.probe);
    mirror.dpid = openflow::DatapathId(77);
    mirror.from.insert(PortNo(900));
    world.network.set_mirrors(Mirrors::new([mirror]));
    world.run(500);
    world.pings(&world.hosts());
    assert_eq!(world.network.errors().count(), 0);
}

fn rule(text: &str, allows: bool, mirror: Option<&str>) -> Rule {
    let read = parse_match(text).expect("a match");
    Rule {
        name: String::new(),
        matching: Matching::from_match(&read).expect("known fields"),
        allows,
        mirror: mirror.map(str::to_owned),
    }
}

/// Packets that a list drops are copied by the port's mirror.
#[test]
fn packets_are_copied_before_they_are_dropped() {
    let mut world = World::new(2);
    let seen = world.place(world.seen);
    let access = Access {
        acls: vec![Acl {
            name: "a".to_owned(),
            rules: vec![rule("ip", false, None), rule("", true, None)],
        }],
        ports: [(seen, vec![0])].into(),
        dhcp_servers: Some([world.place(world.near)].into()),
        ..Access::default()
    };
    world.network.set_access(access).expect("all can");
    world.set(&[seen], Direction::In);
    world.run(2000);
    world.listen();
    let (host, other) = (world.seen, world.other);
    for n in 0..50 {
        let ends = [host, other].map(|host| world.network.host(host).address);
        let frame = udp(ends[0], ends[1], (4000, 4001), &[n; 8]);
        world.network.inject(host, frame);
        world.run(2);
    }
    assert_eq!(world.check("dropped"), 50);
    assert_eq!(world.network.host(other).datagrams.len(), 0);
}

/// A rule copies the packets that it decides about, in whichever list it is, and no others.
#[test]
fn a_rule_copies_what_it_decides_about() {
    let ten = VlanId::new(10).expect("a VLAN id");
    for by_vlan in [false, true] {
        let mut world = World::new(2);
        let members = world
            .hosts()
            .map(|host| (world.place(host), PortVlans::Access(ten)));
        world.network.set_vlans(Vlans {
            ports: members.into(),
            ..Vlans::default()
        });
        let mirror = world.mirror(&[], Direction::Both, world.probe);
        world.set_all([mirror]);
        let rules = vec![
            rule("udp,tp_dst=7", true, None),
            rule("udp,tp_dst=8", true, Some("m")),
            rule("udp,tp_dst=9", false, Some("m")),
            rule("udp,tp_dst=10", true, Some("m")),
            rule("udp", false, None),
            rule("", true, None),
        ];
        let seen = world.place(world.seen);
        let access = Access {
            acls: vec![Acl {
                name: "a".to_owned(),
                rules,
            }],
            ports: (!by_vlan).then(|| (seen, vec![0])).into_iter().collect(),
            vlans: by_vlan.then(|| (ten, vec![0])).into_iter().collect(),
            ..Access::default()
        };
        let with = |access: &Access, mirror: Option<&str>| {
            let mut access = access.clone();
            access.acls[0].rules[1].mirror = mirror.map(str::to_owned);
            access
        };
        world.network.set_access(access.clone()).expect("all can");
        world.run(3000);
        world.pings(&world.hosts());
        // Near is at the switch of the mirror, and far is not.
        for (round, copied) in [(0, [8, 9, 10]), (1, [9, 10, 10])] {
            if round == 1 {
                let access = with(&access, None);
                world.network.set_access(access).expect("all can");
                world.run(50);
            }
            world.listen();
            let mut wanted = Vec::new();
            for from in [world.seen, world.near, world.far] {
                for port in [7, 8, 9, 10, 11] {
                    let ends = [from, world.other].map(|host| world.network.host(host).address);
                    let frame = udp(ends[0], ends[1], (4000, port), &[round; 8]);
                    let is_judged = match by_vlan {
                        true => from != world.far,
                        false => from == world.seen,
                    };
                    if is_judged && copied.contains(&port) {
                        wanted.push(bytes::Bytes::from(frame.clone()));
                    }
                    world.network.inject(from, frame);
                    world.run(10);
                }
            }
            world.run(200);
            let [_, mut found] = world.frames(world.place(world.probe));
            found.sort();
            wanted.sort();
            assert_eq!(found, wanted, "by VLAN {by_vlan}, round {round}");
        }
        assert_eq!(world.network.errors().count(), 0);
        assert!(!world.knows(world.probe));
    }
}

/// A packet that is routed back out of its port is copied as it goes out there.
#[test]
fn packets_that_turn_back_are_copied() {
    let vlans = [10, 20].map(|id| VlanId::new(id).expect("a VLAN id"));
    for direction in DIRECTIONS {
        let gateways = vlans.map(|vlan| {
            let subnet = format!("10.0.{}.254/24", vlan.number());
            let subnets = vec![subnet.parse().expect("a gateway")];
            let mac = GATEWAY_MAC;
            (vlan, Gateway { mac, subnets })
        });
        let gateways = Gateways {
            vlans: gateways.into(),
            ..Gateways::default()
        };
        let mut world = World::with(2, |config| config.gateways = gateways);
        let seen = world.seen;
        let trunk = PortVlans::Trunk {
            tagged: vlans.into(),
            native: None,
        };
        world.network.set_vlans(Vlans {
            ports: [(world.place(seen), trunk)].into(),
            ..Vlans::default()
        });
        world.set(&[world.place(seen)], direction);
        let host = |id: u8| Address::new(MacAddr([2, 0, 0, id, 0, 1]), Ipv4Addr::new(10, 0, id, 1));
        let gateway = Address::new(GATEWAY_MAC, Ipv4Addr::UNSPECIFIED);
        for id in [10, 20u8] {
            let ask = openflow::packet::build::arp_request(host(id), Ipv4Addr::new(10, 0, id, 254));
            world.network.inject(seen, tagged(&ask, id.into(), 0));
            world.run(50);
        }
        let mut returned = 0;
        for n in 0..60u8 {
            let to = Address {
                mac: gateway.mac,
                ..host(20)
            };
            let frame = udp(host(10), to, (4000, 4001), &[n; 8]);
            world.network.inject(seen, tagged(&frame, 10, 0));
            world.run(20);
            let [_, outs] = world.frames(world.place(seen));
            returned = outs.iter().filter(|frame| frame.ends_with(&[n; 8])).count();
        }
        assert_eq!(returned, 1, "it is routed back");
        assert!(world.check(&format!("{direction:?}")) >= 50);
    }
}
