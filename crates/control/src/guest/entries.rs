//! The entries of a guest, as the guest has stated them, with the form that each has in the switch.
//!
//! The selection of entries by match, priority, cookie and output follows the reference switch
//! (`openflow::table`), and so do the errors.

use std::collections::BTreeMap;
use std::ops::Range;

use clock::{Duration, Instant};
use openflow::message::{FlowMod, FlowModCommand, FlowModFlags, FlowRemoved, FlowRemovedReason};
use openflow::multipart::{FlowStats, FlowStatsRequest};
use openflow::table::Pattern;
use openflow::{Action, Cookie, GroupId, Instruction, Match, MeterId, PortNo, TableId};

use crate::entry::EntryKind;

use super::meters::meters_in;

/// The place of an entry in the guest's tables.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub table: TableId,
    pub priority: u16,
    pub pattern: Pattern,
}

/// An entry as the guest has stated it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Its number in the cookie of its rows in the switch.
    pub number: u16,
    pub cookie: Cookie,
    pub flags: FlowModFlags,
    pub idle_timeout_s: u16,
    pub hard_timeout_s: u16,
    pub matching: Match,
    pub instructions: Vec<Instruction>,
    pub added_at: Instant,
    pub modified: u32,
    /// Its entries in the switch: one for each part of the guest's packets that it can match.
    pub rows: Vec<Row>,
}

/// An entry in the switch.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub matching: Match,
    pub pattern: Pattern,
    /// Whether it has timed out.
    pub is_over: bool,
    /// The instructions that the switch has reported for it since it was sent.
    pub form: Option<Vec<Instruction>>,
    pub sent_at: Instant,
    /// Packets and bytes, as last read.
    pub counts: (u64, u64),
}

/// The cookie of a guest's entries in the switch:
///
/// ```text
/// 63            32 31        16 15     8 7          0
/// | "aust"         | number     |  kind  |   guest    |
/// ```
pub(super) fn cookie(guest: u8, number: u16) -> Cookie {
    Cookie(EntryKind::Guest.cookie(number).0 | u64::from(guest))
}

/// The guest and the number in an entry's cookie.
pub(crate) fn of_cookie(cookie: Cookie) -> Option<(u8, u16)> {
    let is_its = EntryKind::of(cookie) == Some(EntryKind::Guest);
    is_its.then_some((cookie.0 as u8, (cookie.0 >> 16) as u16))
}

/// The bits of a cookie that name the guest.
pub(super) const GUEST_MASK: Cookie = Cookie(crate::entry::COOKIE_PREFIX_MASK.0 | 0xffff);

#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    all: BTreeMap<Key, Entry>,
    by_number: BTreeMap<u16, Key>,
    /// The entries of each place in the first table. Two of the guest's entries of one priority may
    /// become the same when they are narrowed: the last one is in the switch.
    places: BTreeMap<(u16, Pattern), Vec<u16>>,
    last: u16,
}

/// The terms by which MODIFY, DELETE and requests for statistics select entries.
pub(super) struct Selection<'a> {
    pub table: TableId,
    pub pattern: &'a Pattern,
    /// Only entries of this priority and exactly this match.
    pub strict: Option<u16>,
    pub cookie: (Cookie, Cookie),
    pub out: (PortNo, GroupId),
}

