//! The static entries of each switch: those already sent, and those still to be sent.
//!
//! A separate state machine. It compares a switch's static entries with the wanted ones when the
//! switch connects and at each reading of their counters, and mends every difference. Entries with
//! a timeout end for good. Changes beyond an owner's rate wait, each place once.

mod asked;
mod part_place;
mod parts;
#[cfg(test)]
mod parts_tests;
mod read;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clock::{Budget, Duration, Instant};
use openflow::message::FlowRemoved;
use openflow::multipart::FlowStats;
use openflow::table::Pattern;
use openflow::{DatapathId, ErrorKind, Instruction, Message, Version, Xid};

use crate::access::TABLES_MIN_ONWARD;
use crate::entry;
use crate::flows::parts::{PartEdit, PartId, Parts, StaticPart};
use crate::flows::{
    Around, COMPARED_MAX, FlowEdit, FlowKey, FlowLimits, FlowName, FlowProblem, FlowState,
    FlowView, MENDED_AT_ONCE, OVERLAPS_MAX, StaticEntry, problems,
};
use crate::pipeline::ONWARD_TABLE;

use super::entries::delete_of;
use super::event::Event;
use super::outbox::{Outbox, Request, Timer};
use part_place::{PartPlace, PartsRead};
use waiting::{Waiting, Work};

/// Time between two readings of the counters.
const READ_INTERVAL: Duration = Duration::from_secs(10);
/// Time after which waiting changes beyond the rate continue.
const TICK: Duration = Duration::from_millis(50);
/// Readings that miss an entry before it counts as refused.
const MISSED_MAX: u8 = 3;
/// Entries of a switch that are mended each second, after the first [`MENDED_AT_ONCE`]. The others
/// wait for a later reading.
const MENDED_PER_S: u32 = 20;

pub(super) struct StaticEntries {
    limits: FlowLimits,
    wanted: BTreeMap<FlowName, Arc<StaticEntry>>,
    parts: Parts<Arc<StaticPart>>,
    switches: BTreeMap<DatapathId, Switch>,
    owners: BTreeMap<String, Owner>,
    read_at: Option<Instant>,
    go_on_at: Option<Instant>,
}

struct Owner {
    count: usize,
    /// Number of the owner's groups and meters.
    parts: usize,
    budget: Budget,
    waiting: Waiting,
}

#[derive(Default)]
struct Switch {
    /// Whether the switch is connected and its entries have been compared.
    is_compared: bool,
    /// Whether its tables are numbered to include the table of entries that let packets continue.
    has_onward: bool,
    places: BTreeMap<FlowKey, Place>,
    parts: BTreeMap<PartId, PartPlace>,
    parts_read: PartsRead,
    /// Messages sent since the last barrier, and messages before the barrier that is under way.
    fresh: BTreeMap<Xid, Spot>,
    fenced: BTreeMap<Xid, Spot>,
    is_fencing: bool,
    /// When the reading under way was requested, and the places emptied since then.
    asked_at: Option<Instant>,
    emptied: BTreeSet<FlowKey>,
    mending: Option<Budget>,
}

/// The subject of a message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Spot {
    Entry(FlowKey),
    Part(PartId),
    /// A group or a meter that was deleted.
    Gone(PartId),
}

impl Switch {
    fn has_table(&self, key: &FlowKey) -> bool {
        self.has_onward || key.table != ONWARD_TABLE
    }
}

/// Whether one more entry of a switch may be mended now.
fn may_mend(mending: &mut Option<Budget>, now: Instant) -> bool {
    let fresh = || Budget::new(now, MENDED_PER_S, MENDED_AT_ONCE);
    mending.get_or_insert_with(fresh).take(now)
}

/// A place of a switch: a priority and a match.
struct Place {
    /// The entry that should be here.
    wanted: Option<FlowName>,
    /// The last entry that should have been here.
    last: Arc<StaticEntry>,
    held: Option<Held>,
    /// Whether the entry must be set again.
    is_stale: bool,
    /// The form in which the switch reports the entry, if it differs from ours; and a form reported
    /// only once so far.
    form: Option<Vec<Instruction>>,
    odd: Option<Vec<Instruction>>,
    /// Why the switch refuses the entry. It may still have an earlier one.
    refused: Option<Refusal>,
    /// Whether the place had an entry when the connection ended.
    was_held: bool,
    /// Consecutive readings without the entry.
    missed: u8,
}

