//! The promise of each discipline, on a line of one megabyte per second.

mod common;

use clock::Duration;
use common::{Line, MESSAGE_BYTES, conf, edf, flow, packet_in, scheduling, weights};
use sched::policy::Algorithm;
use sched::{Binding, Direction, Tag};

const WEIGHTS: [u16; 4] = [8, 4, 2, 1];

/// The most that two queues' shares differ at any time while all have messages, in bytes per
/// weight. Lengths are anything up to `bytes_max`.
fn unfairness(algorithm: Algorithm, bytes_max: u32) -> u64 {
    let mut line = Line::new(Direction::ToController, &weights(algorithm, &WEIGHTS));
    let mut served = [0u64; 4];
    let mut worst = 0;
    for n in 0..20_000u64 {
        // Fills the queues in turn, so that all have plenty whatever is sent.
        while line
            .waiting(0)
            .min(line.waiting(1))
            .min(line.waiting(2))
            .min(line.waiting(3))
            < 4
        {
            for queue in 0..4 {
                let bytes = 60 + line.random(u64::from(bytes_max) - 60) as u32;
                line.push(Tag {
                    queue,
                    bytes,
                    ..flow(n, 0)
                });
            }
        }
        let (tag, _) = line.pop().unwrap();
        served[usize::from(tag.queue)] += u64::from(tag.bytes);
        let shares = served
            .iter()
            .zip(WEIGHTS)
            .map(|(bytes, w)| bytes / u64::from(w));
        worst = worst.max(shares.clone().max().unwrap() - shares.min().unwrap());
    }
    worst
}

#[test]
fn wfq_shares_by_weight_within_a_message() {
    // By the theory of self-clocking: one message of each of two queues, at their weights.
    assert!(unfairness(Algorithm::Wfq, 1500) <= 2 * 1500);
}

#[test]
fn drr_shares_by_weight_within_a_turn_and_a_message() {
    assert!(unfairness(Algorithm::Drr, 1500) <= 256 + 2 * 1500);
    // Messages of many quanta, too.
    assert!(unfairness(Algorithm::Drr, 60_000) <= 256 + 2 * 60_000);
}

/// The bytes of queue 2 sent in a second, as a share of a tenth of the line, while queue 1 is
/// offered one and a half times the line; and the longest wait of one of its messages.
fn below_a_flood(line: &mut Line) -> (f64, Duration) {
    let mut longest = Duration::ZERO;
    let mut bytes = 0;
    line.run(
        Duration::from_secs(1),
        |now| {
            vec![
                (1, common::arrivals(now, 1.5)),
                (2, common::arrivals(now, 0.1)),
            ]
        },
        |tag, waited| {
            if tag.queue == 2 {
                bytes += tag.bytes;
                longest = longest.max(waited);
            }
        },
    );
    (f64::from(bytes) / 1e5, longest)
}

#[test]
fn a_flood_in_the_queue_above_starves_nobody_but_under_strict() {
    use Algorithm::{Drr, Edf, Hierarchy, MinRate, Strict, Wfq};
    let below = |algorithm| {
        let mut scheduling = edf(algorithm);
        scheduling.queues[2].min_rate = Some(200_000);
        below_a_flood(&mut Line::new(Direction::ToController, &scheduling))
    };
    assert_eq!(below(Strict).0, 0.0, "strict is strict");
    for algorithm in [Wfq, Drr, MinRate, Hierarchy] {
        let (share, longest) = below(algorithm);
        assert!(share > 0.98, "{algorithm:?}: {share}");
        assert!(
            longest < Duration::from_millis(2),
            "{algorithm:?}: {longest:?}"
        );
    }
    // Its deadline is 20 ms; the flood's own backlog is as old as its queue is long.
    let (share, longest) = below(Edf);
    assert!(share > 0.9, "{share}");
    assert!(longest < Duration::from_millis(60), "{longest:?}");
}

#[test]
fn without_a_rate_of_its_own_min_rate_sends_one_message_per_deadline() {
    let mut line = Line::new(Direction::ToController, &edf(Algorithm::MinRate));
    let (share, _) = below_a_flood(&mut line);
    // A deadline of 20 ms: 50 messages a second of 220 bytes, in units of 100 kB.
    assert!((0.09..0.13).contains(&share), "{share}");
}

