//! Plans the wanted state of each switch: entries, meters, queues.
//!
//! The same [`Qos`], [`Network`] and [`Circuits`] make the same plan, entry for entry. Numbers that
//! must be chosen (meters, queues of circuits) derive from names, so that a new policy does not
//! change another policy's number.

use std::collections::{BTreeMap, BTreeSet};

use clock::Fnv1a;
use openflow::{DatapathId, Field, MeterId, PortNo, QueueId, Version};

use super::asked::Names;
use super::check::obstacle;
use super::circuits::{Circuits, Hop, Route};
use super::flow::{Does, Flow, FlowKey, Matching, OPENS, Then};
use super::{
    Circuit, Meter, Network, On, Policy, PortQueues, Qos, Queue, QueuesBy, Service, SwitchFacts,
    Treatment,
};
use crate::Location;
use crate::pipeline::{PATH_TABLE, POLICY_TABLE};
use crate::timeouts::HostName;

/// Above the entries of pairs and of their rules, including those that drop; below the entries that
/// keep the controller reachable.
const CIRCUIT_PRIORITY: u16 = 3_001;
/// In the policy table, above the entry that adds nothing.
const POLICY_PRIORITY: u16 = 2;

/// The meter numbers of auster on a switch with enough meters; the numbers below, from 1 on, are
/// for everybody. On a switch with fewer meters, auster has the upper half.
const METERS: std::ops::RangeInclusive<u32> = 0x6000..=0x9fff;
/// Queues of circuits, above the operator's.
const CIRCUIT_QUEUES: std::ops::RangeInclusive<u32> = 128..=255;

/// The plan of all switches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub switches: BTreeMap<DatapathId, SwitchPlan>,
    /// Demands that are not possible yet, and the reasons: they are planned again when the network
    /// has changed.
    pub waiting: BTreeSet<(Owner, String)>,
    /// Policies that want an entry that belongs to a policy named before them.
    shared: BTreeMap<(DatapathId, FlowKey), BTreeSet<String>>,
    meters: MeterIds,
}

/// A policy as last planned, and its service; `None` if there was none.
pub type Former = Option<(Policy, Option<Service>)>;

/// The difference between a changed plan and the one before.
#[derive(Debug, Default)]
pub struct Touched {
    /// Entries that may have changed, in their former state.
    pub flows: BTreeMap<(DatapathId, FlowKey), Option<Planned>>,
    pub meters: BTreeSet<(DatapathId, MeterId)>,
    /// Switches whose ports have other queues now.
    pub ports: BTreeSet<DatapathId>,
    /// The number of policies that were computed, for one or for all switches.
    pub policies: u64,
}

/// The wanted or held state of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchPlan {
    pub flows: BTreeMap<FlowKey, Planned>,
    pub meters: BTreeMap<MeterId, Meter>,
    pub ports: BTreeMap<PortNo, PortPlan>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub does: Does,
    /// See [`Flow::rank`].
    pub rank: u8,
    pub owner: Owner,
}

/// The owner of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The table itself, or an unknown owner.
    Nobody,
    Policy(String),
    Circuit(String),
}

/// The records and queues that a port needs. With [`QueuesBy::SetQueue`], a QoS record of type
/// `linux-htb` and its queues. With [`QueuesBy::CodePoint`], a record of type `linux-noop` whose
/// queues each have their first code point, and in the kernel a class for each queue, filters for
/// its code points, and short leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPlan {
    pub by: QueuesBy,
    pub queues: PortQueues,
}

impl Plan {
    pub fn new(qos: &Qos, network: &Network, circuits: &Circuits) -> Plan {
        let mut plan = Plan::default();
        let names = Names::of(qos);
        let all = qos
            .policies
            .iter()
            .map(|policy| (policy.name.clone(), None));
        plan.update(qos, &names, network, &all.collect());
        plan.update_ways(qos, &names, network, circuits);
        plan
    }

