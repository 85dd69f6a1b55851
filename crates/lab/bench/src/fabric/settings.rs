//! Turns flags into a plan, or into one line about flags that make no sense; runs all rounds.

use std::time::Duration;

use super::net::Net;
use super::run::{Leg, Load, Measured, Plan, Runner, address};
use super::{Args, Workload};
use crate::controller::rounds::{Failed, Rounds};
use crate::controller::settings::{RATE_MAX, Subject, SubjectKind, rate, seconds, subjects, whole};
use crate::controller::switch::Announce;
use crate::controller::target::Server;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::progress::Progress;

/// Default conversations a second for workloads with events.
const EVENTS_RATE: f64 = 200.0;

pub struct Settings {
    pub subjects: Vec<Subject>,
    pub plan: Plan,
    pub topologies: Vec<String>,
    /// Runs of each round that are known in advance.
    pub legs: Vec<Leg>,
    /// Further runs, at these multiples of the rate that the first run delivered.
    pub overload: Vec<f64>,
    pub rounds: u32,
    pid: Option<i32>,
}

impl Settings {
    pub fn resolve(args: &Args) -> Result<Settings, Failure> {
        let subjects = subjects(&args.subjects)?;
        for subject in &subjects {
            if let SubjectKind::Method(method) = &subject.kind {
                address(method)?;
            }
        }
        let workload = args.workload;
        let is_stormy = workload == Workload::Storm;
        let storm_rate = match is_stormy {
            true => rate("--storm-rate", args.storm_rate)?,
            false => 0.0,
        };
        let has_events = workload.has_events();
        if (args.same_switch || !args.overload.is_empty()) && (has_events || is_stormy) {
            return Err(Failure::usage(
                "--same-switch and --overload are for --workload pairs and arp",
            ));
        }
        if args.same_switch && args.host_ports < 2 {
            return Err(Failure::usage(
                "--same-switch needs hosts behind different ports: --host-ports 2 or more",
            ));
        }
        for topology in &args.topologies {
            let net = Net::generate(topology, args.host_ports, args.hosts);
            let net = net.map_err(Failure::usage)?;
            if net.edges().count() < 2 {
                return Err(Failure::usage(format!(
                    "--topology {topology}: conversations need two switches with hosts"
                )));
            }
        }
        if args.topologies.len() > 1 && !args.overload.is_empty() {
            return Err(Failure::usage("--overload takes one --topology"));
        }
        if let Some(wrong) = args.overload.iter().find(|x| !(0.0..=100.0).contains(*x)) {
            return Err(Failure::usage(format!(
                "--overload {wrong}: write numbers above 0 and up to 100"
            )));
        }
        let load = match args.rate {
            Some(given) => Load::Rate(rate("--rate", given)?),
            None if has_events => Load::Rate(EVENTS_RATE),
            None => Load::Window(whole("--window", args.window, 1, 1 << 16)?),
        };
        let mut legs = Vec::new();
        for topology in &args.topologies {
            let mut add = |kind: &'static str, same_switch, is_stormy| {
                legs.push(Leg {
                    name: match args.topologies.len() {
                        1 => kind.to_owned(),
                        _ => format!("{topology} {kind}"),
                    },
                    kind,
                    topology: topology.clone(),
                    same_switch,
                    load,
                    is_stormy,
                    calm_rate: None,
                });
            };
            add("across", false, false);
            if args.same_switch {
                add("same switch", true, false);
            }
            if is_stormy {
                add("storm", false, true);
            }
        }
        let is_by_arp = matches!(workload, Workload::Arp | Workload::Moves);
        let announce = match is_by_arp {
            true => Announce::Arp,
            false => Announce::Keepalive,
        };
        let plan = Plan {
            host_ports: args.host_ports,
            hosts: args.hosts,
            choice: args.pairs,
            workload,
            storm_rate,
            timeout: seconds("--timeout", args.timeout / 1e3, 1e-3)?,
            settle: seconds("--settle", args.settle / 1e3, 0.0)?,
            discovery_max: seconds("--discovery-max", args.discovery_max, 0.0)?,
            warmup: seconds("--warmup", args.warmup, 0.0)?,
            duration: seconds("--duration", args.duration, 0.01)?,
            echo_interval: seconds("--echo-interval", args.echo_interval / 1e3, 1e-3)?,
            announce: args.announce.unwrap_or(announce),
            conversations: whole("--conversations", args.conversations as u32, 1, 100_000)?
                as usize,
            events: whole("--events", args.events, 1, 10_000)?,
            seed: args.seed,
        };
        Ok(Settings {
            subjects,
            plan,
            topologies: args.topologies.clone(),
            legs,
            overload: args.overload.clone(),
            rounds: whole("--rounds", args.rounds, 1, 10_000)?,
            pid: args.pid,
        })
    }

    /// The headline: the load that is measured, and the controllers compared.
    pub fn headline(&self) -> String {
        let plan = &self.plan;
        let how = match (plan.workload, self.legs[0].load) {
            (_, Load::Rate(rate)) => format!("{rate} conversations/s"),
            (_, Load::Window(window)) => format!("{window} first packets of each switch under way"),
        };
        let each = match plan.workload.has_events() {
            true => format!("{} events", plan.events),
            false => format!("{:.1} s each", plan.duration.as_secs_f64()),
        };
        let names: Vec<&str> = self.subjects.iter().map(|s| s.name.as_str()).collect();
        format!(
            "{}, {} hosts behind {} ports of each switch, {how}; {} x {each}: {}",
            self.topologies.join(", "),
            plan.hosts,
            plan.host_ports,
            self.rounds,
            names.join(", ")
        )
    }
}

