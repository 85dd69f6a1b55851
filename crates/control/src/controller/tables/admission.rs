//! Finds places in the tables for new entries, and evicts others for them.

use clock::Instant;

use crate::timeouts::leases::RowKey;

use super::super::Controller;
use super::super::links::Hop;
use super::super::links::Pair;
use super::super::services::PairRule;

impl Controller {
    /// Takes a place for each entry of a path, including those of its rules, like
    /// [`Controller::admit_path`].
    pub(in crate::controller) fn admit_all(
        &mut self,
        now: Instant,
        pair: Pair,
        hops: &[Hop],
    ) -> Result<Option<u16>, NoRoom> {
        let idle_s = self.admit_path(now, pair, hops)?;
        let rules = self.facts().rules_of(pair);
        if let Some(hop) = hops.first()
            && !self.admit_rules(now, pair, hop, &rules)
        {
            self.give_back(pair, hops);
            return Err(NoRoom);
        }
        Ok(idle_s)
    }

    /// Takes a place for each hop of a path, and evicts other entries for it. Returns the idle
    /// timeout for which all of these tables have room, if they are limited.
    ///
    /// # Errors
    /// [`NoRoom`] if one of the tables has no room.
    pub(in crate::controller) fn admit_path(
        &mut self,
        now: Instant,
        pair: Pair,
        hops: &[Hop],
    ) -> Result<Option<u16>, NoRoom> {
        let has_priority = self
            .facts()
            .class_of(pair)
            .is_some_and(|class| class.priority);
        let is_barred = self.facts().forbids(pair) && self.facts().admits(pair);
        let mut idle_s: Option<u16> = None;
        for (at, hop) in hops.iter().enumerate() {
            if self.coarse.carries(hop, pair.1) {
                continue;
            }
            // Dropping entries at the beginning of a path are never evicted.
            let is_barrier = is_barred && !self.network.is_end(hop.entrance());
            let is_priority = has_priority || is_barrier;
            let key = row_key(pair, hop);
            let table = self.tables.get_mut(hop.dpid);
            let Some(keeper) = table.and_then(|table| table.keeper.as_mut()) else {
                continue;
            };
            let is_new = !keeper.contains(&key);
            let admission = keeper.install(now, key, is_priority);
            let next_poll = is_new.then(|| keeper.next_poll(now));
            self.evict(now, hop.dpid, &admission.evict);
            let Some(admitted_s) = admission.idle_s else {
                self.give_back(pair, &hops[..at]);
                let full = self.tables.get_mut(hop.dpid);
                full.into_iter().for_each(|s| s.counters.no_room += 1);
                return Err(NoRoom);
            };
            idle_s = Some(idle_s.map_or(admitted_s, |idle_s| idle_s.min(admitted_s)));
            // Many at once: the table is read sooner than planned.
            let due = self.tables.get(hop.dpid).and_then(|s| s.poll_due);
            if let (Some(next), Some(due)) = (next_poll, due)
                && next < due
            {
                let (tables, mut around) = self.with_tables();
                tables.poll_at(&mut around, now, hop.dpid, next);
            }
        }
        Ok(idle_s)
    }

    /// Gives back places that were taken for entries which are not set now.
    fn give_back(&mut self, pair: Pair, hops: &[Hop]) {
        for (dpid, key) in hops.iter().map(|hop| (hop.dpid, hop.key(pair))) {
            if let Some(table) = self.tables.get_mut(dpid)
                && !table.entries.contains_key(&key)
            {
                table.handle_removed(key);
            }
        }
    }

    /// Takes a place for each rule at the first hop of a path. Returns false, and takes none, where
    /// there is not enough room.
    pub(in crate::controller) fn admit_rules(
        &mut self,
        now: Instant,
        pair: Pair,
        hop: &Hop,
        rules: &[PairRule],
    ) -> bool {
        let key = |rule: &PairRule| RowKey {
            rule: Some(rule.rule),
            ..row_key(pair, hop)
        };
        let priority = |rule: &PairRule| {
            let class = self.facts().class_of_entry(pair, Some(rule.rule));
            rule.drops || class.is_some_and(|class| class.priority)
        };
        let wanted: Vec<(RowKey, bool)> = rules.iter().map(|r| (key(r), priority(r))).collect();
        let table = self.tables.get_mut(hop.dpid);
        let Some(keeper) = table.and_then(|table| table.keeper.as_mut()) else {
            return true;
        };
        let mut evict = Vec::new();
        let mut taken = Vec::new();
        let mut is_full = false;
        for (key, is_priority) in wanted {
            let is_new = !keeper.contains(&key);
            let admission = keeper.install(now, key, is_priority);
            evict.extend(admission.evict);
            taken.extend((is_new && admission.idle_s.is_some()).then_some(key));
            is_full |= admission.idle_s.is_none();
        }
        if is_full {
            taken.into_iter().for_each(|key| keeper.handle_removed(key));
            let table = self.tables.get_mut(hop.dpid);
            table.into_iter().for_each(|s| s.counters.no_room += 1);
        }
        self.evict(now, hop.dpid, &evict);
        !is_full
    }
}

/// The error of a table whose entries are all in use.
pub(in crate::controller) struct NoRoom;

fn row_key((src, dst): Pair, hop: &Hop) -> RowKey {
    let in_port = hop.in_port;
    RowKey {
        in_port,
        src,
        dst,
        rule: None,
    }
}
