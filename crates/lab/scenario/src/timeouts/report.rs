//! The results of an experiment: document, table, raw data, plots, and whether its claims hold.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use crate::experiment::Args;
use crate::report::Check;
use crate::timeouts::figures::{PingRow, Row, Spread};
use crate::timeouts::plots;
use crate::timeouts::settings::{Claims, Settings};
use crate::timeouts::steps::Found;
use cli::failure::Failure;
use cli::output::{note, say, say_part};
use cli::table::table;
use measure::quantiles::Quantiles;
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
    pub pings: Vec<PingRow>,
}

/// Whether the claims hold, for each cell that they are about.
pub fn checks(claims: &Claims, rows: &[Row]) -> Vec<Check> {
    let mut checks = Vec::new();
    for row in claims.none_reordered.iter().flat_map(|name| of(rows, name)) {
        let (reordered, lost) = (row.reordered.max, row.lost + row.duplicates);
        checks.push(Check {
            what: format!(
                "{}, {} Mbit/s: nothing reordered, lost or doubled in {} runs",
                row.row, row.rate_mbps, row.runs
            ),
            passed: reordered == 0.0 && lost == 0 && row.sent > 0,
            found: format!(
                "at most {reordered} reordered in a run, {} lost and {} doubled of {}",
                row.lost, row.duplicates, row.sent
            ),
        });
    }
    for row in claims.some_reordered.iter().flat_map(|name| of(rows, name)) {
        checks.push(Check {
            what: format!("{}, {} Mbit/s: some are reordered", row.row, row.rate_mbps),
            passed: row.reordered.min > 0.0,
            found: format!("{} to {} in a run", row.reordered.min, row.reordered.max),
        });
    }
    for [fewer, more] in &claims.fewer {
        for (a, b) in of(rows, fewer).flat_map(|a| of(rows, more).map(move |b| (a, b))) {
            if a.rate_mbps == b.rate_mbps {
                let (x, y) = (a.reordered.median, b.reordered.median);
                checks.push(Check {
                    what: format!(
                        "{} Mbit/s: fewer are reordered with {fewer} than with {more}",
                        a.rate_mbps
                    ),
                    passed: x < y,
                    found: format!("{x} and {y} in the median"),
                });
            }
        }
    }
    checks
}

fn of<'a>(rows: &'a [Row], name: &'a str) -> impl Iterator<Item = &'a Row> {
    rows.iter().filter(move |row| row.row == name)
}

pub fn conclude(args: &Args, document: &Document, found: &Found) -> Result<(), Failure> {
    if let Some(dir) = &args.out {
        write(dir, document, found)?;
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

fn write(dir: &Path, document: &Document, found: &Found) -> Result<(), Failure> {
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|e| Failure::file(path, e))
    };
    let json = serde_json::to_string_pretty(document)
        .map_err(|e| Failure::negative(format!("results as JSON: {e}")))?;
    file("result.json", &(json + "\n"))?;
    file("command.txt", &(document.command.join(" ") + "\n"))?;
    file("table.txt", &text(document))?;
    if !found.streams.is_empty() {
        file("runs.csv", &run_lines(found))?;
        file("seconds.csv", &second_lines(found))?;
    }
    if !found.pings.is_empty() {
        file("pings.csv", &ping_lines(found))?;
    }
    for plot in &document.settings.plots {
        let made = plots::plot(plot, document, found);
        file(&format!("{}.svg", plot.file), &made.lines())?;
        file(&format!("{}.csv", plot.file), &plots::data(&made))?;
    }
    Ok(())
}

fn text(document: &Document) -> String {
    let mut text = String::new();
    if !document.rows.is_empty() {
        text += &stream_table(&document.rows);
        text.push('\n');
    }
    if !document.pings.is_empty() {
        text += &ping_table(&document.pings);
        text.push('\n');
    }
    for check in &document.checks {
        let verdict = if check.passed { "yes" } else { "NO " };
        let _ = writeln!(text, "  {verdict}  {}: {}", check.what, check.found);
    }
    text
}
/// Counts are of a run: the median, and from least to most where runs differ.
fn stream_table(rows: &[Row]) -> String {
    let header = [
        "streams",
        "Mbit/s",
        "runs",
        "reordered",
        "formula",
        "iperf",
        "lost",
        "doubled",
        "D ms",
        "detours",
        "packet-ins",
        "extent max",
        "late ms max",
        "jitter ms",
        "delay ms p50",
        "p99",
        "max",
    ];
    let cells = rows.iter().map(|row| {
        let has_controller = row.packet_ins.max > 0.0;
        let of_channel = |text: String| if has_controller { text } else { "-".to_owned() };
        vec![
            row.row.clone(),
            row.rate_mbps.to_string(),
            row.runs.to_string(),
            count(&row.reordered),
            of_channel(format!("{:.0}", row.predicted.median)),
            row.iperf_reordered.as_ref().map_or("-".to_owned(), count),
            row.lost.to_string(),
            row.duplicates.to_string(),
            of_channel(format!("{:.2}", row.detour_ms.median)),
            of_channel(count(&row.detours)),
            count(&row.packet_ins),
            format!("{:.0}", row.extent.max),
            format!("{:.2}", row.late_ms.max),
            format!("{:.3}", row.jitter_ms.median),
            format!("{:.3}", row.delay_ms.p50),
            format!("{:.2}", row.delay_ms.p99),
            format!("{:.2}", row.delay_ms.max),
        ]
    });
    table(&header, &cells.collect::<Vec<_>>())
}

