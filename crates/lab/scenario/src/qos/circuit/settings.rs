//! The settings of an experiment on a circuit, as its scenario file states them.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use auster::queues::plan::Rate;
use bench::network::udp::{HEADER_BYTES, Pace};
use cli::failure::Failure;
use cli::toml_problem;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub title: String,
    pub qos_circuit: Settings,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The rate of every link between switches, which its queues enforce. Like all rates in this
    /// notation, it counts Ethernet frames.
    pub link_rate: String,
    pub circuit_rate: String,
    /// The code point of the circuit's own queues.
    pub dscp: u8,
    /// The rate of a second circuit. A link has room for it only without the first.
    pub too_much: String,
    /// The rate of the stream, as UDP payload.
    pub stream_mbps: f64,
    pub background_mbps: f64,
    pub datagram_bytes: usize,
    /// Before anything is counted.
    pub settle_s: f64,
    /// Until the link fails.
    pub before_s: f64,
    pub after_s: f64,
    /// After the failure, until the stream has to keep its rate again.
    pub recover_s: f64,
    pub runs: u32,
    pub claims: Claims,
    #[serde(skip_serializing)]
    quick: Option<Quick>,
}

/// The claims that every run must meet.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// The stream's loss, on the first path and on the second.
    pub loss_percent_max: f64,
    /// The background's loss, on both. Without loss there is nothing to be protected from.
    pub background_loss_percent_min: f64,
    /// From the failure until a datagram arrives that was sent after it.
    pub moved_ms_max: f64,
    /// From the failure until its queues are in effect at every port of the second path.
    pub queues_ms_max: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quick {
    runs: u32,
    before_s: f64,
    after_s: f64,
}

/// Headers of UDP, IPv4 and Ethernet before a payload.
pub const FRAME_HEADERS_BYTES: usize = 8 + 20 + 14;
/// The time to start a network, discover it, set its queues, and take it down.
const NETWORK_S: f64 = 9.0;
const RUNS_MAX: u32 = 100;
const STREAM_MBPS_MAX: f64 = 500.0;
/// The least time that is observed before and after a change.
const PHASE_S_MIN: f64 = 0.5;

/// Whether a scenario's text is one of this kind.
pub fn is_ours(text: &str) -> bool {
    let file: Result<toml::Table, _> = toml::from_str(text);
    file.is_ok_and(|file| file.contains_key("qos_circuit"))
}

