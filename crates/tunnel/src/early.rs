//! Early data (0-RTT) between two relays that have both asked for it. When a broken session
//! resumes, the records that the other end may lack travel with the first packets of the handshake.
//!
//! An attacker who sees such packets can repeat them or delay them for long, but can neither read
//! nor change them. These rules keep that harmless:
//!
//! - The dialling end sends only the session's name, the records received of each lane, and records
//!   that name their channel, lane and place. It sends nothing that would begin a session, and no
//!   datagram of an agent.
//! - A ticket is good for one handshake. The listening end keeps it only in memory and removes it
//!   when it is used. So repeated early data cannot be read here, and is counted. The first of two
//!   copies may still arrive late, when the session has continued without it:
//! - A session accepts each place of a lane once, from any connection. An early record is therefore
//!   either the next one, which is handed over sooner, or a known one, which is dropped and
//!   counted. Its bytes are the same either way, since only the owner of the ticket can have
//!   written them.
//! - Until the handshake is confirmed, which takes an answer by the owner of the ticket, the
//!   listening end sends nothing and leaves the session's present connection alone.
//! - Both ends verify the ticket's certificate again.
//!
//! If the ticket is unknown, because the listening relay was restarted or has forgotten it, the
//! handshake continues without early data. The dialling end then sends everything again after the
//! handshake.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{RecvStream, SendStream};
use relay::datagrams::AgentDatagram;
use relay::wire::Control;
use relay::{CopiedRecord, Early, Settings, WireError};
use rustls::NamedGroup;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::end::End;
use super::link::{self, LinkError};
use super::{copies, peer_name};
use net::quic;
use net::tls::Security;

/// The number of tickets that a relay gives for each handshake. Each dialled address takes one.
const TICKETS_GIVEN: usize = 4;
/// The number of tickets that the dialling end keeps; the oldest are forgotten.
const TICKETS_KEPT: usize = 2 * TICKETS_GIVEN;
/// The number of tickets that the listening end keeps for all relays, some 1.5 kB each; the oldest
/// are forgotten.
const TICKETS_REMEMBERED: usize = 4096;

/// Early data counters of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarlyStatus {
    /// Handshakes that this end began with early data.
    pub sent: u64,
    /// Handshakes among these whose early data the other end accepted, and those that continued
    /// without it.
    pub accepted: u64,
    pub rejected: u64,
    /// Records that arrived before their handshake was confirmed, and were handed over.
    pub taken: u64,
    /// Records that had already been received.
    pub repeated: u64,
    /// Records that arrived before their predecessor in the lane. They are not kept beyond the
    /// confirmation.
    pub ahead: u64,
    /// Records of an unknown channel, or input that is not a record.
    pub refused: u64,
}

/// The status while it is being counted.
#[derive(Default)]
pub(super) struct Counting(Mutex<EarlyStatus>);

