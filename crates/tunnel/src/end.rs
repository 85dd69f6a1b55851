//! One session with the tasks around it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use clock::Instant;
use relay::{
    Agent, Carriers, ChannelId, ChannelStatus, Event, Kind, Session, SessionId, Settings, Side,
};
use sched::PolicyMap;
use sched::policy::MapDigest;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time;

use super::carriers::Live;
use super::coalesce::{self, close_windows};
use super::copies::{Copier, CopyStatus};
use super::datagrams::Datagrams;
use super::early;
use super::over_tls::LiveTls;
use super::{EndConfig, EndStatus, OPENFLOW, Target, link, local};
use net::Pace;
use net::alarm::Alarm;
use net::clock::Clock;
use net::method::Method;
use net::transport::{self, Connection, Refusals, TransportKind};

/// The time that a target is dialled before its channel is given up. It is longer than a controller
/// takes to restart, and shorter than an inactivity probe.
const DIAL_TIME_MAX: Duration = Duration::from_secs(5);
const DIAL_PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of bytes that wait in memory between a channel and a target in this process.
const HAND_BUFFER_BYTES: usize = 64 * 1024;
/// The interval between two checks of deadlines that are seconds long.
const TICK: Duration = Duration::from_millis(100);

/// One end of a relay pair: a session and its local sockets.
pub struct End {
    pub(super) config: EndConfig,
    name: String,
    clock: Clock,
    state: Mutex<State>,
    /// Wakes the writer of the control stream.
    pub(super) control: Notify,
    /// Wakes the writer of the control stream if it has a report that may go with other packets.
    pub(super) rides: Notify,
    /// Notifies that a window was opened, or closes earlier.
    pub(super) window_opened: Arc<Notify>,
    pub(super) coalescing: coalesce::Counting,
    /// The copier, where anything is sent twice.
    pub(super) copier: Option<Copier>,
    pub(super) datagrams: Datagrams,
    pub(super) early: early::Counting,
    /// Notifies that the rate holds back queued messages.
    paced: Arc<Notify>,
    /// Wakes streams whose channel was not open yet.
    pub(super) opened: Notify,
    /// Notifies that a connection has begun a session unknown to the other end.
    pub(super) begun: Notify,
    /// Notifies that another map is in use.
    pub(super) mapped: Notify,
    /// Held while a connection is being driven.
    pub(super) link_turn: tokio::sync::Mutex<()>,
    pub(super) connects: AtomicU64,
    pub(super) resumptions: AtomicU64,
    pub(super) fallbacks: AtomicU64,
    pub(super) refusals: Refusals,
    closed: AtomicU64,
    /// Whether this end is closed for good.
    closing: watch::Sender<bool>,
    /// The map in use, for its followers, where messages are scheduled.
    pub(super) committed: Option<watch::Sender<Arc<PolicyMap>>>,
}

pub(super) struct State {
    pub session: Session,
    pub link: Option<Live>,
    /// The TLS connection in place of the link, where UDP does not get through.
    pub tls: Option<LiveTls>,
    channels: BTreeMap<ChannelId, Arc<Local>>,
    /// The other relay's address and name, when there is a connection.
    pub peer: String,
    /// The method by which the other relay was dialled last.
    pub relay: Option<Method>,
    pub failovers: u64,
    /// Waits for the outcome of a policy map.
    pub policy_outcome: Option<oneshot::Sender<Result<MapDigest, String>>>,
}

/// The local side of a channel.
#[derive(Default)]
pub(super) struct Local {
    pub deliver: Notify,
    pub room: Notify,
    /// `None` once the channel is closed.
    tasks: Mutex<Option<Vec<JoinHandle<()>>>>,
}

impl Local {
    fn new() -> Arc<Local> {
        Arc::new(Local {
            tasks: Mutex::new(Some(Vec::new())),
            ..Local::default()
        })
    }

    /// Runs `task` until the channel is closed, at most.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tasks) = tasks.as_mut() {
            tasks.push(tokio::spawn(task));
        }
    }

    fn close(&self) {
        let tasks = self
            .tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        tasks.into_iter().flatten().for_each(|task| task.abort());
    }
}

