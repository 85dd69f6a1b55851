//! One switch as the controller knows it, and the messages to it.

use std::collections::BTreeMap;

use clock::{Duration, Instant};
use openflow::message::{Port, SwitchConfig};
use openflow::multipart::{Description, MultipartRequest, RequestBody};
use openflow::{DatapathId, ErrorKind, MacAddr, Message, PortNo, Version, Xid};

use crate::ConnectionId;
use crate::entry::ask_for_entries;
use crate::lldp::Outstanding;
use crate::requests::Requests;
use crate::session::SwitchUp;
use clock::Budget;

use super::discovery::Pulse;
use super::entries::Entries;
use super::flood::{EdgePorts, PORT_PART, SWITCH_PART, Storm, packet_out_budget};
use super::guards::GuardCounts;
use super::mending::Mend;
use super::outbox::Request;
use super::paths::Pair;
use super::port_state::{Past, PortState};
use super::questions::Answered;
use super::tables::Table;
use super::{Alarm, Controller, ControllerConfig, Event, Location, SwitchView};

/// Packets of one port that the controller carries each second while the port's new paths are over
/// their budget.
const DETOUR_PER_S: u32 = 5000;

/// Packets without an entry that come in over a link, and that the controller carries each second.
/// A link has those of many hosts: after a restart, or while tables are full.
const HALF_WAY_PER_S: u32 = 25_000;
const HALF_WAY_BURST: u32 = 5000;

pub(super) struct Switch {
    pub dpid: DatapathId,
    /// `None` while it is in its grace.
    pub connection: Option<ConnectionId>,
    pub version: Version,
    pub up_since: Instant,
    pub down_since: Option<Instant>,
    /// Whether its entries have been compared since it connected.
    pub synced: bool,
    pub ports: BTreeMap<PortNo, SwitchPort>,
    /// The entries that it should hold: those that were sent or adopted and have not gone.
    pub entries: Entries,
    /// Paths to mend when the switch is no longer behind.
    pub parked: BTreeMap<Pair, Mend>,
    /// The end of the pause after TABLE_FULL: no path is set here before, to avoid a storm of
    /// retries.
    pub full_until: Instant,
    /// Until when any port may have kept flows that the entries would not make (`cached.rs`).
    pub kept_until: Instant,
    pub table: Table,
    /// Unreadable rows in the reading of entries under way.
    pub unreadable: usize,
    /// Cached until something changes.
    pub edge_ports: Option<EdgePorts>,
    pub guard_counts: GuardCounts,
    /// The budget of broadcasts from its ports.
    pub flood_packet_outs: Budget,
    pub pulse: Pulse,
    description: Option<Description>,
}

pub(super) struct SwitchPort {
    pub hw_addr: MacAddr,
    pub state: PortState,
    /// The earliest end of discovery's first chance.
    pub held_until: Instant,
    pub lldp_due: Instant,
    pub lldp_sent_at: Option<Instant>,
    /// LLDP frames since the hold began, and when there were enough of them.
    pub lldp_sent_held: u32,
    pub held_sent_at: Option<Instant>,
    pub outstanding: Outstanding,
    pub lldp_budget: Budget,
    /// The budgets of broadcasts from here, and of the packet-outs that they cost.
    pub flood_budget: Budget,
    pub flood_packet_outs: Budget,
    pub storm: Storm,
    /// The budget of new paths that begin here.
    pub path_budget: Budget,
    /// The budget of packets from here that the controller carries because `path_budget` is used
    /// up.
    pub detour_budget: Budget,
    /// The budget of packets that came in over a link and that the controller carries.
    pub half_way_budget: Budget,
    /// When the last alarm about a forged sender here was raised.
    pub forged_at: Option<Instant>,
    pub changed_at: Instant,
    /// Until when packets from here may have a kept flow that the switch's entries would not make.
    pub kept_until: Instant,
    /// Whether the switch's edge answers for the port.
    pub edge_open: bool,
    /// The latest state, not applied yet because the port flaps; `Some(None)` is a deletion.
    pub pending: Option<Option<Port>>,
}

