//! The flow table of each switch over time: its fill, the renewal of leases, and eviction when
//! there is no room.
//!
//! The controller asks a switch only if something depends on the answer. Table statistics give the
//! fill, where a limit is known. Flow statistics are read where there are leases, where the paper's
//! rule is used, and where the table is fuller than [`ROWS_SHARE`]. The controller requests both
//! kinds more often as the table fills. It asks a switch that watches its own table less often
//! (`vacancy`).
//!
//! The controller makes room before it sets an entry ([`Keeper`]). A switch that still sends
//! TABLE_FULL has fewer places than the controller knew, or others use them. Then the controller
//! learns the limit, evicts unused entries, and resends the refused entries.

mod admission;
mod edges;
mod full;
mod guard_counts;
mod readings;
mod renewals;
#[cfg(test)]
mod tests;
mod vacancy;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clock::{Budget, Duration, Instant};
use openflow::multipart::{
    FlowStats, FlowStatsRequest, MultipartRequest, ReplyBody, RequestBody, TableStats,
};
use openflow::{DatapathId, Message, TableId, Version};

use crate::entry::{
    COOKIE_PREFIX, COOKIE_PREFIX_MASK, Entry, EntryKey, EntryKind, ask_for_entries,
    is_dropping_guard,
};
use crate::timeouts::budget::{Overload, POLL_MAX, POLL_MIN, high_mark};
use crate::timeouts::delays::Delays;
use crate::timeouts::keeper::Keeper;
use crate::timeouts::leases::{Leases, RowKey};
use crate::timeouts::{ENTRIES_MAX, FlowClass, Lifetime, Timeouts};

use super::Controller;
use super::entries::Entries;
use super::event::{TableCounters, TableView, TimeoutsView};
use super::hosts::Hosts;
use super::ingress::outlasts_flows;
use super::network::Network;
use super::outbox::{Outbox, Request, Timer};
use guard_counts::GuardCounts;
use readings::Readings;
use vacancy::{POLL_WATCHED, Vacancy};

/// Time after which ports no longer wait for the entries of a switch that answers barriers but has
/// not begun to report its entries: cbench's switches never do.
pub(super) const MUTE: Duration = Duration::from_secs(1);

/// Time after TABLE_FULL in which a switch gets no new paths.
const TABLE_FULL_PAUSE: Duration = Duration::from_secs(1);

/// Fill, in tenths of the limit, above which single entries are examined.
const ROWS_SHARE: u32 = 7;

/// Maximum number of new entries by others that are counted between two readings.
const UNSEEN_MAX: u32 = 10_000;

/// The known state of a switch's flow table.
#[derive(Default)]
pub(super) struct Table {
    /// The entries that the switch should have: entries that were sent or adopted and have not
    /// ended.
    entries: Entries,
    /// The end of the pause after TABLE_FULL: no path is set here before then, to avoid a storm of
    /// retries.
    full_until: Instant,
    /// Unreadable rows in the reading of entries under way.
    unreadable: usize,
    guard_counts: GuardCounts,
    /// The limit that the switch reports.
    said_max: Option<u32>,
    /// The limit learned from TABLE_FULL.
    learnt_max: Option<u32>,
    /// `None` without a limit.
    keeper: Option<Keeper<RowKey>>,
    leases: Leases,
    /// The number of this table's leases already included in the total over all switches.
    leases_counted: usize,
    to_renew: VecDeque<RowKey>,
    /// When the remaining renewals continue, if more were due than allowed.
    renewals_due: Option<Instant>,
    /// The number of entries in the last reading.
    entry_count: Option<u32>,
    active: u32,
    poll_due: Option<Instant>,
    /// When the statistics under way were requested.
    asked_at: Option<Instant>,
    read_at: Option<Instant>,
    round_trip: Duration,
    /// Readings since the switch sent TABLE_FULL.
    full: Option<u8>,
    /// Whether statistics were requested at TABLE_FULL: the number of entries is then the limit.
    asked_for_limit: bool,
    evicted_at: Option<Instant>,
    vacancy: Vacancy,
    told_edge: Option<(u16, u16)>,
    /// The number of entries granted to the edge; `None` before the first grant, and where no limit
    /// is known.
    granted: Option<u32>,
    /// Whether the edge ever got timeouts that end entries that are in use or were used recently.
    edge_ends_early: bool,
    counters: TableCounters,
}

/// The state that tables read, and the outbox for their messages.
struct Around<'a> {
    net: &'a Network,
    timeouts: &'a Timeouts,
    hosts: &'a Hosts,
    outbox: &'a mut Outbox,
}

