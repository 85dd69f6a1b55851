//! Ports: their state as the switch reports it, damped, and the consequences for links and hosts.
//!
//! A change is applied at once, the next of the same port not before [`CHANGE_INTERVAL`]. A port
//! that flaps ten thousand times a second costs ten changes a second, and its last state is kept.

use std::collections::BTreeSet;

use clock::{Duration, Instant};
use openflow::message::{Port, PortReason};
use openflow::{DatapathId, PortNo};

use super::first::SETTLE;
use super::links::Removed;
use super::port_state::{Ends, PortRole, Stated};
use super::switch::SwitchPort;
use super::{Controller, Event, LinkPolicy, Location, Mode, RefusedReason, Timer};

const CHANGE_INTERVAL: Duration = Duration::from_millis(100);

/// How long a switch is left alone after its session has ended. If a relay or a network to several
/// switches fails, the other sessions have ended as well by then.
pub(super) const LEAVE_AFTER: Duration = Duration::from_millis(250);

/// The reason to examine paths again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The port is dead: an entry that leads there is useless.
    PortDown,
    /// Only our knowledge is gone; packets may still get through.
    Unknown,
}

impl Controller {
    pub(super) fn role(&self, _now: Instant, at: Location) -> PortRole {
        let Some(port) = self.port(at) else {
            return PortRole::Gone;
        };
        port.state.role(self.links.ends(at), self.stated(at))
    }

    /// Whether a switch was ever found behind the port since it came up.
    pub(super) fn is_end(&self, at: Location) -> bool {
        let was_link = self.port(at).is_some_and(|port| port.state.was_link());
        was_link || self.links.ends(at) != Ends::default()
    }

    pub(super) fn is_stated_edge(&self, at: Location) -> bool {
        self.config.edge_ports.contains(&at)
    }

    fn stated(&self, at: Location) -> Stated {
        if self.is_stated_edge(at) {
            Stated::Edge
        } else if self.config.links == LinkPolicy::Enforce && self.administered.says_end(at) {
            Stated::LinkEnd
        } else {
            Stated::Nothing
        }
    }

    /// Takes over the ports that a switch reported when it connected. Ports of an earlier
    /// connection that are missing have gone; those that were up stay unchanged.
    pub(super) fn take_over_ports(&mut self, now: Instant, dpid: DatapathId, ports: Vec<Port>) {
        let told: BTreeSet<PortNo> = ports.iter().map(|p| p.port_no).collect();
        let Some(switch) = self.switches.get(&dpid) else {
            return;
        };
        let known = switch.ports.keys().copied();
        let gone: Vec<PortNo> = known.filter(|port| !told.contains(port)).collect();
        for port in gone {
            self.apply_port(now, Location { dpid, port }, None);
        }
        for port in ports {
            let at = Location {
                dpid,
                port: port.port_no,
            };
            self.apply_port(now, at, Some(port));
        }
        // Links that outlived the connection need a confirmation.
        let up = self
            .switches
            .get_mut(&dpid)
            .into_iter()
            .flat_map(|s| &mut s.ports);
        let up = up.filter(|(_, port)| port.state.is_up()).map(|(no, port)| {
            port.lldp_due = now;
            Location { dpid, port: *no }
        });
        for at in up.collect::<Vec<_>>() {
            self.outbox.timer(now, Timer::Lldp(at));
        }
    }

    pub(super) fn handle_port_status(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        reason: PortReason,
        port: Port,
    ) {
        let at = Location {
            dpid,
            port: port.port_no,
        };
        let state = (reason != PortReason::DELETE).then_some(port);
        let is_full = |ports: usize| ports >= self.config.port_count_max;
        let switch = self.switches.get(&dpid);
        if let Some(switch) = switch.filter(|s| is_full(s.ports.len()))
            && !switch.ports.contains_key(&at.port)
            && state.is_some()
        {
            return self.refuse_ports(now, dpid);
        }
        let Some(known) = self.port_mut(at) else {
            return self.apply_port(now, at, state);
        };
        let calm = known.pending.is_none() && now.since(known.changed_at) >= CHANGE_INTERVAL;
        if calm {
            return self.apply_port(now, at, state);
        }
        let due = known.changed_at + CHANGE_INTERVAL;
        let first = known.pending.replace(state).is_none();
        if first {
            self.outbox.timer(due, Timer::PortChange(at));
        }
    }

    /// Closes the connection of a switch with too many ports, so that one switch cannot fill the
    /// memory.
    fn refuse_ports(&mut self, now: Instant, dpid: DatapathId) {
        let connection = self.switches.get(&dpid).and_then(|s| s.connection);
        if let Some(connection) = connection {
            self.outbox.counters.too_many_ports += 1;
            self.outbox.close(connection, RefusedReason::TooManyPorts);
            self.handle_down(now, connection);
        }
    }

    pub(super) fn port_change_due(&mut self, now: Instant, at: Location) {
        if let Some(state) = self.port_mut(at).and_then(|port| port.pending.take()) {
            self.apply_port(now, at, state);
        }
    }

