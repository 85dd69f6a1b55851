//! One cell from its namespaces to its figures: the link, the two ends, and the order of events.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use net::tls::Security;
use nix::fcntl::OFlag;
use sched::Direction;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::carrier::Terms;
use super::condition::Cell;
use super::end::{self, DeviceCounters, Event, Order, Outcome};
use super::tally::{Arrival, Tally};
use testbed::link::{self, Direction as LinkDirection, Report};

/// Bytes that a frame costs on a wire besides its own: preamble 8, FCS 4 and gap 12.
const LINE_OVERHEAD_BYTES: f64 = sim::link::LINE_OVERHEAD_BYTES as f64;
/// Messages that have not arrived this long after the last was due count as undelivered.
const DELIVERY_TIME_MAX: Duration = Duration::from_secs(20);
const CONNECT_TIME_MAX: Duration = Duration::from_secs(30);
const END_TIME_MAX: Duration = Duration::from_secs(10);
/// Time from the last connection to the first message, in which the last messages of handshakes
/// cross.
const SETTLE: Duration = Duration::from_millis(100);
/// Time for the last acknowledgements, besides a round trip: delayed ones wait for 40 ms.
const ACKNOWLEDGE: Duration = Duration::from_millis(100);
const POLL: Duration = Duration::from_millis(50);

/// The figures of one cell.
#[derive(Clone, Debug)]
pub struct CellResult {
    /// Messages of both ends, like all figures below.
    pub messages: u64,
    pub undelivered: u64,
    /// Messages that are not ours, or were delivered twice.
    pub wrong: u64,
    /// Bytes of the frames offered to the link, less those of the messages delivered, per message.
    pub overhead_bytes: f64,
    /// The overhead with preamble, FCS and gap of each frame.
    pub line_overhead_bytes: f64,
    /// Frames per message.
    pub frames: f64,
    /// The delivered messages.
    pub arrivals: Vec<Arrival>,
    /// Messages that arrived after a later one of the same agent, and of the same agent and flow.
    pub overtaken: u64,
    pub overtaken_in_flow: u64,
    /// CPU time per message of the threads of both ends. The kernel's work when the link hands it a
    /// frame counts for the link.
    pub cpu_us: f64,
    pub link_cpu_us: f64,
    /// The longest delay of an agent's wake-up: a property of this machine, not of the method.
    pub pacing_late_max: Duration,
    /// Towards the controller, and towards the switch.
    pub links: [LinkFigures; 2],
    /// Why a connection broke.
    pub broken: Option<String>,
}

/// One direction of the link.
#[derive(Clone, Debug)]
pub struct LinkFigures {
    pub lost: u64,
    /// Positions of the first lost frames among all frames.
    pub first_lost: Vec<u64>,
    /// Frames that this machine dropped, besides the frames that the link is meant to lose.
    pub dropped: u64,
    /// The mean lateness of the link's deliveries.
    pub late_mean_us: f64,
    /// Frames and bytes in which the link's own counts differ from those of the kernel's devices,
    /// and frames without IP.
    pub miscounted: u64,
}

/// Runs a cell from set-up to clean-up.
pub fn run(cell: &Arc<Cell>, security: &Security) -> Result<CellResult, String> {
    let mut ends = Ends::start(cell, security)?;
    let outcome = ends.measure(cell);
    // Whatever happened, nothing is left running: an end stops when its queue of orders closes.
    ends.orders.clear();
    if let Some(link) = ends.link.take() {
        link.stop();
    }
    let mut problem = None;
    for thread in ends.threads.drain(..) {
        if thread.join().is_err() {
            problem = Some("an end of the cell panicked".to_owned());
        }
    }
    match (outcome, problem) {
        (Ok(_), Some(problem)) => Err(problem),
        (outcome, _) => outcome,
    }
}

struct Ends {
    /// Queues of orders for the switch's end and the controller's.
    orders: Vec<UnboundedSender<Order>>,
    events: Receiver<(Direction, Event)>,
    threads: Vec<JoinHandle<()>>,
    link: Option<RunningLink>,
}

const SIDES: [Direction; 2] = [Direction::ToController, Direction::ToSwitch];

