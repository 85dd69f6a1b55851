//! The VLANs of ports: those that the configuration states, and those that the switches' databases
//! add.
//!
//! ```toml
//! vlans = "ovsdb"                      # follow the databases too; default: "file"
//!
//! [[vlan]]
//! id = 10
//! name = "office"                      # optional
//!
//! [[port]]
//! at = "1:2"                           # SWITCH:PORT, one or several
//! access = 10                          # the id or name of a [[vlan]]
//!
//! [[port]]
//! at = "1:3"
//! trunk = [10, "voice"]
//! native = 1                           # optional
//! ```

mod columns;
mod follower;
pub mod last;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

use control::bond::{Bonds, Bpdu};
use control::controller::Location;
use control::mirror::Mirrors;
use control::topology::Topology;
use control::vlan::{PortVlans, VlanId, Vlans};
use toml::de::{DeTable, DeValue};

use super::bonds;
use super::fields::{Fields, Value, items};
use super::mirrors;
use super::qos::tree::is_name;
use super::topology;

pub use follower::{Follower, watch};

/// Gateways are read in [`gateways`](super::gateways), and access lists in
/// [`access`](super::access).
const VLAN: [&str; 6] = ["id", "name", "acl_in", "acl_out", "gateway", "gateway_mac"];
const PORT: [&str; 8] = [
    "at", "access", "trunk", "native", "acl_in", "bind", "bpdu", "crowd",
];
/// The mistake where a port has `acl_out`.
const NO_PORT_OUT: &str = "acl_out: ports have none, as OpenFlow 1.3 has no table behind outputs; \
     state it in [[vlan]], for packets that are routed into the VLAN, or acl_in where packets come \
     in";
const IDS: RangeInclusive<u64> = 1..=4094;

/// The most VLANs that a message names.
const NAMED_MAX: usize = 8;

/// The VLANs that the configuration states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stated {
    /// VLANs without a name have an empty one.
    pub vlans: Vlans,
    /// Whether other ports follow the switches' databases.
    pub is_followed: bool,
    pub bonds: Bonds,
    /// The ports that do not drop spanning trees' messages.
    pub bpdus: BTreeMap<Location, Bpdu>,
    /// The ports that a crowd of new hosts closes.
    pub crowd_guards: BTreeSet<Location>,
    pub mirrors: Mirrors,
    /// The line of each port.
    lines: BTreeMap<Location, usize>,
    /// The line of each port that gets copies.
    targets: BTreeMap<Location, usize>,
}

impl Stated {
    /// Whether any VLANs are stated, or followed.
    pub fn is_any(&self) -> bool {
        self.is_followed || self.vlans != Vlans::default()
    }

    /// Whether any bonds, guards of ports or mirrors are stated.
    pub fn has_bonds(&self) -> bool {
        let has_guards = !self.bpdus.is_empty() || !self.crowd_guards.is_empty();
        !self.bonds.is_empty() || has_guards || !self.mirrors.is_empty()
    }

    /// One line for each port that is an end of a link in the topology, as links carry all VLANs,
    /// and one for each port that gets copies and has a link or host in the topology.
    pub fn ends_of_links(&self, topology: &Topology, file: &str) -> Vec<String> {
        let ends = self.lines.iter().filter(|(at, _)| topology.has_end(**at));
        let told = |(at, line): (&Location, &usize)| {
            format!(
                "{file}:{line}: {at} is an end of a link in the topology, and links carry all \
                 VLANs and have no bonds; take it out of one of the two"
            )
        };
        let is_used = |at: &Location| {
            let mut hosts = topology.hosts();
            topology.has_end(*at) || hosts.any(|(_, place)| place.at == *at)
        };
        let used = self.targets.iter().filter(|(at, _)| is_used(at));
        let used = used.map(|(at, line)| {
            format!(
                "{file}:{line}: to: {at} has a link or a host in the topology, and a port that \
                 gets copies has neither; take it out of one of the two"
            )
        });
        ends.map(told).chain(used).collect()
    }

