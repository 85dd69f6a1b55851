//! The pace of applications: a request over it waits for its turn, and is refused if the wait would
//! be too long.
//!
//! The delay slows a program that sends as fast as it gets answers. A delayed request is read only
//! once; a refused request is sent and read again and again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use axum::http::StatusCode;
use clock::{Duration, Instant};

use super::problem::Problem;
use crate::exposition::{Family, Value};

/// A request that would wait longer is refused.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Turns at a rate, in the order of asking (the generic cell rate algorithm of ITU-T I.371).
#[derive(Clone, Copy, Debug)]
struct Turns {
    rate_per_s: u32,
    /// The count that passes at once after a rest.
    burst: u32,
    /// The time at which all that was granted is paid for.
    paid_at: Instant,
}

/// A request would have to wait for longer than [`WAIT_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TooMany;

impl Turns {
    fn new(rate_per_s: u32, burst: u32) -> Turns {
        Turns {
            rate_per_s: rate_per_s.max(1),
            burst,
            paid_at: Instant::START,
        }
    }

    /// Returns the time until the turn of `count`. A request above the burst waits for a whole
    /// burst, and the next request waits for the rest.
    fn take(&mut self, now: Instant, count: usize) -> Result<Duration, TooMany> {
        let cost = |count: u64| {
            let nanos = count.saturating_mul(1_000_000_000) / u64::from(self.rate_per_s);
            Duration::from_nanos(nanos)
        };
        let burst = u64::from(self.burst);
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let begins_at = self.paid_at.max(now);
        let wanted_at = begins_at + cost(count.min(burst));
        let wait = wanted_at.since(now + cost(burst));
        // A request that is paid for after that would keep all others waiting.
        let is_huge = cost(count.saturating_sub(burst)) > WAIT_MAX;
        if wait > WAIT_MAX || is_huge {
            return Err(TooMany);
        }
        self.paid_at = begins_at + cost(count);
        Ok(wait)
    }
}

/// Requests at one pace, of all applications together.
#[derive(Debug)]
pub struct Pace {
    /// The name of the requests in refusals.
    what: &'static str,
    turns: Mutex<Turns>,
    rate_per_s: u32,
    delayed: AtomicU64,
    refused: AtomicU64,
}

impl Pace {
    fn new(what: &'static str, rate_per_s: u32, burst: u32) -> Pace {
        Pace {
            what,
            turns: Mutex::new(Turns::new(rate_per_s, burst)),
            rate_per_s,
            delayed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Waits for the turn of `count`.
    ///
    /// # Errors
    /// 429, if that would take longer than a second.
    pub async fn take(&self, now: Instant, count: usize) -> Result<(), Problem> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.take(now, count)
        };
        match turn {
            Ok(Duration::ZERO) => Ok(()),
            Ok(wait) => {
                self.delayed.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(wait).await;
                Ok(())
            }
            Err(TooMany) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                let detail = format!(
                    "applications have {} {} a second together, and more are waiting than go in \
                     a second; nothing was done",
                    self.rate_per_s, self.what
                );
                Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail))
            }
        }
    }
}

/// The paces of applications' requests.
#[derive(Debug)]
pub struct Paces {
    /// Packets out of ports.
    pub packets: Pace,
    /// Taps set and removed.
    pub taps: Pace,
}

impl Paces {
    /// With `is_forwarding` applications are guests beside auster's own work; without it all
    /// forwarding is theirs.
    pub fn new(is_forwarding: bool) -> Paces {
        let packets_per_s = if is_forwarding { 10_000 } else { 50_000 };
        Paces {
            packets: Pace::new("packets", packets_per_s, 2_048),
            taps: Pace::new("changes of taps", 100, 256),
        }
    }

    pub fn families(&self) -> Vec<Family> {
        let family = |name, help, of: &dyn Fn(&Pace) -> &AtomicU64| {
            let sample = |what, pace| {
                let count = of(pace).load(Ordering::Relaxed);
                (vec![("what", String::from(what))], Value::Count(count))
            };
            Family {
                name,
                help,
                samples: vec![sample("packets", &self.packets), sample("taps", &self.taps)],
            }
        };
        vec![
            family(
                "auster_application_requests_delayed",
                "Requests of applications that waited for their turn",
                &|pace| &pace.delayed,
            ),
            family(
                "auster_application_requests_refused",
                "Requests of applications that would have waited for longer than a second",
                &|pace| &pace.refused,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use clock::SplitMix64;

    use super::*;

    /// In no span of time does more pass than the rate and the burst allow. No request waits longer
    /// than the bound, and none overtakes another.
    #[test]
    fn no_span_of_time_has_more_than_the_rate_and_a_burst() {
        for seed in 0..200 {
            let mut random = SplitMix64::new(seed);
            let rate = 1 + random.next() % 10_000;
            let burst = 1 + random.next() % 512;
            let mut turns = Turns::new(rate as u32, burst as u32);
            let mut now = Instant::START;
            let mut gone: Vec<(Instant, u64)> = Vec::new();
            for _ in 0..200 {
                now += Duration::from_micros(random.next() % 20_000);
                let count = 1 + random.next() % burst;
                if let Ok(wait) = turns.take(now, count as usize) {
                    assert!(wait <= WAIT_MAX);
                    assert!(gone.last().is_none_or(|(last, _)| *last <= now + wait));
                    gone.push((now + wait, count));
                }
            }
            for (first, (from, _)) in gone.iter().enumerate() {
                let mut sum = 0;
                for (to, count) in &gone[first..] {
                    sum += count;
                    let span = to.since(*from).as_nanos() as u64;
                    // One for each rounding down to a nanosecond.
                    let most = burst + (span + 200) * rate / 1_000_000_000 + 1;
                    assert!(
                        sum <= most,
                        "seed {seed}: {sum} in {span} ns at {rate}, {burst}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_is_within_the_rate_never_waits_and_a_flood_gets_the_rate() {
        let mut turns = Turns::new(1_000, 10);
        let mut now = Instant::START;
        for _ in 0..5_000 {
            assert_eq!(turns.take(now, 5), Ok(Duration::ZERO));
            now += Duration::from_millis(5);
        }
        let begun = now;
        let mut sent = 0;
        while now.since(begun) < Duration::from_secs(10) {
            now += turns.take(now, 10).expect("one at a time is never refused");
            sent += 10;
        }
        assert!((10_000..=10_020).contains(&sent), "{sent}");
    }

    #[test]
    fn who_would_wait_too_long_is_refused_and_costs_nothing() {
        let mut turns = Turns::new(100, 50);
        let now = Instant::START;
        assert_eq!(turns.take(now, 151), Err(TooMany));
        // A request above the burst passes, and the next ones wait for it.
        assert_eq!(turns.take(now, 150), Ok(Duration::ZERO));
        assert_eq!(turns.take(now, 1), Err(TooMany));
        let later = now + Duration::from_millis(500);
        assert_eq!(turns.take(later, 1), Ok(Duration::from_millis(510)));
    }
}
