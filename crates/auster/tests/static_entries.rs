//! Static entries on a real Open vSwitch: they are there whatever restarts, and come back when
//! somebody else deletes them.

mod common;

use std::net::SocketAddr;
use std::process::Command;
use std::time::Instant;

use common::dummy::DummySwitch;
use common::running::Running;
use common::{AUSTER, run, wait_until};
use serde_json::{Value, json};

const ENTRY: &str = "/v1/flows/ann/detour";
/// The entry in the words of the switch.
const ROW: &str = "priority=9007,ip,nw_dst=10.0.0.2 actions=output:3";

struct Served {
    running: Running,
    api: SocketAddr,
}

impl Served {
    /// A controller that the switch connects to.
    fn start(switch: &DummySwitch, args: &[&str]) -> Served {
        let mut all = vec!["run", "ptcp:0:127.0.0.1", "--api", "0"];
        all.extend(args);
        let mut running = Running::start(&all);
        let at = running.listening("ptcp");
        let line = running.wait_for("API on http://");
        let api = line.split("http://").nth(1).unwrap();
        let api = api.split('/').next().unwrap().parse().unwrap();
        let target = format!("tcp:{at}");
        switch.vsctl(&["set-controller", "br0", &target]);
        running.wait_for("reconciled");
        Served { running, api }
    }

    /// Status and body of an answer.
    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let url = format!("http://{}{path}", self.api);
        let body = body.to_string();
        let fixed = [
            "-s",
            "-X",
            method,
            "-d",
            &body,
            "-w",
            "\n%{http_code}",
            &url,
        ];
        let told = run("curl", &fixed);
        let (body, status) = told.rsplit_once('\n').unwrap();
        let body = serde_json::from_str(body).unwrap_or(Value::Null);
        (status.parse().unwrap(), body)
    }

    fn state(&self, path: &str) -> String {
        let (_, entry) = self.ask("GET", path, &Value::Null);
        entry["state"].as_str().unwrap_or("none").to_owned()
    }
}

/// The static entries of the switch.
fn rows(switch: &DummySwitch) -> Vec<String> {
    let dump = switch.ofctl("dump-flows", &["--no-stats"]);
    let lines = dump.lines().map(str::trim);
    let ours = lines.filter(|line| line.contains("cookie=0x61757374") && line.contains("1200,"));
    let rows = ours.map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let has = |word: &&&str| word.starts_with("priority=") || word.starts_with("actions=");
        let words: Vec<&str> = words.iter().filter(has).copied().collect();
        words.join(" ")
    });
    rows.collect()
}

fn detour() -> Value {
    json!({
        "switch": "1", "priority": 7, "match": "ip,nw_dst=10.0.0.2", "actions": "output:3"
    })
}

#[test]
fn an_entry_survives_restarts_and_deletions_by_others() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state").display().to_string();
    let mut switch = DummySwitch::start(4);
    switch.restart();
    let mut served = Served::start(&switch, &["--state", &state]);
    let has_it = |switch: &DummySwitch| rows(switch).iter().any(|row| row == ROW);

    let (status, made) = served.ask("PUT", ENTRY, &detour());
    assert_eq!(status, 201, "{made}");
    wait_until("it is in use", || served.state(ENTRY) == "in_use");
    assert!(has_it(&switch), "{:?}", rows(&switch));

    // Somebody else deletes all entries.
    switch.ofctl("del-flows", &[]);
    served
        .running
        .wait_for("static entry ann/detour is set again");
    wait_until("it is there again", || has_it(&switch));

    // The trace names it.
    let api = served.api.to_string();
    let macs = [
        "--src-mac",
        "02:00:00:00:00:01",
        "--dst-mac",
        "02:00:00:00:00:02",
    ];
    let traced = Command::new(AUSTER)
        .args([
            "trace",
            "10.0.0.1",
            "10.0.0.2",
            "--in",
            "1:1",
            "--seconds",
            "0",
            "--api",
            &api,
        ])
        .args(macs)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&traced.stdout);
    assert!(
        told.contains("ann/detour") && told.contains("output:3"),
        "{told}"
    );

    // The switch begins anew, without entries.
    switch.restart();
    wait_until("it is there after the switch's restart", || has_it(&switch));

    // The controller is killed, and another one has it; it is not set anew.
    served.running.child.kill().unwrap();
    served.running.child.wait().unwrap();
    // Its cookie names the process that has set it.
    let whole = |switch: &DummySwitch| switch.ofctl("dump-flows", &["--no-stats", "ip"]);
    let before = whole(&switch);
    let served = Served::start(&switch, &["--state", &state]);
    wait_until("it is in use again", || served.state(ENTRY) == "in_use");
    assert!(has_it(&switch));
    assert_eq!(whole(&switch), before);

    let (status, _) = served.ask("DELETE", ENTRY, &Value::Null);
    assert_eq!(status, 204);
    wait_until("it is gone", || !has_it(&switch));
    assert_eq!(served.ask("DELETE", ENTRY, &Value::Null).0, 404);
}

