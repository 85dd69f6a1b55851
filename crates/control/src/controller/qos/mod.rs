//! QoS on the present switches: plans the demands on the present network, compares the plan with
//! the entries of the switches, and sends the difference ([`crate::qos::diff`]).
//!
//! Every change (of a demand, a link, a host, a reconnected switch) leads to a new plan and a new
//! difference. Changes under way are abandoned where they stand: sent messages count as held, and
//! no packet enters a route before every switch has confirmed its entries. So the only state is the
//! present entries of the switches, without their history.
//!
//! Without QoS none of these messages is sent, and paths are as usual. Where a switch has policies,
//! its paths continue to the policy table ([`crate::qos`]).

mod api;
mod counts;
mod read;
mod report;
mod run;
mod verify;

use std::collections::{BTreeMap, BTreeSet};

use clock::{Duration, Instant};
use openflow::{DatapathId, MeterId, PortNo, Version, Xid};

use crate::entry::EntryKey;
use crate::qos::asked::{Asked, Edit, Scope};
use crate::qos::check::{Problem, ProblemKind};
use crate::qos::circuits::{Circuits, Outcome, Refusal};
use crate::qos::diff::{Change, Diff, Order};
use crate::qos::flow::FlowKey;
use crate::qos::plan::{Former, Owner, Plan, Planned, PortPlan, SwitchPlan, Touched};
use crate::qos::{Circuit, MeterFacts, Network, On, Policy, Qos, QueuesBy, Rate, SwitchFacts};
use crate::timeouts::HostName;

use super::hosts::Hosts;
use super::links::Links;
use super::network::{self, ADOPTED_KEPT};
use super::outbox::Outbox;
use super::tables::Tables;
use super::{Location, Timer};
use counts::Reading;
pub(super) use read::QosRows;
pub use report::{CircuitReport, Count, Installation, PolicyReport, QosReport};
use run::Run;
use verify::Verified;
pub use verify::{HopVerdict, VerifyReport};

/// Time to gather changes for one plan.
const GATHER: Duration = Duration::from_millis(5);

/// Time before refused messages are tried again.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// Time for a switch's database to connect as well, where queues are wanted.
const QUEUES_WAIT: Duration = Duration::from_secs(5);

/// Time for discovery at a new switch before routes lead through it.
const SETTLE: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(super) struct QosState {
    /// How long a new port is held, so that discovery runs first.
    port_hold: Duration,
    asked: Asked,
    /// The former form of policies that changed since the last plan.
    formers: BTreeMap<String, Former>,
    /// Whether anything other than policies has changed.
    is_other: bool,
    /// The network of the last plan.
    network: Network,
    /// Whether all policies must be planned again.
    plans_all: bool,
    unsettled: Unsettled,
    work: QosWork,
    /// Hosts that policies name, and their places in the last plan.
    named: BTreeMap<HostName, Option<Location>>,
    /// Places from existing entries, of hosts that have sent nothing since this process started.
    adopted: BTreeMap<HostName, Location>,
    queues: BTreeMap<DatapathId, Queues>,
    switches: BTreeMap<DatapathId, SwitchQos>,
    /// The entries sent to each switch that it has not refused.
    held: BTreeMap<DatapathId, SwitchPlan>,
    circuits: Circuits,
    refusals: BTreeMap<String, Refusal>,
    /// Circuits that have had a route since this process started.
    routed: BTreeSet<String>,
    plan: Plan,
    /// The reasons of refusals by switches, and the end of the pause before another try.
    refused: BTreeMap<Owner, (String, Instant)>,
    /// The owners that wait for an unavailable switch.
    stuck: BTreeSet<Owner>,
    run: Run,
    plan_at: Option<Instant>,
    again_at: Option<Instant>,
    counts_at: Option<Instant>,
    verified: Verified,
}

/// The state that QoS reads.
#[derive(Clone, Copy)]
struct View<'a> {
    net: &'a network::Network,
    hosts: &'a Hosts,
}

/// The surroundings of QoS: the state that it reads, the entries of paths that it sends again, and
/// its outputs.
pub(in crate::controller) struct Around<'a> {
    view: View<'a>,
    tables: &'a mut Tables,
    outbox: &'a mut Outbox,
}

