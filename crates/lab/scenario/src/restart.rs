//! Processes of the control plane are killed with SIGKILL under traffic and started again.
//!
//! Two kinds of flows tell what that costs. *Established* ones, a ring over one host of each edge
//! switch, have their entries in the switches and run all the time: they need no controller and
//! must lose nothing, neither while it is away nor when its successor takes the switches over.
//! *New* ones, between hosts that never talked, begin at the restart and need the whole control
//! plane: a connected switch, its links known, a path, its entries set.

use cli::program;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::report::{Check, milliseconds};
use cli::failure::Failure;
use cli::output::note;
use cli::signals::Signals;
use measure::quantiles::Quantiles;
use testbed::network::Network;
use testbed::plane::{Controller, Part, Plane};
use testbed::probe::{Flow, Prober, Sample};
use testbed::status;
use testbed::topology::Topology;

/// `[restart]` of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restart {
    /// What is killed: each of these, after each of these times, so many times.
    pub kill: Vec<Part>,
    /// From the kill to the start of the successor.
    pub down_ms: Vec<u64>,
    pub repetitions: usize,
    /// Of each pair of hosts with an established flow.
    pub packets_per_s: u32,
    /// Traffic before the kill, and after the restart.
    pub before_s: f64,
    pub after_s: f64,
    /// From the restart until new flows lose nothing.
    pub new_flow_ms_max: u64,
}

/// One kill and one restart. Times are milliseconds, and since the restart if not said otherwise.
#[derive(Debug, Serialize)]
pub struct Trial {
    pub killed: Part,
    /// As the scenario asks, and as it was.
    pub down_ms: u64,
    pub down_measured_ms: f64,
    pub established_sent: usize,
    /// Before the kill, which is the machine's doing.
    pub established_lost_before: usize,
    pub established_lost: usize,
    pub established_rtt_ms: Quantiles,
    /// Until all switches were connected; only where it is the controller that was killed.
    pub connected_ms: Option<f64>,
    pub new_flows: Vec<NewFlow>,
}

#[derive(Debug, Serialize)]
pub struct NewFlow {
    pub from: String,
    pub to: String,
    pub sent: usize,
    pub answered: usize,
    /// Until the first answer had come and no later packet was lost; `None`: not at all.
    pub works_ms: Option<f64>,
}

/// Flows that begin at each restart.
const NEW_FLOWS: usize = 2;
const NEW_FLOW_INTERVAL: Duration = Duration::from_millis(20);
const STATUS_INTERVAL: Duration = Duration::from_millis(25);
/// Established flows lose nothing for so long before a trial begins.
const CALM: Duration = Duration::from_millis(500);
const CALM_INTERVAL: Duration = Duration::from_millis(10);

impl Restart {
    /// Whether it can be done to such a network.
    pub fn check(&self, topology: &Topology) -> Result<(), String> {
        let trials = self.kill.len() * self.down_ms.len() * self.repetitions;
        if trials == 0 {
            return Err("restart: kill, down_ms and repetitions want at least one each".into());
        }
        if !(1..=1000).contains(&self.packets_per_s) {
            return Err("restart.packets_per_s is 1 to 1000".into());
        }
        let times = [self.before_s, self.after_s];
        let downs_in_range = self.down_ms.iter().all(|ms| (1..=60_000).contains(ms));
        if !downs_in_range || !times.iter().all(|s| (0.1..=60.0).contains(s)) {
            return Err("restart: times are up to 60 seconds".into());
        }
        // Otherwise flows that never work pass.
        if self.new_flow_ms_max as f64 >= self.after_s * 1e3 {
            return Err("restart.new_flow_ms_max is not below after_s".into());
        }
        let (wanted, there) = (trials * NEW_FLOWS, new_pairs(topology).len());
        if established_pairs(topology).is_empty() || wanted > there {
            return Err(format!(
                "restart: {trials} restarts want {wanted} pairs of hosts that never talked, and {} \
                 has {there}: give more hosts_per_edge or fewer repetitions",
                topology.name
            ));
        }
        Ok(())
    }

    pub fn check_controller(&self, controller: &Controller) -> Result<(), Failure> {
        let is_there = |part: &&Part| !controller.parts().contains(part);
        match self.kill.iter().find(is_there) {
            None => Ok(()),
            Some(part) => Err(Failure::usage(format!(
                "restart.kill: {controller} has no {}; relays are there with --transport quic",
                part.role()
            ))),
        }
    }

