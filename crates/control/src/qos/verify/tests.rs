use openflow::{Field, QueueId};
use proptest::prelude::*;

use super::*;
use crate::pipeline::{PATH_TABLE, POLICY_TABLE};
use crate::qos::flow::{Does, FlowKey, Matching, Then};
use crate::qos::plan::{Owner, Planned, PortPlan};
use crate::qos::tests::gold;

const PORT: PortNo = PortNo(2);
const METER: MeterId = MeterId(7);

fn at(ms: u64) -> Instant {
    Instant::START + Duration::from_millis(ms)
}

fn came(packets: u64) -> Came {
    Came {
        packets,
        dropped: 0,
    }
}

/// Packets of a policy that leave by a port through its queue.
fn claim(name: &str, port: PortNo, queue: u32) -> Claim {
    Claim {
        owner: Owner::Policy(name.to_owned()),
        is_back: false,
        port: Some(port),
        queues: BTreeSet::from([(port, queue)]),
        is_by_mark: false,
        lacks_queue: false,
        is_open: false,
        meter: None,
        mark: None,
        drops: false,
    }
}

/// The queues of [`PORT`], from 0 on.
fn queues(counts: &[u64]) -> BTreeMap<u32, Came> {
    let numbered = (0u32..).zip(counts);
    numbered
        .map(|(number, count)| (number, came(*count)))
        .collect()
}

fn beside(counts: &[u64]) -> BTreeMap<PortNo, Beside> {
    BTreeMap::from([(PORT, Beside::Counts(queues(counts)))])
}

fn told(counts: &[u64]) -> Readings {
    let of = |(number, came): (u32, Came)| (Counter::Queue(PORT, number), came);
    queues(counts).into_iter().map(of).collect()
}

/// The verdicts for a switch that itself has queues, from the counts of entries and of queues 0 and
/// 1.
fn looked(readings: &[(u64, u64, [u64; 2])]) -> Vec<Verdict> {
    let mut watch = Watch::default();
    let mut now = 0;
    for (ms, counted, in_queues) in readings {
        now = *ms;
        watch.note_entries(at(now), BTreeMap::from([(claim("p", PORT, 1), *counted)]));
        watch.note_told(at(now), told(in_queues));
    }
    watch.judge(at(now), at(0), QueuesBy::SetQueue)
}

fn one(verdicts: &[Verdict]) -> &Verdict {
    let [verdict] = verdicts else {
        panic!("{verdicts:?}");
    };
    verdict
}

#[test]
fn half_is_yes_and_less_than_a_tenth_is_no() {
    for (counted, got, effect) in [
        (0, 0, Effect::NoTraffic),
        (0, 1000, Effect::NoTraffic),
        (1000, 0, Effect::No),
        (1000, 99, Effect::No),
        (1000, 100, Effect::Partly),
        (1000, 499, Effect::Partly),
        (1000, 500, Effect::Yes),
        (1000, 1000, Effect::Yes),
        (1000, 5000, Effect::Yes),
        (u64::MAX, u64::MAX, Effect::Yes),
        (u64::MAX, 1, Effect::No),
    ] {
        assert_eq!(Effect::of(counted, got), effect, "{got} of {counted}");
    }
}

#[test]
fn what_a_switch_tells_of_its_queues_is_held_against_its_entries() {
    let of = |entries: u64, zero: u64, queue: u64| {
        let verdicts = looked(&[
            (0, 5, [7, 3]),
            (10_000, 5, [7, 3]),
            (20_000, 5 + entries, [7 + zero, 3 + queue]),
        ]);
        let verdict = one(&verdicts);
        (verdict.effect, verdict.why.clone().unwrap_or_default())
    };
    assert_eq!(of(1000, 0, 1000), (Effect::Yes, String::new()));
    assert_eq!(of(0, 50, 0), (Effect::NoTraffic, String::new()));
    let why = "queue 1 got 2 of 1000 packets, queue 0 got 998";
    assert_eq!(of(1000, 998, 2), (Effect::No, why.to_owned()));
    let why = "queue 1 got 300 of 1000 packets, queue 0 got 700";
    assert_eq!(of(1000, 700, 300), (Effect::Partly, why.to_owned()));
    assert_eq!(of(9, 9, 0).0, Effect::Unknown, "too few");
    assert_eq!(of(10, 10, 0).0, Effect::No);
    let (effect, why) = of(1000, 0, 0);
    assert_eq!(effect, Effect::Unknown);
    assert!(why.contains("nothing at all was counted"), "{why}");
}