/// The consequences of a reading of single entries.
struct Read {
    /// Coarse entries that are not wanted.
    strays: Vec<EntryKey>,
    /// Unused entries to evict.
    evict: Vec<RowKey>,
    /// The number of entries to free although all are in use.
    excess: u32,
    /// The entries that the switch reports, if it has refused one.
    told: Option<BTreeSet<EntryKey>>,
}

/// The tables of all switches, and the load that their entries cause.
pub(super) struct Tables {
    tables: BTreeMap<DatapathId, Table>,
    /// Maximum numbers of entries, from the switches' databases.
    limits: BTreeMap<DatapathId, u32>,
    /// The last sample of the load, in percent of one core.
    load_percent: f64,
    overload: Overload,
    /// Entries with a lease, over all switches.
    lease_count: usize,
    renewals: Budget,
    delays: Delays,
    readings: Readings,
    seed: u64,
}

impl Tables {
    /// Creates tables without any switch. `seed` is secret ([`Entries::new`]).
    pub(super) fn new(timeouts: &Timeouts, seed: u64) -> Tables {
        Tables {
            tables: BTreeMap::new(),
            limits: BTreeMap::new(),
            load_percent: 0.0,
            overload: Overload::new(),
            lease_count: 0,
            renewals: renewal_budget(Instant::START, timeouts),
            delays: Delays::new(Instant::START),
            readings: Readings::default(),
            seed,
        }
    }

    pub(super) fn get(&self, dpid: DatapathId) -> Option<&Table> {
        self.tables.get(&dpid)
    }

    pub(super) fn get_mut(&mut self, dpid: DatapathId) -> Option<&mut Table> {
        self.tables.get_mut(&dpid)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&DatapathId, &Table)> {
        self.tables.iter()
    }

    pub(super) fn handle_up(&mut self, dpid: DatapathId) {
        let fresh = || Table {
            entries: Entries::new(self.seed),
            ..Table::default()
        };
        self.tables.entry(dpid).or_insert_with(fresh).handle_up();
    }

    pub(super) fn forget(&mut self, dpid: DatapathId) {
        self.tables.remove(&dpid);
        self.readings.forget(dpid);
        let counted = self.tables.values().map(|table| table.leases_counted);
        self.lease_count = counted.sum();
    }

    /// Asks a switch for its entries, when it is its turn.
    pub(super) fn ask_entries(&mut self, now: Instant, dpid: DatapathId, outbox: &mut Outbox) {
        self.readings.want(dpid);
        self.next_readings(now, outbox);
    }

    /// Notes that a part of a switch's report has arrived.
    pub(super) fn handle_part(&mut self, now: Instant, dpid: DatapathId) {
        self.readings.handle_part(now, dpid);
    }

    /// Notes that a switch has reported its entries, or will not, and asks the next switches.
    pub(super) fn end_reading(&mut self, now: Instant, dpid: DatapathId, outbox: &mut Outbox) {
        self.readings.end(dpid);
        self.next_readings(now, outbox);
    }

    /// Asks the switches whose turn it is for their entries.
    pub(super) fn next_readings(&mut self, now: Instant, outbox: &mut Outbox) {
        while let Some(dpid) = self.readings.next(now) {
            if let Some(table) = self.tables.get_mut(&dpid) {
                table.unreadable = 0;
            }
            let body = RequestBody::Flow(ask_for_entries());
            let message = Message::MultipartRequest(MultipartRequest { more: false, body });
            match outbox.request(now, dpid, Request::Entries, &message) {
                Some(_) => outbox.timer(now + MUTE, Timer::HoldOver(dpid)),
                None => self.readings.end(dpid),
            }
        }
        if let Some(due) = self.readings.poll_timeout(now) {
            outbox.timer(due, Timer::Readings);
        }
    }

    /// Resends an entry that a switch should have.
    pub(super) fn send_again(&mut self, dpid: DatapathId, key: &EntryKey, outbox: &mut Outbox) {
        if let Some(table) = self.tables.get_mut(&dpid)
            && let Some(entry) = table.entries.get(key).copied()
        {
            table.entries.handle_sent(outbox.now, entry);
            outbox.send_flow_mod(dpid, entry.to_add(outbox.generation));
        }
    }

    pub(super) fn set_timeouts(&mut self, now: Instant, timeouts: &Timeouts) {
        self.renewals = renewal_budget(now, timeouts);
    }

