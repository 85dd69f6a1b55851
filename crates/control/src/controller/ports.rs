//! The consequences of discovery: ports and links that appear and disappear, switches that leave.

use std::collections::BTreeSet;

use clock::{Duration, Instant};
use openflow::message::{PacketIn, Port, PortReason};
use openflow::{DatapathId, MacAddr, PortNo};

use super::discovery::Shown;
use super::entries::SETTLE;
use super::links::Removed;
use super::mending::Cause;
use super::network::Switch;
use super::outbox::Request;
use super::port_state::{Ends, PortRole};
use super::tables::MUTE;
use super::{Controller, Event, Location, Mode, RefusedReason, Timer};

/// How long the controller leaves a switch alone after its session has ended. If a relay or a
/// network to several switches fails, the other sessions have ended as well by then.
pub(super) const LEAVE_AFTER: Duration = Duration::from_millis(250);

impl Controller {
    pub(super) fn lldp_due(&mut self, now: Instant, at: Location) {
        if self.network.links.end_doubt(now, at) {
            self.routes_soon(now);
        }
        let Some(due) = self.discovery.due(&self.network, now, at) else {
            return;
        };
        if !self.discovery.has_turn(now, at, &mut self.outbox) {
            return;
        }
        if let Some(removed) = self.discovery.remove_lost(&mut self.network, at) {
            self.links_lost(now, removed, Cause::Unknown, &[]);
        }
        let (net, outbox) = (&self.network, &mut self.outbox);
        self.discovery.send_due(net, now, (at, due), outbox);
    }

    pub(super) fn pulse_answered(&mut self, now: Instant, dpid: DatapathId, asked: Instant) {
        let outbox = &mut self.outbox;
        if !self.discovery.pulse_answered(now, (dpid, asked), outbox) {
            return;
        }
        if self.discovery.is_of_round(asked) {
            self.round_answered(now, dpid);
        }
        self.settle_ports(now, dpid);
    }

    pub(super) fn pulse_unanswered(&mut self, now: Instant, dpid: DatapathId, asked: Instant) {
        let (net, outbox) = (&self.network, &mut self.outbox);
        match self
            .discovery
            .pulse_unanswered(net, now, (dpid, asked), outbox)
        {
            Some(true) => self.pulse_answered(now, dpid, asked),
            Some(false) => self.round_answered(now, dpid),
            None => {}
        }
    }

    /// Notes that a switch has answered the round, or will not answer it.
    pub(super) fn round_answered(&mut self, now: Instant, dpid: DatapathId) {
        if let Some(ready) = self.discovery.round_answered(dpid) {
            for dpid in ready {
                self.settle_ports(now, dpid);
            }
            self.next_round(now);
        }
    }

    pub(super) fn next_round(&mut self, now: Instant) {
        let (net, outbox) = (&self.network, &mut self.outbox);
        self.discovery.next_round(net, now, outbox);
    }

    /// Turns ports into edges after discovery has had its chance at them.
    pub(super) fn settle_ports(&mut self, now: Instant, dpid: DatapathId) {
        // Entries name ports with hosts. A switch that reports no entries must be usable all the
        // same.
        let is_mute = || {
            let outbox = &self.outbox;
            outbox.is_ignored(now, dpid, Request::Entries, MUTE)
        };
        if !self.network.is_synced(dpid) && !is_mute() {
            return;
        }
        if self.network.is_synced(dpid) {
            self.settle_links(now, dpid);
        }
        let held = match self.multicast.is_on() {
            true => self.network.ports_with(dpid, PortRole::Held),
            false => Vec::new(),
        };
        if self.discovery.settle_ports(&mut self.network, now, dpid) {
            let is_edge = |at: &Location| self.network.role(*at) == PortRole::Edge;
            let opened: Vec<Location> = held.into_iter().filter(is_edge).collect();
            self.ask_at(opened);
            self.hold_over(now);
        }
        self.next_round(now);
    }

    /// Handles the consequences of removed links and claims for ports and paths. `moved`: hosts
    /// that were thought to be there.
    pub(super) fn links_lost(
        &mut self,
        now: Instant,
        removed: Removed,
        cause: Cause,
        moved: &[MacAddr],
    ) {
        for end in removed.claims.iter().flat_map(|(from, to)| [*from, *to]) {
            let (net, outbox) = (&mut self.network, &mut self.outbox);
            self.discovery.claim_lost(net, now, end, outbox);
        }
        for (from, to) in removed.links.iter().copied() {
            self.outbox.event(Event::LinkDown { from, to });
        }
        self.mend_paths(now, cause, moved);
        self.refresh_routes(now);
        self.fabric
            .handle_lost(now, &removed.links, &mut self.outbox);
        self.topology_soon(now);
        self.parts_soon(now);
    }