/// Packets that a queue has dropped for lack of room had arrived at the queue.
#[test]
fn drops_of_a_queue_count_for_it() {
    let mut watch = Watch::default();
    for (ms, counted, dropped) in [(0, 0, 0), (10_000, 0, 0), (20_000, 1000, 990)] {
        let mut readings = told(&[0, counted / 100]);
        let queue = Counter::Queue(PORT, 1);
        readings.get_mut(&queue).unwrap().dropped = dropped;
        watch.note_entries(at(ms), BTreeMap::from([(claim("p", PORT, 1), counted)]));
        watch.note_told(at(ms), readings);
    }
    let verdicts = watch.judge(at(20_000), at(0), QueuesBy::SetQueue);
    let queue = one(&verdicts).queue.unwrap();
    assert_eq!(
        (queue.got, queue.dropped, queue.effect),
        (1000, 990, Effect::Yes)
    );
}

/// No verdict before queues are known to have been read before the entries.
#[test]
fn one_reading_or_two_too_close_say_nothing() {
    let first = (0, 0, [0, 0]);
    assert_eq!(one(&looked(&[first])).effect, Effect::Unknown);
    let verdicts = looked(&[first, (500, 0, [0, 0]), (900, 1000, [1000, 0])]);
    let verdict = one(&verdicts);
    assert_eq!(verdict.effect, Effect::Unknown, "{verdict:?}");
    let verdicts = looked(&[first, (1000, 0, [0, 0]), (1900, 1000, [1000, 0])]);
    assert_eq!(one(&verdicts).effect, Effect::No);
}

#[test]
fn a_counter_that_goes_back_begins_the_window_again() {
    let before = [
        (0, 0, [0, 0]),
        (10_000, 0, [0, 0]),
        (20_000, 1000, [1000, 0]),
    ];
    // The switch was restarted, and its queues work now.
    let after = [
        (30_000, 10, [0, 10]),
        (40_000, 20, [0, 20]),
        (50_000, 120, [0, 120]),
    ];
    let all: Vec<_> = before.iter().chain(&after).copied().collect();
    let verdicts = looked(&all);
    let verdict = one(&verdicts);
    assert_eq!((verdict.effect, verdict.counted), (Effect::Yes, 100));
    // Only the queues were recreated: their former counts are lost.
    let after = [
        (30_000, 1010, [5, 0]),
        (40_000, 1020, [5, 10]),
        (50_000, 1120, [5, 110]),
    ];
    let all: Vec<_> = before.iter().chain(&after).copied().collect();
    let verdicts = looked(&all);
    let verdict = one(&verdicts);
    assert_eq!((verdict.effect, verdict.counted), (Effect::Yes, 100));
}

#[test]
fn a_window_is_of_a_minute_or_since_it_was_asked_for() {
    let mut watch = Watch::default();
    for n in 0..12 {
        let (ms, counted) = (n * 10_000, n * 100);
        watch.note_entries(at(ms), BTreeMap::from([(claim("p", PORT, 1), counted)]));
        watch.note_told(at(ms), told(&[0, counted]));
    }
    let of = |from| {
        let verdicts = watch.judge(at(110_000), at(from), QueuesBy::SetQueue);
        let verdict = one(&verdicts);
        (verdict.counted, verdict.window)
    };
    assert_eq!(of(0), (600, WINDOW));
    assert_eq!(of(90_000), (200, Duration::from_secs(20)));
}

/// A policy's share of a queue that other policies also use cannot be known alone.
#[test]
fn claims_that_share_queues_are_judged_together() {
    let other = PortNo(3);
    let wide = Claim {
        port: None,
        queues: BTreeSet::from([(PORT, 1), (other, 4)]),
        ..claim("a", PORT, 1)
    };
    let claims = [
        wide,
        claim("b", PORT, 1),
        claim("c", other, 4),
        claim("d", other, 5),
    ];
    let groups = claim::groups(&claims);
    assert_eq!(groups[0], groups[1]);
    assert_eq!(groups[0], groups[2]);
    assert_ne!(groups[0], groups[3]);
    let mut watch = Watch::default();
    let readings = |n: u64| {
        let queues = [
            (PORT, 0, 0),
            (PORT, 1, 600),
            (other, 4, 400),
            (other, 5, 3),
            (other, 0, 97),
        ];
        let queues = queues.map(|(port, queue, got)| (Counter::Queue(port, queue), came(n * got)));
        queues.into()
    };
    for (ms, n) in [(0, 0), (10_000, 0), (20_000, 1)] {
        let counted = claims.iter().cloned().zip([700, 200, 100, 100]);
        let counted = counted.map(|(claim, count)| (claim, n * count));
        watch.note_entries(at(ms), counted.collect());
        watch.note_told(at(ms), readings(n));
    }
    let verdicts = watch.judge(at(20_000), at(0), QueuesBy::SetQueue);
    let effects = verdicts.iter().map(|verdict| verdict.effect);
    use Effect::{No, Yes};
    assert_eq!(effects.collect::<Vec<_>>(), [Yes, Yes, Yes, No]);
    assert_eq!(verdicts[1].queue.unwrap().expected, 1000);
}

