//! Turns at a bounded rate, in bursts.

use clock::{Duration, Instant};

/// Hands out turns: `burst` of them at once, and the next `burst` an interval later. The turns of a
/// burst have the same time, so that one deadline serves all of them.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    burst: u32,
    interval: Duration,
    /// The time of the burst under way, and the number of its turns that are left.
    comes: Instant,
    left: u32,
}

impl Pace {
    pub(super) const fn new(burst: u32, interval: Duration) -> Pace {
        Pace {
            burst,
            interval,
            comes: Instant::START,
            left: burst,
        }
    }

    /// Takes the next turn. Returns its time: not before `now`.
    pub(super) fn turn(&mut self, now: Instant) -> Instant {
        if now >= self.comes + self.interval {
            (self.comes, self.left) = (now, self.burst);
        } else if self.left == 0 {
            (self.comes, self.left) = (self.comes + self.interval, self.burst);
        }
        self.left -= 1;
        self.comes.max(now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whenever turns are taken, fewer than two bursts and a turn come within an interval, they
        /// come in their order, and none comes later than an interval after the one before.
        #[test]
        fn turns_come_at_the_rate(
            burst in 1u32..5,
            waits in prop::collection::vec(0u64..30, 1..200),
        ) {
            let interval = Duration::from_millis(10);
            let mut pace = Pace::new(burst, interval);
            let mut now = Instant::START;
            let mut turns: Vec<Instant> = Vec::new();
            for wait in waits {
                now += Duration::from_millis(wait);
                let before = turns.last().copied().unwrap_or(now);
                let turn = pace.turn(now);
                prop_assert!(turn >= now && turn >= before);
                let since = |t: &&Instant| turn.since(**t) < interval;
                let recent = turns.iter().filter(since).count();
                prop_assert!(recent < 2 * burst as usize);
                prop_assert!(turn.since(now.max(before)) <= interval);
                turns.push(turn);
            }
            let length = turns.last().copied().unwrap_or(now).since(turns[0]);
            let bursts = (turns.len() as u64).div_ceil(u64::from(burst));
            prop_assert!(length >= Duration::from_millis(10 * (bursts.saturating_sub(2))));
        }
    }
}
