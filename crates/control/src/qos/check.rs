//! Finds all problems of the demands, each by its field.
//!
//! Some problems exist on any network, some only on this one. A disconnected switch is not checked:
//! its demands wait ([`super::plan`]), and the plan reports there if they are impossible.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

use openflow::DatapathId;

use super::asked::{Asked, Names, Scope};
use super::flow::Matching;
use super::odds::Odds;
use super::{
    CODE_POINTS, Circuit, Exceeding, Meter, Network, On, PRIORITY_MAX, Policy, PortQueues, Qos,
    Queue, QueueName, QueuesBy, Rate, Service, SwitchFacts, Treatment,
};
use crate::Location;
use crate::timeouts::HostName;

/// Maximum number of each kind.
pub const SERVICES_MAX: usize = 4096;
pub const POLICIES_MAX: usize = 4096;
pub const CIRCUITS_MAX: usize = 1024;

/// The highest number of an operator's queue; circuits get the numbers above.
pub const QUEUE_NUMBER_MAX: u8 = 127;

/// The highest priority of HTB.
const QUEUE_PRIORITY_MAX: u8 = 7;

/// The highest number of steps by which a drop precedence can be raised: there are three
/// precedences.
const REMARK_MAX: u8 = 2;

const VLAN_MAX: u16 = 4094;

/// A problem and its field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The field, such as `policies[2].queue`; a port is named by its switch and number.
    pub field: String,
    pub kind: ProblemKind,
    pub what: String,
}

/// The demands involved in a problem, besides the demand of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// The field alone: its value is out of range, whatever the others are.
    Range,
    /// No other demand: values of one demand do not fit together, or the network cannot meet it.
    Own,
    /// The service that the demand names: it does not exist.
    NoService,
    /// The service that the demand names: none of its packets is between the demand's hosts.
    NoPacket,
    /// The queue that the demand names: no port has it where it is needed.
    NoQueue,
    /// Another demand of the same priority, for the same packets.
    AtOdds,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.what)
    }
}

impl Qos {
    /// Returns all problems; empty if the demands are possible.
    pub fn check(&self, network: &Network) -> Vec<Problem> {
        let names = Names::of(self);
        let mut check = Check {
            qos: self,
            names: &names,
            network,
            problems: Vec::new(),
        };
        for (at, port) in &self.ports {
            check.port(*at, port);
        }
        check.services();
        check.policies();
        check.circuits();
        check.problems
    }

    /// The policies and circuits that name a queue of a port, as text for people: the queue cannot
    /// be removed while there are any.
    pub fn users_of(&self, at: Location, number: u8) -> Vec<String> {
        let is_it = |name: &Option<QueueName>| {
            let name = name.as_ref();
            name.and_then(|name| self.queue_at(at, name)) == Some(number)
        };
        let policies = self.policies.iter().filter(|policy| {
            let here = match &policy.on {
                On::Ports(ports) => ports.contains(&at),
                on => on.concerns(at.dpid),
            };
            here && is_it(&policy.treatment.queue)
        });
        let policies = policies.map(|policy| format!("policy '{}'", policy.name));
        let circuits = self.circuits.iter().filter(|c| is_it(&c.queue));
        policies
            .chain(circuits.map(|circuit| format!("circuit '{}'", circuit.name)))
            .collect()
    }
}

/// The reason that a switch cannot apply a treatment; `None` if it can.
pub(super) fn obstacle(facts: &SwitchFacts, treatment: &Treatment) -> Option<&'static str> {
    if !facts.has_policy_table() {
        return Some("it has one table, and policies stand in a second");
    }
    let exceeding = treatment.meter?.exceeding;
    match (facts.meters, exceeding) {
        (None, _) => Some("it has no meters"),
        (Some(meters), Exceeding::Remark(_)) if !meters.can_remark => {
            Some("its meters cannot remark, only drop")
        }
        (Some(_), _) => None,
    }
}

