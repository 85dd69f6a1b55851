//! Access lists of ports and VLANs, and the addresses bound to ports: which packets hosts may send.
//!
//! A packet that enters at an edge port passes these checks in order: the guards of the whole
//! network (DHCP servers and routers only at stated ports), the bindings of its port, the lists of
//! its port, the lists of its VLAN and, if it is routed, the lists of the VLAN that it is routed
//! into. Each check may drop the packet. Lists work as in Faucet: the first matching rule decides,
//! and a packet that matches no rule is dropped. Several lists at one place act as one list, in
//! their order. Packets from ends of links are not checked: they were checked where they entered.
//!
//! [`Access::judge`] decides about one packet. [`tables`] makes the entries with which switches
//! decide the same, and [`order`] makes priorities that stay when rules change.

pub mod learned;
pub mod order;
pub mod shadow;
pub mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use openflow::message::Capabilities;
use openflow::packet::{PacketFields, dhcp};
use openflow::{DatapathId, Field, MacAddr, PortNo, Version};

use crate::Location;
use crate::bond::Bonds;
use crate::entry::ETH_TYPE_LLDP;
use crate::pipeline::ACCESS_TABLES;
use crate::qos::flow::Matching;
use crate::routing::{Gateways, Routing};
use crate::session::SwitchUp;
use crate::vlan::{VlanId, Vlans};

const ETH_TYPE_ARP: u16 = 0x0806;
const ETH_TYPE_IPV4: u16 = 0x0800;
const ETH_TYPE_IPV6: u16 = 0x86dd;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;
const LISTENER_REPORT: u8 = 131;
const LISTENER_DONE: u8 = 132;
const LISTENER_REPORT_V2: u8 = 143;
/// The ports to which DHCP and DHCPv6 servers answer (RFC 2131, RFC 8415).
const DHCP_CLIENT: u16 = dhcp::CLIENT;
const DHCPV6_CLIENT: u16 = 546;
const DHCP_SERVER: u16 = dhcp::SERVER;

/// The minimum number of tables of a switch that can decide about access and carry the fabric.
pub const TABLES_MIN: u8 = ACCESS_TABLES + 4;
/// The minimum number of tables of a switch with static entries that pass packets on.
pub const TABLES_MIN_ONWARD: u8 = TABLES_MIN + 1;

/// One rule of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The name shown with the rule's counter. If empty, the rule's number is shown.
    pub name: String,
    pub matching: Matching,
    pub allows: bool,
    /// The mirror whose port gets copies of the packets, on its own switch.
    pub mirror: Option<String>,
}

/// A named list of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    pub name: String,
    pub rules: Vec<Rule>,
}

/// A host that may send from a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binding {
    pub mac: MacAddr,
    /// Its IP addresses. If empty, the host may use any address.
    pub ips: BTreeSet<IpAddr>,
}

/// A rule: its list, and its number in that list, counted from 0.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId {
    pub acl: usize,
    pub rule: usize,
}

/// Everything configured about access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    pub acls: Vec<Acl>,
    /// The lists of each port, as indexes into `acls`.
    pub ports: BTreeMap<Location, Vec<usize>>,
    pub vlans: BTreeMap<VlanId, Vec<usize>>,
    /// The lists for packets that are routed into a VLAN.
    pub out: BTreeMap<VlanId, Vec<usize>>,
    pub bindings: BTreeMap<Location, Vec<Binding>>,
    /// Ports that are also bound to the addresses that their hosts get by DHCP.
    pub by_dhcp: BTreeSet<Location>,
    /// The ports with DHCP servers behind them. `None`: any port may have one.
    pub dhcp_servers: Option<BTreeSet<Location>>,
    /// The ports with IPv6 routers behind them. `None`: any port may have one.
    pub routers: Option<BTreeSet<Location>>,
}

/// The reason why a packet passes or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing configured concerns the packet, or everything that does allows it: the rules that
    /// did.
    Allowed(Vec<RuleId>),
    /// A rule drops it.
    Denied(RuleId),
    /// No rule of the lists of this place matches.
    NoRule(Place),
    /// It is not from a host that the port is bound to.
    NotBound,
    /// A DHCP server's answer from a port without one.
    DhcpServer,
    /// A router's message from a port without one.
    Router,
    /// Its port is not a member of the VLAN in its tag.
    NoMember,
}

