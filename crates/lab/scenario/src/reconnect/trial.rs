//! One event on one way: what the packets of three pairs of hosts see of it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use crate::reconnect::bed::Bed;
use crate::reconnect::settings::{Cell, Event, Settings, Way};
use crate::report::milliseconds;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use testbed::plane::read_status;
use testbed::probe::{Flow, Prober, Sample};

/// Has its entries, and loses nothing whatever becomes of the controller.
const ESTABLISHED: (usize, usize) = (0, 1);
/// Begins while all is well: what an answer by the controller takes by itself.
const UNDISTURBED: (usize, usize) = (2, 3);
/// Begins at the event.
const NEW: (usize, usize) = (4, 5);

const READY_TIME_MAX: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The resolution of what the controllers have heard.
const LISTEN_INTERVAL: Duration = Duration::from_millis(5);
/// Of traffic, between looks at what was found.
const SLICE: Duration = Duration::from_millis(50);
/// For entries of the set-up to be in place and confirmed.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// Times are milliseconds since the event.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    pub event: Event,
    pub way: Way,
    pub run: u32,
    /// Of a new pair while all is well, since its first packet.
    pub undisturbed_ms: f64,
    /// Of the pair that begins at the event; `None`: not within the scenario's patience.
    pub first_answer_ms: Option<f64>,
    /// Until a controller had heard of that pair; `None`: never seen to.
    pub heard_ms: Option<f64>,
    /// Of that pair.
    pub new_sent: usize,
    pub new_lost: usize,
    /// Of the pair that has its entries.
    pub established_sent: usize,
    pub established_lost: usize,
    /// The TCP connection by which the switch has its controller is the same.
    pub survived: bool,
    pub entries_before: usize,
    /// That are not there afterwards.
    pub entries_lost: usize,
    /// Of the switch's relay, where there is one.
    pub resumptions: u64,
    pub reconnects: u64,
    /// Of the handshakes with early data, those whose early data was taken.
    pub early_sent: u64,
    pub early_accepted: u64,
}

impl Trial {
    pub fn line(&self) -> String {
        let answer = self.first_answer_ms;
        let answer = answer.map_or("never".to_owned(), |ms| format!("after {ms:.0} ms"));
        format!(
            "{} by {}: answered {answer} ({:.0} ms undisturbed), {} of {} lost, session {}",
            self.event.name(),
            self.way.name(),
            self.undisturbed_ms,
            self.new_lost,
            self.new_sent,
            if self.survived {
                "survived"
            } else {
                "begun anew"
            },
        )
    }
}

