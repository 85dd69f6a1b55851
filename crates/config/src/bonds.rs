//! Bonds of ports, and the effect of spanning trees' messages at ports.
//!
//! ```toml
//! [[bond]]
//! name = "server1"
//! ports = ["1:2", "1:3"]               # of one switch
//! lacp = "active"                      # passive, or off: all ports that are up
//! rate = "fast"                        # or slow
//!
//! [[port]]
//! at = "1:4"
//! bpdu = "guard"                       # drop, pass
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use control::bond::{Bond, Bonds, Bpdu, PORT_MAX, Protocol};
use control::controller::Location;
use toml::de::DeTable;

use super::fields::{Fields, items};
use super::qos::tree::is_name;
use super::topology;

const BOND: [&str; 4] = ["name", "ports", "lacp", "rate"];

/// The most ports of a bond: LACP and a group name them.
const PORTS_MAX: usize = 32;

/// The bonds of the file, with the line of each port.
#[derive(Clone, Default)]
pub(super) struct Read {
    bonds: Vec<Bond>,
    names: BTreeMap<String, usize>,
    pub lines: BTreeMap<Location, usize>,
}

impl Read {
    /// Reads all bonds. Mistakes go to `fields`.
    pub fn of<'a>(fields: &mut Fields<'a>, root: &DeTable<'a>) -> Read {
        let mut read = Read::default();
        for (place, table) in fields.tables_at(root, "bond") {
            fields.only(table, "[bond]", &BOND);
            let name = read.name(fields, &place, table);
            // A bond without a name is still compared with ports.
            let name = name.unwrap_or_else(|| format!("in line {}", fields.line(&place)));
            let ports = read.ports(fields, &place, table);
            let protocol = fields.parsed(table, "lacp", "active", |text| match text {
                "active" => Ok(Protocol::Active),
                "passive" => Ok(Protocol::Passive),
                "off" => Ok(Protocol::Static),
                _ => Err(format!("'{text}' is none of active, passive, off")),
            });
            let is_fast = fields.parsed(table, "rate", "fast", |text| match text {
                "fast" => Ok(true),
                "slow" => Ok(false),
                _ => Err(format!("'{text}' is none of fast, slow")),
            });
            if let Some(first) = ports.first() {
                read.bonds.push(Bond {
                    name,
                    dpid: first.dpid,
                    ports: ports.iter().map(|at| at.port).collect(),
                    protocol: protocol.unwrap_or(Protocol::Active),
                    is_fast: is_fast.unwrap_or(true),
                });
            }
        }
        read
    }

    fn name(
        &mut self,
        fields: &mut Fields<'_>,
        place: &Range<usize>,
        table: &DeTable<'_>,
    ) -> Option<String> {
        let name = name(fields, (place, table), "server1")?;
        let line = fields.line(place);
        if let Some(before) = self.names.insert(name.clone(), line) {
            let problem = format!("name: '{name}' is the bond in line {before} already");
            fields.problem(place, problem);
        }
        Some(name)
    }

    fn ports<'a>(
        &mut self,
        fields: &mut Fields<'a>,
        place: &Range<usize>,
        table: &DeTable<'a>,
    ) -> BTreeSet<Location> {
        if !table.contains_key("ports") {
            let problem = "ports is missing: ports of one switch such as [\"1:2\", \"1:3\"]";
            fields.problem(place, problem);
        }
        if let Some(value) = table
            .get("ports")
            .filter(|_| items(table, "ports").is_empty())
        {
            let problem = "ports is empty; list ports of one switch such as [\"1:2\", \"1:3\"]";
            fields.problem(&value.span(), problem);
        }
        let mut ports = BTreeSet::new();
        let mut first: Option<Location> = None;
        for (span, at) in fields.list_at(table, "ports", "1:2", |text| grouped_port("bond", text)) {
            let first = *first.get_or_insert(at);
            if at.dpid != first.dpid {
                let problem = format!(
                    "ports: {at} is at another switch than {first}; a bond has ports of one switch"
                );
                fields.problem(&span, problem);
                continue;
            }
            let line = fields.line(&span);
            if let Some(before) = self.lines.insert(at, line) {
                let problem = format!("ports: {at} belongs to the bond in line {before} already");
                fields.problem(&span, problem);
            }
            ports.insert(at);
        }
        if ports.len() > PORTS_MAX {
            let problem = format!("ports: a bond has at most {PORTS_MAX} ports");
            fields.problem(place, problem);
        }
        ports
    }

    /// Checks a `[[port]]` for a port in a bond. The settings of the first port apply to the whole
    /// bond.
    pub fn check_port(
        &self,
        fields: &mut Fields<'_>,
        (span, at): (&Range<usize>, Location),
        bpdu: Option<Bpdu>,
        crowd: bool,
    ) {
        let bond = self.bonds.iter().find(|bond| {
            let ports = bond.ports.iter();
            bond.dpid == at.dpid && ports.copied().any(|port| port == at.port)
        });
        let Some(bond) = bond else {
            return;
        };
        let place = bond.place();
        if place != at {
            let problem = format!(
                "at: {at} belongs to the bond '{}'; state {place}, its first port, for all of them",
                bond.name
            );
            fields.problem(span, problem);
        } else if bpdu.is_some_and(|bpdu| bpdu != Bpdu::Drop) {
            let problem = "bpdu: a port of a bond drops them; take it out of one of the two";
            fields.problem(span, problem);
        } else if crowd {
            let problem = "crowd: a port of a bond is not guarded; take it out of one of the two";
            fields.problem(span, problem);
        }
    }

    pub fn bonds(self) -> Bonds {
        Bonds::new(self.bonds)
    }
}

