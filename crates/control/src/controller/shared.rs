//! Coarse entries, which pairs share: one entry for all packets to a host that arrive on one link.
//! They serve switches where more pairs are in use than the table has room for.
//!
//! A coarse entry matches only packets from another switch. At an edge port each pair still reaches
//! the controller once, so that the controller learns the sender and stops forbidden packets there.
//! Entries of pairs, including those that drop, have a higher priority than a coarse one. A coarse
//! entry uses the same out-port as the entries that it replaces, and forwards over known links
//! nearer to the host. So coarse entries alone never form a loop. While a host has coarse entries,
//! new paths to it share one route and need no entry there.
//!
//! A path whose hop is coarse stays unchanged. When links or hosts change, coarse entries are
//! updated or deleted, and paths that have lost their coarse entry are set again. When the table
//! has been calm for a while ([`Keeper::relief`](crate::timeouts::keeper::Keeper::relief)), the
//! controller sets entries of pairs again and deletes the coarse one.

use std::collections::{BTreeMap, BTreeSet};

use clock::Instant;
use openflow::message::FlowRemovedReason;
use openflow::{DatapathId, MacAddr, PortNo};

use crate::entry::{Entry, EntryKey, EntryKind};
use crate::timeouts::budget;
use crate::timeouts::leases::RowKey;

use super::facts::{Facts, facts};
use super::links::{Distances, Hop, Pair, destination_hash};
use super::port_state::PortRole;
use super::stage::{Change, Guard, Stage, Step};
use super::{Controller, Location, Mode};

/// Idle timeout of coarse entries where entries of pairs have no timeout.
const IDLE_S: u16 = 60;

/// The in-port, the destination and the out-port of packets.
type HopKey = (PortNo, MacAddr, PortNo);

/// The coarse entries that the switches should have.
#[derive(Default)]
pub(super) struct SharedEntries {
    /// The out-port of packets by destination and by in-port.
    ways: BTreeMap<MacAddr, BTreeMap<Location, PortNo>>,
    counts: BTreeMap<DatapathId, usize>,
}

impl SharedEntries {
    pub(super) fn has(&self, dst: MacAddr) -> bool {
        self.ways.contains_key(&dst)
    }

    pub(super) fn count(&self, dpid: DatapathId) -> usize {
        self.counts.get(&dpid).copied().unwrap_or(0)
    }

    pub(super) fn way(&self, at: Location, dst: MacAddr) -> Option<PortNo> {
        self.ways.get(&dst)?.get(&at).copied()
    }

    /// Whether packets of a path need no entry of their own at this hop.
    pub(super) fn carries(&self, hop: &Hop, dst: MacAddr) -> bool {
        self.way(hop.entrance(), dst) == Some(hop.out_port)
    }

    pub(super) fn set(&mut self, at: Location, dst: MacAddr, out: PortNo) {
        if self.ways.entry(dst).or_default().insert(at, out).is_none() {
            *self.counts.entry(at.dpid).or_default() += 1;
        }
    }

    fn remove(&mut self, at: Location, dst: MacAddr) {
        let Some(ways) = self.ways.get_mut(&dst) else {
            return;
        };
        if ways.remove(&at).is_some()
            && let Some(count) = self.counts.get_mut(&at.dpid)
        {
            *count -= 1;
        }
        if ways.is_empty() {
            self.ways.remove(&dst);
        }
        self.counts.retain(|_, count| *count > 0);
    }

