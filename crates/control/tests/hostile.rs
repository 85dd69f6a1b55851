//! A hostile switch may report anything: it harms only its own connection.

use clock::{Duration, Instant};
use control::ConnectionId;
use control::controller::{
    Admission, Controller, ControllerConfig, ControllerOutput, Event, PeerIdentity, RefusedReason,
};
use control::entry::{COOKIE_PREFIX, EntryKind};
use control::session::SwitchUp;
use openflow::message::{
    Capabilities, FlowMod, FlowModCommand, FlowRemoved, FlowRemovedReason, MultipartReply, Port,
    PortConfig, PortName, PortReason, PortState, PortStatus, Role, SwitchFeatures,
};
use openflow::multipart::{FlowStats, ReplyBody, RequestBody, TableStats};
use openflow::{
    Action, Cookie, DatapathId, Frame, Instruction, MacAddr, Match, Message, MessageKind, PortNo,
    TableId, Version, Xid, decode, encode,
};

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb]);
const ZERO: MacAddr = MacAddr([0; 6]);
const GROUP: MacAddr = MacAddr([1, 0, 0x5e, 0, 0, 1]);

/// A controller, and its switches' ends of the channels, which the test drives by hand.
struct Bench {
    controller: Controller,
    now: Instant,
    version: Version,
    /// Messages to each switch, connections it closed, and events.
    heard: Vec<(ConnectionId, Frame)>,
    closed: Vec<(ConnectionId, RefusedReason)>,
    events: Vec<Event>,
}

impl Bench {
    fn new(version: Version) -> Bench {
        Bench::with(version, ControllerConfig::default())
    }

