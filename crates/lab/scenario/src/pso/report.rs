//! The results of an experiment: document, tables, raw data, plots, and whether its claims hold.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use crate::pso::figures::{Cell, Run};
use crate::pso::settings::{Claims, Flood, OutOfBand};
use crate::report::Check;
use cli::failure::Failure;
use cli::table::table;
use measure::quantiles::nearest_rank;
use report::machine::Machine;
use report::plot::{Plot, Series};
use testbed::plane::Transport;

#[derive(Debug, Serialize)]
pub struct Document {
    pub title: String,
    pub scenario: String,
    pub command: Vec<String>,
    pub started_unix_s: u64,
    pub machine: Machine,
    pub settings: OutOfBand,
    pub passed: bool,
    pub interrupted: bool,
    pub checks: Vec<Check>,
    pub cells: Vec<Cell>,
    /// Cross packets in the class above the target's.
    pub flood: Vec<Cell>,
}

/// Runs with the same transport, algorithm and load, in the order of their first.
pub fn cells(runs: &[Run]) -> Vec<Cell> {
    grouped(runs)
        .iter()
        .filter_map(|runs| Cell::of(runs))
        .collect()
}

fn grouped(runs: &[Run]) -> Vec<Vec<Run>> {
    let mut groups: Vec<Vec<Run>> = Vec::new();
    for run in runs {
        let is_its = |group: &&mut Vec<Run>| {
            let first = &group[0];
            first.transport == run.transport
                && first.algorithm == run.algorithm
                && first.load == run.load
        };
        match groups.iter_mut().find(is_its) {
            Some(group) => group.push(run.clone()),
            None => groups.push(vec![run.clone()]),
        }
    }
    groups
}

/// Whether the claims hold, for each transport.
pub fn checks(claims: &Claims, cells: &[Cell]) -> Vec<Check> {
    let mut checks = Vec::new();
    for transport in transports(cells) {
        let of = |algorithm: &str, load: f64| {
            cells.iter().find(|cell| {
                cell.transport == transport && cell.algorithm == algorithm && cell.load == load
            })
        };
        let name = transport.name();
        let unloaded = of(&claims.algorithm, claims.unloaded);
        let overloaded = cells.iter().filter(|cell| {
            cell.transport == transport
                && cell.algorithm == claims.algorithm
                && cell.load >= claims.overloaded
        });
        for cell in overloaded {
            let (load, algorithm, p99) = (cell.load, &cell.algorithm, cell.hop_ms.all.p99);
            checks.push(Check {
                what: format!("{name}, load {load}: {algorithm} loses no message of the target"),
                passed: cell.target.lost + cell.target.unasked == 0 && cell.target.asked > 0,
                found: format!(
                    "{} of {} lost, {} never asked",
                    cell.target.lost, cell.target.sent, cell.target.unasked
                ),
            });
            if let Some(unloaded) = unloaded {
                let idle = unloaded.hop_ms.all.p99;
                checks.push(Check {
                    what: format!(
                        "{name}, load {load}: p99 hop delay with {algorithm} is at most {} times \
                         that at load {}",
                        claims.p99_ratio_max, claims.unloaded
                    ),
                    passed: p99 > 0.0 && p99 <= claims.p99_ratio_max * idle,
                    found: format!("{p99:.2} ms, {:.2} times {idle:.2} ms", p99 / idle),
                });
            }
            if let Some(other) = of(&claims.against, load) {
                let worse = other.hop_ms.all.p99;
                checks.push(Check {
                    what: format!(
                        "{name}, load {load}: p99 hop delay with {} is at least {} times that \
                         with {algorithm}",
                        claims.against, claims.against_ratio_min
                    ),
                    passed: p99 > 0.0 && worse >= claims.against_ratio_min * p99,
                    found: format!("{worse:.2} ms, {:.1} times {p99:.2} ms", worse / p99),
                });
            }
        }
    }
    checks
}

/// Whether a flood in the class above starves the target, for each transport.
pub fn flood_checks(flood: &Flood, runs: &[Run]) -> Vec<Check> {
    let mut checks = Vec::new();
    for group in grouped(runs) {
        let (first, targets) = (&group[0], group.iter().map(|run| &run.trial.target));
        let asked: u32 = targets.clone().map(|fate| fate.asked).sum();
        let in_time = targets
            .flat_map(|fate| &fate.hop_ms)
            .filter(|ms| **ms <= flood.starved_ms)
            .count();
        let share = 100.0 * in_time as f64 / f64::from(asked.max(1));
        let (name, limit) = (first.transport.name(), flood.starved_ms);
        let found = format!("{share:.1} % of {asked} answered within {limit} ms");
        if first.algorithm == flood.fair {
            checks.push(Check {
                what: format!(
                    "{name}: a flood in the class above does not starve the target with {}",
                    flood.fair
                ),
                passed: asked > 0 && in_time == asked as usize,
                found,
            });
        } else if first.algorithm == flood.starving {
            checks.push(Check {
                what: format!("{name}: it does with {}", flood.starving),
                passed: asked > 0 && share < 50.0,
                found,
            });
        }
    }
    checks
}

