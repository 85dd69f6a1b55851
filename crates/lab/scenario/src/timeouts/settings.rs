//! The settings of an experiment on timeouts, as its scenario file states them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::timeouts::problems;
use crate::timeouts::steps::Step;
use bench::network::udp::Pace;
use cli::failure::Failure;
use cli::toml_problem;
use report::machine::version_line;

/// A scenario of this kind has the table below; all others have none.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub title: String,
    pub timeouts: Settings,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The duration of every stream.
    pub seconds: f64,
    /// UDP payload.
    pub datagram_bytes: u16,
    /// The runs of every cell that states no number of its own.
    pub runs: u32,
    /// The controllers' configuration files, by name.
    #[serde(default)]
    pub controllers: BTreeMap<String, toml::Table>,
    #[serde(default)]
    pub streams: Vec<Streams>,
    #[serde(default)]
    pub pings: Vec<Pings>,
    #[serde(default)]
    pub claims: Claims,
    #[serde(default)]
    pub plots: Vec<PlotOf>,
    /// The part that `--quick` runs.
    #[serde(skip_serializing)]
    quick: Option<Quick>,
}

/// UDP from the first host to the last, once per rate.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    pub name: String,
    /// One of `controllers`, or `none`: each switch learns by itself.
    pub controller: String,
    #[serde(default = "single")]
    pub topology: String,
    /// The delay added for a packet that goes through the controller: half of it in each direction
    /// of the link between switches and controller.
    #[serde(default)]
    pub detour_ms: f64,
    pub rates_mbps: Vec<f64>,
    /// At once, each at the rate.
    #[serde(default = "one")]
    pub streams: u32,
    pub runs: Option<u32>,
    /// Runs after which iperf measures the same in a network of its own.
    #[serde(default)]
    pub iperf_runs: u32,
    /// Where the row stands on the x axis of a plot whose x is `at`.
    pub at: Option<f64>,
    pub load: Option<Load>,
    /// The stream's first packet is the first that the hosts have for each other: the time to find
    /// the other one's address is part of it.
    #[serde(default)]
    pub cold: bool,
}

/// Work beside the controller, on the core that it is bound to.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    pub start_percent: u32,
    pub step_percent: u32,
    pub every_s: u32,
}

/// Echo requests from the first host to the last, once per size.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Pings {
    pub name: String,
    pub controller: String,
    #[serde(default = "single")]
    pub topology: String,
    #[serde(default)]
    pub detour_ms: f64,
    /// The sizes of the requests' data.
    pub sizes_bytes: Vec<u16>,
    pub count: u32,
    pub interval_s: f64,
    pub runs: Option<u32>,
}