    /// Two for each way of killing.
    pub fn checks(&self, trials: &[Trial]) -> Vec<Check> {
        let limit = self.new_flow_ms_max;
        let mut checks = Vec::new();
        for ((part, down_ms), trials) in groups(trials) {
            let what = format!("{} killed and restarted after {down_ms} ms", part.role());
            let count = |of: fn(&Trial) -> usize| trials.iter().map(|trial| of(trial)).sum();
            let (sent, lost): (usize, usize) =
                (count(|t| t.established_sent), count(|t| t.established_lost));
            let before: usize = count(|t| t.established_lost_before);
            checks.push(Check {
                what: format!("{what}: established flows lose nothing"),
                passed: lost == 0,
                found: format!("{lost} of {sent} lost, {before} before the kill"),
            });
            let times = works_ms(&trials);
            let late = times
                .iter()
                .filter(|t| t.is_none_or(|ms| ms > limit as f64));
            let late = late.count();
            let q = Quantiles::of(times.iter().flatten().copied().collect());
            checks.push(Check {
                what: format!("{what}: new flows work within {limit} ms"),
                passed: late == 0,
                found: format!(
                    "{late} of {} later; those that work after {:.0} to {:.0} ms",
                    times.len(),
                    q.min,
                    q.max
                ),
            });
        }
        checks
    }
}

/// What trials are made with.
pub struct Trials<'a> {
    pub restart: &'a Restart,
    pub network: &'a mut Network,
    pub plane: &'a Plane,
    pub prober: &'a mut Prober,
    pub signals: &'a Signals,
    /// For the network to become whole, before the first trial and between two.
    pub within: Duration,
}

/// Since the prober was made.
struct Events {
    killed: Duration,
    restarted: Duration,
    connected: Option<Duration>,
}

impl Trials<'_> {
    pub fn run(mut self) -> Result<Vec<Trial>, Failure> {
        set_neighbours(self.network)?;
        let restart = self.restart;
        let mut unused = new_pairs(&self.network.topology).into_iter();
        let mut trials = Vec::new();
        for part in &restart.kill {
            for down_ms in &restart.down_ms {
                for _ in 0..restart.repetitions {
                    self.wait_until_calm()?;
                    let new = unused.by_ref().take(NEW_FLOWS).collect::<Vec<_>>();
                    let trial = self.kill_and_restart(*part, *down_ms, &new)?;
                    note!("  {}", trial.line());
                    trials.push(trial);
                }
            }
        }
        Ok(trials)
    }

    /// Until the controller knows all of the network and established flows lose nothing.
    fn wait_until_calm(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + self.within;
        loop {
            let known = self.plane.status();
            let topology = &self.network.topology;
            let is_known = status::switch_count(known.as_ref()) == topology.switches.len()
                && status::link_count(known.as_ref()) == 2 * topology.links.len();
            let first = self.prober.samples().len();
            let mut flows = flows(
                &established_pairs(topology),
                CALM_INTERVAL,
                self.prober.elapsed(),
            );
            let until = self.prober.elapsed() + CALM;
            self.prober.carry(&mut flows, until).map_err(problem)?;
            self.prober.settle().map_err(problem)?;
            let is_whole = self.prober.samples()[first..]
                .iter()
                .all(|s| s.rtt.is_some());
            if is_known && is_whole {
                return Ok(());
            }
            if let Some(casualty) = self.network.casualty() {
                return Err(Failure::machine(casualty));
            }
            if self.signals.seen() {
                return Err(Failure::negative("interrupted; the lab is removed"));
            }
            if Instant::now() > deadline {
                return Err(Failure::negative(format!(
                    "the network is not whole {} s after a start of its control plane",
                    self.within.as_secs()
                )));
            }
        }
    }

    fn kill_and_restart(
        &mut self,
        part: Part,
        down_ms: u64,
        new: &[(usize, usize)],
    ) -> Result<Trial, Failure> {
        let Trials {
            restart,
            network,
            plane,
            prober,
            ..
        } = self;
        let first = prober.samples().len();
        let interval = Duration::from_secs(1) / restart.packets_per_s;
        let mut flows_now = flows(
            &established_pairs(&network.topology),
            interval,
            prober.elapsed(),
        );
        let killed = prober.elapsed() + Duration::from_secs_f64(restart.before_s);
        let down = Duration::from_millis(down_ms);
        let restarted = killed + down;
        let end = restarted + Duration::from_secs_f64(restart.after_s);
        prober.carry(&mut flows_now, killed).map_err(problem)?;
        let epoch = Instant::now() - prober.elapsed();
        // The traffic has a thread of its own: it does not stop while processes end and start.
        let events = std::thread::scope(|scope| {
            let deed = scope.spawn(|| act(network, plane, part, epoch, down, end));
            let carried = prober.carry(&mut flows_now, restarted).and_then(|()| {
                flows_now.extend(flows(new, NEW_FLOW_INTERVAL, prober.elapsed()));
                prober.carry(&mut flows_now, end)
            });
            let events = deed.join();
            let events = events.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            carried.and_then(|()| prober.settle()).map_err(problem)?;
            Ok::<Events, Failure>(events)
        })?;
        let samples = &prober.samples()[first..];
        let mut trial = judge(&network.topology, samples, new, &events);
        (trial.killed, trial.down_ms) = (part, down_ms);
        Ok(trial)
    }
}

