//! `auster bench cluster`: emulated switches that are connected to all members of a cluster. One
//! member is killed or replaced. Each switch records how long it had no master, and how long it
//! took until the next master worked.

mod sockets;
mod switch;

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use net::method::Transport;
use serde::Serialize;
use serde_json::json;

use crate::controller::CountArgs;
use crate::controller::settings::SubjectKind;
use crate::controller::target::Server;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::table::Columns;
use measure::stats::Summary;
use report::output::{OutputArgs, Results};
use report::plot::{Plot, Series};
use sockets::Emulator;
use switch::Switch;

/// Placeholder for the member that is to serve, in the command of `--move`.
const TO: &str = "{to}";
const MEMBERS_MAX: usize = 7;
/// The time until every switch has a master and slaves, and until it has another master.
const SETTLED_MAX: Duration = Duration::from_secs(180);
const TAKEN_MAX: Duration = Duration::from_secs(60);

/// Starts the members of a cluster for each number of switches, connects each switch to all of
/// them, and kills the one that serves or has another one serve.
///
/// The members and their etcd are one cluster already: `scripts/cluster-scale` makes one.
#[derive(clap::Args)]
pub struct Args {
    /// A member and its command: NAME=CMD; {port} in CMD becomes a free port. Repeat for each
    #[arg(long = "start", value_name = "NAME=CMD", required = true)]
    members: Vec<String>,

    /// A command that makes another member serve, instead of SIGKILL; {to} becomes its name
    #[arg(long = "move", value_name = "CMD")]
    hand_over: Option<String>,

    #[command(flatten)]
    counts: CountArgs,

    /// Rounds for each number of switches, all with new processes
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: u32,

    /// Time to wait between set-up and the event: members get their places meanwhile
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    settle: f64,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Step {
    switches: u32,
    round: u32,
    /// The time until every switch has one master and slaves.
    settled_s: f64,
    /// Time from the event until the last switch has another master, and until that master works.
    taken_ms: f64,
    served_ms: f64,
    /// For each switch, the time without a master, and without a working one.
    without_master_ms: Summary,
    without_service_ms: Summary,
    /// Messages that switches refused because another member was master.
    refused: u64,
    /// The highest memory use of any member.
    memory_peak_mib: f64,
    /// Connections that ended, except for those of a killed member.
    lost: u32,
    problem: Option<String>,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let members = members(&args.members)?;
    let counts = args.counts.checked()?;
    if !(0.0..=3600.0).contains(&args.settle) {
        return Err(Failure::usage("--settle: 0 to 3600 seconds"));
    }
    let measurement = args.output.begin()?;
    cli::process::raise_file_limit();
    let interrupt = Interrupt::take()?;
    let mut steps = Vec::new();
    let mut failed = None;
    'all: for switches in counts {
        for round in 1..=args.rounds {
            args.output.say(format_args!(
                "{switches} switches, round {round} of {}",
                args.rounds
            ));
            match step(args, &members, *switches, round, &interrupt) {
                Ok(step) => steps.push(step),
                Err(_) if interrupt.is_set() => {}
                Err(failure) => {
                    let step = format!("{switches} switches, round {round}");
                    failed = Some(crate::step_failed(&steps, &step, failure)?);
                }
            }
            if interrupt.is_set() || failed.is_some() {
                break 'all;
            }
        }
    }
    plots(&measurement.results, &steps)?;
    let text = text(&steps);
    let settings = json!({
        "members": args.members,
        "move": args.hand_over,
        "settle_s": args.settle,
    });
    measurement.conclude("cluster", settings, (steps, interrupt.is_set()), &text)?;
    failed.map_or(Ok(()), Err)
}

/// Parses names and commands.
fn members(stated: &[String]) -> Result<Vec<(&str, &str)>, Failure> {
    if !(2..=MEMBERS_MAX).contains(&stated.len()) {
        return Err(Failure::usage(format!(
            "--start: 2 to {MEMBERS_MAX} members, one flag for each"
        )));
    }
    let mut members = Vec::new();
    for text in stated {
        match text.split_once('=') {
            Some((name, command)) if !name.is_empty() && !name.contains(' ') => {
                members.push((name, command));
            }
            _ => {
                let problem = format!("--start '{text}': write NAME=COMMAND");
                return Err(Failure::usage(problem));
            }
        }
    }
    Ok(members)
}