    pub(super) fn handle_load(&mut self, now: Instant, percent: f64) {
        self.load_percent = percent;
        let before = self.overload.factor();
        self.overload.handle_sample(now, percent);
        let factor = self.overload.factor();
        if factor != before {
            for table in self.tables.values_mut() {
                table.set_stretch(factor);
            }
        }
    }

    /// Fits a table to its limit, which may have changed.
    fn fit(&mut self, now: Instant, dpid: DatapathId, timeouts: &Timeouts) {
        let Some(table) = self.tables.get_mut(&dpid) else {
            return;
        };
        let configured = timeouts.switches.get(&dpid).copied();
        let limit = configured
            .or(self.limits.get(&dpid).copied())
            .or(table.said_max)
            .or(timeouts.table_entries_max)
            .into_iter()
            .chain(table.learnt_max)
            .min();
        match (limit, &mut table.keeper) {
            (Some(limit), Some(keeper)) => keeper.set_capacity(limit),
            (Some(limit), keeper) => {
                let mut fresh = Keeper::new(now, limit);
                fresh.set_stretch(self.overload.factor());
                *keeper = Some(fresh);
            }
            (None, keeper) => *keeper = None,
        }
    }

    /// Records a measured set-up delay.
    pub(super) fn handle_delay(&mut self, delay: Duration) {
        self.delays.handle(delay);
    }

    /// Whether another set-up delay is to be measured now.
    pub(super) fn wants_delay(&mut self, now: Instant) -> bool {
        self.delays.takes(now)
    }

    pub(super) fn timeouts_view(&self, timeouts: &Timeouts) -> TimeoutsView {
        TimeoutsView {
            policy: timeouts.default.name(),
            first_packets: timeouts.first_packets.name(),
            load_percent: self.load_percent,
            stretch: self.overload.factor(),
            leases: self.lease_count,
            delays: self.delays.count(),
            delay_p50: self.delays.quantile(0.5),
            delay_p99: self.delays.quantile(0.99),
            delays_all: self.delays.all(),
        }
    }

    /// Idle and hard timeout of an entry of this lifetime. `table_s` is the idle timeout for which
    /// the tables on the entry's path have room, where they are limited.
    pub(super) fn timeouts_at(
        &self,
        timeouts: &Timeouts,
        (lifetime, class): (Lifetime, Option<&FlowClass>),
        ingress: bool,
        table_s: Option<u16>,
    ) -> (u16, u16) {
        match lifetime {
            Lifetime::Fixed { idle_s, hard_s } => (idle_s, hard_s),
            Lifetime::Paper(paper) if ingress => {
                let is_raised =
                    self.load_percent > f64::from(paper.cpu_percent) && timeouts.raises(class);
                let hard_s = if is_raised {
                    paper.raised_s
                } else {
                    paper.base_s
                };
                (0, hard_s)
            }
            Lifetime::Paper(paper) => (paper.idle_s, 0),
            Lifetime::Lease(lease) => {
                let stretch = self.overload.factor();
                let stretched = u16::try_from(stretch).unwrap_or(u16::MAX);
                let most_s = lease.idle_max_s.saturating_mul(stretched);
                let idle_s = table_s.map_or(most_s, |s| s.clamp(lease.idle_min_s, most_s));
                if ingress {
                    let hard_s = lease.hard_s(self.lease_count, stretch);
                    (idle_s, hard_s.unwrap_or(0))
                } else {
                    (idle_s.saturating_add(DOWNSTREAM_EXTRA_S), 0)
                }
            }
        }
    }
}

/// The budget of renewals; a twentieth of a second's renewals may be sent at once.
fn renewal_budget(now: Instant, timeouts: &Timeouts) -> Budget {
    let per_s = timeouts.renewals_max().unwrap_or(1);
    Budget::new(now, per_s, (per_s / 20).max(1))
}

impl Table {
    pub(super) fn view(&self) -> TableView {
        TableView {
            entries: self.entry_count,
            limit: self.keeper.as_ref().map(Keeper::capacity),
            leases: self.leases.len(),
            coarse: 0,
            timeouts_at_edge: self.told_edge,
            counters: self.counters,
        }
    }

    pub(super) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// Notes that an entry is sent. Returns the entry of its key that was wanted before.
    pub(super) fn note_sent(&mut self, now: Instant, entry: Entry) -> Option<Entry> {
        self.entries.handle_sent(now, entry)
    }

    /// Notes that the switch has an entry that this process has not sent.
    pub(super) fn adopt(&mut self, entry: Entry) {
        self.entries.adopt(entry);
    }

