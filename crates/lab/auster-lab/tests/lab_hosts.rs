//! scenarios/network.toml in a small form, on a network whose controller is far away: round trips,
//! transfers and streams within bounds given by physics and counting. As root, with Open vSwitch
//! and iperf3.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;

use common::lab::{experiment, scenario};
use serde_json::Value;
use tempfile::TempDir;

/// Delay in one direction between switches and controller: so long that no delay of a busy machine
/// resembles it.
const CONTROL_MS: f64 = 50.0;

fn figure(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row}"))
}

#[test]
fn a_small_run_finds_what_the_control_link_makes_of_new_flows() {
    let dir = TempDir::new().unwrap();
    let delay = format!("control_ms = {CONTROL_MS}\n");
    let text = scenario("network").replace("control_ms = 5\n", &delay);
    // On a busy machine the first packets of one second may take the whole second.
    let document = experiment(&text, dir.path(), &["--quick", "--seconds", "3"]);
    let networks = document["networks"].as_array().unwrap();
    assert_eq!(networks.len(), 1, "all runs share a network");
    let rows = |name: &str| networks[0][name].as_array().unwrap().iter();

    assert_eq!(rows("rtt").count(), 2, "idle, and beside new flows");
    for row in rows("rtt") {
        assert!(figure(row, "hosts") >= 1.0, "{row}");
        // Request and answer each go to the controller and back.
        assert!(figure(row, "first_min_ms") >= 4.0 * CONTROL_MS, "{row}");
        assert_eq!(figure(row, "later_sent"), 3.0 * figure(row, "hosts"));
        let later_ms = figure(row, "later_p50_ms");
        assert!(later_ms < figure(row, "first_ms"), "{row}");
    }
    assert_eq!(rows("tcp").count(), 2);
    for row in rows("tcp") {
        assert!(figure(row, "transfers") >= 1.0, "{row}");
        assert_eq!(figure(row, "failed"), 0.0, "{row}");
    }
    assert_eq!(rows("udp").count(), 4);
    for row in rows("udp") {
        // The first packets of a new host go to the controller, and later packets overtake them.
        let (reordered, delay_ms) = (figure(row, "reordered"), figure(row, "delay_max_ms"));
        match row["flow"].as_str().unwrap() {
            "known" => assert_eq!(reordered, 0.0, "{row}"),
            _ => {
                assert!(reordered > 0.0 && figure(row, "extent_max") >= 1.0, "{row}");
                assert!(delay_ms >= 2.0 * CONTROL_MS, "{row}");
            }
        }
        let beside = ["beside_flows", "beside_delivered"].map(|key| figure(row, key));
        match row["beside"].as_str().unwrap() {
            "idle" => assert_eq!(beside, [0.0; 2], "{row}"),
            _ => assert!(beside[0] > 20.0 && beside[1] > 0.0, "{row}"),
        }
    }
    assert_eq!(rows("iperf3").count(), 2);
    for row in rows("iperf3") {
        assert!(figure(row, "sent") > 0.0, "{row}");
        assert_eq!(figure(row, "reordered"), 0.0, "{row}");
    }
    let files = fs::read_dir(dir.path().join("out")).unwrap();
    let names: Vec<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    for plot in [
        "rtt_first",
        "tcp_time",
        "udp_loss",
        "udp_jitter",
        "udp_reordering",
    ] {
        let is_it = |name: &String| name.starts_with(plot) && name.ends_with(".svg");
        assert!(names.iter().any(is_it), "no {plot} in {names:?}");
    }
}