    /// Reads the VLANs that the file states. Mistakes go to `fields`.
    pub fn read<'a>(fields: &mut Fields<'a>, root: &DeTable<'a>) -> Stated {
        let source = fields.parsed(root, "vlans", "ovsdb", |text| match text {
            "file" => Ok(false),
            "ovsdb" => Ok(true),
            _ => Err(format!("'{text}' is none of file, ovsdb")),
        });
        let named = Named::read(fields, root);
        let mut stated = Stated {
            is_followed: source.unwrap_or(false),
            ..Stated::default()
        };
        let bonds = bonds::Read::of(fields, root);
        let all = bonds.clone().bonds();
        let mirrors = mirrors::Read::of(fields, root, &all);
        for (place, table) in fields.tables_at(root, "port") {
            stated.read_port(fields, (&named, &bonds, &mirrors), &place, table);
        }
        for (at, line) in &bonds.lines {
            stated.lines.entry(*at).or_insert(*line);
        }
        stated.bonds = all;
        stated.targets = mirrors.lines.clone();
        stated.mirrors = mirrors.mirrors();
        stated.vlans.names = named.names;
        stated
    }

    fn read_port<'a>(
        &mut self,
        fields: &mut Fields<'a>,
        (named, bonds, mirrors): (&Named, &bonds::Read, &mirrors::Read),
        place: &Range<usize>,
        table: &DeTable<'a>,
    ) {
        let mut known = PORT.to_vec();
        if let Some(value) = table.get("acl_out") {
            known.push("acl_out");
            fields.problem(&value.span(), NO_PORT_OUT);
        }
        fields.only(table, "[port]", &known);
        if !table.contains_key("at") {
            fields.problem(place, "at is missing: a port such as \"1:2\"");
        }
        let ports = fields.list_at(table, "at", "1:2", topology::edge_port);
        let bpdu = bonds::bpdu(fields, table);
        let crowd = bonds::crowd(fields, table);
        let vlans = port_vlans(fields, named, place, table);
        for (place, at) in ports {
            let line = fields.line(&place);
            if let Some(before) = self.lines.insert(at, line) {
                let problem = format!("at: {at} has its [[port]] already, in line {before}");
                fields.problem(&place, problem);
            }
            bonds.check_port(fields, (&place, at), bpdu, crowd);
            self.crowd_guards.extend(crowd.then_some(at));
            mirrors.check_port(fields, &place, at);
            let bpdu = bpdu.filter(|bpdu| *bpdu != Bpdu::Drop);
            self.bpdus.extend(bpdu.map(|bpdu| (at, bpdu)));
            self.vlans
                .ports
                .extend(vlans.clone().map(|vlans| (at, vlans)));
        }
    }
}

/// The VLANs that ports may refer to.
#[derive(Default)]
struct Named {
    names: BTreeMap<VlanId, String>,
    /// No id where it could not be read: this is one mistake of the VLAN, and none of the ports.
    by_name: BTreeMap<String, Option<VlanId>>,
}

impl Named {
    fn read<'a>(fields: &mut Fields<'a>, root: &DeTable<'a>) -> Named {
        let mut named = Named::default();
        for (place, table) in fields.tables_at(root, "vlan") {
            fields.only(table, "[vlan]", &VLAN);
            if !table.contains_key("id") {
                fields.problem(&place, "id is missing: a number from 1 to 4094");
            }
            let id = fields.integer(table, "id", IDS).and_then(vlan_id);
            let name = fields.parsed(table, "name", "office", name);
            let at = |key: &str| table.get(key).map_or(place.clone(), Value::span);
            if let Some(id) = id
                && named
                    .names
                    .insert(id, name.clone().unwrap_or_default())
                    .is_some()
            {
                fields.problem(&at("id"), format!("id: VLAN {id} is stated already"));
            }
            if let Some(name) = name {
                let problem = format!("name: '{name}' is another VLAN's name already");
                if named.by_name.insert(name, id).is_some() {
                    fields.problem(&at("name"), problem);
                }
            }
        }
        named
    }

    /// The VLAN that a value of `key` refers to by its id or name.
    fn find(&self, fields: &mut Fields<'_>, key: &str, value: &Value<'_>) -> Option<VlanId> {
        match value.get_ref() {
            DeValue::Integer(_) => {
                let id = fields.integer_of(value, key, &IDS).and_then(vlan_id)?;
                if !self.names.contains_key(&id) {
                    let problem = format!("{key}: no [[vlan]] has id {id}; {}", self.known());
                    fields.problem(&value.span(), problem);
                }
                Some(id)
            }
            DeValue::String(name) => {
                let found = self.by_name.get(&**name);
                if found.is_none() {
                    let known = self.known();
                    let problem = format!("{key}: no [[vlan]] has the name '{name}'; {known}");
                    fields.problem(&value.span(), problem);
                }
                found.copied().flatten()
            }
            _ => {
                fields.wrong(value, key, "an id or name such as", "10 or \"office\"");
                None
            }
        }
    }

    fn known(&self) -> String {
        if self.names.is_empty() {
            return "state it as [[vlan]]".to_owned();
        }
        let shown = self.names.iter().take(NAMED_MAX);
        let shown = shown.map(|(id, name)| format!("{id} {name}").trim_end().to_owned());
        let mut shown: Vec<String> = shown.collect();
        if self.names.len() > NAMED_MAX {
            shown.push("...".to_owned());
        }
        format!("state it, or use one of {}", shown.join(", "))
    }
}

