//! Voice beside a transfer, with and without queues, in the short form of scenarios/voice.toml. As
//! root, with Open vSwitch.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use common::lab::{experiment, scenario};
use serde_json::Value;
use tempfile::TempDir;

#[test]
fn voice_waits_less_where_it_has_a_queue() {
    // On a busy machine senders are late; this test judges no losses.
    let text = scenario("voice")
        .replace("runs = 3", "runs = 1")
        .replace("retries = 2", "retries = 0")
        .replace("\"8s\"", "\"4s\"");
    let dir = TempDir::new().unwrap();
    let document = experiment(&text, dir.path(), &[]);
    let networks = document["networks"].as_array().unwrap();
    assert_eq!(networks.len(), 2, "queues need another network");
    let rows: Vec<&Value> = networks.iter().map(|n| &n["voice"][0]).collect();
    let figure = |n: usize, key: &str| rows[n][key].as_f64().unwrap_or_else(|| panic!("{rows:?}"));
    for n in [0, 1] {
        assert!(figure(n, "sent") >= 400.0, "{}", rows[n]);
        assert!(figure(n, "bulk_mbps") > 0.6, "{}", rows[n]);
    }
    // The link's queue is 100 ms long, and the transfer fills it.
    let delays = [0, 1].map(|n| figure(n, "delay_p50_ms"));
    assert!(delays[1] < delays[0], "{delays:?}");
}
