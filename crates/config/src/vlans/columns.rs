//! The meaning of a database's VLAN columns, together with the configuration.
//!
//! Open vSwitch's meaning is followed exactly (ovs-vswitchd.conf.db(5), VLAN configuration).
//! Otherwise the port's packets belong to no VLAN, and a line states the reason. So no packet gets
//! into another VLAN than its switch alone would put it into.

use std::collections::{BTreeMap, BTreeSet};

use control::controller::Location;
use control::vlan::{PortVlans, VlanId, Vlans};
use ovsdb::vswitch::vlan::{VlanColumns, VlanMode};

use super::Stated;

/// A port with values in its VLAN columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub at: Location,
    pub name: String,
    pub columns: VlanColumns,
}

/// The VLANs of all ports, and one line for each port whose columns are not followed as they stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Combined {
    pub vlans: Vlans,
    pub lines: BTreeMap<Location, String>,
}

/// The VLANs that columns give a port.
enum Meaning {
    Access(VlanId),
    /// An empty set means all VLANs that exist.
    Trunk(BTreeSet<VlanId>),
    NativeUntagged(VlanId, BTreeSet<VlanId>),
}

/// Combines the databases' VLANs with those of the configuration, which take precedence.
pub fn combine<'r>(stated: &Stated, rows: impl IntoIterator<Item = &'r Row>) -> Combined {
    let mut combined = Combined {
        vlans: stated.vlans.clone(),
        lines: BTreeMap::new(),
    };
    let rows = rows.into_iter().filter(|row| !row.columns.is_empty());
    if !stated.is_followed {
        let unstated = rows.filter(|row| !stated.vlans.ports.contains_key(&row.at));
        combined.lines = unstated.map(|row| (row.at, not_followed(row))).collect();
        return combined;
    }
    let mut read: BTreeMap<Location, (&Row, Result<Meaning, String>)> = BTreeMap::new();
    for row in rows {
        let twice = read.get(&row.at).map(|(other, _)| other.name.as_str());
        let meaning = match twice {
            Some(other) => Err(format!("{other} has the same OpenFlow number; change it")),
            None => meaning(&row.columns),
        };
        read.insert(row.at, (row, meaning));
    }
    let exist = existing(&stated.vlans, read.values().map(|(_, meaning)| meaning));
    for (at, (row, meaning)) in read {
        let vlans = meaning.map(|meaning| meaning.vlans(&exist));
        let line = match (stated.vlans.ports.get(&at), &vlans) {
            (Some(ours), Ok(theirs)) if ours == theirs => continue,
            (Some(_), _) => Some(overruled(row)),
            (None, Err(problem)) => Some(refused(row, problem)),
            (None, Ok(_)) => without_effect(row),
        };
        combined.lines.extend(line.map(|line| (at, line)));
        // The port is a member of no VLAN, so its packets go nowhere.
        let vlans = vlans.unwrap_or(PortVlans::Trunk {
            tagged: BTreeSet::new(),
            native: None,
        });
        combined.vlans.ports.entry(at).or_insert(vlans);
    }
    for id in exist {
        combined.vlans.names.entry(id).or_default();
    }
    combined
}

/// The VLANs named by the configuration or a port's columns.
fn existing<'m>(
    stated: &Vlans,
    read: impl Iterator<Item = &'m Result<Meaning, String>>,
) -> BTreeSet<VlanId> {
    let mut exist: BTreeSet<VlanId> = stated.names.keys().copied().collect();
    for meaning in read.filter_map(|read| read.as_ref().ok()) {
        match meaning {
            Meaning::Access(id) => drop(exist.insert(*id)),
            Meaning::Trunk(ids) => exist.extend(ids),
            Meaning::NativeUntagged(id, ids) => {
                exist.insert(*id);
                exist.extend(ids);
            }
        }
    }
    exist
}

impl Meaning {
    fn vlans(self, exist: &BTreeSet<VlanId>) -> PortVlans {
        let (native, listed) = match self {
            Meaning::Access(id) => return PortVlans::Access(id),
            Meaning::Trunk(listed) => (None, listed),
            Meaning::NativeUntagged(native, listed) => (Some(native), listed),
        };
        let mut tagged = match listed.is_empty() {
            true => exist.clone(),
            false => listed,
        };
        tagged.retain(|id| Some(*id) != native);
        PortVlans::Trunk { tagged, native }
    }
}

