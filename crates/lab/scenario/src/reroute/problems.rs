//! What is wrong with a scenario, all of it together and by field.

use std::collections::BTreeSet;
use std::path::Path;

use crate::reroute::settings::{By, Change, Settings};
use auster::run;
use bench::network::udp;

const RUNS_MAX: u32 = 1000;
const RATE_MBPS_MAX: f64 = 1000.0;
const DELAY_MS_MAX: f64 = 100.0;
const DRAIN_WAIT_S_MAX: u64 = 60;
/// A change is over in a fraction of it, and a stream has to show the time before and after.
const PART_S: std::ops::RangeInclusive<f64> = 0.3..=60.0;
/// A burst and what is between two.
const BURST_S: std::ops::RangeInclusive<f64> = 0.05..=10.0;
/// What fits into one Ethernet frame.
const PAYLOAD_BYTES_MAX: u16 = 1472;

#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn check(&mut self, is_right: bool, field: &str, right: &str) {
        if !is_right {
            self.0.push(format!("{field}: {right}"));
        }
    }
}

pub fn of(settings: &Settings) -> Vec<String> {
    let mut problems = Problems::default();
    let bytes = udp::HEADER_BYTES as u16..=PAYLOAD_BYTES_MAX;
    problems.check(
        bytes.contains(&settings.datagram_bytes),
        "datagram_bytes",
        "24 to 1472",
    );
    let rates = &settings.rates_mbps;
    problems.check(
        !rates.is_empty() && rates.iter().all(is_rate),
        "rates_mbps",
        "above 0 and up to 1000",
    );
    problems.check((1..=RUNS_MAX).contains(&settings.runs), "runs", "1 to 1000");
    for (field, value) in [
        ("before_s", settings.before_s),
        ("after_s", settings.after_s),
    ] {
        problems.check(PART_S.contains(&value), field, "0.3 to 60");
    }
    problems.check(
        !settings.controller.contains_key("drain"),
        "controller",
        "drain is the experiment's to set",
    );
    let text = toml::to_string(&settings.controller).unwrap_or_default();
    if let Err(found) = run::check_settings(&text, Path::new("controller")) {
        problems.0.extend(found);
    }
    problems.check(!settings.changes.is_empty(), "changes", "there is none");
    for change in &settings.changes {
        one_change(change, &mut problems);
    }
    names(settings, &mut problems);
    problems.0
}

fn is_rate(rate_mbps: &f64) -> bool {
    *rate_mbps > 0.0 && *rate_mbps <= RATE_MBPS_MAX
}

fn one_change(change: &Change, problems: &mut Problems) {
    let field = |key: &str| format!("changes '{}': {key}", change.there);
    for (key, value) in [("from_ms", change.from_ms), ("to_ms", change.to_ms)] {
        problems.check(
            (0.0..=DELAY_MS_MAX).contains(&value),
            &field(key),
            "0 to 100",
        );
    }
    problems.check(
        change.after_s.is_none_or(|s| PART_S.contains(&s)),
        &field("after_s"),
        "0.3 to 60",
    );
    let rates = change.rates_mbps.iter().flatten();
    problems.check(
        rates.clone().all(is_rate),
        &field("rates_mbps"),
        "above 0 and up to 1000",
    );
    problems.check(
        change.drain_wait_s <= DRAIN_WAIT_S_MAX,
        &field("drain_wait_s"),
        "0 to 60",
    );
    problems.check(
        change.drain_wait_s == 0 || change.by == By::Administrator,
        &field("drain_wait_s"),
        "a cable does not wait; by = \"administrator\"",
    );
    if let Some(bursts) = change.bursts {
        let is_right = |s: f64| BURST_S.contains(&s);
        problems.check(
            is_right(bursts.send_s) && is_right(bursts.rest_s),
            &field("bursts"),
            "send_s and rest_s 0.05 to 10",
        );
        problems.check(
            change.by == By::Administrator,
            &field("bursts"),
            "a cable does not wait for a pause; by = \"administrator\"",
        );
    }
}

