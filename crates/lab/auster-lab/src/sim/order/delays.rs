//! The gain of keyed mode: the delay of flow-mods with barriers between them, over a long path that
//! loses packets.

use clock::Duration;
use relay::OrderMode;
use sched::policy::PolicyMap;
use serde::Serialize;
use serde_json::json;
use sim::order::{Breaks, Carrier, Experiment, Network, RelayTerms, Traffic};

use super::{Args, RATE_BPS};
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::progress::Progress;
use cli::table::Columns;
use measure::stats;

/// Delay in one direction; the round trip is twice that.
const DELAY: Duration = Duration::from_millis(50);
/// Time from a lost packet until its second copy is sent: a round trip, and the packets behind it
/// that reveal the loss.
const RESEND: Duration = Duration::from_millis(103);
const PER_SECOND: f64 = 1_000.0;
const BARRIERS: [Option<u32>; 6] = [None, Some(1000), Some(500), Some(100), Some(20), Some(1)];
/// Flow-mods of a run; the same number of echoes goes in the other direction.
const FLOW_MODS: u64 = 20_000;

#[derive(Serialize)]
struct Row {
    order: &'static str,
    /// Messages from one barrier to the next; none: no barrier.
    barrier_every: Option<u32>,
    /// Mean and standard deviation of the means of the seeds.
    mean_ms: f64,
    sd_ms: f64,
    violations: u64,
    lost: u64,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let measurement = args.output.begin()?;
    let interrupt = Interrupt::take()?;
    let progress = Progress::start();
    let mut rows = Vec::new();
    for barrier_every in BARRIERS {
        for order in [OrderMode::Strict, OrderMode::Keyed] {
            if interrupt.is_set() {
                break;
            }
            let every = barrier_every.map_or("no barrier".to_owned(), |n| format!("every {n}"));
            progress.say(format_args!("{}, {every}", order.name()));
            rows.push(row(args, order, barrier_every));
        }
    }
    drop(progress);
    let wrong = rows.iter().filter(|row| row.violations + row.lost > 0);
    let wrong = wrong.count();
    let text = text(&rows);
    let settings = json!({
        "rtt_ms": 2e3 * DELAY.as_secs_f64(),
        "resend_ms": 1e3 * RESEND.as_secs_f64(),
        "loss_percent": args.loss,
        "flow_mods_per_s": PER_SECOND,
        "flow_mods": FLOW_MODS,
        "seeds": args.seeds,
    });
    measurement.conclude("order", settings, (rows, interrupt.is_set()), &text)?;
    super::judge(wrong, "rows")
}

fn row(args: &Args, order: OrderMode, barrier_every: Option<u32>) -> Row {
    let experiment = Experiment {
        messages: 2 * FLOW_MODS,
        traffic: Traffic::FlowMods { barrier_every },
        channels: 1,
        map: PolicyMap::paper(),
        carrier: Carrier::RelayPair,
        network: Network {
            rate_bps: RATE_BPS,
            delay: DELAY,
            jitter: Duration::ZERO,
            loss_ppm: (args.loss * 1e4) as u32,
            resend: RESEND,
            breaks: Breaks::Never,
        },
        relay: RelayTerms {
            order,
            ..RelayTerms::default()
        },
        load: PER_SECOND / Experiment::per_second_at_full_load(RATE_BPS),
    };
    let seeds = args.seed..args.seed.saturating_add(args.seeds);
    let reports: Vec<_> = seeds.map(|seed| experiment.run(seed)).collect();
    let means = reports.iter().map(|r| 1e3 * r.mean_delay().as_secs_f64());
    let summary = stats::Summary::of(means);
    Row {
        order: order.name(),
        barrier_every,
        mean_ms: summary.mean,
        sd_ms: summary.sd,
        violations: reports.iter().map(|r| r.violations).sum(),
        lost: reports.iter().map(|r| r.lost).sum(),
    }
}

fn text(rows: &[Row]) -> String {
    let each = |every: Option<u32>| every.map_or("none".to_owned(), |n| format!("each {n}"));
    Columns::of(rows)
        .text("barrier", |row| each(row.barrier_every))
        .text("order", |row| row.order)
        .number("mean ms", 1, |row| row.mean_ms)
        .number("sd", 1, |row| row.sd_ms)
        .text("violations", |row| row.violations)
        .text("lost", |row| row.lost)
        .table()
}
