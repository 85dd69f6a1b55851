//! Work beside the controller: a process that keeps one core busy for a share of the time, and
//! what the core and the controller were busy in every second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde::Serialize;

use cli::failure::Failure;
use testbed::cpu::{TICKS_PER_S, core_ticks, process_ticks};

#[derive(clap::Args)]
pub struct Args {
    /// The core to be busy on
    #[arg(long, value_name = "N")]
    core: usize,
    /// How busy at first, in percent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    start_percent: u32,
    /// How much busier after every step
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    step_percent: u32,
    /// How long a step is
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=3600))]
    every_s: u32,
    /// It ends after so long, whoever started it
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=7200))]
    seconds: u32,
}

/// Busy and idle once in each.
const PERIOD: Duration = Duration::from_millis(10);

/// Keeps a core busy for a share of every period until the time is over or the lab has ended.
pub fn run(args: Args) -> Result<(), Failure> {
    let failed = |e: nix::Error| Failure::machine(format!("core {}: {e}", args.core));
    // With the lab, even if that is killed.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(failed)?;
    let mut cores = CpuSet::new();
    cores.set(args.core).map_err(failed)?;
    sched_setaffinity(Pid::from_raw(0), &cores).map_err(failed)?;
    let start = Instant::now();
    let end = Duration::from_secs(args.seconds.into());
    let mut period = start;
    while start.elapsed() < end {
        let steps = start.elapsed().as_secs() as u32 / args.every_s;
        let percent = (args.start_percent + steps * args.step_percent).min(100);
        let busy_until = period + PERIOD * percent / 100;
        while Instant::now() < busy_until {
            std::hint::spin_loop();
        }
        period = (period + PERIOD).max(Instant::now());
        std::thread::sleep(period.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// One second of a run: shares of one core, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Busy {
    /// The load of the core, by everything that ran on it.
    pub core: f64,
    /// The load by the controller's threads.
    pub controller: f64,
}

/// Reads both every second until it is stopped.
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Busy>>,
}

const SECOND: Duration = Duration::from_secs(1);
/// How soon a stop is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl Watch {
    pub fn start(core: usize, controller_pid: u32) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut seconds, mut due) = (Vec::new(), Instant::now() + SECOND);
            let mut before = (
                Instant::now(),
                core_ticks(core),
                process_ticks(controller_pid),
            );
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(
                    POLL_INTERVAL.min(due.saturating_duration_since(Instant::now())),
                );
                if Instant::now() < due {
                    continue;
                }
                due += SECOND;
                let now = (
                    Instant::now(),
                    core_ticks(core),
                    process_ticks(controller_pid),
                );
                let ticks = (now.0 - before.0).as_secs_f64() * TICKS_PER_S;
                let percent =
                    |now: u64, before: u64| 100.0 * now.saturating_sub(before) as f64 / ticks;
                seconds.push(Busy {
                    core: percent(now.1, before.1),
                    controller: percent(now.2, before.2),
                });
                before = now;
            }
            seconds
        });
        Watch { stop, thread }
    }

    pub fn stop(self) -> Vec<Busy> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_is_seen() {
        let busy = Instant::now() + Duration::from_millis(1100);
        let watch = Watch::start(0, std::process::id());
        while Instant::now() < busy {
            std::hint::spin_loop();
        }
        let found = watch.stop();
        assert!(!found.is_empty() && found[0].controller > 10.0, "{found:?}");
    }
}
