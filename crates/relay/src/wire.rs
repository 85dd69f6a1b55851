//! The protocol between the two ends of a relay, byte by byte.
//!
//! Integers have QUIC's variable-length encoding (RFC 9000, 16): 1, 2, 4 or 8 bytes.
//!
//! - The control stream is the first bidirectional stream. It carries [`Control`] messages, each
//!   `type, length, body`; an unknown type is skipped, so that later versions may add types.
//! - A lane is one unidirectional stream: a [`LaneHeader`], then records. The place of a record in
//!   its lane is implied; the header gives the stream's first place.
//! - A datagram is either the copy of one record or the datagram of an agent that speaks UDP. A
//!   copy is `channel, lane, place`, then the record as on its lane. An agent's datagram, see
//!   [`super::datagrams`], may also be the whole content of a unidirectional stream of type 2.
//! - A record is `epoch (1 byte), after × 2 + extended`, then the unchanged OpenFlow message, which
//!   contains its own length. If extended, `flags` and then either `number`, if the flags announce
//!   it, or `count, (lane, n)…` precede the message. Raw channels put a length before the bytes.
//! - If both ends' settings accept bare records, an OpenFlow record omits its head when the record
//!   before it in its stream has an equal one. It then begins with the message. In such streams a 0
//!   precedes every head that is sent, since no version of OpenFlow is 0.

mod policy;
mod settings;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use sched::order::{KEYED_RUN_MAX, LANE_INDEX_MAX, SCOPES};
use sched::{Lane, Stamp};

use super::copies::CopiedRecord;
use super::policy::PolicyMessage;

pub use settings::{OrderMode, Settings};

/// The name of this protocol in TLS's ALPN.
pub const ALPN: &[u8] = b"auster-relay/1";

/// Maximum bytes of a raw stream in one record.
pub const RAW_CHUNK_BYTES_MAX: usize = 16 * 1024;

/// Maximum bytes of the names of channels and switches, and of reasons; longer ones are cut.
pub const TEXT_BYTES_MAX: usize = 255;

const CONTROL_BODY_BYTES_MAX: u64 = 64 * 1024;
const LANES_MAX: u64 = 4 * SCOPES as u64 * (LANE_INDEX_MAX as u64 + 1);
/// The type of the control message after those of policy maps.
const JOIN: u64 = 12;
const DSCP_MAX: u8 = 63;
const FLAG_FENCE: u8 = 1;
const FLAG_END: u8 = 2;
const FLAG_NUMBERED: u8 = 4;

/// A channel of a session: one connection of a switch, a manager or another agent. Channels opened
/// by the switch side have even ids, those opened by the controller side odd ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u64);

/// The identity of a session across its connections. The switch side chooses it at random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub [u8; 16]);

impl std::fmt::Debug for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// The content of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Agent {
    /// OpenFlow messages, dealt to lanes.
    OpenFlow,
    /// Bytes in order: OVSDB, or any protocol over TCP.
    Raw,
}

/// One of the two ends of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Switch,
    Controller,
}

/// A position in one lane: the number of records.
pub type Cursor = (Lane, u64);

/// A message of the control stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    Settings(Settings),
    /// A new channel, or on resumption one that still exists.
    Open {
        channel: ChannelId,
        agent: Agent,
        name: String,
    },
    /// On resumption: the received records of each lane.
    Received {
        channel: ChannelId,
        cursors: Vec<Cursor>,
    },
    /// The end of the list of channels that still exist.
    ResumeEnd,
    /// Records of each lane that were delivered and need no longer be kept.
    Delivered {
        channel: ChannelId,
        cursors: Vec<Cursor>,
    },
    /// The immediate end of a channel.
    Reset {
        channel: ChannelId,
        reason: String,
    },
    /// A message about a policy map; earlier versions skip it.
    Policy(PolicyMessage),
    /// The first and only message on the control stream of a further connection, which carries the
    /// messages of one class of `session`. The answer is the same message. An end that does not
    /// know the session closes the connection.
    Join {
        session: SessionId,
        dscp: u8,
    },
}

/// The beginning of a lane's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneHeader {
    pub channel: ChannelId,
    pub lane: Lane,
    /// The number of records of the lane before the first one of this stream.
    pub first: u64,
}

