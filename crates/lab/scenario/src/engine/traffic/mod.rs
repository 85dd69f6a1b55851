//! Traffic between hosts, one file per kind.

mod channel;
mod newcomers;
mod packets;
mod ping;
mod storm;
mod tcp;
mod trace;
mod udp;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cli::failure::Failure;
use clock::SplitMix64;
use testbed::plane::Controller;
use testbed::probe::Flow;
use testbed::topology::Topology;
use testbed::traffic::tcp::Ends;

use crate::engine::course::Course;
use crate::engine::expression::{Figures, Shape, Value};
use crate::engine::reader::{Section, suggestion};
use crate::engine::timeline::Window;

pub use ping::{Echoes, flows};

/// Hosts by their place in the topology: from, to.
pub type Pair = (usize, usize);

/// Packets between pairs of hosts.
pub trait Traffic: Sync {
    /// Refuses a controller that the traffic cannot measure.
    fn check(&self, _: &Controller) -> Result<(), String> {
        Ok(())
    }

    /// Chooses the pairs of one run, if the scenario names no two hosts. `used` has the pairs of
    /// earlier runs on this network.
    fn choose(&self, _: &Topology, _used: &BTreeSet<Pair>) -> Result<Vec<Pair>, String> {
        Ok(Vec::new())
    }

    /// Whether the traffic's pairs are new to the network in each run.
    fn is_new_each_run(&self) -> bool {
        false
    }

    /// Whether the traffic is between hosts. Other traffic has its own endpoints.
    fn needs_network(&self) -> bool {
        true
    }

    /// Packets a second over this many pairs, and the field that decides the rate.
    fn packets_per_s(&self, pairs: usize) -> (f64, &'static str);

    /// More figures, named by the scenario.
    fn own_figures(&self) -> Vec<(String, Shape)> {
        Vec::new()
    }

    /// Whether the traffic ends by itself, so that a moment may wait for its end.
    fn has_own_end(&self) -> bool {
        false
    }

    /// Whether the traffic keeps to the planned times of moments, even if the moments are late.
    fn keeps_to_plan(&self) -> bool {
        false
    }

    /// Whether the traffic continues until a moment happens, whenever that is. Other traffic
    /// without its own end has to know its length when it begins.
    fn ends_on_demand(&self) -> bool {
        false
    }

    /// Announces to the network the hosts that the traffic assumes are known, once on each network.
    /// Returns whether there was anything to announce.
    fn introduce(&self, _: Pair, _: &Ends) -> Result<bool, Failure> {
        Ok(false)
    }

    /// The echo requests of one run, if the prober sends them. Other traffic has its own thread.
    fn flows(&self, _: &Stage<'_>) -> Option<Vec<Flow>> {
        None
    }

    /// Carries the packets of one run in its own thread and reports their fate.
    fn carry(&self, _: &Stage<'_>) -> Carried {
        Err(Failure::machine("only the prober carries this traffic"))
    }
}

/// Traffic and its two hosts, if the scenario names them. Other traffic chooses its pairs, or has
/// its own endpoints.
pub struct Carrier {
    pub traffic: Box<dyn Traffic>,
    pub hosts: Option<Hosts>,
}

impl std::ops::Deref for Carrier {
    type Target = dyn Traffic;

    fn deref(&self) -> &Self::Target {
        self.traffic.as_ref()
    }
}

impl Carrier {
    /// The pairs of one run.
    pub fn pairs(&self, topology: &Topology, used: &BTreeSet<Pair>) -> Result<Vec<Pair>, String> {
        match &self.hosts {
            Some(hosts) => Ok(vec![hosts.pair(topology)?]),
            None => self.choose(topology, used),
        }
    }
}

pub type Carried = Result<Box<dyn Record>, Failure>;

/// The hosts and the time of a stream in one run.
pub struct Stage<'a> {
    pub pairs: Vec<Pair>,
    /// The same hosts as a socket needs them.
    pub ends: Vec<Ends>,
    /// The zero of the run's clock.
    pub epoch: Instant,
    pub from: Duration,
    pub until: Duration,
    /// The moment that ends the stream, where `until` is only its earliest time.
    pub end: Option<(&'a Course, &'a str)>,
    /// The namespace of the switches.
    pub switches: String,
    /// The scenario's seed in the first run, and one more in each later run.
    pub seed: u64,
    /// The draw of this run from the scenario's seed: the same in every cell.
    pub draw: u64,
    /// Random numbers that are the same for a stream's run in every cell.
    pub random: SplitMix64,
}

