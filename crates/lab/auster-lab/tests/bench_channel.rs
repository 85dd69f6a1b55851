//! `auster bench channel` on real namespaces and TAP devices: what it says is what the kernel
//! counted, every method delivers, and a seed is a seed. Nothing here depends on how fast the
//! machine is.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::lab::AUSTER;
use common::schema::departures;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn bench(words: &str) -> Value {
    let output = Command::new(AUSTER)
        .args(["bench", "channel", "--json"])
        .args(words.split(' '))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn cells(document: &Value) -> &Vec<Value> {
    document["runs"]["cells"].as_array().unwrap()
}

fn count(value: &Value, name: &str) -> u64 {
    value[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {value}"))
}

#[test]
fn a_document_fits_its_schema_and_its_counts_are_the_kernels() {
    let kept = tempfile::tempdir().unwrap();
    let dir = kept.path().to_str().unwrap();
    let document = bench(&format!(
        "--method tcp,tls-nagle,quic-16s,relay --seconds 1 --loss 0,2 --rtt 20 --rate 200 -o {dir}"
    ));
    assert_eq!(departures("bench-channel", &document), [""; 0]);
    assert_eq!(cells(&document).len(), 8);
    for cell in cells(&document) {
        let mut lost = 0;
        let mut ip_bytes = 0;
        for way in ["to_controller", "to_switch"] {
            let link = &cell[way];
            let of = |name| count(link, name);
            // Every frame is the kernel's, and carries IP; what was not lost came out.
            assert_eq!(of("frames"), of("device_sent_frames"), "{cell}");
            assert_eq!(of("bytes"), of("device_sent_bytes"), "{cell}");
            assert_eq!(of("frames"), of("ip_frames"), "{cell}");
            assert_eq!(of("delivered"), of("device_received_frames"), "{cell}");
            assert_eq!(of("delivered_bytes"), of("device_received_bytes"), "{cell}");
            assert_eq!(of("dropped"), 0, "{cell}");
            // A frame may be on its way when the link stops: QUIC and the relay keep alive.
            assert!(of("frames") - of("lost") - of("delivered") <= 2, "{cell}");
            lost += of("lost");
            ip_bytes += of("ip_bytes");
        }
        assert_eq!(lost > 0, cell["loss_percent"] == 2.0, "{cell}");
        // What is told per message follows from the counts.
        let delivered = count(cell, "messages") - count(cell, "undelivered");
        assert_eq!(count(cell, "application_bytes"), delivered * 220, "{cell}");
        let overhead = ip_bytes as f64 / delivered as f64 - 220.0;
        let told = cell["overhead_bytes_per_message"].as_f64().unwrap();
        assert!((overhead - told).abs() < 1e-6, "{overhead} {cell}");
        assert!(
            told > 20.0 * cell["frames_per_message"].as_f64().unwrap(),
            "{cell}"
        );
        // A message is never faster than the link.
        assert!(cell["delay_ms"]["min"].as_f64().unwrap() >= 9.9, "{cell}");
    }
    let svg = std::fs::read_to_string(kept.path().join("delay-200-220B-rtt20ms-2agents.svg"));
    assert!(svg.unwrap().contains("quic-16s"));
}

#[test]
fn without_loss_every_method_delivers_everything_and_streams_in_order() {
    let list = Command::new(AUSTER)
        .args(["bench", "channel", "--method", "list"])
        .output()
        .unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let methods: BTreeSet<&str> = list.lines().filter_map(|l| l.split(' ').next()).collect();
    assert!(methods.len() > 20, "{list}");
    // Not every kernel has BBR, nor a least retransmission timeout that can be set.
    let methods: Vec<&str> = methods
        .into_iter()
        .filter(|method| !["tcp-bbr", "tcp-rto5", "tls-rto5"].contains(method))
        .collect();
    let document = bench(&format!(
        "--method {} --seconds 0.5 --loss 0 --rtt 20 --rate 100 --size 400/3000 --agents 3",
        methods.join(",")
    ));
    assert_eq!(document["runs"]["failures"], serde_json::json!([]));
    let cells = cells(&document);
    assert_eq!(cells.len(), methods.len());
    for cell in cells {
        // 17 of each of 3 agents at each of 2 ends.
        assert_eq!(count(cell, "messages"), 102, "{cell}");
        for none in ["undelivered", "wrong"] {
            assert_eq!(count(cell, none), 0, "{cell}");
        }
        let method = cell["method"].as_str().unwrap();
        let is_ordered = !["quic-16s", "quic-msg", "relay"]
            .iter()
            .any(|free| method.starts_with(free));
        if is_ordered {
            assert_eq!(count(cell, "overtaken"), 0, "{cell}");
        }
        if is_ordered || method == "relay" {
            assert_eq!(count(cell, "overtaken_in_flow"), 0, "{cell}");
        }
    }
}

/// Two runs never have the same frames at the same times, but loss goes by a frame's place.
#[test]
fn the_same_seed_loses_the_same_frames() {
    let run = |seed: u32, method: &str| -> Vec<Value> {
        let words = format!(
            "--method {method} --seconds 1 --rate 500 --rtt 1 --loss 10 --agents 1 --seed {seed}"
        );
        let document = bench(&words);
        let cell = &cells(&document)[0];
        ["to_controller", "to_switch"]
            .map(|way| {
                let lost = cell[way]["first_lost"].clone();
                assert_eq!(lost.as_array().map(Vec::len), Some(16), "{cell}");
                // The connection's own first frames are spared.
                assert!(lost[0].as_u64() >= Some(20), "{cell}");
                lost
            })
            .to_vec()
    };
    let first = run(5, "tls");
    assert_eq!(first, run(5, "tls"));
    assert_eq!(first, run(5, "quic-2s"));
    assert_ne!(first, run(6, "tls"));
    assert_ne!(first[0], first[1]);
}

#[test]
fn an_interrupt_gives_the_figures_so_far() {
    // A hundred seconds of cells; how many are over after so many seconds is the machine's.
    for patience_s in [2, 8, 32] {
        let mut child = Command::new(AUSTER)
            .args("bench channel --parallel 1 --method tcp --loss 0 --rtt 1".split(' '))
            .args("--seconds 1 --seeds 100".split(' '))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut text = String::new();
        // It says what it will do when it is ready to be interrupted.
        stdout.read_line(&mut text).unwrap();
        std::thread::sleep(Duration::from_secs(patience_s));
        kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
        stdout.read_to_string(&mut text).unwrap();
        assert!(child.wait().unwrap().success(), "{text}");
        let said = text.lines().find_map(|l| l.strip_prefix("Interrupted: "));
        let done = said.and_then(|said| said.split(' ').next()?.parse::<u32>().ok());
        let done = done.unwrap_or_else(|| panic!("{text}"));
        assert!(done < 100, "{text}");
        if done > 0 {
            assert!(text.contains("ms, mean / p99"), "{text}");
            return;
        }
    }
    panic!("no cell of one second was over in half a minute");
}
