//! `kind = "cpu"`: the share of the machine's last core that all processes and the controller take.

use std::time::Duration;

use cli::failure::Failure;
use testbed::cpu::{TICKS_PER_S, core_ticks, last_core, process_ticks};
use testbed::topology::Topology;

use super::{ONE, Probe, Scene, Series};
use crate::engine::expression::{Shape, Value};
use crate::engine::timeline::Window;

/// Its series has one value for each figure, again and again.
pub struct Cpu;

const INTERVAL: Duration = Duration::from_millis(50);

/// Both in percent of one core.
const FIGURES: [(&str, Shape); 2] = [
    // The last core, by everything that ran on it.
    ("core_percent", ONE),
    // The controller's threads.
    ("controller_percent", ONE),
];

impl Probe for Cpu {
    fn observe(&self, scene: &Scene<'_>) -> Result<Series, Failure> {
        let mut series = Series::new();
        loop {
            let own = scene.controller_pid.map(process_ticks);
            let ticks = [Some(core_ticks(last_core())), own];
            let at = scene.epoch.elapsed();
            series.extend(ticks.map(|ticks| (at, ticks.map_or(f64::NAN, |n| n as f64))));
            if at >= scene.until {
                return Ok(series);
            }
            std::thread::sleep(INTERVAL.min(scene.until.saturating_sub(at)));
        }
    }

    fn figures(&self) -> &'static [(&'static str, Shape)] {
        &FIGURES
    }

    fn figure(&self, name: &str, window: &Window, _: &Topology, series: &Series) -> Value {
        let place = FIGURES.iter().position(|(known, _)| *known == name);
        let own = series.iter().skip(place.unwrap_or(0));
        let own = own.step_by(FIGURES.len());
        let within = own.filter(|(at, _)| (window.event..=window.to).contains(at));
        let within: Vec<&(Duration, f64)> = within.collect();
        let (Some((begin, before)), Some((end, after))) = (within.first(), within.last()) else {
            return Value::One(f64::NAN);
        };
        let ticks = (*end - *begin).as_secs_f64() * TICKS_PER_S;
        Value::One(100.0 * (after - before) / ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_the_ticks_of_a_window() {
        let ms = Duration::from_millis;
        let topology = Topology::generate("single,2", None).unwrap();
        let looks = [(0, [7.0, 0.0]), (1000, [17.0, 1.0]), (2000, [97.0, 2.0])];
        let series: Series = looks
            .iter()
            .flat_map(|(at, ticks)| ticks.map(|ticks| (ms(*at), ticks)))
            .collect();
        let figures = |from, to| {
            let window = Window {
                event: ms(from),
                from: ms(from),
                to,
            };
            FIGURES.map(|(name, _)| Cpu.figure(name, &window, &topology, &series))
        };
        assert_eq!(figures(1000, Duration::MAX), [80.0, 1.0].map(Value::One));
        assert_eq!(figures(0, ms(2000)), [45.0, 1.0].map(Value::One));
        let Value::One(none) = &figures(3000, ms(4000))[0] else {
            panic!("one");
        };
        assert!(none.is_nan());
    }
}
