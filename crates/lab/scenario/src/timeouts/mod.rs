//! Experiments on how long flow entries live, on real switches: what reaches a host out of order
//! because a packet took the path over the controller and those behind it did not.
//!
//! Every run has a network and a controller of its own, so that each begins with hosts that nobody
//! has heard of and tables that hold nothing, and cells take turns, so that what drifts on the
//! machine drifts under all of them alike. The controller is a child process, with a configuration
//! file per cell.

mod cell;
mod channel;
pub mod figures;
pub mod load;
mod plots;
mod problems;
mod report;
pub(crate) mod settings;
pub mod setup;
mod steps;

use std::path::Path;

use crate::experiment::Args;
use ::report::machine::Machine;
use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::output::note;
use report::Document;
use settings::Scenario;
use testbed::tools;

/// Whether a scenario's file is one of these. Reading it reports its errors.
pub fn is_ours(scenario: &Path) -> bool {
    std::fs::read_to_string(scenario).is_ok_and(|text| settings::is_ours(&text))
}

pub fn run(args: &Args) -> Result<(), Failure> {
    if !args.is_auster() || args.transport.is_some() {
        return Err(Failure::usage(
            "--controller, --transport: this scenario brings its own, over plain TCP",
        ));
    }
    let scenario = Scenario::read(&args.scenario)?;
    let mut settings = scenario.timeouts;
    if args.quick {
        settings = settings.quick()?;
    }
    settings.bound(args.runs, args.seconds)?;
    tools::require_network_tools()?;
    settings.require_tools()?;
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out).map_err(|e| Failure::file(out, e))?;
    }
    let interrupt = Interrupt::take()?;
    let steps = settings.steps();
    note!(
        "{}: {} runs, about {:.0} min",
        scenario.title,
        steps.len(),
        (settings.expected(&steps).as_secs_f64() / 60.0).ceil()
    );
    let started_unix_s = unix_seconds();
    let found = steps::run_all(&settings, &steps, &interrupt)?;
    let rows = figures::rows(&settings, &found);
    let checks = report::checks(&settings.claims, &rows);
    let interrupted = interrupt.is_set();
    let document = Document {
        title: scenario.title,
        scenario: args.scenario.display().to_string(),
        command: ::report::output::command(),
        started_unix_s,
        machine: Machine::here(),
        passed: !interrupted && checks.iter().all(|check| check.passed),
        interrupted,
        checks,
        rows,
        pings: figures::ping_rows(&settings, &found),
        settings,
    };
    report::conclude(args, &document, &found)
}
