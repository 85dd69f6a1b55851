//! Frames of the common protocols, with checksums, for tests and for answers of controllers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{
    ArpHardwareId, ArpOperation, ArpPacket, EtherType, PacketBuilder, PacketBuilderStep,
};

use crate::types::MacAddr;

use super::membership::{
    IGMP1_REPORT, IGMP2_LEAVE, IGMP2_REPORT, IGMP3_REPORT, IP_PIM, IpPacket, MLD1_DONE,
    MLD1_REPORT, MLD2_REPORT, PIM_HELLO, PIM_HOLD, RecordKind, Sender, frame_of,
};
use super::nd::{
    HOP_LIMIT, NEIGHBOUR_ADVERTISEMENT, NEIGHBOUR_SOLICITATION, OVERRIDE, ROUTER, SOLICITED,
    SOURCE_ADDRESS, TARGET_ADDRESS, group, group_mac,
};

/// Hops a built packet may make.
const TTL: u8 = 64;

/// The Ethernet and IPv4 addresses of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Ethernet address.
    pub mac: MacAddr,
    /// IPv4 address.
    pub ip: Ipv4Addr,
}

impl Host {
    /// The host with these addresses.
    pub const fn new(mac: MacAddr, ip: Ipv4Addr) -> Host {
        Host { mac, ip }
    }

    /// Host `n` of a test network: 02:00:00:00:00:nn with 10.0.0.n.
    pub fn numbered(n: u8) -> Host {
        Host {
            mac: MacAddr([2, 0, 0, 0, 0, n]),
            ip: Ipv4Addr::new(10, 0, 0, n),
        }
    }
}

/// An ARP request in which `from` asks all hosts for the Ethernet address of `target`.
pub fn arp_request(from: Host, target: Ipv4Addr) -> Vec<u8> {
    let asked = Host {
        mac: MacAddr([0; 6]),
        ip: target,
    };
    arp(ArpOperation::REQUEST, from, asked, MacAddr::BROADCAST)
}

/// An ARP reply in which `from` announces its Ethernet address to `to`.
pub fn arp_reply(from: Host, to: Host) -> Vec<u8> {
    arp(ArpOperation::REPLY, from, to, to.mac)
}

/// A UDP datagram; the ports are `(source, destination)`.
pub fn udp(from: Host, to: Host, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let step = ipv4(from, to).udp(ports.0, ports.1);
    let mut frame = Vec::with_capacity(step.size(payload.len()));
    step.write(&mut frame, payload).expect(FITS);
    frame
}

/// A TCP segment with SYN set; the ports are `(source, destination)`.
pub fn tcp_syn(from: Host, to: Host, ports: (u16, u16)) -> Vec<u8> {
    let step = ipv4(from, to).tcp(ports.0, ports.1, 0, 65_535).syn();
    let mut frame = Vec::with_capacity(step.size(0));
    step.write(&mut frame, &[]).expect(FITS);
    frame
}

/// An ICMP echo request.
pub fn icmp_echo_request(from: Host, to: Host, id: u16, seq: u16, payload: &[u8]) -> Vec<u8> {
    let step = ipv4(from, to).icmpv4_echo_request(id, seq);
    let mut frame = Vec::with_capacity(step.size(payload.len()));
    step.write(&mut frame, payload).expect(FITS);
    frame
}

/// An ICMP echo reply.
pub fn icmp_echo_reply(from: Host, to: Host, id: u16, seq: u16, payload: &[u8]) -> Vec<u8> {
    let step = ipv4(from, to).icmpv4_echo_reply(id, seq);
    let mut frame = Vec::with_capacity(step.size(payload.len()));
    step.write(&mut frame, payload).expect(FITS);
    frame
}

/// A UDP datagram over IPv6 between hosts whose addresses are given as `(Ethernet, IPv6)`.
pub fn udp6(
    from: (MacAddr, Ipv6Addr),
    to: (MacAddr, Ipv6Addr),
    ports: (u16, u16),
    payload: &[u8],
) -> Vec<u8> {
    let step = PacketBuilder::ethernet2(from.0.0, to.0.0)
        .ipv6(from.1.octets(), to.1.octets(), TTL)
        .udp(ports.0, ports.1);
    let mut frame = Vec::with_capacity(step.size(payload.len()));
    step.write(&mut frame, payload).expect(FITS);
    frame
}

/// An ARP request in which `from` asks only the host at `to` whether it has `target`. The request
/// has no source IPv4 address (RFC 5227), so that the host's cache does not change.
pub fn arp_probe(from: MacAddr, to: MacAddr, target: Ipv4Addr) -> Vec<u8> {
    let asker = Host {
        mac: from,
        ip: Ipv4Addr::UNSPECIFIED,
    };
    let asked = Host {
        mac: MacAddr([0; 6]),
        ip: target,
    };
    arp(ArpOperation::REQUEST, asker, asked, to)
}

