//! The controller of a lab's switches and its transport: auster, another controller, or none.
//!
//! auster runs as a process of the lab in the controller's namespace. Over `tcp` and `tls` the
//! switches dial it; over `quic` a relay on either side carries their channel. A controller of the
//! user's stays where it is, in the machine's own namespace, and a forwarder of bytes stands in for
//! it in the controller's, so that `tcp:127.0.0.1:6653` means what it means outside.

use cli::program;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::netns;
use crate::network::{CONTROLLER, CONTROLLER_ADDRESS, Network, SWITCHES};
use crate::topology::Topology;
use cli::failure::Failure;

const OPENFLOW_PORT: u16 = 6653;
const RELAY_PORT: u16 = 6654;
const START_TIME_MAX: Duration = Duration::from_secs(10);
/// Some are started by a Java machine and load their parts one by one.
const FOREIGN_START_TIME_MAX: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    Tcp,
    #[value(alias = "ssl")]
    Tls,
    Quic,
}

impl Transport {
    /// The word of Open vSwitch's connection methods.
    pub fn scheme(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Tls => "ssl",
            Transport::Quic => "quic",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Tls => "tls",
            Transport::Quic => "quic, by relays",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Controller {
    Auster(Transport),
    /// `tcp:HOST:PORT`, reached from the machine's own namespace.
    External(net::method::Method),
    /// Each switch learns by itself, as Open vSwitch does without a controller.
    Standalone,
}

impl Controller {
    /// Reads `auster`, `none` or a connection method.
    pub fn parse(text: &str, transport: Transport) -> Result<Controller, Failure> {
        match text {
            "auster" => Ok(Controller::Auster(transport)),
            "none" => Ok(Controller::Standalone),
            method => match method.parse::<net::method::Method>() {
                Ok(method @ net::method::Method::Dial(net::method::Transport::Tcp, ..)) => {
                    Ok(Controller::External(method))
                }
                Ok(_) => Err(Failure::usage(format!(
                    "--controller {method}: write auster, none or tcp:HOST:PORT"
                ))),
                Err(e) => Err(Failure::usage(format!("--controller {e}"))),
            },
        }
    }

    /// The processes that a scenario can kill and start again.
    pub fn parts(&self) -> &'static [Part] {
        match self {
            Controller::Auster(Transport::Quic) => {
                &[Part::Controller, Part::RelayController, Part::RelaySwitch]
            }
            Controller::Auster(_) => &[Part::Controller],
            _ => &[],
        }
    }

    /// Whether it can control such a network; asked before anything is made.
    pub fn check(&self, topology: &Topology) -> Result<(), Failure> {
        let has_loops = topology.links.len() >= topology.switches.len();
        if *self == Controller::Standalone && has_loops {
            return Err(Failure::usage(format!(
                "{} has loops, and switches without a controller would flood them: give another \
                 --controller",
                topology.name
            )));
        }
        Ok(())
    }
}

impl std::fmt::Display for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Controller::Auster(transport) => write!(f, "auster over {}", transport.name()),
            Controller::External(method) => write!(f, "{method}"),
            Controller::Standalone => write!(f, "none"),
        }
    }
}

/// A process of auster's own control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    Controller,
    /// The relay beside the controller.
    RelayController,
    /// The relay beside the switches.
    RelaySwitch,
}

impl Part {
    /// The name in scenarios and in the ledger.
    pub fn role(self) -> &'static str {
        match self {
            Part::Controller => "controller",
            Part::RelayController => "relay-controller",
            Part::RelaySwitch => "relay-switch",
        }
    }
}

/// The control plane of a running network. Its processes are the network's.
pub struct Plane {
    status: Option<PathBuf>,
    transport: Option<Transport>,
}

/// Starts any controller by a shell, in the controller's namespace: `{address}` and `{port}` of its
/// words are where it has to listen.
pub fn start_command(network: &mut Network, words: &str) -> Result<Plane, Failure> {
    let port = OPENFLOW_PORT.to_string();
    let words = words.replace("{address}", CONTROLLER_ADDRESS);
    let words = words.replace("{port}", &port);
    let log = network.open_log("controller.log")?;
    let said = network.open_log("controller.log")?;
    network.spawn(Part::Controller.role(), Some(CONTROLLER), "sh", |command| {
        command.args(["-c", &words]).stdout(said).stderr(log);
    })?;
    let log = "controller.log";
    wait_for_listener_within(
        FOREIGN_START_TIME_MAX,
        network,
        CONTROLLER,
        OPENFLOW_PORT,
        log,
    )?;
    set_controllers(
        network,
        &format!("tcp:{CONTROLLER_ADDRESS}:{OPENFLOW_PORT}"),
    )?;
    Ok(Plane {
        status: None,
        transport: None,
    })
}

