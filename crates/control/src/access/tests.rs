//! The entries of a switch decide what the interpreter decides.

use clock::{Instant, SplitMix64};
use openflow::packet::build::{self, Host};
use openflow::table::Switch;
use openflow::{Action, Message, TableId};

use super::tables::{Around, Orders, Plan, change, passing, plan};
use super::*;
use crate::mirror::{Direction, Mirror, Mirrors};
use crate::pipeline::{Numbering, OUT_TABLE, PATH_TABLE};
use crate::routing::{GATEWAY_MAC, Gateway};
use crate::vlan::PortVlans;

/// A packet that passes leaves by this port.
const PASSED: u32 = 99;
/// The port that gets copies.
const PROBE: u32 = 98;
const PORTS: u32 = 6;

fn at(port: u32) -> Location {
    Location {
        dpid: DatapathId(1),
        port: PortNo(port),
    }
}

fn vlan(id: u16) -> VlanId {
    VlanId::new(id).expect("a VLAN id")
}

/// Ports 1 and 2 are in VLAN 10, 3 carries 10 and 20, 4 has 20 native; the others are in none.
fn vlans() -> Vlans {
    let trunk = |tagged: &[u16], native: Option<u16>| PortVlans::Trunk {
        tagged: tagged.iter().copied().map(vlan).collect(),
        native: native.map(vlan),
    };
    let ports = [
        (at(1), PortVlans::Access(vlan(10))),
        (at(2), PortVlans::Access(vlan(10))),
        (at(3), trunk(&[10, 20], None)),
        (at(4), trunk(&[10], Some(20))),
    ];
    Vlans {
        ports: ports.into(),
        ..Vlans::default()
    }
}

/// A switch with a plan, which sends all passing packets out of one port.
fn switch(plan: &Plan) -> Switch {
    let mut switch = Switch::with_ports((1..=PORTS).chain([PROBE, PASSED]));
    let mut apply = |mut flow_mod: openflow::message::FlowMod| {
        Numbering::Access.translate_flow_mod(&mut flow_mod);
        let taken = switch.apply(Instant::START, &Message::FlowMod(flow_mod));
        taken.expect("the switch takes it");
    };
    for (key, planned) in plan {
        apply(key.to_add(planned, 1));
    }
    let out = vec![Action::output(PortNo(PASSED))];
    apply(openflow::message::FlowMod {
        table_id: PATH_TABLE,
        ..openflow::message::FlowMod::add(0, Matching::any().to_match(), out)
    });
    switch
}

fn planned(access: &Access, routing: &Routing) -> Plan {
    let orders = Orders::default().change(access);
    planned_in(access, &orders, &Mirrors::default(), routing)
}

fn planned_in(access: &Access, orders: &Orders, mirrors: &Mirrors, routing: &Routing) -> Plan {
    let around = Around {
        vlans: &vlans(),
        bonds: &Bonds::default(),
        mirrors,
        routing,
    };
    plan(access, orders, around, DatapathId(1), &BTreeSet::new())
}

/// The Ethernet address of the gateway of VLAN 20.
const OTHER_GATEWAY: MacAddr = MacAddr([0x0e, 0, 0, 0, 0, 2]);

/// Gateways of VLANs 10, 20 and 40, and routes by them. VLAN 40 has no port here. `mac`: the
/// address of VLAN 20's gateway.
fn gateways(mac: MacAddr, routes: &[(&str, &str)]) -> Gateways {
    let gateway = |mac, subnets: &[&str]| {
        let subnets = subnets.iter().map(|text| text.parse().expect("a subnet"));
        let subnets = subnets.collect();
        Gateway { mac, subnets }
    };
    let all = [
        (
            vlan(10),
            gateway(GATEWAY_MAC, &["10.0.0.7/24", "fd00::7/64"]),
        ),
        (vlan(20), gateway(mac, &["10.0.1.4/24", "fd00:0:0:1::4/64"])),
        (vlan(40), gateway(GATEWAY_MAC, &["10.0.4.254/24"])),
    ];
    let route = |(to, via): &(&str, &str)| {
        let to = to.parse().expect("a network");
        (to, via.parse().expect("an address"))
    };
    Gateways {
        vlans: all.into(),
        routes: routes.iter().map(route).collect(),
    }
}

