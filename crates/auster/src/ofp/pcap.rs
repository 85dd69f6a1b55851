//! Classic pcap files: their packets, and the TCP segments in them.
//!
//! A file may come from anyone, so every length is checked. A malformed packet is counted and
//! skipped. A record longer than [`PACKET_LEN_MAX`] ends the file, because nothing after it can be
//! found. Fragmented IP packets are skipped: OpenFlow's own segments fit their path.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;

/// The longest record that any capture program writes (`MAXIMUM_SNAPLEN` of libpcap).
pub const PACKET_LEN_MAX: usize = 262_144;

const FILE_HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;

/// The reason why a file is no pcap file, or ends too early.
#[derive(Debug, PartialEq, Eq)]
pub enum PcapError {
    TooShort,
    /// pcapng and all other formats have other magic numbers.
    NotPcap,
    LinkType(u32),
    /// The record at this offset is cut off, or longer than a packet can be.
    BadRecord {
        offset: usize,
    },
}

impl std::fmt::Display for PcapError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PcapError::TooShort => write!(f, "too short for a pcap file: capture it again"),
            PcapError::NotPcap => write!(
                f,
                "not a classic pcap file: convert it with `editcap -F pcap IN OUT` or capture with \
                 tcpdump -w"
            ),
            PcapError::LinkType(n) => write!(
                f,
                "link type {n} is not read: capture on an Ethernet or loopback interface, or on \
                 'any'"
            ),
            PcapError::BadRecord { offset } => {
                write!(f, "the record at byte {offset} is cut off or too long")
            }
        }
    }
}

/// The first header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Ethernet,
    /// BSD loopback: four bytes of address family.
    Null,
    /// IP without anything before it.
    Raw,
    /// Linux "any", 16 bytes and the protocol in the last two.
    LinuxSll,
    /// The successor of Linux "any", 20 bytes and the protocol in the first two.
    LinuxSll2,
}

impl Link {
    /// LINKTYPE_* of the tcpdump registry; DLT_RAW differs between systems.
    fn from_number(n: u32) -> Option<Link> {
        Some(match n & 0x0fff_ffff {
            0 | 108 => Link::Null,
            1 => Link::Ethernet,
            12 | 14 | 101 | 228 | 229 => Link::Raw,
            113 => Link::LinuxSll,
            276 => Link::LinuxSll2,
            _ => return None,
        })
    }
}

/// The packets of one file, in the file's order.
pub struct Packets {
    file: Bytes,
    at: usize,
    is_big_endian: bool,
    is_nanoseconds: bool,
    link: Link,
}

/// A TCP segment, with its capture time since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub time: Duration,
    pub src: SocketAddr,
    pub dst: SocketAddr,
    pub sequence: u32,
    pub is_syn: bool,
    pub is_reset: bool,
    pub data: Bytes,
}

impl Packets {
    pub fn open(file: Bytes) -> Result<Packets, PcapError> {
        if file.len() < FILE_HEADER_LEN {
            return Err(PcapError::TooShort);
        }
        let (is_big_endian, is_nanoseconds) = match file[..4] {
            [0xa1, 0xb2, 0xc3, 0xd4] => (true, false),
            [0xd4, 0xc3, 0xb2, 0xa1] => (false, false),
            [0xa1, 0xb2, 0x3c, 0x4d] => (true, true),
            [0x4d, 0x3c, 0xb2, 0xa1] => (false, true),
            _ => return Err(PcapError::NotPcap),
        };
        let mut packets = Packets {
            file,
            at: FILE_HEADER_LEN,
            is_big_endian,
            is_nanoseconds,
            link: Link::Raw,
        };
        let number = packets.u32_at(20).ok_or(PcapError::TooShort)?;
        packets.link = Link::from_number(number).ok_or(PcapError::LinkType(number))?;
        Ok(packets)
    }

