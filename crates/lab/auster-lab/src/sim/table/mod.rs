//! Scenarios of `kind = "table"`: a flow table that is too small, under several policies.

mod report;
mod scenario;

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clock::SplitMix64;
use serde::Serialize;
use sim::table::{Outcome, occupancy_bound};

use self::scenario::{Kind, Place, PolicyEntry, Scenario};
use super::RunArgs;
use ::report::output::Document;
use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::progress::Progress;
use measure::stats::Summary;

#[derive(Serialize)]
struct Settings {
    scenario: String,
    seed: u64,
    runs: u64,
    seconds: f64,
    policies: Vec<PolicyEntry>,
}

#[derive(Serialize)]
struct Runs {
    cells: Vec<Cell>,
    verdicts: Vec<Verdict>,
}

/// All runs of one policy at one load of one table.
#[derive(Serialize)]
pub struct Cell {
    pub capacity: u32,
    pub load: f64,
    pub policy: String,
    pub kind: Kind,
    pub seconds: f64,
    pub flows: Summary,
    pub packets: Summary,
    /// Flows that go on, on average.
    pub alive: Summary,
    pub occupancy_mean: Summary,
    pub occupancy_max: Summary,
    /// Nine tenths, and what comes between two reads.
    pub occupancy_bound: Summary,
    /// Packets without an entry.
    pub misses: Summary,
    /// The misses of flows that had an entry before.
    pub misses_again: Summary,
    pub flow_mods: Summary,
    pub table_full: Summary,
    pub lost: Summary,
    pub evicted: Summary,
    pub evicted_active: Summary,
    /// Where more was in use than fits.
    pub evicted_pausing: Summary,
    pub evicted_pausing_active: Summary,
    pub all_in_use: Summary,
    pub coarse_entries: Summary,
    pub without_entry: Summary,
    pub reads: Summary,
    pub renewals: Summary,
    pub renewals_per_s_max: Summary,
    /// Entries at the end of each second of the first run.
    pub by_second: Vec<u32>,
}

/// Something that `lease` must keep.
#[derive(Serialize)]
pub struct Verdict {
    pub policy: String,
    pub demand: String,
    pub found: String,
    pub holds: bool,
}

/// Runs what is in `text`, the scenario file.
pub fn run(args: &RunArgs, text: &str) -> Result<(), Failure> {
    let problem = |problem| Failure::usage(format!("{}: {problem}", args.scenario.display()));
    let mut scenario = Scenario::parse(text).map_err(problem)?;
    scenario.runs = args.runs.unwrap_or(scenario.runs);
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    scenario.seconds = args.seconds.unwrap_or(scenario.seconds);
    if let Some(problem) = scenario.problems().first() {
        return Err(Failure::usage(problem));
    }
    let results = args.output.open()?;
    let interrupt = Interrupt::take()?;
    let started_unix_s = unix_seconds();
    let places = scenario.places();
    let outcomes = outcomes(&scenario, &places, &interrupt);
    let is_interrupted = interrupt.is_set();
    let cells: Vec<Cell> = (places.iter().zip(&outcomes))
        .map(|(place, outcomes)| Cell::of(place, outcomes))
        .collect();
    let verdicts = match is_interrupted {
        true => Vec::new(),
        false => verdicts(&scenario, &places, &outcomes),
    };
    let text = report::text(&scenario.title, &cells, &verdicts);
    results.write("cells.csv", report::csv(&cells).as_bytes())?;
    results.write("table.txt", text.as_bytes())?;
    report::plot(&cells, &results)?;
    let wrong = verdicts.iter().filter(|v| !v.holds).count();
    let settings = Settings {
        scenario: scenario.title.clone(),
        seed: scenario.seed,
        runs: scenario.runs,
        seconds: scenario.seconds,
        policies: scenario.policy.clone(),
    };
    let runs = Runs { cells, verdicts };
    let document = Document::new("table", started_unix_s, settings, runs, is_interrupted);
    args.output.conclude(&results, &document, &text)?;
    match wrong {
        0 => Ok(()),
        n => Err(Failure::negative(format!(
            "{n} demands on lease are not kept"
        ))),
    }
}

