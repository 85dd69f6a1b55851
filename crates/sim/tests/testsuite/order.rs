//! A million random messages, by every discipline: nothing comes out against the law of order, and
//! the same seed does the same again. `auster sim order` sends a million by each.

use clock::Duration;
use relay::OrderMode;
use sched::policy::{Algorithm, PolicyMap};
use sim::order::{Breaks, Carrier, Experiment, Network, RelayTerms, Report, Traffic, with_domains};

fn experiment(algorithm: Algorithm, carrier: Carrier, messages: u64) -> Experiment {
    let mut map = PolicyMap::paper();
    map.scheduling.algorithm = algorithm;
    Experiment {
        messages,
        traffic: Traffic::Strict,
        channels: 4,
        map,
        carrier,
        network: Network {
            rate_bps: 20_000_000,
            delay: Duration::from_millis(5),
            jitter: Duration::from_millis(5),
            loss_ppm: 20_000,
            resend: Duration::from_millis(25),
            breaks: Breaks::Every(Duration::from_millis(150)),
        },
        relay: RelayTerms::default(),
        load: 0.9,
    }
}

fn assert_lawful(report: &Report, messages: u64, what: &str) {
    assert_eq!(report.violations, 0, "{what}: {:?}", report.examples);
    assert_eq!(report.sent, messages, "{what}");
    assert_eq!(report.lost, 0, "{what}: messages that may not be shed");
    assert_eq!(report.delivered + report.shed, report.sent, "{what}");
}

#[test]
fn every_discipline_keeps_the_order_through_a_relay_pair_with_loss_and_breaks() {
    // Seven disciplines: a million.
    const MESSAGES: u64 = 143_000;
    for algorithm in Algorithm::ALL {
        let report = experiment(algorithm, Carrier::RelayPair, MESSAGES).run(1);
        let what = format!("{algorithm:?}");
        assert_lawful(&report, MESSAGES, &what);
        assert!(report.breaks > 10, "{what}: {} breaks", report.breaks);
        assert!(report.shed > 100, "{what}: {} shed", report.shed);
        assert!(
            report.overtaken > MESSAGES / 100,
            "{what}: {}",
            report.overtaken
        );
    }
}

/// Each record arrives twice, in any order, or the window is smaller than any message.
#[test]
fn copies_and_the_least_window_keep_the_order_over_a_hundred_breaks() {
    let terms = [
        (130_000, 4 << 20, true),
        (6_000, 1, false),
        (6_000, 1, true),
    ];
    for (messages, window_bytes, is_copied) in terms {
        let mut experiment = experiment(Algorithm::Strict, Carrier::RelayPair, messages);
        experiment.network.breaks = Breaks::Every(Duration::from_millis(25));
        experiment.relay = RelayTerms {
            window_bytes,
            is_copied,
            ..RelayTerms::default()
        };
        let report = experiment.run(3);
        let what = format!("window {window_bytes}, copies {is_copied}");
        assert_lawful(&report, messages, &what);
        assert!(report.breaks >= 100, "{what}: {} breaks", report.breaks);
    }
}

#[test]
fn every_discipline_keeps_the_order_by_itself() {
    const MESSAGES: u64 = 40_000;
    for algorithm in Algorithm::ALL {
        let report = experiment(algorithm, Carrier::Scheduler, MESSAGES).run(2);
        assert_lawful(&report, MESSAGES, &format!("{algorithm:?}"));
        if algorithm != Algorithm::Fifo {
            assert!(
                report.overtaken > MESSAGES / 100,
                "{algorithm:?}: {}",
                report.overtaken
            );
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_and_another_one_does_not() {
    let run = |seed| experiment(Algorithm::Hierarchy, Carrier::RelayPair, 5_000).run(seed);
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).digest, run(8).digest);
}

fn keyed(messages: u64, window_bytes: usize, carrier: Carrier) -> Experiment {
    let mut experiment = experiment(Algorithm::Strict, carrier, messages);
    experiment.traffic = Traffic::Keyed;
    experiment.map = with_domains(experiment.map);
    experiment.network.breaks = Breaks::Times(100);
    experiment.relay = RelayTerms {
        window_bytes,
        order: OrderMode::Keyed,
        ..RelayTerms::default()
    };
    experiment
}

/// `auster sim order --mode keyed` has 10^6 messages by each of 20 seeds.
#[test]
fn keyed_mode_keeps_its_order_over_a_hundred_reconnects_in_any_window() {
    for (messages, window_bytes) in [(100_000, 4 << 20), (20_000, 2048), (6_000, 1)] {
        let report = keyed(messages, window_bytes, Carrier::RelayPair).run(1);
        let what = format!("window {window_bytes}");
        assert_lawful(&report, messages, &what);
        assert!(!report.is_deadlocked, "{what}");
        assert_eq!(report.breaks, 100, "{what}");
        let is_wide = window_bytes > 1;
        assert!(!is_wide || report.overtaken > messages / 100, "{what}");
    }
}

#[test]
fn the_judge_sees_keyed_messages_that_nothing_holds_back() {
    let unheld = keyed(5_000, 4 << 20, Carrier::RelayPairUnheld).run(1);
    assert!(unheld.violations > 50, "{unheld:?}");
}

/// A relay that does not know of domains or keys keeps more order than keyed mode requires.
#[test]
fn strict_order_is_lawful_in_keyed_mode_too_and_slower() {
    let delays = [OrderMode::Strict, OrderMode::Keyed].map(|order| {
        let mut experiment = keyed(5_000, 4 << 20, Carrier::RelayPair);
        experiment.relay.order = order;
        experiment.network.breaks = Breaks::Never;
        experiment.traffic = Traffic::FlowMods {
            barrier_every: None,
        };
        experiment.load = 0.1;
        let report = experiment.run(1);
        assert_lawful(&report, 5_000, order.name());
        report.mean_delay()
    });
    assert!(delays[1] < delays[0], "{delays:?}");
}

/// The tests above would find violations if nothing kept the order.
#[test]
fn without_the_order_layer_the_law_is_broken() {
    for algorithm in Algorithm::ALL {
        let unheld = experiment(algorithm, Carrier::RelayPairUnheld, 5_000).run(1);
        assert!(unheld.violations > 50, "{algorithm:?}: {unheld:?}");
        let unbound = experiment(algorithm, Carrier::SchedulerUnbound, 5_000).run(1);
        let is_in_order = algorithm == Algorithm::Fifo;
        assert_eq!(
            unbound.violations == 0,
            is_in_order,
            "{algorithm:?}: {unbound:?}"
        );
    }
}
