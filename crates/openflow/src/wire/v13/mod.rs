//! OpenFlow 1.3.

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::frame::Frame;
use crate::message::Message;
use crate::types::Version;

use super::writer::Writer;

/// Reads `frame`, whose version is 1.3 and which is no symmetric message.
pub(super) fn decode(frame: &Frame) -> Result<Message, DecodeError> {
    let _ = frame;
    Err(DecodeError {
        kind: ErrorKind::BAD_VERSION,
        what: "message of OpenFlow 1.3",
        offset: 0,
    })
}

/// Writes the body of `message`, which is no symmetric message and has a type byte in 1.3.
pub(super) fn encode(message: &Message, w: &mut Writer) -> Result<(), EncodeError> {
    let _ = (message, w);
    Err(EncodeError::Unsupported {
        version: Version::V13,
        what: "message of this kind",
    })
}