/// The places where held and planned entries may differ.
#[derive(Default)]
struct Unsettled {
    /// Whether they may differ anywhere.
    all: bool,
    flows: BTreeSet<(DatapathId, FlowKey)>,
    meters: BTreeSet<(DatapathId, MeterId)>,
}

/// The work that changes have caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QosWork {
    /// Policies checked, and pairs of matches compared for these checks.
    pub judged: u64,
    pub compared: u64,
    /// Policies that were planned.
    pub planned: u64,
    /// Entries compared with the entries of the switches.
    pub looked_at: u64,
}

/// How a switch's queues are made, and the rates of its ports.
struct Queues {
    by: QueuesBy,
    rates: BTreeMap<PortNo, Rate>,
}

#[derive(Default)]
struct SwitchQos {
    table_count: u8,
    /// The meters that the switch has reported; it may have none.
    meters: Option<Option<MeterFacts>>,
    /// Whether its entries, and its meters, were read since it connected.
    has_entries: bool,
    has_meters: bool,
    meters_asked: bool,
    /// When discovery has had its chance.
    ready_at: Instant,
    /// Whether it is part of the network: connected, or in its grace.
    is_known: bool,
    /// Whether it has been planned for since it connected.
    is_told: bool,
    /// Whether its paths continue to the policy table.
    leads_on: bool,
    /// Whether none of its entries continues to the policy table, by the last reading.
    is_plain: bool,
    /// Whether it has refused the entry that its paths need there.
    cannot_lead: bool,
    sent: BTreeMap<Xid, Sent>,
    /// When the barrier under way was sent.
    waiting_since: Option<Instant>,
    /// Entries of paths that must be sent again in another form.
    resend: BTreeSet<EntryKey>,
    /// Whether some of the entries sent again are not confirmed.
    is_resending: bool,
    /// Packets and bytes of each entry.
    counts: BTreeMap<FlowKey, (u64, u64)>,
    /// Whether some counters have restarted since the last judgement.
    has_begun_again: bool,
    /// The reading under way.
    reading: Option<Reading>,
    read_at: Option<Instant>,
    /// When to judge the last reading.
    judge_at: Option<Instant>,
}

/// A message to a switch that it has not confirmed.
struct Sent {
    change: Change,
    /// The entry that was held before.
    before: Option<Planned>,
}

impl Sent {
    /// Restores the last certain state.
    fn undo(&self, held: &mut SwitchPlan) {
        let Some(key) = self.change.key() else {
            return;
        };
        match &self.before {
            Some(before) => drop(held.flows.insert(key.clone(), before.clone())),
            None => drop(held.flows.remove(key)),
        }
    }
}

impl QosState {
    pub(super) fn set_port_hold(&mut self, port_hold: Duration) {
        self.port_hold = port_hold;
    }

    pub(super) fn new(port_hold: Duration) -> QosState {
        QosState {
            port_hold,
            ..QosState::default()
        }
    }

    /// Whether there are any demands.
    pub(super) fn is_used(&self) -> bool {
        let is_something = |held: &SwitchPlan| *held != SwitchPlan::default();
        *self.asked.qos() != Qos::default() || self.held.values().any(is_something)
    }

    pub(super) fn wants_policies(&self) -> bool {
        !self.asked.qos().policies.is_empty()
    }

    pub(super) fn is_named(&self, name: HostName) -> bool {
        self.named.contains_key(&name)
    }

    fn names(&self, names: impl IntoIterator<Item = HostName>, at: Location) -> bool {
        let elsewhere = |name| {
            self.named
                .get(&name)
                .is_some_and(|known| *known != Some(at))
        };
        !self.named.is_empty() && names.into_iter().any(elsewhere)
    }

    pub(super) fn leads_on(&self, dpid: DatapathId) -> bool {
        self.switches
            .get(&dpid)
            .is_some_and(|switch| switch.leads_on)
    }

    fn is_in_time(&self, dpid: DatapathId, now: Instant) -> bool {
        let switch = self.switches.get(&dpid);
        let since = switch.and_then(|switch| switch.waiting_since);
        since.is_none_or(|since| now.since(since) < run::BARRIER_WAIT)
    }
}

