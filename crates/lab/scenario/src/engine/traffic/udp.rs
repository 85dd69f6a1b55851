//! `kind = "udp"`: numbered datagrams at a stated rate, one way from one host to another.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use cli::date::now_ns;
use cli::failure::Failure;
use cli::parallel;
use measure::order::{self, Arrival, Verdict};
use testbed::traffic::stranger::stranger;
use testbed::traffic::tcp::Ends;
use testbed::traffic::udp::{HEADER_BYTES, Pace, Stream, stream_known, stream_new};

use super::{Carried, Record, Stage, Traffic, new_stranger};
use crate::engine::expression::{MANY, ONE, Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;
use crate::report::milliseconds;

pub struct Udp {
    /// Rate of the payload of each stream.
    rate_mbps: f64,
    payload_bytes: usize,
    /// Sends from a host that the network has never seen.
    is_new: bool,
    /// Parallel streams, each with its own numbers.
    streams: usize,
    /// The lengths of bursts and pauses, which alternate.
    bursts: Option<(Duration, Duration)>,
}

pub const FIGURES: [(&str, Shape); 14] = [
    ("sent", ONE),
    ("lost", ONE),
    // For each stream or burst.
    ("lost_each", MANY),
    ("duplicates", ONE),
    // By RFC 4737, with the largest extent and the largest late time.
    ("reordered", ONE),
    ("extent_max", ONE),
    ("late_ms_max", ONE),
    // Rate of the payload that arrived between the window's moments.
    ("received_mbps", ONE),
    // From the window's first moment until the first arrival of a packet that was sent after it.
    ("arrived_ms", ONE),
    // The longest time without an arrival while packets were sent.
    ("outage_ms", ONE),
    // For each packet that arrived, one way.
    ("delay_ms", MANY),
    // By RFC 3550, after the window's last packet.
    ("jitter_ms", ONE),
    // The greatest delay in sending a packet of the run after it was due.
    ("sender_late_ms", ONE),
    // As given by the rate.
    ("packets_per_s", ONE),
];

const RATES_MBPS: Range<f64> = 0.001..10_000.0;
const PACKETS_PER_S: Range<f64> = 0.1..20_000.0;
const PAYLOAD_BYTES: usize = 1470;
const PAYLOAD_BYTES_MAX: u64 = 1472;
const STREAMS_MAX: u64 = 1000;
const BURST_MIN: Duration = Duration::from_millis(10);
const TIME_MAX: Duration = Duration::from_secs(600);

impl Udp {
    pub fn read(section: &Section<'_>) -> Option<Udp> {
        let payload = section.count("payload_bytes", HEADER_BYTES as u64..=PAYLOAD_BYTES_MAX);
        let payload_bytes = payload.map_or(PAYLOAD_BYTES, |bytes| bytes as usize);
        let streams = section.count("streams", 1..=STREAMS_MAX).unwrap_or(1);
        let is_new = section.truth("new").unwrap_or(false);
        let rate_mbps = section.number("rate_mbps", RATES_MBPS);
        let packets_per_s = section.number("packets_per_s", PACKETS_PER_S);
        let by_packets = packets_per_s.map(|rate| rate * payload_bytes as f64 * 8.0 / 1e6);
        match (section.has("rate_mbps"), section.has("packets_per_s")) {
            (true, true) => section.problem("packets_per_s", "rate_mbps says it already"),
            (false, false) => section.problem("rate_mbps", "missing; write such as rate_mbps = 5"),
            _ => {}
        }
        let burst = section.duration("burst", BURST_MIN..=TIME_MAX);
        let pause = section.duration("pause", Duration::ZERO..=TIME_MAX);
        if section.has("burst") != section.has("pause") {
            section.problem("burst", "burst and pause need each other");
        }
        Some(Udp {
            rate_mbps: rate_mbps.or(by_packets)?,
            payload_bytes,
            is_new,
            streams: streams as usize,
            bursts: burst.zip(pause).filter(|(_, pause)| !pause.is_zero()),
        })
    }

    fn pace(&self, duration: Duration) -> Pace {
        Pace {
            rate_mbps: self.rate_mbps,
            datagram_bytes: self.payload_bytes,
            duration,
        }
    }

    /// Carries one stream from beginning to end: a burst, or several with pauses between.
    fn bursts(&self, ends: &Ends, stage: &Stage<'_>) -> Result<Vec<Burst>, Failure> {
        let zero_ns = now_ns().saturating_sub(stage.epoch.elapsed().as_nanos() as u64);
        let end = stage.epoch + stage.until;
        let (burst, pause) = self.bursts.unwrap_or((Duration::MAX, Duration::ZERO));
        let doors = self.is_new.then(|| ends.doors()).transpose()?;
        let stream = |pace: &Pace| match &doors {
            Some([from, to]) => {
                let doors = (from, stranger(new_stranger()), to);
                stream_new(ends, doors, pace)
            }
            None => stream_known(ends, pace),
        };
        let mut due = stage.epoch + stage.from;
        let mut bursts = Vec::new();
        loop {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let pace = self.pace(burst.min(end.saturating_duration_since(Instant::now())));
            if pace.count() == 0 {
                return Ok(bursts);
            }
            bursts.push(Burst {
                zero_ns,
                interval: pace.interval(),
                stream: stream(&pace)?,
            });
            if self.bursts.is_none() {
                return Ok(bursts);
            }
            due = Instant::now() + pause;
        }
    }
}

impl Traffic for Udp {
    fn packets_per_s(&self, pairs: usize) -> (f64, &'static str) {
        let one = 1.0 / self.pace(Duration::ZERO).interval().as_secs_f64();
        (one * (pairs * self.streams) as f64, "rate_mbps")
    }

    fn carry(&self, stage: &Stage<'_>) -> Carried {
        let ends = stage.ends.iter();
        let each = ends.flat_map(|ends| std::iter::repeat_n(ends, self.streams));
        let streams = parallel::at_once(each, |ends| self.bursts(ends, stage));
        let bursts = streams.into_iter().collect::<Result<Vec<_>, Failure>>()?;
        Ok(Box::new(Datagrams {
            packets_per_s: self.packets_per_s(stage.pairs.len()).0,
            payload_bytes: self.payload_bytes,
            bursts: bursts.into_iter().flatten().collect(),
        }))
    }
}

struct Datagrams {
    packets_per_s: f64,
    payload_bytes: usize,
    bursts: Vec<Burst>,
}

/// Datagrams without a pause. Their numbers begin with 0.
struct Burst {
    /// The zero of the run's clock, on the clock of the datagrams.
    zero_ns: u64,
    interval: Duration,
    stream: Stream,
}

impl Burst {
    fn at(&self, clock_ns: u64) -> Duration {
        Duration::from_nanos(clock_ns.saturating_sub(self.zero_ns))
    }

    fn due(&self, number: u64) -> Duration {
        self.at(self.stream.began_ns) + self.interval.mul_f64(number as f64)
    }

    /// The numbers of the packets that were due in a window.
    fn numbers<'a>(&'a self, window: &'a Window) -> impl Iterator<Item = u64> + 'a {
        (0..self.stream.sent).filter(|number| window.has(self.due(*number)))
    }

    fn lost(&self, window: &Window) -> usize {
        let arrived: BTreeSet<u64> = self.stream.arrivals.iter().map(|a| a.number).collect();
        let lost = |number: &u64| !arrived.contains(number);
        self.numbers(window).filter(lost).count()
    }

    fn arrivals(&self, window: &Window) -> Vec<Arrival> {
        let arrivals = self.stream.arrivals.iter().copied();
        arrivals
            .filter(|a| window.has(self.due(a.number)))
            .collect()
    }

    /// The longest time without an arrival that began in a window.
    fn outage(&self, window: &Window) -> Duration {
        let last_due = self.due(self.stream.sent.saturating_sub(1));
        let arrivals = self.stream.arrivals.iter().map(|a| self.at(a.received_ns));
        let mut times: Vec<Duration> = arrivals.collect();
        if times.is_empty() {
            times.push(self.due(0));
        }
        times.push(last_due);
        let pairs = times.windows(2).filter(|pair| window.has(pair[0]));
        let gaps = pairs.map(|pair| pair[1].saturating_sub(pair[0]));
        gaps.max().unwrap_or_default()
    }

    /// The reordered packets of a window. Packets of other windows may have overtaken them.
    fn reordered(&self, window: &Window) -> Vec<order::Reordered> {
        let mut reordered = order::judge(&self.stream.arrivals).reordered;
        reordered.retain(|packet| window.has(self.due(packet.number)));
        reordered
    }
}

impl Datagrams {
    fn arrived_ms(&self, window: &Window) -> f64 {
        let arrivals = self.bursts.iter().flat_map(|burst| {
            let arrivals = burst.stream.arrivals.iter();
            arrivals.map(|a| [burst.at(a.sent_ns), burst.at(a.received_ns)])
        });
        let later = arrivals.filter(|[sent, _]| *sent >= window.event && window.has(*sent));
        let first = later.map(|[_, received]| received).min();
        first.map_or(f64::NAN, |at| milliseconds(at.saturating_sub(window.event)))
    }

    /// The rate of arrival. A window that ends with the traffic ends at the window's last arrival.
    fn received_mbps(&self, window: &Window) -> f64 {
        let bursts = self.bursts.iter();
        let arrivals = bursts.flat_map(|b| b.stream.arrivals.iter().map(|a| b.at(a.received_ns)));
        let within = arrivals.filter(|at| (window.event..window.to).contains(at));
        let times: Vec<Duration> = within.collect();
        let last = times.iter().max().copied().unwrap_or_default();
        let end = if window.to == Duration::MAX {
            last
        } else {
            window.to
        };
        let bits = (times.len() * self.payload_bytes * 8) as f64;
        match end.saturating_sub(window.event) {
            Duration::ZERO => 0.0,
            time => bits / time.as_secs_f64() / 1e6,
        }
    }
}

impl Record for Datagrams {
    fn figure(&self, name: &str, window: &Window) -> Value {
        let sum = |of: &dyn Fn(&Burst) -> usize| self.bursts.iter().map(of).sum::<usize>() as f64;
        let most = |of: &dyn Fn(&Burst) -> f64| self.bursts.iter().map(of).fold(0.0, f64::max);
        let ms = |ns: f64| ns / 1e6;
        let judged = |burst: &Burst| -> Verdict { order::judge(&burst.arrivals(window)) };
        Value::One(match name {
            "sent" => sum(&|burst| burst.numbers(window).count()),
            "lost" => sum(&|burst| burst.lost(window)),
            "duplicates" => sum(&|burst| judged(burst).duplicates as usize),
            "reordered" => sum(&|burst| burst.reordered(window).len()),
            "extent_max" => most(&|burst| {
                let extents = burst.reordered(window).into_iter().map(|r| r.extent);
                extents.max().unwrap_or_default() as f64
            }),
            "late_ms_max" => most(&|burst| {
                let late = burst.reordered(window).into_iter().map(|r| r.late_ns);
                ms(late.max().unwrap_or_default() as f64)
            }),
            "outage_ms" => most(&|burst| milliseconds(burst.outage(window))),
            "jitter_ms" => most(&|burst| ms(judged(burst).jitter_ns)),
            "sender_late_ms" => most(&|burst| milliseconds(burst.stream.sender_late_max)),
            "packets_per_s" => self.packets_per_s,
            "received_mbps" => self.received_mbps(window),
            "arrived_ms" => self.arrived_ms(window),
            "lost_each" => {
                let lost = self.bursts.iter().map(|burst| burst.lost(window) as f64);
                return Value::Many(lost.collect());
            }
            _ => {
                let delays = self.bursts.iter().flat_map(|burst| judged(burst).delays_ns);
                return Value::Many(delays.map(|ns| ms(ns as f64)).collect());
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// The clock at the run's zero.
    const ZERO: u64 = 5_000 * MS;

    /// A packet each millisecond from `began_ms` on. Those of `numbers` arrive in that order, a
    /// millisecond apart, but never sooner than 2 ms after they were sent.
    fn burst(began_ms: u64, sent: u64, numbers: &[u64]) -> Burst {
        let began_ns = ZERO + began_ms * MS;
        let arrival = |(place, number): (usize, &u64)| Arrival {
            number: *number,
            sent_ns: began_ns + number * MS,
            received_ns: began_ns + (place as u64 + 2).max(number + 2) * MS,
        };
        Burst {
            zero_ns: ZERO,
            interval: Duration::from_millis(1),
            stream: Stream {
                began_ns,
                sent,
                sender_late_max: Duration::from_millis(1),
                arrivals: numbers.iter().enumerate().map(arrival).collect(),
            },
        }
    }

    fn one(record: &Datagrams, name: &str, from_ms: u64, to_ms: u64) -> f64 {
        let ms = Duration::from_millis;
        let window = Window {
            event: ms(from_ms),
            from: ms(from_ms),
            to: ms(to_ms),
        };
        match record.figure(name, &window) {
            Value::One(one) => one,
            Value::Many(many) => many[0],
        }
    }

    fn record(bursts: Vec<Burst>) -> Datagrams {
        Datagrams {
            packets_per_s: 1000.0,
            payload_bytes: 1250,
            bursts,
        }
    }

    #[test]
    fn a_packet_belongs_to_the_window_in_which_it_was_due() {
        let mut numbers: Vec<u64> = (0..40).collect();
        // 12 to 14 are lost; 33 is overtaken by 34, and 24 arrives twice.
        numbers.retain(|n| !(12..15).contains(n) && *n != 33);
        let place = numbers.iter().position(|n| *n == 34).unwrap();
        numbers.insert(place + 1, 33);
        numbers.push(24);
        let record = record(vec![burst(10, 40, &numbers)]);
        let both = |name| (one(&record, name, 0, 35), one(&record, name, 35, 1000));
        assert_eq!(both("sent"), (25.0, 15.0));
        assert_eq!(both("lost"), (3.0, 0.0));
        assert_eq!(both("lost_each"), (3.0, 0.0));
        assert_eq!(both("reordered"), (0.0, 1.0));
        assert_eq!(both("extent_max"), (0.0, 1.0));
        assert_eq!(both("duplicates"), (1.0, 0.0));
        assert_eq!(both("sender_late_ms"), (1.0, 1.0));
        // 7 of 10 packets of 10,000 bits arrive in 10 ms.
        assert_eq!(one(&record, "received_mbps", 20, 30), 7.0);
        assert_eq!(one(&record, "outage_ms", 0, 35), 4.0);
        // Sent at 25 ms, the first one after three that are lost.
        assert_eq!(one(&record, "arrived_ms", 22, 35), 5.0);
        assert!(one(&record, "arrived_ms", 22, 25).is_nan());
        assert_eq!(one(&record, "delay_ms", 0, 35), 2.0);
        assert_eq!(one(&record, "jitter_ms", 0, 15), 0.0);
    }

    #[test]
    fn packets_lost_at_the_end_are_an_outage_too() {
        let numbers: Vec<u64> = (0..28).collect();
        let short = record(vec![burst(0, 40, &numbers)]);
        assert_eq!(one(&short, "lost", 25, 1000), 12.0);
        // The last arrival was at 29 ms, and the last packet was due at 39 ms.
        assert_eq!(one(&short, "outage_ms", 25, 1000), 10.0);
        let silent = record(vec![burst(0, 40, &[])]);
        assert_eq!(one(&silent, "lost", 0, 1000), 40.0);
        assert_eq!(one(&silent, "outage_ms", 0, 1000), 39.0);
    }

    #[test]
    fn a_pause_is_no_outage() {
        let five = [0, 1, 2, 3, 4];
        let paused = record(vec![burst(0, 5, &five), burst(300, 5, &five)]);
        assert_eq!(one(&paused, "sent", 0, 1000), 10.0);
        assert_eq!(one(&paused, "outage_ms", 0, 1000), 1.0);
    }
}
