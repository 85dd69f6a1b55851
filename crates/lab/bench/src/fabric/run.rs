//! One run: a controller, a network, and the phases that lead to its figures.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use net::method::{Method, Transport};
use serde::Serialize;

use super::Workload;
use super::emulator::Emulator;
use super::events::{self, EventFigures};
use super::load::{Opening, Pace, Record, World};
use super::net::Net;
use super::pairs::{Choice, Pairs};
use super::recovery::{Delay, Recovery};
use super::switch::Counts;
use super::walk::Fabric;
use crate::controller::switch::Announce;
use crate::controller::target::{Server, Usage};
use crate::thread_cpu;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use cli::progress::Progress;

/// The longest that a controller may take to ask all switches for their features.
const ADMIT_MAX: Duration = Duration::from_secs(60);
/// Hosts that announce themselves at once, and the pause after them: 2,000 hosts a second.
const ANNOUNCED_AT_ONCE: usize = 10;
const ANNOUNCE_PAUSE: Duration = Duration::from_millis(5);

/// Duration of the light load before and after an overload.
const CALM: Duration = Duration::from_secs(2);

/// Interval at which the bench checks whether the controller has set something.
const SETTLE_STEP: Duration = Duration::from_millis(50);

/// The settings that all runs share.
#[derive(Clone, Debug)]
pub struct Plan {
    pub host_ports: usize,
    pub hosts: usize,
    pub choice: Choice,
    pub workload: Workload,
    /// Broadcasts a second of [`Workload::Storm`].
    pub storm_rate: f64,
    pub timeout: Duration,
    pub settle: Duration,
    pub discovery_max: Duration,
    pub warmup: Duration,
    pub duration: Duration,
    pub echo_interval: Duration,
    pub announce: Announce,
    pub conversations: usize,
    pub events: u32,
    pub seed: u64,
}

/// The part of a plan that differs between the runs of a round.
#[derive(Clone, Debug, PartialEq)]
pub struct Leg {
    pub name: String,
    /// The name, without the topology.
    pub kind: &'static str,
    pub topology: String,
    pub same_switch: bool,
    pub load: Load,
    pub is_stormy: bool,
    /// First packets a second for two seconds before and after the load, if it is an overload.
    pub calm_rate: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    Window(u32),
    /// First packets a second.
    Rate(f64),
}

/// The time until the load began.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Setup {
    /// Until all switches were asked for their features.
    pub admitted_s: f64,
    /// Until LLDP had passed over every link, both ways.
    pub discovered_s: Option<f64>,
    /// Until the last host had announced itself.
    pub announced_s: f64,
    /// Until the last table change before the load, if a pause followed it.
    pub settled_s: Option<f64>,
    /// Changes of tables and groups before the load.
    pub changes: u64,
    /// Entries per switch before the load, on average.
    pub entries: f64,
}

/// The controller's use of the machine while it was measured.
#[derive(Clone, Debug, Default)]
pub struct Used {
    pub cpu: Duration,
    /// Processor time, by thread name.
    pub threads: BTreeMap<String, Duration>,
    pub memory_peak_mib: f64,
}

pub struct Measured {
    pub leg: Leg,
    pub setup: Setup,
    pub elapsed: Duration,
    pub record: Record,
    pub counts: Counts,
    /// Entries and groups of each switch, at the end.
    pub entries: Vec<usize>,
    pub groups: Vec<usize>,
    pub used: Option<Used>,
    pub emulator_cpu: Duration,
    pub looped: u64,
    pub broadcasts: u64,
    pub broadcast_copies: u64,
    pub pairs_exhausted: bool,
    pub switches_lost: u32,
    pub problem: Option<String>,
    pub events: Vec<EventFigures>,
    pub recovery: Option<Recovery>,
}

