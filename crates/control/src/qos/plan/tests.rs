use clock::Instant;
use openflow::message::FlowMod;
use openflow::packet::build::{Host, udp};
use openflow::table::{Output, Switch};
use openflow::{MacAddr, Match, Message, Version};
use proptest::prelude::*;

use super::super::asked::{Asked, Edit};
use super::super::diff::Diff;
use super::super::tests::{at, circuit, class, gold, host, policy, queue, ring};
use super::super::{CODE_POINTS, Exceeding, MeterFacts, Proto, Rate};
use super::*;
use crate::pipeline::path_instructions;

/// UDP to this port is video.
const VIDEO: u16 = 5004;

fn qos(policies: Vec<Policy>) -> Qos {
    Qos {
        ports: BTreeMap::from([(at(1, 2), gold()), (at(2, 4), gold())]),
        services: vec![Service {
            name: "video".to_owned(),
            proto: Some(Proto::Udp),
            dst_port: Some(VIDEO),
            ..Service::default()
        }],
        policies,
        ..Qos::default()
    }
}

fn queued() -> Treatment {
    Treatment {
        queue: Some(class("gold")),
        ..Treatment::default()
    }
}

fn dropped() -> Treatment {
    Treatment {
        drop: true,
        ..Treatment::default()
    }
}

fn metered(mbit: u64) -> Treatment {
    Treatment {
        meter: Some(Meter {
            rate: crate::qos::Rate::mbit(mbit),
            burst_bytes: None,
            exceeding: Exceeding::Drop,
        }),
        ..Treatment::default()
    }
}

fn path() -> On {
    On::Path {
        from: host("10.0.0.1"),
        to: host("10.0.0.2"),
    }
}

fn plan(qos: &Qos, network: &Network) -> Plan {
    let mut circuits = Circuits::default();
    let _ = circuits.update(qos, network);
    Plan::new(qos, network, &circuits)
}

/// A model switch that has its plan, with a path for every packet out of `out`.
fn model(plan: &Plan, dpid: u64, out: u32) -> Switch {
    let mut switch = Switch::with_ports([1, 2, 3, 4, 9]);
    let wanted: BTreeMap<DatapathId, SwitchPlan> = plan
        .switches
        .iter()
        .filter(|(at, _)| at.0 == dpid)
        .map(|(at, switch)| (*at, switch.clone()))
        .collect();
    let diff = Diff::new(&BTreeMap::new(), &wanted, &BTreeSet::new());
    for (_, change) in diff.stages.iter().flat_map(|stage| &stage.changes) {
        let message = change.to_message(Version::V13, 7);
        let _ = switch.apply(Instant::START, &message).unwrap();
    }
    let instructions = match plan.switches.get(&DatapathId(dpid)) {
        Some(switch) if switch.has_policies() => path_instructions(PortNo(out)),
        _ => Vec::new(),
    };
    let path = FlowMod {
        instructions,
        ..FlowMod::add(
            2000,
            Match::any(),
            vec![openflow::Action::output(PortNo(out))],
        )
    };
    let _ = switch
        .apply(Instant::START, &Message::FlowMod(path))
        .unwrap();
    switch
}

