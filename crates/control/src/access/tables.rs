//! The entries with which a switch makes the same decisions as [`Access::judge`].
//!
//! ```text
//! mirrors   packets of mirrored ports -> copies
//! guards    links, LLDP -> paths; DHCP answers and routers from other ports -> drop
//! bindings  a bound port: what its hosts can send goes on, all else is dropped
//! port      the lists of a port, by its number
//! vlan      the VLAN of a packet and its gateway, if they matter below -> metadata
//! vlan list the lists of a VLAN, by the metadata
//! out       the VLAN that the gateway routes a packet into, if that has lists -> metadata
//! out list  the lists of that VLAN, by the metadata
//! ```
//!
//! A packet that no entry drops continues to the table of paths. Where static entries pass packets
//! on, it gets there through the table of those entries.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use openflow::message::{ErrorMessage, FlowMod, FlowModCommand, FlowModFlags, FlowRemoved};
use openflow::multipart::FlowStats;
use openflow::{Action, Cookie, DatapathId, Field, Instruction, PortNo, TableId};

use super::learned::LEARNED_MAX;
use super::order::{self, BOTTOM};
use super::*;
use crate::entry::{COOKIE_PREFIX, COOKIE_PREFIX_MASK, EntryKind};
use crate::mirror::{Mirrors, Targets};
use crate::pipeline::{
    BINDING_TABLE, GUARD_TABLE, MIRROR_TABLE, ONWARD_TABLE, OUT_ACCESS_TABLE, OUT_TABLE,
    PATH_TABLE, PORT_ACCESS_TABLE, VLAN_ACCESS_TABLE, VLAN_TABLE,
};
use crate::timeouts::Prefix;
use crate::vlan::Form;

/// Above all others: packets that are never checked.
const ALWAYS: u16 = 65_000;
const LINK: u16 = 64_000;
/// Above all requests and answers at a port.
const CLOSED: u16 = 62_000;
/// A host's requests to a DHCP server, where its binding depends on the answer.
const ASKS_SERVER: u16 = 60_000;
const SERVER: u16 = 50_000;
const SERVER_ELSEWHERE: u16 = 40_000;
/// Messages of ARP and neighbour discovery that a bound host cannot have sent, whatever follows.
const MALFORMED: u16 = 40_000;
const RESOLVES: u16 = 30_000;
const RESOLVES_OTHER: u16 = 20_000;
const OWN: u16 = 10_000;
const OTHER: u16 = 1;
const MEMBER: u16 = 1;
const MIRRORED: u16 = 1;
/// Packets to a gateway that the gateway does not route, above packets to all networks.
const KEPT: u16 = 1000;
/// Packets to a network; each bit of its length adds one.
const ROUTED: u16 = 1;

/// The metadata has the VLAN of a packet, and above it the address of that VLAN's gateway.
const VLAN_BITS: u32 = 16;
const VLAN_MASK: u128 = (1 << VLAN_BITS) - 1;
const GATEWAY_MASK: u128 = u64::MAX as u128 & !VLAN_MASK;

/// The OXM value of a tag that is present.
const TAGGED: u16 = 0x1000;

/// The identity of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryKey {
    pub table: TableId,
    pub priority: u16,
    pub matching: Matching,
}

/// The effect of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Drop,
    Goto(TableId),
    /// Continues to this table with this metadata.
    With(u64, TableId),
    /// Sends the packet to the controller, which decides.
    Up,
    /// Continues to this table, and a copy goes to the controller.
    Show(TableId),
}

/// To the paths, without metadata, because a packet-in would include it.
const LEAVE: Step = Step::With(0, PATH_TABLE);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub step: Step,
    /// The ports that get copies.
    pub copies: Targets,
    pub owner: Owner,
}

/// The purpose of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The passage from table to table.
    Way,
    DhcpServers,
    Routers,
    Bindings,
    Rule(RuleId),
    /// The end of the lists of a place.
    End(Place),
}

/// The entries of one switch.
pub type Plan = BTreeMap<EntryKey, Planned>;

