//! A flow table that is too small, on real switches: Open vSwitch with a limit on its table, the
//! simulator's trace as real packets, and `auster run` with each of several configurations.
//!
//! Every run has a network and a controller of its own. Those of several policies may run at the
//! same time, as far as the scenario says that the machine can bear it. The report of a run
//! rests on frames on its wires and on the switch's own counts. From the controller it takes only
//! the number of paths without room.

mod judge;
mod load;
mod occupancy;
mod plots;
mod problems;
mod report;
pub(crate) mod settings;
pub mod setup;
mod simulated;
mod stage;
mod wire;

use std::path::Path;
use std::time::Instant;

use crate::experiment::Args;
use ::report::machine::Machine;
use ::report::output::command;
use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::output::note;
use cli::progress::Progress;
use testbed::tools;

use report::Document;
use settings::{Batch, Scenario, Settings};
use stage::{Place, Run};

/// Whether a scenario's file is one of these. Reading it reports its errors.
pub fn is_ours(scenario: &Path) -> bool {
    std::fs::read_to_string(scenario).is_ok_and(|text| settings::is_ours(&text))
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let is_auster = args
        .controller
        .as_deref()
        .is_none_or(|word| word == "auster");
    if !is_auster || args.transport.is_some() {
        return Err(Failure::usage(
            "--controller, --transport: this scenario brings its own, over plain TCP",
        ));
    }
    let scenario = Scenario::read(&args.scenario)?;
    let mut settings = scenario.table;
    if args.quick {
        settings = settings.quick()?;
    }
    settings.bound(args.runs, args.seconds)?;
    tools::require_network_tools()?;
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out).map_err(|e| Failure::file(out, e))?;
    }
    let interrupt = Interrupt::take()?;
    let batches = settings.batches();
    let expected_s = batches.len() as f64 * (settings.seconds + stage::BESIDE_S);
    note!(
        "{}: {} runs, about {:.0} min",
        scenario.title,
        batches
            .iter()
            .map(|batch| batch.policies.len())
            .sum::<usize>(),
        (expected_s / 60.0).ceil()
    );
    let started_unix_s = unix_seconds();
    let runs = run_all(&settings, &batches, &interrupt)?;
    let places: Vec<Place> = runs.iter().map(|run| run.place).collect();
    let simulated = simulated::misses_per_flow(&settings, &places);
    let rows = report::rows(&settings, &runs, &simulated);
    let checks = report::checks(&settings, &rows);
    let interrupted = interrupt.is_set();
    let document = Document {
        title: scenario.title,
        scenario: args.scenario.display().to_string(),
        command: command(),
        started_unix_s,
        machine: Machine::here(),
        passed: !interrupted && checks.iter().all(|check| check.passed),
        interrupted,
        checks,
        rows,
        settings,
    };
    report::conclude(args, &document, &runs)
}

/// The results until the end, or until the interrupt.
fn run_all(
    settings: &Settings,
    batches: &[Batch],
    interrupt: &Interrupt,
) -> Result<Vec<Run>, Failure> {
    let (progress, started) = (Progress::start(), Instant::now());
    let mut runs: Vec<Run> = Vec::new();
    for (number, batch) in batches.iter().enumerate() {
        let names: Vec<&str> = (batch.policies.iter())
            .map(|policy| settings.policies[*policy].name.as_str())
            .collect();
        let cells = &settings.cells[batch.cells];
        let of = format!("{} entries, load {}", cells.entries, batch.load);
        progress.say(format_args!(
            "{} of {}, {:.0} s: {of}: {}",
            number + 1,
            batches.len(),
            started.elapsed().as_secs_f64(),
            names.join(", ")
        ));
        let found = run_batch(settings, batch, interrupt)?;
        let is_whole = found.len() == batch.policies.len();
        progress.clear();
        for run in &found {
            note!(
                "  {:6.0} s  {of}, {}: {} entries at most, {:.2} misses per flow, {} lost of {}",
                started.elapsed().as_secs_f64(),
                settings.policies[run.place.policy].name,
                run.entries_max(),
                run.misses_per_flow(),
                run.judged.lost,
                run.sent
            );
        }
        runs.extend(found);
        if !is_whole {
            break;
        }
    }
    Ok(runs)
}

/// All at once; of one that was interrupted nothing.
fn run_batch(
    settings: &Settings,
    batch: &Batch,
    interrupt: &Interrupt,
) -> Result<Vec<Run>, Failure> {
    let place = |policy: &usize| Place {
        cells: batch.cells,
        policy: *policy,
        load: batch.load,
        round: batch.round,
    };
    let found: Vec<Result<Option<Run>, Failure>> = std::thread::scope(|scope| {
        let one = |policy| scope.spawn(move || stage::run(settings, place(policy), interrupt));
        let threads: Vec<_> = batch.policies.iter().map(one).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|found| found.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let found: Result<Vec<Option<Run>>, Failure> = found.into_iter().collect();
    Ok(found?.into_iter().flatten().collect())
}
