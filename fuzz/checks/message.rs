//! Every decoded message can be encoded, and every encoded message decodes to the same, to the
//! byte.
//!
//! The input is a message; the length in its header is made to fit.

use bytes::BytesMut;
use openflow::{Frame, Version, decode, encode};

pub fn check(data: &[u8]) {
    let Ok(len) = u16::try_from(data.len()) else {
        return;
    };
    if len < 8 {
        return;
    }
    let mut bytes = BytesMut::from(data);
    bytes[2..4].copy_from_slice(&len.to_be_bytes());
    let frame = Frame::new(bytes.freeze()).expect("the length fits");
    match decode(&frame) {
        Err(error) => assert!(error.offset <= frame.len(), "{error}"),
        Ok(message) => {
            // A HELLO is read under versions that cannot be written.
            let version = frame.version().unwrap_or(Version::V13);
            let written = encode(version, frame.xid(), &message).expect("what was read");
            assert_eq!(decode(&written).as_ref(), Ok(&message));
            let again = encode(version, frame.xid(), &message).expect("what was read");
            assert_eq!(written, again);
        }
    }
}
