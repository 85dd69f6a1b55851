//! Files an operator writes: scenarios and topologies, in TOML.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use openflow::{DatapathId, MacAddr};
use serde::Deserialize;
use sim::link::LinkConfig;

use crate::failure::Failure;
use crate::lab::impairment::Impairment;
use crate::lab::restart::Restart;
use crate::lab::topology::{HOSTS_MAX, SWITCHES_MAX, Topology};

/// An experiment: networks, what is done to them, what must hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// One line that says what it shows.
    pub title: String,
    /// In words or as files, each brought up in turn.
    pub topologies: Vec<String>,
    pub hosts_per_edge: Option<usize>,
    /// From the start of the controller until every pair has been pinged without loss.
    pub within_s: u64,
    /// Packets after the first one of a pair.
    #[serde(default = "three")]
    pub later_pings: usize,
    #[serde(default = "one")]
    pub seed: u64,
    /// What links between switches do to frames.
    #[serde(default)]
    pub links: Impairment,
    /// What the link between switches and controller does.
    #[serde(default)]
    pub control: Impairment,
    pub failure: Option<LinkFailure>,
    pub restart: Option<Restart>,
    /// Stay up with a live view until Ctrl-C.
    #[serde(default)]
    pub stay: bool,
}

/// A link is cut under traffic and mended again.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkFailure {
    /// The two switches.
    pub link: [String; 2],
    /// Between packets of one pair; the resolution of the figures.
    pub interval_ms: u64,
    /// Traffic before the cut, between cut and repair, and after the repair.
    pub before_s: f64,
    pub cut_s: f64,
    pub mended_s: f64,
    /// Packets are lost no longer than this after the cut.
    pub converge_ms_max: u64,
}

impl LinkFailure {
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }
}

