//! Consequences of forgetting hosts.

use std::cell::RefCell;

use clock::Instant;
use openflow::MacAddr;

use crate::timeouts::HostName;

use super::hosts::HostCounters;
use super::network::Network;
use super::paths::Paths;
use super::{Controller, Mode};

/// Whether a host stays although it is silent: a path uses it, or the administrator names it.
pub(super) fn is_active(paths: &Paths, net: &Network) -> impl Fn(MacAddr) -> bool {
    move |mac| paths.has_host(mac) || net.names(mac)
}

impl Controller {
    /// Starts the ageing of hosts, once there are any.
    pub(super) fn age_soon(&mut self, now: Instant) {
        self.hosts.age_soon(now, &mut self.outbox);
    }

    /// Hosts of VLANs have no paths, and the administrator's topology does not name them.
    fn age_vlans(&mut self, now: Instant) {
        let how = (self.config.host_idle, true);
        for hosts in self.vlan_hosts.values_mut() {
            hosts.ageing_due(now, how, |_| false, &mut self.outbox);
        }
    }

    pub(super) fn ageing_due(&mut self, now: Instant) {
        let hears_all = self.config.mode != Mode::Proactive;
        let silent = RefCell::new(Vec::new());
        let (paths, net) = (&self.paths, &self.network);
        let note_active = |mac| {
            let is_active = is_active(paths, net)(mac);
            if is_active {
                silent.borrow_mut().push(mac);
            }
            is_active
        };
        let how = (self.config.host_idle, hears_all);
        self.hosts
            .ageing_due(now, how, note_active, &mut self.outbox);
        for mac in silent.into_inner() {
            self.hand_over(now, mac);
        }
        self.age_vlans(now);
        self.tell_forgotten(now);
        if self.host_count() > 0 {
            self.age_soon(now);
        }
    }

    /// Deletes the paths of a host that edges answer for by now. An edge's entry may have replaced
    /// the first one of a path, whose end no switch reports then.
    fn hand_over(&mut self, now: Instant, mac: MacAddr) {
        for pair in self.paths.of_host(mac) {
            let places = self.hosts.place(pair.0).zip(self.hosts.place(pair.1));
            if places.is_some_and(|(from, to)| self.is_by_edge(pair.0, from, pair.1, to)) {
                self.drop_path(now, pair);
            }
        }
    }

    /// Removes the entries that lead to the former places of forgotten hosts. Otherwise such an
    /// entry could lead to another host.
    pub(super) fn tell_forgotten(&mut self, now: Instant) {
        let gone = self.hosts.take_gone();
        let is_any = !gone.is_empty();
        for (mac, at) in gone {
            self.forget_host(now, mac, at);
            for pair in self.paths.of_host(mac) {
                self.drop_path(now, pair);
            }
        }
        if is_any {
            self.routes_soon(now);
            self.topology_soon(now);
            self.qos_soon(now);
        }
        self.hosts.tell_pressed(now, &mut self.outbox);
        self.tell_forgotten_members(now);
    }

    /// Whether a policy or a circuit names one of the host's addresses.
    pub(super) fn is_in_qos(&self, mac: MacAddr) -> bool {
        let ips = self.hosts.ips(mac).into_iter().map(HostName::Ip);
        let mut names = ips.chain([HostName::Mac(mac)]);
        names.any(|name| self.qos.is_named(name))
    }

    pub fn host_counters(&self) -> HostCounters {
        let mut counters = self.hosts.counters();
        for hosts in self.vlan_hosts.values() {
            counters.add(hosts.counters());
        }
        counters
    }
}
