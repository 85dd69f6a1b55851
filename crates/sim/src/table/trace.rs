//! Flows of a campus: a model fitted to published statistics, drawn from a seed.
//!
//! * Packets of a flow: the distribution of 6,517,484 flows of one hour (10 June 2015, 19:00 UTC)
//!   at the Internet-facing interface of the AGH university, its median 2 and mean 104
//!   (P. Jurkiewicz, *flow-models 2.0*, SoftwareX 24, 2023, data set `agh_2015061019_IPv4_anon`).
//! * New flows: the same hour's 1,810 a second; the numbers of single seconds deviate by 21 %. Only
//!   the deviation is used; the rate is given by the caller.
//! * Durations of flows of more than one packet: log-normal through the two quantiles published by
//!   S. Kandula and others, *The Nature of Datacenter Traffic*, IMC 2009: 80 % last less than 10 s,
//!   99.9 % less than 200 s. The campus data has none.
//! * Gaps within a flow: shares of the duration, Pareto with shape 1 (V. Paxson and S. Floyd,
//!   *Wide-Area Traffic: The Failure of Poisson Modeling*, 1995, measured 0.9 to 0.95 within TELNET
//!   flows), none longer than 15 s, the inactivity that ended a flow in the campus data.
//! * Destinations are assumed: Zipf, 1/rank.
//!
//! Lengths and durations are drawn independently of each other, but no flow sends more than
//! 10,000 packets a second. Packets closer together than 50 ms count as one. Arithmetic is with
//! integers, sums, products and quotients: a seed gives the same trace on any machine.

use clock::{Duration, Instant, SplitMix64};

use crate::channel::event::EventQueue;

/// The traffic that reaches the switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Traffic {
    /// New flows as described above, `flows_per_s` a second on average.
    Campus { flows_per_s: f64, destinations: u16 },
    /// Flows that begin one after the other within `over` and send for ever, each with gaps of
    /// about `gap`.
    Steady {
        flows: u32,
        gap: Duration,
        over: Duration,
    },
}

/// A packet, or several that follow closely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub flow: u32,
    pub destination: u16,
    pub is_first: bool,
    pub is_last: bool,
}

/// Lengths in packets, and the share of flows up to each, in 1e-6. Between two lengths the flows
/// are spread evenly.
const LENGTHS: [(u32, u32); 22] = [
    (0, 0),
    (1, 446_600),
    (2, 628_213),
    (4, 732_573),
    (8, 833_482),
    (16, 900_450),
    (32, 939_420),
    (64, 961_610),
    (128, 974_934),
    (256, 983_976),
    (512, 989_872),
    (1024, 993_490),
    (2048, 995_798),
    (4096, 997_342),
    (8192, 998_272),
    (16_384, 998_861),
    (32_768, 999_285),
    (65_536, 999_675),
    (131_072, 999_901),
    (262_144, 999_982),
    (524_288, 999_994),
    (1_048_576, 1_000_000),
];

/// Durations in milliseconds, and the share of flows up to each, in 1e-6: exp(μ + σ z) with σ =
/// ln(200 / 10) / (3.090 - 0.842) = 1.332 and μ = ln 10 - 0.842 σ = 1.181, in seconds.
const DURATIONS: [(u32, u32); 24] = [
    (23, 0),
    (211, 20_000),
    (364, 50_000),
    (591, 100_000),
    (1062, 200_000),
    (1620, 300_000),
    (2325, 400_000),
    (3259, 500_000),
    (4567, 600_000),
    (6553, 700_000),
    (10_000, 800_000),
    (12_963, 850_000),
    (17_970, 900_000),
    (23_277, 930_000),
    (29_157, 950_000),
    (39_926, 970_000),
    (50_272, 980_000),
    (72_286, 990_000),
    (100_786, 995_000),
    (150_774, 998_000),
    (200_000, 999_000),
    (261_167, 999_500),
    (462_211, 999_900),
    (600_000, 1_000_000),
];

const MILLION: u32 = 1_000_000;
const GAP_MAX_US: u32 = 15_000_000;
const PACKETS_PER_MS_MAX: u32 = 10;
/// Packets within this time count as one.
const RESOLUTION_MS: u32 = 50;
/// Half the width of an even spread whose standard deviation is 21 % of its mean.
const RATE_SPREAD: f64 = 0.36;

/// Packets in the order of time.
pub struct Trace {
    traffic: Traffic,
    seed: u64,
    arrivals: SplitMix64,
    events: EventQueue<Event>,
    flows: u32,
    flows_max: u32,
    /// Cumulative weights of destinations, in 1e-6 of the first.
    popularity: Vec<u64>,
}

enum Event {
    /// New flows of the second that begins.
    Second,
    Packet(Box<Flow>),
}

struct Flow {
    id: u32,
    destination: u16,
    is_first: bool,
    /// Gaps still to come, the last one first.
    gaps_us: Gaps,
}

enum Gaps {
    Drawn(Vec<u32>),
    Steady(u32, SplitMix64),
}

/// One flow: its number of packets and its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub packets: u32,
    pub duration_ms: u32,
}

