//! Runs the pure controller on real connections.
//!
//! Each connection is one task: it reads, splits frames, lets its [`control::session::Session`]
//! answer what must be answered at once, and writes. The application (a [`Controller`], for all
//! connections) runs on a thread of its own and sees only what the sessions deliver, through a
//! bounded inbox. So an application that is slow, or stuck, delays no hello, echo or error: they
//! never leave the connection's task.
//!
//! What is bounded, for one connection:
//!
//! | what | bound | at the bound |
//! | --- | --- | --- |
//! | read buffer | one message, 64 KiB; 2 KiB when idle | – |
//! | packet-ins for the application | [`InboxConfig::packet_ins_max`] | the oldest of the fullest port is shed and counted |
//! | other messages for it | [`InboxConfig::messages_max`] | the connection is not read until there is room |
//! | answers of the session | 64 KiB | the connection is not read until they are written |
//! | messages of the application | 4 MiB | the connection is closed: its peer does not read |
//! | bytes the peer does not take | 10 s | the connection is closed |
//!
//! Above 1 MiB of unwritten messages its packet-ins are shed already: each would add to them.

mod connection;
mod outbox;
mod shared;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use control::ConnectionId;
use control::controller::{
    Admission, Controller, ControllerOutput, Event, PeerIdentity, PeerRole, RefusedReason,
};
use control::inbox::{InboxConfig, InboxCounters};
use control::session::{CloseReason, SessionConfig, SessionCounters, SwitchUp};
use openflow::time::Instant;
use openflow::{DatapathId, Frame, FrameError, Version};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::tls::Role;
use crate::transport::{self, Connection, Listener};
use crate::workers;
use shared::{Line, News, Shared, Work};

pub use outbox::OUTBOX_BYTES_MAX;

/// What the driver drives. [`Controller`] is the one; tests have others.
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
}

impl Application for Controller {
    fn handle_up(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        up: SwitchUp,
        peer: PeerIdentity,
    ) -> Admission {
        Controller::handle_up(self, now, connection, up, peer)
    }

    fn handle_frame(&mut self, now: Instant, connection: ConnectionId, frame: Frame) {
        Controller::handle_frame(self, now, connection, frame);
    }

    fn handle_down(&mut self, now: Instant, connection: ConnectionId) {
        Controller::handle_down(self, now, connection);
    }

    fn handle_timeout(&mut self, now: Instant) {
        Controller::handle_timeout(self, now);
    }

    fn poll_output(&mut self) -> Option<ControllerOutput> {
        Controller::poll_output(self)
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        Controller::poll_timeout(self)
    }
}

#[derive(Clone, Debug, Default)]
pub struct DriverConfig {
    pub session: SessionConfig,
    pub inbox: InboxConfig,
    /// The only datapaths that may connect; `None` for any.
    pub allowed: Option<BTreeSet<DatapathId>>,
    /// For the first xid of each session.
    pub seed: u64,
}

/// What happened, for logs.
#[derive(Clone, Debug)]
pub enum Notice {
    /// The application says so.
    Event(Event),
    /// A connection's switch was admitted.
    Up {
        connection: ConnectionId,
        datapath_id: DatapathId,
        version: Version,
        peer: transport::PeerIdentity,
    },
    /// A connection has ended, whether or not its switch ever was up.
    Down {
        connection: ConnectionId,
        datapath_id: Option<DatapathId>,
        /// It had been [`Notice::Up`].
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
    /// Not in [`DriverConfig::allowed`].
    NotAllowed(DatapathId),
    /// [`OUTBOX_BYTES_MAX`] is reached.
    NotReading,
    /// The peer took no byte for ten seconds.
    Stalled,
    Stopped,
}

impl Ended {
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
                _ => "session",
            },
            Ended::Peer => "closed_by_peer",
            Ended::Io(_) => "io",
            Ended::Framing(_) => "framing",
            Ended::Refused(_) => "refused",
            Ended::NotAllowed(_) => "not_allowed",
            Ended::NotReading => "not_reading",
            Ended::Stalled => "stalled",
            Ended::Stopped => "stopped",
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
            Ended::Stopped => f.write_str("auster stops"),
        }
    }
}

/// One connection, for status.
#[derive(Clone, Debug)]
pub struct ConnectionView {
    pub id: ConnectionId,
    pub peer: transport::PeerIdentity,
    /// Known once its switch has told its features.
    pub datapath_id: Option<DatapathId>,
    pub version: Option<Version>,
    /// The application serves it.
    pub is_admitted: bool,
    pub session: SessionCounters,
    pub messages_sent: u64,
    pub echo_rtt: Option<Duration>,
    pub inbox_backlog: usize,
    pub outbox_bytes: usize,
    pub packet_ins_shed: u64,
    /// Packet-ins shed because the switch did not read what it was sent.
    pub packet_ins_shed_unread: u64,
}

/// A running application and the connections it serves.
pub struct Driver<A> {
    shared: Arc<Shared>,
    config: Arc<DriverConfig>,
    asks: std::sync::mpsc::SyncSender<Ask<A>>,
    thread_ended: watch::Receiver<()>,
    next_id: Arc<AtomicU64>,
}

type Ask<A> = Box<dyn FnOnce(&A) + Send>;