fn meaning(columns: &VlanColumns) -> Result<Meaning, String> {
    let mode = columns.mode.unwrap_or(match columns.tag {
        Some(_) => VlanMode::Access,
        None => VlanMode::Trunk,
    });
    match mode {
        VlanMode::Access => Ok(Meaning::Access(tag(columns, mode)?)),
        VlanMode::Trunk => Ok(Meaning::Trunk(trunks(columns)?)),
        VlanMode::NativeUntagged => {
            let native = tag(columns, mode)?;
            Ok(Meaning::NativeUntagged(native, trunks(columns)?))
        }
        VlanMode::NativeTagged => Err(
            "vlan_mode=native-tagged is not supported; set native-untagged, or trunk with the tag \
             among trunks"
                .to_owned(),
        ),
        VlanMode::Dot1qTunnel => Err(
            "vlan_mode=dot1q-tunnel is not supported; set access, or trunk with the VLANs in trunks"
                .to_owned(),
        ),
        VlanMode::Unknown => Err(
            "vlan_mode is not known; set access, trunk or native-untagged".to_owned(),
        ),
    }
}

fn tag(columns: &VlanColumns, mode: VlanMode) -> Result<VlanId, String> {
    let Some(tag) = columns.tag else {
        let mode = mode.name();
        return Err(format!(
            "vlan_mode={mode} needs a tag; set tag to 1 to 4094"
        ));
    };
    VlanId::new(tag).ok_or_else(|| "tag is no VLAN; set it to 1 to 4094".to_owned())
}

fn trunks(columns: &VlanColumns) -> Result<BTreeSet<VlanId>, String> {
    let ids = columns.trunks.iter().map(|id| VlanId::new(*id));
    let ids: Option<BTreeSet<VlanId>> = ids.collect();
    ids.ok_or_else(|| "trunks has a number that is no VLAN; list 1 to 4094 only".to_owned())
}

/// The beginning of a line: the port's name and number, and its columns.
fn port(row: &Row) -> String {
    let Row { at, name, columns } = row;
    format!("{name} ({at}) has {columns} in the database")
}

fn not_followed(row: &Row) -> String {
    let port = port(row);
    format!("{port}, which auster does not follow; state it as [[port]] or set vlans = \"ovsdb\"")
}

fn overruled(row: &Row) -> String {
    let port = port(row);
    format!("{port} and other VLANs in its [[port]], which holds; make them equal, or remove one")
}

fn refused(row: &Row, problem: &str) -> String {
    let port = port(row);
    format!("{port}: its packets belong to no VLAN, as {problem}")
}

/// A line for columns that Open vSwitch ignores as well.
fn without_effect(row: &Row) -> Option<String> {
    let columns = &row.columns;
    let is_trunk = columns.mode == Some(VlanMode::Trunk);
    let is_native = columns.mode == Some(VlanMode::NativeUntagged);
    let ignored = match (columns.tag, columns.trunks.is_empty()) {
        (Some(_), _) if is_trunk => "tag",
        (Some(_), false) if !is_native => "trunks",
        _ => return None,
    };
    let port = port(row);
    Some(format!(
        "{port}; {ignored} has no effect there: clear it, or change vlan_mode"
    ))
}

#[cfg(test)]
mod tests {
    use openflow::{DatapathId, PortNo};
    use proptest::prelude::*;

    use super::*;

    fn at(port: u32) -> Location {
        Location::new(DatapathId(1), PortNo(port))
    }

    fn row(port: u32, tag: Option<u16>, trunks: &[u16], mode: Option<VlanMode>) -> Row {
        Row {
            at: at(port),
            name: format!("s1-eth{port}"),
            columns: VlanColumns {
                tag,
                trunks: trunks.iter().copied().collect(),
                mode,
            },
        }
    }

    fn vlan(id: u16) -> VlanId {
        VlanId::new(id).unwrap()
    }

    fn trunk(tagged: &[u16], native: Option<u16>) -> PortVlans {
        PortVlans::Trunk {
            tagged: tagged.iter().copied().map(vlan).collect(),
            native: native.map(vlan),
        }
    }

    fn followed() -> Stated {
        Stated {
            is_followed: true,
            ..Stated::default()
        }
    }

