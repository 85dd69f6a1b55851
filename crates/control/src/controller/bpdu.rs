//! Messages that bridges do not forward, including those of spanning trees: a port drops them,
//! passes them on, or is closed by them. A crowd of new hosts also closes ports.

use std::collections::{BTreeMap, BTreeSet};

use clock::{Duration, Instant};
use openflow::MacAddr;
use openflow::message::PacketIn;

use crate::Location;
use crate::bond::{Bpdu, is_bpdu};

use super::event::{Alarm, Event};
use super::outbox::Timer;
use super::{Controller, PortRole};

/// How long a port stays closed if it does not go down meanwhile: by a message of a spanning tree,
/// and by a crowd. The crowd is noticed again within a hundredth of that time.
const CLOSED_FOR: Duration = Duration::from_secs(300);
const CROWD_CLOSED_FOR: Duration = Duration::from_secs(30);

/// The reason why a port is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClosedBy {
    Bpdu,
    Crowd,
}

/// The ports that are closed, by what and until when.
#[derive(Default)]
pub(super) struct Guarded(BTreeMap<Location, (ClosedBy, Instant)>);

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
            Bpdu::Guard if is_bpdu(dst) => self.close_port(now, at, ClosedBy::Bpdu),
            _ => self.outbox.counters.packet_ins_link_local += 1,
        }
    }

    /// Sends a message out of all other ports that pass such messages, within the port's budget.
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

    /// Closes a port: nothing is learned there, and no packet enters or leaves.
    pub(super) fn close_port(&mut self, now: Instant, at: Location, by: ClosedBy) {
        // Packets on links have been judged where they entered the network.
        if self.network.is_end(at) || !self.network.is_up(at) {
            self.outbox.counters.packet_ins_link_local += 1;
            return;
        }
        if self.guarded.0.contains_key(&at) {
            return;
        }
        let (time, alarm) = match by {
            ClosedBy::Bpdu => (CLOSED_FOR, Alarm::BpduGuard { at }),
            ClosedBy::Crowd => (CROWD_CLOSED_FOR, Alarm::CrowdGuard { at }),
        };
        let was_edge = self.network.role(at) == PortRole::Edge;
        self.guarded.0.insert(at, (by, now + time));
        self.outbox.alarm_once(now, alarm);
        self.lose(now, at, was_edge);
        self.set_closed(now, at, true);
        self.outbox.timer(now + time, Timer::PortOpen(at));
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
        let until = self.guarded.0.get(&at).map(|(_, until)| *until);
        if until.is_some_and(|until| until <= now) {
            self.open_port(now, at);
        }
    }

    /// Closes a port to all packets, or opens it.
    pub(super) fn set_closed(&mut self, now: Instant, at: Location, is_closed: bool) {
        self.network.set_closed(at, is_closed);
        self.ingress.forget_edge_ports();
        self.bonding.set_guarded(at, is_closed);
        self.update_closed(at.dpid);
        self.update_access_of(at.dpid);
        self.topology_soon(now);
    }

    /// Applies new effects. Opens ports that are no longer guarded.
    pub(super) fn set_bpdus(&mut self, now: Instant, bpdus: BTreeMap<Location, Bpdu>) {
        self.config.bpdus = bpdus;
        self.open_unguarded(now);
    }

    /// Changes the ports that are guarded against crowds. Opens ports that are no longer guarded.
    pub fn set_crowd_guards(&mut self, now: Instant, ports: BTreeSet<Location>) {
        self.outbox.now = now;
        self.crowds.set_guarded(now, &ports);
        self.config.crowd_guards = ports;
        self.open_unguarded(now);
    }

    fn open_unguarded(&mut self, now: Instant) {
        let is_guarded = |at: Location, by| match by {
            ClosedBy::Bpdu => self.config.bpdus.get(&at) == Some(&Bpdu::Guard),
            ClosedBy::Crowd => self.crowds.is_guarded(at),
        };
        let closed = self.guarded.0.iter().map(|(at, (by, _))| (*at, *by));
        let open: Vec<Location> = closed
            .filter(|(at, by)| !is_guarded(*at, *by))
            .map(|(at, _)| at)
            .collect();
        for at in open {
            self.open_port(now, at);
        }
    }
}
