//! A token bucket, for what one port or one connection may cost.

use crate::Instant;

/// Allows `rate_per_s` on average and `burst` at once.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    rate_per_s: u32,
    burst: u32,
    /// In 1e-9 tokens, so that refilling loses nothing to rounding.
    tokens_nano: u64,
    filled_at: Instant,
}

impl Budget {
    pub fn new(now: Instant, rate_per_s: u32, burst: u32) -> Budget {
        Budget {
            rate_per_s,
            burst,
            tokens_nano: u64::from(burst) * 1_000_000_000,
            filled_at: now,
        }
    }

    /// Takes one token if there is one.
    pub fn take(&mut self, now: Instant) -> bool {
        self.take_many(now, 1)
    }

    /// Takes `count` tokens if there are as many; where that is more than `burst`, all there can be.
    pub fn take_many(&mut self, now: Instant, count: u32) -> bool {
        let has = self.has(now, count);
        if has {
            self.tokens_nano -= self.cost_nano(count);
        }
        has
    }

    /// Whether [`Budget::take_many`] would.
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
