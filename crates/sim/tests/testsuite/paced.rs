//! However much there is to send, a switch is sent no more than one window that it has not
//! confirmed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use clock::{Duration, Instant};
use control::ConnectionId;
use control::controller::{
    Admission, Controller, ControllerConfig, ControllerOutput, Mode, PeerIdentity,
};
use control::session::SwitchUp;
use openflow::message::{MultipartReply, PacketIn, PortReason, PortState, PortStatus, Role};
use openflow::multipart::{ReplyBody, RequestBody};
use openflow::packet::build::ethernet;
use openflow::table::{Switch, plain_port};
use openflow::{DatapathId, Frame, MacAddr, Message, PortNo, Version, Xid, decode, encode};

/// A controller and switches that answer on request.
struct Bench {
    controller: Controller,
    now: Instant,
    switches: BTreeMap<ConnectionId, Peer>,
    /// LLDP goes from port to port.
    links: Vec<((u64, u32), (u64, u32))>,
}

#[derive(Default)]
struct Peer {
    /// Flow-mods sent to the switch, by destination and in-port.
    flow_mods: BTreeSet<(Option<u128>, Option<PortNo>, u16)>,
    flow_mod_count: usize,
    barriers: VecDeque<(Xid, usize)>,
    /// Bytes that the switch has not confirmed, and their maximum.
    bytes: usize,
    bytes_max: usize,
}

fn mac(n: u64) -> MacAddr {
    MacAddr::from_u64(0x0200_0000_0000 | n)
}

impl Bench {
    fn new(mode: Mode) -> Bench {
        let config = ControllerConfig {
            mode,
            // Here the pace of switches limits paths, and not the budget of a port.
            path_rate_max: 1_000_000,
            ..ControllerConfig::default()
        };
        Bench {
            controller: Controller::new(config, [3; 32]),
            now: Instant::START,
            switches: BTreeMap::new(),
            links: Vec::new(),
        }
    }

    /// Connects a switch that has no entries.
    fn connect(&mut self, connection: u64, dpid: u64) {
        let switch = Switch::with_ports([1, 2, 3]);
        let mut features = switch.features();
        features.datapath_id = DatapathId(dpid);
        let up = SwitchUp {
            version: Version::V13,
            features,
            ports: switch.ports().cloned().collect(),
            description: None,
            role: Role::Equal,
        };
        let id = ConnectionId(connection);
        self.switches.insert(id, Peer::default());
        let peer = PeerIdentity::default();
        let admitted = self.controller.handle_up(self.now, id, up, peer);
        assert_eq!(admitted, Admission::Admitted);
        self.drain();
    }

    fn say(&mut self, connection: ConnectionId, xid: Xid, message: &Message) {
        let frame = encode(Version::V13, xid, message).expect("sayable");
        self.controller.handle_frame(self.now, connection, frame);
        self.drain();
    }

    fn packet_in(&mut self, connection: u64, port: u32, data: Vec<u8>) {
        let message = Message::PacketIn(PacketIn::new(PortNo(port), Bytes::from(data)));
        self.say(ConnectionId(connection), Xid(0), &message);
    }

    /// A packet of one host to another, at the port of the first.
    fn packet(&mut self, connection: u64, port: u32, from: u64, to: u64) {
        self.packet_in(
            connection,
            port,
            ethernet(mac(from), mac(to), 0x1234, &[0; 46]),
        );
    }

    fn drain(&mut self) {
        let mut answers = Vec::new();
        while let Some(output) = self.controller.poll_output() {
            if let ControllerOutput::Send { connection, frame } = output {
                self.hear(connection, &frame, &mut answers);
            }
        }
        for (connection, xid, message) in answers {
            self.say(connection, xid, &message);
        }
    }

