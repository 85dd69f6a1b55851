//! The in-band scenario on real switches, in its quick part: counts only. Its delays are what the
//! scenario itself claims and reports.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use common::lab::auster;
use serde_json::Value;

const SCENARIO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../scenarios/pso-in-band.toml"
);

#[test]
fn control_passes_a_link_full_of_data_once_it_has_queues() {
    let output = auster(&["lab", "run", SCENARIO, "--quick", "--json"]);
    let error = String::from_utf8_lossy(&output.stderr);
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"));
    let cells = document["cells"].as_array().unwrap();
    let cell = |has_queues: bool, load: f64| {
        let found = cells
            .iter()
            .find(|cell| cell["has_queues"] == has_queues && cell["data_load"] == load);
        found.unwrap_or_else(|| panic!("no cell of load {load}: {document:#}"))
    };
    let queued = cell(true, 1.2);
    assert!(
        queued["openflow_asked"].as_u64().unwrap() > 500,
        "{queued:#}"
    );
    // The link was overloaded, or all this shows nothing.
    assert!(
        queued["data_loss_percent"]["mean"].as_f64().unwrap() > 5.0,
        "{queued:#}"
    );
    let plain = cell(false, 1.2);
    assert!(plain["openflow_asked"].as_u64().unwrap() > 500, "{plain:#}");

    let checks = document["checks"].as_array().unwrap();
    let of_code_points = checks
        .iter()
        .filter(|check| check["what"].as_str().unwrap().contains("code point"));
    let mut count = 0;
    for check in of_code_points {
        count += 1;
        assert_eq!(check["passed"], true, "{check:#}");
    }
    assert_eq!(
        count, 6,
        "three classes, control, data that is marked and that is hostile"
    );

    // It was data that was dropped, in the class of data. Beside other load a burst of control may
    // find its short queue full too.
    let trials = document["trials"].as_array().unwrap();
    let overloaded = trials
        .iter()
        .find(|trial| trial["has_queues"] == true && trial["data_load"] == 1.2)
        .unwrap();
    let queues = overloaded["queues"]["queues"].as_array().unwrap();
    for queue in queues {
        let count = |key: &str| queue[key].as_u64().unwrap();
        let is_overloaded = count("dropped") * 50 > count("packets");
        assert_eq!(is_overloaded, queue["is_default"] == true, "{queue:#}");
    }
    let control: u64 = queues[..3]
        .iter()
        .map(|q| q["packets"].as_u64().unwrap())
        .sum();
    assert!(control > 500, "{queues:#?}");
}

#[test]
fn a_scenario_that_cannot_be_run_says_why() {
    let text = std::fs::read_to_string(SCENARIO).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("broken.toml");
    std::fs::write(&path, text.replace("data_bytes = 1000", "data_bytes = 10")).unwrap();
    let output = auster(&["lab", "run", &path.display().to_string()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("data_bytes: 66 to 1514"), "{said}");
    let output = auster(&["lab", "run", SCENARIO, "--transport", "tcp"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("QUIC"), "{said}");
}
