//! The model of the control channel against queueing theory, against an independent simulator, and
//! against the published figures.

use openflow::time::Duration;
use sched::Direction;
use sched::policy::{Algorithm, PolicyMap, QueueConfig};
use sim::channel::{Arrivals, Cross, LineSetup, Outcome, Retry, Setup, Target, Traffic};

const TARGET_PORT: u16 = 20_000;
/// 1 Mbit/s of 512-byte packets.
const TARGET_PER_SECOND: f64 = 1e6 / (512.0 * 8.0);
/// One message of 220 bytes at 100 Mbit/s.
const MESSAGE_US: f64 = 17.6;

fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

fn fifo(messages_max: usize) -> PolicyMap {
    let mut map = PolicyMap::none();
    map.scheduling.algorithm = Algorithm::Fifo;
    map.scheduling.queues = vec![QueueConfig {
        messages_max,
        ..QueueConfig::default()
    }];
    map
}

/// A channel of 100 Mbit/s; `cross` is a share of it, in both directions.
fn setup(map: PolicyMap, below_bytes: usize, cross: f64, seconds: u64) -> Setup {
    let mut setup = Setup {
        map,
        line: LineSetup {
            rate_bps: 100_000_000,
            propagation: us(500),
            below_bytes,
        },
        controller: us(1100),
        classification: us(46),
        target: Target {
            udp_dst: TARGET_PORT,
            per_second: TARGET_PER_SECOND,
            arrivals: Arrivals::Even,
        },
        cross: Vec::new(),
        retry: Retry {
            after: Duration::from_millis(520),
            times: 3,
        },
        is_answered: true,
        duration: Duration::from_secs(seconds),
    };
    let per_second = cross * setup.capacity_per_second();
    let source = |direction| Cross {
        direction,
        traffic: Traffic::Packets {
            udp_dst: 30_000,
            in_port: 2,
        },
        per_second,
        arrivals: Arrivals::Poisson,
    };
    setup.cross = [Direction::ToController, Direction::ToSwitch]
        .map(source)
        .into();
    setup
}

fn mean_ms(nanos: &[u64]) -> f64 {
    nanos.iter().sum::<u64>() as f64 / nanos.len() as f64 / 1e6
}

fn runs(setup: &Setup, count: u64) -> Vec<Outcome> {
    (1..=count).map(|seed| setup.run(seed)).collect()
}

/// Mean wait of M/D/1 is rho/(2(1-rho)) services (Pollaczek and Khinchine).
#[test]
fn a_line_waits_as_long_as_m_d_1() {
    for (load, seconds) in [(0.5, 4), (0.7, 8)] {
        let mut setup = setup(fifo(100_000), 0, load, seconds);
        setup.target.per_second = 0.0;
        let outcomes = runs(&setup, 3);
        let lines = || outcomes.iter().flat_map(|o| o.lines);
        let waited: f64 = lines().map(|line| line.waited_ns as f64).sum();
        let sent: f64 = lines().map(|line| line.sent as f64).sum();
        let right_us = load / (2.0 * (1.0 - load)) * MESSAGE_US;
        let found_us = waited / sent / 1e3;
        assert!(
            (found_us / right_us - 1.0).abs() < 0.02,
            "load {load}: waited {found_us} us, M/D/1 says {right_us} us"
        );
    }
}
