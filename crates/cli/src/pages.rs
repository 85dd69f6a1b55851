//! Shell completions and manual pages, generated from the commands themselves.

use std::io::Write;
use std::path::PathBuf;

use clap::Command;

use crate::failure::Failure;

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  auster completions bash > ~/.local/share/bash-completion/completions/auster")]
pub struct CompletionsArgs {
    /// The shell to write the script for
    shell: clap_complete::Shell,
}

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  auster man ~/.local/share/man/man1")]
pub struct ManArgs {
    /// Directory for the pages; created if missing
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Writes a completion script for `command` to standard output.
pub fn completions(args: &CompletionsArgs, mut command: Command) -> Result<(), Failure> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(&script).and_then(|()| stdout.flush());
    written.map_err(crate::output::failure)
}

/// Writes a manual page for each command below `command`.
pub fn man(args: &ManArgs, command: Command) -> Result<(), Failure> {
    std::fs::create_dir_all(&args.dir).map_err(|e| Failure::file(&args.dir, e))?;
    clap_mangen::generate_to(command, &args.dir).map_err(|e| Failure::file(&args.dir, e))
}

/// Checks of every program's help, for its tests.
pub mod check;
