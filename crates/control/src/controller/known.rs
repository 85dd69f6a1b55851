//! Hosts and links for other members of a cluster: their changes, and another member's knowledge of
//! them.
//!
//! A host that another member reports has its place, but was not heard. Moves, silence and ports
//! that go down follow the rules for a host that only an entry names. A switch that connects
//! without the host's port, or with the port down, ends that. A link that another member reports
//! becomes a link when both its switches have connected and nothing they report contradicts it.
//! From then on lost LLDP ends it like any other link.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use clock::Instant;
use openflow::{DatapathId, PortNo};

use crate::Location;
use crate::vlan::{HostKey, VlanId};

use super::Controller;
use super::hosts::Hosts;
use super::vlans::hosts_of;

/// A direction of a link.
pub type Link = (Location, Location);

/// The known facts of a host that has a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownHost {
    pub at: Location,
    /// Whether it has reported that it is not a router.
    pub is_no_router: bool,
    /// The addresses that it owns; the address announced last is the last.
    pub ips: Vec<IpAddr>,
}

/// The ports that have certainly no switch behind them, and the links in both directions, as a
/// controller knew them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    pub edges: BTreeMap<DatapathId, BTreeSet<PortNo>>,
    pub links: BTreeSet<Link>,
}

/// Hosts or links that may have changed, if changes are wanted.
pub(crate) struct News<K> {
    keys: Option<Vec<K>>,
    /// Whether there were too many.
    has_lost: bool,
}

/// Number of hosts examined in the time that it takes to forget one.
const FORGETTING: usize = 16;

/// Maximum number of changes that wait to be taken, for each VLAN.
const NEWS_MAX: usize = 65_536;

impl<K> Default for News<K> {
    fn default() -> News<K> {
        News {
            keys: None,
            has_lost: false,
        }
    }
}

impl<K> News<K> {
    pub(super) fn want(&mut self) {
        self.keys.get_or_insert_default();
    }

    pub(super) fn note(&mut self, key: K) {
        match &mut self.keys {
            Some(keys) if keys.len() < NEWS_MAX => keys.push(key),
            Some(_) => self.has_lost = true,
            None => {}
        }
    }

    /// Passes the changes since the last call to `each`. Returns whether these are all.
    pub(super) fn take(&mut self, mut each: impl FnMut(K)) -> bool {
        if let Some(keys) = &mut self.keys {
            keys.drain(..).for_each(&mut each);
        }
        !std::mem::take(&mut self.has_lost)
    }
}

/// A position among all hosts, from the last host of the last VLAN to the first. A removed host
/// leaves its number to the last host, which was visited already. A new host gets a number that was
/// visited already. So no host that stays is missed.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostCursor {
    /// The current VLAN, and the number of its hosts that are left; `None` before the first.
    at: Option<(VlanId, usize)>,
}

impl Controller {
    /// Records from now on which hosts and links change.
    pub(crate) fn want_news(&mut self) {
        self.network.links.want_news();
        self.wants_news = true;
        self.hosts.want_news();
        self.vlan_hosts.values_mut().for_each(Hosts::want_news);
    }

    /// Passes on the hosts and links that may have changed since the last call. Returns whether
    /// these are all: of too many, some are forgotten.
    pub(crate) fn take_news(
        &mut self,
        mut host: impl FnMut(HostKey),
        link: impl FnMut(Link),
    ) -> bool {
        let mut has_all = self.network.links.take_news(link);
        let of_vlans = self.vlan_hosts.iter_mut();
        let untagged = std::iter::once((&VlanId::NONE, &mut self.hosts));
        for (vlan, hosts) in untagged.chain(of_vlans) {
            let vlan = *vlan;
            has_all &= hosts.take_news(|mac| host(HostKey { vlan, mac }));
        }
        has_all
    }

    /// The known facts of a host; `None` if it is unknown or has no place.
    pub(crate) fn known_host(&self, host: HostKey) -> Option<KnownHost> {
        match host.vlan.is_none() {
            true => self.hosts.known(host.mac),
            false => self.vlan_hosts.get(&host.vlan)?.known(host.mac),
        }
    }

    pub(crate) fn has_link(&self, (from, to): Link) -> bool {
        self.network.links.is_link(from, to)
    }

    /// The links after this one, in order.
    pub(crate) fn links_after(&self, after: Option<Link>) -> impl Iterator<Item = Link> {
        self.network.links.after(after)
    }

