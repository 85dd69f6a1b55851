//! One run: a network with a controller of its own, packets into it, and what is seen meanwhile.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use control::timeouts::budget::high_mark;
use nix::sys::socket::{MsgFlags, send};
use serde::Serialize;

use crate::table::judge::{Judged, Seen, judge};
use crate::table::load::{Load, Sent};
use crate::table::occupancy::{Probe, sample};
use crate::table::settings::{Overflow, Settings};
use crate::table::setup::Setup;
use crate::table::wire::{Arrivals, Counts, Messages, announcement};
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use testbed::capture::Capture;
use testbed::netns;
use testbed::network::SWITCHES;
use testbed::plane::OPENFLOW_PORT;
use testbed::topology::Topology;

/// One cell, once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Place {
    /// Indices into the settings.
    pub cells: usize,
    pub policy: usize,
    pub load: f64,
    pub round: u32,
}

/// The results of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    pub place: Place,
    pub flows: u64,
    pub sent: u64,
    pub duplicates: u64,
    /// Packets that the sender's own interface refused.
    pub refused: u64,
    /// The most that a packet was sent after it was due.
    pub late_ms_max: f64,
    pub judged: Judged,
    pub messages: Counts,
    /// 0.9 of the table, and what was set between two reads of its statistics.
    pub bound: u64,
    /// Paths that the controller did not set for want of room.
    pub no_room: u64,
    /// Frames or segments that were there and not seen.
    pub unseen: u64,
    /// Entries of the fullest switch, by seconds since the first packet.
    #[serde(skip)]
    pub occupancy: Vec<(f64, u32)>,
}

/// The time of a run beside its seconds.
pub const BESIDE_S: f64 = 5.5;

const READY_TIME_MAX: Duration = Duration::from_secs(20);
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(200);
/// For the last packets to arrive.
const REST: Duration = Duration::from_millis(1500);

/// `None` when it was interrupted.
pub fn run(
    settings: &Settings,
    place: Place,
    interrupt: &Interrupt,
) -> Result<Option<Run>, Failure> {
    let (cells, policy) = (
        &settings.cells[place.cells],
        &settings.policies[place.policy],
    );
    let topology = Topology::generate(&cells.topology, None).map_err(Failure::usage)?;
    let config = policy.config(cells.entries);
    let Some(mut setup) = Setup::start(topology, &policy.name, &config, interrupt)? else {
        return Ok(None);
    };
    limit_tables(&setup, cells.entries, policy.overflow)?;
    if !announce(&mut setup, settings.destinations, interrupt)? {
        return Ok(None);
    }
    let load = Load {
        traffic: settings.traffic(cells, place.load),
        seed: settings.seed_of(place.round),
        duration: Duration::from_secs_f64(settings.seconds),
    };
    let found = observe(&setup, &load, interrupt)?;
    let no_room = no_room(&setup);
    setup.check()?;
    if interrupt.is_set() {
        return Ok(None);
    }
    Ok(Some(found.run(place, settings, no_room)))
}

/// Every switch has so much room from now on.
fn limit_tables(setup: &Setup, entries: u32, overflow: Overflow) -> Result<(), Failure> {
    let policy = match overflow {
        Overflow::Refuse => "refuse",
        Overflow::Evict => "evict",
    };
    let mut words = Vec::new();
    for (n, switch) in setup.network.topology.switches.iter().enumerate() {
        let name = &switch.name;
        let line = format!(
            "-- --id=@t{n} create Flow_Table flow_limit={entries} overflow_policy={policy} \
             -- set Bridge {name} flow_tables:0=@t{n}"
        );
        words.extend(line.split(' ').map(str::to_string));
    }
    setup.network.vsctl(&words).map(drop)
}

/// Until the controller knows where each destination is, without an entry for any. Whether it came
/// to that.
fn announce(setup: &mut Setup, destinations: u16, interrupt: &Interrupt) -> Result<bool, Failure> {
    let failed = |e: io::Error| Failure::machine(format!("hosts: {e}"));
    let socket = netns::open_packet_sender(&setup.ends.to, "eth0").map_err(failed)?;
    let deadline = Instant::now() + READY_TIME_MAX;
    while !interrupt.is_set() {
        for number in 0..destinations {
            let frame = announcement(number);
            send(socket.as_raw_fd(), &frame, MsgFlags::empty()).map_err(|e| failed(e.into()))?;
        }
        std::thread::sleep(ANNOUNCE_INTERVAL);
        let known = setup.status().and_then(|s| s["host_count"].as_u64());
        if known.is_some_and(|known| known >= u64::from(destinations)) {
            return Ok(true);
        }
        setup.check()?;
        if Instant::now() > deadline {
            return Err(Failure::negative(format!(
                "the controller knows {} of {destinations} destinations within {} s",
                known.unwrap_or(0),
                READY_TIME_MAX.as_secs()
            )));
        }
    }
    Ok(false)
}

