//! Stated groups and meters on switches. A switch gets them before the entries that use them, and
//! loses them after these entries.
//!
//! Groups and meters have no cookie. So a group or a meter of a stated number is taken over,
//! whoever has set it, and is deleted only by the process that knows of it; groups and meters whose
//! numbers follow from names have no other owner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clock::Instant;
use openflow::message::{FlowRemovedReason, MultipartRequest};
use openflow::multipart::{ReplyBody, RequestBody};
use openflow::{DatapathId, ErrorKind, GroupId, Message, MeterId, Version, Xid};

use crate::flows::parts::{
    PartEdit, PartId, PartKind, PartName, PartProblem, PartView, PartsAround, StaticPart, problems,
};
use crate::flows::{FlowEdit, FlowKey, FlowName, FlowState, StaticEntry};

use super::super::outbox::{Outbox, Request};
use super::part_place::{HeldPart, PartPlace, TURNS_MAX, found_in};
use super::waiting::Work;
use super::{Refusal, Spot, StaticEntries, Switch, may_mend};

impl Switch {
    /// Why an entry cannot be set: the switch refuses its group or meter.
    pub(super) fn refused_part(&self, entry: &StaticEntry) -> Option<String> {
        entry.parts().find_map(|id| {
            let place = self.parts.get(&id)?;
            let (name, refused) = (place.wanted.as_ref()?, place.refused.as_ref()?);
            Some(format!("{name}: {}", refused.why))
        })
    }

    /// Requests the groups and meters, where there are any.
    pub(super) fn read_parts(&mut self, dpid: DatapathId, outbox: &mut Outbox) {
        let is_under_way = !self.parts_read.asked_at.is_empty();
        if self.is_compared && !self.parts.is_empty() && !is_under_way {
            self.ask_for_parts(dpid, outbox);
        }
    }

    fn ask_for_parts(&mut self, dpid: DatapathId, outbox: &mut Outbox) {
        let now = outbox.now;
        self.parts_read.emptied.clear();
        for (kind, request, body) in [
            (
                PartKind::Group,
                Request::StaticGroups,
                RequestBody::GroupDesc(GroupId::ALL),
            ),
            (
                PartKind::Meter,
                Request::StaticMeters,
                RequestBody::MeterConfig(MeterId::ALL),
            ),
        ] {
            let message = Message::MultipartRequest(MultipartRequest { more: false, body });
            if outbox.request(now, dpid, request, &message).is_some() {
                self.parts_read.note_asked(kind, now);
            }
        }
    }
}

impl StaticEntries {
    /// Whether an owner has a group or a meter once `edits` are made.
    pub(super) fn has_part(
        &self,
        edits: &[PartEdit],
        owner: &str,
        dpid: DatapathId,
        id: PartId,
    ) -> bool {
        let is_put = edits.iter().any(|edit| match edit {
            PartEdit::Put(name, part) => {
                name.of.owner == owner && (part.dpid, part.id()) == (dpid, id)
            }
            PartEdit::Delete(_) => false,
        });
        let stays = |name: &&PartName| edits.iter().all(|edit| edit.name() != *name);
        let holder = self.part_holder(dpid, id).filter(stays);
        is_put || holder.is_some_and(|name| name.of.owner == owner)
    }

    pub(super) fn part_holder(&self, dpid: DatapathId, id: PartId) -> Option<&PartName> {
        self.switches.get(&dpid)?.parts.get(&id)?.wanted.as_ref()
    }

    /// All reasons not to make these changes together with changes of entries. With an outbox, also
    /// entries that use a group or meter to be deleted, and switches that have neither groups nor
    /// meters.
    pub(super) fn check_parts(
        &self,
        edits: &[PartEdit],
        flows: &[FlowEdit],
        outbox: Option<&Outbox>,
    ) -> Vec<PartProblem> {
        let changed: BTreeSet<&FlowName> = flows.iter().map(FlowEdit::name).collect();
        let user = |owner: &str, dpid: DatapathId, id: PartId| {
            outbox?;
            let leads = |entry: &StaticEntry| entry.dpid == dpid && entry.leads_to(id);
            let its = self.wanted.range(FlowName::first(owner)..);
            let its = its.take_while(|(name, _)| name.owner == owner);
            let mut its = its.filter(|(name, _)| !changed.contains(name));
            its.find(|(_, entry)| leads(entry)).map(|(name, _)| name)
        };
        let around = PartsAround {
            part: &|name| self.parts.get(name).map(|part| &**part),
            holder: &|dpid, id| self.part_holder(dpid, id),
            user: &user,
            of_owner: &|owner| self.owners.get(owner).map_or(0, |owner| owner.parts),
            all: self.parts.len(),
            has_parts: &|dpid| {
                let version = outbox.and_then(|outbox| outbox.version(dpid));
                version != Some(Version::V10)
            },
        };
        problems(edits, &around)
    }

