//! The links that discovery has found, and shortest paths over them.
//!
//! A link is directed: LLDP left `from` and arrived at `to`. Paths use a link only when its reverse
//! exists as well, since a cable with one dead fibre would lose every answer. A port with a link in
//! either direction is not an edge.
//!
//! A link that an administrator drains, or that is in doubt, is used only where there is no other
//! path: it counts as very many hops.

mod graph;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Bound;

use clock::{Duration, Instant, mix};
use openflow::{DatapathId, MacAddr, PortNo};

use crate::Location;

use super::known::{Link, News};
use super::port_state::Ends;
use graph::Graph;

#[derive(Default)]
pub(super) struct Links {
    /// Keyed by the port that LLDP left and the port where it arrived.
    proofs: BTreeMap<(Location, Location), Proof>,
    /// Ports with a link or a claim in either direction, and the number of each.
    ends: BTreeMap<Location, Ends>,
    neighbours: BTreeMap<DatapathId, Vec<Neighbour>>,
    drained: Drained,
    /// Ports that had hosts and have since become ends of links, and when the doubt about them
    /// ends.
    doubted: BTreeMap<Location, Instant>,
    /// Changes with every change of `ends`.
    revision: u64,
    news: News<Link>,
    graph: Graph,
}

/// Proof that LLDP passes from one port to another, and how well it passes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proof {
    /// Whether this is a link. Otherwise it is a claim: its ports are no edges, and no path uses
    /// it.
    pub is_link: bool,
    /// When the latest frame that arrived was sent.
    pub heard: Instant,
    /// The number of frames that arrived in a row, with none lost between them.
    pub in_a_row: u32,
    /// Since when LLDP has passed and no host was heard at either end.
    pub quiet_since: Instant,
    /// The minimum by which LLDP took longer than the control paths of both switches.
    pub excess: Option<Duration>,
    /// Full-size frames in a row that were lost although a small one sent with each arrived.
    pub wide_lost: u32,
    /// Whether the last full-size frame with a known outcome arrived.
    pub is_wide: bool,
    /// Whether full-size frames pass: true after one has passed, until too many in a row are lost.
    pub carries_wide: bool,
}

/// One LLDP frame that has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub sent_at: Instant,
    /// Whether no frame was lost between this one and the one that arrived before.
    pub is_next: bool,
    /// Whether the full-size frame sent with the previous one is lost.
    pub is_wide_lost: bool,
    pub excess: Option<Duration>,
}

#[derive(Debug, Default)]
pub(super) struct Removed {
    pub links: Vec<(Location, Location)>,
    pub claims: Vec<(Location, Location)>,
}

/// Switches and links that should carry only packets without another path. A link is named by a
/// port at either end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    pub switches: BTreeSet<DatapathId>,
    pub links: BTreeSet<Location>,
    /// How long a pair's path waits for a pause of its packets, in which no packet can be
    /// overtaken; then it moves under traffic. Less than a second means no wait.
    pub wait: Duration,
}

/// The number of hops that a drained or doubted link counts as: more than any path has.
const SHUNNED_HOPS: u32 = 1 << 16;

/// Maximum number of ports in doubt. One more replaces the one whose doubt would end first.
const DOUBTED_MAX: usize = 65_536;

/// Number of full-size frames lost in a row, while small ones are not, that makes a link narrow. At
/// a loss of 10 % this happens to a link once in five days, until the next such frame arrives.
pub(super) const WIDE_LOST_MAX: u32 = 5;

impl Drained {
    fn is_hit(&self, at: Location) -> bool {
        self.switches.contains(&at.dpid) || self.links.contains(&at)
    }
}

/// A usable link from one switch to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Neighbour {
    dpid: DatapathId,
    out_port: PortNo,
    in_port: PortNo,
}

/// One switch of a path, with its in-port and out-port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hop {
    pub dpid: DatapathId,
    pub in_port: PortNo,
    pub out_port: PortNo,
}

/// Source and destination.
pub(super) type Pair = (MacAddr, MacAddr);

/// Hops from each switch to one destination.
pub(super) type Distances = BTreeMap<DatapathId, u32>;

