//! `auster run`.
use crate::failure::Failure;

#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: Args) -> Result<(), Failure> {
    Err(Failure::machine("not built yet"))
}