    /// Records changes, and sends nothing yet.
    pub(super) fn stage_parts(&mut self, edits: Vec<PartEdit>, now: Instant) {
        self.stage(edits, now, false);
    }

    /// Records changes likewise; `may_be_there`: an earlier process may have set the groups and
    /// meters.
    pub(super) fn stage(&mut self, edits: Vec<PartEdit>, now: Instant, may_be_there: bool) {
        let named = edits.into_iter().map(|edit| match edit {
            PartEdit::Put(name, part) => (name, Some(part)),
            PartEdit::Delete(name) => (name, None),
        });
        // The last edit of a name counts, and numbers are freed before others take them.
        let edits: BTreeMap<PartName, Option<Box<StaticPart>>> = named.collect();
        for (name, part) in &edits {
            self.leave_part(name, part.as_deref(), now);
            if part.is_none() && self.parts.remove(name).is_some() {
                self.owner(&name.of.owner, now).parts -= 1;
            }
        }
        for (name, part) in edits {
            if let Some(part) = part {
                let place = self.put_part(name, Arc::new(*part), now);
                place.was_held |= may_be_there;
            }
        }
    }

    fn leave_part(&mut self, name: &PartName, next: Option<&StaticPart>, now: Instant) {
        let Some(part) = self.parts.get(name).cloned() else {
            return;
        };
        let (dpid, id) = (part.dpid, part.id());
        if next.is_some_and(|next| (next.dpid, next.id()) == (dpid, id)) {
            return;
        }
        let switch = self.switches.get_mut(&dpid);
        if let Some(place) = switch.and_then(|switch| switch.parts.get_mut(&id))
            && place.wanted.as_ref() == Some(name)
        {
            place.wanted = None;
            let waiting = &mut self.owner(&name.of.owner, now).waiting;
            waiting.insert(dpid, Work::DropPart(id));
        }
    }

    fn put_part(&mut self, name: PartName, part: Arc<StaticPart>, now: Instant) -> &mut PartPlace {
        let (dpid, id) = (part.dpid, part.id());
        let is_new = self.parts.insert(name.clone(), part.clone()).is_none();
        let owner = self.owner(&name.of.owner, now);
        owner.parts += usize::from(is_new);
        owner.waiting.insert(dpid, Work::SetPart(id));
        let switch = self.switches.entry(dpid).or_default();
        let place = switch.parts.entry(id);
        let place = place.or_insert_with(|| PartPlace::new(&name.of.owner, part.clone()));
        *place = PartPlace {
            held: place.held.take(),
            is_stale: place.is_stale,
            was_held: place.was_held,
            ..PartPlace::new(&name.of.owner, part)
        };
        place.wanted = Some(name);
        place
    }

