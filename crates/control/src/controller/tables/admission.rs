//! Finds places in the tables for new entries, and the entries to evict for them.

use clock::Instant;
use openflow::DatapathId;

use crate::controller::links::{Hop, Pair};
use crate::controller::outbox::Outbox;
use crate::timeouts::keeper::Admission;
use crate::timeouts::leases::RowKey;

use super::Tables;

impl Tables {
    /// Takes a place for an entry. `None` if the table has no limit.
    pub(in crate::controller) fn admit(
        &mut self,
        now: Instant,
        (dpid, key): (DatapathId, RowKey),
        is_priority: bool,
        outbox: &mut Outbox,
    ) -> Option<Admission<RowKey>> {
        let table = self.tables.get_mut(&dpid)?;
        let keeper = table.keeper.as_mut()?;
        let is_new = !keeper.contains(&key);
        let admission = keeper.install(now, key, is_priority);
        let next_poll = is_new.then(|| keeper.next_poll(now));
        if admission.idle_s.is_none() {
            table.counters.no_room += 1;
        } else if let (Some(next), Some(due)) = (next_poll, table.poll_due)
            && next < due
        {
            // With many new entries at once, the table is read sooner than planned.
            self.poll_at(outbox, now, dpid, next);
        }
        Some(admission)
    }

    /// Takes a place for each of these entries, by row and priority. Returns the entries to evict,
    /// and whether there is room; takes no place if there is not enough room.
    pub(in crate::controller) fn admit_each(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        wanted: Vec<(RowKey, bool)>,
    ) -> (Vec<RowKey>, bool) {
        let mut evict = Vec::new();
        let Some(table) = self.tables.get_mut(&dpid) else {
            return (evict, true);
        };
        let Some(keeper) = &mut table.keeper else {
            return (evict, true);
        };
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
            table.counters.no_room += 1;
        }
        (evict, !is_full)
    }

    /// Gives back places that were taken for entries which are not set now.
    pub(in crate::controller) fn give_back(&mut self, pair: Pair, hops: &[Hop]) {
        for (dpid, key) in hops.iter().map(|hop| (hop.dpid, hop.key(pair))) {
            if let Some(table) = self.tables.get_mut(&dpid)
                && !table.entries.contains_key(&key)
            {
                table.handle_removed(key);
            }
        }
    }
}
