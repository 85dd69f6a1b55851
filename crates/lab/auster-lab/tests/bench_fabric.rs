//! `auster bench fabric` against `auster run`, on small networks and with few conversations.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::process::Command;

use serde_json::Value;

/// The document of a run against `auster run`.
fn bench(words: &[&str]) -> Value {
    let auster = common::AUSTER;
    let start = format!("{auster} run ptcp:{{port}}:127.0.0.1");
    let found = Command::new(auster)
        .args(["bench", "fabric", "--start", &start, "--rounds", "1"])
        .args(["--hosts", "24", "--json"])
        .args(words)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&found.stderr);
    assert_eq!(found.status.code(), Some(0), "{said}");
    let document = serde_json::from_slice(&found.stdout).unwrap();
    assert_eq!(
        common::schema::departures("bench-fabric", &document),
        Vec::<String>::new()
    );
    document
}

fn runs(document: &Value) -> &Vec<Value> {
    document["runs"][0]["runs"].as_array().unwrap()
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

#[test]
fn all_pairs_are_delivered_and_get_a_path() {
    let words = "--rate 200 -d 2 -w 0.2 --same-switch --timeout 60000";
    let document = bench(&words.split(' ').collect::<Vec<_>>());
    let [across, same] = &runs(&document)[..] else {
        panic!("two runs: {document}");
    };
    for run in [across, same] {
        let tally = &run["tally"];
        let sent = count(&tally["sent"]);
        assert!(sent > 200, "{run}");
        assert_eq!(count(&tally["delivered"]), sent, "{run}");
        assert_eq!(count(&tally["ready"]), sent, "{run}");
        assert_eq!(count(&tally["duplicates"]), 0, "{run}");
        assert_eq!(count(&run["looped"]), 0, "{run}");
        assert_eq!(count(&run["messages"]["refused"]), 0, "{run}");
        assert!(count(&run["echo_ms"]["count"]) > 0, "{run}");
        assert!(run["setup"]["discovered_s"].is_number(), "{run}");
        assert!(run["controller"]["cores"].as_f64().unwrap() > 0.0, "{run}");
        // A path has an entry at its switch at least.
        let entries = run["entries_per_switch"]["mean"].as_f64().unwrap();
        assert!(entries * 4.0 >= sent as f64, "{run}");
    }
}

#[test]
fn conversations_are_carried_again_after_a_link_and_a_switch_failed() {
    let words = "--workload failures --topology ring,4 --events 2 --conversations 40 --rate 20";
    let document = bench(&words.split(' ').collect::<Vec<_>>());
    let events = runs(&document)[0]["events"].as_array().unwrap();
    let kinds: Vec<&str> = events.iter().filter_map(|e| e["kind"].as_str()).collect();
    assert_eq!(kinds, ["link down", "link up", "switch down", "switch up"]);
    for event in events {
        assert!(count(&event["conversations"]) > 0, "{event}");
        assert!(event["carried_again_ms"].is_number(), "{event}");
        assert!(event["served_ms"].is_number(), "{event}");
    }
    let broken = events.iter().map(|event| count(&event["broken"]));
    assert!(broken.sum::<u64>() > 0, "{document}");
}

#[test]
fn growth_is_drawn_over_several_networks() {
    let dir = tempfile::TempDir::new().unwrap();
    let out = dir.path().join("out");
    let words = "--topology linear,2 --topology leaf-spine,1x3 --rate 50 -d 1 -w 0.2 -o";
    let words: Vec<&str> = words.split(' ').chain(out.to_str()).collect();
    let document = bench(&words);
    let sizes = runs(&document).iter().map(|run| count(&run["switches"]));
    assert_eq!(sizes.collect::<Vec<_>>(), [2, 4]);
    for run in runs(&document) {
        let setup = &run["setup"];
        let announced = setup["announced_s"].as_f64().unwrap();
        assert!(announced > setup["discovered_s"].as_f64().unwrap(), "{run}");
    }
    for name in ["rate", "tables", "memory", "setup"] {
        let plot = std::fs::read_to_string(out.join(format!("growth-{name}.svg"))).unwrap();
        assert!(
            plot.contains("switches") && plot.contains("<path"),
            "{plot}"
        );
    }
}

#[test]
fn a_controller_that_fails_takes_no_runs_of_others_with_it() {
    let auster = common::AUSTER;
    let start = format!("{auster} run ptcp:{{port}}:127.0.0.1");
    let words = "--rounds 2 --hosts 24 --rate 100 -d 0.5 -w 0.1 --json";
    let found = Command::new(auster)
        .args([
            "bench",
            "fabric",
            "--start",
            "exit 7 {port}",
            "--compare",
            &start,
        ])
        .args(words.split(' '))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&found.stderr);
    assert_eq!(found.status.code(), Some(1), "{said}");
    let document: Value = serde_json::from_slice(&found.stdout).unwrap();
    let departures = common::schema::departures("bench-fabric", &document);
    assert_eq!(departures, Vec::<String>::new());
    let failures = document["runs"][0]["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 1, "it is not tried again: {failures:?}");
    assert_eq!(document["runs"][1]["runs"].as_array().unwrap().len(), 2);
}
