//! The timeouts of the entries that the controller and its edges set.

use openflow::MacAddr;
use openflow::time::Instant;

use crate::edge::EdgeUpdate;
use crate::timeouts::{FlowClass, Lifetime, Timeouts};

use super::paths::Pair;
use super::{Controller, Timer};

/// Idle timeouts past the ingress are longer by this, so that the ingress ends first: switches look
/// for expired entries once a second, and not at the same time.
const DOWNSTREAM_EXTRA_S: u16 = 2;

impl Controller {
    /// Other timeouts from now on. Entries that are there keep theirs.
    pub fn set_timeouts(&mut self, timeouts: Timeouts) {
        let reported = self.reports();
        self.config.timeouts = timeouts;
        if self.reports() != reported {
            self.routes_pending = true;
            self.timer(Instant::START, Timer::Routes);
        }
        let (idle_s, hard_s) = self.timeouts_of_edges();
        for dpid in self.switches.keys().copied().collect::<Vec<_>>() {
            self.tell_edge(dpid, EdgeUpdate::Timeouts { idle_s, hard_s });
        }
    }

    /// Idle and hard timeout of an entry of a pair's path.
    pub(super) fn timeouts_of(&self, pair: Pair, ingress: bool) -> (u16, u16) {
        let lifetime = self.config.timeouts.lifetime(self.class_of(pair));
        timeouts_at(lifetime, ingress)
    }

    /// Of entries between two hosts of one switch, which are no path of the controller's.
    pub(super) fn timeouts_of_edges(&self) -> (u16, u16) {
        timeouts_at(self.config.timeouts.default, true)
    }

    pub(super) fn class_of(&self, (src, dst): Pair) -> Option<&FlowClass> {
        let has_ip = |mac, ip| self.hosts.ips(mac).contains(&ip);
        self.config.timeouts.class_of(src, dst, has_ip)
    }

    /// Whether a class names the host. Its edge is not told of it then.
    pub(super) fn is_in_class(&self, mac: MacAddr) -> bool {
        let has_ip = |mac, ip| self.hosts.ips(mac).contains(&ip);
        self.config.timeouts.names(mac, has_ip)
    }
}

fn timeouts_at(lifetime: Lifetime, ingress: bool) -> (u16, u16) {
    match lifetime {
        Lifetime::Fixed { idle_s, hard_s } => (idle_s, hard_s),
        Lifetime::Paper(paper) if ingress => (0, paper.base_s),
        Lifetime::Paper(paper) => (paper.idle_s, 0),
        Lifetime::Lease(lease) if ingress => (lease.idle_max_s, lease.lease_s.unwrap_or(0)),
        Lifetime::Lease(lease) => {
            let ingress_s = lease.lease_s.unwrap_or(0).max(lease.idle_max_s);
            (ingress_s.saturating_add(DOWNSTREAM_EXTRA_S), 0)
        }
    }
}