    fn iter(&self) -> impl Iterator<Item = (MacAddr, Location, PortNo)> + '_ {
        let ways = self.ways.iter();
        ways.flat_map(|(dst, ways)| ways.iter().map(|(at, out)| (*dst, *at, *out)))
    }

    /// Chooses the coarse entries that free up to `excess` entries of a table in which all are in
    /// use. Returns these coarse entries, and the number of entries that they do not free.
    fn choose(&mut self, facts: Facts<'_>, dpid: DatapathId, excess: u32) -> (Vec<Choice>, u32) {
        if excess == 0 || !facts.may_coarsen() {
            return (Vec::new(), excess);
        }
        let mut by_way = facts.coarsenable(dpid);
        let ways = by_way
            .iter()
            .flat_map(|(way, rows)| rows.iter().map(|_| *way));
        let chosen = budget::coarsen(ways, excess);
        let table = facts.tables.get(dpid);
        let mut free = table.and_then(|table| table.free()).unwrap_or(0);
        let mut entrances = BTreeSet::new();
        let mut choices = Vec::new();
        let mut freed = 0;
        for (nth, (way, frees)) in chosen.into_iter().enumerate() {
            freed += frees;
            let (port, dst, out) = way;
            let at = Location { dpid, port };
            let is_other = self.way(at, dst).is_some_and(|taken| taken != out);
            // Entries that fit only after others are deleted wait for the next reading.
            let is_for_now = nth == 0 || free > 0;
            if !is_other && is_for_now && entrances.insert((port, dst)) {
                self.set(at, dst, out);
                choices.push(Choice {
                    entry: facts.coarse_entry(port, dst, out),
                    rows: by_way.remove(&way).unwrap_or_default(),
                    is_full: free == 0,
                });
                free = free.saturating_sub(1);
            }
        }
        (choices, excess.saturating_sub(freed))
    }

    /// Whether a change of the table of `dpid` agrees with the coarse entries that it should have.
    /// `way_of_path`: the out-port of the path that has an entry there.
    pub(super) fn agrees(
        &self,
        dpid: DatapathId,
        step: &Step,
        way_of_path: impl Fn(EntryKey) -> Option<PortNo>,
    ) -> bool {
        let way = |key: &EntryKey| {
            let port = key.in_port?;
            self.way(Location { dpid, port }, key.eth_dst?)
        };
        match step {
            Step::Add(entry) => way(&entry.key) == Some(entry.out),
            Step::Delete(key) if key.is_coarse() => way(key).is_none(),
            // A deletion of a pair's entry that a coarse entry replaces.
            Step::Delete(key) => way(key).is_some_and(|way| {
                let own = way_of_path(*key);
                own.is_none_or(|own| own == way)
            }),
        }
    }

    /// The changes at a path's hop that is coarse: the coarse entry is sent again, and no entry of
    /// the pair may forward elsewhere. `None` if the hop needs its own entry.
    pub(super) fn changes(&self, facts: Facts<'_>, pair: Pair, hop: &Hop) -> Option<HopChanges> {
        if !self.carries(hop, pair.1) {
            return None;
        }
        let dpid = hop.dpid;
        let entries = facts.tables.get(dpid).map(|table| table.entries());
        let out = |key: EntryKey| entries.and_then(|e| e.get(&key)).map(|entry| entry.out);
        let entry = facts.coarse_entry(hop.in_port, pair.1, hop.out_port);
        let is_other = |out: Option<PortNo>| out.is_some_and(|out| out != hop.out_port);
        let (own, coarse) = (out(hop.key(pair)), out(entry.key));
        let steps = std::iter::once(Step::Add(entry))
            .chain(is_other(own).then(|| Step::Delete(hop.key(pair))));
        let changes = steps.map(|step| Change {
            dpid,
            step,
            guard: Guard::Coarse,
        });
        Some(HopChanges {
            changes: changes.collect(),
            is_turned: is_other(own) || is_other(coarse),
        })
    }

    /// Mends coarse entries after links or hosts may have moved. Redirects entries that do not
    /// forward nearer to their host, and deletes entries that are not allowed. Returns their hosts,
    /// and the changes.
    fn mend(&mut self, facts: Facts<'_>, now: Instant) -> (BTreeSet<MacAddr>, Vec<Stage>) {
        let mut trees = BTreeMap::new();
        let mut changed: Vec<(MacAddr, Location, Option<PortNo>, u32)> = Vec::new();
        for (dst, at, out) in self.iter() {
            let right = facts.right_way(now, at, dst, out, &mut trees);
            if right != Some(out) {
                let home = facts.hosts.place(dst);
                let distance = home.and_then(|to| trees.get(&to.dpid)?.get(&at.dpid));
                changed.push((dst, at, right, distance.copied().unwrap_or(0)));
            }
        }
        // The nearest first, like routes; deletions at once.
        changed.sort_by_key(|(_, _, right, distance)| (right.is_some(), *distance));
        let mut by_distance: BTreeMap<u32, Vec<Change>> = BTreeMap::new();
        for (dst, at, right, distance) in &changed {
            let step = match right {
                Some(out) => {
                    self.set(*at, *dst, *out);
                    Step::Add(facts.coarse_entry(at.port, *dst, *out))
                }
                None => {
                    self.remove(*at, *dst);
                    Step::Delete(EntryKey::coarse(at.port, *dst))
                }
            };
            let order = right.map_or(0, |_| distance + 1);
            by_distance.entry(order).or_default().push(Change {
                dpid: at.dpid,
                step,
                guard: Guard::Coarse,
            });
        }
        let hosts = changed.into_iter().map(|(dst, ..)| dst).collect();
        let stages = by_distance.into_values().map(Stage::of).collect();
        (hosts, stages)
    }

    /// Forgets a switch and its coarse entries.
    pub(super) fn forget(&mut self, dpid: DatapathId) {
        let of = self.iter().filter(|(_, at, _)| at.dpid == dpid);
        for (dst, at, _) in of.collect::<Vec<_>>() {
            self.remove(at, dst);
        }
    }

    /// The coarse entries of a switch whose pairs have room for entries of their own, beginning
    /// with the entry of the fewest pairs.
    fn refinements<'a>(
        &self,
        paths: impl Iterator<Item = (Pair, &'a [Hop])>,
        dpid: DatapathId,
        mut room: u32,
    ) -> Vec<Refinement> {
        let mut carried: BTreeMap<(MacAddr, Location), Vec<(Pair, Hop)>> = BTreeMap::new();
        for (dst, at, _) in self.iter().filter(|(_, at, _)| at.dpid == dpid) {
            carried.insert((dst, at), Vec::new());
        }
        for (pair, hops) in paths {
            let here = hops.iter().filter(|hop| hop.dpid == dpid);
            for hop in here.filter(|hop| self.carries(hop, pair.1)) {
                if let Some(pairs) = carried.get_mut(&(pair.1, hop.entrance())) {
                    pairs.push((pair, *hop));
                }
            }
        }
        let mut by_size: Vec<_> = carried.into_iter().collect();
        by_size.sort_by_key(|(_, pairs)| pairs.len());
        let fits = |(_, pairs): &(_, Vec<_>)| {
            let left = room.checked_sub(pairs.len() as u32);
            room = left.unwrap_or(room);
            left.is_some()
        };
        by_size.into_iter().take_while(fits).collect()
    }
}

