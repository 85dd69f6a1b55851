//! `auster api`: who may use the API of an `auster run`.

use std::path::PathBuf;

use cli::failure::Failure;
use cli::output::{note, say, say_part};
use cli::table::table;
use config::tokens::{self, Role};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Tokens that identify users of the API
    #[command(subcommand)]
    Token(Token),
}

#[derive(clap::Subcommand)]
pub enum Token {
    /// Make a token and print it once: the file has only its digest
    #[command(after_help = "\
Example:
  auster api token add grafana --role read --file /etc/auster/tokens > grafana.token
  kill -HUP $(pidof auster)")]
    Add(AddArgs),
    /// List the owners of tokens, and their roles
    #[command(after_help = "\
Example:
  auster api token list --file /etc/auster/tokens")]
    List(FileArgs),
    /// Remove a token
    #[command(after_help = "\
Example:
  auster api token remove grafana --file /etc/auster/tokens
  kill -HUP $(pidof auster)")]
    Remove(RemoveArgs),
}

#[derive(clap::Args)]
pub struct AddArgs {
    /// The owner's name in the audit
    #[arg(value_parser = tokens::parse_name)]
    name: String,

    /// The owner's rights
    #[arg(long, value_enum)]
    role: Role,

    #[command(flatten)]
    file: FileArgs,
}

#[derive(clap::Args)]
pub struct RemoveArgs {
    /// The owner
    #[arg(value_parser = tokens::parse_name)]
    name: String,

    #[command(flatten)]
    file: FileArgs,
}

#[derive(clap::Args)]
pub struct FileArgs {
    /// The file that `tokens` in [api] names
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
}

pub fn run(command: Command) -> Result<(), Failure> {
    let Command::Token(command) = command;
    match command {
        Token::Add(args) => {
            let file = &args.file.file;
            let token = tokens::add(file, &args.name, args.role)?;
            say!("{token}");
            note!("auster: an auster run that uses this file takes it after SIGHUP");
            Ok(())
        }
        Token::List(args) => {
            let held = tokens::Tokens::load(&args.file)?;
            let row = |entry: &tokens::Entry| vec![entry.name.clone(), entry.role.to_string()];
            let rows: Vec<_> = held.entries().iter().map(row).collect();
            say_part!("{}", table(&["name", "role"], &rows));
            Ok(())
        }
        Token::Remove(args) => {
            tokens::remove(&args.file.file, &args.name)?;
            note!("auster: an auster run that uses this file takes it after SIGHUP");
            Ok(())
        }
    }
}
