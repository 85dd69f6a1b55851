//! All errors of a scenario at once, by field.

use std::collections::BTreeSet;
use std::path::Path;

use crate::table::settings::{Cells, Claims, Kind, Settings};
use auster::run;
use testbed::topology::Topology;

const SECONDS_MAX: f64 = 3600.0;
const AT_ONCE_MAX: u32 = 16;
/// The entries are addresses of hosts at one port, of which a controller may allow no more.
const DESTINATIONS_MAX: u16 = 4096;

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
    times((settings.seconds, settings.runs), &mut problems, |field| {
        field.to_owned()
    });
    problems.check(
        (0.0..=SECONDS_MAX).contains(&settings.fits_idle_s),
        "fits_idle_s",
        "0 to 3600",
    );
    problems.check(
        (1..=DESTINATIONS_MAX).contains(&settings.destinations),
        "destinations",
        "1 to 4096",
    );
    problems.check(
        settings.seed.checked_add(settings.runs.into()).is_some(),
        "seed",
        "room for one more per run",
    );
    policies(settings, &mut problems);
    cells("cells", &settings.cells, &mut problems);
    if let Some(quick) = &settings.quick {
        times((quick.seconds, quick.runs), &mut problems, |field| {
            format!("quick.{field}")
        });
        cells("quick.cells", &quick.cells, &mut problems);
    }
    claims(settings, &mut problems);
    problems.0
}

fn times((seconds, runs): (f64, u32), problems: &mut Problems, field: impl Fn(&str) -> String) {
    problems.check(
        (1.0..=SECONDS_MAX).contains(&seconds),
        &field("seconds"),
        "1 to 3600",
    );
    problems.check((1..=100).contains(&runs), &field("runs"), "1 to 100");
}

fn policies(settings: &Settings, problems: &mut Problems) {
    problems.check(
        !settings.policies.is_empty(),
        "policies",
        "name at least one",
    );
    let mut seen = BTreeSet::new();
    for policy in &settings.policies {
        let name = &policy.name;
        let field = |key: &str| format!("policies '{name}'{key}");
        problems.check(
            seen.insert(name.as_str()),
            &field(""),
            "there are two of that name",
        );
        let simulated = policy.simulated;
        let is_fixed = simulated.kind == Kind::Fixed;
        let has_times = simulated.idle_s.is_some() || simulated.hard_s.is_some();
        problems.check(
            is_fixed || !has_times,
            &field(": simulated"),
            "idle_s and hard_s are for fixed",
        );
        problems.check(
            !simulated.aggregate || simulated.kind == Kind::Lease,
            &field(": simulated"),
            "aggregate is for lease",
        );
        let text = toml::to_string(&policy.config(1000)).unwrap_or_default();
        if let Err(found) = run::check_settings(&text, Path::new(&field(": controller"))) {
            problems.0.extend(found);
        }
    }
}

fn cells(name: &str, all: &[Cells], problems: &mut Problems) {
    problems.check(!all.is_empty(), name, "name at least one");
    for (number, cells) in all.iter().enumerate() {
        let field = |key: &str| format!("{name} {}: {key}", number + 1);
        problems.check(
            (20..=1_000_000).contains(&cells.entries),
            &field("entries"),
            "20 to 1000000",
        );
        let are_loads = cells
            .loads
            .iter()
            .all(|load| (0.001..=100.0).contains(load));
        problems.check(
            are_loads && !cells.loads.is_empty(),
            &field("loads"),
            "0.001 to 100 times what fits, at least one",
        );
        problems.check(
            (1..=AT_ONCE_MAX).contains(&cells.at_once),
            &field("at_once"),
            "1 to 16",
        );
        match Topology::generate(&cells.topology, None) {
            Ok(topology) => problems.check(
                topology.hosts.len() >= 2,
                &field("topology"),
                "it takes two hosts",
            ),
            Err(problem) => problems.check(false, &field("topology"), &problem),
        }
    }
}

