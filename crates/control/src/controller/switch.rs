//! The connection of one switch: its admission, and its answers to requests.

use clock::Instant;
use openflow::message::{ErrorMessage, SwitchConfig};
use openflow::{DatapathId, ErrorKind, Message, Xid};

use crate::ConnectionId;
use crate::access::tables;
use crate::fabric::{form, replication, tree};
use crate::guest::Answer;
use crate::requests::Requests;
use crate::routing::flow;
use crate::session::SwitchUp;

use super::outbox::Request;
use super::questions::Answered;
use super::{Alarm, Controller, Event};

/// Open vSwitch's OFPC_FRAG_NX_MATCH (nicira-ext.h): the first fragment of a packet has its ports.
const FRAGMENTS_WITH_PORTS: u16 = 3;

impl Controller {
    /// Admits a connection: sends settings, and requests the entries.
    pub(super) fn admit(&mut self, now: Instant, connection: ConnectionId, up: SwitchUp) {
        let dpid = up.features.datapath_id;
        let needs = (self.taps.copies_at(dpid), self.stated.goes_on_at(dpid));
        let mirrors = &self.outbox.mirrors;
        let numbering = self.access.handle_up(&up, mirrors, needs);
        self.taps.handle_up(dpid, numbering);
        let n_tables = numbering.tables_left(up.features.n_tables);
        for alarm in self.guests.handle_up(dpid, up.version, n_tables) {
            self.outbox.alarm(alarm);
        }
        let mut up = up;
        up.features.n_tables = n_tables;
        self.qos.qos_up(now, dpid, up.features.n_tables);
        self.fabric.handle_up(dpid, &up);
        self.multicast.forget(dpid);
        self.gateways.forget(dpid);
        let first_xid = self.outbox.random() as u32;
        let limits = self.config.requests;
        let requests = || Requests::new(limits, first_xid);
        self.outbox.open(dpid, (connection, up.version), requests);
        self.outbox.set_numbering(dpid, numbering);
        self.network.handle_up(now, connection, &up);
        self.parts_soon(now);
        self.discovery.handle_up(dpid);
        self.tables.handle_up(dpid);
        self.ingress.handle_up(now, dpid);
        self.outbox.event(Event::SwitchUp {
            dpid,
            version: up.version,
        });
        self.configure(dpid);
        self.ask_for_expired(dpid);
        self.send_guards(dpid);
        self.start_edge(dpid);
        self.take_over_ports(now, dpid, up.ports);
        self.doubt_ports(now, Some(dpid));
        self.refute_hosts(now, dpid);
        self.ask_entries(now, dpid);
    }

    /// Sets how a switch treats packets: table misses send the whole packet, since the controller
    /// could not forward a part. Where access is decided, Open vSwitch reads the ports of a first
    /// fragment: by default it treats them as absent, so that a datagram in fragments passes a rule
    /// that drops it.
    pub(super) fn configure(&mut self, dpid: DatapathId) {
        let switch = self.network.switch(dpid);
        let is_open_vswitch = switch.is_some_and(|switch| switch.is_open_vswitch());
        let config = SwitchConfig {
            flags: match is_open_vswitch && self.access.is_on() {
                true => FRAGMENTS_WITH_PORTS,
                false => 0,
            },
            miss_send_len: 0xffff,
        };
        self.outbox.send(dpid, Message::SetConfig(config));
    }

    pub(super) fn ask_entries(&mut self, now: Instant, dpid: DatapathId) {
        self.tables.ask_entries(now, dpid, &mut self.outbox);
    }