/// Questions that may wait for the application thread.
const ASKS_MAX: usize = 64;
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
        let shared = Arc::new(Shared::new(clock, config.inbox, notices));
        let (asks, asked) = std::sync::mpsc::sync_channel(ASKS_MAX);
        let (ended, thread_ended) = watch::channel(());
        let for_thread = shared.clone();
        std::thread::Builder::new()
            .name("application".to_owned())
            .spawn(move || {
                // Dropped, and so seen, also when the application panics.
                let _ended = ended;
                run_application(application, &for_thread, &asked);
            })?;
        let driver = Driver {
            shared,
            config: Arc::new(config),
            asks,
            thread_ended,
            next_id: Arc::default(),
        };
        Ok((driver, notices_receiver))
    }

    /// Serves one connection in a task of its own, on its worker if it has one.
    pub fn serve(&self, connection: Connection) -> (ConnectionId, JoinHandle<()>) {
        let id = ConnectionId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let line = Line::new(id, connection.peer.clone());
        self.shared.add(&line);
        let runtime = workers::runtime_of(connection.place.as_ref());
        let task = connection::run(self.shared.clone(), self.config.clone(), line, connection);
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

    /// Asks the application, between two of its messages. `None` when it has ended or too many
    /// questions wait.
    pub async fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&A) -> R + Send + 'static,
    ) -> Option<R> {
        let (sender, answer) = oneshot::channel();
        let ask: Ask<A> = Box::new(move |application| {
            let _ = sender.send(question(application));
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

    pub fn inbox_counters(&self) -> InboxCounters {
        self.shared.inbox_counters()
    }

    /// Notices that nobody read in time.
    pub fn notices_lost(&self) -> u64 {
        self.shared.notices_lost()
    }

    /// Asks every connection to write what is queued, and to close.
    pub fn stop(&self) {
        self.shared.stop();
    }
}

impl<A> Driver<A> {
    /// Resolves when the application's thread has ended: after [`Driver::stop`], or by a panic.
    pub async fn ended(&self) {
        // Nothing is ever sent: the sender goes with the thread.
        let _ = self.thread_ended.clone().changed().await;
    }
}

impl<A> Drop for Driver<A> {
    /// Does not wait: an application that is stuck must not hold up the end of the process.
    fn drop(&mut self) {
        self.shared.stop();
    }
}

fn run_application<A: Application>(
    mut application: A,
    shared: &Shared,
    asked: &std::sync::mpsc::Receiver<Ask<A>>,
) {
    let mut admitted = BTreeSet::new();
    loop {
        let due = application.poll_timeout().map(|(due, _)| due);
        let work = shared.next(due);
        let now = shared.clock.now();
        match work {
            Work::News(News::Up(line, up)) => {
                if admit(&mut application, shared, now, &line, *up) {
                    admitted.insert(line.id);
                }
            }
            Work::News(News::Down(id, ticket)) => {
                if admitted.remove(&id) {
                    application.handle_down(now, id);
                }
                drop(ticket);
            }
            Work::Frame(delivery) => {
                if admitted.contains(&delivery.connection) {
                    application.handle_frame(now, delivery.connection, delivery.frame);
                }
            }
            Work::Asked => {
                while let Ok(question) = asked.try_recv() {
                    question(&application);
                }
            }
            Work::Timeout => application.handle_timeout(now),
            Work::Stop => return,
        }
        while let Some(output) = application.poll_output() {
            carry_out(shared, output);
        }
    }
}

fn admit(
    application: &mut impl Application,
    shared: &Shared,
    now: Instant,
    line: &Arc<Line>,
    up: SwitchUp,
) -> bool {
    let (datapath_id, version) = (up.features.datapath_id, up.version);
    match application.handle_up(now, line.id, up, identity(&line.peer)) {
        Admission::Admitted => {
            line.facts().is_admitted = true;
            shared.notify(Notice::Up {
                connection: line.id,
                datapath_id,
                version,
                peer: line.peer.clone(),
            });
            true
        }
        Admission::Refused(reason) => {
            line.outbox.end(Ended::Refused(reason));
            false
        }
    }
}

fn carry_out(shared: &Shared, output: ControllerOutput) {
    match output {
        ControllerOutput::Send { connection, frame } => {
            if let Some(line) = shared.line(connection) {
                line.outbox.push(frame);
            }
        }
        ControllerOutput::Close { connection, reason } => {
            if let Some(line) = shared.line(connection) {
                line.outbox.end(Ended::Refused(reason));
            }
        }
        ControllerOutput::Probe { connection } => {
            if let Some(line) = shared.line(connection) {
                line.outbox.probe();
            }
        }
        ControllerOutput::Edge { connection, update } => {
            if let Some(line) = shared.line(connection) {
                line.outbox.tell_edge(update);
            }
        }
        ControllerOutput::Event(event) => shared.notify(Notice::Event(event)),
    }
}

fn identity(peer: &transport::PeerIdentity) -> PeerIdentity {
    PeerIdentity {
        dpid: peer.datapath_id,
        role: match peer.role {
            None => PeerRole::Unknown,
            Some(Role::Switch) => PeerRole::Switch,
            Some(Role::Controller) => PeerRole::Controller,
        },
    }
}
