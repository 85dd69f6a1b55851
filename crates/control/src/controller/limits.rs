//! A new configuration for a running controller: its limits and times, bundles, the link policy,
//! and the ports that are edges.
//!
//! Changes take effect at once, and entries of switches stay as they are. Limits apply to additions
//! from now on: nothing that is known is forgotten because it exceeds a new limit.

use std::collections::BTreeSet;

use clock::Instant;

use super::mending::Cause;
use super::outbox::Timer;
use super::{Controller, ControllerConfig, shares_of_hosts};

impl Controller {
    /// Takes limits, times, `has_bundles`, `links`, `edge_ports` and `arp_inspection` from another
    /// configuration. The rest of it has methods of its own, or stays as it was when the controller
    /// was made.
    pub fn set_limits(&mut self, now: Instant, other: &ControllerConfig) {
        self.outbox.now = now;
        let before = self.config.clone();
        let config = &mut self.config;
        config.lldp_interval = other.lldp_interval;
        config.port_hold = other.port_hold;
        config.switch_grace = other.switch_grace;
        config.switch_count_max = other.switch_count_max;
        config.host_count_max = other.host_count_max;
        config.hosts_per_switch_max = other.hosts_per_switch_max;
        config.hosts_per_port_max = other.hosts_per_port_max;
        config.host_idle = other.host_idle;
        config.path_count_max = other.path_count_max;
        config.paths_per_switch_max = other.paths_per_switch_max;
        config.paths_per_port_max = other.paths_per_port_max;
        config.path_rate_max = other.path_rate_max;
        config.flood_rate_max = other.flood_rate_max;
        config.flood_packet_outs_max = other.flood_packet_outs_max;
        config.links = other.links;
        config.edge_ports.clone_from(&other.edge_ports);
        config.has_bundles = other.has_bundles;
        self.outbox.set_bundles(self.config.has_bundles);
        self.paths.set_limits(&self.config);
        self.ingress.set_rates(now, &self.config);
        self.crowds.set_per_port_max(self.config.hosts_per_port_max);
        self.qos.set_port_hold(self.config.port_hold);
        self.set_room_of_hosts();
        let sooner = self.discovery.set_times(now, &self.config);
        for (at, due) in sooner {
            self.outbox.timer(due, Timer::Lldp(at));
        }
        if before.links != other.links || before.edge_ports != other.edge_ports {
            self.set_links_stated(now, &before.edge_ports);
        }
        if before.arp_inspection != other.arp_inspection {
            self.set_inspection(other.arp_inspection);
        }
    }

    /// Sets the room of the hosts outside of all VLANs and in each VLAN.
    pub(super) fn set_room_of_hosts(&mut self) {
        let mut shares = shares_of_hosts(&self.config);
        let vlan_count = self.config.vlans.all().len() + 1;
        shares.count_max /= vlan_count;
        for hosts in self.vlan_hosts.values_mut().chain([&mut self.hosts]) {
            hosts.set_room(shares, vlan_count);
        }
    }

    /// Follows a new link policy, and new ports that are edges.
    fn set_links_stated(&mut self, now: Instant, before: &BTreeSet<crate::Location>) {
        let (links, edges) = (self.config.links, self.config.edge_ports.clone());
        let fresh: BTreeSet<_> = edges.difference(before).copied().collect();
        let former: Vec<_> = before.difference(&edges).copied().collect();
        self.network.set_stated(links, edges);
        self.ingress.forget_edge_ports();
        let removed = self.network.links.remove_where(|end| fresh.contains(&end));
        if !removed.links.is_empty() || !removed.claims.is_empty() {
            self.links_lost(now, removed, Cause::Unknown, &[]);
        }
        for at in &fresh {
            self.follow_access_links(at.dpid);
        }
        for at in former {
            self.outbox.timer(now, Timer::Lldp(at));
        }
        self.follow_topology(now);
    }

    /// Sets or removes the entries that send claims of addresses to the controller.
    fn set_inspection(&mut self, is_on: bool) {
        let before = self.all_guards();
        self.config.arp_inspection = is_on;
        self.replace_guards(before);
    }
}
