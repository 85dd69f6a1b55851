//! Guests against the reference switch, which stands for the real one and, once more, for the
//! switch that each guest believes it has.

mod cases;
mod groups;
mod meters;
mod model;
mod ports;
mod versions;

use std::sync::Arc;

use bytes::Bytes;
use clock::{Duration, Instant, SplitMix64};
use openflow::message::{FlowMod, FlowModCommand, PacketOut};
use openflow::multipart::{FlowStats, FlowStatsRequest, MultipartRequest, ReplyBody, RequestBody};
use openflow::table::{Switch, SwitchOptions, plain_port};
use openflow::text::{parse_actions, parse_match};
use openflow::{
    Action, Cookie, DatapathId, ErrorKind, Frame, GroupId, Instruction, Match, Message, PortNo,
    TableId, Version, Xid, decode, encode,
};

use super::machine::{Answer, Machine, Output};
use super::{Guest, of_cookie};
use crate::entry::in_version;

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

/// A switch with guests, and an entry of another owner in each table.
struct Bench {
    now: Instant,
    /// The version that the switch speaks.
    version: Version,
    switch: Switch,
    guests: Vec<Machine>,
    /// Replies to each guest, oldest first.
    replies: Vec<Vec<(Xid, Message)>>,
}

impl Bench {
    fn new(guests: &[Arc<Guest>]) -> Bench {
        Bench::speaking(Version::V13, guests)
    }

    fn speaking(version: Version, guests: &[Arc<Guest>]) -> Bench {
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
            version,
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

    /// Sends a message of a guest, and handles all messages that follow. Returns the replies.
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
                match output {
                    Output::Reply(frame) | Output::Packet(frame) => {
                        assert_eq!(frame.version(), Some(Version::V13));
                        let message = decode(&frame).expect("what guests get can be read");
                        self.replies[guest].push((frame.xid(), message));
                    }
                    Output::Change(ticket, mut flow_mod) => {
                        in_version(self.version, &mut flow_mod.instructions);
                        match self.switch_takes(Message::FlowMod(*flow_mod)) {
                            Ok(replies) => self.report(&replies),
                            Err(error) => {
                                let ticket = ticket.expect("only a guest's own is refused");
                                self.guests[guest].handle_refused(now, ticket, error);
                            }
                        }
                    }
                    Output::Group(ticket, group) => {
                        match self.switch_takes(Message::GroupMod(*group)) {
                            Ok(replies) => self.report(&replies),
                            Err(error) => self.guests[guest].handle_refused(now, ticket, error),
                        }
                    }
                    Output::Meter(ticket, meter) => {
                        match self.switch_takes(Message::MeterMod(*meter)) {
                            Ok(replies) => self.report(&replies),
                            Err(error) => self.guests[guest].handle_refused(now, ticket, error),
                        }
                    }
                    Output::Ask(ticket, body) => {
                        let request = MultipartRequest { more: false, body };
                        let asked = Message::MultipartRequest(request);
                        let replies = self.switch_takes(asked).expect("it is answered");
                        let bodies = replies.into_iter().map(|reply| match reply {
                            Message::MultipartReply(reply) => reply.body,
                            other => panic!("{other:?}"),
                        });
                        let answer = Answer::Whole(bodies.collect());
                        self.guests[guest].handle_answer(now, ticket, answer);
                    }
                    Output::Fence(ticket) => self.guests[guest].handle_confirmed(ticket),
                    Output::PacketOut(_) | Output::End => {}
                }
            }
        }
    }

    /// Has the switch carry out a message as its version encodes it. Returns the replies in the
    /// same way.
    fn switch_takes(&mut self, message: Message) -> Result<Vec<Message>, ErrorKind> {
        let version = self.version;
        let carried = |message: &Message| {
            let frame = encode(version, Xid(1), message).expect("it encodes");
            decode(&frame).expect("it is sound")
        };
        let replies = self.switch.apply(self.now, &carried(&message))?;
        Ok(replies.iter().map(carried).collect())
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

    /// The entries that the switch has of a guest, or of no guest.
    fn held(&self, guest: Option<u8>) -> Vec<FlowStats> {
        let of = |row: &FlowStats| of_cookie(row.cookie).map(|(guest, _)| guest) == guest;
        let all = self.switch.entries().map(|entry| entry.stats(self.now));
        all.filter(of).collect()
    }

    /// Checks that every entry is in the places of its guest, and that others' entries are there.
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

/// A row without the fields that time and traffic change.
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

fn tcp(port: u16) -> Bytes {
    let mut data = vec![0; 60];
    data[0..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    data[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    data[23] = 6;
    data[30..34].copy_from_slice(&[10, 1, 2, 3]);
    data[36..38].copy_from_slice(&port.to_be_bytes());
    data.into()
}
