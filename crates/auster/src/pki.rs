//! `auster pki`.
use crate::failure::Failure;

#[derive(clap::Subcommand)]
pub enum Command {
    /// To be built
    List,
}

pub fn run(_command: Command) -> Result<(), Failure> {
    Err(Failure::machine("not built yet"))
}