impl Measured {
    pub fn delivered_per_s(&self) -> f64 {
        self.record.delivered_meanwhile as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// The address to dial.
pub fn address(method: &Method) -> Result<SocketAddr, Failure> {
    let refused = || {
        Failure::usage(format!(
            "{method}: the emulated switches speak plain TCP; write tcp:HOST:PORT"
        ))
    };
    let Method::Dial(Transport::Tcp, host, port) = method else {
        return Err(refused());
    };
    let found = format!("{host}:{port}").to_socket_addrs();
    let found = found.ok().and_then(|mut addresses| addresses.next());
    found.ok_or_else(|| Failure::network(format!("{method}: the host has no address")))
}

pub struct Runner<'a> {
    pub plan: &'a Plan,
    pub leg: &'a Leg,
    pub title: String,
    pub interrupt: &'a Interrupt,
    pub progress: &'a Progress,
}

impl Runner<'_> {
    pub fn run(&self, server: &mut Server) -> Result<Measured, Failure> {
        let plan = self.plan;
        let net = Net::generate(&self.leg.topology, plan.host_ports, plan.hosts);
        let net = net.map_err(Failure::usage)?;
        let pairs = Pairs::new(&net, plan.choice, self.leg.same_switch, plan.seed);
        let opening = match plan.workload {
            Workload::Arp => Opening::Arp,
            _ => Opening::Packet,
        };
        let timeout_ns = plan.timeout.as_nanos() as u64;
        let world = World::new(Fabric::new(net), pairs, opening, timeout_ns);
        self.say("connecting");
        let mut emulator = Emulator::connect(
            world,
            address(&server.method)?,
            plan.echo_interval,
            self.interrupt,
        )?;
        let setup = self.set_up(&mut emulator)?;
        let mut measured = match plan.workload.has_events() {
            true => {
                self.say("conversations");
                events::converse(&mut emulator, self)?;
                self.measure(&mut emulator, server, &[], events::run)?
            }
            false => {
                let before = self.calm(&mut emulator, false);
                self.say("warming up");
                emulator.world.set_pace(self.pace(&emulator));
                emulator.run_for(plan.warmup);
                self.say("measuring");
                self.measure(&mut emulator, server, &before, |runner, emulator, _| {
                    emulator.run_for(runner.plan.duration);
                    Ok(Vec::new())
                })?
            }
        };
        measured.setup = setup;
        Ok(measured)
    }

    pub fn say(&self, doing: &str) {
        self.progress.say(format_args!("{}: {doing}", self.title));
    }

    /// Sends a light load for a while, if the leg is an overload. Returns the delays; `with_late`
    /// includes those of packets that have not arrived.
    fn calm(&self, emulator: &mut Emulator, with_late: bool) -> Vec<Delay> {
        let Some(rate) = self.leg.calm_rate else {
            return Vec::new();
        };
        let from_ns = emulator.now().0;
        emulator.world.set_pace(Pace::Open { rate, from_ns });
        emulator.world.begin_calm();
        emulator.run_for(CALM);
        let now = emulator.now();
        emulator.world.end_calm(now, with_late)
    }

    /// The pace of the load from now on.
    pub fn pace(&self, emulator: &Emulator) -> Pace {
        match self.leg.load {
            Load::Window(window) => Pace::Closed { window },
            Load::Rate(rate) => Pace::Open {
                rate,
                from_ns: emulator.now().0,
            },
        }
    }

    /// Runs the set-up, until the controller knows switches, links and hosts.
    fn set_up(&self, emulator: &mut Emulator) -> Result<Setup, Failure> {
        let plan = self.plan;
        self.say("waiting for features requests");
        let all = |e: &Emulator| e.world.fabric.switches.iter().all(|s| s.is_admitted);
        if !emulator.until(ADMIT_MAX, all) && !emulator.is_interrupted() {
            let switches = &emulator.world.fabric.switches;
            let admitted = switches.iter().filter(|s| s.is_admitted).count();
            let count = switches.len();
            let problem = emulator.problem.clone();
            let problem = problem.unwrap_or_else(|| "no connection was lost".to_owned());
            return Err(Failure::network(format!(
                "only {admitted} of {count} switches were asked for their features within {} s \
                 ({problem}); is it an OpenFlow 1.3 controller?",
                ADMIT_MAX.as_secs()
            )));
        }
        let mut setup = Setup {
            admitted_s: seconds(emulator),
            ..Setup::default()
        };
        self.say("waiting for LLDP");
        let is_heard = |e: &Emulator| e.world.fabric.net.is_heard();
        if emulator.until(plan.discovery_max, is_heard) {
            setup.discovered_s = Some(seconds(emulator));
        }
        emulator.run_for(plan.settle);
        self.say("announcing hosts");
        let hosts: Vec<u32> = (0..emulator.world.fabric.net.host_count()).collect();
        for hosts in hosts.chunks(ANNOUNCED_AT_ONCE) {
            for host in hosts {
                let now = emulator.now();
                emulator.world.announce(now, *host, plan.announce);
            }
            emulator.run_for(ANNOUNCE_PAUSE);
        }
        setup.announced_s = seconds(emulator);
        self.say("waiting until the controller sets nothing more");
        setup.settled_s = self.settle(emulator);
        setup.changes = changes(emulator);
        let switches = &emulator.world.fabric.switches;
        let entries: usize = switches.iter().map(|s| s.tables.entry_count()).sum();
        setup.entries = entries as f64 / switches.len().max(1) as f64;
        Ok(setup)
    }