    /// Notes that an entry is no longer wanted, or has ended.
    pub(super) fn forget(&mut self, key: &EntryKey) -> Option<Entry> {
        self.entries.remove(key)
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&Entry) -> bool) {
        self.entries.retain(is_kept);
    }

    /// Whether no path is set here for now.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.full_until > now
    }

    pub(super) fn guard_counts(&mut self) -> &mut GuardCounts {
        &mut self.guard_counts
    }

    /// Unreadable rows in the reading of entries under way.
    pub(super) fn unreadable(&self) -> usize {
        self.unreadable
    }

    pub(super) fn handle_unreadable(&mut self, count: usize) {
        self.unreadable += count;
    }

    /// Handles a connection: others may have changed the entries meanwhile.
    pub(super) fn handle_up(&mut self) {
        (self.said_max, self.learnt_max) = (None, None);
        (self.entry_count, self.asked_at, self.full) = (None, None, None);
        self.vacancy = Vacancy::default();
    }

    pub(super) fn handle_removed(&mut self, key: EntryKey) {
        if let Some(key) = RowKey::of(key) {
            self.leases.handle_removed(key);
            if let Some(keeper) = &mut self.keeper {
                keeper.handle_removed(key);
            }
        }
    }

    pub(super) fn set_stretch(&mut self, factor: u32) {
        if let Some(keeper) = &mut self.keeper {
            keeper.set_stretch(factor);
        }
    }

    /// Notes that an entry is sent for which room was made before.
    pub(super) fn handle_sent(&mut self, now: Instant, entry: &Entry) {
        if let (Some(keeper), Some(key)) = (&mut self.keeper, RowKey::of(entry.key)) {
            // A dropping entry is never evicted.
            keeper.handle_sent(now, key, entry.kind == EntryKind::Barrier);
        }
    }

    pub(super) fn handle_edge_started(&mut self, idle_s: u16, hard_s: u16) {
        self.granted = None;
        self.handle_edge_told(idle_s, hard_s);
    }

    fn handle_edge_told(&mut self, idle_s: u16, hard_s: u16) {
        self.told_edge = Some((idle_s, hard_s));
        self.edge_ends_early |= !outlasts_flows(idle_s, hard_s);
    }

    /// Whether no entry of an edge ends while the entry is in use or was used recently.
    pub(super) fn has_lasting_edge(&self) -> bool {
        self.told_edge.is_some() && !self.edge_ends_early
    }

    /// Notes that an entry is deleted to make room for others. The caller that deletes a coarse
    /// entry also forgets it.
    pub(super) fn handle_evicted(&mut self, now: Instant, key: EntryKey) {
        self.counters.evictions += 1;
        self.evicted_at = Some(now);
        if !key.is_coarse() {
            self.handle_removed(key);
            self.entries.remove(&key);
        }
    }

    pub(super) fn missed(&mut self) {
        self.counters.misses += 1;
    }

    /// Entries of pairs that a coarse entry may replace.
    pub(super) fn coarsenable(&self) -> impl Iterator<Item = RowKey> + '_ {
        self.keeper.iter().flat_map(Keeper::coarsenable)
    }

    /// The number of free places, if known.
    pub(super) fn free(&self) -> Option<u32> {
        self.keeper.as_ref().map(Keeper::free)
    }

    /// Notes that a coarse entry will replace this number of entries.
    pub(super) fn handle_coarse(&mut self, now: Instant, key: EntryKey, replaced: usize) {
        self.counters.coarsened += replaced as u64;
        if let (Some(keeper), Some(row)) = (&mut self.keeper, RowKey::of(key))
            && !keeper.contains(&row)
        {
            keeper.replace(now, row, &[]);
        }
    }

    pub(super) fn handle_refined(&mut self, count: usize) {
        self.counters.refined += count as u64;
    }

    /// The number of pair entries that may be set again in place of coarse entries.
    pub(super) fn relief(&mut self, now: Instant) -> Option<u32> {
        match &mut self.keeper {
            Some(keeper) => keeper.relief(now),
            None => Some(u32::MAX),
        }
    }

    /// Whether single entries must be examined to keep within the limit.
    pub(super) fn is_filling(&self) -> bool {
        let Some(keeper) = &self.keeper else {
            return self.full.is_some();
        };
        let known = u32::try_from(keeper.len()).unwrap_or(u32::MAX);
        let entries = known.max(self.entry_count.unwrap_or(0));
        u64::from(entries) * 10 >= u64::from(keeper.capacity()) * u64::from(ROWS_SHARE)
            || self.full.is_some()
    }
}

