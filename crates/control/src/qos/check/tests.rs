use std::collections::BTreeMap;

use openflow::{DatapathId, PortNo, Version};

use super::super::tests::{at, circuit, class, gold, host, policy, ring};
use super::super::{MeterFacts, Proto};
use super::*;

fn video() -> Service {
    Service {
        name: "video".to_owned(),
        proto: Some(Proto::Udp),
        dst_port: Some(5004),
        ..Service::default()
    }
}

fn queued() -> Treatment {
    Treatment {
        queue: Some(class("gold")),
        ..Treatment::default()
    }
}

fn metered(exceeding: Exceeding) -> Treatment {
    Treatment {
        meter: Some(Meter {
            rate: Rate::mbit(5),
            burst_bytes: None,
            exceeding,
        }),
        ..Treatment::default()
    }
}

/// A demand without problems.
fn right() -> Qos {
    let on = On::Ports([at(1, 2)].into());
    Qos {
        ports: BTreeMap::from([(at(1, 2), gold())]),
        services: vec![video()],
        policies: vec![policy("video first", "video", queued(), on)],
        circuits: vec![circuit("backup", 10)],
    }
}

fn told(qos: &Qos, network: &Network) -> Vec<String> {
    qos.check(network).iter().map(Problem::to_string).collect()
}

/// The one problem that this change causes.
fn one(change: impl FnOnce(&mut Qos, &mut Network)) -> String {
    let (mut qos, mut network) = (right(), ring());
    change(&mut qos, &mut network);
    let told = told(&qos, &network);
    assert_eq!(told.len(), 1, "{told:#?}");
    told[0].clone()
}

fn switch(network: &mut Network, dpid: u64) -> &mut SwitchFacts {
    network.switches.get_mut(&DatapathId(dpid)).unwrap()
}

fn queue_1(qos: &mut Qos) -> &mut Queue {
    let port = qos.ports.get_mut(&at(1, 2)).unwrap();
    port.queues.get_mut(&1).unwrap()
}

#[test]
fn what_is_right_is_not_complained_of() {
    assert_eq!(told(&right(), &ring()), [""; 0]);
    assert_eq!(
        told(&right(), &Network::default()),
        [""; 0],
        "nobody is there yet"
    );
    assert_eq!(told(&Qos::default(), &ring()), [""; 0]);
}

#[test]
fn a_queue_is_wrong_by_its_field() {
    let port = at(1, 2);
    let field = |name: &str| format!("ports[{port}].queues[1].{name}: ");
    let min = one(|qos, _| queue_1(qos).max = Some(Rate::mbit(10)));
    assert_eq!(min, field("min") + "20mbit is above max, 10mbit");
    let max = one(|qos, _| queue_1(qos).max = Some(Rate::mbit(101)));
    assert_eq!(
        max,
        field("max") + "101mbit is above the port's rate, 100mbit"
    );
    let dscp = one(|qos, _| queue_1(qos).dscp = vec![64]);
    assert_eq!(dscp, field("dscp") + "64 is not 0 to 63");
    let priority = one(|qos, _| queue_1(qos).priority = 8);
    assert_eq!(priority, field("priority") + "8 is not 0 to 7");
    let none = one(|qos, _| queue_1(qos).dscp = Vec::new());
    assert!(none.starts_with(&field("dscp")), "{none}");
    let by_set_queue = |network: &mut Network| {
        for facts in network.switches.values_mut() {
            facts.queues_by = QueuesBy::SetQueue;
        }
    };
    let (mut qos, mut network) = (right(), ring());
    queue_1(&mut qos).dscp = Vec::new();
    by_set_queue(&mut network);
    assert_eq!(told(&qos, &network), [""; 0], "set_queue chooses it");
}

