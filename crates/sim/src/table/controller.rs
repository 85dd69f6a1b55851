//! The controllers that set the entries: each compared policy, with the messages that it sends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clock::Budget;
use clock::{Duration, Instant};
use control::entry::{Entry, EntryKey, EntryKind};
use control::timeouts::budget::{POLL_MAX, POLL_MIN, coarsen};
use control::timeouts::keeper::Keeper;
use control::timeouts::leases::{Leases, Margin, RowKey};
use control::timeouts::{Lease, Paper};
use openflow::{MacAddr, PortNo};

use super::Key;
use super::switch::Row;

/// How entries end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The bound: entries never time out, and a switch with a full table evicts the least recently
    /// used entry in no time.
    Lru,
    Fixed {
        idle_s: u16,
        hard_s: u16,
    },
    /// The paper's rule at the ingress, without priority flows. The paper leaves open how often
    /// statistics are read and which entries are dropped. Here they are read every second while the
    /// table is empty and ten times as often when it is full; entries whose counters have not moved
    /// are dropped.
    Paper(Paper),
    Lease {
        lease: Lease,
        /// Where more entries are in use than fit, flows to a destination get one entry for each
        /// in-port, as between switches; this is the number of ports. Otherwise, or where that
        /// frees too few entries, flows that pause lose theirs.
        aggregates: Option<u16>,
    },
}

impl Policy {
    pub(super) fn entrances(self) -> u16 {
        match self {
            Policy::Lease { aggregates, .. } => aggregates.unwrap_or(1),
            _ => 1,
        }
    }
}

pub(super) enum Message {
    PacketIn {
        key: Key,
        destination: u16,
    },
    Removed(Key),
    /// The table statistics.
    Count(u32),
    /// The flow statistics.
    Rows(Vec<Row>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Add {
        key: Key,
        idle_s: u16,
        hard_s: u16,
        /// Whether the packet that asked for the entry is in the flow-mod (`buffer_id`), as with
        /// POX's learning switches: the packet is lost if the entry is refused. Otherwise a
        /// packet-out sends it.
        has_packet: bool,
    },
    Evict(Key),
    /// Evicts the entry of a flow that pauses and may continue: all entries were in use.
    EvictPausing(Key),
    /// A coarser entry takes its packets.
    Replace(Key),
    ReadCount,
    ReadRows,
}

/// The controller's own counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub renewals: u64,
    /// The largest number of renewals in one second.
    pub renewals_per_s_max: u64,
    /// Entries for a whole destination, from one port.
    pub coarse_entries: u64,
    /// The number of these entries taken out again because the table had room.
    pub coarse_relieved: u64,
    /// Reads that found more entries in use than fit.
    pub all_in_use: u64,
    /// Packet-ins answered without an entry.
    pub without_entry: u64,
    pub reads: u64,
}

pub(super) struct Controller {
    policy: Policy,
    capacity: u32,
    pub counts: Counts,
    keeper: Keeper<Key>,
    destinations: BTreeMap<Key, u16>,
    /// Coarse entries, and the number of entries that each has replaced.
    coarse: BTreeMap<Key, u32>,
    leases: Renewals,
    /// `paper`: the counters of the last read.
    read: BTreeMap<Key, u64>,
    read_at: Instant,
    is_reading: bool,
}

/// Single entries are read when the table is fuller than this many tenths.
const ROWS_TENTHS: u32 = 7;

/// `paper`: time between reads of an empty table, and of a full one.
const PAPER_READ_MAX: Duration = Duration::from_secs(1);
const PAPER_READ_MIN: Duration = Duration::from_millis(100);

impl Controller {
    pub fn new(policy: Policy, capacity: u32) -> Controller {
        let now = Instant::START;
        let renewals_max = match policy {
            Policy::Lease { lease, .. } => lease.renewals_max,
            _ => 0,
        };
        Controller {
            policy,
            capacity,
            counts: Counts::default(),
            keeper: Keeper::new(now, capacity),
            destinations: BTreeMap::new(),
            coarse: BTreeMap::new(),
            leases: Renewals::new(now, renewals_max),
            read: BTreeMap::new(),
            read_at: now,
            is_reading: false,
        }
    }

