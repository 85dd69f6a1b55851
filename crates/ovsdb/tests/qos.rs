//! The transactions of [`ovsdb::vswitch::qos`] against a model of the database, while other clients
//! change it: rows of others are not touched, our rows are complete or absent, and none of ours is
//! left behind.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::vswitch::qos::{
    InKernel, Orphans, Owner, PortQueues, Queue, QueueCount, QueueCounts, QueueSelection,
};
use ovsdb::vswitch::{self, Bridge, DATABASE, Port};
use ovsdb::{
    Atom, Condition, Datum, Function, Limits, Message, Mutation, Mutator, Operation, Replica, Row,
    Schema, Splitter, Transaction, Uuid,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The schema of Open vSwitch 3.1, as a real server reports it.
#[allow(clippy::disallowed_methods, reason = "a test reads its fixtures")]
fn schema() -> Schema {
    const FILE: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/ovsdb-server-3.1.0/get-schema.jsonl"
    );
    let mut splitter = Splitter::new(Limits::default());
    let text = std::fs::read_to_string(FILE).unwrap();
    for line in text.lines() {
        let (mark, chunk): (String, String) = serde_json::from_str(line).unwrap();
        if mark == "<" {
            splitter.handle_bytes(chunk.as_bytes());
        }
    }
    while let Some(bytes) = splitter.poll_message().unwrap() {
        if let Ok(Message::Response { result, .. }) = Message::decode(&bytes)
            && let Ok(schema) = Schema::from_json(&result)
        {
            return schema;
        }
    }
    panic!("the recording has the schema")
}

type Tables = BTreeMap<String, BTreeMap<Uuid, Row>>;

/// A model of ovsdb-server, as far as the transactions use it.
#[derive(Clone)]
struct Database {
    schema: Schema,
    tables: Tables,
    next: u128,
}

/// The reason why a transaction changed nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Refused {
    TimedOut,
    Integrity,
}

const PORTS: usize = 4;

impl Database {
    /// A bridge of four ports.
    fn new(datapath_type: &str) -> Database {
        let mut database = Database {
            schema: schema(),
            tables: Tables::new(),
            next: 1,
        };
        database.insert("Open_vSwitch", []);
        let type_of_it = Datum::from(datapath_type);
        let row = [("name", Datum::from("br0")), ("datapath_type", type_of_it)];
        database.insert("Bridge", row);
        for port in 0..PORTS {
            database.add_port(port);
        }
        database
    }

