//! Reads ports with queues, services, policies and circuits from a tree: the `[qos]` section of the
//! configuration, or the body of a request. The fields are the same.

use std::collections::{BTreeMap, BTreeSet};

use control::controller::Location;
use control::qos::{
    Circuit, Exceeding, Meter, On, Policy, PortQueues, Proto, Qos, Queue, QueueName, Rate, Service,
    Treatment,
};
use control::timeouts::HostName;
use openflow::DatapathId;

use super::tree::{Node, Place, Reader, is_name};
use crate::topology::location;

pub const PORT: [&str; 3] = ["at", "rate", "queues"];
const QUEUE: [&str; 7] = [
    "number",
    "class",
    "min",
    "max",
    "burst_bytes",
    "priority",
    "dscp",
];
const SERVICE: [&str; 8] = [
    "name", "src", "dst", "proto", "src_port", "dst_port", "dscp", "vlan",
];
const POLICY: [&str; 11] = [
    "name", "service", "priority", "queue", "meter", "mark", "drop", "ports", "switches", "from",
    "to",
];
const METER: [&str; 3] = ["rate", "burst_bytes", "remark"];
const CIRCUIT: [&str; 10] = [
    "name",
    "from",
    "to",
    "service",
    "rate",
    "queue",
    "priority",
    "dscp",
    "admission",
    "both",
];
const SECTION: [&str; 4] = ["port", "service", "policy", "circuit"];

/// The priority of policies and circuits that state none.
pub const PRIORITY: u16 = 100;

const BURST_BYTES_MAX: u64 = 1 << 30;
const U8_MAX: u64 = u8::MAX as u64;
const U16_MAX: u64 = u16::MAX as u64;

/// The place where each item was written.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub ports: BTreeMap<Location, Node>,
    pub services: BTreeMap<String, Node>,
    pub policies: BTreeMap<String, Node>,
    pub circuits: BTreeMap<String, Node>,
}

/// Reads the whole section.
pub fn section(reader: &mut Reader, node: &Node) -> (Qos, Sources) {
    let (mut qos, mut sources) = (Qos::default(), Sources::default());
    reader.only(node, "[qos]", &SECTION);
    for table in reader.tables(node, "port") {
        for (place, at) in places(reader, table) {
            let port = port(reader, table);
            if let Some(port) = port
                && qos.ports.insert(at, port).is_some()
            {
                reader.wrong(&place, format!("at: {at} has its queues already"));
            }
            sources.ports.insert(at, table.clone());
        }
    }
    let mut services = Names::new("service", &mut sources.services);
    for table in reader.tables(node, "service") {
        qos.services.extend(services.take(reader, table, service));
    }
    let mut policies = Names::new("policy", &mut sources.policies);
    for table in reader.tables(node, "policy") {
        qos.policies.extend(policies.take(reader, table, policy));
    }
    let mut circuits = Names::new("circuit", &mut sources.circuits);
    for table in reader.tables(node, "circuit") {
        qos.circuits.extend(circuits.take(reader, table, circuit));
    }
    (qos, sources)
}

/// The names in use; each may be used once.
struct Names<'s> {
    what: &'static str,
    seen: &'s mut BTreeMap<String, Node>,
}

impl<'s> Names<'s> {
    fn new(what: &'static str, seen: &'s mut BTreeMap<String, Node>) -> Names<'s> {
        Names { what, seen }
    }

    fn take<T>(
        &mut self,
        reader: &mut Reader,
        table: &Node,
        read: impl Fn(&mut Reader, &Node) -> Option<T>,
    ) -> Option<T> {
        let found = read(reader, table);
        let name = table.get("name").and_then(Node::as_text)?;
        if self.seen.insert(name.to_owned(), table.clone()).is_some() {
            let place = table.get("name").map_or(&table.place, |name| &name.place);
            reader.wrong(
                place,
                format!("name: there is a {} '{name}' already", self.what),
            );
            return None;
        }
        found
    }
}

/// The ports that a table applies to.
fn places(reader: &mut Reader, table: &Node) -> Vec<(Place, Location)> {
    if table.is_table() && table.get("at").is_none() {
        reader.wrong(&table.place, "at is missing: a port such as \"1:2\"");
    }
    let mut places = Vec::new();
    for item in reader.items(table, "at") {
        let found = reader.parse(item, "at", "1:2", &location);
        places.extend(found.map(|at| (item.place.clone(), at)));
    }
    places
}

