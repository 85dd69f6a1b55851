//! VLANs of ports: the columns `tag`, `trunks` and `vlan_mode` of table Port, with their values
//! unchanged.

use std::collections::BTreeSet;
use std::fmt;

use crate::replica::Row;
use crate::value::{Atom, Datum};

/// The largest number allowed in the columns; no VLAN can have it.
const NUMBER_MAX: u16 = 4095;

/// The columns of a port that are about VLANs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VlanColumns {
    /// VLAN of an access port, or the native VLAN. A number that the schema does not allow is
    /// [`u16::MAX`], here and in `trunks`.
    pub tag: Option<u16>,
    /// VLANs of a trunk; if there are none, the trunk carries all.
    pub trunks: BTreeSet<u16>,
    /// Treatment of tags; without one, a port with a tag is an access port, and any other a trunk.
    pub mode: Option<VlanMode>,
}

/// The values of column `vlan_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlanMode {
    /// Packets have no tag.
    Access,
    /// Packets have a tag.
    Trunk,
    /// A trunk; packets of the native VLAN go out with a tag and may come in without one.
    NativeTagged,
    /// A trunk; packets of the native VLAN have no tag.
    NativeUntagged,
    /// Packets get a second tag around their own.
    Dot1qTunnel,
    /// A value of another schema.
    Unknown,
}

impl VlanColumns {
    pub(super) fn of(row: &Row) -> VlanColumns {
        let tag = row.get("tag").and_then(Datum::as_integer);
        let mode = row.get("vlan_mode").and_then(Datum::as_str);
        VlanColumns {
            tag: tag.map(number),
            trunks: row.get("trunks").map(numbers).unwrap_or_default(),
            mode: mode.map(VlanMode::of),
        }
    }

    /// Reports whether no column is set.
    pub fn is_empty(&self) -> bool {
        *self == VlanColumns::default()
    }
}

impl VlanMode {
    const NAMES: [(&str, VlanMode); 5] = [
        ("access", VlanMode::Access),
        ("trunk", VlanMode::Trunk),
        ("native-tagged", VlanMode::NativeTagged),
        ("native-untagged", VlanMode::NativeUntagged),
        ("dot1q-tunnel", VlanMode::Dot1qTunnel),
    ];

    /// Returns the mode of that name.
    pub fn of(text: &str) -> VlanMode {
        let found = VlanMode::NAMES.iter().find(|(name, _)| *name == text);
        found.map_or(VlanMode::Unknown, |(_, mode)| *mode)
    }

    /// Returns the value as it stands in the column.
    pub fn name(self) -> &'static str {
        let found = VlanMode::NAMES.iter().find(|(_, mode)| *mode == self);
        found.map_or("unknown", |(name, _)| name)
    }
}

/// Formats the columns that are set as `tag=10 trunks=20,30 vlan_mode=native-untagged`.
impl fmt::Display for VlanColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        words.extend(self.tag.map(|tag| format!("tag={tag}")));
        if !self.trunks.is_empty() {
            let trunks: Vec<String> = self.trunks.iter().map(u16::to_string).collect();
            words.push(format!("trunks={}", trunks.join(",")));
        }
        words.extend(self.mode.map(|mode| format!("vlan_mode={}", mode.name())));
        f.write_str(&words.join(" "))
    }
}

fn numbers(datum: &Datum) -> BTreeSet<u16> {
    let Datum::Set(atoms) = datum else {
        return BTreeSet::new();
    };
    let integer = |atom: &Atom| match atom {
        Atom::Integer(n) => Some(number(*n)),
        _ => None,
    };
    atoms.iter().filter_map(integer).collect()
}

fn number(n: i64) -> u16 {
    let number = u16::try_from(n).ok().filter(|n| *n <= NUMBER_MAX);
    number.unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(columns: impl IntoIterator<Item = (&'static str, Datum)>) -> Row {
        let columns = columns.into_iter();
        columns
            .map(|(name, datum)| (name.to_owned(), datum))
            .collect()
    }

    #[test]
    fn columns_are_read_as_they_stand_there() {
        assert!(VlanColumns::of(&Row::new()).is_empty(), "an older schema");
        let unset = || Datum::set::<i64>([]);
        let nothing = row([
            ("tag", unset()),
            ("trunks", unset()),
            ("vlan_mode", unset()),
        ]);
        assert!(VlanColumns::of(&nothing).is_empty());
        let all = VlanColumns::of(&row([
            ("tag", Datum::from(10)),
            ("trunks", Datum::set([20, 30])),
            ("vlan_mode", Datum::from("native-untagged")),
        ]));
        let expected = VlanColumns {
            tag: Some(10),
            trunks: [20, 30].into(),
            mode: Some(VlanMode::NativeUntagged),
        };
        assert_eq!(all, expected);
        assert_eq!(
            all.to_string(),
            "tag=10 trunks=20,30 vlan_mode=native-untagged"
        );
    }

    /// No number is left out: a port must not lose its VLANs for one that the schema forbids.
    #[test]
    fn numbers_that_no_schema_allows_stay_and_are_bounded() {
        for n in [-1, 4096, 70_000, i64::MAX] {
            let columns = VlanColumns::of(&row([
                ("tag", Datum::from(n)),
                ("trunks", Datum::set([0, 4095, n])),
                ("vlan_mode", Datum::from("other")),
            ]));
            assert_eq!(columns.tag, Some(u16::MAX), "{n}");
            assert_eq!(columns.trunks, [0, 4095, u16::MAX].into(), "{n}");
            assert_eq!(columns.mode, Some(VlanMode::Unknown));
        }
    }

    #[test]
    fn modes_have_one_name_each() {
        for (name, mode) in VlanMode::NAMES {
            assert_eq!(VlanMode::of(name), mode);
            assert_eq!(mode.name(), name);
        }
    }
}
