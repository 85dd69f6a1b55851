//! Runs the pure controller on real connections.
//!
//! Each connection is one task. It reads, splits frames, lets its [`control::session::Session`]
//! answer what must be answered at once, and writes. The application (a [`Clustered`] controller,
//! for all connections) runs on a thread of its own. It sees only the messages that the sessions
//! deliver, through a bounded inbox. A slow or stuck application therefore delays no hello, echo or
//! error: these never leave the connection's task.
//!
//! Each connection also has its [`control::edge::Edge`]: packet-ins that it can answer never leave
//! the task either. It answers them in the buffer that they were read into.
//!
//! A task works in turns. In one turn it reads the bytes that have arrived, takes all whole
//! messages, writes the answers, and hands over the messages for the application, each with one
//! call. The buffers for a turn belong to the thread: a connection holds only bytes that had to
//! wait.
//!
//! The bounds of one connection:
//!
//! | what | bound | at the bound |
//! | --- | --- | --- |
//! | bytes read and not yet taken | 64 KiB and one message; none when idle | no reads |
//! | bytes of one turn | 64 KiB | the thread serves its next connection |
//! | messages of one turn | 1024 packet-ins at the edge or 16 others | the same |
//! | packet-ins for the application | [`DriverConfig::packet_in_rate_max`] | pauses 1 ms, counted |
//! | packet-ins at once | a twentieth of that rate | the same |
//! | packet-ins in the inbox | [`InboxConfig::packet_ins_max`], 4 MiB | sheds and counts (1) |
//! | other messages in the inbox | [`InboxConfig::messages_max`], and one turn's | no reads (2) |
//! | handed to a stuck transport | 4 KiB at a time, and its own buffer | the rest waits (3) |
//! | unwritten to a stuck peer | 256 KiB | slow reads: 32 messages in 10 ms (4) |
//! | answers of the session | 64 KiB | no reads until they are written |
//! | answers of the edge | 256 KiB | the same |
//! | messages of the application | 4 MiB | the connection is closed: its peer does not read |
//! | bytes the peer does not take | 10 s | the connection is closed |
//!
//! 1. The inbox sheds the oldest packet-in of the fullest port.
//! 2. Until there is room.
//! 3. The queues of the policy map hold the rest.
//! 4. The peer's packet-ins would only add to the unwritten bytes.
//!
//! Above 1 MiB of unwritten messages the connection sheds its packet-ins: each would add to them.
//!
//! [`databases`] connects to the switches' databases, each through an [`ovsdb::Client`], and keeps
//! the operator's queues in them. [`guests`] dials other controllers that see switches through this
//! one. [`reconnect`] computes when to dial again after a connection is lost.

mod connection;
pub mod databases;
pub mod guests;
mod line;
mod outbox;
mod output;
pub mod ovsdb;
mod policy;
pub mod reconnect;
mod share;
mod shared;
mod thread;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::Instant;
use control::ConnectionId;
use control::clustered::Clustered;
use control::controller::{Admission, ControllerOutput, Event, PeerIdentity, RefusedReason};
use control::edge::EdgeCounters;
use control::histogram::Histogram;
use control::inbox::{ClassCounters, InboxConfig, InboxCounters};
use control::session::{CloseReason, SessionConfig, SessionCounters, SwitchUp};
use openflow::{DatapathId, Frame, FrameError, Version};
use sched::PolicyMap;
use sched::policy::QUEUES_MAX;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use line::Line;
use net::clock::Clock;
use net::transport::{self, Connection, Listener};
use net::workers;
use shared::Shared;

pub use outbox::OUTBOX_BYTES_MAX;
pub use policy::PolicyView;

/// Takes a lock, poisoned or not. Code under the driver's locks does not panic on a peer's input.
/// If it ever did, a poisoned lock would end every connection instead of one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The application behind the driver. The product uses [`Clustered`]; tests have others.
pub trait Application: Send + 'static {
    fn handle_up(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        up: SwitchUp,
        peer: PeerIdentity,
    ) -> Admission;
    fn handle_frame(&mut self, now: Instant, connection: ConnectionId, frame: Frame);
    fn handle_down(&mut self, now: Instant, connection: ConnectionId);
    fn handle_timeout(&mut self, now: Instant);
    fn poll_output(&mut self) -> Option<ControllerOutput>;
    fn poll_timeout(&self) -> Option<(Instant, &'static str)>;

    /// Repairs the state after another method has panicked and the driver has caught the panic. In
    /// any case the driver closes the connection whose message was being handled.
    fn handle_panicked(&mut self, now: Instant) {
        let _ = now;
    }
}

