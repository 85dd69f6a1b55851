//! What a stranger keeps from others who come from elsewhere: handshakes by TLS and by QUIC, and the
//! memory of databases. On loopback, where 127.0.1.0/24 is the stranger's network.

mod common;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::{Leaf, Pki, pair};
use control::relay::{Config, SessionId, Side};
use net::clock::Clock;
use net::databases::Databases;
use net::method::{Host, Method, Protocol};
use net::quic;
use net::tls::{Role, Security};
use net::transport::{Limits, Listener, Refusal};
use net::tunnel::{End, EndConfig, Hub, Scheduling, switch};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(60);

fn port(method: &Method) -> u16 {
    let (Method::Dial(_, Host::V4(_), port) | Method::Listen(_, Host::V4(_), port)) = method else {
        panic!("{method} has no port");
    };
    *port
}

/// A connection of the stranger.
async fn strange(port: u16) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 1, 1], 0).into()).unwrap();
    let to = ([127, 0, 0, 1], port).into();
    socket.connect(to).await.unwrap()
}

async fn few_handshakes(pki: &Pki) -> Listener {
    let limits = Limits {
        handshakes_max: 8,
        ..Limits::default()
    };
    let method = "pssl:0:127.0.0.1".parse().unwrap();
    let listener = Listener::bind(&method, &pki.controller(), limits).await;
    listener.unwrap()
}

/// By handshakes that are refused one by one it would be the last of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_of_one_network_keep_no_other_waiting() {
    const SILENT: usize = 200;
    let pki = Pki::new();
    let mut listener = few_handshakes(&pki).await;
    let port = port(listener.local());
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        silent.push(strange(port).await);
    }
    let refusals = listener.refusals().clone();
    let security = pki.switch();
    let in_time = timeout(PATIENCE, pair(&mut listener, &security)).await;
    let _connection = in_time.expect("it is served");
    let refused = refusals.get(Refusal::Timeout);
    assert!(
        refused < SILENT as u64 / 2,
        "it waited for {refused} of them"
    );
}

/// They have cost a handshake, and are awaited: each has a turn, for three seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_that_stop_half_way_keep_no_other_network_waiting() {
    const HALF: usize = 40;
    let pki = Pki::new();
    let mut listener = few_handshakes(&pki).await;
    let refusals = listener.refusals().clone();
    let config = Arc::new(pki.switch().client_config(&[]).unwrap());
    let mut half = Vec::new();
    for _ in 0..HALF {
        let mut stream = strange(port(listener.local())).await;
        let name = "localhost".try_into().unwrap();
        let mut hello = rustls::ClientConnection::new(config.clone(), name).unwrap();
        let mut flight = Vec::new();
        hello.write_tls(&mut flight).unwrap();
        stream.write_all(&flight).await.unwrap();
        half.push(stream);
    }
    let security = pki.switch();
    let in_time = timeout(PATIENCE, pair(&mut listener, &security)).await;
    let _connection = in_time.expect("it is served");
    let refused = refusals.get(Refusal::Timeout);
    assert!(refused < HALF as u64 / 2, "it waited for {refused} of them");
}

/// Between a stranger's handshakes and the relay: what tells one that its address is its own passes,
/// and no other answer does, so that none of them is ever done and each is said again.
async fn answers_are_lost(to: SocketAddr) -> SocketAddr {
    let front = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let at = front.local_addr().unwrap();
    tokio::spawn(async move {
        let mut backs: BTreeMap<SocketAddr, Arc<UdpSocket>> = BTreeMap::new();
        let mut datagram = vec![0; 65_536];
        loop {
            let (len, from) = front.recv_from(&mut datagram).await.unwrap();
            if let Entry::Vacant(place) = backs.entry(from) {
                let back = Arc::new(UdpSocket::bind("127.0.1.1:0").await.unwrap());
                place.insert(back.clone());
                let front = front.clone();
                tokio::spawn(async move {
                    let mut datagram = vec![0; 65_536];
                    loop {
                        let (len, _) = back.recv_from(&mut datagram).await.unwrap();
                        let is_retry = datagram[0] & 0xf0 == 0xf0;
                        if is_retry {
                            let _ = front.send_to(&datagram[..len], from).await;
                        }
                    }
                });
            }
            let _ = backs[&from].send_to(&datagram[..len], to).await;
        }
    });
    at
}

/// Each has proved its address, and its first flight is said again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replayed_quic_handshakes_of_one_network_keep_no_other_waiting() {
    const REPLAYED: u64 = 300;
    let pki = Pki::new();
    let config = |side| EndConfig {
        session: Config::new(side),
        targets: BTreeMap::new(),
        target_security: Security::plain(),
        scheduling: Scheduling::default(),
    };
    let any: Method = "pquic:0:127.0.0.1".parse().unwrap();
    let hub = Hub::bind(&any, &pki.controller(), config(Side::Controller), vec![]).await;
    let hub = hub.unwrap();
    let mut tasks = JoinSet::new();
    let runs = hub.clone();
    tasks.spawn(async move { runs.run().await });
    let to: SocketAddr = ([127, 0, 0, 1], port(hub.local())).into();
    let lossy = answers_are_lost(to).await;
    let client = quic::client_config(&pki.switch(), &[quic::ALPN_RELAY]).unwrap();
    let mut strangers = Vec::new();
    for _ in 0..REPLAYED {
        let endpoint = quic::endpoint(([127, 0, 0, 1], 0).into(), None).unwrap();
        let connecting = endpoint.connect_with(client.clone(), lossy, "localhost");
        strangers.push((endpoint, connecting.unwrap()));
    }
    // There are more than have turns, and they have been told so.
    let crowded = async {
        while hub.turns().told_to_wait < REPLAYED / 2 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, crowded).await.expect("they come");
    let turns = |hub: &Hub| hub.turns().begun + hub.turns().too_late + hub.turns().crowded;
    let before = turns(&hub);
    let credentials = pki.credentials("s1", &Leaf::of(Role::Switch));
    let security = Security::new(credentials).expecting(Role::Controller);
    let relay: Method = format!("quic:{to}").parse().unwrap();
    let end = End::new(config(Side::Switch), SessionId([1; 16]), "controller");
    let dials = end.clone();
    tasks.spawn(async move { panic!("{}", switch(&dials, &[relay], &security).await) });
    timeout(PATIENCE, end.fresh()).await.expect("it is served");
    let passed = turns(&hub) - before;
    assert!(
        passed < REPLAYED / 4,
        "{passed} others had their turn before it"
    );
}

