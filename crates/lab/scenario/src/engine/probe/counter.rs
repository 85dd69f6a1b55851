//! `kind = "counter"`: a counter of the kernel at the port where a link leaves a switch.

use std::io::{self, Read, Seek};
use std::time::Duration;

use cli::failure::Failure;
use testbed::netns;
use testbed::plane::Controller;
use testbed::topology::Topology;

use super::{Port, Probe, Scene, Series};
use crate::engine::expression::{ONE, Shape, Value};
use crate::engine::reader::{Section, suggestion};
use crate::engine::timeline::Window;

/// A counter at a port.
pub struct Counter {
    port: Port,
    /// The counter's place in a line of the kernel's table.
    place: usize,
}

const INTERVAL: Duration = Duration::from_millis(5);
/// The table of devices in the namespace of the thread that opens it.
const TABLE: &str = "/proc/thread-self/net/dev";
const COUNTERS: [(&str, usize); 6] = [
    ("rx_bytes", 0),
    ("rx_packets", 1),
    ("rx_dropped", 3),
    ("tx_bytes", 8),
    ("tx_packets", 9),
    ("tx_dropped", 11),
];
pub const FIGURES: [(&str, Shape); 1] = [
    // Counted between the window's two moments.
    ("count", ONE),
];

impl Counter {
    pub fn read(section: &Section<'_>) -> Option<Counter> {
        let words = section.required_text("of", "\"s1-s2.tx_packets\"")?;
        let parts = words.split_once('.');
        let parts = parts.and_then(|(link, name)| Some((Port::parse(link)?, name)));
        let Some((port, name)) = parts else {
            let right = "write a link and a counter, such as of = \"s1-s2.tx_packets\"";
            return section.refuse("of", format!("'{words}' is no counter; {right}"));
        };
        let Some((_, place)) = COUNTERS.iter().find(|(known, _)| *known == name) else {
            let right = suggestion(name, COUNTERS.iter().map(|(known, _)| *known));
            return section.refuse("of", format!("no counter {name}; {right}"));
        };
        Some(Counter {
            port,
            place: *place,
        })
    }
}

impl Probe for Counter {
    fn check(&self, topology: &Topology, _: &Controller) -> Result<(), String> {
        self.port.device(topology).map(drop)
    }

    fn observe(&self, scene: &Scene<'_>) -> Result<Series, Failure> {
        let failed = |e: io::Error| Failure::machine(format!("packet counters: {e}"));
        let device = self.port.device(scene.topology).map_err(Failure::usage)?;
        let open = || std::fs::File::open(TABLE);
        let mut file = netns::within(&scene.switches, open).map_err(failed)?;
        let mut table = String::new();
        scene.watch(INTERVAL, || {
            table.clear();
            file.rewind().map_err(failed)?;
            file.read_to_string(&mut table).map_err(failed)?;
            let count = counted(&table, &device, self.place);
            let count = count.ok_or_else(|| failed(io::Error::other(format!("no {device}"))))?;
            Ok([count as f64])
        })
    }

    fn figure(&self, _: &str, window: &Window, _: &Topology, series: &Series) -> Value {
        let at = |time: Duration| {
            let before = series.iter().rfind(|(at, _)| *at <= time);
            before.or(series.first()).map(|(_, count)| *count)
        };
        let both = at(window.to).zip(at(window.event));
        Value::One(both.map_or(f64::NAN, |(to, from)| to - from))
    }
}

/// Reads a count from lines such as `s1-eth2: 7 1 0 0 0 0 0 0 9 2 0 …`: received bytes, packets and
/// six more counts, then the same counts for sending.
fn counted(table: &str, device: &str, place: usize) -> Option<u64> {
    let mut lines = table.lines().filter_map(|line| line.split_once(':'));
    let (_, counts) = lines.find(|(name, _)| name.trim() == device)?;
    counts.split_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_read_by_device_and_place() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets\n\
                     s1-eth12: 1 2 0 0 0 0 0 0 3 77 0 0 0 0 0 0\n\
                     \x20s1-eth1: 1 2 0 0 0 0 0 0 3 44 0 0 0 0 0 0\n";
        assert_eq!(counted(table, "s1-eth1", 9), Some(44));
        assert_eq!(counted(table, "s1-eth12", 0), Some(1));
        assert_eq!(counted(table, "s1-eth2", 9), None);
    }

    #[test]
    fn a_count_is_the_difference_between_two_moments() {
        let ms = Duration::from_millis;
        let counter = Counter {
            port: Port::parse("s1-s2").unwrap(),
            place: 9,
        };
        let topology = Topology::generate("ring,3", None).unwrap();
        assert_eq!(counter.port.device(&topology), Ok("s1-eth2".to_string()));
        let series = (0..100).map(|n| (ms(n * 5), n as f64)).collect();
        let window = Window {
            event: ms(100),
            from: ms(80),
            to: ms(200),
        };
        let count = counter.figure("count", &window, &topology, &series);
        assert_eq!(count, Value::One(20.0));
    }
}
