//! The control plane of an experiment: a switch, a relay beside it, a limited link, a relay beside
//! the controller, and a controller that answers each PACKET_IN with one PACKET_OUT.

use cli::program;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::pso::settings::OutOfBand;
use crate::pso::shaper;
use crate::pso::source::{Load, Source};
use crate::pso::trial::{Place, Stage};
use cli::failure::Failure;
use cli::signals::Signals;
use testbed::network::{CONTROLLER, CONTROLLER_ADDRESS, Network, Options, SWITCHES};
use testbed::plane::{Transport, identity, make_certificates, set_controllers, wait_for_listener};
use testbed::topology::Topology;

const OPENFLOW_PORT: u16 = 6653;
const RELAY_PORT: u16 = 6654;
const RELAYS: [&str; 2] = ["relay-controller", "relay-switch"];
/// From the start of the relays until packets come through.
const START_TIME_MAX: Duration = Duration::from_secs(15);
const WARM_UP: Duration = Duration::from_millis(100);
const WARM_UP_PER_S: f64 = 200.0;

pub struct Plane {
    pub network: Network,
    /// The control link as seen from switch and controller.
    pub link: [Place; 2],
    pub stage: Stage,
    has_relays: bool,
    frame_bytes: usize,
    relay_mbps: Option<f64>,
}

impl Plane {
    /// Switch, hosts, limited link and controller; no relays yet, so that nothing gets through.
    pub fn start(settings: &OutOfBand) -> Result<Plane, Failure> {
        let topology = Topology::generate("single,2", None).map_err(Failure::usage)?;
        let mut network = Network::start(topology, "null, behind relays", &Options::default())?;
        let place = |part: &str, device: &str| Place {
            namespace: network.namespace(part),
            device: device.to_string(),
        };
        let link = [place(SWITCHES, "ctl0"), place(CONTROLLER, "eth0")];
        for end in &link {
            shaper::limit(end, settings.link_mbps, settings.link_queue_packets)?;
        }
        let failed = |e: io::Error| Failure::machine(format!("packets of h1: {e}"));
        let stage = Stage {
            source: Source::open(&network.namespace("h1"), "eth0").map_err(failed)?,
            channel: place(SWITCHES, "lo"),
            port: OPENFLOW_PORT,
            sink: place("h2", "eth0"),
        };
        make_certificates(&network.dir().join("pki"))?;
        start_controller(&mut network, settings.controller_ms)?;
        Ok(Plane {
            network,
            link,
            stage,
            has_relays: false,
            frame_bytes: settings.frame_bytes(),
            relay_mbps: settings.relay_mbps,
        })
    }

    /// Relays over a transport that schedule by a policy map, instead of those before; returns when
    /// packets get through.
    pub fn start_relays(
        &mut self,
        transport: Transport,
        policy: &Path,
        signals: &Signals,
    ) -> Result<(), Failure> {
        if std::mem::replace(&mut self.has_relays, true) {
            for role in RELAYS {
                self.network.kill(role)?;
            }
        }
        let pki = self.network.dir().join("pki");
        let rate = (self.relay_mbps).map(|mbps| format!("{:.0}", mbps * 1e6));
        for role in RELAYS {
            let log = self.network.open_log(&format!("{role}.log"))?;
            let part = if role == "relay-switch" {
                SWITCHES
            } else {
                CONTROLLER
            };
            self.network
                .spawn(role, Some(part), program::auster()?, |command| {
                    command.stderr(log);
                    relay_arguments(command, role, transport, policy, &pki);
                    command.args(rate.iter().flat_map(|rate| ["--rate", rate]));
                    if transport == Transport::Quic {
                        // A link of its own: the path need not be asked.
                        let guaranteed = rate.iter().flat_map(|r| ["--guaranteed-rate", r]);
                        command.args(guaranteed);
                    }
                })?;
        }
        let log = "relay-switch.log";
        wait_for_listener(&mut self.network, SWITCHES, OPENFLOW_PORT, log)?;
        // Setting it anew makes the switch dial at once, whatever back-off it is in, and forget
        // its entries.
        self.network.vsctl(&["del-controller", "s1"])?;
        set_controllers(&self.network, &format!("tcp:127.0.0.1:{OPENFLOW_PORT}"))?;
        ask_about_every_packet(&self.network)?;
        self.wait_until_through(signals)
    }

