//! Routing between VLANs: gateways, static routes, and the next hop of a packet.
//!
//! A VLAN with a gateway reaches all other VLANs with a gateway; a VLAN without a gateway reaches
//! none. The longest prefix among the subnets of gateways and the static routes decides. This
//! module only decides. [`neighbours`] asks for next hops, and [`flow`] defines the entries with
//! which switches route.

pub mod flow;
pub mod neighbours;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use openflow::packet::PacketFields;
use openflow::packet::ip::{Datagram, is_host};
use openflow::{Field, MacAddr};

use crate::timeouts::Prefix;
use crate::vlan::VlanId;

/// The Ethernet address of all gateways, unless the settings give another. It is Faucet's.
pub const GATEWAY_MAC: MacAddr = MacAddr([0x0e, 0, 0, 0, 0, 1]);

/// An address of a gateway, and its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subnet {
    pub address: IpAddr,
    pub network: Prefix,
}

impl Subnet {
    /// The broadcast address of the network: its last IPv4 address.
    fn broadcast(self) -> Option<Ipv4Addr> {
        let len = self.network.bits();
        match self.network.ip() {
            IpAddr::V4(first) if len < 31 => {
                let hosts = u32::MAX.checked_shr(len.into()).unwrap_or(0);
                Some(Ipv4Addr::from(u32::from(first) | hosts))
            }
            _ => None,
        }
    }

    /// Whether no host can have the address: it is the network's own or its broadcast address.
    fn is_reserved(self) -> bool {
        let len = self.network.bits();
        let is_first = self.address == self.network.ip();
        match self.address {
            IpAddr::V4(ip) => len < 31 && (is_first || self.broadcast() == Some(ip)),
            // The subnet-router anycast address (RFC 4291, 2.6.1).
            IpAddr::V6(_) => len < 127 && is_first,
        }
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.network.bits())
    }
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Subnet, String> {
        let example = "10.0.10.254/24 or fd00:10::1/64";
        let wrong = || format!("'{text}' is no address with a length, such as {example}");
        let (address, len) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let len: u8 = len.parse().map_err(|_| wrong())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        if !(1..=width).contains(&len) {
            return Err(format!(
                "'{text}' has a length of {len}; it must be a number from 1 to {width}"
            ));
        }
        if !is_routed(address) {
            return Err(format!(
                "'{text}' cannot be a gateway, since routers send no packets on to such addresses; \
                 use one such as {example}"
            ));
        }
        let subnet = Subnet {
            address,
            network: Prefix::of(address, len),
        };
        match subnet.is_reserved() {
            true => Err(format!(
                "'{text}' is the network or broadcast address; use another address of {}",
                subnet.network
            )),
            false => Ok(subnet),
        }
    }
}

/// Whether a router forwards packets to an address: it belongs to one host and is not link-local.
pub fn is_routed(ip: IpAddr) -> bool {
    is_host(ip)
        && match ip {
            IpAddr::V4(ip) => !ip.is_link_local(),
            IpAddr::V6(ip) => !ip.is_unicast_link_local() && ip.to_ipv4_mapped().is_none(),
        }
}

/// The networks to which no router forwards packets, as in [`is_routed`], in the family of an
/// address.
fn unrouted(family: IpAddr) -> impl Iterator<Item = Prefix> {
    let v4 = |first: [u8; 4], len| Prefix::of(Ipv4Addr::from(first).into(), len);
    let v6 = |first: [u16; 8], len| Prefix::of(Ipv6Addr::from(first).into(), len);
    let networks = match family {
        IpAddr::V4(_) => [
            v4([0; 4], 8),
            v4([127, 0, 0, 0], 8),
            v4([169, 254, 0, 0], 16),
            v4([224, 0, 0, 0], 3),
        ],
        IpAddr::V6(_) => [
            v6([0; 8], 127),
            v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96),
            v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
            v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8),
        ],
    };
    networks.into_iter()
}

/// The gateway of a VLAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    pub mac: MacAddr,
    pub subnets: Vec<Subnet>,
}

impl Gateway {
    pub fn owns(&self, ip: IpAddr) -> bool {
        self.subnets.iter().any(|subnet| subnet.address == ip)
    }

    /// The address from which the gateway sends to `ip`: its address in the same network, if it has
    /// one, or else its first address of the family.
    pub fn address_for(&self, ip: IpAddr) -> Option<IpAddr> {
        let family = self.subnets.iter();
        let mut family = family.filter(|subnet| subnet.address.is_ipv4() == ip.is_ipv4());
        let first = family.clone().next()?;
        let near = family.find(|subnet| subnet.network.contains(ip));
        Some(near.unwrap_or(first).address)
    }
}

