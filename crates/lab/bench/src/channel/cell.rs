//! One cell from its namespaces to its figures: the link, the two ends, and the order of events.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use net::tls::Security;
use nix::fcntl::OFlag;
use sched::Direction;
use serde::Serialize;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::carrier::Terms;
use super::end::{self, DeviceCounters, Event, Order, Outcome};
use super::grid::{Cell, Condition, Table};
use super::tally::{self, Tally};
use measure::stats::Summary;
use testbed::link::{self, Direction as LinkDirection, Report};

/// Preamble 8, FCS 4 and gap 12, which a frame costs on a wire besides its bytes.
const LINE_OVERHEAD_BYTES: f64 = sim::link::LINE_OVERHEAD_BYTES as f64;
/// Messages that are not there this long after the last was due count as undelivered.
const DELIVERY_TIME_MAX: Duration = Duration::from_secs(20);
const CONNECT_TIME_MAX: Duration = Duration::from_secs(30);
const END_TIME_MAX: Duration = Duration::from_secs(10);
/// Time from the last connection to the first message: the last messages of handshakes cross
/// before.
const SETTLE: Duration = Duration::from_millis(100);
/// Time for the last acknowledgements, besides a round trip: delayed ones wait for 40 ms.
const ACKNOWLEDGE: Duration = Duration::from_millis(100);
const POLL: Duration = Duration::from_millis(50);

/// The figures of one cell.
#[derive(Clone, Debug, Serialize)]
pub struct CellResult {
    pub table: Table,
    pub method: &'static str,
    pub sizes_bytes: Vec<usize>,
    pub rtt_ms: f64,
    pub rtt_deviation_ms: f64,
    pub rate_per_s: f64,
    pub loss_percent: f64,
    /// The mean length of a bad time, or 0 where each frame is lost by itself; and the loss in a
    /// bad time.
    pub burst_frames: f64,
    pub burst_loss_percent: f64,
    pub agents: usize,
    pub seed: u64,
    /// Messages of both ends, like all figures below.
    pub messages: u64,
    pub undelivered: u64,
    /// Messages that are not ours, or were delivered twice.
    pub wrong: u64,
    pub application_bytes: u64,
    /// Frames offered to the link less the messages delivered.
    pub overhead_bytes_per_message: f64,
    /// The overhead with preamble, FCS and gap of each frame.
    pub overhead_line_bytes_per_message: f64,
    pub frames_per_message: f64,
    pub delay_ms: Summary,
    /// Messages that came after a later one of their agent; and of their agent and flow.
    pub overtaken: u64,
    pub overtaken_in_flow: u64,
    /// CPU time of the threads of both ends. The kernel's work when the link hands it a frame
    /// counts for the link.
    pub cpu_us_per_message: f64,
    pub link_cpu_us_per_message: f64,
    /// The longest that an agent woke late: a property of this machine, not of the method.
    pub pacing_late_max_ms: f64,
    pub to_controller: LinkFigures,
    pub to_switch: LinkFigures,
    /// Why a connection broke.
    pub broken: Option<String>,
}

/// One direction of the link, by its own counts and by those of the device that feeds it.
#[derive(Clone, Debug, Serialize)]
pub struct LinkFigures {
    pub frames: u64,
    pub bytes: u64,
    pub ip_frames: u64,
    pub ip_bytes: u64,
    pub lost: u64,
    /// The places of the first of them among all frames.
    pub first_lost: Vec<u64>,
    pub delivered: u64,
    pub delivered_bytes: u64,
    pub dropped: u64,
    pub late_mean_us: f64,
    pub late_max_us: f64,
    /// The kernel's counts at the sending device, and at the receiving one.
    pub device_sent_frames: u64,
    pub device_sent_bytes: u64,
    pub device_received_frames: u64,
    pub device_received_bytes: u64,
}

