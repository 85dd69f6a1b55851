//! `auster bench channel`: what TCP, TLS, QUIC and our relay pair make of the same messages.
//!
//! Two ends, each a thread in a network namespace of its own, are joined by the lab's link: fixed
//! delay, seeded loss, every frame counted. Each end has agents that send OpenFlow messages by a
//! Poisson process, both directions at once and open loop: delay counts from when a message was
//! due, so that a sender that is held up pays for it. What differs between the methods is only
//! what carries the bytes.

mod carrier;
mod cell;
mod claims;
mod end;
mod floor;
pub mod grid;
mod losses;
pub mod method;
mod outlet;
pub mod report;
pub mod scenario;
mod schedule;
pub mod source;
mod tally;

use std::path::PathBuf;
use std::sync::Arc;

use net::tls::{CredentialFiles, Role, Security};
use serde::Serialize;

use self::claims::Claim;
use self::grid::{AGENTS, Bursts, Choice, Rtt, Sizes, Table};
use self::losses::Loss;
use self::method::{METHODS, Method};
use ::report::output::{Document, OutputArgs};
use auster::pki::files::write_secret;
use auster::pki::make::{self, KeyKind, Owner, Signer};
use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::output::say;
use cli::progress::Progress;
use cli::temp_dir::TempDir;
use testbed::tools;

/// The share of a table's time that `--quick` runs.
const QUICK_SHARE: f64 = 1.0 / 3.0;

#[derive(clap::Args)]
pub struct Args {
    /// Measures what the [wire] of a scenario of `auster model` says, in place of the flags that
    /// choose cells
    #[arg(
        value_name = "SCENARIO.toml",
        conflicts_with_all = [
            "table", "method", "rate", "loss", "burst", "rtt", "size", "agents", "seconds",
            "quick", "seeds", "seed"
        ]
    )]
    scenario: Option<PathBuf>,
    /// A set of cells that is known by name; several with commas. Other flags then keep what fits
    /// them; without a table they make a grid
    #[arg(long, value_name = "TABLE", value_delimiter = ',')]
    table: Vec<Preset>,
    /// Methods to carry the messages; `--method list` describes them
    #[arg(long, value_name = "METHOD", value_delimiter = ',')]
    method: Vec<String>,
    /// Messages per second of each end, all its agents together
    #[arg(long, value_name = "PER_S", value_delimiter = ',', value_parser = rate)]
    rate: Vec<f64>,
    /// Frames that the link loses, each way
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', value_parser = percent)]
    loss: Vec<f64>,
    /// Lose frames in bad times of so many frames on average, by the Gilbert-Elliott model: 4, or
    /// 8:50 where 50 percent of them are lost; 0, the default, loses each frame by itself. --loss
    /// is of all frames
    #[arg(long, value_name = "FRAMES", value_delimiter = ',')]
    burst: Vec<Bursts>,
    /// Round trip in milliseconds, such as 0.32, 100, or 150±50 (also 150+-50) with a standard
    /// deviation
    #[arg(long, value_name = "MS", value_delimiter = ',')]
    rtt: Vec<Rtt>,
    /// Bytes of a message, such as 220, or 400/600 in turn
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    size: Vec<Sizes>,
    /// Agents at each end [default: 2]; of a table, in the place of two
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=16))]
    agents: Option<u8>,
    /// How long messages are sent in a cell [default: 1 to 20 by rate]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<f64>,
    /// A third of the time in each cell of a table: for a look, not for a result
    #[arg(long, conflicts_with = "seconds", requires = "table")]
    quick: bool,
    /// How often each cell is measured, each time with the next seed
    #[arg(
        long, value_name = "NUMBER", default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=100)
    )]
    seeds: u8,
    /// The first seed: of the messages, and of the frames that are lost
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Cells at a time, where they do not disturb each other
    #[arg(
        long, value_name = "NUMBER", default_value_t = 8,
        value_parser = clap::value_parser!(u8).range(1..=64)
    )]
    parallel: u8,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Preset {
    /// Bytes and frames per message by rate, RTT 0.32 ms
    Overhead,
    /// Delay by loss and rate, RTT 100 ms and 150±50 ms
    DelayLong,
    /// Delay by loss, RTT 0.32 ms
    DelayShort,
    /// Delay of messages of 400 and 600 bytes, and of 3000 and 600, RTT 100 ms and 0.32 ms
    Sizes,
    /// All of these
    All,
    /// Bytes that the relay saves against TCP and TLS by rate, RTT 0.32 ms, 1 % loss, with 2, 4, 8
    /// and 16 agents: 7 min
    ClaimsOverhead,
    /// Delay that the relay saves against them at 0, 1 and 5 % loss, also in bursts and under
    /// jitter, alone and with duplicates: 5 min a seed
    ClaimsDelay,
    /// Whether the relay as it is is never worse than the better of TCP and TLS: 9 min
    ClaimsNeverWorse,
}

