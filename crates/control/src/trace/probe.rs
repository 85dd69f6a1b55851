//! The traced packet: a small one with the requested fields.

use std::net::IpAddr;

use openflow::MacAddr;

const ETH_TYPE_IPV4: u16 = 0x0800;
const ETH_TYPE_IPV6: u16 = 0x86dd;
/// The EtherType for experiments (IEEE 802), for a packet between hosts without a known IP address.
const ETH_TYPE_OTHER: u16 = 0x88b5;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;
const HOPS: u8 = 64;

/// The fields of a packet besides its addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// The protocol over IP; UDP if `None`.
    pub proto: Option<u8>,
    pub src_port: u16,
    pub dst_port: u16,
    pub dscp: u8,
}

impl Probe {
    /// The frame between hosts, without a tag. `ips` are of one family.
    pub fn frame(&self, macs: (MacAddr, MacAddr), ips: Option<(IpAddr, IpAddr)>) -> Vec<u8> {
        let mut frame = Vec::with_capacity(100);
        frame.extend(macs.1.0);
        frame.extend(macs.0.0);
        let Some((src, dst)) = ips else {
            frame.extend(ETH_TYPE_OTHER.to_be_bytes());
            frame.resize(60, 0);
            return frame;
        };
        let proto = match (self.proto, src.is_ipv6()) {
            (Some(ICMP), true) => ICMPV6,
            (proto, _) => proto.unwrap_or(UDP),
        };
        let message = self.message(proto, (src, dst));
        let len = message.len() as u16;
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                frame.extend(ETH_TYPE_IPV4.to_be_bytes());
                let [a, b] = (20 + len).to_be_bytes();
                let mut header = [0x45, self.dscp << 2, a, b, 0, 0, 0x40, 0, HOPS, proto].to_vec();
                let sum = sum(&[&header, &src.octets(), &dst.octets()]);
                header.extend(sum.to_be_bytes());
                header.extend(src.octets());
                header.extend(dst.octets());
                frame.extend(header);
            }
            _ => {
                frame.extend(ETH_TYPE_IPV6.to_be_bytes());
                let [a, b] = len.to_be_bytes();
                let class = [0x60 | self.dscp >> 2, self.dscp << 6, 0, 0];
                frame.extend(class);
                frame.extend([a, b, proto, HOPS]);
                frame.extend(octets(src));
                frame.extend(octets(dst));
            }
        }
        frame.extend(message);
        frame
    }

    /// The packet of the protocol, with its checksum.
    fn message(&self, proto: u8, (src, dst): (IpAddr, IpAddr)) -> Vec<u8> {
        const PAYLOAD: &[u8] = b"auster trace";
        const SYN: [u8; 2] = [0x50, 0x02];
        let mut message = [self.src_port.to_be_bytes(), self.dst_port.to_be_bytes()].concat();
        let sum_at = match proto {
            UDP => {
                message.extend((8 + PAYLOAD.len() as u16).to_be_bytes());
                message.extend([0, 0]);
                message.extend(PAYLOAD);
                Some(6)
            }
            TCP => {
                message.extend([0; 8]);
                message.extend(SYN);
                message.extend([0xff, 0xff, 0, 0, 0, 0]);
                Some(16)
            }
            ICMP | ICMPV6 => {
                let kind = if proto == ICMP { 8 } else { 128 };
                message = vec![kind, 0, 0, 0, 0, 1, 0, 1];
                message.extend(PAYLOAD);
                Some(2)
            }
            SCTP => {
                message.extend([0; 8]);
                message.extend(PAYLOAD);
                None
            }
            _ => {
                message = PAYLOAD.to_vec();
                None
            }
        };
        if let Some(at) = sum_at {
            let [a, b] = (message.len() as u16).to_be_bytes();
            let around = match proto {
                ICMP => Vec::new(),
                _ => [octets(src), octets(dst), vec![0, proto, a, b]].concat(),
            };
            let sum = match sum(&[&around, &message]) {
                0 if proto == UDP => 0xffff,
                sum => sum,
            };
            message[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        message
    }
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// The Internet checksum of parts of even length; the last may be odd (RFC 1071).
fn sum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let word = |pair: &[u8]| {
        let low = pair.get(1).copied().unwrap_or(0);
        u32::from(pair[0]) << 8 | u32::from(low)
    };
    let mut sum: u32 = words.map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use openflow::Field;
    use openflow::PortNo;
    use openflow::packet::PacketFields;
    use openflow::packet::build::{self, Host};

    use super::*;

    #[test]
    fn a_frame_has_the_fields_that_were_asked_for() {
        let probe = |proto| Probe {
            proto: Some(proto),
            src_port: 1000,
            dst_port: 5060,
            dscp: 46,
        };
        let macs = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
        let families: [(IpAddr, IpAddr); 2] = [
            ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
            (
                [0xfd00, 0, 0, 0, 0, 0, 0, 1].into(),
                [0xfd00, 0, 0, 0, 0, 0, 0, 2].into(),
            ),
        ];
        let ports = [
            (TCP, Field::TcpDst),
            (UDP, Field::UdpDst),
            (SCTP, Field::SctpDst),
        ];
        for ips in families {
            for (proto, field) in ports {
                let frame = probe(proto).frame(macs, Some(ips));
                let fields = PacketFields::parse(PortNo(1), &frame);
                assert_eq!(fields.ip_proto(), Some(proto));
                assert_eq!(fields.get(field), Some(5060), "{field:?} {ips:?}");
                assert_eq!(fields.get(Field::IpDscp), Some(46));
            }
            let frame = probe(ICMP).frame(macs, Some(ips));
            let fields = PacketFields::parse(PortNo(1), &frame);
            let kinds = [Field::Icmpv4Type, Field::Icmpv6Type].map(|kind| fields.get(kind));
            assert!(kinds.contains(&Some(8)) || kinds.contains(&Some(128)));
            let other = probe(47).frame(macs, Some(ips));
            assert_eq!(PacketFields::parse(PortNo(1), &other).ip_proto(), Some(47));
        }
        let bare = Probe::default().frame(macs, None);
        assert_eq!(
            PacketFields::parse(PortNo(1), &bare).eth_dst(),
            Some(macs.1)
        );
    }

    /// Hosts of this machine drop a packet with a wrong checksum.
    #[test]
    fn checksums_are_those_of_a_library() {
        let (a, b) = (Host::numbered(1), Host::numbered(2));
        let probe = Probe {
            proto: Some(UDP),
            src_port: 1000,
            dst_port: 5060,
            dscp: 0,
        };
        let ips = |host: Host| IpAddr::from(host.ip);
        let ours = probe.frame((a.mac, b.mac), Some((ips(a), ips(b))));
        let theirs = build::udp(a, b, (1000, 5060), b"auster trace");
        assert_eq!(ours[34..], theirs[34..], "the datagram");
        assert_eq!(sum(&[&ours[14..34]]), 0, "the header sums to nothing");
    }
}