/// Measures the controllers in turn, round after round. Each run has fresh switches and, where a
/// command starts it, a fresh controller. A controller that fails has no more turns.
pub fn measure(settings: &Settings, interrupt: &Interrupt) -> Result<Rounds<Measured>, Failure> {
    let mut rounds = Rounds::new(&settings.subjects);
    let progress = Progress::start();
    for round in 1..=settings.rounds {
        for (at, subject) in settings.subjects.iter().enumerate() {
            let turns = &mut rounds.turns[at];
            let mut legs = settings.legs.clone();
            let mut number = 0;
            while number < legs.len() && !interrupt.is_set() && !turns.is_given_up() {
                let title = format!(
                    "round {round} of {}, {}, {}",
                    settings.rounds, subject.name, legs[number].name
                );
                let runner = Runner {
                    plan: &settings.plan,
                    leg: &legs[number],
                    title,
                    interrupt,
                    progress: &progress,
                };
                // The process id is that of the first controller.
                let pid = settings.pid.filter(|_| at == 0);
                let server = Server::of(&subject.kind, pid, interrupt);
                match server.and_then(|mut server| runner.run(&mut server)) {
                    Ok(measured) => {
                        if number == 0 {
                            let carried = measured.delivered_per_s();
                            let times = settings.overload.iter();
                            legs.extend(
                                times.map(|times| overloaded(&settings.legs[0], *times, carried)),
                            );
                        }
                        turns.runs.push((round, measured));
                    }
                    Err(_) if interrupt.is_set() => break,
                    Err(failure) => turns.failed.push(Failed {
                        round,
                        failure,
                        run: None,
                    }),
                }
                number += 1;
            }
        }
    }
    rounds.interrupted = interrupt.is_set();
    rounds.or_failure()
}

/// The share of the delivered rate that counts as light load.
const CALM_PART: f64 = 0.1;

fn overloaded(first: &Leg, times: f64, carried: f64) -> Leg {
    Leg {
        name: format!("x {times}"),
        load: Load::Rate((times * carried).clamp(1.0, RATE_MAX)),
        calm_rate: Some((CALM_PART * carried).clamp(1.0, RATE_MAX)),
        ..first.clone()
    }
}

/// Time in milliseconds.
pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
