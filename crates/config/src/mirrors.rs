//! Mirrors, from the configuration.
//!
//! ```toml
//! [[mirror]]
//! name = "watch"
//! from = ["1:2", "1:3"]                # of one switch
//! direction = "both"                   # in, or out
//! to = "1:5"                           # of the same switch
//!
//! [[acl.rule]]                         # a rule copies the packets that match it
//! match = "tcp,tp_dst=25"
//! allow = true
//! mirror = "watch"
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use control::bond::Bonds;
use control::controller::Location;
use control::mirror::{Direction, Mirror, Mirrors};
use openflow::DatapathId;
use toml::de::{DeTable, DeValue};

use super::bonds;
use super::fields::Fields;

const MIRROR: [&str; 4] = ["name", "from", "direction", "to"];

/// The most ports of one mirror.
const PORTS_MAX: usize = 4096;

/// The mirrors of the file.
#[derive(Default)]
pub(super) struct Read {
    mirrors: Vec<Mirror>,
    /// The lines of names at a switch: a rule copies at each switch that has its mirror.
    names: BTreeMap<(String, DatapathId), usize>,
    /// The lines of the ports that get copies.
    pub lines: BTreeMap<Location, usize>,
    /// The places in the file of mirrored ports, and these ports.
    from: Vec<(Range<usize>, Location)>,
    /// The line of each pair of a mirrored port and the port that gets its copies.
    pairs: BTreeMap<(Location, Location), usize>,
}

impl Read {
    /// Reads all mirrors. Mistakes go to `fields`.
    pub fn of<'a>(fields: &mut Fields<'a>, root: &DeTable<'a>, bonds: &Bonds) -> Read {
        let mut read = Read::default();
        let of_rules = names_in_rules(root);
        for (place, table) in fields.tables_at(root, "mirror") {
            fields.only(table, "[mirror]", &MIRROR);
            let to = read.to(fields, &place, table, bonds);
            let name = read.name(fields, (&place, table), to);
            let direction = fields.parsed(table, "direction", "both", |text| match text {
                "both" => Ok(Direction::Both),
                "in" => Ok(Direction::In),
                "out" => Ok(Direction::Out),
                _ => Err(format!("'{text}' is none of both, in, out")),
            });
            let from = read.from(fields, (&place, table), to, bonds);
            let is_of_rules = name.as_ref().is_some_and(|name| of_rules.contains(name));
            if !table.contains_key("from") && !is_of_rules {
                let problem = "from is missing: ports of one switch such as [\"1:2\", \"1:3\"]; a \
                               mirror that [[acl.rule]] names needs none";
                fields.problem(&place, problem);
            }
            if let (Some(name), Some(to)) = (name, to) {
                read.mirrors.push(Mirror {
                    name,
                    dpid: to.dpid,
                    from: from.into_iter().map(|at| at.port).collect(),
                    direction: direction.unwrap_or_default(),
                    to: to.port,
                });
            }
        }
        for (span, at) in std::mem::take(&mut read.from) {
            if let Some(line) = read.lines.get(&at) {
                let problem = format!(
                    "from: {at} gets the copies of the mirror in line {line}, and nothing comes in \
                     or goes out there but these"
                );
                fields.problem(&span, problem);
            }
        }
        read
    }

    fn name(
        &mut self,
        fields: &mut Fields<'_>,
        (place, table): (&Range<usize>, &DeTable<'_>),
        to: Option<Location>,
    ) -> Option<String> {
        let name = bonds::name(fields, (place, table), "watch")?;
        let line = fields.line(place);
        if let Some(to) = to
            && let Some(before) = self.names.insert((name.clone(), to.dpid), line)
        {
            let problem = format!(
                "name: '{name}' is the mirror in line {before} already, of the same switch"
            );
            fields.problem(place, problem);
        }
        Some(name)
    }

    fn to<'a>(
        &mut self,
        fields: &mut Fields<'a>,
        place: &Range<usize>,
        table: &DeTable<'a>,
        bonds: &Bonds,
    ) -> Option<Location> {
        let Some(value) = table.get("to") else {
            fields.problem(
                place,
                "to is missing: the port that gets the copies, such as \"1:5\"",
            );
            return None;
        };
        let at = fields.parsed(table, "to", "1:5", port)?;
        if let Some(bond) = bonds.of(at).filter(|_| bonds.contains(at)) {
            let problem = format!("to: {at} belongs to the bond '{}'", bond.name);
            fields.problem(&value.span(), problem);
        }
        let line = fields.line(&value.span());
        self.lines.entry(at).or_insert(line);
        Some(at)
    }

    fn from<'a>(
        &mut self,
        fields: &mut Fields<'a>,
        (place, table): (&Range<usize>, &DeTable<'a>),
        to: Option<Location>,
        bonds: &Bonds,
    ) -> BTreeSet<Location> {
        let mut ports = BTreeSet::new();
        for (span, at) in fields.list_at(table, "from", "1:2", port) {
            if let Some(to) = to.filter(|to| to.dpid != at.dpid) {
                let problem = format!(
                    "from: {at} is at another switch than {to}, to which its packets would go; a \
                     mirror has ports of one switch"
                );
                fields.problem(&span, problem);
                continue;
            }
            let first = bonds.place(at);
            if let Some(bond) = bonds.of(at).filter(|_| first != at) {
                let problem = format!(
                    "from: {at} belongs to the bond '{}'; state {first}, its first port, for all \
                     of them",
                    bond.name
                );
                fields.problem(&span, problem);
            }
            if let Some(to) = to {
                let line = fields.line(&span);
                if let Some(before) = self.pairs.insert((at, to), line) {
                    let problem =
                        format!("from: {at} is mirrored to {to} in line {before} already");
                    fields.problem(&span, problem);
                }
            }
            self.from.push((span, at));
            ports.insert(at);
        }
        if ports.len() > PORTS_MAX {
            let problem = format!("from: a mirror has at most {PORTS_MAX} ports");
            fields.problem(place, problem);
        }
        ports
    }

    /// Checks the settings of a `[[port]]` for a port that gets copies.
    pub fn check_port(&self, fields: &mut Fields<'_>, span: &Range<usize>, at: Location) {
        if let Some(line) = self.lines.get(&at) {
            let problem = format!(
                "at: {at} gets the copies of the mirror in line {line}, so it has no VLANs, lists, \
                 hosts, bpdu or crowd; take it out of one of the two"
            );
            fields.problem(span, problem);
        }
    }

    pub fn mirrors(self) -> Mirrors {
        Mirrors::new(self.mirrors)
    }
}

