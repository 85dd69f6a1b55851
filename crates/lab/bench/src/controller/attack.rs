//! `--workload attack`: one more switch connects beside the measured ones and is accepted like
//! them. In the second third of the measured time, it sends packet-ins as fast as the connection
//! takes them, or at a rate. It reads nothing meanwhile, unless it is set to read.
//!
//! The attacker has its own thread and a non-blocking socket, so that its cost is measured
//! separately and the measured switches share no thread with it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use net::method::{Host, Method, Transport};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;

use super::plan::{Control, Phase, Plan};
use super::switch::{Delays, Switch};
use crate::thread_cpu;
use cli::table::Columns;
use measure::stats::Summary;
use report::plot::Series;

/// The attacker's behaviour.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Attack {
    /// Packet-ins a second; if absent, as fast as the connection takes them.
    #[serde(rename = "rate_per_s")]
    pub rate: Option<f64>,
    /// Whether the attacker reads the messages sent to it.
    pub reads: bool,
    /// The number of different sources of its packet-ins.
    pub hosts: u32,
}

/// The result of an attack.
#[derive(Clone, Debug, Default)]
pub struct Attacked {
    /// Time from the start of the run.
    pub start_ns: u64,
    pub end_ns: u64,
    pub sent: u64,
    pub cpu: Duration,
    /// Time when the controller closed the attacker's connection.
    pub closed_ns: Option<u64>,
}

/// Packet-ins of one write. Those not written when the attack ends are still sent.
const BATCH: u32 = 256;
/// At a rate, packet-ins that are due within this time are sent together.
const RATE_STEP: Duration = Duration::from_millis(1);
const TICK: Duration = Duration::from_millis(5);
const CARE_NS: u64 = 50_000_000;
/// Length of a slot in the plot.
const SLOT_NS: u64 = 100_000_000;
/// Time for which delays must be as before the attack to count as recovered.
const RECOVERED_NS: u64 = 500_000_000;
/// The factor up to which the p99 counts as the same as before the attack.
const RECOVERED_RATIO: f64 = 2.0;

/// Runs the attacker to the end of the measured time.
pub fn run(plan: &Plan, control: &Arc<Control>) -> Result<Attacked, String> {
    let failed = |error: io::Error| format!("the attacker: {error}");
    let Method::Dial(Transport::Tcp, Host::V4(host), port) = &plan.method else {
        return Err("--workload attack speaks to controllers by tcp:".to_string());
    };
    let stream = TcpStream::connect((*host, *port)).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    stream.set_nonblocking(true).map_err(failed)?;
    let layout = plan.layout(plan.switch_count);
    let mut switch =
        Switch::new(Rc::new(plan.profile.clone()), layout).map_err(|e| e.to_string())?;
    let mut out = Vec::new();
    switch
        .handle_connected(&mut out)
        .map_err(|e| e.to_string())?;
    let attacker = Attacker {
        plan,
        control,
        switch,
        stream,
        out,
        written: 0,
        input: Vec::new(),
        delays: Delays::default(),
        source: 0,
        measure_ns: None,
        done: Attacked::default(),
    };
    attacker.run().map_err(failed)
}

struct Attacker<'a> {
    plan: &'a Plan,
    control: &'a Control,
    switch: Switch,
    stream: TcpStream,
    out: Vec<u8>,
    /// Bytes of `out` already sent.
    written: usize,
    /// Bytes received but not yet handled.
    input: Vec<u8>,
    delays: Delays,
    source: u32,
    /// Time when the measured time began.
    measure_ns: Option<u64>,
    done: Attacked,
}

