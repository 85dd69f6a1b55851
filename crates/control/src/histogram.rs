//! A histogram of durations, with fixed bounds and fixed memory.

use clock::Duration;

/// The bounds in microseconds. Durations longer than the last bound are counted beyond it.
pub const BOUNDS_US: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// The number of durations up to each bound, and the sum of all durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BOUNDS_US.len() + 1],
    sum_ns: u64,
}

impl Histogram {
    pub fn handle(&mut self, duration: Duration) {
        let micros = duration.as_nanos().div_ceil(1000);
        let at = BOUNDS_US.partition_point(|bound| u128::from(*bound) < micros);
        self.counts[at] += 1;
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// The number of durations above the previous bound and up to this one; the last is beyond all.
    pub fn counts(&self) -> &[u64; BOUNDS_US.len() + 1] {
        &self.counts
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_up_to_its_bound() {
        let mut histogram = Histogram::default();
        for (micros, at) in [(0, 0), (100, 0), (101, 1), (1_000, 3), (10_000_000, 15)] {
            let before = histogram.counts()[at];
            histogram.handle(Duration::from_micros(micros));
            assert_eq!(histogram.counts()[at], before + 1, "{micros}");
        }
        histogram.handle(Duration::from_nanos(100_001));
        assert_eq!(histogram.counts()[1], 2);
        histogram.handle(Duration::from_secs(3600));
        assert_eq!(histogram.counts()[16], 1);
        assert_eq!(histogram.count(), 7);
        assert!(histogram.sum() > Duration::from_secs(3610));
    }
}
