//! One QUIC connection between two ends: its control stream and a task per lane and direction.
//!
//! Whatever goes wrong here ends the connection and nothing else; the session resumes on the next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use control::relay::wire::{Control, LaneHeader};
use control::relay::{Agent, Carriers, ChannelId, Session, Settings, WireError};
use quinn::{RecvStream, SendStream};
use sched::{Lane, LaneKind};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time;

use super::end::End;
use crate::quic;

/// The first message of either end must come within this.
pub(super) const SETTINGS_TIMEOUT: Duration = Duration::from_secs(3);
/// Deliveries are reported together for this long, unless the sender may be waiting for them.
const REPORT_DELAY: Duration = Duration::from_millis(10);
const READ_BYTES: usize = 64 * 1024;
const SEND_BYTES: usize = 16 * 1024;
const CONTROL_PRIORITY: i32 = 4;

/// The connection there is now.
pub(super) struct Live {
    /// Tells a task of an earlier connection, which may be a moment late to end, that it is one.
    pub generation: u64,
    pub connection: quinn::Connection,
    /// As the session's carriers: the first is `connection`.
    carriers: Vec<quinn::Connection>,
    lanes: BTreeMap<(ChannelId, Lane), (Arc<Notify>, AbortHandle)>,
}

impl Live {
    /// The lane has something to send: wakes its task, or starts it.
    pub fn transmit(&mut self, end: &Arc<End>, channel: ChannelId, lane: Lane, carrier: usize) {
        let key = (channel, lane);
        if let Some((wake, _)) = self.lanes.get(&key) {
            return wake.notify_one();
        }
        let wake = Arc::new(Notify::new());
        let task = tokio::spawn(send_lane(
            Lanes {
                end: end.clone(),
                generation: self.generation,
            },
            self.carriers[carrier].clone(),
            channel,
            lane,
            wake.clone(),
        ));
        self.lanes.insert(key, (wake, task.abort_handle()));
    }

    /// The channel is gone: its lanes' tasks find that out when woken.
    pub fn forget(&mut self, channel: ChannelId) {
        self.lanes.retain(|(of, _), (wake, _)| {
            if *of == channel {
                wake.notify_one();
            }
            *of != channel
        });
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.lanes.values().for_each(|(_, task)| task.abort());
    }
}

/// What the tasks of one connection's lanes share.
#[derive(Clone)]
struct Lanes {
    end: Arc<End>,
    generation: u64,
}

impl Lanes {
    /// As [`End::with`], unless the connection is not the one there is now.
    fn with<R>(&self, work: impl FnOnce(&mut Session) -> R) -> Result<R, LinkError> {
        self.end.with_state(|state| match &state.link {
            Some(live) if live.generation == self.generation => Ok(work(&mut state.session)),
            _ => Err(LinkError::Stream(
                "another connection has taken over".to_owned(),
            )),
        })
    }
}

/// A connection whose settings have been exchanged, with those that have joined it.
pub(super) struct Greeted {
    pub connection: quinn::Connection,
    /// One for each code point of `carriers` after the first.
    pub further: Vec<quinn::Connection>,
    pub carriers: Carriers,
    pub send: SendStream,
    pub recv: RecvStream,
    /// What has been read of the control stream beyond the settings.
    pub buf: BytesMut,
    pub peer: Settings,
    pub resumed: bool,
}

/// The code a relay closes with that will not come back to this session.
pub(super) const STOPPED: u32 = 3;

/// Whether the other relay has ended this connection for good. Its streams may end a moment before
/// it says so.
pub(super) async fn was_stopped(connection: &quinn::Connection) -> bool {
    let closed = tokio::time::timeout(Duration::from_millis(100), connection.closed()).await;
    let Ok(quinn::ConnectionError::ApplicationClosed(closed)) = closed else {
        return false;
    };
    closed.error_code == STOPPED.into()
}

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum LinkError {
    Lost(quinn::ConnectionError),
    Stream(String),
    Wire(WireError),
}

impl std::fmt::Display for LinkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LinkError::Lost(error) => write!(f, "{error}"),
            LinkError::Stream(error) => f.write_str(error),
            LinkError::Wire(error) => write!(f, "the other relay broke the protocol: {error}"),
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

