//! The control messages that carry a policy map. Generations are full 64-bit numbers here, which do
//! not fit into the variable-length integers.

use bytes::{BufMut, Bytes, BytesMut};
use sched::policy::MapDigest;

use super::super::policy::{Answer, PolicyMessage};
use super::{WireError, put, take};

const ACTIVE: u64 = 7;
const BEGIN: u64 = 8;
const CHUNK: u64 = 9;
const COMMIT: u64 = 10;
const ACK: u64 = 11;

/// Writes the body, and returns the type.
pub(super) fn encode(body: &mut BytesMut, message: &PolicyMessage) -> u64 {
    let name = |body: &mut BytesMut, generation: u64, digest: &MapDigest| {
        body.put_u64(generation);
        body.put_slice(&digest.0);
    };
    match message {
        PolicyMessage::Active { generation, digest } => {
            name(body, *generation, digest);
            ACTIVE
        }
        PolicyMessage::Begin {
            generation,
            digest,
            len,
        } => {
            name(body, *generation, digest);
            put(body, *len);
            BEGIN
        }
        PolicyMessage::Chunk { offset, bytes } => {
            put(body, *offset);
            body.put_slice(bytes);
            CHUNK
        }
        PolicyMessage::Commit { generation, digest } => {
            name(body, *generation, digest);
            COMMIT
        }
        PolicyMessage::Ack {
            generation,
            digest,
            answer,
        } => {
            name(body, *generation, digest);
            let (code, why) = match answer {
                Answer::Staged => (0, ""),
                Answer::Committed => (1, ""),
                Answer::Refused(why) => (2, why.as_str()),
            };
            body.put_u8(code);
            body.put_slice(why.as_bytes());
            ACK
        }
    }
}

/// Returns the message of type `kind`, if the type is one of these.
pub(super) fn decode(kind: u64, body: &[u8]) -> Result<Option<PolicyMessage>, WireError> {
    const SHORT: WireError = WireError("a control message that ends early");
    if !(ACTIVE..=ACK).contains(&kind) {
        return Ok(None);
    }
    if kind == CHUNK {
        let mut at = body;
        let offset = take(&mut at).ok_or(SHORT)?;
        let bytes = Bytes::copy_from_slice(at);
        return Ok(Some(PolicyMessage::Chunk { offset, bytes }));
    }
    let (generation, rest) = body.split_first_chunk::<8>().ok_or(SHORT)?;
    let (digest, mut rest) = rest.split_first_chunk::<32>().ok_or(SHORT)?;
    let (generation, digest) = (u64::from_be_bytes(*generation), MapDigest(*digest));
    Ok(Some(match kind {
        ACTIVE => PolicyMessage::Active { generation, digest },
        BEGIN => PolicyMessage::Begin {
            generation,
            digest,
            len: take(&mut rest).ok_or(SHORT)?,
        },
        COMMIT => PolicyMessage::Commit { generation, digest },
        _ => {
            let (code, why) = rest.split_first().ok_or(SHORT)?;
            let answer = match code {
                0 => Answer::Staged,
                1 => Answer::Committed,
                2 => Answer::Refused(String::from_utf8_lossy(why).into_owned()),
                _ => return Err(WireError("an answer to a policy map that does not exist")),
            };
            PolicyMessage::Ack {
                generation,
                digest,
                answer,
            }
        }
    }))
}
