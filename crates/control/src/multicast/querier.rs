//! The querier of each VLAN: ours, if it is wanted and no other has a lower address (RFC 3376,
//! 6.6.2; RFC 3810, 7.6.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clock::{Duration, Instant};
use openflow::packet::membership::Query;

use crate::Location;
use crate::vlan::VlanId;

use super::{Family, Membership, NetworkKey, Output, TRANSIT, Timer};

/// Time for the hosts of a newly opened port to answer: they are few, and wait.
const PORT_RESPONSE: Duration = Duration::from_secs(1);

/// The source addresses of our querier. Without an address, it sends no queries in that family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuerierAddresses {
    pub ipv4: Option<Ipv4Addr>,
    pub ipv6: Option<Ipv6Addr>,
}

/// The querier that hosts of a VLAN answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Querier {
    Own,
    Other {
        address: IpAddr,
        at: Location,
    },
    /// There is no querier, so silent hosts lose their memberships one after the other.
    Absent,
}

/// The queriers of a VLAN in one family.
#[derive(Debug, Default)]
pub(super) struct Network {
    own: Option<Own>,
    other: Option<Other>,
    /// Queried hosts may answer until this time, so no membership ends before it.
    pub(super) held_until: Option<Instant>,
}

/// Our querier.
#[derive(Clone, Copy, Debug)]
struct Own {
    address: IpAddr,
    /// Queries that still follow each other quickly (RFC 3376, 8.6 and 8.7).
    startup_count: u8,
    /// The time of the next query, while there is no other querier.
    next: Option<Instant>,
}

/// Another querier that is in charge, known from its queries.
#[derive(Clone, Copy, Debug)]
struct Other {
    address: IpAddr,
    at: Location,
    /// The end of its other querier present interval (RFC 3376, 8.5).
    until: Instant,
    /// The group membership interval by the querier's times, or ours if that is longer.
    membership_interval: Duration,
}

impl Membership {
    /// Starts our querier in a VLAN, or stops it.
    pub fn set_querier(&mut self, now: Instant, vlan: VlanId, addresses: QuerierAddresses) {
        self.due(now);
        let addresses = [
            (Family::Ipv4, addresses.ipv4.map(IpAddr::from)),
            (Family::Ipv6, addresses.ipv6.map(IpAddr::from)),
        ];
        for (family, address) in addresses {
            let key = (vlan, family);
            let own = self.networks.get(&key).and_then(|it| it.own);
            if own.map(|own| own.address) == address {
                continue;
            }
            self.stop_own(key);
            let network = self.networks.entry(key).or_default();
            network.own = address.map(|address| Own {
                address,
                startup_count: 0,
                next: None,
            });
            // A querier with a higher address than ours is no longer in charge.
            if let Some(other) = network.other.filter(|it| address < Some(it.address))
                && address.is_some()
            {
                network.other = None;
                self.timers.remove(&(other.until, Timer::OtherQuerier(key)));
            }
            self.start_own(now, key);
        }
    }

    /// The querier of a VLAN in one family.
    pub fn querier(&self, vlan: VlanId, family: Family) -> Querier {
        let network = self.networks.get(&(vlan, family));
        match network.map(|network| (network.other, network.own)) {
            Some((Some(Other { address, at, .. }), _)) => Querier::Other { address, at },
            Some((None, Some(_))) => Querier::Own,
            _ => Querier::Absent,
        }
    }

    /// The time that a membership lasts after a report.
    pub(super) fn membership_interval(&self, key: NetworkKey) -> Duration {
        let other = self.networks.get(&key).and_then(|it| it.other);
        let own = self.config.membership_interval();
        other.map_or(own, |other| other.membership_interval)
    }

    /// Handles a query. A query for one group does not make its sender the querier, because not all
    /// hosts answer it.
    pub(super) fn query(
        &mut self,
        now: Instant,
        vlan: VlanId,
        at: Location,
        from: IpAddr,
        query: &Query,
    ) {
        // RFC 4541, 2.1.1: such a query is from a switch without an address, not from a router.
        if from.is_unspecified() {
            return;
        }
        let config = self.config;
        let stated = query.extended.filter(|it| !it.interval.is_zero());
        let interval = stated.map_or(config.query_interval, |it| it.interval);
        let stated = query.extended.filter(|it| it.robustness > 0);
        let robustness = stated.map_or(config.robustness, |it| it.robustness);
        let response = query.response_max;
        if interval * u32::from(robustness) + response > config.silence_max {
            self.refused.queries += 1;
            return;
        }
        // A hostile querier must not make memberships shorter than ours does.
        let silence = interval.max(config.query_interval)
            * u32::from(robustness.max(config.robustness))
            + response.max(config.response_interval);
        let answered = now + response + TRANSIT;
        let until = (now + (silence - response.max(config.response_interval) / 2)).max(answered);
        let key = (vlan, Family::new(from));
        if !self.router(key, at, until) || !query.group.is_unspecified() {
            return;
        }
        let network = self.networks.entry(key).or_default();
        let is_lower = network.other.is_none_or(|other| from <= other.address)
            && network.own.is_none_or(|own| from < own.address);
        if is_lower {
            let before = network.other.replace(Other {
                address: from,
                at,
                until,
                membership_interval: silence,
            });
            if let Some(before) = before {
                self.timers
                    .remove(&(before.until, Timer::OtherQuerier(key)));
            }
            self.timers.insert((until, Timer::OtherQuerier(key)));
            self.stop_own(key);
            self.hold(key, answered);
        }
    }

