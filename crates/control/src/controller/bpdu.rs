//! Messages that bridges do not forward, and those of spanning trees among them: a port drops them,
//! passes them on, or is closed by them.

use std::collections::BTreeMap;

use clock::{Duration, Instant};
use openflow::MacAddr;
use openflow::message::PacketIn;

use crate::Location;
use crate::bond::{Bpdu, is_bpdu};

use super::event::{Alarm, Event};
use super::outbox::Timer;
use super::{Controller, PortRole};

/// How long a port stays closed that does not go down meanwhile.
const CLOSED_FOR: Duration = Duration::from_secs(300);

/// The ports that a message has closed, and until when.
#[derive(Default)]
pub(super) struct Guarded(BTreeMap<Location, Instant>);

impl Controller {
    /// Handles a packet to an address that only bridges use.
    pub(super) fn handle_link_local(
        &mut self,
        now: Instant,
        at: Location,
        dst: MacAddr,
        packet_in: &PacketIn,
    ) {
        let effect = self.config.bpdus.get(&at).copied().unwrap_or_default();
        self.outbox.counters.bpdus += u64::from(is_bpdu(dst));
        match effect {
            Bpdu::Pass if is_bpdu(dst) => self.pass_bpdu(now, at, packet_in),
            Bpdu::Guard if is_bpdu(dst) => self.close_port(now, at),
            _ => self.outbox.counters.packet_ins_link_local += 1,
        }
    }

    /// Sends a message out of all other ports that pass them, within the port's budget.
    fn pass_bpdu(&mut self, now: Instant, at: Location, packet_in: &PacketIn) {
        let is_whole = packet_in.data.len() >= usize::from(packet_in.total_len);
        let is_edge = |at: &Location| self.network.role(*at) == PortRole::Edge;
        if !is_whole || !is_edge(&at) {
            self.outbox.counters.packet_ins_link_local += 1;
            return;
        }
        let passing = self.config.bpdus.iter();
        let passing = passing.filter(|(to, effect)| **effect == Bpdu::Pass && **to != at);
        let to: Vec<Location> = passing.map(|(to, _)| *to).filter(is_edge).collect();
        if !self.ingress.may_flood(now, at, &mut self.outbox) {
            return;
        }
        for to in to {
            self.outbox.send_at_port(to, packet_in.data.to_vec());
        }
    }

    /// Closes a port: nothing is learned there, and no packet comes in or goes out.
    fn close_port(&mut self, now: Instant, at: Location) {
        // Packets on links have been judged where they came in.
        if self.network.is_end(at) || !self.network.is_up(at) {
            self.outbox.counters.packet_ins_link_local += 1;
            return;
        }
        if self.guarded.0.contains_key(&at) {
            return;
        }
        let was_edge = self.network.role(at) == PortRole::Edge;
        self.guarded.0.insert(at, now + CLOSED_FOR);
        self.outbox.alarm_once(now, Alarm::BpduGuard { at });
        self.lose(now, at, was_edge);
        self.set_closed(now, at, true);
        self.outbox.timer(now + CLOSED_FOR, Timer::PortOpen(at));
    }

    /// Opens a port that a message had closed.
    pub(super) fn open_port(&mut self, now: Instant, at: Location) {
        if self.guarded.0.remove(&at).is_some() {
            self.set_closed(now, at, false);
            self.outbox.event(Event::PortOpened(at));
        }
    }

    /// Opens a port whose time is over.
    pub(super) fn port_open_due(&mut self, now: Instant, at: Location) {
        if self.guarded.0.get(&at).is_some_and(|until| *until <= now) {
            self.open_port(now, at);
        }
    }

    fn set_closed(&mut self, now: Instant, at: Location, is_closed: bool) {
        self.network.set_closed(at, is_closed);
        self.ingress.forget_edge_ports();
        self.bonding.set_guarded(at, is_closed);
        self.update_closed(at.dpid);
        self.topology_soon(now);
    }

    /// Takes other effects over. Ports that are no longer guarded open.
    pub(super) fn set_bpdus(&mut self, now: Instant, bpdus: BTreeMap<Location, Bpdu>) {
        self.config.bpdus = bpdus;
        let is_guarded = |at: &Location| self.config.bpdus.get(at) == Some(&Bpdu::Guard);
        let closed = self.guarded.0.keys().copied();
        let open: Vec<Location> = closed.filter(|at| !is_guarded(at)).collect();
        for at in open {
            self.open_port(now, at);
        }
    }
}
