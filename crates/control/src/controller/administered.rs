//! The administrator's topology beside the one that is found: differences are told, and in hybrid
//! mode the paths between hosts whose place is said are set before they speak.

use std::collections::BTreeSet;

use clock::{Duration, Instant};
use openflow::MacAddr;

use super::paths::Pair;
use super::port_state::PortRole;
use super::ports::Cause;
use super::{Controller, Event, LinkPolicy, Location, Mode, Timer};
use crate::topology::{Difference, Found, Topology};

/// Discovery is given this long after the last change.
const SETTLE: Duration = Duration::from_secs(1);

/// Differences that are told, of each kind of change; further ones are in the status only.
const TOLD_MAX: usize = 32;

#[derive(Default)]
pub(super) struct Administered {
    topology: Option<Topology>,
    /// As they were last told.
    differences: BTreeSet<Difference>,
    is_pending: bool,
}

impl Administered {
    pub(super) fn new(topology: Option<Topology>) -> Administered {
        Administered {
            topology,
            ..Administered::default()
        }
    }

    /// Whether the place of the host is said.
    pub(super) fn names(&self, mac: MacAddr) -> bool {
        self.topology.as_ref().is_some_and(|t| t.has_host(mac))
    }

    /// Whether a cable is said to join these ports.
    pub(super) fn says_link(&self, a: Location, b: Location) -> bool {
        let topology = self.topology.as_ref();
        topology.is_some_and(|t| t.has_link(a, b))
    }

    /// Whether a cable is said to end at this port.
    pub(super) fn says_end(&self, at: Location) -> bool {
        self.topology.as_ref().is_some_and(|t| t.has_end(at))
    }

    /// Whether the places of both are said, so that their entries need no packet to come about.
    pub(super) fn says_both(&self, (src, dst): Pair) -> bool {
        let topology = self.topology.as_ref();
        topology.is_some_and(|t| t.has_host(src) && t.has_host(dst))
    }
}

impl Controller {
    /// Another topology, or none. It is refused, and the one in use stays, if it names ports that
    /// switches which are connected do not have.
    pub fn set_topology(
        &mut self,
        now: Instant,
        topology: Option<Topology>,
    ) -> Result<(), Vec<Difference>> {
        if let Some(topology) = &topology {
            let missing =
                |difference: &Difference| matches!(difference, Difference::PortMissing(_));
            let differences = self.differences_to(topology);
            let missing: Vec<Difference> = differences.into_iter().filter(missing).collect();
            if !missing.is_empty() {
                return Err(missing);
            }
        }
        self.administered = Administered::new(topology);
        for switch in self.switches.values_mut() {
            switch.edge_ports = None;
        }
        self.enforce_links(now);
        self.trust_stated_links(now);
        self.topology_soon(now);
        Ok(())
    }

    /// Nobody doubts a link that is said.
    fn trust_stated_links(&mut self, now: Instant) {
        let links = self.links.iter();
        let said = links.filter(|(a, b)| self.administered.says_link(*a, *b));
        let said: Vec<_> = said.collect();
        let mut is_any = false;
        for (a, b) in said {
            is_any |= self.links.trust([a, b]);
        }
        if is_any {
            self.routes_soon(now);
        }
    }

    /// Takes out links that are not said any more.
    fn enforce_links(&mut self, now: Instant) {
        if self.config.links != LinkPolicy::Enforce {
            return;
        }
        let links = self.links.iter();
        let unsaid = links.filter(|(a, b)| !self.administered.says_link(*a, *b));
        let unsaid: Vec<_> = unsaid.collect();
        if !unsaid.is_empty() {
            let removed = self.links.remove(&unsaid);
            self.links_lost(now, removed, Cause::Unknown, &[]);
        }
    }

    /// In what the network differs from the administrator's topology; nothing without one.
    pub fn topology_differences(&self) -> Vec<Difference> {
        let topology = self.administered.topology.as_ref();
        let differences = topology.map(|topology| self.differences_to(topology));
        differences.unwrap_or_default().into_iter().collect()
    }

    pub fn has_topology(&self) -> bool {
        self.administered.topology.is_some()
    }

    /// Something has changed that the topology may speak of.
    pub(super) fn topology_soon(&mut self, now: Instant) {
        self.qos_soon(now);
        let wanted = self.administered.topology.is_some();
        if wanted && !std::mem::replace(&mut self.administered.is_pending, true) {
            self.timer(now + self.config.port_hold + SETTLE, Timer::Topology);
        }
    }

    /// Nobody knows whether the timer is still set.
    pub(super) fn topology_again(&mut self) {
        self.administered.is_pending = false;
    }

    pub(super) fn topology_due(&mut self, now: Instant) {
        self.administered.is_pending = false;
        // A copy, so that a panic on the way does not lose what the administrator says.
        let Some(topology) = self.administered.topology.clone() else {
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
            if self.role(now, place.at) == PortRole::Edge && self.hosts.adopt(now, mac, place.at) {
                let at = place.at;
                self.event(Event::HostLearned { mac, at });
            }
        }
    }

    fn tell_differences(&mut self, topology: &Topology) {
        let differences = self.differences_to(topology);
        let before = std::mem::replace(&mut self.administered.differences, differences.clone());
        for difference in differences.difference(&before).take(TOLD_MAX) {
            self.event(Event::TopologyDiffers(difference.clone()));
        }
        if differences.is_empty() && !before.is_empty() {
            self.event(Event::TopologyAgrees);
        }
    }

    fn differences_to(&self, topology: &Topology) -> BTreeSet<Difference> {
        let connected = self.switches.values().filter(|s| s.connection.is_some());
        let ports = connected.map(|switch| {
            let dpid = switch.dpid;
            let at = |port: &_| super::Location { dpid, port: *port };
            (dpid, switch.ports.keys().map(at).collect())
        });
        let found = Found {
            switches: ports.collect(),
            links: self.links.iter().collect(),
        };
        topology.differences(&found, |mac| self.hosts.place(mac))
    }

    /// The ingress entries of every pair, which no packet has to bring about; between switches the
    /// routes of hybrid mode are enough.
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
