//! The network of the paper on controllers and QoS: round trips, transfers and streams, in the
//! idle network, beside background traffic, and beside it with queues on one link.
//!
//! Several controllers have a network each and take turns at every step, so that what drifts on the
//! machine drifts under all of them. What is done to a network (queues, flow entries) is the same
//! under each, and auster's own commands do it.

mod background;
mod figures;
mod plots;
mod problems;
mod report;
pub(crate) mod settings;
mod setup;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::experiment::Args;
use ::report::machine::Machine;
use ::report::output::{Results, command};
use background::Heard;
use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::output::say;
use cli::progress::Progress;
use figures::{Cell, Measure, Sample};
use report::{Beside, Document, LeftOut};
use settings::{Candidate, Scenario, Settings};
use setup::Setup;
use testbed::plane::Transport;
use testbed::tools;
use testbed::traffic::icmp;

/// Whether a scenario's file is one of these. Reading it reports its errors.
pub fn is_ours(scenario: &Path) -> bool {
    std::fs::read_to_string(scenario).is_ok_and(|text| settings::is_ours(&text))
}

pub fn run(args: &Args) -> Result<(), Failure> {
    if args.seconds.is_some() {
        return Err(Failure::usage(
            "--seconds: this scenario measures until all is sent; --runs says how often",
        ));
    }
    let scenario = Scenario::read(&args.scenario)?;
    let mut settings = scenario.qos_paper;
    let known = settings.controllers.clone();
    if args.quick {
        settings = settings.quick()?;
    }
    settings.bound(args.runs)?;
    settings.choose(&args.controller, &known)?;
    tools::require_network_tools()?;
    let results = Results::create(args.out.as_deref())?;
    let interrupt = Interrupt::take()?;
    let say = |line: String| {
        if !args.json {
            say!("{line}");
        }
    };
    let left_out = prepare(&mut settings.controllers);
    left_out.iter().for_each(|left| say(left.to_string()));
    if settings.controllers.is_empty() {
        return Err(Failure::machine("no controller is left to measure"));
    }
    say(format!("{}\n{}", scenario.title, settings.words()));
    let started_unix_s = unix_seconds();
    let experiment = Experiment {
        transport: args.transport.unwrap_or(Transport::Tcp),
        settings: &settings,
        interrupt: &interrupt,
        progress: Progress::start(),
        started: Instant::now(),
    };
    let (samples, beside) = experiment.run(&say)?;
    let took_s = experiment.started.elapsed().as_secs_f64().round();
    drop(experiment);
    let interrupted = interrupt.is_set();
    let rows = figures::rows(&settings, &samples);
    let mut checks = figures::checks(&settings, &rows);
    checks.push(figures::served(&settings, &beside));
    let document = Document {
        title: scenario.title,
        scenario: args.scenario.display().to_string(),
        command: command(),
        started_unix_s,
        took_s,
        machine: Machine::here(),
        passed: !interrupted && checks.iter().all(|check| check.passed),
        interrupted,
        reductions: figures::reductions(&settings, &rows),
        left_out,
        settings,
        checks,
        rows,
        beside,
        samples,
    };
    document.conclude(&results, args.json)
}

/// Does what each controller needs once; those for which it fails are taken out of the list.
fn prepare(controllers: &mut Vec<Candidate>) -> Vec<LeftOut> {
    let mut left_out = Vec::new();
    controllers.retain(|candidate| {
        let Some(words) = &candidate.prepare else {
            return true;
        };
        let mut shell = Command::new("sh");
        shell.args(["-c", words]).stdin(Stdio::null());
        let why = match shell.output() {
            Ok(output) if output.status.success() => return true,
            Ok(output) => {
                let errors = String::from_utf8_lossy(&output.stderr);
                let last = errors.lines().last().unwrap_or("it said nothing");
                format!("{last} ({})", output.status)
            }
            Err(problem) => problem.to_string(),
        };
        left_out.push(LeftOut {
            controller: candidate.name.clone(),
            why: format!("'{words}': {why}"),
        });
        false
    });
    left_out
}

/// The work of a turn.
#[derive(Clone, Copy, Debug)]
enum Step {
    Ping,
    Transfer,
    Stream,
}

const STEPS: [Step; 3] = [Step::Ping, Step::Transfer, Step::Stream];

struct Experiment<'a> {
    settings: &'a Settings,
    transport: Transport,
    interrupt: &'a Interrupt,
    progress: Progress,
    started: Instant,
}

