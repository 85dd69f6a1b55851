//! The results: document, table, raw data, and whether the claims hold.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use crate::experiment::Args;
use crate::report::Check;
use crate::table::plots;
use crate::table::settings::Settings;
use crate::table::stage::Run;
use cli::failure::Failure;
use cli::output::{note, say, say_part};
use cli::table::table;
use measure::stats::Summary;
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

/// All runs of one policy at one load of one table. Summaries are over runs.
#[derive(Debug, Serialize)]
pub struct Row {
    pub cells: usize,
    pub entries: u32,
    pub topology: String,
    pub load: f64,
    pub policy: String,
    pub runs: usize,
    pub flows: Summary,
    pub packets: Summary,
    pub lost: Summary,
    /// Lost packets that had been sent to the controller.
    pub lost_asked: Summary,
    pub duplicates: Summary,
    pub misses: Summary,
    pub misses_per_flow: Summary,
    pub simulated_misses_per_flow: Summary,
    /// Times those in the simulator.
    pub simulated_ratio: Summary,
    /// Entries of the fullest switch, after the first quarter.
    pub entries_mean: Summary,
    pub entries_max: Summary,
    /// 0.9 of the table, and what was set between two reads of its statistics.
    pub bound: Summary,
    /// Runs that were beyond their bound.
    pub runs_beyond: usize,
    pub table_full: Summary,
    pub no_room: Summary,
    pub evicted: Summary,
    pub evicted_active: Summary,
    /// Entries that the switch evicted.
    pub put_out: Summary,
    pub put_out_active: Summary,
    pub lapsed: Summary,
    pub packet_ins: Summary,
    pub flow_adds: Summary,
    pub coarse_adds: Summary,
    pub flow_deletes: Summary,
    pub errors: Summary,
    pub reads: Summary,
    pub late_ms_max: Summary,
    pub refused: Summary,
    pub unseen: Summary,
}

/// `simulated` has the misses per flow for each of the runs.
pub fn rows(settings: &Settings, runs: &[Run], simulated: &[f64]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (cells, of_cells) in settings.cells.iter().enumerate() {
        for load in &of_cells.loads {
            for policy in 0..settings.policies.len() {
                let is_here = |(run, _): &(&Run, &f64)| {
                    let place = run.place;
                    (place.cells, place.load, place.policy) == (cells, *load, policy)
                };
                let here: Vec<_> = runs.iter().zip(simulated).filter(is_here).collect();
                if !here.is_empty() {
                    rows.push(Row::of(settings, &here));
                }
            }
        }
    }
    rows
}

impl Row {
    fn of(settings: &Settings, runs: &[(&Run, &f64)]) -> Row {
        let place = runs[0].0.place;
        let cells = &settings.cells[place.cells];
        let over = |read: &dyn Fn(&Run, f64) -> f64| {
            let values: Vec<f64> = runs.iter().map(|(run, sim)| read(run, **sim)).collect();
            Summary::of(&values)
        };
        let count = |read: fn(&Run) -> u64| over(&|run, _| read(run) as f64);
        let is_beyond = |(run, _): &&(&Run, &f64)| u64::from(run.entries_max()) > run.bound;
        Row {
            cells: place.cells,
            entries: cells.entries,
            topology: cells.topology.clone(),
            load: place.load,
            policy: settings.policies[place.policy].name.clone(),
            runs: runs.len(),
            flows: count(|r| r.flows),
            packets: count(|r| r.sent),
            lost: count(|r| r.judged.lost),
            lost_asked: count(|r| r.judged.lost_asked),
            duplicates: count(|r| r.duplicates),
            misses: count(|r| r.judged.misses),
            misses_per_flow: over(&|run, _| run.misses_per_flow()),
            simulated_misses_per_flow: over(&|_, simulated| simulated),
            simulated_ratio: over(&|run, simulated| run.misses_per_flow() / simulated),
            entries_mean: over(&|run, _| run.entries_mean(settings.seconds)),
            entries_max: count(|r| r.entries_max().into()),
            bound: count(|r| r.bound),
            runs_beyond: runs.iter().filter(is_beyond).count(),
            table_full: count(|r| r.messages.table_full),
            no_room: count(|r| r.no_room),
            evicted: count(|r| r.judged.evicted),
            evicted_active: count(|r| r.judged.evicted_active),
            put_out: count(|r| r.judged.put_out),
            put_out_active: count(|r| r.judged.put_out_active),
            lapsed: count(|r| r.judged.lapsed),
            packet_ins: count(|r| r.messages.packet_ins),
            flow_adds: count(|r| r.messages.flow_adds),
            coarse_adds: count(|r| r.messages.coarse_adds),
            flow_deletes: count(|r| r.messages.flow_deletes),
            errors: count(|r| r.messages.errors),
            reads: count(|r| r.messages.reads),
            late_ms_max: over(&|run, _| run.late_ms_max),
            refused: count(|r| r.refused),
            unseen: count(|r| r.unseen),
        }
    }

