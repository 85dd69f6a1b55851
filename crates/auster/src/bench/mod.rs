//! `auster bench`: what controllers, switches, channels and networks do, in figures.
//!
//! Every subcommand measures with its own module and tells with the shared ones: `stats` for
//! summaries, `plot` for pictures, `output` for the table, the document and the directory.

mod network;
pub mod output;
pub mod plot;
pub mod stats;

use crate::failure::Failure;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Measure a network of real switches between two of its hosts: round trips, TCP, UDP
    #[command(after_help = "\
Example:
  auster bench network
  auster bench network --topology linear,4 --transport tcp,tls,quic -o results/network
  auster bench network --controller auster,tcp:127.0.0.1:6653 --control delay_ms=5 --json")]
    Network(Box<network::Args>),
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Network(args) => network::run(*args),
    }
}