impl<'a> Selection<'a> {
    pub fn of(flow_mod: &FlowMod, pattern: &'a Pattern) -> Selection<'a> {
        use FlowModCommand as C;
        let deletes = matches!(flow_mod.command, C::Delete | C::DeleteStrict);
        let is_strict = matches!(flow_mod.command, C::ModifyStrict | C::DeleteStrict);
        Selection {
            table: flow_mod.table_id,
            pattern,
            strict: is_strict.then_some(flow_mod.priority),
            cookie: (flow_mod.cookie, flow_mod.cookie_mask),
            out: match deletes {
                true => (flow_mod.out_port, flow_mod.out_group),
                false => (PortNo::ANY, GroupId::ANY),
            },
        }
    }

    pub fn of_request(request: &FlowStatsRequest, pattern: &'a Pattern) -> Selection<'a> {
        Selection {
            table: request.table_id,
            pattern,
            strict: None,
            cookie: (request.cookie, request.cookie_mask),
            out: (request.out_port, request.out_group),
        }
    }

    fn takes(&self, key: &Key, entry: &Entry) -> bool {
        let (cookie, mask) = self.cookie;
        let (port, group) = self.out;
        let is_there = self.table == TableId::ALL || self.table == key.table;
        let is_it = match self.strict {
            Some(priority) => key.priority == priority && key.pattern == *self.pattern,
            None => key.pattern.is_within(self.pattern),
        };
        is_there
            && is_it
            && (entry.cookie.0 ^ cookie.0) & mask.0 == 0
            && (port == PortNo::ANY || entry.outputs_to(port))
            && (group == GroupId::ANY || entry.groups().any(|id| id == group))
    }
}

impl Entry {
    fn actions(&self) -> impl Iterator<Item = &Action> {
        self.instructions.iter().flat_map(|one| match one {
            Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) => {
                actions.as_slice()
            }
            _ => &[],
        })
    }

    /// The groups that the entry leads to.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> {
        self.actions().filter_map(|action| match action {
            Action::Group(id) => Some(*id),
            _ => None,
        })
    }

    /// The meters that the entry uses.
    pub fn meters(&self) -> impl Iterator<Item = MeterId> {
        meters_in(&self.instructions)
    }

    fn outputs_to(&self, port: PortNo) -> bool {
        let leads = |action: &Action| match action {
            Action::Output { port: to, .. } => *to == port,
            _ => false,
        };
        self.actions().any(leads)
    }

    /// Whether the entry takes the packets that no other entry matches.
    pub fn is_table_miss(&self, key: &Key) -> bool {
        key.priority == 0 && self.matching.fields.is_empty()
    }

    /// Packets and bytes of all the entry's rows, as last read.
    pub fn counts(&self) -> (u64, u64) {
        let add = |sum: (u64, u64), row: &Row| {
            let (packets, bytes) = row.counts;
            (sum.0.saturating_add(packets), sum.1.saturating_add(bytes))
        };
        self.rows.iter().fold((0, 0), add)
    }

    /// Whether the entry stays until somebody deletes it.
    pub fn is_lasting(&self) -> bool {
        self.idle_timeout_s == 0 && self.hard_timeout_s == 0
    }

    /// The row that a match in the switch belongs to.
    pub fn row_mut(&mut self, matching: &Match) -> Option<&mut Row> {
        let pattern = Pattern::new(matching).ok()?;
        self.rows.iter_mut().find(|row| row.pattern == pattern)
    }

    /// The rest of the entry's hard timeout.
    pub fn hard_left_s(&self, now: Instant) -> u16 {
        match self.hard_timeout_s {
            0 => 0,
            whole => {
                let lived = u16::try_from(now.since(self.added_at).as_secs()).unwrap_or(u16::MAX);
                whole.saturating_sub(lived).max(1)
            }
        }
    }

    /// The entry as the guest reads it back.
    pub fn stats(&self, key: &Key, now: Instant) -> FlowStats {
        let lived = now.since(self.added_at);
        FlowStats {
            table_id: key.table,
            duration_sec: seconds(lived),
            duration_nsec: lived.subsec_nanos(),
            priority: key.priority,
            idle_timeout: self.idle_timeout_s,
            hard_timeout: self.hard_timeout_s,
            flags: self.flags,
            cookie: self.cookie,
            packet_count: self.counts().0,
            byte_count: self.counts().1,
            r#match: self.matching.clone(),
            instructions: self.instructions.clone(),
            importance: 0,
            stats: Vec::new(),
        }
    }

    /// The report that the entry was removed.
    pub fn removed(&self, key: &Key, now: Instant, reason: FlowRemovedReason) -> FlowRemoved {
        let lived = now.since(self.added_at);
        FlowRemoved {
            cookie: self.cookie,
            priority: key.priority,
            reason,
            table_id: key.table,
            duration_sec: seconds(lived),
            duration_nsec: lived.subsec_nanos(),
            idle_timeout: self.idle_timeout_s,
            hard_timeout: self.hard_timeout_s,
            packet_count: self.counts().0,
            byte_count: self.counts().1,
            r#match: self.matching.clone(),
            stats: Vec::new(),
        }
    }
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

impl Entries {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Entries in the switch: one for each part of the guest's packets.
    pub fn row_count(&self) -> usize {
        self.all.values().map(|entry| entry.rows.len()).sum()
    }