/// Carries the session over one connection until it breaks. Returns why it did.
pub(super) async fn run(end: &Arc<End>, greeted: Greeted) -> LinkError {
    let _turn = end.link_turn.lock().await;
    let Greeted {
        connection,
        further,
        carriers,
        send,
        recv,
        buf,
        peer,
        resumed,
    } = greeted;
    let generation = end.connects.fetch_add(1, Ordering::Relaxed);
    end.resumptions.fetch_add(resumed.into(), Ordering::Relaxed);
    let started = end.with_state(|state| {
        let connection = connection.clone();
        state.session.set_carriers(carriers);
        state.link = Some(Live {
            generation,
            carriers: [std::slice::from_ref(&connection), &further].concat(),
            connection,
            lanes: BTreeMap::new(),
        });
        state.session.handle_connected(&peer, resumed)
    });
    let error = match started {
        Err(error) => error.into(),
        Ok(()) => {
            if !resumed {
                end.begun.notify_one();
            }
            let lanes = Lanes {
                end: end.clone(),
                generation,
            };
            let mut tasks = JoinSet::new();
            tasks.spawn(write_control(end.clone(), send));
            tasks.spawn(read_control(end.clone(), recv, buf));
            for connection in [&connection].into_iter().chain(&further) {
                tasks.spawn(accept_lanes(lanes.clone(), connection.clone()));
                if end.is_scheduled() {
                    let connection = connection.clone();
                    tasks.spawn(async move {
                        quic::bound_unsent(connection).await;
                        LinkError::Stream("nothing bounds what is unsent".to_owned())
                    });
                }
            }
            let first = tasks.join_next().await.expect("three tasks");
            tasks.shutdown().await;
            first.unwrap_or_else(|panic| LinkError::Stream(panic.to_string()))
        }
    };
    // They are dialled again together.
    for connection in &further {
        connection.close(0u32.into(), b"another connection of the session has ended");
    }
    if let LinkError::Wire(error) = &error {
        connection.close(1u32.into(), error.0.as_bytes());
    }
    let now = end.now();
    end.with_state(|state| {
        state.link = None;
        state.session.handle_disconnected(now);
    });
    error
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

async fn read_control(end: Arc<End>, mut recv: RecvStream, mut buf: BytesMut) -> LinkError {
    loop {
        let handled = loop {
            match Control::take(&mut buf) {
                Err(error) => break Err(error.into()),
                Ok(None) => break read_more(&mut recv, &mut buf).await,
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
    let mut report_at = None;
    loop {
        let due = report_at.is_some_and(|at| at <= time::Instant::now());
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
            None => Some(time::Instant::now() + REPORT_DELAY),
            Some(at) if due => Some(at + REPORT_DELAY),
            set => set,
        };
        match report_at {
            None => end.control.notified().await,
            Some(at) => tokio::select! {
                () = end.control.notified() => {}
                () = time::sleep_until(at) => {}
            },
        }
    }
}

async fn accept_lanes(lanes: Lanes, connection: quinn::Connection) -> LinkError {
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            stream = connection.accept_uni() => match stream {
                Ok(stream) => drop(tasks.spawn(receive_lane(lanes.clone(), stream))),
                Err(error) => return error.into(),
            },
            Some(done) = tasks.join_next() => match done {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error,
                Err(panic) => return LinkError::Stream(panic.to_string()),
            },
        }
    }
}

async fn receive_lane(lanes: Lanes, mut recv: RecvStream) -> Result<(), LinkError> {
    let mut buf = BytesMut::new();
    let header = loop {
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
    loop {
        lanes.with(|session| session.handle_lane(channel, lane, &mut buf))??;
        let Some(chunk) = recv.read_chunk(READ_BYTES, true).await? else {
            return Ok(());
        };
        buf.extend_from_slice(&chunk.bytes);
    }
}

async fn send_lane(
    lanes: Lanes,
    connection: quinn::Connection,
    channel: ChannelId,
    lane: Lane,
    wake: Arc<Notify>,
) {
    // Any error is the connection's, which `run` learns of by itself, or a stream that the other
    // end stopped because its channel is gone.
    let sent = async {
        let mut send = connection.open_uni().await?;
        let (first, agent) =
            lanes.with(|session| (session.lane_position(channel, lane), session.agent(channel)))?;
        let _ = send.set_priority(priority(lane, agent));
        send.write_all(
            &LaneHeader {
                channel,
                lane,
                first,
            }
            .encode(),
        )
        .await?;
        // What a lane is given is no longer scheduled.
        let bytes_max = if lanes.end.is_scheduled() {
            1
        } else {
            SEND_BYTES
        };
        while let Some(mut chunks) =
            lanes.with(|session| session.poll_lane(channel, lane, bytes_max))?
        {
            if chunks.is_empty() {
                wake.notified().await;
            } else {
                send.write_all_chunks(&mut chunks).await?;
            }
        }
        let _ = send.finish();
        Ok::<(), LinkError>(())
    };
    if let Err(error) = sent.await {
        tracing::debug!(channel = channel.0, ?lane, %error, "lane ended");
    }
}

/// Strict between levels: echo, then state, packets, requests and replies, other agents.
fn priority(lane: Lane, agent: Option<Agent>) -> i32 {
    match lane.kind {
        _ if agent != Some(Agent::OpenFlow) => -1,
        LaneKind::Echo => 3,
        LaneKind::State => 2,
        LaneKind::Flow => 1,
        LaneKind::Exchange => 0,
    }
}
