//! The entries on switches and the records in their database, and whether any of them is half done.
//!
//! These promises hold during set-up, whenever the controller is killed:
//!
//! - One transaction changes the records of a port. A port thus has the configured records, or
//!   these and the circuits' records, or none.
//! - The entry that admits packets to a circuit is added after all others: with it the circuit is
//!   whole, without it no packet is on the circuit.
//! - Paths of a switch continue to its policies when all of the policies are present; before that,
//!   no packet reaches them.

use std::collections::{BTreeMap, BTreeSet};

use control::entry::{EntryKind, is_own};
use control::pipeline::{Numbering, POLICY_TABLE};
use control::qos::check::QUEUE_NUMBER_MAX;
use control::qos::flow::{Flow, OPENS};
use openflow::{Cookie, TableId};
use serde_json::{Map, Value, json};

/// The lines of each switch.
type Lines = BTreeMap<String, BTreeSet<String>>;

/// One row of a table, by column, as OVSDB's JSON has it.
type Row = Map<String, Value>;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Entries of circuits and of policies, without the generation in their cookies.
    circuits: Lines,
    policies: Lines,
    meters: Lines,
    /// Switches with a path that continues to policies.
    leading: BTreeSet<String>,
    /// Entries, meters and rows that are not auster's.
    pub foreign: BTreeSet<String>,
    /// Ports that have a QoS record, by name.
    ports: BTreeMap<String, Port>,
    /// Rows of auster's that nothing refers to.
    pub orphans: usize,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Port {
    /// Made by auster.
    is_own: bool,
    settings: String,
    /// The settings of the queues by number.
    queues: BTreeMap<u32, String>,
}

/// The number of things of one kind in each [`State`], in its order.
pub type Tally = [u32; 4];

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    Whole,
    /// Under way, with no promise broken: a port's configured queues without those of circuits, or
    /// entries that no packet reaches.
    Prepared,
    Absent,
    Half,
}

/// The lowest number of auster's meters.
const METER_MIN: u32 = 0x6000;

/// Whether the number after this word is the number of the policy table, with or without access
/// tables before it.
fn is_of_policies(line: &str, word: &str) -> bool {
    let (_, rest) = line.split_once(word).unwrap_or_default();
    let number = rest.split(|c: char| !c.is_ascii_digit()).next();
    let number = number.and_then(|number| number.parse().ok()).map(TableId);
    let both = [Numbering::Plain, Numbering::Access].map(|one| one.switch_number(POLICY_TABLE));
    number.is_some_and(|number| both.contains(&number))
}