impl Experiment<'_> {
    /// All samples, or those until the interrupt.
    fn run(&self, say: &dyn Fn(String)) -> Result<(Vec<Sample>, Vec<Beside>), Failure> {
        let (mut samples, mut beside) = (Vec::new(), Vec::new());
        for round in 0..self.settings.runs {
            let Some(mut setups) = self.setups(round)? else {
                return Ok((samples, beside));
            };
            for cell in Cell::ALL {
                self.cell(round, cell, &mut setups, &mut samples, &mut beside)?;
                if self.interrupt.is_set() {
                    return Ok((samples, beside));
                }
            }
            self.progress.clear();
            say(format!(
                "  {:4.0} s  run {} of {}",
                self.started.elapsed().as_secs_f64(),
                round + 1,
                self.settings.runs
            ));
        }
        Ok((samples, beside))
    }

    /// Makes new networks for every run. Open vSwitch draws the order in which it serves its ports
    /// when it makes them, and without queues that order decides whose packets find room.
    fn setups(&self, round: u32) -> Result<Option<Vec<Setup>>, Failure> {
        let mut setups = Vec::new();
        for candidate in &self.settings.controllers {
            self.progress.say(format_args!(
                "run {}: starting the network of {}",
                round + 1,
                candidate.name
            ));
            match Setup::start(candidate, self.settings, self.transport, self.interrupt)? {
                Some(setup) => setups.push(setup),
                None => return Ok(None),
            }
        }
        self.progress.clear();
        Ok(Some(setups))
    }

    fn cell(
        &self,
        round: u32,
        cell: Cell,
        setups: &mut [Setup],
        samples: &mut Vec<Sample>,
        beside: &mut Vec<Beside>,
    ) -> Result<(), Failure> {
        if cell == Cell::Qos {
            for setup in &*setups {
                setup.set_qos(self.settings)?;
            }
        }
        let mut heard = vec![Heard::default(); setups.len()];
        for step in STEPS {
            for turn in 0..setups.len() {
                if self.interrupt.is_set() {
                    return Ok(());
                }
                // Not always the same one first.
                let place = (turn + round as usize) % setups.len();
                let setup = &mut setups[place];
                self.progress.say(format_args!(
                    "{}, run {}, {}: {step:?}",
                    setup.name,
                    round + 1,
                    cell.name()
                ));
                let running = match cell {
                    Cell::Idle => None,
                    Cell::Background | Cell::Qos => {
                        let running = setup.background.start(&self.settings.background)?;
                        std::thread::sleep(self.settings.background.ramp());
                        Some(running)
                    }
                };
                let found = self.step(step, round, cell, setup);
                if let Some(running) = running {
                    heard[place].add(running.stop()?);
                }
                samples.extend(found?);
                setup.check()?;
            }
        }
        for (setup, heard) in setups.iter().zip(heard) {
            if cell != Cell::Idle {
                let service_packets = match cell {
                    Cell::Qos => Some(setup.service_packets(self.settings)?),
                    _ => None,
                };
                beside.push(Beside {
                    controller: setup.name.clone(),
                    round,
                    cell,
                    heard,
                    service_packets,
                });
            }
            if cell == Cell::Qos {
                setup.clear_qos(self.settings)?;
            }
        }
        Ok(())
    }

    fn step(
        &self,
        step: Step,
        round: u32,
        cell: Cell,
        setup: &mut Setup,
    ) -> Result<Vec<Sample>, Failure> {
        let settings = self.settings;
        let name = setup.name.clone();
        let sample = |measure, at, value, lost| Sample {
            controller: name.clone(),
            round,
            cell,
            measure,
            at,
            value,
            lost,
        };
        let mut samples = Vec::new();
        match step {
            Step::Ping => {
                for hops in setup::HOPS {
                    let trials = setup.ping(hops, settings.pings as usize, self.interrupt)?;
                    let icmp = icmp::summarise(&trials);
                    for (measure, summary, lost) in [
                        (Measure::First, icmp.first_ms, icmp.first_lost),
                        (Measure::Later, icmp.later_ms, icmp.later_lost),
                    ] {
                        let value = (summary.count > 0).then_some(summary.mean);
                        samples.push(sample(measure, hops, value, lost));
                    }
                }
            }
            Step::Transfer => {
                for &size in &settings.sizes_mb {
                    if self.interrupt.is_set() {
                        break;
                    }
                    let took = setup.transfer(settings.bytes(size));
                    if let Err(failure) = &took {
                        tracing::warn!("{name}: {failure:?}");
                    }
                    let failed = u64::from(took.is_err());
                    let ms = took.ok().map(|took| took.as_secs_f64() * 1e3);
                    samples.push(sample(Measure::Tcp, size, ms, failed));
                }
            }
            Step::Stream => {
                for &size in &settings.sizes_mb {
                    if self.interrupt.is_set() {
                        break;
                    }
                    let (sent, lost) = setup.stream(&settings.pace(size), self.interrupt)?;
                    let percent = (sent > 0).then(|| lost as f64 * 100.0 / sent as f64);
                    samples.push(sample(Measure::Udp, size, percent, lost));
                }
            }
        }
        Ok(samples)
    }
}