impl Asked {
    /// Returns all problems of the services and policies that `scope` names, if there were none
    /// before the change.
    pub fn check(&mut self, scope: &Scope, network: &Network) -> Vec<Problem> {
        let mut odds = Vec::new();
        for name in &scope.policies {
            let others = self.odds().against(name);
            let others = others.iter().filter_map(|n| self.names().policy_place(n));
            let other = others.min();
            odds.extend(self.names().policy_place(name).zip(other));
        }
        let qos = self.qos();
        let mut check = Check {
            qos,
            names: self.names(),
            network,
            problems: Vec::new(),
        };
        check.count("services", qos.services.len(), SERVICES_MAX);
        check.count("policies", qos.policies.len(), POLICIES_MAX);
        for name in &scope.services {
            let place = self.names().service_place(name);
            if let Some((n, service)) = place.and_then(|n| Some((n, qos.services.get(n)?))) {
                check.named("services", n, name);
                check.service(n, service);
            }
        }
        for name in &scope.policies {
            let place = self.names().policy_place(name);
            if let Some((n, policy)) = place.and_then(|n| Some((n, qos.policies.get(n)?))) {
                check.named("policies", n, name);
                check.policy(n, policy);
            }
        }
        for (n, other) in odds {
            check.at_odds(n, other);
        }
        let has_other_service = |circuit: &Circuit| {
            let service = circuit.service.as_ref();
            service.is_some_and(|name| scope.services.contains(name))
        };
        if qos.circuits.iter().any(has_other_service) {
            check.circuits();
        }
        check.problems
    }
}