/// Each host knows the hardware address of each other: a host repeats an unanswered ARP request
/// only after a second, and that is what would be measured.
pub fn set_neighbours(network: &Network) -> Result<(), Failure> {
    let hosts = &network.topology.hosts;
    let others = |own: usize| {
        let others = hosts.iter().enumerate().filter(move |(n, _)| *n != own);
        others.map(|(_, host)| {
            let (ip, mac) = (host.address, host.mac);
            format!("neigh replace {ip} lladdr {mac} dev eth0 nud permanent")
        })
    };
    hosts.iter().enumerate().try_for_each(|(n, host)| {
        let lines: Vec<String> = others(n).collect();
        program::ip_batch(Some(&network.namespace(&host.name)), &lines)
    })
}

/// Kills now, starts again after `down`, and looks on until `end`.
fn act(
    network: &mut Network,
    plane: &Plane,
    part: Part,
    epoch: Instant,
    down: Duration,
    end: Duration,
) -> Result<Events, Failure> {
    let killed = epoch.elapsed();
    network.kill(part.role())?;
    std::thread::sleep((killed + down).saturating_sub(epoch.elapsed()));
    let restarted = epoch.elapsed();
    plane.start_again(network, part)?;
    let switch_count = network.topology.switches.len();
    let mut connected = None;
    // After a relay's death the controller still counts the connections it had.
    while part == Part::Controller && connected.is_none() && epoch.elapsed() < end {
        std::thread::sleep(STATUS_INTERVAL);
        let known = plane.status();
        if status::switch_count(known.as_ref()) == switch_count {
            connected = Some(epoch.elapsed());
        }
    }
    Ok(Events {
        killed,
        restarted,
        connected,
    })
}

fn problem(error: std::io::Error) -> Failure {
    Failure::machine(format!("ping: {error}"))
}

/// What the samples of one trial say.
fn judge(
    topology: &Topology,
    samples: &[Sample],
    new: &[(usize, usize)],
    events: &Events,
) -> Trial {
    let since = |at: Duration| milliseconds(at.saturating_sub(events.restarted));
    let is_new = |s: &Sample| new.contains(&(s.from, s.to));
    let established: Vec<&Sample> = samples.iter().filter(|s| !is_new(s)).collect();
    let lost = |before: bool| {
        let lost = established.iter().filter(|s| s.rtt.is_none());
        lost.filter(|s| (s.sent < events.killed) == before).count()
    };
    let flow = |(from, to): &(usize, usize)| {
        let of_pair = |s: &&Sample| (s.from, s.to) == (*from, *to);
        let of_pair: Vec<&Sample> = samples.iter().filter(of_pair).collect();
        let [from, to] = [from, to].map(|n| topology.hosts[*n].name.clone());
        NewFlow {
            from,
            to,
            sent: of_pair.len(),
            answered: of_pair.iter().filter(|s| s.rtt.is_some()).count(),
            works_ms: works_at(&of_pair).map(since),
        }
    };
    Trial {
        killed: Part::Controller,
        down_ms: 0,
        down_measured_ms: milliseconds(events.restarted.saturating_sub(events.killed)),
        established_sent: established.len(),
        established_lost_before: lost(true),
        established_lost: lost(false),
        established_rtt_ms: rtts(&established),
        connected_ms: events.connected.map(since),
        new_flows: new.iter().map(flow).collect(),
    }
}

/// When the first answer had come and the next packet after the last lost one was due.
fn works_at(samples: &[&Sample]) -> Option<Duration> {
    let answers = samples.iter().filter_map(|s| Some(s.sent + s.rtt?));
    let first_answer = answers.min()?;
    let lost = samples.iter().rposition(|s| s.rtt.is_none());
    match lost {
        None => Some(first_answer),
        Some(last) => samples
            .get(last + 1)
            .map(|next| next.sent.max(first_answer)),
    }
}

