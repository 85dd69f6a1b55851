//! One emulated switch with several controllers, whose roles and generation ids are those of Open
//! vSwitch. No socket and no clock.

use clock::Instant;
use openflow::hello::Hello;
use openflow::message::{Role, RoleMessage, RoleReason, RoleStatus};
use openflow::table::{Switch as Tables, SwitchOptions, plain_port};
use openflow::{DatapathId, ErrorKind, Frame, Message, PortNo, Version, Xid, decode, encode};

use crate::controller::answers::refusal;
use crate::controller::switch::{Broken, check_hello};

const VERSION: Version = Version::V13;
const PORTS: u32 = 2;

/// One controller's connection.
#[derive(Default)]
pub struct Line {
    /// Bytes for the controller.
    pub out: Vec<u8>,
    pub is_up: bool,
    /// `None` until the controller requests a role: Open vSwitch's EQUAL.
    role: Option<Role>,
}

/// The change of masters since [`Switch::watch`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handover {
    /// Time when the master was lost: its connection ended, or another one took its place.
    pub lost: Option<Instant>,
    /// Time when another controller became master.
    pub taken: Option<Instant>,
    /// Time when the new master sent its first message that does more than ask for roles.
    pub served: Option<Instant>,
}

pub struct Switch {
    tables: Tables,
    pub lines: Vec<Line>,
    generation: Option<u64>,
    pub handover: Handover,
    /// Messages that were refused because another controller is master.
    pub refused: u64,
}

impl Switch {
    pub fn new(number: u32, controllers: usize) -> Switch {
        let mut tables = Tables::new(SwitchOptions {
            datapath_id: DatapathId(u64::from(number) + 1),
            hardware: "emulated switch",
            ..SwitchOptions::default()
        });
        for port in (1..=PORTS).map(PortNo) {
            let _ = tables.set_port(Instant::START, plain_port(port));
        }
        Switch {
            tables,
            lines: (0..controllers).map(|_| Line::default()).collect(),
            generation: None,
            handover: Handover::default(),
            refused: 0,
        }
    }

    /// The controller that is master.
    pub fn master(&self) -> Option<usize> {
        let is_master = |line: &Line| line.is_up && line.role == Some(Role::Primary);
        self.lines.iter().position(is_master)
    }

    /// Whether every other controller that is connected is a slave.
    pub fn has_slaves(&self) -> bool {
        let mut others = self.lines.iter().filter(|line| line.is_up);
        others.all(|line| matches!(line.role, Some(Role::Primary | Role::Secondary)))
    }

    /// Clears the record of the change of masters.
    pub fn watch(&mut self) {
        self.handover = Handover::default();
    }

    pub fn handle_connected(&mut self, line: usize) {
        self.lines[line] = Line {
            is_up: true,
            ..Line::default()
        };
        self.push(line, Xid(1), &Message::Hello(Hello::offering(&[VERSION])));
    }

    pub fn handle_closed(&mut self, now: Instant, line: usize) {
        if self.master() == Some(line) {
            self.handover.lost.get_or_insert(now);
        }
        self.lines[line] = Line::default();
    }

    /// Carries out a message and answers it.
    ///
    /// # Errors
    /// A version that was not offered: the connection cannot continue.
    pub fn handle(&mut self, now: Instant, line: usize, frame: &Frame) -> Result<(), Broken> {
        let message = match decode(frame) {
            Ok(message) => message,
            Err(error) => {
                self.refuse(line, frame, error.kind);
                return Ok(());
            }
        };
        match &message {
            Message::Hello(hello) => return check_hello(VERSION, frame.version_byte(), hello),
            Message::RoleRequest(request) => {
                self.change_role(now, line, frame, *request);
                return Ok(());
            }
            Message::EchoRequest(_) => {}
            Message::EchoReply(_) | Message::Error(_) => return Ok(()),
            _ if self.master() == Some(line) && self.handover.taken.is_some() => {
                self.handover.served.get_or_insert(now);
            }
            _ => {}
        }
        let writes = matches!(
            message,
            Message::FlowMod(_)
                | Message::GroupMod(_)
                | Message::MeterMod(_)
                | Message::PortMod(_)
                | Message::TableMod(_)
                | Message::PacketOut(_)
        );
        if writes && self.lines[line].role == Some(Role::Secondary) {
            self.refused += 1;
            self.refuse(line, frame, ErrorKind::IS_SLAVE);
            return Ok(());
        }
        if let Message::PacketOut(packet_out) = &message {
            if let Err(kind) = self.tables.packet_out(now, packet_out) {
                self.refuse(line, frame, kind);
            }
            return Ok(());
        }
        match self.tables.apply(now, &message) {
            Ok(answers) => {
                for answer in &answers {
                    let xid = match answer {
                        Message::FlowRemoved(_) | Message::PortStatus(_) => Xid(0),
                        _ => frame.xid(),
                    };
                    self.push(line, xid, answer);
                }
            }
            Err(kind) => self.refuse(line, frame, kind),
        }
        Ok(())
    }

