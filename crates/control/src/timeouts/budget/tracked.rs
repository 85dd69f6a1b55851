//! The record of an entry, and the choices based on it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use clock::{Duration, Instant};

use super::{IDLE_MIN, POLL_MIN};

/// The number of long gaps of its flow that an entry outlives.
const GAPS_OUTLIVED: u32 = 4;

/// The maximum age of a switch's counters. Open vSwitch adds the packets of its datapath to them
/// every half a second, and later when it is busy.
pub const COUNTS_LATE: Duration = Duration::from_secs(1);

/// The record by which an entry is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracked {
    /// The low 32 bits: no flow sends 2^32 packets between two reads.
    packets: u32,
    /// The time of the last change in virtual time, which wraps after 49 days; an entry unchanged
    /// for longer counts as younger than it is.
    changed_ms: u32,
    /// Long gaps between its packets, 0 while unknown: the longest recent one.
    gap_us: u32,
    /// The number of times that the flow returned after its entry had ended.
    returns: u8,
    is_priority: bool,
    /// Whether the entry's packet count has risen since the last reading, or the entry was set
    /// since.
    is_moving: bool,
    /// The last reading that showed the entry.
    pub(in crate::timeouts) read: u8,
}

impl Tracked {
    /// Makes the record of an entry that was set at `now`.
    pub fn new(now: Instant, is_priority: bool) -> Tracked {
        Tracked {
            packets: 0,
            changed_ms: milliseconds(now),
            gap_us: 0,
            returns: 0,
            is_priority,
            is_moving: true,
            read: 0,
        }
    }

    /// The record of the same flow's next entry: its silence is one of its gaps.
    fn returned(mut self, now: Instant, is_priority: bool) -> Tracked {
        self.learn_gap(u64::from(self.silent_ms(now)) * 1000, 1);
        Tracked {
            gap_us: self.gap_us,
            returns: self.returns.saturating_add(1).min(Returns::MAX),
            ..Tracked::new(now, is_priority)
        }
    }

    /// Handles the entry's packet counter. Returns whether the counter has risen.
    pub fn handle_poll(&mut self, now: Instant, packets: u64) -> bool {
        let gained = (packets as u32).wrapping_sub(self.packets);
        self.is_moving = gained > 0;
        if gained > 0 {
            let passed_us = u64::from(self.silent_ms(now)) * 1000;
            self.learn_gap(passed_us, gained);
            self.packets = packets as u32;
            self.changed_ms = milliseconds(now);
        }
        self.is_moving
    }

    /// Learns a gap. Of the gaps between packets at random moments, one in twenty exceeds three
    /// times the mean (ln 20 = 2.996), and none exceeds the time passed. A longer gap counts at
    /// once and fades: after 27 short gaps, half of it is left.
    fn learn_gap(&mut self, passed_us: u64, gained: u32) {
        let seen = (3 * passed_us / u64::from(gained)).clamp(1, passed_us.max(1));
        let seen = u32::try_from(seen).unwrap_or(u32::MAX);
        let faded = self.gap_us - self.gap_us.saturating_sub(seen) / 40;
        self.gap_us = faded.max(seen);
    }

    /// T_i: four long gaps, doubled for each return of the flow; as long as the table allows for an
    /// unknown flow.
    pub fn idle(&self, cap: Duration) -> Duration {
        if self.gap_us == 0 {
            return cap.max(IDLE_MIN);
        }
        let gap = Duration::from_micros(u64::from(self.gap_us));
        let idle = (gap * GAPS_OUTLIVED).clamp(IDLE_MIN, cap.max(IDLE_MIN));
        let doubled = idle.saturating_mul(1 << self.returns.min(Returns::MAX));
        doubled.min(cap.max(IDLE_MIN))
    }

    pub fn gap(&self) -> Option<Duration> {
        (self.gap_us > 0).then(|| Duration::from_micros(u64::from(self.gap_us)))
    }

    pub fn is_moving(&self) -> bool {
        self.is_moving
    }

    pub fn is_priority(&self) -> bool {
        self.is_priority
    }

    /// The time since the packet count was last seen to rise.
    pub fn silent(&self, now: Instant) -> Duration {
        Duration::from_millis(u64::from(self.silent_ms(now)))
    }

