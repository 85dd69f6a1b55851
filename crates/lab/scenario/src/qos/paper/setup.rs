//! The paper's network under one controller.
//!
//! ```text
//!         h2          h3
//!         |           |
//!   s1 -- s2 ======== s3 -- s4
//!   |     |           |     |
//!   h1    s5          s6    h4
//!         h5 h6       h7 h8
//! ```
//!
//! The text says: six switches, eight hosts, one, two and three hops from h1 to h2, h3 and h4,
//! traffic from h5 to h7 and h6 to h8, queues between s2 and s3, and better times with them at two
//! and three hops only. This is a network of which all of that is true.

use cli::program;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::qos;
use crate::qos::paper::background::Background;
use crate::qos::paper::settings::{Candidate, Settings};
use auster::queues::flows;
use auster::queues::plan::{Class, Rate};
use cli::failure::Failure;
use cli::interrupt::Interrupt;
use measure::order;
use testbed::network::{Network, Options, SWITCHES, device};
use testbed::plane::{self, Controller, Plane, Transport};
use testbed::topology::{Attachment, Topology};
use testbed::traffic::icmp::{self, Trial};
use testbed::traffic::reachable::wait_until_reachable;
use testbed::traffic::stranger::Door;
use testbed::traffic::tcp::{self, Ends};
use testbed::traffic::udp::{self, Pace};

/// From h1: to h2, h3 and h4.
pub const HOPS: [u32; 3] = [1, 2, 3];
const BACKGROUND: [(usize, usize); 2] = [(4, 6), (5, 7)];
/// Strangers that are pinged have these addresses; see `testbed::traffic::stranger`.
const STRANGERS: &str = "10.64.0.0/22";
pub const STRANGERS_MAX: u32 = 1000;
/// The queue of a switch's port. Open vSwitch sends through one socket with room for 92 frames. Two
/// ports are crowded at once, and together they must stay below that.
const PORT_QUEUE_BYTES: u32 = 50_000;
/// The queue of a host, which has a socket buffer per connection before it.
const HOST_QUEUE_BYTES: u32 = 400_000;
const BURST_BYTES: u32 = 15_000;

pub struct Setup {
    pub name: String,
    pub background: Background,
    network: Network,
    ends: Ends,
    strangers: usize,
}

/// The network above.
pub fn topology() -> Topology {
    let mut t = Topology::new("paper-qos");
    for _ in 0..6 {
        t.add_switch();
    }
    for switch in [0, 1, 2, 3, 4, 4, 5, 5] {
        t.add_host(switch);
    }
    for (a, b) in [(0, 1), (1, 2), (2, 3), (1, 4), (2, 5)] {
        t.add_link(a, b);
    }
    t
}

impl Setup {
    /// `None` when that was interrupted.
    pub fn start(
        candidate: &Candidate,
        settings: &Settings,
        transport: Transport,
        interrupt: &Interrupt,
    ) -> Result<Option<Setup>, Failure> {
        let name = candidate.name.clone();
        let mut network = Network::start(topology(), &name, &Options::default())?;
        let plane = match &candidate.command {
            Some(command) => plane::start_command(&mut network, command)?,
            None => Plane::start(&mut network, &Controller::parse(&name, transport)?)?,
        };
        let hosts: Vec<usize> = (0..network.topology.hosts.len()).collect();
        if !wait_until_reachable(&mut network, &plane, &hosts, &name, interrupt)? {
            return Ok(None);
        }
        let background = Background::open(&network, &BACKGROUND)?;
        let setup = Setup {
            name,
            background,
            ends: Ends::of(&network, 0, 3),
            strangers: 0,
            network,
        };
        setup.limit_hosts(settings.rate())?;
        setup.limit_ports(settings.rate(), &[])?;
        Ok(Some(setup))
    }

    /// New flows of strangers beside h1 to the host so many hops away, one after the other.
    pub fn ping(
        &mut self,
        hops: u32,
        count: usize,
        interrupt: &Interrupt,
    ) -> Result<Vec<Trial>, Failure> {
        let numbers = self.strangers..self.strangers + count;
        self.strangers += count;
        // Opened for this alone: through the streams they would fill with what nobody reads.
        let from = Door::open(&self.network, 0)?;
        let to = Door::open(&self.network, hops as usize)?;
        icmp::measure(&from, &to, numbers, &|| interrupt.is_set())
    }

