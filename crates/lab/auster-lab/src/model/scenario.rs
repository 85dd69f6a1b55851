//! The scenario of a model, as an operator writes it. `scenarios/channel-wire.toml` measures the
//! `[wire]` of the built-in one.

use std::path::Path;

use cli::failure::Failure;
use clock::Duration;
use sim::overhead::paper::Case;
use sim::overhead::wire::Host;

use serde::{Deserialize, Serialize};

use bench::channel::condition::{Bursts, Cell, Condition, Rtt, Sizes};
use bench::channel::method::Method;
use cli::toml_problem;

/// The scenario that `auster model` uses by default.
pub const BUILT_IN: &str = include_str!("../../../../../scenarios/overhead.toml");

/// More than any published figure needs, and still only seconds of work.
const CELLS_MAX: usize = 20_000;
const AGENTS_MAX: u32 = 1000;
/// Round-trip time above which a tenth of a millisecond added by the machine does not matter.
const LONG_RTT_MS: f64 = 20.0;
/// The most agents of a measurement, and so of its model.
const WIRE_AGENTS_MAX: usize = 16;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub kind: String,
    /// One line that says what the scenario shows.
    pub title: String,
    pub paper: PaperEntry,
    pub wire: WireEntry,
    #[serde(default)]
    pub host: HostEntry,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PaperEntry {
    pub message_bytes: u32,
    pub messages_per_agent: u32,
    pub agents: Vec<u32>,
    /// Messages a second of each agent.
    pub rates_per_s: Vec<f64>,
    /// T_b.
    pub buffering_ms: Vec<f64>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WireEntry {
    pub methods: Vec<String>,
    pub agents: Vec<usize>,
    /// Messages a second of each end, all its agents together.
    pub rates_per_s: Vec<f64>,
    pub loss_percent: Vec<f64>,
    /// Round-trip times such as `100` or `150±50`.
    pub rtts_ms: Vec<String>,
    /// Sizes such as `220` or `400/600`.
    pub sizes_bytes: Vec<String>,
    pub seconds: Option<f64>,
    #[serde(default = "one")]
    pub seed: u64,
    #[serde(default = "one")]
    pub seeds: u64,
}

/// Properties of the machine that affect the bytes; `sim::overhead::wire::Host` explains them.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HostEntry {
    pub wake_us: Option<f64>,
    pub tcp_item_us: Option<f64>,
    pub quic_item_us: Option<f64>,
    pub late_us: Option<f64>,
    pub timer_us: Option<f64>,
}

impl Scenario {
    /// Parses a scenario. The error lists all problems in one line.
    pub fn parse(text: &str) -> Result<Scenario, String> {
        let scenario: Scenario = toml::from_str(text).map_err(|e| toml_problem(text, &e))?;
        let problems = scenario.problems();
        match problems.is_empty() {
            true => Ok(scenario),
            false => Err(problems.join("; ")),
        }
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.kind != "overhead" {
            problems.push(format!("kind is \"overhead\" here, not \"{}\"", self.kind));
        }
        self.paper.add_problems(&mut problems);
        self.wire.add_problems(&mut problems);
        let host = &self.host;
        let times = [
            ("wake_us", host.wake_us),
            ("tcp_item_us", host.tcp_item_us),
            ("quic_item_us", host.quic_item_us),
            ("late_us", host.late_us),
            ("timer_us", host.timer_us),
        ];
        for (name, us) in times {
            if us.is_some_and(|us| !(0.0..=100_000.0).contains(&us)) {
                problems.push(format!("host.{name} is 0 to 100000"));
            }
        }
        problems
    }
}