    /// Keeps all memberships until this time at least.
    fn hold(&mut self, key: NetworkKey, until: Instant) {
        let held_until = &mut self.networks.entry(key).or_default().held_until;
        let until = held_until.map_or(until, |before| before.max(until));
        if let Some(before) = held_until.replace(until) {
            self.timers.remove(&(before, Timer::Held(key)));
        }
        self.timers.insert((until, Timer::Held(key)));
    }

    pub(super) fn hold_ends(&mut self, now: Instant, key: NetworkKey) {
        if let Some(network) = self.networks.get_mut(&key) {
            network.held_until = None;
        }
        self.start_own(now, key);
    }

    /// Ends the other querier, which has been silent for too long.
    pub(super) fn other_querier_ends(&mut self, now: Instant, key: NetworkKey) {
        if let Some(network) = self.networks.get_mut(&key) {
            network.other = None;
        }
        self.start_own(now, key);
    }

    /// Ends the other querier if it was behind this port, which is gone.
    pub(super) fn querier_is_gone(&mut self, now: Instant, key: NetworkKey, at: Location) {
        let other = self.networks.get(&key).and_then(|it| it.other);
        if let Some(other) = other.filter(|it| it.at == at) {
            self.timers.remove(&(other.until, Timer::OtherQuerier(key)));
            self.other_querier_ends(now, key);
        }
    }

    /// Sends a general query, and sets the time of the next one.
    pub(super) fn own_query(&mut self, now: Instant, key: NetworkKey) {
        let config = self.config;
        let Some(network) = self.networks.get_mut(&key) else {
            return;
        };
        let Some(own) = network.own.as_mut() else {
            return;
        };
        let interval = match own.startup_count {
            0 => config.query_interval,
            _ => config.query_interval / 4,
        };
        own.startup_count = own.startup_count.saturating_sub(1);
        let next = now + interval.max(TRANSIT);
        own.next = Some(next);
        let answered = now + config.response_interval + TRANSIT;
        self.timers.insert((next, Timer::OwnQuery(key)));
        self.hold(key, answered);
        let (vlan, family) = key;
        let query = self.own_words(family.unspecified(), config.response_interval);
        let to = None;
        self.outputs.push_back(Output::Ask { vlan, to, query });
    }

    /// Queries the hosts of a port that packets have only now reached, if our querier is active in
    /// this VLAN: they have received no query, and receive nothing before they answer one.
    pub fn ask_port(&mut self, vlan: VlanId, at: Location) {
        for family in [Family::Ipv4, Family::Ipv6] {
            let own = self.networks.get(&(vlan, family)).and_then(|it| it.own);
            if own.is_some_and(|own| own.next.is_some()) {
                let query = self.own_words(family.unspecified(), PORT_RESPONSE);
                let to = Some(at);
                self.outputs.push_back(Output::Ask { vlan, to, query });
            }
        }
    }

    /// Starts our querier if there is no other. Forgets the VLAN if it has no querier at all and no
    /// query is pending.
    fn start_own(&mut self, now: Instant, key: NetworkKey) {
        let Some(network) = self.networks.get_mut(&key) else {
            return;
        };
        match (&mut network.own, network.other) {
            (Some(own), None) if own.next.is_none() => {
                own.startup_count = self.config.robustness.saturating_sub(1);
                self.own_query(now, key);
            }
            (None, None) if network.held_until.is_none() => drop(self.networks.remove(&key)),
            _ => {}
        }
    }

    fn stop_own(&mut self, key: NetworkKey) {
        let own = self.networks.get_mut(&key).and_then(|it| it.own.as_mut());
        if let Some(next) = own.and_then(|own| own.next.take()) {
            self.timers.remove(&(next, Timer::OwnQuery(key)));
        }
    }
}

#[cfg(test)]
impl Network {
    /// The number of timers set for this network.
    pub(super) fn timers(&self) -> usize {
        let own = self.own.and_then(|own| own.next);
        [
            own.is_some(),
            self.other.is_some(),
            self.held_until.is_some(),
        ]
        .into_iter()
        .filter(|is_set| *is_set)
        .count()
    }
}
