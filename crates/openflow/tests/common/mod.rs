//! Fixtures: messages that other programs wrote, as hex under a name (`fixtures/make`).

#![allow(dead_code, reason = "each test uses what it needs")]

pub mod generate;
pub mod ovs;

use bytes::Bytes;
use openflow::Frame;

/// One message of another program.
pub struct Fixture {
    pub producer: &'static str,
    pub name: &'static str,
    pub frame: Frame,
}

impl Fixture {
    /// Name for messages of tests, such as `os-ken/of13 0012 flow_mod`.
    pub fn title(&self) -> String {
        format!("{} {}", self.producer, self.name)
    }
}

/// Producer and file.
macro_rules! files {
    ($($file:literal),* $(,)?) => {
        &[$(($file, include_str!(concat!("../fixtures/", $file, ".hex")))),*]
    };
}

const FILES: &[(&str, &str)] = files![
    "os-ken/of10",
    "os-ken/of13",
    "os-ken/of14",
    "os-ken/of15",
    "ovs/of10",
    "ovs/of11",
    "ovs/of12",
    "ovs/of13",
    "ovs/of14",
    "ovs/of15",
    "ovs-conformance/of13",
    "ovs-ofctl/of10",
    "ovs-ofctl/of11",
    "ovs-ofctl/of12",
    "ovs-ofctl/of13",
    "ovs-ofctl/of14",
    "ovs-ofctl/of15",
    "ovs-tests/of10",
    "ovs-tests/of11",
    "ovs-tests/of12",
    "ovs-tests/of13",
    "ovs-tests/of14",
    "ovs-tests/of15",
];

pub fn fixtures() -> Vec<Fixture> {
    let mut fixtures = Vec::new();
    for (producer, text) in FILES {
        let mut lines = text.lines();
        while let (Some(name), Some(hex)) = (lines.next(), lines.next()) {
            let name = name.strip_prefix("# ").expect("a name before each message");
            let frame = Frame::new(from_hex(hex)).expect("a fixture is one whole message");
            fixtures.push(Fixture {
                producer,
                name,
                frame,
            });
        }
    }
    fixtures
}

pub fn from_hex(hex: &str) -> Bytes {
    assert!(hex.len().is_multiple_of(2), "hex comes in pairs: {hex}");
    let nibble = |c: u8| (c as char).to_digit(16).expect("a hex digit") as u8;
    hex.as_bytes()
        .chunks(2)
        .map(|pair| nibble(pair[0]) << 4 | nibble(pair[1]))
        .collect()
}

pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// `bytes` as a frame, the length in its header made to fit.
pub fn reframed(bytes: &[u8]) -> Frame {
    let mut bytes = bytes.to_vec();
    let len = u16::try_from(bytes.len()).expect("a message has at most 65,535 bytes");
    bytes[2..4].copy_from_slice(&len.to_be_bytes());
    Frame::new(bytes.into()).expect("the length fits")
}
