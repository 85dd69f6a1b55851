//! The choice of links that switches watch with BFD.
//!
//! A port whose BFD was just enabled counts as dead until the port at the other end has answered,
//! after some 1.2 s on Open vSwitch. [`Watch`] therefore starts one link at a time, and only a link
//! without which the network stays connected. A link without another path is not watched: traffic
//! could not leave it when it fails.
//!
//! Each of auster's sessions names the port at its other end, so even a controller that has just
//! started can read from the databases which sessions to remove. A session is removed only for a
//! certain reason: the port has no carrier, has become an edge or the end of another link, or its
//! peer has no session with it. A link that is merely silent stays watched.

use std::collections::{BTreeMap, BTreeSet};

use clock::{Duration, Instant, mix};
use openflow::DatapathId;

use crate::Location;

/// The maximum time for a session to come up.
pub const START_MAX: Duration = Duration::from_secs(5);
/// The pause from the end of one start to the next: the controller notices that the link is back.
const PAUSE: Duration = Duration::from_millis(500);
/// The maximum number of links remembered as failed. Beyond it, one of them is tried again.
const FAILED_MAX: usize = 4096;

/// The two ends of a link, the lower one first.
pub type Link = (Location, Location);

/// A port as its switch's database describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    pub session: Session,
    /// Whether something is at the other end of the cable.
    pub has_carrier: bool,
}

/// BFD of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    Absent,
    /// Made by auster.
    Ours {
        peer: Location,
        is_up: bool,
    },
    /// Set by the administrator, and left alone.
    Others,
}

/// The BFD that a port should have. A port without an entry stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A session with this port.
    Session(Location),
    Nothing,
}

/// The network and the databases at one time.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The links that are proven in both directions.
    pub links: BTreeSet<Link>,
    /// Ports with auster's sessions that certainly have no switch behind them.
    pub edges: BTreeSet<Location>,
    /// The ports of all databases that are connected.
    pub ports: BTreeMap<Location, Port>,
}

/// The choice of watched links. Call [`Watch::decide`] a few times a second.
#[derive(Debug, Default)]
pub struct Watch {
    starting: Option<Start>,
    /// The link that was started last: the next link has the next turn.
    last: Option<Link>,
    not_before: Option<Instant>,
    /// Links whose sessions did not come up, and whether the link has come back since.
    failed: BTreeMap<Link, bool>,
}

/// A link whose sessions are coming up.
#[derive(Clone, Copy, Debug)]
struct Start {
    link: Link,
    until: Instant,
    /// Whether the sessions existed before, for example from an earlier process.
    is_found: bool,
}

/// The end of a start.
enum End {
    Up,
    Failed,
    /// The link is no longer one to start.
    Moot,
}

/// Makes a link of its ends.
pub fn link(a: Location, b: Location) -> Link {
    (a.min(b), a.max(b))
}

impl Watch {
    /// Lets failed links be tried again.
    pub fn retry(&mut self) {
        self.failed.clear();
    }

    /// Decides which BFD the ports should have; links are to be watched if `is_on`. Also returns a
    /// link that has just failed to come up.
    pub fn decide(
        &mut self,
        now: Instant,
        is_on: bool,
        facts: &Facts,
    ) -> (BTreeMap<Location, Wanted>, Option<Link>) {
        let failed = self.end_start(now, is_on, facts);
        self.failed.retain(|link, is_back| {
            let is_link = facts.links.contains(link);
            let is_watched = [link.0, link.1]
                .iter()
                .any(|end| facts.peer(*end).is_some());
            *is_back |= is_link && !is_watched;
            is_link || !*is_back
        });
        if is_on && self.starting.is_none() && self.not_before.is_none_or(|at| at <= now) {
            self.starting = self.next(now, facts);
            self.last = self.starting.map(|start| start.link).or(self.last);
        }
        let partners = facts.partners();
        let ours = facts.watched();
        let ours = ours.filter_map(|at| Some((at, facts.peer(at)?)));
        let decide = |(at, peer): (Location, Location)| {
            let has_failed = self.failed.contains_key(&link(at, peer));
            let is_moved = facts.is_moved(at, peer, partners.get(&at).copied());
            // Remove both ends together: a single end that is left would call the link dead.
            let other = facts.ports.get(&peer);
            let ends = match other {
                Some(other) => !is_on || has_failed || !other.has(at),
                None => has_failed && !facts.is_up(at, peer),
            };
            match is_moved || ends {
                true => Some((at, Wanted::Nothing)),
                false => is_on.then_some((at, Wanted::Session(peer))),
            }
        };
        let mut wanted: BTreeMap<Location, Wanted> = ours.filter_map(decide).collect();
        if let Some(Start { link: (a, b), .. }) = self.starting {
            wanted.extend([(a, Wanted::Session(b)), (b, Wanted::Session(a))]);
        }
        (wanted, failed)
    }

