//! `auster lab`.
use crate::failure::Failure;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Show the labs that are up
    List,
}

pub fn run(_command: Command) -> Result<(), Failure> {
    Err(Failure::machine("not built yet"))
}
