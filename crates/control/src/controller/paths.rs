//! Paths between two hosts: set on their first packet, moved when the network changes, forgotten
//! when their ingress entry expires.
//!
//! Every entry of a path names its in-port, so two paths of one pair share an entry only where they
//! share the in-port. So the controller builds a new path beside the old one, redirects packets
//! with one flow-mod at the switch where the paths part, and deletes the rest of the old path last.

mod page;
mod pause;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use clock::{Duration, Instant};
use openflow::{DatapathId, MacAddr, PortNo};

use crate::Location;
use crate::entry::EntryKey;
use crate::indexed::{Indexed, Keyed};
use crate::timeouts::leases::RowKey;

use super::config::{ControllerConfig, Mode};
use super::counts::Counts;
use super::entries::SETTLE;
use super::facts::Facts;
use super::hosts::Hosts;
use super::links::{Distances, Hop, Pair, destination_hash, pair_hash};
use super::network::Network;
use super::output::ControllerCounters;
use super::services::{Beginning, PairRule, is_same};
use super::shared::SharedEntries;
use super::stage::{Change, Guard, Stage, Step, Token};
use super::tables::Tables;
pub(super) use pause::PAUSE;
pub(super) use pause::PauseOutcome;
use pause::PauseWait;
use rules::stale_rules;

/// Backlog of a switch above which it gets no new paths.
pub(super) const BEHIND_MAX: usize = 1024;

/// Minimum time before a path's entries are sent again when packets still reach the controller.
const REPAIR_INTERVAL: Duration = Duration::from_millis(500);

pub(super) struct Paths {
    paths: Indexed<Path>,
    /// The same pairs, ordered by source and by destination.
    by_src: BTreeSet<Pair>,
    by_dst: BTreeSet<Pair>,
    /// The number of paths by the port that asked for them.
    asked_by: Counts,
    revisions: u64,
    count_max: usize,
    per_switch_max: usize,
    per_port_max: usize,
}

pub(super) struct Path {
    pair: Pair,
    /// The hops from the ingress on; in hybrid mode the ingress only.
    hops: Vec<Hop>,
    /// The port whose share the path uses: where the conversation began.
    asked_by: Location,
    /// Rules beside the pair's entry at the ingress.
    rules: Vec<PairRule>,
    revision: u64,
    sent_at: Instant,
    setup: Setup,
    /// The entry of the old route, while it waits for a pause.
    yielding: Option<PauseWait>,
}

/// The reason to send a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// A packet has missed: existing entries are sent too. The name is released when all of them
    /// are active.
    Again(Option<Token>),
    /// The path takes another route from now on. Packets leave the old route this long after the
    /// entries that the new route needs were confirmed. Zero if the old route is dead: then a
    /// packet that misses on the new route is better off.
    Moved(Duration),
    /// The path moves as above, but during this time only in a pause.
    InPause(Duration),
}

/// Whether the switches have confirmed this path's entries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Setup {
    /// No confirmation was asked for.
    Unasked,
    UnderWay(Token),
    Confirmed,
}

impl How {
    fn token(self) -> Option<Token> {
        match self {
            How::Again(token) => token,
            How::Moved(_) | How::InPause(_) => None,
        }
    }

    /// The delay before an entry that replaces another.
    fn delay(self) -> Duration {
        match self {
            How::Again(_) => Duration::ZERO,
            How::Moved(settle) => settle,
            How::InPause(_) => SETTLE,
        }
    }
}

/// The progress of a path towards being active.
pub(super) enum Progress {
    /// Its entries are to be sent.
    Unsent,
    /// Its entries were sent under this name.
    UnderWay(Token),
    Done,
}

impl Paths {
    /// Makes a table without paths. With a secret `seed` no host can choose addresses that collide.
    pub(super) fn new(config: &ControllerConfig, seed: u64) -> Paths {
        Paths {
            paths: Indexed::new(seed),
            by_src: BTreeSet::new(),
            by_dst: BTreeSet::new(),
            asked_by: Counts::default(),
            revisions: 0,
            count_max: config.path_count_max,
            per_switch_max: config.paths_per_switch_max,
            per_port_max: config.paths_per_port_max,
        }
    }