    fn hear(
        &mut self,
        connection: ConnectionId,
        frame: &Frame,
        answers: &mut Vec<(ConnectionId, Xid, Message)>,
    ) {
        let peer = self.switches.get_mut(&connection).expect("connected");
        let message = decode(frame).expect("readable");
        if !matches!(message, Message::PacketOut(_)) {
            peer.bytes += frame.len();
            peer.bytes_max = peer.bytes_max.max(peer.bytes);
        }
        match message {
            Message::BarrierRequest => peer.barriers.push_back((frame.xid(), peer.bytes)),
            Message::FlowMod(flow_mod) => {
                let dst = flow_mod
                    .r#match
                    .get(openflow::Field::EthDst)
                    .map(|(value, _)| value);
                let in_port = flow_mod.r#match.in_port();
                peer.flow_mods.insert((dst, in_port, flow_mod.priority));
                peer.flow_mod_count += 1;
            }
            Message::MultipartRequest(request) => {
                if let RequestBody::Flow(_) = request.body {
                    let body = ReplyBody::Flow(Vec::new());
                    let reply = MultipartReply { more: false, body };
                    answers.push((connection, frame.xid(), Message::MultipartReply(reply)));
                }
            }
            Message::PacketOut(packet_out)
                if packet_out.data.get(12..14) == Some(&[0x88, 0xcc]) =>
            {
                let openflow::Action::Output { port, .. } = packet_out.actions[0] else {
                    return;
                };
                let to = self.links.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]);
                let mut to = to.filter(|(from, _)| *from == (connection.0, port.0));
                if let Some((_, (connection, port))) = to.next() {
                    let data = packet_out.data.clone();
                    let message = Message::PacketIn(PacketIn::new(PortNo(port), data));
                    answers.push((ConnectionId(connection), Xid(0), message));
                }
            }
            _ => {}
        }
    }

    /// Answers the oldest barrier of each switch. Returns false if none waits.
    fn confirm(&mut self) -> bool {
        let ids: Vec<ConnectionId> = self.switches.keys().copied().collect();
        let mut has_any = false;
        for id in ids {
            let peer = self.switches.get_mut(&id).expect("connected");
            if let Some((xid, bytes)) = peer.barriers.pop_front() {
                has_any = true;
                peer.bytes -= bytes;
                for (_, later) in &mut peer.barriers {
                    *later -= bytes;
                }
                self.say(id, xid, &Message::BarrierReply);
            }
        }
        has_any
    }

    /// Lets time pass. Barriers are answered after a millisecond.
    fn run_for(&mut self, ms: u64) {
        for _ in 0..ms {
            while self.confirm() {}
            self.now += Duration::from_millis(1);
            self.controller.handle_timeout(self.now);
            self.drain();
        }
    }

    fn peer(&self, connection: u64) -> &Peer {
        &self.switches[&ConnectionId(connection)]
    }
}

/// The number of bytes that a switch may have to confirm, with the barriers between.
const IN_FLIGHT_MAX: usize = (512 << 10) + 1024;

/// 100,000 hosts in proactive mode, whose switch comes back with an empty table.
#[test]
fn a_hundred_thousand_entries_are_sent_as_the_switch_confirms_them() {
    const HOSTS: u64 = 100_000;
    let mut bench = Bench::new(Mode::Proactive);
    bench.connect(1, 1);
    bench.run_for(1000);
    for n in 0..HOSTS {
        bench.packet(1, 1, n, HOSTS + 1);
    }
    bench.run_for(100);
    assert!(bench.peer(1).flow_mods.len() as u64 >= HOSTS);
    assert!(
        bench.peer(1).bytes_max <= IN_FLIGHT_MAX,
        "{}",
        bench.peer(1).bytes_max
    );
    bench.controller.handle_down(bench.now, ConnectionId(1));
    bench.drain();
    bench.switches.clear();
    bench.connect(2, 1);
    let sent = bench.peer(2).flow_mods.len() as u64;
    assert!(sent < HOSTS / 10, "{sent} at once");
    let mut confirmed = 0;
    while bench.confirm() {
        confirmed += 1;
        assert!(confirmed < 1000);
    }
    let peer = bench.peer(2);
    assert!(
        peer.flow_mods.len() as u64 >= HOSTS,
        "{}",
        peer.flow_mods.len()
    );
    assert!(peer.bytes_max <= IN_FLIGHT_MAX, "{}", peer.bytes_max);
    assert_eq!(bench.controller.counters().stages_unconfirmed, 0);
}