impl Ends {
    fn start(cell: &Arc<Cell>, security: &Security) -> Result<Ends, String> {
        let (sender, events) = channel();
        let mut ends = Ends {
            orders: Vec::new(),
            events,
            threads: Vec::new(),
            link: None,
        };
        for sends in SIDES {
            let (orders, taken) = unbounded_channel();
            let terms = Terms {
                cell: cell.clone(),
                sends,
                security: security.clone(),
            };
            let events = sender.clone();
            let thread = std::thread::Builder::new()
                .name("channel-end".to_owned())
                .spawn(move || end::run(&terms, &events, taken))
                .map_err(|error| format!("a thread: {error}"))?;
            ends.orders.push(orders);
            ends.threads.push(thread);
        }
        Ok(ends)
    }

    fn measure(&mut self, cell: &Cell) -> Result<CellResult, String> {
        let by = Instant::now() + CONNECT_TIME_MAX;
        let device = |event| match event {
            Event::Device(file) => Some(file),
            _ => None,
        };
        let devices = self.both(by, device)?;
        self.link = Some(RunningLink::start(cell, devices)?);
        self.order(|| Order::Connect);
        let connected = |event| matches!(event, Event::Connected).then_some(());
        self.both(by, connected)?;
        let start = Instant::now() + SETTLE;
        self.order(|| Order::Start(start));
        let until = start + cell.last_due() + DELIVERY_TIME_MAX;
        let complete = |event| matches!(event, Event::Complete).then_some(());
        // Missing messages are not a failure at this point: they are part of the measurement.
        match self.both(until, complete) {
            Err(problem) if Instant::now() < until => return Err(problem),
            _ => {}
        }
        let rtt = cell.condition.rtt;
        let rtt = Duration::from_secs_f64((rtt.ms + 3.0 * rtt.deviation_ms) / 1e3);
        std::thread::sleep(rtt + ACKNOWLEDGE);
        // The link first: what the kernel counts after it would not be in the link's counts.
        let Some(link) = self.link.take().and_then(RunningLink::stop) else {
            return Err("the link ended before the measurement".to_owned());
        };
        self.order(|| Order::Stop);
        let done = |event| match event {
            Event::Done(outcome) => Some(outcome),
            _ => None,
        };
        let by = Instant::now() + END_TIME_MAX;
        let outcomes = self.both(by, done)?;
        Ok(CellResult::new(cell, outcomes, &link))
    }

    fn order(&self, order: impl Fn() -> Order) {
        for orders in &self.orders {
            // An end that has stopped has already reported why.
            let _ = orders.send(order());
        }
    }

    /// Waits until `wanted` accepts an event of each end. Returns both results, the switch's first.
    fn both<T>(&self, by: Instant, wanted: impl Fn(Event) -> Option<T>) -> Result<[T; 2], String> {
        let (mut switch, mut controller) = (None, None);
        loop {
            (switch, controller) = match (switch, controller) {
                (Some(switch), Some(controller)) => return Ok([switch, controller]),
                missing => missing,
            };
            if Instant::now() >= by {
                return Err("the ends did not answer in time".to_owned());
            }
            match self.events.recv_timeout(POLL) {
                Ok((_, Event::Failed(problem))) => return Err(problem),
                Ok((Direction::ToController, event)) => switch = wanted(event).or(switch),
                Ok((Direction::ToSwitch, event)) => controller = wanted(event).or(controller),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err("both ends are gone".to_owned()),
            }
        }
    }
}

/// The link's thread, which carries frames until it is stopped.
struct RunningLink {
    stop: OwnedFd,
    thread: JoinHandle<LinkOutcome>,
}

struct LinkOutcome {
    reports: [Report; 2],
    cpu: Duration,
}

impl RunningLink {
    fn start(cell: &Cell, devices: [File; 2]) -> Result<RunningLink, String> {
        let names = ["switch".to_owned(), "controller".to_owned()];
        let mut directions = link::join(devices, names, &cell.link_config(), cell.seed)?;
        let (stopped, stop) =
            nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(|error| format!("a pipe: {error}"))?;
        let carry = move || {
            // The kernel may round a wait up by 50 µs otherwise, a third of a short link's delay.
            if let Err(error) = nix::sys::prctl::set_timerslack(1) {
                tracing::warn!("timer slack: {error}");
            }
            // The pipe becomes readable when its other end is closed, which is the signal to stop.
            if let Err(failure) = link::carry(&mut directions, &stopped, || true) {
                tracing::warn!("the link: {failure:?}");
            }
            LinkOutcome {
                reports: directions.each_ref().map(LinkDirection::report),
                cpu: crate::thread_cpu(),
            }
        };
        let thread = std::thread::Builder::new()
            .name("channel-link".to_owned())
            .spawn(carry)
            .map_err(|error| format!("a thread: {error}"))?;
        Ok(RunningLink { stop, thread })
    }

