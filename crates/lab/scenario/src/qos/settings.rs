//! The settings of an experiment on queues, as its scenario file states them.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::qos::setup::QueueMaker;
use auster::queues::plan::{Class, Plan, Rate};
use auster::queues::stated::{self, ChosenBy, Words};
use cli::failure::Failure;
use cli::toml_problem;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub title: String,
    pub qos_queues: QosQueues,
}

/// Two flows into one port, each into a queue of its own.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct QosQueues {
    /// The rate of the port, counted as the kernel does: Ethernet frames.
    pub rate: String,
    /// The rate of each flow, in UDP payload.
    pub offered_mbps: f64,
    pub datagram_bytes: usize,
    /// Before anything is counted.
    pub settle_s: f64,
    /// While it is counted.
    pub window_s: u32,
    pub runs: u32,
    pub cases: Vec<Case>,
    pub claims: Claims,
    #[serde(skip_serializing)]
    quick: Option<Quick>,
}

/// The demands on the two queues.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    /// In the words of `auster queues set --queue`; the first flow is for the first of them.
    pub queues: [String; 2],
}

/// The claims that the results must meet.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// Minimum, maximum and precedence are kept to so much.
    pub within_percent: f64,
    /// The least share of all packets that plain Open vSwitch sends through queue 0.
    pub plain_in_queue_0_percent_min: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quick {
    runs: u32,
    window_s: u32,
}

/// Headers of UDP, IPv4 and Ethernet before a payload.
pub const HEADERS_BYTES: usize = 8 + 20 + 14;
/// A stream goes on so long after the window, for what verifying takes beside it.
pub const MARGIN: Duration = Duration::from_secs(1);
/// For setting queues and flows, and for the receivers to see that no more comes.
const OVERHEAD: Duration = Duration::from_millis(1200);
const RUNS_MAX: u32 = 100;
const OFFERED_MBPS_MAX: f64 = 500.0;
const SOCKET_BYTES: u32 = 212_992;

/// Whether a scenario's text is one of this kind. Reading it reports its errors.
pub fn is_ours(text: &str) -> bool {
    let file: Result<toml::Table, _> = toml::from_str(text);
    file.is_ok_and(|file| file.contains_key("qos_queues"))
}

impl Scenario {
    pub fn read(path: &Path) -> Result<Scenario, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
        Scenario::parse(&text)
            .map_err(|problem| Failure::usage(format!("{}: {problem}", path.display())))
    }

    pub fn parse(text: &str) -> Result<Scenario, String> {
        let scenario: Scenario = toml::from_str(text).map_err(|e| toml_problem(text, &e))?;
        let problems = scenario.qos_queues.problems();
        match problems.is_empty() {
            true => Ok(scenario),
            false => Err(problems.join("; ")),
        }
    }
}

impl QosQueues {
    /// Only the part for those in a hurry.
    pub fn quick(mut self) -> Result<QosQueues, Failure> {
        let quick = self
            .quick
            .take()
            .ok_or_else(|| Failure::usage("--quick: this scenario has no [qos_queues.quick]"))?;
        self.runs = quick.runs;
        self.window_s = quick.window_s;
        Ok(self)
    }

    pub fn trials(&self) -> usize {
        self.runs as usize * self.cases.len() * QueueMaker::ALL.len()
    }

    pub fn expected(&self) -> Duration {
        (self.settle() + self.window() + MARGIN + OVERHEAD) * self.trials() as u32
    }

    pub fn settle(&self) -> Duration {
        Duration::from_secs_f64(self.settle_s)
    }

    pub fn window(&self) -> Duration {
        Duration::from_secs(self.window_s.into())
    }

    pub fn rate_mbps(&self) -> f64 {
        self.rate
            .parse::<Rate>()
            .map_or(0.0, |rate| rate.0 as f64 / 1e6)
    }

