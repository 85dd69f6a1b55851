//! Experiments on a circuit under `auster run`, on real switches: it is admitted, keeps its rate
//! beside traffic that overfills its links, and moves when a link of its path fails; one that has
//! no room is refused.

mod report;
pub(crate) mod settings;
mod stream;
mod trial;

use std::path::Path;

use crate::experiment::Args;
use ::report::machine::Machine;
use ::report::output::{Results, command};
use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::output::{note, say};
use report::Document;
use settings::{Scenario, Settings};
use testbed::tools;
use trial::Trial;

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
    if args.seconds.is_some() {
        return Err(Failure::usage(
            "--seconds: a stream lasts as long as its failure; see before_s and after_s",
        ));
    }
    let scenario = Scenario::read(&args.scenario)?;
    let mut settings = scenario.qos_circuit;
    if args.quick {
        settings = settings.quick()?;
    }
    settings.bound(args.runs)?;
    tools::require_network_tools()?;
    let results = Results::create(args.out.as_deref())?;
    let interrupt = Interrupt::take()?;
    let say = |line: &str| {
        if !args.json {
            say!("{line}");
        }
    };
    say(&format!(
        "{}: {} runs, about {:.0} s",
        scenario.title,
        settings.runs,
        settings.expected().as_secs_f64()
    ));
    let started_unix_s = unix_seconds();
    let mut trials = Vec::new();
    for run in 0..settings.runs {
        let Some(trial) = run_steadily(&settings, run, &interrupt)? else {
            break;
        };
        say(&report::line(&trial));
        trials.push(trial);
    }
    let interrupted = interrupt.is_set();
    let checks = report::checks(&settings, &trials);
    let document = Document {
        title: scenario.title,
        scenario: args.scenario.display().to_string(),
        command: command(),
        started_unix_s,
        machine: Machine::here(),
        passed: !interrupted && checks.iter().all(|check| check.passed),
        interrupted,
        settings,
        checks,
        trials,
    };
    document.conclude(&results, args.json)
}

/// A sender that was later than this sends what it has missed at once, and what such a burst loses
/// has nothing to do with queues.
const SENDER_LATE_MS_MAX: f64 = 25.0;
/// Such a run is repeated so often, whatever was found in it.
const REPEATS_MAX: u32 = 2;

/// A run in which the machine was not elsewhere for long, if there is one; the last of them.
fn run_steadily(
    settings: &Settings,
    run: u32,
    interrupt: &Interrupt,
) -> Result<Option<Trial>, Failure> {
    let mut repeats = 0;
    loop {
        let Some(mut trial) = trial::run(settings, run, interrupt)? else {
            return Ok(None);
        };
        trial.repeats = repeats;
        let late_ms = trial.sender_late_ms;
        if late_ms <= SENDER_LATE_MS_MAX || repeats == REPEATS_MAX {
            return Ok(Some(trial));
        }
        note!("  a sender was {late_ms:.0} ms late: once more");
        repeats += 1;
    }
}
