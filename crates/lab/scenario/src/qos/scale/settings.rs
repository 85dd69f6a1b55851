//! The settings of an experiment on policies on many switches, as its scenario file states them.

use std::path::Path;

use serde::{Deserialize, Serialize};

use cli::failure::Failure;
use cli::toml_problem;

/// Bridges that one ovs-vswitchd and two cores can have.
const SWITCHES_MAX: usize = 200;
/// `auster run` takes so many.
const POLICIES_MAX: u16 = 4096;
const RUNS_MAX: u32 = 100;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub title: String,
    pub qos_scale: Settings,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// In a line.
    pub switches: usize,
    /// How many, from few to many.
    pub policies: Vec<u16>,
    pub watch_s: f64,
    pub runs: u32,
    pub claims: Claims,
    /// The part that `--quick` runs.
    #[serde(skip_serializing)]
    pub quick: Option<Quick>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// Messages to the switches beyond those of as long a time before, by policy and switch.
    pub resent_per_entry_max: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    pub switches: usize,
    pub policies: Vec<u16>,
    pub watch_s: f64,
    pub runs: u32,
}

/// Whether a scenario's text is one of this kind. Reading it reports its errors.
pub fn is_ours(text: &str) -> bool {
    let file: Result<toml::Table, _> = toml::from_str(text);
    match file {
        Ok(file) => file.contains_key("qos_scale"),
        // So that what is wrong is told by whoever knows the fields.
        Err(_) => text.lines().any(|line| line.trim() == "[qos_scale]"),
    }
}

impl Scenario {
    pub fn read(path: &Path) -> Result<Scenario, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
        let scenario: Result<Scenario, _> = toml::from_str(&text);
        let scenario = scenario.map_err(|e| toml_problem(&text, &e));
        scenario
            .and_then(|scenario| scenario.qos_scale.check().map(|()| scenario))
            .map_err(|problem| Failure::usage(format!("{}: {problem}", path.display())))
    }
}

impl Settings {
    pub fn quick(self) -> Result<Settings, Failure> {
        let quick = self.quick.ok_or_else(|| {
            Failure::usage("--quick: this scenario names no part for it ([qos_scale.quick])")
        })?;
        let settings = Settings {
            switches: quick.switches,
            policies: quick.policies,
            watch_s: quick.watch_s,
            runs: quick.runs,
            claims: self.claims,
            quick: None,
        };
        settings.check().map_err(Failure::usage)?;
        Ok(settings)
    }

    /// Everything that is wrong.
    fn check(&self) -> Result<(), String> {
        let mut problems = Vec::new();
        let mut must = |is_so: bool, problem: String| {
            if !is_so {
                problems.push(problem);
            }
        };
        must(
            (1..=SWITCHES_MAX).contains(&self.switches),
            format!("switches is {}: 1 to {SWITCHES_MAX}", self.switches),
        );
        must(
            !self.policies.is_empty()
                && self.policies.iter().all(|n| (1..=POLICIES_MAX).contains(n))
                && self.policies.is_sorted_by(|a, b| a < b),
            format!(
                "policies is {:?}: numbers from 1 to {POLICIES_MAX}, each greater than the one \
                 before",
                self.policies
            ),
        );
        must(
            (0.1..=600.0).contains(&self.watch_s),
            format!("watch_s is {}: 0.1 to 600", self.watch_s),
        );
        must(
            (1..=RUNS_MAX).contains(&self.runs),
            format!("runs is {}: 1 to {RUNS_MAX}", self.runs),
        );
        let claimed = self.claims.resent_per_entry_max;
        must(
            (0.0..=1.0).contains(&claimed),
            format!("resent_per_entry_max is {claimed}: 0 to 1"),
        );
        match problems.is_empty() {
            true => Ok(()),
            false => Err(problems.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMITTED: &str = include_str!("../../../../../../scenarios/qos-scale.toml");

    #[test]
    fn the_committed_scenario_is_good_and_so_is_its_quick_part() {
        assert!(is_ours(COMMITTED));
        let scenario: Scenario = toml::from_str(COMMITTED).unwrap();
        scenario.qos_scale.check().unwrap();
        // Result 6 is of so many.
        assert_eq!(scenario.qos_scale.switches, 50);
        assert_eq!(scenario.qos_scale.policies.last(), Some(&1000));
        scenario.qos_scale.quick().unwrap();
    }

    #[test]
    fn everything_that_is_wrong_is_told_together() {
        let mut settings = toml::from_str::<Scenario>(COMMITTED).unwrap().qos_scale;
        settings.switches = 0;
        settings.policies = vec![5, 5];
        settings.watch_s = f64::NAN;
        settings.runs = 0;
        settings.claims.resent_per_entry_max = 2.0;
        let told = settings.check().unwrap_err();
        for field in [
            "switches is 0",
            "policies is [5, 5]",
            "watch_s is NaN",
            "runs is 0",
        ] {
            assert!(told.contains(field), "{told}");
        }
        assert!(told.contains("resent_per_entry_max is 2"), "{told}");
    }
}