fn vlan_id(id: u64) -> Option<VlanId> {
    u16::try_from(id).ok().and_then(VlanId::new)
}

/// A name of a VLAN.
pub fn name(text: &str) -> Result<String, String> {
    if !is_name(text) || text.chars().all(|c| c.is_ascii_digit()) {
        return Err(format!(
            "'{text}' is no name of letters, digits, '-', '_' and '.' with a letter, such as \
             \"office\""
        ));
    }
    Ok(text.to_owned())
}

fn port_vlans(
    fields: &mut Fields<'_>,
    named: &Named,
    place: &Range<usize>,
    table: &DeTable<'_>,
) -> Option<PortVlans> {
    let (access, trunk) = (table.get("access"), table.get("trunk"));
    let native = table.get("native");
    if let (Some(_), Some(trunk)) = (access, trunk) {
        let problem = "access and trunk exclude each other; keep one of them";
        fields.problem(&trunk.span(), problem);
    }
    if let (Some(native), None) = (native, trunk) {
        let problem = "native needs trunk = [...]; with access, untagged packets have their VLAN";
        fields.problem(&native.span(), problem);
    }
    // An unknown key is a mistake of its own.
    if table.keys().all(|key| key.get_ref() == "at") {
        let problem = "access or trunk is missing: access = 10, or trunk = [10, 20]";
        fields.problem(place, problem);
    }
    let access = access.and_then(|value| named.find(fields, "access", value));
    let tagged = tagged(fields, named, table);
    let untagged = native.and_then(|value| named.find(fields, "native", value));
    if let (Some(id), Some(native)) = (untagged, native)
        && tagged.contains(&id)
    {
        let problem = format!("native: VLAN {id} is in trunk too; take it out of one of the two");
        fields.problem(&native.span(), problem);
    }
    match trunk {
        None => access.map(PortVlans::Access),
        Some(_) => Some(PortVlans::Trunk {
            tagged,
            native: untagged,
        }),
    }
}

