//! What an experiment found: document, table, raw data, plots, and whether its claims hold.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use crate::experiment::Args;
use crate::report::Check;
use crate::reroute::part::Part;
use crate::reroute::plots;
use crate::reroute::settings::{Claims, Settings};
use crate::timeouts::figures::Spread;
use cli::failure::Failure;
use cli::output::{note, say, say_part};
use cli::table::table;
use report::machine::Machine;

#[derive(Debug, Serialize)]
pub struct Document {
    pub title: String,
    pub scenario: String,
    pub command: Vec<String>,
    pub started_unix_s: u64,
    pub machine: Machine,
    pub settings: Settings,
    pub passed: bool,
    pub interrupted: bool,
    pub checks: Vec<Check>,
    pub rows: Vec<Row>,
}

/// One change at one rate, over all runs.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub row: String,
    pub rate_mbps: f64,
    pub packets_per_s: f64,
    pub runs: usize,
    /// Over all runs.
    pub sent: u64,
    pub duplicates: u64,
    /// Of the runs, a value each.
    pub lost: Spread,
    pub reordered: Spread,
    pub outage_ms: Spread,
    pub delay_before_ms: Spread,
    pub delay_after_ms: Spread,
    /// Of all reordered packets, the most.
    pub extent_max: u64,
    pub late_ms_max: f64,
    /// Runs at whose end the stream was not on the way that it had to be on.
    pub not_moved: usize,
    pub sender_late_ms_max: f64,
    /// Runs that were not counted, because the sender was late in them.
    pub repeats: u32,
}

pub fn rows(settings: &Settings, parts: &[Part]) -> Vec<Row> {
    let mut rows = Vec::new();
    for name in settings.names() {
        for rate in &settings.all_rates() {
            let is_its = |part: &&Part| part.row == name && part.rate_mbps == *rate;
            let runs: Vec<&Part> = parts.iter().filter(is_its).collect();
            let interval = settings.pace(*rate, settings.before()).interval();
            if !runs.is_empty() {
                rows.push(row((name, *rate), 1.0 / interval.as_secs_f64(), &runs));
            }
        }
    }
    rows
}

fn row((name, rate_mbps): (&str, f64), packets_per_s: f64, runs: &[&Part]) -> Row {
    let spread = |of: fn(&Part) -> f64| Spread::of(runs.iter().map(|part| of(part)));
    let known = |of: fn(&Part) -> Option<f64>| Spread::of(runs.iter().filter_map(|part| of(part)));
    let most = |of: fn(&Part) -> f64| runs.iter().map(|part| of(part)).fold(0.0, f64::max);
    Row {
        row: name.to_owned(),
        rate_mbps,
        packets_per_s,
        runs: runs.len(),
        sent: runs.iter().map(|part| part.sent).sum(),
        duplicates: runs.iter().map(|part| part.duplicates).sum(),
        lost: spread(|part| part.lost as f64),
        reordered: spread(|part| part.reordered as f64),
        outage_ms: spread(|part| part.outage_ms),
        delay_before_ms: known(|part| part.delay_before_ms),
        delay_after_ms: known(|part| part.delay_after_ms),
        extent_max: runs.iter().map(|part| part.extent_max).max().unwrap_or(0),
        late_ms_max: most(|part| part.late_ms_max),
        not_moved: runs.iter().filter(|part| !part.has_moved()).count(),
        sender_late_ms_max: most(|part| part.sender_late_ms),
        repeats: runs.iter().map(|part| part.repeats).sum(),
    }
}

/// Whether the claims hold, for each row that they are about; and whether there was a change at
/// all.
pub fn checks(claims: &Claims, rows: &[Row]) -> Vec<Check> {
    let mut checks = Vec::new();
    for row in rows {
        let of = format!("{}, {} Mbit/s", row.row, row.rate_mbps);
        let (lost, reordered) = (row.lost.max, row.reordered.max);
        let mut check = |what: &str, passed: bool, found: String| {
            checks.push(Check {
                what: format!("{of}: {what}"),
                passed,
                found,
            });
        };
        if row.not_moved > 0 {
            let found = format!("not in {} of {} runs", row.not_moved, row.runs);
            check("the stream is on its new way", false, found);
        }
        if claims.none_lost.contains(&row.row) {
            check(
                "nothing lost or doubled",
                lost == 0.0 && row.duplicates == 0 && row.sent > 0,
                format!(
                    "at most {lost} lost in a run, {} doubled of {}",
                    row.duplicates, row.sent
                ),
            );
        }
        if claims.none_reordered.contains(&row.row) {
            check(
                "nothing reordered",
                reordered == 0.0 && row.sent > 0,
                format!("at most {reordered} in a run, of {} in all", row.sent),
            );
        }
        let bounds = [
            (&claims.lost_ms_max, "lost", lost),
            (&claims.reordered_ms_max, "reordered", reordered),
        ];
        for (bounds, word, most) in bounds {
            if let Some(ms) = bounds.get(&row.row) {
                let packets = (ms / 1e3 * row.packets_per_s).ceil();
                check(
                    &format!("no more {word} than is sent in {ms} ms, {packets} packets"),
                    most <= packets && row.sent > 0,
                    format!("at most {most} in a run"),
                );
            }
        }
    }
    checks
}