/// All runs of all places, over as many threads as there are cores. Each place has the same seeds:
/// what differs is not the trace.
fn outcomes(scenario: &Scenario, places: &[Place], interrupt: &Interrupt) -> Vec<Vec<Outcome>> {
    let mut draws = SplitMix64::new(scenario.seed);
    let seeds: Vec<u64> = (0..scenario.runs).map(|_| draws.next()).collect();
    let jobs = places.len() * seeds.len();
    let done: Vec<Mutex<Vec<(usize, Outcome)>>> =
        places.iter().map(|_| Mutex::new(Vec::new())).collect();
    let (next, progress) = (AtomicUsize::new(0), Progress::start());
    let work = || {
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            if job >= jobs || interrupt.is_set() {
                return;
            }
            progress.say(format_args!("run {} of {jobs}", job + 1));
            let (place, run) = (job / seeds.len(), job % seeds.len());
            let outcome = places[place].setup.run(seeds[run]);
            let mut done = done[place].lock().expect("no thread has panicked");
            done.push((run, outcome));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    drop(progress);
    let in_order = |done: Mutex<Vec<(usize, Outcome)>>| {
        let mut done = done.into_inner().expect("likewise");
        done.sort_by_key(|(run, _)| *run);
        done.into_iter().map(|(_, outcome)| outcome).collect()
    };
    done.into_iter().map(in_order).collect()
}

impl Cell {
    fn of(place: &Place, outcomes: &[Outcome]) -> Cell {
        let over = |read: &dyn Fn(&Outcome) -> f64| {
            let values: Vec<f64> = outcomes.iter().map(read).collect();
            Summary::of(&values)
        };
        let count = |read: fn(&Outcome) -> u64| over(&|outcome| read(outcome) as f64);
        Cell {
            capacity: place.capacity,
            load: place.load,
            policy: place.policy.name.clone(),
            kind: place.policy.kind,
            seconds: place.setup.duration.as_secs_f64(),
            flows: count(|o| o.flows),
            packets: count(|o| o.packets),
            alive: over(&|o| o.alive_mean),
            occupancy_mean: over(&|o| o.occupancy_mean),
            occupancy_max: count(|o| o.occupancy_max.into()),
            occupancy_bound: over(&|o| occupancy_bound(place.capacity, o).into()),
            misses: count(|o| o.misses),
            misses_again: count(|o| o.misses_again),
            flow_mods: count(|o| o.adds + o.deletes + o.counts.renewals),
            table_full: count(|o| o.table_full),
            lost: count(|o| o.lost),
            evicted: count(|o| o.evicted),
            evicted_active: count(|o| o.evicted_active),
            evicted_pausing: count(|o| o.evicted_pausing),
            evicted_pausing_active: count(|o| o.evicted_pausing_active),
            all_in_use: count(|o| o.counts.all_in_use),
            coarse_entries: count(|o| o.counts.coarse_entries),
            without_entry: count(|o| o.counts.without_entry),
            reads: count(|o| o.counts.reads),
            renewals: count(|o| o.counts.renewals),
            renewals_per_s_max: count(|o| o.counts.renewals_per_s_max),
            by_second: outcomes.first().map_or(Vec::new(), |o| o.by_second.clone()),
        }
    }
}

/// The demands on every run of a `lease`, with the verdict on each.
fn verdicts(scenario: &Scenario, places: &[Place], outcomes: &[Vec<Outcome>]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for policy in scenario.policy.iter().filter(|p| p.kind == Kind::Lease) {
        let runs = || {
            let places = places.iter().zip(outcomes);
            let places = places.filter(|(place, _)| place.policy.name == policy.name);
            places.flat_map(|(place, outcomes)| outcomes.iter().map(move |o| (place, o)))
        };
        let sum = |read: fn(&Outcome) -> u64| runs().map(|(_, o)| read(o)).sum::<u64>();
        let mut say = |demand: &str, found: String, holds: bool| {
            verdicts.push(Verdict {
                policy: policy.name.clone(),
                demand: demand.to_owned(),
                found,
                holds,
            });
        };
        let over = runs().filter(|(p, o)| o.occupancy_max > occupancy_bound(p.capacity, o));
        let shares = runs().map(|(p, o)| f64::from(o.occupancy_max) / f64::from(p.capacity));
        let most = 100.0 * shares.fold(0.0, f64::max);
        let over = over.count();
        say(
            "occupancy at most 0.9 of the table and what comes between two reads",
            format!("{over} runs above; most {most:.1} % of the table"),
            over == 0,
        );
        let (full, lost) = (sum(|o| o.table_full), sum(|o| o.lost));
        say(
            "no packet lost by TABLE_FULL",
            format!("{full} TABLE_FULL, {lost} lost"),
            lost == 0,
        );
        let fits = |(p, o): &(&Place, &Outcome)| o.alive_mean < 0.9 * f64::from(p.capacity);
        let active = |is_fitting: bool| {
            let of = runs().filter(|run| fits(run) == is_fitting);
            of.map(|(_, o)| o.evicted_active + o.evicted_pausing_active)
                .sum::<u64>()
        };
        let evicted = sum(|o| o.evicted + o.evicted_pausing);
        say(
            "no active flow evicted, but where more flows go on than fit",
            format!(
                "{} of {evicted}; {} where they do not fit",
                active(true),
                active(false)
            ),
            active(true) == 0,
        );
        if let Some(lease_s) = policy.lease_s {
            let cap = policy.renewals_max.map_or(u64::MAX, u64::from);
            let most = runs().map(|(_, o)| o.counts.renewals_per_s_max).max();
            let most = most.unwrap_or(0);
            let again = sum(|o| o.misses_again);
            say(
                "renewals within their rate",
                format!("at most {most} in a second, leases of {lease_s} s or longer"),
                most <= cap,
            );
            say(
                "no flow that sends loses its entry",
                format!("{again} packets without"),
                scenario.steady.is_none() || again == 0,
            );
        }
    }
    verdicts
}