/// A port or a VLAN that lists belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Port(Location),
    Vlan(VlanId),
    /// A VLAN that packets are routed into.
    Out(VlanId),
}

impl Verdict {
    pub fn is_allowed(&self) -> bool {
        matches!(self, Verdict::Allowed(_))
    }
}

impl Access {
    /// Whether anything is configured.
    pub fn is_on(&self) -> bool {
        let lists = self.ports.is_empty() && self.vlans.is_empty() && self.out.is_empty();
        !lists
            || !self.bindings.is_empty()
            || !self.by_dhcp.is_empty()
            || self.dhcp_servers.is_some()
            || self.routers.is_some()
    }

    /// Whether a switch has any access decision to make.
    pub fn concerns(&self, dpid: DatapathId, vlans: &Vlans, gateways: &Gateways) -> bool {
        let at = |port| Location { dpid, port };
        let ports = at(PortNo(0))..=at(PortNo(u32::MAX));
        let has_vlan = |vlan: &VlanId| {
            let mut of_switch = vlans.of_switch(dpid);
            of_switch.any(|(_, port)| port.all().any(|of_port| of_port == *vlan))
        };
        self.dhcp_servers.is_some()
            || self.routers.is_some()
            || self.ports.range(ports.clone()).next().is_some()
            || self.bindings.range(ports.clone()).next().is_some()
            || self.by_dhcp.range(ports).next().is_some()
            || self.vlans.keys().any(has_vlan)
            || !self.out.is_empty() && gateways.vlans.keys().any(has_vlan)
    }

    /// A copy with all ports of a bond in place of the bond.
    #[must_use]
    pub(crate) fn of_ports(&self, bonds: &Bonds) -> Access {
        fn each<T: Clone>(bonds: &Bonds, all: &BTreeMap<Location, T>) -> BTreeMap<Location, T> {
            let ports = |(at, of_port): (&Location, &T)| {
                let of_port = of_port.clone();
                let ports = bonds.ports(*at).into_iter();
                ports.map(move |at| (at, of_port.clone()))
            };
            all.iter().flat_map(ports).collect()
        }
        let trusted = |all: &Option<BTreeSet<Location>>| {
            let ports = |all: &BTreeSet<Location>| {
                let ports = all.iter().flat_map(|at| bonds.ports(bonds.place(*at)));
                ports.collect()
            };
            all.as_ref().map(ports)
        };
        let by_dhcp = self.by_dhcp.iter().flat_map(|at| bonds.ports(*at));
        let by_dhcp: BTreeSet<Location> = by_dhcp.collect();
        let mut bindings = each(bonds, &self.bindings);
        for at in &by_dhcp {
            bindings.entry(*at).or_default();
        }
        Access {
            acls: self.acls.clone(),
            vlans: self.vlans.clone(),
            out: self.out.clone(),
            ports: each(bonds, &self.ports),
            bindings,
            by_dhcp,
            dhcp_servers: trusted(&self.dhcp_servers),
            routers: trusted(&self.routers),
        }
    }

    /// The rules of a place, in their order. Those before it in the same list come first.
    pub fn rules(&self, place: Place) -> impl Iterator<Item = (RuleId, &Rule)> {
        let acls = match place {
            Place::Port(at) => self.ports.get(&at),
            Place::Vlan(vlan) => self.vlans.get(&vlan),
            Place::Out(vlan) => self.out.get(&vlan),
        };
        acls.into_iter().flatten().flat_map(|acl| {
            let rules = self.acls.get(*acl).map_or(&[][..], |acl| &acl.rules);
            let id = |rule| RuleId { acl: *acl, rule };
            let rules = rules.iter().enumerate();
            rules.map(move |(rule, found)| (id(rule), found))
        })
    }

    /// A rule in words: its list, and its name or number.
    pub fn rule_name(&self, rule: &RuleId) -> String {
        let acl = self.acls.get(rule.acl);
        let name = acl.map_or("", |acl| &acl.name);
        let found = acl.and_then(|acl| acl.rules.get(rule.rule));
        match found.filter(|found| !found.name.is_empty()) {
            Some(found) => format!("{name} '{}'", found.name),
            None => format!("{name} rule {}", rule.rule + 1),
        }
    }

