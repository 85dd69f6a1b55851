//! The runs on a flow table that is too small, as their scenario file states them.

use std::path::Path;

use control::timeouts::{Lease, Paper};
use serde::{Deserialize, Serialize};
use sim::table::{self, Setup, Traffic};

use crate::table::problems;
use cli::failure::Failure;
use cli::toml_problem;

/// A scenario of this kind has the table below; all others have none.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub title: String,
    pub table: Settings,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The duration of every run.
    pub seconds: f64,
    pub runs: u32,
    /// The seed of the trace; each run has the next one.
    #[serde(default = "one")]
    pub seed: u64,
    /// The capacity counts the new flows that fill the table when entries outlive their flows by
    /// this time.
    #[serde(default = "ten")]
    pub fits_idle_s: f64,
    #[serde(default = "some_destinations")]
    pub destinations: u16,
    pub policies: Vec<Policy>,
    pub cells: Vec<Cells>,
    #[serde(default)]
    pub claims: Claims,
    /// The part that `--quick` runs.
    #[serde(skip_serializing)]
    pub quick: Option<Quick>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    pub name: String,
    /// The controller's configuration file.
    #[serde(default)]
    pub controller: toml::Table,
    /// The controller gets the limit as `table_entries_max`; Open vSwitch does not report it.
    #[serde(default)]
    pub tell_limit: bool,
    #[serde(default)]
    pub overflow: Overflow,
    /// The simulator's policy that it is compared with.
    pub simulated: Simulated,
}

/// The switch's reaction to an entry for which it has no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overflow {
    /// It says TABLE_FULL.
    #[default]
    Refuse,
    /// It puts out the entry that would end first: with one idle timeout for all, the one that was
    /// used least recently.
    Evict,
}

/// The policy of the simulator.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Simulated {
    pub kind: Kind,
    pub idle_s: Option<u16>,
    pub hard_s: Option<u16>,
    /// For `lease`: one entry for a destination when more entries are in use than fit.
    #[serde(default)]
    pub aggregate: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Lru,
    Fixed,
    Paper,
    Lease,
}

/// Every policy at every load, on switches with such a table.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Cells {
    /// `flow_limit` of table 0 of every switch.
    pub entries: u32,
    /// New flows, as multiples of what fits.
    pub loads: Vec<f64>,
    #[serde(default = "one_switch")]
    pub topology: String,
    /// Policies that are run at the same time, each on a network of its own.
    #[serde(default = "alone")]
    pub at_once: u32,
}

/// The claims that the results must meet, by the names of policies.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// Occupancy is at most 0.9 of the table and what is set between two reads of its statistics.
    #[serde(default)]
    pub bounded: Vec<String>,
    /// The switch refuses no entry.
    #[serde(default)]
    pub never_full: Vec<String>,
    /// No packet is lost that has been sent to the controller.
    #[serde(default)]
    pub none_lost: Vec<String>,
    /// No entry is taken out whose flow goes on.
    #[serde(default)]
    pub none_active_evicted: Vec<String>,
    /// Pairs of which the first has fewer misses per flow than the second, in the mean.
    #[serde(default)]
    pub fewer_misses: Vec<[String; 2]>,
    /// Misses are at most so many times those in the simulator, in the mean.
    pub simulated_ratio_max: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    pub seconds: f64,
    pub runs: u32,
    pub cells: Vec<Cells>,
}

/// Policies that are run at the same time on one kind of network, by their place.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    pub cells: usize,
    pub load: f64,
    pub round: u32,
    pub policies: Vec<usize>,
}

/// Whether a scenario's text is one of this kind.
pub fn is_ours(text: &str) -> bool {
    let file: Result<toml::Table, _> = toml::from_str(text);
    file.is_ok_and(|file| file.get("table").is_some_and(toml::Value::is_table))
}