    /// Plans changed policies, on the same network and with the same queues.
    pub fn update(
        &mut self,
        qos: &Qos,
        names: &Names,
        network: &Network,
        formers: &BTreeMap<String, Former>,
    ) -> Touched {
        let mut touched = Touched::default();
        let ids = std::mem::take(&mut self.meters);
        let mut planner = Planner::new(qos, names, network, ids);
        let mut old: BTreeMap<&str, Out> = BTreeMap::new();
        for (name, former) in formers {
            let out = match former {
                Some((policy, service)) => planner.planned(policy, service.as_ref()),
                None => Out::default(),
            };
            old.insert(name, out);
        }
        if let Some(before) = planner.ids.change(qos, names, formers) {
            let after = std::mem::replace(&mut planner.ids, before);
            for policy in planner.ids.moved(&after, qos) {
                if !old.contains_key(&policy.name[..]) {
                    let out = planner.planned(policy, names.service(qos, &policy.service));
                    old.insert(&policy.name, out);
                }
            }
            planner.ids = after;
        }
        let mut heirs = Vec::new();
        for (name, out) in &old {
            self.release(name, out, &mut touched, &mut heirs);
        }
        let mut places: Vec<usize> = old.keys().filter_map(|n| names.policy_place(n)).collect();
        places.sort_unstable();
        for place in places {
            let policy = &qos.policies[place];
            let out = planner.planned(policy, names.service(qos, &policy.service));
            self.claim(names, policy, out, &mut touched);
        }
        for at in heirs {
            self.inherit(names, &mut planner, at, &mut touched);
        }
        touched.policies = planner.planned;
        self.meters = planner.ids;
        self.lowest(&mut touched);
        touched
    }

    /// Plans circuits and queues again, and leaves policies unchanged.
    pub fn update_ways(
        &mut self,
        qos: &Qos,
        names: &Names,
        network: &Network,
        circuits: &Circuits,
    ) -> Touched {
        let mut touched = Touched::default();
        let mut ports = BTreeMap::new();
        for (dpid, switch) in &mut self.switches {
            let policies = switch.flows.split_off(&first_of(POLICY_TABLE));
            for (key, planned) in std::mem::replace(&mut switch.flows, policies) {
                touched.flows.insert((*dpid, key), Some(planned));
            }
            let had = std::mem::take(&mut switch.ports);
            ports.insert(*dpid, had);
        }
        let is_policy = |owner: &Owner| matches!(owner, Owner::Policy(_));
        self.waiting.retain(|(owner, _)| is_policy(owner));
        let mut planner = Planner::new(qos, names, network, MeterIds::default());
        planner.circuit_queues = circuit_queues(qos, circuits);
        for (at, port) in planner.ports(circuits) {
            let switch = self.switches.entry(at.dpid).or_default();
            switch.ports.insert(at.port, port);
        }
        for (_, route) in circuits.routes() {
            planner.circuit(route);
        }
        let out = planner.out;
        for (dpid, key, planned) in out.flows {
            let at = (dpid, key.clone());
            touched.flows.entry(at).or_insert(None);
            let switch = self.switches.entry(dpid).or_default();
            // If two entries match the same packets, which the check refuses, the one named first
            // stays.
            switch.flows.entry(key).or_insert(planned);
        }
        self.waiting.extend(out.waiting);
        for (dpid, switch) in &self.switches {
            let had = ports.get(dpid);
            if had.map_or(!switch.ports.is_empty(), |had| *had != switch.ports) {
                touched.ports.insert(*dpid);
            }
        }
        touched.settle(&self.switches);
        touched
    }

    /// Releases the entries of a policy.
    fn release(
        &mut self,
        name: &str,
        out: &Out,
        touched: &mut Touched,
        heirs: &mut Vec<(DatapathId, FlowKey)>,
    ) {
        let owner = Owner::Policy(name.to_owned());
        let from = (owner.clone(), String::new());
        let mut waiting = self.waiting.range(from..).take_while(|(o, _)| *o == owner);
        let waiting: Vec<_> = waiting.by_ref().cloned().collect();
        for waiting in waiting {
            self.waiting.remove(&waiting);
        }
        for (dpid, id, _) in &out.meters {
            if let Some(switch) = self.switches.get_mut(dpid) {
                switch.meters.remove(id);
            }
            touched.meters.insert((*dpid, *id));
        }
        for (dpid, key, _) in &out.flows {
            let Some(switch) = self.switches.get_mut(dpid) else {
                continue;
            };
            let at = (*dpid, key.clone());
            if switch.flows.get(key).is_some_and(|of| of.owner == owner) {
                let was = switch.flows.remove(key);
                if self.shared.contains_key(&at) {
                    heirs.push(at.clone());
                }
                touched.flows.entry(at).or_insert(was);
            } else {
                self.share(at, |others| {
                    others.remove(name);
                });
            }
        }
    }