#[derive(Serialize)]
struct Settings {
    tables: Vec<Table>,
    methods: Vec<About>,
    seed: u64,
    seeds: u64,
    parallel: u8,
    /// The congestion control of the kernel's TCP; quinn has its own of the same name.
    tcp_congestion: &'static str,
    /// [`method::RELAY_WIRE`].
    relay_wire: u8,
    cells: usize,
}

#[derive(Serialize)]
struct About {
    name: &'static str,
    about: &'static str,
}

#[derive(Serialize)]
struct Runs {
    cells: Vec<cell::CellResult>,
    failures: Vec<schedule::CellFailure>,
    quic_loses: Vec<Loss>,
    claims: Vec<Claim>,
}

pub fn run(args: Args) -> Result<(), Failure> {
    if args.method == ["list"] {
        for Method { name, about, .. } in &METHODS {
            say!("{name:<16} {about}");
        }
        return Ok(());
    }
    let choices = match &args.scenario {
        Some(path) => scenario::read(path)?.wire.choices(),
        None => vec![args.choice()?],
    };
    let mut cells = Vec::new();
    for choice in &choices {
        cells.extend(choice.cells().map_err(Failure::usage)?);
    }
    tools::require_link_tools()?;
    let results = args.output.open()?;
    let interrupt = Interrupt::take()?;
    let security = security()?;
    let started_unix_s = unix_seconds();
    let places = usize::from(args.parallel);
    args.say_what_follows(&choices, &cells);
    let progress = Progress::start();
    let outcomes = schedule::run(&cells, places, &security, &interrupt, &progress);
    if let (true, Some(failure)) = (outcomes.results.is_empty(), outcomes.failures.first()) {
        return Err(Failure::machine(&failure.problem));
    }

    let losses = losses::of(&outcomes.results);
    let claims = claims::of(&outcomes.results);
    let mut text = report::text(&outcomes.results, &outcomes.failures)
        + &losses::say(&losses, &outcomes.results)
        + &claims::say(&claims);
    if interrupt.is_set() {
        let (done, all) = (outcomes.results.len(), cells.len());
        text += &format!("Interrupted: {done} of {all} cells were measured.\n");
    }
    report::plot(&outcomes.results, &results)?;
    let settings = Settings {
        tables: choices[0].tables.clone(),
        methods: methods_of(&cells),
        seed: choices[0].seed,
        seeds: choices[0].seeds,
        parallel: args.parallel,
        relay_wire: method::RELAY_WIRE,
        tcp_congestion: "cubic, but for methods with bbr in their name",
        cells: cells.len(),
    };
    let runs = Runs {
        cells: outcomes.results,
        failures: outcomes.failures,
        quic_loses: losses,
        claims,
    };
    let document = Document::new(
        "channel",
        started_unix_s,
        settings,
        runs,
        interrupt.is_set(),
    );
    args.output.conclude(&results, &document, &text)
}