    pub fn handle(&mut self, now: Instant, message: Message, out: &mut Vec<Command>) {
        match message {
            Message::PacketIn { key, destination } => match self.policy {
                Policy::Lru => out.push(add(key, 0, 0, false)),
                Policy::Fixed { idle_s, hard_s } => out.push(add(key, idle_s, hard_s, true)),
                Policy::Paper(paper) => out.push(add(key, 0, paper.base_s, true)),
                Policy::Lease { lease, .. } => self.admit(now, lease, key, destination, out),
            },
            Message::Removed(key) => self.forget(key),
            Message::Count(entries) => {
                let budget = self.keeper.budget();
                let active = budget.active();
                budget.handle_poll(now, entries, active);
                self.is_reading = false;
                self.relieve(now, out);
            }
            Message::Rows(rows) => {
                self.is_reading = false;
                match self.policy {
                    Policy::Paper(_) => self.drop_unmoved(now, &rows, out),
                    Policy::Lease { lease, aggregates } => {
                        self.handle_rows(now, &rows, out);
                        self.make_room(now, aggregates.is_some(), out);
                        self.relieve(now, out);
                        self.renew_due(now, lease, out);
                    }
                    _ => {}
                }
            }
        }
    }

    /// The time of the next action that no message triggers.
    pub fn next_timeout(&mut self, now: Instant) -> Option<Instant> {
        let read = match self.policy {
            _ if self.is_reading => None,
            Policy::Paper(_) => {
                let full = self.read.len() as f64 / f64::from(self.capacity);
                let every = PAPER_READ_MAX.as_secs_f64() * (1.0 - full);
                let every = every.max(PAPER_READ_MIN.as_secs_f64());
                Some(self.read_at + Duration::from_secs_f64(every))
            }
            Policy::Lease { .. } => {
                let by_lease = self.leases.held.interval();
                let by_lease = by_lease.map(|i| self.read_at + i.clamp(POLL_MIN, POLL_MAX));
                let by_room = self.keeper.next_poll(now);
                Some(by_lease.map_or(by_room, |at| at.min(by_room)))
            }
            _ => None,
        };
        read.into_iter().chain(self.leases.due_at).min()
    }

    pub fn handle_timeout(&mut self, now: Instant, out: &mut Vec<Command>) {
        if let Policy::Lease { lease, .. } = self.policy
            && self.leases.due_at.is_some_and(|at| at <= now)
        {
            self.renew(now, lease, out);
        }
        let is_due = self.next_timeout(now).is_some_and(|at| at <= now);
        if self.is_reading || !is_due {
            return;
        }
        self.read_at = now;
        self.is_reading = true;
        self.counts.reads += 1;
        let entries = self.keeper.budget().entries();
        let is_lease = matches!(self.policy, Policy::Lease { .. });
        let is_roomy = entries * 10 < self.capacity * ROWS_TENTHS && self.leases.held.is_empty();
        if is_lease && is_roomy {
            return out.push(Command::ReadCount);
        }
        if is_lease {
            self.keeper.handle_poll_sent();
        }
        out.push(Command::ReadRows);
    }

    fn forget(&mut self, key: Key) {
        self.keeper.handle_removed(key);
        self.destinations.remove(&key);
        self.coarse.remove(&key);
        self.leases.held.handle_removed(key.row());
    }

    fn admit(
        &mut self,
        now: Instant,
        lease: Lease,
        key: Key,
        destination: u16,
        out: &mut Vec<Command>,
    ) {
        let coarse = self.coarse_key(key, destination);
        if self.keeper.contains(&key) || self.keeper.contains(&coarse) {
            // The entry is already on its way, so only the packet is sent.
            return;
        }
        let admission = self.keeper.install(now, key, false);
        for gone in admission.evict {
            self.evict(gone, out);
        }
        let Some(idle_s) = admission.idle_s else {
            self.counts.without_entry += 1;
            return;
        };
        self.destinations.insert(key, destination);
        let idle_s = idle_s.clamp(lease.idle_min_s, lease.idle_max_s);
        let hard_s = lease.hard_s(self.leases.held.len(), 1).unwrap_or(0);
        if hard_s > 0 {
            self.leases.held.handle_install(hard_s);
        }
        out.push(add(key, idle_s, hard_s, false));
    }

    fn evict(&mut self, key: Key, out: &mut Vec<Command>) {
        self.destinations.remove(&key);
        self.coarse.remove(&key);
        self.leases.held.handle_removed(key.row());
        out.push(Command::Evict(key));
    }

