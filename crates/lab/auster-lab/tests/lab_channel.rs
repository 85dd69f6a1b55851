//! Messages over a channel, on real namespaces and TAP devices: the figures are the kernel's
//! counts, every method delivers, and the same seed loses the same frames. Nothing here depends on
//! the machine's speed.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use bench::channel::method::METHODS;
use common::lab::{auster, experiment};
use serde_json::Value;
use tempfile::TempDir;

/// scenarios/channel.toml with other values of its axes, runs side by side or not, and seconds.
fn scenario(axes: &[(&str, &str)], seconds: &str) -> String {
    let text = common::lab::scenario("channel");
    let line = |line: &str| {
        let axis = axes.iter().find_map(|(axis, values)| {
            let rest = line.strip_prefix(axis)?;
            rest.starts_with(" = [")
                .then(|| format!("{axis} = {values}"))
        });
        axis.unwrap_or_else(|| line.to_string()) + "\n"
    };
    let text: String = text.lines().map(line).collect();
    text.replace("\"20s\"", &format!("\"{seconds}\""))
}

fn rows(document: &Value) -> &Vec<Value> {
    document["networks"][0]["channel"].as_array().unwrap()
}

fn figure(row: &Value, name: &str) -> f64 {
    row[name]
        .as_f64()
        .unwrap_or_else(|| panic!("{name}: {row}"))
}

#[test]
fn counts_are_the_kernels_and_the_model_reads_them() {
    let dir = TempDir::new().unwrap();
    let axes = [
        ("rtt_ms", "[20]"),
        ("rate_per_s", "[200]"),
        ("loss_percent", "[0, 2]"),
        (
            "method",
            "[\"tcp\", \"tls-nagle\", \"quic-16s\", \"relay\"]",
        ),
    ];
    let document = experiment(&scenario(&axes, "1s"), dir.path(), &[]);
    assert_eq!(rows(&document).len(), 8);
    for row in rows(&document) {
        let of = |name| figure(row, name);
        // Counts of the link and of the devices at its ends.
        assert_eq!(of("miscounted"), 0.0, "{row}");
        assert_eq!(of("dropped"), 0.0, "{row}");
        assert_eq!(of("lost") > 0.0, row["loss_percent"] == "2", "{row}");
        assert_eq!(of("messages"), 400.0, "{row}");
        let (bytes, frames) = (of("overhead_bytes_per_message"), of("frames_per_message"));
        assert!(bytes > 20.0 * frames, "{row}");
        let line = of("line_overhead_bytes_per_message");
        assert!((line - bytes - 24.0 * frames).abs() < 1e-6, "{row}");
        // A message is never faster than the link.
        assert!(of("delay_min_ms") >= 9.9, "{row}");
    }
    let kept = dir.path().join("out");
    let svg = std::fs::read_to_string(kept.join("delay-220-20-2-200.svg")).unwrap();
    assert!(svg.contains("quic-16s"), "{svg}");
    let result = kept.join("result.json");
    let model = auster(&["model", "--against", result.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&model.stdout);
    // Only a longer run can show how close the cells are.
    assert!(said.contains("of 8 cells are within 10 %"), "{said}");
}

#[test]
fn without_loss_every_method_delivers_everything_and_streams_in_order() {
    let dir = TempDir::new().unwrap();
    // Not every kernel has BBR, nor a least retransmission timeout that can be set.
    let methods = METHODS.each_ref().map(|method| method.name).into_iter();
    let methods = methods.filter(|name| !["tcp-bbr", "tcp-rto5", "tls-rto5"].contains(name));
    let methods: Vec<&str> = methods.collect();
    let axes = [
        ("size_bytes", "[\"400/3000\"]"),
        ("rtt_ms", "[20]"),
        ("agents", "[3]"),
        ("loss_percent", "[0]"),
        ("method", &format!("{methods:?}")),
    ];
    let document = experiment(&scenario(&axes, "500ms"), dir.path(), &[]);
    assert_eq!(rows(&document).len(), methods.len());
    for row in rows(&document) {
        let of = |name| figure(row, name);
        // 17 messages of each of 3 agents at each of 2 ends.
        assert_eq!(of("messages"), 102.0, "{row}");
        for none in ["undelivered", "wrong"] {
            assert_eq!(of(none), 0.0, "{row}");
        }
        let method = row["method"].as_str().unwrap();
        let is_ordered = !["quic-16s", "quic-msg", "relay"]
            .iter()
            .any(|free| method.starts_with(free));
        if is_ordered {
            assert_eq!(of("overtaken"), 0.0, "{row}");
        }
        if is_ordered || method == "relay" {
            assert_eq!(of("overtaken_in_flow"), 0.0, "{row}");
        }
    }
}

/// Two runs never have the same frames at the same times, but a frame's place decides its loss.
#[test]
fn the_same_seed_loses_the_same_frames() {
    let dir = TempDir::new().unwrap();
    let axes = [
        ("rtt_ms", "[1]"),
        ("agents", "[1]"),
        ("rate_per_s", "[500]"),
        ("loss_percent", "[10]"),
        ("method", "[\"tls\", \"quic-2s\"]"),
    ];
    let first_lost = "first_lost = \"sum(channel.first_lost)\"\n\
        places = \"count(channel.first_lost)\"\nearliest = \"min(channel.first_lost)\"\nseed = ";
    let text = scenario(&axes, "1s").replace("seed = ", first_lost);
    let document = experiment(&format!("runs = 2\n{text}"), dir.path(), &[]);
    let lost = |run: u64, method: &str| {
        let mut rows = rows(&document).iter();
        let row = rows.find(|row| row["run"] == run && row["method"] == method);
        let row = row.unwrap_or_else(|| panic!("{run} {method}: {document}"));
        assert_eq!(figure(row, "seed"), run as f64, "{row}");
        // 16 in each direction; the connection's own first frames are not lost.
        assert_eq!(figure(row, "places"), 32.0, "{row}");
        assert!(figure(row, "earliest") >= 20.0, "{row}");
        figure(row, "first_lost")
    };
    assert_eq!(lost(1, "tls"), lost(1, "quic-2s"));
    assert_eq!(lost(2, "tls"), lost(2, "quic-2s"));
    assert_ne!(lost(1, "tls"), lost(2, "tls"));
}
