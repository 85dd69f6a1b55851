//! A small part of the experiment on changes of path, for figures that must hold on any machine. As
//! root, with Open vSwitch.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;

use common::lab::{auster, measured};
use serde_json::Value;
use tempfile::TempDir;

const SCENARIO: &str = "\
title = 'reduced'
[reroute]
datagram_bytes = 1470
rates_mbps = [5]
runs = 1
before_s = 0.5
after_s = 1.5
[[reroute.changes]]
there = 'planned, slower'
back = 'planned, faster'
by = 'administrator'
from_ms = 2
to_ms = 30
[[reroute.changes]]
there = 'fails'
back = 'returns'
by = 'cable'
from_ms = 2
to_ms = 5
[reroute.claims]
none_reordered = ['planned, slower', 'returns']
lost_ms_max = { 'fails' = 1500 }
[reroute.claims.reordered_ms_max]
'planned, faster' = 100
[reroute.quick]
runs = 1
rates_mbps = [1]
";

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn planned_changes_lose_nothing_and_a_cut_cable_does() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    fs::write(file("a.toml"), SCENARIO).unwrap();
    let out = file("out");
    let output = auster(&["lab", "run", &file("a.toml"), "--json", "--out", &out]);
    let document = measured(&output);
    let rows = document["rows"].as_array().unwrap();
    let row = |name: &str| {
        let mut of = rows.iter().filter(|row| row["row"] == name);
        of.next().unwrap_or_else(|| panic!("no {name}: {document}"))
    };
    assert_eq!(rows.len(), 4);

    let slower = row("planned, slower");
    let delays = |row: &Value| {
        let of = |key: &str| number(&row[key]["median"]);
        (of("delay_before_ms"), of("delay_after_ms"))
    };
    let (before, after) = delays(slower);
    assert!(before >= 2.0 && after >= 30.0 && before < after, "{slower}");
    // On a machine that is elsewhere for long, queues lose.
    let late_ms = number(&slower["sender_late_ms_max"]);
    assert!(
        late_ms > 25.0 || number(&slower["lost"]["max"]) == 0.0,
        "{slower}"
    );
    let (before, after) = delays(row("planned, faster"));
    assert!(
        before >= 30.0 && after >= 2.0 && after < before,
        "{document}"
    );
    // What is on the cable, if nothing else.
    let fails = row("fails");
    assert!(number(&fails["lost"]["median"]) >= 1.0, "{fails}");
    let (_, after) = delays(fails);
    assert!(after >= 5.0, "{fails}");
    // It may stay where it is.
    let (before, after) = delays(row("returns"));
    assert!(before >= 5.0 && after >= 5.0, "{document}");

    let names = [
        "result.json",
        "command.txt",
        "table.txt",
        "runs.csv",
        "arrivals.csv",
        "counts-5.svg",
        "arrivals-5-1-there.svg",
        "arrivals-5-2-back.svg",
    ];
    for name in names {
        let len = fs::metadata(dir.path().join("out").join(name))
            .unwrap()
            .len();
        assert!(len > 10, "{name}");
    }
}

#[test]
fn wrong_scenarios_are_refused_by_field() {
    let dir = TempDir::new().unwrap();
    let refused = |text: &str, arguments: &[&str], right: &[&str]| {
        let file = dir.path().join("a.toml").display().to_string();
        fs::write(&file, text).unwrap();
        let output = auster(&[&["lab", "run", &file], arguments].concat());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
        for part in right {
            assert!(errors.contains(part), "{right:?}: {errors}");
        }
    };
    let wrong = SCENARIO
        .replace("to_ms = 30", "to_ms = 3000")
        .replace("before_s = 0.5", "before_s = 0");
    refused(
        &wrong,
        &[],
        &[
            "before_s: 0.3 to 60",
            "changes 'planned, slower': to_ms: 0 to 100",
        ],
    );
    let unknown = SCENARIO.replace("'fails' = 1500", "'breaks' = 1500");
    refused(&unknown, &[], &["claims: no row is called 'breaks'"]);
    let misspelt = SCENARIO.replace("after_s", "afterwards_s");
    refused(&misspelt, &[], &["line 7", "afterwards_s"]);
    refused(SCENARIO, &["--runs", "0"], &["runs: 1 to 1000"]);
    refused(SCENARIO, &["--seconds", "3"], &["before_s and after_s"]);
    refused(SCENARIO, &["--controller", "none"], &["brings its own"]);
    let without = SCENARIO.split("[reroute.quick]").next().unwrap();
    refused(without, &["--quick"], &["has no [reroute.quick]"]);
}
