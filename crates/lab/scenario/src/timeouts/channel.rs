//! The control channel as it passes the switches' end: which packets made the detour over
//! the controller, and the time until an entry spared the next one that detour.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use openflow::MacAddr;

use testbed::capture::Listener;
use testbed::segments::{Bytestream, Segment};

/// Listens at an interface that carries plain OpenFlow 1.3 of any number of switches, and counts
/// what is about UDP to one host.
pub struct ChannelListener {
    port: u16,
    to: Host,
    /// The two directions of each connection, up and down, by the switch's port.
    connections: BTreeMap<u16, [Bytestream; 2]>,
    events: Vec<Event>,
}

/// The host that the streams are for.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    pub mac: MacAddr,
    pub address: Ipv4Addr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    connection: u16,
    kind: Kind,
    at_ns: u64,
    /// The packet that the event is about; zeros for an entry.
    packet: Packet,
}

/// Stream and number, as the sender wrote them.
type Packet = [u8; 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    PacketIn,
    PacketOut,
    FlowAdd,
    FlowRemoved,
}

/// The streams' messages that were seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    pub packet_ins: u64,
    pub packet_outs: u64,
    /// FLOW_MODs that add an entry for packets to the host, renewals among them.
    pub flow_adds: u64,
    /// FLOW_REMOVEDs of such entries.
    pub flow_removed: u64,
    pub detours: Vec<Detour>,
    /// From the PACKET_IN of a packet to its PACKET_OUT, both where they pass the switches.
    pub answers_ns: Vec<u64>,
    /// Segments missed.
    pub gaps: u64,
}

/// Consecutive packets of one switch that made the detour over the controller: at a stream's
/// beginning, or when its entry had expired.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detour {
    pub packets: u64,
    /// From the first PACKET_IN to the FLOW_MOD that followed it, both where they pass the
    /// switches. `None` when no FLOW_MOD came before the detour was over.
    pub installed_ns: Option<u64>,
}

const TYPE_PACKET_IN: u8 = 10;
const TYPE_FLOW_REMOVED: u8 = 11;
const TYPE_PACKET_OUT: u8 = 13;
const TYPE_FLOW_MOD: u8 = 14;
const COMMAND_ADD: u8 = 0;
/// Between two PACKET_INs of one detour at most. Entries live for a second and more.
const DETOUR_GAP_NS: u64 = 300_000_000;

