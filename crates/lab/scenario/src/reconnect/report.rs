//! What an experiment found: document, table, raw data, plot, and whether its claims hold.

use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use crate::experiment::Args;
use crate::reconnect::settings::{Claims, Event, Settings, Way};
use crate::reconnect::trial::Trial;
use crate::report::Check;
use crate::timeouts::figures::Spread;
use cli::failure::Failure;
use cli::output::{note, say, say_part};
use cli::table::table;
use report::machine::Machine;
use report::plot::Bars;

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
    /// Why runs were begun again, or given up the second time.
    pub failures: Vec<String>,
}

/// One event on one way, over all runs.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub event: Event,
    pub way: Way,
    pub runs: usize,
    /// Of a pair that begins while all is well.
    pub undisturbed_ms: Spread,
    /// Of the pair that begins at the event, in the runs that had an answer.
    pub first_answer_ms: Spread,
    /// Until a controller had heard of that pair, in the runs in which it was seen to.
    pub heard_ms: Spread,
    /// How long that was before the first answer.
    pub heard_before_ms: Spread,
    pub unanswered_runs: usize,
    /// Runs in which the switch's session survived.
    pub survived_runs: usize,
    /// Over all runs.
    pub new_sent: usize,
    pub new_lost: usize,
    pub established_sent: usize,
    pub established_lost: usize,
    pub entries_before: usize,
    pub entries_lost: usize,
    /// Connections of the relays after the first, and how many of these resumed the session.
    pub reconnects: u64,
    pub resumptions: u64,
    /// Handshakes with early data, and those whose early data was taken.
    pub early_sent: u64,
    pub early_accepted: u64,
}

pub fn rows(settings: &Settings, trials: &[Trial]) -> Vec<Row> {
    let mut rows = Vec::new();
    for event in &settings.events {
        for way in &settings.ways {
            let of_row = |trial: &&Trial| (trial.event, trial.way) == (*event, *way);
            let runs: Vec<&Trial> = trials.iter().filter(of_row).collect();
            if !runs.is_empty() {
                rows.push(row(*event, *way, &runs));
            }
        }
    }
    rows
}

fn row(event: Event, way: Way, runs: &[&Trial]) -> Row {
    let sum = |of: fn(&Trial) -> usize| runs.iter().map(|trial| of(trial)).sum();
    let total = |of: fn(&Trial) -> u64| runs.iter().map(|trial| of(trial)).sum();
    Row {
        event,
        way,
        runs: runs.len(),
        undisturbed_ms: Spread::of(runs.iter().map(|trial| trial.undisturbed_ms)),
        first_answer_ms: Spread::of(runs.iter().filter_map(|trial| trial.first_answer_ms)),
        heard_ms: Spread::of(runs.iter().filter_map(|trial| trial.heard_ms)),
        heard_before_ms: Spread::of(runs.iter().filter_map(|trial| heard_before(trial))),
        unanswered_runs: sum(|trial| usize::from(trial.first_answer_ms.is_none())),
        survived_runs: sum(|trial| usize::from(trial.survived)),
        new_sent: sum(|trial| trial.new_sent),
        new_lost: sum(|trial| trial.new_lost),
        established_sent: sum(|trial| trial.established_sent),
        established_lost: sum(|trial| trial.established_lost),
        entries_before: sum(|trial| trial.entries_before),
        entries_lost: sum(|trial| trial.entries_lost),
        reconnects: total(|trial| trial.reconnects),
        resumptions: total(|trial| trial.resumptions),
        early_sent: total(|trial| trial.early_sent),
        early_accepted: total(|trial| trial.early_accepted),
    }
}

/// What follows a broken connection until it is dialled differs by more than a round trip from run to
/// run; this does not have it.
fn heard_before(trial: &Trial) -> Option<f64> {
    Some(trial.first_answer_ms? - trial.heard_ms?)
}