impl Plane {
    pub fn start(network: &mut Network, controller: &Controller) -> Result<Plane, Failure> {
        match controller {
            Controller::Standalone => {
                let words: Vec<String> = network
                    .topology
                    .switches
                    .iter()
                    .flat_map(|s| {
                        ["--", "set-fail-mode", &s.name, "standalone"].map(str::to_string)
                    })
                    .collect();
                network.vsctl(&words)?;
                Ok(Plane {
                    status: None,
                    transport: None,
                })
            }
            Controller::External(method) => {
                let listen = format!("{CONTROLLER_ADDRESS}:{OPENFLOW_PORT}");
                let namespace = network.namespace(CONTROLLER);
                let log = network.open_log("forwarder.log")?;
                network.spawn("forwarder", None, program::laboratory()?, |command| {
                    command
                        .args(["lab", "forward", &namespace, &listen, &method.to_string()])
                        .stderr(log);
                })?;
                wait_for_listener(network, CONTROLLER, OPENFLOW_PORT, "forwarder.log")?;
                set_controllers(network, &format!("tcp:{listen}"))?;
                Ok(Plane {
                    status: None,
                    transport: None,
                })
            }
            Controller::Auster(transport) => start_auster(network, *transport),
        }
    }

    /// The controller's status document; `None` when it cannot be read.
    pub fn status(&self) -> Option<Value> {
        let mut status = read_status(self.status.as_ref()?)?;
        // Behind relays the controller sees the last step only, which is TCP.
        if self.transport == Some(Transport::Quic) {
            for switch in status["switches"].as_array_mut()? {
                switch["transport"] = "quic".into();
            }
        }
        Some(status)
    }

    pub fn has_status(&self) -> bool {
        self.status.is_some()
    }

    /// Changes one setting of auster's configuration file and has auster read it again.
    pub fn reconfigure(
        &self,
        network: &Network,
        key: &str,
        value: toml::Value,
    ) -> Result<(), Failure> {
        let file = config_file(network);
        let text = std::fs::read_to_string(&file).map_err(|e| Failure::file(&file, e))?;
        let mut config: toml::Table =
            toml::from_str(&text).map_err(|e| Failure::file(&file, e.message()))?;
        config.insert(key.to_string(), value);
        write_config(network, &config)?;
        network.signal(Part::Controller.role(), Signal::SIGHUP)
    }

    /// Starts a process again that was killed, as it was started first, and does not wait for it.
    pub fn start_again(&self, network: &mut Network, part: Part) -> Result<(), Failure> {
        match self.transport {
            Some(transport) => start_part(network, part, transport),
            None => Err(Failure::usage("the controller is not auster's to start")),
        }
    }
}

