//! Runs a scenario on real networks, one after the other, with figures and verdicts.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use ::report::machine::Machine;
use ::report::output::Results;
use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::output::{note, say, say_part};
use cli::parallel::{self, joined};
use cli::progress::Progress;
use cli::signals::Signals;
use clock::{Fnv1a, SplitMix64};
use measure::distinct;
use measure::quantiles::Quantiles;
use testbed::ledger::Ledger;
use testbed::network::{Network, SWITCHES};
use testbed::plane::{self, Controller, Plane, Transport};
use testbed::probe::{Flow, Prober, Sample};
use testbed::tools::Shell;
use testbed::topology::Topology;
use testbed::traffic::tcp::Ends;
use testbed::{status, tools};

use crate::engine::course::Course;
use crate::engine::event::Event;
use crate::engine::lateness::Lateness;
use crate::engine::plot;
use crate::engine::probe::{Scene, Series};
use crate::engine::reader::Problem;
use crate::engine::readiness::{PAIRS_AT_ONCE, Readiness, ping_failure};
use crate::engine::rows::{self, Measured, Row};
use crate::engine::schema::{Cell, Circumstances, NetworkRuns, NetworkSpec, Run, Scenario};
use crate::engine::timeline::{self, END, START, time_of};
use crate::engine::traffic::{Carried, Echoes, Stage};
use crate::experiment::Args;
use crate::report::{self, Check, Document, Outcome, milliseconds, seconds};

/// Above this number of pairs, the table of all pairs is not useful.
const PAIRS_SHOWN_MAX: usize = 20;
/// Above this number of networks, the table of all networks is not useful.
const NETWORKS_SHOWN_MAX: usize = 20;
/// Time from a signal until the program is ended, unless it has ended by itself.
const ORDERLY_END_MAX: Duration = Duration::from_millis(500);

pub fn run(args: &Args, only_simulated: bool) -> Result<(), Failure> {
    let path = &args.scenario;
    let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
    let transport = args.transport.unwrap_or(Transport::Tcp);
    let controller = Controller::parse(args.controller.as_deref().unwrap_or("auster"), transport)?;
    let around = Circumstances {
        beside: path.parent().unwrap_or(Path::new(".")),
        controller: &controller,
        runs: args.runs.map(u64::from),
        seconds: args.seconds,
        seed: args.seed.map(u64::from),
        quick: args.quick,
        only: &args.only,
    };
    let mut scenario = Scenario::read(&text, &around).map_err(|found| mistakes(path, &found))?;
    if only_simulated && !scenario.is_simulated {
        let path = path.display();
        return Err(Failure::usage(format!(
            "{path}: this experiment is not simulated; run it by auster lab run {path}"
        )));
    }
    let has_network = scenario
        .cells
        .iter()
        .any(|cell| cell.network.has_switches());
    if !has_network && (args.transport.is_some() || args.controller.is_some()) {
        return Err(Failure::usage(
            "--controller, --transport: the scenario has no network",
        ));
    }
    if scenario.own_controller && (args.transport.is_some() || args.controller.is_some()) {
        return Err(Failure::usage(
            "--controller, --transport: the scenario has a [controller] of its own",
        ));
    }
    if let Some(version) = args.openflow
        && !scenario.speak(version)
    {
        return Err(Failure::usage(
            "--openflow: the scenario has no switches of auster's",
        ));
    }
    // Reported by itself, before the title.
    match has_network {
        _ if scenario.is_simulated => {}
        true => tools::require_network_tools()?,
        false => tools::require_link_tools()?,
    }
    let results = args.output.results()?;
    let left_out = prepare(&mut scenario);
    if scenario.networks.is_empty() {
        let problems = left_out.join("; ");
        return Err(Failure::machine(format!(
            "no controller is left to measure: {problems}"
        )));
    }
    left_out.iter().for_each(|left| note!("left out: {left}"));
    // This must precede anything that starts a thread; see `Signals::take`.
    let signals = Arc::new(Signals::take()?);
    end_at_signal(signals.clone())?;
    let controllers = controllers(&scenario);
    match scenario.is_simulated {
        true => note!("{}", scenario.title),
        false => note!("{}: {controllers}", scenario.title),
    }
    let done = experiment(args, &scenario, controllers, left_out, &signals, &results);
    done.map_err(|failure| match signals.seen() {
        // The failure is a consequence of the lab's removal.
        true => interrupted(),
        false => failure,
    })
}

