//! `auster policy`: policy maps from files, their contents, and their effect on one message.

pub(crate) mod database;
mod explain;
mod remote;
mod show;
mod written;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sched::PolicyMap;
use sched::policy::{Against, MapDigest, Problem};
use serde_json::{Value, json};

use crate::ofp;
use cli::failure::Failure;
use cli::output::say;

/// The longest file that is read as a map; 64 rules have some 6 kB.
const FILE_LEN_MAX: u64 = 1 << 20;

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

/// The map that `--policy` names: a file, or a shipped map. Doubtful parts of a file are logged.
pub fn load(argument: &str) -> Result<PolicyMap, Failure> {
    let shipped = match argument {
        "auster" => Some(PolicyMap::auster()),
        "paper" => Some(PolicyMap::paper()),
        "none" => Some(PolicyMap::none()),
        _ => None,
    };
    if let Some(map) = shipped {
        return Ok(map);
    }
    let path = Path::new(argument);
    if !path.exists() {
        let problem = "No such file or directory; check the path, or write auster, paper or none";
        return Err(Failure::file(path, problem));
    }
    let text = read(path)?;
    let (map, warnings) = PolicyMap::parse(&text).map_err(|problems| refused(path, &problems))?;
    for warning in warnings {
        tracing::warn!("{argument}: {warning}");
    }
    Ok(map)
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

pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    let size = std::fs::metadata(path).map_err(|e| Failure::file(path, e))?;
    if size.len() > FILE_LEN_MAX {
        return Err(Failure::file(
            path,
            "more than 1 MiB: this is no policy map",
        ));
    }
    let bytes = std::fs::read(path).map_err(|e| Failure::file(path, e))?;
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Failure::usage(format!(
            "{}: byte {at} is no UTF-8: a policy map is text",
            path.display()
        ))
    })
}

/// Every problem, a line each, after a line that says that nothing of the map is used.
fn refused(path: &Path, problems: &[Problem]) -> Failure {
    let errors = problems.iter().filter(|p| p.code.is_error()).count();
    let mut message = format!(
        "{}: {}, so none of it is used",
        path.display(),
        counted(errors, "error")
    );
    for problem in problems {
        let _ = write!(message, "\n{}: {problem}", path.display());
    }
    Failure::usage(message)
}

fn counted(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}
