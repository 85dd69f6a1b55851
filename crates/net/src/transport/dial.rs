//! Dialling a method.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use rustls_pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::{
    CONNECT_TIMEOUT, Connection, HANDSHAKE_TIMEOUT, LineSocket, PeerIdentity, Refusal,
    TransportError, TransportKind, socket, streams,
};
use crate::method::{Host, Method, Transport};
use crate::quic;
use crate::tls::{PeerSide, Security};
use crate::workers::Place;

/// Dials `method`, which is not passive.
pub async fn connect(method: &Method, security: &Security) -> Result<Connection, TransportError> {
    connect_line(method, security, None).await
}

/// Dials like [`connect`]. With `line`, the connection is a limited link below a scheduler and
/// holds few unsent bytes.
pub async fn connect_line(
    method: &Method,
    security: &Security,
    line: Option<LineSocket>,
) -> Result<Connection, TransportError> {
    match method {
        Method::Dial(Transport::Tcp, host, port) => {
            let (stream, address) = dial_tcp(method, host, *port).await?;
            let peer = PeerIdentity::plain(TransportKind::Tcp, address);
            match line {
                None => Ok(streams::tcp(stream, peer, None)),
                Some(line) => {
                    socket::tune_line(&stream, line)
                        .map_err(|error| TransportError::local(method, error))?;
                    Ok(streams::line(stream, peer, None))
                }
            }
        }
        Method::Dial(Transport::Tls, host, port) => {
            dial_tls(method, host, *port, security, line).await
        }
        Method::Dial(Transport::Quic, host, port) => dial_quic(method, host, *port, security).await,
        Method::DialUnix(path) => {
            let stream = UnixStream::connect(path)
                .await
                .map_err(|error| TransportError::peer(method, error))?;
            socket::tune_unix(&stream).map_err(|error| TransportError::local(method, error))?;
            let peer = PeerIdentity::plain(TransportKind::Unix, path.display());
            Ok(streams::unix(stream, peer, None))
        }
        Method::Listen(..) | Method::ListenUnix(_) => Err(TransportError::local(
            method,
            "a passive method listens; drop the 'p' to dial",
        )),
    }
}

/// Dials `method` on the thread of `place`, where the connection stays.
pub async fn connect_at(
    place: Place,
    method: &Method,
    security: &Security,
) -> Result<Connection, TransportError> {
    let (method, security) = (method.clone(), security.clone());
    let dialled = {
        let method = method.clone();
        place
            .runtime()
            .spawn(async move { connect(&method, &security).await })
    };
    let mut connection = match dialled.await {
        Ok(dialled) => dialled?,
        Err(error) => return Err(TransportError::local(&method, error)),
    };
    connection.place = Some(place);
    Ok(connection)
}

/// Every address of `host`, in the resolver's order.
pub async fn resolve(
    method: &Method,
    host: &Host,
    port: u16,
) -> Result<Vec<SocketAddr>, TransportError> {
    match host.socket_address(port) {
        Ok(Some(address)) => return Ok(vec![address]),
        Ok(None) => {}
        Err(error) => return Err(TransportError::local(method, error)),
    }
    let unknown = |why: &dyn fmt::Display| {
        TransportError::peer(method, format!("the name '{host}' has no address: {why}"))
    };
    let lookup = tokio::net::lookup_host((host.to_string(), port));
    let addresses: Vec<SocketAddr> = match timeout(CONNECT_TIMEOUT, lookup).await {
        Err(_) => return Err(unknown(&"the resolver does not answer")),
        Ok(Err(error)) => return Err(unknown(&error)),
        Ok(Ok(addresses)) => addresses.collect(),
    };
    if addresses.is_empty() {
        return Err(unknown(&"none found"));
    }
    Ok(addresses)
}

async fn dial_tcp(
    method: &Method,
    host: &Host,
    port: u16,
) -> Result<(TcpStream, SocketAddr), TransportError> {
    let mut last = None;
    for address in resolve(method, host, port).await? {
        let error = match timeout(CONNECT_TIMEOUT, socket::dial_tcp(address)).await {
            Ok(Ok(stream)) => {
                socket::tune_tcp(&stream).map_err(|error| TransportError::local(method, error))?;
                return Ok((stream, address));
            }
            Ok(Err(error)) => error,
            Err(_) => io::Error::from(io::ErrorKind::TimedOut),
        };
        last = Some(error);
    }
    let error = last.unwrap_or_else(|| io::Error::from(io::ErrorKind::NotFound));
    Err(TransportError::peer(method, connect_problem(&error)))
}

