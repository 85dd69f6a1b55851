//! What follows a connection when the addresses below it change.
//!
//! QUIC knows a connection by its id: datagrams that come from elsewhere are still its own, once the
//! other end has answered there (RFC 9000, 9). Two things are left to do here. Who dialled takes
//! another socket when this machine's address has changed, so that the other end hears of it before
//! there is anything to send, and when nothing is heard, since a firewall on the way may have
//! forgotten the old port. Who listens gives the code point of the old address to the new one.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use tokio::time::{self, Instant};

use super::{LINK_IDLE_TIMEOUT, LINK_KEEP_ALIVE, Scheduling};
use crate::quic::Marks;

/// How often it is looked. Both ends send something every [`LINK_KEEP_ALIVE`] anyway.
const LOOK: Duration = Duration::from_millis(200);
/// Two packets to keep the connection alive and their answers are missing; it has until
/// [`LINK_IDLE_TIMEOUT`] to be heard from another port.
const SILENCE_MAX: Duration = LINK_KEEP_ALIVE.saturating_mul(2);
const _: () = assert!(SILENCE_MAX.as_millis() + LOOK.as_millis() < LINK_IDLE_TIMEOUT.as_millis());

/// What a dialled connection needs to go on from another socket.
pub(super) struct Dialled {
    pub endpoint: quinn::Endpoint,
    pub scheduling: Scheduling,
    /// Of datagrams whose destination has no mark.
    pub dscp: u8,
}

/// An address of this machine that is not chosen yet, of the same family as `to`.
pub(super) fn any_address(to: SocketAddr) -> SocketAddr {
    match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// For as long as the connection is driven.
pub(super) async fn follow(
    connection: quinn::Connection,
    marks: Marks,
    dialled: Option<Dialled>,
) -> Infallible {
    match dialled {
        Some(dialled) => dialled.follow(connection, marks).await,
        None => follow_peer(connection, marks).await,
    }
}

async fn follow_peer(connection: quinn::Connection, marks: Marks) -> Infallible {
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

impl Dialled {
    async fn follow(self, connection: quinn::Connection, marks: Marks) -> Infallible {
        let to = connection.remote_address();
        let mut source = source_to(to);
        let mut heard = (connection.stats().udp_rx.datagrams, Instant::now());
        // Once for each silence: a path that carries nothing is not mended by more ports.
        let mut is_tried = false;
        loop {
            time::sleep(LOOK).await;
            let datagrams = connection.stats().udp_rx.datagrams;
            if datagrams != heard.0 {
                heard = (datagrams, Instant::now());
                is_tried = false;
            }
            // None while there is no way there: the next one may have the old address.
            let now = source_to(to).or(source);
            let has_moved = now != source;
            let is_silent = !is_tried && heard.1.elapsed() >= SILENCE_MAX;
            if !has_moved && !is_silent {
                continue;
            }
            if has_moved {
                tracing::info!(relay = %to, from = ?source, to = ?now, "our address has changed");
            }
            // quinn panics where one that is gone is given another socket.
            if connection.close_reason().is_some() {
                continue;
            }
            if let Err(error) = self.rebind(to, &marks) {
                tracing::warn!(relay = %to, %error, "no other socket");
                continue;
            }
            source = now;
            is_tried |= is_silent;
        }
    }

    /// Another socket, and a packet from it.
    fn rebind(&self, to: SocketAddr, marks: &Marks) -> io::Result<()> {
        let local = any_address(to);
        self.scheduling
            .rebind(&self.endpoint, local, self.dscp, marks)
    }
}

/// The address that this machine would send from, as it is now. No packet is sent.
fn source_to(to: SocketAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind(any_address(to)).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}
