//! `kind = "newcomers"`: round trips of hosts that the network has never seen.
//!
//! Each newcomer sends through the interface of one host to another: a first ping, whose request
//! and answer match no entry, and later pings, which match the entries.

use std::time::Duration;

use testbed::traffic::icmp::{self, LATER_PINGS, Trial};

use super::{Carried, Record, Stage, Traffic, new_stranger};
use crate::engine::expression::{MANY, ONE, Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;

pub struct Newcomers {
    /// From one host's first ping until the next host's first ping.
    interval: Duration,
    /// The number of hosts; if not given, as many as time allows.
    count: Option<u64>,
}

pub const FIGURES: [(&str, Shape); 6] = [
    // Hosts whose first ping was sent in the window.
    ("hosts", ONE),
    ("first_lost", ONE),
    // For each first ping that was answered, and for each later one.
    ("first_ms", MANY),
    ("later_sent", ONE),
    ("later_lost", ONE),
    ("later_ms", MANY),
];

const COUNT_MAX: u64 = 1000;
const INTERVAL_MIN: Duration = Duration::from_millis(10);
const INTERVAL_MAX: Duration = Duration::from_secs(60);

impl Newcomers {
    pub fn read(section: &Section<'_>) -> Option<Newcomers> {
        let interval = section.required_duration("interval", INTERVAL_MIN..=INTERVAL_MAX);
        let count = section.count("count", 1..=COUNT_MAX);
        Some(Newcomers {
            interval: interval?,
            count,
        })
    }
}

impl Traffic for Newcomers {
    fn packets_per_s(&self, _: usize) -> (f64, &'static str) {
        let pings = (1 + LATER_PINGS) as f64;
        (pings / self.interval.as_secs_f64(), "interval")
    }

    fn has_own_end(&self) -> bool {
        self.count.is_some()
    }

    fn ends_on_demand(&self) -> bool {
        true
    }

    /// Pings from one host after the other: a slow answer delays the next host.
    fn carry(&self, stage: &Stage<'_>) -> Carried {
        let [from, to] = stage.ends[0].doors()?;
        let mut trials = Vec::new();
        let mut due = stage.from;
        loop {
            std::thread::sleep(due.saturating_sub(stage.epoch.elapsed()));
            let begun = stage.epoch.elapsed();
            let is_last = |count| trials.len() as u64 == count;
            if stage.is_over() || self.count.is_some_and(is_last) {
                return Ok(Box::new(Trials(trials)));
            }
            trials.push((begun, icmp::measure(&from, &to, new_stranger())?));
            due = (due + self.interval).max(stage.epoch.elapsed());
        }
    }
}

/// The round trips of each host, and when its first ping was sent.
struct Trials(Vec<(Duration, Trial)>);

impl Record for Trials {
    fn figure(&self, name: &str, window: &Window) -> Value {
        let trials = self.0.iter().filter(|(begun, _)| window.has(*begun));
        let trials: Vec<&Trial> = trials.map(|(_, trial)| trial).collect();
        let firsts = || trials.iter().map(|trial| trial.first_ms);
        let laters = || {
            trials
                .iter()
                .flat_map(|trial| trial.later_ms.iter().copied())
        };
        let lost = |rtt: &Option<f64>| rtt.is_none();
        match name {
            "hosts" => Value::One(trials.len() as f64),
            "first_lost" => Value::One(firsts().filter(lost).count() as f64),
            "first_ms" => Value::Many(firsts().flatten().collect()),
            "later_sent" => Value::One(laters().count() as f64),
            "later_lost" => Value::One(laters().filter(lost).count() as f64),
            _ => Value::Many(laters().flatten().collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_pings_are_counted_and_have_no_round_trip() {
        let trial = |ms, first_ms, later: &[Option<f64>]| {
            let later_ms = later.to_vec();
            let trial = Trial { first_ms, later_ms };
            (Duration::from_millis(ms), trial)
        };
        let trials = Trials(vec![
            trial(100, Some(4.0), &[Some(1.0), None, Some(2.0)]),
            trial(200, None, &[Some(3.0), None, None]),
            trial(900, None, &[None, None, None]),
        ]);
        let window = Window {
            event: Duration::ZERO,
            from: Duration::ZERO,
            to: Duration::from_millis(500),
        };
        let found = FIGURES.map(|(name, _)| trials.figure(name, &window));
        let one = Value::One;
        let (firsts, laters) = (vec![4.0], vec![1.0, 2.0, 3.0]);
        assert_eq!(
            found,
            [
                one(2.0),
                one(1.0),
                Value::Many(firsts),
                one(6.0),
                one(3.0),
                Value::Many(laters),
            ]
        );
    }
}
