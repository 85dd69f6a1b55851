//! Finds the policies and circuits that have been seen to take effect ([`crate::qos::verify`]).
//!
//! The controller judges a switch when its counters have been read, and again when late counters
//! have arrived. An effect counts as seen until the demand changes, or until counters show the
//! opposite.

use std::collections::{BTreeMap, BTreeSet};

use clock::Instant;
use openflow::{DatapathId, PortNo};

use crate::qos::QueuesBy;
use crate::qos::circuits::Hop;
use crate::qos::flow::FlowKey;
use crate::qos::plan::{Owner, Planned, SwitchPlan};
use crate::qos::verify::{Beside, Claim, Effect, KEPT_LATE, Readings, Verdict, Wants, Watch};

use super::super::Timer;
use super::{Around, QosState, View};

#[derive(Default)]
pub(super) struct Verified {
    watches: BTreeMap<DatapathId, Watch>,
    /// The verdicts of the last judgement, for entries that have counted packets.
    verdicts: BTreeMap<Owner, BTreeMap<DatapathId, Vec<Verdict>>>,
    /// When each demand was last seen to take effect.
    seen: BTreeMap<Owner, Instant>,
}

/// The verdicts on policies and circuits, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    pub policies: BTreeMap<String, Vec<HopVerdict>>,
    /// The verdicts of each hop: the forward route first, from the sender on.
    pub circuits: BTreeMap<String, Vec<HopVerdict>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopVerdict {
    pub dpid: DatapathId,
    pub verdict: Verdict,
}

impl Verified {
    /// Forgets the effect of demands that are set up differently now.
    pub(super) fn forget_changed(
        &mut self,
        before: &BTreeMap<DatapathId, SwitchPlan>,
        now: &BTreeMap<DatapathId, SwitchPlan>,
    ) {
        let none = SwitchPlan::default();
        let dpids: BTreeSet<&DatapathId> = before.keys().chain(now.keys()).collect();
        for dpid in dpids {
            let before = before.get(dpid).unwrap_or(&none);
            let now = now.get(dpid).unwrap_or(&none);
            if before == now {
                continue;
            }
            let all_change = (&before.ports, &before.meters) != (&now.ports, &now.meters);
            let other = |(key, planned): &(&FlowKey, &Planned), there: &SwitchPlan| {
                all_change || there.flows.get(*key) != Some(planned)
            };
            let gone = before.flows.iter().filter(|flow| other(flow, now));
            let come = now.flows.iter().filter(|flow| other(flow, before));
            for (_, planned) in gone.chain(come) {
                self.seen.remove(&planned.owner);
                self.verdicts.remove(&planned.owner);
            }
        }
    }

    /// Forgets the effect of a demand that is set up differently now.
    pub(super) fn forget(&mut self, owner: &Owner) {
        self.seen.remove(owner);
        self.verdicts.remove(owner);
    }

    pub(super) fn seen(&self, owner: &Owner) -> Option<Instant> {
        self.seen.get(owner).copied()
    }

    /// The worst evidence that a demand does not take effect, and all such evidence by place.
    pub(super) fn doubts(&self, owner: &Owner) -> (Option<Effect>, BTreeSet<String>) {
        let verdicts = self.verdicts.get(owner).into_iter().flatten();
        let verdicts = verdicts.flat_map(|(dpid, of)| of.iter().map(move |v| (dpid, v)));
        let doubtful: Vec<_> = verdicts.filter(|(_, v)| v.effect > Effect::Yes).collect();
        let worst = doubtful.iter().map(|(_, verdict)| verdict.effect).max();
        let reasons = doubtful.iter().map(|(dpid, verdict)| {
            let why = verdict.why.as_deref().unwrap_or_default();
            format!("{}: {why}", verdict.claim.place(**dpid))
        });
        (worst, reasons.collect())
    }

    /// Whether every entry that has counted packets shows the effect; for a circuit, at every hop
    /// of a route.
    fn is_verified(&self, owner: &Owner, hops: Option<usize>) -> bool {
        let Some(verdicts) = self.verdicts.get(owner) else {
            return false;
        };
        let all = || verdicts.values().flatten();
        let is_all_yes = all().next().is_some() && all().all(|v| v.effect == Effect::Yes);
        let whole = |is_back: bool| {
            let is_its = |verdicts: &&Vec<Verdict>| {
                verdicts
                    .iter()
                    .any(|verdict| verdict.claim.is_back == is_back)
            };
            hops.is_none_or(|hops| verdicts.values().filter(is_its).count() == hops)
        };
        is_all_yes && (whole(false) || whole(true))
    }
}