impl Scenario {
    pub fn read(path: &Path) -> Result<Scenario, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
        Scenario::parse(&text)
            .map_err(|problem| Failure::usage(format!("{}: {problem}", path.display())))
    }

    pub fn parse(text: &str) -> Result<Scenario, String> {
        let scenario: Scenario = toml::from_str(text).map_err(|e| toml_problem(text, &e))?;
        let problems = problems::of(&scenario.table);
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
            .ok_or_else(|| Failure::usage("--quick: this scenario has no [table.quick]"))?;
        self.seconds = quick.seconds;
        self.runs = quick.runs;
        self.cells = quick.cells;
        Ok(self)
    }

    /// Applies the command line's runs and seconds, which override the file's.
    pub fn bound(&mut self, runs: Option<u32>, seconds: Option<f64>) -> Result<(), Failure> {
        self.runs = runs.unwrap_or(self.runs);
        self.seconds = seconds.unwrap_or(self.seconds);
        match problems::of(self).as_slice() {
            [] => Ok(()),
            problems => Err(Failure::usage(problems.join("; "))),
        }
    }

    /// Every cell once before any cell twice.
    pub fn batches(&self) -> Vec<Batch> {
        let policies: Vec<usize> = (0..self.policies.len()).collect();
        let mut batches = Vec::new();
        for round in 0..self.runs {
            for (number, cells) in self.cells.iter().enumerate() {
                for load in &cells.loads {
                    let chunks = policies.chunks(cells.at_once as usize);
                    batches.extend(chunks.map(|policies| Batch {
                        cells: number,
                        load: *load,
                        round,
                        policies: policies.to_vec(),
                    }));
                }
            }
        }
        batches
    }

    pub fn traffic(&self, cells: &Cells, load: f64) -> Traffic {
        let lasts_s = Setup::mean_duration().as_secs_f64() + self.fits_idle_s;
        Traffic::Campus {
            flows_per_s: load * f64::from(cells.entries) / lasts_s,
            destinations: self.destinations,
        }
    }

    pub fn seed_of(&self, round: u32) -> u64 {
        self.seed + u64::from(round)
    }
}

impl Policy {
    /// The configuration file of the controller of switches with so many entries.
    pub fn config(&self, entries: u32) -> toml::Table {
        let mut config = self.controller.clone();
        if self.tell_limit {
            let timeouts = config
                .entry("timeouts")
                .or_insert_with(|| toml::Table::new().into());
            if let Some(timeouts) = timeouts.as_table_mut() {
                timeouts.insert("table_entries_max".to_owned(), i64::from(entries).into());
            }
        }
        config
    }
}

/// Between two switches, all come in by one link.
const ENTRANCES: u16 = 1;

impl Simulated {
    pub fn policy(self) -> table::Policy {
        match self.kind {
            Kind::Lru => table::Policy::Lru,
            Kind::Fixed => table::Policy::Fixed {
                idle_s: self.idle_s.unwrap_or(0),
                hard_s: self.hard_s.unwrap_or(0),
            },
            Kind::Paper => table::Policy::Paper(Paper::default()),
            Kind::Lease => table::Policy::Lease {
                lease: Lease::default(),
                aggregates: self.aggregate.then_some(ENTRANCES),
            },
        }
    }
}

fn one() -> u64 {
    1
}

fn alone() -> u32 {
    1
}

fn ten() -> f64 {
    10.0
}

fn some_destinations() -> u16 {
    256
}

fn one_switch() -> String {
    "single,2".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = include_str!("../../../../../scenarios/table-pressure-ovs.toml");

    #[test]
    fn the_scenario_of_the_project_is_read_and_has_a_quick_part() {
        assert!(is_ours(TEXT));
        assert!(!is_ours("table = 3\n") && !is_ours("kind = 'table'\n"));
        let settings = Scenario::parse(TEXT).unwrap().table;
        let kinds = |kind| settings.policies.iter().any(|p| p.simulated.kind == kind);
        assert!([Kind::Lru, Kind::Fixed, Kind::Paper, Kind::Lease].map(kinds) == [true; 4]);
        let quick = settings.quick().unwrap();
        assert_eq!(problems::of(&quick), [""; 0]);
        assert!(quick.quick().is_err(), "there is nothing quicker");
    }

    #[test]
    fn policies_share_the_machine_as_far_as_is_said() {
        let mut settings = Scenario::parse(TEXT).unwrap().table;
        settings.runs = 2;
        let (first, policies) = (&mut settings.cells[0], settings.policies.len());
        (first.at_once, first.loads) = (3, vec![1.0, 5.0]);
        let batches = settings.batches();
        let of = batches.iter().filter(|b| b.cells == 0 && b.round == 1);
        let run: Vec<_> = of
            .flat_map(|b| b.policies.iter().map(|p| (b.load, *p)))
            .collect();
        assert_eq!(run.len(), 2 * policies);
        assert!(batches[0].policies == [0, 1, 2] && batches[1].policies[0] == 3);
        assert!(batches.is_sorted_by_key(|batch| batch.round));
    }

    #[test]
    fn the_controller_is_told_the_limit_where_it_shall_be() {
        let settings = Scenario::parse(TEXT).unwrap().table;
        for policy in &settings.policies {
            let config = policy.config(777);
            let told = config
                .get("timeouts")
                .and_then(|t| t.get("table_entries_max"));
            let told = told.and_then(toml::Value::as_integer);
            assert_eq!(told, policy.tell_limit.then_some(777), "{}", policy.name);
        }
    }
}
