//! Packets that switches send to the controller, and the fields that forwarding reads.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use openflow::packet::PacketFields;
use openflow::{BufferId, Field, MacAddr, PortNo};

use crate::Location;

use super::hosts::OWN_MAC;

const NEIGHBOUR_SOLICITATION: u128 = 135;
const NEIGHBOUR_ADVERTISEMENT: u128 = 136;

/// A packet that may have to wait because its port is held.
pub(super) struct Held {
    /// The place of its sender, if the sender is a host at this switch.
    pub at: Location,
    /// The port itself, which differs in a bond.
    pub in_port: PortNo,
    pub buffer_id: Option<BufferId>,
    pub data: Bytes,
    pub is_copy: bool,
    /// Whether it missed the label entries, so that its tag is a label.
    pub is_labelled: bool,
}

/// The fields of a packet that forwarding reads.
pub(super) struct Packet<'a> {
    pub at: Location,
    pub in_port: PortNo,
    pub src: MacAddr,
    pub dst: MacAddr,
    pub buffer_id: Option<BufferId>,
    pub data: &'a Bytes,
    /// Whether this is the beginning of a packet that the switch has already forwarded.
    pub is_copy: bool,
    /// Whether it missed the label entries, so that its tag is a label.
    pub is_labelled: bool,
}

impl<'a> Packet<'a> {
    /// Reads a packet; `None` if its sender cannot be a host.
    pub(super) fn read(held: &'a Held, fields: &PacketFields) -> Option<Packet<'a>> {
        let (src, dst) = (fields.eth_src()?, fields.eth_dst()?);
        let can_be_host = !src.is_multicast() && src != MacAddr::default() && src != OWN_MAC;
        can_be_host.then_some(Packet {
            at: held.at,
            in_port: held.in_port,
            src,
            dst,
            buffer_id: held.buffer_id,
            data: &held.data,
            is_copy: held.is_copy,
            is_labelled: held.is_labelled,
        })
    }
}

/// Whether only bridges and their neighbours use this address (802.1D: spanning tree, LACP, 802.1X
/// and the like; Cisco's CDP, VTP and per-VLAN spanning tree). Bridges forward none of these
/// packets.
pub(super) fn is_link_local(dst: MacAddr) -> bool {
    let is_reserved = dst.0[..5] == [0x01, 0x80, 0xc2, 0, 0] && dst.0[5] < 0x10;
    let of_cisco = [0xcc, 0xcd].map(|last| MacAddr([0x01, 0x00, 0x0c, 0xcc, 0xcc, last]));
    is_reserved || of_cisco.contains(&dst)
}

/// The sender's hardware address in a message of ARP or neighbour discovery, where it differs from
/// the frame's. An ARP probe may leave it out.
pub(super) fn other_sender(fields: &PacketFields, mac: MacAddr) -> Option<MacAddr> {
    let said = [Field::ArpSha, Field::Ipv6NdSll, Field::Ipv6NdTll];
    let said = said.into_iter().find_map(|field| fields.get(field))?;
    let said = MacAddr::from_u64(said as u64);
    (said != mac && said != MacAddr::default()).then_some(said)
}

/// The sender's own IP address, if the packet proves it: ARP or neighbour discovery whose hardware
/// address is the frame's. The source of an IP packet may be any host behind a router.
pub(super) fn sender_ip(fields: &PacketFields, mac: MacAddr) -> Option<IpAddr> {
    let is_own = |field| fields.get(field) == Some(u128::from(mac.to_u64()));
    if is_own(Field::ArpSha) {
        let ip = Ipv4Addr::from(fields.get(Field::ArpSpa)? as u32);
        return (!ip.is_unspecified() && !ip.is_broadcast()).then_some(IpAddr::V4(ip));
    }
    // A solicitation gives its source as the sender, and an advertisement the requested address.
    let told = match fields.get(Field::Icmpv6Type) {
        Some(NEIGHBOUR_SOLICITATION) if is_own(Field::Ipv6NdSll) => fields.get(Field::Ipv6Src),
        // An advertisement may leave out its hardware address if the question was unicast.
        Some(NEIGHBOUR_ADVERTISEMENT) if other_sender(fields, mac).is_none() => {
            fields.get(Field::Ipv6NdTarget)
        }
        _ => None,
    };
    let ip = Ipv6Addr::from(told?);
    (!ip.is_unspecified() && !ip.is_multicast()).then_some(IpAddr::V6(ip))
}

/// Whether the sender says that it is a router. It says so of the interface that it sends by, and
/// questions are answered where they have no tag.
pub(super) fn says_router(fields: &PacketFields, data: &[u8]) -> Option<bool> {
    fields
        .says_router(data)
        .filter(|_| fields.vlan_id().is_none())
}

/// Whether the packet is ARP or IPv6 neighbour discovery.
pub(super) fn resolves(fields: &PacketFields) -> bool {
    let kind = fields.get(Field::Icmpv6Type);
    is_arp(fields) || matches!(kind, Some(NEIGHBOUR_SOLICITATION | NEIGHBOUR_ADVERTISEMENT))
}

pub(super) fn is_arp(fields: &PacketFields) -> bool {
    fields.get(Field::ArpOp).is_some()
}

/// The address that a question of ARP or neighbour discovery asks for, if it precedes a
/// conversation. A host that announces itself asks for its own address, and one that probes an
/// address has no address.
pub(super) fn asked_ip(fields: &PacketFields) -> Option<IpAddr> {
    const REQUEST: u128 = 1;
    let v4 = |field| Some(IpAddr::from(Ipv4Addr::from(fields.get(field)? as u32)));
    let v6 = |field| Some(IpAddr::from(Ipv6Addr::from(fields.get(field)?)));
    let (asker, asked) = match fields.get(Field::Icmpv6Type) {
        Some(NEIGHBOUR_SOLICITATION) => (v6(Field::Ipv6Src)?, v6(Field::Ipv6NdTarget)?),
        _ if fields.get(Field::ArpOp) == Some(REQUEST) => (v4(Field::ArpSpa)?, v4(Field::ArpTpa)?),
        _ => return None,
    };
    (!asker.is_unspecified() && asker != asked).then_some(asked)
}