    fn has_lists(&self, place: Place) -> bool {
        match place {
            Place::Port(at) => self.ports.contains_key(&at),
            Place::Vlan(vlan) => self.vlans.contains_key(&vlan),
            Place::Out(vlan) => self.out.contains_key(&vlan),
        }
    }

    /// Decides about a packet that enters at an edge port.
    pub fn judge(
        &self,
        (vlans, routing): (&Vlans, &Routing),
        at: Location,
        packet: &PacketFields,
    ) -> Verdict {
        if passes_always(packet) {
            return Verdict::Allowed(Vec::new());
        }
        if self.refuses_server(at, packet) {
            return Verdict::DhcpServer;
        }
        if self.refuses_router(at, packet) {
            return Verdict::Router;
        }
        let is_by_dhcp = self.by_dhcp.contains(&at);
        let bindings = self.bindings.get(&at);
        let may_send = |binding: &Binding| binding.allows(packet);
        let is_bound = bindings.is_some_and(|bindings| bindings.iter().any(may_send));
        let asks = is_by_dhcp && asks_server(packet);
        if (bindings.is_some() || is_by_dhcp) && !is_bound && !asks {
            return Verdict::NotBound;
        }
        let mut allowed = Vec::new();
        if let Err(verdict) = self.decide(Place::Port(at), packet, &mut allowed) {
            return verdict;
        }
        let Some(vlan) = vlans.classify(at, packet.vlan_id()) else {
            return Verdict::NoMember;
        };
        if let Err(verdict) = self.decide(Place::Vlan(vlan), packet, &mut allowed) {
            return verdict;
        }
        let target = routing.target(vlan, packet);
        let routed = target.map(|into| self.decide(Place::Out(into), packet, &mut allowed));
        match routed {
            Some(Err(verdict)) => verdict,
            _ => Verdict::Allowed(allowed),
        }
    }

    /// Whether a packet may be routed into a VLAN.
    pub fn may_enter(&self, vlan: VlanId, packet: &PacketFields) -> bool {
        self.decide(Place::Out(vlan), packet, &mut Vec::new())
            .is_ok()
    }

    /// Applies the lists of one place.
    fn decide(
        &self,
        place: Place,
        packet: &PacketFields,
        allowed: &mut Vec<RuleId>,
    ) -> Result<(), Verdict> {
        if !self.has_lists(place) {
            return Ok(());
        }
        let decides = |(_, rule): &(RuleId, &Rule)| rule.matching.takes(packet);
        match self.rules(place).find(decides) {
            Some((id, rule)) if rule.allows => {
                allowed.push(id);
                Ok(())
            }
            Some((id, _)) => Err(Verdict::Denied(id)),
            None => Err(Verdict::NoRule(place)),
        }
    }

    fn refuses_server(&self, at: Location, packet: &PacketFields) -> bool {
        let to = packet.get(Field::UdpDst);
        let is_answer = match packet.eth_type() {
            Some(ETH_TYPE_IPV4) => to == Some(DHCP_CLIENT.into()),
            Some(ETH_TYPE_IPV6) => to == Some(DHCPV6_CLIENT.into()),
            _ => false,
        };
        is_answer && self.dhcp_servers.is_some() && !self.trusts(at)
    }

    /// Whether a DHCP server is configured behind a port.
    pub(crate) fn trusts(&self, at: Location) -> bool {
        let servers = self.dhcp_servers.as_ref();
        servers.is_some_and(|servers| servers.contains(&at))
    }

    fn refuses_router(&self, at: Location, packet: &PacketFields) -> bool {
        let kind = packet.get(Field::Icmpv6Type);
        let is_router = [ROUTER_ADVERTISEMENT, REDIRECT].map(|kind| Some(u128::from(kind)));
        let routers = self.routers.as_ref();
        is_router.contains(&kind) && routers.is_some_and(|routers| !routers.contains(&at))
    }
}

/// Whether a switch has the tables to decide about access.
pub(crate) fn can_decide(up: &SwitchUp) -> bool {
    let has_groups = up.features.capabilities.contains(Capabilities::GROUP_STATS);
    up.version >= Version::V13 && has_groups && up.features.n_tables >= TABLES_MIN
}

/// Whether a switch also has the table of static entries that pass packets on.
pub(crate) fn can_lead_onward(up: &SwitchUp) -> bool {
    can_decide(up) && up.features.n_tables >= TABLES_MIN_ONWARD
}

