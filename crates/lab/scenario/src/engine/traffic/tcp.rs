//! `kind = "tcp"`: transfers between two hosts, one after the other, by the kernels' own TCP.

use std::time::Duration;

use testbed::traffic::tcp::{Amount, connection};

use super::{Carried, Record, Stage, Traffic};
use crate::engine::expression::{MANY, ONE, Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;
use crate::report::milliseconds;

#[derive(Clone, Debug)]
pub struct Tcp {
    amount: Amount,
    /// From the beginning of a transfer until the next one may begin.
    interval: Duration,
    /// The number of transfers; if not given, as many as time allows.
    count: Option<u64>,
}

pub const FIGURES: [(&str, Shape); 5] = [
    // Transfers that began in the window and were completed, and those that never were.
    ("transfers", ONE),
    ("failed", ONE),
    // For each completed transfer: from its connection request until the receiver had everything.
    ("transfer_ms", MANY),
    ("goodput_mbps", ONE),
    // The longest time in which a transfer under way carried nothing.
    ("stall_ms", ONE),
];

const BYTES_MAX: u64 = 10_000_000_000;
const COUNT_MAX: u64 = 10_000;
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// The last transfer may take this long beyond the end of the traffic.
const LAST_TRANSFER_MAX: Duration = Duration::from_secs(10);
/// Rest after a transfer that failed.
const REST: Duration = Duration::from_millis(10);
/// Arrivals within this time are kept as one.
const BIN: Duration = Duration::from_millis(1);

impl Tcp {
    pub fn read(section: &Section<'_>) -> Option<Tcp> {
        let amount = match section.has("bytes") {
            true => section.count("bytes", 1..=BYTES_MAX).map(Amount::Bytes),
            false => Some(Amount::Endless),
        };
        let interval = section.duration("interval", Duration::ZERO..=INTERVAL_MAX);
        let count = section.count("count", 1..=COUNT_MAX);
        for key in ["interval", "count"] {
            if section.has(key) && amount == Some(Amount::Endless) {
                section.problem(key, "only transfers with bytes are repeated");
            }
        }
        Some(Tcp {
            amount: amount?,
            interval: interval.unwrap_or_default(),
            count,
        })
    }
}

impl Traffic for Tcp {
    /// Most of its packets are as many as the network allows.
    fn packets_per_s(&self, _: usize) -> (f64, &'static str) {
        (0.0, "bytes")
    }

    fn has_own_end(&self) -> bool {
        self.count.is_some()
    }

    fn ends_on_demand(&self) -> bool {
        true
    }

    fn carry(&self, stage: &Stage<'_>) -> Carried {
        let epoch = stage.epoch;
        let mut log = Log {
            until: stage.until,
            transfers: Vec::new(),
            arrivals: Vec::new(),
        };
        let last = match self.amount {
            Amount::Endless => Duration::ZERO,
            Amount::Bytes(_) => LAST_TRANSFER_MAX,
        };
        let left = || match stage.end {
            Some(_) if self.amount == Amount::Endless && stage.is_over() => Duration::ZERO,
            Some(_) => Duration::MAX,
            None => (stage.until + last).saturating_sub(epoch.elapsed()),
        };
        let mut due = stage.from;
        loop {
            std::thread::sleep(due.saturating_sub(epoch.elapsed()));
            let begun = epoch.elapsed();
            let is_last = |count| log.transfers.len() as u64 == count;
            if stage.is_over() || self.count.is_some_and(is_last) {
                if stage.end.is_some() {
                    log.until = begun;
                }
                return Ok(Box::new(log));
            }
            let arrivals = &mut log.arrivals;
            let arrived = |bytes| note(arrivals, epoch.elapsed(), bytes as u64);
            let result = connection(&stage.ends[0], self.amount, &left, arrived);
            let ended = epoch.elapsed();
            due = (begun + self.interval).max(ended);
            if let Err(e) = &result {
                tracing::debug!("transfer to {}: {e}", stage.ends[0].to);
                due += REST;
            }
            log.transfers.push(Transfer {
                begun,
                ended,
                took: result.ok(),
            });
        }
    }
}

/// Transfers and arrivals by the run's clock.
#[derive(Debug)]
struct Log {
    until: Duration,
    transfers: Vec<Transfer>,
    /// The bytes that the receiver took, in order.
    arrivals: Vec<(Duration, u64)>,
}

#[derive(Debug)]
struct Transfer {
    begun: Duration,
    ended: Duration,
    took: Option<Duration>,
}

fn note(arrivals: &mut Vec<(Duration, u64)>, now: Duration, bytes: u64) {
    match arrivals.last_mut() {
        Some((at, sum)) if now < *at + BIN => *sum += bytes,
        _ => arrivals.push((now, bytes)),
    }
}

impl Record for Log {
    fn figure(&self, name: &str, window: &Window) -> Value {
        let begun = self.transfers.iter().filter(|t| window.has(t.begun));
        match name {
            "transfers" => Value::One(begun.filter(|t| t.took.is_some()).count() as f64),
            "failed" => Value::One(begun.filter(|t| t.took.is_none()).count() as f64),
            "transfer_ms" => Value::Many(begun.filter_map(|t| t.took).map(milliseconds).collect()),
            "goodput_mbps" => Value::One(self.goodput_mbps(window)),
            _ => Value::One(self.stall_ms(window)),
        }
    }
}

impl Log {
    fn goodput_mbps(&self, window: &Window) -> f64 {
        let to = window.to.min(self.until);
        let is_within = |at: Duration| (window.from..to).contains(&at);
        let arrivals = self.arrivals.iter().filter(|(at, _)| is_within(*at));
        let bytes: u64 = arrivals.map(|(_, bytes)| bytes).sum();
        bytes as f64 * 8.0 / to.saturating_sub(window.from).as_secs_f64() / 1e6
    }

    fn stall_ms(&self, window: &Window) -> f64 {
        let to = window.to.min(self.until);
        let stall = |transfer: &Transfer| {
            let (from, to) = (transfer.begun.max(window.from), transfer.ended.min(to));
            let arrivals = self.arrivals.iter().map(|(at, _)| *at);
            let mut edges = vec![from];
            edges.extend(arrivals.filter(|at| (from..to).contains(at)));
            edges.push(to);
            let gaps = edges.windows(2).map(|edge| edge[1].saturating_sub(edge[0]));
            gaps.max().unwrap_or_default()
        };
        milliseconds(self.transfers.iter().map(stall).max().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn window(from_ms: u64, to_ms: u64) -> Window {
        Window {
            event: MS(from_ms),
            from: MS(from_ms),
            to: MS(to_ms),
        }
    }

    fn transfer(begun_ms: u64, ended_ms: u64, is_complete: bool) -> Transfer {
        Transfer {
            begun: MS(begun_ms),
            ended: MS(ended_ms),
            took: is_complete.then_some(MS(ended_ms - begun_ms)),
        }
    }

    /// Three transfers of 1 MB each; nothing of the second one arrives from 300 to 850 ms, and the
    /// third one fails.
    fn log() -> Log {
        Log {
            until: MS(2000),
            transfers: vec![
                transfer(0, 200, true),
                transfer(200, 1000, true),
                transfer(1000, 2000, false),
            ],
            arrivals: vec![
                (MS(100), 500_000),
                (MS(200), 500_000),
                (MS(300), 500_000),
                (MS(850), 500_000),
                (MS(1200), 250_000),
                (MS(1900), 250_000),
            ],
        }
    }

    #[test]
    fn transfers_belong_to_the_window_in_which_they_began() {
        let (log, all) = (log(), window(0, 2000));
        let one = |name: &str, window: &Window| match log.figure(name, window) {
            Value::One(one) => one,
            Value::Many(_) => panic!("{name} is one number"),
        };
        assert_eq!(one("transfers", &all), 2.0);
        assert_eq!(one("failed", &all), 1.0);
        assert_eq!(one("transfers", &window(150, 900)), 1.0);
        let took = log.figure("transfer_ms", &all);
        assert_eq!(took, Value::Many(vec![200.0, 800.0]));
        assert_eq!(one("goodput_mbps", &all), 10.0, "2.5 MB in 2 s");
        assert_eq!(
            one("goodput_mbps", &window(1000, 9000)),
            4.0,
            "until the end"
        );
        assert_eq!(one("stall_ms", &all), 700.0, "of the third");
        assert_eq!(one("stall_ms", &window(0, 1000)), 550.0);
        assert_eq!(one("stall_ms", &window(400, 600)), 200.0, "of the window");
    }

    #[test]
    fn arrivals_close_to_each_other_are_kept_as_one() {
        let mut arrivals = Vec::new();
        for us in [0, 400, 900, 1000, 1999, 2500] {
            note(&mut arrivals, Duration::from_micros(us), 10);
        }
        let us = Duration::from_micros;
        assert_eq!(arrivals, [(us(0), 30), (us(1000), 20), (us(2500), 10)]);
    }
}
