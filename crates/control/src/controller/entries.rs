//! The entries that a switch should have, and when each of them was sent.
//!
//! A FLOW_REMOVED names an entry by its key only. It may arrive after another entry of this key was
//! sent: on a busy controller, or when both happen at once. The time shows which of the two has
//! ended: an entry does not end before its timeout, and is not older than its sending.

use std::collections::BTreeMap;
use std::ops::RangeFrom;

use clock::{Duration, Instant};
use openflow::message::{FlowMod, FlowModCommand, FlowRemoved};
use openflow::multipart::FlowStats;
use openflow::{MacAddr, Match, TableId};

use crate::entry::{self, COOKIE_PREFIX, COOKIE_PREFIX_MASK, Entry, EntryKey};
use crate::indexed::{Indexed, Keyed};

/// Time to wait before deleting entries that no packet should use any more.
pub(super) const DRAIN: Duration = Duration::from_millis(100);

/// Time after the last barrier. A barrier reply does not prove that an entry is active: on Open
/// vSwitch the next packet took the old path for up to 17 ms, where the datapath kept a flow for
/// it.
pub(super) const SETTLE: Duration = Duration::from_millis(20);

/// Maximum number of dropped packets that one report of a switch may add. No switch drops more
/// between two reports, and with this bound no sum overflows.
pub(super) const FRESH_MAX: u64 = 1 << 32;

pub(super) struct Entries {
    /// The entries without a rule.
    plain: Indexed<Wanted>,
    /// The entries with a rule, in their order.
    rules: BTreeMap<EntryKey, Wanted>,
}

struct Wanted {
    entry: Entry,
    /// The time at which this process sent it last; `None` if an earlier process has set it.
    sent_at: Option<Instant>,
}

impl Keyed for Wanted {
    type Key = EntryKey;

    fn key(&self) -> EntryKey {
        self.entry.key
    }

    fn words(key: EntryKey) -> [u64; 2] {
        let mac = |mac: Option<MacAddr>| mac.map_or(0, MacAddr::to_u64);
        let port = u64::from(key.in_port.map_or(0, |port| port.0));
        // An entry with a type has no addresses.
        let number = u64::from(key.priority) << 16 | u64::from(key.eth_type.unwrap_or(0));
        let first = mac(key.eth_src) | port << 48;
        [first, mac(key.eth_dst) ^ port >> 16 ^ number << 32]
    }
}

impl Default for Entries {
    fn default() -> Entries {
        Entries::new(0)
    }
}

impl Entries {
    /// Makes an empty table. With a secret `seed` no host can choose addresses that collide.
    pub(super) fn new(seed: u64) -> Entries {
        Entries {
            plain: Indexed::new(seed),
            rules: BTreeMap::new(),
        }
    }

    fn insert(&mut self, wanted: Wanted) -> Option<Wanted> {
        match wanted.entry.key.rule {
            None => self.plain.insert(wanted),
            Some(_) => self.rules.insert(wanted.entry.key, wanted),
        }
    }

    fn wanted(&self, key: &EntryKey) -> Option<&Wanted> {
        match key.rule {
            None => self.plain.get(*key),
            Some(_) => self.rules.get(key),
        }
    }

    /// Notes that an entry is sent. Returns the entry of its key that was wanted before.
    pub(super) fn handle_sent(&mut self, now: Instant, entry: Entry) -> Option<Entry> {
        let sent_at = Some(now);
        let old = self.insert(Wanted { entry, sent_at });
        old.map(|old| old.entry)
    }

    /// Notes that the switch has an entry that this process has not sent.
    pub(super) fn adopt(&mut self, entry: Entry) {
        let sent_at = None;
        self.insert(Wanted { entry, sent_at });
    }

    pub(super) fn remove(&mut self, key: &EntryKey) -> Option<Entry> {
        let old = match key.rule {
            None => self.plain.remove(*key),
            Some(_) => self.rules.remove(key),
        };
        old.map(|old| old.entry)
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&Entry) -> bool) {
        self.plain.retain(|wanted| is_kept(&wanted.entry));
        self.rules.retain(|_, wanted| is_kept(&wanted.entry));
    }

    pub(super) fn get(&self, key: &EntryKey) -> Option<&Entry> {
        self.wanted(key).map(|wanted| &wanted.entry)
    }

    pub(super) fn contains_key(&self, key: &EntryKey) -> bool {
        self.wanted(key).is_some()
    }

    /// All entries. The entries with a rule come last, in their order.
    pub(super) fn values(&self) -> impl Iterator<Item = &Entry> {
        let all = self.plain.values().chain(self.rules.values());
        all.map(|wanted| &wanted.entry)
    }

    /// The entries with a rule, in their order, starting at the key `from`.
    pub(super) fn rules_from(&self, from: EntryKey) -> impl Iterator<Item = &Entry> {
        let range: RangeFrom<EntryKey> = from..;
        self.rules.range(range).map(|(_, wanted)| &wanted.entry)
    }

    pub(super) fn len(&self) -> usize {
        self.plain.len() + self.rules.len()
    }

    /// Whether the removed entry was an earlier one than the wanted entry of this key.
    pub(super) fn is_earlier(&self, now: Instant, key: &EntryKey, removed: &FlowRemoved) -> bool {
        let Some(Wanted { entry, sent_at }) = self.wanted(key) else {
            return false;
        };
        let age = sent_at.map(|at| now.since(at));
        entry::is_earlier(removed, age, (entry.idle_timeout_s, entry.hard_timeout_s))
    }
}

