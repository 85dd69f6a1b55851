//! `auster policy` as a user runs it.

use std::process::{Command, Output};

const EXAMPLE: &str = "\
Rule #1: traffic_type=1, action=queue_id:0
Rule #2: traffic_type=2, ip_proto=17, udp_dst=20000, action=queue_id:1
Rule #3: traffic_type=2, action=queue_id:2
Rule #4: traffic_type=3, action=queue_id:3
";

fn auster(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_auster"))
        .arg("policy")
        .args(arguments)
        .output()
        .expect("auster runs")
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.policy");
    std::fs::write(&path, text).expect("a file");
    let path = path.to_str().expect("a path").to_owned();
    (directory, path)
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_good_map_is_summed_up_and_a_bad_one_is_refused_with_all_its_errors() {
    let (_kept, path) = file(EXAMPLE);
    let good = auster(&["check", &path]);
    assert!(good.status.success());
    assert!(out(&good).contains("good: 4 rules, 4 queues"), "{good:?}");

    let old = auster(&["check", &path, "--active-generation", "3"]);
    assert_eq!(old.status.code(), Some(2));

    let (_kept, path) = file("Rule #1: traffic_type=9, action=queue_id:99\nRule #2: nonsense=1");
    let bad = auster(&["check", &path]);
    assert_eq!(bad.status.code(), Some(2));
    let said = String::from_utf8_lossy(&bad.stderr);
    for code in ["E02", "E03", "E09", "E12"] {
        assert!(said.contains(code), "{code}: {said}");
    }
    assert_eq!(auster(&["check", "/no/such/file"]).status.code(), Some(5));
}

#[test]
fn what_is_shown_is_a_map_of_the_same_digest() {
    let shown = auster(&["show", "paper"]);
    let (_kept, path) = file(&out(&shown));
    let again = auster(&["show", &path]);
    assert!(again.status.success(), "{again:?}");
    assert_eq!(out(&shown), out(&again));
    let json = auster(&["show", "auster", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(document["rules"][1]["action"], "queue_id:1");
    assert_eq!(document["messages"].as_array().map(Vec::len), Some(36));
}

/// The capture has 70 messages of Open vSwitch with two bridges and `auster run`. `ovs-ofctl
/// ofp-parse-pcap` counts 19 of type 2 on the connection of the second bridge, and on that of the
/// first two packets to port 20000.
#[test]
fn a_capture_is_explained_message_by_message_and_switch_by_switch() {
    let map = "Rule #1: traffic_type=2, dpid=00000000000000a1, action=queue_id:0
        Rule #2: traffic_type=2, udp_dst=20000, action=queue_id:1
        Default: action=queue_id:2";
    let (_kept, path) = file(map);
    let capture = "tests/fixtures/two_switches.pcap";
    let output = auster(&["explain", "--policy", &path, "--pcap", capture]);
    assert!(output.status.success(), "{output:?}");
    let out = out(&output);
    let first =
        "127.0.0.1.47754 > 127.77.0.1.6653: OFPT_HELLO (OF1.3) (xid=0x1) up, traffic_type=1";
    assert!(out.starts_with(first), "{out}");
    let (_, summary) = out.split_once("messages by rule:\n").expect("a summary");
    let hits: Vec<u32> = summary
        .lines()
        .map(|line| line.split_whitespace().next().and_then(|n| n.parse().ok()))
        .collect::<Option<_>>()
        .expect("a number in each line");
    assert_eq!(hits, [19, 2, 49], "{summary}");
}

#[test]
fn an_explanation_names_the_rule_and_the_field_that_failed() {
    let (_kept, path) = file(EXAMPLE);
    let explain = |more: &[&str]| {
        let output = auster(&[&["explain", "--policy", &path, "-v"], more].concat());
        assert!(output.status.success(), "{output:?}");
        out(&output)
    };
    let barrier = explain(&["0414000800000001"]);
    assert!(barrier.contains("  Rule #3:"), "{barrier}");
    let target = explain(&["--flow", "udp,tp_dst=20000,actions=output:1"]);
    assert!(
        target.contains("  Rule #2:") && target.contains("queue 1"),
        "{target}"
    );
    let other = explain(&["--flow", "udp,tp_dst=53,actions=output:1"]);
    assert!(
        other.contains("udp_dst of the flow is 53, not 20000"),
        "{other}"
    );
    assert_eq!(auster(&["explain"]).status.code(), Some(2));
}