impl Found {
    /// Reads tables of the database, each a line of JSON. After a line `switch NAME`, reads the
    /// switch's flows and meters as `ovs-ofctl` prints them.
    pub fn read(text: &str) -> Result<Found, String> {
        let mut found = Found::default();
        let mut tables = Vec::new();
        let (mut switch, mut meter) = (String::new(), None);
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words = line.split_once(['=', ' ']).unwrap_or((line, ""));
            match words {
                _ if line.starts_with('{') => tables.push(table(line)?),
                _ if line.contains("actions=") => found.take_flow(&switch, line),
                ("switch" | "meter", _) => {
                    found.take_meter(&switch, meter.take());
                    match words {
                        ("switch", name) => switch = name.to_string(),
                        _ => meter = Some(line.to_string()),
                    }
                }
                _ => meter
                    .iter_mut()
                    .for_each(|meter| *meter += &format!(" {line}")),
            }
        }
        found.take_meter(&switch, meter);
        found.take_records(&tables);
        Ok(found)
    }

    fn take_flow(&mut self, switch: &str, line: &str) {
        let cookie = cookie(line);
        if !is_own(cookie) {
            self.foreign.insert(format!("{switch}: {line}"));
            return;
        }
        if !Flow::is_its(cookie) {
            let is_access = EntryKind::of(cookie) == Some(EntryKind::Access);
            if !is_access && is_of_policies(line, "goto_table:") {
                self.leading.insert(switch.to_string());
            }
            return;
        }
        let (_, rest) = line.split_once(", ").unwrap_or_default();
        let lines = match is_of_policies(rest, "table=") {
            true => &mut self.policies,
            false => &mut self.circuits,
        };
        let line = format!("rank={}, {rest}", cookie.0 as u8);
        lines.entry(switch.to_string()).or_default().insert(line);
    }

    /// Takes a meter from `meter=24576 kbps bands=` and its bands.
    fn take_meter(&mut self, switch: &str, text: Option<String>) {
        let Some(text) = text else { return };
        let number = text.trim_start_matches("meter=").split(' ').next();
        let number: Option<u32> = number.and_then(|number| number.parse().ok());
        match number.is_some_and(|number| number >= METER_MIN) {
            true => self
                .meters
                .entry(switch.to_string())
                .or_default()
                .insert(text),
            false => self.foreign.insert(format!("{switch}: {text}")),
        };
    }

    fn take_records(&mut self, tables: &[Vec<Row>]) {
        let of = |column: &str| -> Vec<&Row> {
            let rows = tables.iter().flatten();
            rows.filter(|row| row.contains_key(column)).collect()
        };
        let (ports, qos, queues) = (of("qos"), of("queues"), of("dscp"));
        let mut used: Vec<&Value> = ports.iter().map(|port| &port["qos"]).collect();
        used.extend(qos.iter().flat_map(|row| references(row)).map(|(_, to)| to));
        for port in &ports {
            let Some(row) = qos.iter().find(|row| row["_uuid"] == port["qos"]) else {
                continue;
            };
            let queues = references(row).map(|(number, to)| {
                let queue = queues.iter().find(|queue| queue["_uuid"] == *to);
                // The database allows no dangling reference.
                let settings = queue.map_or("missing".to_string(), |queue| settings(queue));
                (number, settings)
            });
            let name = port["name"].as_str().unwrap_or_default().to_string();
            let port = Port {
                is_own: is_marked(row),
                settings: settings(row),
                queues: queues.collect(),
            };
            self.ports.insert(name, port);
        }
        for row in qos.iter().chain(&queues) {
            match is_marked(row) {
                true => self.orphans += usize::from(!used.contains(&&row["_uuid"])),
                false => drop(self.foreign.insert(json!(row).to_string())),
            }
        }
    }

    fn own_ports(&self) -> impl Iterator<Item = (&String, &Port)> {
        self.ports.iter().filter(|(_, port)| port.is_own)
    }

    /// Whether everything is as in `whole`, with nothing more of auster's.
    pub fn is_as(&self, whole: &Found) -> bool {
        let entries = |of: &Found| [&of.circuits, &of.policies, &of.meters].map(Clone::clone);
        entries(self) == entries(whole) && self.own_ports().eq(whole.own_ports())
    }

    /// The numbers of ports, queues, circuits' entries, policies' entries, meters, and things that
    /// are not auster's.
    pub fn extent(&self) -> [usize; 6] {
        let count = |lines: &Lines| lines.values().map(BTreeSet::len).sum();
        [
            self.own_ports().count(),
            self.own_ports().map(|(_, port)| port.queues.len()).sum(),
            count(&self.circuits),
            count(&self.policies),
            count(&self.meters),
            self.foreign.len(),
        ]
    }

    /// The states of records by port, of circuits by direction, and of policies by switch.
    pub fn judge(&self, whole: &Found) -> [Tally; 3] {
        let [mut records, mut circuits, mut policies] = [Tally::default(); 3];
        for (port, wanted) in whole.own_ports() {
            records[record_state(self.ports.get(port), wanted) as usize] += 1;
        }
        let is_stray = |port: &&String| !whole.ports.contains_key(*port);
        records[State::Half as usize] += self.ports.keys().filter(is_stray).count() as u32;
        let (wanted, found) = (by_direction(&whole.circuits), by_direction(&self.circuits));
        for (direction, wanted) in &wanted {
            circuits[circuit_state(found.get(direction), wanted) as usize] += 1;
        }
        let is_stray = |direction: &&String| !wanted.contains_key(*direction);
        circuits[State::Half as usize] += found.keys().filter(is_stray).count() as u32;
        let nothing = BTreeSet::new();
        for (switch, wanted) in &whole.policies {
            let found = self.policies.get(switch).unwrap_or(&nothing);
            let state = policy_state(found, wanted, self.leading.contains(switch));
            policies[state as usize] += 1;
        }
        [records, circuits, policies]
    }
}