/// Values out of small sets, so that packets often meet rules.
struct Any(SplitMix64);

impl Any {
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[(self.0.next() % all.len() as u64) as usize]
    }

    fn is(&mut self, one_of: u64) -> bool {
        self.0.next().is_multiple_of(one_of)
    }

    fn host(&mut self) -> Host {
        let n = (self.0.next() % 24) as u8;
        let mut host = Host::numbered(n + 1);
        host.ip = Ipv4Addr::new(10, 0, n % 3, n);
        host
    }

    fn host6(&mut self) -> (MacAddr, Ipv6Addr) {
        let host = self.host();
        let [.., n] = host.mac.0;
        (
            host.mac,
            Ipv6Addr::new(0xfd00, 0, 0, u16::from(n % 3), 0, 0, 0, n.into()),
        )
    }

    fn port(&mut self) -> u16 {
        self.of(&[22, 53, 67, 68, 80, 443, 546, 547, 5000, 60_000])
    }

    fn frame(&mut self) -> Vec<u8> {
        let (from, to, ports) = (self.host(), self.host(), (self.port(), self.port()));
        let (from6, to6) = (self.host6(), self.host6());
        let frame = match self.0.next() % 10 {
            0 => build::tcp_syn(from, to, ports),
            1 | 2 => build::udp(from, to, ports, b"x"),
            3 => build::icmp_echo_request(from, to, 1, 1, b"x"),
            4 => build::arp_request(from, to.ip),
            5 => build::arp_reply(from, to),
            6 => build::udp6(from6, to6, ports, b"x"),
            7 => build::neighbour_solicitation(from6, to6.1),
            8 => build::neighbour_advertisement(from6, false),
            _ => build::ethernet(from.mac, to.mac, 0x1234, b"other"),
        };
        let mut frame = frame;
        if self.is(2) {
            // To the gateway of its VLAN or of another, or to a router that is no gateway.
            let router = MacAddr([0x0e, 0, 0, 0, 0, 3]);
            let to = self.of(&[GATEWAY_MAC, GATEWAY_MAC, OTHER_GATEWAY, router]);
            frame[..6].copy_from_slice(&to.0);
        }
        if self.is(4) {
            // The hardware address inside the packet is then another host's.
            frame[6..12].copy_from_slice(&self.host().mac.0);
        }
        match self.0.next() % 4 {
            0 => build::tagged(&frame, self.of(&[0, 10, 20, 30]), 0),
            _ => frame,
        }
    }

    fn rule(&mut self) -> Rule {
        let mut m = Matching::any();
        let mut and = |field: Field, value: u128| {
            if let Some(more) = m.clone().and(field, value) {
                m = more;
            }
        };
        let (src, dst) = (self.host(), self.host6());
        let kind = self.of(&[
            0u16,
            ETH_TYPE_ARP,
            ETH_TYPE_IPV4,
            ETH_TYPE_IPV4,
            ETH_TYPE_IPV6,
        ]);
        if kind == 0 || self.is(6) {
            and(Field::EthSrc, src.mac.to_u64().into());
        }
        if kind != 0 {
            and(Field::EthType, kind.into());
        }
        match kind {
            ETH_TYPE_ARP => and(Field::ArpSpa, u32::from(src.ip).into()),
            ETH_TYPE_IPV4 | ETH_TYPE_IPV6 => {
                let proto = self.of(&[1u8, 6, 17, 17]);
                if !self.is(3) {
                    and(Field::IpProto, proto.into());
                    let port = self.port().into();
                    match proto {
                        6 => and(Field::TcpDst, port),
                        17 => and(Field::UdpDst, port),
                        _ => {}
                    }
                }
                match kind {
                    ETH_TYPE_IPV4 => and(Field::Ipv4Src, u32::from(src.ip).into()),
                    _ => and(Field::Ipv6Dst, dst.1.into()),
                }
            }
            _ => {}
        }
        if self.is(3) && kind == ETH_TYPE_IPV4 {
            m = m.without(Field::Ipv4Src);
            let net = u32::from(Ipv4Addr::new(10, 0, (self.0.next() % 3) as u8, 0));
            let wide = m.clone().and_masked(Field::Ipv4Src, net, 0xffff_ff00);
            m = wide.unwrap_or(m);
        }
        Rule {
            name: String::new(),
            matching: m,
            allows: self.is(2),
            mirror: None,
        }
    }

    fn routing(&mut self) -> Routing {
        const ROUTES: [(&str, &str); 8] = [
            ("0.0.0.0/0", "10.0.1.9"),
            ("::/0", "fd00::9"),
            ("10.0.2.0/24", "10.0.0.9"),
            ("10.0.2.8/29", "10.0.1.9"),
            ("10.0.0.16/28", "10.0.4.9"),
            ("10.0.1.12/32", "10.0.0.9"),
            ("fd00:0:0:2::/64", "fd00:0:0:1::9"),
            ("fd00:0:0:2::8/125", "fd00::9"),
        ];
        let routes: Vec<_> = ROUTES.into_iter().filter(|_| !self.is(3)).collect();
        let mac = self.of(&[GATEWAY_MAC, OTHER_GATEWAY]);
        Routing::new(gateways(mac, &routes))
    }

    fn access(&mut self, rules: usize) -> Access {
        let acl = |some: &mut Any, name: &str, count: usize| {
            let mut rules: Vec<Rule> = (0..count).map(|_| some.rule()).collect();
            // Other lists drop packets that no rule matches.
            if some.is(2) {
                rules.push(Rule {
                    name: "rest".to_owned(),
                    matching: Matching::any(),
                    allows: some.is(2),
                    mirror: None,
                });
            }
            Acl {
                name: name.to_owned(),
                rules,
            }
        };
        let names = ["a", "b", "c", "d"];
        let acls = names.map(|name| acl(self, name, rules / names.len()));
        Access {
            acls: acls.into(),
            ports: [(at(1), vec![0]), (at(3), vec![1, 0]), (at(5), vec![2])].into(),
            vlans: [(vlan(10), vec![3]), (vlan(20), vec![2, 3])].into(),
            ..Access::default()
        }
    }

    /// The same, with lists for routed packets.
    fn access_out(&mut self, rules: usize) -> Access {
        let mut access = self.access(rules);
        let out = [
            (vlan(10), vec![2]),
            (vlan(20), vec![0, 1]),
            (vlan(40), vec![1]),
        ];
        access.out = out.into_iter().filter(|_| !self.is(4)).collect();
        access.ports.retain(|_, _| !self.is(2));
        access.vlans.retain(|_, _| !self.is(2));
        access
    }
}

