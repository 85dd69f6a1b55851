//! Services, policies and circuits: the operator's demands on the data path, and their
//! consequences.
//!
//! [`Qos`] holds the demands. [`check`] finds all problems in them, by field. [`plan`] turns them,
//! with the known facts of the [`Network`], into the wanted state of each switch: flow entries,
//! meters, queues. [`circuits`] finds routes with room. [`diff`] lists the messages, and their
//! order, where the wanted state differs from the held one. [`flow`] is an entry as a value and on
//! the wire. [`verify`] decides from counters whether packets get the demanded treatment.
//!
//! # How a policy and a path share a packet
//!
//! A path depends on hosts (in-port, sender, receiver), a policy on services (protocol, ports, code
//! point). A packet has both a path and a policy, but matches one entry of a table. So there are
//! two tables, the path table first:
//!
//! ```text
//! table 0  path     write_metadata:OUT, write_actions(output:OUT), goto_table:1
//! table 1  policy   [meter:M] apply_actions([set_field:DSCP] [set_queue:Q])    or clear_actions
//!          nothing  an entry of priority 0 that adds nothing
//! ```
//!
//! Alternatives that were rejected:
//!
//! - *Policies first, paths in table 1*: table 0 does not know the out-port yet. A queue belongs to
//!   the port by which a packet leaves; number 1 may be video at one port and backup at the next.
//!   With the path first, its output is in the metadata, which every switch of 1.3 can match. All
//!   entries would also move, and edges, statistics and reconciliation would look for them
//!   elsewhere.
//! - *The treatment merged into the entries of a path* multiplies pairs by services. Each entry has
//!   its own timeout, and the service's entry takes the packets that keep the pair's entry alive.
//!   Edges would have to know services; they answer a packet in less than a microsecond because
//!   they know only hosts.
//!
//! Consequences of the path being first:
//!
//! - *Expiry*: entries of table 1 have no timeout, and have their own counters. Paths begin and
//!   expire as they do without policies.
//! - *Re-routing*: the new path's entry carries its own port, so that the policies of that port
//!   apply from its first packet on. This needs no message.
//! - *The edge fast path*: the edge's entry is longer by a constant. The edge checks nothing more.
//! - *Reconciliation*: paths are compared as before. Policy entries are all known beforehand: the
//!   same plan twice needs no message.
//! - *Turning policies on and off* loses nothing: an entry that only outputs works beside one that
//!   continues to table 1. So the controller replaces the entries one by one once table 1 has its
//!   lowest entry, and replaces them back before that entry is deleted. The lowest entry is set
//!   first and deleted last: without it, table 1 has no other entry of ours.
//!
//! Not covered: a packet that the controller receives and forwards (the first of a pair) gets no
//! policy.
//!
//! Switches execute action sets in the order of the specification, with the output last. So mark
//! and queue are set before the output.
//!
//! A circuit is a separate path. Its entries are complete, with their output, in table 0 above the
//! entries of pairs. So a circuit also works with OpenFlow 1.0 (ENQUEUE), which has one table and
//! no meter; policies are refused there. The entry at the ingress is set last and deleted first.
//! Without it no packet uses the circuit, so the circuit exists completely or not at all, whenever
//! auster is killed.
//!
//! # One entry for both datapaths
//!
//! The kernel's datapath puts a packet into the queue that `set_queue` names. Open vSwitch's
//! userspace datapath does not. But if the port has a QoS record of type `linux-noop`, that
//! datapath writes the code point of a queue's record into the packets of `set_queue`. Filters of
//! the kernel then choose the class by that code point. So the entries are the same, and
//! [`plan::PortPlan`] lists the needs of a port. A packet then has another code point at the next
//! switch, where policies match a service by either code point.

pub mod asked;
pub mod check;
pub mod circuits;
pub mod diff;
pub mod flow;
mod odds;
pub mod plan;
mod rate;
pub mod service;
pub mod verify;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use openflow::{DatapathId, PortNo, Version};

use crate::Location;
use crate::timeouts::HostName;
pub use rate::Rate;
pub use service::{Proto, Service};

/// The number of code points: six bits.
pub const CODE_POINTS: u8 = 64;

/// The highest priority of policies, and of circuits; the greater priority wins.
pub const PRIORITY_MAX: u16 = 9_999;

/// The operator's demands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Qos {
    pub ports: BTreeMap<Location, PortQueues>,
    pub services: Vec<Service>,
    pub policies: Vec<Policy>,
    pub circuits: Vec<Circuit>,
}