#[test]
fn min_rate_gives_each_its_rate_and_the_rest_by_priority() {
    let mut scheduling = edf(Algorithm::MinRate);
    scheduling.queues[0].min_rate = Some(100_000);
    scheduling.queues[2].min_rate = Some(300_000);
    scheduling.queues[3].min_rate = Some(50_000);
    let mut line = Line::new(Direction::ToController, &scheduling);
    let mut bytes = [0u32; 4];
    let all = |now| (0..4).map(|q| (q, common::arrivals(now, 1.0))).collect();
    line.run(Duration::from_secs(1), all, |tag, _| {
        bytes[usize::from(tag.queue)] += tag.bytes;
    });
    // Two queues burst 3000 bytes at the start.
    let expected = [639_000, 11_000, 300_000, 50_000];
    for (queue, (bytes, expected)) in bytes.into_iter().zip(expected).enumerate() {
        let off = (i64::from(bytes) - expected).abs();
        assert!(off < 7000, "queue {queue}: {bytes} of {expected}");
    }
}

#[test]
fn deadlines_hold_while_the_line_can_hold_them() {
    let scheduling = edf(Algorithm::Edf);
    let mut line = Line::new(Direction::ToController, &scheduling);
    let all = |now| (0..4).map(|q| (q, common::arrivals(now, 0.24))).collect();
    let mut longest = [Duration::ZERO; 4];
    line.run(Duration::from_secs(2), all, |tag, waited| {
        let longest = &mut longest[usize::from(tag.queue)];
        *longest = waited.max(*longest);
    });
    for (queue, longest) in longest.into_iter().enumerate() {
        let deadline = scheduling.queues[queue].deadline;
        assert!(longest <= deadline, "queue {queue}: {longest:?}");
    }
}

#[test]
fn a_backlog_past_its_deadline_delays_a_fresh_message_by_two_at_most() {
    let mut scheduling = edf(Algorithm::Edf);
    // A full queue is 22 ms long.
    scheduling.queues[3].deadline = Duration::from_millis(5);
    let mut line = Line::new(Direction::ToController, &scheduling);
    let mut longest = Duration::ZERO;
    let load = |now| {
        vec![
            (0, common::arrivals(now, 0.1)),
            (3, common::arrivals(now, 3.0)),
        ]
    };
    line.run(Duration::from_secs(1), load, |tag, waited| {
        if tag.queue == 0 {
            longest = longest.max(waited);
        }
    });
    assert!(longest < Line::time_of(3 * MESSAGE_BYTES), "{longest:?}");
}

/// Numbers of what is sent, in order.
fn sent(line: &mut Line) -> Vec<u64> {
    std::iter::from_fn(|| line.pop()).map(|(_, n)| n).collect()
}

fn of_queue(queue: u8) -> Tag {
    Tag {
        queue,
        ..flow(u64::from(queue), u64::from(queue))
    }
}

#[test]
fn edf_is_strict_until_a_deadline_is_over_and_then_the_earliest_goes_first() {
    let mut line = Line::new(Direction::ToController, &edf(Algorithm::Edf));
    line.push(of_queue(3)); // 0: due at 200 ms
    line.now += Duration::from_millis(100);
    line.push(of_queue(2)); // 1: due at 120 ms
    for _ in 0..3 {
        line.push(of_queue(1)); // 2 to 4: due at 120 ms
    }
    line.push(of_queue(0)); // 5: due at 110 ms
    assert_eq!(
        line.pop().unwrap().1,
        5,
        "most urgent, though due before none"
    );
    line.now += Duration::from_millis(110);
    line.push(of_queue(0)); // 6: due at 220 ms
    // All but the last are past their deadline; after each of them an urgent one.
    assert_eq!(sent(&mut line), [2, 6, 3, 4, 1, 0]);

    let mut line = Line::new(Direction::ToController, &edf(Algorithm::Edf));
    line.push(of_queue(3)); // 0: due at 200 ms
    line.now += Duration::from_millis(195);
    line.push(of_queue(0)); // 1, 2: due at 205 ms
    line.push(of_queue(0));
    assert_eq!(sent(&mut line), [1, 2, 0], "nothing is over");
}

/// The number of messages of `queue` among the next 40, while both have plenty.
fn of_next_40(line: &mut Line, queue: u8, other: u8) -> usize {
    for _ in 0..60 {
        line.push(of_queue(other));
        line.push(of_queue(queue));
    }
    let next = (0..40).filter(|_| line.pop().unwrap().0.queue == queue);
    next.count()
}

