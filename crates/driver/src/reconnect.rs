//! When to dial again: 100 ms after the first failure, doubled up to 5 s, give or take a fifth so
//! that a thousand switches do not reconnect at the same instant. After a connection that lived for
//! 10 s, the wait starts over at 100 ms. Pure: the seed and the time are arguments.

use clock::{Duration, Instant, SplitMix64};

pub const BACKOFF_MIN: Duration = Duration::from_millis(100);
pub const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A connection that lived this long resets the wait.
pub const ALIVE_MIN: Duration = Duration::from_secs(10);
/// The greatest random change of the wait, up or down, as a percentage.
const JITTER_PERCENT: u64 = 20;

#[derive(Clone, Debug)]
pub struct Reconnect {
    backoff: Duration,
    connected_at: Option<Instant>,
    random: SplitMix64,
}

impl Reconnect {
    pub fn new(seed: u64) -> Reconnect {
        Reconnect {
            backoff: BACKOFF_MIN,
            connected_at: None,
            random: SplitMix64::new(seed),
        }
    }

    pub fn handle_connected(&mut self, now: Instant) {
        self.connected_at = Some(now);
    }

    /// Handles a failed attempt or an ended connection. Returns when to dial again.
    pub fn handle_disconnected(&mut self, now: Instant) -> Instant {
        let lived = self.connected_at.take().map(|at| now.since(at));
        if lived.is_some_and(|lived| lived >= ALIVE_MIN) {
            self.backoff = BACKOFF_MIN;
        }
        let wait = self.jittered();
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
        now + wait
    }

    fn jittered(&mut self) -> Duration {
        let percent = 100 - JITTER_PERCENT + self.random.next() % (2 * JITTER_PERCENT + 1);
        self.backoff * u32::try_from(percent).expect("at most 120") / 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(reconnect: &mut Reconnect, count: usize) -> Vec<u64> {
        let now = Instant::START;
        (0..count)
            .map(|_| (reconnect.handle_disconnected(now) - now).as_millis() as u64)
            .collect()
    }

    #[test]
    fn waits_double_to_five_seconds_within_a_fifth() {
        for seed in 0..200 {
            let expected = [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000];
            let waits = waits(&mut Reconnect::new(seed), expected.len());
            for (wait, expected) in waits.iter().zip(expected) {
                let allowed = expected * 8 / 10..=expected * 12 / 10;
                assert!(allowed.contains(wait), "seed {seed}: {waits:?}");
            }
        }
    }

    #[test]
    fn peers_do_not_come_back_together() {
        let firsts: std::collections::BTreeSet<u64> = (0..100)
            .map(|seed| waits(&mut Reconnect::new(seed), 1)[0])
            .collect();
        assert!(firsts.len() > 20, "{} different waits", firsts.len());
    }

    #[test]
    fn only_a_connection_that_lived_ten_seconds_resets_the_wait() {
        let mut reconnect = Reconnect::new(1);
        waits(&mut reconnect, 5);
        let now = Instant::START;
        reconnect.handle_connected(now);
        let short = now + Duration::from_secs(9);
        assert!(reconnect.handle_disconnected(short) - short > Duration::from_secs(2));
        reconnect.handle_connected(short);
        let long = short + ALIVE_MIN;
        assert!(reconnect.handle_disconnected(long) - long < Duration::from_millis(121));
    }
}
