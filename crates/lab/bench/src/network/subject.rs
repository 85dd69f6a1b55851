//! One controller with a network of its own, ready to be measured.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::network::background::Source;
use crate::network::stranger::Door;
use crate::network::tcp::Ends;
use crate::network::{Plan, iperf};
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use testbed::network::Network;
use testbed::plane::{Controller, Plane};
use testbed::probe::Prober;
use testbed::status;

/// A controller has this long until the hosts reach each other.
const REACHABLE_TIME_MAX: Duration = Duration::from_secs(30);
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Numbers of the background's strangers begin here.
const BACKGROUND_FIRST: usize = 10_000;

pub struct Subject {
    pub label: String,
    pub network: Network,
    pub ends: Ends,
    pub from: Door,
    pub to: Door,
    pub source: Option<Source>,
    /// Strangers that were seen so far.
    strangers: usize,
}

impl Subject {
    /// Brings the network up and waits until the controller knows the hosts; `None` when that was
    /// interrupted.
    pub fn start(
        plan: &Plan,
        controller: &Controller,
        interrupt: &Interrupt,
    ) -> Result<Option<Subject>, Failure> {
        let label = controller.to_string();
        let (cast, settings) = (plan.cast, &plan.settings);
        let mut network = Network::start(plan.topology.clone(), &label, &plan.options)?;
        let plane = Plane::start(&mut network, controller)?;
        let hosts = [cast.from, cast.to, cast.background_from, cast.background_to];
        if !wait_until_reachable(&mut network, &plane, &hosts, &label, interrupt)? {
            return Ok(None);
        }
        if settings.iperf.is_some() {
            iperf::start_servers(&mut network, &settings.to)?;
        }
        let source = match settings.background_flows_per_s {
            0.0 => None,
            _ => Some(Source::open(
                Door::open(&network, cast.background_from)?,
                Door::open(&network, cast.background_to)?,
                BACKGROUND_FIRST,
            )),
        };
        Ok(Some(Subject {
            label,
            ends: Ends::of(&network, cast.from, cast.to),
            from: Door::open(&network, cast.from)?,
            to: Door::open(&network, cast.to)?,
            network,
            source,
            strangers: 0,
        }))
    }

    /// Numbers that this network has never seen.
    pub fn new_strangers(&mut self, count: usize) -> Range<usize> {
        let first = self.strangers;
        self.strangers += count;
        first..self.strangers
    }
}

/// Pings between all hosts that take part, by their place in the topology, until none is lost: a
/// network that has settled, and hosts that the controller knows. Returns false if interrupted.
pub fn wait_until_reachable(
    network: &mut Network,
    plane: &Plane,
    hosts: &[usize],
    label: &str,
    interrupt: &Interrupt,
) -> Result<bool, Failure> {
    let deadline = Instant::now() + REACHABLE_TIME_MAX;
    let topology = network.topology.clone();
    let mut hosts = hosts.to_vec();
    hosts.sort_unstable();
    hosts.dedup();
    let failed = |e: std::io::Error| Failure::machine(format!("ping: {e}"));
    let places = hosts.iter().map(|n| {
        let host = &topology.hosts[*n];
        (network.namespace(&host.name), host.address)
    });
    let mut prober = Prober::new(places.collect::<Vec<_>>()).map_err(failed)?;
    loop {
        if interrupt.is_set() {
            return Ok(false);
        }
        let known = plane.status();
        let has_links =
            !plane.has_status() || status::link_count(known.as_ref()) == 2 * topology.links.len();
        if has_links {
            let pairs = prober.ping_all(1, hosts.len()).map_err(failed)?;
            if pairs.iter().all(|pair| pair.lost() == 0) {
                return Ok(true);
            }
        }
        if let Some(casualty) = network.casualty() {
            return Err(Failure::machine(casualty));
        }
        if Instant::now() > deadline {
            return Err(Failure::negative(format!(
                "{} under {label}: the hosts do not reach each other within {} s",
                topology.name,
                REACHABLE_TIME_MAX.as_secs()
            )));
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}
