//! Shell completions and manual pages, generated from the commands themselves.
use std::path::PathBuf;

use clap::CommandFactory;

use crate::Cli;
use crate::failure::Failure;

#[derive(clap::Args)]
pub struct CompletionsArgs {
    shell: clap_complete::Shell,
}

#[derive(clap::Args)]
pub struct ManArgs {
    /// Where the pages go; made if it is not there
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub fn completions(args: CompletionsArgs) -> Result<(), Failure> {
    clap_complete::generate(
        args.shell,
        &mut Cli::command(),
        "auster",
        &mut std::io::stdout(),
    );
    Ok(())
}

pub fn man(args: ManArgs) -> Result<(), Failure> {
    std::fs::create_dir_all(&args.dir).map_err(|e| Failure::file(&args.dir, e))?;
    clap_mangen::generate_to(Cli::command(), &args.dir).map_err(|e| Failure::file(&args.dir, e))
}
