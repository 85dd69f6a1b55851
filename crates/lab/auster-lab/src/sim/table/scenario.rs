//! The scenario of a simulated flow table, as an operator writes it.

use clock::Duration;
use control::timeouts::{Lease, Paper};
use serde::{Deserialize, Serialize};
use sim::table::{Policy, Setup, Traffic};

use cli::toml_problem;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    #[serde(rename = "kind")]
    _kind: String,
    /// One line that says what it shows.
    pub title: String,
    #[serde(default = "one")]
    pub seed: u64,
    pub runs: u64,
    /// Seconds of virtual time, each run.
    pub seconds: f64,
    /// Entries that the table holds.
    pub capacities: Vec<u32>,
    /// New flows, as multiples of what fits.
    #[serde(default)]
    pub loads: Vec<f64>,
    /// The idle timeout in the definition of a load of 1: at that rate of new flows, a table is
    /// full whose entries outlive their flows by this time.
    #[serde(default = "ten")]
    pub fits_idle_s: f64,
    /// The number of flows after which none begins.
    pub flows: Option<u32>,
    #[serde(default = "some_destinations")]
    pub destinations: u16,
    /// Delay in one direction between switch and controller.
    pub delay_ms: f64,
    /// Flows that send for ever, instead of those that come and go.
    pub steady: Option<SteadyEntry>,
    pub policy: Vec<PolicyEntry>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SteadyEntry {
    pub flows: u32,
    /// Time between two packets of one flow.
    pub gap_ms: u32,
    /// Time within which they begin.
    pub over_s: u32,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyEntry {
    pub name: String,
    pub kind: Kind,
    pub idle_s: Option<u16>,
    pub hard_s: Option<u16>,
    /// The lease of a `lease` policy.
    pub lease_s: Option<u16>,
    pub lease_max_s: Option<u16>,
    pub renewals_max: Option<u32>,
    /// One entry for a destination and a port where more is in use than fits.
    #[serde(default)]
    pub aggregate: bool,
    /// Ports by which flows to one destination come in.
    pub entrances: Option<u16>,
}

/// Entrances of a switch with links to three others.
const ENTRANCES: u16 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Lru,
    Fixed,
    Paper,
    Lease,
}

/// One policy at one load of one table.
#[derive(Clone, Debug)]
pub struct Place {
    pub capacity: u32,
    pub load: f64,
    pub policy: PolicyEntry,
    pub setup: Setup,
}

impl Scenario {
    pub fn parse(text: &str) -> Result<Scenario, String> {
        let scenario: Scenario = toml::from_str(text).map_err(|e| toml_problem(text, &e))?;
        let problems = scenario.problems();
        match problems.is_empty() {
            true => Ok(scenario),
            false => Err(problems.join("; ")),
        }
    }

    /// Every cell, by table, load and policy.
    pub fn places(&self) -> Vec<Place> {
        let active = Setup::mean_duration();
        let mut places = Vec::new();
        let loads: &[f64] = match self.steady {
            Some(_) => &[1.0],
            None => &self.loads,
        };
        for &capacity in &self.capacities {
            for &load in loads {
                let lasts_s = active.as_secs_f64() + self.fits_idle_s;
                let flows_per_s = load * f64::from(capacity) / lasts_s;
                let place = |policy: &PolicyEntry| Place {
                    capacity,
                    load,
                    policy: policy.clone(),
                    setup: self.setup(capacity, flows_per_s, policy),
                };
                places.extend(self.policy.iter().map(place));
            }
        }
        places
    }

    fn setup(&self, capacity: u32, flows_per_s: f64, policy: &PolicyEntry) -> Setup {
        let traffic = match self.steady {
            Some(steady) => Traffic::Steady {
                flows: steady.flows,
                gap: Duration::from_millis(steady.gap_ms.into()),
                over: Duration::from_secs(steady.over_s.into()),
            },
            None => Traffic::Campus {
                flows_per_s,
                destinations: self.destinations,
            },
        };
        let seconds = match (self.flows, self.steady) {
            (Some(flows), None) => (f64::from(flows) / flows_per_s).min(self.seconds),
            _ => self.seconds,
        };
        Setup {
            policy: policy.policy(),
            capacity,
            traffic,
            delay: Duration::from_secs_f64(self.delay_ms / 1e3),
            duration: Duration::from_secs_f64(seconds),
            flows_max: self.flows.unwrap_or(FLOWS_MAX),
        }
    }

    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |is_right: bool, problem: &str| {
            if !is_right {
                problems.push(problem.to_owned());
            }
        };
        check((1..=1000).contains(&self.runs), "runs is 1 to 1000");
        check(
            (1.0..=36_000.0).contains(&self.seconds),
            "seconds is 1 to 36000",
        );
        let are_tables = self.capacities.iter().all(|c| (10..=1 << 20).contains(c));
        check(
            are_tables && !self.capacities.is_empty(),
            "capacities are 10 to 1048576 entries, at least one",
        );
        let are_loads = self.loads.iter().all(|load| (0.001..=100.0).contains(load));
        check(
            are_loads && self.loads.is_empty() == self.steady.is_some(),
            "loads are 0.001 to 100 times what fits, at least one, and none with steady flows",
        );
        check(
            (0.0..=3600.0).contains(&self.fits_idle_s),
            "fits_idle_s is 0 to 3600",
        );
        check(
            (0.0..=10_000.0).contains(&self.delay_ms),
            "delay_ms is 0 to 10000",
        );
        check(self.destinations > 0, "destinations is 1 or more");
        let are_flows = self.flows.is_none_or(|n| (1..=FLOWS_MAX).contains(&n));
        check(are_flows, "flows is 1 to 100000000");
        let is_steady = |s: SteadyEntry| (1..=1_000_000).contains(&s.flows) && s.gap_ms > 0;
        check(
            self.steady.is_none_or(is_steady),
            "steady.flows is 1 to 1000000, steady.gap_ms 1 or more",
        );
        check(!self.policy.is_empty(), "policy: name at least one");
        for policy in &self.policy {
            problems.extend(policy.problem());
        }
        problems
    }
}

