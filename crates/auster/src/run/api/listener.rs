//! The sockets on which clients of the API connect, and what a connection says about its client.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use net::tls::ServerSecurity;
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// The time for a TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// The protocol that is spoken over TLS.
pub const ALPN: &[&[u8]] = &[b"http/1.1"];

/// A byte stream below HTTP.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// The socket on which clients connect.
pub enum Listener {
    Tcp(TcpListener),
    Tls(TcpListener, Arc<ServerSecurity>),
    Unix(UnixListener),
}

/// A client whose connection was accepted, and whose handshake is still to come.
pub enum Accepted {
    Tcp(TcpStream),
    Tls(TcpStream, Arc<ServerSecurity>),
    Unix(UnixStream),
}

/// The facts about a client that its connection shows.
#[derive(Clone, Debug)]
pub struct Peer {
    pub source: Source,
    /// The address, for logs.
    pub from: String,
    /// The address at which it has reached us.
    pub at: Option<IpAddr>,
    /// The certificate that it has shown, in order and by a CA of ours, and its intermediates.
    pub chain: Vec<CertificateDer<'static>>,
    /// The credentials of the API by which the certificate was in order.
    pub generation: u64,
    /// The user who has connected to a Unix socket.
    pub uid: Option<u32>,
}

impl Listener {
    /// A connection, and what is known of it at once.
    pub async fn accept(&self) -> io::Result<(Accepted, Peer)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                let peer = Peer::tcp(&stream, from)?;
                Ok((Accepted::Tcp(stream), peer))
            }
            Listener::Tls(listener, security) => {
                let (stream, from) = listener.accept().await?;
                let peer = Peer::tcp(&stream, from)?;
                Ok((Accepted::Tls(stream, security.clone()), peer))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = Peer::unix(&stream)?;
                Ok((Accepted::Unix(stream), peer))
            }
        }
    }
}

impl Accepted {
    /// The byte stream of HTTP, behind the handshake of TLS; what that has shown is noted in
    /// `peer`.
    pub async fn shake(self, peer: &mut Peer) -> io::Result<Box<dyn Duplex>> {
        let (stream, security) = match self {
            Accepted::Tcp(stream) => return Ok(Box::new(stream)),
            Accepted::Unix(stream) => return Ok(Box::new(stream)),
            Accepted::Tls(stream, security) => (stream, security),
        };
        let (config, generation) = security.config();
        let acceptor = TlsAcceptor::from(config);
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no TLS handshake in time");
        let shaken = timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await;
        let stream = shaken.map_err(late)??;
        let shown = stream.get_ref().1.peer_certificates();
        let shown = shown.unwrap_or_default().iter();
        peer.chain = shown.map(|c| c.clone().into_owned()).collect();
        peer.generation = generation;
        Ok(Box::new(stream))
    }
}

impl Peer {
    fn tcp(stream: &TcpStream, from: SocketAddr) -> io::Result<Peer> {
        // The next part of a stream must not wait until the client has acknowledged the last.
        stream.set_nodelay(true)?;
        Ok(Peer {
            source: Source::of(from.ip()),
            from: from.to_string(),
            at: Some(stream.local_addr()?.ip()),
            chain: Vec::new(),
            generation: 0,
            uid: None,
        })
    }

    fn unix(stream: &UnixStream) -> io::Result<Peer> {
        let uid = stream.peer_cred()?.uid();
        Ok(Peer {
            source: Source::ThisMachine,
            from: "unix".to_owned(),
            at: None,
            chain: Vec::new(),
            generation: 0,
            uid: Some(uid),
        })
    }
}

/// The source that a connection counts against: an IPv6 host has all addresses of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    ThisMachine,
    V4([u8; 4]),
    V6([u16; 4]),
}

impl Source {
    pub fn of(address: IpAddr) -> Source {
        match address.to_canonical() {
            ip if ip.is_loopback() => Source::ThisMachine,
            IpAddr::V4(ip) => Source::V4(ip.octets()),
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                Source::V6([a, b, c, d])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_source() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_eq!(of("::1"), Source::ThisMachine);
    }
}