/// The priorities of the rules of each place. They are the same on all switches.
#[derive(Clone, Debug, Default)]
pub struct Orders(BTreeMap<Place, Vec<(Matching, u16)>>);

impl Orders {
    /// Returns the priorities for other lists, as close to these as possible.
    #[must_use]
    pub fn change(&self, access: &Access) -> Orders {
        let ports = access.ports.keys().map(|at| Place::Port(*at));
        let places = ports.chain(vlan_places(access));
        let order = |place: Place| {
            let mut seen = BTreeSet::new();
            let rules = access.rules(place).map(|(_, rule)| rule.matching.clone());
            // A repeated match would never be reached.
            let rules: Vec<Matching> = rules.filter(|rule| seen.insert(rule.clone())).collect();
            let before = self.0.get(&place).map_or(&[][..], |before| before);
            let priorities = order::priorities(before, &rules);
            (place, rules.into_iter().zip(priorities).collect())
        };
        Orders(places.map(order).collect())
    }

    fn of(&self, place: Place) -> &[(Matching, u16)] {
        self.0.get(&place).map_or(&[], |order| order)
    }
}

/// The lists of VLANs, in both directions.
fn vlan_places(access: &Access) -> impl Iterator<Item = Place> {
    let into = access.vlans.keys().map(|vlan| Place::Vlan(*vlan));
    into.chain(access.out.keys().map(|vlan| Place::Out(*vlan)))
}

/// The maximum number of entries that a switch needs to find the VLANs that packets are routed
/// into.
pub fn size_of_routes(routing: &Routing) -> usize {
    let gateways = routing.gateways().vlans.values();
    let macs: BTreeSet<MacAddr> = gateways.map(|gateway| gateway.mac).collect();
    macs.len() * (routing.networks().count() + routing.kept().count())
}

/// The maximum number of entries that a switch needs for its ports and the lists of all VLANs.
pub fn size(access: &Access, dpid: DatapathId) -> usize {
    let at = |port| Location { dpid, port };
    let ports = at(PortNo(0))..=at(PortNo(u32::MAX));
    let lists = access
        .ports
        .range(ports.clone())
        .map(|(at, _)| Place::Port(*at));
    let lists = lists.chain(vlan_places(access));
    let rules = lists.map(|place| access.rules(place).count() + 1);
    let hosts = access.bindings.range(ports).flat_map(|(_, hosts)| hosts);
    let entries = |host: &Binding| host.resolving().len() + host.sending().len();
    let learning = access.by_dhcp.range(at(PortNo(0))..=at(PortNo(u32::MAX)));
    let learned = Binding {
        mac: MacAddr::default(),
        ips: [Ipv4Addr::LOCALHOST.into()].into(),
    };
    let learned = learning.count() * LEARNED_MAX * entries(&learned);
    rules.sum::<usize>() + hosts.map(entries).sum::<usize>() + learned
}

/// The VLANs, bonds and mirrors of all ports, and the gateways between VLANs.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    pub vlans: &'a Vlans,
    pub bonds: &'a Bonds,
    pub mirrors: &'a Mirrors,
    pub routing: &'a Routing,
}

