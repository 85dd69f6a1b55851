//! Discovery: LLDP out of every port, and what may be believed of the LLDP that comes in.

use openflow::DatapathId;
use openflow::message::PacketIn;
use openflow::time::{Duration, Instant};

use crate::lldp::LldpError;

use super::ports::Cause;
use super::{Alarm, Controller, Event, Location, Timer};

/// LLDP frames without arrival after which a link is gone.
const MISSED_MAX: u32 = 3;

/// LLDP goes out this often while a port is held: one lost frame must not make a link an edge.
const SENDS_WHILE_HELD: u32 = 3;

/// From packet-out to packet-in. Generous, since the controller may be far away and busy; a relay
/// by hosts is caught by the hosts' own traffic, not by time.
const NONCE_AGE_MAX: Duration = Duration::from_secs(2);

impl Controller {
    pub(super) fn lldp_due(&mut self, now: Instant, at: Location) {
        let connected = self.is_connected(at.dpid);
        let jitter = self.random() % 100;
        let (interval, hold) = (self.config.lldp_interval, self.config.port_hold);
        let Some(port) = self.port_mut(at) else {
            return;
        };
        if !port.up || port.lldp_due > now || !connected {
            return;
        }
        let next = if now < port.held_until {
            hold / SENDS_WHILE_HELD
        } else {
            // 90 to 110 %, so that the ports of a network do not march in step.
            interval * (900 + 2 * jitter as u32) / 1000
        };
        let due = now + next;
        port.lldp_due = due;
        let (hw_addr, mut outstanding) = (port.hw_addr, std::mem::take(&mut port.outstanding));
        let frame = self.prover.frame(now, at, hw_addr, &mut outstanding);
        if let Some(port) = self.port_mut(at) {
            port.outstanding = outstanding;
        }
        self.timer(due, Timer::Lldp(at));
        self.counters.lldp_sent += 1;
        self.packet_out(at.dpid, &[at.port], &frame);

        let switches = &self.switches;
        let hears = |dpid: DatapathId| {
            switches
                .get(&dpid)
                .is_some_and(|switch| switch.connection.is_some())
        };
        let gone = self.links.age(at, MISSED_MAX, hears);
        if !gone.is_empty() {
            for (from, to) in gone {
                self.event(Event::LinkDown { from, to });
            }
            self.mend_paths(now, Cause::Unknown, &[]);
            self.refresh_routes(now);
            self.topology_soon(now);
        }
    }

    pub(super) fn handle_lldp(&mut self, now: Instant, to: Location, packet_in: &PacketIn) {
        let Some(port) = self.port_mut(to) else {
            return;
        };
        if !port.lldp_budget.take(now) {
            self.counters.lldp_limited += 1;
            return;
        }
        match self.believe(now, to, &packet_in.data) {
            Ok(from) => {
                self.counters.lldp_accepted += 1;
                if self.links.confirm(from, to) {
                    self.link_up(now, from, to);
                }
            }
            Err(LldpError::NotOurs) => self.counters.lldp_foreign += 1,
            Err(LldpError::Forged(why)) => {
                self.counters.lldp_refused += 1;
                self.alarm(Alarm::LldpForged { at: to, why });
            }
        }
    }

    /// Where the frame came from, if everything about it holds.
    fn believe(&mut self, now: Instant, to: Location, data: &[u8]) -> Result<Location, LldpError> {
        let proven = self.prover.read(data)?;
        let from = proven.from;
        let Some(sender) = self.port_mut(from) else {
            return Err(LldpError::Forged("from a port that is not there"));
        };
        if from == to {
            return Err(LldpError::NotOurs);
        }
        sender.outstanding.take(now, proven.nonce, NONCE_AGE_MAX)?;
        for (here, there) in [(from, to), (to, from)] {
            if self.has_hosts(here, there) {
                return Err(LldpError::Forged("relayed over a port with hosts"));
            }
        }
        Ok(from)
    }

    /// Whether `here` has shown a host at a time when `there` could have shown itself as its
    /// neighbour. What was heard before that switch was up may have come through it.
    fn has_hosts(&self, here: Location, there: Location) -> bool {
        let Some(seen) = self.port(here).and_then(|port| port.host_seen) else {
            return false;
        };
        let up_since = self.switches.get(&there.dpid).map(|switch| switch.up_since);
        up_since.is_some_and(|up| seen >= up + self.config.port_hold)
    }

    fn link_up(&mut self, now: Instant, from: Location, to: Location) {
        self.event(Event::LinkUp { from, to });
        for end in [from, to] {
            if let Some(port) = self.port_mut(end) {
                port.host_seen = None;
            }
            self.evict_hosts(now, end);
        }
        self.mend_paths(now, Cause::Unknown, &[]);
        self.routes_soon(now);
        self.adopt_soon(now);
    }
}