#[test]
fn many_at_once_are_all_or_none_and_those_with_a_timeout_end() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state").display().to_string();
    let mut switch = DummySwitch::start(4);
    switch.restart();
    let mut served = Served::start(&switch, &["--state", &state]);
    let one =
        |n: u32| json!({"switch": "1", "match": format!("tcp,tp_dst={n}"), "actions": "drop"});
    let (status, told) = served.ask(
        "PATCH",
        "/v1/flows/ann",
        &json!({"a": one(1), "b": one(2), "c": one(2), "d": {"switch": "1"}}),
    );
    assert_eq!(status, 422, "{told}");
    let (status, told) = served.ask(
        "PATCH",
        "/v1/flows/ann",
        &json!({"a": one(1), "b": one(2), "c": one(2)}),
    );
    assert_eq!(
        (status, &told["errors"][0]["pointer"]),
        (422, &json!("/c/match")),
        "{told}"
    );
    let (_, all) = served.ask("GET", "/v1/flows", &Value::Null);
    assert_eq!(all, json!({"flows": [], "total": 0, "next": null}));

    let mut short = one(3);
    short["hard_timeout"] = json!(2);
    let patch = json!({"a": one(1), "b": one(2), "short": short});
    let (status, told) = served.ask("PATCH", "/v1/flows/ann", &patch);
    assert_eq!(
        (status, told),
        (200, json!({"created": 3, "replaced": 0, "deleted": 0}))
    );
    let (_, kept) = served.ask("GET", "/v1/intent", &Value::Null);
    assert_eq!(kept["documents"].as_array().unwrap().len(), 2, "{kept}");
    served
        .running
        .wait_for("static entry ann/short of switch 0000000000000001 has ended");
    wait_until("both others are in use", || {
        let (_, all) = served.ask("GET", "/v1/flows/ann", &Value::Null);
        let states = all["flows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|flow| &flow["state"]);
        states.collect::<Vec<_>>() == ["in_use", "in_use"]
    });
    assert_eq!(rows(&switch).len(), 2);

    // One goes and another one gets its place, in one request.
    let (status, told) = served.ask("PATCH", "/v1/flows/ann", &json!({"a": null, "e": one(1)}));
    assert_eq!(
        (status, told),
        (200, json!({"created": 1, "replaced": 0, "deleted": 1}))
    );
    assert_eq!(served.ask("DELETE", "/v1/flows/ann", &Value::Null).0, 204);
    wait_until("all are gone", || rows(&switch).is_empty());
}