/// Makes the plan of a switch. `access` and `mirrors` name the ports of bonds, and `vlans` their
/// places. `links`: its ports that are ends of links.
pub fn plan(
    access: &Access,
    orders: &Orders,
    around: Around<'_>,
    dpid: DatapathId,
    links: &BTreeSet<PortNo>,
) -> Plan {
    let mut planner = Planner {
        plan: Plan::new(),
        dpid,
    };
    planner.ways();
    let mirrors = around.mirrors;
    for (port, targets) in mirrors.ins(dpid) {
        planner.mirror(port, targets);
    }
    let links = links.iter().filter_map(|link| EntryKey::of_link(*link));
    planner.plan.extend(links);
    planner.guards(access);
    for (at, bindings) in access.bindings.range(planner.ports()) {
        planner.bind(at.port, bindings, access.by_dhcp.contains(at));
    }
    for (at, _) in access.ports.range(planner.ports()) {
        let scope = by_port(Matching::any(), at.port);
        planner.lists(access, (orders, mirrors), Place::Port(*at), scope);
    }
    let routing = around.routing;
    let gateways = gateways_of_lists(access, routing);
    let vlans: BTreeSet<VlanId> = access
        .vlans
        .keys()
        .chain(gateways.keys())
        .copied()
        .collect();
    let mut macs = BTreeSet::new();
    for vlan in vlans {
        let gateway = gateways.get(&vlan).map_or(0, |mac| mac.to_u64());
        let metadata = gateway << VLAN_BITS | u64::from(vlan.number());
        let has_lists = access.vlans.contains_key(&vlan);
        let next = match has_lists {
            true => VLAN_ACCESS_TABLE,
            false => OUT_TABLE,
        };
        if !planner.members(vlan, Step::With(metadata, next), around) {
            continue;
        }
        macs.extend(gateways.get(&vlan));
        if has_lists {
            planner.lists(access, (orders, mirrors), Place::Vlan(vlan), of_vlan(vlan));
        }
    }
    for mac in &macs {
        planner.routed(access, routing, *mac);
    }
    for vlan in access.out.keys().filter(|_| !macs.is_empty()) {
        planner.lists(access, (orders, mirrors), Place::Out(*vlan), of_vlan(*vlan));
    }
    planner.plan
}

/// The plan of a switch without access decisions: packets continue to the paths, and packets of
/// mirrored ports are copied.
pub fn passing(mirrors: &Mirrors, dpid: DatapathId) -> Plan {
    let mut planner = Planner {
        plan: Plan::new(),
        dpid,
    };
    for (table, next) in [(MIRROR_TABLE, GUARD_TABLE), (GUARD_TABLE, PATH_TABLE)] {
        planner.add(table, 0, Matching::any(), Step::Goto(next));
    }
    for (port, targets) in mirrors.ins(dpid) {
        planner.mirror(port, targets);
    }
    planner.plan
}

/// The entries that lead to the paths through the table of static entries that pass packets on: for
/// packets that no static entry takes, and for LLDP, which none can take.
pub fn onward() -> Plan {
    let way = |(priority, matching)| {
        let table = ONWARD_TABLE;
        let key = EntryKey {
            table,
            priority,
            matching,
        };
        let planned = Planned {
            step: Step::Goto(PATH_TABLE),
            copies: Targets::new(),
            owner: Owner::Way,
        };
        (key, planned)
    };
    let lldp = of_type(ETH_TYPE_LLDP).map(|lldp| (ALWAYS, lldp));
    lldp.into_iter()
        .chain([(0, Matching::any())])
        .map(way)
        .collect()
}

/// The changes from one plan to another, in their order: additions before deletions. Lists are
/// complete before the entries that lead to them, and each list is added from its first rule on.
pub fn change(before: &Plan, after: &Plan, generation: u16) -> Vec<FlowMod> {
    let is_new = |(key, planned): &(&EntryKey, &Planned)| {
        let before = before.get(key);
        !before.is_some_and(|before| before.does_as(planned))
    };
    let new = after.iter().rev().filter(is_new);
    let new = new.map(|(key, planned)| key.to_add(planned, generation));
    let gone = before.keys().filter(|key| !after.contains_key(key));
    new.chain(gone.map(EntryKey::to_delete)).collect()
}

/// The Ethernet addresses of gateways that route into VLANs with lists for routed packets: the
/// gateways of all VLANs, if there are any such lists.
fn gateways_of_lists(access: &Access, routing: &Routing) -> BTreeMap<VlanId, MacAddr> {
    let all = routing.gateways().vlans.iter();
    let all = all.map(|(vlan, gateway)| (*vlan, gateway.mac));
    all.filter(|_| !access.out.is_empty()).collect()
}

/// Makes the part of the plan that binds one port to its hosts.
pub(crate) fn bound(at: Location, bindings: &[Binding], is_by_dhcp: bool) -> Plan {
    let mut planner = Planner {
        plan: Plan::new(),
        dpid: at.dpid,
    };
    planner.bind(at.port, bindings, is_by_dhcp);
    planner.plan
}

struct Planner {
    plan: Plan,
    dpid: DatapathId,
}