    fn handle_rows(&mut self, now: Instant, rows: &[Row], out: &mut Vec<Command>) {
        self.leases.held.handle_reading_start();
        for row in rows {
            self.keeper.handle_row(now, row.key, row.packets);
            let (entry, packets, age) = (row.entry(), row.packets, row.age);
            let limit = Some(self.capacity);
            self.leases
                .held
                .handle_row(now, &entry, packets, age, limit);
        }
        self.leases.held.handle_reading_end();
        let polled = self.keeper.handle_poll_end(now, rows.len() as u32);
        for gone in polled.evict {
            self.evict(gone, out);
        }
        self.counts.all_in_use += u64::from(polled.coarsen > 0);
    }

    /// Makes room: all entries above nine tenths by now are in use.
    fn make_room(&mut self, now: Instant, aggregates: bool, out: &mut Vec<Command>) {
        let excess = self.keeper.budget().excess();
        if aggregates && excess > 0 {
            self.coarsen(now, excess, out);
        }
        let excess = self.keeper.budget().excess();
        for gone in self.keeper.evict_pausing(now, excess) {
            self.destinations.remove(&gone);
            self.coarse.remove(&gone);
            self.leases.held.handle_removed(gone.row());
            out.push(Command::EvictPausing(gone));
        }
    }

    fn renew_due(&mut self, now: Instant, lease: Lease, out: &mut Vec<Command>) {
        if lease.lease_s.is_none() {
            return;
        }
        let late = self.leases.held.interval().unwrap_or(POLL_MAX);
        let margin = Margin {
            late: late.clamp(POLL_MIN, POLL_MAX),
            per_s: f64::from(lease.renewals_max),
        };
        self.leases.waiting = self.leases.held.due(now, margin).into();
        self.renew(now, lease, out);
    }

    fn coarse_key(&self, flow: Key, destination: u16) -> Key {
        Key::coarse(flow, destination, self.policy.entrances())
    }

    /// Gives each of the paths with most entries one coarse entry, as long as there are free
    /// places. The coarse entry is added first.
    fn coarsen(&mut self, now: Instant, excess: u32, out: &mut Vec<Command>) {
        let mut by_way: BTreeMap<Key, Vec<Key>> = BTreeMap::new();
        for key in self.keeper.coarsenable().filter(|key| !key.is_coarse()) {
            if let Some(destination) = self.destinations.get(&key) {
                let way = self.coarse_key(key, *destination);
                by_way.entry(way).or_default().push(key);
            }
        }
        let ways = by_way
            .iter()
            .flat_map(|(way, keys)| keys.iter().map(|_| *way));
        let chosen = coarsen(ways, excess);
        let places = self.keeper.free() as usize;
        for (coarse, _) in chosen.into_iter().take(places) {
            let replaced = by_way.remove(&coarse).unwrap_or_default();
            let idle_s = self.keeper.replace(now, coarse, &replaced);
            *self.coarse.entry(coarse).or_default() += replaced.len() as u32;
            self.counts.coarse_entries += 1;
            out.push(add(coarse, idle_s, 0, false));
            for key in replaced {
                self.destinations.remove(&key);
                self.leases.held.handle_removed(key.row());
                out.push(Command::Replace(key));
            }
        }
    }

    /// Removes coarse entries once the table is no longer under pressure, first those that have
    /// replaced the fewest entries. Each flow that still sends reaches the controller once: no
    /// ingress beside this switch knows which flows do.
    fn relieve(&mut self, now: Instant, out: &mut Vec<Command>) {
        if self.coarse.is_empty() {
            return;
        }
        let Some(mut room) = self.keeper.relief(now) else {
            return;
        };
        let mut by_size: Vec<(u32, Key)> = self.coarse.iter().map(|(k, n)| (*n, *k)).collect();
        by_size.sort_unstable();
        for (count, key) in by_size {
            let Some(left) = room.checked_sub(count) else {
                return;
            };
            room = left;
            self.coarse.remove(&key);
            self.keeper.handle_removed(key);
            self.counts.coarse_relieved += 1;
            out.push(Command::Replace(key));
        }
    }

    fn renew(&mut self, now: Instant, lease: Lease, out: &mut Vec<Command>) {
        self.leases.due_at = None;
        while let Some(row) = self.leases.waiting.front().copied() {
            if !self.leases.budget.take(now) {
                self.leases.due_at = Some(now + RENEWAL_PAUSE);
                return;
            }
            self.leases.waiting.pop_front();
            let hard_s = lease.hard_s(self.leases.held.len(), 1);
            let (Some(hard_s), Some(entry)) = (hard_s, self.leases.held.entry(row)) else {
                continue;
            };
            let entry = Entry {
                hard_timeout_s: hard_s,
                ..entry
            };
            self.leases.held.handle_renewed(now, &entry, false);
            self.leases.count(now, &mut self.counts);
            out.push(add(Key::of(row), entry.idle_timeout_s, hard_s, false));
        }
    }