impl Scenario {
    pub fn read(path: &Path) -> Result<Scenario, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
        Scenario::parse(&text)
            .map_err(|problem| Failure::usage(format!("{}: {problem}", path.display())))
    }

    pub fn parse(text: &str) -> Result<Scenario, String> {
        let scenario: Scenario = toml::from_str(text).map_err(|e| toml_problem(text, &e))?;
        let problems = scenario.qos_circuit.problems();
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
            .ok_or_else(|| Failure::usage("--quick: this scenario has no [qos_circuit.quick]"))?;
        (self.runs, self.before_s, self.after_s) = (quick.runs, quick.before_s, quick.after_s);
        Ok(self)
    }

    /// Applies the command line's number of runs, which overrides the file's.
    pub fn bound(&mut self, runs: Option<u32>) -> Result<(), Failure> {
        self.runs = runs.unwrap_or(self.runs);
        match self.problems().as_slice() {
            [] => Ok(()),
            problems => Err(Failure::usage(problems.join("; "))),
        }
    }

    pub fn expected(&self) -> Duration {
        (Duration::from_secs_f64(NETWORK_S) + self.lasts()) * self.runs
    }

    /// The duration of a stream.
    pub fn lasts(&self) -> Duration {
        Duration::from_secs_f64(self.settle_s + self.before_s + self.after_s)
    }

    pub fn pace(&self, rate_mbps: f64) -> Pace {
        Pace {
            rate_mbps,
            datagram_bytes: self.datagram_bytes,
            duration: self.lasts(),
        }
    }

    /// A payload's rate, counted as the kernel counts.
    pub fn frames_mbps(&self, payload_mbps: f64) -> f64 {
        let bytes = self.datagram_bytes as f64;
        payload_mbps * (bytes + FRAME_HEADERS_BYTES as f64) / bytes
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let rate = |name: &str, text: &str, problems: &mut Vec<String>| {
            let read = text.parse::<Rate>();
            if let Err(problem) = &read {
                problems.push(format!("{name}: {problem}"));
            }
            read.ok().map(|rate| rate.0 as f64 / 1e6)
        };
        let link = rate("link_rate", &self.link_rate, &mut problems);
        let circuit = rate("circuit_rate", &self.circuit_rate, &mut problems);
        let too_much = rate("too_much", &self.too_much, &mut problems);
        let mut check = |is_right: bool, problem: &str| {
            if !is_right {
                problems.push(problem.to_owned());
            }
        };
        let within = |value: f64, max: f64| value > 0.0 && value <= max;
        let sizes = HEADER_BYTES..=1472;
        check(
            sizes.contains(&self.datagram_bytes),
            "datagram_bytes: 24 to 1472",
        );
        check((1..=63).contains(&self.dscp), "dscp: 1 to 63");
        check(
            within(self.stream_mbps, STREAM_MBPS_MAX),
            "stream_mbps: above 0 and up to 500",
        );
        check(
            within(self.background_mbps, STREAM_MBPS_MAX),
            "background_mbps: above 0 and up to 500",
        );
        check(
            within(self.settle_s, 60.0),
            "settle_s: above 0 and up to 60",
        );
        check(
            self.before_s >= PHASE_S_MIN && self.before_s <= 60.0,
            "before_s: 0.5 to 60",
        );
        check(
            within(self.recover_s, 60.0) && self.after_s >= self.recover_s + PHASE_S_MIN,
            "after_s: half a second more than recover_s at least",
        );
        check(self.after_s <= 60.0, "after_s: up to 60");
        check((1..=RUNS_MAX).contains(&self.runs), "runs: 1 to 100");
        if let (Some(link), Some(circuit), Some(too_much)) = (link, circuit, too_much) {
            check(
                self.frames_mbps(self.stream_mbps) <= circuit,
                "stream_mbps: with its headers it is above circuit_rate",
            );
            check(
                self.frames_mbps(self.background_mbps) > link,
                "background_mbps: it does not fill a link, so that there is nothing to see",
            );
            check(
                too_much <= link && too_much + circuit > link,
                "too_much: of link_rate, more than circuit_rate leaves",
            );
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios/qos-circuit.toml");
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn the_scenario_of_the_project_is_read_and_has_a_quick_part() {
        assert!(is_ours(&text()));
        assert!(!is_ours("title = 'x'\ntopologies = ['ring,4']"));
        let whole = Scenario::parse(&text()).unwrap().qos_circuit;
        assert!(whole.expected() < Duration::from_secs(240));
        let quick = whole.quick().unwrap();
        assert!(quick.expected() < Duration::from_secs(40));
        assert!(quick.quick().is_err(), "there is nothing quicker");
    }

    #[test]
    fn all_that_is_wrong_is_told_together() {
        let wrong = text()
            .replace("stream_mbps = 9.5", "stream_mbps = 9.9")
            .replace("background_mbps = 60", "background_mbps = 20")
            .replace("too_much = \"35mbit\"", "too_much = \"25mbit\"")
            .replace("recover_s = 2", "recover_s = 30");
        let problem = Scenario::parse(&wrong).unwrap_err();
        for part in ["stream_mbps:", "background_mbps:", "too_much:", "after_s:"] {
            assert!(problem.contains(part), "{part}: {problem}");
        }
        let unreadable = text().replace("\"40mbit\"", "\"fast\"");
        let problem = Scenario::parse(&unreadable).unwrap_err();
        assert!(problem.contains("link_rate:"), "{problem}");
    }
}
