//! OpenFlow messages, their text form, packet fields and a reference switch; no I/O and no clock.
//!
//! A message has two forms. A [`Frame`] is a checked header and the original bytes; relays forward
//! frames and queues store them. A [`Message`] is the typed form, one for all versions, in the
//! vocabulary of OpenFlow 1.3. [`decode`] and [`encode`] convert them for OpenFlow 1.0 to 1.5.
//!
//! ```
//! use openflow::message::FlowMod;
//! use openflow::{Action, Match, Message, PortNo, Version, Xid, decode, encode};
//!
//! let any = Match::any().with_in_port(PortNo(1));
//! let message = Message::FlowMod(FlowMod::add(10, any, vec![Action::output(PortNo(2))]));
//! let frame = encode(Version::V13, Xid(1), &message)?;
//! assert_eq!(decode(&frame)?, message);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Section numbers in these docs refer to the OpenFlow 1.3.5 specification, unless another version
//! is named. No number in a peer's message makes the decoder allocate more than the message itself
//! contains.
//!
//! # Features
//! All features are on by default.
//! - `packet`: match fields of Ethernet frames, and frames for tests (module `packet`).
//! - `text`: messages in `ovs-ofctl` syntax (module `text`); turns `packet` on.
//! - `table`: the reference switch (module `table`); turns `packet` on.

#![warn(missing_docs)]

pub mod actions;
mod bundle;
pub mod error;
mod flow_monitor;
pub mod frame;
pub mod hello;
pub mod kind;
pub mod match_fields;
pub mod message;
pub mod multipart;
mod notice;
#[cfg(feature = "packet")]
pub mod packet;
mod property;
pub mod stat;
#[cfg(feature = "table")]
pub mod table;
#[cfg(feature = "text")]
pub mod text;
pub mod types;
pub mod wire;

pub use actions::{Action, Bucket, Instruction};
pub use error::{DecodeError, EncodeError, ErrorKind};
pub use frame::{Frame, FrameError};
pub use kind::MessageKind;
pub use match_fields::{Field, Match, MatchField};
pub use message::Message;
#[cfg(feature = "packet")]
pub use packet::PacketFields;
pub use types::{
    BucketId, BufferId, Cookie, DatapathId, GroupId, MacAddr, MeterId, PortNo, QueueId, TableId,
    Version, Xid,
};
pub use wire::{NiciraMessage, PacketIn2, bundle_add, decode, decode_nicira, decode_rows, encode};

#[cfg(all(doctest, feature = "table", feature = "text"))]
#[doc = include_str!("../README.md")]
struct Readme;
