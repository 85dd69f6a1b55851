//! Frames with messages about membership: a querier's queries, and the headers of all messages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::types::MacAddr;

use super::super::{ETH_IPV4, ETH_IPV6, IP_ICMPV6};
use super::{
    ALL_NODES, ALL_NODES_IPV6, IGMP_QUERY, IP_HOP_BY_HOP, IP_IGMP, MLD_QUERY, Query, ROUTER_ALERT,
    ROUTER_ALERT_MLD, checksum, group_mac, ipv6_checksum,
};

/// The addresses of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Ethernet address.
    pub mac: MacAddr,
    /// IPv4 address. Queries from `0.0.0.0` elect no querier (RFC 4541, 2.1.1).
    pub ipv4: Ipv4Addr,
    /// IPv6 address, which must be link-local for hosts to listen (RFC 3810, 5.1.14).
    pub ipv6: Ipv6Addr,
}

impl Query {
    /// Returns the frame of the query, without a tag: IGMPv2 or MLDv1, or IGMPv3 or MLDv2 with
    /// extended fields. The query asks for no sources, because their addresses are not kept.
    pub fn frame(&self, from: Sender) -> Vec<u8> {
        let is_general = self.group.is_unspecified();
        let mut message = Vec::with_capacity(28);
        let to = match self.group {
            IpAddr::V4(group) => {
                message.extend([IGMP_QUERY, self.response_code() as u8, 0, 0]);
                message.extend(group.octets());
                IpAddr::from(if is_general { ALL_NODES } else { group })
            }
            IpAddr::V6(group) => {
                message.extend([MLD_QUERY, 0, 0, 0]);
                message.extend(self.response_code().to_be_bytes());
                message.extend([0, 0]);
                message.extend(group.octets());
                IpAddr::from(if is_general { ALL_NODES_IPV6 } else { group })
            }
        };
        if let Some(extended) = self.extended {
            let flags = u8::from(extended.suppress) << 3 | extended.robustness & 7;
            let interval = code::<4>(extended.interval.as_secs());
            message.extend([flags, interval as u8, 0, 0]);
        }
        let packet = match self.group {
            IpAddr::V4(_) => IpPacket::igmp(from, to),
            IpAddr::V6(_) => IpPacket::mld(from, to),
        };
        frame_of(packet, message)
    }

    /// The code of the response time. A code of 0 would make an IGMP query an IGMPv1 query.
    fn response_code(&self) -> u16 {
        let millis = u64::try_from(self.response_max.as_millis()).unwrap_or(u64::MAX);
        let tenths = (millis / 100).max(1);
        match (self.group, self.extended) {
            (IpAddr::V4(_), None) => tenths.min(u8::MAX.into()) as u16,
            (IpAddr::V4(_), Some(_)) => code::<4>(tenths),
            (IpAddr::V6(_), None) => millis.clamp(1, u16::MAX.into()) as u16,
            (IpAddr::V6(_), Some(_)) => code::<12>(millis.max(1)),
        }
    }
}

/// The headers of a message.
#[derive(Clone, Copy)]
pub(crate) struct IpPacket {
    pub mac: MacAddr,
    pub from: IpAddr,
    pub to: IpAddr,
    pub protocol: u8,
    /// Whether the packet has an option that makes routers look at it.
    pub is_alert: bool,
}

impl IpPacket {
    pub(crate) fn igmp(from: Sender, to: IpAddr) -> IpPacket {
        IpPacket {
            mac: from.mac,
            from: from.ipv4.into(),
            to,
            protocol: IP_IGMP,
            is_alert: true,
        }
    }

    pub(crate) fn mld(from: Sender, to: IpAddr) -> IpPacket {
        IpPacket {
            from: from.ipv6.into(),
            protocol: IP_ICMPV6,
            ..IpPacket::igmp(from, to)
        }
    }
}

/// Builds the frame of a message whose checksum (its second word) is still zero. Both addresses
/// must have the same family.
pub(crate) fn frame_of(packet: IpPacket, mut message: Vec<u8>) -> Vec<u8> {
    /// Precedence that hosts and routers give to network control packets (RFC 3376, 4).
    const INTERNETWORK_CONTROL: u8 = 0xc0;
    /// A copied option of class 0 and number 20, 4 bytes long (RFC 2113).
    const ALERT_IPV4: [u8; 4] = [0x94, 4, 0, 0];
    let sum = match packet.from {
        IpAddr::V4(_) => checksum(&[&message]),
        IpAddr::V6(from) => ipv6_checksum(from, packet.to, packet.protocol, &message),
    };
    message[2..4].copy_from_slice(&sum.to_be_bytes());

    let mut frame = Vec::with_capacity(14 + 48 + message.len());
    frame.extend(group_mac(packet.to).0);
    frame.extend(packet.mac.0);
    match (packet.from, packet.to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let options: &[u8] = if packet.is_alert { &ALERT_IPV4 } else { &[] };
            let header_len = 20 + options.len();
            let [a, b] = ((header_len + message.len()) as u16).to_be_bytes();
            let version = 0x40 | (header_len / 4) as u8;
            let mut header = vec![version, INTERNETWORK_CONTROL, a, b, 0, 0, 0, 0];
            header.extend([1, packet.protocol, 0, 0]);
            header.extend(from.octets());
            header.extend(to.octets());
            header.extend(options);
            let sum = checksum(&[&header]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend(ETH_IPV4.to_be_bytes());
            frame.extend(header);
        }
        (from, to) => {
            let protocol = packet.protocol;
            let alert = [protocol, 0, ROUTER_ALERT, 2, 0, 0, 1, 0];
            debug_assert_eq!(alert[4..6], ROUTER_ALERT_MLD);
            let options: &[u8] = if packet.is_alert { &alert } else { &[] };
            let next = match packet.is_alert {
                true => IP_HOP_BY_HOP,
                false => protocol,
            };
            let [a, b] = ((options.len() + message.len()) as u16).to_be_bytes();
            frame.extend(ETH_IPV6.to_be_bytes());
            frame.extend([0x60, 0, 0, 0, a, b, next, 1]);
            for address in [from, to] {
                if let IpAddr::V6(address) = address {
                    frame.extend(address.octets());
                }
            }
            frame.extend(options);
        }
    }
    frame.extend(message);
    frame
}

/// Returns the code of the largest number that has a code and is at most `value`: the inverse of
/// [`super::floating`].
pub(super) fn code<const MANTISSA: u32>(value: u64) -> u16 {
    if value < 1 << (MANTISSA + 3) {
        return value as u16;
    }
    let value = value.min(((1 << (MANTISSA + 1)) - 1) << 10);
    let exponent = value.ilog2() - MANTISSA - 3;
    let mantissa = value >> (exponent + 3) & ((1 << MANTISSA) - 1);
    1 << (MANTISSA + 3) | (exponent as u16) << MANTISSA | mantissa as u16
}