    #[test]
    fn columns_become_the_vlans_of_their_port() {
        use VlanMode::{Access, NativeUntagged, Trunk};
        let rows = [
            row(1, Some(10), &[], None),
            row(2, Some(10), &[], Some(Access)),
            row(3, None, &[10, 20], None),
            row(4, None, &[20], Some(Trunk)),
            row(5, Some(30), &[20, 30], Some(NativeUntagged)),
            row(6, None, &[], Some(Trunk)),
            row(7, Some(40), &[], Some(NativeUntagged)),
            row(8, None, &[], None),
        ];
        let Combined { vlans, lines } = combine(&followed(), &rows);
        let expected = [
            (at(1), PortVlans::Access(vlan(10))),
            (at(2), PortVlans::Access(vlan(10))),
            (at(3), trunk(&[10, 20], None)),
            (at(4), trunk(&[20], None)),
            (at(5), trunk(&[20], Some(30))),
            (at(6), trunk(&[10, 20, 30, 40], None)),
            (at(7), trunk(&[10, 20, 30], Some(40))),
        ];
        assert_eq!(vlans.ports, expected.into());
        let exist: Vec<u16> = vlans.names.keys().map(|id| id.number()).collect();
        assert_eq!(exist, [10, 20, 30, 40]);
        assert_eq!(lines, BTreeMap::new());
    }

    /// Each line names the port, its switch, the column and the remedy.
    #[test]
    fn columns_that_cannot_be_followed_leave_the_port_without_vlans() {
        use VlanMode::{Access, Dot1qTunnel, NativeTagged, NativeUntagged, Trunk, Unknown};
        let cases = [
            (
                row(2, Some(10), &[], Some(Dot1qTunnel)),
                "vlan_mode=dot1q-tunnel",
                "set access",
            ),
            (
                row(2, Some(10), &[], Some(NativeTagged)),
                "vlan_mode=native-tagged",
                "set native-u",
            ),
            (
                row(2, Some(10), &[], Some(Unknown)),
                "vlan_mode",
                "set access",
            ),
            (
                row(2, None, &[], Some(Access)),
                "vlan_mode=access needs a tag",
                "set tag",
            ),
            (
                row(2, None, &[10], Some(NativeUntagged)),
                "needs a tag",
                "set tag",
            ),
            (
                row(2, Some(0), &[], None),
                "tag is no VLAN",
                "set it to 1 to 4094",
            ),
            (
                row(2, Some(4095), &[], None),
                "tag is no VLAN",
                "set it to 1 to 4094",
            ),
            (
                row(2, Some(u16::MAX), &[], Some(Access)),
                "tag is no VLAN",
                "set it to 1 to 4094",
            ),
            (
                row(2, None, &[0, 10], None),
                "trunks has a number",
                "list 1 to 4094 only",
            ),
            (
                row(2, None, &[10, u16::MAX], Some(Trunk)),
                "trunks has a number",
                "list 1",
            ),
        ];
        for (row, column, remedy) in cases {
            let Combined { vlans, lines } = combine(&followed(), [&row]);
            assert_eq!(vlans.ports, [(at(2), trunk(&[], None))].into(), "{row:?}");
            let line = &lines[&at(2)];
            for part in ["s1-eth2 (0000000000000001:2)", column, remedy, "no VLAN"] {
                assert!(line.contains(part), "{line} lacks {part}");
            }
        }
    }

    #[test]
    fn columns_without_effect_are_named() {
        let access = row(1, Some(10), &[20], None);
        let fixed = row(2, Some(10), &[20], Some(VlanMode::Trunk));
        let Combined { vlans, lines } = combine(&followed(), [&access, &fixed]);
        let expected = [
            (at(1), PortVlans::Access(vlan(10))),
            (at(2), trunk(&[20], None)),
        ];
        assert_eq!(vlans.ports, expected.into());
        assert!(
            lines[&at(1)].contains("; trunks has no effect"),
            "{lines:?}"
        );
        assert!(lines[&at(2)].contains("; tag has no effect"), "{lines:?}");
    }

    #[test]
    fn two_ports_of_one_number_belong_to_no_vlan() {
        let mut other = row(1, Some(20), &[], None);
        other.name = "s1-eth9".to_owned();
        let rows = [row(1, Some(10), &[], None), other];
        let Combined { vlans, lines } = combine(&followed(), &rows);
        assert_eq!(vlans.ports, [(at(1), trunk(&[], None))].into());
        assert!(lines[&at(1)].contains("s1-eth1 has the same"), "{lines:?}");
    }