/// The numbers of packets by outcome.
#[derive(Debug, Default)]
struct Outcomes {
    /// Packets that the switch handles differently from the interpreter.
    wrong: usize,
    passed: usize,
    /// Packets routed into a VLAN with lists for such packets: passed and dropped.
    routed: [usize; 2],
}

fn outcomes(seed: u64, access: &Access, routing: &Routing, frames: usize) -> Outcomes {
    let mut some = Any(SplitMix64::new(seed));
    let (vlans, plan) = (vlans(), planned(access, routing));
    let switch = switch(&plan);
    let mut found = Outcomes::default();
    for _ in 0..frames {
        let (frame, port) = (some.frame(), 1 + (some.0.next() % u64::from(PORTS)) as u32);
        let fields = PacketFields::parse(PortNo(port), &frame);
        let verdict = access.judge((&vlans, routing), at(port), &fields);
        // Forwarding drops it.
        let is_allowed = verdict.is_allowed() || verdict == Verdict::NoMember;
        found.passed += usize::from(is_allowed);
        let own = vlans.classify(at(port), fields.vlan_id());
        let into = own.and_then(|own| routing.target(own, &fields));
        if into.is_some_and(|into| access.out.contains_key(&into)) {
            found.routed[usize::from(!is_allowed)] += 1;
        }
        // The controller decides about requests as the interpreter does, and gets a copy of
        // answers.
        let is_asking = access.by_dhcp.contains(&at(port)) && asks_server(&fields);
        let is_answer = !access.by_dhcp.is_empty()
            && fields.eth_type() == Some(ETH_TYPE_IPV4)
            && fields.get(Field::UdpDst) == Some(DHCP_CLIENT.into())
            && access.trusts(at(port));
        let outputs = switch.ports_of(PortNo(port), &frame);
        let goes = |to| outputs.contains(&to);
        found.wrong += usize::from(goes(PortNo::CONTROLLER) != (is_asking || is_answer));
        found.wrong += usize::from(goes(PortNo(PASSED)) != (is_allowed && !is_asking));
    }
    found
}