impl QosState {
    /// Carries out [`crate::controller::Controller::set_queue_counts`].
    pub(super) fn set_queue_counts(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        ports: BTreeMap<PortNo, Beside>,
    ) {
        let watch = self.verified.watches.entry(dpid).or_default();
        watch.note_beside(now, ports);
    }

    /// Carries out [`crate::controller::Controller::verify_report`].
    pub(super) fn verify_report(&self, now: Instant, from: Instant) -> VerifyReport {
        let mut report = VerifyReport::default();
        let asked = self.asked.qos();
        let policies = asked.policies.iter().map(|policy| policy.name.clone());
        report.policies = policies.map(|name| (name, Vec::new())).collect();
        let circuits = asked.circuits.iter().map(|circuit| circuit.name.clone());
        report.circuits = circuits.map(|name| (name, Vec::new())).collect();
        for (dpid, watch) in &self.verified.watches {
            for verdict in watch.judge(now, from, self.queues_by(*dpid)) {
                let hops = match &verdict.claim.owner {
                    Owner::Policy(name) => report.policies.get_mut(name),
                    Owner::Circuit(name) => report.circuits.get_mut(name),
                    Owner::Nobody => None,
                };
                let dpid = *dpid;
                hops.into_iter().for_each(|hops| {
                    hops.push(HopVerdict {
                        dpid,
                        verdict: verdict.clone(),
                    })
                });
            }
        }
        for (name, hops) in &mut report.circuits {
            let Some(route) = self.circuits.route(name) else {
                continue;
            };
            hops.sort_by_key(|hop| {
                let place = route.hops.iter().position(|of| of.dpid == hop.dpid);
                let place = place.unwrap_or(usize::MAX);
                let is_back = hop.verdict.claim.is_back;
                (is_back, if is_back { usize::MAX - place } else { place })
            });
        }
        report
    }

    /// Notes that a switch's counters have restarted: earlier readings belong to the former
    /// counters.
    pub(super) fn qos_counts_restart(&mut self, dpid: DatapathId) {
        if let Some(watch) = self.verified.watches.get_mut(&dpid) {
            watch.restart();
        }
        if let Some(switch) = self.switches.get_mut(&dpid) {
            switch.reading = None;
        }
    }