#[test]
fn idling_saves_nothing_up() {
    for algorithm in [Algorithm::Wfq, Algorithm::Drr, Algorithm::MinRate] {
        let mut scheduling = conf(algorithm, 4, 100);
        scheduling.queues[2].min_rate = Some(100_000);
        let mut line = Line::new(Direction::ToController, &scheduling);
        for _ in 0..5000 {
            line.push(of_queue(1));
            line.pop().unwrap();
        }
        let share = of_next_40(&mut line, 2, 1);
        // Min-rate has a bucket of 3000 bytes, and what comes in while it is emptied.
        let most = if algorithm == Algorithm::MinRate {
            19
        } else {
            22
        };
        assert!((14..=most).contains(&share), "{algorithm:?}: {share}");
    }
}

/// Nor does it help a queue to have one small message again and again.
#[test]
fn being_rare_saves_nothing_up() {
    let mut line = Line::new(Direction::ToController, &weights(Algorithm::Drr, &[1; 4]));
    for _ in 0..1000 {
        line.push(Tag {
            bytes: 20,
            ..of_queue(2)
        });
        for _ in 0..3 {
            line.push(of_queue(1));
        }
        assert_eq!(sent(&mut line).len(), 4);
    }
    assert!(of_next_40(&mut line, 2, 1) <= 22);
}

#[test]
fn what_was_sent_when_nobody_else_did_is_not_held_against_anybody() {
    let mut scheduling = edf(Algorithm::MinRate);
    scheduling.queues[3].min_rate = Some(50_000);
    let mut line = Line::new(Direction::ToController, &scheduling);
    for _ in 0..1000 {
        line.push(of_queue(3));
        line.pop().unwrap();
    }
    let mut of_three = 0;
    for _ in 0..500 {
        line.push(of_queue(0));
        line.push(of_queue(3));
        of_three += u32::from(line.pop().unwrap().0.queue == 3);
    }
    // 110 ms at its rate, and no more than its bucket on top.
    assert!((24..=40).contains(&of_three), "{of_three}");

    let mut line = Line::new(
        Direction::ToController,
        &weights(Algorithm::Hierarchy, &[1; 4]),
    );
    for _ in 0..1000 {
        line.push(of_queue(0));
        line.pop().unwrap();
    }
    line.push(of_queue(1));
    line.push(of_queue(0));
    assert_eq!(line.pop().unwrap().0.queue, 0, "it has its credit still");
}

#[test]
fn the_credit_of_queue_0_has_a_limit() {
    let mut line = Line::new(
        Direction::ToController,
        &weights(Algorithm::Hierarchy, &[1; 4]),
    );
    for _ in 0..10_000 {
        line.push(of_queue(1));
        line.pop().unwrap();
    }
    let burst = 4096usize.div_ceil(MESSAGE_BYTES as usize);
    let share = of_next_40(&mut line, 0, 1);
    // And a twentieth of the rest.
    assert!((burst..=burst + 2).contains(&share), "{share}");
}

#[test]
fn queue_0_goes_first_and_a_flood_in_it_gets_a_twentieth() {
    let scheduling = weights(Algorithm::Hierarchy, &[1, 1, 1]);
    let mut line = Line::new(Direction::ToController, &scheduling);
    let mut longest = Duration::ZERO;
    let load = |zero, others| {
        move |now| {
            vec![
                (0, common::arrivals(now, zero)),
                (1, common::arrivals(now, others)),
                (2, common::arrivals(now, others)),
            ]
        }
    };
    line.run(Duration::from_secs(1), load(0.02, 1.0), |tag, waited| {
        if tag.queue == 0 {
            longest = longest.max(waited);
        }
    });
    assert!(longest < Line::time_of(2 * MESSAGE_BYTES), "{longest:?}");

    let mut line = Line::new(Direction::ToController, &scheduling);
    let mut bytes = [0; 3];
    line.run(Duration::from_secs(1), load(2.0, 0.4), |tag, _| {
        bytes[usize::from(tag.queue)] += tag.bytes;
    });
    // Queue 0 gets the share that the others do not use: a fifth of the line.
    assert!((190_000..210_000).contains(&bytes[0]), "{bytes:?}");
    assert!(bytes[1].min(bytes[2]) > 390_000, "{bytes:?}");

    let mut line = Line::new(Direction::ToController, &scheduling);
    let mut bytes = [0; 3];
    line.run(Duration::from_secs(1), load(2.0, 1.0), |tag, _| {
        bytes[usize::from(tag.queue)] += tag.bytes;
    });
    // A twentieth, and its credit at the start.
    assert!((49_000..56_000).contains(&bytes[0]), "{bytes:?}");
}

