//! `auster lab run`: a scenario on real networks, one after the other, with figures and a verdict.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::pso;
use crate::qos;
use crate::reconnect;
use crate::report::{self, Check, Document, FailureOutcome, Outcome, milliseconds, seconds};
use crate::reroute;
use crate::restart::{self, Restart, Trials};
use crate::scenario::{LinkFailure, Scenario, too_many_probes};
use crate::table;
use crate::timeouts;
use ::report::machine::Machine;
use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::output::{note, say, say_part};
use cli::signals::Signals;
use measure::quantiles::Quantiles;
use testbed::network::{Network, Options};
use testbed::plane::{Controller, Plane, Transport};
use testbed::probe::{Prober, Sample};
use testbed::status;
use testbed::tools;
use testbed::topology::Topology;

#[derive(clap::Args)]
pub struct Args {
    /// The experiment, as in scenarios/*.toml
    #[arg(value_name = "SCENARIO")]
    pub scenario: PathBuf,
    /// What carries OpenFlow between switches and auster: tcp if not given, or all that the
    /// scenario names
    #[arg(long)]
    pub transport: Option<Transport>,
    /// Who controls the switches: auster (if not given), none (each learns by itself) or
    /// tcp:HOST:PORT; scenarios that compare controllers take several, and any program as
    /// 'NAME=COMMAND', with {address} and {port} where it has to listen
    #[arg(long, value_name = "METHOD")]
    pub controller: Vec<String>,
    /// Print the results as one JSON document
    #[arg(long)]
    pub json: bool,
    /// Write result.json, every ping and the command into a directory
    #[arg(short = 'o', long, alias = "results", value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// End when done, even if the scenario would stay up
    #[arg(long)]
    once: bool,
    /// Only the part that the scenario names for those in a hurry
    #[arg(long)]
    pub quick: bool,
    /// Runs of every cell, or rounds, instead of the scenario's; of scenarios on timeouts, flow tables,
    /// priorities, the paper's network and circuits
    #[arg(long, value_name = "N")]
    pub runs: Option<u32>,
    /// How long every stream lasts, instead of the scenario's; of scenarios on timeouts and flow tables
    #[arg(long, value_name = "S")]
    pub seconds: Option<f64>,
}

impl Args {
    /// Nobody else was asked for.
    pub fn is_auster(&self) -> bool {
        self.controller.iter().all(|words| words == "auster")
    }

    /// Of scenarios with one controller.
    fn one_controller(&self) -> Result<&str, Failure> {
        match self.controller.as_slice() {
            [] => Ok("auster"),
            [one] => Ok(one),
            _ => Err(Failure::usage(
                "--controller: this scenario compares none; give one",
            )),
        }
    }
}

/// Pairs that are pinged at the same time.
const PAIRS_AT_ONCE: usize = 4;
/// How often the controller is asked while the network comes up.
const STATUS_INTERVAL: Duration = Duration::from_millis(25);
/// Between rounds of pings that lost packets.
const ROUND_REST: Duration = Duration::from_millis(200);
/// A packet sent so long before an event may still meet it on its way.
const ON_THE_WAY: Duration = Duration::from_millis(20);
/// Pairs beyond which the table of all pairs says nothing.
const PAIRS_SHOWN_MAX: usize = 20;