impl Application for Clustered {
    fn handle_up(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        up: SwitchUp,
        peer: PeerIdentity,
    ) -> Admission {
        Clustered::handle_up(self, now, connection, up, peer)
    }

    fn handle_frame(&mut self, now: Instant, connection: ConnectionId, frame: Frame) {
        Clustered::handle_frame(self, now, connection, frame);
    }

    fn handle_down(&mut self, now: Instant, connection: ConnectionId) {
        Clustered::handle_down(self, now, connection);
    }

    fn handle_timeout(&mut self, now: Instant) {
        Clustered::handle_timeout(self, now);
    }

    fn poll_output(&mut self) -> Option<ControllerOutput> {
        Clustered::poll_output(self)
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        Clustered::poll_timeout(self)
    }

    fn handle_panicked(&mut self, now: Instant) {
        Clustered::handle_panicked(self, now);
    }
}

#[derive(Clone, Debug)]
pub struct DriverConfig {
    pub session: SessionConfig,
    pub inbox: InboxConfig,
    /// The greatest number of packet-ins of one connection that the application receives a second.
    pub packet_in_rate_max: u32,
    /// The order in which waiting messages are sent and processed.
    pub policy: PolicyMap,
    /// The only datapaths that may connect; `None` for any.
    pub allowed: Option<BTreeSet<DatapathId>>,
    /// The seed of the first xid of each session.
    pub seed: u64,
    /// The time within which both directions of a connection must reach the end of a message for
    /// the connection to be kept ([`Driver::stop_and_keep`]).
    pub winding_up_max: Duration,
}

impl Default for DriverConfig {
    fn default() -> DriverConfig {
        DriverConfig {
            session: SessionConfig::default(),
            inbox: InboxConfig::default(),
            packet_in_rate_max: 200_000,
            policy: PolicyMap::auster(),
            allowed: None,
            seed: 0,
            winding_up_max: Duration::from_millis(200),
        }
    }
}

/// An event, for logs.
#[derive(Clone, Debug)]
pub enum Notice {
    /// An event that the application reports.
    Event(Event),
    /// The number of hosts learned in addition to those that events name.
    HostsLearned(u64),
    /// A connection's switch was admitted.
    Up {
        connection: ConnectionId,
        datapath_id: DatapathId,
        version: Version,
        peer: transport::PeerIdentity,
        /// Whether [`Notice::Aside`] was sent before.
        was_aside: bool,
    },
    /// Another controller serves a connection's switch. [`Notice::Up`] may be sent again.
    Aside {
        connection: ConnectionId,
        datapath_id: DatapathId,
    },
    /// A connection has ended, whether or not its switch ever was up.
    Down {
        connection: ConnectionId,
        datapath_id: Option<DatapathId>,
        /// Whether [`Notice::Up`] was sent before.
        was_up: bool,
        peer: transport::PeerIdentity,
        reason: Ended,
    },
}

/// Why a connection has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    Session(CloseReason),
    /// The peer closed it.
    Peer,
    Io(io::ErrorKind),
    Framing(FrameError),
    Refused(RefusedReason),
    /// The datapath is not in [`DriverConfig::allowed`].
    NotAllowed(DatapathId),
    /// [`OUTBOX_BYTES_MAX`] is reached.
    NotReading,
    /// The peer took no byte for ten seconds.
    Stalled,
    /// The peer's certificate was revoked while it was connected.
    Revoked,
    /// The connection's task panicked.
    Panicked,
    Stopped,
    /// The connection stays open without this process: see [`Driver::stop_and_keep`].
    Kept,
}

/// A connection that stays open without this process. Both directions are at the end of a message.
#[derive(Debug)]
pub struct Kept {
    pub version: Version,
    pub socket: TcpStream,
}