    pub fn get(&self, key: &Key) -> Option<&Entry> {
        self.all.get(key)
    }

    pub fn get_mut(&mut self, key: &Key) -> Option<&mut Entry> {
        self.all.get_mut(key)
    }

    pub fn numbered(&self, number: u16) -> Option<(&Key, &Entry)> {
        self.all.get_key_value(self.by_number.get(&number)?)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.all.iter()
    }

    /// The entries of the first table at one priority.
    pub fn at_priority(&self, priority: u16) -> impl Iterator<Item = &Key> {
        let from = |priority| Key {
            table: TableId(0),
            priority,
            pattern: Pattern::default(),
        };
        let range: Range<Key> = match priority.checked_add(1) {
            Some(next) => from(priority)..from(next),
            None => {
                from(priority)..Key {
                    table: TableId(1),
                    ..from(0)
                }
            }
        };
        self.all.range(range).map(|(key, _)| key)
    }

    pub fn count_in(&self, table: TableId) -> usize {
        self.all.keys().filter(|key| key.table == table).count()
    }

    /// A number that no entry has. A number is reused as late as possible: reports of a removed
    /// entry may be under way.
    pub fn next_number(&mut self) -> u16 {
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.by_number.contains_key(&self.last) {
                return self.last;
            }
        }
    }

    pub fn insert(&mut self, key: Key, entry: Entry) -> Option<Entry> {
        let before = self.remove(&key);
        self.by_number.insert(entry.number, key.clone());
        for row in entry.rows.iter().filter(|_| key.table == TableId(0)) {
            let place = (key.priority, row.pattern.clone());
            self.places.entry(place).or_default().push(entry.number);
        }
        self.all.insert(key, entry);
        before
    }

    pub fn remove(&mut self, key: &Key) -> Option<Entry> {
        let entry = self.all.remove(key)?;
        self.by_number.remove(&entry.number);
        for row in entry.rows.iter().filter(|_| key.table == TableId(0)) {
            let place = (key.priority, row.pattern.clone());
            if let Some(numbers) = self.places.get_mut(&place) {
                numbers.retain(|number| *number != entry.number);
                if numbers.is_empty() {
                    self.places.remove(&place);
                }
            }
        }
        Some(entry)
    }

    /// The entry that the switch has in the place of a row.
    pub fn holder(&self, key: &Key, row: &Pattern) -> Option<u16> {
        match key.table {
            TableId(0) => {
                let numbers = self.places.get(&(key.priority, row.clone()))?;
                numbers.last().copied()
            }
            _ => self.all.get(key).map(|entry| entry.number),
        }
    }

    pub fn selected(&self, selection: &Selection<'_>) -> Vec<Key> {
        if let Some(priority) = selection.strict
            && selection.table != TableId::ALL
        {
            let key = Key {
                table: selection.table,
                priority,
                pattern: selection.pattern.clone(),
            };
            let entry = self.all.get(&key);
            return match entry.is_some_and(|entry| selection.takes(&key, entry)) {
                true => vec![key],
                false => Vec::new(),
            };
        }
        let taken = self.all.iter();
        let taken = taken.filter(|(key, entry)| selection.takes(key, entry));
        taken.map(|(key, _)| key.clone()).collect()
    }

    /// Whether some packet could match an entry and another one of its priority, which is no other
    /// form of the same.
    pub fn overlaps(&self, key: &Key) -> bool {
        let same = self
            .all
            .keys()
            .filter(|other| (other.table, other.priority) == (key.table, key.priority));
        { same }.any(|other| other.pattern.overlaps(&key.pattern))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_names_guest_and_entry_and_is_no_other_kinds() {
        for (guest, number) in [(0, 0), (15, 0xffff), (3, 0x1400)] {
            let cookie = cookie(guest, number);
            assert_eq!(of_cookie(cookie), Some((guest, number)));
            assert_eq!(EntryKind::of(cookie), Some(EntryKind::Guest));
            assert!(!crate::qos::flow::Flow::is_its(cookie));
        }
        for kind in [EntryKind::Static, EntryKind::Tap, EntryKind::Pair] {
            assert_eq!(of_cookie(kind.cookie(20)), None);
        }
        assert_eq!(of_cookie(Cookie(20 << 8)), None, "somebody else's");
    }
}
