//! Classes: the hosts, networks and services that they match.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use openflow::MacAddr;

use super::{FirstPackets, Lifetime};
use crate::entry::{Family, Rule, proto};

/// Pairs of hosts with their own treatment, in the named direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowClass {
    pub name: String,
    /// The sending host or network; any if `None`.
    pub src: Option<HostName>,
    /// The receiving host or network; any if `None`.
    pub dst: Option<HostName>,
    /// The packets of the class; all if `None`.
    pub service: Option<Service>,
    pub lifetime: Option<Lifetime>,
    pub first_packets: Option<FirstPackets>,
    /// Whether its packets are dropped and counted.
    pub forbid: bool,
    /// Whether its entries are never evicted; `paper` also raises their timeouts.
    pub priority: bool,
}

/// An administrator's name for a host, or for all hosts of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostName {
    Mac(MacAddr),
    /// The address that a host claims by ARP or neighbour discovery.
    Ip(IpAddr),
    /// Hosts with an address in the network.
    Net(Prefix),
}

/// Packets of one protocol between two hosts, and perhaps only of some ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub proto: Proto,
    /// The source ports; any if empty.
    pub src_ports: Vec<u16>,
    /// The destination ports; any if empty.
    pub dst_ports: Vec<u16>,
}

/// The protocol over IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proto {
    /// All ICMP of IPv4, and only the echoes of ICMPv6: neighbour discovery is ICMPv6 too.
    Icmp,
    /// A protocol by its number.
    Number(u8),
}

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    /// The address, with zero bits past the length.
    ip: IpAddr,
    len: u8,
}

impl FlowClass {
    /// Whether the class names these hosts.
    pub(super) fn is_of(
        &self,
        src: MacAddr,
        dst: MacAddr,
        has_ip: &impl Fn(MacAddr, Prefix) -> bool,
    ) -> bool {
        let is = |name: Option<HostName>, mac| name.is_none_or(|name| name.is_of(mac, has_ip));
        is(self.src, src) && is(self.dst, dst)
    }

    /// Whether this class matches all packets of the other.
    pub(super) fn covers(&self, other: &FlowClass) -> bool {
        let covers = |of: Option<HostName>, other: Option<HostName>| match (of, other) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(of), Some(other)) => of.covers(other),
        };
        let has_its_packets = match (&self.service, &other.service) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(service), Some(other)) => service.covers(other),
        };
        covers(self.src, other.src) && covers(self.dst, other.dst) && has_its_packets
    }
}

impl Service {
    /// The rules of the service in these families. `rank` is the rank of its class.
    pub(super) fn rules(&self, rank: u8, families: &[Family]) -> Vec<Rule> {
        let any = |ports: &[u16]| match ports {
            [] => vec![0],
            some => some.to_vec(),
        };
        let mut rules = Vec::new();
        for family in families.iter().copied() {
            for (proto, its_type) in self.proto.numbers(family) {
                for src_port in any(&self.src_ports) {
                    rules.extend(any(&self.dst_ports).into_iter().map(|dst_port| Rule {
                        rank,
                        family,
                        proto,
                        src_port: src_port.max(its_type),
                        dst_port,
                    }));
                }
            }
        }
        rules
    }

    fn covers(&self, other: &Service) -> bool {
        let covers = |ports: &[u16], other: &[u16]| {
            let has_all = !other.is_empty() && other.iter().all(|port| ports.contains(port));
            ports.is_empty() || has_all
        };
        self.proto == other.proto
            && covers(&self.src_ports, &other.src_ports)
            && covers(&self.dst_ports, &other.dst_ports)
    }
}

impl Proto {
    pub const TCP: Proto = Proto::Number(proto::TCP);
    pub const UDP: Proto = Proto::Number(proto::UDP);
    pub const SCTP: Proto = Proto::Number(proto::SCTP);

    const NAMES: [(&str, Proto); 4] = [
        ("tcp", Proto::TCP),
        ("udp", Proto::UDP),
        ("icmp", Proto::Icmp),
        ("sctp", Proto::SCTP),
    ];

    pub(super) fn has_ports(self) -> bool {
        [Proto::TCP, Proto::UDP, Proto::SCTP].contains(&self)
    }

