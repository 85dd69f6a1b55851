//! Two relays over loopback QUIC between scripted switches and controllers.

#[path = "../../net/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use common::{Leaf, Pki};
use net::Pace;
use net::method::Method;
use net::tls::{Role, Security};
use net::transport::{Limits, Listener, TransportKind};
use openflow::{Frame, MessageKind};
use relay::{Config, Kind, PerKind, RivalCounters, SessionId, Side};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tunnel::{End, EndConfig, Hub, OPENFLOW, OVSDB, Scheduling, Target, switch};

const WINDOW_BYTES: usize = 1 << 20;

/// A relay pair. Its tasks end with it.
struct Pair {
    pki: Pki,
    hub: Arc<Hub>,
    path: Arc<Path>,
    /// TCP at the path's port towards the switch's relay. It refuses connections until it listens.
    tcp: Option<TcpSocket>,
    end: Arc<End>,
    /// The port that the scripted switch connects to.
    openflow: u16,
    controller: TcpListener,
    database: TcpListener,
    hub_task: JoinSet<()>,
    _tasks: JoinSet<()>,
}

fn config(side: Side, targets: &[(&str, Method)], scheduling: Scheduling) -> EndConfig {
    let target = |(name, method): &(&str, Method)| ((*name).into(), Target::Dial(method.clone()));
    EndConfig {
        session: Config {
            window_bytes: WINDOW_BYTES,
            ..Config::new(side)
        },
        targets: targets.iter().map(target).collect::<BTreeMap<_, _>>(),
        target_security: Security::plain(),
        scheduling,
    }
}

async fn listen_tcp() -> (TcpListener, Method) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, format!("tcp:127.0.0.1:{port}").parse().unwrap())
}

async fn listen(method: &str) -> Listener {
    Listener::bind(
        &method.parse().unwrap(),
        &Security::plain(),
        Limits::default(),
    )
    .await
    .unwrap()
}

async fn start_hub(
    pki: &Pki,
    method: &Method,
    openflow: &Method,
    scheduling: Scheduling,
    copied: PerKind<bool>,
) -> (Arc<Hub>, JoinSet<()>) {
    let socket = format!("punix:{}/{{name}}.sock", pki.dir.path().display());
    let targets = [(OPENFLOW, openflow.clone())];
    let mut config = config(Side::Controller, &targets, scheduling);
    config.session.copied = copied;
    let listen_each = vec![(OVSDB.into(), socket.parse().unwrap())];
    let hub = Hub::bind(method, &pki.controller(), config, listen_each)
        .await
        .unwrap();
    let mut tasks = JoinSet::new();
    let runs = hub.clone();
    tasks.spawn(async move { runs.run().await });
    (hub, tasks)
}

impl Pair {
    async fn new() -> Pair {
        Pair::scheduled(Scheduling::default()).await
    }

    async fn scheduled(scheduling: Scheduling) -> Pair {
        Pair::of(scheduling, PerKind::default()).await
    }

    async fn of(scheduling: Scheduling, copied: PerKind<bool>) -> Pair {
        Pair::certified(&Leaf::of(Role::Switch), scheduling, copied).await
    }

    /// The switch's relay has a certificate made with `leaf`.
    async fn certified(leaf: &Leaf, scheduling: Scheduling, copied: PerKind<bool>) -> Pair {
        let pki = Pki::new();
        let (controller, controller_at) = listen_tcp().await;
        let (database, database_at) = listen_tcp().await;
        let any: Method = "pquic:0:127.0.0.1".parse().unwrap();
        let (hub, hub_task) =
            start_hub(&pki, &any, &controller_at, scheduling.clone(), copied).await;
        let (path, front, tcp) = Path::new(port(hub.local())).await;
        let relay = format!("quic:127.0.0.1:{front}").parse().unwrap();

        let mut sides = config(Side::Switch, &[(OVSDB, database_at)], scheduling);
        sides.session.copied = copied;
        let end = End::new(sides, SessionId([7; 16]), "controller");
        let mut tasks = JoinSet::new();
        let security = Security::new(pki.credentials("sc", leaf)).expecting(Role::Controller);
        let dials = end.clone();
        tasks.spawn(async move { panic!("{}", switch(&dials, &[relay], &security).await) });
        let mut listener = listen("ptcp:0:127.0.0.1").await;
        let openflow = port(listener.local());
        let adopts = end.clone();
        tasks.spawn(async move {
            loop {
                let connection = listener.accept().await;
                adopts.adopt(OPENFLOW, connection);
            }
        });
        Pair {
            pki,
            hub,
            path,
            tcp: Some(tcp),
            end,
            openflow,
            controller,
            database,
            hub_task,
            _tasks: tasks,
        }
    }

    /// An OpenFlow connection through both relays: the switch's end and the controller's.
    async fn connect(&self) -> (TcpStream, TcpStream) {
        let switch = TcpStream::connect(("127.0.0.1", self.openflow))
            .await
            .unwrap();
        let accepted = timeout(Duration::from_secs(10), self.controller.accept()).await;
        (
            switch,
            accepted.expect("the controller is dialled").unwrap().0,
        )
    }

    /// The socket that listens for OVSDB on behalf of the one switch.
    fn socket(&self) -> std::path::PathBuf {
        let name = &self.hub.status()[0].peer;
        self.pki.path(&format!("{name}.sock"))
    }