    #[test]
    fn the_file_goes_first_and_a_line_says_so() {
        let mut stated = followed();
        stated
            .vlans
            .ports
            .insert(at(1), PortVlans::Access(vlan(20)));
        let others = row(1, Some(10), &[], None);
        let Combined { vlans, lines } = combine(&stated, [&others]);
        assert_eq!(vlans.ports, stated.vlans.ports);
        let line = &lines[&at(1)];
        assert!(line.contains("its [[port]], which holds"), "{line}");
        let same = row(1, Some(20), &[], None);
        assert_eq!(combine(&stated, [&same]).lines, BTreeMap::new());
        let tunnel = row(1, Some(20), &[], Some(VlanMode::Dot1qTunnel));
        let Combined { vlans, lines } = combine(&stated, [&tunnel]);
        assert_eq!(vlans.ports, stated.vlans.ports);
        assert!(lines[&at(1)].contains("which holds"), "{lines:?}");
    }

    #[test]
    fn databases_that_are_not_followed_are_named() {
        let mut stated = Stated::default();
        stated
            .vlans
            .ports
            .insert(at(1), PortVlans::Access(vlan(20)));
        let rows = [
            row(1, Some(10), &[], None),
            row(2, Some(20), &[], None),
            row(3, None, &[], None),
        ];
        let Combined { vlans, lines } = combine(&stated, &rows);
        assert_eq!(vlans, stated.vlans);
        let line = "s1-eth2 (0000000000000001:2) has tag=20 in the database, which auster does not \
                    follow; state it as [[port]] or set vlans = \"ovsdb\"";
        assert_eq!(lines, [(at(2), line.to_owned())].into());
    }

    /// The VLAN that Open vSwitch puts a packet into, where 0 is its VLAN for untagged packets.
    /// `None` if it drops the packet, or the outcome depends on a second tag.
    fn in_open_vswitch(columns: &VlanColumns, tag: Option<u16>) -> Option<u16> {
        let own = columns.tag.filter(|tag| *tag <= 4095);
        let implied = match own {
            Some(_) => VlanMode::Access,
            None => VlanMode::Trunk,
        };
        let tag = tag.unwrap_or(0);
        let is_carried = |id| columns.trunks.is_empty() || columns.trunks.contains(&id);
        match columns.mode.unwrap_or(implied) {
            VlanMode::Access => (tag == 0).then_some(own.unwrap_or(0)),
            VlanMode::Trunk => is_carried(tag).then_some(tag),
            VlanMode::NativeTagged | VlanMode::NativeUntagged => {
                let native = own.unwrap_or(0);
                let id = if tag == 0 { native } else { tag };
                (id == native || is_carried(id)).then_some(id)
            }
            VlanMode::Dot1qTunnel | VlanMode::Unknown => None,
        }
    }

    /// The outcome of `ofproto/trace` in Open vSwitch 3.1 for packets without a tag, and with tags
    /// 0, 10, 20 and 30.
    #[test]
    fn the_model_of_open_vswitch_agrees_with_its_own_trace() {
        use VlanMode::{Access, NativeTagged, NativeUntagged, Trunk};
        let all = [Some(0), Some(0), Some(10), Some(20), Some(30)];
        let access = |id| [Some(id), Some(id), None, None, None];
        let traced = [
            ((None, &[][..], None), all),
            ((Some(10), &[], None), access(10)),
            ((Some(0), &[], None), access(0)),
            ((Some(10), &[20], None), access(10)),
            (
                (None, &[10, 20], None),
                [None, None, Some(10), Some(20), None],
            ),
            (
                (None, &[0, 20], None),
                [Some(0), Some(0), None, Some(20), None],
            ),
            ((None, &[], Some(Access)), access(0)),
            ((None, &[], Some(Trunk)), all),
            ((Some(10), &[], Some(Trunk)), all),
            (
                (Some(10), &[20], Some(Trunk)),
                [None, None, None, Some(20), None],
            ),
            (
                (Some(10), &[], Some(NativeUntagged)),
                [Some(10), Some(10), Some(10), Some(20), Some(30)],
            ),
            (
                (Some(10), &[20], Some(NativeUntagged)),
                [Some(10), Some(10), Some(10), Some(20), None],
            ),
            (
                (None, &[20], Some(NativeUntagged)),
                [Some(0), Some(0), None, Some(20), None],
            ),
            (
                (Some(10), &[20], Some(NativeTagged)),
                [Some(10), Some(10), Some(10), Some(20), None],
            ),
        ];
        for ((tag, trunks, mode), expected) in traced {
            let columns = row(1, tag, trunks, mode).columns;
            let tags = [None, Some(0), Some(10), Some(20), Some(30)];
            let found = tags.map(|tag| in_open_vswitch(&columns, tag));
            assert_eq!(found, expected, "{columns}");
        }
    }