/// An entry sent to a switch, or reported by it.
struct Held {
    entry: Arc<StaticEntry>,
    /// `None`: an earlier process may have sent it.
    sent_at: Option<Instant>,
    /// Its message, if it was sent on this connection.
    xid: Option<Xid>,
    is_confirmed: bool,
    counts: Option<(u64, u64)>,
}

struct Refusal {
    why: String,
    /// Whether the switch may accept the entry later, once there is room.
    is_for_now: bool,
}

impl Held {
    fn new(entry: Arc<StaticEntry>, sent_at: Option<Instant>) -> Held {
        Held {
            entry,
            sent_at,
            xid: None,
            is_confirmed: sent_at.is_none(),
            counts: None,
        }
    }

    /// Whether the entry does the same as another.
    fn does_as(&self, other: &StaticEntry) -> bool {
        let timeouts = |entry: &StaticEntry| (entry.idle_timeout_s, entry.hard_timeout_s);
        let is_same = self.entry.meter == other.meter && self.entry.actions == other.actions;
        is_same && timeouts(&self.entry) == timeouts(other)
    }
}

impl Place {
    fn new(last: Arc<StaticEntry>) -> Place {
        Place {
            wanted: None,
            last,
            held: None,
            is_stale: false,
            form: None,
            odd: None,
            refused: None,
            was_held: false,
            missed: 0,
        }
    }

    fn is_needless(&self) -> bool {
        self.wanted.is_none() && self.held.is_none() && self.refused.is_none()
    }
}

impl StaticEntries {
    pub(super) fn new(limits: FlowLimits) -> StaticEntries {
        StaticEntries {
            limits,
            wanted: BTreeMap::new(),
            parts: Parts::default(),
            switches: BTreeMap::new(),
            owners: BTreeMap::new(),
            read_at: None,
            go_on_at: None,
        }
    }

    /// All reasons not to make these changes. With an outbox, also features that the versions of
    /// connected switches lack.
    fn check(
        &self,
        edits: &[FlowEdit],
        parts: &[PartEdit],
        outbox: Option<&Outbox>,
    ) -> Vec<FlowProblem> {
        let around = Around {
            entry: &|name| self.wanted.get(name).map(|entry| &**entry),
            holder: &|dpid, key| self.switches.get(&dpid)?.places.get(key)?.wanted.as_ref(),
            of_owner: &|owner| self.owners.get(owner).map_or(0, |owner| owner.count),
            all: self.wanted.len(),
            limits: self.limits,
            version: &|dpid| outbox?.version(dpid),
            has_part: &|owner, dpid, id| self.has_part(parts, owner, dpid, id),
        };
        problems(edits, &around)
    }

    fn edit(&mut self, edits: Vec<FlowEdit>, outbox: &mut Outbox) {
        let named = edits.into_iter().map(|edit| match edit {
            FlowEdit::Put(name, entry) => (name, Some(entry)),
            FlowEdit::Delete(name) => (name, None),
        });
        // The last edit of a name counts.
        let edits: BTreeMap<FlowName, Option<Box<StaticEntry>>> = named.collect();
        // Places are freed before other entries take them.
        for (name, entry) in &edits {
            self.leave(name, entry.as_deref(), outbox.now);
            if entry.is_none() && self.wanted.remove(name).is_some() {
                self.owner(&name.owner, outbox.now).count -= 1;
            }
        }
        for (name, entry) in edits {
            if let Some(entry) = entry {
                self.put(name, Arc::new(*entry), outbox.now);
            }
        }
        self.advance(outbox);
        self.read_later(outbox);
    }

    fn owner(&mut self, name: &str, now: Instant) -> &mut Owner {
        let limits = self.limits;
        self.owners.entry(name.to_owned()).or_insert_with(|| Owner {
            count: 0,
            parts: 0,
            budget: limits.budget(now),
            waiting: Waiting::default(),
        })
    }