/// One message with the records it must not overtake, or the end of the channel's direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub stamp: Stamp,
    /// The message; `None` at the end of this direction of the channel.
    pub body: Option<Bytes>,
}

/// The error of a peer that breaks this protocol. Its connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WireError(pub &'static str);

impl LaneHeader {
    const STREAM_TYPE: u64 = 1;

    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        put(&mut out, LaneHeader::STREAM_TYPE);
        put(&mut out, self.channel.0);
        put(&mut out, self.lane.wire());
        put(&mut out, self.first);
        out.freeze()
    }

    /// Takes the header off the front, or leaves `buf` as it was while bytes are missing.
    pub fn take(buf: &mut BytesMut) -> Result<Option<LaneHeader>, WireError> {
        let mut at = &buf[..];
        let fields = [take(&mut at), take(&mut at), take(&mut at), take(&mut at)];
        let used = buf.len() - at.len();
        let [Some(kind), Some(channel), Some(lane), Some(first)] = fields else {
            return Ok(None);
        };
        if kind != LaneHeader::STREAM_TYPE {
            return Err(WireError("a stream of a type that version 1 does not have"));
        }
        let lane = Lane::from_wire(lane).ok_or(WireError("a lane number out of range"))?;
        buf.advance(used);
        Ok(Some(LaneHeader {
            channel: ChannelId(channel),
            lane,
            first,
        }))
    }
}

impl CopiedRecord {
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(12 + self.head.len() + self.body.len());
        put(&mut out, self.channel.0);
        put(&mut out, self.lane.wire());
        put(&mut out, self.place);
        out.extend_from_slice(&self.head);
        out.extend_from_slice(&self.body);
        out.freeze()
    }
}

/// The head of a copy. The record after it is still to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyHeader {
    pub channel: ChannelId,
    pub lane: Lane,
    pub place: u64,
}

impl CopyHeader {
    pub fn take(datagram: &mut Bytes) -> Result<CopyHeader, WireError> {
        let mut at = &datagram[..];
        let mut next = || take(&mut at).ok_or(WireError("a copy that ends early"));
        let (channel, lane, place) = (ChannelId(next()?), next()?, next()?);
        let lane = Lane::from_wire(lane).ok_or(WireError("a lane number out of range"))?;
        let used = datagram.len() - at.len();
        datagram.advance(used);
        Ok(CopyHeader {
            channel,
            lane,
            place,
        })
    }
}

impl Record {
    /// Writes the bytes before the body.
    pub fn encode_head(&self, agent: Agent, out: &mut BytesMut) {
        let numbered = self.stamp.number;
        let extended = self.stamp.fence.is_some() || self.body.is_none();
        out.put_u8(self.stamp.epoch);
        let more = extended || numbered.is_some();
        put(out, self.stamp.after << 1 | u64::from(more));
        if let Some(number) = numbered {
            out.put_u8(FLAG_NUMBERED);
            put(out, number);
        } else if extended {
            let fence = if self.stamp.fence.is_some() {
                FLAG_FENCE
            } else {
                0
            };
            let end = if self.body.is_none() { FLAG_END } else { 0 };
            out.put_u8(fence | end);
            put_cursors(out, self.stamp.fence.as_deref().unwrap_or_default());
        }
        if let (Agent::Raw, Some(body)) = (agent, &self.body) {
            put(out, body.len() as u64);
        }
    }

    /// Takes one whole record off the front, or leaves `buf` as it was while bytes are missing.
    pub fn take(buf: &mut BytesMut, agent: Agent) -> Result<Option<Record>, WireError> {
        let mut at = &buf[..];
        let Some((stamp, end)) = take_stamp(&mut at)? else {
            return Ok(None);
        };
        if end {
            let used = buf.len() - at.len();
            buf.advance(used);
            return Ok(Some(Record { stamp, body: None }));
        }
        let head_len = buf.len() - at.len();
        Ok(take_body(buf, head_len, agent)?.map(|body| Record {
            stamp,
            body: Some(body),
        }))
    }
}