/// A neighbour solicitation in which `from` asks only the host at `to` whether it has `target`. It
/// has no source IPv6 address (RFC 4861, 7.2.3), so that the host's cache does not change and the
/// host answers to all nodes.
pub fn neighbour_probe(from: MacAddr, to: MacAddr, target: Ipv6Addr) -> Vec<u8> {
    let ips = (Ipv6Addr::UNSPECIFIED, group(target));
    neighbour((NEIGHBOUR_SOLICITATION, 0), (from, to), ips, target, None)
}

/// A neighbour solicitation in which `from` (Ethernet and IPv6 address) asks all hosts in the group
/// of `target` for the Ethernet address of `target`.
pub fn neighbour_solicitation(from: (MacAddr, Ipv6Addr), target: Ipv6Addr) -> Vec<u8> {
    let to = group(target);
    let (macs, ips) = ((from.0, group_mac(to)), (from.1, to));
    let option = Some((SOURCE_ADDRESS, from.0));
    neighbour((NEIGHBOUR_SOLICITATION, 0), macs, ips, target, option)
}

/// A neighbour advertisement to all nodes in which `from` announces the Ethernet address of its
/// IPv6 address, and whether it is a router.
pub fn neighbour_advertisement(from: (MacAddr, Ipv6Addr), is_router: bool) -> Vec<u8> {
    let to = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    advertisement(router_flag(is_router) | OVERRIDE, from, (group_mac(to), to))
}

/// A neighbour advertisement in which `from` answers a solicitation by `to` for the IPv6 address of
/// `from`, and states whether it is a router.
pub fn neighbour_answer(
    from: (MacAddr, Ipv6Addr),
    to: (MacAddr, Ipv6Addr),
    is_router: bool,
) -> Vec<u8> {
    let flags = router_flag(is_router) | SOLICITED | OVERRIDE;
    advertisement(flags, from, to)
}

/// An IGMPv2 or MLDv1 report: `from` is a member of `group`.
pub fn group_join(from: Sender, group: IpAddr) -> Vec<u8> {
    one_group(from, (IGMP2_REPORT, MLD1_REPORT), group, group)
}

/// An IGMPv1 report: `from` is a member of `group`.
pub fn group_join_igmp1(from: Sender, group: Ipv4Addr) -> Vec<u8> {
    let group = group.into();
    one_group(from, (IGMP1_REPORT, MLD1_REPORT), group, group)
}

/// An IGMPv2 leave or MLDv1 done, to all routers: `from` has left `group`.
pub fn group_leave(from: Sender, group: IpAddr) -> Vec<u8> {
    let routers = link_group(group, 2);
    one_group(from, (IGMP2_LEAVE, MLD1_DONE), routers, group)
}

/// An IGMPv3 or MLDv2 report of these kinds, groups and sources. All groups and sources must have
/// the address family of the first group. Without records, the report is an IGMPv3 report.
pub fn group_report(from: Sender, records: &[(RecordKind, IpAddr, &[IpAddr])]) -> Vec<u8> {
    let first = records.first().map(|(_, group, _)| *group);
    let is_ipv4 = first.is_none_or(|group| group.is_ipv4());
    let kind = if is_ipv4 { IGMP3_REPORT } else { MLD2_REPORT };
    let mut message = vec![kind, 0, 0, 0, 0, 0];
    message.extend((records.len() as u16).to_be_bytes());
    for (kind, group, sources) in records {
        message.extend([*kind as u8, 0]);
        message.extend((sources.len() as u16).to_be_bytes());
        let addresses = [group].into_iter().chain(*sources);
        addresses.for_each(|address| message.extend(ip_octets(*address)));
    }
    match is_ipv4 {
        true => frame_of(
            IpPacket::igmp(from, Ipv4Addr::new(224, 0, 0, 22).into()),
            message,
        ),
        false => frame_of(
            IpPacket::mld(from, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16).into()),
            message,
        ),
    }
}

/// A PIM hello over IPv6 or IPv4: the router `from` is present for `hold_s` more seconds.
pub fn pim_hello(from: Sender, is_ipv6: bool, hold_s: u16) -> Vec<u8> {
    let family = match is_ipv6 {
        true => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        false => IpAddr::from(Ipv4Addr::UNSPECIFIED),
    };
    let to = link_group(family, 13);
    let packet = match is_ipv6 {
        true => IpPacket::mld(from, to),
        false => IpPacket::igmp(from, to),
    };
    let mut message = vec![PIM_HELLO, 0, 0, 0];
    message.extend([PIM_HOLD, 2, hold_s].map(u16::to_be_bytes).concat());
    let packet = IpPacket {
        protocol: IP_PIM,
        is_alert: false,
        ..packet
    };
    frame_of(packet, message)
}