    /// Ends the controller's relay without notice, and starts another at its address.
    async fn restart_hub(&mut self) {
        let controller = self.controller.local_addr().unwrap();
        let controller = format!("tcp:{controller}").parse().unwrap();
        let any: Method = "pquic:0:127.0.0.1".parse().unwrap();
        std::fs::remove_file(self.socket()).unwrap();
        let scheduling = Scheduling::default();
        let copied = PerKind::default();
        let (hub, task) = start_hub(&self.pki, &any, &controller, scheduling, copied).await;
        self.path.lead_to(port(hub.local()));
        (self.hub, self.hub_task) = (hub, task);
    }
}

fn port(method: &Method) -> u16 {
    let (Method::Dial(_, _, port) | Method::Listen(_, _, port)) = method else {
        panic!("{method} has no port");
    };
    *port
}

/// The network between the relays: loopback UDP that can be cut or led elsewhere.
struct Path {
    target: Mutex<Option<SocketAddr>>,
    /// The number of the address that a client has behind the path; like a translator's, it
    /// changes.
    address: AtomicU64,
    /// One datagram in this many towards the target is lost; 0 loses none.
    loses_one_in: AtomicU64,
}

impl Path {
    async fn new(port: u16) -> (Arc<Path>, u16, TcpSocket) {
        let path = Arc::new(Path {
            target: Mutex::default(),
            address: AtomicU64::default(),
            loses_one_in: AtomicU64::default(),
        });
        path.lead_to(port);
        // Other tests use ports of this machine too: one that is free for UDP may not be for TCP.
        let (front, tcp) = loop {
            let front = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let tcp = TcpSocket::new_v4().unwrap();
            if tcp.bind(front.local_addr().unwrap()).is_ok() {
                break (Arc::new(front), tcp);
            }
        };
        let port = front.local_addr().unwrap().port();
        let carries = path.clone();
        // Ends with the test's runtime.
        tokio::spawn(async move { carries.carry(front).await });
        (path, port, tcp)
    }

    fn lead_to(&self, port: u16) {
        *self.target.lock().unwrap() = Some(([127, 0, 0, 1], port).into());
    }

    /// Cuts the path: nothing passes any more.
    fn cut(&self) -> Option<SocketAddr> {
        self.target.lock().unwrap().take()
    }

    async fn carry(self: Arc<Self>, front: Arc<UdpSocket>) {
        let mut backs: BTreeMap<(SocketAddr, u64), Arc<UdpSocket>> = BTreeMap::new();
        let mut datagram = vec![0; 65_536];
        for number in 1.. {
            let (len, client) = front.recv_from(&mut datagram).await.unwrap();
            let one_in = self.loses_one_in.load(Ordering::Relaxed);
            if one_in > 0 && number % one_in == 0 {
                continue;
            }
            let key = (client, self.address.load(Ordering::Relaxed));
            if let Entry::Vacant(vacant) = backs.entry(key) {
                let back = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
                vacant.insert(back.clone());
                let (path, front) = (self.clone(), front.clone());
                tokio::spawn(async move {
                    let mut datagram = vec![0; 65_536];
                    loop {
                        let (len, from) = back.recv_from(&mut datagram).await.unwrap();
                        if *path.target.lock().unwrap() == Some(from) {
                            let _ = front.send_to(&datagram[..len], client).await;
                        }
                    }
                });
            }
            let target = *self.target.lock().unwrap();
            if let Some(target) = target {
                let _ = backs[&key].send_to(&datagram[..len], target).await;
            }
        }
    }
}

fn message(version: u8, type_byte: u8, xid: u32, len: usize) -> Bytes {
    let mut bytes = vec![xid as u8; len];
    bytes[..4].copy_from_slice(&[version, type_byte, (len >> 8) as u8, len as u8]);
    bytes[4..8].copy_from_slice(&xid.to_be_bytes());
    bytes.into()
}

/// Every type byte of a version and some that it does not have, the HELLO first.
fn one_of_each(version: u8) -> Vec<Bytes> {
    (0..=60u32)
        .map(|n| message(version, n as u8, n, 8 + 100 * n as usize))
        .collect()
}

async fn read_frames(stream: &mut TcpStream, count: usize) -> Vec<Frame> {
    let mut buf = BytesMut::new();
    let mut frames = Vec::new();
    while frames.len() < count {
        let read = timeout(Duration::from_secs(20), stream.read_buf(&mut buf)).await;
        assert_ne!(
            read.expect("messages come").unwrap(),
            0,
            "after {} frames",
            frames.len()
        );
        while let Some(frame) = Frame::split_from(&mut buf).unwrap() {
            frames.push(frame);
        }
    }
    assert!(buf.is_empty(), "and nothing more");
    frames
}