    /// Moves to the next host number. Returns the host if it has a place; the outer `None` is the
    /// end.
    pub(crate) fn next_host(&self, cursor: &mut HostCursor) -> Option<Option<HostKey>> {
        loop {
            let (vlan, left) = match cursor.at {
                Some(at) => at,
                None => self.all_hosts().last().map(|(v, hosts)| (v, hosts.len()))?,
            };
            let hosts = self.hosts_in(vlan);
            let left = left.min(hosts.map_or(0, Hosts::len));
            if let (Some(hosts), Some(number)) = (hosts, left.checked_sub(1)) {
                cursor.at = Some((vlan, number));
                let placed = hosts.placed_in(number..left).next();
                return Some(placed.map(|(mac, _)| HostKey { vlan, mac }));
            }
            if vlan.is_none() {
                cursor.at = Some((vlan, 0));
                return None;
            }
            let before = self.vlan_hosts.range(..vlan).next_back();
            cursor.at = Some(match before {
                Some((vlan, hosts)) => (*vlan, hosts.len()),
                None => (VlanId::NONE, self.hosts.len()),
            });
        }
    }

    pub(super) fn hosts_in(&self, vlan: VlanId) -> Option<&Hosts> {
        match vlan.is_none() {
            true => Some(&self.hosts),
            false => self.vlan_hosts.get(&vlan),
        }
    }

    /// Takes over another member's knowledge of a host, and marks the host. Forgets it if the
    /// member does not know it. Returns false if there is no such VLAN, or no room.
    pub(crate) fn learn_host(
        &mut self,
        now: Instant,
        host: HostKey,
        known: Option<&KnownHost>,
    ) -> bool {
        self.outbox.now = now;
        let Some(hosts) = hosts_of!(self, host.vlan) else {
            return false;
        };
        let Some(known) = known else {
            hosts.unlearn(now, host.mac);
            return true;
        };
        let has_room = hosts.learn(now, host.mac, known);
        self.age_soon(now);
        has_room
    }

    /// Carries out the consequences of hosts of a VLAN that were learned or forgotten.
    pub(crate) fn settle_learned(&mut self, now: Instant, vlan: VlanId) {
        self.outbox.now = now;
        self.tell_forgotten(now, vlan);
    }

    /// Takes the marks off the next `count_max` hosts. Returns whether there are more.
    pub(crate) fn unmark_hosts(&mut self, cursor: &mut HostCursor, count_max: usize) -> bool {
        for _ in 0..count_max {
            if self.next_host(cursor).is_none() {
                return false;
            }
            if let Some((vlan, number)) = cursor.at
                && let Some(hosts) = hosts_of!(self, vlan)
            {
                hosts.unmark(number);
            }
        }
        true
    }

    /// Forgets hosts without a mark among the next `count_max`, or among fewer if many are
    /// forgotten. Returns whether there are more.
    pub(crate) fn sweep_hosts(
        &mut self,
        now: Instant,
        cursor: &mut HostCursor,
        count_max: usize,
    ) -> bool {
        self.outbox.now = now;
        let mut left = count_max;
        while left > 0 {
            if self.next_host(cursor).is_none() {
                return false;
            }
            let Some((vlan, number)) = cursor.at else {
                return false;
            };
            let forgets = hosts_of!(self, vlan).is_some_and(|hosts| {
                let unmarked = hosts.unmarked(number);
                unmarked.map(|mac| hosts.unlearn(now, mac)).is_some()
            });
            if forgets {
                self.tell_forgotten(now, vlan);
            }
            left = left.saturating_sub(if forgets { FORGETTING } else { 1 });
        }
        true
    }

    /// The edges and links of connected switches, for a controller that is about to take over.
    pub fn shape(&self) -> Shape {
        let edges = self.edges_after(None, usize::MAX);
        let links = self.links().into_iter();
        Shape {
            edges: edges
                .map(|(dpid, ports)| (dpid, ports.into_iter().collect()))
                .collect(),
            links: links.map(|link| (link.from, link.to)).collect(),
        }
    }

    /// Uses edges and links that another controller knew until now, for switches that connect
    /// within ten seconds: without a hold of their ports, and before LLDP shows them again.
    pub fn expect(&mut self, now: Instant, shape: Shape) {
        for (dpid, ports) in shape.edges {
            self.expect_edges(now, dpid, ports);
        }
        self.expect_links(now, shape.links);
    }

    /// Uses these links, which another member knew until now, once their switches have connected.
    pub(crate) fn expect_links(&mut self, now: Instant, links: BTreeSet<Link>) {
        self.discovery.expect_links(now, links);
    }

    /// Establishes the links that are expected at a switch and that nothing contradicts.
    pub(super) fn settle_links(&mut self, now: Instant, dpid: DatapathId) {
        let links = self.discovery.settle_links(&mut self.network, now, dpid);
        for (from, to) in links {
            self.link_up(now, from, to);
        }
    }

    /// Forgets that hosts are behind ports that a switch does not have, or that are down.
    pub(super) fn refute_hosts(&mut self, now: Instant, dpid: DatapathId) {
        for at in self.crowds.ports_of(dpid) {
            let is_open = self.outbox.bonds.contains(at) || self.network.is_up(at);
            if !is_open && self.all_hosts().any(|(_, hosts)| hosts.has_place(at)) {
                self.lose(now, at, true);
            }
        }
    }
}

#[cfg(test)]
mod tests;
