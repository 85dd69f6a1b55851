//! The network of an in-band experiment and one run on it.
//!
//! ```text
//!   h1 data ──┐                                   ┌── h5 data's sink
//!   h2 flows ─┤ s1 ════ shared, limited link ════ s2
//!   h3 sink ──┤                                   └── h6 relay and controller
//!   h4 relay ─┘
//!    └─ wire of its own to s1's OpenFlow
//! ```
//!
//! Every packet of h2 is a table miss at s1. Its PACKET_IN goes to the relay in h4 over a wire that
//! nothing else uses, from there through s1, the shared link and s2 to the controller, and is
//! answered by one PACKET_OUT to h3 by the same path back. What passes the relay's wire is seen, so
//! that the delay is that of relays, shared link and controller, and of nothing else.

use cli::program;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use ovsdb::vswitch::qos::Owner;
use sched::TrafficType;
use sched::policy::PolicyMap;
use serde::Serialize;

use crate::pso::channel::ChannelListener;
use crate::pso::in_band::probe;
use crate::pso::in_band::settings::InBand;
use crate::pso::in_band::wire::{
    self, Counts, RUN_DATA, RUN_FLOWS, RUN_HOSTILE, RUN_MARKED, RUNS_PER_TRIAL, WireListener,
};
use crate::pso::packet::Stream;
use crate::pso::sink::SinkListener;
use crate::pso::source::{Load, Sending, Source};
use crate::pso::trial::{Fate, fate};
use auster::queues::flows::{self, Steering, Tunnel};
use auster::queues::plan::{Plan, Rate};
use auster::queues::tc::{self, Interface, State};
use cli::failure::Failure;
use cli::signals::Signals;
use testbed::capture::Capture;
use testbed::network::{Network, Options, SWITCHES, device};
use testbed::plane::{identity, make_certificates_for, wait_for_listener};
use testbed::topology::Topology;

const OPENFLOW_PORT: u16 = 6653;
pub const RELAY_PORT: u16 = 6654;
/// Between s1 and its relay.
const WIRE: &str = "ofp0";
const WIRE_SWITCH: &str = "192.168.254.2";
const WIRE_RELAY: &str = "192.168.254.1";
const RELAYS: [&str; 2] = ["relay-controller", "relay-switch"];
/// Ports are dealt in the order in which hosts and links are added.
const S1_PORTS: [(&str, u32); 5] = [
    ("data", 1),
    ("flows", 2),
    ("sink", 3),
    ("relay", 4),
    ("link", 5),
];
const S2_PORTS: [(&str, u32); 3] = [("sink", 1), ("controller", 2), ("link", 3)];

/// From the start of the relays until packets come through.
const START_TIME_MAX: Duration = Duration::from_secs(15);
const WARM_UP: Duration = Duration::from_millis(200);
const WARM_UP_PER_S: f64 = 200.0;
/// Data begins so long before the flows and ends so long after them.
const DATA_MARGIN: Duration = Duration::from_millis(300);
/// A run is over when nothing was seen for so long.
const SILENCE: Duration = Duration::from_millis(300);
const DRAIN_MAX: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub struct Stage {
    pub network: Network,
    settings: InBand,
    plan: Plan,
    seed: u64,
    flows: Source,
    data: Source,
    trial: u32,
}

/// The results of one run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Trial {
    pub has_queues: bool,
    pub data_load: f64,
    pub target: Fate,
    pub cross: Fate,
    pub data: Data,
    /// From s1 to s2, and back.
    #[serde(skip)]
    pub wire: [Counts; 2],
    /// The queues at the interface of s1 to the shared link.
    pub queues: Option<State>,
    /// The most that a packet was sent after it was due.
    pub sender_late_ms: f64,
    /// Frames or segments that were there and not seen; the figures are whole if this is 0.
    pub unseen: u64,
    #[serde(skip)]
    pub interrupted: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Data {
    pub sent: u32,
    pub arrived: u32,
}

impl Trial {
    pub fn openflow_lost(&self) -> u32 {
        self.target.lost() + self.cross.lost()
    }

    pub fn openflow_asked(&self) -> u32 {
        self.target.asked + self.cross.asked
    }

    /// The hop delays of all messages, from PACKET_IN to PACKET_OUT.
    pub fn hop_ms(&self) -> Vec<f64> {
        [self.target.hop_ms.as_slice(), &self.cross.hop_ms].concat()
    }
}

