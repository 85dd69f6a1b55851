//! The link between two ends: the connection with the control stream, the connections that joined
//! it, and a task per lane and direction.
//!
//! An error here ends only the connection; the session resumes on the next one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use quinn::{RecvStream, SendStream};
use relay::wire::{Control, LaneHeader};
use relay::{Carriers, ChannelId, Kind, Settings, WireError, queue_of_lane};
use sched::Lane;
use sched::policy::QUEUES_MAX;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time;

use super::carriers::{Joined, Lanes, Live, Seat};
use super::datagrams;
use super::early::chain_of;
use super::end::End;
use super::path;
use super::{STREAMS_MAX, STREAMS_MIN};
use net::quic;
use net::tls::{PeerSide, Security};

/// Time limit for the first message of either end.
pub(super) const SETTINGS_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for which deliveries are collected into one report, unless the sender may be waiting for
/// it. Until the report, the sender keeps the sent messages, within its window.
const REPORT_DELAY: Duration = Duration::from_secs(1);
/// The age at which a report goes with the next message, whose packet is sent anyway.
const REPORT_RIDES_AFTER: Duration = Duration::from_millis(500);
/// The delay where messages are scheduled: there, a flow keeps its lane until the last message is
/// reported.
const SCHEDULED_REPORT_DELAY: Duration = Duration::from_millis(10);
const READ_BYTES: usize = 64 * 1024;
const READ_CHUNKS: usize = 16;
const SEND_BYTES: usize = 16 * 1024;
const CONTROL_PRIORITY: i32 = i32::MAX;

/// A connection whose settings have been exchanged, with the connections that have joined it.
pub(super) struct Greeted {
    pub connection: quinn::Connection,
    pub marks: quic::Marks,
    /// One for each code point of `carriers` after the first.
    pub further: Vec<Joined>,
    /// Receives later ones, for as long as the connection lasts.
    pub joins: mpsc::Receiver<Joined>,
    pub carriers: Carriers,
    pub send: SendStream,
    pub recv: RecvStream,
    /// Bytes read from the control stream beyond the settings.
    pub buf: BytesMut,
    pub peer: Settings,
    pub resumed: bool,
    /// The channels that the other end already knows, at the switch's end.
    pub said: Option<BTreeSet<ChannelId>>,
}

/// Returns the time from the first delivery to the report.
pub(super) fn report_delay(end: &End) -> Duration {
    match end.is_scheduled() {
        true => SCHEDULED_REPORT_DELAY,
        false => REPORT_DELAY,
    }
}

/// Close code of a relay that will not return to this session.
pub(super) const STOPPED: u32 = 3;
/// Close code of a relay that closes because another one connected under the same name.
pub(super) const REPLACED: u32 = 4;

/// The other relay's reason for closing a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Farewell {
    /// None given: the session may continue.
    None,
    /// The other relay will not return to this session.
    Stopped,
    /// Another relay has this one's name, and has taken its place.
    Replaced,
}

/// Returns the farewell of a connection that has ended. Its streams may end a moment before the
/// connection.
pub(super) async fn farewell(connection: &quinn::Connection) -> Farewell {
    let closed = tokio::time::timeout(Duration::from_millis(100), connection.closed()).await;
    let Ok(quinn::ConnectionError::ApplicationClosed(closed)) = closed else {
        return Farewell::None;
    };
    match closed.error_code {
        code if code == STOPPED.into() => Farewell::Stopped,
        code if code == REPLACED.into() => Farewell::Replaced,
        _ => Farewell::None,
    }
}

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum LinkError {
    Lost(quinn::ConnectionError),
    Stream(String),
    Wire(WireError),
    /// The other relay's certificate was revoked meanwhile.
    Revoked,
    /// The hub already serves its maximum number of relays.
    Full,
}

impl std::fmt::Display for LinkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LinkError::Lost(error) => write!(f, "{error}"),
            LinkError::Stream(error) => f.write_str(error),
            LinkError::Wire(error) => write!(f, "the other relay broke the protocol: {error}"),
            LinkError::Revoked => f.write_str("the other relay's certificate is revoked"),
            LinkError::Full => f.write_str("too many relays are here"),
        }
    }
}

impl From<quinn::ConnectionError> for LinkError {
    fn from(error: quinn::ConnectionError) -> LinkError {
        LinkError::Lost(error)
    }
}

impl From<quinn::WriteError> for LinkError {
    fn from(error: quinn::WriteError) -> LinkError {
        LinkError::Stream(error.to_string())
    }
}