    fn silent_ms(&self, now: Instant) -> u32 {
        milliseconds(now).wrapping_sub(self.changed_ms)
    }

    /// Whether its flow sends, as far as is known, without the benefit of the doubt.
    pub fn is_active(&self, now: Instant) -> bool {
        self.is_moving || self.gap().is_some_and(|gap| self.silent(now) <= gap)
    }

    /// Whether its flow may still be sending: it moved, or is silent for no longer than before. The
    /// time of the last packet is known to within `read_every`, the time between two readings, and
    /// counters may be `COUNTS_LATE` old. Without a second packet the gap counts as [`POLL_MIN`].
    pub fn is_in_use(&self, now: Instant, read_every: Duration) -> bool {
        let gap = self.gap().unwrap_or(POLL_MIN);
        self.is_moving || self.silent(now) <= gap + read_every + COUNTS_LATE
    }
}

fn milliseconds(now: Instant) -> u32 {
    (now.as_nanos() / 1_000_000) as u32
}

/// The entries that may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evict {
    /// Entries that are not in use, if the statistics are read this often.
    Unused { read_every: Duration },
    /// Also entries of flows that pause as they did before: the last choice.
    Pausing,
}

/// Up to `count` entries to evict, in order of eviction: the least recently changed first, never
/// one that moved in the last reading, never one of a priority flow.
pub fn victims<'a, K: Copy + Ord>(
    entries: impl Iterator<Item = (K, &'a Tracked)>,
    now: Instant,
    which: Evict,
    count: usize,
) -> Vec<K> {
    if count == 0 {
        return Vec::new();
    }
    let may_go = |entry: &Tracked| {
        let is_spared = match which {
            Evict::Unused { read_every } => entry.is_in_use(now, read_every),
            Evict::Pausing => entry.is_moving,
        };
        !is_spared && !entry.is_priority
    };
    let mut idle: Vec<_> = entries
        .filter(|(_, entry)| may_go(entry))
        .map(|(key, entry)| (Reverse(entry.silent_ms(now)), key))
        .collect();
    if idle.len() > count {
        idle.select_nth_unstable(count - 1);
        idle.truncate(count);
    }
    idle.sort_unstable();
    idle.into_iter().map(|(_, key)| key).collect()
}

/// The last resort, when all entries are in use: the groups of entries to replace by one entry each
/// so that at least `excess` places become free, and the number that each group frees. The largest
/// group is first.
pub fn coarsen<G: Ord>(groups: impl Iterator<Item = G>, excess: u32) -> Vec<(G, u32)> {
    let mut sizes: BTreeMap<G, u32> = BTreeMap::new();
    for group in groups {
        *sizes.entry(group).or_default() += 1;
    }
    let mut freed: Vec<(G, u32)> = (sizes.into_iter())
        .map(|(group, size)| (group, size - 1))
        .filter(|(_, frees)| *frees > 0)
        .collect();
    // Stable: groups of one size stay in their own order.
    freed.sort_by_key(|(_, frees)| Reverse(*frees));
    let mut sum = 0;
    let needed = freed.iter().take_while(|(_, frees)| {
        let is_needed = sum < excess;
        sum += frees;
        is_needed
    });
    let needed = needed.count();
    freed.truncate(needed);
    freed
}

/// Remembers flows whose entry has ended, in case they return. The memory is bounded by a multiple
/// of the table's capacity, and a newer flow replaces an older one.
#[derive(Clone, Debug)]
pub struct Returns {
    slot_count: usize,
    /// Empty before the first entry has ended: a switch that only reports its table size takes no
    /// memory.
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// High bits of the hash; 0 means empty.
    tag: u32,
    changed_ms: u32,
    gap_ms: u16,
    returns: u8,
}

impl Returns {
    /// Maximum number of doublings: 0.5 s becomes 64 s.
    pub const MAX: u8 = 7;
    /// The number of other flows, per entry, that follow entries of a second until a flow returns.
    const SLOTS_PER_ENTRY: u32 = 8;
    /// 3 MiB.
    const SLOTS_MAX: u32 = 1 << 18;

