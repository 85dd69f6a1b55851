//! A switch as OpenFlow describes it: apply the controller's messages, then ask where a packet
//! goes. It is the reference for controller logic, and the simulator builds its switches from it.
//!
//! The switch follows OpenFlow 1.3.1 and, where the specification leaves a choice, Open vSwitch: an
//! entry added again keeps its counters, packets are never buffered, and an action may output to a
//! port that does not exist yet. Under [`Version::V10`] the switch follows 1.0 instead: a table
//! miss goes to the controller, adding an entry again zeroes its counters, and MODIFY without a
//! matching entry adds one. Left out: meters count but never drop, tables have no eviction, NORMAL
//! learns without ageing, and queues are named in the output but not served.

mod actions;
pub mod explain;
mod flow;
mod flow_mod;
mod group;
mod pipeline;
mod stats;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::actions::Action;
use crate::error::ErrorKind;
use crate::message::{
    Capabilities, FlowRemovedReason, GroupModCommand, Message, PacketIn, PacketInReason, PacketOut,
    Port, PortConfig, PortMod, PortName, PortReason, PortState, PortStatus, Role, RoleMessage,
    SwitchConfig, SwitchFeatures,
};
use crate::multipart::{GroupDesc, MeterConfig, PortStats};
use crate::types::{DatapathId, MacAddr, MeterId, PortNo, QueueId, TableId, Version};
use clock::Instant;

pub use actions::check as check_actions;
use flow::{EntryId, FlowTable};
pub use flow::{FlowEntry, Pattern};
use group::{Groups, Meters};
use pipeline::{Trace, Walk};

/// Identity and capacity of a reference switch.
#[derive(Clone, Debug)]
pub struct SwitchOptions {
    /// Rules that the switch follows: those of 1.0, or those of 1.3 for every later version. A
    /// meter may also be an action, as in 1.5.
    pub version: Version,
    /// Identity of the switch.
    pub datapath_id: DatapathId,
    /// Number of tables, 1 to 255.
    pub n_tables: u8,
    /// Maximum number of entries in a table; one more is answered with TABLE_FULL.
    pub entries_max: usize,
    /// Maximum number of groups; one more is answered with OUT_OF_GROUPS.
    pub groups_max: usize,
    /// Bitmap of the supported [group types](crate::message::GroupType); others get BAD_TYPE.
    pub group_types: u32,
    /// Maximum number of meters; one more is answered with OUT_OF_METERS.
    pub meters_max: usize,
    /// Maximum number of addresses that NORMAL learns; packets to other addresses are flooded.
    pub macs_max: usize,
    /// Hardware named in the switch's description.
    pub hardware: &'static str,
    /// Whether MODIFY restarts the hard timeout, as in Open vSwitch. OpenFlow says it does not.
    pub modify_restarts_hard_timeout: bool,
}

impl Default for SwitchOptions {
    fn default() -> SwitchOptions {
        SwitchOptions {
            version: Version::V13,
            datapath_id: DatapathId(1),
            n_tables: 254,
            entries_max: 65_536,
            groups_max: 4_096,
            group_types: 0xf,
            meters_max: 4_096,
            macs_max: 8_192,
            hardware: "model",
            modify_restarts_hard_timeout: false,
        }
    }
}

/// Output for a packet. A packet without any output was dropped.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The packet leaves by a port, as the actions rewrote it.
    Port {
        /// Output port.
        port: PortNo,
        /// Queue that SET_QUEUE or ENQUEUE chose.
        queue: Option<QueueId>,
        /// The packet after the actions.
        packet: Bytes,
    },
    /// The packet goes to the controller.
    Controller(PacketIn),
}

/// Reason why a packet, or one of its copies, was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DropReason {
    /// The ingress port is unknown, down, or set to receive nothing.
    InPortClosed,
    /// No entry matched the packet.
    TableMiss,
    /// The packet's entries have no output.
    NoOutput,
    /// The output port is unknown, down, or set to forward nothing.
    OutPortClosed,
    /// The output port is the ingress port, which must be written as IN_PORT (OpenFlow 1.3.1,
    /// 5.12).
    BackToInPort,
    /// The packet's group does not exist or has no live bucket.
    NoBucket,
    /// The packet's TTL ran out, and the controller has not asked for such packets.
    Expired,
}

