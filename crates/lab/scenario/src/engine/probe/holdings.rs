//! `kind = "holdings"`: auster's queues, circuits and policies on switches and in their database,
//! compared with an earlier reading.

mod found;

use std::process::Output;
use std::time::Duration;

use cli::failure::Failure;
use cli::output::note;
use testbed::network::SWITCHES;
use testbed::plane::Controller;
use testbed::topology::Topology;

use super::{Probe, Scene, Series, one, place};
use crate::engine::command::Command;
use crate::engine::expression::{ONE, Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;
use crate::report::milliseconds;
use found::{Found, State};

/// The probe. Its series has one value for each figure, from the last reading.
pub struct Holdings {
    /// Prints all relevant tables of the database, and the entries and meters of each switch.
    command: Command,
    /// A file in the lab's directory with an earlier output of the command.
    reference: String,
    /// The time limit for repeating readings until one equals the reference.
    within: Option<Duration>,
}

pub const FIGURES: [(&str, Shape); 23] = [
    // 1 if the last reading equals the reference, with nothing besides.
    ("same", ONE),
    // Time until a reading equalled the reference.
    ("took_ms", ONE),
    // Counted by port.
    ("records_whole", ONE),
    ("records_prepared", ONE),
    ("records_absent", ONE),
    ("records_half", ONE),
    // Counted by direction.
    ("circuits_whole", ONE),
    ("circuits_prepared", ONE),
    ("circuits_absent", ONE),
    ("circuits_half", ONE),
    // Counted by switch.
    ("policies_whole", ONE),
    ("policies_prepared", ONE),
    ("policies_absent", ONE),
    ("policies_half", ONE),
    // 1 if something is present, but not everything.
    ("in_the_middle", ONE),
    // Rows of auster's that nothing refers to.
    ("orphans", ONE),
    // Entries, meters and rows that are not auster's and differ from the reference.
    ("foreign_changed", ONE),
    // The extent of the reading.
    ("ports", ONE),
    ("queues", ONE),
    ("circuit_entries", ONE),
    ("policy_entries", ONE),
    ("meters", ONE),
    ("foreign", ONE),
];

const REST: Duration = Duration::from_millis(50);
const WITHIN_MAX: Duration = Duration::from_secs(600);

impl Holdings {
    pub fn read(section: &Section<'_>) -> Option<Holdings> {
        let command = Command::read(section);
        let reference = section.required_text("reference", "\"whole\"");
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if let Some(name) = reference
            .as_ref()
            .filter(|name| !name.chars().all(is_plain))
        {
            let right = "name a file in the lab's directory, such as \"whole\"";
            section.problem("reference", format!("'{name}' is no name; {right}"));
        }
        let within = section.duration("within", Duration::from_millis(1)..=WITHIN_MAX);
        Some(Holdings {
            command: command?,
            reference: reference?,
            within,
        })
    }
}

impl Probe for Holdings {
    fn check(&self, topology: &Topology, controller: &Controller) -> Result<(), String> {
        match controller {
            Controller::Auster(_) => self.command.check(topology),
            other => Err(format!("{other} sets up nothing of this; auster does")),
        }
    }

    fn observe(&self, scene: &Scene<'_>) -> Result<Series, Failure> {
        let begun = scene.epoch.elapsed();
        let deadline = begun + self.within.unwrap_or_default();
        let file = format!("cat {}", self.reference);
        let reference = reading(scene.shell.run(SWITCHES, &file, std::iter::empty())?)?;
        let (found, at, is_same) = loop {
            let found = reading(self.command.run(&scene.shell)?)?;
            let at = scene.epoch.elapsed();
            let is_same = found.is_as(&reference) && found.orphans == 0;
            if is_same || at >= deadline {
                break (found, at, is_same);
            }
            std::thread::sleep(REST);
        };
        let tallies = found.judge(&reference);
        let changed: Vec<_> = found
            .foreign
            .symmetric_difference(&reference.foreign)
            .collect();
        for line in &changed {
            note!("  changed, and not auster's: {line}");
        }
        if tallies.iter().any(|tally| tally[State::Half as usize] > 0) {
            note!("  half of something: {found:#?}");
        }
        let took = milliseconds(at.saturating_sub(begun));
        let mut figures = vec![f64::from(is_same), if is_same { took } else { f64::NAN }];
        figures.extend(tallies.iter().flatten().copied().map(f64::from));
        figures.push(f64::from(found::is_in_the_middle(&tallies)));
        let counts = [found.orphans, changed.len()].into_iter();
        figures.extend(counts.chain(found.extent()).map(|count| count as f64));
        Ok(figures.into_iter().map(|figure| (at, figure)).collect())
    }

    fn figure(&self, name: &str, _: &Window, _: &Topology, series: &Series) -> Value {
        one(series, place(&FIGURES, name))
    }
}

fn reading(output: Output) -> Result<Found, Failure> {
    let failed = |why: String| Failure::machine(format!("reading what switches hold: {why}"));
    match output.status.success() {
        true => Found::read(&String::from_utf8_lossy(&output.stdout)).map_err(failed),
        false => Err(failed(
            String::from_utf8_lossy(&output.stderr).trim().to_string(),
        )),
    }
}
