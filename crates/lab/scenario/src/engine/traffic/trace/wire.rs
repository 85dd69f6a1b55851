//! Listeners at the wires: numbered packets, and OpenFlow messages about their flows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use openflow::MacAddr;
use openflow::packet::build::{self, Host};

use testbed::capture::Listener;
use testbed::segments::{Connections, packet_in};

/// The addresses of a flow. No other flow of the trace has the same pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    pub source: u32,
    pub destination: u16,
}

const PORT: u16 = 20_001;
const MAGIC: [u8; 4] = *b"tbl1";
const HEADERS_BYTES: usize = 14 + 20 + 8;
const FRAME_BYTES: usize = HEADERS_BYTES + 8;
const UDP_CHECKSUM: std::ops::Range<usize> = 40..42;
/// An EtherType that IEEE 802 reserves for experiments.
const ETH_TYPE_EXPERIMENT: u16 = 0x88b5;

impl Pair {
    /// A locally administered address, unlike those of hosts and of controllers.
    fn source(self) -> MacAddr {
        let [a, b, c, d] = self.source.to_be_bytes();
        MacAddr([0x06, b's', a, b, c, d])
    }

    fn of(source: &[u8], destination: &[u8]) -> Option<Pair> {
        let (source, destination) = (source.strip_prefix(b"\x06s")?, to(destination)?);
        let source = u32::from_be_bytes(source.try_into().ok()?);
        Some(Pair {
            source,
            destination,
        })
    }
}

fn destination(number: u16) -> MacAddr {
    let [a, b] = number.to_be_bytes();
    MacAddr([0x06, b'd', 0, 0, a, b])
}

fn to(destination: &[u8]) -> Option<u16> {
    let number = destination.strip_prefix(b"\x06d\0\0")?;
    Some(u16::from_be_bytes(number.try_into().ok()?))
}

/// A broadcast frame from a destination, which shows the controller where the destination is.
pub fn announcement(number: u16) -> Vec<u8> {
    let everybody = MacAddr([0xff; 6]);
    build::ethernet(
        destination(number),
        everybody,
        ETH_TYPE_EXPERIMENT,
        &[0; 46],
    )
}

/// A frame that is patched for each packet.
pub struct Template {
    frame: Vec<u8>,
}

impl Template {
    pub fn new() -> Template {
        let host = |mac, last| Host::new(mac, Ipv4Addr::new(10, 99, 0, last));
        let mut payload = MAGIC.to_vec();
        payload.extend([0; 4]);
        let (from, to) = (host(destination(0), 1), host(destination(0), 2));
        let mut frame = build::udp(from, to, (PORT, PORT), &payload);
        // No checksum, which UDP over IPv4 permits: the number differs from packet to packet.
        frame[UDP_CHECKSUM].fill(0);
        Template { frame }
    }

    /// The frame of packet `number`, counted over all flows.
    pub fn packet(&mut self, pair: Pair, number: u32) -> &[u8] {
        self.frame[0..6].copy_from_slice(&destination(pair.destination).0);
        self.frame[6..12].copy_from_slice(&pair.source().0);
        self.frame[HEADERS_BYTES + 4..FRAME_BYTES].copy_from_slice(&number.to_be_bytes());
        &self.frame
    }
}

fn number(frame: &[u8]) -> Option<usize> {
    let label = frame.get(HEADERS_BYTES..FRAME_BYTES)?;
    let number = label.strip_prefix(&MAGIC)?.try_into().ok()?;
    Some(u32::from_be_bytes(number) as usize)
}

/// Marks a packet. Returns whether it was marked before.
fn mark(seen: &mut Vec<bool>, number: usize) -> bool {
    if number >= seen.len() {
        seen.resize(number + 1, false);
    }
    std::mem::replace(&mut seen[number], true)
}

/// The arrivals at the last host.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// Marks by packet number.
    pub seen: Vec<bool>,
    pub duplicates: u64,
}

impl Listener for Arrivals {
    fn hear(&mut self, frame: &[u8], _at_ns: u64) -> bool {
        let Some(number) = number(frame) else {
            return false;
        };
        self.duplicates += u64::from(mark(&mut self.seen, number));
        true
    }
}

