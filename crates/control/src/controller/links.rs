//! Links as discovered, and shortest paths over them.
//!
//! A link is directed: LLDP left `from` and came in at `to`. Paths use a link only when its
//! reverse is there as well, since a cable with one dead fibre would swallow every answer. A port
//! with a link in either direction is no edge.
//!
//! A link that an administrator drains, or that is in doubt, is used only where there is no other
//! path: it counts as very many hops.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use clock::{Duration, Instant};
use openflow::{DatapathId, PortNo};

use super::Location;
use super::port_state::Ends;

#[derive(Default)]
pub(super) struct Links {
    /// By the port that LLDP left and the one where it came in.
    proofs: BTreeMap<(Location, Location), Proof>,
    /// Ports with a link or a claim in either direction, and how many.
    ends: BTreeMap<Location, Ends>,
    neighbours: BTreeMap<DatapathId, Vec<Neighbour>>,
    drained: Drained,
    /// Ports that had hosts and are ends of links since, and how long that is held against them.
    doubted: BTreeMap<Location, Instant>,
    /// Another for every change of `ends`.
    revision: u64,
}

/// That LLDP passes from one port to another, and how well.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proof {
    /// Otherwise it is a claim: the ports are no edges, and no path leads here.
    pub is_link: bool,
    /// When the latest that arrived was sent.
    pub heard: Instant,
    /// Frames that arrived one after the other, none of them lost between.
    pub in_a_row: u32,
    /// Since then it has passed and no host was heard at either end.
    pub quiet_since: Instant,
    /// The least that it took longer than the control paths of both switches.
    pub excess: Option<Duration>,
}

/// One LLDP frame that has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub sent_at: Instant,
    /// None between it and the one that arrived before was lost.
    pub is_next: bool,
    pub excess: Option<Duration>,
}

#[derive(Debug, Default)]
pub(super) struct Removed {
    pub links: Vec<(Location, Location)>,
    pub claims: Vec<(Location, Location)>,
}

/// Switches and links that shall carry nothing that can go another way. A link is named by a port
/// at either end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    pub switches: BTreeSet<DatapathId>,
    pub links: BTreeSet<Location>,
    /// For so long a pair's path waits for a pause of its packets, in which nothing can be
    /// overtaken; then it moves under traffic. Less than a second is no wait at all.
    pub wait: Duration,
}

/// Hops that a link counts as which is drained or in doubt: more than any path has.
const SHUNNED_HOPS: u32 = 1 << 16;

/// Ports in doubt. Of one more, the one whose doubt would end first is forgotten.
const DOUBTED_MAX: usize = 65_536;

impl Drained {
    fn is_hit(&self, at: Location) -> bool {
        self.switches.contains(&at.dpid) || self.links.contains(&at)
    }
}

/// A usable way from one switch to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Neighbour {
    dpid: DatapathId,
    out_port: PortNo,
    in_port: PortNo,
}

/// One switch of a path: in here, out there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hop {
    pub dpid: DatapathId,
    pub in_port: PortNo,
    pub out_port: PortNo,
}

/// Hops from each switch to one destination.
pub(super) type Distances = BTreeMap<DatapathId, u32>;

impl Links {
    /// Notes that LLDP went through, and since when it does: a claim, until it is a link.
    pub(super) fn note(
        &mut self,
        now: Instant,
        (from, to): (Location, Location),
        heard: Heard,
    ) -> &mut Proof {
        let fresh = || Proof {
            is_link: false,
            heard: heard.sent_at,
            in_a_row: 0,
            quiet_since: now,
            excess: None,
        };
        let (ends, revision) = (&mut self.ends, &mut self.revision);
        let proof = self.proofs.entry((from, to)).or_insert_with(|| {
            *revision += 1;
            for end in [from, to] {
                ends.entry(end).or_default().claims += 1;
            }
            fresh()
        });
        proof.heard = proof.heard.max(heard.sent_at);
        proof.in_a_row = if heard.is_next { proof.in_a_row + 1 } else { 1 };
        let least = |excess: Duration| proof.excess.map_or(excess, |least| least.min(excess));
        proof.excess = heard.excess.map(least).or(proof.excess);
        proof
    }

    /// A claim is believed.
    pub(super) fn establish(&mut self, from: Location, to: Location) {
        let Some(proof) = self.proofs.get_mut(&(from, to)).filter(|p| !p.is_link) else {
            return;
        };
        proof.is_link = true;
        self.revision += 1;
        for end in [from, to] {
            let ends = self.ends.entry(end).or_default();
            ends.claims -= 1;
            ends.links += 1;
        }
        if self.is_link(to, from) {
            self.set_usable(from, to);
            self.set_usable(to, from);
        }
    }

    pub(super) fn is_link(&self, from: Location, to: Location) -> bool {
        self.proofs.get(&(from, to)).is_some_and(|p| p.is_link)
    }