    pub fn place(&self) -> String {
        format!(
            "{} entries, {}, load {}",
            self.entries, self.topology, self.load
        )
    }
}

/// Whether the claims hold, for each row that they are about.
pub fn checks(settings: &Settings, rows: &[Row]) -> Vec<Check> {
    let claims = &settings.claims;
    let mut checks = Vec::new();
    for row in rows {
        let mut check = |names: &[String], what: &str, found: String, passed: bool| {
            if names.contains(&row.policy) {
                checks.push(Check {
                    what: format!("{}, {}: {what}", row.policy, row.place()),
                    passed,
                    found,
                });
            }
        };
        let total = |summary: &Summary| (summary.mean * row.runs as f64).round();
        // What was not seen may have been what must not be.
        let unseen = total(&row.unseen);
        let seen = match unseen {
            0.0 => String::new(),
            n => format!("; {n} frames were not seen"),
        };
        let none = |summary: &Summary, of: &Summary| {
            let is_none = total(summary) == 0.0 && unseen == 0.0 && of.min > 0.0;
            (
                format!("{} of {}{seen}", total(summary), total(of)),
                is_none,
            )
        };
        check(
            &claims.bounded,
            "entries within 0.9 of the table and what is set between two reads",
            format!("at most {} of {}", row.entries_max.max, row.bound.max),
            row.runs_beyond == 0 && row.entries_max.min > 0.0,
        );
        let (found, passed) = none(&row.table_full, &row.flow_adds);
        check(&claims.never_full, "no entry refused", found, passed);
        let (found, passed) = none(&row.lost_asked, &row.misses);
        check(
            &claims.none_lost,
            "no packet lost that was sent to the controller",
            found,
            passed,
        );
        let (found, _) = none(&row.evicted_active, &row.evicted);
        check(
            &claims.none_active_evicted,
            "no entry of an active flow taken out",
            found,
            total(&row.evicted_active) == 0.0 && unseen == 0.0 && row.flow_adds.min > 0.0,
        );
        if let Some(most) = claims.simulated_ratio_max {
            let ratio = row.simulated_ratio.mean;
            checks.push(Check {
                what: format!(
                    "{}, {}: at most {most} times the simulator's misses",
                    row.policy,
                    row.place()
                ),
                passed: ratio > 0.0 && ratio <= most,
                found: format!("{ratio:.2} times"),
            });
        }
    }
    for [fewer, more] in &claims.fewer_misses {
        let pairs = rows.iter().flat_map(|a| rows.iter().map(move |b| (a, b)));
        for (a, b) in pairs {
            let is_meant = (&a.policy, &b.policy) == (fewer, more);
            if is_meant && (a.cells, a.load) == (b.cells, b.load) {
                let (x, y) = (a.misses_per_flow.mean, b.misses_per_flow.mean);
                checks.push(Check {
                    what: format!("{fewer}, {}: fewer misses than {more}", a.place()),
                    passed: x < y,
                    found: format!("{x:.3} and {y:.3} per flow"),
                });
            }
        }
    }
    checks
}

pub fn conclude(args: &Args, document: &Document, runs: &[Run]) -> Result<(), Failure> {
    if let Some(dir) = &args.out {
        write(dir, document, runs)?;
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

fn write(dir: &Path, document: &Document, runs: &[Run]) -> Result<(), Failure> {
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|e| Failure::file(path, e))
    };
    let json = serde_json::to_string_pretty(document)
        .map_err(|e| Failure::negative(format!("results as JSON: {e}")))?;
    file("result.json", &(json + "\n"))?;
    file("command.txt", &(document.command.join(" ") + "\n"))?;
    file("table.txt", &text(document))?;
    file("runs.csv", &run_lines(&document.settings, runs))?;
    file("occupancy.csv", &occupancy_lines(&document.settings, runs))?;
    for (name, svg) in plots::all(document, runs) {
        file(&name, &svg)?;
    }
    Ok(())
}

