//! The parts of the network: switches connected through links are in one part.
//!
//! The controller could carry packets from one part to another: up at one switch, down at the
//! other. It would be the bottleneck for all these packets, and a cut cable would show only in
//! their speed. So it drops such packets once the parts have stayed the same for a while: until
//! then a link may only not have been found yet.
//!
//! Not everything between two switches is a link. A switch that is not ours carries broadcasts from
//! one edge port to another: a broadcast sent by the controller arrives again elsewhere. A switch
//! of ours that has lost its controller still forwards. Parts connected by either count as one, and
//! the controller carries packets between them.

use std::collections::{BTreeMap, BTreeSet};

use clock::{Duration, Instant};
use openflow::DatapathId;

use crate::Location;

use super::network::{ADOPTED_KEPT, Network};
use super::port_state::PortRole;
use super::{Controller, Event, Timer};

/// How long parts stay the same before the controller carries nothing between them. Switches that
/// have just connected have [`ADOPTED_KEPT`]: others may still connect.
pub(super) const QUIET: Duration = Duration::from_secs(5);

/// Links that appear and disappear within this time are one change.
const GATHER: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Parts {
    /// The part of each switch, by its first switch.
    of: BTreeMap<DatapathId, DatapathId>,
    parts: BTreeMap<DatapathId, Part>,
    /// The switch behind a port without a link: the source of broadcasts received there, or a lost
    /// switch.
    behind: BTreeMap<Location, DatapathId>,
    /// The parts of the last event; none if the network was whole.
    told: BTreeSet<DatapathId>,
    is_pending: bool,
}

struct Part {
    size: usize,
    /// When its switches will have been the same for long enough. `None`: they are changing.
    settled_at: Option<Instant>,
}

impl Parts {
    /// Whether there is certainly no path between two switches.
    pub(super) fn are_apart(&self, now: Instant, a: DatapathId, b: DatapathId) -> bool {
        if self.parts.len() < 2 {
            return false;
        }
        let part = |dpid| self.of.get(&dpid).copied();
        let is_settled = |first| {
            let part = self.parts.get(&first);
            let settled_at = part.and_then(|part| part.settled_at);
            settled_at.is_some_and(|at| at <= now)
        };
        match (part(a), part(b)) {
            (Some(a), Some(b)) => a != b && is_settled(a) && is_settled(b),
            _ => false,
        }
    }

    /// Notes that there may be a path between two switches, before their parts are computed anew.
    fn touch(&mut self, ends: [DatapathId; 2]) {
        let firsts = ends.map(|dpid| self.of.get(&dpid));
        if firsts[0] == firsts[1] {
            return;
        }
        for first in firsts.into_iter().flatten() {
            if let Some(part) = self.parts.get_mut(first) {
                part.settled_at = None;
            }
        }
    }

    /// Whether something other than a link is known to be behind a port.
    pub(super) fn is_behind(&self, at: Location) -> bool {
        self.behind.contains_key(&at)
    }

    /// Notes the switch behind a port without a link. Returns whether that is new. If several
    /// switches are behind one port, any of them serves.
    fn note_behind(&mut self, at: Location, dpid: DatapathId) -> bool {
        let is_one = self.of.get(&at.dpid) == self.of.get(&dpid);
        let is_known = self.behind.contains_key(&at) && is_one;
        !is_known && self.behind.insert(at, dpid) != Some(dpid)
    }
}

impl Network {
    /// Computes the parts anew.
    fn update_parts(&mut self, now: Instant) {
        let mut behind = std::mem::take(&mut self.parts.behind);
        behind.retain(|at, dpid| match self.role(*at) {
            PortRole::Edge => self.knows(*dpid),
            PortRole::Silent => !self.knows(*dpid),
            _ => false,
        });
        let mut beyond: BTreeMap<DatapathId, Vec<DatapathId>> = BTreeMap::new();
        for (at, dpid) in &behind {
            beyond.entry(at.dpid).or_default().push(*dpid);
            beyond.entry(*dpid).or_default().push(at.dpid);
        }
        let (mut of, mut parts) = (BTreeMap::new(), BTreeMap::new());
        for first in self.switches().map(|switch| switch.dpid) {
            if of.contains_key(&first) {
                continue;
            }
            let (mut members, mut next) = (BTreeSet::from([first]), vec![first]);
            while let Some(at) = next.pop() {
                let linked = self.links.from(at).map(|(_, to, _)| to.dpid);
                let others = beyond.get(&at).into_iter().flatten().copied();
                next.extend(linked.chain(others).filter(|to| members.insert(*to)));
            }
            members.retain(|dpid| self.knows(*dpid));
            let part = Part {
                size: members.len(),
                settled_at: self.settled_at(now, &members),
            };
            parts.insert(first, part);
            of.extend(members.into_iter().map(|dpid| (dpid, first)));
        }
        (self.parts.of, self.parts.parts, self.parts.behind) = (of, parts, behind);
    }