    /// Sets other limits. Paths beyond them stay.
    pub(super) fn set_limits(&mut self, config: &ControllerConfig) {
        self.count_max = config.path_count_max;
        self.per_switch_max = config.paths_per_switch_max;
        self.per_port_max = config.paths_per_port_max;
    }

    pub(super) fn len(&self) -> usize {
        self.paths.len()
    }

    /// All paths, in the order of their pairs.
    fn iter(&self) -> impl Iterator<Item = &Path> {
        self.by_src.iter().filter_map(|pair| self.paths.get(*pair))
    }

    pub(super) fn contains(&self, pair: Pair) -> bool {
        self.paths.contains(pair)
    }

    /// Pairs that begin or end at a host.
    pub(super) fn of_host(&self, mac: MacAddr) -> Vec<Pair> {
        let to = self.by_dst.range(pairs_from(mac));
        let from = self.by_src.range(pairs_from(mac));
        let to = to.map(|(dst, src)| (*src, *dst));
        from.copied().chain(to).collect()
    }

    /// Whether a pair begins or ends at a host.
    pub(super) fn has_host(&self, mac: MacAddr) -> bool {
        let from = self.by_src.range(pairs_from(mac)).next();
        from.is_some() || self.by_dst.range(pairs_from(mac)).next().is_some()
    }

    pub(super) fn revision(&self, pair: Pair) -> Option<u64> {
        self.paths.get(pair).map(|path| path.revision)
    }

    /// Whether the pair's path has this entry, or an entry that its rules may belong to.
    pub(super) fn holds(&self, pair: Pair, dpid: DatapathId, key: EntryKey) -> bool {
        let key = key.without_rule();
        let held = |hop: &Hop| hop.dpid == dpid && hop.key(pair) == key;
        self.paths
            .get(pair)
            .is_some_and(|path| path.hops.iter().any(held))
    }

    /// Whether a path has the entry of this row.
    pub(super) fn has_row(&self, dpid: DatapathId, row: RowKey) -> bool {
        let (pair, key) = ((row.src, row.dst), row.entry_key());
        match row.rule {
            Some(_) => self.has_rule(pair, dpid, key),
            None => self.holds(pair, dpid, key),
        }
    }

    /// The out-port of the path that has this entry of a switch.
    pub(super) fn way(&self, dpid: DatapathId, key: EntryKey) -> Option<PortNo> {
        let pair = key.eth_src.zip(key.eth_dst)?;
        let hops = &self.paths.get(pair)?.hops;
        let here = |hop: &&Hop| hop.dpid == dpid && hop.key(pair) == key;
        hops.iter().find(here).map(|hop| hop.out_port)
    }

    pub(super) fn hops(&self) -> impl Iterator<Item = (Pair, &[Hop])> {
        self.iter().map(|path| (path.pair, &path.hops[..]))
    }