pub fn run(args: Args) -> Result<(), Failure> {
    if timeouts::is_ours(&args.scenario) {
        return timeouts::run(&args);
    }
    if table::is_ours(&args.scenario) {
        return table::run(&args);
    }
    if reconnect::is_ours(&args.scenario) {
        return reconnect::run(&args);
    }
    if reroute::is_ours(&args.scenario) {
        return reroute::run(&args);
    }
    if qos::paper::is_ours(&args.scenario) {
        return qos::paper::run(&args);
    }
    if qos::circuit::is_ours(&args.scenario) {
        return qos::circuit::run(&args);
    }
    if qos::killed::is_ours(&args.scenario) {
        return qos::killed::run(&args);
    }
    if pso::is_ours(&args.scenario) {
        return pso::run(&args);
    }
    if args.runs.is_some() || args.seconds.is_some() {
        return Err(Failure::usage(
            "--runs, --seconds: only scenarios on timeouts, flow tables, priorities and circuits take these",
        ));
    }
    if qos::scale::is_ours(&args.scenario) {
        return qos::scale::run(&args);
    }
    if qos::is_ours(&args.scenario) {
        return qos::run(&args);
    }
    let scenario = Scenario::read(&args.scenario)?;
    if args.quick {
        return Err(Failure::usage(
            "--quick: this scenario names no part for it",
        ));
    }
    let transport = args.transport.unwrap_or(Transport::Tcp);
    let controller = Controller::parse(args.one_controller()?, transport)?;
    let beside = args.scenario.parent().unwrap_or(Path::new("."));
    let topologies = scenario.networks(beside)?;
    topologies
        .iter()
        .try_for_each(|topology| controller.check(topology))?;
    if let Some(restart) = &scenario.restart {
        restart.check_controller(&controller)?;
    }
    let options = Options {
        patch: false,
        seed: scenario.seed,
        control: scenario.control()?,
        port_buffer_bytes: None,
    };
    // Said by itself, before the title.
    tools::require_network_tools()?;
    if let Some(out) = &args.out {
        // Not after minutes of pings.
        std::fs::create_dir_all(out).map_err(|e| Failure::file(out, e))?;
    }
    // Before anything that starts a thread; see `Signals::take`.
    let signals = Signals::take()?;
    let mut experiment = Experiment {
        stays: scenario.stay && !args.once && !args.json,
        scenario,
        controller,
        options,
        signals,
        raw: Vec::new(),
    };
    progress(&format!(
        "{}: {}",
        experiment.scenario.title, experiment.controller
    ));
    let mut outcomes = Vec::new();
    let count = topologies.len();
    for (number, topology) in topologies.into_iter().enumerate() {
        let last = number + 1 == count;
        outcomes.push(experiment.run(topology, last, args.json)?);
    }
    let document = Document {
        title: experiment.scenario.title.clone(),
        scenario: args.scenario.display().to_string(),
        command: std::env::args().collect(),
        controller: experiment.controller.to_string(),
        started_unix_s: unix_seconds(),
        machine: Machine::here(),
        passed: outcomes.iter().all(Outcome::passed),
        networks: outcomes,
    };
    if !args.json && !experiment.stays {
        document.networks.iter().for_each(show_details);
    }
    conclude(&args, &document, &experiment.raw)
}

struct Experiment {
    scenario: Scenario,
    controller: Controller,
    options: Options,
    signals: Signals,
    stays: bool,
    /// By network, a line per packet.
    raw: Vec<(String, Vec<String>)>,
}

impl Experiment {
    /// One network from nothing to nothing.
    fn run(&mut self, topology: Topology, last: bool, quiet: bool) -> Result<Outcome, Failure> {
        progress(&format!(
            "\n{}: {} switches, {} links, {} hosts",
            topology.name,
            topology.switches.len(),
            topology.links.len(),
            topology.hosts.len()
        ));
        let mut outcome = Outcome {
            topology: topology.name.clone(),
            switches: topology.switches.len(),
            links: topology.links.len(),
            hosts: topology.hosts.len(),
            ..Outcome::default()
        };
        let begun = Instant::now();
        let mut network = Network::start(topology, &self.controller.to_string(), &self.options)?;
        outcome.network_up_s = seconds(begun.elapsed());
        progress(&format!(
            "  {:6.2} s  network up, as lab {}",
            outcome.network_up_s,
            network.id()
        ));

        let started = Instant::now();
        let plane = Plane::start(&mut network, &self.controller)?;
        self.wait_for_discovery(&mut network, &plane, started, &mut outcome)?;
        let hosts = network.topology.hosts.iter();
        let namespaces: Vec<_> = hosts
            .map(|host| (network.namespace(&host.name), host.address))
            .collect();
        let mut prober = Prober::new(namespaces).map_err(Failure::machine)?;
        match self.scenario.restart.clone() {
            // All pairs must not have talked before.
            Some(restart) => {
                self.restart(&restart, &mut network, &plane, &mut prober, &mut outcome)?
            }
            None => self.ping_until_whole(&mut network, &mut prober, started, &mut outcome)?,
        }
        if let Some(failure) = self.scenario.failure.clone() {
            self.fail_a_link(&network, &mut prober, &failure, &mut outcome)?;
        }
        outcome.status = plane.status();
        let samples = match &self.scenario.restart {
            Some(_) => restart::worth_keeping(&network.topology, prober.samples()),
            None => prober.samples().to_vec(),
        };
        self.raw.push((
            outcome.topology.clone(),
            report::raw_lines(&network.topology, &samples),
        ));
        if last && self.stays {
            if !quiet {
                show_details(&outcome);
            }
            self.watch(&mut network, &plane, &mut prober)?;
        }
        drop(prober);
        outcome.impaired_links = network.stop();
        Ok(outcome)
    }

