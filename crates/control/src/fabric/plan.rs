//! The routes of every switch to one egress, computed from the links alone.
//!
//! A packet leaves by a port of its switch's [`Route`] whose link is alive: conversations share the
//! ports of equal shortest paths. So each hop brings the packet nearer to the egress, whichever
//! ports are dead. Where only one path is shortest and its port is dead, a *detour* may be left:
//! the packet is marked and sent to the next best neighbour. Marked packets follow fixed ports
//! until they reach the egress, and are dropped where one of these ports is dead.
//!
//! No packet goes in circles, whatever fails and however often:
//!
//! - An unmarked packet comes nearer with each hop, and is marked at most once.
//! - The path of a marked packet does not depend on which ports are dead. [`plan`] follows this
//!   path, and offers the detour only if it reaches the egress.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use clock::mix;
use openflow::PortNo;

/// Maximum number of ports on shortest paths that a route uses.
pub const PORTS_MAX: usize = 4;

/// The links between the switches, which have numbers from 0.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The links of each switch, by port.
    pub neighbours: Vec<Vec<Neighbour>>,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    pub switch: usize,
    pub out_port: PortNo,
    /// The port at the other end.
    pub in_port: PortNo,
    /// At least 1.
    pub cost: u32,
    /// A random number of the port, which orders equal paths.
    pub order: u64,
}

/// The ports on shortest paths to an egress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Ports {
    all: [u32; PORTS_MAX],
    len: u8,
}

impl Ports {
    pub fn of(ports: impl IntoIterator<Item = PortNo>) -> Ports {
        let mut all = Ports::default();
        for (slot, port) in all.all.iter_mut().zip(ports) {
            *slot = port.0;
            all.len += 1;
        }
        all
    }

    pub fn iter(&self) -> impl Iterator<Item = PortNo> + '_ {
        self.all[..self.len()].iter().map(|n| PortNo(*n))
    }

    #[expect(clippy::len_without_is_empty, reason = "a route has a port")]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    pub fn first(&self) -> Option<PortNo> {
        self.iter().next()
    }

    pub fn contains(&self, port: PortNo) -> bool {
        self.iter().any(|own| own == port)
    }
}

/// The route of a switch to one egress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub ports: Ports,
    /// Whether conversations share `ports`, of which there are several. Otherwise the first live
    /// port takes all conversations.
    pub shares: bool,
    /// The next best port after the first.
    pub other: Option<PortNo>,
    /// Whether packets are marked and sent out of `other` when all of `ports` are dead.
    pub detours: bool,
    /// Whether unmarked packets may arrive on `other`, so that the detour sends them back.
    pub turns_back: bool,
    /// Whether marked packets may arrive on the first port, and leave by `other`.
    pub passes_on: bool,
}

impl Route {
    /// The same route without the parts that rely on other switches' detours.
    pub fn bare(self) -> Route {
        Route {
            turns_back: false,
            passes_on: false,
            ..self
        }
    }

    /// The part of this route that `other` has as well.
    pub fn common(self, other: Route) -> Route {
        let is_same = self.other == other.other;
        Route {
            detours: self.detours && (is_same && other.detours),
            turns_back: self.turns_back && (is_same && other.turns_back),
            passes_on: self.passes_on && (is_same && other.passes_on),
            ..self
        }
    }
}

/// The route of each switch to one egress; `None` at the egress and where no path leads there.
pub struct Plan {
    pub routes: Vec<Option<Route>>,
    /// The switches in order of distance, the egress first.
    pub by_distance: Vec<usize>,
}

/// Computes the routes to `egress`. The order of equal paths depends only on the port and on
/// `seed`, a random number of the egress: when one path fails or a switch is added, the others keep
/// their order.
pub fn plan(graph: &Graph, egress: usize, seed: u64) -> Plan {
    let (distances, by_distance) = distances(graph, egress);
    let mut routes: Vec<Option<Route>> = vec![None; graph.neighbours.len()];
    // The best ports: the cost of a path through each, its order, and the port.
    let mut best: Vec<(u64, u64, PortNo)> = Vec::with_capacity(PORTS_MAX + 1);
    for at in by_distance.iter().copied().filter(|at| *at != egress) {
        best.clear();
        for link in &graph.neighbours[at] {
            let Some(distance) = distances[link.switch] else {
                continue;
            };
            let through = distance + u64::from(link.cost);
            let is_full = best.len() == PORTS_MAX;
            if is_full && best.last().is_some_and(|(worst, _, _)| through > *worst) {
                continue;
            }
            let ranked = (through, mix(link.order ^ seed), link.out_port);
            let place = best.partition_point(|better| *better < ranked);
            best.insert(place, ranked);
            best.truncate(PORTS_MAX);
        }
        let least = best.first().map(|(through, _, _)| *through);
        let shortest = best
            .iter()
            .filter(|(through, _, _)| Some(*through) == least);
        let ports = Ports::of(shortest.map(|(_, _, port)| *port));
        routes[at] = Some(Route {
            ports,
            shares: ports.len() > 1,
            other: best.get(1).map(|(_, _, port)| *port),
            detours: false,
            turns_back: false,
            passes_on: false,
        });
    }
    let alone = |route: &Route| route.ports.len() == 1 && route.other.is_some();
    for at in by_distance.iter().copied() {
        if routes[at].as_ref().is_some_and(alone) {
            offer_detour(graph, egress, at, &mut routes);
        }
    }
    Plan {
        routes,
        by_distance,
    }
}

