//! The usable links of connected switches by dense numbers, and the shortest paths over them.
//!
//! Every new pair of hosts needs a path, and the links change rarely. So a search is made once for
//! each destination, and its result is kept until something changes: a path is then a walk.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use openflow::DatapathId;

use crate::Location;

use super::{Hop, Links, Neighbour};

/// Maximum number of distances that are kept: four bytes for each switch and destination.
const DISTANCES_MAX: usize = 4 << 20;

const UNREACHED: u32 = u32::MAX;

/// The shortest paths found since the last change.
#[derive(Default)]
pub(super) struct Graph(RefCell<Option<Searches>>);

struct Searches {
    numbers: BTreeMap<DatapathId, u32>,
    /// The links out of each switch, in the order of [`Links::neighbours`].
    edges: Vec<Vec<Edge>>,
    /// The distances of all switches, by their destination.
    distances: BTreeMap<u32, Vec<u32>>,
}

struct Edge {
    /// The number of the switch at the other end.
    to: u32,
    hops: u32,
    link: Neighbour,
}

impl Graph {
    pub(super) fn forget(&mut self) {
        self.0 = RefCell::default();
    }
}

impl Links {
    /// A shortest path from port to port over connected switches, ends included; `hash` chooses
    /// among equals. Code that changes which switches are connected calls [`Links::forget_paths`].
    pub(in crate::controller) fn path(
        &self,
        from: Location,
        to: Location,
        is_connected: impl Fn(DatapathId) -> bool,
        hash: u64,
    ) -> Option<Vec<Hop>> {
        let mut searches = self.graph.0.borrow_mut();
        let searches = searches.get_or_insert_with(|| Searches::new(self, is_connected));
        searches.path(from, to, hash)
    }

    /// Forgets the known paths, because the set of connected switches has changed.
    pub(in crate::controller) fn forget_paths(&mut self) {
        self.graph.forget();
    }
}

impl Searches {
    fn new(links: &Links, is_connected: impl Fn(DatapathId) -> bool) -> Searches {
        let ends = links.neighbours.keys().copied();
        let connected = ends.filter(|dpid| is_connected(*dpid));
        let numbers: BTreeMap<DatapathId, u32> = connected.zip(0..).collect();
        let edge = |dpid, link: &Neighbour| {
            Some(Edge {
                to: *numbers.get(&link.dpid)?,
                hops: links.hops(dpid, link),
                link: *link,
            })
        };
        let edges = numbers.keys().map(|dpid| {
            let out = links.neighbours[dpid].iter();
            out.filter_map(|link| edge(*dpid, link)).collect()
        });
        Searches {
            edges: edges.collect(),
            numbers,
            distances: BTreeMap::new(),
        }
    }

    fn path(&mut self, from: Location, to: Location, hash: u64) -> Option<Vec<Hop>> {
        let (mut dpid, mut in_port) = (from.dpid, from.port);
        let mut hops = Vec::new();
        if from.dpid != to.dpid {
            let (from, to) = (self.numbers.get(&from.dpid)?, self.numbers.get(&to.dpid)?);
            let (mut at, to) = (*from, *to);
            self.search(to);
            let distances = &self.distances[&to];
            hops.reserve_exact(self.count(distances[at as usize]));
            while at != to {
                let here = distances[at as usize];
                let is_nearer = |edge: &&Edge| {
                    let there = distances[edge.to as usize];
                    there != UNREACHED && there + edge.hops == here
                };
                let nearer = || self.edges[at as usize].iter().filter(is_nearer);
                let chosen = hash.checked_rem(nearer().count() as u64)?;
                let next = nearer().nth(chosen as usize)?;
                hops.push(Hop {
                    dpid,
                    in_port,
                    out_port: next.link.out_port,
                });
                (at, dpid, in_port) = (next.to, next.link.dpid, next.link.in_port);
            }
        }
        hops.push(Hop {
            dpid,
            in_port,
            out_port: to.port,
        });
        Some(hops)
    }

    /// The number of hops to reserve for a path of this distance. A shunned link counts as many
    /// hops.
    fn count(&self, distance: u32) -> usize {
        (distance as usize).min(self.edges.len()) + 1
    }

