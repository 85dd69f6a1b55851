//! The entries of one table: their timeouts, evictions, and the effects of statistics. This module
//! knows no switches and no messages, so the simulator runs the same code.
//!
//! A key is the caller's identity of an entry. Entries that this module does not know, such as
//! those that never end, count as occupied places and are never evicted.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};

use clock::{Duration, Fnv1a, Instant};

use super::budget::{
    Evict, POLL_MAX, POLL_MIN, Returns, TableBudget, Tracked, calm_mark, victims, whole_seconds,
};

/// The share of the capacity that is chosen in advance for eviction, in case new entries need room
/// before the next reading.
const SPARE_SHARE: u32 = 4;

/// New entries evict others when less than one part in this number of the capacity is free.
const KEPT_FREE_SHARE: u32 = 50;

/// Minimum calm time of the table before coarse entries give way to the entries they replaced.
const CALM: Duration = Duration::from_secs(10);

/// The share, one part in this number, of the free places below nine tenths that others may use
/// until the next reading.
const GRANT_SHARE: u32 = 4;

/// The terms of a new entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission<K> {
    /// Entries to evict first.
    pub evict: Vec<K>,
    /// The idle timeout. `None` if all entries are in use and there is no room. Then packets have
    /// no entry of their own until a coarse entry replaces some entries.
    pub idle_s: Option<u16>,
}

/// The consequences of a reading of the statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Polled<K> {
    /// Entries to evict now.
    pub evict: Vec<K>,
    /// The number of entries left above nine tenths because all others are in use. Coarse entries
    /// must replace them ([`super::budget::coarsen`]).
    pub coarsen: u32,
}

/// One table under `lease`.
#[derive(Clone, Debug)]
pub struct Keeper<K> {
    budget: TableBudget,
    entries: BTreeMap<K, Tracked>,
    returns: Returns,
    /// The entries that the last reading chose for eviction, in order. Some may have ended by now.
    spare: VecDeque<K>,
    /// The number of the reading under way, and the number of its rows so far.
    read: u8,
    rows: u32,
    read_at: Instant,
    /// Time between the last two reads.
    read_every: Duration,
    stretch: u32,
    /// The last time when more entries were in use than fit, or when entries were given back.
    pressed_at: Instant,
    /// The number of entries that others may set until the next reading, and the number that they
    /// may have set since the last.
    granted: u32,
    reserved: u32,
}

impl<K: Copy + Ord + Hash> Keeper<K> {
    pub fn new(now: Instant, capacity: u32) -> Keeper<K> {
        Keeper {
            budget: TableBudget::new(now, capacity),
            entries: BTreeMap::new(),
            returns: Returns::new(capacity),
            spare: VecDeque::new(),
            read: 0,
            rows: 0,
            read_at: now,
            read_every: Duration::ZERO,
            stretch: 1,
            pressed_at: now,
            granted: 0,
            reserved: 0,
        }
    }

    /// Sets the factor that lengthens timeouts while the controller is overloaded, as far as the
    /// table has room: see [`super::budget::Overload`].
    pub fn set_stretch(&mut self, factor: u32) {
        self.stretch = factor.max(1);
    }

    pub fn set_capacity(&mut self, capacity: u32) {
        self.budget.set_capacity(capacity);
    }

    pub fn capacity(&self) -> u32 {
        self.budget.capacity()
    }

    pub fn budget(&mut self) -> &mut TableBudget {
        &mut self.budget
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn keys(&self) -> impl Iterator<Item = K> + '_ {
        self.entries.keys().copied()
    }

