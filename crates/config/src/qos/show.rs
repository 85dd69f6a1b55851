//! The requests for the data path as JSON: the fields that [`super::read`] takes.

use control::controller::Location;
use control::qos::{
    Circuit, Exceeding, Meter, On, Policy, PortQueues, Proto, Queue, QueueName, Service,
};
use serde::Serialize;
use utoipa::ToSchema;

/// The queues of a port.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PortDocument {
    /// Switch and port; may be left out where the path says it.
    #[schema(example = "0000000000000001:2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The port's rate, or the rate that it is limited to.
    #[schema(example = "100mbit")]
    pub rate: String,
    pub queues: Vec<QueueDocument>,
}

/// One queue of a port.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct QueueDocument {
    /// The number that SET_QUEUE names. Queue 0, stated or not, carries what no other queue takes.
    #[schema(minimum = 0, maximum = 127)]
    pub number: u8,
    /// The class of service that it is for, so that policies need not know numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "gold", pattern = "^[A-Za-z0-9_.-]{1,64}$")]
    pub class: Option<String>,
    /// Its own whatever the others do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "20mbit")]
    pub min: Option<String>,
    /// Never more; the port's rate if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "100mbit")]
    pub max: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1073741824)]
    pub burst_bytes: Option<u64>,
    /// 0 is served first.
    #[schema(minimum = 0, maximum = 7, default = 0, required = false)]
    pub priority: u8,
    /// Code points that choose it where the datapath cannot.
    #[schema(required = false)]
    pub dscp: Vec<u8>,
}

/// Packets, by what they say of themselves. What is not said may be anything.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ServiceDocument {
    #[schema(
        example = "voice",
        pattern = "^[A-Za-z0-9_.-]{1,64}$",
        required = false
    )]
    pub name: String,
    /// An Ethernet or IP address, or a network.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "10.0.0.0/24")]
    pub src: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "10.0.0.2")]
    pub dst: Option<String>,
    /// tcp, udp, sctp, icmp, or a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<NumberOrName>)]
    pub proto: Option<NumberOrName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dst_port: Option<u16>,
    /// The code point that packets come with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 63)]
    pub dscp: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 4094)]
    pub vlan: Option<u16>,
}

/// The treatment of a service's packets, and the place: at ports, on switches, between two hosts,
/// or everywhere if none of these is given.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PolicyDocument {
    #[schema(
        example = "voice-first",
        pattern = "^[A-Za-z0-9_.-]{1,64}$",
        required = false
    )]
    pub name: String,
    #[schema(example = "voice", pattern = "^[A-Za-z0-9_.-]{1,64}$")]
    pub service: String,
    /// The priority: of several policies for one packet, only the one with the greatest holds.
    #[schema(minimum = 0, maximum = 9999, default = 100, required = false)]
    pub priority: u16,
    /// The number or class of a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<NumberOrName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meter: Option<MeterDocument>,
    /// The code point that packets get.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 63)]
    pub mark: Option<u8>,
    #[serde(skip_serializing_if = "is_false")]
    #[schema(default = false, required = false)]
    pub drop: bool,
    /// The ports by which the packets leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switches: Option<Vec<String>>,
    /// One end of a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// A limit for all packets of a policy on one switch together.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct MeterDocument {
    #[schema(example = "5mbit")]
    pub rate: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1073741824)]
    pub burst_bytes: Option<u64>,
    /// Steps by which the drop precedence of packets above the rate is raised; they are dropped if
    /// it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 2)]
    pub remark: Option<u8>,
}

/// A path of its own for a service between two hosts.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct CircuitDocument {
    #[schema(
        example = "backup",
        pattern = "^[A-Za-z0-9_.-]{1,64}$",
        required = false
    )]
    pub name: String,
    #[schema(example = "10.0.0.1")]
    pub from: String,
    #[schema(example = "10.0.0.2")]
    pub to: String,
    /// Everything between the two if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The rate. Without a queue the circuit gets one of its own at each port, of this rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "10mbit")]
    pub rate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<NumberOrName>,
    #[schema(minimum = 0, maximum = 9999, default = 100, required = false)]
    pub priority: u16,
    /// The code point of the circuit's own queue, where code points choose.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 63)]
    pub dscp: Option<u8>,
    /// Whether it is set up only where there is room, and holds it.
    #[schema(default = false, required = false)]
    pub admission: bool,
    /// Whether the answers have the same path and the same room.
    #[schema(default = true, required = false)]
    pub both: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum NumberOrName {
    Number(u8),
    Name(String),
}