    /// Computes the distances to a switch, unless they are known.
    fn search(&mut self, to: u32) {
        if self.distances.contains_key(&to) {
            return;
        }
        if (self.distances.len() + 1) * self.edges.len() > DISTANCES_MAX {
            self.distances.clear();
        }
        // Links are used only when both directions exist, so this search may go backwards.
        let mut distances = vec![UNREACHED; self.edges.len()];
        distances[to as usize] = 0;
        let mut queue = BinaryHeap::from([Reverse((0, to))]);
        while let Some(Reverse((distance, at))) = queue.pop() {
            if distances[at as usize] < distance {
                continue;
            }
            for edge in &self.edges[at as usize] {
                let next = distance + edge.hops;
                let known = &mut distances[edge.to as usize];
                if next < *known {
                    *known = next;
                    queue.push(Reverse((next, edge.to)));
                }
            }
        }
        self.distances.insert(to, distances);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clock::{Duration, Instant, SplitMix64};
    use openflow::PortNo;

    use crate::controller::links::{Drained, Heard};

    use super::*;

    const SWITCHES: u64 = 7;
    const PORTS: u64 = 4;

    /// The same path, found by a separate search.
    fn searched(
        links: &Links,
        (from, to): (Location, Location),
        is_connected: impl Fn(DatapathId) -> bool,
        hash: u64,
    ) -> Option<Vec<Hop>> {
        let distances = links.distances(to.dpid, is_connected);
        let (mut dpid, mut in_port) = (from.dpid, from.port);
        let mut hops = Vec::new();
        while dpid != to.dpid {
            let next = links.next(dpid, &distances, hash)?;
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

    fn location(random: &mut SplitMix64) -> Location {
        let (dpid, port) = (1 + random.next() % SWITCHES, 1 + random.next() % PORTS);
        Location::new(DatapathId(dpid), PortNo(port as u32))
    }

    /// Changes something that paths depend on.
    fn change(
        links: &mut Links,
        (connected, now): (&mut BTreeSet<DatapathId>, Instant),
        random: &mut SplitMix64,
    ) {
        let (a, b) = (location(random), location(random));
        match random.next() % 12 {
            0..6 => {
                let heard = Heard {
                    sent_at: now,
                    is_next: true,
                    is_wide_lost: false,
                    excess: None,
                };
                for (from, to) in [(a, b), (b, a)] {
                    if !random.next().is_multiple_of(8) && a.dpid != b.dpid {
                        links.note(now, (from, to), heard);
                        links.establish(from, to);
                    }
                }
            }
            6 => drop(links.remove_where(|end| end == a)),
            7 => {
                let mut drained = Drained::default();
                drained.links.insert(a);
                if random.next().is_multiple_of(2) {
                    drained.switches.insert(b.dpid);
                }
                links.set_drained(drained);
            }
            8 => links.doubt([a, b], now + Duration::from_secs(random.next() % 3)),
            9 => drop(links.trust([a, b])),
            10 => drop(links.end_doubt(now + Duration::from_secs(2), a)),
            _ => {
                if !connected.remove(&a.dpid) {
                    connected.insert(a.dpid);
                }
                links.forget_paths();
            }
        }
    }

    #[test]
    fn known_paths_are_those_that_a_new_search_finds_after_any_change() {
        let (mut found, mut missing) = (0, 0);
        for seed in 0..200 {
            let mut random = SplitMix64::new(seed);
            let mut links = Links::default();
            let mut connected: BTreeSet<DatapathId> = (1..=SWITCHES).map(DatapathId).collect();
            for n in 0..60 {
                let now = Instant::START + Duration::from_secs(n);
                change(&mut links, (&mut connected, now), &mut random);
                for _ in 0..6 {
                    let ends = (location(&mut random), location(&mut random));
                    let hash = random.next();
                    let is_connected = |dpid| connected.contains(&dpid);
                    if !is_connected(ends.0.dpid) || !is_connected(ends.1.dpid) {
                        continue;
                    }
                    let path = links.path(ends.0, ends.1, is_connected, hash);
                    assert_eq!(
                        path,
                        searched(&links, ends, is_connected, hash),
                        "{seed} {n}"
                    );
                    found += u32::from(path.is_some());
                    missing += u32::from(path.is_none());
                }
            }
        }
        assert!(found > 10_000 && missing > 10_000, "{found} {missing}");
    }
}