pub fn conclude(args: &Args, document: &Document, parts: &[Part]) -> Result<(), Failure> {
    if let Some(dir) = &args.out {
        write(dir, document, parts)?;
        note!("written to {}", dir.display());
    }
    if args.json {
        let text = serde_json::to_string_pretty(document)
            .map_err(|e| Failure::negative(format!("results as JSON: {e}")))?;
        say!("{text}");
    } else {
        say_part!("{}", text(document));
    }
    if document.interrupted {
        return Err(Failure::negative(
            "interrupted: the figures are those until then",
        ));
    }
    let failed = document.checks.iter().filter(|check| !check.passed).count();
    match failed {
        0 => Ok(()),
        failed => Err(Failure::negative(format!(
            "{failed} of {} claims do not hold",
            document.checks.len()
        ))),
    }
}

fn write(dir: &Path, document: &Document, parts: &[Part]) -> Result<(), Failure> {
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|e| Failure::file(path, e))
    };
    let json = serde_json::to_string_pretty(document)
        .map_err(|e| Failure::negative(format!("results as JSON: {e}")))?;
    file("result.json", &(json + "\n"))?;
    file("command.txt", &(document.command.join(" ") + "\n"))?;
    file("table.txt", &text(document))?;
    file("runs.csv", &run_lines(parts))?;
    file("arrivals.csv", &arrival_lines(parts))?;
    for (name, svg) in plots::all(&document.settings, &document.rows, parts) {
        file(&format!("{name}.svg"), &svg)?;
    }
    Ok(())
}

fn text(document: &Document) -> String {
    let mut text = row_table(&document.rows);
    text.push('\n');
    for check in &document.checks {
        let verdict = if check.passed { "yes" } else { "NO " };
        let _ = writeln!(text, "  {verdict}  {}: {}", check.what, check.found);
    }
    text
}

/// Counts and times are of a run: the median, and from least to most where runs differ.
fn row_table(rows: &[Row]) -> String {
    let header = [
        "change",
        "Mbit/s",
        "runs",
        "sent",
        "lost",
        "reordered",
        "doubled",
        "outage ms",
        "extent max",
        "late ms max",
        "delay ms before",
        "after",
        "sender late ms",
        "repeated",
    ];
    let cells = rows.iter().map(|row| {
        vec![
            row.row.clone(),
            row.rate_mbps.to_string(),
            row.runs.to_string(),
            row.sent.to_string(),
            count(&row.lost, 0),
            count(&row.reordered, 0),
            row.duplicates.to_string(),
            count(&row.outage_ms, 1),
            row.extent_max.to_string(),
            format!("{:.2}", row.late_ms_max),
            format!("{:.2}", row.delay_before_ms.median),
            format!("{:.2}", row.delay_after_ms.median),
            format!("{:.1}", row.sender_late_ms_max),
            row.repeats.to_string(),
        ]
    });
    table(&header, &cells.collect::<Vec<_>>())
}

fn count(spread: &Spread, digits: usize) -> String {
    let number = |value: f64| match value.fract() == 0.0 {
        true => format!("{value}"),
        false => format!("{value:.*}", digits.max(1)),
    };
    match spread.min == spread.max {
        true => number(spread.median),
        false => format!(
            "{} ({}-{})",
            number(spread.median),
            number(spread.min),
            number(spread.max)
        ),
    }
}

/// A line per change of every run.
fn run_lines(parts: &[Part]) -> String {
    let mut text = "change,rate_mbps,run,sent,lost,duplicates,reordered,extent_max,late_max_ms,\
                    outage_ms,delay_before_ms,delay_after_ms,sender_late_ms,repeats,carried_from,carried_to\n"
        .to_string();
    for part in parts {
        let known = |ms: Option<f64>| ms.map_or(String::new(), |ms| format!("{ms:.4}"));
        let _ = writeln!(
            text,
            "\"{}\",{},{},{},{},{},{},{},{:.4},{:.4},{},{},{:.4},{},{},{}",
            part.row,
            part.rate_mbps,
            part.run,
            part.sent,
            part.lost,
            part.duplicates,
            part.reordered,
            part.extent_max,
            part.late_ms_max,
            part.outage_ms,
            known(part.delay_before_ms),
            known(part.delay_after_ms),
            part.sender_late_ms,
            part.repeats,
            part.carried.from,
            part.carried.to,
        );
    }
    text
}

