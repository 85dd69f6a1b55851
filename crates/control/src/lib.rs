//! The controller as state machines, without a clock or sockets.
//!
//! [`session::Session`] is the controller's end of one connection: hello, features, echo, role and
//! the answers to malformed messages. It belongs in the loop that reads and writes the socket, so
//! that liveness never waits for the application. [`inbox::Inbox`] is the bounded queue between the
//! sessions and the application, and sheds only packet-ins. [`controller::Controller`] is the
//! application for all switches: discovery, hosts, paths, flow entries. [`qos`] computes the
//! entries, meters and queues that the operator's services need. [`cluster::Cluster`] shares the
//! switches with other controllers, and [`clustered::Clustered`] joins the two.
//!
//! The driving contract is the same for each: call one `handle_*`, drain `poll_output` until it
//! returns `None`, then wait for input or for `poll_timeout`.

pub mod access;
pub mod bfd;
pub mod bond;
pub mod cluster;
pub mod clustered;
pub mod controller;
pub mod edge;
pub mod entry;
pub mod fabric;
mod fair_table;
pub mod flows;
pub mod guard;
pub mod guest;
pub mod histogram;
pub mod inbox;
mod indexed;
pub mod lacp;
mod lldp;
mod location;
mod mac_table;
pub mod mirror;
pub mod multicast;
pub mod pipeline;
pub mod qos;
pub mod requests;
pub mod routing;
pub mod session;
pub mod tap;
pub mod timeouts;
pub mod topology;
pub mod trace;
pub mod vlan;

pub use location::Location;

/// A connection's number from the driver; never reused in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

impl std::fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{}", self.0)
    }
}
