//! Makes room for paths: takes places in the tables, and evicts other entries for them.

use clock::Instant;
use openflow::DatapathId;

use crate::timeouts::leases::RowKey;

use super::Controller;
use super::links::{Hop, Pair};
use super::services::PairRule;

impl Controller {
    /// Takes a place for each entry of a path, including those of its rules, like
    /// [`Controller::admit_path`].
    pub(super) fn admit_all(
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
            self.tables.give_back(pair, hops);
            return Err(NoRoom);
        }
        Ok(idle_s)
    }

    /// Takes a place for each hop of a path, and evicts other entries for it. Returns the idle
    /// timeout for which all of these tables have room, if they are limited.
    ///
    /// # Errors
    /// [`NoRoom`] if one of the tables has no room.
    pub(super) fn admit_path(
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
            let place = (hop.dpid, row_key(pair, hop));
            let admission = self.tables.admit(now, place, is_priority, &mut self.outbox);
            let Some(admission) = admission else {
                continue;
            };
            self.evict(now, hop.dpid, &admission.evict);
            let Some(admitted_s) = admission.idle_s else {
                self.tables.give_back(pair, &hops[..at]);
                return Err(NoRoom);
            };
            idle_s = Some(idle_s.map_or(admitted_s, |idle_s| idle_s.min(admitted_s)));
        }
        Ok(idle_s)
    }

    /// Takes a place for each rule at the first hop of a path. Returns false, and takes no place,
    /// if there is not enough room.
    pub(super) fn admit_rules(
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
        let (evict, has_room) = self.tables.admit_each(now, hop.dpid, wanted);
        self.evict(now, hop.dpid, &evict);
        has_room
    }

    /// Evicts entries. An entry of a path is evicted with the whole path: its entries are unused,
    /// so their order does not matter.
    pub(super) fn evict(&mut self, now: Instant, dpid: DatapathId, keys: &[RowKey]) {
        for row in keys {
            let key = row.entry_key();
            let pair = (row.src, row.dst);
            let Some(table) = self.tables.get_mut(dpid) else {
                return;
            };
            table.handle_evicted(now, key);
            self.ingress.note_ended(now, dpid, key.in_port);
            if key.is_coarse() {
                self.drop_coarse(dpid, key);
                continue;
            }
            self.outbox.send_flow_mod(dpid, key.to_delete());
            if self.paths.holds(pair, dpid, key) {
                self.entry_ended(now, pair, dpid, key, true);
            }
        }
    }
}

/// The error of a table whose entries are all in use.
pub(super) struct NoRoom;

fn row_key((src, dst): Pair, hop: &Hop) -> RowKey {
    let in_port = hop.in_port;
    RowKey {
        in_port,
        src,
        dst,
        rule: None,
    }
}