/// Counts are of a run, the mean; what is a maximum is that of all runs.
fn text(document: &Document) -> String {
    let header = [
        "entries",
        "network",
        "load",
        "policy",
        "runs",
        "flows/s",
        "packets",
        "lost",
        "asked",
        "misses",
        "misses/flow",
        "simulated",
        "ratio",
        "occupied",
        "max",
        "bound",
        "TABLE_FULL",
        "no room",
        "evicted",
        "active",
        "by switch",
        "active",
        "lapsed",
        "coarse",
        "late ms max",
        "unseen",
    ];
    let seconds = document.settings.seconds;
    let row = |row: &Row| {
        let mean = |summary: &Summary| format!("{:.0}", summary.mean);
        let max = |summary: &Summary| format!("{:.0}", summary.max);
        vec![
            row.entries.to_string(),
            row.topology.clone(),
            row.load.to_string(),
            row.policy.clone(),
            row.runs.to_string(),
            format!("{:.0}", row.flows.mean / seconds),
            mean(&row.packets),
            mean(&row.lost),
            mean(&row.lost_asked),
            mean(&row.misses),
            format!("{:.3}", row.misses_per_flow.mean),
            format!("{:.3}", row.simulated_misses_per_flow.mean),
            format!("{:.2}", row.simulated_ratio.mean),
            mean(&row.entries_mean),
            max(&row.entries_max),
            max(&row.bound),
            mean(&row.table_full),
            mean(&row.no_room),
            mean(&row.evicted),
            mean(&row.evicted_active),
            mean(&row.put_out),
            mean(&row.put_out_active),
            mean(&row.lapsed),
            mean(&row.coarse_adds),
            max(&row.late_ms_max),
            mean(&row.unseen),
        ]
    };
    let rows: Vec<Vec<String>> = document.rows.iter().map(row).collect();
    let mut text = format!("{}\n{}\n", document.title, table(&header, &rows));
    for check in &document.checks {
        let verdict = if check.passed { "yes" } else { "NO " };
        let _ = writeln!(text, "  {verdict}  {}: {}", check.what, check.found);
    }
    text
}

/// A line per run.
fn run_lines(settings: &Settings, runs: &[Run]) -> String {
    let mut text = "entries,topology,load,policy,round,flows,sent,lost,lost_asked,duplicates,\
                    refused,late_ms_max,misses,entries_mean,entries_max,bound,table_full,no_room,\
                    entries_set,evicted,evicted_active,put_out,put_out_active,lapsed,packet_ins,\
                    flow_adds,coarse_adds,flow_deletes,flow_removed,errors,reads,unseen\n"
        .to_owned();
    for run in runs {
        let (judged, messages) = (&run.judged, &run.messages);
        let counts = [
            judged.entries_set,
            judged.evicted,
            judged.evicted_active,
            judged.put_out,
            judged.put_out_active,
            judged.lapsed,
            messages.packet_ins,
            messages.flow_adds,
            messages.coarse_adds,
            messages.flow_deletes,
            messages.flow_removed,
            messages.errors,
            messages.reads,
            run.unseen,
        ];
        let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{:.2},{},{:.1},{},{},{},{},{}",
            place(settings, run),
            run.flows,
            run.sent,
            judged.lost,
            judged.lost_asked,
            run.duplicates,
            run.refused,
            run.late_ms_max,
            judged.misses,
            run.entries_mean(settings.seconds),
            run.entries_max(),
            run.bound,
            messages.table_full,
            run.no_room,
            counts.join(",")
        );
    }
    text
}

fn place(settings: &Settings, run: &Run) -> String {
    let (cells, policy) = (
        &settings.cells[run.place.cells],
        &settings.policies[run.place.policy],
    );
    format!(
        "{},\"{}\",{},\"{}\",{}",
        cells.entries, cells.topology, run.place.load, policy.name, run.place.round
    )
}