    fn claim(&mut self, names: &Names, policy: &Policy, out: Out, touched: &mut Touched) {
        self.waiting.extend(out.waiting);
        for (dpid, id, meter) in out.meters {
            let switch = self.switches.entry(dpid).or_default();
            switch.meters.insert(id, meter);
            touched.meters.insert((dpid, id));
        }
        for (dpid, key, planned) in out.flows {
            self.claim_one(names, &policy.name, (dpid, key), planned, touched);
        }
    }

    /// Gives an entry to `name`. Checking refuses two different policies for the same packets;
    /// otherwise the one named first has the entry.
    fn claim_one(
        &mut self,
        names: &Names,
        name: &str,
        at: (DatapathId, FlowKey),
        planned: Planned,
        touched: &mut Touched,
    ) {
        let switch = self.switches.entry(at.0).or_default();
        let had = switch.flows.get(&at.1).cloned();
        let other = match had.as_ref().map(|had| &had.owner) {
            Some(Owner::Policy(other)) if *other == name => return,
            Some(Owner::Policy(other)) => Some(other.clone()),
            _ => None,
        };
        let is_first = |other| names.policy_place(name) < names.policy_place(other);
        let later = match other {
            Some(other) if !is_first(&other) => Some(name.to_owned()),
            other => {
                switch.flows.insert(at.1.clone(), planned);
                touched.flows.entry(at.clone()).or_insert(had);
                other
            }
        };
        if let Some(later) = later {
            self.share(at, |others| {
                others.insert(later);
            });
        }
    }

    /// Gives an entry that its policy has released to the next policy that wants it.
    fn inherit(
        &mut self,
        names: &Names,
        planner: &mut Planner<'_>,
        at: (DatapathId, FlowKey),
        touched: &mut Touched,
    ) {
        let others = self.shared.get(&at).into_iter().flatten();
        let Some(heir) = others.min_by_key(|name| names.policy_place(name)).cloned() else {
            return;
        };
        self.share(at.clone(), |others| {
            others.remove(&heir);
        });
        let Some(policy) = names.policy(planner.qos, &heir) else {
            return;
        };
        let service = names.service(planner.qos, &policy.service);
        let out = planner.planned(policy, service);
        let mut flows = out.flows.into_iter();
        if let Some((_, _, planned)) = flows.find(|(dpid, key, _)| (dpid, key) == (&at.0, &at.1)) {
            self.claim_one(names, &heir, at, planned, touched);
        }
    }

    fn share(&mut self, at: (DatapathId, FlowKey), change: impl FnOnce(&mut BTreeSet<String>)) {
        let others = self.shared.entry(at.clone()).or_default();
        change(others);
        if others.is_empty() {
            self.shared.remove(&at);
        }
    }

    /// Sets the lowest entry of the policy table where the table has other entries, and removes it
    /// elsewhere.
    fn lowest(&mut self, touched: &mut Touched) {
        let miss = Flow::policy_miss();
        let dpids: BTreeSet<DatapathId> = touched.flows.keys().map(|(dpid, _)| *dpid).collect();
        for dpid in dpids {
            let switch = self.switches.entry(dpid).or_default();
            let last = switch.flows.keys().next_back();
            let is_needed = last.is_some_and(|key| key.table == POLICY_TABLE && *key != miss.key);
            let was = switch.flows.get(&miss.key).cloned();
            if is_needed == was.is_some() {
                continue;
            }
            match is_needed {
                true => {
                    let planned = Planned {
                        does: miss.does,
                        rank: miss.rank,
                        owner: Owner::Nobody,
                    };
                    switch.flows.insert(miss.key.clone(), planned);
                }
                false => drop(switch.flows.remove(&miss.key)),
            }
            let at = (dpid, miss.key.clone());
            touched.flows.entry(at).or_insert(was);
        }
        touched.settle(&self.switches);
    }
}

/// The key before all entries of a table.
fn first_of(table: openflow::TableId) -> FlowKey {
    FlowKey {
        table,
        priority: 0,
        matching: Matching::any(),
    }
}

impl Touched {
    /// Drops unchanged entries from the difference.
    fn settle(&mut self, switches: &BTreeMap<DatapathId, SwitchPlan>) {
        self.flows.retain(|(dpid, key), was| {
            let is = switches.get(dpid).and_then(|switch| switch.flows.get(key));
            is != was.as_ref()
        });
    }
}