    fn drop_unmoved(&mut self, now: Instant, rows: &[Row], out: &mut Vec<Command>) {
        let read: BTreeMap<Key, u64> = rows.iter().map(|row| (row.key, row.packets)).collect();
        let unmoved = |(key, packets): &(&Key, &u64)| self.read.get(*key) == Some(*packets);
        let dropped: BTreeSet<Key> = read.iter().filter(unmoved).map(|(key, _)| *key).collect();
        out.extend(dropped.into_iter().map(Command::Evict));
        self.read = read;
        self.read_at = now;
    }
}

/// The leases of the table, and those that wait to be renewed as fast as is allowed.
struct Renewals {
    held: Leases,
    waiting: VecDeque<RowKey>,
    due_at: Option<Instant>,
    budget: Budget,
    second: u64,
    in_second: u64,
}

const RENEWAL_PAUSE: Duration = Duration::from_millis(50);

impl Renewals {
    fn new(now: Instant, renewals_max: u32) -> Renewals {
        Renewals {
            held: Leases::default(),
            waiting: VecDeque::new(),
            due_at: None,
            // The renewals sent at once are those that a pause saves up.
            budget: Budget::new(now, renewals_max, (renewals_max / 20).max(1)),
            second: 0,
            in_second: 0,
        }
    }

    fn count(&mut self, now: Instant, counts: &mut Counts) {
        let second = now.as_nanos() / 1_000_000_000;
        if second != self.second {
            (self.second, self.in_second) = (second, 0);
        }
        self.in_second += 1;
        counts.renewals += 1;
        counts.renewals_per_s_max = counts.renewals_per_s_max.max(self.in_second);
    }
}

impl Key {
    /// Uses the flow as the source, so that every entry of the model is an entry of the controller.
    fn row(self) -> RowKey {
        RowKey {
            in_port: PortNo(1),
            src: MacAddr::from_u64(self.0.into()),
            dst: MacAddr::from_u64(u64::from(u32::MAX)),
            rule: None,
        }
    }

    fn of(row: RowKey) -> Key {
        Key(row.src.to_u64() as u32)
    }
}

impl Row {
    fn entry(&self) -> Entry {
        let row = self.key.row();
        Entry {
            key: EntryKey::pair(row.in_port, row.src, row.dst),
            kind: EntryKind::Pair,
            out: PortNo(2),
            idle_timeout_s: self.idle_s,
            hard_timeout_s: self.hard_s,
            notify: true,
        }
    }
}

fn add(key: Key, idle_s: u16, hard_s: u16, has_packet: bool) -> Command {
    Command::Add {
        key,
        idle_s,
        hard_s,
        has_packet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coarse_entry_goes_once_nothing_has_pressed_for_a_while() {
        let policy = Policy::Lease {
            lease: Lease::default(),
            aggregates: Some(1),
        };
        let mut controller = Controller::new(policy, 100);
        let ms = |ms: u64| Instant(ms * 1_000_000);
        let mut out = Vec::new();
        for flow in 0..98 {
            let (key, destination) = (Key(flow), (flow % 2) as u16);
            controller.handle(ms(1), Message::PacketIn { key, destination }, &mut out);
        }
        let row = |flow| Row {
            key: Key(flow),
            packets: 1,
            age: Duration::ZERO,
            idle_s: 60,
            hard_s: 0,
        };
        let rows = (0..98).map(row).collect();
        out.clear();
        controller.handle(ms(300), Message::Rows(rows), &mut out);
        let coarse = Key::coarse(Key(0), 0, 1);
        let is_it =
            |command: &Command| matches!(command, Command::Add { key, .. } if *key == coarse);
        assert!(out.iter().any(is_it), "{out:?}");
        assert_eq!(
            out.iter()
                .filter(|c| matches!(c, Command::Replace(_)))
                .count(),
            49
        );
        let mut counted = |at: u64| {
            let mut out = Vec::new();
            controller.handle(ms(at), Message::Count(50), &mut out);
            out
        };
        assert_eq!(counted(10_200), []);
        assert_eq!(counted(10_300), [], "49 more are too many for 70");
        controller.handle(ms(20_400), Message::Count(10), &mut out);
        assert_eq!(out.last(), Some(&Command::Replace(coarse)));
        assert_eq!(controller.counts.coarse_relieved, 1);
    }
}
