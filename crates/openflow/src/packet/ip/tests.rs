use etherparse::{Icmpv4Type, Icmpv6Type, SlicedPacket, TransportSlice};
use proptest::prelude::*;

use crate::packet::build::{Host, icmp_echo_request, udp, udp6};

use super::*;

const MACS: (MacAddr, MacAddr) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));

fn host6(n: u16) -> (MacAddr, Ipv6Addr) {
    let ip = Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, n);
    (MacAddr([2, 0, 0, 0, 0, n as u8]), ip)
}

fn read(frame: &[u8]) -> Datagram<'_> {
    Datagram::read(frame)
        .expect("an IP packet")
        .expect("it is right")
}

/// An echo request over IPv6.
fn echo6(payload: &[u8]) -> Vec<u8> {
    let (from, to) = (host6(1), host6(2));
    let step = etherparse::PacketBuilder::ethernet2(from.0.0, to.0.0)
        .ipv6(from.1.octets(), to.1.octets(), 64)
        .icmpv6_echo_request(7, 9);
    let mut frame = Vec::new();
    step.write(&mut frame, payload).expect("it fits");
    frame
}

/// Checks lengths and checksums with another packet parser.
fn check(frame: &[u8]) {
    let packet = SlicedPacket::from_ethernet(frame).expect("it is well formed");
    let net = packet.net.expect("IP");
    match (&net, packet.transport) {
        (etherparse::NetSlice::Ipv4(ip), Some(transport)) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            if let TransportSlice::Icmpv4(icmp) = transport {
                assert_eq!(checksum(&[icmp.slice()]), 0);
            }
        }
        (etherparse::NetSlice::Ipv6(ip), Some(TransportSlice::Icmpv6(icmp))) => {
            let header = ip.header();
            let (source, to) = (header.source(), header.destination());
            assert!(icmp.is_checksum_valid(source, to));
        }
        _ => {}
    }
}

#[test]
fn a_packet_goes_on_with_one_hop_less() {
    let (a, b) = (Host::numbered(1), Host::numbered(2));
    for frame in [
        udp(a, b, (1, 2), b"abc"),
        udp6(host6(1), host6(2), (1, 2), b"abc"),
    ] {
        let packet = read(&frame);
        let on = packet.forwarded(MACS.0, MACS.1).expect("it has hops left");
        check(&on);
        let read = read(&on);
        assert_eq!((read.from, read.to), (packet.from, packet.to));
        assert_eq!((read.ttl, packet.ttl), (63, 64));
        assert_eq!(read.message, packet.message);
        assert_eq!(on[..12], [&MACS.1.0[..], &MACS.0.0].concat());
    }
}

#[test]
fn an_echo_is_answered_with_what_was_asked() {
    let asked = icmp_echo_request(Host::numbered(1), Host::numbered(2), 7, 9, b"payload");
    let reply = read(&asked).echo_reply(MACS.0, MACS.1).expect("an answer");
    check(&reply);
    let packet = SlicedPacket::from_ethernet(&reply).expect("it is well formed");
    let Some(TransportSlice::Icmpv4(icmp)) = packet.transport else {
        panic!("{packet:?}");
    };
    let header = etherparse::IcmpEchoHeader { id: 7, seq: 9 };
    assert_eq!(icmp.icmp_type(), Icmpv4Type::EchoReply(header));
    assert_eq!(icmp.payload(), b"payload");

    let asked = echo6(b"payload");
    let reply = read(&asked).echo_reply(MACS.0, MACS.1).expect("an answer");
    check(&reply);
    let packet = SlicedPacket::from_ethernet(&reply).expect("it is well formed");
    let Some(TransportSlice::Icmpv6(icmp)) = packet.transport else {
        panic!("{packet:?}");
    };
    assert_eq!(icmp.icmp_type(), Icmpv6Type::EchoReply(header));
    assert_eq!(read(&reply).to, read(&asked).from);
}

#[test]
fn an_answer_and_a_wrong_checksum_are_not_answered() {
    let asked = icmp_echo_request(Host::numbered(1), Host::numbered(2), 7, 9, b"payload");
    let reply = read(&asked).echo_reply(MACS.0, MACS.1).expect("an answer");
    assert_eq!(read(&reply).echo_reply(MACS.0, MACS.1), None);
    let mut wrong = asked;
    wrong[40] ^= 1;
    assert_eq!(read(&wrong).echo_reply(MACS.0, MACS.1), None);
}

