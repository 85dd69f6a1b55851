//! Listeners for labelled packets: at the receiving host, and in OpenFlow's messages about them.

use testbed::capture::Listener;
use testbed::segments::{Connections, packet_in, packet_out};

use super::frame::{Label, code_point};

/// Packets that arrive at a host.
#[derive(Debug, Default)]
pub struct Arrivals {
    pub seen: Vec<Arrival>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub label: Label,
    pub dscp: u8,
    pub at_ns: u64,
}

impl Listener for Arrivals {
    fn hear(&mut self, frame: &[u8], at_ns: u64) -> bool {
        let arrival = Label::read(frame).map(|label| Arrival {
            label,
            dscp: code_point(frame),
            at_ns,
        });
        self.seen.extend(arrival);
        arrival.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    PacketIn,
    PacketOut,
}

/// PACKET_INs and PACKET_OUTs of OpenFlow 1.3 to 1.5 over plain TCP. The connection is idle when
/// listening begins, so that the first segment of either direction begins a message.
#[derive(Debug)]
pub struct Messages {
    connections: Connections,
    /// Messages, each with the time when it was complete.
    pub seen: Vec<(Kind, Label, u64)>,
}

const TYPE_PACKET_IN: u8 = 10;
const TYPE_PACKET_OUT: u8 = 13;

impl Messages {
    /// `port` is the port on the controller's side.
    pub fn new(port: u16) -> Messages {
        Messages {
            connections: Connections::new(port),
            seen: Vec::new(),
        }
    }

    pub fn gaps(&self) -> u64 {
        self.connections.gaps()
    }
}

impl Listener for Messages {
    fn hear(&mut self, frame: &[u8], at_ns: u64) -> bool {
        let before = self.seen.len();
        self.connections.handle(frame, |_, message| {
            let seen = labelled(message).map(|(kind, label)| (kind, label, at_ns));
            self.seen.extend(seen);
        });
        self.seen.len() > before
    }
}

/// The label of the packet in a PACKET_IN or PACKET_OUT.
fn labelled(message: &[u8]) -> Option<(Kind, Label)> {
    let (kind, packet) = match *message.get(1)? {
        TYPE_PACKET_IN => (Kind::PacketIn, packet_in(message)?),
        TYPE_PACKET_OUT => (Kind::PacketOut, packet_out(message)?),
        _ => return None,
    };
    Some((kind, Label::read(packet)?))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use openflow::message::{PacketIn, PacketOut};
    use openflow::{Action, Message, PortNo, Version, Xid, encode};

    use testbed::segments::frame;

    use super::*;
    use crate::engine::traffic::packets::frame::Template;

    fn label(number: u32) -> Label {
        Label {
            run: 1,
            stream: 0,
            number,
            sent_ns: 5,
        }
    }

    fn message(version: Version, number: u32, kind: Kind) -> Vec<u8> {
        let frame = Template::new(178, 0).packet((1, 2), label(number)).to_vec();
        let data = Bytes::from(frame);
        let message = match kind {
            Kind::PacketIn => Message::PacketIn(PacketIn {
                total_len: 178,
                ..PacketIn::new(PortNo(1), data)
            }),
            Kind::PacketOut => Message::PacketOut(PacketOut::new(
                PortNo(1),
                vec![Action::Output {
                    port: PortNo(2),
                    max_len: 0,
                }],
                data,
            )),
        };
        let encoded = encode(version, Xid(1), &message).unwrap();
        encoded.bytes().to_vec()
    }

    #[test]
    fn messages_about_a_packet_are_found_in_either_direction() {
        for version in [Version::V13, Version::V14, Version::V15] {
            are_found(version);
        }
    }

    fn are_found(version: Version) {
        let message = |kind| message(version, 3, kind);
        let (ask, answer) = (message(Kind::PacketIn), message(Kind::PacketOut));
        assert!(ask.len() == 220 && answer.len() >= 218);
        let mut messages = Messages::new(6653);
        assert!(messages.hear(&frame((40_000, 6653), 0, &ask), 1));
        assert!(messages.hear(&frame((6653, 40_000), 0, &answer), 2));
        assert!(!messages.hear(&frame((1, 2), 0, &answer), 3), "other ports");
        let wanted = [
            (Kind::PacketIn, label(3), 1),
            (Kind::PacketOut, label(3), 2),
        ];
        assert_eq!(
            (messages.seen.as_slice(), messages.gaps()),
            (&wanted[..], 0)
        );
        let whole = frame((40_000, 6653), 0, &ask);
        for cut in 0..whole.len() {
            Messages::new(6653).hear(&whole[..cut], 1);
        }
    }
}
