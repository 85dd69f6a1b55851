//! The plan of a run, and the state by which its threads report their progress to each other.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use net::method::Method;
use net::tls::Security;
use serde::Serialize;

use super::Workload;
use super::attack::{Attack, Attacked};
use super::layout::Layout;
use super::links::Links;
use super::switch::{Delays, Load, Profile};
use super::tally::Tally;
use crate::histogram::Histogram;

/// One run against one controller.
#[derive(Clone, Debug)]
pub struct Plan {
    pub method: Method,
    pub security: Security,
    pub profile: Profile,
    pub switch_count: u16,
    pub port_count: u32,
    pub source_count: u32,
    /// Datapath id of the first switch; the others follow.
    pub dpid_first: u64,
    /// The number of switches that connect before each pause.
    pub connect_group: u32,
    pub connect_pause: Duration,
    pub thread_count: usize,
    pub mode: Mode,
    pub workload: Workload,
    /// Packet-ins a second of [`Workload::Storm`], all of one host of the first switch.
    pub storm_rate: f64,
    /// The attack of [`Workload::Attack`].
    pub attack: Attack,
    /// Time for the controller to answer every source once.
    pub learn_max: Duration,
    pub warmup: Duration,
    pub interval: Duration,
    pub interval_count: u32,
    /// Interval of each switch's echo requests while the load runs.
    pub echo_interval: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A window of packet-ins per switch.
    Throughput,
    /// One packet-in per switch at a time.
    Latency,
    /// Packet-ins a second, over all switches, whether they are answered or not.
    Open { rate: f64 },
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Throughput => "throughput",
            Mode::Latency => "latency",
            Mode::Open { .. } => "open loop",
        }
    }

    pub fn load(self) -> Load {
        match self {
            Mode::Throughput | Mode::Latency => Load::Closed,
            Mode::Open { .. } => Load::Open,
        }
    }
}

impl Plan {
    pub fn layout(&self, switch: u16) -> Layout {
        Layout {
            switch,
            dpid_first: self.dpid_first,
            port_count: self.port_count,
            source_count: self.source_count,
            line: match self.workload {
                Workload::Paths => self.switch_count,
                _ => 0,
            },
        }
    }

    /// Whether this switch is the one that storms, and so is not measured.
    pub fn storms(&self, switch: u16) -> bool {
        switch == 0 && self.workload == Workload::Storm
    }

    pub fn measured(&self) -> Duration {
        self.interval * self.interval_count
    }

    /// The switches of one thread.
    pub fn share(&self, thread: usize) -> impl Iterator<Item = u16> + use<> {
        let step = self.thread_count;
        (thread..usize::from(self.switch_count))
            .step_by(step)
            .map(|switch| switch as u16)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    Connect,
    Learn,
    WarmUp,
    Measure,
    /// Nothing more is sent; waiting packet-ins may still be answered.
    Drain,
}

impl Phase {
    const ALL: [Phase; 5] = [
        Phase::Connect,
        Phase::Learn,
        Phase::WarmUp,
        Phase::Measure,
        Phase::Drain,
    ];
}

/// State shared by the conductor and its threads.
pub struct Control {
    start: Instant,
    phase: AtomicU8,
    pub threads: Vec<Progress>,
    pub links: Links,
    problem: Mutex<Option<String>>,
}

/// Progress of one thread: numbers of its switches.
#[derive(Default)]
pub struct Progress {
    pub connected: AtomicU32,
    /// Switches that could not connect in several tries.
    pub given_up: AtomicU32,
    /// Switches that were asked for their features.
    pub admitted: AtomicU32,
    pub ready: AtomicU32,
    pub not_learned: AtomicU32,
    pub learned: AtomicU32,
    pub gone: AtomicU32,
    pub answered: AtomicU64,
    /// Answers of any kind, right or wrong.
    pub heard: AtomicU64,
    pub is_done: AtomicBool,
}

impl Control {
    pub fn new(thread_count: usize) -> Control {
        Control {
            start: Instant::now(),
            phase: AtomicU8::new(Phase::Connect as u8),
            threads: (0..thread_count).map(|_| Progress::default()).collect(),
            links: Links::new(thread_count),
            problem: Mutex::new(None),
        }
    }

