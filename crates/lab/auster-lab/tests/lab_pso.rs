//! A small form of scenarios/pso-out-of-band.toml, for what must hold on any machine: counts. The
//! scenario itself claims and reports the delays. As root, with Open vSwitch.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;
use std::path::Path;

use common::lab::{auster, measured};
use serde_json::Value;
use tempfile::TempDir;

#[test]
fn no_message_of_the_target_is_lost_by_the_default() {
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios");
    // A fifth of the rates: a link that any machine saturates, with 1,136 messages a second.
    let text = fs::read_to_string(scenarios.join("pso-out-of-band.toml"))
        .unwrap()
        .replace("10mbit", "2mbit")
        .replace("9500000", "1900000")
        .replace("packets_per_s = 200", "packets_per_s = 100")
        .replace("cross_per_s = 936.36", "cross_per_s = 127.27")
        .replace("cross_per_s = 5765.91", "cross_per_s = 1604.55")
        .replace("1200ms", "1500ms")
        .replace("time = \"400ms\"", "time = \"3s\"") // a busy machine answers late
        .replace("runs = 2", "runs = 1");
    let dir = TempDir::new().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    fs::write(file("a.toml"), text).unwrap();
    let policy = "pso-out-of-band.policy";
    fs::copy(scenarios.join(policy), file(policy)).unwrap();
    let out = file("out");
    let run = ["lab", "run", &file("a.toml"), "--quick", "--json", "--out"];
    let document = measured(&auster(&[&run[..], &[&out]].concat()));
    let networks = document["networks"].as_array().unwrap();
    assert_eq!(networks.len(), 2, "the loads of an algorithm share relays");
    let rows = || {
        let rows = networks.iter().map(|network| network["control"].as_array());
        rows.flatten().flatten()
    };
    let row = |algorithm: &str, load: &str| {
        let mut of = rows().filter(|row| row["algorithm"] == algorithm && row["load"] == load);
        let row: &Value = of.next().unwrap();
        move |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row}"))
    };
    for (algorithm, load) in [("fifo", "0.2"), ("hierarchy", "0.2"), ("hierarchy", "1.05")] {
        let figure = row(algorithm, load);
        let [sent, asked, lost, unseen] =
            ["target_sent", "target_asked", "target_lost", "unseen"].map(&figure);
        assert_eq!(
            [asked, lost, unseen],
            [sent, 0.0, 0.0],
            "{algorithm} {load}"
        );
        // A busy machine sends some of the 150 too late to count.
        assert!((50.0..=150.0).contains(&sent), "{algorithm} {load}: {sent}");
    }
    assert_eq!(row("hierarchy", "0.2")("cross_lost"), 0.0);
    // If the link was not overloaded, the test shows nothing.
    assert!(row("hierarchy", "1.05")("cross_lost") > 0.0);
    let plot = fs::metadata(dir.path().join("out/hop_p99-tcp.svg")).unwrap();
    assert!(plot.len() > 100);
}