fn rtts(samples: &[&Sample]) -> Quantiles {
    Quantiles::of(
        samples
            .iter()
            .filter_map(|s| s.rtt.map(milliseconds))
            .collect(),
    )
}

/// Of the packets, those that a reader wants to see one by one: of new flows, and lost ones.
pub fn worth_keeping(topology: &Topology, samples: &[Sample]) -> Vec<Sample> {
    let established: BTreeSet<_> = established_pairs(topology).into_iter().collect();
    let wanted = |s: &&Sample| s.rtt.is_none() || !established.contains(&(s.from, s.to));
    samples.iter().filter(wanted).copied().collect()
}

fn flows(pairs: &[(usize, usize)], interval: Duration, now: Duration) -> Vec<Flow> {
    let phase = |n: usize| interval * n as u32 / pairs.len() as u32;
    let flow = |(n, (from, to)): (usize, &(usize, usize))| Flow {
        from: *from,
        to: *to,
        interval,
        next: now + phase(n),
    };
    pairs.iter().enumerate().map(flow).collect()
}

/// The first host of each edge switch to that of the next one.
fn established_pairs(topology: &Topology) -> Vec<(usize, usize)> {
    let mut seen = BTreeSet::new();
    let hosts = topology.hosts.iter().enumerate();
    let firsts: Vec<usize> = hosts
        .filter(|(_, host)| seen.insert(host.at.switch))
        .map(|(n, _)| n)
        .collect();
    match firsts.len() {
        0 | 1 => Vec::new(),
        2 => vec![(firsts[0], firsts[1])],
        count => (0..count)
            .map(|n| (firsts[n], firsts[(n + 1) % count]))
            .collect(),
    }
}

/// Unordered pairs of hosts at different switches, without established flows.
fn new_pairs(topology: &Topology) -> Vec<(usize, usize)> {
    let established = established_pairs(topology);
    let count = topology.hosts.len();
    let at = |n: usize| topology.hosts[n].at.switch;
    let all = (1..count).flat_map(|distance| (distance..count).map(move |b| (b - distance, b)));
    all.filter(|(a, b)| at(*a) != at(*b))
        .filter(|(a, b)| !established.contains(&(*a, *b)) && !established.contains(&(*b, *a)))
        .collect()
}

/// Trials by what was killed and for how long, in the order of the scenario.
fn groups(trials: &[Trial]) -> Vec<((Part, u64), Vec<&Trial>)> {
    let mut groups: Vec<((Part, u64), Vec<&Trial>)> = Vec::new();
    for trial in trials {
        let key = (trial.killed, trial.down_ms);
        match groups.last_mut().filter(|(last, _)| *last == key) {
            Some((_, group)) => group.push(trial),
            None => groups.push((key, vec![trial])),
        }
    }
    groups
}

fn works_ms(trials: &[&Trial]) -> Vec<Option<f64>> {
    let flows = trials.iter().flat_map(|trial| &trial.new_flows);
    flows.map(|flow| flow.works_ms).collect()
}

impl Trial {
    fn line(&self) -> String {
        let works = works_ms(&[self]).into_iter();
        let works: Vec<String> = works
            .map(|ms| ms.map_or("never".to_string(), |ms| format!("{ms:.0}")))
            .collect();
        format!(
            "{} killed for {:.0} ms: {} of {} lost; new flows after {} ms",
            self.killed.role(),
            self.down_measured_ms,
            self.established_lost,
            self.established_sent,
            works.join(" and ")
        )
    }
}

