//! `kind = "sessions"` and `kind = "entries"`: the switches' TCP connections to a controller or
//! relay, and their flow entries.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cli::failure::Failure;
use testbed::plane::Plane;
use testbed::topology::Topology;

use super::{Probe, Scene, Series};
use crate::engine::expression::{ONE, Shape, Value};
use crate::engine::timeline::Window;

/// Things present at a time. Its series has [`LOOK`] for each look, followed by a number for each
/// thing that was present.
pub struct Presence {
    interval: Duration,
    look: fn(&Plane) -> Option<BTreeSet<String>>,
}

const LOOK: f64 = 0.0;

/// TCP connections of the switches, by their own ports.
pub const SESSIONS: Presence = Presence {
    interval: Duration::from_millis(100),
    look: |plane| {
        let ports = plane.sessions().ok()?;
        Some(ports.iter().map(u16::to_string).collect())
    },
};

/// Entries of the flow tables by table, priority, match and actions.
pub const ENTRIES: Presence = Presence {
    interval: Duration::from_millis(500),
    look: |plane| plane.entries().ok(),
};

pub const FIGURES: [(&str, Shape); 4] = [
    // Present at the window's first moment.
    ("count", ONE),
    // Of these, still or no longer present at its last moment.
    ("kept", ONE),
    ("lost", ONE),
    // Present only at its last moment.
    ("new", ONE),
];

impl Probe for Presence {
    fn observe(&self, scene: &Scene<'_>) -> Result<Series, Failure> {
        let mut numbers = BTreeMap::new();
        scene.watch(self.interval, || {
            let mut looks = Vec::new();
            if let Some(found) = (self.look)(scene.plane) {
                looks.push(LOOK);
                for name in found {
                    let next = (numbers.len() + 1) as f64;
                    looks.push(*numbers.entry(name).or_insert(next));
                }
            }
            Ok(looks)
        })
    }

    fn figure(&self, name: &str, window: &Window, _: &Topology, series: &Series) -> Value {
        let before = there(series, |at| at <= window.event);
        let after = there(series, |at| at < window.to);
        let (Some(before), Some(after)) = (before, after) else {
            return Value::One(f64::NAN);
        };
        let count = match name {
            "count" => before.len(),
            "kept" => before.intersection(&after).count(),
            "lost" => before.difference(&after).count(),
            _ => after.difference(&before).count(),
        };
        Value::One(count as f64)
    }
}

/// The things found by the last look whose time `in_time` accepts.
fn there(series: &Series, in_time: impl Fn(Duration) -> bool) -> Option<BTreeSet<u64>> {
    let looks = series.iter().rev().filter(|(_, number)| *number == LOOK);
    let (last, _) = looks.copied().find(|(at, _)| in_time(*at))?;
    let found = series.iter().filter(|(at, n)| *at == last && *n != LOOK);
    Some(found.map(|(_, number)| *number as u64).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_are_compared_between_the_two_moments_of_a_window() {
        let ms = Duration::from_millis;
        let topology = Topology::generate("single,2", None).unwrap();
        // Things 1 and 2 are present at 100 ms, none at 200 ms, and 2, 3 and 4 at 300 ms.
        let series = [
            (100, &[0.0, 1.0, 2.0][..]),
            (200, &[0.0]),
            (300, &[0.0, 2.0, 3.0, 4.0]),
        ];
        let series: Series = series
            .iter()
            .flat_map(|(at, numbers)| numbers.iter().map(|n| (ms(*at), *n)))
            .collect();
        let figures = |event: u64, to: u64| {
            let window = Window {
                event: ms(event),
                from: ms(event),
                to: ms(to),
            };
            let figure = |name| match SESSIONS.figure(name, &window, &topology, &series) {
                Value::One(one) => one,
                Value::Many(many) => panic!("{many:?}"),
            };
            ["count", "kept", "lost", "new"].map(figure)
        };
        assert_eq!(figures(150, 400), [2.0, 1.0, 1.0, 2.0]);
        assert_eq!(figures(100, 250), [2.0, 0.0, 2.0, 0.0]);
        assert_eq!(figures(250, 400), [0.0, 0.0, 0.0, 3.0]);
        assert!(figures(50, 400).iter().all(|f| f.is_nan()), "never looked");
    }
}