fn experiment(
    args: &Args,
    scenario: &Scenario,
    controllers: String,
    left_out: Vec<String>,
    signals: &Signals,
    results: &Results,
) -> Result<(), Failure> {
    let mut experiment = Experiment::new(scenario, signals);
    experiment.stays = scenario.stay && !args.once && !args.output.json;
    let mut outcomes = Vec::new();
    let mut failed: Vec<(&Controller, Failure)> = Vec::new();
    let mut left = scenario.networks.as_slice();
    while let Some(first) = left.first() {
        let cell = |network: &NetworkRuns| &scenario.cells[network.runs[0].cell];
        let controller = &cell(first).network.controller;
        if failed.iter().any(|(known, _)| *known == controller) {
            left = &left[1..];
            continue;
        }
        let is_alone = !cell(first).network.has_switches();
        let most = if is_alone { 1 } else { cell(first).at_once };
        let same = left.iter().take(most);
        let same = same.take_while(|network| cell(network).at_once == cell(first).at_once);
        let (batch, rest) = left.split_at(same.count());
        left = rest;
        let done = match batch {
            [network] if is_alone => experiment.alone(&network.runs, &mut outcomes),
            [network] => experiment.whole(&network.runs, left.is_empty(), &mut outcomes),
            _ => experiment.side_by_side(batch, &mut outcomes),
        };
        match done {
            Ok(()) => {}
            Err(failure) if signals.seen() => return Err(failure),
            Err(failure) => {
                note!("  FAILED: {}", failure.message());
                failed.push((controller, failure));
            }
        }
    }
    if outcomes.is_empty() && !failed.is_empty() {
        return Err(failed.swap_remove(0).1);
    }
    let Experiment {
        raw,
        rows,
        late,
        stays,
        ..
    } = experiment;
    let mut checks = rows::verdicts(scenario, &rows);
    checks.extend(failed.into_iter().map(|(controller, failure)| Check {
        what: format!("{controller} is measured to the end"),
        passed: false,
        found: failure.message().to_string(),
    }));
    let document = Document {
        title: scenario.title.clone(),
        seconds: scenario.seconds,
        scenario: args.scenario.display().to_string(),
        command: std::env::args().collect(),
        controller: controllers,
        started_unix_s: unix_seconds(),
        machine: Machine::here(),
        passed: outcomes.iter().all(Outcome::passed) && checks.iter().all(|check| check.passed),
        left_out,
        late,
        networks: outcomes,
        checks,
    };
    if !args.output.json && !stays {
        document.networks.iter().for_each(show_details);
    }
    if !args.output.json {
        say_part!("{}", rows::tables(scenario, &rows));
    }
    let plots = plot::draw(scenario, &rows);
    conclude(args, results, &document, &raw, &plots)
}

/// Ends the program soon after a signal, whatever is running: traffic, probes and starting
/// controllers do not check for signals. Code that checks for signals ends in order before that.
fn end_at_signal(signals: Arc<Signals>) -> Result<(), Failure> {
    let watch = move || {
        while !signals.wait(Duration::MAX) {}
        std::thread::sleep(ORDERLY_END_MAX);
        Ledger::remove_own();
        let _ = interrupted().report();
        cli::output::flush();
        std::process::exit(1)
    };
    let thread = std::thread::Builder::new().name("interrupt".to_owned());
    let spawned = thread.spawn(watch);
    spawned
        .map(drop)
        .map_err(|e| Failure::machine(format!("signals: {e}")))
}

/// Returns the failure of a run ended by a signal to the first thread that asks. Any other thread
/// waits for the program's end.
fn interrupted() -> Failure {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    while IS_SAID.swap(true, Ordering::SeqCst) {
        std::thread::park();
    }
    Failure::negative("interrupted; the lab is removed")
}