/// The meter numbers of policies by name, for each number of meters that a switch has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MeterIds(BTreeMap<u32, Numbers>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Numbers {
    by_name: BTreeMap<String, u32>,
    taken: BTreeSet<u32>,
}

impl Numbers {
    fn new(qos: &Qos, max: u32) -> Numbers {
        let metered = qos.policies.iter().filter(|p| p.treatment.meter.is_some());
        let names = metered.map(|policy| &policy.name[..]).collect();
        let by_name = numbered(names, meter_numbers(max), BTreeSet::new());
        let by_name = by_name.into_iter().map(|(name, id)| (name.to_owned(), id));
        let by_name: BTreeMap<String, u32> = by_name.collect();
        Numbers {
            taken: by_name.values().copied().collect(),
            by_name,
        }
    }
}

impl MeterIds {
    fn of(&mut self, qos: &Qos, max: u32) -> &Numbers {
        self.0.entry(max).or_insert_with(|| Numbers::new(qos, max))
    }

    /// Assigns numbers to policies that now have a meter, and frees the numbers of policies that no
    /// longer have one. If other policies need another number as a result, numbers all again and
    /// returns the former numbers.
    fn change(
        &mut self,
        qos: &Qos,
        names: &Names,
        formers: &BTreeMap<String, Former>,
    ) -> Option<MeterIds> {
        let has_meter = |policy: &Policy| policy.treatment.meter.is_some();
        let mut left = Vec::new();
        let mut new = Vec::new();
        for (name, former) in formers {
            let had = former.as_ref().is_some_and(|(policy, _)| has_meter(policy));
            match (had, names.policy(qos, name).is_some_and(has_meter)) {
                (true, false) => left.push(name),
                (false, true) => new.push(name),
                _ => {}
            }
        }
        let is_simple = self.0.iter_mut().all(|(max, numbers)| {
            let range = meter_numbers(*max);
            let is_free = |numbers: &Numbers, id: u32| !numbers.taken.contains(&id);
            let leaves = left.iter().all(|name| {
                let Some(id) = numbers.by_name.remove(*name) else {
                    return true;
                };
                numbers.taken.remove(&id);
                let next = if id == *range.end() {
                    *range.start()
                } else {
                    id + 1
                };
                // No other policy had to take the next number instead.
                is_free(numbers, next)
            });
            leaves
                && new.iter().all(|name| {
                    // The same result as numbering all in order: the policy gets its wanted number,
                    // since that number is free.
                    let id = wanted_number(name, &range);
                    let id = id.filter(|id| is_free(numbers, *id));
                    id.is_some_and(|id| {
                        numbers.taken.insert(id);
                        numbers.by_name.insert((*name).clone(), id);
                        true
                    })
                })
        });
        (!is_simple).then(|| {
            let maxima = self.0.keys();
            let anew = maxima.map(|max| (*max, Numbers::new(qos, *max)));
            let anew = MeterIds(anew.collect());
            std::mem::replace(self, anew)
        })
    }

    /// Policies that have another number in `after`.
    fn moved<'a>(&self, after: &MeterIds, qos: &'a Qos) -> Vec<&'a Policy> {
        let is_moved = |policy: &&Policy| {
            self.0.iter().any(|(max, numbers)| {
                let after = after.0.get(max).map(|of| of.by_name.get(&policy.name));
                after != Some(numbers.by_name.get(&policy.name))
            })
        };
        qos.policies.iter().filter(is_moved).collect()
    }
}

impl SwitchPlan {
    /// Whether paths should continue to the policy table.
    pub fn has_policies(&self) -> bool {
        let last = self.flows.keys().next_back();
        last.is_some_and(|key| key.table == POLICY_TABLE)
    }

    /// Entries of circuits.
    pub fn ways(&self) -> impl Iterator<Item = (&FlowKey, &Planned)> {
        self.flows.range(..first_of(POLICY_TABLE))
    }

    pub fn ways_mut(&mut self) -> impl Iterator<Item = (&FlowKey, &mut Planned)> {
        self.flows.range_mut(..first_of(POLICY_TABLE))
    }

    /// Adds an entry that a switch reports.
    pub fn insert_held(&mut self, flow: Flow) {
        let planned = Planned {
            does: flow.does,
            rank: flow.rank,
            owner: Owner::Nobody,
        };
        self.flows.insert(flow.key, planned);
    }
}