    fn deadline(&self, started: Instant) -> Instant {
        started + Duration::from_secs(self.scenario.within_s)
    }

    /// Until the controller knows all switches and both directions of all links, or time is up.
    fn wait_for_discovery(
        &self,
        network: &mut Network,
        plane: &Plane,
        started: Instant,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        if !plane.has_status() {
            return Ok(());
        }
        while Instant::now() < self.deadline(started) {
            let known = plane.status();
            let known = known.as_ref();
            if outcome.connected_s.is_none() && status::switch_count(known) == outcome.switches {
                outcome.connected_s = Some(seconds(started.elapsed()));
                progress(&format!(
                    "  {:6.2} s  all {} switches connected",
                    started.elapsed().as_secs_f64(),
                    outcome.switches
                ));
            }
            if outcome.connected_s.is_some() && status::link_count(known) == 2 * outcome.links {
                outcome.links_found_s = Some(seconds(started.elapsed()));
                progress(&format!(
                    "  {:6.2} s  all {} links found",
                    started.elapsed().as_secs_f64(),
                    outcome.links
                ));
                break;
            }
            self.pause(network, STATUS_INTERVAL)?;
        }
        let known = plane.status();
        outcome.checks.push(Check {
            what: format!("all {} switches connected", outcome.switches),
            passed: outcome.connected_s.is_some(),
            found: format!("{} connected", status::switch_count(known.as_ref())),
        });
        outcome.checks.push(Check {
            what: format!("all {} links found, in both directions", outcome.links),
            passed: outcome.links_found_s.is_some(),
            found: format!("{} directions found", status::link_count(known.as_ref())),
        });
        Ok(())
    }

    /// Rounds over all pairs until one loses nothing, or time is up.
    fn ping_until_whole(
        &self,
        network: &mut Network,
        prober: &mut Prober,
        started: Instant,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        loop {
            outcome.rounds += 1;
            let results = prober
                .ping_all(self.scenario.later_pings, PAIRS_AT_ONCE)
                .map_err(|e| Failure::machine(format!("ping: {e}")))?;
            outcome.pairs = report::pairs(&network.topology, &results);
            let lost: usize = outcome.pairs.iter().map(|pair| pair.lost).sum();
            let firsts = outcome.pairs.iter().filter_map(|pair| pair.first_ms);
            let laters = outcome
                .pairs
                .iter()
                .flat_map(|pair| pair.later_ms.iter().flatten());
            outcome.first_ms = Quantiles::of(firsts.collect());
            outcome.later_ms = Quantiles::of(laters.copied().collect());
            let pings = outcome.pairs.len() * (1 + self.scenario.later_pings);
            progress(&format!(
                "  {:6.2} s  {} pairs pinged, {lost} of {pings} packets lost",
                started.elapsed().as_secs_f64(),
                outcome.pairs.len()
            ));
            if lost == 0 {
                outcome.reachable_s = Some(seconds(started.elapsed()));
            }
            if lost == 0 || Instant::now() > self.deadline(started) {
                break;
            }
            self.pause(network, ROUND_REST)?;
        }
        outcome.checks.push(Check {
            what: format!("every pair reachable within {} s", self.scenario.within_s),
            passed: outcome.reachable_s.is_some(),
            found: match outcome.reachable_s {
                Some(s) => format!("after {s:.2} s, in round {}", outcome.rounds),
                None => format!("not in {} rounds", outcome.rounds),
            },
        });
        Ok(())
    }