struct Check<'a> {
    qos: &'a Qos,
    names: &'a Names,
    network: &'a Network,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn wrong(&mut self, field: String, what: impl Into<String>) {
        self.wrong_by(ProblemKind::Own, field, what);
    }

    fn wrong_by(&mut self, kind: ProblemKind, field: String, what: impl Into<String>) {
        let what = what.into();
        self.problems.push(Problem { field, kind, what });
    }

    /// A number that is out of its range.
    fn out_of_range(
        &mut self,
        field: String,
        value: impl fmt::Display,
        range: RangeInclusive<u64>,
    ) {
        let what = format!("{value} is not {} to {}", range.start(), range.end());
        self.wrong_by(ProblemKind::Range, field, what);
    }

    fn port(&mut self, at: Location, port: &PortQueues) {
        let field = format!("ports[{at}]");
        if !at.port.is_ordinary() {
            self.wrong(field.clone(), "it is no port that can have queues");
        }
        if let Some(facts) = self.network.switches.get(&at.dpid) {
            match facts.ports.get(&at.port) {
                None => self.wrong(field.clone(), "the switch has no such port"),
                Some(Some(rate)) if port.rate > *rate => {
                    let what = format!("{} is above what the port has, {rate}", port.rate);
                    self.wrong(format!("{field}.rate"), what);
                }
                Some(_) => {}
            }
            if facts.queues_by == QueuesBy::Nobody {
                let what = "nobody reaches the switch's database (OVSDB), where queues are made";
                self.wrong(field.clone(), what);
            }
        }
        if port.rate == Rate::ZERO {
            self.wrong(format!("{field}.rate"), "say that of the port");
        }
        let sum = port.min_sum();
        if sum > port.rate {
            let what = format!(
                "the minima are {sum} together, and the port has {}",
                port.rate
            );
            self.wrong(format!("{field}.queues"), what);
        }
        let by_code_point = self.network.queues_by(at.dpid) == Some(QueuesBy::CodePoint);
        let mut classes: BTreeMap<&str, u8> = BTreeMap::new();
        let mut chosen: BTreeMap<u8, u8> = BTreeMap::new();
        for (number, queue) in &port.queues {
            let field = format!("{field}.queues[{number}]");
            self.queue(&field, *number, queue, port.rate);
            if let Some(class) = &queue.class
                && let Some(other) = classes.insert(class, *number)
            {
                let what = format!("'{class}' is queue {other}'s already");
                self.wrong(format!("{field}.class"), what);
            }
            for dscp in &queue.dscp {
                match chosen.insert(*dscp, *number) {
                    Some(other) if other != *number => {
                        let what = format!("{dscp} chooses queue {other} already");
                        self.wrong(format!("{field}.dscp"), what);
                    }
                    _ => {}
                }
            }
            if by_code_point && *number != 0 && queue.dscp.is_empty() {
                let what = "give it one: this switch's datapath ignores set_queue, so that a queue \
                            is chosen by the code point";
                self.wrong(format!("{field}.dscp"), what);
            }
        }
    }

    fn queue(&mut self, field: &str, number: u8, queue: &Queue, rate: Rate) {
        if number > QUEUE_NUMBER_MAX {
            let what = format!("numbers above {QUEUE_NUMBER_MAX} are those that circuits get");
            self.wrong(field.to_owned(), what);
        }
        for (name, value) in [("min", queue.min), ("max", queue.max)] {
            let Some(value) = value else {
                continue;
            };
            let field = format!("{field}.{name}");
            if value == Rate::ZERO {
                self.wrong(field, "leave it out, or say a rate");
            } else if value > rate {
                self.wrong(field, format!("{value} is above the port's rate, {rate}"));
            }
        }
        if let (Some(min), Some(max)) = (queue.min, queue.max)
            && min > max
        {
            self.wrong(format!("{field}.min"), format!("{min} is above max, {max}"));
        }
        if queue.priority > QUEUE_PRIORITY_MAX {
            let field = format!("{field}.priority");
            self.out_of_range(field, queue.priority, 0..=u64::from(QUEUE_PRIORITY_MAX));
        }
        if queue.burst_bytes == Some(0) {
            self.wrong(format!("{field}.burst"), "nothing could be sent with it");
        }
        for dscp in &queue.dscp {
            self.code_point(format!("{field}.dscp"), Some(*dscp));
        }
        if number == 0 && !queue.dscp.is_empty() {
            let what = "leave it out: queue 0 takes what no other does";
            self.wrong(format!("{field}.dscp"), what);
        }
    }

    fn code_point(&mut self, field: String, dscp: Option<u8>) {
        if let Some(dscp) = dscp.filter(|dscp| *dscp >= CODE_POINTS) {
            self.out_of_range(field, dscp, 0..=u64::from(CODE_POINTS - 1));
        }
    }

    fn count(&mut self, kind: &str, count: usize, max: usize) {
        if count > max {
            self.wrong(kind.to_owned(), format!("{count} are more than {max}"));
        }
    }

    /// Checks that no name is missing and no two names are the same.
    fn names<'a>(&mut self, kind: &str, names: impl Iterator<Item = &'a String>) {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for (n, name) in names.enumerate() {
            self.named(kind, n, name);
            if let Some(other) = seen.insert(name, n).filter(|_| !name.is_empty()) {
                let what = format!("'{name}' is {kind}[{other}]'s already");
                self.wrong(format!("{kind}[{n}].name"), what);
            }
        }
    }

    fn named(&mut self, kind: &str, n: usize, name: &str) {
        if name.is_empty() {
            self.wrong(format!("{kind}[{n}].name"), "it needs one");
        }
    }

    fn services(&mut self) {
        let qos = self.qos;
        self.count("services", qos.services.len(), SERVICES_MAX);
        self.names("services", qos.services.iter().map(|s| &s.name));
        for (n, service) in qos.services.iter().enumerate() {
            self.service(n, service);
        }
    }

    fn service(&mut self, n: usize, service: &Service) {
        let field = |name: &str| format!("services[{n}].{name}");
        let ports = [
            ("src_port", service.src_port),
            ("dst_port", service.dst_port),
        ];
        for (name, port) in ports {
            let has_ports = service.proto.is_some_and(|p| p.port_fields().is_some());
            if port.is_some() && !has_ports {
                self.wrong(field(name), "only tcp, udp and sctp have ports: say proto");
            }
        }
        self.code_point(field("dscp"), service.dscp);
        if let Some(vlan) = service.vlan.filter(|vlan| *vlan > VLAN_MAX) {
            self.out_of_range(field("vlan"), vlan, 0..=u64::from(VLAN_MAX));
        }
        if service.matchings(None, false).is_empty() {
            let what = "no packet is from src and to dst: one is IPv4, one IPv6";
            self.wrong(field("dst"), what);
        }
    }

    fn policies(&mut self) {
        let qos = self.qos;
        self.count("policies", qos.policies.len(), POLICIES_MAX);
        self.names("policies", qos.policies.iter().map(|p| &p.name));
        for (n, policy) in qos.policies.iter().enumerate() {
            self.policy(n, policy);
        }
        if qos.policies.len() <= POLICIES_MAX {
            self.policies_at_odds();
        }
    }

    fn policy(&mut self, n: usize, policy: &Policy) {
        let field = |name: &str| format!("policies[{n}].{name}");
        self.priority(field("priority"), policy.priority);
        if self.service_of(&policy.service).is_none() {
            let what = format!("there is no service '{}'", policy.service);
            self.wrong_by(ProblemKind::NoService, field("service"), what);
        }
        self.treatment(n, policy);
        self.place(&field("on"), policy);
        self.policy_queue(field("queue"), policy);
    }

    fn service_of(&self, name: &str) -> Option<&Service> {
        self.names.service(self.qos, name)
    }

    fn priority(&mut self, field: String, priority: u16) {
        if priority > PRIORITY_MAX {
            self.out_of_range(field, priority, 0..=u64::from(PRIORITY_MAX));
        }
    }

    fn treatment(&mut self, n: usize, policy: &Policy) {
        let field = |name: &str| format!("policies[{n}].{name}");
        let treatment = &policy.treatment;
        if *treatment == Treatment::default() {
            let what = "it does nothing: give it a queue, a meter, a mark, or drop";
            self.wrong(format!("policies[{n}]"), what);
        }
        let does_more = treatment.queue.is_some() || treatment.mark.is_some();
        if treatment.drop && (does_more || treatment.meter.is_some()) {
            let what = "what is dropped needs no queue, meter or mark";
            self.wrong(field("drop"), what);
        }
        self.code_point(field("mark"), treatment.mark);
        if let Some(meter) = treatment.meter {
            self.meter(&field("meter"), meter);
        }
    }

    fn meter(&mut self, field: &str, meter: Meter) {
        if meter.rate == Rate::ZERO {
            self.wrong(format!("{field}.rate"), "say a rate, or drop");
        } else if meter.rate.kbit() > u64::from(u32::MAX) {
            let what = format!("{} is above what a meter counts", meter.rate);
            self.wrong(format!("{field}.rate"), what);
        }
        if meter.burst_bytes == Some(0) {
            self.wrong(format!("{field}.burst"), "nothing could be sent with it");
        }
        if let Exceeding::Remark(steps) = meter.exceeding
            && !(1..=REMARK_MAX).contains(&steps)
        {
            let field = format!("{field}.remark");
            self.out_of_range(field, steps, 1..=u64::from(REMARK_MAX));
        }
    }

    /// Checks that the place of a policy exists and can apply it.
    fn place(&mut self, field: &str, policy: &Policy) {
        match &policy.on {
            On::Ports(ports) => {
                if ports.is_empty() {
                    self.wrong(field.to_owned(), "name a port");
                }
                for at in ports {
                    let facts = self.network.switches.get(&at.dpid);
                    if facts.is_some_and(|facts| !facts.ports.contains_key(&at.port)) {
                        self.wrong(field.to_owned(), format!("there is no port {at}"));
                    }
                }
            }
            On::Switches(switches) if switches.is_empty() => {
                self.wrong(field.to_owned(), "name a switch");
            }
            On::Path { from, to } => self.ends(field, *from, *to),
            On::Switches(_) | On::Everywhere => {}
        }
        for dpid in policy.on.named_switches() {
            let facts = self.network.switches.get(&dpid);
            if let Some(why) = facts.and_then(|facts| obstacle(facts, &policy.treatment)) {
                self.wrong(
                    field.to_owned(),
                    format!("switch {dpid} cannot do it: {why}"),
                );
            }
        }
        let service = self.service_of(&policy.service);
        let matchings = service.map(|s| s.matchings(policy.on.ends(), false));
        if service.is_some_and(|s| !s.matchings(None, false).is_empty())
            && matchings.is_some_and(|matchings| matchings.is_empty())
        {
            let what = "its service has no packet between these hosts";
            self.wrong_by(ProblemKind::NoPacket, field.to_owned(), what);
        }
    }

    fn ends(&mut self, field: &str, from: HostName, to: HostName) {
        if from == to {
            self.wrong(format!("{field}.to"), format!("{to} is where it begins"));
        }
    }

    /// Checks that a named queue exists: at every named port, otherwise at one port at least.
    fn policy_queue(&mut self, field: String, policy: &Policy) {
        let Some(name) = &policy.treatment.queue else {
            return;
        };
        if let On::Ports(ports) = &policy.on {
            for at in ports {
                if self.qos.queue_at(*at, name).is_none() {
                    let what = format!("port {at} has no queue {name}");
                    self.wrong_by(ProblemKind::NoQueue, field.clone(), what);
                }
            }
            return;
        }
        if let On::Switches(switches) = &policy.on {
            for dpid in switches {
                if !self.has_queue(name, Some(*dpid)) {
                    let what = format!("no port of switch {dpid} has a queue {name}");
                    self.wrong_by(ProblemKind::NoQueue, field.clone(), what);
                }
            }
        } else if !self.has_queue(name, None) {
            let what = format!("no port has a queue {name}");
            self.wrong_by(ProblemKind::NoQueue, field, what);
        }
    }

    fn has_queue(&self, name: &QueueName, dpid: Option<DatapathId>) -> bool {
        let mut ports = self.qos.ports.keys();
        ports.any(|at| {
            dpid.is_none_or(|dpid| dpid == at.dpid) && self.qos.queue_at(*at, name).is_some()
        })
    }

    /// Checks that no two policies of one priority can match the same packet: the winner would be
    /// undefined.
    fn policies_at_odds(&mut self) {
        let qos = self.qos;
        let mut odds = Odds::default();
        for (n, policy) in qos.policies.iter().enumerate() {
            let Some(service) = self.service_of(&policy.service) else {
                continue;
            };
            let matchings = service.matchings(policy.on.ends(), false);
            odds.insert_policy(n, policy, matchings);
            if let Some(other) = odds.against(&n).into_iter().next() {
                self.at_odds(n, other);
            }
        }
    }

    fn at_odds(&mut self, n: usize, other: usize) {
        let what = format!(
            "packets can be of this and of policies[{other}], which has the same priority and \
             another treatment"
        );
        self.wrong_by(ProblemKind::AtOdds, format!("policies[{n}].priority"), what);
    }

    fn circuits(&mut self) {
        let qos = self.qos;
        self.count("circuits", qos.circuits.len(), CIRCUITS_MAX);
        self.names("circuits", qos.circuits.iter().map(|c| &c.name));
        for (n, circuit) in qos.circuits.iter().enumerate() {
            self.circuit(n, circuit);
        }
        if qos.circuits.len() <= CIRCUITS_MAX {
            self.circuits_at_odds();
        }
        let by_code_point = |facts: &SwitchFacts| facts.queues_by == QueuesBy::CodePoint;
        if self.network.switches.values().any(by_code_point) {
            self.circuits_by_code_point();
        }
    }

    fn circuit(&mut self, n: usize, circuit: &Circuit) {
        let field = |name: &str| format!("circuits[{n}].{name}");
        self.priority(field("priority"), circuit.priority);
        for (name, host) in [("from", circuit.from), ("to", circuit.to)] {
            if let HostName::Net(_) = host {
                self.wrong(field(name), "a circuit is between two hosts, not networks");
            }
        }
        self.ends(&format!("circuits[{n}]"), circuit.from, circuit.to);
        self.code_point(field("dscp"), circuit.dscp);
        if circuit.rate == Some(Rate::ZERO) {
            self.wrong(field("rate"), "leave it out, or say a rate");
        }
        if circuit.admission && circuit.rate.is_none() {
            self.wrong(
                field("rate"),
                "say what has to be free where it is admitted",
            );
        }
        if let Some(name) = &circuit.queue
            && !self.has_queue(name, None)
        {
            let what = format!("no port has a queue {name}");
            self.wrong_by(ProblemKind::NoQueue, field("queue"), what);
        }
        match &circuit.service {
            Some(name) if self.service_of(name).is_none() => {
                let what = format!("there is no service '{name}'");
                self.wrong_by(ProblemKind::NoService, field("service"), what);
            }
            _ if self.matchings(circuit).is_some_and(|m| m.is_empty()) => {
                let what = "it has no packet between these hosts";
                self.wrong_by(ProblemKind::NoPacket, field("service"), what);
            }
            _ => {}
        }
    }

    /// The matches of both directions; `None` without its service.
    fn matchings(&self, circuit: &Circuit) -> Option<Vec<Matching>> {
        let service = match &circuit.service {
            Some(name) => self.service_of(name)?.clone(),
            None => Service::default(),
        };
        let (from, to) = (circuit.from, circuit.to);
        let mut matchings = service.matchings(Some((from, to)), false);
        if circuit.both {
            matchings.extend(service.reversed().matchings(Some((to, from)), false));
        }
        Some(matchings)
    }

    fn circuits_at_odds(&mut self) {
        let qos = self.qos;
        let mut odds = Odds::default();
        for (n, circuit) in qos.circuits.iter().enumerate() {
            let Some(matchings) = self.matchings(circuit) else {
                continue;
            };
            odds.insert(n, circuit.priority, None, &On::Everywhere, matchings);
            if let Some(other) = odds.against(&n).into_iter().next() {
                let what = format!(
                    "packets can be of this and of circuits[{other}], which has the same priority"
                );
                self.wrong_by(ProblemKind::AtOdds, format!("circuits[{n}].priority"), what);
            }
        }
    }

    /// Checks that a circuit's own queue has a code point of its own, where code points choose the
    /// queue.
    fn circuits_by_code_point(&mut self) {
        let mut taken: BTreeMap<u8, String> = BTreeMap::new();
        for (at, port) in &self.qos.ports {
            for (number, queue) in &port.queues {
                let whose = format!("queue {number} of port {at}");
                taken.extend(queue.dscp.iter().map(|dscp| (*dscp, whose.clone())));
            }
        }
        for (n, circuit) in self.qos.circuits.iter().enumerate() {
            if circuit.queue.is_some() || circuit.rate.is_none() {
                continue;
            }
            let field = format!("circuits[{n}].dscp");
            let Some(dscp) = circuit.dscp else {
                let what = "give it one: there are switches whose datapath ignores set_queue, so \
                            that its queue is chosen by the code point";
                self.wrong(field, what);
                continue;
            };
            if let Some(whose) = taken.insert(dscp, format!("circuits[{n}]")) {
                self.wrong(field, format!("{dscp} chooses {whose} already"));
            }
        }
    }
}

