//! Arrival times of messages: even, random, or in bursts. Integer arithmetic throughout, so that a
//! seed gives the same instants on any machine.

use clock::{Duration, Instant, SplitMix64};

/// How the messages of a source are spread over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// At equal intervals, from a random start.
    Even,
    /// Independent of each other: a Poisson process.
    Poisson,
    /// Poisson during a burst, nothing between bursts; the lengths of both are exponential with
    /// these means. The mean rate is the source's.
    Bursts { on: Duration, off: Duration },
}

/// Fractions of a nanosecond, so that many small gaps add up to the right rate.
const FRACTION_BITS: u32 = 16;

/// The instants of one source.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    arrivals: Arrivals,
    random: SplitMix64,
    /// Mean gap while the source sends, with fraction.
    gap: u64,
    /// The last arrival, with fraction.
    at: u64,
    /// When the burst ends, with fraction.
    burst_end: u64,
}

impl Source {
    /// Returns `None` for a source that never sends.
    pub fn new(arrivals: Arrivals, per_second: f64, seed: u64) -> Option<Source> {
        if per_second <= 0.0 {
            return None;
        }
        let share = match arrivals {
            Arrivals::Bursts { on, off } => on.as_secs_f64() / (on + off).as_secs_f64(),
            _ => 1.0,
        };
        let second = 1e9 * f64::from(1u32 << FRACTION_BITS);
        let mut source = Source {
            arrivals,
            random: SplitMix64::new(seed),
            gap: (second * share / per_second) as u64,
            at: 0,
            burst_end: 0,
        };
        if arrivals == Arrivals::Even {
            // The first gap ends anywhere within one gap of the start.
            source.at = scale(source.gap, source.random.next());
            source.at = source.at.wrapping_sub(source.gap);
        }
        Some(source)
    }

    pub fn next(&mut self) -> Instant {
        self.at = match self.arrivals {
            Arrivals::Even => self.at.wrapping_add(self.gap),
            Arrivals::Poisson => self.at + self.exponential(self.gap),
            Arrivals::Bursts { on, off } => self.next_of_burst(fraction(on), fraction(off)),
        };
        Instant(self.at >> FRACTION_BITS)
    }

    /// Returns the next arrival. A gap cut off by the end of a burst is drawn again in the next
    /// burst: the exponential distribution has no memory.
    fn next_of_burst(&mut self, on: u64, off: u64) -> u64 {
        let mut at = self.at;
        loop {
            let next = at + self.exponential(self.gap);
            if next < self.burst_end {
                return next;
            }
            at = self.burst_end + self.exponential(off);
            self.burst_end = at + self.exponential(on);
        }
    }

    /// An exponential draw, by von Neumann's comparison of uniform draws: exact, and without a
    /// logarithm, which differs between machines. A run of falling draws of odd length ends it.
    fn exponential(&mut self, mean: u64) -> u64 {
        let mut whole = 0;
        loop {
            let first = self.random.next();
            let (mut last, mut is_odd) = (first, true);
            loop {
                let draw = self.random.next();
                if draw >= last {
                    break;
                }
                (last, is_odd) = (draw, !is_odd);
            }
            if is_odd {
                return whole + scale(mean, first);
            }
            whole += mean;
        }
    }
}

fn fraction(duration: Duration) -> u64 {
    (duration.as_nanos() as u64) << FRACTION_BITS
}

/// `value` times `share` of 2^64.
fn scale(value: u64, share: u64) -> u64 {
    ((u128::from(value) * u128::from(share)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER_SECOND: f64 = 50_000.0;
    const COUNT: usize = 200_000;

    fn gaps(arrivals: Arrivals, seed: u64) -> Vec<f64> {
        let mut source = Source::new(arrivals, PER_SECOND, seed).unwrap();
        let mut last = source.next();
        let gap = |_| {
            let (next, before) = (source.next(), last);
            last = next;
            assert!(next >= before);
            next.since(before).as_secs_f64() * PER_SECOND
        };
        (0..COUNT).map(gap).collect()
    }

    fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let square = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
        (mean, (square / values.len() as f64).sqrt())
    }

    /// Mean and deviation of an exponential gap are equal; one in e is above the mean, one in e²
    /// above twice. The tolerance is five deviations of each estimate.
    #[test]
    fn poisson_gaps_are_exponential() {
        let gaps = gaps(Arrivals::Poisson, 1);
        let (mean, deviation) = mean_and_deviation(&gaps);
        assert!((mean - 1.0).abs() < 0.012, "{mean}");
        assert!((deviation - 1.0).abs() < 0.02, "{deviation}");
        for n in [1.0, 2.0, 3.0] {
            let above = gaps.iter().filter(|gap| **gap > n).count() as f64 / COUNT as f64;
            assert!((above - f64::exp(-n)).abs() < 0.006, "{above} above {n}");
        }
    }

    #[test]
    fn even_arrivals_are_even_and_bursts_have_the_mean_of_their_source() {
        let even = gaps(Arrivals::Even, 2);
        assert!(even.iter().all(|gap| (gap - 1.0).abs() < 1e-4));
        let (on, off) = (Duration::from_millis(1), Duration::from_millis(1));
        let (mean, deviation) = mean_and_deviation(&gaps(Arrivals::Bursts { on, off }, 3));
        // 2,000 bursts of a deviation as long as they are: 1/sqrt(1000) is 3 %.
        assert!((mean - 1.0).abs() < 0.1, "{mean}");
        assert!(deviation > 5.0, "{deviation}: no bursts");
    }

    #[test]
    fn the_seed_decides_and_no_rate_is_no_source() {
        let first = |seed| Source::new(Arrivals::Poisson, 1e3, seed).map(|mut s| s.next());
        assert_eq!(first(7), first(7));
        assert_ne!(first(7), first(8));
        assert!(Source::new(Arrivals::Poisson, 0.0, 1).is_none());
    }
}