/// Prepares each controller once: runs its own command and, for a controller that already runs,
/// checks that something listens at its address. If that fails, the controller's cells have no runs
/// and no rows. Returns these controllers with the reasons.
fn prepare(scenario: &mut Scenario) -> Vec<String> {
    let (mut prepared, mut reached) = (BTreeMap::new(), BTreeMap::new());
    let mut problem = |network: &NetworkSpec| -> Option<String> {
        let controller = &network.controller;
        if let Some(words) = &network.prepare {
            let problem = prepared.entry(words.clone()).or_insert_with(|| {
                let problem = tools::shell(words).err()?;
                Some(format!("{controller}: {words}: {problem}"))
            });
            if problem.is_some() {
                return problem.clone();
            }
        }
        if !network.setup.is_empty() {
            // A set-up command may start the controller.
            return None;
        }
        let problem = reached.entry(controller.to_string()).or_insert_with(|| {
            let problem = controller.check_reachable().err()?;
            Some(format!("{controller}: {problem}"))
        });
        problem.clone()
    };
    let mut problems = Vec::new();
    for cell in &mut scenario.cells {
        let problem = problem(&cell.network);
        if problem.is_some() {
            cell.rows.clear();
        }
        problems.push(problem);
    }
    let is_there = |run: &Run| problems[run.cell].is_none();
    (scenario.networks).retain(|network| network.runs.iter().all(is_there));
    distinct(problems.into_iter().flatten())
}

/// Reads scenarios and reports all their mistakes.
pub fn check(path: &Path) -> Result<(), Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
    // With this controller, every process of the control plane exists.
    let controller = Controller::parse("auster", Transport::Quic)?;
    let read = |quick| {
        let around = Circumstances {
            beside: path.parent().unwrap_or(Path::new(".")),
            controller: &controller,
            runs: None,
            seconds: None,
            seed: None,
            quick,
            only: &[],
        };
        Scenario::read(&text, &around).map_err(|found| mistakes(path, &found))
    };
    match read(false)?.has_quick {
        true => read(true).map(drop),
        false => Ok(()),
    }
}

/// The controllers of all cells, each once.
fn controllers(scenario: &Scenario) -> String {
    let cells = scenario.cells.iter();
    distinct(cells.map(|cell| cell.network.controller.to_string())).join("; ")
}

/// One line for each mistake.
fn mistakes(path: &Path, found: &[Problem]) -> Failure {
    let lines = found
        .iter()
        .map(|problem| format!("{}: {problem}", path.display()));
    Failure::usage(lines.collect::<Vec<_>>().join("\n"))
}

struct Experiment<'a> {
    scenario: &'a Scenario,
    signals: &'a Signals,
    stays: bool,
    /// A line per packet, by network.
    raw: Vec<(String, Vec<String>)>,
    rows: Vec<Row>,
    late: Lateness,
    /// Invalid tries of the next run so far.
    repeats: u64,
}