    fn fail_a_link(
        &self,
        network: &Network,
        prober: &mut Prober,
        failure: &LinkFailure,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        if let Some(rate) = too_many_probes(outcome.pairs.len(), failure.interval()) {
            return Err(Failure::usage(format!(
                "failure.interval_ms asks for {rate:.0} packets a second; give a longer one"
            )));
        }
        let [a, b] = &failure.link;
        progress(&format!(
            "  cutting {a} to {b} while every pair sends every {} ms",
            failure.interval_ms
        ));
        let first = prober.samples().len();
        let phase = |prober: &mut Prober, s: f64| {
            let sent = prober.stream(failure.interval(), Duration::from_secs_f64(s));
            sent.map(|()| prober.elapsed())
                .map_err(|e| Failure::machine(format!("ping: {e}")))
        };
        let cut = phase(prober, failure.before_s)?;
        network.set_link(a, b, false)?;
        let repair = phase(prober, failure.cut_s)?;
        network.set_link(a, b, true)?;
        phase(prober, failure.mended_s)?;
        prober
            .settle()
            .map_err(|e| Failure::machine(format!("ping: {e}")))?;

        let samples = &prober.samples()[first..];
        for pair in &mut outcome.pairs {
            let of_pair = samples.iter().filter(|s| {
                let [from, to] = [s.from, s.to].map(|n| &network.topology.hosts[n].name);
                (from, to) == (&pair.from, &pair.to)
            });
            pair.failure_lost = Some(of_pair.filter(|s| s.rtt.is_none()).count());
        }
        let found = judge_failure(failure, samples, cut, repair);
        progress(&format!(
            "  cut: {} lost, whole again after {:.0} ms; mended: {} lost, {:.0} ms",
            found.lost_after_cut,
            found.cut_converge_ms,
            found.lost_after_repair,
            found.repair_converge_ms
        ));
        outcome.checks.extend(failure_checks(failure, &found));
        outcome.failure = Some(found);
        Ok(())
    }

    /// Kills and restarts processes of the control plane under traffic.
    fn restart(
        &self,
        restart: &Restart,
        network: &mut Network,
        plane: &Plane,
        prober: &mut Prober,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        let within = Duration::from_secs(self.scenario.within_s);
        outcome.restarts = Trials {
            restart,
            network,
            plane,
            prober,
            signals: &self.signals,
            within,
        }
        .run()?;
        outcome.checks.extend(restart.checks(&outcome.restarts));
        Ok(())
    }