impl Counting {
    pub fn status(&self) -> EarlyStatus {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, EarlyStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl End {
    /// Handles a datagram that arrived before the handshake of its connection was confirmed.
    fn take_early(self: &Arc<Self>, datagram: Bytes) -> Result<(), WireError> {
        if AgentDatagram::take(datagram.clone())?.is_some() {
            self.early.lock().refused += 1;
            return Ok(());
        }
        let (before, after) = self.with(|session| {
            let before = session.copies();
            session.handle_copy(datagram)?;
            Ok((before, session.copies()))
        })?;
        let mut counts = self.early.lock();
        counts.taken += after.used - before.used;
        counts.repeated += after.doubled - before.doubled;
        counts.refused += after.refused - before.refused;
        counts.ahead += u64::from(after == before);
        Ok(())
    }
}

/// The first messages of the dialling end on the control stream.
pub(super) struct Said {
    pub send: SendStream,
    pub recv: RecvStream,
    pub ours: Settings,
    pub early: Early,
    /// The number of early records that were sent.
    sent: usize,
}

/// Sends the session's name. If the session is to be resumed, also reports what was received of it,
/// and sends the records that the other end may lack.
pub(super) async fn say(end: &Arc<End>, connection: &quinn::Connection) -> Result<Said, LinkError> {
    let (mut send, recv) = connection.open_bi().await?;
    let (ours, early) = end.with(|session| {
        let mut ours = session.settings(session.is_resumable());
        ours.early = ours.resumed;
        (ours, session.resume_early())
    });
    let mut first = BytesMut::from(&Control::Settings(ours.clone()).encode()[..]);
    let mut sent = 0;
    if ours.early {
        // The other end usually knows the session, and then this saves a round trip.
        for message in &early.messages {
            first.extend_from_slice(&message.encode());
        }
        sent = copies::send_early(connection, &early.records);
    }
    send.write_all(&first).await?;
    Ok(Said {
        send,
        recv,
        ours,
        early,
        sent,
    })
}

impl Said {
    /// Returns the records that were added since, or had no room.
    fn more(&self, end: &Arc<End>) -> Vec<CopiedRecord> {
        let place = |record: &CopiedRecord| (record.channel, record.lane, record.place);
        let sent: BTreeSet<_> = self.early.records[..self.sent].iter().map(place).collect();
        let mut more = end.with(|session| session.resume_early()).records;
        more.retain(|r| self.early.said.contains(&r.channel) && !sent.contains(&place(r)));
        more
    }
}

/// The tickets at the dialling end, from the relay that has the session.
pub(super) struct Dialling {
    current: Mutex<Arc<Pool>>,
    verifier: Arc<dyn ServerCertVerifier>,
    tls: rustls::ClientConfig,
    transport: Arc<quinn::TransportConfig>,
}

impl Dialling {
    /// Returns `None` unless early data is asked for.
    pub fn new(
        security: &Security,
        transport: &Arc<quinn::TransportConfig>,
    ) -> Option<Arc<Dialling>> {
        let tls = security.client_config(&[quic::ALPN_RELAY]);
        Some(Arc::new(Dialling {
            current: Mutex::default(),
            verifier: security.server_verifier()?,
            tls: tls.filter(|_| security.has_early_data())?,
            transport: transport.clone(),
        }))
    }

    /// Returns the settings of the next connection for `end`, and the pool for its tickets.
    pub fn config(&self, end: &Arc<End>) -> (quinn::ClientConfig, Arc<Pool>) {
        let keeps = Arc::new(Pool::default());
        let is_resumable = end.with(|session| session.is_resumable());
        let spends = (is_resumable && self.is_trusted()).then(|| self.current());
        // A clone keeps the same verifier; with a different one, a ticket counts as someone else's.
        let mut tls = self.tls.clone();
        tls.enable_early_data = spends.is_some();
        let purse = Purse {
            keeps: keeps.clone(),
            spends,
        };
        tls.resumption = Resumption::store(Arc::new(purse));
        let tls = QuicClientConfig::try_from(tls).expect("as without early data");
        let mut config = quinn::ClientConfig::new(Arc::new(tls));
        config.transport_config(self.transport.clone());
        (config, keeps)
    }

    fn current(&self) -> Arc<Pool> {
        let current = self.current.lock();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins to use `connection`, whose tickets arrive in `pool`; some may be there already.
    fn begin(&self, connection: &quinn::Connection, pool: Arc<Pool>, is_same: bool) {
        let before = self.current();
        {
            let mut kept = pool.lock();
            kept.chain = chain_of(connection);
            // Tickets of another process would be of no use.
            let older = std::mem::take(&mut before.lock().tickets);
            for ticket in older.into_iter().rev().filter(|_| is_same) {
                if kept.tickets.len() < TICKETS_KEPT {
                    kept.tickets.push_front(ticket);
                }
            }
        }
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = pool;
    }

    /// Whether there are tickets of a relay whose certificate is good now.
    fn is_trusted(&self) -> bool {
        let current = self.current();
        let mut kept = current.lock();
        let is_good = match kept.chain.split_first() {
            Some((first, more)) => {
                // The dialled address is not compared with the certificate, just as in a handshake.
                let name = ServerName::from(std::net::IpAddr::from([0, 0, 0, 0]));
                let now = UnixTime::now();
                let verified = (self.verifier).verify_server_cert(first, more, &name, &[], now);
                verified.is_ok()
            }
            None => false,
        };
        if !is_good {
            kept.tickets.clear();
        }
        !kept.tickets.is_empty()
    }

    /// Completes the handshake, with early data where `connecting` has a ticket. Returns the early
    /// data that the other end has accepted, if any.
    pub async fn shake(
        &self,
        end: &Arc<End>,
        connecting: quinn::Connecting,
        pool: Arc<Pool>,
    ) -> Result<(quinn::Connection, Option<Said>), quinn::ConnectionError> {
        let (connection, accepted) = match connecting.into_0rtt() {
            Ok(early) => early,
            Err(connecting) => {
                let connection = connecting.await?;
                self.begin(&connection, pool, false);
                return Ok((connection, None));
            }
        };
        let said = say(end, &connection).await;
        end.early.lock().sent += 1;
        let is_accepted = accepted.await;
        if let Some(error) = connection.close_reason() {
            return Err(error);
        }
        match said {
            Ok(said) if is_accepted => {
                end.early.lock().accepted += 1;
                self.begin(&connection, pool, true);
                copies::send_early(&connection, &said.more(end));
                Ok((connection, Some(said)))
            }
            _ => {
                end.early.lock().rejected += 1;
                self.begin(&connection, pool, false);
                Ok((connection, None))
            }
        }
    }
}

/// Tickets of one relay, newest last.
#[derive(Default)]
pub(super) struct Pool(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// The relay's certificates.
    chain: Vec<CertificateDer<'static>>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pools of one connection as rustls sees them, whatever the relay is called: two addresses may
/// belong to one relay.
struct Purse {
    keeps: Arc<Pool>,
    /// The pool whose tickets are used, with early data.
    spends: Option<Arc<Pool>>,
}

impl std::fmt::Debug for Purse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Purse")
    }
}

impl ClientSessionStore for Purse {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut kept = self.keeps.lock();
        if kept.tickets.len() == TICKETS_KEPT {
            kept.tickets.pop_front();
        }
        kept.tickets.push_back(ticket);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.spends.as_ref()?.lock().tickets.pop_back()
    }
}

/// The listening end.
pub(super) struct Listening {
    tickets: Arc<Tickets>,
    verifier: Arc<dyn ClientCertVerifier>,
    strays: AtomicU64,
}

/// Counters of early data that reached a listener and belonged to no session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StrayStatus {
    /// Handshakes with an unknown ticket: it was used before, was issued by another process, or is
    /// forgotten. The early data could not be read.
    pub tickets: u64,
    /// Handshakes that named a session which is not known here, or no longer.
    pub sessions: u64,
}

