//! Sets, moves and ends paths: finds room for them, and sends the changes that the path machine
//! returns.

use clock::{Duration, Instant};
use openflow::{DatapathId, MacAddr};

use super::facts::{Facts, facts};
use super::ingress::Inlets;
use super::links::{Hop, Pair};
use super::paths::{BEHIND_MAX, How, Progress};
use super::stage::{Step, Token};
use super::{Controller, Location};

impl Controller {
    /// Sets a path from `from` to `to`, or sends it again if packets still miss. Returns false if
    /// the port at `from` requests too many paths.
    pub(super) fn ensure_path(
        &mut self,
        now: Instant,
        src: MacAddr,
        dst: MacAddr,
        from: Location,
        to: Location,
    ) -> bool {
        let pair = (src, dst);
        // Entries of a path name only one port.
        if self.is_bonded(from, to) {
            return false;
        }
        if self.paths.is_recent(now, pair) {
            return true;
        }
        let Some(asked_by) = self.may_ask(now, pair, from) else {
            return false;
        };
        if let Some(hops) = self.new_path(now, pair, from, to) {
            self.set_path(now, pair, hops, How::Again(None), asked_by);
        }
        true
    }

    /// The port whose share a path uses if its first packet arrived at `asker`. `None`, and
    /// counted, if that port has used up its share of paths, or of new paths.
    fn may_ask(&mut self, now: Instant, pair: Pair, asker: Location) -> Option<Location> {
        if let Some(asked_by) = self.paths.asked_by(pair) {
            return Some(asked_by);
        }
        let asked_by = self.paths.asker(pair, asker);
        if self.network.says_both(pair) {
            return Some(asked_by);
        }
        if self.paths.is_over_share(asked_by) {
            self.outbox.counters.paths_over_share += 1;
            return None;
        }
        if !self.ingress.may_begin_path(now, asked_by) {
            self.outbox.counters.paths_limited += 1;
            return None;
        }
        Some(asked_by)
    }

    /// Sets a path like [`Controller::ensure_path`], for a caller that waits until it is active.
    /// Returns the name of the entries that are not active yet. `asker` is the requesting port;
    /// `missed`: a packet has reached the controller for lack of the path.
    pub(super) fn confirm_path(
        &mut self,
        now: Instant,
        pair: Pair,
        from: Location,
        to: Location,
        (asker, missed): (Location, bool),
    ) -> Option<Token> {
        if self.is_bonded(from, to) {
            return None;
        }
        match self.paths.progress(now, pair, missed) {
            Progress::UnderWay(token) => return Some(token),
            Progress::Done => return None,
            Progress::Unsent => {}
        }
        let asked_by = self.may_ask(now, pair, asker)?;
        let hops = self.new_path(now, pair, from, to)?;
        let old = self.paths.hops_of(pair);
        let inlets = match old.is_none_or(|old| *old == hops[..]) {
            true => Inlets::Ports(hops.iter().map(Hop::inlet).collect()),
            false => Inlets::Unknown,
        };
        let token = self.first.token(Some(pair), inlets);
        self.set_path(now, pair, hops, How::Again(Some(token)), asked_by);
        Some(token)
    }

    /// The hops of a path to send; `None`, and counted, if there is no route or no room.
    fn new_path(
        &mut self,
        now: Instant,
        pair: Pair,
        from: Location,
        to: Location,
    ) -> Option<Vec<Hop>> {
        if !self.facts().admits(pair) {
            return None;
        }
        if !self.paths.contains(pair) && self.paths.is_full() {
            self.outbox.counters.path_table_full += 1;
            return None;
        }
        if self.outbox.is_behind(from.dpid, BEHIND_MAX)
            || self.outbox.is_behind(to.dpid, BEHIND_MAX)
        {
            self.outbox.counters.paths_put_off += 1;
            return None;
        }
        let Some(hops) = self.facts().find_path(&self.coarse, pair, from, to) else {
            self.outbox.counters.unreachable += 1;
            return None;
        };
        let is_behind = |hop: &Hop| self.outbox.is_behind(hop.dpid, BEHIND_MAX);
        if hops.iter().any(is_behind) {
            self.outbox.counters.paths_put_off += 1;
            return None;
        }
        let full = |hop: &Hop| self.tables.get(hop.dpid).is_some_and(|s| s.is_full(now));
        if hops.iter().any(full) {
            return None;
        }
        if self.admit_all(now, pair, &hops).is_err() {
            return None;
        }
        self.outbox.counters.paths_installed += 1;
        let ingress = hops.first().map(|hop| hop.dpid);
        if let Some(table) = ingress.and_then(|dpid| self.tables.get_mut(dpid)) {
            table.missed();
        }
        Some(hops)
    }

    /// Sets a path, and takes room for it.
    pub(super) fn set_path(
        &mut self,
        now: Instant,
        pair: Pair,
        hops: Vec<Hop>,
        how: How,
        asked_by: Location,
    ) {
        // A path that must move is set even without room: the switch may have some.
        let table_s = self.admit_all(now, pair, &hops).unwrap_or(None);
        let facts = facts!(self);
        let new = self.paths.replace(facts, now, (pair, hops), how, asked_by);
        let beginning = new.beginning(facts, table_s);
        for change in &beginning.leads {
            if let Step::Add(entry) = &change.step {
                self.tables.note_lease(change.dpid, entry);
            }
        }
        let beginning = (beginning, table_s);
        let stages = self
            .paths
            .changes(facts!(self), &self.coarse, new, beginning);
        self.start_update(now, stages);
    }

    /// Sends all entries of a path once more, after its rules or their timeouts have changed.
    pub(super) fn renew_path(&mut self, now: Instant, pair: Pair) {
        let hops = self.paths.hops_of(pair).map(<[Hop]>::to_vec);
        if let Some((hops, asked_by)) = hops.zip(self.paths.asked_by(pair)) {
            self.set_path(now, pair, hops, How::Again(None), asked_by);
        }
    }

    /// Sets a path again over the present route after it has lost an entry, if there is room.
    pub(super) fn move_or_drop(&mut self, now: Instant, pair: Pair) {
        let places = self.hosts.place(pair.0).zip(self.hosts.place(pair.1));
        let hops =
            places.and_then(|(from, to)| self.facts().find_path(&self.coarse, pair, from, to));
        match hops.filter(|hops| self.admit_all(now, pair, hops).is_ok()) {
            Some(hops) => self.reroute(now, pair, hops, How::Moved(Duration::ZERO)),
            None => self.drop_path(now, pair),
        }
    }

    pub(super) fn reroute(&mut self, now: Instant, pair: Pair, hops: Vec<Hop>, how: How) {
        self.outbox.counters.paths_rerouted += 1;
        let inlet = hops.first().map(Hop::inlet);
        if let Some(asked_by) = self.paths.asked_by(pair).or(inlet) {
            self.set_path(now, pair, hops, how, asked_by);
        }
    }

    /// Deletes a path, ingress first.
    pub(super) fn drop_path(&mut self, now: Instant, pair: Pair) {
        self.drop_rest(now, pair, None);
    }

    /// Deletes a path, except the entry that its switch reports removed.
    pub(super) fn drop_rest(&mut self, now: Instant, pair: Pair, gone: Option<DatapathId>) {
        let stages = self.paths.end(&self.tables, &self.coarse, pair, gone);
        self.start_update(now, stages);
    }
}
