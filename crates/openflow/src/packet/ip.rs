//! IP packets as a router handles them: read from hostile hosts, forwarded with one hop less, and
//! answered by ICMP (RFC 792, 1812 and 4443).
//!
//! [`Datagram::read`] checks versions, lengths and the checksum of the IPv4 header, and keeps only
//! a reference to the frame. The frames made here have correct checksums.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::types::MacAddr;

use super::membership::{checksum, ipv6_checksum};
use super::{ETH_IPV4, ETH_IPV6, ExtensionHeaders, IP_ICMP, IP_ICMPV6, IP_UDP};

/// The length of an Ethernet header without a tag.
const ETHERNET_LEN: usize = 14;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;

/// Number of hops that an answer may make.
const TTL: u8 = 64;

/// The maximum length of an IP packet that reports an error (RFC 1812, 4.3.2.3; RFC 4443, 2.4).
const ERROR_LEN_MAX: [usize; 2] = [576, 1280];

const ECHO_REQUEST: [u8; 2] = [8, 128];
const ECHO_REPLY: [u8; 2] = [0, 129];
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// An IP packet in an Ethernet frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The source address, as the packet claims it.
    pub from: IpAddr,
    /// The destination address.
    pub to: IpAddr,
    /// Number of hops that the packet may still make (TTL or hop limit).
    pub ttl: u8,
    /// The protocol over IP; in IPv6, the first header that is not an extension. `None` if the
    /// packet ends before that header.
    pub protocol: Option<u8>,
    /// The IP packet, without padding.
    packet: &'a [u8],
    /// The message of the protocol. `None` in a fragment.
    message: Option<&'a [u8]>,
    is_later_fragment: bool,
}

/// Reason why a packet is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The IP version is not the version of the EtherType.
    Version,
    /// A header is cut short, or states a length that the frame does not have.
    Length,
    /// The checksum of the IPv4 header is wrong.
    Checksum,
}

/// The reason why a packet does not arrive, as ICMP reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// The packet has made all the hops that it may.
    TimeExceeded,
    /// There is no route to the destination network.
    NoRoute,
    /// The destination host, or the router before that host, does not answer.
    HostUnreachable,
    /// Nothing listens on the destination port.
    PortUnreachable,
}

impl IcmpError {
    /// Returns the type and code in ICMP, for IPv4 or IPv6.
    fn codes(self, is_ipv4: bool) -> [u8; 2] {
        match (self, is_ipv4) {
            (IcmpError::TimeExceeded, true) => [11, 0],
            (IcmpError::NoRoute, true) => [3, 0],
            (IcmpError::HostUnreachable, true) => [3, 1],
            (IcmpError::PortUnreachable, true) => [3, 3],
            (IcmpError::TimeExceeded, false) => [3, 0],
            (IcmpError::NoRoute, false) => [1, 0],
            (IcmpError::HostUnreachable, false) => [1, 3],
            (IcmpError::PortUnreachable, false) => [1, 4],
        }
    }
}