/// The first lists are added and the last ones removed, one message at a time. After any message, a
/// packet meets either the state before or the state after.
#[test]
fn between_no_lists_and_some_a_packet_meets_either() {
    let nothing = passing(&Mirrors::default(), DatapathId(1));
    let (mut messages, mut different) = (0, 0);
    for seed in 0..12 {
        let mut some = Any(SplitMix64::new(seed));
        let routing = some.routing();
        let mut access = match seed % 2 {
            0 => some.access(12),
            _ => some.access_out(12),
        };
        access.dhcp_servers = Some([at(2)].into());
        access.routers = Some(BTreeSet::new());
        let lists = planned(&access, &routing);
        let mut frame = |_| (1 + some.of(&[0, 1, 2, 3, 4, 5]), some.frame());
        let frames: Vec<(u32, Vec<u8>)> = (0..60).map(&mut frame).collect();
        let of = |switch: &Switch| -> Vec<Vec<PortNo>> {
            let outputs = |(port, frame): &(u32, Vec<u8>)| switch.ports_of(PortNo(*port), frame);
            frames.iter().map(outputs).collect()
        };
        for (before, after) in [(&nothing, &lists), (&lists, &nothing)] {
            let mut now = switch(before);
            let (was, will) = (of(&now), of(&switch(after)));
            different += was.iter().zip(&will).filter(|(a, b)| a != b).count();
            for mut flow_mod in change(before, after, 1) {
                Numbering::Access.translate_flow_mod(&mut flow_mod);
                let message = Message::FlowMod(flow_mod);
                now.apply(Instant::START, &message).expect("it takes it");
                for (n, is) in of(&now).iter().enumerate() {
                    let either = [&was[n], &will[n]];
                    assert!(
                        either.contains(&is),
                        "{seed}: {:?} at {message:?}",
                        frames[n]
                    );
                }
                messages += 1;
            }
            assert_eq!(of(&now), will);
        }
    }
    assert!(messages > 500 && different > 200, "{messages} {different}");
}

const PACKETS: usize = 100_000;

#[test]
fn two_thousand_rules_decide_as_the_interpreter() {
    let mut some = Any(SplitMix64::new(7));
    let mut access = some.access(2000);
    access.out = [(vlan(10), vec![2]), (vlan(20), vec![0, 1])].into();
    let found = outcomes(8, &access, &some.routing(), PACKETS);
    assert_eq!(found.wrong, 0, "of {PACKETS}");
    // Both outcomes are common, so that agreement means something.
    let is_common = |count: usize| count > PACKETS / 10 && count < PACKETS * 9 / 10;
    assert!(is_common(found.passed), "{found:?}");
    assert!(found.routed.iter().all(|n| *n > 500), "{found:?}");
}

