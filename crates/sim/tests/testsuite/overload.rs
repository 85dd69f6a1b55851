//! More packet-ins than the application can take: urgent messages do not wait, and only packet-ins
//! are lost, and counted.

use bytes::Bytes;
use clock::{Duration, Instant};
use control::ConnectionId;
use control::controller::ControllerConfig;
use openflow::message::PacketIn;
use openflow::packet::build::{Host, ethernet, udp};
use openflow::{
    Cookie, Frame, MacAddr, Match, Message, PortNo, TableId, Version, Xid, decode, encode,
};
use sim::network::{Network, NetworkConfig, SwitchId};
use sim::process::{Process, ProcessConfig, ProcessOutput};
use sim::topology;

fn packet_in(port: PortNo, data: Vec<u8>) -> Message {
    Message::PacketIn(PacketIn::new(port, Bytes::from(data)))
}

/// One switch sends 50,000 packet-ins a second for 2 s to an application that takes 1 ms for
/// each. Its echoes are answered in the channel's own time, and the other switch's packet waits
/// for the one in hand and for its turn, not for the flood.
#[test]
fn a_flood_delays_neither_echoes_nor_other_switches() {
    let service_time = Duration::from_millis(1);
    let process = ProcessConfig {
        service_time,
        ..ProcessConfig::default()
    };
    let control_delay = Duration::from_micros(100);
    let config = NetworkConfig {
        process,
        control_delay,
        ..NetworkConfig::default()
    };
    let mut network = Network::new(config, 1);
    let line = topology::line(&mut network, 2);
    let (flooding, victim) = (line.switches[0], line.switches[1]);
    network.run_for(Duration::from_secs(3));
    let port = network.place(line.hosts[0]).port;
    let other = network.place(line.hosts[1]).port;
    let to = Host::numbered(200);

    let mut worst_echo = Duration::ZERO;
    let mut worst_victim = Duration::ZERO;
    for n in 0..100_000u64 {
        let from = network.host(line.hosts[0]).address;
        let frame = udp(from, to, (n as u16, 7), &[0; 18]);
        network.say(flooding, Xid(0), &packet_in(port, frame));
        if n % 10_000 == 5_000 {
            let at = network.now();
            let before = network.heard(flooding, 3);
            network.say(flooding, Xid(5), &Message::EchoRequest(Bytes::new()));
            let arrived = wait(&mut network, flooding, 3, before, at);
            worst_echo = worst_echo.max(arrived);
        }
        if n % 10_000 == 9_000 {
            let at = network.now();
            let before = network.heard(flooding, 13);
            let from = network.host(line.hosts[1]).address;
            let frame = ethernet(from.mac, MacAddr::BROADCAST, 0x1234, &[0; 46]);
            network.say(victim, Xid(0), &packet_in(other, frame));
            let arrived = wait(&mut network, flooding, 13, before, at);
            worst_victim = worst_victim.max(arrived);
        }
        network.run_for(Duration::from_micros(20));
    }
    let inbox = network.process().inbox.counters();
    assert!(
        inbox.packet_ins_shed > 50_000,
        "no overload, nothing shown: {inbox:?}"
    );
    assert_eq!(inbox.backpressure, 0, "everything but packet-ins was taken");
    assert!(network.connection(flooding).is_some() && network.connection(victim).is_some());
    assert!(
        worst_echo <= Duration::from_millis(1),
        "an echo took {worst_echo:?}"
    );
    assert!(
        worst_victim <= Duration::from_millis(6),
        "the other switch waited {worst_victim:?}"
    );
    network.run_for(Duration::from_secs(5));
    assert!(network.process().inbox.is_empty(), "and it recovers");
}

/// Runs until `switch` has received one more message of `type_byte`.
fn wait(
    network: &mut Network,
    switch: SwitchId,
    type_byte: u8,
    before: u64,
    since: Instant,
) -> Duration {
    for _ in 0..10_000 {
        if network.heard(switch, type_byte) > before {
            break;
        }
        network.run_for(Duration::from_micros(10));
    }
    network.now() - since
}

/// A switch's end of a channel to a process, by hand.
struct Peer {
    process: Process,
    id: ConnectionId,
    now: Instant,
}

impl Peer {
    fn new(config: ControllerConfig) -> Peer {
        let config = ProcessConfig {
            controller: config,
            ..ProcessConfig::default()
        };
        let mut peer = Peer {
            process: Process::new(config, 1),
            id: ConnectionId(1),
            now: Instant::START,
        };
        peer.process.handle_accept(peer.now, peer.id);
        peer
    }

