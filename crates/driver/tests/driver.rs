//! The driver with a scripted switch at one end and a scripted application at the other.

#[path = "../../net/tests/common/mod.rs"]
mod common;

use std::collections::VecDeque;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use bytes::Bytes;
use clock::Instant;
use common::switch::{PATIENCE, Switch, packet_in};
use common::{Pki, listen, passive};
use control::ConnectionId;
use control::controller::{
    Admission, ControllerOutput, Event, Location, PeerIdentity, PeerRole, RefusedReason,
};
use control::inbox::InboxConfig;
use control::session::{CloseReason, SessionConfig, SwitchUp};
use driver::{Application, ConnectionView, Driver, DriverConfig, Ended, Notice};
use net::clock::Clock;
use net::tls::Security;
use net::transport::{Reader, Writer, connect, memory};
use openflow::message::{ErrorMessage, MultipartRequest, PacketOut, Role, RoleReason, RoleStatus};
use openflow::multipart::RequestBody;
use openflow::{
    Action, DatapathId, ErrorKind, Frame, MacAddr, Message, MessageKind, PortNo, Version, Xid,
    encode,
};
use sched::PolicyMap;
use tokio::sync::mpsc;

/// Carries out the command in a packet-in's data, and records the reports.
struct Script {
    outputs: VecDeque<ControllerOutput>,
    seen: std_mpsc::Sender<Seen>,
    /// `stick` waits for a message here.
    release: std_mpsc::Receiver<()>,
    frames: u32,
}

#[derive(Debug, PartialEq)]
enum Seen {
    Up(DatapathId, PeerIdentity),
    Frame(Xid, MessageKind),
    Panicked,
    Down,
}

impl Application for Script {
    fn handle_up(
        &mut self,
        _now: Instant,
        _connection: ConnectionId,
        up: SwitchUp,
        peer: PeerIdentity,
    ) -> Admission {
        let dpid = up.features.datapath_id;
        self.seen.send(Seen::Up(dpid, peer)).unwrap();
        Admission::Admitted
    }

    fn handle_frame(&mut self, _now: Instant, connection: ConnectionId, frame: Frame) {
        self.frames += 1;
        let has = |word: &[u8]| frame.body().ends_with(word);
        if has(b"stick") {
            self.release.recv_timeout(PATIENCE).unwrap();
        }
        let count = match () {
            () if has(b"flood") => 100,
            () if has(b"burst") => 50,
            () => 0,
        };
        if count > 0 {
            let data = Bytes::from(vec![0; 60_000]);
            let echo = Message::EchoRequest(data);
            for xid in 0..count {
                let frame = encode(Version::V13, Xid(xid), &echo).unwrap();
                self.outputs
                    .push_back(ControllerOutput::Send { connection, frame });
            }
        }
        if has(b"backlog") {
            let body = RequestBody::Desc;
            let ask = Message::MultipartRequest(MultipartRequest { more: false, body });
            for xid in 0..BACKLOG {
                let frame = encode(Version::V13, Xid(xid), &ask).unwrap();
                self.outputs
                    .push_back(ControllerOutput::Send { connection, frame });
            }
        }
        if has(b"urgent") || has(b"answer") {
            let packet_out = Message::PacketOut(PacketOut::new(
                PortNo(1),
                vec![Action::output(PortNo(2))],
                Bytes::from(vec![0; 1000]),
            ));
            let frame = encode(Version::V13, frame.xid(), &packet_out).unwrap();
            self.outputs
                .push_back(ControllerOutput::Send { connection, frame });
        }
        if has(b"panic") {
            panic!("as a fault of ours would");
        }
        if has(b"hosts") {
            for n in 0..10_000 {
                let (dpid, port) = (DatapathId(1), PortNo(1));
                let event = Event::HostLearned {
                    mac: MacAddr::from_u64(n),
                    vlan: control::vlan::VlanId::NONE,
                    at: Location { dpid, port },
                };
                self.outputs.push_back(ControllerOutput::Event(event));
            }
        }
        if has(b"reply") {
            let frame = encode(Version::V13, frame.xid(), &Message::BarrierRequest).unwrap();
            self.outputs
                .push_back(ControllerOutput::Send { connection, frame });
        }
        let _ = self.seen.send(Seen::Frame(frame.xid(), frame.kind()));
    }

