//! The source of the messages: a Poisson process per agent, drawn from a seed, and the OpenFlow
//! messages that it sends. Each message carries its due time. Its delay counts from that time,
//! whatever held the sender up.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use clock::SplitMix64;
use sched::Direction;

/// Flows of one agent's packets; they decide which messages may overtake which.
pub const FLOWS: u16 = 64;
/// The largest header of the two messages, the packet's headers in it, and the stamp.
pub const MESSAGE_BYTES_MIN: usize = PACKET_IN_HEAD + PACKET_HEAD + STAMP_BYTES;
/// The longest message that the length field of an OpenFlow header can express.
pub const MESSAGE_BYTES_MAX: usize = 65_535;

/// Length of everything before the packet.
const PACKET_IN_HEAD: usize = 42;
const PACKET_OUT_HEAD: usize = 40;
/// Ethernet, IPv4, UDP.
const PACKET_HEAD: usize = 14 + 20 + 8;
/// Due time (8), agent (2), flow (2), number (4).
const STAMP_BYTES: usize = 16;
const OPENFLOW_HEADER: usize = 8;

/// The sender's data in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Due time since the start of the measurement.
    pub due: Duration,
    pub agent: u16,
    pub flow: u16,
    /// The number of this message among its agent's messages, from 0.
    pub number: u32,
}

/// The messages of one agent, one after the other.
#[derive(Debug)]
pub struct Source {
    agent: u16,
    mean_gap: Duration,
    /// Sizes that messages have in turn; after the last size, the first again.
    sizes: Vec<usize>,
    left: u32,
    next_due: Duration,
    next_number: u32,
    gaps: SplitMix64,
    flows: SplitMix64,
}

impl Source {
    /// Creates a source of `messages` at `rate_per_s` on average.
    pub fn new(agent: u16, rate_per_s: f64, messages: u32, sizes: &[usize], seed: u64) -> Source {
        let mut seeds = SplitMix64::new(seed ^ (u64::from(agent) << 48));
        Source {
            agent,
            mean_gap: Duration::from_secs_f64(1.0 / rate_per_s),
            sizes: sizes.to_vec(),
            left: messages,
            next_due: Duration::ZERO,
            next_number: 0,
            gaps: SplitMix64::new(seeds.next()),
            flows: SplitMix64::new(seeds.next()),
        }
    }
}

impl Iterator for Source {
    type Item = (Stamp, usize);