impl Stage {
    /// Switches, hosts, flows, relays and controller; returns when packets get through.
    pub fn start(
        settings: &InBand,
        seed: u64,
        map: &PolicyMap,
        policy: &Path,
        signals: &Signals,
    ) -> Result<Stage, Failure> {
        let plan = auster::queues::plan(map, Rate(settings.link_bps()))?;
        let mut network = Network::start(topology(), "null, behind relays", &Options::default())?;
        let failed = |e: io::Error| Failure::machine(format!("sender of packets: {e}"));
        let source = |host| Source::open(&network.namespace(host), "eth0").map_err(failed);
        let (data, flows) = (source("h1")?, source("h2")?);
        join_relay(&network)?;
        make_certificates_for(&network.dir().join("pki"), &address(&network, "h6"))?;
        // Before the flows: a bridge that gets its first controller forgets them.
        let target = format!("tcp:{WIRE_RELAY}:{OPENFLOW_PORT}");
        network.vsctl(&["set-controller", "s1", &target])?;
        // What Open vSwitch dials in vain it dials again within two seconds.
        network.vsctl(&["set", "controller", "s1", "max-backoff=1000"])?;
        set_flows(&network, map, settings)?;
        // Relays without a map mark nothing.
        start_control(
            &mut network,
            settings.tunnel_dscp.is_none().then_some(policy),
        )?;
        let mut stage = Stage {
            network,
            settings: settings.clone(),
            plan,
            seed,
            flows,
            data,
            trial: 0,
        };
        stage.set_queues(false)?;
        stage.wait_until_through(signals)?;
        Ok(stage)
    }

    /// The link with auster's queues at both ends, or as a plain one of the same rate.
    pub fn set_queues(&self, on: bool) -> Result<(), Failure> {
        let namespace = self.network.namespace(SWITCHES);
        for name in self.link_ends() {
            let interface = Interface {
                namespace: Some(&namespace),
                name: &name,
            };
            // Whichever of the two was there.
            let _ = program::tc(Some(&namespace), &["qdisc", "del", "dev", &name, "root"]);
            match on {
                true => interface.set(Owner::Command, &self.plan).map(drop)?,
                false => self.limit(&namespace, &name)?,
            }
        }
        Ok(())
    }

    /// Offers data and new flows together, and waits until the last message is through.
    pub fn run(
        &mut self,
        data_load: f64,
        has_queues: bool,
        signals: &Signals,
    ) -> Result<Trial, Failure> {
        self.set_queues(has_queues)?;
        self.trial += 1;
        let failed = |e: io::Error| Failure::machine(format!("a run: {e}"));
        let mut trial = self.offer(data_load, signals).map_err(failed)?;
        trial.has_queues = has_queues;
        trial.data_load = data_load;
        let namespace = self.network.namespace(SWITCHES);
        let [name, _] = self.link_ends();
        trial.queues = Interface {
            namespace: Some(&namespace),
            name: &name,
        }
        .state()?;
        if let Some(casualty) = self.network.casualty() {
            return Err(Failure::machine(format!(
                "{casualty}: {}",
                self.last_words()
            )));
        }
        Ok(trial)
    }

