//! What an experiment found: the document that is published, and the tables on the screen.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::Serialize;

use crate::failure::Failure;
use crate::lab::link;
use crate::lab::probe::{PairResult, Sample};
use crate::lab::restart::Trial;
use crate::lab::topology::Topology;

/// One run of a scenario. Times are seconds, round trips milliseconds.
#[derive(Debug, Serialize)]
pub struct Document {
    pub title: String,
    pub scenario: String,
    pub command: Vec<String>,
    pub controller: String,
    pub started_unix_s: u64,
    pub machine: Machine,
    pub passed: bool,
    pub networks: Vec<Outcome>,
}

#[derive(Debug, Serialize)]
pub struct Machine {
    pub kernel: String,
    pub cpu: String,
    pub cpu_count: usize,
    pub auster: String,
    pub open_vswitch: String,
}

/// What one network did.
#[derive(Debug, Default, Serialize)]
pub struct Outcome {
    pub topology: String,
    pub switches: usize,
    pub links: usize,
    pub hosts: usize,
    /// Namespaces, wires and switches, without a controller.
    pub network_up_s: f64,
    /// From here on: since the controller was started.
    pub connected_s: Option<f64>,
    pub links_found_s: Option<f64>,
    /// When a round of pings over all pairs had ended without loss.
    pub reachable_s: Option<f64>,
    /// Rounds until then; 1 means that no packet was lost at all.
    pub rounds: usize,
    pub pairs: Vec<Pair>,
    pub first_ms: Quantiles,
    pub later_ms: Quantiles,
    pub failure: Option<FailureOutcome>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restarts: Vec<Trial>,
    /// As the controller tells it.
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
    /// In the failure, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_lost: Option<usize>,
}

/// A link cut and mended under traffic.
#[derive(Debug, Serialize)]
pub struct FailureOutcome {
    pub link: [String; 2],
    pub sent: usize,
    pub lost_before: usize,
    pub lost_after_cut: usize,
    pub lost_after_repair: usize,
    /// From the event until the last packet that was lost had been sent, to the next one of its
    /// pair; 0 when none was.
    pub cut_converge_ms: f64,
    pub repair_converge_ms: f64,
}

#[derive(Debug, Serialize)]
pub struct Check {
    pub what: String,
    pub passed: bool,
    pub found: String,
}

/// Of answered packets only; all zero when there are none.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq)]
pub struct Quantiles {
    pub count: usize,
    pub min: f64,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Quantiles {
    /// Nearest rank, of values in milliseconds.
    pub fn of(mut values: Vec<f64>) -> Quantiles {
        values.sort_by(f64::total_cmp);
        let Some(last) = values.len().checked_sub(1) else {
            return Quantiles::default();
        };
        let rank =
            |q: f64| values[((q * values.len() as f64).ceil() as usize).clamp(1, last + 1) - 1];
        Quantiles {
            count: values.len(),
            min: values[0],
            p50: rank(0.5),
            p99: rank(0.99),
            max: values[last],
        }
    }
}

impl Machine {
    pub fn here() -> Machine {
        let first_line = |program: &str, argument: &str| {
            let output = Command::new(program).arg(argument).output();
            let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
            text.unwrap_or_default()
                .lines()
                .next()
                .unwrap_or("unknown")
                .to_string()
        };
        let cpu_info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu_info
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        Machine {
            kernel: first_line("uname", "-sr"),
            cpu: model
                .map_or("unknown", |m| m.trim_start_matches([' ', '\t', ':']))
                .to_string(),
            cpu_count: std::thread::available_parallelism().map_or(1, usize::from),
            auster: env!("CARGO_PKG_VERSION").to_string(),
            open_vswitch: first_line("ovs-vswitchd", "--version"),
        }
    }
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
        failure_lost: None,
    };
    results.iter().map(pair).collect()
}

pub fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

pub fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}

