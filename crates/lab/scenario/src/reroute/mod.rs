//! Experiments on a way that changes under traffic, on real switches: what a stream between two
//! hosts loses and what of it is overtaken when a cable is cut, when it is mended, and when the
//! administrator takes a link out.
//!
//! ```text
//!  h1 ── s1 ══ from_ms ══ s3 ── h3     the way that the stream begins on: one hop
//!         ╚═ to_ms ═ s2 ══╝            the other one
//! ```
//!
//! Every run has a network and a controller of its own, and two changes: there, and back. Cells take
//! turns, so that what drifts on the machine drifts under all of them alike.

mod cell;
mod part;
mod plots;
mod problems;
mod report;
pub(crate) mod settings;

use std::path::Path;
use std::time::Instant;

use crate::experiment::Args;
use ::report::machine::Machine;
use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::output::note;
use cli::progress::Progress;
use part::Part;
use report::Document;
use settings::{Scenario, Settings};
use testbed::tools;

/// Whether a scenario's file is one of these; what is wrong with it is told when it is read.
pub fn is_ours(scenario: &Path) -> bool {
    std::fs::read_to_string(scenario).is_ok_and(|text| settings::is_ours(&text))
}

pub fn run(args: &Args) -> Result<(), Failure> {
    if !args.is_auster() || args.transport.is_some() {
        return Err(Failure::usage(
            "--controller, --transport: this scenario brings its own, over plain TCP",
        ));
    }
    if args.seconds.is_some() {
        return Err(Failure::usage(
            "--seconds: a stream lasts as long as its changes; see before_s and after_s",
        ));
    }
    let scenario = Scenario::read(&args.scenario)?;
    let mut settings = scenario.reroute;
    if args.quick {
        settings = settings.quick()?;
    }
    settings.bound(args.runs)?;
    tools::require_network_tools()?;
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out).map_err(|e| Failure::file(out, e))?;
    }
    let interrupt = Interrupt::take()?;
    let cells = settings.cells();
    note!(
        "{}: {} runs, about {:.0} min",
        scenario.title,
        cells.len(),
        (settings.expected().as_secs_f64() / 60.0).ceil()
    );
    let started_unix_s = unix_seconds();
    let parts = run_all(&settings, &interrupt)?;
    let rows = report::rows(&settings, &parts);
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
        settings,
    };
    report::conclude(args, &document, &parts)
}

/// A sender that was later than this sends what it has missed at once, and what such a burst loses
/// has nothing to do with the change.
const SENDER_LATE_MS_MAX: f64 = 25.0;
/// Such a run is repeated so often, whatever was found in it.
const REPEATS_MAX: u32 = 2;

/// A run in which the machine was not elsewhere for long, if there is one; the last of them.
fn run_steadily(
    settings: &Settings,
    cell: settings::Cell,
    interrupt: &Interrupt,
) -> Result<Option<[Part; 2]>, Failure> {
    let mut repeats = 0;
    loop {
        let Some(mut parts) = cell::run(settings, cell, interrupt)? else {
            return Ok(None);
        };
        parts.iter_mut().for_each(|part| part.repeats = repeats);
        let late_ms = parts[0].sender_late_ms.max(parts[1].sender_late_ms);
        if late_ms <= SENDER_LATE_MS_MAX || repeats == REPEATS_MAX {
            return Ok(Some(parts));
        }
        note!("  the sender was {late_ms:.0} ms late: once more");
        repeats += 1;
    }
}

/// What was found until the end, or until the interrupt.
fn run_all(settings: &Settings, interrupt: &Interrupt) -> Result<Vec<Part>, Failure> {
    let (progress, started) = (Progress::start(), Instant::now());
    let cells = settings.cells();
    let mut parts: Vec<Part> = Vec::new();
    for (number, cell) in cells.iter().enumerate() {
        progress.say(format_args!(
            "{} of {} runs, {:.0} s: {}, {} Mbit/s",
            number + 1,
            cells.len(),
            started.elapsed().as_secs_f64(),
            settings.changes[cell.change].there,
            cell.rate_mbps,
        ));
        if interrupt.is_set() {
            break;
        }
        let Some(found) = run_steadily(settings, *cell, interrupt)? else {
            break;
        };
        progress.clear();
        for part in &found {
            note!(
                "  {:6.0} s  {}, {} Mbit/s, run {}: {} lost, {} reordered of {}",
                started.elapsed().as_secs_f64(),
                part.row,
                part.rate_mbps,
                part.run + 1,
                part.lost,
                part.reordered,
                part.sent
            );
        }
        parts.extend(found);
    }
    Ok(parts)
}