    /// The rate that is offered to a queue, counted as the kernel does.
    pub fn offered_frames_mbps(&self) -> f64 {
        let bytes = self.datagram_bytes as f64;
        self.offered_mbps * (bytes + HEADERS_BYTES as f64) / bytes
    }

    /// The classes of a case, queue 0 with them.
    pub fn plan(&self, case: &Case) -> Result<Plan, Vec<String>> {
        let words: Result<Vec<Words>, String> =
            case.queues.iter().map(|q| Words::parse(q)).collect();
        let words = words.map_err(|problem| vec![problem])?;
        stated::plan(Some(&self.rate), &words, ChosenBy::Dscp, SOCKET_BYTES)
    }

    /// The two queues that the flows are for, in the order of the flows.
    pub fn classes(&self, case: &Case) -> Vec<Class> {
        let plan = self.plan(case);
        let classes = plan.map(|plan| plan.classes).unwrap_or_default();
        classes
            .into_iter()
            .filter(|class| class.queue != 0)
            .collect()
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |is_right: bool, problem: &str| {
            if !is_right {
                problems.push(problem.to_owned());
            }
        };
        let within = |value: f64, max: f64| value > 0.0 && value <= max;
        check(
            within(self.offered_mbps, OFFERED_MBPS_MAX),
            "offered_mbps: above 0 and up to 500",
        );
        check(
            (64..=1472).contains(&self.datagram_bytes),
            "datagram_bytes: 64 to 1472",
        );
        check(
            within(self.settle_s, 60.0),
            "settle_s: above 0 and up to 60",
        );
        check((2..=60).contains(&self.window_s), "window_s: 2 to 60");
        check((1..=RUNS_MAX).contains(&self.runs), "runs: 1 to 100");
        check(!self.cases.is_empty(), "cases: at least one");
        check(
            within(self.claims.within_percent, 100.0),
            "claims.within_percent: above 0 and up to 100",
        );
        for case in &self.cases {
            match self.plan(case) {
                Ok(plan) => {
                    let ids: Vec<u8> = plan.classes.iter().map(|class| class.queue).collect();
                    if ids.len() != 3 || case.queues.iter().any(|q| q.contains("id=0")) {
                        problems.push(format!("cases: {}: two queues beside queue 0", case.name));
                    }
                }
                Err(wrong) => {
                    let wrong = wrong.iter().map(|w| format!("cases: {}: {w}", case.name));
                    problems.extend(wrong);
                }
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios/qos-queues.toml");
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn the_scenario_of_the_project_is_read_and_has_a_quick_part() {
        assert!(is_ours(&text()));
        assert!(!is_ours("title = 'x'\ntopologies = ['ring,4']"));
        let whole = Scenario::parse(&text()).unwrap().qos_queues;
        assert!(
            whole.expected() < Duration::from_secs(300),
            "{:?}",
            whole.expected()
        );
        // The flows do not fit, or there would be nothing to share out.
        assert!(2.0 * whole.offered_frames_mbps() > whole.rate_mbps());
        let quick = whole.clone().quick().unwrap();
        assert!(quick.expected() < whole.expected());
    }

    #[test]
    fn all_that_is_wrong_is_told_together() {
        let mut file: toml::Table = toml::from_str(&text()).unwrap();
        let table = file["qos_queues"].as_table_mut().unwrap();
        table.insert("datagram_bytes".into(), 9000.into());
        table.insert("window_s".into(), 0.into());
        let case = "name = 'x'\nqueues = ['id=1,min=200mbit,dscp=10', 'id=2,dscp=10']";
        let case: toml::Table = toml::from_str(case).unwrap();
        table.insert("cases".into(), vec![case].into());
        let problem = Scenario::parse(&toml::to_string(&file).unwrap()).unwrap_err();
        for part in [
            "datagram_bytes: 64",
            "window_s: 2",
            "x: queue 1: min:",
            "x: queue 2: dscp:",
        ] {
            assert!(problem.contains(part), "{part}: {problem}");
        }
    }
}