    /// Changes a role: OpenFlow 1.3.5, 6.3.6. The replaced master is notified, as by Open vSwitch.
    fn change_role(&mut self, now: Instant, line: usize, frame: &Frame, request: RoleMessage) {
        let wanted = request.generation_id;
        if matches!(request.role, Role::Primary | Role::Secondary) {
            let is_stale = |seen: u64| (wanted.wrapping_sub(seen) as i64) < 0;
            if self.generation.is_some_and(is_stale) {
                return self.refuse(line, frame, ErrorKind::ROLE_STALE);
            }
            self.generation = Some(wanted);
        }
        let before = self.master();
        if request.role == Role::Primary && before != Some(line) {
            if let Some(before) = before {
                self.lines[before].role = Some(Role::Secondary);
                let status = RoleStatus {
                    role: Role::Secondary,
                    reason: RoleReason::PRIMARY_REQUEST,
                    generation_id: wanted,
                    properties: Vec::new(),
                };
                self.push(before, Xid(0), &Message::RoleStatus(status));
            }
            self.handover.lost.get_or_insert(now);
            (self.handover.taken, self.handover.served) = (Some(now), None);
        }
        if request.role != Role::NoChange {
            self.lines[line].role = Some(request.role);
        }
        let reply = RoleMessage::new(
            self.lines[line].role.unwrap_or(Role::Equal),
            self.generation.unwrap_or(u64::MAX),
        );
        self.push(line, frame.xid(), &Message::RoleReply(reply));
    }

    fn refuse(&mut self, line: usize, frame: &Frame, kind: ErrorKind) {
        self.push(line, frame.xid(), &refusal(kind, frame));
    }

    fn push(&mut self, line: usize, xid: Xid, message: &Message) {
        let line = &mut self.lines[line];
        // The tables answer only with messages of 1.3.
        if let (true, Ok(frame)) = (line.is_up, encode(VERSION, xid, message)) {
            line.out.extend_from_slice(frame.bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn ask(switch: &mut Switch, ms: u64, line: usize, message: &Message) {
        let frame = encode(VERSION, Xid(7), message).unwrap();
        switch.handle(at(ms), line, &frame).unwrap();
    }

    fn role(role: Role, generation_id: u64) -> Message {
        Message::RoleRequest(RoleMessage::new(role, generation_id))
    }

    /// Takes the messages for a controller out of its queue.
    fn said(switch: &mut Switch, line: usize) -> Vec<Message> {
        let mut bytes = bytes::BytesMut::from(&std::mem::take(&mut switch.lines[line].out)[..]);
        let mut messages = Vec::new();
        while let Some(frame) = Frame::split_from(&mut bytes).unwrap() {
            messages.push(decode(&frame).unwrap());
        }
        messages
    }

    #[test]
    fn one_controller_is_master_and_the_one_before_hears_of_it() {
        let mut switch = Switch::new(0, 2);
        for line in 0..2 {
            switch.handle_connected(line);
        }
        ask(&mut switch, 1, 0, &role(Role::Primary, 16));
        ask(&mut switch, 1, 1, &role(Role::Secondary, 16));
        assert_eq!((switch.master(), switch.has_slaves()), (Some(0), true));
        switch.watch();
        said(&mut switch, 0);
        ask(&mut switch, 5, 1, &role(Role::Primary, 17));
        assert_eq!(switch.master(), Some(1));
        let told = said(&mut switch, 0);
        assert!(matches!(told[..], [Message::RoleStatus(_)]), "{told:?}");

        // The previous master is refused, and an older generation is stale.
        ask(&mut switch, 6, 0, &Message::BarrierRequest);
        ask(&mut switch, 6, 0, &role(Role::Primary, 16));
        let errors = said(&mut switch, 0);
        let Message::Error(error) = &errors[1] else {
            panic!("{errors:?}");
        };
        assert_eq!(error.kind, ErrorKind::ROLE_STALE);
        assert_eq!(switch.handover.served, None);
        ask(&mut switch, 8, 1, &Message::BarrierRequest);
        let expected = Handover {
            lost: Some(at(5)),
            taken: Some(at(5)),
            served: Some(at(8)),
        };
        assert_eq!(switch.handover, expected);
    }

    #[test]
    fn without_its_masters_connection_a_switch_has_none() {
        let mut switch = Switch::new(0, 2);
        for line in 0..2 {
            switch.handle_connected(line);
        }
        ask(&mut switch, 1, 0, &role(Role::Primary, 16));
        switch.watch();
        switch.handle_closed(at(3), 0);
        assert_eq!(switch.master(), None);
        ask(&mut switch, 9, 1, &role(Role::Primary, 17));
        let Handover { lost, taken, .. } = switch.handover;
        assert_eq!((lost, taken), (Some(at(3)), Some(at(9))));
    }
}
