//! The flow table of one switch: its capacity, its timeouts, and its behaviour when it is full.

use std::collections::{BTreeMap, BTreeSet};

use clock::{Duration, Instant};

use super::Key;
use crate::channel::event::EventQueue;

/// The error for an entry that the table refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableFull;

/// One entry's statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub key: Key,
    pub packets: u64,
    /// Time since the entry was set or set again.
    pub age: Duration,
    pub idle_s: u16,
    pub hard_s: u16,
}

pub(super) struct Table {
    capacity: usize,
    entries: BTreeMap<Key, Entry>,
    expiries: EventQueue<Key>,
    /// Entries by last use, where the switch evicts by itself.
    by_use: Option<BTreeSet<(Instant, Key)>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    packets: u64,
    set: Instant,
    used: Instant,
    idle_s: u16,
    hard_s: u16,
    /// Time of the next check of the entry's expiry; older events of this entry are void.
    looked_at: Option<Instant>,
}

impl Entry {
    fn expiry(&self) -> Option<Instant> {
        let seconds = |s: u16| (s > 0).then(|| Duration::from_secs(u64::from(s)));
        let idle = seconds(self.idle_s).map(|idle| self.used + idle);
        let hard = seconds(self.hard_s).map(|hard| self.set + hard);
        match (idle, hard) {
            (Some(idle), Some(hard)) => Some(idle.min(hard)),
            (idle, hard) => idle.or(hard),
        }
    }
}

impl Table {
    pub fn new(capacity: u32, evicts: bool) -> Table {
        Table {
            capacity: capacity as usize,
            entries: BTreeMap::new(),
            expiries: EventQueue::default(),
            by_use: evicts.then(BTreeSet::new),
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Handles a packet. Returns whether an entry matches it.
    pub fn hit(&mut self, now: Instant, key: Key) -> bool {
        let Some(entry) = self.entries.get_mut(&key) else {
            return false;
        };
        if let Some(by_use) = &mut self.by_use {
            by_use.remove(&(entry.used, key));
            by_use.insert((now, key));
        }
        entry.packets += 1;
        entry.used = now;
        true
    }

    /// Sets an entry, or sets it again: its timeouts restart. Returns the entry that was evicted
    /// for it.
    pub fn add(
        &mut self,
        now: Instant,
        key: Key,
        idle_s: u16,
        hard_s: u16,
    ) -> Result<Option<(Key, Instant)>, TableFull> {
        let known = self.entries.get(&key).copied();
        let mut evicted = None;
        if known.is_none() && self.entries.len() >= self.capacity {
            let oldest = self.by_use.as_ref().and_then(|by_use| by_use.first());
            let (_, oldest) = *oldest.ok_or(TableFull)?;
            evicted = self.delete(oldest).map(|ends| (oldest, ends));
        }
        let mut entry = Entry {
            packets: known.map_or(0, |entry| entry.packets),
            set: now,
            used: now,
            idle_s,
            hard_s,
            looked_at: None,
        };
        entry.looked_at = entry.expiry();
        if let Some(at) = entry.looked_at {
            self.expiries.push(at, key);
        }
        if let Some(by_use) = &mut self.by_use {
            if let Some(entry) = known {
                by_use.remove(&(entry.used, key));
            }
            by_use.insert((now, key));
        }
        self.entries.insert(key, entry);
        Ok(evicted)
    }

    /// Removes an entry. Returns the time at which it would have ended without a further packet;
    /// `None` if there is no entry.
    pub fn delete(&mut self, key: Key) -> Option<Instant> {
        let entry = self.entries.remove(&key)?;
        if let Some(by_use) = &mut self.by_use {
            by_use.remove(&(entry.used, key));
        }
        Some(entry.expiry().unwrap_or(Instant(u64::MAX)))
    }

    /// The next time at which an entry may expire.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.expiries.next_at()
    }

    /// Checks the next entry, and removes it if it has expired.
    pub fn expire(&mut self) -> Option<Key> {
        let (at, key) = self.expiries.pop()?;
        let entry = self.entries.get_mut(&key)?;
        if entry.looked_at != Some(at) {
            return None;
        }
        let expiry = entry.expiry()?;
        if expiry > at {
            entry.looked_at = Some(expiry);
            self.expiries.push(expiry, key);
            return None;
        }
        self.delete(key).map(|_| key)
    }

    /// The flow statistics.
    pub fn rows(&self, now: Instant) -> Vec<Row> {
        let row = |(key, entry): (&Key, &Entry)| Row {
            key: *key,
            packets: entry.packets,
            age: now.since(entry.set),
            idle_s: entry.idle_s,
            hard_s: entry.hard_s,
        };
        self.entries.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(s: u64) -> Instant {
        Instant(s * 1_000_000_000)
    }

    fn expired(table: &mut Table, until: Instant) -> Vec<Key> {
        let mut keys = Vec::new();
        while table.next_expiry().is_some_and(|at| at <= until) {
            keys.extend(table.expire());
        }
        keys
    }

    #[test]
    fn an_idle_timeout_counts_from_the_last_packet_and_a_hard_one_from_the_beginning() {
        let mut table = Table::new(10, false);
        table.add(s(0), Key(1), 2, 0).unwrap();
        table.add(s(0), Key(2), 0, 3).unwrap();
        table.add(s(0), Key(3), 0, 0).unwrap();
        (1..5).for_each(|at| assert!(table.hit(s(at), Key(1))));
        assert!(table.hit(s(2), Key(2)));
        assert_eq!(expired(&mut table, s(3)), [Key(2)]);
        assert_eq!(expired(&mut table, s(5)), []);
        assert_eq!(expired(&mut table, s(6)), [Key(1)]);
        assert!(!table.hit(s(6), Key(1)));
        let rows = table.rows(s(6));
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].key, rows[0].age), (Key(3), Duration::from_secs(6)));
    }

    #[test]
    fn an_entry_set_again_begins_anew() {
        let mut table = Table::new(1, false);
        table.add(s(0), Key(1), 0, 3).unwrap();
        table.hit(s(1), Key(1));
        table.add(s(2), Key(1), 0, 3).unwrap();
        let row = table.rows(s(3))[0];
        assert_eq!(
            (row.packets, row.age.as_secs()),
            (1, 1),
            "counted on, begun anew"
        );
        assert_eq!(expired(&mut table, s(4)), []);
        assert_eq!(expired(&mut table, s(5)), [Key(1)]);
        assert_eq!(expired(&mut table, s(9)), []);
    }

    #[test]
    fn a_full_table_refuses_or_puts_out_what_was_used_least_recently() {
        let mut table = Table::new(2, false);
        table.add(s(0), Key(1), 0, 0).unwrap();
        table.add(s(0), Key(2), 0, 0).unwrap();
        assert_eq!(table.add(s(1), Key(3), 0, 0), Err(TableFull));
        assert_eq!(table.add(s(1), Key(2), 0, 0), Ok(None), "no new one");
        let mut table = Table::new(2, true);
        table.add(s(0), Key(1), 0, 0).unwrap();
        table.add(s(1), Key(2), 0, 0).unwrap();
        table.hit(s(2), Key(1));
        let gone = |key| Ok(Some((Key(key), Instant(u64::MAX))));
        assert_eq!(table.add(s(3), Key(3), 0, 0), gone(2));
        assert_eq!(table.add(s(4), Key(4), 0, 0), gone(1));
        assert_eq!(table.len(), 2);
    }
}