    pub(super) fn handle_lldp(&mut self, now: Instant, to: Location, packet_in: &PacketIn) {
        let (net, outbox) = (&mut self.network, &mut self.outbox);
        let have_flows = |a, b| self.paths.enter_at(a, b);
        let len = packet_in.data.len().max(packet_in.total_len.into());
        let frame = (to, &packet_in.data[..], len);
        let shown = self
            .discovery
            .handle_lldp(net, now, frame, have_flows, outbox);
        match shown {
            Some(Shown::Link(from, to)) => self.link_up(now, from, to),
            Some(Shown::Narrow(from, to)) => {
                self.fabric.handle_narrow(now, (from, to), &mut self.outbox)
            }
            Some(Shown::Wide) => self.fabric.handle_more(now, &mut self.outbox),
            None => {}
        }
    }

    pub(super) fn link_up(&mut self, now: Instant, from: Location, to: Location) {
        self.network.links.establish(from, to);
        self.join_parts(now, [from, to]);
        self.outbox.event(Event::LinkUp { from, to });
        self.doubt_link(now, from, to);
        for end in [from, to] {
            self.discovery.handle_link(&mut self.network, end);
            self.follow_access_links(end.dpid);
            self.evict_hosts(now, end);
        }
        self.mend_paths(now, Cause::Unknown, &[]);
        if self.network.links.has_doubts() && self.config.mode != Mode::Hybrid {
            self.drain_paths(now);
        }
        self.routes_soon(now);
        self.fabric.handle_more(now, &mut self.outbox);
        self.adopt_soon(now);
    }

    /// Takes over the ports that a switch reported when it connected. Missing ports of an earlier
    /// connection no longer exist; ports that were up stay unchanged.
    pub(super) fn take_over_ports(&mut self, now: Instant, dpid: DatapathId, ports: Vec<Port>) {
        let told: BTreeSet<PortNo> = ports.iter().map(|p| p.port_no).collect();
        let Some(switch) = self.network.switch(dpid) else {
            return;
        };
        let known = switch.ports.keys().copied();
        let gone: Vec<PortNo> = known.filter(|port| !told.contains(port)).collect();
        for port in gone {
            self.apply_port(now, Location { dpid, port }, None);
        }
        for port in ports {
            let at = Location::new(dpid, port.port_no);
            self.apply_port(now, at, Some(port));
        }
        let (net, outbox) = (&self.network, &mut self.outbox);
        self.discovery.confirm_links(net, now, dpid, outbox);
    }

    pub(super) fn handle_port_status(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        reason: PortReason,
        port: Port,
    ) {
        let at = Location::new(dpid, port.port_no);
        self.discovery.expect_nothing(at);
        let state = (reason != PortReason::DELETE).then_some(port);
        let is_full = |ports: usize| ports >= self.config.port_count_max;
        let switch = self.network.switch(dpid);
        if let Some(switch) = switch.filter(|s| is_full(s.ports.len()))
            && !switch.ports.contains_key(&at.port)
            && state.is_some()
        {
            return self.refuse_ports(now, dpid);
        }
        if let Some(state) = self.discovery.damp(now, at, state, &mut self.outbox) {
            self.apply_port(now, at, state);
        }
    }

    /// Closes the connection of a switch with too many ports, so that one switch cannot fill the
    /// memory.
    fn refuse_ports(&mut self, now: Instant, dpid: DatapathId) {
        let connection = self.network.switch(dpid).and_then(|s| s.connection);
        if let Some(connection) = connection {
            self.outbox.counters.too_many_ports += 1;
            self.outbox.close(connection, RefusedReason::TooManyPorts);
            self.handle_down(now, connection);
        }
    }

    pub(super) fn port_change_due(&mut self, now: Instant, at: Location) {
        if let Some(state) = self.discovery.take_pending(at) {
            self.apply_port(now, at, state);
        }
    }

    fn apply_port(&mut self, now: Instant, at: Location, state: Option<Port>) {
        if !at.port.is_ordinary() || !self.network.knows(at.dpid) {
            return;
        }
        let was_edge = self.network.role(at) == PortRole::Edge;
        let is_bonded = self.outbox.bonds.contains(at);
        // The place of a bond has its budgets while other ports are there.
        self.ingress
            .handle_port(now, at, state.is_some() || is_bonded);
        let change = (at, state.as_ref());
        match self.discovery.apply_port(&mut self.network, now, change) {
            Some(true) => {
                self.outbox.event(Event::PortUp(at));
                self.open_port(now, at);
                self.bond_port(now, at, true);
                self.qos_soon(now);
                self.outbox.timer(now, Timer::Lldp(at));
                let hold = self.config.port_hold;
                self.outbox.timer(now + hold, Timer::HoldOver(at.dpid));
            }
            Some(false) => {
                self.outbox.event(Event::PortDown(at));
                self.open_port(now, at);
                match is_bonded {
                    true => self.bond_port(now, at, false),
                    false => self.lose(now, at, was_edge),
                }
            }
            None => {}
        }
    }