    /// The protocol numbers in the header, each with a type if only some types are meant.
    fn numbers(self, family: Family) -> Vec<(u8, u16)> {
        const ECHO_REQUEST: u16 = 128;
        const ECHO_REPLY: u16 = 129;
        match (self, family) {
            (Proto::Number(number), _) => vec![(number, 0)],
            (Proto::Icmp, Family::Ipv6) => [ECHO_REQUEST, ECHO_REPLY]
                .map(|echo| (proto::ICMPV6, echo))
                .to_vec(),
            (Proto::Icmp, _) => vec![(proto::ICMP, 0)],
        }
    }
}

impl FromStr for Proto {
    type Err = String;

    fn from_str(text: &str) -> Result<Proto, String> {
        let found = Proto::NAMES.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, proto)| proto).ok_or_else(|| {
            format!("'{text}' is none of tcp, udp, icmp, sctp, nor a number from 1 to 255")
        })
    }
}

impl HostName {
    pub(super) fn is_of(self, mac: MacAddr, has_ip: &impl Fn(MacAddr, Prefix) -> bool) -> bool {
        match self {
            HostName::Mac(named) => named == mac,
            HostName::Ip(ip) => has_ip(mac, Prefix::host(ip)),
            HostName::Net(prefix) => has_ip(mac, prefix),
        }
    }

    /// Whether this name matches every host that the other matches. The addresses of hosts are not
    /// known here.
    pub(crate) fn covers(self, other: HostName) -> bool {
        match (self.prefix(), other.prefix()) {
            (Some(prefix), Some(other)) => prefix.covers(other),
            _ => self == other,
        }
    }

    fn prefix(self) -> Option<Prefix> {
        match self {
            HostName::Mac(_) => None,
            HostName::Ip(ip) => Some(Prefix::host(ip)),
            HostName::Net(prefix) => Some(prefix),
        }
    }
}

impl Prefix {
    /// The prefix of one address.
    pub fn host(ip: IpAddr) -> Prefix {
        let len = bits(ip).1;
        Prefix { ip, len }
    }

    /// The first address of the prefix.
    pub fn ip(self) -> IpAddr {
        self.ip
    }

    /// The number of bits that all of its addresses share.
    pub fn bits(self) -> u8 {
        self.len
    }

    /// The address, if the prefix has only one.
    pub fn single(self) -> Option<IpAddr> {
        (self == Prefix::host(self.ip)).then_some(self.ip)
    }

    pub fn contains(self, ip: IpAddr) -> bool {
        self.covers(Prefix::host(ip))
    }

    pub(crate) fn covers(self, other: Prefix) -> bool {
        self.ip.is_ipv4() == other.ip.is_ipv4()
            && self.len <= other.len
            && Prefix::of(other.ip, self.len) == self
    }

    /// The number of leading bits that two addresses of one family share.
    pub(crate) fn shared_bits(a: IpAddr, b: IpAddr) -> u8 {
        let ((a, width), (b, _)) = (bits(a), bits(b));
        let unused = 128 - u32::from(width);
        ((a ^ b).leading_zeros() - unused) as u8
    }

    /// The prefix of the first `len` bits of an address, which must have at least `len` bits.
    pub(crate) fn of(ip: IpAddr, len: u8) -> Prefix {
        let (value, width) = bits(ip);
        let rest = u32::from(width - len);
        let kept = value.checked_shr(rest).unwrap_or(0);
        let kept = kept.checked_shl(rest).unwrap_or(0);
        let ip = match ip {
            IpAddr::V4(_) => IpAddr::V4((kept as u32).into()),
            IpAddr::V6(_) => IpAddr::V6(kept.into()),
        };
        Prefix { ip, len }
    }
}

