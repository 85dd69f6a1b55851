//! `kind = "cpu"` and `kind = "machine"`: the time that the machine's last core and the controller,
//! or all cores, were busy.

use std::time::Duration;

use cli::failure::Failure;
use testbed::cpu::{TICKS_PER_S, core_ticks, last_core, process_ticks};
use testbed::topology::Topology;

use super::{Probe, Scene, Series, place};
use crate::engine::expression::{Figures, ONE, Value};
use crate::engine::timeline::Window;

/// Shares of processor time. Its series has the ticks of each figure at each look.
pub struct Cpu {
    pub figures: Figures,
    look: fn(&Scene<'_>) -> Vec<Option<u64>>,
    /// The figure of one core that is always busy.
    core: f64,
}

const INTERVAL: Duration = Duration::from_millis(50);

/// The load of the last core from everything that runs on it, and of the controller's threads.
pub const CORE: Cpu = Cpu {
    figures: &[("core_percent", ONE), ("controller_percent", ONE)],
    look: |scene| {
        let controller = scene.controller_pid.map(process_ticks);
        vec![Some(core_ticks(last_core())), controller]
    },
    core: 100.0,
};

/// The load of all cores from everything that runs on the machine.
pub const MACHINE: Cpu = Cpu {
    figures: &[("busy_cores", ONE)],
    look: |_| vec![Some((0..=last_core()).map(core_ticks).sum())],
    core: 1.0,
};

impl Probe for Cpu {
    fn observe(&self, scene: &Scene<'_>) -> Result<Series, Failure> {
        scene.watch(INTERVAL, || {
            let ticks = (self.look)(scene).into_iter();
            Ok(ticks.map(|ticks| ticks.map_or(f64::NAN, |n| n as f64)))
        })
    }

    fn figure(&self, name: &str, window: &Window, _: &Topology, series: &Series) -> Value {
        let own = series.iter().skip(place(self.figures, name));
        let own = own.step_by(self.figures.len());
        let within = own.filter(|(at, _)| (window.event..=window.to).contains(at));
        let within: Vec<&(Duration, f64)> = within.collect();
        let (Some((begin, before)), Some((end, after))) = (within.first(), within.last()) else {
            return Value::One(f64::NAN);
        };
        let ticks = (*end - *begin).as_secs_f64() * TICKS_PER_S;
        Value::One(self.core * (after - before) / ticks)
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
            ["core_percent", "controller_percent"]
                .map(|name| CORE.figure(name, &window, &topology, &series))
        };
        assert_eq!(figures(1000, Duration::MAX), [80.0, 1.0].map(Value::One));
        assert_eq!(figures(0, ms(2000)), [45.0, 1.0].map(Value::One));
        let Value::One(none) = &figures(3000, ms(4000))[0] else {
            panic!("one");
        };
        assert!(none.is_nan());
        let looks = [(0, 900.0), (100, 1000.0), (600, 1080.0), (900, 1200.0)];
        let series: Series = looks.map(|(at, busy)| (ms(at), busy)).to_vec();
        let window = Window {
            event: ms(100),
            from: ms(100),
            to: ms(700),
        };
        let cores = MACHINE.figure("busy_cores", &window, &topology, &series);
        assert_eq!(cores, Value::One(1.6));
    }
}