/// Extra idle timeout past the ingress, so that the ingress entry ends first: switches look for
/// expired entries once a second, and not at the same time.
const DOWNSTREAM_EXTRA_S: u16 = 2;

impl Tables {
    /// Starts maintaining a switch's table, after its entries have been compared.
    fn start(&mut self, around: &mut Around<'_>, now: Instant, dpid: DatapathId) {
        let asks_limit = around.timeouts.default.is_adaptive();
        let Some(table) = self.tables.get_mut(&dpid) else {
            return;
        };
        table.asked_at = None;
        let is_told = table.said_max.is_some();
        // Open vSwitch reports a number that means nothing.
        let Some(known) = around.net.switch(dpid) else {
            return;
        };
        let says_nothing = known.is_open_vswitch();
        let version = known.version;
        if asks_limit && !is_told && !says_nothing {
            let (request, body) = match version {
                Version::V10 => (Request::Table, RequestBody::Table),
                _ => {
                    let all = RequestBody::TableFeatures(Vec::new());
                    (Request::TableFeatures, all)
                }
            };
            self.ask(around, now, dpid, (request, body));
        }
        self.fit(now, dpid, around.timeouts);
        self.watch(around, now, dpid);
        if self.wants_polls(around.timeouts, dpid) {
            self.poll_at(around.outbox, now, dpid, now + POLL_MIN);
        }
    }

    /// Fits all tables to limits that may have changed.
    fn fit_all(&mut self, around: &mut Around<'_>, now: Instant) {
        for dpid in around.net.dpids() {
            self.fit(now, dpid, around.timeouts);
            self.watch(around, now, dpid);
            if self.wants_polls(around.timeouts, dpid) && around.net.is_connected(dpid) {
                self.poll_at(around.outbox, now, dpid, now + POLL_MIN);
            }
        }
    }

    /// Sets the number of entries for which a switch's table has room. `count_max`: the maximum
    /// number of switches.
    fn set_limit(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        (dpid, limit): (DatapathId, Option<u32>),
        count_max: usize,
    ) {
        let limit = limit.map(|limit| limit.clamp(1, ENTRIES_MAX));
        let is_known = self.limits.contains_key(&dpid);
        let before = match limit {
            // Databases must not make the map grow without switches.
            Some(_) if !is_known && self.limits.len() >= count_max => {
                return;
            }
            Some(limit) => self.limits.insert(dpid, limit),
            None => self.limits.remove(&dpid),
        };
        if before == limit {
            return;
        }
        self.fit(now, dpid, around.timeouts);
        self.watch(around, now, dpid);
        if self.wants_polls(around.timeouts, dpid) && around.net.is_connected(dpid) {
            self.poll_at(around.outbox, now, dpid, now + POLL_MIN);
        }
    }

    fn wants_polls(&self, timeouts: &Timeouts, dpid: DatapathId) -> bool {
        let table = self.tables.get(&dpid);
        table.is_some_and(|table| table.keeper.is_some() || table.full.is_some())
            || timeouts.reads_flows()
    }

    fn poll_at(&mut self, outbox: &mut Outbox, now: Instant, dpid: DatapathId, due: Instant) {
        if let Some(table) = self.tables.get_mut(&dpid) {
            let due = due.max(now);
            table.poll_due = Some(due);
            outbox.timer(due, Timer::Poll(dpid));
        }
    }

    /// Reads a table that is due. Returns whether the reading is over already.
    fn poll_due(&mut self, around: &mut Around<'_>, now: Instant, dpid: DatapathId) -> bool {
        let Some(table) = self.tables.get_mut(&dpid) else {
            return false;
        };
        let Some(due) = table.poll_due else {
            return false;
        };
        if due > now {
            around.outbox.timer(due, Timer::Poll(dpid));
            return false;
        }
        table.poll_due = None;
        around.net.is_connected(dpid) && table.asked_at.is_none() && self.poll(around, now, dpid)
    }

