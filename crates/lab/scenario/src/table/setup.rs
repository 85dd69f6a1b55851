//! A network under one controller, up and asked for by nobody yet.

use std::time::{Duration, Instant};

use cli::failure::Failure;
use cli::interrupt::Interrupt;
use testbed::network::{Network, Options};
use testbed::plane::{Controller, Part, Plane, Site, Transport};
use testbed::plane::{read_status, status_socket, write_config};
use testbed::status;
use testbed::topology::Topology;
use testbed::traffic::tcp::Ends;

pub struct Setup {
    pub network: Network,
    pub ends: Ends,
    plane: Plane,
}

/// A controller has this long until it knows the network.
const READY_TIME_MAX: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// For ports to be taken for those of hosts, and for entries of the set-up to be in place.
const SETTLE_TIME: Duration = Duration::from_millis(700);
/// Half a second of 60 Mbit/s. A machine of two cores that stops the switches for 20 ms is not what
/// is measured.
const PORT_BUFFER_BYTES: usize = 6 << 20;

impl Setup {
    /// Starts auster with this configuration; `None` when that was interrupted. `name` is for the
    /// lab's record.
    pub fn start(
        topology: Topology,
        name: &str,
        config: &toml::Table,
        interrupt: &Interrupt,
    ) -> Result<Option<Setup>, Failure> {
        let options = Options {
            port_buffer_bytes: Some(PORT_BUFFER_BYTES),
            ..Options::default()
        };
        let last = topology.hosts.len() - 1;
        let mut network = Network::start(topology, name, &options)?;
        write_config(&network, config)?;
        let auster = Controller::Auster(Site::new(Transport::Tcp));
        let plane = Plane::start(&mut network, &auster)?;
        if !wait_until_known(&mut network, interrupt)? {
            return Ok(None);
        }
        std::thread::sleep(SETTLE_TIME);
        Ok(Some(Setup {
            ends: Ends::of(&network, 0, last),
            network,
            plane,
        }))
    }

    /// Fails if a process has ended that should be running.
    pub fn check(&mut self) -> Result<(), Failure> {
        match self.network.casualty() {
            Some(casualty) => {
                let words = self.network.last_words("controller.log");
                Err(Failure::machine(format!("{casualty}: {words}")))
            }
            None => Ok(()),
        }
    }

    /// The status that the controller reports.
    pub fn status(&self) -> Option<serde_json::Value> {
        self.plane.status()
    }
}

/// Until the controller knows every switch and every link; whether it came to that.
fn wait_until_known(network: &mut Network, interrupt: &Interrupt) -> Result<bool, Failure> {
    let deadline = Instant::now() + READY_TIME_MAX;
    let socket = status_socket(&network.dir(), Part::Controller);
    let (switches, links) = (
        network.topology.switches.len(),
        network.topology.links.len(),
    );
    while !interrupt.is_set() {
        let known = read_status(&socket);
        let known = known.as_ref();
        if status::switch_count(known) == switches && status::link_count(known) == 2 * links {
            return Ok(true);
        }
        if let Some(casualty) = network.casualty() {
            let words = network.last_words("controller.log");
            return Err(Failure::machine(format!("{casualty}: {words}")));
        }
        if Instant::now() > deadline {
            return Err(Failure::negative(format!(
                "the controller does not know the network within {} s",
                READY_TIME_MAX.as_secs()
            )));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(false)
}