impl PaperEntry {
    fn add_problems(&self, problems: &mut Vec<String>) {
        let mut check = |is_right: bool, problem: &str| {
            if !is_right {
                problems.push(problem.to_owned());
            }
        };
        let all = |numbers: &[f64], least: f64, most: f64| {
            !numbers.is_empty() && numbers.iter().all(|n| (least..=most).contains(n))
        };
        check(
            (1..=65_535).contains(&self.message_bytes),
            "paper.message_bytes is 1 to 65535",
        );
        check(
            (1..=1_000_000_000).contains(&self.messages_per_agent),
            "paper.messages_per_agent is 1 to 1000000000",
        );
        let agents = &self.agents;
        check(
            !agents.is_empty() && agents.iter().all(|n| (1..=AGENTS_MAX).contains(n)),
            "paper.agents: name at least one number, each 1 to 1000",
        );
        check(
            all(&self.rates_per_s, 0.001, 1e6),
            "paper.rates_per_s: name at least one, each 0.001 to 1000000",
        );
        check(
            all(&self.buffering_ms, 0.0, 10_000.0),
            "paper.buffering_ms: name at least one, each 0 to 10000",
        );
        let rows = agents.len() * self.rates_per_s.len() * self.buffering_ms.len();
        check(rows <= CELLS_MAX, "paper: more than 20000 rows");
    }
}

impl WireEntry {
    fn add_problems(&self, problems: &mut Vec<String>) {
        let list = |name: &str, numbers: &[f64], least: f64, most: f64| {
            let is_right =
                !numbers.is_empty() && numbers.iter().all(|n| (least..=most).contains(n));
            (!is_right).then(|| format!("wire.{name}: name at least one, each {least} to {most}"))
        };
        problems.extend(list("rates_per_s", &self.rates_per_s, 0.1, 100_000.0));
        problems.extend(list("loss_percent", &self.loss_percent, 0.0, 50.0));
        let agents: Vec<f64> = self.agents.iter().map(|n| *n as f64).collect();
        problems.extend(list("agents", &agents, 1.0, WIRE_AGENTS_MAX as f64));
        problems.extend(list("seeds", &[self.seeds as f64], 1.0, 100.0));
        if let Some(seconds) = self.seconds {
            problems.extend(list("seconds", &[seconds], 0.1, 600.0));
        }
        for (name, words) in [
            ("methods", &self.methods),
            ("rtts_ms", &self.rtts_ms),
            ("sizes_bytes", &self.sizes_bytes),
        ] {
            if words.is_empty() {
                problems.push(format!("wire.{name}: name at least one"));
            }
        }
        let said = |name: &str, problem: String| format!("wire.{name}: {problem}");
        let methods = self.methods.iter().filter_map(|m| Method::parse(m).err());
        problems.extend(methods.map(|p| said("methods", p)));
        let rtts = self.rtts_ms.iter().filter_map(|r| r.parse::<Rtt>().err());
        problems.extend(rtts.map(|p| said("rtts_ms", p)));
        let sizes = self
            .sizes_bytes
            .iter()
            .filter_map(|s| s.parse::<Sizes>().err());
        problems.extend(sizes.map(|p| said("sizes_bytes", p)));
        let cells = self.methods.len()
            * self.agents.len()
            * self.rates_per_s.len()
            * self.loss_percent.len()
            * self.rtts_ms.len()
            * self.sizes_bytes.len();
        if cells.saturating_mul(self.seeds as usize) > CELLS_MAX {
            problems.push(format!("wire: more than {CELLS_MAX} cells"));
        }
    }

    /// Returns all cells, one number of agents after the other. Methods vary fastest, then seeds.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for agents in &self.agents {
            for condition in self.conditions() {
                let seconds = self.seconds.unwrap_or_else(|| seconds(&condition));
                let each = condition.rate_per_s * seconds / *agents as f64;
                for seed in self.seed..self.seed + self.seeds {
                    let methods = self.methods.iter().filter_map(|m| Method::parse(m).ok());
                    cells.extend(methods.map(|method| Cell {
                        method,
                        condition: condition.clone(),
                        agents: *agents,
                        messages_per_agent: (each.round() as u32).max(1),
                        seed,
                    }));
                }
            }
        }
        cells
    }

    fn conditions(&self) -> Vec<Condition> {
        let mut conditions = Vec::new();
        for sizes in self.sizes_bytes.iter().filter_map(|s| s.parse().ok()) {
            let sizes: Sizes = sizes;
            for rtt in self.rtts_ms.iter().filter_map(|r| r.parse().ok()) {
                for rate_per_s in &self.rates_per_s {
                    conditions.extend(self.loss_percent.iter().map(|loss_percent| Condition {
                        rate_per_s: *rate_per_s,
                        loss_percent: *loss_percent,
                        bursts: Bursts::NONE,
                        rtt,
                        sizes: sizes.clone(),
                    }));
                }
            }
        }
        conditions
    }
}

