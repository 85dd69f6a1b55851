//! Keeps a connection when the addresses below it change.
//!
//! QUIC knows a connection by its id. Datagrams from another address still belong to it, once the
//! other end has answered there (RFC 9000, 9). The dialling end's socket is not bound to an
//! address, so the kernel sends from any address that this machine has. A packet is sent every
//! [`LINK_KEEP_ALIVE`](super::LINK_KEEP_ALIVE). The dialling end does not open another socket:
//! quinn-proto 0.11.19 names an id for the new path even when the connection is already closed, and
//! the endpoint panics. If a firewall on the path has forgotten the port, the path is therefore
//! found dead like any other, and the session continues over another connection. The listening end
//! gives the code point of the old address to the new one.

use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::time;

use net::quic::Marks;

/// The interval between two checks of the address.
const LOOK: Duration = Duration::from_millis(200);

/// Returns the unspecified address of the same family as `to`.
pub(super) fn any_address(to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// Runs as long as the connection is driven.
pub(super) async fn follow(connection: quinn::Connection, marks: Marks) -> Infallible {
    let mut address = connection.remote_address();
    loop {
        time::sleep(LOOK).await;
        let now = connection.remote_address();
        if now != address {
            tracing::info!(from = %address, to = %now, "the other relay's address has changed");
            marks.rename(address, now);
            address = now;
        }
    }
}
