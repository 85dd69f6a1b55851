//! `auster bench switch` against a real Open vSwitch, its own and a foreign one. As root.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use common::lab::{AUSTER, Lab, auster, records};
use common::{run, schema};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

const RUNS: u64 = 30;

#[test]
fn our_own_open_vswitch_is_measured_over_every_transport() {
    let dir = TempDir::new().unwrap();
    let results = dir.path().join("results");
    let runs = RUNS.to_string();
    let output = auster(&[
        "bench",
        "switch",
        "--json",
        "-o",
        results.to_str().unwrap(),
        "--runs",
        &runs,
        "--block",
        "7",
        "--step-ms",
        "50",
        "--rate-max",
        "2000",
        "--reads",
        "3",
        "--read-entries",
        "500",
        "--capacity-max",
        "2000",
    ]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        schema::departures("bench-switch", &document),
        [] as [String; 0]
    );
    assert_eq!(document["interrupted"], false);

    let all = document["runs"].as_array().unwrap();
    let names: Vec<&str> = all
        .iter()
        .map(|one| one["transport"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["tcp", "ssl", "quic"]);
    for figures in all {
        check_packet_in(&figures["packet_in"]);
        check_flow_mod(&figures["flow_mod"]);
        check_set_up(&figures["set_up"]);
        let read = &figures["read"];
        assert_eq!(
            (&read["reads"], &read["wrong"]),
            (&3.into(), &0.into()),
            "{read}"
        );
        assert_eq!(read["entries"], 500);
        let capacity = &figures["capacity"];
        assert_eq!(
            (&capacity["entries"], &capacity["ended_by"]),
            (&2000.into(), &"limit".into())
        );
    }

    let lines = |name: &str| {
        let text = std::fs::read_to_string(results.join(name)).unwrap();
        text.lines().count() as u64
    };
    assert_eq!(
        (lines("packet-in.csv"), lines("flow-mod.csv")),
        (1 + 3 * RUNS, 1 + 3 * RUNS)
    );
    assert_eq!(lines("read.csv"), 1 + 3 * 3);
    for plot in ["packet-in", "flow-mod", "set-up"] {
        let svg = std::fs::read_to_string(results.join(format!("{plot}.svg"))).unwrap();
        for name in ["TCP", "TLS", "QUIC"] {
            assert!(svg.contains(name), "{plot} lacks {name}");
        }
    }
}

/// The parts' means sum up to the end-to-end mean, and each run gives a figure or a loss.
fn check_packet_in(f: &Value) {
    let mean = |part: &str| f[part]["mean"].as_f64().unwrap();
    let parts = [
        "data_path_ms",
        "control_path_ms",
        "controller_ms",
        "switch_ms",
    ];
    let sum: f64 = parts.map(mean).iter().sum();
    assert!((sum - mean("end_to_end_ms")).abs() < 1e-6, "{f:#}");
    for part in [
        "data_path_ms",
        "control_path_ms",
        "controller_ms",
        "end_to_end_ms",
    ] {
        assert!(f[part]["min"].as_f64().unwrap() > 0.0, "{part}: {f:#}");
    }
    assert!(mean("packet_in_ms") < mean("end_to_end_ms"), "{f:#}");
    let count = f["end_to_end_ms"]["count"].as_u64().unwrap();
    assert_eq!(
        (f["runs"].as_u64(), count + f["lost"].as_u64().unwrap()),
        (Some(RUNS), RUNS)
    );
    assert!(count > RUNS / 2, "{f:#}");
}

fn check_flow_mod(f: &Value) {
    let number = |name: &str| f[name].as_u64().unwrap();
    assert_eq!(number("runs"), RUNS);
    let count = f["data_plane_ms"]["count"].as_u64().unwrap();
    assert_eq!(count + number("lost"), RUNS);
    assert!(count > RUNS / 2, "{f:#}");
    let mean = |part: &str| f[part]["mean"].as_f64().unwrap();
    let difference = mean("data_plane_ms") - mean("barrier_ms");
    assert!((difference - mean("difference_ms")).abs() < 1e-6, "{f:#}");
    assert!(f["barrier_ms"]["min"].as_f64().unwrap() > 0.0, "{f:#}");
    assert!(number("stale_packets") >= number("stale_runs"), "{f:#}");
    assert_eq!(number("stale_runs") == 0, f["stale_ms_max"] == 0.0, "{f:#}");
}

fn check_set_up(f: &Value) {
    let steps = f["steps"].as_array().unwrap();
    assert_eq!(steps[0]["offered_per_s"], 1000);
    for step in steps {
        let number = |name: &str| step[name].as_u64().unwrap();
        assert!(number("delivered") <= number("flows"), "{step}");
        assert!(number("entries") <= number("packet_ins"), "{step}");
        let is_whole = [number("delivered"), number("entries")] == [number("flows"); 2];
        assert_eq!(step["holds"], is_whole, "{step}");
    }
    assert!(
        steps
            .iter()
            .any(|step| step["delivered"].as_u64().unwrap() > 0),
        "{f:#}"
    );
}

/// A lab with its two hosts' interfaces beside the switch, like a foreign switch with two ports
/// linked to this machine.
fn foreign_switch() -> Lab {
    let lab = Lab::up(&["single,2", "--controller", "none"]);
    let switches = format!("{}-sw", lab.id);
    for n in ["1", "2"] {
        let (host, name) = (format!("{}-h{n}", lab.id), format!("probe{n}"));
        run(
            "ip",
            &[
                "-n", &host, "link", "set", "eth0", "netns", &switches, "name", &name,
            ],
        );
        run("ip", &["-n", &switches, "link", "set", &name, "up"]);
    }
    lab
}

fn ofctl(lab: &Lab, words: &[&str]) -> String {
    let output = lab.exec(
        "sw",
        &[&["ovs-ofctl", "-O", "OpenFlow13"][..], words].concat(),
    );
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_switch_of_somebody_else_is_measured_and_keeps_its_own_entries() {
    let lab = foreign_switch();
    let forms: [(&str, &[&str]); 2] = [
        ("ptcp:6699:127.0.0.1", &["tcp:127.0.0.1:6699"]),
        ("tcp:127.0.0.1:6698", &["--listen", "ptcp:6698:127.0.0.1"]),
    ];
    for (controller, words) in forms {
        let db = format!("--db=unix:/run/auster/labs/{}/db.sock", lab.id);
        run("ovs-vsctl", &[&db, "set-fail-mode", "s1", "secure"]);
        run("ovs-vsctl", &[&db, "set-controller", "s1", controller]);
        // Not before: Open vSwitch drops all entries when it gets its first controller.
        ofctl(&lab, &["del-flows", "s1"]);
        ofctl(
            &lab,
            &["add-flow", "s1", "cookie=0x77,priority=7,udp,actions=drop"],
        );
        let arguments = [
            &[
                AUSTER,
                "bench",
                "switch",
                "--json",
                "--runs",
                "5",
                "--only",
                "packet-in,flow-mod",
            ][..],
            &["--ingress", "probe1", "--egress", "probe2"],
            words,
        ];
        let output = lab.exec("sw", &arguments.concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {said}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            schema::departures("bench-switch", &document),
            [] as [String; 0]
        );
        let figures = &document["runs"][0];
        assert_eq!(figures["transport"], "tcp");
        assert!(figures["switch"].as_str().unwrap().contains("Open vSwitch"));
        assert_eq!(figures["packet_in"]["runs"], 5);
        assert_eq!(figures["set_up"], Value::Null, "not asked for");
        let flows = ofctl(&lab, &["dump-flows", "s1"]);
        let flows: Vec<&str> = flows
            .lines()
            .filter(|line| line.contains("cookie="))
            .collect();
        assert!(
            flows.len() == 1 && flows[0].contains("cookie=0x77"),
            "{flows:?}"
        );
    }
}

#[test]
fn an_interface_that_is_not_linked_to_the_switch_is_told() {
    let lab = foreign_switch();
    let db = format!("--db=unix:/run/auster/labs/{}/db.sock", lab.id);
    run(
        "ovs-vsctl",
        &[&db, "set-controller", "s1", "ptcp:6699:127.0.0.1"],
    );
    let words = [AUSTER, "bench", "switch", "tcp:127.0.0.1:6699"];
    let output = lab.exec(
        "sw",
        &[&words[..], &["--ingress", "lo", "--egress", "probe2"]].concat(),
    );
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("no packet-in for a probe on lo"), "{said}");
}

#[test]
fn ctrl_c_gives_the_figures_so_far_and_removes_the_lab() {
    let dir = TempDir::new().unwrap();
    let results = dir.path().join("results");
    let mut child = Command::new(AUSTER)
        .args([
            "bench",
            "switch",
            "--runs",
            "1000000",
            "--transports",
            "tcp",
            "--only",
            "packet-in",
        ])
        .arg("-o")
        .arg(&results)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let mut first = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert!(
        first.starts_with("Measuring an Open vSwitch of our own"),
        "{first}"
    );
    let ours = || {
        records()
            .into_iter()
            .find(|record| record["owner"]["pid"] == pid)
    };
    assert!(ours().is_some());
    kill(Pid::from_raw(pid as i32), Signal::SIGINT).unwrap();
    assert!(child.wait().unwrap().success());
    let text = std::fs::read(results.join("result.json")).unwrap();
    let document: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(document["interrupted"], true);
    assert_eq!(
        schema::departures("bench-switch", &document),
        [] as [String; 0]
    );
    assert!(ours().is_none(), "the lab is still there");
}
