//! Experiments on queues of a port: two UDP flows that do not fit, once through queues that
//! `auster queues` has set, and once through those of Open vSwitch alone.
//!
//! All that auster does is done by its own commands, as an operator would: `queues set` before a
//! run, `queues verify` under it, `queues clear` after it.

pub mod circuit;
mod controlled;
mod entries;
pub mod killed;
pub mod paper;
mod records;
mod report;
pub mod scale;
pub(crate) mod settings;
mod setup;

use cli::program;
use std::path::Path;
use std::process::{Command, Output};

use crate::experiment::Args;
use ::report::machine::Machine;
use ::report::output::{Results, command};
use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::output::say;
use report::Document;
use settings::Scenario;
use setup::{QueueMaker, Setup, Trial};
use testbed::network::{Network, SWITCHES};
use testbed::tools;

/// Whether a scenario's file is one of these. Reading it reports its errors.
pub fn is_ours(scenario: &Path) -> bool {
    std::fs::read_to_string(scenario).is_ok_and(|text| settings::is_ours(&text))
}

pub fn run(args: &Args) -> Result<(), Failure> {
    if !args.is_auster() || args.transport.is_some() {
        return Err(Failure::usage(
            "--controller, --transport: this scenario has flow entries and no controller",
        ));
    }
    let scenario = Scenario::read(&args.scenario)?;
    let mut settings = scenario.qos_queues;
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
    say(&format!(
        "{}: {} runs, about {:.0} min",
        scenario.title,
        settings.trials(),
        (settings.expected().as_secs_f64() / 60.0).ceil()
    ));
    let started_unix_s = unix_seconds();
    let mut setup = Setup::start(&settings)?;
    let mut trials: Vec<Trial> = Vec::new();
    // Ways and cases take turns, so that what drifts on the machine drifts under all of them.
    'all: for run in 0..settings.runs {
        for case in &settings.cases {
            for way in QueueMaker::ALL {
                if interrupt.is_set() {
                    break 'all;
                }
                let trial = setup.run(run, case, way, &interrupt)?;
                if interrupt.is_set() {
                    break 'all;
                }
                say(&report::line(&trial));
                trials.push(trial);
            }
        }
    }
    drop(setup);
    let interrupted = interrupt.is_set();
    let rows = report::rows(&settings, &trials);
    let checks = report::checks(&settings, &rows, &trials);
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

/// `auster queues` of a switch's port, where the switch is.
fn queues(network: &Network, port: &str, words: &[&str]) -> Result<Output, Failure> {
    let database = format!("unix:{}", network.dir().join("db.sock").display());
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &network.namespace(SWITCHES)]);
    command.arg(program::auster()?).arg("queues").args(words);
    command.args(["--port", port, "--db", &database]);
    command
        .output()
        .map_err(|e| Failure::machine(format!("ip netns exec: {e}")))
}

fn check(what: &str, output: &Output) -> Result<(), Failure> {
    match output.status.success() {
        true => Ok(()),
        false => Err(Failure::machine(format!(
            "{what}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}
