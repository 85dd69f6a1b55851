//! Converts bytes to messages and back, per version. The main public functions are [`decode`],
//! [`encode`] and [`decode_nicira`].
//!
//! A refused message gets the OpenFlow error that Open vSwitch or the specification names. The
//! reader only moves forward and never leaves its part. It allocates memory only for parts that it
//! has read: lists grow entry by entry, whatever number a peer announces.
//!
//! `encode(decode(bytes))` is `bytes`, except for these parts, which mean nothing and are not kept:
//! - padding that is not zero, bytes after the first zero of a text (except in names of ports), and
//!   reserved bits, including multipart flags other than MORE;
//! - HELLO elements other than a version bitmap, a second bitmap, the missing padding of the last
//!   element, and the body of a HELLO of 1.2 and earlier that makes no sense;
//! - the priority of a 1.0 FLOW_MOD without wildcards, which is always the highest;
//! - in 1.1, values of `ofp_match` whose field is wildcarded or lacks its prerequisite;
//! - up to three bytes after the last HELLO element;
//! - in 1.4 and later, for properties that have a field in the message: their absence where it
//!   means zero, and their position among the others;
//! - bytes after the header of an action or instruction id in table features, unless it is an
//!   experimenter's (OpenFlow 1.3.0 padded it).

mod actions;
mod nicira;
mod onf;
mod oxm;
mod reader;
mod symmetric;
mod v10;
mod v11;
mod v12;
mod v13;
mod v14;
mod v15;
mod writer;

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::frame::Frame;
use crate::kind::MessageKind;
use crate::message::{BundleFlags, Message};
use crate::multipart::UnreadableRow;
use crate::types::{Version, Xid};

#[cfg(feature = "text")]
pub(crate) use nicira::name as nicira_name;
pub use nicira::{NiciraMessage, PacketIn2, decode_nicira};
pub(crate) use onf::kind as onf_kind;
use reader::Reader;
use writer::Writer;

/// Reads `frame` under its own version.
///
/// # Errors
/// An error is the peer's fault, and names the OFPT_ERROR to answer with. A message of an unknown
/// version is BAD_VERSION; a program that forwards frames forwards it unread.
pub fn decode(frame: &Frame) -> Result<Message, DecodeError> {
    if let Some(kind) = onf::kind(frame.bytes()) {
        return whole(frame, kind, onf::decode);
    }
    if let Some(message) = symmetric::decode(frame)? {
        return Ok(message);
    }
    let refused = |kind, what, offset| DecodeError { kind, what, offset };
    match (frame.version(), frame.kind()) {
        (None, _) => Err(refused(ErrorKind::BAD_VERSION, "message version", 0)),
        (_, MessageKind::Unknown) => Err(refused(ErrorKind::BAD_TYPE, "message type", 1)),
        (Some(Version::V10), _) => v10::decode(frame),
        (Some(Version::V11), kind) => whole(frame, kind, v11::decode),
        (Some(Version::V12), kind) => whole(frame, kind, v12::decode),
        (Some(Version::V13), kind) => whole(frame, kind, v13::decode),
        (Some(Version::V14), kind) => whole(frame, kind, v14::decode),
        (Some(Version::V15), kind) => whole(frame, kind, v15::decode),
    }
}

/// Reads `frame` with `body`, which must use it up. The message is not moved: it is large.
#[inline]
fn whole(
    frame: &Frame,
    kind: MessageKind,
    body: impl FnOnce(MessageKind, &mut Reader) -> Result<Message, DecodeError>,
) -> Result<Message, DecodeError> {
    let mut r = Reader::body_of(frame, v13::name(kind));
    let read = body(kind, &mut r);
    match r.done() {
        Err(error) if read.is_ok() => Err(error),
        _ => read,
    }
}

/// Reads `frame` like [`decode`], but leaves out unreadable rows of flow statistics whose announced
/// length is sound. The second value has those rows.
///
/// # Errors
/// Those of [`decode`].
pub fn decode_rows(frame: &Frame) -> Result<(Message, Vec<UnreadableRow>), DecodeError> {
    let error = match decode(frame) {
        Ok(message) => return Ok((message, Vec::new())),
        Err(error) => error,
    };
    let rows = match (frame.kind(), frame.version()) {
        (MessageKind::MultipartReply, Some(Version::V10)) => v10::decode_flow_rows(frame),
        (
            MessageKind::MultipartReply,
            Some(Version::V11 | Version::V12 | Version::V13 | Version::V14),
        ) => {
            let (row, unreadable) = (v13::flow::decode_stats, v13::flow::decode_unreadable);
            v13::multipart::decode_flow_rows(frame, row, unreadable)
        }
        (MessageKind::MultipartReply, Some(Version::V15)) => {
            let (row, unreadable) = (v15::flow::decode_desc, v15::flow::decode_unreadable);
            v13::multipart::decode_flow_rows(frame, row, unreadable)
        }
        _ => Ok(None),
    };
    let (reply, unreadable) = rows?.ok_or(error)?;
    Ok((Message::MultipartReply(reply), unreadable))
}

/// Writes `message` in the format of `version`.
///
/// # Errors
/// `Unsupported` if the version cannot express the message, `TooLong` past 65,535 bytes.
pub fn encode(version: Version, xid: Xid, message: &Message) -> Result<Frame, EncodeError> {
    let unsupported = EncodeError::Unsupported {
        version,
        what: "message of this kind",
    };
    let onf_type = match version {
        Version::V13 => onf::ty(message),
        _ => None,
    };
    let kind = match onf_type {
        Some(_) => MessageKind::Experimenter,
        None => message.kind(),
    };
    let Some(type_byte) = kind.to_wire(version.wire()) else {
        return Err(unsupported);
    };
    let mut w = Writer::new(version, type_byte, xid);
    if !symmetric::encode(version, message, &mut w)? {
        match version {
            Version::V10 => v10::encode(message, &mut w)?,
            Version::V11 => v11::encode(message, &mut w)?,
            Version::V12 => v12::encode(message, &mut w)?,
            Version::V13 => match onf_type {
                Some(ty) => onf::encode(ty, message, &mut w)?,
                None => v13::encode(message, &mut w)?,
            },
            Version::V14 => v14::encode(message, &mut w)?,
            Version::V15 => v15::encode(message, &mut w)?,
        }
    }
    w.finish("message")
}

/// Writes the BUNDLE_ADD_MESSAGE that carries `member`, a whole message of `version`, under the
/// same xid. In 1.3 it is the message of the ONF's extension.
///
/// # Errors
/// `Unsupported` if the version has no bundles, or if no bundle may have such a message; `TooLong`
/// past 65,535 bytes.
pub fn bundle_add(
    version: Version,
    bundle_id: u32,
    flags: BundleFlags,
    member: &Frame,
) -> Result<Frame, EncodeError> {
    v14::bundle::enclose(version, bundle_id, flags, member)
}