/// Takes `head_len` bytes and the message after them off the front, if the message is complete.
fn take_body(
    buf: &mut BytesMut,
    head_len: usize,
    agent: Agent,
) -> Result<Option<Bytes>, WireError> {
    let mut at = &buf[head_len..];
    let body_len = match agent {
        Agent::Raw => take(&mut at),
        Agent::OpenFlow => at
            .get(2..4)
            .map(|len| u64::from(u16::from_be_bytes([len[0], len[1]]))),
    };
    let Some(body_len) = body_len else {
        return Ok(None);
    };
    let shortest = if agent == Agent::OpenFlow {
        openflow::frame::HEADER_LEN as u64
    } else {
        1
    };
    let longest = if agent == Agent::OpenFlow {
        u64::from(u16::MAX)
    } else {
        RAW_CHUNK_BYTES_MAX as u64
    };
    if body_len < shortest || body_len > longest {
        return Err(WireError("a record of impossible length"));
    }
    let body_len = body_len as usize;
    if at.len() < body_len {
        return Ok(None);
    }
    let used = buf.len() - at.len();
    buf.advance(used);
    Ok(Some(buf.split_to(body_len).freeze()))
}

/// The byte that precedes a head where records may omit their heads.
pub(super) const HEAD_FOLLOWS: u8 = 0;

/// Takes records, with or without heads, off the stream of one OpenFlow lane.
#[derive(Clone, Debug, Default)]
pub struct BareRecords {
    last: Option<Stamp>,
}

impl BareRecords {
    /// Takes one record, like [`Record::take`].
    pub fn take(&mut self, buf: &mut BytesMut) -> Result<Option<Record>, WireError> {
        let Some(first) = buf.first() else {
            return Ok(None);
        };
        if *first == HEAD_FOLLOWS {
            // Reads after the byte, so that the byte stays if the rest has not arrived yet.
            let mut rest = buf.split_off(1);
            let record = Record::take(&mut rest, Agent::OpenFlow);
            if let Ok(Some(record)) = &record {
                *buf = rest;
                self.last = Some(record.stamp.clone());
            } else {
                buf.unsplit(rest);
            }
            return record;
        }
        let stamp = self.last.as_ref();
        let stamp = stamp.ok_or(WireError("a first record without a head"))?;
        let body = take_body(buf, 0, Agent::OpenFlow)?;
        Ok(body.map(|body| Record {
            stamp: stamp.clone(),
            body: Some(body),
        }))
    }
}

impl Control {
    pub fn encode(&self) -> Bytes {
        let mut body = BytesMut::new();
        let kind = match self {
            Control::Settings(settings) => {
                settings::encode(&mut body, settings);
                1
            }
            Control::Open {
                channel,
                agent,
                name,
            } => {
                put(&mut body, channel.0);
                body.put_u8(*agent as u8);
                body.put_slice(cut(name).as_bytes());
                2
            }
            Control::Received { channel, cursors } => {
                put(&mut body, channel.0);
                put_cursors(&mut body, cursors);
                3
            }
            Control::ResumeEnd => 4,
            Control::Delivered { channel, cursors } => {
                put(&mut body, channel.0);
                put_cursors(&mut body, cursors);
                5
            }
            Control::Reset { channel, reason } => {
                put(&mut body, channel.0);
                body.put_slice(cut(reason).as_bytes());
                6
            }
            Control::Policy(message) => policy::encode(&mut body, message),
            Control::Join { session, dscp } => {
                body.put_slice(&session.0);
                body.put_u8(*dscp);
                JOIN
            }
        };
        let mut out = BytesMut::with_capacity(body.len() + 8);
        put(&mut out, kind);
        put(&mut out, body.len() as u64);
        out.extend_from_slice(&body);
        out.freeze()
    }

    /// Takes the first whole message that this version knows off the front of `buf`.
    pub fn take(buf: &mut BytesMut) -> Result<Option<Control>, WireError> {
        loop {
            let mut at = &buf[..];
            let (Some(kind), Some(len)) = (take(&mut at), take(&mut at)) else {
                return Ok(None);
            };
            if len > CONTROL_BODY_BYTES_MAX {
                return Err(WireError("a control message above 64 KiB"));
            }
            let Some(body) = at.get(..len as usize) else {
                return Ok(None);
            };
            let known = Control::decode(kind, body)?;
            let used = buf.len() - at.len() + len as usize;
            buf.advance(used);
            if known.is_some() {
                return Ok(known);
            }
        }
    }

