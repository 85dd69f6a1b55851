//! `auster bench cbench`: cbench's command line and output in front of the engine of
//! `auster bench controller`, so that an old script runs and its numbers can be trusted.

use std::time::Duration;

use net::method::Method;
use net::tls::Security;
use openflow::Version;

use super::Workload;
use super::attack::Attack;
use super::conduct::{Conductor, Run};
use super::outstanding::Wanted;
use super::plan::{Interval, Mode, Plan};
use super::settings::{SWITCHES_MAX, whole};
use super::switch::{Announce, Profile, Traffic};
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::output::{note, say};
use cli::progress::Progress;
use measure::stats::Summary;

/// cbench's flags, for scripts that have them: OpenFlow 1.0, TCP, buffered packets.
///
/// The engine is that of `auster bench controller`: answers are verified and each packet-in counts
/// once, the destination is announced when the controller is ready for it, and every source is sent
/// once before the first loop. Messages that are no answer are reported on standard error.
#[derive(clap::Args)]
pub struct Args {
    /// The controller's host
    #[arg(short = 'c', long, value_name = "HOST", default_value = "localhost")]
    controller: String,

    /// Print more on standard error
    #[arg(short = 'd', long)]
    debug: bool,

    /// Loops of each test
    #[arg(short = 'l', long, value_name = "N", default_value_t = 16)]
    loops: u32,

    /// Source addresses of each switch
    #[arg(short = 'M', long, value_name = "N", default_value_t = 100_000)]
    mac_addresses: u32,

    /// Length of a loop
    #[arg(short = 'm', long, value_name = "MS", default_value_t = 1000)]
    ms_per_test: u32,

    /// The controller's port
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = 6633)]
    port: u16,

    /// Test with 1, 2, ... up to all switches
    #[arg(short = 'r', long)]
    ranged_test: bool,

    /// Emulated switches
    #[arg(short = 's', long, value_name = "N", default_value_t = 16)]
    switches: u32,

    /// Send many packet-ins at once instead of one at a time
    #[arg(short = 't', long)]
    throughput: bool,

    /// Loops at the start that do not count
    #[arg(short = 'w', long, value_name = "N", default_value_t = 1)]
    warmup: u32,

    /// Loops at the end that do not count
    #[arg(short = 'C', long, value_name = "N", default_value_t = 0)]
    cooldown: u32,

    /// Wait this long after the switches have been asked for their features
    #[arg(short = 'D', long, value_name = "MS", default_value_t = 0)]
    delay: u32,

    /// Pause between groups of connecting switches
    #[arg(short = 'i', long, value_name = "MS", default_value_t = 0)]
    connect_delay: u32,

    /// Switches in each group
    #[arg(short = 'I', long, value_name = "N", default_value_t = 1)]
    connect_group_size: u32,

    /// No effect: the destination always announces itself here
    #[arg(short = 'L', long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    learn_dst_macs: Option<String>,

    /// Datapath id of the first switch
    #[arg(short = 'o', long, value_name = "N", default_value_t = 1)]
    dpid_offset: u64,
}

/// cbench keeps 64 KiB of packet-ins in its buffer.
const WINDOW: usize = 800;
/// Time for learning; more than cbench's own patience, which has no end.
const LEARN_MAX: Duration = Duration::from_secs(60);

pub fn run(args: &Args) -> Result<(), Failure> {
    let plan = plan(args)?;
    cli::process::raise_file_limit();
    let interrupt = Interrupt::take()?;
    let first = if args.ranged_test { 1 } else { args.switches };
    for switches in first..=args.switches {
        let plan = Plan {
            switch_count: switches as u16,
            thread_count: plan.thread_count.min(switches as usize),
            ..plan.clone()
        };
        let progress = Progress::start();
        let conductor = Conductor {
            plan: &plan,
            title: "cbench",
            interrupt: &interrupt,
            progress: &progress,
            server: None,
        };
        let run = conductor.run()?;
        progress.clear();
        if switches == first {
            say_settings(args);
        }
        tell(args, switches, &run);
        if let Some(failure) = run.death() {
            return Err(failure);
        }
        if interrupt.is_set() {
            break;
        }
    }
    Ok(())
}

