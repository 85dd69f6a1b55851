//! Queues and policies, in small forms of scenarios/qos-queues.toml and qos-scale.toml: which queue
//! packets are in, and what is sent again. As root, with Open vSwitch.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;

use common::lab::{experiment, scenario};
use tempfile::TempDir;

#[test]
fn packets_are_in_the_queues_that_flows_name_and_open_vswitch_alone_has_them_in_queue_0() {
    // A tenth of the rates, which any machine carries, and time to set the queues and to verify. A
    // sender's lateness depends on the machine.
    let text = scenario("qos-queues")
        .replace("rate_mbps = 90", "rate_mbps = 9")
        .replace("mbit", "00kbit")
        .replace("000000", "00000")
        .replace("_late_ms <= 25", "_late_ms <= 100000")
        .replace("time = \"2s\"", "time = \"10s\"")
        .replace("\"measured\"\ntime = \"1s\"", "\"measured\"\ntime = \"7s\"")
        + "case = [\"minimum\"]\n";
    let dir = TempDir::new().unwrap();
    let document = experiment(&text, dir.path(), &["--quick"]);
    let networks = document["networks"].as_array().unwrap();
    assert_eq!(networks.len(), 1, "all runs share a network");
    let rows = networks[0]["queues"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for row in rows {
        let figure = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row}"));
        let effects = ["first_effect", "second_effect", "verify_code"].map(figure);
        let packets = ["queue_0_packets", "first_packets", "second_packets"].map(figure);
        match row["way"].as_str().unwrap() {
            "Open vSwitch alone" => {
                assert_eq!(effects, [0.0, 0.0, 1.0], "{row}");
                assert!(packets[0] > 0.0 && packets[1..] == [0.0; 2], "{row}");
            }
            _ => {
                assert_eq!(effects, [1.0, 1.0, 0.0], "{row}");
                assert!(packets.iter().skip(1).all(|count| *count > 0.0), "{row}");
            }
        }
    }
    let plot = dir.path().join("out/rates-minimum.svg");
    assert!(fs::metadata(plot).unwrap().len() > 20);
}

/// A line of three switches: nothing is sent again, and what a new process finds stays.
#[test]
fn policies_on_many_switches_are_set_once() {
    let dir = TempDir::new().unwrap();
    // The times are long enough for a busy machine.
    let text = scenario("qos-scale")
        .replace("graph = [\"linear,5\"]", "graph = [\"linear,3\"]")
        .replace("policies = [20, 100]", "policies = [50]")
        .replace("step = [\"4s\"]", "step = [\"15s\"]");
    let document = experiment(&text, dir.path(), &["--quick"]);
    let row = &document["networks"][0]["scale"][0];
    let figure = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row}"));
    for (key, right) in [
        ("entries", 150.0),
        ("entries_wanted", 150.0),
        ("reconcile_missing", 0.0),
        ("remove_code", 0.0),
    ] {
        assert_eq!(figure(key), right, "{key}: {row}");
    }
    // At most each entry and its barrier, and the messages sent anyway: 100 and 100 a second.
    let anyway = 100.0 + figure("apply_ms") / 10.0;
    assert!(
        (150.0..=300.0 + anyway).contains(&figure("apply_messages")),
        "{row}"
    );
    let again = figure("reload_messages") - figure("idle_messages");
    assert!(again <= 45.0, "{row}");
    assert!(figure("reconcile_ms") > 0.0, "{row}");
    for name in ["result.json", "growth-linear_3-2s-15s.svg"] {
        assert!(dir.path().join("out").join(name).exists(), "{name}");
    }
}