#[test]
fn a_message_that_is_rare_in_its_queue_waits_for_one_other() {
    let mut line = Line::new(
        Direction::ToController,
        &weights(Algorithm::Hierarchy, &[1; 4]),
    );
    let mut longest = Duration::ZERO;
    line.run(
        Duration::from_secs(1),
        |now| {
            vec![
                (1, common::arrivals(now, 0.05)),
                (2, common::arrivals(now, 1.0)),
                (3, common::arrivals(now, 1.0)),
            ]
        },
        |tag, waited| {
            if tag.queue == 1 {
                longest = longest.max(waited);
            }
        },
    );
    assert!(longest <= Line::time_of(2 * MESSAGE_BYTES), "{longest:?}");
}

/// A queue whose next message arrives as soon as its last one is sent is not rare.
#[test]
fn coming_back_at_once_earns_no_more_than_a_share() {
    // After as many messages of the other, and its weight.
    for (after, weight, most) in [(0, 1, 0.54), (1, 8, 0.15)] {
        let mut line = Line::new(
            Direction::ToController,
            &weights(Algorithm::Drr, &[1, weight]),
        );
        let mut bytes = [0; 2];
        let mut since = 0;
        for _ in 0..10_000 {
            if line.waiting(0) == 0 && since >= after {
                line.push(of_queue(0));
            }
            while line.waiting(1) < 8 {
                line.push(of_queue(1));
            }
            let (tag, _) = line.pop().unwrap();
            since = if tag.queue == 0 { 0 } else { since + 1 };
            bytes[usize::from(tag.queue)] += tag.bytes;
        }
        let share = f64::from(bytes[0]) / f64::from(bytes[0] + bytes[1]);
        assert!(share < most, "{share} at a weight of 1 in {}", 1 + weight);
    }
}

#[test]
fn switches_take_turns_and_so_do_ports() {
    let mut line = Line::new(
        Direction::ToController,
        &weights(Algorithm::Hierarchy, &[1, 1]),
    );
    for n in 0..90 {
        line.push(packet_in(7, 1, n));
    }
    for n in 0..3 {
        line.push(packet_in(8, 1, n));
    }
    for n in 0..3 {
        line.push(packet_in(7, 2, 1000 + n));
    }
    let order: Vec<_> = (0..12)
        .map(|_| line.pop().unwrap().0)
        .map(|tag| (tag.channel, tag.port))
        .collect();
    let turns = [(7, 1), (8, 1), (7, 2), (8, 1), (7, 1), (8, 1)];
    assert_eq!(order[..6], turns);
    assert_eq!(order[6..10], [(7, 2), (7, 1), (7, 2), (7, 1)]);
}

#[test]
fn long_messages_cost_turns() {
    let mut line = Line::new(
        Direction::ToController,
        &weights(Algorithm::Hierarchy, &[1, 1]),
    );
    let of = |channel, bytes| Tag {
        queue: 1,
        bytes,
        binding: Binding::State,
        ..flow(0, channel)
    };
    for tag in [of(0, 40_000), of(1, 400)].repeat(2) {
        line.push(tag);
    }
    let mut bytes = [0u64; 2];
    for _ in 0..40_000 {
        let (tag, _) = line.pop().unwrap();
        bytes[tag.channel as usize] += u64::from(tag.bytes);
        // Each gets another message as soon as one is sent.
        line.push(tag);
    }
    // By turns alone it would be a hundred.
    let ratio = bytes[0] as f64 / bytes[1] as f64;
    assert!((9.0..11.0).contains(&ratio), "{ratio}: {bytes:?}");
}

#[test]
fn fifo_is_first_in_first_out_whatever_the_queue() {
    let mut line = Line::new(Direction::ToController, &conf(Algorithm::Fifo, 4, 100));
    for n in 0..50 {
        line.push(Tag {
            queue: (3 - n % 4) as u8,
            ..flow(n, n % 3)
        });
    }
    for n in 0..50 {
        assert_eq!(line.pop().unwrap().1, n);
    }
}

