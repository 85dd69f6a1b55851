//! Static entries on a real Open vSwitch: they stay whatever restarts, and come back when another
//! program deletes them.

mod common;

use std::net::SocketAddr;
use std::process::Command;
use std::time::Instant;

use common::dummy::DummySwitch;
use common::running::Running;
use common::{AUSTER, run, wait_until};
use serde_json::{Value, json};

const ENTRY: &str = "/v1/flows/ann/detour";
/// The entry as the switch prints it.
const ROW: &str = "priority=9007,ip,nw_dst=10.0.0.2 actions=output:3";

struct Served {
    running: Running,
    api: SocketAddr,
}

impl Served {
    /// Starts a controller that the switch connects to.
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
    served
        .running
        .wait_for("somebody else has deleted auster's entries there");
    wait_until("so are auster's own", || {
        let rows = switch.ofctl("dump-flows", &["dl_type=0x88cc"]);
        rows.contains("dl_type=0x88cc")
    });

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

    // The switch restarts, without entries.
    switch.restart();
    wait_until("it is there after the switch's restart", || has_it(&switch));

    // The controller is killed, and another one has the entry without setting it again.
    served.running.child.kill().unwrap();
    served.running.child.wait().unwrap();
    // The entry's cookie names the process that has set it.
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

    // One request deletes an entry and puts another in its place.
    let (status, told) = served.ask("PATCH", "/v1/flows/ann", &json!({"a": null, "e": one(1)}));
    assert_eq!(
        (status, told),
        (200, json!({"created": 1, "replaced": 0, "deleted": 1}))
    );
    assert_eq!(served.ask("DELETE", "/v1/flows/ann", &Value::Null).0, 204);
    wait_until("all are gone", || rows(&switch).is_empty());
}

