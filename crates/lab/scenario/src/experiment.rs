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
    #[arg(long, value_name = "VERSION", value_parser = auster::run::session_version)]
    pub openflow: Option<openflow::Version>,
    #[command(flatten)]
    pub output: OutputArgs,
    /// End when done, even if the scenario would stay up
    #[arg(long)]
    pub once: bool,
    /// Only the part that the scenario names for those in a hurry
    #[arg(long)]
    pub quick: bool,
    /// Only the cells that are like this pattern, such as '*method=tcp', or like one of several
    #[arg(long, value_name = "CELL")]
    pub only: Vec<String>,
    /// Runs of every cell, or rounds, instead of the scenario's
    #[arg(long, value_name = "N")]
    pub runs: Option<u32>,
    /// The length of what is measured, instead of the scenario's seconds
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
    /// Instead of the scenario's
    #[arg(long)]
    pub seed: Option<u32>,
}

#[derive(clap::Args)]
pub struct CheckArgs {
    /// The experiments, as in scenarios/*.toml
    #[arg(value_name = "SCENARIO", required = true)]
    scenarios: Vec<PathBuf>,
}

/// Reads scenarios without running them. One failure holds the mistakes of all files.
pub fn check(args: &CheckArgs) -> Result<(), Failure> {
    let mut mistakes = Vec::new();
    for path in &args.scenarios {
        match read(path) {
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

fn read(path: &Path) -> Result<(), Failure> {
    not_foreign(path).and_then(|()| runner::check(path))
}

/// Refuses a file of another command by the keys at its top.
fn not_foreign(path: &Path) -> Result<(), Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
    // The engine reports TOML's own mistakes.
    let file: toml::Table = toml::from_str(&text).unwrap_or_default();
    let (owner, command) = match file.get("kind").and_then(toml::Value::as_str) {
        Some("overhead") => ("auster model", "auster model"),
        _ if file.contains_key("measurement") => ("auster papers", "auster papers run --list"),
        _ => return Ok(()),
    };
    let path = path.display();
    Err(Failure::usage(format!(
        "{path}: a file of {owner}; run {command} {path}"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_project_is_read_or_names_its_command() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios");
        let (mut read_here, mut foreign) = (0, 0);
        for file in std::fs::read_dir(dir).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            match read(&path) {
                Ok(()) => read_here += 1,
                Err(failure) => {
                    let name = path.file_name().unwrap().to_string_lossy();
                    let command = match &*name {
                        "overhead.toml" => "auster model; run auster model ",
                        _ => "auster papers; run auster papers run --list ",
                    };
                    let right = format!("a file of {command}");
                    assert!(failure.message().contains(&right), "{}", failure.message());
                    foreign += 1;
                }
            }
        }
        assert!(read_here > 30 && foreign == 2, "{read_here} {foreign}");
    }
}