impl Listening {
    /// Returns the configuration that a listener needs; `None` unless early data is asked for.
    pub fn new(security: &Security) -> Option<(Listening, quinn::ServerConfig)> {
        let tls = security.server_config(&[quic::ALPN_RELAY]);
        let mut tls = tls.filter(|_| security.has_early_data())?;
        let tickets = Arc::new(Tickets {
            cache: ServerSessionMemoryCache::new(TICKETS_REMEMBERED),
            unknown: AtomicU64::new(0),
        });
        tls.session_storage = tickets.clone();
        tls.send_tls13_tickets = TICKETS_GIVEN;
        // The only value that QUIC allows here; its windows bound the amount of early data.
        tls.max_early_data_size = u32::MAX;
        let tls = QuicServerConfig::try_from(tls).expect("as without early data");
        let listening = Listening {
            tickets,
            verifier: security.client_verifier()?,
            strays: AtomicU64::new(0),
        };
        Some((listening, quic::listens_by(tls)))
    }

    pub fn strays(&self) -> StrayStatus {
        StrayStatus {
            tickets: self.tickets.unknown.load(Ordering::Relaxed),
            sessions: self.strays.load(Ordering::Relaxed),
        }
    }

    /// Completes the handshake. Data that arrives meanwhile is for the session that `known` finds.
    pub async fn shake(
        &self,
        incoming: quinn::Incoming,
        known: impl Fn(&str, &Settings) -> Option<Arc<End>>,
    ) -> Result<(quinn::Connection, First), LinkError> {
        let Ok((connection, mut confirmed)) = incoming.accept()?.into_0rtt() else {
            unreachable!("a listener has keys as soon as it has answered");
        };
        let mut first = First::default();
        tokio::select! {
            biased;
            // Whether there was early data is the other end's to ask.
            _ = &mut confirmed => {}
            taken = self.take_up(&connection, &mut first, known) => match taken? {},
        }
        if let Some(error) = connection.close_reason() {
            return Err(error.into());
        }
        self.verify(&connection)?;
        Ok((connection, first))
    }