impl Unsettled {
    fn part_of(
        &self,
        switches: &BTreeMap<DatapathId, SwitchPlan>,
    ) -> BTreeMap<DatapathId, SwitchPlan> {
        let mut part: BTreeMap<DatapathId, SwitchPlan> = BTreeMap::new();
        for (dpid, key) in &self.flows {
            let switch = switches.get(dpid);
            if let Some(planned) = switch.and_then(|switch| switch.flows.get(key)) {
                let of = part.entry(*dpid).or_default();
                of.flows.insert(key.clone(), planned.clone());
            }
        }
        for (dpid, id) in &self.meters {
            let switch = switches.get(dpid);
            if let Some(meter) = switch.and_then(|switch| switch.meters.get(id)) {
                part.entry(*dpid).or_default().meters.insert(*id, *meter);
            }
        }
        part
    }
}

impl QosState {
    /// Carries out [`crate::controller::Controller::set_qos`].
    fn set_qos(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        qos: Qos,
    ) -> Result<(), Vec<Problem>> {
        let problems = qos.check(&self.qos_network(around.view));
        if !problems.is_empty() {
            return Err(problems);
        }
        self.take_qos(around, now, qos);
        Ok(())
    }

    fn take_qos(&mut self, around: &mut Around<'_>, now: Instant, qos: Qos) {
        if qos == *self.asked.qos() {
            return;
        }
        let is_asked = |name: &String| qos.circuits.iter().any(|circuit| circuit.name == *name);
        self.routed.retain(is_asked);
        let policies = qos.policies.len() as u64;
        self.work.judged += policies;
        let asked = std::mem::replace(&mut self.asked, Asked::new(qos));
        around.outbox.set_qos_used(self.is_used());
        let (old, new) = (asked.qos(), self.asked.qos());
        let is_same = (&old.policies, &old.services, &old.ports)
            == (&new.policies, &new.services, &new.ports);
        self.plans_all |= !is_same;
        let named = self.asked.ends().keys();
        self.named = named.map(|name| (*name, None)).collect();
        self.refused.clear();
        for switch in self.switches.values_mut() {
            switch.cannot_lead = false;
        }
        self.ask_all_meters(around, now);
        self.qos_soon(around, now);
        self.qos_counts_later(around, now);
    }

    /// Carries out [`crate::controller::Controller::edit_qos`].
    fn edit_qos(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        edits: Vec<Edit>,
    ) -> Result<(), Vec<Problem>> {
        let was_used = self.is_used();
        let mut scope = Scope::default();
        let mut undos = Vec::new();
        for edit in edits {
            let about = self.asked.scope(&edit);
            for name in &about.policies {
                if !self.formers.contains_key(name) {
                    let former = self.asked.former(name);
                    self.formers.insert(name.clone(), former);
                }
            }
            scope.services.extend(about.services);
            scope.policies.extend(about.policies);
            undos.extend(self.asked.apply(edit));
        }
        around.outbox.set_qos_used(self.is_used());
        if undos.is_empty() {
            return Ok(());
        }
        let problems = self.check_edits(around, &scope);
        if !problems.is_empty() {
            for undo in undos.into_iter().rev() {
                self.asked.undo(undo);
            }
            around.outbox.set_qos_used(self.is_used());
            return Err(problems);
        }
        self.note_ends(around, &scope);
        let cannot_lead = |switch: &mut SwitchQos| std::mem::take(&mut switch.cannot_lead);
        let could_not = self.switches.values_mut().map(cannot_lead);
        let could_not = could_not.fold(false, |any, could_not| any | could_not);
        let service = |circuit: &Circuit| circuit.service.clone();
        let mut services = self.asked.qos().circuits.iter().filter_map(service);
        if services.any(|name| scope.services.contains(&name)) {
            self.qos_soon(around, now);
        }
        if could_not || !self.refused.is_empty() || !was_used {
            self.refused.clear();
            self.ask_all_meters(around, now);
            self.qos_soon(around, now);
        }
        self.plan_soon(around, now);
        self.qos_counts_later(around, now);
        Ok(())
    }

