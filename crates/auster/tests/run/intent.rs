//! Requests to the API of members of a cluster: with a real etcd and a real Open vSwitch.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::cluster::Members;
use super::etcd_server::{Etcd, Options};
use super::{Auster, PATIENCE};

/// An answer of an API.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Lower case names and values, a line each.
    headers: String,
    pub body: Value,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.headers.lines();
        let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        values.next()
    }

    fn tag(&self) -> String {
        self.header("etag")
            .unwrap_or_else(|| panic!("{self:?}"))
            .to_owned()
    }
}

pub fn ask(
    at: SocketAddr,
    method: &str,
    path: &str,
    condition: &str,
    body: Option<Value>,
) -> Answer {
    let body = body.map_or(String::new(), |body| body.to_string());
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{condition}\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let text = exchange(at, &request);
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let (first, headers) = head.split_once("\r\n").unwrap();
    Answer {
        status: first.split(' ').nth(1).unwrap().parse().unwrap(),
        headers: headers.to_owned(),
        body: serde_json::from_str(body).unwrap_or_default(),
    }
}

pub fn get(at: SocketAddr, path: &str) -> Answer {
    ask(at, "GET", path, "", None)
}

pub fn put(at: SocketAddr, path: &str, body: Value) -> Answer {
    ask(at, "PUT", path, "", Some(body))
}

fn exchange(at: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// A metric without labels, as a member serves it.
pub fn metric(at: SocketAddr, name: &str) -> f64 {
    let head = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let text = exchange(at, head);
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("{name}: {text}"))
}

/// Waits until this holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < give_up, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub fn service(port: u16) -> Value {
    json!({"proto": "udp", "dst_port": port})
}

fn drop_of(service: &str) -> Value {
    json!({"service": service, "drop": true})
}

#[test]
fn whichever_member_is_asked_the_switch_has_it_and_the_next_member_too() {
    let mut members = Members::start();
    let first = members.settled();
    members.wait_for_order();
    let [second, third] = [1, 2].map(|n| (first + n) % 3);
    let apis = members.apis.clone();

    // A standby takes the request, and the serving member carries it out.
    let made = put(apis[second], "/v1/services/voice", service(5060));
    assert_eq!(made.status, 201, "{made:?}");
    let policy = put(apis[second], "/v1/policies/first", drop_of("voice"));
    assert_eq!(policy.status, 201, "{policy:?}");
    let has =
        |members: &Members, port: u16| members.ovs.flows("br0").contains(&format!("tp_dst={port}"));
    eventually("the switch has it", || has(&members, 5060));

    // All members have the same document, and of two changes after seeing it one is too late.
    for at in &apis {
        eventually("each member has it", || {
            get(*at, "/v1/policies/first").header("etag") == Some(&policy.tag())
        });
    }
    let condition = format!("if-match: {}\r\n", policy.tag());
    let change = |at: SocketAddr, priority: u16| {
        let condition = condition.clone();
        std::thread::spawn(move || {
            let mut body = drop_of("voice");
            body["priority"] = priority.into();
            ask(at, "PUT", "/v1/policies/first", &condition, Some(body)).status
        })
    };
    let changes = [change(apis[first], 7), change(apis[third], 8)];
    let mut statuses = changes.map(|change| change.join().unwrap());
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412]);

    // The same is true for the places on the map.
    let places = json!({"places": {"0000000000000001": [-75, 0]}});
    let placed = put(apis[third], "/v1/layout", places.clone());
    assert_eq!(placed.status, 201, "{placed:?}");
    for at in &apis {
        eventually("each member has the places", || {
            let there = get(*at, "/v1/layout");
            there.body == places && there.header("etag") == Some(&placed.tag())
        });
    }

    // Without a condition all requests are carried out, one after the other.
    let threads: Vec<_> = apis
        .iter()
        .enumerate()
        .map(|(n, at)| {
            let at = *at;
            std::thread::spawn(move || {
                let path = |i| format!("/v1/services/by-{n}-{i}");
                (0..5)
                    .map(|i| put(at, &path(i), service(7000)).status)
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), [201; 5]);
    }

    // The member that takes over has the first policy, and removes it when it is asked to.
    assert_eq!(members.end(first, Signal::SIGKILL), None);
    members.settled();
    assert_eq!(
        put(apis[third], "/v1/services/video", service(5061)).status,
        201
    );
    assert_eq!(
        put(apis[third], "/v1/policies/next", drop_of("video")).status,
        201
    );
    eventually("the next one carries out", || has(&members, 5061));
    assert!(has(&members, 5060), "{}", members.ovs.flows("br0"));
    let gone = ask(apis[second], "DELETE", "/v1/policies/first", "", None);
    assert_eq!(gone.status, 204, "{gone:?}");
    eventually("the next one knew of it", || !has(&members, 5060));

    junk_is_left_out(&mut members, first, third);
    without_etcd_nothing_is_changed(&mut members, second);
}

