//! The queues that rows ask for, the steps towards them, and the results to write. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::vswitch::qos::{InKernel, Qos, QueueCounts, QueueSelection};
use ovsdb::vswitch::{Bridge, Interface, Port};
use ovsdb::{Transaction, Uuid};

use crate::queues::plan::Plan;
use crate::queues::stated;
use crate::queues::tc::check_name;

/// The queues that the rows of a database ask for.
#[derive(Debug)]
pub struct Asked {
    rows: BTreeMap<Uuid, Qos>,
    /// The interfaces by name, each with the row that asks and every problem of that row.
    interfaces: BTreeMap<String, (Uuid, Result<Plan, String>)>,
    /// The names of all interfaces in the database, whether or not queues are asked for.
    names: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Set(Plan),
    Clear,
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub step: Step,
    pub problem: Option<String>,
}

/// The last step of each interface.
pub type Known = BTreeMap<String, Outcome>;

impl Asked {
    pub fn of(bridges: &BTreeMap<String, Bridge>, socket_bytes: u32) -> Asked {
        let mut asked = Asked {
            rows: BTreeMap::new(),
            interfaces: BTreeMap::new(),
            names: BTreeSet::new(),
        };
        for (bridge, port) in bridges
            .values()
            .flat_map(|b| b.ports.iter().map(move |p| (b, p)))
        {
            let names = port
                .interfaces
                .iter()
                .map(|interface| interface.name.clone());
            asked.names.extend(names);
            let qos = port.qos.as_ref().filter(|qos| qos.is_for_kernel());
            if let Some(qos) = qos.filter(|_| bridge.queue_selection() == QueueSelection::Dscp) {
                asked.port(port, qos, socket_bytes);
            }
        }
        asked
    }

    /// Adds every interface of a bond, as Open vSwitch does.
    fn port(&mut self, port: &Port, qos: &Qos, socket_bytes: u32) {
        for interface in &port.interfaces {
            let plan = plan(qos, interface, socket_bytes);
            let name = interface.name.clone();
            self.interfaces.insert(name, (qos.uuid, plan));
        }
        self.rows.insert(qos.uuid, qos.clone());
    }
}

fn plan(qos: &Qos, interface: &Interface, socket_bytes: u32) -> Result<Plan, String> {
    check_name(&interface.name)?;
    let rate = qos.max_rate_bps.or(interface.link_speed);
    let rate = rate.ok_or("max-rate: there is none, and the interface tells no speed")?;
    let queues = qos.queues.iter();
    let queues = queues.map(|(number, row)| (*number, row.queue.clone()));
    let plan = stated::of_rows(Some(rate), &queues.collect(), socket_bytes);
    plan.map_err(|problems| problems.join("; "))
}

/// Returns the steps to take, where `present` are the interfaces with queues made for a controller.
/// At a tick, failed steps are tried again. At a tick with a check, everything is compared with the
/// kernel's state.
pub fn steps(
    asked: &Asked,
    known: &Known,
    present: &BTreeSet<String>,
    tick: Option<bool>,
) -> Vec<(String, Step)> {
    let is_due = |name: &String, plan: &Plan| {
        let is_other = |outcome: &Outcome| outcome.step != Step::Set(plan.clone());
        match known.get(name) {
            Some(outcome) if !is_other(outcome) => match (tick, &outcome.problem) {
                (Some(is_check), None) => is_check || !present.contains(name),
                (Some(_), Some(_)) => true,
                (None, _) => false,
            },
            _ => true,
        }
    };
    let plans = asked.interfaces.iter();
    let plans = plans.filter_map(|(name, (_, plan))| Some((name, plan.as_ref().ok()?)));
    let sets = plans.filter(|(name, plan)| is_due(name, plan));
    let sets = sets.map(|(name, plan)| (name.clone(), Step::Set(plan.clone())));
    // Interfaces of other databases in this namespace are not ours to clear.
    let is_asked = |name: &&String| asked.names.contains(*name) || known.contains_key(*name);
    let is_failed = |name: &String| {
        let last = known
            .get(name)
            .filter(|outcome| outcome.step == Step::Clear);
        last.is_some_and(|outcome| outcome.problem.is_some())
    };
    let clears = present.iter().filter(is_asked);
    let clears = clears.filter(|name| !asked.interfaces.contains_key(*name));
    let clears = clears.filter(|name| tick.is_some() || !is_failed(name));
    let clears = clears.map(|name| (name.clone(), Step::Clear));
    clears.chain(sets).collect()
}