fn tagged(fields: &mut Fields<'_>, named: &Named, table: &DeTable<'_>) -> BTreeSet<VlanId> {
    let mut tagged = BTreeSet::new();
    let values = items(table, "trunk");
    if let (Some(trunk), true) = (table.get("trunk"), values.is_empty()) {
        let problem = "trunk is empty; list VLANs such as [10, \"voice\"], or use access";
        fields.problem(&trunk.span(), problem);
    }
    for value in values {
        let found = named.find(fields, "trunk", value);
        if let Some(id) = found.filter(|id| !tagged.insert(*id)) {
            fields.problem(&value.span(), format!("trunk: VLAN {id} is listed already"));
        }
    }
    tagged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::without_columns;

    pub(super) fn read(text: &str) -> Result<Stated, Vec<String>> {
        let (mut fields, root) = Fields::parse(text);
        let stated = Stated::read(&mut fields, &root);
        let done = fields.finish("net.toml").map_err(without_columns);
        done.map(|()| stated)
    }

    fn vlan(id: u16) -> VlanId {
        VlanId::new(id).unwrap()
    }

    const VLANS: &str = "[[vlan]]\nid = 10\nname = \"office\"\n[[vlan]]\nid = 20\n";

    #[test]
    fn vlans_and_ports_are_read() {
        let text = format!(
            "vlans = \"ovsdb\"\n{VLANS}[[vlan]]\nid = 1\nname = \"voice\"\n\
             [[port]]\nat = [\"1:2\", \"0x2:7\"]\naccess = \"office\"\n\
             [[port]]\nat = \"1:3\"\ntrunk = [10, \"voice\"]\nnative = 20\n\
             [[port]]\nat = \"1:4\"\ntrunk = 20\n"
        );
        let stated = read(&text).unwrap();
        assert!(stated.is_followed && stated.is_any());
        let names: Vec<(u16, &str)> = stated
            .vlans
            .names
            .iter()
            .map(|(id, name)| (id.number(), name.as_str()))
            .collect();
        assert_eq!(names, [(1, "voice"), (10, "office"), (20, "")]);
        let at = |text| topology::location(text).unwrap();
        let trunk = |ids: &[u16], native: Option<u16>| PortVlans::Trunk {
            tagged: ids.iter().copied().map(vlan).collect(),
            native: native.map(vlan),
        };
        let ports = [
            (at("1:2"), PortVlans::Access(vlan(10))),
            (at("1:3"), trunk(&[1, 10], Some(20))),
            (at("1:4"), trunk(&[20], None)),
            (at("2:7"), PortVlans::Access(vlan(10))),
        ];
        assert_eq!(stated.vlans.ports, ports.into());
        let nothing = read("vlans = \"file\"\n").unwrap();
        assert!(!nothing.is_any(), "{nothing:?}");
        assert!(read(VLANS).unwrap().is_any());
    }

    /// Each case follows two VLANs in five lines: 10, named office, and 20.
    #[test]
    fn every_mistake_is_named_with_its_line_and_field() {
        let cases = [
            (
                "[[vlan]]\nid = 0",
                "7: id is 0; it must be a number from 1 to 4094",
            ),
            (
                "[[vlan]]\nid = 4095",
                "7: id is 4095; it must be a number from 1 to 4094",
            ),
            (
                "[[vlan]]\nid = -3",
                "7: id is -3; it must be a number from 1 to 4094",
            ),
            (
                "[[vlan]]\nid = \"x\"",
                "7: id is \"x\"; it must be a number from 1 to 4094",
            ),
            (
                "[[vlan]]\nname = \"x\"",
                "6: id is missing: a number from 1 to 4094",
            ),
            ("[[vlan]]\nid = 10", "7: id: VLAN 10 is stated already"),
            (
                "[[vlan]]\nid = 30\nname = \"office\"",
                "8: name: 'office' is another VLAN's name already",
            ),
            (
                "[[vlan]]\nid = 30\nname = \"30\"",
                "8: name: '30' is no name of letters, digits, '-', '_' and '.' with a letter, such \
                 as \"office\"",
            ),
            (
                "[[vlan]]\nid = 30\nmtu = 9000",
                "8: 'mtu' is not known in [[vlan]]; known: id, name, acl_in, acl_out, gateway, \
                 gateway_mac",
            ),
            (
                "[[port]]\nat = \"1:2\"\nacess = 10",
                "8: 'acess' is not known in [[port]]; known: at, access, trunk, native, \
                 acl_in, bind, bpdu, crowd; did you mean access?",
            ),
            (
                "[[port]]\nat = \"1:2\"\naccess = 10\nacl_out = \"x\"",
                "9: acl_out: ports have none, as OpenFlow 1.3 has no table behind outputs; state \
                 it in [[vlan]], for packets that are routed into the VLAN, or acl_in where \
                 packets come in",
            ),
            (
                "[[port]]\naccess = 10",
                "6: at is missing: a port such as \"1:2\"",
            ),
            (
                "[[port]]\nat = \"1\"\naccess = 10",
                "7: at: '1' is not a switch and a port such as 1:2",
            ),
            (
                "[[port]]\nat = \"1:local\"\naccess = 10",
                "7: at: '1:local' is no port that a host can be at",
            ),
            (
                "[[port]]\nat = \"1:2\"\naccess = 30",
                "8: access: no [[vlan]] has id 30; state it, or use one of 10 office, 20",
            ),
            (
                "[[port]]\nat = \"1:2\"\naccess = \"ofice\"",
                "8: access: no [[vlan]] has the name 'ofice'; state it, or use one of 10 office, \
                 20",
            ),
            (
                "[[port]]\nat = \"1:2\"\naccess = 4095",
                "8: access is 4095; it must be a number from 1 to 4094",
            ),
            (
                "[[port]]\nat = \"1:2\"\naccess = [10]",
                "8: access is [10]; it must be an id or name such as 10 or \"office\"",
            ),
            (
                "[[port]]\nat = \"1:2\"\naccess = 10\n[[port]]\nat = \"0x1:2\"\naccess = 20",
                "10: at: 0000000000000001:2 has its [[port]] already, in line 7",
            ),
            (
                "[[port]]\nat = \"1:2\"\naccess = 10\ntrunk = [20]",
                "9: access and trunk exclude each other; keep one of them",
            ),
            (
                "[[port]]\nat = \"1:2\"",
                "6: access or trunk is missing: access = 10, or trunk = [10, 20]",
            ),
            (
                "[[port]]\nat = \"1:2\"\naccess = 10\nnative = 20",
                "9: native needs trunk = [...]; with access, untagged packets have their VLAN",
            ),
            (
                "[[port]]\nat = \"1:2\"\ntrunk = [20, 10]\nnative = \"office\"",
                "9: native: VLAN 10 is in trunk too; take it out of one of the two",
            ),
            (
                "[[port]]\nat = \"1:2\"\ntrunk = []",
                "8: trunk is empty; list VLANs such as [10, \"voice\"], or use access",
            ),
            (
                "[[port]]\nat = \"1:2\"\ntrunk = [10, \"office\", 30]",
                "8: trunk: VLAN 10 is listed already\n\
                 8: trunk: no [[vlan]] has id 30; state it, or use one of 10 office, 20",
            ),
            (
                "[vlan]\nid = 3",
                "6: [[vlan]] is there already: write [[vlan]] here too",
            ),
            (
                "port = 3",
                "6: port is 3; it must be sections such as [[port]]",
            ),
        ];
        for (text, expected) in cases {
            let is_top = text.starts_with("port =");
            let text = match is_top {
                true => format!("\n\n\n\n\n{text}\n"),
                false => format!("{VLANS}{text}\n"),
            };
            let found = read(&text).map(|_| text.clone()).unwrap_err();
            let expected: Vec<String> = expected.lines().map(|e| format!("net.toml:{e}")).collect();
            assert_eq!(found, expected, "{text}");
        }
        let found = read("vlans = \"database\"\n").map(|_| ()).unwrap_err();
        assert_eq!(
            found,
            ["net.toml:1: vlans: 'database' is none of file, ovsdb"]
        );
    }

    #[test]
    fn the_manuals_examples_are_read() {
        let manual = include_str!("../../../docs/run-vlans.md");
        let examples: Vec<&str> = manual.split("```toml\n").skip(1).collect();
        let read = |at: usize| {
            let text = examples[at].split("```").next().unwrap();
            let (mut fields, root) = Fields::parse(text);
            let stated = Stated::read(&mut fields, &root);
            fields.finish("run-vlans.md").map(|()| stated).unwrap()
        };
        assert_eq!(read(0).vlans.ports.len(), 2);
        assert!(read(1).is_followed);
        assert_eq!(examples.len(), 2);
    }

    /// A VLAN with a mistake of its own is not reported as unknown to ports.
    #[test]
    fn mistakes_are_named_together_and_once() {
        let text = "[[vlan]]\nid = 0\nname = \"office\"\n\
                    [[port]]\nat = \"1:2\"\naccess = \"office\"\n\
                    [[port]]\nat = \"1:3\"\ntrunk = [7]\nnative = 9\n";
        let expected = [
            "net.toml:2: id is 0; it must be a number from 1 to 4094",
            "net.toml:9: trunk: no [[vlan]] has id 7; state it as [[vlan]]",
            "net.toml:10: native: no [[vlan]] has id 9; state it as [[vlan]]",
        ];
        assert_eq!(read(text).map(|_| ()).unwrap_err(), expected);
    }

    #[test]
    fn an_end_of_a_link_is_named_by_its_line() {
        let text = format!("{VLANS}[[port]]\nat = [\n\"1:2\",\n\"1:3\"]\naccess = 10\n");
        let stated = read(&text).unwrap();
        let end = |text| topology::location(text).unwrap();
        let topology = Topology::new([], &[(end("1:3"), end("2:1"))], &[]).unwrap();
        let expected = "net.toml:9: 0000000000000001:3 is an end of a link in the topology, and \
                        links carry all VLANs and have no bonds; take it out of one of the two";
        assert_eq!(stated.ends_of_links(&topology, "net.toml"), [expected]);
    }
}