/// Something that happens to the entry of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A timeout of 0 means none.
    Set { idle_s: u16, hard_s: u16 },
    /// The controller removes the entry.
    Deleted,
    /// The switch reports that the entry expired.
    Expired,
    /// The switch reports that the entry was removed for another reason.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub at_ns: u64,
    pub pair: Pair,
    pub what: What,
}

/// The messages between controller and switches.
#[derive(Debug)]
pub struct Messages {
    connections: Connections,
    pub log: Log,
}

#[derive(Debug, Default)]
pub struct Log {
    pub events: Vec<Event>,
    /// Packets that were sent to the controller, by number.
    pub asked: Vec<bool>,
    pub counts: Counts,
    /// Entries since the last read, by connection.
    reads: BTreeMap<u16, SinceRead>,
}

/// Entries set since the controller last asked for statistics.
#[derive(Debug, Default)]
struct SinceRead {
    set: BTreeSet<Pair>,
    most: usize,
}

/// Messages about the trace's packets. Errors and reads count all of their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub flow_adds: u64,
    /// Entries for a destination, whatever the source.
    pub coarse_adds: u64,
    pub table_full: u64,
    /// Errors other than that the table is full.
    pub errors: u64,
    /// Requests for statistics of tables or entries.
    pub reads: u64,
}

const TYPE_ERROR: u8 = 1;
const TYPE_PACKET_IN: u8 = 10;
const TYPE_FLOW_REMOVED: u8 = 11;
const TYPE_FLOW_MOD: u8 = 14;
const TYPE_MULTIPART_REQUEST: u8 = 18;
const MULTIPART_FLOW: u16 = 1;
const MULTIPART_TABLE: u16 = 3;
const FLOW_MOD_FAILED_TABLE_FULL: [u8; 4] = [0, 5, 0, 1];
const COMMAND_ADD: u8 = 0;
const COMMAND_DELETE_STRICT: u8 = 4;
/// Version 1.5.
const V15: u8 = 6;
const REASON_IDLE: u8 = 0;
const REASON_HARD: u8 = 1;

impl Messages {
    /// `port` is the controller's.
    pub fn new(port: u16) -> Messages {
        Messages {
            connections: Connections::new(port),
            log: Log::default(),
        }
    }

    /// The number of missed segments; messages may be missing with them.
    pub fn gaps(&self) -> u64 {
        self.connections.gaps()
    }
}

impl Listener for Messages {
    fn hear(&mut self, frame: &[u8], at_ns: u64) -> bool {
        self.connections.handle(frame, |connection, message| {
            self.log.handle(connection, message, at_ns);
        });
        true
    }
}

impl Log {
    /// The most entries set between two reads of one switch's statistics.
    pub fn set_per_read_max(&self) -> usize {
        let reads = self.reads.values();
        reads.map(|r| r.most.max(r.set.len())).max().unwrap_or(0)
    }

    /// Handles a message of OpenFlow 1.3 to 1.5; `None` if it is not about our traffic.
    fn handle(&mut self, connection: u16, message: &[u8], at_ns: u64) -> Option<()> {
        let word = |at: usize| Some(u16::from_be_bytes(*message.get(at..)?.first_chunk()?));
        let counts = &mut self.counts;
        let mut event = |pair, what| self.events.push(Event { at_ns, pair, what });
        match *message.get(1)? {
            TYPE_ERROR if message.get(8..12) == Some(&FLOW_MOD_FAILED_TABLE_FULL) => {
                counts.table_full += 1;
            }
            TYPE_ERROR => counts.errors += 1,
            TYPE_PACKET_IN => {
                mark(&mut self.asked, number(packet_in(message)?)?);
            }
            TYPE_FLOW_REMOVED => {
                let pair = pair_of(message)?;
                let reason_at = if is_short_removed(message) { 9 } else { 18 };
                match *message.get(reason_at)? {
                    REASON_IDLE | REASON_HARD => event(pair, What::Expired),
                    _ => event(pair, What::Gone),
                }
            }
            TYPE_FLOW_MOD => match *message.get(25)? {
                COMMAND_ADD => {
                    let Some(pair) = pair_of(message) else {
                        counts.coarse_adds += u64::from(is_to_destination(message));
                        return None;
                    };
                    counts.flow_adds += 1;
                    let (idle_s, hard_s) = (word(26)?, word(28)?);
                    event(pair, What::Set { idle_s, hard_s });
                    self.reads.entry(connection).or_default().set.insert(pair);
                }
                COMMAND_DELETE_STRICT => {
                    event(pair_of(message)?, What::Deleted);
                }
                _ => {}
            },
            TYPE_MULTIPART_REQUEST if [MULTIPART_FLOW, MULTIPART_TABLE].contains(&word(8)?) => {
                counts.reads += 1;
                let since = self.reads.entry(connection).or_default();
                since.most = since.most.max(since.set.len());
                since.set.clear();
            }
            _ => {}
        }
        Some(())
    }
}

