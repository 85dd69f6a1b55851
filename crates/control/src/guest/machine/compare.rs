//! The guest's rows as the switch reports them, compared with its entries.

use clock::Instant;
use openflow::message::{FlowMod, FlowModCommand, FlowRemovedReason};
use openflow::multipart::FlowStats;
use openflow::table::Pattern;
use openflow::{Action, Instruction, Match, TableId};

use super::super::band_of;
use super::super::entries::{Entries, Key, Row, of_cookie};
use super::Machine;
use super::changes::ALL_BITS;

impl Machine {
    /// Compares all rows that the switch has of this guest, as asked for at `asked_at`, and the
    /// groups and meters before them. Returns the numbers of rows kept, added and deleted, except
    /// rows that wait.
    pub fn handle_rows(
        &mut self,
        now: Instant,
        asked_at: Instant,
        rows: Vec<FlowStats>,
    ) -> [usize; 3] {
        self.read_parts(now);
        if self.groups.is_empty() && self.meters.is_empty() {
            return self.compare_rows(now, asked_at, rows);
        }
        // Entries cannot be set again before the groups and meters that they name.
        self.rows_waiting = Some((asked_at, rows));
        [0; 3]
    }

    pub(super) fn compare_rows(
        &mut self,
        now: Instant,
        asked_at: Instant,
        rows: Vec<FlowStats>,
    ) -> [usize; 3] {
        let mut counts = [0; 3];
        self.has_inherited = false;
        let mut seen: Vec<(u16, Pattern)> = Vec::new();
        let mut again: Vec<(Key, Pattern)> = Vec::new();
        for row in rows {
            match self.note_row(asked_at, &row) {
                Some((key, number, pattern, is_right)) => {
                    counts[0] += usize::from(is_right);
                    if !is_right {
                        again.push((key, pattern.clone()));
                    }
                    seen.push((number, pattern));
                }
                None if self.may_stay(&row) => {
                    counts[0] += 1;
                    self.has_inherited = true;
                }
                None => {
                    counts[2] += 1;
                    self.change(delete_row(&row), None);
                }
            }
        }
        seen.sort_unstable();
        let mut over: Vec<Key> = Vec::new();
        for (key, pattern) in missing(&self.entries, asked_at, &seen) {
            let entry = self.entries.get_mut(&key);
            let Some(entry) = entry else {
                continue;
            };
            if entry.is_lasting() {
                again.push((key, pattern));
                continue;
            }
            // The report of the row's end was lost.
            for row in entry.rows.iter_mut().filter(|row| row.pattern == pattern) {
                row.is_over = true;
            }
            if entry.rows.iter().all(|row| row.is_over) {
                over.push(key);
            }
        }
        for key in over {
            let is_idle = self
                .entries
                .get(&key)
                .is_some_and(|entry| entry.idle_timeout_s > 0);
            let reason = match is_idle {
                true => FlowRemovedReason::IDLE_TIMEOUT,
                false => FlowRemovedReason::HARD_TIMEOUT,
            };
            self.forget(now, &key, reason);
        }
        for (key, pattern) in again {
            if !self.may_mend(now) {
                break;
            }
            counts[1] += 1;
            self.mend(now, &key, &pattern);
        }
        counts
    }

