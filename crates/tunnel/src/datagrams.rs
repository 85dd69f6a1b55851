//! Sockets of agents that speak UDP, and their datagrams between two ends. Datagrams travel in
//! QUIC's DATAGRAM frames, which nothing waits for. A datagram too long for these gets a stream of
//! its own. Over TLS, datagrams are frames. Those that cannot be sent are dropped and counted.
//!
//! QUIC sends datagrams before streams, whatever they are. Therefore QUIC gets only a few KiB at a
//! time, chosen by class, and the other datagrams wait here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use clock::Instant;
use quinn::{RecvStream, SendDatagramError};
use relay::datagrams::{
    AgentDatagram, Numbers, PAYLOAD_BYTES_MAX, PEERS_MAX, PeerId, Recent, Waiting,
};
use relay::{Kind, Side, WireError};
use sched::Lane;
use tokio::net::{UdpSocket, lookup_host};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::Target;
use super::carriers::Lanes;
use super::end::{End, State};
use super::link::{self, LinkError};
use net::advice::bind_problem;
use net::method::UdpMethod;

/// The first byte of a stream that is one datagram.
const STREAM_TYPE: u8 = 2;
/// Maximum size of a datagram with its header.
const DATAGRAM_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 1024;
/// Maximum number of datagrams of one connection that are on streams of their own and not
/// acknowledged.
const LONG_MAX: usize = 64;
/// The greatest number of datagrams from one peer that its socket has not sent yet.
const UNSENT_MAX: usize = 64;
const LOOKUP_TIME_MAX: Duration = Duration::from_secs(5);

/// Datagram counters of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramStatus {
    /// Known local peers, and sockets for peers of the other end.
    pub peers: usize,
    pub sockets: usize,
    /// Datagrams taken from local sockets.
    pub taken: u64,
    pub taken_bytes: u64,
    /// Datagrams sent to local sockets.
    pub given: u64,
    pub given_bytes: u64,
    /// Datagrams sent to the other end, and those among them that needed a stream.
    pub sent: u64,
    pub by_stream: u64,
    pub waiting: usize,
    /// Peers evicted for others before they timed out.
    pub evicted: u64,
    pub dropped: Dropped,
}

/// Dropped datagrams by reason; each is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// There was no connection to the other end, or it ended.
    pub disconnected: u64,
    /// The other end's version does not support datagrams.
    pub unwanted: u64,
    /// Too much waited for the connection.
    pub overflowed: u64,
    /// Too long for a DATAGRAM frame, while the maximum number was already on streams.
    pub too_long: u64,
    /// Datagrams of an agent that has no target here.
    pub no_target: u64,
    /// Answers for a peer that is forgotten.
    pub late: u64,
    /// The local socket did not accept the datagram, or too many waited for the socket.
    pub unsent: u64,
}

/// A local socket that receives an agent's datagrams.
pub struct DatagramListener {
    socket: Arc<UdpSocket>,
    buffer: Vec<u8>,
    local: UdpMethod,
}

impl DatagramListener {
    /// Listens on `method`, a `pudp:` one.
    ///
    /// # Errors
    /// The reason for the failure, with the method.
    pub async fn bind(method: &UdpMethod) -> Result<DatagramListener, String> {
        let problem = |problem: String| format!("{method}: {problem}");
        let address = address_of(method).await.map_err(problem)?;
        let socket = UdpSocket::bind(address).await;
        let socket = socket.map_err(|error| problem(bind_problem(&error)))?;
        let port = socket
            .local_addr()
            .map_or(method.port, |local| local.port());
        Ok(DatagramListener {
            socket: Arc::new(socket),
            buffer: vec![0; PAYLOAD_BYTES_MAX],
            local: UdpMethod {
                port,
                ..method.clone()
            },
        })
    }

    /// Returns the method with the assigned port.
    pub fn local(&self) -> &UdpMethod {
        &self.local
    }

    /// Receives the next datagram, with the peer to answer.
    pub async fn recv(&mut self) -> (Bytes, LocalPeer) {
        loop {
            // Errors belong to earlier answers that nobody received.
            if let Ok((len, address)) = self.socket.recv_from(&mut self.buffer).await {
                let peer = LocalPeer {
                    socket: self.socket.clone(),
                    address,
                };
                return (Bytes::copy_from_slice(&self.buffer[..len]), peer);
            }
        }
    }
}

/// The local peer that sent a datagram, and our socket that received it.
#[derive(Clone, Debug)]
pub struct LocalPeer {
    socket: Arc<UdpSocket>,
    address: SocketAddr,
}