    /// A live view of the network until a signal comes.
    fn watch(
        &self,
        network: &mut Network,
        plane: &Plane,
        prober: &mut Prober,
    ) -> Result<(), Failure> {
        let terminal = std::io::stdout().is_terminal();
        let rest = Duration::from_secs(if terminal { 1 } else { 10 });
        progress(&format!(
            "\nThe network stays up as lab {0}: try `auster lab exec {0} h1 -- ping 10.0.0.2`.\n\
             Ctrl-C ends it.\n",
            network.id()
        ));
        let mut drawn = 0;
        while !self.signals.wait(rest) {
            if let Some(casualty) = network.casualty() {
                return Err(Failure::machine(casualty));
            }
            let results = prober
                .ping_all(0, PAIRS_AT_ONCE)
                .map_err(|e| Failure::machine(format!("ping: {e}")))?;
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

    /// Waits a moment; fails when the lab is told to end or has lost a process.
    fn pause(&self, network: &mut Network, rest: Duration) -> Result<(), Failure> {
        if self.signals.wait(rest) {
            return Err(Failure::negative("interrupted; the lab is removed"));
        }
        match network.casualty() {
            Some(casualty) => Err(Failure::machine(casualty)),
            None => Ok(()),
        }
    }
}

/// Which packets were lost to which event, and for how long.
fn judge_failure(
    failure: &LinkFailure,
    samples: &[Sample],
    cut: Duration,
    repair: Duration,
) -> FailureOutcome {
    let (cut_from, repair_from) = (
        cut.saturating_sub(ON_THE_WAY),
        repair.saturating_sub(ON_THE_WAY),
    );
    let lost_within = |from: Duration, to: Duration| {
        samples
            .iter()
            .filter(move |s| s.rtt.is_none() && s.sent >= from && s.sent < to)
    };
    let converge = |event: Duration, from: Duration, to: Duration| {
        let last_lost = lost_within(from, to).map(|s| s.sent).max();
        last_lost.map_or(0.0, |sent| {
            milliseconds((sent + failure.interval()).saturating_sub(event))
        })
    };
    FailureOutcome {
        link: failure.link.clone(),
        sent: samples.len(),
        lost_before: lost_within(Duration::ZERO, cut_from).count(),
        lost_after_cut: lost_within(cut_from, repair_from).count(),
        lost_after_repair: lost_within(repair_from, Duration::MAX).count(),
        cut_converge_ms: converge(cut, cut_from, repair_from),
        repair_converge_ms: converge(repair, repair_from, Duration::MAX),
    }
}

fn failure_checks(failure: &LinkFailure, found: &FailureOutcome) -> [Check; 3] {
    let limit = failure.converge_ms_max;
    let converged = |what: &str, ms: f64, lost: usize| Check {
        what: format!("no loss later than {limit} ms after the {what}"),
        passed: ms <= limit as f64,
        found: format!("{lost} lost, the last within {ms:.0} ms"),
    };
    [
        Check {
            what: "no packet lost before the cut".to_string(),
            passed: found.lost_before == 0,
            found: format!("{} lost", found.lost_before),
        },
        converged("cut", found.cut_converge_ms, found.lost_after_cut),
        converged("repair", found.repair_converge_ms, found.lost_after_repair),
    ]
}

fn conclude(
    args: &Args,
    document: &Document,
    raw: &[(String, Vec<String>)],
) -> Result<(), Failure> {
    if let Some(dir) = &args.out {
        report::write(dir, document, raw)?;
        progress(&format!("\nwritten to {}", dir.display()));
    }
    if args.json {
        let text = serde_json::to_string_pretty(document)
            .map_err(|e| Failure::negative(format!("results as JSON: {e}")))?;
        say!("{text}");
    } else {
        say!("\n{}", report::summary_table(&document.networks));
    }
    let failed: Vec<String> = document
        .networks
        .iter()
        .flat_map(|o| o.checks.iter().filter(|c| !c.passed).map(move |c| (o, c)))
        .map(|(o, c)| format!("{}: {}: {}", o.topology, c.what, c.found))
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::negative(failed.join("; ")))
}

/// Tables of one network: its pairs, if they are few, and its switches.
fn show_details(outcome: &Outcome) {
    if (1..=PAIRS_SHOWN_MAX).contains(&outcome.pairs.len()) {
        say!("\n{}", report::pair_table(outcome));
        say_part!("{}", status::switch_table(outcome.status.as_ref()));
    }
    if !outcome.restarts.is_empty() {
        say!("\n{}", restart::table(&outcome.restarts));
    }
}

/// Progress is for people: standard error, so that standard output is the result.
fn progress(line: &str) {
    note!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> LinkFailure {
        LinkFailure {
            link: ["s1".into(), "s2".into()],
            interval_ms: 10,
            before_s: 1.0,
            cut_s: 1.0,
            mended_s: 1.0,
            converge_ms_max: 100,
        }
    }

    /// A packet every 10 ms for 3 s; cut at 1 s, mended at 2 s.
    fn judge(lost_ms: &[u64]) -> FailureOutcome {
        let sample = |ms: u64| Sample {
            from: 0,
            to: 1,
            sent: Duration::from_millis(ms),
            rtt: (!lost_ms.contains(&ms)).then_some(Duration::from_millis(1)),
        };
        let samples: Vec<Sample> = (0..300).map(|n| sample(n * 10)).collect();
        judge_failure(
            &failure(),
            &samples,
            Duration::from_secs(1),
            Duration::from_secs(2),
        )
    }

    #[test]
    fn convergence_is_from_the_cut_to_the_packet_after_the_last_lost_one() {
        let found = judge(&[990, 1000, 1010, 1040]);
        assert_eq!(
            (
                found.lost_before,
                found.lost_after_cut,
                found.lost_after_repair
            ),
            (0, 4, 0)
        );
        assert_eq!(found.cut_converge_ms, 50.0);
        assert_eq!(found.repair_converge_ms, 0.0);
        assert!(
            failure_checks(&failure(), &found)
                .iter()
                .all(|check| check.passed)
        );
    }

    #[test]
    fn loss_at_the_wrong_time_fails_its_own_check() {
        let failed = |lost: &[u64]| -> Vec<bool> {
            failure_checks(&failure(), &judge(lost))
                .iter()
                .map(|check| check.passed)
                .collect()
        };
        assert_eq!(failed(&[]), [true, true, true]);
        assert_eq!(failed(&[500]), [false, true, true]);
        assert_eq!(failed(&[1200]), [true, false, true]);
        assert_eq!(failed(&[2900]), [true, true, false]);
    }
}