    /// Carries out [`crate::controller::Controller::check_edit_qos`].
    fn check_edit_qos(
        &mut self,
        around: &mut Around<'_>,
        edits: Vec<Edit>,
    ) -> Result<(), Vec<Problem>> {
        let mut scope = Scope::default();
        let mut undos = Vec::new();
        for edit in edits {
            let about = self.asked.scope(&edit);
            scope.services.extend(about.services);
            scope.policies.extend(about.policies);
            undos.extend(self.asked.apply(edit));
        }
        let problems = match undos.is_empty() {
            true => Vec::new(),
            false => self.check_edits(around, &scope),
        };
        for undo in undos.into_iter().rev() {
            self.asked.undo(undo);
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(problems),
        }
    }

    fn check_edits(&mut self, around: &mut Around<'_>, scope: &Scope) -> Vec<Problem> {
        let asked = &self.asked;
        let policies = scope.policies.iter();
        let policies = policies.filter_map(|name| asked.names().policy(asked.qos(), name));
        let named: BTreeSet<DatapathId> = policies.flat_map(|p| p.on.named_switches()).collect();
        let is_there = |switch: &SwitchQos| switch.has_entries || switch.is_known;
        let has_circuits = !asked.qos().circuits.is_empty() && !scope.services.is_empty();
        let network = match has_circuits {
            true => self.network_of(around.view, is_there),
            false => self.facts_of(around.view, &named, is_there),
        };
        self.work.judged += scope.policies.len() as u64;
        let before = self.asked.odds().compared();
        let problems = self.asked.check(scope, &network);
        self.work.compared += self.asked.odds().compared() - before;
        problems
    }

    /// Updates the named hosts after a change of policies.
    fn note_ends(&mut self, around: &mut Around<'_>, scope: &Scope) {
        let ends = |policy: &Policy| match policy.on {
            On::Path { from, to } => vec![from, to],
            _ => Vec::new(),
        };
        let asked = &self.asked;
        let now = scope.policies.iter();
        let now = now.filter_map(|name| asked.names().policy(asked.qos(), name));
        let before = scope.policies.iter().filter_map(|n| self.formers.get(n));
        let before = before.flatten().map(|(policy, _)| policy);
        let names: BTreeSet<HostName> = now.chain(before).flat_map(ends).collect();
        for name in names {
            let is_named = self.asked.ends().contains_key(&name);
            if is_named == self.named.contains_key(&name) {
                continue;
            }
            let place = self.host_place(around.view, name).filter(|_| is_named);
            match place {
                Some(place) => drop(self.network.hosts.insert(name, place)),
                None => drop(self.network.hosts.remove(&name)),
            }
            match is_named {
                true => drop(self.named.insert(name, place)),
                false => drop(self.named.remove(&name)),
            }
        }
    }

    /// Carries out [`crate::controller::Controller::qos_work`].
    fn qos_work(&self) -> QosWork {
        self.work
    }

    /// Carries out [`crate::controller::Controller::set_qos_with`].
    fn set_qos_with(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        qos: Qos,
        circuit: &str,
    ) -> Result<(), Vec<Problem>> {
        let problems = self.check_qos(around.view, &qos, Some(circuit));
        match problems.is_empty() {
            true => {
                self.take_qos(around, now, qos);
                Ok(())
            }
            false => Err(problems),
        }
    }

    /// Carries out [`crate::controller::Controller::check_qos`].
    fn check_qos(&self, view: View<'_>, qos: &Qos, circuit: Option<&str>) -> Vec<Problem> {
        let mut problems = qos.check(&self.qos_network(view));
        if let Some(name) = circuit.filter(|_| problems.is_empty()) {
            problems.extend(self.no_room(view, qos, name));
        }
        problems
    }

    /// The room that a circuit would lack with all of `qos`.
    fn no_room(&self, view: View<'_>, qos: &Qos, name: &str) -> Option<Problem> {
        let place = qos.circuits.iter().position(|c| c.name == name)?;
        let circuit = &qos.circuits[place];
        let mut network = self.network_of(view, |switch| switch.is_known);
        for host in [circuit.from, circuit.to] {
            if let Some(at) = self.host_place(view, host) {
                network.hosts.insert(host, at);
            }
        }
        let mut circuits = self.circuits.clone();
        let mut outcomes = circuits.update(qos, &network);
        let Some(Outcome::Refused(refusal)) = outcomes.remove(name) else {
            return None;
        };
        let field = match circuit.queue {
            Some(_) if circuit.rate.is_none() => "queue",
            _ => "rate",
        };
        (!refusal.may_pass()).then(|| Problem {
            field: format!("circuits[{place}].{field}"),
            kind: ProblemKind::Own,
            what: refusal.to_string(),
        })
    }