fn claims(settings: &Settings, problems: &mut Problems) {
    let Claims {
        bounded,
        never_full,
        none_lost,
        none_active_evicted,
        fewer_misses,
        simulated_ratio_max,
    } = &settings.claims;
    let alone = [
        ("bounded", bounded),
        ("never_full", never_full),
        ("none_lost", none_lost),
        ("none_active_evicted", none_active_evicted),
    ];
    let alone = alone
        .into_iter()
        .flat_map(|(claim, names)| names.iter().map(move |name| (claim, name)));
    let pairs = fewer_misses.iter().flatten();
    for (claim, name) in alone.chain(pairs.map(|name| ("fewer_misses", name))) {
        problems.check(
            settings.policies.iter().any(|policy| policy.name == *name),
            &format!("claims.{claim}"),
            &format!("no policy is called '{name}'"),
        );
    }
    problems.check(
        simulated_ratio_max.is_none_or(|ratio| ratio >= 1.0),
        "claims.simulated_ratio_max",
        "1 or more",
    );
}

#[cfg(test)]
mod tests {
    use crate::table::settings::Scenario;

    const RIGHT: &str = "\
title = 'x'
[table]
seconds = 3
runs = 1
[[table.policies]]
name = 'lease'
tell_limit = true
simulated = { kind = 'lease' }
[table.policies.controller.timeouts]
policy = 'lease'
[[table.policies]]
name = 'ten'
simulated = { kind = 'fixed', idle_s = 10 }
[[table.cells]]
entries = 1000
loads = [1]
[table.claims]
bounded = ['lease']
fewer_misses = [['lease', 'ten']]
";

    #[test]
    fn each_field_is_refused_by_its_name() {
        Scenario::parse(RIGHT).unwrap();
        let cases = [
            ("seconds = 3", "seconds = 0", "seconds: 1 to 3600"),
            ("runs = 1", "runs = 0", "runs: 1 to 100"),
            ("runs = 1", "rnus = 1", "line 4: unknown field `rnus`"),
            (
                "runs = 1",
                "runs = 1\ndestinations = 0",
                "destinations: 1 to",
            ),
            (
                "runs = 1",
                "runs = 1\nfits_idle_s = -1",
                "fits_idle_s: 0 to",
            ),
            ("'ten'\n", "'lease'\n", "policies 'lease': there are two"),
            (
                "kind = 'lease'",
                "kind = 'lease', idle_s = 1",
                "simulated: idle_s and",
            ),
            (
                "'fixed'",
                "'fixed', aggregate = true",
                "aggregate is for lease",
            ),
            ("'fixed'", "'fifo'", "line 13: unknown variant `fifo`"),
            (
                "policy = 'lease'",
                "policy = 'leese'",
                "policies 'lease': controller",
            ),
            (
                "entries = 1000",
                "entries = 1",
                "cells 1: entries: 20 to 1000000",
            ),
            ("[1]", "[]", "cells 1: loads: 0.001 to 100"),
            ("[1]", "[1]\nat_once = 0", "cells 1: at_once: 1 to 16"),
            (
                "[1]",
                "[1]\ntopology = 'single,1'",
                "cells 1: topology: it takes two",
            ),
            (
                "[1]",
                "[1]\ntopology = 'star,4'",
                "unknown topology 'star,4'",
            ),
            (
                "['lease']",
                "['nobody']",
                "claims.bounded: no policy is called 'nobody'",
            ),
            ("'ten']]", "'eleven']]", "claims.fewer_misses: no policy"),
        ];
        for (of, with, right) in cases {
            assert!(RIGHT.contains(of), "{of}");
            let found = Scenario::parse(&RIGHT.replacen(of, with, 1)).unwrap_err();
            assert!(found.contains(right), "{with}: {found}");
        }
        let quick = format!(
            "{RIGHT}simulated_ratio_max = 0.5\n[table.quick]\nseconds = 0\nruns = 1\ncells = []\n"
        );
        let found = Scenario::parse(&quick).unwrap_err();
        for part in [
            "claims.simulated_ratio_max",
            "quick.seconds",
            "quick.cells: name",
        ] {
            assert!(found.contains(part), "{found}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_told_together() {
        let text = RIGHT.replace("runs = 1", "runs = 0").replace("[1]", "[0]");
        let found = Scenario::parse(&text).unwrap_err();
        assert!(found.contains("runs: 1 to 100; cells 1: loads"), "{found}");
    }
}
