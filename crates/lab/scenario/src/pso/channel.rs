//! A control channel read from the wire: TCP segments of one port, put together to OpenFlow
//! messages, with the time at which each was whole.
//!
//! It reads what the listener shows of OpenFlow 1.3 over plain TCP: PACKET_INs and PACKET_OUTs
//! whose packets bear a label. The connection is idle when listening begins, so that the first
//! segment of either direction begins a message.

use crate::pso::packet::Label;
use testbed::capture::Listener;
use testbed::segments::{Bytestream, Segment};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    PacketIn,
    PacketOut,
}

/// One message about one of our packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub kind: Kind,
    pub label: Label,
    pub at_ns: u64,
}

/// Listens at a loopback or any other interface that carries the channel.
#[derive(Debug)]
pub struct ChannelListener {
    port: u16,
    to_controller: Bytestream,
    to_switch: Bytestream,
    pub seen: Vec<Seen>,
}

const TYPE_PACKET_IN: u8 = 10;
const TYPE_PACKET_OUT: u8 = 13;

impl ChannelListener {
    /// `port` is the controller's side's.
    pub fn new(port: u16) -> ChannelListener {
        ChannelListener {
            port,
            to_controller: Bytestream::default(),
            to_switch: Bytestream::default(),
            seen: Vec::new(),
        }
    }

    /// How often segments were missed, so that messages may be.
    pub fn gaps(&self) -> u64 {
        self.to_controller.gaps + self.to_switch.gaps
    }
}

impl Listener for ChannelListener {
    fn hear(&mut self, frame: &[u8], at_ns: u64) -> bool {
        let Some(segment) = Segment::read(frame) else {
            return false;
        };
        let stream = match self.port {
            port if port == segment.to => &mut self.to_controller,
            port if port == segment.from => &mut self.to_switch,
            _ => return false,
        };
        let before = self.seen.len();
        stream.handle(&segment, |message| {
            let seen = labelled(message).map(|(kind, label)| Seen { kind, label, at_ns });
            self.seen.extend(seen);
        });
        self.seen.len() > before
    }
}

/// The label of the packet in a PACKET_IN or PACKET_OUT.
fn labelled(message: &[u8]) -> Option<(Kind, Label)> {
    let word = |at: usize| {
        Some(usize::from(u16::from_be_bytes([
            *message.get(at)?,
            *message.get(at + 1)?,
        ])))
    };
    let (kind, packet_at) = match *message.get(1)? {
        // The match, padded, and two bytes more.
        TYPE_PACKET_IN => (Kind::PacketIn, 24 + word(26)?.next_multiple_of(8) + 2),
        // The actions.
        TYPE_PACKET_OUT => (Kind::PacketOut, 24 + word(16)?),
        _ => return None,
    };
    Some((kind, Label::read(message.get(packet_at..)?)?))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use openflow::message::{PacketIn, PacketInReason, PacketOut};
    use openflow::{Action, Cookie, Field, Match, Message, PortNo, TableId, Version, Xid, encode};

    use super::*;
    use crate::pso::packet::{Stream, Template};

    fn label(number: u32) -> Label {
        Label {
            run: 1,
            stream: Stream::Target,
            number,
            sent_ns: 5,
        }
    }

    fn message(number: u32, kind: Kind) -> Vec<u8> {
        let frame = Template::new(178).packet((1, 2), label(number)).to_vec();
        let data = Bytes::from(frame);
        let message = match kind {
            Kind::PacketIn => Message::PacketIn(PacketIn {
                buffer_id: None,
                total_len: 178,
                reason: PacketInReason::NO_MATCH,
                table_id: TableId(0),
                cookie: Cookie(0),
                r#match: Match::any().with(Field::InPort, 1u32),
                data,
            }),
            Kind::PacketOut => Message::PacketOut(PacketOut {
                buffer_id: None,
                in_port: PortNo(1),
                actions: vec![Action::Output {
                    port: PortNo(2),
                    max_len: 0,
                }],
                data,
            }),
        };
        encode(Version::V13, Xid(1), &message)
            .unwrap()
            .bytes()
            .to_vec()
    }

    fn frame(ports: (u16, u16), sequence: u32, bytes: &[u8]) -> Vec<u8> {
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

    const UP: (u16, u16) = (40_000, 6653);
    const DOWN: (u16, u16) = (6653, 40_000);

    #[test]
    fn messages_are_220_bytes_and_found_whatever_the_segments() {
        let [a, b] = [0, 1].map(|n| message(n, Kind::PacketIn));
        assert_eq!((a.len(), message(0, Kind::PacketOut).len()), (220, 218));
        let all = [a, b].concat();
        for cut in 0..=all.len() {
            let mut listener = ChannelListener::new(6653);
            // Close to where sequence numbers begin again.
            let base = u32::MAX - 100;
            listener.hear(&frame(UP, base, &all[..cut]), 10);
            listener.hear(&frame(UP, base.wrapping_add(cut as u32), &all[cut..]), 20);
            let expected = |number: u32| Seen {
                kind: Kind::PacketIn,
                label: label(number),
                at_ns: if cut >= 220 * (number as usize + 1) {
                    10
                } else {
                    20
                },
            };
            assert_eq!(listener.seen, [expected(0), expected(1)], "cut at {cut}");
            assert_eq!(listener.gaps(), 0);
        }
    }

    #[test]
    fn directions_are_told_apart_and_other_ports_left_alone() {
        let mut listener = ChannelListener::new(6653);
        assert!(listener.hear(&frame(UP, 0, &message(3, Kind::PacketIn)), 1));
        assert!(listener.hear(&frame(DOWN, 9, &message(3, Kind::PacketOut)), 2));
        assert!(!listener.hear(&frame((1, 2), 9, &message(4, Kind::PacketOut)), 2));
        let kinds: Vec<Kind> = listener.seen.iter().map(|seen| seen.kind).collect();
        assert_eq!(kinds, [Kind::PacketIn, Kind::PacketOut]);
    }

    #[test]
    fn a_missed_segment_is_a_gap_and_a_repeated_one_nothing() {
        let one = message(0, Kind::PacketIn);
        let mut listener = ChannelListener::new(6653);
        listener.hear(&frame(UP, 0, &one), 1);
        assert!(!listener.hear(&frame(UP, 0, &one), 2), "a repetition");
        assert_eq!((listener.seen.len(), listener.gaps()), (1, 0));
        // Half a message is missed, and what follows begins in its middle.
        listener.hear(&frame(UP, 220 + 100, &one[100..]), 3);
        listener.hear(&frame(UP, 440, &message(2, Kind::PacketIn)), 4);
        let numbers: Vec<u32> = listener.seen.iter().map(|s| s.label.number).collect();
        assert_eq!((numbers, listener.gaps()), (vec![0, 2], 1));
    }

    #[test]
    fn frames_cut_anywhere_are_no_harm() {
        let whole = frame(UP, 0, &message(0, Kind::PacketIn));
        for cut in 0..whole.len() {
            ChannelListener::new(6653).hear(&whole[..cut], 1);
        }
    }
}
