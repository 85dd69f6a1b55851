//! The in-band scenario on real switches, in its quick part: counts and shares only. The scenario
//! itself claims and reports the delays.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use common::lab::{auster, measured};
use serde_json::Value;

const SCENARIO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../scenarios/pso-in-band.toml"
);

#[test]
fn control_passes_a_link_full_of_data_once_it_has_queues() {
    let document = measured(&auster(&["lab", "run", SCENARIO, "--quick", "--json"]));
    let networks = document["networks"].as_array().unwrap();
    assert_eq!(networks.len(), 1, "all runs share a network");
    let rows = networks[0]["shared"].as_array().unwrap();
    let row = |link: &str, data: &str| {
        let mut of = rows
            .iter()
            .filter(|row| row["link"] == link && row["data"] == data);
        let row: &Value = of.next().unwrap();
        move |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row}"))
    };
    let queued = row("queues", "1.2");
    assert!(queued("asked") > 500.0, "{}", queued("asked"));
    // If the link was not overloaded, the test shows nothing.
    let lost = queued("data_lost_percent");
    assert!(lost > 5.0, "{lost}");
    let plain = row("plain", "1.2");
    assert!(plain("asked") > 500.0, "{}", plain("asked"));

    let checks = document["checks"].as_array().unwrap();
    let words = |check: &Value| check["what"].as_str().unwrap().to_string();
    let of_code_points = checks.iter().filter(|c| words(c).contains("code point"));
    let mut count = 0;
    for check in of_code_points {
        count += 1;
        assert_eq!(check["passed"], true, "{check:#}");
    }
    // On both links: three classes without data, control in either load, and in the other the data
    // that is marked and that is hostile.
    assert_eq!(count, 2 * (3 + 2 + 2));

    // The dropped packets were data, in the class of data. Beside other load a burst of control may
    // find its short queue full too.
    let share = |queue: &str| {
        let [dropped, packets] =
            ["dropped", "packets"].map(|key| queued(&format!("{queue}_{key}")));
        dropped / packets.max(1.0)
    };
    for queue in ["first", "second", "third", "marked"] {
        assert!(share(queue) * 50.0 <= 1.0, "{queue}: {}", share(queue));
    }
    assert!(share("data") * 50.0 > 1.0, "{}", share("data"));
    assert_eq!(queued("data_is_default"), 1.0);
    let control: f64 = ["first", "second", "third"]
        .map(|queue| queued(&format!("{queue}_packets")))
        .iter()
        .sum();
    assert!(control > 500.0, "{control}");
}

#[test]
fn a_scenario_that_cannot_be_run_says_why() {
    let text = std::fs::read_to_string(SCENARIO).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("broken.toml");
    std::fs::write(
        &path,
        text.replace("frame_bytes = 1000", "frame_bytes = 10"),
    )
    .unwrap();
    let output = auster(&["lab", "run", &path.display().to_string()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("traffic.frame_bytes: 10 is not a whole number from 66 to 1514"),
        "{said}"
    );
    let output = auster(&["lab", "run", SCENARIO, "--transport", "tcp"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("a [controller] of its own"), "{said}");
}
