//! Guards: the entries on every switch that drop packets forbidden by IP address, or inspect
//! packets.
//!
//! Guards follow from the configuration alone. The controller sends them before anything else on a
//! connection. It sends a lost guard again when the switch reports the loss, and at every
//! comparison of entries.

use openflow::message::{FlowRemoved, FlowRemovedReason};
use openflow::multipart::FlowStats;
use openflow::{DatapathId, Version};

use crate::entry::{EntryKind, Guard};
use crate::timeouts::Timeouts;

use super::Controller;
use super::entries::delete_row;
use super::facts::Facts;

impl Facts<'_> {
    /// Whether the edge of a switch may answer. It may not where every IPv6 packet must be judged,
    /// since the edge cannot recognise those packets.
    pub(super) fn edge_may_answer(&self, dpid: DatapathId) -> bool {
        let is_1_0 = self.net.version(dpid) == Some(Version::V10);
        !(is_1_0 && self.timeouts.guards_ipv6())
    }
}

impl Controller {
    /// The guards that a switch should have.
    fn guards(&self, dpid: DatapathId, timeouts: &Timeouts) -> Vec<Guard> {
        let version = self.network.version(dpid);
        let Some(version) = version.filter(|_| self.config.is_forwarding) else {
            return Vec::new();
        };
        let mut guards = timeouts.guards(version);
        if self.config.arp_inspection {
            guards.extend(Guard::inspection(version));
        }
        guards
    }

    pub(super) fn send_guards(&mut self, dpid: DatapathId) {
        for guard in self.guards(dpid, &self.config.timeouts) {
            self.outbox
                .send_flow_mod(dpid, guard.to_add(self.outbox.generation));
        }
    }

    /// Replaces the guards that followed from the timeouts `before`.
    pub(super) fn change_guards(&mut self, before: &Timeouts) {
        let all = self.network.dpids().into_iter();
        let all = all.map(|dpid| (dpid, self.guards(dpid, before)));
        self.replace_guards(all.collect());
    }

    /// The guards that all switches should have.
    pub(super) fn all_guards(&self) -> Vec<(DatapathId, Vec<Guard>)> {
        let all = self.network.dpids().into_iter();
        all.map(|dpid| (dpid, self.guards(dpid, &self.config.timeouts)))
            .collect()
    }

    /// Replaces the guards `before`: sets the new ones before it deletes the old ones.
    pub(super) fn replace_guards(&mut self, before: Vec<(DatapathId, Vec<Guard>)>) {
        for (dpid, old) in before {
            let new = self.guards(dpid, &self.config.timeouts);
            for guard in new.iter().filter(|guard| !old.contains(guard)) {
                self.outbox
                    .send_flow_mod(dpid, guard.to_add(self.outbox.generation));
            }
            for guard in old.iter().filter(|guard| !new.contains(guard)) {
                self.outbox.send_flow_mod(dpid, guard.to_delete());
            }
        }
    }

    /// Takes the guards out of a switch's entries, and repairs the guards. Returns the numbers
    /// kept, added and deleted.
    pub(super) fn reconcile_guards(
        &mut self,
        dpid: DatapathId,
        rows: &mut Vec<FlowStats>,
    ) -> [usize; 3] {
        let is_guard = |row: &mut FlowStats| EntryKind::of(row.cookie) == Some(EntryKind::Guard);
        let held: Vec<FlowStats> = rows.extract_if(.., is_guard).collect();
        let wanted = self.guards(dpid, &self.config.timeouts);
        let mut counts = [0; 3];
        for guard in &wanted {
            let is_held = held.iter().any(|row| guard.is_row(row));
            counts[usize::from(!is_held)] += 1;
            if !is_held {
                self.outbox
                    .send_flow_mod(dpid, guard.to_add(self.outbox.generation));
            }
        }
        // A guard with other actions has been overwritten.
        let is_place = |row: &FlowStats, guard: &Guard| guard.is_at(row.priority, &row.r#match);
        for row in &held {
            if !wanted.iter().any(|guard| is_place(row, guard)) {
                counts[2] += 1;
                self.outbox.send_flow_mod(dpid, delete_row(row));
            }
        }
        counts
    }

    /// Handles the end of a guard, which someone else may have deleted.
    pub(super) fn guard_removed(&mut self, dpid: DatapathId, removed: &FlowRemoved) {
        let (priority, m) = (removed.priority, &removed.r#match);
        if let Some(table) = self.tables.get_mut(dpid) {
            let counts = table.guard_counts();
            self.outbox.counters.packets_forbidden +=
                counts.handle_end(priority, m, removed.packet_count);
        }
        let wanted = self.guards(dpid, &self.config.timeouts);
        let is_it = |guard: &&Guard| guard.is_at(removed.priority, &removed.r#match);
        if let Some(guard) = wanted.iter().find(is_it)
            && removed.reason == FlowRemovedReason::DELETE
        {
            self.outbox
                .send_flow_mod(dpid, guard.to_add(self.outbox.generation));
        }
    }
}