    /// Requests a reading. Returns whether the reading is over already because it could not be
    /// requested.
    fn poll(&mut self, around: &mut Around<'_>, now: Instant, dpid: DatapathId) -> bool {
        let reads_flows = around.timeouts.reads_flows();
        let Some(table) = self.tables.get_mut(&dpid) else {
            return false;
        };
        (table.asked_at, table.read_at) = (Some(now), Some(now));
        let with_rows = reads_flows || table.is_filling();
        if !with_rows {
            table.active = 0;
        }
        if let Some(keeper) = table.keeper.as_mut().filter(|_| with_rows) {
            keeper.handle_poll_sent();
        }
        let version = around.net.version(dpid);
        if !self.ask(around, now, dpid, (Request::Table, RequestBody::Table)) {
            return true;
        }
        if with_rows {
            let mut rows = FlowStatsRequest::all();
            if version != Some(Version::V10) {
                rows.table_id = TableId(0);
                rows.cookie = COOKIE_PREFIX;
                rows.cookie_mask = COOKIE_PREFIX_MASK;
            }
            self.ask(around, now, dpid, (Request::Rows, RequestBody::Flow(rows)));
        }
        false
    }

    fn ask(
        &self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
        (request, body): (Request, RequestBody),
    ) -> bool {
        let message = Message::MultipartRequest(MultipartRequest { more: false, body });
        around
            .outbox
            .request(now, dpid, request, &message)
            .is_some()
    }

    /// Records a reported limit. A number larger than any table counts as none.
    fn handle_said_max(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
        max: u32,
    ) {
        if !(1..ENTRIES_MAX).contains(&max) {
            return;
        }
        if let Some(table) = self.tables.get_mut(&dpid)
            && table.said_max.replace(max) != Some(max)
        {
            self.fit(now, dpid, around.timeouts);
            self.watch(around, now, dpid);
            self.poll_at(around.outbox, now, dpid, now + POLL_MIN);
        }
    }

    /// Records the number of entries. Returns whether the reading is over.
    fn handle_occupancy(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
        row: Option<TableStats>,
    ) -> bool {
        let Some(mut row) = row else {
            return true;
        };
        // No table has more entries; sums of reported numbers must not overflow.
        row.active_count = row.active_count.min(ENTRIES_MAX);
        if let Some(v10) = &row.v10 {
            self.handle_said_max(around, now, dpid, v10.max_entries);
        }
        let Some(table) = self.tables.get_mut(&dpid) else {
            return false;
        };
        let is_first = table.entry_count.replace(row.active_count).is_none();
        if let Some(asked_at) = table.asked_at {
            table.round_trip = now.since(asked_at);
        }
        // After deletions, a smaller number of entries shows nothing.
        let known = table.keeper.as_ref().map(Keeper::capacity);
        let is_less = known.is_none_or(|known| row.active_count < high_mark(known));
        let evicted = table.evicted_at.map(|at| now.since(at));
        let is_steady = evicted.is_none_or(|since| since > TABLE_FULL_PAUSE);
        let is_asked = std::mem::take(&mut table.asked_for_limit);
        if is_asked && is_less && is_steady && row.active_count > 0 {
            table.learnt_max = Some(row.active_count);
            self.fit(now, dpid, around.timeouts);
            self.watch(around, now, dpid);
        }
        let Some(table) = self.tables.get_mut(&dpid) else {
            return false;
        };
        if let Some(keeper) = &mut table.keeper {
            let budget = keeper.budget();
            // Edges set entries that only this reading shows. After a long time their number is not
            // a rate.
            let unseen = row.active_count.saturating_sub(budget.entries());
            let is_rate = !is_first && !budget.is_stale(now);
            for _ in 0..unseen.min(UNSEEN_MAX) * u32::from(is_rate) {
                budget.handle_install(now);
            }
            budget.handle_poll(now, row.active_count, table.active);
        }
        !around.outbox.waits_for(dpid, Request::Rows)
    }

