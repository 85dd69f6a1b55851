//! Forgetting hosts that are not heard for long, and hosts without a place.
//!
//! A host whose packets match entries is not heard, so silence alone proves nothing. A host is
//! forgotten when it was not heard for `host_idle`, no path begins or ends at it, and it does not
//! answer three questions. At a port with many hosts, a host that has never answered a question is
//! asked after a minute: made-up hosts free their room, and real hosts pay with one answer. A host
//! that has announced no address cannot be asked. Its entries are lifted, so that its next packet
//! is heard, and it has another minute. Each step examines a few ports, so that no step takes long.

use std::collections::VecDeque;
use std::net::IpAddr;

use clock::{Duration, Instant};
use openflow::MacAddr;

use crate::Location;

use super::{Hosts, PROBES, link_local};
use crate::controller::crowds::{CROWDED_IDLE, Crowds};

/// Time between two steps.
pub(in crate::controller) const STEP_INTERVAL: Duration = Duration::from_millis(250);
/// Limits of one step: ports examined, hosts without a place forgotten, and hosts with a place
/// asked or forgotten. For each of the last, its switch has to delete entries.
const PORTS_PER_STEP: usize = 1024;
const LEFT_PER_STEP: usize = 1024;
const IDLE_PER_STEP: usize = 512;
/// Time between two questions to a host that may have left.
const ASK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a host without a place is kept.
const LEFT_KEPT: Duration = Duration::from_secs(180);

#[derive(Default)]
pub(super) struct Ageing {
    /// The port examined last.
    last: Option<Location>,
    asked: VecDeque<Asked>,
    /// Forgotten hosts that are not reported yet.
    gone: Vec<(MacAddr, Location)>,
    /// Hosts whose entries are to be deleted, so that they are heard.
    lifted: Vec<(MacAddr, Location)>,
    /// Ports that had something evicted or refused, since these were last taken.
    pub pressed_hosts: Option<Location>,
    pub pressed_details: Option<Location>,
    pub counters: HostCounters,
}

/// Hosts that were forgotten or refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounters {
    /// Hosts not heard for too long, or without a place for too long.
    pub aged: u64,
    /// Hosts evicted for others, because their port or switch had used its share or the table was
    /// full.
    pub evicted: u64,
    /// Hosts whose IP addresses were evicted for those of other hosts.
    pub details_evicted: u64,
    /// Packets of hosts for whose IP addresses there was no room.
    pub details_refused: u64,
}

impl HostCounters {
    /// Adds the counters of another VLAN.
    pub(in crate::controller) fn add(&mut self, other: HostCounters) {
        self.aged += other.aged;
        self.evicted += other.evicted;
        self.details_evicted += other.details_evicted;
        self.details_refused += other.details_refused;
    }
}

/// The work that is left in one step, for the hosts of all VLANs.
pub(in crate::controller) struct Step {
    ports: usize,
    left: usize,
    idle: usize,
}

impl Default for Step {
    fn default() -> Step {
        Step {
            ports: PORTS_PER_STEP,
            left: LEFT_PER_STEP,
            idle: IDLE_PER_STEP,
        }
    }
}

impl Step {
    pub(in crate::controller) fn is_over(&self) -> bool {
        self.ports == 0 || self.left == 0 || self.idle == 0
    }
}

/// How long hosts may be silent.
#[derive(Clone, Copy)]
pub(in crate::controller) struct Patience<'a> {
    pub host_idle: Duration,
    /// Whether a host that was not heard has sent nothing, so that one that cannot be asked has
    /// left.
    pub hears_all: bool,
    pub crowds: &'a Crowds,
}

impl Patience<'_> {
    /// The limits for unproven and for proven hosts of a port.
    fn of_port(&self, now: Instant, at: Location) -> (Duration, Duration) {
        let proven = self.host_idle;
        match self.crowds.is_crowded(now, at) {
            true => (proven.min(CROWDED_IDLE), proven),
            false => (proven, proven),
        }
    }
}

struct Asked {
    mac: MacAddr,
    due: Instant,
    left: u32,
}

/// A request to ask `mac` at its home, at each of these addresses, whether it is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::controller) struct LifeQuestion {
    pub mac: MacAddr,
    pub home: Location,
    pub ips: Vec<IpAddr>,
}

impl Hosts {
    /// Takes one step. `is_active` reports whether entries carry a host's packets.
    pub(in crate::controller) fn age(
        &mut self,
        now: Instant,
        patience: Patience<'_>,
        step: &mut Step,
        is_active: impl Fn(MacAddr) -> bool,
    ) -> Vec<LifeQuestion> {
        self.now = now;
        let mut questions = self.ask_again(now);
        while step.ports > 0 {
            step.ports -= 1;
            let Some(at) = self.places.next_place(self.ageing.last) else {
                self.ageing.last = None;
                break;
            };
            self.forget_left(now, at, step);
            self.question_idle(now, at, patience, step, &is_active, &mut questions);
            if step.is_over() {
                // The next step continues with this port.
                break;
            }
            self.ageing.last = Some(at);
        }
        questions
    }

