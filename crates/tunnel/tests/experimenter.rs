//! Policy maps by EXPERIMENTER messages: a controller that is none of ours, two relays joined by
//! TCP, and switches that know nothing of them.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use net::method::Method;
use net::tls::Security;
use net::transport::{Limits, Listener};
use openflow::{ErrorKind, Frame, MessageKind, Xid};
use relay::experimenter::{ExperimenterMessage, Which, error, is_of};
use relay::{Answer, EXPERIMENTER_ID, PolicyMessage, Side};
use sched::PolicyMap;
use sched::policy::MapDigest;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tunnel::{Direct, Scheduling};

const PATIENCE: Duration = Duration::from_secs(180);
const HELLO: [u8; 8] = [4, 0, 0, 8, 0, 0, 0, 0];
const FEATURES_REQUEST: [u8; 8] = [4, 5, 0, 8, 0, 0, 0, 1];

fn text(generation: u64) -> String {
    PolicyMap::parse(&format!(
        "Generation: {generation}
         Rule #1: traffic_type=2, udp_dst={generation}, action=queue_id:0
         Default: action=queue_id:1"
    ))
    .expect("a map")
    .0
    .to_text()
}

fn digest(text: &str) -> MapDigest {
    PolicyMap::parse(text).expect("a map").0.digest()
}

/// A relay that runs until it is dropped.
struct Relay {
    direct: Arc<Direct>,
    at: Method,
    _tasks: JoinSet<()>,
}

impl Relay {
    async fn start(side: Side, listen: &str, target: &str, generation: u64) -> Relay {
        let scheduling = Scheduling {
            policy: Some(Arc::new(PolicyMap::parse(&text(generation)).unwrap().0)),
            ..Scheduling::default()
        };
        let listen = listen.parse().unwrap();
        // The port of a relay that has just ended is free a moment later.
        let bound = timeout(PATIENCE, async {
            loop {
                let plain = Security::plain();
                match Listener::bind(&listen, &plain, Limits::default()).await {
                    Ok(listener) => return listener,
                    Err(_) => sleep(Duration::from_millis(20)).await,
                }
            }
        });
        let mut listener = bound.await.expect("it can be bound");
        let at = listener.local().clone();
        let target = target.parse().unwrap();
        let direct = Direct::new(side, target, Security::plain(), scheduling);
        let mut tasks = JoinSet::new();
        let runs = direct.clone();
        tasks.spawn(async move {
            let mut carried = JoinSet::new();
            loop {
                let connection = listener.accept().await;
                carried.spawn(runs.clone().carry(connection));
            }
        });
        Relay {
            direct,
            at,
            _tasks: tasks,
        }
    }

    fn port(&self) -> u16 {
        let Method::Listen(_, _, port) = self.at else {
            panic!("{} has no port", self.at);
        };
        port
    }

    async fn connect(&self) -> TcpStream {
        let address = ("127.0.0.1", self.port());
        TcpStream::connect(address).await.expect("it listens")
    }

    fn generation(&self) -> u64 {
        self.direct
            .status()
            .policy
            .expect("it schedules")
            .generation
    }
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, format!("tcp:127.0.0.1:{port}"))
}

/// One end of an OpenFlow connection, played by the test.
struct Peer {
    stream: TcpStream,
    buf: BytesMut,
}

