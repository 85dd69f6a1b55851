//! Messages as text in the words of `ovs-ofctl`, printed and parsed.
//!
//! [`print()`] returns the text that `ovs-ofctl ofp-print` prints. Its words may lack part of the
//! message: the bytes of a packet, the order of a match or an `out_group`. Only in that case
//! [`print_exact`] adds a last line `frame=HEX`, so that [`parse_message`] turns its output back
//! into an equal message. If a text has both words and a `frame=` line, the two must agree.
//!
//! Deviations from Open vSwitch 3.1, by rule:
//! - Many of Nicira's actions and fields are printed in words, but only read from the `frame=` line
//!   of [`print_exact`]. Any other vendor's message, action or field is printed as bytes
//!   (`OFPT_EXPERIMENTER`, `experimenter(ID,DATA)`, `oxm=HEADER:PAYLOAD`).
//! - Messages that Open vSwitch refuses for their meaning (a bucket without weight, output to port
//!   2³²−1) are printed in words if this codec can read them.
//! - A message that neither can read is printed as the header line, `***decode error: NAME***` and
//!   a hex dump. The name may differ; the header line is always there (`OFPT_99` for a type without
//!   a name).
//! - OpenFlow 1.5's CONTROLLER_STATUS, FLOW_STATS, BUNDLE_FEATURES, statistics triggers and fields
//!   that Open vSwitch does not read are printed in the same style.
//! - TABLE_FEATURES lists its properties one per line instead of folding names into patterns.

mod error;
mod flow;
mod items;
mod later;
mod messages;
mod names;
mod nicira;
mod packet;
mod read_actions;
mod read_flow;
mod read_match;
mod read_message;
mod roles;
mod stats;
mod values;

pub use error::TextError;
pub use read_actions::{Named, Numbers, parse_actions, parse_actions_of};
pub use read_flow::{
    parse_flow_mod, parse_flow_mod_as, parse_group_mod, parse_group_of, parse_meter_mod,
    parse_meter_of,
};
pub use read_match::parse_match;
pub use read_message::{parse_message, print_exact};

use std::fmt::Write;

use crate::error::ErrorKind;
use crate::frame::Frame;
use crate::message::{GroupMod, MeterMod};
use crate::types::Version;
use crate::wire::{decode, decode_nicira};

/// Prints a message in the words of `ovs-ofctl ofp-print`, without the last newline.
///
/// ```
/// use openflow::{Message, Version, Xid, encode, text};
///
/// let frame = encode(Version::V13, Xid(1), &Message::BarrierRequest)?;
/// assert_eq!(text::print(&frame), "OFPT_BARRIER_REQUEST (OF1.3) (xid=0x1):");
/// # Ok::<(), openflow::EncodeError>(())
/// ```
pub fn print(frame: &Frame) -> String {
    if let Ok(Some(message)) = decode_nicira(frame) {
        return nicira::message(frame, &message);
    }
    let error = match (frame.version(), decode(frame)) {
        (Some(version), Ok(message)) => return messages::message(version, frame.xid(), &message),
        (_, Ok(_)) => ErrorKind::BAD_VERSION,
        (_, Err(error)) => error.kind,
    };
    let mut text = header(frame);
    let _ = writeln!(text, " ***decode error: {}***", names::error(error));
    let _ = values::hex_dump(&mut text, frame.bytes());
    text.trim_end_matches('\n').to_owned()
}

/// Returns the first words of [`print()`], which need only the header and a multipart's type:
/// `OFPST_FLOW request (OF1.3) (xid=0x1):`.
pub fn header(frame: &Frame) -> String {
    let (version, ty) = (frame.version_byte(), frame.type_byte());
    let name = names::frame(version, ty, frame.bytes()).unwrap_or(format!("OFPT_{ty}"));
    messages::header(&name, version, frame.xid())
}

/// Prints a group without its number, as [`parse_group_of`] reads it.
pub fn group_words(group: &GroupMod) -> String {
    let (mut text, of) = (String::new(), group.group_type);
    // Writing to a String never fails.
    let id = (group.group_id, of);
    let _ = messages::group(&mut text, Version::V13, id, Some(of), &group.buckets);
    let number = format!("group_id={},", group.group_id.0);
    text.strip_prefix(&number).unwrap_or(&text).to_owned()
}

/// Prints a meter without its number, as [`parse_meter_of`] reads it.
pub fn meter_words(meter: &MeterMod) -> String {
    let mut text = String::new();
    let _ = messages::meter(&mut text, meter.meter_id, meter.flags, &meter.bands);
    let words: Vec<&str> = text.split_whitespace().skip(1).collect();
    words.join(",").replace("bands=,", "bands=")
}
