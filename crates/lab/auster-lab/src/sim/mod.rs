//! `auster sim`: the control channel under virtual time, with the scheduler that runs in
//! production. It reproduces what the published priority scheme found in its own simulator, and
//! shows what that leaves on the table.

mod fig10;
mod figures;
mod order;
mod report;
pub mod scenario;
mod table;

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clock::SplitMix64;
use sched::policy::PolicyMap;
use serde::Serialize;
use sim::channel::Setup;

use self::figures::{Cell, Gathering, Verdict};
use self::scenario::{Scenario, Variant};
use ::report::output::{Document, OutputArgs};
use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::progress::Progress;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Simulate a control channel or a flow table: its behaviour by load, for each configuration
    #[command(after_help = "\
Example:
  auster sim run scenarios/pso-fig7-8.toml
  auster sim run scenarios/pso-fig9.toml --runs 5 --json
  auster sim run scenarios/pso-disciplines.toml -o results/disciplines
  auster sim run scenarios/table-pressure.toml")]
    Run(RunArgs),
    /// Send random messages through a relay pair with loss, delay and breaks, by every discipline,
    /// and judge what comes out by the law of order
    #[command(after_help = "\
Example:
  auster sim order
  auster sim order --mode keyed --seeds 20 --reconnects 100 --window smallest,default
  auster sim order --delays --loss 1 --seeds 5
  auster sim order --messages 100000 --channels 16 --loss 5 --seed 7 --json")]
    Order(order::Args),
    /// Print the published model's cost of matching, and time our classifier beside it
    #[command(after_help = "\
Example:
  auster sim fig10
  auster sim fig10 --runs 50 -o results/fig10")]
    Fig10(fig10::Args),
}

#[derive(clap::Args)]
pub struct RunArgs {
    /// The scenario to simulate
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,
    /// Runs of each cell, each with a seed of its own, instead of the scenario's
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    runs: Option<u64>,
    /// Virtual time of each run, instead of the scenario's
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// Instead of the scenario's
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run(args) => simulate(&args),
        Command::Order(args) => order::run(&args),
        Command::Fig10(args) => fig10::run(&args),
    }
}

#[derive(Serialize)]
struct Settings {
    scenario: String,
    seed: u64,
    runs: u64,
    seconds: f64,
    policy: String,
    variants: Vec<VariantSettings>,
}

#[derive(Serialize)]
struct VariantSettings {
    name: String,
    scheduler: scenario::SchedulerEntry,
    below_bytes: usize,
    queue_messages: usize,
}

#[derive(Serialize)]
struct Runs {
    cells: Vec<Cell>,
    verdicts: Vec<Verdict>,
}

/// A map from its text, which stands in the scenario; all that is wrong with it in one line.
fn policy(text: &str) -> Result<PolicyMap, String> {
    match PolicyMap::parse(text) {
        Ok((map, _)) => Ok(map),
        Err(problems) => {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Err(problems.join("; "))
        }
    }
}

fn simulate(args: &RunArgs) -> Result<(), Failure> {
    let path = &args.scenario;
    let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
    if scenario::kind(&text).as_deref() == Some("table") {
        return table::run(args, &text);
    }
    if scenario::kind(&text).as_deref() == Some("overhead") {
        return Err(Failure::usage(format!(
            "{}: its kind is overhead: auster model reads it",
            path.display()
        )));
    }
    let problem = |problem| Failure::usage(format!("{}: {problem}", path.display()));
    let mut scenario = Scenario::parse(&text).map_err(problem)?;
    scenario.runs = args.runs.unwrap_or(scenario.runs);
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    if let Some(seconds) = args.seconds {
        if !(0.01..=3600.0).contains(&seconds) {
            return Err(Failure::usage("--seconds is 0.01 to 3600"));
        }
        scenario.seconds = seconds;
    }
    let results = args.output.open()?;
    let interrupt = Interrupt::take()?;
    let started_unix_s = unix_seconds();
    let cells = cells(&scenario, &interrupt)?;
    let is_interrupted = interrupt.is_set();
    let verdicts = match is_interrupted {
        true => Vec::new(),
        false => verdicts(&scenario, &cells),
    };
    let text = report::text(&scenario.title, &cells, &verdicts);
    results.write("runs.csv", report::csv(&cells).as_bytes())?;
    results.write("table.txt", text.as_bytes())?;
    report::plot(&scenario.title, &cells, &results)?;
    let wrong = verdicts
        .iter()
        .filter(|v| !v.holds && v.but.is_none())
        .count();
    let settings = Settings {
        scenario: scenario.title.clone(),
        seed: scenario.seed,
        runs: scenario.runs,
        seconds: scenario.seconds,
        policy: scenario.policy.clone(),
        variants: scenario.variant.iter().map(VariantSettings::of).collect(),
    };
    let runs = Runs { cells, verdicts };
    let document = Document::new("sim", started_unix_s, settings, runs, is_interrupted);
    args.output.conclude(&results, &document, &text)?;
    match wrong {
        0 => Ok(()),
        n => Err(Failure::negative(format!(
            "{n} figures are not as expected"
        ))),
    }
}

impl VariantSettings {
    fn of(variant: &Variant) -> VariantSettings {
        VariantSettings {
            name: variant.name.clone(),
            scheduler: variant.scheduler,
            below_bytes: variant.below_bytes,
            queue_messages: variant.queue_messages,
        }
    }
}

/// All runs of all variants at all loads, over as many threads as there are cores. What a run
/// gives depends on its seed alone.
fn cells(scenario: &Scenario, interrupt: &Interrupt) -> Result<Vec<Cell>, Failure> {
    let mut places: Vec<(&Variant, f64, Setup)> = Vec::new();
    for variant in &scenario.variant {
        for load in &scenario.loads {
            let setup = scenario.setup(variant, *load).map_err(Failure::usage)?;
            places.push((variant, *load, setup));
        }
    }
    let gatherings = places.iter().map(|(variant, load, setup)| {
        Mutex::new(Gathering::new(variant, *load, setup, &scenario.target))
    });
    let gatherings: Vec<Mutex<Gathering>> = gatherings.collect();
    // The same seeds in every cell: what differs is not the luck.
    let mut draws = SplitMix64::new(scenario.seed);
    let seeds: Vec<u64> = (0..scenario.runs).map(|_| draws.next()).collect();
    let jobs = gatherings.len() * seeds.len();
    let (next, progress) = (AtomicUsize::new(0), Progress::start());
    let work = || {
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            if job >= jobs || interrupt.is_set() {
                return;
            }
            progress.say(format_args!("run {} of {jobs}", job + 1));
            let (place, run) = (job / seeds.len(), job % seeds.len());
            let outcome = places[place].2.run(seeds[run]);
            let mut gathering = gatherings[place].lock().expect("no thread has panicked");
            gathering.add(run as u64 + 1, seeds[run], &outcome);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    drop(progress);
    let finish = |gathering: Mutex<Gathering>| gathering.into_inner().expect("likewise").finish();
    Ok(gatherings.into_iter().map(finish).collect())
}

fn verdicts(scenario: &Scenario, cells: &[Cell]) -> Vec<Verdict> {
    let of = |expect: &scenario::Expectation| {
        let mut cells = cells.iter();
        let cell = cells.find(|c| c.variant == expect.variant && c.load == expect.load)?;
        Some(cell.verdict(expect))
    };
    scenario.expect.iter().filter_map(of).collect()
}