/// Writes `result.json`, the raw pings, and the command into a directory.
pub fn write(
    dir: &Path,
    document: &Document,
    raw: &[(String, Vec<String>)],
) -> Result<(), Failure> {
    std::fs::create_dir_all(dir).map_err(|e| Failure::file(dir, e))?;
    let file = |name: &str, text: String| {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|e| Failure::file(path, e))
    };
    let json = serde_json::to_string_pretty(document).map_err(|e| Failure::file(dir, e))?;
    file("result.json", json + "\n")?;
    file("command.txt", document.command.join(" ") + "\n")?;
    let mut csv = "network,from,to,sent_ms,rtt_ms\n".to_string();
    for (network, lines) in raw {
        for line in lines {
            csv += &format!("\"{network}\",{line}\n");
        }
    }
    file("pings.csv", csv)
}

/// A line per packet: from, to, when it was sent, its round trip or nothing.
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
    let header = [
        "network",
        "switches",
        "links",
        "hosts",
        "up s",
        "connected s",
        "links s",
        "reachable s",
        "pings",
        "lost",
        "first p50",
        "max ms",
        "later p50",
        "p99 ms",
        "",
    ];
    let time = |t: Option<f64>| t.map_or("-".to_string(), |t| format!("{t:.2}"));
    let rows = outcomes.iter().map(|o| {
        let lost: usize = o.pairs.iter().map(|pair| pair.lost).sum();
        vec![
            o.topology.clone(),
            o.switches.to_string(),
            o.links.to_string(),
            o.hosts.to_string(),
            format!("{:.2}", o.network_up_s),
            time(o.connected_s),
            time(o.links_found_s),
            time(o.reachable_s),
            (o.first_ms.count + o.later_ms.count + lost).to_string(),
            lost.to_string(),
            format!("{:.2}", o.first_ms.p50),
            format!("{:.2}", o.first_ms.max),
            format!("{:.2}", o.later_ms.p50),
            format!("{:.2}", o.later_ms.p99),
            if o.passed() { "ok" } else { "FAILED" }.to_string(),
        ]
    });
    table(&header, rows.collect())
}

/// A line per pair, for networks small enough to read.
pub fn pair_table(outcome: &Outcome) -> String {
    let mut header = vec![
        "from",
        "to",
        "first ms",
        "later p50",
        "p99",
        "max ms",
        "lost",
    ];
    if outcome.failure.is_some() {
        header.push("lost by failure");
    }
    let rows = outcome.pairs.iter().map(|pair| {
        let later = Quantiles::of(pair.later_ms.iter().flatten().copied().collect());
        let mut row = vec![
            pair.from.clone(),
            pair.to.clone(),
            pair.first_ms
                .map_or("lost".to_string(), |ms| format!("{ms:.2}")),
            format!("{:.2}", later.p50),
            format!("{:.2}", later.p99),
            format!("{:.2}", later.max),
            pair.lost.to_string(),
        ];
        row.extend(pair.failure_lost.map(|lost| lost.to_string()));
        row
    });
    table(&header, rows.collect())
}

/// Columns as wide as their widest cell; the first one left-aligned, the others right.
pub fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count());
        cells.max().unwrap_or(0).max(header[column].chars().count())
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(n, (cell, width))| {
                if n == 0 {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
        let line: Vec<String> = padded.collect();
        format!("  {}\n", line.join("  ").trim_end())
    };
    let mut text = line(header.to_vec());
    for row in &rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let q = Quantiles::of((1..=100).rev().map(f64::from).collect());
        assert_eq!(
            (q.count, q.min, q.p50, q.p99, q.max),
            (100, 1.0, 50.0, 99.0, 100.0)
        );
        assert_eq!(Quantiles::of(vec![7.0]).p99, 7.0);
        assert_eq!(Quantiles::of(vec![]), Quantiles::default());
    }

    #[test]
    fn a_table_lines_up_whatever_is_in_it() {
        let text = table(
            &["name", "n"],
            vec![vec!["h1".into(), "10".into()], vec!["edge1".into()]],
        );
        assert_eq!(text, "  name    n\n  h1     10\n  edge1\n");
    }
}