fn connect_problem(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "nobody listens there".to_owned(),
        io::ErrorKind::TimedOut => format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()),
        _ => error.to_string(),
    }
}

/// The name for SNI, which the certificate must have if a comparison is asked for.
pub fn server_name(host: &Host) -> Result<ServerName<'static>, String> {
    match host {
        Host::V4(address) => Ok(ServerName::IpAddress((*address).into())),
        Host::V6 { address, .. } => Ok(ServerName::IpAddress((*address).into())),
        Host::Name(name) => ServerName::try_from(name.clone())
            .map_err(|_| format!("'{name}' cannot be a name in TLS")),
    }
}

async fn dial_tls(
    method: &Method,
    host: &Host,
    port: u16,
    security: &Security,
    line: Option<LineSocket>,
) -> Result<Connection, TransportError> {
    let config = security
        .client_config(&[])
        .ok_or_else(|| TransportError::no_credentials(method))?;
    let name = server_name(host).map_err(|problem| TransportError::local(method, problem))?;
    let (stream, address) = dial_tcp(method, host, port).await?;
    let connector = TlsConnector::from(Arc::new(config));
    let judge = (security, PeerSide::Server);
    let handshake = async {
        Ok(match line {
            None => {
                let stream = connector.connect(name, stream).await?;
                streams::tls(stream.into(), address, judge, None)
            }
            Some(line) => {
                socket::tune_line(&stream, line)?;
                let stream = connector.connect(name, socket::BoundedTcp(stream)).await?;
                streams::tls(stream.into(), address, judge, None)
            }
        })
    };
    match timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(TransportError::peer(method, tls_problem(&error))),
        Err(_) => Err(TransportError::peer(method, late())),
    }
}

fn late() -> String {
    let limit = HANDSHAKE_TIMEOUT.as_secs();
    format!("no TLS handshake within {limit} s; does the peer speak TLS there?")
}

/// `rustls` wraps its errors in an `io::Error`.
fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// The reason of a failed handshake.
pub(super) fn tls_refusal(error: &io::Error) -> Refusal {
    match tls_error(error) {
        Some(rustls::Error::InvalidCertificate(_)) => Refusal::Certificate,
        _ => Refusal::Handshake,
    }
}

/// The text of `rustls` alone, without the text of the `io::Error` around it.
pub(super) fn tls_problem(error: &io::Error) -> String {
    match tls_error(error) {
        Some(rustls::Error::InvalidCertificate(rustls::CertificateError::Other(other))) => {
            other.0.to_string()
        }
        Some(rustls::Error::InvalidMessage(_)) => "the peer does not speak TLS there".to_owned(),
        Some(error) => error.to_string(),
        None => format!("the TLS handshake ended: {error}"),
    }
}

async fn dial_quic(
    method: &Method,
    host: &Host,
    port: u16,
    security: &Security,
) -> Result<Connection, TransportError> {
    let config = quic::client_config(security, &[quic::ALPN_STREAM])
        .ok_or_else(|| TransportError::no_credentials(method))?;
    let name = server_name(host).map_err(|problem| TransportError::local(method, problem))?;
    let mut last = None;
    for address in resolve(method, host, port).await? {
        let local: SocketAddr = if address.is_ipv4() {
            (Ipv4Addr::UNSPECIFIED, 0).into()
        } else {
            (Ipv6Addr::UNSPECIFIED, 0).into()
        };
        let endpoint =
            quic::endpoint(local, None).map_err(|error| TransportError::local(method, error))?;
        let connecting = endpoint
            .connect_with(config.clone(), address, &name.to_str())
            .map_err(|error| TransportError::local(method, error))?;
        let problem = match timeout(HANDSHAKE_TIMEOUT, connecting).await {
            Ok(Ok(connection)) => {
                let opened = connection.open_bi().await;
                match opened {
                    Ok(opened) => {
                        let judge = (security, PeerSide::Server);
                        return Ok(streams::quic(connection, opened, judge, None));
                    }
                    Err(error) => error.to_string(),
                }
            }
            // The connection's own idle timeout fires first if this machine stalls meanwhile.
            Ok(Err(error)) if error != quinn::ConnectionError::TimedOut => quic::refusal(&error).1,
            Ok(Err(_)) | Err(_) => format!(
                "no QUIC handshake within {} s; does the peer speak QUIC there?",
                HANDSHAKE_TIMEOUT.as_secs()
            ),
        };
        last = Some(problem);
    }
    let problem = last.unwrap_or_default();
    Err(TransportError::peer(method, problem))
}
