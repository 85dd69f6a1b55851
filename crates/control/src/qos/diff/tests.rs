use openflow::Field;
use openflow::PortNo;
use proptest::prelude::*;

use super::super::circuits::Circuits;
use super::super::flow::{Does, Then};
use super::super::plan::Plan;
use super::super::tests::{at, circuit, class, cut, gold, host, link, policy, ring};
use super::super::{Exceeding, Network, On, Proto, Qos, Rate, Service, Treatment};
use super::*;
use crate::Location;
use crate::pipeline::POLICY_TABLE;

fn nobody() -> BTreeSet<DatapathId> {
    BTreeSet::new()
}

fn away(dpids: &[u64]) -> BTreeSet<DatapathId> {
    dpids.iter().map(|dpid| DatapathId(*dpid)).collect()
}

fn plan(qos: &Qos, network: &Network, circuits: &mut Circuits) -> Switches {
    let _ = circuits.update(qos, network);
    Plan::new(qos, network, circuits).switches
}

fn planned(qos: &Qos, network: &Network) -> Switches {
    plan(qos, network, &mut Circuits::default())
}

fn one_circuit() -> Qos {
    Qos {
        circuits: vec![circuit("a", 10)],
        ..Qos::default()
    }
}

fn policies() -> Qos {
    let service = |name: &str, dst_port| Service {
        name: name.to_owned(),
        proto: Some(Proto::Udp),
        dst_port: Some(dst_port),
        ..Service::default()
    };
    let metered = Treatment {
        meter: Some(Meter {
            rate: Rate::mbit(5),
            burst_bytes: None,
            exceeding: Exceeding::Drop,
        }),
        ..Treatment::default()
    };
    let queued = Treatment {
        queue: Some(class("gold")),
        ..Treatment::default()
    };
    Qos {
        ports: [(at(1, 2), gold())].into(),
        services: vec![service("video", 5004), service("backup", 873)],
        policies: vec![
            policy("first", "video", queued, On::Everywhere),
            policy("slow", "backup", metered, On::Everywhere),
        ],
        ..Qos::default()
    }
}

fn apply(held: &mut Switches, (dpid, change): &(DatapathId, Change)) {
    held.entry(*dpid).or_default().apply(change);
}

fn apply_all(held: &mut Switches, diff: &Diff) {
    for change in diff.stages.iter().flat_map(|stage| &stage.changes) {
        apply(held, change);
    }
}

/// Whether flows and meters are the same, apart from their owners.
fn same(held: &Switches, wanted: &Switches) -> bool {
    let kept = |s: &SwitchPlan| {
        let miss = Flow::policy_miss().key;
        let flows = s.flows.iter().filter(|(key, _)| **key != miss);
        let flows = flows.map(|(key, planned)| (key.clone(), planned.does, planned.rank));
        (flows.collect::<Vec<_>>(), s.meters.clone())
    };
    let nothing = SwitchPlan::default();
    held.keys().chain(wanted.keys()).all(|dpid| {
        let of = |switches: &Switches| kept(switches.get(dpid).unwrap_or(&nothing));
        of(held) == of(wanted)
    })
}

fn orders(diff: &Diff) -> Vec<Order> {
    diff.stages.iter().map(|stage| stage.order).collect()
}

#[test]
fn the_same_plan_twice_is_no_message() {
    for qos in [one_circuit(), policies()] {
        let wanted = planned(&qos, &ring());
        let diff = Diff::new(&Switches::new(), &wanted, &nobody());
        assert!(!diff.is_empty());
        let mut held = Switches::new();
        apply_all(&mut held, &diff);
        assert!(same(&held, &wanted));
        assert_eq!(Diff::new(&held, &wanted, &nobody()), Diff::default());
    }
}

#[test]
fn a_circuit_is_set_from_its_end_and_taken_out_from_its_beginning() {
    let wanted = planned(&one_circuit(), &ring());
    let diff = Diff::new(&Switches::new(), &wanted, &nobody());
    let last = |rank: u8| u8::MAX - rank;
    let (third, second) = (Order::Add(last(3)), Order::Add(last(2)));
    assert_eq!(orders(&diff), [third, second, Order::Turn(last(1))]);
    // Both directions: each end opens one.
    let opened: Vec<u64> = diff.stages[2]
        .changes
        .iter()
        .map(|(dpid, _)| dpid.0)
        .collect();
    assert_eq!(opened, [1, 4]);
    let diff = Diff::new(&wanted, &Switches::new(), &nobody());
    let cleared = [Order::Clear(2), Order::Clear(3)];
    assert_eq!(
        orders(&diff),
        [[Order::Close].as_slice(), &cleared].concat()
    );
    assert!(cleared.iter().all(|order| order.drains()));
    assert!(!Order::Close.drains());
}

