use std::sync::mpsc::{Receiver, channel};

use bytes::Bytes;
use clock::Duration;
use openflow::message::{Capabilities, FlowModCommand, MultipartReply, PacketInReason};
use openflow::multipart::ReplyBody;
use openflow::text::parse_match;
use openflow::{Frame, MacAddr, Message, MessageKind, Xid, decode, encode};

use super::*;
use crate::ConnectionId;
use crate::controller::fixture::up;
use crate::controller::{Admission, ControllerConfig, ControllerOutput, PeerIdentity, Sending};
use crate::entry::{Entry, EntryKey};
use crate::tap::{Injected, NotSent, Places};

struct Net {
    controller: Controller,
    heard: Receiver<Tapped>,
    now: Instant,
}

fn id(owner: &str, name: &str) -> TapId {
    TapId {
        owner: owner.into(),
        name: name.into(),
    }
}

fn tap(matching: &str, is_copy: bool) -> Tap {
    Tap {
        matching: parse_match(matching).expect("a match"),
        at: Places::default(),
        is_copy,
        is_after: false,
        rate_max: 1000,
        bytes: 128,
    }
}

fn at(port: u32) -> Location {
    Location::new(DatapathId(1), PortNo(port))
}

/// A question of host 9 for an address.
fn arp() -> Vec<u8> {
    let head = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 8, 6];
    let arp = [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9, 10, 0, 0, 9];
    [&head[..], &arp, &[0, 0, 0, 0, 0, 0, 10, 0, 0, 8], &[0; 18]].concat()
}

fn lldp() -> Vec<u8> {
    let head = [1, 0x80, 0xc2, 0, 0, 0xe, 2, 0, 0, 0, 0, 9, 0x88, 0xcc];
    [&head[..], &[0; 46]].concat()
}

impl Net {
    /// Creates one switch with two ports, whose entries have been compared.
    fn new(config: ControllerConfig) -> Net {
        let (sender, heard) = channel();
        let mut controller = Controller::new(config, [7; 32]);
        let sink = move |tapped| drop(sender.send(tapped));
        controller.set_tap_sink(Box::new(sink));
        let now = Instant::START + Duration::from_secs(1);
        let mut net = Net {
            controller,
            heard,
            now,
        };
        net.connect(1);
        net
    }

    /// Connects the switch, which has no entries. Returns the entries sent to it.
    fn connect(&mut self, connection: u64) -> Vec<FlowMod> {
        self.connect_with(connection, &[])
    }

    /// Does the same with a switch that has entries.
    fn connect_with(&mut self, connection: u64, rows: &[FlowMod]) -> Vec<FlowMod> {
        let olders: Vec<ConnectionId> = self.controller.connections.keys().copied().collect();
        for older in olders {
            self.controller.handle_down(self.now, older);
        }
        self.outputs();
        let connection = ConnectionId(connection);
        let mut switch = up(1);
        switch.features.capabilities = Capabilities::GROUP_STATS;
        let peer = PeerIdentity::default();
        let admitted = self
            .controller
            .handle_up(self.now, connection, switch, peer);
        assert_eq!(admitted, Admission::Admitted);
        let mut all = Vec::new();
        for frame in self.frames() {
            all.extend(flow_mod(&frame));
            if frame.kind() == MessageKind::MultipartRequest {
                let body = ReplyBody::Flow(rows.iter().map(row).collect());
                let reply = Message::MultipartReply(MultipartReply { more: false, body });
                let reply = encode(Version::V13, frame.xid(), &reply).expect("sayable");
                self.controller.handle_frame(self.now, connection, reply);
            }
        }
        let frames = self.frames();
        all.extend(frames.iter().filter_map(flow_mod));
        all
    }

    fn outputs(&mut self) -> Vec<ControllerOutput> {
        std::iter::from_fn(|| self.controller.poll_output()).collect()
    }

    fn frames(&mut self) -> Vec<Frame> {
        let outputs = self.outputs().into_iter();
        let frames = outputs.filter_map(|output| match output {
            ControllerOutput::Send { frame, .. } => Some(frame),
            _ => None,
        });
        frames.collect()
    }

    fn flow_mods(&mut self) -> Vec<FlowMod> {
        self.frames().iter().filter_map(flow_mod).collect()
    }

