//! The crates as ARCHITECTURE.md draws them: which crate may know which, and that the pure crates
//! stay pure.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const PURE: [&str; 7] = [
    "clock", "openflow", "ovsdb", "sched", "relay", "control", "sim",
];

/// Each crate, and all crates of ours that it may depend on.
const ARROWS: [(&str, &[&str]); 22] = [
    ("clock", &[]),
    ("openflow", &["clock"]),
    ("ovsdb", &["clock"]),
    ("sched", &["clock", "openflow"]),
    ("relay", &["clock", "openflow", "sched"]),
    ("control", &["clock", "openflow", "relay", "sched"]),
    ("sim", &["clock", "control", "openflow", "relay", "sched"]),
    ("net", &["clock", "openflow"]),
    (
        "driver",
        &["clock", "control", "net", "openflow", "ovsdb", "sched"],
    ),
    ("etcd", &["net"]),
    ("tunnel", &["clock", "net", "openflow", "relay", "sched"]),
    ("cli", &["clock", "net"]),
    (
        "config",
        &[
            "cli", "clock", "control", "driver", "etcd", "net", "openflow", "ovsdb", "sched",
        ],
    ),
    (
        "cluster",
        &[
            "cli", "clock", "config", "control", "driver", "etcd", "net", "openflow",
        ],
    ),
    (
        "api",
        &[
            "cli", "clock", "cluster", "config", "control", "driver", "net", "openflow",
        ],
    ),
    ("auster", &PRODUCT),
    (
        "testbed",
        &["cli", "clock", "measure", "net", "openflow", "sim"],
    ),
    ("measure", &[]),
    ("report", &["cli", "measure"]),
    ("bench", &LABORATORY),
    ("scenario", &LABORATORY_AND_BENCH),
    ("lab", &ALL),
];

/// The crates of the product, without those of the laboratory.
const PRODUCT: [&str; 14] = [
    "api", "cli", "clock", "cluster", "config", "control", "driver", "etcd", "net", "openflow",
    "ovsdb", "relay", "sched", "tunnel",
];

const LABORATORY: [&str; 19] = [
    "api", "auster", "cli", "clock", "cluster", "config", "control", "driver", "etcd", "measure",
    "net", "openflow", "ovsdb", "relay", "report", "sched", "sim", "testbed", "tunnel",
];

const LABORATORY_AND_BENCH: [&str; 20] = [
    "api", "auster", "bench", "cli", "clock", "cluster", "config", "control", "driver", "etcd",
    "measure", "net", "openflow", "ovsdb", "relay", "report", "sched", "sim", "testbed", "tunnel",
];

const ALL: [&str; 21] = [
    "api", "auster", "bench", "cli", "clock", "cluster", "config", "control", "driver", "etcd",
    "measure", "net", "openflow", "ovsdb", "relay", "report", "scenario", "sched", "sim",
    "testbed", "tunnel",
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The short name of a crate of ours.
fn ours(package: &str) -> Option<&str> {
    match package {
        "auster" => Some(package),
        _ => package.strip_prefix("auster-"),
    }
}

#[test]
fn no_crate_knows_another_that_the_map_does_not_show() {
    let metadata = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let allowed: BTreeMap<_, BTreeSet<_>> = ARROWS
        .iter()
        .map(|(name, to)| (*name, to.iter().copied().collect()))
        .collect();
    let mut seen = 0;
    for package in metadata["packages"].as_array().unwrap() {
        let name = ours(package["name"].as_str().unwrap()).unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let is_part_of_it = dependency["kind"].is_null();
            if let (true, Some(to)) = (is_part_of_it, ours(dependency["name"].as_str().unwrap())) {
                seen += 1;
                assert!(allowed[name].contains(to), "{name} must not depend on {to}");
            }
        }
    }
    assert!(seen >= 10, "the house has arrows: {seen}");
}

#[test]
fn every_pure_crate_bans_what_is_impure() {
    for name in PURE {
        let path = root().join("crates").join(name).join("clippy.toml");
        let bans = std::fs::read_to_string(&path).unwrap();
        for banned in [
            "Instant::now",
            "SystemTime::now",
            "thread::sleep",
            "HashMap",
            "TcpStream",
            "Mutex",
        ] {
            assert!(
                bans.contains(banned),
                "{}: {banned} is not banned",
                path.display()
            );
        }
        let manifest = root().join("crates").join(name).join("Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).unwrap();
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{name}: lints of the workspace"
        );
        assert!(!manifest.contains("tokio"), "{name} waits for nothing");
    }
}

/// The code that members of a cluster run for each other and for etcd.
const OF_MEMBERS: [&str; 15] = [
    "clock/src",
    "control/src",
    "relay/src",
    "etcd/src",
    "driver/src",
    "cluster/src/lib.rs",
    "cluster/src/bells.rs",
    "cluster/src/copies.rs",
    "cluster/src/documents.rs",
    "cluster/src/operator.rs",
    "cluster/src/packets.rs",
    "cluster/src/store.rs",
    "cluster/src/intent/mod.rs",
    "cluster/src/intent/etcd.rs",
    "cluster/src/intent/known.rs",
];

/// A clock that jumps by a day changes nothing in a cluster: its members never ask for the time of
/// day, so they compare it with nothing. Their waits are measured by the monotonic clock.
#[test]
fn members_of_a_cluster_do_not_ask_for_the_time_of_day() {
    let asks = |text: &str| {
        let words = ["SystemTime", "UNIX_EPOCH", "unix_seconds", "now_ns"];
        let lines = text
            .lines()
            .filter(|line| words.iter().any(|word| line.contains(word)));
        lines.map(str::trim).map(str::to_owned).collect::<Vec<_>>()
    };
    let crates = root().join("crates");
    for place in OF_MEMBERS {
        for file in files(&crates.join(place)) {
            let found = asks(&std::fs::read_to_string(&file).unwrap());
            assert!(found.is_empty(), "{}: {found:?}", file.display());
        }
    }
    // A document records for its readers when it was written. Nothing compares that time.
    let document = crates.join("cluster/src/intent/document.rs");
    let found = asks(&std::fs::read_to_string(document).unwrap());
    assert_eq!(found, ["at: time_of_day(date::unix_seconds()),"]);
}

/// A file, or all files below a folder.
fn files(place: &Path) -> Vec<PathBuf> {
    if place.is_file() {
        return vec![place.to_owned()];
    }
    let entries = std::fs::read_dir(place).unwrap();
    entries
        .flat_map(|entry| files(&entry.unwrap().path()))
        .collect()
}
