//! A network with the controller of one cell, up and asked for by nobody yet.

use cli::program;
use std::io;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sim::link::LinkConfig;

use crate::timeouts::channel::Host;
use crate::timeouts::settings::{NONE, Settings};
use bench::network::tcp::Ends;
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use testbed::netns;
use testbed::network::{CONTROLLER, CONTROLLER_ADDRESS, Network, Options};
use testbed::plane::{
    Controller, Plane, read_status, set_controllers, wait_for_listener, write_config,
};
use testbed::status;
use testbed::topology::Topology;

pub const OPENFLOW_PORT: u16 = 6653;

/// The network that a cell asks for.
pub struct Wish<'a> {
    pub controller: &'a str,
    pub topology: &'a str,
    pub detour_ms: f64,
    /// The core that the controller is bound to.
    pub core: Option<usize>,
    /// The hosts know each other's address before anything is measured.
    pub introduced: bool,
}

pub struct Setup {
    pub network: Network,
    pub ends: Ends,
    /// The host at the far end.
    pub to: Host,
    pub far: String,
    pub controller_pid: Option<u32>,
}

/// A controller has this long until it knows the network, and the hosts until they reach each
/// other.
const READY_TIME_MAX: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// For ports to be taken for those of hosts, and for entries of the set-up to be in place.
const SETTLE_TIME: Duration = Duration::from_millis(700);
const ANSWER_TIME_MAX: Duration = Duration::from_millis(500);
const DISCARD_PORT: u16 = 9;
/// Half a second of 60 Mbit/s. A machine of two cores that stops the switches for 20 ms is not what
/// is measured.
const PORT_BUFFER_BYTES: usize = 6 << 20;
/// The most that a host holds while it resolves the other's address: all of a fast stream until
/// then.
const UNRESOLVED_BYTES: usize = 16 << 20;

impl Setup {
    /// `None` when that was interrupted.
    pub fn start(
        settings: &Settings,
        wish: &Wish,
        interrupt: &Interrupt,
    ) -> Result<Option<Setup>, Failure> {
        let topology = Topology::generate(wish.topology, None).map_err(Failure::usage)?;
        let config = settings.controllers.get(wish.controller);
        Setup::start_on(
            topology,
            config.unwrap_or(&toml::Table::new()),
            wish,
            interrupt,
        )
    }

    /// On another topology than the wish's, and with the controller's configuration as it is.
    pub fn start_on(
        topology: Topology,
        config: &toml::Table,
        wish: &Wish,
        interrupt: &Interrupt,
    ) -> Result<Option<Setup>, Failure> {
        let options = Options {
            control: LinkConfig {
                delay: Duration::from_secs_f64(wish.detour_ms / 2.0 / 1e3),
                ..LinkConfig::default()
            },
            port_buffer_bytes: Some(PORT_BUFFER_BYTES),
            ..Options::default()
        };
        let last = topology.hosts.len() - 1;
        let (to, far) = (
            Host {
                mac: topology.hosts[last].mac,
                address: topology.hosts[last].address,
            },
            topology.hosts[last].name.clone(),
        );
        let mut network = Network::start(topology, wish.controller, &options)?;
        let mut controller_pid = None;
        if wish.controller == NONE {
            Plane::start(&mut network, &Controller::Standalone)?;
        } else {
            controller_pid = Some(start_controller(&mut network, config, wish)?);
            if !wait_until_known(&mut network, interrupt)? {
                return Ok(None);
            }
        }
        std::thread::sleep(SETTLE_TIME);
        let mut setup = Setup {
            ends: Ends::of(&network, 0, last),
            network,
            to,
            far,
            controller_pid,
        };
        setup.make_patient().map_err(Failure::machine)?;
        if wish.introduced && !setup.introduce(interrupt)? {
            return Ok(None);
        }
        Ok(Some(setup))
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
        read_status(&status_socket(&self.network))
    }

    /// Has the controller read another configuration.
    pub fn reconfigure(&self, config: &toml::Table) -> Result<(), Failure> {
        write_config(&self.network, config)?;
        let pid = self.controller_pid.map(|pid| Pid::from_raw(pid as i32));
        let pid = pid.ok_or_else(|| Failure::usage("there is no controller to configure"))?;
        kill(pid, Signal::SIGHUP).map_err(|e| Failure::machine(format!("SIGHUP: {e}")))
    }

    fn make_patient(&self) -> io::Result<()> {
        netns::within(&self.ends.from, || {
            let file = "/proc/sys/net/ipv4/neigh/eth0/unres_qlen_bytes";
            std::fs::write(file, UNRESOLVED_BYTES.to_string())
        })
    }

    /// A datagram to a port where nobody listens: its refusal shows that both directions work.
    fn introduce(&mut self, interrupt: &Interrupt) -> Result<bool, Failure> {
        let failed = |e: io::Error| Failure::machine(format!("hosts: {e}"));
        let socket = netns::within(&self.ends.from, || {
            let socket = UdpSocket::bind(("0.0.0.0", 0))?;
            socket.connect((self.ends.address, DISCARD_PORT))?;
            socket.set_read_timeout(Some(ANSWER_TIME_MAX))?;
            Ok(socket)
        });
        let socket = socket.map_err(failed)?;
        let deadline = Instant::now() + READY_TIME_MAX;
        loop {
            if interrupt.is_set() {
                return Ok(false);
            }
            let refused = |e: &io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
            let answer = socket.send(b"?").and_then(|_| socket.recv(&mut [0]));
            if answer.is_err_and(|e| refused(&e)) {
                return Ok(true);
            }
            self.check()?;
            if Instant::now() > deadline {
                return Err(Failure::negative(format!(
                    "the hosts do not reach each other within {} s",
                    READY_TIME_MAX.as_secs()
                )));
            }
        }
    }
}

fn start_controller(
    network: &mut Network,
    config: &toml::Table,
    wish: &Wish,
) -> Result<u32, Failure> {
    let config = write_config(network, config)?;
    let log = network.open_log("controller.log")?;
    let status = status_socket(network);
    let program = program::auster()?;
    let arguments = |command: &mut Command| {
        let listen = format!("ptcp:{OPENFLOW_PORT}:{CONTROLLER_ADDRESS}");
        command.args(["run", "--listen", &listen, "--config"]);
        command
            .arg(&config)
            .arg("--status")
            .arg(&status)
            .stderr(log);
    };
    let child = match wish.core {
        None => network.spawn("controller", Some(CONTROLLER), program, arguments)?,
        // Replaces itself, so that the process is the controller's.
        Some(core) => network.spawn("controller", Some(CONTROLLER), "taskset", |command| {
            command.args(["-c", &core.to_string()]).arg(program);
            arguments(command);
        })?,
    };
    let pid = child.id();
    wait_for_listener(network, CONTROLLER, OPENFLOW_PORT, "controller.log")?;
    let target = format!("tcp:{CONTROLLER_ADDRESS}:{OPENFLOW_PORT}");
    set_controllers(network, &target)?;
    Ok(pid)
}

pub fn status_socket(network: &Network) -> PathBuf {
    network.dir().join("status.sock")
}

/// Until the controller knows every switch and every link.
pub fn wait_until_known(network: &mut Network, interrupt: &Interrupt) -> Result<bool, Failure> {
    let deadline = Instant::now() + READY_TIME_MAX;
    let socket = status_socket(network);
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