impl Ended {
    /// Whether auster turned away a peer that speaks OpenFlow and whose switch was not up yet.
    /// A stranger who finds an open port sends nothing, or something other than OpenFlow.
    pub fn is_refusal(&self) -> bool {
        match self {
            Ended::Session(reason) => !matches!(
                reason,
                CloseReason::NotHello(_)
                    | CloseReason::HelloTimeout
                    | CloseReason::MessageTimeout
                    | CloseReason::EchoTimeout
                    | CloseReason::ProbeTimeout
            ),
            Ended::Refused(_) | Ended::NotAllowed(_) | Ended::Panicked => true,
            Ended::Peer
            | Ended::Io(_)
            | Ended::Framing(_)
            | Ended::NotReading
            | Ended::Stalled
            | Ended::Revoked
            | Ended::Stopped
            | Ended::Kept => false,
        }
    }

    /// One word for counters.
    pub fn name(&self) -> &'static str {
        match self {
            Ended::Session(reason) => match reason {
                CloseReason::HelloTimeout => "hello_timeout",
                CloseReason::FeaturesTimeout => "features_timeout",
                CloseReason::MessageTimeout => "message_timeout",
                CloseReason::EchoTimeout => "echo_timeout",
                CloseReason::ProbeTimeout => "probe_timeout",
                CloseReason::Malformed { .. } => "malformed",
                CloseReason::VersionMismatch { .. } => "version_mismatch",
                CloseReason::TooManyPorts => "too_many_ports",
                _ => "session",
            },
            Ended::Peer => "closed_by_peer",
            Ended::Io(_) => "io",
            Ended::Framing(_) => "framing",
            Ended::Refused(RefusedReason::TooManyPorts) => "too_many_ports",
            Ended::Refused(RefusedReason::Fault) | Ended::Panicked => "panicked",
            Ended::Refused(_) => "refused",
            Ended::NotAllowed(_) => "not_allowed",
            Ended::NotReading => "not_reading",
            Ended::Stalled => "stalled",
            Ended::Revoked => "revoked",
            Ended::Stopped => "stopped",
            Ended::Kept => "kept",
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Session(reason) => reason.fmt(f),
            Ended::Peer => f.write_str("closed by the peer"),
            Ended::Io(kind) => kind.fmt(f),
            Ended::Framing(error) => write!(f, "not OpenFlow: {error}"),
            Ended::Refused(reason) => reason.fmt(f),
            Ended::NotAllowed(id) => write!(f, "{id} is not among the allowed datapaths"),
            Ended::NotReading => f.write_str("the peer does not read what it is sent"),
            Ended::Stalled => f.write_str("the peer took no byte for 10 s"),
            Ended::Revoked => f.write_str("its certificate is revoked"),
            Ended::Panicked => f.write_str("a fault of auster while it was served"),
            Ended::Stopped => f.write_str("auster stops"),
            Ended::Kept => f.write_str("auster stops and leaves the connection to the next"),
        }
    }
}

/// One connection, for status.
#[derive(Clone, Debug)]
pub struct ConnectionView {
    pub id: ConnectionId,
    pub peer: transport::PeerIdentity,
    /// The datapath id, once the switch has sent its features.
    pub datapath_id: Option<DatapathId>,
    pub version: Option<Version>,
    /// Whether the application serves the switch.
    pub is_admitted: bool,
    /// Whether another controller serves the switch, and auster stands by.
    pub is_aside: bool,
    pub session: SessionCounters,
    /// The messages answered in the connection's task, without the application.
    pub edge: EdgeCounters,
    /// The messages of session, application and edge together.
    pub messages_sent: u64,
    pub echo_rtt: Option<Duration>,
    pub inbox_backlog: usize,
    pub outbox_bytes: usize,
    pub packet_ins_shed: u64,
    /// Packet-ins shed because the switch did not read the messages sent to it.
    pub packet_ins_shed_unread: u64,
    /// Packets for the switch that were dropped because the switch read too slowly.
    pub packet_outs_shed: u64,
    /// Replies to barriers that were not sent to the switch; they are dropped.
    pub replies_unasked: u64,
    /// The number of 1 ms pauses in reading because of [`DriverConfig::packet_in_rate_max`].
    pub rests: u64,
}