/// The changes of rows that do not match the kernel's state yet.
pub fn said(asked: &Asked, known: &Known) -> Vec<Transaction> {
    let mut said: BTreeMap<Uuid, InKernel> = BTreeMap::new();
    for (name, (row, plan)) in &asked.interfaces {
        let what = match plan {
            Err(problem) => InKernel::Failed(problem.clone()),
            Ok(plan) => in_kernel(known.get(name), plan),
        };
        let of_row = said.entry(*row).or_insert(InKernel::Made);
        // If interfaces share a row, a problem with one takes precedence over success.
        if *of_row == InKernel::Made {
            *of_row = what;
        }
    }
    let said = said.into_iter();
    said.filter_map(|(row, what)| asked.rows.get(&row)?.say_in_kernel(&what))
        .collect()
}

fn in_kernel(outcome: Option<&Outcome>, plan: &Plan) -> InKernel {
    match outcome {
        Some(Outcome { step, problem }) if *step == Step::Set(plan.clone()) => match problem {
            None => InKernel::Made,
            Some(problem) => InKernel::Failed(problem.clone()),
        },
        _ => InKernel::Unsaid,
    }
}

/// The interfaces whose queues are as asked for.
pub fn made(asked: &Asked, known: &Known) -> Vec<String> {
    let plans = asked.interfaces.iter();
    let plans = plans.filter_map(|(name, (_, plan))| Some((name, plan.as_ref().ok()?)));
    let made = plans.filter(|(name, plan)| in_kernel(known.get(*name), plan) == InKernel::Made);
    made.map(|(name, _)| name.clone()).collect()
}

/// The changes of rows whose counters are out of date. A bond's row gets the sum over its
/// interfaces.
pub fn counted(asked: &Asked, counts: &BTreeMap<String, QueueCounts>) -> Vec<Transaction> {
    let mut of_rows: BTreeMap<Uuid, QueueCounts> = BTreeMap::new();
    for (name, counts) in counts {
        let Some((row, _)) = asked.interfaces.get(name) else {
            continue;
        };
        let of_row = of_rows.entry(*row).or_default();
        for (queue, count) in counts {
            let sum = of_row.entry(*queue).or_default();
            sum.packets = sum.packets.saturating_add(count.packets);
            sum.dropped = sum.dropped.saturating_add(count.dropped);
        }
    }
    let of_rows = of_rows.into_iter();
    of_rows
        .filter_map(|(row, counts)| asked.rows.get(&row)?.say_counts(&counts))
        .collect()
}

