//! Connections: two halves of a byte stream and the peer's identity, over any transport.
//!
//! [`connect`] dials a method, [`Listener`] accepts on one, [`memory`] joins two ends inside the
//! process for tests. The rest of the code sees a [`Connection`] and not the transport below it.

mod dial;
mod gate;
mod kept;
mod listen;
mod socket;
mod streams;
mod turns;

use std::fmt;
use std::time::Duration;

use openflow::DatapathId;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::method::Method;
use crate::tls::{CertificateIdentity, Role, TlsFacts};
use crate::workers::Place;

pub use dial::{connect, connect_at, connect_line, resolve, server_name};
pub use gate::{Limits, Refusal, Refusals, Ticket};
pub use kept::Keeper;
pub use listen::{Listener, bind_unix};
pub use socket::LineSocket;
pub use turns::{Asked, Network, NoTurn, Turn, Turns};

/// The time from the turn of a TLS or QUIC handshake to its last byte; also the longest wait for
/// that turn.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);
/// The time from an accepted connection to the whole of its first TLS message. A peer sends it at
/// once.
pub const FIRST_FLIGHT_TIMEOUT: Duration = Duration::from_millis(1500);
/// The time from the call to an established TCP connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub type Reader = Box<dyn AsyncRead + Send + Sync + Unpin>;
pub type Writer = Box<dyn AsyncWrite + Send + Sync + Unpin>;

/// An established connection. It counts against its listener's limits until it is dropped.
pub struct Connection {
    pub reader: Reader,
    /// Shutting it down delivers all written bytes; dropping it may not.
    pub writer: Writer,
    pub peer: PeerIdentity,
    /// Keep it as long as the halves.
    pub ticket: Option<Ticket>,
    /// The thread whose reactor has its socket; `None` for the runtime that made it. Keep it as
    /// long as the halves.
    pub place: Option<Place>,
    /// Keeps the connection open when the halves are dropped; `None` where that is impossible.
    pub keeper: Option<Keeper>,
}

/// The peer's identity, as far as the transport knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The address in the grammar of methods, such as `ssl:10.0.0.7:41022`.
    pub address: String,
    pub transport: TransportKind,
    /// The role in the certificate; `None` without a certificate, or without that mark in it.
    pub role: Option<Role>,
    pub datapath_id: Option<DatapathId>,
    /// The common name in the certificate.
    pub name: Option<String>,
    pub tls: Option<TlsFacts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransportKind {
    Tcp,
    Tls,
    Quic,
    Unix,
    Memory,
}

impl TransportKind {
    /// The name of the transport in methods.
    pub fn name(self) -> &'static str {
        match self {
            TransportKind::Tcp => "tcp",
            TransportKind::Tls => "ssl",
            TransportKind::Quic => "quic",
            TransportKind::Unix => "unix",
            TransportKind::Memory => "memory",
        }
    }
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PeerIdentity {
    fn plain(transport: TransportKind, address: impl fmt::Display) -> PeerIdentity {
        PeerIdentity {
            address: format!("{transport}:{address}"),
            transport,
            role: None,
            datapath_id: None,
            name: None,
            tls: None,
        }
    }

    fn certified(
        transport: TransportKind,
        address: impl fmt::Display,
        certificate: CertificateIdentity,
        tls: TlsFacts,
    ) -> PeerIdentity {
        PeerIdentity {
            role: certificate.role,
            datapath_id: certificate.datapath_id,
            tls: Some(tls),
            ..PeerIdentity::plain(transport, address)
        }
    }
}

/// Two ends joined inside the process; each direction holds at most `buffer_bytes_max`.
pub fn memory(buffer_bytes_max: usize) -> (Connection, Connection) {
    let (left, right) = tokio::io::duplex(buffer_bytes_max);
    let end = |stream, name| {
        let (reader, writer) = tokio::io::split(stream);
        Connection {
            reader: Box::new(reader),
            writer: Box::new(writer),
            peer: PeerIdentity::plain(TransportKind::Memory, name),
            ticket: None,
            place: None,
            keeper: None,
        }
    };
    (end(left, "right"), end(right, "left"))
}

/// Why there is no connection, or no listener. One line, with the remedy where it is known.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// A fault at this end, whoever the peer is.
    #[error("{method}: {problem}")]
    Local { method: Method, problem: String },
    /// A fault of the network or the peer.
    #[error("{method}: {problem}")]
    Peer { method: Method, problem: String },
}

impl TransportError {
    pub fn local(method: &Method, problem: impl fmt::Display) -> TransportError {
        TransportError::Local {
            method: method.clone(),
            problem: problem.to_string(),
        }
    }

    fn peer(method: &Method, problem: impl fmt::Display) -> TransportError {
        TransportError::Peer {
            method: method.clone(),
            problem: problem.to_string(),
        }
    }

    pub fn no_credentials(method: &Method) -> TransportError {
        TransportError::local(
            method,
            "needs certificates on both sides; give -p KEY -c CERT -C CA",
        )
    }
}
