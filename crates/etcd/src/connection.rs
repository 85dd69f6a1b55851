//! One HTTP/2 connection to one member, over TCP or TLS.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::http::Uri;
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use net::method::{Host, Method, Protocol};
use net::tls::Security;
use net::transport::server_name;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::body::Body;
use tonic::client::Grpc;

use crate::error::{Error, cleaned};

/// The port of etcd's clients.
const PORT: u16 = 2379;

/// Room for the headers of an answer; etcd sends a few hundred bytes.
const HEADERS_BYTES_MAX: u32 = 16 << 10;

/// Twice the interval that etcd objects to in a client (`--grpc-keepalive-min-time`).
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// The longest wait for a member to speak first.
const FIRST_BYTES_WAIT: Duration = Duration::from_millis(100);

/// The address of a member's clients: `HOST`, `HOST:PORT` or `[V6]:PORT`; the port is 2379 if none
/// is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    host: Host,
    port: u16,
}

impl Endpoint {
    /// Whether the endpoint is an address of this machine alone.
    pub fn is_loopback(&self) -> bool {
        self.host.is_loopback()
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Endpoint, String> {
        let after_address = text.rsplit(']').next().unwrap_or(text);
        let method = match after_address.contains(':') {
            true => format!("tcp:{text}"),
            false => format!("tcp:{text}:{PORT}"),
        };
        match Method::parse(&method, Protocol::OpenFlow) {
            Ok(Method::Dial(_, host, port)) => Ok(Endpoint { host, port }),
            _ => Err(format!("'{text}' is not HOST, HOST:PORT or [ADDRESS]:PORT")),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// A connection that several calls share. It closes when its last clone and its last stream are
/// dropped.
#[derive(Clone)]
pub struct Connection {
    requests: SendRequest<Body>,
    origin: Uri,
}

impl Connection {
    /// Connects and completes the handshakes. The certificate must name the endpoint's host. The
    /// caller sets the deadline.
    pub async fn open(endpoint: &Endpoint, tls: Option<&Security>) -> Result<Connection, Error> {
        let failed = |error: io::Error| {
            let is_of_tls = error
                .get_ref()
                .is_some_and(|inner| inner.is::<rustls::Error>());
            let why = format!("{endpoint}: {}", cleaned(&error.to_string()));
            match is_of_tls {
                true => Error::Refused(why),
                false => Error::Unreachable(why),
            }
        };
        let stream = dial(endpoint).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let Some(security) = tls else {
            return Connection::over(stream, endpoint, "http").await;
        };
        let name = server_name(&endpoint.host).map_err(Error::BadRequest)?;
        let config = security
            .clone()
            .server_name(name.clone())
            .client_config(&[b"h2"]);
        let config = config.ok_or_else(|| Error::BadRequest("no certificate for TLS".into()))?;
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, stream).await.map_err(failed)?;
        // In TLS 1.3 a member refuses our certificate after the handshake. Its first bytes are that
        // refusal or its settings, which a member need not send before ours.
        let first = timeout(FIRST_BYTES_WAIT, stream.fill_buf()).await;
        first.unwrap_or(Ok(&[])).map_err(failed)?;
        Connection::over(stream, endpoint, "https").await
    }

    async fn over<S>(stream: S, endpoint: &Endpoint, scheme: &str) -> Result<Connection, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        TokioIo<S>: Read + Write,
    {
        let handshake = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_header_list_size(HEADERS_BYTES_MAX)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_INTERVAL)
            .handshake(TokioIo::new(stream))
            .await;
        let (requests, connection) =
            handshake.map_err(|error| Error::Unreachable(format!("{endpoint}: {error}")))?;
        // The task ends with the connection's error, which each of its calls returns as well.
        tokio::spawn(connection);
        let host = match &endpoint.host {
            Host::V6 { address, .. } => format!("[{address}]"),
            host => host.to_string(),
        };
        let origin = format!("{scheme}://{host}:{}", endpoint.port);
        let origin = origin.parse().map_err(|_| Error::BadRequest(origin))?;
        Ok(Connection { requests, origin })
    }

    pub fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }

    /// Returns a gRPC caller with a bound on the bytes of an answer.
    pub fn grpc(&self, message_bytes_max: usize) -> Grpc<Requests> {
        Grpc::with_origin(Requests(self.requests.clone()), self.origin.clone())
            .max_decoding_message_size(message_bytes_max)
    }
}

async fn dial(endpoint: &Endpoint) -> io::Result<TcpStream> {
    match endpoint.host.socket_address(endpoint.port)? {
        Some(address) => TcpStream::connect(address).await,
        None => TcpStream::connect((endpoint.host.to_string(), endpoint.port)).await,
    }
}

/// A connection as tonic calls it.
pub struct Requests(SendRequest<Body>);

impl tower::Service<hyper::Request<Body>> for Requests {
    type Response = hyper::Response<Incoming>;
    type Error = hyper::Error;
    type Future =
        std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: hyper::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Failure;
    use crate::wire::{Protobuf, StatusRequest, StatusResponse, path};
    use hyper::http::uri::PathAndQuery;

    #[tokio::test]
    async fn a_call_on_a_closed_connection_was_not_sent() {
        let (ours, theirs) = tokio::io::duplex(1024);
        let endpoint: Endpoint = "h1".parse().unwrap();
        let connection = Connection::over(ours, &endpoint, "http").await.unwrap();
        drop(theirs);
        while !connection.is_closed() {
            tokio::task::yield_now().await;
        }
        let call = connection
            .grpc(1024)
            .unary(
                tonic::Request::new(StatusRequest {}),
                PathAndQuery::from_static(path::STATUS),
                Protobuf::<StatusRequest, StatusResponse>::new(8),
            )
            .await;
        let failure = Failure::of(&endpoint, &call.unwrap_err());
        assert!(!failure.was_sent && !failure.may_be_done, "{failure:?}");
    }

    #[test]
    fn an_endpoint_has_a_host_and_a_port() {
        for (text, printed) in [
            ("h1", "h1:2379"),
            ("h1:2380", "h1:2380"),
            ("192.0.2.1:1", "192.0.2.1:1"),
            ("[2001:db8::1]", "[2001:db8::1]:2379"),
            ("[::1]:77", "[::1]:77"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), printed);
        }
        for text in [
            "",
            ":1",
            "h1:",
            "h1:x",
            "2001:db8::1",
            "h1:70000",
            "a b",
            "http://h1",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