fn pair_of(message: &[u8]) -> Option<Pair> {
    let [destination, source] = addresses(message)?;
    Pair::of(source?, destination?)
}

fn is_to_destination(message: &[u8]) -> bool {
    matches!(addresses(message), Some([Some(destination), None]) if to(destination).is_some())
}

/// Whether a message is a FLOW_REMOVED of 1.5.
fn is_short_removed(message: &[u8]) -> bool {
    message.first_chunk() == Some(&[V15, TYPE_FLOW_REMOVED])
}

/// Destination and source in the match of a FLOW_MOD or FLOW_REMOVED, where they are exact.
fn addresses(message: &[u8]) -> Option<[Option<&[u8]>; 2]> {
    const ETH_DST: [u8; 4] = [0x80, 0x00, 0x06, 0x06];
    const ETH_SRC: [u8; 4] = [0x80, 0x00, 0x08, 0x06];
    let match_at = if is_short_removed(message) { 24 } else { 48 };
    let len = u16::from_be_bytes(*message.get(match_at + 2..)?.first_chunk()?);
    let mut fields = message.get(match_at + 4..match_at + usize::from(len))?;
    let mut addresses = [None; 2];
    while let Some((header, rest)) = fields.split_first_chunk::<4>() {
        let (value, rest) = rest.split_at_checked(usize::from(header[3]))?;
        match *header {
            ETH_DST => addresses[0] = Some(value),
            ETH_SRC => addresses[1] = Some(value),
            _ => {}
        }
        fields = rest;
    }
    Some(addresses)
}

#[cfg(test)]
mod tests {
    use control::entry::{Entry, EntryKey, EntryKind};
    use openflow::message::{FlowRemoved, FlowRemovedReason, PacketIn};
    use openflow::multipart::{MultipartRequest, RequestBody};
    use openflow::{Cookie, Message, PortNo, TableId, Version, Xid, encode};

    use super::*;

    const PAIR: Pair = Pair {
        source: 70_000,
        destination: 300,
    };

    fn handle(log: &mut Log, message: &Message) -> Option<()> {
        let frame = encode(Version::V13, Xid(1), message).unwrap();
        for cut in 0..frame.bytes().len() {
            // A truncated message does no harm, and mostly yields nothing.
            Log::default().handle(1, &frame.bytes()[..cut], 7);
        }
        log.handle(1, frame.bytes(), 7)
    }

    fn entry(pair: Pair, kind: EntryKind) -> Entry {
        let key = match kind {
            EntryKind::Destination => EntryKey::destination(None, destination(pair.destination)),
            _ => EntryKey::pair(PortNo(1), pair.source(), destination(pair.destination)),
        };
        Entry {
            key,
            kind,
            out: PortNo(2),
            idle_timeout_s: 10,
            hard_timeout_s: 3,
            notify: true,
        }
    }

    #[test]
    fn a_packet_says_which_it_is_and_arrives_once() {
        let mut template = Template::new();
        let first = template.packet(PAIR, 70_000).to_vec();
        let other = Pair { source: 1, ..PAIR };
        let second = template.packet(other, 70_001).to_vec();
        assert_eq!(
            (number(&first), number(&second)),
            (Some(70_000), Some(70_001))
        );
        assert_eq!(Pair::of(&first[6..12], &first[..6]), Some(PAIR));
        assert_eq!(Pair::of(&second[6..12], &second[..6]), Some(other));
        assert_eq!(number(&first[..FRAME_BYTES - 1]), None);
        assert_eq!(number(&announcement(3)), None);
        assert_eq!(to(&announcement(3)[6..12]), Some(3));
        let mut arrivals = Arrivals::default();
        for frame in [&first, &second, &first] {
            assert!(arrivals.hear(frame, 0));
        }
        let seen = arrivals.seen.iter().filter(|seen| **seen).count();
        assert_eq!((seen, arrivals.duplicates), (2, 1));
    }

