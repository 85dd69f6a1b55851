//! The controller of a lab's switches and its transport: auster, another controller, or none.
//!
//! auster runs as a process of the lab in the controller's namespace. Over `tcp` and `tls` the
//! switches dial it; over `quic` a relay on each side carries their channel. The user's own
//! controller stays in the machine's own namespace. A byte forwarder stands in for it in the
//! controller's namespace, so that `tcp:127.0.0.1:6653` means the same as outside.

use cli::program;
use std::collections::BTreeSet;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cpu::last_core;
use crate::netns;
use crate::network::{
    CONTROLLER, CONTROLLER_ADDRESS, CONTROLLER_DEVICE, Network, SWITCHES, SWITCHES_DEVICE,
};
use crate::status::switch_count;
use crate::tools;
use crate::topology::Topology;
use cli::failure::Failure;

/// Where a lab's controller listens.
pub const OPENFLOW_PORT: u16 = 6653;
const RELAY_PORT: u16 = 6654;
/// The OpenFlow port of the standby controller.
const STANDBY_PORT: u16 = 6663;
const START_TIME_MAX: Duration = Duration::from_secs(10);
/// Time limit for a controller that already runs to accept a connection.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// Time limit for the switches to connect, on a machine that may be busy.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(120);
/// Some controllers run on a Java virtual machine and load their parts one by one.
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
    /// The keyword in Open vSwitch's connection methods.
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

/// The processes of auster's own control plane and their addresses.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    pub transport: Transport,
    /// Whether relays dial with early data (0-RTT).
    pub early_data: bool,
    /// The controller's addresses, at least one. For each, the switches have the next address.
    pub addresses: Vec<Ipv4Addr>,
    /// Whether a second controller, with its own relay, runs at the second address. Without it the
    /// one controller listens at all addresses.
    pub standby: bool,
    /// Whether the controller runs only on the machine's last core.
    pub on_last_core: bool,
}

impl Site {
    pub fn new(transport: Transport) -> Site {
        let address = CONTROLLER_ADDRESS.parse().expect("a constant");
        Site {
            transport,
            early_data: false,
            addresses: vec![address],
            standby: false,
            on_last_core: false,
        }
    }

    /// The address at which a controller or its relay listens for switches.
    fn listen_address(&self, standby: bool) -> Ipv4Addr {
        match (standby, self.standby || self.addresses.len() == 1) {
            (true, _) => self.addresses[self.addresses.len() - 1],
            (false, true) => self.addresses[0],
            (false, false) => Ipv4Addr::UNSPECIFIED,
        }
    }

