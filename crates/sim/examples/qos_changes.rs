//! What forwarding waits for while policies are added one by one, by how many there are: real time of
//! the controller's work until a change is accepted, and until the switch has confirmed it (with 20 ms
//! of the simulated network). As one change of a policy, and as a file that is read again.
//!
//! `cargo run --release --example qos_changes -p auster-sim`

use std::time::Instant as Clock;

use clock::Duration;
use control::qos::asked::Edit;
use control::qos::{On, Policy, Proto, Qos, Service, Treatment};
use sim::network::{Network, NetworkConfig};
use sim::topology;

/// Policies that are added and timed at each size.
const STEPS: u16 = 64;
const SIZES: [u16; 3] = [0, 2000, 4000];

fn main() {
    println!("policies  way    accepted p50 us  p99 us  until sent p50 us  p99 us");
    for size in SIZES {
        for edits in [false, true] {
            let mut network = Network::new(NetworkConfig::default(), 1);
            topology::line(&mut network, 1);
            network.run_for(Duration::from_secs(3));
            let mut qos = Qos::default();
            (0..size).for_each(|n| add(&mut qos, n));
            let asked = qos.clone();
            network.ask(|controller, now| controller.set_qos(now, asked).expect("it is right"));
            network.run_for(Duration::from_secs(5));
            let (mut accepted, mut sent) = (Vec::new(), Vec::new());
            for n in size..size + STEPS {
                let (service, policy) = numbered(n);
                add(&mut qos, n);
                let whole = qos.clone();
                let begin = Clock::now();
                network.ask(|controller, now| match edits {
                    true => {
                        let edits = vec![Edit::PutService(service), Edit::PutPolicy(policy)];
                        controller.edit_qos(now, edits).expect("it is right");
                    }
                    false => controller.set_qos(now, whole).expect("it is right"),
                });
                accepted.push(begin.elapsed());
                network.run_for(Duration::from_millis(20));
                sent.push(begin.elapsed());
            }
            let way = if edits { "edit" } else { "whole" };
            let [a50, a99] = [50, 99].map(|p| percentile(&mut accepted, p));
            let [s50, s99] = [50, 99].map(|p| percentile(&mut sent, p));
            println!("{size:8}  {way:5}  {a50:15}  {a99:6}  {s50:17}  {s99:6}");
        }
    }
}

fn percentile(all: &mut [std::time::Duration], percent: usize) -> u128 {
    all.sort();
    all[(all.len() * percent / 100).min(all.len() - 1)].as_micros()
}

fn numbered(n: u16) -> (Service, Policy) {
    let name = format!("n{n}");
    let service = Service {
        name: name.clone(),
        proto: Some(Proto::Udp),
        dst_port: Some(n + 1),
        ..Service::default()
    };
    let policy = Policy {
        name: name.clone(),
        service: name,
        priority: 10,
        treatment: Treatment {
            mark: Some((n % 64) as u8),
            ..Treatment::default()
        },
        on: On::Everywhere,
    };
    (service, policy)
}

fn add(qos: &mut Qos, n: u16) {
    let (service, policy) = numbered(n);
    qos.services.push(service);
    qos.policies.push(policy);
}