fn assert_same(mut got: Vec<Frame>, sent: &[Bytes]) {
    got.sort_by_key(|frame| frame.xid());
    assert_eq!(got.len(), sent.len());
    for (got, sent) in got.iter().zip(sent) {
        assert_eq!(got.bytes(), sent, "{got:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_version_and_type_passes_byte_for_byte_both_ways() {
    let pair = Pair::new().await;
    let mut open = Vec::new();
    for version in [1, 4, 5, 6, 0x99] {
        let (mut switch, mut controller) = pair.connect().await;
        let sent = one_of_each(version);
        switch.write_all(&sent.concat()).await.unwrap();
        controller.write_all(&sent.concat()).await.unwrap();
        let (up, down) = tokio::join!(
            read_frames(&mut controller, sent.len()),
            read_frames(&mut switch, sent.len()),
        );
        assert_eq!((up[0].xid().0, down[0].xid().0), (0, 0), "hello first");
        assert_same(up, &sent);
        assert_same(down, &sent);
        open.push((switch, controller));
    }
    let ours = pair.end.status();
    let theirs = pair.hub.status().remove(0);
    assert_eq!(ours.channels.len(), 5);
    for (ours, theirs) in ours.channels.iter().zip(&theirs.channels) {
        assert_eq!(ours.taken.digest(), theirs.given.digest());
        assert_eq!(ours.given.digest(), theirs.taken.digest());
        assert_eq!((ours.taken.messages, ours.given.messages), (61, 61));
    }
}

/// A map that marks, over small windows with a floor below them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scheduled_messages_pass_byte_for_byte_and_are_counted_by_rule() {
    let text = "Rule #1: traffic_type=1, action=dscp:CS6
Rule #2: traffic_type=2, action=dscp:CS5
Rule #3: traffic_type=3, action=dscp:CS4
";
    let pair = Pair::scheduled(Scheduling {
        policy: Some(Arc::new(sched::PolicyMap::parse(text).unwrap().0)),
        guaranteed_bytes: Some(1_250_000),
        ..Scheduling::default()
    })
    .await;
    let (mut switch, mut controller) = pair.connect().await;
    let sent: Vec<Bytes> = (0..3000)
        .map(|n| {
            // No packet-ins: a burst of them may be shed.
            let kind = [2, 14, 18, 12, 11, 13, 20][n as usize % 7];
            message(4, if n == 0 { 0 } else { kind }, n, 60 + n as usize % 400)
        })
        .collect();
    let all = sent.concat();
    let (up, written) = tokio::join!(
        read_frames(&mut controller, sent.len()),
        switch.write_all(&all),
    );
    written.unwrap();
    assert_same(up, &sent);
    controller.write_all(&all).await.unwrap();
    assert_same(read_frames(&mut switch, sent.len()).await, &sent);
    let ours = pair.end.status();
    let theirs = pair.hub.status().remove(0);
    for (one, other) in [(&ours, &theirs), (&theirs, &ours)] {
        assert_eq!(
            one.channels[0].taken.digest(),
            other.channels[0].given.digest()
        );
        let line = one.line.as_ref().unwrap();
        let hits: u64 = line.rules.iter().map(|(_, hits)| hits).sum();
        assert_eq!(hits + line.default_hits, 3000);
    }
}

/// At 2 Mbit/s a backlog of 600 takes some 0.6 s, and is less than a queue holds. An echo request
/// that comes once the relay has taken all of it overtakes most of it. The backlog is of
/// FLOW_REMOVED messages: on a busy machine PACKET_INs wait for a second, and are dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_keeps_the_backlog_in_the_queues_and_not_below_them() {
    const BACKLOG: u32 = 600;
    let text = "Rule #1: traffic_type=1, action=queue_id:0
Default: action=queue_id:1
Scheduler: algo=strict
";
    let pair = Pair::scheduled(Scheduling {
        policy: Some(Arc::new(sched::PolicyMap::parse(text).unwrap().0)),
        pace: Some(Arc::new(Pace::new(250_000))),
        ..Scheduling::default()
    })
    .await;
    let (mut switch, mut controller) = pair.connect().await;
    switch.write_all(&message(4, 0, 0, 8)).await.unwrap();
    read_frames(&mut controller, 1).await;
    let backlog: Vec<Bytes> = (1..=BACKLOG).map(|n| message(4, 11, n, 200)).collect();
    switch.write_all(&backlog.concat()).await.unwrap();
    while pair.end.status().line.unwrap().default_hits < u64::from(BACKLOG) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let echo = message(4, 2, BACKLOG + 1, 8);
    switch.write_all(&echo).await.unwrap();
    let got = read_frames(&mut controller, BACKLOG as usize + 1).await;
    let before = got.iter().position(|frame| frame.bytes() == &echo);
    let before = before.expect("the echo arrives");
    // Without a rate, all of the backlog is before it.
    assert!(before < 300, "{before} of {BACKLOG} were before it");
    let packets = got.iter().filter(|frame| frame.bytes() != &echo);
    let order: Vec<u32> = packets.map(|frame| frame.xid().0).collect();
    assert!(order.into_iter().eq(1..=BACKLOG), "each once, in order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_of_50_000_flows_and_ten_megabytes_of_ovsdb_pass_whole() {
    let pair = Pair::new().await;
    let (mut switch, mut controller) = pair.connect().await;
    // 682 entries of 96 bytes fit one message: 74 messages.
    let mut sent = vec![message(4, 0, 0, 8)];
    sent.extend((1..=74).map(|n| message(4, 19, n, 16 + 682 * 96)));
    let raw: Vec<u8> = (0..10_000_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();

    let flows = sent.clone();
    let writes = async move {
        switch.write_all(&flows.concat()).await.unwrap();
        switch
    };
    let socket = pair.socket();
    let database = async {
        let manager = async {
            let mut manager = tokio::net::UnixStream::connect(&socket).await.unwrap();
            manager.write_all(b"transact").await.unwrap();
            manager.shutdown().await.unwrap();
            let mut answer = Vec::new();
            manager.read_to_end(&mut answer).await.unwrap();
            answer
        };
        let server = async {
            let (mut server, _) = pair.database.accept().await.unwrap();
            let mut request = Vec::new();
            server.read_to_end(&mut request).await.unwrap();
            assert_eq!(
                request, b"transact",
                "a half-closed question arrives with its end"
            );
            server.write_all(&raw).await.unwrap();
        };
        tokio::join!(manager, server).0
    };
    let all = async { tokio::join!(writes, read_frames(&mut controller, sent.len()), database) };
    let (_switch, got, answer) = timeout(Duration::from_secs(30), all).await.unwrap();
    let order: Vec<u32> = got.iter().map(|frame| frame.xid().0).collect();
    assert!(order.is_sorted(), "parts of one reply stay in order");
    assert_same(got, &sent);
    assert_eq!(answer.len(), raw.len());
    assert!(answer == raw);
}

/// The connection between the relays is closed 9 times and its path dead for 1.5 s while 20,000
/// messages pass each way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_path_loses_and_doubles_nothing() {
    let pair = Pair::new().await;
    let (mut switch, mut controller) = pair.connect().await;
    let up: Vec<Bytes> = (0..20_000)
        .map(|n| {
            message(
                4,
                if n == 0 {
                    0
                } else {
                    [10, 12, 11, 21][n as usize % 4]
                },
                n,
                60 + n as usize % 200,
            )
        })
        .collect();
    let down: Vec<Bytes> = (0..20_000)
        .map(|n| {
            message(
                4,
                if n == 0 {
                    0
                } else {
                    [14, 13, 18, 20, 2][n as usize % 5]
                },
                n,
                60,
            )
        })
        .collect();
    let (up_bytes, down_bytes) = (up.concat(), down.concat());
    let (mut switch_read, mut switch_write) = switch.split();
    let (mut controller_read, mut controller_write) = controller.split();
    let breaks = async {
        for _ in 0..9 {
            sleep(Duration::from_millis(60)).await;
            while !pair.end.status().is_up {
                sleep(Duration::from_millis(5)).await;
            }
            pair.end.break_link();
        }
        let target = pair.path.cut().unwrap();
        sleep(Duration::from_millis(1500)).await;
        pair.path.lead_to(target.port());
    };
    let slowly = async |writer: &mut tokio::net::tcp::WriteHalf<'_>, bytes: &[u8]| {
        for part in bytes.chunks(20_000) {
            writer.write_all(part).await.unwrap();
            sleep(Duration::from_millis(5)).await;
        }
    };
    let whole = async |reader: &mut tokio::net::tcp::ReadHalf<'_>, len: usize| {
        let mut got = vec![0; len];
        timeout(Duration::from_secs(30), reader.read_exact(&mut got))
            .await
            .unwrap()
            .unwrap();
        let mut got = BytesMut::from(&got[..]);
        let mut frames = Vec::new();
        while let Some(frame) = Frame::split_from(&mut got).unwrap() {
            frames.push(frame);
        }
        frames
    };
    let (_, _, _, got_up, got_down) = tokio::join!(
        breaks,
        slowly(&mut switch_write, &up_bytes),
        slowly(&mut controller_write, &down_bytes),
        whole(&mut controller_read, up_bytes.len()),
        whole(&mut switch_read, down_bytes.len()),
    );
    let state = |frames: &[Frame], kinds: &[MessageKind]| {
        let of_kind = |frame: &&Frame| kinds.contains(&frame.kind());
        frames
            .iter()
            .filter(of_kind)
            .map(|frame| frame.xid().0)
            .collect::<Vec<_>>()
    };
    use MessageKind::*;
    assert!(state(&got_up, &[PortStatus, FlowRemoved, BarrierReply]).is_sorted());
    assert!(state(&got_down, &[FlowMod, BarrierRequest, MultipartRequest]).is_sorted());
    assert_same(got_up, &up);
    assert_same(got_down, &down);
    let status = pair.end.status();
    assert!(
        status.resumptions >= 9,
        "{} resumptions",
        status.resumptions
    );
    assert_eq!(status.closed, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_stops_is_waited_for_within_the_window() {
    let pair = Pair::new().await;
    let (mut switch, mut controller) = pair.connect().await;
    let sent: Vec<Bytes> = (0..300)
        .map(|n| message(4, if n == 0 { 0 } else { 10 }, n, 60_000))
        .collect();
    let bytes = sent.concat();
    let writes = tokio::spawn(async move {
        switch.write_all(&bytes).await.unwrap();
        switch
    });
    sleep(Duration::from_millis(700)).await;
    assert!(!writes.is_finished(), "18 MB do not fit anywhere");
    let (kept, held) = (pair.end.status(), pair.hub.status().remove(0));
    assert!(kept.channels[0].kept_bytes < WINDOW_BYTES + 128 * 1024);
    assert!(
        kept.channels[0].kept_bytes >= WINDOW_BYTES,
        "the window is the bound that held"
    );
    assert!(held.channels[0].held_bytes <= kept.channels[0].kept_bytes);
    assert_same(read_frames(&mut controller, sent.len()).await, &sent);
    writes.await.unwrap();
}

/// The controller's relay dies, as an operator sees it: the switch's connection is closed, since
/// its session is lost, and the next one works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_controller_relay_closes_old_channels_and_carries_new_ones() {
    let mut pair = Pair::new().await;
    let (mut switch, mut controller) = pair.connect().await;
    switch.write_all(&message(4, 0, 0, 8)).await.unwrap();
    read_frames(&mut controller, 1).await;
    pair.restart_hub().await;
    let mut rest = [0; 1];
    let closed = timeout(Duration::from_secs(120), switch.read(&mut rest)).await;
    assert!(matches!(closed.expect("in time"), Ok(0) | Err(_)));
    let (mut switch, mut controller) = pair.connect().await;
    switch.write_all(&message(4, 0, 0, 8)).await.unwrap();
    read_frames(&mut controller, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_end_of_openflow_closing_closes_the_other() {
    let pair = Pair::new().await;
    for closer in 0..2 {
        let (switch, controller) = pair.connect().await;
        let (closes, mut waits) = if closer == 0 {
            (switch, controller)
        } else {
            (controller, switch)
        };
        let mut closes = closes;
        closes.write_all(&message(4, 0, 0, 8)).await.unwrap();
        drop(closes);
        let mut got = Vec::new();
        timeout(Duration::from_secs(120), waits.read_to_end(&mut got))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            got,
            message(4, 0, 0, 8),
            "what was sent before the end arrives before it"
        );
    }
    for _ in 0..3000 {
        if pair.end.status().closed == 2 && pair.hub.status()[0].closed == 2 {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("channels are freed: {:?}", pair.end.status());
}

/// A stolen switch key must open no switch: either end refuses a certificate that gives its owner
/// the wrong role.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_the_wrong_role_is_refused_at_both_ends() {
    let pair = Pair::new().await;
    let dial = |hub: &Hub| -> Method {
        format!("quic:127.0.0.1:{}", port(hub.local()))
            .parse()
            .unwrap()
    };
    let relay = dial(&pair.hub);
    let controllers = Leaf::of(Role::Controller);
    let as_switch =
        Security::new(pair.pki.credentials("other", &controllers)).expecting(Role::Controller);
    let end = End::new(
        config(Side::Switch, &[], Scheduling::default()),
        SessionId([9; 16]),
        "controller",
    );
    let tries = timeout(
        Duration::from_secs(1),
        switch(&end, std::slice::from_ref(&relay), &as_switch),
    )
    .await;
    assert!(tries.is_err(), "it goes on trying");
    assert!(!end.status().is_up);

    let stolen = Security::new(pair.pki.credentials("stolen", &Leaf::of(Role::Switch)));
    let any: Method = "pquic:0:127.0.0.1".parse().unwrap();
    let fake = Hub::bind(
        &any,
        &stolen,
        config(Side::Controller, &[], Scheduling::default()),
        vec![],
    )
    .await
    .unwrap();
    let relay = dial(&fake);
    let mut tasks = JoinSet::new();
    let runs = fake.clone();
    tasks.spawn(async move { runs.run().await });
    let security = pair.pki.switch();
    let _ = timeout(Duration::from_secs(1), switch(&end, &[relay], &security)).await;
    assert!(!end.status().is_up);
    assert!(fake.status().is_empty(), "no session for it either");
}

/// Sends message number `n` of `kind` every 5 ms, from one side to the other.
async fn trickle(from: &mut TcpStream, kind: u8, numbers: std::ops::Range<u32>) -> Vec<Bytes> {
    let mut sent = Vec::new();
    for n in numbers {
        let message = message(4, if n == 0 { 0 } else { kind }, n, 100);
        from.write_all(&message).await.unwrap();
        sent.push(message);
        sleep(Duration::from_millis(5)).await;
    }
    sent
}

/// A translator on the path gives the switch's relay another address twice: neither the connection
/// nor a message is lost. The path's packets name the relay's connection id; the dialler's own id
/// has no byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_switchs_address_may_change_under_a_connection() {
    let pair = Pair::new().await;
    let (mut switch, mut controller) = pair.connect().await;
    for round in 0..3 {
        pair.path.address.store(round, Ordering::Relaxed);
        let numbers = round as u32 * 40..(round as u32 + 1) * 40;
        let up = trickle(&mut switch, 10, numbers.clone()).await;
        assert_same(read_frames(&mut controller, up.len()).await, &up);
        let down = trickle(&mut controller, 13, numbers).await;
        assert_same(read_frames(&mut switch, down.len()).await, &down);
    }
    // A new dial would also get through, and that is not what is tested.
    let status = pair.end.status();
    assert_eq!((status.reconnects, status.closed), (0, 0));
}

/// One socket at the controllers' end distinguishes relays by four bytes each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_relays_share_the_socket_of_one() {
    const RELAYS: usize = 24;
    let pair = Pair::new().await;
    let to: Method = format!("quic:127.0.0.1:{}", port(pair.hub.local()))
        .parse()
        .unwrap();
    let mut tasks = JoinSet::new();
    let mut ends = Vec::new();
    for n in 0..RELAYS {
        let credentials = pair
            .pki
            .credentials(&format!("s{n}"), &Leaf::of(Role::Switch));
        let security = Security::new(credentials).expecting(Role::Controller);
        let sides = config(Side::Switch, &[], Scheduling::default());
        let end = End::new(sides, SessionId([n as u8 + 100; 16]), "controller");
        let (dials, to) = (end.clone(), to.clone());
        tasks.spawn(async move { panic!("{}", switch(&dials, &[to], &security).await) });
        ends.push(end);
    }
    for (n, end) in ends.iter().enumerate() {
        let (ours, theirs) = net::transport::memory(4096);
        end.adopt(OPENFLOW, theirs);
        let accepted = timeout(Duration::from_secs(20), pair.controller.accept()).await;
        let mut controller = accepted.expect("the controller is dialled").unwrap().0;
        let mut ours = ours;
        let hello = message(4, 0, n as u32, 60);
        ours.writer.write_all(&hello).await.unwrap();
        assert_same(read_frames(&mut controller, 1).await, &[hello]);
        // Stays open beside those to come.
        tasks.spawn(async move {
            let _kept = (ours, controller);
            std::future::pending().await
        });
    }
    for end in &ends {
        // On a busy machine a connection may have been given up, and its session resumed.
        assert_eq!(end.status().closed, 0);
    }
}