/// Whether the claims hold, and whether packets were answered again at all. `missing`: runs that
/// there are not.
pub fn checks(claims: &Claims, rows: &[Row], missing: usize) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut check = |what: String, passed: bool, found: String| {
        checks.push(Check {
            what,
            passed,
            found,
        });
    };
    check(
        "every run was carried out".to_owned(),
        missing == 0,
        format!("{missing} not"),
    );
    for row in rows {
        let of = format!("{} by {}", row.event.name(), row.way.name());
        check(
            format!("{of}: packets are answered again"),
            row.unanswered_runs == 0,
            format!("not in {} of {} runs", row.unanswered_runs, row.runs),
        );
        check(
            format!("{of}: flows with entries lose nothing"),
            row.established_lost == 0 && row.established_sent > 0,
            format!("{} of {}", row.established_lost, row.established_sent),
        );
        if row.way.has_relays() && claims.survived.contains(&row.event) {
            check(
                format!("{of}: the switch's session survives, and new flows lose nothing"),
                row.survived_runs == row.runs && row.new_lost == 0,
                format!(
                    "in {} of {} runs, {} of {} lost",
                    row.survived_runs, row.runs, row.new_lost, row.new_sent
                ),
            );
        }
        if claims.entries_kept.contains(&row.event) {
            check(
                format!("{of}: no entry is lost"),
                row.entries_lost == 0 && row.entries_before > 0,
                format!("{} of {}", row.entries_lost, row.entries_before),
            );
        }
    }
    for (event, share_max) in &claims.share_of_ssl_max {
        let of = |way| {
            let found = rows
                .iter()
                .find(|row| (row.event, row.way) == (*event, way));
            let answered = found.filter(|row| row.unanswered_runs < row.runs);
            answered.map(|row| row.first_answer_ms.median)
        };
        let (quic, ssl) = (of(Way::Quic), of(Way::Ssl));
        check(
            format!(
                "{}: the first answer by quic takes at most {share_max} of that by ssl",
                event.name()
            ),
            matches!((quic, ssl), (Some(quic), Some(ssl)) if quic <= share_max * ssl),
            match (quic, ssl) {
                (Some(quic), Some(ssl)) => format!("{quic:.0} ms and {ssl:.0} ms"),
                _ => "one of them had none".to_owned(),
            },
        );
    }
    checks
}

pub fn conclude(args: &Args, document: &Document, trials: &[Trial]) -> Result<(), Failure> {
    if let Some(dir) = &args.out {
        write(dir, document, trials)?;
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

fn write(dir: &Path, document: &Document, trials: &[Trial]) -> Result<(), Failure> {
    let file = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|e| Failure::file(path, e))
    };
    let json = serde_json::to_string_pretty(document)
        .map_err(|e| Failure::negative(format!("results as JSON: {e}")))?;
    file("result.json", &(json + "\n"))?;
    file("command.txt", &(document.command.join(" ") + "\n"))?;
    file("table.txt", &text(document))?;
    file("runs.csv", &run_lines(trials))?;
    file(
        "first-answer.svg",
        &plot(&document.settings, &document.rows).svg(),
    )?;
    Ok(())
}

fn text(document: &Document) -> String {
    let mut text = row_table(&document.rows);
    for failure in &document.failures {
        let _ = writeln!(text, "  {failure}");
    }
    text.push('\n');
    for check in &document.checks {
        let verdict = if check.passed { "yes" } else { "NO " };
        let _ = writeln!(text, "  {verdict}  {}: {}", check.what, check.found);
    }
    text
}

fn row_table(rows: &[Row]) -> String {
    let header = [
        "event",
        "way",
        "runs",
        "undisturbed ms",
        "first answer ms",
        "least",
        "most",
        "heard ms",
        "before the answer",
        "session survived",
        "new lost",
        "of",
        "established lost",
        "of",
        "entries lost",
        "of",
        "resumptions",
        "early data",
    ];
    let cells = rows.iter().map(|row| {
        let answer = &row.first_answer_ms;
        vec![
            row.event.name().to_owned(),
            row.way.name().to_owned(),
            row.runs.to_string(),
            format!("{:.0}", row.undisturbed_ms.median),
            format!("{:.0}", answer.median),
            format!("{:.0}", answer.min),
            format!("{:.0}", answer.max),
            format!("{:.0}", row.heard_ms.median),
            format!("{:.0}", row.heard_before_ms.median),
            format!("{} of {}", row.survived_runs, row.runs),
            row.new_lost.to_string(),
            row.new_sent.to_string(),
            row.established_lost.to_string(),
            row.established_sent.to_string(),
            row.entries_lost.to_string(),
            row.entries_before.to_string(),
            format!("{} of {}", row.resumptions, row.reconnects),
            format!("{} of {}", row.early_accepted, row.early_sent),
        ]
    });
    table(&header, &cells.collect::<Vec<_>>())
}

