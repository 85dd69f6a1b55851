//! Relays that carry each connection over one of its own, with a link between them that takes
//! little.

#[path = "../../net/tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use common::Pki;
use net::method::Method;
use net::tls::Security;
use net::transport::{Limits, Listener};
use openflow::Frame;
use relay::Side;
use sched::PolicyMap;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tunnel::{Direct, Scheduling};

const PATIENCE: Duration = Duration::from_secs(180);
const BACKLOG: u32 = 900;

/// Packets to one station are worth more than all others.
fn scheduling() -> Scheduling {
    let text = "Rule #1: traffic_type=1, action=queue_id:0
Rule #2: traffic_type=2, eth_dst=02:00:00:00:00:03, action=queue_id:1
Default: action=queue_id:2
Scheduler: algo=strict
";
    Scheduling {
        policy: Some(Arc::new(PolicyMap::parse(text).unwrap().0)),
        ..Scheduling::default()
    }
}

fn packet_in(station: u8, number: u32) -> Bytes {
    let mut bytes = vec![0; 200];
    bytes[..4].copy_from_slice(&[4, 10, 0, 200]);
    bytes[4..8].copy_from_slice(&number.to_be_bytes());
    bytes[24..28].copy_from_slice(&[0, 1, 0, 4]);
    bytes[34..46].copy_from_slice(&[2, 0, 0, 0, 0, station, 2, 0, 0, 0, 1, station]);
    bytes.into()
}

fn hello() -> Bytes {
    Bytes::from_static(&[4, 0, 0, 8, 0, 0, 0, 0])
}

/// Relays everything that `listen` accepts to `target`. Returns the relay and its listening
/// address.
async fn relay(
    side: Side,
    listen: &str,
    target: Method,
    security: [Security; 2],
    scheduling: Scheduling,
) -> (Arc<Direct>, Method) {
    let line = match side {
        Side::Switch => None,
        Side::Controller => Direct::line_socket(&scheduling),
    };
    let listen = listen.parse().unwrap();
    let [accepts, dials] = security;
    let listener = Listener::bind_line(line, &listen, &accepts, Limits::default()).await;
    let mut listener = listener.unwrap();
    let at = listener.local().clone();
    let direct = Direct::new(side, target, dials, scheduling);
    let runs = direct.clone();
    // Ends with the test's runtime.
    tokio::spawn(async move {
        loop {
            let connection = listener.accept().await;
            tokio::spawn(runs.clone().carry(connection));
        }
    });
    (direct, at)
}

fn dial(scheme: &str, listens: &Method) -> Method {
    let Method::Listen(_, _, port) = listens else {
        panic!("{listens} has no port");
    };
    format!("{scheme}:127.0.0.1:{port}").parse().unwrap()
}

async fn connect(to: &Method) -> TcpStream {
    let address = to.to_string();
    let address = address.trim_start_matches("tcp:");
    TcpStream::connect(address).await.unwrap()
}

/// A controller that takes little before it reads.
async fn controller() -> (TcpListener, Method) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    SockRef::from(&listener).set_recv_buffer_size(2048).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, format!("tcp:127.0.0.1:{port}").parse().unwrap())
}

async fn read_frames(stream: &mut TcpStream, count: usize) -> Vec<Frame> {
    let mut buf = BytesMut::new();
    let mut frames = Vec::new();
    while frames.len() < count {
        let read = timeout(PATIENCE, stream.read_buf(&mut buf)).await;
        let read = read.unwrap_or_else(|_| panic!("only {} of {count} frames", frames.len()));
        assert_ne!(read.unwrap(), 0, "after {} frames", frames.len());
        while let Some(frame) = Frame::split_from(&mut buf).unwrap() {
            frames.push(frame);
        }
    }
    frames
}

