//! Changes that a real Open vSwitch takes as a whole: a packet meets the old entries or the new
//! ones. The script measures figures under traffic (`scripts/bundles`).

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use common::dummy::DummySwitch;
use common::running::{AUSTER, PATIENCE, Running};
use common::{run, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The number of rules in each of two lists, and the first UDP port that they match.
const RULES: u16 = 120;
const FIRST: u16 = 20_000;

struct Served {
    running: Running,
    dir: TempDir,
    root: String,
}

impl Served {
    /// Starts a controller that the switch connects to.
    fn start(switch: &DummySwitch, root: &str, rest: &str) -> Served {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), root, rest);
        let config = dir.path().join("run.toml").display().to_string();
        let mut running = Running::start(&["run", "--config", &config]);
        let at = running.listening("ptcp");
        switch.vsctl(&["set-controller", "br0", &format!("tcp:{at}")]);
        running.wait_for("reconciled");
        let root = root.to_owned();
        Served { running, dir, root }
    }

    fn api(&self) -> String {
        self.dir.path().join("api.sock").display().to_string()
    }

    /// Status and body of an answer.
    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let url = format!("http://localhost{path}");
        let (api, body) = (self.api(), body.to_string());
        let words = ["-s", "--unix-socket", &api, "-X", method, "-d", &body];
        let told = run(
            "curl",
            &[&words[..], &["-w", "\n%{http_code}", &url]].concat(),
        );
        let (body, status) = told.rsplit_once('\n').unwrap();
        let body = serde_json::from_str(body).unwrap_or(Value::Null);
        (status.parse().unwrap(), body)
    }

    /// The bundles that were committed, and those that were refused.
    fn bundles(&self) -> [u64; 2] {
        let url = "http://localhost/metrics";
        let text = run("curl", &["-s", "--unix-socket", &self.api(), url]);
        ["committed", "refused"].map(|result| {
            let name = format!("auster_bundles_total{{result=\"{result}\"}} ");
            let found = text.lines().find_map(|line| line.strip_prefix(&name));
            let found = found.unwrap_or_else(|| panic!("no {name} in {text}"));
            found.trim().parse().unwrap()
        })
    }
}

fn write(dir: &Path, root: &str, rest: &str) {
    let listen = "listen = \"ptcp:0:127.0.0.1\"\n";
    let api = "[api]\nlisten = \"unix:api.sock\"\n";
    fs::write(dir.join("run.toml"), format!("{listen}{api}{root}{rest}")).unwrap();
}

/// Two lists with a rule for each kind of port. A packet of kind 2 or 3 never passes both.
fn lists(is_new: bool) -> String {
    let gate = [true, false, true, false].map(|allows| allows != is_new);
    let hall = [true, false, false, true].map(|allows| allows != is_new);
    let mut text = String::new();
    for (name, allows) in [("gate", gate), ("hall", hall)] {
        text += &format!("[[acl]]\nname = \"{name}\"\n");
        for n in 0..RULES {
            let (port, allow) = (FIRST + n, allows[usize::from(n % 4)]);
            text += &format!("[[acl.rule]]\nmatch = \"udp,tp_dst={port}\"\nallow = {allow}\n");
        }
        text += "[[acl.rule]]\nallow = true\n";
    }
    text + "[[vlan]]\nid = 10\nacl_in = \"hall\"\n\
            [[port]]\nat = \"1:1\"\naccess = 10\nacl_in = \"gate\"\n"
}

/// Whether a packet to the port of this number passes the lists, on the tables as they are now.
fn passes(switch: &DummySwitch, n: u16) -> bool {
    let port = FIRST + n;
    let flow = format!(
        "in_port=1,udp,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,nw_src=10.0.0.1,\
         nw_dst=10.0.0.2,udp_src=7,udp_dst={port}"
    );
    let trace = switch.appctl("ofproto/trace", &["br0", &flow]);
    !trace.contains("Datapath actions: drop")
}

/// Checks packets while lists of 240 rules are inverted.
fn reload_under_packets(version: &str, name: &str) {
    let switch = DummySwitch::start(2);
    switch.vsctl(&["set", "bridge", "br0", &format!("protocols={name}")]);
    let root = format!("[session]\nversions = [\"{version}\"]\n");
    let mut served = Served::start(&switch, &root, &lists(false));
    wait_until("the first lists are in use", || {
        passes(&switch, 0) && !passes(&switch, 1)
    });
    let mut packets = 0;
    for is_new in [true, false, true, false] {
        let [committed, refused] = served.bundles();
        write(served.dir.path(), &served.root, &lists(is_new));
        let api = format!("unix:{}", served.api());
        let mut reload = Command::new(AUSTER);
        let mut reload = reload.args(["reload", "--api", &api]).spawn().unwrap();
        let deadline = Instant::now() + PATIENCE;
        let mut has_changed = false;
        // One full round after the change has taken effect.
        let mut left = usize::from(RULES);
        for n in (0..RULES).cycle() {
            let passed = passes(&switch, n);
            packets += 1;
            match n % 4 {
                0 | 1 => {
                    let is_of_new = passed == (n % 4 == 1);
                    let is_changed = is_of_new == is_new;
                    assert!(is_changed || !has_changed, "{version}: old after new");
                    has_changed |= is_changed;
                }
                _ => assert!(
                    !passed,
                    "{version}: packet {packets} has seen half of a change"
                ),
            }
            left -= usize::from(has_changed);
            if left == 0 {
                break;
            }
            assert!(Instant::now() < deadline, "no change is seen");
        }
        assert!(reload.wait().unwrap().success());
        let after = served.bundles();
        assert!(after[0] > committed && after[1] == refused, "{after:?}");
    }
    assert!(served.running.is_running());
}

