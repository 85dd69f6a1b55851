//! GROUP_MOD: the groups of the guest, and the changes of the switch's groups that follow.

use std::collections::BTreeSet;

use clock::Instant;
use openflow::message::{FlowRemovedReason, GroupMod, GroupModCommand, GroupType};
use openflow::multipart::{GroupDesc, GroupStats, ReplyBody};
use openflow::{Action, Bucket, ErrorKind, GroupId, PortNo};

use super::super::entries::Key;
use super::super::groups::{BUCKETS_MAX, Group, groups_in, of_group, switch_id};
use super::changes::ACTIONS_MAX;
use super::parts::Change;
use super::{Machine, Origin, Output};

impl Machine {
    pub(super) fn group_mod(
        &mut self,
        now: Instant,
        origin: &Origin,
        asked: &GroupMod,
        has_room: bool,
    ) -> Result<(), ErrorKind> {
        use GroupModCommand as C;
        if asked.command == C::Delete {
            return self.delete_groups(now, asked.group_id);
        }
        if !matches!(asked.command, C::Add | C::Modify) {
            return Err(ErrorKind::GROUP_BAD_COMMAND);
        }
        if asked.group_id > GroupId::MAX {
            return Err(ErrorKind::GROUP_INVALID);
        }
        if asked.buckets.len() > BUCKETS_MAX {
            return Err(ErrorKind::GROUP_OUT_OF_BUCKETS);
        }
        let mut buckets = asked.buckets.iter();
        buckets.try_for_each(|bucket| self.check_bucket(bucket))?;
        self.groups.check(asked)?;
        if !has_room {
            return Err(ErrorKind::GROUP_OUT_OF_GROUPS);
        }
        let (id, group) = (asked.group_id, Group::new(asked.group_type, &asked.buckets));
        let step = match asked.command {
            C::Add => Some(self.groups.add(now, id, group)),
            _ => self.groups.modify(now, id, group),
        };
        self.send_group(asked.command, id, step.map(|step| (origin.clone(), step)));
        Ok(())
    }

    fn check_bucket(&self, bucket: &Bucket) -> Result<(), ErrorKind> {
        if bucket.actions.len() > ACTIONS_MAX {
            return Err(ErrorKind::ACTION_TOO_MANY);
        }
        self.slice.check(&bucket.actions, &[])?;
        self.slice.check_set(&bucket.actions)?;
        let port = bucket.watch_port;
        let is_group = |id| id == GroupId::ANY || self.groups.get(id).is_some();
        match (port == PortNo::ANY || self.slice.has_port(port)) && is_group(bucket.watch_group) {
            true => Ok(()),
            false => Err(ErrorKind::GROUP_BAD_WATCH),
        }
    }

    /// Sends a group as it is now.
    fn send_group(
        &mut self,
        command: GroupModCommand,
        id: GroupId,
        change: Change<GroupId, Group>,
    ) {
        let Some(group) = self.groups.get(id) else {
            return;
        };
        let bucket = |bucket: &Bucket| Bucket {
            actions: self.to_switch(&bucket.actions),
            watch_group: self.groups.in_switch(self.guest, bucket.watch_group),
            ..bucket.clone()
        };
        let buckets = group.buckets.iter().map(bucket).collect();
        let in_switch = self.groups.in_switch(self.guest, id);
        let message = GroupMod::new(command, group.group_type, in_switch, buckets);
        self.change_group(message, change);
    }

    fn change_group(&mut self, message: GroupMod, change: Change<GroupId, Group>) {
        let ticket = self.next_ticket();
        self.pending_groups.insert(ticket, change);
        let output = Output::Group(ticket, Box::new(message));
        self.outputs.push_back(output);
    }

    /// The actions for the switch.
    pub(super) fn to_switch(&self, actions: &[Action]) -> Vec<Action> {
        let mut actions = self.slice.translate(actions);
        for action in &mut actions {
            if let Action::Group(id) = action {
                *id = self.groups.in_switch(self.guest, *id);
            }
        }
        actions
    }

    /// Checks that all groups that actions lead to exist.
    ///
    /// # Errors
    /// OFPBAC_BAD_OUT_GROUP.
    pub(super) fn check_groups(&self, actions: &[Action]) -> Result<(), ErrorKind> {
        let is_known = |id| self.groups.get(id).is_some();
        match groups_in(actions).all(is_known) {
            true => Ok(()),
            false => Err(ErrorKind::ACTION_BAD_OUT_GROUP),
        }
    }

    /// Deletes a group, or all, and before them the entries that lead to them.
    fn delete_groups(&mut self, now: Instant, asked: GroupId) -> Result<(), ErrorKind> {
        let gone = match asked {
            GroupId::ALL => self.groups.in_order(),
            id if self.groups.is_led_to(id) => return Err(ErrorKind::GROUP_CHAINED_GROUP),
            id => vec![id],
        };
        for id in self.remove_groups(now, &gone) {
            self.delete_in_switch(id);
        }
        Ok(())
    }