    /// Whether a number of a compared switch must change.
    pub(super) fn needs_part(&mut self, dpid: DatapathId, id: PartId) -> bool {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return false;
        };
        let Some(place) = switch.parts.get(&id) else {
            return false;
        };
        if place.wanted.is_none() && place.held.is_none() && !place.was_held {
            switch.parts.remove(&id);
            self.forget_if_needless(dpid);
            return false;
        }
        let is_compared = switch.is_compared && switch.parts_read.is_compared;
        is_compared
            && match (&place.wanted, &place.held) {
                (None, _) => !place.is_going,
                (Some(_), _) if place.refused.is_some() => false,
                (Some(_), None) => true,
                (Some(_), Some(held)) => place.is_stale || held.part.add != place.last.add,
            }
    }

    /// Changes a number of a switch to its wanted state.
    pub(super) fn change_part(&mut self, dpid: DatapathId, id: PartId, outbox: &mut Outbox) {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        let Some(place) = switch.parts.get_mut(&id) else {
            return;
        };
        if place.wanted.is_none() {
            (place.held, place.was_held, place.is_going) = (None, true, true);
            if let Some(xid) = outbox.send(dpid, id.to_delete()) {
                switch.fresh.insert(xid, Spot::Gone(id));
            }
            switch.parts_read.emptied.insert(id);
            return;
        }
        let is_new = place.held.is_none();
        let message = match is_new {
            true => place.last.to_add(),
            false => place.last.to_modify(),
        };
        let Some(xid) = outbox.send(dpid, message) else {
            place.refused = Some(Refusal {
                why: "the version of OpenFlow that the switch speaks has none such".to_owned(),
                is_for_now: false,
            });
            return;
        };
        place.held = Some(HeldPart {
            part: place.last.clone(),
            xid: Some(xid),
            sent_at: Some(outbox.now),
            is_confirmed: false,
        });
        place.is_stale = false;
        switch.fresh.insert(xid, Spot::Part(id));
        if is_new {
            self.set_users(dpid, &BTreeSet::from([id]), outbox.now);
        }
    }

    /// Queues the entries that use these groups and meters and that the switch does not have.
    fn set_users(&mut self, dpid: DatapathId, ids: &BTreeSet<PartId>, now: Instant) {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        let mut users = Vec::new();
        for (key, place) in &mut switch.places {
            let is_user = place.last.parts().any(|id| ids.contains(&id));
            if let Some(name) = place.wanted.as_ref().filter(|_| is_user) {
                place.refused = None;
                users.push((name.owner.clone(), key.clone()));
            }
        }
        for (owner, key) in users {
            let waiting = &mut self.owner(&owner, now).waiting;
            waiting.insert(dpid, Work::Set(key));
        }
    }

    pub(super) fn part_refused(
        &mut self,
        dpid: DatapathId,
        id: PartId,
        (xid, error): (Xid, ErrorKind),
        outbox: &mut Outbox,
    ) {
        let switch = self.switches.get_mut(&dpid);
        let place = switch.and_then(|switch| switch.parts.get_mut(&id));
        let Some(place) = place else {
            return;
        };
        // The switch may accept a message that was sent later.
        let Some(held) = place.held.take_if(|held| held.xid == Some(xid)) else {
            return;
        };
        let is_there = [ErrorKind::GROUP_EXISTS, ErrorKind::METER_EXISTS].contains(&error);
        let gone = [
            ErrorKind::GROUP_UNKNOWN_GROUP,
            ErrorKind::METER_UNKNOWN_METER,
        ];
        if (is_there || gone.contains(&error)) && place.turns < TURNS_MAX {
            place.turns += 1;
            place.is_stale = true;
            place.held = Some(held).filter(|_| is_there);
            let owner = place.owner.clone();
            let waiting = &mut self.owner(&owner, outbox.now).waiting;
            waiting.insert(dpid, Work::SetPart(id));
            return self.advance(outbox);
        }
        let full = [
            ErrorKind::GROUP_OUT_OF_GROUPS,
            ErrorKind::METER_OUT_OF_METERS,
        ];
        place.refused = Some(Refusal {
            why: format!("the switch refuses it: {error}"),
            is_for_now: full.contains(&error),
        });
    }

    /// Doubts the groups and meters of an entry that was deleted: somebody else may have deleted
    /// them, and the entry with them.
    pub(super) fn doubt_parts(
        &mut self,
        dpid: DatapathId,
        key: &FlowKey,
        reason: FlowRemovedReason,
        outbox: &Outbox,
    ) {
        use FlowRemovedReason as R;
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        let Some(place) = switch.places.get(key) else {
            return;
        };
        let set_at = place.held.as_ref().and_then(|held| held.sent_at);
        let mut doubted = Vec::new();
        for id in place.last.parts() {
            // OpenFlow has a reason for meters since 1.4.
            let may_be_gone = match id.kind() {
                PartKind::Group => reason == R::GROUP_DELETE,
                PartKind::Meter => [R::DELETE, R::METER_DELETE].contains(&reason),
            };
            let part = switch.parts.get_mut(&id).filter(|_| may_be_gone);
            let Some(part) = part else {
                continue;
            };
            // The group or meter may have been set again since then.
            let is_older = |sent_at: Option<Instant>| sent_at.is_none() || sent_at <= set_at;
            if part.held.take_if(|held| is_older(held.sent_at)).is_some() {
                doubted.push((part.owner.clone(), id));
            }
        }
        for (owner, id) in doubted {
            let waiting = &mut self.owner(&owner, outbox.now).waiting;
            waiting.insert(dpid, Work::SetPart(id));
        }
    }

    /// Asks a newly connected switch for its groups and meters, if it should have some or may have
    /// some of ours.
    pub(super) fn ask_for_parts(
        &mut self,
        dpid: DatapathId,
        has_entries: bool,
        outbox: &mut Outbox,
    ) {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        let may_have = has_entries || !switch.parts.is_empty();
        if may_have && outbox.version(dpid) != Some(Version::V10) {
            switch.ask_for_parts(dpid, outbox);
        }
        if switch.parts_read.asked_at.is_empty() {
            self.parts_compared(dpid, outbox);
        }
    }

    /// Sets missing groups and meters on a switch whose groups and meters are known.
    fn parts_compared(&mut self, dpid: DatapathId, outbox: &mut Outbox) {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        switch.parts_read.is_compared = true;
        let all = switch.parts.iter();
        let owned = all.map(|(id, place)| (*id, place.owner.clone(), place.wanted.is_some()));
        let owned: Vec<(PartId, String, bool)> = owned.collect();
        for (id, owner, is_wanted) in &owned {
            let work = match is_wanted {
                true => Work::SetPart(*id),
                false => Work::DropPart(*id),
            };
            self.owner(owner, outbox.now).waiting.insert(dpid, work);
        }
        let ids = owned.into_iter().map(|(id, ..)| id).collect();
        self.set_users(dpid, &ids, outbox.now);
    }

    /// Handles a switch's report of its groups or meters; `None`: the switch gives no report.
    pub(super) fn handle_parts(
        &mut self,
        dpid: DatapathId,
        request: Request,
        bodies: Option<Vec<ReplyBody>>,
        outbox: &mut Outbox,
    ) {
        let kind = match request {
            Request::StaticGroups => PartKind::Group,
            _ => PartKind::Meter,
        };
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        let Some(asked_at) = switch.parts_read.asked_at.remove(&kind) else {
            return;
        };
        let mut wanting = Vec::new();
        if let Some(bodies) = bodies {
            let mut found = found_in(bodies);
            for (id, place) in switch.parts.iter_mut().filter(|(id, _)| id.kind() == kind) {
                let now_found = found.remove(id);
                let mending = &mut switch.mending;
                let mut may = || may_mend(mending, outbox.now);
                if place.read(dpid, now_found, (asked_at, &mut may), outbox) {
                    wanting.push((place.owner.clone(), *id));
                }
            }
            let emptied = &switch.parts_read.emptied;
            let is_stray = |id: &PartId| id.is_given() && !emptied.contains(id);
            for id in found.into_keys().filter(is_stray) {
                if let Some(xid) = outbox.send(dpid, id.to_delete()) {
                    switch.fresh.insert(xid, Spot::Gone(id));
                }
            }
        }
        for (owner, id) in wanting {
            let waiting = &mut self.owner(&owner, outbox.now).waiting;
            waiting.insert(dpid, Work::SetPart(id));
        }
        let switch = self.switches.get(&dpid).map(|switch| &switch.parts_read);
        if switch.is_some_and(|read| read.asked_at.is_empty() && !read.is_compared) {
            self.parts_compared(dpid, outbox);
        }
        self.advance(outbox);
    }

    pub(super) fn part_view(&self, name: &PartName, part: &StaticPart) -> PartView {
        let switch = self.switches.get(&part.dpid);
        let place = switch.and_then(|switch| switch.parts.get(&part.id()));
        let is_compared = switch.is_some_and(|switch| switch.parts_read.is_compared);
        let refused = place.and_then(|place| place.refused.as_ref());
        let state = match (refused, place.and_then(|place| place.held.as_ref())) {
            (Some(refused), _) => FlowState::Refused(refused.why.clone()),
            _ if !is_compared => FlowState::Wanted,
            (None, Some(held)) if held.is_confirmed && held.part.add == part.add => {
                FlowState::InUse
            }
            _ => FlowState::Sent,
        };
        PartView {
            name: name.clone(),
            part: part.clone(),
            state,
        }
    }
}