    /// Sets a tap, and returns the entries sent to the switch.
    fn set(&mut self, id: TapId, tap: Tap) -> Vec<FlowMod> {
        let set = self.controller.set_tap(self.now, id, tap);
        assert!(set.is_ok(), "{set:?}");
        self.flow_mods()
    }

    fn packet_in(&mut self, cookie: Cookie, port: u32, data: Vec<u8>) {
        let message = Message::PacketIn(PacketIn {
            reason: PacketInReason::ACTION,
            cookie,
            ..PacketIn::new(PortNo(port), data.into())
        });
        let frame = encode(Version::V13, Xid(0), &message).expect("sayable");
        let connections = self.controller.connections.keys().copied();
        let connection = connections.last().expect("one is connected");
        self.controller.handle_frame(self.now, connection, frame);
    }

    fn heard(&self) -> Vec<Tapped> {
        self.heard.try_iter().collect()
    }
}

fn flow_mod(frame: &Frame) -> Option<FlowMod> {
    match decode(frame) {
        Ok(Message::FlowMod(flow_mod)) => Some(flow_mod),
        _ => None,
    }
}

/// The report of an entry that was sent.
fn row(sent: &FlowMod) -> FlowStats {
    FlowStats {
        table_id: sent.table_id,
        priority: sent.priority,
        cookie: sent.cookie,
        r#match: sent.r#match.clone(),
        duration_sec: 0,
        duration_nsec: 0,
        idle_timeout: 0,
        hard_timeout: 0,
        flags: sent.flags,
        packet_count: 0,
        byte_count: 0,
        instructions: sent.instructions.clone(),
        importance: 0,
        stats: Vec::new(),
    }
}

fn is_of_tap(flow_mod: &FlowMod) -> bool {
    flow_mod.command == FlowModCommand::Add && is_tap(flow_mod.cookie)
}

fn packet(owner: &str, name: &str, port: u32, data: &[u8]) -> Tapped {
    Tapped::Packet {
        tap: id(owner, name),
        at: at(port),
        total_len: data.len() as u16,
        data: Bytes::copy_from_slice(data),
    }
}

