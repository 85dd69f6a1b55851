//! `auster policy`: policy maps from files, their contents, and their effect on one message.

pub(crate) mod database;
mod explain;
mod remote;
mod show;
mod written;

use std::path::PathBuf;

use sched::PolicyMap;
use sched::policy::{Against, MapDigest, Problem};
use serde_json::{Value, json};

use config::policy::{counted, read, refused};

use crate::ofp;
use cli::failure::Failure;
use cli::output::say;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Check a policy map and report every mistake
    #[command(after_help = CHECK_EXAMPLE)]
    Check(CheckArgs),
    /// Print a map in full: rules, queues, digest, and the traffic type of every message
    #[command(after_help = SHOW_EXAMPLE)]
    Show(ShowArgs),
    /// Explain which rule matches a message, and why earlier rules do not
    #[command(after_help = EXPLAIN_EXAMPLE)]
    Explain(explain::Args),
    /// Replace the map of running relays: at both ends of each, or at neither
    #[command(after_help = PUSH_EXAMPLE)]
    Push(remote::PushArgs),
    /// Show the map of running relays, whether both ends have the same, and their counters
    #[command(after_help = STATUS_EXAMPLE)]
    Status(remote::StatusArgs),
}

const CHECK_EXAMPLE: &str = "\
Example:
  auster policy check voice.policy
  voice.policy: good: 4 rules, 4 queues, generation 7, sha256 0f4c…

A map that cannot be used ends with exit code 2, every error on a line of its own with its line
and column.";

const SHOW_EXAMPLE: &str = "\
Example:
  auster policy show paper
  auster policy show voice.policy --json | jq '.rules'";

const EXPLAIN_EXAMPLE: &str = "\
Example:
  auster policy explain --policy voice.policy 0414000800000001
  auster policy explain --policy voice.policy -v --flow 'udp,tp_dst=20000,actions=output:1'
  auster policy explain --policy voice.policy --pcap of.pcap";

const PUSH_EXAMPLE: &str = "\
Example:
  auster policy push voice.policy --relay unix:/run/auster/status.sock
  s1: in use at both ends, sha256 0f4c…
  auster policy push voice.policy --ovsdb unix:/run/openvswitch/db.sock --bridge br0";

const STATUS_EXAMPLE: &str = "\
Example:
  auster policy status --relay unix:/run/auster/status.sock
  auster policy status --ovsdb unix:/run/openvswitch/db.sock";

#[derive(clap::Args)]
pub struct CheckArgs {
    /// The file with the map
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The generation in use; the map's must be greater
    #[arg(long, value_name = "N")]
    active_generation: Option<u64>,

    /// The required digest of the map
    #[arg(long, value_name = "SHA256")]
    digest: Option<MapDigest>,

    /// Check for a channel that cannot set code points: TCP or TLS to a switch, a Unix socket
    #[arg(long)]
    queues_only: bool,

    /// Print one JSON document, even if the map cannot be used
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct ShowArgs {
    /// A file with a map, or auster, paper or none
    #[arg(value_name = "MAP")]
    map: String,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Check(args) => check(&args),
        Command::Show(args) => show::show(&args.map, args.json),
        Command::Explain(args) => explain::run(&args),
        Command::Push(args) => remote::push(&args),
        Command::Status(args) => remote::status(&args),
    }
}

fn check(args: &CheckArgs) -> Result<(), Failure> {
    let text = read(&args.file)?;
    let against = Against {
        generation: args.active_generation,
        digest: args.digest,
        queues_only: args.queues_only,
    };
    let parsed = PolicyMap::parse_against(&text, &against);
    if args.json {
        let problems = match &parsed {
            Ok((_, problems)) | Err(problems) => problems.iter().map(problem_json),
        };
        let map = parsed.as_ref().ok().map(|(map, _)| map);
        let document = json!({
            "file": args.file,
            "good": map.is_some(),
            "generation": map.map(|map| map.generation),
            "sha256": map.map(|map| map.digest().to_string()),
            "rules": map.map(|map| map.rules.len()),
            "queues": map.map(|map| map.scheduling.queues.len()),
            "problems": problems.collect::<Vec<_>>(),
        });
        say!("{document:#}");
    }
    let (map, warnings) = parsed.map_err(|problems| refused(&args.file, &problems))?;
    if args.json {
        return Ok(());
    }
    let file = args.file.display();
    let mut out = std::io::stdout().lock();
    for warning in &warnings {
        ofp::write_line(&mut out, &format!("{file}: {warning}"))?;
    }
    let verdict = format!(
        "{file}: good: {}, {}, generation {}, sha256 {}",
        counted(map.rules.len(), "rule"),
        counted(map.scheduling.queues.len(), "queue"),
        map.generation,
        map.digest()
    );
    ofp::write_line(&mut out, &verdict)
}

fn problem_json(problem: &Problem) -> Value {
    json!({
        "code": problem.code.name(),
        "is_error": problem.code.is_error(),
        "line": problem.at.line,
        "column": problem.at.column,
        "field": problem.field,
        "problem": problem.what,
        "wanted": problem.wanted,
    })
}