impl End {
    pub fn new(mut config: EndConfig, id: SessionId, name: &str) -> Arc<End> {
        let waits = config.scheduling.coalescing.get(Kind::Packet);
        config.session.shares_lanes |= !waits.is_zero();
        let copied = config
            .session
            .copied
            .iter()
            .any(|(_, is_copied)| *is_copied);
        let end = Arc::new(End {
            name: name.to_owned(),
            clock: Clock::start(),
            state: Mutex::new(State {
                session: session(&config, id),
                link: None,
                tls: None,
                channels: BTreeMap::new(),
                peer: name.to_owned(),
                relay: None,
                failovers: 0,
                policy_outcome: None,
            }),
            committed: config.scheduling.policy.clone().map(watch::Sender::new),
            datagrams: Datagrams::new(config.session.side),
            early: early::Counting::default(),
            config,
            control: Notify::new(),
            rides: Notify::new(),
            window_opened: Arc::default(),
            coalescing: coalesce::Counting::default(),
            copier: copied.then(Copier::new),
            paced: Arc::default(),
            opened: Notify::new(),
            begun: Notify::new(),
            mapped: Notify::new(),
            link_turn: tokio::sync::Mutex::new(()),
            connects: AtomicU64::new(0),
            resumptions: AtomicU64::new(0),
            fallbacks: AtomicU64::new(0),
            refusals: Refusals::default(),
            closed: AtomicU64::new(0),
            closing: watch::Sender::new(false),
        });
        tokio::spawn(End::tick(Arc::downgrade(&end)));
        let waits = &end.config.scheduling.coalescing;
        if waits.iter().any(|(_, wait)| !wait.is_zero()) {
            let opened = end.window_opened.clone();
            tokio::spawn(close_windows(Arc::downgrade(&end), opened));
        }
        if let Some(pace) = end.config.scheduling.pace.clone() {
            let paced = end.paced.clone();
            tokio::spawn(End::keep_pace(Arc::downgrade(&end), pace, paced));
        }
        end
    }

    /// Carries `connection` to the other end, under the name of its agent. Drops it when there are
    /// too many channels.
    pub fn adopt(self: &Arc<Self>, agent: &str, connection: Connection) {
        let kind = if agent == OPENFLOW {
            Agent::OpenFlow
        } else {
            Agent::Raw
        };
        let local = Local::new();
        let id = self.with_state(|state| {
            let id = state.session.open(kind, agent)?;
            state.channels.insert(id, local.clone());
            Some(id)
        });
        match id {
            None => tracing::warn!(agent, "too many channels: connection refused"),
            Some(id) => {
                tracing::info!(
                    agent,
                    channel = id.0,
                    peer = connection.peer.address,
                    "accepted"
                );
                self.attach(id, &local, connection);
            }
        }
    }

    pub fn status(self: &Arc<Self>) -> EndStatus {
        self.with_state(|state| {
            let connection = state.link.as_ref().map(|live| &live.connection);
            let tls = state.tls.as_ref();
            // In this order: a connection counts itself before it counts as a resumption.
            let resumptions = self.resumptions.load(Ordering::Relaxed);
            let connects = self.connects.load(Ordering::Relaxed);
            EndStatus {
                peer: state.peer.clone(),
                address: connection
                    .map(|c| c.remote_address().to_string())
                    .or_else(|| Some(tls?.address.clone())),
                transport: connection
                    .map(|_| TransportKind::Quic)
                    .or(tls.map(|_| TransportKind::Tls)),
                is_up: state.session.is_up(),
                fallbacks: self.fallbacks.load(Ordering::Relaxed),
                refused: self.refusals.all(),
                relay: state.relay.as_ref().map(Method::to_string),
                failovers: state.failovers,
                sessions: connects.saturating_sub(resumptions),
                reconnects: connects.saturating_sub(1),
                resumptions,
                order: state.session.order(),
                connections: state.link.as_ref().map_or_else(Vec::new, Live::status),
                channels: state.session.channels().collect(),
                closed: self.closed.load(Ordering::Relaxed),
                line: state.session.line(),
                policy: state.session.policy(),
                windows: self.coalescing.counters(),
                copies: match &self.copier {
                    Some(copier) => copier.status(state.session.copies()),
                    None => CopyStatus {
                        came: state.session.copies(),
                        ..CopyStatus::default()
                    },
                },
                datagrams: self.datagrams.status(),
                early: self.early.status(),
                policy_faults: 0,
                datapaths_refused: state.session.datapaths_refused(),
            }
        })
    }