impl<'a> Datagram<'a> {
    /// Reads the packet of an untagged frame; `None` if it is not an IP packet.
    ///
    /// ```
    /// use openflow::packet::build::{Host, udp};
    /// use openflow::packet::ip::{Datagram, Refusal};
    ///
    /// let frame = udp(Host::numbered(1), Host::numbered(2), (5000, 53), b"?");
    /// let packet = Datagram::read(&frame).unwrap().unwrap();
    /// assert_eq!((packet.from, packet.ttl), (Host::numbered(1).ip.into(), 64));
    /// assert_eq!(Datagram::read(&frame[..40]), Some(Err(Refusal::Length)));
    /// ```
    pub fn read(frame: &'a [u8]) -> Option<Result<Datagram<'a>, Refusal>> {
        let packet = frame.get(ETHERNET_LEN..)?;
        match u16::from_be_bytes([frame[12], frame[13]]) {
            ETH_IPV4 => Some(Datagram::ipv4(packet)),
            ETH_IPV6 => Some(Datagram::ipv6(packet)),
            _ => None,
        }
    }

    /// Returns the ports (source and destination) and the data of a UDP datagram. `None` if the
    /// packet is not UDP, is a fragment, or is cut short.
    pub fn udp(&self) -> Option<((u16, u16), &'a [u8])> {
        let message = self.message.filter(|_| self.protocol == Some(IP_UDP))?;
        let header = message.first_chunk::<UDP_LEN>()?;
        let data = message.get(UDP_LEN..usize::from(word(header, 4)))?;
        Some(((word(header, 0), word(header, 2)), data))
    }

    fn ipv4(packet: &'a [u8]) -> Result<Datagram<'a>, Refusal> {
        let header = packet.first_chunk::<IPV4_LEN>().ok_or(Refusal::Length)?;
        if header[0] >> 4 != 4 {
            return Err(Refusal::Version);
        }
        let header_len = usize::from(header[0] & 0xf) * 4;
        let total_len = usize::from(word(header, 2));
        let packet = packet.get(..total_len).ok_or(Refusal::Length)?;
        let whole = packet.get(..header_len).ok_or(Refusal::Length)?;
        if header_len < IPV4_LEN {
            return Err(Refusal::Length);
        }
        if checksum(&[whole]) != 0 {
            return Err(Refusal::Checksum);
        }
        let fragment = word(header, 6);
        let is_fragment = fragment & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0;
        let address = |at: usize| {
            let octets = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            IpAddr::V4(Ipv4Addr::from(octets))
        };
        Ok(Datagram {
            from: address(12),
            to: address(16),
            ttl: header[8],
            protocol: Some(header[9]),
            packet,
            message: packet.get(header_len..).filter(|_| !is_fragment),
            is_later_fragment: fragment & FRAGMENT_OFFSET != 0,
        })
    }

    fn ipv6(packet: &'a [u8]) -> Result<Datagram<'a>, Refusal> {
        let header = packet.first_chunk::<IPV6_LEN>().ok_or(Refusal::Length)?;
        if header[0] >> 4 != 6 {
            return Err(Refusal::Version);
        }
        let total_len = IPV6_LEN + usize::from(word(header, 4));
        let packet = packet.get(..total_len).ok_or(Refusal::Length)?;
        let walk = ExtensionHeaders::walk(packet, IPV6_LEN, header[6]);
        let address = |at: usize| {
            let octets = header[at..].first_chunk::<16>().copied();
            IpAddr::V6(Ipv6Addr::from(octets.unwrap_or_default()))
        };
        Ok(Datagram {
            from: address(8),
            to: address(24),
            ttl: header[7],
            protocol: walk.upper,
            packet,
            message: packet.get(walk.at..).filter(|_| !walk.fragment),
            is_later_fragment: walk.later_fragment,
        })
    }

    /// Returns the frame that forwards the packet, from and to these Ethernet addresses, with one
    /// hop less. `None` if the packet may make no more hops.
    pub fn forwarded(&self, from: MacAddr, to: MacAddr) -> Option<Vec<u8>> {
        let ttl = self.ttl.checked_sub(1).filter(|ttl| *ttl > 0)?;
        let mut frame = ethernet(from, to, self.eth_type());
        frame.extend_from_slice(self.packet);
        let packet = &mut frame[ETHERNET_LEN..];
        match self.from {
            IpAddr::V4(_) => {
                packet[8] = ttl;
                let header_len = usize::from(packet[0] & 0xf) * 4;
                sum_ipv4(&mut packet[..header_len]);
            }
            IpAddr::V6(_) => packet[7] = ttl,
        }
        Some(frame)
    }

    /// Returns the reply to an echo request, from and to these Ethernet addresses. `None` if the
    /// packet is not an echo request, has a wrong checksum, or is a fragment.
    pub fn echo_reply(&self, from: MacAddr, to: MacAddr) -> Option<Vec<u8>> {
        let message = self.icmp()?;
        let is_request = message.first() == Some(&ECHO_REQUEST[self.family()]);
        if !is_request || message.len() < 8 || self.icmp_sum(message) != 0 {
            return None;
        }
        let mut reply = message.to_vec();
        reply[0] = ECHO_REPLY[self.family()];
        self.answer((from, to), self.to, reply)
    }

    /// Returns the frame in which a router with the address `router` reports to the sender that the
    /// packet does not arrive. `None` where no report is allowed: for errors, later fragments, and
    /// senders that are not a single host (RFC 1812, 4.3.2.7; RFC 4443, 2.4).
    pub fn error(
        &self,
        error: IcmpError,
        router: IpAddr,
        (from, to): (MacAddr, MacAddr),
    ) -> Option<Vec<u8>> {
        let may_report = is_host(self.from) && !self.is_error() && !self.is_later_fragment;
        if !may_report || router.is_ipv4() != self.from.is_ipv4() {
            return None;
        }
        let header_len = [IPV4_LEN, IPV6_LEN][self.family()];
        let kept = ERROR_LEN_MAX[self.family()] - header_len - 8;
        let [kind, code] = error.codes(self.from.is_ipv4());
        let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(&self.packet[..self.packet.len().min(kept)]);
        self.answer((from, to), router, message)
    }

    /// Reports whether the packet is an error itself, or may be one.
    fn is_error(&self) -> bool {
        let is_icmp = [Some(IP_ICMP), Some(IP_ICMPV6)][self.family()] == self.protocol;
        let kind = self.message.and_then(|message| message.first());
        match (self.from, kind) {
            _ if self.protocol.is_none() => true,
            _ if !is_icmp => false,
            // A first fragment has its type too, but nothing tells an error from a question there.
            (_, None) => true,
            // Echo, timestamps, information and masks are not errors (RFC 1122, 3.2.2).
            (IpAddr::V4(_), Some(kind)) => !matches!(kind, 0 | 8 | 13..=18),
            (IpAddr::V6(_), Some(kind)) => *kind < 128 || *kind == 137,
        }
    }

    fn family(&self) -> usize {
        usize::from(self.from.is_ipv6())
    }

    fn eth_type(&self) -> u16 {
        [ETH_IPV4, ETH_IPV6][self.family()]
    }

    /// The ICMP message, if it is whole.
    fn icmp(&self) -> Option<&'a [u8]> {
        let is_icmp = self.protocol == Some([IP_ICMP, IP_ICMPV6][self.family()]);
        self.message.filter(|_| is_icmp)
    }

    fn icmp_sum(&self, message: &[u8]) -> u16 {
        match self.from {
            IpAddr::V4(_) => checksum(&[message]),
            IpAddr::V6(from) => ipv6_checksum(from, self.to, IP_ICMPV6, message),
        }
    }

    /// Returns the frame of an ICMP message from `source` to the sender of this packet.
    fn answer(
        &self,
        (from, to): (MacAddr, MacAddr),
        source: IpAddr,
        mut message: Vec<u8>,
    ) -> Option<Vec<u8>> {
        message[2..4].fill(0);
        let mut frame = ethernet(from, to, self.eth_type());
        match (source, self.from) {
            (IpAddr::V4(source), IpAddr::V4(sender)) => {
                let sum = checksum(&[&message]);
                message[2..4].copy_from_slice(&sum.to_be_bytes());
                let total_len = u16::try_from(IPV4_LEN + message.len()).ok()?;
                let mut header = [0; IPV4_LEN];
                header[0] = 0x45;
                header[1] = self.packet[1] & 0xfc;
                header[2..4].copy_from_slice(&total_len.to_be_bytes());
                header[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
                (header[8], header[9]) = (TTL, IP_ICMP);
                header[12..16].copy_from_slice(&source.octets());
                header[16..20].copy_from_slice(&sender.octets());
                sum_ipv4(&mut header);
                frame.extend_from_slice(&header);
            }
            (IpAddr::V6(source), IpAddr::V6(sender)) => {
                let sum = ipv6_checksum(source, sender.into(), IP_ICMPV6, &message);
                message[2..4].copy_from_slice(&sum.to_be_bytes());
                let len = u16::try_from(message.len()).ok()?;
                let mut header = [0; IPV6_LEN];
                header[0] = 0x60;
                header[4..6].copy_from_slice(&len.to_be_bytes());
                (header[6], header[7]) = (IP_ICMPV6, TTL);
                header[8..24].copy_from_slice(&source.octets());
                header[24..40].copy_from_slice(&sender.octets());
                frame.extend_from_slice(&header);
            }
            _ => return None,
        }
        frame.extend_from_slice(&message);
        Some(frame)
    }
}

/// Reports whether an address can belong to a single host that a router answers.
pub fn is_host(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [first, ..] = ip.octets();
            !ip.is_multicast() && !ip.is_loopback() && first != 0 && first < 240
        }
        IpAddr::V6(ip) => !ip.is_multicast() && !ip.is_loopback() && !ip.is_unspecified(),
    }
}

fn ethernet(from: MacAddr, to: MacAddr, eth_type: u16) -> Vec<u8> {
    [&to.0[..], &from.0, &eth_type.to_be_bytes()].concat()
}

/// Writes the checksum of an IPv4 header.
fn sum_ipv4(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = checksum(&[header]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests;