impl From<quinn::ReadError> for LinkError {
    fn from(error: quinn::ReadError) -> LinkError {
        LinkError::Stream(error.to_string())
    }
}

impl From<WireError> for LinkError {
    fn from(error: WireError) -> LinkError {
        LinkError::Wire(error)
    }
}

/// Carries the session as [`run`] does, but also stops when the other relay's certificate is
/// revoked.
pub(super) async fn run_judged(
    end: &Arc<End>,
    greeted: Greeted,
    security: &Security,
    side: PeerSide,
) -> LinkError {
    let connection = greeted.connection.clone();
    let held = security.hold(chain_of(&connection), side);
    let revoked = async {
        match held {
            Some(held) => held.revoked().await,
            None => std::future::pending().await,
        }
    };
    let mut running = std::pin::pin!(run(end, greeted));
    tokio::select! {
        error = &mut running => return error,
        () = revoked => {}
    }
    connection.close(1u32.into(), b"the certificate is revoked");
    running.await;
    LinkError::Revoked
}

/// Carries the session over one connection until it breaks. Returns why it did.
pub(super) async fn run(end: &Arc<End>, greeted: Greeted) -> LinkError {
    let _turn = end.link_turn.lock().await;
    let Greeted {
        connection,
        marks,
        further,
        mut joins,
        carriers,
        send,
        recv,
        buf,
        peer,
        resumed,
        said,
    } = greeted;
    // Whether the other end's early messages are about a session that is not known here.
    let is_void = peer.early && !resumed;
    let generation = end.connects.fetch_add(1, Ordering::Relaxed);
    end.resumptions.fetch_add(resumed.into(), Ordering::Relaxed);
    let lanes = Lanes {
        end: end.clone(),
        generation,
    };
    end.with_state(|state| {
        let live = Live::new(
            generation,
            connection.clone(),
            marks.clone(),
            carriers.code_points()[0],
        );
        state.link = Some(live);
        state.session.set_carriers(carriers);
    });
    let further: Result<Vec<_>, _> = further.into_iter().map(|j| lanes.join(j)).collect();
    let started = further.and_then(|further| {
        end.with(|session| match said.filter(|_| resumed) {
            Some(said) => session.handle_taken_up(&peer, &said),
            None => session.handle_connected(&peer, resumed),
        })?;
        Ok(further)
    });
    let error = match started {
        Err(error) => error,
        Ok(further) => {
            if !resumed {
                end.datagrams.begin();
                end.begun.notify_one();
            }
            let mut tasks = JoinSet::new();
            tasks.spawn(fails(write_control(end.clone(), send)));
            tasks.spawn(fails(read_control(end.clone(), recv, buf, is_void)));
            tasks.spawn(fails(accept_lanes(lanes.clone(), connection.clone())));
            // Nothing else depends on the other end's address.
            if end.is_scheduled() {
                let follows = path::follow(connection.clone(), marks);
                tasks.spawn(async move { match follows.await {} });
            }
            tasks.spawn(fails(datagrams::receive(lanes.clone(), connection.clone())));
            tasks.spawn(fails(datagrams::send(lanes.clone(), connection.clone())));
            if end.is_scheduled() {
                tasks.spawn(fails(bound_unsent(connection.clone())));
            }
            for carried in further {
                tasks.spawn(carried.run());
            }
            let error = loop {
                tokio::select! {
                    Some(joined) = joins.recv() => match lanes.join(joined) {
                        Ok(carried) => drop(tasks.spawn(carried.run())),
                        Err(error) => break error,
                    },
                    Some(done) = tasks.join_next() => match done {
                        // The connection is no longer needed.
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => break error,
                        Err(panic) => break LinkError::Stream(panic.to_string()),
                    },
                }
            };
            // The other connections are dialled again together with this one.
            tasks.shutdown().await;
            error
        }
    };
    if let LinkError::Wire(error) = &error {
        connection.close(1u32.into(), error.0.as_bytes());
    }
    let now = end.now();
    end.with_state(|state| {
        state.link = None;
        state.session.handle_disconnected(now);
        end.datagrams.handle_disconnected();
    });
    error
}

/// Returns the error of a task that ends only with the connection.
async fn fails(task: impl Future<Output = LinkError>) -> Result<(), LinkError> {
    Err(task.await)
}

pub(super) async fn bound_unsent(connection: quinn::Connection) -> LinkError {
    quic::bound_unsent(connection).await;
    LinkError::Stream("nothing bounds what is unsent".to_owned())
}

