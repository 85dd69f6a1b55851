//! The settings of an experiment on priority scheduling, as its scenario file states them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::pso::packet::{FRAME_BYTES_MAX, FRAME_BYTES_MIN};
use cli::failure::Failure;
use cli::toml_problem;
use testbed::plane::Transport;

/// A scenario of this kind has one of the tables below; all others have none.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub title: String,
    pub seed: u64,
    pub out_of_band: OutOfBand,
}

/// One switch whose control link is a wire of its own, of a limited rate.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OutOfBand {
    /// The rate of the control link, in each direction.
    pub link_mbps: f64,
    /// The most that the relays send, headers included: `--rate`, or over QUIC `--guaranteed-rate`.
    /// A little less than the link's, so that packets queue in the relays and not in the kernel.
    /// Without it the relays send as fast as they may.
    pub relay_mbps: Option<f64>,
    /// The most packets that wait in the kernel for the link, in each direction.
    pub link_queue_packets: u32,
    /// The controller's time for each answer; it answers others meanwhile. This is the fixed part
    /// of the hop delay, including the propagation of a long link if there is to be one.
    pub controller_ms: f64,
    /// The size of each PACKET_IN. Load 1 is `link_mbps` of these, in OpenFlow's own bytes.
    pub message_bytes: usize,
    pub target_per_s: f64,
    /// Rules and queues; the algorithm is put under them.
    pub policy: PathBuf,
    pub transports: Vec<Transport>,
    pub algorithms: Vec<String>,
    /// Target and cross packets together, as a share of the link.
    pub loads: Vec<f64>,
    pub runs: u32,
    pub run_s: f64,
    pub claims: Claims,
    pub flood: Option<Flood>,
    /// The part that `--quick` runs.
    #[serde(skip_serializing)]
    quick: Option<Quick>,
}

/// The claims that the results must meet.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// The algorithm that the claims are about, and the one that it is held against.
    pub algorithm: String,
    pub against: String,
    /// The unloaded value is the one at this load.
    pub unloaded: f64,
    /// Overload begins here.
    pub overloaded: f64,
    /// The 99th percentile of the hop delay, overloaded, in unloaded ones.
    pub p99_ratio_max: f64,
    /// The other algorithm's percentile, divided by this one's.
    pub against_ratio_min: f64,
}

/// Cross packets in the class above the target's.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Flood {
    pub policy: PathBuf,
    /// The port of all cross packets.
    pub port: u16,
    pub load: f64,
    pub algorithms: Vec<String>,
    pub runs: u32,
    pub run_s: f64,
    /// The algorithm that must not starve the target, and the one that is shown to.
    pub fair: String,
    pub starving: String,
    /// A packet that is answered later than this is starved.
    pub starved_ms: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quick {
    transports: Vec<Transport>,
    algorithms: Vec<String>,
    loads: Vec<f64>,
    runs: u32,
}

/// Algorithms that a policy map names.
const ALGORITHMS: [&str; 7] = [
    "fifo",
    "strict",
    "wfq",
    "drr",
    "min-rate",
    "edf",
    "hierarchy",
];
const LINK_MBPS_MAX: f64 = 1000.0;
const LOAD_MAX: f64 = 10.0;
const RUN_S_MAX: f64 = 60.0;
/// The most runs of a cell, in a scenario and for `--runs`.
pub const RUNS_MAX: u32 = 1000;
/// Bytes of a PACKET_IN before its packet: header, fields, a match with the port, and padding.
const PACKET_IN_HEAD_BYTES: usize = 42;

/// Whether a scenario's text is one of this kind. Reading it reports its errors.
pub fn is_ours(text: &str) -> bool {
    let file: Result<toml::Table, _> = toml::from_str(text);
    file.is_ok_and(|file| file.contains_key("out_of_band"))
}

impl Scenario {
    pub fn read(path: &Path) -> Result<Scenario, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
        Scenario::parse(&text)
            .map_err(|problem| Failure::usage(format!("{}: {problem}", path.display())))
    }

    fn parse(text: &str) -> Result<Scenario, String> {
        let scenario: Scenario = toml::from_str(text).map_err(|e| toml_problem(text, &e))?;
        let problems = scenario.out_of_band.problems();
        match problems.is_empty() {
            true => Ok(scenario),
            false => Err(problems.join("; ")),
        }
    }
}

impl OutOfBand {
    /// Only the part for those in a hurry.
    pub fn quick(mut self) -> Result<OutOfBand, Failure> {
        let quick = self
            .quick
            .take()
            .ok_or_else(|| Failure::usage("--quick: this scenario has no [out_of_band.quick]"))?;
        self.transports = quick.transports;
        self.algorithms = quick.algorithms;
        self.loads = quick.loads;
        self.runs = quick.runs;
        self.flood = None;
        Ok(self)
    }

