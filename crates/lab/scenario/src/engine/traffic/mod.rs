//! Traffic between hosts, one file per kind.

mod ping;

use std::collections::BTreeSet;
use std::time::Duration;

use testbed::probe::{Flow, Sample};
use testbed::topology::Topology;

use crate::engine::expression::{Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;

/// Hosts by their place in the topology: from, to.
pub type Pair = (usize, usize);

/// Packets between pairs of hosts.
pub trait Traffic: Sync {
    /// Chooses the pairs of one run. `used` holds the pairs of earlier runs on this network.
    fn pairs(&self, topology: &Topology, used: &BTreeSet<Pair>) -> Result<Vec<Pair>, String>;

    /// Whether its pairs are new to the network in each run.
    fn is_new_each_run(&self) -> bool;

    /// Streams over these pairs from a moment on.
    fn flows(&self, pairs: &[Pair], from: Duration) -> Vec<Flow>;

    fn packets_per_s(&self, pairs: usize) -> f64;

    /// The names of its figures.
    fn figures(&self) -> &'static [(&'static str, Shape)];

    /// A figure over the packets that were sent in a window.
    fn figure(&self, name: &str, window: &Window, pairs: &[Pair], samples: &[Sample]) -> Value;
}

const KINDS: [&str; 1] = ["ping"];

pub fn read(section: &Section<'_>) -> Option<Box<dyn Traffic>> {
    match section.required_word("kind", &KINDS)? {
        "ping" => Some(Box::new(ping::Ping::read(section)?)),
        _ => None,
    }
}