/// A line per cell.
pub fn grid(cells: &[Cell]) -> String {
    let header = [
        "transport",
        "algorithm",
        "load",
        "lost %",
        "cross %",
        "unasked",
        "D1 mean",
        "±",
        "p50",
        "p99",
        "±",
        "max ms",
        "kbit/s",
        "±",
        "end to end",
        "p99 ms",
        "wire B",
        "cores",
    ];
    let rows = cells.iter().map(|cell| {
        let (hop, whole) = (&cell.hop_ms, &cell.end_to_end_ms);
        let two = |value: f64| format!("{value:.2}");
        vec![
            cell.transport.name().to_string(),
            cell.algorithm.clone(),
            cell.load.to_string(),
            two(cell.target.percent.mean),
            two(cell.cross.percent.mean),
            (cell.target.unasked + cell.cross.unasked).to_string(),
            two(hop.mean.mean),
            two(hop.mean.ci95),
            two(hop.all.p50),
            two(hop.all.p99),
            two(hop.run_p99.ci95),
            two(hop.all.max),
            format!("{:.1}", cell.throughput_kbps.mean),
            format!("{:.1}", cell.throughput_kbps.ci95),
            two(whole.mean.mean),
            two(whole.all.p99),
            two(cell.wire_bytes_per_message.mean),
            two(cell.busy_cores.mean),
        ]
    });
    table(&header, &rows.collect::<Vec<_>>())
}

/// Writes everything into a directory.
pub fn write(dir: &Path, document: &Document, runs: &[Run], floods: &[Run]) -> Result<(), Failure> {
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|e| Failure::file(path, e))
    };
    let json = serde_json::to_string_pretty(document).map_err(|e| Failure::file(dir, e))?;
    file("result.json", &(json + "\n"))?;
    file("command.txt", &(document.command.join(" ") + "\n"))?;
    let verdict = verdict_lines(&document.checks);
    let text = format!(
        "{}\n{}\n{verdict}",
        grid(&document.cells),
        grid(&document.flood)
    );
    file("table.txt", &text)?;
    file("runs.csv", &run_lines(runs))?;
    file("distribution.csv", &distribution(runs))?;
    if !floods.is_empty() {
        file("flood-runs.csv", &run_lines(floods))?;
        file("flood-distribution.csv", &distribution(floods))?;
    }
    for transport in transports(&document.cells) {
        let word = short(transport);
        let plot = plot(&document.cells, transport);
        file(&format!("hop-p99-{word}.svg"), &plot.lines())?;
    }
    Ok(())
}

pub fn verdict_lines(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        let verdict = if check.passed { "ok    " } else { "FAILED" };
        let _ = writeln!(text, "  {verdict}  {}: {}", check.what, check.found);
    }
    text
}

/// A line per run.
fn run_lines(runs: &[Run]) -> String {
    let mut text =
        "transport,algorithm,load,run,sent,asked,answered,arrived,cross_sent,cross_asked,\
                    cross_answered,hop_mean_ms,hop_p50_ms,hop_p99_ms,hop_max_ms,end_to_end_mean_ms,\
                    end_to_end_p99_ms,link_bytes_up,link_bytes_down,link_dropped,busy_cores,\
                    sender_late_ms,unseen\n"
            .to_string();
    for run in runs {
        let (target, cross) = (&run.trial.target, &run.trial.cross);
        let Some(cell) = Cell::of(std::slice::from_ref(run)) else {
            continue;
        };
        let (hop, whole) = (cell.hop_ms, cell.end_to_end_ms);
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{},{},{},{},{:.4},{:.4},{:.4},{:.4},{:.4},{:.4},{},{},{},{:.3},\
             {:.3},{}",
            short(run.transport),
            run.algorithm,
            run.load,
            run.number,
            target.sent,
            target.asked,
            target.answered,
            target.arrived,
            cross.sent,
            cross.asked,
            cross.answered,
            hop.mean.mean,
            hop.all.p50,
            hop.all.p99,
            hop.all.max,
            whole.mean.mean,
            whole.all.p99,
            run.link[0].bytes,
            run.link[1].bytes,
            run.link[0].dropped + run.link[1].dropped,
            run.trial.busy_cores,
            run.trial.sender_late_ms,
            run.trial.unseen,
        );
    }
    text
}

/// The hop delay of each cell's target messages by quantile: every percent, and the tail finer.
fn distribution(runs: &[Run]) -> String {
    let mut text = "transport,algorithm,load,quantile,hop_ms\n".to_string();
    let percents = (1..100).map(|percent| f64::from(percent) / 100.0);
    let quantiles: Vec<f64> = percents.chain([0.995, 0.999, 1.0]).collect();
    for group in grouped(runs) {
        let first = &group[0];
        let all = group.iter().flat_map(|run| &run.trial.target.hop_ms);
        let mut sorted: Vec<f64> = all.copied().collect();
        sorted.sort_by(f64::total_cmp);
        for q in quantiles.iter().filter(|_| !sorted.is_empty()) {
            let of = format!(
                "{},{},{}",
                short(first.transport),
                first.algorithm,
                first.load
            );
            let _ = writeln!(text, "{of},{q},{:.4}", nearest_rank(&sorted, *q));
        }
    }
    text
}

