//! `kind = "ping"`: echo requests at a steady rate over pairs of hosts.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use testbed::probe::{DATA_BYTES, DATA_BYTES_MIN, Flow, Sample, ordered_pairs};
use testbed::topology::Topology;

use super::{Pair, Record, Stage, Traffic, host};
use crate::engine::expression::{MANY, ONE, Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;
use crate::report::milliseconds;

pub struct Ping {
    pairs: Pairs,
    interval: Duration,
    payload_bytes: usize,
}

enum Pairs {
    /// Every host to every other.
    All,
    /// The first host of each edge switch to that of the next one.
    Ring,
    /// The number of pairs at different switches that have not communicated on this network.
    New(usize),
    Named(Vec<String>),
}

pub const FIGURES: [(&str, Shape); 7] = [
    ("sent", ONE),
    ("lost", ONE),
    // From the window's event until the packet after the last lost one; 0 without loss.
    ("outage_ms", ONE),
    // For each answered packet.
    ("rtt_ms", MANY),
    // For each pair: from its first packet until its first answer.
    ("first_ms", MANY),
    // For each pair: until the first answer had arrived and no later packet was lost.
    ("works_ms", MANY),
    // For each pair: until the first answer had arrived.
    ("answered_ms", MANY),
];

const PAYLOAD_BYTES: RangeInclusive<u64> = DATA_BYTES_MIN as u64..=1472;
const INTERVAL_MIN: Duration = Duration::from_micros(100);
const INTERVAL_MAX: Duration = Duration::from_secs(60);

impl Ping {
    pub fn read(section: &Section<'_>) -> Option<Ping> {
        if section.has("ends") {
            section.problem("ends", "pings go on until the end");
        }
        let interval = section.required_duration("interval", INTERVAL_MIN..=INTERVAL_MAX);
        let count = section.count("count", 1..=1000);
        let payload = section.count("payload_bytes", PAYLOAD_BYTES);
        let named = section.texts("between").map(Pairs::Named);
        let word = section.word("pairs", &["all", "ring", "new"]);
        let pairs = named.or(word.map(|word| match word {
            "all" => Pairs::All,
            "ring" => Pairs::Ring,
            _ => Pairs::New(count.unwrap_or(1) as usize),
        }));
        match (section.has("between"), section.has("pairs")) {
            (true, true) => section.problem("pairs", "between names them already"),
            (false, false) => {
                let example = "\"all\", or between = [\"h1-h2\"]";
                section.problem("pairs", format!("missing; write such as pairs = {example}"));
            }
            _ => {}
        }
        if count.is_some() && !matches!(pairs, Some(Pairs::New(_))) {
            section.problem("count", "only pairs = \"new\" takes a count");
        }
        Some(Ping {
            pairs: pairs?,
            interval: interval?,
            payload_bytes: payload.map_or(DATA_BYTES, |bytes| bytes as usize),
        })
    }
}

impl Traffic for Ping {
    fn choose(&self, topology: &Topology, used: &BTreeSet<Pair>) -> Result<Vec<Pair>, String> {
        match &self.pairs {
            Pairs::All => Ok(ordered_pairs(topology.hosts.len())),
            Pairs::Ring => match ring(topology) {
                none if none.is_empty() => {
                    Err(format!("{} has hosts at one switch only", topology.name))
                }
                pairs => Ok(pairs),
            },
            Pairs::New(count) => {
                let unused = between_switches(topology);
                let is_unused =
                    |(a, b): &Pair| !used.contains(&(*a, *b)) && !used.contains(&(*b, *a));
                let pairs: Vec<Pair> = unused.into_iter().filter(is_unused).take(*count).collect();
                if pairs.len() < *count {
                    return Err(format!(
                        "{} has too few pairs of hosts that never talked; give more \
                         topology.hosts_per_edge or fewer runs",
                        topology.name
                    ));
                }
                Ok(pairs)
            }
            Pairs::Named(names) => names.iter().map(|name| named(topology, name)).collect(),
        }
    }

    fn is_new_each_run(&self) -> bool {
        matches!(self.pairs, Pairs::New(_))
    }

    fn packets_per_s(&self, pairs: usize) -> (f64, &'static str) {
        (pairs as f64 / self.interval.as_secs_f64(), "interval")
    }

    fn keeps_to_plan(&self) -> bool {
        true
    }

    fn flows(&self, stage: &Stage<'_>) -> Option<Vec<Flow>> {
        let mut flows = flows(&stage.pairs, self.interval, stage.from);
        let size = |flow: &mut Flow| flow.data_bytes = self.payload_bytes;
        flows.iter_mut().for_each(size);
        Some(flows)
    }
}

/// Spreads the pairs over the interval: a burst would measure its own queueing.
pub fn flows(pairs: &[Pair], interval: Duration, from: Duration) -> Vec<Flow> {
    let flow = |(n, pair): (usize, &Pair)| Flow {
        from: pair.0,
        to: pair.1,
        interval,
        data_bytes: DATA_BYTES,
        next: from + interval * n as u32 / pairs.len() as u32,
    };
    pairs.iter().enumerate().map(flow).collect()
}

/// The echo requests of one stream.
pub struct Echoes {
    flows: Vec<Flow>,
    samples: Vec<Sample>,
}

impl Echoes {
    /// Takes the samples of these flows.
    pub fn of(flows: &[Flow], samples: &[Sample]) -> Echoes {
        let is_own = |s: &&Sample| flows.iter().any(|f| (f.from, f.to) == (s.from, s.to));
        Echoes {
            flows: flows.to_vec(),
            samples: samples.iter().filter(is_own).copied().collect(),
        }
    }
}

impl Record for Echoes {
    fn figure(&self, name: &str, window: &Window) -> Value {
        let within = |s: &&Sample| window.has(s.sent);
        let samples: Vec<&Sample> = self.samples.iter().filter(within).collect();
        let lost = || samples.iter().filter(|s| s.rtt.is_none());
        let interval = self.flows.first().map(|flow| flow.interval);
        match name {
            "sent" => Value::One(samples.len() as f64),
            "lost" => Value::One(lost().count() as f64),
            "outage_ms" => Value::One(match lost().map(|s| s.sent).max() {
                None => 0.0,
                // The outage has not ended.
                Some(_) if self.flows.iter().any(|flow| ends_lost(flow, &samples)) => f64::NAN,
                Some(last) => {
                    let next = last + interval.unwrap_or_default();
                    milliseconds(next.saturating_sub(window.event))
                }
            }),
            "rtt_ms" => {
                let rtts = samples.iter().filter_map(|s| s.rtt);
                Value::Many(rtts.map(milliseconds).collect())
            }
            name => {
                let at = match name {
                    "works_ms" => works_at,
                    _ => answered_at,
                };
                let pairs = self.flows.iter().map(|flow| (flow.from, flow.to));
                let times = pairs.map(|pair| match name {
                    "first_ms" => first_ms(pair, &samples),
                    _ => since_event_ms(pair, window, &samples, at),
                });
                Value::Many(times.collect())
            }
        }
    }
}

/// The time from a pair's first packet until its first answer.
fn first_ms(pair: Pair, samples: &[&Sample]) -> f64 {
    let samples = of_pair(pair, samples);
    let first = samples.iter().map(|s| s.sent).min().unwrap_or_default();
    answered_at(&samples).map_or(f64::NAN, |at| milliseconds(at.saturating_sub(first)))
}

/// Whether a flow's last packet got no answer.
fn ends_lost(flow: &Flow, samples: &[&Sample]) -> bool {
    let samples = of_pair((flow.from, flow.to), samples);
    let last = samples.iter().max_by_key(|sample| sample.sent);
    last.is_some_and(|sample| sample.rtt.is_none())
}

fn of_pair<'s>(pair: Pair, samples: &[&'s Sample]) -> Vec<&'s Sample> {
    let samples = samples.iter().filter(|s| (s.from, s.to) == pair);
    samples.copied().collect()
}

