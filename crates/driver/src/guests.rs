//! Connections to guests: one for each guest and each switch that it sees.
//!
//! The controller answers the guests ([`control::guest`]). This module dials them, again and again,
//! and carries the bytes. A guest that hangs, floods or talks nonsense ends its own connection.
//!
//! | what | bound | at the bound |
//! | --- | --- | --- |
//! | messages of one connection | [`MESSAGES_PER_S`], and [`MESSAGES_AT_ONCE`] | it is not read |
//! | changes that the switch has not confirmed | 4,096 | the same |
//! | packets that the guest does not read | [`PACKET_BYTES_MAX`] | left out, counted |
//! | all that the guest does not read | [`BYTES_MAX`] | the connection ends |
//! | silence of the guest | [`SILENT_MAX`], with an echo after a third | the same |
//! | bytes that the guest does not take | [`STALLED_MAX`] | the same |

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::BytesMut;
use clock::Budget;
use control::clustered::Clustered;
use control::guest::{GUESTS_MAX, News, Sink};
use net::clock::Clock;
use net::method::Method;
use net::tls::Security;
use net::transport::{Connection, Reader, Writer, connect};
use openflow::{DatapathId, Frame, Message, Version, Xid, encode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::reconnect::Reconnect;
use crate::{Driver, lock};

pub const MESSAGES_PER_S: u32 = 2000;
pub const MESSAGES_AT_ONCE: u32 = 4096;
pub const PACKET_BYTES_MAX: usize = 256 << 10;
pub const BYTES_MAX: usize = 4 << 20;
pub const SILENT_MAX: Duration = Duration::from_secs(30);
pub const STALLED_MAX: Duration = Duration::from_secs(10);

/// Messages handed to the controller at once.
const TURN: usize = 64;
/// Bytes of one write.
const WRITE: usize = 64 << 10;
/// The pause in reading a guest whose switch has much to confirm, or that sends too fast.
const PAUSE: Duration = Duration::from_millis(20);
/// Tries to reach the controller, and the pause between two.
const TRIES: usize = 2000;
const RETRY: Duration = Duration::from_millis(5);

/// A guest's name and where it listens.
#[derive(Clone, Debug)]
pub struct Target {
    pub name: Arc<str>,
    pub method: Method,
}

/// The connections to all guests.
pub struct Guests {
    lines: Arc<Lines>,
    starts: mpsc::UnboundedReceiver<Start>,
}

/// The connections by guest and switch.
struct Lines {
    all: Mutex<BTreeMap<(u8, DatapathId), Line>>,
    starts: mpsc::UnboundedSender<Start>,
    shed: Arc<Unread>,
}

/// Packets by guest.
type Unread = [AtomicU64; GUESTS_MAX];

/// The controller's end of one connection.
struct Line {
    frames: mpsc::UnboundedSender<Frame>,
    /// The bytes of the queued frames.
    waiting: Arc<AtomicUsize>,
    life: watch::Sender<Life>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Life {
    /// The number of orders to end a connection.
    ends: u64,
    /// Whether the switch has disconnected.
    is_over: bool,
}

/// A guest and a switch whose connection is to be dialled.
struct Start {
    guest: u8,
    dpid: DatapathId,
    frames: mpsc::UnboundedReceiver<Frame>,
    own: mpsc::UnboundedSender<Frame>,
    waiting: Arc<AtomicUsize>,
    life: watch::Receiver<Life>,
}

/// Packets dropped because their guest did not read.
#[derive(Clone, Default)]
pub struct Shed(Arc<Unread>);

impl Shed {
    pub fn count(&self, guest: u8) -> u64 {
        let count = self.0.get(usize::from(guest));
        count.map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

impl Default for Guests {
    fn default() -> Guests {
        let (sender, starts) = mpsc::unbounded_channel();
        let lines = Lines {
            all: Mutex::default(),
            starts: sender,
            shed: Arc::default(),
        };
        Guests {
            lines: Arc::new(lines),
            starts,
        }
    }
}

impl Guests {
    /// Returns the function that receives the controller's news.
    pub fn sink(&self) -> Sink {
        let lines = self.lines.clone();
        Box::new(move |news| lines.take(news))
    }

    pub fn shed(&self) -> Shed {
        Shed(self.lines.shed.clone())
    }

    /// Dials and serves the guests until the future is dropped. `seed` is for the jitter of
    /// dialling.
    pub async fn serve(
        mut self,
        driver: Arc<Driver<Clustered>>,
        targets: Vec<Target>,
        clock: Clock,
        seed: u64,
    ) {
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                start = self.starts.recv() => {
                    let Some(start) = start else { return };
                    let target = targets.get(usize::from(start.guest)).cloned();
                    let seed = seed ^ start.dpid.0 ^ u64::from(start.guest) << 56;
                    if let Some(target) = target {
                        tasks.spawn(keep(driver.clone(), target, start, clock, seed));
                    }
                }
                Some(_) = tasks.join_next() => {}
            }
        }
    }
}

impl Lines {
    fn take(&self, news: News) {
        let mut all = lock(&self.all);
        match news {
            News::Up { guest, dpid } => {
                let (frames, received) = mpsc::unbounded_channel();
                let (life, lives) = watch::channel(Life::default());
                let waiting = Arc::new(AtomicUsize::new(0));
                let start = Start {
                    guest,
                    dpid,
                    frames: received,
                    own: frames.clone(),
                    waiting: waiting.clone(),
                    life: lives,
                };
                let line = Line {
                    frames,
                    waiting,
                    life,
                };
                if let Some(before) = all.insert((guest, dpid), line) {
                    before.life.send_modify(|life| life.is_over = true);
                }
                let _ = self.starts.send(start);
            }
            News::Down { guest, dpid } => {
                if let Some(line) = all.remove(&(guest, dpid)) {
                    line.life.send_modify(|life| life.is_over = true);
                }
            }
            News::End { guest, dpid } => {
                if let Some(line) = all.get(&(guest, dpid)) {
                    line.life.send_modify(|life| life.ends += 1);
                }
            }
            News::Send {
                guest,
                dpid,
                frame,
                is_packet,
            } => {
                let Some(line) = all.get(&(guest, dpid)) else {
                    return;
                };
                let waiting = line.waiting.load(Ordering::Relaxed);
                if is_packet && waiting > PACKET_BYTES_MAX {
                    if let Some(count) = self.shed.get(usize::from(guest)) {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                } else if waiting > BYTES_MAX {
                    line.life.send_modify(|life| life.ends += 1);
                } else {
                    line.waiting.fetch_add(counted(&frame), Ordering::Relaxed);
                    let _ = line.frames.send(frame);
                }
            }
        }
    }
}

/// The bytes that a waiting message counts for.
fn counted(frame: &Frame) -> usize {
    frame.len() + size_of::<Frame>()
}

/// Asks the controller, again if too many questions wait. Returns `None` if the controller has
/// ended, or is stuck.
async fn ask<R: Send + 'static>(
    driver: &Driver<Clustered>,
    question: impl FnOnce(&mut Clustered) -> R + Clone + Send + 'static,
) -> Option<R> {
    for _ in 0..TRIES {
        if let Some(answer) = driver.ask(question.clone()).await {
            return Some(answer);
        }
        tokio::time::sleep(RETRY).await;
    }
    None
}

/// Keeps a guest connected for a switch until the switch disconnects.
async fn keep(
    driver: Arc<Driver<Clustered>>,
    target: Target,
    mut start: Start,
    clock: Clock,
    seed: u64,
) {
    let (guest, dpid) = (start.guest, start.dpid);
    let mut reconnect = Reconnect::new(seed);
    let mut problem: Option<String> = None;
    let mut life = start.life.clone();
    let plain = Security::plain();
    loop {
        let dialled = tokio::select! {
            dialled = connect(&target.method, &plain) => dialled,
            () = over(&mut life) => return,
        };
        match dialled {
            Ok(connection) => {
                reconnect.handle_connected(clock.now());
                problem = None;
                // These frames were for an earlier connection.
                while let Ok(frame) = start.frames.try_recv() {
                    start.waiting.fetch_sub(counted(&frame), Ordering::Relaxed);
                }
                let now = clock.now();
                let connected = move |controller: &mut Clustered| {
                    controller.guest_connected(now, guest, dpid);
                };
                if ask(&driver, connected).await.is_none() {
                    return;
                }
                let why = serve(&driver, connection, &mut start, &mut life, clock).await;
                let now = clock.now();
                let disconnected = move |controller: &mut Clustered| {
                    controller.guest_disconnected(now, guest, dpid, &why);
                };
                if life.borrow().is_over || ask(&driver, disconnected).await.is_none() {
                    return;
                }
            }
            Err(error) => {
                let error = error.to_string();
                if problem.as_ref() != Some(&error) {
                    tracing::warn!("guest {}: {error}; trying again", target.name);
                }
                problem = Some(error);
            }
        }
        let due = reconnect.handle_disconnected(clock.now());
        tokio::select! {
            () = tokio::time::sleep_until(clock.deadline(due)) => {}
            () = over(&mut life) => return,
        }
    }
}

/// Resolves when the switch has disconnected.
async fn over(life: &mut watch::Receiver<Life>) {
    // An error means that the controller has ended.
    let _ = life.wait_for(|life| life.is_over).await;
}

/// Serves a connection. Returns why it has ended.
async fn serve(
    driver: &Driver<Clustered>,
    connection: Connection,
    start: &mut Start,
    life: &mut watch::Receiver<Life>,
    clock: Clock,
) -> String {
    let id = (start.guest, start.dpid);
    let own = start.own.clone();
    let waiting = start.waiting.clone();
    let queue = |frame: Frame| {
        waiting.fetch_add(counted(&frame), Ordering::Relaxed);
        let _ = own.send(frame);
    };
    let ends = life.borrow_and_update().ends;
    let ended = life.wait_for(|life| life.is_over || life.ends != ends);
    let mut writer = connection.writer;
    let why = tokio::select! {
        why = read(driver, id, connection.reader, queue, clock) => why,
        why = write(&mut writer, &mut start.frames, &start.waiting) => why,
        ended = ended => match ended.is_ok_and(|life| life.is_over) {
            true => "the switch has gone".to_owned(),
            false => "it speaks no OpenFlow 1.3, or does not read".to_owned(),
        },
    };
    // Writes the answer that reports the error.
    let last = async {
        while let Ok(frame) = start.frames.try_recv() {
            start.waiting.fetch_sub(counted(&frame), Ordering::Relaxed);
            writer.write_all(frame.bytes()).await?;
        }
        writer.shutdown().await
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), last).await;
    why
}

async fn write(
    writer: &mut Writer,
    frames: &mut mpsc::UnboundedReceiver<Frame>,
    waiting: &AtomicUsize,
) -> String {
    let mut bytes = BytesMut::new();
    while let Some(first) = frames.recv().await {
        let mut next = Some(first);
        while let Some(frame) = next {
            waiting.fetch_sub(counted(&frame), Ordering::Relaxed);
            bytes.extend_from_slice(frame.bytes());
            next = match bytes.len() < WRITE {
                true => frames.try_recv().ok(),
                false => None,
            };
        }
        let written = writer.write_all(&bytes);
        match tokio::time::timeout(STALLED_MAX, written).await {
            Ok(Ok(())) => bytes.clear(),
            Ok(Err(error)) => return error.kind().to_string(),
            Err(_) => return "it takes no bytes".to_owned(),
        }
    }
    "the controller has ended".to_owned()
}

async fn read(
    driver: &Driver<Clustered>,
    (guest, dpid): (u8, DatapathId),
    mut reader: Reader,
    queue: impl Fn(Frame),
    clock: Clock,
) -> String {
    let mut bytes = BytesMut::new();
    let mut budget = Budget::new(clock.now(), MESSAGES_PER_S, MESSAGES_AT_ONCE);
    let mut silences = 0;
    loop {
        let some = reader.read_buf(&mut bytes);
        match tokio::time::timeout(SILENT_MAX / 3, some).await {
            Ok(Ok(0)) => return "closed by the guest".to_owned(),
            Ok(Ok(_)) => silences = 0,
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(Err(error)) => return error.kind().to_string(),
            Err(_) if silences >= 2 => return "it is silent".to_owned(),
            Err(_) => {
                silences += 1;
                let echo = Message::EchoRequest(bytes::Bytes::new());
                if let Ok(frame) = encode(Version::V13, Xid(0), &echo) {
                    queue(frame);
                }
                continue;
            }
        }
        loop {
            let mut frames = Vec::new();
            while frames.len() < TURN {
                match Frame::split_from(&mut bytes) {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(error) => return format!("not OpenFlow: {error}"),
                }
            }
            if frames.is_empty() {
                break;
            }
            while !budget.take_many(clock.now(), frames.len() as u32) {
                tokio::time::sleep(PAUSE).await;
            }
            let mut frames: Arc<[Frame]> = frames.into();
            loop {
                let (now, given) = (clock.now(), frames.clone());
                let take = move |controller: &mut Clustered| {
                    controller.guest_frames(now, guest, dpid, &given)
                };
                match ask(driver, take).await {
                    Some((taken, is_behind)) => {
                        frames = frames.get(taken..).unwrap_or_default().into();
                        if frames.is_empty() && !is_behind {
                            break;
                        }
                    }
                    None => return "the controller does not answer".to_owned(),
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