#[test]
fn what_a_meter_drops_comes_to_no_queue_and_is_not_missed() {
    let claim = Claim {
        meter: Some(METER),
        ..claim("p", PORT, 1)
    };
    let of = |met: u64, dropped: u64, queued: u64| {
        let mut watch = Watch::default();
        for (ms, n) in [(0, 0), (10_000, 0), (20_000, 1)] {
            let mut readings = told(&[n, n * queued]);
            let meter = Came {
                packets: n * met,
                dropped: n * dropped,
            };
            readings.insert(Counter::Meter(METER), meter);
            watch.note_entries(at(ms), BTreeMap::from([(claim.clone(), n * 1000)]));
            watch.note_told(at(ms), readings);
        }
        let verdicts = watch.judge(at(20_000), at(0), QueuesBy::SetQueue);
        let verdict = one(&verdicts);
        let (queue, meter) = (verdict.queue.unwrap(), verdict.meter.unwrap());
        (queue.effect, meter.effect, verdict.effect)
    };
    use Effect::{No, Yes};
    assert_eq!(of(1000, 900, 100), (Yes, Yes, Yes));
    assert_eq!(of(1000, 0, 40), (No, Yes, No), "nothing was dropped");
    assert_eq!(of(0, 0, 1000), (Yes, No, No), "packets do not meet it");
}

/// A port whose queues are made beside the switch, in one state from the beginning.
fn beside_is(state: Beside, packets: u64) -> Verdict {
    let mut watch = Watch::default();
    watch.note_beside(at(0), BTreeMap::from([(PORT, state)]));
    for (ms, counted) in [(10_000, 0), (20_000, packets)] {
        watch.note_entries(at(ms), BTreeMap::from([(claim("p", PORT, 1), counted)]));
    }
    one(&watch.judge(at(30_000), at(0), QueuesBy::CodePoint)).clone()
}

#[test]
fn queues_that_nobody_makes_or_counts_are_told_apart() {
    for (state, effect, why) in [
        (Beside::Nobody, Effect::No, "nobody beside the switch"),
        (
            Beside::Failed("busy".to_owned()),
            Effect::No,
            "not made: busy",
        ),
        (Beside::Silent, Effect::Unknown, "tells no counters"),
        // The keeper of the queues has stopped: there are no counts any more.
        (
            Beside::Counts(queues(&[5, 5])),
            Effect::Unknown,
            "nothing at all",
        ),
    ] {
        let verdict = beside_is(state.clone(), 1000);
        assert_eq!(verdict.effect, effect, "{state:?}");
        assert!(verdict.why.as_ref().unwrap().contains(why), "{verdict:?}");
        let quiet = beside_is(state, 0);
        assert_eq!((quiet.effect, quiet.why), (Effect::NoTraffic, None));
    }
    let mut watch = Watch::default();
    for (ms, counted) in [(0, 0), (10_000, 1000)] {
        watch.note_entries(at(ms), BTreeMap::from([(claim("p", PORT, 1), counted)]));
    }
    for by in [QueuesBy::Nobody, QueuesBy::CodePoint, QueuesBy::SetQueue] {
        let verdicts = watch.judge(at(20_000), at(0), by);
        assert_eq!(one(&verdicts).effect, Effect::Unknown, "{by:?}");
    }
    // The keeper of the queues has come meanwhile.
    watch.note_beside(at(5000), BTreeMap::from([(PORT, Beside::Nobody)]));
    let verdicts = watch.judge(at(20_000), at(0), QueuesBy::CodePoint);
    assert_eq!(
        one(&verdicts).effect,
        Effect::Unknown,
        "not all of the time"
    );
}