    pub fn transfer(&self, bytes: u64) -> Result<Duration, Failure> {
        tcp::transfer(&self.ends, bytes)
    }

    /// Datagrams that were sent, and that were lost of them.
    pub fn stream(&self, pace: &Pace, interrupt: &Interrupt) -> Result<(u64, u64), Failure> {
        let stream = udp::stream_known(&self.ends, pace, &|| interrupt.is_set())?;
        let received = order::judge(&stream.arrivals).received;
        Ok((stream.sent, stream.sent.saturating_sub(received)))
    }

    /// Fails if a process of the network has ended.
    pub fn check(&mut self) -> Result<(), Failure> {
        match self.network.casualty() {
            Some(casualty) => Err(Failure::machine(format!("{}: {casualty}", self.name))),
            None => Ok(()),
        }
    }

    /// Queues at both ends of s2 to s3, and what h1 sends and gets over it into the first of them.
    pub fn set_qos(&self, settings: &Settings) -> Result<(), Failure> {
        for port in self.qos_ports() {
            program::tc(
                Some(&self.network.namespace(SWITCHES)),
                &["qdisc", "del", "dev", &port, "root"],
            )?;
            let mut words = vec!["set", "--rate", &settings.rate];
            words.extend(settings.queues.iter().flat_map(|queue| ["--queue", queue]));
            qos::check("queues set", &qos::queues(&self.network, &port, &words)?)?;
        }
        let (service, rest) = settings.classes();
        for (switch, lines) in self.entries(&service, &rest)? {
            let file = self.network.dir().join(format!("{switch}.flows"));
            std::fs::write(&file, lines.join("\n") + "\n").map_err(|e| Failure::file(&file, e))?;
            self.ofctl(switch, "add-flows", &file.display().to_string())?;
        }
        // Open vSwitch has looked at its ports again.
        self.limit_ports(settings.rate(), &self.qos_ports())
    }

    /// Packets that s2 has sent to s3 through the queue of what is measured, by its counter.
    pub fn service_packets(&self, settings: &Settings) -> Result<u64, Failure> {
        let [port, _] = self.qos_ports();
        let shown = qos::queues(&self.network, &port, &["show", "--json"])?;
        qos::check("queues show", &shown)?;
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap_or_default();
        let queues = shown["kernel"]["queues"].as_array();
        let (service, _) = settings.classes();
        let mut queues = queues.into_iter().flatten();
        let queue = queues.find(|queue| queue["queue"] == service.queue);
        Ok(queue.map_or(0, |queue| queue["packets"].as_u64().unwrap_or(0)))
    }

    pub fn clear_qos(&self, settings: &Settings) -> Result<(), Failure> {
        for switch in ["s2", "s3"] {
            self.ofctl(
                switch,
                "del-flows",
                &format!("cookie={:#x}/-1", flows::COOKIE),
            )?;
        }
        for port in self.qos_ports() {
            qos::check(
                "queues clear",
                &qos::queues(&self.network, &port, &["clear"])?,
            )?;
        }
        self.limit_ports(settings.rate(), &[])
    }

    fn qos_ports(&self) -> [String; 2] {
        let t = &self.network.topology;
        [("s2", "s3"), ("s3", "s2")].map(|(from, to)| device(t, port(t, from, to)))
    }