#[test]
fn what_an_urgent_message_follows_goes_first_and_is_promoted() {
    let mut line = Line::new(Direction::ToSwitch, &scheduling(Algorithm::Strict));
    let state = |queue, n| Tag {
        queue,
        binding: Binding::State,
        ..flow(n, 5)
    };
    let packet = |key, after_state| Tag {
        queue: 0,
        binding: Binding::Flow { key, after_state },
        ..flow(0, 5)
    };
    line.push(Tag {
        queue: 0,
        binding: Binding::Fence,
        ..flow(0, 5)
    }); // 0: HELLO
    line.push(state(3, 0)); // 1
    line.push(state(3, 1)); // 2
    line.push(Tag {
        queue: 2,
        ..flow(9, 6)
    }); // 3: another switch
    line.push(packet(1, true)); // 4: follows both
    line.push(packet(2, false)); // 5: free of them
    line.push(Tag {
        queue: 1,
        binding: Binding::Fence,
        ..flow(0, 5)
    }); // 6: a barrier
    line.push(packet(3, false)); // 7: behind the barrier
    let order: Vec<_> = std::iter::from_fn(|| line.pop()).map(|(_, n)| n).collect();
    assert_eq!(order, [0, 1, 2, 4, 5, 6, 7, 3]);
    let promoted: Vec<_> = line
        .scheduler
        .counters()
        .iter()
        .map(|c| c.promoted)
        .collect();
    assert_eq!(
        promoted,
        [0, 1, 0, 2],
        "the barrier for a packet, the state for the first"
    );
}

/// A chain is sent at the expense of the message that asked for it.
#[test]
fn what_is_promoted_is_charged_to_who_is_urgent() {
    let mut line = Line::new(Direction::ToSwitch, &weights(Algorithm::Drr, &[1; 4]));
    let state = |channel| Tag {
        queue: 2,
        binding: Binding::State,
        ..flow(0, channel)
    };
    for _ in 0..100 {
        line.push(of_queue(1));
        line.push(state(8));
    }
    // Urgent packets that each pull a state message of queue 2 along.
    for key in 0..50 {
        line.push(state(7));
        let binding = Binding::Flow {
            key,
            after_state: true,
        };
        line.push(Tag {
            queue: 0,
            binding,
            ..flow(0, 7)
        });
    }
    let mut by_channel = [0; 9];
    for _ in 0..90 {
        by_channel[line.pop().unwrap().0.channel as usize] += 1;
    }
    for channel in [1, 7, 8] {
        let third = by_channel[channel];
        assert!((28..=32).contains(&third), "a third each: {by_channel:?}");
    }
}

#[test]
fn a_blocked_switch_holds_up_nobody() {
    for algorithm in Algorithm::ALL {
        let mut line = Line::new(Direction::ToController, &scheduling(algorithm));
        for n in 0..6 {
            line.push(flow(n, n % 2));
        }
        line.scheduler.set_blocked(0, true);
        let order: Vec<_> = std::iter::from_fn(|| line.pop()).map(|(_, n)| n).collect();
        assert_eq!(order, [1, 3, 5], "{algorithm:?}");
        line.scheduler.set_blocked(0, false);
        let order: Vec<_> = std::iter::from_fn(|| line.pop()).map(|(_, n)| n).collect();
        assert_eq!(order, [0, 2, 4], "{algorithm:?}");
    }
}

#[test]
fn a_channel_that_comes_again_begins_anew() {
    let mut line = Line::new(Direction::ToController, &scheduling(Algorithm::Strict));
    let free = Tag {
        queue: 0,
        binding: Binding::Free,
        ..flow(0, 3)
    };
    line.push(Tag {
        queue: 3,
        ..flow(0, 3)
    });
    line.push(free);
    assert_eq!(line.pop().unwrap().1, 0, "nothing overtakes the first");
    line.scheduler.forget(3);
    assert!(line.scheduler.is_empty());
    line.push(Tag {
        queue: 3,
        ..flow(0, 3)
    });
    line.push(free);
    assert_eq!(
        line.pop().unwrap().1,
        2,
        "nothing overtakes the first of the new one"
    );
    assert_eq!(line.scheduler.counters()[0].forgotten, 1);
}