impl On {
    pub(super) fn concerns(&self, dpid: DatapathId) -> bool {
        match self {
            On::Ports(ports) => ports.iter().any(|at| at.dpid == dpid),
            On::Switches(switches) => switches.contains(&dpid),
            On::Path { .. } | On::Everywhere => true,
        }
    }

    pub(crate) fn named_switches(&self) -> BTreeSet<DatapathId> {
        match self {
            On::Ports(ports) => ports.iter().map(|at| at.dpid).collect(),
            On::Switches(switches) => switches.clone(),
            On::Path { .. } | On::Everywhere => BTreeSet::new(),
        }
    }

    /// The hosts to which the policy is narrowed.
    pub(super) fn ends(&self) -> Option<(HostName, HostName)> {
        match self {
            On::Path { from, to } => Some((*from, *to)),
            _ => None,
        }
    }

    /// Whether there is a place where both apply.
    pub(super) fn meets(&self, other: &On) -> bool {
        match (self, other) {
            (On::Ports(ports), On::Ports(others)) => !ports.is_disjoint(others),
            (On::Ports(_) | On::Switches(_), _) => {
                let mut switches = self.named_switches().into_iter();
                switches.any(|dpid| other.concerns(dpid))
            }
            (_, On::Ports(_) | On::Switches(_)) => other.meets(self),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests;