    /// Whether paths begin at either port.
    pub(super) fn enter_at(&self, a: Location, b: Location) -> bool {
        let mut first = self.hops().filter_map(|(_, hops)| hops.first());
        first.any(|hop| hop.entrance() == a || hop.entrance() == b)
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = Pair> {
        self.by_src.iter().copied()
    }

    /// When this revision of a path was sent.
    pub(super) fn sent_at(&self, pair: Pair, revision: u64) -> Option<Instant> {
        let path = self.paths.get(pair);
        path.filter(|path| path.revision == revision)
            .map(|path| path.sent_at)
    }

    /// Whether some path has this entry of a switch.
    pub(super) fn owns(&self, dpid: DatapathId, key: EntryKey) -> bool {
        let pair = key.eth_src.zip(key.eth_dst);
        pair.is_some_and(|pair| self.holds(pair, dpid, key))
    }

    /// Notes that every switch has confirmed the entries sent under this name.
    pub(super) fn confirmed(&mut self, pair: Pair, token: Token) {
        let path = self.paths.get_mut(pair);
        if let Some(path) = path.filter(|path| path.setup == Setup::UnderWay(token)) {
            path.setup = Setup::Confirmed;
        }
    }

    /// Takes a path over from the entries of an earlier process; sends nothing.
    pub(super) fn adopt(&mut self, now: Instant, pair: Pair, hops: Vec<Hop>) {
        if let Some(first) = hops.first().filter(|_| self.paths.len() < self.count_max) {
            let asked_by = first.inlet();
            self.insert(now, pair, hops, asked_by);
        }
    }

    /// The pairs whose path is broken, or one of whose hosts is in `moved`. `moved` is sorted.
    pub(super) fn broken(&self, net: &Network, hosts: &Hosts, moved: &[MacAddr]) -> Vec<Pair> {
        let broken = |path: &Path| {
            let pair = path.pair;
            (has_moved(moved, pair) || !path.is_whole(net, hosts, pair)).then_some(pair)
        };
        self.iter().filter_map(broken).collect()
    }

    /// Whether the pair's entries were sent a moment ago.
    pub(super) fn is_recent(&self, now: Instant, pair: Pair) -> bool {
        let path = self.paths.get(pair);
        path.is_some_and(|path| now.since(path.sent_at) < REPAIR_INTERVAL)
    }

    /// The progress of a path, for a caller that waits until it is active. `missed`: a packet has
    /// reached the controller for lack of the path.
    pub(super) fn progress(&self, now: Instant, pair: Pair, missed: bool) -> Progress {
        let Some(path) = self.paths.get(pair) else {
            return Progress::Unsent;
        };
        let is_recent = self.is_recent(now, pair);
        match path.setup {
            Setup::UnderWay(token) => Progress::UnderWay(token),
            Setup::Confirmed if is_recent || !missed => Progress::Done,
            Setup::Unasked if !is_recent && !missed => Progress::Done,
            // Sent once more, since its progress is unknown.
            Setup::Unasked | Setup::Confirmed => Progress::Unsent,
        }
    }

    pub(super) fn hops_of(&self, pair: Pair) -> Option<&[Hop]> {
        self.paths.get(pair).map(|path| &path.hops[..])
    }

    pub(super) fn is_full(&self) -> bool {
        self.paths.len() >= self.count_max
    }

    /// Notes a path in place of its pair's former one.
    pub(super) fn replace(
        &mut self,
        facts: Facts<'_>,
        now: Instant,
        (pair, hops): (Pair, Vec<Hop>),
        how: How,
        asked_by: Location,
    ) -> Replacement {
        let (old, old_rules, unsettled) = match self.remove(pair) {
            Some(path) => (path.hops, path.rules, path.yielding),
            None => (Vec::new(), Vec::new(), None),
        };
        // It is unknown which entry packets match at the switch where they were to change route.
        let is_again = matches!(how, How::Again(_)) || unsettled.is_some();
        let revision = self.insert(now, pair, hops.clone(), asked_by);
        let mut rules = facts.rules_of(pair);
        let is_begun = !is_again && hops.first() == old.first() && is_same(&rules, &old_rules);
        if is_begun {
            rules.clone_from(&old_rules);
        }
        self.set_rules(pair, rules.clone());
        if let Some(path) = self.paths.get_mut(pair) {
            path.setup = how.token().map_or(Setup::Unasked, Setup::UnderWay);
        }
        Replacement {
            pair,
            how,
            revision,
            hops,
            rules,
            old,
            old_rules,
            unsettled,
            is_again,
            is_begun,
        }
    }

    /// The changes that set a path, make before break: new entries first, then entries that replace
    /// one with the same match, starting at the destination, then the deletion of the rest. Entries
    /// that drop some of the pair's packets are set before any entry that forwards.
    pub(super) fn changes(
        &mut self,
        facts: Facts<'_>,
        coarse: &SharedEntries,
        new: Replacement,
        (beginning, table_s): (Beginning, Option<u16>),
    ) -> Vec<Stage> {
        let (mut first, mut replace) = new.adds(facts, coarse, beginning, table_s);
        let mut stale = new.deletes();
        let (how, place) = (new.how, (new.pair, new.revision));
        if let (How::InPause(wait), None) = (how, &new.unsettled) {
            let stages = (&mut first, &mut replace, new.old);
            let last = self.turn_in_pause(facts.tables, place, stages, wait);
            stale.extend(last.into_iter().flatten());
        }
        std::iter::once(first)
            .chain(replace)
            .chain(how.token().into_iter().flat_map(Stage::tell))
            .chain([Stage::drain(stale)])
            .collect()
    }

    /// Returns the changes of ingress entries that the routes under way require. In hybrid mode a
    /// path is its ingress entry, and the routes do the rest: they forward only packets that arrive
    /// over a shortest path.
    pub(super) fn follow_routes(
        &mut self,
        facts: Facts<'_>,
        coarse: &SharedEntries,
        now: Instant,
        counters: &mut ControllerCounters,
    ) -> Vec<Change> {
        let mut trees: BTreeMap<DatapathId, Distances> = BTreeMap::new();
        let mut astray = Vec::new();
        for path in self.iter() {
            let pair = &path.pair;
            let (Some(to), [hop]) = (facts.hosts.place(pair.1), &path.hops[..]) else {
                continue;
            };
            let search = || {
                let is_connected = |dpid| facts.net.is_connected(dpid);
                facts.net.links.distances(to.dpid, is_connected)
            };
            let distances = trees.entry(to.dpid).or_insert_with(search);
            let out = Location::new(hop.dpid, hop.out_port);
            let goes_on = hop.dpid != to.dpid && !facts.net.links.is_shortest(out, distances);
            if goes_on && let Some(from) = facts.hosts.place(pair.0) {
                astray.push((*pair, *hop, from, to));
            }
        }
        let mut changes = Vec::new();
        for (pair, old, from, to) in astray {
            let Some(hops) = facts.find_path(coarse, pair, from, to) else {
                continue;
            };
            if hops[0].key(pair) != old.key(pair) || hops[0].dpid != old.dpid {
                // Its host has moved, which is handled elsewhere.
                continue;
            }
            counters.paths_rerouted += 1;
            let (hop, rules) = (hops[0], facts.rules_of(pair));
            let asked_by = self.asked_by(pair).unwrap_or(from);
            let revision = self.insert(now, pair, hops, asked_by);
            let beginning = facts.beginning(pair, revision, &hop, &rules, None);
            self.set_rules(pair, rules);
            changes.extend(beginning.drops.into_iter().chain(beginning.leads));
        }
        changes
    }

    /// Ends a path, ingress first, without the entry that its switch reports removed (`gone`).
    /// Deleting that entry too would delay the next one: Open vSwitch makes one change of its table
    /// after the other, and would be at the first change when the second arrives.
    pub(super) fn end(
        &mut self,
        tables: &Tables,
        coarse: &SharedEntries,
        pair: Pair,
        gone: Option<DatapathId>,
    ) -> Vec<Stage> {
        let Some(path) = self.remove(pair) else {
            return Vec::new();
        };
        let delete = |hop: &Hop| Change {
            dpid: hop.dpid,
            step: Step::Delete(hop.key(pair)),
            guard: Guard::Stale(pair),
        };
        let is_coarse = |hop: &&Hop| {
            let table = tables.get(hop.dpid);
            let has_own = table.is_some_and(|s| s.entries().contains_key(&hop.key(pair)));
            coarse.carries(hop, pair.1) && !has_own
        };
        let (first, rest) = path.hops.split_at(1.min(path.hops.len()));
        let is_there = |key: EntryKey, dpid| {
            let table = tables.get(dpid);
            gone != Some(dpid) || table.is_some_and(|s| s.entries().contains_key(&key))
        };
        let first = first.iter().filter(|hop| is_there(hop.key(pair), hop.dpid));
        let successors = path.yielding.iter();
        let successors = successors.flat_map(|y| y.delete_successors(pair));
        let rules = stale_rules(pair, (&path.hops, &path.rules), (&[], &[])).into_iter();
        let rules = rules.filter(|change| match change.step {
            Step::Delete(key) => is_there(key, change.dpid),
            Step::Add(_) => true,
        });
        let rest = rest.iter().filter(|hop| !is_coarse(hop));
        vec![
            Stage::of(first.map(delete).chain(successors).chain(rules).collect()),
            Stage::drain(rest.map(delete).collect()),
        ]
    }

    fn insert(&mut self, now: Instant, pair: Pair, hops: Vec<Hop>, asked_by: Location) -> u64 {
        self.remove(pair);
        self.revisions += 1;
        let revision = self.revisions;
        self.by_src.insert(pair);
        self.by_dst.insert((pair.1, pair.0));
        self.asked_by.add(asked_by);
        self.paths.insert(Path {
            pair,
            hops,
            asked_by,
            rules: Vec::new(),
            revision,
            sent_at: now,
            setup: Setup::Unasked,
            yielding: None,
        });
        revision
    }

    pub(super) fn remove(&mut self, pair: Pair) -> Option<Path> {
        let path = self.paths.remove(pair)?;
        self.by_src.remove(&pair);
        self.by_dst.remove(&(pair.1, pair.0));
        self.asked_by.remove(path.asked_by);
        Some(path)
    }

    /// The port whose share a new path uses, if `asker` sends its first packet. A reply belongs to
    /// the conversation that it answers: a host that many hosts query does not pay for it.
    pub(super) fn asker(&self, (src, dst): Pair, asker: Location) -> Location {
        let asked = self.paths.get((dst, src));
        asked.map_or(asker, |path| path.asked_by)
    }

    pub(super) fn asked_by(&self, pair: Pair) -> Option<Location> {
        self.paths.get(pair).map(|path| path.asked_by)
    }

    pub(super) fn is_over_share(&self, asked_by: Location) -> bool {
        self.asked_by.of_port(asked_by) >= self.per_port_max
            || self.asked_by.of_switch(asked_by.dpid) >= self.per_switch_max
    }
}

impl Keyed for Path {
    type Key = Pair;