/// A switch with its tables, groups, meters and ports.
///
/// ```
/// use clock::Instant;
/// use openflow::message::FlowMod;
/// use openflow::table::{DropReason, Output, Switch};
/// use openflow::{Action, Match, Message, PortNo};
///
/// let mut switch = Switch::with_ports([1, 2]);
/// let now = Instant::START;
/// let frame = [0; 60];
/// assert_eq!(switch.process(now, PortNo(1), &frame), []);
/// assert_eq!(switch.drops(DropReason::TableMiss), 1);
///
/// let entry = FlowMod::add(1, Match::any(), vec![Action::output(PortNo(2))]);
/// switch.apply(now, &Message::FlowMod(entry)).unwrap();
/// let outputs = switch.process(now, PortNo(1), &frame);
/// assert!(matches!(outputs[..], [Output::Port { port: PortNo(2), .. }]));
/// ```
#[derive(Clone, Debug)]
pub struct Switch {
    options: SwitchOptions,
    tables: Vec<FlowTable>,
    groups: Groups,
    meters: Meters,
    ports: BTreeMap<PortNo, PortRecord>,
    learned: BTreeMap<(u16, MacAddr), PortNo>,
    /// Each entry with a timeout, once, ordered by `FlowEntry::check_at`.
    deadlines: BTreeSet<(Instant, TableId, EntryId)>,
    drops: BTreeMap<DropReason, u64>,
    config: SwitchConfig,
    /// Whether the controller wants packets whose TTL has run out. A 1.3 controller must ask for
    /// them, as with Open vSwitch.
    sends_expired: bool,
    role: Role,
    generation_id: Option<u64>,
}

#[derive(Clone, Debug)]
struct PortRecord {
    port: Port,
    stats: PortStats,
    added_at: Instant,
}

impl PortRecord {
    fn forwards(&self) -> bool {
        self.port.is_up() && !self.port.config.contains(PortConfig::NO_FWD)
    }
}

impl Switch {
    /// Returns a switch without ports or entries.
    pub fn new(options: SwitchOptions) -> Switch {
        assert!(options.n_tables > 0, "a switch has a table");
        Switch {
            tables: vec![FlowTable::default(); options.n_tables.into()],
            options,
            groups: Groups::default(),
            meters: Meters::default(),
            ports: BTreeMap::new(),
            learned: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            drops: BTreeMap::new(),
            config: SwitchConfig {
                flags: 0,
                miss_send_len: 128,
            },
            sends_expired: false,
            role: Role::Equal,
            generation_id: None,
        }
    }

    /// Returns a 1.3 switch with these ports, all up.
    pub fn with_ports(ports: impl IntoIterator<Item = u32>) -> Switch {
        let mut switch = Switch::new(SwitchOptions::default());
        for number in ports {
            let _ = switch.set_port(Instant::START, plain_port(PortNo(number)));
        }
        switch
    }

    /// Carries out a message of the controller and returns the messages to send in response.
    ///
    /// PACKET_OUT has outputs instead: pass it to [`packet_out`](Switch::packet_out).
    ///
    /// # Errors
    /// The error to answer with; the switch has not changed.
    pub fn apply(&mut self, now: Instant, message: &Message) -> Result<Vec<Message>, ErrorKind> {
        Ok(match message {
            Message::FlowMod(m) => self.flow_mod(now, m)?,
            Message::GroupMod(m) => {
                let is_taken = self.options.group_types & 1 << m.group_type as u32 != 0;
                if !is_taken && m.command != GroupModCommand::Delete {
                    return Err(ErrorKind::GROUP_BAD_TYPE);
                }
                let gone = self.groups.apply(now, m, self.options.groups_max)?;
                let concerned = |e: &FlowEntry| gone.iter().any(|g| e.uses_group(*g));
                match gone.is_empty() {
                    true => Vec::new(),
                    false => self.remove_where(now, FlowRemovedReason::GROUP_DELETE, concerned),
                }
            }
            Message::MeterMod(m) => {
                let gone = self.meters.apply(now, m, self.options.meters_max)?;
                let concerned = |e: &FlowEntry| gone.iter().any(|m| e.uses_meter(*m));
                match gone.is_empty() {
                    true => Vec::new(),
                    false => self.remove_where(now, FlowRemovedReason::DELETE, concerned),
                }
            }
            Message::PortMod(m) => self.port_mod(m)?,
            Message::TableMod(m) => {
                self.check_table(m.table_id, ErrorKind::TABLE_MOD_BAD_TABLE)?;
                Vec::new()
            }
            Message::SetConfig(config) => {
                self.config = *config;
                Vec::new()
            }
            Message::SetAsync(asked) => {
                let bit = 1 << PacketInReason::INVALID_TTL.0;
                if let Some(mask) = asked.packet_in_mask[0] {
                    self.sends_expired = mask & bit != 0;
                }
                Vec::new()
            }
            Message::Hello(_) | Message::EchoReply(_) => Vec::new(),
            Message::EchoRequest(data) => vec![Message::EchoReply(data.clone())],
            Message::BarrierRequest => vec![Message::BarrierReply],
            Message::FeaturesRequest => vec![Message::FeaturesReply(self.features())],
            Message::GetConfigRequest => vec![Message::GetConfigReply(self.config)],
            Message::RoleRequest(m) => vec![self.set_role(m)?],
            Message::MultipartRequest(m) => stats::answer(self, now, &m.body)?,
            _ => return Err(ErrorKind::BAD_TYPE),
        })
    }

