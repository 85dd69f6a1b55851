//! HELLO, ERROR, ECHO and EXPERIMENTER: messages that both sides send, and that have the same form
//! in every version. A peer may send them under a version that was never agreed on.

use crate::error::{DecodeError, EncodeError, ErrorKind};
use crate::frame::Frame;
use crate::hello::Hello;
use crate::kind::MessageKind;
use crate::message::{ErrorMessage, Experimenter, Message};
use crate::types::Version;

use super::reader::Reader;
use super::v10;
use super::writer::Writer;

/// OFPHET_VERSIONBITMAP, the only type of HELLO element.
const VERSION_BITMAP: u16 = 1;

/// Type and length.
const ELEMENT_HEADER_LEN: usize = 4;

/// OFPET_EXPERIMENTER: an experimenter id follows the code (1.2 and later).
const ERROR_EXPERIMENTER: u16 = 0xffff;

/// Reads `frame` if it is one of the symmetric messages.
pub(super) fn decode(frame: &Frame) -> Result<Option<Message>, DecodeError> {
    // HELLO is type 0 in every version, future ones included. Negotiation starts from its header,
    // so a HELLO of an unknown version must be readable.
    let kind = match (frame.version_byte(), frame.type_byte()) {
        (0, _) => return Ok(None),
        (_, 0) => MessageKind::Hello,
        _ => frame.kind(),
    };
    Ok(Some(match kind {
        MessageKind::Hello => Message::Hello(decode_hello(frame)?),
        MessageKind::Error => Message::Error(decode_error(frame)?),
        MessageKind::EchoRequest => {
            Message::EchoRequest(Reader::body_of(frame, "ECHO_REQUEST").rest())
        }
        MessageKind::EchoReply => Message::EchoReply(Reader::body_of(frame, "ECHO_REPLY").rest()),
        MessageKind::Experimenter => {
            let mut r = Reader::body_of(frame, "EXPERIMENTER");
            Message::Experimenter(Experimenter {
                experimenter: r.u32()?,
                data: r.rest(),
            })
        }
        _ => return Ok(None),
    }))
}

/// Writes the body of `message` if it is one of the symmetric messages.
pub(super) fn encode(
    version: Version,
    message: &Message,
    w: &mut Writer,
) -> Result<bool, EncodeError> {
    match message {
        Message::Hello(hello) => encode_hello(hello, w)?,
        Message::Error(error) => encode_error(version, error, w)?,
        Message::EchoRequest(data) | Message::EchoReply(data) => w.bytes(data),
        Message::Experimenter(message) => {
            w.u32(message.experimenter);
            w.bytes(&message.data);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Reads a HELLO. Versions before 1.3 give it no body and ask to ignore one, so a body with a wrong
/// element is ignored there. From 1.3 on a wrong element is an error.
fn decode_hello(frame: &Frame) -> Result<Hello, DecodeError> {
    let mut r = Reader::body_of(frame, "HELLO");
    match decode_hello_elements(&mut r) {
        Err(_) if frame.version_byte() < Version::V13.wire() => Ok(Hello::default()),
        hello => hello,
    }
}

fn decode_hello_elements(r: &mut Reader) -> Result<Hello, DecodeError> {
    let mut hello = Hello::default();
    // Fewer bytes than the header of an element are skipped, as in Open vSwitch.
    while r.left() >= ELEMENT_HEADER_LEN {
        let len = usize::from(r.peek_u16(2)?);
        if len < ELEMENT_HEADER_LEN {
            return Err(r.error(ErrorKind::BAD_LEN));
        }
        let mut element = r.part(len, ErrorKind::BAD_LEN, "HELLO element")?;
        // Some peers leave out the padding of the last element.
        let padding = len.next_multiple_of(8) - len;
        r.skip(padding.min(r.left()))?;
        let ty = element.u16()?;
        element.skip(2)?;
        if ty == VERSION_BITMAP && hello.bitmaps.is_none() {
            hello.bitmaps = Some(element.list(Reader::u32)?);
        }
    }
    Ok(hello)
}

fn encode_hello(hello: &Hello, w: &mut Writer) -> Result<(), EncodeError> {
    let Some(bitmaps) = &hello.bitmaps else {
        return Ok(());
    };
    let start = w.at();
    w.u16(VERSION_BITMAP);
    w.u16(0);
    for bitmap in bitmaps {
        w.u32(*bitmap);
    }
    w.close(start, 2, "HELLO element")?;
    w.align8(start);
    Ok(())
}

/// Reads an ERROR. The numbers of 1.0 are mapped to those of 1.3. Other versions share 1.3's
/// numbers for errors that both have; the rest pass as numbers.
fn decode_error(frame: &Frame) -> Result<ErrorMessage, DecodeError> {
    let mut r = Reader::body_of(frame, "ERROR");
    let (ty, code) = (r.u16()?, r.u16()?);
    let kind = match frame.version() {
        Some(Version::V10) => v10::error_from_wire(ty, code),
        _ => ErrorKind { ty, code },
    };
    let has_experimenter = ty == ERROR_EXPERIMENTER && frame.version_byte() >= Version::V12.wire();
    let experimenter = if has_experimenter {
        Some(r.u32()?)
    } else {
        None
    };
    Ok(ErrorMessage {
        kind,
        experimenter,
        data: r.rest(),
    })
}

fn encode_error(version: Version, error: &ErrorMessage, w: &mut Writer) -> Result<(), EncodeError> {
    let (ty, code) = match version {
        Version::V10 => match v10::error_to_wire(error.kind) {
            Some(numbers) => numbers,
            None => return w.unsupported("such error"),
        },
        _ => (error.kind.ty, error.kind.code),
    };
    w.u16(ty);
    w.u16(code);
    let has_experimenter = ty == ERROR_EXPERIMENTER && version >= Version::V12;
    match (has_experimenter, error.experimenter) {
        (true, Some(experimenter)) => w.u32(experimenter),
        (false, None) => {}
        (true, None) => return w.unsupported("experimenter error without an experimenter"),
        (false, Some(_)) => return w.unsupported("experimenter in such an error"),
    }
    w.bytes(&error.data);
    Ok(())
}