/// No error is reported for an error or a later fragment, nor to an address other than one host's.
#[test]
fn errors_are_reported_to_hosts_alone() {
    let (a, b) = (Host::numbered(1), Host::numbered(2));
    let errors = [
        IcmpError::TimeExceeded,
        IcmpError::NoRoute,
        IcmpError::HostUnreachable,
        IcmpError::PortUnreachable,
    ];
    let cases = [
        (udp(a, b, (1, 2), &[7; 1400]), IpAddr::from(b.ip), 576),
        (
            udp6(host6(1), host6(2), (1, 2), &[7; 1400]),
            host6(9).1.into(),
            1280,
        ),
    ];
    for (frame, router, len) in cases {
        for error in errors {
            let report = read(&frame).error(error, router, MACS).expect("a report");
            check(&report);
            assert_eq!(report.len(), 14 + len);
            let report_read = read(&report);
            assert_eq!(
                (report_read.from, report_read.to),
                (router, read(&frame).from)
            );
            assert_eq!(
                read(&report).error(error, router, MACS),
                None,
                "of an error"
            );
        }
    }
    let error = |frame: &[u8]| read(frame).error(IcmpError::NoRoute, b.ip.into(), MACS);
    for source in [
        [0, 0, 0, 0],
        [224, 0, 0, 1],
        [127, 0, 0, 1],
        [255, 255, 255, 255],
    ] {
        let from = Host {
            ip: source.into(),
            ..a
        };
        assert_eq!(error(&udp(from, b, (1, 2), b"")), None, "{source:?}");
    }
    let mut fragment = udp(a, b, (1, 2), b"abcdefgh");
    fragment[21] = 1;
    sum_ipv4(&mut fragment[14..34]);
    assert_eq!(error(&fragment), None);
    let mut of_echo = icmp_echo_request(a, b, 1, 1, b"");
    assert!(error(&of_echo).is_some());
    of_echo[34] = 5;
    assert_eq!(error(&of_echo), None, "a redirect");
}

#[test]
fn what_is_wrong_with_a_packet_is_said() {
    let right = udp(Host::numbered(1), Host::numbered(2), (1, 2), b"abcdefgh");
    let changed = |at: usize, byte: u8| {
        let mut frame = right.clone();
        frame[at] = byte;
        Datagram::read(&frame).map(|read| read.map(drop))
    };
    assert_eq!(changed(14, 0x65), Some(Err(Refusal::Version)));
    assert_eq!(
        changed(14, 0x44),
        Some(Err(Refusal::Length)),
        "a short header"
    );
    assert_eq!(
        changed(14, 0x4f),
        Some(Err(Refusal::Length)),
        "a long header"
    );
    assert_eq!(changed(16, 0xff), Some(Err(Refusal::Length)), "too long");
    assert_eq!(changed(22, 63), Some(Err(Refusal::Checksum)));
    assert_eq!(changed(12, 0x09), None);
    let right = udp6(host6(1), host6(2), (1, 2), b"");
    let mut long = right.clone();
    long[19] = 200;
    assert_eq!(Datagram::read(&long), Some(Err(Refusal::Length)));
    let mut other = right;
    other[14] = 0x40;
    assert_eq!(Datagram::read(&other), Some(Err(Refusal::Version)));
}

/// IP options and headers of any length.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let right = prop_oneof![
        Just(udp(Host::numbered(1), Host::numbered(2), (1, 2), &[7; 40])),
        Just(icmp_echo_request(
            Host::numbered(1),
            Host::numbered(2),
            1,
            2,
            &[7; 40]
        )),
        Just(udp6(host6(1), host6(2), (1, 2), &[7; 40])),
        Just(echo6(&[7; 40])),
    ];
    let edits = prop::collection::vec((0usize..90, any::<u8>()), 0..8);
    (right, edits, 0usize..120, any::<bool>()).prop_map(|(mut frame, edits, len, sums)| {
        for (at, byte) in edits {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame.truncate(len);
        let header_len = frame.get(14).map_or(0, |byte| usize::from(byte & 0xf) * 4);
        if let Some(header) = frame.get_mut(14..14 + header_len)
            && sums
            && header_len >= IPV4_LEN
        {
            sum_ipv4(header);
        }
        frame
    })
}

proptest! {
    /// Any packet: reading does not panic, and all frames made from the packet are right and
    /// bounded.
    #[test]
    fn any_packet_is_read(frame in hostile()) {
        let Some(Ok(packet)) = Datagram::read(&frame) else {
            return Ok(());
        };
        prop_assert!(packet.packet.len() + ETHERNET_LEN <= frame.len());
        let made = [
            packet.forwarded(MACS.0, MACS.1),
            packet.echo_reply(MACS.0, MACS.1),
            packet.error(IcmpError::NoRoute, Host::numbered(3).ip.into(), MACS),
            packet.error(IcmpError::TimeExceeded, host6(3).1.into(), MACS),
        ];
        for made in made.into_iter().flatten() {
            let again = Datagram::read(&made);
            prop_assert!(matches!(again, Some(Ok(_))), "{again:?}");
            prop_assert!(made.len() <= frame.len().max(14 + 1280));
            let again = read(&made);
            if let Some(message) = again.icmp().filter(|_| again.ttl == TTL) {
                let is_answer = again.to == packet.from && packet.from != packet.to;
                prop_assert!(!is_answer || again.icmp_sum(message) == 0);
            }
        }
        prop_assert_eq!(packet.forwarded(MACS.0, MACS.1).is_some(), packet.ttl > 1);
    }

    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Datagram::read(&bytes);
    }
}
