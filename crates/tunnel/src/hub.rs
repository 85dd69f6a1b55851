//! The end next to the controllers: accepts other relays and keeps an [`End`] for each.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use quinn::Endpoint;
use relay::wire::Control;
use relay::{
    CARRIERS_MAX, Carriers, ChannelStatus, RIVALS_WINDOW, RivalCounters, Rivals, SessionId,
    Settings, WireError,
};
use sched::PolicyMap;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::carriers::Joined;
use super::early::{First, Listening, StrayStatus};
use super::end::{End, with_name};
use super::link::{self, Farewell, Greeted, LinkError};
use super::over_tls::{self, Ended, GreetedTls};
use super::{EndConfig, EndStatus, peer_datapath, peer_name, relay_name, transport_config};
use net::advice::bind_problem;
use net::clock::Clock;
use net::method::{Method, Transport};
use net::quic;
use net::tls::{PeerSide, Security, is_distrust};
use net::transport::{
    Asked, Connection, HANDSHAKE_TIMEOUT, Limits, Listener, Network, NoTurn, Refusal, Refusals,
    TransportError, Turn, Turns, resolve,
};

/// Maximum number of other relays that one hub serves.
const ENDS_MAX: usize = 1024;
/// Maximum number of handshakes under way. It is high because on a long path most of them wait for
/// their round trips. It is low enough that two cores finish all of them in a fraction of
/// [`super::LINK_IDLE_TIMEOUT`]; otherwise every one would be late, given up and begun again. A
/// network has at most a quarter of them, loopback most. Other handshakes wait for their turn, and
/// a Retry confirms that they were received.
const HANDSHAKES_MAX: usize = 128;
/// Maximum number of waiting handshakes. It is below quinn's limit (`max_incoming`), beyond which
/// quinn refuses handshakes from any network. One network may have no more than are left for the
/// others.
const WAITING_MAX: usize = 896;
/// The longest wait for a turn. A relay that has waited longer has given up, or is about to.
const TURN_MAX: Duration = Duration::from_secs(4);
/// Time for which every address must prove that it is genuine, once one address has had to.
const TOLD_FOR: Duration = Duration::from_secs(1);
/// Maximum number of finished channels of forgotten relays that nobody has asked for.
const FINISHED_MAX: usize = 1024;

/// Accepts other relays on one address.
pub struct Hub {
    endpoint: Endpoint,
    /// The tickets, where early data is asked for.
    early: Option<Listening>,
    /// The listener on the same port for relays whose UDP does not get through.
    tls: tokio::sync::Mutex<Option<Listener>>,
    /// The code points, by class and relay, of the destinations.
    marks: quic::Marks,
    /// Sessions that further connections may join.
    awaited: Mutex<BTreeMap<SessionId, ExpectedRelay>>,
    local: Method,
    security: Security,
    config: EndConfig,
    /// Agents whose method contains `{name}`: each has one listener per other relay.
    listen_each: Vec<(String, Method)>,
    ends: Mutex<BTreeMap<SessionId, Served>>,
    /// Held while a session is made. If two relays of one name connect at once, one takes the
    /// other's place.
    making: tokio::sync::Mutex<()>,
    /// The last map of each relay, by name. A restarted relay gets its map again.
    maps: Mutex<BTreeMap<String, Arc<PolicyMap>>>,
    /// Agents' datagrams received while there was not exactly one relay.
    datagrams_dropped: AtomicU64,
    /// Relays that take each other's place.
    rivals: Mutex<Rivals>,
    clock: Clock,
    turns: Arc<Turns>,
    counts: TurnCounts,
    /// Handshakes refused by QUIC and after TLS, and those of the TLS listener.
    refusals: Arc<Refusals>,
    tls_refusals: Option<Arc<Refusals>>,
    /// Channels of forgotten relays.
    finished: Mutex<Vec<(String, ChannelStatus)>>,
}

#[derive(Default)]
struct TurnCounts {
    begun: AtomicU64,
    told_to_wait: AtomicU64,
    too_late: AtomicU64,
    crowded: AtomicU64,
}

/// Counters of the QUIC handshakes since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnStatus {
    /// Handshakes that had their turn, whatever their result.
    pub begun: u64,
    /// Answered by a Retry, because many others were under way.
    pub told_to_wait: u64,
    /// Ignored, because no turn came before they were given up.
    pub too_late: u64,
    /// Ignored, because too many from their network waited, and these had waited longest.
    pub crowded: u64,
}

