//! What one change did to the stream, as its receiver saw it.

use std::collections::BTreeSet;

use serde::Serialize;

use bench::network::order::{self, Arrival, Reordered};
use bench::network::udp::Stream;
use measure::stats::median;

/// The stream about one change of its way.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Part {
    pub row: String,
    pub rate_mbps: f64,
    pub run: u32,
    pub sent: u64,
    pub lost: u64,
    pub duplicates: u64,
    pub reordered: u64,
    /// Of reordered packets, the largest.
    pub extent_max: u64,
    pub late_ms_max: f64,
    /// The longest time without an arrival, while packets were sent.
    pub outage_ms: f64,
    /// One way, the median: of packets before the change, and of those long after it.
    pub delay_before_ms: Option<f64>,
    pub delay_after_ms: Option<f64>,
    /// The most that a packet was sent after it was due.
    pub sender_late_ms: f64,
    /// Runs before this one in which the sender was too late to tell anything.
    pub repeats: u32,
    /// Packets on the link of each way, in the last half of the time after the change.
    pub carried: Carried,
    /// The way that it must be on by then, where the change says which.
    pub wanted: Option<Way>,
    #[serde(skip)]
    pub trace: Vec<Traced>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    From,
    To,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Carried {
    pub from: u64,
    pub to: u64,
}

/// An arrival near the change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traced {
    pub number: u64,
    /// Since the change was asked for.
    pub sent_ms: f64,
    pub received_ms: f64,
}

/// A piece of the stream without a pause; its numbers begin with 0.
#[derive(Debug)]
pub struct Burst {
    pub began_ns: u64,
    pub interval_ns: f64,
    pub stream: Stream,
}

/// A change at this place between the changes belongs to the next part.
const NEXT_PART_AT: f64 = 0.75;
/// Arrivals are kept that were sent so long before the change, and after it.
const TRACE_BEFORE_MS: f64 = 20.0;
const TRACE_AFTER_MS: f64 = 150.0;
/// A few packets are LLDP's and ARP's.
const CARRIED_MIN: u64 = 10;

impl Part {
    /// Whether the stream is on the way that it must be on.
    pub fn has_moved(&self) -> bool {
        let (here, there) = match self.wanted {
            None => return true,
            Some(Way::From) => (self.carried.from, self.carried.to),
            Some(Way::To) => (self.carried.to, self.carried.from),
        };
        here >= CARRIED_MIN && here > there
    }
}

impl Burst {
    /// The number of the first packet that was due at this time or later.
    fn number_at(&self, at_ns: u64) -> u64 {
        let begins = self.stream.arrivals.iter().map(|arrival| {
            // Never sent before it was due.
            arrival.sent_ns as f64 - arrival.number as f64 * self.interval_ns
        });
        let began = begins.fold(f64::INFINITY, f64::min);
        let began = if began.is_finite() {
            began
        } else {
            self.began_ns as f64
        };
        let due = ((at_ns as f64 - began) / self.interval_ns).ceil();
        (due.max(0.0) as u64).min(self.stream.sent)
    }

    fn last_due_ns(&self) -> u64 {
        self.began_ns + (self.stream.sent.saturating_sub(1) as f64 * self.interval_ns) as u64
    }
}

/// The two parts of a stream whose way was asked to change at these times.
pub fn split(bursts: &[Burst], changes_ns: [u64; 2]) -> [Part; 2] {
    let between = (changes_ns[1] - changes_ns[0]) as f64;
    let parts_at = changes_ns[0] + (between * NEXT_PART_AT) as u64;
    let mut parts = [Part::default(), Part::default()];
    for burst in bursts {
        take(&mut parts, burst, parts_at);
    }
    for (place, part) in parts.iter_mut().enumerate() {
        let (from_ns, to_ns) = match place {
            0 => (0, parts_at),
            _ => (parts_at, u64::MAX),
        };
        let arrivals = bursts.iter().flat_map(|burst| &burst.stream.arrivals);
        let arrivals = arrivals.filter(|a| (from_ns..to_ns).contains(&a.sent_ns));
        tell_times(part, arrivals, changes_ns[place]);
    }
    parts
}

fn take(parts: &mut [Part; 2], burst: &Burst, parts_at: u64) {
    let stream = &burst.stream;
    let first_of_second = burst.number_at(parts_at);
    let place = |number: u64| usize::from(number >= first_of_second);
    let mut seen = BTreeSet::new();
    for arrival in &stream.arrivals {
        if !seen.insert(arrival.number) {
            parts[place(arrival.number)].duplicates += 1;
        }
    }
    for number in 0..stream.sent {
        let part = &mut parts[place(number)];
        part.sent += 1;
        part.lost += u64::from(!seen.contains(&number));
    }
    for Reordered {
        number,
        extent,
        late_ns,
    } in order::judge(&stream.arrivals).reordered
    {
        let part = &mut parts[place(number)];
        part.reordered += 1;
        part.extent_max = part.extent_max.max(extent);
        part.late_ms_max = part.late_ms_max.max(late_ns as f64 / 1e6);
    }
    let times = stream.arrivals.iter().map(|arrival| arrival.received_ns);
    let times: Vec<u64> = times.chain([burst.last_due_ns()]).collect();
    let times = match stream.arrivals.is_empty() {
        true => vec![burst.began_ns, burst.last_due_ns()],
        false => times,
    };
    for pair in times.windows(2) {
        let part = &mut parts[usize::from(pair[0] >= parts_at)];
        let gap_ms = pair[1].saturating_sub(pair[0]) as f64 / 1e6;
        part.outage_ms = part.outage_ms.max(gap_ms);
    }
    let late_ms = stream.sender_late_max.as_secs_f64() * 1e3;
    for part in parts {
        part.sender_late_ms = part.sender_late_ms.max(late_ms);
    }
}