    fn offer(&self, data_load: f64, signals: &Signals) -> io::Result<Trial> {
        let settings = &self.settings;
        let namespace = |part: &str| self.network.namespace(part);
        let switches = namespace(SWITCHES);
        let channel =
            Capture::open_both_ways(&switches, WIRE, ChannelListener::new(OPENFLOW_PORT))?;
        let sink = Capture::open(&namespace("h3"), "eth0", SinkListener::default())?;
        let data_sink = Capture::open(&namespace("h5"), "eth0", SinkListener::default())?;
        // What s2 receives is what has left the queues of s1.
        let [s1, s2] = self.link_ends();
        let wires = [
            Capture::open(&switches, &s2, WireListener::new(RELAY_PORT))?,
            Capture::open(&switches, &s1, WireListener::new(RELAY_PORT))?,
        ];
        let data = self.start_data(data_load)?;
        let mut interrupted = signals.wait(DATA_MARGIN);
        let cross_per_s = (settings.messages_per_s() - settings.target_per_s).max(0.0);
        let flows = self.flows.start(self.load(RUN_FLOWS, cross_per_s, |load| {
            load.target_per_s = settings.target_per_s;
            load.duration = settings.run_duration();
            load.frame_bytes = settings.flow_frame_bytes();
        }))?;
        while !flows.is_over() && !interrupted {
            interrupted = signals.wait(POLL_INTERVAL);
        }
        let flows = flows.stop()?;
        interrupted |= signals.wait(DATA_MARGIN);
        let data: Vec<_> = data
            .into_iter()
            .map(Sending::stop)
            .collect::<Result<_, _>>()?;
        let ended = Instant::now();
        let (mut heard, mut quiet_since) = (0, ended);
        while quiet_since.elapsed() < SILENCE && ended.elapsed() < DRAIN_MAX && !interrupted {
            interrupted = signals.wait(POLL_INTERVAL);
            let now = channel.heard() + sink.heard() + data_sink.heard();
            if now > heard {
                (heard, quiet_since) = (now, Instant::now());
            }
        }
        let (channel, channel_missed) = channel.close()?;
        let (sink, sink_missed) = sink.close()?;
        let (data_sink, data_missed) = data_sink.close()?;
        let mut wire: [Counts; 2] = Default::default();
        let mut wire_missed = 0;
        for (capture, counts) in wires.into_iter().zip(&mut wire) {
            let (listener, missed) = capture.close()?;
            *counts = listener.counts;
            wire_missed += missed;
        }
        let run = self.trial * RUNS_PER_TRIAL;
        let of_trial = |run: u32| run / RUNS_PER_TRIAL == self.trial;
        let arrived = data_sink
            .arrivals
            .iter()
            .filter(|a| of_trial(a.label.run))
            .count();
        let late = data
            .iter()
            .map(|sent| sent.late_max)
            .max()
            .unwrap_or_default();
        let fate = |stream, count| fate(run, stream, count, &channel, &sink);
        Ok(Trial {
            target: fate(Stream::Target, flows.target),
            cross: fate(Stream::Cross, flows.cross),
            data: Data {
                sent: data.iter().map(|sent| sent.cross).sum(),
                arrived: arrived as u32,
            },
            wire,
            sender_late_ms: late.max(flows.late_max).as_secs_f64() * 1e3,
            unseen: channel_missed + sink_missed + data_missed + wire_missed + channel.gaps(),
            interrupted,
            ..Trial::default()
        })
    }

    /// The frames on the link while only messages of one class are sent.
    pub fn probe(&self, class: TrafficType) -> io::Result<[Counts; 2]> {
        let switches = self.network.namespace(SWITCHES);
        let [s1, s2] = self.link_ends();
        let wires = [
            Capture::open(&switches, &s2, WireListener::new(RELAY_PORT))?,
            Capture::open(&switches, &s1, WireListener::new(RELAY_PORT))?,
        ];
        let relay = (
            WIRE_RELAY.parse::<IpAddr>().map_err(io::Error::other)?,
            OPENFLOW_PORT,
        );
        probe::send(&self.network.namespace("h4"), relay.into(), class)?;
        let mut seen: [Counts; 2] = Default::default();
        for (capture, counts) in wires.into_iter().zip(&mut seen) {
            *counts = capture.close()?.0.counts;
        }
        Ok(seen)
    }

    /// Plain data, and what bears code points of its own or of control.
    fn start_data(&self, data_load: f64) -> io::Result<Vec<Sending>> {
        let settings = &self.settings;
        let plain = 1.0 - settings.marked_share - settings.hostile_share;
        let parts = [
            (RUN_DATA, plain, 0),
            (RUN_MARKED, settings.marked_share, settings.marked_dscp),
            (RUN_HOSTILE, settings.hostile_share, settings.hostile_dscp),
        ];
        let offered = parts.iter().filter(|(_, share, _)| share * data_load > 0.0);
        offered
            .map(|(run, share, dscp)| {
                let per_s = settings.data_per_s(data_load * share);
                self.data.start(self.load(*run, per_s, |load| {
                    load.dscp = [*dscp; 2];
                    load.frame_bytes = settings.data_bytes;
                    load.cross_port = Some(DATA_PORT);
                    // Stopped when the flows are through.
                    load.duration = settings.run_duration() + 4 * DATA_MARGIN;
                }))
            })
            .collect()
    }

    fn load(&self, run: u32, cross_per_s: f64, change: impl FnOnce(&mut Load)) -> Load {
        let run = self.trial * RUNS_PER_TRIAL + run;
        let mut load = Load {
            run,
            target_per_s: 0.0,
            cross_per_s,
            duration: WARM_UP,
            seed: self.seed << 32 | u64::from(run),
            frame_bytes: self.settings.flow_frame_bytes(),
            dscp: [0, 0],
            cross_port: None,
        };
        change(&mut load);
        load
    }

