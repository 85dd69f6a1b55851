//! Renews leases that are about to end, at the allowed rate.

use clock::{Duration, Instant};
use openflow::DatapathId;
use openflow::Version;

use crate::entry::{Entry, EntryKind};
use crate::timeouts::Lifetime;
use crate::timeouts::budget::{POLL_MAX, POLL_MIN};
use crate::timeouts::leases::{Margin, RowKey};

use super::super::Controller;
use super::super::outbox::Timer;
use super::{Around, Tables, around};

/// Time until more renewals are allowed.
const RENEWAL_PAUSE: Duration = Duration::from_millis(50);

impl Tables {
    /// Notes that an entry is about to be sent. An entry with a hard timeout has a lease.
    pub(in crate::controller) fn note_lease(&mut self, dpid: DatapathId, entry: &Entry) {
        let table = self.tables.get_mut(&dpid);
        if let Some(table) = table.filter(|_| entry.hard_timeout_s > 0) {
            table.leases.handle_install(entry.hard_timeout_s);
            table.leases_counted += 1;
            self.lease_count += 1;
        }
    }

    /// Renews the leases of a switch that are due. `is_path`: whether a path has this row.
    pub(super) fn renew_due(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
        is_path: impl Fn(DatapathId, RowKey) -> bool,
    ) {
        let Some(most) = around.timeouts.renewals_max() else {
            return;
        };
        let all = self.lease_count.max(1) as f64;
        let Some(table) = self.tables.get_mut(&dpid) else {
            return;
        };
        let interval = table.leases.interval().unwrap_or(POLL_MAX);
        let margin = Margin {
            late: table.round_trip * 3 + interval.clamp(POLL_MIN, POLL_MAX),
            per_s: f64::from(most) * table.leases.len() as f64 / all,
        };
        table.to_renew = table.leases.due(now, margin).into();
        self.renew(around, now, dpid, is_path);
    }

    fn renewals_due(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
        is_path: impl Fn(DatapathId, RowKey) -> bool,
    ) {
        let table = self.tables.get_mut(&dpid);
        if let Some(table) = table.filter(|t| t.renewals_due.is_some_and(|due| due <= now)) {
            table.renewals_due = None;
            self.renew(around, now, dpid, is_path);
        }
    }

    /// Renews due leases, up to the number allowed now.
    fn renew(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
        is_path: impl Fn(DatapathId, RowKey) -> bool,
    ) {
        while let Some(table) = self.tables.get(&dpid)
            && let Some(row) = table.to_renew.front().copied()
        {
            let is_path = is_path(dpid, row);
            let renewed = self.renewed_entry(around, now, (dpid, row), is_path);
            if renewed.is_some() && !self.renewals.take(now) {
                return self.renew_later(around, now + RENEWAL_PAUSE, dpid);
            }
            let Some(table) = self.tables.get_mut(&dpid) else {
                return;
            };
            table.to_renew.pop_front();
            let Some(entry) = renewed else {
                continue;
            };
            let counts_anew = around.net.version(dpid) == Some(Version::V10);
            table.leases.handle_renewed(now, &entry, counts_anew);
            table.counters.renewals += 1;
            if table.entries.contains_key(&entry.key) {
                table.entries.handle_sent(now, entry);
            }
            around
                .outbox
                .send_flow_mod(dpid, entry.to_add(around.outbox.generation));
        }
    }

    fn renew_later(&mut self, around: &mut Around<'_>, due: Instant, dpid: DatapathId) {
        if let Some(table) = self.tables.get_mut(&dpid)
            && table.renewals_due.is_none()
        {
            table.renewals_due = Some(due);
            around.outbox.timer(due, Timer::Renewals(dpid));
        }
    }

    /// The entry to be set again. `None` if the entry should end: no path has it any more, or its
    /// pair is not allowed to have it.
    fn renewed_entry(
        &mut self,
        around: &Around<'_>,
        now: Instant,
        (dpid, row): (DatapathId, RowKey),
        is_path: bool,
    ) -> Option<Entry> {
        let pair = (row.src, row.dst);
        let class = around.hosts.class_of(around.timeouts, pair, row.rule);
        if class.is_some_and(|class| class.forbid) {
            return None;
        }
        let Lifetime::Lease(lease) = around.timeouts.lifetime(class) else {
            return None;
        };
        let is_priority = class.is_some_and(|class| class.priority);
        let hard_s = lease.hard_s(self.lease_count, self.overload.factor())?;
        let key = row.entry_key();
        let table = self.tables.get_mut(&dpid)?;
        // The reading may be older than the path's last move.
        let wanted_out = table.entries.get(&key).map(|wanted| wanted.out);
        let mut entry = table.leases.entry(row)?;
        entry.out = wanted_out.unwrap_or(entry.out);
        let is_of_path = matches!(entry.kind, EntryKind::Pair | EntryKind::Service);
        if (is_of_path && !is_path) || entry.kind.is_drop() {
            return None;
        }
        // While there is room, an idle flow costs nothing.
        let is_filling = table.is_filling();
        let known = table.keeper.as_mut();
        let known = known.filter(|keeper| is_filling && keeper.contains(&row));
        let by_flow = known.and_then(|keeper| keeper.install(now, row, is_priority).idle_s);
        let idle_s = by_flow.map_or(entry.idle_timeout_s, |idle_s| {
            idle_s.clamp(lease.idle_min_s, lease.idle_max_s)
        });
        Some(Entry {
            idle_timeout_s: idle_s,
            hard_timeout_s: hard_s,
            ..entry
        })
    }
}

impl Controller {
    pub(in crate::controller) fn renewals_due(&mut self, now: Instant, dpid: DatapathId) {
        let is_path = |dpid, row| self.paths.has_row(dpid, row);
        self.tables
            .renewals_due(&mut around!(self), now, dpid, is_path);
    }
}