#[test]
fn what_leaves_by_other_ports_is_no_proof_that_the_queue_is_missed() {
    let open = Claim {
        port: None,
        is_open: true,
        ..claim("p", PORT, 1)
    };
    for (got, effect) in [(0, Effect::Unknown), (600, Effect::Yes)] {
        let mut watch = Watch::default();
        for (ms, n) in [(0, 0), (10_000, 0), (20_000, 1)] {
            watch.note_entries(at(ms), BTreeMap::from([(open.clone(), n * 1000)]));
            watch.note_told(at(ms), told(&[n, n * got]));
        }
        let verdicts = watch.judge(at(20_000), at(0), QueuesBy::SetQueue);
        assert_eq!(one(&verdicts).effect, effect);
    }
}

#[test]
fn a_mark_is_proved_by_the_queue_that_it_chooses() {
    let claim = |queues: BTreeSet<(PortNo, u32)>| Claim {
        is_by_mark: !queues.is_empty(),
        queues,
        mark: Some(10),
        ..claim("p", PORT, 1)
    };
    let of = |claim: Claim| {
        let mut watch = Watch::default();
        watch.note_beside(at(0), beside(&[0, 0]));
        watch.note_entries(at(10_000), BTreeMap::from([(claim.clone(), 0)]));
        watch.note_entries(at(20_000), BTreeMap::from([(claim, 100)]));
        watch.note_beside(at(22_000), beside(&[0, 100]));
        let verdicts = watch.judge(at(26_000), at(0), QueuesBy::CodePoint);
        let verdict = one(&verdicts);
        (verdict.effect, verdict.mark)
    };
    let queued = of(claim(BTreeSet::from([(PORT, 1)])));
    assert_eq!(queued, (Effect::Yes, Some(MarkProof::Queue)));
    let alone = of(claim(BTreeSet::new()));
    assert_eq!(alone, (Effect::Yes, Some(MarkProof::Entry)));
}

#[test]
fn a_claim_is_what_an_entry_does_where_it_does_it() {
    let plan = |by| PortPlan { by, queues: gold() };
    let claim = |port: Option<u32>, mark, queue: Option<u32>, by| {
        let matching = match port {
            Some(port) => Matching::any().and(Field::Metadata, port),
            None => Some(Matching::any()),
        };
        let key = FlowKey {
            table: POLICY_TABLE,
            priority: 5,
            matching: matching.unwrap(),
        };
        let planned = Planned {
            does: Does {
                meter: None,
                mark,
                queue: queue.map(QueueId),
                then: Then::Leave,
            },
            rank: 0,
            owner: Owner::Policy("p".to_owned()),
        };
        let queues = BTreeMap::from([(PortNo(2), plan(by)), (PortNo(3), plan(by))]);
        let ports = BTreeSet::from([1, 2, 3].map(PortNo));
        let wants = Wants {
            queues: &queues,
            ports: &ports,
            is_back: false,
            queue: queue.is_some(),
        };
        Claim::of(&key, &planned, &wants)
    };
    let pairs = |claim: &Claim| {
        claim
            .queues
            .iter()
            .map(|(p, q)| (p.0, *q))
            .collect::<Vec<_>>()
    };
    let (user, kernel) = (QueuesBy::CodePoint, QueuesBy::SetQueue);
    let any = claim(None, None, Some(1), user);
    assert_eq!((pairs(&any), any.is_open), (vec![(2, 1), (3, 1)], true));
    let at_port = claim(Some(3), None, Some(1), user);
    assert_eq!((pairs(&at_port), at_port.is_open), (vec![(3, 1)], false));
    let marked = claim(Some(3), Some(10), None, user);
    assert_eq!((pairs(&marked), marked.is_by_mark), (vec![(3, 1)], true));
    // Code points choose nothing there.
    assert_eq!(pairs(&claim(Some(3), Some(10), None, kernel)), []);
    assert_eq!(pairs(&claim(Some(3), Some(11), None, user)), []);
    // The queue is looked for where packets were sent, even if it is absent.
    assert_eq!(pairs(&claim(Some(1), None, Some(9), kernel)), [(1, 9)]);

    let output = FlowKey {
        table: PATH_TABLE,
        priority: 5,
        matching: Matching::any(),
    };
    let planned = Planned {
        does: Does {
            meter: None,
            mark: None,
            queue: None,
            then: Then::Output(PortNo(3)),
        },
        rank: 1,
        owner: Owner::Circuit("c".to_owned()),
    };
    let wants = Wants {
        queues: &BTreeMap::new(),
        ports: &BTreeSet::new(),
        is_back: true,
        queue: true,
    };
    let lacks = Claim::of(&output, &planned, &wants);
    assert_eq!((lacks.port, lacks.lacks_queue), (Some(PortNo(3)), true));
    assert!(lacks.is_back);
}