/// A line per quarter of a second of every run: the most entries within it.
fn occupancy_lines(settings: &Settings, runs: &[Run]) -> String {
    let mut text = "entries,topology,load,policy,round,s,most\n".to_owned();
    for run in runs {
        let place = place(settings, run);
        for (s, most) in plots::quarters(&run.occupancy) {
            let _ = writeln!(text, "{place},{s},{most}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::settings::Scenario;
    use crate::table::stage::Place;

    const SCENARIO: &str = "\
title = 'x'
[table]
seconds = 2
runs = 2
[[table.policies]]
name = 'lease'
tell_limit = true
simulated = { kind = 'lease' }
[[table.policies]]
name = 'ten'
simulated = { kind = 'fixed', idle_s = 10 }
[[table.cells]]
entries = 1000
loads = [1]
[table.claims]
bounded = ['lease']
never_full = ['lease']
none_lost = ['lease']
none_active_evicted = ['lease']
fewer_misses = [['lease', 'ten']]
";

    fn settings() -> Settings {
        Scenario::parse(SCENARIO).unwrap().table
    }

    fn run(policy: usize, round: u32, misses: u64) -> Run {
        let place = Place {
            cells: 0,
            policy,
            load: 1.0,
            round,
        };
        let mut run = Run {
            place,
            flows: 100,
            sent: 400,
            duplicates: 0,
            refused: 0,
            late_ms_max: 0.5,
            judged: Default::default(),
            messages: Default::default(),
            bound: 950,
            no_room: 0,
            unseen: 0,
            occupancy: vec![(0.0, 2), (0.3, 949), (0.6, 950), (1.9, 800)],
        };
        (
            run.judged.misses,
            run.judged.evicted,
            run.messages.flow_adds,
        ) = (misses, 3, 90);
        run
    }

    fn verdicts(change: impl Fn(&mut Run)) -> Vec<bool> {
        let mut second = run(0, 1, 120);
        change(&mut second);
        let runs = [run(0, 0, 110), run(1, 0, 130), second, run(1, 1, 140)];
        let settings = settings();
        let rows = rows(&settings, &runs, &[1.0, 1.2, 1.0, 1.2]);
        assert_eq!(rows.iter().map(|r| r.runs).collect::<Vec<_>>(), [2, 2]);
        let checks = checks(&settings, &rows);
        checks.iter().map(|check| check.passed).collect()
    }

    #[test]
    fn each_claim_fails_by_itself_and_by_a_single_run() {
        assert_eq!(verdicts(|_| {}), [true; 5]);
        assert_eq!(
            verdicts(|r| r.occupancy.push((1.0, 951))),
            [false, true, true, true, true]
        );
        assert_eq!(
            verdicts(|r| r.messages.table_full = 1),
            [true, false, true, true, true]
        );
        assert_eq!(
            verdicts(|r| r.judged.lost_asked = 1),
            [true, true, false, true, true]
        );
        assert_eq!(
            verdicts(|r| r.judged.evicted_active = 1),
            [true, true, true, false, true]
        );
        assert_eq!(
            verdicts(|r| r.flows = 60),
            [true, true, true, true, false],
            "the same misses of fewer flows"
        );
        assert_eq!(
            verdicts(|r| r.judged.lost = 1),
            [true; 5],
            "it never came to the controller"
        );
        assert_eq!(
            verdicts(|r| r.unseen = 1),
            [true, false, false, false, true],
            "nobody knows"
        );
        assert_eq!(
            verdicts(|r| (r.judged.misses, r.messages.flow_adds) = (0, 0)),
            [true, false, false, false, true],
            "nothing was put to the test"
        );
        assert!(!verdicts(|r| r.occupancy.clear())[0]);
    }

    #[test]
    fn the_simulator_is_the_measure_if_the_scenario_says_so() {
        let mut settings = settings();
        let runs = [run(0, 0, 110), run(1, 0, 130)];
        let rows = rows(&settings, &runs, &[1.0, 1.3]);
        let mut passed = |most: f64| {
            settings.claims.simulated_ratio_max = Some(most);
            let checks = checks(&settings, &rows);
            let of = checks
                .iter()
                .filter(|check| check.what.contains("simulator"));
            of.map(|check| check.passed).collect::<Vec<_>>()
        };
        assert_eq!(passed(1.11), [true, true]);
        assert_eq!(passed(1.05), [false, true]);
    }

    #[test]
    fn everything_is_written_in_columns() {
        let settings = settings();
        let runs = [run(0, 0, 110), run(1, 0, 130)];
        let mut lines = run_lines(&settings, &runs).replace("\"single,2\"", "single");
        lines.push_str(&lines.clone());
        let columns: Vec<usize> = lines.lines().map(|l| l.split(',').count()).collect();
        assert_eq!(columns, [32; 6]);
        let lines = occupancy_lines(&settings, &runs);
        assert!(lines.contains("\"lease\",0,0.25,949\n"), "{lines}");
        assert_eq!(lines.lines().count(), 1 + 2 * 4);
        assert_eq!(runs[0].entries_mean(2.0), 875.0);
    }
}