impl Planned {
    /// Whether a switch would act the same, whatever the owner.
    pub fn is_as(&self, other: &Planned) -> bool {
        (self.does, self.rank) == (other.does, other.rank)
    }
}

/// The circuit of an entry, found by its match, and whether the entry is for the return direction.
pub fn circuit_of<'a>(qos: &'a Qos, key: &FlowKey) -> Option<(&'a Circuit, bool)> {
    let loose = |m: &Matching| m.without(Field::InPort).without(Field::IpDscp);
    let found = loose(&key.matching);
    let everything = Service::default();
    qos.circuits.iter().find_map(|circuit| {
        if key.table != PATH_TABLE || key.priority != CIRCUIT_PRIORITY + circuit.priority {
            return None;
        }
        let service = match &circuit.service {
            Some(name) => qos.service(name)?,
            None => &everything,
        };
        let is_its = |service: &Service, ends| {
            let matchings = service.matchings(Some(ends), false);
            matchings.iter().any(|m| loose(m) == found)
        };
        let (from, to) = (circuit.from, circuit.to);
        let is_back = match is_its(service, (from, to)) {
            true => false,
            false if circuit.both && is_its(&service.reversed(), (to, from)) => true,
            false => return None,
        };
        Some((circuit, is_back))
    })
}

/// Whether a meter of a switch is one that auster numbers.
pub fn is_our_meter(id: MeterId, max: u32) -> bool {
    meter_numbers(max).contains(&id.0)
}

fn meter_numbers(max: u32) -> std::ops::RangeInclusive<u32> {
    match *METERS.end() <= max {
        true => METERS,
        false => max / 2 + 1..=max,
    }
}

struct Planner<'a> {
    qos: &'a Qos,
    names: &'a Names,
    network: &'a Network,
    /// The circuits' own queues.
    circuit_queues: BTreeMap<(Location, String), u8>,
    ids: MeterIds,
    out: Out,
    planned: u64,
}

/// Entries and meters of a policy or a circuit.
#[derive(Default)]
struct Out {
    flows: Vec<(DatapathId, FlowKey, Planned)>,
    meters: Vec<(DatapathId, MeterId, Meter)>,
    waiting: Vec<(Owner, String)>,
}

/// The exit of a policy's packets from a switch: a port or any, and the queue.
type Exit = (Option<PortNo>, Option<QueueId>);

