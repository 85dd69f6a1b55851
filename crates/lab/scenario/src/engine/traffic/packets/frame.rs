//! UDP frames with a label that identifies the packet.
//!
//! The destination's Ethernet address belongs to no host, so no host's kernel answers a datagram
//! for a port without a listener. Every interface on the path still shows the frame.

use std::net::Ipv4Addr;
use std::ops::Range;

use openflow::MacAddr;
use openflow::packet::build::{self, Host};

const MAGIC: [u8; 4] = *b"pkt1";
const HEADERS_BYTES: usize = 14 + 20 + 8;
const LABEL_BYTES: usize = 24;
/// The shortest frame that can carry a label.
pub const FRAME_BYTES_MIN: usize = HEADERS_BYTES + LABEL_BYTES;
pub const FRAME_BYTES_MAX: usize = 1514;

const TOS_AT: usize = 15;
const IP_CHECKSUM: Range<usize> = 24..26;
const SOURCE_PORT: Range<usize> = 34..36;
const DESTINATION_PORT: Range<usize> = 36..38;
const UDP_CHECKSUM: Range<usize> = 40..42;

/// The label in a packet's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// One run of one traffic, unique in this process.
    pub run: u32,
    pub stream: u32,
    /// Counted from 0 within the run and the stream.
    pub number: u32,
    /// Time by the machine's real-time clock, with which the kernel stamps arrivals too.
    pub sent_ns: u64,
}

impl Label {
    /// The label of an Ethernet frame; `None` if it is not one of ours.
    pub fn read(frame: &[u8]) -> Option<Label> {
        let label = frame.get(HEADERS_BYTES..FRAME_BYTES_MIN)?;
        let word = |at: usize| Some(u32::from_be_bytes(label.get(at..at + 4)?.try_into().ok()?));
        if label[..4] != MAGIC {
            return None;
        }
        Some(Label {
            run: word(4)?,
            stream: word(8)?,
            number: word(12)?,
            sent_ns: u64::from_be_bytes(label[16..24].try_into().ok()?),
        })
    }

    fn write(self, frame: &mut [u8]) {
        let words = [
            u32::from_be_bytes(MAGIC),
            self.run,
            self.stream,
            self.number,
        ];
        let label = &mut frame[HEADERS_BYTES..FRAME_BYTES_MIN];
        for (place, word) in label.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        label[16..24].copy_from_slice(&self.sent_ns.to_be_bytes());
    }
}

/// The code point of an IPv4 frame.
pub fn code_point(frame: &[u8]) -> u8 {
    frame.get(TOS_AT).map_or(0, |tos| tos >> 2)
}

/// A frame that is patched for each packet.
pub struct Template {
    frame: Vec<u8>,
}

impl Template {
    /// `frame_bytes` is the size of the whole Ethernet frame without its checksum.
    pub fn new(frame_bytes: usize, dscp: u8) -> Template {
        let host = |n: u8| {
            Host::new(
                MacAddr([0x02, b'p', b'k', b't', 0, n]),
                Ipv4Addr::new(10, 99, 0, n),
            )
        };
        let payload = vec![0; frame_bytes.max(FRAME_BYTES_MIN) - HEADERS_BYTES];
        let mut frame = build::udp(host(1), host(2), (0, 0), &payload);
        // No checksum, which UDP over IPv4 permits: payload and ports differ from packet to packet.
        frame[UDP_CHECKSUM].fill(0);
        frame[TOS_AT] = dscp << 2;
        frame[IP_CHECKSUM].fill(0);
        let words = frame[14..34].chunks_exact(2);
        let sum: u32 = words
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
            .sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let folded = (folded & 0xffff) + (folded >> 16);
        frame[IP_CHECKSUM].copy_from_slice(&(!(folded as u16)).to_be_bytes());
        Template { frame }
    }

    /// The frame of this packet, from and to these UDP ports.
    pub fn packet(&mut self, ports: (u16, u16), label: Label) -> &[u8] {
        self.frame[SOURCE_PORT].copy_from_slice(&ports.0.to_be_bytes());
        self.frame[DESTINATION_PORT].copy_from_slice(&ports.1.to_be_bytes());
        label.write(&mut self.frame);
        &self.frame
    }
}

#[cfg(test)]
mod tests {
    use openflow::packet::PacketFields;
    use openflow::{Field, PortNo};

    use super::*;

    #[test]
    fn a_packet_says_which_it_is_and_is_a_datagram_to_its_port() {
        let label = Label {
            run: 7,
            stream: 1,
            number: 70_000,
            sent_ns: 1 << 60,
        };
        let frame = Template::new(178, 46).packet((1, 20_000), label).to_vec();
        assert_eq!((frame.len(), Label::read(&frame)), (178, Some(label)));
        let fields = PacketFields::parse(PortNo(1), &frame);
        assert_eq!(fields.get(Field::UdpDst), Some(20_000));
        assert_eq!(fields.get(Field::IpDscp), Some(46));
        assert_eq!(code_point(&frame), 46);
        for cut in 0..FRAME_BYTES_MIN {
            assert_eq!(Label::read(&frame[..cut]), None, "cut at {cut}");
        }
        let other = build::udp(Host::numbered(1), Host::numbered(2), (1, 2), &[0; 60]);
        assert_eq!(Label::read(&other), None);
    }

    #[test]
    fn the_checksum_of_a_marked_packet_is_that_of_its_header() {
        let sum = |frame: &[u8]| -> u32 {
            let words = frame[14..34].chunks_exact(2);
            let words = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
            words.sum()
        };
        for dscp in [0, 10, 48, 63] {
            let sum = sum(&Template::new(FRAME_BYTES_MIN, dscp).frame);
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "{dscp}");
        }
    }
}
