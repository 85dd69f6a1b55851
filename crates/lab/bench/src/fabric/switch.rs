//! One emulated switch: it takes its controller's messages, returns answers, and has the tables of
//! the reference switch. No socket and no clock.

use bytes::Bytes;
use clock::Instant;
use openflow::hello::Hello;
use openflow::message::{FlowModCommand, PacketIn};
use openflow::table::{Output, Switch as Tables, SwitchOptions, plain_port};
use openflow::{
    DatapathId, ErrorKind, Field, Frame, Match, Message, PortNo, Version, Xid, decode, encode,
};
use serde::Serialize;

use crate::controller::answers::refusal;
use crate::controller::switch::{Broken, check_hello, is_lldp};

/// Unsent bytes above which the switch drops packet-ins and reads nothing: the controller sends
/// requests but does not read.
pub const UNSENT_BYTES_MAX: usize = 1 << 20;
/// Entries that Open vSwitch reports as the size of a table.
const ENTRIES_MAX: usize = 1_000_000;
const GROUPS_MAX: usize = 1 << 16;
const VERSION: Version = Version::V13;
const ECHO_XID: Xid = Xid(0x6563_686f);

/// Messages between a switch and its controller, or the sum over all switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub flow_mods: u64,
    pub group_mods: u64,
    /// Packet-outs, without those that carry LLDP.
    pub packet_outs: u64,
    pub barriers: u64,
    /// Messages of every other kind, except echoes and LLDP.
    pub others: u64,
    /// Messages that the switch refused with an error.
    pub refused: u64,
    /// Packet-ins, without those that carry LLDP.
    pub packet_ins: u64,
    /// Packet-ins that were dropped because the connection could take no more.
    pub unsent: u64,
    /// Packet-outs and packet-ins with LLDP.
    pub discovery: u64,
    pub flow_removed: u64,
}

impl Counts {
    /// Messages to the switch that are for its conversations.
    pub fn received(&self) -> u64 {
        self.flow_mods + self.group_mods + self.packet_outs + self.barriers + self.others
    }

    pub fn add(&mut self, other: &Counts) {
        *self = self.with(other, u64::wrapping_add);
    }

    pub fn since(&self, before: &Counts) -> Counts {
        self.with(before, u64::wrapping_sub)
    }

    fn with(&self, other: &Counts, of: fn(u64, u64) -> u64) -> Counts {
        Counts {
            flow_mods: of(self.flow_mods, other.flow_mods),
            group_mods: of(self.group_mods, other.group_mods),
            packet_outs: of(self.packet_outs, other.packet_outs),
            barriers: of(self.barriers, other.barriers),
            others: of(self.others, other.others),
            refused: of(self.refused, other.refused),
            packet_ins: of(self.packet_ins, other.packet_ins),
            unsent: of(self.unsent, other.unsent),
            discovery: of(self.discovery, other.discovery),
            flow_removed: of(self.flow_removed, other.flow_removed),
        }
    }
}

/// The effect of a controller's message beyond the switch.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    Nothing,
    /// Packets leave.
    Outputs(Vec<Output>),
    /// Packets from and to these addresses may now be forwarded differently; `None` means any
    /// address.
    Changed {
        src: Option<u64>,
        dst: Option<u64>,
    },
    /// The echo request that left at this time was answered.
    Echoed {
        sent_ns: u64,
    },
}

pub struct Switch {
    pub tables: Tables,
    /// Bytes for the controller.
    pub out: Vec<u8>,
    /// Whether the switch has a connection.
    pub is_up: bool,
    /// Whether the controller has asked for the switch's features since it connected.
    pub is_admitted: bool,
    pub counts: Counts,
}

impl Switch {
    pub fn new(number: usize, ports: impl Iterator<Item = PortNo>) -> Switch {
        let mut tables = Tables::new(SwitchOptions {
            datapath_id: DatapathId(number as u64 + 1),
            entries_max: ENTRIES_MAX,
            groups_max: GROUPS_MAX,
            hardware: "emulated switch",
            ..SwitchOptions::default()
        });
        for port in ports {
            let _ = tables.set_port(Instant::START, plain_port(port));
        }
        Switch {
            tables,
            out: Vec::new(),
            is_up: false,
            is_admitted: false,
            counts: Counts::default(),
        }
    }

    pub fn handle_connected(&mut self) {
        self.is_up = true;
        self.push(Xid(1), &Message::Hello(Hello::offering(&[VERSION])));
    }

    /// Handles the end of the connection. Entries stay, as in Open vSwitch's `secure` mode.
    pub fn handle_closed(&mut self) {
        (self.is_up, self.is_admitted) = (false, false);
        self.out.clear();
    }