    /// Forgets hosts that have been without a place for long.
    fn forget_left(&mut self, now: Instant, at: Location, step: &mut Step) {
        while step.left > 0
            && let Some(mac) = self.places.oldest_left(now, at, LEFT_KEPT)
        {
            step.left -= 1;
            self.ageing.counters.aged += 1;
            self.forget(mac, None);
        }
    }

    /// Asks the silent hosts of a port, or forgets those that cannot be asked.
    fn question_idle(
        &mut self,
        now: Instant,
        at: Location,
        patience: Patience<'_>,
        step: &mut Step,
        is_active: impl Fn(MacAddr) -> bool,
        questions: &mut Vec<LifeQuestion>,
    ) {
        let idle = patience.of_port(now, at);
        let is_crowded = patience.crowds.is_crowded(now, at);
        while step.idle > 0
            && let Some(mac) = self.places.oldest_here(now, at, idle)
        {
            step.idle -= 1;
            if is_active(mac) {
                self.places.touch(now, mac);
            } else if let Some(ips) = self.asked_at(mac, is_crowded && !patience.hears_all) {
                self.places.set_asked(now, mac);
                self.ask(now, mac, PROBES);
                questions.push(LifeQuestion { mac, home: at, ips });
            } else if patience.hears_all && is_crowded && !self.places.is_asked(mac) {
                self.places.set_asked(now, mac);
                self.ageing.lifted.push((mac, at));
            } else if patience.hears_all {
                self.ageing.counters.aged += 1;
                self.forget(mac, Some(at));
            } else {
                self.places.touch(now, mac);
            }
        }
    }

    fn ask(&mut self, now: Instant, mac: MacAddr, left: u32) {
        let due = now + ASK_INTERVAL;
        let left = left - 1;
        self.ageing.asked.push_back(Asked { mac, due, left });
    }

    /// Asks hosts that have not answered again, or forgets them.
    fn ask_again(&mut self, now: Instant) -> Vec<LifeQuestion> {
        let mut questions = Vec::new();
        while let Some(asked) = self.ageing.asked.pop_front_if(|asked| asked.due <= now) {
            let mac = asked.mac;
            let Some(home) = self.place(mac).filter(|_| self.places.is_asked(mac)) else {
                continue;
            };
            match self.asked_at(mac, true).filter(|_| asked.left > 0) {
                Some(ips) => {
                    self.ask(now, mac, asked.left);
                    questions.push(LifeQuestion { mac, home, ips });
                }
                None => {
                    self.ageing.counters.aged += 1;
                    self.forget(mac, Some(home));
                }
            }
        }
        questions
    }

    /// The addresses at which a host is asked: its announced addresses, or the address that many
    /// hosts derive from their hardware address if it is asked `anyway`.
    fn asked_at(&self, mac: MacAddr, anyway: bool) -> Option<Vec<IpAddr>> {
        let ips = self.ips(mac);
        match ips.is_empty() {
            true => anyway.then(|| vec![link_local(mac).into()]),
            false => Some(ips),
        }
    }

    /// Forgets all that is known of the host. Its switch must learn of `home`.
    pub(super) fn forget(&mut self, mac: MacAddr, home: Option<Location>) {
        self.places.remove(mac);
        self.news.note(mac);
        if let Some(detail) = self.details.remove(mac) {
            self.forget_detail(mac, &detail);
        }
        self.ageing.gone.extend(home.map(|home| (mac, home)));
    }

    /// Returns the hosts that had a place and were forgotten since the last call.
    pub(in crate::controller) fn take_gone(&mut self) -> Vec<(MacAddr, Location)> {
        std::mem::take(&mut self.ageing.gone)
    }

    /// Returns the hosts whose entries are to be deleted, since the last call.
    pub(in crate::controller) fn take_lifted(&mut self) -> Vec<(MacAddr, Location)> {
        std::mem::take(&mut self.ageing.lifted)
    }

    /// Returns the ports that had too many hosts, and too many IP addresses, since the last call.
    pub(in crate::controller) fn take_pressed(&mut self) -> (Option<Location>, Option<Location>) {
        let ageing = &mut self.ageing;
        (ageing.pressed_hosts.take(), ageing.pressed_details.take())
    }

    pub(in crate::controller) fn counters(&self) -> HostCounters {
        self.ageing.counters
    }
}