#[test]
fn a_packet_sees_the_lists_before_a_reload_or_those_after_it() {
    reload_under_packets("1.3", "OpenFlow13");
}

#[test]
fn a_packet_sees_the_lists_before_a_reload_or_those_after_it_in_later_versions() {
    reload_under_packets("1.4", "OpenFlow14");
    reload_under_packets("1.5", "OpenFlow15");
}

/// Entries to `count` addresses.
fn entries(count: usize, output: u32) -> Value {
    let entries = (0..count).map(|n| {
        let entry = json!({
            "switch": "1",
            "priority": n,
            "match": format!("ip,nw_dst=10.0.1.{n}"),
            "actions": format!("output:{output}"),
        });
        (format!("e{n}"), entry)
    });
    Value::Object(entries.collect())
}

fn states(served: &Served) -> Vec<String> {
    let (_, page) = served.ask("GET", "/v1/flows/ann?limit=1000", &Value::Null);
    let flows = page["flows"].as_array().cloned().unwrap_or_default();
    let states = flows
        .iter()
        .map(|flow| flow["state"].as_str().unwrap().to_owned());
    states.collect()
}

fn count(served: &Served, state: &str) -> usize {
    states(served).iter().filter(|it| *it == state).count()
}

#[test]
fn a_refused_bundle_goes_message_by_message_and_is_reported_once() {
    let switch = DummySwitch::start(3);
    let mut served = Served::start(&switch, "", "");
    let [committed, _] = served.bundles();
    let (status, body) = served.ask("PATCH", "/v1/flows/ann", &entries(20, 1));
    assert!(status < 300, "{body}");
    wait_until("all are in use", || count(&served, "in_use") == 20);
    let after = served.bundles();
    assert!(after[0] > committed && after[1] == 0, "{after:?}");

    // Room for three more entries.
    let held = switch.ofctl("dump-flows", &["table=8"]);
    let limit = held.lines().filter(|line| line.contains("cookie=")).count() + 3;
    let limit = format!("flow_limit={limit}");
    let create = ["--", "--id=@t", "create", "flow_table", &limit];
    let set = ["overflow_policy=refuse", "--", "set", "bridge", "br0"];
    switch.vsctl(&[&create[..], &set, &["flow_tables:8=@t"]].concat());
    for attempt in 1..=2 {
        let (status, body) = served.ask("PATCH", "/v1/flows/ann", &entries(30, 1 + attempt));
        assert!(status < 300, "{body}");
        wait_until("those with room are in use, and the others refused", || {
            count(&served, "in_use") == 23 && count(&served, "refused") == 7
        });
        assert!(served.bundles()[1] >= u64::from(attempt));
    }
    let line = served.running.wait_for("has refused a bundle");
    assert!(line.contains("one by one"), "{line}");
    let dump = switch.ofctl("dump-flows", &["--no-stats"]);
    let ours = dump.lines().filter(|line| line.contains("nw_dst=10.0.1."));
    assert_eq!(
        ours.filter(|line| line.contains("actions=output:3"))
            .count(),
        23
    );
    served.ask("DELETE", "/v1/flows/ann", &Value::Null);
    wait_until("all have gone", || states(&served).is_empty());
    // A line that comes after all others.
    let reload = run(
        AUSTER,
        &["reload", "--api", &format!("unix:{}", served.api())],
    );
    assert!(!reload.contains("refused"), "{reload}");
    served.running.wait_for("reload");
    let lines = served.running.log.iter();
    assert_eq!(lines.filter(|line| line.contains("a bundle")).count(), 1);
}

#[test]
fn without_bundles_nothing_is_one() {
    let switch = DummySwitch::start(2);
    let served = Served::start(&switch, "[session]\nbundles = \"off\"\n", "");
    served.ask("PATCH", "/v1/flows/ann", &entries(20, 1));
    wait_until("all are in use", || count(&served, "in_use") == 20);
    assert_eq!(served.bundles(), [0, 0]);
}