    fn decode(kind: u64, body: &[u8]) -> Result<Option<Control>, WireError> {
        let short = WireError("a control message that ends early");
        let mut at = body;
        let mut channel = || take(&mut at).map(ChannelId).ok_or(short);
        Ok(Some(match kind {
            1 => Control::Settings(settings::decode(at)?),
            2 => {
                let channel = channel()?;
                let (agent, name) = at.split_first().ok_or(short)?;
                let agent = match agent {
                    0 => Agent::OpenFlow,
                    1 => Agent::Raw,
                    _ => return Err(WireError("an agent kind that version 1 does not have")),
                };
                Control::Open {
                    channel,
                    agent,
                    name: text(name),
                }
            }
            3 => Control::Received {
                channel: channel()?,
                cursors: take_cursors(&mut at)?.ok_or(short)?,
            },
            4 => Control::ResumeEnd,
            5 => Control::Delivered {
                channel: channel()?,
                cursors: take_cursors(&mut at)?.ok_or(short)?,
            },
            6 => Control::Reset {
                channel: channel()?,
                reason: text(at),
            },
            JOIN => {
                let (session, rest) = at.split_first_chunk::<16>().ok_or(short)?;
                match rest.first().ok_or(short)? {
                    dscp @ 0..=DSCP_MAX => Control::Join {
                        session: SessionId(*session),
                        dscp: *dscp,
                    },
                    _ => return Err(WireError("a code point above 63")),
                }
            }
            kind => return Ok(policy::decode(kind, body)?.map(Control::Policy)),
        }))
    }
}

fn take_stamp(at: &mut &[u8]) -> Result<Option<(Stamp, bool)>, WireError> {
    let Some((epoch, rest)) = at.split_first() else {
        return Ok(None);
    };
    *at = rest;
    let Some(after) = take(at) else {
        return Ok(None);
    };
    let mut stamp = Stamp {
        epoch: *epoch,
        after: after >> 1,
        fence: None,
        number: None,
    };
    if after & 1 == 0 {
        return Ok(Some((stamp, false)));
    }
    let Some((flags, rest)) = at.split_first() else {
        return Ok(None);
    };
    *at = rest;
    if flags & FLAG_NUMBERED != 0 {
        stamp.number = take(at);
        return match stamp.number {
            Some(KEYED_RUN_MAX..) => Err(WireError("a keyed message beyond the longest run")),
            Some(_) => Ok(Some((stamp, false))),
            None => Ok(None),
        };
    }
    let Some(cursors) = take_cursors(at)? else {
        return Ok(None);
    };
    if flags & FLAG_FENCE != 0 {
        stamp.fence = Some(cursors);
    }
    Ok(Some((stamp, flags & FLAG_END != 0)))
}

fn put_cursors(out: &mut BytesMut, cursors: &[Cursor]) {
    put(out, cursors.len() as u64);
    for (lane, count) in cursors {
        put(out, lane.wire());
        put(out, *count);
    }
}

fn take_cursors(at: &mut &[u8]) -> Result<Option<Vec<Cursor>>, WireError> {
    let Some(count) = take(at) else {
        return Ok(None);
    };
    if count > LANES_MAX {
        return Err(WireError("more lanes than there can be"));
    }
    let mut cursors = Vec::new();
    for _ in 0..count {
        let (Some(lane), Some(n)) = (take(at), take(at)) else {
            return Ok(None);
        };
        let lane = Lane::from_wire(lane).ok_or(WireError("a lane number out of range"))?;
        cursors.push((lane, n));
    }
    Ok(Some(cursors))
}

pub(super) fn put(out: &mut BytesMut, n: u64) {
    match n {
        0..0x40 => out.put_u8(n as u8),
        0x40..0x4000 => out.put_u16(n as u16 | 0x4000),
        0x4000..0x4000_0000 => out.put_u32(n as u32 | 0x8000_0000),
        _ => {
            assert!(n < 1 << 62, "a variable-length integer has 62 bits");
            out.put_u64(n | 0xc000_0000_0000_0000);
        }
    }
}

