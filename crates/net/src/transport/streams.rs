//! Makes a [`Connection`] from each kind of stream.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use quinn::{RecvStream, SendStream};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;

use super::gate::Ticket;
use super::socket::BoundedTcp;
use super::{Connection, Keeper, PeerIdentity, Reader, TransportKind, Writer};
use crate::tls::{self, HeldPeer, Judged, PeerSide, Security, TlsFacts};

pub(super) fn tcp(stream: TcpStream, peer: PeerIdentity, ticket: Option<Ticket>) -> Connection {
    let (reader, writer) = stream.into_split();
    Connection {
        reader: Box::new(reader),
        writer: Box::new(writer),
        peer,
        ticket,
        place: None,
        keeper: None,
    }
}

/// Makes a connection like [`tcp`], for a peer that has connected to a listener.
pub(super) fn accepted(
    stream: TcpStream,
    peer: PeerIdentity,
    ticket: Option<Ticket>,
) -> Connection {
    let (reader, writer) = stream.into_split();
    let keeper = Keeper::default();
    Connection {
        reader: Box::new(reader),
        writer: Box::new(keeper.half(writer)),
        peer,
        ticket,
        place: None,
        keeper: Some(keeper),
    }
}

/// Makes a connection like [`tcp`], over a socket that holds few unsent bytes.
pub(super) fn line(stream: TcpStream, peer: PeerIdentity, ticket: Option<Ticket>) -> Connection {
    let (reader, writer) = tokio::io::split(BoundedTcp(stream));
    Connection {
        reader: Box::new(reader),
        writer: Box::new(writer),
        peer,
        ticket,
        place: None,
        keeper: None,
    }
}

pub(super) fn unix(stream: UnixStream, peer: PeerIdentity, ticket: Option<Ticket>) -> Connection {
    let (reader, writer) = stream.into_split();
    Connection {
        reader: Box::new(reader),
        writer: Box::new(writer),
        peer,
        ticket,
        place: None,
        keeper: None,
    }
}

pub(super) fn tls<S: AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static>(
    stream: TlsStream<S>,
    address: impl std::fmt::Display,
    (security, side): (&Security, PeerSide),
    ticket: Option<Ticket>,
) -> Connection {
    let (_, session) = stream.get_ref();
    let identity = tls::peer_identity(session.peer_certificates());
    let facts = TlsFacts::of(session);
    let name = tls::common_name(session.peer_certificates());
    let chain = session.peer_certificates().unwrap_or_default();
    let chain = chain.iter().map(|c| c.clone().into_owned()).collect();
    let held = security.hold(chain, side);
    let (reader, writer) = tokio::io::split(stream);
    let (reader, writer) = judged(reader, writer, held);
    Connection {
        reader,
        writer,
        peer: PeerIdentity {
            name,
            ..PeerIdentity::certified(TransportKind::Tls, address, identity, facts)
        },
        ticket,
        place: None,
        keeper: None,
    }
}

pub(super) fn quic(
    connection: quinn::Connection,
    streams: (SendStream, RecvStream),
    (security, side): (&Security, PeerSide),
    ticket: Option<Ticket>,
) -> Connection {
    let chain = connection
        .peer_identity()
        .and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
    let identity = tls::peer_identity(chain.as_ref().map(|chain| chain.as_slice()));
    // QUIC is TLS 1.3.
    let facts = TlsFacts {
        version: "TLSv1.3",
        cipher: None,
    };
    let address = connection.remote_address();
    let held = security.hold(chain.map(|chain| *chain).unwrap_or_default(), side);
    let (send, receive) = streams;
    let reader = QuicReader {
        receive,
        _connection: connection.clone(),
    };
    let writer = QuicWriter {
        send,
        delivered: None,
        _connection: connection,
    };
    let (reader, writer) = judged(reader, writer, held);
    Connection {
        reader,
        writer,
        peer: PeerIdentity::certified(TransportKind::Quic, address, identity, facts),
        ticket,
        place: None,
        keeper: None,
    }
}

/// The halves of a connection whose peer has shown a certificate.
fn judged(
    reader: impl AsyncRead + Send + Sync + Unpin + 'static,
    writer: impl AsyncWrite + Send + Sync + Unpin + 'static,
    held: Option<HeldPeer>,
) -> (Reader, Writer) {
    match held {
        None => (Box::new(reader), Box::new(writer)),
        Some(peer) => (
            Box::new(Judged::new(reader, peer.clone())),
            Box::new(Judged::new(writer, peer)),
        ),
    }
}

/// Half of the one stream of a QUIC connection. The connection ends when both halves are dropped.
struct QuicReader {
    receive: RecvStream,
    _connection: quinn::Connection,
}

struct QuicWriter {
    send: SendStream,
    delivered: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
    _connection: quinn::Connection,
}

impl AsyncRead for QuicReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        AsyncRead::poll_read(Pin::new(&mut self.receive), context, buffer)
    }
}

impl AsyncWrite for QuicWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(&mut self.send), context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ready when the peer has acknowledged everything: dropping the last half discards the
    /// connection and the bytes that it still holds.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let delivered = this.delivered.get_or_insert_with(|| {
            let _ = this.send.finish();
            let stopped = this.send.stopped();
            Box::pin(async move {
                let _ = stopped.await;
            })
        });
        ready!(delivered.as_mut().poll(context));
        Poll::Ready(Ok(()))
    }
}