impl Links {
    /// Notes that LLDP passed, and since when: this is a claim until it becomes a link.
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
            wide_lost: 0,
            is_wide: false,
            carries_wide: false,
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
        proof.wide_lost = proof
            .wide_lost
            .saturating_add(u32::from(heard.is_wide_lost));
        proof.is_wide &= !heard.is_wide_lost;
        proof.carries_wide &= proof.wide_lost < WIDE_LOST_MAX;
        proof.in_a_row = if heard.is_next { proof.in_a_row + 1 } else { 1 };
        let least = |excess: Duration| proof.excess.map_or(excess, |least| least.min(excess));
        proof.excess = heard.excess.map(least).or(proof.excess);
        proof
    }

    /// Notes that a full-size frame has passed. Returns whether the link carries such frames both
    /// ways from now on.
    pub(super) fn note_wide(&mut self, from: Location, to: Location) -> bool {
        let Some(proof) = self.proofs.get_mut(&(from, to)) else {
            return false;
        };
        (proof.is_wide, proof.wide_lost) = (true, 0);
        let is_new = !std::mem::replace(&mut proof.carries_wide, true);
        is_new && self.carries_wide(from, to)
    }

    /// Whether full-size frames with a tag are known to pass a link in both directions.
    pub(super) fn carries_wide(&self, from: Location, to: Location) -> bool {
        let of = |a, b| self.proof(a, b).is_some_and(|proof| proof.carries_wide);
        of(from, to) && of(to, from)
    }

    /// Whether full-size frames with a tag are known not to pass a link in either direction.
    pub(super) fn is_narrow(&self, from: Location, to: Location) -> bool {
        let lost = |a, b| self.proof(a, b).map_or(0, |proof| proof.wide_lost);
        lost(from, to).max(lost(to, from)) >= WIDE_LOST_MAX
    }

    /// Turns a claim into a link.
    pub(super) fn establish(&mut self, from: Location, to: Location) {
        let Some(proof) = self.proofs.get_mut(&(from, to)).filter(|p| !p.is_link) else {
            return;
        };
        proof.is_link = true;
        self.news.note((from, to));
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

    /// Notes that a host was heard at an end of a claim: the claim's quiet time begins again.
    pub(super) fn disturb(&mut self, now: Instant, at: Location) {
        let claims = self.proofs.iter_mut();
        let claims = claims.filter(|((a, b), proof)| !proof.is_link && (*a == at || *b == at));
        claims.for_each(|(_, proof)| proof.quiet_since = now);
    }

    /// Removes the links and claims that touch a port for which `touches` returns true.
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
                self.news.note((from, to));
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

    /// Adds one direction of a link whose other direction exists.
    fn set_usable(&mut self, from: Location, to: Location) {
        self.graph.forget();
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
        self.graph.forget();
        if let Some(neighbours) = self.neighbours.get_mut(&from.dpid) {
            let is_it =
                |n: &Neighbour| (n.dpid, n.out_port, n.in_port) == (to.dpid, from.port, to.port);
            neighbours.retain(|n| !is_it(n));
        }
    }

    /// Sets the drained switches and links. Returns whether that changes anything.
    pub(super) fn set_drained(&mut self, drained: Drained) -> bool {
        let is_new = self.drained != drained;
        self.drained = drained;
        self.graph.forget();
        is_new
    }

    /// How long a path over drained links waits for a pause.
    pub(super) fn drain_wait(&self) -> Duration {
        self.drained.wait
    }

    /// Whether a path uses a drained link or switch.
    pub(super) fn is_drained(&self, hops: &[Hop]) -> bool {
        hops.iter().any(|hop| {
            let out = Location::new(hop.dpid, hop.out_port);
            let peer = self.peer(out);
            peer.is_some_and(|peer| self.is_shunned(out) || self.is_shunned(peer))
        })
    }

    /// Doubts the link at these ports until `until`: it carries only packets without another path.
    pub(super) fn doubt(&mut self, ends: [Location; 2], until: Instant) {
        self.graph.forget();
        for end in ends {
            if self.doubted.len() >= DOUBTED_MAX && !self.doubted.contains_key(&end) {
                let first = self.doubted.iter().min_by_key(|(_, until)| **until);
                let first = first.map(|(end, _)| *end);
                first.and_then(|first| self.doubted.remove(&first));
            }
            self.doubted.insert(end, until);
        }
    }

    /// Ends the doubt about a link. Returns whether there was one.
    pub(super) fn trust(&mut self, ends: [Location; 2]) -> bool {
        let trusted = ends.map(|end| self.end_doubt_at(end));
        trusted.contains(&true)
    }

    /// Ends the doubt about this port if its time is over. Returns whether a doubt ended.
    pub(super) fn end_doubt(&mut self, now: Instant, end: Location) -> bool {
        let is_over = self.doubted.get(&end).is_some_and(|until| *until <= now);
        is_over && self.end_doubt_at(end)
    }

    fn end_doubt_at(&mut self, end: Location) -> bool {
        self.graph.forget();
        self.doubted.remove(&end).is_some()
    }

    pub(super) fn has_doubts(&self) -> bool {
        !self.doubted.is_empty()
    }

    /// Whether the operator drains the link at this port, or its switch.
    pub(super) fn is_drained_end(&self, end: Location) -> bool {
        self.drained.is_hit(end)
    }

    pub(super) fn is_doubted(&self, end: Location) -> bool {
        self.doubted.contains_key(&end)
    }

    fn is_shunned(&self, end: Location) -> bool {
        self.drained.is_hit(end) || self.doubted.contains_key(&end)
    }

    /// Whether a shortest path leaves by this port.
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

    /// A number that changes whenever the ports with a link may have changed.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn ends(&self, at: Location) -> Ends {
        self.ends.get(&at).copied().unwrap_or_default()
    }

    /// Every direction of every link, without claims.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Location, Location)> + '_ {
        let links = self.proofs.iter().filter(|(_, proof)| proof.is_link);
        links.map(|(link, _)| *link)
    }

    /// The same, for the links after `link`.
    pub(super) fn after(&self, link: Option<Link>) -> impl Iterator<Item = Link> {
        let from = link.map_or(Bound::Unbounded, Bound::Excluded);
        let links = self.proofs.range((from, Bound::Unbounded));
        let links = links.filter(|(_, proof)| proof.is_link);
        links.map(|(link, _)| *link)
    }

    /// Records from now on which links appear and disappear.
    pub(super) fn want_news(&mut self) {
        self.news.want();
    }

    /// Passes the links that have appeared or disappeared to `each`. Returns whether these are all.
    pub(super) fn take_news(&mut self, each: impl FnMut(Link)) -> bool {
        self.news.take(each)
    }

    /// The port at the other end of a usable link out of `from`.
    pub(super) fn peer(&self, from: Location) -> Option<Location> {
        let mut links = self.proofs_from(from).filter(|(_, proof)| proof.is_link);
        let found = links.find(|(to, _)| self.is_link(*to, from));
        found.map(|(to, _)| to)
    }

    /// Whether there is a usable link from each hop to the next.
    pub(super) fn join(&self, hops: &[Hop]) -> bool {
        hops.windows(2).all(|pair| {
            let from = Location::new(pair[0].dpid, pair[0].out_port);
            let to = Location::new(pair[1].dpid, pair[1].in_port);
            self.peer(from) == Some(to)
        })
    }

    /// The usable links out of a switch: the port, the other end, and the number of hops that the
    /// link counts as.
    pub(super) fn from(
        &self,
        dpid: DatapathId,
    ) -> impl Iterator<Item = (PortNo, Location, u32)> + '_ {
        let links = self.neighbours.get(&dpid).into_iter().flatten();
        links.map(move |link| {
            let to = Location::new(link.dpid, link.in_port);
            (link.out_port, to, self.hops(dpid, link))
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
        // Links are used only when both directions exist, so this search may go backwards.
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

    /// The first link of a shortest path out of `from`; `hash` chooses among equals.
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
}

fn links_from(from: Location) -> std::ops::RangeInclusive<(Location, Location)> {
    let end = |dpid, port| Location::new(DatapathId(dpid), PortNo(port));
    (from, end(0, 0))..=(from, end(u64::MAX, u32::MAX))
}

/// The hash that chooses among equal routes to a host.
pub(super) fn destination_hash(mac: MacAddr) -> u64 {
    mix(mac.to_u64())
}

/// The hash that chooses among equal routes: both directions of a pair take the same one where they
/// can.
pub(super) fn pair_hash((src, dst): Pair) -> u64 {
    mix(src.to_u64() ^ dst.to_u64())
}
