//! `auster sim`: control channels and flow tables in virtual time, with the production code.

mod fig10;
mod order;

use cli::failure::Failure;
use scenario::experiment;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Simulate a control channel or a flow table: its behaviour by load, for each configuration
    #[command(after_help = "\
Example:
  auster sim run scenarios/pso-fig7-8.toml
  auster sim run scenarios/pso-fig9.toml --runs 5 --json
  auster sim run scenarios/pso-disciplines.toml -o results/disciplines
  auster sim run scenarios/table-pressure.toml --quick")]
    Run(experiment::Args),
    /// Send random messages through a relay pair with loss, delay and breaks, under every
    /// discipline, and check the order of what arrives
    #[command(after_help = "\
Example:
  auster sim order
  auster sim order --mode keyed --seeds 20 --reconnects 100 --window smallest,default
  auster sim order --delays --loss 1 --seeds 5
  auster sim order --messages 100000 --channels 16 --loss 5 --seed 7 --json")]
    Order(order::Args),
    /// Print the published model's cost of matching, and time auster's classifier beside it
    #[command(after_help = "\
Example:
  auster sim fig10
  auster sim fig10 --runs 50 -o results/fig10")]
    Fig10(fig10::Args),
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run(args) => experiment::simulate(&args),
        Command::Order(args) => order::run(&args),
        Command::Fig10(args) => fig10::run(&args),
    }
}