    /// Gives both ends of the control link the addresses that a lab does not have by default.
    fn add_addresses(&self, network: &Network) -> Result<(), Failure> {
        for address in &self.addresses {
            if address.to_string() == CONTROLLER_ADDRESS {
                continue;
            }
            let beside = Ipv4Addr::from(u32::from(*address) + 1);
            for (part, address, device) in [
                (CONTROLLER, *address, CONTROLLER_DEVICE),
                (SWITCHES, beside, SWITCHES_DEVICE),
            ] {
                let line = format!("addr add {address}/24 dev {device}");
                program::ip_batch(Some(&network.namespace(part)), &[line])?;
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Controller {
    Auster(Site),
    /// `tcp:HOST:PORT`, reached from the machine's own namespace.
    External(net::method::Method),
    /// A program that a shell starts in the controller's namespace.
    Command {
        name: String,
        words: String,
    },
    /// Each switch learns by itself, as Open vSwitch does without a controller.
    Standalone,
}

impl Controller {
    /// Reads `auster`, `none`, a connection method, or a command with `{port}`, which may have a
    /// name before it: `NAME=COMMAND`.
    pub fn parse(text: &str, transport: Transport) -> Result<Controller, Failure> {
        match text {
            "auster" => Ok(Controller::Auster(Site::new(transport))),
            "none" => Ok(Controller::Standalone),
            command if command.contains("{port}") => Ok(Controller::command(command)),
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

    /// The two parts of a command `NAME=COMMAND` with `{port}`.
    pub fn named_command(text: &str) -> Option<(&str, &str)> {
        let is_plain = |name: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            !name.is_empty() && name.chars().all(allowed)
        };
        let (name, words) = text.split_once('=')?;
        (is_plain(name) && words.contains("{port}")).then_some((name, words))
    }

    fn command(text: &str) -> Controller {
        let named = Controller::named_command(text);
        let program = text.split_whitespace().find(|word| *word != "exec");
        let (name, words) = named.unwrap_or((program.unwrap_or(text), text));
        Controller::Command {
            name: name.to_string(),
            words: words.to_string(),
        }
    }

    /// The processes that a scenario can end and start again.
    pub fn parts(&self) -> Vec<Part> {
        let Controller::Auster(site) = self else {
            return Vec::new();
        };
        let has_relays = site.transport == Transport::Quic;
        let is_there = |part: &Part| match part {
            Part::Controller => true,
            Part::RelayController | Part::RelaySwitch => has_relays,
            Part::Standby => site.standby,
            Part::RelayStandby => site.standby && has_relays,
        };
        Part::ALL.into_iter().filter(is_there).collect()
    }

    /// Refuses a connection method at which no controller listens. The laboratory starts all other
    /// controllers.
    pub fn check_reachable(&self) -> Result<(), String> {
        let Controller::External(net::method::Method::Dial(_, host, port)) = self else {
            return Ok(());
        };
        let address = format!("{host}:{port}");
        let found = address.to_socket_addrs().and_then(|mut found| {
            let found = found.next().ok_or(io::ErrorKind::NotFound)?;
            TcpStream::connect_timeout(&found, ANSWER_TIME_MAX)
        });
        let problem = |e| format!("nobody answers there ({e}); start the controller first");
        found.map(drop).map_err(problem)
    }

    /// Checks that the controller can control this network, before anything is made.
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
            Controller::Auster(site) => {
                write!(f, "auster over {}", site.transport.name())?;
                f.write_str(if site.early_data { ", 0-RTT" } else { "" })
            }
            Controller::External(method) => write!(f, "{method}"),
            Controller::Command { name, .. } => write!(f, "{name}"),
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
    /// The second controller.
    Standby,
    /// The relay beside the second controller.
    RelayStandby,
}

impl Part {
    pub const ALL: [Part; 5] = [
        Part::Controller,
        Part::RelayController,
        Part::RelaySwitch,
        Part::Standby,
        Part::RelayStandby,
    ];

    /// The name in scenarios and in the ledger.
    pub fn role(self) -> &'static str {
        match self {
            Part::Controller => "controller",
            Part::RelayController => "relay-controller",
            Part::RelaySwitch => "relay-switch",
            Part::Standby => "standby",
            Part::RelayStandby => "relay-standby",
        }
    }
}

/// The control plane of a running network. Its processes belong to the network.
pub struct Plane {
    /// `None` for a controller that is not auster.
    site: Option<Site>,
    /// The lab's directory.
    dir: PathBuf,
    /// The network namespace of the switches.
    switches: String,
    bridges: Vec<String>,
}

/// Starts any controller with a shell, in the controller's namespace: `{address}` and `{port}` in
/// its words stand for its listening address and port.
fn start_command(network: &mut Network, words: &str) -> Result<Plane, Failure> {
    let port = OPENFLOW_PORT.to_string();
    let words = words.replace("{address}", CONTROLLER_ADDRESS);
    let words = words.replace("{port}", &port);
    let log = network.open_log("controller.log")?;
    let said = network.open_log("controller.log")?;
    let path = tools::path()?;
    network.spawn(Part::Controller.role(), Some(CONTROLLER), "sh", |command| {
        let command = command.args(["-c", &words]).env("PATH", path);
        command.stdout(said).stderr(log);
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
    Ok(Plane::of(network, None))
}

impl Plane {
    fn of(network: &Network, site: Option<Site>) -> Plane {
        let bridges = network.topology.switches.iter();
        Plane {
            site,
            dir: network.dir(),
            switches: network.namespace(SWITCHES),
            bridges: bridges.map(|switch| switch.name.clone()).collect(),
        }
    }

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
                Ok(Plane::of(network, None))
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
                Ok(Plane::of(network, None))
            }
            Controller::Command { words, .. } => start_command(network, words),
            Controller::Auster(site) => start_auster(network, site),
        }
    }

    /// The controller's status document; `None` when it cannot be read.
    pub fn status(&self) -> Option<Value> {
        let site = self.site.as_ref()?;
        let mut status = read_status(&status_socket(&self.dir, Part::Controller))?;
        // Behind relays the controller sees only the last hop, which is TCP.
        if site.transport == Transport::Quic {
            for switch in status["switches"].as_array_mut()? {
                switch["transport"] = "quic".into();
            }
        }
        Some(status)
    }

    /// The status documents of all controllers that can be read.
    pub fn statuses(&self) -> Vec<Value> {
        let has_standby = self.site.as_ref().is_some_and(|site| site.standby);
        let standby = has_standby
            .then(|| read_status(&status_socket(&self.dir, Part::Standby)))
            .flatten();
        self.status().into_iter().chain(standby).collect()
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

    /// The status of the relay beside the switches; `None` without one.
    pub fn relay_status(&self) -> Option<Value> {
        let mut status = read_status(&status_socket(&self.dir, Part::RelaySwitch))?;
        Some(status["relays"].get_mut(0)?.take())
    }

    pub fn has_status(&self) -> bool {
        self.site.is_some()
    }

    /// The switches' connections to a controller or relay: their own TCP ports.
    pub fn sessions(&self) -> io::Result<BTreeSet<u16>> {
        let file = "/proc/thread-self/net/tcp";
        let table = netns::within(&self.switches, || std::fs::read_to_string(file))?;
        Ok(ports_to(&table, &[OPENFLOW_PORT, STANDBY_PORT]))
    }

    /// A switch's management socket, separate from its controller.
    pub fn management_socket(&self, bridge: &str) -> PathBuf {
        self.dir.join(format!("{bridge}.mgmt"))
    }

    /// The entries of all flow tables: switch, table, priority, match and actions.
    pub fn entries(&self) -> Result<BTreeSet<String>, Failure> {
        let mut entries = BTreeSet::new();
        for bridge in &self.bridges {
            let socket = self.management_socket(bridge);
            let mut command = Command::new("ovs-ofctl");
            command.args(["-O", "OpenFlow13", "dump-flows", "--no-stats"]);
            command.arg(format!("unix:{}", socket.display()));
            let text = program::run(command)?;
            let lines = text.lines().filter(|line| line.contains("actions="));
            entries.extend(lines.map(|line| format!("{bridge}: {}", entry(line))));
        }
        Ok(entries)
    }

    /// Restarts a process that has ended, as it was first started, and does not wait for it.
    pub fn start_again(&self, network: &mut Network, part: Part) -> Result<(), Failure> {
        match &self.site {
            Some(site) => start_part(network, part, site),
            None => Err(Failure::usage("the controller is not auster's to start")),
        }
    }
}

/// The local ports of established connections to one of `ports`, from the kernel's table.
fn ports_to(table: &str, ports: &[u16]) -> BTreeSet<u16> {
    let port = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
    let own = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (own, peer, state) = (fields.next()?, fields.next()?, fields.next()?);
        (state == "01" && ports.contains(&port(peer)?)).then(|| port(own))?
    };
    table.lines().filter_map(own).collect()
}

/// An entry without the fields that a controller may renew: cookie, timeouts and importance.
fn entry(line: &str) -> String {
    let renewed = ["cookie=", "idle_timeout=", "hard_timeout=", "importance="];
    let is_kept = |field: &&str| !renewed.iter().any(|name| field.starts_with(name));
    let kept = line.trim().split(", ").filter(is_kept);
    kept.collect::<Vec<_>>().join(", ")
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

fn start_auster(network: &mut Network, site: &Site) -> Result<Plane, Failure> {
    let pki = network.dir().join("pki");
    site.add_addresses(network)?;
    let first = site.addresses[0];
    if site.transport != Transport::Tcp {
        make_certificates_for(&pki, &first.to_string())?;
    }
    start_part(network, Part::Controller, site)?;
    wait_for_listener(network, CONTROLLER, OPENFLOW_PORT, "controller.log")?;
    if site.standby {
        start_part(network, Part::Standby, site)?;
        wait_for_listener(network, CONTROLLER, STANDBY_PORT, "standby.log")?;
    }
    if has_queues(network) {
        start_keeper(network)?;
    }
    match site.transport {
        Transport::Tcp => set_controllers(network, &format!("tcp:{first}:{OPENFLOW_PORT}"))?,
        Transport::Tls => {
            set_ssl(network, &pki)?;
            set_controllers(network, &format!("ssl:{first}:{OPENFLOW_PORT}"))?;
        }
        Transport::Quic => {
            start_part(network, Part::RelayController, site)?;
            start_part(network, Part::RelaySwitch, site)?;
            wait_for_listener(network, SWITCHES, OPENFLOW_PORT, "relay-switch.log")?;
            set_controllers(network, &format!("tcp:127.0.0.1:{OPENFLOW_PORT}"))?;
            if site.standby {
                // The switches' relay stays with the first address that answers, and on a busy
                // machine that may be the second.
                wait_for_switches(network)?;
                start_part(network, Part::RelayStandby, site)?;
            }
        }
    }
    Ok(Plane::of(network, Some(site.clone())))
}

/// The status socket of a process.
pub fn status_socket(dir: &Path, part: Part) -> PathBuf {
    match part {
        Part::Controller => dir.join("status.sock"),
        other => dir.join(format!("{}.sock", other.role())),
    }
}

/// Whether auster's configuration asks for queues or policies.
fn has_queues(network: &Network) -> bool {
    let text = std::fs::read_to_string(config_file(network)).unwrap_or_default();
    let config = text.parse::<toml::Table>();
    config.is_ok_and(|config| config.contains_key("qos"))
}

fn database(network: &Network) -> String {
    format!("unix:{}", network.dir().join("db.sock").display())
}

/// Starts the process that makes the database's queues in the kernel.
fn start_keeper(network: &mut Network) -> Result<(), Failure> {
    let (log, database) = (network.open_log("keeper.log")?, database(network));
    let keeper = network.spawn("keeper", Some(SWITCHES), program::auster()?, |command| {
        command.args(["queues", "keep", "--db", &database]);
        command.stderr(log);
    });
    keeper.map(drop)
}

/// Starts one process. Over QUIC there is a relay beside the switches, one beside the controller,
/// and a QUIC connection between them.
fn start_part(network: &mut Network, part: Part, site: &Site) -> Result<(), Failure> {
    let dir = network.dir();
    let pki = dir.join("pki");
    let log = network.open_log(&format!("{}.log", part.role()))?;
    let namespace = match part {
        Part::RelaySwitch => SWITCHES,
        _ => CONTROLLER,
    };
    let standby = matches!(part, Part::Standby | Part::RelayStandby);
    let port = if standby { STANDBY_PORT } else { OPENFLOW_PORT };
    let address = site.listen_address(standby);
    let status = status_socket(&dir, part);
    let (config, database) = (config_file(network), database(network));
    let has_queues = has_queues(network);
    let configure = |command: &mut Command| {
        command.stderr(log);
        match part {
            Part::Controller | Part::Standby => {
                let listen = match site.transport {
                    Transport::Tcp => format!("ptcp:{port}:{address}"),
                    Transport::Tls => format!("pssl:{port}:{address}"),
                    Transport::Quic => format!("ptcp:{port}:127.0.0.1"),
                };
                command.args(["run", "--listen", &listen, "--status"]);
                command.arg(&status);
                if config.exists() {
                    command.arg("--config").arg(&config);
                }
                if has_queues {
                    command.args(["--ovsdb", &database]);
                }
                if site.transport == Transport::Tls {
                    identity(command, &pki, "controller");
                }
            }
            Part::RelayController | Part::RelayStandby => {
                let listen = format!("pquic:{RELAY_PORT}:{address}");
                let dial = format!("tcp:127.0.0.1:{port}");
                command.args(["relay", "controller", "--listen", &listen]);
                command.args(["--openflow", &dial]);
                identity(command, &pki, "controller");
            }
            Part::RelaySwitch => {
                let listen = format!("ptcp:{OPENFLOW_PORT}:127.0.0.1");
                command.args(["relay", "switch", "--openflow", &listen]);
                for address in &site.addresses {
                    command.args(["--connect", &format!("quic:{address}:{RELAY_PORT}")]);
                }
                let status = format!("unix:{}", status.display());
                command.args(["--ovsdb", &database, "--nudge", "--status", &status]);
                identity(command, &pki, "switch");
            }
        }
        let is_relay = !matches!(part, Part::Controller | Part::Standby);
        if site.early_data && is_relay {
            command.arg("--early-data");
        }
    };
    let (role, program) = (part.role(), program::auster()?);
    if !(site.on_last_core && part == Part::Controller) {
        return network
            .spawn(role, Some(namespace), program, configure)
            .map(drop);
    }
    // taskset replaces itself, so that the process is the controller's.
    let child = network.spawn(role, Some(namespace), "taskset", |command| {
        command.args(["-c", &last_core().to_string()]).arg(program);
        configure(command);
    });
    child.map(drop)
}

/// Makes authorities, and certificates of a controller at [`CONTROLLER_ADDRESS`] and of a switch.
pub fn make_certificates(pki: &Path) -> Result<(), Failure> {
    make_certificates_for(pki, CONTROLLER_ADDRESS)
}

/// [`make_certificates`] for a controller at another address.
fn make_certificates_for(pki: &Path, controller: &str) -> Result<(), Failure> {
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

/// Adds OVS's own flags: private key, certificate, and the authority that signs the other side.
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

/// Gives Open vSwitch the credentials of a switch.
pub fn set_ssl(network: &Network, pki: &Path) -> Result<(), Failure> {
    let files = [
        "switch-privkey.pem",
        "switch-cert.pem",
        "controllerca/cacert.pem",
    ];
    let [key, certificate, ca] = files.map(|name| pki.join(name).display().to_string());
    network.vsctl(&["set-ssl", &key, &certificate, &ca])?;
    Ok(())
}

/// Whether Open vSwitch can dial this: `tcp:HOST:PORT` or `ssl:HOST:PORT`.
pub fn is_target(text: &str) -> bool {
    use net::method::{Method, Transport};
    let parsed = text.parse();
    matches!(
        parsed,
        Ok(Method::Dial(Transport::Tcp | Transport::Tls, ..))
    )
}

/// Sets the controller of all switches at once. Open vSwitch's own maximum back-off of eight
/// seconds is for networks of thousands; set to one second, 3.1 redials after one to two.
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
/// `log` is the log of the process that should listen; if it does not, the log has the reason.
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
    // Read the socket table: a trial connection would look like a switch to the controller.
    let listening = format!(":{port:04X} ");
    let is_there = || {
        let table = netns::within(&namespace, || {
            let read = |table| std::fs::read_to_string(format!("/proc/thread-self/net/{table}"));
            // IPv6 listeners accept IPv4 connections too; without IPv6 there is no such table.
            Ok(read("tcp")? + &read("tcp6").unwrap_or_default())
        })
        .map_err(|e| Failure::machine(format!("{namespace}: {e}")))?;
        Ok(table.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let local = fields.next().unwrap_or_default();
            let state = fields.nth(1).unwrap_or_default();
            format!("{local} ").ends_with(&listening) && state == "0A"
        }))
    };
    let late = format!("nothing listens on port {port} of the lab");
    network.wait_until(time, is_there, log, &late)
}

/// Waits until all switches are connected to the first controller.
fn wait_for_switches(network: &mut Network) -> Result<(), Failure> {
    let socket = status_socket(&network.dir(), Part::Controller);
    let count = network.topology.switches.len();
    let are_there = || Ok(switch_count(read_status(&socket).as_ref()) == count);
    let late = "not all switches of the lab are connected to its controller";
    network.wait_until(CONNECT_TIME_MAX, are_there, "relay-controller.log", late)
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
        // If the controller is down, the switch notices: its connection closes, and it redials.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_established_connections_to_a_controllers_port() {
        let table = "  sl  local_address rem_address   st tx_queue\n\
            0: 0100007F:19FD 00000000:0000 0A 00000000:00000000\n\
            1: 0100007F:9C40 0100007F:19FD 01 00000000:00000000\n\
            2: 0100007F:19FD 0100007F:9C40 01 00000000:00000000\n\
            3: 0100007F:9C41 0100007F:19FD 04 00000000:00000000\n\
            4: 0201A8C0:9C42 0101A8C0:1A07 01 00000000:00000000\n";
        assert_eq!(ports_to(table, &[6653, 6663]), [40_000, 40_002].into());
        assert_eq!(ports_to(table, &[6653]), [40_000].into());
    }

    #[test]
    fn an_entry_is_the_same_after_its_timeouts_were_renewed() {
        let old = " cookie=0x1, idle_timeout=10, priority=7,ip,nw_dst=10.0.0.1 actions=output:1";
        let new = " cookie=0x2, idle_timeout=60, priority=7,ip,nw_dst=10.0.0.1 actions=output:1";
        assert_eq!(entry(old), entry(new));
        assert_ne!(entry(old), entry(&old.replace("output:1", "output:2")));
        let deeper = " cookie=0x1, table=1, priority=7,ip actions=drop";
        assert_eq!(entry(deeper), "table=1, priority=7,ip actions=drop");
    }

    #[test]
    fn one_controller_listens_everywhere_and_a_standby_at_the_second_address() {
        let [first, second] = ["172.30.1.1", "172.30.2.1"].map(|a| a.parse().unwrap());
        let mut site = Site::new(Transport::Quic);
        assert_eq!(site.listen_address(false).to_string(), CONTROLLER_ADDRESS);
        site.addresses = vec![first, second];
        assert_eq!(site.listen_address(false), Ipv4Addr::UNSPECIFIED);
        assert!(
            !Controller::Auster(site.clone())
                .parts()
                .contains(&Part::Standby)
        );
        site.standby = true;
        assert_eq!(
            [false, true].map(|s| site.listen_address(s)),
            [first, second]
        );
        assert_eq!(Controller::Auster(site.clone()).parts(), Part::ALL);
        site.transport = Transport::Tls;
        let parts = Controller::Auster(site).parts();
        assert_eq!(parts, [Part::Controller, Part::Standby]);
    }

    #[test]
    fn a_command_has_the_name_before_it_or_that_of_its_program() {
        let command = |text: &str| match Controller::parse(text, Transport::Tcp).unwrap() {
            Controller::Command { name, words } => (name, words),
            other => panic!("{other}"),
        };
        let pair = |name: &str, words: &str| (name.to_string(), words.to_string());
        let words = "exec ovs-testcontroller ptcp:{port}:{address}";
        assert_eq!(command(words), pair("ovs-testcontroller", words));
        assert_eq!(command(&format!("ovs={words}")), pair("ovs", words));
        let words = "env A=b own --port={port}";
        assert_eq!(command(words), pair("env", words));
        assert!(Controller::parse("own --port=6653", Transport::Tcp).is_err());
    }
}
