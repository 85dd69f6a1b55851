//! The settings of an in-band experiment, as its scenario file states them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::pso::packet::{FRAME_BYTES_MAX, FRAME_BYTES_MIN};
use cli::failure::Failure;
use cli::toml_problem;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub title: String,
    pub seed: u64,
    pub in_band: InBand,
}

/// Two switches, and one link between them that control and data share.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct InBand {
    /// The rate of the shared link, in each direction, counted as the kernel does: Ethernet frames.
    pub link_mbps: f64,
    /// The most packets that wait for a plain link.
    pub fifo_packets: u32,
    /// With DSCP actions.
    pub policy: PathBuf,
    /// A code point that the switches give the tunnel. Relays then have no map, and mark nothing.
    pub tunnel_dscp: Option<u8>,
    /// OpenFlow messages of new flows as a share of the link, in OpenFlow's own bytes.
    pub openflow_share: f64,
    /// New flows of the target among them.
    pub target_per_s: f64,
    /// The size of each PACKET_IN.
    pub message_bytes: usize,
    /// The size of each data packet, as an Ethernet frame.
    pub data_bytes: usize,
    /// Data offered, as a share of the link.
    pub data_loads: Vec<f64>,
    /// The share of the data that bears a code point of its own and must keep it.
    pub marked_share: f64,
    pub marked_dscp: u8,
    /// The share of the data that bears a code point of control and must lose it.
    pub hostile_share: f64,
    pub hostile_dscp: u8,
    pub runs: u32,
    pub run_s: f64,
    pub claims: Claims,
    #[serde(skip_serializing)]
    quick: Option<Quick>,
}

/// The claims that the results must meet.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// With queues, the 99th percentile at any load, in that without data.
    pub p99_ratio_max: f64,
    /// From this load on a plain link is overloaded, and must show it.
    pub overloaded: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quick {
    data_loads: Vec<f64>,
    runs: u32,
    run_s: f64,
}

const LINK_MBPS_MAX: f64 = 1000.0;
const LOAD_MAX: f64 = 4.0;
const RUN_S_MAX: f64 = 60.0;
const RUNS_MAX: u32 = 1000;
/// Bytes of a PACKET_IN before its packet: header, fields, a match with the port, and padding.
const PACKET_IN_HEAD_BYTES: usize = 42;

/// Whether a scenario's text is one of this kind. Reading it reports its errors.
pub fn is_ours(text: &str) -> bool {
    let file: Result<toml::Table, _> = toml::from_str(text);
    file.is_ok_and(|file| file.contains_key("in_band"))
}

impl Scenario {
    pub fn read(path: &Path) -> Result<Scenario, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
        Scenario::parse(&text)
            .map_err(|problem| Failure::usage(format!("{}: {problem}", path.display())))
    }

    fn parse(text: &str) -> Result<Scenario, String> {
        let scenario: Scenario = toml::from_str(text).map_err(|e| toml_problem(text, &e))?;
        let problems = scenario.in_band.problems();
        match problems.is_empty() {
            true => Ok(scenario),
            false => Err(problems.join("; ")),
        }
    }
}

impl InBand {
    /// Only the part for those in a hurry.
    pub fn quick(mut self) -> Result<InBand, Failure> {
        let quick = self
            .quick
            .take()
            .ok_or_else(|| Failure::usage("--quick: this scenario has no [in_band.quick]"))?;
        self.data_loads = quick.data_loads;
        self.runs = quick.runs;
        self.run_s = quick.run_s;
        Ok(self)
    }

    pub fn link_bps(&self) -> u64 {
        (self.link_mbps * 1e6).round() as u64
    }

    /// The size of each packet of a new flow.
    pub fn flow_frame_bytes(&self) -> usize {
        self.message_bytes - PACKET_IN_HEAD_BYTES
    }

    /// PACKET_INs in a second, those of the target flow included.
    pub fn messages_per_s(&self) -> f64 {
        self.openflow_share * self.link_mbps * 1e6 / (8.0 * self.message_bytes as f64)
    }

