//! FLOW_MOD: the entries of the guest, and the changes of the switch that follow.

use std::sync::Arc;

use clock::{Budget, Instant};
use openflow::message::{FlowMod, FlowModCommand, FlowModFlags, FlowRemoved, FlowRemovedReason};
use openflow::table::Pattern;
use openflow::{Cookie, ErrorKind, Instruction, Match, Message, TableId, Xid};

use super::super::ENTRIES_MAX;
use super::super::band::Move;
use super::super::entries::{Entry, Key, Row, Selection, cookie};
use super::{MENDED_PER_S, Machine, Origin, Output, Pending, Ticket};

pub(super) const ACTIONS_MAX: usize = 64;
pub(super) const ALL_BITS: Cookie = Cookie(u64::MAX);

impl Machine {
    pub(super) fn flow_mod(
        &mut self,
        now: Instant,
        origin: &Origin,
        flow_mod: &FlowMod,
        has_room: bool,
    ) -> Result<(), ErrorKind> {
        use FlowModCommand as C;
        let pattern = Pattern::new(&flow_mod.r#match)?;
        if flow_mod.flags.0 >> 5 != 0 {
            return Err(ErrorKind::FLOW_MOD_BAD_FLAGS);
        }
        let deletes = matches!(flow_mod.command, C::Delete | C::DeleteStrict);
        let is_known = usize::from(flow_mod.table_id.0) < self.tables.len();
        let is_all = deletes && flow_mod.table_id == TableId::ALL;
        if !(is_known || is_all) {
            return Err(ErrorKind::FLOW_MOD_BAD_TABLE_ID);
        }
        if flow_mod.buffer_id.is_some() && !deletes {
            return Err(ErrorKind::BUFFER_UNKNOWN);
        }
        match flow_mod.command {
            C::Add => self.add(now, origin, flow_mod, pattern, has_room)?,
            C::Modify | C::ModifyStrict => self.modify(now, origin, flow_mod, &pattern)?,
            C::Delete | C::DeleteStrict => {
                let selected = self.entries.selected(&Selection::of(flow_mod, &pattern));
                for key in selected {
                    self.delete(now, &key, FlowRemovedReason::DELETE);
                }
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        now: Instant,
        origin: &Origin,
        flow_mod: &FlowMod,
        pattern: Pattern,
        has_room: bool,
    ) -> Result<(), ErrorKind> {
        let key = Key {
            table: flow_mod.table_id,
            priority: flow_mod.priority,
            pattern,
        };
        // Tables after the first receive only the guest's packets.
        let matches = match key.table {
            TableId(0) => self.slice.narrow(&flow_mod.r#match)?,
            _ => vec![flow_mod.r#match.clone()],
        };
        let row = |matching: Match| {
            let pattern = Pattern::new(&matching)?;
            Ok(Row {
                matching,
                pattern,
                is_over: false,
                form: None,
                sent_at: now,
                counts: (0, 0),
            })
        };
        let rows = matches.into_iter().map(row);
        let rows = rows.collect::<Result<Vec<Row>, ErrorKind>>()?;
        let patterns: Vec<Pattern> = rows.iter().map(|row| row.pattern.clone()).collect();
        self.check(key.table, &flow_mod.instructions, &patterns)?;
        let check = flow_mod.flags.contains(FlowModFlags::CHECK_OVERLAP);
        if check && self.entries.overlaps(&key) {
            return Err(ErrorKind::FLOW_MOD_OVERLAP);
        }
        if self.entries.get(&key).is_none() {
            if self.entries.row_count() + rows.len() > ENTRIES_MAX || !has_room {
                return Err(ErrorKind::FLOW_MOD_TABLE_FULL);
            }
            if key.table == TableId(0) {
                let moves = self.band.take(key.priority);
                let moves = moves.ok_or(ErrorKind::FLOW_MOD_TABLE_FULL)?;
                self.make_room(now, &moves);
            }
        }
        let number = self.entries.next_number();
        let entry = Entry {
            number,
            cookie: flow_mod.cookie,
            flags: flow_mod.flags,
            idle_timeout_s: flow_mod.idle_timeout,
            hard_timeout_s: flow_mod.hard_timeout,
            matching: flow_mod.r#match.clone(),
            instructions: flow_mod.instructions.clone(),
            added_at: now,
            modified: 0,
            rows,
        };
        let before = self.entries.insert(key.clone(), entry).map(Arc::new);
        let pending = || Pending {
            origin: origin.clone(),
            key: key.clone(),
            number,
            modified: 0,
            before: before.clone(),
        };
        for flow_mod in self.rows_of(now, &key, FlowModCommand::Add) {
            self.change(flow_mod, Some(pending()));
        }
        Ok(())
    }

    /// Gives every entry concerned the new instructions; cookie, timeouts and flags stay.
    fn modify(
        &mut self,
        now: Instant,
        origin: &Origin,
        flow_mod: &FlowMod,
        pattern: &Pattern,
    ) -> Result<(), ErrorKind> {
        let selected = self.entries.selected(&Selection::of(flow_mod, pattern));
        let asked = &flow_mod.instructions;
        // Whatever holds for the packets of the match holds for those of each entry.
        let narrowed = match flow_mod.table_id {
            TableId(0) => self.slice.narrow(&flow_mod.r#match).unwrap_or_default(),
            _ => vec![flow_mod.r#match.clone()],
        };
        let patterns = narrowed.iter().map(Pattern::new);
        let patterns = patterns.collect::<Result<Vec<Pattern>, ErrorKind>>()?;
        self.check(flow_mod.table_id, asked, &patterns)?;
        let resets = flow_mod.flags.0 & FlowModFlags::RESET_COUNTS.0;
        for key in selected {
            let Some(entry) = self.entries.get_mut(&key) else {
                continue;
            };
            let before = Arc::new(entry.clone());
            entry.instructions.clone_from(asked);
            for row in &mut entry.rows {
                (row.form, row.sent_at) = (None, now);
            }
            entry.modified = entry.modified.wrapping_add(1);
            let (number, modified) = (entry.number, entry.modified);
            for mut flow_mod in self.rows_of(now, &key, FlowModCommand::ModifyStrict) {
                flow_mod.flags = FlowModFlags(flow_mod.flags.0 | resets);
                let pending = Pending {
                    origin: origin.clone(),
                    key: key.clone(),
                    number,
                    modified,
                    before: Some(before.clone()),
                };
                self.change(flow_mod, Some(pending));
            }
        }
        Ok(())
    }

    /// Deletes an entry. The guest gets a report if it has asked for one.
    pub(super) fn delete(&mut self, now: Instant, key: &Key, reason: FlowRemovedReason) {
        for flow_mod in self.rows_of(now, key, FlowModCommand::DeleteStrict) {
            self.change(flow_mod, None);
        }
        self.forget(now, key, reason);
    }

    /// Forgets an entry that the switch has removed, or is about to remove.
    pub(super) fn forget(&mut self, now: Instant, key: &Key, reason: FlowRemovedReason) {
        let Some(entry) = self.drop_entry(now, key) else {
            return;
        };
        let is_asked = entry.flags.contains(FlowModFlags::SEND_FLOW_REM);
        if is_asked && self.wants(|masks| masks.flow_removed_mask, reason.0) {
            let removed = entry.removed(key, now, reason);
            self.reply(Xid(0), &Message::FlowRemoved(removed));
        }
    }

    fn drop_entry(&mut self, now: Instant, key: &Key) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        if key.table == TableId(0) {
            self.band.leave(key.priority);
        }
        // Other entries of the guest may have been the same in the switch, and hidden by this one.
        for row in entry.rows.iter().filter(|_| key.table == TableId(0)) {
            let holder = self.entries.holder(key, &row.pattern);
            let twin = holder.and_then(|number| self.entries.numbered(number));
            if let Some(twin) = twin.map(|(twin, _)| twin.clone()) {
                self.send_row(now, &twin, &row.pattern);
            }
        }
        Some(entry)
    }

    /// Deletes all entries.
    pub(super) fn clear(&mut self) {
        let all: Vec<Key> = self.entries.iter().map(|(key, _)| key.clone()).collect();
        for key in all {
            self.delete(Instant::START, &key, FlowRemovedReason::DELETE);
        }
        self.clear_groups();
        self.clear_meters();
        self.pending.clear();
    }

    /// Moves entries to other priorities, and keeps their order at each step.
    fn make_room(&mut self, now: Instant, moves: &[Move]) {
        for one in moves {
            let keys: Vec<Key> = self.entries.at_priority(one.stated).cloned().collect();
            let mut away = Vec::new();
            for key in keys {
                for mut flow_mod in self.rows_of(now, &key, FlowModCommand::Add) {
                    flow_mod.priority = one.to;
                    self.change(flow_mod, None);
                }
                away.extend(self.rows_of(now, &key, FlowModCommand::DeleteStrict));
                for row in self
                    .entries
                    .get_mut(&key)
                    .into_iter()
                    .flat_map(|it| &mut it.rows)
                {
                    (row.form, row.sent_at) = (None, now);
                }
            }
            for mut flow_mod in away {
                flow_mod.priority = one.from;
                self.change(flow_mod, None);
            }
        }
    }

    pub(super) fn change(&mut self, flow_mod: FlowMod, pending: Option<Pending>) {
        let ticket = pending.map(|pending| {
            let ticket = self.next_ticket();
            self.pending.insert(ticket, pending);
            ticket
        });
        self.outputs
            .push_back(Output::Change(ticket, Box::new(flow_mod)));
    }

    /// The priority in the switch.
    pub(super) fn priority_of(&self, key: &Key) -> u16 {
        match key.table {
            TableId(0) => self.band.place(key.priority).unwrap_or_default(),
            _ => key.priority,
        }
    }

    /// The messages about all rows of an entry that have not timed out.
    fn rows_of(&self, now: Instant, key: &Key, command: FlowModCommand) -> Vec<FlowMod> {
        let Some(entry) = self.entries.get(key) else {
            return Vec::new();
        };
        let rows = entry.rows.iter().filter(|row| !row.is_over);
        rows.map(|row| self.row_mod(now, (key, entry), row, command))
            .collect()
    }

    fn row_mod(
        &self,
        now: Instant,
        (key, entry): (&Key, &Entry),
        row: &Row,
        command: FlowModCommand,
    ) -> FlowMod {
        const KEPT: u16 = FlowModFlags::RESET_COUNTS.0
            | FlowModFlags::NO_PKT_COUNTS.0
            | FlowModFlags::NO_BYT_COUNTS.0;
        let is_add = command == FlowModCommand::Add;
        let is_delete = command == FlowModCommand::DeleteStrict;
        FlowMod {
            table_id: self.switch_table(key.table),
            cookie: cookie(self.guest, entry.number),
            cookie_mask: if is_add { Cookie(0) } else { ALL_BITS },
            command,
            idle_timeout: entry.idle_timeout_s,
            hard_timeout: entry.hard_left_s(now),
            flags: match is_add {
                true => FlowModFlags(entry.flags.0 & KEPT) | FlowModFlags::SEND_FLOW_REM,
                false => FlowModFlags::empty(),
            },
            instructions: match is_delete {
                true => Vec::new(),
                false => self.translate(&entry.instructions),
            },
            ..FlowMod::add(self.priority_of(key), row.matching.clone(), Vec::new())
        }
    }

    pub(super) fn switch_table(&self, table: TableId) -> TableId {
        let own = self.tables.get(usize::from(table.0));
        own.copied().unwrap_or(TableId(0))
    }

    /// The guest's number for a table of the switch.
    pub(super) fn guest_table(&self, table: TableId) -> Option<TableId> {
        let place = self.tables.iter().position(|own| *own == table)?;
        Some(TableId(u8::try_from(place).ok()?))
    }

    fn translate(&self, instructions: &[Instruction]) -> Vec<Instruction> {
        let translate = |one: &Instruction| match one {
            Instruction::GotoTable(table) => Instruction::GotoTable(self.switch_table(*table)),
            Instruction::Meter(id) => Instruction::Meter(self.meters.in_switch(self.guest, *id)),
            Instruction::ApplyActions(actions) => {
                Instruction::ApplyActions(self.to_switch(actions))
            }
            Instruction::WriteActions(actions) => {
                Instruction::WriteActions(self.to_switch(actions))
            }
            other => other.clone(),
        };
        instructions.iter().map(translate).collect()
    }

    /// Checks the instructions of an entry.
    ///
    /// # Errors
    /// The OFPBIC_* or OFPBAC_* to answer.
    pub(super) fn check(
        &self,
        table: TableId,
        instructions: &[Instruction],
        patterns: &[Pattern],
    ) -> Result<(), ErrorKind> {
        for (at, one) in instructions.iter().enumerate() {
            let kind = std::mem::discriminant(one);
            let before = instructions[..at].iter();
            if { before }.any(|other| std::mem::discriminant(other) == kind) {
                return Err(ErrorKind::UNSUP_INST);
            }
            match one {
                Instruction::GotoTable(to) => {
                    if *to <= table || usize::from(to.0) >= self.tables.len() {
                        return Err(ErrorKind::INST_BAD_TABLE_ID);
                    }
                }
                Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) => {
                    if actions.len() > ACTIONS_MAX {
                        return Err(ErrorKind::ACTION_TOO_MANY);
                    }
                    self.slice.check(actions, patterns)?;
                    if let Instruction::WriteActions(_) = one {
                        self.slice.check_set(actions)?;
                    }
                    self.check_groups(actions)?;
                }
                Instruction::Meter(id) if self.meters.get(*id).is_none() => {
                    return Err(ErrorKind::METER_UNKNOWN_METER);
                }
                Instruction::StatTrigger { .. } => return Err(ErrorKind::UNSUP_INST),
                Instruction::Experimenter { .. } => return Err(ErrorKind::INST_BAD_EXPERIMENTER),
                Instruction::WriteMetadata { .. }
                | Instruction::ClearActions
                | Instruction::Meter(_) => {}
            }
        }
        Ok(())
    }

    /// Notes that the switch refuses a change, and restores the state before the change.
    pub fn handle_refused(&mut self, now: Instant, ticket: Ticket, error: ErrorKind) {
        if self.part_refused(now, ticket, error) {
            return;
        }
        let Some(pending) = self.pending.remove(&ticket) else {
            return;
        };
        let Pending {
            origin,
            key,
            number,
            modified,
            before,
        } = pending;
        if self.refused.replace(origin.number) != Some(origin.number) {
            self.refuse(&origin, error);
        }
        let is_there = self
            .entries
            .get(&key)
            .is_some_and(|entry| (entry.number, entry.modified) == (number, modified));
        if !is_there {
            // Another row of the entry was refused before, or the entry was removed, or a later
            // change replaced it: if that change is refused too, the state before this one is
            // restored.
            let later = self.pending.values_mut().filter(|later| later.key == key);
            for later in later {
                let is_of_this = |of: &Arc<Entry>| (of.number, of.modified) == (number, modified);
                if later.before.as_ref().is_some_and(is_of_this) {
                    later.before.clone_from(&before);
                }
            }
            return;
        }
        let is_modified = before
            .as_ref()
            .is_some_and(|before| before.number == number);
        let Some(before) = before else {
            for flow_mod in self.rows_of(now, &key, FlowModCommand::DeleteStrict) {
                self.change(flow_mod, None);
            }
            self.drop_entry(now, &key);
            return;
        };
        let command = match self.entries.get_mut(&key) {
            Some(entry) if is_modified => {
                entry.instructions.clone_from(&before.instructions);
                entry.modified = before.modified;
                FlowModCommand::ModifyStrict
            }
            _ => {
                self.entries.insert(key.clone(), Entry::clone(&before));
                FlowModCommand::Add
            }
        };
        // The guest has since deleted a group or a meter of the restored entry, and the entry with
        // it.
        if let Some(reason) = self.end_of_parts(&before) {
            return self.delete(now, &key, reason);
        }
        for flow_mod in self.rows_of(now, &key, command) {
            self.change(flow_mod, None);
        }
    }

    /// The reason for the end of an entry if one of its groups or meters is missing.
    fn end_of_parts(&self, entry: &Entry) -> Option<FlowRemovedReason> {
        let has_groups = entry.groups().all(|id| self.groups.get(id).is_some());
        let has_meters = entry.meters().all(|id| self.meters.get(id).is_some());
        match (has_groups, has_meters) {
            (true, true) => None,
            (false, _) => Some(FlowRemovedReason::GROUP_DELETE),
            (true, false) => Some(FlowRemovedReason::DELETE),
        }
    }

    /// Handles the switch's report that an entry was removed.
    pub fn handle_removed(&mut self, now: Instant, number: u16, removed: &FlowRemoved) {
        let found = self.entries.numbered(number).map(|(key, _)| key.clone());
        let Some(key) = found else {
            return;
        };
        let place = (self.switch_table(key.table), self.priority_of(&key));
        if place != (removed.table_id, removed.priority) {
            return;
        }
        let is_timeout = [
            FlowRemovedReason::IDLE_TIMEOUT,
            FlowRemovedReason::HARD_TIMEOUT,
        ]
        .contains(&removed.reason);
        if !is_timeout && !self.may_mend(now) {
            // The next reading sees that it is missing.
            return;
        }
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let Some(row) = entry.row_mut(&removed.r#match) else {
            return;
        };
        row.counts = (removed.packet_count, removed.byte_count);
        if is_timeout {
            row.is_over = true;
            if entry.rows.iter().all(|row| row.is_over) {
                self.forget(now, &key, removed.reason);
            }
            return;
        }
        let (pattern, sent_at) = (row.pattern.clone(), row.sent_at);
        if removed.reason == FlowRemovedReason::GROUP_DELETE {
            self.mend_groups_of(now, &key, sent_at);
        }
        if removed.reason == FlowRemovedReason::METER_DELETE {
            self.mend_meters_of(now, &key, sent_at);
        }
        if self.entries.holder(&key, &pattern) == Some(number) {
            self.mend(now, &key, &pattern);
        }
    }

    pub(super) fn may_mend(&mut self, now: Instant) -> bool {
        let fresh = || Budget::new(now, MENDED_PER_S, ENTRIES_MAX as u32);
        self.mending.get_or_insert_with(fresh).take(now)
    }

    /// Sets a row again that was deleted or changed from outside.
    pub(super) fn mend(&mut self, now: Instant, key: &Key, pattern: &Pattern) {
        self.counts.mended = self.counts.mended.saturating_add(1);
        self.send_row(now, key, pattern);
    }

    fn send_row(&mut self, now: Instant, key: &Key, pattern: &Pattern) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let rows = entry.rows.iter_mut().filter(|row| !row.is_over);
        for row in { rows }.filter(|row| row.pattern == *pattern) {
            (row.form, row.sent_at) = (None, now);
        }
        let Some(entry) = self.entries.get(key) else {
            return;
        };
        let rows = entry.rows.iter().filter(|row| !row.is_over);
        let row = { rows }.find(|row| row.pattern == *pattern);
        if let Some(row) = row {
            let flow_mod = self.row_mod(now, (key, entry), row, FlowModCommand::Add);
            self.change(flow_mod, None);
        }
    }
}
