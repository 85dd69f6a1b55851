//! The places in the input of the problems that the controller finds.
//!
//! The controller names fields by kind and index in the whole (`policies[2].queue`); people have
//! written names.

use std::fmt;

use control::controller::Location;
use control::flows::FlowName;
use control::flows::parts::PartName;
use control::qos::Qos;
use control::qos::check::Problem;
use openflow::DatapathId;

use super::read::Sources;
use super::tree::{Node, Place, Wrong};
use crate::topology::location;

/// An item that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    Port(Location),
    Service(String),
    Policy(String),
    Circuit(String),
    /// A meter that rules name by its number, as Ryu's clients do.
    Meter(DatapathId, u32),
    /// A stated group or meter, which static entries refer to.
    Part(PartName),
    /// A static entry.
    Flow(FlowName),
    /// The places on the map.
    Layout,
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Item::Port(at) => write!(f, "port {at}"),
            Item::Service(name) => write!(f, "service '{name}'"),
            Item::Policy(name) => write!(f, "policy '{name}'"),
            Item::Circuit(name) => write!(f, "circuit '{name}'"),
            Item::Meter(dpid, id) => write!(f, "meter {dpid}:{id}"),
            Item::Part(name) => write!(f, "{name}"),
            Item::Flow(name) => write!(f, "static entry {name}"),
            Item::Layout => write!(f, "layout"),
        }
    }
}

impl Sources {
    fn get(&self, item: &Item) -> Option<&Node> {
        match item {
            Item::Port(at) => self.ports.get(at),
            Item::Service(name) => self.services.get(name),
            Item::Policy(name) => self.policies.get(name),
            Item::Circuit(name) => self.circuits.get(name),
            Item::Meter(..) | Item::Part(_) | Item::Flow(_) | Item::Layout => None,
        }
    }

    /// The place where the item was written.
    pub fn place(&self, item: &Item) -> Place {
        let node = self.get(item);
        node.map(|node| node.place.clone()).unwrap_or_default()
    }

    pub fn insert(&mut self, item: Item, node: Node) {
        match item {
            Item::Port(at) => self.ports.insert(at, node),
            Item::Service(name) => self.services.insert(name, node),
            Item::Policy(name) => self.policies.insert(name, node),
            Item::Circuit(name) => self.circuits.insert(name, node),
            // The controller finds no problem with a meter, as no entry has it yet. It names the
            // fields of static items itself, and never sees a layout.
            Item::Meter(..) | Item::Part(_) | Item::Flow(_) | Item::Layout => None,
        };
    }
}

/// The problem of `qos` with its place in `sources`, or with the item's name if `sources` does not
/// have it.
pub fn locate(qos: &Qos, problem: &Problem, sources: &Sources) -> Wrong {
    let what = named(qos, &problem.what);
    let Some((item, rest)) = item(qos, &problem.field) else {
        return Wrong {
            place: Place::default(),
            text: format!("{}: {what}", problem.field),
        };
    };
    let rest = rest.trim_start_matches('.');
    let Some(node) = sources.get(&item) else {
        let of = [item.to_string(), rest.to_owned()];
        let of: Vec<String> = of.into_iter().filter(|part| !part.is_empty()).collect();
        return Wrong {
            place: Place::default(),
            text: format!("{}: {what}", of.join(", ")),
        };
    };
    let (node, field) = descend(node, rest);
    let text = match field {
        Some(field) => format!("{field}: {what}"),
        None => format!("{item}: {what}"),
    };
    Wrong {
        place: node.place.clone(),
        text,
    }
}

/// The item that a problem is about, if it is about one.
pub fn about(qos: &Qos, problem: &Problem) -> Option<Item> {
    item(qos, &problem.field).map(|(item, _)| item)
}

/// The item that a field such as `policies[2].queue` names, and the rest of the field.
fn item<'f>(qos: &Qos, field: &'f str) -> Option<(Item, &'f str)> {
    let (kind, rest) = field.split_once('[')?;
    let (key, rest) = rest.split_once(']')?;
    let number = || key.parse::<usize>().ok();
    let item = match kind {
        "ports" => Item::Port(location(key).ok()?),
        "services" => Item::Service(qos.services.get(number()?)?.name.clone()),
        "policies" => Item::Policy(qos.policies.get(number()?)?.name.clone()),
        "circuits" => Item::Circuit(qos.circuits.get(number()?)?.name.clone()),
        _ => return None,
    };
    Some((item, rest))
}

