//! Messages that are shed when a queue is full, and messages that never are.

mod common;

use clock::Duration;
use common::{Line, conf, flow, packet_in, scheduling};
use sched::policy::Algorithm;
use sched::scheduler::ShedReason::{self, Duplicate, QueueFull, Stale};
use sched::{Direction, Tag};

fn full(algorithm: Algorithm, messages_max: usize) -> Line {
    Line::new(Direction::ToController, &conf(algorithm, 2, messages_max))
}

fn shed(line: &mut Line) -> Vec<(ShedReason, u64)> {
    let shed = std::iter::from_fn(|| line.scheduler.poll_shed());
    shed.map(|(reason, _, number)| (reason, number)).collect()
}

fn sent(line: &mut Line) -> Vec<u64> {
    std::iter::from_fn(|| line.pop()).map(|(_, n)| n).collect()
}

#[test]
fn packets_of_one_flow_are_distinct_until_the_queue_is_full() {
    let mut line = full(Algorithm::Hierarchy, 4);
    for _ in 0..3 {
        line.push(packet_in(1, 1, 77)); // 0 to 2
    }
    line.push(packet_in(1, 2, 78)); // 3
    assert_eq!(shed(&mut line), []);
    line.push(packet_in(1, 1, 77)); // 4
    assert_eq!(shed(&mut line), [(Duplicate, 0)]);
    assert_eq!(sent(&mut line), [1, 3, 2, 4], "what is left, in its order");
}

#[test]
fn what_is_stale_goes_before_what_is_many() {
    let mut line = full(Algorithm::Hierarchy, 4);
    line.push(packet_in(1, 1, 0)); // 0
    line.now += Duration::from_millis(1001);
    for key in 1..4 {
        line.push(packet_in(1, 2, key)); // 1 to 3
    }
    line.push(packet_in(1, 2, 4)); // 4
    assert_eq!(shed(&mut line), [(Stale, 0)]);
    line.push(packet_in(1, 3, 5)); // 5
    assert_eq!(
        shed(&mut line),
        [(QueueFull, 1)],
        "the oldest of the port with most"
    );
    let counters = line.scheduler.counters()[1];
    assert_eq!((counters.shed_stale, counters.shed_full), (1, 1));
}

#[test]
fn what_is_stale_is_not_sent_either() {
    for algorithm in Algorithm::ALL {
        let mut line = Line::new(Direction::ToController, &scheduling(algorithm));
        line.push(packet_in(1, 1, 0)); // 0
        line.push(flow(1, 1)); // 1: no packet-in
        line.now += Duration::from_millis(1001);
        line.push(packet_in(1, 1, 2)); // 2
        let left = sent(&mut line);
        if algorithm == Algorithm::Fifo {
            assert_eq!(left, [0, 1, 2], "a plain queue looks at no clock");
        } else {
            assert!(left == [2, 1] || left == [1, 2], "{algorithm:?}: {left:?}");
            assert_eq!(shed(&mut line), [(Stale, 0)]);
        }
    }
}

#[test]
fn fifo_drops_what_comes_last_as_a_plain_queue_does() {
    let mut line = full(Algorithm::Fifo, 3);
    for key in 0..5 {
        line.push(packet_in(1, 1, key)); // 0 to 4
    }
    line.push(flow(9, 1)); // 5
    assert_eq!(shed(&mut line), [(QueueFull, 3), (QueueFull, 4)]);
    assert_eq!(sent(&mut line), [0, 1, 2, 5]);
}

#[test]
fn a_scanning_host_sheds_its_own() {
    for algorithm in Algorithm::ALL {
        if algorithm == Algorithm::Fifo {
            continue;
        }
        let mut line = full(algorithm, 50);
        // Switch 1 port 1 brings a new flow twenty times as often as two other ports.
        for n in 0..200u64 {
            line.push(packet_in(1, 1, 3 * n));
            if n % 20 == 0 {
                line.push(packet_in(1, 2, 3 * n + 1));
                line.push(packet_in(2, 1, 3 * n + 2));
            }
        }
        let of_scan = std::iter::from_fn(|| line.scheduler.poll_shed())
            .filter(|(_, tag, _)| (tag.channel, tag.port) == (1, 1))
            .count();
        let all = line.scheduler.counters()[1].shed_full;
        assert_eq!((of_scan, all), (170, 170), "{algorithm:?}");
    }
}

#[test]
fn only_packet_ins_are_shed_and_the_rest_is_back_pressure() {
    for algorithm in Algorithm::ALL {
        let mut scheduling = conf(algorithm, 2, 10);
        scheduling.bytes_hard = 22_000;
        let mut line = Line::new(Direction::ToController, &scheduling);
        for n in 0..99 {
            assert!(line.scheduler.has_room());
            line.push(Tag {
                queue: 1,
                ..flow(n, 1)
            });
        }
        line.push(flow(99, 1));
        assert!(!line.scheduler.has_room(), "{algorithm:?}: 22 kB wait");
        assert_eq!(shed(&mut line), []);
        line.push(packet_in(1, 1, 100));
        assert_eq!(shed(&mut line), [(QueueFull, 100)], "{algorithm:?}");
        assert_eq!(sent(&mut line).len(), 100);
    }
}

#[test]
fn many_short_messages_are_bounded_too() {
    let mut scheduling = conf(Algorithm::Hierarchy, 2, 10);
    scheduling.bytes_hard = 6400;
    let mut line = Line::new(Direction::ToController, &scheduling);
    let mut pushed = 0;
    while line.scheduler.has_room() {
        line.push(Tag {
            bytes: 8,
            ..flow(pushed, 1)
        });
        pushed += 1;
    }
    assert_eq!(pushed, 100);
}

/// The flood of one switch that is not read from does not take the queue from another.
#[test]
fn who_is_blocked_sheds_its_own() {
    let mut line = full(Algorithm::Hierarchy, 50);
    line.scheduler.set_blocked(1, true);
    for key in 0..500 {
        line.push(packet_in(1, 1, key));
    }
    for key in 0..20 {
        line.push(packet_in(2, 1, key));
    }
    assert_eq!(sent(&mut line), (500..520).collect::<Vec<_>>());
    let counters = line.scheduler.counters()[1];
    assert_eq!((counters.messages_waiting, counters.shed_full), (30, 470));
}
