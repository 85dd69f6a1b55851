//! Numbers of groups and meters of a switch: the wanted group or meter, and the switch's report of
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clock::Instant;
use openflow::message::{GroupMod, GroupModCommand, MeterFlags, MeterMod, MeterModCommand};
use openflow::multipart::ReplyBody;
use openflow::{Action, DatapathId, Instruction, Message, Xid, decode, encode};

use crate::flows::parts::{PartId, PartKind, PartMod, PartName, StaticPart};

use super::super::outbox::Outbox;
use super::{MISSED_MAX, Refusal};

/// Consecutive attempts to add a group or meter that the switch says exists, or to modify one that
/// it says does not.
pub(super) const TURNS_MAX: u8 = 3;

/// The reading of a switch's groups and meters.
#[derive(Default)]
pub(super) struct PartsRead {
    /// When the readings under way were requested.
    pub(super) asked_at: BTreeMap<PartKind, Instant>,
    /// Groups and meters deleted since then.
    pub(super) emptied: BTreeSet<PartId>,
    /// Whether the groups and meters of the switch when it connected are known, as far as it
    /// reports them.
    pub(super) is_compared: bool,
}

impl PartsRead {
    pub(super) fn note_asked(&mut self, kind: PartKind, now: Instant) {
        self.asked_at.insert(kind, now);
    }
}

/// A number of a switch's groups or meters.
pub(super) struct PartPlace {
    pub(super) wanted: Option<PartName>,
    pub(super) owner: String,
    /// The last group or meter that should have been here.
    pub(super) last: Arc<StaticPart>,
    pub(super) held: Option<HeldPart>,
    /// Whether it was deleted, and the switch has not yet confirmed the deletion.
    pub(super) is_going: bool,
    pub(super) is_stale: bool,
    /// The form in which the switch reports it, if it differs from ours; and a form reported only
    /// once so far.
    pub(super) form: Option<PartMod>,
    pub(super) odd: Option<PartMod>,
    pub(super) refused: Option<Refusal>,
    /// Whether it was here when the connection ended, or an earlier process may have set it.
    pub(super) was_held: bool,
    pub(super) missed: u8,
    pub(super) turns: u8,
}

pub(super) struct HeldPart {
    pub(super) part: Arc<StaticPart>,
    pub(super) xid: Option<Xid>,
    pub(super) sent_at: Option<Instant>,
    pub(super) is_confirmed: bool,
}

impl PartPlace {
    pub(super) fn new(owner: &str, last: Arc<StaticPart>) -> PartPlace {
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

    /// The numbers kept when a connection has ended: the wanted ones, and those still to be
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

    /// Whether a report equals the message sent to the switch, or is the switch's own form of it: a
    /// form reported twice, the second time after it was set again.
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

/// The form in which a switch reports a group or meter sent to it.
fn reported(dpid: DatapathId, part: &StaticPart, outbox: &Outbox) -> Option<PartMod> {
    let mut message = part.to_add();
    outbox.lead(dpid, &mut message);
    let frame = encode(outbox.version(dpid)?, Xid(0), &message).ok()?;
    match decode(&frame).ok()? {
        Message::GroupMod(group) => Some(PartMod::Group(group)),
        Message::MeterMod(meter) => Some(PartMod::Meter(without_idle_burst(meter))),
        _ => None,
    }
}

/// Open vSwitch reports a burst size of its own for a meter that states none.
fn without_idle_burst(mut meter: MeterMod) -> MeterMod {
    if !meter.flags.contains(MeterFlags::BURST) {
        meter.bands.iter_mut().for_each(|band| band.burst_size = 0);
    }
    meter
}

/// The groups or meters of a report.
pub(super) fn found_in(bodies: Vec<ReplyBody>) -> BTreeMap<PartId, PartMod> {
    let mut found = BTreeMap::new();
    for body in bodies {
        match body {
            ReplyBody::GroupDesc(groups) => found.extend(groups.into_iter().map(|group| {
                let of = GroupMod::new(
                    GroupModCommand::Add,
                    group.group_type,
                    group.group_id,
                    group.buckets,
                );
                (PartId::Group(group.group_id), PartMod::Group(of))
            })),
            ReplyBody::MeterConfig(meters) => found.extend(meters.into_iter().map(|meter| {
                let of = MeterMod {
                    command: MeterModCommand::Add,
                    flags: meter.flags,
                    meter_id: meter.meter_id,
                    bands: meter.bands,
                };
                let of = without_idle_burst(of);
                (PartId::Meter(meter.meter_id), PartMod::Meter(of))
            })),
            _ => {}
        }
    }
    found
}

/// Whether instructions use a group or a meter.
pub(super) fn are_led_to(instructions: &[Instruction]) -> bool {
    instructions.iter().any(|instruction| match instruction {
        Instruction::Meter(_) => true,
        Instruction::ApplyActions(actions) => actions
            .iter()
            .any(|action| matches!(action, Action::Group(_) | Action::Meter(_))),
        _ => false,
    })
}

impl PartPlace {
    /// Compares the switch's report of this number. Returns whether the group or meter must be set.
    pub(super) fn read(
        &mut self,
        dpid: DatapathId,
        found: Option<PartMod>,
        (asked_at, may_mend): (Instant, &mut dyn FnMut() -> bool),
        outbox: &Outbox,
    ) -> bool {
        if self.wanted.is_none() {
            // A number that the switch no longer reports need not be deleted.
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