fn plot(cells: &[Cell], transport: Transport) -> Plot {
    let mut algorithms: Vec<&str> = Vec::new();
    let ours = || cells.iter().filter(|cell| cell.transport == transport);
    for cell in ours() {
        if !algorithms.contains(&cell.algorithm.as_str()) {
            algorithms.push(&cell.algorithm);
        }
    }
    let series = |algorithm: &str| {
        let mut of: Vec<&Cell> = ours().filter(|cell| cell.algorithm == algorithm).collect();
        of.sort_by(|a, b| a.load.total_cmp(&b.load));
        Series {
            name: algorithm.to_string(),
            points: of
                .iter()
                .map(|cell| (cell.load, cell.hop_ms.all.p99))
                .collect(),
            error: None,
        }
    };
    Plot {
        title: format!("Hop delay of the target's messages, {}", short(transport)),
        x_label: "offered load (of the control link)".to_string(),
        y_label: "99th percentile (ms)".to_string(),
        y_log: true,
        series: algorithms.into_iter().map(series).collect(),
        ..Plot::default()
    }
}

fn transports(cells: &[Cell]) -> Vec<Transport> {
    let mut found: Vec<Transport> = Vec::new();
    for cell in cells {
        if !found.contains(&cell.transport) {
            found.push(cell.transport);
        }
    }
    found
}

fn short(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "tcp",
        Transport::Tls => "tls",
        Transport::Quic => "quic",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pso::figures::tests::run;

    const CLAIMS: &str = "algorithm = 'hierarchy'\nagainst = 'fifo'\nunloaded = 0.2\n\
                          overloaded = 1.05\np99_ratio_max = 1.5\nagainst_ratio_min = 10";

    fn verdicts(runs: &[Run]) -> Vec<bool> {
        let claims: Claims = toml::from_str(CLAIMS).unwrap();
        checks(&claims, &cells(runs))
            .iter()
            .map(|check| check.passed)
            .collect()
    }

    #[test]
    fn each_claim_fails_by_itself() {
        let runs = |overloaded: &[f64], fifo: f64| {
            [
                run("hierarchy", 0.2, 2, &[1.0, 2.0]),
                run("hierarchy", 1.2, 2, overloaded),
                run("fifo", 1.2, 2, &[fifo]),
            ]
        };
        assert_eq!(verdicts(&runs(&[2.0, 3.0], 30.0)), [true, true, true]);
        assert_eq!(verdicts(&runs(&[3.0], 30.0)), [false, true, true]);
        assert_eq!(verdicts(&runs(&[2.0, 3.1], 40.0)), [true, false, true]);
        assert_eq!(verdicts(&runs(&[2.0, 3.0], 29.0)), [true, true, false]);
        assert_eq!(verdicts(&runs(&[], 30.0)), [false, false, false]);
    }

    #[test]
    fn a_target_that_waits_too_long_is_starved() {
        let text = "policy = 'x'\nport = 1\nload = 1.5\nalgorithms = []\nruns = 1\nrun_s = 1\n\
                    fair = 'hierarchy'\nstarving = 'strict'\nstarved_ms = 200";
        let flood: Flood = toml::from_str(text).unwrap();
        let verdicts = |fair: &[f64], strict: &[f64]| -> Vec<bool> {
            let runs = [
                run("hierarchy", 1.5, 2, fair),
                run("strict", 1.5, 2, strict),
            ];
            flood_checks(&flood, &runs)
                .iter()
                .map(|check| check.passed)
                .collect()
        };
        assert_eq!(verdicts(&[1.0, 199.0], &[300.0]), [true, true]);
        assert_eq!(verdicts(&[1.0, 201.0], &[1.0]), [false, false]);
        assert_eq!(verdicts(&[1.0], &[]), [false, true]);
    }

    #[test]
    fn everything_is_written_and_every_cell_is_in_it() {
        let runs = [run("fifo", 0.2, 2, &[1.0]), run("drr", 0.2, 2, &[2.0])];
        assert_eq!(run_lines(&runs).lines().count(), 3);
        let columns = |line: &str| line.split(',').count();
        let lines = run_lines(&runs);
        let mut lines = lines.lines().map(columns);
        let header = lines.next();
        assert!(lines.all(|count| Some(count) == header));
        assert_eq!(distribution(&runs).lines().count(), 1 + 2 * 102);
        assert_eq!(grid(&cells(&runs)).lines().count(), 3);
        assert_eq!(plot(&cells(&runs), Transport::Tcp).series.len(), 2);
    }
}