    /// Removes an entry from its place, unless the next entry of its name has the same place.
    fn leave(&mut self, name: &FlowName, next: Option<&StaticEntry>, now: Instant) {
        let Some(entry) = self.wanted.get(name).cloned() else {
            return;
        };
        let (dpid, key) = (entry.dpid, entry.key());
        if next.is_some_and(|next| next.dpid == dpid && next.key() == key) {
            return;
        }
        let place = self.switches.get_mut(&dpid);
        if let Some(place) = place.and_then(|switch| switch.places.get_mut(&key))
            && place.wanted.as_ref() == Some(name)
        {
            place.wanted = None;
            let waiting = &mut self.owner(&name.owner, now).waiting;
            waiting.insert(dpid, Work::Empty(key));
        }
    }

    fn put(&mut self, name: FlowName, entry: Arc<StaticEntry>, now: Instant) {
        let (dpid, key) = (entry.dpid, entry.key());
        let is_new = self.wanted.insert(name.clone(), entry.clone()).is_none();
        let owner = self.owner(&name.owner, now);
        owner.count += usize::from(is_new);
        owner.waiting.insert(dpid, Work::Set(key.clone()));
        let switch = self.switches.entry(dpid).or_default();
        let place = switch.places.entry(key);
        let place = place.or_insert_with(|| Place::new(entry.clone()));
        // The time of an entry with a timeout restarts.
        let is_stale = place.is_stale || !entry.is_lasting();
        *place = Place {
            wanted: Some(name),
            held: place.held.take(),
            is_stale,
            ..Place::new(entry)
        };
    }

    /// Sends the changes that may be sent by now.
    fn advance(&mut self, outbox: &mut Outbox) {
        let now = outbox.now;
        let mut is_late = false;
        let names: Vec<String> = self.owners.keys().cloned().collect();
        for name in names {
            while let Some(owner) = self.owners.get_mut(&name)
                && let Some((dpid, work)) = owner.waiting.first()
            {
                let is_needed = match &work {
                    Work::Set(key) | Work::Empty(key) => self.needs_change(dpid, key),
                    Work::SetPart(id) | Work::DropPart(id) => self.needs_part(dpid, *id),
                };
                if is_needed {
                    let owner = self.owner(&name, now);
                    if !owner.budget.take(now) {
                        is_late = true;
                        break;
                    }
                    match &work {
                        Work::Set(key) | Work::Empty(key) => self.change(dpid, key, outbox),
                        Work::SetPart(id) | Work::DropPart(id) => {
                            self.change_part(dpid, *id, outbox);
                        }
                    }
                }
                if let Some(owner) = self.owners.get_mut(&name) {
                    owner.waiting.pop_first();
                }
            }
        }
        // An owner that returns has no larger budget than before.
        let at_once = self.limits.at_once();
        self.owners.retain(|_, owner| {
            let has_none = owner.count == 0 && owner.parts == 0;
            let is_idle = has_none && owner.waiting.is_empty();
            !is_idle || !owner.budget.has(now, at_once)
        });
        self.fence(outbox);
        if is_late && self.go_on_at.is_none_or(|at| at <= now) {
            self.go_on_at = Some(now + TICK);
            outbox.timer(now + TICK, Timer::Static);
        }
    }

    /// Whether a switch needs the table of entries that let packets continue. A switch that has the
    /// table keeps it until it reconnects.
    pub(super) fn goes_on_at(&self, dpid: DatapathId) -> bool {
        self.switches.get(&dpid).is_some_and(|switch| {
            let last = switch.places.last_key_value();
            switch.has_onward || last.is_some_and(|(key, _)| key.table == ONWARD_TABLE)
        })
    }