    /// Links and claims out of `from`.
    pub(super) fn proofs_from(&self, from: Location) -> impl Iterator<Item = (Location, &Proof)> {
        let range = self.proofs.range(links_from(from));
        range.map(|((_, to), proof)| (*to, proof))
    }

    pub(super) fn proof(&self, from: Location, to: Location) -> Option<&Proof> {
        self.proofs.get(&(from, to))
    }

    /// A host was heard at an end of what is only a claim: its quiet begins again.
    pub(super) fn disturb(&mut self, now: Instant, at: Location) {
        let claims = self.proofs.iter_mut();
        let claims = claims.filter(|((a, b), proof)| !proof.is_link && (*a == at || *b == at));
        claims.for_each(|(_, proof)| proof.quiet_since = now);
    }

    /// Takes out these, and every link and claim that touches a port for which `touches` holds.
    pub(super) fn remove_where(&mut self, touches: impl Fn(Location) -> bool) -> Removed {
        let links = self.proofs.keys().copied();
        let gone: Vec<_> = links.filter(|(a, b)| touches(*a) || touches(*b)).collect();
        self.remove(&gone)
    }

    pub(super) fn remove(&mut self, gone: &[(Location, Location)]) -> Removed {
        self.revision += u64::from(!gone.is_empty());
        let mut removed = Removed::default();
        for (from, to) in gone.iter().copied() {
            let Some(proof) = self.proofs.remove(&(from, to)) else {
                continue;
            };
            if proof.is_link {
                self.set_unusable(from, to);
                self.set_unusable(to, from);
                removed.links.push((from, to));
            } else {
                removed.claims.push((from, to));
            }
            for end in [from, to] {
                if let Some(ends) = self.ends.get_mut(&end) {
                    ends.links -= u32::from(proof.is_link);
                    ends.claims -= u32::from(!proof.is_link);
                    if *ends == Ends::default() {
                        self.ends.remove(&end);
                    }
                }
            }
        }
        removed
    }

    /// One direction of a link whose other direction is there.
    fn set_usable(&mut self, from: Location, to: Location) {
        let neighbour = Neighbour {
            dpid: to.dpid,
            out_port: from.port,
            in_port: to.port,
        };
        // Sorted, so that paths do not depend on the order in which links were found.
        let neighbours = self.neighbours.entry(from.dpid).or_default();
        if let Err(at) = neighbours.binary_search(&neighbour) {
            neighbours.insert(at, neighbour);
        }
    }

    fn set_unusable(&mut self, from: Location, to: Location) {
        if let Some(neighbours) = self.neighbours.get_mut(&from.dpid) {
            let is_it =
                |n: &Neighbour| (n.dpid, n.out_port, n.in_port) == (to.dpid, from.port, to.port);
            neighbours.retain(|n| !is_it(n));
        }
    }

    /// Whether that changes anything.
    pub(super) fn set_drained(&mut self, drained: Drained) -> bool {
        let is_new = self.drained != drained;
        self.drained = drained;
        is_new
    }

    /// How long a path that uses them waits for a pause.
    pub(super) fn drain_wait(&self) -> Duration {
        self.drained.wait
    }

    /// Whether a path uses a link that is to carry nothing.
    pub(super) fn is_drained(&self, hops: &[Hop]) -> bool {
        hops.iter().any(|hop| {
            let out = Location {
                dpid: hop.dpid,
                port: hop.out_port,
            };
            let peer = self.peer(out);
            peer.is_some_and(|peer| self.is_shunned(out) || self.is_shunned(peer))
        })
    }

    /// The link at these ports is to carry only what has no other way, until then.
    pub(super) fn doubt(&mut self, ends: [Location; 2], until: Instant) {
        for end in ends {
            if self.doubted.len() >= DOUBTED_MAX && !self.doubted.contains_key(&end) {
                let first = self.doubted.iter().min_by_key(|(_, until)| **until);
                let first = first.map(|(end, _)| *end);
                first.and_then(|first| self.doubted.remove(&first));
            }
            self.doubted.insert(end, until);
        }
    }

    /// Doubts a link no more. Whether it was in doubt.
    pub(super) fn trust(&mut self, ends: [Location; 2]) -> bool {
        let trusted = ends.map(|end| self.doubted.remove(&end).is_some());
        trusted.contains(&true)
    }

    /// Whether a doubt about this port has ended by now.
    pub(super) fn end_doubt(&mut self, now: Instant, end: Location) -> bool {
        let is_over = self.doubted.get(&end).is_some_and(|until| *until <= now);
        is_over && self.doubted.remove(&end).is_some()
    }

    pub(super) fn has_doubts(&self) -> bool {
        !self.doubted.is_empty()
    }

