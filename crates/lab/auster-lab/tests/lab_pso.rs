//! A small part of the experiments on priority scheduling, for what must hold on any machine:
//! counts. Delays are what the scenarios claim and report. As root, with Open vSwitch.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;

use common::lab::auster;
use serde_json::Value;
use tempfile::TempDir;

/// A link that any machine saturates: 1,136 messages a second.
const SCENARIO: &str = "\
title = 'reduced'
seed = 1
[out_of_band]
link_mbps = 2
link_queue_packets = 100
relay_mbps = 1.9
controller_ms = 0
message_bytes = 220
target_per_s = 100
policy = 'a.policy'
transports = ['tcp']
algorithms = ['fifo', 'hierarchy']
loads = [0.2, 1.5]
runs = 1
run_s = 1.5
[out_of_band.claims]
algorithm = 'hierarchy'
against = 'fifo'
unloaded = 0.2
overloaded = 1.5
p99_ratio_max = 1000000
against_ratio_min = 0.01
";

const POLICY: &str = "\
Rule #1: traffic_type=1, action=queue_id:0
Rule #2: traffic_type=2, ip_proto=17, udp_dst=20000, action=queue_id:1
Rule #3: traffic_type=2, action=queue_id:2
Rule #4: traffic_type=3, action=queue_id:3
";

#[test]
fn no_message_of_the_target_is_lost_by_the_default() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    fs::write(file("a.toml"), SCENARIO).unwrap();
    fs::write(file("a.policy"), POLICY).unwrap();
    let out = file("out");
    let output = auster(&["lab", "run", &file("a.toml"), "--json", "--out", &out]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cell = |algorithm: &str, load: f64| {
        let cells = document["cells"].as_array().unwrap().iter();
        let mut of = cells.filter(|c| c["algorithm"] == algorithm && c["load"] == load);
        of.next().unwrap().clone()
    };
    for (algorithm, load) in [("fifo", 0.2), ("hierarchy", 0.2), ("hierarchy", 1.5)] {
        let found = cell(algorithm, load);
        assert_eq!(found["target"]["sent"], 150, "{found}");
        assert_eq!(found["target"]["asked"], 150, "{found}");
        assert_eq!(found["target"]["lost"], 0, "{found}");
        assert_eq!(found["unseen"], 0, "{found}");
    }
    assert_eq!(cell("hierarchy", 0.2)["cross"]["lost"], 0);
    let names = [
        "result.json",
        "table.txt",
        "runs.csv",
        "distribution.csv",
        "hop-p99-tcp.svg",
    ];
    for name in names {
        let len = fs::metadata(dir.path().join("out").join(name))
            .unwrap()
            .len();
        assert!(len > 100, "{name}");
    }
}
