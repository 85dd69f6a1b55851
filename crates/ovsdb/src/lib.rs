//! OVSDB, the management protocol of Open vSwitch (RFC 7047), without I/O.
//!
//! A [`Session`] is one client connection: bytes go in by [`Session::handle_bytes`], what is to be
//! written and what happened come out of [`Session::poll_output`], and [`Session::poll_timeout`]
//! says when to call [`Session::handle_timeout`]. Echo requests are answered inside.
//!
//! [`Splitter`] finds the messages in a byte stream, [`Message`] is one of them typed,
//! [`Transaction`] builds requests, [`Replica`] keeps monitored tables, and [`vswitch`] knows the
//! part of the Open_vSwitch schema that a controller needs.
//!
//! Sections named in the docs are those of RFC 7047; `monitor_cond` and `update2` are Open
//! vSwitch's extensions, described in its ovsdb-server(7).

mod message;
mod replica;
mod schema;
mod session;
mod splitter;
mod transact;
mod value;
pub mod vswitch;

pub use message::{Message, MessageError};
pub use replica::{Change, Replica, ReplicaError, Row};
pub use schema::{AtomType, ColumnType, Schema, SchemaError};
pub use session::{
    Answer, CloseReason, Config, MonitorId, MonitorRequest, Output, RequestError, RequestId,
    Session,
};
pub use splitter::{Limits, SplitError, Splitter};
pub use transact::{
    Condition, Function, Mutation, Mutator, OpResult, Operation, TransactError, Transaction,
    parse_results,
};
pub use value::{Atom, Atoms, Datum, Uuid, ValueError};
