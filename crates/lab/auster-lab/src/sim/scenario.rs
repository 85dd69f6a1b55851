//! The simulated channel, as an operator writes it: its schedulers, the loads, and figures
//! found by others.

use cli::toml_problem;
use clock::Duration;
use sched::Direction;
use sched::policy::{Algorithm, PolicyMap};
use serde::{Deserialize, Serialize};
use sim::channel::{Arrivals, Cross, LineSetup, Retry, Setup, Target, Traffic};

use super::figures::Figure;

/// The kind that a scenario names. `None` means a control channel.
pub fn kind(text: &str) -> Option<String> {
    let document: toml::Table = toml::from_str(text).ok()?;
    Some(document.get("kind")?.as_str()?.to_owned())
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// One line that says what it shows.
    pub title: String,
    #[serde(default = "one")]
    pub seed: u64,
    pub runs: u64,
    /// Seconds of virtual time, each run.
    pub seconds: f64,
    /// Loads offered to the line, as shares of its rate.
    pub loads: Vec<f64>,
    /// Policy in the notation of `auster policy`.
    pub policy: String,
    pub line: LineEntry,
    pub target: TargetEntry,
    pub cross: CrossEntry,
    #[serde(default)]
    pub retry: RetryEntry,
    pub variant: Vec<Variant>,
    #[serde(default)]
    pub expect: Vec<Expectation>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineEntry {
    pub rate_mbit: f64,
    /// Propagation delay in one direction.
    pub propagation_ms: f64,
    pub controller_ms: f64,
    /// The largest extra time, evenly distributed, so that answers do not keep step with the wire.
    #[serde(default)]
    pub controller_jitter_ms: f64,
    /// Time that the model charges for the classification of a packet-in.
    #[serde(default)]
    pub classification_us: f64,
    /// Whether the controller answers; without, only the path to it is measured.
    #[serde(default = "yes")]
    pub answered: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetEntry {
    pub udp_dst: u16,
    /// The rate of packets in the data plane, each of which becomes a packet-in.
    pub kbit: f64,
    pub packet_bytes: u32,
    #[serde(default)]
    pub arrivals: ArrivalsEntry,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrossEntry {
    pub traffic: CrossTraffic,
    /// Destination port of its packets.
    #[serde(default = "some_port")]
    pub udp_dst: u16,
    /// Length of a data packet.
    #[serde(default)]
    pub packet_bytes: u32,
    #[serde(default)]
    pub both_ways: bool,
    /// Whether `loads` are those of target and cross traffic together.
    #[serde(default)]
    pub load_has_target: bool,
    #[serde(default)]
    pub arrivals: ArrivalsEntry,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CrossTraffic {
    /// Packet-ins to the controller, packet-outs to the switch.
    Packets,
    Echo,
    /// Data packets on a shared link.
    Data,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalsEntry {
    Even,
    #[default]
    Poisson,
    /// Bursts of 20 ms with pauses of 5 ms on average, the peak 1.25 times the mean.
    Bursts,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryEntry {
    pub after_ms: f64,
    pub times: u8,
    /// Time for transactions under way at the end, without new ones.
    pub drain_ms: f64,
}

/// One method of scheduling.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    pub name: String,
    pub scheduler: SchedulerEntry,
    /// Waits below the scheduler, at most.
    pub below_bytes: usize,
    /// Limit of each queue.
    pub queue_messages: usize,
    /// Time added to the hop delay to make the end-to-end delay.
    #[serde(default)]
    pub beyond_ms: f64,
    /// Instead of the cross traffic's.
    pub arrivals: Option<ArrivalsEntry>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerEntry {
    /// One queue for everything, and no map.
    Fifo,
    Strict,
    Wfq,
    Drr,
    MinRate,
    Edf,
    Hierarchy,
}

/// A figure found elsewhere.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// The source of the figure.
    pub by: String,
    pub variant: String,
    pub load: f64,
    pub figure: Figure,
    pub value: Option<f64>,
    /// Half the interval about it.
    pub spread: Option<f64>,
    /// Half the interval in percent of the value.
    pub percent: Option<f64>,
    pub above: Option<f64>,
    pub below: Option<f64>,
    /// The reason why it is known not to hold: then it is reported and not demanded.
    pub but: Option<String>,
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

    /// The channel under `variant` at `load`.
    pub fn setup(&self, variant: &Variant, load: f64) -> Result<Setup, String> {
        let per_second = self.target.kbit * 1000.0 / (8.0 * f64::from(self.target.packet_bytes));
        let mut setup = Setup {
            map: self.map(variant)?,
            line: LineSetup {
                rate_bps: (self.line.rate_mbit * 1e6) as u64,
                propagation: milliseconds(self.line.propagation_ms),
                below_bytes: variant.below_bytes,
            },
            controller: milliseconds(self.line.controller_ms),
            controller_jitter: milliseconds(self.line.controller_jitter_ms),
            classification: milliseconds(self.line.classification_us / 1000.0),
            target: Target {
                udp_dst: self.target.udp_dst,
                per_second,
                arrivals: self.target.arrivals.into(),
            },
            cross: Vec::new(),
            retry: Retry {
                after: milliseconds(self.retry.after_ms),
                times: self.retry.times,
            },
            is_answered: self.line.answered,
            duration: milliseconds(self.seconds * 1000.0),
            drain: milliseconds(self.retry.drain_ms),
        };
        let target_share = match self.cross.load_has_target {
            true => per_second / setup.capacity_per_second(),
            false => 0.0,
        };
        let share = (load - target_share).max(0.0);
        let (traffic, per_second) = match self.cross.traffic {
            CrossTraffic::Data => {
                let bits = f64::from(self.cross.packet_bytes) * 8.0;
                let traffic = Traffic::Data {
                    bytes: self.cross.packet_bytes,
                };
                (traffic, share * setup.line.rate_bps as f64 / bits)
            }
            CrossTraffic::Echo => (Traffic::Echo, share * setup.capacity_per_second()),
            CrossTraffic::Packets => {
                let traffic = Traffic::Packets {
                    udp_dst: self.cross.udp_dst,
                    in_port: CROSS_PORT,
                };
                (traffic, share * setup.capacity_per_second())
            }
        };
        let source = |direction| Cross {
            direction,
            traffic,
            per_second,
            arrivals: variant.arrivals.unwrap_or(self.cross.arrivals).into(),
        };
        setup.cross.push(source(Direction::ToController));
        if self.cross.both_ways {
            setup.cross.push(source(Direction::ToSwitch));
        }
        Ok(setup)
    }

    fn map(&self, variant: &Variant) -> Result<PolicyMap, String> {
        let mut map = match variant.scheduler {
            SchedulerEntry::Fifo => PolicyMap::none(),
            _ => super::policy(&self.policy)?,
        };
        map.scheduling.algorithm = variant.scheduler.into();
        for queue in &mut map.scheduling.queues {
            queue.messages_max = variant.queue_messages;
        }
        Ok(map)
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |is_right: bool, problem: &str| {
            if !is_right {
                problems.push(problem.to_owned());
            }
        };
        let is_within = |n: f64, least: f64, most: f64| (least..=most).contains(&n);
        check((1..=10_000).contains(&self.runs), "runs is 1 to 10000");
        check(
            is_within(self.seconds, 0.01, 3600.0),
            "seconds is 0.01 to 3600",
        );
        check(!self.loads.is_empty(), "loads: name at least one");
        let are_loads_right = self.loads.iter().all(|load| is_within(*load, 0.0, 10.0));
        check(are_loads_right, "loads are 0 to 10 times the line");
        let (line, target) = (&self.line, &self.target);
        check(
            is_within(line.rate_mbit, 0.001, 1e6),
            "line.rate_mbit is 0.001 to 1000000",
        );
        let times = [
            line.propagation_ms,
            line.controller_ms,
            line.controller_jitter_ms,
            line.classification_us / 1e3,
            self.retry.drain_ms,
        ];
        let are_times_right = times.iter().all(|ms| is_within(*ms, 0.0, 60_000.0));
        check(are_times_right, "line and retry: times are 0 to 60 seconds");
        check(
            is_within(self.retry.after_ms, 0.0, 600_000.0),
            "retry.after_ms is 0 to 600000",
        );
        check(is_within(target.kbit, 0.0, 1e9), "target.kbit is 0 or more");
        check(target.packet_bytes > 0, "target.packet_bytes is 1 or more");
        let is_data = matches!(self.cross.traffic, CrossTraffic::Data);
        check(
            !is_data || (64..=9000).contains(&self.cross.packet_bytes),
            "cross.packet_bytes is 64 to 9000 for data packets",
        );
        check(!self.variant.is_empty(), "variant: name at least one");
        for variant in &self.variant {
            if variant.queue_messages == 0 {
                problems.push(format!(
                    "variant {}: queue_messages is 1 or more",
                    variant.name
                ));
            }
            if let Err(problem) = self.map(variant) {
                problems.push(format!("policy: {problem}"));
                break;
            }
        }
        for expect in &self.expect {
            let is_known = self.variant.iter().any(|v| v.name == expect.variant);
            if !is_known || !self.loads.contains(&expect.load) {
                problems.push(format!(
                    "expect: there is no variant {} at load {}",
                    expect.variant, expect.load
                ));
            }
            let bounds = [expect.value, expect.above, expect.below];
            if bounds.iter().all(Option::is_none) {
                problems.push("expect: say value, above or below".to_owned());
            }
        }
        problems
    }
}

impl Default for RetryEntry {
    fn default() -> RetryEntry {
        RetryEntry {
            after_ms: 1000.0,
            times: 3,
            drain_ms: 0.0,
        }
    }
}

impl From<ArrivalsEntry> for Arrivals {
    fn from(entry: ArrivalsEntry) -> Arrivals {
        match entry {
            ArrivalsEntry::Even => Arrivals::Even,
            ArrivalsEntry::Poisson => Arrivals::Poisson,
            ArrivalsEntry::Bursts => Arrivals::Bursts {
                on: Duration::from_millis(20),
                off: Duration::from_millis(5),
            },
        }
    }
}

impl From<SchedulerEntry> for Algorithm {
    fn from(entry: SchedulerEntry) -> Algorithm {
        match entry {
            SchedulerEntry::Fifo => Algorithm::Fifo,
            SchedulerEntry::Strict => Algorithm::Strict,
            SchedulerEntry::Wfq => Algorithm::Wfq,
            SchedulerEntry::Drr => Algorithm::Drr,
            SchedulerEntry::MinRate => Algorithm::MinRate,
            SchedulerEntry::Edf => Algorithm::Edf,
            SchedulerEntry::Hierarchy => Algorithm::Hierarchy,
        }
    }
}

/// Where cross packets come in; the target's is 1.
const CROSS_PORT: u32 = 2;

fn milliseconds(ms: f64) -> Duration {
    Duration::from_nanos((ms * 1e6).round() as u64)
}

fn one() -> u64 {
    1
}

fn yes() -> bool {
    true
}

fn some_port() -> u16 {
    30_000
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn of_the_project(name: &str) -> String {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios");
        std::fs::read_to_string(dir.join(name)).unwrap()
    }

    #[test]
    fn the_scenarios_of_the_project_are_read_and_each_of_their_cells_can_run() {
        for name in [
            "pso-fig7-8.toml",
            "pso-fig9.toml",
            "pso-ns3.toml",
            "pso-disciplines.toml",
            "pso-flood-above.toml",
        ] {
            let mut scenario = Scenario::parse(&of_the_project(name)).unwrap();
            scenario.seconds = 0.02;
            for variant in &scenario.variant {
                let setup = scenario.setup(variant, scenario.loads[0]).unwrap();
                let outcome = setup.run(1);
                assert!(outcome.begun > 0, "{name}, {}", variant.name);
            }
            assert!(!scenario.expect.is_empty(), "{name}");
        }
    }

    #[test]
    fn a_load_with_the_target_in_it_is_the_line_s_and_one_without_is_beside_it() {
        let text = of_the_project("pso-fig7-8.toml");
        let per_second = |text: &str| {
            let scenario = Scenario::parse(text).unwrap();
            let setup = scenario.setup(&scenario.variant[0], 1.0).unwrap();
            assert_eq!(setup.cross.len(), 2);
            setup.cross[0].per_second
        };
        // 100 Mbit/s in messages of 220 bytes, and the target's 1 Mbit/s in packets of 512.
        assert!((per_second(&text) - 56_818.2).abs() < 0.1);
        let together = text.replace(
            "both_ways = true",
            "both_ways = true\nload_has_target = true",
        );
        assert!((per_second(&together) - (56_818.2 - 244.1)).abs() < 0.1);
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let text = of_the_project("pso-fig9.toml")
            .replace("seconds = 5", "seconds = 0")
            .replace("packet_bytes = 1000\n", "")
            .replace("action=dscp:CS6", "action=dscp:CS9")
            .replace("variant = \"PSO, strict\"", "variant = \"PSO\"");
        let problem = Scenario::parse(&text).unwrap_err();
        for part in [
            "seconds is",
            "cross.packet_bytes",
            "policy: ",
            "no variant PSO at",
        ] {
            assert!(problem.contains(part), "{problem}");
        }
        let problem = Scenario::parse("title = 3\n").unwrap_err();
        assert!(problem.starts_with("line 1:"), "{problem}");
    }
}