/// Groups and meters come before the entries that lead to them, and stay whatever restarts.
#[test]
fn entries_lead_to_groups_and_meters_of_their_owner() {
    const GROUP: &str = "/v1/groups/ann/both";
    const METER: &str = "/v1/meters/ann/slow";
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state").display().to_string();
    let mut switch = DummySwitch::start(4);
    switch.restart();
    let mut served = Served::start(&switch, &["--state", &state]);
    let put = |served: &Served, path: &str, body: Value| {
        let (status, answer) = served.ask("PUT", path, &body);
        assert!([200, 201].contains(&status), "{path}: {answer}");
        answer
    };
    let led = json!({
        "switch": "1", "match": "ip,nw_dst=10.0.0.2", "actions": "meter:slow,group:both"
    });
    let (status, answer) = served.ask("PUT", ENTRY, &led);
    assert_eq!(
        (status, answer["errors"].as_array().unwrap().len()),
        (422, 2),
        "{answer}"
    );
    let group = json!({"switch": "1", "group": "type=all,bucket=output:1,bucket=output:2"});
    let meter = json!({
        "switch": "1", "number": 7, "meter": "kbps,burst,band=type=drop,rate=1000,burst_size=10"
    });
    let number = put(&served, GROUP, group)["number"].as_u64().unwrap();
    put(&served, METER, meter);
    let led = json!({
        "switch": "1", "match": "ip,nw_dst=10.0.0.2", "actions": "meter:7,group:both"
    });
    put(&served, ENTRY, led);
    let are_in_use = |served: &Served| {
        let states = [GROUP, METER, ENTRY].map(|path| served.state(path));
        states.iter().all(|state| state == "in_use")
    };
    let groups = |switch: &DummySwitch| switch.ofctl("dump-groups", &[]);
    let meters = |switch: &DummySwitch| switch.ofctl("dump-meters", &[]);
    let row = format!("priority=9000,ip,nw_dst=10.0.0.2 actions=meter:7,group:{number}");
    let has_all = |switch: &DummySwitch| {
        let buckets = "type=all,bucket=actions=output:1,bucket=actions=output:2";
        rows(switch).contains(&row)
            && groups(switch).contains(&format!("group_id={number},{buckets}"))
            && meters(switch).contains("meter=7 kbps burst")
    };
    wait_until("all are in use", || are_in_use(&served));
    assert!(has_all(&switch), "{}{:?}", groups(&switch), rows(&switch));

    // Somebody else deletes the group, and the entry goes with it.
    switch.ofctl("del-groups", &[]);
    wait_until("both are there again", || {
        has_all(&switch) && are_in_use(&served)
    });
    switch.ofctl(
        "mod-group",
        &[&format!("group_id={number},type=all,bucket=output:3")],
    );
    wait_until("it is as it should be", || has_all(&switch));
    switch.ofctl("del-meters", &[]);
    wait_until("the meter is there again", || {
        has_all(&switch) && are_in_use(&served)
    });

    // The switch restarts; then the controller does.
    switch.restart();
    wait_until("all are there after the switch's restart", || {
        are_in_use(&served) && has_all(&switch)
    });
    served.running.child.kill().unwrap();
    served.running.child.wait().unwrap();
    let stray = "group_id=0x60000001,type=all,bucket=output:1";
    switch.ofctl("add-group", &[stray]);
    let served = Served::start(&switch, &["--state", &state]);
    wait_until("all are in use again", || are_in_use(&served));
    wait_until("a group of nobody is gone", || {
        !groups(&switch).contains("1610612737")
    });
    assert!(has_all(&switch), "{}{:?}", groups(&switch), rows(&switch));

    // A meter that the switch refuses, and the entry that leads to it.
    put(
        &served,
        METER,
        json!({
            "switch": "1", "number": 7, "meter": "kbps,band=type=dscp_remark,rate=9,prec_level=1"
        }),
    );
    wait_until("both say so", || {
        [METER, ENTRY]
            .iter()
            .all(|path| served.state(path) == "refused")
    });
    let (_, entry) = served.ask("GET", ENTRY, &Value::Null);
    assert!(
        entry["reason"].as_str().unwrap().contains("meter ann/slow"),
        "{entry}"
    );
    put(
        &served,
        METER,
        json!({"switch": "1", "number": 7, "meter": "pktps,band=type=drop,rate=9"}),
    );
    wait_until("both are in use", || are_in_use(&served));

    let (status, answer) = served.ask("DELETE", GROUP, &Value::Null);
    assert_eq!(status, 422, "an entry leads to it: {answer}");
    for path in [ENTRY, GROUP, METER] {
        assert_eq!(served.ask("DELETE", path, &Value::Null).0, 204);
    }
    wait_until("nothing is left", || {
        let has_none = |dump: String, word: &str| !dump.contains(word);
        has_none(groups(&switch), "group_id=") && has_none(meters(&switch), "meter=")
    });
    assert_eq!(rows(&switch), [""; 0]);
}

/// In OpenFlow 1.5 a meter is an action.
#[test]
fn an_entry_leads_to_a_meter_of_a_switch_of_openflow_1_5() {
    const METER: &str = "/v1/meters/ann/slow";
    let mut switch = DummySwitch::start(4);
    switch.restart();
    switch.vsctl(&["set", "bridge", "br0", "protocols=OpenFlow15"]);
    switch.ofctl_version = "15".to_owned();
    let served = Served::start(&switch, &["--versions", "1.5"]);
    let meter = json!({"switch": "1", "number": 7, "meter": "kbps,band=type=drop,rate=1000"});
    let (status, answer) = served.ask("PUT", METER, &meter);
    assert_eq!(status, 201, "{answer}");
    for then in [",output:3", ""] {
        let actions = format!("meter:7{then}");
        let led = json!({"switch": "1", "match": "ip,nw_dst=10.0.0.2", "actions": actions});
        let (status, answer) = served.ask("PUT", ENTRY, &led);
        assert!([200, 201].contains(&status), "{answer}");
        wait_until("it is in use", || served.state(ENTRY) == "in_use");
        let row = format!("priority=9000,ip,nw_dst=10.0.0.2 actions=meter:7{then}");
        assert_eq!(rows(&switch), std::slice::from_ref(&row));
        // Somebody else deletes the meter, and the entry with it.
        switch.ofctl("del-meters", &[]);
        wait_until("both are there again", || {
            let has_meter = switch.ofctl("dump-meters", &[]).contains("meter=7 kbps");
            has_meter && rows(&switch) == [row.clone()] && served.state(ENTRY) == "in_use"
        });
    }
    for path in [ENTRY, METER] {
        assert_eq!(served.ask("DELETE", path, &Value::Null).0, 204);
    }
    wait_until("nothing is left", || rows(&switch).is_empty());
}