    /// Notes that all counters of a switch have been read.
    pub(super) fn note_qos_counts(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
        told: Option<Readings>,
    ) {
        let claims = self.claims(around.view, dpid);
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return;
        };
        let due = now + KEPT_LATE;
        switch.judge_at = Some(due);
        let has_begun_again = std::mem::take(&mut switch.has_begun_again);
        let watch = self.verified.watches.entry(dpid).or_default();
        if has_begun_again {
            watch.restart();
        }
        watch.note_entries(now, claims);
        told.into_iter().for_each(|told| watch.note_told(now, told));
        around.outbox.timer(due, Timer::Qos);
        self.judge(now, dpid);
    }

    pub(super) fn qos_judge_due(&mut self, now: Instant) {
        let mut due = Vec::new();
        for (dpid, switch) in &mut self.switches {
            if switch.judge_at.is_some_and(|at| at <= now) {
                switch.judge_at = None;
                due.push(*dpid);
            }
        }
        due.into_iter().for_each(|dpid| self.judge(now, dpid));
    }

    fn judge(&mut self, now: Instant, dpid: DatapathId) {
        let by = self.queues_by(dpid);
        let verified = &mut self.verified;
        let Some(watch) = verified.watches.get(&dpid) else {
            return;
        };
        for verdicts in verified.verdicts.values_mut() {
            verdicts.remove(&dpid);
        }
        let mut owners = BTreeSet::new();
        let all = watch.judge(now, Instant::START, by).into_iter();
        for verdict in all.filter(|verdict| verdict.counted > 0) {
            let owner = verdict.claim.owner.clone();
            let of = verified.verdicts.entry(owner.clone()).or_default();
            of.entry(dpid).or_default().push(verdict);
            owners.insert(owner);
        }
        verified.verdicts.retain(|_, of| !of.is_empty());
        for owner in owners {
            let hops = match &owner {
                Owner::Circuit(name) => {
                    let route = self.circuits.route(name);
                    Some(route.map_or(usize::MAX, |route| route.hops.len()))
                }
                _ => None,
            };
            if verified.is_verified(&owner, hops) {
                verified.seen.insert(owner, now);
            }
        }
    }

    fn queues_by(&self, dpid: DatapathId) -> QueuesBy {
        let queues = self.queues.get(&dpid);
        queues.map_or(QueuesBy::Nobody, |queues| queues.by)
    }

    /// The counts of a switch's entries, by the treatment of their packets.
    fn claims(&self, view: View<'_>, dpid: DatapathId) -> BTreeMap<Claim, u64> {
        let mut claims: BTreeMap<Claim, u64> = BTreeMap::new();
        let plan = self.plan.switches.get(&dpid);
        let state = self.switches.get(&dpid);
        let (Some(plan), Some(state)) = (plan, state) else {
            return claims;
        };
        let held = self.held.get(&dpid);
        let ports = view.net.switch(dpid).map(|switch| switch.ports.keys());
        let ports = ports
            .into_iter()
            .flatten()
            .filter(|port| **port != PortNo::LOCAL);
        let ports: BTreeSet<PortNo> = ports.copied().collect();
        let asking = self.asking_for_queues();
        let by_nobody = self.queues_by(dpid) == QueuesBy::Nobody;
        for (key, planned) in &plan.flows {
            let hop = match &planned.owner {
                Owner::Nobody => continue,
                Owner::Policy(_) => None,
                Owner::Circuit(name) => {
                    let route = self.circuits.route(name);
                    route.and_then(|route| route.hops.iter().find(|hop| hop.dpid == dpid))
                }
            };
            let is_back = |hop: &Hop| key.matching.in_port() != Some(hop.in_port);
            let is_circuit = matches!(planned.owner, Owner::Circuit(_));
            let wants = Wants {
                queues: &plan.ports,
                ports: &ports,
                is_back: hop.is_some_and(is_back),
                queue: asking.contains(&planned.owner) && (is_circuit || by_nobody),
            };
            let there = held.and_then(|held| held.flows.get(key));
            let is_there = there.is_some_and(|there| there.is_as(planned));
            let count = state.counts.get(key).filter(|_| is_there);
            let of = claims.entry(Claim::of(key, planned, &wants)).or_default();
            *of = of.saturating_add(count.map_or(0, |(packets, _)| *packets));
        }
        claims
    }

    /// The owners that name a queue, or reserve room that needs one.
    fn asking_for_queues(&self) -> BTreeSet<Owner> {
        let asked = self.asked.qos();
        let policies = asked
            .policies
            .iter()
            .filter(|p| p.treatment.queue.is_some());
        let policies = policies.map(|policy| Owner::Policy(policy.name.clone()));
        let circuits = asked.circuits.iter();
        let circuits = circuits.filter(|c| c.queue.is_some() || c.rate.is_some());
        let circuits = circuits.map(|circuit| Owner::Circuit(circuit.name.clone()));
        policies.chain(circuits).collect()
    }
}

#[cfg(test)]
mod tests {
    use clock::Duration;

    use super::*;

    fn verdict(owner: &Owner, is_back: bool, effect: Effect) -> Verdict {
        Verdict {
            claim: Claim {
                owner: owner.clone(),
                is_back,
                port: Some(PortNo(1)),
                queues: BTreeSet::new(),
                is_by_mark: false,
                lacks_queue: false,
                is_open: false,
                meter: None,
                mark: None,
                drops: false,
            },
            counted: 100,
            queue: None,
            meter: None,
            mark: None,
            effect,
            why: None,
            window: Duration::from_secs(10),
        }
    }

    /// Packets that were let in and did not reach the next hop prove nothing.
    #[test]
    fn a_circuit_is_seen_when_every_hop_of_one_way_is_and_a_policy_where_it_is_met() {
        let owner = Owner::Circuit("c".to_owned());
        let found = |hops: &[(u64, bool, Effect)]| {
            let mut verified = Verified::default();
            for (dpid, is_back, effect) in hops {
                let of = verified.verdicts.entry(owner.clone()).or_default();
                let of = of.entry(DatapathId(*dpid)).or_default();
                of.push(verdict(&owner, *is_back, *effect));
            }
            let both = [Some(2), None];
            both.map(|hops| verified.is_verified(&owner, hops))
        };
        use Effect::{Partly, Unknown, Yes};
        assert_eq!(found(&[]), [false, false]);
        assert_eq!(found(&[(1, false, Yes)]), [false, true]);
        assert_eq!(found(&[(1, false, Yes), (2, false, Yes)]), [true, true]);
        assert_eq!(found(&[(1, true, Yes), (2, true, Yes)]), [true, true]);
        assert_eq!(found(&[(1, false, Yes), (2, true, Yes)]), [false, true]);
        for doubt in [Unknown, Partly] {
            let hops = [(1, false, Yes), (2, false, Yes), (2, true, doubt)];
            assert_eq!(found(&hops), [false, false], "{doubt:?}");
        }
    }
}
