//! `kind = "relay"`: the counters of the relay beside the switches.

use std::time::Duration;

use cli::failure::Failure;
use serde_json::Value as Json;
use testbed::topology::Topology;

use super::{Probe, Scene, Series, place};
use crate::engine::expression::{ONE, Shape, Value};
use crate::engine::timeline::Window;

/// Counters of a relay. Its series has one value for each figure at each look.
pub struct Relay;

const INTERVAL: Duration = Duration::from_millis(100);

/// Figures, each with a place in the status document. All are increases within the window.
pub const FIGURES: [(&str, Shape); 4] = [
    // Connections after the first, and those of them that resumed the session.
    ("reconnects", ONE),
    ("resumptions", ONE),
    // Handshakes with early data, and those whose early data was accepted.
    ("early_sent", ONE),
    ("early_accepted", ONE),
];
const PLACES: [&str; FIGURES.len()] = [
    "/reconnects",
    "/resumptions",
    "/early_data/sent",
    "/early_data/accepted",
];

impl Probe for Relay {
    fn observe(&self, scene: &Scene<'_>) -> Result<Series, Failure> {
        scene.watch(INTERVAL, || {
            let status = scene.plane.relay_status();
            let count = |status: &Json, place| status.pointer(place).and_then(Json::as_f64);
            let counts = |status| PLACES.map(|place| count(&status, place).unwrap_or(0.0));
            Ok(status.map(counts).into_iter().flatten())
        })
    }

    fn figure(&self, name: &str, window: &Window, _: &Topology, series: &Series) -> Value {
        let own = series.iter().skip(place(&FIGURES, name));
        let own = own.step_by(FIGURES.len());
        let last = |until: &dyn Fn(Duration) -> bool| {
            let known = own.clone().take_while(|(at, _)| until(*at)).last();
            known.map_or(f64::NAN, |(_, count)| *count)
        };
        let (before, after) = (last(&|at| at <= window.event), last(&|at| at < window.to));
        Value::One(after - before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_increase_within_the_window() {
        let ms = Duration::from_millis;
        let topology = Topology::generate("single,2", None).unwrap();
        let looks = [(100, [1.0, 1.0, 0.0, 0.0]), (300, [3.0, 2.0, 4.0, 1.0])];
        let series: Series = looks
            .iter()
            .flat_map(|(at, counts)| counts.map(|count| (ms(*at), count)))
            .collect();
        let window = Window {
            event: ms(200),
            from: ms(180),
            to: Duration::MAX,
        };
        let found = FIGURES.map(|(name, _)| Relay.figure(name, &window, &topology, &series));
        assert_eq!(found, [2.0, 1.0, 4.0, 1.0].map(Value::One));
        let Value::One(none) = Relay.figure("reconnects", &window, &topology, &Series::new())
        else {
            panic!("one");
        };
        assert!(none.is_nan(), "there is no relay");
    }
}