/// Forgets interfaces that have no queues and for which none are asked.
pub fn prune(known: &mut Known, asked: &Asked, present: &BTreeSet<String>) {
    known.retain(|name, _| asked.interfaces.contains_key(name) || present.contains(name));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::queues::plan::Rate;
    use crate::queues::plan::tests::SOCKET_BYTES;
    use ovsdb::vswitch::qos::QueueCount;
    use ovsdb::{Operation, Replica, Schema, vswitch};

    /// One port of bridge `br0`.
    #[derive(Clone)]
    struct Row {
        name: &'static str,
        mark: &'static str,
        kind: &'static str,
        /// The guarantee of queue 1, in bits a second.
        min_rate: u64,
        dscp: Option<u8>,
        /// The record's rate, and the rate that the interface reports.
        rates: (Option<u64>, Option<u64>),
        said: Option<String>,
    }

    const P1: Row = Row {
        name: "p1",
        mark: "run",
        kind: "linux-noop",
        min_rate: 20_000_000,
        dscp: Some(10),
        rates: (Some(100_000_000), None),
        said: None,
    };

    fn uuid(table: u128, number: usize) -> Uuid {
        Uuid(table << 64 | number as u128)
    }

    /// The requests of a database with these ports.
    fn asked(datapath_type: &str, ports: &[Row]) -> Asked {
        let reference = |table, number| json!(["uuid", uuid(table, number).to_string()]);
        let map = |pairs: &[(&str, String)]| json!(["map", pairs]);
        let mut updates = json!({});
        let mut put = |table: &str, at: Uuid, row: Value| {
            updates[table][at.to_string()] = json!({ "initial": row });
        };
        let all: Vec<Value> = (0..ports.len()).map(|n| reference(1, n)).collect();
        let bridge = json!({
            "name": "br0", "datapath_type": datapath_type, "ports": ["set", all],
        });
        put("Bridge", uuid(0, 0), bridge);
        for (n, row) in ports.iter().enumerate() {
            let port = json!({
                "name": row.name, "interfaces": reference(2, n), "qos": reference(3, n),
            });
            put("Port", uuid(1, n), port);
            let number = |n: Option<u64>| n.map_or_else(|| json!(["set", []]), |n| json!(n));
            let interface = json!({ "name": row.name, "link_speed": number(row.rates.1) });
            put("Interface", uuid(2, n), interface);
            let rate = row.rates.0.map(|bps| ("max-rate", bps.to_string()));
            let said = row.said.iter().map(|said| ("auster-kernel", said.clone()));
            let ids: Vec<_> = said.chain([("auster", row.mark.to_owned())]).collect();
            let qos = json!({
                "type": row.kind,
                "other_config": map(rate.as_slice()),
                "external_ids": map(&ids),
                "queues": ["map", [[1, reference(4, n)]]],
            });
            put("QoS", uuid(3, n), qos);
            let queue = json!({
                "dscp": number(row.dscp.map(u64::from)),
                "other_config": map(&[("min-rate", row.min_rate.to_string())]),
            });
            put("Queue", uuid(4, n), queue);
        }
        let mut replica = Replica::new(schema(), vswitch::monitor_request().columns, 1000);
        replica.handle_update2(&updates).unwrap();
        Asked::of(&vswitch::bridges(&replica), SOCKET_BYTES)
    }

    /// The part of Open vSwitch's schema that is monitored.
    fn schema() -> Schema {
        let any = json!({"min": 0, "max": "unlimited"});
        let column = |key: &str, value: Option<&str>| {
            let mut column = any.clone();
            column["key"] = json!(key);
            if let Some(value) = value {
                column["value"] = json!(value);
            }
            json!({ "type": column })
        };
        let mut tables = json!({});
        for (table, columns) in vswitch::monitor_request().columns {
            for name in columns {
                let of = match (table.as_str(), name.as_str()) {
                    (_, "external_ids" | "other_config") => column("string", Some("string")),
                    (_, "queues") => column("integer", Some("uuid")),
                    (_, "ports" | "interfaces" | "qos") => column("uuid", None),
                    (_, "dscp" | "link_speed") => column("integer", None),
                    _ => column("string", None),
                };
                tables[&table]["columns"][name] = of;
            }
        }
        let schema = json!({"name": "Open_vSwitch", "version": "8.3.0", "tables": tables});
        Schema::from_json(&schema).unwrap()
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// The outcomes of all requested steps, each with `problem` as its result.
    fn known(asked: &Asked, problem: Option<&str>) -> Known {
        let steps = steps(asked, &Known::new(), &BTreeSet::new(), Some(true));
        let problem = problem.map(str::to_owned);
        let outcome = |step| Outcome {
            step,
            problem: problem.clone(),
        };
        let done = steps.into_iter();
        done.map(|(name, step)| (name, outcome(step))).collect()
    }

    /// The texts written into rows, by row.
    fn texts(said: &[Transaction]) -> Vec<String> {
        let operations = said.iter().flat_map(|said| &said.operations);
        let texts = operations.map(|operation| match operation {
            Operation::Mutate { mutations, .. } => {
                let value = &mutations.last().unwrap().value;
                value.get("auster-kernel").unwrap_or("").to_owned()
            }
            other => panic!("{other:?}"),
        });
        texts.collect()
    }

    const MADE: &str = "made: max-rate=100000000 1(min-rate=20000000 dscp=10)";

    #[test]
    fn only_rows_of_a_controller_for_a_datapath_without_queues_are_asked_for() {
        let others = [
            Row {
                name: "p2",
                mark: "queues",
                ..P1
            },
            Row {
                name: "p3",
                kind: "linux-htb",
                ..P1
            },
            Row {
                name: "p4",
                mark: "somebody",
                ..P1
            },
        ];
        let ports: Vec<Row> = [P1].into_iter().chain(others).collect();
        let all = asked("netdev", &ports);
        let present = names(&[]);
        let steps_of = |asked: &Asked| steps(asked, &Known::new(), &present, Some(true));
        let [(name, Step::Set(plan))] = &steps_of(&all)[..] else {
            panic!("{:?}", steps_of(&all));
        };
        assert_eq!(name, "p1");
        assert_eq!(plan.rate, Rate(100_000_000));
        assert_eq!(plan.classes.len(), 2, "with queue 0");
        assert_eq!(plan.classes[1].rate, Rate(20_000_000));
        assert_eq!(plan.classes[1].code_points.to_string(), "10");
        assert_eq!(steps_of(&asked("system", &ports)), []);
        assert_eq!(said(&asked("system", &ports), &Known::new()), []);
    }

    #[test]
    fn the_rate_is_the_records_or_else_the_interfaces() {
        let mbit = |n: u64| Some(n * 1_000_000);
        for (rates, rate) in [
            ((mbit(100), mbit(1000)), "100mbit"),
            ((None, mbit(1000)), "1gbit"),
            (
                (None, None),
                "max-rate: there is none, and the interface tells no speed",
            ),
        ] {
            let rows = asked("netdev", &[Row { rates, ..P1 }]);
            let (_, plan) = &rows.interfaces["p1"];
            let found = plan.as_ref().map(|plan| plan.rate.to_string());
            assert_eq!(found.unwrap_or_else(Clone::clone), rate);
        }
    }

    #[test]
    fn a_name_that_is_none_is_told_in_its_row_and_never_reaches_tc() {
        let name = "p1 root\nqdisc del dev lo";
        let rows = asked("netdev", &[Row { name, ..P1 }]);
        assert_eq!(
            steps(&rows, &Known::new(), &names(&[]), Some(true)),
            [],
            "nothing is done"
        );
        let told = texts(&said(&rows, &Known::new()));
        assert!(told[0].contains("is no interface's name"), "{told:?}");
    }

    /// Only differences cause steps: correct queues are left alone, but compared now and then.
    #[test]
    fn what_is_as_it_was_is_left_and_what_is_not_is_done_once() {
        let old = asked("netdev", &[P1]);
        let (done, present) = (known(&old, None), names(&["p1"]));
        let steps_of = |asked: &Asked, present: &BTreeSet<String>, tick| {
            let steps = steps(asked, &done, present, tick);
            let kinds = steps.into_iter().map(|(name, step)| match step {
                Step::Set(plan) => format!("{name} {}", plan.classes[1].rate),
                Step::Clear => format!("{name} clear"),
            });
            kinds.collect::<Vec<_>>()
        };
        for tick in [None, Some(false)] {
            assert_eq!(steps_of(&old, &present, tick), [""; 0], "{tick:?}");
        }
        assert_eq!(steps_of(&old, &present, Some(true)), ["p1 20mbit"]);
        let gone = names(&[]);
        assert_eq!(steps_of(&old, &gone, Some(false)), ["p1 20mbit"], "removed");
        let changed = Row {
            min_rate: 30_000_000,
            ..P1
        };
        let new = asked("netdev", &[changed]);
        assert_eq!(steps_of(&new, &present, None), ["p1 30mbit"]);
        // Our row no longer exists. Queues of a database that is not ours stay.
        let none = asked(
            "netdev",
            &[Row {
                mark: "somebody",
                ..P1
            }],
        );
        let both = names(&["p1", "x1"]);
        assert_eq!(steps_of(&none, &both, None), ["p1 clear"]);
        assert_eq!(
            steps_of(&asked("netdev", &[]), &both, None),
            ["p1 clear"],
            "the port is"
        );
        // Queues left by an earlier process.
        let found = steps(&none, &Known::new(), &both, Some(true));
        assert_eq!(found, [("p1".to_owned(), Step::Clear)]);
        let mut known = done.clone();
        prune(&mut known, &none, &present);
        assert_eq!(known.len(), 1);
        prune(&mut known, &none, &gone);
        assert_eq!(known.len(), 0);
    }

    /// Failed rows keep their last report, which no longer means anything.
    #[test]
    fn what_queues_that_are_made_have_counted_is_told_when_it_changes() {
        let rows = asked("netdev", &[P1]);
        assert_eq!(made(&rows, &known(&rows, None)), ["p1"]);
        assert_eq!(made(&rows, &known(&rows, Some("busy"))), [""; 0]);
        assert_eq!(made(&rows, &Known::new()), [""; 0]);
        let count = QueueCount {
            packets: 12,
            dropped: 3,
        };
        let counts = |name: &str| BTreeMap::from([(name.to_owned(), [(1, count)].into())]);
        let told = counted(&rows, &counts("p1"));
        let [Operation::Mutate { mutations, .. }] = &told[0].operations[..] else {
            panic!("{told:?}");
        };
        let text = mutations.last().unwrap().value.get("auster-counts");
        assert_eq!(text, Some("1=12:3"));
        assert_eq!(counted(&rows, &counts("p9")), []);
    }

    #[test]
    fn what_failed_is_tried_again_at_the_next_tick_and_said_once() {
        let rows = asked("netdev", &[P1]);
        let failed = known(&rows, Some("no interface p1 here"));
        let none = names(&[]);
        assert_eq!(steps(&rows, &failed, &none, None), []);
        assert_eq!(steps(&rows, &failed, &none, Some(false)).len(), 1);
        assert_eq!(
            texts(&said(&rows, &failed)),
            ["failed: no interface p1 here"]
        );
        let told = Row {
            said: Some("failed: no interface p1 here".to_owned()),
            ..P1
        };
        assert_eq!(said(&asked("netdev", &[told]), &failed), []);
        // A foreign qdisc has taken the place of ours, which is to be removed.
        let cleared = Outcome {
            step: Step::Clear,
            problem: Some("busy".to_owned()),
        };
        let known = Known::from([("p1".to_owned(), cleared)]);
        let (gone, present) = (asked("netdev", &[]), names(&["p1"]));
        assert_eq!(steps(&gone, &known, &present, None), []);
        assert_eq!(steps(&gone, &known, &present, Some(false)).len(), 1);
    }

    #[test]
    fn what_is_in_effect_is_said_once_of_the_rows_that_it_was_made_of() {
        let rows = asked("netdev", &[P1]);
        assert_eq!(said(&rows, &Known::new()), [], "nothing is done yet");
        let done = known(&rows, None);
        assert_eq!(texts(&said(&rows, &done)), [MADE]);
        let told = Row {
            said: Some(MADE.to_owned()),
            ..P1
        };
        assert_eq!(
            said(&asked("netdev", std::slice::from_ref(&told)), &done),
            []
        );
        // The rows have changed, but the kernel has not.
        let changed = asked(
            "netdev",
            &[Row {
                min_rate: 30_000_000,
                ..told
            }],
        );
        assert_eq!(texts(&said(&changed, &done)), [""], "that is taken back");
        assert_eq!(texts(&said(&changed, &known(&changed, None))).len(), 1);
    }

    /// Queues that cannot be made leave the existing ones unchanged.
    #[test]
    fn wrong_rows_change_nothing_and_are_told_with_all_that_is_wrong() {
        let done = known(&asked("netdev", &[P1]), None);
        let wrong = Row {
            min_rate: 200_000_000,
            dscp: None,
            ..P1
        };
        let rows = asked("netdev", &[wrong]);
        assert_eq!(steps(&rows, &done, &names(&["p1"]), Some(true)), []);
        let told = texts(&said(&rows, &done)).concat();
        for part in [
            "failed: queue 1: min: 200mbit is above",
            "queue 1: dscp: give it one",
        ] {
            assert!(told.contains(part), "{told}");
        }
    }
}