/// The settings: gateways by VLAN, and the next hops of networks behind them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gateways {
    pub vlans: BTreeMap<VlanId, Gateway>,
    pub routes: BTreeMap<Prefix, IpAddr>,
}

impl Gateways {
    /// The VLAN whose gateway has an address in the network of `ip`.
    pub fn vlan_of(&self, ip: IpAddr) -> Option<VlanId> {
        let mut vlans = self.vlans.iter();
        let found = vlans.find(|(_, gateway)| {
            let mut subnets = gateway.subnets.iter();
            subnets.any(|subnet| subnet.network.contains(ip))
        });
        found.map(|(vlan, _)| *vlan)
    }
}

/// The host or router that a packet goes to next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hop {
    pub vlan: VlanId,
    pub ip: IpAddr,
}

/// The target of a network's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Connected(VlanId),
    Via(Hop),
}

/// The decision about a packet to a gateway's Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No router forwards the packet: its addresses do not belong to single hosts, or its sender's
    /// VLAN has no gateway of its family.
    Refused,
    /// The packet is for a gateway itself.
    Own,
    /// The packet has no hops left.
    Expired,
    NoRoute,
    /// The next hop, and the addresses that are reached through it.
    Forward(Hop, Prefix),
}

/// The gateways in use, and the networks that they reach.
#[derive(Debug, Default)]
pub struct Routing {
    gateways: Gateways,
    /// Targets by prefix length and network, for IPv4 and for IPv6.
    networks: [BTreeMap<u8, BTreeMap<IpAddr, Target>>; 2],
}

impl Routing {
    pub fn new(gateways: Gateways) -> Routing {
        let mut routing = Routing::default();
        for (to, via) in &gateways.routes {
            if let Some(vlan) = gateways.vlan_of(*via) {
                routing.add(*to, Target::Via(Hop { vlan, ip: *via }));
            }
        }
        for (vlan, gateway) in &gateways.vlans {
            for subnet in &gateway.subnets {
                routing.add(subnet.network, Target::Connected(*vlan));
            }
        }
        routing.gateways = gateways;
        routing
    }

    fn add(&mut self, network: Prefix, target: Target) {
        let family = &mut self.networks[usize::from(network.ip().is_ipv6())];
        let of_len = family.entry(network.bits()).or_default();
        of_len.insert(network.ip(), target);
    }

    pub fn is_on(&self) -> bool {
        !self.gateways.vlans.is_empty()
    }

    pub fn gateways(&self) -> &Gateways {
        &self.gateways
    }

    /// The gateway of a VLAN.
    pub fn of(&self, vlan: VlanId) -> Option<&Gateway> {
        self.gateways.vlans.get(&vlan)
    }

    /// The next hop towards an address, from the longest network that contains the address. The
    /// prefix covers the addresses around it whose packets take the same next hop.
    pub fn next_hop(&self, to: IpAddr) -> Option<(Hop, Prefix)> {
        let family = &self.networks[usize::from(to.is_ipv6())];
        let mut longest_first = family.iter().rev();
        let (network, target) = longest_first.find_map(|(len, networks)| {
            let network = Prefix::of(to, *len);
            Some((network, networks.get(&network.ip())?))
        })?;
        Some(match target {
            Target::Connected(vlan) => {
                let hop = Hop {
                    vlan: *vlan,
                    ip: to,
                };
                (hop, Prefix::host(to))
            }
            Target::Via(hop) => (*hop, self.block(to, network)),
        })
    }

    /// The largest part of a network that contains `to`, but no address of another network within,
    /// no unrouted address and no gateway's own address. Two parts of a network are equal or
    /// disjoint.
    fn block(&self, to: IpAddr, network: Prefix) -> Prefix {
        let family = &self.networks[usize::from(to.is_ipv6())];
        let longer = family.range(network.bits() + 1..);
        let others = longer.flat_map(|(len, networks)| {
            let first = networks.keys();
            first.map(|ip| Prefix::of(*ip, *len))
        });
        let others = others.chain(unrouted(to)).chain(self.unrouted_hosts(to));
        let within = others.filter(|other| network.covers(*other));
        let len = within.map(|other| Prefix::shared_bits(to, other.ip()) + 1);
        let len = len.fold(network.bits(), u8::max);
        Prefix::of(to, len.min(Prefix::host(to).bits()))
    }

