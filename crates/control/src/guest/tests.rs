//! Guests against the reference switch, which stands for the real one and, once more, for the
//! switch that each guest believes it has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use clock::{Duration, Instant, SplitMix64};
use openflow::message::{
    FlowMod, FlowModCommand, FlowModFlags, FlowRemovedReason, PacketIn, PacketInReason, PacketOut,
    PortReason, PortStatus, Role, RoleMessage,
};
use openflow::multipart::{FlowStats, FlowStatsRequest, MultipartRequest, ReplyBody, RequestBody};
use openflow::table::{Output as Packets, Switch, SwitchOptions, plain_port};
use openflow::text::{parse_actions, parse_match};
use openflow::{
    Action, BufferId, Cookie, DatapathId, ErrorKind, Frame, GroupId, Instruction, Match, Message,
    PacketFields, PortNo, TableId, Version, Xid, decode, encode,
};

use super::machine::{Answer, Machine, Output};
use super::{Guest, of_cookie};

const DPID: DatapathId = DatapathId(7);
const PORTS: u32 = 4;

fn guest(number: u8, matches: &[&str]) -> Arc<Guest> {
    let low = u16::from(number) * 1000;
    let first = 10 + 10 * number;
    let parsed = matches.iter().map(|text| parse_match(text).unwrap());
    Arc::new(Guest {
        name: format!("g{number}").into(),
        priority: low..=low + 999,
        tables: Some(first..=first + 9),
        matches: parsed.collect(),
        switches: [].into(),
        packet_rate: 1000,
        is_kept: true,
    })
}

/// A switch with guests, and an entry of somebody else in each table.
struct Bench {
    now: Instant,
    switch: Switch,
    guests: Vec<Machine>,
    /// Replies to each guest, oldest first.
    replies: Vec<Vec<(Xid, Message)>>,
}

impl Bench {
    fn new(guests: &[Arc<Guest>]) -> Bench {
        let now = Instant::START + Duration::from_secs(1);
        let mut switch = Switch::new(SwitchOptions {
            datapath_id: DPID,
            modify_restarts_hard_timeout: true,
            ..SwitchOptions::default()
        });
        for number in 1..=PORTS {
            let _ = switch.set_port(now, plain_port(PortNo(number)));
        }
        for table in [0, 1, 10, 11, 20, 21] {
            let entry = FlowMod {
                table_id: TableId(table),
                cookie: Cookie(0x99),
                ..FlowMod::add(3000, foreign(), vec![Action::output(PortNo(4))])
            };
            switch.apply(now, &Message::FlowMod(entry)).unwrap();
        }
        let machines = (0u8..).zip(guests);
        let mut bench = Bench {
            now,
            switch,
            guests: machines
                .map(|(n, it)| Machine::new(n, DPID, 254, it.clone()))
                .collect(),
            replies: vec![Vec::new(); guests.len()],
        };
        for guest in 0..guests.len() {
            bench.guests[guest].handle_connected();
            let hello = openflow::hello::Hello::offering(&[Version::V13]);
            bench.send(guest, &Message::Hello(hello));
            bench.replies[guest].clear();
        }
        bench
    }

    /// Sends a message of a guest, and carries everything to its end. Returns the replies.
    fn send(&mut self, guest: usize, message: &Message) -> Vec<Message> {
        let frame = encode(Version::V13, Xid(5), message).expect("it encodes");
        self.take(guest, &frame)
    }

    fn take(&mut self, guest: usize, frame: &Frame) -> Vec<Message> {
        let before = self.replies[guest].len();
        self.guests[guest].handle_frame(self.now, frame, true);
        self.guests[guest].advance_fence();
        self.settle();
        let new = self.replies[guest][before..].iter();
        new.map(|(_, message)| message.clone()).collect()
    }