/// Gives a switch its detour if marked packets reach the egress through it.
fn offer_detour(graph: &Graph, egress: usize, from: usize, routes: &mut [Option<Route>]) {
    let Some(other) = routes[from].and_then(|route| route.other) else {
        return;
    };
    let Some(start) = link(graph, from, other) else {
        return;
    };
    let mut passed = Vec::new();
    let (mut at, mut in_port) = (start.switch, start.in_port);
    let mut steps = 0;
    while at != egress {
        steps += 1;
        let Some(route) = routes[at].filter(|_| at != from && steps <= routes.len()) else {
            return;
        };
        let out = match route.ports.first() == Some(in_port) {
            true => {
                passed.push(at);
                route.other
            }
            false => route.ports.first(),
        };
        let Some(next) = out.and_then(|out| link(graph, at, out)) else {
            return;
        };
        (at, in_port) = (next.switch, next.in_port);
    }
    for at in passed {
        if let Some(route) = &mut routes[at] {
            route.passes_on = true;
        }
    }
    let neighbour = routes[start.switch].as_ref();
    let comes_back = neighbour.is_some_and(|route| route.ports.contains(start.in_port));
    if let Some(route) = &mut routes[from] {
        (route.detours, route.turns_back) = (true, comes_back);
    }
}

pub(super) fn link(graph: &Graph, from: usize, out_port: PortNo) -> Option<Neighbour> {
    let links = &graph.neighbours[from];
    let at = links.partition_point(|link| link.out_port < out_port);
    links
        .get(at)
        .filter(|link| link.out_port == out_port)
        .copied()
}

/// The distance of each switch from the egress, and the switches in order of distance.
fn distances(graph: &Graph, egress: usize) -> (Vec<Option<u64>>, Vec<usize>) {
    let mut distances: Vec<Option<u64>> = vec![None; graph.neighbours.len()];
    let mut by_distance = Vec::with_capacity(graph.neighbours.len());
    distances[egress] = Some(0);
    let mut queue = BinaryHeap::from([Reverse((0, egress))]);
    while let Some(Reverse((distance, at))) = queue.pop() {
        if distances[at] != Some(distance) {
            continue;
        }
        by_distance.push(at);
        // The graph has both directions of a link, so this search may go backwards.
        for link in &graph.neighbours[at] {
            let next = distance + u64::from(link.cost);
            if distances[link.switch].is_none_or(|known| next < known) {
                distances[link.switch] = Some(next);
                queue.push(Reverse((next, link.switch)));
            }
        }
    }
    (distances, by_distance)
}

