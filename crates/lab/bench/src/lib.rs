//! `auster bench`: measurements of controllers, switches and relays.
//!
//! Every subcommand measures with its own module. The `measure` crate summarises, the `report`
//! crate writes tables, documents and plots.

// The pages are read beside the source: links may lead to private items.
#![allow(rustdoc::private_intra_doc_links)]

mod certificates;
pub mod channel;
mod cluster;
mod controller;
mod fabric;
mod histogram;
mod null;
mod relay;
pub mod switch;

use std::time::Duration;

use cli::failure::Failure;
use nix::time::{ClockId, clock_gettime};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Measure a controller with emulated switches: verified answers a second, and their delay
    #[command(after_help = "\
Example:
  auster bench controller tcp:127.0.0.1:6653 --switches 16 --mode latency
  auster bench controller --start 'auster bench null ptcp:{port}:127.0.0.1' \\
      --compare 'auster run ptcp:{port}:127.0.0.1' --macs 1000 -o results/today
  auster bench controller tcp:127.0.0.1 --mode open --rate 20000")]
    Controller(Box<controller::Args>),
    /// Measure a controller with an emulated network: pairs served a second, paths, failures
    #[command(after_help = "\
Example:
  auster bench fabric --start 'auster run ptcp:{port}:127.0.0.1' --topology linear,16
  auster bench fabric --start 'auster run ptcp:{port}:127.0.0.1' --overload 0.5,1,2,4
  auster bench fabric tcp:127.0.0.1 --workload failures --topology ring,8 -o results/ring")]
    Fabric(Box<fabric::Args>),
    /// Measure a controller with more and more switches: time to connect all, memory of each, echo
    #[command(after_help = "\
Example:
  auster bench scale --start 'auster run ptcp:{port}:127.0.0.1'
  auster bench scale --start 'auster run ptcp:{port}:127.0.0.1' -s 100,1000 -o results/scale")]
    Scale(controller::scale::Args),
    /// Measure a cluster with emulated switches at all members, while one is killed or replaced
    #[command(after_help = "\
Example:
  auster bench cluster --start 'a=auster run --config a.toml --listen ptcp:{port}:127.0.0.1' \\
      --start 'b=auster run --config b.toml --listen ptcp:{port}:127.0.0.1' -s 1000 \\
      --move 'auster cluster move {to} --config a.toml'")]
    Cluster(cluster::Args),
    /// Measure a controller with cbench's options and output, for existing scripts
    #[command(after_help = "\
Example:
  auster bench cbench -c 127.0.0.1 -p 6653 -s 16 -M 1000 -l 5 -m 1000 -w 1 -t")]
    Cbench(controller::cbench::Args),
    /// Run a controller that answers everything with one FLOW_MOD: the ceiling
    #[command(after_help = "\
Example:
  auster bench null ptcp:6653:127.0.0.1 --threads 2")]
    Null(null::Args),
    #[command(after_help = "\
Example:
  auster bench switch
  auster bench switch --only packet-in,flow-mod -o results/switch
  auster bench switch tcp:192.0.2.7:6653 --ingress eth1 --egress eth2
  auster bench switch --listen ptcp:6653 --ingress eth1 --egress eth2 --json")]
    Switch(Box<switch::Args>),
    /// Measure a pair of relays: messages a second, each end's cost of one, and the cost of many
    /// switches to the controllers' relay
    #[command(after_help = "\
Example:
  auster bench relay
  auster bench relay --switches 1000 --rate 50000 -o results/relay
  auster bench relay --quick --json")]
    Relay(relay::Args),
    /// Many switches' relays in one process, for 'auster bench relay'
    #[command(hide = true)]
    RelaySwitches(relay::switches::Args),
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Controller(args) => controller::run(*args),
        Command::Fabric(args) => fabric::run(&args),
        Command::Scale(args) => controller::scale::run(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Cbench(args) => controller::cbench::run(&args),
        Command::Null(args) => null::run(args),
        Command::Switch(args) => switch::run(*args),
        Command::Relay(args) => relay::run(args),
        Command::RelaySwitches(args) => relay::switches::run(args),
    }
}

/// Returns the failure to report after the results, if a step failed and others did not. If nothing
/// was measured, the bench ends at once with the step's failure.
fn step_failed<T>(measured: &[T], step: &str, failure: Failure) -> Result<Failure, Failure> {
    match measured.is_empty() {
        true => Err(failure),
        false => Ok(Failure::negative(format!(
            "failed at {step}: {}",
            failure.message()
        ))),
    }
}

/// Builds a single-threaded runtime.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build()
}

/// Processor time of the calling thread so far.
fn thread_cpu() -> Duration {
    let spent = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    spent.map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_time_advances_with_work() {
        let before = thread_cpu();
        let mut n = 0u64;
        while thread_cpu() == before {
            n = std::hint::black_box(n + 1);
        }
        assert!(thread_cpu() > before);
    }
}
