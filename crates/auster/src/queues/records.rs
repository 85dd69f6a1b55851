//! Queues of an interface as records in Open vSwitch's database.
//!
//! Where the datapath honours `set_queue`, which the kernel's does, Open vSwitch makes the queues
//! itself from a QoS record. Where it does not, the record is one of type `linux-noop`: without
//! it, Open vSwitch removes queues that it did not make, when it starts or takes in a port.
//!
//! What is ours bears a mark in `external_ids`; what does not is left alone.

use std::collections::BTreeMap;

use ovsdb::{Atom, Condition, Datum, OpResult, Operation, Row, Uuid};

use crate::database::Client;
use crate::queues::plan::{Class, Plan};
use crate::queues::tc::Change;

/// In `external_ids` of what auster made.
const MARK: (&str, &str) = ("auster", "queues");
const HTB: &str = "linux-htb";
const NOOP: &str = "linux-noop";

/// A port as its records describe it.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    uuid: Uuid,
    pub bridge: String,
    /// Empty is `system`, the kernel's.
    pub datapath: String,
    pub qos: Option<Qos>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Qos {
    uuid: Uuid,
    pub kind: String,
    pub is_ours: bool,
    options: Datum,
    /// By the number that `set_queue` names.
    queues: BTreeMap<u32, Queue>,
}

#[derive(Clone, Debug, PartialEq)]
struct Queue {
    uuid: Uuid,
    is_ours: bool,
    row: QueueRow,
}

/// What is of interest in a row of table Queue.
#[derive(Clone, Debug, PartialEq)]
struct QueueRow {
    options: Datum,
    /// What Open vSwitch writes into packets that a flow has put in this queue.
    dscp: Option<u8>,
}

/// A queue as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct QueueRecord {
    pub set_queue: u32,
    pub priority: Option<u8>,
    pub min_rate_bps: Option<u64>,
    pub max_rate_bps: Option<u64>,
    pub dscp: Option<u8>,
}

impl Port {
    /// Whether `set_queue` chooses a queue here.
    pub fn honours_set_queue(&self) -> bool {
        matches!(self.datapath.as_str(), "" | "system")
    }

    /// The port's records, if it is one of a bridge.
    pub async fn find(client: &mut Client, name: &str) -> Result<Option<Port>, String> {
        let here = vec![Condition::equal("name", name)];
        let [ports, bridges] = client
            .transact(&[
                Operation::select("Port", here),
                Operation::select("Bridge", vec![]),
            ])
            .await?
            .try_into()
            .map_err(|_| "the database answers with less than was asked".to_owned())?;
        let Some(port) = rows(ports).pop() else {
            return Ok(None);
        };
        let uuid = uuid_of(&port)?;
        let bridge = rows(bridges).into_iter().find(|bridge| {
            let ports = bridge.get("ports").map(Datum::uuids).unwrap_or_default();
            ports.contains(&uuid)
        });
        let Some(bridge) = bridge else {
            return Ok(None);
        };
        let text = |column: &str| bridge.get(column).and_then(Datum::as_str).unwrap_or("");
        let qos = match port.get("qos").and_then(|q| q.uuids().first().copied()) {
            Some(uuid) => Qos::find(client, uuid).await?,
            None => None,
        };
        Ok(Some(Port {
            uuid,
            bridge: text("name").to_owned(),
            datapath: text("datapath_type").to_owned(),
            qos,
        }))
    }

    /// Gives the port the queues of `plan`, unless it has them.
    pub async fn set(&self, client: &mut Client, plan: &Plan) -> Result<Change, String> {
        let wanted = wanted(plan);
        let link = Datum::map([("max-rate", plan.rate.0.to_string())]);
        self.replace(client, HTB, link, &wanted).await
    }

