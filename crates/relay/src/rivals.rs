//! Detects two relays whose certificates have the same name. A relay has one session, so each new
//! session ends that of the other relay, which then reconnects. To an observer, one relay seems to
//! restart.

use std::collections::{BTreeMap, VecDeque};

use clock::{Duration, Instant};

/// Maximum number of restarts of one relay within [`WINDOW`].
pub const EVICTIONS_MAX: usize = 3;
/// Two relays that take turns connect after pauses of 1, 1, 2 and 2 s. On a busy machine their
/// handshakes take some seconds more.
pub const WINDOW: Duration = Duration::from_secs(30);
/// Minimum time between two warnings about one name.
pub const WARNING_PAUSE: Duration = Duration::from_secs(60);
/// Maximum number of watched names: those evicted last.
pub const NAMES_MAX: usize = 64;

/// The recent evictions of relays by another relay of the same name.
#[derive(Debug, Default)]
pub struct Rivals {
    names: BTreeMap<String, Turns>,
    counters: RivalCounters,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RivalCounters {
    /// The number of times that a relay connected for another session while a connection of its
    /// name was up.
    pub evictions: u64,
    /// The evictions above `EVICTIONS_MAX` within [`WINDOW`].
    pub conflicts: u64,
}

#[derive(Debug)]
struct Turns {
    /// The last evictions, [`EVICTIONS_MAX`] at most.
    at: VecDeque<Instant>,
    warned: Option<Instant>,
}

impl Turns {
    fn last(&self) -> Option<Instant> {
        self.at.back().copied()
    }
}

impl Rivals {
    /// Notes that a relay called `name` has replaced one that was connected. Returns whether to
    /// warn the operator now.
    pub fn handle_eviction(&mut self, now: Instant, name: &str) -> bool {
        self.counters.evictions += 1;
        if self.names.len() >= NAMES_MAX && !self.names.contains_key(name) {
            let oldest = self.names.iter().min_by_key(|(_, turns)| turns.last());
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.and_then(|name| self.names.remove(&name));
        }
        let turns = self.names.entry(name.to_owned()).or_insert(Turns {
            at: VecDeque::new(),
            warned: None,
        });
        let is_many = turns.at.len() >= EVICTIONS_MAX;
        let first = turns.at.pop_front_if(|_| is_many);
        turns.at.push_back(now);
        if first.is_none_or(|first| first + WINDOW < now) {
            return false;
        }
        self.counters.conflicts += 1;
        let is_due = turns.warned.is_none_or(|at| at + WARNING_PAUSE <= now);
        if is_due {
            turns.warned = Some(now);
        }
        is_due
    }

    pub fn counters(&self) -> RivalCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::START + Duration::from_millis(ms)
    }

    /// The times of `evictions` of one name that led to a warning.
    fn warnings(rivals: &mut Rivals, name: &str, evictions: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut warned = Vec::new();
        for ms in evictions {
            if rivals.handle_eviction(at(ms), name) {
                warned.push(ms);
            }
        }
        warned
    }

    #[test]
    fn the_fourth_turn_within_the_window_is_warned_of_and_then_one_a_minute() {
        let mut rivals = Rivals::default();
        let every_second = (0..130).map(|n| n * 1_000);
        let warned = warnings(&mut rivals, "s1", every_second);
        assert_eq!(warned, [3_000, 63_000, 123_000]);
        let counters = RivalCounters {
            evictions: 130,
            conflicts: 127,
        };
        assert_eq!(rivals.counters(), counters);
    }

    #[test]
    fn restarts_now_and_then_are_no_conflict() {
        let mut rivals = Rivals::default();
        // Four within 30 s and a millisecond, for ever.
        let restarts = (0..400).map(|n| n / 3 * 30_001 + n % 3 * 10);
        assert_eq!(warnings(&mut rivals, "s1", restarts), []);
        assert_eq!(rivals.counters().conflicts, 0);
        // The window includes its ends.
        let mut rivals = Rivals::default();
        assert_eq!(
            warnings(&mut rivals, "s1", [0, 1, 2, 30_000].into_iter()),
            [30_000]
        );
    }

    #[test]
    fn names_are_apart_and_bounded() {
        let mut rivals = Rivals::default();
        for turn in 0..4 {
            for name in 0..4 {
                let is_warned = rivals.handle_eviction(at(turn), &format!("s{name}"));
                assert_eq!(is_warned, turn == 3);
            }
        }
        for n in 0..1_000 {
            rivals.handle_eviction(at(10 + n), &format!("other{n}"));
            assert!(rivals.names.len() <= NAMES_MAX);
        }
        // The name was forgotten, so its count starts again.
        assert!(!rivals.handle_eviction(at(2_000), "s0"));
    }
}