    /// Keys of the entries that coarse ones may replace: all but those of priority flows.
    pub fn coarsenable(&self) -> impl Iterator<Item = K> + '_ {
        let entries = self.entries.iter().filter(|(_, e)| !e.is_priority());
        entries.map(|(key, _)| *key)
    }

    pub fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// Prepares a new entry. The entries it evicts count as removed from now on.
    pub fn install(&mut self, now: Instant, key: K, is_priority: bool) -> Admission<K> {
        if let Some(entry) = self.entries.get(&key) {
            // Set again: it takes no more room.
            let entry = *entry;
            return Admission {
                evict: Vec::new(),
                idle_s: Some(self.idle_s(now, entry)),
            };
        }
        // Above nine tenths, the next reading evicts the unused entries. Until then, evict only if
        // there would be no room: an entry that was unused may be in use by now.
        let mut evict = Vec::new();
        let keep_free = self.budget.capacity() / KEPT_FREE_SHARE + 1;
        while self.occupied() + keep_free >= self.budget.capacity() {
            let Some(spare) = self.take_spare() else {
                break;
            };
            self.take(spare);
            evict.push(spare);
        }
        // One place is kept for a coarse entry, which must exist before the entries that it
        // replaces are removed.
        if self.occupied() + 1 >= self.budget.capacity() {
            self.pressed_at = now;
            return Admission {
                evict,
                idle_s: None,
            };
        }
        let mut entry = self
            .returns
            .handle_install(now, fingerprint(&key), is_priority);
        entry.read = self.read;
        self.budget.handle_install(now);
        self.entries.insert(key, entry);
        Admission {
            evict,
            idle_s: Some(self.idle_s(now, entry)),
        }
    }

    /// Notes that an announced entry is sent only now: the statistics reply under way cannot show
    /// it.
    pub fn handle_sent(&mut self, now: Instant, key: K, is_priority: bool) {
        match self.entries.get_mut(&key) {
            Some(entry) => entry.read = self.read,
            None => drop(self.install(now, key, is_priority)),
        }
    }

    /// The occupied places, with those that others may have taken since the last reading.
    fn occupied(&self) -> u32 {
        self.budget.entries().saturating_add(self.reserved)
    }

    /// Grants a number of entries that others may set without asking until the next reading: a
    /// share of the free room, and in a full table the room made for the grant. Until the others
    /// learn of a new grant, they may still use the former one.
    pub fn grant(&mut self, now: Instant) -> u32 {
        let before = self.granted;
        let free = self.free().saturating_sub(self.kept_free() + before);
        let share = self.budget.room() / GRANT_SHARE;
        self.granted = share.max(self.expected(now)).min(free);
        self.reserved = self.granted.saturating_add(before);
        self.granted
    }

    /// The number of free places, for any kind of entry.
    pub fn free(&self) -> u32 {
        self.budget.capacity().saturating_sub(self.budget.entries())
    }

    /// The number of entries that may be set again in a calm table after coarse ones replaced them.
    /// The table stays far from the level where it would become coarse again. The next entries
    /// follow after the same calm time.
    pub fn relief(&mut self, now: Instant) -> Option<u32> {
        let calm = calm_mark(self.budget.capacity());
        let room = calm.saturating_sub(self.budget.entries());
        let is_calm = now.since(self.pressed_at) >= CALM && room > 0;
        is_calm.then(|| {
            self.pressed_at = now;
            room
        })
    }

    /// Prepares a coarse entry in place of the `replaced` entries. Returns its idle timeout.
    pub fn replace(&mut self, now: Instant, coarse: K, replaced: &[K]) -> u16 {
        replaced.iter().for_each(|key| self.take(*key));
        self.pressed_at = now;
        self.budget.handle_install(now);
        let mut entry = Tracked::new(now, false);
        entry.read = self.read;
        self.entries.insert(coarse, entry);
        self.idle_s(now, entry)
    }

    fn idle_s(&mut self, now: Instant, entry: Tracked) -> u16 {
        let cap = self.budget.idle_cap(now);
        whole_seconds(entry.idle(cap).saturating_mul(self.stretch).min(cap), cap)
    }

    /// Notes the switch's report that an entry was removed.
    pub fn handle_removed(&mut self, key: K) {
        self.take(key);
    }

    fn take(&mut self, key: K) {
        if let Some(entry) = self.entries.remove(&key) {
            self.returns.handle_gone(fingerprint(&key), entry);
            self.budget.handle_removed();
        }
    }

    fn take_spare(&mut self) -> Option<K> {
        while let Some(key) = self.spare.pop_front() {
            if self.entries.contains_key(&key) {
                return Some(key);
            }
        }
        None
    }

    /// The time of the next request for statistics.
    pub fn next_poll(&mut self, now: Instant) -> Instant {
        self.budget.next_poll(now)
    }

    /// Notes the request for statistics: entries set from now on may be missing from the reply.
    pub fn handle_poll_sent(&mut self) {
        self.read = self.read.wrapping_add(1);
        self.rows = 0;
    }

    /// Handles one row of the reply. Adopts an unknown entry, such as one of an earlier controller.
    pub fn handle_row(&mut self, now: Instant, key: K, packets: u64) {
        self.rows += 1;
        let entry = self.entries.entry(key);
        let entry = entry.or_insert_with(|| Tracked::new(now, false));
        entry.handle_poll(now, packets);
        entry.read = self.read;
    }

    /// Handles the end of the reply. `table_entries` counts all entries of the table, including
    /// those without a row.
    pub fn handle_poll_end(&mut self, now: Instant, table_entries: u32) -> Polled<K> {
        let read_every = now.since(self.read_at).min(POLL_MAX);
        (self.read_at, self.read_every) = (now, read_every);
        let (read, returns) = (self.read, &mut self.returns);
        let mut active = 0;
        self.entries.retain(|key, entry| {
            let is_there = entry.read == read;
            if !is_there {
                returns.handle_gone(fingerprint(key), *entry);
            }
            active += u32::from(is_there && entry.is_active(now));
            is_there
        });
        let others = table_entries.saturating_sub(self.rows);
        let entries = self.entries.len() as u32 + others;
        self.budget.handle_poll(now, entries, active);
        self.choose(now)
    }

    fn choose(&mut self, now: Instant) -> Polled<K> {
        let capacity = self.budget.capacity();
        let needed = self.expected(now) + self.kept_free() + self.granted;
        let needed = needed.min(capacity / 2);
        let lacking = (self.budget.entries() + needed).saturating_sub(capacity);
        let over = self.budget.excess();
        let excess = over.max(lacking);
        let reserve = capacity / SPARE_SHARE;
        let read_every = self.read_every;
        let which = Evict::Unused { read_every };
        self.spare = self.victims(now, which, excess + reserve).into();
        let evict: Vec<K> = (0..excess).map_while(|_| self.spare.pop_front()).collect();
        evict.iter().for_each(|key| self.take(*key));
        let coarsen = over.saturating_sub(evict.len() as u32);
        if coarsen > 0 {
            self.pressed_at = now;
        }
        Polled { evict, coarsen }
    }

    /// The expected number of new entries until the next reading, plus a quarter.
    fn expected(&mut self, now: Instant) -> u32 {
        (self.budget.new_flows_per_s(now) * POLL_MIN.as_secs_f64() * 1.25) as u32
    }

    fn kept_free(&self) -> u32 {
        self.budget.capacity() / KEPT_FREE_SHARE + 2
    }

    /// Entries to evict although their flows may go on, when [`Polled::coarsen`] cannot be met.
    /// Never one that moved in the last reading.
    pub fn evict_pausing(&mut self, now: Instant, count: u32) -> Vec<K> {
        let evict = self.victims(now, Evict::Pausing, count);
        evict.iter().for_each(|key| self.take(*key));
        evict
    }

    fn victims(&self, now: Instant, which: Evict, count: u32) -> Vec<K> {
        let entries = self.entries.iter().map(|(key, entry)| (*key, entry));
        victims(entries, now, which, count as usize)
    }
}

