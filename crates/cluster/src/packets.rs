//! Packets that one member hands over to another, as lines on their connection: OpenFlow messages
//! from a switch that has another master by then.

use std::fmt::Write;

use control::clustered::PACKET_BYTES_MAX;
use openflow::{DatapathId, Frame};
use serde::{Deserialize, Serialize};

use super::documents::line;

/// A message of OpenFlow in hexadecimal digits.
#[derive(Deserialize, Serialize)]
struct PacketText {
    packet: String,
    dpid: String,
}

/// A packet as one line, with its end.
pub fn text(dpid: DatapathId, frame: &Frame) -> Vec<u8> {
    let mut packet = String::with_capacity(2 * frame.len());
    for byte in frame.bytes() {
        let _ = write!(packet, "{byte:02x}");
    }
    let dpid = dpid.to_string();
    line(&PacketText { packet, dpid })
}

/// Reads a line; `None` if the line is not a packet.
pub fn heard(line: &[u8]) -> Option<(DatapathId, Frame)> {
    let text: PacketText = serde_json::from_slice(line).ok()?;
    let digits = text.packet.as_bytes();
    if !digits.len().is_multiple_of(2) || digits.len() > 2 * PACKET_BYTES_MAX {
        return None;
    }
    let digit = |at: u8| char::from(at).to_digit(16);
    let byte = |two: &[u8]| u8::try_from(digit(two[0])? << 4 | digit(two[1])?).ok();
    let bytes: Option<Vec<u8>> = digits.chunks_exact(2).map(byte).collect();
    let frame = Frame::new(bytes?.into()).ok()?;
    Some((text.dpid.parse().ok()?, frame))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_packet_is_read_as_it_was_written(
            dpid: u64,
            body in proptest::collection::vec(any::<u8>(), 0..PACKET_BYTES_MAX + 9),
        ) {
            let len = u16::try_from(8 + body.len()).unwrap().to_be_bytes();
            let bytes = [&[4, 13, len[0], len[1], 0, 0, 0, 1], &body[..]].concat();
            let frame = Frame::new(bytes.into()).unwrap();
            let text = text(DatapathId(dpid), &frame);
            let fits = frame.len() <= PACKET_BYTES_MAX;
            prop_assert!(!fits || text.len() < 16 << 10);
            let read = heard(&text[..text.len() - 1]);
            prop_assert_eq!(read, fits.then_some((DatapathId(dpid), frame)));
        }

        #[test]
        fn any_digits_are_read_without_a_panic(packet: String, dpid: String, line: Vec<u8>) {
            let _ = heard(&line);
            let text = serde_json::to_vec(&PacketText { packet, dpid });
            let _ = heard(&text.unwrap());
        }
    }
}
