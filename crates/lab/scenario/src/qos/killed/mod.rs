//! Experiments on a controller that is killed while it sets up queues, policies and circuits, on
//! real switches: what is there then is whole or absent, a new process makes it whole, and nothing
//! of anybody else's is touched.

mod chatter;
mod found;
mod report;
mod rounds;
pub(crate) mod settings;

use std::path::Path;

use crate::experiment::Args;
use ::report::machine::Machine;
use ::report::output::{Results, command};
use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::output::say;
use report::Document;
use rounds::Rounds;
use settings::{ROUND_S, Scenario};
use testbed::tools;

/// Whether a scenario's file is one of these. Reading it reports its errors.
pub fn is_ours(scenario: &Path) -> bool {
    std::fs::read_to_string(scenario).is_ok_and(|text| settings::is_ours(&text))
}

pub fn run(args: &Args) -> Result<(), Failure> {
    if !args.is_auster() || args.transport.is_some() || args.seconds.is_some() {
        return Err(Failure::usage(
            "--controller, --transport, --seconds: this scenario brings its own controller, over \
             plain \
             TCP, and takes as long as its rounds; --runs says how many",
        ));
    }
    let scenario = Scenario::read(&args.scenario)?;
    let mut settings = scenario.qos_killed;
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
        "{}: {} rounds of seed {}, about {:.0} min",
        scenario.title,
        settings.rounds,
        settings.seed,
        (f64::from(settings.rounds) * ROUND_S / 60.0).ceil()
    ));
    let started_unix_s = unix_seconds();
    let (mut found, mut extent) = (Vec::new(), None);
    if let Some(mut rounds) = Rounds::begin(&settings, &interrupt)? {
        extent = Some(rounds.extent());
        for number in 0..settings.rounds {
            // The seed alone repeats the moments, which a machine meets as well as it can.
            let failed = |failure: Failure| {
                let words = failure.message();
                Failure::negative(format!(
                    "round {}, seed {}: {words}",
                    number + 1,
                    settings.seed
                ))
            };
            let Some(round) = rounds.run(number).map_err(failed)? else {
                break;
            };
            say(&report::line(&round));
            found.push(round);
        }
    }
    let interrupted = interrupt.is_set();
    let checks = report::checks(&settings, &found);
    let document = Document {
        title: scenario.title,
        scenario: args.scenario.display().to_string(),
        command: command(),
        started_unix_s,
        machine: Machine::here(),
        passed: !interrupted && checks.iter().all(|check| check.passed),
        interrupted,
        settings,
        extent,
        totals: report::totals(&found),
        checks,
        rounds: found,
    };
    document.conclude(&results, args.json)
}
