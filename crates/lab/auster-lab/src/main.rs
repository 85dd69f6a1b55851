//! `auster-lab`: the laboratory. It implements `auster lab`, `bench`, `sim`, `model` and `papers`.
//! For these commands, `auster` starts it and passes on the arguments.

// The doc comment of a flag is its help text, where [ ] is syntax and no link.
#![allow(rustdoc::broken_intra_doc_links)]
// These macros panic when output cannot be written, and wait when nobody reads: see `cli::output`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod lab;
mod model;
mod papers;
mod sim;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use cli::{failure, log, memory, pages};

/// The laboratory of auster: networks, measurements and models.
#[derive(Parser)]
#[command(
    name = "auster",
    version,
    max_term_width = 100,
    after_help = failure::EXIT_CODES
)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    log: log::Args,
}

#[derive(Subcommand)]
enum Command {
    /// A network of real Open vSwitch switches, hosts and impaired links on this machine
    #[command(subcommand)]
    Lab(lab::Command),
    /// Measure controllers, switches, relays and networks
    #[command(subcommand)]
    Bench(bench::Command),
    /// Simulate the control channel in virtual time, with the production schedulers
    #[command(subcommand)]
    Sim(sim::Command),
    /// Model the bytes that carry messages over TCP, TLS and QUIC: by the published equations, and
    /// by the rules of the real stacks
    #[command(after_help = "\
Example:
  auster model
  auster model --paper -o results/fig2
  auster model --wire scenarios/overhead.toml --json
  auster model --against results/2026-11-22-channel/overhead/result.json")]
    Model(model::Args),
    /// Measure the claims of five papers on this machine, and report a verdict on each
    #[command(subcommand)]
    Papers(papers::Command),
    /// Write a shell completion script to standard output
    Completions(pages::CompletionsArgs),
    /// Write the manual pages of every command into a directory
    Man(pages::ManArgs),
}

fn main() -> ExitCode {
    memory::give_back_large_blocks();
    let Cli { command, log } = Cli::parse();
    log::run(&log, || match command {
        Command::Lab(command) => lab::run(command),
        Command::Bench(command) => bench::run(command),
        Command::Sim(command) => sim::run(command),
        Command::Model(args) => model::run(&args),
        Command::Papers(command) => papers::run(command),
        Command::Completions(args) => pages::completions(&args, both_programs()),
        Command::Man(args) => pages::man(&args, both_programs()),
    })
}

/// Returns the commands of `auster`. Those of this program replace the ones that only name them.
fn both_programs() -> clap::Command {
    let own = Cli::command();
    let mut all = auster::commands::Cli::command();
    for command in own.get_subcommands() {
        all = all.mut_subcommand(command.get_name(), |_| command.clone());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_and_manual_pages_have_the_commands_of_both_programs() {
        let dir = tempfile::tempdir().unwrap();
        let words = ["auster", "man", dir.path().to_str().unwrap()];
        let Command::Man(args) = Cli::parse_from(words).command else {
            panic!("not the command of manual pages");
        };
        both_programs().debug_assert();
        pages::man(&args, both_programs()).unwrap();
        for page in ["auster-run.1", "auster-lab-run.1", "auster-bench-relay.1"] {
            let text = std::fs::read_to_string(dir.path().join(page)).unwrap();
            assert!(text.contains("Example"), "{page}");
        }
    }

    #[test]
    fn help_completions_and_manual_pages_are_whole() {
        pages::check::all(&Cli::command(), |words| {
            Cli::try_parse_from(words).map(drop)
        });
    }
}