impl<'a> Planner<'a> {
    fn new(qos: &'a Qos, names: &'a Names, network: &'a Network, ids: MeterIds) -> Planner<'a> {
        Planner {
            qos,
            names,
            network,
            circuit_queues: BTreeMap::new(),
            ids,
            out: Out::default(),
            planned: 0,
        }
    }

    /// Plans a policy on all switches.
    fn planned(&mut self, policy: &Policy, service: Option<&Service>) -> Out {
        self.planned += 1;
        self.policy(policy, service);
        std::mem::take(&mut self.out)
    }

    fn ports(&self, circuits: &Circuits) -> Vec<(Location, PortPlan)> {
        let mut ports: BTreeMap<Location, PortQueues> = BTreeMap::new();
        for (at, stated) in &self.qos.ports {
            let mut stated = stated.clone();
            for queue in stated.queues.values_mut() {
                // The class name is ours alone: no switch stores it.
                queue.class = None;
            }
            ports.insert(*at, stated);
        }
        for ((at, name), number) in &self.circuit_queues {
            let rate = self.network.rate(*at);
            let known = ports.contains_key(at) || rate.is_some();
            let circuit = circuits.route(name).map(|route| &route.circuit);
            if let Some(circuit) = circuit.filter(|_| known) {
                let port = ports.entry(*at).or_insert_with(|| PortQueues {
                    rate: rate.unwrap_or_default(),
                    queues: BTreeMap::new(),
                });
                port.queues.insert(*number, own_queue(circuit));
            }
        }
        let planned = ports.into_iter().filter_map(|(at, queues)| {
            let by = self.network.queues_by(at.dpid)?;
            (by != QueuesBy::Nobody).then_some((at, PortPlan { by, queues }))
        });
        planned.collect()
    }

    fn policy(&mut self, policy: &Policy, service: Option<&Service>) {
        let owner = Owner::Policy(policy.name.clone());
        let Some(service) = service else {
            return self.wait(owner, format!("there is no service '{}'", policy.service));
        };
        for dpid in policy.on.named_switches() {
            if !self.network.switches.contains_key(&dpid) {
                self.wait(owner.clone(), format!("switch {dpid} is not connected"));
            }
        }
        let home = match policy.on {
            On::Path { from, .. } => {
                let home = self.network.hosts.get(&from).map(|at| at.dpid);
                if home.is_none() && policy.treatment.is_for_ingress() {
                    self.wait(owner.clone(), format!("host {from} has not been heard yet"));
                }
                home
            }
            _ => None,
        };
        let mut waiting = Vec::new();
        for (dpid, facts) in &self.network.switches {
            if !policy.on.concerns(*dpid) {
                continue;
            }
            let is_home = home == Some(*dpid);
            let treatment = match policy.on {
                On::Path { .. } if !is_home => policy.treatment.on_the_way(),
                _ => policy.treatment.clone(),
            };
            if treatment == Treatment::default() {
                continue;
            }
            if let Some(why) = obstacle(facts, &treatment) {
                let owner = owner.clone();
                waiting.push((owner, format!("switch {dpid} cannot do it: {why}")));
                continue;
            }
            if facts.queues_by == QueuesBy::Nobody && self.has_queue(*dpid, &treatment) {
                let why = format!("nobody reaches the database of switch {dpid}");
                waiting.push((owner.clone(), why));
            }
            let mut services = vec![service.clone()];
            if !is_home && service.dscp.is_some() {
                let marks = self.written_by(policy).into_iter();
                services.extend(marks.map(|mark| service.marked(mark)));
            }
            self.policy_at(*dpid, facts, policy, &treatment, &services);
        }
        self.out.waiting.extend(waiting);
    }

    fn policy_at(
        &mut self,
        dpid: DatapathId,
        facts: &SwitchFacts,
        policy: &Policy,
        treatment: &Treatment,
        services: &[Service],
    ) {
        let meters_max = facts.meters.map_or(0, |meters| meters.max);
        let id = treatment.meter.map(|_| self.meter_id(policy, meters_max));
        if id == Some(None) {
            let owner = Owner::Policy(policy.name.clone());
            return self.wait(owner, format!("switch {dpid} has no meter left"));
        }
        let meter = id.flatten();
        if let (Some(id), Some(meter)) = (meter, treatment.meter) {
            self.out.meters.push((dpid, id, meter.whole()));
        }
        let ends = policy.on.ends();
        let exits = self.exits(dpid, facts, policy, treatment);
        let of_ip = treatment.mark.is_some();
        let matchings = services.iter().flat_map(|s| s.matchings(ends, of_ip));
        for matching in matchings {
            for (port, queue) in &exits {
                let by_port = |m: Matching, port: PortNo| m.and(Field::Metadata, port.0);
                let matching = match port {
                    Some(port) => by_port(matching.clone(), *port),
                    None => Some(matching.clone()),
                };
                let Some(matching) = matching else {
                    continue;
                };
                // For the same policy, entries of one port are above entries for any port.
                let priority = POLICY_PRIORITY + 2 * policy.priority + u16::from(port.is_some());
                let does = Does {
                    meter,
                    mark: treatment.mark,
                    queue: *queue,
                    then: match treatment.drop {
                        true => Then::Drop,
                        false => Then::Leave,
                    },
                };
                let key = FlowKey {
                    table: POLICY_TABLE,
                    priority,
                    matching,
                };
                self.insert(dpid, key, does, 0, Owner::Policy(policy.name.clone()));
            }
        }
    }

    fn has_queue(&self, dpid: DatapathId, treatment: &Treatment) -> bool {
        let Some(name) = &treatment.queue else {
            return false;
        };
        let at = |port| Location { dpid, port };
        let mut ports = self.qos.ports_of(dpid);
        ports.any(|(port, _)| self.qos.queue_at(at(port), name).is_some())
    }

    /// The meter's number: the same on every switch with as many meters.
    fn meter_id(&mut self, policy: &Policy, max: u32) -> Option<MeterId> {
        let numbers = self.ids.of(self.qos, max);
        numbers.by_name.get(&policy.name).copied().map(MeterId)
    }

    fn exits(
        &self,
        dpid: DatapathId,
        facts: &SwitchFacts,
        policy: &Policy,
        treatment: &Treatment,
    ) -> Vec<Exit> {
        let named: Option<Vec<PortNo>> = match &policy.on {
            On::Ports(ports) => {
                let here = ports.iter().filter(|at| at.dpid == dpid);
                Some(here.map(|at| at.port).collect())
            }
            _ => None,
        };
        let queue_at = |port| self.queue_at(Location { dpid, port }, facts, treatment);
        let has_more = treatment.is_for_ingress();
        if let Some(ports) = named {
            let exits = ports.into_iter().map(|port| (Some(port), queue_at(port)));
            return exits.filter(|(_, q)| has_more || q.is_some()).collect();
        }
        let queues: BTreeMap<PortNo, Option<QueueId>> = (self.qos.ports_of(dpid))
            .map(|(port, _)| (port, queue_at(port)))
            .collect();
        let kinds: BTreeSet<Option<QueueId>> = queues.values().copied().collect();
        // A port without queues ignores a queue number. Where only one port has queues, its entry
        // counts only packets for these queues.
        if let (2.., 1, Some(Some(queue))) = (queues.len(), kinds.len(), kinds.first()) {
            return vec![(None, Some(*queue))];
        }
        let others = has_more.then_some((None, None));
        let with_queue = queues.into_iter().filter(|(_, queue)| queue.is_some());
        let with_queue = with_queue.map(|(port, queue)| (Some(port), queue));
        with_queue.chain(others).collect()
    }

    /// The queue of a treatment at a port. No queue is needed where the code point chooses the
    /// queue, and the packet's mark belongs to it: the queue would overwrite the mark with its
    /// first code point.
    fn queue_at(
        &self,
        at: Location,
        facts: &SwitchFacts,
        treatment: &Treatment,
    ) -> Option<QueueId> {
        let number = self.qos.queue_at(at, treatment.queue.as_ref()?)?;
        let dscp = &self.qos.ports.get(&at)?.queues.get(&number)?.dscp;
        let by_mark = treatment.mark.is_some_and(|mark| dscp.contains(&mark));
        let is_enough = facts.queues_by == QueuesBy::CodePoint && by_mark;
        (facts.queues_by != QueuesBy::Nobody && !is_enough).then_some(QueueId(number.into()))
    }

    /// Code points that an earlier switch may have written into packets of a policy.
    fn written_by(&self, policy: &Policy) -> BTreeSet<u8> {
        let mut written: BTreeSet<u8> = policy.treatment.mark.into_iter().collect();
        for (at, port) in &self.qos.ports {
            let by_code_point = self.network.queues_by(at.dpid) == Some(QueuesBy::CodePoint);
            let name = policy.treatment.queue.as_ref().filter(|_| by_code_point);
            let number = name.and_then(|name| self.qos.queue_at(*at, name));
            let queue = number.and_then(|number| port.queues.get(&number));
            written.extend(queue.and_then(|queue| queue.dscp.first()));
        }
        written
    }

    fn circuit(&mut self, route: &Route) {
        let circuit = &route.circuit;
        let everything = Service::default();
        let named = circuit.service.as_ref();
        let service = match named.map(|name| self.names.service(self.qos, name)) {
            Some(Some(service)) => service,
            None => &everything,
            Some(None) => {
                let owner = Owner::Circuit(circuit.name.clone());
                return self.wait(owner, "its service is gone".to_owned());
            }
        };
        let ends = (circuit.from, circuit.to);
        self.way(circuit, service, ends, &route.hops);
        if let Some(back) = route.back() {
            self.way(circuit, &service.reversed(), (ends.1, ends.0), &back);
        }
    }

    fn way(
        &mut self,
        circuit: &Circuit,
        service: &Service,
        ends: (HostName, HostName),
        hops: &[Hop],
    ) {
        let mut written = BTreeSet::new();
        for (rank, hop) in (OPENS..=u8::MAX).zip(hops) {
            let number = self.circuit_queue(circuit, *hop);
            let by = self.network.queues_by(hop.dpid);
            let number = number.filter(|_| by != Some(QueuesBy::Nobody));
            let mut services = vec![service.clone()];
            if service.dscp.is_some() {
                services.extend(written.iter().map(|mark| service.marked(*mark)));
            }
            let does = Does {
                meter: None,
                mark: None,
                queue: number.map(|number| QueueId(number.into())),
                then: Then::Output(hop.out_port),
            };
            let matchings = services.iter().flat_map(|s| s.matchings(Some(ends), false));
            for matching in matchings {
                let is_old = self.network.switches.get(&hop.dpid).map(|s| s.version);
                if is_old == Some(Version::V10) && matching.is_ipv6() {
                    continue;
                }
                let Some(matching) = matching.and(Field::InPort, hop.in_port.0) else {
                    continue;
                };
                let key = FlowKey {
                    table: PATH_TABLE,
                    priority: CIRCUIT_PRIORITY + circuit.priority,
                    matching,
                };
                let owner = Owner::Circuit(circuit.name.clone());
                self.insert(hop.dpid, key, does, rank, owner);
            }
            if by == Some(QueuesBy::CodePoint) {
                written.extend(number.and_then(|n| self.first_code_point(circuit, *hop, n)));
            }
        }
    }

    fn circuit_queue(&self, circuit: &Circuit, hop: Hop) -> Option<u8> {
        let at = hop.outlet();
        match &circuit.queue {
            Some(name) => self.qos.queue_at(at, name),
            None => {
                let own = self.circuit_queues.get(&(at, circuit.name.clone()));
                own.copied()
            }
        }
    }

    fn first_code_point(&self, circuit: &Circuit, hop: Hop, number: u8) -> Option<u8> {
        match circuit.queue {
            Some(_) => {
                let port = self.qos.ports.get(&hop.outlet())?;
                port.queues.get(&number)?.dscp.first().copied()
            }
            None => circuit.dscp,
        }
    }

    fn insert(&mut self, dpid: DatapathId, key: FlowKey, does: Does, rank: u8, owner: Owner) {
        let planned = Planned { does, rank, owner };
        self.out.flows.push((dpid, key, planned));
    }

    fn wait(&mut self, owner: Owner, why: String) {
        self.out.waiting.push((owner, why));
    }
}

impl Treatment {
    /// The part of the treatment that applies after the first switch of a path.
    fn on_the_way(&self) -> Treatment {
        Treatment {
            queue: self.queue.clone(),
            ..Treatment::default()
        }
    }