/// An address as a number, and its width.
fn bits(ip: IpAddr) -> (u128, u8) {
    match ip {
        IpAddr::V4(ip) => (u32::from(ip).into(), 32),
        IpAddr::V6(ip) => (ip.into(), 128),
    }
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<HostName, String> {
        if text.contains('/') {
            return text.parse().map(HostName::Net);
        }
        if let Ok(ip) = text.parse() {
            return Ok(HostName::Ip(ip));
        }
        let mac = text.parse().map(HostName::Mac);
        mac.map_err(|_| {
            format!(
                "'{text}' is no address; it must be one such as 10.0.0.1, 10.0.0.0/24 or \
                 02:00:00:00:00:01"
            )
        })
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Prefix, String> {
        let wrong = || {
            format!("'{text}' is no network; it must be one such as 10.0.0.0/24 or 2001:db8::/64")
        };
        let (ip, len) = text.split_once('/').ok_or_else(wrong)?;
        let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
        let width = bits(ip).1;
        let len: u8 = len.parse().map_err(|_| wrong())?;
        if len > width {
            return Err(format!(
                "'{text}' has a length of {len}; it must be a number from 0 to {width}"
            ));
        }
        let prefix = Prefix::of(ip, len);
        if prefix.ip != ip {
            return Err(format!(
                "'{text}' has bits past its length; the network is {prefix}"
            ));
        }
        Ok(prefix)
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostName::Mac(mac) => mac.fmt(f),
            HostName::Ip(ip) => ip.fmt(f),
            HostName::Net(prefix) => prefix.fmt(f),
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_by_either_address_or_its_network() {
        let mac = MacAddr([2, 0, 0, 0, 0, 0xa]);
        assert_eq!("02:00:00:00:00:0a".parse(), Ok(HostName::Mac(mac)));
        assert!(matches!("fd00::1".parse(), Ok(HostName::Ip(_))));
        assert!(matches!("fd00::/8".parse(), Ok(HostName::Net(_))));
        let refused = "h1".parse::<HostName>().unwrap_err();
        assert!(refused.contains("'h1'") && refused.contains("10.0.0.1"));
    }

    #[test]
    fn a_network_has_no_bits_past_its_length() {
        let said = |text: &str| {
            let parsed = text.parse::<Prefix>();
            parsed.map(|prefix| prefix.to_string())
        };
        for right in [
            "10.0.0.0/24",
            "0.0.0.0/0",
            "10.0.0.1/32",
            "2001:db8::/64",
            "::/0",
        ] {
            assert_eq!(said(right), Ok(right.to_owned()));
        }
        for (text, problem) in [
            ("10.0.0.5/24", "the network is 10.0.0.0/24"),
            ("2001:db8::1/64", "the network is 2001:db8::/64"),
            ("10.0.0.0/33", "a number from 0 to 32"),
            ("::/129", "a number from 0 to 128"),
            ("10.0.0/24", "no network"),
            ("10.0.0.0/", "no network"),
        ] {
            let refused = said(text).unwrap_err();
            assert!(
                refused.contains(text) && refused.contains(problem),
                "{refused}"
            );
        }
    }

    #[test]
    fn an_address_is_in_the_network_whose_bits_it_has() {
        for (prefix, inside, outside) in [
            ("10.0.0.0/23", "10.0.1.255", "10.0.2.0"),
            ("0.0.0.0/0", "255.0.0.1", "::1"),
            ("2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::1"),
            ("::/0", "ff02::1", "10.0.0.1"),
        ] {
            let prefix: Prefix = prefix.parse().unwrap();
            let contains = |ip: &str| prefix.contains(ip.parse().unwrap());
            assert!(contains(inside) && !contains(outside), "{prefix}");
        }
    }

    #[test]
    fn a_name_covers_another_where_it_is_certain() {
        let name = |text: &str| text.parse::<HostName>().unwrap();
        let covers = |a, b| name(a).covers(name(b));
        assert!(covers("10.0.0.0/8", "10.1.0.0/16") && !covers("10.1.0.0/16", "10.0.0.0/8"));
        assert!(covers("10.0.0.0/8", "10.1.2.3") && covers("10.1.2.3/32", "10.1.2.3"));
        assert!(!covers("10.0.0.0/8", "11.0.0.1") && !covers("0.0.0.0/0", "::1"));
        assert!(
            !covers("0.0.0.0/0", "02:00:00:00:00:01"),
            "it may have no address"
        );
        assert!(covers("02:00:00:00:00:01", "02:00:00:00:00:01"));
    }
}
