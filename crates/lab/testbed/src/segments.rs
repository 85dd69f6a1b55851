//! Reads OpenFlow 1.3 to 1.5 from the wire: reassembles TCP segments into messages.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The TCP connections of a controller's port that carry OpenFlow 1.3 to 1.5.
#[derive(Debug)]
pub struct Connections {
    port: u16,
    /// The two directions of each connection, up and down, by the switch's port.
    streams: BTreeMap<u16, [Bytestream; 2]>,
}

impl Connections {
    pub fn new(port: u16) -> Connections {
        Connections {
            port,
            streams: BTreeMap::new(),
        }
    }

    /// Passes on each message that the frame completes, with the switch's port.
    pub fn handle(&mut self, frame: &[u8], mut message: impl FnMut(u16, &[u8])) {
        let Some(segment) = Segment::read(frame) else {
            return;
        };
        let (switch, way) = match self.port {
            port if port == segment.to => (segment.from, 0),
            port if port == segment.from => (segment.to, 1),
            _ => return,
        };
        let streams = self.streams.entry(switch).or_default();
        streams[way].handle(&segment, |bytes| message(switch, bytes));
    }

    /// The number of times that segments were missed, and perhaps messages with them.
    pub fn gaps(&self) -> u64 {
        let streams = self.streams.values().flatten();
        streams.map(|stream| stream.gaps).sum()
    }
}

/// One direction of a TCP connection that carries OpenFlow 1.3.
#[derive(Debug, Default)]
pub struct Bytestream {
    /// The sequence number of the next byte; `None` before the first segment.
    next: Option<u32>,
    part: Vec<u8>,
    /// Gaps where segments were missed; after a gap, reading resumes at a message's header.
    pub gaps: u64,
}

const VERSIONS: RangeInclusive<u8> = 4..=6;
const HEADER_BYTES: usize = 8;
const TYPE_MAX: u8 = 35;

impl Bytestream {
    /// Passes on each message that the segment completes.
    pub fn handle(&mut self, segment: &Segment, message: impl FnMut(&[u8])) {
        if segment.is_first {
            // A new connection.
            self.next = Some(segment.sequence.wrapping_add(1));
            self.part.clear();
            return;
        }
        if segment.bytes.is_empty() {
            return;
        }
        let expected = *self.next.get_or_insert(segment.sequence);
        // Bytes that were seen before, if any: a retransmission.
        let known = expected.wrapping_sub(segment.sequence) as i32;
        let fresh = match usize::try_from(known) {
            Ok(known) => segment.bytes.get(known..).unwrap_or_default(),
            Err(_) => {
                self.gaps += 1;
                self.part.clear();
                segment.bytes
            }
        };
        if fresh.is_empty() {
            return;
        }
        let end = segment.sequence.wrapping_add(segment.bytes.len() as u32);
        self.next = Some(end);
        if self.part.is_empty() && !begins_a_message(fresh) {
            return;
        }
        self.part.extend_from_slice(fresh);
        self.take_messages(message);
    }

    fn take_messages(&mut self, mut message: impl FnMut(&[u8])) {
        let mut at = 0;
        while let Some(header) = self.part[at..].first_chunk::<HEADER_BYTES>() {
            let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
            if !begins_a_message(header) {
                self.part.clear();
                self.gaps += 1;
                return;
            }
            let Some(bytes) = self.part.get(at..at + len) else {
                break;
            };
            message(bytes);
            at += len;
        }
        self.part.drain(..at);
    }
}

/// Whether the bytes, as far as they go, look like the start of a message.
fn begins_a_message(bytes: &[u8]) -> bool {
    let is_header = |b: &[u8; 4]| u16::from_be_bytes([b[2], b[3]]) as usize >= HEADER_BYTES;
    bytes
        .first()
        .is_none_or(|version| VERSIONS.contains(version))
        && bytes.get(1).is_none_or(|kind| *kind <= TYPE_MAX)
        && bytes.first_chunk::<4>().is_none_or(is_header)
}

/// The packet in a PACKET_IN.
pub fn packet_in(message: &[u8]) -> Option<&[u8]> {
    // The match, padded, and two bytes more.
    let match_len = u16::from_be_bytes(*message.get(26..)?.first_chunk()?);
    message.get(24 + usize::from(match_len).next_multiple_of(8) + 2..)
}

