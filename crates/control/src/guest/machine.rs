//! One switch as one guest sees it: a state machine.
//!
//! Messages to the switch carry a [`Ticket`], by which the caller reports their outcome. The caller
//! takes all outputs after each input.

mod answers;
mod changes;
mod compare;
mod group_table;
mod in_v13;
mod meter_table;
mod parts;
mod ports;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use clock::{Budget, Instant};
use openflow::hello::{Hello, negotiate};
use openflow::message::{
    AsyncConfig, Capabilities, ErrorMessage, PacketIn, PacketInReason, PacketOut, PortReason,
    PortStatus, Role, RoleMessage, SwitchConfig, SwitchFeatures,
};
use openflow::multipart::{FlowStats, RequestBody};
use openflow::{
    DatapathId, ErrorKind, Frame, GroupId, Message, MeterId, PortNo, TableId, Version, Xid, decode,
    encode,
};

use super::band::Band;
use super::entries::{Entries, Entry, Key};
use super::groups::{Group, Groups};
use super::meters::{Meter, Meters};
use super::slice::Slice;
use super::{Counts, Guest};
pub(crate) use answers::Answer;
use answers::Asked;
pub(crate) use compare::delete_row;
use parts::{Change, Reading};

/// Bytes of a message that the error about it repeats.
const QUOTED: usize = 64;
/// Requests of a guest that wait for the switch. Further requests are refused.
const ASKED_MAX: usize = 32;
/// Barriers of a guest that wait for the switch.
const BARRIERS_MAX: usize = 256;
/// Changes that wait for a confirmation before the guest is read again.
const PENDING_MAX: usize = 4096;
/// Entries that are mended each second, after a burst of [`ENTRIES_MAX`](super::ENTRIES_MAX).
const MENDED_PER_S: u32 = 20;

/// Names a message to the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub u64);

#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// A message to the guest.
    Reply(Frame),
    /// A packet for the guest, which may be left out.
    Packet(Frame),
    /// A change of the switch. With a ticket, an error about it goes to
    /// [`Machine::handle_refused`].
    Change(Option<Ticket>, Box<openflow::message::FlowMod>),
    /// A change of the switch's groups, with the same use of the ticket.
    Group(Ticket, Box<openflow::message::GroupMod>),
    /// A change of the switch's meters, with the same use of the ticket.
    Meter(Ticket, Box<openflow::message::MeterMod>),
    /// A question, to be answered by [`Machine::handle_answer`].
    Ask(Ticket, RequestBody),
    /// A barrier, whose reply goes to [`Machine::handle_confirmed`].
    Fence(Ticket),
    PacketOut(PacketOut),
    /// The guest does not speak OpenFlow 1.3: end its connection.
    End,
}

pub(crate) struct Machine {
    guest: u8,
    dpid: DatapathId,
    config: Arc<Guest>,
    slice: Slice,
    /// The tables of the switch that serve as the guest's tables, in their order.
    tables: Vec<TableId>,
    band: Band,
    entries: Entries,
    groups: Groups,
    meters: Meters,
    /// Ports whose packets the guest does not want unless one of its entries matches them.
    silent: BTreeSet<PortNo>,
    counts: Counts,
    session: Session,
    /// The number of the connection.
    sessions: u64,
    outputs: VecDeque<Output>,
    last: Ticket,
    /// The last message with a refused change: for several refused changes, the guest gets one
    /// error.
    refused: Option<Ticket>,
    /// Changes that the switch has not confirmed.
    pending: BTreeMap<Ticket, Pending>,
    pending_groups: BTreeMap<Ticket, Change<GroupId, Group>>,
    pending_meters: BTreeMap<Ticket, Change<MeterId, Meter>>,
    asked: BTreeMap<Ticket, Asked>,
    group_reading: Reading,
    meter_reading: Reading,
    /// A report of the guest's entries that waits until its groups and meters are compared.
    rows_waiting: Option<(Instant, Vec<FlowStats>)>,
    /// Barriers of the guest that wait for our next one, and our one under way with the guest's.
    barriers: Vec<Xid>,
    fence: Option<(Ticket, Vec<Xid>)>,
    /// Whether the guest has sent HELLO since this process began.
    was_heard: bool,
    /// Whether the switch has rows of an earlier process, which stay until the guest's HELLO.
    has_inherited: bool,
    mending: Option<Budget>,
    packets: Option<Budget>,
}