/// The relay that may join a session, and the channel that receives it.
struct ExpectedRelay {
    name: String,
    joined: mpsc::Sender<Joined>,
}

/// Maximum number of ports chosen by the system that are tried, until one is free for TCP too.
const PORT_TRIES: u32 = 8;

/// A session and its own listeners.
struct Served {
    end: Arc<End>,
    listeners: JoinSet<()>,
}

impl Hub {
    /// Listens on `method`, a `pquic:` one.
    pub async fn bind(
        method: &Method,
        security: &Security,
        config: EndConfig,
        listen_each: Vec<(String, Method)>,
    ) -> Result<Arc<Hub>, TransportError> {
        let Method::Listen(Transport::Quic, host, port) = method else {
            return Err(TransportError::local(
                method,
                "relays listen by pquic:[PORT][:HOST]",
            ));
        };
        let address = resolve(method, host, *port).await?[0];
        let (early, server) = match Listening::new(security) {
            Some((early, server)) => (Some(early), Some(server)),
            None => (None, quic::server_config(security, &[quic::ALPN_RELAY])),
        };
        let mut server = server.ok_or_else(|| TransportError::no_credentials(method))?;
        server.transport_config(Arc::new(transport_config(&config.scheduling)));
        let map = config.scheduling.policy.as_deref();
        let carriers = map.map_or_else(Carriers::default, Carriers::of);
        let code_point = carriers.code_points()[0];
        let mut tries = if *port == 0 { PORT_TRIES } else { 1 };
        let (endpoint, marks, port, tls) = loop {
            let (endpoint, marks) = config
                .scheduling
                .listening(address, server.clone(), code_point)
                .map_err(|error| TransportError::local(method, bind_problem(&error)))?;
            let given = endpoint.local_addr();
            let port = given.map_or(*port, |address| address.port());
            let over_tls = Method::Listen(Transport::Tls, host.clone(), port);
            tries -= 1;
            match Listener::bind(&over_tls, security, Limits::default()).await {
                Ok(listener) => break (endpoint, marks, port, Some(listener)),
                Err(_) if tries > 0 => {}
                Err(error) => {
                    tracing::warn!(
                        "relays that UDP does not get through to are not served: {error}"
                    );
                    break (endpoint, marks, port, None);
                }
            }
        };
        Ok(Arc::new(Hub {
            endpoint,
            early,
            tls_refusals: tls.as_ref().map(|listener| listener.refusals().clone()),
            refusals: Arc::default(),
            tls: tokio::sync::Mutex::new(tls),
            marks,
            awaited: Mutex::default(),
            local: method.with_port(port),
            security: security.clone(),
            config,
            listen_each,
            ends: Mutex::default(),
            making: tokio::sync::Mutex::default(),
            maps: Mutex::default(),
            datagrams_dropped: AtomicU64::new(0),
            rivals: Mutex::default(),
            clock: Clock::start(),
            turns: Turns::new(HANDSHAKES_MAX, WAITING_MAX),
            counts: TurnCounts::default(),
            finished: Mutex::default(),
        }))
    }

    /// Returns the method with the assigned port.
    pub fn local(&self) -> &Method {
        &self.local
    }

    /// Serves other relays for as long as it is polled.
    pub async fn run(self: &Arc<Self>) {
        let mut tasks = JoinSet::new();
        // The time when the hub began to ask addresses for proof.
        let mut told = None;
        let hub = self.clone();
        tasks.spawn(async move { hub.run_tls().await });
        loop {
            tokio::select! {
                incoming = self.endpoint.accept() => {
                    let Some(incoming) = incoming else { return };
                    let network = Network::of(incoming.remote_address().ip());
                    // A relay that was asked may have resent its first flight meanwhile: a turn for
                    // that copy would be wasted.
                    let is_told = told.is_some_and(|told: Instant| told.elapsed() < TOLD_FOR);
                    let is_busy = is_told || self.turns.is_busy(network);
                    if is_busy && !incoming.remote_address_validated() && incoming.may_retry() {
                        self.counts.told_to_wait.fetch_add(1, Ordering::Relaxed);
                        if !is_told {
                            told = Some(Instant::now());
                        }
                        let _ = incoming.retry();
                    } else {
                        let asked = self.turns.ask(network);
                        tasks.spawn(self.clone().await_turn(incoming, asked));
                    }
                }
                Some(_) = tasks.join_next() => {}
            }
        }
    }