/// Traffic of any shape, by the second, on a switch whose queues are counted beside it: every
/// reading has the maximum delay.
#[derive(Clone, Debug)]
struct Traffic {
    per_second: Vec<u64>,
    entries_late_ms: Vec<u64>,
    entries_phase_ms: u64,
    keeper_phase_ms: u64,
    keeper_late_ms: u64,
}

fn traffic() -> impl Strategy<Value = Traffic> {
    let burst = prop_oneof![Just(0u64), 0u64..20, 100u64..20_000];
    (
        prop::collection::vec(burst, 100),
        prop::collection::vec(0u64..1000, 10),
        0u64..10_000,
        0u64..5000,
        0u64..900,
    )
        .prop_map(
            |(per_second, entries_late_ms, entries, keeper, late)| Traffic {
                per_second,
                entries_late_ms,
                entries_phase_ms: entries,
                keeper_phase_ms: keeper,
                keeper_late_ms: late,
            },
        )
}

impl Traffic {
    /// The number of packets sent up to this time.
    fn sent(&self, ms: u64) -> u64 {
        let whole = (ms / 1000) as usize;
        let part = self
            .per_second
            .get(whole)
            .map_or(0, |n| n * (ms % 1000) / 1000);
        self.per_second.iter().take(whole).sum::<u64>() + part
    }

    /// The verdict of each check, where `share` of a hundred packets go to queue 1 and the others
    /// to queue 0.
    fn looks(&self, share: u64) -> Vec<Verdict> {
        let mut watch = Watch::default();
        let mut events: Vec<(u64, Option<usize>)> = Vec::new();
        let mut keeper = self.keeper_phase_ms;
        while keeper < 100_000 {
            events.push((keeper + self.keeper_late_ms, None));
            keeper += 5000;
        }
        for n in 0..10usize {
            events.push((self.entries_phase_ms + 10_000 * n as u64, Some(n)));
        }
        events.sort_unstable();
        let mut verdicts = Vec::new();
        for (ms, what) in events {
            match what {
                None => {
                    let sent = self.sent(ms - self.keeper_late_ms);
                    let got = sent * share / 100;
                    watch.note_beside(at(ms), beside(&[sent - got, got]));
                }
                Some(n) => {
                    let counted = self.sent(ms.saturating_sub(self.entries_late_ms[n]));
                    let counted = BTreeMap::from([(claim("p", PORT, 1), counted)]);
                    watch.note_entries(at(ms), counted);
                }
            }
            verdicts.extend(watch.judge(at(ms), at(0), QueuesBy::CodePoint));
        }
        verdicts
    }
}

proptest! {
    #[test]
    fn late_counters_are_never_taken_for_packets_that_are_missing(traffic in traffic()) {
        for verdict in traffic.looks(100) {
            prop_assert!(!verdict.effect.is_short(), "{verdict:?}");
        }
    }

    #[test]
    fn a_queue_that_gets_nothing_is_never_taken_for_one_that_works(traffic in traffic()) {
        for verdict in traffic.looks(0) {
            prop_assert_ne!(verdict.effect, Effect::Yes, "{:?}", verdict);
            prop_assert_ne!(verdict.effect, Effect::Partly, "{:?}", verdict);
            if verdict.queue.is_some() && verdict.counted >= FEW {
                prop_assert_eq!(verdict.effect, Effect::No, "{:?}", verdict);
            }
        }
    }
}

/// Where windows of queues are longer, a partial effect is found once the window is long.
#[test]
fn a_fifth_of_steady_traffic_is_found_as_a_part() {
    let steady = Traffic {
        per_second: vec![1000; 100],
        entries_late_ms: vec![500; 10],
        entries_phase_ms: 3000,
        keeper_phase_ms: 1000,
        keeper_late_ms: 300,
    };
    let looks = steady.looks(20);
    assert_eq!(looks.last().unwrap().effect, Effect::Partly, "{looks:?}");
    assert_eq!(steady.looks(4).last().unwrap().effect, Effect::No);
}
