//! Policies on many real switches: how long until all have confirmed all, what the same file sends
//! when it is read again, and how long a new process takes to find all as it is to be.

mod report;
pub(crate) mod settings;
mod setup;

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::experiment::Args;
use ::report::machine::Machine;
use ::report::output::{Results, command};
use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::output::say;
use cli::progress::Progress;
use report::Document;
use settings::{Scenario, Settings};
use setup::Setup;
use testbed::tools;

/// Whether a scenario's file is one of these. Reading it reports its errors.
pub fn is_ours(scenario: &Path) -> bool {
    std::fs::read_to_string(scenario).is_ok_and(|text| settings::is_ours(&text))
}

/// One run with this many policies.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    pub run: u32,
    pub policies: u16,
    /// Their entries on the switches when all were confirmed.
    pub entries: u64,
    /// From the signal that has the file read until every switch has confirmed every policy.
    pub apply_ms: f64,
    /// OpenFlow messages to the switches in that time.
    pub apply_messages: u64,
    /// In `watch_s` without a change.
    pub idle_messages: u64,
    /// In `watch_s` after the same file was read again.
    pub reload_messages: u64,
    /// From the start of a new process, after the first was killed, until it knows every switch and
    /// link.
    pub connect_ms: f64,
    /// Until it has found all of it as it is to be.
    pub reconcile_ms: f64,
    /// Entries that were not there when it had.
    pub reconcile_missing: u64,
    /// From the signal until the switches have none of it.
    pub remove_ms: f64,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    if !args.is_auster() || args.transport.is_some() {
        return Err(Failure::usage(
            "--controller, --transport: this scenario brings its own, over plain TCP",
        ));
    }
    let scenario = Scenario::read(&args.scenario)?;
    let mut settings = scenario.qos_scale;
    if args.quick {
        settings = settings.quick()?;
    }
    tools::require_network_tools()?;
    let results = Results::create(args.out.as_deref())?;
    let interrupt = Interrupt::take()?;
    let say = |line: &str| {
        if !args.json {
            say!("{line}");
        }
    };
    say(&scenario.title);
    let started_unix_s = unix_seconds();
    let trials = measure(&settings, &interrupt, &say)?;
    let interrupted = interrupt.is_set();
    let rows = report::rows(&settings, &trials);
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
        rows,
        trials,
    };
    document.conclude(&results, args.json)
}

/// The results until the end, or until the interrupt.
fn measure(
    settings: &Settings,
    interrupt: &Interrupt,
    say: &dyn Fn(&str),
) -> Result<Vec<Trial>, Failure> {
    let progress = Progress::start();
    progress.say(format_args!("{} switches are started", settings.switches));
    let mut setup = Setup::start(settings.switches, interrupt)?;
    let mut trials = Vec::new();
    // Counts take turns, so that what drifts on the machine drifts under all of them.
    for run in 0..settings.runs {
        for policies in &settings.policies {
            progress.say(format_args!(
                "run {} of {}: {policies} policies",
                run + 1,
                settings.runs
            ));
            let trial = trial(&mut setup, settings, run, *policies, interrupt)?;
            if interrupt.is_set() {
                return Ok(trials);
            }
            progress.clear();
            say(&report::line(&trial));
            trials.push(trial);
        }
    }
    Ok(trials)
}

fn trial(
    setup: &mut Setup,
    settings: &Settings,
    run: u32,
    policies: u16,
    interrupt: &Interrupt,
) -> Result<Trial, Failure> {
    let watch = Duration::from_secs_f64(settings.watch_s);
    setup.settle();
    setup.write(policies)?;
    let before = setup.messages()?;
    let started = Instant::now();
    setup.reload()?;
    setup.wait_installed(policies, interrupt)?;
    let apply_ms = milliseconds(started);
    let applied = setup.messages()?;
    let entries = setup.entries()?;
    setup.settle();
    let messages = |setup: &Setup| -> Result<u64, Failure> {
        let before = setup.messages()?;
        std::thread::sleep(watch);
        Ok(setup.messages()? - before)
    };
    let idle_messages = messages(setup)?;
    setup.reload()?;
    let reload_messages = messages(setup)?;

    let started = Instant::now();
    setup.replace_controller()?;
    setup.wait_until_known(interrupt)?;
    let connect_ms = milliseconds(started);
    setup.wait_installed(policies, interrupt)?;
    let reconcile_ms = milliseconds(started);
    let reconcile_missing = entries.saturating_sub(setup.entries()?);
    setup.settle();

    setup.write(0)?;
    let started = Instant::now();
    setup.reload()?;
    setup.wait_installed(0, interrupt)?;
    setup.wait_removed(interrupt)?;
    let remove_ms = milliseconds(started);
    Ok(Trial {
        run,
        policies,
        entries,
        apply_ms,
        apply_messages: applied - before,
        idle_messages,
        reload_messages,
        connect_ms,
        reconcile_ms,
        reconcile_missing,
        remove_ms,
    })
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