    /// Carries messages between machines and switch until there are none.
    fn settle(&mut self) {
        let now = self.now;
        for guest in 0..self.guests.len() {
            while let Some(output) = self.guests[guest].poll_output() {
                let machine = &mut self.guests[guest];
                match output {
                    Output::Reply(frame) | Output::Packet(frame) => {
                        assert_eq!(frame.version(), Some(Version::V13));
                        let message = decode(&frame).expect("what guests get can be read");
                        self.replies[guest].push((frame.xid(), message));
                    }
                    Output::Change(ticket, flow_mod) => {
                        let message = Message::FlowMod(*flow_mod);
                        // As on a wire.
                        let frame = encode(Version::V13, Xid(1), &message).expect("it encodes");
                        match self
                            .switch
                            .apply(now, &decode(&frame).expect("it is sound"))
                        {
                            Ok(replies) => self.report(&replies),
                            Err(error) => {
                                let ticket = ticket.expect("only a guest's own is refused");
                                machine.handle_refused(now, ticket, error);
                            }
                        }
                    }
                    Output::Ask(ticket, body) => {
                        let request = MultipartRequest { more: false, body };
                        let message = Message::MultipartRequest(request);
                        let replies = self.switch.apply(now, &message).expect("it is answered");
                        let bodies = replies.into_iter().map(|reply| match reply {
                            Message::MultipartReply(reply) => reply.body,
                            other => panic!("{other:?}"),
                        });
                        machine.handle_answer(now, ticket, Answer::Whole(bodies.collect()));
                    }
                    Output::Fence(ticket) => machine.handle_confirmed(ticket),
                    Output::PacketOut(_) | Output::End => {}
                }
            }
        }
    }

    fn report(&mut self, messages: &[Message]) {
        for message in messages {
            if let Message::FlowRemoved(removed) = message {
                let (guest, number) = of_cookie(removed.cookie).expect("a guest's");
                let machine = &mut self.guests[usize::from(guest)];
                machine.handle_removed(self.now, number, removed);
            }
        }
    }

    fn add(&mut self, guest: usize, priority: u16, matching: &str, actions: &str) -> Vec<Message> {
        let entry = FlowMod::add(
            priority,
            parse_match(matching).unwrap(),
            parse_actions(actions).unwrap(),
        );
        self.send(guest, &Message::FlowMod(entry))
    }

    /// The entries that a guest reads back.
    fn read(&mut self, guest: usize) -> Vec<FlowStats> {
        let body = RequestBody::Flow(FlowStatsRequest::all());
        rows(self.send(guest, &ask(body)))
    }

    /// The entries that the switch has of a guest, or of nobody.
    fn held(&self, guest: Option<u8>) -> Vec<FlowStats> {
        let of = |row: &FlowStats| of_cookie(row.cookie).map(|(guest, _)| guest) == guest;
        let all = self.switch.entries().map(|entry| entry.stats(self.now));
        all.filter(of).collect()
    }

    /// That every entry is in the places of its guest, and those of others are as they were.
    fn check_places(&self) {
        assert_eq!(self.held(None).len(), 6);
        for guest in 0..self.guests.len() as u8 {
            let low = 3300 + u16::from(guest) * 100;
            let first = 10 + 10 * guest;
            for row in self.held(Some(guest)) {
                let is_in_band = (low..low + 100).contains(&row.priority);
                let is_own = (first..first + 10).contains(&row.table_id.0);
                assert!(is_own || row.table_id.0 == 0 && is_in_band, "{row:?}");
            }
        }
    }
}

/// Packets that the tests do not send.
fn foreign() -> Match {
    Match::any().with_in_port(PortNo(4))
}

fn ask(body: RequestBody) -> Message {
    Message::MultipartRequest(MultipartRequest { more: false, body })
}

