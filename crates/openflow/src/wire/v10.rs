//! OpenFlow 1.0.

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::frame::Frame;
use crate::message::Message;
use crate::types::Version;

use super::writer::Writer;

/// Reads `frame`, whose version is 1.0 and which is no symmetric message.
pub(super) fn decode(frame: &Frame) -> Result<Message, DecodeError> {
    let _ = frame;
    Err(DecodeError {
        kind: ErrorKind::BAD_VERSION,
        what: "message of OpenFlow 1.0",
        offset: 0,
    })
}

/// Writes the body of `message`, which is no symmetric message and has a type byte in 1.0.
pub(super) fn encode(message: &Message, w: &mut Writer) -> Result<(), EncodeError> {
    let _ = (message, w);
    Err(EncodeError::Unsupported {
        version: Version::V10,
        what: "message of this kind",
    })
}

/// The error that 1.0 numbers so, in the numbering of 1.3.
pub(super) fn error_from_wire(ty: u16, code: u16) -> ErrorKind {
    ErrorKind { ty, code }
}

/// The numbers of `kind` in 1.0, if it has the error.
pub(super) fn error_to_wire(kind: ErrorKind) -> Option<(u16, u16)> {
    Some((kind.ty, kind.code))
}
