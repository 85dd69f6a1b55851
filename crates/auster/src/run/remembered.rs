//! The edges and links that were known when the process ended, for the next process: it need not
//! hold each port until LLDP has shown what is connected to the port.
//!
//! The file is used once, and soon: cables may be changed while nobody watches. It is written when
//! the process is asked to end, so there is none after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cli::date::unix_seconds;
use control::controller::Shape;
use openflow::{DatapathId, PortNo};
use serde::{Deserialize, Serialize};

use config::topology::location;

const VERSION: u32 = 1;
/// The maximum time between two processes. Replacing Debian's package takes a few seconds.
const PAUSE_MAX: Duration = Duration::from_secs(30);
const BYTES_MAX: u64 = 64 << 20;

/// The contents of the file.
#[derive(Serialize, Deserialize)]
struct Remembered {
    auster_network: u32,
    /// The time of writing, in seconds since 1970.
    at_s: u64,
    /// Ports without a switch behind them.
    edges: BTreeMap<String, BTreeSet<u32>>,
    /// Both directions of each link.
    links: Vec<(String, String)>,
}

fn file(dir: &Path) -> PathBuf {
    dir.join("network.json")
}

/// Writes what is known for the next process.
pub fn keep(dir: &Path, shape: &Shape) -> std::io::Result<()> {
    fs::write(file(dir), write(shape, unix_seconds()))
}

/// Reads what the last process knew, if it has ended just now.
pub fn take(dir: &Path) -> Option<Shape> {
    let file = file(dir);
    let size = fs::metadata(&file).ok()?.len();
    let text = (size <= BYTES_MAX).then(|| fs::read(&file).ok()).flatten();
    if let Err(error) = fs::remove_file(&file) {
        // The file could be believed a second time.
        tracing::warn!(
            "{}: {error}; ports are held as after a crash",
            file.display()
        );
        return None;
    }
    read(&text?, unix_seconds())
}

fn write(shape: &Shape, at_s: u64) -> Vec<u8> {
    let edges = shape.edges.iter().map(|(dpid, ports)| {
        let ports = ports.iter().map(|port| port.0);
        (dpid.to_string(), ports.collect())
    });
    let links = shape.links.iter();
    let links = links.map(|(from, to)| (from.to_string(), to.to_string()));
    let remembered = Remembered {
        auster_network: VERSION,
        at_s,
        edges: edges.collect(),
        links: links.collect(),
    };
    serde_json::to_vec(&remembered).expect("all keys are strings")
}

/// `None` if any part cannot be read, or if the file is too old.
fn read(text: &[u8], now_s: u64) -> Option<Shape> {
    let remembered: Remembered = serde_json::from_slice(text).ok()?;
    let age = now_s.checked_sub(remembered.at_s)?;
    if remembered.auster_network != VERSION || age > PAUSE_MAX.as_secs() {
        return None;
    }
    let edges = remembered.edges.into_iter().map(|(dpid, ports)| {
        let dpid: DatapathId = dpid.parse().ok()?;
        Some((dpid, ports.into_iter().map(PortNo).collect()))
    });
    let links = remembered.links.iter();
    let links = links.map(|(from, to)| Some((location(from).ok()?, location(to).ok()?)));
    Some(Shape {
        edges: edges.collect::<Option<_>>()?,
        links: links.collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use control::controller::Location;

    use super::*;

    fn shape() -> Shape {
        let at = |dpid, port| Location::new(DatapathId(dpid), PortNo(port));
        Shape {
            edges: BTreeMap::from([(DatapathId(1), BTreeSet::from([PortNo(3), PortNo(4)]))]),
            links: BTreeSet::from([(at(1, 1), at(0xa, 2)), (at(0xa, 2), at(1, 1))]),
        }
    }

    #[test]
    fn it_is_read_as_it_was_written_and_not_when_it_is_old_or_of_the_future() {
        let text = write(&shape(), 1000);
        assert_eq!(read(&text, 1000), Some(shape()));
        assert_eq!(read(&text, 1030), Some(shape()));
        assert_eq!(read(&text, 1031), None);
        assert_eq!(read(&text, 999), None);
        for (place, other) in [
            ("\"1:1\"", "\"1:x\""),
            (":1,\"at_s", ":2,\"at_s"),
            ("{", "["),
        ] {
            let text = String::from_utf8(text.clone()).unwrap();
            let place = place.replace("1:1", "0000000000000001:1");
            assert!(text.contains(&place), "{text}");
            let text = text.replacen(&place, other, 1);
            assert_eq!(read(text.as_bytes(), 1000), None, "{text}");
        }
    }

    #[test]
    fn it_is_used_once() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(take(dir.path()), None);
        keep(dir.path(), &shape()).unwrap();
        assert_eq!(take(dir.path()), Some(shape()));
        assert_eq!(take(dir.path()), None);
        fs::write(file(dir.path()), b"{").unwrap();
        assert_eq!(take(dir.path()), None);
        assert!(!file(dir.path()).exists());
    }
}