impl Switch {
    fn new(now: Instant, up: &SwitchUp, config: &ControllerConfig) -> Switch {
        Switch {
            dpid: up.features.datapath_id,
            connection: None,
            version: up.version,
            up_since: now,
            down_since: None,
            synced: false,
            ports: BTreeMap::new(),
            entries: Entries::default(),
            parked: BTreeMap::new(),
            full_until: Instant::START,
            kept_until: Instant::START,
            table: Table::default(),
            unreadable: 0,
            edge_ports: None,
            guard_counts: GuardCounts::default(),
            flood_packet_outs: packet_out_budget(now, config.flood_packet_outs_max, SWITCH_PART),
            pulse: Pulse::default(),
            description: None,
        }
    }

    pub(super) fn view(&self) -> SwitchView {
        SwitchView {
            dpid: self.dpid,
            connection: self.connection,
            version: self.version,
            port_count: self.ports.len(),
            flow_count: self.entries.len(),
            up_since: self.up_since,
            description: self.description.clone(),
            table: self.table.view(),
        }
    }

    pub(super) fn is_open_vswitch(&self) -> bool {
        let hardware = self.description.as_ref().map(|d| &d.hardware[..]);
        hardware == Some(b"Open vSwitch")
    }
}

impl SwitchPort {
    pub(super) fn new(
        now: Instant,
        port: &Port,
        past: Past,
        config: &ControllerConfig,
    ) -> SwitchPort {
        let flood = config.flood_rate_max;
        let of_paths = config.path_rate_max;
        SwitchPort {
            hw_addr: port.hw_addr,
            state: PortState::new(past),
            held_until: now,
            lldp_due: now,
            lldp_sent_at: None,
            lldp_sent_held: 0,
            held_sent_at: None,
            outstanding: Outstanding::default(),
            lldp_budget: Budget::new(now, 10, 20),
            flood_budget: Budget::new(now, flood, flood.max(1)),
            flood_packet_outs: packet_out_budget(now, config.flood_packet_outs_max, PORT_PART),
            storm: Storm::default(),
            path_budget: Budget::new(now, of_paths, of_paths.max(1)),
            detour_budget: Budget::new(now, DETOUR_PER_S, DETOUR_PER_S),
            half_way_budget: Budget::new(now, HALF_WAY_PER_S, HALF_WAY_BURST),
            forged_at: None,
            changed_at: now,
            kept_until: Instant::START,
            edge_open: false,
            pending: None,
        }
    }

    /// Begins discovery's first chance.
    pub(super) fn hold(&mut self, now: Instant, hold: Duration) {
        self.held_until = now + hold;
        self.lldp_sent_held = 0;
        self.held_sent_at = None;
    }
}

impl Controller {
    /// Takes over a connection: sends settings, and asks for the entries.
    pub(super) fn admit(&mut self, now: Instant, connection: ConnectionId, up: SwitchUp) {
        let dpid = up.features.datapath_id;
        self.qos_up(now, dpid, up.features.n_tables);
        let first_xid = self.outbox.random() as u32;
        let limits = self.config.requests;
        let requests = || Requests::new(limits, first_xid);
        self.outbox.open(dpid, (connection, up.version), requests);
        let fresh = || Switch::new(now, &up, &self.config);
        let switch = self.switches.entry(dpid).or_insert_with(fresh);
        switch.connection = Some(connection);
        switch.version = up.version;
        switch.synced = false;
        switch.up_since = now;
        switch.down_since = None;
        switch.table.handle_up();
        switch.description = up.description;
        self.outbox.event(Event::SwitchUp {
            dpid,
            version: up.version,
        });
        // Packets that miss come whole; otherwise they could not be sent on.
        let config = SwitchConfig {
            flags: 0,
            miss_send_len: 0xffff,
        };
        self.outbox.send(dpid, &Message::SetConfig(config));
        self.send_guards(dpid);
        self.start_edge(dpid);
        self.take_over_ports(now, dpid, up.ports);
        self.ask_entries(now, dpid);
    }

