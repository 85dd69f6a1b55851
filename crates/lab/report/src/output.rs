//! The output of a bench: a live line, a table, one JSON document, and a directory with the
//! command, the machine, the raw data and the plots.

use std::fmt::Arguments;
use std::path::{Path, PathBuf};

use hdrhistogram::Histogram;
use serde::Serialize;

use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::output::{say, say_part};

use crate::machine::Machine;
use measure::stats;

/// The refusal to overwrite a measurement's results.
pub const HAS_RESULTS: &str = "it has results; name another directory, or overwrite by --force";

/// The file that marks a directory of results.
const DOCUMENT: &str = "result.json";

#[derive(clap::Args)]
pub struct OutputArgs {
    /// One JSON document on standard output, and nothing else
    #[arg(long)]
    pub json: bool,
    /// Keep everything in this directory: document, command, raw data, plots
    #[arg(short = 'o', long, alias = "results", value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Overwrite the results that --out has
    #[arg(long, requires = "out")]
    pub force: bool,
}

impl OutputArgs {
    /// Makes the directory, so that a wrong name fails now and not after minutes.
    pub fn results(&self) -> Result<Results, Failure> {
        Results::create(self.out.as_deref(), self.force)
    }

    pub fn begin(&self) -> Result<Measurement<'_>, Failure> {
        Ok(Measurement {
            results: self.results()?,
            started_unix_s: unix_seconds(),
            output: self,
        })
    }

    /// Prints a line for people, or nothing when the output is a document.
    pub fn say(&self, line: Arguments) {
        if !self.json {
            say!("{line}");
        }
    }
}

/// A measurement from its beginning to its document.
pub struct Measurement<'a> {
    pub results: Results,
    started_unix_s: u64,
    output: &'a OutputArgs,
}

impl Measurement<'_> {
    /// Writes the document to the directory, and the document or `text` to standard output.
    pub fn conclude<S: Serialize, R: Serialize>(
        &self,
        bench: &'static str,
        settings: S,
        (runs, interrupted): (R, bool),
        text: &str,
    ) -> Result<(), Failure> {
        let document = Document {
            bench,
            command: command(),
            started_unix_s: self.started_unix_s,
            machine: Machine::here(),
            settings,
            runs,
            interrupted,
        };
        let json = serde_json::to_string_pretty(&document)
            .map_err(|error| Failure::file("standard output", error))?
            + "\n";
        self.results.document(&json, &document.command)?;
        let shown = if self.output.json { &json } else { text };
        say_part!("{shown}");
        cli::output::check()?;
        if let (false, Some(dir)) = (self.output.json, &self.output.out) {
            say!("\nKept in {}", dir.display());
        }
        Ok(())
    }
}

/// The document that a bench publishes. `settings` and `runs` differ between benches;
/// `docs/schema/` has a schema for each bench.
#[derive(Debug, Serialize)]
struct Document<S: Serialize, R: Serialize> {
    bench: &'static str,
    command: Vec<String>,
    started_unix_s: u64,
    machine: Machine,
    settings: S,
    runs: R,
    /// Whether a signal ended the measurement. If so, the figures cover the time until the signal.
    interrupted: bool,
}

/// The words of the command line, with the program's name instead of its path.
fn command() -> Vec<String> {
    let words = std::env::args().skip(1);
    std::iter::once("auster".to_string()).chain(words).collect()
}

/// The directory of `--out`, if there is one.
pub struct Results {
    dir: Option<PathBuf>,
}

impl Results {
    /// Refuses a directory that has results, unless `force` allows overwriting them.
    pub fn create(dir: Option<&Path>, force: bool) -> Result<Results, Failure> {
        if let Some(dir) = dir {
            std::fs::create_dir_all(dir).map_err(|e| Failure::file(dir, e))?;
            if dir.join(DOCUMENT).exists() && !force {
                return Err(Failure::file(dir, HAS_RESULTS));
            }
        }
        Ok(Results {
            dir: dir.map(Path::to_path_buf),
        })
    }

    /// Whether raw data is worth collecting.
    pub fn are_kept(&self) -> bool {
        self.dir.is_some()
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let Some(dir) = &self.dir else {
            return Ok(());
        };
        let path = dir.join(name);
        std::fs::write(&path, bytes).map_err(|e| Failure::file(path, e))
    }

    /// Writes the document, and the command that made it.
    pub fn document(&self, json: &str, command: &[String]) -> Result<(), Failure> {
        self.write(DOCUMENT, json.as_bytes())?;
        self.write("command.txt", (command.join(" ") + "\n").as_bytes())
    }

    /// Writes `name.svg`.
    pub fn plot(&self, name: &str, svg: &str) -> Result<(), Failure> {
        self.write(&format!("{name}.svg"), svg.as_bytes())
    }

    /// Writes `name.hgrm`: the percentiles of a histogram, for HdrHistogram's plotters.
    pub fn histogram(
        &self,
        name: &str,
        histogram: &Histogram<u64>,
        unit_scale: f64,
    ) -> Result<(), Failure> {
        let lines = stats::percentile_lines(histogram, unit_scale);
        self.write(&format!("{name}.hgrm"), lines.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_gets_all_and_no_directory_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("results/one");
        let output = OutputArgs {
            json: false,
            out: Some(dir.clone()),
            force: false,
        };
        let measurement = output.begin().unwrap();
        let results = &measurement.results;
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        histogram.record(7).unwrap();
        results.write("data.csv", b"a,b\n").unwrap();
        results.plot("latency", "<svg/>").unwrap();
        results.histogram("latency", &histogram, 1.0).unwrap();
        measurement
            .conclude("none", (), ([1, 2], true), "")
            .unwrap();
        let mut names: Vec<String> = std::fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "command.txt",
                "data.csv",
                "latency.hgrm",
                "latency.svg",
                "result.json"
            ]
        );
        let json = std::fs::read(dir.join("result.json")).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(
            (&json["runs"][1], &json["interrupted"]),
            (&2.into(), &true.into())
        );

        let nowhere = Results::create(None, false).unwrap();
        nowhere.write("data.csv", b"").unwrap();
        assert!(results.are_kept() && !nowhere.are_kept());
        let below_a_file = dir.join("data.csv/x");
        assert!(Results::create(Some(&below_a_file), true).is_err());
        let refused = output.begin().err().unwrap();
        assert!(refused.message().ends_with("or overwrite by --force"));
        assert!(Results::create(Some(&dir), true).is_ok());
        let before_any = parent.path().join("results");
        assert!(Results::create(Some(&before_any), false).is_ok());
    }
}