    /// The next record's packet as a TCP segment; `Some(Ok(None))` if the packet is not one.
    pub fn next_segment(&mut self) -> Option<Result<Option<Segment>, PcapError>> {
        if self.at >= self.file.len() {
            return None;
        }
        let offset = self.at;
        let record = self.record();
        if record.is_none() {
            self.at = self.file.len();
        }
        let (time, packet) = match record {
            Some(record) => record,
            None => return Some(Err(PcapError::BadRecord { offset })),
        };
        Some(Ok(
            network_packet(self.link, &packet).and_then(|ip| segment(time, &ip))
        ))
    }

    fn record(&mut self) -> Option<(Duration, Bytes)> {
        let seconds = self.u32_at(self.at)?;
        let fraction = self.u32_at(self.at + 4)?;
        let len = usize::try_from(self.u32_at(self.at + 8)?).ok()?;
        let start = self.at + RECORD_HEADER_LEN;
        if len > PACKET_LEN_MAX || self.file.len() < start + len {
            return None;
        }
        self.at = start + len;
        let nanoseconds = u64::from(fraction) * if self.is_nanoseconds { 1 } else { 1000 };
        let time = Duration::from_secs(u64::from(seconds)) + Duration::from_nanos(nanoseconds);
        Some((time, self.file.slice(start..start + len)))
    }

    fn u32_at(&self, at: usize) -> Option<u32> {
        let bytes = self.file.get(at..at + 4)?.first_chunk::<4>()?;
        Some(if self.is_big_endian {
            u32::from_be_bytes(*bytes)
        } else {
            u32::from_le_bytes(*bytes)
        })
    }
}

/// Returns the part of `packet` from its IP header on.
fn network_packet(link: Link, packet: &Bytes) -> Option<Bytes> {
    let (mut at, mut ty) = match link {
        Link::Raw => return Some(packet.clone()),
        Link::Null => return (packet.len() > 4).then(|| packet.slice(4..)),
        Link::Ethernet => (14, u16_at(packet, 12)?),
        Link::LinuxSll => (16, u16_at(packet, 14)?),
        Link::LinuxSll2 => (20, u16_at(packet, 0)?),
    };
    while matches!(ty, 0x8100 | 0x88a8) {
        ty = u16_at(packet, at + 2)?;
        at += 4;
    }
    (matches!(ty, 0x0800 | 0x86dd) && packet.len() > at).then(|| packet.slice(at..))
}

fn segment(time: Duration, ip: &Bytes) -> Option<Segment> {
    let (src, dst, tcp): (IpAddr, IpAddr, Bytes) = match ip.first()? >> 4 {
        4 => {
            let header = usize::from(ip[0] & 0xf) * 4;
            let total = usize::from(u16_at(ip, 2)?);
            let is_fragment = u16_at(ip, 6)? & 0x3fff != 0;
            if header < 20 || *ip.get(9)? != 6 || is_fragment {
                return None;
            }
            // Segmentation offload leaves 0 here: then the capture's length counts.
            let end = if total == 0 {
                ip.len()
            } else {
                total.min(ip.len())
            };
            let address = |at: usize| -> Option<Ipv4Addr> {
                Some(Ipv4Addr::from(*ip.get(at..at + 4)?.first_chunk::<4>()?))
            };
            (
                address(12)?.into(),
                address(16)?.into(),
                slice(ip, header, end)?,
            )
        }
        6 => {
            let payload = usize::from(u16_at(ip, 4)?);
            if *ip.get(6)? != 6 {
                return None;
            }
            let end = if payload == 0 {
                ip.len()
            } else {
                (40 + payload).min(ip.len())
            };
            let address = |at: usize| -> Option<Ipv6Addr> {
                Some(Ipv6Addr::from(*ip.get(at..at + 16)?.first_chunk::<16>()?))
            };
            (address(8)?.into(), address(24)?.into(), slice(ip, 40, end)?)
        }
        _ => return None,
    };
    let header = usize::from(tcp.get(12)? >> 4) * 4;
    let flags = *tcp.get(13)?;
    if header < 20 {
        return None;
    }
    Some(Segment {
        time,
        src: SocketAddr::new(src, u16_at(&tcp, 0)?),
        dst: SocketAddr::new(dst, u16_at(&tcp, 2)?),
        sequence: u32::from(u16_at(&tcp, 4)?) << 16 | u32::from(u16_at(&tcp, 6)?),
        is_syn: flags & 2 != 0,
        is_reset: flags & 4 != 0,
        data: slice(&tcp, header, tcp.len())?,
    })
}