fn by_port(matching: Matching, port: PortNo) -> Option<Matching> {
    matching.and(Field::InPort, port.0)
}

/// Packets with this VLAN in the metadata.
fn of_vlan(vlan: VlanId) -> Option<Matching> {
    Matching::any().and_masked(Field::Metadata, vlan.number(), VLAN_MASK)
}

/// Packets to the gateway of their VLAN, if it has this Ethernet address.
fn to_gateway(mac: MacAddr) -> Option<Matching> {
    let gateway = mac.to_u64() << VLAN_BITS;
    let of_it = Matching::any().and_masked(Field::Metadata, gateway, GATEWAY_MASK);
    of_it?.and(Field::EthDst, mac.to_u64())
}

fn to_network(matching: Matching, network: Prefix) -> Option<Matching> {
    let (eth_type, field, first) = match network.ip() {
        IpAddr::V4(ip) => (ETH_TYPE_IPV4, Field::Ipv4Dst, u128::from(u32::from(ip))),
        IpAddr::V6(ip) => (ETH_TYPE_IPV6, Field::Ipv6Dst, u128::from(ip)),
    };
    let hosts = field.ones().checked_shr(network.bits().into()).unwrap_or(0);
    let of_type = matching.and(Field::EthType, eth_type)?;
    of_type.and_masked(field, first, field.ones() & !hosts)
}

fn of_type(eth_type: u16) -> Option<Matching> {
    Matching::any().and(Field::EthType, eth_type)
}

fn of_icmpv6(kind: u8) -> Option<Matching> {
    let ip = of_type(ETH_TYPE_IPV6)?.and(Field::IpProto, ICMPV6)?;
    ip.and(Field::Icmpv6Type, kind)
}

fn to_udp(eth_type: u16, port: u16) -> Option<Matching> {
    let udp = of_type(eth_type)?.and(Field::IpProto, UDP)?;
    udp.and(Field::UdpDst, port)
}

fn asks_server() -> Option<Matching> {
    to_udp(ETH_TYPE_IPV4, DHCP_SERVER)?.and(Field::UdpSrc, DHCP_CLIENT)
}

impl Planner {
    fn ports(&self) -> std::ops::RangeInclusive<Location> {
        let dpid = self.dpid;
        let at = |port| Location { dpid, port };
        at(PortNo(0))..=at(PortNo(u32::MAX))
    }

    /// `matching`: `None` if no packet can match.
    fn add(
        &mut self,
        table: TableId,
        priority: u16,
        matching: impl Into<Option<Matching>>,
        step: Step,
    ) {
        self.add_of(Owner::Way, table, priority, matching.into(), step);
    }

    fn add_of(
        &mut self,
        owner: Owner,
        table: TableId,
        priority: u16,
        matching: Option<Matching>,
        step: Step,
    ) {
        if let Some(matching) = matching {
            let key = EntryKey {
                table,
                priority,
                matching,
            };
            let copies = Targets::new();
            self.plan.entry(key).or_insert(Planned {
                step,
                copies,
                owner,
            });
        }
    }

    /// Copies all packets that come in at a port, before anything is decided about them.
    fn mirror(&mut self, port: PortNo, targets: &Targets) {
        let planned = Planned {
            step: Step::Goto(GUARD_TABLE),
            copies: targets.clone(),
            owner: Owner::Way,
        };
        let key = by_port(Matching::any(), port).map(|matching| EntryKey {
            table: MIRROR_TABLE,
            priority: MIRRORED,
            matching,
        });
        self.plan.extend(key.map(|key| (key, planned)));
    }

    /// Adds the entries for packets that no check concerns, and for packets that are never checked.
    fn ways(&mut self) {
        let ways = [
            (MIRROR_TABLE, GUARD_TABLE),
            (GUARD_TABLE, BINDING_TABLE),
            (BINDING_TABLE, PORT_ACCESS_TABLE),
            (PORT_ACCESS_TABLE, VLAN_TABLE),
            (VLAN_TABLE, PATH_TABLE),
        ];
        for (table, next) in ways {
            self.add(table, 0, Matching::any(), Step::Goto(next));
        }
        self.add(OUT_TABLE, 0, Matching::any(), LEAVE);
        const RESERVED: u64 = 0x0180_c200_0000;
        const RESERVED_MASK: u128 = 0xffff_ffff_fff0;
        let reserved = Matching::any().and_masked(Field::EthDst, RESERVED, RESERVED_MASK);
        for always in [of_type(ETH_TYPE_LLDP), reserved] {
            self.add(GUARD_TABLE, ALWAYS, always, Step::Goto(PATH_TABLE));
        }
    }