    fn apply_port(&mut self, now: Instant, at: Location, state: Option<Port>) {
        if !at.port.is_ordinary() {
            return;
        }
        let hold = self.config.port_hold;
        let was_edge = self.role(now, at) == PortRole::Edge;
        let Some(switch) = self.switches.get_mut(&at.dpid) else {
            return;
        };
        switch.edge_ports = None;
        let was_up = switch.ports.get(&at.port).is_some_and(|p| p.state.is_up());
        let is_up = state.as_ref().is_some_and(Port::is_up);
        if let Some(state) = &state {
            let config = &self.config;
            let past = &mut self.past;
            let fresh = || SwitchPort::new(now, state, past.recall(at), config);
            let port = switch.ports.entry(at.port).or_insert_with(fresh);
            let former = std::mem::replace(&mut port.hw_addr, state.hw_addr);
            self.port_addresses.remove(&former);
            self.port_addresses.insert(state.hw_addr, at.dpid);
            port.pending = None;
            if is_up && !was_up {
                port.state.handle_up();
                port.changed_at = now;
                port.lldp_due = now;
                port.hold(now, hold);
            } else if !is_up {
                port.changed_at = if was_up { now } else { port.changed_at };
                port.state.handle_down(now);
            }
        } else if let Some(mut port) = switch.ports.remove(&at.port) {
            port.state.handle_down(now);
            self.port_addresses.remove(&port.hw_addr);
            self.past.note(now, at, port.state.past());
        }
        if is_up == was_up {
            return;
        }
        if is_up {
            self.outbox.event(Event::PortUp(at));
            self.qos_soon(now);
            self.outbox.timer(now, Timer::Lldp(at));
            self.outbox.timer(now + hold, Timer::HoldOver(at.dpid));
        } else {
            self.outbox.event(Event::PortDown(at));
            self.lose(now, at, was_edge);
        }
    }

    /// Removes the links and hosts of a port that is down. An edge port was no link since it came
    /// up, so only its hosts have paths over it.
    fn lose(&mut self, now: Instant, at: Location, was_edge: bool) {
        let removed = match self.links.ends(at) == Ends::default() {
            true => Removed::default(),
            false => self.links.remove_where(|end| end == at),
        };
        let hosts = self.hosts.unplace(now, at);
        self.close_edge(now, at, hosts.clone());
        if was_edge && removed.links.is_empty() && removed.claims.is_empty() {
            self.mend_paths_of(now, Cause::PortDown, &hosts);
            self.refresh_routes(now);
            self.topology_soon(now);
        } else {
            self.links_lost(now, removed, Cause::PortDown, &hosts);
        }
    }

    /// Moves paths away from a switch whose session has ended and is not back yet, if they have an
    /// alternative. Each new route is set before the old one is left. The other paths stay
    /// unchanged.
    pub(super) fn leave_switch(&mut self, now: Instant, dpid: DatapathId) {
        let is_away = |switch: &super::Switch| {
            let away = switch.down_since.filter(|_| switch.connection.is_none());
            away.is_some_and(|since| now.since(since) >= LEAVE_AFTER)
        };
        if self.switches.get(&dpid).is_some_and(is_away) {
            if self.config.mode != Mode::Hybrid {
                self.refresh_coarse(now);
                self.lead_paths_around(now, dpid);
            }
            self.change_routes(now, SETTLE);
        }
    }

    /// Handles the end of a switch's grace: links and paths avoid it. Its hosts keep their place,
    /// since it will most likely return with them.
    pub(super) fn grace_over(&mut self, now: Instant, dpid: DatapathId) {
        let Some(switch) = self.switches.get(&dpid) else {
            return;
        };
        let over = |since: Instant| now.since(since) >= self.config.switch_grace;
        if switch.down_since.is_some_and(over) {
            self.forget_switch(now, dpid);
        }
    }

    /// Whether the switch has a link, a host or a path that would be lost with it.
    pub(super) fn is_of_use(&self, dpid: DatapathId) -> bool {
        let Some(switch) = self.switches.get(&dpid) else {
            return false;
        };
        let has_path = || {
            let mut entries = switch.entries.values();
            entries.any(|entry| entry.key.eth_dst.is_some_and(|mac| !mac.is_multicast()))
        };
        let mut ports = switch.ports.iter();
        ports.any(|(port, known)| {
            let has_host = known.state.past().host.is_some();
            has_host || self.is_end(Location { dpid, port: *port })
        }) || has_path()
    }

    /// Forgets everything about a switch, and closes its connection if it has one.
    pub(super) fn forget_switch(&mut self, now: Instant, dpid: DatapathId) {
        let connection = self
            .switches
            .get_mut(&dpid)
            .and_then(|s| s.connection.take());
        self.outbox.handle_down(dpid);
        self.pipe_down(now, dpid);
        let Some(switch) = self.switches.remove(&dpid) else {
            return;
        };
        let unanswered = self.outbox.forget(dpid);
        let counted = self.switches.values().map(|s| s.table.leases_counted);
        self.lease_count = counted.sum();
        if let Some(connection) = connection {
            self.connections.remove(&connection);
            self.shared.remove(&connection);
            self.outbox.close(connection, RefusedReason::Fault);
        }
        for request in unanswered {
            self.handle_unanswered(now, dpid, request);
        }
        self.port_addresses.retain(|_, of| *of != dpid);
        for (port, known) in switch.ports {
            let at = Location { dpid, port };
            self.past.note(now, at, known.state.past());
        }
        self.round_answered(now, dpid);
        self.qos_lost(dpid);
        self.forget_coarse(dpid);
        self.outbox.event(Event::SwitchLost { dpid });
        let removed = self.links.remove_where(|end| end.dpid == dpid);
        self.links_lost(now, removed, Cause::Unknown, &[]);
    }

    /// Removes hosts that were placed behind a port that is now known as a link.
    pub(super) fn evict_hosts(&mut self, now: Instant, at: Location) {
        let hosts = self.hosts.unplace(now, at);
        if self.port(at).is_some_and(|port| port.edge_open) || !hosts.is_empty() {
            self.close_edge(now, at, hosts.clone());
        }
        if !hosts.is_empty() {
            self.mend_paths(now, Cause::Unknown, &hosts);
        }
    }
}
