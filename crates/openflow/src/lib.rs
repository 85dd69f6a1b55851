//! OpenFlow, without sockets, clocks or allocation by a peer's word.
//!
//! Two layers on the wire. A [`Frame`] is a checked header and the bytes as they came: what relays
//! forward and queues hold. A [`Message`] is the typed form, one for all versions, in OpenFlow 1.5
//! vocabulary; [`decode`] and [`encode`] lead from one to the other for OpenFlow 1.0 and 1.3. Other
//! versions are framed and typed by their header ([`Frame::kind`]) and stay bytes.

#![warn(missing_docs)]

pub mod actions;
pub mod error;
pub mod frame;
pub mod hello;
pub mod kind;
pub mod match_fields;
pub mod message;
pub mod multipart;
pub mod packet;
pub mod table;
pub mod text;
pub mod types;
pub mod wire;

pub use actions::{Action, Bucket, Instruction};
pub use error::{DecodeError, EncodeError, ErrorKind};
pub use frame::{Frame, FrameError};
pub use kind::MessageKind;
pub use match_fields::{Field, Match, MatchField};
pub use message::Message;
pub use packet::PacketFields;
pub use types::{
    BufferId, Cookie, DatapathId, GroupId, MacAddr, MeterId, PortNo, QueueId, TableId, Version, Xid,
};
pub use wire::{decode, decode_rows, encode};