impl<'a> Experiment<'a> {
    fn new(scenario: &'a Scenario, signals: &'a Signals) -> Experiment<'a> {
        Experiment {
            scenario,
            signals,
            stays: false,
            raw: Vec::new(),
            rows: Vec::new(),
            late: Lateness::default(),
            repeats: 0,
        }
    }

    /// Runs networks at the same time, each with its own controller and runs.
    fn side_by_side(
        &mut self,
        networks: &[NetworkRuns],
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Failure> {
        let (scenario, signals) = (self.scenario, self.signals);
        let parts = parallel::at_once(networks, |network| {
            let (mut part, mut outcomes) = (Experiment::new(scenario, signals), Vec::new());
            let done = part.whole(&network.runs, false, &mut outcomes);
            (part, outcomes, done)
        });
        let mut all_done = Ok(());
        for (part, own, done) in parts {
            self.raw.extend(part.raw);
            self.rows.extend(part.rows);
            self.late.merge(part.late);
            outcomes.extend(own);
            all_done = all_done.and(done);
        }
        all_done
    }

    /// Carries out all runs on one network, and on a new, equal network after each invalid run.
    /// If a network fails, the rows of its earlier runs remain.
    fn whole(
        &mut self,
        mut runs: &[Run],
        last: bool,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Failure> {
        while !runs.is_empty() {
            let topology = &self.scenario.cells[runs[0].cell].network.topology;
            let mut outcome = self.outcome(topology);
            let done = self.network(runs, last, &mut outcome);
            if done.is_ok() || outcome.rows.values().any(|rows| !rows.is_empty()) {
                outcomes.push(outcome);
            }
            runs = &runs[done?..];
        }
        Ok(())
    }

    /// Sets up one network, carries out its runs until one is invalid or all are done, and removes
    /// the network. Returns the number of runs that count.
    fn network(
        &mut self,
        runs: &[Run],
        last: bool,
        outcome: &mut Outcome,
    ) -> Result<usize, Failure> {
        let cell = &self.scenario.cells[runs[0].cell];
        let topology = cell.network.topology.clone();
        note!(
            "\n{}: {} switches, {} links, {} hosts",
            topology.name,
            topology.switches.len(),
            topology.links.len(),
            topology.hosts.len()
        );
        let options = &cell.network.options;
        let begun = Instant::now();
        let mut network = Network::start(topology, &cell.network.controller.to_string(), options)?;
        outcome.network_up_s = seconds(begun.elapsed());
        note!(
            "  {:6.2} s  network up, as lab {}",
            outcome.network_up_s,
            network.id()
        );
        if cell.network.static_arp {
            network.set_neighbours()?;
        }
        plane::write_config(&network, &cell.network.config)?;
        let started = Instant::now();
        let plane = Plane::start(&mut network, &cell.network.controller)?;
        for step in &cell.network.setup {
            step.apply(&mut network)?;
        }
        let hosts = network.topology.hosts.iter();
        let namespaces: Vec<_> = hosts
            .map(|host| (network.namespace(&host.name), host.address))
            .collect();
        let mut prober = Prober::new(namespaces).map_err(Failure::machine)?;
        let mut done = 0;
        let mut introduced = BTreeSet::new();
        for (n, run) in runs.iter().enumerate() {
            let cell = &self.scenario.cells[run.cell];
            let mut readiness = Readiness {
                network: &mut network,
                plane: &plane,
                prober: &mut prober,
                signals: self.signals,
                cell,
            };
            match n {
                0 => readiness.first(started, run, outcome)?,
                _ => readiness.again(run)?,
            }
            for (stream, pairs) in cell.traffic.iter().zip(&run.pairs) {
                for pair in pairs {
                    let ends = Ends::of(&network, pair.0, pair.1);
                    if !introduced.contains(pair) && stream.kind.introduce(*pair, &ends)? {
                        introduced.insert(*pair);
                    }
                }
            }
            let (mut rows, flaw, late) =
                one_run(cell, run, &mut network, &plane, &mut prober, outcome)?;
            self.late.merge(late);
            let retries = cell.valid.as_ref().map(|valid| valid.retries);
            if let Some(flaw) = flaw
                && Some(self.repeats) < retries
            {
                note!("  not valid, and run once more: {flaw}");
                self.repeats += 1;
                break;
            }
            let repeats = std::mem::take(&mut self.repeats);
            rows.iter_mut()
                .for_each(|row| row.repeats = retries.map(|_| repeats));
            done += 1;
            say_rows(&rows);
            self.keep(rows, outcome);
        }
        outcome.status = plane.status();
        let samples = worth_keeping(runs, prober.samples(), &self.scenario.cells);
        self.raw.push((
            outcome.topology.clone(),
            report::raw_lines(&network.topology, &samples),
        ));
        if last && done == runs.len() && self.stays {
            show_details(outcome);
            self.watch(&mut network, &plane, &mut prober)?;
        }
        drop(prober);
        outcome.impaired_links = network.stop();
        self.late.note_links(&outcome.impaired_links);
        Ok(done)
    }

    /// Carries out runs whose traffic has its own endpoints, side by side where their cells allow
    /// it.
    fn alone(&mut self, runs: &[Run], outcomes: &mut Vec<Outcome>) -> Result<(), Failure> {
        let cells = &self.scenario.cells;
        let mut outcome = self.outcome(&cells[runs[0].cell].network.topology);
        let mut left = runs;
        while let Some(first) = left.first() {
            let at_once = |run: &Run| cells[run.cell].at_once;
            let most = at_once(first);
            let same = left.iter().take_while(|run| at_once(run) == most);
            let (group, rest) = left.split_at(same.count());
            left = rest;
            for (rows, late) in self.group(group, most)? {
                self.late.merge(late);
                self.keep(rows, &mut outcome);
            }
        }
        outcomes.push(outcome);
        Ok(())
    }

    /// Carries out runs, at most this many at a time, and returns their rows.
    fn group(&self, runs: &[Run], most: usize) -> Result<Vec<(Vec<Row>, Lateness)>, Failure> {
        let (progress, count) = (Progress::start(), runs.len());
        let has_failed = AtomicBool::new(false);
        let done = parallel::each(
            runs,
            most,
            || self.signals.seen() || has_failed.load(Ordering::Relaxed),
            |run| {
                run_alone(&self.scenario.cells[run.cell], run)
                    .inspect_err(|_| has_failed.store(true, Ordering::Relaxed))
            },
            |number, rows| match rows {
                Ok(_) if self.scenario.is_simulated => {
                    progress.say(format_args!("{number} of {count} runs"));
                }
                Ok((rows, _)) => say_rows(rows),
                Err(_) => {}
            },
        );
        let done = done.into_iter().collect::<Result<Vec<_>, Failure>>()?;
        match self.signals.seen() {
            true => Err(Failure::silent()),
            false => Ok(done),
        }
    }

    fn outcome(&self, topology: &Topology) -> Outcome {
        Outcome {
            topology: topology.name.clone(),
            switches: topology.switches.len(),
            links: topology.links.len(),
            hosts: topology.hosts.len(),
            // Kinds of rows that the network's runs lack are empty lists.
            rows: (self.scenario.kinds_of_rows().into_iter())
                .map(|name| (name.to_string(), Vec::new()))
                .collect(),
            ..Outcome::default()
        }
    }

    /// Keeps the rows of a run that counts.
    fn keep(&mut self, rows: Vec<Row>, outcome: &mut Outcome) {
        for row in rows {
            let kind = outcome.rows.entry(row.name.clone()).or_default();
            kind.push(row.clone());
            self.rows.push(row);
        }
    }

    /// Shows a live view of the network until a signal arrives.
    fn watch(
        &self,
        network: &mut Network,
        plane: &Plane,
        prober: &mut Prober,
    ) -> Result<(), Failure> {
        let terminal = std::io::stdout().is_terminal();
        let rest = Duration::from_secs(if terminal { 1 } else { 10 });
        note!(
            "\nThe network stays up as lab {0}: try `auster lab exec {0} h1 -- ping 10.0.0.2`.\n\
             Ctrl-C ends it.\n",
            network.id()
        );
        let mut drawn = 0;
        while !self.signals.wait(rest) {
            if let Some(casualty) = network.casualty() {
                return Err(Failure::machine(casualty));
            }
            let results = prober.ping_all(0, PAIRS_AT_ONCE).map_err(ping_failure)?;
            let rtts: Vec<f64> = results
                .iter()
                .filter_map(|pair| pair.first.map(milliseconds))
                .collect();
            let (sent, answered) = (results.len(), rtts.len());
            let q = Quantiles::of(rtts);
            let known = plane.status();
            let text = format!(
                "  {answered} of {sent} pairs reachable, round trip p50 {:.2} ms, max {:.2} ms\n{}",
                q.p50,
                q.max,
                status::switch_table(known.as_ref())
            );
            if terminal && drawn > 0 {
                say_part!("\x1b[{drawn}F\x1b[J");
            }
            drawn = text.lines().count();
            say_part!("{text}");
            let _ = std::io::stdout().flush();
        }
        Ok(())
    }
}

fn say_rows(rows: &[Row]) {
    rows.iter().for_each(|row| note!("  {}", rows::line(row)));
}

/// Carries out the traffic and events of one run. Returns its rows, the reason if the run is not
/// valid, and its lateness.
fn one_run(
    cell: &Cell,
    run: &Run,
    network: &mut Network,
    plane: &Plane,
    prober: &mut Prober,
    outcome: &mut Outcome,
) -> Result<(Vec<Row>, Option<String>, Lateness), Failure> {
    let planned = &timeline::draw(&cell.moments, cell.network.options.seed, run.number);
    let Some(end) = time_of(planned, END) else {
        // Nothing but readiness is measured.
        return Ok((Vec::new(), None, Lateness::default()));
    };
    let first = prober.samples().len();
    let start = prober.elapsed();
    let epoch = Instant::now() - start;
    let course = Course::default();
    let stages = stages(cell, run, planned, epoch, start, Some((network, &course)));
    // Traffic has threads of its own: it does not stop while processes end and start.
    let scene = &Scene {
        topology: &cell.network.topology,
        plane,
        switches: network.namespace(SWITCHES),
        controller_pid: network.pid("controller"),
        shell: Shell::of(network.ledger())?,
        epoch,
        until: start + end,
    };
    let course = &course;
    let ((times, mut late), series, records) = std::thread::scope(|scope| {
        let probes = cell.probes.iter();
        let observers: Vec<_> = probes
            .map(|probe| {
                scope.spawn(move || {
                    let _ending = course.ending(&probe.id);
                    match course.wait_for_moment(&probe.begins) {
                        true => probe.kind.observe(scene),
                        false => Ok(Series::new()),
                    }
                })
            })
            .collect();
        let events = Events {
            cell,
            run: run.number,
            planned,
            course,
            epoch,
            start,
        };
        let events = scope.spawn(move || events.apply(network, plane));
        let streams = cell.traffic.iter().zip(stages).map(|(stream, mut stage)| {
            if let Some(flows) = stream.kind.flows(&stage) {
                return Stream::Echoes(flows);
            }
            let waits = timeline::waits_between(&cell.moments, planned, [START, &stream.begins]);
            let begins_late = waits.count() > 0;
            Stream::Own(scope.spawn(move || {
                let _ending = course.ending(&stream.id);
                if begins_late && course.wait_for_moment(&stream.begins) {
                    let late = epoch.elapsed().saturating_sub(stage.from);
                    stage.from += late;
                    stage.until += late;
                }
                stream.kind.carry(&stage)
            }))
        });
        let streams: Vec<Stream<'_>> = streams.collect();
        let mut flows: Vec<Flow> = streams.iter().flat_map(Stream::flows).copied().collect();
        let carried = prober.carry(&mut flows, start + end);
        let times = joined(events)?;
        let series = observers.into_iter().map(joined);
        let series = series.collect::<Result<Vec<Series>, Failure>>()?;
        carried
            .and_then(|()| prober.settle())
            .map_err(ping_failure)?;
        let samples = &prober.samples()[first..];
        let records = streams.into_iter().map(|stream| stream.record(samples));
        let records = records.collect::<Result<Vec<_>, Failure>>()?;
        Ok::<_, Failure>((times, series, records))
    })?;
    let samples = &prober.samples()[first..];
    for pair in &mut outcome.pairs {
        let hosts = &cell.network.topology.hosts;
        let is_own = |s: &&Sample| hosts[s.from].name == pair.from && hosts[s.to].name == pair.to;
        let lost = samples.iter().filter(is_own).filter(|s| s.rtt.is_none());
        pair.traffic_lost = Some(pair.traffic_lost.unwrap_or(0) + lost.count());
    }
    let measured = Measured {
        times: &times,
        records: &records,
        series: &series,
    };
    late.note_streams(cell, &records);
    let flaw = rows::flaw(cell, &measured);
    Ok((rows::rows(cell, run, &measured), flaw, late))
}

/// Carries out the traffic of one run without a network. Returns its rows and its lateness.
pub fn run_alone(cell: &Cell, run: &Run) -> Result<(Vec<Row>, Lateness), Failure> {
    let planned = timeline::draw(&cell.moments, cell.network.options.seed, run.number);
    let retries = cell.valid.as_ref().map(|valid| valid.retries);
    let mut repeats = 0;
    loop {
        let stages = stages(cell, run, &planned, Instant::now(), Duration::ZERO, None);
        let records = std::thread::scope(|scope| {
            let streams = cell.traffic.iter().zip(stages);
            let own = streams.filter(|(stream, stage)| stream.kind.flows(stage).is_none());
            let works = own.map(|(stream, stage)| scope.spawn(move || stream.kind.carry(&stage)));
            let works: Vec<_> = works.collect();
            let records = works.into_iter().map(joined);
            records.collect::<Result<Vec<_>, Failure>>()
        })?;
        let measured = Measured {
            times: &planned,
            records: &records,
            series: &[],
        };
        if rows::flaw(cell, &measured).is_some() && Some(repeats) < retries {
            repeats += 1;
            continue;
        }
        let mut rows = rows::rows(cell, run, &measured);
        rows.iter_mut()
            .for_each(|row| row.repeats = retries.map(|_| repeats));
        let mut late = Lateness::default();
        late.note_streams(cell, &records);
        return Ok((rows, late));
    }
}

/// The stages of the streams of a run that begins at `start` since `epoch`.
fn stages<'c>(
    cell: &'c Cell,
    run: &Run,
    planned: &[(String, Duration)],
    epoch: Instant,
    start: Duration,
    here: Option<(&Network, &'c Course)>,
) -> Vec<Stage<'c>> {
    let at = |moment: &str| start + time_of(planned, moment).unwrap_or_default();
    let streams = cell.traffic.iter().zip(&run.pairs);
    let stages = streams.map(|(stream, pairs)| {
        let ends = here.into_iter().flat_map(|(network, _)| {
            let ends = pairs.iter();
            ends.map(|(from, to)| Ends::of(network, *from, *to))
        });
        let seed = cell.network.options.seed ^ Fnv1a::of(stream.id.as_bytes());
        let [begins, end] = [stream.begins.as_str(), &stream.ends];
        let mut waits = timeline::waits_between(&cell.moments, planned, [begins, end]);
        let course = here.filter(|_| waits.next().is_some());
        let mut draws = SplitMix64::new(cell.network.options.seed);
        Stage {
            pairs: pairs.clone(),
            ends: ends.collect(),
            epoch,
            from: at(&stream.begins),
            until: at(end),
            end: course.map(|(_, course)| (course, end)),
            switches: here.map_or_else(String::new, |(network, _)| network.namespace(SWITCHES)),
            seed: cell.network.options.seed + run.number - 1,
            draw: (0..run.number).fold(0, |_, _| draws.next()),
            random: SplitMix64::new(seed).fork(run.number as u32),
        }
    });
    stages.collect()
}