    pub fn new(capacity: u32) -> Returns {
        let slots = capacity.saturating_mul(Self::SLOTS_PER_ENTRY);
        Returns {
            slot_count: slots.clamp(1, Self::SLOTS_MAX) as usize,
            slots: Vec::new(),
        }
    }

    /// Notes that the flow's entry has ended, by its timeout or by eviction.
    pub fn handle_gone(&mut self, flow: u64, entry: Tracked) {
        let (slot, tag) = self.place(flow);
        self.slots.resize(self.slot_count, Slot::default());
        self.slots[slot] = Slot {
            tag,
            changed_ms: entry.changed_ms,
            gap_ms: u16::try_from(entry.gap_us.div_ceil(1000)).unwrap_or(u16::MAX),
            returns: entry.returns,
        };
    }

    /// Makes the record of the flow's new entry, with the history of its last one if known.
    pub fn handle_install(&mut self, now: Instant, flow: u64, is_priority: bool) -> Tracked {
        let (slot, tag) = self.place(flow);
        let slot = self.slots.get_mut(slot).map(std::mem::take);
        let Some(slot) = slot.filter(|slot| slot.tag == tag) else {
            return Tracked::new(now, is_priority);
        };
        let gone = Tracked {
            changed_ms: slot.changed_ms,
            gap_us: u32::from(slot.gap_ms) * 1000,
            returns: slot.returns,
            ..Tracked::new(now, is_priority)
        };
        gone.returned(now, is_priority)
    }

