//! The messages, and their order, that turn the entries that switches have into the wanted entries.
//!
//! At every moment a circuit exists completely or not at all: when a packet is let in, every switch
//! of a route is ready for it. So a change has stages, and each stage waits until the switches have
//! confirmed the stage before:
//!
//! | stage | what | why then |
//! | --- | --- | --- |
//! | [`Order::Base`] | the lowest entry of the policy table | no meter of ours exists without it |
//! | [`Order::Meters`] | meters, new or changed | entries name them |
//! | [`Order::Policies`] | entries of policies | no path leads there, or they change in place |
//! | [`Order::Add`] | new entries of circuits, the last switch first | the next hop exists |
//! | [`Order::Turn`] | changes of direction; last, entries that let packets in | the route exists |
//! | [`Order::Close`] | deletion of entries that let packets in | |
//! | [`Order::Clear`] | deletion of all others, the first switch first | no packet is under way |
//! | [`Order::Unmeter`] | deletion of meters | no entry names them |
//!
//! The order by switches matters because packets of ordinary paths between the same hosts match the
//! entries of a circuit where they come in by the same link.
//!
//! Nothing can be sent to a disconnected switch. Changes that depend on it wait, and the other
//! changes proceed.

use std::collections::{BTreeMap, BTreeSet};

use openflow::message::{FlowMod, MeterModCommand};
use openflow::{DatapathId, Message, MeterId, Version};

use super::Meter;
use super::flow::{Flow, FlowKey, OPENS};
use super::plan::{Owner, Planned, SwitchPlan};

type Switches = BTreeMap<DatapathId, SwitchPlan>;

/// The order of stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    Base,
    Meters,
    Policies,
    /// The number of switches before the last possible one.
    Add(u8),
    Turn(u8),
    Close,
    /// The number of switches after the first one.
    Clear(u8),
    Unmeter,
}

/// One message to one switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    AddMeter(MeterId, Meter),
    ModifyMeter(MeterId, Meter),
    DeleteMeter(MeterId),
    /// Sets an entry, new or in place of an entry with the same match.
    Set(FlowKey, Planned),
    Delete(FlowKey),
}

/// Changes that may be sent at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    pub order: Order,
    pub changes: Vec<(DatapathId, Change)>,
}

/// The difference between two states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// The stages, none of them empty.
    pub stages: Vec<Stage>,
    /// Owners whose change cannot be complete while switches are disconnected.
    pub stuck: BTreeSet<Owner>,
}

impl Diff {
    /// Compares the held state with the wanted state; the switches `away` are not connected. A
    /// switch that is only in `wanted` counts as empty.
    pub fn new(held: &Switches, wanted: &Switches, away: &BTreeSet<DatapathId>) -> Diff {
        let stuck = Stuck::find(held, wanted, away);
        let mut stages: BTreeMap<Order, Vec<(DatapathId, Change)>> = BTreeMap::new();
        let (nothing, switches) = (SwitchPlan::default(), held.keys().chain(wanted.keys()));
        let switches: BTreeSet<DatapathId> = switches.copied().collect();
        for dpid in switches.difference(away) {
            let held = held.get(dpid).unwrap_or(&nothing);
            let wanted = wanted.get(dpid).unwrap_or(&nothing);
            for (order, change) in changes(held, wanted, &stuck) {
                stages.entry(order).or_default().push((*dpid, change));
            }
        }
        let stages = stages.into_iter();
        let stages = stages.map(|(order, changes)| Stage { order, changes });
        Diff {
            stages: stages.collect(),
            stuck: stuck.unset,
        }
    }

    /// The number of messages, without barriers.
    pub fn len(&self) -> usize {
        self.stages.iter().map(|stage| stage.changes.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }
}

impl Order {
    /// Whether packets may still be on their way to deleted entries.
    pub fn drains(self) -> bool {
        matches!(self, Order::Clear(rank) if rank > 0)
    }
}

impl Change {
    pub fn to_message(&self, version: Version, generation: u16) -> Message {
        match self {
            Change::AddMeter(id, meter) => {
                Message::MeterMod(meter.to_mod(*id, MeterModCommand::Add))
            }
            Change::ModifyMeter(id, meter) => {
                Message::MeterMod(meter.to_mod(*id, MeterModCommand::Modify))
            }
            Change::DeleteMeter(id) => Message::MeterMod(Meter::to_delete(*id)),
            Change::Set(key, planned) => {
                let flow = Flow {
                    key: key.clone(),
                    does: planned.does,
                    rank: planned.rank,
                };
                Message::FlowMod(flow.to_add(version, generation))
            }
            Change::Delete(key) => Message::FlowMod(FlowMod {
                cookie_mask: match version {
                    Version::V10 => openflow::Cookie(0),
                    _ => crate::entry::COOKIE_PREFIX_MASK,
                },
                ..key.to_delete()
            }),
        }
    }
}

impl SwitchPlan {
    /// Applies a change to the state of a switch.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::AddMeter(id, meter) | Change::ModifyMeter(id, meter) => {
                self.meters.insert(*id, *meter);
            }
            Change::DeleteMeter(id) => {
                self.meters.remove(id);
            }
            Change::Set(key, planned) => {
                self.flows.insert(key.clone(), planned.clone());
            }
            Change::Delete(key) => {
                self.flows.remove(key);
            }
        }
    }
}

