//! What an experiment on changes of a way asks for, as its scenario file says it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::reroute::problems;
use bench::network::udp::Pace;
use cli::failure::Failure;
use cli::toml_problem;

/// A scenario of this kind has the table below; all others have none.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub title: String,
    pub reroute: Settings,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// UDP payload.
    pub datagram_bytes: u16,
    /// Each change is run at each of them.
    pub rates_mbps: Vec<f64>,
    pub runs: u32,
    /// Of the stream, before the first change.
    pub before_s: f64,
    /// After each of the two.
    pub after_s: f64,
    /// What the controller's configuration file says.
    #[serde(default)]
    pub controller: toml::Table,
    #[serde(default)]
    pub changes: Vec<Change>,
    #[serde(default)]
    pub claims: Claims,
    /// The part that `--quick` runs.
    #[serde(skip_serializing)]
    quick: Option<Quick>,
}

/// From the way of one hop to the other one, and what takes that back.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The names of the two rows.
    pub there: String,
    pub back: String,
    pub by: By,
    /// Of the way that the stream begins on.
    pub from_ms: f64,
    /// Of the other one.
    pub to_ms: f64,
    /// Instead of the scenario's.
    pub after_s: Option<f64>,
    /// As the controller's configuration says it; 0, that is at once, if not given.
    #[serde(default)]
    pub drain_wait_s: u64,
    /// Instead of the scenario's.
    pub rates_mbps: Option<Vec<f64>>,
    /// The stream pauses now and then.
    pub bursts: Option<Bursts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// `drain` names a link of the one way, and then of the other.
    Administrator,
    /// The link of the first way is cut, and then mended.
    Cable,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Bursts {
    pub send_s: f64,
    pub rest_s: f64,
}

/// What must be found, by the names of rows.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// Nothing lost or doubled, in any run.
    #[serde(default)]
    pub none_lost: Vec<String>,
    /// Nothing reordered, in any run.
    #[serde(default)]
    pub none_reordered: Vec<String>,
    /// In no run more is lost, or reordered, than is sent in so many milliseconds.
    #[serde(default)]
    pub lost_ms_max: BTreeMap<String, f64>,
    #[serde(default)]
    pub reordered_ms_max: BTreeMap<String, f64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quick {
    runs: u32,
    rates_mbps: Vec<f64>,
}

/// One run of one change at one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Its place among the changes.
    pub change: usize,
    pub rate_mbps: f64,
    pub run: u32,
}

/// What a network takes to come up, and to be taken down.
const NETWORK_S: f64 = 3.0;

/// Whether a scenario's text is one of this kind.
pub fn is_ours(text: &str) -> bool {
    let file: Result<toml::Table, _> = toml::from_str(text);
    file.is_ok_and(|file| file.contains_key("reroute"))
}

impl Scenario {
    pub fn read(path: &Path) -> Result<Scenario, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
        Scenario::parse(&text)
            .map_err(|problem| Failure::usage(format!("{}: {problem}", path.display())))
    }

    pub fn parse(text: &str) -> Result<Scenario, String> {
        let scenario: Scenario = toml::from_str(text).map_err(|e| toml_problem(text, &e))?;
        let problems = problems::of(&scenario.reroute);
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
            .ok_or_else(|| Failure::usage("--quick: this scenario has no [reroute.quick]"))?;
        self.runs = quick.runs;
        let is_quick = |rate: &f64| quick.rates_mbps.contains(rate);
        for change in &mut self.changes {
            if let Some(rates) = &mut change.rates_mbps {
                rates.retain(is_quick);
            }
        }
        self.rates_mbps = quick.rates_mbps;
        Ok(self)
    }

    /// What the command line says of runs wins.
    pub fn bound(&mut self, runs: Option<u32>) -> Result<(), Failure> {
        self.runs = runs.unwrap_or(self.runs);
        match problems::of(self).as_slice() {
            [] => Ok(()),
            problems => Err(Failure::usage(problems.join("; "))),
        }
    }

    /// Every cell once before any cell twice.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for run in 0..self.runs {
            for change in 0..self.changes.len() {
                let rates = self.changes[change].rates_mbps.as_ref();
                cells.extend(rates.unwrap_or(&self.rates_mbps).iter().map(|rate| Cell {
                    change,
                    rate_mbps: *rate,
                    run,
                }));
            }
        }
        cells
    }

    /// Each once, from the lowest.
    pub fn all_rates(&self) -> Vec<f64> {
        let own = self.changes.iter().flat_map(|change| &change.rates_mbps);
        let mut rates: Vec<f64> = own.flatten().chain(&self.rates_mbps).copied().collect();
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        rates
    }

    pub fn pace(&self, rate_mbps: f64, duration: Duration) -> Pace {
        Pace {
            rate_mbps,
            datagram_bytes: self.datagram_bytes.into(),
            duration,
        }
    }

    pub fn before(&self) -> Duration {
        Duration::from_secs_f64(self.before_s)
    }

    pub fn after(&self, change: &Change) -> Duration {
        Duration::from_secs_f64(change.after_s.unwrap_or(self.after_s))
    }

    /// How long all of it takes.
    pub fn expected(&self) -> Duration {
        let network = Duration::from_secs_f64(NETWORK_S);
        let one =
            |cell: &Cell| network + self.before() + 2 * self.after(&self.changes[cell.change]);
        self.cells().iter().map(one).sum()
    }

    /// The names of rows, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let changes = self.changes.iter();
        changes.flat_map(|change| [change.there.as_str(), change.back.as_str()])
    }
}

impl Claims {
    /// Every row that is spoken of.
    pub fn names(&self) -> BTreeSet<&str> {
        let lists = self.none_lost.iter().chain(&self.none_reordered);
        let bounds = self.lost_ms_max.keys().chain(self.reordered_ms_max.keys());
        lists.chain(bounds).map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read() -> Settings {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios");
        let text = std::fs::read_to_string(dir.join("path-change.toml")).unwrap();
        assert!(is_ours(&text));
        Scenario::parse(&text).unwrap().reroute
    }

    #[test]
    fn the_scenario_of_the_project_is_read_and_has_a_quick_part() {
        let whole = read();
        assert!(whole.expected() < Duration::from_secs(12 * 60));
        let mut quick = whole.clone().quick().unwrap();
        quick.bound(None).unwrap();
        assert!(quick.expected() < Duration::from_secs(70));
        assert!(quick.quick().is_err(), "there is nothing quicker");
        assert!(!is_ours("title = 'x'\ntopologies = ['ring,4']"));
    }

    #[test]
    fn every_row_has_a_claim() {
        let settings = read();
        let claimed = settings.claims.names();
        for name in settings.names() {
            assert!(claimed.contains(name), "{name}");
        }
    }

    #[test]
    fn every_cell_has_its_runs_and_takes_turns() {
        let mut settings = read();
        settings.bound(Some(3)).unwrap();
        let cells = settings.cells();
        let rates = |change: &Change| change.rates_mbps.as_ref().map_or(2, Vec::len);
        let each: usize = settings.changes.iter().map(rates).sum();
        assert_eq!((cells.len(), settings.rates_mbps.len()), (3 * each, 2));
        assert!(cells.is_sorted_by_key(|cell| cell.run));
        assert!(settings.bound(Some(0)).is_err());
    }
}