    /// Records a reading of single entries.
    fn handle_rows(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
        rows: impl Iterator<Item = FlowStats>,
    ) -> Option<Read> {
        let table = self.tables.get_mut(&dpid)?;
        let limit = table.keeper.as_ref().map(Keeper::capacity);
        table.leases.handle_reading_start();
        let mut count = 0;
        // Needed only where an entry was refused.
        let mut told = table.full.map(|_| BTreeSet::new());
        let mut strays = Vec::new();
        let mut forbidden = 0;
        for row in rows {
            count += 1;
            if is_dropping_guard(&row) {
                let counts = &mut table.guard_counts;
                forbidden += counts.handle(row.priority, &row.r#match, row.packet_count);
                continue;
            }
            let entry = Entry::from_stats(&row);
            if let (Some(told), Some(entry)) = (&mut told, &entry) {
                told.insert(entry.key);
            }
            let Some((mut entry, key)) = entry.and_then(|e| Some((e, RowKey::of(e.key)?))) else {
                continue;
            };
            // The statistics of 1.0 have no flags.
            let wanted = table.entries.get(&entry.key);
            if wanted.is_none() && entry.kind == EntryKind::Coarse {
                // Nothing would redirect the entry when its host moves.
                strays.push(entry.key);
                continue;
            }
            entry.notify |= wanted.is_some_and(|wanted| wanted.notify);
            // A dropping entry from before this process is neither known here nor evicted.
            let keeper = table.keeper.as_mut();
            let keeper = keeper.filter(|k| entry.kind != EntryKind::Barrier || k.contains(&key));
            if let Some(keeper) = keeper {
                keeper.handle_row(now, key, row.packet_count);
            }
            let age = Duration::from_secs(row.duration_sec.into())
                + Duration::from_nanos(row.duration_nsec.into());
            let packets = row.packet_count;
            table.leases.handle_row(now, &entry, packets, age, limit);
        }
        around.outbox.counters.packets_forbidden += forbidden;
        table.leases.handle_reading_end();
        self.lease_count += table.leases.len();
        self.lease_count -= table.leases_counted;
        table.leases_counted = table.leases.len();
        let entries = table.entry_count.unwrap_or(0).max(count);
        let polled = table.keeper.as_mut().map(|keeper| {
            let polled = keeper.handle_poll_end(now, entries);
            table.active = keeper.budget().active();
            polled
        });
        let (evict, excess) = polled.map_or((Vec::new(), 0), |p| (p.evict, p.coarsen));
        Some(Read {
            strays,
            evict,
            excess,
            told,
        })
    }

    /// Sets the time of the next reading, after the last answer.
    fn next_poll(&mut self, around: &mut Around<'_>, now: Instant, dpid: DatapathId) {
        let wants_polls = self.wants_polls(around.timeouts, dpid);
        let reads_flows = around.timeouts.reads_flows();
        let Some(table) = self.tables.get_mut(&dpid) else {
            return;
        };
        table.asked_at = None;
        if wants_polls && around.net.is_connected(dpid) {
            let by_room = table.keeper.as_mut().map(|keeper| keeper.next_poll(now));
            let by_lease = around.timeouts.lease_min_s().map(|hard_s| {
                let hard = Duration::from_secs(hard_s.into());
                let interval = table.leases.interval().unwrap_or(hard / 2);
                now + interval.clamp(POLL_MIN, POLL_MAX)
            });
            let next = by_room.into_iter().chain(by_lease).min();
            // A reading that could not be requested leaves the time of the next one in the past.
            let soonest = now + POLL_MIN;
            let is_watched = !reads_flows && table.vacancy.is_armed() && !table.is_filling();
            let due = match table.full {
                Some(_) => soonest,
                None if is_watched => now + POLL_WATCHED,
                None => next.unwrap_or(now + POLL_MAX).max(soonest),
            };
            self.poll_at(around.outbox, now, dpid, due);
        }
        self.grant_to_edge(around, now, dpid);
    }
}

/// Borrows only the fields that the tables work with, so that other machines can be used meanwhile.
macro_rules! around {
    ($controller:expr) => {
        Around {
            net: &$controller.network,
            timeouts: &$controller.config.timeouts,
            hosts: &$controller.hosts,
            outbox: &mut $controller.outbox,
        }
    };
}
use around;

impl Controller {
    /// The tables, and the fields that they work with.
    fn with_tables(&mut self) -> (&mut Tables, Around<'_>) {
        (&mut self.tables, around!(self))
    }

    /// Starts maintaining a switch's table, after its entries have been compared.
    pub(super) fn start_table(&mut self, now: Instant, dpid: DatapathId) {
        let (tables, mut around) = self.with_tables();
        tables.start(&mut around, now, dpid);
    }

    /// Fits all tables to limits that may have changed.
    pub(super) fn fit_tables(&mut self, now: Instant) {
        let (tables, mut around) = self.with_tables();
        tables.fit_all(&mut around, now);
    }

    /// Sets the number of entries for which a switch's table has room, from its database; `None` if
    /// the database does not name it. May be called before the switch connects, and applies until
    /// the next call.
    pub fn set_table_limit(&mut self, now: Instant, dpid: DatapathId, limit: Option<u32>) {
        let count_max = self.config.switch_count_max;
        let (tables, mut around) = self.with_tables();
        tables.set_limit(&mut around, now, (dpid, limit), count_max);
    }

    pub(super) fn poll_due(&mut self, now: Instant, dpid: DatapathId) {
        let (tables, mut around) = self.with_tables();
        if tables.poll_due(&mut around, now, dpid) {
            self.poll_over(now, dpid);
        }
    }