/// Two switches with two links between them and 20,000 pairs across: one link fails.
#[test]
fn all_paths_of_a_link_are_mended_as_the_switches_confirm_it() {
    const PAIRS: u64 = 20_000;
    let mut bench = Bench::new(Mode::Reactive);
    bench.links = vec![((1, 2), (2, 2)), ((1, 3), (2, 3))];
    bench.connect(1, 1);
    bench.connect(2, 2);
    bench.run_for(2000);
    assert_eq!(bench.controller.links().len(), 4);
    let to = PAIRS + 1;
    bench.packet(2, 1, to, 0);
    for n in 0..PAIRS {
        bench.packet(1, 1, n, to);
        if n % 100 == 0 {
            while bench.confirm() {}
        }
    }
    bench.run_for(200);
    assert_eq!(bench.controller.path_count() as u64, PAIRS);
    let before: Vec<usize> = bench.switches.values().map(|p| p.flow_mod_count).collect();
    for peer in bench.switches.values_mut() {
        peer.bytes_max = peer.bytes;
    }
    bench.links.remove(0);
    for connection in [1, 2] {
        let mut port = plain_port(PortNo(2));
        port.state = PortState::LINK_DOWN;
        let reason = PortReason::MODIFY;
        let message = Message::PortStatus(PortStatus { reason, port });
        bench.say(ConnectionId(connection), Xid(0), &message);
    }
    bench.run_for(2000);
    let counters = bench.controller.counters();
    assert_eq!(bench.controller.links().len(), 2);
    assert!(counters.paths_rerouted > PAIRS / 4, "{counters:?}");
    for (peer, before) in bench.switches.values().zip(before) {
        assert!(peer.flow_mod_count > before);
        assert!(peer.bytes_max <= IN_FLIGHT_MAX, "{}", peer.bytes_max);
    }
    assert_eq!(counters.stages_unconfirmed, 0);
}

/// The far switch confirms nothing for a time: no ingress entry is set before it has.
#[test]
fn no_stage_is_followed_by_the_next_before_it_is_confirmed() {
    const PAIRS: u64 = 30_000;
    let mut bench = Bench::new(Mode::Reactive);
    bench.links = vec![((1, 2), (2, 2))];
    bench.connect(1, 1);
    bench.connect(2, 2);
    bench.run_for(2000);
    let to = PAIRS + 1;
    bench.packet(2, 1, to, 0);
    let before = bench.peer(1).flow_mod_count;
    for n in 0..PAIRS {
        bench.packet(1, 1, n, to);
    }
    assert_eq!(
        bench.peer(1).flow_mod_count,
        before,
        "nothing leads to what is not there"
    );
    let put_off = bench.controller.counters().paths_put_off;
    assert!(put_off > PAIRS / 2, "more than it keeps up with: {put_off}");
    while bench.confirm() {}
    let set = bench.peer(1).flow_mod_count - before;
    let paths = bench.controller.path_count();
    assert!(set == paths && paths >= 1000, "{set} of {paths}");
    assert_eq!(bench.controller.counters().stages_unconfirmed, 0);
}

/// A switch that answers no barrier holds nothing up for ever, and is counted.
#[test]
fn a_stage_that_is_never_confirmed_goes_on_when_its_time_is_over() {
    let mut bench = Bench::new(Mode::Reactive);
    bench.links = vec![((1, 2), (2, 2))];
    bench.connect(1, 1);
    bench.connect(2, 2);
    bench.run_for(2000);
    bench.packet(2, 1, 100, 0);
    let before = bench.peer(1).flow_mod_count;
    bench.packet(1, 1, 1, 100);
    for second in 1..=11 {
        assert_eq!(bench.peer(1).flow_mod_count > before, second == 11);
        bench.now += Duration::from_secs(1);
        bench.controller.handle_timeout(bench.now);
        bench.drain();
    }
    assert_eq!(bench.controller.counters().stages_unconfirmed, 1);
}