/// The state of one connection of the guest.
#[derive(Default)]
struct Session {
    is_connected: bool,
    has_greeted: bool,
    config: SwitchConfig,
    role: Option<Role>,
    generation_id: Option<u64>,
    asynchronous: Option<AsyncConfig>,
}

/// A change that the guest has asked for.
struct Pending {
    origin: Origin,
    key: Key,
    number: u16,
    /// How often the entry had been modified, this change included.
    modified: u32,
    /// The entry that was in its place.
    before: Option<Arc<Entry>>,
}

/// A message of the guest.
#[derive(Clone)]
struct Origin {
    /// A number that no other message has.
    number: Ticket,
    /// The connection on which the message arrived.
    session: u64,
    xid: Xid,
    quoted: Bytes,
}

impl Origin {
    fn of(number: Ticket, session: u64, frame: &Frame) -> Origin {
        let bytes = frame.bytes();
        Origin {
            number,
            session,
            xid: frame.xid(),
            // A copy of this part: otherwise the whole buffer would stay for it.
            quoted: Bytes::copy_from_slice(&bytes[..bytes.len().min(QUOTED)]),
        }
    }
}

impl Machine {
    pub fn new(guest: u8, dpid: DatapathId, n_tables: u8, config: Arc<Guest>) -> Machine {
        Machine {
            guest,
            dpid,
            slice: Slice::new(&config.matches),
            tables: config.tables_of(n_tables),
            band: Band::new(&super::band_of(&config.priority)),
            entries: Entries::default(),
            groups: Groups::default(),
            meters: Meters::default(),
            silent: BTreeSet::new(),
            counts: Counts::default(),
            session: Session::default(),
            sessions: 0,
            outputs: VecDeque::new(),
            last: Ticket::default(),
            refused: None,
            pending: BTreeMap::new(),
            pending_groups: BTreeMap::new(),
            pending_meters: BTreeMap::new(),
            asked: BTreeMap::new(),
            group_reading: Reading::default(),
            meter_reading: Reading::default(),
            rows_waiting: None,
            barriers: Vec::new(),
            fence: None,
            was_heard: false,
            has_inherited: false,
            mending: None,
            packets: None,
            config,
        }
    }

    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Whether the guest has sent HELLO in a version of ours: something else may listen there.
    pub fn has_greeted(&self) -> bool {
        self.session.has_greeted
    }

    pub fn entry_count(&self) -> usize {
        self.entries.len()
    }

    /// Entries, groups and meters with their parts, as they are counted for all guests together.
    pub fn size(&self) -> usize {
        self.entries.len() + self.groups.size() + self.meters.size()
    }

    /// The priority that the guest has stated for an entry.
    #[cfg(test)]
    pub fn stated_priority(&self, number: u16) -> Option<u16> {
        self.entries.numbered(number).map(|(key, _)| key.priority)
    }

    /// Whether the guest must wait: the switch has too many changes to confirm, or has not reported
    /// which groups and meters of an earlier process it has.
    pub fn is_behind(&self) -> bool {
        let is_reading = self.group_reading.is_first() || self.meter_reading.is_first();
        let parts = self.pending_groups.len() + self.pending_meters.len();
        is_reading || self.pending.len() + parts >= PENDING_MAX
    }

    /// Takes the counts since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// Notes that the guest has connected.
    pub fn handle_connected(&mut self) {
        self.sessions += 1;
        self.session = Session {
            is_connected: true,
            config: SwitchConfig {
                flags: 0,
                miss_send_len: 128,
            },
            ..Session::default()
        };
        let hello = Message::Hello(Hello::offering(&[Version::V13]));
        self.reply(Xid(0), &hello);
    }

    /// Notes that the guest's connection has ended.
    pub fn handle_disconnected(&mut self) {
        self.session = Session::default();
        self.asked.clear();
        self.barriers.clear();
        if let Some((_, xids)) = &mut self.fence {
            xids.clear();
        }
        if !self.config.is_kept {
            self.clear();
        }
    }

