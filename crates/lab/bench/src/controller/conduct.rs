//! Takes the threads of a run through its phases and merges their measurements.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Workload;
use super::attack;
use super::churn;
use super::links::Carried;
use super::plan::{Control, Measured, Phase, Plan};
use super::target::Server;
use super::worker;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::parallel::joined;
use cli::progress::Progress;

const POLL: Duration = Duration::from_millis(5);
/// Between two threads' looks at the phase, with room for a loaded machine.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// One run, with its set-up and outcome.
pub struct Run {
    pub measured: Measured,
    pub setup: Setup,
    pub target: Option<TargetUsage>,
    pub is_storm: bool,
    /// Frames between switches, where they have links.
    pub links: Option<Carried>,
    /// Reason why connections were lost, if some were.
    pub problem: Option<String>,
    /// Time from the start of the measuring until the controller died.
    pub died_after: Option<Duration>,
}

impl Run {
    /// Returns the failure of a controller that died before the measuring was over.
    pub fn death(&self) -> Option<Failure> {
        let after_s = self.died_after?.as_secs_f64();
        let why = self.problem.as_deref().unwrap_or("its process ended");
        Some(Failure::network(format!(
            "it died {after_s:.2} s into the measuring: {why}"
        )))
    }
}

/// The set-up until the measuring began.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Setup {
    pub switches_connected: u32,
    /// Switches whose destination is known: a probe was answered by anything but a flood.
    pub switches_ready: u32,
    /// Switches lost by the end of the run.
    pub switches_lost: u32,
    /// Time from the first connection to the last answer about features.
    pub admitted_s: f64,
    /// Time from the first connection to the last probe that was answered.
    pub ready_s: f64,
    /// Time for all sources to be answered once.
    pub learn_s: f64,
    /// False if the time for learning ran out.
    pub learned: bool,
}

/// The controller's use of CPU and memory while it was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct TargetUsage {
    pub cpu: Duration,
    pub memory_peak_mib: f64,
    /// The growth of memory during that time.
    pub memory_growth_mib: f64,
}

/// The conductor's part of a run, beside the threads' measurements.
struct Conducted {
    setup: Setup,
    target: Option<TargetUsage>,
    died_after: Option<Duration>,
}

pub struct Conductor<'a> {
    pub plan: &'a Plan,
    /// Title put before the live line.
    pub title: &'a str,
    pub interrupt: &'a Interrupt,
    pub progress: &'a Progress,
    /// The controller, if its resource use can be seen.
    pub server: Option<&'a Server>,
}