pub fn port(reader: &mut Reader, node: &Node) -> Option<PortQueues> {
    if !reader.only(node, "port", &PORT) {
        return None;
    }
    let rate = required(reader, node, "rate", "100mbit", str::parse::<Rate>);
    let mut queues = BTreeMap::new();
    for table in reader.items(node, "queues") {
        if let Some((number, queue)) = queue(reader, table)
            && queues.insert(number, queue).is_some()
        {
            reader.wrong(
                &table.place,
                format!("number: queue {number} is there already"),
            );
        }
    }
    Some(PortQueues {
        rate: rate?,
        queues,
    })
}

fn queue(reader: &mut Reader, node: &Node) -> Option<(u8, Queue)> {
    if !reader.only(node, "queue", &QUEUE) {
        return None;
    }
    if node.get("number").is_none() {
        reader.wrong(&node.place, "number is missing: that which SET_QUEUE names");
    }
    let number = byte(reader, node, "number");
    let class = node.get("class").and_then(|_| reader.name(node, "class"));
    let (min, max) = (rate(reader, node, "min"), rate(reader, node, "max"));
    let burst_bytes = reader.number(node, "burst_bytes", 0..=BURST_BYTES_MAX);
    let priority = byte(reader, node, "priority").unwrap_or(0);
    let mut dscp = Vec::new();
    for item in reader.items(node, "dscp") {
        dscp.extend(reader.number_of(item, "dscp", 0..=U8_MAX).map(|n| n as u8));
    }
    let queue = Queue {
        class,
        min,
        max,
        burst_bytes,
        priority,
        dscp,
    };
    Some((number?, queue))
}

pub fn service(reader: &mut Reader, node: &Node) -> Option<Service> {
    if !reader.only(node, "service", &SERVICE) {
        return None;
    }
    let name = reader.name(node, "name");
    let (src, dst) = (host(reader, node, "src"), host(reader, node, "dst"));
    let proto = match node.get("proto") {
        Some(value) if value.as_number().is_some() => {
            let number = reader.number_of(value, "proto", 0..=U8_MAX);
            number.map(|n| Proto::Number(n as u8))
        }
        _ => reader.parsed(node, "proto", "udp", str::parse::<Proto>),
    };
    let (src_port, dst_port) = (
        word(reader, node, "src_port"),
        word(reader, node, "dst_port"),
    );
    let (dscp, vlan) = (byte(reader, node, "dscp"), word(reader, node, "vlan"));
    Some(Service {
        name: name?,
        src,
        dst,
        proto,
        src_port,
        dst_port,
        dscp,
        vlan,
    })
}

pub fn policy(reader: &mut Reader, node: &Node) -> Option<Policy> {
    if !reader.only(node, "policy", &POLICY) {
        return None;
    }
    let name = reader.name(node, "name");
    let service = reader.name(node, "service");
    let priority = word(reader, node, "priority").unwrap_or(PRIORITY);
    let treatment = Treatment {
        queue: queue_name(reader, node),
        meter: node.get("meter").and_then(|node| meter(reader, node)),
        mark: byte(reader, node, "mark"),
        drop: reader.bool(node, "drop").unwrap_or(false),
    };
    let on = on(reader, node);
    Some(Policy {
        name: name?,
        service: service?,
        priority,
        treatment,
        on: on?,
    })
}

pub fn meter(reader: &mut Reader, node: &Node) -> Option<Meter> {
    if !reader.only(node, "meter", &METER) {
        return None;
    }
    let rate = required(reader, node, "rate", "5mbit", str::parse::<Rate>);
    let burst_bytes = reader.number(node, "burst_bytes", 0..=BURST_BYTES_MAX);
    let exceeding = match byte(reader, node, "remark") {
        Some(steps) => Exceeding::Remark(steps),
        None => Exceeding::Drop,
    };
    Some(Meter {
        rate: rate?,
        burst_bytes,
        exceeding,
    })
}

