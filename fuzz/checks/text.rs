//! Any text is read or refused; any message reads back from its exact text.
//!
//! The input is a text, and a message too; the length in its header is made to fit.

use bytes::BytesMut;
use openflow::text::{parse_flow_mod, parse_message, print_exact};
use openflow::{Frame, decode};

pub fn check(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = parse_flow_mod(text);
        let _ = parse_message(text);
    }
    let Ok(len) = u16::try_from(data.len()) else {
        return;
    };
    if len < 8 {
        return;
    }
    let mut bytes = BytesMut::from(data);
    bytes[2..4].copy_from_slice(&len.to_be_bytes());
    let frame = Frame::new(bytes.freeze()).expect("the length fits");
    let text = print_exact(&frame);
    if let (Some(version), Ok(message)) = (frame.version(), decode(&frame)) {
        let read = parse_message(&text).expect("what is printed is read");
        assert_eq!(read, (version, frame.xid(), message), "{text}");
    }
}