/// A running application and the connections it serves.
pub struct Driver<A> {
    shared: Arc<Shared>,
    /// The settings of new connections.
    config: Mutex<Arc<DriverConfig>>,
    asks: std::sync::mpsc::SyncSender<Ask<A>>,
    thread_ended: watch::Receiver<()>,
    next_id: Arc<AtomicU64>,
}

/// A question that is put again until it returns true: then the answer is complete.
type Ask<A> = Box<dyn FnMut(&mut A) -> bool + Send>;

/// Questions that may wait for the application thread.
const ASKS_MAX: usize = 64;
/// The interval at which [`Driver::hold`] checks whether everything has been taken.
const HOLD_LOOK: Duration = Duration::from_millis(1);
/// Notices that may wait to be read; the rest are lost and counted.
const NOTICES_MAX: usize = 4096;

impl<A: Application> Driver<A> {
    /// Starts the application's thread.
    pub fn start(
        application: A,
        clock: Clock,
        config: DriverConfig,
    ) -> io::Result<(Driver<A>, mpsc::Receiver<Notice>)> {
        let (notices, notices_receiver) = mpsc::channel(NOTICES_MAX);
        let shared = Arc::new(Shared::new(
            clock,
            config.inbox,
            config.policy.clone(),
            config.session.probe_timeout,
            notices,
        ));
        shared.set_allowed(config.allowed.clone());
        let (asks, asked) = std::sync::mpsc::sync_channel(ASKS_MAX);
        let (ended, thread_ended) = watch::channel(());
        let for_thread = shared.clone();
        std::thread::Builder::new()
            .name("application".to_owned())
            .spawn(move || {
                // Also dropped when the application panics, so the end is always seen.
                let _ended = ended;
                thread::run(application, &for_thread, &asked);
            })?;
        let driver = Driver {
            shared,
            config: Mutex::new(Arc::new(config)),
            asks,
            thread_ended,
            next_id: Arc::default(),
        };
        Ok((driver, notices_receiver))
    }

    /// Serves one connection in a task of its own, on its worker if it has one.
    pub fn serve(&self, connection: Connection) -> (ConnectionId, JoinHandle<()>) {
        self.serve_from(connection, None)
    }

    /// Serves a connection that another process has kept and that already speaks `version`.
    pub fn serve_kept(
        &self,
        connection: Connection,
        version: Version,
    ) -> (ConnectionId, JoinHandle<()>) {
        self.serve_from(connection, Some(version))
    }

    fn serve_from(
        &self,
        connection: Connection,
        resumed: Option<Version>,
    ) -> (ConnectionId, JoinHandle<()>) {
        let id = ConnectionId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let calls = connection.place.as_ref().map(|place| place.calls().clone());
        let line = Line::new(id, connection.peer.clone(), calls);
        self.shared.add(&line);
        let runtime = workers::runtime_of(connection.place.as_ref());
        let config = lock(&self.config).clone();
        let task = connection::run(self.shared.clone(), config, line, resumed, connection);
        (id, runtime.spawn(task))
    }

    /// Serves whatever `listener` accepts, until the task is aborted.
    pub fn serve_listener(self: &Arc<Self>, mut listener: Listener) -> JoinHandle<()> {
        let driver = self.clone();
        tokio::spawn(async move {
            loop {
                let connection = listener.accept().await;
                driver.serve(connection);
            }
        })
    }

