//! A policy map in OFPT_EXPERIMENTER messages (OpenFlow 1.0: OFPT_VENDOR), byte by byte.
//!
//! These messages serve peers that share only an OpenFlow connection: a controller other than
//! auster, or two relays joined by TCP or TLS. The experimenter's number and the type, 32 bits
//! each, follow the OpenFlow header, at the same place in all versions; then follows the body.
//! Numbers are big-endian, and padding is zero and ignored. A map is sent as its canonical text,
//! and the SHA-256 of this text is the map's digest.
//!
//! | type | name | body |
//! | --- | --- | --- |
//! | 0 | CAP | protocol (1), 1 in a reply, pad 2, longest map (4) |
//! | 1 | SET_BEGIN | generation (8), digest (32), bytes of the map (8) |
//! | 2 | SET_CHUNK | offset (8), bytes of the map |
//! | 3 | COMMIT | generation (8), digest (32) |
//! | 4 | ACK | generation (8), digest (32), outcome (1), pad 7, reasons |
//! | 5 | GET | 0 active or 1 staged, pad 7 |
//! | 6 | GET_REPLY | head (see below), per rule: number (2), pad 6, messages (8); text |
//! | 7 | STATUS | generation (8), digest (32) |
//! | 8 | QSTATS_REQUEST | |
//! | 9 | QSTATS_REPLY | per queue: eleven counters (8 each) in the order of [`QueueCounters`] |
//!
//! The outcome in ACK is 0 staged, 1 committed or 2 refused.
//!
//! The head of GET_REPLY: the requested map as in GET (1), flags (1: more follows, 2: there is no
//! such map), rules (2), pad 4, generation (8), digest (32), messages that no rule matched (8).

mod talk;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use openflow::frame::{FRAME_LEN_MAX, HEADER_LEN};
use openflow::{ErrorKind, Frame, MessageKind, Xid};
use sched::policy::{MapDigest, QUEUES_MAX, RULES_MAX};
use sched::scheduler::QueueCounters;

use super::policy::{Answer, CHUNK_BYTES_MAX, PolicyMessage};

pub use talk::{PolicyTalk, TalkEvent};

/// The experimenter's number. None is registered for auster; this one is from the quarter of the
/// space that may be assigned locally.
pub const EXPERIMENTER_ID: u32 = 0x0052_5553;

/// The number of this layout, in CAP.
pub const PROTOCOL: u8 = 1;

/// OFPT_EXPERIMENTER, and OFPT_VENDOR in 1.0.
const TYPE_EXPERIMENTER: u8 = 4;
const TYPE_ERROR: u8 = 1;
/// Bytes of the rejected message in an ERROR: OpenFlow's minimum.
const ERROR_DATA_LEN: usize = 64;
const COUNTERS_LEN: usize = 11 * 8;

const CAP: u32 = 0;
const SET_BEGIN: u32 = 1;
const SET_CHUNK: u32 = 2;
const COMMIT: u32 = 3;
const ACK: u32 = 4;
const GET: u32 = 5;
const GET_REPLY: u32 = 6;
const STATUS: u32 = 7;
const QSTATS_REQUEST: u32 = 8;
const QSTATS_REPLY: u32 = 9;

const FLAG_MORE: u8 = 1;
const FLAG_NONE: u8 = 2;

/// One of auster's experimenter messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExperimenterMessage {
    /// Asks whether the peer takes policy maps, or answers that it does.
    Cap {
        is_reply: bool,
        map_bytes_max: u32,
    },
    /// SET_BEGIN, SET_CHUNK, COMMIT, ACK and STATUS.
    Policy(PolicyMessage),
    Get(Which),
    GetReply(MapPart),
    QueueStatsRequest,
    QueueStatsReply(Vec<QueueCounters>),
}

/// The requested map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Active,
    Staged,
}

/// A map as it is read back, or the next part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapPart {
    pub which: Which,
    /// More of the text follows in another message.
    pub more: bool,
    /// Generation and digest; `None` where there is no such map.
    pub map: Option<(u64, MapDigest)>,
    /// The number of messages by rule.
    pub hits: Vec<(u16, u64)>,
    /// The number of messages that no rule matched.
    pub hits_default: u64,
    pub text: Bytes,
}

/// Whether `bytes`, a whole message, is a message of experimenter `id`.
pub fn is_of(id: u32, bytes: &[u8]) -> bool {
    bytes.get(1) == Some(&TYPE_EXPERIMENTER)
        && bytes.get(HEADER_LEN..HEADER_LEN + 4) == Some(&id.to_be_bytes())
}