fn step(
    args: &Args,
    members: &[(&str, &str)],
    switches: u32,
    round: u32,
    interrupt: &Interrupt,
) -> Result<Step, Failure> {
    let start = |(_, command): &(&str, &str)| {
        let kind = SubjectKind::Command {
            transport: Transport::Tcp,
            words: (*command).to_owned(),
        };
        Server::of(&kind, None, interrupt)
    };
    let mut servers: Vec<Server> = members.iter().map(start).collect::<Result<_, Failure>>()?;
    let addresses = servers.iter().map(address).collect::<Result<Vec<_>, _>>()?;
    let began = std::time::Instant::now();
    let mut emulator = Emulator::connect(switches, &addresses, interrupt)?;
    if !emulator.until(SETTLED_MAX, are_settled) {
        return Err(unsettled(&emulator, switches));
    }
    let settled_s = began.elapsed().as_secs_f64();
    emulator.until(Duration::from_secs_f64(args.settle), |_| false);
    let master = emulator.switches[0].master();
    let Some(master) = master.filter(|_| are_settled(&emulator.switches)) else {
        return Err(unsettled(&emulator, switches));
    };

    emulator.switches.iter_mut().for_each(Switch::watch);
    let lost_before = emulator.lost;
    let memory_of_master = memory(&servers[master]);
    let at = emulator.now();
    let mut asked = None;
    match &args.hand_over {
        Some(command) => {
            let to = (0..members.len()).find(|n| *n != master);
            let to = members[to.unwrap_or_default()].0;
            asked = Some(spawn(&command.replace(TO, to))?);
            emulator.until(TAKEN_MAX, are_served);
        }
        None => std::thread::scope(|scope| {
            let victim = &mut servers[master];
            scope.spawn(|| victim.target.as_mut().map(|target| target.kill()));
            emulator.until(TAKEN_MAX, are_served);
        }),
    }
    if !are_served(&emulator.switches) {
        let served = |switch: &&Switch| switch.handover.served.is_some();
        let count = emulator.switches.iter().filter(served).count();
        return Err(Failure::negative(format!(
            "{count} of {switches} switches have another master after {} s",
            TAKEN_MAX.as_secs()
        )));
    }
    if let Some(mut asked) = asked {
        let _ = asked.wait();
    }
    let ms = |from: clock::Instant, to: clock::Instant| (to - from).as_secs_f64() * 1e3;
    let handovers: Vec<_> = emulator.switches.iter().map(|s| s.handover).collect();
    let latest = |of: fn(&switch::Handover) -> Option<clock::Instant>| {
        let latest = handovers.iter().filter_map(of).max();
        latest.map_or(0.0, |latest| ms(at, latest))
    };
    let from_lost = |of: fn(&switch::Handover) -> Option<clock::Instant>| {
        let of = |h: &switch::Handover| Some(ms(h.lost?, of(h)?));
        Summary::of(handovers.iter().filter_map(of))
    };
    let peaks = servers.iter().map(memory);
    let is_kill = args.hand_over.is_none();
    let expected = if is_kill { switches } else { 0 };
    Ok(Step {
        switches,
        round,
        settled_s,
        taken_ms: latest(|h| h.taken),
        served_ms: latest(|h| h.served),
        without_master_ms: from_lost(|h| h.taken),
        without_service_ms: from_lost(|h| h.served),
        refused: emulator.switches.iter().map(|s| s.refused).sum(),
        memory_peak_mib: peaks.fold(memory_of_master, f64::max),
        lost: (emulator.lost - lost_before).saturating_sub(expected),
        problem: emulator.problem.filter(|_| !is_kill),
    })
}

fn unsettled(emulator: &Emulator<'_>, switches: u32) -> Failure {
    let with_master = |switch: &&Switch| switch.master().is_some();
    let count = emulator.switches.iter().filter(with_master).count();
    let why = emulator.problem.as_deref().unwrap_or("no connection ended");
    Failure::negative(format!(
        "{count} of {switches} switches have a master after {} s, or not the same one; {} \
         connections ended: {why}",
        SETTLED_MAX.as_secs(),
        emulator.lost
    ))
}

/// Whether every switch has the same master, and all other members as slaves.
fn are_settled(switches: &[Switch]) -> bool {
    let first = switches.first().and_then(Switch::master);
    let is_settled = |switch: &Switch| {
        switch.lines.iter().all(|line| line.is_up)
            && switch.master() == first
            && switch.has_slaves()
    };
    first.is_some() && switches.iter().all(is_settled)
}

/// Whether every switch has another master, which works.
fn are_served(switches: &[Switch]) -> bool {
    let is_served = |switch: &Switch| switch.handover.served.is_some();
    switches.iter().all(is_served)
}

fn address(server: &Server) -> Result<SocketAddr, Failure> {
    let text = server.method.to_string();
    let address = text.strip_prefix("tcp:").and_then(|at| at.parse().ok());
    address.ok_or_else(|| Failure::usage(format!("{text}: no address")))
}

fn memory(server: &Server) -> f64 {
    server.usage().unwrap_or_default().memory_peak_mib
}

fn spawn(command: &str) -> Result<Child, Failure> {
    let child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    child.map_err(|error| Failure::machine(format!("sh: {error}")))
}

fn text(steps: &[Step]) -> String {
    let mut text = Columns::of(steps)
        .text("switches", |step| step.switches)
        .number("settled s", 2, |step| step.settled_s)
        .number("all taken ms", 1, |step| step.taken_ms)
        .number("all served ms", 1, |step| step.served_ms)
        .number("no master p50 ms", 2, |step| step.without_master_ms.p50)
        .number("max ms", 2, |step| step.without_master_ms.max)
        .number("no service p50 ms", 2, |step| step.without_service_ms.p50)
        .number("p99 ms", 2, |step| step.without_service_ms.p99)
        .number("max ms", 2, |step| step.without_service_ms.max)
        .text("refused", |step| step.refused)
        .number("peak MiB", 1, |step| step.memory_peak_mib)
        .table()
        + "\n";
    for step in steps.iter().filter(|step| step.lost > 0) {
        let why = step.problem.as_deref().unwrap_or("no reason given");
        text += &format!(
            "{} switches: {} lost a connection: {why}\n",
            step.switches, step.lost
        );
    }
    text
}

fn plots(results: &Results, steps: &[Step]) -> Result<(), Failure> {
    let line = |name: &str, of: fn(&Step) -> f64| {
        let points = steps.iter().map(|s| (f64::from(s.switches), of(s)));
        Series::new(name, points.collect())
    };
    let times = vec![
        line("all have a master", |s| s.taken_ms),
        line("it works at all", |s| s.served_ms),
    ];
    let title = "Time until another member has all switches";
    let plot = Plot::new(title, ["switches", "ms"], times);
    results.plot("taken", &plot.log_x().log_y().lines())?;
    let memory = vec![line("peak", |s| s.memory_peak_mib)];
    let plot = Plot::new("Memory of a member", ["switches", "MiB"], memory);
    results.plot("memory", &plot.log_x().log_y().lines())
}