    /// Notes that the switch has disconnected, which ends the guest's connection too.
    pub fn handle_switch_down(&mut self) {
        self.session = Session::default();
        self.asked.clear();
        self.barriers.clear();
        self.fence = None;
        self.pending.clear();
        self.pending_groups.clear();
        self.pending_meters.clear();
        (self.group_reading, self.meter_reading) = Default::default();
        self.rows_waiting = None;
        self.outputs.clear();
        if !self.config.is_kept {
            self.clear();
            self.outputs.clear();
        }
    }

    /// Handles a message of the guest. `has_room`: all guests together may have one more entry.
    pub fn handle_frame(&mut self, now: Instant, frame: &Frame, has_room: bool) {
        if !self.session.is_connected {
            return;
        }
        self.counts.messages = self.counts.messages.saturating_add(1);
        let origin = Origin::of(self.next_ticket(), self.sessions, frame);
        if let Err(error) = self.take(now, frame, &origin, has_room) {
            self.refuse(&origin, error);
        }
    }

    fn take(
        &mut self,
        now: Instant,
        frame: &Frame,
        origin: &Origin,
        has_room: bool,
    ) -> Result<(), ErrorKind> {
        let xid = frame.xid();
        let read = decode(frame);
        if !self.session.has_greeted {
            let offered = match &read {
                Ok(Message::Hello(hello)) => {
                    negotiate(&[Version::V13], frame.version_byte(), hello)
                }
                Ok(Message::EchoRequest(data)) => {
                    self.reply(xid, &Message::EchoReply(data.clone()));
                    return Ok(());
                }
                _ => None,
            };
            self.session.has_greeted = offered.is_some();
            self.was_heard |= offered.is_some();
            if offered.is_none() {
                self.refuse(origin, ErrorKind::HELLO_INCOMPATIBLE);
                self.outputs.push_back(Output::End);
            }
            return Ok(());
        }
        if frame.version() != Some(Version::V13) {
            return Err(ErrorKind::BAD_VERSION);
        }
        let message = read.map_err(|error| error.kind)?;
        if self.session.role == Some(Role::Secondary) && is_change(&message) {
            return Err(ErrorKind::IS_SLAVE);
        }
        match message {
            Message::Hello(_) | Message::EchoReply(_) | Message::Error(_) => {}
            Message::EchoRequest(data) => self.reply(xid, &Message::EchoReply(data)),
            Message::FeaturesRequest => {
                let features = self.features();
                self.reply(xid, &Message::FeaturesReply(features));
            }
            Message::GetConfigRequest => {
                let config = self.session.config;
                self.reply(xid, &Message::GetConfigReply(config));
            }
            Message::SetConfig(config) => self.session.config = config,
            Message::RoleRequest(asked) => {
                let held = self.set_role(asked)?;
                self.reply(xid, &Message::RoleReply(held));
            }
            Message::SetAsync(asked) => self.session.asynchronous = Some(asked),
            Message::GetAsyncRequest => {
                let config = self.asynchronous();
                self.reply(xid, &Message::GetAsyncReply(config));
            }
            Message::BarrierRequest => return self.barrier(xid),
            Message::FlowMod(flow_mod) => {
                return self.flow_mod(now, origin, &flow_mod, has_room);
            }
            Message::PacketOut(packet) => return self.packet_out(packet),
            Message::GroupMod(asked) => return self.group_mod(now, origin, &asked, has_room),
            Message::MultipartRequest(request) => return self.ask(now, xid, request),
            Message::MeterMod(asked) => return self.meter_mod(now, origin, asked, has_room),
            Message::PortMod(asked) => return self.port_mod(origin, asked),
            Message::TableMod(asked) => {
                let is_known = usize::from(asked.table_id.0) < self.tables.len();
                if !is_known && asked.table_id != TableId::ALL {
                    return Err(ErrorKind::TABLE_MOD_BAD_TABLE);
                }
            }
            Message::QueueGetConfigRequest { port } if !self.slice.has_port(port) => {
                return Err(ErrorKind::QUEUE_BAD_PORT);
            }
            Message::Experimenter(_) => return Err(ErrorKind::BAD_EXPERIMENTER),
            _ => return Err(ErrorKind::BAD_TYPE),
        }
        Ok(())
    }

