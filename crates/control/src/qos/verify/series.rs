//! Counters over time, by the time when they became known.

use std::collections::{BTreeMap, VecDeque};

use clock::{Duration, Instant};
use openflow::{MeterId, PortNo};

use super::{FLOWS_LATE, KEPT, POINTS_MAX};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    Queue(PortNo, u32),
    Meter(MeterId),
}

/// Packets that arrived at a queue or meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Came {
    /// Packets that a queue sent, or all packets that reached a meter.
    pub packets: u64,
    pub dropped: u64,
}

impl Came {
    /// All packets that arrived: packets dropped for lack of room had arrived at a queue, too.
    pub fn all(self) -> u64 {
        self.packets.saturating_add(self.dropped)
    }

    fn is_before(self, later: Came) -> bool {
        self.packets <= later.packets && self.dropped <= later.dropped
    }
}

/// All counters at one time.
pub type Readings = BTreeMap<Counter, Came>;

/// Readings over time. The last reading is valid until the next.
#[derive(Clone, Debug)]
pub struct Series {
    /// The maximum delay of a counter. Without a delay, a reading is valid at the time when it
    /// arrived.
    late: Duration,
    readings: VecDeque<(Instant, Readings)>,
}

impl Series {
    pub fn new(late: Duration) -> Series {
        Series {
            late,
            readings: VecDeque::new(),
        }
    }

    pub fn clear(&mut self) {
        self.readings.clear();
    }

    pub fn note(&mut self, now: Instant, readings: Readings) {
        if let Some((_, last)) = self.readings.back() {
            if *last == readings && !self.late.is_zero() {
                return;
            }
            let goes_back = |(counter, was): (&Counter, &Came)| {
                let is = readings.get(counter);
                is.is_none_or(|is| !was.is_before(*is))
            };
            if last.iter().any(goes_back) {
                self.readings.clear();
            }
        }
        self.readings.push_back((now, readings));
        // An older reading holds for the time when the others began.
        let is_over =
            |next: Option<&(Instant, Readings)>| next.is_some_and(|(at, _)| *at + KEPT < now);
        while self.readings.len() > POINTS_MAX || is_over(self.readings.get(1)) {
            self.readings.pop_front();
        }
    }

    /// The reading when entries began to count their reports from `from` on.
    pub fn before(&self, from: Instant) -> Option<&Readings> {
        let mut known = self.readings.iter().rev();
        let (_, readings) = known.find(|(at, _)| *at + FLOWS_LATE <= from)?;
        Some(readings)
    }

    /// The reading that includes all packets in entries' reports at `to`.
    pub fn after(&self, to: Instant, now: Instant) -> Option<&Readings> {
        let due = to + self.late;
        let found = match self.late.is_zero() {
            true => self.readings.iter().find(|(at, _)| *at >= to),
            false if now < due => None,
            false => self.readings.iter().rev().find(|(at, _)| *at <= due),
        };
        found.map(|(_, readings)| readings)
    }

    /// The growth of each counter from `from` to `to`; empty if unknown.
    pub fn grown(&self, from: Instant, to: Instant, now: Instant) -> Readings {
        let (Some(before), Some(after)) = (self.before(from), self.after(to, now)) else {
            return Readings::new();
        };
        let grown = |(counter, is): (&Counter, &Came)| {
            let was = before.get(counter).copied().unwrap_or_default();
            let came = Came {
                packets: is.packets.saturating_sub(was.packets),
                dropped: is.dropped.saturating_sub(was.dropped),
            };
            (*counter, came)
        };
        after.iter().map(grown).collect()
    }

    pub fn has_queues(&self) -> bool {
        let last = self.readings.back();
        let is_queue = |counter: &Counter| matches!(counter, Counter::Queue(..));
        last.is_some_and(|(_, readings)| readings.keys().any(is_queue))
    }
}