impl Conductor<'_> {
    pub fn run(&self) -> Result<Run, Failure> {
        let plan = self.plan;
        let control = Arc::new(Control::new(plan.thread_count));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..plan.thread_count)
                .map(|thread| {
                    let control = control.clone();
                    let run = match plan.workload {
                        Workload::Churn => churn::run,
                        _ => worker::run,
                    };
                    scope.spawn(move || run(plan, thread, &control))
                })
                .collect();
            let attacker = (plan.workload == Workload::Attack).then(|| {
                let control = control.clone();
                scope.spawn(move || attack::run(plan, &control))
            });
            let conducted = self.conduct(&control);
            control.enter(Phase::Drain);
            let mut measured = Measured::default();
            let mut failed = None;
            for thread in threads {
                match joined(thread) {
                    Ok(part) => measured.merge(part),
                    Err(problem) => failed = Some(Failure::machine(problem)),
                }
            }
            match attacker.map(joined) {
                Some(Ok(attacked)) => measured.attacked = Some(attacked),
                Some(Err(problem)) => failed = Some(Failure::network(problem)),
                None => {}
            }
            let Conducted {
                mut setup,
                target,
                died_after,
            } = conducted?;
            if let Some(failed) = failed {
                return Err(failed);
            }
            let last_ns = measured.admitted_ns.iter().max().copied().unwrap_or(0);
            setup.admitted_s = last_ns as f64 / 1e9;
            setup.switches_lost = control.sum(|progress| &progress.gone);
            Ok(Run {
                measured,
                setup,
                target,
                is_storm: plan.workload == Workload::Storm,
                links: (plan.workload == Workload::Paths).then(|| control.links.carried()),
                problem: control.problem(),
                died_after,
            })
        })
    }

    fn conduct(&self, control: &Control) -> Result<Conducted, Failure> {
        if self.plan.workload == Workload::Churn {
            return self.measure_churn(control);
        }
        let mut setup = self.connect(control)?;
        control.enter(Phase::Learn);
        let learning = Instant::now();
        let learned = || control.sum(|p| &p.learned) + control.sum(|p| &p.gone);
        setup.learned = self.wait(control, "learning", self.plan.learn_max, || {
            learned() >= setup.switches_connected
        });
        setup.learn_s = learning.elapsed().as_secs_f64();
        self.measure(control, setup)
    }

    /// Measures churn. Switches connect from the start; there is nothing to set up or to learn.
    fn measure_churn(&self, control: &Control) -> Result<Conducted, Failure> {
        let setup = Setup {
            learned: true,
            ..Setup::default()
        };
        let conducted = self.measure(control, setup)?;
        if control.heard() == 0 && !self.interrupt.is_set() {
            let problem = control.problem();
            let problem = problem.unwrap_or_else(|| "no switch was taken in".to_string());
            return Err(Failure::network(problem));
        }
        Ok(conducted)
    }

    fn measure(&self, control: &Control, setup: Setup) -> Result<Conducted, Failure> {
        let is_dead = || {
            let connected = setup.switches_connected;
            (connected > 0 && control.sum(|p| &p.gone) >= connected)
                || self.server.is_some_and(Server::has_failed)
        };
        control.enter(Phase::WarmUp);
        if self.wait(control, "warming up", self.plan.warmup, is_dead) || is_dead() {
            let why = control.problem();
            return Err(Failure::network(format!(
                "{}: it died before the measuring: {}",
                self.plan.method,
                why.as_deref().unwrap_or("its process ended")
            )));
        }
        let usage = || self.server.and_then(Server::usage);
        let before = usage();
        control.enter(Phase::Measure);
        let measured = self.plan.measured() + DRAIN_MAX;
        let begun = Instant::now();
        self.wait(control, "measuring", measured, || {
            control.all_done() || begun.elapsed() < self.plan.measured() && is_dead()
        });
        let died_after = is_dead().then(|| begun.elapsed());
        let after = usage();
        let target = before.zip(after).map(|(before, after)| TargetUsage {
            cpu: after.cpu.saturating_sub(before.cpu),
            memory_peak_mib: after.memory_peak_mib,
            memory_growth_mib: (after.memory_peak_mib - before.memory_peak_mib).max(0.0),
        });
        Ok(Conducted {
            setup,
            target,
            died_after: died_after.filter(|after| *after < self.plan.measured()),
        })
    }

    /// Waits until every switch is ready, or the reason why not is known.
    fn connect(&self, control: &Control) -> Result<Setup, Failure> {
        let start = Instant::now();
        let all = u32::from(self.plan.switch_count);
        let unbounded = Duration::MAX;
        // If one switch has given up and none is connected, the others would give up too.
        self.wait(control, "connecting", unbounded, || {
            let given_up = control.sum(|p| &p.given_up);
            let connected = control.sum(|p| &p.connected);
            connected + given_up >= all || given_up > 0 && connected == 0
        });
        let connected = control.sum(|p| &p.connected);
        if connected == 0 && !self.interrupt.is_set() {
            let problem = control.problem().unwrap_or_default();
            return Err(Failure::network(problem));
        }
        let target = &self.plan.method;
        let gone = || control.sum(|p| &p.gone);
        let admit_max = Duration::from_nanos(self.plan.profile.ready_max_ns);
        self.wait(control, "connecting", admit_max, || {
            control.sum(|p| &p.admitted) + gone() >= connected
        });
        if control.sum(|p| &p.admitted) == 0 && !self.interrupt.is_set() {
            let problem = control
                .problem()
                .unwrap_or_else(|| "it accepts connections and asks for no features".to_string());
            return Err(Failure::network(format!(
                "{target}: {problem}; is it an OpenFlow controller?"
            )));
        }
        self.wait(control, "setting up", unbounded, || {
            let settled = control.sum(|p| &p.ready) + control.sum(|p| &p.not_learned);
            settled + gone() >= control.sum(|p| &p.admitted)
        });
        let ready = control.sum(|p| &p.ready);
        if ready == 0 && control.heard() == 0 && !self.interrupt.is_set() {
            let problem = control
                .problem()
                .map_or(String::new(), |problem| format!(" ({problem})"));
            return Err(Failure::negative(format!(
                "{target}: no packet-in was answered within {:.0} s{problem}; is the application \
                 that answers them loaded, and is --answer what it sends?",
                self.plan.profile.ready_max_ns as f64 / 1e9
            )));
        }
        Ok(Setup {
            switches_connected: connected,
            switches_ready: ready,
            ready_s: start.elapsed().as_secs_f64(),
            ..Setup::default()
        })
    }

    /// Waits for a condition while showing the live line. Returns whether it held within the time.
    fn wait(
        &self,
        control: &Control,
        doing: &str,
        at_most: Duration,
        until: impl Fn() -> bool,
    ) -> bool {
        let start = Instant::now();
        let (mut rate, mut rate_at, mut rate_count) = (0.0, start, control.answered());
        loop {
            if until() {
                return true;
            }
            if start.elapsed() >= at_most || self.interrupt.is_set() {
                return false;
            }
            std::thread::sleep(POLL);
            let since = rate_at.elapsed();
            if since >= Duration::from_millis(500) {
                let count = control.answered();
                rate = (count - rate_count) as f64 / since.as_secs_f64();
                (rate_at, rate_count) = (Instant::now(), count);
            }
            self.progress.say(format_args!(
                "{}: {doing}: {} of {} switches ready, {} answered, {rate:.0}/s",
                self.title,
                control.sum(|p| &p.ready),
                self.plan.switch_count,
                control.answered(),
            ));
        }
    }
}
