//! A relay that carries each connection over a separate one: TCP or TLS, where QUIC is not wanted.
//!
//! There are no lanes and there is nothing to resume. Only the scheduling remains: each end sends
//! its own side's messages over the limited link by the queues of a policy map, and the socket
//! below buffers little. The other end of the link sees a plain connection, so it may be a
//! controller or a switch that knows nothing of relays.

mod policy;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use openflow::{DatapathId, Frame};
use relay::{
    Agent, ChannelId, ChannelStatus, EXPERIMENTER_ID, Item, Line, LineStatus, OrderMode,
    PolicyTalk, Shed, Side, Tally, datapath_of, experimenter,
};
use sched::policy::MapDigest;
use sched::{Direction, PolicyMap};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time;

use super::{
    CopyStatus, DatagramStatus, EarlyStatus, EndStatus, OPENFLOW, Scheduling, WindowCounters,
};
use net::alarm::Alarm;
use net::clock::Clock;
use net::method::Method;
use net::tls::Security;
use net::transport::{self, Connection, LineSocket, Reader, Writer};

pub use policy::Pushed;

const READ_BYTES: usize = 64 * 1024;
/// The bytes that leave the queues at a time: one segment, so that an urgent message waits for one.
/// A batch ends with the last message of a queue: the far end gets a segment whole or not at all.
const BATCH_BYTES: usize = 1400;
/// The same where nothing is scheduled.
const COPY_BYTES: usize = 64 * 1024;
/// Time for which a target is dialled before the connection for it is given up.
const DIAL_TIME_MAX: Duration = Duration::from_secs(5);
const DIAL_PAUSE: Duration = Duration::from_millis(200);
/// Time for one direction to carry its remaining bytes after the other has ended.
const LINGER: Duration = Duration::from_secs(1);
/// Maximum number of closed connections whose counts nobody has asked for.
const FINISHED_MAX: usize = 1024;

/// One relay of this kind: the connections that it carries, and their target.
pub struct Direct {
    side: Side,
    target: Method,
    security: Security,
    scheduling: Scheduling,
    clock: Clock,
    next: AtomicU64,
    /// Connections whose switch reported a datapath other than the one that its certificate names.
    datapaths_refused: AtomicU64,
    state: Mutex<State>,
    /// The map that the next connection begins with, where messages are scheduled.
    newest: Option<watch::Sender<Arc<PolicyMap>>>,
}

#[derive(Default)]
struct State {
    open: BTreeMap<u64, Arc<Carried>>,
    finished: VecDeque<ChannelStatus>,
    closed: u64,
    /// Queue counters of closed connections.
    past: Option<LineStatus>,
    /// Wrong messages about policy maps, on closed connections.
    faults: u64,
}

/// A connection that is being carried.
struct Carried {
    id: u64,
    /// The only datapath that the peer across the link may speak for, by its certificate.
    certified: Option<DatapathId>,
    counts: Mutex<Counts>,
    /// Notifies that the queues have a message that did not come from our own side.
    sends: Notify,
    /// Notifies of a message for our own side that did not come from the link.
    own: Notify,
}

struct Counts {
    line: Option<Line>,
    /// The switch of the connection, once the messages have named it.
    datapath: Option<DatapathId>,
    /// The exchange of its map with the other end.
    talk: Option<PolicyTalk>,
    /// Waits for the outcome of a policy map.
    tell: Option<oneshot::Sender<Result<MapDigest, String>>>,
    /// For our own side, before what the link brings.
    own: BytesMut,
    /// Sent over the link.
    taken: Tally,
    /// Handed to our own side.
    given: Tally,
    shed: Shed,
}

impl Direct {
    /// Makes a relay beside the switches or the controller. It dials `target` for each connection
    /// it is given.
    pub fn new(
        side: Side,
        target: Method,
        security: Security,
        scheduling: Scheduling,
    ) -> Arc<Direct> {
        Arc::new(Direct {
            side,
            target,
            security,
            newest: scheduling.policy.clone().map(watch::Sender::new),
            scheduling,
            clock: Clock::start(),
            next: AtomicU64::new(0),
            datapaths_refused: AtomicU64::new(0),
            state: Mutex::default(),
        })
    }

    /// The socket options of the limited link: for accepted connections, if this end is beside the
    /// controller.
    pub fn line_socket(scheduling: &Scheduling) -> Option<LineSocket> {
        let map = scheduling.policy.as_ref()?;
        Some(LineSocket {
            dscp: relay::code_points(map).first().copied(),
        })
    }

