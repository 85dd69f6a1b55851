//! `[out_of_band]`: a switch whose control link is a wire of its own and overloaded by new flows.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::experiment::Args;
use crate::pso::figures::Run;
use crate::pso::plane::Plane;
use crate::pso::report::{self, Document};
use crate::pso::settings::{OutOfBand, Scenario};
use crate::pso::shaper::{self, Traffic};
use crate::pso::source::Load;
use ::report::machine::Machine;
use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::output::{note, say, say_part};
use cli::progress::Progress;
use cli::signals::Signals;
use testbed::plane::Transport;
use testbed::tools;

pub fn run(args: &Args) -> Result<(), Failure> {
    let scenario = Scenario::read(&args.scenario)?;
    let mut settings = scenario.out_of_band;
    if args.quick {
        settings = settings.quick()?;
    }
    if let Some(transport) = args.transport {
        settings.transports = vec![transport];
    }
    if let Some(runs) = args.runs {
        settings.runs = runs;
        settings
            .flood
            .iter_mut()
            .for_each(|flood| flood.runs = runs);
    }
    let beside = args.scenario.parent().unwrap_or(Path::new("."));
    let policies = Policies::read(&settings, beside)?;
    tools::require_network_tools()?;
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out).map_err(|e| Failure::file(out, e))?;
    }
    // Before anything that starts a thread; see `Signals::take`.
    let signals = Signals::take()?;
    note!(
        "{}: {} runs, about {:.0} min",
        scenario.title,
        settings.runs_in_all(),
        expected(&settings).as_secs_f64() / 60.0
    );
    let started_unix_s = unix_seconds();
    let mut experiment = Experiment::start(settings, scenario.seed, policies, signals)?;
    let interrupted = experiment.run_all()?;
    let Experiment {
        settings,
        runs,
        floods,
        ..
    } = experiment;
    let cells = report::cells(&runs);
    let mut checks = report::checks(&settings.claims, &cells);
    if let Some(flood) = &settings.flood {
        checks.extend(report::flood_checks(flood, &floods));
    }
    let document = Document {
        title: scenario.title,
        scenario: args.scenario.display().to_string(),
        command: command(),
        started_unix_s,
        machine: Machine::here(),
        settings,
        passed: !interrupted && checks.iter().all(|check| check.passed),
        interrupted,
        checks,
        cells,
        flood: report::cells(&floods),
    };
    conclude(args, &document, &runs, &floods)
}

/// The policy maps without their algorithm, as text.
struct Policies {
    grid: String,
    flood: Option<String>,
}

impl Policies {
    fn read(settings: &OutOfBand, beside: &Path) -> Result<Policies, Failure> {
        let text = |name: &PathBuf| {
            let path = beside.join(name);
            std::fs::read_to_string(&path).map_err(|e| Failure::file(path, e))
        };
        Ok(Policies {
            grid: text(&settings.policy)?,
            flood: (settings.flood.as_ref())
                .map(|flood| text(&flood.policy))
                .transpose()?,
        })
    }
}

/// The runs that one pair of relays carries in turn.
struct Leg<'a> {
    transport: Transport,
    algorithm: &'a str,
    policy: &'a str,
    loads: &'a [f64],
    round: u32,
    run_s: f64,
    cross_port: Option<u16>,
}

struct Experiment {
    settings: OutOfBand,
    seed: u64,
    policies: Policies,
    signals: Signals,
    plane: Plane,
    progress: Progress,
    started: Instant,
    /// The number of all runs so far, the flood's included.
    count: u32,
    runs: Vec<Run>,
    floods: Vec<Run>,
}

impl Experiment {
    fn start(
        settings: OutOfBand,
        seed: u64,
        policies: Policies,
        signals: Signals,
    ) -> Result<Experiment, Failure> {
        let plane = Plane::start(&settings)?;
        Ok(Experiment {
            settings,
            seed,
            policies,
            signals,
            plane,
            progress: Progress::start(),
            started: Instant::now(),
            count: 0,
            runs: Vec::new(),
            floods: Vec::new(),
        })
    }

    /// Every cell once before any cell twice, each time with relays of its own, so that what drifts
    /// on the machine drifts under all cells alike. Answers whether it was interrupted.
    fn run_all(&mut self) -> Result<bool, Failure> {
        let settings = self.settings.clone();
        let grid = self.policies.grid.clone();
        for transport in settings.transports.iter().copied() {
            for round in 0..settings.runs {
                for algorithm in &settings.algorithms {
                    let leg = Leg {
                        transport,
                        algorithm,
                        policy: &grid,
                        loads: &settings.loads,
                        round,
                        run_s: settings.run_s,
                        cross_port: None,
                    };
                    let (found, interrupted) = self.run_leg(&leg)?;
                    self.runs.extend(found);
                    if interrupted {
                        return Ok(true);
                    }
                }
            }
            self.say(transport, "every load");
        }
        let (Some(flood), Some(policy)) = (settings.flood, self.policies.flood.clone()) else {
            return Ok(false);
        };
        for transport in settings.transports {
            for round in 0..flood.runs {
                for algorithm in &flood.algorithms {
                    let leg = Leg {
                        transport,
                        algorithm,
                        policy: &policy,
                        loads: &[flood.load],
                        round,
                        run_s: flood.run_s,
                        cross_port: Some(flood.port),
                    };
                    let (found, interrupted) = self.run_leg(&leg)?;
                    self.floods.extend(found);
                    if interrupted {
                        return Ok(true);
                    }
                }
            }
            self.say(transport, "a flood above the target");
        }
        Ok(false)
    }