/// The queues of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortQueues {
    /// The rate of the port, or its limit.
    pub rate: Rate,
    /// The queues by the number in `set_queue`. Number 0, stated or not, gets the packets that no
    /// other queue gets.
    pub queues: BTreeMap<u8, Queue>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// The class of service, so that a policy can name the queue without its number.
    pub class: Option<String>,
    /// The guaranteed rate.
    pub min: Option<Rate>,
    /// The maximum rate; the port's rate if not stated.
    pub max: Option<Rate>,
    pub burst_bytes: Option<u64>,
    /// 0 is served first.
    pub priority: u8,
    /// Code points that choose the queue where the datapath cannot. Packets put in the queue get
    /// the first code point.
    pub dscp: Vec<u8>,
}

/// The treatment of a service's packets, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub name: String,
    /// The name of its service.
    pub service: String,
    /// The priority: of several policies for one packet, only the one with the greatest applies.
    pub priority: u16,
    pub treatment: Treatment,
    pub on: On,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Treatment {
    pub queue: Option<QueueName>,
    pub meter: Option<Meter>,
    /// The code point that packets get.
    pub mark: Option<u8>,
    pub drop: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueName {
    Number(u8),
    Class(String),
}

/// A limit for all packets of a policy on one switch together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    pub rate: Rate,
    /// The burst; the switch's choice if not stated.
    pub burst_bytes: Option<u64>,
    pub exceeding: Exceeding,
}

/// The treatment of packets above a meter's rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exceeding {
    #[default]
    Drop,
    /// Raises their drop precedence by this number of steps.
    Remark(u8),
}

/// The place where a policy applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    /// Packets that leave by these ports.
    Ports(BTreeSet<Location>),
    Switches(BTreeSet<DatapathId>),
    /// Packets between two hosts, on any path: the queue applies at every switch; meter, mark and
    /// drop apply where the packets come in.
    Path {
        from: HostName,
        to: HostName,
    },
    Everywhere,
}

/// A dedicated route for a service between two hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circuit {
    pub name: String,
    pub from: HostName,
    pub to: HostName,
    /// The service; all packets between the two if not stated.
    pub service: Option<String>,
    /// The rate. Without a `queue`, the circuit gets its own queue of this rate at each port.
    pub rate: Option<Rate>,
    pub queue: Option<QueueName>,
    pub priority: u16,
    /// The code point of the circuit's own queue, where code points choose the queue.
    pub dscp: Option<u8>,
    /// Whether the circuit is set up only where there is room, and reserves the room.
    pub admission: bool,
    /// Whether the return direction has the same route and the same room.
    pub both: bool,
}

/// The known facts of the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    pub switches: BTreeMap<DatapathId, SwitchFacts>,
    /// Both directions of each link.
    pub links: BTreeMap<Location, Location>,
    /// The named hosts whose place is known.
    pub hosts: BTreeMap<HostName, Location>,
}

/// The known facts of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchFacts {
    pub version: Version,
    pub table_count: u8,
    pub queues_by: QueuesBy,
    pub meters: Option<MeterFacts>,
    /// The present ports, with their rates where known.
    pub ports: BTreeMap<PortNo, Option<Rate>>,
}

/// The method for making a switch's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuesBy {
    /// Records in Open vSwitch's database suffice: the kernel's datapath.
    SetQueue,
    /// Records, and classes and filters of the kernel beside the switch: the userspace datapath.
    CodePoint,
    /// The switch's database is out of reach.
    Nobody,
}

/// The facts that the switch reports in METER_FEATURES.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterFacts {
    pub max: u32,
    pub can_remark: bool,
}

impl Qos {
    pub fn service(&self, name: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.name == name)
    }

    /// The number of a queue at a port, if the port has it.
    pub fn queue_at(&self, at: Location, name: &QueueName) -> Option<u8> {
        let queues = &self.ports.get(&at)?.queues;
        match name {
            QueueName::Number(number) => queues.contains_key(number).then_some(*number),
            QueueName::Class(class) => {
                let mut queues = queues.iter();
                let found = queues.find(|(_, queue)| queue.class.as_ref() == Some(class));
                found.map(|(number, _)| *number)
            }
        }
    }

    /// Ports of a switch that have queues.
    pub fn ports_of(&self, dpid: DatapathId) -> impl Iterator<Item = (PortNo, &PortQueues)> {
        let ports = self.ports.iter();
        ports
            .filter(move |(at, _)| at.dpid == dpid)
            .map(|(at, port)| (at.port, port))
    }
}

impl PortQueues {
    /// The sum of the rates that the queues guarantee.
    pub fn min_sum(&self) -> Rate {
        self.queues.values().filter_map(|queue| queue.min).sum()
    }
}

impl Network {
    pub fn rate(&self, at: Location) -> Option<Rate> {
        let switch = self.switches.get(&at.dpid)?;
        switch.ports.get(&at.port).copied().flatten()
    }