impl Peer {
    fn new(stream: TcpStream) -> Peer {
        let buf = BytesMut::new();
        Peer { stream, buf }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    async fn next(&mut self) -> Frame {
        loop {
            if let Some(frame) = Frame::split_from(&mut self.buf).unwrap() {
                return frame;
            }
            let read = timeout(PATIENCE, self.stream.read_buf(&mut self.buf)).await;
            assert_ne!(read.expect("something comes").unwrap(), 0, "it ended");
        }
    }

    /// Sends one of our messages and reads its answer, past any announcements.
    async fn ask(&mut self, message: &ExperimenterMessage) -> ExperimenterMessage {
        let xid = Xid(77);
        self.send(message.encode(4, EXPERIMENTER_ID, xid).bytes())
            .await;
        loop {
            let frame = self.next().await;
            if frame.xid() == xid {
                return ExperimenterMessage::decode(&frame).expect("one of ours");
            }
        }
    }
}

fn push(text: &str, announced: MapDigest) -> Vec<PolicyMessage> {
    let generation = PolicyMap::parse(text).map_or(2, |(map, _)| map.generation);
    vec![
        PolicyMessage::Begin {
            generation,
            digest: announced,
            len: text.len() as u64,
        },
        PolicyMessage::Chunk {
            offset: 0,
            bytes: Bytes::copy_from_slice(text.as_bytes()),
        },
        PolicyMessage::Commit {
            generation,
            digest: announced,
        },
    ]
}

const CAP: ExperimenterMessage = ExperimenterMessage::Cap {
    is_reply: false,
    map_bytes_max: 0,
};

/// A switch and a controller, one relay between them.
async fn between(relay: &Relay, listener: &TcpListener) -> (Peer, Peer) {
    let mut switch = Peer::new(relay.connect().await);
    let mut controller = Peer::new(listener.accept().await.unwrap().0);
    switch.send(&HELLO).await;
    controller.send(&HELLO).await;
    assert_eq!(switch.next().await.bytes(), &HELLO[..]);
    assert_eq!(controller.next().await.bytes(), &HELLO[..]);
    (switch, controller)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_controller_gives_a_map_and_reads_it_back_and_the_switch_hears_nothing_of_it() {
    let (listener, at) = listen().await;
    let relay = Relay::start(Side::Switch, "ptcp:0:127.0.0.1", &at, 1).await;
    let (mut switch, mut controller) = between(&relay, &listener).await;
    let cap = controller.ask(&CAP).await;
    assert!(matches!(
        cap,
        ExperimenterMessage::Cap { is_reply: true, .. }
    ));

    let new = text(2);
    let mut answers = Vec::new();
    for message in push(&new, digest(&new)) {
        let is_begin = matches!(message, PolicyMessage::Begin { .. });
        let message = ExperimenterMessage::Policy(message);
        if is_begin {
            let frame = message.encode(4, EXPERIMENTER_ID, Xid(1));
            controller.send(frame.bytes()).await;
        } else {
            answers.push(controller.ask(&message).await);
        }
    }
    let acked = |answer: &ExperimenterMessage| match answer {
        ExperimenterMessage::Policy(PolicyMessage::Ack { answer, .. }) => answer.clone(),
        other => panic!("{other:?}"),
    };
    let acked: Vec<Answer> = answers.iter().map(acked).collect();
    assert_eq!(acked, [Answer::Staged, Answer::Committed]);
    assert_eq!(relay.generation(), 2);
    let active = controller
        .ask(&ExperimenterMessage::Get(Which::Active))
        .await;
    let ExperimenterMessage::GetReply(part) = active else {
        panic!("{active:?}");
    };
    assert_eq!(part.text, new);
    assert_eq!(part.map, Some((2, digest(&new))));
    let queues = controller
        .ask(&ExperimenterMessage::QueueStatsRequest)
        .await;
    let ExperimenterMessage::QueueStatsReply(queues) = queues else {
        panic!("{queues:?}");
    };
    assert!(queues.iter().any(|queue| queue.messages_in > 0));

    // Unknown or truncated messages get OpenFlow's own errors, and the connection goes on.
    for (body, kind) in [
        (&[0, 0, 0, 99][..], ErrorKind::BAD_EXPERIMENTER_TYPE),
        (&[0, 0, 0, 3, 1], ErrorKind::BAD_LEN),
        (&[0, 0], ErrorKind::BAD_LEN),
    ] {
        let mut bytes = vec![4, 4, 0, 12 + body.len() as u8, 0, 0, 0, 9];
        bytes.extend(EXPERIMENTER_ID.to_be_bytes());
        bytes.extend(body);
        controller.send(&bytes).await;
        let answer = loop {
            let frame = controller.next().await;
            if frame.kind() == MessageKind::Error {
                break frame;
            }
        };
        let about = Frame::new(bytes.into()).unwrap();
        assert_eq!(answer, error(&about, kind));
    }
    assert_eq!(relay.direct.status().policy_faults, 3);
    controller.send(&FEATURES_REQUEST).await;
    let heard = switch.next().await;
    assert_eq!(
        heard.kind(),
        MessageKind::FeaturesRequest,
        "and nothing before"
    );
    let status = relay.direct.status();
    assert_eq!(status.channels[0].given.messages, 2);
    assert_eq!(
        status.channels[0].taken.messages, 1,
        "answers are not its own"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_breaks_a_push_the_last_committed_map_stays() {
    let (listener, at) = listen().await;
    let relay = Relay::start(Side::Switch, "ptcp:0:127.0.0.1", &at, 1).await;
    let new = text(2);
    let wrong = "Generation: 2\nRule #1: udp_dst=70000, action=queue_id:0\n".to_owned();
    let wrong_digest = MapDigest(Sha256::digest(&wrong).into());
    let cases = [
        ("cut", push(&new, digest(&new))),
        ("another digest", push(&new, digest(&text(3)))),
        ("wrong", push(&wrong, wrong_digest)),
    ];
    for (case, messages) in cases {
        let whole = if case == "cut" {
            messages.len() - 1
        } else {
            messages.len()
        };
        for count in 0..=whole {
            let (_switch, mut controller) = between(&relay, &listener).await;
            controller.ask(&CAP).await;
            for message in &messages[..count] {
                let message = ExperimenterMessage::Policy(message.clone());
                let frame = message.encode(4, EXPERIMENTER_ID, Xid(5));
                controller.send(frame.bytes()).await;
            }
            let asked = controller.ask(&ExperimenterMessage::Get(Which::Active));
            let ExperimenterMessage::GetReply(part) = asked.await else {
                panic!("{case} after {count}");
            };
            assert_eq!(part.text, text(1), "{case} after {count}");
            drop(controller);
            assert_eq!(relay.generation(), 1, "{case} after {count}");
        }
    }
    // And it can still be given one.
    let (_switch, mut controller) = between(&relay, &listener).await;
    controller.ask(&CAP).await;
    for message in push(&new, digest(&new)) {
        let message = ExperimenterMessage::Policy(message);
        let frame = message.encode(4, EXPERIMENTER_ID, Xid(5));
        controller.send(frame.bytes()).await;
    }
    let staged = controller
        .ask(&ExperimenterMessage::Get(Which::Staged))
        .await;
    assert!(matches!(staged, ExperimenterMessage::GetReply(part) if part.map.is_none()));
    assert_eq!(relay.generation(), 2);
    // Later connections begin with it.
    let (_switch, mut controller) = between(&relay, &listener).await;
    let active = controller
        .ask(&ExperimenterMessage::Get(Which::Active))
        .await;
    assert!(matches!(active, ExperimenterMessage::GetReply(part) if part.text == new));
}

/// Waits until both relays report generation `wanted`.
async fn in_sync(relays: [&Relay; 2], wanted: u64) {
    let agree = || {
        let status = relays.map(|relay| relay.direct.status().policy.unwrap());
        let is_right =
            |s: &relay::PolicyStatus| s.is_in_sync == Some(true) && s.generation == wanted;
        status.iter().all(is_right)
    };
    let until = timeout(PATIENCE, async {
        while !agree() {
            sleep(Duration::from_millis(10)).await;
        }
    });
    let status = || relays.map(|relay| relay.direct.status().policy);
    assert!(until.await.is_ok(), "not at both ends: {:?}", status());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pair_over_tcp_shares_a_map_whichever_end_is_told_or_restarted() {
    let (listener, at) = listen().await;
    let controller_relay = Relay::start(Side::Controller, "ptcp:0:127.0.0.1", &at, 1).await;
    let link = format!("tcp:127.0.0.1:{}", controller_relay.port());
    let switch_relay = Relay::start(Side::Switch, "ptcp:0:127.0.0.1", &link, 1).await;
    let (mut switch, mut controller) = between(&switch_relay, &listener).await;
    controller.send(&FEATURES_REQUEST).await;
    assert_eq!(switch.next().await.kind(), MessageKind::FeaturesRequest);
    in_sync([&controller_relay, &switch_relay], 1).await;

    let pushed = controller_relay.direct.push_policy(&text(2)).await.unwrap();
    assert_eq!(pushed[0].outcome, Ok(digest(&text(2))));
    assert!(!pushed[0].is_alone);
    in_sync([&controller_relay, &switch_relay], 2).await;
    let pushed = switch_relay.direct.push_policy(&text(3)).await.unwrap();
    assert_eq!(pushed[0].outcome, Ok(digest(&text(3))));
    in_sync([&controller_relay, &switch_relay], 3).await;
    let wrong = controller_relay
        .direct
        .push_policy("Rule #1: udp_dst=70000");
    let wrong = wrong.await.unwrap_err();
    for code in ["E06", "E12", "E14"] {
        assert!(wrong.contains(code), "{wrong}");
    }
    in_sync([&controller_relay, &switch_relay], 3).await;
    // The controller has no say in it.
    let get = ExperimenterMessage::Get(Which::Active).encode(4, EXPERIMENTER_ID, Xid(4));
    controller.send(get.bytes()).await;
    let refusal = error(&get, ErrorKind::REQUEST_EPERM);
    assert_eq!(controller.next().await, refusal);

    // What its operator says is for every connection; what a switch's says, for that one.
    let pushed = controller_relay.direct.push_policy(&text(4)).await.unwrap();
    assert_eq!(pushed[0].outcome, Ok(digest(&text(4))));

    // The switch's relay is replaced by another, with the map of its file; then the controller's.
    drop((switch_relay, switch, controller));
    let switch_relay = Relay::start(Side::Switch, "ptcp:0:127.0.0.1", &link, 1).await;
    let (_switch, mut controller) = between(&switch_relay, &listener).await;
    controller.send(&FEATURES_REQUEST).await;
    in_sync([&controller_relay, &switch_relay], 4).await;
    let listens = format!("ptcp:{}:127.0.0.1", controller_relay.port());
    drop((controller_relay, _switch, controller));
    let controller_relay = Relay::start(Side::Controller, &listens, &at, 1).await;
    let (_switch, mut controller) = between(&switch_relay, &listener).await;
    controller.send(&FEATURES_REQUEST).await;
    in_sync([&controller_relay, &switch_relay], 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_a_plain_switch_a_relay_schedules_alone_and_its_controller_hears_no_error() {
    let (listener, at) = listen().await;
    let relay = Relay::start(Side::Controller, "ptcp:0:127.0.0.1", &at, 1).await;
    let (mut switch, mut controller) = between(&relay, &listener).await;
    controller.send(&FEATURES_REQUEST).await;
    assert_eq!(switch.next().await.kind(), MessageKind::FeaturesRequest);
    let asked = switch.next().await;
    assert!(is_of(EXPERIMENTER_ID, asked.bytes()));
    let early = relay.direct.push_policy(&text(2)).await.unwrap();
    assert!(early[0].outcome.is_err(), "it may still be a relay");
    let refusal = error(&asked, ErrorKind::BAD_EXPERIMENTER);
    switch.send(refusal.bytes()).await;
    switch.send(&[4, 3, 0, 8, 0, 0, 0, 3]).await;
    let heard = controller.next().await;
    assert_eq!(heard.kind(), MessageKind::EchoReply, "and no error before");
    let pushed = relay.direct.push_policy(&text(2)).await.unwrap();
    assert_eq!(pushed[0].outcome, Ok(digest(&text(2))));
    assert!(pushed[0].is_alone);
    assert_eq!(relay.generation(), 2);
    assert_eq!(relay.direct.status().policy.unwrap().is_in_sync, None);
}