    fn with(version: Version, config: ControllerConfig) -> Bench {
        Bench {
            controller: Controller::new(config, [7; 32]),
            now: Instant::START + Duration::from_secs(1),
            version,
            heard: Vec::new(),
            closed: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Connects a switch with ports 1 and 2.
    fn up(&mut self, n: u64) -> ConnectionId {
        let id = ConnectionId(n);
        let admission = self.controller.handle_up(
            self.now,
            id,
            switch_up(self.version, n),
            PeerIdentity::default(),
        );
        assert_eq!(admission, Admission::Admitted);
        self.drain();
        id
    }

    fn say(&mut self, id: ConnectionId, xid: Xid, message: &Message) {
        let frame = encode(self.version, xid, message).expect("sayable");
        self.controller.handle_frame(self.now, id, frame);
        self.drain();
    }

    fn wait(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some((due, _)) = self.controller.poll_timeout()
            && due <= end
        {
            self.now = self.now.max(due);
            self.controller.handle_timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    fn drain(&mut self) {
        while let Some(output) = self.controller.poll_output() {
            match output {
                ControllerOutput::Send { connection, frame } => {
                    if frame.kind() == MessageKind::BarrierRequest {
                        let reply = encode(self.version, frame.xid(), &Message::BarrierReply);
                        let reply = reply.expect("sayable");
                        self.controller.handle_frame(self.now, connection, reply);
                    }
                    self.heard.push((connection, frame));
                }
                ControllerOutput::Close { connection, reason } => {
                    self.closed.push((connection, reason));
                }
                ControllerOutput::Event(event) => self.events.push(event),
                _ => {}
            }
        }
    }

    /// Returns the xid of the last request to a switch for which `is_it` is true.
    fn question(&self, id: ConnectionId, is_it: impl Fn(&RequestBody) -> bool) -> Xid {
        let asked = |(to, frame): &(ConnectionId, Frame)| {
            let message = decode(frame).expect("readable");
            let Message::MultipartRequest(request) = message else {
                return None;
            };
            (*to == id && is_it(&request.body)).then(|| frame.xid())
        };
        let xid = self.heard.iter().rev().find_map(asked);
        xid.expect("the controller asks")
    }

    fn tell(&mut self, id: ConnectionId, xid: Xid, body: ReplyBody) {
        let reply = MultipartReply { more: false, body };
        self.say(id, xid, &Message::MultipartReply(reply));
    }

    /// Answers the request for all entries.
    fn tell_entries(&mut self, id: ConnectionId, rows: Vec<FlowStats>) {
        let xid = self.question(id, |body| matches!(body, RequestBody::Flow(_)));
        self.tell(id, xid, ReplyBody::Flow(rows));
    }

    /// The deleting flow-mods sent to a switch, in order.
    fn deletions(&self, id: ConnectionId) -> Vec<FlowMod> {
        let heard = self.heard.iter().filter(|(to, _)| *to == id);
        let messages = heard.map(|(_, frame)| decode(frame).expect("readable"));
        let deletions = messages.filter_map(|message| match message {
            Message::FlowMod(flow_mod) if flow_mod.command == FlowModCommand::DeleteStrict => {
                Some(flow_mod)
            }
            _ => None,
        });
        deletions.collect()
    }
}

fn port(number: u32) -> Port {
    Port {
        port_no: PortNo(number),
        hw_addr: MacAddr::from_u64(0x0200_0000_0000 + u64::from(number)),
        name: PortName([b'p'; 16]),
        config: PortConfig(0),
        state: PortState(0),
        curr: 0,
        advertised: 0,
        supported: 0,
        peer: 0,
        curr_speed: 0,
        max_speed: 0,
        properties: Vec::new(),
    }
}

fn switch_up(version: Version, n: u64) -> SwitchUp {
    SwitchUp {
        version,
        features: SwitchFeatures {
            datapath_id: DatapathId(n),
            n_buffers: 0,
            n_tables: 254,
            auxiliary_id: 0,
            capabilities: Capabilities(0),
            actions: 0,
            ports: Vec::new(),
        },
        ports: vec![port(1), port(2)],
        description: None,
        role: Role::Equal,
    }
}

/// A row of flow statistics with our cookie.
fn row(kind: EntryKind, priority: u16, r#match: Match, out: PortNo) -> FlowStats {
    FlowStats {
        table_id: TableId(0),
        duration_sec: 1,
        duration_nsec: 0,
        priority,
        idle_timeout: 60,
        hard_timeout: 0,
        flags: Default::default(),
        cookie: kind.cookie(3),
        packet_count: 1,
        byte_count: 60,
        r#match,
        instructions: vec![Instruction::ApplyActions(vec![Action::output(out)])],
        importance: 0,
        stats: Vec::new(),
    }
}

fn pair_match(src: MacAddr, dst: MacAddr) -> Match {
    Match::any()
        .with_in_port(PortNo(1))
        .with_eth_dst(dst)
        .with_eth_src(src)
}

#[test]
fn entries_that_no_host_can_have_are_taken_out_and_not_believed() {
    let kinds = [EntryKind::Pair, EntryKind::Local];
    let wrong = [(ZERO, B), (A, ZERO), (GROUP, B), (A, GROUP), (ZERO, ZERO)];
    for version in [Version::V13, Version::V10] {
        for (kind, (src, dst)) in kinds.into_iter().flat_map(|k| wrong.map(|w| (k, w))) {
            let mut bench = Bench::new(version);
            let id = bench.up(1);
            let r#match = pair_match(src, dst);
            bench.tell_entries(id, vec![row(kind, 2000, r#match.clone(), PortNo(2))]);
            bench.wait(Duration::from_secs(5));
            assert_eq!(bench.controller.hosts(), [], "{kind:?} {src} {dst}");
            let deletions = bench.deletions(id);
            let [deletion] = &deletions[..] else {
                panic!("{kind:?} {src} {dst}: {deletions:?}");
            };
            assert_eq!((deletion.priority, &deletion.r#match), (2000, &r#match));
        }
    }
}

/// Deletes entries with our cookie that we could not have set: each by its own table, priority and
/// match, without believing them.
#[test]
fn entries_of_no_shape_of_ours_are_taken_out_by_table_priority_and_match() {
    let pair = || pair_match(A, B);
    let to = |dst| Match::any().with_eth_dst(dst);
    let from_local = Match::any()
        .with_in_port(PortNo::LOCAL)
        .with_eth_dst(B)
        .with_eth_src(A);
    let in_table = |table, row| FlowStats {
        table_id: TableId(table),
        ..row
    };
    let port = PortNo(2);
    let rows = [
        row(EntryKind::Pair, 0, pair(), port),
        row(EntryKind::Pair, 7, pair(), port),
        row(EntryKind::Local, 1500, pair(), port),
        row(EntryKind::Pair, 2000, pair(), PortNo::FLOOD),
        row(EntryKind::Pair, 2000, pair(), PortNo::CONTROLLER),
        row(EntryKind::Pair, 2000, from_local, port),
        row(EntryKind::Pair, 2000, to(B), port),
        row(EntryKind::Service, 3000, pair(), port),
        row(EntryKind::Destination, 7, to(B), port),
        row(EntryKind::Destination, 1000, pair(), port),
        row(EntryKind::Destination, 1000, to(ZERO), port),
        row(EntryKind::Report, 1000, to(B), port),
        row(EntryKind::Coarse, 1500, to(B), port),
        row(
            EntryKind::Infrastructure,
            7,
            Match::any(),
            PortNo::CONTROLLER,
        ),
        in_table(5, row(EntryKind::Pair, 2000, pair(), port)),
        in_table(5, row(EntryKind::Pair, 2000, pair_match(ZERO, B), port)),
    ];
    for row in rows {
        let mut bench = Bench::new(Version::V13);
        let id = bench.up(1);
        bench.tell_entries(id, vec![row.clone()]);
        bench.wait(Duration::from_secs(5));
        assert_eq!(bench.controller.hosts(), [], "{row:?}");
        let deletions = bench.deletions(id);
        let [deletion] = &deletions[..] else {
            panic!("{row:?}: {deletions:?}");
        };
        assert_eq!(deletion.table_id, row.table_id, "{row:?}");
        assert_eq!(deletion.priority, row.priority);
        assert_eq!(deletion.r#match, row.r#match);
        assert_eq!(deletion.cookie.0 & deletion.cookie_mask.0, COOKIE_PREFIX.0);
    }
}

/// The controller believes a proper entry and deletes a wrong one beside it.
#[test]
fn a_proper_entry_beside_a_wrong_one_is_kept() {
    for version in [Version::V13, Version::V10] {
        let mut bench = Bench::new(version);
        let id = bench.up(1);
        let rows = vec![
            row(EntryKind::Local, 2000, pair_match(ZERO, B), PortNo(2)),
            row(EntryKind::Local, 2000, pair_match(A, B), PortNo(2)),
        ];
        bench.tell_entries(id, rows);
        bench.wait(Duration::from_secs(5));
        let hosts = bench.controller.hosts();
        let macs: Vec<MacAddr> = hosts.iter().map(|host| host.mac).collect();
        assert_eq!(macs, [A, B], "{version:?}");
        assert_eq!(bench.deletions(id).len(), 1, "{version:?}");
    }
}

/// A switch may report any count. A sum that overflows panics where overflow is checked, as here.
#[test]
fn no_count_of_a_switch_is_too_large() {
    let mut config = ControllerConfig::default();
    config.timeouts.table_entries_max = Some(100);
    let mut bench = Bench::with(Version::V13, config);
    let id = bench.up(1);
    let counted = FlowStats {
        packet_count: u64::MAX,
        byte_count: u64::MAX,
        duration_sec: u32::MAX,
        duration_nsec: u32::MAX,
        hard_timeout: u16::MAX,
        ..row(EntryKind::Local, 2000, pair_match(A, B), PortNo(2))
    };
    bench.tell_entries(id, vec![counted.clone()]);
    for _ in 0..20 {
        bench.wait(Duration::from_secs(5));
        let xid = bench.question(id, |body| matches!(body, RequestBody::Table));
        let table = TableStats {
            table_id: TableId(0),
            active_count: u32::MAX,
            lookup_count: u64::MAX,
            matched_count: u64::MAX,
            v10: None,
        };
        bench.tell(id, xid, ReplyBody::Table(vec![table]));
        bench.tell_entries(id, vec![counted.clone()]);
    }
    let removed = FlowRemoved {
        cookie: EntryKind::Barred.cookie(3),
        priority: 2000,
        reason: FlowRemovedReason::IDLE_TIMEOUT,
        table_id: TableId(0),
        duration_sec: u32::MAX,
        duration_nsec: u32::MAX,
        idle_timeout: u16::MAX,
        hard_timeout: u16::MAX,
        packet_count: u64::MAX,
        byte_count: u64::MAX,
        r#match: pair_match(A, B),
        stats: Vec::new(),
    };
    for _ in 0..2 {
        bench.say(id, Xid(0), &Message::FlowRemoved(removed.clone()));
    }
    // At most 2^32 of each count.
    assert_eq!(bench.controller.counters().packets_forbidden, 2 << 32);
    let view = &bench.controller.switches()[0];
    assert!(view.table.entries.is_some_and(|count| count <= 1_000_000));
}

fn status(reason: PortReason, number: u32) -> Message {
    let port = port(number);
    Message::PortStatus(PortStatus { reason, port })
}

/// The bound on ports holds at any time.
#[test]
fn ports_beyond_the_bound_close_the_connection_of_their_switch() {
    let config = ControllerConfig {
        port_count_max: 10,
        ..ControllerConfig::default()
    };
    let mut bench = Bench::with(Version::V13, config);
    let (id, other) = (bench.up(1), bench.up(2));
    for number in 3..=10 {
        bench.say(id, Xid(0), &status(PortReason::ADD, number));
    }
    // A known port may change, and an unknown port may be deleted.
    bench.say(id, Xid(0), &status(PortReason::MODIFY, 10));
    bench.say(id, Xid(0), &status(PortReason::DELETE, 11));
    assert_eq!(bench.closed, []);
    for number in 11..1000 {
        bench.say(id, Xid(0), &status(PortReason::ADD, number));
    }
    assert_eq!(bench.closed, [(id, RefusedReason::TooManyPorts)]);
    let counters = bench.controller.counters();
    assert_eq!((counters.too_many_ports, counters.frames_ignored), (1, 988));
    let ports = bench
        .controller
        .switches()
        .iter()
        .map(|s| s.port_count)
        .collect::<Vec<_>>();
    assert_eq!(
        ports,
        [2],
        "nothing is lost with the switch, so it is forgotten"
    );
    // The other switch is served.
    bench.say(other, Xid(0), &status(PortReason::ADD, 3));
    assert_eq!(bench.controller.switches()[0].port_count, 3);
    let mut again = switch_up(Version::V13, 1);
    again.ports = (1..=11).map(port).collect();
    let refused =
        bench
            .controller
            .handle_up(bench.now, ConnectionId(9), again, PeerIdentity::default());
    assert_eq!(refused, Admission::Refused(RefusedReason::TooManyPorts));
}

/// A foreign unreadable row does not hide the others. The controller still deletes its stale
/// entries, and unreadable rows with its cookie.
#[test]
fn a_row_that_cannot_be_read_blinds_no_reconciliation() {
    for version in [Version::V13, Version::V10] {
        let mut bench = Bench::new(version);
        let id = bench.up(1);
        let stale = row(EntryKind::Pair, 7, pair_match(A, B), PortNo(2));
        let proper = row(EntryKind::Local, 2000, pair_match(A, B), PortNo(2));
        let broken = |cookie, priority| FlowStats {
            cookie,
            priority,
            ..proper.clone()
        };
        let ours = EntryKind::Pair.cookie(3);
        let rows = vec![
            broken(Cookie(0x1234), 100),
            stale,
            proper.clone(),
            broken(ours, 200),
        ];
        let xid = bench.question(id, |body| matches!(body, RequestBody::Flow(_)));
        let reply = Message::MultipartReply(MultipartReply {
            more: false,
            body: ReplyBody::Flow(rows),
        });
        let frame = encode(version, xid, &reply).expect("sayable");
        let mut bytes = frame.bytes().to_vec();
        spoil_rows(&mut bytes, version, &[0, 3]);
        let frame = Frame::new(bytes.into()).expect("whole");
        assert!(decode(&frame).is_err());
        bench.controller.handle_frame(bench.now, id, frame);
        bench.drain();
        let deleted: Vec<u16> = bench.deletions(id).iter().map(|d| d.priority).collect();
        assert_eq!(deleted, [200, 7], "{version:?}");
        let reconciled = bench.events.iter().find_map(|event| match event {
            Event::Reconciled {
                kept,
                unreadable,
                is_unread,
                ..
            } => Some((*kept, *unreadable, *is_unread)),
            _ => None,
        });
        assert_eq!(reconciled, Some((1, 2, false)), "{version:?}");
        assert_eq!(bench.controller.counters().rows_unreadable, 2);
    }
}

/// Makes the actions of some rows of flow statistics unreadable, by an impossible length.
fn spoil_rows(bytes: &mut [u8], version: Version, which: &[usize]) {
    // After the header and the type.
    let mut at = match version {
        Version::V10 => 12,
        _ => 16,
    };
    // Bytes before the action: in 1.0 the row without actions, in 1.3 a row's head of 48 bytes, a
    // match of 32 and an instruction's head of 8.
    let actions_at = 88;
    let mut row = 0;
    while at < bytes.len() {
        let len = usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        if which.contains(&row) {
            bytes[at + actions_at + 3] = 3;
        }
        (at, row) = (at + len, row + 1);
    }
}

/// The switch does not report its entries, and the event says so.
#[test]
fn a_reading_that_fails_is_told_of() {
    let mut bench = Bench::new(Version::V13);
    bench.up(1);
    bench.wait(Duration::from_secs(11));
    let is_unread = bench.events.iter().find_map(|event| match event {
        Event::Reconciled { is_unread, .. } => Some(*is_unread),
        _ => None,
    });
    assert_eq!(is_unread, Some(true));
}
