use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::build::{self, Host};
use super::*;

const IN: PortNo = PortNo(3);

fn get(frame: &[u8], field: Field) -> Option<u128> {
    PacketFields::parse(IN, frame).get(field)
}

/// An IPv4 packet of `proto` with this flags-and-offset word and these bytes after its header.
fn ipv4_frame(proto: u8, fragment: u16, rest: &[u8]) -> Vec<u8> {
    let [a, b] = (20 + rest.len() as u16).to_be_bytes();
    let [c, d] = fragment.to_be_bytes();
    let header = [
        0x45, 0xb9, a, b, 0, 0, c, d, 64, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    let payload = [&header[..], rest].concat();
    build::ethernet(MacAddr([2; 6]), MacAddr([4; 6]), ETH_IPV4, &payload)
}

fn ipv6_frame(next: u8, rest: &[u8]) -> Vec<u8> {
    let [a, b] = (rest.len() as u16).to_be_bytes();
    let mut packet = vec![0x6b, 0x81, 0x23, 0x45, a, b, next, 64];
    packet.extend([0xfd; 16]);
    packet.extend([0xfe; 16]);
    packet.extend(rest);
    build::ethernet(MacAddr([2; 6]), MacAddr([4; 6]), ETH_IPV6, &packet)
}

#[test]
fn a_udp_datagram_has_its_five_tuple_and_no_tcp_port() {
    let frame = build::udp(Host::numbered(1), Host::numbered(2), (1000, 53), b"?");
    let fields = PacketFields::parse(IN, &frame);
    assert_eq!(fields.in_port(), IN);
    assert_eq!(fields.eth_src(), Some(MacAddr([2, 0, 0, 0, 0, 1])));
    assert_eq!(fields.eth_dst(), Some(MacAddr([2, 0, 0, 0, 0, 2])));
    assert_eq!(fields.get(Field::Ipv4Src), Some(0x0a00_0001));
    assert_eq!(fields.get(Field::Ipv4Dst), Some(0x0a00_0002));
    assert_eq!(fields.ip_proto(), Some(IP_UDP));
    assert_eq!(fields.get(Field::UdpSrc), Some(1000));
    assert_eq!(fields.get(Field::UdpDst), Some(53));
    assert_eq!(fields.get(Field::TcpSrc), None);
    assert_eq!(fields.vlan_id(), None);
    assert_eq!(fields.get(Field::VlanVid), Some(0), "untagged is a value");
}

#[test]
fn an_arp_request_has_its_addresses() {
    let frame = build::arp_request(Host::numbered(1), Ipv4Addr::new(10, 0, 0, 9));
    let fields = PacketFields::parse(IN, &frame);
    assert_eq!(fields.eth_dst(), Some(MacAddr::BROADCAST));
    assert_eq!(fields.get(Field::ArpOp), Some(1));
    assert_eq!(fields.get(Field::ArpSpa), Some(0x0a00_0001));
    assert_eq!(fields.get(Field::ArpTpa), Some(0x0a00_0009));
    assert_eq!(fields.get(Field::ArpSha), Some(0x0200_0000_0001));
    assert_eq!(fields.get(Field::ArpTha), Some(0));
    let reply = build::arp_reply(Host::numbered(2), Host::numbered(1));
    assert_eq!(get(&reply, Field::ArpOp), Some(2));
    assert_eq!(get(&reply, Field::ArpTha), Some(0x0200_0000_0001));
}

#[test]
fn the_outer_of_two_vlan_tags_is_matched_and_the_packet_behind_both_read() {
    let plain = build::udp(Host::numbered(1), Host::numbered(2), (1, 2), b"");
    let once = PacketFields::parse(IN, &build::tagged(&plain, 7, 0));
    let twice = build::tagged(&build::tagged(&plain, 7, 0), 42, 5);
    let twice = PacketFields::parse(IN, &twice);
    assert_eq!(once.get(Field::VlanVid), Some(0x1007));
    assert_eq!(twice.vlan_id(), Some(42));
    assert_eq!(twice.get(Field::VlanPcp), Some(5));
    assert_eq!(twice.eth_type(), Some(ETH_IPV4));
    assert_eq!(twice.get(Field::UdpDst), Some(2));
}

#[test]
fn fragments_have_no_ports_and_one_flow_key() {
    let ports = [0, 80, 0, 90, 0, 8, 0, 0];
    let first = PacketFields::parse(IN, &ipv4_frame(IP_UDP, 0x2000, &ports));
    let later = PacketFields::parse(IN, &ipv4_frame(IP_UDP, 0x0001, &ports));
    let whole = PacketFields::parse(IN, &ipv4_frame(IP_UDP, 0x4000, &ports));
    assert_eq!(first.get(Field::UdpSrc), None);
    assert_eq!(later.get(Field::UdpSrc), None);
    assert_eq!(whole.get(Field::UdpSrc), Some(80));
    assert_eq!(first.flow_key(), later.flow_key());
    assert_ne!(first.flow_key(), whole.flow_key());
    assert_eq!(
        (first.get(Field::IpDscp), first.get(Field::IpEcn)),
        (Some(46), Some(1))
    );
}

#[test]
fn ethernet_padding_is_not_read_as_ports() {
    let mut frame = ipv4_frame(IP_UDP, 0, &[]);
    frame.extend([0xaa; 26]);
    assert_eq!(get(&frame, Field::UdpSrc), None);
    assert_eq!(get(&frame, Field::IpProto), Some(17));
}

#[test]
fn ipv6_extension_headers_are_walked_to_the_upper_header() {
    let mut rest = vec![43, 0, 0, 0, 0, 0, 0, 0]; // hop-by-hop, then routing
    rest.extend([IP_TCP, 0, 0, 0, 0, 0, 0, 0]); // routing, then TCP
    rest.extend([0, 22, 0, 23]);
    let fields = PacketFields::parse(IN, &ipv6_frame(0, &rest));
    assert_eq!(fields.ip_proto(), Some(IP_TCP));
    assert_eq!(fields.get(Field::TcpSrc), Some(22));
    assert_eq!(fields.get(Field::TcpDst), Some(23));
    assert_eq!(fields.get(Field::Ipv6Exthdr), Some(1 << 6 | 1 << 5));
    assert_eq!(fields.get(Field::Ipv6Flabel), Some(0x12345));
    assert_eq!(fields.get(Field::IpDscp), Some(46));

    let swapped = [
        vec![0u8, 0, 0, 0, 0, 0, 0, 0],
        vec![IP_TCP, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    let seen = get(&ipv6_frame(43, &swapped), Field::Ipv6Exthdr);
    assert_eq!(seen, Some(1 << 8 | 1 << 6 | 1 << 5), "out of order");
    let later = [IP_UDP, 0, 0, 8, 0, 0, 0, 1, 0, 1, 0, 2];
    let fragment = PacketFields::parse(IN, &ipv6_frame(44, &later));
    assert_eq!(
        (fragment.ip_proto(), fragment.get(Field::UdpSrc)),
        (Some(IP_UDP), None)
    );
}

#[test]
fn neighbour_discovery_has_its_target_and_link_layer_address() {
    for (kind, option, field) in [(135, 1, Field::Ipv6NdSll), (136, 2, Field::Ipv6NdTll)] {
        let mut nd = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        nd.extend([0xab; 16]);
        nd.extend([14, 1, 0, 0, 0, 0, 0, 0]); // a nonce first
        nd.extend([option, 1, 2, 0, 0, 0, 0, 9]);
        let frame = ipv6_frame(IP_ICMPV6, &nd);
        assert_eq!(
            get(&frame, Field::Ipv6NdTarget),
            Some(u128::from_be_bytes([0xab; 16]))
        );
        assert_eq!(get(&frame, field), Some(0x0200_0000_0009));
        assert_eq!(get(&frame, Field::Icmpv6Type), Some(kind.into()));
    }
}

#[test]
fn sctp_icmp_mpls_and_llc_are_read() {
    let sctp = ipv4_frame(IP_SCTP, 0, &[0x10, 0, 0x20, 0]);
    assert_eq!(get(&sctp, Field::SctpDst), Some(0x2000));
    let ping = build::icmp_echo_request(Host::numbered(1), Host::numbered(2), 1, 1, b"");
    assert_eq!(
        (get(&ping, Field::Icmpv4Type), get(&ping, Field::Icmpv4Code)),
        (Some(8), Some(0))
    );
    let label = 0x12345u32 << 12 | 5 << 9 | 1 << 8 | 64;
    let mpls = build::ethernet(
        MacAddr([2; 6]),
        MacAddr([4; 6]),
        ETH_MPLS,
        &label.to_be_bytes(),
    );
    assert_eq!(get(&mpls, Field::MplsLabel), Some(0x12345));
    assert_eq!(
        (get(&mpls, Field::MplsTc), get(&mpls, Field::MplsBos)),
        (Some(5), Some(1))
    );
    let llc = build::ethernet(MacAddr([2; 6]), MacAddr([4; 6]), 38, &[0x42, 0x42, 3]);
    assert_eq!(get(&llc, Field::EthType), Some(ETH_TYPE_NONE.into()));
    let snap = [0xaa, 0xaa, 3, 0, 0, 0, 0x08, 0x06];
    let snap = build::ethernet(MacAddr([2; 6]), MacAddr([4; 6]), 8, &snap);
    assert_eq!(get(&snap, Field::EthType), Some(ETH_ARP.into()));
}

#[test]
fn flow_keys_are_the_same_on_every_machine() {
    let frame = build::udp(Host::numbered(1), Host::numbered(2), (1000, 53), b"?");
    let key = PacketFields::parse(IN, &frame).flow_key();
    assert_eq!(key, 0x8abc_ebf3_03ba_9791, "computed apart from this code");
    let other_port = PacketFields::parse(PortNo(4), &frame).flow_key();
    let other_flow = build::udp(Host::numbered(1), Host::numbered(2), (1001, 53), b"?");
    assert_ne!(key, other_port);
    assert_ne!(key, PacketFields::parse(IN, &other_flow).flow_key());
    let empty = PacketFields::parse(IN, &[]).flow_key();
    assert_eq!(empty, PacketFields::parse(IN, &[1, 2, 3]).flow_key());
}

#[test]
fn a_frame_cut_anywhere_says_no_more_than_the_whole() {
    let plain = build::udp(Host::numbered(1), Host::numbered(2), (1000, 53), b"hello");
    for whole in [
        build::tagged(&plain, 5, 1),
        ipv6_frame(0, &[17, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2]),
    ] {
        let fields = PacketFields::parse(IN, &whole);
        for cut in 0..whole.len() {
            let less = PacketFields::parse(IN, &whole[..cut]);
            for info in FIELDS {
                let value = less.get(info.field);
                let walks = matches!(info.field, Field::Ipv6Exthdr);
                assert!(
                    value.is_none() || walks || value == fields.get(info.field),
                    "{cut} {info:?}"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(
        frame in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0usize..4,
        next in 0u8..64,
    ) {
        let _ = PacketFields::parse(IN, &frame);
        let kind = [ETH_IPV4, ETH_IPV6, ETH_ARP, ETH_MPLS][kind];
        let frame = build::ethernet(MacAddr([2; 6]), MacAddr([4; 6]), kind, &frame);
        let _ = PacketFields::parse(IN, &frame);
        let _ = PacketFields::parse(IN, &ipv6_frame(next, &frame));
        let _ = PacketFields::parse(IN, &ipv4_frame(next, u16::from(next) & 1, &frame));
    }
}
