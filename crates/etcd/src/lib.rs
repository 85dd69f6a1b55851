//! A client of etcd v3, with the calls that a cluster of auster makes and no others.
//!
//! Everything that a server sends is bounded and checked before a caller sees it. A call has one
//! deadline per member. A failed read is repeated at another member. A write is sent at most once,
//! and [`Error::Unknown`] means that nobody knows whether it was done.

mod client;
mod connection;
mod error;
mod values;
mod watch;
mod wire;

pub use client::{Client, Config, Limits};
pub use connection::Endpoint;
pub use error::Error;
pub use values::{
    Answer, Cas, Compare, Header, KeyValue, Lease, Op, OpResult, Snapshot, Status, Txn, TxnAnswer,
};
pub use watch::{Change, Lost, Notice, Watch};
