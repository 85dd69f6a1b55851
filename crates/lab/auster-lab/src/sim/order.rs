//! `auster sim order`: sends random messages through a relay pair and judges them by the law of
//! order, under every discipline, or in one order mode with many seeds.

mod delays;
mod seeds;

use clock::Duration;
use relay::OrderMode;
use sched::policy::{Algorithm, PolicyMap};
use serde::Serialize;
use serde_json::{Value as Json, json};
use sim::order::{Breaks, Carrier, Experiment, Network, RelayTerms, Report, Traffic};

use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::progress::Progress;
use cli::table::Columns;
use report::output::OutputArgs;

#[derive(clap::Args)]
pub struct Args {
    /// Order that the relays keep among state changes, with many seeds; without it, strict order
    /// under every discipline
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Seeds for --mode, starting at --seed
    #[arg(
        long, value_name = "NUMBER", default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=10_000)
    )]
    seeds: u64,
    /// Times that the connection breaks and is resumed in each run of --mode
    #[arg(
        long, value_name = "NUMBER", default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(0..=500), requires = "mode"
    )]
    reconnects: u64,
    /// Bytes in flight per channel and direction, with --mode: smallest, default or a number
    #[arg(
        long, value_name = "WINDOW", default_value = "default", value_delimiter = ',',
        value_parser = seeds::window, requires = "mode"
    )]
    window: Vec<usize>,
    /// Measure the delay of flow-mods instead, in strict and in keyed mode, by interval of
    /// barriers, at a round trip of 100 ms
    #[arg(long, conflicts_with_all = ["mode", "messages", "channels"])]
    delays: bool,
    /// The number of messages per discipline or seed, over all channels and both directions
    #[arg(
        long, value_name = "NUMBER", default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u64).range(1_000..=100_000_000)
    )]
    messages: u64,
    /// Connections, alternating between OpenFlow 1.3 and 1.0
    #[arg(
        long, value_name = "NUMBER", default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..=256)
    )]
    channels: u16,
    /// Packet loss of the network
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0)]
    loss: f64,
    /// The seed of everything random; the same seed gives the same result
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// All state changes stay in order
    Strict,
    /// Changes for the same addresses stay in order; wider changes, with all others
    Keyed,
}

#[derive(Serialize)]
struct Row {
    scheduler: &'static str,
    carrier: &'static str,
    /// Whether the order layer was present; without it, violations are expected.
    ordered: bool,
    #[serde(flatten)]
    found: Found,
    /// Whether a second run with the same seed gave the same result, instant by instant.
    repeats: bool,
}

/// The result of one run.
#[derive(Serialize)]
struct Found {
    sent: u64,
    delivered: u64,
    shed: u64,
    lost: u64,
    violations: u64,
    examples: Vec<String>,
    overtaken: u64,
    breaks: u64,
    virtual_s: f64,
    digest: String,
}

/// The number of messages of a run without the order layer: enough to see the order break.
const UNORDERED_MESSAGES: u64 = 20_000;

const RATE_BPS: u64 = 20_000_000;
const DELAY: Duration = Duration::from_millis(5);
const JITTER: Duration = Duration::from_millis(5);
const RESEND: Duration = Duration::from_millis(25);
const BREAK_EVERY: Duration = Duration::from_millis(150);
const LOAD: f64 = 0.9;

pub fn run(args: &Args) -> Result<(), Failure> {
    if !(0.0..=50.0).contains(&args.loss) {
        return Err(Failure::usage("--loss is 0 to 50 percent"));
    }
    match args.mode {
        _ if args.delays => return delays::run(args),
        Some(Mode::Strict) => return seeds::run(args, OrderMode::Strict),
        Some(Mode::Keyed) => return seeds::run(args, OrderMode::Keyed),
        None => {}
    }
    let measurement = args.output.begin()?;
    let interrupt = Interrupt::take()?;
    let progress = Progress::start();
    let mut rows = Vec::new();
    for algorithm in Algorithm::ALL {
        let name = algorithm.name();
        let plain = RelayTerms::default();
        let copied = RelayTerms {
            is_copied: true,
            ..plain
        };
        let least = RelayTerms {
            window_bytes: 1,
            ..plain
        };
        let carriers = [
            (Carrier::RelayPair, "relay pair", true, plain),
            (Carrier::RelayPair, "relay pair, copies", true, copied),
            (Carrier::RelayPair, "relay pair, least window", true, least),
            (Carrier::RelayPairUnheld, "relay pair", false, plain),
            (Carrier::SchedulerUnbound, "scheduler alone", false, plain),
        ];
        for (carrier, carrier_name, ordered, relay) in carriers {
            if interrupt.is_set() {
                break;
            }
            progress.say(format_args!("{name}, {carrier_name}, ordered: {ordered}"));
            let experiment = args.experiment(algorithm, carrier, relay);
            let report = experiment.run(args.seed);
            let repeats = experiment.run(args.seed) == report;
            rows.push(Row {
                scheduler: name,
                carrier: carrier_name,
                ordered,
                found: report.into(),
                repeats,
            });
        }
    }
    drop(progress);
    let wrong = rows.iter().filter(|row| !row.is_right()).count();
    let text = text(&rows);
    measurement.conclude("order", args.settings(), (rows, interrupt.is_set()), &text)?;
    judge(wrong, "runs")
}