/// Whether `bytes`, a whole message, is a message of experimenter `id` or an ERROR about one.
pub fn is_about(id: u32, bytes: &[u8]) -> bool {
    let is_error = bytes.get(1) == Some(&TYPE_ERROR);
    is_of(id, bytes) || is_error && bytes.get(HEADER_LEN + 4..).is_some_and(|at| is_of(id, at))
}

/// The kind of an ERROR about one of our own messages.
pub fn error_about(id: u32, frame: &Frame) -> Option<ErrorKind> {
    if frame.kind() != MessageKind::Error {
        return None;
    }
    let mut body = frame.body();
    let (ty, code) = (body.try_get_u16().ok()?, body.try_get_u16().ok()?);
    is_of(id, body).then_some(ErrorKind { ty, code })
}

/// The ERROR that answers `about`.
pub fn error(about: &Frame, kind: ErrorKind) -> Frame {
    let data = &about.bytes()[..about.len().min(ERROR_DATA_LEN)];
    let mut out = BytesMut::with_capacity(HEADER_LEN + 4 + data.len());
    put_header(&mut out, about.version_byte(), TYPE_ERROR, about.xid());
    out.put_u16(kind.ty);
    out.put_u16(kind.code);
    out.put_slice(data);
    finish(out)
}

impl ExperimenterMessage {
    pub fn encode(&self, version: u8, id: u32, xid: Xid) -> Frame {
        let mut out = BytesMut::new();
        put_header(&mut out, version, TYPE_EXPERIMENTER, xid);
        out.put_u32(id);
        out.put_u32(self.number());
        match self {
            ExperimenterMessage::Cap {
                is_reply,
                map_bytes_max,
            } => {
                out.put_u8(PROTOCOL);
                out.put_u8(u8::from(*is_reply));
                out.put_u16(0);
                out.put_u32(*map_bytes_max);
            }
            ExperimenterMessage::Policy(message) => put_policy(&mut out, message),
            ExperimenterMessage::Get(which) => {
                out.put_u8(*which as u8);
                out.put_bytes(0, 7);
            }
            ExperimenterMessage::GetReply(part) => put_part(&mut out, part),
            ExperimenterMessage::QueueStatsRequest => {}
            ExperimenterMessage::QueueStatsReply(queues) => {
                queues
                    .iter()
                    .for_each(|queue| put_counters(&mut out, queue));
            }
        }
        finish(out)
    }

    /// Decodes `frame`, a message of our experimenter.
    ///
    /// # Errors
    /// The error to send as the answer.
    pub fn decode(frame: &Frame) -> Result<ExperimenterMessage, ErrorKind> {
        let mut at = frame.body().get(4..).ok_or(ErrorKind::BAD_LEN)?;
        let number = at.try_get_u32().map_err(|_| ErrorKind::BAD_LEN)?;
        let message = match number {
            CAP => {
                let fixed = at.split_off(..8).ok_or(ErrorKind::BAD_LEN)?;
                ExperimenterMessage::Cap {
                    is_reply: fixed[1] != 0,
                    map_bytes_max: (&fixed[4..]).get_u32(),
                }
            }
            SET_BEGIN..=ACK | STATUS => ExperimenterMessage::Policy(take_policy(number, &mut at)?),
            GET => {
                let fixed = at.split_off(..8).ok_or(ErrorKind::BAD_LEN)?;
                ExperimenterMessage::Get(which(fixed[0])?)
            }
            GET_REPLY => ExperimenterMessage::GetReply(take_part(&mut at)?),
            QSTATS_REQUEST => ExperimenterMessage::QueueStatsRequest,
            QSTATS_REPLY => {
                if at.len() % COUNTERS_LEN != 0 || at.len() > QUEUES_MAX * COUNTERS_LEN {
                    return Err(ErrorKind::BAD_LEN);
                }
                let queues = at.len() / COUNTERS_LEN;
                let queues = (0..queues).map(|_| take_counters(&mut at));
                ExperimenterMessage::QueueStatsReply(queues.collect())
            }
            _ => return Err(ErrorKind::BAD_EXPERIMENTER_TYPE),
        };
        if at.is_empty() {
            Ok(message)
        } else {
            Err(ErrorKind::BAD_LEN)
        }
    }