#[test]
fn queues_of_a_port_are_judged_together() {
    let port = at(1, 2);
    let add = |qos: &mut Qos, number, min, name: &str, dscp| {
        let added = super::super::tests::queue(name, min, 100, dscp);
        qos.ports
            .get_mut(&at(1, 2))
            .unwrap()
            .queues
            .insert(number, added);
    };
    let sum = one(|qos, _| add(qos, 2, 81, "silver", 12));
    let what = "the minima are 101mbit together, and the port has 100mbit";
    assert_eq!(sum, format!("ports[{port}].queues: {what}"));
    let class = one(|qos, _| add(qos, 2, 80, "gold", 12));
    let what = "'gold' is queue 1's already";
    assert_eq!(class, format!("ports[{port}].queues[2].class: {what}"));
    let dscp = one(|qos, _| add(qos, 2, 80, "silver", 10));
    assert_eq!(
        dscp,
        format!("ports[{port}].queues[2].dscp: 10 chooses queue 1 already")
    );
    let number = one(|qos, _| add(qos, 128, 80, "silver", 12));
    assert!(
        number.starts_with(&format!("ports[{port}].queues[128]: ")),
        "{number}"
    );
}

#[test]
fn a_port_must_be_there_and_reached_and_have_the_rate() {
    let port = at(1, 2);
    let gone = |_: &mut Qos, network: &mut Network| {
        switch(network, 1).ports.remove(&PortNo(2));
    };
    let (qos, mut network) = (right(), ring());
    gone(&mut right(), &mut network);
    let both = told(&qos, &network);
    assert_eq!(
        both.len(),
        2,
        "the port's queues, and the policy on it: {both:?}"
    );
    assert_eq!(
        both[0],
        format!("ports[{port}]: the switch has no such port")
    );
    assert_eq!(both[1], format!("policies[0].on: there is no port {port}"));
    let database = one(|_, network| switch(network, 1).queues_by = QueuesBy::Nobody);
    assert!(
        database.starts_with(&format!("ports[{port}]: nobody reaches")),
        "{database}"
    );
    assert!(database.contains("OVSDB"));
    let rate = one(|_, network| {
        switch(network, 1)
            .ports
            .insert(PortNo(2), Some(Rate::mbit(10)));
    });
    assert_eq!(
        rate,
        format!("ports[{port}].rate: 100mbit is above what the port has, 10mbit")
    );
}

#[test]
fn a_service_is_wrong_by_its_field() {
    let proto = one(|qos, _| qos.services[0].proto = Some(Proto::Icmp));
    assert!(
        proto.starts_with("services[0].dst_port: only tcp"),
        "{proto}"
    );
    let twice = one(|qos, _| qos.services.push(video()));
    assert_eq!(twice, "services[1].name: 'video' is services[0]'s already");
    let none = one(|qos, _| {
        let name = String::new();
        qos.services.push(Service { name, ..video() });
    });
    assert_eq!(none, "services[1].name: it needs one");
    let dscp = one(|qos, _| qos.services[0].dscp = Some(70));
    assert_eq!(dscp, "services[0].dscp: 70 is not 0 to 63");
    let vlan = one(|qos, _| qos.services[0].vlan = Some(4095));
    assert_eq!(vlan, "services[0].vlan: 4095 is not 0 to 4094");
    let ends = one(|qos, _| {
        qos.services[0].src = Some(host("10.0.0.1"));
        qos.services[0].dst = Some(host("fd00::1"));
    });
    assert!(ends.starts_with("services[0].dst: no packet"), "{ends}");
}

#[test]
fn a_policy_names_what_is_there() {
    let service = one(|qos, _| qos.policies[0].service = "audio".to_owned());
    assert_eq!(service, "policies[0].service: there is no service 'audio'");
    let queue = |name| {
        move |qos: &mut Qos, _: &mut Network| {
            qos.policies[0].treatment.queue = Some(name);
        }
    };
    let port = at(1, 2);
    let number = one(queue(QueueName::Number(3)));
    assert_eq!(
        number,
        format!("policies[0].queue: port {port} has no queue 3")
    );
    let name = one(queue(class("silver")));
    assert_eq!(
        name,
        format!("policies[0].queue: port {port} has no queue 'silver'")
    );
    let nowhere = one(|qos, _| {
        qos.policies[0].on = On::Everywhere;
        qos.policies[0].treatment.queue = Some(class("silver"));
    });
    assert_eq!(nowhere, "policies[0].queue: no port has a queue 'silver'");
    let switch = one(|qos, _| qos.policies[0].on = On::Switches([DatapathId(2)].into()));
    assert!(
        switch.starts_with("policies[0].queue: no port of switch"),
        "{switch}"
    );
    let there = one(|qos, _| {
        qos.policies[0].treatment = metered(Exceeding::Drop);
        qos.policies[0].on = On::Ports([at(1, 7)].into());
    });
    assert!(
        there.starts_with("policies[0].on: there is no port"),
        "{there}"
    );
}