/// `None` when it was interrupted.
pub fn run(
    settings: &Settings,
    cell: Cell,
    interrupt: &Interrupt,
) -> Result<Option<Trial>, Failure> {
    let mut bed = Bed::start(settings, cell)?;
    let deadline = Instant::now() + READY_TIME_MAX;
    while !bed.is_connected() {
        if interrupt.is_set() {
            return Ok(None);
        }
        bed.check()?;
        if Instant::now() > deadline {
            return Err(Failure::negative("the switch does not connect within 30 s"));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let hosts = bed.network.topology.hosts.iter();
    let hosts: Vec<_> = hosts
        .map(|host| (bed.network.namespace(&host.name), host.address))
        .collect();
    let mut traffic = Traffic {
        prober: Prober::new(hosts).map_err(Failure::machine)?,
        flows: Vec::new(),
        interval: settings.interval(),
        interrupt,
    };
    traffic.carry(SETTLE_TIME)?;
    let mut begun = Duration::ZERO;
    for pair in [ESTABLISHED, UNDISTURBED] {
        begun = traffic.begin(pair);
        if traffic.await_answer(pair, READY_TIME_MAX)?.is_none() {
            let why = "hosts do not reach each other before anything happens";
            return if interrupt.is_set() {
                Ok(None)
            } else {
                Err(Failure::negative(why))
            };
        }
    }
    let undisturbed = first_answer(traffic.prober.samples(), UNDISTURBED);
    let undisturbed_ms = milliseconds(undisturbed.unwrap_or_default().saturating_sub(begun));
    traffic.carry(SETTLE_TIME)?;

    let (entries, sessions) = (bed.entries()?, bed.sessions()?);
    let first = traffic.prober.samples().len();
    let listens = Listens {
        sockets: bed.status_sockets(),
        mac: bed.network.topology.hosts[NEW.0].mac.to_string(),
        is_over: AtomicBool::new(false),
    };
    let (at, began) = (traffic.begin(NEW), Instant::now());
    // The traffic has a thread of its own: it does not stop while processes end and start.
    let (answer, heard) = std::thread::scope(|scope| {
        let deed = scope.spawn(|| bed.act());
        let heard = scope.spawn(|| listens.run(began));
        let answer = traffic.await_answer(NEW, settings.patience());
        listens.is_over.store(true, Ordering::Relaxed);
        let deed = deed.join();
        deed.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let heard = heard.join();
        let heard = heard.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok::<_, Failure>((answer?, heard))
    })?;
    traffic.carry(settings.after())?;
    traffic.settle()?;
    bed.check()?;
    if interrupt.is_set() {
        return Ok(None);
    }
    let (entries_now, sessions_now) = (bed.entries()?, bed.sessions()?);
    let status = bed.relay_status().unwrap_or_default();
    let samples = &traffic.prober.samples()[first..];
    let ([new_sent, new_lost], [established_sent, established_lost]) =
        (counts(samples, NEW), counts(samples, ESTABLISHED));
    Ok(Some(Trial {
        event: cell.event,
        way: cell.way,
        run: cell.run,
        undisturbed_ms,
        heard_ms: heard.map(milliseconds),
        first_answer_ms: answer.map(|answer| milliseconds(answer.saturating_sub(at))),
        new_sent,
        new_lost,
        established_sent,
        established_lost,
        survived: is_kept(&sessions, &sessions_now),
        entries_before: entries.len(),
        entries_lost: entries.difference(&entries_now).count(),
        resumptions: status["resumptions"].as_u64().unwrap_or(0),
        reconnects: status["reconnects"].as_u64().unwrap_or(0),
        early_sent: status["early_data"]["sent"].as_u64().unwrap_or(0),
        early_accepted: status["early_data"]["accepted"].as_u64().unwrap_or(0),
    }))
}

/// Asks the controllers whether they have heard of a host.
struct Listens {
    sockets: Vec<PathBuf>,
    mac: String,
    is_over: AtomicBool,
}

impl Listens {
    /// How long after `began` one had; `None` if none had before it was over.
    fn run(&self, began: Instant) -> Option<Duration> {
        while !self.is_over.load(Ordering::Relaxed) {
            let statuses = self.sockets.iter().filter_map(|socket| read_status(socket));
            if statuses.into_iter().any(|status| knows(&status, &self.mac)) {
                return Some(began.elapsed());
            }
            std::thread::sleep(LISTEN_INTERVAL);
        }
        None
    }
}

/// Whether the controller has heard of the host with that address.
fn knows(status: &Value, mac: &str) -> bool {
    let hosts = status["hosts"].as_array().map_or(&[][..], Vec::as_slice);
    hosts.iter().any(|host| host["mac"].as_str() == Some(mac))
}

/// There was a connection, and it is the one there is.
fn is_kept(before: &BTreeSet<u16>, after: &BTreeSet<u16>) -> bool {
    before.len() == 1 && before == after
}

/// Packets of pairs of hosts, each at the scenario's interval.
struct Traffic<'a> {
    prober: Prober,
    flows: Vec<Flow>,
    interval: Duration,
    interrupt: &'a Interrupt,
}

impl Traffic<'_> {
    /// A pair talks from now on. When that is, since the prober was made.
    fn begin(&mut self, (from, to): (usize, usize)) -> Duration {
        let now = self.prober.elapsed();
        self.flows.push(Flow {
            from,
            to,
            interval: self.interval,
            next: now,
        });
        now
    }

    fn carry(&mut self, time: Duration) -> Result<(), Failure> {
        let end = self.prober.elapsed() + time;
        while self.prober.elapsed() < end && !self.interrupt.is_set() {
            let until = end.min(self.prober.elapsed() + SLICE);
            if self.flows.is_empty() {
                std::thread::sleep(SLICE);
            }
            self.prober.carry(&mut self.flows, until).map_err(problem)?;
        }
        Ok(())
    }

    /// When the pair's first answer came, since the prober was made.
    fn await_answer(
        &mut self,
        pair: (usize, usize),
        at_most: Duration,
    ) -> Result<Option<Duration>, Failure> {
        let end = self.prober.elapsed() + at_most;
        loop {
            self.carry(SLICE)?;
            let answer = first_answer(self.prober.samples(), pair);
            if answer.is_some() || self.prober.elapsed() > end || self.interrupt.is_set() {
                return Ok(answer);
            }
        }
    }

    fn settle(&mut self) -> Result<(), Failure> {
        self.prober.settle().map_err(problem)
    }
}

fn problem(error: std::io::Error) -> Failure {
    Failure::machine(format!("ping: {error}"))
}

fn of_pair(samples: &[Sample], (from, to): (usize, usize)) -> impl Iterator<Item = &Sample> {
    samples.iter().filter(move |s| (s.from, s.to) == (from, to))
}

fn first_answer(samples: &[Sample], pair: (usize, usize)) -> Option<Duration> {
    of_pair(samples, pair)
        .filter_map(|s| Some(s.sent + s.rtt?))
        .min()
}

/// Sent and lost.
fn counts(samples: &[Sample], pair: (usize, usize)) -> [usize; 2] {
    let lost = of_pair(samples, pair).filter(|s| s.rtt.is_none()).count();
    [of_pair(samples, pair).count(), lost]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_answer_is_not_always_that_of_the_first_packet() {
        let ms = Duration::from_millis;
        let sample = |(from, to), sent, rtt: Option<u64>| Sample {
            from,
            to,
            sent: ms(sent),
            rtt: rtt.map(ms),
        };
        let samples = [
            sample(ESTABLISHED, 0, Some(1)),
            sample(NEW, 0, None),
            sample(NEW, 10, Some(500)),
            sample(NEW, 20, Some(400)),
        ];
        assert_eq!(first_answer(&samples, NEW), Some(ms(420)));
        assert_eq!(first_answer(&samples, UNDISTURBED), None);
        assert_eq!(counts(&samples, NEW), [3, 1]);
    }

    #[test]
    fn a_host_is_known_by_its_address_alone() {
        let status = serde_json::json!({"hosts": [{"mac": "02:00:00:00:00:15", "ips": []}]});
        assert!(knows(&status, "02:00:00:00:00:15") && !knows(&status, "02:00:00:00:00:1"));
        assert!(!knows(&Value::Null, "02:00:00:00:00:15"));
    }

    #[test]
    fn a_session_survived_if_its_connection_is_the_only_one_before_and_after() {
        let set = |ports: &[u16]| ports.iter().copied().collect::<BTreeSet<u16>>();
        assert!(is_kept(&set(&[40_000]), &set(&[40_000])));
        for (before, after) in [(&[40_000][..], &[40_001][..]), (&[1], &[1, 2]), (&[], &[])] {
            assert!(!is_kept(&set(before), &set(after)), "{before:?} {after:?}");
        }
    }
}
