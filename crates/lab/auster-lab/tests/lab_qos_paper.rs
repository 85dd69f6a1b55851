//! scenarios/qos-paper.toml in a small form: what must hold on any machine, on links that any
//! machine fills. As root, with Open vSwitch.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;

use common::lab::{auster, experiment, scenario};
use serde_json::Value;
use tempfile::TempDir;

/// On links of 10 Mbit/s, where 1 MB takes 0.8 s. One controller cannot be prepared.
fn small() -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
    let graph = format!("{root}/scenarios/topology/qos-paper.toml");
    let mut text = scenario("qos-paper");
    for (from, to) in [
        ("\"topology/qos-paper.toml\"", format!("\"{graph}\"")),
        ("rate=100mbit", "rate=10mbit".to_owned()),
        ("min=20mbit,max=100mbit", "min=2mbit,max=10mbit".to_owned()),
        ("min=5mbit", "min=500kbit".to_owned()),
        ("rate_mbps = 50", "rate_mbps = 5".to_owned()),
        ("streaming = \"160ms\"", "streaming = \"1s\"".to_owned()),
        ("flows_per_s = 50", "flows_per_s = 10".to_owned()),
        ("count = 5", "count = 2".to_owned()),
        (
            "\"crates/auster/tests/peers/setup os-ken target/tmp/peers/os-ken\"",
            "\"echo it has no licence >&2; exit 7\"".to_owned(),
        ),
        (
            "controller = [\"auster\", \"ovs-testcontroller\"]",
            "controller = [\"auster\", \"os-ken\", \"ovs-testcontroller\"]".to_owned(),
        ),
        (
            "size_mb = [\"100\", \"1000\"]",
            "size_mb = [\"100\"]".to_owned(),
        ),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, &to);
    }
    text
}

fn figure(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row}"))
}

#[test]
fn queues_are_on_the_path_of_what_they_are_for_under_any_controller() {
    let dir = TempDir::new().unwrap();
    let document = experiment(&small(), dir.path(), &["--quick"]);
    let left = document["left_out"].as_array().unwrap();
    let left = left[0].as_str().unwrap();
    assert!(left.starts_with("os-ken: ") && left.contains("no licence"));
    let networks = document["networks"].as_array().unwrap();
    assert_eq!(networks.len(), 2, "one for each controller that is there");
    for network in networks {
        let rows = |name: &str| network[name].as_array().unwrap().iter();
        assert_eq!(rows("icmp").count(), 3, "idle, beside traffic, with queues");
        for row in rows("icmp") {
            assert!(figure(row, "later_3_ms") > 0.0, "{row}");
        }
        assert_eq!(rows("transfers").count(), 3);
        for row in rows("transfers") {
            // How much other traffic slows a transfer depends on the machine; the whole scenario
            // claims it.
            let least_ms = 1e6 * 8.0 / 10e3 * 0.9;
            assert!(figure(row, "transfer_ms") > least_ms, "{row}");
            // A stream begins when its transfer has ended, and lasts for its full time.
            assert!((400.0..440.0).contains(&figure(row, "sent")), "{row}");
        }
        assert_eq!(rows("background").count(), 4);
        for row in rows("background") {
            // Background beside a transfer runs until the transfer has ended, however long that
            // takes.
            assert!((0.1..11.0).contains(&figure(row, "tcp_mbps")), "{row}");
            assert!(figure(row, "flows") > 5.0, "{row}");
        }
        let queue = rows("queue").next().unwrap();
        assert!(figure(queue, "packets") > 1000.0, "{queue}");
    }
    let checks = document["checks"].as_array().unwrap();
    let of = |words: &str| {
        let own = checks
            .iter()
            .filter(|c| c["what"].as_str().unwrap().contains(words));
        own.collect::<Vec<_>>()
    };
    assert_eq!(checks.len(), 3 + 3 + 3, "of auster alone: {checks:#?}");
    assert_eq!(of("in its queue")[0]["passed"], true, "{checks:#?}");
    for name in [
        "first",
        "rtt",
        "tcp",
        "udp",
        "first_qos",
        "rtt_qos",
        "tcp_qos",
        "udp_qos",
    ] {
        let files = fs::read_dir(dir.path().join("out")).unwrap();
        let prefix = format!("{name}-");
        let mut names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        assert!(
            names.any(|file| file.starts_with(&prefix)),
            "no plot {name}"
        );
    }
}

#[test]
fn a_claim_that_does_not_hold_fails_the_run() {
    let dir = TempDir::new().unwrap();
    let text = small().replace("later_3_ms) <= 1.5 *", "later_3_ms) <= 0.001 *");
    let file = dir.path().join("a.toml");
    fs::write(&file, text).unwrap();
    let path = file.display().to_string();
    let only = [
        "--only",
        "auster, idle, ICMP",
        "--only",
        "auster, qos, ICMP",
    ];
    let output = auster(&[&["lab", "run", &path, "--runs", "1"], &only[..]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let claim = "auster, qos, ICMP: over three hops a round trip takes at most";
    assert!(errors.contains(claim), "{errors}");
}

#[test]
fn a_controller_that_cannot_be_prepared_alone_leaves_nothing_to_measure() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("a.toml");
    fs::write(&file, small()).unwrap();
    let path = file.display().to_string();
    let output = auster(&["lab", "run", &path, "--only", "os-ken, idle, ICMP"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("no controller is left to measure"),
        "{errors}"
    );
}
