//! Stated groups and meters at work. A switch has them before the entries that lead to them, and
//! loses them after these.
//!
//! They have no cookie. So a group or a meter of a stated number is taken over from whoever has
//! set it, and is deleted only by the process that knows of it; those whose numbers follow from
//! names are nobody else's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clock::Instant;
use openflow::message::{FlowRemovedReason, GroupModCommand, MeterModCommand, MultipartRequest};
use openflow::message::{GroupMod, MeterMod};
use openflow::multipart::{ReplyBody, RequestBody};
use openflow::{Action, DatapathId, ErrorKind, Instruction, Message, MeterId, Version, Xid};
use openflow::{decode, encode};

use crate::flows::parts::{
    PartEdit, PartId, PartKind, PartMod, PartName, PartProblem, PartView, PartsAround, StaticPart,
    problems,
};
use crate::flows::{FlowEdit, FlowKey, FlowName, FlowProblem, FlowState, StaticEntry};

use super::super::Controller;
use super::super::outbox::{Outbox, Request};
use super::waiting::Work;
use super::{MISSED_MAX, Refusal, Spot, StaticEntries, Switch, may_mend};

/// Attempts in turn to add what the switch says is there, or to modify what it says is not.
const TURNS_MAX: u8 = 3;

/// The reading of a switch's groups and meters.
#[derive(Default)]
pub(super) struct PartsRead {
    /// When those under way were asked for.
    asked_at: BTreeMap<PartKind, Instant>,
    /// Those deleted since.
    emptied: BTreeSet<PartId>,
    /// What it had when it connected is known, as far as it says.
    is_compared: bool,
}

impl PartsRead {
    pub(super) fn note_asked(&mut self, kind: PartKind, now: Instant) {
        self.asked_at.insert(kind, now);
    }
}

/// A number of a switch's groups or meters.
pub(super) struct PartPlace {
    wanted: Option<PartName>,
    owner: String,
    /// The last one that should have been here.
    last: Arc<StaticPart>,
    held: Option<HeldPart>,
    /// It was deleted, and the switch has still to confirm that.
    is_going: bool,
    is_stale: bool,
    /// The form in which the switch reports it, if that is not ours; and one that it has reported
    /// once.
    form: Option<PartMod>,
    odd: Option<PartMod>,
    refused: Option<Refusal>,
    /// It was here when the connection ended, or an earlier process may have set it.
    was_held: bool,
    missed: u8,
    turns: u8,
}

struct HeldPart {
    part: Arc<StaticPart>,
    xid: Option<Xid>,
    sent_at: Option<Instant>,
    is_confirmed: bool,
}

impl PartPlace {
    fn new(owner: &str, last: Arc<StaticPart>) -> PartPlace {
        PartPlace {
            wanted: None,
            owner: owner.to_owned(),
            last,
            held: None,
            is_going: false,
            is_stale: false,
            form: None,
            odd: None,
            refused: None,
            was_held: false,
            missed: 0,
            turns: 0,
        }
    }

    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    pub(super) fn confirm(&mut self) {
        if let Some(held) = &mut self.held {
            held.is_confirmed = true;
            self.turns = 0;
        }
    }

    /// Forgets a number whose deletion the switch has confirmed.
    pub(super) fn forget_gone(places: &mut BTreeMap<PartId, PartPlace>, id: PartId) {
        if places.get(&id).is_some_and(|place| place.is_going) {
            places.remove(&id);
        }
    }

    /// What is kept of them when a connection has ended: the wanted ones, and those still to be
    /// deleted.
    pub(super) fn after_end(places: BTreeMap<PartId, PartPlace>) -> BTreeMap<PartId, PartPlace> {
        let kept = places.into_iter().filter_map(|(id, place)| {
            let kept = PartPlace {
                was_held: place.held.is_some() || place.was_held,
                wanted: place.wanted,
                ..PartPlace::new(&place.owner, place.last)
            };
            (kept.wanted.is_some() || kept.was_held).then_some((id, kept))
        });
        kept.collect()
    }