/// All that an owner may have are set, and then only what differs. Entries behind which packets go
/// on are in a table before the paths. The switch reports these entries as they were sent, and
/// forwards by auster's other entries.
#[test]
fn packets_go_on_behind_entries_to_austers_forwarding() {
    let mut switch = DummySwitch::start(4);
    switch.restart();
    let served = Served::start(&switch, &[]);
    let put = |name: &str, priority: u16, actions: &str| {
        let entry = json!({
            "switch": "1", "priority": priority, "match": "ip", "actions": actions
        });
        served.ask("PUT", &format!("/v1/flows/{name}"), &entry)
    };
    for (name, priority, actions) in [
        ("ann/seen", 3, "go_on"),
        ("ann/mark", 4, "mod_nw_tos:184,go_on"),
        ("bob/mark", 4, "drop"),
        ("bob/lost", 5, "output:99"),
    ] {
        let (status, made) = put(name, priority, actions);
        assert_eq!(status, 201, "{made}");
    }
    // The counters are read, so each entry is as it was sent.
    wait_until("all are read", || {
        let all = pages(&served, "/v1/flows?");
        all.iter().all(|flow| flow["packets"].is_u64())
    });
    let states = ["ann/seen", "ann/mark", "bob/mark", "bob/lost"];
    let states = states.map(|name| served.state(&format!("/v1/flows/{name}")));
    assert_eq!(states, ["in_use", "in_use", "in_use", "no_port"]);
    let (_, mended) = served.ask("GET", "/v1/events?kinds=flow_mended", &Value::Null);
    assert_eq!(mended, Value::Null, "nothing was sent twice");
    let rows = switch.ofctl("dump-flows", &["--no-stats", "table=8"]);
    for row in [
        "priority=9003,ip actions=goto_table:9",
        "priority=9004,ip actions=set_field:46->ip_dscp,goto_table:9",
        "priority=0 actions=goto_table:9",
    ] {
        assert!(rows.contains(row), "{row} is not in {rows}");
    }
    // In another table, it overlaps nothing.
    let (_, mark) = served.ask("GET", "/v1/flows/bob/mark", &Value::Null);
    assert_eq!(mark["overlaps"], Value::Null);
    let (_, above) = put("bob/mark", 4, "meter:none,go_on");
    assert_eq!(above["errors"][0]["pointer"], "/actions", "{above}");
    let (status, both) = put("bob/other", 3, "go_on");
    assert_eq!(status, 422, "{both}");
    let wide = json!({"switch": "1", "priority": 3, "match": "", "actions": "go_on"});
    let (status, made) = served.ask("PUT", "/v1/flows/bob/other", &wide);
    assert_eq!((status, &made["overlaps"]), (201, &json!(["ann/seen"])));

    let wrong = json!({"switch": "1", "group": "type=all,bucket=output:1,go_on"});
    let (status, refused) = served.ask("PUT", "/v1/groups/ann/copy", &wrong);
    assert_eq!(status, 422);
    let text = refused.to_string();
    assert!(text.contains("go_on is for entries"), "{text}");
}

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

