//! Ports: their state as the switch tells it, calmed, and what follows for links and hosts.
//!
//! A change is taken over at once, the next of the same port not before [`CHANGE_INTERVAL`]: a
//! port that flaps ten thousand times a second costs ten changes a second, and the last state
//! is the one that stays.

use std::collections::BTreeSet;

use openflow::message::{Port, PortReason};
use openflow::time::{Duration, Instant};
use openflow::{DatapathId, PortNo};

use super::switch::SwitchPort;
use super::{Controller, Event, Location, Timer};

const CHANGE_INTERVAL: Duration = Duration::from_millis(100);

/// What a port is to forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortRole {
    /// Down, or not there.
    Gone,
    /// Up, but discovery has not had its chance.
    Held,
    /// Another switch of ours is behind it.
    Link,
    /// Hosts are behind it.
    Edge,
}

/// Why paths must be looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The port is dead: an entry that leads there is worth nothing.
    PortDown,
    /// Only our knowledge is gone; packets may still get through.
    Unknown,
}

impl Controller {
    pub(super) fn role(&self, now: Instant, at: Location) -> PortRole {
        match self.port(at) {
            Some(port) if port.up => {
                if self.links.is_end(at) {
                    PortRole::Link
                } else if now < port.held_until {
                    PortRole::Held
                } else {
                    PortRole::Edge
                }
            }
            _ => PortRole::Gone,
        }
    }

    /// The ports a switch told when it connected: those of an earlier connection that are not
    /// among them have gone, and those that were up stay as they were.
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
        // Links that outlived the connection want to be confirmed.
        let up = self
            .switches
            .get_mut(&dpid)
            .into_iter()
            .flat_map(|s| &mut s.ports);
        let up = up.filter(|(_, port)| port.up).map(|(no, port)| {
            port.lldp_due = now;
            Location { dpid, port: *no }
        });
        for at in up.collect::<Vec<_>>() {
            self.timer(now, Timer::Lldp(at));
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
            self.timer(due, Timer::PortChange(at));
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
        let Some(switch) = self.switches.get_mut(&at.dpid) else {
            return;
        };
        switch.edge_ports = None;
        let was_up = switch.ports.get(&at.port).is_some_and(|port| port.up);
        let is_up = state.as_ref().is_some_and(Port::is_up);
        if let Some(state) = &state {
            let config = &self.config;
            let fresh = || SwitchPort::new(now, state, config);
            let port = switch.ports.entry(at.port).or_insert_with(fresh);
            port.hw_addr = state.hw_addr;
            port.pending = None;
            if is_up != was_up {
                port.up = is_up;
                port.changed_at = now;
                port.host_seen = None;
                port.held_until = now + hold;
                port.lldp_due = now;
            }
        } else {
            switch.ports.remove(&at.port);
        }
        if is_up == was_up {
            return;
        }
        if is_up {
            self.event(Event::PortUp(at));
            self.qos_soon(now);
            self.timer(now, Timer::Lldp(at));
            self.timer(now + hold, Timer::HoldOver);
        } else {
            self.event(Event::PortDown(at));
            self.lose(now, Cause::PortDown, at);
        }
    }

    /// The port has neither links nor hosts any more.
    pub(super) fn lose(&mut self, now: Instant, cause: Cause, at: Location) {
        let links = self.links.remove_where(|end| end == at);
        for (from, to) in &links {
            self.event(Event::LinkDown {
                from: *from,
                to: *to,
            });
        }
        let hosts = self.hosts.unplace(now, at);
        self.close_edge(now, at, hosts.clone());
        match links.is_empty() {
            true => self.mend_paths_of(now, cause, &hosts),
            false => self.mend_paths(now, cause, &hosts),
        }
        self.refresh_routes(now);
        self.topology_soon(now);
    }

    /// The switch did not come back: links and paths go around it. Its hosts keep their place,
    /// since the most likely thing is that it returns with them.
    pub(super) fn grace_over(&mut self, now: Instant, dpid: DatapathId) {
        let Some(switch) = self.switches.get(&dpid) else {
            return;
        };
        let over = |since: Instant| now.since(since) >= self.config.switch_grace;
        if !switch.down_since.is_some_and(over) {
            return;
        }
        if let Some(switch) = self.switches.remove(&dpid) {
            self.lease_count -= switch.table.leases_counted;
        }
        self.qos_lost(dpid);
        self.forget_coarse(dpid);
        self.event(Event::SwitchLost { dpid });
        let links = self.links.remove_where(|end| end.dpid == dpid);
        for (from, to) in links {
            self.event(Event::LinkDown { from, to });
        }
        self.mend_paths(now, Cause::Unknown, &[]);
        self.refresh_routes(now);
        self.topology_soon(now);
    }

    /// Hosts that were taken to be behind a port that turns out to be a link.
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