impl Stage<'_> {
    pub fn is_over(&self) -> bool {
        match self.end {
            Some((course, moment)) => course.is_past(moment),
            None => self.epoch.elapsed() >= self.until,
        }
    }

    pub fn wait_for_end(&self) {
        match self.end {
            Some((course, moment)) => drop(course.wait_for_moment(moment)),
            None => std::thread::sleep(self.until.saturating_sub(self.epoch.elapsed())),
        }
    }
}

/// The fate of a stream's packets in one run.
pub trait Record: Send {
    /// A figure over the packets that were sent in a window.
    fn figure(&self, name: &str, window: &Window) -> Value;
}

pub const KINDS: [&str; 8] = [
    "ping",
    "channel",
    "newcomers",
    "packets",
    "storm",
    "tcp",
    "trace",
    "udp",
];

/// Traffic of the kind that a section names, with its figures.
pub fn read(section: &Section<'_>) -> Option<(Carrier, Figures)> {
    let Some(word) = section.required_word("kind", &KINDS) else {
        section.pass_over_all_but("kind");
        return None;
    };
    let is_between = !["ping", "channel"].contains(&word);
    let hosts = is_between.then(|| Hosts::read(section));
    let (traffic, figures) = match word {
        "ping" => kind(ping::Ping::read(section), &ping::FIGURES),
        "channel" => kind(channel::Channel::read(section), &channel::FIGURES),
        "newcomers" => kind(newcomers::Newcomers::read(section), &newcomers::FIGURES),
        "packets" => kind(packets::Packets::read(section), &packets::FIGURES),
        "storm" => kind(storm::Storm::read(section), &storm::FIGURES),
        "tcp" => kind(tcp::Tcp::read(section), &tcp::FIGURES),
        "trace" => kind(trace::Trace::read(section), &trace::FIGURES),
        "udp" => kind(udp::Udp::read(section), &udp::FIGURES),
        _ => None,
    }?;
    let hosts = match hosts {
        Some(read) => Some(read?),
        None => None,
    };
    Some((Carrier { traffic, hosts }, figures))
}

fn kind<T: Traffic + 'static>(
    read: Option<T>,
    figures: Figures,
) -> Option<(Box<dyn Traffic>, Figures)> {
    Some((Box::new(read?), figures))
}

/// The number of a host that no network of this process has seen. Storms have higher numbers.
fn new_stranger() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(20_000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The place of a host in a topology.
pub fn host(topology: &Topology, name: &str) -> Result<usize, String> {
    let found = topology.hosts.iter().position(|known| known.name == name);
    let names = topology.hosts.iter().map(|known| known.name.as_str());
    found.ok_or_else(|| format!("no host {name}; {}", suggestion(name, names)))
}

/// Two different hosts by their names.
#[derive(Clone, Debug)]
pub struct Hosts {
    from: String,
    to: String,
}

impl Hosts {
    fn read(section: &Section<'_>) -> Option<Hosts> {
        let from = section.required_text("from", "\"h1\"");
        let to = section.required_text("to", "\"h2\"");
        Some(Hosts {
            from: from?,
            to: to?,
        })
    }

    fn pair(&self, topology: &Topology) -> Result<Pair, String> {
        match (host(topology, &self.from)?, host(topology, &self.to)?) {
            (a, b) if a == b => Err("from and to are the same host".to_string()),
            pair => Ok(pair),
        }
    }
}