    fn wait_until_through(&mut self, signals: &Signals) -> Result<(), Failure> {
        let load = Load {
            run: 0,
            target_per_s: WARM_UP_PER_S,
            cross_per_s: 0.0,
            duration: WARM_UP,
            seed: 0,
            frame_bytes: self.frame_bytes,
            dscp: [0, 0],
            cross_port: None,
        };
        let deadline = Instant::now() + START_TIME_MAX;
        while Instant::now() < deadline {
            let trial = self.stage.run(&load, signals).map_err(Failure::machine)?;
            if trial.interrupted {
                return Err(Failure::negative("interrupted; the lab is removed"));
            }
            if trial.target.arrived == trial.target.sent {
                return Ok(());
            }
            if let Some(casualty) = self.network.casualty() {
                let words = RELAYS.map(|role| self.network.last_words(&format!("{role}.log")));
                return Err(Failure::machine(format!(
                    "{casualty}: {}",
                    words.join(" / ")
                )));
            }
        }
        let words = RELAYS.map(|role| self.network.last_words(&format!("{role}.log")));
        Err(Failure::machine(format!(
            "no packet comes through the relays; they say: {}",
            words.join(" / ")
        )))
    }

    /// A file of the lab, which goes with it.
    pub fn file(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.network.dir().join(name);
        std::fs::write(&path, text).map_err(|e| Failure::file(&path, e))?;
        Ok(path)
    }
}

/// Every UDP packet is a table miss that goes to the controller whole.
fn ask_about_every_packet(network: &Network) -> Result<(), Failure> {
    let socket = network.dir().join("s1.mgmt");
    let mut command = Command::new("ovs-ofctl");
    command
        .args(["-O", "OpenFlow13", "add-flow"])
        .arg(format!("unix:{}", socket.display()))
        .arg("priority=0,udp,actions=CONTROLLER:65535");
    program::run(command).map(drop)
}

fn start_controller(network: &mut Network, delay_ms: f64) -> Result<(), Failure> {
    let log = network.open_log("controller.log")?;
    network.spawn(
        "controller",
        Some(CONTROLLER),
        program::auster()?,
        |command| {
            let listen = format!("ptcp:{OPENFLOW_PORT}:127.0.0.1");
            command.args(["bench", "null", &listen, "--answer", "packet-out"]);
            command.args(["--out-port", "2", "--delay-ms", &delay_ms.to_string()]);
            command.stderr(log);
        },
    )?;
    wait_for_listener(network, CONTROLLER, OPENFLOW_PORT, "controller.log")
}

fn relay_arguments(
    command: &mut Command,
    role: &str,
    transport: Transport,
    policy: &Path,
    pki: &Path,
) {
    let dial = transport.scheme();
    let listen = format!("p{dial}");
    match role {
        "relay-switch" => {
            let bridges = format!("ptcp:{OPENFLOW_PORT}:127.0.0.1");
            let far = format!("{dial}:{CONTROLLER_ADDRESS}:{RELAY_PORT}");
            command.args(["relay", "switch", "--openflow", &bridges, "--connect", &far]);
            identity(command, pki, "switch");
        }
        _ => {
            let listen = format!("{listen}:{RELAY_PORT}:{CONTROLLER_ADDRESS}");
            let controller = format!("tcp:127.0.0.1:{OPENFLOW_PORT}");
            command.args(["relay", "controller", "--listen", &listen]);
            command.args(["--openflow", &controller]);
            identity(command, pki, "controller");
        }
    }
    command.arg("--policy").arg(policy);
}