/// More relays dial at once than may shake hands at a time: the others get a Retry, and wait. No
/// handshake begins in vain, and nobody falls back to TLS.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stampede_is_served_in_turn() {
    const RELAYS: usize = 200;
    let pair = Pair::new().await;
    let (_switch, _controller) = pair.connect().await;
    let to: Method = format!("quic:127.0.0.1:{}", port(pair.hub.local()))
        .parse()
        .unwrap();
    let mut tasks = JoinSet::new();
    let mut ends = vec![pair.end.clone()];
    for n in 0..RELAYS {
        let leaf = Leaf::of(Role::Switch);
        let credentials = pair.pki.credentials(&format!("s{n}"), &leaf);
        let security = Security::new(credentials).expecting(Role::Controller);
        let sides = config(Side::Switch, &[], Scheduling::default());
        let mut id = [1; 16];
        id[0] = n as u8;
        let end = End::new(sides, SessionId(id), "controller");
        ends.push(end.clone());
        let to = to.clone();
        tasks.spawn(async move { panic!("{}", switch(&end, &[to], &security).await) });
    }
    for end in &ends {
        timeout(Duration::from_secs(60), end.fresh())
            .await
            .expect("it is served");
        assert_eq!(end.status().transport, Some(TransportKind::Quic));
    }
    let connects: u64 = ends.iter().map(|end| end.status().reconnects + 1).sum();
    let turns = pair.hub.turns();
    assert_eq!((turns.begun, turns.too_late), (connects, 0), "{turns:?}");
}

