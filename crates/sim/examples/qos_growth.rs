//! The cost of policies on 50 switches, by their number: messages and virtual time until every
//! switch has confirmed them, and messages for the same again, for one more, and after the
//! controller was started anew. Every policy is on every switch.
//!
//! `cargo run --example qos_growth -p auster-sim`

use clock::Duration;
use control::controller::Installation;
use control::qos::{On, Policy, Proto, Qos, Service, Treatment};
use sim::network::{Network, NetworkConfig, SwitchId};
use sim::topology;

const SWITCHES: usize = 50;
/// FLOW_MOD, METER_MOD and BARRIER_REQUEST.
const CHANGES: [u8; 3] = [14, 29, 20];
const STEP: Duration = Duration::from_millis(1);

fn main() {
    println!("policies  entries  messages  virtual ms  the same again  one more  new process");
    for count in [100, 200, 500, 1000] {
        let mut network = Network::new(NetworkConfig::default(), 1);
        let switches = topology::line(&mut network, SWITCHES).switches;
        network.run_for(Duration::from_secs(3));
        let qos = qos(count);
        let before = told(&network, &switches);
        ask_for(&mut network, &qos);
        let since = network.now();
        while installed(&mut network) < usize::from(count) {
            network.run_for(STEP);
        }
        let took = network.now().since(since);
        network.run_for(Duration::from_secs(5));
        let after = told(&network, &switches);
        let entries = network.switch(switches[0]).entries();
        let entries = entries.filter(|entry| entry.table_id.0 == 1).count() * SWITCHES;
        ask_for(&mut network, &qos);
        network.run_for(Duration::from_secs(5));
        let again = told(&network, &switches);
        ask_for(&mut network, &self::qos(count + 1));
        network.run_for(Duration::from_secs(5));
        let more = told(&network, &switches);
        network.kill_controller();
        network.start_controller(2);
        ask_for(&mut network, &self::qos(count + 1));
        network.run_for(Duration::from_secs(20));
        let anew = told(&network, &switches);
        println!(
            "{count:8}  {entries:7}  {:8}  {:10}  {:14}  {:8}  {:11}",
            after - before,
            took.as_millis(),
            again - after,
            more - again,
            anew - more,
        );
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

fn ask_for(network: &mut Network, qos: &Qos) {
    network.tell_controller(|controller, now| {
        controller
            .set_qos(now, qos.clone())
            .expect("nothing is wrong with it");
    });
}

fn installed(network: &mut Network) -> usize {
    let report = network.ask(|controller, _| controller.qos_report());
    let policies = report.policies.values();
    policies
        .filter(|policy| policy.state == Installation::Installed)
        .count()
}

fn told(network: &Network, switches: &[SwitchId]) -> u64 {
    let of = |id: &SwitchId| CHANGES.map(|t| network.heard(*id, t)).iter().sum::<u64>();
    switches.iter().map(of).sum()
}
