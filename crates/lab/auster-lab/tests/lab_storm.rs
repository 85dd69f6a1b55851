//! Two controllers under a storm of new flows, in the short form of
//! scenarios/controllers-storm.toml. As root, with Open vSwitch and its ovs-testcontroller.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use common::lab::{experiment, scenario};
use serde_json::Value;
use tempfile::TempDir;

#[test]
fn each_controller_has_the_same_storm() {
    let text = scenario("controllers-storm")
        .replace("runs = 2", "runs = 1")
        .replace("[0, 500]", "[0, 50]")
        .replace("flows_per_s=500", "flows_per_s=50")
        .replace("min(flows) >= 300", "min(flows) >= 20")
        .replace("\"5s\"", "\"3s\"");
    let dir = TempDir::new().unwrap();
    let document = experiment(&text, dir.path(), &[]);
    assert_eq!(
        document["controller"],
        "auster over tcp; ovs-testcontroller"
    );
    let networks = document["networks"].as_array().unwrap();
    assert_eq!(networks.len(), 2, "one for each controller");
    let rows = networks.iter().flat_map(|n| n["storm"].as_array().unwrap());
    let rows: Vec<&Value> = rows.collect();
    let cells: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {}", row["controller"], row["flows_per_s"]).replace('"', ""))
        .collect();
    assert_eq!(
        cells,
        [
            "auster 0",
            "auster 50",
            "ovs-testcontroller 0",
            "ovs-testcontroller 50"
        ]
    );
    let figure = |row: &Value, key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{row}"));
    for row in &rows {
        let flows = figure(row, "flows");
        match row["flows_per_s"].as_str().unwrap() {
            "0" => assert_eq!(flows, 0.0, "{row}"),
            // The flows of four seconds, on a machine that may be busy.
            _ => assert!((20.0..=250.0).contains(&flows), "{row}"),
        }
        assert!(figure(row, "pairs_reached") > 0.0, "{row}");
    }
}