    /// The size of each Ethernet frame between the hosts.
    pub fn frame_bytes(&self) -> usize {
        self.message_bytes - PACKET_IN_HEAD_BYTES
    }

    /// PACKET_INs in a second at load 1.
    pub fn messages_per_s(&self) -> f64 {
        self.link_mbps * 1e6 / (8.0 * self.message_bytes as f64)
    }

    pub fn cross_per_s(&self, load: f64) -> f64 {
        (load * self.messages_per_s() - self.target_per_s).max(0.0)
    }

    /// How often a load is offered, the floods included.
    pub fn runs_in_all(&self) -> u32 {
        let grid = self.algorithms.len() * self.loads.len();
        let flood = (self.flood.as_ref()).map_or(0, |f| f.algorithms.len() as u32 * f.runs);
        self.transports.len() as u32 * (grid as u32 * self.runs + flood)
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |is_right: bool, problem: &str| {
            if !is_right {
                problems.push(problem.to_string());
            }
        };
        let within = |value: f64, max: f64| value > 0.0 && value <= max;
        let known = |name: &String| ALGORITHMS.contains(&name.as_str());
        check(
            within(self.link_mbps, LINK_MBPS_MAX),
            "link_mbps: above 0 and up to 1000",
        );
        check(
            self.link_queue_packets > 0,
            "link_queue_packets: at least 1",
        );
        check(
            (0.0..=1000.0).contains(&self.controller_ms),
            "controller_ms: 0 to 1000",
        );
        let bytes = FRAME_BYTES_MIN + PACKET_IN_HEAD_BYTES..=FRAME_BYTES_MAX + PACKET_IN_HEAD_BYTES;
        check(
            bytes.contains(&self.message_bytes),
            "message_bytes: 108 to 1556",
        );
        check(!self.transports.is_empty(), "transports: name at least one");
        check(
            !self.algorithms.is_empty() && self.algorithms.iter().all(known),
            &format!("algorithms: some of {}", ALGORITHMS.join(", ")),
        );
        let load = |load: &f64| within(*load, LOAD_MAX);
        check(
            !self.loads.is_empty() && self.loads.iter().all(load),
            "loads: above 0 and up to 10",
        );
        check((1..=RUNS_MAX).contains(&self.runs), "runs: 1 to 1000");
        check(within(self.run_s, RUN_S_MAX), "run_s: above 0 and up to 60");
        let least = self.loads.iter().copied().fold(LOAD_MAX, f64::min);
        check(
            within(self.target_per_s, least * self.messages_per_s().max(1.0)),
            "target_per_s: above 0, and no more than the least load offers",
        );
        if let Some(flood) = &self.flood {
            check(load(&flood.load), "flood.load: above 0 and up to 10");
            check(
                flood.algorithms.iter().all(known),
                "flood.algorithms: as algorithms",
            );
            check(
                (1..=RUNS_MAX).contains(&flood.runs),
                "flood.runs: 1 to 1000",
            );
            check(
                within(flood.run_s, RUN_S_MAX),
                "flood.run_s: above 0 and up to 60",
            );
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios");
        std::fs::read_to_string(path.join("pso-out-of-band.toml")).unwrap()
    }

    #[test]
    fn the_scenario_of_the_project_is_read_and_has_a_quick_part() {
        assert!(is_ours(&text()));
        assert!(!is_ours("title = 'x'\ntopologies = ['ring,4']"));
        let whole = Scenario::parse(&text()).unwrap().out_of_band;
        let count = whole.runs_in_all();
        let quick = whole.clone().quick().unwrap();
        assert!(quick.runs_in_all() * 4 < count);
        assert!(quick.quick().is_err(), "there is nothing quicker");
        // What is offered at load 1 is what the link carries.
        let bits = whole.messages_per_s() * whole.message_bytes as f64 * 8.0;
        assert_eq!(bits, whole.link_mbps * 1e6);
        let all = whole.cross_per_s(1.5) + whole.target_per_s;
        assert!((all / whole.messages_per_s() - 1.5).abs() < 1e-9);
    }

    #[test]
    fn all_that_is_wrong_is_told_together() {
        let mut file: toml::Table = toml::from_str(&text()).unwrap();
        let table = file["out_of_band"].as_table_mut().unwrap();
        table.insert("message_bytes".into(), 60.into());
        table.insert("loads".into(), toml::Value::Array(vec![0.0.into()]));
        table.insert("algorithms".into(), toml::Value::Array(vec!["best".into()]));
        let problem = Scenario::parse(&toml::to_string(&file).unwrap()).unwrap_err();
        for part in [
            "message_bytes: 108",
            "loads: above 0",
            "algorithms: some of fifo",
        ] {
            assert!(problem.contains(part), "{problem}");
        }
        let problem = Scenario::parse(&format!("{}\nspeed = 1\n", text())).unwrap_err();
        assert!(
            problem.contains("speed") && problem.contains("line"),
            "{problem}"
        );
    }
}