/// Routes, gateways of one or several addresses, and lists of some places and not of others.
#[test]
fn lists_for_routed_packets_decide_as_the_interpreter() {
    let mut routed = [0, 0];
    for seed in 0..60 {
        let mut some = Any(SplitMix64::new(1000 + seed));
        let (access, routing) = (some.access_out(12), some.routing());
        let found = outcomes(seed, &access, &routing, 1000);
        assert_eq!(found.wrong, 0, "seed {seed}");
        routed = [0, 1].map(|n| routed[n] + found.routed[n]);
    }
    assert!(routed.iter().all(|n| *n > 400), "{routed:?}");
}

/// Only packets that a gateway routes are checked: not packets to its own address, to another
/// VLAN's gateway or to another router, and not requests.
#[test]
fn lists_for_routed_packets_concern_no_others() {
    let routing = Routing::new(gateways(OTHER_GATEWAY, &[("0.0.0.0/0", "10.0.1.9")]));
    let access = Access {
        acls: vec![Acl {
            name: "none".to_owned(),
            rules: vec![Rule {
                name: String::new(),
                matching: Matching::any(),
                allows: false,
                mirror: None,
            }],
        }],
        out: [(vlan(20), vec![0])].into(),
        ..Access::default()
    };
    let switch = switch(&planned(&access, &routing));
    let from = Host::numbered(1);
    let to = |mac, ip: [u8; 4]| Host { mac, ip: ip.into() };
    let router = MacAddr([0x0e, 0, 0, 0, 0, 3]);
    let udp = |mac, ip| build::udp(from, to(mac, ip), (5000, 53), b"x");
    let asked = |mac: MacAddr, ip: [u8; 4]| {
        let mut frame = build::arp_request(from, ip.into());
        frame[..6].copy_from_slice(&mac.0);
        frame
    };
    let asked6 = |mac: MacAddr| {
        let from = (from.mac, "fd00::1".parse().expect("an address"));
        let mut frame = build::neighbour_solicitation(from, "fd00::7".parse().expect("one"));
        frame[..6].copy_from_slice(&mac.0);
        frame
    };
    let cases = [
        ("a host of VLAN 20", udp(GATEWAY_MAC, [10, 0, 1, 9]), false),
        ("the world", udp(GATEWAY_MAC, [192, 0, 2, 1]), false),
        ("VLAN 10 itself", udp(GATEWAY_MAC, [10, 0, 0, 9]), true),
        ("VLAN 40", udp(GATEWAY_MAC, [10, 0, 4, 9]), true),
        ("the own gateway", udp(GATEWAY_MAC, [10, 0, 0, 7]), true),
        ("the other gateway", udp(GATEWAY_MAC, [10, 0, 1, 4]), true),
        ("a link's address", udp(GATEWAY_MAC, [169, 254, 0, 1]), true),
        ("VLAN 20's gateway", udp(OTHER_GATEWAY, [10, 0, 1, 9]), true),
        ("another router", udp(router, [10, 0, 1, 9]), true),
        ("a question", asked(GATEWAY_MAC, [10, 0, 1, 9]), true),
        ("its question", asked(router, [10, 0, 0, 7]), true),
        ("a question of IPv6", asked6(GATEWAY_MAC), true),
        ("its question of IPv6", asked6(router), true),
    ];
    for (what, frame, passes) in cases {
        let fields = PacketFields::parse(PortNo(1), &frame);
        let verdict = access.judge((&vlans(), &routing), at(1), &fields);
        assert_eq!(verdict.is_allowed(), passes, "{what}: {verdict:?}");
        let outputs = switch.ports_of(PortNo(1), &frame);
        assert_eq!(outputs.contains(&PortNo(PASSED)), passes, "{what}");
    }
}

