//! Experiments on a control channel that breaks, on a real switch far from its controller: how long
//! until the first packet that the switch has no entry for is answered again, whether the switch's
//! own session survives, and what of its flow table is left.
//!
//! ```text
//!  h1 … h6 ── s1 ─┬─ ssl ─────────────────── rtt_ms ─── auster run        way `ssl`
//!                 └─ tcp ─ relay ── quic ─── rtt_ms ─── relay ─ auster run     `quic`
//! ```
//!
//! Every run has a network, controllers and relays of its own, and one event. Cells take turns, so
//! that what drifts on the machine drifts under all of them alike.

mod bed;
mod report;
pub(crate) mod settings;
mod trial;

use std::path::Path;
use std::time::Instant;

use crate::experiment::Args;
use ::report::machine::Machine;
use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::output::note;
use cli::progress::Progress;
use report::Document;
use settings::{Scenario, Settings};
use testbed::tools;
use trial::Trial;

/// Whether a scenario's file is one of these; what is wrong with it is told when it is read.
pub fn is_ours(scenario: &Path) -> bool {
    std::fs::read_to_string(scenario).is_ok_and(|text| settings::is_ours(&text))
}

pub fn run(args: &Args) -> Result<(), Failure> {
    if !args.is_auster() || args.transport.is_some() {
        return Err(Failure::usage(
            "--controller, --transport: this scenario brings its own",
        ));
    }
    if args.seconds.is_some() {
        return Err(Failure::usage(
            "--seconds: a run lasts until packets are answered again; see patience_s",
        ));
    }
    let scenario = Scenario::read(&args.scenario)?;
    let mut settings = scenario.reconnect;
    if args.quick {
        settings = settings.quick()?;
    }
    settings.bound(args.runs)?;
    tools::require_network_tools()?;
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out).map_err(|e| Failure::file(out, e))?;
    }
    let interrupt = Interrupt::take()?;
    let started_unix_s = unix_seconds();
    let (trials, failures) = run_all(&scenario.title, &settings, &interrupt)?;
    let rows = report::rows(&settings, &trials);
    let missing = settings.cells().len() - trials.len();
    let checks = report::checks(&settings.claims, &rows, missing);
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
        failures,
        settings,
    };
    report::conclude(args, &document, &trials)
}

/// What was found until the end, or until the interrupt, and what went wrong that is no finding. A run
/// that cannot be set up or carried out is begun again once: one fault of the machine is not to cost
/// all others.
fn run_all(
    title: &str,
    settings: &Settings,
    interrupt: &Interrupt,
) -> Result<(Vec<Trial>, Vec<String>), Failure> {
    let (progress, started) = (Progress::start(), Instant::now());
    let cells = settings.cells();
    note!("{title}: {} runs", cells.len());
    let (mut trials, mut failures) = (Vec::new(), Vec::new());
    for (number, cell) in cells.iter().enumerate() {
        progress.say(format_args!(
            "{} of {} runs, {:.0} s: {} by {}",
            number + 1,
            cells.len(),
            started.elapsed().as_secs_f64(),
            cell.event.name(),
            cell.way.name(),
        ));
        let mut run = || {
            trial::run(settings, *cell, interrupt).map_err(|failure| {
                let (event, way) = (cell.event.name(), cell.way.name());
                let failure = format!(
                    "run {} of {event} by {way}: {}",
                    cell.run,
                    failure.message()
                );
                note!("  {failure}");
                failures.push(failure);
            })
        };
        let trial = match run().or_else(|()| run()) {
            Ok(Some(trial)) => trial,
            Ok(None) => break,
            // Nothing works here.
            Err(()) if trials.is_empty() => {
                return Err(Failure::machine(failures.join("; ")));
            }
            Err(()) => continue,
        };
        progress.clear();
        note!(
            "  {:6.0} s  {}",
            started.elapsed().as_secs_f64(),
            trial.line()
        );
        trials.push(trial);
    }
    Ok((trials, failures))
}