fn slice(bytes: &Bytes, start: usize, end: usize) -> Option<Bytes> {
    (start <= end && end <= bytes.len()).then(|| bytes.slice(start..end))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A file of one packet per item of `payloads`, from port 40000 to 6653.
    pub fn file(link: u32, is_big_endian: bool, payloads: &[&[u8]]) -> Vec<u8> {
        let u32_bytes = |n: u32| {
            if is_big_endian {
                n.to_be_bytes()
            } else {
                n.to_le_bytes()
            }
        };
        let mut file = u32_bytes(0xa1b2_c3d4).to_vec();
        file.extend([0; 12]);
        file.extend(u32_bytes(65_535));
        file.extend(u32_bytes(link));
        let mut sequence = 1u32;
        for (n, payload) in payloads.iter().enumerate() {
            let mut packet = match link {
                1 => [&[2; 12][..], &[0x81, 0, 0, 5, 8, 0]].concat(),
                0 => vec![2, 0, 0, 0],
                113 => [&[0; 14][..], &[8, 0]].concat(),
                276 => [&[8, 0][..], &[0; 18]].concat(),
                _ => Vec::new(),
            };
            let total = u16::try_from(40 + payload.len()).unwrap();
            packet.extend([0x45, 0]);
            packet.extend(total.to_be_bytes());
            packet.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            packet.extend(40_000u16.to_be_bytes());
            packet.extend(6_653u16.to_be_bytes());
            packet.extend(sequence.to_be_bytes());
            packet.extend([0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
            packet.extend(*payload);
            sequence += payload.len() as u32;
            let len = u32_bytes(packet.len() as u32);
            file.extend([u32_bytes(1_700_000_000 + n as u32), u32_bytes(5), len, len].concat());
            file.extend(packet);
        }
        file
    }

    fn segments(file: Vec<u8>) -> Vec<Result<Option<Segment>, PcapError>> {
        let mut packets = match Packets::open(Bytes::from(file)) {
            Ok(packets) => packets,
            Err(error) => return vec![Err(error)],
        };
        std::iter::from_fn(|| packets.next_segment()).collect()
    }

    #[test]
    fn every_link_type_and_byte_order_gives_the_same_segments() {
        for link in [0, 1, 101, 113, 276] {
            for is_big_endian in [false, true] {
                let found = segments(file(link, is_big_endian, &[b"one", b"two"]));
                let found: Vec<Segment> = found.into_iter().map(|s| s.unwrap().unwrap()).collect();
                assert_eq!(found.len(), 2, "link type {link}");
                assert_eq!(&found[1].data[..], b"two");
                assert_eq!(found[1].dst, "10.0.0.2:6653".parse().unwrap());
                assert_eq!(found[0].time, Duration::new(1_700_000_000, 5_000));
            }
        }
    }

    #[test]
    fn other_files_are_refused_by_name() {
        let pcapng = [&[0x0a, 0x0d, 0x0d, 0x0a][..], &[0; 40]].concat();
        assert_eq!(segments(pcapng), [Err(PcapError::NotPcap)]);
        assert_eq!(segments(vec![0xd4; 8]), [Err(PcapError::TooShort)]);
        assert_eq!(
            segments(file(147, false, &[])),
            [Err(PcapError::LinkType(147))]
        );
    }

    /// Files cut at every length, and with every header byte changed, give an answer, never a
    /// panic.
    #[test]
    fn hostile_files_are_read_or_refused() {
        let whole = file(1, false, &[&[4, 20, 0, 8, 0, 0, 0, 1], &[4, 20, 0, 8]]);
        for len in 0..whole.len() {
            let found = segments(whole[..len].to_vec());
            assert!(found.len() <= 2);
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x0f, 0x45, 0x46, 0x60, 0x7f, 0x80, 0xf0, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                let mut streams = crate::ofp::streams::Streams::default();
                for segment in segments(changed).into_iter().flatten().flatten() {
                    streams.handle_segment(&segment);
                }
                streams.finish();
            }
        }
    }
}
