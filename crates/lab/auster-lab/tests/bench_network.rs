//! `auster bench network` on a real network: figures that physics and counting bound, a document
//! that is what its schema says, and an interrupt that leaves the figures so far. As root, with
//! Open vSwitch and both iperfs.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use common::lab::{AUSTER, records};
use common::schema;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Delay in one direction between switches and controller: so long that no delay of a busy machine
/// resembles it.
const CONTROL_MS: f64 = 50.0;

fn start(words: &str) -> Child {
    Command::new(AUSTER)
        .args(["bench", "network", "--json"])
        .args(words.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// The one stream of a run by this program.
fn stream<'a>(run: &'a Value, by: &str, flow: &str) -> &'a Value {
    let streams = run["udp"].as_array().unwrap();
    let mut found = streams
        .iter()
        .filter(|s| s["by"] == by && s["flow"] == flow);
    let stream = found
        .next()
        .unwrap_or_else(|| panic!("no {flow} stream by {by}"));
    assert!(found.next().is_none());
    stream
}

#[test]
fn a_small_run_finds_what_the_control_link_makes_of_new_flows() {
    let dir = tempfile::tempdir().unwrap();
    let words = format!(
        "--control delay_ms={CONTROL_MS} --pings 2 --sizes 64K --repeats 2 --rates 2 --seconds 1 \
         --background 20 -o {}",
        dir.path().display()
    );
    let child = start(&words);
    let owner = child.id();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // One document and nothing else.
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        schema::departures("bench-network", &document),
        [] as [String; 0]
    );
    let left = records()
        .into_iter()
        .filter(|lab| lab["owner"]["pid"] == owner);
    assert_eq!(left.count(), 0, "its lab is still there");

    let runs = document["runs"].as_array().unwrap();
    let rates: Vec<f64> = runs
        .iter()
        .map(|r| number(&r["background_flows_per_s"]))
        .collect();
    assert_eq!(rates, [0.0, 20.0]);
    for run in runs {
        // Request and answer each go up to the controller and down again.
        let icmp = &run["icmp"];
        assert_eq!(
            (number(&icmp["flows"]), number(&icmp["later_sent"])),
            (2.0, 6.0)
        );
        assert!(
            number(&icmp["first_ms"]["min"]) >= 4.0 * CONTROL_MS,
            "{icmp}"
        );
        let later_ms = number(&icmp["later_ms"]["p50"]);
        assert!(later_ms < number(&icmp["first_ms"]["max"]), "{icmp}");
        for tcp in run["tcp"].as_array().unwrap() {
            assert_eq!(
                (number(&tcp["time_ms"]["count"]), number(&tcp["failed"])),
                (2.0, 0.0)
            );
        }
        assert_eq!(
            run["tcp"].as_array().unwrap().len(),
            3,
            "auster, iperf, iperf3"
        );

        // 170 datagrams, of which those of the first 100 ms go up to the controller while the next
        // ones pass them by.
        let (known, new) = (stream(run, "auster", "known"), stream(run, "auster", "new"));
        assert_eq!(
            (number(&known["sent"]), number(&new["sent"])),
            (170.0, 170.0)
        );
        assert_eq!(number(&known["reordered"]), 0.0, "{known}");
        assert!(number(&new["reordered"]) > 0.0, "{new}");
        assert!(number(&new["extent"]["max"]) >= 1.0, "{new}");
        assert!(number(&new["delay_ms"]["max"]) >= 2.0 * CONTROL_MS, "{new}");
        for tool in ["iperf", "iperf3"] {
            let check = stream(run, tool, "known");
            assert_eq!(number(&check["reordered"]), 0.0, "{check}");
            // By the clock: fewer where a machine is slow, a few more where iperf ends late.
            assert!((1.0..=200.0).contains(&number(&check["sent"])), "{check}");
        }
    }
    assert_eq!(number(&runs[0]["background"]["flows_sent"]), 0.0);
    let beside = &runs[1]["background"];
    assert!(number(&beside["flows_sent"]) > 20.0, "{beside}");
    assert!(number(&beside["flows_delivered"]) > 0.0, "{beside}");

    let kept: Value =
        serde_json::from_slice(&std::fs::read(dir.path().join("result.json")).unwrap()).unwrap();
    assert_eq!(kept, document);
    for name in [
        "command.txt",
        "rtt-first.svg",
        "rtt-later.svg",
        "tcp-time-idle.svg",
        "udp-loss-beside.svg",
        "udp-jitter-beside.svg",
        "udp-reordering-beside.svg",
        "transfers.csv",
    ] {
        let kept = std::fs::read(dir.path().join(name)).unwrap();
        assert!(!kept.is_empty(), "{name}");
    }
    let lines = |name: &str| {
        let text = std::fs::read_to_string(dir.path().join(name)).unwrap();
        text.lines().count() - 1
    };
    assert_eq!(lines("pings.csv"), 2 * 2 * 4);
    let streams = || runs.iter().flat_map(|run| run["udp"].as_array().unwrap());
    let received = |s: &Value| number(&s["sent"]) - number(&s["lost"]);
    let ours: f64 = streams()
        .filter(|s| s["by"] == "auster")
        .map(received)
        .sum();
    assert_eq!(lines("datagrams.csv") as f64, ours);
}

#[test]
fn an_interrupt_leaves_the_figures_so_far() {
    let mut child = start(
        "--log info --controller none --pings 1 --sizes 1K --repeats 1 --rates 1 --seconds 3600 \
         --background 0 --no-iperf",
    );
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let mut lines = stderr.lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("UDP")), "no stream began");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    // Or it may not write.
    let rest: Vec<String> = lines.collect();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?} {rest:?}", output.status);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        schema::departures("bench-network", &document),
        [] as [String; 0]
    );
    assert_eq!(document["interrupted"], true);
    let run = &document["runs"][0];
    assert_eq!(
        (
            number(&run["icmp"]["flows"]),
            run["tcp"].as_array().unwrap().len()
        ),
        (1.0, 1)
    );
    let stream = stream(run, "auster", "known");
    assert!(number(&stream["sent"]) < 300_000.0, "{stream}");
}
