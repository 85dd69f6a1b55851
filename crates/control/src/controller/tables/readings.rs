//! The turns in which switches report their entries.
//!
//! A reply is kept decoded until its last part has arrived. A thousand switches that report at
//! once, after a restart, would take more than a gigabyte. So [`UNDER_WAY_MAX`] switches report at
//! a time, each once, and the others wait in the order in which they were wanted. A switch that is
//! silent for [`SILENCE`], or takes longer than [`TURN`] from its first part on, no longer delays
//! the others.

use std::collections::{BTreeMap, VecDeque};

use clock::{Duration, Instant};
use openflow::DatapathId;

/// Maximum number of switches that report at a time.
pub(super) const UNDER_WAY_MAX: usize = 32;

/// Time for which a reporting switch counts as under way.
pub(super) const TURN: Duration = Duration::from_secs(1);

/// Time for which a switch that has not begun to report counts as under way.
pub(super) const SILENCE: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(super) struct Readings {
    under_way: BTreeMap<DatapathId, Turn>,
    waiting: VecDeque<DatapathId>,
}

/// A report that has been requested and has not ended.
struct Turn {
    is_heard: bool,
    /// Time until which the report counts as under way.
    end: Instant,
}

impl Readings {
    /// Queues a report of a switch. If one is under way, another follows it.
    pub(super) fn want(&mut self, dpid: DatapathId) {
        if !self.waiting.contains(&dpid) {
            self.waiting.push_back(dpid);
        }
    }

    /// Notes that a part of a report has arrived.
    pub(super) fn handle_part(&mut self, now: Instant, dpid: DatapathId) {
        let turn = self.under_way.get_mut(&dpid);
        if let Some(turn) = turn.filter(|turn| !turn.is_heard) {
            (turn.is_heard, turn.end) = (true, now + TURN);
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
        let is_free = |dpid: &DatapathId| !self.under_way.contains_key(dpid);
        let next = self.waiting.iter().position(is_free)?;
        if self.ends(now).count() >= UNDER_WAY_MAX {
            return None;
        }
        let dpid = self.waiting.remove(next)?;
        let turn = Turn {
            is_heard: false,
            end: now + SILENCE,
        };
        self.under_way.insert(dpid, turn);
        Some(dpid)
    }

    /// The time of the next turn, if no report ends earlier.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        self.waiting.front()?;
        self.ends(now).min()
    }

    /// The ends of the turns that count as under way.
    fn ends(&self, now: Instant) -> impl Iterator<Item = Instant> {
        let ends = self.under_way.values().map(|turn| turn.end);
        ends.filter(move |end| *end > now)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
        // A switch that is reporting reports again after its report has ended.
        readings.want(DatapathId(7));
        readings.end(DatapathId(8));
        readings.end(DatapathId(9));
        assert_eq!(begun(&mut readings, START), [max + 2]);
        readings.end(DatapathId(7));
        assert_eq!(begun(&mut readings, START), [7]);
        assert_eq!(readings.poll_timeout(START), None);
    }

    #[test]
    fn switches_that_do_not_finish_hold_up_nobody_for_longer_than_a_turn() {
        let mut readings = Readings::default();
        let max = UNDER_WAY_MAX as u64;
        (0..2 * max).for_each(|n| readings.want(DatapathId(n)));
        assert_eq!(begun(&mut readings, START).len(), UNDER_WAY_MAX);
        readings.handle_part(START, DatapathId(3));
        assert_eq!(readings.poll_timeout(START), Some(START + SILENCE));
        let now = START + SILENCE;
        assert_eq!(begun(&mut readings, now), Vec::from_iter(max..2 * max - 1));
        // The turn of a switch that begins late counts from then on, and further parts do not
        // prolong it.
        readings.handle_part(now, DatapathId(4));
        (max..2 * max).for_each(|n| readings.handle_part(now, DatapathId(n)));
        readings.handle_part(START + TURN, DatapathId(3));
        assert_eq!(begun(&mut readings, START + TURN), []);
        assert_eq!(readings.poll_timeout(START + TURN), Some(now + TURN));
        assert_eq!(begun(&mut readings, now + TURN), [2 * max - 1]);
    }

    /// In any order of events: each wanted report is requested, none twice at a time, the bound
    /// holds, and there is a deadline while any switch waits for it.
    #[test]
    fn no_report_that_is_wanted_is_forgotten() {
        for seed in 0..200 {
            let mut random = SplitMix64::new(seed);
            let mut readings = Readings::default();
            let (mut wanted, mut asked) = (BTreeSet::new(), BTreeSet::new());
            let mut now = START;
            for _ in 0..500 {
                let dpid = DatapathId(random.next() % 100);
                match random.next() % 5 {
                    0 | 1 => {
                        readings.want(dpid);
                        wanted.insert(dpid);
                    }
                    2 => {
                        readings.end(dpid);
                        asked.remove(&dpid);
                    }
                    3 => readings.handle_part(now, dpid),
                    _ => {
                        readings.forget(dpid);
                        wanted.remove(&dpid);
                        asked.remove(&dpid);
                    }
                }
                let before = readings.ends(now).count();
                let mut count = 0;
                while let Some(next) = readings.next(now) {
                    count += 1;
                    assert!(wanted.remove(&next) && asked.insert(next), "seed {seed}");
                }
                assert!(count == 0 || before + count <= UNDER_WAY_MAX, "seed {seed}");
                let waits = wanted.difference(&asked).next().is_some();
                assert!(
                    !waits || readings.poll_timeout(now) > Some(now),
                    "seed {seed}"
                );
                now += Duration::from_millis(random.next() % 20);
            }
            for dpid in asked {
                readings.end(dpid);
            }
            while let Some(next) = readings.next(now) {
                assert!(wanted.remove(&next), "seed {seed}");
                readings.end(next);
            }
            assert!(wanted.is_empty(), "seed {seed}: {wanted:?}");
        }
    }
}
