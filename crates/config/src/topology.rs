//! The administrator's topology file.
//!
//! ```toml
//! switches = ["5"]                                   # those without a link or host below
//! links = ["1:2 2:1", "2:2 3:1"]                     # SWITCH:PORT SWITCH:PORT, each cable once
//! hosts = ["02:00:00:00:00:01 1:1 10.0.0.1"]         # ADDRESS SWITCH:PORT [IP]
//! ```

use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;

use control::controller::Location;
use control::topology::{Difference, Place, Statement, Topology};
use openflow::{DatapathId, MacAddr, PortNo};

use super::fields::Fields;
use cli::failure::Failure;

/// The lines of the file that name ports.
pub struct Lines {
    ports: Vec<(Location, usize)>,
}

pub fn load(file: Option<&Path>) -> Result<Option<Topology>, Failure> {
    let loaded = file.map(load_with_lines).transpose()?;
    Ok(loaded.map(|(topology, _)| topology))
}

pub fn load_with_lines(file: &Path) -> Result<(Topology, Lines), Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| Failure::file(file, error))?;
    parse(&text, file).map_err(|problems| Failure::usage(problems.join("; ")))
}

impl Lines {
    /// One line for each port that the switches do not have.
    pub fn locate(&self, file: &str, missing: &[Difference]) -> Vec<String> {
        let locate = |difference: &Difference| {
            let Difference::PortMissing(at) = difference else {
                return format!("{file}: {difference}");
            };
            let found = self.ports.iter().find(|(port, _)| port == at);
            let line = found.map_or(0, |(_, line)| *line);
            format!("{file}:{line}: {difference}")
        };
        missing.iter().map(locate).collect()
    }
}

fn parse(text: &str, file: &Path) -> Result<(Topology, Lines), Vec<String>> {
    let (mut fields, root) = Fields::parse(text);
    fields.only(&root, "", &["switches", "links", "hosts"]);
    let switches = fields.list(&root, "switches", "1", str::parse::<DatapathId>);
    let links = fields.list_at(&root, "links", "1:2 2:1", link);
    let hosts = fields.list_at(&root, "hosts", "02:00:00:00:00:01 1:1 10.0.0.1", host);
    let mut ports = Vec::new();
    for (at, (a, b)) in &links {
        let line = fields.line(at);
        ports.extend([(*a, line), (*b, line)]);
    }
    ports.extend(hosts.iter().map(|(at, (_, p))| (p.at, fields.line(at))));
    let (link_at, links) = split(links);
    let (host_at, hosts) = split(hosts);
    let topology = Topology::new(switches, &links, &hosts);
    if let Err(problems) = &topology {
        for (statement, problem) in problems {
            match statement {
                Statement::Link(n) => fields.problem(&link_at[*n], format!("links: {problem}")),
                Statement::Host(n) => fields.problem(&host_at[*n], format!("hosts: {problem}")),
            }
        }
    }
    fields.finish(file.display())?;
    Ok((topology.unwrap_or_default(), Lines { ports }))
}

fn split<T>(located: Vec<(Range<usize>, T)>) -> (Vec<Range<usize>>, Vec<T>) {
    located.into_iter().unzip()
}

fn link(text: &str) -> Result<(Location, Location), String> {
    let words: Vec<&str> = text.split_whitespace().filter(|w| *w != "-").collect();
    let [a, b] = words[..] else {
        return Err(format!("'{text}' is not two ports such as 1:2 2:1"));
    };
    Ok((location(a)?, location(b)?))
}

fn host(text: &str) -> Result<(MacAddr, Place), String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (mac, at, ip) = match words[..] {
        [mac, at] => (mac, at, None),
        [mac, at, ip] => (mac, at, Some(ip)),
        _ => {
            return Err(format!(
                "'{text}' is not an address, a port and perhaps an IP address, such as \
                 02:00:00:00:00:01 1:1 10.0.0.1"
            ));
        }
    };
    let address = |ip: &str| {
        ip.parse::<IpAddr>()
            .map_err(|_| format!("'{ip}' is not an IP address"))
    };
    let ip = ip.map(address).transpose()?;
    let at = location(at)?;
    Ok((mac.parse()?, Place { at, ip }))
}

/// A port of a switch that a host can be at.
pub fn edge_port(text: &str) -> Result<Location, String> {
    let at = location(text)?;
    match at.port.is_ordinary() {
        true => Ok(at),
        false => Err(format!("'{text}' is no port that a host can be at")),
    }
}

/// A port of a switch.
pub fn location(text: &str) -> Result<Location, String> {
    let (dpid, port) = text
        .rsplit_once(':')
        .ok_or_else(|| format!("'{text}' is not a switch and a port such as 1:2"))?;
    Ok(Location::new(dpid.parse()?, port.parse::<PortNo>()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::without_columns;

    fn read(text: &str) -> Result<(Topology, Lines), Vec<String>> {
        parse(text, Path::new("net.toml")).map_err(without_columns)
    }

    #[test]
    fn a_line_is_a_statement_and_ports_are_found_again_by_line() {
        let text = "links = [\n  \"1:2 - 2:1\",\n  \"0x2:2 0000000000000003:1\",\n]\n\
                    hosts = [\"02:00:00:00:00:01 1:1 10.0.0.1\"]\n";
        let (topology, lines) = read(text).unwrap();
        let at = Location::new(DatapathId(1), PortNo(1));
        let ip = Some(IpAddr::from([10, 0, 0, 1]));
        let host = (MacAddr([2, 0, 0, 0, 0, 1]), Place { at, ip });
        assert_eq!(topology.hosts().collect::<Vec<_>>(), [host]);
        let missing = Location::new(DatapathId(3), PortNo(1));
        let told = lines.locate("net.toml", &[Difference::PortMissing(missing)]);
        assert_eq!(
            told,
            ["net.toml:3: the switch has no port 0000000000000003:1"]
        );
    }

    /// Those that `ovs-ofctl` reads.
    #[test]
    fn numbers_of_ports_may_be_hexadecimal() {
        let at = |text: &str| location(text).map(|at| at.port.0);
        assert_eq!(
            (at("1:0x10"), at("1:0Xa"), at("1:16")),
            (Ok(16), Ok(10), Ok(16))
        );
        assert!(at("1:0x").is_err() && at("1:10h").is_err());
    }

    #[test]
    fn all_that_is_wrong_is_told_by_line_and_field() {
        let text = "switch = [\"1\"]\nlinks = [\"1:2\", \"1:2 2:x\",\n\"1:1 1:2\"]\n\
                    hosts = [\"1:1\", \"02:00:00:00:00:01 1:1 10.0.0\",\n\
                    \"02:00:00:00:00:02 1:1\", \"02:00:00:00:00:02 1:3\"]\n";
        let problems = read(text).map(|_| ()).unwrap_err();
        let expected = [
            "net.toml:1: 'switch' is not known here; known: switches, links, hosts; did you mean \
             switches?",
            "net.toml:2: links: '1:2' is not two ports such as 1:2 2:1",
            "net.toml:2: links: 'x' is not a port: write a number or a reserved name such as LOCAL",
            "net.toml:3: links: 0000000000000001:1 - 0000000000000001:2: a link joins two switches",
            "net.toml:4: hosts: '1:1' is not an address, a port and perhaps an IP address, such as \
             02:00:00:00:00:01 1:1 10.0.0.1",
            "net.toml:4: hosts: '10.0.0' is not an IP address",
            "net.toml:5: hosts: host 02:00:00:00:00:02 is said to be somewhere already",
        ];
        assert_eq!(problems, expected);
    }
}