    /// Time since the run began.
    pub fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    pub fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.phase.load(Ordering::Acquire))]
    }

    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    pub fn sum(&self, of: impl Fn(&Progress) -> &AtomicU32) -> u32 {
        let each = self.threads.iter();
        each.map(|thread| of(thread).load(Ordering::Relaxed)).sum()
    }

    pub fn answered(&self) -> u64 {
        let each = self.threads.iter();
        each.map(|thread| thread.answered.load(Ordering::Relaxed))
            .sum()
    }

    pub fn heard(&self) -> u64 {
        let each = self.threads.iter();
        each.map(|thread| thread.heard.load(Ordering::Relaxed))
            .sum()
    }

    pub fn all_done(&self) -> bool {
        let mut each = self.threads.iter();
        each.all(|thread| thread.is_done.load(Ordering::Relaxed))
    }

    /// Records the first problem only: the others follow from it.
    pub fn note_problem(&self, problem: String) {
        let mut kept = self.problem.lock().unwrap_or_else(|e| e.into_inner());
        kept.get_or_insert(problem);
    }

    pub fn problem(&self) -> Option<String> {
        let kept = self.problem.lock().unwrap_or_else(|e| e.into_inner());
        kept.clone()
    }
}

/// The measurements of one thread, or of all together.
#[derive(Default)]
pub struct Measured {
    pub elapsed: Duration,
    /// Answers within that time.
    pub answered: u64,
    pub intervals: Vec<Interval>,
    /// The tally of the measured packet-ins, with answers that arrived afterwards.
    pub tally: Tally,
    pub delays: Delays,
    /// Open loop: how much later than intended packet-ins were sent.
    pub lag: Histogram,
    pub cpu: Vec<Duration>,
    /// Time when each switch was asked for its features, from the start of the run.
    pub admitted_ns: Vec<u64>,
    /// The delays before a storm ([`Workload::Storm`]), and the number of its packet-ins.
    pub quiet: Histogram,
    pub strays: u64,
    /// Strays that the connection did not take.
    pub strays_unsent: u64,
    /// The result of [`Workload::Attack`].
    pub attacked: Option<Attacked>,
}

/// Answers of each switch within a part of the measured time.
#[derive(Clone, Debug)]
pub struct Interval {
    pub elapsed: Duration,
    pub answered: Vec<(u16, u64)>,
}

impl Interval {
    pub fn rate(&self) -> f64 {
        let answered: u64 = self.answered.iter().map(|(_, count)| count).sum();
        answered as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

impl Measured {
    /// Merges the measurements of another thread from the same time.
    pub fn merge(&mut self, other: Measured) {
        self.elapsed = self.elapsed.max(other.elapsed);
        self.answered += other.answered;
        self.tally.add(&other.tally);
        self.delays.answers.merge(&other.delays.answers);
        self.delays.echoes.merge(&other.delays.echoes);
        self.lag.merge(&other.lag);
        self.quiet.merge(&other.quiet);
        if let Some(timeline) = other.delays.timeline {
            let mine = self.delays.timeline.get_or_insert_default();
            mine.extend(timeline);
        }
        self.strays += other.strays;
        self.strays_unsent += other.strays_unsent;
        self.cpu.extend(other.cpu);
        self.admitted_ns.extend(other.admitted_ns);
        for (at, interval) in other.intervals.into_iter().enumerate() {
            match self.intervals.get_mut(at) {
                Some(mine) => {
                    mine.elapsed = mine.elapsed.max(interval.elapsed);
                    mine.answered.extend(interval.answered);
                }
                None => self.intervals.push(interval),
            }
        }
    }

    pub fn rate(&self) -> f64 {
        self.answered as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The busiest thread's share of a core.
    pub fn busiest(&self) -> f64 {
        let elapsed = self.elapsed.as_secs_f64().max(1e-9);
        let share = |cpu: &Duration| cpu.as_secs_f64() / elapsed;
        self.cpu.iter().map(share).fold(0.0, f64::max)
    }

    pub fn cpu_total(&self) -> Duration {
        self.cpu.iter().sum()
    }
}
