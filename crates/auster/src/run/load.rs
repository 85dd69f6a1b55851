//! How busy this process or its cores are, reported to the controller whose timeouts follow it.

use std::sync::Arc;
use std::time::Duration;

use control::clustered::Clustered;
use control::timeouts::{Load, Timeouts};
use driver::Driver;
use net::clock::Clock;
use nix::sched::sched_getaffinity;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The load to sample, and the period.
type Wanted = Option<(Load, Duration)>;

/// Samples the load until it is dropped.
pub struct Sampler {
    wanted: watch::Sender<Wanted>,
    task: JoinHandle<()>,
}

impl Sampler {
    pub fn start(driver: &Arc<Driver<Clustered>>, clock: Clock, timeouts: &Timeouts) -> Sampler {
        let (wanted, told) = watch::channel(wanted(timeouts));
        let task = tokio::spawn(sample(driver.clone(), clock, told));
        Sampler { wanted, task }
    }

    pub fn follow(&self, timeouts: &Timeouts) {
        self.wanted.send_replace(wanted(timeouts));
    }

    pub fn stop(&self) {
        self.task.abort();
    }
}

fn wanted(timeouts: &Timeouts) -> Wanted {
    let interval = timeouts.sample_interval();
    interval.map(|interval| (timeouts.load, interval))
}

async fn sample(driver: Arc<Driver<Clustered>>, clock: Clock, mut wanted: watch::Receiver<Wanted>) {
    loop {
        let now_wanted = *wanted.borrow_and_update();
        let Some((load, interval)) = now_wanted else {
            match wanted.changed().await {
                Ok(()) => continue,
                Err(_) => return,
            }
        };
        let before = Used::now(load);
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            changed = wanted.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        }
        let (now, percent) = (clock.now(), Used::now(load).percent_since(before));
        let told = driver.ask(move |controller| controller.handle_load(now, percent));
        if told.await.is_none() {
            tracing::debug!("the controller was not told its load");
        }
    }
}

/// The processor time used, and the time passed.
#[derive(Clone, Copy)]
struct Used {
    busy: f64,
    passed: f64,
}

impl Used {
    fn now(load: Load) -> Used {
        match load {
            Load::Process => Used::by_process(),
            Load::Cores => {
                let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
                let cores = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
                Used::of_cores(&stat, |core| cores.is_set(core).unwrap_or(false))
            }
        }
    }

    /// The time used by all threads of this process, so that two busy cores are 200 %.
    fn by_process() -> Used {
        let busy_us = getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| {
            usage.user_time().num_microseconds() + usage.system_time().num_microseconds()
        });
        let passed = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
        let passed_us = passed.map_or(0, |time| time.num_microseconds());
        Used {
            busy: busy_us as f64,
            passed: passed_us as f64,
        }
    }

    /// The time used by any process, from `/proc/stat`: `cpuN user nice system idle iowait irq
    /// softirq steal …`.
    fn of_cores(stat: &str, is_counted: impl Fn(usize) -> bool) -> Used {
        const IDLE: usize = 3;
        const IOWAIT: usize = 4;
        const STEAL: usize = 7;
        let mut used = Used {
            busy: 0.0,
            passed: 0.0,
        };
        for line in stat.lines() {
            let mut words = line.split_ascii_whitespace();
            let core = words.next().and_then(|name| name.strip_prefix("cpu"));
            let core = core.and_then(|number| number.parse().ok());
            if !core.is_some_and(&is_counted) {
                continue;
            }
            let ticks = words.take(STEAL + 1).map(|n| n.parse().unwrap_or(0.0));
            for (at, ticks) in ticks.enumerate() {
                used.passed += ticks;
                used.busy += if at == IDLE || at == IOWAIT {
                    0.0
                } else {
                    ticks
                };
            }
        }
        used
    }

    fn percent_since(self, before: Used) -> f64 {
        let passed = self.passed - before.passed;
        if passed <= 0.0 {
            return 0.0;
        }
        100.0 * (self.busy - before.busy).max(0.0) / passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_counted_over_all_its_threads() {
        let before = Used::by_process();
        let spin = move || {
            let mut sum = 0_u64;
            while Used::by_process().busy - before.busy < 50_000.0 {
                sum = std::hint::black_box(sum + 1);
            }
            sum
        };
        std::thread::spawn(spin).join().unwrap();
        let percent = Used::by_process().percent_since(before);
        assert!(percent > 0.0, "{percent}");
        assert_eq!(before.percent_since(before), 0.0);
    }

    #[test]
    fn of_cores_only_those_count_that_it_may_run_on() {
        let stat = |first_busy: u32, second_busy: u32| {
            format!(
                "cpu 1 1 1 1 1 1 1 1 0 0\n\
                 cpu0 {first_busy} 0 0 {} 0 0 0 0 0 0\n\
                 cpu1 {second_busy} 0 0 {} 100 0 0 0 0 0\n\
                 intr 9\n",
                1000 - first_busy,
                1000 - second_busy,
            )
        };
        let percent = |is_counted: fn(usize) -> bool| {
            let before = Used::of_cores("cpu0 0 0 0 0\ncpu1 0 0 0 0 100\n", is_counted);
            Used::of_cores(&stat(760, 100), is_counted).percent_since(before)
        };
        assert_eq!(percent(|core| core == 0), 76.0);
        assert_eq!(percent(|core| core == 1), 10.0);
        assert_eq!(percent(|_| true), 43.0);
    }
}
