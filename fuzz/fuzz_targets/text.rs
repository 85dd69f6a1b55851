//! Any text is read or refused; any message reads back from its exact text.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use openflow::text::{parse_flow_mod, parse_message, print_exact};
use openflow::{Frame, decode};

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = parse_flow_mod(text);
        let _ = parse_message(text);
    }
    let Ok(frame) = Frame::new(Bytes::copy_from_slice(data)) else {
        return;
    };
    let text = print_exact(&frame);
    if let (Some(version), Ok(message)) = (frame.version(), decode(&frame)) {
        let read = parse_message(&text).expect("what is printed is read");
        assert_eq!(read, (version, frame.xid(), message), "{text}");
    }
});