/// Returns the seconds for which messages are sent, as in scenarios/channel-*.toml: enough messages
/// for a 99th percentile, or 300 in all at low rates.
fn seconds(condition: &Condition) -> f64 {
    let is_short = condition.rtt.ms < LONG_RTT_MS;
    match condition.rate_per_s {
        rate if rate <= 10.0 => 15.0,
        rate if rate <= 100.0 && is_short => 8.0,
        rate if rate <= 100.0 => 20.0,
        rate if rate <= 1000.0 && is_short => 8.0,
        rate if rate <= 1000.0 => 12.0,
        rate => (20_000.0 / rate).max(1.0),
    }
}

fn one() -> u64 {
    1
}

impl PaperEntry {
    /// One point of the paper's equations.
    pub fn case(&self, per_second: f64, agents: u32, buffering_ms: f64) -> Case {
        Case {
            message_bytes: self.message_bytes,
            messages_per_agent: self.messages_per_agent,
            agents,
            per_second,
            buffering_s: buffering_ms / 1e3,
        }
    }
}

impl HostEntry {
    /// Returns the model's figures, with the stated ones in place of the defaults.
    pub fn over_default(self) -> Host {
        let or = |us: Option<f64>, default: Duration| {
            us.map_or(default, |us| Duration::from_secs_f64(us / 1e6))
        };
        let default = Host::default();
        Host {
            wake: or(self.wake_us, default.wake),
            tcp_item: or(self.tcp_item_us, default.tcp_item),
            quic_item: or(self.quic_item_us, default.quic_item),
            late: or(self.late_us, default.late),
            timer: or(self.timer_us, default.timer),
        }
    }
}

/// Reads a scenario of overhead from its file.
pub fn read(path: &Path) -> Result<Scenario, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
    Scenario::parse(&text).map_err(|e| Failure::usage(format!("{}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_one_has_the_cells_of_the_issue() {
        let scenario = Scenario::parse(BUILT_IN).unwrap();
        let cells = scenario.wire.cells();
        assert_eq!(cells.len(), 5 * 14 * 4);
        let agents: std::collections::BTreeSet<usize> = cells.iter().map(|c| c.agents).collect();
        assert_eq!(agents, [1, 2, 4, 8, 16].into());
        let few = cells.iter().find(|cell| cell.condition.rate_per_s == 10.0);
        assert_eq!(few.unwrap().messages(), 300, "at 10 a second");
        let measured = include_str!("../../../../../scenarios/channel-wire.toml");
        for method in &scenario.wire.methods {
            assert!(measured.contains(&format!("\"{method}\"")), "{method}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_by_field_and_all_at_once() {
        let wrong = BUILT_IN
            .replace("message_bytes = 500", "message_bytes = 0")
            .replace("loss_percent = [1]", "loss_percent = [70]")
            .replace("\"quic-msg\"", "\"sctp\"")
            .replace("[\"0.32\"]", "[\"soon\"]")
            .replace("[1, 2, 4, 8, 16]", "[17]")
            + "[host]\nwake_us = -1\n";
        let said = Scenario::parse(&wrong).unwrap_err();
        for words in [
            "paper.message_bytes is 1 to 65535",
            "wire.loss_percent: name at least one, each 0 to 50",
            "wire.methods: 'sctp' is no method",
            "wire.rtts_ms: 'soon' is no RTT",
            "wire.agents: name at least one, each 1 to 16",
            "host.wake_us is 0 to 100000",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        let unknown = BUILT_IN.replace("seed", "sed") + "[wier]\n";
        assert!(Scenario::parse(&unknown).unwrap_err().contains("wier"));
        let other = BUILT_IN.replace("\"overhead\"", "\"table\"");
        assert!(
            Scenario::parse(&other)
                .unwrap_err()
                .contains("kind is \"overhead\" here")
        );
    }
}