/// Documents that somebody has written by hand: named, counted, and no obstacle to anything.
fn junk_is_left_out(members: &mut Members, back: usize, asked: usize) {
    let at = members.apis[asked];
    let document = |document: Value| json!({"by": "x", "at": "", "document": document}).to_string();
    let junk = [
        ("services/torn", "{".to_owned()),
        ("services/other", document(json!({"name": "another"}))),
        ("voices/unknown", document(json!({"name": "unknown"}))),
        (
            "policies/lost",
            document(json!({"name": "lost", "service": "nowhere", "drop": true})),
        ),
        ("services/\u{1b}[31m", "x".to_owned()),
    ];
    for (key, text) in &junk {
        let key = format!("/auster/v1/intent/{key}");
        members.etcd.ctl(&["put", &key, text]);
    }
    let left_out = |at: SocketAddr| {
        let answer = get(at, "/v1/intent");
        let all = answer.body["documents"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        all.iter()
            .filter(|entry| entry["state"] == "left out")
            .count()
    };
    eventually("all of it is left out", || left_out(at) == junk.len());
    let auster = members.running[asked].as_ref().unwrap();
    let line = auster.line("intent: policies/lost is left out: ");
    assert!(line.contains("there is no service 'nowhere'"), "{line}");
    assert_eq!(put(at, "/v1/services/more", service(5062)).status, 201);
    assert_eq!(put(at, "/v1/policies/more", drop_of("more")).status, 201);
    eventually("the rest is carried out", || {
        members.ovs.flows("br0").contains("tp_dst=5062")
    });

    // Such documents keep no member from coming back, and can be mended.
    members.restart(back);
    eventually("it is there again", || {
        left_out(members.apis[back]) == junk.len()
    });
    members.settled();
    assert_eq!(put(at, "/v1/services/torn", service(1)).status, 200);
    assert_eq!(put(at, "/v1/services/nowhere", service(2)).status, 201);
    assert_eq!(
        ask(at, "DELETE", "/v1/services/other", "", None).status,
        204
    );
    eventually("what fits now is in use", || left_out(at) == 2);
    assert_eq!(get(at, "/v1/policies/lost").status, 200);
}

fn without_etcd_nothing_is_changed(members: &mut Members, asked: usize) {
    let at = members.apis[asked];
    members.etcd.kill(0);
    let refused = put(at, "/v1/services/late", service(5063));
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (503, Some("2")),
        "{refused:?}"
    );
    assert_eq!(get(at, "/v1/services/video").status, 200);
    assert_eq!(get(at, "/v1/services/late").status, 404);
    assert!(members.ovs.flows("br0").contains("tp_dst=5061"));
    members.etcd.restart(0);
    eventually("it is taken again", || {
        put(at, "/v1/services/late", service(5063)).status < 300
    });
    for (member, at) in members.apis.iter().enumerate() {
        eventually("all are in sync", || {
            get(*at, "/v1/services/late").status == 200
        });
        assert!(members.running[member].is_some());
    }
}

#[test]
fn a_full_etcd_is_told_from_one_that_is_away() {
    let etcd = Etcd::start(&Options {
        flags: vec!["--quota-backend-bytes=2097152".into()],
        ..Options::default()
    });
    let dir = tempfile::tempdir().unwrap();
    let endpoint = &etcd.endpoints()[0];
    let text = format!(
        "listen = \"ptcp:0:127.0.0.1\"\napi = \"0\"\n[cluster]\netcd = [\"http://{endpoint}\"]\n\
         name = \"a\"\nlisten = \"ptcp:0:127.0.0.1\"\nstate = \"state\"\n"
    );
    let file = super::write(dir.path(), "a.toml", &text);
    let auster = Auster::start(&["--config", file.to_str().unwrap()]);
    auster.port();
    let at = auster.api();
    eventually("etcd is read", || {
        put(at, "/v1/services/voice", service(5060)).status == 201
    });
    let value = "x".repeat(100 << 10);
    let mut written = 0;
    eventually("etcd is full", || {
        written += 1;
        // This command fails in the end.
        let filled = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args([
                "--endpoints",
                endpoint,
                "put",
                &format!("/fill/{written}"),
                &value,
            ])
            .output()
            .unwrap();
        !filled.status.success() && written > 10
    });
    let full = put(at, "/v1/services/late", service(5061));
    assert_eq!(full.status, 507, "{full:?}");
    assert_eq!(get(at, "/v1/services/late").status, 404);
    assert_eq!(get(at, "/v1/services/voice").status, 200);
    assert_eq!(get(at, "/v1/switches").status, 200);
}