    /// Removes the links and hosts of a port that is down. An edge port has not been a link since
    /// it came up, so only its hosts have paths over it.
    pub(super) fn lose(&mut self, now: Instant, at: Location, was_edge: bool) {
        let removed = match self.network.links.ends(at) == Ends::default() {
            true => Removed::default(),
            false => self.network.links.remove_where(|end| end == at),
        };
        let hosts = self.hosts.unplace(now, at);
        self.unplace_members(now, at);
        self.end_multicast(now, at);
        self.close_edge(now, at, hosts.clone());
        self.follow_access_links(at.dpid);
        if self.network.parts.is_behind(at) {
            self.parts_soon(now);
        }
        if was_edge && removed.links.is_empty() && removed.claims.is_empty() {
            self.mend_paths_of(now, Cause::PortDown, &hosts);
            self.refresh_routes(now);
            self.topology_soon(now);
        } else {
            self.links_lost(now, removed, Cause::PortDown, &hosts);
        }
    }

    /// Moves paths away from a switch whose session has ended and that has not reconnected yet, if
    /// they have an alternative. Each new route is set before the old one is left. The other paths
    /// stay unchanged.
    pub(super) fn leave_switch(&mut self, now: Instant, dpid: DatapathId) {
        let is_away = |switch: &Switch| {
            let away = switch.down_since.filter(|_| switch.connection.is_none());
            away.is_some_and(|since| now.since(since) >= LEAVE_AFTER)
        };
        if self.network.switch(dpid).is_some_and(is_away) {
            if self.config.mode != Mode::Hybrid {
                self.refresh_coarse(now);
                self.lead_paths_around(now, dpid);
            }
            self.change_routes(now, SETTLE);
            self.fabric.again(now, &mut self.outbox);
        }
    }

    /// Handles the end of a switch's grace: links and paths avoid it. Its hosts keep their place,
    /// since the switch will most likely return with them.
    pub(super) fn grace_over(&mut self, now: Instant, dpid: DatapathId) {
        let Some(switch) = self.network.switch(dpid) else {
            return;
        };
        let over = |since: Instant| now.since(since) >= self.config.switch_grace;
        if switch.down_since.is_some_and(over) {
            self.forget_switch(now, dpid);
        }
    }

    /// Whether the switch has a link, a host or a path that would be lost with it.
    pub(super) fn is_of_use(&self, dpid: DatapathId) -> bool {
        let Some(switch) = self.network.switch(dpid) else {
            return false;
        };
        let has_path = || {
            let table = self.tables.get(dpid);
            let mut entries = table.into_iter().flat_map(|table| table.entries().values());
            entries.any(|entry| entry.key.eth_dst.is_some_and(|mac| !mac.is_multicast()))
        };
        let mut ports = switch.ports.iter();
        ports.any(|(port, known)| {
            let has_host = known.state.past().host.is_some();
            has_host || self.network.is_end(Location { dpid, port: *port })
        }) || has_path()
    }

    /// Forgets everything about a switch, and closes its connection if it has one.
    pub(super) fn forget_switch(&mut self, now: Instant, dpid: DatapathId) {
        let connection = self.network.take_connection(dpid);
        self.outbox.handle_down(dpid);
        self.pipe_down(now, dpid);
        let net = &mut self.network;
        if !self.discovery.forget(now, net, dpid) {
            return;
        }
        let unanswered = self.outbox.forget(dpid);
        self.ingress.forget(dpid);
        self.mending.forget(dpid);
        self.tables.forget(dpid);
        self.multicast.forget(dpid);
        self.access.handle_down(dpid);
        self.stated.handle_down(dpid);
        self.guests.handle_down(dpid, &mut self.outbox);
        self.mirroring.handle_down(dpid);
        self.forget_bonds(now, dpid);
        self.gateways.forget(dpid);
        if self.fabric.forget(dpid) {
            self.fabric.again(now, &mut self.outbox);
        }
        if let Some(connection) = connection {
            self.connections.remove(&connection);
            self.shared.remove(&connection);
            self.outbox.close(connection, RefusedReason::Fault);
        }
        for request in unanswered {
            self.handle_unanswered(now, dpid, request);
        }
        self.round_answered(now, dpid);
        self.with_qos(|qos, around| qos.qos_lost(around, dpid));
        self.coarse.forget(dpid);
        self.outbox.event(Event::SwitchLost { dpid });
        let removed = self.network.links.remove_where(|end| end.dpid == dpid);
        self.note_lost_switch(dpid, &removed.links);
        self.links_lost(now, removed, Cause::Unknown, &[]);
    }

    /// Removes hosts that were placed behind a port that is now known as a link.
    pub(super) fn evict_hosts(&mut self, now: Instant, at: Location) {
        let hosts = self.hosts.unplace(now, at);
        self.unplace_members(now, at);
        self.end_multicast(now, at);
        if self.ingress.is_edge_open(at) || !hosts.is_empty() {
            self.close_edge(now, at, hosts.clone());
        }
        if !hosts.is_empty() {
            self.mend_paths(now, Cause::Unknown, &hosts);
        }
    }
}
