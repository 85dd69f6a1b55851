//! The connection's task with its edge: the order of the messages sent, and who waits for whom.

#[path = "../../net/tests/common/mod.rs"]
mod common;

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use clock::Instant;
use common::switch::{PATIENCE, Switch};
use control::ConnectionId;
use control::controller::{Admission, ControllerOutput, PeerIdentity};
use control::edge::{EdgeConfig, EdgeUpdate};
use control::pipeline::Numbering;
use control::session::SwitchUp;
use control::vlan::HostKey;
use driver::{Application, ConnectionView, Driver, DriverConfig, Ended, Notice};
use net::clock::Clock;
use net::transport::{Reader, Writer, memory};
use openflow::message::PacketIn;
use openflow::{Frame, MacAddr, Message, MessageKind, PortNo, Version, Xid, encode};
use tokio::sync::mpsc;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// Behind the same port as B.
const C: MacAddr = MacAddr([2, 0, 0, 0, 0, 3]);

/// Reports its hosts to each edge. A BARRIER_REPLY makes it forget one of them, between two
/// barriers; an EXPERIMENTER makes it wait until the test says so.
struct Script {
    outputs: VecDeque<ControllerOutput>,
    seen: std_mpsc::Sender<Xid>,
    release: std_mpsc::Receiver<()>,
}

impl Application for Script {
    fn handle_up(
        &mut self,
        _now: Instant,
        connection: ConnectionId,
        up: SwitchUp,
        _peer: PeerIdentity,
    ) -> Admission {
        let config = EdgeConfig {
            version: up.version,
            generation: 1,
            idle_timeout_s: 0,
            hard_timeout_s: 0,
            seed: 1,
            numbering: Numbering::Plain,
        };
        let updates = [
            EdgeUpdate::Start(config),
            EdgeUpdate::Open(PortNo(1)),
            EdgeUpdate::Open(PortNo(2)),
            EdgeUpdate::Host {
                host: HostKey::untagged(A),
                port: PortNo(1),
            },
            EdgeUpdate::Host {
                host: HostKey::untagged(B),
                port: PortNo(2),
            },
            EdgeUpdate::Host {
                host: HostKey::untagged(C),
                port: PortNo(2),
            },
        ];
        let outputs = updates.map(|update| ControllerOutput::Edge { connection, update });
        self.outputs.extend(outputs);
        self.barrier(connection, 1);
        Admission::Admitted
    }