    /// Removes groups, and deletes the entries that lead to them. Returns the groups' numbers in
    /// the switch.
    fn remove_groups(&mut self, now: Instant, gone: &[GroupId]) -> Vec<GroupId> {
        let is_there = |id: &&GroupId| self.groups.get(**id).is_some();
        let gone: Vec<GroupId> = gone.iter().filter(is_there).copied().collect();
        let users = self.entries.iter();
        let users = users.filter(|(_, entry)| entry.groups().any(|id| gone.contains(&id)));
        let users: Vec<Key> = users.map(|(key, _)| key.clone()).collect();
        for key in users {
            self.delete(now, &key, FlowRemovedReason::GROUP_DELETE);
        }
        let remove = |id| {
            let in_switch = self.groups.in_switch(self.guest, id);
            self.groups.remove(id).map(|_| in_switch)
        };
        gone.into_iter().filter_map(remove).collect()
    }

    /// Deletes the groups that no longer fit because the switch has refused a change of one: the
    /// guest has since deleted a group that it led to, or has made that group lead back to it.
    pub(super) fn delete_unfit(&mut self, now: Instant, refused: GroupId) {
        let unfit = self.groups.unfit(refused);
        let in_switch = self.remove_groups(now, &unfit);
        self.delete_each(&in_switch);
    }

    /// Deletes groups of the switch that may lead to each other.
    fn delete_each(&mut self, in_switch: &[GroupId]) {
        // No group leads to another one when they are deleted.
        for id in in_switch {
            let empty = GroupMod::new(GroupModCommand::Modify, GroupType::All, *id, Vec::new());
            self.change_group(empty, None);
        }
        for id in in_switch {
            self.delete_in_switch(*id);
        }
    }

    fn delete_in_switch(&mut self, in_switch: GroupId) {
        let delete = GroupMod::new(
            GroupModCommand::Delete,
            GroupType::All,
            in_switch,
            Vec::new(),
        );
        self.change_group(delete, None);
    }

    /// Deletes all groups. No entry leads to them any more.
    pub(super) fn clear_groups(&mut self) {
        for id in self.groups.in_order() {
            let in_switch = self.groups.in_switch(self.guest, id);
            self.groups.remove(id);
            self.delete_in_switch(in_switch);
        }
        self.pending_groups.clear();
    }

    /// Sends the groups of an entry again that were not sent since the entry was: one of them was
    /// deleted from outside, and the entry with it.
    pub(super) fn mend_groups_of(&mut self, now: Instant, key: &Key, since: Instant) {
        let Some(entry) = self.entries.get(key) else {
            return;
        };
        for id in self.groups.behind(entry.groups()) {
            if self.groups.sent_at(id).is_some_and(|at| at <= since) {
                self.mend_group(now, GroupModCommand::Add, id);
            }
        }
    }

    pub(super) fn compare_groups(&mut self, now: Instant, asked_at: Instant, bodies: &[ReplyBody]) {
        let found = bodies.iter().flat_map(|body| match body {
            ReplyBody::GroupDesc(groups) => groups.as_slice(),
            _ => &[],
        });
        let own = found.filter_map(|desc| {
            let (guest, number) = of_group(desc.group_id)?;
            let group = Group::new(desc.group_type, &desc.buckets);
            (guest == self.guest).then_some((number, group))
        });
        let (strays, seen) = self.groups.compare(asked_at, own);
        let strays = strays.into_iter();
        let strays: Vec<GroupId> = strays.map(|number| switch_id(self.guest, number)).collect();
        self.delete_each(&strays);
        // Groups that others lead to are sent first.
        for id in self.groups.in_order().into_iter().rev() {
            let command = match seen.get(&id) {
                Some(true) => continue,
                Some(false) => GroupModCommand::Modify,
                None => GroupModCommand::Add,
            };
            if self.groups.sent_at(id).is_some_and(|at| at < asked_at) && self.may_mend(now) {
                self.mend_group(now, command, id);
            }
        }
    }

    fn mend_group(&mut self, now: Instant, command: GroupModCommand, id: GroupId) {
        self.counts.mended = self.counts.mended.saturating_add(1);
        self.groups.note_sent(now, id);
        self.send_group(command, id, None);
    }

    /// The groups as the guest has stated them.
    pub(super) fn group_descs(&self) -> Vec<GroupDesc> {
        let desc = |(group_id, group): (GroupId, &Group)| GroupDesc {
            group_type: group.group_type,
            group_id,
            buckets: group.buckets.clone(),
            properties: Vec::new(),
        };
        self.groups.iter().map(desc).collect()
    }

    /// The switch's statistics of the guest's groups, in the guest's numbers.
    pub(super) fn group_stats(&self, asked: GroupId, stats: Vec<GroupStats>) -> Vec<GroupStats> {
        let mut refs = self.groups.leaders();
        for (_, entry) in self.entries.iter() {
            let leads: BTreeSet<GroupId> = entry.groups().collect();
            for id in leads {
                *refs.entry(id).or_default() += 1;
            }
        }
        let own = stats.into_iter().filter_map(|stats| {
            let (guest, number) = of_group(stats.group_id)?;
            let id = self
                .groups
                .numbered(number)
                .filter(|_| guest == self.guest)?;
            let is_asked = asked == GroupId::ALL || asked == id;
            is_asked.then(|| GroupStats {
                group_id: id,
                ref_count: refs.get(&id).copied().unwrap_or(0),
                ..stats
            })
        });
        own.collect()
    }
}