/// The owners that depend on a disconnected switch.
struct Stuck {
    /// Owners with a part of the new route that cannot be set: the old route stays whole.
    unset: BTreeSet<Owner>,
    /// Owners whose entry that lets packets in cannot be deleted: the entries behind it stay.
    unclosed: BTreeSet<Owner>,
    is_anybody_away: bool,
}

impl Stuck {
    fn find(held: &Switches, wanted: &Switches, away: &BTreeSet<DatapathId>) -> Stuck {
        let mut stuck = Stuck {
            unset: BTreeSet::new(),
            unclosed: BTreeSet::new(),
            is_anybody_away: !away.is_empty(),
        };
        let flow = |switches: &Switches, dpid: &DatapathId, key: &FlowKey| {
            switches.get(dpid)?.flows.get(key).cloned()
        };
        for dpid in away {
            for (key, planned) in wanted.get(dpid).into_iter().flat_map(|s| &s.flows) {
                let is_there = flow(held, dpid, key).is_some_and(|held| held.is_as(planned));
                if !is_there && planned.rank > 0 {
                    stuck.unset.insert(planned.owner.clone());
                }
            }
            for (key, planned) in held.get(dpid).into_iter().flat_map(|s| &s.flows) {
                let stays = flow(wanted, dpid, key).is_some_and(|wanted| wanted.is_as(planned));
                if planned.rank == OPENS && !stays {
                    stuck.unclosed.insert(planned.owner.clone());
                }
            }
        }
        stuck
    }

    /// Whether entries that packets of the old route match may be set.
    fn may_turn(&self, owner: &Owner) -> bool {
        !self.unset.contains(owner)
    }

    fn may_clear(&self, owner: &Owner) -> bool {
        let is_unknown = *owner == Owner::Nobody && self.is_anybody_away;
        !is_unknown && !self.unset.contains(owner) && !self.unclosed.contains(owner)
    }
}

fn changes(held: &SwitchPlan, wanted: &SwitchPlan, stuck: &Stuck) -> Vec<(Order, Change)> {
    let mut changes = Vec::new();
    for (id, meter) in &wanted.meters {
        let change = match held.meters.get(id) {
            Some(held) if held == meter => continue,
            Some(_) => Change::ModifyMeter(*id, *meter),
            None => Change::AddMeter(*id, *meter),
        };
        changes.push((Order::Meters, change));
    }
    for (key, planned) in &wanted.flows {
        let old = held.flows.get(key);
        if old.is_some_and(|old| old.is_as(planned)) {
            continue;
        }
        let order = match (planned.rank, old) {
            (0, _) if *key == Flow::policy_miss().key => Order::Base,
            (0, _) => Order::Policies,
            (OPENS, _) | (_, Some(_)) => Order::Turn(u8::MAX - planned.rank),
            (_, None) => Order::Add(u8::MAX - planned.rank),
        };
        if !matches!(order, Order::Turn(_)) || stuck.may_turn(&planned.owner) {
            changes.push((order, Change::Set(key.clone(), planned.clone())));
        }
    }
    for (key, planned) in &held.flows {
        // The lowest entry of the policy table adds nothing, and unrecorded entries may continue to
        // it.
        if wanted.flows.contains_key(key) || *key == Flow::policy_miss().key {
            continue;
        }
        let (order, may) = match planned.rank {
            0 => (Order::Clear(0), true),
            OPENS => (Order::Close, stuck.may_turn(&planned.owner)),
            rank => (Order::Clear(rank), stuck.may_clear(&planned.owner)),
        };
        if may {
            changes.push((order, Change::Delete(key.clone())));
        }
    }
    let gone = held
        .meters
        .keys()
        .filter(|id| !wanted.meters.contains_key(*id));
    changes.extend(gone.map(|id| (Order::Unmeter, Change::DeleteMeter(*id))));
    changes
}

#[cfg(test)]
mod tests;