    fn features(&self) -> SwitchFeatures {
        SwitchFeatures {
            datapath_id: self.dpid,
            n_buffers: 0,
            n_tables: self.tables.len() as u8,
            auxiliary_id: 0,
            capabilities: Capabilities::FLOW_STATS
                | Capabilities::TABLE_STATS
                | Capabilities::PORT_STATS
                | Capabilities::GROUP_STATS
                | Capabilities::QUEUE_STATS,
            actions: 0,
            ports: Vec::new(),
        }
    }

    fn set_role(&mut self, asked: RoleMessage) -> Result<RoleMessage, ErrorKind> {
        let session = &mut self.session;
        if matches!(asked.role, Role::Primary | Role::Secondary) {
            let age = |old: u64| asked.generation_id.wrapping_sub(old) as i64;
            if session.generation_id.is_some_and(|old| age(old) < 0) {
                return Err(ErrorKind::ROLE_STALE);
            }
            session.generation_id = Some(asked.generation_id);
        }
        if asked.role != Role::NoChange {
            session.role = Some(asked.role);
        }
        Ok(RoleMessage {
            role: session.role.unwrap_or(Role::Equal),
            generation_id: session.generation_id.unwrap_or(u64::MAX),
            short_id: None,
        })
    }

    /// The messages that a connection gets without a request. The default is the specification's
    /// (1.3.5, 7.3.10).
    fn asynchronous(&self) -> AsyncConfig {
        let asked = self.session.asynchronous.clone();
        asked.unwrap_or_else(|| AsyncConfig::of_v13([0b11, 0], [0b111, 0b111], [0b1111, 0]))
    }

    fn wants(&self, masks: impl Fn(&AsyncConfig) -> [Option<u32>; 2], reason: u8) -> bool {
        let [as_equal, as_secondary] = masks(&self.asynchronous());
        let mask = match self.session.role {
            Some(Role::Secondary) => as_secondary,
            _ => as_equal,
        };
        self.session.has_greeted
            && mask
                .and_then(|mask| mask.checked_shr(reason.into()))
                .is_some_and(|bit| bit & 1 == 1)
    }

    fn packet_out(&mut self, packet: PacketOut) -> Result<(), ErrorKind> {
        self.slice.check_packet(&packet)?;
        self.check_groups(&packet.actions)?;
        self.counts.packet_outs = self.counts.packet_outs.saturating_add(1);
        let actions = self.to_switch(&packet.actions);
        let in_port = match packet.in_port {
            PortNo(0) => PortNo::CONTROLLER,
            port => port,
        };
        let packet = PacketOut {
            actions,
            in_port,
            ..packet
        };
        self.outputs.push_back(Output::PacketOut(packet));
        Ok(())
    }

    /// Handles a packet that an entry of the guest has sent to the controller.
    pub fn handle_packet_in(&mut self, now: Instant, number: u16, packet_in: PacketIn) {
        let Some((key, entry)) = self.entries.numbered(number) else {
            return;
        };
        let reason = match entry.is_table_miss(key) {
            true => PacketInReason::NO_MATCH,
            false => PacketInReason::ACTION,
        };
        let port = packet_in.r#match.in_port();
        if reason == PacketInReason::NO_MATCH && port.is_some_and(|it| self.silent.contains(&it)) {
            return;
        }
        let message = Message::PacketIn(PacketIn {
            buffer_id: None,
            reason,
            table_id: key.table,
            cookie: entry.cookie,
            r#match: in_v13::matching(packet_in.r#match),
            ..packet_in
        });
        if !self.wants(|masks| masks.packet_in_mask, reason.0) {
            return;
        }
        let rate = self.config.packet_rate;
        let packets = self
            .packets
            .get_or_insert_with(|| Budget::new(now, rate, rate));
        if !packets.take(now) {
            self.counts.packet_ins_shed = self.counts.packet_ins_shed.saturating_add(1);
            return;
        }
        if let Ok(frame) = encode(Version::V13, Xid(0), &message) {
            self.counts.packet_ins = self.counts.packet_ins.saturating_add(1);
            self.outputs.push_back(Output::Packet(frame));
        }
    }

