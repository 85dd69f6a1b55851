//! The turns in which switches report their entries.
//!
//! A reply is kept decoded until its last part has come. A thousand switches that report at once,
//! after a restart, would take more than a gigabyte. So [`UNDER_WAY_MAX`] report at a time, and the
//! others wait in the order in which they were wanted. A switch that says nothing for [`SILENCE`],
//! or has not finished after [`TURN`], no longer holds up the others.

use std::collections::{BTreeMap, VecDeque};

use clock::{Duration, Instant};
use openflow::DatapathId;

/// Maximum number of switches that report at a time.
pub(super) const UNDER_WAY_MAX: usize = 32;

/// How long a switch that reports counts.
pub(super) const TURN: Duration = Duration::from_secs(1);

/// How long a switch counts that has not begun to report.
pub(super) const SILENCE: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(super) struct Readings {
    under_way: BTreeMap<DatapathId, Turn>,
    waiting: VecDeque<DatapathId>,
}

struct Turn {
    began: Instant,
    is_heard: bool,
}

impl Turn {
    fn end(&self) -> Instant {
        self.began + if self.is_heard { TURN } else { SILENCE }
    }
}

impl Readings {
    /// Wants a report of a switch, also if one is under way.
    pub(super) fn want(&mut self, dpid: DatapathId) {
        if !self.waiting.contains(&dpid) {
            self.waiting.push_back(dpid);
        }
    }

    /// Notes that a part of a report has come.
    pub(super) fn handle_part(&mut self, dpid: DatapathId) {
        if let Some(turn) = self.under_way.get_mut(&dpid) {
            turn.is_heard = true;
        }
    }

    /// Notes that a switch has reported, or will not.
    pub(super) fn end(&mut self, dpid: DatapathId) {
        self.under_way.remove(&dpid);
    }

    /// Drops all turns of a switch.
    pub(super) fn forget(&mut self, dpid: DatapathId) {
        self.end(dpid);
        self.waiting.retain(|other| *other != dpid);
    }

    /// Begins the next turn, if there is one.
    pub(super) fn next(&mut self, now: Instant) -> Option<DatapathId> {
        let next = self.waiting.front()?;
        if self.under_way.len() >= UNDER_WAY_MAX && !self.under_way.contains_key(next) {
            self.under_way.retain(|_, turn| turn.end() > now);
            if self.under_way.len() >= UNDER_WAY_MAX {
                return None;
            }
        }
        let dpid = self.waiting.pop_front()?;
        let turn = Turn {
            began: now,
            is_heard: false,
        };
        self.under_way.insert(dpid, turn);
        Some(dpid)
    }

    /// The time of the next turn, if none ends before.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.front()?;
        self.under_way.values().map(Turn::end).min()
    }
}

#[cfg(test)]
mod tests {
    use clock::SplitMix64;

    use super::*;

    const START: Instant = Instant::START;

    fn begun(readings: &mut Readings, now: Instant) -> Vec<u64> {
        let turns = std::iter::from_fn(|| readings.next(now));
        turns.map(|dpid| dpid.0).collect()
    }

    #[test]
    fn so_many_report_at_a_time_and_the_others_in_their_order() {
        let mut readings = Readings::default();
        let max = UNDER_WAY_MAX as u64;
        for n in 0..max + 3 {
            readings.want(DatapathId(n));
            readings.want(DatapathId(n));
        }
        assert_eq!(begun(&mut readings, START), Vec::from_iter(0..max));
        readings.end(DatapathId(5));
        readings.forget(DatapathId(max));
        assert_eq!(begun(&mut readings, START), [max + 1]);
        // One that reports may report once more.
        readings.want(DatapathId(7));
        assert_eq!(begun(&mut readings, START), []);
        readings.end(DatapathId(8));
        assert_eq!(begun(&mut readings, START), [max + 2, 7]);
        assert_eq!(readings.poll_timeout(), None);
    }

    #[test]
    fn switches_that_never_answer_hold_up_nobody_for_longer_than_a_turn() {
        let mut readings = Readings::default();
        let max = UNDER_WAY_MAX as u64;
        (0..2 * max).for_each(|n| readings.want(DatapathId(n)));
        assert_eq!(begun(&mut readings, START).len(), UNDER_WAY_MAX);
        readings.handle_part(DatapathId(3));
        assert_eq!(readings.poll_timeout(), Some(START + SILENCE));
        let silent = begun(&mut readings, START + SILENCE);
        assert_eq!(silent, Vec::from_iter(max..2 * max - 1));
        (max..2 * max).for_each(|n| readings.handle_part(DatapathId(n)));
        assert_eq!(readings.poll_timeout(), Some(START + TURN));
        assert_eq!(begun(&mut readings, START + TURN), [2 * max - 1]);
    }

    /// Whatever happens in whatever order: each wanted report is asked for, the bound holds, and a
    /// deadline is there while anybody waits.
    #[test]
    fn no_report_that_is_wanted_is_forgotten() {
        for seed in 0..200 {
            let mut random = SplitMix64::new(seed);
            let mut readings = Readings::default();
            let mut wanted = std::collections::BTreeSet::new();
            let mut now = START;
            for _ in 0..500 {
                let dpid = DatapathId(random.next() % 100);
                match random.next() % 5 {
                    4 => readings.handle_part(dpid),
                    0 | 1 => {
                        readings.want(dpid);
                        wanted.insert(dpid);
                    }
                    2 => readings.end(dpid),
                    _ => {
                        readings.forget(dpid);
                        wanted.remove(&dpid);
                    }
                }
                while let Some(next) = readings.next(now) {
                    assert!(wanted.remove(&next), "seed {seed}");
                }
                assert!(readings.under_way.len() <= UNDER_WAY_MAX, "seed {seed}");
                assert_eq!(
                    readings.poll_timeout().is_some(),
                    !wanted.is_empty(),
                    "seed {seed}"
                );
                now += Duration::from_millis(random.next() % 20);
            }
            while let Some(due) = readings.poll_timeout() {
                while let Some(next) = readings.next(due) {
                    assert!(wanted.remove(&next), "seed {seed}");
                }
            }
            assert!(wanted.is_empty(), "seed {seed}: {wanted:?}");
        }
    }
}
