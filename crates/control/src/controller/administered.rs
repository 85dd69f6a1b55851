//! Compares the administrator's topology with the discovered one. The controller reports
//! differences. In hybrid mode it sets the paths between hosts whose place the topology names
//! before the hosts send packets.

use std::collections::BTreeSet;

use clock::{Duration, Instant};
use openflow::MacAddr;

use super::mending::Cause;
use super::port_state::PortRole;
use super::{Controller, Event, Mode, Timer};
use crate::topology::{Difference, Found, Topology};
use crate::vlan::VlanId;

/// Time for discovery after the last change.
const SETTLE: Duration = Duration::from_secs(1);

/// Reported differences of each kind in one change; further ones appear in the status only.
const TOLD_MAX: usize = 32;

/// The comparison with the administrator's topology.
#[derive(Default)]
pub(super) struct Administered {
    /// The differences of the last report.
    differences: BTreeSet<Difference>,
    is_pending: bool,
}

impl Controller {
    /// The ports that a topology names and that a connected switch does not have.
    pub fn ports_missing(&self, topology: &Topology) -> Vec<Difference> {
        let missing = |difference: &Difference| matches!(difference, Difference::PortMissing(_));
        let differences = self.differences_to(topology);
        differences.into_iter().filter(missing).collect()
    }

    /// Replaces the topology, or removes it. A topology that names ports that a connected switch
    /// does not have is refused, and the one in use stays.
    pub fn set_topology(
        &mut self,
        now: Instant,
        topology: Option<Topology>,
    ) -> Result<(), Vec<Difference>> {
        if let Some(topology) = &topology {
            let missing = self.ports_missing(topology);
            if !missing.is_empty() {
                return Err(missing);
            }
        }
        self.administered = Administered::default();
        self.network.set_topology(topology);
        self.ingress.forget_edge_ports();
        self.follow_topology(now);
        Ok(())
    }

    /// Applies the topology to the existing links.
    pub(super) fn follow_topology(&mut self, now: Instant) {
        self.enforce_links(now);
        self.trust_stated_links(now);
        self.topology_soon(now);
    }

    /// Ends all doubt about links that the topology names.
    fn trust_stated_links(&mut self, now: Instant) {
        let links = self.network.links.iter();
        let said = links.filter(|(a, b)| self.network.says_link(*a, *b));
        let said: Vec<_> = said.collect();
        let mut is_any = false;
        for (a, b) in said {
            is_any |= self.network.links.trust([a, b]);
        }
        if is_any {
            self.routes_soon(now);
        }
    }

    /// Removes links that the topology no longer names.
    fn enforce_links(&mut self, now: Instant) {
        if !self.network.enforces_links() {
            return;
        }
        let links = self.network.links.iter();
        let unsaid = links.filter(|(a, b)| !self.network.says_link(*a, *b));
        let unsaid: Vec<_> = unsaid.collect();
        if !unsaid.is_empty() {
            let removed = self.network.links.remove(&unsaid);
            self.links_lost(now, removed, Cause::Unknown, &[]);
        }
    }

    /// The differences between the network and the administrator's topology; empty without a
    /// topology.
    pub fn topology_differences(&self) -> Vec<Difference> {
        let topology = self.network.topology();
        let differences = topology.map(|topology| self.differences_to(topology));
        differences.unwrap_or_default().into_iter().collect()
    }

    pub fn has_topology(&self) -> bool {
        self.network.topology().is_some()
    }

    /// Schedules a comparison after a change that the topology may concern.
    pub(super) fn topology_soon(&mut self, now: Instant) {
        self.qos_soon(now);
        let wanted = self.network.topology().is_some();
        if wanted && !std::mem::replace(&mut self.administered.is_pending, true) {
            self.outbox
                .timer(now + self.config.port_hold + SETTLE, Timer::Topology);
        }
    }

    /// Sets the timer again when it is unknown whether it is still set.
    pub(super) fn topology_again(&mut self) {
        self.administered.is_pending = false;
    }

    pub(super) fn topology_due(&mut self, now: Instant) {
        self.administered.is_pending = false;
        // A copy, so that a panic below does not lose the administrator's topology.
        let Some(topology) = self.network.topology().cloned() else {
            return;
        };
        self.place_hosts(now, &topology);
        self.qos_soon(now);
        self.tell_differences(&topology);
        let hosts: Vec<MacAddr> = topology.hosts().map(|(mac, _)| mac).collect();
        if self.config.mode == Mode::Hybrid {
            self.set_known_paths(now, &hosts);
        }
        self.routes_soon(now);
    }

    fn place_hosts(&mut self, now: Instant, topology: &Topology) {
        for (mac, place) in topology.hosts() {
            if self.network.role(place.at) == PortRole::Edge && self.hosts.adopt(now, mac, place.at)
            {
                let at = place.at;
                let vlan = VlanId::NONE;
                self.outbox.event(Event::HostLearned { mac, vlan, at });
            }
        }
    }

    fn tell_differences(&mut self, topology: &Topology) {
        let differences = self.differences_to(topology);
        let before = std::mem::replace(&mut self.administered.differences, differences.clone());
        for difference in differences.difference(&before).take(TOLD_MAX) {
            self.outbox
                .event(Event::TopologyDiffers(difference.clone()));
        }
        if differences.is_empty() && !before.is_empty() {
            self.outbox.event(Event::TopologyAgrees);
        }
    }

    fn differences_to(&self, topology: &Topology) -> BTreeSet<Difference> {
        let ports = self.network.connected().map(|switch| {
            let dpid = switch.dpid;
            let at = |port: &_| super::Location { dpid, port: *port };
            (dpid, switch.ports.keys().map(at).collect())
        });
        let found = Found {
            switches: ports.collect(),
            links: self.network.links.iter().collect(),
        };
        topology.differences(&found, |mac| self.hosts.place(mac))
    }

    /// Sets the ingress entries of every known pair without waiting for packets. Between switches
    /// the routes of hybrid mode are enough.
    fn set_known_paths(&mut self, now: Instant, hosts: &[MacAddr]) {
        let placed = |mac: &MacAddr| self.hosts.place(*mac).map(|at| (*mac, at));
        let placed: Vec<_> = hosts.iter().filter_map(placed).collect();
        for (src, from) in &placed {
            for (dst, to) in &placed {
                if src != dst && from != to && !self.paths.contains((*src, *dst)) {
                    self.ensure_path(now, *src, *dst, *from, *to);
                }
            }
        }
    }
}
