//! `kind = "status"`: what auster says of itself at its status socket.

use std::time::Duration;

use cli::failure::Failure;
use testbed::status;
use testbed::topology::Topology;

use super::{Probe, Scene, Series};
use crate::engine::expression::{Shape, Value};
use crate::engine::timeline::Window;
use crate::report::milliseconds;

/// The number of connected switches over time.
pub struct Status;

const INTERVAL: Duration = Duration::from_millis(25);

const FIGURES: [(&str, Shape); 1] = [(
    // From the window's event until all switches are connected.
    "connected_ms",
    Shape {
        truth: false,
        many: false,
    },
)];

impl Probe for Status {
    fn observe(&self, scene: &Scene<'_>) -> Result<Series, Failure> {
        let mut series = Series::new();
        while scene.epoch.elapsed() < scene.until {
            let known = scene.plane.status();
            let count = status::switch_count(known.as_ref());
            series.push((scene.epoch.elapsed(), count as f64));
            std::thread::sleep(INTERVAL);
        }
        Ok(series)
    }

    fn figures(&self) -> &'static [(&'static str, Shape)] {
        &FIGURES
    }

    fn figure(&self, _: &str, window: &Window, topology: &Topology, series: &Series) -> Value {
        let all = topology.switches.len() as f64;
        let mut after = series.iter().filter(|(at, _)| *at > window.event);
        let connected = after.find(|(at, count)| *count == all && window.has(*at));
        Value::One(connected.map_or(f64::NAN, |(at, _)| {
            milliseconds(at.saturating_sub(window.event))
        }))
    }
}
