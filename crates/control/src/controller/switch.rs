//! One switch as the controller knows it, and the messages to it.

use std::collections::BTreeMap;

use clock::Instant;
use openflow::message::SwitchConfig;
use openflow::multipart::{MultipartRequest, RequestBody};
use openflow::{DatapathId, ErrorKind, Message, PortNo, Xid};

use crate::ConnectionId;
use crate::entry::ask_for_entries;
use crate::requests::Requests;
use crate::session::SwitchUp;
use clock::Budget;

use super::flood::{EdgePorts, PORT_PART, SWITCH_PART, Storm, packet_out_budget};
use super::mending::Mend;
use super::outbox::Request;
use super::paths::Pair;
use super::questions::Answered;
use super::{Alarm, Controller, ControllerConfig, Event, Location};

/// Packets of one port that the controller carries each second while the port's new paths are over
/// their budget.
const DETOUR_PER_S: u32 = 5000;

/// Packets without an entry that come in over a link, and that the controller carries each second.
/// A link has those of many hosts: after a restart, or while tables are full.
const HALF_WAY_PER_S: u32 = 25_000;
const HALF_WAY_BURST: u32 = 5000;

/// The state of one switch beside what the network view has.
pub(super) struct Switch {
    pub ports: BTreeMap<PortNo, SwitchPort>,
    /// Paths to mend when the switch is no longer behind.
    pub parked: BTreeMap<Pair, Mend>,
    /// Until when any port may have kept flows that the entries would not make (`cached.rs`).
    pub kept_until: Instant,
    /// Cached until something changes.
    pub edge_ports: Option<EdgePorts>,
    /// The budget of broadcasts from its ports.
    pub flood_packet_outs: Budget,
}

pub(super) struct SwitchPort {
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
    /// Until when packets from here may have a kept flow that the switch's entries would not make.
    pub kept_until: Instant,
    /// Whether the switch's edge answers for the port.
    pub edge_open: bool,
}

impl Switch {
    fn new(now: Instant, config: &ControllerConfig) -> Switch {
        Switch {
            ports: BTreeMap::new(),
            parked: BTreeMap::new(),
            kept_until: Instant::START,
            edge_ports: None,
            flood_packet_outs: packet_out_budget(now, config.flood_packet_outs_max, SWITCH_PART),
        }
    }
}

impl SwitchPort {
    fn new(now: Instant, config: &ControllerConfig) -> SwitchPort {
        let flood = config.flood_rate_max;
        let of_paths = config.path_rate_max;
        SwitchPort {
            flood_budget: Budget::new(now, flood, flood.max(1)),
            flood_packet_outs: packet_out_budget(now, config.flood_packet_outs_max, PORT_PART),
            storm: Storm::default(),
            path_budget: Budget::new(now, of_paths, of_paths.max(1)),
            detour_budget: Budget::new(now, DETOUR_PER_S, DETOUR_PER_S),
            half_way_budget: Budget::new(now, HALF_WAY_PER_S, HALF_WAY_BURST),
            forged_at: None,
            kept_until: Instant::START,
            edge_open: false,
        }
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
        self.network.handle_up(now, connection, &up);
        self.discovery.handle_up(dpid);
        let fresh = || Switch::new(now, &self.config);
        self.switches.entry(dpid).or_insert_with(fresh);
        self.tables.handle_up(dpid);
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
        if let Some(table) = self.tables.get_mut(dpid) {
            table.handle_asked();
        }
        let body = RequestBody::Flow(ask_for_entries());
        let message = Message::MultipartRequest(MultipartRequest { more: false, body });
        self.outbox.request(now, dpid, Request::Entries, &message);
    }

    /// Notes that a port was reported, or is gone.
    pub(super) fn note_port(&mut self, now: Instant, at: Location, is_there: bool) {
        let Some(switch) = self.switches.get_mut(&at.dpid) else {
            return;
        };
        switch.edge_ports = None;
        if is_there {
            let config = &self.config;
            let fresh = || SwitchPort::new(now, config);
            switch.ports.entry(at.port).or_insert_with(fresh);
        } else {
            switch.ports.remove(&at.port);
        }
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
        if !self.network.knows(dpid) {
            return;
        }
        match self.outbox.finish(dpid, xid) {
            Some(Request::Pulse { asked }) => self.pulse_answered(now, dpid, asked),
            Some(Request::Delay { since }) => self.tables.handle_delay(now.since(since)),
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
        if !self.network.knows(dpid) {
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
            Request::Entries if self.network.is_connected(dpid) => self.reconcile(now, dpid, None),
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