    /// Waits until the controller has changed nothing for `settle`. Returns the time of its last
    /// change.
    fn settle(&self, emulator: &mut Emulator) -> Option<f64> {
        let end = seconds(emulator) + self.plan.discovery_max.as_secs_f64();
        let mut last = (seconds(emulator), changes(emulator));
        let mut until = last.0 + self.plan.settle.as_secs_f64();
        while seconds(emulator) < until {
            if seconds(emulator) > end || emulator.is_interrupted() {
                return None;
            }
            emulator.run_for(SETTLE_STEP);
            if changes(emulator) != last.1 {
                last = (seconds(emulator), changes(emulator));
                until = last.0 + self.plan.settle.as_secs_f64();
            }
        }
        Some(last.0)
    }

    /// Runs `load` with the clock on, and then waits for the packets in flight. `before` has the
    /// delays under the light load, which is repeated after an overload.
    fn measure(
        &self,
        emulator: &mut Emulator,
        server: &mut Server,
        before: &[Delay],
        load: impl FnOnce(&Self, &mut Emulator, &mut Server) -> Result<Vec<EventFigures>, Failure>,
    ) -> Result<Measured, Failure> {
        let began = emulator.now();
        emulator.world.record = Record::default();
        emulator.world.set_recording(true);
        if self.leg.is_stormy {
            let rate = Some(self.plan.storm_rate);
            emulator.world.set_broadcasts(rate, began);
        }
        let (counts, cpu, usage) = (counts(emulator), thread_cpu(), readings(server));
        let broadcasts = (emulator.world.broadcasts, emulator.world.broadcast_copies);
        let events = load(self, emulator, server)?;
        let used = usage.zip(readings(server)).map(used);
        let emulator_cpu = thread_cpu().saturating_sub(cpu);
        let end = emulator.now();
        let elapsed = end - began;
        let counts = self::counts(emulator).since(&counts);
        let world = &mut emulator.world;
        world.set_recording(false);
        world.set_broadcasts(None, began);
        let tables = world.fabric.switches.iter().map(|s| &s.tables);
        let entries = tables.clone().map(|t| t.entry_count()).collect();
        let groups = tables.map(|t| t.group_count()).collect();
        let pairs_exhausted = world.pairs_exhausted;
        let after = self.calm(emulator, true);
        let calm_rate = self.leg.calm_rate;
        let recovery = calm_rate.map(|_| Recovery::of(before, &after, end.0));
        emulator.world.set_pace(Pace::Idle);
        self.say("waiting for the last");
        emulator.until(self.plan.timeout * 3, |e| e.world.is_drained());
        let world = &mut emulator.world;
        Ok(Measured {
            leg: self.leg.clone(),
            setup: Setup::default(),
            elapsed,
            record: std::mem::take(&mut world.record),
            counts,
            entries,
            groups,
            used,
            emulator_cpu,
            looped: world.fabric.looped,
            broadcasts: world.broadcasts - broadcasts.0,
            broadcast_copies: world.broadcast_copies - broadcasts.1,
            pairs_exhausted,
            switches_lost: emulator.lost,
            problem: emulator.problem.clone(),
            events,
            recovery,
        })
    }
}

fn seconds(emulator: &Emulator) -> f64 {
    emulator.now().0 as f64 / 1e9
}

/// Changes of tables and groups so far.
fn changes(emulator: &Emulator) -> u64 {
    let counts = counts(emulator);
    counts.flow_mods + counts.group_mods
}

/// All messages so far.
pub fn counts(emulator: &Emulator) -> Counts {
    let mut counts = Counts::default();
    for switch in &emulator.world.fabric.switches {
        counts.add(&switch.counts);
    }
    counts
}

type Readings = (Usage, BTreeMap<String, Duration>);

fn readings(server: &Server) -> Option<Readings> {
    server.usage().zip(server.threads())
}

fn used((before, after): (Readings, Readings)) -> Used {
    let since = |(name, spent): (String, Duration)| {
        let before = before.1.get(&name).copied().unwrap_or_default();
        (name, spent.saturating_sub(before))
    };
    Used {
        cpu: after.0.cpu.saturating_sub(before.0.cpu),
        threads: after.1.into_iter().map(since).collect(),
        memory_peak_mib: after.0.memory_peak_mib,
    }
}