impl LocalPeer {
    fn key(&self) -> (usize, SocketAddr) {
        (Arc::as_ptr(&self.socket) as usize, self.address)
    }
}

impl PartialEq for LocalPeer {
    fn eq(&self, other: &LocalPeer) -> bool {
        self.key() == other.key()
    }
}

impl Eq for LocalPeer {}

impl PartialOrd for LocalPeer {
    fn partial_cmp(&self, other: &LocalPeer) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LocalPeer {
    fn cmp(&self, other: &LocalPeer) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// The datagrams of one end. Its lock is taken under the session's, never around it.
pub(super) struct Datagrams {
    table: Mutex<Table>,
    /// Notifies that datagrams wait for the connection.
    pub waiting: Arc<Notify>,
    long: Arc<Semaphore>,
}

struct Table {
    peers: Numbers<LocalPeer>,
    sockets: Recent<PeerId, Socket>,
    waiting: Waiting,
    counts: DatagramStatus,
}

/// The socket that stands for a peer of the other end.
struct Socket {
    unsent: mpsc::Sender<Bytes>,
    task: AbortHandle,
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Datagrams {
    pub fn new(side: Side) -> Datagrams {
        Datagrams {
            table: Mutex::new(Table {
                peers: Numbers::new(side),
                sockets: Recent::new(PEERS_MAX),
                waiting: Waiting::default(),
                counts: DatagramStatus::default(),
            }),
            waiting: Arc::default(),
            long: Arc::new(Semaphore::new(LONG_MAX)),
        }
    }

    pub fn status(&self) -> DatagramStatus {
        let table = self.lock();
        let mut status = table.counts;
        status.peers = table.peers.len();
        status.sockets = table.sockets.len();
        status.waiting = table.waiting.len();
        status
    }

    /// Forgets peers that have been silent for long.
    pub fn handle_timeout(&self, now: Instant) {
        let mut table = self.lock();
        table.peers.handle_timeout(now);
        table.sockets.take_silent(now);
    }

    /// Drops the sockets of earlier peers: the other end has forgotten them, and its numbers now
    /// mean other peers.
    pub fn begin(&self) {
        self.lock().sockets = Recent::new(PEERS_MAX);
    }

    /// Drops the waiting datagrams, since there is no connection any more.
    pub fn handle_disconnected(&self) {
        let mut table = self.lock();
        let lost = table.waiting.clear() as u64;
        table.counts.dropped.disconnected += lost;
    }

    /// Takes the next datagram of a class that `is_wanted` accepts.
    pub fn pop(&self, is_wanted: impl Fn(Kind) -> bool) -> Option<(Kind, Bytes)> {
        let mut table = self.lock();
        let next = table.waiting.pop(is_wanted)?;
        table.counts.sent += 1;
        Some(next)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl End {
    /// Carries a datagram of `agent` to the other end, or drops and counts it.
    pub fn carry_datagram(self: &Arc<Self>, agent: &str, payload: Bytes, from: LocalPeer) {
        let peer = {
            let mut table = self.datagrams.lock();
            table.counts.taken += 1;
            table.counts.taken_bytes += payload.len() as u64;
            let (peer, evicted) = table.peers.number_of(self.now(), from);
            table.counts.evicted += evicted as u64;
            peer
        };
        let kind = self.config.session.class_of(agent);
        let agent = Some(agent.to_owned());
        self.send_datagram(
            kind,
            AgentDatagram {
                peer,
                agent,
                payload,
            },
        );
    }

    fn send_datagram(self: &Arc<Self>, kind: Kind, datagram: AgentDatagram) {
        let datagram = datagram.encode();
        self.with_state(|state| {
            let mut table = self.datagrams.lock();
            let Table {
                waiting, counts, ..
            } = &mut *table;
            let dropped = &mut counts.dropped;
            if !state.session.is_up() {
                dropped.disconnected += 1;
            } else if !state.session.peer_takes_datagrams() {
                dropped.unwanted += 1;
            } else if !waiting.push(kind, datagram) {
                dropped.overflowed += 1;
            } else {
                drop(table);
                self.transmit_datagrams(state, kind);
            }
        });
    }

    fn transmit_datagrams(self: &Arc<Self>, state: &mut State, kind: Kind) {
        let wait = self.wait_of(kind);
        if let Some(live) = &mut state.link {
            live.transmit_datagram(self, wait);
        }
        if let Some(tls) = &state.tls {
            tls.wake();
        }
    }

    /// Handles a datagram of the other end, for a local peer or for an agent.
    fn handle_datagram(self: &Arc<Self>, datagram: AgentDatagram) -> Result<(), WireError> {
        let AgentDatagram {
            peer,
            agent,
            payload,
        } = datagram;
        let now = self.now();
        let mut table = self.datagrams.lock();
        let Table {
            peers,
            sockets,
            counts,
            ..
        } = &mut *table;
        match (peers.is_own(peer), agent) {
            (true, None) => match peers.local_of(now, peer) {
                None => counts.dropped.late += 1,
                Some(local) => {
                    let sent = local.socket.try_send_to(&payload, local.address);
                    counts.count_given(sent.is_ok(), payload.len());
                }
            },
            (false, Some(agent)) => {
                if let Some(socket) = sockets.touch(now, &peer) {
                    let sent = socket.unsent.try_send(payload);
                    counts.dropped.unsent += u64::from(sent.is_err());
                    return Ok(());
                }
                let Some(Target::Datagrams(method)) = self.config.targets.get(&agent) else {
                    tracing::debug!(agent, "the other relay has nothing to send datagrams to");
                    counts.dropped.no_target += 1;
                    return Ok(());
                };
                let (unsent, taken) = mpsc::channel(UNSENT_MAX);
                let _ = unsent.try_send(payload);
                let class = self.config.session.class_of(&agent);
                let serves = serve(Arc::downgrade(self), method.clone(), class, peer, taken);
                let task = tokio::spawn(serves).abort_handle();
                let evicted = sockets.insert(now, peer, Socket { unsent, task });
                counts.evicted += u64::from(evicted.is_some());
            }
            (true, Some(_)) => return Err(WireError("a datagram under a number of ours")),
            (false, None) => return Err(WireError("an answer to nobody of ours")),
        }
        Ok(())
    }

    /// Handles a received datagram: one of an agent, or the copy of a record.
    pub(super) fn take_datagram(self: &Arc<Self>, bytes: Bytes) -> Result<(), WireError> {
        match AgentDatagram::take(bytes.clone())? {
            Some(datagram) => self.handle_datagram(datagram),
            None => self.with(|session| session.handle_copy(bytes)),
        }
    }
}

impl DatagramStatus {
    fn count_given(&mut self, is_sent: bool, len: usize) {
        match is_sent {
            true => {
                self.given += 1;
                self.given_bytes += len as u64;
            }
            false => self.dropped.unsent += 1,
        }
    }
}

/// Serves the socket of one peer of the other end, until the peer is forgotten.
async fn serve(
    end: Weak<End>,
    method: UdpMethod,
    class: Kind,
    peer: PeerId,
    mut taken: mpsc::Receiver<Bytes>,
) {
    let socket = match connect(&method).await {
        Ok(socket) => socket,
        Err(problem) => {
            tracing::warn!("{method}: {problem}");
            // The next datagram of this peer tries again.
            if let Some(end) = end.upgrade() {
                let mut table = end.datagrams.lock();
                taken.close();
                while taken.try_recv().is_ok() {
                    table.counts.dropped.unsent += 1;
                }
                table.sockets.remove(&peer);
            }
            return;
        }
    };
    let mut buffer = vec![0; PAYLOAD_BYTES_MAX];
    loop {
        tokio::select! {
            payload = taken.recv() => {
                let (Some(payload), Some(end)) = (payload, end.upgrade()) else { return };
                let sent = socket.send(&payload).await;
                end.datagrams.lock().counts.count_given(sent.is_ok(), payload.len());
            }
            came = socket.recv(&mut buffer) => {
                // An error means that nobody received an earlier datagram, which is normal for UDP.
                let Ok(len) = came else { continue };
                let Some(end) = end.upgrade() else { return };
                let payload = Bytes::copy_from_slice(&buffer[..len]);
                {
                    let mut table = end.datagrams.lock();
                    table.counts.taken += 1;
                    table.counts.taken_bytes += len as u64;
                    table.sockets.touch(end.now(), &peer);
                }
                end.send_datagram(class, AgentDatagram { peer, agent: None, payload });
            }
        }
    }
}

/// Makes a socket that receives only from the address of `method`.
async fn connect(method: &UdpMethod) -> Result<UdpSocket, String> {
    let address = address_of(method).await?;
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let connected = async {
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.connect(address).await?;
        Ok::<_, std::io::Error>(socket)
    };
    connected.await.map_err(|error| error.to_string())
}

async fn address_of(method: &UdpMethod) -> Result<SocketAddr, String> {
    let UdpMethod { host, port, .. } = method;
    if let Some(address) = host.socket_address(*port).map_err(|e| e.to_string())? {
        return Ok(address);
    }
    let unknown = |why: &dyn std::fmt::Display| format!("the name '{host}' has no address: {why}");
    let lookup = timeout(LOOKUP_TIME_MAX, lookup_host((host.to_string(), *port))).await;
    let found = lookup.map_err(|_| unknown(&"the resolver does not answer"))?;
    let mut found = found.map_err(|error| unknown(&error))?;
    found.next().ok_or_else(|| unknown(&"none found"))
}

impl State {
    /// The next datagram for `connection`.
    fn next_datagram(&self, end: &End, connection: &quinn::Connection) -> Option<(Kind, Bytes)> {
        let live = self.link.as_ref()?;
        let id = connection.stable_id();
        let is_here = |kind| {
            let dscp = self.session.code_point_of(kind);
            live.connection_of(dscp).stable_id() == id
        };
        end.datagrams.pop(is_here)
    }
}

/// Sends the waiting datagrams of this connection's classes, until the connection ends.
pub(super) async fn send(lanes: Lanes, connection: quinn::Connection) -> LinkError {
    let datagrams = &lanes.end.datagrams;
    loop {
        let mut more = std::pin::pin!(datagrams.waiting.notified());
        more.as_mut().enable();
        let next = lanes.with_state(|state| state.next_datagram(&lanes.end, &connection));
        let (kind, datagram) = match next {
            Err(error) => return error,
            Ok(Some(next)) => next,
            Ok(None) => {
                more.await;
                continue;
            }
        };
        let fits = |len_max: usize| datagram.len() <= len_max;
        if connection.max_datagram_size().is_some_and(fits) {
            // Waits while quinn has a few KiB that it could not send.
            match connection.send_datagram_wait(datagram.clone()).await {
                Ok(()) => continue,
                Err(SendDatagramError::ConnectionLost(error)) => return error.into(),
                // The path's largest packet has become smaller, or the other end takes none.
                Err(_) => {}
            }
        }
        send_long(&lanes, &connection, kind, datagram);
    }
}

fn send_long(lanes: &Lanes, connection: &quinn::Connection, kind: Kind, datagram: Bytes) {
    let datagrams = &lanes.end.datagrams;
    let Ok(slot) = datagrams.long.clone().try_acquire_owned() else {
        let counts = &mut datagrams.lock().counts;
        counts.sent -= 1;
        counts.dropped.too_long += 1;
        return;
    };
    datagrams.lock().counts.by_stream += 1;
    let connection = connection.clone();
    let priority = link::priority(Lane::STATE, kind, lanes.end.config.session.flow_lanes);
    tokio::spawn(async move {
        let _slot = slot;
        let sent = async {
            let mut send = connection.open_uni().await?;
            let _ = send.set_priority(priority);
            send.write_all(&[STREAM_TYPE]).await?;
            send.write_chunk(datagram).await?;
            let _ = send.finish();
            let _ = send.stopped().await;
            Ok::<(), LinkError>(())
        };
        if let Err(error) = sent.await {
            tracing::debug!(%error, "a long datagram was lost with its connection");
        }
    });
}

/// Handles the datagrams that arrive over `connection`, until the connection ends.
pub(super) async fn receive(lanes: Lanes, connection: quinn::Connection) -> LinkError {
    loop {
        let taken = match connection.read_datagram().await {
            Err(error) => return error.into(),
            Ok(datagram) => lanes.is_now().map(|()| lanes.end.take_datagram(datagram)),
        };
        match taken {
            Err(error) => return error,
            Ok(Err(error)) => return error.into(),
            Ok(Ok(())) => {}
        }
    }
}

/// Whether a stream that begins with `buf` is one datagram.
pub(super) fn is_long(buf: &BytesMut) -> bool {
    buf.first() == Some(&STREAM_TYPE)
}

/// Reads a stream that is one datagram to its end.
pub(super) async fn receive_long(
    lanes: &Lanes,
    mut recv: RecvStream,
    mut buf: BytesMut,
) -> Result<(), LinkError> {
    while let Some(chunk) = recv.read_chunk(DATAGRAM_BYTES_MAX, true).await? {
        if buf.len() + chunk.bytes.len() > DATAGRAM_BYTES_MAX {
            return Err(WireError("a datagram longer than UDP's").into());
        }
        buf.extend_from_slice(&chunk.bytes);
    }
    let datagram = AgentDatagram::take(buf.split_off(1).freeze())?;
    let datagram = datagram.ok_or(WireError("a stream of one datagram that is none"))?;
    lanes.is_now()?;
    Ok(lanes.end.handle_datagram(datagram)?)
}