fn port(text: &str) -> Result<Location, String> {
    bonds::grouped_port("mirror", text)
}

/// The texts of `key` in all sections named `section`.
fn texts<'t>(table: &'t DeTable<'_>, section: &str, key: &'t str) -> impl Iterator<Item = &'t str> {
    let sections = table
        .get(section)
        .and_then(|value| value.get_ref().as_array());
    let tables = sections.into_iter().flat_map(|all| all.iter());
    let tables = tables.filter_map(|item| item.get_ref().as_table());
    tables.filter_map(move |table| table.get(key)?.get_ref().as_str())
}

/// The mirrors that rules of access lists name.
fn names_in_rules(root: &DeTable<'_>) -> BTreeSet<String> {
    let acls = root.get("acl").and_then(|value| value.get_ref().as_array());
    let acls = acls.into_iter().flat_map(|all| all.iter());
    let acls = acls.filter_map(|item| match item.get_ref() {
        DeValue::Table(table) => Some(table),
        _ => None,
    });
    let names = acls.flat_map(|acl| texts(acl, "rule", "mirror"));
    names.map(str::to_owned).collect()
}

/// The names of all mirrors.
pub(super) fn names(root: &DeTable<'_>) -> BTreeSet<String> {
    texts(root, "mirror", "name").map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use control::bond::Bond;

    use super::super::topology;
    use super::super::vlans::Stated;
    use super::*;
    use crate::fields::without_columns;

    fn read(text: &str) -> Result<Stated, Vec<String>> {
        let (mut fields, root) = Fields::parse(text);
        let stated = Stated::read(&mut fields, &root);
        let done = fields.finish("net.toml").map_err(without_columns);
        done.map(|()| stated)
    }

    const MIRROR: &str = "[[mirror]]\nname = \"m\"\nfrom = [\"1:2\", \"1:3\"]\nto = \"1:5\"\n";

    #[test]
    fn mirrors_are_read() {
        let text = format!(
            "{MIRROR}[[mirror]]\nname = \"n\"\nfrom = \"2:1\"\ndirection = \"in\"\nto = \"2:5\"\n\
             [[mirror]]\nname = \"o\"\nto = \"2:5\"\n[[acl]]\nname = \"a\"\n[[acl.rule]]\n\
             allow = true\nmirror = \"o\"\n"
        );
        let stated = read(&text).unwrap();
        let mirrors: Vec<&Mirror> = stated.mirrors.iter().collect();
        let ports: Vec<usize> = mirrors.iter().map(|mirror| mirror.from.len()).collect();
        assert_eq!(ports, [2, 1, 0]);
        let directions = [Direction::Both, Direction::In, Direction::Both];
        let found: Vec<Direction> = mirrors.iter().map(|mirror| mirror.direction).collect();
        assert_eq!(found, directions);
        assert_eq!(mirrors[1].target(), topology::location("2:5").unwrap());
        assert!(stated.has_bonds() && stated.bonds.iter().all(|_: &Bond| false));
    }

    /// A rule copies at each switch with a mirror of its name.
    #[test]
    fn two_switches_may_have_mirrors_of_one_name() {
        let text = "[[mirror]]\nname = \"m\"\nfrom = \"1:2\"\nto = \"1:5\"\n\
                    [[mirror]]\nname = \"m\"\nfrom = \"2:2\"\nto = \"2:5\"\n";
        assert_eq!(read(text).unwrap().mirrors.iter().count(), 2);
    }

    #[test]
    fn the_manuals_example_is_read() {
        const MANUAL: &str = include_str!("../../../docs/run-mirrors.md");
        let (_, text) = MANUAL.split_once("```toml\n").unwrap();
        let (text, _) = text.split_once("```").unwrap();
        assert!(read(text).unwrap().mirrors.iter().count() > 0);
    }

    /// Each case follows a mirror in four lines.
    #[test]
    fn every_mistake_is_named_with_its_line_and_field() {
        let bond = "[[bond]]\nname = \"b\"\nports = [\"1:7\", \"1:8\"]\n";
        let cases = [
            (
                "[[mirror]]\nname = \"m\"\nfrom = \"1:4\"\nto = \"1:6\"".to_owned(),
                "5: name: 'm' is the mirror in line 1 already",
            ),
            (
                "[[mirror]]\nfrom = \"1:4\"\nto = \"1:6\"".to_owned(),
                "5: name is missing",
            ),
            (
                "[[mirror]]\nname = \"n\"\nfrom = \"1:4\"".to_owned(),
                "5: to is missing",
            ),
            (
                "[[mirror]]\nname = \"n\"\nto = \"1:6\"".to_owned(),
                "5: from is missing",
            ),
            (
                "[[mirror]]\nname = \"n\"\nfrom = [\"1:4\",\n\"2:4\"]\nto = \"1:6\"".to_owned(),
                "8: from: 2:4 is at another switch than 1:6",
            ),
            (
                "[[mirror]]\nname = \"n\"\nfrom = \"1:5\"\nto = \"1:6\"".to_owned(),
                "7: from: 1:5 gets the copies of the mirror in line 4",
            ),
            (
                "[[mirror]]\nname = \"n\"\nfrom = \"1:4\"\nto = \"1:2\"".to_owned(),
                "3: from: 1:2 gets the copies of the mirror in line 8",
            ),
            (
                "[[mirror]]\nname = \"n\"\nfrom = \"1:6\"\nto = \"1:6\"".to_owned(),
                "7: from: 1:6 gets the copies of the mirror in line 8",
            ),
            (
                "[[mirror]]\nname = \"n\"\nfrom = \"1:2\"\nto = \"1:5\"".to_owned(),
                "7: from: 1:2 is mirrored to 1:5 in line 3 already",
            ),
            (
                "[[mirror]]\nname = \"n\"\nfrom = \"1:4\"\nto = \"1:6\"\ndirection = \"all\""
                    .to_owned(),
                "9: direction: 'all' is none of both, in, out",
            ),
            (
                "[[mirror]]\nname = \"n\"\nfrom = \"1:65280\"\nto = \"1:6\"".to_owned(),
                "7: from: '1:65280' is no port for a mirror",
            ),
            (
                "[[mirror]]\nname = \"n\"\nfrom = \"1:4\"\nto = \"x\"".to_owned(),
                "8: to: 'x' is not a switch and a port",
            ),
            (
                "[[mirror]]\nname = \"n\"\nfrom = \"1:4\"\nto = \"1:6\"\nvlan = 3".to_owned(),
                "9: 'vlan' is not known in [[mirror]]",
            ),
            (
                format!("{bond}[[mirror]]\nname = \"n\"\nfrom = \"1:8\"\nto = \"1:6\""),
                "10: from: 1:8 belongs to the bond 'b'; state 1:7",
            ),
            (
                format!("{bond}[[mirror]]\nname = \"n\"\nfrom = \"1:4\"\nto = \"1:8\""),
                "11: to: 1:8 belongs to the bond 'b'",
            ),
            (
                "[[port]]\nat = \"1:5\"\nbpdu = \"guard\"".to_owned(),
                "6: at: 1:5 gets the copies of the mirror in line 4",
            ),
            (
                "[[port]]\nat = \"1:5\"\nbind = \"02:00:00:00:00:01\"".to_owned(),
                "6: at: 1:5 gets the copies of the mirror in line 4",
            ),
        ];
        let short = |problems: Vec<String>| {
            let all = problems.join("\n").replace("0000000000000001", "1");
            all.replace("0000000000000002", "2")
        };
        for (text, wanted) in &cases {
            let problems = read(&format!("{MIRROR}{text}\n")).expect_err(text);
            let count = problems.len();
            let all = short(problems);
            assert!(all.contains(&format!("net.toml:{wanted}")), "{text}: {all}");
            assert_eq!(count, 1, "{text}: {all}");
        }
        let other = "[[mirror]]\nname = \"o\"\nfrom = \"1:9\"\n";
        let together = format!(
            "{MIRROR}{}\n{}\n{other}",
            cases[3].0,
            cases[9].0.replace("\"n\"", "\"p\"")
        );
        assert_eq!(read(&together).expect_err("three").len(), 3);
    }
}