    /// Whether a report is what the switch was sent, or its own form of it: one that it reports
    /// twice, the second time after it was set once more.
    fn takes(&mut self, dpid: DatapathId, found: PartMod, outbox: &Outbox) -> bool {
        let sent = reported(dpid, &self.last, outbox);
        if sent.iter().chain(&self.form).any(|form| *form == found) {
            return true;
        }
        let is_second = self.odd.as_ref() == Some(&found);
        match is_second {
            true => self.form = self.odd.take(),
            false => self.odd = Some(found),
        }
        is_second
    }
}

/// The form in which a switch reports what it was sent.
fn reported(dpid: DatapathId, part: &StaticPart, outbox: &Outbox) -> Option<PartMod> {
    let message = part.to_add();
    let message = outbox.led(dpid, &message).unwrap_or(message);
    let frame = encode(outbox.version(dpid)?, Xid(0), &message).ok()?;
    match decode(&frame).ok()? {
        Message::GroupMod(group) => Some(PartMod::Group(group)),
        Message::MeterMod(meter) => Some(PartMod::Meter(meter)),
        _ => None,
    }
}

/// The groups or meters of a report.
fn found_in(bodies: Vec<ReplyBody>) -> BTreeMap<PartId, PartMod> {
    let mut found = BTreeMap::new();
    for body in bodies {
        match body {
            ReplyBody::GroupDesc(groups) => found.extend(groups.into_iter().map(|group| {
                let of = GroupMod {
                    command: GroupModCommand::Add,
                    group_type: group.group_type,
                    group_id: group.group_id,
                    buckets: group.buckets,
                };
                (PartId::Group(group.group_id), PartMod::Group(of))
            })),
            ReplyBody::MeterConfig(meters) => found.extend(meters.into_iter().map(|meter| {
                let of = MeterMod {
                    command: MeterModCommand::Add,
                    flags: meter.flags,
                    meter_id: meter.meter_id,
                    bands: meter.bands,
                };
                (PartId::Meter(meter.meter_id), PartMod::Meter(of))
            })),
            _ => {}
        }
    }
    found
}

/// Whether instructions lead to a group or a meter.
pub(super) fn are_led_to(instructions: &[Instruction]) -> bool {
    instructions.iter().any(|instruction| match instruction {
        Instruction::Meter(_) => true,
        Instruction::ApplyActions(actions) => actions
            .iter()
            .any(|action| matches!(action, Action::Group(_))),
        _ => false,
    })
}

impl Switch {
    /// Why an entry cannot be there for a group or a meter that the switch does not take.
    pub(super) fn refused_part(&self, entry: &StaticEntry) -> Option<String> {
        entry.parts().find_map(|id| {
            let place = self.parts.get(&id)?;
            let (name, refused) = (place.wanted.as_ref()?, place.refused.as_ref()?);
            Some(format!("{name}: {}", refused.why))
        })
    }

    /// Asks for the groups and meters, where there are any.
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
                RequestBody::GroupDesc,
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
    /// Whether an owner has a group or a meter once these are made.
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

    fn part_holder(&self, dpid: DatapathId, id: PartId) -> Option<&PartName> {
        self.switches.get(&dpid)?.parts.get(&id)?.wanted.as_ref()
    }

