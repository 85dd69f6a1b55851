//! The results of an experiment: the published document, and the tables on the screen.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::engine::lateness::Lateness;
use crate::engine::rows::Row;
use cli::failure::Failure;
use cli::table::Columns;
use measure::quantiles::Quantiles;
use report::machine::Machine;
use report::output::Results;
use testbed::link;
use testbed::probe::{PairResult, Sample};
use testbed::topology::Topology;

/// One run of a scenario. Times are seconds, round trips milliseconds.
#[derive(Debug, Serialize)]
pub struct Document {
    pub title: String,
    /// The length of the measurement, where `--seconds` may change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    pub scenario: String,
    pub command: Vec<String>,
    pub controller: String,
    pub started_unix_s: u64,
    pub machine: Machine,
    pub passed: bool,
    /// The controllers that could not be prepared, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Moments, packets and frames that were late because the machine was busy.
    #[serde(skip_serializing_if = "Lateness::is_empty")]
    pub late: Lateness,
    pub networks: Vec<Outcome>,
    /// The verdicts of the scenario's claims.
    pub checks: Vec<Check>,
}

/// Keys of an [`Outcome`] that no kind of row may have as its name.
pub const OUTCOME_KEYS: [&str; 15] = [
    "topology",
    "switches",
    "links",
    "hosts",
    "network_up_s",
    "connected_s",
    "links_found_s",
    "reachable_s",
    "rounds",
    "pairs",
    "first_ms",
    "later_ms",
    "status",
    "impaired_links",
    "checks",
];

/// The results from one network.
#[derive(Debug, Default, Serialize)]
pub struct Outcome {
    pub topology: String,
    pub switches: usize,
    pub links: usize,
    pub hosts: usize,
    /// Time to bring up namespaces, wires and switches, without a controller.
    pub network_up_s: f64,
    /// Time since the start of the controller, as in the next two fields.
    pub connected_s: Option<f64>,
    pub links_found_s: Option<f64>,
    /// The time when a round of pings over all pairs had ended without loss.
    pub reachable_s: Option<f64>,
    /// Rounds of pings until that time; 1 means that no packet was lost at all.
    pub rounds: usize,
    pub pairs: Vec<Pair>,
    pub first_ms: Quantiles,
    pub later_ms: Quantiles,
    /// The scenario's rows by their kinds.
    #[serde(flatten)]
    pub rows: BTreeMap<String, Vec<Row>>,
    /// The status that the controller reported.
    pub status: Option<serde_json::Value>,
    pub impaired_links: Vec<link::Report>,
    pub checks: Vec<Check>,
}

impl Outcome {
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.passed)
    }
}

/// An ordered pair of hosts, in the round without loss (or the last one).
#[derive(Debug, Serialize)]
pub struct Pair {
    pub from: String,
    pub to: String,
    pub lost: usize,
    pub first_ms: Option<f64>,
    pub later_ms: Vec<Option<f64>>,
    /// Packets lost under the scenario's traffic, if there was any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic_lost: Option<usize>,
}

#[derive(Debug, Serialize)]
pub struct Check {
    pub what: String,
    pub passed: bool,
    pub found: String,
}

pub fn pairs(topology: &Topology, results: &[PairResult]) -> Vec<Pair> {
    let name = |n: usize| topology.hosts[n].name.clone();
    let pair = |result: &PairResult| Pair {
        from: name(result.from),
        to: name(result.to),
        lost: result.lost(),
        first_ms: result.first.map(milliseconds),
        later_ms: result
            .later
            .iter()
            .map(|rtt| rtt.map(milliseconds))
            .collect(),
        traffic_lost: None,
    };
    results.iter().map(pair).collect()
}

pub fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

pub fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}

/// Writes `result.json`, the raw pings, the plots and the command.
pub fn write(
    results: &Results,
    document: &Document,
    raw: &[(String, Vec<String>)],
    plots: &[(String, String)],
) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(document);
    let json = json.map_err(|e| Failure::file("result.json", e))? + "\n";
    results.document(&json, &document.command)?;
    for (name, svg) in plots {
        results.plot(name, svg)?;
    }
    if raw.is_empty() {
        return Ok(());
    }
    let mut csv = "network,from,to,sent_ms,rtt_ms\n".to_string();
    for (network, lines) in raw {
        for line in lines {
            csv += &format!("\"{network}\",{line}\n");
        }
    }
    results.write("pings.csv", csv.as_bytes())
}

/// A line per packet: from, to, the time of sending, and the round trip if there was an answer.
pub fn raw_lines(topology: &Topology, samples: &[Sample]) -> Vec<String> {
    let line = |sample: &Sample| {
        let [from, to] = [sample.from, sample.to].map(|n| &topology.hosts[n].name);
        let rtt = sample
            .rtt
            .map_or(String::new(), |rtt| milliseconds(rtt).to_string());
        format!("{from},{to},{},{rtt}", milliseconds(sample.sent))
    };
    samples.iter().map(line).collect()
}

/// A line per network.
pub fn summary_table(outcomes: &[Outcome]) -> String {
    let lost = |o: &Outcome| o.pairs.iter().map(|pair| pair.lost).sum::<usize>();
    Columns::of(outcomes)
        .text("network", |o| &o.topology)
        .text("switches", |o| o.switches)
        .text("links", |o| o.links)
        .text("hosts", |o| o.hosts)
        .number("up s", 2, |o| o.network_up_s)
        .maybe("connected s", 2, |o| o.connected_s)
        .maybe("links s", 2, |o| o.links_found_s)
        .maybe("reachable s", 2, |o| o.reachable_s)
        .text("pings", |o| o.first_ms.count + o.later_ms.count + lost(o))
        .text("lost", lost)
        .number("first p50", 2, |o| o.first_ms.p50)
        .number("max ms", 2, |o| o.first_ms.max)
        .number("later p50", 2, |o| o.later_ms.p50)
        .number("p99 ms", 2, |o| o.later_ms.p99)
        .text("", |o| if o.passed() { "ok" } else { "FAILED" })
        .table()
}

/// A line per pair, for networks small enough to read.
pub fn pair_table(outcome: &Outcome) -> String {
    let rows = outcome.pairs.iter().map(|pair| {
        let later = pair.later_ms.iter().flatten().copied();
        (pair, Quantiles::of(later.collect()))
    });
    let rows: Vec<(&Pair, Quantiles)> = rows.collect();
    let first = |ms: Option<f64>| ms.map_or("lost".to_string(), |ms| format!("{ms:.2}"));
    let columns = Columns::of(&rows)
        .text("from", |(pair, _)| &pair.from)
        .text("to", |(pair, _)| &pair.to)
        .text("first ms", |(pair, _)| first(pair.first_ms))
        .number("later p50", 2, |(_, later)| later.p50)
        .number("p99", 2, |(_, later)| later.p99)
        .number("max ms", 2, |(_, later)| later.max)
        .text("lost", |(pair, _)| pair.lost);
    let under_traffic = |pair: &Pair| pair.traffic_lost.map_or(String::new(), |n| n.to_string());
    match outcome.pairs.iter().any(|pair| pair.traffic_lost.is_some()) {
        true => columns.text("lost under traffic", |(pair, _)| under_traffic(pair)),
        false => columns,
    }
    .table()
}