/// Port, queue and code point of a packet from one host to the other when it leaves.
fn sent(switch: &mut Switch, in_port: u32, udp_port: u16) -> Option<(u32, Option<u32>, u8)> {
    let end = |n: u8| Host::new(MacAddr([2, 0, 0, 0, 0, n]), [10, 0, 0, n].into());
    let packet = udp(end(1), end(2), (4000, udp_port), b"payload");
    match &switch.process(Instant::START, PortNo(in_port), &packet)[..] {
        [
            Output::Port {
                port,
                queue,
                packet,
            },
        ] => Some((port.0, queue.map(|queue| queue.0), packet[15] >> 2)),
        [] => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_policy_chooses_the_queue_of_the_port_that_a_path_leaves_by() {
    let asked = qos(vec![policy("p", "video", queued(), On::Everywhere)]);
    let plan = plan(&asked, &ring());
    let mut switch = model(&plan, 1, 2);
    assert_eq!(sent(&mut switch, 9, VIDEO), Some((2, Some(1), 0)));
    assert_eq!(
        sent(&mut switch, 9, 80),
        Some((2, None, 0)),
        "no video: as its path says"
    );
    assert!(
        !plan.switches.contains_key(&DatapathId(3)),
        "no queue there"
    );
    assert_eq!(plan.waiting, BTreeSet::new());
}

#[test]
fn each_port_has_a_number_of_its_own_for_a_class() {
    let mut asked = qos(vec![policy("p", "video", queued(), On::Everywhere)]);
    let mut other = gold();
    other.queues = BTreeMap::from([(5, queue("gold", 10, 100, 10))]);
    asked.ports.insert(at(1, 3), other);
    let plan = plan(&asked, &ring());
    for (out, number) in [(2, Some(1)), (3, Some(5)), (9, None)] {
        let mut switch = model(&plan, 1, out);
        assert_eq!(
            sent(&mut switch, 4, VIDEO),
            Some((out, number, 0)),
            "port {out}"
        );
    }
}

#[test]
fn a_policy_of_a_port_holds_for_packets_that_leave_by_it() {
    let on = On::Ports([at(1, 2)].into());
    let plan = plan(&qos(vec![policy("p", "video", dropped(), on)]), &ring());
    assert_eq!(sent(&mut model(&plan, 1, 2), 9, VIDEO), None);
    assert_eq!(sent(&mut model(&plan, 1, 3), 9, VIDEO), Some((3, None, 0)));
    assert!(plan.switches[&DatapathId(2)].flows.is_empty());
}

#[test]
fn the_greater_priority_holds_alone() {
    let mut asked = qos(vec![
        policy("p", "video", queued(), On::Everywhere),
        policy(
            "above",
            "video",
            dropped(),
            On::Switches([DatapathId(1)].into()),
        ),
    ]);
    asked.policies[1].priority = 11;
    let above = plan(&asked, &ring());
    assert_eq!(sent(&mut model(&above, 1, 2), 9, VIDEO), None);
    assert_eq!(
        sent(&mut model(&above, 2, 4), 9, VIDEO),
        Some((4, Some(1), 0))
    );
    asked.policies[1].priority = 9;
    let below = plan(&asked, &ring());
    assert_eq!(
        sent(&mut model(&below, 1, 2), 9, VIDEO),
        Some((2, Some(1), 0))
    );
}

#[test]
fn a_mark_is_written_before_the_packet_leaves() {
    let treatment = Treatment {
        mark: Some(46),
        ..Treatment::default()
    };
    let plan = plan(
        &qos(vec![policy("p", "video", treatment, On::Everywhere)]),
        &ring(),
    );
    assert_eq!(sent(&mut model(&plan, 3, 4), 9, VIDEO), Some((4, None, 46)));
}

#[test]
fn on_a_path_the_queue_is_everywhere_and_the_rest_where_it_begins() {
    let treatment = Treatment {
        queue: Some(class("gold")),
        ..metered(5)
    };
    let plan = plan(&qos(vec![policy("p", "video", treatment, path())]), &ring());
    let meters = |dpid| plan.switches.get(&DatapathId(dpid)).map(|s| s.meters.len());
    assert_eq!((meters(1), meters(2), meters(4)), (Some(1), Some(0), None));
    assert_eq!(
        sent(&mut model(&plan, 2, 4), 9, VIDEO),
        Some((4, Some(1), 0))
    );
    let mut unheard = ring();
    unheard.hosts.clear();
    let asked = qos(vec![policy("p", "video", metered(5), path())]);
    let plan = super::Plan::new(&asked, &unheard, &Circuits::default());
    let (owner, why) = plan.waiting.first().unwrap();
    assert_eq!(*owner, Owner::Policy("p".to_owned()));
    assert!(why.contains("10.0.0.1 has not been heard"), "{why}");
    assert!(plan.switches.values().all(|s| s.flows.is_empty()));
}

#[test]
fn what_a_switch_cannot_do_waits_and_nothing_of_it_is_there() {
    let asked = qos(vec![policy("p", "video", metered(5), On::Everywhere)]);
    let mut network = ring();
    network.switches.get_mut(&DatapathId(1)).unwrap().meters = None;
    let one = network.switches.get_mut(&DatapathId(2)).unwrap();
    one.meters = Some(MeterFacts {
        max: 0,
        can_remark: false,
    });
    network
        .switches
        .get_mut(&DatapathId(3))
        .unwrap()
        .table_count = 1;
    let plan = plan(&asked, &network);
    let whys: Vec<&str> = plan.waiting.iter().map(|(_, why)| &why[..]).collect();
    assert_eq!(whys.len(), 3, "{whys:?}");
    for why in ["no meters", "no meter left", "one table"] {
        assert!(
            whys.iter().any(|told| told.contains(why)),
            "{why}: {whys:?}"
        );
    }
    for (dpid, switch) in &plan.switches {
        assert_eq!(switch.flows.is_empty(), dpid.0 != 4, "{dpid}");
    }
    let mut network = ring();
    network.switches.remove(&DatapathId(2));
    for facts in network.switches.values_mut() {
        facts.queues_by = QueuesBy::Nobody;
    }
    let on = On::Switches([DatapathId(1), DatapathId(2)].into());
    let plan = super::Plan::new(
        &qos(vec![policy("p", "video", queued(), on)]),
        &network,
        &Circuits::default(),
    );
    let whys: Vec<&str> = plan.waiting.iter().map(|(_, why)| &why[..]).collect();
    assert_eq!(whys.len(), 2, "{whys:?}");
    assert!(
        whys[0].starts_with("nobody reaches the database"),
        "{whys:?}"
    );
    assert!(whys[1].ends_with("is not connected"), "{whys:?}");
    assert_eq!(plan.switches, BTreeMap::new());
}

#[test]
fn a_circuit_is_a_way_with_a_queue_of_its_own_at_every_port() {
    let asked = Qos {
        circuits: vec![circuit("c", 10)],
        ..Qos::default()
    };
    let plan = plan(&asked, &ring());
    let way = [(1u64, 9u32, 2u32), (2, 1, 4), (4, 2, 9)];
    for (rank, (dpid, in_port, out)) in (1..).zip(way) {
        let switch = &plan.switches[&DatapathId(dpid)];
        let ports: Vec<u32> = switch.ports.keys().map(|port| port.0).collect();
        assert_eq!(
            ports,
            [in_port.min(out), in_port.max(out)],
            "there and back"
        );
        let (number, own) = switch.ports[&PortNo(out)]
            .queues
            .queues
            .first_key_value()
            .unwrap();
        assert!(*number > super::super::check::QUEUE_NUMBER_MAX);
        assert_eq!(
            (own.min, &own.dscp[..]),
            (Some(crate::qos::Rate::mbit(10)), &[20][..])
        );
        let mut model = model(&plan, dpid, 3);
        let number = Some(u32::from(*number));
        assert_eq!(sent(&mut model, in_port, VIDEO), Some((out, number, 0)));
        assert_eq!(
            sent(&mut model, 3, VIDEO),
            None,
            "from elsewhere it goes the model's path"
        );
        let mut ranks = switch.flows.values().map(|planned| planned.rank);
        assert!(ranks.any(|found| found == rank));
        assert!(!switch.has_policies());
    }
    assert!(!plan.switches.contains_key(&DatapathId(3)));
}

#[test]
fn a_circuit_s_packets_are_known_again_after_their_code_point_was_written() {
    let mut asked = qos(Vec::new());
    asked.services[0].dscp = Some(34);
    asked.circuits = vec![Circuit {
        service: Some("video".to_owned()),
        ..circuit("c", 10)
    }];
    let plan = plan(&asked, &ring());
    let looks_for = |dpid: u64| -> BTreeSet<u128> {
        let switch = &plan.switches[&DatapathId(dpid)];
        let there = switch.flows.keys().map(|key| key.matching.to_match());
        let there = there.filter(|m| m.exact(Field::UdpDst).is_some());
        there.filter_map(|m| m.exact(Field::IpDscp)).collect()
    };
    assert_eq!(looks_for(1), [34].into());
    assert_eq!(
        looks_for(2),
        [34, 20].into(),
        "where the first switch writes 20"
    );
}

#[test]
fn numbers_hang_on_names() {
    let named = |names: &[&str]| {
        let policies = names.iter().enumerate().map(|(n, name)| Policy {
            priority: n as u16,
            ..policy(name, "video", metered(5), On::Everywhere)
        });
        plan(&qos(policies.collect()), &ring())
    };
    let meters = |plan: &Plan| plan.switches[&DatapathId(1)].meters.clone();
    let (two, three) = (named(&["a", "b"]), named(&["a", "b", "c"]));
    let (two, three) = (meters(&two), meters(&three));
    assert!(two.iter().all(|(id, meter)| three.get(id) == Some(meter)));
    assert_eq!((two.len(), three.len()), (2, 3));
    assert!(three.keys().all(|id| is_our_meter(*id, 262_144)));
    assert!(!is_our_meter(MeterId(1), 262_144));
    assert!(!is_our_meter(MeterId(4), 8) && is_our_meter(MeterId(5), 8));
}

#[test]
fn every_number_is_given_once_while_there_are_any() {
    let names: Vec<String> = (0..CODE_POINTS).map(|n| format!("name {n}")).collect();
    let names: BTreeSet<&str> = names.iter().map(|name| &name[..]).collect();
    let numbers = numbered(names.clone(), 10..=41, [12].into());
    let given: BTreeSet<u32> = numbers.values().copied().collect();
    assert_eq!((numbers.len(), given.len()), (31, 31));
    assert!(!given.contains(&12));
    assert_eq!(
        numbered(names, meter_numbers(0), BTreeSet::new()),
        BTreeMap::new()
    );
}

#[test]
fn the_same_is_planned_again() {
    let mut asked = qos(vec![
        policy("p", "video", queued(), On::Everywhere),
        policy("q", "video", metered(5), path()),
    ]);
    asked.policies[1].priority = 11;
    asked.circuits = vec![circuit("c", 10)];
    assert_eq!(plan(&asked, &ring()), plan(&asked, &ring()));
}

/// Policies of few services and hosts, so that several policies want one entry.
fn any_edit() -> impl Strategy<Value = Edit> {
    let service = (0usize..4, 0u16..3, prop::option::of(0u8..3)).prop_map(|(n, port, dscp)| {
        Edit::PutService(Service {
            name: format!("s{n}"),
            proto: Some(Proto::Udp),
            dst_port: Some(port + 1),
            dscp,
            ..Service::default()
        })
    });
    let treatment = prop_oneof![
        Just(Treatment {
            queue: Some(class("gold")),
            ..Treatment::default()
        }),
        Just(Treatment {
            meter: Some(Meter {
                rate: Rate::mbit(1),
                burst_bytes: None,
                exceeding: Exceeding::Drop,
            }),
            ..Treatment::default()
        }),
        (0u8..3).prop_map(|mark| Treatment {
            mark: Some(mark),
            ..Treatment::default()
        }),
    ];
    let on = prop_oneof![
        Just(On::Everywhere),
        (1u64..6).prop_map(|dpid| On::Switches(BTreeSet::from([DatapathId(dpid)]))),
        Just(On::Ports(BTreeSet::from([at(1, 2)]))),
        prop::sample::select(vec!["10.0.0.1", "10.0.0.7"]).prop_map(|from| On::Path {
            from: host(from),
            to: host("10.0.0.2"),
        }),
    ];
    let put = (0usize..8, 0usize..4, 0u16..2, treatment, on).prop_map(
        |(n, service, priority, treatment, on)| {
            let policy = policy(&format!("p{n}"), &format!("s{service}"), treatment, on);
            Edit::PutPolicy(Policy { priority, ..policy })
        },
    );
    prop_oneof![
        2 => service,
        6 => put,
        2 => (0usize..8).prop_map(|n| Edit::DeletePolicy(format!("p{n}"))),
        1 => (0usize..4).prop_map(|n| Edit::DeleteService(format!("s{n}"))),
    ]
}

proptest! {
    /// A plan after any changes, in any order and number, equals a new plan of everything; an entry
    /// that no change touched stays the same.
    #[test]
    fn a_plan_that_is_changed_is_as_one_made_anew(
        turns in prop::collection::vec(prop::collection::vec(any_edit(), 1..5), 1..12),
        meters_max in prop::sample::select(vec![4u32, 262_144]),
    ) {
        let mut network = ring();
        for facts in network.switches.values_mut() {
            facts.meters = Some(MeterFacts { max: meters_max, can_remark: false });
        }
        let ports = BTreeMap::from([(at(1, 2), gold()), (at(2, 4), gold()), (at(2, 9), gold())]);
        let mut asked = Asked::new(Qos { ports, ..Qos::default() });
        let mut plan = Plan::new(asked.qos(), &network, &Circuits::default());
        for edits in turns {
            let before = plan.clone();
            let mut formers = BTreeMap::new();
            let mut undos = Vec::new();
            let was = asked.qos().clone();
            for edit in edits {
                for name in asked.scope(&edit).policies {
                    let former = asked.former(&name);
                    formers.entry(name).or_insert(former);
                }
                undos.extend(asked.apply(edit));
            }
            let is = asked.qos().clone();
            let touched = plan.update(&is, asked.names(), &network, &formers);
            let anew = Plan::new(&is, &network, &Circuits::default());
            let some = |plan: &Plan| {
                let mut switches = plan.switches.clone();
                switches.retain(|_, switch| *switch != SwitchPlan::default());
                switches
            };
            prop_assert_eq!(some(&plan), some(&anew));
            prop_assert_eq!(&plan.waiting, &anew.waiting);
            for (dpid, switch) in &plan.switches {
                let had = before.switches.get(dpid);
                for (key, planned) in &switch.flows {
                    let is_touched = touched.flows.contains_key(&(*dpid, key.clone()));
                    let was = had.and_then(|had| had.flows.get(key));
                    prop_assert_eq!(is_touched, was != Some(planned));
                }
            }
            // A reverted change leaves nothing behind.
            let mut other = asked.clone();
            for undo in undos.into_iter().rev() {
                other.undo(undo);
            }
            prop_assert_eq!(other.qos(), &was);
            let was = Asked::new(was);
            prop_assert_eq!(other.ends(), was.ends());
        }
    }
}