fn count(spread: &Spread) -> String {
    let Spread {
        median, min, max, ..
    } = spread;
    match min == max {
        true => format!("{median}"),
        false => format!("{median} ({min}-{max})"),
    }
}

fn ping_table(rows: &[PingRow]) -> String {
    let header = [
        "pings", "bytes", "runs", "sent", "lost", "mean ms", "min", "p50", "p99", "max",
    ];
    let cells = rows.iter().map(|row| {
        let ms = |value: f64| format!("{value:.3}");
        let rtt = row.rtt_ms;
        vec![
            row.row.clone(),
            row.size_bytes.to_string(),
            row.runs.to_string(),
            row.sent.to_string(),
            row.lost.to_string(),
            ms(row.mean_ms),
            ms(rtt.min),
            ms(rtt.p50),
            ms(rtt.p99),
            ms(rtt.max),
        ]
    });
    table(&header, &cells.collect::<Vec<_>>())
}

/// A line per run.
fn run_lines(found: &Found) -> String {
    let mut text =
        "streams,rate_mbps,run,by,sent,lost,duplicates,reordered,extent_max,late_max_ms,\
                    jitter_ms,delay_p50_ms,delay_p99_ms,delay_max_ms,sender_late_ms,packet_ins,\
                    packet_outs,flow_adds,flow_removed,detours,detour_ms,installed_ms,predicted,\
                    unseen\n"
            .to_string();
    for run in &found.streams {
        let (delay, channel) = (Quantiles::of(run.delays_ms.clone()), &run.channel);
        let known = |ms: Option<f64>| ms.map_or(String::new(), |ms| format!("{ms:.4}"));
        let (detour_ms, installed_ms) = (known(channel.detour_ms), known(channel.installed_ms));
        let _ = writeln!(
            text,
            "\"{}\",{},{},auster,{},{},{},{},{},{:.4},{:.4},{:.4},{:.4},{:.4},{:.4},{},{},{},{},{},\
             {detour_ms},{installed_ms},{:.2},{}",
            run.row,
            run.rate_mbps,
            run.run,
            run.sent,
            run.lost,
            run.duplicates,
            run.reordered,
            run.extent_max,
            run.late_ms_max,
            run.jitter_ms,
            delay.p50,
            delay.p99,
            delay.max,
            run.sender_late_ms,
            channel.packet_ins,
            channel.packet_outs,
            channel.flow_adds,
            channel.flow_removed,
            channel.detours,
            channel.predicted,
            channel.unseen,
        );
    }
    for run in &found.iperf {
        let Some(said) = run.said else {
            continue;
        };
        let _ = writeln!(
            text,
            "\"{}\",{},{},iperf,{},{},,{},,,{:.4},,,,,,,,,,,,,",
            run.row, run.rate_mbps, run.run, said.sent, said.lost, said.reordered, said.jitter_ms
        );
    }
    text
}

/// A line per second of every run.
fn second_lines(found: &Found) -> String {
    let mut text =
        "streams,rate_mbps,run,second,reordered,core_percent,controller_percent\n".to_string();
    for run in &found.streams {
        for (second, reordered) in run.reordered_by_second.iter().enumerate() {
            let busy = run.busy_by_second.get(second);
            let busy = busy.map_or(",".to_owned(), |busy| {
                format!("{:.1},{:.1}", busy.core, busy.controller)
            });
            let (row, rate) = (&run.row, run.rate_mbps);
            let _ = writeln!(
                text,
                "\"{row}\",{rate},{},{second},{reordered},{busy}",
                run.run
            );
        }
    }
    text
}