/// Reads a controller's status document from its status socket.
pub fn read_status(socket: &Path) -> Option<Value> {
    let mut text = Vec::new();
    let mut socket = UnixStream::connect(socket).ok()?;
    socket.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    socket.read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Writes the configuration file that auster reads when it starts.
pub fn write_config(network: &Network, config: &toml::Table) -> Result<PathBuf, Failure> {
    let file = config_file(network);
    let text = toml::to_string(config)
        .map_err(|e| Failure::usage(format!("the controller's configuration: {e}")))?;
    std::fs::write(&file, text).map_err(|e| Failure::file(&file, e))?;
    Ok(file)
}

fn config_file(network: &Network) -> PathBuf {
    network.dir().join("controller.toml")
}

fn start_auster(network: &mut Network, transport: Transport) -> Result<Plane, Failure> {
    let dir = network.dir();
    let pki = dir.join("pki");
    if transport != Transport::Tcp {
        make_certificates(&pki)?;
    }
    start_part(network, Part::Controller, transport)?;
    wait_for_listener(network, CONTROLLER, OPENFLOW_PORT, "controller.log")?;
    match transport {
        Transport::Tcp => {
            set_controllers(
                network,
                &format!("tcp:{CONTROLLER_ADDRESS}:{OPENFLOW_PORT}"),
            )?;
        }
        Transport::Tls => {
            let file = |name: &str| pki.join(name).display().to_string();
            let [key, certificate, ca] = [
                file("switch-privkey.pem"),
                file("switch-cert.pem"),
                file("controllerca/cacert.pem"),
            ];
            network.vsctl(&["set-ssl", &key, &certificate, &ca])?;
            set_controllers(
                network,
                &format!("ssl:{CONTROLLER_ADDRESS}:{OPENFLOW_PORT}"),
            )?;
        }
        Transport::Quic => {
            start_part(network, Part::RelayController, transport)?;
            start_part(network, Part::RelaySwitch, transport)?;
            wait_for_listener(network, SWITCHES, OPENFLOW_PORT, "relay-switch.log")?;
            set_controllers(network, &format!("tcp:127.0.0.1:{OPENFLOW_PORT}"))?;
        }
    }
    Ok(Plane {
        status: Some(status_socket(network)),
        transport: Some(transport),
    })
}

fn status_socket(network: &Network) -> PathBuf {
    network.dir().join("status.sock")
}

/// Starts one process. Over QUIC there is a relay beside the switches, one beside the controller,
/// and a QUIC connection between.
fn start_part(network: &mut Network, part: Part, transport: Transport) -> Result<(), Failure> {
    let dir = network.dir();
    let pki = dir.join("pki");
    let log = network.open_log(&format!("{}.log", part.role()))?;
    let namespace = match part {
        Part::Controller | Part::RelayController => CONTROLLER,
        Part::RelaySwitch => SWITCHES,
    };
    let status = status_socket(network);
    let config = config_file(network);
    let configure = |command: &mut Command| {
        command.stderr(log);
        match part {
            Part::Controller => {
                let listen = match transport {
                    Transport::Tcp => format!("ptcp:{OPENFLOW_PORT}:{CONTROLLER_ADDRESS}"),
                    Transport::Tls => format!("pssl:{OPENFLOW_PORT}:{CONTROLLER_ADDRESS}"),
                    Transport::Quic => format!("ptcp:{OPENFLOW_PORT}:127.0.0.1"),
                };
                command.args(["run", "--listen", &listen, "--status"]);
                command.arg(&status);
                if config.exists() {
                    command.arg("--config").arg(&config);
                }
                if transport == Transport::Tls {
                    identity(command, &pki, "controller");
                }
            }
            Part::RelayController => {
                let listen = format!("pquic:{RELAY_PORT}:{CONTROLLER_ADDRESS}");
                let dial = format!("tcp:127.0.0.1:{OPENFLOW_PORT}");
                command.args(["relay", "controller", "--listen", &listen]);
                command.args(["--openflow", &dial]);
                identity(command, &pki, "controller");
            }
            Part::RelaySwitch => {
                let listen = format!("ptcp:{OPENFLOW_PORT}:127.0.0.1");
                let dial = format!("quic:{CONTROLLER_ADDRESS}:{RELAY_PORT}");
                let database = format!("unix:{}", dir.join("db.sock").display());
                command.args(["relay", "switch", "--openflow", &listen]);
                command.args(["--connect", &dial, "--ovsdb", &database, "--nudge"]);
                identity(command, &pki, "switch");
            }
        }
    };
    network
        .spawn(part.role(), Some(namespace), program::auster()?, configure)
        .map(drop)
}

/// Authorities, and certificates of a controller at [`CONTROLLER_ADDRESS`] and of a switch.
pub fn make_certificates(pki: &Path) -> Result<(), Failure> {
    make_certificates_for(pki, CONTROLLER_ADDRESS)
}

/// [`make_certificates`] of a controller that is elsewhere.
pub fn make_certificates_for(pki: &Path, controller: &str) -> Result<(), Failure> {
    let host = ["--host", controller];
    for (words, more) in [
        (&["init"][..], &[][..]),
        (&["controller", "controller"], &host),
        (&["switch", "switch"], &[]),
    ] {
        let mut command = Command::new(program::auster()?);
        command
            .arg("pki")
            .args(words)
            .args(more)
            .arg("--dir")
            .arg(pki);
        if words != ["init"] {
            command.arg("--out").arg(pki);
        }
        program::run(command)?;
    }
    Ok(())
}

/// OVS's own flags: private key, certificate, and the authority that signs the other side.
pub fn identity(command: &mut Command, pki: &Path, name: &str) {
    let ca = if name == "switch" {
        "controllerca"
    } else {
        "switchca"
    };
    command
        .arg("-p")
        .arg(pki.join(format!("{name}-privkey.pem")))
        .arg("-c")
        .arg(pki.join(format!("{name}-cert.pem")))
        .arg("-C")
        .arg(pki.join(ca).join("cacert.pem"));
}

/// All switches at once. Open vSwitch's own maximal back-off of eight seconds is for networks of
/// thousands; asked for one, 3.1 dials again after one to two.
pub fn set_controllers(network: &Network, target: &str) -> Result<(), Failure> {
    let mut words = Vec::new();
    for switch in &network.topology.switches {
        let name = &switch.name;
        let line =
            format!("-- set-controller {name} {target} -- set controller {name} max-backoff=1000");
        words.extend(line.split(' ').map(str::to_string));
    }
    network.vsctl(&words).map(drop)
}

/// Waits until something listens on a TCP port of one of the lab's namespaces.
///
/// `log` is where whoever should listen says why it does not.
pub fn wait_for_listener(
    network: &mut Network,
    part: &str,
    port: u16,
    log: &str,
) -> Result<(), Failure> {
    wait_for_listener_within(START_TIME_MAX, network, part, port, log)
}

fn wait_for_listener_within(
    time: Duration,
    network: &mut Network,
    part: &str,
    port: u16,
    log: &str,
) -> Result<(), Failure> {
    let namespace = network.namespace(part);
    let deadline = Instant::now() + time;
    // From the socket table: a trial connection would look like a switch to the controller.
    let listening = format!(":{port:04X} ");
    loop {
        let table = netns::within(&namespace, || {
            let read = |table| std::fs::read_to_string(format!("/proc/thread-self/net/{table}"));
            // Those of IPv6 take IPv4's connections too; without IPv6 there is no such table.
            Ok(read("tcp")? + &read("tcp6").unwrap_or_default())
        })
        .map_err(|e| Failure::machine(format!("{namespace}: {e}")))?;
        let is_there = table.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let local = fields.next().unwrap_or_default();
            let state = fields.nth(1).unwrap_or_default();
            format!("{local} ").ends_with(&listening) && state == "0A"
        });
        if is_there {
            return Ok(());
        }
        if let Some(casualty) = network.casualty() {
            return Err(Failure::machine(format!(
                "{casualty}: {}",
                network.last_words(log)
            )));
        }
        if Instant::now() > deadline {
            return Err(Failure::machine(format!(
                "nothing listens on port {port} of the lab"
            )));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[derive(clap::Args)]
pub struct ForwardArgs {
    namespace: String,
    listen: SocketAddr,
    /// tcp:HOST:PORT
    to: net::method::Method,
}

pub fn forward(args: ForwardArgs) -> Result<(), Failure> {
    let net::method::Method::Dial(net::method::Transport::Tcp, host, port) = &args.to else {
        return Err(Failure::usage(format!(
            "{}: only tcp: is forwarded",
            args.to
        )));
    };
    let target = format!("{host}:{port}");
    let listener = netns::within(&args.namespace, || TcpListener::bind(args.listen))
        .map_err(|e| Failure::network(format!("{}: {e}", args.listen)))?;
    loop {
        let (switch, _) = listener
            .accept()
            .map_err(|e| Failure::network(format!("accept: {e}")))?;
        // A controller that is away is the switch's to notice: its connection closes, it redials.
        match TcpStream::connect(&target) {
            Ok(controller) => {
                if let Err(e) = join(switch, controller) {
                    tracing::debug!("forwarder: {e}");
                }
            }
            Err(e) => tracing::debug!("{target}: {e}"),
        }
    }
}

/// Copies in both directions, each in a thread that ends with its direction.
fn join(a: TcpStream, b: TcpStream) -> std::io::Result<()> {
    a.set_nodelay(true)?;
    b.set_nodelay(true)?;
    let (a2, b2) = (a.try_clone()?, b.try_clone()?);
    for (mut from, mut to) in [(a, b), (b2, a2)] {
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
    }
    Ok(())
}