/// The most flows of one run: a flow is known by less than 31 bits.
const FLOWS_MAX: u32 = 100_000_000;

impl PolicyEntry {
    fn policy(&self) -> Policy {
        let lease = Lease::default();
        match self.kind {
            Kind::Lru => Policy::Lru,
            Kind::Fixed => Policy::Fixed {
                idle_s: self.idle_s.unwrap_or(0),
                hard_s: self.hard_s.unwrap_or(0),
            },
            Kind::Paper => Policy::Paper(Paper::default()),
            Kind::Lease => Policy::Lease {
                lease: Lease {
                    lease_s: self.lease_s,
                    lease_max_s: self.lease_max_s.unwrap_or(lease.lease_max_s),
                    renewals_max: self.renewals_max.unwrap_or(lease.renewals_max),
                    ..lease
                },
                aggregates: (self.aggregate).then_some(self.entrances.unwrap_or(ENTRANCES)),
            },
        }
    }

    fn problem(&self) -> Option<String> {
        let is_fixed = self.kind == Kind::Fixed;
        let is_lease = self.kind == Kind::Lease;
        let of_fixed = self.idle_s.is_some() || self.hard_s.is_some();
        let of_lease = [
            self.lease_s.is_some(),
            self.lease_max_s.is_some(),
            self.renewals_max.is_some(),
            self.aggregate,
            self.entrances.is_some(),
        ];
        let problem = if of_fixed && !is_fixed {
            "idle_s and hard_s are for fixed"
        } else if of_lease.contains(&true) && !is_lease {
            "lease_s, lease_max_s, renewals_max, aggregate and entrances are for lease"
        } else if self.entrances.is_some() && !self.aggregate {
            "entrances is for lease with aggregate = true"
        } else if self.entrances == Some(0) {
            "entrances is 1 or more"
        } else if self.lease_s == Some(0) || self.renewals_max == Some(0) {
            "lease_s and renewals_max are 1 or more"
        } else {
            return None;
        };
        Some(format!("policy {}: {problem}", self.name))
    }
}

fn one() -> u64 {
    1
}

fn ten() -> f64 {
    10.0
}

fn some_destinations() -> u16 {
    256
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = include_str!("../../../../../../scenarios/table-pressure.toml");

    #[test]
    fn the_scenarios_of_the_project_are_read() {
        let scenario = Scenario::parse(TEXT).unwrap();
        let places = scenario.places();
        assert_eq!(places.len(), 2 * 4 * scenario.policy.len());
        // 10,000 entries of 14 s each, half of what fits.
        let half = places.iter().find(|p| p.capacity == 10_000).unwrap();
        let Traffic::Campus { flows_per_s, .. } = half.setup.traffic else {
            panic!("they come and go");
        };
        assert!((300.0..400.0).contains(&flows_per_s), "{flows_per_s}");
        for text in [
            include_str!("../../../../../../scenarios/table-million.toml"),
            include_str!("../../../../../../scenarios/table-renewals.toml"),
        ] {
            assert!(!Scenario::parse(text).unwrap().places().is_empty());
        }
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let text = TEXT
            .replace("seconds = 60", "seconds = 0")
            .replace("capacities = [1000, 10000]", "capacities = [0]")
            .replace("kind = \"lru\"", "kind = \"lru\"\nidle_s = 3");
        let problem = Scenario::parse(&text).unwrap_err();
        for part in ["seconds is", "capacities are", "policy LRU: idle_s"] {
            assert!(problem.contains(part), "{problem}");
        }
        let problem = Scenario::parse(&TEXT.replace("runs", "rnus")).unwrap_err();
        assert!(problem.starts_with("line "), "{problem}");
    }
}