/// Reads a port that a group names. `thing`: its owner, such as "bond".
pub(super) fn grouped_port(thing: &str, text: &str) -> Result<Location, String> {
    let at = topology::edge_port(text)?;
    match at.port.0 <= PORT_MAX {
        true => Ok(at),
        false => Err(format!(
            "'{text}' is no port for a {thing}, whose ports are 1 to {PORT_MAX}"
        )),
    }
}

/// Reads a name. Without the key, reports that the name is missing.
pub(super) fn name(
    fields: &mut Fields<'_>,
    (place, table): (&Range<usize>, &DeTable<'_>),
    example: &str,
) -> Option<String> {
    if !table.contains_key("name") {
        let problem = format!("name is missing: a name such as \"{example}\"");
        fields.problem(place, problem);
    }
    fields.parsed(table, "name", example, |text| match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "'{text}' is no name of letters, digits, '-', '_' and '.'"
        )),
    })
}

/// Reads whether a crowd of new hosts closes a port.
pub(super) fn crowd(fields: &mut Fields<'_>, table: &DeTable<'_>) -> bool {
    let is_guarded = fields.parsed(table, "crowd", "guard", |text| match text {
        "keep" => Ok(false),
        "guard" => Ok(true),
        _ => Err(format!("'{text}' is none of keep, guard")),
    });
    is_guarded.unwrap_or(false)
}

/// Reads the effect of spanning trees' messages at a port.
pub(super) fn bpdu(fields: &mut Fields<'_>, table: &DeTable<'_>) -> Option<Bpdu> {
    fields.parsed(table, "bpdu", "guard", |text| match text {
        "drop" => Ok(Bpdu::Drop),
        "pass" => Ok(Bpdu::Pass),
        "guard" => Ok(Bpdu::Guard),
        _ => Err(format!("'{text}' is none of drop, pass, guard")),
    })
}

#[cfg(test)]
mod tests {
    use control::vlan::PortVlans;

    use super::super::vlans::Stated;
    use super::*;
    use crate::fields::without_columns;

    fn read(text: &str) -> Result<Stated, Vec<String>> {
        let (mut fields, root) = Fields::parse(text);
        let stated = Stated::read(&mut fields, &root);
        let done = fields.finish("net.toml").map_err(without_columns);
        done.map(|()| stated)
    }

    fn at(text: &str) -> Location {
        topology::location(text).unwrap()
    }

    const BOND: &str = "[[bond]]\nname = \"server1\"\nports = [\"1:3\", \"1:2\"]\n";