/// A stream under way.
enum Stream<'scope> {
    Echoes(Vec<Flow>),
    Own(ScopedJoinHandle<'scope, Carried>),
}

impl Stream<'_> {
    fn flows(&self) -> &[Flow] {
        match self {
            Stream::Echoes(flows) => flows,
            Stream::Own(_) => &[],
        }
    }

    /// Waits for the end of the stream.
    fn record(self, samples: &[Sample]) -> Carried {
        match self {
            Stream::Echoes(flows) => Ok(Box::new(Echoes::of(&flows, samples))),
            Stream::Own(thread) => joined(thread),
        }
    }
}

/// The events of one run.
struct Events<'a> {
    cell: &'a Cell,
    run: u64,
    planned: &'a [(String, Duration)],
    course: &'a Course,
    epoch: Instant,
    start: Duration,
}

impl Events<'_> {
    /// Applies the events at their times. Returns the time of each moment, on the prober's clock,
    /// and the late moments.
    fn apply(
        &self,
        network: &mut Network,
        plane: &Plane,
    ) -> Result<(Vec<(String, Duration)>, Lateness), Failure> {
        // No thread waits for moments that an error has prevented.
        let _ending = self.course.moments();
        let later = later_changes(self.cell, self.run, self.planned);
        let mut steps: Vec<(Duration, Step<'_>)> = Vec::new();
        for (id, time) in self.planned {
            steps.push((*time, Step::Moment(id)));
            let own = self.cell.events.iter().filter(|(moment, _)| moment == id);
            steps.extend(own.map(|(_, event)| (*time, Step::Change(event.as_ref()))));
        }
        let later = later.iter();
        steps.extend(later.map(|(time, e)| (*time, Step::Change(e.as_ref()))));
        steps.sort_by_key(|(time, _)| *time);
        let (mut times, mut lateness) = (Vec::new(), Lateness::default());
        // Steps are delayed by the time for which earlier steps have waited.
        let mut late = Duration::ZERO;
        for (time, step) in steps {
            let due = self.start + time;
            std::thread::sleep((due + late).saturating_sub(self.epoch.elapsed()));
            match step {
                Step::Moment(id) => {
                    let mut moments = self.cell.moments.iter().filter(|moment| moment.id == id);
                    if let Some(id) = moments.find_map(|moment| moment.waits.as_ref()) {
                        self.course.wait_for_end(id);
                        late = late.max(self.epoch.elapsed().saturating_sub(due));
                    }
                    let now = match id {
                        START => self.start,
                        _ => self.epoch.elapsed(),
                    };
                    lateness.note_moment(id, now.saturating_sub(due + late));
                    times.push((id.to_string(), now));
                    self.course.happened(id);
                }
                Step::Change(event) => event.apply(network, plane)?,
            }
        }
        Ok((times, lateness))
    }
}

