//! A topology made real: one Open vSwitch with a bridge per switch, a namespace per host.
//!
//! One ovs-vswitchd with the userspace datapath runs all bridges, in the lab's switch namespace, so
//! that interface names of two labs, or of the machine, cannot clash. The controller has its own
//! namespace, joined to the switches' by a link that can be impaired like any other. Everything is
//! recorded in the ledger before it is made; dropping a [`Network`] removes all of it.

use cli::program;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use openflow::Version;
use sim::link::LinkConfig;

use crate::ledger::{Ledger, Process};
use crate::link;
use crate::netns;
use crate::tools;
use crate::topology::{Attachment, Link, Topology};
use cli::failure::Failure;

/// The controller's address on the link to the switches, and the switches' own.
pub const CONTROLLER_ADDRESS: &str = "192.168.255.1";
pub const SWITCHES_ADDRESS: &str = "192.168.255.2";

/// Parts in the names of a lab's namespaces; the part of a host is its name.
pub const SWITCHES: &str = "sw";
pub const CONTROLLER: &str = "c";

/// The two ends of the link between switches and controller.
pub const CONTROLLER_DEVICE: &str = "eth0";
pub const SWITCHES_DEVICE: &str = "ctl0";

const SCHEMAS: [&str; 2] = [
    "/usr/share/openvswitch/vswitch.ovsschema",
    "/usr/local/share/openvswitch/vswitch.ovsschema",
];
const START_TIME_MAX: Duration = Duration::from_secs(20);
/// Pause between two checks of a condition that the lab waits for.
const WAIT_REST: Duration = Duration::from_millis(5);
const LINK_COUNTERS: &str = "links.json";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Join switches by OVS patch ports: cheap at scale, but OVS walks the whole path in one
    /// lookup, so there are no hops to measure.
    pub patch: bool,
    /// Seed of the impaired links' randomness.
    pub seed: u64,
    /// Link between switches and controller.
    pub control: LinkConfig,
    /// Bytes that each port of Open vSwitch may keep while its process does not run. `None` keeps
    /// the system's default, 92 frames: at 60 Mbit/s, 18 ms.
    pub port_buffer_bytes: Option<usize>,
    /// The version of OpenFlow that switches speak besides 1.3, the version that tools use.
    pub version: Option<Version>,
}

pub struct Network {
    pub topology: Topology,
    /// `None` only while the network is being taken down.
    ledger: Option<Ledger>,
    children: Vec<Child>,
    patch: bool,
}

impl Network {
    /// Brings a network up: switches without a controller, hosts with addresses, links up.
    ///
    /// # Errors
    /// A machine failure (exit code 3), in one line; everything made until then is removed.
    pub fn start(
        topology: Topology,
        controller: &str,
        options: &Options,
    ) -> Result<Network, Failure> {
        tools::require_network_tools()?;
        let ledger = Ledger::create(&topology.name, controller, topology.switches.len())?;
        let mut network = Network {
            topology,
            ledger: Some(ledger),
            children: Vec::new(),
            patch: options.patch,
        };
        network.make_namespaces()?;
        network.start_database()?;
        network.make_wires(options)?;
        network.start_link_relay(options)?;
        network.configure_hosts()?;
        network.start_switches(options)?;
        Ok(network)
    }

    pub fn ledger(&self) -> &Ledger {
        self.ledger
            .as_ref()
            .expect("a network has its ledger until it is dropped")
    }

    pub fn id(&self) -> &str {
        self.ledger().id()
    }

    pub fn dir(&self) -> PathBuf {
        self.ledger().dir()
    }

    pub fn namespace(&self, part: &str) -> String {
        self.ledger().namespace(part)
    }

    /// Starts a process of the lab in one of its namespaces, or in the machine's own.
    pub fn spawn(
        &mut self,
        role: &str,
        part: Option<&str>,
        program: impl AsRef<Path>,
        configure: impl FnOnce(&mut Command),
    ) -> Result<&mut Child, Failure> {
        let namespace = part.map(|part| self.namespace(part));
        let program = program.as_ref();
        let mut command = tools::lab_command(self.ledger(), namespace.as_deref(), program);
        configure(&mut command);
        let child = command
            .spawn()
            .map_err(|e| Failure::machine(format!("{}: {e}", program.display())))?;
        self.children.push(child);
        let child = self.children.last_mut().expect("just pushed");
        let ledger = self.ledger.as_mut().expect("see ledger()");
        ledger.note_process(role, child.id())?;
        Ok(child)
    }

