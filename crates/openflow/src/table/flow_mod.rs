//! FLOW_MOD: entries added, modified and deleted (OpenFlow 1.3.1, 6.4).

use crate::actions::{Action, Instruction};
use crate::error::ErrorKind;
use crate::message::{FlowMod, FlowModCommand, FlowModFlags, FlowRemovedReason, Message};
use crate::types::{GroupId, PortNo, TableId, Version};
use clock::Instant;

use super::Switch;
use super::actions;
use super::flow::{EntryId, FlowEntry, Pattern};

impl Switch {
    pub(super) fn flow_mod(
        &mut self,
        now: Instant,
        m: &FlowMod,
    ) -> Result<Vec<Message>, ErrorKind> {
        let pattern = Pattern::new(&m.r#match)?;
        let v10 = self.options.version == Version::V10;
        if v10 && m.flags.contains(FlowModFlags::EMERG) {
            // There is no emergency table, so it has no room.
            return Err(ErrorKind::FLOW_MOD_TABLE_FULL);
        }
        if m.flags.0 >> 5 != 0 {
            return Err(ErrorKind::FLOW_MOD_BAD_FLAGS);
        }
        let deletes = matches!(
            m.command,
            FlowModCommand::Delete | FlowModCommand::DeleteStrict
        );
        if !(deletes && m.table_id == TableId::ALL) {
            self.check_table(m.table_id, ErrorKind::FLOW_MOD_BAD_TABLE_ID)?;
        }
        if deletes {
            return Ok(self.delete(now, m, &pattern));
        }
        if m.buffer_id.is_some() {
            return Err(ErrorKind::BUFFER_UNKNOWN);
        }
        self.check_instructions(m, &pattern)?;
        if m.command == FlowModCommand::Add {
            return self.add(now, m, pattern);
        }
        let modified = self.modify(now, m, &pattern);
        if !modified && v10 {
            return self.add(now, m, pattern);
        }
        Ok(Vec::new())
    }

    fn add(
        &mut self,
        now: Instant,
        m: &FlowMod,
        pattern: Pattern,
    ) -> Result<Vec<Message>, ErrorKind> {
        let table = &mut self.tables[usize::from(m.table_id.0)];
        let check = m.flags.contains(FlowModFlags::CHECK_OVERLAP);
        if check && table.overlaps(&pattern, m.priority) {
            return Err(ErrorKind::FLOW_MOD_OVERLAP);
        }
        let old = table.find_strict(&pattern, m.priority);
        if old.is_none() && table.len() >= self.options.entries_max {
            return Err(ErrorKind::FLOW_MOD_TABLE_FULL);
        }
        let mut entry = FlowEntry {
            table_id: m.table_id,
            priority: m.priority,
            cookie: m.cookie,
            flags: m.flags,
            idle_timeout: m.idle_timeout,
            hard_timeout: m.hard_timeout,
            r#match: m.r#match.clone(),
            instructions: m.instructions.clone(),
            created_at: now,
            refreshed_at: now,
            used_at: now,
            packet_count: 0,
            byte_count: 0,
            pattern,
            check_at: None,
        };
        let id = match old.and_then(|id| table.get_mut(id).map(|e| (id, e))) {
            Some((id, replaced)) => {
                let resets = self.options.version == Version::V10
                    || m.flags.contains(FlowModFlags::RESET_COUNTS);
                if !resets {
                    entry.packet_count = replaced.packet_count;
                    entry.byte_count = replaced.byte_count;
                }
                if let Some(at) = replaced.check_at {
                    self.deadlines.remove(&(at, m.table_id, id));
                }
                *replaced = entry;
                id
            }
            None => table.insert(entry),
        };
        self.watch(m.table_id, id);
        Ok(Vec::new())
    }

    /// Gives every selected entry the new instructions; cookie, timeouts and flags stay.
    fn modify(&mut self, now: Instant, m: &FlowMod, pattern: &Pattern) -> bool {
        let strict = m.command == FlowModCommand::ModifyStrict;
        let concerned = self.concerned(m, pattern, strict);
        for (table, id) in &concerned {
            let Some(entry) = self.tables[usize::from(table.0)].get_mut(*id) else {
                continue;
            };
            entry.instructions = m.instructions.clone();
            if m.flags.contains(FlowModFlags::RESET_COUNTS) {
                (entry.packet_count, entry.byte_count) = (0, 0);
            }
            if self.options.modify_restarts_hard_timeout {
                entry.refreshed_at = now;
            }
        }
        !concerned.is_empty()
    }

    fn delete(&mut self, now: Instant, m: &FlowMod, pattern: &Pattern) -> Vec<Message> {
        let strict = m.command == FlowModCommand::DeleteStrict;
        let mut removed = Vec::new();
        for (table, id) in self.concerned(m, pattern, strict) {
            let entry = self.tables[usize::from(table.0)].get(id);
            if entry.is_some_and(|e| self.outputs(e, m.out_port, m.out_group)) {
                removed.extend(self.remove(now, table, id, FlowRemovedReason::DELETE));
            }
        }
        removed
    }

    /// The entries that MODIFY or DELETE selects by table, match, priority if strict, and cookie.
    fn concerned(&self, m: &FlowMod, pattern: &Pattern, strict: bool) -> Vec<(TableId, EntryId)> {
        let cookie = |e: &FlowEntry| (e.cookie.0 ^ m.cookie.0) & m.cookie_mask.0 == 0;
        let mut found = Vec::new();
        let numbers = match m.table_id {
            TableId::ALL => 0..self.options.n_tables,
            TableId(number) => number..number + 1,
        };
        for table_id in numbers.map(TableId) {
            let table = &self.tables[usize::from(table_id.0)];
            if strict {
                let id = table.find_strict(pattern, m.priority);
                let hit = id.filter(|id| table.get(*id).is_some_and(cookie));
                found.extend(hit.map(|id| (table_id, id)));
            } else {
                let hits = table
                    .iter()
                    .filter(|(_, e)| e.pattern.is_within(pattern) && cookie(e));
                found.extend(hits.map(|(id, _)| (table_id, id)));
            }
        }
        found
    }

    /// Reports whether the entry outputs to the port and group that DELETE or a statistics request
    /// names; `ANY` names none.
    pub(super) fn outputs(&self, entry: &FlowEntry, port: PortNo, group: GroupId) -> bool {
        // 1.0 has no groups, so the value of this field means nothing.
        let any_group = group == GroupId::ANY || self.options.version == Version::V10;
        (port == PortNo::ANY || entry.outputs_to(port)) && (any_group || entry.uses_group(group))
    }

    pub(super) fn remove_where(
        &mut self,
        now: Instant,
        reason: FlowRemovedReason,
        concerned: impl Fn(&FlowEntry) -> bool,
    ) -> Vec<Message> {
        let mut found = Vec::new();
        for (number, table) in (0u8..).zip(&self.tables) {
            let hits = table.iter().filter(|(_, e)| concerned(e));
            found.extend(hits.map(|(id, _)| (TableId(number), id)));
        }
        found
            .into_iter()
            .filter_map(|(table, id)| self.remove(now, table, id, reason))
            .collect()
    }

    /// Removes an entry; returns its FLOW_REMOVED if the entry asked for one.
    pub(super) fn remove(
        &mut self,
        now: Instant,
        table: TableId,
        id: EntryId,
        reason: FlowRemovedReason,
    ) -> Option<Message> {
        let entry = self.tables[usize::from(table.0)].remove(id)?;
        if let Some(at) = entry.check_at {
            self.deadlines.remove(&(at, table, id));
        }
        let tell = entry.flags.contains(FlowModFlags::SEND_FLOW_REM);
        let mut removed = entry.removed(now, reason);
        if self.options.version == Version::V10 {
            // FLOW_REMOVED of 1.0 has no such field.
            removed.hard_timeout = 0;
        }
        tell.then_some(Message::FlowRemoved(removed))
    }

    /// Notes when to check the entry. Packets postpone an idle deadline without changing the note;
    /// it is corrected when its time comes.
    pub(super) fn watch(&mut self, table: TableId, id: EntryId) {
        let Some(entry) = self.tables[usize::from(table.0)].get_mut(id) else {
            return;
        };
        entry.check_at = entry.deadline().map(|(at, _)| at);
        if let Some(at) = entry.check_at {
            self.deadlines.insert((at, table, id));
        }
    }

    fn check_instructions(&self, m: &FlowMod, pattern: &Pattern) -> Result<(), ErrorKind> {
        for (at, instruction) in m.instructions.iter().enumerate() {
            let same = |other: &Instruction| {
                std::mem::discriminant(other) == std::mem::discriminant(instruction)
            };
            if m.instructions[..at].iter().any(same) {
                return Err(ErrorKind::UNSUP_INST);
            }
            match instruction {
                Instruction::GotoTable(table) => {
                    self.check_table(*table, ErrorKind::INST_BAD_TABLE_ID)?;
                    if *table <= m.table_id {
                        return Err(ErrorKind::INST_BAD_TABLE_ID);
                    }
                }
                Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) => {
                    // In 1.0 setting a field that a packet lacks does nothing.
                    let v10 = self.options.version == Version::V10;
                    self.check_actions(actions, (!v10).then_some(pattern))?;
                }
                Instruction::Meter(meter) if self.meters.get(*meter).is_none() => {
                    return Err(ErrorKind::METER_UNKNOWN_METER);
                }
                Instruction::Experimenter { .. } => return Err(ErrorKind::INST_BAD_EXPERIMENTER),
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn check_actions(
        &self,
        list: &[Action],
        pattern: Option<&Pattern>,
    ) -> Result<(), ErrorKind> {
        actions::check(list, pattern)?;
        let unknown = |a: &Action| match a {
            Action::Group(id) => self.groups.get(*id).is_none(),
            _ => false,
        };
        if list.iter().any(unknown) {
            return Err(ErrorKind::ACTION_BAD_OUT_GROUP);
        }
        let unknown = |a: &Action| match a {
            Action::Meter(id) => self.meters.get(*id).is_none(),
            _ => false,
        };
        match list.iter().any(unknown) {
            true => Err(ErrorKind::METER_UNKNOWN_METER),
            false => Ok(()),
        }
    }
}