impl ChannelListener {
    /// `port` is the controller's.
    pub fn new(port: u16, to: Host) -> ChannelListener {
        ChannelListener {
            port,
            to,
            connections: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    pub fn seen(&self) -> Seen {
        let count = |kind| {
            self.events
                .iter()
                .filter(|event| event.kind == kind)
                .count() as u64
        };
        let streams = self.connections.values().flatten();
        Seen {
            packet_ins: count(Kind::PacketIn),
            packet_outs: count(Kind::PacketOut),
            flow_adds: count(Kind::FlowAdd),
            flow_removed: count(Kind::FlowRemoved),
            detours: self
                .connections
                .keys()
                .flat_map(|c| self.detours(*c))
                .collect(),
            answers_ns: self.answers_ns(),
            gaps: streams.map(|stream| stream.gaps).sum(),
        }
    }

    /// The answer time of each packet. If several switches ask about a packet, it runs from the
    /// first question to the first answer.
    fn answers_ns(&self) -> Vec<u64> {
        let mut asked_ns: BTreeMap<Packet, Option<u64>> = BTreeMap::new();
        let mut answers_ns = Vec::new();
        for event in &self.events {
            match event.kind {
                Kind::PacketIn => {
                    asked_ns.entry(event.packet).or_insert(Some(event.at_ns));
                }
                Kind::PacketOut => {
                    let asked = asked_ns.get_mut(&event.packet).and_then(Option::take);
                    answers_ns.extend(asked.map(|asked| event.at_ns.saturating_sub(asked)));
                }
                Kind::FlowAdd | Kind::FlowRemoved => {}
            }
        }
        answers_ns
    }

    fn detours(&self, connection: u16) -> Vec<Detour> {
        let mut detours: Vec<Detour> = Vec::new();
        let (mut first_ns, mut last_ns) = (0, None::<u64>);
        for event in self
            .events
            .iter()
            .filter(|event| event.connection == connection)
        {
            match (event.kind, detours.last_mut()) {
                (Kind::PacketIn, Some(detour))
                    if last_ns.is_some_and(|last| event.at_ns - last <= DETOUR_GAP_NS) =>
                {
                    detour.packets += 1;
                    last_ns = Some(event.at_ns);
                }
                (Kind::PacketIn, _) => {
                    detours.push(Detour {
                        packets: 1,
                        installed_ns: None,
                    });
                    (first_ns, last_ns) = (event.at_ns, Some(event.at_ns));
                }
                // Later ones are renewals.
                (Kind::FlowAdd, Some(detour))
                    if last_ns.is_some_and(|last| event.at_ns - last <= DETOUR_GAP_NS) =>
                {
                    detour.installed_ns.get_or_insert(event.at_ns - first_ns);
                }
                _ => {}
            }
        }
        detours
    }
}

impl Listener for ChannelListener {
    fn hear(&mut self, frame: &[u8], at_ns: u64) -> bool {
        let Some(segment) = Segment::read(frame) else {
            return false;
        };
        let (connection, way) = match self.port {
            port if port == segment.to => (segment.from, 0),
            port if port == segment.from => (segment.to, 1),
            _ => return false,
        };
        let before = self.events.len();
        let streams = self.connections.entry(connection).or_default();
        streams[way].handle(&segment, |message| {
            let found = kind(message, self.to);
            self.events.extend(found.map(|(kind, packet)| Event {
                connection,
                kind,
                at_ns,
                packet,
            }));
        });
        self.events.len() > before
    }
}

/// The kind of a message about the streams and the packet that it is about; `None` for other
/// messages.
fn kind(message: &[u8], to: Host) -> Option<(Kind, Packet)> {
    let word = |at: usize| {
        let bytes = message.get(at..at + 2)?;
        Some(usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
    };
    let about = |packet_at: usize| packet_to(message.get(packet_at..)?, to);
    let is_for = || matches(message, to).then(Packet::default);
    let (kind, packet) = match *message.get(1)? {
        // The match, padded, and two bytes more.
        TYPE_PACKET_IN => {
            let packet = about(24 + word(26)?.next_multiple_of(8) + 2);
            (Kind::PacketIn, packet)
        }
        TYPE_PACKET_OUT => (Kind::PacketOut, about(24 + word(16)?)),
        TYPE_FLOW_MOD if *message.get(25)? == COMMAND_ADD => (Kind::FlowAdd, is_for()),
        TYPE_FLOW_REMOVED => (Kind::FlowRemoved, is_for()),
        _ => return None,
    };
    Some((kind, packet?))
}

/// Which packet of a stream a frame is, if it is UDP to the host.
fn packet_to(frame: &[u8], to: Host) -> Option<Packet> {
    const UDP: u8 = 17;
    const PAYLOAD: usize = 14 + 20 + 8;
    let part = |range: std::ops::Range<usize>| frame.get(range).unwrap_or_default();
    let is_ours = part(0..6) == to.mac.0
        && part(12..14) == [0x08, 0x00]
        && part(23..24) == [UDP]
        && part(30..34) == to.address.octets();
    let packet = frame.get(PAYLOAD..)?.first_chunk()?;
    is_ours.then_some(*packet)
}

/// Whether a message's match says that the host is the destination: the OXM of eth_dst, bare.
fn matches(message: &[u8], to: Host) -> bool {
    let mut field = [0x80, 0x00, 0x06, 0x06, 0, 0, 0, 0, 0, 0];
    field[4..].copy_from_slice(&to.mac.0);
    message.windows(field.len()).any(|part| part == field)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Host = Host {
        mac: MacAddr([2, 0, 0, 0, 0, 2]),
        address: Ipv4Addr::new(10, 0, 0, 2),
    };

    /// Connection, what, when in milliseconds, and the packet's number.
    fn listener(events: &[(u16, Kind, u64, u8)]) -> ChannelListener {
        let mut listener = ChannelListener::new(6653, TO);
        for (connection, kind, at_ms, number) in events {
            listener.connections.entry(*connection).or_default();
            listener.events.push(Event {
                connection: *connection,
                kind: *kind,
                at_ns: at_ms * 1_000_000,
                packet: [*number; 16],
            });
        }
        listener
    }

    #[test]
    fn detours_are_told_apart_by_time_and_by_switch() {
        use Kind::{FlowAdd, FlowRemoved, PacketIn, PacketOut};
        let seen = listener(&[
            (1, FlowAdd, 0, 0), // Of an earlier flow.
            (1, PacketIn, 10, 1),
            (2, PacketIn, 11, 1),
            (1, PacketIn, 20, 2),
            (1, FlowAdd, 27, 0),
            (1, PacketOut, 27, 1),
            (2, PacketOut, 29, 1), // The other switch's.
            (1, PacketIn, 30, 3),  // Before the entry was active.
            (1, PacketOut, 38, 2),
            (1, FlowAdd, 500, 0), // A renewal.
            (1, FlowRemoved, 1027, 0),
            (1, PacketIn, 1030, 9),
        ])
        .seen();
        let detour = |packets, ms: Option<u64>| Detour {
            packets,
            installed_ns: ms.map(|ms| ms * 1_000_000),
        };
        assert_eq!(
            seen.detours,
            [detour(3, Some(17)), detour(1, None), detour(1, None)]
        );
        let counts = (
            seen.packet_ins,
            seen.packet_outs,
            seen.flow_adds,
            seen.flow_removed,
        );
        assert_eq!(counts, (5, 3, 3, 1));
        assert_eq!(seen.answers_ns, [17_000_000, 18_000_000]);
    }

    #[test]
    fn only_udp_to_the_host_and_entries_for_it_count() {
        use bytes::Bytes;
        use openflow::message::{PacketIn, PacketInReason};
        use openflow::packet::build;
        use openflow::{Cookie, Field, Match, Message, TableId, Version, Xid, encode};
        let from = build::Host {
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            ip: Ipv4Addr::new(10, 0, 0, 1),
        };
        let to = build::Host {
            mac: TO.mac,
            ip: TO.address,
        };
        let packet_in = |frame: Vec<u8>| {
            let message = Message::PacketIn(PacketIn {
                buffer_id: None,
                total_len: frame.len() as u16,
                reason: PacketInReason::NO_MATCH,
                table_id: TableId(0),
                cookie: Cookie(0),
                r#match: Match::any().with(Field::InPort, 1u32),
                data: Bytes::from(frame),
            });
            let frame = encode(Version::V13, Xid(1), &message).unwrap();
            kind(frame.bytes(), TO)
        };
        assert_eq!(
            packet_in(build::udp(from, to, (9000, 9001), &[7; 24])),
            Some((Kind::PacketIn, [7; 16]))
        );
        assert_eq!(
            packet_in(build::udp(to, from, (9000, 9001), &[7; 24])),
            None
        );
        assert_eq!(
            packet_in(build::icmp_echo_request(from, to, 1, 1, b"x")),
            None
        );

        let mut flow_mod = vec![0; 80];
        flow_mod[1] = TYPE_FLOW_MOD;
        flow_mod[60..70].copy_from_slice(&[0x80, 0, 6, 6, 2, 0, 0, 0, 0, 2]);
        let added = Some((Kind::FlowAdd, Packet::default()));
        assert_eq!(kind(&flow_mod, TO), added);
        flow_mod[25] = 3;
        assert_eq!(kind(&flow_mod, TO), None, "a deletion");
        flow_mod[25] = 0;
        flow_mod[69] = 1;
        assert_eq!(kind(&flow_mod, TO), None, "the other way");
        for cut in 0..flow_mod.len() {
            assert_eq!(kind(&flow_mod[..cut], TO), None);
        }
    }
}
