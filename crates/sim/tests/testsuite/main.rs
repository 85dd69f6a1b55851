//! Networks, channels and tables under virtual time, a module for each subject. They form one
//! program, because each test program is built and linked with all tested code. Tests that run many
//! seeds in release (`cluster`, `fabric_faults`) or share code with a fuzzer are programs of their
//! own.

#[path = "../seeds/mod.rs"]
#[allow(
    clippy::disallowed_methods,
    reason = "a test reads its environment and uses all cores"
)]
mod seeds;

mod access;
mod administered;
mod bonds;
mod broadcasts;
mod channel;
mod fabric;
mod failures;
mod first_packets;
mod forged_hosts;
mod forged_links;
mod forwarding;
mod gateways;
mod grace;
mod grants;
mod identity;
mod limits;
mod local;
mod mirrors;
mod multicast;
mod named_ports;
mod order;
mod overhead;
mod overload;
mod paced;
mod parts;
mod path_change;
mod pauses;
mod qos;
mod questions;
mod resolve;
mod services;
mod services_order;
mod shared_entries;
mod shares;
mod solicit;
mod static_entries;
mod table;
mod timeouts;
mod upgrade;
mod vlans;