    /// Also answers whether it was interrupted.
    fn run_leg(&mut self, leg: &Leg) -> Result<(Vec<Run>, bool), Failure> {
        let text = format!("{}\nScheduler: algo={}\n", leg.policy, leg.algorithm);
        let policy = self.plane.file("policy", &text)?;
        self.plane
            .start_relays(leg.transport, &policy, &self.signals)?;
        let mut found = Vec::new();
        for load in leg.loads {
            self.progress.say(format_args!(
                "{} of {} runs, {:.0} s: {}, {}, load {load}",
                self.count,
                self.settings.runs_in_all(),
                self.started.elapsed().as_secs_f64(),
                leg.transport.name(),
                leg.algorithm
            ));
            let run = self.run_one(leg, *load)?;
            if run.trial.interrupted {
                return Ok((found, true));
            }
            if let Some(casualty) = self.plane.network.casualty() {
                return Err(Failure::machine(casualty));
            }
            found.push(run);
        }
        Ok((found, false))
    }

    fn run_one(&mut self, leg: &Leg, load: f64) -> Result<Run, Failure> {
        self.count += 1;
        let offered = Load {
            run: self.count,
            target_per_s: self.settings.target_per_s,
            cross_per_s: self.settings.cross_per_s(load),
            duration: Duration::from_secs_f64(leg.run_s),
            // All algorithms and transports meet the same packets.
            seed: self.seed.wrapping_add(u64::from(leg.round) << 32) ^ load.to_bits(),
            frame_bytes: self.settings.frame_bytes(),
            dscp: [0, 0],
            cross_port: leg.cross_port,
        };
        let before = self.traffic()?;
        let trial = self
            .plane
            .stage
            .run(&offered, &self.signals)
            .map_err(Failure::machine)?;
        let after = self.traffic()?;
        Ok(Run {
            transport: leg.transport,
            algorithm: leg.algorithm.to_string(),
            load,
            number: leg.round,
            trial,
            run_s: leg.run_s,
            frame_bytes: self.settings.frame_bytes(),
            link: [0, 1].map(|end| after[end].since(before[end])),
        })
    }

    fn traffic(&self) -> Result<[Traffic; 2], Failure> {
        let [switch, controller] = &self.plane.link;
        Ok([shaper::traffic(switch)?, shaper::traffic(controller)?])
    }

    fn say(&self, transport: Transport, what: &str) {
        self.progress.clear();
        note!(
            "  {:6.0} s  {}: {what}",
            self.started.elapsed().as_secs_f64(),
            transport.name()
        );
    }
}

/// With what a run and a start of relays take beside their time.
fn expected(settings: &OutOfBand) -> Duration {
    const RUN_S: f64 = 0.45;
    const RELAYS_S: f64 = 1.5;
    let transports = settings.transports.len() as f64;
    let legs = settings.algorithms.len() as f64 * f64::from(settings.runs);
    let grid = legs * (RELAYS_S + settings.loads.len() as f64 * (RUN_S + settings.run_s));
    let flood = settings.flood.as_ref().map_or(0.0, |flood| {
        let legs = flood.algorithms.len() as f64 * f64::from(flood.runs);
        legs * (RELAYS_S + RUN_S + flood.run_s)
    });
    Duration::from_secs_f64(transports * (grid + flood))
}

/// The words of the command line; the program without its place on this machine.
fn command() -> Vec<String> {
    let words = std::env::args().skip(1);
    std::iter::once("auster".to_string()).chain(words).collect()
}

fn conclude(args: &Args, document: &Document, runs: &[Run], floods: &[Run]) -> Result<(), Failure> {
    if let Some(dir) = &args.out {
        report::write(dir, document, runs, floods)?;
        note!("written to {}", dir.display());
    }
    if args.json {
        let text = serde_json::to_string_pretty(document)
            .map_err(|e| Failure::negative(format!("results as JSON: {e}")))?;
        say!("{text}");
    } else {
        say!("{}", report::grid(&document.cells));
        if !document.flood.is_empty() {
            say!(
                "A flood in the class above the target:\n{}",
                report::grid(&document.flood)
            );
        }
        say_part!("{}", report::verdict_lines(&document.checks));
    }
    if document.interrupted {
        return Err(Failure::negative(
            "interrupted: the figures are those until then",
        ));
    }
    let failed = document.checks.iter().filter(|check| !check.passed).count();
    match failed {
        0 => Ok(()),
        failed => Err(Failure::negative(format!(
            "{failed} of {} claims do not hold",
            document.checks.len()
        ))),
    }
}