    /// Whether a row of an earlier process stays until the guest's HELLO: the guest's entries are
    /// kept, and this could be one of them. Groups and meters do not stay, nor rows that use them.
    fn may_stay(&self, row: &FlowStats) -> bool {
        let (table, pattern) = (self.guest_table(row.table_id), Pattern::new(&row.r#match));
        let Some((table, pattern)) = table.zip(pattern.ok()) else {
            return false;
        };
        let is_in_place = table != TableId(0) || {
            let own = self.slice.narrow(&row.r#match).unwrap_or_default();
            let is_it = |m: &Match| Pattern::new(m).is_ok_and(|own| own == pattern);
            band_of(&self.config.priority).contains(&row.priority) && own.iter().any(is_it)
        };
        let stated = row.instructions.iter().map(|one| match one {
            Instruction::GotoTable(to) => self.guest_table(*to).map(Instruction::GotoTable),
            Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) => {
                let is_meter = |action: &Action| matches!(action, Action::Meter(_));
                (!actions.iter().any(is_meter)).then(|| one.clone())
            }
            other => Some(other.clone()),
        });
        let is_fit = stated
            .collect::<Option<Vec<Instruction>>>()
            .is_some_and(|stated| self.check(table, &stated, &[pattern]).is_ok());
        self.config.is_kept && !self.was_heard && is_in_place && is_fit
    }

    /// Whether the switch may have rows of the guest that must be read.
    pub fn has_rows(&self) -> bool {
        self.has_inherited || self.size() > 0
    }

    /// Notes a row of the switch. Returns its entry, and whether the row is as it was sent; `None`
    /// if it is none of the guest's rows. The first form in which a switch reports a row is taken
    /// as the switch's own form.
    fn note_row(
        &mut self,
        asked_at: Instant,
        row: &FlowStats,
    ) -> Option<(Key, u16, Pattern, bool)> {
        let (_, number) = of_cookie(row.cookie)?;
        let (key, _) = self.entries.numbered(number)?;
        let key = key.clone();
        if (self.switch_table(key.table), self.priority_of(&key)) != (row.table_id, row.priority) {
            return None;
        }
        let held = self.entries.get_mut(&key)?.row_mut(&row.r#match)?;
        held.counts = (row.packet_count, row.byte_count);
        let is_older = held.sent_at < asked_at;
        let is_right = match &held.form {
            Some(form) if is_older => *form == row.instructions,
            Some(_) => true,
            None => {
                held.form = is_older.then(|| row.instructions.clone());
                true
            }
        };
        Some((key, number, held.pattern.clone(), is_right))
    }

    /// Takes over the counters of the switch's rows.
    pub(super) fn note_counts(&mut self, rows: &[FlowStats]) {
        for row in rows {
            let number = of_cookie(row.cookie).map(|(_, number)| number);
            let key = number.and_then(|number| self.entries.numbered(number));
            let key = key.map(|(key, _)| key.clone());
            let entry = key.and_then(|key| self.entries.get_mut(&key));
            if let Some(held) = entry.and_then(|entry| entry.row_mut(&row.r#match)) {
                held.counts = (row.packet_count, row.byte_count);
            }
        }
    }
}

/// The message that deletes a row of a guest that no entry has, and no other row.
pub(crate) fn delete_row(row: &FlowStats) -> FlowMod {
    FlowMod {
        table_id: row.table_id,
        command: FlowModCommand::DeleteStrict,
        cookie: row.cookie,
        cookie_mask: ALL_BITS,
        instructions: Vec::new(),
        ..FlowMod::add(row.priority, row.r#match.clone(), Vec::new())
    }
}

/// The rows of entries that are missing from a reading.
fn missing(entries: &Entries, asked_at: Instant, seen: &[(u16, Pattern)]) -> Vec<(Key, Pattern)> {
    let rows = entries.iter().flat_map(|(key, entry)| {
        let is_due = |row: &&Row| {
            let is_held = entries.holder(key, &row.pattern) == Some(entry.number);
            is_held && !row.is_over && row.sent_at < asked_at
        };
        let rows = entry.rows.iter().filter(is_due);
        rows.map(move |row| (key, entry.number, &row.pattern))
    });
    let is_missing = |(_, number, pattern): &(&Key, u16, &Pattern)| {
        let is_it = |(of, seen): &(u16, Pattern)| of.cmp(number).then_with(|| seen.cmp(pattern));
        seen.binary_search_by(is_it).is_err()
    };
    let missing = rows.filter(is_missing);
    missing
        .map(|(key, _, pattern)| (key.clone(), pattern.clone()))
        .collect()
}