    /// Waits until a connection begins a new session: the first one, or one after a relay was
    /// restarted.
    pub async fn fresh(&self) {
        self.begun.notified().await;
    }

    /// Returns the closed channels, with the name of the other relay, each reported once. The
    /// oldest are forgotten if nobody asks.
    pub fn take_finished(self: &Arc<Self>) -> Vec<(String, ChannelStatus)> {
        self.with_state(|state| {
            let peer = state.peer.clone();
            let finished = std::iter::from_fn(|| state.session.poll_finished());
            finished.map(|channel| (peer.clone(), channel)).collect()
        })
    }

    /// Breaks the connection between the ends, which is then dialled again.
    pub fn break_link(self: &Arc<Self>) {
        self.with_state(|state| {
            if let Some(live) = &state.link {
                live.connection.close(0u32.into(), b"asked to");
            }
            if let Some(tls) = &state.tls {
                tls.break_up();
            }
        });
    }

    /// Disconnects the session after the task that carried it over TLS has ended.
    pub(super) fn leave_tls(self: &Arc<Self>) {
        let now = self.now();
        self.with_state(|state| {
            if state.tls.take().is_some() {
                state.session.handle_disconnected(now);
                self.datagrams.handle_disconnected();
            }
        });
    }

    /// Closes every channel and the connection, for good.
    pub fn close(self: &Arc<Self>, reason: &str) {
        self.close_as(link::STOPPED, reason);
    }

    /// Closes every channel and the connection for good, with a close code of [`link`].
    pub(super) fn close_as(self: &Arc<Self>, code: u32, reason: &str) {
        self.closing.send_replace(true);
        self.with_state(|state| {
            let ids: Vec<ChannelId> = state.channels.keys().copied().collect();
            ids.into_iter()
                .for_each(|id| state.session.reset(id, reason.to_owned()));
            if let Some(live) = &state.link {
                live.connection.close(code.into(), reason.as_bytes());
            }
            if let Some(tls) = &state.tls {
                tls.stop();
            }
        });
    }