    /// Whole paths through s2 and s3: a controller that learns from what a switch sends up would
    /// else never learn there who is beside h1.
    fn entries(
        &self,
        service: &Class,
        rest: &Class,
    ) -> Result<[(&'static str, Vec<String>); 2], Failure> {
        let t = &self.network.topology;
        let out = |from: &str, to: &str| port(t, from, to).port.0;
        let (h1, h3, h4) = (address(t, 0), address(t, 2), address(t, 3));
        let h3_port = t.hosts[2].at.port.0;
        let entry = |class: &Class, in_port: u32, to: &str, output: u32| {
            let words = format!("in_port={in_port},ip,nw_dst={to}");
            flows::service(class, &words, output, flows::PRIORITY_SERVICE)
                .map_err(|problem| Failure::usage(format!("{words}: {problem}")))
        };
        let mut s2 = Vec::new();
        for to in [&h3, &h4] {
            s2.push(entry(service, out("s2", "s1"), to, out("s2", "s3"))?);
        }
        let mut s3 = vec![
            entry(rest, out("s3", "s2"), &h3, h3_port)?,
            entry(rest, out("s3", "s2"), &h4, out("s3", "s4"))?,
        ];
        for to in [h1.as_str(), STRANGERS] {
            s2.push(entry(rest, out("s2", "s3"), to, out("s2", "s1"))?);
            for from in [h3_port, out("s3", "s4")] {
                s3.push(entry(service, from, to, out("s3", "s2"))?);
            }
        }
        Ok([("s2", s2), ("s3", s3)])
    }

    fn ofctl(&self, switch: &str, command: &str, argument: &str) -> Result<(), Failure> {
        let socket = self.network.dir().join(format!("{switch}.mgmt"));
        let mut ofctl = Command::new("ovs-ofctl");
        ofctl.args(["-O", "OpenFlow13", command]);
        ofctl
            .arg(format!("unix:{}", socket.display()))
            .arg(argument);
        program::run(ofctl).map(drop)
    }

    /// Limits the rate that hosts send.
    fn limit_hosts(&self, rate: Rate) -> Result<(), Failure> {
        for host in &self.network.topology.hosts {
            let line = limit("eth0", rate, HOST_QUEUE_BYTES);
            program::tc_batch(Some(&self.network.namespace(&host.name)), &[line])?;
        }
        Ok(())
    }

    /// Limits the rate that switches send, at every port but some.
    fn limit_ports(&self, rate: Rate, but: &[String]) -> Result<(), Failure> {
        let t = &self.network.topology;
        let hosts = t.hosts.iter().map(|host| host.at);
        let ports = hosts.chain(t.links.iter().flat_map(|link| link.ends));
        let lines: Vec<String> = ports
            .map(|at| device(t, at))
            .filter(|name| !but.contains(name))
            .map(|name| limit(&name, rate, PORT_QUEUE_BYTES))
            .collect();
        program::tc_batch(Some(&self.network.namespace(SWITCHES)), &lines)
    }
}

fn limit(device: &str, rate: Rate, queue_bytes: u32) -> String {
    format!(
        "qdisc replace dev {device} root tbf rate {rate} burst {BURST_BYTES} limit {queue_bytes}"
    )
}

fn address(topology: &Topology, host: usize) -> String {
    let address: Ipv4Addr = topology.hosts[host].address;
    address.to_string()
}

/// The port of a switch that leads to its neighbour.
fn port(topology: &Topology, switch: &str, to: &str) -> Attachment {
    let link = topology.link_between(switch, to);
    let mut ends = link.expect("they are neighbours").ends.into_iter();
    ends.find(|end| topology.switches[end.switch].name == switch)
        .expect("a link has both its ends")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_is_that_of_the_paper() {
        let t = topology();
        assert_eq!((t.switches.len(), t.hosts.len()), (6, 8));
        // A tree, so that switches that learn by themselves do not flood it for ever.
        assert_eq!(t.links.len(), 5);
        let at = |host: usize| t.switches[t.hosts[host].at.switch].name.as_str();
        assert_eq!([0, 1, 2, 3].map(at), ["s1", "s2", "s3", "s4"]);
        for (from, to) in BACKGROUND {
            assert_eq!((at(from), at(to)), ("s5", "s6"));
        }
        for (a, b) in [
            ("s1", "s2"),
            ("s2", "s3"),
            ("s3", "s4"),
            ("s2", "s5"),
            ("s3", "s6"),
        ] {
            assert_eq!(t.switches[port(&t, a, b).switch].name, a);
            assert_eq!(t.switches[port(&t, b, a).switch].name, b);
        }
    }
}