    fn key(&self) -> Pair {
        self.pair
    }

    fn words((src, dst): Pair) -> [u64; 2] {
        [src.to_u64(), dst.to_u64()]
    }
}

impl Path {
    fn is_whole(&self, net: &Network, hosts: &Hosts, pair: Pair) -> bool {
        let up = |dpid, port| net.is_up(Location { dpid, port });
        let is_left = |old: &PauseWait| old.has_ended() || net.links.join(&old.hops);
        let linked = net.links.join(&self.hops) && self.yielding.as_ref().is_none_or(is_left);
        let (Some(first), Some(last)) = (self.hops.first(), self.hops.last()) else {
            return false;
        };
        let ends_up = up(first.dpid, first.in_port) && up(last.dpid, last.out_port);
        // In hybrid mode the last hop noted is the ingress, and its out-port a link.
        let out = Location::new(last.dpid, last.out_port);
        let place = hosts.place(pair.1);
        let leads_on = place.is_none_or(|at| at == out) || net.links.peer(out).is_some();
        linked && ends_up && leads_on
    }
}

/// Every pair with this first address.
fn pairs_from(mac: MacAddr) -> RangeInclusive<Pair> {
    (mac, MacAddr([0; 6]))..=(mac, MacAddr([0xff; 6]))
}

impl Hop {
    pub(super) fn inlet(&self) -> Location {
        Location::new(self.dpid, self.in_port)
    }

