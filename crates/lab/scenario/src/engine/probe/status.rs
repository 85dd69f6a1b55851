//! `kind = "status"`: what auster says of itself at its status socket.

use std::time::Duration;

use cli::failure::Failure;
use testbed::status;
use testbed::topology::Topology;

use super::{ONE, Probe, Scene, Series};
use crate::engine::expression::{Shape, Value};
use crate::engine::timeline::Window;
use crate::report::milliseconds;

/// The number of connected switches over time, and of known directions of links: one value each,
/// again and again.
pub struct Status;

const INTERVAL: Duration = Duration::from_millis(25);

const FIGURES: [(&str, Shape); 2] = [
    // From the window's event until all switches are connected.
    ("connected_ms", ONE),
    // Until all links are known, too, in both directions.
    ("known_ms", ONE),
];

impl Probe for Status {
    fn observe(&self, scene: &Scene<'_>) -> Result<Series, Failure> {
        let mut series = Series::new();
        while scene.epoch.elapsed() < scene.until {
            let known = scene.plane.status();
            let at = scene.epoch.elapsed();
            let (switches, links) = (status::switch_count, status::link_count);
            series.push((at, switches(known.as_ref()) as f64));
            series.push((at, links(known.as_ref()) as f64));
            std::thread::sleep(INTERVAL);
        }
        Ok(series)
    }

    fn figures(&self) -> &'static [(&'static str, Shape)] {
        &FIGURES
    }

    fn figure(&self, name: &str, window: &Window, topology: &Topology, series: &Series) -> Value {
        let switches = topology.switches.len() as f64;
        let links = 2.0 * topology.links.len() as f64;
        let mut looks = series.chunks_exact(2).map(|look| (look[0], look[1].1));
        let found = looks.find(|((at, connected), known)| {
            let is_whole = *connected == switches && (name == "connected_ms" || *known == links);
            is_whole && *at > window.event && window.has(*at)
        });
        Value::One(found.map_or(f64::NAN, |((at, _), _)| {
            milliseconds(at.saturating_sub(window.event))
        }))
    }
}
