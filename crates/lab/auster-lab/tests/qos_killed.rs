//! The project's own scenario of a controller that is killed while it sets up, with fewer rounds.
//! `AUSTER_KILL_ROUNDS` is the number of rounds of each kind. As root, with Open vSwitch.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use common::lab::{auster, measured};
use serde_json::Value;

const ROUNDS: usize = 3;
const SCENARIO: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../scenarios/qos-killed.toml"
);

#[test]
fn whenever_it_is_killed_nothing_is_half_and_a_new_process_makes_it_whole() {
    let rounds = std::env::var("AUSTER_KILL_ROUNDS").ok();
    let rounds = rounds.map_or(ROUNDS, |rounds| rounds.parse().expect("a number of rounds"));
    let number = rounds.to_string();
    let output = auster(&["lab", "run", SCENARIO, "--json", "--runs", &number]);
    let document = measured(&output);
    let networks = document["networks"].as_array().unwrap();
    assert_eq!(networks.len(), 1, "all rounds share a network");
    let rows = |kind: &str| networks[0][kind].as_array().unwrap().clone();
    let all_are = |rows: &[Value], figures: &[(&str, u64)]| {
        for row in rows {
            for (key, right) in figures {
                assert_eq!(row[key], *right, "{key}: {row}");
            }
        }
    };
    // The parts that could be half done: six links' ports and four hosts', two circuits both ways
    // over four and two switches, and four policies on each switch, two of them a queue at each
    // port. Of others: three entries and a meter of each switch, four ports' records of two rows,
    // and one row alone.
    let extent = rows("extent");
    all_are(
        &extent,
        &[
            ("ports", 10),
            ("circuit_entries", 12),
            ("meters", 4),
            ("foreign", 4 * 4 + 4 * 2 + 1),
            ("same", 1),
            ("cleared", 1),
        ],
    );
    assert!(extent[0]["policy_entries"].as_u64().unwrap() > 4 * 6);
    let killed = rows("killed");
    assert_eq!(killed.len(), 3 * rounds);
    all_are(
        &killed,
        &[
            ("records_half", 0),
            ("circuits_half", 0),
            ("policies_half", 0),
            ("orphans_killed", 0),
            ("orphans", 0),
            ("foreign_changed", 0),
            ("whole", 1),
            ("cleared", 1),
        ],
    );
    for row in &killed {
        let sum = |kind: &str| -> u64 {
            let states = ["whole", "prepared", "absent"].into_iter();
            states
                .map(|state| row[format!("{kind}_{state}")].as_u64().unwrap())
                .sum()
        };
        assert_eq!(
            ["records", "circuits", "policies"].map(sum),
            [10, 4, 4],
            "{row}"
        );
    }
}