#[test]
fn small_lists_of_all_kinds_decide_as_the_interpreter() {
    for seed in 0..60 {
        let mut some = Any(SplitMix64::new(seed));
        let mut access = some.access(12);
        let binding = |some: &mut Any| {
            let (host, host6) = (some.host(), some.host6());
            let ips = match some.0.next() % 3 {
                0 => BTreeSet::new(),
                1 => [host.ip.into()].into(),
                _ => [host.ip.into(), host6.1.into()].into(),
            };
            Binding { mac: host.mac, ips }
        };
        for port in [2, 5, 6] {
            let all = (0..6).map(|_| binding(&mut some)).collect();
            access.bindings.insert(at(port), all);
        }
        access.dhcp_servers = some.is(2).then(|| [at(2), at(4)].into());
        if access.dhcp_servers.is_some() {
            access.by_dhcp = [at(2), at(5)].into();
        }
        access.routers = some.is(2).then(|| [at(4)].into());
        let found = outcomes(seed, &access, &Routing::default(), 600);
        assert_eq!(found.wrong, 0, "seed {seed}");
        assert!(found.passed > 0);
    }
}

/// A mirror's port gets the packets that a rule with this mirror decides about, and no others.
#[test]
fn entries_copy_what_rules_with_a_mirror_decide_about() {
    let mirror = Mirror {
        name: "m".to_owned(),
        dpid: DatapathId(1),
        from: BTreeSet::new(),
        direction: Direction::Both,
        to: PortNo(PROBE),
    };
    let mirrors = Mirrors::new([mirror]);
    let (mut copied, mut passed) = (0, 0);
    for seed in 0..20 {
        let mut some = Any(SplitMix64::new(seed));
        let mut access = some.access(24);
        access.out = [(vlan(10), vec![3]), (vlan(20), vec![2])].into();
        let routing = some.routing();
        for rule in access.acls.iter_mut().flat_map(|acl| &mut acl.rules) {
            rule.mirror = some.is(2).then(|| "m".to_owned());
        }
        let vlans = vlans();
        let orders = Orders::default().change(&access);
        let plan = planned_in(&access, &orders, &mirrors, &routing);
        let switch = switch(&plan);
        for _ in 0..400 {
            let (frame, port) = (some.frame(), 1 + (some.0.next() % u64::from(PORTS)) as u32);
            let fields = PacketFields::parse(PortNo(port), &frame);
            let mut places = vec![Place::Port(at(port))];
            let own = vlans.classify(at(port), fields.vlan_id());
            places.extend(own.map(Place::Vlan));
            let into = own.and_then(|own| routing.target(own, &fields));
            places.extend(into.map(Place::Out));
            let mut wanted = 0;
            for place in places.into_iter().filter(|_| !passes_always(&fields)) {
                let mut rules = access.rules(place);
                let found = rules.find(|(_, rule)| rule.matching.takes(&fields));
                let rule = found.map(|(_, rule)| rule);
                wanted += usize::from(rule.is_some_and(|rule| rule.mirror.is_some()));
                if access.has_lists(place) && !rule.is_some_and(|rule| rule.allows) {
                    break;
                }
            }
            let outs = switch.ports_of(PortNo(port), &frame);
            let found = outs.iter().filter(|out| **out == PortNo(PROBE)).count();
            assert_eq!(found, wanted, "seed {seed}: port {port}: {frame:02x?}");
            copied += found;
            passed += usize::from(outs.contains(&PortNo(PASSED)));
        }
    }
    assert!(copied > 1000 && passed > 1000, "{copied}, {passed}");
}

/// The numbers of entries set and deleted, if other lists replace these.
fn changes(before: &Access, after: &Access) -> (usize, usize) {
    let orders = Orders::default().change(before);
    let (mirrors, routing) = (Mirrors::default(), routing());
    let old = planned_in(before, &orders, &mirrors, &routing);
    differences(
        &old,
        &planned_in(after, &orders.change(after), &mirrors, &routing),
    )
}