impl Trace {
    pub fn new(traffic: Traffic, seed: u64, flows_max: u32) -> Trace {
        let mut trace = Trace {
            traffic,
            seed,
            arrivals: SplitMix64::new(seed),
            events: EventQueue::default(),
            flows: 0,
            flows_max,
            popularity: Vec::new(),
        };
        match traffic {
            Traffic::Campus { destinations, .. } => {
                let mut sum = 0;
                trace.popularity = (1..=u64::from(destinations.max(1)))
                    .map(|rank| {
                        sum += u64::from(MILLION) / rank;
                        sum
                    })
                    .collect();
                trace.events.push(Instant::START, Event::Second);
            }
            Traffic::Steady { flows, gap, over } => {
                for id in 0..flows.min(flows_max) {
                    let at = over.as_nanos() as u64 / u64::from(flows) * u64::from(id);
                    let random = SplitMix64::new(seed).fork(id);
                    let flow = Flow {
                        id,
                        destination: (id % 256) as u16,
                        is_first: true,
                        gaps_us: Gaps::Steady(gap.as_micros() as u32, random),
                    };
                    trace
                        .events
                        .push(Instant(at), Event::Packet(Box::new(flow)));
                }
                trace.flows = flows.min(flows_max);
            }
        }
        trace
    }

    /// Flows that have begun.
    pub fn flows(&self) -> u32 {
        self.flows
    }

    pub fn next_at(&self) -> Option<Instant> {
        self.events.next_at()
    }

    /// Returns the next packet, or `None` where new flows were drawn.
    pub fn step(&mut self) -> Option<Packet> {
        let (at, event) = self.events.pop()?;
        let mut flow = match event {
            Event::Second => {
                self.begin_flows(at);
                return None;
            }
            Event::Packet(flow) => flow,
        };
        let gap_us = match &mut flow.gaps_us {
            Gaps::Drawn(gaps) => gaps.pop(),
            // A fifth less or more.
            Gaps::Steady(gap_us, random) => {
                let share = (random.next() % 401) as u32;
                Some(gap_us.saturating_mul(800 + share) / 1000)
            }
        };
        let packet = Packet {
            flow: flow.id,
            destination: flow.destination,
            is_first: flow.is_first,
            is_last: gap_us.is_none(),
        };
        if let Some(gap_us) = gap_us {
            flow.is_first = false;
            let next = at + Duration::from_micros(u64::from(gap_us));
            self.events.push(next, Event::Packet(flow));
        }
        Some(packet)
    }

    fn begin_flows(&mut self, second: Instant) {
        let Traffic::Campus { flows_per_s, .. } = self.traffic else {
            return;
        };
        let factor = 1.0 + RATE_SPREAD * (2.0 * share(&mut self.arrivals) - 1.0);
        let count = (flows_per_s * factor + share(&mut self.arrivals)) as u32;
        let count = count.min(self.flows_max - self.flows);
        for _ in 0..count {
            let nanos = share(&mut self.arrivals) * 1e9;
            let flow = self.draw(self.flows);
            self.flows += 1;
            let at = second + Duration::from_nanos(nanos as u64);
            self.events.push(at, Event::Packet(Box::new(flow)));
        }
        if self.flows < self.flows_max {
            let next = second + Duration::from_secs(1);
            self.events.push(next, Event::Second);
        }
    }

    /// Draws a flow from its own number, independently of earlier flows.
    fn draw(&self, id: u32) -> Flow {
        let mut random = SplitMix64::new(self.seed).fork(id);
        let shape = Shape::draw(&mut random);
        let popularity = *self.popularity.last().expect("there is a destination");
        let chosen = random.next() % popularity;
        let destination = self.popularity.partition_point(|sum| *sum <= chosen);
        Flow {
            id,
            destination: destination as u16,
            is_first: true,
            gaps_us: Gaps::Drawn(shape.gaps_us(&mut random)),
        }
    }
}

impl Shape {
    pub fn draw(random: &mut SplitMix64) -> Shape {
        let packets = quantile(&LENGTHS, random).max(1);
        let duration_ms = quantile(&DURATIONS, random).max(packets / PACKETS_PER_MS_MAX);
        Shape {
            packets,
            duration_ms: if packets == 1 { 0 } else { duration_ms },
        }
    }

    /// Mean time from the first packet to the last, over `flows` flows of a seed.
    pub fn mean_duration(seed: u64, flows: u32) -> Duration {
        let mut random = SplitMix64::new(seed);
        let mut sum_us = 0;
        for _ in 0..flows {
            let shape = Shape::draw(&mut random);
            let gaps = shape.gaps_us(&mut random);
            sum_us += gaps.into_iter().map(u64::from).sum::<u64>();
        }
        Duration::from_micros(sum_us / u64::from(flows))
    }