    #[test]
    fn bonds_and_bpdus_are_read() {
        let text = format!(
            "{BOND}[[bond]]\nname = \"b\"\nports = \"2:1\"\nlacp = \"off\"\nrate = \"slow\"\n\
             [[port]]\nat = [\"1:4\", \"1:5\"]\nbpdu = \"guard\"\ncrowd = \"guard\"\n\
             [[vlan]]\nid = 10\n[[port]]\nat = \"1:2\"\naccess = 10\n"
        );
        let stated = read(&text).unwrap();
        let bonds: Vec<&Bond> = stated.bonds.iter().collect();
        assert_eq!(bonds[0].place(), at("1:2"));
        assert_eq!(
            (bonds[0].protocol, bonds[0].is_fast),
            (Protocol::Active, true)
        );
        assert_eq!(
            (bonds[1].protocol, bonds[1].is_fast),
            (Protocol::Static, false)
        );
        let guards = [at("1:4"), at("1:5")].map(|at| (at, Bpdu::Guard));
        assert_eq!(stated.bpdus, guards.into());
        assert_eq!(stated.crowd_guards, [at("1:4"), at("1:5")].into());
        let access = stated.vlans.ports.get(&at("1:2"));
        assert!(matches!(access, Some(PortVlans::Access(_))));
        assert_eq!(stated.vlans.ports.len(), 1);
        assert!(stated.has_bonds() && !read("").unwrap().has_bonds());
    }

    /// Each case follows a bond in three lines.
    #[test]
    fn every_mistake_is_named_with_its_line_and_field() {
        let cases = [
            (
                "[[bond]]\nname = \"b\"\nports = [\"1:4\", \"2:4\"]",
                "6: ports: 2:4 is at another switch than 1:4; a bond has ports of one switch",
            ),
            (
                "[[bond]]\nname = \"b\"\nports = [\"1:3\"]",
                "6: ports: 1:3 belongs to the bond in line 3 already",
            ),
            (
                "[[bond]]\nname = \"server1\"\nports = [\"1:4\"]",
                "4: name: 'server1' is the bond in line 1 already",
            ),
            ("[[bond]]\nname = \"b\"", "4: ports is missing"),
            (
                "[[bond]]\nname = \"b\"\nports = []",
                "6: ports is empty; list",
            ),
            ("[[bond]]\nports = \"1:4\"", "4: name is missing"),
            (
                "[[bond]]\nname = \"b\"\nports = \"1:4\"\nlacp = \"on\"",
                "7: lacp: 'on' is none of active, passive, off",
            ),
            (
                "[[bond]]\nname = \"b\"\nports = \"1:4\"\nrate = 1",
                "7: rate",
            ),
            (
                "[[bond]]\nname = \"b\"\nports = \"1:65280\"",
                "6: ports: '1:65280' is no port for a bond",
            ),
            (
                "[[port]]\nat = \"1:3\"\nbpdu = \"drop\"",
                "5: at: 1:3 belongs to the bond 'server1'; state 1:2, its first port",
            ),
            (
                "[[port]]\nat = \"1:2\"\nbpdu = \"pass\"",
                "5: bpdu: a port of a bond drops them",
            ),
            (
                "[[port]]\nat = \"1:4\"\nbpdu = \"block\"",
                "6: bpdu: 'block' is none of drop, pass, guard",
            ),
            (
                "[[port]]\nat = \"1:2\"\ncrowd = \"guard\"",
                "5: crowd: a port of a bond is not guarded",
            ),
            (
                "[[port]]\nat = \"1:4\"\ncrowd = \"close\"",
                "6: crowd: 'close' is none of keep, guard",
            ),
            ("[[port]]\nat = \"1:4\"", "4: access or trunk is missing"),
        ];
        for (text, wanted) in cases {
            let problems = read(&format!("{BOND}{text}\n")).expect_err(text);
            let all = problems.join("\n").replace("0000000000000001", "1");
            let all = all.replace("0000000000000002", "2");
            assert!(all.contains(&format!("net.toml:{wanted}")), "{text}: {all}");
            assert_eq!(problems.len(), 1, "{text}: {all}");
        }
    }
}