/// Switches, hosts and links one by one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologyFile {
    switch: Vec<SwitchEntry>,
    #[serde(default)]
    host: Vec<HostEntry>,
    #[serde(default)]
    link: Vec<LinkEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchEntry {
    name: String,
    /// As `ovs-vsctl` prints it, `0x…` or decimal.
    dpid: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostEntry {
    name: String,
    switch: String,
    address: Option<Ipv4Addr>,
    mac: Option<String>,
    #[serde(default)]
    impairment: Impairment,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkEntry {
    switches: [String; 2],
    #[serde(default)]
    impairment: Impairment,
}

const PROBES_PER_SECOND_MAX: f64 = 20_000.0;

impl Scenario {
    pub fn read(path: &Path) -> Result<Scenario, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
        Scenario::parse(&text)
            .map_err(|problem| Failure::usage(format!("{}: {problem}", path.display())))
    }

    /// The networks, ready to start. Paths of topology files are relative to `beside`.
    pub fn networks(&self, beside: &Path) -> Result<Vec<Topology>, Failure> {
        let links = self.links.config().map_err(Failure::usage)?;
        let network = |words: &String| {
            let mut topology = if words.ends_with(".toml") {
                topology(&beside.join(words).to_string_lossy(), self.hosts_per_edge)?
            } else {
                topology(words, self.hosts_per_edge)?
            };
            if !links.is_wire() {
                topology
                    .links
                    .iter_mut()
                    .for_each(|link| link.impairment = links.clone());
            }
            if let Some(LinkFailure { link: [a, b], .. }) = &self.failure
                && topology.link_between(a, b).is_none()
            {
                return Err(Failure::usage(format!(
                    "{words} has no link {a} to {b} to cut"
                )));
            }
            if let Some(restart) = &self.restart {
                restart.check(&topology).map_err(Failure::usage)?;
            }
            Ok(topology)
        };
        self.topologies.iter().map(network).collect()
    }

    pub fn control(&self) -> Result<LinkConfig, Failure> {
        self.control
            .config()
            .map_err(|problem| Failure::usage(format!("[control] {problem}")))
    }

    fn parse(text: &str) -> Result<Scenario, String> {
        let scenario: Scenario = toml::from_str(text).map_err(|e| toml_problem(text, &e))?;
        if scenario.topologies.is_empty() {
            return Err("topologies: name at least one".into());
        }
        if let Some(failure) = &scenario.failure {
            if failure.interval_ms == 0 {
                return Err("failure.interval_ms is at least 1".into());
            }
            let times = [failure.before_s, failure.cut_s, failure.mended_s];
            if !times.iter().all(|s| (0.1..=600.0).contains(s)) {
                return Err("failure: times are 0.1 to 600 seconds".into());
            }
            // Otherwise a network that never converges passes.
            let observed_s = failure.cut_s.min(failure.mended_s);
            if failure.converge_ms_max as f64 >= observed_s * 1e3 {
                return Err("failure.converge_ms_max is not below cut_s and mended_s".into());
            }
        }
        Ok(scenario)
    }
}

/// How fast a stream over this many pairs would send, if that is too fast to be honest.
pub fn too_many_probes(pair_count: usize, interval: Duration) -> Option<f64> {
    let per_second = pair_count as f64 / interval.as_secs_f64();
    (per_second > PROBES_PER_SECOND_MAX).then_some(per_second)
}

/// A topology from its words, or from a file when they end in `.toml`.
pub fn topology(words: &str, hosts_per_edge: Option<usize>) -> Result<Topology, Failure> {
    if !words.ends_with(".toml") {
        return Topology::generate(words, hosts_per_edge).map_err(Failure::usage);
    }
    let text = std::fs::read_to_string(words).map_err(|e| Failure::file(words, e))?;
    topology_from_toml(words, &text)
        .map_err(|problem| Failure::usage(format!("{words}: {problem}")))
}

fn topology_from_toml(name: &str, text: &str) -> Result<Topology, String> {
    let file: TopologyFile = toml::from_str(text).map_err(|e| toml_problem(text, &e))?;
    if file.switch.is_empty() || file.switch.len() > SWITCHES_MAX || file.host.len() > HOSTS_MAX {
        return Err(format!(
            "a lab holds 1 to {SWITCHES_MAX} switches and up to {HOSTS_MAX} hosts"
        ));
    }
    let mut topology = Topology::new(name);
    for entry in &file.switch {
        let place = topology.add_switch();
        topology.switches[place].name = checked_name(&entry.name)?;
        if let Some(dpid) = &entry.dpid {
            topology.switches[place].dpid = dpid.parse::<DatapathId>()?;
        }
    }
    let names: Vec<String> = file.switch.iter().map(|entry| entry.name.clone()).collect();
    let place_of = |name: &String| {
        let place = names.iter().position(|known| known == name);
        place.ok_or_else(|| format!("no switch is called {name}"))
    };
    for entry in &file.host {
        let impairment = entry.impairment.config()?;
        let host = topology.add_host(place_of(&entry.switch)?);
        host.name = checked_name(&entry.name)?;
        host.impairment = impairment;
        host.address = entry.address.unwrap_or(host.address);
        if let Some(mac) = &entry.mac {
            host.mac = mac.parse::<MacAddr>()?;
        }
    }
    for entry in &file.link {
        let [a, b] = &entry.switches;
        let impairment = entry.impairment.config()?;
        topology.add_link(place_of(a)?, place_of(b)?).impairment = impairment;
    }
    let hosts = || topology.hosts.iter();
    unique(
        "name",
        topology
            .switches
            .iter()
            .map(|s| &s.name)
            .chain(hosts().map(|h| &h.name)),
    )?;
    unique("datapath id", topology.switches.iter().map(|s| s.dpid))?;
    unique("address", hosts().map(|h| h.address))?;
    unique("hardware address", hosts().map(|h| h.mac))?;
    Ok(topology)
}

/// Becomes part of an interface's name, which the kernel limits to 15 characters.
fn checked_name(name: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if !(1..=8).contains(&name.len()) || !name.chars().all(allowed) || name == "sw" || name == "c" {
        return Err(format!(
            "name '{name}': use 1 to 8 of a-z and 0-9 (and not sw or c)"
        ));
    }
    Ok(name.to_string())
}

fn unique<T: Ord + std::fmt::Display>(
    what: &str,
    values: impl Iterator<Item = T>,
) -> Result<(), String> {
    let mut seen = std::collections::BTreeSet::new();
    for value in values {
        if let Some(twice) = seen.replace(value) {
            return Err(format!("{what} {twice} is there twice"));
        }
    }
    Ok(())
}

/// In one line, with the number of the line it is about.
pub fn toml_problem(text: &str, error: &toml::de::Error) -> String {
    let newlines = |span: std::ops::Range<usize>| text[..span.start].matches('\n').count();
    let line = error.span().map_or(0, newlines) + 1;
    format!("line {line}: {}", error.message().trim().replace('\n', " "))
}

fn three() -> usize {
    3
}

fn one() -> u64 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIAMOND: &str = r#"
        switch = [{ name = "s1" }, { name = "s2" }, { name = "edge", dpid = "0xff" }]
        [[host]]
        name = "web"
        switch = "edge"
        address = "10.1.0.1"
        mac = "52:54:00:00:00:01"
        impairment = { loss_percent = 1.0 }
        [[link]]
        switches = ["s1", "s2"]
        [[link]]
        switches = ["s2", "edge"]
        impairment = { delay_ms = 5, rate_mbps = 100 }
    "#;

    #[test]
    fn a_topology_file_says_everything_a_generator_does_and_more() {
        let t = topology_from_toml("diamond.toml", DIAMOND).unwrap();
        assert_eq!(t.switches[2].dpid, DatapathId(0xff));
        assert_eq!(t.hosts[0].address, Ipv4Addr::new(10, 1, 0, 1));
        assert_eq!(t.hosts[0].mac.to_string(), "52:54:00:00:00:01");
        assert!(!t.hosts[0].impairment.is_wire());
        assert!(t.links[0].impairment.is_wire());
        assert_eq!(t.links[1].impairment.delay, Duration::from_millis(5));
        assert_eq!(t.links[1].ends[1].switch, 2);
    }

    #[test]
    fn a_topology_file_with_a_mistake_is_refused_with_the_place() {
        let refused =
            |from: &str, to: &str| topology_from_toml("t", &DIAMOND.replace(from, to)).unwrap_err();
        assert!(refused("\"s2\", \"edge\"", "\"s2\", \"s9\"").contains("no switch is called s9"));
        assert!(
            refused("loss_percent", "loss").contains("line 8"),
            "{}",
            refused("loss_percent", "loss")
        );
        assert!(refused("name = \"web\"", "name = \"s1\"").contains("name s1 is there twice"));
        assert!(refused("name = \"s2\"", "name = \"S 2\"").contains("a-z"));
        assert!(refused("0xff", "2").contains("datapath id 0000000000000002 is there twice"));
        assert!(refused("delay_ms = 5", "delay_ms = -5").contains("delay_ms"));
        assert!(
            topology_from_toml("t", "switch = []")
                .unwrap_err()
                .contains("1 to 256")
        );
    }

    #[test]
    fn the_scenarios_of_the_project_are_read() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        for name in [
            "first-contact.toml",
            "ring-failure.toml",
            "controller-restart.toml",
            "relay-restart.toml",
        ] {
            let scenario = Scenario::read(&dir.join(name)).unwrap();
            assert!(!scenario.networks(&dir).unwrap().is_empty(), "{name}");
        }
    }

    #[test]
    fn a_scenario_with_a_mistake_is_refused_with_the_line() {
        let good = "title = \"t\"\ntopologies = [\"ring,4\"]\nwithin_s = 60\n";
        assert!(Scenario::parse(good).is_ok());
        let refused = |text: String| Scenario::parse(&text).unwrap_err();
        let problem = refused(format!("{good}speed = 3\n"));
        assert!(
            problem.contains("line 4") && problem.contains("speed"),
            "{problem}"
        );
        assert!(refused(good.replace("[\"ring,4\"]", "[]")).contains("topologies"));
        assert!(refused(good.replace("within_s = 60", "")).contains("within_s"));
        let failure = "[failure]\nlink = [\"s1\", \"s9\"]\ninterval_ms = 10\nbefore_s = 1\n\
                       cut_s = 3\nmended_s = 3\nconverge_ms_max = 500\n";
        let scenario = Scenario::parse(&format!("{good}{failure}")).unwrap();
        assert!(
            scenario.networks(Path::new(".")).is_err(),
            "the ring has no switch s9"
        );
        let never = failure.replace("interval_ms = 10", "interval_ms = 0");
        assert!(refused(format!("{good}{never}")).contains("interval_ms"));
        let void = failure.replace("cut_s = 3", "cut_s = 0.4");
        assert!(refused(format!("{good}{void}")).contains("converge_ms_max"));
    }
}
