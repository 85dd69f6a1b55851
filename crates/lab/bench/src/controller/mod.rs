//! `auster bench controller`: emulated switches send messages to a controller, and its answers are
//! verified, counted and timed.
//!
//! `switch` is one emulated switch without sockets or clocks, `links` the traffic between two;
//! `serve` and `worker` put a switch on a connection and a thread; `conduct` takes a run through
//! its phases; `rounds` runs controllers in turn; `report` writes the results.

pub(super) mod answers;
mod attack;
pub mod cbench;
mod churn;
mod conduct;
mod layout;
mod links;
mod outstanding;
pub(super) mod plan;
pub(super) mod report;
pub(super) mod rounds;
pub mod scale;
mod serve;
pub(super) mod settings;
pub(super) mod switch;
mod tally;
pub(super) mod target;
pub(super) mod wire;
pub(super) mod worker;

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use openflow::Version;
use serde::Serialize;

use crate::certificates::CredentialArgs;
use ::report::output::OutputArgs;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use outstanding::Wanted;
use settings::{SWITCHES_MAX, Settings};
use switch::Announce;

/// Measures an OpenFlow controller with emulated switches: what it answers, how soon, and whether
/// the answers are right.
///
/// Every packet-in carries a number, and an answer counts when it is for a packet-in that waits,
/// goes out of the port where the destination announced itself, and comes in time. Wrong, late,
/// second and missing answers and floods are counted apart. The destination is announced only when
/// the controller is done setting the switch up, and all sources are sent once before the clock
/// starts.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    subjects: SubjectArgs,

    /// How to send packet-ins: a window per switch, one at a time, or at a rate
    #[arg(long, value_enum, default_value = "throughput")]
    mode: ModeArg,

    /// Packet-ins a second over all switches, for --mode open
    #[arg(long, value_name = "N")]
    rate: Option<f64>,

    /// The messages that the switches send
    #[arg(long, value_enum, default_value = "macs")]
    workload: Workload,

    /// Packet-ins a second of the storm, for --workload storm [default: 100000]
    #[arg(long, value_name = "N")]
    storm_rate: Option<f64>,

    /// Packet-ins a second of the attacker, for --workload attack [default: as many as the
    /// connection takes]
    #[arg(long, value_name = "N")]
    attack_rate: Option<f64>,

    /// Let the attacker read its messages, for --workload attack
    #[arg(long)]
    attack_reads: bool,

    /// Datapath id of the first switch: another bench may use those from 1 at the same controller.
    /// Several controllers take 0 for "none"
    #[arg(long, value_name = "N", default_value_t = 1)]
    dpid_first: u64,

    /// Source hosts of the attacker's packets, for --workload attack [default: --macs]
    #[arg(long, value_name = "N")]
    attack_hosts: Option<u32>,

    /// Emulated switches, 1 to 10000
    #[arg(short = 's', long, value_name = "N", default_value_t = 16)]
    switches: u32,

    /// Hosts behind each switch that send to one destination
    #[arg(short = 'M', long, value_name = "N", default_value_t = 1000)]
    macs: u32,

    /// Ports of each switch: the destination is behind the first, the sources behind the others
    #[arg(long, value_name = "N", default_value_t = 4)]
    ports: u32,

    /// Packet-ins of a switch that may await an answer in --mode throughput [default: 512, at most
    /// the number of hosts]
    #[arg(long, value_name = "N")]
    window: Option<usize>,

    /// OpenFlow version
    #[arg(long, value_parser = versions(), default_value = "1.3")]
    of: Version,

    /// Let switches keep the packets and send a buffer id with them, as cbench's do
    #[arg(long)]
    buffered: bool,

    /// The messages that count as an answer
    #[arg(long, value_enum, default_value = "any")]
    answer: Wanted,

    /// How the destination announces itself [default: arp, from 257 switches on keepalive]
    #[arg(long, value_enum)]
    announce: Option<Announce>,

    /// Rounds; in each, every controller is measured once
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,

    /// Measurement time per controller and round
    #[arg(short = 'd', long, value_name = "SECONDS", default_value_t = 5.0)]
    duration: f64,

    /// Load before measuring, in each round
    #[arg(short = 'w', long, value_name = "SECONDS", default_value_t = 1.0)]
    warmup: f64,

    /// Longest time for the controller to answer every host once, before --warmup
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    learn_max: f64,

    /// Longest time for the controller to learn where a destination is
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    ready_max: f64,

    /// An answer that takes longer counts as late, and its packet-in as missing
    #[arg(long, value_name = "MS", default_value_t = 1000.0)]
    timeout: f64,

    /// Silence required after the controller's last set-up message
    #[arg(long, value_name = "MS", default_value_t = 200.0)]
    settle: f64,

    /// Time between two echo requests of a switch, while the load runs
    #[arg(long, value_name = "MS", default_value_t = 1000.0)]
    echo_interval: f64,

    /// Threads that emulate switches [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Start each command once, not for every round
    #[arg(long)]
    keep: bool,

    /// Process id of a controller on this machine, to measure its resource use
    #[arg(long, value_name = "PID")]
    pid: Option<i32>,

    #[command(flatten)]
    credentials: CredentialArgs,

    #[command(flatten)]
    output: OutputArgs,
}