/// A line per way of killing.
pub fn table(trials: &[Trial]) -> String {
    let header = [
        "killed",
        "down ms",
        "runs",
        "sent",
        "lost",
        "rtt p50",
        "rtt max",
        "connected ms",
        "new flows",
        "min ms",
        "p50 ms",
        "max ms",
    ];
    let row = |((part, down_ms), trials): ((Part, u64), Vec<&Trial>)| {
        let connected = trials.iter().filter_map(|t| t.connected_ms).collect();
        let connected = Quantiles::of(connected);
        let times = works_ms(&trials);
        let works = Quantiles::of(times.iter().flatten().copied().collect());
        let sum = |of: fn(&Trial) -> usize| trials.iter().map(|t| of(t)).sum::<usize>();
        let p50s = trials.iter().map(|t| t.established_rtt_ms.p50).collect();
        let worst = trials.iter().map(|t| t.established_rtt_ms.max);
        vec![
            part.role().to_string(),
            down_ms.to_string(),
            trials.len().to_string(),
            sum(|t| t.established_sent).to_string(),
            sum(|t| t.established_lost).to_string(),
            format!("{:.2}", Quantiles::of(p50s).p50),
            format!("{:.2}", worst.fold(0.0, f64::max)),
            match connected.count {
                0 => "-".to_string(),
                _ => format!("{:.0} to {:.0}", connected.min, connected.max),
            },
            format!("{} of {}", works.count, times.len()),
            format!("{:.0}", works.min),
            format!("{:.0}", works.p50),
            format!("{:.0}", works.max),
        ]
    };
    cli::table::table(
        &header,
        &groups(trials).into_iter().map(row).collect::<Vec<_>>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn ring() -> Topology {
        Topology::generate("ring,4", Some(3)).unwrap()
    }

    /// Killed at 1 s, restarted at 1.2 s, traffic until 3 s: established from 0, new from 1.2 s.
    fn judged(established_lost_ms: &[u64], new_lost_ms: &[u64]) -> Trial {
        let sample = |(from, to), ms: u64, lost: &[u64]| Sample {
            from,
            to,
            sent: MS(ms),
            rtt: (!lost.contains(&ms)).then_some(MS(2)),
        };
        let established = (0..300).map(|n| sample((0, 3), n * 10, established_lost_ms));
        let new = (0..90).map(|n| sample((1, 4), 1200 + n * 20, new_lost_ms));
        let samples: Vec<Sample> = established.chain(new).collect();
        let events = Events {
            killed: MS(1000),
            restarted: MS(1200),
            connected: Some(MS(1300)),
        };
        judge(&ring(), &samples, &[(1, 4)], &events)
    }

    fn scenario() -> Restart {
        Restart {
            kill: vec![Part::Controller],
            down_ms: vec![200],
            repetitions: 1,
            packets_per_s: 100,
            before_s: 1.0,
            after_s: 1.8,
            new_flow_ms_max: 100,
        }
    }

    fn passed(trial: Trial) -> Vec<bool> {
        let checks = scenario().checks(&[trial]);
        checks.iter().map(|check| check.passed).collect()
    }

    #[test]
    fn a_new_flow_works_from_the_packet_after_its_last_lost_one() {
        let at = |lost: &[u64]| judged(&[], lost).new_flows[0].works_ms;
        assert_eq!(at(&[]), Some(2.0), "its first answer");
        assert_eq!(at(&[1200, 1220]), Some(42.0), "the first answer");
        assert_eq!(
            at(&[1200, 2000]),
            Some(820.0),
            "an answer between does not count"
        );
        assert_eq!(at(&[2980]), None, "the last one was lost");
    }

    #[test]
    fn each_loss_fails_the_check_it_belongs_to() {
        assert_eq!(passed(judged(&[], &[1200, 1220, 1240])), [true, true]);
        assert_eq!(passed(judged(&[1000], &[])), [false, true]);
        assert_eq!(passed(judged(&[2990], &[])), [false, true]);
        assert_eq!(passed(judged(&[], &[1300])), [true, false]);
        let before = judged(&[990], &[]);
        assert_eq!(
            (before.established_lost_before, before.established_lost),
            (1, 0)
        );
        assert_eq!(before.connected_ms, Some(100.0));
    }

    #[test]
    fn new_flows_are_between_switches_and_never_between_the_same_hosts_twice() {
        let topology = ring();
        let pairs = new_pairs(&topology);
        let mut all: Vec<(usize, usize)> =
            pairs.iter().map(|(a, b)| (*a.min(b), *a.max(b))).collect();
        let established = established_pairs(&topology);
        assert_eq!(established, [(0, 3), (3, 6), (6, 9), (9, 0)]);
        all.extend(established.iter().map(|(a, b)| (*a.min(b), *a.max(b))));
        let unique: BTreeSet<_> = all.iter().collect();
        assert_eq!((pairs.len(), unique.len()), (50, 54));
    }

    #[test]
    fn a_scenario_that_cannot_show_anything_is_refused() {
        let refused = |change: fn(&mut Restart)| {
            let mut restart = scenario();
            change(&mut restart);
            restart.check(&ring()).unwrap_err()
        };
        assert_eq!(scenario().check(&ring()), Ok(()));
        assert!(refused(|r| r.kill.clear()).contains("at least one"));
        assert!(refused(|r| r.repetitions = 26).contains("52 pairs"));
        assert!(refused(|r| r.new_flow_ms_max = 1800).contains("new_flow_ms_max"));
        assert!(refused(|r| r.packets_per_s = 0).contains("packets_per_s"));
    }
}
