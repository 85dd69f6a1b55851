//! The parts of a network that run under virtual time, one file per kind: the back-end `sim`.
//!
//! A run has no network and no real time. It depends on its seed alone.

mod channel;
mod table;

use std::time::Duration;

use crate::engine::expression::Figures;
use crate::engine::reader::Section;
use crate::engine::schema::Stream;
use crate::engine::timeline::{END, START};
use crate::engine::traffic::{Carried, Carrier, Record, Stage, Traffic};

pub use table::FLOW_LENGTH;

/// Something that is simulated in place of a network.
pub trait Subject: Sync {
    /// The virtual time of a run.
    fn length(&self) -> Duration;

    fn run(&self, seed: u64) -> Box<dyn Record>;
}

/// Reads a section, whose runs take this time at most.
type Read = fn(&Section<'_>, Duration) -> Box<dyn Subject>;

/// Every subject by the name of its section, which is also the prefix of its figures.
pub const KINDS: [(&str, Read, Figures); 2] = [
    ("channel", channel::read, &channel::FIGURES),
    ("table", table::read, &table::FIGURES),
];

/// Reads the sections of subjects. A scenario of virtual time has one of them.
pub fn read(top: &Section<'_>) -> Vec<(Stream, Duration)> {
    let read = |(id, read, figures): (&'static str, Read, Figures)| {
        let section = top.section(id)?;
        let seconds = top.parameters().seconds().unwrap_or_default();
        // Impossible seconds are reported already.
        let seconds = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let subject = read(&section, seconds);
        section.finish();
        let length = subject.length();
        let stream = Stream {
            id: id.to_string(),
            begins: START.to_string(),
            ends: END.to_string(),
            kind: Carrier {
                traffic: Box::new(Simulation(subject)),
                hosts: None,
            },
            figures,
        };
        Some((stream, length))
    };
    KINDS.into_iter().filter_map(read).collect()
}

/// A subject as traffic with its own endpoints.
struct Simulation(Box<dyn Subject>);

impl Traffic for Simulation {
    fn needs_network(&self) -> bool {
        false
    }

    fn packets_per_s(&self, _: usize) -> (f64, &'static str) {
        (0.0, "")
    }

    fn carry(&self, stage: &Stage<'_>) -> Carried {
        Ok(self.0.run(stage.draw))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use testbed::plane::Controller;

    use super::*;
    use crate::engine::expression::Value;
    use crate::engine::rows::Row;
    use crate::engine::runner::run_alone;
    use crate::engine::schema::{Circumstances, Scenario};
    use crate::engine::timeline::Window;

    fn scenario(file: &str, seconds: f64) -> Scenario {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios");
        let text = std::fs::read_to_string(dir.join(file)).unwrap();
        let around = Circumstances {
            beside: &dir,
            controller: &Controller::Standalone,
            runs: Some(2),
            seconds: Some(seconds),
            seed: Some(7),
            quick: false,
            only: &[],
        };
        Scenario::read(&text, &around).unwrap_or_else(|found| panic!("{file}: {found:?}"))
    }

    /// The rows of both runs of the first cells.
    fn rows(scenario: &Scenario, cells: usize) -> Vec<Row> {
        let runs = scenario.networks.iter().flat_map(|network| &network.runs);
        let runs = runs.filter(|run| run.cell < cells);
        runs.flat_map(|run| run_alone(&scenario.cells[run.cell], run).unwrap().0)
            .collect()
    }

    #[test]
    fn a_seed_gives_the_same_rows_and_each_run_has_a_seed_of_its_own() {
        for (file, cells) in [("pso-fig7-8.toml", 1), ("table-pressure.toml", 2)] {
            let scenario = scenario(file, 1.5);
            let found = rows(&scenario, cells);
            let text = |rows: &[Row]| serde_json::to_string(rows).unwrap();
            assert_eq!(text(&found), text(&rows(&scenario, cells)), "{file}");
            let of_run = |run| found.iter().find(|row| row.run == run).unwrap();
            assert_ne!(of_run(1).figures, of_run(2).figures, "{file}");
        }
    }

    #[test]
    fn every_cell_of_the_projects_channels_runs() {
        for file in ["pso-fig9.toml", "pso-ns3.toml", "pso-flood-above.toml"] {
            let scenario = scenario(file, 0.02);
            let found = rows(&scenario, scenario.cells.len());
            let mut target = found.iter().filter(|row| row.name == "target");
            assert!(target.any(|row| row.get("done_percent") > 0.0), "{file}");
        }
    }

    #[test]
    fn every_figure_of_a_subject_has_a_value() {
        for (file, subject) in [("pso-fig9.toml", 0), ("table-pressure.toml", 1)] {
            let scenario = scenario(file, 1.0);
            let record = scenario.cells[0].traffic[0].kind.carry(&stage()).unwrap();
            let whole = Window {
                event: Duration::ZERO,
                from: Duration::ZERO,
                to: Duration::MAX,
            };
            for (figure, shape) in KINDS[subject].2 {
                match record.figure(figure, &whole) {
                    Value::One(one) => assert!(!one.is_nan() && !shape.many, "{figure}"),
                    Value::Many(many) => assert!(!many.is_empty() && shape.many, "{figure}"),
                }
            }
        }
    }

    fn stage() -> Stage<'static> {
        Stage {
            pairs: Vec::new(),
            ends: Vec::new(),
            epoch: std::time::Instant::now(),
            from: Duration::ZERO,
            until: Duration::ZERO,
            end: None,
            switches: String::new(),
            seed: 1,
            draw: 1,
            random: clock::SplitMix64::new(1),
        }
    }
}
