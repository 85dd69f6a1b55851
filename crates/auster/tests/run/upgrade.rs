//! Members that find another cluster, or another schema, in a real etcd.

use std::fs::File;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::cluster::{Members, Server};
use super::intent::{eventually, get, put, service};
use super::write;

const IDENTITY: &str = "/auster/v1/cluster";

fn set_schema(members: &Members, schema: u32) {
    let text = json!({"id": "auster", "schema": schema}).to_string();
    members.etcd.ctl(&["put", IDENTITY, &text]);
}

fn value(members: &Members, key: &str) -> Value {
    let text = members.etcd.ctl(&["get", key, "--print-value-only"]);
    serde_json::from_str(&text).unwrap_or_default()
}

/// Whether `field` has this value in the entries of all members.
fn all_say(members: &Members, field: &str, expected: Value) -> bool {
    let mut names = ["a", "b", "c"].iter();
    names.all(|name| value(members, &format!("/auster/v1/members/{name}"))[field] == expected)
}

/// A member whose configuration names another cluster, with the members' etcd.
fn two_clusters_in_one_etcd(members: &Members) {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = &members.etcd.endpoints()[0];
    let text = format!(
        "listen = \"ptcp:0:127.0.0.1\"\n[cluster]\netcd = [\"http://{endpoint}\"]\nid = \"lab\"\n\
         name = \"d\"\nlisten = \"ptcp:0:127.0.0.1\"\nstate = \"state\"\n"
    );
    let file = write(dir.path(), "d.toml", &text);
    let log = dir.path().join("log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_auster"));
    let command = command.args(["run", "--config"]).arg(&file);
    let command = command
        .stdout(Stdio::null())
        .stderr(File::create(&log).unwrap());
    let _stranger = Server(command.spawn().unwrap());
    let said = || std::fs::read_to_string(&log).unwrap();
    let problem = "it has the cluster 'auster', and [cluster] id is 'lab'";
    eventually("it says so", || said().contains(problem));
    let keys = ["get", "/auster/v1/", "--prefix", "--keys-only"];
    let keys = members.etcd.ctl(&keys);
    assert!(!keys.contains("/members/d"), "{keys}");
    assert_eq!(value(members, IDENTITY)["id"], "auster");
}

#[test]
fn a_member_meets_another_cluster_and_other_schemas() {
    let members = Members::start();
    let first = members.settled();
    members.wait_for_order();
    two_clusters_in_one_etcd(&members);

    let at = members.apis[first];
    assert_eq!(put(at, "/v1/services/voice", service(5060)).status, 201);
    assert!(all_say(&members, "schema", json!(1)));
    assert!(all_say(&members, "ready", json!(true)));

    // All members are of an earlier version than the cluster, whose documents may mean anything.
    set_schema(&members, 2);
    members
        .etcd
        .ctl(&["del", "/auster/v1/intent/services/voice"]);
    eventually("nobody is ready", || {
        all_say(&members, "ready", json!(false))
    });
    for auster in members.running.iter().flatten() {
        auster.line("the cluster has schema 2, and this auster reads 1 at most");
    }
    eventually("nothing is changed", || {
        put(at, "/v1/services/late", service(5061)).status == 503
    });
    assert_eq!(get(at, "/v1/services/voice").status, 200);
    let keys = members
        .etcd
        .ctl(&["get", "/auster/v1/intent/", "--prefix", "--keys-only"]);
    assert!(!keys.contains("late"), "{keys}");

    // A cluster of the earlier schema again. The members see now that the document is missing.
    set_schema(&members, 1);
    eventually("all are ready", || all_say(&members, "ready", json!(true)));
    eventually("it is gone", || get(at, "/v1/services/voice").status == 404);
    assert_eq!(put(at, "/v1/services/late", service(5061)).status, 201);

    // All read the next schema: after half a minute it is in use.
    set_schema(&members, 0);
    eventually("the schema is raised", || {
        value(&members, IDENTITY)["schema"] == 1
    });
    assert_eq!(value(&members, IDENTITY)["id"], "auster");
    members.settled();
    assert_eq!(get(at, "/v1/services/late").status, 200);
}