    /// Carries out a message and answers it.
    ///
    /// # Errors
    /// A version that was not offered: the connection cannot continue.
    pub fn handle(&mut self, now: Instant, frame: &Frame) -> Result<Effect, Broken> {
        let xid = frame.xid();
        let message = match decode(frame) {
            Ok(message) => message,
            Err(error) => {
                self.refuse(frame, error.kind);
                return Ok(Effect::Nothing);
            }
        };
        match &message {
            Message::Hello(hello) => {
                check_hello(VERSION, frame.version_byte(), hello)?;
                return Ok(Effect::Nothing);
            }
            Message::EchoReply(data) => {
                let sent = data.first_chunk().map(|ns| u64::from_be_bytes(*ns));
                return Ok(sent.map_or(Effect::Nothing, |sent_ns| Effect::Echoed { sent_ns }));
            }
            Message::PacketOut(packet_out) => {
                match is_lldp(&packet_out.data) {
                    true => self.counts.discovery += 1,
                    false => self.counts.packet_outs += 1,
                }
                return Ok(match self.tables.packet_out(now, packet_out) {
                    Ok(outputs) => Effect::Outputs(outputs),
                    Err(kind) => {
                        self.refuse(frame, kind);
                        Effect::Nothing
                    }
                });
            }
            Message::FlowMod(_) => self.counts.flow_mods += 1,
            Message::GroupMod(_) => self.counts.group_mods += 1,
            Message::BarrierRequest => self.counts.barriers += 1,
            Message::FeaturesRequest => {
                self.is_admitted = true;
                self.counts.others += 1;
            }
            Message::Error(_) => return Ok(Effect::Nothing),
            Message::EchoRequest(_) => {}
            _ => self.counts.others += 1,
        }
        match self.tables.apply(now, &message) {
            Ok(answers) => answers.iter().for_each(|answer| self.report(xid, answer)),
            Err(kind) => self.refuse(frame, kind),
        }
        Ok(effect(&message))
    }

    /// Sends the packet to the controller, if the connection can take it.
    pub fn packet_in(&mut self, packet_in: PacketIn) {
        let is_lldp = is_lldp(&packet_in.data);
        match self.out.len() < UNSENT_BYTES_MAX && self.is_up {
            true if is_lldp => self.counts.discovery += 1,
            true => self.counts.packet_ins += 1,
            false => {
                self.counts.unsent += 1;
                return;
            }
        }
        self.push(Xid(0), &Message::PacketIn(packet_in));
    }

    /// Sends an echo request. Its round trip shows how long control messages wait under the load.
    pub fn send_echo(&mut self, now: Instant) {
        let data = Bytes::copy_from_slice(&now.0.to_be_bytes());
        self.push(ECHO_XID, &Message::EchoRequest(data));
    }

    /// Sets whether a port has a link.
    pub fn set_link(&mut self, port: PortNo, up: bool) {
        if let Some(status) = self.tables.set_link(port, up) {
            self.report(Xid(0), &status);
        }
    }

    /// Expires the entries that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.tables.poll_timeout().is_none_or(|(at, _)| at > now) {
            return;
        }
        for removed in self.tables.handle_timeout(now) {
            self.report(Xid(0), &removed);
        }
    }

    fn report(&mut self, xid: Xid, message: &Message) {
        let xid = match message {
            Message::FlowRemoved(_) => {
                self.counts.flow_removed += 1;
                Xid(0)
            }
            Message::PortStatus(_) => Xid(0),
            _ => xid,
        };
        self.push(xid, message);
    }

    fn refuse(&mut self, frame: &Frame, kind: ErrorKind) {
        self.counts.refused += 1;
        self.push(frame.xid(), &refusal(kind, frame));
    }

    fn push(&mut self, xid: Xid, message: &Message) {
        if !self.is_up {
            return;
        }
        // The tables answer only with messages of 1.3; the tests would show any other as missing.
        if let Ok(frame) = encode(VERSION, xid, message) {
            self.out.extend_from_slice(frame.bytes());
        }
    }
}

fn effect(message: &Message) -> Effect {
    let any = Effect::Changed {
        src: None,
        dst: None,
    };
    match message {
        Message::FlowMod(m) if m.command != FlowModCommand::Delete => Effect::Changed {
            src: address(&m.r#match, Field::EthSrc),
            dst: address(&m.r#match, Field::EthDst),
        },
        Message::FlowMod(_) | Message::GroupMod(_) | Message::PortMod(_) => any,
        _ => Effect::Nothing,
    }
}

fn address(r#match: &Match, field: Field) -> Option<u64> {
    r#match.exact(field).map(|address| address as u64)
}