    /// Ends the process of a role with SIGKILL: the process cannot log a last line, and does not
    /// count as a casualty.
    pub fn kill(&mut self, role: &str) -> Result<(), Failure> {
        self.end(role, Signal::SIGKILL)
    }

    /// Ends the process of a role with SIGTERM, and waits until it has ended.
    pub fn terminate(&mut self, role: &str) -> Result<(), Failure> {
        self.end(role, Signal::SIGTERM)
    }

    /// Sends the process of a role a signal that does not end it.
    pub fn signal(&self, role: &str, signal: Signal) -> Result<(), Failure> {
        self.process(role).map(|process| process.signal(signal))
    }

    /// The process id of a role.
    pub fn pid(&self, role: &str) -> Option<u32> {
        let process = self.process(role).ok()?;
        u32::try_from(process.pid).ok()
    }

    fn process(&self, role: &str) -> Result<Process, Failure> {
        let processes = &self.ledger().record.processes;
        let process = processes.iter().find(|process| process.role == role);
        process
            .cloned()
            .ok_or_else(|| Failure::usage(format!("no process of this lab has the role {role}")))
    }

    fn end(&mut self, role: &str, signal: Signal) -> Result<(), Failure> {
        let process = self.process(role)?;
        process.signal(signal);
        let place = self
            .children
            .iter()
            .position(|child| child.id() as i32 == process.pid);
        if let Some(place) = place {
            let _ = self.children.swap_remove(place).wait();
        }
        let ledger = self.ledger.as_mut().expect("see ledger()");
        ledger.forget_process(&process)
    }

    /// The first process of the lab that has ended although it should not have.
    pub fn casualty(&mut self) -> Option<String> {
        let ended = |child: &mut Child| match child.try_wait() {
            Ok(Some(status)) => Some((child.id(), status)),
            _ => None,
        };
        let (pid, status) = self.children.iter_mut().find_map(ended)?;
        let processes = &self.ledger().record.processes;
        let role = processes
            .iter()
            .find(|p| p.pid == pid as i32)
            .map(|p| p.role.as_str());
        Some(format!("{} ended ({status})", role.unwrap_or("a process")))
    }

    /// Waits until `holds` returns true. Fails with `late` after this time, and with the last line
    /// of `log` when a process of the lab ends.
    pub fn wait_until(
        &mut self,
        time: Duration,
        holds: impl Fn() -> Result<bool, Failure>,
        log: &str,
        late: &str,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + time;
        while !holds()? {
            if let Some(casualty) = self.casualty() {
                let said = self.last_words(log);
                return Err(Failure::machine(format!("{casualty}: {said}")));
            }
            if Instant::now() > deadline {
                return Err(Failure::machine(late));
            }
            std::thread::sleep(WAIT_REST);
        }
        Ok(())
    }

    /// Runs ovs-vsctl on the lab's database; without `--no-wait` it ends when the switch has
    /// applied the change.
    pub fn vsctl<S: AsRef<str>>(&self, arguments: &[S]) -> Result<String, Failure> {
        let mut command = Command::new("ovs-vsctl");
        command
            .arg(format!(
                "--db=unix:{}",
                self.dir().join("db.sock").display()
            ))
            .arg(format!("--timeout={}", START_TIME_MAX.as_secs()))
            .args(arguments.iter().map(AsRef::as_ref));
        program::run(command)
    }

    /// Takes a link between two switches down or up, at both ends, as a cut cable would.
    pub fn set_link(&self, a: &str, b: &str, up: bool) -> Result<(), Failure> {
        let link = self.topology.link_between(a, b).ok_or_else(|| {
            Failure::usage(format!("{} has no link {a} to {b}", self.topology.name))
        })?;
        if self.patch {
            return Err(Failure::usage(
                "a link of patch ports cannot be cut; leave out --patch",
            ));
        }
        let state = if up { "up" } else { "down" };
        let lines: Vec<String> = link
            .ends
            .iter()
            .map(|end| format!("link set {} {state}", device(&self.topology, *end)))
            .collect();
        program::ip_batch(Some(&self.namespace(SWITCHES)), &lines)
    }