#[test]
fn a_circuit_that_moves_is_turned_where_it_begins_when_the_rest_is_there() {
    let (qos, mut network, mut circuits) = (one_circuit(), ring(), Circuits::default());
    let held = plan(&qos, &network, &mut circuits);
    cut(&mut network, 2, 4);
    let wanted = plan(&qos, &network, &mut circuits);
    let diff = Diff::new(&held, &wanted, &nobody());
    let of = |order: fn(&Order) -> bool| {
        let stages = diff.stages.iter().filter(|stage| order(&stage.order));
        let changes = stages.flat_map(|stage| &stage.changes);
        changes.map(|(dpid, _)| dpid.0).collect::<BTreeSet<u64>>()
    };
    assert_eq!(of(|o| matches!(o, Order::Add(_))), [1, 3, 4].into());
    assert_eq!(of(|o| matches!(o, Order::Turn(_))), [1, 4].into());
    assert_eq!(of(|o| matches!(o, Order::Clear(_))), [1, 2, 4].into());
    assert!(diff.stages.is_sorted_by_key(|stage| stage.order));
}

#[test]
fn meters_are_there_before_entries_that_name_them_and_go_after_them() {
    let wanted = planned(&policies(), &ring());
    let diff = Diff::new(&Switches::new(), &wanted, &nobody());
    assert_eq!(orders(&diff), [Order::Base, Order::Meters, Order::Policies]);
    let gone = Diff::new(&wanted, &Switches::new(), &nobody());
    assert_eq!(orders(&gone), [Order::Clear(0), Order::Unmeter]);
    assert!(
        !Order::Clear(0).drains(),
        "no packet is between two switches because of it"
    );
    let mut changed = policies();
    let meter = changed.policies[1].treatment.meter.as_mut().unwrap();
    meter.rate = Rate::mbit(6);
    let diff = Diff::new(&wanted, &planned(&changed, &ring()), &nobody());
    assert_eq!(
        orders(&diff),
        [Order::Meters],
        "in place, under the entries"
    );
    let is_modified = |(_, change): &(_, Change)| matches!(change, Change::ModifyMeter(..));
    assert!(diff.stages[0].changes.iter().all(is_modified));
}

#[test]
fn one_policy_more_changes_nothing_of_the_others() {
    let (mut qos, network) = (policies(), ring());
    let held = planned(&qos, &network);
    let mut third = qos.policies[1].clone();
    third.name = "third".to_owned();
    third.priority = 11;
    qos.policies.push(third);
    let diff = Diff::new(&held, &planned(&qos, &network), &nobody());
    // A meter on each switch, and an entry for each version of IP.
    assert_eq!(diff.len(), 4 * 3);
}

#[test]
fn the_lowest_entry_of_the_policy_table_stays() {
    let held = planned(&policies(), &ring());
    let diff = Diff::new(&held, &Switches::new(), &nobody());
    let mut rest = held;
    apply_all(&mut rest, &diff);
    for switch in rest.values() {
        let kept: Vec<&FlowKey> = switch.flows.keys().collect();
        assert_eq!(kept, [&Flow::policy_miss().key]);
        assert_eq!(kept[0].table, POLICY_TABLE);
    }
}

#[test]
fn nobody_is_let_in_while_a_switch_of_the_way_is_away() {
    let wanted = planned(&one_circuit(), &ring());
    let diff = Diff::new(&Switches::new(), &wanted, &away(&[2]));
    assert!(
        orders(&diff)
            .iter()
            .all(|order| matches!(order, Order::Add(_)))
    );
    let whose = Owner::Circuit("a".to_owned());
    assert_eq!(diff.stuck, [whose].into());
    let mut held = Switches::new();
    apply_all(&mut held, &diff);
    let rest = Diff::new(&held, &wanted, &nobody());
    apply_all(&mut held, &rest);
    assert!(same(&held, &wanted));
}

#[test]
fn the_old_way_stays_while_a_switch_of_the_new_one_is_away() {
    let (qos, mut network, mut circuits) = (one_circuit(), ring(), Circuits::default());
    let held = plan(&qos, &network, &mut circuits);
    cut(&mut network, 2, 4);
    let wanted = plan(&qos, &network, &mut circuits);
    let diff = Diff::new(&held, &wanted, &away(&[3]));
    assert!(
        orders(&diff)
            .iter()
            .all(|order| matches!(order, Order::Add(_)))
    );
}

#[test]
fn what_a_circuit_needs_stays_while_it_cannot_be_closed() {
    let held = planned(&one_circuit(), &ring());
    let diff = Diff::new(&held, &Switches::new(), &away(&[1]));
    assert_eq!(
        orders(&diff),
        [Order::Close],
        "the answers' end, which is there"
    );
    let diff = Diff::new(&held, &Switches::new(), &away(&[2]));
    assert!(
        orders(&diff).contains(&Order::Clear(3)),
        "the ends are closed: the rest may go"
    );
}

#[test]
fn entries_of_whom_nobody_remembers_go_when_everybody_is_there() {
    let mut held = planned(&one_circuit(), &ring());
    for planned in held
        .values_mut()
        .flat_map(|switch| switch.flows.values_mut())
    {
        planned.owner = Owner::Nobody;
    }
    let diff = Diff::new(&held, &Switches::new(), &away(&[3]));
    assert_eq!(orders(&diff), [Order::Close]);
    let diff = Diff::new(&held, &Switches::new(), &nobody());
    apply_all(&mut held, &diff);
    assert!(held.values().all(|switch| switch.flows.is_empty()));
}