#[test]
fn a_queue_in_use_does_not_go() {
    let mut qos = right();
    qos.circuits[0].queue = Some(class("gold"));
    let users = ["policy 'video first'", "circuit 'backup'"];
    assert_eq!(qos.users_of(at(1, 2), 1), users);
    assert_eq!(qos.users_of(at(1, 2), 2), [""; 0]);
    qos.ports.get_mut(&at(1, 2)).unwrap().queues.clear();
    let told = told(&qos, &ring());
    let port = at(1, 2);
    let policy = format!("policies[0].queue: port {port} has no queue 'gold'");
    assert_eq!(
        told,
        [
            policy,
            "circuits[0].queue: no port has a queue 'gold'".to_owned()
        ]
    );
}

#[test]
fn a_treatment_does_one_thing_and_can_be_done() {
    let set = |treatment| {
        move |qos: &mut Qos, _: &mut Network| {
            qos.policies[0].treatment = treatment;
        }
    };
    let nothing = one(set(Treatment::default()));
    assert!(
        nothing.starts_with("policies[0]: it does nothing"),
        "{nothing}"
    );
    let drop = one(set(Treatment {
        drop: true,
        ..queued()
    }));
    assert!(drop.starts_with("policies[0].drop: "), "{drop}");
    let mark = one(set(Treatment {
        mark: Some(64),
        ..Treatment::default()
    }));
    assert_eq!(mark, "policies[0].mark: 64 is not 0 to 63");
    let remark = one(set(metered(Exceeding::Remark(1))));
    assert!(remark.starts_with("policies[0].on: switch"), "{remark}");
    assert!(
        remark.ends_with("its meters cannot remark, only drop"),
        "{remark}"
    );
    let steps = one(|qos, network| {
        let can_remark = true;
        switch(network, 1).meters = Some(MeterFacts { max: 9, can_remark });
        qos.policies[0].treatment = metered(Exceeding::Remark(3));
    });
    assert_eq!(steps, "policies[0].meter.remark: 3 is not 1 to 2");
    let none = one(|qos, network| {
        switch(network, 1).meters = None;
        qos.policies[0].treatment = metered(Exceeding::Drop);
    });
    assert!(none.ends_with("it has no meters"), "{none}");
    for (version, table_count) in [(Version::V10, 254), (Version::V13, 1)] {
        let table = one(|_, network| {
            let facts = switch(network, 1);
            (facts.version, facts.table_count) = (version, table_count);
        });
        assert!(table.contains("policies[0].on"), "{table}");
        assert!(table.ends_with("policies stand in a second"), "{table}");
    }
    let rate = one(|qos, _| {
        let mut treatment = metered(Exceeding::Drop);
        treatment.meter.as_mut().unwrap().rate = Rate::ZERO;
        qos.policies[0].treatment = treatment;
    });
    assert_eq!(rate, "policies[0].meter.rate: say a rate, or drop");
}

#[test]
fn of_two_policies_for_one_packet_one_is_above() {
    let other = |qos: &mut Qos, priority, on, treatment| {
        qos.services.push(Service {
            name: "all udp".to_owned(),
            dst_port: None,
            ..video()
        });
        qos.policies.push(Policy {
            priority,
            ..policy("other", "all udp", treatment, on)
        });
    };
    let drop = || Treatment {
        drop: true,
        ..Treatment::default()
    };
    let odds = one(|qos, _| other(qos, 10, On::Everywhere, drop()));
    assert!(
        odds.starts_with("policies[1].priority: packets can be of this"),
        "{odds}"
    );
    assert!(odds.contains("policies[0]"));
    let fine = |priority, on, treatment| {
        let mut qos = right();
        other(&mut qos, priority, on, treatment);
        assert_eq!(told(&qos, &ring()), [""; 0]);
    };
    fine(11, On::Everywhere, drop());
    fine(10, On::Everywhere, queued());
    fine(10, On::Switches([DatapathId(3)].into()), drop());
    fine(10, On::Ports([at(1, 3)].into()), drop());
    let too_high = one(|qos, _| other(qos, 10_000, On::Everywhere, drop()));
    assert_eq!(too_high, "policies[1].priority: 10000 is not 0 to 9999");
}