enum Step<'a> {
    Moment(&'a str),
    Change(&'a dyn Event),
}

/// The later changes of events that last until a moment. The same seed gives each run the same
/// changes.
fn later_changes(
    cell: &Cell,
    run: u64,
    planned: &[(String, Duration)],
) -> Vec<(Duration, Box<dyn Event>)> {
    let mut changes = Vec::new();
    for (id, event) in &cell.events {
        let begins = time_of(planned, id).unwrap_or_default();
        let Some(ends) = event.until().and_then(|until| time_of(planned, until)) else {
            continue;
        };
        let seed = cell.network.options.seed ^ Fnv1a::of(id.as_bytes());
        let random = SplitMix64::new(seed).fork(run as u32);
        let later = event.later(ends.saturating_sub(begins), random);
        changes.extend(
            later
                .into_iter()
                .map(|(after, event)| (begins + after, event)),
        );
    }
    changes
}

/// The packets worth listing one by one: all of them, or all except the many packets of calm
/// streams that were not lost.
fn worth_keeping(runs: &[Run], samples: &[Sample], cells: &[Cell]) -> Vec<Sample> {
    let mut steady = BTreeSet::new();
    let mut has_new = false;
    for run in runs {
        for (stream, pairs) in cells[run.cell].traffic.iter().zip(&run.pairs) {
            match stream.kind.is_new_each_run() {
                true => has_new = true,
                false => steady.extend(pairs.iter().copied()),
            }
        }
    }
    let wanted = |s: &&Sample| !has_new || s.rtt.is_none() || !steady.contains(&(s.from, s.to));
    samples.iter().filter(wanted).copied().collect()
}

fn conclude(
    args: &Args,
    results: &Results,
    document: &Document,
    raw: &[(String, Vec<String>)],
    plots: &[(String, String)],
) -> Result<(), Failure> {
    if let Some(dir) = &args.output.out {
        report::write(results, document, raw, plots)?;
        note!("\nwritten to {}", dir.display());
    }
    if args.output.json {
        let text = serde_json::to_string_pretty(document)
            .map_err(|e| Failure::negative(format!("results as JSON: {e}")))?;
        say!("{text}");
    } else {
        let has_network = document.networks.iter().any(|network| network.switches > 0);
        if has_network && document.networks.len() <= NETWORKS_SHOWN_MAX {
            say!("\n{}", report::summary_table(&document.networks));
        }
        if let Some(late) = document.late.line() {
            say!("\n{late}");
        }
    }
    let failed = |about: &str, checks: &[Check]| -> Vec<String> {
        let failed = checks.iter().filter(|check| !check.passed);
        failed
            .map(|check| format!("{about}{}: {}", check.what, check.found))
            .collect()
    };
    let networks = document.networks.iter();
    let mut all: Vec<String> = networks
        .flat_map(|o| failed(&format!("{}: ", o.topology), &o.checks))
        .collect();
    all.extend(failed("", &document.checks));
    match all.is_empty() {
        true => Ok(()),
        false => Err(Failure::negative(all.join("\n  "))),
    }
}

/// Tables of one network: its pairs, if they are few, and its switches.
fn show_details(outcome: &Outcome) {
    if (1..=PAIRS_SHOWN_MAX).contains(&outcome.pairs.len()) {
        say!("\n{}", report::pair_table(outcome));
        say_part!("{}", status::switch_table(outcome.status.as_ref()));
    }
}