    fn say(&mut self, xid: u32, message: &Message) {
        let frame = encode(Version::V13, Xid(xid), message).expect("sayable");
        self.process.handle_frame(self.now, self.id, frame);
    }

    fn hear(&mut self) -> Vec<Frame> {
        let mut heard = Vec::new();
        while let Some(output) = self.process.poll_output() {
            if let ProcessOutput::Send(_, frame) = output {
                heard.push(frame);
            }
        }
        heard
    }
}

/// A multipart reply without end is abandoned after a number of bytes, and the channel goes on.
#[test]
fn a_multipart_reply_without_end_is_given_up() {
    use openflow::message::MultipartReply;
    use openflow::multipart::ReplyBody;
    let mut switch = openflow::table::Switch::with_ports([1, 2]);
    let mut peer = Peer::new(ControllerConfig::default());
    let hello = openflow::hello::Hello::offering(&[Version::V13]);
    peer.say(1, &Message::Hello(hello));
    let mut entries_xid = None;
    while entries_xid.is_none() {
        for frame in peer.hear() {
            let message = decode(&frame).expect("readable");
            if format!("{message:?}").contains("body: Flow(") {
                entries_xid = Some(frame.xid().0);
                continue;
            }
            if matches!(message, Message::PacketOut(_) | Message::Error(_)) {
                continue;
            }
            for reply in switch.apply(peer.now, &message).expect("applied") {
                peer.say(frame.xid().0, &reply);
            }
        }
    }
    let xid = entries_xid.expect("the controller asks what there is");
    let row = openflow::multipart::FlowStats {
        table_id: TableId(0),
        duration_sec: 0,
        duration_nsec: 0,
        priority: 1,
        idle_timeout: 0,
        hard_timeout: 0,
        flags: Default::default(),
        cookie: Cookie(1),
        packet_count: 0,
        byte_count: 0,
        r#match: Match::any(),
        instructions: Vec::new(),
        importance: 0,
        stats: Vec::new(),
    };
    let part = MultipartReply {
        more: true,
        body: ReplyBody::Flow(vec![row; 1000]),
    };
    let part = Message::MultipartReply(part);
    let mut parts = 0;
    // Without an answer the controller sends the switch the least that it needs.
    let given_up = |frames: Vec<Frame>| frames.iter().any(|frame| frame.type_byte() == 14);
    while !given_up(peer.hear()) {
        peer.say(xid, &part);
        parts += 1;
        assert!(parts < 1000, "56 MB are read");
    }
    assert!(parts > 100, "{parts} parts");
    peer.say(xid, &part);
    assert!(
        peer.process.controller.counters().unsolicited >= 1,
        "and the rest is nobody's"
    );
}

/// Sends 1,000 replies that answer no request.
#[test]
fn forged_replies_change_nothing() {
    let mut network = Network::new(NetworkConfig::default(), 1);
    let line = topology::line(&mut network, 2);
    network.run_for(Duration::from_secs(2));
    network.ping(line.hosts[0], line.hosts[1], 1);
    network.run_for(Duration::from_millis(100));
    let state = |n: &Network| {
        let c = &n.process().controller;
        let mods = line.switches.iter().map(|s| n.heard(*s, 14)).sum::<u64>();
        (c.switches(), c.links(), c.hosts(), c.path_count(), mods)
    };
    let before = state(&network);
    for n in 0..1000u32 {
        let xid = Xid(0x1000_0000 + n);
        let message = match n % 3 {
            0 => Message::BarrierReply,
            1 => network
                .switch(line.switches[0])
                .clone()
                .apply(network.now(), &ask())
                .expect("rows")
                .remove(0),
            _ => Message::FlowRemoved(openflow::message::FlowRemoved {
                cookie: Cookie(u64::from(n)),
                priority: 2000,
                reason: openflow::message::FlowRemovedReason::IDLE_TIMEOUT,
                table_id: TableId(0),
                duration_sec: 1,
                duration_nsec: 0,
                idle_timeout: 1,
                hard_timeout: 0,
                packet_count: 0,
                byte_count: 0,
                r#match: Match::any(),
                stats: Vec::new(),
            }),
        };
        network.say(line.switches[0], xid, &message);
    }
    network.run_for(Duration::from_millis(500));
    assert_eq!(state(&network), before);
    assert!(network.process().controller.counters().unsolicited >= 1000);
}

fn ask() -> Message {
    use openflow::message::MultipartRequest;
    use openflow::multipart::{FlowStatsRequest, RequestBody};
    let body = RequestBody::Flow(FlowStatsRequest::all());
    Message::MultipartRequest(MultipartRequest { more: false, body })
}