pub(super) fn take(at: &mut &[u8]) -> Option<u64> {
    let len = 1 << (at.first()? >> 6);
    let (bytes, rest) = at.split_at_checked(len)?;
    let mut n = u64::from(bytes[0] & 0x3f);
    for byte in &bytes[1..] {
        n = n << 8 | u64::from(*byte);
    }
    *at = rest;
    Some(n)
}

pub(super) fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

pub(super) fn text(bytes: &[u8]) -> String {
    cut(&String::from_utf8_lossy(bytes)).to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sched::policy::MapDigest;

    use super::super::policy::Answer;
    use super::*;

    fn frame(len: u16) -> Bytes {
        let mut bytes = vec![0u8; len.into()];
        bytes[..4].copy_from_slice(&[4, 10, (len >> 8) as u8, len as u8]);
        bytes.into()
    }

    fn records() -> Vec<(Agent, Record)> {
        let fence = Some(vec![(Lane::flow(7), 70), (Lane::EXCHANGE, 1)]);
        let plain = Stamp {
            epoch: 200,
            after: 5000,
            fence: None,
            number: None,
        };
        let keyed = Stamp {
            number: Some(KEYED_RUN_MAX - 1),
            ..plain.clone()
        };
        let fenced = Stamp {
            epoch: 1,
            after: 0,
            fence,
            number: None,
        };
        let record = |stamp: &Stamp, body| Record {
            stamp: stamp.clone(),
            body,
        };
        vec![
            (Agent::OpenFlow, record(&plain, Some(frame(8)))),
            (Agent::OpenFlow, record(&keyed, Some(frame(80)))),
            (Agent::OpenFlow, record(&fenced, Some(frame(65_535)))),
            (Agent::OpenFlow, record(&fenced, None)),
            (Agent::Raw, record(&plain, Some(frame(100)))),
            (Agent::Raw, record(&fenced, None)),
        ]
    }

    fn controls() -> Vec<Control> {
        let channel = ChannelId(70_000);
        let cursors = vec![(Lane::STATE, 1 << 40), (Lane::flow(255), 3)];
        let settings = Settings {
            side: Side::Controller,
            session: SessionId([7; 16]),
            resumed: true,
            window_bytes: 4 << 20,
            code_points: vec![56, 40, 0],
            generation: 1 << 50,
            life: 1 << 60,
            early: true,
            order: OrderMode::Keyed,
            takes_datagrams: true,
            takes_bare_records: true,
        };
        vec![
            Control::Settings(settings),
            Control::Open {
                channel,
                agent: Agent::Raw,
                name: "ovsdb".into(),
            },
            Control::Received {
                channel,
                cursors: cursors.clone(),
            },
            Control::ResumeEnd,
            Control::Delivered { channel, cursors },
            Control::Reset {
                channel,
                reason: "the switch closed it".into(),
            },
            Control::Join {
                session: SessionId([3; 16]),
                dscp: DSCP_MAX,
            },
        ]
        .into_iter()
        .chain(policies().into_iter().map(Control::Policy))
        .collect()
    }

    fn policies() -> Vec<PolicyMessage> {
        let (generation, digest) = (u64::MAX, MapDigest([9; 32]));
        let ack = |answer| PolicyMessage::Ack {
            generation,
            digest,
            answer,
        };
        vec![
            PolicyMessage::Active { generation, digest },
            PolicyMessage::Begin {
                generation,
                digest,
                len: 70_000,
            },
            PolicyMessage::Chunk {
                offset: 16_384,
                bytes: Bytes::from_static(b"Rule #1: action=queue_id:0"),
            },
            PolicyMessage::Commit { generation, digest },
            ack(Answer::Staged),
            ack(Answer::Committed),
            ack(Answer::Refused("E01, and more".into())),
        ]
    }

    #[test]
    fn records_come_back_whole_and_wait_at_every_cut() {
        for (agent, record) in records() {
            let mut bytes = BytesMut::new();
            record.encode_head(agent, &mut bytes);
            bytes.extend_from_slice(record.body.as_deref().unwrap_or_default());
            for cut in (0..bytes.len()).filter(|n| *n < 100) {
                let mut part = BytesMut::from(&bytes[..cut]);
                assert_eq!(Record::take(&mut part, agent), Ok(None), "{cut} bytes");
                assert_eq!(part.len(), cut, "nothing was taken");
            }
            bytes.extend_from_slice(b"more");
            assert_eq!(Record::take(&mut bytes, agent), Ok(Some(record)));
            assert_eq!(&bytes[..], b"more");
        }
    }

    #[test]
    fn a_record_without_a_head_has_that_of_the_record_before_it() {
        let openflow = records().into_iter().filter(|(a, _)| *a == Agent::OpenFlow);
        let headed: Vec<Record> = openflow.map(|(_, record)| record).collect();
        let mut bytes = BytesMut::new();
        let mut sent = Vec::new();
        for record in headed {
            bytes.put_u8(HEAD_FOLLOWS);
            record.encode_head(Agent::OpenFlow, &mut bytes);
            bytes.extend_from_slice(record.body.as_deref().unwrap_or_default());
            let bare = Record {
                body: Some(frame(9)),
                ..record.clone()
            };
            bytes.extend_from_slice(&frame(9));
            sent.extend([record, bare]);
        }
        // Bytes arrive one by one, except for the long body.
        let (mut reader, mut arrived, mut taken) =
            (BareRecords::default(), BytesMut::new(), vec![]);
        while !bytes.is_empty() {
            let count = if arrived.len() > 100 { 10_000 } else { 1 };
            arrived.extend_from_slice(&bytes.split_to(count.min(bytes.len())));
            taken.extend(std::iter::from_fn(|| reader.take(&mut arrived).unwrap()));
        }
        assert_eq!(taken, sent);
        assert!(arrived.is_empty());
        let first = BareRecords::default().take(&mut BytesMut::from(&frame(8)[..]));
        assert_eq!(first, Err(WireError("a first record without a head")));
    }

    #[test]
    fn control_messages_come_back_whole_and_unknown_ones_are_skipped() {
        for message in controls() {
            let mut bytes = BytesMut::from(&b"\x30\x03xyz"[..]);
            bytes.extend_from_slice(&message.encode());
            for cut in 0..bytes.len() {
                assert_eq!(Control::take(&mut BytesMut::from(&bytes[..cut])), Ok(None));
            }
            assert_eq!(Control::take(&mut bytes), Ok(Some(message)));
            assert!(bytes.is_empty());
        }
    }

    #[test]
    fn a_code_point_has_six_bits() {
        let join = Control::Join {
            session: SessionId([3; 16]),
            dscp: DSCP_MAX + 1,
        };
        let taken = Control::take(&mut BytesMut::from(&join.encode()[..]));
        assert_eq!(taken, Err(WireError("a code point above 63")));
    }

    #[test]
    fn a_plain_message_costs_two_bytes() {
        let stamp = Stamp {
            epoch: 9,
            after: 31,
            fence: None,
            number: None,
        };
        let mut head = BytesMut::new();
        let body = Some(frame(8));
        Record { stamp, body }.encode_head(Agent::OpenFlow, &mut head);
        assert_eq!(head.len(), 2);
    }

    #[test]
    fn a_peer_cannot_make_us_remember_a_longer_run() {
        let mut bytes = BytesMut::from(&[0, 1, FLAG_NUMBERED][..]);
        put(&mut bytes, KEYED_RUN_MAX);
        bytes.extend_from_slice(&frame(8));
        let wrong = WireError("a keyed message beyond the longest run");
        assert_eq!(Record::take(&mut bytes, Agent::OpenFlow), Err(wrong));
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_peer_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for agent in [Agent::OpenFlow, Agent::Raw] {
                let _ = Record::take(&mut BytesMut::from(&bytes[..]), agent);
            }
            let (mut bare, mut stream) = (BareRecords::default(), BytesMut::from(&bytes[..]));
            while let Ok(Some(_)) = bare.take(&mut stream) {}
            let _ = Control::take(&mut BytesMut::from(&bytes[..]));
            for kind in 0u8..16 {
                let whole = [&[kind, bytes.len().min(63) as u8][..], &bytes].concat();
                let _ = Control::take(&mut BytesMut::from(&whole[..]));
            }
            let _ = LaneHeader::take(&mut BytesMut::from(&bytes[..]));
            let _ = CopyHeader::take(&mut Bytes::from(bytes.clone()));
        }
    }
}