    pub fn queues_by(&self, dpid: DatapathId) -> Option<QueuesBy> {
        self.switches.get(&dpid).map(|switch| switch.queues_by)
    }
}

impl SwitchFacts {
    /// Whether the switch can have policies behind its paths.
    pub fn has_policy_table(&self) -> bool {
        self.version != Version::V10 && self.table_count > 1
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueName::Number(number) => number.fmt(f),
            QueueName::Class(class) => write!(f, "'{class}'"),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn at(dpid: u64, port: u32) -> Location {
        Location::new(DatapathId(dpid), PortNo(port))
    }

    pub fn host(text: &str) -> HostName {
        text.parse().unwrap()
    }

    pub fn class(name: &str) -> QueueName {
        QueueName::Class(name.to_owned())
    }

    pub fn queue(class: &str, min: u64, max: u64, dscp: u8) -> Queue {
        Queue {
            class: Some(class.to_owned()),
            min: Some(Rate::mbit(min)),
            max: Some(Rate::mbit(max)),
            dscp: vec![dscp],
            ..Queue::default()
        }
    }

    /// Queue 1 is gold, of 20 to 100 Mbit/s.
    pub fn gold() -> PortQueues {
        PortQueues {
            rate: Rate::mbit(100),
            queues: BTreeMap::from([(1, queue("gold", 20, 100, 10))]),
        }
    }

    pub fn policy(name: &str, service: &str, treatment: Treatment, on: On) -> Policy {
        Policy {
            name: name.to_owned(),
            service: service.to_owned(),
            priority: 10,
            treatment,
            on,
        }
    }

    pub fn circuit(name: &str, rate: u64) -> Circuit {
        Circuit {
            name: name.to_owned(),
            from: host("10.0.0.1"),
            to: host("10.0.0.2"),
            service: None,
            rate: Some(Rate::mbit(rate)),
            queue: None,
            priority: 10,
            dscp: Some(20),
            admission: true,
            both: true,
        }
    }

    pub fn facts(ports: &[u32]) -> SwitchFacts {
        SwitchFacts {
            version: Version::V13,
            table_count: 254,
            queues_by: QueuesBy::CodePoint,
            meters: Some(MeterFacts {
                max: 262_144,
                can_remark: false,
            }),
            ports: ports
                .iter()
                .map(|port| (PortNo(*port), Some(Rate::mbit(100))))
                .collect(),
        }
    }

    /// A ring of switches 1, 2, 3, 4 (1-2-4 and 1-3-4). Port 9 is a host's; port N connects to
    /// switch N. 10.0.0.1 is at switch 1, 10.0.0.2 at switch 4.
    pub fn ring() -> Network {
        let mut network = Network::default();
        for (dpid, ports) in [
            (1, [2, 3, 9]),
            (2, [1, 4, 9]),
            (3, [1, 4, 9]),
            (4, [2, 3, 9]),
        ] {
            network.switches.insert(DatapathId(dpid), facts(&ports));
        }
        for (a, b) in [(1, 2), (1, 3), (2, 4), (3, 4)] {
            link(&mut network, a, b);
        }
        network.hosts =
            BTreeMap::from([(host("10.0.0.1"), at(1, 9)), (host("10.0.0.2"), at(4, 9))]);
        network
    }

    pub fn link(network: &mut Network, a: u64, b: u64) {
        let (from, to) = (at(a, b as u32), at(b, a as u32));
        network.links.extend([(from, to), (to, from)]);
    }

    pub fn cut(network: &mut Network, a: u64, b: u64) {
        network.links.remove(&at(a, b as u32));
        network.links.remove(&at(b, a as u32));
    }

    #[test]
    fn a_queue_is_found_by_its_number_and_by_its_class() {
        let qos = Qos {
            ports: BTreeMap::from([(at(1, 2), gold())]),
            ..Qos::default()
        };
        assert_eq!(qos.queue_at(at(1, 2), &class("gold")), Some(1));
        assert_eq!(qos.queue_at(at(1, 2), &QueueName::Number(1)), Some(1));
        assert_eq!(qos.queue_at(at(1, 2), &QueueName::Number(2)), None);
        assert_eq!(qos.queue_at(at(1, 2), &class("silver")), None);
        assert_eq!(qos.queue_at(at(1, 3), &class("gold")), None);
    }

    #[test]
    fn policies_need_a_second_table() {
        let mut facts = facts(&[1]);
        assert!(facts.has_policy_table());
        facts.table_count = 1;
        assert!(!facts.has_policy_table());
        facts.table_count = 254;
        facts.version = Version::V10;
        assert!(!facts.has_policy_table());
    }
}