    /// Decides about a packet from a VLAN to the Ethernet address of its gateway.
    pub fn judge(&self, vlan: VlanId, packet: &Datagram<'_>) -> Verdict {
        let Some(gateway) = self.of(vlan) else {
            return Verdict::Refused;
        };
        let is_from_host = is_routed(packet.from) && !self.is_own(packet.from);
        if !is_from_host || gateway.address_for(packet.from).is_none() {
            return Verdict::Refused;
        }
        if self.is_own(packet.to) {
            return Verdict::Own;
        }
        if !is_routed(packet.to) || self.is_reserved(packet.to) {
            return Verdict::Refused;
        }
        if packet.ttl <= 1 {
            return Verdict::Expired;
        }
        match self.next_hop(packet.to) {
            Some((hop, to)) => Verdict::Forward(hop, to),
            None => Verdict::NoRoute,
        }
    }

    /// The next hop of all packets of a VLAN to these addresses; `None` if they are not routed, or
    /// not all to the same next hop.
    pub fn leads(&self, vlan: VlanId, to: Prefix) -> Option<Hop> {
        let gateway = self.of(vlan)?;
        let is_of_host = !self.is_own(to.ip()) && !self.is_reserved(to.ip());
        let (hop, whole) = self.next_hop(to.ip()).filter(|_| is_of_host)?;
        let has_family = gateway.address_for(to.ip()).is_some();
        (whole == to && has_family).then_some(hop)
    }

    /// The addresses to which packets are not forwarded because a gateway owns them or no host can
    /// have them, in the family of an address.
    fn unrouted_hosts(&self, family: IpAddr) -> impl Iterator<Item = Prefix> {
        let gateways = self.gateways.vlans.values();
        let subnets = gateways.flat_map(|gateway| &gateway.subnets);
        let of_family = subnets.filter(move |it| it.address.is_ipv4() == family.is_ipv4());
        let hosts = of_family.flat_map(|subnet| {
            let first = subnet.network.ip();
            let broadcast = subnet.broadcast().map(IpAddr::V4);
            [Some(subnet.address), Some(first), broadcast]
        });
        hosts.flatten().map(Prefix::host)
    }

    /// The VLAN into which a packet from `vlan` is routed; `None` for packets that the gateway does
    /// not receive, keeps or refuses.
    pub fn target(&self, vlan: VlanId, packet: &PacketFields) -> Option<VlanId> {
        let is_to_gateway = packet.eth_dst() == Some(self.of(vlan)?.mac);
        let to = packet
            .get(Field::Ipv4Dst)
            .map(|ip| IpAddr::V4((ip as u32).into()));
        let to = to.or_else(|| packet.get(Field::Ipv6Dst).map(|ip| IpAddr::V6(ip.into())));
        let to = to.filter(|to| is_to_gateway && is_routed(*to) && !self.is_own(*to))?;
        self.next_hop(to).map(|(hop, _)| hop.vlan)
    }

    /// All networks, each with the VLAN into which its packets are routed. The longest network
    /// decides, except for the networks of [`Routing::kept`].
    pub fn networks(&self) -> impl Iterator<Item = (Prefix, VlanId)> {
        let all = self.networks.iter().flatten();
        all.flat_map(|(len, networks)| {
            networks.iter().map(|(first, target)| {
                let vlan = match target {
                    Target::Connected(vlan) => *vlan,
                    Target::Via(hop) => hop.vlan,
                };
                (Prefix::of(*first, *len), vlan)
            })
        })
    }

    /// The networks whose packets a gateway keeps or refuses, whatever the routes are.
    pub fn kept(&self) -> impl Iterator<Item = Prefix> {
        let subnets = self.gateways.vlans.values().flat_map(|it| &it.subnets);
        let own = subnets.map(|subnet| Prefix::host(subnet.address));
        let families = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        own.chain(families.into_iter().flat_map(unrouted))
    }

    fn is_own(&self, ip: IpAddr) -> bool {
        self.gateways.vlans.values().any(|gateway| gateway.owns(ip))
    }

    /// Whether an address lies in a subnet but no host can have it. Packets to a subnet's broadcast
    /// address are not forwarded (RFC 2644).
    fn is_reserved(&self, ip: IpAddr) -> bool {
        let gateways = self.gateways.vlans.values();
        let mut subnets = gateways.flat_map(|gateway| &gateway.subnets);
        subnets.any(|subnet| {
            let host = Subnet {
                address: ip,
                network: subnet.network,
            };
            subnet.network.contains(ip) && host.is_reserved()
        })
    }
}
