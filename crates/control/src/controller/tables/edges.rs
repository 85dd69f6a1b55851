//! Sends edges the limits of the table in which they set entries: their timeouts and their number.

use clock::Instant;
use openflow::DatapathId;

use crate::edge::EdgeUpdate;
use crate::timeouts::budget::{POLL_MIN, whole_seconds};

use super::super::Controller;
use super::{Around, Tables};

impl Tables {
    /// Sends an edge the timeouts of its entries when they have changed by more than an eighth.
    pub(super) fn tell_edge_timeouts(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
    ) {
        let table = self.tables.get_mut(&dpid);
        let keeper = table.and_then(|table| table.keeper.as_mut());
        let idle_s = keeper.map(|keeper| {
            let cap = keeper.budget().idle_cap(now);
            whole_seconds(cap, cap)
        });
        let kind = (around.timeouts.default, None);
        let (idle_s, hard_s) = self.timeouts_at(around.timeouts, kind, true, idle_s);
        let Some(table) = self.tables.get_mut(&dpid) else {
            return;
        };
        let differs = |told: u16, now: u16| told.abs_diff(now) > told / 8;
        let told = table.told_edge;
        if told.is_none_or(|(idle, hard)| differs(idle, idle_s) || differs(hard, hard_s)) {
            table.handle_edge_told(idle_s, hard_s);
            around
                .outbox
                .tell_edge(dpid, EdgeUpdate::Timeouts { idle_s, hard_s });
        }
    }

    /// Sends an edge the number of entries that it may set until the next reading: the controller
    /// does not learn of these entries earlier. Unlimited where the limit is no longer known.
    pub(super) fn grant_to_edge(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
    ) {
        let Some(table) = self.tables.get_mut(&dpid) else {
            return;
        };
        let granted = table.keeper.as_mut().map(|keeper| keeper.grant(now));
        if granted.is_some() || table.granted.is_some() {
            table.granted = granted;
            around
                .outbox
                .tell_edge(dpid, EdgeUpdate::Grant(granted.unwrap_or(u32::MAX)));
        }
    }

    /// Grants a new connection's edge no entries until the first reading, where there is a limit.
    pub(super) fn start_grant(&mut self, around: &mut Around<'_>, dpid: DatapathId) {
        let timeouts = around.timeouts;
        let configured = timeouts
            .switches
            .get(&dpid)
            .or(timeouts.table_entries_max.as_ref());
        let is_configured = configured.is_some() || self.limits.contains_key(&dpid);
        if let Some(table) = self.tables.get_mut(&dpid)
            && (is_configured || table.keeper.is_some())
        {
            table.granted = Some(0);
            around.outbox.tell_edge(dpid, EdgeUpdate::Grant(0));
        }
    }

    /// Handles a packet that an edge has shown, which an edge does when its granted entries are
    /// used up: the table may need a reading sooner than planned.
    pub(super) fn edge_has_shown(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
    ) {
        let table = self.tables.get(&dpid);
        if let Some(table) = table.filter(|table| table.granted.is_some())
            && let Some(due) = table.poll_due
        {
            let soonest = table.read_at.map_or(now, |at| at + POLL_MIN);
            if soonest < due {
                self.poll_at(around.outbox, now, dpid, soonest);
            }
        }
    }
}

impl Controller {
    pub(in crate::controller) fn tell_edge_timeouts(&mut self, now: Instant, dpid: DatapathId) {
        let (tables, mut around) = self.with_tables();
        tables.tell_edge_timeouts(&mut around, now, dpid);
    }

    pub(in crate::controller) fn start_grant(&mut self, dpid: DatapathId) {
        let (tables, mut around) = self.with_tables();
        tables.start_grant(&mut around, dpid);
    }

    pub(in crate::controller) fn edge_has_shown(&mut self, now: Instant, dpid: DatapathId) {
        let (tables, mut around) = self.with_tables();
        tables.edge_has_shown(&mut around, now, dpid);
    }
}
