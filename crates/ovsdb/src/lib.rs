//! OVSDB, the management protocol of Open vSwitch (RFC 7047), without I/O.
//!
//! A [`Session`] is one client connection. [`Session::handle_bytes`] takes bytes from the server,
//! [`Session::poll_output`] returns bytes to write and events, and [`Session::poll_timeout`]
//! returns the time to call [`Session::handle_timeout`]. The session answers echo requests itself.
//!
//! ```
//! use clock::Instant;
//! use ovsdb::{Answer, Config, Output, Session};
//!
//! let now = Instant::START;
//! let mut session = Session::new(now, Config::default());
//! let request = session.list_dbs(now)?;
//!
//! // Write this to the server's socket.
//! let output = session.poll_output();
//! let bytes = br#"{"id":0,"method":"list_dbs","params":[]}"#;
//! assert_eq!(output, Some(Output::Transmit(bytes.as_slice().into())));
//!
//! // Pass on what the socket brings.
//! session.handle_bytes(now, br#"{"id":0,"result":["Open_vSwitch"],"error":null}"#);
//! let databases = Answer::Databases(vec!["Open_vSwitch".into()]);
//! assert_eq!(session.poll_output(), Some(Output::Answered(request, databases)));
//! # Ok::<(), ovsdb::RequestError>(())
//! ```
//!
//! [`Splitter`] finds the messages in a byte stream, [`Message`] is one typed message,
//! [`Transaction`] builds requests, [`Replica`] keeps monitored tables, and [`vswitch`] knows the
//! part of the Open_vSwitch schema that a controller needs.
//!
//! Sections named in the docs are those of RFC 7047; `monitor_cond` and `update2` are Open
//! vSwitch's extensions, described in its ovsdb-server(7).

#![warn(missing_docs)]

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

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
