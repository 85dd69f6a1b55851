//! Policy maps in the `external_ids` of a bridge in Open vSwitch's database. An operator gives a
//! relay at the switch its map before the relay has any connection, and reads back the map in use.
//!
//! | key | written by | |
//! | --- | --- | --- |
//! | `auster-pmt` | the operator | the map |
//! | `auster-pmt-gen` | the operator | its generation |
//! | `auster-pmt-sha256` | the operator | its digest |
//! | `auster-pmt-active` | the relay | generation and digest of the map in use, `7:0f4c…` |

use std::collections::BTreeMap;

use ovsdb::{Condition, Datum, Mutation, Mutator, Operation, Row, Uuid};
use sched::PolicyMap;
use sched::policy::{Against, MapDigest};

pub const TEXT: &str = "auster-pmt";
pub const GENERATION: &str = "auster-pmt-gen";
pub const DIGEST: &str = "auster-pmt-sha256";
pub const ACTIVE: &str = "auster-pmt-active";
/// The column of these keys, in table `Bridge`.
pub const COLUMN: &str = "external_ids";

/// The policy keys of one bridge's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgePolicy {
    pub bridge: String,
    keys: BTreeMap<&'static str, String>,
}

impl BridgePolicy {
    pub fn of(row: &Row) -> BridgePolicy {
        let name = row.get("name").and_then(Datum::as_str).unwrap_or_default();
        let ids = row.get(COLUMN);
        let key = |key: &'static str| Some((key, ids?.get(key)?.to_owned()));
        BridgePolicy {
            bridge: name.to_owned(),
            keys: [TEXT, GENERATION, DIGEST, ACTIVE]
                .into_iter()
                .filter_map(key)
                .collect(),
        }
    }

    /// Whether an operator has written anything.
    pub fn is_given(&self) -> bool {
        [TEXT, GENERATION, DIGEST]
            .iter()
            .any(|key| self.get(key).is_some())
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.keys.get(key).map(String::as_str)
    }

    /// Generation and digest as written, where both can be read.
    pub fn named(&self) -> Option<(u64, MapDigest)> {
        Some((
            self.get(GENERATION)?.parse().ok()?,
            self.get(DIGEST)?.parse().ok()?,
        ))
    }

    /// The map, if all three keys are there and agree.
    ///
    /// # Errors
    /// Every problem, a line each.
    pub fn read(&self) -> Result<PolicyMap, String> {
        let mut problems = Vec::new();
        let mut get = |key: &str| {
            let value = self.get(key);
            if value.is_none() {
                problems.push(format!("{key} is missing"));
            }
            value
        };
        let (text, generation, digest) = (get(TEXT), get(GENERATION), get(DIGEST));
        let generation = generation.and_then(|written| match written.parse::<u64>() {
            Ok(generation) => Some(generation),
            Err(_) => {
                problems.push(format!("{GENERATION} is '{written}', which is no number"));
                None
            }
        });
        let digest = digest.and_then(|written| match written.parse::<MapDigest>() {
            Ok(digest) => Some(digest),
            Err(problem) => {
                problems.push(format!("{DIGEST}: {problem}"));
                None
            }
        });
        let against = Against {
            digest,
            ..Against::default()
        };
        let map = text.and_then(|text| match PolicyMap::parse_against(text, &against) {
            Ok((map, _)) => Some(map),
            Err(wrong) => {
                problems.extend(wrong.iter().map(|problem| format!("{TEXT}: {problem}")));
                None
            }
        });
        if let (Some(map), Some(generation)) = (&map, generation)
            && map.generation != generation
        {
            problems.push(format!(
                "E14: {GENERATION} is {generation}, the map's generation {}",
                map.generation
            ));
        }
        match map {
            Some(map) if problems.is_empty() => Ok(map),
            _ => Err(problems.join("\n")),
        }
    }
}

/// The value of [`ACTIVE`] for a map.
pub fn active(generation: u64, digest: &MapDigest) -> String {
    format!("{generation}:{digest}")
}

/// Gives `bridge` a map.
pub fn give(bridge: &str, map: &PolicyMap) -> Operation {
    let keys = [
        (TEXT, map.to_text()),
        (GENERATION, map.generation.to_string()),
        (DIGEST, map.digest().to_string()),
    ];
    set(Condition::equal("name", bridge), &keys)
}

/// Records the map in use in the row of `bridge`.
pub fn tell_active(bridge: Uuid, active: String) -> Operation {
    set(Condition::equal("_uuid", bridge), &[(ACTIVE, active)])
}

/// Sets keys of a row. An insertion does not replace an existing key, so the keys are removed
/// first.
fn set(row: Condition, keys: &[(&str, String)]) -> Operation {
    let names = Datum::set(keys.iter().map(|(key, _)| *key));
    let pairs = Datum::map(keys.iter().map(|(key, value)| (*key, value.as_str())));
    let mutations = vec![
        Mutation::new(COLUMN, Mutator::Delete, names),
        Mutation::new(COLUMN, Mutator::Insert, pairs),
    ];
    Operation::mutate("Bridge", vec![row], mutations)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(keys: &[(&str, &str)]) -> BridgePolicy {
        BridgePolicy::of(&Row::from([
            ("name".to_owned(), Datum::from("br0")),
            (COLUMN.to_owned(), Datum::map(keys.iter().copied())),
        ]))
    }

    #[test]
    fn a_map_is_read_if_its_three_keys_agree_and_else_all_that_is_wrong_is_told() {
        let (map, _) = PolicyMap::parse("Generation: 7\nDefault: action=queue_id:0").unwrap();
        let (text, digest) = (map.to_text(), map.digest().to_string());
        let good = row(&[(TEXT, &text), (GENERATION, "7"), (DIGEST, &digest)]);
        assert_eq!(good.read(), Ok(map.clone()));
        assert_eq!(good.named(), Some((7, map.digest())));

        assert!(!row(&[("other", "1"), (ACTIVE, "7:0")]).is_given());
        let wrong = row(&[(TEXT, "Rule #1: udp_dst=70000"), (DIGEST, "x")]);
        let said = wrong.read().unwrap_err();
        for part in ["auster-pmt-gen is missing", "64 hex digits", "E06", "E12"] {
            assert!(said.contains(part), "{said}");
        }
        let other = row(&[(TEXT, &text), (GENERATION, "8"), (DIGEST, &digest)]);
        assert!(other.read().unwrap_err().contains("E14"));
        let digest = digest.replace(|c: char| c.is_ascii_digit(), "0");
        let other = row(&[(TEXT, &text), (GENERATION, "7"), (DIGEST, &digest)]);
        assert!(other.read().unwrap_err().contains("E15"));
    }
}