impl Hop {
    pub(super) fn entrance(&self) -> Location {
        let (dpid, port) = (self.dpid, self.in_port);
        Location { dpid, port }
    }
}

/// A coarse entry, and the entries that it replaces.
struct Choice {
    entry: Entry,
    rows: Vec<RowKey>,
    /// Whether the table has room for the coarse entry only after one of these entries is deleted.
    is_full: bool,
}

/// A coarse entry, by its destination and in-port, and the pairs that get entries of their own.
type Refinement = ((MacAddr, Location), Vec<(Pair, Hop)>);

/// The changes that give a path its entry at a hop.
pub(super) struct HopChanges {
    pub changes: Vec<Change>,
    /// Whether the existing entry forwards elsewhere.
    pub is_turned: bool,
}

impl Facts<'_> {
    /// Whether coarse entries make sense in this mode: where routes lead to hosts all the time,
    /// entries of pairs exist at ingresses only.
    fn may_coarsen(&self) -> bool {
        self.mode == Mode::Reactive && !self.has_routes()
    }

    /// Entries of pairs that a coarse entry may replace, by in-port, destination and out-port.
    fn coarsenable(&self, dpid: DatapathId) -> BTreeMap<HopKey, Vec<RowKey>> {
        let mut by_way: BTreeMap<HopKey, Vec<RowKey>> = BTreeMap::new();
        let mut trees = BTreeMap::new();
        let Some(table) = self.tables.get(dpid) else {
            return by_way;
        };
        for row in table.coarsenable() {
            let entry = table.entries().get(&row.entry_key());
            let Some(entry) = entry.filter(|entry| entry.kind == EntryKind::Pair) else {
                continue;
            };
            let port = row.in_port;
            let at = Location { dpid, port };
            let is_right = self.net.role(at) == PortRole::Link
                && self.leads(at, row.dst, entry.out, &mut trees);
            if is_right {
                let way = (port, row.dst, entry.out);
                by_way.entry(way).or_default().push(row);
            }
        }
        by_way
    }

    /// Whether packets for `dst` get nearer to it by this port. This includes all known links,
    /// whether or not their switches are connected, so coarse entries of one host always agree on
    /// the direction.
    fn leads(
        &self,
        at: Location,
        dst: MacAddr,
        out: PortNo,
        trees: &mut BTreeMap<DatapathId, Distances>,
    ) -> bool {
        let Some(home) = self.hosts.place(dst) else {
            return false;
        };
        if out == at.port {
            return false;
        }
        let dpid = at.dpid;
        if home.dpid == dpid {
            return home.port == out;
        }
        let distances = self.tree(home.dpid, trees);
        self.net
            .links
            .is_shortest(Location { dpid, port: out }, distances)
    }

    fn tree<'a>(
        &self,
        to: DatapathId,
        trees: &'a mut BTreeMap<DatapathId, Distances>,
    ) -> &'a Distances {
        let search = || self.net.links.distances(to, |_| true);
        trees.entry(to).or_insert_with(search)
    }

    fn coarse_entry(&self, in_port: PortNo, dst: MacAddr, out: PortNo) -> Entry {
        let idle_timeout_s = match self.timeouts_past_ingress() {
            (0, 0) => IDLE_S,
            (0, hard_s) => hard_s,
            (idle_s, _) => idle_s,
        };
        Entry {
            key: EntryKey::coarse(in_port, dst),
            kind: EntryKind::Coarse,
            out,
            idle_timeout_s,
            hard_timeout_s: 0,
            notify: true,
        }
    }

    /// Whether an entry at its switch carries a path's packets there.
    pub(super) fn is_carried(&self, pair: Pair, hop: &Hop) -> bool {
        let entries = self.tables.get(hop.dpid).map(|table| table.entries());
        let out = |key: EntryKey| entries.and_then(|e| e.get(&key)).map(|entry| entry.out);
        let coarse = EntryKey::coarse(hop.in_port, pair.1);
        out(hop.key(pair)).or_else(|| out(coarse)) == Some(hop.out_port)
    }

    /// The out-port that a coarse entry should have now: its present port, unless that port is
    /// wrong.
    fn right_way(
        &self,
        now: Instant,
        at: Location,
        dst: MacAddr,
        out: PortNo,
        trees: &mut BTreeMap<DatapathId, Distances>,
    ) -> Option<PortNo> {
        let is_up = |port| {
            let place = Location::new(at.dpid, port);
            self.net.is_up(place)
        };
        let Some(home) = self.hosts.place(dst) else {
            // The entry may have been adopted, and its host may not yet have sent a packet.
            let may_be = self.net.role(at) != PortRole::Edge && self.net.is_young(now, at.dpid);
            return (may_be && is_up(at.port) && is_up(out)).then_some(out);
        };
        if self.net.role(at) != PortRole::Link {
            let role = self.net.role(at);
            let is_held = !matches!(role, PortRole::Gone | PortRole::Edge);
            return (is_held && self.leads(at, dst, out, trees)).then_some(out);
        }
        if self.leads(at, dst, out, trees) {
            return is_up(out).then_some(out);
        }
        let right = if home.dpid == at.dpid {
            Some(home.port)
        } else {
            let distances = self.tree(home.dpid, trees);
            let hash = destination_hash(dst);
            self.net.links.next_port(at.dpid, distances, hash)
        };
        right.filter(|port| *port != at.port && is_up(*port))
    }

    /// Adopts an entry that an earlier controller has left. Returns whether the entry may stay.
    pub(super) fn adopts_coarse(&self, now: Instant, dpid: DatapathId, entry: &Entry) -> bool {
        let (Some(port), Some(dst)) = (entry.key.in_port, entry.key.eth_dst) else {
            return false;
        };
        let at = Location { dpid, port };
        let right = self.right_way(now, at, dst, entry.out, &mut BTreeMap::new());
        self.may_coarsen() && right == Some(entry.out)
    }
}