#[test]
fn where_nothing_is_forwarded_a_switch_has_the_entry_for_lldp_alone() {
    let config = ControllerConfig {
        is_forwarding: false,
        ..ControllerConfig::default()
    };
    let mut net = Net::new(config);
    let sent = net.connect(2);
    let matches: Vec<String> = sent.iter().map(|sent| sent.r#match.to_string()).collect();
    assert_eq!(matches, ["dl_type=0x88cc"]);
    let earlier = Entry::infrastructure(true);
    let mut earlier: Vec<FlowMod> = earlier.iter().map(|entry| entry.to_add(1)).collect();
    let pair = EntryKey::destination(None, MacAddr([2, 0, 0, 0, 0, 1]));
    earlier.push(FlowMod {
        cookie: EntryKind::Destination.cookie(1),
        ..FlowMod::add(
            pair.priority,
            pair.to_match(),
            vec![Action::output(PortNo(2))],
        )
    });
    let mut deleted = net.connect_with(3, &earlier);
    deleted.sort_by_key(|sent| sent.priority);
    let is_deletion = |sent: &FlowMod| sent.command == FlowModCommand::DeleteStrict;
    assert!(deleted.iter().all(is_deletion), "{deleted:#?}");
    let priorities: Vec<u16> = deleted.iter().map(|sent| sent.priority).collect();
    assert_eq!(priorities, [0, pair.priority]);
    net.packet_in(Cookie(u64::MAX), 1, arp());
    assert_eq!(net.controller.counters().packet_ins_not_forwarded, 1);
    assert_eq!(net.frames(), []);
    assert_eq!(net.controller.host_count(), 0);
}

#[test]
fn a_tap_is_an_entry_while_it_lasts_and_is_set_again_when_its_switch_comes_back() {
    let mut net = Net::new(ControllerConfig::default());
    let sent = net.set(id("lesson", "arp"), tap("arp", false));
    let [entry] = &sent[..] else {
        panic!("{sent:#?}");
    };
    assert_eq!(entry.priority, PRIORITY);
    let up = Action::Output {
        port: PortNo::CONTROLLER,
        max_len: 128,
    };
    let ups = [Instruction::ApplyActions(vec![up])];
    assert_eq!(entry.instructions, ups);
    let again = net.connect(2);
    assert_eq!(again.iter().filter(|sent| is_of_tap(sent)).count(), 1);
    let held = net.connect_with(3, &again);
    assert_eq!(held, [], "it has all of them");
    let earlier = FlowMod {
        cookie: Cookie(entry.cookie.0 ^ 1),
        ..entry.clone()
    };
    let mended = net.connect_with(4, &[earlier]);
    let of_tap = mended.iter().filter(|sent| sent.priority == PRIORITY);
    let commands: Vec<FlowModCommand> = of_tap.map(|sent| sent.command).collect();
    assert_eq!(
        commands,
        [FlowModCommand::DeleteStrict, FlowModCommand::Add]
    );

    // Another tap in its place: the entry at the same place is not deleted afterwards.
    let mut other = tap("arp", false);
    other.bytes = 256;
    let sent = net.set(id("lesson", "arp"), other);
    assert!(matches!(&sent[..], [one] if is_of_tap(one)), "{sent:#?}");
    let mut elsewhere = tap("ip", false);
    elsewhere.at.ports = [at(1), at(2)].into();
    let sent = net.set(id("lesson", "arp"), elsewhere);
    let commands: Vec<FlowModCommand> = sent.iter().map(|sent| sent.command).collect();
    let (add, delete) = (FlowModCommand::Add, FlowModCommand::DeleteStrict);
    assert_eq!(commands, [add, add, delete]);

    assert!(net.controller.remove_tap(net.now, &id("lesson", "arp")));
    let sent = net.flow_mods();
    assert!(sent.iter().all(|sent| sent.command == delete) && sent.len() == 2);
    assert!(!net.controller.remove_tap(net.now, &id("lesson", "arp")));
    let again = net.connect(5);
    assert!(!again.iter().any(is_of_tap), "{again:#?}");
}

#[test]
fn a_tap_after_static_entries_is_below_them_and_above_all_of_our_own() {
    let mut net = Net::new(ControllerConfig::default());
    // The entry for LLDP has the highest priority.
    let own = net.connect(2).into_iter();
    let own = own.filter(|sent| sent.table_id == PATH_TABLE && sent.priority < u16::MAX);
    let own = own.map(|sent| sent.priority).max().unwrap_or_default();
    let after = |is_copy| Tap {
        is_after: true,
        ..tap("", is_copy)
    };
    let first = net.set(id("lesson", "first"), after(false))[0].priority;
    let priorities = (1..TAPS_MAX).map(|n| PRIORITY_AFTER + n as u16 * PRIORITIES_PER_TAP + 1);
    assert!(own < first, "{own} {first}");
    // Static entries begin at 9,000 and end at 63,035.
    assert!(priorities.max() < Some(9_000));
    let before = PRIORITY..=PRIORITY + TAPS_MAX as u16 * PRIORITIES_PER_TAP;
    assert!(*before.start() > 63_035 && *before.end() < u16::MAX);
    let copied = net.set(id("lesson", "copied"), after(true));
    assert!(copied.iter().all(|sent| sent.priority >= PRIORITY));
}

#[test]
fn a_packet_goes_to_all_taps_that_have_it_and_lldp_to_none() {
    let mut net = Net::new(ControllerConfig::default());
    let all = net.set(id("a", "all"), tap("", false));
    net.set(id("b", "arp"), tap("arp", false));
    net.set(id("b", "ip"), tap("ip", false));
    let mut elsewhere = tap("arp", false);
    elsewhere.at.ports = [at(2)].into();
    net.set(id("c", "arp"), elsewhere);
    let cookie = all[0].cookie;
    net.packet_in(cookie, 1, arp());
    let expected = [packet("a", "all", 1, &arp()), packet("b", "arp", 1, &arp())];
    assert_eq!(net.heard(), expected);
    net.packet_in(cookie, 1, lldp());
    assert_eq!(net.heard(), []);
    // The packet is late: the tap has ended, and no tap has its number.
    net.controller.remove_tap(net.now, &id("a", "all"));
    net.set(id("a", "all"), tap("", false));
    net.packet_in(cookie, 1, arp());
    assert_eq!(net.heard(), []);
}

#[test]
fn packets_over_the_rate_are_counted_and_of_long_ones_the_beginning_is_handed_on() {
    let mut net = Net::new(ControllerConfig::default());
    let mut slow = tap("arp", false);
    (slow.rate_max, slow.bytes) = (2, 20);
    let cookie = net.set(id("a", "arp"), slow)[0].cookie;
    for _ in 0..5 {
        net.packet_in(cookie, 1, arp());
    }
    let heard = net.heard();
    assert_eq!(heard.len(), 5);
    assert_eq!(heard[2..], [(); 3].map(|()| Tapped::Shed(id("a", "arp"))));
    assert!(matches!(&heard[0], Tapped::Packet { total_len: 60, data, .. } if data.len() == 20));
    let view = net.controller.taps(Some("a")).remove(0);
    assert_eq!((view.packets, view.shed, view.switches), (2, 3, 1));
    net.now += Duration::from_secs(1);
    net.packet_in(cookie, 1, arp());
    assert!(matches!(net.heard()[..], [Tapped::Packet { .. }]));
}

#[test]
fn a_copy_is_made_in_the_first_table_for_which_a_switch_connects_anew_once() {
    let mut net = Net::new(ControllerConfig::default());
    net.controller
        .set_tap(net.now, id("a", "arp"), tap("arp", true))
        .expect("room");
    let is_close = |output: &ControllerOutput| matches!(output, ControllerOutput::Close { .. });
    assert_eq!(net.outputs().iter().filter(|it| is_close(it)).count(), 1);
    let sent = net.connect(2);
    let entry = sent.iter().find(|sent| is_of_tap(sent)).expect("it has it");
    assert_eq!(entry.table_id, TableId(0));
    let on = Instruction::GotoTable(TableId(1));
    assert_eq!(entry.instructions.last(), Some(&on));
    net.packet_in(entry.cookie, 1, arp());
    assert_eq!(net.heard(), [packet("a", "arp", 1, &arp())]);
    assert_eq!(
        net.controller.host_count(),
        0,
        "the packet itself is learned from"
    );

    // Neither the end of the last tap nor the next tap costs a connection.
    net.controller.remove_tap(net.now, &id("a", "arp"));
    net.controller
        .set_tap(net.now, id("a", "ip"), tap("ip", true))
        .expect("room");
    assert!(!net.outputs().iter().any(is_close));
}

#[test]
fn taps_are_as_many_as_there_may_be() {
    let mut taps = Taps::default();
    for n in 0..TAPS_PER_OWNER_MAX {
        assert_eq!(taps.set(id("a", &n.to_string()), tap("", false)), Ok(None));
    }
    let more = taps.set(id("a", "more"), tap("", false));
    assert_eq!(more, Err(NotSet::TooManyOfOwner));
    assert!(taps.set(id("a", "0"), tap("", false)).is_ok(), "replaced");
    for n in 1..OWNERS_MAX {
        assert!(taps.set(id(&format!("o{n}"), "t"), tap("", false)).is_ok());
    }
    let more = taps.set(id("more", "t"), tap("", false));
    assert_eq!(more, Err(NotSet::TooManyOwners));
    let ranks: BTreeSet<u16> = taps.all.values().map(|held| held.rank).collect();
    assert_eq!(ranks.len(), taps.all.len());
}

#[test]
fn packets_are_sent_all_or_none() {
    let mut net = Net::new(ControllerConfig::default());
    let to = |dpid: u64, port: u32| Injected {
        dpid: DatapathId(dpid),
        in_port: None,
        actions: vec![Action::output(PortNo(port))],
        data: arp().into(),
    };
    let wrong = Injected {
        in_port: Some(PortNo(8)),
        ..to(1, 9)
    };
    // Also returns the number of frames of each part.
    let send = |net: &mut Net, packets| {
        let mut sending = Sending::new(packets);
        let mut frames = Vec::new();
        loop {
            let sent = net.controller.send_packets(net.now, &mut sending);
            frames.push(net.frames().len());
            if let Some(sent) = sent {
                return (sent, frames);
            }
        }
    };
    let (sent, frames) = send(&mut net, vec![to(1, 1), to(2, 1), wrong]);
    let no_ports = [NotSent::NoPort(PortNo(9)), NotSent::NoInPort(PortNo(8))];
    let [no_port, no_in_port] = no_ports.map(|why| (2, why));
    assert_eq!(sent, Err(vec![(1, NotSent::Away), no_port, no_in_port]));
    assert_eq!(frames, [0, 0]);
    let some = (0..20).map(|n| to(1, 1 + n % 2)).collect();
    // Switches are served between the parts of a long list.
    assert_eq!(send(&mut net, some), (Ok(()), vec![0, 0, 0, 8, 8, 4]));
    assert_eq!(send(&mut net, Vec::new()), (Ok(()), vec![0]));
}