/// Lets `direct` take a backlog that nobody reads, then one message that matters. Returns the
/// number of backlog messages that arrived before it.
async fn overtaken(direct: &Direct, switch: &mut TcpStream, far: &mut TcpStream) -> usize {
    switch.write_all(&hello()).await.unwrap();
    read_frames(far, 1).await;
    let backlog = (1..=BACKLOG).map(|n| packet_in(n as u8 % 100 + 100, n));
    let backlog: Vec<u8> = backlog.flatten().collect();
    switch.write_all(&backlog).await.unwrap();
    switch.write_all(&packet_in(3, BACKLOG + 1)).await.unwrap();
    let all_in = async {
        loop {
            let line = direct.status().line.unwrap();
            if line.rules[1].1 == 1 {
                return;
            }
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, all_in).await.expect("the relay reads on");
    let got = read_frames(far, BACKLOG as usize + 1).await;
    let mut numbers: Vec<u32> = got.iter().map(|frame| frame.xid().0).collect();
    let before = numbers.iter().position(|n| *n == BACKLOG + 1).unwrap();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=BACKLOG + 1), "each once");
    before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_matters_passes_a_backlog_on_the_way_to_a_controller_without_a_relay() {
    let (listener, at) = controller().await;
    let plain = || [Security::plain(), Security::plain()];
    let (direct, to) = relay(Side::Switch, "ptcp:0:127.0.0.1", at, plain(), scheduling()).await;
    let mut switch = connect(&dial("tcp", &to)).await;
    let (mut far, _) = listener.accept().await.unwrap();
    let before = overtaken(&direct, &mut switch, &mut far).await;
    assert!(before < 300, "{before} of {BACKLOG} were before it");

    far.write_all(&hello()).await.unwrap();
    assert_eq!(read_frames(&mut switch, 1).await[0].bytes(), &hello());
    drop(switch);
    let mut rest = Vec::new();
    timeout(PATIENCE, far.read_to_end(&mut rest))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(rest, b"");
    drop(far);
    let finished = async {
        loop {
            if let Some(finished) = direct.take_finished().pop() {
                return finished.1;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    let finished = timeout(PATIENCE, finished).await.unwrap();
    assert_eq!(finished.taken.messages, u64::from(BACKLOG) + 2);
    assert_eq!((finished.given.messages, finished.shed.messages), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_relays_know_which_switch_a_connection_is_of() {
    let map = "Rule #1: dpid=5, action=queue_id:0\nDefault: action=queue_id:1\n";
    let scheduling = || Scheduling {
        policy: Some(Arc::new(PolicyMap::parse(map).unwrap().0)),
        ..Scheduling::default()
    };
    let plain = || [Security::plain(), Security::plain()];
    let (listener, at) = controller().await;
    let listen = "ptcp:0:127.0.0.1";
    let (b, between) = relay(Side::Controller, listen, at, plain(), scheduling()).await;
    let link = dial("tcp", &between);
    let (a, to) = relay(Side::Switch, listen, link, plain(), scheduling()).await;
    let mut switch = connect(&dial("tcp", &to)).await;
    let (mut far, _) = listener.accept().await.unwrap();
    // FEATURES_REPLY of datapath 5.
    let mut features = vec![4, 6, 0, 32, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5];
    features.resize(32, 0);
    let packet = packet_in(1, 2);
    switch.write_all(&hello()).await.unwrap();
    switch.write_all(&features).await.unwrap();
    switch.write_all(&packet).await.unwrap();
    read_frames(&mut far, 3).await;
    far.write_all(&hello()).await.unwrap();
    read_frames(&mut switch, 1).await;
    let hits = |direct: &Direct| direct.status().line.expect("it schedules").rules;
    assert_eq!(hits(&a), [(1, 2)], "from its FEATURES_REPLY on");
    assert_eq!(hits(&b), [(1, 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pair_over_tls_carries_both_ways_and_the_ledgers_agree() {
    let pki = Pki::new();
    let (listener, at) = controller().await;
    let (ours, theirs) = (
        [Security::plain(), pki.switch()],
        [pki.controller(), Security::plain()],
    );
    let (b, between) = relay(
        Side::Controller,
        "pssl:0:127.0.0.1",
        at,
        theirs,
        scheduling(),
    )
    .await;
    let link = dial("ssl", &between);
    let (a, to) = relay(Side::Switch, "ptcp:0:127.0.0.1", link, ours, scheduling()).await;
    let mut switch = connect(&dial("tcp", &to)).await;
    let (mut far, _) = listener.accept().await.unwrap();
    overtaken(&a, &mut switch, &mut far).await;
    far.write_all(&hello()).await.unwrap();
    // Flow-mods, which keep their order.
    let mods: Vec<Bytes> = (1..500u32)
        .map(|n| {
            let mut bytes = vec![0; 56];
            bytes[..4].copy_from_slice(&[4, 14, 0, 56]);
            bytes[4..8].copy_from_slice(&n.to_be_bytes());
            bytes.into()
        })
        .collect();
    far.write_all(&mods.concat()).await.unwrap();
    let got = read_frames(&mut switch, 500).await;
    assert!(got[1..].iter().map(Frame::bytes).eq(&mods));
    let (a, b) = (a.status(), b.status());
    let (a, b) = (&a.channels[0], &b.channels[0]);
    assert_eq!(a.taken.digest(), b.given.digest());
    assert_eq!(b.taken.digest(), a.given.digest());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_policy_messages_keep_their_order() {
    let (listener, at) = controller().await;
    let plain = [Security::plain(), Security::plain()];
    let none = Scheduling::default();
    let (_direct, to) = relay(Side::Switch, "ptcp:0:127.0.0.1", at, plain, none).await;
    let mut switch = connect(&dial("tcp", &to)).await;
    let (mut far, _) = listener.accept().await.unwrap();
    let sent: Vec<Bytes> = (0..BACKLOG).map(|n| packet_in(n as u8 % 8, n)).collect();
    switch.write_all(&sent.concat()).await.unwrap();
    let got = read_frames(&mut far, sent.len()).await;
    assert!(got.iter().map(Frame::bytes).eq(&sent));
}

/// Bytes that are not OpenFlow end their own connection and no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_does_not_speak_openflow_is_cut_off() {
    let (listener, at) = controller().await;
    let plain = [Security::plain(), Security::plain()];
    let (direct, to) = relay(Side::Switch, "ptcp:0:127.0.0.1", at, plain, scheduling()).await;
    let mut good = connect(&dial("tcp", &to)).await;
    let (mut good_far, _) = listener.accept().await.unwrap();
    let mut bad = connect(&dial("tcp", &to)).await;
    let (_bad_far, _) = listener.accept().await.unwrap();
    bad.write_all(&[4, 0, 0, 3, 0, 0, 0, 0]).await.unwrap();
    let mut rest = Vec::new();
    let ended = timeout(PATIENCE, bad.read_to_end(&mut rest)).await;
    assert!(ended.expect("it is closed").is_ok_and(|n| n == 0));
    good.write_all(&hello()).await.unwrap();
    assert_eq!(read_frames(&mut good_far, 1).await.len(), 1);
    // The relay counts a connection after it has closed it.
    let is_counted = async {
        while direct.status().closed == 0 {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, is_counted).await.expect("it is counted");
    assert_eq!(direct.status().closed, 1);
}

/// The certificate of the peer on the link names datapath 7; with and without a policy map.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_is_the_one_of_its_certificate_or_is_cut_off() {
    let features = |id: u8| {
        let mut bytes = vec![0; 32];
        bytes[..4].copy_from_slice(&[4, 6, 0, 32]);
        bytes[15] = id;
        bytes
    };
    for scheduling in [Scheduling::default(), scheduling()] {
        let pki = Pki::new();
        let (listener, at) = controller().await;
        let security = [pki.controller(), Security::plain()];
        let listen = "pssl:0:127.0.0.1";
        let (direct, to) = relay(Side::Controller, listen, at, security, scheduling).await;
        for (id, passes) in [(7, true), (8, false)] {
            let mut switch = net::transport::connect(&dial("ssl", &to), &pki.switch())
                .await
                .unwrap();
            switch.writer.write_all(&features(id)).await.unwrap();
            switch.writer.flush().await.unwrap();
            let (mut far, _) = listener.accept().await.unwrap();
            if passes {
                assert_eq!(read_frames(&mut far, 1).await[0].bytes()[..], features(id));
            } else {
                let mut heard = vec![0; 32];
                let read = timeout(PATIENCE, far.read(&mut heard)).await;
                let count = read.expect("it is closed").unwrap_or(0);
                assert_eq!(count, 0, "{heard:?}");
            }
        }
        assert_eq!(direct.status().datapaths_refused, 1);
    }
}