impl Args {
    fn experiment(&self, algorithm: Algorithm, carrier: Carrier, relay: RelayTerms) -> Experiment {
        let mut map = PolicyMap::paper();
        map.scheduling.algorithm = algorithm;
        // With the smallest window, a channel has one message in flight: a round trip for each.
        let is_long = carrier == Carrier::RelayPair && relay.window_bytes > 1;
        Experiment {
            messages: match is_long {
                true => self.messages,
                false => self.messages.min(UNORDERED_MESSAGES),
            },
            traffic: Traffic::Strict,
            channels: self.channels,
            map,
            carrier,
            network: network(self.loss, Breaks::Every(BREAK_EVERY)),
            relay,
            load: LOAD,
        }
    }

    fn settings(&self) -> Json {
        json!({
            "messages": self.messages,
            "channels": self.channels,
            "loss_percent": self.loss,
            "seed": self.seed,
            "delay_ms": DELAY.as_secs_f64() * 1e3,
            "jitter_ms": JITTER.as_secs_f64() * 1e3,
            "rate_mbit": RATE_BPS as f64 / 1e6,
            "load": LOAD,
            "break_every_ms": BREAK_EVERY.as_secs_f64() * 1e3,
        })
    }
}

fn network(loss_percent: f64, breaks: Breaks) -> Network {
    Network {
        rate_bps: RATE_BPS,
        delay: DELAY,
        jitter: JITTER,
        loss_ppm: (loss_percent * 1e4) as u32,
        resend: RESEND,
        breaks,
    }
}

impl From<Report> for Found {
    fn from(report: Report) -> Found {
        Found {
            sent: report.sent,
            delivered: report.delivered,
            shed: report.shed,
            lost: report.lost,
            violations: report.violations,
            examples: report.examples,
            overtaken: report.overtaken,
            breaks: report.breaks,
            virtual_s: report.virtual_time.as_secs_f64(),
            digest: format!("{:016x}", report.digest),
        }
    }
}

impl Row {
    /// Whether the order is kept with the order layer and broken without it: otherwise the judge
    /// would detect nothing. A FIFO by itself always keeps the order.
    fn is_right(&self) -> bool {
        let found = &self.found;
        let is_kept = found.violations == 0;
        let must_be_kept = self.ordered || self.scheduler == "fifo" && self.carrier != "relay pair";
        let is_whole =
            !self.ordered || found.lost == 0 && found.delivered + found.shed == found.sent;
        self.repeats && is_kept == must_be_kept && is_whole
    }
}

fn judge(wrong: usize, what: &str) -> Result<(), Failure> {
    match wrong {
        0 => Ok(()),
        n => Err(Failure::negative(format!(
            "{n} {what} are not as they must be"
        ))),
    }
}

fn verdict(is_right: bool) -> &'static str {
    if is_right { "as it must be" } else { "WRONG" }
}

/// Adds the columns that all tables have: whether the order layer was present, and the results.
fn found_columns<'a, R>(columns: Columns<'a, R>, of: fn(&R) -> (bool, &Found)) -> Columns<'a, R> {
    let word = |row| if of(row).0 { "on" } else { "off" };
    columns
        .text("order layer", word)
        .text("sent", |row| of(row).1.sent)
        .text("delivered", |row| of(row).1.delivered)
        .text("shed", |row| of(row).1.shed)
        .text("lost", |row| of(row).1.lost)
        .text("violations", |row| of(row).1.violations)
        .text("overtaken", |row| of(row).1.overtaken)
}

fn text(rows: &[Row]) -> String {
    let columns = Columns::of(rows)
        .text("scheduler", |row| row.scheduler)
        .text("through", |row| row.carrier);
    found_columns(columns, |row| (row.ordered, &row.found))
        .text("breaks", |row| row.found.breaks)
        .number("virtual s", 2, |row| row.found.virtual_s)
        .text("digest", |row| &row.found.digest)
        .text("repeats", |row| if row.repeats { "yes" } else { "no" })
        .text("verdict", |row| verdict(row.is_right()))
        .table()
}
