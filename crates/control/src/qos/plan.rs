//! What each switch is to hold: entries, meters, queues.
//!
//! The same [`Qos`], [`Network`] and [`Circuits`] make the same plan, entry for entry: numbers that
//! somebody must choose (meters, queues of circuits) hang on names, so that a policy that is added
//! changes none of another.

use std::collections::{BTreeMap, BTreeSet};

use openflow::{DatapathId, Field, MeterId, PortNo, QueueId, Version};

use super::check::obstacle;
use super::circuits::{Circuits, Hop, Route};
use super::flow::{Does, Flow, FlowKey, Matching, OPENS, PATH_TABLE, POLICY_TABLE, Then};
use super::{
    Circuit, Meter, Network, On, Policy, PortQueues, Qos, Queue, QueuesBy, Service, SwitchFacts,
    Treatment,
};
use crate::controller::Location;
use crate::timeouts::HostName;

/// Above the entries of pairs and of their rules, also those that drop; below what keeps the
/// controller reachable.
const CIRCUIT_PRIORITY: u16 = 3_001;
/// In the policy table, above the entry that adds nothing.
const POLICY_PRIORITY: u16 = 2;

/// Meters that are ours where a switch has so many; below are everybody's, from 1 on. Of fewer the
/// upper half is.
const METERS: std::ops::RangeInclusive<u32> = 0x6000..=0x9fff;
/// Queues of circuits, above those that anybody states.
const CIRCUIT_QUEUES: std::ops::RangeInclusive<u32> = 128..=255;

/// All switches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub switches: BTreeMap<DatapathId, SwitchPlan>,
    /// What cannot be yet, and why: it is planned again when the network has changed.
    pub waiting: BTreeSet<(Owner, String)>,
}

/// What a switch is to hold, or holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchPlan {
    pub flows: BTreeMap<FlowKey, Planned>,
    pub meters: BTreeMap<MeterId, Meter>,
    pub ports: BTreeMap<PortNo, PortPlan>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub does: Does,
    /// As [`Flow::rank`].
    pub rank: u8,
    pub owner: Owner,
}

/// Whose an entry is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// Of the table, or of whom nobody remembers.
    Nobody,
    Policy(String),
    Circuit(String),
}

/// What a port needs. With [`QueuesBy::SetQueue`], a QoS record of type `linux-htb` and its queues.
/// With [`QueuesBy::CodePoint`], one of type `linux-noop` whose queues have the first code point
/// each, and in the kernel a class for each queue, filters for its code points, and short leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortPlan {
    pub by: QueuesBy,
    pub queues: PortQueues,
}

impl Plan {
    pub fn new(qos: &Qos, network: &Network, circuits: &Circuits) -> Plan {
        let mut planner = Planner {
            qos,
            network,
            circuit_queues: circuit_queues(qos, circuits),
            meter_ids: BTreeMap::new(),
            plan: Plan::default(),
        };
        planner.ports(circuits);
        for policy in &qos.policies {
            planner.policy(policy);
        }
        for (_, route) in circuits.routes() {
            planner.circuit(route);
        }
        for switch in planner.plan.switches.values_mut() {
            if switch.has_policies() {
                let miss = Flow::policy_miss();
                let planned = Planned {
                    does: miss.does,
                    rank: miss.rank,
                    owner: Owner::Nobody,
                };
                switch.flows.insert(miss.key, planned);
            }
        }
        planner.plan
    }
}

impl SwitchPlan {
    /// Whether paths are to lead on to the policy table.
    pub fn has_policies(&self) -> bool {
        self.flows.keys().any(|key| key.table == POLICY_TABLE)
    }

    /// Takes in what a switch says that it holds.
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
    /// Whether a switch would do the same, whoever asked for it.
    pub fn is_as(&self, other: &Planned) -> bool {
        (self.does, self.rank) == (other.does, other.rank)
    }
}

/// Whose an entry of a circuit is, by what it matches, and whether it is of the answers.
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
    network: &'a Network,
    /// Queues that circuits have of their own.
    circuit_queues: BTreeMap<(Location, String), u8>,
    /// By how many a switch has, of policies by name.
    meter_ids: BTreeMap<u32, BTreeMap<&'a str, u32>>,
    plan: Plan,
}

/// A way out of a switch for a policy: by one port or by whichever, and into which queue.
type Exit = (Option<PortNo>, Option<QueueId>);