    fn guards(&mut self, access: &Access) {
        let answers = to_udp(ETH_TYPE_IPV4, DHCP_CLIENT);
        let servers = [answers.clone(), to_udp(ETH_TYPE_IPV6, DHCPV6_CLIENT)];
        let routers = [of_icmpv6(ROUTER_ADVERTISEMENT), of_icmpv6(REDIRECT)];
        let all = [
            (&access.dhcp_servers, servers, Owner::DhcpServers),
            (&access.routers, routers, Owner::Routers),
        ];
        for (places, messages, owner) in all {
            let Some(places) = places else {
                continue;
            };
            for message in messages.into_iter().flatten() {
                // Answers of DHCP servers for IPv4 state the addresses of hosts.
                let is_shown = Some(&message) == answers.as_ref() && !access.by_dhcp.is_empty();
                let on = match is_shown {
                    true => Step::Show(BINDING_TABLE),
                    false => Step::Goto(BINDING_TABLE),
                };
                for at in places.range(self.ports()) {
                    let from = by_port(message.clone(), at.port);
                    self.add(GUARD_TABLE, SERVER, from, on);
                }
                let message = Some(message);
                self.add_of(
                    owner.clone(),
                    GUARD_TABLE,
                    SERVER_ELSEWHERE,
                    message,
                    Step::Drop,
                );
            }
        }
    }

    /// Permits the packets that the hosts of a bound port can send.
    fn bind(&mut self, port: PortNo, bindings: &[Binding], is_by_dhcp: bool) {
        let on = Step::Goto(PORT_ACCESS_TABLE);
        let mut add = |priority, matching, step| {
            self.add_of(Owner::Bindings, BINDING_TABLE, priority, matching, step);
        };
        let from = |m: Option<Matching>| m.and_then(|m| by_port(m, port));
        if is_by_dhcp {
            add(ASKS_SERVER, from(asks_server()), Step::Up);
        }
        let solicits = of_icmpv6(NEIGHBOUR_SOLICITATION);
        let advertises = of_icmpv6(NEIGHBOUR_ADVERTISEMENT);
        for message in [&solicits, &advertises] {
            // Open vSwitch sees no target in a message that it cannot read.
            let unread = message
                .clone()
                .and_then(|m| m.and(Field::Ipv6NdTarget, 0u32));
            add(MALFORMED, from(unread), Step::Drop);
        }
        for message in [of_type(ETH_TYPE_ARP), solicits, advertises] {
            add(RESOLVES_OTHER, from(message), Step::Drop);
        }
        add(OTHER, from(Some(Matching::any())), Step::Drop);
        for binding in bindings {
            let own = |m: Option<Matching>| {
                from(m).and_then(|m| m.and(Field::EthSrc, binding.mac.to_u64()))
            };
            for message in binding.resolving() {
                add(RESOLVES, own(Some(message)), on);
            }
            for message in binding.sending() {
                add(OWN, own(Some(message)), on);
            }
        }
    }