fn is_false(is: &bool) -> bool {
    !is
}

pub fn port(at: Location, port: &PortQueues) -> PortDocument {
    PortDocument {
        at: Some(at.to_string()),
        rate: port.rate.to_string(),
        queues: port.queues.iter().map(|(n, q)| queue(*n, q)).collect(),
    }
}

fn queue(number: u8, queue: &Queue) -> QueueDocument {
    QueueDocument {
        number,
        class: queue.class.clone(),
        min: queue.min.map(|rate| rate.to_string()),
        max: queue.max.map(|rate| rate.to_string()),
        burst_bytes: queue.burst_bytes,
        priority: queue.priority,
        dscp: queue.dscp.clone(),
    }
}

pub fn service(service: &Service) -> ServiceDocument {
    ServiceDocument {
        name: service.name.clone(),
        src: service.src.map(|host| host.to_string()),
        dst: service.dst.map(|host| host.to_string()),
        proto: service.proto.map(|proto| match proto {
            Proto::Number(number) => NumberOrName::Number(number),
            named => NumberOrName::Name(named.to_string()),
        }),
        src_port: service.src_port,
        dst_port: service.dst_port,
        dscp: service.dscp,
        vlan: service.vlan,
    }
}

pub fn policy(policy: &Policy) -> PolicyDocument {
    let (mut ports, mut switches, mut from, mut to) = (None, None, None, None);
    match &policy.on {
        On::Ports(at) => ports = Some(at.iter().map(ToString::to_string).collect()),
        On::Switches(dpids) => switches = Some(dpids.iter().map(ToString::to_string).collect()),
        On::Path { from: a, to: b } => (from, to) = (Some(a.to_string()), Some(b.to_string())),
        On::Everywhere => {}
    }
    PolicyDocument {
        name: policy.name.clone(),
        service: policy.service.clone(),
        priority: policy.priority,
        queue: policy.treatment.queue.as_ref().map(queue_name),
        meter: policy.treatment.meter.map(meter),
        mark: policy.treatment.mark,
        drop: policy.treatment.drop,
        ports,
        switches,
        from,
        to,
    }
}

pub fn meter(meter: Meter) -> MeterDocument {
    MeterDocument {
        rate: meter.rate.to_string(),
        burst_bytes: meter.burst_bytes,
        remark: match meter.exceeding {
            Exceeding::Drop => None,
            Exceeding::Remark(steps) => Some(steps),
        },
    }
}

pub fn circuit(circuit: &Circuit) -> CircuitDocument {
    CircuitDocument {
        name: circuit.name.clone(),
        from: circuit.from.to_string(),
        to: circuit.to.to_string(),
        service: circuit.service.clone(),
        rate: circuit.rate.map(|rate| rate.to_string()),
        queue: circuit.queue.as_ref().map(queue_name),
        priority: circuit.priority,
        dscp: circuit.dscp,
        admission: circuit.admission,
        both: circuit.both,
    }
}