    /// Carries out [`crate::controller::Controller::qos_network`].
    fn qos_network(&self, view: View<'_>) -> Network {
        let is_there = |switch: &SwitchQos| switch.has_entries || switch.is_known;
        self.network_of(view, is_there)
    }

    /// Carries out [`crate::controller::Controller::set_queues_by`].
    fn set_queues_by(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        dpid: DatapathId,
        by: QueuesBy,
        rates: BTreeMap<PortNo, Rate>,
    ) {
        let is_new = self
            .queues
            .get(&dpid)
            .is_none_or(|queues| (queues.by, &queues.rates) != (by, &rates));
        if is_new {
            self.queues.insert(dpid, Queues { by, rates });
            self.note_ready(around, now);
            self.qos_soon(around, now);
        }
    }

    /// Carries out [`crate::controller::Controller::wanted_queues`].
    fn wanted_queues(&self) -> BTreeMap<DatapathId, BTreeMap<PortNo, PortPlan>> {
        let is_used = self.is_used();
        let is_known = |switch: &SwitchQos| match is_used {
            true => switch.is_known,
            false => switch.has_entries,
        };
        let known = self.switches.iter().filter(|(_, switch)| is_known(switch));
        let reached = known.filter(|(dpid, _)| {
            let queues = self.queues.get(dpid);
            self.plan_at.is_none() && queues.is_some_and(|q| q.by != QueuesBy::Nobody)
        });
        let ports = |dpid| {
            let switch = self.plan.switches.get(dpid);
            switch.map_or(BTreeMap::new(), |switch| switch.ports.clone())
        };
        reached.map(|(dpid, _)| (*dpid, ports(dpid))).collect()
    }

    /// Schedules a plan after a change that it may depend on.
    fn qos_soon(&mut self, around: &mut Around<'_>, now: Instant) {
        self.is_other = true;
        self.plan_soon(around, now);
    }

    /// Schedules a plan after a policy, or something that it may depend on, has changed.
    fn plan_soon(&mut self, around: &mut Around<'_>, now: Instant) {
        if self.is_used() && self.plan_at.is_none() {
            let due = now + GATHER;
            self.plan_at = Some(due);
            around.outbox.timer(due, Timer::Qos);
        }
    }

    /// Sets the timers again when it is unknown whether they are still set.
    pub(in crate::controller) fn qos_restart_timers(&mut self, around: &mut Around<'_>) {
        let due = [self.plan_at, self.again_at, self.counts_at];
        for due in due.into_iter().flatten() {
            around.outbox.timer(due, Timer::Qos);
        }
    }

    /// Schedules another look at waiting demands.
    fn qos_again(&mut self, around: &mut Around<'_>, due: Instant) {
        if self.again_at.is_none_or(|at| due < at) {
            self.again_at = Some(due);
            around.outbox.timer(due, Timer::Qos);
        }
    }

    /// Notes that a packet of a host was received at its place.
    pub(in crate::controller) fn qos_host(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        names: impl IntoIterator<Item = HostName>,
        at: Location,
    ) {
        if self.names(names, at) {
            self.qos_soon(around, now);
        }
    }

