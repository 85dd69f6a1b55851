//! Streams over real connections.

use std::collections::BTreeSet;
use std::time::Duration;

use cli::output::say;
use config::api::Stated;
use config::tokens;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, interval, sleep, timeout};

use super::super::stream::STREAMS_MAX;
use super::*;

/// The time limit for everything that a test waits for.
const DEADLINE: Duration = Duration::from_secs(120);

/// An API on a port of this machine.
struct Open {
    served: Served,
    at: std::net::SocketAddr,
    _task: JoinHandle<()>,
}

impl Open {
    async fn new() -> Open {
        let served = Served::new().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let listener = listener::Listener::Tcp(listener);
        let _task = server::serve(listener, served.router.clone(), Arc::default());
        Open { served, at, _task }
    }

    async fn get(&self, path: &str, accept: &str) -> hyper::Response<Incoming> {
        get(self.at, path, &[("accept", accept)]).await
    }

    fn push(&self, kind: &str, number: usize, size: usize) {
        let document = json!({"event": kind, "number": number, "fill": "x".repeat(size)});
        self.served.reads.feed.push(&document);
    }
}

async fn get(
    at: std::net::SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> hyper::Response<Incoming> {
    let stream = TcpStream::connect(at).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = hyper::Request::get(path).header("host", "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    sender.send_request(request).await.unwrap()
}

/// The lines of an answer, as they arrive.
struct LinesOf {
    body: Incoming,
    kept: Vec<u8>,
}

impl LinesOf {
    fn of(response: hyper::Response<Incoming>) -> LinesOf {
        assert_eq!(response.status(), StatusCode::OK);
        let body = response.into_body();
        let kept = Vec::new();
        LinesOf { body, kept }
    }

    /// Waits for the next lines; empty at the end of the answer.
    async fn some(&mut self) -> Vec<String> {
        loop {
            let frame = timeout(DEADLINE, self.body.frame()).await.expect("in time");
            let Some(Ok(frame)) = frame else {
                return Vec::new();
            };
            self.kept.extend_from_slice(frame.data_ref().unwrap());
            let Some(end) = self.kept.iter().rposition(|b| *b == b'\n') else {
                continue;
            };
            let rest = self.kept.split_off(end + 1);
            let whole = std::mem::replace(&mut self.kept, rest);
            let text = String::from_utf8(whole).unwrap();
            let lines = text.lines().filter(|line| !matches!(*line, "" | ":"));
            let lines: Vec<String> = lines.map(str::to_owned).collect();
            if !lines.is_empty() {
                return lines;
            }
        }
    }

    async fn all(mut self) -> Vec<Value> {
        let mut all = Vec::new();
        loop {
            let some = self.some().await;
            if some.is_empty() {
                return all;
            }
            all.extend(some.iter().map(|line| serde_json::from_str(line).unwrap()));
        }
    }
}

fn seqs(events: &[Value]) -> Vec<u64> {
    events.iter().map(|e| e["seq"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn events_that_are_kept_are_lines_by_number_kind_and_switch() {
    let open = Open::new().await;
    let lines = |path: &'static str| async { LinesOf::of(open.get(path, "*/*").await).all().await };
    assert_eq!(lines("/v1/events").await, [Value::Null; 0]);
    let feed = &open.served.reads.feed;
    feed.push(&json!({"event": "port_up", "port": "0000000000000001:2", "time_s": 1.5}));
    feed.push(&json!({"event": "link_up", "from": "0000000000000002:1"}));
    feed.push(&json!({"event": "port_down", "port": "0000000000000001:2"}));
    let all = lines("/v1/events").await;
    let first = json!({"seq": 1001, "event": "port_up", "port": "0000000000000001:2",
        "time_s": 1.5});
    assert_eq!((&all[0], seqs(&all)), (&first, vec![1001, 1002, 1003]));
    assert_eq!(seqs(&lines("/v1/events?since=1001").await), [1002, 1003]);
    assert_eq!(seqs(&lines("/v1/events?since=1003").await), [0; 0]);
    let kinds = lines("/v1/events?kinds=port_up,%20link_up").await;
    assert_eq!(seqs(&kinds), [1001, 1002]);
    let switch = lines("/v1/events?switch=1&since=0").await;
    assert_eq!(seqs(&switch), [1001, 1003]);
    // A number of an earlier process, and a number that no event has had.
    for (path, reason) in [
        ("/v1/events?since=7&kinds=cut", "too old"),
        ("/v1/events?since=1004&kinds=cut", "unknown"),
    ] {
        let reset = lines(path).await;
        assert_eq!(reset.len(), 1, "{reset:?}");
        assert_eq!(
            (&reset[0]["event"], &reset[0]["reason"]),
            (&json!("reset"), &json!(reason))
        );
    }
    for wrong in [
        "since=x",
        "kind=a",
        "kinds=link_up,link_dwn",
        "switch=q",
        "follow=2",
    ] {
        let response = open.get(&format!("/v1/events?{wrong}"), "*/*").await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{wrong}");
    }
}

#[tokio::test]
async fn a_browser_gets_events_and_resumes_by_its_last_number() {
    let open = Open::new().await;
    let sse = "text/event-stream";
    let mut lines = LinesOf::of(open.get("/v1/events", sse).await);
    // The reader is connected once its place is taken. Later events reach the reader.
    open.push("port_up", 0, 0);
    let first = lines.some().await;
    assert_eq!(first[0], "id: 1001");
    assert!(
        first[1].starts_with(r#"data: {"seq":1001,"event":"port_up""#),
        "{first:?}"
    );
    drop(lines);
    open.push("port_up", 1, 0);
    let headers = [("accept", sse), ("last-event-id", "1001")];
    let response = get(open.at, "/v1/events?since=5", &headers).await;
    assert_eq!(response.headers()["content-type"], sse);
    let next = LinesOf::of(response).some().await;
    assert_eq!(next[0], "id: 1002", "{next:?}");
    assert!(next[1].contains("port_up"), "no reset: {next:?}");
    // A reader that was away for too long receives a reset first, and then new events.
    let headers = [("accept", sse), ("last-event-id", "3")];
    let mut late = LinesOf::of(get(open.at, "/v1/events", &headers).await);
    let reset = late.some().await;
    assert!(
        reset[0] == "id: 1002" && reset[1].contains(r#""event":"reset""#),
        "{reset:?}"
    );
    open.push("port_up", 2, 0);
    assert_eq!(late.some().await[0], "id: 1003");
}

/// Reads every event up to the number `to`, and reconnects when the stream is cut. Returns the
/// number of events received, of cuts and of resets.
async fn read_all(at: std::net::SocketAddr, from: u64, to: u64) -> (u64, u32, u32) {
    let (mut seen, mut given, mut cuts, mut resets) = (from, 0, 0, 0);
    while seen < to {
        let path = format!("/v1/events?follow=true&since={seen}");
        let response = get(at, &path, &[]).await;
        if response.status() == StatusCode::SERVICE_UNAVAILABLE {
            // The reader's former place is not free yet.
            sleep(Duration::from_millis(50)).await;
            continue;
        }
        let mut lines = LinesOf::of(response);
        while seen < to {
            let some = lines.some().await;
            if some.is_empty() {
                break;
            }
            for line in some {
                let (_, seq) = line.split_once("\"seq\":").unwrap();
                let seq = seq.split(',').next().unwrap().parse().unwrap();
                if line.contains(r#""event":"reset""#) {
                    (seen, resets) = (seq, resets + 1);
                } else if line.contains(r#""event":"cut""#) {
                    cuts += 1;
                } else {
                    assert_eq!(seq, seen + 1, "the next one");
                    (seen, given) = (seq, given + 1);
                }
            }
        }
    }
    (given, cuts, resets)
}

/// 32 readers at 10,000 events a second, 8 of which never read. No event and no question to the
/// controller's thread waits for them. The kept data is bounded, and the other readers miss
/// nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_never_read_cost_nobody_anything() {
    const EVENTS: u64 = 30_000;
    const DEAF: usize = 8;
    let open = Open::new().await;
    let (from, to) = (1000, 1000 + EVENTS);
    let mut deaf = Vec::new();
    for _ in 0..DEAF {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(open.at).await.unwrap();
        let request = "GET /v1/events?follow=1 HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        deaf.push(stream);
    }
    let places = open.served.reads.streams.clone();
    let begun = Instant::now();
    while places.available_permits() > STREAMS_MAX - DEAF {
        assert!(begun.elapsed() < DEADLINE);
        sleep(Duration::from_millis(5)).await;
    }
    let readers = (DEAF..STREAMS_MAX).map(|_| tokio::spawn(read_all(open.at, from, to)));
    let readers: Vec<_> = readers.collect();
    while places.available_permits() > 0 {
        assert!(begun.elapsed() < DEADLINE);
        sleep(Duration::from_millis(5)).await;
    }
    let refused = open.get("/v1/events?follow=1", "*/*").await;
    assert_eq!(
        refused.status(),
        StatusCode::SERVICE_UNAVAILABLE,
        "the 33rd"
    );
    let with_readers = push_all(&open, EVENTS).await;
    let (_, kept) = open.served.reads.feed.bytes();
    assert!(kept <= crate::feed::ring::BYTES_MAX, "{kept}");
    let mut all = BTreeSet::new();
    for reader in readers {
        let (given, cuts, resets) = timeout(DEADLINE, reader).await.unwrap().unwrap();
        assert!(
            given == EVENTS || resets > 0,
            "{given} events, {cuts} cuts, {resets} resets"
        );
        all.insert((given, cuts, resets));
    }
    // The readers that never read have lost their places and connections.
    while places.available_permits() < STREAMS_MAX {
        assert!(
            begun.elapsed() < DEADLINE,
            "{} free",
            places.available_permits()
        );
        sleep(Duration::from_millis(50)).await;
    }
    drop(deaf);
    say!("events given, cuts and resets of readers: {all:?}");
    let alone = push_all(&open, EVENTS / 3).await;
    say!(
        "the controller's thread answered in ms (p50, p99): {with_readers:?} with readers, \
         {alone:?} without"
    );
}

/// Makes 10,000 events a second, and asks the controller's thread after each hundred. Returns the
/// median and the 99th percentile of its answers, in milliseconds.
async fn push_all(open: &Open, count: u64) -> (f64, f64) {
    let mut tick = interval(Duration::from_millis(10));
    let mut answers = Vec::new();
    for number in 0..count as usize {
        open.push("port_up", number, 500);
        if number % 100 == 99 {
            tick.tick().await;
            let (status, health) = open.served.get("/healthz").await;
            assert_eq!(
                status,
                StatusCode::OK,
                "the controller's thread always answers"
            );
            answers.push(health["answered_ms"].as_f64().unwrap());
        }
    }
    answers.sort_by(f64::total_cmp);
    (
        answers[answers.len() / 2],
        answers[answers.len() * 99 / 100],
    )
}

#[tokio::test]
async fn a_page_is_given_everything_and_then_changes() {
    let open = Open::new().await;
    let views = "/v1/live?views=links,ports,tables,channels";
    let mut lines = LinesOf::of(open.get(views, "text/event-stream").await);
    let first = lines.some().await;
    let document = first[0].strip_prefix("data: ").unwrap();
    let document: Value = serde_json::from_str(document).unwrap();
    assert_eq!(
        (&document["is_snapshot"], &document["is_last"]),
        (&json!(true), &json!(true))
    );
    let wrong = open.get("/v1/live?views=links,cables", "*/*").await;
    assert_eq!(wrong.status(), StatusCode::BAD_REQUEST);
    // The task that makes the rows ends with its last reader.
    let hub = open.served.reads.hub.clone();
    assert!(hub.is_running());
    drop(lines);
    let begun = Instant::now();
    while hub.is_running() {
        assert!(begun.elapsed() < DEADLINE);
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_read_side_of_an_empty_network() {
    let served = Served::new().await;
    let (_, topology) = served.get("/v1/topology").await;
    let expected = json!({"seq": 1000, "is_compared": false, "differences": [], "host_count": 0,
        "rates_age_s": null, "switches": [], "links": [], "missing_links": []});
    assert_eq!(topology, expected);
    let (_, links) = served.get("/v1/links").await;
    assert_eq!(links, json!({"seq": 1000, "links": [], "missing": []}));
    let (_, hosts) = served.get("/v1/hosts?q=02:00&limit=5").await;
    assert_eq!(hosts, json!({"hosts": [], "total": 0, "next": null}));
    let (_, paths) = served.get("/v1/paths?src=10.0.0.1").await;
    assert_eq!(paths, json!({"paths": [], "count": 0, "next": null}));
    for path in ["/v1/hosts/02:00:00:00:00:01", "/v1.0/topology/switches/1"] {
        assert_eq!(served.get(path).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    for path in [
        "/v1.0/topology/switches",
        "/v1.0/topology/links/0000000000000001",
    ] {
        assert_eq!(
            served.get(path).await,
            (StatusCode::OK, json!([])),
            "{path}"
        );
    }
    assert_eq!(served.get("/healthz").await.1["status"], "ok");
    assert_eq!(
        served.get("/readyz").await.0,
        StatusCode::SERVICE_UNAVAILABLE
    );
    served.reads.set_ready();
    assert_eq!(served.get("/readyz").await.1["status"], "ready");
}

#[tokio::test]
async fn a_reload_of_tokens_ends_the_streams() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens");
    let token = tokens::add(&path, "grafana", tokens::Role::Read).unwrap();
    let stated = Stated {
        tokens: Some(path),
        ..Stated::default()
    };
    let access = Arc::new(Access::load(&stated, Clock::start()).unwrap());
    let served = Served::new().await;
    let router = access.clone().guard(served.router.clone());
    for path in ["/v1/events?follow=true", "/v1/live"] {
        let request = Request::get(path).header(header::HOST, "localhost");
        let request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        let request = request.body(HttpBody::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        access.reload_tokens(&stated).unwrap();
        let whole = axum::body::to_bytes(response.into_body(), usize::MAX);
        timeout(DEADLINE, whole).await.unwrap().unwrap();
    }
}