/// Reads where a policy applies: everywhere if the table does not state it.
fn on(reader: &mut Reader, node: &Node) -> Option<On> {
    let said = ["ports", "switches", "from", "to"].map(|key| node.get(key).is_some());
    match said {
        [false, false, false, false] => Some(On::Everywhere),
        [true, false, false, false] => {
            let mut ports = BTreeSet::new();
            for item in reader.items(node, "ports") {
                ports.extend(reader.parse(item, "ports", "1:2", &location));
            }
            Some(On::Ports(ports))
        }
        [false, true, false, false] => {
            let mut switches = BTreeSet::new();
            for item in reader.items(node, "switches") {
                let parse = &str::parse::<DatapathId>;
                switches.extend(reader.parse(item, "switches", "1", parse));
            }
            Some(On::Switches(switches))
        }
        [false, false, true, true] => {
            let (from, to) = (host(reader, node, "from"), host(reader, node, "to"));
            Some(On::Path {
                from: from?,
                to: to?,
            })
        }
        [false, false, ..] => {
            reader.wrong(&node.place, "from and to go together: a path has two ends");
            None
        }
        _ => {
            let text = "ports, switches, and from with to exclude each other: a policy holds in \
                        one kind of place, and everywhere without them";
            reader.wrong(&node.place, text);
            None
        }
    }
}

pub fn circuit(reader: &mut Reader, node: &Node) -> Option<Circuit> {
    if !reader.only(node, "circuit", &CIRCUIT) {
        return None;
    }
    let name = reader.name(node, "name");
    let from = required(reader, node, "from", "10.0.0.1", str::parse::<HostName>);
    let to = required(reader, node, "to", "10.0.0.2", str::parse::<HostName>);
    let service = node
        .get("service")
        .and_then(|_| reader.name(node, "service"));
    let rate = rate(reader, node, "rate");
    let queue = queue_name(reader, node);
    let priority = word(reader, node, "priority").unwrap_or(PRIORITY);
    let dscp = byte(reader, node, "dscp");
    let admission = reader.bool(node, "admission").unwrap_or(false);
    let both = reader.bool(node, "both").unwrap_or(true);
    Some(Circuit {
        name: name?,
        from: from?,
        to: to?,
        service,
        rate,
        queue,
        priority,
        dscp,
        admission,
        both,
    })
}

/// The number or class of a queue.
fn queue_name(reader: &mut Reader, node: &Node) -> Option<QueueName> {
    let value = node.get("queue")?;
    match (value.as_number(), value.as_text()) {
        (Some(_), _) => {
            let number = reader.number_of(value, "queue", 0..=U8_MAX);
            number.map(|n| QueueName::Number(n as u8))
        }
        (None, Some(class)) if is_name(class) => Some(QueueName::Class(class.to_owned())),
        _ => {
            reader.wrong(
                &value.place,
                "queue must be a queue's number or class, such as \"gold\"",
            );
            None
        }
    }
}

