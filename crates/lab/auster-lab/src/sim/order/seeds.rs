//! One order mode with many seeds: a row for each seed and window. There are as many concurrent
//! runs as processors.

use std::time::Instant;

use relay::OrderMode;
use sched::policy::PolicyMap;
use serde::Serialize;
use serde_json::json;
use sim::order::{Breaks, Carrier, Experiment, RelayTerms, Report, Traffic, with_domains};

use super::{Args, Found, UNORDERED_MESSAGES, found_columns, network, verdict};
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::parallel;
use cli::progress::Progress;
use cli::table::Columns;

/// The smallest window. A window with room takes a whole message, so with one byte a channel has
/// one message in flight.
const SMALLEST_BYTES: usize = 1;

#[derive(Clone, Copy)]
struct Run {
    seed: u64,
    window_bytes: usize,
    carrier: Carrier,
}

#[derive(Serialize)]
struct Row {
    seed: u64,
    window_bytes: usize,
    /// Whether the order layer was present; without it, violations are expected.
    ordered: bool,
    #[serde(flatten)]
    found: Found,
    deadlocked: bool,
    wall_s: f64,
    right: bool,
}

/// Parses `smallest`, `default` or a number of bytes.
pub fn window(word: &str) -> Result<usize, String> {
    match word {
        "smallest" => Ok(SMALLEST_BYTES),
        "default" => Ok(RelayTerms::default().window_bytes),
        _ => word.parse().ok().filter(|bytes| *bytes > 0).ok_or_else(|| {
            format!("'{word}' is no window; write smallest, default or a number of bytes")
        }),
    }
}

pub fn run(args: &Args, order: OrderMode) -> Result<(), Failure> {
    let measurement = args.output.begin()?;
    let interrupt = Interrupt::take()?;
    let seeds = args.seed..args.seed.saturating_add(args.seeds);
    let windows = args.window.iter().copied();
    let runs = windows.flat_map(|window_bytes| {
        seeds.clone().map(move |seed| Run {
            seed,
            window_bytes,
            carrier: Carrier::RelayPair,
        })
    });
    // A run in which nothing keeps the order, to check the judge.
    let blind = Run {
        seed: args.seed,
        window_bytes: RelayTerms::default().window_bytes,
        carrier: Carrier::RelayPairUnheld,
    };
    let runs: Vec<Run> = runs.chain([blind]).collect();
    let (progress, count) = (Progress::start(), runs.len());
    progress.say(format_args!("0 of {count} runs"));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let rows: Vec<Row> = parallel::each(
        &runs,
        threads,
        || interrupt.is_set(),
        |run| run.row(args, order),
        |number, row| {
            let (seed, violations) = (row.seed, row.found.violations);
            progress.say(format_args!(
                "{number} of {count} runs; seed {seed}: {violations} violations"
            ));
        },
    );
    drop(progress);
    let wrong = rows.iter().filter(|row| !row.right).count();
    let text = text(&rows);
    let settings = json!({
        "order": order.name(),
        "messages": args.messages,
        "seeds": args.seeds,
        "reconnects": args.reconnects,
        "windows_bytes": args.window,
        "channels": args.channels,
        "loss_percent": args.loss,
        "load": super::LOAD,
    });
    measurement.conclude("order", settings, (rows, interrupt.is_set()), &text)?;
    super::judge(wrong, "runs")
}

impl Run {
    fn row(self, args: &Args, order: OrderMode) -> Row {
        let started = Instant::now();
        let report = self.experiment(args, order).run(self.seed);
        let right = self.is_right(args, &report);
        Row {
            seed: self.seed,
            window_bytes: self.window_bytes,
            ordered: self.is_ordered(),
            deadlocked: report.is_deadlocked,
            wall_s: started.elapsed().as_secs_f64(),
            found: report.into(),
            right,
        }
    }

    fn experiment(self, args: &Args, order: OrderMode) -> Experiment {
        let map = PolicyMap::paper();
        let messages = match self.is_ordered() {
            true => args.messages,
            false => args.messages.min(UNORDERED_MESSAGES),
        };
        Experiment {
            messages,
            traffic: match order {
                OrderMode::Strict => Traffic::Strict,
                OrderMode::Keyed => Traffic::Keyed,
            },
            channels: args.channels,
            map: match order {
                OrderMode::Strict => map,
                OrderMode::Keyed => with_domains(map),
            },
            carrier: self.carrier,
            network: network(args.loss, Breaks::Times(args.reconnects)),
            relay: RelayTerms {
                window_bytes: self.window_bytes,
                is_copied: false,
                order,
            },
            load: super::LOAD,
        }
    }

    fn is_ordered(self) -> bool {
        self.carrier == Carrier::RelayPair
    }

    /// Whether the run ended complete and in order; or, where nothing keeps the order, out of
    /// order.
    fn is_right(self, args: &Args, report: &Report) -> bool {
        let is_whole = report.lost == 0
            && report.sent == args.messages
            && report.delivered + report.shed == report.sent
            && report.breaks == args.reconnects;
        match self.is_ordered() {
            true => report.violations == 0 && !report.is_deadlocked && is_whole,
            false => report.violations > 0,
        }
    }
}

fn text(rows: &[Row]) -> String {
    let yes_no = |is: bool| if is { "yes" } else { "no" };
    let columns = Columns::of(rows)
        .text("seed", |row| row.seed)
        .text("window", |row| row.window_bytes);
    found_columns(columns, |row| (row.ordered, &row.found))
        .text("reconnects", |row| row.found.breaks)
        .text("deadlock", |row| yes_no(row.deadlocked))
        .number("virtual s", 1, |row| row.found.virtual_s)
        .number("wall s", 1, |row| row.wall_s)
        .text("digest", |row| &row.found.digest)
        .text("verdict", |row| verdict(row.right))
        .table()
}
