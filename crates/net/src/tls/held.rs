//! Connections that are up when the revocation lists change. Each is judged again by the new lists
//! and ends when its peer's certificate is in one. Nothing else about a certificate ends a
//! connection: replacing a CA or a certificate must end none.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use rustls::{CertificateError, Error};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::revocation_list::CertificateRevocationList;

use super::files::Credentials;

/// The peer's end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerSide {
    /// It dialled us.
    Client,
    /// We dialled it.
    Server,
}

/// The serial numbers in revocation lists. A chain without any of these numbers needs no further
/// check, and few peers that are connected have one of them.
#[derive(Debug, Default)]
pub(super) struct Serials(BTreeSet<Vec<u8>>);

impl Serials {
    pub fn of(lists: &[CertificateRevocationListDer<'_>]) -> Serials {
        let mut serials = BTreeSet::new();
        for list in lists {
            if let Ok((_, list)) = CertificateRevocationList::from_der(list) {
                let revoked = list.iter_revoked_certificates();
                serials.extend(revoked.map(|revoked| revoked.raw_serial().to_vec()));
            }
        }
        Serials(serials)
    }

    fn names_any_of(&self, chain: &[CertificateDer<'_>]) -> bool {
        !self.0.is_empty()
            && chain.iter().any(|certificate| {
                X509Certificate::from_der(certificate)
                    .is_ok_and(|(_, parsed)| self.0.contains(parsed.raw_serial()))
            })
    }
}

impl Credentials {
    /// Whether a handshake at the time `since` would be refused today because the peer, or a CA
    /// between it and us, is revoked.
    fn has_revoked(&self, chain: &[CertificateDer<'_>], side: PeerSide, since: UnixTime) -> bool {
        let Some((first, more)) = chain.split_first() else {
            return false;
        };
        if !self.revoked.names_any_of(chain) {
            return false;
        }
        let verified = match side {
            PeerSide::Client => {
                let verified = self.clients.verify_client_cert(first, more, since);
                verified.map(drop)
            }
            PeerSide::Server => {
                use rustls::client::danger::ServerCertVerifier;
                // The name is compared last.
                let name = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
                let verified = (self.servers).verify_server_cert(first, more, &name, &[], since);
                verified.map(drop)
            }
        };
        let revoked = Error::InvalidCertificate(CertificateError::Revoked);
        verified.is_err_and(|error| error == revoked)
    }
}

/// The peers of connections that are up.
#[derive(Debug, Default)]
pub(super) struct Peers(Mutex<Vec<Weak<Peer>>>);

#[derive(Debug)]
struct Peer {
    chain: Vec<CertificateDer<'static>>,
    side: PeerSide,
    since: UnixTime,
    is_revoked: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

impl Peers {
    /// Judges every peer by `credentials`.
    pub fn judge(&self, credentials: &Credentials) {
        let peers = {
            let mut peers = self.lock();
            peers.retain(|peer| peer.strong_count() > 0);
            peers.clone()
        };
        for peer in peers.iter().filter_map(Weak::upgrade) {
            peer.judge(credentials);
        }
    }

    pub fn add(&self, chain: Vec<CertificateDer<'static>>, side: PeerSide) -> HeldPeer {
        let peer = Arc::new(Peer {
            chain,
            side,
            since: UnixTime::now(),
            is_revoked: AtomicBool::new(false),
            reader: Mutex::default(),
        });
        let mut peers = self.lock();
        if peers.len() == peers.capacity() {
            // This frees the places of ended connections, at little cost for each.
            peers.retain(|peer| peer.strong_count() > 0);
        }
        peers.push(Arc::downgrade(&peer));
        HeldPeer(peer)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Peer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    fn judge(&self, credentials: &Credentials) {
        if credentials.has_revoked(&self.chain, self.side, self.since) {
            self.is_revoked.store(true, Ordering::Release);
            let reader = self.lock_reader().take();
            if let Some(reader) = reader {
                reader.wake();
            }
        }
    }

    fn lock_reader(&self) -> MutexGuard<'_, Option<Waker>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The peer of a connection, judged again for as long as this is kept.
#[derive(Clone, Debug)]
pub struct HeldPeer(Arc<Peer>);

impl HeldPeer {
    pub(super) fn judge(&self, credentials: &Credentials) {
        self.0.judge(credentials);
    }

    fn is_revoked(&self) -> bool {
        self.0.is_revoked.load(Ordering::Acquire)
    }

    /// Waits until the peer's certificate is revoked. One task waits at a time.
    pub async fn revoked(&self) {
        poll_fn(|context| self.poll_revoked(context)).await;
    }

    fn poll_revoked(&self, context: &Context<'_>) -> Poll<()> {
        if !self.is_revoked() {
            let mut reader = self.0.lock_reader();
            match &mut *reader {
                Some(waker) if waker.will_wake(context.waker()) => {}
                reader => *reader = Some(context.waker().clone()),
            }
        }
        // The certificate may have been revoked before the waker was set.
        match self.is_revoked() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    fn error() -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, Revoked)
    }
}

/// The error of a connection whose peer is revoked.
#[derive(Debug, thiserror::Error)]
#[error("the peer's certificate is revoked")]
pub struct Revoked;

impl Revoked {
    /// Whether a connection has ended with this error.
    pub fn is_in(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Revoked>())
    }
}

/// Half of a connection, which fails once its peer is revoked.
#[derive(Debug)]
pub struct Judged<S> {
    half: S,
    peer: HeldPeer,
}

impl<S> Judged<S> {
    pub fn new(half: S, peer: HeldPeer) -> Judged<S> {
        Judged { half, peer }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Judged<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.peer.is_revoked() {
            return Poll::Ready(Err(HeldPeer::error()));
        }
        let read = Pin::new(&mut self.half).poll_read(context, buffer);
        match read {
            // The library's text ends with an address of its manual.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let cut = "the peer closed it without an end of TLS";
                Poll::Ready(Err(io::Error::new(error.kind(), cut)))
            }
            Poll::Pending if self.peer.poll_revoked(context).is_ready() => {
                Poll::Ready(Err(HeldPeer::error()))
            }
            read => read,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Judged<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.peer.is_revoked() {
            return Poll::Ready(Err(HeldPeer::error()));
        }
        Pin::new(&mut self.half).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.half).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.half).poll_shutdown(context)
    }
}
