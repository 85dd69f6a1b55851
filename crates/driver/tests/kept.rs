//! Plain TCP connections that continue in another driver.

#[path = "../../net/tests/common/mod.rs"]
mod common;

use std::collections::VecDeque;
use std::sync::mpsc;

use bytes::Bytes;
use clock::Instant;
use common::listen;
use common::switch::{PATIENCE, Switch, packet_in};
use control::ConnectionId;
use control::controller::{Admission, ControllerOutput, PeerIdentity};
use control::session::SwitchUp;
use driver::{Application, Driver, DriverConfig, Kept};
use net::clock::Clock;
use net::tls::Security;
use net::transport::Listener;
use openflow::{Frame, Message, MessageKind, Version, Xid, encode};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// The bytes of one message of the application, and the number of messages sent for a packet-in:
/// more than sockets hold.
const LONG: usize = 60_000;
const COUNT: u32 = 40;

/// Answers each packet-in with messages that the switch does not read in time.
struct Wordy {
    seen: mpsc::Sender<Option<u32>>,
    outputs: VecDeque<ControllerOutput>,
}

impl Application for Wordy {
    fn handle_up(
        &mut self,
        _now: Instant,
        _connection: ConnectionId,
        _up: SwitchUp,
        _peer: PeerIdentity,
    ) -> Admission {
        self.seen.send(None).unwrap();
        Admission::Admitted
    }

    fn handle_frame(&mut self, _now: Instant, connection: ConnectionId, frame: Frame) {
        self.seen.send(Some(frame.xid().0)).unwrap();
        for xid in 0..COUNT {
            let echo = Message::EchoRequest(Bytes::from(vec![0; LONG]));
            let frame = encode(Version::V13, Xid(xid), &echo).unwrap();
            let output = ControllerOutput::Send { connection, frame };
            self.outputs.push_back(output);
        }
    }

    fn handle_down(&mut self, _now: Instant, _connection: ConnectionId) {}

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_output(&mut self) -> Option<ControllerOutput> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        None
    }
}

struct Process {
    driver: Driver<Wordy>,
    seen: mpsc::Receiver<Option<u32>>,
}

impl Process {
    fn start(number: u64) -> Process {
        let (sender, seen) = mpsc::channel();
        let wordy = Wordy {
            seen: sender,
            outputs: VecDeque::new(),
        };
        let config = DriverConfig {
            winding_up_max: PATIENCE,
            seed: number,
            ..DriverConfig::default()
        };
        let (driver, _) = Driver::start(wordy, Clock::start(), config).unwrap();
        Process { driver, seen }
    }

    /// The application's next event: the xid of a message, or a switch that is up.
    async fn sees(&self) -> Option<u32> {
        let since = std::time::Instant::now();
        loop {
            if let Ok(seen) = self.seen.try_recv() {
                return seen;
            }
            assert!(since.elapsed() < PATIENCE, "nothing seen");
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
}

type TcpSwitch = Switch<OwnedReadHalf, OwnedWriteHalf>;

async fn dial(listener: &mut Listener, process: &Process) -> TcpSwitch {
    let local = listener.local().to_string();
    let port: u16 = local.split(':').nth(1).unwrap().parse().unwrap();
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (reader, writer) = stream.into_split();
    process.driver.serve(listener.accept().await);
    let mut switch = Switch::new(reader, writer, 7);
    switch.set_up().await.expect("set up");
    assert_eq!(process.sees().await, None);
    switch
}

/// An echo request is cut at every position while the application's messages are under way.
#[tokio::test]
async fn both_directions_are_at_the_end_of_a_message() {
    let mut listener = listen("ptcp:0:127.0.0.1", &Security::plain()).await;
    let encoded = |xid, message: &Message| encode(Version::V13, Xid(xid), message).unwrap();
    let word = encoded(5, &Message::EchoRequest(Bytes::from_static(b"word")));
    for cut in 1..word.len() {
        let former = Process::start(1);
        let mut switch = dial(&mut listener, &former).await;
        let asking = encoded(4, &packet_in(1, b"words"));
        let begun = [asking.bytes(), &word.bytes()[..cut]].concat();
        switch.send_bytes(&begun).await.unwrap();
        assert_eq!(former.sees().await, Some(4));
        former.driver.hold(PATIENCE).await;
        former.driver.stop_and_keep();
        let after = encoded(6, &packet_in(1, b"for the next"));
        let rest = [&word.bytes()[cut..], after.bytes()].concat();
        switch.send_bytes(&rest).await.unwrap();
        let (mut words, mut is_answered) = (0, false);
        while words < COUNT || !is_answered {
            let frame = switch.receive().await.expect("no end");
            match frame.kind() {
                MessageKind::EchoReply => is_answered = frame.xid().0 == 5,
                MessageKind::EchoRequest if frame.len() > LONG => words += 1,
                other => assert_eq!(other, MessageKind::EchoRequest),
            }
        }
        former.driver.ended().await;
        let kept = former.driver.kept();
        assert!(former.driver.kept().is_empty());
        let [Kept { version, socket }] = <[Kept; 1]>::try_from(kept).expect("one");
        assert_eq!(version, Version::V13);
        drop(former);

        let next = Process::start(2);
        assert!(listener.has_accepted(&socket));
        let connection = listener.adopt(socket).expect("it fits");
        next.driver.serve_kept(connection, version);
        while next.seen.try_recv().is_err() {
            let frame = switch.receive().await.expect("no end");
            assert_ne!(frame.kind(), MessageKind::Hello);
            switch.answer(&frame).await.expect("no end");
            tokio::task::yield_now().await;
        }
        assert_eq!(next.sees().await, Some(6), "cut at {cut}");
    }
}

/// A connection whose switch is not up, or that is no plain TCP, ends.
#[tokio::test]
async fn what_cannot_go_on_ends() {
    let listener = &mut listen("ptcp:0:127.0.0.1", &Security::plain()).await;
    let process = Process::start(1);
    let mut served = dial(listener, &process).await;
    let (ours, theirs) = net::transport::memory(1 << 16);
    process.driver.serve(ours);
    let mut inside = Switch::new(theirs.reader, theirs.writer, 8);
    inside.set_up().await.expect("set up");
    assert_eq!(process.sees().await, None);
    let port: u16 = {
        let local = listener.local().to_string();
        local.split(':').nth(1).unwrap().parse().unwrap()
    };
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    process.driver.serve(listener.accept().await);
    let (reader, writer) = stream.into_split();
    let mut silent = Switch::new(reader, writer, 9);

    process.driver.hold(PATIENCE).await;
    process.driver.stop_and_keep();
    while inside.receive().await.is_some() {}
    while silent.receive().await.is_some() {}
    process.driver.ended().await;
    let kept = process.driver.kept();
    assert_eq!(kept.len(), 1);
    let ends = process.driver.ends();
    assert_eq!(
        (ends.get("kept"), ends.get("stopped")),
        (Some(&1), Some(&2))
    );
    drop(kept);
    while served.receive().await.is_some() {}
}