/// The packet in a PACKET_OUT, after the actions.
pub fn packet_out(message: &[u8]) -> Option<&[u8]> {
    let len = |at: usize| {
        let bytes = message.get(at..)?.first_chunk()?;
        Some(usize::from(u16::from_be_bytes(*bytes)))
    };
    // In 1.5 a match precedes the actions.
    match message.first() {
        Some(6) => message.get(16 + len(18)?.next_multiple_of(8) + len(12)?..),
        _ => message.get(24 + len(16)?..),
    }
}

/// A TCP segment over IPv4 over Ethernet.
pub struct Segment<'a> {
    pub from: u16,
    pub to: u16,
    sequence: u32,
    /// Whether the segment has SYN set.
    is_first: bool,
    bytes: &'a [u8],
}

impl Segment<'_> {
    pub fn read(frame: &[u8]) -> Option<Segment<'_>> {
        const ETHERNET_BYTES: usize = 14;
        const IPV4: [u8; 2] = [0x08, 0x00];
        const TCP: u8 = 6;
        const SYN: u8 = 2;
        let (ethernet, packet) = frame.split_at_checked(ETHERNET_BYTES)?;
        if ethernet[12..] != IPV4 || *packet.get(9)? != TCP {
            return None;
        }
        let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
        let header = usize::from(packet[0] & 15) * 4;
        // A short frame is padded; an offloaded segment beyond 64 KiB has a total length of 0.
        let packet = packet.get(..total).filter(|_| total > 0).unwrap_or(packet);
        let tcp = packet.get(header..)?;
        let fixed = tcp.first_chunk::<20>()?;
        let data = usize::from(fixed[12] >> 4) * 4;
        Some(Segment {
            from: u16::from_be_bytes([fixed[0], fixed[1]]),
            to: u16::from_be_bytes([fixed[2], fixed[3]]),
            sequence: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
            is_first: fixed[13] & SYN != 0,
            bytes: tcp.get(data..)?,
        })
    }
}

/// A frame with a segment, for tests.
pub fn frame(ports: (u16, u16), sequence: u32, bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 14 + 20 + 20];
    frame[12] = 8;
    frame[14] = 0x45;
    let total = (40 + bytes.len()) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[23] = 6;
    frame[34..36].copy_from_slice(&ports.0.to_be_bytes());
    frame[36..38].copy_from_slice(&ports.1.to_be_bytes());
    frame[38..42].copy_from_slice(&sequence.to_be_bytes());
    frame[46] = 0x50;
    frame.extend_from_slice(bytes);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An echo request with a number in it.
    fn message(number: u8) -> Vec<u8> {
        let mut message = vec![number; 220];
        message[..4].copy_from_slice(&[4, 2, 0, 220]);
        message
    }

    /// The numbers of the messages that a segment completes.
    fn take(stream: &mut Bytestream, sequence: u32, bytes: &[u8]) -> Vec<u8> {
        let frame = frame((40_000, 6653), sequence, bytes);
        let mut found = Vec::new();
        let segment = Segment::read(&frame).unwrap();
        assert_eq!((segment.from, segment.to), (40_000, 6653));
        stream.handle(&segment, |message| found.push(message[8]));
        found
    }

    #[test]
    fn messages_are_found_whatever_the_segments() {
        let all = [message(1), message(2)].concat();
        for cut in 0..=all.len() {
            let mut stream = Bytestream::default();
            // Close to the wrap-around of sequence numbers.
            let base = u32::MAX - 100;
            let first = take(&mut stream, base, &all[..cut]);
            let second = take(&mut stream, base.wrapping_add(cut as u32), &all[cut..]);
            assert_eq!(first.len(), cut / 220, "cut at {cut}");
            assert_eq!([first, second].concat(), [1, 2], "cut at {cut}");
            assert_eq!(stream.gaps, 0);
        }
    }

    #[test]
    fn a_missed_segment_is_a_gap_and_a_repeated_one_nothing() {
        let one = message(1);
        let mut stream = Bytestream::default();
        assert_eq!(take(&mut stream, 0, &one), [1]);
        assert_eq!(take(&mut stream, 0, &one), [0; 0], "a repetition");
        assert_eq!(stream.gaps, 0);
        // Half a message is missed, and the rest begins in its middle.
        assert_eq!(take(&mut stream, 220 + 100, &one[100..]), [0; 0]);
        assert_eq!(take(&mut stream, 440, &message(3)), [3]);
        assert_eq!(stream.gaps, 1);
    }

    #[test]
    fn frames_cut_anywhere_are_no_harm() {
        let whole = frame((40_000, 6653), 0, &message(1));
        for cut in 0..whole.len() {
            if let Some(segment) = Segment::read(&whole[..cut]) {
                Bytestream::default().handle(&segment, |_| {});
            }
        }
    }
}
