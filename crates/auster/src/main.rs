//! `auster`: controller, relays, lab and tools in one binary. This file knows the commands and
//! nothing of what they do; each has its own module.

// What stands above a flag is its help, where [ ] is grammar and no link.
#![allow(rustdoc::broken_intra_doc_links)]
// They panic when nobody can be written to, and wait when nobody reads: see `output`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod certificates;
mod cpu;
mod database;
mod failure;
mod figures;
mod lab;
mod limits;
mod man;
mod memory;
mod model;
mod ofp;
mod output;
mod papers;
mod pki;
mod policy;
mod qos;
mod queues;
mod relay;
mod run;
mod sim;
mod turns;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::failure::Failure;
use crate::limits::LogLimits;

/// The southbound of an OpenFlow network, made fast, safe and predictable.
#[derive(Parser)]
#[command(name = "auster", version, max_term_width = 100, after_help = failure::EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// What to log to standard error: error, warn, info, debug, trace, or a filter such as
    /// `info,net=debug`
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        env = "AUSTER_LOG",
        default_value = "warn"
    )]
    log: String,

    /// How log lines look
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Subcommand)]
enum Command {
    /// Control a network: listen for switches, discover links, learn hosts, set up paths
    #[command(after_help = "\
Example:
  auster run --listen ptcp:6653
  auster run pssl:6653 -p c1-privkey.pem -c c1-cert.pem -C pki/switchca/cacert.pem")]
    Run(run::Args),
    /// Carry OpenFlow, OVSDB and other agents of unmodified switches and controllers over QUIC
    #[command(subcommand)]
    Relay(relay::Command),
    /// A network of real Open vSwitch switches, hosts and impaired links on this machine
    #[command(subcommand)]
    Lab(lab::Command),
    /// Queues of an interface that carries control and data, chosen by DSCP
    #[command(subcommand)]
    Queues(queues::Command),
    /// Queues, services, policies and circuits of a running auster run, by its API
    #[command(subcommand)]
    Qos(qos::Command),
    /// Measure controllers, switches, channels and networks
    #[command(subcommand)]
    Bench(bench::Command),
    /// The control channel under virtual time, with the schedulers of production
    #[command(subcommand)]
    Sim(sim::Command),
    /// What it costs in bytes to carry messages over TCP, TLS and QUIC: by the published equations,
    /// and by the rules of the real stacks
    #[command(after_help = "\
Example:
  auster model
  auster model --paper -o results/fig2
  auster model --wire scenarios/overhead.toml --json
  auster model --against results/2026-11-22-channel/overhead/result.json")]
    Model(model::Args),
    /// What five papers claim, measured here, and one report that says what came of it
    #[command(subcommand)]
    Papers(papers::Command),
    /// Certificates for controllers, relays and switches, in ovs-pki's file layout
    #[command(subcommand)]
    Pki(pki::Command),
    /// Decode OpenFlow messages, as ovs-ofctl ofp-print and ofp-parse-pcap do
    #[command(subcommand)]
    Ofp(ofp::Command),
    /// Policy maps: read them, show them, and explain what they do with a message
    #[command(subcommand)]
    Policy(policy::Command),
    /// Write a shell completion script to standard output
    Completions(man::CompletionsArgs),
    /// Write the manual pages of every command into a directory
    Man(man::ManArgs),
}

fn main() -> ExitCode {
    memory::give_back_large_blocks();
    let cli = Cli::parse();
    let limits = LogLimits::new();
    if let Err(failure) = start_log(&cli.log, cli.log_format, limits.clone()) {
        return end(failure.report());
    }
    let done = match cli.command {
        Command::Run(args) => run::run(args),
        Command::Relay(command) => relay::run(command),
        Command::Lab(command) => lab::run(command),
        Command::Queues(command) => queues::run(command),
        Command::Qos(command) => qos::run(command),
        Command::Bench(command) => bench::run(command),
        Command::Sim(command) => sim::run(command),
        Command::Model(args) => model::run(&args),
        Command::Papers(command) => papers::run(command),
        Command::Pki(command) => pki::run(command),
        Command::Ofp(command) => ofp::run(command),
        Command::Policy(command) => policy::run(command),
        Command::Completions(args) => man::completions(args),
        Command::Man(args) => man::man(args),
    };
    limits.finish();
    end(match done.and_then(|()| output::check()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    })
}

/// Readers get a moment for what they have not read yet.
fn end(code: ExitCode) -> ExitCode {
    output::flush();
    code
}

fn start_log(filter: &str, format: LogFormat, limits: LogLimits) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|e| Failure::usage(format!("--log '{filter}' is not a filter: {e}")))?;
    // Colours are for people: in a file or a journal they are noise.
    let has_colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt::layer()
        .with_ansi(has_colours)
        .with_writer(|| output::Log);
    let limited = tracing_subscriber::registry().with(filter).with(limits);
    match format {
        LogFormat::Text => limited.with(log).init(),
        LogFormat::Json => {
            output::log_as_json();
            limited.with(log.json()).init();
        }
    }
    Ok(())
}
