//! Services: the packets of a policy or a circuit.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use openflow::Field;

use super::flow::Matching;
use crate::timeouts::{HostName, Prefix};

const ETH_TYPE_IPV4: u16 = 0x0800;
const ETH_TYPE_IPV6: u16 = 0x86dd;
/// The bit that marks a VLAN id as present.
const VLAN_PRESENT: u16 = 0x1000;

/// Packets, by their own fields. An unstated field may have any value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    pub name: String,
    pub src: Option<HostName>,
    pub dst: Option<HostName>,
    pub proto: Option<Proto>,
    pub src_port: Option<u16>,
    pub dst_port: Option<u16>,
    /// The code point that packets arrive with.
    pub dscp: Option<u8>,
    pub vlan: Option<u16>,
}

/// The protocol over IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proto {
    Tcp,
    Udp,
    Sctp,
    /// The ICMP of the version of IP in use.
    Icmp,
    Number(u8),
}

/// Versions of IP.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Service {
    /// The packets of the other direction.
    #[must_use]
    pub fn reversed(&self) -> Service {
        Service {
            src: self.dst,
            dst: self.src,
            src_port: self.dst_port,
            dst_port: self.src_port,
            ..self.clone()
        }
    }

    /// The same packets after another code point was written into them. A service that matches no
    /// code point is unchanged.
    #[must_use]
    pub fn marked(&self, mark: u8) -> Service {
        Service {
            dscp: self.dscp.map(|_| mark),
            ..self.clone()
        }
    }

    /// Matches of one entry each: two where both versions of IP are meant. `ends` are the hosts to
    /// which the service is narrowed, and `of_ip` restricts it to packets with a code point. The
    /// result is empty if no packet can match all of these.
    pub fn matchings(&self, ends: Option<(HostName, HostName)>, of_ip: bool) -> Vec<Matching> {
        let (from, to) = ends.unzip();
        let srcs: Vec<HostName> = [self.src, from].into_iter().flatten().collect();
        let dsts: Vec<HostName> = [self.dst, to].into_iter().flatten().collect();
        let names_ip = srcs.iter().chain(&dsts).any(|host| prefix(*host).is_some());
        let families = match of_ip || names_ip || self.proto.is_some() || self.dscp.is_some() {
            true => vec![Some(Family::V4), Some(Family::V6)],
            false => vec![None],
        };
        let of = |family| self.matching(&srcs, &dsts, family);
        families.into_iter().filter_map(of).collect()
    }

    fn matching(
        &self,
        srcs: &[HostName],
        dsts: &[HostName],
        family: Option<Family>,
    ) -> Option<Matching> {
        let mut m = Matching::any();
        if let Some(vlan) = self.vlan {
            m = m.and(Field::VlanVid, vlan | VLAN_PRESENT)?;
        }
        let eth_type = family.map(Family::eth_type);
        if let Some(eth_type) = eth_type {
            m = m.and(Field::EthType, eth_type)?;
        }
        for host in srcs {
            m = and_host(m, *host, family, SRC)?;
        }
        for host in dsts {
            m = and_host(m, *host, family, DST)?;
        }
        if let Some(dscp) = self.dscp {
            m = m.and(Field::IpDscp, dscp)?;
        }
        if let (Some(proto), Some(family)) = (self.proto, family) {
            m = m.and(Field::IpProto, proto.number(family))?;
            let Some((src, dst)) = proto.port_fields() else {
                return Some(m);
            };
            if let Some(port) = self.src_port {
                m = m.and(src, port)?;
            }
            if let Some(port) = self.dst_port {
                m = m.and(dst, port)?;
            }
        }
        Some(m)
    }
}

/// Fields of an address: Ethernet, IPv4, IPv6.
type AddressFields = (Field, Field, Field);
const SRC: AddressFields = (Field::EthSrc, Field::Ipv4Src, Field::Ipv6Src);
const DST: AddressFields = (Field::EthDst, Field::Ipv4Dst, Field::Ipv6Dst);

fn and_host(
    m: Matching,
    host: HostName,
    family: Option<Family>,
    (eth, v4, v6): AddressFields,
) -> Option<Matching> {
    let prefix = match host {
        HostName::Mac(mac) => return m.and(eth, mac.to_u64()),
        HostName::Ip(ip) => Prefix::host(ip),
        HostName::Net(prefix) => prefix,
    };
    let shift = |width: u8| u32::from(width - prefix.bits());
    match (prefix.ip(), family?) {
        (IpAddr::V4(ip), Family::V4) => {
            let mask = u32::MAX.checked_shl(shift(32)).unwrap_or(0);
            m.and_masked(v4, u32::from(ip), mask.into())
        }
        (IpAddr::V6(ip), Family::V6) => {
            let mask = u128::MAX.checked_shl(shift(128)).unwrap_or(0);
            m.and_masked(v6, u128::from(ip), mask)
        }
        _ => None,
    }
}

fn prefix(host: HostName) -> Option<Prefix> {
    match host {
        HostName::Mac(_) => None,
        HostName::Ip(ip) => Some(Prefix::host(ip)),
        HostName::Net(prefix) => Some(prefix),
    }
}

impl Family {
    fn eth_type(self) -> u16 {
        match self {
            Family::V4 => ETH_TYPE_IPV4,
            Family::V6 => ETH_TYPE_IPV6,
        }
    }
}

