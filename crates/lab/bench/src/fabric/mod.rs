//! `auster bench fabric`: emulated switches with tables form a network, and packets are followed
//! hop by hop through what the controller set there.
//!
//! `net` is the network, `switch` one of its switches, `walk` the packets on their journey, `pairs`
//! and `load` the conversations: all without sockets and clocks. `emulator` puts the switches on
//! connections, `run` leads a run through its phases, `events` lets links, switches, hosts and the
//! controller change, `report` writes.

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

    /// How the conversations go
    #[arg(long, value_enum, default_value = "pairs")]
    workload: Workload,

    /// The network, in the words of 'auster lab', with 1 to 1024 switches; of several, each
    /// is measured in every round, and figures are drawn over the number of switches
    #[arg(long = "topology", value_name = "WORDS", default_value = "linear,4")]
    topologies: Vec<String>,

    /// Hosts of each switch that has hosts
    #[arg(long, value_name = "N", default_value_t = 256)]
    hosts: usize,

    /// Ports of such a switch that they are behind, 1 to 48
    #[arg(long, value_name = "N", default_value_t = 3)]
    host_ports: usize,

    /// The choice of destinations
    #[arg(long, value_enum, default_value = "uniform")]
    pairs: pairs::Choice,

    /// Measure pairs of hosts behind one switch too, in each round
    #[arg(long)]
    same_switch: bool,

    /// First packets of each switch that may be under way
    #[arg(long, value_name = "N", default_value_t = 8)]
    window: u32,

    /// First packets a second, over all switches, whatever the controller does [default: a window;
    /// 200 for failures, moves and restart]
    #[arg(long, value_name = "N", conflicts_with = "window")]
    rate: Option<f64>,

    /// Also so many times what was delivered with a window, one run for each, between two seconds
    /// of a tenth of it
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

    /// Events, for the same; the last of failures is a switch
    #[arg(long, value_name = "N", default_value_t = 5)]
    events: u32,

    /// How hosts make themselves known [default: keepalive, for --workload arp and moves arp]
    #[arg(long, value_enum)]
    announce: Option<Announce>,

    /// Rounds; in each, every controller is measured once
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,

    /// How long each run is measured
    #[arg(short = 'd', long, value_name = "SECONDS", default_value_t = 5.0)]
    duration: f64,

    /// Load before the measuring
    #[arg(short = 'w', long, value_name = "SECONDS", default_value_t = 1.0)]
    warmup: f64,

    /// A first packet that takes longer is lost; a path has twice the time
    #[arg(long, value_name = "MS", default_value_t = 2000.0)]
    timeout: f64,

    /// A pause after the links are known, and one without changes after the hosts are
    #[arg(long, value_name = "MS", default_value_t = 1000.0)]
    settle: f64,

    /// The longest to wait for LLDP over every link, and for that pause
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    discovery_max: f64,

    /// Between two echo requests of a switch
    #[arg(long, value_name = "MS", default_value_t = 500.0)]
    echo_interval: f64,

    /// Decides the pairs and the events
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// The process of a controller that runs on this machine, to see what it uses
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
    /// The same, but the host asks for the other by ARP, and the packet waits for the answer
    Arp,
    /// Hosts move to other switches
    Moves,
    /// Links and switches fail and come back
    Failures,
    /// The controller is killed and started again
    Restart,
    /// Pairs without and with broadcasts beside them
    Storm,
}

impl Workload {
    /// The network or its controller changes under the load.
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
