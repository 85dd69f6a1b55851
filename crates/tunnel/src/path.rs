//! What follows a connection when the addresses below it change.
//!
//! QUIC knows a connection by its id: datagrams that come from elsewhere are still its own, once the
//! other end has answered there (RFC 9000, 9). Who dialled has a socket without an address of its
//! own, so the kernel sends from whichever this machine has, and something is sent every
//! [`LINK_KEEP_ALIVE`](super::LINK_KEEP_ALIVE). It does not take another socket: quinn-proto 0.11.19
//! names an id for the new path even when the connection is already gone, and the endpoint panics.
//! A port that a firewall on the way has forgotten is therefore found out as any dead path is, and
//! the session goes on by another connection. Who listens gives the code point of the old address
//! to the new one.

use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::time;

use net::quic::Marks;

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(200);

/// An address of this machine that is not chosen yet, of the same family as `to`.
pub(super) fn any_address(to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// For as long as the connection is driven.
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
