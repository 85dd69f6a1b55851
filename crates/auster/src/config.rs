//! `auster config`: the settings of `auster run`, as a schema for editors, and with their values.

use cli::failure::Failure;
use cli::output::{say, say_part};
use cli::table::table;
use serde_json::Value;

use config::settings::schema::schema;

use crate::run::effective;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Write the JSON Schema of the configuration file
    #[command(after_help = "\
Example:
  auster config schema > auster.schema.json
  # first line of run.toml, for editors with Taplo: #:schema ./auster.schema.json")]
    Schema,
    /// Show the value and source of every setting: default, file and line, or option
    #[command(after_help = "\
The options are those of auster run.
Example:
  auster config show --config run.toml --set
  SETTING                                  VALUE  SOURCE
  listen                   [\"ptcp:6653:0.0.0.0\"]  run.toml:1
  controller.path_rate_max                   500  run.toml:4")]
    Show(Box<ShowArgs>),
}

#[derive(clap::Args)]
pub struct ShowArgs {
    #[command(flatten)]
    run: config::Args,

    /// Omit defaults
    #[arg(long)]
    set: bool,
}

/// # Errors
/// The configuration has mistakes.
pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Schema => say!("{:#}", schema()),
        Command::Show(args) => show(*args)?,
    }
    Ok(())
}

fn show(mut args: ShowArgs) -> Result<(), Failure> {
    let is_json = args.run.take_json();
    let mut effective = effective(&args.run)?;
    if args.set {
        effective.rows.retain(|row| !row.is_default());
    }
    if is_json {
        say!("{:#}", effective.document());
        return Ok(());
    }
    let rows = effective.rows.iter().map(|row| {
        let value = match &row.value {
            Value::Null => "-".to_owned(),
            value => value.to_string(),
        };
        vec![row.setting.path.to_owned(), value, row.source.to_string()]
    });
    let rows: Vec<_> = rows.collect();
    say_part!("{}", table(&["SETTING", "VALUE", "SOURCE"], &rows));
    Ok(())
}