    #[test]
    fn entries_of_flows_are_told_from_those_of_destinations() {
        let mut log = Log::default();
        for kind in [EntryKind::Pair, EntryKind::Local, EntryKind::Destination] {
            handle(&mut log, &Message::FlowMod(entry(PAIR, kind).to_add(1)));
        }
        let delete = entry(PAIR, EntryKind::Pair).key.to_delete();
        handle(&mut log, &Message::FlowMod(delete));
        let others = EntryKey::pair(PortNo(1), MacAddr([2; 6]), destination(3));
        handle(&mut log, &Message::FlowMod(others.to_delete()));
        let set = What::Set {
            idle_s: 10,
            hard_s: 3,
        };
        let what: Vec<What> = log.events.iter().map(|e| e.what).collect();
        assert_eq!(what, [set, set, What::Deleted]);
        assert!(log.events.iter().all(|e| e.pair == PAIR && e.at_ns == 7));
        let counts = Counts {
            flow_adds: 2,
            coarse_adds: 1,
            ..Counts::default()
        };
        assert_eq!(log.counts, counts);
    }

    #[test]
    fn packets_that_were_asked_about_are_known_by_number() {
        let mut log = Log::default();
        let frame = Template::new().packet(PAIR, 5).to_vec();
        let packet_in = Message::PacketIn(PacketIn::new(PortNo(1), frame.into()));
        handle(&mut log, &packet_in);
        assert_eq!(log.asked, [false, false, false, false, false, true]);
        let full = [4, 1, 0, 12, 0, 0, 0, 1, 0, 5, 0, 1];
        log.handle(1, &full, 0);
        log.handle(1, &[4, 1, 0, 12, 0, 0, 0, 1, 0, 5, 0, 2], 0);
        assert_eq!((log.counts.table_full, log.counts.errors), (1, 1));
    }

    #[test]
    fn the_end_of_an_entry_is_read_in_each_version() {
        let removed = Message::FlowRemoved(FlowRemoved {
            cookie: Cookie(0),
            priority: 1,
            reason: FlowRemovedReason::IDLE_TIMEOUT,
            table_id: TableId(0),
            duration_sec: 1,
            duration_nsec: 2,
            idle_timeout: 3,
            hard_timeout: 4,
            packet_count: 5,
            byte_count: 6,
            r#match: entry(PAIR, EntryKind::Pair).to_add(1).r#match,
            stats: Vec::new(),
        });
        for version in [Version::V13, Version::V14, Version::V15] {
            let mut log = Log::default();
            let frame = encode(version, Xid(1), &removed).unwrap();
            log.handle(1, frame.bytes(), 7);
            let ends: Vec<_> = log.events.iter().map(|e| (e.pair, e.what)).collect();
            assert_eq!(ends, [(PAIR, What::Expired)], "{version}");
        }
    }

    #[test]
    fn reads_divide_what_is_set_by_connection() {
        let mut log = Log::default();
        let read = Message::MultipartRequest(MultipartRequest {
            more: false,
            body: RequestBody::Table,
        });
        let mut set = |connection, source| {
            let pair = Pair { source, ..PAIR };
            let message = Message::FlowMod(entry(pair, EntryKind::Pair).to_add(1));
            let frame = encode(Version::V13, Xid(1), &message).unwrap();
            log.handle(connection, frame.bytes(), 0);
            log.set_per_read_max()
        };
        // A repeated entry does not count again, and another switch has a table of its own.
        assert_eq!([set(1, 1), set(1, 2), set(1, 2), set(2, 3)], [1, 2, 2, 2]);
        handle(&mut log, &read);
        assert_eq!((log.set_per_read_max(), log.counts.reads), (2, 1));
        let since = |log: &Log| log.reads[&1].set.len();
        assert_eq!(since(&log), 0);
    }
}
