//! A flow table under pressure on Open vSwitch, in the smallest size that shows anything: demands
//! that must hold on any machine, by counts with wide margins. As root.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;

use common::lab::{auster, measured};
use serde_json::Value;
use tempfile::TempDir;

/// 36 new flows a second into a table of 100 entries.
const SCENARIO: &str = "\
title = 'reduced'
[table]
seconds = 6
runs = 1
destinations = 16
[[table.policies]]
name = 'lease'
tell_limit = true
simulated = { kind = 'lease' }
[table.policies.controller.timeouts]
policy = 'lease'
[[table.policies]]
name = 'ten'
simulated = { kind = 'fixed', idle_s = 10 }
[table.policies.controller.timeouts]
policy = 'fixed'
idle_s = 10
[[table.policies]]
name = 'lru'
overflow = 'evict'
simulated = { kind = 'lru' }
[table.policies.controller.timeouts]
policy = 'fixed'
idle_s = 3600
[[table.cells]]
entries = 100
topology = 'linear,2'
loads = [5]
at_once = 3
[table.claims]
bounded = ['lease']
never_full = ['lease']
none_lost = ['lease', 'ten', 'lru']
[table.quick]
seconds = 2
runs = 1
[[table.quick.cells]]
entries = 20
topology = 'linear,2'
loads = [5]
";

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn a_lease_keeps_room_where_a_fixed_timeout_is_refused() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    fs::write(file("a.toml"), SCENARIO).unwrap();
    let out = file("out");
    let output = auster(&["lab", "run", &file("a.toml"), "--json", "--out", &out]);
    let document = measured(&output);
    let row = |policy: &str| {
        let mut rows = document["rows"].as_array().unwrap().iter();
        let row = rows.find(|row| row["policy"] == policy);
        row.unwrap_or_else(|| panic!("no {policy}: {document}"))
    };
    let of = |policy: &str, figure: &str| number(&row(policy)[figure]["mean"]);

    for policy in ["lease", "ten", "lru"] {
        let row = row(policy);
        // All of them have the trace of one seed.
        assert_eq!(of(policy, "flows"), of("lease", "flows"), "{row}");
        assert_eq!(of(policy, "packets"), of("lease", "packets"), "{row}");
        // The first packet of each flow, at least.
        assert!(of(policy, "misses") >= of(policy, "flows"), "{row}");
        assert!(of(policy, "simulated_misses_per_flow") >= 1.0, "{row}");
        assert!(of(policy, "entries_max") <= 100.0, "{row}");
        assert_eq!(of(policy, "unseen"), 0.0, "{row}");
    }
    assert!(of("lease", "flows") > 150.0, "{document}");
    assert!(of("lease", "entries_mean") > 50.0, "{}", row("lease"));
    assert!(of("lease", "evicted") > 0.0, "{}", row("lease"));
    assert!(of("ten", "table_full") > 0.0, "{}", row("ten"));
    assert_eq!(of("ten", "entries_max"), 100.0, "{}", row("ten"));
    assert_eq!(of("lru", "table_full"), 0.0, "{}", row("lru"));
    assert_eq!(of("lru", "entries_max"), 100.0, "{}", row("lru"));

    let names = [
        "result.json",
        "command.txt",
        "table.txt",
        "runs.csv",
        "occupancy.csv",
        "occupancy-100-linear-2-5.svg",
        "misses-100-linear-2-5.svg",
    ];
    for name in names {
        let path = dir.path().join("out").join(name);
        let len = fs::metadata(&path)
            .unwrap_or_else(|e| panic!("{name}: {e}"))
            .len();
        assert!(len > 10, "{name}");
    }
}

#[test]
fn a_claim_that_does_not_hold_fails_the_run() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("a.toml").display().to_string();
    let text = SCENARIO.replace("never_full = ['lease']", "never_full = ['ten']");
    fs::write(&file, text).unwrap();
    let output = auster(&["lab", "run", &file, "--quick", "--seconds", "4"]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("claims do not hold"), "{errors}");
    assert!(
        told.contains("NO   ten, 20 entries, linear,2, load 5: no entry refused"),
        "{told}"
    );
}