    fn handle_frame(&mut self, _now: Instant, connection: ConnectionId, frame: Frame) {
        match frame.kind() {
            MessageKind::BarrierReply if frame.xid() == Xid(100) => {
                self.barrier(connection, 101);
                let update = EdgeUpdate::Forget(HostKey::untagged(B));
                self.outputs
                    .push_back(ControllerOutput::Edge { connection, update });
                self.barrier(connection, 102);
            }
            MessageKind::BarrierReply if frame.xid() == Xid(200) => {
                self.release.recv_timeout(PATIENCE).unwrap();
            }
            _ => {}
        }
        let _ = self.seen.send(frame.xid());
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

impl Script {
    fn barrier(&mut self, connection: ConnectionId, xid: u32) {
        let frame = encode(Version::V13, Xid(xid), &Message::BarrierRequest).unwrap();
        self.outputs
            .push_back(ControllerOutput::Send { connection, frame });
    }
}

struct Stage {
    driver: Driver<Script>,
    notices: mpsc::Receiver<Notice>,
    seen: std_mpsc::Receiver<Xid>,
    release: std_mpsc::Sender<()>,
}

impl Stage {
    fn new() -> Stage {
        let (seen_sender, seen) = std_mpsc::channel();
        let (release, release_receiver) = std_mpsc::channel();
        let script = Script {
            outputs: VecDeque::new(),
            seen: seen_sender,
            release: release_receiver,
        };
        let (driver, notices) =
            Driver::start(script, Clock::start(), DriverConfig::default()).unwrap();
        Stage {
            driver,
            notices,
            seen,
            release,
        }
    }

    /// A switch whose edge knows its hosts and has shown the application a packet of port 1.
    async fn ready(&self, datapath_id: u64, pipe_bytes: usize) -> Switch<Reader, Writer> {
        let (ours, theirs) = memory(pipe_bytes);
        self.driver.serve(ours);
        let mut switch = Switch::new(theirs.reader, theirs.writer, datapath_id);
        switch.set_up().await.expect("set up");
        // The updates precede the barrier.
        while switch.receive().await.unwrap().kind() != MessageKind::BarrierRequest {}
        let first = packet_in_for(C, 7);
        switch.send_bytes(first.bytes()).await.unwrap();
        assert_eq!(self.seen().await, Xid(7));
        let answer = kinds(&mut switch, 2).await;
        assert_eq!(answer, [MessageKind::PacketOut, MessageKind::FlowMod]);
        switch
    }

    async fn seen(&self) -> Xid {
        let since = std::time::Instant::now();
        loop {
            if let Ok(seen) = self.seen.try_recv() {
                return seen;
            }
            assert!(since.elapsed() < PATIENCE, "nothing seen");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn view(&self, datapath_id: u64) -> ConnectionView {
        let mut views = self.driver.connections().into_iter();
        let found = views.find(|view| view.datapath_id.is_some_and(|id| id.0 == datapath_id));
        found.unwrap()
    }
}

/// A packet-in from A for B that is not ARP: ARP is left to the controller.
fn packet_in(xid: u32) -> Frame {
    packet_in_for(B, xid)
}

fn packet_in_for(dst: MacAddr, xid: u32) -> Frame {
    let mut data = vec![0; 60];
    data[..6].copy_from_slice(&dst.0);
    data[6..12].copy_from_slice(&A.0);
    data[12..14].copy_from_slice(&[0x08, 0]);
    let message = Message::PacketIn(PacketIn {
        total_len: 60,
        ..PacketIn::new(PortNo(1), data.into())
    });
    encode(Version::V13, Xid(xid), &message).unwrap()
}

fn packet_ins(count: usize) -> Vec<u8> {
    packet_in(0).bytes().repeat(count)
}

fn echo(xid: u32) -> Frame {
    encode(
        Version::V13,
        Xid(xid),
        &Message::EchoRequest(bytes::Bytes::new()),
    )
    .unwrap()
}

async fn kinds(switch: &mut Switch<Reader, Writer>, count: usize) -> Vec<MessageKind> {
    let mut kinds = Vec::new();
    for _ in 0..count {
        kinds.push(switch.receive().await.unwrap().kind());
    }
    kinds
}

#[tokio::test]
async fn packet_ins_are_answered_here_and_echoes_before_them() {
    use MessageKind as K;
    let stage = Stage::new();
    let mut switch = stage.ready(1, 1 << 16).await;
    let mut bytes = packet_ins(3);
    bytes.extend_from_slice(echo(9).bytes());
    bytes.extend_from_slice(&packet_ins(2));
    switch.send_bytes(&bytes).await.unwrap();
    let found = kinds(&mut switch, 7).await;
    let mut sorted = found.clone();
    sorted.sort_by_key(|kind| format!("{kind:?}"));
    let all = [
        K::EchoReply,
        K::FlowMod,
        K::PacketOut,
        K::PacketOut,
        K::PacketOut,
        K::PacketOut,
        K::PacketOut,
    ];
    assert_eq!(sorted, all, "{found:?}");
    assert_eq!(found[0], K::EchoReply, "{found:?}");
    assert_eq!(
        found[2],
        K::FlowMod,
        "the first packet, then its entry: {found:?}"
    );

    let view = stage.view(1);
    assert_eq!(
        (
            view.edge.packet_ins,
            view.edge.flow_mods,
            view.edge.packet_outs
        ),
        (1 + 5, 1 + 1, 1 + 5)
    );
    // HELLO, features, description, ports, and the echo reply that ended the set-up.
    assert_eq!(view.session.received, 5 + 1 + 5 + 1);
    assert!(stage.seen.try_recv().is_err(), "the application saw one");
}

#[tokio::test]
async fn what_the_edge_is_told_keeps_its_place_among_what_is_sent() {
    use MessageKind as K;
    let stage = Stage::new();
    let mut switch = stage.ready(1, 1 << 16).await;
    switch.send(100, &Message::BarrierReply).await.unwrap();
    let found = kinds(&mut switch, 4).await;
    assert_eq!(
        found,
        [K::BarrierRequest, K::FlowMod, K::FlowMod, K::BarrierRequest]
    );
    // B is forgotten: packets for B go through the application again.
    switch.send_bytes(packet_in(8).bytes()).await.unwrap();
    assert_eq!(stage.seen().await, Xid(100));
    assert_eq!(stage.seen().await, Xid(8));
}

/// The switch sends packet-ins without end and reads nothing.
#[tokio::test]
async fn a_switch_that_does_not_read_its_answers_is_not_read_and_closes_alone() {
    let mut stage = Stage::new();
    let mut deaf = stage.ready(1, 1 << 16).await;
    let mut other = stage.ready(2, 1 << 16).await;
    let many = packet_ins(100);
    let mut sent = 0;
    while tokio::time::timeout(Duration::from_millis(500), deaf.send_bytes(&many))
        .await
        .is_ok()
    {
        sent += 100;
        assert!(sent < 100_000, "it is read for ever");
    }
    let view = stage.view(1);
    let answer_bytes = 60 * view.edge.packet_outs;
    assert!(
        answer_bytes < (256 + 64 + 64 + 64) << 10,
        "{answer_bytes} bytes wait"
    );
    other.echo(5).await.expect("the other is served");
    loop {
        let notice = tokio::time::timeout(PATIENCE, stage.notices.recv()).await;
        if let Notice::Down {
            reason,
            datapath_id,
            ..
        } = notice.unwrap().unwrap()
        {
            assert_eq!((reason, datapath_id.unwrap().0), (Ended::Stalled, 1));
            break;
        }
    }
    other.echo(6).await.expect("the other is served still");
}

/// Forty thousand packet-ins wait to be read when the other switch sends one message.
#[tokio::test]
async fn a_flood_costs_the_others_of_its_thread_some_turns_of_it() {
    let stage = Stage::new();
    let mut flood = stage.ready(1, 32 << 20).await;
    let mut quiet = stage.ready(2, 1 << 16).await;
    const FLOOD: usize = 40_000;
    let before = stage.view(1).session.received;
    // Both have arrived before the driver's tasks run again: this task has the only thread.
    let bytes = packet_ins(FLOOD);
    flood.send_bytes(&bytes).await.unwrap();
    quiet.send_bytes(echo(77).bytes()).await.unwrap();
    let reply = quiet.receive().await.unwrap();
    assert_eq!(
        (reply.kind(), reply.xid()),
        (MessageKind::EchoReply, Xid(77))
    );
    let taken = stage.view(1).session.received - before;
    assert!(taken < FLOOD as u64 / 2, "{taken} packet-ins came first");
    while stage.view(1).session.received - before < FLOOD as u64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The switch connects and disconnects before the application could learn of it.
#[tokio::test]
async fn that_a_switch_is_up_is_never_told_after_it_is_down() {
    let mut stage = Stage::new();
    let mut first = stage.ready(1, 1 << 16).await;
    first.send(200, &Message::BarrierReply).await.unwrap();
    while stage.view(1).inbox_backlog > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for datapath_id in 2..12 {
        let (ours, theirs) = memory(1 << 16);
        let (_, served) = stage.driver.serve(ours);
        let mut switch = Switch::new(theirs.reader, theirs.writer, datapath_id);
        switch.set_up().await.expect("set up");
        drop(switch);
        served.await.unwrap();
    }
    stage.release.send(()).unwrap();
    let mut told = BTreeMap::<u64, Vec<&str>>::new();
    while told.len() < 11 || told.iter().any(|(id, words)| *id > 1 && words.len() < 2) {
        let notice = tokio::time::timeout(PATIENCE, stage.notices.recv()).await;
        match notice.unwrap_or_else(|_| panic!("{told:?}")).unwrap() {
            Notice::Up { datapath_id, .. } => told.entry(datapath_id.0).or_default().push("up"),
            Notice::Down {
                datapath_id,
                was_up,
                ..
            } => {
                assert!(was_up);
                told.entry(datapath_id.unwrap().0).or_default().push("down");
            }
            Notice::Event(_) | Notice::HostsLearned(_) | Notice::Aside { .. } => {}
        }
    }
    for (datapath_id, words) in told {
        let expected: &[&str] = if datapath_id == 1 {
            &["up"]
        } else {
            &["up", "down"]
        };
        assert_eq!(words, expected, "{datapath_id}");
    }
}