/// Whether something was present, but not everything.
pub fn is_in_the_middle(tallies: &[Tally]) -> bool {
    let any = |state: State| tallies.iter().any(|tally| tally[state as usize] > 0);
    any(State::Prepared) || any(State::Half) || any(State::Whole) && any(State::Absent)
}

fn record_state(found: Option<&Port>, wanted: &Port) -> State {
    let Some(found) = found else {
        return State::Absent;
    };
    let stated = |port: &Port| {
        let mut queues = port.queues.clone();
        queues.retain(|number, _| *number <= u32::from(QUEUE_NUMBER_MAX));
        queues
    };
    let is_same = found.is_own && found.settings == wanted.settings;
    let is_of_it = |(number, queue): (&u32, _)| wanted.queues.get(number) == Some(queue);
    match is_same && found.queues.iter().all(is_of_it) {
        true if found.queues == wanted.queues => State::Whole,
        true if stated(found) == stated(wanted) => State::Prepared,
        _ => State::Half,
    }
}

/// Groups entries, as `SWITCH LINE`, by their match without the ingress port.
fn by_direction(circuits: &Lines) -> Lines {
    let mut directions = Lines::new();
    for (switch, lines) in circuits {
        for line in lines {
            let (rest, _) = line.split_once(" actions=").unwrap_or((line, ""));
            let fields = rest.split([',', ' ']).filter(|field| !field.is_empty());
            let of_all = fields.filter(|f| !f.starts_with("in_port=") && !f.starts_with("rank="));
            let direction = of_all.collect::<Vec<_>>().join(",");
            let entry = directions.entry(direction).or_default();
            entry.insert(format!("{switch} {line}"));
        }
    }
    directions
}

fn circuit_state(found: Option<&BTreeSet<String>>, wanted: &BTreeSet<String>) -> State {
    let Some(found) = found else {
        return State::Absent;
    };
    let lets_in = |line: &String| line.contains(&format!(" rank={OPENS},"));
    match (found == wanted, found.iter().any(lets_in)) {
        (true, _) => State::Whole,
        (false, true) => State::Half,
        (false, false) => State::Prepared,
    }
}

fn policy_state(found: &BTreeSet<String>, wanted: &BTreeSet<String>, leads: bool) -> State {
    match (found == wanted, found.is_empty(), leads) {
        (true, ..) => State::Whole,
        (false, _, true) => State::Half,
        (false, true, false) => State::Absent,
        (false, false, false) => State::Prepared,
    }
}

/// The cookie of an entry as `ovs-ofctl` prints it. 0 is not printed.
fn cookie(line: &str) -> Cookie {
    let (_, rest) = line.split_once("cookie=0x").unwrap_or_default();
    let digits = rest.split([',', ' ']).next().unwrap_or_default();
    Cookie(u64::from_str_radix(digits, 16).unwrap_or_default())
}

/// The rows of a table from `ovs-vsctl --format=json list`.
fn table(line: &str) -> Result<Vec<Row>, String> {
    let table: Value = serde_json::from_str(line).map_err(|e| format!("{e}: {line}"))?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let headings = list(&table["headings"]);
    let row = |cells: &Value| {
        let names = headings
            .iter()
            .map(|name| name.as_str().unwrap_or_default().to_string());
        names.zip(list(cells)).collect()
    };
    Ok(list(&table["data"]).iter().map(row).collect())
}

/// The queues that a QoS record refers to, by number.
fn references(row: &Row) -> impl Iterator<Item = (u32, &Value)> {
    let pairs = row["queues"][1].as_array().into_iter().flatten();
    pairs.map(|pair| (pair[0].as_u64().unwrap_or_default() as u32, &pair[1]))
}

/// The requested settings of a QoS record or a queue.
fn settings(row: &Row) -> String {
    let columns = ["type", "other_config", "dscp"].into_iter();
    let found = columns.filter_map(|column| row.get(column));
    found.map(Value::to_string).collect::<Vec<_>>().join(" ")
}

/// Whether a row has the mark of `auster run`.
fn is_marked(row: &Row) -> bool {
    let ids = row["external_ids"][1].as_array();
    ids.is_some_and(|ids| ids.contains(&json!(["auster", "run"])))
}

#[cfg(test)]
mod tests;
