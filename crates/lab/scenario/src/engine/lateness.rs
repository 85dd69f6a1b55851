//! Moments, packets and frames that were late because the machine was busy.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::engine::expression::{ONE, Value};
use crate::engine::schema::Cell;
use crate::engine::timeline::Window;
use crate::engine::traffic::Record;
use testbed::link;

/// Below this, the lateness of a process that wakes up is not worth reporting.
const LATE_MS: f64 = 25.0;
/// The figure of kinds of traffic that send on a schedule.
const SENDER_LATE: &str = "sender_late_ms";

/// The number of times each was late, and by how much at most.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Lateness(BTreeMap<String, Late>);

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Late {
    times: usize,
    most_ms: f64,
}

impl Lateness {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn note(&mut self, what: String, ms: f64) {
        if ms > LATE_MS {
            let late = self.0.entry(what).or_default();
            late.times += 1;
            late.most_ms = late.most_ms.max(ms);
        }
    }

    pub fn note_moment(&mut self, id: &str, late: Duration) {
        self.note(format!("moment {id}"), late.as_secs_f64() * 1e3);
    }

    /// Notes streams of one run that sent late.
    pub fn note_streams(&mut self, cell: &Cell, records: &[Box<dyn Record>]) {
        let whole = Window {
            event: Duration::ZERO,
            from: Duration::ZERO,
            to: Duration::MAX,
        };
        for (stream, record) in cell.traffic.iter().zip(records) {
            if stream.figures.contains(&(SENDER_LATE, ONE))
                && let Value::One(ms) = record.figure(SENDER_LATE, &whole)
            {
                self.note(format!("packets of {}", stream.id), ms);
            }
        }
    }

    pub fn note_links(&mut self, links: &[link::Report]) {
        for link in links {
            self.note(
                format!("frames {} to {}", link.from, link.to),
                link.late_max_us / 1e3,
            );
        }
    }

    pub fn merge(&mut self, other: Lateness) {
        for (what, late) in other.0 {
            let own = self.0.entry(what).or_default();
            own.times += late.times;
            own.most_ms = own.most_ms.max(late.most_ms);
        }
    }

    /// A line for people; `None` if nothing was late.
    pub fn line(&self) -> Option<String> {
        let each = self.0.iter().map(|(what, late)| {
            let Late { times, most_ms } = late;
            format!("{what} ({times} times, at most {most_ms:.0} ms)")
        });
        let all: Vec<String> = each.collect();
        let all = all.join(", ");
        (!all.is_empty()).then(|| format!("late, for the machine was busy: {all}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_late_is_counted_with_the_most() {
        let mut all = Lateness::default();
        assert_eq!(all.line(), None);
        let mut one = Lateness::default();
        for ms in [20, 30, 90] {
            one.note_moment("cut", Duration::from_millis(ms));
        }
        all.merge(one.clone());
        all.merge(one);
        let frames = link::Report {
            from: "s1".to_string(),
            to: "s2".to_string(),
            late_max_us: 40_000.0,
            ..link::Report::default()
        };
        all.note_links(&[frames]);
        assert_eq!(
            all.line().unwrap(),
            "late, for the machine was busy: frames s1 to s2 (1 times, at most 40 ms), \
             moment cut (4 times, at most 90 ms)"
        );
    }
}