    /// The entries of the rules of a place, within `scope`.
    fn lists(
        &mut self,
        access: &Access,
        (orders, mirrors): (&Orders, &Mirrors),
        place: Place,
        scope: Option<Matching>,
    ) {
        let (table, pass) = match place {
            Place::Port(_) => (PORT_ACCESS_TABLE, Step::Goto(VLAN_TABLE)),
            Place::Vlan(_) => (VLAN_ACCESS_TABLE, Step::Goto(OUT_TABLE)),
            Place::Out(_) => (OUT_ACCESS_TABLE, LEAVE),
        };
        let mut rules = BTreeMap::new();
        for (id, rule) in access.rules(place) {
            rules.entry(&rule.matching).or_insert((id, rule));
        }
        for (matching, priority) in orders.of(place) {
            let Some((id, rule)) = rules.remove(matching) else {
                continue;
            };
            let step = match rule.allows {
                true => pass,
                false => Step::Drop,
            };
            let within = scope.as_ref().and_then(|scope| both(scope, matching));
            let target = rule.mirror.as_ref();
            let target = target.and_then(|name| mirrors.target_of(name, self.dpid));
            let key = within.map(|matching| EntryKey {
                table,
                priority: *priority,
                matching,
            });
            if let Some(key) = key {
                self.plan.entry(key).or_insert(Planned {
                    step,
                    copies: target.into_iter().collect(),
                    owner: Owner::Rule(id),
                });
            }
        }
        self.add_of(Owner::End(place), table, BOTTOM, scope, Step::Drop);
    }

    /// Sends packets to a gateway with this Ethernet address to the lists of the VLANs that they
    /// are routed into.
    fn routed(&mut self, access: &Access, routing: &Routing, mac: MacAddr) {
        let Some(to_it) = to_gateway(mac) else {
            return;
        };
        for network in routing.kept() {
            let kept = to_network(to_it.clone(), network);
            self.add(OUT_TABLE, KEPT, kept, LEAVE);
        }
        for (network, vlan) in routing.networks() {
            let step = match access.out.contains_key(&vlan) {
                true => Step::With(vlan.number().into(), OUT_ACCESS_TABLE),
                false => LEAVE,
            };
            let priority = ROUTED + u16::from(network.bits());
            let routed = to_network(to_it.clone(), network);
            self.add(OUT_TABLE, priority, routed, step);
        }
    }

    /// Sends the packets of a VLAN on to the table that checks them. Returns whether the switch has
    /// any of its ports.
    fn members(&mut self, vlan: VlanId, step: Step, around: Around<'_>) -> bool {
        let mut has_any = false;
        for (port, of_port) in around.vlans.of_switch(self.dpid) {
            // A tag with the id 0 gives a priority only.
            let tags = match of_port.form(vlan) {
                Some(Form::Untagged) => vec![0, TAGGED],
                Some(Form::Tagged) => vec![TAGGED | vlan.number()],
                None => continue,
            };
            has_any = true;
            let dpid = self.dpid;
            for at in around.bonds.ports(Location { dpid, port }) {
                for tag in &tags {
                    let tagged = Matching::any().and(Field::VlanVid, *tag);
                    let from = tagged.and_then(|m| by_port(m, at.port));
                    self.add(VLAN_TABLE, MEMBER, from, step);
                }
            }
        }
        has_any
    }
}

/// A match of both; `None` if no packet matches both.
fn both(a: &Matching, b: &Matching) -> Option<Matching> {
    b.fields()
        .try_fold(a.clone(), |both, (field, value, mask)| {
            both.and_masked(field, value, mask)
        })
}

impl Binding {
    fn ips4(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.ips.iter().filter_map(|ip| match ip {
            IpAddr::V4(ip) => Some(*ip),
            IpAddr::V6(_) => None,
        })
    }

    fn ips6(&self) -> Vec<Ipv6Addr> {
        let ips = self.ips.iter().filter_map(|ip| match ip {
            IpAddr::V6(ip) => Some(*ip),
            IpAddr::V4(_) => None,
        });
        ips.chain([self.link_local()]).collect()
    }