impl Args {
    fn choice(&self) -> Result<Choice, Failure> {
        let mut tables = Vec::new();
        for preset in &self.table {
            let named = match preset {
                Preset::Overhead => &[Table::Overhead][..],
                Preset::DelayLong => &[Table::DelayLong],
                Preset::DelayShort => &[Table::DelayShort],
                Preset::Sizes => &[Table::Sizes],
                Preset::All => &Table::PRESETS,
                Preset::ClaimsOverhead => &[Table::ClaimsOverhead],
                Preset::ClaimsDelay => &[Table::ClaimsDelay],
                Preset::ClaimsNeverWorse => &[Table::ClaimsNeverWorse],
            };
            tables.extend(
                named
                    .iter()
                    .filter(|table| !tables.contains(*table))
                    .copied()
                    .collect::<Vec<_>>(),
            );
        }
        let mut methods = Vec::new();
        for name in &self.method {
            let method = Method::parse(name);
            methods.push(method.map_err(|e| Failure::usage(format!("--method: {e}")))?);
        }
        Ok(Choice {
            tables,
            methods,
            rates_per_s: self.rate.clone(),
            losses_percent: self.loss.clone(),
            bursts: self.burst.clone(),
            rtts: self.rtt.clone(),
            sizes: self.size.clone(),
            agents: self.agents.map(usize::from),
            seconds: self.seconds,
            share: if self.quick { QUICK_SHARE } else { 1.0 },
            seeds: u64::from(self.seeds),
            seed: self.seed,
        })
    }

    fn say_what_follows(&self, choices: &[Choice], cells: &[grid::Cell]) {
        let agents = choices
            .iter()
            .map(|choice| choice.agents.unwrap_or(AGENTS).to_string());
        let agents = agents.collect::<Vec<_>>().join(", ");
        let took = schedule::duration(cells, usize::from(self.parallel));
        self.output.say(format_args!(
            "OpenFlow messages of {agents} agents at each of two ends, both ways at once, over a \
             link with loss and delay.\n{} cells, about {}; kernel TCP with CUBIC where not named \
             otherwise. Methods:",
            cells.len(),
            schedule::minutes(took)
        ));
        for About { name, about } in methods_of(cells) {
            self.output.say(format_args!("  {name:<16} {about}"));
        }
        self.output.say(format_args!(""));
    }
}

/// Those of the cells, in the order of the tables.
fn methods_of(cells: &[grid::Cell]) -> Vec<About> {
    let is_used = |method: &&Method| cells.iter().any(|cell| cell.method.name == method.name);
    let about = |method: &Method| About {
        name: method.name,
        about: method.about,
    };
    METHODS.iter().filter(is_used).map(about).collect()
}

/// One certificate that serves both ends, for the time of the run: who is who is not measured.
fn security() -> Result<Security, Failure> {
    let days = 2;
    let authority = make::authority(Role::Controller, KeyKind::P256, days)?;
    let signer = Signer::new(&authority.certificate, &authority.key).map_err(Failure::machine)?;
    let owner = Owner {
        name: "bench".to_owned(),
        role: Role::Controller,
        hosts: vec![carrier::CONTROLLER_ADDRESS.to_string()],
        datapath_id: None,
        listens: true,
    };
    let issued = signer.issue(&owner, KeyKind::P256, days)?;
    let dir = TempDir::new()?;
    let written = |name: &str, text: &str| {
        let path = dir.path().join(name);
        write_secret(&path, text)?;
        Ok::<_, Failure>(path)
    };
    let files = CredentialFiles {
        private_key: written("privkey.pem", &issued.key)?,
        certificate: written("cert.pem", &issued.certificate)?,
        ca: written("cacert.pem", &authority.certificate)?,
        crl: None,
    };
    Ok(Security::new(Arc::new(files.load()?)))
}

fn rate(text: &str) -> Result<f64, String> {
    number(text, 0.1, 100_000.0, "messages per second")
}

fn percent(text: &str) -> Result<f64, String> {
    number(text, 0.0, 50.0, "percent")
}

fn seconds(text: &str) -> Result<f64, String> {
    number(text, 0.1, 600.0, "seconds")
}

fn number(text: &str, min: f64, max: f64, unit: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|n| (min..=max).contains(n));
    number.ok_or_else(|| format!("write {min} to {max} {unit}"))
}