    fn number(&self) -> u32 {
        match self {
            ExperimenterMessage::Cap { .. } => CAP,
            ExperimenterMessage::Policy(PolicyMessage::Active { .. }) => STATUS,
            ExperimenterMessage::Policy(PolicyMessage::Begin { .. }) => SET_BEGIN,
            ExperimenterMessage::Policy(PolicyMessage::Chunk { .. }) => SET_CHUNK,
            ExperimenterMessage::Policy(PolicyMessage::Commit { .. }) => COMMIT,
            ExperimenterMessage::Policy(PolicyMessage::Ack { .. }) => ACK,
            ExperimenterMessage::Get(_) => GET,
            ExperimenterMessage::GetReply(_) => GET_REPLY,
            ExperimenterMessage::QueueStatsRequest => QSTATS_REQUEST,
            ExperimenterMessage::QueueStatsReply(_) => QSTATS_REPLY,
        }
    }
}

impl MapPart {
    /// Splits `text` into as many parts as it needs, each with the facts about the map.
    pub fn all(of: &MapPart, text: Bytes) -> Vec<MapPart> {
        let starts = (0..text.len().max(1)).step_by(CHUNK_BYTES_MAX);
        let part = |start: usize| {
            let end = text.len().min(start + CHUNK_BYTES_MAX);
            MapPart {
                more: end < text.len(),
                text: text.slice(start..end),
                ..of.clone()
            }
        };
        starts.map(part).collect()
    }
}

fn put_header(out: &mut BytesMut, version: u8, ty: u8, xid: Xid) {
    out.put_u8(version);
    out.put_u8(ty);
    // Filled in once the length is known.
    out.put_u16(0);
    out.put_u32(xid.0);
}

/// Completes a message. The caller has kept the message short enough: no body is too long.
fn finish(mut out: BytesMut) -> Frame {
    out.truncate(FRAME_LEN_MAX);
    let len = (out.len() as u16).to_be_bytes();
    out[2..4].copy_from_slice(&len);
    Frame::new(out.freeze()).expect("the header says how long it is")
}

fn put_name(out: &mut BytesMut, generation: u64, digest: &MapDigest) {
    out.put_u64(generation);
    out.put_slice(&digest.0);
}

fn put_policy(out: &mut BytesMut, message: &PolicyMessage) {
    match message {
        PolicyMessage::Active { generation, digest }
        | PolicyMessage::Commit { generation, digest } => put_name(out, *generation, digest),
        PolicyMessage::Begin {
            generation,
            digest,
            len,
        } => {
            put_name(out, *generation, digest);
            out.put_u64(*len);
        }
        PolicyMessage::Chunk { offset, bytes } => {
            out.put_u64(*offset);
            out.put_slice(bytes);
        }
        PolicyMessage::Ack {
            generation,
            digest,
            answer,
        } => {
            put_name(out, *generation, digest);
            let (code, why) = match answer {
                Answer::Staged => (0, ""),
                Answer::Committed => (1, ""),
                Answer::Refused(why) => (2, why.as_str()),
            };
            out.put_u8(code);
            out.put_bytes(0, 7);
            out.put_slice(why.as_bytes());
        }
    }
}

fn take_policy(number: u32, at: &mut &[u8]) -> Result<PolicyMessage, ErrorKind> {
    if number == SET_CHUNK {
        let offset = at.try_get_u64().map_err(|_| ErrorKind::BAD_LEN)?;
        let bytes = Bytes::copy_from_slice(at);
        *at = &[];
        return Ok(PolicyMessage::Chunk { offset, bytes });
    }
    let (generation, digest) = take_name(at)?;
    Ok(match number {
        SET_BEGIN => PolicyMessage::Begin {
            generation,
            digest,
            len: at.try_get_u64().map_err(|_| ErrorKind::BAD_LEN)?,
        },
        COMMIT => PolicyMessage::Commit { generation, digest },
        ACK => {
            let fixed = at.split_off(..8).ok_or(ErrorKind::BAD_LEN)?;
            let why = std::mem::take(at);
            let answer = match fixed[0] {
                0 if why.is_empty() => Answer::Staged,
                1 if why.is_empty() => Answer::Committed,
                0 | 1 => return Err(ErrorKind::BAD_LEN),
                2 => Answer::Refused(String::from_utf8_lossy(why).into_owned()),
                _ => return Err(ErrorKind::BAD_EXPERIMENTER_TYPE),
            };
            PolicyMessage::Ack {
                generation,
                digest,
                answer,
            }
        }
        _ => PolicyMessage::Active { generation, digest },
    })
}