    fn columns() -> impl Strategy<Value = VlanColumns> {
        let number = || {
            let edges = prop::sample::select(vec![0, 1, 4094, 4095, 4096, u16::MAX]);
            prop_oneof![4 => 0u16..6, 1 => edges]
        };
        let modes = vec![
            VlanMode::Access,
            VlanMode::Trunk,
            VlanMode::NativeTagged,
            VlanMode::NativeUntagged,
            VlanMode::Dot1qTunnel,
            VlanMode::Unknown,
        ];
        let mode = prop::option::of(prop::sample::select(modes));
        let trunks = prop::collection::btree_set(number(), 0..4);
        let all = (prop::option::of(number()), trunks, mode);
        all.prop_map(|(tag, trunks, mode)| VlanColumns { tag, trunks, mode })
    }

    fn port_vlans() -> impl Strategy<Value = PortVlans> {
        let id = || (1u16..6).prop_map(vlan);
        let tagged = prop::collection::btree_set(id(), 0..3);
        let trunk = (tagged, prop::option::of(id())).prop_map(|(mut tagged, native)| {
            tagged.retain(|id| Some(*id) != native);
            PortVlans::Trunk { tagged, native }
        });
        prop_oneof![id().prop_map(PortVlans::Access), trunk]
    }

    fn stated() -> impl Strategy<Value = Stated> {
        let ports = prop::collection::btree_map((1u32..8).prop_map(at), port_vlans(), 0..4);
        (any::<bool>(), ports).prop_map(|(is_followed, ports)| {
            let mut stated = Stated {
                is_followed,
                ..Stated::default()
            };
            stated.vlans.ports = ports;
            stated
        })
    }

    proptest! {
        /// Every packet is in the VLAN that the file states, in that of its switch alone, or in
        /// none. A port whose columns auster does not follow has a line.
        #[test]
        fn no_packet_gets_into_another_vlan(
            stated in stated(),
            columns in prop::collection::vec((1u32..8, columns()), 0..8),
        ) {
            let rows: Vec<Row> = columns
                .into_iter()
                .map(|(port, columns)| Row { columns, ..row(port, None, &[], None) })
                .collect();
            let Combined { vlans, lines } = combine(&stated, &rows);
            for port in 1..8 {
                let ours = stated.vlans.ports.get(&at(port));
                let theirs: Vec<&VlanColumns> = rows
                    .iter()
                    .filter(|row| row.at == at(port) && !row.columns.is_empty())
                    .map(|row| &row.columns)
                    .collect();
                for tag in [None].into_iter().chain((0..8).chain(4093..4097).map(Some)) {
                    let found = vlans.classify(at(port), tag);
                    if ours.is_some() || theirs.is_empty() || !stated.is_followed {
                        prop_assert_eq!(found, stated.vlans.classify(at(port), tag));
                        continue;
                    }
                    let Some(found) = found else { continue };
                    prop_assert_eq!(theirs.len(), 1);
                    prop_assert_eq!(Some(found.number()), in_open_vswitch(theirs[0], tag));
                    prop_assert!(!found.is_none(), "a port with columns is outside of all VLANs");
                }
                let is_ignored = !theirs.is_empty() && ours.is_none() && !stated.is_followed;
                prop_assert!(!is_ignored || lines.contains_key(&at(port)));
                let is_closed = vlans.ports.get(&at(port)) == Some(&trunk(&[], None));
                let is_refused = ours.is_none() && is_closed;
                let is_trunk_of_all = theirs.iter().any(|columns| columns.trunks.is_empty());
                prop_assert!(!is_refused || is_trunk_of_all || lines.contains_key(&at(port)));
            }
        }
    }
}
