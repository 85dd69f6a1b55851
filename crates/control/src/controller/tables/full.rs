//! Handles TABLE_FULL: the refused entries and their paths.

use std::collections::BTreeSet;

use clock::Instant;
use openflow::DatapathId;

use crate::edge::EdgeUpdate;
use crate::entry::{EntryKey, EntryKind};

use super::super::{Alarm, Controller};
use super::TABLE_FULL_PAUSE;

/// Readings after TABLE_FULL that may find entries to evict: the first shows only which entries
/// exist, not yet which of them are in use.
const FULL_READINGS_MAX: u8 = 3;

impl Controller {
    /// Handles a refused entry. Packets are forwarded by packet-outs, and no path is set there
    /// until room has been made.
    pub(in crate::controller) fn handle_table_full(&mut self, now: Instant, dpid: DatapathId) {
        let Some(table) = self.tables.get_mut(dpid) else {
            return;
        };
        table.counters.table_full += 1;
        let is_first = table.full_until <= now;
        let until = now + TABLE_FULL_PAUSE;
        table.full_until = until;
        let is_asked = table.asked_at.is_some();
        if table.full.is_none() {
            table.full = Some(0);
        }
        self.outbox.tell_edge(dpid, EdgeUpdate::Pause(until));
        if is_first {
            self.outbox.alarm(Alarm::FlowTableFull { dpid });
        }
        // An answer under way does not show all entries that took the room.
        if !is_asked {
            let (tables, mut around) = self.with_tables();
            if tables.poll(&mut around, now, dpid) {
                self.poll_over(now, dpid);
            }
            let table = self.tables.get_mut(dpid);
            table.into_iter().for_each(|s| s.asked_for_limit = true);
        }
    }

    /// Compares wanted and present entries once there is room, so that refused entries are sent
    /// again. If no room can be made, gives up paths that lack an entry (`told` has the present
    /// ones), and their packets go through the controller.
    pub(super) fn after_full(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        is_room_made: bool,
        told: &BTreeSet<EntryKey>,
    ) {
        let Some(table) = self.tables.get_mut(dpid) else {
            return;
        };
        let readings = table.full.map_or(1, |readings| readings + 1);
        if !is_room_made && readings < FULL_READINGS_MAX {
            table.full = Some(readings);
            return;
        }
        table.full = None;
        if is_room_made {
            table.full_until = now;
            self.outbox.tell_edge(dpid, EdgeUpdate::Pause(now));
            return self.ask_entries(now, dpid);
        }
        let entries = table.entries.values();
        let refused = entries.filter(|entry| !told.contains(&entry.key));
        for entry in refused.copied().collect::<Vec<_>>() {
            let pair = entry.key.eth_src.zip(entry.key.eth_dst);
            match (entry.kind, pair) {
                (EntryKind::Pair | EntryKind::Service | EntryKind::Barrier, Some(pair)) => {
                    self.drop_path(now, pair);
                }
                (EntryKind::Coarse, _) => self.drop_coarse(dpid, entry.key),
                _ => {}
            }
        }
        // Guards drop packets by themselves, so none may be missing.
        if self.config.timeouts.has_guards() {
            self.ask_entries(now, dpid);
        }
    }
}