/// Reads until there is a whole control message.
pub(super) async fn read_first(
    recv: &mut RecvStream,
    buf: &mut BytesMut,
) -> Result<Control, LinkError> {
    loop {
        match Control::take(buf)? {
            Some(message) => return Ok(message),
            None => read_more(recv, buf).await?,
        }
    }
}

async fn read_more(recv: &mut RecvStream, buf: &mut BytesMut) -> Result<(), LinkError> {
    match recv.read_chunk(READ_BYTES, true).await? {
        Some(chunk) => buf.extend_from_slice(&chunk.bytes),
        None => return Err(LinkError::Stream("the control stream has ended".to_owned())),
    }
    Ok(())
}

/// Reads the control stream. If `is_void`, ignores messages up to the end of the resumption.
async fn read_control(
    end: Arc<End>,
    mut recv: RecvStream,
    mut buf: BytesMut,
    mut is_void: bool,
) -> LinkError {
    loop {
        let handled = loop {
            match Control::take(&mut buf) {
                Err(error) => break Err(error.into()),
                Ok(None) => break read_more(&mut recv, &mut buf).await,
                Ok(Some(message)) if is_void => is_void = message != Control::ResumeEnd,
                Ok(Some(message)) => {
                    if let Err(error) = end.with(|session| session.handle_control(message)) {
                        break Err(error.into());
                    }
                }
            }
        };
        if let Err(error) = handled {
            return error;
        }
    }
}

async fn write_control(end: Arc<End>, mut send: SendStream) -> LinkError {
    let _ = send.set_priority(CONTROL_PRIORITY);
    let delay = report_delay(&end);
    let rides_after = delay.min(REPORT_RIDES_AFTER);
    let mut report_at = None;
    let mut rides = false;
    loop {
        let due = rides || report_at.is_some_and(|at| at <= time::Instant::now());
        rides = false;
        let mut out = BytesMut::new();
        let has_report = end.with(|session| {
            while let Some(message) = session.poll_control(due) {
                out.extend_from_slice(&message.encode());
            }
            session.has_report()
        });
        if let Err(error) = send.write_all(&out).await {
            return error.into();
        }
        report_at = match report_at {
            _ if !has_report => None,
            // That report was sent, and more deliveries have followed.
            Some(_) if due => Some(time::Instant::now() + delay),
            None => Some(time::Instant::now() + delay),
            set => set,
        };
        let Some(at) = report_at else {
            end.control.notified().await;
            continue;
        };
        let rides_from = at - (delay - rides_after);
        let riding = async {
            time::sleep_until(rides_from).await;
            end.rides.notified().await;
        };
        tokio::select! {
            () = end.control.notified() => {}
            () = time::sleep_until(at) => {}
            () = riding => rides = true,
        }
    }
}

/// Reads the lanes that arrive over `connection`, until the connection ends.
async fn accept_lanes(lanes: Lanes, connection: quinn::Connection) -> LinkError {
    let never = std::future::pending();
    match read_lanes(lanes, &connection, never).await {
        Ok(()) => LinkError::Stream("nothing more comes".to_owned()),
        Err(error) => error,
    }
}

/// Reads the lanes that arrive over `connection`, until all that arrived before `is_last` are read.
pub(super) async fn read_lanes(
    lanes: Lanes,
    connection: &quinn::Connection,
    is_last: impl Future<Output = ()>,
) -> Result<(), LinkError> {
    let mut is_last = std::pin::pin!(is_last);
    let mut is_over = false;
    let mut tasks = JoinSet::new();
    let mut granted = STREAMS_MIN;
    loop {
        tokio::select! {
            biased;
            stream = connection.accept_uni() => match stream {
                Ok(stream) => {
                    tasks.spawn(receive_lane(lanes.clone(), stream));
                    if tasks.len() > granted as usize / 2 && granted < STREAMS_MAX {
                        granted *= 2;
                        connection.set_max_concurrent_uni_streams(granted.into());
                    }
                }
                // The other end may close the connection as soon as nothing is in flight.
                Err(_) if is_over => break,
                Err(error) => return Err(error.into()),
            },
            Some(done) = tasks.join_next() => received(done)?,
            () = &mut is_last, if !is_over => is_over = true,
            () = std::future::ready(()), if is_over && tasks.is_empty() => break,
        }
    }
    while let Some(done) = tasks.join_next().await {
        received(done)?;
    }
    Ok(())
}