    /// Ends the present start if it is over. Returns the link if it has failed.
    fn end_start(&mut self, now: Instant, is_on: bool, facts: &Facts) -> Option<Link> {
        let start = self.starting?;
        let end = start.end(now, is_on, facts)?;
        self.starting = None;
        self.not_before = Some(now + PAUSE);
        if !matches!(end, End::Failed) {
            return None;
        }
        if self.failed.len() >= FAILED_MAX {
            self.failed.pop_first();
        }
        self.failed.insert(start.link, false);
        Some(start.link)
    }

    /// The next link to start: each has its turn, however often others fail.
    fn next(&self, now: Instant, facts: &Facts) -> Option<Start> {
        let mut needed = None;
        let mut start = |link: &Link| {
            let (a, b) = *link;
            let is_found = facts.peer(a) == Some(b) && facts.peer(b) == Some(a);
            let can_start = facts.is_ready(a, b)
                && facts.is_ready(b, a)
                && !facts.are_up(*link)
                && !self.failed.contains_key(link)
                && (is_found || !needed.get_or_insert_with(|| facts.needed()).contains(link));
            can_start.then_some(Start {
                link: *link,
                until: now + START_MAX,
                is_found,
            })
        };
        let is_after = |link: &&Link| self.last.is_none_or(|last| **link > last);
        let found = facts.links.iter().filter(is_after).find_map(&mut start);
        found.or_else(|| facts.links.iter().find_map(start))
    }
}

impl Start {
    fn end(self, now: Instant, is_on: bool, facts: &Facts) -> Option<End> {
        let (a, b) = self.link;
        let is_known = [a, b].iter().all(|end| facts.ports.contains_key(end));
        let is_ready = facts.is_ready(a, b) && facts.is_ready(b, a);
        // The link was alive, so its silence is what BFD watches for.
        let is_silent = self.is_found && !facts.links.contains(&self.link);
        match () {
            () if facts.are_up(self.link) => Some(End::Up),
            () if !is_on || is_silent => Some(End::Moot),
            () if !is_known || (is_ready && self.until <= now) => Some(End::Failed),
            () => (!is_ready).then_some(End::Moot),
        }
    }
}

impl Port {
    fn has(&self, with: Location) -> bool {
        matches!(self.session, Session::Ours { peer, .. } if peer == with)
    }
}

impl Facts {
    /// The ports with auster's sessions.
    pub fn watched(&self) -> impl Iterator<Item = Location> + '_ {
        let all = self.ports.keys().copied();
        all.filter(|at| self.peer(*at).is_some())
    }

    /// The port at the other end of auster's session.
    fn peer(&self, at: Location) -> Option<Location> {
        match self.ports.get(&at)?.session {
            Session::Ours { peer, .. } => Some(peer),
            _ => None,
        }
    }

    fn is_up(&self, at: Location, with: Location) -> bool {
        let session = self.ports.get(&at).map(|port| port.session);
        matches!(session, Some(Session::Ours { peer, is_up: true }) if peer == with)
    }

    fn are_up(&self, (a, b): Link) -> bool {
        self.is_up(a, b) && self.is_up(b, a)
    }

    /// Whether `at` has a session with `peer` or may get one.
    fn is_ready(&self, at: Location, peer: Location) -> bool {
        self.ports.get(&at).is_some_and(|port| {
            port.has_carrier && (port.session == Session::Absent || port.has(peer))
        })
    }

    /// Whether the link of a session is certainly gone; the link at `at` now connects to `partner`.
    fn is_moved(&self, at: Location, peer: Location, partner: Option<Location>) -> bool {
        let is_without = |end| self.ports.get(&end).is_some_and(|port| !port.has_carrier);
        let has_gone = |end| self.edges.contains(&end) || is_without(end);
        has_gone(at) || has_gone(peer) || partner.is_some_and(|partner| partner != peer)
    }

    /// The port at the other end of each link.
    fn partners(&self) -> BTreeMap<Location, Location> {
        let both = self.links.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]);
        both.collect()
    }

    /// The links without which the network falls apart, not counting links that switches call dead.
    fn needed(&self) -> BTreeSet<Link> {
        let is_dead = |at, with| self.peer(at) == Some(with) && !self.is_up(at, with);
        let links = self.links.iter().copied();
        needed_links(
            &links
                .filter(|(a, b)| !is_dead(*a, *b) && !is_dead(*b, *a))
                .collect(),
        )
    }
}