    /// Asks the application a question, between two messages. Returns `None` when the application
    /// has ended or too many questions wait.
    pub async fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut A) -> R + Send + 'static,
    ) -> Option<R> {
        let mut question = Some(question);
        self.ask_in_parts(move |application| question.take().map(|once| once(application)))
            .await
    }

    /// Asks a question that takes long: the driver puts it again until it returns an answer, and
    /// takes messages from switches in between.
    pub async fn ask_in_parts<R: Send + 'static>(
        &self,
        mut question: impl FnMut(&mut A) -> Option<R> + Send + 'static,
    ) -> Option<R> {
        let (sender, answer) = oneshot::channel();
        let mut sender = Some(sender);
        let ask: Ask<A> = Box::new(move |application| {
            let Some(found) = question(application) else {
                return false;
            };
            if let Some(sender) = sender.take() {
                let _ = sender.send(found);
            }
            true
        });
        self.asks.try_send(ask).ok()?;
        self.shared.ask();
        answer.await.ok()
    }

    /// Every connection, set up or not.
    pub fn connections(&self) -> Vec<ConnectionView> {
        self.shared.views()
    }

    pub fn connection_count(&self) -> usize {
        self.shared.connection_count()
    }

    /// The inbox's counters, by queue of the policy map.
    pub fn inbox_class_counters(&self) -> [ClassCounters; QUEUES_MAX] {
        self.shared.inbox_class_counters()
    }

    pub fn inbox_counters(&self) -> InboxCounters {
        self.shared.inbox_counters()
    }

    /// The round trips of echoes since the start, of all connections.
    pub fn echoes(&self) -> Histogram {
        self.shared.echoes()
    }

    /// Connections that have ended, by [`Ended::name`].
    pub fn ends(&self) -> BTreeMap<&'static str, u64> {
        self.shared.ends()
    }

    /// Puts another policy map into use: connections sort by it from their next turn on. Waiting
    /// messages keep their queue.
    pub fn set_policy(&self, map: PolicyMap) {
        self.shared.policy.replace(map);
    }

    /// Sets the only datapaths that may connect, `None` for any. Connections of other datapaths
    /// end.
    pub fn set_allowed(&self, allowed: Option<BTreeSet<DatapathId>>) {
        self.shared.set_allowed(allowed);
    }

    /// Applies other session settings to new connections, and other inbox limits at once. The
    /// policy map, the allowed datapaths and the seed stay unchanged.
    pub fn set_sessions(&self, other: &DriverConfig) {
        self.shared.set_inbox(other.inbox);
        let mut config = lock(&self.config);
        *config = Arc::new(DriverConfig {
            session: other.session.clone(),
            inbox: other.inbox,
            packet_in_rate_max: other.packet_in_rate_max,
            ..(**config).clone()
        });
    }

    /// Asks a connection to write its queued messages, and to close.
    pub fn end(&self, connection: ConnectionId) {
        self.shared.end(connection);
    }

    /// The policy map in use, with its counters.
    pub fn policy(&self) -> PolicyView {
        self.shared.policy.view()
    }

    /// Notices that nobody read in time.
    pub fn notices_lost(&self) -> u64 {
        self.shared.notices_lost()
    }

    /// Asks every connection to write its queued messages, and to close.
    pub fn stop(&self) {
        self.shared.stop(&Ended::Stopped);
    }

    /// Stops reading from all connections. Waits until the application has taken all messages read
    /// so far, or for `wait`.
    pub async fn hold(&self, wait: Duration) {
        self.shared.hold();
        let taken = async {
            while !self.shared.is_all_taken() {
                tokio::time::sleep(HOLD_LOOK).await;
            }
            // The application may still be working on the last message.
            self.ask(|_| ()).await;
        };
        let _ = tokio::time::timeout(wait, taken).await;
    }

    /// Asks every connection to write its queued messages, and to close, except plain TCP
    /// connections whose switches are served. These stay open, and [`Driver::kept`] returns them
    /// when [`Driver::ended`] has resolved.
    pub fn stop_and_keep(&self) {
        self.shared.stop(&Ended::Kept);
    }

    /// Takes the connections that stay open without this process. Each is returned once.
    pub fn kept(&self) -> Vec<Kept> {
        self.shared.kept()
    }
}

impl<A> Driver<A> {
    /// Resolves when the application's thread has ended: after [`Driver::stop`], or by a panic.
    pub async fn ended(&self) {
        // Nothing is ever sent: the sender is dropped when the thread ends.
        let _ = self.thread_ended.clone().changed().await;
    }
}

impl<A> Drop for Driver<A> {
    /// Does not wait: an application that is stuck must not hold up the end of the process.
    fn drop(&mut self) {
        self.shared.stop(&Ended::Stopped);
    }
}
