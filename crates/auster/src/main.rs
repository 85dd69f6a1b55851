//! `auster`: the southbound of an OpenFlow network. Each command has its own module in the library.
//! The laboratory's commands belong to another program.

// A doc comment on a flag is its help text, where [ ] is grammar, not a link.
#![allow(rustdoc::broken_intra_doc_links)]

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use auster::commands::{Cli, Command};
use auster::{
    acl, api, cluster, config, events, health, import, ofp, pki, policy, qos, queues, relay,
    reload, run, state, support, top, trace, version,
};
use clap::{CommandFactory, Parser};
use cli::failure::Failure;
use cli::{log, memory, pages, program};

fn main() -> ExitCode {
    memory::give_back_large_blocks();
    let words = std::env::args_os().collect();
    let Cli { command, log } = Cli::parse_from(own_words(words));
    log::run(&log, || match command {
        Command::Run(args) => run::run(args),
        Command::Reload(args) => reload::run(&args),
        Command::Config(command) => config::run(command),
        Command::Relay(command) => relay::run(command),
        Command::Queues(command) => queues::run(command),
        Command::Qos(command) => qos::run(command),
        Command::Events(args) => events::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Health(args) => health::run(&args),
        Command::Support(args) => support::run(&args),
        Command::State(command) => state::run(command),
        Command::Api(command) => api::run(command),
        Command::Pki(command) => pki::run(command),
        Command::Ofp(command) => ofp::run(command),
        Command::Policy(command) => policy::run(command),
        Command::Trace(args) => trace::run(args),
        Command::Acl(command) => acl::run(command),
        Command::Cluster(command) => cluster::run(command),
        Command::Import(command) => import::run(command),
        Command::Version(args) => version::run(&args),
        // The laboratory knows the commands of both programs.
        Command::Completions(_) | Command::Man(_) if program::laboratory().is_ok() => {
            become_laboratory()
        }
        Command::Completions(args) => pages::completions(&args, Cli::command()),
        Command::Man(args) => pages::man(&args, Cli::command()),
        Command::Lab(_)
        | Command::Bench(_)
        | Command::Sim(_)
        | Command::Model(_)
        | Command::Papers(_) => become_laboratory(),
    })
}

/// The arguments for this program's parser. Help for the laboratory's commands is left to the
/// laboratory.
fn own_words(words: Vec<OsString>) -> Vec<OsString> {
    match &words[..] {
        [program, help, command, ..] if help == "help" && is_laboratory(command) => {
            vec![program.clone(), command.clone()]
        }
        _ => words,
    }
}

fn is_laboratory(command: &OsStr) -> bool {
    ["lab", "bench", "sim", "model", "papers"]
        .iter()
        .any(|name| command == *name)
}

/// Replaces this process with the laboratory, with the same arguments, including the name that its
/// help shows. Signals and exit code are the laboratory's own.
fn become_laboratory() -> Result<(), Failure> {
    let mut laboratory = std::process::Command::new(program::laboratory()?);
    let error = laboratory
        .arg0("auster")
        .args(std::env::args_os().skip(1))
        .exec();
    Err(Failure::machine(format!("auster-lab: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_completions_and_manual_pages_are_whole() {
        pages::check::all(&Cli::command(), |words| {
            Cli::try_parse_from(words).map(drop)
        });
    }

    #[test]
    fn help_of_a_command_of_the_laboratory_is_left_to_it() {
        let own = |words: &[&str]| {
            let words = words.iter().map(OsString::from).collect();
            Cli::try_parse_from(own_words(words)).map(|cli| cli.command)
        };
        assert!(matches!(
            own(&["auster", "help", "lab", "run"]),
            Ok(Command::Lab(_))
        ));
        assert!(matches!(
            own(&["auster", "help", "bench", "fabric"]),
            Ok(Command::Bench(_))
        ));
        assert!(matches!(
            own(&["auster", "help", "sim"]),
            Ok(Command::Sim(_))
        ));
        // A command of this program.
        assert!(own(&["auster", "help", "policy", "show"]).is_err());
    }
}