    /// Carries `accepted` until it ends.
    pub async fn carry(self: Arc<Self>, accepted: Connection) {
        let from = accepted.peer.address.clone();
        let line = match self.side {
            Side::Switch => Direct::line_socket(&self.scheduling),
            Side::Controller => None,
        };
        let dialled = match self.dial(line).await {
            Ok(dialled) => dialled,
            Err(error) => return tracing::warn!(peer = from, "no target: {error}"),
        };
        let (ours, link) = match self.side {
            Side::Switch => (accepted, dialled),
            Side::Controller => (dialled, accepted),
        };
        let certified = match self.side {
            Side::Switch => None,
            Side::Controller => link.peer.datapath_id,
        };
        let carried = self.open(certified);
        tracing::info!(peer = from, channel = carried.id, "carried");
        let reason = self.run(&carried, ours, link).await;
        tracing::info!(peer = from, channel = carried.id, reason, "ended");
        self.close(&carried);
    }

    pub fn status(&self) -> EndStatus {
        let state = self.lock();
        let open: Vec<Arc<Carried>> = state.open.values().cloned().collect();
        let faults = |carried: &Arc<Carried>| {
            let counts = carried.lock();
            counts.talk.as_ref().map_or(0, PolicyTalk::faults)
        };
        let mut line = state.past.clone();
        for carried in state.open.values() {
            add(&mut line, carried.lock().line.as_ref().map(Line::status));
        }
        EndStatus {
            peer: self.target.to_string(),
            address: None,
            is_up: !state.open.is_empty(),
            fallbacks: 0,
            refused: BTreeMap::new(),
            relay: None,
            failovers: 0,
            sessions: 0,
            order: OrderMode::Strict,
            reconnects: 0,
            resumptions: 0,
            connections: Vec::new(),
            channels: state.open.values().map(|c| c.status()).collect(),
            closed: state.closed,
            line,
            policy: self.policy_status(&open),
            transport: None,
            windows: WindowCounters::default(),
            copies: CopyStatus::default(),
            datagrams: DatagramStatus::default(),
            early: EarlyStatus::default(),
            datapaths_refused: self.datapaths_refused.load(Ordering::Relaxed),
            policy_faults: state.faults + open.iter().map(faults).sum::<u64>(),
        }
    }

    /// The connections that have ended, each reported once.
    pub fn take_finished(&self) -> Vec<(String, ChannelStatus)> {
        let name = self.target.to_string();
        let finished = std::mem::take(&mut self.lock().finished);
        finished.into_iter().map(|c| (name.clone(), c)).collect()
    }

    /// Closes the connections that are still open here. Call this once their tasks have ended.
    pub fn close_all(&self) {
        let open: Vec<Arc<Carried>> = self.lock().open.values().cloned().collect();
        open.iter().for_each(|carried| self.close(carried));
    }

    fn open(&self, certified: Option<DatapathId>) -> Arc<Carried> {
        let direction = match self.side {
            Side::Switch => Direction::ToController,
            Side::Controller => Direction::ToSwitch,
        };
        let map = self.newest.as_ref().map(|newest| newest.borrow().clone());
        let talk = |map: &Arc<PolicyMap>| {
            PolicyTalk::new(self.side, self.experimenter(), PolicyMap::clone(map))
        };
        let carried = Arc::new(Carried {
            id: self.next.fetch_add(1, Ordering::Relaxed),
            certified,
            counts: Mutex::new(Counts {
                line: map.as_ref().map(|map| Line::new(direction, map)),
                datapath: None,
                talk: map.as_ref().map(talk),
                tell: None,
                own: BytesMut::new(),
                taken: Tally::new(Agent::OpenFlow),
                given: Tally::new(Agent::OpenFlow),
                shed: Shed::default(),
            }),
            sends: Notify::new(),
            own: Notify::new(),
        });
        self.lock().open.insert(carried.id, carried.clone());
        carried
    }

    fn close(&self, carried: &Carried) {
        let mut state = self.lock();
        state.open.remove(&carried.id);
        state.closed += 1;
        let mut counts = carried.lock();
        // A push that still waits for its outcome fails.
        counts.tell = None;
        add(&mut state.past, counts.line.as_ref().map(Line::status));
        state.faults += counts.talk.as_ref().map_or(0, PolicyTalk::faults);
        drop(counts);
        if state.finished.len() == FINISHED_MAX {
            state.finished.pop_front();
        }
        state.finished.push_back(carried.status());
    }