fn since_event_ms(
    pair: Pair,
    window: &Window,
    samples: &[&Sample],
    at: fn(&[&Sample]) -> Option<Duration>,
) -> f64 {
    at(&of_pair(pair, samples)).map_or(f64::NAN, |at| milliseconds(at.saturating_sub(window.event)))
}

/// The time of the first answer, which is not always the answer to the first packet.
fn answered_at(samples: &[&Sample]) -> Option<Duration> {
    samples.iter().filter_map(|s| Some(s.sent + s.rtt?)).min()
}

/// The time when the first answer had arrived and the next packet after the last lost one was due.
fn works_at(samples: &[&Sample]) -> Option<Duration> {
    let first_answer = answered_at(samples)?;
    let lost = samples.iter().rposition(|s| s.rtt.is_none());
    match lost {
        None => Some(first_answer),
        Some(last) => samples
            .get(last + 1)
            .map(|next| next.sent.max(first_answer)),
    }
}

fn ring(topology: &Topology) -> Vec<Pair> {
    let mut seen = BTreeSet::new();
    let hosts = topology.hosts.iter().enumerate();
    let firsts: Vec<usize> = hosts
        .filter(|(_, host)| seen.insert(host.at.switch))
        .map(|(n, _)| n)
        .collect();
    match firsts.len() {
        0 | 1 => Vec::new(),
        2 => vec![(firsts[0], firsts[1])],
        count => (0..count)
            .map(|n| (firsts[n], firsts[(n + 1) % count]))
            .collect(),
    }
}

/// Unordered pairs of hosts at different switches, the close ones first.
fn between_switches(topology: &Topology) -> Vec<Pair> {
    let count = topology.hosts.len();
    let at = |n: usize| topology.hosts[n].at.switch;
    let all = (1..count).flat_map(|distance| (distance..count).map(move |b| (b - distance, b)));
    all.filter(|(a, b)| at(*a) != at(*b)).collect()
}