    pub(super) fn key(&self, (src, dst): Pair) -> EntryKey {
        EntryKey::pair(self.in_port, src, dst)
    }
}

impl Facts<'_> {
    /// The hops of a shortest path; only the first hop in hybrid mode, where routes do the rest.
    pub(super) fn find_path(
        &self,
        coarse: &SharedEntries,
        pair: Pair,
        from: Location,
        to: Location,
    ) -> Option<Vec<Hop>> {
        let connected = |dpid| self.net.is_connected(dpid);
        let is_allowed = from != to && self.admits(pair);
        if !is_allowed || !connected(from.dpid) || !connected(to.dpid) {
            return None;
        }
        // Where switches report, packets before the entry take the route of their destination. So
        // the path takes it too: otherwise later packets could be faster. Where entries are coarse,
        // all paths of one route share them.
        let hash = match self.reports() || coarse.has(pair.1) {
            true => destination_hash(pair.1),
            false => pair_hash(pair),
        };
        let mut hops = self.net.links.path(from, to, connected, hash)?;
        if self.mode == Mode::Hybrid {
            hops.truncate(1);
        }
        Some(hops)
    }
}

/// A path that takes the place of its pair's former one.
pub(super) struct Replacement {
    pair: Pair,
    how: How,
    revision: u64,
    hops: Vec<Hop>,
    rules: Vec<PairRule>,
    old: Vec<Hop>,
    old_rules: Vec<PairRule>,
    /// The former path's wait for a pause.
    unsettled: Option<PauseWait>,
    /// Whether existing entries are sent too.
    is_again: bool,
    /// Whether the entries of the first hop are already in place.
    is_begun: bool,
}

