//! A small part of the experiment on the paper's network: what must hold on any machine, on links
//! that any machine fills. As root, with Open vSwitch.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;

use common::lab::auster;
use serde_json::Value;
use tempfile::TempDir;

const SCENARIO: &str = "\
title = 'reduced'
[qos_paper]
rate = '10mbit'
scale = 0.001
runs = 1
pings = 2
sizes_mb = [500, 1000]
udp_mbps = 5
datagram_bytes = 1470
queues = ['id=1,min=2mbit,max=10mbit,priority=1,dscp=10', 'id=0,min=500kbit,priority=2']
[qos_paper.background]
flows_per_s = 10
ramp_s = 0.5
[[qos_paper.controllers]]
name = 'auster'
[[qos_paper.controllers]]
name = 'none'
[[qos_paper.controllers]]
name = 'missing'
prepare = 'echo it has no licence >&2; exit 7'
command = 'exit 1'
[qos_paper.claims]
transfer_ratio_max = 100
icmp_ratio_max = 100
udp_loss_percent_max = 100
[qos_paper.quick]
runs = 1
sizes_mb = [20]
controllers = ['none']
";

fn write(dir: &TempDir, text: &str) -> String {
    let file = dir.path().join("a.toml");
    fs::write(&file, text).unwrap();
    file.display().to_string()
}

#[test]
fn queues_are_on_the_way_of_what_they_are_for_under_any_controller() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("out");
    let file = write(&dir, SCENARIO);
    let output = auster(&["lab", "run", &file, "--json", "-o", out.to_str().unwrap()]);
    let errors = String::from_utf8_lossy(&output.stderr);
    let told = String::from_utf8_lossy(&output.stdout);
    // Beside other work a claim on delays may fail.
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{errors}{told}"
    );
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let left = &document["left_out"][0];
    assert_eq!(left["controller"], "missing");
    assert!(
        left["why"].as_str().unwrap().contains("no licence"),
        "{left}"
    );

    // Four measures: three hops twice, two sizes twice; in three networks each.
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), (3 + 3 + 2 + 2) * 3);
    for row in rows {
        let figures = row["figures"].as_array().unwrap();
        assert_eq!(figures.len(), 2, "{row}");
        for figure in figures {
            assert_eq!(figure["of"]["count"], 1, "{row}");
        }
        assert_ne!(row["auster"], "not-compared", "{row}");
    }
    // By how much is the machine's; the scenario of the whole network claims it.
    for reduction in document["reductions"].as_array().unwrap() {
        assert!(reduction["percent"].is_f64(), "{reduction}");
    }
    let idle = rows
        .iter()
        .find(|row| row["measure"] == "tcp" && row["cell"] == "idle");
    let idle_ms = idle.unwrap()["figures"][0]["of"]["p50"].as_f64().unwrap();
    // 0.5 MB over 10 Mbit/s: the links are limited.
    assert!(idle_ms > 350.0, "{idle_ms}");
    for beside in document["beside"].as_array().unwrap() {
        assert!(
            beside["heard"]["tcp_mbps"].as_f64().unwrap() < 11.0,
            "{beside}"
        );
        assert!(
            beside["heard"]["flows_sent"].as_u64().unwrap() > 0,
            "{beside}"
        );
        if beside["cell"] == "qos" {
            assert!(
                beside["service_packets"].as_u64().unwrap() > 500,
                "{beside}"
            );
        }
    }
    for name in [
        "result.json",
        "command.txt",
        "table.txt",
        "samples.csv",
        "background.csv",
    ] {
        assert!(fs::metadata(out.join(name)).unwrap().len() > 10, "{name}");
    }
    for number in 5..=16 {
        let prefix = format!("fig-{number:02}-");
        let mut files = fs::read_dir(&out)
            .unwrap()
            .map(|file| file.unwrap().file_name());
        let is_there = files.any(|name| name.to_str().unwrap().starts_with(&prefix));
        assert!(is_there, "no figure {number}");
    }
}

#[test]
fn a_claim_that_does_not_hold_fails_the_run() {
    let dir = TempDir::new().unwrap();
    let text = SCENARIO.replace("icmp_ratio_max = 100", "icmp_ratio_max = 0.001");
    let output = auster(&["lab", "run", &write(&dir, &text), "--quick"]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{told}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("claims do not hold"), "{errors}{told}");
    assert!(
        told.contains("NO   none: round trip (ms), 3 hops"),
        "{told}"
    );
}

#[test]
fn a_wrong_scenario_is_refused_by_line_and_field() {
    let dir = TempDir::new().unwrap();
    let text = SCENARIO
        .replace("scale = 0.001", "scale = 7")
        .replace("ramp_s = 0.5", "ramp_s = -1")
        .replace("controllers = ['none']", "controllers = ['nobody']");
    let output = auster(&["lab", "run", &write(&dir, &text)]);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr);
    for part in [
        "line 4: scale: above 0",
        "line 13: background.ramp_s: 0 to",
        "line 29: quick.controllers: there is none of the name 'nobody'",
    ] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
}