/// A frame of any EtherType.
pub fn ethernet(src: MacAddr, dst: MacAddr, eth_type: u16, payload: &[u8]) -> Vec<u8> {
    [&dst.0, &src.0, &eth_type.to_be_bytes()[..], payload].concat()
}

/// Adds an outer 802.1Q tag to `frame`: `vlan_id` has 12 bits, `pcp` has 3.
pub fn tagged(frame: &[u8], vlan_id: u16, pcp: u8) -> Vec<u8> {
    let tci = u16::from(pcp) << 13 | vlan_id & 0xfff;
    let (macs, rest) = frame.split_at(12.min(frame.len()));
    [macs, &[0x81, 0x00], &tci.to_be_bytes(), rest].concat()
}

/// A message with one group; the types are those of IGMP and MLD.
fn one_group(from: Sender, types: (u8, u8), to: IpAddr, group: IpAddr) -> Vec<u8> {
    match group {
        IpAddr::V4(_) => {
            let message = [&[types.0, 0, 0, 0], &ip_octets(group)[..]].concat();
            frame_of(IpPacket::igmp(from, to), message)
        }
        IpAddr::V6(_) => {
            let message = [&[types.1, 0, 0, 0, 0, 0, 0, 0], &ip_octets(group)[..]].concat();
            frame_of(IpPacket::mld(from, to), message)
        }
    }
}

/// Group `n` of a link, in the family of an address: 224.0.0.n or ff02::n.
fn link_group(family: IpAddr, n: u8) -> IpAddr {
    match family {
        IpAddr::V4(_) => Ipv4Addr::new(224, 0, 0, n).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, n.into()).into(),
    }
}

fn ip_octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn router_flag(is_router: bool) -> u8 {
    if is_router { ROUTER } else { 0 }
}

fn advertisement(flags: u8, from: (MacAddr, Ipv6Addr), to: (MacAddr, Ipv6Addr)) -> Vec<u8> {
    let (macs, ips) = ((from.0, to.0), (from.1, to.1));
    let option = Some((TARGET_ADDRESS, from.0));
    neighbour((NEIGHBOUR_ADVERTISEMENT, flags), macs, ips, from.1, option)
}

/// A message of ICMPv6 with the code 0; `rest` follows the first four bytes.
pub fn icmpv6(
    from: (MacAddr, Ipv6Addr),
    to: (MacAddr, Ipv6Addr),
    kind: u8,
    rest: &[u8],
) -> Vec<u8> {
    let step = PacketBuilder::ethernet2(from.0.0, to.0.0)
        .ipv6(from.1.octets(), to.1.octets(), HOP_LIMIT)
        .icmpv6_raw(kind, 0, [0; 4]);
    let mut frame = Vec::with_capacity(step.size(rest.len()));
    step.write(&mut frame, rest).expect(FITS);
    frame
}

/// A message of neighbour discovery, from and to these addresses; `option` is its kind and the
/// Ethernet address in it.
fn neighbour(
    (kind, flags): (u8, u8),
    macs: (MacAddr, MacAddr),
    ips: (Ipv6Addr, Ipv6Addr),
    target: Ipv6Addr,
    option: Option<(u8, MacAddr)>,
) -> Vec<u8> {
    let mut payload = target.octets().to_vec();
    if let Some((kind, mac)) = option {
        payload.extend([kind, 1]);
        payload.extend(mac.0);
    }
    let step = PacketBuilder::ethernet2(macs.0.0, macs.1.0)
        .ipv6(ips.0.octets(), ips.1.octets(), HOP_LIMIT)
        .icmpv6_raw(kind, 0, [flags, 0, 0, 0]);
    let mut frame = Vec::with_capacity(step.size(payload.len()));
    step.write(&mut frame, &payload).expect(FITS);
    frame
}

const FITS: &str = "payloads built here fit into a datagram, and a Vec takes every write";

fn ipv4(from: Host, to: Host) -> PacketBuilderStep<etherparse::IpHeaders> {
    PacketBuilder::ethernet2(from.mac.0, to.mac.0).ipv4(from.ip.octets(), to.ip.octets(), TTL)
}

fn arp(operation: ArpOperation, from: Host, to: Host, eth_dst: MacAddr) -> Vec<u8> {
    let packet = ArpPacket::new(
        ArpHardwareId::ETHERNET,
        EtherType::IPV4,
        operation,
        &from.mac.0,
        &from.ip.octets(),
        &to.mac.0,
        &to.ip.octets(),
    )
    .expect("addresses of 6 and 4 bytes");
    let step = PacketBuilder::ethernet2(from.mac.0, eth_dst.0).arp(packet);
    let mut frame = Vec::with_capacity(step.size());
    step.write(&mut frame).expect(FITS);
    frame
}