    /// Makes Open vSwitch leave the interface's queues to others, unless it does. Of queues that
    /// have a mark it is told the mark: it writes that into what a flow has put in the queue, also
    /// where the datapath itself has no queues.
    pub async fn leave_alone(&self, client: &mut Client, plan: &Plan) -> Result<Change, String> {
        let is_marked = plan.classes.iter().any(|class| class.mark.is_some());
        let queues = if is_marked {
            wanted(plan)
        } else {
            BTreeMap::new()
        };
        self.replace(client, NOOP, Datum::map::<&str, &str>([]), &queues)
            .await
    }

    /// Whether the port has a record that auster did not make, and what to do about it.
    pub fn foreign(&self) -> Option<String> {
        let qos = self.qos.as_ref().filter(|qos| !qos.is_ours)?;
        Some(format!(
            "port has a QoS record of type {} that auster did not make; remove it first: \
             ovs-vsctl clear port PORT qos",
            qos.kind
        ))
    }

    /// Removes our record and its queues, and says whether there was one.
    pub async fn clear(&self, client: &mut Client) -> Result<bool, String> {
        match &self.qos {
            Some(qos) if qos.is_ours => {
                let mut operations = self.guard();
                operations.push(self.point_at(Datum::empty()));
                operations.extend(qos.removal());
                client.transact(&operations).await.map(|_| true)
            }
            _ => Ok(false),
        }
    }

    async fn replace(
        &self,
        client: &mut Client,
        kind: &str,
        options: Datum,
        queues: &BTreeMap<u32, QueueRow>,
    ) -> Result<Change, String> {
        if let Some(problem) = self.foreign() {
            return Err(problem);
        }
        if let Some(qos) = &self.qos {
            let row_of = |(number, queue): (&u32, &Queue)| (*number, queue.row.clone());
            let is_queues: BTreeMap<u32, QueueRow> = qos.queues.iter().map(row_of).collect();
            if qos.kind == kind && qos.options == options && is_queues == *queues {
                return Ok(Change::None);
            }
        }
        let name = |number: &u32| format!("queue{number}");
        let mark = Datum::map([MARK]);
        let mut operations = self.guard();
        operations.extend(queues.iter().map(|(number, queue)| {
            let dscp = queue.dscp.map(i64::from);
            let row = [
                ("other_config", queue.options.clone()),
                ("dscp", Datum::set(dscp)),
                ("external_ids", mark.clone()),
            ];
            Operation::insert_named(&name(number), "Queue", row)
        }));
        let references = queues
            .keys()
            .map(|number| (i64::from(*number), Atom::NamedUuid(name(number))));
        let row = [
            ("type", Datum::from(kind)),
            ("other_config", options),
            ("queues", Datum::map(references)),
            ("external_ids", mark.clone()),
        ];
        operations.push(Operation::insert_named("qos", "QoS", row));
        operations.push(self.point_at(Datum::from(Atom::NamedUuid("qos".into()))));
        operations.extend(self.qos.iter().flat_map(Qos::removal));
        client.transact(&operations).await?;
        Ok(match self.qos {
            Some(_) => Change::Replaced,
            None => Change::Made,
        })
    }

    /// Fails the transaction if the port has another QoS by now than was looked at.
    fn guard(&self) -> Vec<Operation> {
        let qos = self.qos.as_ref();
        let qos = qos.map_or_else(Datum::empty, |qos| Datum::from(qos.uuid));
        vec![Operation::Wait {
            table: "Port".into(),
            conditions: vec![Condition::equal("_uuid", self.uuid)],
            columns: vec!["qos".into()],
            until_equal: true,
            rows: vec![Row::from([("qos".to_owned(), qos)])],
            timeout_ms: 0,
        }]
    }

    fn point_at(&self, qos: Datum) -> Operation {
        let here = vec![Condition::equal("_uuid", self.uuid)];
        Operation::update("Port", here, [("qos", qos)])
    }
}