    /// Carries out a PACKET_OUT.
    ///
    /// # Errors
    /// The error to answer with.
    pub fn packet_out(&mut self, now: Instant, m: &PacketOut) -> Result<Vec<Output>, ErrorKind> {
        if m.buffer_id.is_some() {
            return Err(ErrorKind::BUFFER_UNKNOWN);
        }
        let nowhere = [PortNo::CONTROLLER, PortNo::ANY, PortNo::LOCAL];
        if !m.in_port.is_ordinary() && !nowhere.contains(&m.in_port) {
            return Err(ErrorKind::BAD_PORT);
        }
        let is_table = |a: &Action| {
            matches!(
                a,
                Action::Output {
                    port: PortNo::TABLE,
                    ..
                }
            )
        };
        let others: Vec<_> = m.actions.iter().filter(|a| !is_table(a)).cloned().collect();
        self.check_actions(&others, None)?;
        let mut walk = Walk::new(self);
        walk.packet_out(m.in_port, m.data.clone(), &m.actions);
        let trace = walk.trace;
        Ok(self.count(now, None, m.data.len(), trace))
    }

    /// Receives a packet on `in_port`, counts it, and returns its outputs.
    ///
    /// Entries due at `now` still match until [`handle_timeout`](Switch::handle_timeout) is called.
    pub fn process(&mut self, now: Instant, in_port: PortNo, packet: &[u8]) -> Vec<Output> {
        let mut walk = Walk::new(self);
        walk.receive(in_port, Bytes::copy_from_slice(packet));
        let trace = walk.trace;
        self.count(now, Some(in_port), packet.len(), trace)
    }

    /// Returns the output that a packet would have, without counting it or learning from it.
    pub fn output_of(&self, in_port: PortNo, packet: &[u8]) -> Vec<Output> {
        let mut walk = Walk::new(self);
        walk.receive(in_port, Bytes::copy_from_slice(packet));
        walk.trace.outputs
    }

    /// Returns the ports that the packet would leave by, in the order of its actions.
    pub fn ports_of(&self, in_port: PortNo, packet: &[u8]) -> Vec<PortNo> {
        let port = |output| match output {
            Output::Port { port, .. } => port,
            Output::Controller(_) => PortNo::CONTROLLER,
        };
        let outputs = self.output_of(in_port, packet);
        outputs.into_iter().map(port).collect()
    }

