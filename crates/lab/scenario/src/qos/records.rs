//! The queues in the switches' database, read from outside.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::qos::controlled::{Controlled, Row, pairs, uuids};
use cli::failure::Failure;

/// The mark of rows that `auster run` has made, and of what the kernel has of them.
const MARK: (&str, &str) = ("auster", "run");
const KERNEL: &str = "auster-kernel";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Ports that have a QoS record, by name.
    pub ports: BTreeMap<String, PortRecord>,
    /// Identifiers of rows of `auster run` that nothing refers to.
    pub orphans: BTreeSet<String>,
    /// Rows that are somebody else's, whole, each as it was printed.
    pub foreign: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortRecord {
    pub kind: String,
    /// It is of `auster run`.
    pub is_ours: bool,
    pub max_rate: String,
    /// The queues by number, with every field that is set.
    pub queues: BTreeMap<u32, BTreeMap<String, String>>,
    /// The report about the kernel.
    pub kernel: String,
}

impl Records {
    pub fn read(setup: &Controlled) -> Result<Records, Failure> {
        let (ports, qos, queues) = (
            setup.rows("port")?,
            setup.rows("qos")?,
            setup.rows("queue")?,
        );
        Ok(Records::of(&ports, &qos, &queues))
    }

    fn of(ports: &[Row], qos: &[Row], queues: &[Row]) -> Records {
        let mut records = Records::default();
        let uuid = |row: &Row| uuids(&row["_uuid"]).pop().unwrap_or_default();
        let by_uuid = |rows: &[Row]| -> BTreeMap<String, Row> {
            rows.iter().map(|row| (uuid(row), row.clone())).collect()
        };
        let (of_qos, of_queue) = (by_uuid(qos), by_uuid(queues));
        let mut used = BTreeSet::new();
        for port in ports {
            for id in uuids(&port["qos"]) {
                let Some(row) = of_qos.get(&id) else {
                    continue;
                };
                let name = port["name"].as_str().unwrap_or_default().to_owned();
                records.ports.insert(name, port_record(row, &of_queue));
                used.insert(id);
            }
        }
        for row in qos {
            used.extend(pairs(&row["queues"]).into_iter().map(|(_, queue)| queue));
        }
        for row in qos.iter().chain(queues) {
            match is_ours(row) {
                true if !used.contains(&uuid(row)) => drop(records.orphans.insert(uuid(row))),
                true => {}
                false => drop(
                    records
                        .foreign
                        .insert(Value::Object(row.clone()).to_string()),
                ),
            }
        }
        records
    }
}

fn port_record(row: &Row, queues: &BTreeMap<String, Row>) -> PortRecord {
    let of = |column: &str, key: &str| {
        let pairs = pairs(&row[column]).into_iter();
        let mut found = pairs.filter(|(known, _)| known == key);
        found.next().map_or(String::new(), |(_, value)| value)
    };
    let mut record = PortRecord {
        kind: row["type"].as_str().unwrap_or_default().to_owned(),
        is_ours: is_ours(row),
        max_rate: of("other_config", "max-rate"),
        queues: BTreeMap::new(),
        kernel: of("external_ids", KERNEL),
    };
    for (number, id) in pairs(&row["queues"]) {
        let mut fields = BTreeMap::new();
        match queues.get(&id) {
            Some(queue) => {
                fields.extend(pairs(&queue["other_config"]));
                if queue["dscp"].is_number() {
                    fields.insert("dscp".to_owned(), queue["dscp"].to_string());
                }
            }
            // A reference that leads nowhere, which the database does not allow.
            None => drop(fields.insert("missing".to_owned(), id)),
        }
        record
            .queues
            .insert(number.parse().unwrap_or_default(), fields);
    }
    record
}

fn is_ours(row: &Row) -> bool {
    let mut ids = pairs(&row["external_ids"]).into_iter();
    ids.any(|(key, value)| (key.as_str(), value.as_str()) == MARK)
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    fn row(value: Value) -> Row {
        value.as_object().unwrap().clone()
    }

    fn ours() -> Value {
        json!(["map", [["auster", "run"], ["auster-kernel", "made: x"]]])
    }

    fn port(name: &str, qos: Value) -> Row {
        row(json!({"_uuid": ["uuid", name], "name": name, "qos": qos}))
    }

    fn qos(id: &str, queues: Value, ids: Value) -> Row {
        row(
            json!({"_uuid": ["uuid", id], "type": "linux-noop", "external_ids": ids,
            "other_config": ["map", [["max-rate", "40000000"]]], "queues": ["map", queues]}),
        )
    }

    fn queue(id: &str, ids: Value) -> Row {
        row(
            json!({"_uuid": ["uuid", id], "dscp": 46, "external_ids": ids,
            "other_config": ["map", [["min-rate", "10000000"]]]}),
        )
    }

    #[test]
    fn records_orphans_and_foreign_rows_are_told_apart() {
        let none = || json!(["map", []]);
        let ports = [
            port("s1-eth3", json!(["uuid", "a"])),
            port("s1-eth4", json!(["set", []])),
        ];
        let qos = [
            qos("a", json!([[217, ["uuid", "q1"]]]), ours()),
            qos("b", json!([]), ours()),
            qos("c", json!([[1, ["uuid", "q3"]]]), none()),
        ];
        let queues = [
            queue("q1", ours()),
            queue("q2", ours()),
            queue("q3", none()),
        ];
        let records = Records::of(&ports, &qos, &queues);
        assert_eq!(records.ports.len(), 1);
        let port = &records.ports["s1-eth3"];
        assert_eq!(port.queues[&217]["dscp"], "46");
        assert_eq!((port.is_ours, &port.kernel[..]), (true, "made: x"));
        assert_eq!(port.max_rate, "40000000");
        assert_eq!(port.queues[&217]["min-rate"], "10000000");
        let orphans = ["b", "q2"].map(str::to_owned);
        assert_eq!(records.orphans, orphans.into());
        assert_eq!(records.foreign.len(), 2);
        let lost = Records::of(&ports, &qos, &[]);
        assert_eq!(lost.ports["s1-eth3"].queues[&217]["missing"], "q1");
    }
}