    /// Returns the next message's stamp and size in bytes.
    fn next(&mut self) -> Option<(Stamp, usize)> {
        self.left = self.left.checked_sub(1)?;
        // 53 bits, never 0: the longest gap is 36.7 means.
        let even = ((self.gaps.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        self.next_due += self.mean_gap.mul_f64(-even.ln());
        let stamp = Stamp {
            due: self.next_due,
            agent: self.agent,
            flow: (self.flows.next() % u64::from(FLOWS)) as u16,
            number: self.next_number,
        };
        let size = self.sizes[self.next_number as usize % self.sizes.len()];
        self.next_number += 1;
        Some((stamp, size))
    }
}

/// Writes a packet-in or packet-out of OpenFlow 1.3, of exactly `size_bytes`, with a UDP packet of
/// the stamp's flow in it. Callers keep to sizes from [`MESSAGE_BYTES_MIN`] to
/// [`MESSAGE_BYTES_MAX`].
pub fn encode(stamp: &Stamp, direction: Direction, size_bytes: usize, to: &mut BytesMut) {
    let start = to.len();
    let head = head_bytes(direction);
    let packet_bytes = (size_bytes - head) as u16;
    let kind = match direction {
        Direction::ToController => 10,
        Direction::ToSwitch => 13,
    };
    to.extend_from_slice(&[4, kind]);
    to.extend_from_slice(&(size_bytes as u16).to_be_bytes());
    to.extend_from_slice(&(stamp.number + 1).to_be_bytes());
    // No buffer: the packet is all in the message.
    to.extend_from_slice(&[0xff; 4]);
    match direction {
        Direction::ToController => {
            to.extend_from_slice(&packet_bytes.to_be_bytes());
            // Reason: no match. Table 0, and a cookie of zero.
            to.extend_from_slice(&[0; 10]);
            // An OXM match of 12 bytes, padded to 16: in_port = 1. Then 2 bytes of padding.
            to.extend_from_slice(&[0, 1, 0, 12, 0x80, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        }
        Direction::ToSwitch => {
            // in_port: controller. One action of 16 bytes: output to port 2.
            to.extend_from_slice(&[0xff, 0xff, 0xff, 0xfd, 0, 16, 0, 0, 0, 0, 0, 0]);
            to.extend_from_slice(&[0, 0, 0, 16, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
    }
    debug_assert_eq!(to.len() - start, head);
    encode_packet(stamp, packet_bytes, to);
    to.extend_from_slice(&(stamp.due.as_nanos() as u64).to_be_bytes());
    to.extend_from_slice(&stamp.agent.to_be_bytes());
    to.extend_from_slice(&stamp.flow.to_be_bytes());
    to.extend_from_slice(&stamp.number.to_be_bytes());
    to.resize(start + size_bytes, 0);
}

fn encode_packet(stamp: &Stamp, packet_bytes: u16, to: &mut BytesMut) {
    let agent = (stamp.agent + 1) as u8;
    let ip_bytes = packet_bytes - 14;
    to.extend_from_slice(&[2, 0, 0, 0, agent, 2, 2, 0, 0, 0, agent, 1, 8, 0]);
    to.extend_from_slice(&[0x45, 0]);
    to.extend_from_slice(&ip_bytes.to_be_bytes());
    to.extend_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0]);
    to.extend_from_slice(&[10, 0, agent, 1, 10, 0, agent, 2]);
    to.extend_from_slice(&(1024 + stamp.flow).to_be_bytes());
    to.extend_from_slice(&[0, 7]);
    to.extend_from_slice(&(ip_bytes - 20).to_be_bytes());
    to.extend_from_slice(&[0, 0]);
}

/// The stamp of one whole message; `None` if it is not one of ours.
pub fn decode(message: &[u8], direction: Direction) -> Option<Stamp> {
    let mut rest = message.get(head_bytes(direction) + PACKET_HEAD..)?;
    if rest.len() < STAMP_BYTES {
        return None;
    }
    let due = Duration::from_nanos(rest.get_u64());
    Some(Stamp {
        due,
        agent: rest.get_u16(),
        flow: rest.get_u16(),
        number: rest.get_u32(),
    })
}

/// Takes the next whole OpenFlow message off the front of a byte stream. If its length is shorter
/// than a header, takes the whole stream; the caller's loop would otherwise never end.
pub fn split_message(stream: &mut BytesMut) -> Option<Bytes> {
    let header = stream.first_chunk::<OPENFLOW_HEADER>()?;
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if len < OPENFLOW_HEADER {
        return Some(stream.split().freeze());
    }
    (stream.len() >= len).then(|| stream.split_to(len).freeze())
}

fn head_bytes(direction: Direction) -> usize {
    match direction {
        Direction::ToController => PACKET_IN_HEAD,
        Direction::ToSwitch => PACKET_OUT_HEAD,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Direction; 2] = [Direction::ToController, Direction::ToSwitch];

    fn dues(rate: f64, count: u32, seed: u64) -> Vec<f64> {
        Source::new(0, rate, count, &[220], seed)
            .map(|(stamp, _)| stamp.due.as_secs_f64())
            .collect()
    }

    #[test]
    fn gaps_have_the_mean_and_the_deviation_of_a_poisson_process() {
        let dues = dues(1000.0, 50_000, 3);
        let gaps: Vec<f64> = dues.windows(2).map(|w| w[1] - w[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let square = |gap: &f64| (gap - mean) * (gap - mean);
        let deviation = (gaps.iter().map(square).sum::<f64>() / gaps.len() as f64).sqrt();
        // 50,000 exponential gaps: the mean has a deviation of 0.45 %.
        assert!((mean * 1000.0 - 1.0).abs() < 0.025, "{mean}");
        assert!((deviation / mean - 1.0).abs() < 0.04, "{deviation} {mean}");
    }

    #[test]
    fn the_same_seed_gives_the_same_messages_and_agents_differ() {
        let of = |agent, seed| -> Vec<(Stamp, usize)> {
            Source::new(agent, 100.0, 500, &[400, 600], seed).collect()
        };
        assert_eq!(of(0, 5), of(0, 5));
        assert_ne!(of(0, 5), of(0, 6));
        let due = |messages: Vec<(Stamp, usize)>| -> Vec<Duration> {
            messages.iter().map(|(stamp, _)| stamp.due).collect()
        };
        assert_ne!(due(of(0, 5)), due(of(1, 5)));
        let sizes: Vec<usize> = of(0, 5).iter().map(|(_, size)| *size).take(3).collect();
        assert_eq!(sizes, [400, 600, 400]);
    }

    #[test]
    fn a_message_is_openflow_of_the_wanted_size_and_says_what_it_was_told() {
        let stamp = Stamp {
            due: Duration::from_nanos(123_456_789_012),
            agent: 7,
            flow: 63,
            number: 70_000,
        };
        for direction in BOTH {
            for size in [MESSAGE_BYTES_MIN, 220, 3000, MESSAGE_BYTES_MAX] {
                let mut bytes = BytesMut::new();
                encode(&stamp, direction, size, &mut bytes);
                assert_eq!(bytes.len(), size);
                assert_eq!(decode(&bytes, direction), Some(stamp));
                let frame = openflow::Frame::new(bytes.freeze()).unwrap();
                let message = openflow::decode(&frame).unwrap();
                let text = format!("{message:?}");
                let kind = ["PacketIn", "PacketOut"][usize::from(direction == Direction::ToSwitch)];
                assert!(text.contains(kind), "{text}");
            }
        }
    }

    /// The relay assigns messages to lanes by flow only if it can read the flow.
    #[test]
    fn the_relay_sees_flows() {
        use relay::place_of;
        use sched::Place;
        for direction in BOTH {
            let lanes: std::collections::BTreeSet<u16> = Source::new(0, 1.0, 400, &[220], 1)
                .map(|(stamp, size)| {
                    let mut bytes = BytesMut::new();
                    encode(&stamp, direction, size, &mut bytes);
                    let frame = openflow::Frame::new(bytes.freeze()).unwrap();
                    match place_of(&frame, direction, 16) {
                        Place::Flow(lane) => lane,
                        place => panic!("{place:?}"),
                    }
                })
                .collect();
            assert!(lanes.len() >= 12, "{direction:?}: {lanes:?}");
        }
    }

    #[test]
    fn messages_come_off_a_stream_whole() {
        let (mut stream, mut sizes) = (BytesMut::new(), Vec::new());
        let mut all = BytesMut::new();
        for (stamp, size) in Source::new(0, 1.0, 20, &[100, 333], 1) {
            encode(&stamp, Direction::ToSwitch, size, &mut all);
        }
        for byte in all {
            stream.extend_from_slice(&[byte]);
            sizes.extend(split_message(&mut stream).map(|message| message.len()));
        }
        assert_eq!(sizes, [100, 333].repeat(10));
        let mut endless = BytesMut::from(&[0u8; 30][..]);
        assert_eq!(split_message(&mut endless).map(|m| m.len()), Some(30));
        assert_eq!(split_message(&mut endless), None);
    }
}