    /// Whether the treatment does more than choose a queue.
    fn is_for_ingress(&self) -> bool {
        self.meter.is_some() || self.mark.is_some() || self.drop
    }
}

/// The queue of a circuit: it guarantees the circuit's rate while the circuit exists, and takes
/// turns with others for the rest of the port.
fn own_queue(circuit: &Circuit) -> Queue {
    Queue {
        min: circuit.rate,
        dscp: circuit.dscp.into_iter().collect(),
        ..Queue::default()
    }
}

/// Queue numbers of circuits that have a rate and name no queue, by port and name.
fn circuit_queues(qos: &Qos, circuits: &Circuits) -> BTreeMap<(Location, String), u8> {
    let mut names: BTreeMap<Location, BTreeSet<&str>> = BTreeMap::new();
    for (name, route) in circuits.routes() {
        if route.circuit.queue.is_none() && route.circuit.rate.is_some() {
            for at in route.outlets() {
                names.entry(at).or_default().insert(name);
            }
        }
    }
    let mut queues = BTreeMap::new();
    for (at, names) in names {
        let stated = qos.ports.get(&at).map(|port| &port.queues);
        let stated = stated.into_iter().flat_map(|queues| queues.keys());
        let taken = stated.map(|number| u32::from(*number)).collect();
        for (name, number) in numbered(names, CIRCUIT_QUEUES, taken) {
            queues.insert((at, name.to_owned()), number as u8);
        }
    }
    queues
}

/// Chooses a number of the range for each name: the one that the name hashes to, or the next free
/// one. Names that are left over when the range is full get none.
fn numbered(
    names: BTreeSet<&str>,
    range: std::ops::RangeInclusive<u32>,
    mut taken: BTreeSet<u32>,
) -> BTreeMap<&str, u32> {
    let (first, count) = (*range.start(), range.clone().count() as u64);
    let mut numbers = BTreeMap::new();
    for name in names {
        let Some(wanted) = wanted_number(name, &range) else {
            continue;
        };
        let wanted = u64::from(wanted - first);
        let mut places = (0..count).map(|n| first + ((wanted + n) % count) as u32);
        if let Some(number) = places.find(|number| !taken.contains(number)) {
            taken.insert(number);
            numbers.insert(name, number);
        }
    }
    numbers
}

/// The number that a name hashes to; `None` for an empty range.
fn wanted_number(name: &str, range: &std::ops::RangeInclusive<u32>) -> Option<u32> {
    let count = range.clone().count() as u64;
    let wanted = Fnv1a::of(name.as_bytes()).checked_rem(count)?;
    Some(range.start() + wanted as u32)
}

#[cfg(test)]
mod tests;