    async fn dial(
        &self,
        line: Option<LineSocket>,
    ) -> Result<Connection, transport::TransportError> {
        let until = time::Instant::now() + DIAL_TIME_MAX;
        loop {
            match transport::connect_line(&self.target, &self.security, line).await {
                Err(_) if time::Instant::now() < until => time::sleep(DIAL_PAUSE).await,
                done => return done,
            }
        }
    }

    /// Carries both directions, until one has ended and the other has had a moment to end. Returns
    /// the reason.
    async fn run(&self, carried: &Carried, ours: Connection, link: Connection) -> String {
        let out = async {
            if self.scheduling.policy.is_some() {
                self.schedule(carried, ours.reader, link.writer).await
            } else {
                copy(ours.reader, link.writer, |frame| {
                    carried.lock().taken.add(frame.bytes());
                    Ok(())
                })
                .await
            }
        };
        let back = async {
            if self.scheduling.policy.is_some() {
                self.deliver(carried, link.reader, ours.writer).await
            } else {
                copy(link.reader, ours.writer, |frame| {
                    self.check_datapath(carried, frame)?;
                    carried.lock().given.add(frame.bytes());
                    Ok(())
                })
                .await
            }
        };
        let (mut out, mut back) = (std::pin::pin!(out), std::pin::pin!(back));
        tokio::select! {
            reason = &mut out => {
                let _ = time::timeout(LINGER, back).await;
                reason
            }
            reason = &mut back => {
                let _ = time::timeout(LINGER, out).await;
                reason
            }
            () = self.tick(carried) => unreachable!("it ticks for ever"),
        }
    }

    /// Refuses a message from the link that speaks for another switch. Returns the reason.
    fn check_datapath(&self, carried: &Carried, frame: &Frame) -> Result<(), String> {
        let said = carried.certified.and_then(|_| datapath_of(frame));
        match (said, carried.certified) {
            (Some(said), Some(certified)) if said != certified => {
                self.datapaths_refused.fetch_add(1, Ordering::Relaxed);
                let problem =
                    format!("it says that it is datapath {said}, its certificate {certified}");
                tracing::warn!(channel = carried.id, "refused: {problem}");
                Err(problem)
            }
            _ => Ok(()),
        }
    }

    /// Carries messages from our side over the link, by the queues.
    async fn schedule(&self, carried: &Carried, mut reader: Reader, mut writer: Writer) -> String {
        let mut input = BytesMut::new();
        let mut batch = BytesMut::new();
        let (mut is_flushed, mut has_ended) = (true, false);
        let mut alarm = match Alarm::new() {
            Ok(alarm) => alarm,
            Err(error) => return format!("no timer: {error}"),
        };
        loop {
            let mut wait_until = None;
            if batch.is_empty() && is_flushed {
                wait_until = self.fill(carried, &mut batch);
                if batch.is_empty() && wait_until.is_none() && has_ended {
                    let _ = writer.shutdown().await;
                    return "closed".to_owned();
                }
            }
            let has_room = carried.lock().line.as_ref().is_some_and(Line::has_room);
            let at = wait_until.unwrap_or_else(Instant::now);
            input.reserve(READ_BYTES);
            tokio::select! {
                flushed = put(&mut writer, &mut batch), if !batch.is_empty() || !is_flushed => {
                    match flushed {
                        Ok(flushed) => is_flushed = flushed,
                        Err(error) => return error.to_string(),
                    }
                }
                read = reader.read_buf(&mut input), if has_room && !has_ended => match read {
                    Ok(0) => has_ended = true,
                    Ok(_) => if let Err(error) = self.queue(carried, &mut input) {
                        return format!("not OpenFlow: {error}");
                    },
                    Err(error) => return error.to_string(),
                },
                () = carried.sends.notified() => {}
                woken = alarm.wait_until(at), if wait_until.is_some() => if let Err(error) = woken {
                    return format!("no timer: {error}");
                },
            }
        }
    }

    fn queue(&self, carried: &Carried, input: &mut BytesMut) -> Result<(), openflow::FrameError> {
        let now = self.clock.now();
        let mut counts = carried.lock();
        while let Some(frame) = Frame::split_from(input)? {
            if self.side == Side::Switch {
                counts.datapath = counts.datapath.or_else(|| datapath_of(&frame));
            }
            let datapath = counts.datapath;
            let Counts { line, talk, .. } = &mut *counts;
            let is_kept = talk.as_mut().is_some_and(|talk| talk.handle_own(&frame));
            if let (false, Some(line)) = (is_kept, line) {
                line.push(now, 0, datapath, &frame);
            }
            counts.take_shed();
        }
        self.drain(carried, &mut counts);
        Ok(())
    }

