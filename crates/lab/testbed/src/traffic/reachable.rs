//! Waiting until hosts reach each other.

use std::time::{Duration, Instant};

use cli::failure::Failure;
use cli::interrupt::Interrupt;

use crate::network::Network;
use crate::plane::Plane;
use crate::probe::Prober;
use crate::status;

/// A controller has this long until the hosts reach each other.
const REACHABLE_TIME_MAX: Duration = Duration::from_secs(30);
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

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