    fn place(&self, flow: u64) -> (usize, u32) {
        let hash = clock::mix(flow);
        let slot = hash % self.slot_count as u64;
        (slot as usize, (hash >> 32) as u32 | 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: Duration = Duration::from_secs(60);

    fn ms(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn polled(moved_at_ms: &[u64]) -> Tracked {
        let mut entry = Tracked::new(ms(0), false);
        for (n, at) in moved_at_ms.iter().enumerate() {
            entry.handle_poll(ms(*at), n as u64 + 1);
        }
        entry
    }

    #[test]
    fn a_timeout_is_four_long_gaps_within_what_the_table_allows() {
        assert_eq!(Tracked::new(ms(0), false).idle(CAP), CAP, "unknown");
        let slow = polled(&[2000, 4000, 6000]);
        assert_eq!(slow.idle(CAP), Duration::from_secs(8));
        assert_eq!(slow.idle(Duration::from_secs(3)), Duration::from_secs(3));
        let mut fast = Tracked::new(ms(0), false);
        (1..10).for_each(|n| assert!(fast.handle_poll(ms(n * 1000), n * 1000)));
        assert_eq!(fast.gap(), Some(Duration::from_millis(3)));
        assert_eq!(fast.idle(CAP), IDLE_MIN);
        assert_eq!(fast.idle(Duration::ZERO), IDLE_MIN);
    }

    #[test]
    fn a_gap_is_learnt_at_once_and_forgotten_slowly() {
        let mut entry = polled(&[100, 200]);
        assert_eq!(entry.gap(), Some(Duration::from_millis(100)));
        entry.handle_poll(ms(10_200), 3);
        assert_eq!(entry.gap(), Some(Duration::from_secs(10)));
        (1..=27).for_each(|n| assert!(entry.handle_poll(ms(10_200 + n * 100), 3 + n)));
        let gap_ms = entry.gap().unwrap().as_millis();
        assert!((5000..5200).contains(&gap_ms), "{gap_ms}");
    }

    /// Each time with the same gap: only the number of returns grows.
    #[test]
    fn a_returning_flow_is_given_twice_as_long() {
        let mut returns = Returns::new(1000);
        let mut now = ms(0);
        let mut entry = returns.handle_install(now, 7, false);
        assert_eq!(entry.idle(CAP), CAP, "nothing is known of it");
        let mut idle_s = || {
            now += Duration::from_secs(1);
            returns.handle_gone(7, entry);
            entry = returns.handle_install(now, 7, false);
            entry.idle(CAP).as_secs()
        };
        assert_eq!([(); 5].map(|()| idle_s()), [8, 16, 32, 60, 60]);
        let others = returns.handle_install(now, 8, false);
        assert_eq!(others.gap(), None);
        assert_eq!(
            returns.handle_install(now, 7, false).gap(),
            None,
            "told once"
        );
    }

    /// A million others take a slot each at most: the memory is bounded by the table.
    #[test]
    fn the_memory_of_returns_is_bounded() {
        let mut returns = Returns::new(100);
        assert_eq!(Returns::new(u32::MAX).slot_count, 1 << 18);
        assert!(returns.slots.is_empty(), "nothing has gone");
        let entry = Tracked::new(ms(0), false);
        (0..1_000_000).for_each(|flow| returns.handle_gone(flow, entry));
        let known = |flow| returns.handle_install(ms(1), flow, false).gap().is_some();
        assert!((0..1_000_000).map(known).filter(|known| *known).count() <= 800);
        assert_eq!(size_of::<Slot>(), 12);
    }

    #[test]
    fn the_longest_silent_goes_and_nothing_that_moves() {
        let mut entries = BTreeMap::new();
        let read_every = Duration::from_secs(1);
        // Entries 0 to 4 were seen to move at their number in seconds, and not in the last poll.
        for n in 0..5_u64 {
            let mut entry = polled(&[100, 200]);
            entry.handle_poll(ms(1000 * (n + 1)), 3);
            entry.handle_poll(ms(60_000), 3);
            entries.insert(n, entry);
        }
        let mut moving = polled(&[100, 200]);
        moving.handle_poll(ms(60_000), 3);
        entries.insert(5, moving);
        entries.insert(6, Tracked::new(ms(59_000), false));
        let mut priority = Tracked::new(ms(0), true);
        priority.handle_poll(ms(60_000), 0);
        entries.insert(7, priority);
        let go = |count| {
            let entries = entries.iter().map(|(k, e)| (*k, e));
            victims(entries, ms(60_000), Evict::Unused { read_every }, count)
        };
        assert_eq!(go(3), [0, 1, 2]);
        assert_eq!(go(100), [0, 1, 2, 3, 4], "the rest must stay");
        assert_eq!(go(0), [0; 0]);
    }

    /// A keep-alive flow of one packet each 10 s is in use although it was silent the longest.
    #[test]
    fn silence_within_a_flows_own_gap_is_use() {
        let mut slow = polled(&[10_000, 20_000]);
        let mut fast = Tracked::new(ms(20_000), false);
        fast.handle_poll(ms(21_000), 1);
        fast.handle_poll(ms(22_000), 2);
        slow.handle_poll(ms(26_000), 2);
        fast.handle_poll(ms(26_000), 2);
        let go = |at: u64, which| victims([(1, &slow), (2, &fast)].into_iter(), ms(at), which, 9);
        let read_every = Duration::from_secs(1);
        assert_eq!(go(26_000, Evict::Unused { read_every }), [2]);
        assert_eq!(go(24_900, Evict::Unused { read_every }), [0; 0]);
        assert_eq!(go(32_100, Evict::Unused { read_every }), [1, 2]);
        assert_eq!(go(26_000, Evict::Pausing), [1, 2], "the longest silent");
    }

    #[test]
    fn the_largest_groups_are_made_coarse_and_no_more_than_needed() {
        let groups = || "aaaaabbbbccd".chars();
        assert_eq!(coarsen(groups(), 4), [('a', 4)]);
        assert_eq!(coarsen(groups(), 5), [('a', 4), ('b', 3)]);
        assert_eq!(
            coarsen(groups(), 100).len(),
            3,
            "a group of one frees nothing"
        );
        assert_eq!(coarsen(groups(), 0), []);
    }

    #[test]
    fn time_and_counters_wrap() {
        let late = Instant((u64::from(u32::MAX) - 10) * 1_000_000);
        let mut entry = Tracked::new(late, false);
        entry.handle_poll(late, u64::from(u32::MAX));
        let next = late + Duration::from_millis(100);
        assert!(entry.handle_poll(next, u64::from(u32::MAX) + 5));
        assert_eq!(
            entry.silent(next + Duration::from_secs(1)),
            Duration::from_secs(1)
        );
    }
}