    fn insert<'a>(&mut self, table: &str, row: impl IntoIterator<Item = (&'a str, Datum)>) -> Uuid {
        let row = row
            .into_iter()
            .map(|(column, datum)| (column.into(), datum));
        self.insert_row(table, row.collect())
    }

    fn insert_row(&mut self, table: &str, given: Row) -> Uuid {
        let uuid = Uuid(self.next);
        self.next += 1;
        let columns = &self.schema.tables[table];
        let mut row: Row = columns
            .iter()
            .map(|(column, of)| (column.clone(), of.default_datum()))
            .collect();
        for (column, datum) in given {
            let admitted = columns[&column].admit(datum);
            row.insert(column, admitted.expect("it fits the schema"));
        }
        self.tables
            .entry(table.into())
            .or_default()
            .insert(uuid, row);
        uuid
    }

    fn add_port(&mut self, port: usize) {
        if self.port(port).is_none() {
            let uuid = self.insert("Port", [("name", Datum::from(name(port)))]);
            let bridge = self.tables.get_mut("Bridge").unwrap();
            let bridge = bridge.values_mut().next().unwrap();
            let Some(Datum::Set(ports)) = bridge.get_mut("ports") else {
                panic!("ports are a set")
            };
            ports.insert(Atom::Uuid(uuid));
        }
    }

    fn delete_port(&mut self, port: usize) {
        if let Some(uuid) = self.port(port) {
            self.tables.get_mut("Port").unwrap().remove(&uuid);
            let bridge = self.tables.get_mut("Bridge").unwrap();
            let bridge = bridge.values_mut().next().unwrap();
            let Some(Datum::Set(ports)) = bridge.get_mut("ports") else {
                panic!("ports are a set")
            };
            ports.remove(&Atom::Uuid(uuid));
        }
    }

    fn port(&self, port: usize) -> Option<Uuid> {
        let wanted = Datum::from(name(port));
        let mut rows = self.tables.get("Port")?.iter();
        rows.find(|(_, row)| row["name"] == wanted)
            .map(|(uuid, _)| *uuid)
    }

    fn qos_of(&self, port: usize) -> Option<Uuid> {
        self.tables["Port"][&self.port(port)?]["qos"].as_uuid()
    }

    fn rows(&self, table: &str) -> impl Iterator<Item = (&Uuid, &Row)> {
        self.tables.get(table).into_iter().flatten()
    }

    fn column(&mut self, table: &str, uuid: Uuid, column: &str) -> &mut Datum {
        let row = self.tables.get_mut(table).unwrap().get_mut(&uuid).unwrap();
        row.get_mut(column).unwrap()
    }

    /// Whether every reference is to an existing row.
    fn is_whole(&self) -> bool {
        let refers = |table: &str, column: &str, to: &str| {
            let there: BTreeSet<Uuid> = self.rows(to).map(|(uuid, _)| *uuid).collect();
            self.rows(table)
                .flat_map(|(_, row)| row[column].uuids())
                .all(|uuid| there.contains(&uuid))
        };
        refers("Port", "qos", "QoS")
            && refers("QoS", "queues", "Queue")
            && refers("Bridge", "ports", "Port")
    }

    fn transact(&mut self, transaction: &Transaction) -> Result<(), Refused> {
        assert_eq!(transaction.database, DATABASE);
        let mut tried = self.clone();
        let mut names = BTreeMap::new();
        for operation in &transaction.operations {
            tried.operate(operation, &mut names)?;
        }
        if !tried.is_whole() {
            return Err(Refused::Integrity);
        }
        *self = tried;
        Ok(())
    }

    fn operate(
        &mut self,
        operation: &Operation,
        names: &mut BTreeMap<String, Uuid>,
    ) -> Result<(), Refused> {
        match operation {
            Operation::Wait {
                table,
                conditions,
                columns,
                until_equal: true,
                rows,
                timeout_ms: 0,
            } => {
                let project = |row: &Row| -> Row {
                    let columns = columns.iter();
                    columns.map(|c| (c.clone(), row[c].clone())).collect()
                };
                let found = self.rows(table);
                let found = found.filter(|(uuid, row)| matches(uuid, row, conditions));
                let found: Vec<Row> = found.map(|(_, row)| project(row)).collect();
                match found == *rows {
                    true => Ok(()),
                    false => Err(Refused::TimedOut),
                }
            }
            Operation::Insert {
                table,
                row,
                uuid_name,
            } => {
                let row = row
                    .iter()
                    .map(|(c, datum)| (c.clone(), resolve(datum, names)));
                let uuid = self.insert_row(table, row.collect());
                if let Some(name) = uuid_name {
                    assert_eq!(names.insert(name.clone(), uuid), None, "{name} twice");
                }
                Ok(())
            }
            Operation::Update {
                table,
                conditions,
                row,
            } => {
                let columns = self.schema.tables[table].clone();
                for (uuid, old) in self.tables.entry(table.clone()).or_default() {
                    if matches(uuid, old, conditions) {
                        for (column, datum) in row {
                            let new = columns[column].admit(resolve(datum, names));
                            old.insert(column.clone(), new.expect("it fits the schema"));
                        }
                    }
                }
                Ok(())
            }
            Operation::Delete { table, conditions } => {
                let rows = self.tables.entry(table.clone()).or_default();
                rows.retain(|uuid, row| !matches(uuid, row, conditions));
                Ok(())
            }
            Operation::Mutate { table, .. } if table == "Open_vSwitch" => {
                let root = *self.rows(table).next().unwrap().0;
                let next = self.column(table, root, "next_cfg");
                *next = Datum::from(next.as_integer().unwrap() + 1);
                Ok(())
            }
            Operation::Mutate {
                table,
                conditions,
                mutations,
            } if table == "QoS" => {
                let rows = self.tables.entry(table.clone()).or_default();
                for (_, row) in rows.iter_mut().filter(|(u, r)| matches(u, r, conditions)) {
                    mutations.iter().for_each(|mutation| mutate(row, mutation));
                }
                Ok(())
            }
            other => panic!("the model does not know {other:?}"),
        }
    }

    /// The replica of a monitor that begins now.
    fn replica(&self) -> Replica {
        let columns = vswitch::monitor_request().columns;
        let mut updates = json!({});
        for (table, columns) in &columns {
            for (uuid, row) in self.rows(table) {
                let row: serde_json::Map<String, Value> = columns
                    .iter()
                    .map(|column| (column.clone(), row[column].to_json()))
                    .collect();
                updates[table][uuid.to_string()] = json!({"initial": row});
            }
        }
        let mut replica = Replica::new(self.schema.clone(), columns, 10_000);
        replica.handle_update2(&updates).unwrap();
        replica
    }

    fn bridge(&self) -> Bridge {
        vswitch::bridges(&self.replica()).remove("br0").unwrap()
    }

    /// Rows that bear no mark, with their columns.
    fn foreign(&self) -> Vec<(Uuid, Row)> {
        let rows = self.rows("QoS").chain(self.rows("Queue"));
        let foreign = rows.filter(|(_, row)| !is_marked(row));
        foreign.map(|(uuid, row)| (*uuid, row.clone())).collect()
    }

    /// The ports whose QoS is not ours.
    fn taken(&self) -> Vec<(Uuid, Uuid)> {
        let ports = self.rows("Port");
        let pairs = ports.filter_map(|(port, row)| Some((*port, row["qos"].as_uuid()?)));
        pairs
            .filter(|(_, qos)| !is_marked(&self.tables["QoS"][qos]))
            .collect()
    }

    /// Marked rows to which nothing refers.
    fn orphan_count(&self) -> usize {
        let count = |table: &str, from: &str, column: &str| {
            let used: BTreeSet<Uuid> = self
                .rows(from)
                .flat_map(|(_, row)| row[column].uuids())
                .collect();
            let orphans = self.rows(table).filter(|(_, row)| is_marked(row));
            orphans.filter(|(uuid, _)| !used.contains(*uuid)).count()
        };
        count("QoS", "Port", "qos") + count("Queue", "QoS", "queues")
    }
}