#[test]
fn groups_and_meters_in_the_words_of_ryu() {
    let mut switch = DummySwitch::start(4);
    switch.restart();
    let served = Served::start(&switch, &[]);
    let ask = |command: &str, body: Value| {
        let (status, answer) = served.ask("POST", &format!("/stats/{command}"), &body);
        assert_eq!(status, 200, "{command}: {answer}");
    };
    let get = |path: &str| {
        let (status, answer) = served.ask("GET", &format!("/stats/{path}/1"), &Value::Null);
        assert_eq!(status, 200, "{path}: {answer}");
        answer["1"].clone()
    };
    let group = |port: u32| {
        json!({
            "dpid": 1, "type": "ALL", "group_id": 50,
            "buckets": [{"actions": [{"type": "OUTPUT", "port": port}]}]
        })
    };
    let shown = |port: u32| {
        json!([{
            "type": "ALL", "group_id": 50, "buckets": [{
                "weight": 0, "watch_port": 4_294_967_295_u32, "watch_group": 4_294_967_295_u32,
                "actions": [format!("OUTPUT:{port}")]
            }]
        }])
    };
    ask("groupentry/modify", group(3));
    assert_eq!(get("groupdesc"), json!([]), "there is none to modify");
    ask("groupentry/add", group(1));
    ask(
        "meterentry/add",
        json!({
            "dpid": 1, "flags": "KBPS", "meter_id": 3, "bands": [{"type": "DROP", "rate": 1000}]
        }),
    );
    wait_until("the group is there", || get("groupdesc") == shown(1));
    let meter = json!([{
        "flags": ["KBPS"], "meter_id": 3,
        "bands": [{"type": "DROP", "rate": 1000, "burst_size": 1000}]
    }]);
    wait_until("the meter is there", || get("meterconfig") == meter);
    ask("groupentry/modify", group(2));
    wait_until("it is another one", || get("groupdesc") == shown(2));
    ask(
        "flowentry/add",
        json!({
            "dpid": 1, "priority": 7, "cookie": 9, "match": {"in_port": 1}, "actions": [
                {"type": "METER", "meter_id": 3}, {"type": "GROUP", "group_id": 50}
            ]
        }),
    );
    let row = "priority=10007,in_port=1 actions=meter:3,group:50".to_owned();
    let has_row = || {
        let dump = switch.ofctl("dump-flows", &["--no-stats"]);
        dump.contains(&row)
    };
    wait_until("the entry is there", has_row);
    // The program sees what it has stated.
    let (_, shown) = served.ask("POST", "/stats/flow/1", &json!({"match": {"in_port": 1}}));
    let shown = &shown["1"][0];
    assert_eq!(
        [&shown["priority"], &shown["cookie"], &shown["flags"]],
        [&json!(7), &json!(9), &json!(0)]
    );
    let other = json!({"cookie": 8, "cookie_mask": 15, "match": {"in_port": 1}});
    let (_, none) = served.ask("POST", "/stats/flow/1", &other);
    assert_eq!(none["1"], json!([]));
    let (_, counts) = served.ask("GET", "/stats/group/1/50", &Value::Null);
    assert_eq!(counts["1"][0]["group_id"], 50, "{counts}");
    // Deleting a group deletes its entries too, as a switch does.
    ask("groupentry/delete", json!({"dpid": 1, "group_id": 50}));
    wait_until("the entry is gone", || !has_row());
    wait_until("the group is gone", || get("groupdesc") == json!([]));
    ask("meterentry/delete", json!({"dpid": 1, "meter_id": 3}));
    wait_until("the meter is gone", || get("meterconfig") == json!([]));
    let body = json!({"dpid": 1, "group_id": 0x6175_0001_u32, "type": "X"});
    let (status, answer) = served.ask("POST", "/stats/groupentry/add", &body);
    assert_eq!(status, 400, "{answer}");
}