    pub fn data_per_s(&self, load: f64) -> f64 {
        load * self.link_mbps * 1e6 / (8.0 * self.data_bytes as f64)
    }

    pub fn run_duration(&self) -> Duration {
        Duration::from_secs_f64(self.run_s)
    }

    /// No data first: it is what the others are held against.
    pub fn loads(&self) -> Vec<f64> {
        let others = self.data_loads.iter().copied().filter(|load| *load > 0.0);
        std::iter::once(0.0).chain(others).collect()
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |is_right: bool, problem: &str| {
            if !is_right {
                problems.push(problem.to_string());
            }
        };
        let within = |value: f64, max: f64| value > 0.0 && value <= max;
        check(
            within(self.link_mbps, LINK_MBPS_MAX),
            "link_mbps: above 0 and up to 1000",
        );
        check(self.fifo_packets > 0, "fifo_packets: at least 1");
        check(
            within(self.openflow_share, 1.0),
            "openflow_share: above 0 and up to 1",
        );
        let bytes = FRAME_BYTES_MIN + PACKET_IN_HEAD_BYTES..=FRAME_BYTES_MAX + PACKET_IN_HEAD_BYTES;
        check(
            bytes.contains(&self.message_bytes),
            "message_bytes: 108 to 1556",
        );
        let bytes = FRAME_BYTES_MIN..=FRAME_BYTES_MAX;
        check(bytes.contains(&self.data_bytes), "data_bytes: 66 to 1514");
        check(
            within(self.target_per_s, self.messages_per_s()),
            "target_per_s: above 0, and no more than openflow_share of the link",
        );
        check(
            !self.data_loads.is_empty()
                && self
                    .data_loads
                    .iter()
                    .all(|load| (0.0..=LOAD_MAX).contains(load)),
            "data_loads: 0 to 4",
        );
        let shares = [self.marked_share, self.hostile_share];
        check(
            shares.iter().all(|s| (0.0..1.0).contains(s)) && shares.iter().sum::<f64>() < 1.0,
            "marked_share, hostile_share: from 0, and below 1 together",
        );
        check(
            self.marked_dscp < 64 && self.hostile_dscp < 64,
            "marked_dscp, hostile_dscp: 0 to 63",
        );
        check((1..=RUNS_MAX).contains(&self.runs), "runs: 1 to 1000");
        check(within(self.run_s, RUN_S_MAX), "run_s: above 0 and up to 60");
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios");
        std::fs::read_to_string(path.join("pso-in-band.toml")).unwrap()
    }

    #[test]
    fn the_scenario_of_the_project_is_read_and_has_a_quick_part() {
        assert!(is_ours(&text()));
        assert!(!is_ours("title = 'x'\ntopologies = ['ring,4']"));
        let whole = Scenario::parse(&text()).unwrap().in_band;
        assert_eq!(whole.loads()[0], 0.0);
        assert!(whole.loads().last().unwrap() >= &1.2);
        // What is offered is what is said.
        let bits = whole.data_per_s(0.5) * whole.data_bytes as f64 * 8.0;
        assert!((bits / whole.link_bps() as f64 - 0.5).abs() < 1e-9);
        let quick = whole.clone().quick().unwrap();
        assert!(quick.loads().len() < whole.loads().len() && quick.runs < whole.runs);
    }

    #[test]
    fn all_that_is_wrong_is_told_together() {
        let mut file: toml::Table = toml::from_str(&text()).unwrap();
        let table = file["in_band"].as_table_mut().unwrap();
        table.insert("data_bytes".into(), 60.into());
        table.insert("marked_share".into(), 1.5.into());
        table.insert("hostile_dscp".into(), 64.into());
        let problem = Scenario::parse(&toml::to_string(&file).unwrap()).unwrap_err();
        for part in [
            "data_bytes: 66",
            "marked_share, hostile",
            "marked_dscp, hostile_dscp: 0",
        ] {
            assert!(problem.contains(part), "{problem}");
        }
    }
}
