//! One of the two ends of a cell: a thread in a network namespace of its own, with a runtime, the
//! agents, and for the relay method a relay.

use cli::program;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use net::alarm::Alarm;
use sched::Direction;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::carrier::{CONTROLLER_ADDRESS, SWITCH_ADDRESS, Terms};
use super::condition::Cell;
use super::method::{Carrier, Tcp};
use super::outlet::Outlet;
use super::source::{self, Source};
use super::tally::Tally;
use crate::thread_cpu;
use testbed::netns;

/// The device of each end: every end has a namespace of its own.
const DEVICE: &str = "t0";
/// Frames that the device queues while the link is late; the default of 1000 is 50 ms at full rate.
const DEVICE_QUEUE_FRAMES: u32 = 20_000;
/// Messages that were due at once are written at once, up to this many.
const BURST_MAX: u32 = 32;
const READ_BYTES: usize = 64 * 1024;

/// An event that an end reports.
pub enum Event {
    /// The device is up and the listener listens.
    Device(File),
    Connected,
    /// All messages for this end have arrived.
    Complete,
    Done(Box<Outcome>),
    Failed(String),
}

/// An order to an end.
pub enum Order {
    Connect,
    /// Time zero of the messages.
    Start(Instant),
    Stop,
}

/// The results of one end.
pub struct Outcome {
    pub tally: Tally,
    /// CPU time of this end's thread between start and stop.
    pub cpu: Duration,
    pub device: DeviceCounters,
    /// The longest delay of an agent's wake-up.
    pub pacing_late_max: Duration,
    /// Why a connection broke, if one did.
    pub broken: Option<String>,
}

/// The kernel's own counts of the device: sent towards the link, and received from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    pub sent_frames: u64,
    pub sent_bytes: u64,
    pub received_frames: u64,
    pub received_bytes: u64,
    /// Frames dropped because the link was so late that the device's queue was full.
    pub dropped_frames: u64,
}

/// Runs an end until it is done, in this thread.
pub fn run(terms: &Terms, events: &Sender<(Direction, Event)>, orders: UnboundedReceiver<Order>) {
    let outcome = enter(&terms.cell, terms.sends)
        .map_err(|error| format!("a network namespace with a TAP device: {error}"))
        .and_then(|device| {
            let runtime = crate::runtime().map_err(|error| error.to_string())?;
            runtime.block_on(live(terms, device, events, orders))
        });
    let event = match outcome {
        Ok(Some(outcome)) => Event::Done(Box::new(outcome)),
        Ok(None) => return,
        Err(problem) => Event::Failed(problem),
    };
    // Nobody receives this event if the cell was given up.
    let _ = events.send((terms.sends, event));
}

/// Returns `None` if the queue of orders has closed.
async fn live(
    terms: &Terms,
    device: File,
    events: &Sender<(Direction, Event)>,
    mut orders: UnboundedReceiver<Order>,
) -> Result<Option<Outcome>, String> {
    let say = |event| {
        let _ = events.send((terms.sends, event));
    };
    let bound = terms.bind().await.map_err(|e| format!("listening: {e}"))?;
    // The device exists while a descriptor of it is open, and its counters are read at the end.
    let ours = device.try_clone().map_err(|e| format!("the device: {e}"))?;
    say(Event::Device(device));
    let Some(Order::Connect) = orders.recv().await else {
        return Ok(None);
    };
    let cell = &terms.cell;
    let inbox = Arc::new(Inbox::new(cell));
    let mut channel = tokio::select! {
        channel = terms.connect(bound, &inbox) => channel.map_err(|e| format!("connecting: {e}"))?,
        _ = orders.recv() => return Ok(None),
    };
    say(Event::Connected);
    let Some(Order::Start(start)) = orders.recv().await else {
        return Ok(None);
    };
    inbox.begin(start);
    let cpu_before = thread_cpu();
    let mut agents = JoinSet::new();
    for (source, outlet) in cell
        .sources(terms.sends)
        .into_iter()
        .zip(channel.outlets.drain(..))
    {
        let (inbox, sends) = (inbox.clone(), terms.sends);
        agents.spawn(async move {
            match send(source, outlet, sends, start).await {
                Ok(late_max) => inbox.lock().pacing_late_max.raise(late_max),
                Err(error) => inbox.note(&error),
            }
        });
    }
    let mut is_complete = false;
    loop {
        tokio::select! {
            () = inbox.complete.notified(), if !is_complete => {
                is_complete = true;
                say(Event::Complete);
            }
            order = orders.recv() => match order {
                Some(Order::Stop) => break,
                _ => return Ok(None),
            },
        }
    }
    let cpu = thread_cpu().saturating_sub(cpu_before);
    let device = device_counters().map_err(|e| format!("/proc/thread-self/net/dev: {e}"))?;
    drop(ours);
    drop(agents);
    let mut received = inbox.lock();
    Ok(Some(Outcome {
        tally: std::mem::replace(&mut received.tally, Tally::new(0, 0)),
        cpu,
        device,
        pacing_late_max: received.pacing_late_max,
        broken: received.broken.take(),
    }))
}

