//! The number of hosts of each port over all VLANs: which ports are crowded, and which have their
//! share.
//!
//! A port that forges addresses has many hosts, and so has a port with many hosts behind it. The
//! hosts of both have to prove that they are there ([`CROWDED_IDLE`]).

use std::collections::{BTreeMap, BTreeSet};

use clock::{Budget, Duration, Instant};
use openflow::{DatapathId, PortNo};

use crate::Location;
use crate::vlan::VlanId;

use super::hosts::PressureAlarms;

/// Hosts of one port above which the port is crowded, unless half of its share is less.
const CROWDED: u32 = 256;
/// How long a port stays crowded after it has got a host above that number.
const CROWDED_KEPT: Duration = Duration::from_secs(600);
/// Silence after which a host of a crowded port is asked, unless it is proven: once it has
/// answered, it is kept as long as any other host.
pub(super) const CROWDED_IDLE: Duration = Duration::from_secs(60);

/// Hosts of VLANs that a port with its share may add in place of others, per second and at once.
const REPLACED_PER_S: u32 = 100;
const REPLACED_BURST: u32 = 1000;

/// New hosts that a guarded port may have, per second and at once.
const NEW_PER_S: u32 = 100;
const NEW_BURST: u32 = 500;

pub(super) struct Crowds {
    per_port_max: u32,
    ports: BTreeMap<Location, Crowd>,
    /// The guarded ports, and the new hosts that they may still have.
    guarded: BTreeMap<Location, Budget>,
    pub alarms: PressureAlarms,
}

struct Crowd {
    count: u32,
    /// The hosts of each VLAN, in the order of the VLANs.
    by_vlan: Vec<(VlanId, u32)>,
    crowded_until: Instant,
    replaced: Budget,
}

impl Crowds {
    pub(super) fn new(per_port_max: u32) -> Crowds {
        Crowds {
            per_port_max,
            ports: BTreeMap::new(),
            guarded: BTreeMap::new(),
            alarms: PressureAlarms::default(),
        }
    }

    pub(super) fn set_per_port_max(&mut self, per_port_max: u32) {
        self.per_port_max = per_port_max;
    }

    /// Guards these ports against crowds, and no others.
    pub(super) fn set_guarded(&mut self, now: Instant, ports: &BTreeSet<Location>) {
        self.guarded.retain(|at, _| ports.contains(at));
        for at in ports {
            let budget = || Budget::new(now, NEW_PER_S, NEW_BURST);
            self.guarded.entry(*at).or_insert_with(budget);
        }
    }

    pub(super) fn is_guarded(&self, at: Location) -> bool {
        self.guarded.contains_key(&at)
    }

    /// Notes a packet of an unknown host. Returns whether to close its port, since there were too
    /// many such packets.
    pub(super) fn is_flood(&mut self, now: Instant, at: Location) -> bool {
        let budget = self.guarded.get_mut(&at);
        budget.is_some_and(|budget| !budget.take(now))
    }

    fn crowded(&self) -> u32 {
        CROWDED.min(self.per_port_max / 2)
    }

    /// Notes that a port has got one more host of a VLAN, or has one less.
    pub(super) fn note(&mut self, now: Instant, vlan: VlanId, (at, change): (Location, i32)) {
        let crowded = self.crowded();
        let port = self.ports.entry(at).or_insert_with(|| Crowd {
            count: 0,
            by_vlan: Vec::new(),
            crowded_until: Instant::START,
            replaced: Budget::new(now, REPLACED_PER_S, REPLACED_BURST),
        });
        port.add(vlan, change);
        if change > 0 && port.count > crowded {
            port.crowded_until = now + CROWDED_KEPT;
        }
        if port.count == 0 {
            self.ports.remove(&at);
        }
    }

    /// Forgets the hosts of a VLAN that no longer exists.
    pub(super) fn forget_vlan(&mut self, vlan: VlanId) {
        for port in self.ports.values_mut() {
            port.remove(vlan);
        }
        self.ports.retain(|_, port| port.count > 0);
    }

    /// Whether hosts of this port have to prove that they are there.
    pub(super) fn is_crowded(&self, now: Instant, at: Location) -> bool {
        let port = self.ports.get(&at);
        port.is_some_and(|port| port.count > self.crowded() || now < port.crowded_until)
    }

    /// The ports of a switch that have hosts, or had hosts when the ports went down or were
    /// removed.
    pub(super) fn ports_of(&self, dpid: DatapathId) -> Vec<Location> {
        let at = |port| Location { dpid, port };
        let ports = self.ports.range(at(PortNo(0))..=at(PortNo(u32::MAX)));
        ports.map(|(at, _)| *at).collect()
    }

    /// The VLAN that has most hosts at a port, if the port has its share.
    pub(super) fn over_share(&self, at: Location) -> Option<VlanId> {
        let port = self.ports.get(&at)?;
        let port = (port.count >= self.per_port_max).then_some(port)?;
        let most = port.by_vlan.iter().max_by_key(|(_, count)| *count);
        most.map(|(vlan, _)| *vlan)
    }

    /// Whether a port may add one more host of a VLAN in place of another.
    pub(super) fn may_replace(&mut self, now: Instant, at: Location) -> bool {
        let port = self.ports.get_mut(&at);
        port.is_none_or(|port| port.replaced.take(now))
    }
}

impl Crowd {
    fn add(&mut self, vlan: VlanId, change: i32) {
        self.count = self.count.saturating_add_signed(change);
        match self.by_vlan.binary_search_by_key(&vlan, |(vlan, _)| *vlan) {
            Ok(at) => {
                let count = &mut self.by_vlan[at].1;
                *count = count.saturating_add_signed(change);
                if *count == 0 {
                    self.by_vlan.remove(at);
                }
            }
            Err(at) if change > 0 => self.by_vlan.insert(at, (vlan, change.unsigned_abs())),
            Err(_) => {}
        }
    }

    fn remove(&mut self, vlan: VlanId) {
        if let Ok(at) = self.by_vlan.binary_search_by_key(&vlan, |(vlan, _)| *vlan) {
            self.count -= self.by_vlan.remove(at).1;
        }
    }
}