/// The rank of each switch: the order in which switches may take their new routes, so that no
/// packet goes in circles meanwhile. Rank 1 goes first, then rank 2 when rank 1 is confirmed. Rank
/// 0: nothing changes.
///
/// A switch changes after all those behind it. So a packet that has met a new route meets only new
/// routes, and before that it has met only old ones.
pub fn ranks(graph: &Graph, plan: &Plan, is_changed: impl Fn(usize) -> bool) -> Vec<u32> {
    let mut behind = vec![0u32; graph.neighbours.len()];
    let mut ranks = vec![0; graph.neighbours.len()];
    for at in plan.by_distance.iter().copied() {
        let Some(route) = &plan.routes[at] else {
            continue;
        };
        let next = route.ports.iter().filter_map(|port| link(graph, at, port));
        let most = next.map(|link| behind[link.switch]).max().unwrap_or(0);
        let changes = is_changed(at);
        behind[at] = most + u32::from(changes);
        ranks[at] = if changes { behind[at] } else { 0 };
    }
    ranks
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clock::SplitMix64;
    use proptest::prelude::*;

    use super::*;

    type Links = Vec<(usize, usize)>;

    /// A graph of these links. Port `n` of both ends is link `n`, from 1.
    fn graph(size: usize, links: &Links) -> Graph {
        let mut neighbours = vec![Vec::new(); size];
        for (n, (a, b)) in links.iter().enumerate() {
            let port = PortNo(n as u32 + 1);
            for (from, to) in [(*a, *b), (*b, *a)] {
                neighbours[from].push(Neighbour {
                    switch: to,
                    out_port: port,
                    in_port: port,
                    cost: 1,
                    order: mix((from as u64) << 32 ^ n as u64),
                });
            }
        }
        Graph { neighbours }
    }

    fn ring(size: usize) -> Links {
        (0..size).map(|n| (n, (n + 1) % size)).collect()
    }

    /// A random connected graph in which no switch has a link to itself.
    fn random(size: usize, extra: usize, seed: u64) -> Links {
        let mut random = SplitMix64::new(seed);
        let mut below = |n: usize| (random.next() % n as u64) as usize;
        let mut links: Links = (1..size).map(|n| (below(n), n)).collect();
        links.extend((0..extra).map(|_| (below(size), below(size))));
        links.retain(|(a, b)| a != b);
        links
    }

    #[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum End {
        Arrived,
        Dropped,
        Circle,
    }

    /// The position of a packet: its switch, the port on which it arrived, and whether it is
    /// marked.
    type State = (usize, Option<PortNo>, bool);

    struct Walk<'a> {
        graph: &'a Graph,
        routes: &'a [Option<Route>],
        egress: usize,
        dead: &'a BTreeSet<PortNo>,
        path: Vec<State>,
        seen: BTreeSet<State>,
        ends: BTreeSet<End>,
    }

    impl Walk<'_> {
        /// Follows every path that the groups and entries of `form` leave open.
        fn go(&mut self, state: State) {
            if self.path.contains(&state) {
                self.ends.insert(End::Circle);
            } else if state.0 == self.egress {
                self.ends.insert(End::Arrived);
            } else if self.seen.insert(state) {
                let outs = self.outs(state);
                if outs.is_empty() {
                    self.ends.insert(End::Dropped);
                }
                self.path.push(state);
                for (out, is_marked) in outs {
                    if self.dead.contains(&out) || state.1 == Some(out) && !is_marked {
                        self.ends.insert(End::Dropped);
                    } else {
                        let next = link(self.graph, state.0, out).expect("routes use links");
                        self.go((next.switch, Some(next.in_port), is_marked));
                    }
                }
                self.path.pop();
            }
        }

        /// The ports that a packet may take, and whether it is marked then.
        fn outs(&self, (at, in_port, is_marked): State) -> Vec<(PortNo, bool)> {
            let Some(route) = &self.routes[at] else {
                return Vec::new();
            };
            let first = route.ports.first();
            if is_marked {
                let out = match in_port == first && route.passes_on {
                    true => route.other,
                    false => first.filter(|first| in_port != Some(*first)),
                };
                return out.map(|out| (out, true)).into_iter().collect();
            }
            let alive = |port: &PortNo| !self.dead.contains(port);
            let count = if route.shares { route.ports.len() } else { 1 };
            let live = route.ports.iter().filter(alive).take(count);
            let live: Vec<(PortNo, bool)> = live.map(|port| (port, false)).collect();
            if !live.is_empty() {
                return live;
            }
            let detour = route.other.filter(|_| route.detours).filter(alive);
            let detour = detour.filter(|other| in_port != Some(*other) || route.turns_back);
            detour.map(|other| (other, true)).into_iter().collect()
        }
    }

    /// The ends that a packet may reach, whichever of the shared ports it takes.
    fn ends(
        graph: &Graph,
        routes: &[Option<Route>],
        (from, egress): (usize, usize),
        dead: &BTreeSet<PortNo>,
    ) -> BTreeSet<End> {
        let mut walk = Walk {
            graph,
            routes,
            egress,
            dead,
            path: Vec::new(),
            seen: BTreeSet::new(),
            ends: BTreeSet::new(),
        };
        walk.go((from, None, false));
        walk.ends
    }

    proptest! {
        /// Whatever is dead, no packet goes in circles; with nothing dead, all arrive.
        #[test]
        fn no_packet_goes_in_circles(
            size in 2usize..12,
            extra in 0usize..14,
            seed: u64,
            dead in prop::collection::btree_set(1u32..26, 0..6),
        ) {
            let graph = graph(size, &random(size, extra, seed));
            let dead: BTreeSet<PortNo> = dead.into_iter().map(PortNo).collect();
            for egress in 0..size {
                let plan = plan(&graph, egress, 7);
                for from in 0..size {
                    let whole = ends(&graph, &plan.routes, (from, egress), &BTreeSet::new());
                    prop_assert_eq!(whole, BTreeSet::from([End::Arrived]));
                    let broken = ends(&graph, &plan.routes, (from, egress), &dead);
                    prop_assert!(!broken.contains(&End::Circle), "{} to {}", from, egress);
                }
            }
        }

        /// While routes change by rank, no packet goes in circles either, and none is lost where no
        /// link is dead.
        #[test]
        fn changes_by_rank_make_no_circles(
            size in 2usize..10,
            extra in 0usize..10,
            seed: u64,
            gone in 1u32..20,
        ) {
            let links = random(size, extra, seed);
            let graph_before = graph(size, &links);
            let port = PortNo(gone);
            let mut graph_after = graph_before.clone();
            for own in &mut graph_after.neighbours {
                own.retain(|link| link.out_port != port);
            }
            for egress in 0..size {
                for (old_graph, new_graph) in
                    [(&graph_before, &graph_after), (&graph_after, &graph_before)]
                {
                    let (old, new) = (plan(old_graph, egress, 7), plan(new_graph, egress, 7));
                    let ports = |plan: &Plan, at: usize| plan.routes[at].map(|route| route.ports);
                    let is_turned =
                        |at: usize| new.routes[at].is_some() && ports(&old, at) != ports(&new, at);
                    let ranks = ranks(new_graph, &new, is_turned);
                    for turned in 0..=size as u32 {
                        let mixed: Vec<Option<Route>> = (0..size)
                            .map(|at| match is_turned(at) && ranks[at] <= turned {
                                true => new.routes[at].map(Route::bare),
                                false => old.routes[at],
                            })
                            .collect();
                        let all = BTreeSet::new();
                        let without = BTreeSet::from([port]);
                        for dead in [&all, &without] {
                            for from in 0..size {
                                let ends = ends(&graph_before, &mixed, (from, egress), dead);
                                let circles = ends.contains(&End::Circle);
                                prop_assert!(!circles, "{} to {}", from, egress);
                                let is_whole = dead.is_empty() && old.routes[from].is_some();
                                let arrived = BTreeSet::from([End::Arrived]);
                                prop_assert!(!is_whole || ends == arrived);
                            }
                        }
                    }
                }
            }
        }
    }

    /// In a ring no neighbour is nearer in the other direction; detours lead around the ring.
    #[test]
    fn every_single_failure_of_a_ring_is_survived() {
        for size in 3..10 {
            let graph = graph(size, &ring(size));
            for egress in 0..size {
                let plan = plan(&graph, egress, 7);
                for dead in 1..=size as u32 {
                    for from in 0..size {
                        let dead = BTreeSet::from([PortNo(dead)]);
                        let ends = ends(&graph, &plan.routes, (from, egress), &dead);
                        let arrived = BTreeSet::from([End::Arrived]);
                        assert_eq!(ends, arrived, "{size}: {from} to {egress}, {dead:?}");
                    }
                }
            }
        }
    }

    /// Two spines and four leaves: a leaf has two equal paths, and a spine's detour takes another
    /// leaf.
    #[test]
    fn every_single_failure_of_a_leaf_spine_is_survived() {
        let links: Links = (2..6).flat_map(|leaf| [(0, leaf), (1, leaf)]).collect();
        let graph = graph(6, &links);
        for egress in 2..6 {
            let plan = plan(&graph, egress, 7);
            for dead in 1..=links.len() as u32 {
                for from in 2..6 {
                    let dead = BTreeSet::from([PortNo(dead)]);
                    let ends = ends(&graph, &plan.routes, (from, egress), &dead);
                    let arrived = BTreeSet::from([End::Arrived]);
                    assert_eq!(ends, arrived, "{from} to {egress}, {dead:?}");
                }
            }
        }
    }

    /// When the first of equal ports dies, the others keep their order: a group that does not share
    /// chooses the same port by itself as the next plan.
    #[test]
    fn equal_ports_keep_their_order() {
        let links: Links = (0..4).flat_map(|spine| [(spine, 4), (spine, 5)]).collect();
        let before = graph(6, &links);
        let route = plan(&before, 5, 7).routes[4].expect("a route");
        let ports: Vec<PortNo> = route.ports.iter().collect();
        assert_eq!(ports.len(), 4);
        let mut after = before.clone();
        for own in &mut after.neighbours {
            own.retain(|link| link.out_port != ports[0]);
        }
        let route = plan(&after, 5, 7).routes[4].expect("a route");
        assert_eq!(route.ports.iter().collect::<Vec<_>>(), ports[1..]);
    }
}