fn named(topology: &Topology, name: &str) -> Result<Pair, String> {
    let (from, to) = name
        .split_once('-')
        .ok_or_else(|| format!("'{name}' is not two hosts; write such as h1-h2"))?;
    Ok((host(topology, from)?, host(topology, to)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const MS_10: Duration = Duration::from_millis(10);

    fn topology() -> Topology {
        Topology::generate("ring,4", Some(3)).unwrap()
    }

    /// A packet every 10 ms for 3 s, over one pair.
    fn samples(lost_ms: &[u64]) -> Vec<Sample> {
        let sample = |n: u64| Sample {
            from: 0,
            to: 3,
            sent: MS(n * 10),
            rtt: (!lost_ms.contains(&(n * 10))).then_some(MS(2)),
        };
        (0..300).map(sample).collect()
    }

    fn figure(name: &str, from_ms: u64, to_ms: u64, lost_ms: &[u64]) -> Value {
        let window = Window {
            event: MS(from_ms),
            from: MS(from_ms.saturating_sub(20)),
            to: MS(to_ms - 20),
        };
        let flows = flows(&[(0, 3)], MS_10, MS(0));
        Echoes::of(&flows, &samples(lost_ms)).figure(name, &window)
    }

    #[test]
    fn an_outage_lasts_from_the_event_to_the_packet_after_the_last_lost_one() {
        let lost = [500, 990, 1000, 1010, 1040, 2500];
        assert_eq!(figure("lost", 1000, 2000, &lost), Value::One(4.0));
        assert_eq!(figure("outage_ms", 1000, 2000, &lost), Value::One(50.0));
        assert_eq!(figure("outage_ms", 1000, 2000, &[]), Value::One(0.0));
        let Value::One(endless) = figure("outage_ms", 1000, 2000, &[1000, 1970]) else {
            panic!("one figure");
        };
        assert!(endless.is_nan(), "the last one was lost: {endless}");
        assert_eq!(figure("sent", 1000, 2000, &lost), Value::One(100.0));
        assert_eq!(figure("rtt_ms", 1000, 1030, &lost), Value::Many(vec![2.0]));
    }

    #[test]
    fn a_new_pair_works_from_the_packet_after_its_last_lost_one() {
        let time = |name: &str, lost: &[u64]| match figure(name, 0, 3020, lost) {
            Value::Many(times) => times[0],
            Value::One(_) => panic!("one for each pair"),
        };
        let at = |lost: &[u64]| time("works_ms", lost);
        assert_eq!(at(&[]), 2.0, "its first answer");
        assert_eq!(at(&[0, 10]), 22.0, "the first answer");
        assert_eq!(at(&[0, 800]), 810.0, "an answer between does not count");
        assert!(at(&[2990]).is_nan(), "the last one was lost");
        assert_eq!(
            time("answered_ms", &[0, 10, 40]),
            22.0,
            "later loss is none"
        );
    }

    #[test]
    fn a_first_answer_counts_from_the_first_packet_even_if_that_was_lost() {
        let first = |lost: &[u64]| match figure("first_ms", 1000, 3020, lost) {
            Value::Many(first) => first[0],
            Value::One(_) => panic!("one for each pair"),
        };
        assert_eq!(first(&[1010]), 2.0);
        assert_eq!(first(&[980, 990]), 22.0, "the window's first packets");
        let all: Vec<u64> = (0..3000).collect();
        assert!(first(&all).is_nan(), "no answer");
    }

    #[test]
    fn new_pairs_are_between_switches_and_never_the_same_twice() {
        let topology = topology();
        let mut used: BTreeSet<Pair> = ring(&topology).into_iter().collect();
        assert_eq!(
            ring(&topology),
            [(0, 3), (3, 6), (6, 9), (9, 0)],
            "the first hosts"
        );
        let two = Ping {
            pairs: Pairs::New(2),
            interval: MS_10,
            payload_bytes: DATA_BYTES,
        };
        for run in 0..25 {
            let pairs = two.choose(&topology, &used).unwrap();
            assert!(pairs.iter().all(|pair| used.insert(*pair)), "run {run}");
        }
        let problem = two.choose(&topology, &used).unwrap_err();
        assert!(problem.contains("hosts_per_edge"), "{problem}");
    }

    #[test]
    fn pairs_are_spread_over_the_interval() {
        let pairs = ordered_pairs(topology().hosts.len());
        assert_eq!(pairs.len(), 12 * 11);
        let flows = flows(&pairs[..4], MS_10, MS(100));
        let next: Vec<Duration> = flows.iter().map(|flow| flow.next).collect();
        let us = Duration::from_micros;
        assert_eq!(next, [us(100_000), us(102_500), us(105_000), us(107_500)]);
        assert_eq!(named(&topology(), "h1-h3"), Ok((0, 2)));
        assert!(
            named(&topology(), "h1-h33")
                .unwrap_err()
                .contains("no host h33")
        );
    }
}