/// As many as an owner may have: all are set, and then only what differs.
#[test]
fn four_thousand_entries_are_set_and_what_differs_is_changed() {
    const COUNT: usize = 4096;
    const PART: usize = 256;
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state").display().to_string();
    let mut switch = DummySwitch::start(4);
    switch.restart();
    let served = Served::start(&switch, &["--state", &state]);
    let put = |out: &dyn Fn(usize) -> usize| {
        let began = Instant::now();
        for first in (0..COUNT).step_by(PART) {
            let one = |n: usize| {
                let entry = json!({
                    "switch": "1", "match": format!("tcp,tp_dst={n}"),
                    "actions": format!("output:{}", out(n)),
                });
                (format!("n{n:04}"), entry)
            };
            let part: serde_json::Map<String, Value> = (first..first + PART).map(one).collect();
            let (status, answer) = served.ask("PATCH", "/v1/flows/ann", &part.into());
            assert_eq!(status, 200, "{answer}");
        }
        eprintln!("{COUNT} entries asked for in {:?}", began.elapsed());
        wait_until("all are in use", || {
            let all = pages(&served, "/v1/flows/ann?limit=1000&");
            all.iter().filter(|flow| flow["state"] == "in_use").count() == COUNT
        });
        eprintln!("{COUNT} entries in use after {:?}", began.elapsed());
    };
    put(&|_| 1);
    let held = |out: &str| {
        let rows = rows(&switch);
        rows.iter().filter(|row| row.ends_with(out)).count()
    };
    assert_eq!(held("actions=output:1"), COUNT);
    put(&|n| 1 + n / (COUNT - 3));
    assert_eq!((held("output:1"), held("output:2")), (COUNT - 3, 3));
    let all = pages(&served, "/v1/flows?limit=1000&");
    assert!(all.is_sorted_by_key(|flow| flow["name"].as_str().unwrap().to_owned()));
    assert_eq!(all.len(), COUNT);
    assert_eq!(served.ask("GET", "/v1/flows?after=x", &Value::Null).0, 400);
    assert_eq!(served.ask("DELETE", "/v1/flows/ann", &Value::Null).0, 204);
    wait_until("all are gone", || rows(&switch).is_empty());
}

/// All entries of a list.
fn pages(served: &Served, path: &str) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let (status, page) = served.ask("GET", &format!("{path}{after}"), &Value::Null);
        assert_eq!(status, 200, "{page}");
        all.extend(page["flows"].as_array().unwrap().iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = format!("after={next}"),
            None => return all,
        }
    }
}

/// The requests of a program that was written for Ryu.
#[test]
fn entries_in_the_words_of_ryu() {
    let mut switch = DummySwitch::start(4);
    switch.restart();
    let served = Served::start(&switch, &[]);
    let ask = |command: &str, body: Value| {
        let path = format!("/stats/flowentry/{command}");
        let (status, told) = served.ask("POST", &path, &body);
        assert_eq!(status, 200, "{told}");
    };
    let entry = |priority: u16, port: u32| {
        json!({
            "dpid": 1, "cookie": 1, "table_id": 0, "priority": priority,
            "match": {"eth_type": 2048, "ipv4_dst": "10.0.0.0/24"},
            "actions": [{"type": "OUTPUT", "port": port}]
        })
    };
    let held = || {
        let dump = switch.ofctl("dump-flows", &["--no-stats", "ip"]);
        let row = |line: &str| {
            let after = line.split("priority=").nth(1)?;
            Some(after.replace(",ip,nw_dst=10.0.0.0/24 actions=", " "))
        };
        let mut rows: Vec<String> = dump.lines().filter_map(row).collect();
        rows.sort();
        rows
    };
    ask("add", entry(100, 1));
    ask("add", entry(200, 2));
    wait_until("both are there", || {
        held() == ["10100 output:1", "10200 output:2"]
    });
    ask("add", entry(100, 3));
    ask("modify_strict", entry(200, 4));
    wait_until("they are others", || {
        held() == ["10100 output:3", "10200 output:4"]
    });
    ask("modify", entry(7, 1));
    wait_until("both are the same", || {
        held() == ["10100 output:1", "10200 output:1"]
    });
    ask("delete_strict", entry(100, 1));
    wait_until("one is left", || held() == ["10200 output:1"]);
    ask("delete", json!({"dpid": 1, "match": {"eth_type": 2048}}));
    wait_until("none is left", || held().is_empty());
    ask("add", entry(100, 1));
    wait_until("one is there", || held().len() == 1);
    assert_eq!(
        served
            .ask("DELETE", "/stats/flowentry/clear/1", &Value::Null)
            .0,
        200
    );
    wait_until("none is left again", || held().is_empty());
    let (status, told) = served.ask("POST", "/stats/flowentry/add", &json!({"dpid": 7}));
    assert_eq!(status, 404, "{told}");
}