impl Controller {
    /// Frees up to `excess` entries of a table in which all are in use. Returns the number that it
    /// could not free.
    pub(super) fn coarsen(&mut self, now: Instant, dpid: DatapathId, excess: u32) -> u32 {
        let (choices, rest) = self.coarse.choose(facts!(self), dpid, excess);
        for choice in choices {
            self.replace(now, dpid, &choice);
        }
        rest
    }

    /// Sets the coarse entry, then deletes the entries that it replaces. In a full table, deletes
    /// the first of them beforehand.
    fn replace(&mut self, now: Instant, dpid: DatapathId, choice: &Choice) {
        let Choice {
            entry,
            rows,
            is_full,
        } = choice;
        if let Some(table) = self.tables.get_mut(dpid) {
            table.handle_coarse(now, entry.key, rows.len());
        }
        let delete = |row: &RowKey| Change {
            dpid,
            step: Step::Delete(row.entry_key()),
            guard: Guard::Coarse,
        };
        let (first, rest) = rows.split_at(usize::from(*is_full).min(rows.len()));
        let add = Change {
            dpid,
            step: Step::Add(*entry),
            guard: Guard::Coarse,
        };
        let stages = vec![
            Stage::of(first.iter().map(delete).collect()),
            Stage::of(vec![add]),
            Stage::drain(rest.iter().map(delete).collect()),
        ];
        self.start_update(now, stages);
    }