fn received(done: Result<Result<(), LinkError>, JoinError>) -> Result<(), LinkError> {
    done.unwrap_or_else(|panic| Err(LinkError::Stream(panic.to_string())))
}

async fn receive_lane(lanes: Lanes, mut recv: RecvStream) -> Result<(), LinkError> {
    let mut buf = BytesMut::new();
    let header = loop {
        if datagrams::is_long(&buf) {
            return datagrams::receive_long(&lanes, recv, buf).await;
        }
        if let Some(header) = LaneHeader::take(&mut buf)? {
            break header;
        }
        let Some(chunk) = recv.read_chunk(READ_BYTES, true).await? else {
            return Ok(());
        };
        buf.extend_from_slice(&chunk.bytes);
    };
    let LaneHeader {
        channel,
        lane,
        first,
    } = header;
    loop {
        // Streams may overtake the control message that opens their channel.
        let mut opened = std::pin::pin!(lanes.end.opened.notified());
        opened.as_mut().enable();
        match lanes.with(|session| session.admits(channel, lane, first))?? {
            Some(true) => break,
            Some(false) => {
                let _ = recv.stop(0u32.into());
                return Ok(());
            }
            None => opened.await,
        }
    }
    let mut chunks: [Bytes; READ_CHUNKS] = Default::default();
    loop {
        lanes.with(|session| session.handle_lane(channel, lane, &mut buf))??;
        // Read all chunks that are there: each packet brings one, and each read takes the session's
        // lock.
        let Some(count) = recv.read_chunks(&mut chunks).await? else {
            // The lane may continue over another connection.
            lanes.end.opened.notify_waiters();
            return Ok(());
        };
        buf.reserve(chunks[..count].iter().map(Bytes::len).sum());
        for chunk in &mut chunks[..count] {
            buf.extend_from_slice(&std::mem::take(chunk));
        }
    }
}

/// Sends the lane's records for as long as it is on this connection.
pub(super) async fn send_lane(lanes: Lanes, seat: Seat) {
    let (channel, lane) = (seat.channel, seat.lane);
    // An error means that the connection failed, which `run` notices by itself, or that the other
    // end stopped the stream because its channel is closed.
    let sent = async {
        let mut send = seat.connection.open_uni().await?;
        let begin = lanes.seated(&seat, |session| {
            (
                session.lane_position(channel, lane),
                session.kind_of(channel, lane),
            )
        })?;
        let Some((first, kind)) = begin else {
            return Ok(());
        };
        let flow_lanes = lanes.end.config.session.flow_lanes;
        let _ = send.set_priority(priority(lane, kind, flow_lanes));
        send.write_all(
            &LaneHeader {
                channel,
                lane,
                first,
            }
            .encode(),
        )
        .await?;
        // Records given to a lane are no longer scheduled.
        let bytes_max = if lanes.end.is_scheduled() {
            1
        } else {
            SEND_BYTES
        };
        let poll = || {
            lanes.seated(&seat, |session| {
                let chunks = session.poll_lane(channel, lane, bytes_max)?;
                Some((chunks, session.take_copies()))
            })
        };
        while let Some((mut chunks, copies)) = poll()?.flatten() {
            if chunks.is_empty() {
                seat.wake.notified().await;
                continue;
            }
            // Notify first, so that the connection finds both the report and the records when it
            // has its turn.
            lanes.end.rides.notify_waiters();
            send.write_all_chunks(&mut chunks).await?;
            if let Some(copier) = &lanes.end.copier {
                copier.copy(&seat.connection, copies);
            }
        }
        let _ = send.finish();
        if seat.is_awaited() {
            let _ = send.stopped().await;
        }
        Ok::<(), LinkError>(())
    };
    if let Err(error) = sent.await {
        tracing::debug!(channel = channel.0, ?lane, %error, "lane ended");
    }
}

/// Returns the priority of a stream. Levels are strict: echo, then state, packets by their queues,
/// requests and replies, other agents.
pub(super) fn priority(lane: Lane, kind: Kind, flow_lanes: u16) -> i32 {
    const LEVEL: i32 = QUEUES_MAX as i32;
    match kind {
        Kind::Echo => 3 * LEVEL,
        Kind::State => 2 * LEVEL,
        // Packets of no flow have the first lane.
        Kind::Packet => 2 * LEVEL - 1 - queue_of_lane(lane, flow_lanes) as i32,
        Kind::Exchange => 0,
        Kind::Other => -1,
    }
}