fn required<T, E: std::fmt::Display>(
    reader: &mut Reader,
    node: &Node,
    key: &str,
    example: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Option<T> {
    if node.get(key).is_none() {
        reader.wrong(
            &node.place,
            format!("{key} is missing, such as \"{example}\""),
        );
    }
    reader.parsed(node, key, example, parse)
}

fn rate(reader: &mut Reader, node: &Node, key: &str) -> Option<Rate> {
    reader.parsed(node, key, "20mbit", str::parse::<Rate>)
}

fn host(reader: &mut Reader, node: &Node, key: &str) -> Option<HostName> {
    reader.parsed(node, key, "10.0.0.1", str::parse::<HostName>)
}

fn byte(reader: &mut Reader, node: &Node, key: &str) -> Option<u8> {
    reader.number(node, key, 0..=U8_MAX).map(|n| n as u8)
}

fn word(reader: &mut Reader, node: &Node, key: &str) -> Option<u16> {
    reader.number(node, key, 0..=U16_MAX).map(|n| n as u16)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toml::de::DeTable;

    use super::*;

    const WHOLE: &str = r#"
        [[port]]
        at = ["1:2", "2:3"]
        rate = "100mbit"
        queues = [
          { number = 1, class = "gold", min = "20mbit", max = "100mbit", dscp = [46] },
          { number = 2, priority = 1, burst_bytes = 30000, dscp = 10 },
        ]

        [[service]]
        name = "voice"
        dst = "10.0.0.0/24"
        proto = "udp"
        dst_port = 5060

        [[policy]]
        name = "voice-first"
        service = "voice"
        priority = 7
        queue = "gold"

        [[policy]]
        name = "voice-slow"
        service = "voice"
        meter = { rate = "5mbit", burst_bytes = 1000, remark = 1 }
        switches = ["1", "0x2"]

        [[circuit]]
        name = "backup"
        from = "10.0.0.1"
        to = "02:00:00:00:00:02"
        rate = "10mbit"
        queue = 1
        admission = true
    "#;

    fn read(text: &str) -> (Qos, Vec<String>) {
        let (table, errors) = DeTable::parse_recoverable(text);
        assert!(errors.is_empty(), "{errors:?}");
        let node = Node::of_toml(table.get_ref(), 0..0);
        let mut reader = Reader::default();
        let (qos, _) = section(&mut reader, &node);
        let told =
            (reader.problems.iter()).map(|wrong| format!("{} {}", wrong.place.pointer, wrong.text));
        (qos, told.collect())
    }

    #[test]
    fn a_section_is_read_whole() {
        let (qos, problems) = read(WHOLE);
        assert_eq!(problems, [""; 0]);
        assert_eq!(qos.ports.len(), 2, "one table is for several ports");
        let at = location("1:2").unwrap();
        let gold = &qos.ports[&at].queues[&1];
        assert_eq!(
            (gold.min, gold.max),
            (Some(Rate::mbit(20)), Some(Rate::mbit(100)))
        );
        assert_eq!(
            qos.ports[&at].queues[&2].dscp,
            [10],
            "one alone needs no list"
        );
        assert_eq!(qos.services[0].proto, Some(Proto::Udp));
        assert_eq!(qos.policies[0].on, On::Everywhere);
        assert_eq!(
            qos.policies[0].treatment.queue,
            Some(QueueName::Class("gold".into()))
        );
        assert_eq!(qos.policies[1].priority, PRIORITY);
        let switches = BTreeSet::from([DatapathId(1), DatapathId(2)]);
        assert_eq!(qos.policies[1].on, On::Switches(switches));
        let meter = qos.policies[1].treatment.meter.unwrap();
        assert_eq!(meter.exceeding, Exceeding::Remark(1));
        let circuit = &qos.circuits[0];
        assert_eq!(circuit.queue, Some(QueueName::Number(1)));
        assert!(circuit.admission && circuit.both);
    }

    #[test]
    fn all_that_is_wrong_is_told_together() {
        let (_, problems) = read(
            r#"
            speed = 1
            [[port]]
            rate = "fast"
            queues = [{ class = "a b", dscp = [300] }, 7]
            [[port]]
            at = ["1:2", "1:2"]
            rate = "1mbit"
            queues = [{ number = 1 }, { number = 1 }]
            [[service]]
            name = "voice"
            proto = "http"
            src = "nowhere"
            [[service]]
            name = "voice"
            [[policy]]
            service = "voice"
            ports = ["1:2"]
            from = "10.0.0.1"
            meter = { burst_bytes = 1 }
            [[policy]]
            name = "half"
            service = "voice"
            to = "10.0.0.1"
            [[circuit]]
            name = "c"
            both = "no"
            "#,
        );
        let expected = [
            "/speed 'speed' is no field of a [qos]; known: port, service, policy, circuit",
            "/port/0 at is missing: a port such as \"1:2\"",
            "/port/1 at: 0000000000000001:2 has its queues already",
        ];
        for line in expected {
            assert!(
                problems
                    .iter()
                    .any(|p| p == line || p.ends_with(&line[7..])),
                "{line}: {problems:#?}"
            );
        }
        for part in [
            "queue 1 is there already",
            "proto: 'http' is none of tcp",
            "src: 'nowhere'",
            "there is a service 'voice' already",
            "name is missing",
            "exclude each other",
            "rate is missing",
            "from and to go together",
            "from is missing",
            "both is \"no\"; it must be true or false",
        ] {
            let count = problems.iter().filter(|p| p.contains(part)).count();
            assert!(count >= 1, "{part}: {problems:#?}");
        }
    }

    #[test]
    fn a_body_has_the_same_fields() {
        let body = json!({"rate": "100mbit", "queues": [{"number": 1, "dscp": 46}]});
        let mut reader = Reader::default();
        let port = port(&mut reader, &Node::of_json(&body)).unwrap();
        assert!(reader.problems.is_empty());
        assert_eq!(port.queues[&1].dscp, [46]);
        let mut reader = Reader::default();
        assert_eq!(service(&mut reader, &Node::of_json(&json!([]))), None);
        assert!(reader.problems[0].text.contains("a table of fields"));
    }
}