    /// Handles data that arrives before the handshake is confirmed, and sends nothing.
    async fn take_up(
        &self,
        connection: &quinn::Connection,
        first: &mut First,
        known: impl Fn(&str, &Settings) -> Option<Arc<End>>,
    ) -> Result<Infallible, LinkError> {
        let Some(Control::Settings(peer)) = first.hear(connection).await? else {
            return pending().await;
        };
        self.verify(connection)?;
        // A life of 0 would mean any session of that id.
        let is_definite = peer.early && peer.life != 0;
        let end = known(&peer_name(connection), peer).filter(|_| is_definite);
        let Some(end) = end else {
            self.strays.fetch_add(1, Ordering::Relaxed);
            return pending().await;
        };
        loop {
            let datagram = connection.read_datagram().await?;
            end.take_early(datagram)?;
        }
    }

    /// Verifies the certificate that belongs to a ticket. It is from the handshake that issued the
    /// ticket, which may be long ago.
    fn verify(&self, connection: &quinn::Connection) -> Result<(), LinkError> {
        let chain = chain_of(connection);
        let refuse = |problem: &dyn std::fmt::Display| {
            connection.close(1u32.into(), b"no certificate that is good now");
            Err(LinkError::Stream(format!("its certificate: {problem}")))
        };
        let Some((first, more)) = chain.split_first() else {
            return refuse(&"none");
        };
        match (self.verifier).verify_client_cert(first, more, UnixTime::now()) {
            Ok(_) => Ok(()),
            Err(error) => refuse(&error),
        }
    }
}

pub(super) fn chain_of(connection: &quinn::Connection) -> Vec<CertificateDer<'static>> {
    let chain = connection.peer_identity();
    let chain = chain.and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
    chain.map_or_else(Vec::new, |chain| *chain)
}

/// The beginning of a connection at the listening end, as far as it has been read.
#[derive(Default)]
pub(super) struct First {
    streams: Option<(SendStream, RecvStream)>,
    /// Bytes read after the first message.
    pub buf: BytesMut,
    said: Option<Control>,
}

impl First {
    /// Reads the first message of the control stream, continuing where an earlier call stopped.
    async fn hear(
        &mut self,
        connection: &quinn::Connection,
    ) -> Result<Option<&Control>, LinkError> {
        if self.streams.is_none() {
            self.streams = Some(connection.accept_bi().await?);
        }
        if let (None, Some((_, recv))) = (&self.said, &mut self.streams) {
            self.said = Some(link::read_first(recv, &mut self.buf).await?);
        }
        Ok(self.said.as_ref())
    }

    /// Returns the control stream, its first message and the bytes read after it.
    pub async fn finish(
        mut self,
        connection: &quinn::Connection,
    ) -> Result<(SendStream, RecvStream, BytesMut, Control), LinkError> {
        self.hear(connection).await?;
        match (self.streams, self.said) {
            (Some((send, recv)), Some(said)) => Ok((send, recv, self.buf, said)),
            _ => Err(WireError("nothing on the control stream").into()),
        }
    }
}

/// Tickets that were issued and not used yet.
struct Tickets {
    cache: Arc<ServerSessionMemoryCache>,
    unknown: AtomicU64,
}

impl std::fmt::Debug for Tickets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tickets")
    }
}

impl StoresServerSessions for Tickets {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.cache.put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.cache.get(key)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let value = self.cache.take(key);
        if value.is_none() {
            self.unknown.fetch_add(1, Ordering::Relaxed);
        }
        value
    }

    fn can_cache(&self) -> bool {
        true
    }
}
