//! `auster bench fabric`: emulated switches with tables form a network, and the bench follows
//! packets hop by hop through the entries and groups that the controller set.
//!
//! `net` is the network, `switch` one of its switches, `walk` the forwarding of packets, `pairs`
//! and `load` the conversations: all without sockets and clocks. `emulator` connects the switches,
//! `run` takes a run through its phases, `events` changes links, switches, hosts and the
//! controller, and `report` writes the results.

mod emulator;
mod events;
mod load;
mod net;
mod pairs;
mod recovery;
mod report;
mod run;
mod settings;
mod switch;
mod walk;

use clap::ValueEnum;
use serde::Serialize;

use ::report::output::OutputArgs;
use cli::failure::Failure;
use cli::interrupt::Interrupt;

use crate::controller::SubjectArgs;
use crate::controller::switch::Announce;
use settings::Settings;

/// Measures an OpenFlow controller with a network of emulated switches that keep what it sets.
///
/// The switches speak OpenFlow 1.3, keep tables, groups, meters and timeouts, and are joined by
/// links that carry the controller's LLDP too. A first packet counts as delivered when it comes out
/// at its host's port, on whatever path, and a path as ready when the tables alone would carry a
/// packet from one host to the other.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    subjects: SubjectArgs,

    /// Traffic and events to emulate
    #[arg(long, value_enum, default_value = "pairs")]
    workload: Workload,

    /// The network, as for 'auster lab', with 1 to 1024 switches; repeat to measure several in
    /// every round, with figures over the number of switches
    #[arg(long = "topology", value_name = "WORDS", default_value = "linear,4")]
    topologies: Vec<String>,

    /// Hosts of each switch that has hosts
    #[arg(long, value_name = "N", default_value_t = 256)]
    hosts: usize,

    /// Ports of each switch that its hosts share, 1 to 48
    #[arg(long, value_name = "N", default_value_t = 3)]
    host_ports: usize,

    /// The choice of destinations
    #[arg(long, value_enum, default_value = "uniform")]
    pairs: pairs::Choice,

    /// Also measure pairs of hosts behind one switch, in each round
    #[arg(long)]
    same_switch: bool,

    /// First packets of each switch that may be in flight
    #[arg(long, value_name = "N", default_value_t = 8)]
    window: u32,

    /// First packets a second, over all switches, whatever the controller does [default: a window;
    /// 200 for failures, moves and restart]
    #[arg(long, value_name = "N", conflicts_with = "window")]
    rate: Option<f64>,

    /// Also run at these multiples of the rate delivered with a window, each between two seconds of
    /// a tenth of that rate
    #[arg(
        long,
        value_name = "N,N",
        value_delimiter = ',',
        conflicts_with = "rate"
    )]
    overload: Vec<f64>,

    /// Broadcasts a second, for --workload storm
    #[arg(long, value_name = "N", default_value_t = 1000.0)]
    storm_rate: f64,

    /// Conversations that events must not end, for --workload failures, moves and restart
    #[arg(long, value_name = "N", default_value_t = 1000)]
    conversations: usize,

    /// Events, for the same workloads; the last of failures is a switch's
    #[arg(long, value_name = "N", default_value_t = 5)]
    events: u32,

    /// How hosts announce themselves [default: keepalive, for --workload arp and moves arp]
    #[arg(long, value_enum)]
    announce: Option<Announce>,

    /// Rounds; in each, every controller is measured once
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,

    /// Measurement time per run
    #[arg(short = 'd', long, value_name = "SECONDS", default_value_t = 5.0)]
    duration: f64,

    /// Load before measuring
    #[arg(short = 'w', long, value_name = "SECONDS", default_value_t = 1.0)]
    warmup: f64,

    /// A first packet that takes longer counts as lost; a path has twice the time
    #[arg(long, value_name = "MS", default_value_t = 2000.0)]
    timeout: f64,

    /// Pause after the links are known, and time without changes after the hosts are known
    #[arg(long, value_name = "MS", default_value_t = 1000.0)]
    settle: f64,

    /// Longest wait for LLDP over every link, and for the time without changes
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    discovery_max: f64,

    /// Time between two echo requests of a switch
    #[arg(long, value_name = "MS", default_value_t = 500.0)]
    echo_interval: f64,

    /// Seed of the pairs and the events
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Process id of a controller on this machine, to measure its resource use
    #[arg(long, value_name = "PID")]
    pid: Option<i32>,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Each packet is the first of a pair of hosts behind different switches that have never spoken
    Pairs,
    /// Like pairs, but the host asks for the other by ARP first, and the packet waits for the
    /// answer
    Arp,
    /// Hosts move to other switches
    Moves,
    /// Links and switches fail and recover
    Failures,
    /// The controller is killed and restarted
    Restart,
    /// Like pairs, without and with broadcasts
    Storm,
}

impl Workload {
    /// Whether the network or its controller changes under the load.
    fn has_events(self) -> bool {
        matches!(
            self,
            Workload::Moves | Workload::Failures | Workload::Restart
        )
    }
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let settings = Settings::resolve(args)?;
    let measurement = args.output.begin()?;
    cli::process::raise_file_limit();
    let interrupt = Interrupt::take()?;
    args.output.say(format_args!("{}", settings.headline()));
    let rounds = settings::measure(&settings, &interrupt)?;
    report::conclude(&measurement, &settings, &rounds)
}