    /// Iterates over the entries, table by table, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &FlowEntry> {
        self.tables.iter().flat_map(|t| t.iter().map(|(_, e)| e))
    }

    /// Number of entries in all tables.
    pub fn entry_count(&self) -> usize {
        self.tables.iter().map(FlowTable::len).sum()
    }

    /// Iterates over the groups in the order of their numbers.
    pub fn groups(&self) -> impl Iterator<Item = GroupDesc> {
        self.groups.iter().map(|(group_id, group)| GroupDesc {
            group_type: group.group_type,
            group_id,
            buckets: group.buckets.clone(),
            properties: Vec::new(),
        })
    }

    /// Number of groups.
    pub fn group_count(&self) -> usize {
        self.groups.iter().count()
    }

    /// Iterates over the meters in the order of their numbers.
    pub fn meters(&self) -> impl Iterator<Item = MeterConfig> {
        self.meters.iter().map(|(meter_id, meter)| MeterConfig {
            flags: meter.config.flags,
            meter_id,
            bands: meter.config.bands.clone(),
        })
    }

    /// Iterates over the ports in the order of their numbers.
    pub fn ports(&self) -> impl Iterator<Item = &Port> {
        self.ports.values().map(|r| &r.port)
    }

    /// Number of packets, and copies of packets, dropped for this reason.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops.get(&reason).copied().unwrap_or(0)
    }

    /// Returns the answer to FEATURES_REQUEST.
    pub fn features(&self) -> SwitchFeatures {
        let v10 = self.options.version == Version::V10;
        SwitchFeatures {
            datapath_id: self.options.datapath_id,
            n_buffers: 0,
            n_tables: self.options.n_tables,
            auxiliary_id: 0,
            capabilities: if v10 {
                Capabilities::FLOW_STATS | Capabilities::TABLE_STATS | Capabilities::PORT_STATS
            } else {
                Capabilities::FLOW_STATS
                    | Capabilities::TABLE_STATS
                    | Capabilities::PORT_STATS
                    | Capabilities::GROUP_STATS
            },
            // OFPAT_OUTPUT to OFPAT_ENQUEUE.
            actions: if v10 { 0xfff } else { 0 },
            ports: if v10 {
                self.ports().cloned().collect()
            } else {
                Vec::new()
            },
        }
    }

    /// Adds or changes a port; returns the PORT_STATUS to send.
    pub fn set_port(&mut self, now: Instant, port: Port) -> Message {
        let status = |reason, port| Message::PortStatus(PortStatus { reason, port });
        if let Some(record) = self.ports.get_mut(&port.port_no) {
            record.port = port.clone();
            return status(PortReason::MODIFY, port);
        }
        let record = PortRecord {
            port: port.clone(),
            stats: stats::no_traffic(port.port_no),
            added_at: now,
        };
        self.ports.insert(port.port_no, record);
        status(PortReason::ADD, port)
    }

    /// Removes a port; returns the PORT_STATUS to send if the port existed.
    pub fn remove_port(&mut self, number: PortNo) -> Option<Message> {
        let record = self.ports.remove(&number)?;
        self.learned.retain(|_, port| *port != number);
        Some(Message::PortStatus(PortStatus {
            reason: PortReason::DELETE,
            port: record.port,
        }))
    }

    /// Sets whether a port has a link; returns the PORT_STATUS to send if this is a change.
    pub fn set_link(&mut self, number: PortNo, up: bool) -> Option<Message> {
        let record = self.ports.get_mut(&number)?;
        let state = record.port.state.0 & !(PortState::LINK_DOWN | PortState::LIVE).0;
        let link = if up {
            PortState::LIVE
        } else {
            PortState::LINK_DOWN
        };
        let before = record.port.is_up();
        record.port.state = PortState(state | link.0);
        if record.port.is_up() == before {
            return None;
        }
        Some(Message::PortStatus(PortStatus {
            reason: PortReason::MODIFY,
            port: record.port.clone(),
        }))
    }

    /// Expires the entries that are due; returns the FLOW_REMOVED messages to send.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<Message> {
        let mut removed = Vec::new();
        while let Some((at, table, id)) = self.deadlines.first().copied() {
            if at > now {
                break;
            }
            self.deadlines.pop_first();
            let Some(entry) = self.tables[usize::from(table.0)].get_mut(id) else {
                continue;
            };
            entry.check_at = None;
            match entry.deadline() {
                Some((deadline, reason)) if deadline <= now => {
                    removed.extend(self.remove(now, table, id, reason));
                }
                _ => self.watch(table, id),
            }
        }
        removed
    }

    /// Returns when to call [`handle_timeout`](Switch::handle_timeout). The time may be early for
    /// an entry that was used meanwhile, never late.
    pub fn poll_timeout(&self) -> Option<(Instant, &'static str)> {
        self.deadlines
            .first()
            .map(|(at, _, _)| (*at, "flow entry timeout"))
    }

    fn check_table(&self, table: TableId, error: ErrorKind) -> Result<(), ErrorKind> {
        let known = usize::from(table.0) < self.tables.len();
        if known { Ok(()) } else { Err(error) }
    }

    fn port_mod(&mut self, m: &PortMod) -> Result<Vec<Message>, ErrorKind> {
        let Some(record) = self.ports.get_mut(&m.port_no) else {
            return Err(ErrorKind::PORT_MOD_BAD_PORT);
        };
        if record.port.hw_addr != m.hw_addr {
            return Err(ErrorKind::PORT_MOD_BAD_HW_ADDR);
        }
        let config = record.port.config.0 & !m.mask.0 | m.config.0 & m.mask.0;
        if record.port.config.0 == config {
            return Ok(Vec::new());
        }
        record.port.config = PortConfig(config);
        Ok(vec![Message::PortStatus(PortStatus {
            reason: PortReason::MODIFY,
            port: record.port.clone(),
        })])
    }

    fn set_role(&mut self, m: &RoleMessage) -> Result<Message, ErrorKind> {
        if matches!(m.role, Role::Primary | Role::Secondary) {
            let age = |old: u64| m.generation_id.wrapping_sub(old) as i64;
            if self.generation_id.is_some_and(|old| age(old) < 0) {
                return Err(ErrorKind::ROLE_STALE);
            }
            self.generation_id = Some(m.generation_id);
        }
        if m.role != Role::NoChange {
            self.role = m.role;
        }
        Ok(Message::RoleReply(RoleMessage::new(
            self.role,
            self.generation_id.unwrap_or(u64::MAX),
        )))
    }

    fn port_is_live(&self, port: PortNo) -> bool {
        let is_live = |port: &Port| port.is_up() && port.state.contains(PortState::LIVE);
        self.ports.get(&port).is_some_and(|r| is_live(&r.port))
    }

    /// Updates the counters of everything that a walk touched.
    fn count(
        &mut self,
        now: Instant,
        in_port: Option<PortNo>,
        len: usize,
        trace: Trace,
    ) -> Vec<Output> {
        if let Some(record) = in_port.and_then(|p| self.ports.get_mut(&p)) {
            record.stats.rx_packets += 1;
            record.stats.rx_bytes += len as u64;
        }
        for (table_id, hit) in trace.lookups {
            let table = &mut self.tables[usize::from(table_id.0)];
            table.lookup_count += 1;
            if let Some(entry) = hit.and_then(|id| table.get_mut(id)) {
                entry.count(now, len);
                table.matched_count += 1;
            }
        }
        for (group, buckets) in trace.groups {
            self.groups.count(group, &buckets, len);
        }
        for meter in trace.meters {
            self.meters.count(meter, len);
        }
        for reason in trace.drops {
            *self.drops.entry(reason).or_default() += 1;
        }
        for (address, port) in trace.learned {
            let room = self.learned.len() < self.options.macs_max;
            if room || self.learned.contains_key(&address) {
                self.learned.insert(address, port);
            }
        }
        for output in &trace.outputs {
            if let Output::Port { port, packet, .. } = output
                && let Some(record) = self.ports.get_mut(port)
            {
                record.stats.tx_packets += 1;
                record.stats.tx_bytes += packet.len() as u64;
            }
        }
        trace.outputs
    }

    fn meter_flow_count(&self, meter: MeterId) -> u32 {
        self.entries().filter(|e| e.uses_meter(meter)).count() as u32
    }
}

/// A port that is up, at 10 Gb/s over copper.
pub fn plain_port(port_no: PortNo) -> Port {
    const FD_10GB_COPPER: u32 = 1 << 6 | 1 << 11;
    let [a, b, c, d] = port_no.0.to_be_bytes();
    Port {
        port_no,
        hw_addr: MacAddr([2, 0xff, a, b, c, d]),
        name: PortName::new(&format!("port{}", port_no.0)),
        config: PortConfig::empty(),
        state: PortState::LIVE,
        curr: FD_10GB_COPPER,
        advertised: 0,
        supported: FD_10GB_COPPER,
        peer: 0,
        curr_speed: 10_000_000,
        max_speed: 10_000_000,
        properties: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