/// Rows have a name each, and what speaks of rows names some that there are.
fn names(settings: &Settings, problems: &mut Problems) {
    let mut seen = BTreeSet::new();
    for name in settings.names() {
        let field = format!("row '{name}'");
        problems.check(seen.insert(name), &field, "there are two of that name");
    }
    for name in settings.claims.names() {
        problems.check(
            seen.contains(name),
            "claims",
            &format!("no row is called '{name}'"),
        );
    }
    let claims = &settings.claims;
    let bounds = claims
        .lost_ms_max
        .values()
        .chain(claims.reordered_ms_max.values());
    problems.check(
        bounds.clone().all(|ms| (0.0..=60_000.0).contains(ms)),
        "claims",
        "lost_ms_max and reordered_ms_max: 0 to 60000",
    );
}

#[cfg(test)]
mod tests {
    use crate::reroute::settings::Scenario;

    const RIGHT: &str = "\
title = 'x'
[reroute]
datagram_bytes = 1470
rates_mbps = [5]
runs = 2
before_s = 0.5
after_s = 1
[reroute.controller]
mode = 'hybrid'
[[reroute.changes]]
there = 'a'
back = 'b'
by = 'administrator'
from_ms = 1
to_ms = 4
[reroute.claims]
none_lost = ['a', 'b']
lost_ms_max = { a = 5 }
";

    fn problem(of: &str, with: &str) -> String {
        assert!(RIGHT.contains(of), "{of}");
        Scenario::parse(&RIGHT.replacen(of, with, 1)).unwrap_err()
    }

    #[test]
    fn each_field_is_refused_by_its_name() {
        Scenario::parse(RIGHT).unwrap();
        let cases = [
            ("= 1470", "= 23", "datagram_bytes: 24 to 1472"),
            ("[5]", "[]", "rates_mbps: above 0"),
            ("runs = 2", "runs = 0", "runs: 1 to 1000"),
            ("before_s = 0.5", "before_s = 0.1", "before_s: 0.3 to 60"),
            ("after_s = 1", "after_s = nan", "after_s: 0.3 to 60"),
            ("'hybrid'", "'hybryd'", "hybryd"),
            (
                "mode = 'hybrid'",
                "mode = 'hybrid'\ndrain = ['0x1']",
                "controller: drain is the experiment's",
            ),
            (
                "'administrator'",
                "'nobody'",
                "line 13: unknown variant `nobody`",
            ),
            (
                "from_ms = 1",
                "from_ms = -1",
                "changes 'a': from_ms: 0 to 100",
            ),
            ("to_ms = 4", "to_ms = 101", "changes 'a': to_ms: 0 to 100"),
            (
                "to_ms = 4",
                "to_ms = 4\nspeed = 1",
                "line 16: unknown field `speed`",
            ),
            (
                "to_ms = 4",
                "to_ms = 4\nafter_s = 0",
                "changes 'a': after_s: 0.3 to 60",
            ),
            (
                "to_ms = 4",
                "to_ms = 4\nbursts = { send_s = 0, rest_s = 1 }",
                "changes 'a': bursts: send_s",
            ),
            (
                "by = 'administrator'",
                "by = 'cable'\nbursts = { send_s = 1, rest_s = 1 }",
                "changes 'a': bursts: a cable",
            ),
            (
                "to_ms = 4",
                "to_ms = 4\ndrain_wait_s = 61",
                "changes 'a': drain_wait_s: 0 to 60",
            ),
            (
                "by = 'administrator'",
                "by = 'cable'\ndrain_wait_s = 1",
                "changes 'a': drain_wait_s: a cable",
            ),
            (
                "to_ms = 4",
                "to_ms = 4\nrates_mbps = [0]",
                "changes 'a': rates_mbps: above 0",
            ),
            ("back = 'b'", "back = 'a'", "row 'a': there are two"),
            ("['a', 'b']", "['c']", "claims: no row is called 'c'"),
            ("a = 5", "a = -5", "claims: lost_ms_max"),
        ];
        for (of, with, right) in cases {
            let found = problem(of, with);
            assert!(found.contains(right), "{with}: {found}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_told_together() {
        let text = RIGHT
            .replace("runs = 2", "runs = 0")
            .replace("to_ms = 4", "to_ms = -4");
        let found = Scenario::parse(&text).unwrap_err();
        assert!(
            found.contains("runs: 1 to 1000; changes 'a': to_ms"),
            "{found}"
        );
    }
}