    fn gaps_us(self, random: &mut SplitMix64) -> Vec<u32> {
        let resolved = self.duration_ms / RESOLUTION_MS + 1;
        let count = (self.packets - 1).min(resolved) as usize;
        let weights: Vec<f64> = (0..count).map(|_| 1.0 / (1.0 - share(random))).collect();
        let sum: f64 = weights.iter().sum();
        let duration_us = f64::from(self.duration_ms) * 1000.0;
        let gap = |weight: f64| ((duration_us * weight / sum) as u32).clamp(1, GAP_MAX_US);
        weights.into_iter().map(gap).collect()
    }
}

/// Draws a share evenly and returns the value below which this share of all lies.
fn quantile(table: &[(u32, u32)], random: &mut SplitMix64) -> u32 {
    let drawn = (random.next() % u64::from(MILLION)) as u32;
    let above = table.partition_point(|(_, share)| *share <= drawn);
    let ((low, from), (high, to)) = (table[above - 1], table[above]);
    let part = u64::from(high - low) * u64::from(drawn - from) / u64::from(to - from);
    // Whole values above `low`: with a step of one it is `high`.
    low + (part as u32 + 1).min(high - low)
}

/// A random number evenly distributed from 0 to 1, without 1.
fn share(random: &mut SplitMix64) -> f64 {
    (random.next() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes() -> Vec<Shape> {
        let mut random = SplitMix64::new(7);
        (0..200_000).map(|_| Shape::draw(&mut random)).collect()
    }

    #[test]
    fn flows_have_the_published_lengths() {
        let shapes = shapes();
        let percent = |max: u32| {
            let count = shapes.iter().filter(|s| s.packets <= max).count();
            100.0 * count as f64 / shapes.len() as f64
        };
        for (max, published) in [(1, 44.66), (2, 62.82), (8, 83.35), (128, 97.49)] {
            let ours = percent(max);
            assert!((ours - published).abs() < 0.4, "{max}: {ours}");
        }
        let sum: f64 = shapes.iter().map(|s| f64::from(s.packets)).sum();
        let mean = sum / shapes.len() as f64;
        assert!((80.0..140.0).contains(&mean), "published 104: {mean}");
    }

    #[test]
    fn flows_of_several_packets_last_as_published() {
        let shapes = shapes();
        let long: Vec<_> = shapes.iter().filter(|s| s.packets > 1).collect();
        let within = |ms: u32| {
            let count = long.iter().filter(|s| s.duration_ms < ms).count();
            100.0 * count as f64 / long.len() as f64
        };
        let (ten, two_hundred) = (within(10_000), within(200_000));
        assert!((ten - 80.0).abs() < 0.8, "{ten}");
        assert!((two_hundred - 99.9).abs() < 0.1, "{two_hundred}");
        assert!(shapes.iter().all(|s| s.packets > 1 || s.duration_ms == 0));
    }

    #[test]
    fn a_trace_has_the_rate_and_deviates_from_it_by_seconds() {
        let traffic = Traffic::Campus {
            flows_per_s: 500.0,
            destinations: 100,
        };
        let mut trace = Trace::new(traffic, 3, u32::MAX);
        let mut by_second = [0.0_f64; 200];
        let mut last = Instant::START;
        while let Some(at) = trace.next_at().filter(|at| *at < Instant(200_000_000_000)) {
            assert!(at >= last);
            last = at;
            if let Some(packet) = trace.step() {
                assert!(packet.destination < 100);
                by_second[(at.0 / 1_000_000_000) as usize] += f64::from(u8::from(packet.is_first));
            }
        }
        let mean = by_second.iter().sum::<f64>() / 200.0;
        let squares: f64 = by_second.iter().map(|n| (n - mean) * (n - mean)).sum();
        let deviation = (squares / 200.0).sqrt() / mean;
        assert!((mean - 500.0).abs() < 25.0, "{mean}");
        assert!((deviation - 0.21).abs() < 0.03, "{deviation}");
    }

    #[test]
    fn the_first_destination_is_twice_as_popular_as_the_second() {
        let traffic = Traffic::Campus {
            flows_per_s: 1.0,
            destinations: 50,
        };
        let trace = Trace::new(traffic, 1, 100);
        let mut counts = [0_u32; 50];
        for id in 0..50_000 {
            counts[usize::from(trace.draw(id).destination)] += 1;
        }
        let ratio = f64::from(counts[0]) / f64::from(counts[1]);
        assert!((ratio - 2.0).abs() < 0.1, "{ratio}");
        assert!(counts[49] > 0);
    }

    #[test]
    fn the_same_seed_gives_the_same_packets_and_another_others() {
        let packets = |seed| {
            let traffic = Traffic::Campus {
                flows_per_s: 100.0,
                destinations: 10,
            };
            let mut trace = Trace::new(traffic, seed, 500);
            let mut packets = Vec::new();
            while let Some(at) = trace.next_at() {
                packets.extend(trace.step().map(|p| (at, p)));
            }
            packets
        };
        assert_eq!(packets(1), packets(1));
        assert_ne!(packets(1), packets(2));
        let firsts = packets(1).iter().filter(|(_, p)| p.is_first).count();
        let lasts = packets(1).iter().filter(|(_, p)| p.is_last).count();
        assert_eq!((firsts, lasts), (500, 500));
    }
}
