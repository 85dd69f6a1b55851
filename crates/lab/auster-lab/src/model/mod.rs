//! `auster model`: the cost in bytes of carrying messages, by the published equations and by a
//! model of the real stacks, with the figures that `scenarios/channel-*.toml` measure.

mod against;
mod paper;
mod scenario;
mod table;
mod wire;

use std::path::{Path, PathBuf};

use serde::Serialize;

use self::scenario::{BUILT_IN, HostEntry, PaperEntry, Scenario, WireEntry};
use bench::channel::method::RELAY_WIRE;
use cli::failure::Failure;
use report::output::OutputArgs;

#[derive(clap::Args)]
pub struct Args {
    /// The scenario to model [default: scenarios/overhead.toml as it was built in]
    #[arg(value_name = "SCENARIO.toml")]
    scenario: Option<PathBuf>,
    /// Equations 1 to 5 of the quicSDN paper, with three readings of its law of bursts; without
    /// --paper and --wire, both models
    #[arg(long)]
    paper: bool,
    /// The bytes that TCP, TLS and QUIC really put on the wire
    #[arg(long)]
    wire: bool,
    /// Compare each run in this result.json of scenarios/channel-*.toml with the model of --wire.
    /// The exit code is 1 if one differs by more than 10 %
    #[arg(long, value_name = "RESULT.json")]
    against: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Settings {
    title: String,
    paper: Option<PaperEntry>,
    wire: Option<WireEntry>,
    host: HostEntry,
    against: Option<String>,
}

#[derive(Default, Serialize)]
struct Runs {
    paper: Option<paper::Figures>,
    cells: Vec<wire::CellResult>,
    against: Option<against::Comparison>,
}

/// Reads a scenario of overhead without computing anything.
pub fn check(path: &Path) -> Result<(), Failure> {
    scenario::read(path).map(drop)
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let scenario = match &args.scenario {
        Some(path) => scenario::read(path)?,
        None => Scenario::parse(BUILT_IN).expect("a test parses it"),
    };
    let measured = match &args.against {
        Some(path) => Some(against::Measured::read(path)?),
        None => None,
    };
    // With measurements, the cells come from them.
    let has_paper = args.paper || (!args.wire && measured.is_none());
    let has_wire = measured.is_none() && (args.wire || !args.paper);
    let measurement = args.output.begin()?;
    let results = &measurement.results;
    let mut text = scenario.title.clone() + "\n\n";
    let mut runs = Runs::default();
    if has_paper {
        let figures = paper::Figures::of(&scenario.paper);
        text += &figures.text(&scenario.paper);
        figures.plot(&scenario.paper, results)?;
        runs.paper = Some(figures);
    }
    if has_wire {
        let cells = wire::cells(&scenario.wire).map_err(Failure::usage)?;
        runs.cells = wire::run(&cells, scenario.host, RELAY_WIRE)?;
        text += &wire::text(&runs.cells);
        wire::plot(&runs.cells, results)?;
    }
    if let Some(measured) = &measured {
        let comparison = against::Comparison::of(measured, scenario.host)?;
        text += &comparison.text();
        runs.against = Some(comparison);
    }
    results.write("table.txt", text.as_bytes())?;
    let outside = runs
        .against
        .as_ref()
        .map_or(0, against::Comparison::outside);
    let settings = Settings {
        title: scenario.title,
        paper: has_paper.then_some(scenario.paper),
        wire: has_wire.then_some(scenario.wire),
        host: scenario.host,
        against: args.against.as_ref().map(|path| path.display().to_string()),
    };
    measurement.conclude("model", settings, (runs, false), &text)?;
    match outside {
        0 => Ok(()),
        n => Err(Failure::negative(format!(
            "in {n} cells the model is more than {} % from what was measured",
            against::TOLERANCE_PERCENT
        ))),
    }
}