    fn wait_until_through(&mut self, signals: &Signals) -> Result<(), Failure> {
        let target_per_s = std::mem::replace(&mut self.settings.target_per_s, WARM_UP_PER_S);
        let share = std::mem::replace(&mut self.settings.openflow_share, 0.0);
        let run_s = std::mem::replace(&mut self.settings.run_s, WARM_UP.as_secs_f64());
        let deadline = Instant::now() + START_TIME_MAX;
        let mut through = false;
        while !through && Instant::now() < deadline {
            let trial = self.run(0.0, false, signals)?;
            if trial.interrupted {
                return Err(Failure::negative("interrupted; the lab is removed"));
            }
            through = trial.target.arrived == trial.target.sent;
        }
        self.settings.target_per_s = target_per_s;
        self.settings.openflow_share = share;
        self.settings.run_s = run_s;
        match through {
            true => Ok(()),
            false => Err(Failure::machine(format!(
                "no packet comes through the relays; they say: {}",
                self.last_words()
            ))),
        }
    }

    fn last_words(&self) -> String {
        RELAYS
            .map(|role| self.network.last_words(&format!("{role}.log")))
            .join(" / ")
    }

    /// The interfaces of s1 and s2 on the shared link.
    fn link_ends(&self) -> [String; 2] {
        let topology = &self.network.topology;
        topology.links[0].ends.map(|end| device(topology, end))
    }

    /// One queue of the link's rate: what a link is without queues.
    fn limit(&self, namespace: &str, name: &str) -> Result<(), Failure> {
        let bits = self.settings.link_bps();
        // As the queues have it, so that the link is the same.
        let burst = tc::burst_bytes(Rate(bits));
        program::tc_batch(
            Some(namespace),
            &[
                format!("qdisc add dev {name} root handle 1: htb default 1"),
                format!(
                    "class add dev {name} parent 1: classid 1:1 htb rate {bits}bit ceil {bits}bit \
                     burst {burst} cburst {burst} quantum 1514"
                ),
                format!(
                    "qdisc add dev {name} parent 1:1 pfifo limit {}",
                    self.settings.fifo_packets
                ),
            ],
        )
    }
}

/// The destination port of data.
const DATA_PORT: u16 = 9;

fn topology() -> Topology {
    let mut topology = Topology::new("in-band");
    let (s1, s2) = (topology.add_switch(), topology.add_switch());
    for switch in [s1, s1, s1, s1, s2, s2] {
        topology.add_host(switch);
    }
    topology.add_link(s1, s2);
    topology
}

/// The wire between s1's OpenFlow and its relay, in h4.
fn join_relay(network: &Network) -> Result<(), Failure> {
    let relay = network.namespace("h4");
    let switches = network.namespace(SWITCHES);
    program::ip_batch(
        Some(&switches),
        &[
            format!("link add {WIRE} type veth peer name {WIRE} netns {relay}"),
            format!("addr add {WIRE_SWITCH}/30 dev {WIRE}"),
            format!("link set {WIRE} up"),
        ],
    )?;
    program::ip_batch(
        Some(&relay),
        &[
            format!("addr add {WIRE_RELAY}/30 dev {WIRE}"),
            format!("link set {WIRE} up"),
        ],
    )
}

/// All of them before any controller: the tunnel, what is taken from data, and where data goes.
fn set_flows(network: &Network, map: &PolicyMap, settings: &InBand) -> Result<(), Failure> {
    let controller = address(network, "h6")
        .parse()
        .expect("an address of the lab");
    let port = |ports: &[(&str, u32)], name: &str| {
        let found = ports.iter().find(|(known, _)| *known == name);
        found.map_or(0, |(_, port)| *port).to_string()
    };
    let s1 = |name: &str| port(&S1_PORTS, name);
    let s2 = |name: &str| port(&S2_PORTS, name);
    let tunnel = |switch_port, controller_port| Tunnel {
        switch_port,
        controller_port,
        controller,
        controller_l4_port: RELAY_PORT,
        relay: None,
        mark: settings.tunnel_dscp,
    };
    let steering = Steering {
        edges: vec![s1("data"), s1("flows")],
        tunnels: vec![tunnel(s1("relay"), s1("link"))],
    };
    let mut lines = flows::lines(map, &steering, None);
    let (data, link) = (s1("data"), s1("link"));
    lines.push(format!(
        "priority=10,in_port={data},udp,actions=output:{link}"
    ));
    let flows_port = s1("flows");
    lines.push(format!(
        "priority=0,in_port={flows_port},udp,actions=CONTROLLER:65535"
    ));
    add_flows(network, "s1", &lines)?;

    let steering = Steering {
        edges: vec![],
        tunnels: vec![tunnel(s2("link"), s2("controller"))],
    };
    let mut lines = flows::lines(map, &steering, None);
    let (link, sink) = (s2("link"), s2("sink"));
    lines.push(format!(
        "priority=10,in_port={link},udp,actions=output:{sink}"
    ));
    add_flows(network, "s2", &lines)
}