impl Replacement {
    /// The entries of the first hop, whether or not they are sent.
    pub(super) fn beginning(&self, facts: Facts<'_>, table_s: Option<u16>) -> Beginning {
        let first = self.hops.first();
        first.map_or(Beginning::default(), |hop| {
            facts.beginning(self.pair, self.revision, hop, &self.rules, table_s)
        })
    }

    /// The entries to be set: those that replace none, and the others stage by stage.
    fn adds(
        &self,
        facts: Facts<'_>,
        coarse: &SharedEntries,
        beginning: Beginning,
        table_s: Option<u16>,
    ) -> (Stage, Vec<Stage>) {
        let (pair, delay) = (self.pair, self.how.delay());
        let mut first = Stage::default();
        let mut leads = Vec::new();
        if !self.is_begun {
            (first.changes, leads) = (beginning.drops, beginning.leads);
        }
        let own = |hop: &Hop| Change {
            dpid: hop.dpid,
            step: Step::Add(facts.pair_entry(pair, hop, false, table_s)),
            guard: Guard::Path(pair, self.revision),
        };
        let mut replace = Vec::new();
        for (at, hop) in self.hops.iter().enumerate().rev() {
            let unchanged = self.old.contains(hop);
            // A coarse entry may have carried the path, and may no longer exist.
            let is_there = match at {
                0 => self.is_begun,
                _ => unchanged && !self.is_again && facts.is_carried(pair, hop),
            };
            if is_there {
                continue;
            }
            let replaces = self.old.iter().any(|old| is_same_place(old, hop)) && !unchanged;
            let (changes, replaces) = match coarse.changes(facts, pair, hop) {
                _ if at == 0 => (std::mem::take(&mut leads), true),
                Some(coarse) => (coarse.changes, coarse.is_turned),
                None => (vec![own(hop)], replaces),
            };
            let was_turning = self.unsettled.as_ref().is_some_and(|y| y.is_at(hop, pair));
            // The ingress lets traffic in: its entry is set after all others, as a replacement is.
            if replaces || was_turning {
                replace.push(Stage {
                    delay,
                    ..Stage::of(changes)
                });
            } else {
                first.changes.extend(changes);
            }
        }
        (first, replace)
    }

    /// The deletion of the former entries that are not replaced.
    fn deletes(&self) -> Vec<Change> {
        let pair = self.pair;
        let is_stale = |old: &&Hop| !self.hops.iter().any(|hop| is_same_place(old, hop));
        let delete = |hop: &Hop| Change {
            dpid: hop.dpid,
            step: Step::Delete(hop.key(pair)),
            guard: Guard::Stale(pair),
        };
        let mut stale: Vec<Change> = self.old.iter().filter(is_stale).map(delete).collect();
        let (old, new) = (
            (&self.old[..], &self.old_rules[..]),
            (&self.hops[..], &self.rules[..]),
        );
        stale.extend(stale_rules(pair, old, new));
        let unsettled = self.unsettled.iter();
        stale.extend(unsettled.flat_map(|wait| wait.delete_successors(pair)));
        stale
    }
}

/// Whether two hops have entries of the same match in one switch.
fn is_same_place(a: &Hop, b: &Hop) -> bool {
    a.dpid == b.dpid && a.in_port == b.in_port
}

/// Whether one of the hosts is in `moved`, which is sorted.
pub(super) fn has_moved(moved: &[MacAddr], (src, dst): Pair) -> bool {
    [src, dst]
        .iter()
        .any(|mac| moved.binary_search(mac).is_ok())
}