    /// The messages of ARP and neighbour discovery that the host may send.
    fn resolving(&self) -> Vec<Matching> {
        let mac = self.mac.to_u64();
        let arp = of_type(ETH_TYPE_ARP).and_then(|m| m.and(Field::ArpSha, mac));
        let solicits =
            |own: u64| of_icmpv6(NEIGHBOUR_SOLICITATION).and_then(|m| m.and(Field::Ipv6NdSll, own));
        let advertises = |own: u64| {
            of_icmpv6(NEIGHBOUR_ADVERTISEMENT).and_then(|m| m.and(Field::Ipv6NdTll, own))
        };
        let options = [mac, 0];
        let mut all = Vec::new();
        if self.ips.is_empty() {
            all.push(arp);
            all.extend(options.map(solicits));
            all.extend(options.map(advertises));
            return all.into_iter().flatten().collect();
        }
        let with = |m: &Option<Matching>, field, value: u128| {
            m.as_ref().and_then(|m| m.clone().and(field, value))
        };
        for ip in self.ips4().chain([Ipv4Addr::UNSPECIFIED]) {
            all.push(with(&arp, Field::ArpSpa, u32::from(ip).into()));
        }
        let ips6 = self.ips6();
        for option in options {
            let (solicit, advertise) = (solicits(option), advertises(option));
            for ip in &ips6 {
                all.push(with(&solicit, Field::Ipv6Src, (*ip).into()));
                let probe = with(&solicit, Field::Ipv6Src, 0);
                all.push(with(&probe, Field::Ipv6NdTarget, (*ip).into()));
                let from = with(&advertise, Field::Ipv6Src, (*ip).into());
                for target in &ips6 {
                    all.push(with(&from, Field::Ipv6NdTarget, (*target).into()));
                }
            }
        }
        all.into_iter().flatten().collect()
    }

    /// All other packets that the host may send.
    fn sending(&self) -> Vec<Matching> {
        if self.ips.is_empty() {
            return vec![Matching::any()];
        }
        let mut all = Vec::new();
        for ip in self.ips4() {
            all.push(of_type(ETH_TYPE_IPV4).and_then(|m| m.and(Field::Ipv4Src, u32::from(ip))));
        }
        all.push(asks_server().and_then(|m| m.and(Field::Ipv4Src, 0u32)));
        for ip in self.ips6() {
            all.push(of_type(ETH_TYPE_IPV6).and_then(|m| m.and(Field::Ipv6Src, u128::from(ip))));
        }
        for kind in [
            ROUTER_SOLICITATION,
            LISTENER_REPORT,
            LISTENER_DONE,
            LISTENER_REPORT_V2,
        ] {
            all.push(of_icmpv6(kind).and_then(|m| m.and(Field::Ipv6Src, 0u32)));
        }
        all.into_iter().flatten().collect()
    }
}

impl EntryKey {
    /// The flags of the entry. The switch reports the removal of an entry that all packets take,
    /// even where nothing is decided and nobody reads counters.
    pub(crate) fn flags(&self) -> FlowModFlags {
        match (self.table, self.priority) {
            (MIRROR_TABLE | GUARD_TABLE | ONWARD_TABLE, 0) => FlowModFlags::SEND_FLOW_REM,
            _ => FlowModFlags::empty(),
        }
    }

    pub(crate) fn to_add(&self, planned: &Planned, generation: u16) -> FlowMod {
        FlowMod {
            table_id: self.table,
            cookie: EntryKind::Access.cookie(generation),
            flags: self.flags(),
            instructions: planned.instructions(),
            ..FlowMod::add(self.priority, self.matching.to_match(), Vec::new())
        }
    }

    pub(crate) fn to_delete(&self) -> FlowMod {
        FlowMod {
            command: FlowModCommand::DeleteStrict,
            table_id: self.table,
            cookie: COOKIE_PREFIX,
            cookie_mask: COOKIE_PREFIX_MASK,
            instructions: Vec::new(),
            ..FlowMod::add(self.priority, self.matching.to_match(), Vec::new())
        }
    }

