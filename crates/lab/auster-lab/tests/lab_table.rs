//! scenarios/table-pressure-ovs.toml in the smallest size that shows anything: requirements that
//! any machine must meet, by counts with wide margins. As root.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use common::lab::{experiment, scenario};
use serde_json::Value;
use tempfile::TempDir;

/// 36 new flows a second into a table of 100 entries.
fn reduced() -> String {
    let quick = "seconds = 40\nentries = [1000]";
    let text = scenario("table-pressure-ovs");
    assert!(text.contains(quick) && text.contains("time = \"10s\""));
    let text = text.replace(quick, "seconds = 6\nentries = [100]");
    text.replace("time = \"10s\"", "time = \"1500ms\"")
}

#[test]
fn a_lease_keeps_room_where_a_fixed_timeout_is_refused() {
    let dir = TempDir::new().unwrap();
    let document = experiment(&reduced(), dir.path(), &["--quick"]);
    let networks = document["networks"].as_array().unwrap();
    assert_eq!(networks.len(), 4, "each policy has a network of its own");
    let rows = networks.iter();
    let rows = rows.flat_map(|network| network["pressure"].as_array().unwrap());
    let rows: Vec<&Value> = rows.collect();
    let row = |policy: &str| {
        let row = rows.iter().find(|row| row["policy"] == policy);
        *row.unwrap_or_else(|| panic!("no {policy}: {document}"))
    };
    let of = |policy: &str, figure: &str| {
        let row = row(policy);
        let value = row[figure].as_f64();
        value.unwrap_or_else(|| panic!("{figure}: {row}"))
    };

    for policy in ["lease", "paper", "fixed 10 s", "LRU"] {
        let row = row(policy);
        // All policies have the trace of one seed.
        assert_eq!(of(policy, "flows"), of("lease", "flows"), "{row}");
        assert_eq!(of(policy, "packets"), of("lease", "packets"), "{row}");
        assert_eq!(of(policy, "hosts"), 256.0, "{row}");
        // At least the first packet of each flow misses.
        assert!(of(policy, "misses") >= of(policy, "flows"), "{row}");
        assert!(of(policy, "simulated_misses_per_flow") >= 1.0, "{row}");
        assert!(of(policy, "entries_max") <= 100.0, "{row}");
        assert_eq!(of(policy, "unseen"), 0.0, "{row}");
        assert_eq!(row["occupied"].as_array().unwrap().len(), 24, "{row}");
    }
    assert!(of("lease", "flows") > 150.0, "{document}");
    assert!(of("lease", "entries_mean") > 50.0, "{}", row("lease"));
    assert!(of("lease", "evicted") > 0.0, "{}", row("lease"));
    // Nothing reports the table's capacity to the controller.
    let fixed = "fixed 10 s";
    assert!(of(fixed, "table_full") > 0.0, "{}", row(fixed));
    assert_eq!(of(fixed, "entries_max"), 100.0, "{}", row(fixed));
    assert_eq!(of("LRU", "table_full"), 0.0, "{}", row("LRU"));
    assert_eq!(of("LRU", "entries_max"), 100.0, "{}", row("LRU"));
    assert!(of("LRU", "put_out") > 0.0, "{}", row("LRU"));
    // The simulator, which has the same trace, evicts the least recently used entry.
    let simulated = |policy| of(policy, "simulated_misses_per_flow");
    assert!(simulated("LRU") < simulated(fixed), "{document}");

    for name in [
        "occupancy-100-linear_2-5.svg",
        "misses-100-linear_2-5.svg",
        "result.json",
    ] {
        let path = dir.path().join("out").join(name);
        let size = std::fs::metadata(&path).map(|kept| kept.len());
        assert!(size.is_ok_and(|size| size > 500), "{name}");
    }
}
