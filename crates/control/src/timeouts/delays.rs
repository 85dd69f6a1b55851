//! Delays until an entry exists: the last measured ones.

use std::collections::VecDeque;

use clock::{Duration, Instant};

use clock::Budget;

use crate::histogram::Histogram;

/// Maximum number of measurements kept.
const KEPT: usize = 1024;

/// Measurements begun per second: each costs a barrier.
const PER_S: u32 = 10;

#[derive(Debug)]
pub struct Delays {
    last: VecDeque<Duration>,
    all: Histogram,
    budget: Budget,
}

impl Delays {
    pub fn new(now: Instant) -> Delays {
        Delays {
            last: VecDeque::new(),
            all: Histogram::default(),
            budget: Budget::new(now, PER_S, PER_S),
        }
    }

    /// Whether one more delay may be measured now.
    pub fn takes(&mut self, now: Instant) -> bool {
        self.budget.take(now)
    }

    pub fn handle(&mut self, delay: Duration) {
        self.all.handle(delay);
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(delay);
    }

    /// All delays measured since the start.
    pub fn all(&self) -> Histogram {
        self.all
    }

    /// The number of measurements kept.
    pub fn count(&self) -> usize {
        self.last.len()
    }

    /// The smallest delay that this share of the kept delays does not exceed.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let mut sorted: Vec<Duration> = self.last.iter().copied().collect();
        sorted.sort_unstable();
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_thousand_are_kept_and_ranked() {
        let mut delays = Delays::new(Instant::START);
        assert_eq!(delays.quantile(0.5), None);
        for ms in (0..KEPT as u64).map(|n| n * 7 % KEPT as u64) {
            delays.handle(Duration::from_millis(ms + 1));
        }
        assert_eq!(delays.quantile(0.5), Some(Duration::from_millis(512)));
        assert_eq!(delays.quantile(0.99), Some(Duration::from_millis(1014)));
        (0..KEPT).for_each(|_| delays.handle(Duration::ZERO));
        assert_eq!(
            (delays.count(), delays.quantile(1.0)),
            (KEPT, Some(Duration::ZERO))
        );
    }

    #[test]
    fn few_are_measured() {
        let mut delays = Delays::new(Instant::START);
        let taken = (0..1000).filter(|ms| delays.takes(Instant(ms * 1_000_000)));
        assert!(taken.count() <= 2 * PER_S as usize);
    }
}
