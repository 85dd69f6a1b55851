//! The experiments that need no module of their own, as an operator writes them.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use sim::link::LinkConfig;

use crate::restart::Restart;
use cli::failure::Failure;
use cli::toml_problem;
use testbed::impairment::Impairment;
use testbed::topology::Topology;
use testbed::topology_file::topology;

/// An experiment: networks, what is done to them, what must hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// One line that says what it shows.
    pub title: String,
    /// In words or as files, each brought up in turn.
    pub topologies: Vec<String>,
    pub hosts_per_edge: Option<usize>,
    /// From the start of the controller until every pair has been pinged without loss.
    pub within_s: u64,
    /// Packets after the first one of a pair.
    #[serde(default = "three")]
    pub later_pings: usize,
    #[serde(default = "one")]
    pub seed: u64,
    /// What links between switches do to frames.
    #[serde(default)]
    pub links: Impairment,
    /// What the link between switches and controller does.
    #[serde(default)]
    pub control: Impairment,
    pub failure: Option<LinkFailure>,
    pub restart: Option<Restart>,
    /// Stay up with a live view until Ctrl-C.
    #[serde(default)]
    pub stay: bool,
}

/// A link is cut under traffic and mended again.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkFailure {
    /// The two switches.
    pub link: [String; 2],
    /// Between packets of one pair; the resolution of the figures.
    pub interval_ms: u64,
    /// Traffic before the cut, between cut and repair, and after the repair.
    pub before_s: f64,
    pub cut_s: f64,
    pub mended_s: f64,
    /// Packets are lost no longer than this after the cut.
    pub converge_ms_max: u64,
}

impl LinkFailure {
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }
}

const PROBES_PER_SECOND_MAX: f64 = 20_000.0;

impl Scenario {
    pub fn read(path: &Path) -> Result<Scenario, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
        Scenario::parse(&text)
            .map_err(|problem| Failure::usage(format!("{}: {problem}", path.display())))
    }

    /// The networks, ready to start. Paths of topology files are relative to `beside`.
    pub fn networks(&self, beside: &Path) -> Result<Vec<Topology>, Failure> {
        let links = self.links.config().map_err(Failure::usage)?;
        let network = |words: &String| {
            let mut topology = if words.ends_with(".toml") {
                topology(&beside.join(words).to_string_lossy(), self.hosts_per_edge)?
            } else {
                topology(words, self.hosts_per_edge)?
            };
            if !links.is_wire() {
                topology
                    .links
                    .iter_mut()
                    .for_each(|link| link.impairment = links.clone());
            }
            if let Some(LinkFailure { link: [a, b], .. }) = &self.failure
                && topology.link_between(a, b).is_none()
            {
                return Err(Failure::usage(format!(
                    "{words} has no link {a} to {b} to cut"
                )));
            }
            if let Some(restart) = &self.restart {
                restart.check(&topology).map_err(Failure::usage)?;
            }
            Ok(topology)
        };
        self.topologies.iter().map(network).collect()
    }

    pub fn control(&self) -> Result<LinkConfig, Failure> {
        self.control
            .config()
            .map_err(|problem| Failure::usage(format!("[control] {problem}")))
    }

    fn parse(text: &str) -> Result<Scenario, String> {
        let scenario: Scenario = toml::from_str(text).map_err(|e| toml_problem(text, &e))?;
        if scenario.topologies.is_empty() {
            return Err("topologies: name at least one".into());
        }
        if let Some(failure) = &scenario.failure {
            if failure.interval_ms == 0 {
                return Err("failure.interval_ms is at least 1".into());
            }
            let times = [failure.before_s, failure.cut_s, failure.mended_s];
            if !times.iter().all(|s| (0.1..=600.0).contains(s)) {
                return Err("failure: times are 0.1 to 600 seconds".into());
            }
            // Otherwise a network that never converges passes.
            let observed_s = failure.cut_s.min(failure.mended_s);
            if failure.converge_ms_max as f64 >= observed_s * 1e3 {
                return Err("failure.converge_ms_max is not below cut_s and mended_s".into());
            }
        }
        Ok(scenario)
    }
}

/// How fast a stream over this many pairs would send, if that is too fast to be honest.
pub fn too_many_probes(pair_count: usize, interval: Duration) -> Option<f64> {
    let per_second = pair_count as f64 / interval.as_secs_f64();
    (per_second > PROBES_PER_SECOND_MAX).then_some(per_second)
}

fn three() -> usize {
    3
}

fn one() -> u64 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scenarios_of_the_project_are_read() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios");
        for name in [
            "first-contact.toml",
            "ring-failure.toml",
            "controller-restart.toml",
            "relay-restart.toml",
        ] {
            let scenario = Scenario::read(&dir.join(name)).unwrap();
            assert!(!scenario.networks(&dir).unwrap().is_empty(), "{name}");
        }
    }

    #[test]
    fn a_scenario_with_a_mistake_is_refused_with_the_line() {
        let good = "title = \"t\"\ntopologies = [\"ring,4\"]\nwithin_s = 60\n";
        assert!(Scenario::parse(good).is_ok());
        let refused = |text: String| Scenario::parse(&text).unwrap_err();
        let problem = refused(format!("{good}speed = 3\n"));
        assert!(
            problem.contains("line 4") && problem.contains("speed"),
            "{problem}"
        );
        assert!(refused(good.replace("[\"ring,4\"]", "[]")).contains("topologies"));
        assert!(refused(good.replace("within_s = 60", "")).contains("within_s"));
        let failure = "[failure]\nlink = [\"s1\", \"s9\"]\ninterval_ms = 10\nbefore_s = 1\n\
                       cut_s = 3\nmended_s = 3\nconverge_ms_max = 500\n";
        let scenario = Scenario::parse(&format!("{good}{failure}")).unwrap();
        assert!(
            scenario.networks(Path::new(".")).is_err(),
            "the ring has no switch s9"
        );
        let never = failure.replace("interval_ms = 10", "interval_ms = 0");
        assert!(refused(format!("{good}{never}")).contains("interval_ms"));
        let void = failure.replace("cut_s = 3", "cut_s = 0.4");
        assert!(refused(format!("{good}{void}")).contains("converge_ms_max"));
    }
}
