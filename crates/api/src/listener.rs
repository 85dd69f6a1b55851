//! The sockets on which clients of the API connect, and the facts that a connection shows about its
//! client.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use net::tls::ServerSecurity;
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::problem::{PROBLEM_JSON, Problem};

/// The time for a TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// The most bytes of a request without TLS that are read after its answer.
const PLAIN_BYTES_MAX: u64 = 64 << 10;

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
    /// Our address to which the client connected.
    pub at: Option<IpAddr>,
    /// The client's certificate, valid and by a CA of ours, and its intermediates.
    pub chain: Vec<CertificateDer<'static>>,
    /// The generation of the API's credentials that validated the certificate.
    pub generation: u64,
    /// The user who has connected to a Unix socket.
    pub uid: Option<u32>,
}

impl Listener {
    /// Accepts a connection, and returns the facts known about it at once.
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
    /// The byte stream of HTTP, after the TLS handshake. Facts that the handshake shows are noted
    /// in `peer`.
    pub async fn shake(self, peer: &mut Peer) -> io::Result<Box<dyn Duplex>> {
        let (stream, security) = match self {
            Accepted::Tcp(stream) => return Ok(Box::new(stream)),
            Accepted::Unix(stream) => return Ok(Box::new(stream)),
            Accepted::Tls(stream, security) => (stream, security),
        };
        let (config, generation) = security.config();
        let acceptor = TlsAcceptor::from(config);
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no TLS handshake in time");
        let shaken = timeout(HANDSHAKE_MAX, async {
            if is_plain(&stream).await? {
                return Err(refuse_plain(stream).await);
            }
            acceptor.accept(stream).await
        });
        let stream = shaken.await.map_err(late)??;
        let shown = stream.get_ref().1.peer_certificates();
        let shown = shown.unwrap_or_default().iter();
        peer.chain = shown.map(|c| c.clone().into_owned()).collect();
        peer.generation = generation;
        Ok(Box::new(stream))
    }
}

/// Whether a client begins with a request of HTTP in place of a TLS handshake.
async fn is_plain(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    let read = stream.peek(&mut first).await?;
    // A method; a handshake begins with 22.
    Ok(read == 1 && first[0].is_ascii_uppercase())
}

/// Answers a request without TLS. Returns why there is no connection.
async fn refuse_plain(mut stream: TcpStream) -> io::Error {
    let detail = "a plain HTTP request to the port of HTTPS; ask for https://";
    let document = Problem::new(StatusCode::BAD_REQUEST, detail);
    let body = serde_json::to_string(&document).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: {PROBLEM_JSON}\r\nContent-Length: \
         {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let answered = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // Unread bytes would reset the connection before the client has the answer.
        let mut rest = (&mut stream).take(PLAIN_BYTES_MAX);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    };
    let _ = answered.await;
    io::Error::new(io::ErrorKind::InvalidData, detail)
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