    /// Handles the answer to a request about the table, or its absence.
    pub(super) fn handle_table_answer(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        request: Request,
        bodies: Vec<ReplyBody>,
    ) {
        match request {
            Request::Table => {
                let rows = bodies.into_iter().flat_map(|body| match body {
                    ReplyBody::Table(rows) => rows,
                    _ => Vec::new(),
                });
                let first = rows.into_iter().find(|row| row.table_id == TableId(0));
                let (tables, mut around) = self.with_tables();
                if tables.handle_occupancy(&mut around, now, dpid, first) {
                    self.poll_over(now, dpid);
                }
            }
            Request::Rows => {
                let rows = bodies.into_iter().flat_map(|body| match body {
                    ReplyBody::Flow(rows) => rows,
                    _ => Vec::new(),
                });
                self.handle_rows(now, dpid, rows);
            }
            Request::TableFeatures => {
                let tables = bodies.into_iter().flat_map(|body| match body {
                    ReplyBody::TableFeatures(tables) => tables,
                    _ => Vec::new(),
                });
                let first = tables
                    .into_iter()
                    .find(|table| table.table_id == TableId(0));
                if let Some(table) = first {
                    let (tables, mut around) = self.with_tables();
                    tables.handle_said_max(&mut around, now, dpid, table.max_entries);
                }
            }
            Request::TableDesc => {
                let tables = bodies.into_iter().flat_map(|body| match body {
                    ReplyBody::TableDesc(tables) => tables,
                    _ => Vec::new(),
                });
                let first = tables
                    .into_iter()
                    .find(|table| table.table_id == TableId(0));
                let (tables, mut around) = self.with_tables();
                tables.handle_desc(&mut around, now, dpid, first);
            }
            // Requested by another module.
            Request::Entries
            | Request::Pulse { .. }
            | Request::Delay { .. }
            | Request::Groups
            | Request::Question(_)
            | Request::MeterFeatures
            | Request::Meters
            | Request::Qos
            | Request::QosRows
            | Request::QosMeters
            | Request::QosQueues
            | Request::Access
            | Request::MirroredRows
            | Request::MirroredGroups
            | Request::Static
            | Request::StaticRows
            | Request::Guest(..)
            | Request::GuestRows
            | Request::StaticGroups
            | Request::StaticMeters => {}
        }
    }

    fn handle_rows(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        rows: impl Iterator<Item = FlowStats>,
    ) {
        let (tables, mut around) = self.with_tables();
        let Some(read) = tables.handle_rows(&mut around, now, dpid, rows) else {
            return;
        };
        let Read {
            strays,
            evict,
            excess,
            told,
        } = read;
        for key in strays {
            self.drop_coarse(dpid, key);
        }
        self.evict(now, dpid, &evict);
        let pausing = self.make_coarse(now, dpid, excess);
        let is_room_made = !evict.is_empty() || pausing;
        let is_path = |dpid, row| self.paths.has_row(dpid, row);
        self.tables
            .renew_due(&mut around!(self), now, dpid, is_path);
        if let Some(told) = told {
            self.after_full(now, dpid, is_room_made, &told);
        }
        self.poll_over(now, dpid);
    }

    /// Makes coarse entries where the table is over nine tenths by `excess` although all entries
    /// are in use. If they free too few, evicts some entries whose flows pause. Returns whether any
    /// were evicted.
    fn make_coarse(&mut self, now: Instant, dpid: DatapathId, excess: u32) -> bool {
        let rest = self.coarsen(now, dpid, excess);
        let table = self.tables.get_mut(dpid);
        let keeper = table.and_then(|table| table.keeper.as_mut());
        let pausing = keeper.map_or(Vec::new(), |keeper| keeper.evict_pausing(now, rest));
        self.evict(now, dpid, &pausing);
        !pausing.is_empty()
    }

    /// Sets the time of the next reading and the limits of edges, after the last answer.
    fn poll_over(&mut self, now: Instant, dpid: DatapathId) {
        self.tell_edge_timeouts(now, dpid);
        self.relieve(now, dpid);
        let (tables, mut around) = self.with_tables();
        tables.next_poll(&mut around, now, dpid);
    }

    /// Handles a request of this module that got no answer.
    pub(super) fn table_unanswered(&mut self, now: Instant, dpid: DatapathId, request: Request) {
        match request {
            Request::TableFeatures => {}
            Request::TableDesc => self.tables.watch_unanswered(dpid),
            _ => self.poll_over(now, dpid),
        }
    }
}