fn rows(replies: Vec<Message>) -> Vec<FlowStats> {
    let rows = replies.into_iter().flat_map(|reply| match reply {
        Message::MultipartReply(reply) => match reply.body {
            ReplyBody::Flow(rows) => rows,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    });
    rows.collect()
}

fn error_of(replies: &[Message]) -> Option<ErrorKind> {
    replies.iter().find_map(|reply| match reply {
        Message::Error(error) => Some(error.kind),
        _ => None,
    })
}

/// A row without what time and traffic change.
fn essence(row: &FlowStats) -> String {
    let FlowStats {
        table_id,
        priority,
        idle_timeout,
        hard_timeout,
        flags,
        cookie,
        r#match,
        instructions,
        ..
    } = row;
    format!(
        "{table_id:?} {priority} {idle_timeout} {hard_timeout} {flags:?} {cookie:?} {match:?} \
         {instructions:?}",
        r#match = r#match
    )
}

fn sorted(rows: &[FlowStats]) -> Vec<String> {
    let mut rows: Vec<String> = rows.iter().map(essence).collect();
    rows.sort_unstable();
    rows
}

/// A FLOW_MOD that a switch could be sent, good or bad.
fn any_flow_mod(random: &mut SplitMix64, port: Option<u32>) -> FlowMod {
    let mut pick = |count: u64| random.next() % count;
    let matches = [
        "",
        "arp",
        "ip",
        "ip,nw_dst=10.0.0.0/8",
        "ip,nw_dst=10.1.2.3",
        "tcp,tp_dst=80",
    ];
    let words = matches[pick(6) as usize];
    let words = match port {
        Some(port) if pick(2) == 0 => format!("in_port={port},{words}"),
        _ => words.to_owned(),
    };
    let actions = [
        "output:1",
        "output:2,output:3",
        "controller",
        "drop",
        "set_field:1->tcp_dst",
    ];
    let actions = parse_actions(actions[pick(5) as usize]).unwrap();
    let table = match pick(3) {
        0 => pick(14) as u8,
        _ => pick(2) as u8,
    };
    let mut instructions = vec![Instruction::ApplyActions(actions)];
    match pick(6) {
        0 => instructions.push(Instruction::GotoTable(TableId(pick(13) as u8))),
        1 => instructions.push(instructions[0].clone()),
        2 => instructions = vec![Instruction::ClearActions],
        _ => {}
    }
    use FlowModCommand as C;
    let commands = [
        C::Add,
        C::Add,
        C::Add,
        C::Modify,
        C::ModifyStrict,
        C::Delete,
        C::DeleteStrict,
    ];
    let command = commands[pick(7) as usize];
    let is_delete = [C::Delete, C::DeleteStrict].contains(&command);
    FlowMod {
        cookie: Cookie(pick(3)),
        cookie_mask: Cookie(if pick(4) == 0 { u64::MAX } else { 0 }),
        table_id: if is_delete && pick(6) == 0 {
            TableId::ALL
        } else {
            TableId(table)
        },
        command,
        idle_timeout: if pick(5) == 0 { 60 } else { 0 },
        hard_timeout: if pick(5) == 0 { 90 } else { 0 },
        buffer_id: (pick(30) == 0).then_some(BufferId(3)),
        out_port: match pick(4) {
            0 if is_delete => PortNo(1),
            _ => PortNo::ANY,
        },
        out_group: GroupId::ANY,
        flags: FlowModFlags(pick(40) as u16 & 0x1f),
        instructions,
        ..FlowMod::add(
            [0, 1, 5, 100, 32_768, 40_000, u16::MAX][pick(7) as usize],
            parse_match(words.trim_end_matches(',')).unwrap(),
            Vec::new(),
        )
    }
}

fn tcp(port: u16) -> Bytes {
    let mut data = vec![0; 60];
    data[0..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    data[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    data[23] = 6;
    data[30..34].copy_from_slice(&[10, 1, 2, 3]);
    data[36..38].copy_from_slice(&port.to_be_bytes());
    data.into()
}

/// The ports that a packet leaves by, and whether it goes to the controller.
fn outputs(switch: &Switch, port: u32, packet: &Bytes) -> Vec<PortNo> {
    let port_of = |output| match output {
        Packets::Port { port, .. } => port,
        Packets::Controller(_) => PortNo::CONTROLLER,
    };
    let outputs = switch.output_of(PortNo(port), packet);
    outputs.into_iter().map(port_of).collect()
}

fn has_tie(switch: &Switch, port: u32, packet: &Bytes) -> bool {
    let fields = PacketFields::parse(PortNo(port), packet);
    let matching = switch
        .entries()
        .filter(|entry| fields.matches(&entry.r#match));
    let places: Vec<_> = matching
        .map(|entry| (entry.table_id, entry.priority))
        .collect();
    let different: BTreeSet<_> = places.iter().collect();
    different.len() < places.len()
}

/// Two guests with a port each, at one switch. Each of them has the switch that it believes in,
/// beside the real one. What one states, it reads back, gets the same errors, and its packets go
/// the same way; the other's entries and everybody else's stay.
#[test]
fn a_guest_has_a_switch_of_its_own() {
    let mut compared = 0;
    for seed in 0..300 {
        let mut random = SplitMix64::new(seed);
        let config = [guest(0, &["in_port=1"]), guest(1, &["in_port=2"])];
        let mut bench = Bench::new(&config);
        let believed = || {
            let mut switch = Switch::new(SwitchOptions {
                n_tables: 11,
                modify_restarts_hard_timeout: true,
                ..SwitchOptions::default()
            });
            for number in 1..=PORTS {
                let _ = switch.set_port(Instant::START, plain_port(PortNo(number)));
            }
            switch
        };
        let mut models = [believed(), believed()];
        for step in 0..60 {
            let of = (random.next() % 2) as usize;
            let port = of as u32 + 1;
            let mut flow_mod = any_flow_mod(&mut random, Some(port));
            // An entry of another port would be refused; a guest has no other.
            for action in flow_mod.instructions.iter_mut() {
                if let Instruction::ApplyActions(actions) = action {
                    for action in actions {
                        if let Action::Output { port: to, .. } = action
                            && to.is_ordinary()
                        {
                            *to = PortNo(port);
                        }
                    }
                }
            }
            let other = sorted(&bench.held(Some(1 - of as u8)));
            let message = Message::FlowMod(flow_mod);
            let wanted = models[of].apply(bench.now, &message);
            let replies = bench.send(of, &message);
            let context = format!("seed {seed} step {step} guest {of}: {message:?}");
            assert_eq!(
                error_of(&replies),
                wanted.as_ref().err().copied(),
                "{context}"
            );
            let removed = |messages: &[Message]| {
                let is_removed = |one: &&Message| matches!(one, Message::FlowRemoved(_));
                messages.iter().filter(is_removed).count()
            };
            assert_eq!(
                removed(&replies),
                removed(&wanted.unwrap_or_default()),
                "{context}"
            );
            let model: Vec<FlowStats> = models[of]
                .entries()
                .map(|entry| entry.stats(bench.now))
                .collect();
            assert_eq!(sorted(&bench.read(of)), sorted(&model), "{context}");
            assert_eq!(sorted(&bench.held(Some(1 - of as u8))), other, "{context}");
            bench.check_places();
            for tcp_port in [80, 22] {
                let packet = tcp(tcp_port);
                // OpenFlow leaves open which entry of one priority takes a packet.
                if has_tie(&models[of], port, &packet) {
                    continue;
                }
                compared += 1;
                let wanted = outputs(&models[of], port, &packet);
                assert_eq!(outputs(&bench.switch, port, &packet), wanted, "{context}");
            }
        }
    }
    assert!(compared > 10_000, "{compared}");
}

#[test]
fn what_a_guest_cannot_have_gets_its_error_with_the_message() {
    let mut bench = Bench::new(&[guest(
        0,
        &["in_port=1,dl_vlan=100", "in_port=2,dl_vlan=100"],
    )]);
    let any = || parse_match("").unwrap();
    let with = |change: &dyn Fn(&mut FlowMod)| {
        let mut flow_mod = FlowMod::add(1, any(), vec![Action::output(PortNo(1))]);
        change(&mut flow_mod);
        Message::FlowMod(flow_mod)
    };
    let packet = |in_port, actions, tag: u8| {
        let mut data = vec![0; 60];
        data[12..16].copy_from_slice(&[0x81, 0x00, 0, tag]);
        Message::PacketOut(PacketOut {
            buffer_id: None,
            in_port,
            actions: parse_actions(actions).unwrap(),
            data: data.into(),
        })
    };
    let instead = |instructions: Vec<Instruction>| {
        with(&move |it: &mut FlowMod| it.instructions.clone_from(&instructions))
    };
    let matching = |text: &str| {
        let matching = parse_match(text).unwrap();
        with(&move |it: &mut FlowMod| it.r#match = matching.clone())
    };
    use ErrorKind as E;
    for (message, error) in [
        (matching("dl_vlan=200"), E::MATCH_EPERM),
        (matching("in_port=3"), E::MATCH_EPERM),
        (
            instead(vec![Instruction::Meter(1.into())]),
            E::METER_UNKNOWN_METER,
        ),
        (
            instead(vec![Instruction::GotoTable(TableId(11))]),
            E::INST_BAD_TABLE_ID,
        ),
        (
            instead(vec![Instruction::ApplyActions(vec![Action::output(
                PortNo(3),
            )])]),
            E::ACTION_BAD_OUT_PORT,
        ),
        (
            instead(vec![Instruction::ApplyActions(vec![Action::output(
                PortNo::NORMAL,
            )])]),
            E::ACTION_BAD_OUT_PORT,
        ),
        (
            instead(vec![Instruction::ApplyActions(vec![Action::PopVlan])]),
            E::ACTION_EPERM,
        ),
        (
            instead(vec![Instruction::WriteActions(vec![Action::Group(
                GroupId(1),
            )])]),
            E::ACTION_BAD_OUT_GROUP,
        ),
        (
            with(&|it| it.table_id = TableId(11)),
            E::FLOW_MOD_BAD_TABLE_ID,
        ),
        (
            with(&|it| it.buffer_id = Some(BufferId(1))),
            E::BUFFER_UNKNOWN,
        ),
        (
            packet(PortNo::CONTROLLER, "output:3", 100),
            E::ACTION_BAD_OUT_PORT,
        ),
        (packet(PortNo(3), "output:1", 100), E::BAD_PORT),
        (packet(PortNo(1), "output:2", 200), E::REQUEST_EPERM),
        (ask(RequestBody::PortStats(PortNo(3))), E::BAD_PORT),
        (Message::PacketIn(packet_in(Cookie(0))), E::BAD_TYPE),
    ] {
        let replies = bench.send(0, &message);
        assert_eq!(error_of(&replies), Some(error), "{message:?}");
        let frame = encode(Version::V13, Xid(5), &message).unwrap();
        let quoted = &frame.bytes()[..frame.len().min(64)];
        let Some((xid, Message::Error(error))) = bench.replies[0].last() else {
            panic!("an error is the answer");
        };
        assert_eq!((*xid, &error.data[..]), (Xid(5), quoted));
    }
    assert_eq!(bench.held(Some(0)), [], "nothing has changed");
    assert_eq!(
        error_of(&bench.send(0, &packet(PortNo(1), "output:2", 100))),
        None
    );
}

fn packet_in(cookie: Cookie) -> PacketIn {
    PacketIn {
        buffer_id: Some(BufferId(9)),
        total_len: 60,
        reason: PacketInReason::ACTION,
        table_id: TableId(10),
        cookie,
        r#match: Match::any().with_in_port(PortNo(1)),
        data: tcp(80),
    }
}

#[test]
fn a_guest_has_packets_of_its_entries_and_no_more_than_its_rate() {
    let mut bench = Bench::new(&[guest(0, &[])]);
    let miss = FlowMod {
        cookie: Cookie(77),
        table_id: TableId(1),
        ..FlowMod::add(0, Match::any(), vec![Action::controller()])
    };
    bench.send(0, &Message::FlowMod(miss));
    let held = bench.held(Some(0));
    let (_, number) = of_cookie(held[0].cookie).unwrap();
    for _ in 0..1500 {
        bench.guests[0].handle_packet_in(bench.now, number, packet_in(held[0].cookie));
    }
    bench.guests[0].handle_packet_in(bench.now, number + 1, packet_in(held[0].cookie));
    bench.settle();
    assert_eq!(bench.replies[0].len(), 1000);
    let Some((_, Message::PacketIn(last))) = bench.replies[0].last() else {
        panic!("a packet-in");
    };
    let said = (last.cookie, last.table_id, last.reason, last.buffer_id);
    assert_eq!(
        said,
        (Cookie(77), TableId(1), PacketInReason::NO_MATCH, None)
    );
    let counts = bench.guests[0].take_counts();
    assert_eq!((counts.packet_ins, counts.packet_ins_shed), (1000, 500));
    // One that has asked for none has none, and no flow-removed either.
    let secondary = RoleMessage {
        role: Role::Secondary,
        generation_id: 1,
    };
    bench.send(0, &Message::RoleRequest(secondary));
    bench.now += Duration::from_secs(1);
    let before = bench.replies[0].len();
    bench.guests[0].handle_packet_in(bench.now, number, packet_in(held[0].cookie));
    bench.settle();
    assert_eq!(bench.replies[0].len(), before);
    assert_eq!(
        error_of(&bench.add(0, 1, "", "drop")),
        Some(ErrorKind::IS_SLAVE)
    );
}

#[test]
fn entries_that_others_delete_or_change_are_set_again() {
    let mut bench = Bench::new(&[
        guest(0, &["in_port=1", "in_port=2"]),
        guest(1, &["in_port=3"]),
    ]);
    bench.add(0, 100, "ip", "output:1");
    bench.add(0, 200, "arp", "output:2");
    bench.add(1, 100, "ip", "output:3");
    let wanted = sorted(&bench.held(Some(0)));
    assert_eq!(wanted.len(), 4, "two entries at two ports");
    let others = sorted(&bench.held(Some(1)));
    let asked_at = bench.now + Duration::from_secs(1);
    let read = |bench: &mut Bench| {
        let rows = bench.held(Some(0));
        bench.now = bench.now.max(asked_at) + Duration::from_secs(1);
        let now = bench.now;
        let counts = bench.guests[0].handle_rows(now, now, rows);
        bench.settle();
        counts
    };
    assert_eq!(read(&mut bench), [4, 0, 0]);
    // Deleted, and the switch reports it.
    let victim = bench.held(Some(0))[0].clone();
    let delete = super::delete_row(&victim);
    let gone = bench
        .switch
        .apply(bench.now, &Message::FlowMod(delete.clone()))
        .unwrap();
    bench.report(&gone);
    bench.settle();
    assert_eq!(sorted(&bench.held(Some(0))), wanted);
    // Deleted, changed, and added, with no report.
    bench
        .switch
        .apply(bench.now, &Message::FlowMod(delete))
        .unwrap();
    let change = FlowMod {
        command: FlowModCommand::ModifyStrict,
        instructions: vec![Instruction::ApplyActions(vec![Action::output(PortNo(4))])],
        ..FlowMod::add(
            victim.priority,
            bench.held(Some(0))[0].r#match.clone(),
            Vec::new(),
        )
    };
    let place = bench.held(Some(0))[0].clone();
    let change = FlowMod {
        priority: place.priority,
        ..change
    };
    bench
        .switch
        .apply(bench.now, &Message::FlowMod(change))
        .unwrap();
    let stray = FlowMod {
        cookie: super::entries::cookie(0, 4000),
        ..FlowMod::add(3390, Match::any(), Vec::new())
    };
    bench
        .switch
        .apply(bench.now, &Message::FlowMod(stray))
        .unwrap();
    assert_eq!(read(&mut bench), [2, 2, 1]);
    assert_eq!(sorted(&bench.held(Some(0))), wanted);
    assert_eq!(sorted(&bench.held(Some(1))), others);
    bench.check_places();
}

#[test]
fn entries_time_out_and_the_guest_is_informed_in_its_own_words() {
    let mut bench = Bench::new(&[guest(0, &["in_port=1", "in_port=2"])]);
    let entry = FlowMod {
        cookie: Cookie(5),
        idle_timeout: 10,
        flags: FlowModFlags::SEND_FLOW_REM,
        ..FlowMod::add(500, parse_match("ip").unwrap(), Vec::new())
    };
    bench.send(0, &Message::FlowMod(entry.clone()));
    assert_eq!(bench.held(Some(0)).len(), 2);
    bench.replies[0].clear();
    bench.now += Duration::from_secs(11);
    let now = bench.now;
    let gone = bench.switch.handle_timeout(now);
    assert_eq!(gone.len(), 2);
    bench.report(&gone[..1]);
    bench.settle();
    assert_eq!(bench.replies[0], [], "it has another one");
    assert_eq!(bench.read(0).len(), 1);
    bench.replies[0].clear();
    bench.report(&gone[1..]);
    bench.settle();
    let [(_, Message::FlowRemoved(removed))] = &bench.replies[0][..] else {
        panic!("{:?}", bench.replies[0]);
    };
    let said = (
        removed.cookie,
        removed.priority,
        removed.reason,
        &removed.r#match,
    );
    let wanted = (
        Cookie(5),
        500,
        FlowRemovedReason::IDLE_TIMEOUT,
        &entry.r#match,
    );
    assert_eq!(said, wanted);
    assert_eq!(bench.read(0), []);
}

#[test]
fn an_entry_that_the_switch_refuses_leaves_what_was_there() {
    let mut bench = Bench::new(&[guest(0, &[])]);
    bench.add(0, 100, "ip", "output:1");
    let wanted = bench.read(0);
    // The switch, unlike the guest's, has no room.
    let add = FlowMod::add(
        100,
        parse_match("ip").unwrap(),
        vec![Action::output(PortNo(2))],
    );
    let other = FlowMod::add(100, parse_match("arp").unwrap(), Vec::new());
    for (entry, is_new) in [(add, false), (other, true)] {
        let message = Message::FlowMod(entry);
        let frame = encode(Version::V13, Xid(9), &message).unwrap();
        bench.guests[0].handle_frame(bench.now, &frame, true);
        let Some(Output::Change(Some(ticket), _)) = bench.guests[0].poll_output() else {
            panic!("it is sent");
        };
        let error = ErrorKind::FLOW_MOD_TABLE_FULL;
        bench.guests[0].handle_refused(bench.now, ticket, error);
        bench.settle();
        let replies: Vec<Message> = bench.replies[0].iter().map(|it| it.1.clone()).collect();
        assert_eq!(error_of(&replies[replies.len() - 1..]), Some(error));
        assert_eq!(sorted(&bench.read(0)), sorted(&wanted), "new: {is_new}");
    }
}

#[test]
fn a_full_band_and_a_full_table_are_said() {
    let mut bench = Bench::new(&[guest(0, &[])]);
    for priority in 0..100 {
        assert_eq!(error_of(&bench.add(0, priority * 3, "ip", "drop")), None);
    }
    let full = Some(ErrorKind::FLOW_MOD_TABLE_FULL);
    assert_eq!(error_of(&bench.add(0, 1, "ip", "drop")), full);
    assert_eq!(
        error_of(&bench.add(0, 3, "arp", "drop")),
        None,
        "a priority that is there"
    );
    bench.check_places();
    let order: Vec<u16> = {
        let mut rows = bench.held(Some(0));
        rows.retain(|row| row.r#match == parse_match("ip").unwrap());
        rows.sort_by_key(|row| row.priority);
        let machine = &bench.guests[0];
        let stated = rows.iter().filter_map(|row| {
            let (_, number) = of_cookie(row.cookie)?;
            machine.stated_priority(number)
        });
        stated.collect()
    };
    assert_eq!(order.len(), 100);
    assert!(order.is_sorted(), "{order:?}");
    let frame = encode(
        Version::V13,
        Xid(1),
        &Message::FlowMod(FlowMod {
            table_id: TableId(1),
            ..FlowMod::add(1, Match::any(), Vec::new())
        }),
    );
    bench.guests[0].handle_frame(bench.now, &frame.unwrap(), false);
    bench.settle();
    let last = bench.replies[0].last().map(|it| it.1.clone());
    assert_eq!(
        error_of(&last.into_iter().collect::<Vec<_>>()),
        full,
        "of all guests"
    );
}

#[test]
fn ports_and_barriers_are_a_guests_own() {
    let mut bench = Bench::new(&[guest(0, &["in_port=1", "in_port=2"])]);
    let ports = |replies: Vec<Message>| -> Vec<u32> {
        let ports = replies.into_iter().flat_map(|reply| match reply {
            Message::MultipartReply(reply) => match reply.body {
                ReplyBody::PortDesc(ports) => ports.iter().map(|port| port.port_no.0).collect(),
                ReplyBody::PortStats(ports) => ports.iter().map(|port| port.port_no.0).collect(),
                _ => Vec::new(),
            },
            _ => Vec::new(),
        });
        ports.collect()
    };
    assert_eq!(ports(bench.send(0, &ask(RequestBody::PortDesc))), [1, 2]);
    assert_eq!(
        ports(bench.send(0, &ask(RequestBody::PortStats(PortNo::ANY)))),
        [1, 2]
    );
    for number in [1, 3] {
        bench.guests[0].handle_port_status(&PortStatus {
            reason: PortReason::MODIFY,
            port: plain_port(PortNo(number)),
        });
    }
    bench.replies[0].clear();
    bench.settle();
    assert_eq!(bench.replies[0].len(), 1, "of its port");
    // A barrier is answered when the switch has answered ours.
    bench.replies[0].clear();
    let barrier = encode(Version::V13, Xid(42), &Message::BarrierRequest).unwrap();
    let entry = FlowMod::add(1, Match::any(), Vec::new());
    let entry = encode(Version::V13, Xid(41), &Message::FlowMod(entry)).unwrap();
    let machine = &mut bench.guests[0];
    machine.handle_frame(bench.now, &entry, true);
    machine.handle_frame(bench.now, &barrier, true);
    let mut fence = None;
    while let Some(output) = machine.poll_output() {
        match output {
            Output::Fence(ticket) => fence = Some(ticket),
            Output::Reply(frame) => panic!("{frame:?}"),
            _ => {}
        }
    }
    machine.handle_confirmed(fence.expect("one of ours"));
    bench.settle();
    assert_eq!(bench.replies[0], [(Xid(42), Message::BarrierReply)]);
}

#[test]
fn one_that_speaks_another_version_is_turned_away() {
    for bytes in [&[1, 0, 0, 8, 0, 0, 0, 1][..], &[4, 5, 0, 8, 0, 0, 0, 1]] {
        let mut machine = Machine::new(0, DPID, 254, guest(0, &[]));
        machine.handle_connected();
        let frame = Frame::new(Bytes::copy_from_slice(bytes)).unwrap();
        machine.handle_frame(Instant::START, &frame, true);
        let mut outputs = Vec::new();
        while let Some(output) = machine.poll_output() {
            outputs.push(output);
        }
        assert_eq!(outputs.last(), Some(&Output::End), "{bytes:?}");
        let Some(Output::Reply(frame)) = outputs.get(1) else {
            panic!("it is told why");
        };
        let error = decode(frame).unwrap();
        assert_eq!(error_of(&[error]), Some(ErrorKind::HELLO_INCOMPATIBLE));
    }
}

/// Bytes that are no message, or half of one, cause neither panics nor changes of others' entries.
#[test]
fn garbage_ends_in_errors() {
    let mut kinds: BTreeMap<ErrorKind, usize> = BTreeMap::new();
    for seed in 0..3000 {
        let mut random = SplitMix64::new(seed);
        let mut bench = Bench::new(&[guest(0, &["in_port=1"]), guest(1, &["in_port=2"])]);
        bench.add(1, 7, "ip", "output:2");
        let others = sorted(&bench.held(Some(1)));
        for _ in 0..8 {
            let message = match random.next() % 4 {
                0 => ask(RequestBody::Flow(FlowStatsRequest::all())),
                1 => Message::PacketOut(PacketOut {
                    buffer_id: None,
                    in_port: PortNo(1),
                    actions: parse_actions("output:1").unwrap(),
                    data: tcp(80),
                }),
                _ => Message::FlowMod(any_flow_mod(&mut random, Some(1))),
            };
            let frame = encode(Version::V13, Xid(1), &message).unwrap();
            let mut bytes = frame.bytes().to_vec();
            for _ in 0..random.next() % 4 {
                let at = (random.next() as usize) % bytes.len();
                bytes[at] = random.next() as u8;
            }
            if random.next().is_multiple_of(3) {
                bytes.truncate(8 + (random.next() as usize) % bytes.len());
            }
            let len = u16::try_from(bytes.len()).unwrap();
            bytes[2..4].copy_from_slice(&len.to_be_bytes());
            let frame = Frame::new(bytes.into()).unwrap();
            let replies = bench.take(0, &frame);
            if let Some(kind) = error_of(&replies) {
                *kinds.entry(kind).or_default() += 1;
            }
        }
        assert_eq!(sorted(&bench.held(Some(1))), others, "seed {seed}");
        bench.check_places();
    }
    assert!(kinds.len() > 20, "{kinds:?}");
}