    /// Returns the result of `work`. Never returns if this end is closed first.
    pub(super) async fn unless_closed<T>(&self, work: impl Future<Output = T>) -> T {
        let mut closing = self.closing.subscribe();
        let done = tokio::select! {
            biased;
            _ = closing.wait_for(|is_closing| *is_closing) => None,
            done = work => Some(done),
        };
        match done {
            Some(done) => done,
            None => std::future::pending().await,
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(super) fn is_scheduled(&self) -> bool {
        self.config.scheduling.policy.is_some()
    }

    pub(super) fn is_switch_side(&self) -> bool {
        self.config.session.side == Side::Switch
    }

    /// Returns the connections that the map in use asks for.
    pub(super) fn carriers(self: &Arc<Self>) -> Carriers {
        let map = self.policy_map();
        map.as_ref().map_or_else(Carriers::default, Carriers::of)
    }

    /// Returns the connections that this session has with an end whose settings are `theirs`, and
    /// their code points if both ends mark with the same.
    pub(super) fn settle(self: &Arc<Self>, ours: &Settings, theirs: &Settings) -> Carriers {
        let settled = relay::settle(ours, theirs);
        let Some(map) = self.policy_map().filter(|_| !settled.is_empty()) else {
            let first = ours.code_points.first();
            return Carriers::one(first.copied().unwrap_or(0));
        };
        if ours.code_points != theirs.code_points {
            self.tell_of_code_points(ours, theirs, &settled);
        }
        Carriers::among(&map, settled)
    }

    fn tell_of_code_points(&self, ours: &Settings, theirs: &Settings, settled: &[u8]) {
        let (here, there) = (&ours.code_points, &theirs.code_points);
        if ours.generation == theirs.generation {
            tracing::warn!(
                relay = self.name,
                "the policy maps here and at the other relay differ and are both of generation {}: \
                 here code points {here:?}, there {there:?}; both use {settled:?}, the controller \
                 side's. Push one map to both: auster policy push",
                ours.generation
            );
        } else {
            tracing::info!(
                relay = self.name,
                "here code points {here:?} of generation {}, at the other relay {there:?} of {}: \
                 both use {settled:?}",
                ours.generation,
                theirs.generation
            );
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` on the session, and then handles the session's events.
    pub(super) fn with<R>(self: &Arc<Self>, work: impl FnOnce(&mut Session) -> R) -> R {
        self.with_state(|state| work(&mut state.session))
    }

    pub(super) fn with_state<R>(self: &Arc<Self>, work: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut state);
        self.schedule(&mut state.session);
        while let Some(event) = state.session.poll_event() {
            self.handle_event(&mut state, event);
        }
        self.note_policy(&state.session);
        result
    }

    fn schedule(&self, session: &mut Session) {
        let now = self.now();
        let Some(pace) = &self.config.scheduling.pace else {
            return session.schedule(now);
        };
        while pace.wait().is_none() {
            match session.schedule_some(now, pace.piece_bytes()) {
                // Nothing is queued, or the connection takes no more and will report when it does.
                0 => return,
                moved => pace.promised(moved),
            }
        }
        if session.has_queued() {
            self.paced.notify_one();
        }
    }

    fn handle_event(self: &Arc<Self>, state: &mut State, event: Event) {
        match event {
            Event::Opened { channel, name, .. } => {
                let local = Local::new();
                state.channels.insert(channel, local.clone());
                local.spawn(
                    self.clone()
                        .dial_target(channel, name, Arc::downgrade(&local)),
                );
                self.opened.notify_waiters();
            }
            Event::Closed { channel, reason } => {
                tracing::info!(channel = channel.0, reason, "channel closed");
                self.closed.fetch_add(1, Ordering::Relaxed);
                if let Some(local) = state.channels.remove(&channel) {
                    local.close();
                }
                if let Some(live) = &mut state.link {
                    live.forget(channel);
                }
                self.opened.notify_waiters();
            }
            Event::Transmit { channel, lane } => {
                let carrier = state.session.carrier_of(channel, lane);
                let dscp = state.session.code_points()[carrier];
                let kind = state.session.kind_of(channel, lane);
                let wait = self.wait_of(kind);
                if let Some(live) = &mut state.link {
                    live.transmit(self, channel, lane, dscp, wait);
                }
                if let Some(tls) = &state.tls {
                    tls.transmit(channel, kind, lane, self.config.session.flow_lanes);
                }
            }
            Event::Deliver { channel } => {
                if let Some(local) = state.channels.get(&channel) {
                    local.deliver.notify_one();
                }
            }
            Event::Room { channel } => {
                if let Some(local) = state.channels.get(&channel) {
                    local.room.notify_one();
                }
            }
            Event::Control => self.control.notify_one(),
            Event::Mapped => {
                state.handle_mapped();
                self.datagrams.waiting.notify_waiters();
                self.mapped.notify_one();
            }
            Event::WrongDatapath {
                channel,
                said,
                certified,
            } => tracing::warn!(
                relay = self.name,
                channel = channel.0,
                "refused: a switch behind this relay says that it is datapath {said}, and the \
                 relay's certificate is for {certified} alone; a relay of several bridges needs a \
                 certificate without --dpid"
            ),
            Event::Policy { outcome } => {
                if let Some(tell) = state.policy_outcome.take() {
                    let _ = tell.send(outcome);
                }
            }
        }
    }

    /// Returns the time that a message may wait to share a packet with others.
    pub(super) fn wait_of(&self, kind: Kind) -> Duration {
        match self.is_scheduled() {
            // Scheduled messages wait in the queues.
            true => Duration::ZERO,
            false => *self.config.scheduling.coalescing.get(kind),
        }
    }

    fn attach(self: &Arc<Self>, id: ChannelId, local: &Arc<Local>, connection: Connection) {
        let Connection {
            reader,
            writer,
            ticket,
            ..
        } = connection;
        local.spawn(local::read(self.clone(), id, local.clone(), reader, ticket));
        local.spawn(local::write(self.clone(), id, local.clone(), writer));
    }

    /// Connects a channel that the other end has opened.
    async fn dial_target(self: Arc<Self>, id: ChannelId, agent: String, local: Weak<Local>) {
        let dialled = match self.config.targets.get(&agent) {
            None => Err(format!(
                "the other relay has nothing to connect '{agent}' to"
            )),
            Some(Target::Hand(taker)) => {
                let (ours, theirs) = transport::memory(HAND_BUFFER_BYTES);
                let handed = taker.send(theirs).await;
                handed
                    .map(|()| ours)
                    .map_err(|_| "nobody takes it any more".to_owned())
            }
            Some(Target::Datagrams(_)) => Err(format!(
                "the other relay has '{agent}' as udp:, which this one must have too"
            )),
            Some(Target::Dial(method)) => {
                let method = with_name(method, &self.name);
                self.dial_until(&method)
                    .await
                    .map_err(|error| error.to_string())
            }
        };
        match (dialled, local.upgrade()) {
            (Ok(connection), Some(local)) => self.attach(id, &local, connection),
            (Ok(_), None) => {}
            (Err(problem), _) => {
                tracing::warn!(agent, problem, "no target");
                self.with(|session| session.reset(id, problem));
            }
        }
    }

    async fn dial_until(&self, method: &Method) -> Result<Connection, transport::TransportError> {
        let until = time::Instant::now() + DIAL_TIME_MAX;
        loop {
            match transport::connect(method, &self.config.target_security).await {
                Err(_) if time::Instant::now() < until => time::sleep(DIAL_PAUSE).await,
                done => return done,
            }
        }
    }

    /// Schedules whenever the rate allows it again, while anything is queued.
    async fn keep_pace(end: Weak<End>, pace: Arc<Pace>, paced: Arc<Notify>) {
        let mut alarm = match Alarm::new() {
            Ok(alarm) => alarm,
            Err(error) => return tracing::error!("no timer for the rate: {error}"),
        };
        loop {
            paced.notified().await;
            if let Some(at) = pace.wait()
                && let Err(error) = alarm.wait_until(at).await
            {
                return tracing::error!("no timer for the rate: {error}");
            }
            let Some(end) = end.upgrade() else { return };
            end.with(|_| ());
        }
    }

    /// Checks the session's deadline for as long as the end is used.
    async fn tick(end: Weak<End>) {
        loop {
            time::sleep(TICK).await;
            let Some(end) = end.upgrade() else { return };
            let now = end.now();
            end.with(|session| session.handle_timeout(now));
            end.datagrams.handle_timeout(now);
        }
    }
}

fn session(config: &EndConfig, id: SessionId) -> Session {
    match &config.scheduling.policy {
        None => Session::new(Instant::START, config.session.clone(), id),
        Some(map) => Session::with_policy(Instant::START, config.session.clone(), id, map),
    }
}

/// Fills in `{name}` in the path of a Unix socket.
pub(super) fn with_name(method: &Method, name: &str) -> Method {
    let fill = |path: &Path| PathBuf::from(path.to_string_lossy().replace("{name}", name));
    match method {
        Method::DialUnix(path) => Method::DialUnix(fill(path)),
        Method::ListenUnix(path) => Method::ListenUnix(fill(path)),
        other => other.clone(),
    }
}