/// A line per run.
fn run_lines(trials: &[Trial]) -> String {
    let cell = |ms: Option<f64>| ms.map_or(String::new(), |ms| format!("{ms:.1}"));
    let mut text = "event,way,run,undisturbed_ms,first_answer_ms,heard_ms,survived,new_sent,new_lost,\
                    established_sent,established_lost,entries_before,entries_lost,reconnects,resumptions,early_sent,early_accepted\n"
        .to_owned();
    for trial in trials {
        let _ = writeln!(
            text,
            "{},{},{},{:.1},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            trial.event.name(),
            trial.way.name(),
            trial.run,
            trial.undisturbed_ms,
            cell(trial.first_answer_ms),
            cell(trial.heard_ms),
            trial.survived,
            trial.new_sent,
            trial.new_lost,
            trial.established_sent,
            trial.established_lost,
            trial.entries_before,
            trial.entries_lost,
            trial.reconnects,
            trial.resumptions,
            trial.early_sent,
            trial.early_accepted,
        );
    }
    text
}

/// Means over the runs, with their 95 % intervals.
fn plot(settings: &Settings, rows: &[Row]) -> Bars {
    let of = |way: Way, value: fn(&Spread) -> f64| {
        let of_event = |event: &Event| {
            let mut rows = rows.iter();
            let row = rows.find(|row| (row.event, row.way) == (*event, way));
            row.map_or(f64::NAN, |row| value(&row.first_answer_ms))
        };
        settings.events.iter().map(of_event).collect::<Vec<f64>>()
    };
    let ways = settings.ways.iter();
    Bars {
        title: format!(
            "Until the first packet is answered again, RTT {} ms",
            settings.rtt_ms
        ),
        y_label: "from the event (ms)".to_owned(),
        groups: settings
            .events
            .iter()
            .map(|e| e.name().to_owned())
            .collect(),
        parts: ways
            .clone()
            .map(|way| (way.name().to_owned(), of(*way, |spread| spread.mean)))
            .collect(),
        stacked: false,
        error: Some(ways.map(|way| of(*way, |spread| spread.ci95)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(way: Way, first_answer_ms: Option<f64>) -> Trial {
        Trial {
            event: Event::Takeover,
            way,
            run: 0,
            undisturbed_ms: 210.0,
            first_answer_ms,
            new_sent: 100,
            new_lost: 0,
            established_sent: 200,
            established_lost: 0,
            survived: way == Way::Quic,
            entries_before: 4,
            entries_lost: 0,
            heard_ms: first_answer_ms,
            resumptions: 1,
            reconnects: 1,
            early_sent: 0,
            early_accepted: 0,
        }
    }

    /// Of the checks on these runs, those that do not hold.
    fn failed(trials: &[Trial]) -> Vec<String> {
        let text = "title = 'x'\n[reconnect]\nevents = ['takeover']\nways = ['quic', 'ssl']\n\
            runs = 1\nrtt_ms = 100\ndown_ms = 200\ninterval_ms = 20\nafter_s = 1\npatience_s = 10\n\
            claims = { survived = ['takeover'], entries_kept = ['takeover'], \
            share_of_ssl_max = { takeover = 0.5 } }";
        let scenario = crate::reconnect::settings::Scenario::parse(text).unwrap();
        let rows = rows(&scenario.reconnect, trials);
        let checks = checks(&scenario.reconnect.claims, &rows, 0);
        assert_eq!(checks.len(), 9);
        let failed = checks.into_iter().filter(|check| !check.passed);
        failed.map(|check| check.what).collect()
    }

    #[test]
    fn each_fault_fails_the_claim_it_belongs_to() {
        let quic = || trial(Way::Quic, Some(1000.0));
        let ssl = || trial(Way::Ssl, Some(2000.0));
        assert_eq!(failed(&[quic(), ssl()]), [""; 0]);
        let fails = |change: fn(&mut Trial), words: &[&str]| {
            let mut quic = quic();
            change(&mut quic);
            let failed = failed(&[quic, ssl()]);
            let fits = failed
                .iter()
                .zip(words)
                .all(|(what, word)| what.contains(word));
            assert!(fits && failed.len() == words.len(), "{failed:?}");
        };
        fails(|t| t.survived = false, &["session survives"]);
        fails(|t| t.new_lost = 1, &["session survives"]);
        fails(|t| t.established_lost = 1, &["flows with entries"]);
        fails(|t| t.entries_lost = 1, &["no entry is lost"]);
        fails(|t| t.first_answer_ms = Some(1001.0), &["at most 0.5"]);
        fails(
            |t| t.first_answer_ms = None,
            &["answered again", "at most 0.5"],
        );
    }
}