/// The raw findings of a run.
struct Found {
    sent: Sent,
    arrivals: Arrivals,
    messages: Messages,
    missed: u64,
    occupancy: Vec<(f64, u32)>,
}

fn observe(setup: &Setup, load: &Load, interrupt: &Interrupt) -> Result<Found, Failure> {
    let failed = |e: io::Error| Failure::machine(format!("hosts: {e}"));
    let asked = |e: io::Error| Failure::machine(format!("a switch, asked for its entries: {e}"));
    let socket = netns::open_packet_sender(&setup.ends.from, "eth0").map_err(failed)?;
    let arrivals = Capture::open(&setup.ends.to, "eth0", Arrivals::default()).map_err(failed)?;
    let messages = Messages::new(OPENFLOW_PORT);
    let switches = setup.network.namespace(SWITCHES);
    let messages = Capture::open_both_ways(&switches, "ctl0", messages).map_err(failed)?;
    let names = setup.network.topology.switches.iter().map(|s| &s.name);
    let sockets = names.map(|name| setup.network.dir().join(name).with_extension("mgmt"));
    let probes: io::Result<Vec<Probe>> = sockets.map(|socket| Probe::open(&socket)).collect();
    let mut probes = probes.map_err(asked)?;
    let over = AtomicBool::new(false);
    let (sent, occupancy) = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| sample(&mut probes, &over));
        let sent = load.send(&socket, interrupt);
        over.store(true, Ordering::Relaxed);
        let occupancy = sampler.join();
        let occupancy = occupancy.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (sent, occupancy)
    });
    std::thread::sleep(REST);
    let (arrivals, missed) = arrivals.close().map_err(failed)?;
    let (messages, missed_messages) = messages.close().map_err(failed)?;
    Ok(Found {
        sent: sent.map_err(failed)?,
        arrivals,
        missed: missed + missed_messages + messages.gaps(),
        messages,
        occupancy: occupancy.map_err(asked)?,
    })
}

/// Paths without room that the controller counted, over all switches.
fn no_room(setup: &Setup) -> u64 {
    let status = setup.status();
    let switches = status.as_ref().and_then(|s| s["switches"].as_array());
    let counts = switches.into_iter().flatten();
    counts.filter_map(|s| s["table"]["no_room"].as_u64()).sum()
}

impl Found {
    fn run(self, place: Place, settings: &Settings, no_room: u64) -> Run {
        let entries = settings.cells[place.cells].entries;
        let overflow = settings.policies[place.policy].overflow;
        let log = self.messages.log;
        let set_per_read = log.set_per_read_max() as u64;
        let mut events = log.events;
        events.sort_by_key(|event| event.at_ns);
        Run {
            place,
            flows: self.sent.flows,
            sent: self.sent.packets.len() as u64,
            duplicates: self.arrivals.duplicates,
            refused: self.sent.refused,
            late_ms_max: self.sent.late_max.as_secs_f64() * 1e3,
            judged: judge(&Seen {
                sent: &self.sent.packets,
                pairs: &self.sent.pairs,
                arrived: &self.arrivals.seen,
                asked: &log.asked,
                events: &events,
                evicts: overflow == Overflow::Evict,
            }),
            messages: log.counts,
            bound: u64::from(high_mark(entries)) + set_per_read,
            no_room,
            unseen: self.missed,
            occupancy: self.occupancy,
        }
    }
}

impl Run {
    pub fn entries_max(&self) -> u32 {
        self.occupancy.iter().map(|(_, n)| *n).max().unwrap_or(0)
    }

    /// After the first quarter.
    pub fn entries_mean(&self, seconds: f64) -> f64 {
        let late = self.occupancy.iter().filter(|(at, _)| *at >= seconds / 4.0);
        let entries: Vec<f64> = late.map(|(_, n)| f64::from(*n)).collect();
        entries.iter().sum::<f64>() / entries.len().max(1) as f64
    }

    pub fn misses_per_flow(&self) -> f64 {
        self.judged.misses as f64 / self.flows.max(1) as f64
    }
}
