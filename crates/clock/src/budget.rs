//! A token bucket: bounds the work that one port or one connection may cause.

use crate::Instant;

/// A token bucket: allows `rate_per_s` on average and `burst` at once.
///
/// ```
/// use clock::{Budget, Duration, Instant};
///
/// let mut budget = Budget::new(Instant::START, 1000, 1);
/// assert!(budget.take(Instant::START));
/// assert!(!budget.take(Instant::START));
/// assert!(budget.take(Instant::START + Duration::from_millis(1)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    rate_per_s: u32,
    burst: u32,
    /// Count in 1e-9 tokens, so that refilling loses nothing to rounding.
    tokens_nano: u64,
    filled_at: Instant,
}

impl Budget {
    /// Makes a full bucket. It refills with `rate_per_s` tokens each second, up to `burst`.
    pub fn new(now: Instant, rate_per_s: u32, burst: u32) -> Budget {
        Budget {
            rate_per_s,
            burst,
            tokens_nano: u64::from(burst) * 1_000_000_000,
            filled_at: now,
        }
    }

    /// Takes one token. Returns `false` if there is none.
    pub fn take(&mut self, now: Instant) -> bool {
        self.take_many(now, 1)
    }

    /// Takes `count` tokens. If there are fewer, takes none and returns `false`. A `count` above
    /// `burst` takes a full bucket.
    pub fn take_many(&mut self, now: Instant, count: u32) -> bool {
        let has = self.has(now, count);
        if has {
            self.tokens_nano -= self.cost_nano(count);
        }
        has
    }

    /// Reports whether [`Budget::take_many`] would take `count` tokens.
    pub fn has(&mut self, now: Instant, count: u32) -> bool {
        let elapsed_ns = now.since(self.filled_at).as_nanos() as u64;
        self.filled_at = self.filled_at.max(now);
        let gained = elapsed_ns.saturating_mul(u64::from(self.rate_per_s));
        let full = u64::from(self.burst) * 1_000_000_000;
        self.tokens_nano = self.tokens_nano.saturating_add(gained).min(full);
        self.tokens_nano >= self.cost_nano(count)
    }

    fn cost_nano(&self, count: u32) -> u64 {
        u64::from(count.min(self.burst.max(1))) * 1_000_000_000
    }
}
