//! The entries of a switch decide what the interpreter decides.

use clock::{Instant, SplitMix64};
use openflow::packet::build::{self, Host};
use openflow::table::Switch;
use openflow::{Action, Message, TableId};

use super::tables::{Orders, Plan, plan};
use super::*;
use crate::mirror::{Direction, Mirror, Mirrors};
use crate::pipeline::{Numbering, PATH_TABLE};
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

/// A switch that holds a plan, and sends everything that passes out of one port.
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

fn planned(access: &Access) -> Plan {
    let orders = Orders::default().change(access);
    let around = (&vlans(), &Bonds::default(), &Mirrors::default());
    plan(access, &orders, around, DatapathId(1), &BTreeSet::new())
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
        if self.is(4) {
            // The hardware address inside is another's then.
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

    fn access(&mut self, rules: usize) -> Access {
        let acl = |some: &mut Any, name: &str, count: usize| {
            let mut rules: Vec<Rule> = (0..count).map(|_| some.rule()).collect();
            // Others drop what no rule matches.
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
}

fn disagreements(seed: u64, access: &Access, frames: usize) -> (usize, usize) {
    let mut some = Any(SplitMix64::new(seed));
    let (vlans, plan) = (vlans(), planned(access));
    let switch = switch(&plan);
    let (mut wrong, mut passed) = (0, 0);
    for _ in 0..frames {
        let (frame, port) = (some.frame(), 1 + (some.0.next() % u64::from(PORTS)) as u32);
        let fields = PacketFields::parse(PortNo(port), &frame);
        let verdict = access.judge(&vlans, at(port), &fields);
        // Forwarding drops it.
        let is_allowed = verdict.is_allowed() || verdict == Verdict::NoMember;
        passed += usize::from(is_allowed);
        // The controller decides as the interpreter about questions, and sees a copy of answers.
        let is_asking = access.by_dhcp.contains(&at(port)) && asks_server(&fields);
        let is_answer = !access.by_dhcp.is_empty()
            && fields.eth_type() == Some(ETH_TYPE_IPV4)
            && fields.get(Field::UdpDst) == Some(DHCP_CLIENT.into())
            && access.trusts(at(port));
        let outputs = switch.ports_of(PortNo(port), &frame);
        let goes = |to| outputs.contains(&to);
        wrong += usize::from(goes(PortNo::CONTROLLER) != (is_asking || is_answer));
        wrong += usize::from(goes(PortNo(PASSED)) != (is_allowed && !is_asking));
    }
    (wrong, passed)
}

const PACKETS: usize = 100_000;

#[test]
fn two_thousand_rules_decide_as_the_interpreter() {
    let access = Any(SplitMix64::new(7)).access(2000);
    let (wrong, passed) = disagreements(8, &access, PACKETS);
    assert_eq!(wrong, 0, "of {}", PACKETS);
    // Both outcomes are common, so that agreement means something.
    assert!(
        passed > PACKETS / 10 && passed < PACKETS * 9 / 10,
        "{passed}"
    );
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
        let (wrong, passed) = disagreements(seed, &access, 600);
        assert_eq!(wrong, 0, "seed {seed}");
        assert!(passed > 0);
    }
}

/// The port of a mirror gets the packets that a rule with it decides about, and no other.
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
        for rule in access.acls.iter_mut().flat_map(|acl| &mut acl.rules) {
            rule.mirror = some.is(2).then(|| "m".to_owned());
        }
        let vlans = vlans();
        let orders = Orders::default().change(&access);
        let around = (&vlans, &Bonds::default(), &mirrors);
        let plan = plan(&access, &orders, around, DatapathId(1), &BTreeSet::new());
        let switch = switch(&plan);
        for _ in 0..400 {
            let (frame, port) = (some.frame(), 1 + (some.0.next() % u64::from(PORTS)) as u32);
            let fields = PacketFields::parse(PortNo(port), &frame);
            let mut places = vec![Place::Port(at(port))];
            places.extend(vlans.classify(at(port), fields.vlan_id()).map(Place::Vlan));
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
    let none = BTreeSet::new();
    let (vlans, bonds, mirrors) = (vlans(), Bonds::default(), Mirrors::default());
    let around = (&vlans, &bonds, &mirrors);
    let old = plan(before, &orders, around, DatapathId(1), &none);
    let new = plan(after, &orders.change(after), around, DatapathId(1), &none);
    let step = |plan: &Plan, key| plan.get(key).map(|planned| planned.instructions());
    let set = new.keys().filter(|key| step(&old, key) != step(&new, key));
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
    let access = |rules: Vec<Rule>| Access {
        acls: vec![Acl {
            name: "a".to_owned(),
            rules,
        }],
        ports: [(at(5), vec![0])].into(),
        ..Access::default()
    };
    let all: Vec<Rule> = (1..=2000).map(rules).collect();
    let before = access(all.clone());
    let with = |change: &dyn Fn(&mut Vec<Rule>)| {
        let mut rules = all.clone();
        change(&mut rules);
        changes(&before, &access(rules))
    };
    assert_eq!(with(&|all| all[1000].allows ^= true), (1, 0));
    assert_eq!(with(&|all| all[1000] = rules(5000)), (1, 1));
    assert_eq!(with(&|all| all.insert(1000, rules(5000))), (1, 0));
    assert_eq!(with(&|all| drop(all.remove(1000))), (0, 1));
    assert_eq!(with(&|all| all.swap(999, 1000)), (1, 1));
    assert_eq!(with(&|all| all[7].name.push('x')), (0, 0));
}

#[test]
fn a_plan_fits_the_tables() {
    let mut access = Any(SplitMix64::new(3)).access(8);
    access.dhcp_servers = Some(BTreeSet::new());
    let plan = planned(&access);
    let tables: BTreeSet<TableId> = plan.keys().map(|key| key.table).collect();
    assert_eq!(tables.len(), usize::from(ACCESS_TABLES), "{tables:?}");
    for (key, planned) in &plan {
        if let tables::Step::Goto(next) = planned.step {
            let [here, next] =
                [key.table, next].map(|table| Numbering::Access.switch_number(table));
            assert!(next > here, "{key:?}");
        }
    }
}
