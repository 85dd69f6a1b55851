//! Circuits and policies by name, and ports with queues by the state of their queues.

use std::collections::BTreeMap;

use control::controller::{Installation, QosReport};
use driver::databases::Views;

use crate::exposition::{Family, Value};

pub fn families(report: &QosReport, views: &Views) -> Vec<Family> {
    let is_set = |state: Installation| {
        let is_set = matches!(state, Installation::Installed | Installation::Active);
        Value::Gauge(f64::from(u8::from(is_set)))
    };
    let named = |key: &'static str, name: &str| vec![(key, name.to_owned())];
    let circuits = report.circuits.iter();
    let of_circuits = circuits.clone();
    let of_circuits = of_circuits.map(|(name, of)| (named("circuit", name), is_set(of.state)));
    let packets = circuits.flat_map(|(name, of)| {
        [("sent", of.sent), ("answered", of.answered)].map(|(direction, count)| {
            let mut labels = named("circuit", name);
            labels.push(("direction", direction.to_owned()));
            // Reinstalled entries count from 0.
            (labels, Value::Gauge(count.packets as f64))
        })
    });
    let of_policies = report.policies.iter();
    let of_policies = of_policies.map(|(name, of)| (named("policy", name), is_set(of.state)));
    let mut states: BTreeMap<&'static str, u64> = BTreeMap::new();
    for view in views.values() {
        for port in view.ports.values() {
            *states.entry(port.queues.name()).or_default() += 1;
        }
    }
    let by_state = states.into_iter();
    let by_state = by_state.map(|(state, ports)| (named("state", state), gauge(ports)));
    let families: [(_, _, Vec<_>); 4] = [
        (
            "auster_circuit_in_effect",
            "Whether all switches of a circuit have confirmed it, and no counter says otherwise",
            of_circuits.collect(),
        ),
        (
            "auster_circuit_packets",
            "Packets of a circuit's entries, as long as these are in the switches",
            packets.collect(),
        ),
        (
            "auster_policy_in_effect",
            "Whether all switches of a policy have confirmed it, and no counter says otherwise",
            of_policies.collect(),
        ),
        (
            "auster_queue_ports",
            "Ports in the switches' databases, by the state of their queues",
            by_state.collect(),
        ),
    ];
    let families = families.into_iter();
    let families = families.filter(|(_, _, samples)| !samples.is_empty());
    let family = |(name, help, samples)| Family {
        name,
        help,
        samples,
    };
    families.map(family).collect()
}

fn gauge(count: u64) -> Value {
    Value::Gauge(count as f64)
}