fn tell_times<'a>(part: &mut Part, arrivals: impl Iterator<Item = &'a Arrival>, change_ns: u64) {
    let ms = |ns: u64| (ns as f64 - change_ns as f64) / 1e6;
    let traced = arrivals.map(|arrival| Traced {
        number: arrival.number,
        sent_ms: ms(arrival.sent_ns),
        received_ms: ms(arrival.received_ns),
    });
    let all: Vec<Traced> = traced.collect();
    let last_ms = all.iter().fold(0.0, |last: f64, t| last.max(t.sent_ms));
    let delay = |is_one: &dyn Fn(&Traced) -> bool| {
        let of = all.iter().filter(|t| is_one(t));
        let delays: Vec<f64> = of.map(|t| t.received_ms - t.sent_ms).collect();
        (!delays.is_empty()).then(|| median(&delays))
    };
    part.delay_before_ms = delay(&|t| t.sent_ms < 0.0);
    part.delay_after_ms = delay(&|t| t.sent_ms > last_ms / 2.0);
    let near = -TRACE_BEFORE_MS..TRACE_AFTER_MS;
    part.trace = all
        .into_iter()
        .filter(|t| near.contains(&t.sent_ms))
        .collect();
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: u64 = 1_000_000;
    /// Of the clock, when the stream began.
    const BEGAN: u64 = 5_000 * MS;

    /// A packet a millisecond from `BEGAN` on; those of `numbers` arrive in that order, a
    /// millisecond apart, but never sooner than 2 ms after they were sent.
    fn burst(sent: u64, numbers: &[u64]) -> Burst {
        let arrival = |(place, number): (usize, &u64)| Arrival {
            number: *number,
            sent_ns: BEGAN + number * MS,
            received_ns: BEGAN + (place as u64 + 2).max(number + 2) * MS,
        };
        Burst {
            began_ns: BEGAN,
            interval_ns: MS as f64,
            stream: Stream {
                began_ns: BEGAN,
                sent,
                sender_late_max: Duration::from_millis(1),
                arrivals: numbers.iter().enumerate().map(arrival).collect(),
            },
        }
    }

    /// Changes at 10 and 30 ms: the second part begins at 25.
    fn parts(bursts: &[Burst]) -> [Part; 2] {
        split(bursts, [BEGAN + 10 * MS, BEGAN + 30 * MS])
    }

    #[test]
    fn what_is_sent_before_the_next_change_is_the_first_ones() {
        let mut numbers: Vec<u64> = (0..40).collect();
        // 12 to 14 are lost to the first change; 33 is overtaken by 34, and 24 comes again.
        numbers.retain(|n| !(12..15).contains(n));
        numbers.retain(|n| *n != 33);
        let place = numbers.iter().position(|n| *n == 34).unwrap();
        numbers.insert(place + 1, 33);
        numbers.push(24);
        let [there, back] = parts(&[burst(40, &numbers)]);
        assert_eq!((there.sent, back.sent), (25, 15));
        assert_eq!((there.lost, back.lost), (3, 0));
        assert_eq!((there.reordered, back.reordered), (0, 1));
        assert_eq!((there.duplicates, back.duplicates), (1, 0));
        assert_eq!(back.extent_max, 1);
        assert_eq!(there.outage_ms, 4.0);
        assert_eq!(there.delay_before_ms, Some(2.0));
        assert_eq!(there.trace[0].sent_ms, -10.0);
    }

    #[test]
    fn what_is_lost_at_the_end_is_an_outage_too() {
        let numbers: Vec<u64> = (0..28).collect();
        let [there, back] = parts(&[burst(40, &numbers)]);
        assert_eq!((there.lost, back.lost), (0, 12));
        // The last came at 29 ms, and the last was due at 39.
        assert_eq!(back.outage_ms, 10.0);
        let [there, back] = parts(&[burst(40, &[])]);
        assert_eq!((there.lost, back.lost), (25, 15));
        assert_eq!(there.outage_ms, 39.0);
    }

    #[test]
    fn a_pause_is_no_outage() {
        let mut second = burst(5, &[0, 1, 2, 3, 4]);
        second.began_ns += 30 * MS;
        for arrival in &mut second.stream.arrivals {
            arrival.sent_ns += 30 * MS;
            arrival.received_ns += 30 * MS;
        }
        let [there, back] = parts(&[burst(5, &[0, 1, 2, 3, 4]), second]);
        assert_eq!((there.sent, back.sent), (5, 5));
        assert_eq!((there.outage_ms, back.outage_ms), (1.0, 1.0));
    }

    #[test]
    fn a_stream_has_moved_when_the_link_says_so() {
        let part = |from, to, wanted| Part {
            carried: Carried { from, to },
            wanted,
            ..Part::default()
        };
        assert!(part(3, 400, Some(Way::To)).has_moved());
        assert!(!part(400, 3, Some(Way::To)).has_moved());
        assert!(!part(2, 3, Some(Way::To)).has_moved(), "that is LLDP");
        assert!(part(400, 3, Some(Way::From)).has_moved());
        assert!(part(0, 0, None).has_moved());
    }
}