impl Proto {
    fn number(self, family: Family) -> u8 {
        match (self, family) {
            (Proto::Tcp, _) => 6,
            (Proto::Udp, _) => 17,
            (Proto::Sctp, _) => 132,
            (Proto::Icmp, Family::V4) => 1,
            (Proto::Icmp, Family::V6) => 58,
            (Proto::Number(number), _) => number,
        }
    }

    /// The fields of the protocol's ports, if it has any.
    pub(super) fn port_fields(self) -> Option<(Field, Field)> {
        match self {
            Proto::Tcp | Proto::Number(6) => Some((Field::TcpSrc, Field::TcpDst)),
            Proto::Udp | Proto::Number(17) => Some((Field::UdpSrc, Field::UdpDst)),
            Proto::Sctp | Proto::Number(132) => Some((Field::SctpSrc, Field::SctpDst)),
            Proto::Icmp | Proto::Number(_) => None,
        }
    }
}

impl fmt::Display for Proto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Proto::Tcp => f.write_str("tcp"),
            Proto::Udp => f.write_str("udp"),
            Proto::Sctp => f.write_str("sctp"),
            Proto::Icmp => f.write_str("icmp"),
            Proto::Number(number) => number.fmt(f),
        }
    }
}

impl FromStr for Proto {
    type Err = String;

    fn from_str(text: &str) -> Result<Proto, String> {
        let named = [Proto::Tcp, Proto::Udp, Proto::Sctp, Proto::Icmp];
        let found = named.into_iter().find(|proto| proto.to_string() == text);
        let number = || text.parse().ok().map(Proto::Number);
        found.or_else(number).ok_or_else(|| {
            format!("'{text}' is none of tcp, udp, sctp, icmp, and no number from 0 to 255")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::host;
    use super::*;

    fn video() -> Service {
        Service {
            name: "video".to_owned(),
            dst: Some(host("10.0.0.0/24")),
            proto: Some(Proto::Udp),
            dst_port: Some(5004),
            ..Service::default()
        }
    }

    #[test]
    fn a_service_is_an_entry_for_each_version_of_ip_that_it_may_be_of() {
        assert_eq!(video().matchings(None, false).len(), 1, "it names IPv4");
        let any = Service {
            dst: None,
            ..video()
        };
        assert_eq!(any.matchings(None, false).len(), 2);
        let all = Service::default();
        assert_eq!(all.matchings(None, false), [Matching::any()]);
        assert_eq!(all.matchings(None, true).len(), 2);
        let ping = Service {
            proto: Some(Proto::Icmp),
            ..Service::default()
        };
        let numbers: Vec<_> = ping
            .matchings(None, false)
            .iter()
            .map(|m| m.to_match().exact(Field::IpProto))
            .collect();
        assert_eq!(numbers, [Some(1), Some(58)]);
    }

    #[test]
    fn it_is_narrowed_to_two_hosts_and_to_none_if_they_are_others() {
        let ends = |from, to| Some((host(from), host(to)));
        let narrowed = video().matchings(ends("10.0.1.1", "10.0.0.7"), false);
        assert_eq!(narrowed.len(), 1);
        let m = narrowed[0].to_match();
        assert_eq!(m.exact(Field::Ipv4Src), Some(0x0a00_0101));
        assert_eq!(m.exact(Field::Ipv4Dst), Some(0x0a00_0007));
        assert_eq!(m.exact(Field::UdpDst), Some(5004));
        assert!(
            video()
                .matchings(ends("10.0.1.1", "10.0.1.7"), false)
                .is_empty()
        );
        assert!(
            video()
                .matchings(ends("fd00::1", "10.0.0.7"), false)
                .is_empty()
        );
        let macs = ends("02:00:00:00:00:01", "02:00:00:00:00:02");
        let m = &video().matchings(macs, false)[0];
        assert!(m.has(Field::EthDst) && m.has(Field::Ipv4Dst));
        let m = &Service::default().matchings(macs, false)[0];
        assert!(m.has(Field::EthDst));
        assert!(!m.has(Field::EthType), "also what is not IP");
    }

    #[test]
    fn the_other_direction_has_ends_and_ports_changed_over() {
        let back = video().reversed();
        assert_eq!((back.src, back.src_port), (video().dst, Some(5004)));
        assert_eq!((back.dst, back.dst_port), (None, None));
        assert_eq!(back.reversed(), video());
    }

    #[test]
    fn a_code_point_is_followed_only_by_who_looks_at_one() {
        assert_eq!(video().marked(10), video());
        let marked = Service {
            dscp: Some(46),
            ..video()
        };
        assert_eq!(marked.marked(10).dscp, Some(10));
    }

    #[test]
    fn tagged_packets_are_named_by_their_vlan() {
        let service = Service {
            vlan: Some(7),
            ..Service::default()
        };
        let matchings = service.matchings(None, false);
        assert_eq!(matchings[0].to_match().exact(Field::VlanVid), Some(0x1007));
    }

    #[test]
    fn protocols_are_read_as_they_are_written() {
        for text in ["tcp", "udp", "sctp", "icmp", "47"] {
            assert_eq!(text.parse::<Proto>().unwrap().to_string(), text);
        }
        assert!("http".parse::<Proto>().unwrap_err().contains("tcp, udp"));
    }
}
