//! `kind = "status"`: the status that auster reports at its status socket.

use std::time::Duration;

use cli::failure::Failure;
use testbed::status;
use testbed::topology::Topology;

use super::{Probe, Scene, Series};
use crate::engine::expression::{ONE, Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;
use crate::report::milliseconds;

/// Counts over time: connected switches, known directions of links, known hosts, and paths without
/// room for their entries. Each look at the status gives one value for each count.
pub struct Status {
    /// The rest between two looks; each look costs the controller time.
    every: Duration,
}

const COUNTS: usize = 4;
const HOSTS: usize = 2;
const NO_ROOM: usize = 3;

const EVERY: Duration = Duration::from_millis(25);
const EVERY_MAX: Duration = Duration::from_secs(60);

pub const FIGURES: [(&str, Shape); 4] = [
    // From the window's event until all switches are connected.
    ("connected_ms", ONE),
    // Until all links are known, too, in both directions.
    ("known_ms", ONE),
    // Hosts that are known at the window's last moment.
    ("hosts", ONE),
    // Paths that were not set within the window because all entries were in use.
    ("no_room", ONE),
];

impl Status {
    pub fn read(section: &Section<'_>) -> Option<Status> {
        let every = section.duration("every", EVERY..=EVERY_MAX);
        Some(Status {
            every: every.unwrap_or(EVERY),
        })
    }
}

impl Probe for Status {
    fn observe(&self, scene: &Scene<'_>) -> Result<Series, Failure> {
        scene.watch(self.every, || {
            let known = scene.plane.status();
            let known = known.as_ref();
            let counts: [f64; COUNTS] = [
                status::switch_count(known) as f64,
                status::link_count(known) as f64,
                host_count(known),
                no_room(known),
            ];
            Ok(counts)
        })
    }

    fn figure(&self, name: &str, window: &Window, topology: &Topology, series: &Series) -> Value {
        let looks = series.chunks_exact(COUNTS);
        let count = |place: usize, time: Duration| {
            let counts = looks.clone().map(|look| look[place]);
            let mut counts = counts.filter(|(_, count)| !count.is_nan());
            let before = counts.clone().rfind(|(at, _)| *at <= time);
            before
                .or(counts.next())
                .map_or(f64::NAN, |(_, count)| count)
        };
        match name {
            "hosts" => return Value::One(count(HOSTS, window.to)),
            "no_room" => {
                return Value::One(count(NO_ROOM, window.to) - count(NO_ROOM, window.event));
            }
            _ => {}
        }
        let switches = topology.switches.len() as f64;
        let links = 2.0 * topology.links.len() as f64;
        let mut looks = looks.map(|look| (look[0], look[1].1));
        let found = looks.find(|((at, connected), known)| {
            let is_whole = *connected == switches && (name == "connected_ms" || *known == links);
            is_whole && *at > window.event && window.has(*at)
        });
        Value::One(found.map_or(f64::NAN, |((at, _), _)| {
            milliseconds(at.saturating_sub(window.event))
        }))
    }
}

fn host_count(status: Option<&serde_json::Value>) -> f64 {
    let count = status.and_then(|status| status["host_count"].as_f64());
    count.unwrap_or(f64::NAN)
}

/// The paths without room, over all switches.
fn no_room(status: Option<&serde_json::Value>) -> f64 {
    let switches = status.and_then(|status| status["switches"].as_array());
    let counts = |switches: &Vec<serde_json::Value>| {
        let counts = switches.iter();
        let counts = counts.filter_map(|switch| switch["table"]["no_room"].as_f64());
        counts.fold(0.0, |sum, count| sum + count)
    };
    switches.map_or(f64::NAN, counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counts_are_those_at_the_moments_of_a_window() {
        let ms = Duration::from_millis;
        let status = json!({
            "host_count": 7,
            "switches": [{ "table": { "no_room": 2 } }, { "table": { "no_room": 3 } }, {}],
        });
        let (hosts, paths) = (host_count(Some(&status)), no_room(Some(&status)));
        assert_eq!((hosts, paths), (7.0, 5.0));
        assert!(host_count(None).is_nan() && no_room(None).is_nan());
        let look = |at, hosts, no_room| {
            [
                (ms(at), 1.0),
                (ms(at), 0.0),
                (ms(at), hosts),
                (ms(at), no_room),
            ]
        };
        let looks = [
            look(0, 1.0, 0.0),
            look(100, hosts, paths),
            look(150, f64::NAN, f64::NAN), // It could not be read.
            look(300, 9.0, 25.0),
        ];
        let series: Series = looks.concat();
        let topology = Topology::generate("single,2", None).unwrap();
        let of = |name: &str, from, to| {
            let window = Window {
                event: ms(from),
                from: ms(from),
                to: ms(to),
            };
            Status { every: EVERY }.figure(name, &window, &topology, &series)
        };
        assert_eq!(of("hosts", 0, 200), Value::One(7.0));
        assert_eq!(of("hosts", 0, 900), Value::One(9.0));
        assert_eq!(of("no_room", 0, 160), Value::One(5.0));
        assert_eq!(of("no_room", 160, 900), Value::One(20.0));
        assert!(matches!(of("known_ms", 0, 900), Value::One(ms) if ms == 100.0));
    }
}