fn routing() -> Routing {
    Routing::new(gateways(GATEWAY_MAC, &[("10.0.2.0/24", "10.0.1.9")]))
}

fn differences(old: &Plan, new: &Plan) -> (usize, usize) {
    let step = |plan: &Plan, key| plan.get(key).map(|planned| planned.instructions());
    let set = new.keys().filter(|key| step(old, key) != step(new, key));
    let gone = old.keys().filter(|key| !new.contains_key(key));
    (set.count(), gone.count())
}

#[test]
fn one_rule_changes_one_entry() {
    let rules = |n: u16| {
        let tcp = Matching::any().and(Field::EthType, ETH_TYPE_IPV4).unwrap();
        let tcp = tcp.and(Field::IpProto, 6u8).unwrap();
        Rule {
            name: String::new(),
            matching: tcp.and(Field::TcpDst, n).unwrap(),
            allows: n.is_multiple_of(2),
            mirror: None,
        }
    };
    let access = |rules: Vec<Rule>, is_out: bool| {
        let mut access = Access {
            acls: vec![Acl {
                name: "a".to_owned(),
                rules,
            }],
            ..Access::default()
        };
        match is_out {
            true => drop(access.out.insert(vlan(20), vec![0])),
            false => drop(access.ports.insert(at(5), vec![0])),
        }
        access
    };
    let all: Vec<Rule> = (1..=2000).map(rules).collect();
    for is_out in [false, true] {
        let before = access(all.clone(), is_out);
        let with = |change: &dyn Fn(&mut Vec<Rule>)| {
            let mut rules = all.clone();
            change(&mut rules);
            changes(&before, &access(rules, is_out))
        };
        assert_eq!(with(&|all| all[1000].allows ^= true), (1, 0));
        assert_eq!(with(&|all| all[1000] = rules(5000)), (1, 1));
        assert_eq!(with(&|all| all.insert(1000, rules(5000))), (1, 0));
        assert_eq!(with(&|all| drop(all.remove(1000))), (0, 1));
        assert_eq!(with(&|all| all.swap(999, 1000)), (1, 1));
        assert_eq!(with(&|all| all[7].name.push('x')), (0, 0));
    }
}

/// A route that is added, removed or redirected changes one entry per gateway address.
#[test]
fn one_route_changes_one_entry() {
    let access = Access {
        acls: vec![Acl::default()],
        out: [(vlan(20), vec![0])].into(),
        ..Access::default()
    };
    for (mac, count) in [(GATEWAY_MAC, 1), (OTHER_GATEWAY, 2)] {
        let plan = |routes: &[(&str, &str)]| {
            let plan = planned(&access, &Routing::new(gateways(mac, routes)));
            assert!(plan.keys().any(|key| key.table == OUT_TABLE));
            plan
        };
        let (none, one) = (plan(&[]), plan(&[("10.0.2.0/24", "10.0.1.9")]));
        let other = plan(&[("10.0.2.0/24", "10.0.0.9")]);
        assert_eq!(differences(&none, &one), (count, 0));
        assert_eq!(differences(&one, &other), (count, 0));
        assert_eq!(differences(&one, &none), (0, count));
    }
}

#[test]
fn a_plan_fits_the_tables() {
    let mut access = Any(SplitMix64::new(3)).access(8);
    access.dhcp_servers = Some(BTreeSet::new());
    access.out = [(vlan(20), vec![0])].into();
    let plan = planned(&access, &routing());
    let tables: BTreeSet<TableId> = plan.keys().map(|key| key.table).collect();
    assert_eq!(tables.len(), usize::from(ACCESS_TABLES), "{tables:?}");
    for (key, planned) in &plan {
        if let tables::Step::Goto(next) | tables::Step::With(_, next) = planned.step {
            let [here, next] =
                [key.table, next].map(|table| Numbering::Access.switch_number(table));
            assert!(next > here, "{key:?}");
        }
    }
}