/// A line per request; no round trip where it was lost.
fn ping_lines(found: &Found) -> String {
    let mut text = "pings,size_bytes,run,request,rtt_ms\n".to_string();
    for run in &found.pings {
        for (request, rtt) in run.rtts_ms.iter().enumerate() {
            let rtt = rtt.map_or(String::new(), |ms| format!("{ms:.3}"));
            let (row, size) = (&run.row, run.size_bytes);
            let _ = writeln!(text, "\"{row}\",{size},{},{},{rtt}", run.run, request + 1);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeouts::cell::{Channel, IperfRun, PingRun, StreamRun};
    use crate::timeouts::figures;
    use crate::timeouts::settings::Scenario;
    use bench::network::iperf::Datagrams;

    const SCENARIO: &str = "\
title = 'x'
[timeouts]
seconds = 2
datagram_bytes = 1250
runs = 2
[timeouts.controllers.one]
[[timeouts.streams]]
name = 'hard'
controller = 'one'
rates_mbps = [1, 5]
[[timeouts.streams]]
name = 'lease'
controller = 'one'
rates_mbps = [5]
[[timeouts.pings]]
name = 'reactive'
controller = 'one'
sizes_bytes = [64]
count = 2
interval_s = 1
[timeouts.claims]
none_reordered = ['lease']
some_reordered = ['hard']
fewer = [['lease', 'hard']]
";

    fn run(row: &str, rate_mbps: f64, reordered: u64, lost: u64) -> StreamRun {
        StreamRun {
            row: row.to_owned(),
            rate_mbps,
            sent: 10,
            received: 10 - lost,
            lost,
            reordered,
            late: (0..reordered).map(|n| (n + 1, 2.0)).collect(),
            delays_ms: vec![1.0; 10],
            channel: Channel {
                packet_ins: 4,
                detours: 2,
                detour_ms: Some(17.0),
                predicted: 3.0,
                ..Channel::default()
            },
            reordered_by_second: vec![reordered, 0],
            ..StreamRun::default()
        }
    }

    fn verdicts(runs: Vec<StreamRun>) -> Vec<bool> {
        let settings = Scenario::parse(SCENARIO).unwrap().timeouts;
        let found = Found {
            streams: runs,
            ..Found::default()
        };
        let rows = figures::rows(&settings, &found);
        let checks = checks(&settings.claims, &rows);
        checks.iter().map(|check| check.passed).collect()
    }

    #[test]
    fn each_claim_fails_by_itself() {
        let runs = |slow, fast, lease, lost| {
            vec![
                run("hard", 1.0, slow, 0),
                run("hard", 5.0, fast, 0),
                run("lease", 5.0, 0, 0),
                run("lease", 5.0, lease, lost),
            ]
        };
        assert_eq!(verdicts(runs(1, 5, 0, 0)), [true, true, true, true]);
        assert_eq!(verdicts(runs(1, 5, 1, 0)), [false, true, true, true]);
        assert_eq!(verdicts(runs(1, 5, 0, 1)), [false, true, true, true]);
        assert_eq!(verdicts(runs(0, 5, 0, 0)), [true, false, true, true]);
        assert_eq!(verdicts(runs(1, 1, 4, 0)), [false, true, true, false]);
        assert_eq!(verdicts(vec![]), [false; 0]);
    }

    #[test]
    fn everything_is_written_and_every_cell_is_in_it() {
        let settings = Scenario::parse(SCENARIO).unwrap().timeouts;
        let found = Found {
            streams: vec![run("hard", 1.0, 3, 0), run("lease", 5.0, 0, 0)],
            iperf: vec![IperfRun {
                row: "hard".to_owned(),
                rate_mbps: 1.0,
                run: 0,
                said: Some(Datagrams {
                    sent: 10,
                    lost: 1,
                    jitter_ms: 0.5,
                    reordered: 4,
                }),
            }],
            pings: vec![PingRun {
                row: "reactive".to_owned(),
                size_bytes: 64,
                run: 0,
                rtts_ms: vec![Some(17.0), None],
            }],
        };
        let rows = figures::rows(&settings, &found);
        assert_eq!((rows.len(), rows[0].packets_per_s), (2, 100.0));
        assert_eq!(rows[0].extent.max, 3.0);
        assert_eq!(rows[0].iperf_reordered.map(|r| r.median), Some(4.0));
        assert_eq!(rows[1].iperf_reordered, None);
        let text = stream_table(&rows);
        assert_eq!(text.lines().count(), 3);
        assert!(text.contains("17.00"), "{text}");
        let lines = run_lines(&found);
        let columns: Vec<usize> = lines.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [24; 4]);
        assert_eq!(second_lines(&found).lines().count(), 1 + 2 * 2);
        assert!(ping_lines(&found).ends_with("\"reactive\",64,0,2,\n"));
        let pings = figures::ping_rows(&settings, &found);
        assert_eq!((pings[0].sent, pings[0].lost), (2, 1));
        assert_eq!(pings[0].by_request_ms, [Some(17.0), None]);
        assert_eq!(ping_table(&pings).lines().count(), 2);
    }
}