/// Sends an agent's messages, each when it is due. Returns the longest delay of a wake-up.
async fn send(
    source: Source,
    mut outlet: Outlet,
    direction: Direction,
    start: Instant,
) -> io::Result<Duration> {
    let mut alarm = Alarm::new()?;
    let mut message = BytesMut::new();
    let (mut late_max, mut burst) = (Duration::ZERO, 0);
    for (stamp, size_bytes) in source {
        let due = start + stamp.due;
        if alarm.wait_until(due).await? {
            late_max.raise(due.elapsed());
            burst = 0;
        } else {
            burst += 1;
            if burst % BURST_MAX == 0 {
                tokio::task::yield_now().await;
            }
        }
        message.clear();
        source::encode(&stamp, direction, size_bytes, &mut message);
        outlet.send(&message).await?;
    }
    Ok(late_max)
}

/// The messages that arrive at an end, from all its connections.
pub struct Inbox {
    start: OnceLock<Instant>,
    messages: usize,
    received: Mutex<Received>,
    complete: tokio::sync::Notify,
}

struct Received {
    tally: Tally,
    pacing_late_max: Duration,
    broken: Option<String>,
}

impl Inbox {
    fn new(cell: &Cell) -> Inbox {
        Inbox {
            start: OnceLock::new(),
            messages: cell.messages_per_agent as usize * cell.agents,
            received: Mutex::new(Received {
                tally: Tally::new(cell.agents, cell.messages_per_agent),
                pacing_late_max: Duration::ZERO,
                broken: None,
            }),
            complete: tokio::sync::Notify::new(),
        }
    }

    fn begin(&self, start: Instant) {
        let _ = self.start.set(start);
    }

    /// Reads whole messages until the stream ends.
    pub async fn read(
        &self,
        reader: &mut (impl AsyncRead + Unpin),
        direction: Direction,
    ) -> io::Result<()> {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(READ_BYTES);
            if reader.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
            let now = self.start.get().map_or(Duration::ZERO, Instant::elapsed);
            let mut received = self.lock();
            while let Some(message) = source::split_message(&mut buffer) {
                let stamp = source::decode(&message, direction);
                received.tally.handle(stamp, message.len(), now);
            }
            if received.tally.arrivals.len() == self.messages {
                self.complete.notify_one();
            }
        }
    }

    /// Keeps the first error: later ones follow from it.
    pub fn note(&self, error: &dyn Display) {
        self.lock().broken.get_or_insert_with(|| error.to_string());
    }

    fn lock(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

trait Raise {
    fn raise(&mut self, to: Duration);
}

impl Raise for Duration {
    fn raise(&mut self, to: Duration) {
        *self = (*self).max(to);
    }
}

/// Creates the network namespace of this thread and its end of the link. Nothing but IP crosses the
/// link: neighbours are known, IPv6 is silent.
fn enter(cell: &Cell, sends: Direction) -> Result<File, Box<dyn std::error::Error>> {
    netns::enter_new()?;
    let device = netns::open_tap_here(DEVICE)?;
    let mac = |number: u8| format!("02:00:00:00:00:{number:02x}");
    let (number, address, other) = match sends {
        Direction::ToController => (1, SWITCH_ADDRESS, CONTROLLER_ADDRESS),
        Direction::ToSwitch => (2, CONTROLLER_ADDRESS, SWITCH_ADDRESS),
    };
    let lines = [
        "link set lo up".to_owned(),
        format!("link set {DEVICE} address {}", mac(number)),
        format!("link set {DEVICE} txqueuelen {DEVICE_QUEUE_FRAMES}"),
        format!("address add {address}/24 dev {DEVICE}"),
        format!("link set {DEVICE} up"),
        format!(
            "neighbour replace {other} lladdr {} dev {DEVICE}",
            mac(3 - number)
        ),
    ];
    program::ip_batch(None, &lines).map_err(|failure| failure.message().to_owned())?;
    if let Carrier::Tcp(Tcp {
        rto_min_us: Some(rto_min_us),
        ..
    }) = cell.method.carrier
    {
        let file = "/proc/sys/net/ipv4/tcp_rto_min_us";
        std::fs::write(file, rto_min_us.to_string())
            .map_err(|error| format!("{file}: {error}; it needs Linux 6.11"))?;
    }
    Ok(device)
}

fn device_counters() -> io::Result<DeviceCounters> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    parse_device_counters(&text).ok_or_else(|| io::Error::other("no such device in it"))
}

/// Parses eight columns for received, then eight for sent: bytes, packets, errors, drops, …
fn parse_device_counters(text: &str) -> Option<DeviceCounters> {
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(DEVICE)?.strip_prefix(':'))?;
    let columns: Vec<u64> = line
        .split_whitespace()
        .map(|word| word.parse().ok())
        .collect::<Option<_>>()?;
    Some(DeviceCounters {
        received_bytes: *columns.first()?,
        received_frames: *columns.get(1)?,
        sent_bytes: *columns.get(8)?,
        sent_frames: *columns.get(9)?,
        dropped_frames: columns.get(3)? + columns.get(11)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counters_are_read_by_column() {
        let text = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo \
 colls carrier compressed
    lo:  500       5    0    0    0     0          0         0      500       5    0    0    0     \
    0       0          0
    t0: 1000      10    0    1    0     0          0         0     2000      20    0    2    0     \
    0       0          0
";
        let counters = DeviceCounters {
            sent_frames: 20,
            sent_bytes: 2000,
            received_frames: 10,
            received_bytes: 1000,
            dropped_frames: 3,
        };
        assert_eq!(parse_device_counters(text), Some(counters));
        assert_eq!(parse_device_counters("    lo: 1 2 3"), None);
    }
}