/// A state of demands and network.
#[derive(Clone, Debug)]
struct Scene {
    circuits: Vec<(u8, u64, bool)>,
    cut: Option<usize>,
    moved: bool,
    with_policies: bool,
}

const LINKS: [(u64, u64); 5] = [(1, 2), (1, 3), (2, 4), (3, 4), (2, 3)];

fn scene() -> impl Strategy<Value = Scene> {
    let circuits = proptest::collection::vec((0..3u8, 1..40u64, any::<bool>()), 0..3);
    let cut = proptest::option::of(0..LINKS.len());
    (circuits, cut, any::<bool>(), any::<bool>()).prop_map(
        |(circuits, cut, moved, with_policies)| Scene {
            circuits,
            cut,
            moved,
            with_policies,
        },
    )
}

impl Scene {
    fn qos(&self) -> Qos {
        let mut qos = match self.with_policies {
            true => policies(),
            false => Qos::default(),
        };
        for (n, rate, both) in &self.circuits {
            qos.circuits
                .retain(|circuit| circuit.name != format!("c{n}"));
            qos.circuits.push(super::super::Circuit {
                priority: u16::from(*n),
                both: *both,
                ..circuit(&format!("c{n}"), *rate)
            });
        }
        qos
    }

    fn network(&self) -> Network {
        let mut network = ring();
        link(&mut network, 2, 3);
        for (a, b) in [(2, 3), (3, 2)] {
            let switch = network.switches.get_mut(&DatapathId(a)).unwrap();
            switch.ports.insert(PortNo(b), Some(Rate::mbit(100)));
        }
        if self.moved {
            network.hosts.insert(host("10.0.0.1"), at(2, 9));
        }
        if let Some((a, b)) = self.cut.map(|n| LINKS[n]) {
            cut(&mut network, a, b);
        }
        network
    }
}

/// The exit of a circuit's packet that comes in here; `None` where no entry lets it in.
fn walk(held: &Switches, network: &Network, priority: u16, from: Location) -> Option<Location> {
    let mut here = from;
    let mut is_in = false;
    for _ in 0..8 {
        let found = held.get(&here.dpid)?.flows.iter().find(|(key, _)| {
            let m = key.matching.to_match();
            let is_its = key.priority == 3001 + priority && key.table != POLICY_TABLE;
            let from_a = m.exact(Field::Ipv4Src) == Some(0x0a00_0001);
            is_its && from_a && m.exact(Field::InPort) == Some(here.port.0.into())
        });
        let Some((_, planned)) = found.filter(|(_, planned)| is_in || planned.rank == OPENS) else {
            return is_in.then_some(here);
        };
        is_in = true;
        let Does {
            then: Then::Output(port),
            ..
        } = planned.does
        else {
            panic!("a circuit's entry leads out");
        };
        let out = Location::new(here.dpid, port);
        match network.links.get(&out) {
            Some(next) => here = *next,
            None => return Some(out),
        }
    }
    panic!("it goes in circles");
}

proptest! {
    /// A circuit is whole or absent wherever a change of plans is cut off, with the switches of a
    /// stage in any order. The next change repairs the remains.
    #[test]
    fn a_circuit_is_never_half(
        (before, after) in (scene(), scene()),
        order in proptest::collection::vec(any::<u32>(), 64),
    ) {
        let mut circuits = Circuits::default();
        // Links stay as they were: failures cannot be controlled here.
        let (old, mut new) = (before.network(), after.network());
        let held = plan(&before.qos(), &old, &mut circuits);
        let mut both = old.clone();
        both.links.extend(new.links.iter().map(|(a, b)| (*a, *b)));
        new.switches = old.switches.clone();
        let wanted = plan(&after.qos(), &new, &mut circuits);
        let diff = Diff::new(&held, &wanted, &nobody());
        let mut state = held;
        for stage in &diff.stages {
            let mut changes: Vec<_> = stage.changes.iter().zip(order.iter().cycle()).collect();
            changes.sort_by_key(|(_, key)| **key);
            for (change, _) in changes {
                apply(&mut state, change);
                let keys = [(0, at(1, 9)), (1, at(1, 9)), (2, at(1, 9)), (0, at(2, 9))];
                for (priority, from) in keys {
                    let end = walk(&state, &both, priority, from);
                    prop_assert!(end.is_none_or(|end| end == at(4, 9)), "{from:?} ends at {end:?}");
                }
                // A restart from here that reads the held state reaches the wanted one.
                let mut rest = state.clone();
                apply_all(&mut rest, &Diff::new(&state, &wanted, &nobody()));
                prop_assert!(same(&rest, &wanted));
            }
        }
        prop_assert!(same(&state, &wanted));
        prop_assert!(Diff::new(&state, &wanted, &nobody()).is_empty());
    }
}