    /// Whether a place of a compared switch must change.
    fn needs_change(&mut self, dpid: DatapathId, key: &FlowKey) -> bool {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return false;
        };
        let Some(place) = switch.places.get(key) else {
            return false;
        };
        if place.is_needless() {
            switch.places.remove(key);
            self.forget_if_needless(dpid);
            return false;
        }
        let entry = place.wanted.as_ref().and_then(|name| self.wanted.get(name));
        // Once a missing group or meter is set, the entry is set too.
        let has_parts = entry.is_none_or(|entry| {
            let mut parts = entry.parts();
            parts.all(|id| switch.parts.get(&id).is_some_and(|part| part.is_held()))
        });
        switch.is_compared
            && switch.has_table(key)
            && has_parts
            && match (entry, &place.held, &place.refused) {
                (Some(_), _, Some(_)) => false,
                (Some(entry), Some(held), None) => place.is_stale || !held.does_as(entry),
                (Some(_), None, None) => true,
                (None, ..) => true,
            }
    }

    /// Forgets a switch that is not compared and has no entries, groups or meters.
    fn forget_if_needless(&mut self, dpid: DatapathId) {
        let is_needless = self.switches.get(&dpid).is_some_and(|switch| {
            !switch.is_compared && switch.places.is_empty() && switch.parts.is_empty()
        });
        if is_needless {
            self.switches.remove(&dpid);
        }
    }

    /// Changes a place of a switch to its wanted state.
    fn change(&mut self, dpid: DatapathId, key: &FlowKey, outbox: &mut Outbox) {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        let Some(place) = switch.places.get_mut(key) else {
            return;
        };
        let entry = place.wanted.as_ref().and_then(|name| self.wanted.get(name));
        let Some(entry) = entry else {
            outbox.send_flow_mod(
                dpid,
                delete_of(key.table, key.priority, &place.last.r#match),
            );
            switch.places.remove(key);
            if switch.asked_at.is_some() {
                switch.emptied.insert(key.clone());
            }
            return;
        };
        let version = outbox.version(dpid).unwrap_or(Version::V13);
        match outbox.flow_mod(dpid, entry.to_add(version, outbox.generation)) {
            Some(xid) => {
                place.held = Some(Held {
                    xid: Some(xid),
                    ..Held::new(entry.clone(), Some(outbox.now))
                });
                place.is_stale = false;
                switch.fresh.insert(xid, Spot::Entry(key.clone()));
            }
            None => {
                place.refused = Some(Refusal {
                    why: "the version of OpenFlow that the switch speaks has none such".to_owned(),
                    is_for_now: false,
                });
            }
        }
    }

    /// Asks the switches with new entries to confirm them.
    fn fence(&mut self, outbox: &mut Outbox) {
        let now = outbox.now;
        let waiting = self.switches.iter_mut();
        let waiting = waiting.filter(|(_, switch)| !switch.is_fencing && !switch.fresh.is_empty());
        for (dpid, switch) in waiting {
            let asked = outbox.request(now, *dpid, Request::Static, &Message::BarrierRequest);
            if asked.is_some() {
                switch.is_fencing = true;
                switch.fenced.append(&mut switch.fresh);
            }
        }
    }

    fn handle_confirmed(&mut self, dpid: DatapathId, outbox: &mut Outbox) {
        if let Some(switch) = self.switches.get_mut(&dpid) {
            switch.is_fencing = false;
            let fresh: BTreeSet<&Spot> = switch.fresh.values().collect();
            let fenced = std::mem::take(&mut switch.fenced).into_values();
            for spot in fenced.filter(|spot| !fresh.contains(spot)) {
                match spot {
                    Spot::Entry(key) => {
                        let place = switch.places.get_mut(&key);
                        if let Some(held) = place.and_then(|place| place.held.as_mut()) {
                            held.is_confirmed = true;
                        }
                    }
                    Spot::Part(id) => {
                        let part = switch.parts.get_mut(&id);
                        part.into_iter().for_each(PartPlace::confirm);
                    }
                    Spot::Gone(id) => PartPlace::forget_gone(&mut switch.parts, id),
                }
            }
        }
        self.fence(outbox);
    }

    pub(super) fn handle_unanswered(
        &mut self,
        dpid: DatapathId,
        request: Request,
        outbox: &mut Outbox,
    ) {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        match request {
            Request::StaticRows => switch.asked_at = None,
            Request::StaticGroups | Request::StaticMeters => {
                self.handle_parts(dpid, request, None, outbox);
            }
            _ => {
                switch.is_fencing = false;
                switch.fresh.append(&mut switch.fenced);
            }
        }
    }

    /// Notes that a switch has refused a message, if it was for an entry, a group or a meter.
    /// Returns whether it was for a group or a meter.
    pub(super) fn handle_refused(
        &mut self,
        dpid: DatapathId,
        (xid, error): (Xid, ErrorKind),
        outbox: &mut Outbox,
    ) -> bool {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return false;
        };
        let spot = switch.fresh.remove(&xid);
        match spot.or_else(|| switch.fenced.remove(&xid)) {
            Some(Spot::Entry(key)) => {
                self.entry_refused(dpid, &key, (xid, error));
                false
            }
            Some(Spot::Part(id)) => {
                self.part_refused(dpid, id, (xid, error), outbox);
                true
            }
            Some(Spot::Gone(_)) => true,
            None => false,
        }
    }

    fn entry_refused(&mut self, dpid: DatapathId, key: &FlowKey, (xid, error): (Xid, ErrorKind)) {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        // The switch may accept an entry that was sent later.
        let place = switch.places.get_mut(key);
        let held =
            place.and_then(|place| Some((place.held.take_if(|it| it.xid == Some(xid))?, place)));
        let Some((held, place)) = held else {
            return;
        };
        // The wanted entry may still wait for its owner's rate.
        match held.does_as(&place.last) {
            true => {
                place.refused = Some(Refusal {
                    why: format!("the switch refuses it: {error}"),
                    // Its group or meter may have been deleted meanwhile.
                    is_for_now: error == ErrorKind::FLOW_MOD_TABLE_FULL
                        || place.last.parts().next().is_some(),
                });
            }
            false => (place.held, place.is_stale) = (Some(held), true),
        }
    }

    /// Notes that a connection has ended.
    pub(super) fn handle_down(&mut self, dpid: DatapathId) {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        let places = std::mem::take(&mut switch.places);
        let kept = places.into_iter().filter_map(|(key, place)| {
            let place = Place {
                was_held: place.held.is_some() || place.was_held,
                wanted: Some(place.wanted?),
                ..Place::new(place.last)
            };
            Some((key, place))
        });
        *switch = Switch {
            places: kept.collect(),
            parts: PartPlace::after_end(std::mem::take(&mut switch.parts)),
            mending: switch.mending,
            ..Switch::default()
        };
        self.forget_if_needless(dpid);
    }

    /// Removes an entry with a timeout after its end.
    fn end(&mut self, dpid: DatapathId, key: &FlowKey, outbox: &mut Outbox) {
        let switch = self.switches.get_mut(&dpid);
        let place = switch.and_then(|switch| switch.places.remove(key));
        if let Some(name) = place.and_then(|place| place.wanted) {
            if self.wanted.remove(&name).is_some() {
                self.owner(&name.owner, outbox.now).count -= 1;
            }
            outbox.event(Event::FlowEnded { dpid, name });
        }
    }

    /// Queues an entry to be set again after somebody else has deleted or changed it.
    fn mend(&mut self, dpid: DatapathId, key: &FlowKey, outbox: &mut Outbox) {
        let place = self
            .switches
            .get(&dpid)
            .and_then(|switch| switch.places.get(key));
        let Some(name) = place.and_then(|place| place.wanted.clone()) else {
            return;
        };
        let waiting = &mut self.owner(&name.owner, outbox.now).waiting;
        waiting.insert(dpid, Work::Set(key.clone()));
        outbox.event(Event::FlowMended { dpid, name });
    }

    fn is_lasting(&self, dpid: DatapathId, key: &FlowKey) -> Option<bool> {
        let name = self.switches.get(&dpid)?.places.get(key)?.wanted.as_ref()?;
        Some(self.wanted.get(name)?.is_lasting())
    }

    fn handle_removed(&mut self, dpid: DatapathId, removed: &FlowRemoved, outbox: &mut Outbox) {
        let Some(key) = FlowKey::of(removed.table_id, removed.priority, &removed.r#match) else {
            return;
        };
        let place = self
            .switches
            .get_mut(&dpid)
            .and_then(|switch| switch.places.get_mut(&key));
        let Some((place, held)) = place.and_then(|place| {
            let held = place.held.take()?;
            Some((place, held))
        }) else {
            return;
        };
        let age = held.sent_at.map(|at| outbox.now.since(at));
        let timeouts = (held.entry.idle_timeout_s, held.entry.hard_timeout_s);
        let is_earlier =
            entry::is_earlier(removed, age, timeouts) || entry::has_lived_longer(removed, age);
        let is_replaced = place.is_stale || !held.does_as(&place.last);
        match (is_earlier, place.wanted.is_some() && is_replaced) {
            (true, _) => {
                place.held = Some(held);
                return;
            }
            // The entry in its place is still to be sent.
            (false, true) => return,
            (false, false) => place.held = Some(held),
        }
        match self.is_lasting(dpid, &key) {
            Some(true) => {
                let switch = self.switches.get_mut(&dpid);
                if switch.is_some_and(|it| may_mend(&mut it.mending, outbox.now)) {
                    self.doubt_parts(dpid, &key, removed.reason, outbox);
                    self.forget_held(dpid, &key);
                    self.mend(dpid, &key, outbox);
                    self.advance(outbox);
                }
            }
            Some(false) => self.end(dpid, &key, outbox),
            // The entry was to be deleted anyway.
            None => {
                if let Some(switch) = self.switches.get_mut(&dpid) {
                    switch.places.remove(&key);
                }
            }
        }
    }

    /// Notes that a switch no longer has an entry.
    fn forget_held(&mut self, dpid: DatapathId, key: &FlowKey) {
        let switch = self.switches.get_mut(&dpid);
        if let Some(place) = switch.and_then(|switch| switch.places.get_mut(key)) {
            place.held = None;
        }
    }

    /// The name of an entry that a switch reports, in our table numbers.
    pub(super) fn owner_of(&self, dpid: DatapathId, row: &FlowStats) -> Option<&FlowName> {
        let key = FlowKey::of(row.table_id, row.priority, &row.r#match)?;
        self.switches.get(&dpid)?.places.get(&key)?.wanted.as_ref()
    }

    fn view(&self, name: &FlowName, entry: &StaticEntry) -> FlowView {
        let switch = self.switches.get(&entry.dpid);
        let place = switch.and_then(|switch| switch.places.get(&entry.key()));
        let is_compared = switch.is_some_and(|switch| switch.is_compared);
        let held = place.and_then(|place| place.held.as_ref());
        let of_part = switch.and_then(|switch| switch.refused_part(entry));
        let own = place.and_then(|place| place.refused.as_ref());
        let refused = of_part.or_else(|| own.map(|refused| refused.why.clone()));
        let has_table = switch.is_none_or(|switch| switch.has_table(&entry.key()));
        let state = match (refused, held) {
            (Some(why), _) => FlowState::Refused(why),
            _ if !is_compared => FlowState::Wanted,
            _ if !has_table => FlowState::Refused(format!(
                "go_on needs groups and {TABLES_MIN_ONWARD} tables of the switch"
            )),
            (None, Some(held)) if held.is_confirmed && held.does_as(entry) => FlowState::InUse,
            _ => FlowState::Sent,
        };
        FlowView {
            name: name.clone(),
            entry: entry.clone(),
            state,
            counts: held.and_then(|held| held.counts),
            overlaps: Vec::new(),
        }
    }

    /// The entries of other owners that take some of the packets of an entry, at its priority.
    fn overlaps(&self, name: &FlowName, entry: &StaticEntry) -> Vec<FlowName> {
        let Some(switch) = self
            .switches
            .get(&entry.dpid)
            .filter(|_| self.owners.len() > 1)
        else {
            return Vec::new();
        };
        let key = entry.key();
        let first = FlowKey {
            pattern: Pattern::default(),
            ..key
        };
        let of_priority = switch
            .places
            .range(first..)
            .take_while(|(other, _)| (other.table, other.priority) == (key.table, key.priority));
        let others = of_priority.take(COMPARED_MAX).filter_map(|(other, place)| {
            let wanted = place.wanted.as_ref()?;
            let is_it = wanted.owner != name.owner && other.pattern.overlaps(&key.pattern);
            is_it.then(|| wanted.clone())
        });
        others.take(OVERLAPS_MAX).collect()
    }
}