// The controllers to measure. A doc comment would become the help of the command.
#[derive(clap::Args)]
pub struct SubjectArgs {
    /// The controller: tcp:HOST[:PORT], ssl: or quic:; omit it with --start
    #[arg(value_name = "TARGET")]
    pub target: Option<String>,

    /// Start this command as the controller; {port} in it becomes a free port. Put "ssl: " or
    /// "quic: " before it for that transport
    #[arg(long, value_name = "CMD", conflicts_with = "target")]
    pub start: Option<String>,

    /// Another controller to measure in turn with the first: a command as for --start, or the
    /// method of a running one. Repeat for more
    #[arg(long, value_name = "CMD")]
    pub compare: Vec<String>,

    /// Names of the controllers, in order
    #[arg(long = "name", value_name = "NAME")]
    pub names: Vec<String>,
}

// The numbers of switches that are emulated one after the other.
#[derive(clap::Args)]
pub struct CountArgs {
    /// Numbers of emulated switches, each 1 to 10000
    #[arg(
        short = 's',
        long,
        value_name = "N,N",
        value_delimiter = ',',
        default_value = "100,300,1000,3000,10000"
    )]
    switches: Vec<u32>,
}

impl CountArgs {
    /// The numbers, if all of them can be emulated.
    pub fn checked(&self) -> Result<&[u32], Failure> {
        let mut counts = self.switches.iter();
        match counts.find(|n| !(1..=SWITCHES_MAX).contains(*n)) {
            None => Ok(&self.switches),
            Some(wrong) => Err(Failure::usage(format!(
                "--switches {wrong}: 1 to {SWITCHES_MAX} can be emulated"
            ))),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// A window of packet-ins per switch: answers a second
    Throughput,
    /// One packet-in per switch at a time: the delay without queues
    Latency,
    /// At --rate, whatever the controller does; delays count from the time a packet-in was due
    Open,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Packets from all hosts of a switch to one destination, as cbench's
    Macs,
    /// Packets between all hosts of a switch
    Hosts,
    /// Packets to hosts behind other switches, which form a line with links that answer LLDP
    Paths,
    /// One host of a switch asks for another by ARP, gets the answer, and each sends the other an
    /// IP packet
    ArpIp,
    /// Like macs; in the second half, one port of the first switch floods packet-ins, and the delay
    /// at the other switches is measured
    Storm,
    /// Like macs; in the second third, one more switch floods packet-ins and reads nothing. The
    /// delay at the others is reported for each third
    Attack,
    /// One connection per switch, all at once: each is accepted, closes, and reconnects
    Churn,
}

/// Reads the versions that the emulated switches speak.
fn versions() -> impl TypedValueParser<Value = Version> {
    PossibleValuesParser::new(["1.0", "1.3", "1.4", "1.5"]).map(|name| match name.as_str() {
        "1.0" => Version::V10,
        "1.4" => Version::V14,
        "1.5" => Version::V15,
        _ => Version::V13,
    })
}

pub fn run(args: Args) -> Result<(), Failure> {
    let settings = Settings::resolve(&args)?;
    let measurement = args.output.begin()?;
    cli::process::raise_file_limit();
    let interrupt = Interrupt::take()?;
    args.output.say(format_args!("{}", settings.headline()));
    let rounds = rounds::run(&settings, &interrupt)?;
    report::conclude(&measurement, &settings, &rounds)
}