    /// Mends coarse entries after links or hosts may have moved. Returns the hosts of the changed
    /// entries.
    pub(super) fn mend_coarse(&mut self, now: Instant) -> BTreeSet<MacAddr> {
        let (hosts, stages) = self.coarse.mend(facts!(self), now);
        self.start_update(now, stages);
        hosts
    }

    /// Mends the paths to these hosts that lost a coarse entry. Sets these paths again where there
    /// is room, and removes the others, so that their next packet reaches the controller.
    pub(super) fn mend_carried(
        &mut self,
        now: Instant,
        dsts: &BTreeSet<MacAddr>,
        mended: &BTreeSet<Pair>,
    ) {
        let lost = self.paths.hops().filter(|(pair, hops)| {
            let is_lost = |hop: &Hop| !self.facts().is_carried(*pair, hop);
            dsts.contains(&pair.1) && !mended.contains(pair) && hops.iter().skip(1).any(is_lost)
        });
        let lost: Vec<Pair> = lost.map(|(pair, _)| pair).collect();
        for pair in lost {
            self.move_or_drop(now, pair);
        }
    }

    /// Mends coarse entries, and the paths that have lost one, after a change that is not of a path
    /// or is unknown.
    pub(super) fn refresh_coarse(&mut self, now: Instant) {
        let changed = self.mend_coarse(now);
        if !changed.is_empty() {
            self.mend_carried(now, &changed, &BTreeSet::new());
        }
    }

    /// Handles a switch's report that a coarse entry has ended. The entry may have been set again
    /// meanwhile, which the report does not show. So the entry is deleted, and a path that needs it
    /// asks again.
    pub(super) fn coarse_ended(
        &mut self,
        dpid: DatapathId,
        key: EntryKey,
        reason: FlowRemovedReason,
    ) {
        if reason != FlowRemovedReason::DELETE {
            self.drop_coarse(dpid, key);
        }
    }

    pub(super) fn drop_coarse(&mut self, dpid: DatapathId, key: EntryKey) {
        if let (Some(port), Some(dst)) = (key.in_port, key.eth_dst) {
            self.coarse.remove(Location { dpid, port }, dst);
        }
        if let Some(table) = self.tables.get_mut(dpid) {
            table.forget(&key);
            table.handle_removed(key);
        }
        self.outbox.send_flow_mod(dpid, key.to_delete());
    }

    /// Sets entries of pairs again while the table has room, beginning with the coarse entry of the
    /// fewest pairs.
    pub(super) fn relieve(&mut self, now: Instant, dpid: DatapathId) {
        if self.coarse.count(dpid) == 0 {
            return;
        }
        let table = self.tables.get_mut(dpid);
        if let Some(room) = table.and_then(|table| table.relief(now)) {
            for ((dst, at), pairs) in self.coarse.refinements(self.paths.hops(), dpid, room) {
                self.refine(now, at, dst, &pairs);
            }
        }
    }

    /// Gives all pairs their own entry, then deletes the coarse entry.
    fn refine(&mut self, now: Instant, at: Location, dst: MacAddr, pairs: &[(Pair, Hop)]) {
        self.coarse.remove(at, dst);
        let mut adds = Vec::new();
        for (pair, hop) in pairs {
            let admitted = self.admit_path(now, *pair, &[*hop]);
            if let (Ok(table_s), Some(revision)) = (admitted, self.paths.revision(*pair)) {
                let entry = self.facts().pair_entry(*pair, hop, false, table_s);
                adds.push(Change {
                    dpid: at.dpid,
                    step: Step::Add(entry),
                    guard: Guard::Path(*pair, revision),
                });
            }
        }
        if let Some(table) = self.tables.get_mut(at.dpid) {
            table.handle_refined(adds.len());
        }
        let coarse = Change {
            dpid: at.dpid,
            step: Step::Delete(EntryKey::coarse(at.port, dst)),
            guard: Guard::Coarse,
        };
        self.start_update(now, vec![Stage::of(adds), Stage::drain(vec![coarse])]);
    }
}
