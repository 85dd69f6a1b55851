//! Consequences of forgetting hosts.

use std::cell::RefCell;

use clock::Instant;
use openflow::MacAddr;

use crate::timeouts::HostName;
use crate::vlan::VlanId;

use super::hosts::{HostCounters, Patience, STEP_INTERVAL, Step};
use super::network::Network;
use super::outbox::Timer;
use super::paths::Paths;
use super::vlans::hosts_of;
use super::{Controller, Mode};

/// Whether a host stays although it is silent: a path uses it, or the administrator names it. While
/// no switch is connected, no host is heard, so all hosts stay.
pub(super) fn is_active(paths: &Paths, net: &Network) -> impl Fn(MacAddr) -> bool {
    move |mac| paths.has_host(mac) || net.names(mac)
}

/// Turns of the hosts of VLANs, so that one VLAN with many hosts to forget does not hold up the
/// others.
#[derive(Default)]
pub(super) struct AgeingTurns {
    /// Whether the timer of ageing is set.
    is_pending: bool,
    /// The VLAN that used up the last step.
    last: Option<VlanId>,
}

impl AgeingTurns {
    /// The VLANs in the order of their turns, with `VlanId::NONE` for the hosts outside of all
    /// VLANs.
    fn order(&self, vlans: impl Iterator<Item = VlanId>) -> Vec<VlanId> {
        let mut all: Vec<VlanId> = vlans.chain([VlanId::NONE]).collect();
        all.sort_unstable();
        let first = all.partition_point(|vlan| Some(*vlan) <= self.last);
        let count = all.len();
        all.rotate_left(first % count);
        all
    }
}

impl Controller {
    /// Starts the ageing of hosts, once there are any.
    pub(super) fn age_soon(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.ageing.is_pending, true) {
            self.outbox.timer(now + STEP_INTERVAL, Timer::Ageing);
        }
    }

    /// Takes one step of ageing.
    pub(super) fn ageing_due(&mut self, now: Instant) {
        self.ageing.is_pending = false;
        let mut step = Step::default();
        for vlan in self.ageing.order(self.vlan_hosts.keys().copied()) {
            match vlan.is_none() {
                true => self.age_untagged(now, &mut step),
                false => self.age_vlan(now, vlan, &mut step),
            }
            self.tell_forgotten(now, vlan);
            if step.is_over() {
                self.ageing.last = Some(vlan);
                break;
            }
        }
        if self.host_count() > 0 {
            self.age_soon(now);
        }
    }

    /// Hosts of VLANs have no paths, and the administrator's topology does not name them.
    fn age_vlan(&mut self, now: Instant, vlan: VlanId, step: &mut Step) {
        let patience = Patience {
            host_idle: self.config.host_idle,
            hears_all: true,
            crowds: &self.crowds,
        };
        if let Some(hosts) = self.vlan_hosts.get_mut(&vlan) {
            let is_deaf = self.connections.is_empty();
            hosts.ageing_due(now, patience, step, |_| is_deaf, &mut self.outbox);
        }
    }

    fn age_untagged(&mut self, now: Instant, step: &mut Step) {
        let patience = Patience {
            host_idle: self.config.host_idle,
            hears_all: self.config.mode != Mode::Proactive,
            crowds: &self.crowds,
        };
        let silent = RefCell::new(Vec::new());
        let (paths, net) = (&self.paths, &self.network);
        let is_deaf = self.connections.is_empty();
        let note_active = |mac| {
            if is_deaf {
                return true;
            }
            let is_active = is_active(paths, net)(mac);
            if is_active {
                silent.borrow_mut().push(mac);
            }
            is_active
        };
        self.hosts
            .ageing_due(now, patience, step, note_active, &mut self.outbox);
        for mac in silent.into_inner() {
            self.hand_over(now, mac);
        }
    }

    /// Deletes the paths of a host that edges now answer for. An edge's entry may have replaced the
    /// first entry of a path. Then no switch reports the end of that first entry.
    fn hand_over(&mut self, now: Instant, mac: MacAddr) {
        for pair in self.paths.of_host(mac) {
            let places = self.hosts.place(pair.0).zip(self.hosts.place(pair.1));
            if places.is_some_and(|(from, to)| self.is_by_edge(pair.0, from, pair.1, to)) {
                self.drop_path(now, pair);
            }
        }
    }

    /// Removes the entries that lead to the former places of forgotten hosts of a VLAN. Otherwise
    /// such an entry could lead to another host.
    pub(super) fn tell_forgotten(&mut self, now: Instant, vlan: VlanId) {
        let Some(hosts) = hosts_of!(self, vlan) else {
            return;
        };
        hosts.tell_pressed(now, &mut self.crowds.alarms, &mut self.outbox);
        for change in hosts.take_changes() {
            self.crowds.note(now, vlan, change);
        }
        match vlan.is_none() {
            true => self.tell_forgotten_untagged(now),
            false => self.tell_forgotten_members(now, vlan),
        }
    }

    fn tell_forgotten_untagged(&mut self, now: Instant) {
        let gone = self.hosts.take_gone();
        let is_any = !gone.is_empty();
        for (mac, at) in self.hosts.take_lifted() {
            self.lift_host(now, mac, at);
        }
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
