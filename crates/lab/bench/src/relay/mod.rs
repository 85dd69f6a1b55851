//! `auster bench relay`: the number of OpenFlow messages a second that a pair of relays carries,
//! each end's cost of one message, and the cost of many switches to the controllers' relay.
//!
//! The relays are processes of this program, joined by QUIC with certificates at both ends, over
//! loopback. The bench writes packet-ins to the switch's relay as fast as it takes them, one or
//! many in a write, and counts them where the controller's relay delivers them.

mod load;
mod processes;
mod report;
pub mod switches;

use serde::Serialize;

use crate::certificates::Certificates;
use ::report::output::OutputArgs;
use cli::failure::Failure;
use cli::flag::whole;
use cli::interrupt::Interrupt;
use cli::progress::Progress;
use load::Load;
use processes::Relays;
use report::{Cell, Measured};

/// Measures a pair of relays over loopback: messages a second, CPU time of each end per message,
/// and memory per switch.
#[derive(clap::Args, Serialize)]
pub struct Args {
    /// Switches, each behind its own relay, all at one controllers' relay: 1 to 1000
    #[arg(
        short = 's', long, value_name = "N,N", value_delimiter = ',',
        default_value = "100,1000", value_parser = whole(1..=1000)
    )]
    switches: Vec<u32>,
    /// Messages per write of the switch
    #[arg(
        long, value_name = "N,N", value_delimiter = ',', default_value = "1,64",
        value_parser = whole(1..=1024)
    )]
    batch: Vec<u32>,
    /// Bytes per message
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = whole(100..=9000))]
    #[serde(rename = "message_bytes")]
    size: u32,
    /// Packet-ins a second of all switches together, where there are many
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = whole(100..=1_000_000))]
    #[serde(rename = "rate_per_s")]
    rate: u32,
    /// Runs per measurement
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = whole(1..=100))]
    runs: u32,
    /// Measurement time per run
    #[arg(short = 'd', long, value_name = "SECONDS", default_value_t = 5.0)]
    #[serde(rename = "duration_s")]
    duration: f64,
    /// Measure twice for 1 second, with at most 100 switches
    #[arg(long)]
    #[serde(skip)]
    quick: bool,
    #[command(flatten)]
    #[serde(skip)]
    output: OutputArgs,
}

pub fn run(mut args: Args) -> Result<(), Failure> {
    if !(0.1..=600.0).contains(&args.duration) {
        return Err(Failure::usage("--duration is 0.1 to 600 seconds"));
    }
    if args.quick {
        args.switches.iter_mut().for_each(|n| *n = (*n).min(100));
        (args.runs, args.duration) = (args.runs.min(2), 1.0);
    }
    let measurement = args.output.begin()?;
    cli::process::raise_file_limit();
    let interrupt = Interrupt::take()?;
    let progress = Progress::start();
    let switches_max = args.switches.iter().copied().max();
    let certificates = processes::certificates(switches_max.unwrap_or(1))?;
    let mut cells = Vec::new();
    let mut failed = None;
    for cell in args.cells() {
        let mut runs = Vec::new();
        for run in 1..=args.runs {
            if interrupt.is_set() || failed.is_some() {
                break;
            }
            progress.say(format_args!("{}: run {run}", cell.name()));
            match measure(&cell, &args, &certificates) {
                Ok(measured) => runs.push(measured),
                Err(failure) => failed = Some((format!("{}, run {run}", cell.name()), failure)),
            }
        }
        if !runs.is_empty() {
            cells.push((cell, runs));
        }
    }
    drop(progress);
    let failed = failed.map(|(step, failure)| crate::step_failed(&cells, &step, failure));
    let failed = failed.transpose()?;
    let rows = report::rows(&cells);
    report::keep(&measurement.results, &cells, &rows)?;
    let text = report::text(&rows);
    measurement.conclude("relay", &args, (rows, interrupt.is_set()), &text)?;
    failed.map_or(Ok(()), Err)
}

fn measure(cell: &Cell, args: &Args, certificates: &Certificates) -> Result<Measured, Failure> {
    let load = Load::new(cell, args)?;
    let relays = Relays::start(cell, certificates, load.sink_port())?;
    load.carry(&relays)
}

impl Args {
    /// One switch at full speed, for each number of messages in a write; then growing numbers of
    /// switches at a rate. These begin with one switch, the baseline for the others' memory.
    fn cells(&self) -> Vec<Cell> {
        let full = self.batch.iter().map(|batch| Cell {
            switches: 1,
            batch: *batch,
            rate_per_s: None,
        });
        let mut counts: Vec<u32> = self.switches.clone();
        counts.push(1);
        counts.sort_unstable();
        counts.dedup();
        let paced = counts.into_iter().map(|switches| Cell {
            switches,
            batch: 1,
            rate_per_s: Some(self.rate),
        });
        full.chain(paced).collect()
    }
}