    /// Fills `batch` with the next segment. Returns the time to wait for if the rate allows none.
    fn fill(&self, carried: &Carried, batch: &mut BytesMut) -> Option<Instant> {
        let now = self.clock.now();
        let mut counts = carried.lock();
        if counts.line.as_ref().is_none_or(Line::is_empty) {
            return None;
        }
        let pace = self.scheduling.pace.as_ref();
        if let Some(at) = pace.and_then(|pace| pace.wait()) {
            return Some(at);
        }
        let bytes_max = pace.map_or(BATCH_BYTES, |pace| pace.piece_bytes());
        while batch.len() < bytes_max {
            let popped = counts.line.as_mut().and_then(|line| line.pop(now));
            let Some((tag, Item::Message(message))) = popped else {
                break;
            };
            if !experimenter::is_about(self.experimenter(), &message) {
                counts.taken.add(&message);
            }
            batch.extend_from_slice(&message);
            if !(counts.line.as_ref()).is_some_and(|line| line.has_waiting(tag.queue)) {
                break;
            }
        }
        counts.take_shed();
        if let Some(pace) = pace.filter(|_| !batch.is_empty()) {
            pace.sent_segments(batch.len());
        }
        None
    }

    fn experimenter(&self) -> u32 {
        self.scheduling.experimenter.unwrap_or(EXPERIMENTER_ID)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Carried {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> ChannelStatus {
        let counts = self.lock();
        let queued = counts.line.as_ref();
        ChannelStatus {
            channel: ChannelId(self.id),
            agent: Agent::OpenFlow,
            name: OPENFLOW.to_owned(),
            class: None,
            taken: counts.taken.clone(),
            given: counts.given.clone(),
            lanes_out: Vec::new(),
            lanes_in: Vec::new(),
            kept_bytes: 0,
            queued_count: queued.map_or(0, Line::len),
            queued_bytes: queued.map_or(0, Line::bytes),
            shed: counts.shed,
            held_bytes: 0,
            held_count: 0,
        }
    }
}

impl Counts {
    fn take_shed(&mut self) {
        let Some(line) = &mut self.line else { return };
        while let Some((_, _, item)) = line.poll_shed() {
            if let Item::Message(message) = item {
                self.shed.add(message.len());
            }
        }
    }
}

/// Writes some of `batch`, or flushes once it is written. Returns whether all is out. Cancel-safe.
async fn put(writer: &mut Writer, batch: &mut BytesMut) -> std::io::Result<bool> {
    if batch.is_empty() {
        writer.flush().await?;
        return Ok(true);
    }
    match writer.write_buf(batch).await? {
        0 => Err(std::io::ErrorKind::WriteZero.into()),
        _ => Ok(false),
    }
}

/// Copies whole messages from `reader` to `writer` as they arrive. Returns why it ended.
async fn copy(
    mut reader: Reader,
    mut writer: Writer,
    take: impl Fn(&Frame) -> Result<(), String>,
) -> String {
    let mut input = BytesMut::new();
    loop {
        input.reserve(COPY_BYTES);
        match reader.read_buf(&mut input).await {
            Ok(0) => {
                let _ = writer.shutdown().await;
                return "closed".to_owned();
            }
            Ok(_) => {}
            Err(error) => return error.to_string(),
        }
        let mut output = BytesMut::new();
        loop {
            match Frame::split_from(&mut input) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    if let Err(problem) = take(&frame) {
                        return problem;
                    }
                    output.extend_from_slice(frame.bytes());
                }
                Err(error) => return format!("not OpenFlow: {error}"),
            }
        }
        let written = async {
            writer.write_all(&output).await?;
            writer.flush().await
        };
        if let Err(error) = written.await {
            return error.to_string();
        }
    }
}

fn add(sum: &mut Option<LineStatus>, line: Option<LineStatus>) {
    match (sum, line) {
        (_, None) => {}
        // Counts restart with each map.
        (Some(sum), Some(line)) if sum.generation > line.generation => {}
        (Some(sum), Some(line)) if sum.generation == line.generation => sum.add(&line),
        (sum, line) => *sum = line,
    }
}
