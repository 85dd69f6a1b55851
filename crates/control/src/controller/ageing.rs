//! Consequences of forgetting hosts.

use clock::{Duration, Instant};
use openflow::MacAddr;

use crate::timeouts::HostName;

use super::hosts::{HostCounters, STEP_INTERVAL};
use super::network::Network;
use super::paths::Paths;
use super::{Alarm, Controller, Mode, Timer};

/// Time between two alarms that hosts, or their IP addresses, have taken all their room.
const ALARM_INTERVAL: Duration = Duration::from_secs(60);

/// Whether a host stays although it is silent: a path uses it, or the administrator names it.
pub(super) fn is_active(paths: &Paths, net: &Network) -> impl Fn(MacAddr) -> bool {
    move |mac| paths.has_host(mac) || net.names(mac)
}

/// The times of the last alarms.
#[derive(Default)]
pub(super) struct PressureAlarms {
    hosts: Option<Instant>,
    details: Option<Instant>,
}

impl Controller {
    /// Starts the ageing of hosts, once there are any.
    pub(super) fn age_soon(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.ageing_pending, true) {
            self.outbox.timer(now + STEP_INTERVAL, Timer::Ageing);
        }
    }

    pub(super) fn ageing_due(&mut self, now: Instant) {
        self.ageing_pending = false;
        let hears_all = self.config.mode != Mode::Proactive;
        let is_active = is_active(&self.paths, &self.network);
        let host_idle = self.config.host_idle;
        for question in self.hosts.age(now, host_idle, hears_all, is_active) {
            for ip in question.ips {
                self.probe(question.home, question.mac, ip);
            }
        }
        self.tell_forgotten(now);
        if self.hosts.len() > 0 {
            self.age_soon(now);
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
        let (hosts, details) = self.hosts.take_pressed();
        let may = |last: &mut Option<Instant>| {
            let may = last.is_none_or(|at| now.since(at) >= ALARM_INTERVAL);
            if may {
                *last = Some(now);
            }
            may
        };
        if let Some(at) = hosts.filter(|_| may(&mut self.pressure_alarms.hosts)) {
            self.outbox.alarm(Alarm::HostTableFull { at });
        }
        if let Some(at) = details.filter(|_| may(&mut self.pressure_alarms.details)) {
            self.outbox.alarm(Alarm::HostAddressesFull { at });
        }
    }

    /// Whether a policy or a circuit names one of the host's addresses.
    pub(super) fn is_in_qos(&self, mac: MacAddr) -> bool {
        let ips = self.hosts.ips(mac).into_iter().map(HostName::Ip);
        let mut names = ips.chain([HostName::Mac(mac)]);
        names.any(|name| self.qos.is_named(name))
    }

    pub fn host_counters(&self) -> HostCounters {
        self.hosts.counters()
    }
}
