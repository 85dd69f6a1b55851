//! Leases: entries with a hard timeout that must be set again before the timeout ends, as long as
//! their flow sends.
//!
//! A lease is known from the flow statistics alone. So an entry of an edge, or of an earlier
//! controller, is a lease like any other.

use std::collections::BTreeMap;

use clock::{Duration, Instant, mix};
use openflow::{MacAddr, PortNo};

use crate::entry::{Entry, EntryKey, EntryKind, Rule};

use super::Lease;

/// Maximum number of leases of one switch whose table size is unknown.
const COUNT_MAX: u32 = 1 << 20;

/// Number of readings of statistics within the shortest lease, so that a third of it has two.
const READINGS_PER_LEASE: u32 = 6;

/// Stands for all sources: no host has this address.
const ANY_SOURCE: MacAddr = MacAddr([0; 6]);

/// The identity of an entry between two hosts, or of a coarse one for all flows to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    pub in_port: PortNo,
    pub src: MacAddr,
    pub dst: MacAddr,
    /// `None` for the packets that have no finer entry.
    pub rule: Option<Rule>,
}

/// The leases of one switch.
#[derive(Debug, Default)]
pub struct Leases {
    held: BTreeMap<RowKey, Held>,
    /// The number of the last reading.
    round: u8,
    /// Leases set since that reading, which did not show them yet.
    fresh: usize,
    hard_min_s: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    /// The low 32 bits: no flow sends 2^32 packets between two readings.
    packets: u32,
    /// The time of the last change, and below it the end of the lease. Both are in virtual time,
    /// which wraps after 49 days.
    changed_ms: u32,
    until_ms: u32,
    out: PortNo,
    idle_s: u16,
    hard_s: u16,
    kind: EntryKind,
    notify: bool,
    /// The last reading that showed the entry.
    round: u8,
    /// Whether the entry was set again since that reading: some switches then restart its age,
    /// others do not.
    is_renewed: bool,
}

/// The safety margin of renewals.
#[derive(Clone, Copy, Debug)]
pub struct Margin {
    /// The maximum time until a due renewal is noticed and arrives.
    pub late: Duration,
    /// Maximum number of renewals of this switch per second.
    pub per_s: f64,
}

impl RowKey {
    /// The key of a row; `None` for entries of other shapes, and for short-lived ones.
    pub fn of(key: EntryKey) -> Option<RowKey> {
        let (in_port, dst) = (key.in_port?, key.eth_dst?);
        let any = key.is_coarse().then_some(ANY_SOURCE);
        let src = key.eth_src.or(any)?;
        (!key.is_successor()).then_some(RowKey {
            in_port,
            src,
            dst,
            rule: key.rule,
        })
    }

    pub fn entry_key(self) -> EntryKey {
        match (self.src, self.rule) {
            (ANY_SOURCE, _) => EntryKey::coarse(self.in_port, self.dst),
            (src, None) => EntryKey::pair(self.in_port, src, self.dst),
            (src, Some(rule)) => EntryKey::rule(self.in_port, src, self.dst, rule),
        }
    }
}

impl Lease {
    /// The hard timeout with which `active` leases need no more renewals than allowed: doubled as
    /// often as necessary. A lease is renewed when two thirds of its time are over.
    pub fn hard_s(&self, active: usize, stretch: u32) -> Option<u16> {
        let per_s = |hard_s: u64| active as u64 * 3 / (2 * hard_s);
        let mut hard_s = u64::from(self.lease_s?.max(1)) * u64::from(stretch.max(1));
        while per_s(hard_s) >= u64::from(self.renewals_max) && hard_s < u64::from(self.lease_max_s)
        {
            hard_s *= 2;
        }
        let most = self.lease_max_s.max(self.lease_s?);
        Some(u16::try_from(hard_s).unwrap_or(u16::MAX).min(most))
    }
}

