//! Measurements beside the traffic, one file per kind.

mod status;

use std::time::{Duration, Instant};

use testbed::plane::Plane;
use testbed::topology::Topology;

use crate::engine::expression::{Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;

/// A value at a time since the run's clock began.
pub type Series = Vec<(Duration, f64)>;

/// Observes a network during a run, in a thread of its own.
pub trait Probe: Sync {
    fn observe(&self, plane: &Plane, epoch: Instant, until: Duration) -> Series;

    /// The names of its figures.
    fn figures(&self) -> &'static [(&'static str, Shape)];

    /// A figure over the observations in a window.
    fn figure(&self, name: &str, window: &Window, topology: &Topology, series: &Series) -> Value;
}

const KINDS: [&str; 1] = ["status"];

pub fn read(section: &Section<'_>) -> Option<Box<dyn Probe>> {
    match section.required_word("kind", &KINDS)? {
        "status" => Some(Box::new(status::Status)),
        _ => None,
    }
}
