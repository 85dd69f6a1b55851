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
        controller: us(1050),
        controller_jitter: us(100),
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
        drain: Duration::from_millis(2200),
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

/// What does not fit is lost, and nothing else: a share of (rho - 1) / rho.
#[test]
fn an_overloaded_line_loses_the_overload() {
    for (load, below) in [(1.05, 0), (1.2, 0), (1.2, 3000)] {
        let mut setup = setup(fifo(100), below, load, 4);
        setup.target.per_second = 0.0;
        for line in runs(&setup, 2).iter().flat_map(|o| o.lines) {
            let found = line.lost as f64 / line.offered as f64;
            let right = (load - 1.0) / load;
            assert!(
                (found - right).abs() < 0.005,
                "load {load}: lost {found}, not {right}"
            );
        }
    }
}

/// A wire never stands still while something waits; overloaded it never stands still at all.
#[test]
fn work_is_conserved() {
    for load in [0.6, 1.5] {
        let outcome = setup(fifo(100), 3000, load, 1).run(1);
        for line in outcome.lines {
            assert_eq!(line.idle_with_work, 0);
            let busy = line.busy_ns as f64 / outcome.virtual_time.as_nanos() as f64;
            let right = f64::min(load + TARGET_PER_SECOND * MESSAGE_US / 1e6, 1.0);
            assert!(
                (busy / right - 1.0).abs() < 0.02,
                "load {load}: busy {busy}"
            );
            // One that is being sent, and what waits: 100 messages above, 14 below.
            assert!(line.offered - line.lost - line.sent <= 115, "{line:?}");
        }
    }
}

#[test]
fn the_seed_alone_decides() {
    let setup = setup(fifo(100), 3000, 1.05, 1);
    assert_eq!(setup.run(5), setup.run(5));
    assert_ne!(setup.run(5).delays_ns, setup.run(6).delays_ns);
}

/// Few runs of the scenario `pso-fig7-8.toml`: published 2.2 ± 0.6 ms at low load, and at high load
/// 5 ± 1.4 %, 83 ± 2.7 ms, 887 ± 52 kbit/s.
#[test]
fn one_fifo_does_what_was_published() {
    let low = setup(fifo(100), 131_072, 0.8, 2).run(1);
    assert_eq!((low.messages_lost, low.begun - low.done), (0, 0));
    assert!(
        (mean_ms(&low.delays_ns) - 2.25).abs() < 0.02,
        "{}",
        mean_ms(&low.delays_ns)
    );
    let high = runs(&setup(fifo(100), 131_072, 1.05, 8), 4);
    let total = |of: fn(&Outcome) -> u64| high.iter().map(of).sum::<u64>() as f64;
    let loss = 50.0 * total(|o| o.messages_lost) / total(|o| o.begun);
    assert!((3.6..6.4).contains(&loss), "{loss} % lost");
    let delays: Vec<u64> = high.iter().flat_map(|o| o.delays_ns.clone()).collect();
    assert!(
        (70.0..95.0).contains(&mean_ms(&delays)),
        "{} ms",
        mean_ms(&delays)
    );
    let kbit = 1000.0 * total(|o| o.done_at_once) / total(|o| o.begun);
    assert!((880.0..925.0).contains(&kbit), "{kbit} kbit/s");
}