fn plan(args: &Args) -> Result<Plan, Failure> {
    let switch_count = whole("-s", args.switches, 1, SWITCHES_MAX)?;
    let macs = whole("-M", args.mac_addresses, 1, super::layout::SOURCES_MAX)?;
    let loops = whole("-l", args.loops, 1, 100_000)?;
    let ms = whole("-m", args.ms_per_test, 10, 86_400_000)?;
    whole("-I", args.connect_group_size, 1, u32::from(u16::MAX))?;
    if u64::from(args.warmup) + u64::from(args.cooldown) >= u64::from(loops) {
        let (warmup, cooldown) = (args.warmup, args.cooldown);
        return Err(Failure::usage(format!(
            "-w {warmup} and -C {cooldown} leave nothing of -l {loops} loops"
        )));
    }
    let text = format!("tcp:{}:{}", args.controller, args.port);
    let method: Method = text.parse().map_err(Failure::usage)?;
    let window = if args.throughput {
        WINDOW.min(macs as usize)
    } else {
        1
    };
    let learn_window = WINDOW.min(macs as usize);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Plan {
        method,
        security: Security::plain(),
        profile: Profile {
            version: Version::V10,
            is_buffered: true,
            wanted: Wanted::Any,
            window,
            learn_window,
            in_flight_max: learn_window,
            timeout_ns: 1_000_000_000,
            settle_ns: u64::from(args.delay.max(200)) * 1_000_000,
            ready_max_ns: 5_000_000_000,
            announce: Announce::Arp,
            traffic: Traffic::ToDestination,
        },
        switch_count: switch_count as u16,
        port_count: 4,
        source_count: macs,
        dpid_first: args.dpid_offset,
        thread_count: cores,
        connect_group: args.connect_group_size,
        connect_pause: Duration::from_millis(args.connect_delay.into()),
        mode: match args.throughput {
            true => Mode::Throughput,
            false => Mode::Latency,
        },
        workload: Workload::Macs,
        storm_rate: 0.0,
        attack: Attack::default(),
        learn_max: LEARN_MAX,
        warmup: Duration::ZERO,
        interval: Duration::from_millis(ms.into()),
        interval_count: loops,
        echo_interval: Duration::from_secs(1),
    })
}

fn say_settings(args: &Args) {
    let mode = if args.throughput {
        "throughput"
    } else {
        "latency"
    };
    let range = if args.ranged_test { " from 1 to" } else { "" };
    note!("cbench: controller benchmarking tool");
    note!("   running in mode '{mode}'");
    note!(
        "   connecting to controller at {}:{}",
        args.controller,
        args.port
    );
    note!(
        "   faking{range} {} switches offset {} :: {} tests each; {} ms per test",
        args.switches,
        args.dpid_offset,
        args.loops,
        args.ms_per_test
    );
    note!(
        "   with {} unique source MACs per switch",
        args.mac_addresses
    );
    note!("   learning destination mac addresses before the test");
    note!(
        "   starting test with {} ms delay after features_reply",
        args.delay
    );
    note!(
        "   ignoring first {} \"warmup\" and last {} \"cooldown\" loops",
        args.warmup,
        args.cooldown
    );
    note!(
        "   connection delay of {}ms per {} switch(es)",
        args.connect_delay,
        args.connect_group_size
    );
    let debug = if args.debug { "on" } else { "off" };
    note!("   debugging info is {debug}");
}

fn tell(args: &Args, switches: u32, run: &Run) {
    for interval in &run.measured.intervals {
        say!("{}", loop_line(switches, interval));
    }
    let counted = counted(args, &run.measured.intervals);
    say!("{}", result_line(switches, &counted));
    let faults = run.measured.tally.faults();
    if !faults.is_empty() {
        note!(
            "not counted, of {} packet-ins: {faults}",
            run.measured.tally.sent
        );
    }
    if args.debug || run.measured.busiest() > 0.9 {
        let busiest = run.measured.busiest();
        note!("the generator's busiest thread used {busiest:.2} of a core");
    }
}

fn loop_line(switches: u32, interval: &Interval) -> String {
    let mut answered = interval.answered.clone();
    answered.sort_unstable();
    let counts: String = answered
        .iter()
        .map(|(_, count)| format!("{count}  "))
        .collect();
    let per_ms = interval.rate() / 1e3;
    format!("{switches:<3} switches: flows/sec:  {counts} total = {per_ms:.6} per ms ")
}

/// The rates of the loops between warm-up and cool-down.
fn counted(args: &Args, intervals: &[Interval]) -> Vec<f64> {
    let rates = intervals.iter().map(Interval::rate);
    let end = args.loops.saturating_sub(args.cooldown) as usize;
    rates.take(end).skip(args.warmup as usize).collect()
}

/// Formats the result line. The standard deviation is the population's, as in cbench.
fn result_line(switches: u32, rates: &[f64]) -> String {
    let summary = Summary::of(rates.iter().copied());
    let count = rates.len() as f64;
    let deviation = summary.sd * ((count - 1.0).max(0.0) / count.max(1.0)).sqrt();
    let Summary { min, max, mean, .. } = summary;
    format!(
        "RESULT: {switches} switches {} tests min/max/avg/stdev = \
         {min:.2}/{max:.2}/{mean:.2}/{deviation:.2} responses/s",
        rates.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_that_scripts_read() {
        let interval = Interval {
            elapsed: Duration::from_millis(500),
            answered: vec![(1, 30), (0, 20)],
        };
        assert_eq!(
            loop_line(2, &interval),
            "2   switches: flows/sec:  20  30   total = 0.100000 per ms "
        );
        assert_eq!(
            result_line(2, &[100.0, 300.0]),
            "RESULT: 2 switches 2 tests min/max/avg/stdev = 100.00/300.00/200.00/100.00 responses/s"
        );
    }
}
