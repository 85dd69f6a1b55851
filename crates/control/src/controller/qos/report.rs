//! Reports the state of the demands.

use std::collections::{BTreeMap, BTreeSet};

use clock::Instant;
use openflow::DatapathId;

use crate::qos::Qos;
use crate::qos::circuits::Hop;
use crate::qos::flow::{FlowKey, OPENS};
use crate::qos::plan::{Owner, circuit_of};
use crate::qos::verify::Effect;

use super::QosState;

/// The state of each demand, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QosReport {
    pub policies: BTreeMap<String, PolicyReport>,
    pub circuits: BTreeMap<String, CircuitReport>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyReport {
    pub state: Installation,
    /// When counters last showed that it takes effect.
    pub seen: Option<Instant>,
    /// Why it waits or has no effect, anywhere or at some switches.
    pub reasons: BTreeSet<String>,
    pub counts: BTreeMap<DatapathId, Count>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitReport {
    pub state: Installation,
    /// When counters last showed that it takes effect.
    pub seen: Option<Instant>,
    pub reasons: BTreeSet<String>,
    /// The hops from the sender on; empty without a route.
    pub hops: Vec<Hop>,
    /// Packets admitted from the sender, and packets of the answers.
    pub sent: Count,
    pub answered: Count,
}

/// The progress of a demand. Confirmations by switches do not prove that packets match its entries;
/// counters do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installation {
    /// No part of it can be set up yet.
    Waiting,
    Installing,
    /// Every switch concerned has confirmed it.
    Installed,
    /// Packets matched it, and everywhere received the treatment that it names.
    Active,
    /// Packets matched it, and somewhere did not receive the treatment that it names.
    NotInEffect,
}

/// A counter's last reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub packets: u64,
    pub bytes: u64,
}

#[derive(Default)]
struct Progress {
    planned: usize,
    missing: usize,
    counts: BTreeMap<DatapathId, Count>,
    sent: Count,
    answered: Count,
}

impl Count {
    fn add(&mut self, (packets, bytes): (u64, u64)) {
        self.packets = self.packets.saturating_add(packets);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl QosState {
    /// The demands.
    pub(in crate::controller) fn demands(&self) -> &Qos {
        self.asked.qos()
    }

    /// The owner of a switch's entry.
    pub(in crate::controller) fn owner(&self, dpid: DatapathId, key: &FlowKey) -> Option<&Owner> {
        let held = self.held.get(&dpid).and_then(|held| held.flows.get(key));
        let planned = || self.plan.switches.get(&dpid)?.flows.get(key);
        Some(&held.or_else(planned)?.owner)
    }

    /// Carries out [`crate::controller::Controller::qos_report`].
    pub(super) fn qos_report(&self) -> QosReport {
        let progress = self.qos_progress();
        let mut reasons: BTreeMap<&Owner, BTreeSet<String>> = BTreeMap::new();
        for (owner, why) in &self.plan.waiting {
            reasons.entry(owner).or_default().insert(why.clone());
        }
        for (owner, (why, _)) in &self.refused {
            reasons.entry(owner).or_default().insert(why.clone());
        }
        for owner in &self.stuck {
            let why = "a switch of it is away, or does not confirm".to_owned();
            reasons.entry(owner).or_default().insert(why);
        }
        let reasons = |owner: &Owner| reasons.get(owner).cloned().unwrap_or_default();
        let none = Progress::default();
        let mut report = QosReport::default();
        for policy in &self.asked.qos().policies {
            let owner = Owner::Policy(policy.name.clone());
            let progress = progress.get(&owner).unwrap_or(&none);
            let mut reasons = reasons(&owner);
            if progress.planned == 0 && reasons.is_empty() {
                reasons.insert("no switch that is there has a place for it".to_owned());
            }
            let (state, seen) = self.verified_state(progress.state(), &owner, &mut reasons);
            let policy_report = PolicyReport {
                state,
                seen,
                reasons,
                counts: progress.counts.clone(),
            };
            report.policies.insert(policy.name.clone(), policy_report);
        }
        for circuit in &self.asked.qos().circuits {
            let owner = Owner::Circuit(circuit.name.clone());
            let progress = progress.get(&owner).unwrap_or(&none);
            let mut reasons = reasons(&owner);
            let refusal = self.refusals.get(&circuit.name);
            reasons.extend(refusal.map(ToString::to_string));
            let route = self.circuits.route(&circuit.name);
            let (state, seen) = self.verified_state(progress.state(), &owner, &mut reasons);
            let circuit_report = CircuitReport {
                state,
                seen,
                reasons,
                hops: route.map_or(Vec::new(), |route| route.hops.clone()),
                sent: progress.sent,
                answered: progress.answered,
            };
            report.circuits.insert(circuit.name.clone(), circuit_report);
        }
        report
    }

    /// The state of an installed demand, from counters.
    fn verified_state(
        &self,
        state: Installation,
        owner: &Owner,
        reasons: &mut BTreeSet<String>,
    ) -> (Installation, Option<Instant>) {
        if state != Installation::Installed {
            return (state, None);
        }
        let (worst, doubts) = self.verified.doubts(owner);
        reasons.extend(doubts);
        let seen = self.verified.seen(owner);
        let state = match (worst, seen) {
            (Some(Effect::No), _) => Installation::NotInEffect,
            (Some(Effect::Partly), _) | (_, None) => Installation::Installed,
            // Counters cannot decide now, but once showed the effect.
            (_, Some(_)) => Installation::Active,
        };
        (state, seen)
    }

    fn qos_progress(&self) -> BTreeMap<Owner, Progress> {
        let mut progress: BTreeMap<Owner, Progress> = BTreeMap::new();
        for (dpid, switch) in &self.plan.switches {
            let state = self.switches.get(dpid);
            let sent: BTreeSet<&FlowKey> = state
                .into_iter()
                .flat_map(|state| state.sent.values())
                .filter_map(|sent| sent.change.key())
                .collect();
            let held = self.held.get(dpid);
            for (key, planned) in &switch.flows {
                let of = progress.entry(planned.owner.clone()).or_default();
                let there = held.and_then(|held| held.flows.get(key));
                let is_there = there.is_some_and(|there| there.is_as(planned));
                of.planned += 1;
                of.missing += usize::from(!is_there || sent.contains(key));
                let count = state.and_then(|state| state.counts.get(key)).copied();
                let count = count.filter(|_| is_there).unwrap_or_default();
                match planned.rank {
                    0 => of.counts.entry(*dpid).or_default().add(count),
                    OPENS => match circuit_of(self.asked.qos(), key) {
                        Some((_, true)) => of.answered.add(count),
                        _ => of.sent.add(count),
                    },
                    _ => {}
                }
            }
        }
        progress
    }
}

impl Progress {
    fn state(&self) -> Installation {
        match (self.planned, self.missing) {
            (0, _) => Installation::Waiting,
            (_, 0) => Installation::Installed,
            _ => Installation::Installing,
        }
    }
}
