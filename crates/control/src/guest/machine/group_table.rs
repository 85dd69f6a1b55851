//! GROUP_MOD: the groups of the guest, and those of the switch that follow.

use std::collections::{BTreeMap, BTreeSet};

use clock::Instant;
use openflow::message::{FlowRemovedReason, GroupMod, GroupModCommand, GroupType};
use openflow::multipart::{GroupDesc, GroupStats, ReplyBody, RequestBody};
use openflow::{Action, Bucket, ErrorKind, GroupId, PortNo};

use super::super::entries::Key;
use super::super::groups::{BUCKETS_MAX, Group, group_mod, groups_in, of_group};
use super::changes::ACTIONS_MAX;
use super::{Answer, Machine, Origin, Output, Ticket};

/// A change of a group. Without an origin, it mends what somebody else has changed.
pub(super) struct PendingGroup {
    origin: Option<Origin>,
    id: GroupId,
    number: u16,
    modified: u32,
    before: Option<Group>,
}

impl PendingGroup {
    /// A change of a group that the guest does not have.
    fn of_none() -> PendingGroup {
        PendingGroup {
            origin: None,
            id: GroupId::ANY,
            number: 0,
            modified: 0,
            before: None,
        }
    }
}

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
        let before = match asked.command {
            C::Add => {
                self.groups.add(now, asked);
                None
            }
            _ => self.groups.modify(now, asked),
        };
        self.send_group(asked.command, asked.group_id, Some(origin), before);
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
        origin: Option<&Origin>,
        before: Option<Group>,
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
        let pending = PendingGroup {
            origin: origin.cloned(),
            id,
            number: group.number,
            modified: group.modified,
            before,
        };
        let in_switch = self.groups.in_switch(self.guest, id);
        let message = group_mod(command, in_switch, group.group_type, buckets);
        self.change_group(message, pending);
    }

    fn change_group(&mut self, message: GroupMod, pending: PendingGroup) {
        let ticket = self.next_ticket();
        self.pending_groups.insert(ticket, pending);
        let output = Output::Group(ticket, Box::new(message));
        self.outputs.push_back(output);
    }

    /// Actions as the switch gets them.
    pub(super) fn to_switch(&self, actions: &[Action]) -> Vec<Action> {
        let mut actions = self.slice.translate(actions);
        for action in &mut actions {
            if let Action::Group(id) = action {
                *id = self.groups.in_switch(self.guest, *id);
            }
        }
        actions
    }

    /// Checks that the groups which actions lead to are there.
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

    /// Deletes a group, or all, and the entries that lead there before it.
    fn delete_groups(&mut self, now: Instant, asked: GroupId) -> Result<(), ErrorKind> {
        let gone = match asked {
            GroupId::ALL => self.groups.in_order(),
            id if self.groups.is_led_to(id) => return Err(ErrorKind::GROUP_CHAINED_GROUP),
            id => vec![id],
        };
        if gone.iter().all(|id| self.groups.get(*id).is_none()) {
            return Ok(());
        }
        let users = self.entries.iter().filter(|(_, entry)| {
            let mut leads = entry.groups();
            leads.any(|id| asked == GroupId::ALL || id == asked)
        });
        let users: Vec<Key> = users.map(|(key, _)| key.clone()).collect();
        for key in users {
            self.delete(now, &key, FlowRemovedReason::GROUP_DELETE);
        }
        for id in gone {
            let in_switch = self.groups.in_switch(self.guest, id);
            if self.groups.remove(id).is_some() {
                self.delete_in_switch(in_switch);
            }
        }
        Ok(())
    }

    fn delete_in_switch(&mut self, in_switch: GroupId) {
        let delete = group_mod(
            GroupModCommand::Delete,
            in_switch,
            GroupType::All,
            Vec::new(),
        );
        self.change_group(delete, PendingGroup::of_none());
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

    /// Notes that the switch refuses a group, and goes back to what was before. Returns whether the
    /// ticket is of a group.
    pub(super) fn group_refused(&mut self, ticket: Ticket, error: ErrorKind) -> bool {
        let Some(pending) = self.pending_groups.remove(&ticket) else {
            return false;
        };
        // What cannot be mended now is read again.
        let Some(origin) = pending.origin else {
            return true;
        };
        self.refuse(&origin, error);
        let (id, of) = (pending.id, (pending.number, pending.modified));
        let group = self.groups.get(id);
        if group.is_some_and(|group| (group.number, group.modified) == of) {
            match pending.before {
                Some(before) => self.groups.put_back(id, before),
                None => drop(self.groups.remove(id)),
            }
            return true;
        }
        // A later change has taken its place: if that is refused too, what was before this one
        // comes back.
        for later in self.pending_groups.values_mut() {
            let is_of_this = |group: &Group| (group.number, group.modified) == of;
            if later.id == id && later.before.as_ref().is_some_and(is_of_this) {
                later.before.clone_from(&pending.before);
            }
        }
        true
    }

    /// Sends the groups again that an entry leads to, if none were sent since the entry was:
    /// somebody else has deleted one, and the entry with it.
    pub(super) fn mend_groups_of(&mut self, now: Instant, key: &Key, since: Instant) {
        let Some(entry) = self.entries.get(key) else {
            return;
        };
        for id in self.groups.behind(entry.groups()) {
            if let Some(group) = self.groups.get_mut(id)
                && group.sent_at <= since
            {
                (group.form, group.sent_at) = (None, now);
                self.counts.mended = self.counts.mended.saturating_add(1);
                self.send_group(GroupModCommand::Add, id, None, None);
            }
        }
    }

    /// Asks for the groups that the switch has, if it may have some of this guest.
    pub(super) fn read_groups(&mut self, now: Instant) {
        if self.groups_asked.is_some() || self.are_groups_known && self.groups.is_empty() {
            return;
        }
        let ticket = self.next_ticket();
        self.groups_asked = Some((ticket, now));
        let body = RequestBody::GroupDesc(GroupId::ALL);
        self.outputs.push_back(Output::Ask(ticket, body));
    }

    /// Handles what has become of the question for the switch's groups. Returns whether the ticket
    /// is of that.
    pub(super) fn groups_answered(
        &mut self,
        now: Instant,
        ticket: Ticket,
        answer: &Answer,
    ) -> bool {
        let asked = self.groups_asked.take_if(|(asked, _)| *asked == ticket);
        let Some((_, asked_at)) = asked else {
            return false;
        };
        if let Answer::Whole(bodies) = answer {
            self.compare_groups(now, asked_at, bodies);
        }
        self.are_groups_known = true;
        if let Some((asked_at, rows)) = self.rows_waiting.take() {
            let _ = self.compare_rows(now, asked_at, rows);
        }
        true
    }

    fn compare_groups(&mut self, now: Instant, asked_at: Instant, bodies: &[ReplyBody]) {
        let found = bodies.iter().flat_map(|body| match body {
            ReplyBody::GroupDesc(groups) => groups.as_slice(),
            _ => &[],
        });
        let mut seen: BTreeMap<GroupId, bool> = BTreeMap::new();
        let mut strays = Vec::new();
        for desc in found {
            let Some((guest, number)) = of_group(desc.group_id) else {
                continue;
            };
            if guest != self.guest {
                continue;
            }
            let id = self.groups.numbered(number);
            let Some((id, group)) = id.and_then(|id| Some((id, self.groups.get_mut(id)?))) else {
                strays.push(desc.group_id);
                continue;
            };
            let form = (desc.group_type, desc.buckets.clone());
            let is_older = group.sent_at < asked_at;
            let is_right = !is_older || group.form.as_ref().is_none_or(|held| *held == form);
            if is_older && is_right {
                group.form = Some(form);
            }
            seen.insert(id, is_right);
        }
        // None leads to another of them when they go.
        for id in &strays {
            let empty = group_mod(GroupModCommand::Modify, *id, GroupType::All, Vec::new());
            self.change_group(empty, PendingGroup::of_none());
        }
        for id in strays {
            self.delete_in_switch(id);
        }
        // What others lead to comes first.
        for id in self.groups.in_order().into_iter().rev() {
            let command = match seen.get(&id) {
                Some(true) => continue,
                Some(false) => GroupModCommand::Modify,
                None => GroupModCommand::Add,
            };
            let is_due = |group: &&mut Group| group.sent_at < asked_at;
            if self.groups.get_mut(id).filter(is_due).is_none() || !self.may_mend(now) {
                continue;
            }
            if let Some(group) = self.groups.get_mut(id) {
                (group.form, group.sent_at) = (None, now);
            }
            self.counts.mended = self.counts.mended.saturating_add(1);
            self.send_group(command, id, None, None);
        }
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