fn take_name(at: &mut &[u8]) -> Result<(u64, MapDigest), ErrorKind> {
    let generation = at.try_get_u64().map_err(|_| ErrorKind::BAD_LEN)?;
    let digest = at.split_off(..32).ok_or(ErrorKind::BAD_LEN)?;
    let digest = digest.try_into().map_err(|_| ErrorKind::BAD_LEN)?;
    Ok((generation, MapDigest(digest)))
}

fn which(code: u8) -> Result<Which, ErrorKind> {
    match code {
        0 => Ok(Which::Active),
        1 => Ok(Which::Staged),
        _ => Err(ErrorKind::BAD_EXPERIMENTER_TYPE),
    }
}

fn put_part(out: &mut BytesMut, part: &MapPart) {
    out.put_u8(part.which as u8);
    let more = if part.more { FLAG_MORE } else { 0 };
    let none = if part.map.is_none() { FLAG_NONE } else { 0 };
    out.put_u8(more | none);
    out.put_u16(part.hits.len() as u16);
    out.put_u32(0);
    let (generation, digest) = part.map.unwrap_or((0, MapDigest([0; 32])));
    put_name(out, generation, &digest);
    out.put_u64(part.hits_default);
    for (rule, hits) in &part.hits {
        out.put_u16(*rule);
        out.put_bytes(0, 6);
        out.put_u64(*hits);
    }
    out.put_slice(&part.text);
}

fn take_part(at: &mut &[u8]) -> Result<MapPart, ErrorKind> {
    let fixed = at.split_off(..8).ok_or(ErrorKind::BAD_LEN)?;
    let (which, flags) = (which(fixed[0])?, fixed[1]);
    let rules = usize::from((&fixed[2..]).get_u16());
    let (generation, digest) = take_name(at)?;
    let hits_default = at.try_get_u64().map_err(|_| ErrorKind::BAD_LEN)?;
    let len = rules * 16;
    if rules > RULES_MAX || at.len() < len {
        return Err(ErrorKind::BAD_LEN);
    }
    let mut hits = Vec::with_capacity(rules);
    for _ in 0..rules {
        let rule = at.get_u16();
        at.advance(6);
        hits.push((rule, at.get_u64()));
    }
    let text = Bytes::copy_from_slice(at);
    *at = &[];
    Ok(MapPart {
        which,
        more: flags & FLAG_MORE != 0,
        map: (flags & FLAG_NONE == 0).then_some((generation, digest)),
        hits,
        hits_default,
        text,
    })
}

fn put_counters(out: &mut BytesMut, queue: &QueueCounters) {
    let counters = [
        queue.messages_in,
        queue.bytes_in,
        queue.messages_out,
        queue.bytes_out,
        queue.promoted,
        queue.shed_duplicate,
        queue.shed_stale,
        queue.shed_full,
        queue.forgotten,
        queue.messages_waiting as u64,
        queue.bytes_waiting as u64,
    ];
    counters.into_iter().for_each(|n| out.put_u64(n));
}