/// A line per packet that arrived near a change, in order of arrival.
fn arrival_lines(parts: &[Part]) -> String {
    let mut text = "change,rate_mbps,run,number,sent_ms,received_ms\n".to_string();
    for part in parts {
        for packet in &part.trace {
            let _ = writeln!(
                text,
                "\"{}\",{},{},{},{:.3},{:.3}",
                part.row,
                part.rate_mbps,
                part.run,
                packet.number,
                packet.sent_ms,
                packet.received_ms
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reroute::part::{Carried, Traced, Way};
    use crate::reroute::settings::Scenario;

    const SCENARIO: &str = "\
title = 'x'
[reroute]
datagram_bytes = 1250
rates_mbps = [1, 10]
runs = 2
before_s = 0.5
after_s = 1
[[reroute.changes]]
there = 'a'
back = 'b'
by = 'administrator'
from_ms = 1
to_ms = 4
[reroute.claims]
none_lost = ['a']
none_reordered = ['a']
lost_ms_max = { b = 20 }
reordered_ms_max = { b = 3 }
";

    fn part(row: &str, run: u32, lost: u64, reordered: u64) -> Part {
        Part {
            row: row.to_owned(),
            rate_mbps: 1.0,
            run,
            sent: 100,
            lost,
            reordered,
            outage_ms: 10.5,
            delay_before_ms: Some(1.0),
            carried: Carried { from: 1, to: 50 },
            wanted: Some(Way::To),
            trace: vec![Traced {
                number: 7,
                sent_ms: -1.0,
                received_ms: 0.5,
            }],
            ..Part::default()
        }
    }

    fn verdicts(parts: &[Part]) -> Vec<bool> {
        let settings = Scenario::parse(SCENARIO).unwrap().reroute;
        let checks = checks(&settings.claims, &rows(&settings, parts));
        checks.iter().map(|check| check.passed).collect()
    }

    /// 100 packets a second: two in 20 ms, and one in 3.
    #[test]
    fn each_claim_fails_by_itself() {
        let of_a = |lost, reordered| vec![part("a", 0, 0, 0), part("a", 1, lost, reordered)];
        assert_eq!(verdicts(&of_a(0, 0)), [true, true]);
        assert_eq!(verdicts(&of_a(1, 0)), [false, true]);
        assert_eq!(verdicts(&of_a(0, 1)), [true, false]);
        let of_b = |lost, reordered| vec![part("b", 0, 0, 0), part("b", 1, lost, reordered)];
        assert_eq!(verdicts(&of_b(2, 1)), [true, true]);
        assert_eq!(verdicts(&of_b(3, 1)), [false, true]);
        assert_eq!(verdicts(&of_b(2, 2)), [true, false]);
        let mut doubled = of_a(0, 0);
        doubled[0].duplicates = 1;
        assert_eq!(verdicts(&doubled), [false, true]);
        assert_eq!(verdicts(&[]), [false; 0]);
    }

    #[test]
    fn a_change_that_did_not_happen_is_no_success() {
        let mut parts = vec![part("a", 0, 0, 0)];
        parts[0].carried = Carried { from: 50, to: 1 };
        assert_eq!(verdicts(&parts), [false, true, true]);
    }

    #[test]
    fn everything_is_written_and_every_row_is_in_it() {
        let settings = Scenario::parse(SCENARIO).unwrap().reroute;
        let parts = [part("a", 0, 1, 0), part("a", 1, 3, 0), part("b", 0, 0, 2)];
        let rows = rows(&settings, &parts);
        assert_eq!((rows.len(), rows[0].packets_per_s), (2, 100.0));
        assert_eq!((rows[0].runs, rows[0].sent), (2, 200));
        let table = row_table(&rows);
        assert_eq!(table.lines().count(), 3);
        assert!(table.contains("2 (1-3)"), "{table}");
        let lines = run_lines(&parts);
        let columns: Vec<usize> = lines.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [16; 4]);
        assert!(arrival_lines(&parts).ends_with("\"b\",1,0,7,-1.000,0.500\n"));
        let plots = plots::all(&settings, &rows, &parts);
        let names: Vec<&str> = plots.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["counts-1", "arrivals-1-there", "arrivals-1-back"]);
        assert!(plots.iter().all(|(_, svg)| svg.contains("1 Mbit/s")));
    }
}
