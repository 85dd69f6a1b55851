//! Waits until a network is ready for a run.

use std::time::{Duration, Instant};

use cli::failure::Failure;
use cli::output::note;
use cli::signals::Signals;
use measure::quantiles::Quantiles;
use testbed::network::Network;
use testbed::plane::Plane;
use testbed::probe::Prober;
use testbed::status;
use testbed::tools::Shell;

use crate::engine::schema::{Cell, Pings, Run};
use crate::engine::timeline::START;
use crate::engine::traffic::{self, Pair};
use crate::report::{self, Check, Outcome, seconds};

/// Pairs that are pinged at the same time.
pub const PAIRS_AT_ONCE: usize = 4;
/// Time between two status requests to the controller.
const STATUS_INTERVAL: Duration = Duration::from_millis(25);
/// Time between rounds of pings that lost packets.
const ROUND_REST: Duration = Duration::from_millis(200);
/// Time for which streams must lose nothing before a run begins.
const CALM: Duration = Duration::from_millis(500);
const CALM_INTERVAL: Duration = Duration::from_millis(10);

/// A network that is coming up.
pub struct Readiness<'a> {
    pub network: &'a mut Network,
    pub plane: &'a Plane,
    pub prober: &'a mut Prober,
    pub signals: &'a Signals,
    pub cell: &'a Cell,
}

impl Readiness<'_> {
    /// Waits after the start of the controller, and records how long each step took.
    pub fn first(
        &mut self,
        started: Instant,
        run: &Run,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        self.wait_for_discovery(started, outcome)?;
        self.wait_for_command()?;
        match self.cell.ready.pings {
            Pings::All => self.ping_until_whole(started, outcome),
            Pings::Streams => self.wait_until_calm(run),
        }
    }

    /// Waits between two runs until the controller knows the whole network and nothing is lost.
    pub fn again(&mut self, run: &Run) -> Result<(), Failure> {
        self.wait_for_command()?;
        self.wait_until_calm(run)
    }

    fn within(&self) -> Duration {
        self.cell.ready.within
    }

    /// Waits until the controller knows all switches and both directions of all links.
    fn wait_for_discovery(
        &mut self,
        started: Instant,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        if !self.plane.has_status() {
            return Ok(());
        }
        while started.elapsed() < self.within() {
            let known = self.plane.status();
            let known = known.as_ref();
            if outcome.connected_s.is_none() && status::switch_count(known) == outcome.switches {
                outcome.connected_s = Some(seconds(started.elapsed()));
                progress(
                    started,
                    &format!("all {} switches connected", outcome.switches),
                );
            }
            if outcome.connected_s.is_some() && status::link_count(known) == 2 * outcome.links {
                outcome.links_found_s = Some(seconds(started.elapsed()));
                progress(started, &format!("all {} links found", outcome.links));
                break;
            }
            self.pause(STATUS_INTERVAL)?;
        }
        let known = self.plane.status();
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

    /// Runs the scenario's own command until it succeeds.
    fn wait_for_command(&mut self) -> Result<(), Failure> {
        let Some(command) = &self.cell.ready.run else {
            return Ok(());
        };
        let shell = Shell::of(self.network.ledger())?;
        let deadline = Instant::now() + self.within();
        loop {
            let output = command.run(&shell)?;
            if output.status.success() {
                return Ok(());
            }
            self.pause(ROUND_REST)?;
            if Instant::now() > deadline {
                let (words, seconds) = (&command.words, self.within().as_secs_f64());
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(Failure::negative(format!(
                    "run = \"{words}\" still fails after {seconds} s: {}",
                    said.trim()
                )));
            }
        }
    }

    /// Pings all pairs in rounds until one round loses nothing, or time is up.
    fn ping_until_whole(&mut self, started: Instant, outcome: &mut Outcome) -> Result<(), Failure> {
        let later = self.cell.ready.later;
        loop {
            outcome.rounds += 1;
            let results = self
                .prober
                .ping_all(later, PAIRS_AT_ONCE)
                .map_err(ping_failure)?;
            outcome.pairs = report::pairs(&self.network.topology, &results);
            let lost: usize = outcome.pairs.iter().map(|pair| pair.lost).sum();
            let firsts = outcome.pairs.iter().filter_map(|pair| pair.first_ms);
            let laters = outcome
                .pairs
                .iter()
                .flat_map(|pair| pair.later_ms.iter().flatten());
            outcome.first_ms = Quantiles::of(firsts.collect());
            outcome.later_ms = Quantiles::of(laters.copied().collect());
            let (pairs, pings) = (outcome.pairs.len(), outcome.pairs.len() * (1 + later));
            progress(
                started,
                &format!("{pairs} pairs pinged, {lost} of {pings} packets lost"),
            );
            if lost == 0 {
                outcome.reachable_s = Some(seconds(started.elapsed()));
            }
            if lost == 0 || started.elapsed() > self.within() {
                break;
            }
            self.pause(ROUND_REST)?;
        }
        outcome.checks.push(Check {
            what: format!(
                "every pair reachable within {} s",
                self.within().as_secs_f64()
            ),
            passed: outcome.reachable_s.is_some(),
            found: match outcome.reachable_s {
                Some(s) => format!("after {s:.2} s, in round {}", outcome.rounds),
                None => format!("not in {} rounds", outcome.rounds),
            },
        });
        Ok(())
    }

    /// Waits until the controller knows the network and streams lose nothing.
    fn wait_until_calm(&mut self, run: &Run) -> Result<(), Failure> {
        let deadline = Instant::now() + self.within();
        let streams = self.cell.traffic.iter().zip(&run.pairs);
        let established: Vec<Pair> = streams
            .filter(|(stream, _)| stream.begins == START)
            .flat_map(|(_, pairs)| pairs.iter().copied())
            .collect();
        loop {
            let known = self.plane.status();
            let is_known = !self.plane.has_status()
                || status::is_whole(known.as_ref(), &self.network.topology);
            if is_known && established.is_empty() {
                return Ok(());
            }
            let first = self.prober.samples().len();
            let now = self.prober.elapsed();
            let mut flows = traffic::flows(&established, CALM_INTERVAL, now);
            self.prober
                .carry(&mut flows, now + CALM)
                .map_err(ping_failure)?;
            self.prober.settle().map_err(ping_failure)?;
            let samples = &self.prober.samples()[first..];
            let lost = samples.iter().filter(|s| s.rtt.is_none()).count();
            if is_known && lost == 0 {
                return Ok(());
            }
            let pings = samples.len();
            self.pause(STATUS_INTERVAL)?;
            if Instant::now() > deadline {
                let missing = match is_known {
                    true => format!("{lost} of the last {pings} pings were lost"),
                    false => status::missing(known.as_ref(), &self.network.topology),
                };
                return Err(Failure::negative(format!(
                    "the network is not whole {} s after a start of its control plane: {missing}",
                    self.within().as_secs_f64()
                )));
            }
        }
    }

    /// Waits briefly; fails when the lab has to end or has lost a process.
    fn pause(&mut self, rest: Duration) -> Result<(), Failure> {
        if self.signals.wait(rest) {
            // The runner reports the interruption.
            return Err(Failure::silent());
        }
        match self.network.casualty() {
            Some(casualty) => Err(Failure::machine(casualty)),
            None => Ok(()),
        }
    }
}

pub fn ping_failure(error: std::io::Error) -> Failure {
    Failure::machine(format!("ping: {error}"))
}

fn progress(started: Instant, line: &str) {
    note!("  {:6.2} s  {line}", started.elapsed().as_secs_f64());
}
