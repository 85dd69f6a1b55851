//! The arrivals of a stream, by the time at which its datagrams were sent.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::qos::circuit::settings::FRAME_HEADERS_BYTES;
use bench::network::order::Arrival;
use bench::network::udp::{Pace, Stream};

pub struct Course {
    /// When number 0 was due.
    base_ns: f64,
    interval_ns: f64,
    frame_bits: f64,
    sent: u64,
    pub sender_late_ms: f64,
    /// In the order in which they came.
    arrivals: Vec<Arrival>,
    /// Numbers that came.
    came: BTreeSet<u64>,
}

/// Datagrams that were due within a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Window {
    pub sent: u64,
    pub lost: u64,
    /// The rate of the arrivals, as Ethernet frames.
    pub rate_mbps: f64,
}

/// A time without an arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pause {
    pub from_ns: u64,
    pub to_ns: u64,
}

/// A tenth of a second, or whatever is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// The time of its beginning, from the origin.
    pub at_s: f64,
    /// The rate of the arrivals in it.
    pub rate_mbps: f64,
    /// The loss among the datagrams due in it.
    pub loss_percent: f64,
}

impl Course {
    /// `began_ns` is when sending was asked for.
    pub fn of(stream: Stream, pace: &Pace, began_ns: u64) -> Course {
        let interval_ns = pace.interval().as_secs_f64() * 1e9;
        let starts = stream.arrivals.iter();
        let starts = starts.map(|a| a.sent_ns as f64 - a.number as f64 * interval_ns);
        let first = starts.fold(f64::INFINITY, f64::min);
        Course {
            base_ns: if first.is_finite() {
                first
            } else {
                began_ns as f64
            },
            interval_ns,
            frame_bits: (pace.datagram_bytes + FRAME_HEADERS_BYTES) as f64 * 8.0,
            sent: stream.sent,
            sender_late_ms: stream.sender_late_max.as_secs_f64() * 1e3,
            came: stream.arrivals.iter().map(|a| a.number).collect(),
            arrivals: stream.arrivals,
        }
    }

    pub fn window(&self, from_ns: u64, to_ns: u64) -> Window {
        let number = |ns: u64| {
            let number = ((ns as f64 - self.base_ns) / self.interval_ns)
                .ceil()
                .max(0.0);
            (number as u64).min(self.sent)
        };
        let (from, to) = (number(from_ns), number(to_ns.max(from_ns)));
        let came = self.came.range(from..to).count() as u64;
        let seconds = to_ns.saturating_sub(from_ns) as f64 / 1e9;
        Window {
            sent: to - from,
            lost: to - from - came,
            rate_mbps: came as f64 * self.frame_bits / seconds.max(1e-9) / 1e6,
        }
    }

    /// The pause that ends with the first datagram that came of those sent at `sent_ns` or later;
    /// `None` if none came.
    pub fn pause(&self, sent_ns: u64) -> Option<Pause> {
        let later = self.arrivals.iter().position(|a| a.sent_ns >= sent_ns)?;
        let before = later.checked_sub(1).map(|n| self.arrivals[n].received_ns);
        Some(Pause {
            from_ns: before.unwrap_or(self.base_ns as u64),
            to_ns: self.arrivals[later].received_ns,
        })
    }

    /// All of it, in pieces of this length.
    pub fn bins(&self, origin_ns: u64, bin_ns: u64) -> Vec<Bin> {
        let end_ns = self.base_ns + self.sent as f64 * self.interval_ns;
        let before = (origin_ns as f64 - self.base_ns).max(0.0) / bin_ns as f64;
        let first_ns = origin_ns - before.floor() as u64 * bin_ns;
        let count = ((end_ns - first_ns as f64).max(0.0) / bin_ns as f64) as u64;
        let mut arrived = vec![0u64; count as usize];
        for arrival in &self.arrivals {
            let at = arrival.received_ns.checked_sub(first_ns);
            let bin = at.map(|ns| (ns / bin_ns) as usize);
            if let Some(bin) = bin.and_then(|bin| arrived.get_mut(bin)) {
                *bin += 1;
            }
        }
        let bin = |(number, count): (u64, u64)| {
            let from_ns = first_ns + number * bin_ns;
            let window = self.window(from_ns, from_ns + bin_ns);
            Bin {
                at_s: (from_ns as f64 - origin_ns as f64) / 1e9,
                rate_mbps: count as f64 * self.frame_bits / (bin_ns as f64 / 1e9) / 1e6,
                loss_percent: window.loss_percent(),
            }
        };
        (0..).zip(arrived).map(bin).collect()
    }
}

impl Window {
    pub fn loss_percent(&self) -> f64 {
        100.0 * self.lost as f64 / self.sent.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: u64 = 1_000_000;
    const BEGAN: u64 = 5_000 * MS;

    /// A datagram each millisecond for a second, half a millisecond on its way. Those of 400 to 459
    /// are lost, and every tenth after 700.
    fn course() -> Course {
        let is_lost = |n: u64| (400..460).contains(&n) || n >= 700 && n.is_multiple_of(10);
        let arrivals = (0..1000).filter(|n| !is_lost(*n)).map(|number| Arrival {
            number,
            sent_ns: BEGAN + number * MS,
            received_ns: BEGAN + number * MS + MS / 2,
        });
        let stream = Stream {
            began_ns: 0,
            sent: 1000,
            sender_late_max: Duration::ZERO,
            arrivals: arrivals.collect(),
        };
        let pace = Pace {
            rate_mbps: 8.0,
            datagram_bytes: 1000,
            duration: Duration::from_secs(1),
        };
        Course::of(stream, &pace, BEGAN)
    }

    #[test]
    fn what_was_due_in_a_window_came_or_is_lost() {
        let course = course();
        let of = |from: u64, to: u64| course.window(BEGAN + from * MS, BEGAN + to * MS);
        assert_eq!((of(0, 400).sent, of(0, 400).lost), (400, 0));
        assert!((of(0, 400).rate_mbps - 8.336).abs() < 1e-6);
        assert_eq!((of(350, 450).sent, of(350, 450).lost), (100, 50));
        assert_eq!(of(800, 900).loss_percent(), 10.0);
        // What was never sent is not lost.
        assert_eq!((of(990, 2000).sent, of(990, 2000).lost), (10, 1));
        assert_eq!(of(5000, 6000), Window::default());
    }

    #[test]
    fn a_pause_ends_with_what_was_sent_after_the_failure() {
        let course = course();
        // It failed at 405, and what was sent just before never came.
        let pause = course.pause(BEGAN + 405 * MS).unwrap();
        assert_eq!(pause.from_ns, BEGAN + 399 * MS + MS / 2);
        assert_eq!(pause.to_ns, BEGAN + 460 * MS + MS / 2);
        // A longer pause somewhere else is another matter.
        let later = course.pause(BEGAN + 500 * MS).unwrap();
        assert_eq!(later.to_ns - later.from_ns, MS);
        assert_eq!(course.pause(BEGAN + 2000 * MS), None);
    }

    #[test]
    fn pieces_are_counted_from_the_failure() {
        let bins = course().bins(BEGAN + 400 * MS, 100 * MS);
        let at: Vec<f64> = bins.iter().map(|bin| bin.at_s).collect();
        assert_eq!(at, [-0.4, -0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5]);
        assert_eq!((bins[0].loss_percent, bins[4].loss_percent), (0.0, 60.0));
        assert!((bins[4].rate_mbps - 3.3344).abs() < 0.1, "{bins:?}");
    }
}
