//! Topologies as an operator writes them: a few words, or a file with each switch, host and link.

use std::net::Ipv4Addr;

use openflow::{DatapathId, MacAddr};
use serde::Deserialize;

use cli::failure::Failure;
use cli::toml_problem;

use crate::impairment::Impairment;
use crate::topology::{HOSTS_MAX, SWITCHES_MAX, Topology};

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
    /// The datapath id as `ovs-vsctl` prints it, `0x…` or decimal.
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

/// Checks a name that becomes part of an interface's name, which the kernel limits to 15
/// characters.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
}