    pub(super) fn handle_answer(&mut self, now: Instant, dpid: DatapathId, xid: Xid) {
        if self.barrier_over(now, dpid, xid, true) {
            return;
        }
        if !self.network.knows(dpid) {
            return;
        }
        match self.outbox.finish_request_barrier(dpid, xid) {
            Some(Request::Pulse { asked }) => self.pulse_answered(now, dpid, asked),
            Some(Request::Delay { since }) => self.tables.handle_delay(now.since(since)),
            Some(Request::Qos) => self.with_qos(|qos, around| qos.qos_confirmed(around, now, dpid)),
            Some(Request::Static) => self.static_confirmed(dpid),
            Some(Request::Guest(guest, ticket)) => {
                self.guest_answered(dpid, (guest, ticket), Answer::Whole(Vec::new()));
            }
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
        message: &ErrorMessage,
    ) {
        self.outbox.counters.errors_received += 1;
        if !self.outbox.handle_bundle_error(dpid, xid, message) {
            self.handle_refusal(now, dpid, xid, message);
        }
    }

    /// Handles an error of a message that was sent alone, or that was left out of a committed
    /// bundle.
    pub(super) fn handle_refusal(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        xid: Xid,
        message: &ErrorMessage,
    ) {
        let error = message.kind;
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
            Some(Request::Guest(guest, ticket)) => {
                return self.guest_answered(dpid, (guest, ticket), Answer::Refused(error));
            }
            Some(request) => return self.handle_unanswered(now, dpid, request),
            None => {}
        }
        if self
            .guests
            .handle_refused(dpid, xid, error, &mut self.outbox)
        {
            return;
        }
        if self.taps.handle_error(dpid, message) {
            return;
        }
        let refused = (xid, error);
        if self.stated.handle_refused(dpid, refused, &mut self.outbox) {
            return;
        }
        if tables::is_refused(message) {
            return self.access_refused(now, dpid, error);
        }
        self.with_qos(|qos, around| qos.qos_refused(around, now, dpid, xid, error));
        if let Some(group) = form::refused_share(message) {
            return self
                .fabric
                .handle_unshared(now, (dpid, error), group, &mut self.outbox);
        }
        if let Some(group) = form::refused_bond(message) {
            return self.bond_unshared((dpid, error), group);
        }
        if tree::is_refused(message) {
            if self.fabric.handle_tree_refused(dpid, &mut self.outbox) {
                self.outbox.alarm(Alarm::TreeRefused { dpid, error });
            }
            return;
        }
        if replication::is_refused(message) {
            self.multicast.handle_refused(dpid, &mut self.outbox);
            return self.outbox.alarm(Alarm::MulticastRefused { dpid, error });
        }
        if flow::is_refused(message) {
            self.gateways.handle_refused(dpid, &mut self.outbox);
            return self.outbox.alarm(Alarm::FlowModRefused { dpid, error });
        }
        if error.is_of_group_mod() || form::is_refusal(message) {
            return self.leave_fabric(now, dpid, Some(error));
        }
        if error == ErrorKind::FLOW_MOD_TABLE_FULL {
            self.handle_table_full(now, dpid);
        } else if error.is_of_flow_mod() {
            self.outbox.alarm(Alarm::FlowModRefused { dpid, error });
        } else if is_of_packet(message) {
            let alarm = Alarm::PacketOutRefused { dpid, error };
            self.outbox.alarm_once(now, alarm);
        }
    }

    /// Excludes a switch from the fabric, and from the multicast that relies on the fabric.
    fn leave_fabric(&mut self, now: Instant, dpid: DatapathId, error: Option<ErrorKind>) {
        self.multicast.exclude(dpid, &mut self.outbox);
        self.fabric
            .handle_refused(now, (dpid, error), &mut self.outbox);
        self.exclude_bonds(now, dpid);
        self.check_mirrors(dpid);
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
        if matches!(request, Request::Entries | Request::Groups) {
            self.tables.end_reading(now, dpid, &mut self.outbox);
        }
        match request {
            Request::Pulse { asked } => self.pulse_unanswered(now, dpid, asked),
            // Without an answer nothing can be compared, but the switch must still be usable.
            Request::Entries if self.network.is_connected(dpid) => self.reconcile(now, dpid, None),
            Request::Entries | Request::Delay { .. } => {}
            Request::Table | Request::Rows | Request::TableFeatures | Request::TableDesc => {
                self.table_unanswered(now, dpid, request);
            }
            Request::Question(id) => self.questions.answer(id, Answered::Lost),
            Request::Qos => self.with_qos(|qos, around| qos.qos_unconfirmed(around, now, dpid)),
            Request::Groups => self.leave_fabric(now, dpid, None),
            Request::Access => {}
            Request::Guest(guest, ticket) => {
                self.guest_answered(dpid, (guest, ticket), Answer::Lost);
            }
            Request::GuestRows => self.guests.handle_rows(dpid, None, &mut self.outbox),
            Request::Static
            | Request::StaticRows
            | Request::StaticGroups
            | Request::StaticMeters => {
                self.stated
                    .handle_unanswered(dpid, request, &mut self.outbox);
            }
            Request::MirroredRows | Request::MirroredGroups => self.mirrored_unanswered(now, dpid),
            Request::MeterFeatures | Request::Meters => {
                self.with_qos(|qos, around| {
                    qos.handle_qos_answer(around, now, dpid, request, Vec::new())
                });
            }
            Request::QosRows | Request::QosMeters | Request::QosQueues => {
                self.with_qos(|qos, around| {
                    qos.handle_qos_counts(around, now, dpid, request, Vec::new())
                });
            }
        }
    }
}

/// Whether an error refuses to send a packet, for a reason other than a port that no longer exists.
fn is_of_packet(error: &ErrorMessage) -> bool {
    const PACKET_OUT: u8 = 13;
    let of_ports = [ErrorKind::BAD_PORT, ErrorKind::ACTION_BAD_OUT_PORT];
    error.data.get(1) == Some(&PACKET_OUT) && !of_ports.contains(&error.kind)
}
