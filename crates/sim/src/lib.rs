//! A network under virtual time: model switches, hosts, links, and the real controller.
//!
//! [`network::Network`] runs `control`'s sessions, inbox and controller over encoded frames against
//! switches made of `openflow::table`. Nothing waits, and all randomness comes from the seed: the
//! same calls give the same trace on any machine. [`link`] is one impaired link by itself, for the
//! lab.

pub mod cache;
pub mod channel;
pub mod cluster;
pub mod host;
pub mod link;
pub mod network;
pub mod order;
pub mod overhead;
pub mod process;
pub mod table;
pub mod topology;