impl Planner<'_> {
    fn ports(&mut self, circuits: &Circuits) {
        let mut ports: BTreeMap<Location, PortQueues> = BTreeMap::new();
        for (at, stated) in &self.qos.ports {
            let mut stated = stated.clone();
            for queue in stated.queues.values_mut() {
                // A name is ours: no switch holds it.
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
        for (at, queues) in ports {
            match self.network.queues_by(at.dpid) {
                None | Some(QueuesBy::Nobody) => {}
                Some(by) => {
                    let switch = self.plan.switches.entry(at.dpid).or_default();
                    switch.ports.insert(at.port, PortPlan { by, queues });
                }
            }
        }
    }

    fn policy(&mut self, policy: &Policy) {
        let owner = Owner::Policy(policy.name.clone());
        let Some(service) = self.qos.service(&policy.service) else {
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
        self.plan.waiting.extend(waiting);
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
            let switch = self.plan.switches.entry(dpid).or_default();
            switch.meters.insert(id, meter.whole());
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
                // What is of one port is above what is of any, for the same policy.
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

    /// The same on every switch that has as many.
    fn meter_id(&mut self, policy: &Policy, max: u32) -> Option<MeterId> {
        let qos = self.qos;
        let ids = self.meter_ids.entry(max).or_insert_with(|| {
            let metered = qos.policies.iter().filter(|p| p.treatment.meter.is_some());
            let names = metered.map(|policy| &policy.name[..]).collect();
            numbered(names, meter_numbers(max), BTreeSet::new())
        });
        ids.get(&policy.name[..]).copied().map(MeterId)
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
        // A port without queues takes no notice of a number. Where one port alone has queues, its
        // entry counts what they are to get and nothing else.
        if let (2.., 1, Some(Some(queue))) = (queues.len(), kinds.len(), kinds.first()) {
            return vec![(None, Some(*queue))];
        }
        let others = has_more.then_some((None, None));
        let with_queue = queues.into_iter().filter(|(_, queue)| queue.is_some());
        let with_queue = with_queue.map(|(port, queue)| (Some(port), queue));
        with_queue.chain(others).collect()
    }

    /// The queue of a treatment at a port. Where the code point chooses and the packet gets one that
    /// is of the queue, that is enough: the queue's first would be written over it.
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

    /// Code points that a switch before may have given to packets of a policy.
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
        let service = match named.map(|name| self.qos.service(name)) {
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
        let switch = self.plan.switches.entry(dpid).or_default();
        // Of two for the same packets, which checking refuses, the one named first stays.
        switch.flows.entry(key).or_insert(planned);
    }

    fn wait(&mut self, owner: Owner, why: String) {
        self.plan.waiting.insert((owner, why));
    }
}

impl Treatment {
    /// What is left of it after the first switch of a path.
    fn on_the_way(&self) -> Treatment {
        Treatment {
            queue: self.queue.clone(),
            ..Treatment::default()
        }
    }

    /// Whether it does more than choose a queue.
    fn is_for_ingress(&self) -> bool {
        self.meter.is_some() || self.mark.is_some() || self.drop
    }
}

/// Its own for as long as it is there, and the rest of the port by turns with others.
fn own_queue(circuit: &Circuit) -> Queue {
    Queue {
        min: circuit.rate,
        dscp: circuit.dscp.into_iter().collect(),
        ..Queue::default()
    }
}

/// Numbers of the queues of circuits that name none and have a rate, by port and name.
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

/// A number of the range for each name: the one that the name itself says, or the next that is
/// free. Names that are left over when the range is full get none.
fn numbered(
    names: BTreeSet<&str>,
    range: std::ops::RangeInclusive<u32>,
    mut taken: BTreeSet<u32>,
) -> BTreeMap<&str, u32> {
    let (first, count) = (*range.start(), range.clone().count() as u64);
    let mut numbers = BTreeMap::new();
    for name in names {
        let wanted = hash(name).checked_rem(count).unwrap_or(0);
        let mut places = (0..count).map(|n| first + ((wanted + n) % count) as u32);
        if let Some(number) = places.find(|number| !taken.contains(number)) {
            taken.insert(number);
            numbers.insert(name, number);
        }
    }
    numbers
}

/// FNV-1a: the same on every machine, and all that is asked of it is to be spread.
fn hash(name: &str) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325u64;
    name.bytes().fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
