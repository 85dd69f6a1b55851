//! `auster lab run` of an in-band scenario: control and data share a link, once with the queues
//! that `auster queues` sets and once without, by turns.

mod probe;
mod report;
pub(crate) mod settings;
mod stage;
mod wire;

use std::path::Path;

use sched::TrafficType;
use sched::policy::PolicyMap;

use crate::experiment::Args;
use crate::pso::in_band::report::{Cell, Classes, Document};
use crate::pso::in_band::settings::Scenario;
use crate::pso::in_band::stage::{Stage, Trial};
use ::report::machine::Machine;
use ::report::output::Results;
use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::output::say;
use cli::signals::Signals;
use testbed::plane::Transport;
use testbed::tools;

pub use settings::is_ours;

pub fn run(args: &Args) -> Result<(), Failure> {
    let scenario = Scenario::read(&args.scenario)?;
    let mut settings = scenario.in_band;
    if args
        .transport
        .is_some_and(|transport| transport != Transport::Quic)
    {
        return Err(Failure::usage(
            "--transport: in-band relays speak QUIC, a connection to each code point",
        ));
    }
    if args.quick {
        settings = settings.quick()?;
    }
    settings.runs = args.runs.unwrap_or(settings.runs);
    let beside = args.scenario.parent().unwrap_or(Path::new("."));
    let policy = beside.join(&settings.policy);
    let policy = std::path::absolute(&policy).map_err(|e| Failure::file(&policy, e))?;
    let map = auster::policy::load(&policy.to_string_lossy())?;
    tools::require_network_tools()?;
    let results = Results::create(args.out.as_deref())?;
    // Before anything that starts a thread; see `Signals::take`.
    let signals = Signals::take()?;
    let say = |line: &str| {
        if !args.json {
            say!("{line}");
        }
    };
    say(&scenario.title);
    let started_unix_s = unix_seconds();
    let mut stage = Stage::start(&settings, scenario.seed, &map, &policy, &signals)?;
    let classes = stage.probe_classes(&map)?;
    let mut trials: Vec<Trial> = Vec::new();
    'all: for run in 0..settings.runs {
        for load in settings.loads() {
            for has_queues in [true, false] {
                let trial = stage.run(load, has_queues, &signals)?;
                if trial.interrupted {
                    break 'all;
                }
                say(&report::line(run, &trial));
                trials.push(trial);
            }
        }
    }
    let interrupted = signals.seen();
    drop(stage.network);
    let cells = Cell::all(&settings, &trials);
    let checks = report::checks(&settings, &map, &cells, &classes, &trials);
    let document = Document {
        title: scenario.title,
        scenario: args.scenario.display().to_string(),
        command: ::report::output::command(),
        started_unix_s,
        machine: Machine::here(),
        passed: !interrupted && checks.iter().all(|check| check.passed),
        interrupted,
        wire: report::wire_rows(&trials),
        settings,
        classes,
        cells,
        checks,
        trials,
    };
    document.conclude(&results, args.json)
}

impl Stage {
    /// The code points of each class's messages on a quiet link, in each direction.
    fn probe_classes(&mut self, map: &PolicyMap) -> Result<Vec<Classes>, Failure> {
        let failed = |e: std::io::Error| Failure::machine(format!("messages of each class: {e}"));
        [
            TrafficType::Session,
            TrafficType::FlowSetup,
            TrafficType::Housekeeping,
        ]
        .into_iter()
        .map(|class| {
            let wire = self.probe(class).map_err(failed)?;
            Ok(Classes::new(class, map, &wire))
        })
        .collect()
    }
}