    /// All reasons not to make these changes, with those of entries. With an outbox, also the
    /// entries that lead to what goes, and switches that have neither groups nor meters.
    fn check_parts(
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

    /// Takes note of changes, and sends nothing yet.
    pub(super) fn stage_parts(&mut self, edits: Vec<PartEdit>, now: Instant) {
        self.stage(edits, now, false);
    }

    /// The same; `may_be_there`: an earlier process may have set them.
    fn stage(&mut self, edits: Vec<PartEdit>, now: Instant, may_be_there: bool) {
        let named = edits.into_iter().map(|edit| match edit {
            PartEdit::Put(name, part) => (name, Some(part)),
            PartEdit::Delete(name) => (name, None),
        });
        // The last one of a name counts, and numbers are free before others take them.
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

    /// Whether a number of a compared switch is not as it should be.
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

    /// Makes a number of a switch what it should be.
    pub(super) fn change_part(&mut self, dpid: DatapathId, id: PartId, outbox: &mut Outbox) {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        let Some(place) = switch.parts.get_mut(&id) else {
            return;
        };
        if place.wanted.is_none() {
            (place.held, place.was_held, place.is_going) = (None, true, true);
            if let Some(xid) = outbox.send(dpid, &id.to_delete()) {
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
        let Some(xid) = outbox.send(dpid, &message) else {
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

    /// Has the entries set that lead to these, and that the switch does not have.
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
        // One that was sent later may be taken.
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

    /// Doubts the groups and meters of an entry that is gone: somebody else may have deleted them,
    /// and the entry with them.
    pub(super) fn doubt_parts(
        &mut self,
        dpid: DatapathId,
        key: &FlowKey,
        reason: FlowRemovedReason,
        outbox: &Outbox,
    ) {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        let Some(place) = switch.places.get(key) else {
            return;
        };
        let set_at = place.held.as_ref().and_then(|held| held.sent_at);
        let mut doubted = Vec::new();
        for id in place.last.parts() {
            // OpenFlow 1.3 has no reason for meters.
            let may_be_gone = match id.kind() {
                PartKind::Group => reason == FlowRemovedReason::GROUP_DELETE,
                PartKind::Meter => reason == FlowRemovedReason::DELETE,
            };
            let part = switch.parts.get_mut(&id).filter(|_| may_be_gone);
            let Some(part) = part else {
                continue;
            };
            // It may have been set again since.
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

    /// Asks a switch that has connected for its groups and meters, if it should have some or may
    /// have some of ours.
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

    /// Sets what is missing on a switch, of which is known what it has.
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

    /// Takes a switch's report of its groups or meters; `None`: it gives none.
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
                if let Some(xid) = outbox.send(dpid, &id.to_delete()) {
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

impl PartPlace {
    /// Compares what the switch reports of this number. Returns whether it has to be set.
    fn read(
        &mut self,
        dpid: DatapathId,
        found: Option<PartMod>,
        (asked_at, may_mend): (Instant, &mut dyn FnMut() -> bool),
        outbox: &Outbox,
    ) -> bool {
        if self.wanted.is_none() {
            // Those that are gone need not be deleted.
            self.was_held &= found.is_some();
            return false;
        }
        let is_again = self
            .refused
            .as_ref()
            .is_some_and(|refused| refused.is_for_now);
        if is_again {
            self.refused = None;
        }
        let Some(held) = &mut self.held else {
            let is_there = found.is_some();
            self.is_stale = !found.is_some_and(|found| self.takes(dpid, found, outbox));
            self.odd = None;
            if is_there {
                self.held = Some(HeldPart {
                    part: self.last.clone(),
                    xid: None,
                    sent_at: None,
                    is_confirmed: !self.is_stale,
                });
            }
            return self.is_stale;
        };
        let is_newer = held.sent_at.is_some_and(|at| at >= asked_at);
        if is_newer || self.is_stale || held.part.add != self.last.add {
            return is_again;
        }
        held.is_confirmed = true;
        match found {
            Some(found) => {
                self.missed = 0;
                let is_right = self.takes(dpid, found, outbox);
                self.is_stale = !is_right && may_mend();
                if !is_right && !self.is_stale {
                    self.odd = None;
                }
                self.is_stale
            }
            None if self.missed >= MISSED_MAX => {
                self.held = None;
                self.refused = Some(Refusal {
                    why: "the switch takes it, and does not have it later".to_owned(),
                    is_for_now: false,
                });
                false
            }
            None if may_mend() => {
                self.missed += 1;
                self.held = None;
                true
            }
            None => false,
        }
    }
}

impl Controller {
    /// All reasons not to make these changes together.
    pub fn check_stated(
        &self,
        parts: &[PartEdit],
        flows: &[FlowEdit],
    ) -> (Vec<PartProblem>, Vec<FlowProblem>) {
        let outbox = Some(&self.outbox);
        let of_parts = self.stated.check_parts(parts, flows, outbox);
        (of_parts, self.stated.check(flows, parts, outbox))
    }

    /// Changes stated groups and meters, and static entries, all of them or none. To delete one
    /// that is not there is no mistake.
    ///
    /// # Errors
    /// All reasons, by name and field.
    pub fn edit_stated(
        &mut self,
        now: Instant,
        parts: Vec<PartEdit>,
        flows: Vec<FlowEdit>,
    ) -> Result<(), (Vec<PartProblem>, Vec<FlowProblem>)> {
        self.outbox.now = now;
        let problems = self.check_stated(&parts, &flows);
        if !(problems.0.is_empty() && problems.1.is_empty()) {
            return Err(problems);
        }
        self.stated.stage_parts(parts, now);
        self.stated.edit(flows, &mut self.outbox);
        Ok(())
    }

    /// Makes these groups, meters and entries the lasting ones, as far as they can be. Returns the
    /// others, with the reason.
    pub fn fit_stated(
        &mut self,
        now: Instant,
        parts: Vec<(PartName, StaticPart)>,
        flows: Vec<(FlowName, StaticEntry)>,
    ) -> (Vec<(PartName, String)>, Vec<(FlowName, String)>) {
        self.outbox.now = now;
        let mut puts: BTreeMap<PartName, StaticPart> = parts.into_iter().collect();
        let mut left_out = Vec::new();
        loop {
            let put = |(name, part): (&PartName, &StaticPart)| {
                PartEdit::Put(name.clone(), Box::new(part.clone()))
            };
            let gone = self
                .stated
                .parts
                .keys()
                .filter(|name| !puts.contains_key(*name));
            let gone: Vec<PartEdit> = gone.cloned().map(PartEdit::Delete).collect();
            let edits: Vec<PartEdit> = puts.iter().map(put).collect();
            let whole: Vec<PartEdit> = edits.iter().chain(&gone).cloned().collect();
            let before = puts.len();
            for problem in self.stated.check_parts(&whole, &[], None) {
                if puts.remove(&problem.name).is_some() {
                    left_out.push((problem.name, problem.text));
                }
            }
            if puts.len() != before {
                continue;
            }
            // Entries that go still lead to those that go.
            let is_other = |edit: &PartEdit| match edit {
                PartEdit::Put(name, part) => self
                    .stated
                    .parts
                    .get(name)
                    .is_none_or(|there| **there != **part),
                PartEdit::Delete(_) => true,
            };
            let edits = edits.into_iter().filter(is_other).collect();
            self.stated.stage(edits, now, true);
            let flows = self.fit_flows(now, flows);
            self.stated.stage_parts(gone, now);
            self.stated.edit(Vec::new(), &mut self.outbox);
            return (left_out, flows);
        }
    }

    /// The stated groups, or meters.
    pub fn parts(&self, kind: PartKind) -> Vec<PartView> {
        let all = self
            .stated
            .parts
            .iter()
            .filter(|(name, _)| name.kind == kind);
        all.map(|(name, part)| self.stated.part_view(name, part))
            .collect()
    }

    /// One of them.
    pub fn part(&self, name: &PartName) -> Option<PartView> {
        let part = self.stated.parts.get(name)?;
        Some(self.stated.part_view(name, part))
    }

    /// Whether there is one of this name.
    pub fn has_stated(&self, name: &PartName) -> bool {
        self.stated.parts.contains_key(name)
    }

    /// The name of the one with a number.
    pub fn part_of(&self, dpid: DatapathId, id: PartId) -> Option<PartName> {
        self.stated.part_holder(dpid, id).cloned()
    }

    pub(in super::super) fn static_parts_read(
        &mut self,
        dpid: DatapathId,
        request: Request,
        bodies: Vec<ReplyBody>,
    ) {
        self.stated
            .handle_parts(dpid, request, Some(bodies), &mut self.outbox);
    }
}