/// The links without which the network falls apart.
///
/// A tree reaches all switches. Each link outside the tree gets a random tag, which both its ends
/// have, and so all tree links between them. A tree link without any tag has no other path.
fn needed_links(links: &BTreeSet<Link>) -> BTreeSet<Link> {
    let mut adjacent: BTreeMap<DatapathId, Vec<(Link, DatapathId)>> = BTreeMap::new();
    for (a, b) in links {
        let (one, other) = (a.dpid, b.dpid);
        adjacent.entry(one).or_default().push(((*a, *b), other));
        adjacent.entry(other).or_default().push(((*a, *b), one));
    }
    // Each switch comes after its parent in the tree.
    let mut order: Vec<(DatapathId, Option<(Link, DatapathId)>)> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut in_tree = BTreeSet::new();
    for root in adjacent.keys() {
        if !seen.insert(*root) {
            continue;
        }
        let mut at = order.len();
        order.push((*root, None));
        while let Some((here, _)) = order.get(at).copied() {
            for (link, next) in &adjacent[&here] {
                if seen.insert(*next) {
                    in_tree.insert(*link);
                    order.push((*next, Some((*link, here))));
                }
            }
            at += 1;
        }
    }
    let mut tags: BTreeMap<DatapathId, u64> = BTreeMap::new();
    for (number, (a, b)) in (1u64..).zip(links) {
        if !in_tree.contains(&(*a, *b)) {
            *tags.entry(a.dpid).or_default() ^= mix(number);
            *tags.entry(b.dpid).or_default() ^= mix(number);
        }
    }
    let mut needed = BTreeSet::new();
    for (here, above) in order.iter().rev() {
        let Some((link, above)) = above else {
            continue;
        };
        let tag = tags.get(here).copied().unwrap_or_default();
        *tags.entry(*above).or_default() ^= tag;
        if tag == 0 {
            needed.insert(*link);
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use openflow::PortNo;
    use proptest::prelude::*;

    use super::*;

    fn at(dpid: u64, port: u32) -> Location {
        Location::new(DatapathId(dpid), PortNo(port))
    }

    /// A network with its databases, whose sessions come up after a while.
    struct World {
        now: Instant,
        watch: Watch,
        is_on: bool,
        cables: BTreeSet<Link>,
        /// Cables that carry everything but BFD.
        filtered: BTreeSet<Link>,
        cut: BTreeSet<Link>,
        away: BTreeSet<DatapathId>,
        sessions: BTreeMap<Location, Session>,
        both_since: BTreeMap<Link, Instant>,
        /// The link that started last, if nothing has happened since.
        last: Option<Link>,
        failures: Vec<Link>,
    }

    const STEP: Duration = Duration::from_millis(200);
    const COMES_UP: Duration = Duration::from_millis(1200);

    impl World {
        fn new(cables: impl IntoIterator<Item = Link>) -> World {
            let cables: BTreeSet<Link> = cables.into_iter().collect();
            let ends = cables.iter().flat_map(|(a, b)| [*a, *b]);
            World {
                now: Instant::START,
                watch: Watch::default(),
                is_on: true,
                sessions: ends.map(|end| (end, Session::Absent)).collect(),
                cables,
                filtered: BTreeSet::new(),
                cut: BTreeSet::new(),
                away: BTreeSet::new(),
                both_since: BTreeMap::new(),
                last: None,
                failures: Vec::new(),
            }
        }

        fn ring(switches: u64) -> World {
            let next = |n| if n == switches { 1 } else { n + 1 };
            World::new((1..=switches).map(|n| link(at(n, 2), at(next(n), 1))))
        }

        fn is_alive(&self, end: Location) -> bool {
            !matches!(self.sessions[&end], Session::Ours { is_up: false, .. })
        }

        /// The cables over which everything passes.
        fn links(&self) -> BTreeSet<Link> {
            let cables = self.cables.difference(&self.cut).copied();
            cables
                .filter(|(a, b)| self.is_alive(*a) && self.is_alive(*b))
                .collect()
        }

        fn facts(&self) -> Facts {
            let known = self
                .sessions
                .iter()
                .filter(|(at, _)| !self.away.contains(&at.dpid));
            let port = |session: &Session| Port {
                session: *session,
                has_carrier: true,
            };
            Facts {
                links: self.links(),
                edges: BTreeSet::new(),
                ports: known.map(|(at, session)| (*at, port(session))).collect(),
            }
        }

        fn pair(&self, (a, b): Link) -> bool {
            let peer = |at| match self.sessions[&at] {
                Session::Ours { peer, .. } => Some(peer),
                _ => None,
            };
            peer(a) == Some(b) && peer(b) == Some(a)
        }

        /// One decision of the controller, and a fifth of a second in which the switches carry it
        /// out.
        fn step(&mut self) {
            let (facts, before) = (self.facts(), self.links());
            let (wanted, failed) = self.watch.decide(self.now, self.is_on, &facts);
            self.failures.extend(failed);
            let mut begun = BTreeSet::new();
            for (end, wanted) in wanted {
                assert!(facts.ports.contains_key(&end) || self.away.contains(&end.dpid));
                if self.away.contains(&end.dpid) {
                    continue;
                }
                let session = self.sessions.get_mut(&end).unwrap();
                match (wanted, *session) {
                    (_, Session::Others) => {}
                    (Wanted::Session(peer), Session::Absent) => {
                        *session = Session::Ours { peer, is_up: false };
                        begun.insert(link(end, peer));
                    }
                    (Wanted::Session(to), Session::Ours { peer, .. }) => assert_eq!(to, peer),
                    (Wanted::Nothing, _) => *session = Session::Absent,
                }
            }
            assert!(begun.len() <= 1, "one link at a time: {begun:?}");
            for start in &begun {
                assert!(
                    !needed_links(&before).contains(start),
                    "{start:?} is needed"
                );
                if let Some(last) = self.last.replace(*start) {
                    let is_over = !self.pair(last) || self.is_up(last);
                    assert!(is_over, "{start:?} after {last:?}");
                }
            }
            self.now += STEP;
            self.settle();
        }

        fn is_up(&self, (a, b): Link) -> bool {
            self.pair((a, b)) && self.is_alive(a) && self.is_alive(b)
        }

        fn settle(&mut self) {
            for cable in self.cables.clone() {
                let works = !self.cut.contains(&cable) && !self.filtered.contains(&cable);
                match self.pair(cable) && works {
                    true => drop(self.both_since.entry(cable).or_insert(self.now)),
                    false => drop(self.both_since.remove(&cable)),
                }
                let since = self.both_since.get(&cable);
                let up = since.is_some_and(|since| self.now.since(*since) >= COMES_UP);
                for end in [cable.0, cable.1] {
                    if let Some(Session::Ours { is_up, .. }) = self.sessions.get_mut(&end) {
                        *is_up = up;
                    }
                }
            }
        }

        fn run(&mut self, steps: usize) {
            (0..steps).for_each(|_| self.step());
        }

        fn up_count(&self) -> usize {
            self.cables
                .iter()
                .filter(|cable| self.is_up(**cable))
                .count()
        }
    }

    #[test]
    fn links_of_a_ring_are_watched_one_after_the_other() {
        let mut world = World::ring(4);
        let mut counts = Vec::new();
        for _ in 0..60 {
            world.step();
            counts.push(world.up_count());
        }
        assert!(counts.is_sorted(), "{counts:?}");
        assert_eq!(counts.last(), Some(&4), "{counts:?}");
        world.is_on = false;
        world.run(2);
        assert_eq!(world.facts().ports.len(), 8);
        assert!(
            world
                .sessions
                .values()
                .all(|session| *session == Session::Absent)
        );
    }

    #[test]
    fn a_link_without_another_path_is_not_watched_until_there_is_one() {
        let line = [link(at(1, 2), at(2, 1)), link(at(2, 2), at(3, 1))];
        let mut world = World::new(line);
        world.run(50);
        assert_eq!(world.up_count(), 0);
        let closing = link(at(3, 2), at(1, 1));
        world.cables.insert(closing);
        world
            .sessions
            .extend([closing.0, closing.1].map(|end| (end, Session::Absent)));
        world.run(50);
        assert_eq!(world.up_count(), 3);
    }

    #[test]
    fn a_link_that_does_not_come_up_is_taken_back_once() {
        let mut world = World::ring(3);
        let bad = *world.cables.first().unwrap();
        world.filtered.insert(bad);
        world.run(200);
        assert_eq!((world.up_count(), &world.failures[..]), (2, &[bad][..]));
        assert!(world.links().contains(&bad), "it carries traffic as before");
        // After the link was lost and found again, it gets another try.
        world.cut.insert(bad);
        world.run(5);
        world.cut.clear();
        world.filtered.clear();
        world.run(30);
        assert_eq!((world.up_count(), world.failures.len()), (3, 1));
    }

    #[test]
    fn a_reload_tries_again() {
        let mut world = World::ring(3);
        let bad = *world.cables.first().unwrap();
        world.filtered.insert(bad);
        world.run(100);
        world.filtered.clear();
        world.run(100);
        assert_eq!(world.up_count(), 2);
        world.watch.retry();
        world.run(30);
        assert_eq!(world.up_count(), 3);
    }

    #[test]
    fn a_silent_link_stays_watched_and_comes_back_by_itself() {
        let mut world = World::ring(3);
        world.run(60);
        let silent = *world.cables.first().unwrap();
        world.cut.insert(silent);
        world.run(100);
        assert!(world.pair(silent) && !world.is_up(silent));
        // A process that starts now does not remove the sessions either.
        world.watch = Watch::default();
        world.run(100);
        assert!(world.pair(silent), "nobody knows better");
        world.cut.clear();
        world.run(10);
        assert_eq!((world.up_count(), world.failures.len()), (3, 0));
    }

    #[test]
    fn a_session_ends_with_its_link() {
        let (a, b, c) = (at(1, 1), at(2, 1), at(3, 1));
        let ours = |peer| Port {
            session: Session::Ours { peer, is_up: false },
            has_carrier: true,
        };
        let facts = Facts {
            ports: BTreeMap::from([(a, ours(b)), (b, ours(a))]),
            ..Facts::default()
        };
        let wanted = |facts: &Facts| {
            let (wanted, _) = Watch::default().decide(Instant::START, true, facts);
            [a, b].map(|at| wanted[&at])
        };
        assert_eq!(wanted(&facts), [Wanted::Session(b), Wanted::Session(a)]);
        let both = [Wanted::Nothing; 2];
        let mut edge = facts.clone();
        edge.edges.insert(a);
        assert_eq!(wanted(&edge), both, "a host is there now");
        let mut unplugged = facts.clone();
        unplugged.ports.get_mut(&b).unwrap().has_carrier = false;
        assert_eq!(wanted(&unplugged), both);
        let mut moved = facts.clone();
        moved.links.insert(link(a, c));
        assert_eq!(
            wanted(&moved)[0],
            Wanted::Nothing,
            "another switch is there now"
        );
        let mut alone = facts.clone();
        alone.ports.get_mut(&b).unwrap().session = Session::Others;
        let (wanted, _) = Watch::default().decide(Instant::START, true, &alone);
        assert_eq!(wanted, BTreeMap::from([(a, Wanted::Nothing)]));
    }

    /// Sessions of a killed process come up or are removed, and are not left dead.
    #[test]
    fn a_start_of_an_earlier_process_is_ended() {
        let mut world = World::ring(3);
        let (a, b) = *world.cables.first().unwrap();
        for (end, peer) in [(a, b), (b, a)] {
            world
                .sessions
                .insert(end, Session::Ours { peer, is_up: false });
        }
        let mut facts = world.facts();
        facts.links.insert((a, b));
        let (wanted, _) = world.watch.decide(world.now, true, &facts);
        assert_eq!(wanted.len(), 2, "nothing else is started: {wanted:?}");
        let late = world.now + START_MAX;
        let (wanted, failed) = world.watch.decide(late, true, &facts);
        assert_eq!((wanted[&a], failed), (Wanted::Nothing, Some((a, b))));
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Cut(usize),
        Mend(usize),
        Filter(usize),
        Pass(usize),
        Leave(u64),
        Return(u64),
        Set(usize),
        Clear(usize),
        Switch(bool),
        Restart,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            (0..12usize).prop_map(Event::Cut),
            (0..12usize).prop_map(Event::Mend),
            (0..12usize).prop_map(Event::Filter),
            (0..12usize).prop_map(Event::Pass),
            (1..=5u64).prop_map(Event::Leave),
            (1..=5u64).prop_map(Event::Return),
            (0..24usize).prop_map(Event::Set),
            (0..24usize).prop_map(Event::Clear),
            any::<bool>().prop_map(Event::Switch),
            Just(Event::Restart),
        ]
    }

    fn apply(world: &mut World, event: Event) {
        let cables: Vec<Link> = world.cables.iter().copied().collect();
        let ends: Vec<Location> = world.sessions.keys().copied().collect();
        let cable = |n: usize| cables[n % cables.len()];
        let end = |n: usize| ends[n % ends.len()];
        match event {
            Event::Cut(n) => drop(world.cut.insert(cable(n))),
            Event::Mend(n) => drop(world.cut.remove(&cable(n))),
            Event::Filter(n) => drop(world.filtered.insert(cable(n))),
            Event::Pass(n) => drop(world.filtered.remove(&cable(n))),
            Event::Leave(dpid) => drop(world.away.insert(DatapathId(dpid))),
            Event::Return(dpid) => drop(world.away.remove(&DatapathId(dpid))),
            Event::Set(n) => drop(world.sessions.insert(end(n), Session::Others)),
            Event::Clear(n) => {
                let session = world.sessions.get_mut(&end(n)).unwrap();
                if *session == Session::Others {
                    *session = Session::Absent;
                }
            }
            Event::Switch(is_on) => world.is_on = is_on,
            Event::Restart => world.watch = Watch::default(),
        }
        world.last = None;
        world.settle();
    }

    fn graph() -> impl Strategy<Value = Vec<(u64, u64)>> {
        proptest::collection::vec((1..=5u64, 1..=5u64), 1..12)
    }

    fn cables(pairs: &[(u64, u64)]) -> Vec<Link> {
        let pairs = pairs.iter().filter(|(a, b)| a != b);
        let cable = |(n, (a, b)): (u32, &(u64, u64))| link(at(*a, 2 * n), at(*b, 2 * n + 1));
        (1..).zip(pairs).map(cable).collect()
    }

    /// Whether `to` can be reached from `from`.
    fn reaches(links: &BTreeSet<Link>, from: DatapathId, to: DatapathId) -> bool {
        let mut seen = BTreeSet::from([from]);
        loop {
            let more = links
                .iter()
                .flat_map(|(a, b)| [(a.dpid, b.dpid), (b.dpid, a.dpid)]);
            let more: Vec<_> = more
                .filter(|(a, b)| seen.contains(a) && !seen.contains(b))
                .collect();
            if more.is_empty() {
                return seen.contains(&to);
            }
            seen.extend(more.into_iter().map(|(_, b)| b));
        }
    }

    proptest! {
        #[test]
        fn a_link_is_needed_where_its_ends_have_no_other_path(pairs in graph()) {
            let links: BTreeSet<Link> = cables(&pairs).into_iter().collect();
            let needed = needed_links(&links);
            for link in &links {
                let mut others = links.clone();
                others.remove(link);
                let has_other = reaches(&others, link.0.dpid, link.1.dpid);
                prop_assert_eq!(needed.contains(link), !has_other, "{:?}", link);
            }
        }

        /// Checked at each step: one link starts at a time, and none that is needed; the
        /// administrator's sessions stay. In the end everything is as it should be.
        #[test]
        fn whatever_happens_the_right_links_are_watched_in_the_end(
            pairs in graph(),
            events in proptest::collection::vec((event(), 0..12usize), 0..40),
        ) {
            let cables = cables(&pairs);
            prop_assume!(!cables.is_empty());
            let mut world = World::new(cables);
            for (event, steps) in events {
                apply(&mut world, event);
                let others = |world: &World| -> Vec<Location> {
                    let all = world.sessions.iter();
                    let others = all.filter(|(_, session)| **session == Session::Others);
                    others.map(|(at, _)| *at).collect()
                };
                let before = others(&world);
                world.run(steps);
                prop_assert_eq!(others(&world), before);
            }
            world.away.clear();
            world.cut.clear();
            world.filtered.clear();
            world.settle();
            world.run(50);
            world.watch.retry();
            world.run(300);
            let links = world.links();
            prop_assert_eq!(&links, &world.cables, "no link is left dead");
            let needed = needed_links(&links);
            for cable in &world.cables {
                let ends = [world.sessions[&cable.0], world.sessions[&cable.1]];
                let is_free = !ends.contains(&Session::Others);
                let is_up = world.is_up(*cable);
                match world.is_on && is_free {
                    // A link that became needed stays watched.
                    true => prop_assert!(is_up || needed.contains(cable), "{cable:?} {ends:?}"),
                    false => prop_assert!(ends.iter().all(
                        |end| matches!(end, Session::Absent | Session::Others)
                    ), "{cable:?} {ends:?}"),
                }
            }
        }
    }
}
