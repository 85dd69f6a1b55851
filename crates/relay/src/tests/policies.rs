//! Tests every discipline, with queues so short that packet-ins are shed: all other messages arrive
//! at the far end, in an order that the law allows.

use std::collections::{BTreeMap, BTreeSet};

use openflow::MessageKind;
use sched::Classifier;
use sched::order::must_follow;

use super::*;

const ALGORITHMS: [&str; 7] = [
    "fifo",
    "strict",
    "wfq",
    "drr",
    "min-rate",
    "edf",
    "hierarchy",
];

fn short_queues(algorithm: &str) -> PolicyMap {
    let text = format!(
        "Rule #1: traffic_type=1, action=queue_id:0
Rule #2: traffic_type=2, eth_dst=02:00:00:00:00:03, action=queue_id:1
Rule #3: traffic_type=2, action=queue_id:2
Rule #4: traffic_type=3, action=queue_id:3
Queue #0: limit_msgs=12
Queue #1: weight=4, min_rate=1mbit, limit_msgs=6
Queue #2: weight=2, min_rate=1mbit, limit_msgs=6
Queue #3: weight=1
Scheduler: algo={algorithm}
"
    );
    PolicyMap::parse(&text).unwrap().0
}

/// The fate of the messages of one channel in one direction.
#[derive(Debug, Default)]
struct Outcome {
    shed: u64,
    overtakes: usize,
}

impl Outcome {
    fn add(&mut self, other: Outcome) {
        self.shed += other.shed;
        self.overtakes += other.overtakes;
    }
}

/// Random messages both ways on two channels over a network that delays, reorders streams and
/// breaks.
fn carry_short(seed: u64, algorithm: &str) -> Outcome {
    let map = short_queues(algorithm);
    let mut choice = Choice(seed | 1);
    let mut pair = Pair::scheduled(4 << 20, Some(&map));
    pair.connect(false);
    let ids = ["br0", "br1"].map(|name| {
        let opened = pair.ends[0].session.open(Agent::OpenFlow, name);
        opened.unwrap()
    });
    let directions = [Direction::ToController, Direction::ToSwitch];
    let mut sent = BTreeMap::new();
    for (at, direction) in directions.into_iter().enumerate() {
        for id in ids {
            let count = 1 + choice.below(250) as u32;
            let numbers = 0..count;
            let messages: Vec<Bytes> = numbers
                .map(|n| message(&mut choice, direction, n))
                .collect();
            pair.ends[at].input.insert(id, messages.clone().into());
            sent.insert((at, id), messages);
        }
    }
    for _ in 0..choice.below(4000) {
        pair.step(&mut choice, &ids);
    }
    pair.settle(&ids);
    let mut outcome = Outcome::default();
    for (at, direction) in directions.into_iter().enumerate() {
        for id in ids {
            let shed = |status: ChannelStatus| (status.channel == id).then_some(status.shed);
            let shed = pair.ends[at].session.channels().find_map(shed).unwrap();
            let output = &pair.ends[1 - at].output[&id];
            let overtakes = assert_lawful(&map, direction, &sent[&(at, id)], output, shed.messages);
            outcome.add(Outcome {
                shed: shed.messages,
                overtakes,
            });
        }
    }
    outcome
}

/// Returns the number of messages that overtook another.
fn assert_lawful(
    map: &PolicyMap,
    direction: Direction,
    sent: &[Bytes],
    output: &[u8],
    shed: u64,
) -> usize {
    let classifier = Classifier::new(map);
    let out = frames(output);
    let order: Vec<usize> = out.iter().map(|frame| frame.xid().0 as usize).collect();
    for (frame, number) in out.iter().zip(&order) {
        assert_eq!(frame.bytes(), &sent[*number], "bytes unchanged");
    }
    let arrived: BTreeSet<usize> = order.iter().copied().collect();
    assert_eq!(arrived.len(), order.len(), "each once");
    let sent: Vec<Frame> = sent
        .iter()
        .map(|m| Frame::new(m.clone()).unwrap())
        .collect();
    let lost = (0..sent.len()).filter(|number| !arrived.contains(number));
    let lost: Vec<MessageKind> = lost.map(|number| sent[number].kind()).collect();
    assert!(
        lost.iter().all(|kind| *kind == MessageKind::PacketIn),
        "{lost:?}"
    );
    assert_eq!(lost.len() as u64, shed, "what is not there was counted");

    let bindings: Vec<_> = sent
        .iter()
        .map(|frame| classifier.classify(frame, direction, 0, None).tag)
        .map(|tag| (tag.binding, tag.domain))
        .collect();
    assert_eq!(order.first(), Some(&0), "hello first");
    let mut overtakes = 0;
    for (at, later) in order.iter().enumerate() {
        for earlier in order[at + 1..].iter().filter(|earlier| *earlier < later) {
            overtakes += 1;
            let crossed = must_follow(direction, bindings[*earlier], bindings[*later]);
            assert!(
                !crossed,
                "{later} {:?} overtook {earlier} {:?}",
                bindings[*later], bindings[*earlier]
            );
        }
    }
    overtakes
}

proptest! {
    #[test]
    fn under_every_policy_only_packet_ins_are_missing_and_the_law_holds(
        seed: u64,
        algorithm in prop::sample::select(ALGORITHMS.to_vec()),
    ) {
        carry_short(seed, algorithm);
    }
}

#[test]
fn every_policy_sheds_and_overtakes_and_a_seed_says_it_all() {
    for algorithm in ALGORITHMS {
        let mut outcome = Outcome::default();
        for seed in 0..20 {
            let once = carry_short(seed * 7919, algorithm);
            let again = carry_short(seed * 7919, algorithm);
            assert_eq!(format!("{once:?}"), format!("{again:?}"));
            outcome.add(once);
        }
        assert!(outcome.shed > 50, "{algorithm}: {outcome:?}");
        assert!(outcome.overtakes > 100, "{algorithm}: {outcome:?}");
    }
}
