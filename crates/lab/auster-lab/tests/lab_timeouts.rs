//! Small parts of the experiments on timeouts, for what must hold on any machine: counts with wide
//! margins. As root, with Open vSwitch.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;

use common::lab::{auster, experiment};
use serde_json::Value;
use tempfile::TempDir;

fn scenario(name: &str) -> String {
    let dir = env!("CARGO_MANIFEST_DIR");
    fs::read_to_string(format!("{dir}/../../../scenarios/{name}.toml")).unwrap()
}

/// Runs the quick part of a scenario for three seconds.
fn run(text: &str, dir: &TempDir) -> Value {
    experiment(text, dir.path(), &["--quick", "--seconds", "3"])
}

/// The one row of a cell.
fn row<'a>(document: &'a Value, kind: &str, name: &str) -> &'a Value {
    let networks = document["networks"].as_array().unwrap().iter();
    let mut rows = networks.flat_map(|network| network[kind].as_array().unwrap());
    let found = rows.find(|row| row["case"] == name || row["policy"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {document}"))
}

fn number(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row}"))
}

#[test]
fn an_entry_that_expires_reorders_and_no_entry_does_not() {
    let dir = TempDir::new().unwrap();
    let text = scenario("timeouts-figures");
    let (before, _) = text.split_once("\ncase = [").unwrap();
    let cases = [
        "reactive, D 17 ms",
        "OpenFlow, hard 1 s",
        "without OpenFlow, UDP",
    ];
    let document = run(&format!("{before}\ncase = {cases:?}\n"), &dir);
    assert_eq!(document["seconds"], 3.0);

    let hard = row(&document, "streams", "OpenFlow, hard 1 s");
    assert!((1200.0..=1276.0).contains(&number(hard, "sent")), "{hard}");
    // Two expiries reorder some six packets each.
    let reordered = number(hard, "reordered");
    assert!(reordered >= 1.0, "{hard}");
    assert!(number(hard, "detours") >= 2.0, "{hard}");
    assert!(number(hard, "packet_ins") > reordered, "{hard}");
    assert!(number(hard, "detour_ms") >= 17.0, "{hard}");
    assert!(number(hard, "predicted") > 2.0, "{hard}");
    assert!(number(hard, "late_ms_max") > 1.0, "{hard}");
    assert_eq!(number(hard, "unseen"), 0.0, "{hard}");
    let seconds = hard["reordered_by_second"].as_array().unwrap().iter();
    let seconds: Vec<f64> = seconds.map(|count| count.as_f64().unwrap()).collect();
    assert_eq!(
        (seconds.len(), seconds.iter().sum()),
        (3, reordered),
        "{hard}"
    );

    let without = row(&document, "streams", "without OpenFlow, UDP");
    assert_eq!(number(without, "packet_ins"), 0.0, "{without}");
    assert_eq!(number(without, "reordered"), 0.0, "{without}");
    assert!(without["detour_ms"].is_null(), "{without}");

    let reactive = row(&document, "pings", "reactive, D 17 ms");
    let counts = (number(reactive, "sent"), number(reactive, "lost"));
    assert_eq!(counts, (10.0, 0.0));
    // The first request and its answer each go to the controller.
    let first = reactive["by_request_ms"][0].as_f64().unwrap();
    assert!(first > 17.0, "{reactive}");
    let plot = dir.path().join("out/fig_6-5.svg");
    assert!(fs::metadata(plot).unwrap().len() > 10);
}

#[test]
fn a_load_takes_the_controllers_core_and_two_streams_share_an_entry() {
    let dir = TempDir::new().unwrap();
    let text = scenario("timeouts-1-to-5")
        .replace("every = \"10s\"", "every = \"1s\"")
        .replace("streams = [1]", "streams = [2]");
    let text = text + "policy = [\"hard 1 s\"]\ntopology = [\"one switch\"]\n";
    let document = run(&text, &dir);
    let busy = row(&document, "streams", "hard 1 s");
    assert!((2400.0..=2552.0).contains(&number(busy, "sent")), "{busy}");
    assert!(number(busy, "reordered") >= 1.0, "{busy}");
    let core = busy["core_percent"].as_array().unwrap();
    assert_eq!(core.len(), 3, "{busy}");
    assert!(
        core.iter().all(|percent| percent.as_f64() > Some(30.0)),
        "{busy}"
    );
    assert!(
        busy["controller_percent"][1].as_f64().unwrap() < 90.0,
        "{busy}"
    );
    assert!(dir.path().join("out/core-one_switch-2.svg").exists());
}

#[test]
fn a_command_line_that_does_not_fit_is_refused() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("a.toml").display().to_string();
    let refused = |text: &str, arguments: &[&str], right: &str| {
        fs::write(&file, text).unwrap();
        let output = auster(&[&["lab", "run", &file], arguments].concat());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(right), "{right}: {errors}");
    };
    let text = scenario("table-2");
    refused(&text, &["--runs", "0"], "--runs: write a number from 1");
    refused(
        &text,
        &["--seconds", "nan"],
        "--seconds: write a number from 0.01",
    );
    refused(
        &text,
        &["--controller", "none"],
        "a [controller] of its own",
    );
    refused(&text.replace("idle_s = 0", "idle_s = -1"), &[], "idle_s");
    let other = scenario("first-contact");
    refused(&other, &["--seconds", "2"], "the events of this scenario");
}
