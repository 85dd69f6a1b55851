//! Reports of switches about their static entries.

use std::collections::{BTreeMap, BTreeSet};

use clock::Instant;
use openflow::message::MultipartRequest;
use openflow::multipart::{FlowStats, FlowStatsRequest, ReplyBody, RequestBody};
use openflow::{Cookie, DatapathId, Instruction, Message, Version, decode, encode};

use crate::entry::{COOKIE_PREFIX_MASK, EntryKind};
use crate::flows::{FlowEdit, FlowKey, FlowName, StaticEntry};
use crate::pipeline::Numbering;

use super::super::entries::delete_row;
use super::super::outbox::{Outbox, Request, Timer};
use super::{
    Held, MISSED_MAX, Place, READ_INTERVAL, Refusal, StaticEntries, Work, may_mend, part_place,
};

/// Whether a row has a static entry's cookie.
fn is_static(row: &FlowStats) -> bool {
    EntryKind::of(row.cookie) == Some(EntryKind::Static)
}

/// The key of a row where a static entry can be.
fn key_of(row: &FlowStats) -> Option<FlowKey> {
    FlowKey::of(row.table_id, row.priority, &row.r#match)
}

/// The instructions with which a switch reports an entry sent to it.
fn reported(dpid: DatapathId, entry: &StaticEntry, outbox: &Outbox) -> Option<Vec<Instruction>> {
    let version = outbox.version(dpid)?;
    let mut message = Message::FlowMod(entry.to_add(version, 0));
    outbox.bonds.lead_message(dpid, &mut message);
    let frame = encode(version, openflow::Xid(0), &message).ok()?;
    match decode(&frame).ok()? {
        Message::FlowMod(flow_mod) => Some(flow_mod.instructions),
        _ => None,
    }
}

/// Whether two lists do the same: some switches also omit the instruction if there are no actions.
fn is_same(one: &[Instruction], other: &[Instruction]) -> bool {
    let is_none = |list: &[Instruction]| match list {
        [] => true,
        [Instruction::ApplyActions(actions)] => actions.is_empty(),
        _ => false,
    };
    one == other || (is_none(one) && is_none(other))
}

/// Whether a row equals the entry sent to the switch.
fn is_as_sent(dpid: DatapathId, entry: &StaticEntry, row: &FlowStats, outbox: &Outbox) -> bool {
    let timeouts = (entry.idle_timeout_s, entry.hard_timeout_s);
    let sent = reported(dpid, entry, outbox);
    (row.idle_timeout, row.hard_timeout) == timeouts
        && sent.is_some_and(|sent| is_same(&sent, &row.instructions))
}

impl Place {
    /// Whether a row equals the entry sent to the switch. A form reported twice, the second time
    /// after the entry was set again, is the switch's own form of the entry. An entry with a
    /// timeout is not set again because of its form, since it would live longer.
    fn takes(&mut self, dpid: DatapathId, row: FlowStats, outbox: &Outbox) -> bool {
        let timeouts = (self.last.idle_timeout_s, self.last.hard_timeout_s);
        let sent = reported(dpid, &self.last, outbox);
        let forms = sent.iter().chain(&self.form);
        let is_it = |form: &Vec<Instruction>| is_same(form, &row.instructions);
        if (row.idle_timeout, row.hard_timeout) != timeouts {
            return false;
        }
        if !self.last.is_lasting() || forms.clone().any(is_it) {
            return true;
        }
        let is_second = self.odd.as_ref() == Some(&row.instructions);
        match is_second {
            true => self.form = self.odd.take(),
            false => self.odd = Some(row.instructions),
        }
        is_second
    }
}

impl StaticEntries {
    /// The changes that make `wanted` the lasting entries, and the entries left out. The last names
    /// are left out first.
    pub(super) fn fitting(
        &self,
        wanted: Vec<(FlowName, StaticEntry)>,
    ) -> (Vec<FlowEdit>, Vec<(FlowName, String)>) {
        let mut puts: BTreeMap<FlowName, StaticEntry> = wanted.into_iter().collect();
        let mut left_out = Vec::new();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let mut left = self.limits.all;
        for name in self
            .wanted
            .iter()
            .filter(|(_, entry)| !entry.is_lasting())
            .map(|of| of.0)
        {
            *counts.entry(name.owner.clone()).or_default() += 1;
            left = left.saturating_sub(1);
        }
        puts.retain(|name, _| {
            let count = counts.entry(name.owner.clone()).or_default();
            let has_room = *count < self.limits.per_owner && left > 0;
            match has_room {
                true => (*count, left) = (*count + 1, left - 1),
                false => left_out.push((name.clone(), "its owner has too many".to_owned())),
            }
            has_room
        });
        let lasting = self.wanted.iter().filter(|(_, entry)| entry.is_lasting());
        let gone = |puts: &BTreeMap<FlowName, StaticEntry>| {
            let gone = lasting
                .clone()
                .filter(|(name, _)| !puts.contains_key(*name));
            gone.map(|(name, _)| FlowEdit::Delete(name.clone()))
                .collect::<Vec<_>>()
        };
        let put = |(name, entry): (&FlowName, &StaticEntry)| {
            FlowEdit::Put(name.clone(), Box::new(entry.clone()))
        };
        loop {
            let mut edits = gone(&puts);
            edits.extend(puts.iter().map(put));
            let problems = self.check(&edits, &[], None);
            let before = puts.len();
            for problem in problems {
                if puts.remove(&problem.name).is_some() {
                    left_out.push((problem.name, problem.text));
                }
            }
            if puts.len() == before {
                // Existing entries are left unchanged.
                edits.retain(|edit| match edit {
                    FlowEdit::Put(name, entry) => {
                        self.wanted.get(name).is_none_or(|there| **there != **entry)
                    }
                    FlowEdit::Delete(_) => true,
                });
                return (edits, left_out);
            }
        }
    }

    /// Compares the entries of a newly connected switch, and removes them from the rows. Returns
    /// the numbers kept, added and deleted.
    pub(super) fn reconcile(
        &mut self,
        dpid: DatapathId,
        is_known: bool,
        rows: &mut Vec<FlowStats>,
        outbox: &mut Outbox,
    ) -> [usize; 3] {
        let mut counts = [0; 3];
        let mut is_in_place = BTreeSet::new();
        let mut leads_to_parts = false;
        for row in rows.extract_if(.., |row| is_static(row)) {
            let key = key_of(&row);
            leads_to_parts |= part_place::are_led_to(&row.instructions);
            let switch = self.switches.get_mut(&dpid);
            let places = switch.map(|switch| &mut switch.places);
            let place = key.as_ref().zip(places);
            let place = place.and_then(|(key, places)| places.get_mut(key));
            let entry = place.as_ref().and_then(|place| place.wanted.as_ref());
            let entry = entry.and_then(|name| self.wanted.get(name));
            match (place, entry, key) {
                (Some(place), Some(entry), Some(key)) => {
                    if is_as_sent(dpid, entry, &row, outbox) {
                        place.held = Some(Held::new(entry.clone(), None));
                        counts[0] += 1;
                    }
                    is_in_place.insert(key);
                }
                _ => {
                    counts[2] += 1;
                    outbox.send_flow_mod(dpid, delete_row(&row));
                }
            }
        }
        let switch = self.switches.entry(dpid).or_default();
        switch.is_compared = true;
        switch.has_onward = outbox.numbering(dpid) == Numbering::Onward;
        let mut ended = Vec::new();
        let mut missing = Vec::new();
        for (key, place) in &switch.places {
            let Some(name) = place.wanted.as_ref().filter(|_| place.held.is_none()) else {
                continue;
            };
            let is_lasting = self
                .wanted
                .get(name)
                .is_some_and(|entry| entry.is_lasting());
            // The entry has timed out, or the switch has restarted.
            let has_ended = is_known && place.was_held && !is_in_place.contains(key);
            match !is_lasting && has_ended {
                true => ended.push(key.clone()),
                false => missing.push((name.owner.clone(), key.clone())),
            }
        }
        counts[1] = missing.len();
        for (owner, key) in missing {
            let waiting = &mut self.owner(&owner, outbox.now).waiting;
            waiting.insert(dpid, Work::Set(key));
        }
        self.ask_for_parts(dpid, leads_to_parts, outbox);
        for key in ended {
            self.end(dpid, &key, outbox);
        }
        self.advance(outbox);
        self.read_later(outbox);
        counts
    }

    pub(super) fn read_later(&mut self, outbox: &mut Outbox) {
        let has_some = !self.wanted.is_empty() || !self.parts.is_empty();
        if self.read_at.is_none() && has_some {
            let at = outbox.now + READ_INTERVAL;
            self.read_at = Some(at);
            outbox.timer(at, Timer::Static);
        }
    }

    pub(super) fn handle_due(&mut self, now: Instant, outbox: &mut Outbox) {
        if self.read_at.is_some_and(|at| at <= now) {
            self.read_at = None;
            self.read(now, outbox);
            self.read_later(outbox);
        }
        self.advance(outbox);
    }

    /// Asks all switches for their static entries.
    fn read(&mut self, now: Instant, outbox: &mut Outbox) {
        let ours = FlowStatsRequest {
            cookie: EntryKind::Static.cookie(0),
            cookie_mask: Cookie(COOKIE_PREFIX_MASK.0 | 0xff00),
            ..FlowStatsRequest::all()
        };
        // 1.0 has no cookie in its request.
        let [ours, all] = [ours, FlowStatsRequest::all()].map(|rows| {
            let body = RequestBody::Flow(rows);
            Message::MultipartRequest(MultipartRequest { more: false, body })
        });
        for (dpid, switch) in &mut self.switches {
            let has_places = switch.is_compared && !switch.places.is_empty();
            if has_places && switch.asked_at.is_none() {
                let message = match outbox.version(*dpid) {
                    Some(Version::V10) => &all,
                    _ => &ours,
                };
                let asked = outbox.request(now, *dpid, Request::StaticRows, message);
                switch.asked_at = asked.map(|_| now);
                switch.emptied.clear();
            }
            switch.read_parts(*dpid, outbox);
        }
    }

    /// Records a switch's counters, and mends entries that somebody else has changed.
    pub(super) fn handle_rows(
        &mut self,
        dpid: DatapathId,
        bodies: Vec<ReplyBody>,
        outbox: &mut Outbox,
    ) {
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        let Some(asked_at) = switch.asked_at.take() else {
            return;
        };
        let rows = bodies.into_iter().flat_map(|body| match body {
            ReplyBody::Flow(rows) => rows,
            _ => Vec::new(),
        });
        let mut seen = BTreeMap::new();
        for row in rows.filter(is_static) {
            match key_of(&row) {
                Some(key) if switch.places.contains_key(&key) => drop(seen.insert(key, row)),
                Some(key) if switch.emptied.contains(&key) => {}
                _ => outbox.send_flow_mod(dpid, delete_row(&row)),
            }
        }
        let mut wrong = Vec::new();
        let mut ended = Vec::new();
        let mut again = Vec::new();
        for (key, place) in &mut switch.places {
            let Some(name) = &place.wanted else {
                continue;
            };
            if place
                .refused
                .as_ref()
                .is_some_and(|refused| refused.is_for_now)
            {
                place.refused = None;
                again.push((name.owner.clone(), key.clone()));
            }
            let is_older = |held: &&mut Held| held.sent_at.is_none_or(|at| at < asked_at);
            let Some(held) = place.held.as_mut().filter(is_older) else {
                continue;
            };
            // The wanted entry is still to be sent.
            if place.is_stale || !held.does_as(&place.last) {
                continue;
            }
            held.is_confirmed = true;
            match seen.remove(key) {
                Some(row) => {
                    held.counts = Some((row.packet_count, row.byte_count));
                    place.missed = 0;
                    if !place.takes(dpid, row, outbox) {
                        match may_mend(&mut switch.mending, outbox.now) {
                            true => {
                                place.is_stale = true;
                                wrong.push(key.clone());
                            }
                            // The entry has not been set again.
                            false => place.odd = None,
                        }
                    }
                }
                None if !place.last.is_lasting() => ended.push(key.clone()),
                None if place.missed >= MISSED_MAX => {
                    place.held = None;
                    place.refused = Some(Refusal {
                        why: "the switch takes it, and does not have it later".to_owned(),
                        is_for_now: false,
                    });
                }
                None if may_mend(&mut switch.mending, outbox.now) => {
                    place.missed += 1;
                    place.held = None;
                    wrong.push(key.clone());
                }
                None => held.is_confirmed = false,
            }
        }
        for (owner, key) in again {
            let waiting = &mut self.owner(&owner, outbox.now).waiting;
            waiting.insert(dpid, Work::Set(key));
        }
        for key in wrong {
            self.mend(dpid, &key, outbox);
        }
        for key in ended {
            self.end(dpid, &key, outbox);
        }
        self.advance(outbox);
    }
}