    /// The key of a switch's entry; `None` if no entry of auster can have it.
    pub(crate) fn of_row(row: &FlowStats) -> Option<EntryKey> {
        Some(EntryKey {
            table: row.table_id,
            priority: row.priority,
            matching: Matching::from_match(&row.r#match)?,
        })
    }

    /// The key of an entry that a switch has removed.
    pub(crate) fn of_removed(removed: &FlowRemoved) -> Option<EntryKey> {
        Some(EntryKey {
            table: removed.table_id,
            priority: removed.priority,
            matching: Matching::from_match(&removed.r#match)?,
        })
    }

    /// The entry that lets the packets of a link pass.
    pub(crate) fn of_link(port: PortNo) -> Option<(EntryKey, Planned)> {
        let key = EntryKey {
            table: GUARD_TABLE,
            priority: LINK,
            matching: by_port(Matching::any(), port)?,
        };
        let planned = Planned {
            step: Step::Goto(PATH_TABLE),
            copies: Targets::new(),
            owner: Owner::Way,
        };
        Some((key, planned))
    }

    /// The entry that drops the packets of a port that is closed.
    pub(crate) fn of_closed(port: PortNo) -> Option<(EntryKey, Planned)> {
        let key = EntryKey {
            table: GUARD_TABLE,
            priority: CLOSED,
            matching: by_port(Matching::any(), port)?,
        };
        let planned = Planned {
            step: Step::Drop,
            copies: Targets::new(),
            owner: Owner::Way,
        };
        Some((key, planned))
    }

    pub(crate) fn is_of_link(&self) -> bool {
        self.table == GUARD_TABLE && self.priority == LINK
    }

    /// The port and the host of an entry that lets packets of a bound IPv4 address pass.
    pub(crate) fn bound_host(&self) -> Option<(PortNo, MacAddr, Ipv4Addr)> {
        let exact = |field| self.matching.exact(field);
        let is_it = self.table == BINDING_TABLE
            && self.priority == OWN
            && exact(Field::EthType) == Some(ETH_TYPE_IPV4.into())
            && !self.matching.has(Field::IpProto);
        let port = PortNo(exact(Field::InPort).filter(|_| is_it)? as u32);
        let mac = MacAddr::from_u64(exact(Field::EthSrc)? as u64);
        Some((port, mac, (exact(Field::Ipv4Src)? as u32).into()))
    }
}

impl Planned {
    pub(crate) fn instructions(&self) -> Vec<Instruction> {
        let copies = self.copies.iter().map(|to| Action::output(*to));
        let copies: Vec<Action> = copies.collect();
        let copies = (!copies.is_empty()).then_some(Instruction::ApplyActions(copies));
        copies.into_iter().chain(self.step.instructions()).collect()
    }

    /// Whether a switch's entry has the same instructions.
    pub(crate) fn is_of(&self, instructions: &[Instruction]) -> bool {
        let wanted = self.instructions();
        wanted.len() == instructions.len() && wanted.iter().all(|step| instructions.contains(step))
    }

    /// Whether both have the same effect on packets.
    pub(crate) fn does_as(&self, other: &Planned) -> bool {
        (self.step, &self.copies) == (other.step, &other.copies)
    }
}

impl Step {
    fn instructions(self) -> Vec<Instruction> {
        match self {
            Step::Drop => Vec::new(),
            Step::Goto(table) => vec![Instruction::GotoTable(table)],
            Step::With(metadata, table) => {
                let mask = u64::MAX;
                let write = Instruction::WriteMetadata { metadata, mask };
                vec![write, Instruction::GotoTable(table)]
            }
            Step::Up => vec![up()],
            Step::Show(table) => vec![up(), Instruction::GotoTable(table)],
        }
    }
}

fn up() -> Instruction {
    Instruction::ApplyActions(vec![Action::controller()])
}

/// Whether a switch's entry is one that decides about access.
pub(crate) fn is_access(cookie: Cookie) -> bool {
    EntryKind::of(cookie) == Some(EntryKind::Access)
}

/// Whether a switch refuses one of these entries. An error repeats the beginning of the message
/// that it refuses.
pub(crate) fn is_refused(error: &ErrorMessage) -> bool {
    const FLOW_MOD: u8 = 14;
    const COOKIE: std::ops::Range<usize> = 8..16;
    let cookie = error
        .data
        .get(COOKIE)
        .and_then(|bytes| bytes.try_into().ok());
    let cookie = cookie.map(|bytes| Cookie(u64::from_be_bytes(bytes)));
    error.data.get(1) == Some(&FLOW_MOD) && cookie.is_some_and(is_access)
}

/// The cookie of these entries, and the bits to compare.
pub(crate) fn cookie() -> (Cookie, Cookie) {
    let cookie = EntryKind::Access.cookie(0);
    (cookie, Cookie(COOKIE_PREFIX_MASK.0 | 0xff00))
}
