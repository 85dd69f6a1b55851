//! `kind = "run"`: a command that runs once, or until it succeeds, and figures of the JSON document
//! that it prints.

use std::time::Duration;

use cli::failure::Failure;
use serde_json::Value as Json;
use testbed::plane::Controller;
use testbed::topology::Topology;

use super::{Probe, Scene, Series, one, place};
use crate::engine::command::Command;
use crate::engine::expression::{ONE, Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;
use crate::report::milliseconds;

/// The probe. Its series has the value of each figure, at the time when the command ended.
pub struct Run {
    command: Command,
    /// The time after which a failed command is repeated.
    every: Option<Duration>,
    /// A name, and a JSON pointer: `/queues/1/packets`. With a word, as in `/state=done`, the
    /// figure is 1 where the value is this word and otherwise 0.
    pointers: Vec<(String, String)>,
}

pub const FIGURES: [(&str, Shape); 2] = [
    // The exit code; none after a signal.
    ("code", ONE),
    // The time the command ran; for a repeated command, the time until it succeeded.
    ("took_ms", ONE),
];

const EVERY_MIN: Duration = Duration::from_millis(5);
const EVERY_MAX: Duration = Duration::from_secs(60);

impl Run {
    pub fn read(section: &Section<'_>) -> Option<Run> {
        let command = Command::read(section);
        let every = section.duration("every", EVERY_MIN..=EVERY_MAX);
        let mut pointers = Vec::new();
        if let Some(figures) = section.section("figures") {
            for name in figures.other_keys() {
                let pointer = figures.text(name);
                let Some(pointer) = pointer else { continue };
                if !pointer.starts_with('/') {
                    let right = "write a place in the document, such as \"/queues/1/packets\"";
                    figures.problem(name, format!("'{pointer}' is not a JSON pointer; {right}"));
                }
                if FIGURES.iter().any(|(known, _)| *known == name) {
                    figures.problem(name, "every command has this figure; take another name");
                }
                pointers.push((name.to_string(), pointer));
            }
        }
        Some(Run {
            command: command?,
            every,
            pointers,
        })
    }
}

impl Probe for Run {
    fn check(&self, topology: &Topology, _: &Controller) -> Result<(), String> {
        self.command.check(topology)
    }

    fn observe(&self, scene: &Scene<'_>) -> Result<Series, Failure> {
        let begun = scene.epoch.elapsed();
        let (output, at) = loop {
            let output = self.command.run(&scene.shell)?;
            let at = scene.epoch.elapsed();
            match self.every {
                Some(rest) if !output.status.success() && at < scene.until => {
                    std::thread::sleep(rest);
                }
                _ => break (output, at),
            }
        };
        let document = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let code = output.status.code().map_or(f64::NAN, f64::from);
        let own = self.pointers.iter();
        let own = own.map(|(_, pointer)| found(&document, pointer));
        let took = match self.every.is_some() && code != 0.0 {
            true => f64::NAN,
            false => milliseconds(at.saturating_sub(begun)),
        };
        let all = [code, took];
        Ok(all.into_iter().chain(own).map(|x| (at, x)).collect())
    }

    fn own_figures(&self) -> Vec<&str> {
        self.pointers
            .iter()
            .map(|(name, _)| name.as_str())
            .collect()
    }

    fn figure(&self, name: &str, _: &Window, _: &Topology, series: &Series) -> Value {
        let own = self.pointers.iter().position(|(known, _)| known == name);
        one(
            series,
            own.map_or_else(|| place(&FIGURES, name), |own| FIGURES.len() + own),
        )
    }
}

fn found(document: &Json, pointer: &str) -> f64 {
    let (pointer, word) = match pointer.split_once('=') {
        Some((pointer, word)) => (pointer, Some(word)),
        None => (pointer, None),
    };
    match (document.pointer(pointer), word) {
        (None, _) => f64::NAN,
        (Some(value), Some(word)) => f64::from(value.as_str() == Some(word)),
        (Some(Json::Bool(truth)), None) => f64::from(*truth),
        (Some(value), None) => value.as_f64().unwrap_or(f64::NAN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_a_number_a_truth_or_a_word_of_the_document() {
        let document = serde_json::json!({"queues": [{"n": 7, "effect": "yes", "made": true}]});
        for (pointer, wanted) in [
            ("/queues/0/n", 7.0),
            ("/queues/0/made", 1.0),
            ("/queues/0/effect=yes", 1.0),
            ("/queues/0/effect=no", 0.0),
        ] {
            assert_eq!(found(&document, pointer), wanted, "{pointer}");
        }
        for pointer in ["/queues/1/n", "/queues/0/effect", "/queues/1/effect=no"] {
            assert!(found(&document, pointer).is_nan(), "{pointer}");
        }
        assert!(found(&Json::Null, "/code").is_nan(), "it printed no JSON");
    }
}