/// Takes counters; at least [`COUNTERS_LEN`] bytes are present.
fn take_counters(at: &mut &[u8]) -> QueueCounters {
    let mut next = || at.get_u64();
    QueueCounters {
        messages_in: next(),
        bytes_in: next(),
        messages_out: next(),
        bytes_out: next(),
        promoted: next(),
        shed_duplicate: next(),
        shed_stale: next(),
        shed_full: next(),
        forgotten: next(),
        messages_waiting: next() as usize,
        bytes_waiting: next() as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: MapDigest = MapDigest([7; 32]);

    fn each() -> Vec<ExperimenterMessage> {
        let generation = u64::MAX - 1;
        let ack = |answer| PolicyMessage::Ack {
            generation,
            digest: DIGEST,
            answer,
        };
        let policy = [
            PolicyMessage::Begin {
                generation,
                digest: DIGEST,
                len: 9,
            },
            PolicyMessage::Chunk {
                offset: 3,
                bytes: Bytes::from_static(b"Rule"),
            },
            PolicyMessage::Commit {
                generation,
                digest: DIGEST,
            },
            ack(Answer::Staged),
            ack(Answer::Committed),
            ack(Answer::Refused("2:1: E06: no".to_owned())),
            PolicyMessage::Active {
                generation,
                digest: DIGEST,
            },
        ];
        let part = |map| MapPart {
            which: Which::Staged,
            more: false,
            map,
            hits: vec![(1, 8), (64, u64::MAX)],
            hits_default: 5,
            text: Bytes::from_static(b"Rule #1"),
        };
        let queue = QueueCounters {
            messages_in: 1,
            promoted: 2,
            bytes_waiting: 3,
            ..QueueCounters::default()
        };
        let mut all: Vec<_> = policy
            .into_iter()
            .map(ExperimenterMessage::Policy)
            .collect();
        all.extend([
            ExperimenterMessage::Cap {
                is_reply: true,
                map_bytes_max: 70_000,
            },
            ExperimenterMessage::Get(Which::Staged),
            ExperimenterMessage::GetReply(part(Some((generation, DIGEST)))),
            ExperimenterMessage::GetReply(part(None)),
            ExperimenterMessage::QueueStatsRequest,
            ExperimenterMessage::QueueStatsReply(vec![queue, QueueCounters::default()]),
        ]);
        all
    }

    #[test]
    fn every_message_reads_back_in_every_version_and_no_part_of_one_does() {
        for message in each() {
            for version in 1..=6 {
                let frame = message.encode(version, EXPERIMENTER_ID, Xid(9));
                assert_eq!(frame.kind(), MessageKind::Experimenter);
                assert!(is_of(EXPERIMENTER_ID, frame.bytes()));
                assert!(!is_of(EXPERIMENTER_ID + 1, frame.bytes()));
                assert_eq!(ExperimenterMessage::decode(&frame), Ok(message.clone()));
            }
            let whole = message.encode(4, EXPERIMENTER_ID, Xid(9));
            for len in 12..whole.len() {
                let mut bytes = BytesMut::from(&whole.bytes()[..len]);
                bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
                let cut = Frame::new(bytes.freeze()).unwrap();
                assert_ne!(ExperimenterMessage::decode(&cut), Ok(message.clone()));
            }
        }
    }

    #[test]
    fn what_is_unknown_or_of_a_wrong_length_is_told_apart() {
        let of = |number: u32, body: &[u8]| {
            let mut out = BytesMut::new();
            put_header(&mut out, 4, TYPE_EXPERIMENTER, Xid(1));
            out.put_u32(EXPERIMENTER_ID);
            out.put_u32(number);
            out.put_slice(body);
            ExperimenterMessage::decode(&finish(out))
        };
        assert_eq!(of(10, &[]), Err(ErrorKind::BAD_EXPERIMENTER_TYPE));
        assert_eq!(of(GET, &[2; 8]), Err(ErrorKind::BAD_EXPERIMENTER_TYPE));
        assert_eq!(of(GET, &[0; 9]), Err(ErrorKind::BAD_LEN));
        assert_eq!(of(CAP, &[0; 7]), Err(ErrorKind::BAD_LEN));
        assert_eq!(of(COMMIT, &[0; 41]), Err(ErrorKind::BAD_LEN));
        assert_eq!(of(QSTATS_REPLY, &[0; 90]), Err(ErrorKind::BAD_LEN));
        let mut part = [0; 56];
        part[2..4].copy_from_slice(&u16::MAX.to_be_bytes());
        assert_eq!(of(GET_REPLY, &part), Err(ErrorKind::BAD_LEN));
    }

    #[test]
    fn an_error_names_the_message_it_is_about() {
        let ours = ExperimenterMessage::QueueStatsRequest.encode(1, EXPERIMENTER_ID, Xid(3));
        let error = error(&ours, ErrorKind::BAD_EXPERIMENTER);
        assert_eq!(error.xid(), Xid(3));
        let about = error_about(EXPERIMENTER_ID, &error);
        assert_eq!(about, Some(ErrorKind::BAD_EXPERIMENTER));
        assert_eq!(error_about(EXPERIMENTER_ID + 1, &error), None);
        assert_eq!(error_about(EXPERIMENTER_ID, &ours), None);
    }

    #[test]
    fn a_long_map_is_read_back_in_parts() {
        let of = MapPart {
            which: Which::Active,
            more: false,
            map: Some((1, DIGEST)),
            hits: vec![(1, 1); RULES_MAX],
            hits_default: 0,
            text: Bytes::new(),
        };
        let text = Bytes::from(vec![b'x'; 2 * CHUNK_BYTES_MAX + 1]);
        let parts = MapPart::all(&of, text.clone());
        assert_eq!(
            parts.iter().map(|p| p.more).collect::<Vec<_>>(),
            [true, true, false]
        );
        let joined: Vec<u8> = parts.iter().flat_map(|p| p.text.to_vec()).collect();
        assert_eq!(joined, text);
        assert_eq!(MapPart::all(&of, Bytes::new()).len(), 1);
    }
}