    /// Gives each host the hardware address of every other. A host repeats an unanswered ARP
    /// request only after a second, which would hide what is measured.
    pub fn set_neighbours(&self) -> Result<(), Failure> {
        let hosts = &self.topology.hosts;
        hosts.iter().enumerate().try_for_each(|(own, host)| {
            let others = hosts.iter().enumerate().filter(|(n, _)| *n != own);
            let lines: Vec<String> = others
                .map(|(_, other)| {
                    let (ip, mac) = (other.address, other.mac);
                    format!("neigh replace {ip} lladdr {mac} dev eth0 nud permanent")
                })
                .collect();
            program::ip_batch(Some(&self.namespace(&host.name)), &lines)
        })
    }

    /// Leaves the network running after this process, for `auster lab down` to remove.
    pub fn release(mut self) -> Result<(), Failure> {
        self.ledger.as_mut().expect("see ledger()").release()?;
        // From here on this process removes no part of the network.
        self.ledger = None;
        self.children.clear();
        Ok(())
    }

    /// Takes the network down and returns the reports of the impaired links.
    pub fn stop(mut self) -> Vec<link::Report> {
        let processes = &self.ledger().record.processes;
        let relays: Vec<&Process> = processes.iter().filter(|p| p.role == "links").collect();
        relays
            .iter()
            .for_each(|process| process.signal(Signal::SIGTERM));
        let deadline = Instant::now() + Duration::from_secs(1);
        while relays.iter().any(|process| process.is_alive()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        let text = std::fs::read(self.dir().join(LINK_COUNTERS)).unwrap_or_default();
        self.take_down();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn take_down(&mut self) {
        if let Some(ledger) = self.ledger.take() {
            ledger.remove();
        }
        for mut child in self.children.drain(..) {
            let _ = child.wait();
        }
    }

    fn make_namespaces(&mut self) -> Result<(), Failure> {
        let hosts = self.topology.hosts.iter().map(|host| host.name.as_str());
        let names: Vec<String> = [SWITCHES, CONTROLLER]
            .into_iter()
            .chain(hosts)
            .map(|p| self.namespace(p))
            .collect();
        self.ledger
            .as_mut()
            .expect("see ledger()")
            .plan_namespaces(names.clone())?;
        let lines: Vec<String> = names
            .iter()
            .map(|name| format!("netns add {name}"))
            .collect();
        program::ip_batch(None, &lines)?;
        for name in &names {
            netns::silence_ipv6(name).map_err(|e| Failure::machine(format!("{name}: {e}")))?;
        }
        Ok(())
    }

    /// All wires, with the end at the switches first. Patch ports have no wires.
    fn wires(&self, options: &Options) -> Vec<Wire> {
        let switches = self.namespace(SWITCHES);
        let at = |end: Attachment| (switches.clone(), device(&self.topology, end));
        let wire = |a, b, impairment: &LinkConfig| Wire {
            ends: [a, b],
            impairment: impairment.clone(),
        };
        let hosts = self.topology.hosts.iter().map(|host| {
            let far = (self.namespace(&host.name), "eth0".to_string());
            wire(at(host.at), far, &host.impairment)
        });
        let links = self.topology.links.iter().filter(|_| !options.patch);
        let links = links.map(|link| {
            let [a, b] = link.ends.map(at);
            wire(a, b, &link.impairment)
        });
        let near = (switches.clone(), SWITCHES_DEVICE.to_string());
        let far = (self.namespace(CONTROLLER), CONTROLLER_DEVICE.to_string());
        let control = wire(near, far, &options.control);
        hosts.chain(links).chain([control]).collect()
    }

    /// Makes veth pairs for unimpaired wires; impaired wires are left to the relay.
    fn make_wires(&mut self, options: &Options) -> Result<(), Failure> {
        let switches = self.namespace(SWITCHES);
        let mut lines = vec!["link set lo up".to_string()];
        let mut devices = Vec::new();
        let wires = self.wires(options);
        for wire in wires.iter().filter(|wire| wire.impairment.is_wire()) {
            let [(_, near), (namespace, far)] = &wire.ends;
            lines.push(format!(
                "link add {near} type veth peer name {far} netns {namespace}"
            ));
            devices.extend(wire.devices_in(&switches));
        }
        lines.extend(up(&devices));
        program::ip_batch(Some(&switches), &lines)?;
        devices.retain(|device| device != SWITCHES_DEVICE);
        netns::disable_checksum_offload(&switches, &devices).map_err(Failure::machine)
    }

    /// Starts the one process that carries all impaired links, if there are any.
    fn start_link_relay(&mut self, options: &Options) -> Result<(), Failure> {
        let is_impaired = |link: &Link| !link.impairment.is_wire();
        if options.patch && self.topology.links.iter().any(is_impaired) {
            return Err(Failure::usage(
                "patch ports cannot be impaired; leave out --patch",
            ));
        }
        let switches = self.namespace(SWITCHES);
        let mut wires = self.wires(options);
        wires.retain(|wire| !wire.impairment.is_wire());
        if wires.is_empty() {
            return Ok(());
        }
        let links: Vec<String> = wires.iter().map(Wire::words).collect();
        let devices = wires.iter().flat_map(|wire| wire.devices_in(&switches));
        let lines = up(&devices.collect::<Vec<_>>());
        let counters = self.dir().join(LINK_COUNTERS);
        let log = self.open_log("links.log")?;
        let relay = self.spawn("links", None, program::laboratory()?, |command| {
            command
                .args([
                    "lab",
                    "link",
                    "--seed",
                    &options.seed.to_string(),
                    "--counters",
                ])
                .arg(counters)
                .args(&links)
                .stdout(Stdio::piped())
                .stderr(log);
        })?;
        let mut answer = String::new();
        if let Some(stdout) = relay.stdout.take() {
            let _ = BufReader::new(stdout).read_line(&mut answer);
        }
        if answer != "ready\n" {
            return Err(Failure::machine(format!(
                "the link relay did not start: {}",
                self.last_words("links.log")
            )));
        }
        program::ip_batch(Some(&switches), &lines)
    }

    fn configure_hosts(&mut self) -> Result<(), Failure> {
        for host in &self.topology.hosts {
            let lines = [
                "link set lo up".to_string(),
                format!("link set eth0 address {}", host.mac),
                format!("addr add {}/8 dev eth0", host.address),
                "link set eth0 up".to_string(),
            ];
            self.configure_end(&host.name, &lines)?;
        }
        let address = format!("addr add {CONTROLLER_ADDRESS}/30 dev eth0");
        let lines = [
            "link set lo up".to_string(),
            address,
            "link set eth0 up".to_string(),
        ];
        self.configure_end(CONTROLLER, &lines)
    }

    fn configure_end(&self, part: &str, lines: &[String]) -> Result<(), Failure> {
        let namespace = self.namespace(part);
        program::ip_batch(Some(&namespace), lines)?;
        netns::disable_checksum_offload(&namespace, &["eth0".to_string()])
            .map_err(|e| Failure::machine(format!("{namespace}: {e}")))
    }

    fn start_database(&mut self) -> Result<(), Failure> {
        let schema = SCHEMAS
            .into_iter()
            .find(|path| Path::new(path).exists())
            .ok_or_else(|| {
                Failure::machine(format!(
                    "{} not found: apt-get install openvswitch-switch",
                    SCHEMAS[0]
                ))
            })?;
        let dir = self.dir();
        let database = dir.join("conf.db");
        let mut create = Command::new("ovsdb-tool");
        create.arg("create").arg(&database).arg(schema);
        program::run(create)?;
        let socket = dir.join("db.sock");
        self.spawn("ovsdb-server", Some(SWITCHES), "ovsdb-server", |command| {
            command
                .arg(&database)
                .arg(format!("--remote=punix:{}", socket.display()))
                .arg("--remote=db:Open_vSwitch,Open_vSwitch,manager_options")
                .arg("--private-key=db:Open_vSwitch,SSL,private_key")
                .arg("--certificate=db:Open_vSwitch,SSL,certificate")
                .arg("--bootstrap-ca-cert=db:Open_vSwitch,SSL,ca_cert");
            daemon_arguments(command, &dir, "ovsdb-server");
        })?;
        let answers = || Ok(UnixStream::connect(&socket).is_ok());
        let late = "ovsdb-server does not answer";
        self.wait_until(START_TIME_MAX, answers, "ovsdb-server.log", late)?;
        self.vsctl(&["--no-wait", "init"]).map(drop)
    }

    fn start_switches(&mut self, options: &Options) -> Result<(), Failure> {
        let dir = self.dir();
        let socket = format!("unix:{}", dir.join("db.sock").display());
        self.spawn("ovs-vswitchd", Some(SWITCHES), "ovs-vswitchd", |command| {
            command.arg(socket);
            daemon_arguments(command, &dir, "ovs-vswitchd");
        })?;
        let arguments = self.bridge_arguments(options.version);
        self.vsctl(&arguments)?;
        let Some(bytes) = options.port_buffer_bytes else {
            return Ok(());
        };
        let process = self.children.last().expect("just started").id();
        netns::widen_packet_sockets(process, bytes)
            .map_err(|e| Failure::machine(format!("buffers of the switches' ports: {e}")))
    }

    /// Every bridge and port in one transaction.
    fn bridge_arguments(&self, version: Option<Version>) -> Vec<String> {
        let also = version.filter(|version| *version != Version::V13);
        let also = also.map(|version| format!(",OpenFlow{version}").replace('.', ""));
        let also = also.unwrap_or_default();
        let topology = &self.topology;
        let mut words: Vec<String> = Vec::new();
        let mut add = |line: String| {
            words.push("--".to_string());
            words.extend(line.split(' ').map(str::to_string));
        };
        for switch in &topology.switches {
            let name = &switch.name;
            add(format!("add-br {name}"));
            // In-band control would add hidden flow entries that search for the controller.
            add(format!(
                "set bridge {name} datapath_type=netdev protocols=OpenFlow13{also} \
                 fail_mode=secure other-config:disable-in-band=true other-config:datapath-id={}",
                switch.dpid
            ));
        }
        let host_ports = topology.hosts.iter().map(|host| (host.at, None));
        let link_ports = topology.links.iter().flat_map(|link| {
            let [a, b] = link.ends;
            [(a, Some(b)), (b, Some(a))]
        });
        for (at, peer) in host_ports.chain(link_ports) {
            let port = device(topology, at);
            add(format!(
                "add-port {} {port}",
                topology.switches[at.switch].name
            ));
            add(format!("set interface {port} ofport_request={}", at.port.0));
            if let Some(peer) = peer.filter(|_| self.patch) {
                let peer = device(topology, peer);
                add(format!(
                    "set interface {port} type=patch options:peer={peer}"
                ));
            }
        }
        words
    }

    /// Opens a process's log in the lab's directory; the process's successor appends to it.
    pub fn open_log(&self, name: &str) -> Result<File, Failure> {
        let path = self.dir().join(name);
        let file = File::options().create(true).append(true).open(&path);
        file.map_err(|e| Failure::file(path, e))
    }

    /// The last line a process wrote to its log.
    pub fn last_words(&self, log: &str) -> String {
        let text = std::fs::read_to_string(self.dir().join(log)).unwrap_or_default();
        text.lines()
            .last()
            .unwrap_or("its log is empty")
            .to_string()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.take_down();
    }
}

/// The interface of a port, as Mininet names it.
pub fn device(topology: &Topology, at: Attachment) -> String {
    format!("{}-eth{}", topology.switches[at.switch].name, at.port.0)
}

fn daemon_arguments(command: &mut Command, dir: &Path, name: &str) {
    command
        .arg(format!(
            "--unixctl={}",
            dir.join(name).with_extension("ctl").display()
        ))
        .arg(format!(
            "--log-file={}",
            dir.join(name).with_extension("log").display()
        ))
        .args(["-vconsole:off", "-vsyslog:off"])
        .current_dir(dir);
}

/// A link between two devices, each with its namespace.
struct Wire {
    ends: [(String, String); 2],
    impairment: LinkConfig,
}

impl Wire {
    fn devices_in(&self, namespace: &str) -> Vec<String> {
        let here = self.ends.iter().filter(|(part, _)| part == namespace);
        here.map(|(_, device)| device.clone()).collect()
    }

    /// The argument for this link on the link relay's command line.
    fn words(&self) -> String {
        let [a, b] = self
            .ends
            .each_ref()
            .map(|(part, device)| format!("{part}:{device}"));
        format!("{a}={b},{}", crate::impairment::words(&self.impairment))
    }
}

/// Lines that set the switches' devices up and give the device towards the controller its address.
fn up(devices: &[String]) -> Vec<String> {
    let address = format!("addr add {SWITCHES_ADDRESS}/30 dev {SWITCHES_DEVICE}");
    let is_control = devices.iter().any(|device| device == SWITCHES_DEVICE);
    let lines = devices.iter().map(|device| format!("link set {device} up"));
    is_control
        .then_some(address)
        .into_iter()
        .chain(lines)
        .collect()
}