/// Whether a packet is never checked: LLDP, and messages between bridges and their neighbours
/// (802.1D, 7.12.6). None of them is forwarded, except for spanning trees where ports pass them.
fn passes_always(packet: &PacketFields) -> bool {
    let is_reserved = |dst: MacAddr| {
        let [head @ .., last] = dst.0;
        head == [0x01, 0x80, 0xc2, 0, 0] && last < 0x10
    };
    packet.eth_type() == Some(ETH_TYPE_LLDP) || packet.eth_dst().is_some_and(is_reserved)
}

/// Whether a packet is from a DHCP client to a server.
fn asks_server(packet: &PacketFields) -> bool {
    let is = |field, port: u16| packet.get(field) == Some(port.into());
    packet.eth_type() == Some(ETH_TYPE_IPV4)
        && is(Field::UdpSrc, DHCP_CLIENT)
        && is(Field::UdpDst, DHCP_SERVER)
}

impl Binding {
    /// Whether the bound host can have sent a packet.
    fn allows(&self, packet: &PacketFields) -> bool {
        let is_own = |field| {
            let mac = packet.get(field).map(|mac| MacAddr::from_u64(mac as u64));
            mac == Some(self.mac)
        };
        // A question may leave out its own hardware address.
        let is_own_or_none = |field| packet.get(field).unwrap_or(0) == 0 || is_own(field);
        let ip = |field| {
            let ip = packet.get(field).map(|ip| Ipv4Addr::from(ip as u32));
            ip.unwrap_or(Ipv4Addr::BROADCAST)
        };
        let ip6 = |field| {
            packet
                .get(field)
                .map_or(Ipv6Addr::LOCALHOST, Ipv6Addr::from)
        };
        if !is_own(Field::EthSrc) {
            return false;
        }
        match packet.eth_type() {
            Some(ETH_TYPE_ARP) => {
                is_own(Field::ArpSha) && self.owns_or_asks(ip(Field::ArpSpa).into())
            }
            Some(ETH_TYPE_IPV4) => self.has(ip(Field::Ipv4Src).into()) || self.asks_dhcp(packet),
            Some(ETH_TYPE_IPV6) => {
                let src = ip6(Field::Ipv6Src);
                let own = self.has(src.into());
                match packet.get(Field::Icmpv6Type).map(|kind| kind as u8) {
                    Some(NEIGHBOUR_SOLICITATION) => {
                        let may_ask = own || self.has(ip6(Field::Ipv6NdTarget).into());
                        let is_probe = src.is_unspecified() && may_ask;
                        (own || is_probe) && is_own_or_none(Field::Ipv6NdSll)
                    }
                    Some(NEIGHBOUR_ADVERTISEMENT) => {
                        let target = ip6(Field::Ipv6NdTarget);
                        own && self.has(target.into()) && is_own_or_none(Field::Ipv6NdTll)
                    }
                    Some(
                        ROUTER_SOLICITATION | LISTENER_REPORT | LISTENER_DONE | LISTENER_REPORT_V2,
                    ) => own || src.is_unspecified(),
                    _ => own,
                }
            }
            _ => self.ips.is_empty(),
        }
    }

    /// Whether the host has this address. It always has the link-local address of its hardware
    /// address.
    fn has(&self, ip: IpAddr) -> bool {
        self.ips.is_empty() || self.ips.contains(&ip) || ip == IpAddr::V6(self.link_local())
    }

    fn owns_or_asks(&self, ip: IpAddr) -> bool {
        ip.is_unspecified() || self.has(ip)
    }

    /// Whether a packet without an address asks for one.
    fn asks_dhcp(&self, packet: &PacketFields) -> bool {
        packet.get(Field::Ipv4Src) == Some(0) && asks_server(packet)
    }

    /// The address that hosts derive from their hardware address (RFC 4291, appendix A).
    pub(crate) fn link_local(&self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.mac.0;
        let word = |high, low| u16::from_be_bytes([high, low]);
        let id = [word(a ^ 2, b), word(c, 0xff), word(0xfe, d), word(e, f)];
        Ipv6Addr::new(0xfe80, 0, 0, 0, id[0], id[1], id[2], id[3])
    }
}

#[cfg(test)]
mod tests;
