//! `auster lab run` and `sim run`: a scenario on real networks or under virtual time, with figures
//! and a verdict.

use std::path::{Path, PathBuf};

use crate::engine::json_schema;
use crate::engine::runner;
use ::report::output::OutputArgs;
use cli::failure::Failure;
use cli::output::say;
use testbed::plane::Transport;

#[derive(clap::Args)]
pub struct Args {
    /// The experiment, as in scenarios/*.toml
    #[arg(value_name = "SCENARIO")]
    pub scenario: PathBuf,
    /// The transport of OpenFlow between switches and auster: tcp if not given, or all that the
    /// scenario names
    #[arg(long)]
    pub transport: Option<Transport>,
    /// The controller: auster (if not given), none (each switch learns by itself), tcp:HOST:PORT,
    /// or any program as 'NAME=COMMAND', with {address} and {port} where it has to listen
    #[arg(long, value_name = "METHOD")]
    pub controller: Option<String>,
    /// The version of OpenFlow between switches and auster, such as 1.5
    #[arg(long, value_name = "VERSION", value_parser = config::settings::session_version)]
    pub openflow: Option<openflow::Version>,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Exit when done, even if the scenario would stay up
    #[arg(long)]
    pub once: bool,
    /// Run only the quick part that the scenario names
    #[arg(long)]
    pub quick: bool,
    /// Run only cells that match this pattern, such as '*method=tcp'; repeat for more patterns
    #[arg(long, value_name = "CELL")]
    pub only: Vec<String>,
    /// Runs of every cell, or rounds; overrides the scenario's
    #[arg(long, value_name = "N")]
    pub runs: Option<u32>,
    /// Measurement time; overrides the scenario's seconds
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// Seed; overrides the scenario's
    #[arg(long)]
    pub seed: Option<u32>,
}

#[derive(clap::Args)]
pub struct CheckArgs {
    /// The experiments, as in scenarios/*.toml
    #[arg(value_name = "SCENARIO", required = true)]
    scenarios: Vec<PathBuf>,
}

/// A command with files of its own, besides the engine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// `auster model`
    Model,
    /// `auster papers`
    Papers,
}

/// Checks scenarios without running them; `of_owner` checks the files of other commands. One
/// failure lists the mistakes of all files.
pub fn check(
    args: &CheckArgs,
    of_owner: impl Fn(Owner, &Path) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut mistakes = Vec::new();
    for path in &args.scenarios {
        let read = match owner(path)? {
            Some(owner) => of_owner(owner, path),
            None => runner::check(path),
        };
        match read {
            Ok(()) => say!("{}: ok", path.display()),
            Err(failure) if failure.is_usage() => mistakes.push(failure.message().to_string()),
            Err(failure) => return Err(failure),
        }
    }
    match mistakes.is_empty() {
        true => Ok(()),
        false => Err(Failure::usage(mistakes.join("\n"))),
    }
}

/// The JSON Schema of the engine's scenarios.
pub fn schema() -> serde_json::Value {
    json_schema::document()
}

/// The command that a file belongs to, from its top-level keys; `None` for a file of the engine.
fn owner(path: &Path) -> Result<Option<Owner>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
    // The engine reports TOML's own mistakes.
    let file: toml::Table = toml::from_str(&text).unwrap_or_default();
    let kind = file.get("kind").and_then(toml::Value::as_str);
    Ok(match kind {
        Some("overhead") => Some(Owner::Model),
        _ => file.contains_key("measurement").then_some(Owner::Papers),
    })
}

/// Refuses a file of another command.
fn not_foreign(path: &Path) -> Result<(), Failure> {
    let (name, command) = match owner(path)? {
        None => return Ok(()),
        Some(Owner::Model) => ("auster model", "auster model"),
        Some(Owner::Papers) => ("auster papers", "auster papers run --list"),
    };
    let path = path.display();
    Err(Failure::usage(format!(
        "{path}: a file of {name}; run {command} {path}"
    )))
}

/// Runs an experiment of either back-end.
pub fn run(args: &Args) -> Result<(), Failure> {
    not_foreign(&args.scenario).and_then(|()| runner::run(args, false))
}

/// Runs an experiment under virtual time, and refuses one on a network.
pub fn simulate(args: &Args) -> Result<(), Failure> {
    not_foreign(&args.scenario).and_then(|()| runner::run(args, true))
}