    fn is_shunned(&self, end: Location) -> bool {
        self.drained.is_hit(end) || self.doubted.contains_key(&end)
    }

    /// Whether a shortest way leads out of this port.
    pub(super) fn is_shortest(&self, from: Location, distances: &Distances) -> bool {
        let links = self.neighbours.get(&from.dpid).into_iter().flatten();
        let mut links = links.filter(|link| link.out_port == from.port);
        links.any(|link| self.leads_nearer(from.dpid, link, distances))
    }

    fn leads_nearer(&self, from: DatapathId, link: &Neighbour, distances: &Distances) -> bool {
        let (here, there) = (distances.get(&from), distances.get(&link.dpid));
        let through = there.map(|there| there + self.hops(from, link));
        through.is_some() && through.as_ref() == here
    }

    fn hops(&self, from: DatapathId, link: &Neighbour) -> u32 {
        let end = |dpid, port| self.is_shunned(Location { dpid, port });
        match end(from, link.out_port) || end(link.dpid, link.in_port) {
            true => SHUNNED_HOPS,
            false => 1,
        }
    }

    /// Another whenever ports with a link may be others.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn ends(&self, at: Location) -> Ends {
        self.ends.get(&at).copied().unwrap_or_default()
    }

    /// Every direction of a link, without what is only claimed.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Location, Location)> + '_ {
        let links = self.proofs.iter().filter(|(_, proof)| proof.is_link);
        links.map(|(link, _)| *link)
    }

    /// Where a usable link out of `from` leads.
    pub(super) fn peer(&self, from: Location) -> Option<Location> {
        let neighbours = self.neighbours.get(&from.dpid)?;
        let found = neighbours.iter().find(|n| n.out_port == from.port)?;
        Some(Location {
            dpid: found.dpid,
            port: found.in_port,
        })
    }

    /// Ports of `dpid` with a usable link.
    pub(super) fn ports(&self, dpid: DatapathId) -> impl Iterator<Item = PortNo> + '_ {
        self.neighbours
            .get(&dpid)
            .into_iter()
            .flatten()
            .map(|n| n.out_port)
    }

    /// Hops to `to` from every switch that reaches it through switches for which `usable` holds.
    pub(super) fn distances(
        &self,
        to: DatapathId,
        usable: impl Fn(DatapathId) -> bool,
    ) -> Distances {
        // Links are used only when both directions are there, so this search may go backwards.
        let mut distances = Distances::from([(to, 0)]);
        let mut queue = BinaryHeap::from([Reverse((0, to))]);
        while let Some(Reverse((distance, at))) = queue.pop() {
            if distances[&at] < distance {
                continue;
            }
            for neighbour in self.neighbours.get(&at).into_iter().flatten() {
                let next = distance + self.hops(at, neighbour);
                let known = distances.get(&neighbour.dpid);
                if usable(neighbour.dpid) && known.is_none_or(|known| next < *known) {
                    distances.insert(neighbour.dpid, next);
                    queue.push(Reverse((next, neighbour.dpid)));
                }
            }
        }
        distances
    }

    /// The way out of `from` that is a shortest one; `hash` chooses among equals.
    fn next(&self, from: DatapathId, distances: &Distances, hash: u64) -> Option<Neighbour> {
        let is_nearer = |link: &&Neighbour| self.leads_nearer(from, link, distances);
        let neighbours = self.neighbours.get(&from)?;
        let equals = neighbours.iter().filter(is_nearer).count() as u64;
        let chosen = hash.checked_rem(equals)?;
        neighbours
            .iter()
            .filter(is_nearer)
            .nth(chosen as usize)
            .copied()
    }

    pub(super) fn next_port(
        &self,
        from: DatapathId,
        distances: &Distances,
        hash: u64,
    ) -> Option<PortNo> {
        self.next(from, distances, hash).map(|n| n.out_port)
    }

    /// A shortest path from port to port, ends included.
    pub(super) fn path(
        &self,
        from: Location,
        to: Location,
        distances: &Distances,
        hash: u64,
    ) -> Option<Vec<Hop>> {
        let (mut dpid, mut in_port) = (from.dpid, from.port);
        let mut hops = Vec::new();
        while dpid != to.dpid {
            let next = self.next(dpid, distances, hash)?;
            let out_port = next.out_port;
            hops.push(Hop {
                dpid,
                in_port,
                out_port,
            });
            (dpid, in_port) = (next.dpid, next.in_port);
        }
        let out_port = to.port;
        hops.push(Hop {
            dpid,
            in_port,
            out_port,
        });
        Some(hops)
    }
}

fn links_from(from: Location) -> std::ops::RangeInclusive<(Location, Location)> {
    let end = |dpid, port| Location {
        dpid: DatapathId(dpid),
        port: PortNo(port),
    };
    (from, end(0, 0))..=(from, end(u64::MAX, u32::MAX))
}