    /// When the switches of a present part will have been one part for long enough.
    fn settled_at(&self, now: Instant, members: &BTreeSet<DatapathId>) -> Option<Instant> {
        let former: BTreeSet<_> = members.iter().map(|dpid| self.parts.of.get(dpid)).collect();
        let quiet = now + QUIET;
        let former = match former.first() {
            Some(Some(first)) if former.len() == 1 => self.parts.parts.get(first),
            _ => None,
        };
        match former {
            Some(same) if same.size == members.len() && same.settled_at.is_some() => {
                same.settled_at
            }
            // It was a part of what was found.
            Some(_) => Some(quiet),
            None => {
                let switches = members.iter().filter_map(|dpid| self.switch(*dpid));
                let ups = switches.map(|switch| switch.up_since + ADOPTED_KEPT);
                ups.max().map(|at| at.max(quiet))
            }
        }
    }
}

impl Controller {
    /// Schedules the computation of the parts, after a link or a switch was added or removed.
    pub(super) fn parts_soon(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.network.parts.is_pending, true) {
            self.outbox.timer(now + GATHER, Timer::Parts);
        }
    }

    /// Sets the timer again when it is unknown whether it is still set.
    pub(super) fn parts_again(&mut self, now: Instant) {
        self.network.parts.is_pending = false;
        self.parts_soon(now);
    }

    /// Notes a new link. From now on packets between its ends may pass.
    pub(super) fn join_parts(&mut self, now: Instant, ends: [Location; 2]) {
        self.network.parts.touch(ends.map(|end| end.dpid));
        self.parts_soon(now);
    }

    /// Notes that a broadcast from one edge port has arrived at another: something other than a
    /// link carries it.
    pub(super) fn note_hidden_way(&mut self, now: Instant, from: Location, to: Location) {
        if from.dpid != to.dpid && self.network.parts.note_behind(to, from.dpid) {
            self.join_parts(now, [from, to]);
        }
    }

    /// Notes the ports that led to a lost switch. The switch may still forward.
    pub(super) fn note_lost_switch(&mut self, dpid: DatapathId, links: &[(Location, Location)]) {
        for (from, to) in links.iter().filter(|(from, _)| from.dpid != dpid) {
            self.network.parts.note_behind(*from, to.dpid);
        }
    }

    pub(super) fn parts_due(&mut self, now: Instant) {
        if std::mem::take(&mut self.network.parts.is_pending) {
            self.network.update_parts(now);
        }
        let parts = &mut self.network.parts;
        let settled = parts.parts.iter();
        let settled = settled.filter_map(|(first, part)| Some((*first, part.settled_at?)));
        let (apart, others): (Vec<_>, Vec<_>) = settled.partition(|(_, at)| *at <= now);
        if let Some(next) = others.iter().map(|(_, at)| *at).min() {
            self.outbox.timer(next, Timer::Parts);
        }
        let apart: BTreeSet<DatapathId> = apart.into_iter().map(|(first, _)| first).collect();
        let count = parts.parts.len();
        if count < 2 {
            if !std::mem::take(&mut parts.told).is_empty() {
                self.outbox.event(Event::NoWayMended);
            }
        } else if apart.len() >= 2 {
            let new = apart.difference(&parts.told).last().copied();
            let from = apart.iter().copied().find(|first| Some(*first) != new);
            if let (Some(from), Some(to)) = (from, new) {
                let parts = count;
                self.outbox.event(Event::NoWay { from, to, parts });
            }
            parts.told = apart;
        }
    }

    /// Whether there is certainly no path from one switch to another for a packet. If so, the
    /// packet is counted, and the caller drops it.
    pub(super) fn has_no_way(&mut self, from: DatapathId, to: DatapathId) -> bool {
        let is_apart = self.network.parts.are_apart(self.outbox.now, from, to);
        self.outbox.counters.packets_no_way += u64::from(is_apart);
        is_apart
    }
}
