//! Connections of switches outlive `auster run`, with a service manager that stores them
//! (`scripts/manager.py`).

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{ChildStdin, Command, Stdio};

use bytes::Bytes;
use openflow::message::ErrorMessage;
use openflow::{ErrorKind, Message, MessageKind};
use tokio::io::AsyncWriteExt;

use super::intent::eventually;
use super::ovs::Ovs;
use super::ports::free_port;
use super::{Auster, dial, packet_in};

const MANAGER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/manager.py");

/// `auster run` as a service.
struct Service {
    auster: Auster,
    commands: ChildStdin,
}

impl Service {
    /// A service that listens on `port`, and is not started.
    fn new(port: u16, words: &[&str]) -> Service {
        Service::of("--store", port, words)
    }

    fn of(store: &str, port: u16, words: &[&str]) -> Service {
        let mut command = Command::new("python3");
        command
            .args([MANAGER, store, "--listen", &format!("127.0.0.1:{port}")])
            .args([env!("CARGO_BIN_EXE_auster"), "run"])
            .arg(format!("ptcp:{port}:127.0.0.1"))
            .args(words)
            .stdin(Stdio::piped());
        let mut auster = Auster::spawn(command);
        let commands = auster.child.stdin.take().unwrap();
        Service { auster, commands }
    }

    /// Sends a command, and returns the number in the manager's answer. The manager's program may
    /// write into the same line.
    fn order(&mut self, command: &str, answer: &str) -> usize {
        writeln!(self.commands, "{command}").unwrap();
        let answer = format!("manager: {answer} ");
        let line = self.auster.line(&answer);
        let number = line.split(&answer).nth(1).unwrap();
        let end = number.find(|c: char| !c.is_ascii_digit());
        number[..end.unwrap_or(number.len())].parse().unwrap()
    }

    fn start(&mut self) -> usize {
        self.order("start", "started with")
    }

    fn stop(&mut self) -> usize {
        self.order("stop", "ended and left")
    }

    fn peer(&self) -> Option<String> {
        let status = self.auster.status();
        Some(status["switches"].get(0)?["address"].as_str()?.to_owned())
    }
}

/// The switch sees no end of its connection, and keeps its entries; a packet of two hosts that have
/// not spoken before gets through.
#[test]
fn a_real_switch_keeps_its_connection_and_its_entries() {
    let state = tempfile::tempdir().unwrap();
    let port = free_port();
    let words = ["--api", "0", "--state", state.path().to_str().unwrap()];
    let mut service = Service::new(port, &words);
    assert_eq!(service.start(), 0);
    let ovs = Ovs::start();
    let controller = format!("tcp:127.0.0.1:{port}");
    ovs.add_bridge("br0", "00000000000000e0", "OpenFlow13", &controller);
    ovs.add_captured_port("p1");
    ovs.add_captured_port("p2");
    let peer = |service: &Service| {
        let mut peer = None;
        eventually("the switch", || {
            peer = service.peer();
            peer.is_some()
        });
        peer
    };
    let before = peer(&service);
    let frame = |n: u8| {
        let mut frame = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x88, 0xb5];
        frame.extend([n; 50]);
        frame
    };
    let back = |n: u8| {
        let mut frame = frame(n);
        frame.swap(5, 11);
        frame
    };
    eventually("both hosts are known", || {
        ovs.receive("p1", &frame(1));
        ovs.receive("p2", &back(1));
        ovs.sent_by("p2", &frame(1)) > 0 && ovs.sent_by("p1", &back(1)) > 0
    });
    // Without the entry of a start, which exists for a second.
    let entries = || -> BTreeSet<String> {
        let entries = ovs.flows("br0");
        let lines = entries
            .lines()
            .filter(|line| !line.contains("hard_timeout"));
        lines.map(str::to_owned).collect()
    };
    let had = entries();

    for round in 2..5 {
        assert_eq!(service.stop(), 1, "round {round}");
        ovs.receive("p1", &frame(round));
        assert_eq!(service.start(), 1, "round {round}");
        assert_eq!(peer(&service), before);
        eventually("packets get through", || {
            ovs.receive("p2", &back(round));
            ovs.sent_by("p1", &back(round)) > 0 && ovs.sent_by("p2", &frame(round)) > 0
        });
        // Entries of a fabric that came up late may have been added since.
        let gone: Vec<_> = had.difference(&entries()).cloned().collect();
        assert_eq!(gone, [] as [String; 0], "round {round}");
    }
    let mut status = String::new();
    // The switch writes this every five seconds.
    eventually("the switch's view", || {
        status = ovs.asked(&["--bare", "--columns=status", "list", "controller"]);
        status.contains("state=ACTIVE")
    });
    assert!(!status.contains("sec_since_disconnect"), "{status}");
    assert!(!status.contains("last_error"), "{status}");

    writeln!(service.commands, "kill").unwrap();
    service.auster.line("manager: ended and left 0");
}