/// The claims that the results must meet, by the names of rows.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// Nothing reordered, lost or doubled, in any run.
    #[serde(default)]
    pub none_reordered: Vec<String>,
    /// Something reordered in every cell.
    #[serde(default)]
    pub some_reordered: Vec<String>,
    /// Pairs of which the first has fewer reordered packets in the median than the second.
    #[serde(default)]
    pub fewer: Vec<[String; 2]>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PlotOf {
    /// The name of the file, without its ending.
    pub file: String,
    pub title: String,
    pub x: X,
    pub y: Y,
    pub rows: Vec<String>,
    /// The one rate or size to plot, if x is neither.
    pub only: Option<f64>,
    pub x_label: Option<String>,
    #[serde(default)]
    pub y_log: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum X {
    RateMbps,
    SizeBytes,
    /// The row's `at`; all rows are one series.
    At,
    /// From the beginning of the stream.
    Second,
    /// The number of an echo request.
    Request,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Y {
    Reordered,
    JitterMs,
    DelayP99Ms,
    RttMs,
    /// The load of the controller's core: the controller and the load beside it.
    CoreCpuPercent,
    ControllerCpuPercent,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quick {
    seconds: f64,
    runs: u32,
    /// Names of streams and pings.
    rows: Vec<String>,
    /// The rates of those rows; all if not given.
    rates_mbps: Option<Vec<f64>>,
    sizes_bytes: Option<Vec<u16>>,
    #[serde(default)]
    iperf_runs: u32,
}

/// The controller that is none.
pub const NONE: &str = "none";

/// The time to start a network, and to take it down.
const NETWORK_S: f64 = 2.5;
/// Before the first request, and after the last.
const PINGS_REST_S: f64 = 2.5;

fn single() -> String {
    "single,2".to_owned()
}

fn one() -> u32 {
    1
}

/// Whether a scenario's text is one of this kind.
pub fn is_ours(text: &str) -> bool {
    let file: Result<toml::Table, _> = toml::from_str(text);
    file.is_ok_and(|file| file.contains_key("timeouts"))
}

impl Scenario {
    pub fn read(path: &Path) -> Result<Scenario, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
        Scenario::parse(&text)
            .map_err(|problem| Failure::usage(format!("{}: {problem}", path.display())))
    }

    pub fn parse(text: &str) -> Result<Scenario, String> {
        let scenario: Scenario = toml::from_str(text).map_err(|e| toml_problem(text, &e))?;
        let problems = problems::of(&scenario.timeouts);
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
            .ok_or_else(|| Failure::usage("--quick: this scenario has no [timeouts.quick]"))?;
        self.seconds = quick.seconds;
        self.runs = quick.runs;
        self.streams.retain(|row| quick.rows.contains(&row.name));
        self.pings.retain(|row| quick.rows.contains(&row.name));
        for row in &mut self.streams {
            row.runs = None;
            row.iperf_runs = row.iperf_runs.min(quick.iperf_runs);
            let asked = |rate: &f64| quick.rates_mbps.as_ref().is_none_or(|r| r.contains(rate));
            row.rates_mbps.retain(asked);
        }
        for row in &mut self.pings {
            row.runs = None;
            let asked = |size: &u16| quick.sizes_bytes.as_ref().is_none_or(|s| s.contains(size));
            row.sizes_bytes.retain(asked);
        }
        self.keep_what_is_run();
        Ok(self)
    }

    /// Applies the command line's runs and seconds, which override the file's.
    pub fn bound(&mut self, runs: Option<u32>, seconds: Option<f64>) -> Result<(), Failure> {
        if let Some(runs) = runs {
            self.runs = runs;
            for row in &mut self.streams {
                row.runs = None;
                row.iperf_runs = row.iperf_runs.min(runs);
            }
            self.pings.iter_mut().for_each(|row| row.runs = None);
        }
        self.seconds = seconds.unwrap_or(self.seconds);
        match problems::of(self).as_slice() {
            [] => Ok(()),
            problems => Err(Failure::usage(problems.join("; "))),
        }
    }

    pub fn require_tools(&self) -> Result<(), Failure> {
        let mut missing = Vec::new();
        let has_iperf = || version_line("iperf", "--version") != "unknown";
        if self.streams.iter().any(|row| row.iperf_runs > 0) && !has_iperf() {
            missing.push("iperf");
        }
        if !self.pings.is_empty() && version_line("ping", "-V") == "unknown" {
            missing.push("iputils-ping");
        }
        match missing.is_empty() {
            true => Ok(()),
            false => {
                let names = missing.join(" ");
                Err(Failure::machine(format!(
                    "not found: apt-get install {names}"
                )))
            }
        }
    }

    pub fn pace(&self, rate_mbps: f64) -> Pace {
        Pace {
            rate_mbps,
            datagram_bytes: self.datagram_bytes.into(),
            duration: Duration::from_secs_f64(self.seconds),
        }
    }

    /// Every cell once before any cell twice.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let runs = |of: Option<u32>| of.unwrap_or(self.runs);
        let all = self.streams.iter().map(|row| runs(row.runs));
        let most = all.chain(self.pings.iter().map(|row| runs(row.runs))).max();
        for run in 0..most.unwrap_or(0) {
            for (row, streams) in self.streams.iter().enumerate() {
                for rate_mbps in streams.rates_mbps.iter().copied() {
                    if run < runs(streams.runs) {
                        steps.push(Step::Stream {
                            row,
                            rate_mbps,
                            run,
                        });
                    }
                    if run < streams.iperf_runs {
                        steps.push(Step::Iperf {
                            row,
                            rate_mbps,
                            run,
                        });
                    }
                }
            }
            for (row, pings) in self.pings.iter().enumerate() {
                if run < runs(pings.runs) {
                    let sizes = pings.sizes_bytes.iter().copied();
                    steps.extend(sizes.map(|size_bytes| Step::Ping {
                        row,
                        size_bytes,
                        run,
                    }));
                }
            }
        }
        steps
    }

    /// How long all of it takes.
    pub fn expected(&self, steps: &[Step]) -> Duration {
        let seconds = |step: &Step| match step {
            Step::Ping { row, .. } => {
                let pings = &self.pings[*row];
                f64::from(pings.count) * pings.interval_s + PINGS_REST_S
            }
            _ => self.seconds + 1.0,
        };
        let all = steps.iter().map(|step| NETWORK_S + seconds(step)).sum();
        Duration::from_secs_f64(all)
    }

    /// Claims and plots of rows that are not run are left out.
    fn keep_what_is_run(&mut self) {
        let names = self.names();
        let is_run = |name: &String| names.contains(name.as_str());
        let claims = &mut self.claims;
        let mut plots = std::mem::take(&mut self.plots);
        claims.none_reordered.retain(is_run);
        claims.some_reordered.retain(is_run);
        claims.fewer.retain(|two| two.iter().all(is_run));
        plots.iter_mut().for_each(|plot| plot.rows.retain(is_run));
        plots.retain(|plot| !plot.rows.is_empty());
        self.plots = plots;
    }

    fn names(&self) -> BTreeSet<String> {
        let pings = self.pings.iter().map(|row| row.name.clone());
        let streams = self.streams.iter().map(|row| row.name.clone());
        streams.chain(pings).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIOS: [&str; 3] = ["table-2", "timeouts-1-to-5", "timeouts-figures"];

    fn read(name: &str) -> Settings {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios");
        let path = dir.join(name).with_extension("toml");
        let text = std::fs::read_to_string(path).unwrap();
        assert!(is_ours(&text));
        Scenario::parse(&text).unwrap().timeouts
    }

    #[test]
    fn the_scenarios_of_the_project_are_read_and_have_a_quick_part() {
        for name in SCENARIOS {
            let whole = read(name);
            let steps = whole.steps();
            let quick = whole.clone().quick().unwrap();
            assert!(problems::of(&quick).is_empty(), "{name}");
            assert!(!quick.plots.is_empty() || name == "table-2", "{name}");
            let took = quick.expected(&quick.steps());
            assert!(took < Duration::from_secs(120), "{name}: {took:?}");
            assert!(took * 4 < whole.expected(&steps), "{name}");
            assert!(quick.quick().is_err(), "there is nothing quicker");
        }
        assert!(!is_ours("title = 'x'\ntopologies = ['ring,4']"));
    }

    #[test]
    fn every_cell_has_its_runs_and_takes_turns() {
        let settings = read("table-2");
        let steps = settings.steps();
        let runs = |name: &str, rate: f64| {
            let is_its = |step: &&Step| {
                matches!(step, Step::Stream { row, rate_mbps, .. }
                    if settings.streams[*row].name == name && *rate_mbps == rate)
            };
            steps.iter().filter(is_its).count()
        };
        assert_eq!(runs("fixed 1 s", 5.0), 2);
        assert_eq!(runs("lease, D 17 ms", 60.0), 10);
        let run_of = |step: &Step| match *step {
            Step::Stream { run, .. } | Step::Iperf { run, .. } | Step::Ping { run, .. } => run,
        };
        assert!(steps.is_sorted_by_key(run_of));
        let iperf = steps.iter().filter(|s| matches!(s, Step::Iperf { .. }));
        assert!(iperf.count() > 10);
    }

    #[test]
    fn the_command_line_wins() {
        let mut settings = read("table-2");
        settings.bound(Some(1), Some(2.5)).unwrap();
        assert_eq!(settings.pace(5.0).duration, Duration::from_millis(2500));
        assert!(settings.streams.iter().all(|row| row.runs.is_none()));
        assert!(settings.bound(Some(0), None).is_err());
        assert!(settings.bound(Some(1), Some(f64::NAN)).is_err());
    }
}
