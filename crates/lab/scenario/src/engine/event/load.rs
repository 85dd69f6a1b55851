//! `load = { percent = 60, step = 10, every = "10s" }`: a thread keeps the controller's core busy
//! for a share of the time, which grows by steps, until a moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cli::failure::Failure;
use clock::SplitMix64;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use testbed::cpu::last_core;
use testbed::network::Network;
use testbed::plane::{Controller, Plane};
use testbed::topology::Topology;

use super::Event;
use crate::engine::reader::Section;

#[derive(Clone)]
pub struct Load {
    percent: u32,
    /// The increase in percent after each `every`.
    step: u32,
    every: Duration,
    until: String,
    is_over: Arc<AtomicBool>,
}

/// The thread is busy once and idle once in each period.
const PERIOD: Duration = Duration::from_millis(10);
const EVERY_MAX: Duration = Duration::from_secs(600);

impl Load {
    pub fn read(section: &Section<'_>) -> Option<Box<dyn Event>> {
        let inner = section.section("load")?;
        let percent = inner.required_count("percent", 0..=100);
        let step = inner.count("step", 0..=100).unwrap_or(0);
        let every = inner.duration("every", Duration::from_millis(100)..=EVERY_MAX);
        if step > 0 && !inner.has("every") {
            inner.problem("every", "missing; write such as every = \"10s\"");
        }
        inner.finish();
        let until = section.required_text("until", "\"end\"");
        Some(Box::new(Load {
            percent: percent? as u32,
            step: step as u32,
            every: every.unwrap_or(EVERY_MAX),
            until: until?,
            is_over: Arc::default(),
        }))
    }

    /// The busy share of a period after this time.
    fn percent_after(&self, time: Duration) -> u32 {
        let steps = (time.as_secs_f64() / self.every.as_secs_f64()) as u32;
        (self.percent + steps * self.step).min(100)
    }

    fn run(&self) {
        let start = Instant::now();
        let mut period = start;
        while !self.is_over.load(Ordering::Relaxed) {
            let busy_until = period + PERIOD * self.percent_after(start.elapsed()) / 100;
            while Instant::now() < busy_until {
                std::hint::spin_loop();
            }
            period = (period + PERIOD).max(Instant::now());
            std::thread::sleep(period.saturating_duration_since(Instant::now()));
        }
    }
}

impl Event for Load {
    fn check(&self, _: &Topology, controller: &Controller) -> Result<(), String> {
        match controller {
            Controller::Auster(site) if site.on_last_core => Ok(()),
            _ => Err("the controller has no core; write core = \"last\" in [controller]".into()),
        }
    }

    fn apply(&self, _: &mut Network, _: &Plane) -> Result<(), Failure> {
        self.is_over.store(false, Ordering::Relaxed);
        let core = last_core();
        let mut cores = CpuSet::new();
        let bind = cores.set(core).map(|()| cores);
        let cores = bind.map_err(|e| Failure::machine(format!("core {core}: {e}")))?;
        let load = self.clone();
        std::thread::spawn(move || {
            if let Err(e) = sched_setaffinity(Pid::from_raw(0), &cores) {
                tracing::warn!("load: core {core}: {e}");
            }
            load.run();
        });
        Ok(())
    }

    fn until(&self) -> Option<&str> {
        Some(&self.until)
    }

    fn later(&self, lasts: Duration, _: SplitMix64) -> Vec<(Duration, Box<dyn Event>)> {
        let end: Box<dyn Event> = Box::new(End(self.is_over.clone()));
        vec![(lasts, end)]
    }
}

struct End(Arc<AtomicBool>);

impl Event for End {
    fn apply(&self, _: &mut Network, _: &Plane) -> Result<(), Failure> {
        self.0.store(true, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_grows_by_steps_to_the_whole_core() {
        let load = Load {
            percent: 60,
            step: 15,
            every: Duration::from_secs(10),
            until: "end".to_string(),
            is_over: Arc::default(),
        };
        let after = [0, 9, 10, 29, 30, 300].map(|s| load.percent_after(Duration::from_secs(s)));
        assert_eq!(after, [60, 60, 75, 90, 100, 100]);
    }
}