/// Runs a cell; `None` when it was interrupted.
pub fn run(
    cell: &Arc<Cell>,
    security: &Security,
    interrupted: &AtomicBool,
) -> Result<Option<CellResult>, String> {
    let mut ends = Ends::start(cell, security)?;
    let outcome = ends.measure(cell, interrupted);
    // Whatever happened, nothing is left running: without orders an end ends.
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

    fn measure(
        &mut self,
        cell: &Cell,
        interrupted: &AtomicBool,
    ) -> Result<Option<CellResult>, String> {
        let by = Instant::now() + CONNECT_TIME_MAX;
        let device = |event| match event {
            Event::Device(file) => Some(file),
            _ => None,
        };
        let Some(devices) = self.both(by, interrupted, device)? else {
            return Ok(None);
        };
        self.link = Some(RunningLink::start(cell, devices)?);
        self.order(|| Order::Connect);
        let connected = |event| matches!(event, Event::Connected).then_some(());
        if self.both(by, interrupted, connected)?.is_none() {
            return Ok(None);
        }
        let start = Instant::now() + SETTLE;
        self.order(|| Order::Start(start));
        let until = start + cell.last_due() + DELIVERY_TIME_MAX;
        let complete = |event| matches!(event, Event::Complete).then_some(());
        // Not complete by then is not a failure: it is what is measured.
        match self.both(until, interrupted, complete) {
            Ok(None) => return Ok(None),
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
        let outcomes = self.both(by, interrupted, done)?;
        Ok(outcomes.map(|outcomes| CellResult::new(cell, &outcomes, &link)))
    }

    fn order(&self, order: impl Fn() -> Order) {
        for orders in &self.orders {
            // An end that is gone has said why.
            let _ = orders.send(order());
        }
    }

    /// Waits for an event of each end and returns what `wanted` makes of them, the switch's first;
    /// `None` when interrupted.
    fn both<T>(
        &self,
        by: Instant,
        interrupted: &AtomicBool,
        wanted: impl Fn(Event) -> Option<T>,
    ) -> Result<Option<[T; 2]>, String> {
        let [mut switch, mut controller] = [None, None];
        loop {
            if let (true, true) = (switch.is_some(), controller.is_some()) {
                return Ok(switch.zip(controller).map(|(a, b)| [a, b]));
            }
            if interrupted.load(Ordering::Relaxed) {
                return Ok(None);
            }
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
            // The pipe is readable when its other end is closed, and that is meant.
            if let Err(failure) = link::carry(&mut directions, &stopped, || true) {
                tracing::warn!("the link: {failure:?}");
            }
            LinkOutcome {
                reports: directions.each_ref().map(LinkDirection::report),
                cpu: end::thread_cpu(),
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
    fn new(cell: &Cell, outcomes: &[Box<Outcome>; 2], link: &LinkOutcome) -> CellResult {
        let Condition {
            rate_per_s,
            loss_percent,
            bursts,
            rtt,
            sizes,
        } = &cell.condition;
        let sum = |of: fn(&Tally) -> u64| -> u64 { outcomes.iter().map(|o| of(&o.tally)).sum() };
        let delivered = sum(|tally| tally.messages);
        let application_bytes = sum(|tally| tally.bytes);
        let ip_frames = link.reports.iter().map(|report| report.ip_frames).sum();
        let ip_bytes = link.reports.iter().map(|report| report.ip_bytes).sum();
        let overhead = Overhead::of(delivered, application_bytes, ip_frames, ip_bytes);
        let per_message = |time: Duration| time.as_secs_f64() * 1e6 / delivered.max(1) as f64;
        let late_max = outcomes.iter().map(|o| o.pacing_late_max).max();
        let [to_controller, to_switch] = [[0, 1], [1, 0]].map(|[from, to]| {
            LinkFigures::new(
                &link.reports[from],
                outcomes[from].device,
                outcomes[to].device,
            )
        });
        CellResult {
            table: cell.table,
            method: cell.method.name,
            sizes_bytes: sizes.0.clone(),
            rtt_ms: rtt.ms,
            rtt_deviation_ms: rtt.deviation_ms,
            rate_per_s: *rate_per_s,
            loss_percent: *loss_percent,
            burst_frames: bursts.frames,
            burst_loss_percent: bursts.loss_percent,
            agents: cell.agents,
            seed: cell.seed,
            messages: cell.messages(),
            undelivered: cell.messages().saturating_sub(delivered),
            wrong: sum(|tally| tally.wrong),
            application_bytes,
            overhead_bytes_per_message: overhead.bytes,
            overhead_line_bytes_per_message: overhead.line_bytes,
            frames_per_message: overhead.frames,
            delay_ms: delays(outcomes),
            overtaken: sum(Tally::overtaken),
            overtaken_in_flow: sum(Tally::overtaken_in_flow),
            cpu_us_per_message: per_message(outcomes.iter().map(|o| o.cpu).sum()),
            link_cpu_us_per_message: per_message(link.cpu),
            pacing_late_max_ms: late_max.unwrap_or_default().as_secs_f64() * 1e3,
            to_controller,
            to_switch,
            broken: outcomes.iter().find_map(|outcome| outcome.broken.clone()),
        }
    }
}

/// Per message delivered.
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

fn delays(outcomes: &[Box<Outcome>; 2]) -> Summary {
    let mut delays_us = tally::new_histogram();
    let mut sum = Duration::ZERO;
    for outcome in outcomes {
        outcome.tally.add_delays_to(&mut delays_us);
        sum += outcome.tally.delay_sum();
    }
    let max = outcomes.iter().map(|o| o.tally.delay_max()).max();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    // The histogram has three digits; the mean and the largest are known exactly.
    Summary {
        mean: ms(sum) / delays_us.len().max(1) as f64,
        max: ms(max.unwrap_or_default()),
        ..Summary::of_histogram(&delays_us, 1e-3)
    }
}

impl LinkFigures {
    fn new(report: &Report, from: DeviceCounters, to: DeviceCounters) -> LinkFigures {
        LinkFigures {
            frames: report.offered,
            bytes: report.offered_bytes,
            ip_frames: report.ip_frames,
            ip_bytes: report.ip_bytes,
            lost: report.lost,
            first_lost: report.first_lost.clone(),
            delivered: report.delivered,
            delivered_bytes: report.delivered_bytes,
            dropped: report.queue_full
                + report.too_many_frames
                + report.write_failed
                + from.dropped_frames,
            late_mean_us: report.late_mean_us,
            late_max_us: report.late_max_us,
            device_sent_frames: from.sent_frames,
            device_sent_bytes: from.sent_bytes,
            device_received_frames: to.received_frames,
            device_received_bytes: to.received_bytes,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A plausible result, for tests of reports.
    pub fn result(method: &'static str, loss_percent: f64, seed: u64) -> CellResult {
        let link = LinkFigures::new(
            &Report {
                from: String::new(),
                to: String::new(),
                offered: 1300,
                offered_bytes: 400_000,
                ip_frames: 1300,
                ip_bytes: 400_000,
                delivered: 1300,
                delivered_bytes: 400_000,
                lost: 0,
                first_lost: Vec::new(),
                queue_full: 0,
                too_many_frames: 0,
                write_failed: 0,
                late_mean_us: 5.0,
                late_max_us: 900.0,
            },
            DeviceCounters::default(),
            DeviceCounters::default(),
        );
        CellResult {
            table: Table::Grid,
            method,
            sizes_bytes: vec![220],
            rtt_ms: 100.0,
            rtt_deviation_ms: 0.0,
            rate_per_s: 100.0,
            loss_percent,
            burst_frames: 0.0,
            burst_loss_percent: 100.0,
            agents: 2,
            seed,
            messages: 2000,
            undelivered: 0,
            wrong: 0,
            application_bytes: 440_000,
            overhead_bytes_per_message: 88.0,
            overhead_line_bytes_per_message: 119.0,
            frames_per_message: 1.3,
            delay_ms: Summary::of(&[50.0, 60.0]),
            overtaken: 0,
            overtaken_in_flow: 0,
            cpu_us_per_message: 30.0,
            link_cpu_us_per_message: 30.0,
            pacing_late_max_ms: 1.0,
            to_controller: link.clone(),
            to_switch: link,
            broken: None,
        }
    }

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