    pub(super) fn ask_entries(&mut self, now: Instant, dpid: DatapathId) {
        if let Some(switch) = self.switches.get_mut(&dpid) {
            switch.unreadable = 0;
        }
        let body = RequestBody::Flow(ask_for_entries());
        let message = Message::MultipartRequest(MultipartRequest { more: false, body });
        self.outbox.request(now, dpid, Request::Entries, &message);
    }

    pub(super) fn is_connected(&self, dpid: DatapathId) -> bool {
        self.switches
            .get(&dpid)
            .is_some_and(|s| s.connection.is_some())
    }

    pub(super) fn port(&self, at: Location) -> Option<&SwitchPort> {
        self.switches.get(&at.dpid)?.ports.get(&at.port)
    }

    pub(super) fn port_mut(&mut self, at: Location) -> Option<&mut SwitchPort> {
        self.switches.get_mut(&at.dpid)?.ports.get_mut(&at.port)
    }

    pub(super) fn handle_answer(&mut self, now: Instant, dpid: DatapathId, xid: Xid) {
        if self.barrier_over(now, dpid, xid, true) {
            return;
        }
        if !self.switches.contains_key(&dpid) {
            return;
        }
        match self.outbox.finish(dpid, xid) {
            Some(Request::Pulse { asked }) => self.pulse_answered(now, dpid, asked),
            Some(Request::Delay { since }) => self.delays.handle(now.since(since)),
            Some(Request::Qos) => self.qos_confirmed(now, dpid),
            // A barrier reply under the xid of a multipart request: the request is over.
            Some(request) => self.handle_unanswered(now, dpid, request),
            None => self.outbox.counters.unsolicited += 1,
        }
    }

    pub(super) fn handle_error(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        xid: Xid,
        error: ErrorKind,
    ) {
        self.outbox.counters.errors_received += 1;
        if self.barrier_over(now, dpid, xid, false) {
            return;
        }
        if !self.switches.contains_key(&dpid) {
            return;
        }
        match self.outbox.finish(dpid, xid) {
            Some(Request::Question(id)) => {
                return self.questions.answer(id, Answered::Refused(error));
            }
            Some(request) => return self.handle_unanswered(now, dpid, request),
            None => {}
        }
        self.qos_refused(now, dpid, xid, error);
        if error == ErrorKind::FLOW_MOD_TABLE_FULL {
            self.handle_table_full(now, dpid);
        } else if error.is_of_flow_mod() {
            self.outbox.alarm(Alarm::FlowModRefused { dpid, error });
        }
    }

    pub(super) fn requests_due(&mut self, now: Instant, dpid: DatapathId) {
        for request in self.outbox.late_requests(now, dpid) {
            self.handle_unanswered(now, dpid, request);
        }
        while let Some(xid) = self.outbox.late_barrier(now, dpid) {
            self.barrier_over(now, dpid, xid, false);
        }
        self.outbox.watch_requests(dpid);
    }

    /// Handles a request whose connection ended, that the switch refused, or that timed out.
    pub(super) fn handle_unanswered(&mut self, now: Instant, dpid: DatapathId, request: Request) {
        match request {
            Request::Pulse { asked } => self.pulse_unanswered(now, dpid, asked),
            // Without an answer nothing can be compared, but the switch must still be usable.
            Request::Entries if self.is_connected(dpid) => self.reconcile(now, dpid, None),
            Request::Entries | Request::Delay { .. } => {}
            Request::Table | Request::Rows | Request::TableFeatures => {
                self.table_unanswered(now, dpid, request);
            }
            Request::Question(id) => self.questions.answer(id, Answered::Lost),
            Request::Qos => self.qos_unconfirmed(now, dpid),
            Request::MeterFeatures | Request::Meters => {
                self.handle_qos_answer(now, dpid, request, Vec::new());
            }
            Request::QosRows | Request::QosMeters | Request::QosQueues => {
                self.handle_qos_counts(now, dpid, request, Vec::new());
            }
        }
    }
}