fn name(port: usize) -> String {
    format!("p{port}")
}

fn is_marked(row: &Row) -> bool {
    row["external_ids"].get("auster").is_some()
}

fn matches(uuid: &Uuid, row: &Row, conditions: &[Condition]) -> bool {
    conditions.iter().all(|condition| {
        let has = match condition.column.as_str() {
            "_uuid" => Datum::from(*uuid),
            column => row[column].clone(),
        };
        match (condition.function, &has, &condition.value) {
            (Function::Equal, has, wanted) => has == wanted,
            (Function::Includes, Datum::Map(has), Datum::Map(wanted)) => wanted
                .iter()
                .all(|(key, value)| has.get(key) == Some(value)),
            other => panic!("the model does not know {other:?}"),
        }
    })
}

/// Mutates a map column: deletes the given keys, and inserts the pairs whose keys are missing.
fn mutate(row: &mut Row, mutation: &Mutation) {
    let Some(Datum::Map(map)) = row.get_mut(&mutation.column) else {
        panic!("{mutation:?}");
    };
    match (mutation.mutator, &mutation.value) {
        (Mutator::Delete, Datum::Set(keys)) => map.retain(|key, _| !keys.contains(key)),
        (Mutator::Insert, Datum::Map(new)) => {
            for (key, value) in new {
                map.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        other => panic!("{other:?}"),
    }
}

fn resolve(datum: &Datum, names: &BTreeMap<String, Uuid>) -> Datum {
    let atom = |atom: &Atom| match atom {
        Atom::NamedUuid(name) => Atom::Uuid(names[name]),
        other => other.clone(),
    };
    match datum {
        Datum::Set(set) => Datum::Set(set.iter().map(atom).collect()),
        Datum::Map(map) => Datum::Map(map.iter().map(|(k, v)| (atom(k), atom(v))).collect()),
    }
}

fn port(bridge: &Bridge, number: usize) -> Option<&Port> {
    bridge.ports.iter().find(|port| port.name == name(number))
}

/// Queues that differ for different numbers.
fn wanted(number: u8) -> PortQueues {
    let queue = |at: u32| Queue {
        min_rate_bps: Some(1_000_000 * u64::from(number + 1)),
        max_rate_bps: (number != 1).then_some(50_000_000),
        burst_bits: (number == 2).then_some(120_000),
        priority: Some(at),
        dscp: (number != 3).then_some(10 + number),
    };
    PortQueues {
        max_rate_bps: Some(100_000_000),
        queues: (0..=u32::from(number)).map(|at| (at, queue(at))).collect(),
    }
}

const OURS: Owner = Owner::Controller;

/// Applies one of our transactions and checks that it does all or nothing, and leaves other
/// clients' rows alone.
fn apply(database: &mut Database, transaction: &Transaction) -> Result<(), Refused> {
    let (foreign, taken) = (database.foreign(), database.taken());
    let done = database.transact(transaction);
    assert_eq!(database.foreign(), foreign, "{transaction:?}");
    assert_eq!(database.taken(), taken, "{transaction:?}");
    done
}

fn set(database: &mut Database, number: usize, queues: Option<u8>) -> Option<Result<(), Refused>> {
    let bridge = database.bridge();
    set_by(database, &bridge, number, queues)
}

/// Applies the transaction that results from `bridge`, which was read earlier.
fn set_by(
    database: &mut Database,
    bridge: &Bridge,
    number: usize,
    queues: Option<u8>,
) -> Option<Result<(), Refused>> {
    let change = transaction(bridge, number, queues)?;
    let done = apply(database, &change);
    if done.is_ok() {
        let again = transaction(&database.bridge(), number, queues);
        assert_eq!(again, None, "what is done is complete");
    }
    Some(done)
}

fn transaction(bridge: &Bridge, number: usize, queues: Option<u8>) -> Option<Transaction> {
    let port = port(bridge, number)?;
    match queues {
        Some(queues) => port
            .set_queues(OURS, bridge.queue_selection(), &wanted(queues))
            .ok()?,
        None => port.clear_queues(&[OURS]),
    }
}

fn counts(database: &Database) -> (usize, usize) {
    (database.rows("QoS").count(), database.rows("Queue").count())
}

#[test]
fn queues_are_made_once_changed_and_taken_away_with_nothing_left() {
    let mut database = Database::new("");
    assert_eq!(set(&mut database, 0, Some(1)), Some(Ok(())));
    assert_eq!(counts(&database), (1, 2));
    let qos = database.qos_of(0).unwrap();
    let row = &database.tables["QoS"][&qos];
    assert_eq!(row["type"], Datum::from("linux-htb"));
    assert_eq!(row["other_config"].get("max-rate"), Some("100000000"));
    assert_eq!(row["external_ids"].get("auster"), Some("run"));
    assert_eq!(set(&mut database, 0, Some(1)), None, "it has them");
    assert_eq!(set(&mut database, 0, Some(2)), Some(Ok(())));
    assert_eq!(counts(&database), (1, 3), "the old ones are gone");
    let bridge = database.bridge();
    let queues = &port(&bridge, 0).unwrap().qos.as_ref().unwrap().queues;
    let queues: BTreeMap<u32, Queue> = queues
        .iter()
        .map(|(number, row)| (*number, row.queue.clone()))
        .collect();
    assert_eq!(queues, wanted(2).queues);
    assert_eq!(set(&mut database, 0, None), Some(Ok(())));
    assert_eq!(counts(&database), (0, 0));
    assert_eq!(set(&mut database, 0, None), None);
    let root = database.rows("Open_vSwitch").next().unwrap().1;
    assert_eq!(root["next_cfg"], Datum::from(3), "once for each change");
}

/// On this datapath, Open vSwitch shall write the code points and leave the kernel's queues alone.
#[test]
fn on_the_userspace_datapath_the_rows_make_no_queues_and_have_code_points() {
    let mut database = Database::new("netdev");
    assert_eq!(set(&mut database, 0, Some(1)), Some(Ok(())));
    let qos = &database.tables["QoS"][&database.qos_of(0).unwrap()];
    assert_eq!(qos["type"], Datum::from("linux-noop"));
    assert_eq!(qos["other_config"].get("max-rate"), Some("100000000"));
    let dscps: Vec<Option<i64>> = database
        .rows("Queue")
        .map(|(_, row)| row["dscp"].as_integer())
        .collect();
    assert_eq!(dscps, [Some(11), Some(11)]);
    // Without code points the queues would have no effect.
    assert_eq!(set(&mut database, 1, Some(3)), Some(Ok(())));
    assert_eq!(counts(&database), (2, 2));
}

/// A report about the kernel is valid for the rows at that time, and for no others.
#[test]
fn what_the_kernel_has_is_said_in_the_row_once_and_stands_for_no_other_rows() {
    let mut database = Database::new("netdev");
    assert_eq!(set(&mut database, 0, Some(1)), Some(Ok(())));
    let qos = |database: &Database| port(&database.bridge(), 0).unwrap().qos.clone().unwrap();
    assert!(qos(&database).is_for_kernel());
    assert_eq!(qos(&database).in_kernel(), InKernel::Unsaid);
    let failed = InKernel::Failed("no interface p0 here".to_owned());
    for said in [failed, InKernel::Made] {
        let say = qos(&database).say_in_kernel(&said).unwrap();
        assert_eq!(apply(&mut database, &say), Ok(()));
        assert_eq!(qos(&database).in_kernel(), said);
        assert_eq!(qos(&database).say_in_kernel(&said), None, "it is there");
        assert_eq!(set(&mut database, 0, Some(1)), None, "no other queues");
    }
    let row = &database.tables["QoS"][&database.qos_of(0).unwrap()];
    assert_eq!(
        row["external_ids"].get("auster"),
        Some("run"),
        "whose it is"
    );
    assert_eq!(
        row["external_ids"].get("auster-kernel"),
        Some(
            "made: max-rate=100000000 0(min-rate=2000000 priority=0 dscp=11) \
             1(min-rate=2000000 priority=1 dscp=11)"
        )
    );
    // Somebody changes a queue's row, which the QoS row does not show.
    let changed = qos(&database).queues[&1].uuid;
    *database.column("Queue", changed, "dscp") = Datum::from(12);
    assert_eq!(qos(&database).in_kernel(), InKernel::Unsaid);
    let unsay = qos(&database).say_in_kernel(&InKernel::Unsaid).unwrap();
    assert_eq!(apply(&mut database, &unsay), Ok(()));
    assert_eq!(qos(&database).say_in_kernel(&InKernel::Unsaid), None);
    // New rows start without a report.
    assert_eq!(set(&mut database, 0, Some(2)), Some(Ok(())));
    assert_eq!(qos(&database).in_kernel(), InKernel::Unsaid);
    let long = InKernel::Failed("é".repeat(2000));
    let say = qos(&database).say_in_kernel(&long).unwrap();
    assert_eq!(apply(&mut database, &say), Ok(()));
    let InKernel::Failed(told) = qos(&database).in_kernel() else {
        panic!("it failed");
    };
    assert_eq!(told, "é".repeat(500), "what is too long is cut");
}

/// Counters change all the time: neither the rows nor a transaction that changes the rows depend on
/// the counters.
#[test]
fn counters_are_told_in_the_row_and_are_in_nobodys_way() {
    let mut database = Database::new("netdev");
    assert_eq!(set(&mut database, 0, Some(1)), Some(Ok(())));
    let qos = |database: &Database| port(&database.bridge(), 0).unwrap().qos.clone().unwrap();
    assert_eq!(qos(&database).counts(), None);
    let made = qos(&database).say_in_kernel(&InKernel::Made).unwrap();
    assert_eq!(apply(&mut database, &made), Ok(()));
    let before = database.bridge();
    let count = |packets, dropped| QueueCount { packets, dropped };
    for dropped in [0, u64::MAX] {
        let told = QueueCounts::from([(0, count(7, 0)), (1, count(u64::MAX, dropped))]);
        let say = qos(&database).say_counts(&told).unwrap();
        assert_eq!(apply(&mut database, &say), Ok(()));
        assert_eq!(qos(&database).counts(), Some(told.clone()));
        assert_eq!(qos(&database).say_counts(&told), None, "they are there");
        assert_eq!(qos(&database).in_kernel(), InKernel::Made);
        assert_eq!(set(&mut database, 0, Some(1)), None, "no other queues");
    }
    // A bridge read before the counters were added can still change the rows, if these are
    // otherwise the same.
    let id = database.qos_of(0).unwrap();
    let mut other = database.clone();
    *other.column("QoS", id, "external_ids") = Datum::map([("auster", "queues")]);
    let done = set_by(&mut other, &before, 0, Some(2));
    assert_eq!(done, Some(Err(Refused::TimedOut)), "the command's by now");
    assert_eq!(set_by(&mut database, &before, 0, Some(2)), Some(Ok(())));
    assert_eq!(qos(&database).counts(), None, "of other rows");
    for wrong in ["1", "1=2", "1=2:x", "x=1:2", "1=-1:0", "1=1:2 2"] {
        let id = database.qos_of(0).unwrap();
        *database.column("QoS", id, "external_ids") =
            Datum::map([("auster", "run"), ("auster-counts", wrong)]);
        assert_eq!(qos(&database).counts(), None, "{wrong}");
    }
}

#[test]
fn rows_for_open_vswitch_or_by_hand_are_not_for_the_kernel() {
    let mut database = Database::new("");
    assert_eq!(set(&mut database, 0, Some(1)), Some(Ok(())));
    let bridge = database.bridge();
    assert!(
        !port(&bridge, 0)
            .unwrap()
            .qos
            .as_ref()
            .unwrap()
            .is_for_kernel()
    );
    let mut database = Database::new("netdev");
    let bridge = database.bridge();
    let by_hand = port(&bridge, 0).unwrap();
    let change = by_hand.set_queues(Owner::Command, bridge.queue_selection(), &wanted(1));
    assert_eq!(apply(&mut database, &change.unwrap().unwrap()), Ok(()));
    let bridge = database.bridge();
    assert!(
        !port(&bridge, 0)
            .unwrap()
            .qos
            .as_ref()
            .unwrap()
            .is_for_kernel()
    );
}

#[test]
fn what_somebody_else_has_given_a_port_is_left_and_told() {
    let mut database = Database::new("system");
    let qos = database.insert("QoS", [("type", Datum::from("linux-hfsc"))]);
    let at = database.port(0).unwrap();
    *database.column("Port", at, "qos") = Datum::from(qos);
    let bridge = database.bridge();
    let port = port(&bridge, 0).unwrap();
    let taken = port
        .set_queues(OURS, QueueSelection::SetQueue, &wanted(0))
        .unwrap_err();
    let said = taken.to_string();
    assert!(
        said.contains("linux-hfsc that auster did not make"),
        "{said}"
    );
    assert!(said.contains("ovs-vsctl clear port p0 qos"), "{said}");
    assert_eq!(port.clear_queues(&Owner::ALL), None);
}

/// The controller does not change queues that were set at the port by hand, nor the other way
/// round; whoever is at the port may remove either.
#[test]
fn the_command_and_the_controller_do_not_change_each_others_queues() {
    let mut database = Database::new("system");
    for (owner, other, advice) in [
        (
            Owner::Command,
            Owner::Controller,
            "auster queues clear --port p0",
        ),
        (Owner::Controller, Owner::Command, "in its configuration"),
    ] {
        let bridge = database.bridge();
        let made = port(&bridge, 0).unwrap();
        let made = made
            .set_queues(owner, QueueSelection::SetQueue, &wanted(1))
            .unwrap();
        assert_eq!(apply(&mut database, &made.unwrap()), Ok(()));
        let bridge = database.bridge();
        let port = port(&bridge, 0).unwrap();
        let taken = port
            .set_queues(other, QueueSelection::SetQueue, &wanted(0))
            .unwrap_err();
        assert!(taken.to_string().contains(advice), "{taken}");
        assert_eq!(port.clear_queues(&[other]), None);
        let cleared = port.clear_queues(&Owner::ALL).unwrap();
        assert_eq!(apply(&mut database, &cleared), Ok(()));
        assert_eq!(counts(&database), (0, 0));
    }
}

#[test]
fn a_change_since_it_was_read_makes_a_transaction_fail_whole() {
    type Change<'a> = &'a dyn Fn(&mut Database);
    let mut database = Database::new("system");
    assert_eq!(set(&mut database, 0, Some(1)), Some(Ok(())));
    let seen = database.bridge();
    let (at, qos) = (database.port(0).unwrap(), database.qos_of(0).unwrap());
    let changes: [(&str, Change<'_>); 5] = [
        ("another QoS", &|database: &mut Database| {
            let other = database.insert("QoS", [("type", Datum::from("linux-htb"))]);
            *database.column("Port", at, "qos") = Datum::from(other);
        }),
        ("none any more", &|database: &mut Database| {
            *database.column("Port", at, "qos") = Datum::empty();
        }),
        ("no port any more", &|database: &mut Database| {
            database.delete_port(0);
        }),
        ("taken over", &|database: &mut Database| {
            *database.column("QoS", qos, "external_ids") = Datum::map([("owner", "me")]);
        }),
        ("a queue more", &|database: &mut Database| {
            let queue = database.insert("Queue", []);
            let Datum::Map(queues) = database.column("QoS", qos, "queues") else {
                panic!("queues are a map")
            };
            queues.insert(Atom::Integer(9), Atom::Uuid(queue));
        }),
    ];
    for (what, change) in changes {
        for queues in [Some(2), None] {
            let mut changed = database.clone();
            change(&mut changed);
            let before = changed.tables.clone();
            let done = set_by(&mut changed, &seen, 0, queues);
            assert_eq!(done, Some(Err(Refused::TimedOut)), "{what}");
            assert!(changed.tables == before, "{what}: something was changed");
        }
    }
}

/// A QoS that two ports share stays as long as one port has it, and so does a shared queue.
#[test]
fn what_is_shared_is_not_deleted_under_the_other() {
    let mut database = Database::new("system");
    assert_eq!(set(&mut database, 0, Some(1)), Some(Ok(())));
    let qos = database.qos_of(0).unwrap();
    let other = database.port(1).unwrap();
    *database.column("Port", other, "qos") = Datum::from(qos);
    assert_eq!(set(&mut database, 0, None), Some(Ok(())));
    assert_eq!(database.qos_of(1), Some(qos));
    assert_eq!(counts(&database), (1, 2));

    let queue = database.tables["QoS"][&qos]["queues"].uuids()[0];
    let borrowed = Datum::map([(Atom::Integer(5), Atom::Uuid(queue))]);
    database.insert("QoS", [("queues", borrowed)]);
    assert_eq!(set(&mut database, 1, None), Some(Ok(())));
    assert_eq!(
        counts(&database),
        (1, 1),
        "somebody's QoS and what it names"
    );
    assert!(Orphans::of(&database.replica()).is_empty());
}

#[test]
fn orphans_are_those_with_our_mark_that_no_port_uses() {
    let mut database = Database::new("system");
    assert_eq!(set(&mut database, 0, Some(1)), Some(Ok(())));
    assert_eq!(set(&mut database, 1, Some(2)), Some(Ok(())));
    database.insert("Queue", []);
    database.insert("QoS", []);
    let seen = database.replica();
    assert!(Orphans::of(&seen).is_empty());
    let (port, qos) = (database.port(1).unwrap(), database.qos_of(1).unwrap());
    *database.column("Port", port, "qos") = Datum::empty();
    let orphans = Orphans::of(&database.replica());
    assert_eq!(orphans.len(), 4);
    let removal = orphans.removal().unwrap();

    // Meanwhile another client uses the orphans.
    let mut used = database.clone();
    *used.column("Port", port, "qos") = Datum::from(qos);
    assert_eq!(apply(&mut used, &removal), Err(Refused::Integrity));
    // Or another client has adopted them.
    let mut adopted = database.clone();
    *adopted.column("QoS", qos, "external_ids") = Datum::map([("owner", "me")]);
    assert_eq!(apply(&mut adopted, &removal), Err(Refused::Integrity));

    assert_eq!(apply(&mut database, &removal), Ok(()));
    assert_eq!(counts(&database), (2, 3));
    assert_eq!(database.orphan_count(), 0);
    assert_eq!(Orphans::of(&database.replica()).removal(), None);
}

#[test]
fn the_limit_of_a_bridges_table_of_conversations_is_read() {
    let mut database = Database::new("netdev");
    assert_eq!(database.bridge().flow_limit, None);
    let table = |limit: i64| [("flow_limit", Datum::from(limit))];
    let first = database.insert("Flow_Table", table(2000));
    let second = database.insert("Flow_Table", table(7));
    let bridge = database.bridge().uuid;
    let tables = |numbers: &[(i64, Uuid)]| {
        let pairs = numbers.iter();
        Datum::map(pairs.map(|(number, uuid)| (Atom::Integer(*number), Atom::Uuid(*uuid))))
    };
    *database.column("Bridge", bridge, "flow_tables") = tables(&[(1, second)]);
    assert_eq!(database.bridge().flow_limit, None);
    *database.column("Bridge", bridge, "flow_tables") = tables(&[(0, first), (1, second)]);
    assert_eq!(database.bridge().flow_limit, Some(2000));
    *database.column("Bridge", bridge, "flow_tables") = tables(&[(0, first), (8, second)]);
    assert_eq!(database.bridge().flow_limit, Some(7));
    assert_eq!(database.bridge().queue_selection(), QueueSelection::Dscp);
}

#[derive(Clone, Debug)]
enum Step {
    /// Read the bridge again; later steps use this reading.
    Look,
    Ours(usize, Option<u8>),
    Sweep,
    ForeignSet(usize),
    Detach(usize),
    Share(usize, usize),
    Adopt(usize),
    AdoptQueue(usize),
    AddQueue(usize),
    EditQueue(usize),
    Borrow(usize),
    DeletePort(usize),
    AddPort(usize),
    /// Rows that an earlier version left behind.
    LeftBehind,
    ForeignQueue,
}

fn step() -> impl Strategy<Value = Step> {
    let port = 0..PORTS;
    let queues = prop::option::weighted(0.8, 0..4u8);
    prop_oneof![
        3 => Just(Step::Look),
        6 => (port.clone(), queues).prop_map(|(port, queues)| Step::Ours(port, queues)),
        2 => Just(Step::Sweep),
        1 => port.clone().prop_map(Step::ForeignSet),
        1 => port.clone().prop_map(Step::Detach),
        1 => (port.clone(), port.clone()).prop_map(|(a, b)| Step::Share(a, b)),
        1 => port.clone().prop_map(Step::Adopt),
        1 => port.clone().prop_map(Step::AdoptQueue),
        1 => port.clone().prop_map(Step::AddQueue),
        1 => port.clone().prop_map(Step::EditQueue),
        1 => port.clone().prop_map(Step::Borrow),
        1 => port.clone().prop_map(Step::DeletePort),
        1 => port.prop_map(Step::AddPort),
        1 => Just(Step::LeftBehind),
        1 => Just(Step::ForeignQueue),
    ]
}

/// Applies the step of another client.
fn disturb(database: &mut Database, step: &Step) {
    let mine = Datum::map([("owner", "me")]);
    let marked = |database: &Database, port: usize| {
        let qos = database.qos_of(port)?;
        let queues = database.tables["QoS"][&qos]["queues"].uuids();
        Some((qos, queues.first().copied()))
    };
    match *step {
        Step::Look | Step::Ours(..) | Step::Sweep => {}
        Step::ForeignSet(port) => {
            if let Some(port) = database.port(port) {
                let queue = database.insert("Queue", [("external_ids", mine)]);
                let queues = Datum::map([(Atom::Integer(1), Atom::Uuid(queue))]);
                let kind = Datum::from("linux-htb");
                let qos = database.insert("QoS", [("type", kind), ("queues", queues)]);
                *database.column("Port", port, "qos") = Datum::from(qos);
            }
        }
        Step::Detach(port) => {
            if let Some(port) = database.port(port) {
                *database.column("Port", port, "qos") = Datum::empty();
            }
        }
        Step::Share(from, to) => {
            if let (Some(qos), Some(to)) = (database.qos_of(from), database.port(to)) {
                *database.column("Port", to, "qos") = Datum::from(qos);
            }
        }
        Step::Adopt(port) => {
            if let Some((qos, _)) = marked(database, port) {
                *database.column("QoS", qos, "external_ids") = mine;
            }
        }
        Step::AdoptQueue(port) => {
            if let Some((_, Some(queue))) = marked(database, port) {
                *database.column("Queue", queue, "external_ids") = mine;
            }
        }
        Step::AddQueue(port) => {
            if let Some((qos, _)) = marked(database, port) {
                let queue = database.insert("Queue", [("external_ids", mine)]);
                let Datum::Map(queues) = database.column("QoS", qos, "queues") else {
                    panic!("queues are a map")
                };
                queues.insert(Atom::Integer(9), Atom::Uuid(queue));
            }
        }
        Step::EditQueue(port) => {
            if let Some((_, Some(queue))) = marked(database, port) {
                *database.column("Queue", queue, "other_config") = Datum::map([("max-rate", "5")]);
            }
        }
        Step::Borrow(port) => {
            if let Some((_, Some(queue))) = marked(database, port) {
                let queues = Datum::map([(Atom::Integer(3), Atom::Uuid(queue))]);
                database.insert("QoS", [("queues", queues), ("external_ids", mine)]);
            }
        }
        Step::DeletePort(port) => database.delete_port(port),
        Step::AddPort(port) => database.add_port(port),
        Step::LeftBehind => {
            let mark = Datum::map([("auster", "queues")]);
            let queue = database.insert("Queue", [("external_ids", mark.clone())]);
            let queues = Datum::map([(Atom::Integer(0), Atom::Uuid(queue))]);
            database.insert("QoS", [("queues", queues), ("external_ids", mark)]);
        }
        Step::ForeignQueue => drop(database.insert("Queue", [])),
    }
    assert!(database.is_whole(), "{step:?} is possible");
}

/// Maximum number of rounds to finish all remaining work while no other client makes changes.
const ROUNDS_MAX: usize = 4;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn among_changes_of_others_ours_is_complete_or_absent_and_theirs_is_theirs(
        steps in prop::collection::vec(step(), 1..40),
        datapath in prop::sample::select(vec!["", "system", "netdev"]),
    ) {
        let mut database = Database::new(datapath);
        let (mut seen, mut replica) = (database.bridge(), database.replica());
        let mut asked = [None; PORTS];
        for step in &steps {
            match step {
                Step::Look => (seen, replica) = (database.bridge(), database.replica()),
                Step::Ours(port, queues) => {
                    asked[*port] = *queues;
                    let _ = set_by(&mut database, &seen, *port, *queues);
                }
                Step::Sweep => {
                    if let Some(removal) = Orphans::of(&replica).removal() {
                        let _ = apply(&mut database, &removal);
                    }
                }
                foreign => disturb(&mut database, foreign),
            }
        }
        let mut is_done = false;
        for _ in 0..ROUNDS_MAX {
            is_done = true;
            for (port, queues) in asked.iter().enumerate() {
                let done = set(&mut database, port, *queues);
                prop_assert!(matches!(done, None | Some(Ok(()))), "{:?}", done);
                is_done &= done.is_none();
            }
            if let Some(removal) = Orphans::of(&database.replica()).removal() {
                prop_assert_eq!(apply(&mut database, &removal), Ok(()));
                is_done = false;
            }
            if is_done {
                break;
            }
        }
        prop_assert!(is_done, "there is always something left to do");
        prop_assert_eq!(database.orphan_count(), 0);
        let taken = database.taken();
        for (port, queues) in asked.iter().enumerate() {
            let Some(at) = database.port(port) else {
                continue;
            };
            let is_taken = taken.iter().any(|(port, _)| *port == at);
            prop_assert_eq!(database.qos_of(port).is_some(), is_taken || queues.is_some());
        }
    }
}
