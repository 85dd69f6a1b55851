//! `kind = "host"`: the time until a controller knows a host.

use std::time::Duration;

use cli::failure::Failure;
use serde_json::Value as Json;
use testbed::plane::Controller;
use testbed::topology::Topology;

use super::{Probe, Scene, Series};
use crate::engine::expression::{ONE, Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;
use crate::engine::traffic;
use crate::report::milliseconds;

/// A host by its name.
pub struct Host(String);

/// The resolution of the figure.
const INTERVAL: Duration = Duration::from_millis(5);

pub const FIGURES: [(&str, Shape); 1] = [
    // From the window's first moment until a controller has the host in its status.
    ("known_ms", ONE),
];

impl Host {
    pub fn read(section: &Section<'_>) -> Option<Host> {
        section.required_text("of", "\"h1\"").map(Host)
    }
}

impl Probe for Host {
    fn check(&self, topology: &Topology, _: &Controller) -> Result<(), String> {
        traffic::host(topology, &self.0).map(drop)
    }

    fn observe(&self, scene: &Scene<'_>) -> Result<Series, Failure> {
        let host = traffic::host(scene.topology, &self.0).map_err(Failure::usage)?;
        let mac = scene.topology.hosts[host].mac.to_string();
        while scene.epoch.elapsed() < scene.until {
            let statuses = scene.plane.statuses();
            if statuses.iter().any(|status| knows(status, &mac)) {
                return Ok(vec![(scene.epoch.elapsed(), 1.0)]);
            }
            std::thread::sleep(INTERVAL);
        }
        Ok(Series::new())
    }

    fn figure(&self, _: &str, window: &Window, _: &Topology, series: &Series) -> Value {
        let known = series.first().filter(|(at, _)| *at < window.to);
        Value::One(known.map_or(f64::NAN, |(at, _)| {
            milliseconds(at.saturating_sub(window.event))
        }))
    }
}

fn knows(status: &Json, mac: &str) -> bool {
    let hosts = status["hosts"].as_array().map_or(&[][..], Vec::as_slice);
    hosts.iter().any(|host| host["mac"].as_str() == Some(mac))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_known_by_its_address_alone() {
        let status = serde_json::json!({"hosts": [{"mac": "02:00:00:00:00:15", "ips": []}]});
        assert!(knows(&status, "02:00:00:00:00:15") && !knows(&status, "02:00:00:00:00:1"));
        assert!(!knows(&Json::Null, "02:00:00:00:00:15"));
    }
}