    fn handle_down(&mut self, _now: Instant, _connection: ConnectionId) {
        self.seen.send(Seen::Down).unwrap();
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn handle_panicked(&mut self, _now: Instant) {
        self.seen.send(Seen::Panicked).unwrap();
    }

    fn poll_output(&mut self) -> Option<ControllerOutput> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        None
    }
}

/// Requests of one `backlog`.
const BACKLOG: u32 = 2000;

struct Stage {
    driver: Driver<Script>,
    notices: mpsc::Receiver<Notice>,
    seen: std_mpsc::Receiver<Seen>,
    release: std_mpsc::Sender<()>,
}

impl Stage {
    fn new(config: DriverConfig) -> Stage {
        let (seen_sender, seen) = std_mpsc::channel();
        let (release, release_receiver) = std_mpsc::channel();
        let script = Script {
            outputs: VecDeque::new(),
            seen: seen_sender,
            release: release_receiver,
            frames: 0,
        };
        let (driver, notices) = Driver::start(script, Clock::start(), config).unwrap();
        Stage {
            driver,
            notices,
            seen,
            release,
        }
    }

    /// Connects a switch over memory, without setting it up.
    fn join(&self, datapath_id: u64, buffer_bytes: usize) -> Switch<Reader, Writer> {
        let (ours, theirs) = memory(buffer_bytes);
        self.driver.serve(ours);
        Switch::new(theirs.reader, theirs.writer, datapath_id)
    }

    async fn up(&self, datapath_id: u64) -> Switch<Reader, Writer> {
        let mut switch = self.join(datapath_id, 1 << 16);
        switch.set_up().await.expect("set up");
        assert!(matches!(self.seen().await, Seen::Up(id, _) if id.0 == datapath_id));
        switch
    }