/// The deepest node written along `path`, and the name of its field.
fn descend<'n>(node: &'n Node, path: &str) -> (&'n Node, Option<String>) {
    let mut found = (node, None);
    for step in path.split('.').filter(|step| !step.is_empty()) {
        let (key, number) = match step.split_once('[') {
            Some((key, number)) => (key, number.trim_end_matches(']').parse::<u64>().ok()),
            None => (step, None),
        };
        let keys: &[&str] = match key {
            "burst" => &["burst_bytes"],
            "on" => &["ports", "switches", "from"],
            _ => &[key],
        };
        let next = keys.iter().find_map(|key| Some((*key, found.0.get(key)?)));
        let Some((key, mut next)) = next else {
            return (found.0, Some(found.1.unwrap_or_else(|| key.to_owned())));
        };
        if number.is_some() {
            let is_it = |node: &&Node| node.get("number").and_then(Node::as_number) == number;
            next = next.items().iter().find(is_it).unwrap_or(next);
        }
        found = (next, Some(key.to_owned()));
    }
    found
}

/// Replaces indices such as `policies[3]`, which nobody has written, by names.
fn named(qos: &Qos, what: &str) -> String {
    let mut named = String::new();
    let mut rest = what;
    loop {
        let kinds = ["services[", "policies[", "circuits["];
        let next = kinds.iter().filter_map(|kind| rest.find(kind)).min();
        let Some(at) = next else {
            return named + rest;
        };
        named.push_str(&rest[..at]);
        match item(qos, &rest[at..]) {
            Some((item, after)) => {
                named.push_str(&item.to_string());
                rest = after;
            }
            None => {
                named.push_str(&rest[at..=at]);
                rest = &rest[at + 1..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use control::qos::check::ProblemKind;
    use serde_json::json;

    use super::super::read;
    use super::super::tree::Reader;
    use super::*;

    fn sample() -> (Qos, Sources) {
        let node = Node::of_json(&json!({
            "port": [{"at": "1:2", "rate": "10mbit", "queues": [
                {"number": 0}, {"number": 3, "min": "20mbit"}
            ]}],
            "service": [{"name": "voice"}],
            "policy": [
                {"name": "a", "service": "voice", "meter": {"rate": "5mbit"}, "from": "10.0.0.1",
                 "to": "10.0.0.1"},
                {"name": "b", "service": "voice", "drop": true},
            ],
        }));
        let mut reader = Reader::default();
        let read = read::section(&mut reader, &node);
        assert_eq!(reader.problems, []);
        read
    }

    fn told(field: &str, what: &str) -> String {
        let (qos, sources) = sample();
        let problem = Problem {
            kind: ProblemKind::Own,
            field: field.to_owned(),
            what: what.to_owned(),
        };
        let wrong = locate(&qos, &problem, &sources);
        format!("{} {}", wrong.place.pointer, wrong.text)
    }

    #[test]
    fn a_problem_is_told_where_it_was_written() {
        let at = "ports[0000000000000001:2].queues[3]";
        assert_eq!(
            told(&format!("{at}.min"), "too much"),
            "/port/0/queues/1/min min: too much"
        );
        assert_eq!(
            told(&format!("{at}.dscp"), "none"),
            "/port/0/queues/1 queues: none"
        );
        assert_eq!(
            told("policies[0].meter.burst", "x"),
            "/policy/0/meter meter: x"
        );
        assert_eq!(told("policies[0].on.to", "x"), "/policy/0/from from: x");
        assert_eq!(told("policies[1]", "x"), "/policy/1 policy 'b': x");
        assert_eq!(
            told("policies[1].priority", "of this and of policies[0], which"),
            "/policy/1 priority: of this and of policy 'a', which"
        );
        assert_eq!(told("services", "too many"), " services: too many");
    }

    #[test]
    fn what_is_written_elsewhere_is_told_by_name() {
        let (qos, _) = sample();
        let problem = Problem {
            kind: ProblemKind::Own,
            field: "policies[1].service".to_owned(),
            what: "there is no service 'voice'".to_owned(),
        };
        let wrong = locate(&qos, &problem, &Sources::default());
        assert_eq!(wrong.place, Place::default());
        assert_eq!(
            wrong.text,
            "policy 'b', service: there is no service 'voice'"
        );
    }
}
