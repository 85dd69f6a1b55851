//! The settings of an experiment on a killed controller, as its scenario file states them.

use std::path::Path;

use serde::{Deserialize, Serialize};

use cli::failure::Failure;
use cli::toml_problem;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub title: String,
    pub qos_killed: Settings,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The seed of the moments: the same seed draws the same shares of the set-up's time.
    pub seed: u64,
    pub rounds: u32,
    /// In the last of each so many rounds the controller is killed while it starts, in the others
    /// after SIGHUP.
    pub start_every: u32,
    /// The controller's configuration file.
    pub config: toml::Table,
    pub claims: Claims,
    #[serde(skip_serializing)]
    quick: Option<Quick>,
}

/// The claims beside the promises of every round.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// Rounds in which some of it was there and not all: without them nothing was tried.
    pub in_the_middle_min: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quick {
    rounds: u32,
    in_the_middle_min: u32,
}

const ROUNDS_MAX: u32 = 10_000;
/// The time of a round: set-up, restart, and removal.
pub const ROUND_S: f64 = 4.0;

/// Whether a scenario's text is one of this kind.
pub fn is_ours(text: &str) -> bool {
    let file: Result<toml::Table, _> = toml::from_str(text);
    file.is_ok_and(|file| file.contains_key("qos_killed"))
}

impl Scenario {
    pub fn read(path: &Path) -> Result<Scenario, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
        Scenario::parse(&text)
            .map_err(|problem| Failure::usage(format!("{}: {problem}", path.display())))
    }

    pub fn parse(text: &str) -> Result<Scenario, String> {
        let scenario: Scenario = toml::from_str(text).map_err(|e| toml_problem(text, &e))?;
        let problems = scenario.qos_killed.problems();
        match problems.is_empty() {
            true => Ok(scenario),
            false => Err(problems.join("; ")),
        }
    }
}

impl Settings {
    /// Only the part for those in a hurry.
    pub fn quick(mut self) -> Result<Settings, Failure> {
        let quick = self
            .quick
            .take()
            .ok_or_else(|| Failure::usage("--quick: this scenario has no [qos_killed.quick]"))?;
        self.rounds = quick.rounds;
        self.claims.in_the_middle_min = quick.in_the_middle_min;
        Ok(self)
    }

    /// Applies the command line's number of rounds, which overrides the file's. The claim on their
    /// kind then holds for as large a share of them.
    pub fn bound(&mut self, rounds: Option<u32>) -> Result<(), Failure> {
        if let Some(rounds) = rounds {
            let share = u64::from(self.claims.in_the_middle_min) * u64::from(rounds);
            self.claims.in_the_middle_min = (share / u64::from(self.rounds.max(1))) as u32;
            self.rounds = rounds;
        }
        match self.problems().as_slice() {
            [] => Ok(()),
            problems => Err(Failure::usage(problems.join("; "))),
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(1..=ROUNDS_MAX).contains(&self.rounds) {
            problems.push("rounds (or --runs): 1 to 10000".to_owned());
        }
        if self.start_every == 0 {
            problems.push("start_every: at least 1".to_owned());
        }
        if self.claims.in_the_middle_min > self.rounds {
            problems.push("claims.in_the_middle_min: no more than rounds".to_owned());
        }
        if !self.config.contains_key("qos") {
            problems.push("config: it has no [qos], so that nothing is set up".to_owned());
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios/qos-killed.toml");
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn the_scenario_of_the_project_is_read_and_has_a_quick_part() {
        assert!(is_ours(&text()));
        assert!(!is_ours("title = 'x'\ntopologies = ['ring,4']"));
        let whole = Scenario::parse(&text()).unwrap().qos_killed;
        assert_eq!(whole.rounds, 50);
        let mut fewer = whole.clone();
        fewer.bound(Some(5)).unwrap();
        assert_eq!(
            fewer.claims.in_the_middle_min,
            whole.claims.in_the_middle_min / 10
        );
        let quick = whole.quick().unwrap();
        assert!(quick.rounds < 10);
        assert!(quick.quick().is_err(), "there is nothing quicker");
    }

    #[test]
    fn all_that_is_wrong_is_told_together() {
        let wrong = text()
            .replace("rounds = 50", "rounds = 0")
            .replace("start_every = 5", "start_every = 0");
        let problem = Scenario::parse(&wrong).unwrap_err();
        for part in ["rounds", "start_every:", "in_the_middle_min:"] {
            assert!(problem.contains(part), "{part}: {problem}");
        }
    }
}
