//! Bytes to messages and back, per version. Nothing here is public but [`decode`] and [`encode`].

use crate::error::{DecodeError, EncodeError};
use crate::frame::Frame;
use crate::message::Message;
use crate::types::{Version, Xid};

/// Reads `frame` under its own version (1.0 and 1.3; the symmetric messages of every version).
///
/// # Errors
/// The peer's fault: the error says which OFPT_ERROR to answer.
pub fn decode(frame: &Frame) -> Result<Message, DecodeError> {
    let _ = frame;
    todo!()
}

/// Writes `message` as `version` says it.
///
/// # Errors
/// `Unsupported` when the version has no words for it, `TooLong` past 65,535 bytes.
pub fn encode(version: Version, xid: Xid, message: &Message) -> Result<Frame, EncodeError> {
    let _ = (version, xid, message);
    todo!()
}