#[test]
fn a_path_is_between_two_hosts_of_its_service() {
    let path = |from, to| On::Path {
        from: host(from),
        to: host(to),
    };
    let same = one(|qos, _| qos.policies[0].on = path("10.0.0.1", "10.0.0.1"));
    assert_eq!(same, "policies[0].on.to: 10.0.0.1 is where it begins");
    let other = one(|qos, _| {
        qos.services[0].dst = Some(host("10.0.7.0/24"));
        qos.policies[0].on = path("10.0.0.1", "10.0.0.2");
    });
    assert_eq!(
        other,
        "policies[0].on: its service has no packet between these hosts"
    );
}

#[test]
fn a_circuit_is_wrong_by_its_field() {
    let from = one(|qos, _| qos.circuits[0].from = host("10.0.0.0/24"));
    assert!(from.starts_with("circuits[0].from: "), "{from}");
    let to = one(|qos, _| qos.circuits[0].to = host("10.0.0.1"));
    assert!(to.starts_with("circuits[0].to: 10.0.0.1 is where"), "{to}");
    let rate = one(|qos, _| qos.circuits[0].rate = None);
    assert!(rate.starts_with("circuits[0].rate: say what"), "{rate}");
    let zero = one(|qos, _| qos.circuits[0].rate = Some(Rate::ZERO));
    assert!(zero.starts_with("circuits[0].rate: leave it out"), "{zero}");
    let queue = one(|qos, _| qos.circuits[0].queue = Some(class("silver")));
    assert_eq!(queue, "circuits[0].queue: no port has a queue 'silver'");
    let service = one(|qos, _| qos.circuits[0].service = Some("audio".to_owned()));
    assert_eq!(service, "circuits[0].service: there is no service 'audio'");
    let second = |change: fn(&mut Circuit)| {
        one(|qos, _| {
            let mut second = Circuit {
                priority: 11,
                dscp: Some(21),
                ..circuit("second", 10)
            };
            change(&mut second);
            qos.circuits.push(second);
        })
    };
    let name = second(|circuit| circuit.name = "backup".to_owned());
    assert_eq!(name, "circuits[1].name: 'backup' is circuits[0]'s already");
    let odds = second(|circuit| circuit.priority = 10);
    assert!(
        odds.starts_with("circuits[1].priority: packets can be"),
        "{odds}"
    );
    let dscp = second(|circuit| circuit.dscp = Some(20));
    assert_eq!(dscp, "circuits[1].dscp: 20 chooses circuits[0] already");
    let dscp = second(|circuit| circuit.dscp = Some(10));
    assert_eq!(
        dscp,
        format!(
            "circuits[1].dscp: 10 chooses queue 1 of port {} already",
            at(1, 2)
        )
    );
    let dscp = second(|circuit| circuit.dscp = None);
    assert!(dscp.starts_with("circuits[1].dscp: give it one"), "{dscp}");
}

#[test]
fn everything_is_told_together() {
    let mut qos = right();
    queue_1(&mut qos).min = Some(Rate::mbit(200));
    qos.services[0].dscp = Some(99);
    qos.policies[0].service = "audio".to_owned();
    qos.circuits[0].priority = 20_000;
    let told = told(&qos, &ring());
    let begins = [
        "ports[",
        "services[0].dscp",
        "policies[0].service",
        "circuits[0].priority",
    ];
    for begin in begins {
        assert!(
            told.iter().any(|line| line.starts_with(begin)),
            "{begin}: {told:#?}"
        );
    }
}

#[test]
fn there_is_a_number_of_each_that_is_too_many() {
    let told = one(|qos, _| {
        let named = |n| Policy {
            name: format!("p{n}"),
            ..qos.policies[0].clone()
        };
        qos.policies = (0..=POLICIES_MAX).map(named).collect();
    });
    assert_eq!(told, "policies: 4097 are more than 4096");
}