/// A hash that is the same for the same key in every process, unlike the standard library's.
fn fingerprint<K: Hash>(key: &K) -> u64 {
    let mut hasher = Fnv1a::default();
    key.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ms(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    /// The table of a switch, for a keeper to read.
    struct Table {
        keeper: Keeper<u32>,
        packets: BTreeMap<u32, u64>,
    }

    impl Table {
        fn new(capacity: u32) -> Table {
            Table {
                keeper: Keeper::new(ms(0), capacity),
                packets: BTreeMap::new(),
            }
        }

        fn install(&mut self, now: Instant, key: u32) -> Option<u16> {
            let admission = self.keeper.install(now, key, false);
            for gone in admission.evict {
                self.packets.remove(&gone).expect("it was there");
            }
            admission.idle_s.inspect(|_| {
                self.packets.insert(key, 0);
            })
        }

        fn poll(&mut self, now: Instant) -> Polled<u32> {
            self.keeper.handle_poll_sent();
            for (key, packets) in &self.packets {
                self.keeper.handle_row(now, *key, *packets);
            }
            let polled = self.keeper.handle_poll_end(now, self.packets.len() as u32);
            for gone in &polled.evict {
                self.packets.remove(gone).expect("it was there");
            }
            polled
        }

        fn send(&mut self, keys: impl Iterator<Item = u32>) {
            keys.for_each(|key| *self.packets.get_mut(&key).expect("it is there") += 1);
        }
    }

    #[test]
    fn room_is_made_before_an_entry_is_set_and_the_quiet_ones_go() {
        let mut table = Table::new(100);
        (0..90).for_each(|key| assert!(table.install(ms(u64::from(key)), key).is_some()));
        table.send(0..60);
        assert_eq!(table.poll(ms(1000)).evict, [], "too young to tell");
        table.send(0..60);
        assert_eq!(table.poll(ms(2000)).evict, [], "counts may be late");
        table.send(0..60);
        table.poll(ms(3000));
        for key in 100..120 {
            assert!(table.install(ms(3100), key).is_some());
            assert!(table.packets.len() <= 98, "{}", table.packets.len());
        }
        let gone: Vec<u32> = (0..90).filter(|k| !table.packets.contains_key(k)).collect();
        let first = gone.len() as u32;
        assert!(first >= 12, "{gone:?}");
        assert_eq!(
            gone,
            Vec::from_iter(60..60 + first),
            "the first set, of those that sent nothing"
        );
    }

    #[test]
    fn what_came_between_two_reads_is_taken_out_at_the_next() {
        let mut table = Table::new(100);
        (0..98).for_each(|key| assert!(table.install(ms(1), key).is_some()));
        assert_eq!(table.poll(ms(300)).evict, []);
        assert_eq!(table.poll(ms(1300)).evict, []);
        assert!(table.poll(ms(2300)).evict.len() >= 8);
        assert!(table.packets.len() <= 90, "{}", table.packets.len());
    }

    #[test]
    fn a_table_of_busy_flows_is_made_coarse_and_no_flow_cut_off() {
        let mut table = Table::new(100);
        (0..98).for_each(|key| assert!(table.install(ms(1), key).is_some()));
        table.send(0..98);
        let polled = table.poll(ms(300));
        assert_eq!((polled.evict.len(), polled.coarsen), (0, 8));
        assert_eq!(table.keeper.evict_pausing(ms(300), 8), []);
        assert!(table.install(ms(301), 98).is_some());
        assert_eq!(table.install(ms(301), 99), None, "one place is kept");
        let replaced: Vec<u32> = table.keeper.keys().take(9).collect();
        table.keeper.replace(ms(302), 1000, &replaced);
        assert_eq!(table.keeper.budget().entries(), 91);
        assert!(table.install(ms(303), 99).is_some());
    }

    /// Not at once, and only as far as it stays far from full.
    #[test]
    fn a_calm_table_gives_entries_back() {
        let mut table = Table::new(100);
        (0..98).for_each(|key| assert!(table.install(ms(1), key).is_some()));
        table.send(0..98);
        assert_eq!(table.poll(ms(300)).coarsen, 8);
        (0..50).for_each(|key| table.keeper.handle_removed(key));
        assert_eq!(table.keeper.relief(ms(10_200)), None);
        assert_eq!(table.keeper.relief(ms(10_300)), Some(22));
        assert_eq!(table.keeper.relief(ms(20_200)), None, "once a while");
        (50..98).for_each(|key| table.keeper.handle_removed(key));
        (100..170).for_each(|key| drop(table.keeper.install(ms(20_300), key, false)));
        assert_eq!(table.keeper.relief(ms(40_000)), None, "no room for any");
    }

    /// Between two readings others set the granted entries, after the later one also the rest of
    /// the old grant, and the keeper as many as it can.
    #[test]
    fn what_is_granted_to_others_stays_free() {
        for before in [0, 20, 60, 85] {
            let mut keeper = Keeper::new(ms(0), 100);
            (0..before).for_each(|key| drop(keeper.install(ms(1), key, false)));
            let first = keeper.grant(ms(1));
            let second = keeper.grant(ms(1));
            assert!(first > 0, "{before}");
            let set =
                (1000..2000).take_while(|key| keeper.install(ms(2), *key, false).idle_s.is_some());
            let set = set.count() as u32;
            assert!(before + set + first + second < 100, "{before}: {set}");
            assert!(before + set + first + second >= 98, "{before}: {set}");
        }
        let mut keeper = Keeper::new(ms(0), 100);
        (0..97).for_each(|key| drop(keeper.install(ms(1), key, false)));
        assert_eq!(keeper.grant(ms(1)), 0);
    }

    #[test]
    fn priority_flows_stay() {
        let mut keeper = Keeper::new(ms(0), 100);
        for key in 0..98 {
            let admission = keeper.install(ms(1), key, key < 95);
            assert!(admission.idle_s.is_some());
        }
        let mut poll = |at| {
            keeper.handle_poll_sent();
            (0..98).for_each(|key| keeper.handle_row(at, key, 0));
            keeper.handle_poll_end(at, 98)
        };
        assert_eq!(poll(ms(1000)).evict, []);
        assert_eq!(poll(ms(2000)).evict, []);
        let polled = poll(ms(3000));
        assert_eq!(polled.evict, [95, 96, 97]);
        assert_eq!(polled.coarsen, 5);
        assert_eq!(keeper.coarsenable().count(), 0);
    }

    /// Entries of the infrastructure, or of another controller.
    #[test]
    fn entries_of_others_take_room_and_are_left_alone() {
        let mut keeper = Keeper::new(ms(0), 100);
        keeper.install(ms(1), 7, false);
        let mut poll = |at| {
            keeper.handle_poll_sent();
            keeper.handle_row(at, 7, 0);
            keeper.handle_poll_end(at, 95)
        };
        assert_eq!(poll(ms(1000)).evict, []);
        assert_eq!(poll(ms(2000)).evict, []);
        let polled = poll(ms(3000));
        assert_eq!((polled.evict, polled.coarsen), (vec![7], 4));
    }

    #[test]
    fn entries_that_ended_unnoticed_are_forgotten_and_unknown_ones_taken_over() {
        let mut keeper = Keeper::new(ms(0), 100);
        (0..10).for_each(|key| drop(keeper.install(ms(1), key, false)));
        keeper.handle_poll_sent();
        keeper.install(ms(2), 50, false);
        (5..12).for_each(|key| keeper.handle_row(ms(3), key, 9));
        keeper.handle_poll_end(ms(3), 7);
        assert_eq!(
            keeper.keys().collect::<Vec<_>>(),
            [5, 6, 7, 8, 9, 10, 11, 50]
        );
        assert_eq!(
            keeper.budget().entries(),
            8,
            "one was set after the question"
        );
    }

    /// A path's first entry is sent when the others are confirmed: a reading may fall between.
    #[test]
    fn an_entry_that_is_sent_late_is_not_taken_for_gone() {
        let mut keeper = Keeper::new(ms(0), 100);
        keeper.install(ms(1), 7, false);
        keeper.handle_poll_sent();
        keeper.handle_sent(ms(2), 7, false);
        keeper.handle_poll_end(ms(3), 0);
        assert!(keeper.contains(&7));
        keeper.handle_poll_sent();
        keeper.handle_poll_end(ms(300), 0);
        assert!(!keeper.contains(&7));
    }

    /// 5 flows a second fit for ever, 500 for a second and a half.
    #[test]
    fn timeouts_shrink_as_flows_come_faster() {
        let idle_s = |per_s: u64, stretch| {
            let mut keeper = Keeper::new(ms(0), 1000);
            keeper.set_stretch(stretch);
            let last = (0..per_s * 10).map(|n| {
                keeper.handle_removed(n.saturating_sub(100));
                let admission = keeper.install(ms(n * 1000 / per_s), n, false);
                admission.idle_s.expect("there is room")
            });
            last.last()
        };
        assert_eq!(idle_s(5, 1), Some(60));
        assert_eq!(idle_s(100, 1), Some(8));
        assert_eq!(idle_s(500, 1), Some(2));
        assert_eq!(idle_s(500, 8), Some(2), "the table has no more");
    }

    /// A flow that ends and returns: the gap sets its timeout.
    #[test]
    fn a_flow_that_comes_back_is_given_its_gaps_and_stretched_under_load() {
        let idle_s = |stretch| {
            let mut keeper = Keeper::new(ms(0), 1000);
            keeper.set_stretch(stretch);
            keeper.install(ms(0), 7, false);
            keeper.handle_removed(7);
            keeper.install(ms(0) + SECOND, 7, false).idle_s
        };
        assert_eq!((idle_s(1), idle_s(2)), (Some(8), Some(16)));
    }
}
