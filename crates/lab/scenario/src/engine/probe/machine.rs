//! `kind = "machine"`: how busy the machine was, with everything that runs on it.

use std::time::Duration;

use cli::failure::Failure;
use testbed::cpu::{TICKS_PER_S, core_ticks};
use testbed::topology::Topology;

use super::{ONE, Probe, Scene, Series};
use crate::engine::expression::{Shape, Value};
use crate::engine::timeline::Window;

/// Its series has the seconds that all cores together were not idle.
pub struct Machine;

const INTERVAL: Duration = Duration::from_millis(50);
const FIGURES: [(&str, Shape); 1] = [
    // Cores that were busy, in the mean.
    ("busy_cores", ONE),
];

impl Probe for Machine {
    fn observe(&self, scene: &Scene<'_>) -> Result<Series, Failure> {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let mut series = Series::new();
        loop {
            let ticks: u64 = (0..count).map(core_ticks).sum();
            let at = scene.epoch.elapsed();
            series.push((at, ticks as f64 / TICKS_PER_S));
            if at >= scene.until {
                return Ok(series);
            }
            std::thread::sleep(INTERVAL.min(scene.until.saturating_sub(at)));
        }
    }

    fn figures(&self) -> &'static [(&'static str, Shape)] {
        &FIGURES
    }

    fn figure(&self, _: &str, window: &Window, _: &Topology, series: &Series) -> Value {
        let within = |(at, _): &&(Duration, f64)| (window.event..window.to).contains(at);
        let mut within = series.iter().filter(within);
        let ends = within.next().zip(within.next_back());
        Value::One(ends.map_or(f64::NAN, |((from, a), (to, b))| {
            (b - a) / to.saturating_sub(*from).as_secs_f64()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_cores_are_a_mean_over_the_window() {
        let ms = Duration::from_millis;
        let topology = Topology::generate("single,2", None).unwrap();
        let series = [(0, 9.0), (100, 10.0), (300, 10.1), (600, 10.8), (900, 12.0)];
        let series: Series = series.map(|(at, busy)| (ms(at), busy)).to_vec();
        let busy = |from, to| {
            let window = Window {
                event: ms(from),
                from: ms(from),
                to: ms(to),
            };
            let Value::One(cores) = Machine.figure("busy_cores", &window, &topology, &series)
            else {
                panic!("one");
            };
            cores
        };
        assert!((busy(100, 700) - 1.6).abs() < 1e-9);
        assert!(busy(700, 800).is_nan());
    }
}