/// Deletes an entry of ours whose form this version does not make.
pub(super) fn delete_row(row: &FlowStats) -> FlowMod {
    delete_of(row.table_id, row.priority, &row.r#match)
}

pub(super) fn delete_of(table_id: TableId, priority: u16, r#match: &Match) -> FlowMod {
    FlowMod {
        command: FlowModCommand::DeleteStrict,
        table_id,
        cookie: COOKIE_PREFIX,
        cookie_mask: COOKIE_PREFIX_MASK,
        instructions: Vec::new(),
        ..FlowMod::add(priority, r#match.clone(), Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use openflow::PortNo;
    use openflow::message::FlowRemovedReason;

    use crate::entry::EntryKind;

    use super::*;

    fn entry(idle_timeout_s: u16, hard_timeout_s: u16) -> Entry {
        let (src, dst) = (MacAddr([2; 6]), MacAddr([4; 6]));
        Entry {
            key: EntryKey::pair(PortNo(1), src, dst),
            kind: EntryKind::Pair,
            out: PortNo(2),
            idle_timeout_s,
            hard_timeout_s,
            notify: true,
        }
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn removed(reason: FlowRemovedReason, lived: Duration) -> FlowRemoved {
        let entry = entry(0, 0);
        FlowRemoved {
            cookie: entry.kind.cookie(1),
            priority: entry.key.priority,
            reason,
            table_id: openflow::TableId(0),
            duration_sec: lived.as_secs() as u32,
            duration_nsec: lived.subsec_nanos(),
            idle_timeout: 0,
            hard_timeout: 0,
            packet_count: 0,
            byte_count: 0,
            r#match: entry.key.to_match(),
            stats: Vec::new(),
        }
    }

    #[test]
    fn a_timeout_that_cannot_be_over_is_of_an_earlier_entry() {
        const IDLE: FlowRemovedReason = FlowRemovedReason::IDLE_TIMEOUT;
        const HARD: FlowRemovedReason = FlowRemovedReason::HARD_TIMEOUT;
        let sent = Instant::START + ms(5000);
        for (idle_s, hard_s, reason, age, is_earlier) in [
            (2, 9, IDLE, 1960, true),
            (2, 9, IDLE, 2000, false),
            (2, 9, HARD, 8800, true),
            (2, 9, HARD, 9000, false),
            // A clock that is fast by a thousandth.
            (2, 170, HARD, 169_830, false),
            // An entry without a timeout never ends by it.
            (0, 9, IDLE, 60_000, true),
            (2, 0, HARD, 60_000, true),
        ] {
            let mut entries = Entries::default();
            entries.handle_sent(sent, entry(idle_s, hard_s));
            let removed = removed(reason, ms(1));
            let key = entry(0, 0).key;
            assert_eq!(
                entries.is_earlier(sent + ms(age), &key, &removed),
                is_earlier,
                "idle {idle_s} s, hard {hard_s} s, {reason:?} after {age} ms"
            );
        }
    }

    #[test]
    fn a_deleted_entry_that_lived_longer_than_this_one_is_earlier() {
        let sent = Instant::START + ms(5000);
        let mut entries = Entries::default();
        entries.handle_sent(sent, entry(60, 0));
        let key = entry(0, 0).key;
        // In 20 hours a switch's clock may gain ten minutes.
        for (age, lived, is_earlier) in [
            (20, 3000, true),
            (20, 10, false),
            (72_000_000, 72_600_000, false),
        ] {
            let removed = removed(FlowRemovedReason::DELETE, ms(lived));
            let found = entries.is_earlier(sent + ms(age), &key, &removed);
            assert_eq!(
                found, is_earlier,
                "sent {age} ms ago, gone after {lived} ms"
            );
        }
    }

    /// An adopted entry may end at once: the time when the earlier process sent it is unknown.
    #[test]
    fn an_adopted_entry_may_end_at_once() {
        let mut entries = Entries::default();
        entries.adopt(entry(60, 0));
        let removed = removed(FlowRemovedReason::IDLE_TIMEOUT, ms(60_000));
        let key = entry(0, 0).key;
        assert!(!entries.is_earlier(Instant::START, &key, &removed));
    }
}