/// The next process takes the messages that a switch sent while no process ran. Answers to the
/// process before have no effect. A switch that is in the middle of a message loses its connection.
#[tokio::test]
async fn a_connection_goes_on_at_the_end_of_a_message() {
    let port = free_port();
    let mut service = Service::new(port, &[]);
    service.start();
    let mut switch = dial(port, 0xe1).await;
    switch.set_up().await.expect("set up");
    service.auster.line("00000000000000e1 up");
    let mut stalled = dial(port, 0xe2).await;
    stalled.set_up().await.expect("set up");
    service.auster.line("00000000000000e2 up");

    // A process that has answered the first message has read the beginning of the second.
    let words = [4, 2, 0, 8, 0, 0, 0, 9, 4, 2, 0, 12, 0];
    stalled.writer.write_all(&words).await.unwrap();
    while stalled.receive().await.expect("no end").xid().0 != 9 {}
    assert_eq!(service.stop(), 1);
    while stalled.receive().await.is_some() {}

    // No process is running.
    switch.send(1, &Message::BarrierReply).await.unwrap();
    let wrong = Message::Error(ErrorMessage::new(ErrorKind::BAD_TYPE, Default::default()));
    switch.send(2, &wrong).await.unwrap();
    switch.send(3, &packet_in(1, b"no packet")).await.unwrap();
    let hello = Bytes::from_static(b"anybody");
    switch.send(77, &Message::EchoRequest(hello)).await.unwrap();
    let asked = switch.features_requests;
    assert_eq!(service.start(), 1);
    let mut is_answered = false;
    while !is_answered || switch.features_requests == asked {
        let frame = switch.receive().await.expect("no end");
        is_answered |= frame.kind() == MessageKind::EchoReply && frame.xid().0 == 77;
        assert_ne!(
            frame.kind(),
            MessageKind::Error,
            "stale answers are no mistakes"
        );
        if frame.kind() != MessageKind::EchoReply {
            switch.answer(&frame).await.expect("no end");
        }
    }
    let answering = async {
        while let Some(frame) = switch.receive().await {
            switch.answer(&frame).await;
        }
    };
    let up = tokio::task::spawn_blocking(move || {
        service.auster.line("00000000000000e1 up");
        service
    });
    tokio::select! {
        () = answering => panic!("the connection has ended"),
        service = up => drop(service.unwrap()),
    }
}

/// A stored descriptor that is no connection is closed, and nothing else ends.
#[tokio::test]
async fn what_is_no_connection_is_closed() {
    let port = free_port();
    let mut service = Service::new(port, &[]);
    let junk = service.order("junk", "put in");
    assert_eq!(service.start(), junk);
    let mut switch = dial(port, 0xe3).await;
    switch.set_up().await.expect("set up");
    service.auster.line("00000000000000e3 up");
    assert_eq!(service.stop(), 1, "the store had nothing else");
}

/// Neither a manager without a store nor a process that is killed keeps a connection open.
#[tokio::test]
async fn otherwise_connections_end() {
    for (store, how) in [("--store", "kill"), ("--no-store", "stop")] {
        let port = free_port();
        let mut service = Service::of(store, port, &[]);
        service.start();
        let mut switch = dial(port, 0xe4).await;
        switch.set_up().await.expect("set up");
        service.auster.line("00000000000000e4 up");
        assert_eq!(service.order(how, "ended and left"), 0);
        while switch.receive().await.is_some() {}
    }
}