    async fn await_turn(self: Arc<Self>, incoming: quinn::Incoming, asked: Asked) {
        let (count, refusal) = match asked.turn(TURN_MAX).await {
            Ok(turn) => {
                self.counts.begun.fetch_add(1, Ordering::Relaxed);
                return self.shake_and_serve(incoming, turn).await;
            }
            Err(NoTurn::TooLate) => (&self.counts.too_late, Refusal::Timeout),
            Err(NoTurn::Crowded) => (&self.counts.crowded, Refusal::Crowded),
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.refusals.count(refusal);
        let peer = incoming.remote_address();
        tracing::info!(%peer, "ignored: no turn for its handshake in time");
        // A relay that still wants to connect sends its handshake again.
        incoming.ignore();
    }

    async fn shake_and_serve(self: Arc<Self>, incoming: quinn::Incoming, turn: Turn) {
        let address = incoming.remote_address();
        let greeted = timeout(HANDSHAKE_TIMEOUT, self.greet(incoming, turn)).await;
        match greeted {
            Ok(Ok(None)) => {}
            Ok(Ok(Some((end, greeted)))) => self.serve(end, greeted).await,
            Ok(Err(error)) => self.refuse(&address, Some(&error)),
            Err(_) => self.refuse(&address, None),
        }
    }

    /// Counts and logs a handshake that was refused for `error`, or was not done in time.
    fn refuse(&self, peer: &dyn Display, error: Option<&LinkError>) {
        let Some(error) = error else {
            self.refusals.count(Refusal::Timeout);
            return tracing::info!(%peer, "refused: no handshake in time");
        };
        let (reason, problem) = match error {
            LinkError::Lost(error) => quic::refusal(error),
            LinkError::Full => (Refusal::Total, error.to_string()),
            _ => (Refusal::Handshake, error.to_string()),
        };
        self.refusals.count(reason);
        if is_distrust(&problem) {
            tracing::warn!(%peer, "refused: {problem}");
        } else {
            tracing::info!(%peer, "refused: {problem}");
        }
    }

    /// Returns the end of the relay called `name`; without a name, the only end there is.
    pub fn end(&self, name: Option<&str>) -> Option<Arc<End>> {
        let ends = self.lock();
        let mut fitting = ends
            .values()
            .map(|served| &served.end)
            .filter(|end| name.is_none_or(|name| end.name() == name));
        let end = fitting.next()?;
        fitting.next().is_none().then(|| end.clone())
    }

    /// The ends of all relays.
    pub fn ends(&self) -> Vec<Arc<End>> {
        let ends = self.lock();
        ends.values().map(|served| served.end.clone()).collect()
    }

    pub fn status(&self) -> Vec<EndStatus> {
        self.lock()
            .values()
            .map(|served| served.end.status())
            .collect()
    }

    /// Counts an agent's datagram for which [`Hub::end`] found no end.
    pub fn drop_datagram(&self) {
        self.datagrams_dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub fn turns(&self) -> TurnStatus {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TurnStatus {
            begun: of(&self.counts.begun),
            told_to_wait: of(&self.counts.told_to_wait),
            too_late: of(&self.counts.too_late),
            crowded: of(&self.counts.crowded),
        }
    }

    /// Returns the refused handshakes of relays, by QUIC and by TLS.
    pub fn refused(&self) -> BTreeMap<Refusal, u64> {
        let mut refused = self.refusals.all();
        for (reason, count) in self.tls_refusals.iter().flat_map(|refusals| refusals.all()) {
            *refused.entry(reason).or_default() += count;
        }
        refused
    }

    pub fn datagrams_dropped(&self) -> u64 {
        self.datagrams_dropped.load(Ordering::Relaxed)
    }

    /// Returns the counters of early data for sessions unknown here; `None` where no early data is
    /// accepted.
    pub fn strays(&self) -> Option<StrayStatus> {
        self.early.as_ref().map(Listening::strays)
    }

    /// Returns the counters of relays that connected while another connection of their name was up.
    pub fn rivals(&self) -> RivalCounters {
        let rivals = self.rivals.lock();
        rivals.unwrap_or_else(PoisonError::into_inner).counters()
    }

    /// Calls [`End::take_finished`] for all relays.
    pub fn take_finished(&self) -> Vec<(String, ChannelStatus)> {
        let mut all =
            std::mem::take(&mut *self.finished.lock().unwrap_or_else(PoisonError::into_inner));
        all.extend(
            self.lock()
                .values()
                .flat_map(|served| served.end.take_finished()),
        );
        all
    }

    /// Closes every channel of every relay.
    pub fn close(&self, reason: &str) {
        self.lock()
            .values()
            .for_each(|served| served.end.close(reason));
    }

    /// Keeps the remaining reports of a forgotten end.
    fn bury(&self, end: &Arc<End>) {
        if let Some(map) = end.policy_map() {
            let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
            if maps.len() < ENDS_MAX || maps.contains_key(end.name()) {
                maps.insert(end.name().to_owned(), Arc::new(map));
            }
        }
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        finished.extend(end.take_finished());
        let surplus = finished.len().saturating_sub(FINISHED_MAX);
        finished.drain(..surplus);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, Served>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes the handshake and finds the session. Returns `None` if the connection has joined a
    /// session that awaits it.
    async fn greet(
        &self,
        incoming: quinn::Incoming,
        turn: Turn,
    ) -> Result<Option<(Arc<End>, Greeted)>, LinkError> {
        let (connection, first) = match &self.early {
            None => (incoming.accept()?.await?, First::default()),
            Some(early) => {
                let known = |name: &str, peer: &Settings| self.known(name, peer);
                early.shake(incoming, known).await?
            }
        };
        let name = peer_name(&connection);
        let (mut send, recv, buf, said) = first.finish(&connection).await?;
        let peer = match said {
            Control::Settings(settings) => settings,
            Control::Join { session, dscp } => {
                let joined = Joined {
                    connection,
                    marks: self.marks.clone(),
                    dscp,
                    send,
                    recv,
                };
                self.join(&name, session, joined).await?;
                return Ok(None);
            }
            _ => return Err(WireError("something before the settings").into()),
        };
        let found = self.find(&name, &peer);
        let resumed = found.is_some();
        let made = if resumed {
            found
        } else {
            let from = connection.remote_address().to_string();
            self.make(&name, &from, peer.session).await
        };
        let Some(end) = made else {
            connection.close(2u32.into(), b"too many relays here");
            return Err(LinkError::Full);
        };
        let certified = peer_datapath(&connection);
        let ours = end.with(|session| {
            session.set_certified(certified);
            session.settings(resumed)
        });
        let carriers = end.settle(&ours, &peer);
        self.mark(&connection, carriers.code_points()[0]);
        let (joined, mut joins) = mpsc::channel(CARRIERS_MAX);
        if end.is_scheduled() {
            let mut awaited = self.lock_awaited();
            // Sessions that gave up waiting have left an entry.
            awaited.retain(|_, other| !other.joined.is_closed());
            awaited.insert(peer.session, ExpectedRelay { name, joined });
        }
        send.write_all(&Control::Settings(ours).encode()).await?;
        // The further connections need a turn too.
        drop(turn);
        let further = timeout(HANDSHAKE_TIMEOUT, await_joins(&carriers, &mut joins)).await;
        let further = further
            .map_err(|_| LinkError::Stream("its further connections did not come".to_owned()))??;
        Ok(Some((
            end,
            Greeted {
                connection,
                marks: self.marks.clone(),
                further,
                joins,
                carriers,
                send,
                recv,
                buf,
                peer,
                resumed,
                said: None,
            },
        )))
    }

    /// Hands `connection` to the session that awaits it.
    async fn join(
        &self,
        name: &str,
        session: SessionId,
        mut join: Joined,
    ) -> Result<(), LinkError> {
        let joined = {
            let awaited = self.lock_awaited();
            let of_name = awaited.get(&session).filter(|a| a.name == name);
            of_name.map(|awaited| awaited.joined.clone())
        };
        let Some(joined) = joined else {
            let connection = &join.connection;
            connection.close(2u32.into(), b"that session awaits no connection");
            return Err(LinkError::Stream("a join that is not awaited".to_owned()));
        };
        let dscp = join.dscp;
        self.mark(&join.connection, dscp);
        let answer = Control::Join { session, dscp };
        join.send.write_all(&answer.encode()).await?;
        let gone = |_| LinkError::Stream("a join that came too late".to_owned());
        joined.send(join).await.map_err(gone)
    }

    /// Marks everything that we send over `connection` with this code point.
    fn mark(&self, connection: &quinn::Connection, dscp: u8) {
        let address = connection.remote_address();
        self.marks.set(address, dscp);
        let (marks, ends) = (self.marks.clone(), connection.clone());
        tokio::spawn(async move {
            ends.closed().await;
            marks.forget(address);
            // The address may have changed.
            marks.forget(ends.remote_address());
        });
    }

    fn lock_awaited(&self) -> MutexGuard<'_, BTreeMap<SessionId, ExpectedRelay>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session that `peer` names, if it belongs to that relay and is to continue.
    fn known(&self, name: &str, peer: &Settings) -> Option<Arc<End>> {
        let ends = self.lock();
        let end = &ends.get(&peer.session)?.end;
        let is_meant = end.name() == name && end.with(|session| session.is_meant(peer));
        is_meant.then(|| end.clone())
    }

    /// Returns the session that `peer` names, to be taken over by a connection whose handshake is
    /// confirmed.
    fn find(&self, name: &str, peer: &Settings) -> Option<Arc<End>> {
        let end = self.known(name, peer)?;
        // The other relay would not connect again if the old connection were of any use.
        end.break_link();
        Some(end)
    }

    /// Makes a new session for the relay at `from`. A relay has only one, so any other is closed.
    async fn make(&self, name: &str, from: &str, id: SessionId) -> Option<Arc<End>> {
        let _making = self.making.lock().await;
        let old: Vec<SessionId> = {
            let ends = self.lock();
            let of_name = ends.iter().filter(|(_, served)| served.end.name() == name);
            of_name.map(|(id, _)| *id).collect()
        };
        for other in old {
            let served = self.lock().remove(&other);
            if let Some(mut served) = served {
                match served.end.status().address {
                    Some(address) if other != id => {
                        let reason = self.evict(name, from, &address);
                        served.end.close_as(link::REPLACED, reason);
                    }
                    _ => served.end.close("the other relay was restarted"),
                }
                self.bury(&served.end);
                // Its sockets are about to be bound again.
                served.listeners.shutdown().await;
            }
        }
        let mut config = self.config.clone();
        if config.scheduling.policy.is_some() {
            let maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
            let last = maps.get(name).cloned();
            config.scheduling.policy = last.or(config.scheduling.policy);
        }
        let end = End::new(config, id, name);
        let life = u64::from_be_bytes(super::random());
        end.with(|session| session.set_life(life));
        let listeners = self.listen_for(&end).await;
        let mut ends = self.lock();
        if ends.len() >= ENDS_MAX || ends.contains_key(&id) {
            return None;
        }
        ends.insert(
            id,
            Served {
                end: end.clone(),
                listeners,
            },
        );
        Some(end)
    }

    /// Notes that the relay at `from` takes the place of the connected one at `other`. Returns the
    /// reason, as far as it can be known.
    fn evict(&self, name: &str, from: &str, other: &str) -> &'static str {
        let mut rivals = self.rivals.lock().unwrap_or_else(PoisonError::into_inner);
        if rivals.handle_eviction(self.clock.now(), name) {
            tracing::warn!(
                relay = name,
                from,
                other,
                "two relays use one certificate name, and each ends the other's sessions, more \
                 than \
                 three times in {} s; give each switch's relay a certificate of its own: \
                 auster pki switch NAME. If both are one relay, it is restarted again and again",
                RIVALS_WINDOW.as_secs()
            );
        }
        "another relay came under the same certificate name: it was restarted, or two have that \
         name"
    }

    async fn serve(&self, end: Arc<End>, greeted: Greeted) {
        let name = end.name().to_owned();
        tracing::info!(relay = name, resumed = greeted.resumed, "connected");
        let connection = greeted.connection.clone();
        let error = link::run_judged(&end, greeted, &self.security, PeerSide::Client).await;
        tracing::warn!(relay = name, "disconnected: {error}");
        let connects = end.connects.load(Ordering::Relaxed);
        // The session of a relay whose certificate is revoked must not continue.
        let is_revoked = matches!(error, LinkError::Revoked);
        let was_stopped = is_revoked || link::farewell(&connection).await == Farewell::Stopped;
        self.await_return(end, connects, was_stopped).await;
    }

    /// Serves relays that connect by TLS, for as long as it is polled.
    async fn run_tls(self: &Arc<Self>) {
        let mut listener = self.tls.lock().await;
        let Some(listener) = listener.as_mut() else {
            return;
        };
        let mut tasks = JoinSet::new();
        loop {
            let connection = tokio::select! {
                connection = listener.accept() => connection,
                Some(_) = tasks.join_next() => continue,
            };
            let hub = self.clone();
            tasks.spawn(async move {
                let address = connection.peer.address.clone();
                match timeout(HANDSHAKE_TIMEOUT, hub.greet_tls(connection)).await {
                    Err(_) => hub.refuse(&address, None),
                    Ok(Err(error)) => hub.refuse(&address, Some(&error)),
                    Ok(Ok((end, greeted))) => hub.serve_tls(end, greeted).await,
                }
            });
        }
    }

    async fn greet_tls(
        &self,
        mut connection: Connection,
    ) -> Result<(Arc<End>, GreetedTls), LinkError> {
        let mut buf = BytesMut::new();
        let peer = over_tls::hear(&mut connection, &mut buf).await?;
        let name = relay_name(connection.peer.name.clone());
        let found = self.find(&name, &peer);
        let resumed = found.is_some();
        let end = match found {
            Some(end) => Some(end),
            None => {
                let from = &connection.peer.address;
                self.make(&name, from, peer.session).await
            }
        };
        let end = end.ok_or(LinkError::Full)?;
        let certified = connection.peer.datapath_id;
        let ours = end.with(|session| {
            session.set_certified(certified);
            session.settings(resumed)
        });
        let carriers = end.settle(&ours, &peer);
        over_tls::say(&mut connection, &ours).await?;
        let greeted = GreetedTls {
            connection,
            buf,
            peer,
            carriers,
            resumed,
        };
        Ok((end, greeted))
    }

    async fn serve_tls(&self, end: Arc<End>, greeted: GreetedTls) {
        let name = end.name().to_owned();
        tracing::info!(relay = name, resumed = greeted.resumed, "connected by TLS");
        let ended = over_tls::run(&end, greeted).await;
        let connects = end.connects.load(Ordering::Relaxed);
        let was_stopped = match ended {
            Ended::Stopped => true,
            Ended::Broken(error) => {
                tracing::warn!(relay = name, "disconnected: {error}");
                false
            }
        };
        self.await_return(end, connects, was_stopped).await;
    }

    /// Keeps the session for a while, so that it may be resumed, and then forgets it. A stopped
    /// session is forgotten at once.
    async fn await_return(&self, end: Arc<End>, connects: u64, was_stopped: bool) {
        let reason = if was_stopped {
            "the other relay was stopped, or its certificate is revoked"
        } else {
            tokio::time::sleep(self.config.session.grace).await;
            "no connection to the other relay"
        };
        if end.connects.load(Ordering::Relaxed) == connects {
            end.close(reason);
            self.bury(&end);
            self.lock()
                .retain(|_, served| !Arc::ptr_eq(&served.end, &end));
        }
    }

    async fn listen_for(&self, end: &Arc<End>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for (agent, method) in &self.listen_each {
            let method = with_name(method, end.name());
            match Listener::bind(&method, &self.config.target_security, Limits::default()).await {
                Err(error) => tracing::warn!(agent, "{error}"),
                Ok(listener) => drop(tasks.spawn(accept(end.clone(), agent.clone(), listener))),
            }
        }
        tasks
    }
}

/// Waits for one connection for each code point after the first.
async fn await_joins(
    carriers: &Carriers,
    joins: &mut mpsc::Receiver<Joined>,
) -> Result<Vec<Joined>, LinkError> {
    let wanted = &carriers.code_points()[1..];
    let mut joined = BTreeMap::new();
    while joined.len() < wanted.len() {
        let Some(join) = joins.recv().await else {
            return Err(LinkError::Stream("another connection took over".to_owned()));
        };
        if !wanted.contains(&join.dscp) {
            return Err(WireError("a join with a code point that the map does not have").into());
        }
        joined.insert(join.dscp, join);
    }
    // The greatest first.
    Ok(joined.into_values().rev().collect())
}

/// Carries every connection of `listener` through `end`.
async fn accept(end: Arc<End>, agent: String, mut listener: Listener) {
    loop {
        let connection = listener.accept().await;
        end.adopt(&agent, connection);
    }
}
