//! A switch, its controllers and what is between them, and what happens to that.

use cli::program;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use sim::link::LinkConfig;

use crate::reconnect::settings::{Cell, Event, Settings, Way};
use cli::failure::Failure;
use testbed::netns;
use testbed::network::{CONTROLLER, Network, Options, SWITCHES};
use testbed::plane::{
    identity, make_certificates_for, read_status, set_controllers, wait_for_listener,
};
use testbed::topology::Topology;

/// Three pairs of hosts at one switch.
const TOPOLOGY: &str = "single,6";
const SWITCH: &str = "s1";
/// The controllers' two addresses, and the switch's beside each; the last one is its new one.
const NEAR: &str = "172.30.1.1";
const OTHER: &str = "172.30.2.1";
const SWITCH_BY_NEAR: &str = "172.30.1.2/24";
const SWITCH_BY_OTHER: &str = "172.30.2.2/24";
const SWITCH_ANEW: &str = "172.30.1.3/24";
/// Of the first controller and its relay, and of the second.
const OPENFLOW_PORTS: [u16; 2] = [6653, 6663];
const RELAY_PORTS: [u16; 2] = [6654, 6664];
const CONTROLLERS: [&str; 2] = ["controller", "controller-2"];
const RELAYS: [&str; 2] = ["relay-controller", "relay-controller-2"];

pub struct Bed {
    pub network: Network,
    cell: Cell,
    down: Duration,
}

impl Bed {
    /// All is there, and the switch has been told where its controller is.
    pub fn start(settings: &Settings, cell: Cell) -> Result<Bed, Failure> {
        let topology = Topology::generate(TOPOLOGY, None).map_err(Failure::usage)?;
        let options = Options {
            control: LinkConfig {
                delay: Duration::from_secs_f64(settings.rtt_ms / 2.0 / 1e3),
                ..LinkConfig::default()
            },
            seed: u64::from(cell.run) + 1,
            ..Options::default()
        };
        let network = Network::start(topology, "auster", &options)?;
        let mut bed = Bed {
            network,
            cell,
            down: Duration::from_millis(settings.down_ms),
        };
        bed.ip(CONTROLLER, &format!("addr add {NEAR}/24 dev eth0"))?;
        bed.ip(CONTROLLER, &format!("addr add {OTHER}/24 dev eth0"))?;
        bed.ip(SWITCHES, &format!("addr add {SWITCH_BY_NEAR} dev ctl0"))?;
        bed.ip(SWITCHES, &format!("addr add {SWITCH_BY_OTHER} dev ctl0"))?;
        bed.network.set_neighbours()?;
        make_certificates_for(&bed.network.dir().join("pki"), NEAR)?;
        let count = if cell.event == Event::Rehome { 2 } else { 1 };
        for number in 0..count {
            bed.start_controller(number)?;
            let (port, log) = (
                OPENFLOW_PORTS[number],
                format!("{}.log", CONTROLLERS[number]),
            );
            wait_for_listener(&mut bed.network, CONTROLLER, port, &log)?;
            if cell.way.has_relays() {
                bed.start_controller_relay(number)?;
            }
        }
        bed.connect_switch()?;
        Ok(bed)
    }

    /// Does what the cell is about.
    pub fn act(&mut self) -> Result<(), Failure> {
        match (self.cell.event, self.cell.way) {
            (Event::ControllerRestart, _) => {
                self.network.kill(CONTROLLERS[0])?;
                std::thread::sleep(self.down);
                self.start_controller(0)
            }
            (Event::Rehome, Way::Quic | Way::Quic0Rtt) => self.network.terminate(RELAYS[0]),
            (Event::Rehome, Way::Ssl) => {
                set_controllers(&self.network, &ssl(NEAR, OPENFLOW_PORTS[1]))
            }
            (Event::Takeover, way) => {
                self.ip(CONTROLLER, &format!("addr del {NEAR}/24 dev eth0"))?;
                match way {
                    Way::Quic | Way::Quic0Rtt => Ok(()),
                    Way::Ssl => set_controllers(&self.network, &ssl(OTHER, OPENFLOW_PORTS[0])),
                }
            }
            (Event::AddressChange, _) => {
                self.ip(SWITCHES, &format!("addr del {SWITCH_BY_NEAR} dev ctl0"))?;
                self.ip(SWITCHES, &format!("addr add {SWITCH_ANEW} dev ctl0"))
            }
        }
    }

    /// Whether the first controller has the switch.
    pub fn is_connected(&self) -> bool {
        let status = read_status(&self.network.dir().join(status_name(0)));
        testbed::status::switch_count(status.as_ref()) == 1
    }

    /// Where the controllers say what they know.
    pub fn status_sockets(&self) -> Vec<PathBuf> {
        let dir = self.network.dir();
        (0..CONTROLLERS.len())
            .map(|number| dir.join(status_name(number)))
            .collect()
    }

    /// Of the switch's relay; `None` where there is none.
    pub fn relay_status(&self) -> Option<Value> {
        let mut status = read_status(&self.network.dir().join("relay.sock"))?;
        Some(status["relays"].get_mut(0)?.take())
    }

    /// The switch's connections to its controller or relay, by their own ports.
    pub fn sessions(&self) -> Result<BTreeSet<u16>, Failure> {
        let file = "/proc/thread-self/net/tcp";
        let namespace = self.network.namespace(SWITCHES);
        let table = netns::within(&namespace, || std::fs::read_to_string(file));
        let table = table.map_err(|e| Failure::machine(format!("TCP connections: {e}")))?;
        Ok(ports_to(&table, &OPENFLOW_PORTS))
    }