/// A relay that answers and gets no further is not dialled by TLS instead: that would cost it more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_anything_comes_back_by_udp_tls_is_not_tried() {
    let front = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let at = front.local_addr().unwrap();
    let tcp = TcpListener::bind(at).await.unwrap();
    let pki = Pki::new();
    let to: Method = format!("quic:{at}").parse().unwrap();
    let sides = config(Side::Switch, &[], Scheduling::default());
    let end = End::new(sides, SessionId([7; 16]), "controller");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { panic!("{}", switch(&end, &[to], &pki.switch()).await) });
    // Each attempt has a socket of its own. Unanswered, the second would be the last by UDP alone.
    let mut attempts = std::collections::BTreeSet::new();
    let mut buf = [0; 2048];
    while attempts.len() < 3 {
        tokio::select! {
            received = front.recv_from(&mut buf) => {
                let (_, from) = received.unwrap();
                attempts.insert(from);
                front.send_to(b"not now", from).await.unwrap();
            }
            accepted = tcp.accept() => panic!("dialled by TLS from {}", accepted.unwrap().1),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_may_wait_leave_together_and_others_do_not_wait() {
    let mut coalescing = PerKind::default();
    coalescing.set(Kind::Packet, Duration::from_millis(50));
    let pair = Pair::scheduled(Scheduling {
        coalescing,
        ..Scheduling::default()
    })
    .await;
    let (mut switch, mut controller) = pair.connect().await;
    let sent = trickle(&mut switch, 10, 0..100).await;
    assert_same(read_frames(&mut controller, 100).await, &sent);
    let windows = pair.end.status().windows;
    // A message each 5 ms, windows of 50 ms: one in ten opens one, on a busy machine fewer.
    assert!((1..=50).contains(&windows.windows), "{windows:?}");
    assert!(windows.held >= windows.windows, "{windows:?}");
    // Port status is of another kind.
    let others = trickle(&mut switch, 12, 100..120).await;
    let got = read_frames(&mut controller, 20).await;
    assert_same(got, &others);
    assert_eq!(pair.end.status().windows.held, windows.held);
}

/// One datagram in three is lost. A copy of a lost message arrives 2 ms later, before QUIC detects
/// the loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_stand_in_for_what_is_lost_and_are_dropped_otherwise() {
    let mut copied = PerKind::default();
    copied.set(Kind::Packet, true);
    let pair = Pair::of(Scheduling::default(), copied).await;
    let (mut switch, mut controller) = pair.connect().await;
    pair.path.loses_one_in.store(3, Ordering::Relaxed);
    let sent = trickle(&mut switch, 10, 0..200).await;
    assert_same(read_frames(&mut controller, 200).await, &sent);
    pair.path.loses_one_in.store(0, Ordering::Relaxed);
    let copies = pair.end.status().copies;
    // The first message is a fence, which is no packet.
    assert!(copies.sent > 0 && copies.too_long == 0, "{copies:?}");
    assert!(copies.sent + copies.overflowed <= 199, "{copies:?}");
    let came = pair.hub.status()[0].copies.came;
    assert!(came.used > 0 && came.doubled > 0, "{came:?}");
    assert!(came.used + came.doubled <= 199, "{came:?}");

    // Longer than a datagram: not copied, and counted.
    switch.write_all(&message(4, 10, 200, 9000)).await.unwrap();
    read_frames(&mut controller, 1).await;
    for _ in 0..12_000 {
        if pair.end.status().copies.too_long == 1 {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("{:?}", pair.end.status().copies);
}

/// TCP from one port of this machine to another, for as long as it is polled.
async fn forward_tcp(from: TcpSocket, to: u16) {
    let listener = from.listen(16).unwrap();
    let mut tasks = JoinSet::new();
    loop {
        let (mut near, _) = listener.accept().await.unwrap();
        tasks.spawn(async move {
            let mut far = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        });
    }
}

/// UDP is cut, and TCP to the same port is not: the session goes on by TLS, survives a break there,
/// and is back on QUIC after another once UDP passes. The switch and the controller see nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_udp_does_not_get_through_the_session_goes_on_by_tls() {
    let mut pair = Pair::new().await;
    let mut tasks = JoinSet::new();
    let tcp = pair.tcp.take().unwrap();
    tasks.spawn(forward_tcp(tcp, port(pair.hub.local())));
    let (mut switch, mut controller) = pair.connect().await;
    let mut number = 0;
    let mut exchange = async |stage: &str, expected: TransportKind| {
        let numbers = number..number + 40;
        number += 40;
        let up = trickle(&mut switch, 10, numbers.clone()).await;
        assert_same(read_frames(&mut controller, up.len()).await, &up);
        let down = trickle(&mut controller, 14, numbers).await;
        assert_same(read_frames(&mut switch, down.len()).await, &down);
        let ours = pair.end.status();
        assert_eq!(ours.transport, Some(expected), "{stage}");
        assert_eq!(ours.fallbacks > 0, stage != "at first", "{stage}");
        let theirs = pair.hub.status().remove(0);
        assert_eq!(theirs.transport, Some(expected), "{stage}");
    };
    exchange("at first", TransportKind::Quic).await;
    let target = pair.path.cut().unwrap();
    exchange("UDP is cut", TransportKind::Tls).await;
    pair.end.break_link();
    exchange("TLS broke", TransportKind::Tls).await;
    pair.path.lead_to(target.port());
    pair.end.break_link();
    exchange("UDP passes", TransportKind::Quic).await;
    let status = pair.end.status();
    assert_eq!(status.closed, 0);
    assert!(status.resumptions >= 3, "{status:?}");
}

/// Each evicts the other; a relay that reconnects evicts nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_relays_of_one_certificate_name_are_noticed() {
    let pair = Pair::new().await;
    let settle = async |is_so: &dyn Fn() -> bool| {
        for _ in 0..9_000 {
            if is_so() {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
        panic!("{:?} {:?}", pair.hub.rivals(), pair.hub.status());
    };
    settle(&|| pair.end.status().is_up).await;
    for n in 1..=5 {
        pair.end.break_link();
        settle(&|| pair.end.status().reconnects == n).await;
    }
    assert_eq!(pair.hub.rivals(), RivalCounters::default());

    let sides = config(Side::Switch, &[], Scheduling::default());
    let twin = End::new(sides, SessionId([8; 16]), "controller");
    let relay: Method = format!("quic:127.0.0.1:{}", port(pair.hub.local()))
        .parse()
        .unwrap();
    let security = pair.pki.switch();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { panic!("{}", switch(&twin, &[relay], &security).await) });
    settle(&|| pair.hub.rivals().conflicts >= 3).await;
    let RivalCounters {
        evictions,
        conflicts,
    } = pair.hub.rivals();
    assert!(evictions >= conflicts + 3, "{evictions} {conflicts}");
}

/// The end's task runs for a moment longer, so that the last datagrams leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_is_closed_does_not_dial_again() {
    let pair = Pair::new().await;
    let until = async |count: usize| {
        for _ in 0..9_000 {
            let status = pair.hub.status();
            if status.len() == count && status.iter().all(|end| end.is_up) {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
        panic!("{:?}", pair.hub.status());
    };
    until(1).await;
    pair.end.close("the test is over");
    until(0).await;
    // Longer than the pause before another attempt.
    sleep(Duration::from_millis(400)).await;
    assert_eq!(pair.hub.status().len(), 0);
}

fn features_reply(datapath: u8) -> Bytes {
    let mut bytes = vec![0; 32];
    bytes[..4].copy_from_slice(&[4, 6, 0, 32]);
    bytes[15] = datapath;
    bytes.into()
}

/// Reads to the end of the stream, which must come. Returns the bytes before it.
async fn read_to_end(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Vec<u8> {
    let mut said = Vec::new();
    let read = timeout(Duration::from_secs(20), stream.read_to_end(&mut said)).await;
    let _ = read.expect("it is closed");
    said
}

/// The certificate of the switch's relay names datapath 7, by QUIC and where UDP is cut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_behind_a_relay_is_the_one_of_its_certificate_or_none() {
    for transport in [TransportKind::Quic, TransportKind::Tls] {
        let none = (Scheduling::default(), PerKind::default());
        let mut pair = Pair::certified(&Leaf::datapath(7), none.0, none.1).await;
        let mut tasks = JoinSet::new();
        if transport == TransportKind::Tls {
            let tcp = pair.tcp.take().unwrap();
            tasks.spawn(forward_tcp(tcp, port(pair.hub.local())));
            pair.path.cut();
        }
        let (mut switch, mut controller) = pair.connect().await;
        let said = features_reply(7);
        switch.write_all(&said).await.unwrap();
        assert_same(read_frames(&mut controller, 1).await, &[said]);
        assert_eq!(pair.hub.status()[0].transport, Some(transport));

        let (mut spoofer, mut its_controller) = pair.connect().await;
        let said = [
            message(4, 0, 1, 8),
            features_reply(8),
            message(4, 10, 2, 60),
        ];
        spoofer.write_all(&said.concat()).await.unwrap();
        let heard = read_to_end(&mut its_controller).await;
        // Another lane may be sooner than the one that names the datapath.
        let is_named = heard
            .windows(32)
            .any(|bytes| bytes == &features_reply(8)[..]);
        assert!(!is_named, "{heard:?}");
        read_to_end(&mut spoofer).await;
        assert_eq!(pair.hub.status()[0].datapaths_refused, 1);

        // The other connection goes on.
        let more = message(4, 10, 3, 60);
        switch.write_all(&more).await.unwrap();
        assert_same(read_frames(&mut controller, 1).await, &[more]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_behind_a_relay_speaks_for_the_datapath_of_its_certificate_alone() {
    let none = (Scheduling::default(), PerKind::default());
    let pair = Pair::certified(&Leaf::datapath(7), none.0, none.1).await;
    let _connected = pair.connect().await;
    let row = |id: u8| format!(r#"{{"id":1,"result":{{"datapath_id":"{id:016x}"}},"error":null}}"#);
    for (said, passes) in [(row(7), true), (row(8), false)] {
        let mut manager = tokio::net::UnixStream::connect(pair.socket())
            .await
            .unwrap();
        let accepted = timeout(Duration::from_secs(20), pair.database.accept()).await;
        let (mut database, _) = accepted.expect("the database is dialled").unwrap();
        database.write_all(said.as_bytes()).await.unwrap();
        if passes {
            let mut heard = vec![0; said.len()];
            manager.read_exact(&mut heard).await.unwrap();
            assert_eq!(heard, said.as_bytes());
        } else {
            assert_eq!(read_to_end(&mut manager).await, b"");
        }
    }
    assert_eq!(pair.hub.status()[0].datapaths_refused, 1);
}

/// Dialled by TLS, with a certificate of its own towards the controller, to which it is a switch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controllers_relay_is_a_switch_to_its_controller() {
    let pki = Pki::new();
    let any = "pssl:0:127.0.0.1".parse().unwrap();
    let controller = Listener::bind(&any, &pki.controller(), Limits::default()).await;
    let mut controller = controller.unwrap();
    let target: Method = format!("ssl:127.0.0.1:{}", port(controller.local()))
        .parse()
        .unwrap();
    let mut sides = config(
        Side::Controller,
        &[(OPENFLOW, target)],
        Scheduling::default(),
    );
    let local = pki.credentials("local", &Leaf::of(Role::Switch));
    sides.target_security = Security::new(local).expecting(Role::Controller);
    let listen: Method = "pquic:0:127.0.0.1".parse().unwrap();
    let hub = Hub::bind(&listen, &pki.controller(), sides, vec![])
        .await
        .unwrap();
    let mut tasks = JoinSet::new();
    let runs = hub.clone();
    tasks.spawn(async move { runs.run().await });
    let to: Method = format!("quic:127.0.0.1:{}", port(hub.local()))
        .parse()
        .unwrap();
    let sides = config(Side::Switch, &[], Scheduling::default());
    let end = End::new(sides, SessionId([9; 16]), "controller");
    let (dials, security) = (end.clone(), pki.switch());
    tasks.spawn(async move { panic!("{}", switch(&dials, &[to], &security).await) });
    let (mut ours, theirs) = net::transport::memory(4096);
    end.adopt(OPENFLOW, theirs);
    let accepted = timeout(Duration::from_secs(20), controller.accept()).await;
    let mut accepted = accepted.expect("the controller is dialled by TLS");
    let hello = message(4, 0, 1, 8);
    ours.writer.write_all(&hello).await.unwrap();
    let mut heard = [0; 8];
    accepted.reader.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, hello[..]);
}