impl Qos {
    async fn find(client: &mut Client, uuid: Uuid) -> Result<Option<Qos>, String> {
        let here = vec![Condition::equal("_uuid", uuid)];
        let [qos, queues] = client
            .transact(&[
                Operation::select("QoS", here),
                Operation::select("Queue", vec![]),
            ])
            .await?
            .try_into()
            .map_err(|_| "the database answers with less than was asked".to_owned())?;
        let Some(row) = rows(qos).pop() else {
            return Ok(None);
        };
        let mut all = BTreeMap::new();
        for queue in rows(queues) {
            all.insert(uuid_of(&queue)?, queue);
        }
        let pairs = match row.get("queues") {
            Some(Datum::Map(pairs)) => pairs.clone(),
            _ => BTreeMap::new(),
        };
        let queue = |(number, uuid): (&Atom, &Atom)| {
            let (Atom::Integer(number), Atom::Uuid(uuid)) = (number, uuid) else {
                return None;
            };
            let row = all.get(uuid)?;
            let queue = Queue {
                uuid: *uuid,
                is_ours: is_marked(row),
                row: QueueRow {
                    options: options(row),
                    dscp: row.get("dscp").and_then(Datum::as_integer).map(|d| d as u8),
                },
            };
            Some((u32::try_from(*number).ok()?, queue))
        };
        Ok(Some(Qos {
            uuid,
            kind: row
                .get("type")
                .and_then(Datum::as_str)
                .unwrap_or("")
                .to_owned(),
            is_ours: is_marked(&row),
            options: options(&row),
            queues: pairs.iter().filter_map(queue).collect(),
        }))
    }

    /// The database collects neither.
    fn removal(&self) -> Vec<Operation> {
        let ours = self.queues.values().filter(|queue| queue.is_ours);
        let rows = ours.map(|queue| ("Queue", queue.uuid));
        std::iter::once(("QoS", self.uuid))
            .chain(rows)
            .map(|(table, uuid)| Operation::delete(table, vec![Condition::equal("_uuid", uuid)]))
            .collect()
    }

    /// In the order of their numbers.
    pub fn queues(&self) -> Vec<QueueRecord> {
        let record = |(number, queue): (&u32, &Queue)| {
            let option = |key: &str| queue.row.options.get(key)?.parse().ok();
            QueueRecord {
                set_queue: *number,
                priority: option("priority").map(|priority: u64| priority as u8),
                min_rate_bps: option("min-rate"),
                max_rate_bps: option("max-rate"),
                dscp: queue.row.dscp,
            }
        };
        self.queues.iter().map(record).collect()
    }
}

fn wanted(plan: &Plan) -> BTreeMap<u32, QueueRow> {
    let row = |class: &Class| {
        let mut options = vec![
            ("priority", class.priority.to_string()),
            ("min-rate", class.rate.0.to_string()),
            ("max-rate", class.rate_max.0.to_string()),
        ];
        // In bits there.
        let burst = class.burst_bytes.map(|bytes| (bytes * 8).to_string());
        options.extend(burst.map(|bits| ("burst", bits)));
        QueueRow {
            options: Datum::map(options),
            dscp: class.mark,
        }
    };
    let classes = plan.classes.iter();
    classes.map(|class| (class.set_queue, row(class))).collect()
}

fn rows(result: OpResult) -> Vec<Row> {
    match result {
        OpResult::Rows(rows) => rows,
        _ => vec![],
    }
}

fn uuid_of(row: &Row) -> Result<Uuid, String> {
    let uuid = row.get("_uuid").and_then(Datum::as_uuid);
    uuid.ok_or_else(|| "a row of the database has no _uuid".to_owned())
}

fn options(row: &Row) -> Datum {
    row.get("other_config")
        .cloned()
        .unwrap_or_else(Datum::empty)
}

fn is_marked(row: &Row) -> bool {
    let ids = row.get("external_ids");
    ids.and_then(|ids| ids.get(MARK.0)) == Some(MARK.1)
}