    /// What is in the flow table: by table, priority, match and actions.
    pub fn entries(&self) -> Result<BTreeSet<String>, Failure> {
        let socket = self.network.dir().join(format!("{SWITCH}.mgmt"));
        let mut command = std::process::Command::new("ovs-ofctl");
        command.args(["-O", "OpenFlow13", "dump-flows", "--no-stats"]);
        command.arg(format!("unix:{}", socket.display()));
        let text = program::run(command)?;
        Ok(text
            .lines()
            .filter(|l| l.contains("actions="))
            .map(entry)
            .collect())
    }

    pub fn check(&mut self) -> Result<(), Failure> {
        match self.network.casualty() {
            Some(casualty) => Err(Failure::machine(casualty)),
            None => Ok(()),
        }
    }

    fn ip(&self, part: &str, line: &str) -> Result<(), Failure> {
        program::ip_batch(Some(&self.network.namespace(part)), &[line.to_owned()])
    }

    fn start_controller(&mut self, number: usize) -> Result<(), Failure> {
        let (role, port) = (CONTROLLERS[number], OPENFLOW_PORTS[number]);
        let log = self.network.open_log(&format!("{role}.log"))?;
        let dir = self.network.dir();
        let way = self.cell.way;
        let configure = |command: &mut std::process::Command| {
            let listen = match way {
                Way::Quic | Way::Quic0Rtt => format!("ptcp:{port}:127.0.0.1"),
                Way::Ssl => format!("pssl:{port}:0.0.0.0"),
            };
            command.args(["run", "--listen", &listen, "--status"]);
            command.arg(dir.join(status_name(number))).stderr(log);
            if way == Way::Ssl {
                identity(command, &dir.join("pki"), "controller");
            }
        };
        let program = program::auster()?;
        self.network
            .spawn(role, Some(CONTROLLER), program, configure)?;
        Ok(())
    }

    fn start_controller_relay(&mut self, number: usize) -> Result<(), Failure> {
        let role = RELAYS[number];
        let log = self.network.open_log(&format!("{role}.log"))?;
        let pki = self.network.dir().join("pki");
        let way = self.cell.way;
        let configure = |command: &mut std::process::Command| {
            let listen = format!("pquic:{}:0.0.0.0", RELAY_PORTS[number]);
            let dial = format!("tcp:127.0.0.1:{}", OPENFLOW_PORTS[number]);
            command.args(["relay", "controller", "--listen", &listen]);
            command.args(["--openflow", &dial]).stderr(log);
            command.args(early_data(way));
            identity(command, &pki, "controller");
        };
        let program = program::auster()?;
        self.network
            .spawn(role, Some(CONTROLLER), program, configure)?;
        Ok(())
    }

    fn connect_switch(&mut self) -> Result<(), Failure> {
        let dir = self.network.dir();
        let pki = dir.join("pki");
        if self.cell.way == Way::Ssl {
            let file = |name: &str| pki.join(name).display().to_string();
            let [key, certificate, ca] = [
                file("switch-privkey.pem"),
                file("switch-cert.pem"),
                file("controllerca/cacert.pem"),
            ];
            self.network.vsctl(&["set-ssl", &key, &certificate, &ca])?;
            return set_controllers(&self.network, &ssl(NEAR, OPENFLOW_PORTS[0]));
        }
        let second = match self.cell.event {
            Event::Rehome => format!("quic:{NEAR}:{}", RELAY_PORTS[1]),
            _ => format!("quic:{OTHER}:{}", RELAY_PORTS[0]),
        };
        let log = self.network.open_log("relay-switch.log")?;
        let way = self.cell.way;
        let configure = |command: &mut std::process::Command| {
            let listen = format!("ptcp:{}:127.0.0.1", OPENFLOW_PORTS[0]);
            let first = format!("quic:{NEAR}:{}", RELAY_PORTS[0]);
            let database = format!("unix:{}", dir.join("db.sock").display());
            let status = format!("unix:{}", dir.join("relay.sock").display());
            command.args(["relay", "switch", "--openflow", &listen]);
            command.args(["--connect", &first, "--connect", &second]);
            command.args(["--ovsdb", &database, "--nudge", "--status", &status]);
            command.args(early_data(way));
            command.env("AUSTER_LOG", "info").stderr(log);
            identity(command, &pki, "switch");
        };
        let program = program::auster()?;
        self.network
            .spawn("relay-switch", Some(SWITCHES), program, configure)?;
        let port = OPENFLOW_PORTS[0];
        wait_for_listener(&mut self.network, SWITCHES, port, "relay-switch.log")?;
        set_controllers(&self.network, &format!("tcp:127.0.0.1:{port}"))
    }
}

fn early_data(way: Way) -> Option<&'static str> {
    (way == Way::Quic0Rtt).then_some("--early-data")
}

fn status_name(number: usize) -> String {
    format!("status-{number}.sock")
}

fn ssl(address: &str, port: u16) -> String {
    format!("ssl:{address}:{port}")
}

/// Own ports of established connections to one of `ports`, of the kernel's table.
fn ports_to(table: &str, ports: &[u16]) -> BTreeSet<u16> {
    let port = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
    let own = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (own, peer, state) = (fields.next()?, fields.next()?, fields.next()?);
        (state == "01" && ports.contains(&port(peer)?)).then(|| port(own))?
    };
    table.lines().filter_map(own).collect()
}

/// An entry without what a controller may renew: cookie, timeouts and importance.
fn entry(line: &str) -> String {
    let renewed = ["cookie=", "idle_timeout=", "hard_timeout=", "importance="];
    let is_kept = |field: &&str| !renewed.iter().any(|name| field.starts_with(name));
    let kept = line.trim().split(", ").filter(is_kept);
    kept.collect::<Vec<_>>().join(", ")
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
}