    pub(in crate::controller) fn qos_due(&mut self, around: &mut Around<'_>, now: Instant) {
        self.note_ready(around, now);
        self.qos_counts_due(around, now);
        self.qos_judge_due(now);
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.again_at) {
            self.again_at = None;
            self.qos_soon(around, now);
        }
        if is_due(self.plan_at) {
            self.plan_at = None;
            return self.plan_qos(around, now);
        }
        let is_news = !self.late(now).is_subset(&self.run.late);
        match is_news && !self.run.is_over() {
            true => self.plan_qos(around, now),
            false => self.advance_qos(around, now),
        }
    }

    /// Switches that have not confirmed their messages in time.
    fn late(&self, now: Instant) -> BTreeSet<DatapathId> {
        let late = self
            .switches
            .keys()
            .filter(|dpid| !self.is_in_time(**dpid, now));
        late.copied().collect()
    }

    /// Makes a plan, from the demands and the network to the missing messages.
    fn plan_qos(&mut self, around: &mut Around<'_>, now: Instant) {
        if !self.is_used() {
            return;
        }
        self.adopt_circuits(around);
        // Policies that switches have refused are planned, and left out again.
        self.refused.retain(|_, (_, until)| *until > now);
        let lacks = !self.refused.is_empty();
        if std::mem::take(&mut self.is_other) {
            self.note_network(around);
            let touched = self.plan_ways();
            self.note_touched(touched);
        }
        let formers = std::mem::take(&mut self.formers);
        if std::mem::replace(&mut self.plans_all, lacks) || lacks {
            self.plan_all();
        } else {
            self.plan_some(&formers);
        }
        if let Some(until) = self.refused.values().map(|(_, until)| *until).min() {
            self.qos_again(around, until);
        }
        let mut wanted = std::mem::take(&mut self.plan.switches);
        let kept = self.keep_young(around, now, &mut wanted);
        let away = self.away(around.view, now);
        let diff = self.qos_diff(now, &wanted, &away, &kept);
        for (dpid, key) in kept {
            if let Some(switch) = wanted.get_mut(&dpid) {
                switch.flows.remove(&key);
            }
        }
        let leads = wanted.iter().filter(|(_, switch)| switch.has_policies());
        let leads: BTreeSet<DatapathId> = leads.map(|(dpid, _)| *dpid).collect();
        self.plan.switches = wanted;
        let is_there = |dpid: &&DatapathId| !away.contains(dpid);
        let turns = |switch: &SwitchQos, dpid| switch.leads_on != leads.contains(dpid);
        let switches = self.switches.iter();
        let turned = switches.filter(|(dpid, switch)| turns(switch, dpid));
        let turned: BTreeSet<DatapathId> = turned
            .map(|(dpid, _)| dpid)
            .filter(is_there)
            .copied()
            .collect();
        let (on, off) = turned.into_iter().partition(|dpid| leads.contains(dpid));
        self.stuck = diff.stuck.clone();
        self.run.start(diff, on, off);
        self.run.late = self.late(now);
        self.advance_qos(around, now);
    }

    /// Notes the present network. Policies are planned again if the network has other switches, or
    /// if hosts that policies name are elsewhere.
    fn note_network(&mut self, around: &mut Around<'_>) {
        let network = self.network_of(around.view, |switch| switch.is_known);
        for (name, place) in &mut self.named {
            *place = network.hosts.get(name).copied();
        }
        let before = std::mem::replace(&mut self.network, network);
        let network = &self.network;
        let is_same = (&before.switches, &before.hosts) == (&network.switches, &network.hosts);
        self.plans_all |= !is_same;
    }

    /// Plans circuits and queues, but no policies.
    fn plan_ways(&mut self) -> Touched {
        let qos = &mut *self;
        let (asked, network) = (&qos.asked, &qos.network);
        let outcomes = qos.circuits.update(asked.qos(), network);
        let refusals = outcomes
            .into_iter()
            .filter_map(|(name, outcome)| match outcome {
                Outcome::Refused(refusal) => Some((name, refusal)),
                _ => None,
            });
        qos.refusals = refusals.collect();
        let routed = qos.circuits.routes().map(|(name, _)| name.to_owned());
        qos.routed.extend(routed);
        let plan = &mut qos.plan;
        plan.update_ways(asked.qos(), asked.names(), network, &qos.circuits)
    }

    fn plan_all(&mut self) {
        let qos = &mut *self;
        let plan = Plan::new(qos.asked.qos(), &qos.network, &qos.circuits);
        qos.work.planned += qos.asked.qos().policies.len() as u64;
        let before = std::mem::replace(&mut qos.plan, plan).switches;
        if !qos.refused.is_empty() {
            for switch in qos.plan.switches.values_mut() {
                let is_refused = |planned: &Planned| qos.refused.contains_key(&planned.owner);
                switch.flows.retain(|_, planned| !is_refused(planned));
            }
        }
        qos.verified.forget_changed(&before, &qos.plan.switches);
        qos.unsettled.all = true;
    }

    /// Plans the policies that have changed.
    fn plan_some(&mut self, formers: &BTreeMap<String, Former>) {
        let qos = &mut *self;
        let (asked, plan) = (&qos.asked, &mut qos.plan);
        let touched = plan.update(asked.qos(), asked.names(), &qos.network, formers);
        qos.work.planned += touched.policies;
        for name in formers.keys() {
            qos.verified.forget(&Owner::Policy(name.clone()));
        }
        self.note_touched(touched);
    }

    /// Notes the entries whose plan changed: switches may still hold their former state.
    fn note_touched(&mut self, touched: Touched) {
        let qos = &mut *self;
        for dpid in &touched.ports {
            let switch = qos.plan.switches.get(dpid);
            let flows = switch.into_iter().flat_map(|switch| switch.flows.values());
            flows.for_each(|planned| qos.verified.forget(&planned.owner));
        }
        for ((dpid, key), was) in touched.flows {
            let switch = qos.plan.switches.get(&dpid);
            let is = switch.and_then(|switch| switch.flows.get(&key));
            for planned in was.iter().chain(is) {
                qos.verified.forget(&planned.owner);
            }
            qos.unsettled.flows.insert((dpid, key));
        }
        qos.unsettled.meters.extend(touched.meters);
    }

    /// Switches to which nothing can be sent now, or that have not confirmed their messages in
    /// time.
    fn away(&self, view: View<'_>, now: Instant) -> BTreeSet<DatapathId> {
        let is_away = |(dpid, switch): &(&DatapathId, &SwitchQos)| {
            let is_read = switch.has_entries && switch.has_meters && switch.is_known;
            !is_read || !view.net.is_connected(**dpid) || !self.is_in_time(**dpid, now)
        };
        let away = self.switches.iter().filter(is_away);
        away.map(|(dpid, _)| *dpid).collect()
    }

    /// The difference to send. Unless something is uncertain, only changed entries are compared.
    fn qos_diff(
        &mut self,
        now: Instant,
        wanted: &BTreeMap<DatapathId, SwitchPlan>,
        away: &BTreeSet<DatapathId>,
        kept: &[(DatapathId, FlowKey)],
    ) -> Diff {
        let late = self.late(now);
        let is_certain = late.is_empty() && away.is_empty();
        let unsettled = std::mem::take(&mut self.unsettled);
        let diff = match is_certain && !unsettled.all {
            true => {
                let held = unsettled.part_of(&self.held);
                let diff = Diff::new(&held, &unsettled.part_of(wanted), away);
                self.work.looked_at += unsettled.flows.len() as u64;
                debug_assert!(
                    self.held.values().any(|held| held.flows.len() > 256)
                        || diff == Diff::new(&self.held, wanted, away),
                    "something has changed that nobody noted"
                );
                diff
            }
            false => {
                let entries = wanted.values().map(|switch| switch.flows.len() as u64);
                self.work.looked_at += entries.sum::<u64>();
                self.whole_diff(&late, wanted, away)
            }
        };
        let unsettled = &mut self.unsettled;
        unsettled.all = !is_certain;
        unsettled.flows.extend(kept.iter().cloned());
        for (dpid, change) in diff.stages.iter().flat_map(|stage| &stage.changes) {
            match change {
                Change::Set(key, _) | Change::Delete(key) => {
                    unsettled.flows.insert((*dpid, key.clone()));
                }
                Change::AddMeter(id, _) | Change::ModifyMeter(id, _) | Change::DeleteMeter(id) => {
                    unsettled.meters.insert((*dpid, *id));
                }
            }
        }
        diff
    }

    fn whole_diff(
        &self,
        late: &BTreeSet<DatapathId>,
        wanted: &BTreeMap<DatapathId, SwitchPlan>,
        away: &BTreeSet<DatapathId>,
    ) -> Diff {
        if late.is_empty() {
            return Diff::new(&self.held, wanted, away);
        }
        // It is unknown whether a late switch has its last messages.
        let mut held = self.held.clone();
        for dpid in late {
            let (switch, held) = (self.switches.get(dpid), held.get_mut(dpid));
            let Some((switch, held)) = switch.zip(held) else {
                continue;
            };
            for sent in switch.sent.values().rev() {
                sent.undo(held);
            }
        }
        Diff::new(&held, wanted, away)
    }

    /// Keeps existing entries of circuits without a route for a while after their switch connected:
    /// the hosts, links and databases that the circuit needs may still be missing.
    fn keep_young(
        &mut self,
        around: &mut Around<'_>,
        now: Instant,
        wanted: &mut BTreeMap<DatapathId, SwitchPlan>,
    ) -> Vec<(DatapathId, FlowKey)> {
        let mut kept = Vec::new();
        let mut over = Vec::new();
        for (dpid, held) in &self.held {
            let up_since = around.view.net.switch(*dpid).map(|switch| switch.up_since);
            let Some(until) = up_since.map(|at| at + ADOPTED_KEPT).filter(|at| *at > now) else {
                continue;
            };
            for (key, planned) in held.ways().filter(|(_, planned)| planned.rank > 0) {
                let Owner::Circuit(name) = &planned.owner else {
                    continue;
                };
                let refusal = self.refusals.get(name);
                let waits = refusal.is_some_and(Refusal::may_pass) && !self.routed.contains(name);
                let flows = &mut wanted.entry(*dpid).or_default().flows;
                if waits && !flows.contains_key(key) {
                    flows.insert(key.clone(), planned.clone());
                    kept.push((*dpid, key.clone()));
                    over.push(until);
                }
            }
        }
        if let Some(until) = over.into_iter().min() {
            self.qos_again(around, until);
        }
        kept
    }

    /// The facts of these switches alone, without links and hosts.
    fn facts_of(
        &self,
        view: View<'_>,
        dpids: &BTreeSet<DatapathId>,
        is_there: impl Fn(&SwitchQos) -> bool,
    ) -> Network {
        let mut network = Network::default();
        for dpid in dpids {
            let state = self.switches.get(dpid).filter(|state| is_there(state));
            let facts = state.and_then(|state| self.switch_facts(view, *dpid, state));
            network.switches.extend(facts.map(|facts| (*dpid, facts)));
        }
        network
    }

    fn switch_facts(
        &self,
        view: View<'_>,
        dpid: DatapathId,
        state: &SwitchQos,
    ) -> Option<SwitchFacts> {
        let switch = view.net.switch(dpid)?;
        let queues = self.queues.get(&dpid);
        let rate = |port| queues.and_then(|queues| queues.rates.get(port)).copied();
        let ports = switch.ports.keys().map(|port| (*port, rate(port)));
        // A switch without a report counts as the most capable.
        let unknown = MeterFacts {
            max: u32::MAX,
            can_remark: true,
        };
        let is_old = switch.version == Version::V10;
        Some(SwitchFacts {
            version: switch.version,
            table_count: if state.cannot_lead {
                1
            } else {
                state.table_count
            },
            queues_by: queues.map_or(QueuesBy::Nobody, |queues| queues.by),
            meters: state.meters.unwrap_or((!is_old).then_some(unknown)),
            ports: ports.collect(),
        })
    }

    fn network_of(&self, view: View<'_>, is_there: impl Fn(&SwitchQos) -> bool) -> Network {
        let switches = self.switches.keys().copied().collect();
        let mut network = self.facts_of(view, &switches, is_there);
        network.links = two_ways(&view.net.links);
        network.links.retain(|from, to| {
            [from, to]
                .iter()
                .all(|end| network.switches.contains_key(&end.dpid))
        });
        for name in self.named.keys() {
            if let Some(at) = self.host_place(view, *name) {
                network.hosts.insert(*name, at);
            }
        }
        network
    }

    fn host_place(&self, view: View<'_>, name: HostName) -> Option<Location> {
        let mac = match name {
            HostName::Mac(mac) => Some(mac),
            HostName::Ip(ip) => view.hosts.by_ip(ip),
            HostName::Net(_) => None,
        };
        let heard = mac.and_then(|mac| view.hosts.place(mac));
        let is_edge = |at: &Location| view.net.is_up(*at) && !view.net.is_end(*at);
        heard.or_else(|| self.adopted.get(&name).copied().filter(is_edge))
    }
}

/// Links that exist in both directions, by either end.
fn two_ways(links: &Links) -> BTreeMap<Location, Location> {
    let all: BTreeSet<(Location, Location)> = links.iter().collect();
    let both = all.iter().filter(|(from, to)| all.contains(&(*to, *from)));
    both.copied().collect()
}

/// The order after which paths continue to the policy table: the policies exist by then.
const LEAD_ON_AFTER: Order = Order::Policies;