    async fn seen(&self) -> Seen {
        let since = std::time::Instant::now();
        loop {
            if let Ok(seen) = self.seen.try_recv() {
                return seen;
            }
            assert!(since.elapsed() < PATIENCE, "nothing seen");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until the application has taken the first packet-in.
    async fn taken(&self) {
        while self.driver.inbox_counters().packet_ins == 0
            || self.driver.connections()[0].inbox_backlog > 0
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn ended(&mut self) -> Ended {
        loop {
            let notice = tokio::time::timeout(PATIENCE, self.notices.recv());
            if let Notice::Down { reason, .. } = notice.await.unwrap().unwrap() {
                return reason;
            }
        }
    }
}

/// A fault in the handling of one message ends its connection, with a reason, and no other.
#[tokio::test]
async fn a_panic_of_the_application_ends_one_connection() {
    let mut stage = Stage::new(DriverConfig::default());
    let mut other = stage.up(1).await;
    for round in 1..=3 {
        let mut switch = stage.up(7).await;
        switch.send(1, &packet_in(1, b"panic")).await;
        assert_eq!(stage.seen().await, Seen::Panicked);
        assert_eq!(stage.seen().await, Seen::Down);
        let reason = stage.ended().await;
        assert_eq!(reason, Ended::Refused(RefusedReason::Fault));
        assert_eq!(stage.driver.ends().get("panicked"), Some(&round));
        // The application and the other connections continue.
        other.send(2, &packet_in(1, b"reply")).await;
        assert!(matches!(stage.seen().await, Seen::Frame(..)));
        assert_eq!(stage.driver.connection_count(), 1);
    }
    let answer = stage.driver.ask(|script| script.outputs.len()).await;
    assert_eq!(answer, Some(0));
    let panicked = stage
        .driver
        .ask(|_| panic!("as a fault of ours would"))
        .await;
    assert_eq!(panicked, None::<()>);
    assert_eq!(stage.driver.ask(|_| 1).await, Some(1));
}

#[tokio::test]
async fn over_every_transport_a_switch_comes_up_and_is_answered_and_goes() {
    let pki = Pki::new();
    for kind in ["tcp", "ssl", "quic", "unix"] {
        let mut stage = Stage::new(DriverConfig::default());
        let mut listener = listen(&passive(kind, pki.dir.path()), &pki.controller()).await;
        let method = common::dial_method(&listener);
        let dialled = connect(&method, &pki.switch()).await.unwrap();
        let mut switch = Switch::new(dialled.reader, dialled.writer, 7);
        let accept = async {
            stage.driver.serve(listener.accept().await);
        };
        let (set_up, ()) = tokio::join!(switch.set_up(), accept);
        set_up.expect(kind);
        let Seen::Up(id, peer) = stage.seen().await else {
            panic!("not up");
        };
        assert_eq!(id, DatapathId(7));
        let is_certified = kind == "ssl" || kind == "quic";
        assert_eq!(peer.dpid, is_certified.then_some(DatapathId(7)), "{kind}");
        assert_eq!(peer.role == PeerRole::Switch, is_certified, "{kind}");

        switch.send(77, &packet_in(1, b"reply")).await.unwrap();
        assert_eq!(
            stage.seen().await,
            Seen::Frame(Xid(77), MessageKind::PacketIn)
        );
        let reply = switch.receive().await.unwrap();
        assert_eq!(
            (reply.kind(), reply.xid()),
            (MessageKind::BarrierRequest, Xid(77))
        );
        switch.echo(78).await.expect(kind);

        let view = &stage.driver.connections()[0];
        assert!(view.is_admitted);
        assert_eq!(view.peer.transport.name(), kind);
        assert_eq!(view.datapath_id, Some(DatapathId(7)));
        assert_eq!(view.session.echo_requests_answered, 1);

        tokio::io::AsyncWriteExt::shutdown(&mut switch.writer)
            .await
            .unwrap();
        assert_eq!(stage.seen().await, Seen::Down);
        assert_eq!(stage.ended().await, Ended::Peer, "{kind}");
    }
}

/// The handler of one packet-in does not return until the test says so. Ten thousand more are
/// queued behind it.
#[tokio::test]
async fn echo_and_hello_are_answered_while_the_handler_is_stuck() {
    let stage = Stage::new(DriverConfig::default());
    let mut switch = stage.up(1).await;
    switch.send(1, &packet_in(1, b"stick")).await.unwrap();
    stage.taken().await;
    for xid in 2..10_000 {
        switch.send(xid, &packet_in(1, b"more")).await.unwrap();
    }
    let waited = switch.echo(10_000).await.unwrap();
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    let mut other = stage.join(2, 1 << 16);
    other
        .set_up()
        .await
        .expect("another switch is set up meanwhile");
    assert!(other.echo(1).await.unwrap() < Duration::from_secs(10));

    let counters = stage.driver.inbox_counters();
    assert!(counters.packet_ins_shed > 8000, "{counters:?}");
    let view = &stage.driver.connections()[0];
    assert_eq!(view.packet_ins_shed, counters.packet_ins_shed);
    assert!(stage.seen.try_recv().is_err(), "the handler was stuck");
    stage.release.send(()).unwrap();
    assert_eq!(
        stage.seen().await,
        Seen::Frame(Xid(1), MessageKind::PacketIn)
    );
}

/// Messages other than packet-ins are never shed: the connection waits, and all messages arrive in
/// order.
#[tokio::test]
async fn a_full_inbox_stops_the_reading_and_loses_nothing() {
    let stage = Stage::new(DriverConfig {
        inbox: InboxConfig {
            packet_ins_max: 4,
            messages_max: 4,
            ..InboxConfig::default()
        },
        ..DriverConfig::default()
    });
    let mut switch = stage.up(1).await;
    switch.send(1, &packet_in(1, b"stick")).await.unwrap();
    stage.taken().await;
    let mut xid = 2;
    loop {
        let message = notice();
        let sent = switch.send(xid, &message);
        if tokio::time::timeout(Duration::from_millis(200), sent)
            .await
            .is_err()
        {
            break;
        }
        xid += 1;
        assert!(xid < 100_000, "never blocked");
    }
    assert!(stage.driver.inbox_counters().backpressure > 0);
    stage.release.send(()).unwrap();
    for expected in 1..xid {
        let Seen::Frame(seen, _) = stage.seen().await else {
            panic!("no frame")
        };
        assert_eq!(seen, Xid(expected));
    }
    assert_eq!(stage.driver.inbox_counters().packet_ins_shed, 0);
}

/// A message that is neither a packet-in nor an answer.
fn notice() -> Message {
    Message::Error(ErrorMessage::new(
        ErrorKind::FLOW_MOD_TABLE_FULL,
        Bytes::from_static(&[0; 8]),
    ))
}

/// The application is stuck. 1,000 messages other than packet-ins wait for it, or behind those that
/// wait for it.
#[tokio::test]
async fn an_echo_request_is_answered_behind_messages_that_the_inbox_has_no_room_for() {
    let stage = Stage::new(DriverConfig {
        inbox: InboxConfig {
            messages_max: 100,
            ..InboxConfig::default()
        },
        ..DriverConfig::default()
    });
    let mut switch = stage.up(1).await;
    switch.send(1, &packet_in(1, b"stick")).await.unwrap();
    stage.taken().await;
    for xid in 2..1002 {
        switch.send(xid, &notice()).await.unwrap();
    }
    switch.echo(5000).await.expect("answered");
    assert!(stage.driver.inbox_counters().backpressure > 0);
    stage.release.send(()).unwrap();
    for expected in 1..1002 {
        let Seen::Frame(seen, _) = stage.seen().await else {
            panic!("no frame")
        };
        assert_eq!(seen, Xid(expected));
    }
}

/// Barrier replies go before other messages. Replies that answer no barrier would do so for ever.
#[tokio::test]
async fn replies_to_barriers_that_were_not_sent_go_no_further() {
    let stage = Stage::new(DriverConfig::default());
    let mut switch = stage.up(1).await;
    for xid in 0..1000 {
        switch.send(xid, &Message::BarrierReply).await.unwrap();
    }
    switch.send(2000, &packet_in(1, b"reply")).await.unwrap();
    let first = stage.seen().await;
    assert_eq!(first, Seen::Frame(Xid(2000), MessageKind::PacketIn));
    // The barrier that was sent.
    while switch.receive().await.unwrap().kind() != MessageKind::BarrierRequest {}
    for xid in 3000..3010 {
        switch.send(xid, &Message::BarrierReply).await.unwrap();
    }
    let reply = stage.seen().await;
    assert_eq!(reply, Seen::Frame(Xid(3000), MessageKind::BarrierReply));
    switch.echo(5000).await.expect("answered");
    assert_eq!(stage.driver.connections()[0].replies_unasked, 1009);
}

#[tokio::test]
async fn a_switch_that_does_not_read_is_closed_and_costs_four_mebibytes_at_most() {
    let mut stage = Stage::new(DriverConfig::default());
    let mut switch = stage.up(1).await;
    switch.send(1, &packet_in(1, b"flood")).await.unwrap();
    assert_eq!(stage.ended().await, Ended::NotReading);
}

/// Three megabytes of the application's messages wait when the echo request arrives.
#[tokio::test]
async fn an_echo_is_answered_before_the_applications_messages_that_wait() {
    let stage = Stage::new(DriverConfig::default());
    let mut switch = stage.up(1).await;
    switch.send(1, &packet_in(1, b"burst")).await.unwrap();
    stage.seen().await;
    let wanted = Xid(4711);
    let echo = Message::EchoRequest(Bytes::new());
    switch.send(wanted.0, &echo).await.unwrap();
    // The request is read, and waits for its turn, before the switch reads on.
    while stage.driver.connections()[0].session.echo_requests_answered == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut bytes_before = 0;
    loop {
        let frame = switch.receive().await.unwrap();
        if frame.xid() == wanted && frame.kind() == MessageKind::EchoReply {
            break;
        }
        bytes_before += frame.len();
    }
    // The bytes in the pipe, the bytes being written, and one more message.
    assert!(
        bytes_before <= 4 * 65_536,
        "{bytes_before} bytes came first"
    );
}

#[tokio::test]
async fn a_peer_that_takes_no_byte_is_closed_after_ten_seconds() {
    let mut stage = Stage::new(DriverConfig {
        session: SessionConfig {
            hello_timeout: Duration::from_secs(60),
            ..SessionConfig::default()
        },
        ..DriverConfig::default()
    });
    let since = std::time::Instant::now();
    // Our HELLO does not fit.
    let _peer = stage.join(1, 8);
    assert_eq!(stage.ended().await, Ended::Stalled);
    let waited = since.elapsed().as_secs_f64();
    assert!((9.9..13.0).contains(&waited), "closed after {waited} s");
}

#[tokio::test]
async fn what_arrives_by_single_bytes_is_read_as_well() {
    let stage = Stage::new(DriverConfig::default());
    let mut switch = stage.up(1).await;
    let frame = encode(Version::V13, Xid(5), &packet_in(1, b"reply")).unwrap();
    for byte in frame.bytes() {
        switch.send_bytes(&[*byte]).await.unwrap();
    }
    assert_eq!(
        stage.seen().await,
        Seen::Frame(Xid(5), MessageKind::PacketIn)
    );
}

#[tokio::test]
async fn an_unknown_datapath_is_refused_when_the_known_ones_are_listed() {
    let mut stage = Stage::new(DriverConfig {
        allowed: Some([DatapathId(1)].into()),
        ..DriverConfig::default()
    });
    let mut known = stage.up(1).await;
    let mut stranger = stage.join(2, 1 << 16);
    stranger.set_up().await;
    assert_eq!(stage.ended().await, Ended::NotAllowed(DatapathId(2)));
    assert!(stranger.receive().await.is_none(), "closed");
    known.echo(1).await.expect("the known one stays");
    assert!(
        stage.seen.try_recv().is_err(),
        "the application heard of it"
    );
}

/// A switch whose role is lost and taken back, and lost for good.
#[tokio::test]
async fn the_application_has_a_switch_only_while_no_other_controller_serves_it() {
    let mut stage = Stage::new(DriverConfig {
        session: SessionConfig {
            is_guarded: true,
            ..SessionConfig::default()
        },
        ..DriverConfig::default()
    });
    let mut switch = stage.up(7).await;
    let lost = |generation_id| {
        Message::RoleStatus(RoleStatus {
            role: Role::Secondary,
            reason: RoleReason::PRIMARY_REQUEST,
            generation_id,
            properties: Vec::new(),
        })
    };
    // The next id, as a newcomer uses it. The switch refused a change of the application meanwhile.
    switch.send(0, &lost(1)).await;
    let refused = Message::Error(ErrorMessage::new(
        ErrorKind::IS_SLAVE,
        Bytes::from_static(&[4, 14, 0, 80, 0, 0, 0, 9]),
    ));
    switch.send(9, &refused).await;
    assert_eq!(stage.seen().await, Seen::Frame(Xid(9), MessageKind::Error));
    loop {
        let frame = switch.receive().await.unwrap();
        switch.answer(&frame).await.unwrap();
        if frame.kind() == MessageKind::RoleRequest {
            break;
        }
    }
    assert_eq!(stage.seen().await, Seen::Down);
    assert!(matches!(stage.seen().await, Seen::Up(id, _) if id.0 == 7));
    switch.send(5, &packet_in(1, b"reply")).await;
    let packet_in_seen = Seen::Frame(Xid(5), MessageKind::PacketIn);
    assert_eq!(stage.seen().await, packet_in_seen);

    // An id of a foreign controller: messages sent from now on are not for the application.
    switch.send(0, &lost(1 << 40)).await;
    switch.send(6, &packet_in(1, b"reply")).await;
    assert_eq!(stage.seen().await, Seen::Down);
    switch.echo(7).await.expect("the connection stays");
    let view = &stage.driver.connections()[0];
    assert!(view.is_aside && !view.is_admitted);
    assert!(stage.seen.try_recv().is_err());

    let mut told = Vec::new();
    while told.len() < 4 {
        let notice = tokio::time::timeout(PATIENCE, stage.notices.recv());
        told.push(match notice.await.unwrap().unwrap() {
            Notice::Up { was_aside, .. } => {
                if was_aside {
                    "again"
                } else {
                    "up"
                }
            }
            Notice::Aside { .. } => "aside",
            _ => "other",
        });
    }
    assert_eq!(told, ["up", "aside", "again", "aside"]);
    // A controller that stands by leaves the next switch to the other controller as well.
    let mut other = stage.join(8, 1 << 16);
    other.set_up().await.expect("set up");
    other.echo(1).await.expect("the connection stays");
    let of_other = |c: &ConnectionView| c.datapath_id == Some(DatapathId(8));
    loop {
        let views = stage.driver.connections();
        let view = views.iter().find(|c| of_other(c)).expect("connected");
        assert!(!view.is_admitted);
        if view.is_aside {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn bytes_that_are_not_openflow_end_only_their_own_connection() {
    let mut stage = Stage::new(DriverConfig::default());
    let mut good = stage.up(1).await;
    for (bytes, expected) in [
        (&[4, 0, 0, 7, 0, 0, 0, 0], "framing"),
        (&[4, 10, 0, 8, 0, 0, 0, 0], "session"),
        (b"GET /\r\n\r", "closed"),
    ] {
        let mut bad = stage.join(2, 1 << 16);
        bad.send_bytes(bytes).await.unwrap();
        let reason = if expected == "closed" {
            // "GET " announces a message of 0x5420 bytes: it is still awaited.
            tokio::io::AsyncWriteExt::shutdown(&mut bad.writer)
                .await
                .unwrap();
            assert_eq!(stage.ended().await, Ended::Peer);
            continue;
        } else {
            stage.ended().await
        };
        assert_eq!(reason.name(), expected, "{reason:?}");
    }
    good.echo(9).await.unwrap();
}

#[tokio::test]
async fn deadlines_of_the_session_close_silent_and_slow_peers() {
    let mut stage = Stage::new(DriverConfig {
        session: SessionConfig {
            hello_timeout: Duration::from_millis(50),
            features_timeout: Duration::from_millis(100),
            message_timeout: Duration::from_millis(50),
            echo_interval: Duration::from_millis(20),
            echo_unanswered_max: 2,
            ..SessionConfig::default()
        },
        ..DriverConfig::default()
    });
    let _silent = stage.join(1, 1 << 16);
    assert_eq!(
        stage.ended().await,
        Ended::Session(CloseReason::HelloTimeout)
    );

    let mut half = stage.join(1, 1 << 16);
    half.send(
        0,
        &Message::Hello(openflow::hello::Hello::offering(&[Version::V13])),
    )
    .await
    .unwrap();
    assert_eq!(
        stage.ended().await,
        Ended::Session(CloseReason::FeaturesTimeout)
    );

    let mut mute = stage.join(1, 1 << 16);
    mute.set_up().await.unwrap();
    assert_eq!(
        stage.ended().await,
        Ended::Session(CloseReason::EchoTimeout)
    );
    drop(half);
}

#[tokio::test]
async fn stopping_writes_what_is_queued_and_ends_everything() {
    let mut stage = Stage::new(DriverConfig::default());
    let mut switch = stage.up(1).await;
    switch.send(1, &packet_in(1, b"reply")).await.unwrap();
    stage.seen().await;
    stage.driver.stop();
    assert_eq!(
        switch.receive().await.unwrap().kind(),
        MessageKind::BarrierRequest
    );
    assert!(switch.receive().await.is_none());
    assert_eq!(stage.ended().await, Ended::Stopped);
    tokio::time::timeout(PATIENCE, stage.driver.ended())
        .await
        .expect("the application's thread has ended");
}

#[tokio::test]
async fn the_round_trip_of_an_echo_is_measured_beyond_the_next_request() {
    let interval = Duration::from_millis(20);
    let stage = Stage::new(DriverConfig {
        session: SessionConfig {
            echo_interval: interval,
            echo_unanswered_max: u32::MAX,
            ..SessionConfig::default()
        },
        ..DriverConfig::default()
    });
    let mut switch = stage.up(1).await;
    let echo = switch.receive().await.unwrap();
    assert_eq!(echo.kind(), MessageKind::EchoRequest);
    let next = switch.receive().await.unwrap();
    assert_eq!(next.kind(), MessageKind::EchoRequest);
    switch.answer(&echo).await.unwrap();
    let since = std::time::Instant::now();
    // The very first echo request was answered at once.
    let rtt = || stage.driver.connections()[0].echo_rtt;
    while rtt().is_none_or(|rtt| rtt < interval) {
        assert!(since.elapsed() < PATIENCE, "the round trip is not measured");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn the_application_is_asked_between_two_messages() {
    let stage = Stage::new(DriverConfig::default());
    let answer = stage.driver.ask(|script| script.outputs.len()).await;
    assert_eq!(answer, Some(0));
}

/// The question ends with a switch's message. Others are asked before that, and one of them panics.
#[tokio::test]
async fn a_question_in_parts_keeps_neither_switches_nor_others_waiting() {
    let stage = Stage::new(DriverConfig::default());
    let mut switch = stage.up(1).await;
    let mut parts = 0;
    let long = stage.driver.ask_in_parts(move |script| {
        parts += 1;
        (script.frames > 0).then_some(parts)
    });
    let others = async {
        let fault = stage.driver.ask(|_| panic!("as a fault of ours would"));
        assert_eq!(fault.await, None::<()>);
        assert_eq!(stage.driver.ask(|_| 1).await, Some(1));
        switch.send(1, &packet_in(1, b"words")).await;
    };
    let asked = async { tokio::join!(long, others).0 };
    let parts = tokio::time::timeout(PATIENCE, asked).await.unwrap();
    assert!(parts > Some(2), "{parts:?}");
}

#[tokio::test]
async fn plain_security_dials_plain_transports_only() {
    let pki = Pki::new();
    let mut stage = Stage::new(DriverConfig::default());
    let mut listener = listen(&passive("ssl", pki.dir.path()), &pki.controller()).await;
    let net::method::Method::Dial(_, host, port) = common::dial_method(&listener) else {
        panic!("not an address");
    };
    let plain = net::method::Method::Dial(net::method::Transport::Tcp, host, port);
    let dialled = connect(&plain, &Security::plain()).await.unwrap();
    let mut switch = Switch::new(dialled.reader, dialled.writer, 1);
    let set_up = async { switch.set_up().await };
    tokio::select! {
        done = set_up => assert!(done.is_none()),
        connection = listener.accept() => {
            stage.driver.serve(connection);
            panic!("plain bytes were accepted on a TLS port: {:?}", stage.ended().await);
        }
    }
    assert_eq!(switch.features_requests, 0);
}

/// Two thousand requests wait for a switch that does not read when the application sends a
/// packet-out. Before the packet-out, the switch reads only the bytes that were already below the
/// queues.
#[tokio::test]
async fn what_is_urgent_overtakes_what_a_slow_switch_has_not_read() {
    const BELOW_BYTES: usize = 16 << 10;
    const ECHO: u32 = 5_000_000;
    let before = |policy: PolicyMap| async {
        let config = DriverConfig {
            policy,
            ..DriverConfig::default()
        };
        let stage = Stage::new(config);
        let mut switch = stage.join(1, 4 << 10);
        switch.set_up().await.expect("set up");
        stage.seen().await;
        switch.send(1, &packet_in(1, b"backlog")).await.unwrap();
        stage.seen().await;
        switch.send(2, &packet_in(1, b"urgent")).await.unwrap();
        assert_eq!(
            stage.seen().await,
            Seen::Frame(Xid(2), MessageKind::PacketIn)
        );
        // The task has taken over the application's messages.
        switch
            .send(ECHO, &Message::EchoRequest(Bytes::new()))
            .await
            .unwrap();
        while stage.driver.connections()[0].session.echo_requests_answered == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut others = Vec::new();
        let mut bytes_before = 0;
        loop {
            let frame = switch.receive().await.unwrap();
            if frame.kind() == MessageKind::PacketOut {
                break;
            }
            bytes_before += frame.len();
            others.push(frame.xid().0);
        }
        while others.last() != Some(&(BACKLOG - 1)) {
            others.push(switch.receive().await.unwrap().xid().0);
        }
        others.retain(|xid| *xid != ECHO);
        assert!(others.into_iter().eq(0..BACKLOG), "requests stay in order");
        let sent = stage.driver.policy().sent;
        (bytes_before, sent)
    };
    let (bytes, sent) = before(PolicyMap::auster()).await;
    assert!(bytes <= BELOW_BYTES, "{bytes} bytes came first");
    assert_eq!(
        (sent[1].messages_out, sent[2].messages_out > 1000),
        (1, true)
    );
    let (bytes, _) = before(PolicyMap::none()).await;
    assert!(bytes >= BACKLOG as usize * 16, "only {bytes} bytes");
}

/// A switch that floods packet-ins, which are all answered, and reads nothing is read slowly.
#[tokio::test]
async fn who_reads_nothing_is_hardly_heard_and_the_others_are() {
    let stage = Stage::new(DriverConfig::default());
    let mut flood = stage.up(1).await;
    let mut quiet = stage.up(2).await;
    let mut bytes = Vec::new();
    let ask = encode(Version::V13, Xid(9), &packet_in(1, b"answer")).unwrap();
    while bytes.len() < 16 << 20 {
        bytes.extend_from_slice(ask.bytes());
    }
    let flooding = tokio::spawn(async move {
        let _ = flood.send_bytes(&bytes).await;
        flood
    });
    for xid in 100..150 {
        switch_is_answered(&mut quiet, xid).await;
    }
    let views = stage.driver.connections();
    let view = views.iter().find(|v| v.datapath_id == Some(DatapathId(1)));
    let view = view.expect("it is still connected");
    assert!(
        view.outbox_bytes < 2 << 20,
        "{} bytes wait",
        view.outbox_bytes
    );
    assert!(!flooding.is_finished(), "16 MiB were read of it");
    flooding.abort();
}

async fn switch_is_answered(switch: &mut Switch<Reader, Writer>, xid: u32) {
    switch.send(xid, &packet_in(1, b"reply")).await.unwrap();
    loop {
        let frame = switch.receive().await.unwrap();
        if frame.kind() == MessageKind::BarrierRequest {
            assert_eq!(frame.xid(), Xid(xid));
            return;
        }
    }
}

/// The number of messages that the session of datapath `id` has received.
fn received(stage: &Stage, id: u64) -> u64 {
    let views = stage.driver.connections();
    let view = views.iter().find(|v| v.datapath_id == Some(DatapathId(id)));
    view.expect("it is connected").session.received
}

/// While one switch floods the application, another switch's next message waits for few messages of
/// the flood: those of one turn, and of the turn that may be under way.
#[tokio::test]
async fn between_two_messages_of_a_quiet_switch_few_of_a_flood_are_taken() {
    let stage = Stage::new(DriverConfig::default());
    let mut flood = stage.join(1, 1 << 20);
    flood.set_up().await.expect("set up");
    assert!(matches!(stage.seen().await, Seen::Up(..)));
    let mut quiet = stage.up(2).await;
    // The application's messages are not in the count.
    quiet.send(1, &packet_in(1, b"stick")).await.unwrap();
    stage.taken().await;
    let some = encode(Version::V13, Xid(9), &packet_in(1, b"new")).unwrap();
    let bytes = some.bytes().repeat(5000);
    flood.send_bytes(&bytes).await.unwrap();
    for xid in 2..50 {
        let (loud, soft) = (received(&stage, 1), received(&stage, 2));
        quiet.send(xid, &packet_in(1, b"quiet")).await.unwrap();
        while received(&stage, 2) == soft {
            tokio::task::yield_now().await;
        }
        let between = received(&stage, 1) - loud;
        assert!(between <= 2 * 16, "{between} of the flood");
    }
    assert!(received(&stage, 1) < 5000, "it is still flooding");
    stage.release.send(()).unwrap();
}

/// A connection beyond its rate is not read for a while; no message is lost.
#[tokio::test]
async fn packet_ins_beyond_the_rate_wait_with_their_sender() {
    let stage = Stage::new(DriverConfig {
        packet_in_rate_max: 1000,
        ..DriverConfig::default()
    });
    let mut switch = stage.up(1).await;
    for xid in 0..300 {
        switch.send(xid, &packet_in(1, b"new")).await.unwrap();
    }
    for xid in 0..300 {
        assert_eq!(
            stage.seen().await,
            Seen::Frame(Xid(xid), MessageKind::PacketIn)
        );
    }
    assert!(stage.driver.connections()[0].rests > 0);
    assert_eq!(stage.driver.inbox_counters().packet_ins_shed, 0);
}

/// Each notice wakes its reader, so a flood of hosts is reported as a count.
#[tokio::test]
async fn of_many_hosts_a_few_are_told_of_one_by_one_and_all_are_counted() {
    let mut stage = Stage::new(DriverConfig::default());
    let mut switch = stage.up(1).await;
    switch.send(1, &packet_in(1, b"hosts")).await.unwrap();
    let (mut single, mut together) = (0, 0);
    while single + together < 10_000 {
        let notice = tokio::time::timeout(PATIENCE, stage.notices.recv());
        match notice.await.unwrap().unwrap() {
            Notice::Event(Event::HostLearned { .. }) => single += 1,
            Notice::HostsLearned(count) => together += count,
            _ => {}
        }
    }
    assert!((100..1000).contains(&single), "{single} one by one");
    assert_eq!(single + together, 10_000);
    assert_eq!(stage.driver.notices_lost(), 0);
}