/// Of this process, in MiB.
fn memory() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    (pages * 4096) >> 20
}

/// Answers what it is asked before its rows, and then says `rows`.
async fn database(port: u16, rows: Arc<str>) {
    let mut stream = strange(port).await;
    let (mut input, mut buf) = (String::new(), vec![0; 1 << 16]);
    loop {
        let Ok(len) = stream.read(&mut buf).await else {
            return;
        };
        input.push_str(std::str::from_utf8(&buf[..len]).unwrap());
        let schema = schema();
        let (id, result): (u8, &str) = if input.contains("get_schema") {
            (0, &schema)
        } else if input.contains("monitor_cond") {
            (1, &rows)
        } else if len == 0 {
            return;
        } else {
            continue;
        };
        input.clear();
        let head = format!(r#"{{"id":{id},"error":null,"result":"#);
        for part in [&head, result, "}"] {
            if stream.write_all(part.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

/// One table that everything may be said of.
fn schema() -> String {
    let columns =
        r#"{"name":{"type":"string"},"ports":{"type":{"key":"string","min":0,"max":"unlimited"}}}"#;
    format!(
        r#"{{"name":"Open_vSwitch","version":"1","tables":{{"Bridge":{{"columns":{columns}}}}}}}"#
    )
}

/// 64 connections of one address with 60 MiB each, in five shapes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn databases_of_one_address_take_no_more_than_one_network_may() {
    const CONNECTIONS: usize = 64;
    const BYTES: usize = 60 << 20;
    const MIB_MAX: usize = 128;
    let method = Method::parse("ptcp:0:127.0.0.1", Protocol::Ovsdb).unwrap();
    let databases = Databases::start(&[method], &Security::plain(), Clock::start(), 1).await;
    let databases = databases.unwrap();
    let port = port(&databases.listening()[0].0);
    let empty: Arc<str> = format!("[0{}]", ",[]".repeat(BYTES / 3)).into();
    let row = |n: usize| format!(r#""{}":{{"initial":{{}}}}"#, uuid(n));
    let many: Vec<String> = (0..BYTES / 60).map(row).collect();
    let many: Arc<str> = format!(r#"{{"Bridge":{{{}}}}}"#, many.join(",")).into();
    let text = "x".repeat(BYTES);
    let long = format!(
        r#"{{"Bridge":{{"{}":{{"initial":{{"name":"{text}"}}}}}}}}"#,
        uuid(0)
    );
    let long: Arc<str> = long.into();
    drop(text);
    let most = std::sync::Mutex::new(BTreeMap::new());
    let before = memory();
    let note = |shape: &'static str| {
        let mut most = most.lock().unwrap();
        let now = memory().saturating_sub(before);
        let peak = most.entry(shape).or_insert(0);
        *peak = now.max(*peak);
    };
    // At once, as nobody has asked: brackets, and a text that never ends.
    let plain: [(&'static str, Arc<str>); 2] = [
        ("brackets at once", empty.clone()),
        ("a text at once", long.clone()),
    ];
    for (shape, bytes) in plain {
        let mut sent = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let bytes = bytes.clone();
            sent.spawn(async move {
                let mut stream = strange(port).await;
                let _ = stream
                    .write_all(br#"{"id":null,"method":"a","params":"#)
                    .await;
                let _ = stream.write_all(bytes.as_bytes()).await;
                sleep(Duration::from_millis(200)).await;
            });
        }
        drain(&mut sent, || note(shape)).await;
    }
    // As an answer.
    let rows: [(&'static str, Arc<str>); 3] =
        [("brackets", empty), ("many rows", many), ("a text", long)];
    for (shape, rows) in rows {
        let mut sent = JoinSet::new();
        for _ in 0..CONNECTIONS {
            sent.spawn(database(port, rows.clone()));
        }
        drain(&mut sent, || note(shape)).await;
    }
    println!("MiB more: {:?}", most.lock().unwrap());
    for (shape, peak) in most.into_inner().unwrap() {
        // The strangers' own halves and the other tests of this process are in it, too. Without a
        // bound one connection takes 1.5 GiB.
        assert!(peak <= 2 * MIB_MAX, "{shape}: {peak} MiB more");
    }
}

async fn drain(tasks: &mut JoinSet<()>, mut look: impl FnMut()) {
    let end = tokio::time::Instant::now() + Duration::from_secs(12);
    loop {
        look();
        tokio::select! {
            done = tasks.join_next() => if done.is_none() { return },
            () = sleep(Duration::from_millis(5)) => {}
        }
        if tokio::time::Instant::now() > end {
            tasks.shutdown().await;
        }
    }
}

fn uuid(n: usize) -> String {
    format!("00000000-0000-0000-0000-{n:012x}")
}