impl Attacker<'_> {
    fn run(mut self) -> io::Result<Attacked> {
        let mut cared_ns = 0;
        loop {
            let now_ns = self.control.now_ns();
            let phase = self.control.phase();
            if phase == Phase::Measure {
                self.measure_ns.get_or_insert(now_ns);
            }
            if phase == Phase::Drain {
                self.done.cpu = thread_cpu();
                return Ok(self.done);
            }
            let attacks = self.attacks(now_ns);
            if now_ns >= cared_ns + CARE_NS && !attacks {
                cared_ns = now_ns;
                let _ = self.switch.handle_tick(now_ns, &mut self.out);
            }
            if attacks && self.out.is_empty() {
                self.fill(now_ns);
            }
            let reads = !attacks || self.plan.attack.reads;
            if self.done.closed_ns.is_some() {
                std::thread::sleep(TICK);
                continue;
            }
            let moved = self.exchange(reads);
            let is_over = match moved {
                Ok(is_over) => is_over,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
                Err(_) => true,
            };
            if is_over {
                self.done.closed_ns = Some(self.control.now_ns());
            }
            if attacks && self.done.end_ns < now_ns {
                self.done.end_ns = now_ns;
            }
            self.wait(attacks, reads)?;
        }
    }

    /// Whether it is the second third of the measured time.
    fn attacks(&mut self, now_ns: u64) -> bool {
        let third = self.plan.interval.as_nanos() as u64;
        let Some(measure_ns) = self.measure_ns else {
            return false;
        };
        let attacks = (measure_ns + third..measure_ns + 2 * third).contains(&now_ns);
        if attacks && self.done.start_ns == 0 {
            self.done.start_ns = now_ns;
        }
        attacks
    }

    fn fill(&mut self, now_ns: u64) {
        let due = match self.plan.attack.rate {
            None => BATCH,
            Some(rate) => {
                let elapsed_s = (now_ns - self.done.start_ns) as f64 / 1e9;
                let due = (elapsed_s * rate) as u64;
                due.saturating_sub(self.done.sent).min(u64::from(BATCH)) as u32
            }
        };
        for _ in 0..due {
            self.source = self.source % self.plan.attack.hosts + 1;
            self.switch.send_stray_of(self.source, &mut self.out);
        }
        self.done.sent += u64::from(due);
    }

    /// Sends, and reads if wanted. Returns true if the connection is over.
    fn exchange(&mut self, reads: bool) -> io::Result<bool> {
        if reads {
            let mut buffer = [0; 64 << 10];
            let count = match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(true),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            };
            self.input.extend_from_slice(&buffer[..count]);
            let now_ns = self.control.now_ns();
            let taken =
                self.switch
                    .handle_bytes(now_ns, &self.input, &mut self.delays, &mut self.out);
            let Ok(taken) = taken else {
                return Ok(true);
            };
            self.input.drain(..taken);
        }
        while self.written < self.out.len() {
            self.written += self.stream.write(&self.out[self.written..])?;
        }
        self.out.clear();
        self.written = 0;
        Ok(false)
    }

    /// Waits until there is something to do.
    fn wait(&self, attacks: bool, reads: bool) -> io::Result<()> {
        let mut wanted = PollFlags::empty();
        if reads {
            wanted |= PollFlags::POLLIN;
        }
        if !self.out.is_empty() {
            wanted |= PollFlags::POLLOUT;
        }
        let patience = match self.plan.attack.rate {
            None if attacks && self.out.is_empty() => Duration::ZERO,
            Some(_) if attacks => RATE_STEP,
            _ => TICK,
        };
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::ZERO);
        let mut fds = [PollFd::new(self.stream.as_fd(), wanted)];
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The table of attacks, each with its controller and the number of its round.
pub fn table(rows: &[(&str, u32, &AttackDocument)]) -> String {
    Columns::of(rows)
        .text("controller", |(name, ..)| *name)
        .text("round", |(_, round, _)| *round)
        .number("before p50 µs", 1, |(.., attack)| attack.before.p50)
        .number("p99", 1, |(.., attack)| attack.before.p99)
        .number("attack p50 µs", 1, |(.., attack)| attack.during.p50)
        .number("p99", 1, |(.., attack)| attack.during.p99)
        .number("of before", 2, |(.., attack)| attack.ratio_p99)
        .number("after p50 µs", 1, |(.., attack)| attack.after.p50)
        .number("p99", 1, |(.., attack)| attack.after.p99)
        .maybe("recovered s", 2, |(.., attack)| attack.recovered_s)
        .number("packet-ins/s taken", 0, |(.., attack)| {
            attack.packet_ins_per_s
        })
        .maybe("closed s", 2, |(.., attack)| attack.attacker_closed_s)
        .maybe("memory + MiB", 2, |(.., attack)| attack.memory_growth_mib)
        .number("attacker cores", 2, |(.., attack)| attack.attacker_cpu)
        .table()
}