fn add_flows(network: &Network, bridge: &str, lines: &[String]) -> Result<(), Failure> {
    let file = network.dir().join(format!("{bridge}.flows"));
    std::fs::write(&file, lines.join("\n") + "\n").map_err(|e| Failure::file(&file, e))?;
    let socket = network.dir().join(format!("{bridge}.mgmt"));
    let mut command = std::process::Command::new("ovs-ofctl");
    command.args(["-O", "OpenFlow13", "add-flows"]);
    command.arg(format!("unix:{}", socket.display())).arg(&file);
    program::run(command).map(drop)
}

/// Controller and relays, and s1 pointed at its own.
fn start_control(network: &mut Network, policy: Option<&Path>) -> Result<(), Failure> {
    let log = network.open_log("controller.log")?;
    network.spawn("controller", Some("h6"), program::auster()?, |command| {
        let listen = format!("ptcp:{OPENFLOW_PORT}:127.0.0.1");
        command.args(["bench", "null", &listen, "--answer", "packet-out"]);
        let (_, sink) = S1_PORTS[2];
        command.args(["--out-port", &sink.to_string()]).stderr(log);
    })?;
    wait_for_listener(network, "h6", OPENFLOW_PORT, "controller.log")?;
    let pki = network.dir().join("pki");
    let far = address(network, "h6");
    let policy = policy.map(Path::to_owned);
    for (role, part) in RELAYS.into_iter().zip(["h6", "h4"]) {
        let log = network.open_log(&format!("{role}.log"))?;
        network.spawn(role, Some(part), program::auster()?, |command| {
            command.stderr(log);
            match role {
                "relay-switch" => {
                    let bridges = format!("ptcp:{OPENFLOW_PORT}:{WIRE_RELAY}");
                    let far = format!("quic:{far}:{RELAY_PORT}");
                    command.args(["relay", "switch", "--openflow", &bridges, "--connect", &far]);
                    identity(command, &pki, "switch");
                }
                _ => {
                    let listen = format!("pquic:{RELAY_PORT}:{far}");
                    let controller = format!("tcp:127.0.0.1:{OPENFLOW_PORT}");
                    command.args(["relay", "controller", "--listen", &listen]);
                    command.args(["--openflow", &controller]);
                    identity(command, &pki, "controller");
                }
            }
            if let Some(policy) = &policy {
                command.arg("--policy").arg(policy);
            }
        })?;
    }
    wait_for_listener(network, "h4", OPENFLOW_PORT, "relay-switch.log")?;
    let target = format!("tcp:{WIRE_RELAY}:{OPENFLOW_PORT}");
    network.vsctl(&["set-controller", "s1", &target]).map(drop)
}

fn address(network: &Network, host: &str) -> String {
    let hosts = &network.topology.hosts;
    let found = hosts.iter().find(|known| known.name == host);
    found.map_or_else(String::new, |host| host.address.to_string())
}

/// The frames on the link in all of these runs, by direction.
pub fn wire_of<'a>(trials: impl Iterator<Item = &'a Trial>) -> [Counts; 2] {
    let mut all: [Counts; 2] = Default::default();
    for trial in trials {
        for (sum, counts) in all.iter_mut().zip(&trial.wire) {
            wire::add(sum, counts);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use testbed::topology::Attachment;

    /// The flows name ports by number.
    #[test]
    fn ports_are_where_the_flows_say() {
        let topology = topology();
        let port = |host: usize| topology.hosts[host].at;
        let at = |switch, (_, port): (&str, u32)| Attachment {
            switch,
            port: openflow::PortNo(port),
        };
        let hosts: Vec<Attachment> = (0..6).map(port).collect();
        let [a, b, c, d, link] = S1_PORTS.map(|p| at(0, p));
        let [sink, controller, far_link] = S2_PORTS.map(|p| at(1, p));
        assert_eq!(hosts, [a, b, c, d, sink, controller]);
        assert_eq!(topology.links[0].ends, [link, far_link]);
    }
}
