//! The cost of checking, planning and comparing policies, by their number: 50 switches, with every
//! policy on each.

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;

use control::qos::circuits::Circuits;
use control::qos::diff::Diff;
use control::qos::plan::Plan;
use control::qos::{Network, On, Policy, Proto, Qos, QueuesBy, Service, SwitchFacts, Treatment};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use openflow::{DatapathId, PortNo, Version};

const SWITCHES: u64 = 50;

fn network() -> Network {
    let facts = SwitchFacts {
        version: Version::V13,
        table_count: 254,
        queues_by: QueuesBy::SetQueue,
        meters: None,
        ports: BTreeMap::from([(PortNo(1), None), (PortNo(2), None)]),
    };
    let switches = (1..=SWITCHES).map(|dpid| (DatapathId(dpid), facts.clone()));
    Network {
        switches: switches.collect(),
        ..Network::default()
    }
}

fn qos(count: u16) -> Qos {
    let name = |n: u16| format!("n{n}");
    let services = (0..count).map(|n| Service {
        name: name(n),
        dst: "10.0.0.0/8".parse().ok(),
        proto: Some(Proto::Udp),
        dst_port: Some(n + 1),
        ..Service::default()
    });
    let policies = (0..count).map(|n| Policy {
        name: name(n),
        service: name(n),
        priority: 10,
        treatment: Treatment {
            mark: Some((n % 64) as u8),
            ..Treatment::default()
        },
        on: On::Everywhere,
    });
    Qos {
        services: services.collect(),
        policies: policies.collect(),
        ..Qos::default()
    }
}

fn by_policies(c: &mut Criterion) {
    let mut group = c.benchmark_group("qos");
    group.sample_size(10);
    let network = network();
    for count in [100, 200, 500, 1000] {
        let qos = qos(count);
        let plan = Plan::new(&qos, &network, &Circuits::default()).switches;
        group.throughput(Throughput::Elements(count.into()));
        group.bench_function(BenchmarkId::new("check", count), |b| {
            b.iter(|| black_box(&qos).check(&network));
        });
        group.bench_function(BenchmarkId::new("plan", count), |b| {
            b.iter(|| Plan::new(black_box(&qos), &network, &Circuits::default()));
        });
        for (name, held) in [
            ("nothing held", BTreeMap::new()),
            ("unchanged", plan.clone()),
        ] {
            group.bench_function(BenchmarkId::new(name, count), |b| {
                b.iter(|| Diff::new(black_box(&held), &plan, &BTreeSet::new()).len());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, by_policies);
criterion_main!(benches);