/// Delays of the measured switches before, during and after the attack.
#[derive(Clone, Debug, Serialize)]
pub struct AttackDocument {
    pub before: Summary,
    pub during: Summary,
    /// Delays after the end of the attack.
    pub after: Summary,
    /// p99 during the attack, divided by p99 before it.
    pub ratio_p99: f64,
    /// Time from the end of the attack to the first half second, in steps of 0.1 s, whose p99 is at
    /// most twice the p99 before. `None` if there was none in the measured time.
    pub recovered_s: Option<f64>,
    pub packet_ins: u64,
    pub packet_ins_per_s: f64,
    pub attacker_cpu: f64,
    /// Time since the attack began.
    pub attacker_closed_s: Option<f64>,
    pub memory_growth_mib: Option<f64>,
    /// Slots of 0.1 s each.
    pub slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Slot {
    /// Time from the start of the attack.
    pub since_s: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub answered: u64,
}

fn summary(delays_ns: impl Iterator<Item = u64>) -> Summary {
    Summary::of(delays_ns.map(|ns| ns as f64 / 1e3))
}

impl AttackDocument {
    /// `timeline` has the due time of each answered packet-in, and the delay of its answer.
    pub fn new(
        attacked: &Attacked,
        timeline: &[(u64, u64)],
        elapsed_s: f64,
        memory_growth_mib: Option<f64>,
    ) -> AttackDocument {
        let (start, end) = (attacked.start_ns, attacked.end_ns);
        let within = |from: u64, to: u64| {
            let some = timeline
                .iter()
                .filter(move |(at, _)| (from..to).contains(at));
            some.map(|(_, delay)| *delay)
        };
        let before = summary(within(0, start));
        let during = summary(within(start, end));
        let after = summary(within(end, u64::MAX));
        let first = timeline.iter().map(|(at, _)| *at).min().unwrap_or(start);
        let last = timeline.iter().map(|(at, _)| *at).max().unwrap_or(end);
        // Slots are aligned with the end of the attack, so that each is of one phase or the other.
        let origin = end - (end.saturating_sub(first)) / SLOT_NS * SLOT_NS;
        let mut slots = Vec::new();
        let mut recovered_ns = None;
        for from in (origin..last.saturating_sub(SLOT_NS)).step_by(SLOT_NS as usize) {
            let slot = summary(within(from, from + SLOT_NS));
            let at_s = (from as f64 - start as f64) / 1e9;
            slots.push(Slot {
                since_s: at_s,
                p50_us: slot.p50,
                p99_us: slot.p99,
                answered: slot.count,
            });
            if from >= end && recovered_ns.is_none() && from + RECOVERED_NS <= last {
                let then = summary(within(from, from + RECOVERED_NS));
                let is_as_before = then.count > 0 && then.p99 <= RECOVERED_RATIO * before.p99;
                recovered_ns = is_as_before.then_some(from - end);
            }
        }
        let attack_s = (end.saturating_sub(start) as f64 / 1e9).max(1e-9);
        AttackDocument {
            ratio_p99: during.p99 / before.p99.max(1e-3),
            before,
            during,
            after,
            recovered_s: recovered_ns.map(|ns| ns as f64 / 1e9),
            packet_ins: attacked.sent,
            packet_ins_per_s: attacked.sent as f64 / attack_s,
            attacker_cpu: attacked.cpu.as_secs_f64() / elapsed_s.max(1e-9),
            attacker_closed_s: attacked
                .closed_ns
                .map(|ns| (ns as f64 - start as f64) / 1e9),
            memory_growth_mib,
            slots,
        }
    }

    /// Returns the p99 of the measured switches over time.
    pub fn series(&self, name: &str) -> Series {
        let points = self.slots.iter().map(|s| (s.since_s, s.p99_us));
        Series::new(name, points.collect())
    }
}
