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

use crate::failure::Failure;

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
    /// Of the core, by all that ran on it.
    pub core: f64,
    /// Of the controller's threads.
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
/// USER_HZ: what /proc counts in.
const TICKS_PER_S: f64 = 100.0;

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

/// That the core was not idle since the machine started.
fn core_ticks(core: usize) -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    busy_ticks(&text, core)
}

fn busy_ticks(stat: &str, core: usize) -> u64 {
    /// Fields of a core: idle, and waiting for a disk.
    const IDLE: [usize; 2] = [3, 4];
    let name = format!("cpu{core} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&name));
    let fields = line
        .unwrap_or_default()
        .split_whitespace()
        .take(8)
        .enumerate();
    let busy = fields.filter(|(place, _)| !IDLE.contains(place));
    busy.filter_map(|(_, ticks)| ticks.parse::<u64>().ok())
        .sum()
}

/// That a process has run, in all its threads.
fn process_ticks(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    run_ticks(&text)
}

fn run_ticks(stat: &str) -> u64 {
    // The name may have spaces and brackets in it; the fields after it begin with the state.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let user_and_system = after.split_whitespace().skip(11).take(2);
    user_and_system
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read() {
        let stat = "cpu  9 9 9 9\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu1 10 0 5 100 0 0 1 0 0 0\n";
        assert_eq!(
            (
                busy_ticks(stat, 0),
                busy_ticks(stat, 1),
                busy_ticks(stat, 2)
            ),
            (27, 16, 0)
        );
        let of = "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 250 31 0 0 20 0 5 0";
        assert_eq!((run_ticks(of), run_ticks("")), (281, 0));
    }

    #[test]
    fn a_busy_thread_is_seen() {
        let busy = Instant::now() + Duration::from_millis(1100);
        let watch = Watch::start(0, std::process::id());
        while Instant::now() < busy {
            std::hint::spin_loop();
        }
        let found = watch.stop();
        assert_eq!(found.len(), 1);
        assert!(found[0].controller > 10.0, "{found:?}");
    }
}