impl Leases {
    /// The known number of leases.
    pub fn len(&self) -> usize {
        self.held.len() + self.fresh
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The maximum time until the next reading of statistics.
    pub fn interval(&self) -> Option<Duration> {
        let hard = Duration::from_secs(u64::from(self.hard_min_s?));
        Some(hard / READINGS_PER_LEASE)
    }

    pub fn handle_install(&mut self, hard_s: u16) {
        self.fresh += 1;
        let min_s = self.hard_min_s.unwrap_or(hard_s);
        self.hard_min_s = Some(min_s.min(hard_s));
    }

    pub fn handle_reading_start(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// Handles one entry of the statistics. `age` is the time since it was set or set again.
    pub fn handle_row(
        &mut self,
        now: Instant,
        entry: &Entry,
        packets: u64,
        age: Duration,
        limit: Option<u32>,
    ) {
        let (Some(key), 1..) = (RowKey::of(entry.key), entry.hard_timeout_s) else {
            return;
        };
        let packets = packets as u32;
        let until_ms = lease_end(now, entry.hard_timeout_s, age);
        let is_full = self.held.len() >= limit.unwrap_or(COUNT_MAX) as usize;
        let fresh = Held {
            packets,
            changed_ms: milliseconds(now),
            until_ms,
            out: entry.out,
            idle_s: entry.idle_timeout_s,
            hard_s: entry.hard_timeout_s,
            kind: entry.kind,
            notify: entry.notify,
            round: self.round,
            is_renewed: false,
        };
        let Some(held) = self.held.get_mut(&key) else {
            if !is_full {
                self.held.insert(key, fresh);
            }
            return;
        };
        let is_moved = held.packets != packets;
        *held = Held {
            changed_ms: if is_moved {
                fresh.changed_ms
            } else {
                held.changed_ms
            },
            // The switch's report may be from before the renewal, or count from the first setting.
            until_ms: if held.hard_s == fresh.hard_s || held.is_renewed {
                held.until_ms
            } else {
                until_ms
            },
            notify: held.notify || fresh.notify,
            ..fresh
        };
    }

    /// Removes the leases that the reading did not show.
    pub fn handle_reading_end(&mut self) {
        let round = self.round;
        self.held.retain(|_, held| held.round == round);
        self.fresh = 0;
        self.hard_min_s = self.held.values().map(|held| held.hard_s).min();
    }

    /// Leases that must be renewed now, in the order of their ends: less than a third of the lease
    /// is left, or less than the time to renew all leases that end before it. Only leases whose
    /// flow has sent within that third.
    pub fn due(&self, now: Instant, margin: Margin) -> Vec<RowKey> {
        let silent = |held: &Held| {
            let silent_ms = milliseconds(now).wrapping_sub(held.changed_ms);
            Duration::from_millis(u64::from(silent_ms))
        };
        let active = (self.held.iter())
            .filter(|(_, held)| silent(held) <= third(held.hard_s, margin))
            .map(|(key, held)| (remaining(now, held.until_ms), *key, held.hard_s));
        let mut by_end: Vec<(Duration, RowKey, u16)> = active.collect();
        by_end.sort_unstable();
        let must_start = |(before, (left, _, _)): &(usize, &(Duration, RowKey, u16))| {
            let queued_s = (before + 1) as f64 / margin.per_s.max(1.0);
            *left <= margin.late + Duration::from_secs_f64(queued_s)
        };
        let hurried = by_end.iter().enumerate().rev().find(must_start);
        let hurried = hurried.map_or(0, |(at, _)| at + 1);
        let due = by_end
            .iter()
            .enumerate()
            .filter(|(at, (left, key, hard_s))| {
                *at < hurried || *left <= jitter(third(*hard_s, margin), *key)
            });
        due.map(|(_, (_, key, _))| *key).collect()
    }

    /// The entry of a lease, with its current timeouts.
    pub fn entry(&self, key: RowKey) -> Option<Entry> {
        let held = self.held.get(&key)?;
        Some(Entry {
            key: key.entry_key(),
            kind: held.kind,
            out: held.out,
            idle_timeout_s: held.idle_s,
            hard_timeout_s: held.hard_s,
            notify: held.notify,
        })
    }

    /// Notes that a lease was set again with the timeouts of `entry`. `counts_anew`: its packet
    /// count restarts, as in OpenFlow 1.0.
    pub fn handle_renewed(&mut self, now: Instant, entry: &Entry, counts_anew: bool) {
        let held = RowKey::of(entry.key).and_then(|key| self.held.get_mut(&key));
        if let Some(held) = held {
            held.idle_s = entry.idle_timeout_s;
            held.hard_s = entry.hard_timeout_s;
            held.until_ms = lease_end(now, entry.hard_timeout_s, Duration::ZERO);
            held.is_renewed = true;
            if counts_anew {
                held.packets = 0;
            }
        }
    }

    pub fn handle_removed(&mut self, key: RowKey) {
        self.held.remove(&key);
    }
}

fn milliseconds(now: Instant) -> u32 {
    (now.as_nanos() / 1_000_000) as u32
}

fn lease_end(now: Instant, hard_s: u16, age: Duration) -> u32 {
    let hard = Duration::from_secs(u64::from(hard_s));
    milliseconds(now + hard.saturating_sub(age))
}

/// The remaining time; zero once the lease is over.
fn remaining(now: Instant, until_ms: u32) -> Duration {
    let left = until_ms.wrapping_sub(milliseconds(now)) as i32;
    Duration::from_millis(u64::try_from(left).unwrap_or(0))
}

/// The time max(L / 3, 3·RTT + poll): a lease is renewed when this time is left, and is active if
/// its flow has sent within this time.
fn third(hard_s: u16, margin: Margin) -> Duration {
    (Duration::from_secs(u64::from(hard_s)) / 3).max(margin.late)
}

/// Varies a time by ±10 %, by the same amount for an entry each time, so that leases set together
/// end at different times.
fn jitter(of: Duration, key: RowKey) -> Duration {
    let flow = key.src.to_u64() ^ mix(key.dst.to_u64() ^ u64::from(key.in_port.0) << 48);
    let permille = 900 + mix(flow) % 201;
    of * permille as u32 / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: Margin = Margin {
        late: Duration::from_millis(500),
        per_s: 1000.0,
    };

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn key(n: u64) -> RowKey {
        RowKey {
            in_port: PortNo(1),
            src: MacAddr::from_u64(n),
            dst: MacAddr::from_u64(2),
            rule: None,
        }
    }

    fn entry(n: u64, hard_s: u16) -> Entry {
        Entry {
            key: key(n).entry_key(),
            kind: EntryKind::Local,
            out: PortNo(2),
            idle_timeout_s: 60,
            hard_timeout_s: hard_s,
            notify: false,
        }
    }

    /// The entry, its packets and its age in milliseconds, and its hard timeout.
    type Row = (u64, u64, u64, u16);

    fn read(leases: &mut Leases, ms: u64, rows: impl IntoIterator<Item = Row>) {
        leases.handle_reading_start();
        for (n, packets, age_ms, hard_s) in rows {
            let age = Duration::from_millis(age_ms);
            leases.handle_row(at(ms), &entry(n, hard_s), packets, age, None);
        }
        leases.handle_reading_end();
    }

    #[test]
    fn an_active_lease_is_due_with_a_third_left_and_a_silent_one_never() {
        let mut leases = Leases::default();
        for second in 1..=9 {
            let (ms, active, silent) = (second * 1000, second * 10, 10);
            read(&mut leases, ms, [(1, active, ms, 9), (2, silent, ms, 9)]);
            let due = leases.due(at(ms), PLENTY);
            // 3 s ± 10 % of 9 s, and one silent for more than a third.
            match second {
                ..=5 => assert_eq!(due, [], "{second} s"),
                6 => {}
                _ => assert_eq!(due, [key(1)], "{second} s"),
            }
        }
    }

    #[test]
    fn a_renewed_lease_runs_anew() {
        let mut leases = Leases::default();
        read(&mut leases, 1000, [(1, 10, 1000, 9)]);
        read(&mut leases, 7500, [(1, 70, 7500, 9)]);
        assert_eq!(leases.due(at(7500), PLENTY), [key(1)]);
        leases.handle_renewed(at(7500), &entry(1, 18), false);
        assert_eq!(leases.due(at(7500), PLENTY), []);
        // A reading that was under way, and one after which the age has begun again.
        read(&mut leases, 7600, [(1, 71, 7600, 9)]);
        assert_eq!(leases.due(at(7600), PLENTY), []);
        read(&mut leases, 18_000, [(1, 170, 10_500, 18)]);
        assert_eq!(leases.due(at(18_000), PLENTY), []);
        read(&mut leases, 20_500, [(1, 190, 13_000, 18)]);
        assert_eq!(leases.due(at(20_500), PLENTY), [key(1)]);
    }

    /// 3,000 leases of 9 s that end together, at 1,000 renewals a second: the renewals begin in
    /// time.
    #[test]
    fn many_that_end_together_are_begun_earlier() {
        let mut leases = Leases::default();
        let all = |ms: u64| (0..3000).map(move |n| (n, ms, ms, 9));
        read(&mut leases, 1000, all(1000));
        read(&mut leases, 5000, all(5000));
        assert_eq!(leases.due(at(5000), PLENTY).len(), 0);
        read(&mut leases, 5600, all(5600));
        assert_eq!(leases.due(at(5600), PLENTY).len(), 3000);
    }

    #[test]
    fn leases_grow_with_their_number_and_under_load() {
        let lease = Lease {
            lease_s: Some(10),
            ..Lease::default()
        };
        let hard_s = |active| lease.hard_s(active, 1);
        assert_eq!(hard_s(6000), Some(10));
        assert_eq!(hard_s(7000), Some(20));
        assert_eq!(hard_s(50_000), Some(80), "937 renewals a second");
        assert_eq!(hard_s(10_000_000), Some(300));
        assert_eq!(lease.hard_s(1, 4), Some(40));
        assert_eq!(Lease::default().hard_s(50_000, 8), None);
    }

    #[test]
    fn what_a_reading_leaves_out_is_gone_and_what_has_no_hard_timeout_no_lease() {
        let mut leases = Leases::default();
        leases.handle_install(9);
        assert_eq!(leases.len(), 1);
        read(
            &mut leases,
            500,
            [(1, 5, 500, 9), (2, 5, 500, 3), (3, 5, 500, 0)],
        );
        assert_eq!(leases.len(), 2);
        assert_eq!(leases.interval(), Some(Duration::from_millis(500)));
        read(&mut leases, 1000, [(1, 5, 1000, 9)]);
        assert_eq!((leases.len(), leases.entry(key(2))), (1, None));
        assert_eq!(leases.interval(), Some(Duration::from_millis(1500)));
    }

    #[test]
    fn there_are_no_more_than_the_table_holds() {
        let mut leases = Leases::default();
        leases.handle_reading_start();
        for n in 0..1000 {
            leases.handle_row(at(1), &entry(n, 9), 1, Duration::ZERO, Some(100));
        }
        leases.handle_reading_end();
        assert_eq!(leases.len(), 100);
    }

    #[test]
    fn a_lease_is_48_bytes() {
        assert_eq!(size_of::<RowKey>() + size_of::<Held>(), 48);
    }
}