    fn stop(self) -> Option<LinkOutcome> {
        drop(self.stop);
        self.thread.join().ok()
    }
}

impl CellResult {
    fn new(cell: &Cell, outcomes: [Box<Outcome>; 2], link: &LinkOutcome) -> CellResult {
        let sum = |of: fn(&Tally) -> u64| -> u64 { outcomes.iter().map(|o| of(&o.tally)).sum() };
        let delivered = sum(|tally| tally.arrivals.len() as u64);
        let ip_frames = link.reports.iter().map(|report| report.ip_frames).sum();
        let ip_bytes = link.reports.iter().map(|report| report.ip_bytes).sum();
        let overhead = Overhead::of(delivered, sum(|tally| tally.bytes), ip_frames, ip_bytes);
        let per_message = |time: Duration| time.as_secs_f64() * 1e6 / delivered.max(1) as f64;
        let late_max = outcomes.iter().map(|o| o.pacing_late_max).max();
        CellResult {
            messages: cell.messages(),
            undelivered: cell.messages().saturating_sub(delivered),
            wrong: sum(|tally| tally.wrong),
            overhead_bytes: overhead.bytes,
            line_overhead_bytes: overhead.line_bytes,
            frames: overhead.frames,
            overtaken: sum(Tally::overtaken),
            overtaken_in_flow: sum(Tally::overtaken_in_flow),
            cpu_us: per_message(outcomes.iter().map(|o| o.cpu).sum()),
            link_cpu_us: per_message(link.cpu),
            pacing_late_max: late_max.unwrap_or_default(),
            links: [[0, 1], [1, 0]].map(|[from, to]| {
                let [sent, received] = [from, to].map(|end| outcomes[end].device);
                LinkFigures::new(&link.reports[from], sent, received)
            }),
            broken: outcomes.iter().find_map(|outcome| outcome.broken.clone()),
            arrivals: outcomes
                .into_iter()
                .flat_map(|o| o.tally.arrivals)
                .collect(),
        }
    }
}

/// Overhead per delivered message.
#[derive(Debug, PartialEq)]
struct Overhead {
    bytes: f64,
    line_bytes: f64,
    frames: f64,
}

impl Overhead {
    /// The traffic on the link beyond the messages themselves, for each message.
    fn of(messages: u64, application_bytes: u64, frames: u64, frame_bytes: u64) -> Overhead {
        let messages = messages.max(1) as f64;
        let bytes = frame_bytes as f64 - application_bytes as f64;
        Overhead {
            bytes: bytes / messages,
            line_bytes: (bytes + LINE_OVERHEAD_BYTES * frames as f64) / messages,
            frames: frames as f64 / messages,
        }
    }
}

impl LinkFigures {
    fn new(report: &Report, from: DeviceCounters, to: DeviceCounters) -> LinkFigures {
        let pairs = [
            (report.offered, from.sent_frames),
            (report.offered_bytes, from.sent_bytes),
            (report.offered, report.ip_frames),
            (report.delivered, to.received_frames),
            (report.delivered_bytes, to.received_bytes),
        ];
        LinkFigures {
            lost: report.lost,
            first_lost: report.first_lost.clone(),
            dropped: report.queue_full
                + report.too_many_frames
                + report.write_failed
                + from.dropped_frames,
            late_mean_us: report.late_mean_us,
            miscounted: pairs
                .iter()
                .map(|(own, kernel)| own.abs_diff(*kernel))
                .sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_is_what_crossed_less_what_was_meant_to() {
        // Two messages of 220 bytes, each in a frame of 14 + 20 + 32 more, and one bare ACK of 66.
        let overhead = Overhead::of(2, 440, 3, 2 * (220 + 66) + 66);
        assert_eq!(
            overhead,
            Overhead {
                bytes: 99.0,
                line_bytes: 99.0 + 36.0,
                frames: 1.5
            }
        );
        assert_eq!(Overhead::of(0, 0, 0, 0).bytes, 0.0);
    }
}