fn queue_name(name: &QueueName) -> NumberOrName {
    match name {
        QueueName::Number(number) => NumberOrName::Number(*number),
        QueueName::Class(class) => NumberOrName::Name(class.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use control::qos::{Rate, Treatment};
    use control::timeouts::HostName;
    use openflow::{DatapathId, PortNo};
    use proptest::prelude::*;
    use serde_json::Value;

    use super::super::read;
    use super::super::tree::{Node, Reader};
    use super::*;

    fn back<T>(shown: &impl Serialize, read: impl Fn(&mut Reader, &Node) -> Option<T>) -> T {
        let value: Value = serde_json::to_value(shown).unwrap();
        let mut reader = Reader::default();
        let found = read(&mut reader, &Node::of_json(&value));
        assert_eq!(reader.problems, [], "{value}");
        found.unwrap()
    }

    fn name() -> impl Strategy<Value = String> {
        "[a-z][a-z0-9-]{0,8}"
    }

    fn rate() -> impl Strategy<Value = Rate> {
        (1..2_000_000_000u64).prop_map(Rate)
    }

    fn host() -> impl Strategy<Value = HostName> {
        let texts = ["10.0.0.1", "fd00::7", "10.1.0.0/16", "02:00:00:00:00:07"];
        prop::sample::select(texts.to_vec()).prop_map(|text| text.parse().unwrap())
    }

    fn at() -> impl Strategy<Value = Location> {
        (any::<u64>(), 1..1000u32)
            .prop_map(|(dpid, port)| Location::new(DatapathId(dpid), PortNo(port)))
    }

    fn queue_name() -> impl Strategy<Value = QueueName> {
        let number = any::<u8>().prop_map(QueueName::Number);
        prop_oneof![number, name().prop_map(QueueName::Class)]
    }

    fn on() -> impl Strategy<Value = On> {
        let dpids = prop::collection::btree_set(any::<u64>().prop_map(DatapathId), 1..3);
        prop_oneof![
            prop::collection::btree_set(at(), 1..3).prop_map(On::Ports),
            dpids.prop_map(|dpids: BTreeSet<_>| On::Switches(dpids)),
            (host(), host()).prop_map(|(from, to)| On::Path { from, to }),
            Just(On::Everywhere),
        ]
    }

    prop_compose! {
        fn queues()(
            number in 0..128u8, class in prop::option::of(name()), min in prop::option::of(rate()),
            max in prop::option::of(rate()), burst_bytes in prop::option::of(1..100_000u64),
            priority in 0..8u8, dscp in prop::collection::vec(0..64u8, 0..3),
        ) -> (u8, Queue) {
            (number, Queue { class, min, max, burst_bytes, priority, dscp })
        }
    }

    prop_compose! {
        fn services()(
            name in name(), src in prop::option::of(host()), dst in prop::option::of(host()),
            proto in prop::option::of(prop_oneof![
                Just(Proto::Tcp), Just(Proto::Icmp), any::<u8>().prop_map(Proto::Number)
            ]),
            src_port in any::<Option<u16>>(), dst_port in any::<Option<u16>>(),
            dscp in any::<Option<u8>>(), vlan in any::<Option<u16>>(),
        ) -> Service {
            Service { name, src, dst, proto, src_port, dst_port, dscp, vlan }
        }
    }

    prop_compose! {
        fn policies()(
            name in name(), service in name(), priority in any::<u16>(), on in on(),
            queue in prop::option::of(queue_name()), mark in any::<Option<u8>>(),
            drop in any::<bool>(),
            meter in prop::option::of((rate(), any::<Option<u8>>())),
        ) -> Policy {
            let meter = meter.map(|(rate, steps)| Meter {
                rate,
                burst_bytes: steps.map(u64::from),
                exceeding: steps.map_or(Exceeding::Drop, Exceeding::Remark),
            });
            let treatment = Treatment { queue, meter, mark, drop };
            Policy { name, service, priority, treatment, on }
        }
    }

    prop_compose! {
        fn circuits()(
            name in name(), from in host(), to in host(), service in prop::option::of(name()),
            rate in prop::option::of(rate()), queue in prop::option::of(queue_name()),
            priority in any::<u16>(), dscp in any::<Option<u8>>(), admission in any::<bool>(),
            both in any::<bool>(),
        ) -> Circuit {
            Circuit { name, from, to, service, rate, queue, priority, dscp, admission, both }
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_what_is_read(
            at in at(), rate in rate(),
            queues in prop::collection::btree_map(0..128u8, queues(), 0..4),
            service in services(), policy in policies(), circuit in circuits(),
        ) {
            let queues = queues.into_iter().map(|(number, (_, queue))| (number, queue)).collect();
            let queues = PortQueues { rate, queues };
            prop_assert_eq!(back(&super::port(at, &queues), read::port), queues);
            prop_assert_eq!(back(&super::service(&service), read::service), service);
            prop_assert_eq!(back(&super::policy(&policy), read::policy), policy);
            prop_assert_eq!(back(&super::circuit(&circuit), read::circuit), circuit);
        }

        /// Whatever comes, it is read or refused with at least one problem, and nothing else.
        #[test]
        fn any_body_is_read_or_refused(text in "[\\[\\]{}\",:a-z0-9. ]{0,80}") {
            if let Ok(value) = serde_json::from_str::<Value>(&text) {
                let mut reader = Reader::default();
                let read = read::policy(&mut reader, &Node::of_json(&value));
                prop_assert_eq!(read.is_none(), !reader.problems.is_empty());
            }
        }
    }
}