    pub fn handle_port_status(&mut self, status: &PortStatus) {
        let PortReason(reason) = status.reason;
        if self.slice.has_port(status.port.port_no)
            && self.wants(|masks| masks.port_status_mask, reason)
        {
            let port = self.shown(status.port.clone());
            let reason = status.reason;
            self.reply(Xid(0), &Message::PortStatus(PortStatus { reason, port }));
        }
    }

    fn barrier(&mut self, xid: Xid) -> Result<(), ErrorKind> {
        if self.barriers.len() >= BARRIERS_MAX {
            return Err(ErrorKind::MULTIPART_BUFFER_OVERFLOW);
        }
        self.barriers.push(xid);
        self.advance_fence();
        Ok(())
    }

    /// Asks the switch to confirm the latest changes, once it has confirmed the earlier ones. Call
    /// it after all changes of an input.
    pub fn advance_fence(&mut self) {
        if self.fence.is_some() || (self.barriers.is_empty() && !self.has_pending()) {
            return;
        }
        let ticket = self.next_ticket();
        self.fence = Some((ticket, std::mem::take(&mut self.barriers)));
        self.outputs.push_back(Output::Fence(ticket));
    }

    fn has_pending(&self) -> bool {
        let has_parts = !(self.pending_groups.is_empty() && self.pending_meters.is_empty());
        has_parts || !self.pending.is_empty()
    }

    /// Notes that the switch has refused or taken all changes before this one.
    fn settle(&mut self, ticket: Ticket) {
        self.pending = self.pending.split_off(&ticket);
        self.pending_groups = self.pending_groups.split_off(&ticket);
        self.pending_meters = self.pending_meters.split_off(&ticket);
    }

    /// Whether a ticket belongs to the barrier under way.
    pub fn is_fence(&self, ticket: Ticket) -> bool {
        self.fence
            .as_ref()
            .is_some_and(|(fence, _)| *fence == ticket)
    }

    /// Notes that the switch will never confirm the changes before a barrier. A guest that waits
    /// for this cannot be answered, and must start over.
    pub fn handle_unconfirmed(&mut self, ticket: Ticket) {
        let Some((_, xids)) = self.fence.take_if(|(fence, _)| *fence == ticket) else {
            return;
        };
        self.settle(ticket);
        if !xids.is_empty() {
            self.outputs.push_back(Output::End);
        }
        self.advance_fence();
    }

    /// Notes that the switch has confirmed all changes before a barrier.
    pub fn handle_confirmed(&mut self, ticket: Ticket) {
        let Some((_, xids)) = self.fence.take_if(|(fence, _)| *fence == ticket) else {
            return;
        };
        self.settle(ticket);
        for xid in xids {
            self.reply(xid, &Message::BarrierReply);
        }
        self.advance_fence();
    }

    fn next_ticket(&mut self) -> Ticket {
        self.last.0 += 1;
        self.last
    }

    fn reply(&mut self, xid: Xid, message: &Message) {
        if !self.session.is_connected {
            return;
        }
        if let Ok(frame) = encode(Version::V13, xid, message) {
            self.outputs.push_back(Output::Reply(frame));
        }
    }

    fn refuse(&mut self, origin: &Origin, kind: ErrorKind) {
        self.counts.refused = self.counts.refused.saturating_add(1);
        let error = Message::Error(ErrorMessage {
            kind: in_v13::error(kind),
            experimenter: None,
            data: origin.quoted.clone(),
        });
        if origin.session == self.sessions {
            self.reply(origin.xid, &error);
        }
    }
}

fn is_change(message: &Message) -> bool {
    matches!(
        message,
        Message::FlowMod(_)
            | Message::PacketOut(_)
            | Message::GroupMod(_)
            | Message::MeterMod(_)
            | Message::PortMod(_)
            | Message::TableMod(_)
    )
}

/// Whether a request for one port, or for all, is about ports of a guest.
fn is_visible(slice: &Slice, port: PortNo) -> bool {
    port == PortNo::ANY || slice.has_port(port)
}
