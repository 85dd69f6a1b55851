//! The cost of policies on many switches: rows, verdict, table, files.

use std::fmt::Write as _;

use serde::Serialize;

use crate::qos::scale::Trial;
use crate::qos::scale::settings::Settings;
use crate::report::Check;
use cli::failure::Failure;
use cli::output::{say, say_part};
use cli::table::table;
use measure::stats::Summary;
use report::machine::Machine;
use report::output::Results;
use report::plot::{Plot, Series};

#[derive(Debug, Serialize)]
pub struct Document {
    pub title: String,
    pub scenario: String,
    pub command: Vec<String>,
    pub started_unix_s: u64,
    pub machine: Machine,
    pub passed: bool,
    /// Ended by a signal: the figures are those until then.
    pub interrupted: bool,
    pub settings: Settings,
    pub checks: Vec<Check>,
    pub rows: Vec<Row>,
    pub trials: Vec<Trial>,
}

/// A number of policies, over all runs.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub policies: u16,
    pub entries: u64,
    pub apply_ms: Summary,
    pub apply_messages: Summary,
    pub idle_messages: Summary,
    pub reload_messages: Summary,
    pub connect_ms: Summary,
    pub reconcile_ms: Summary,
    pub remove_ms: Summary,
}

pub fn line(trial: &Trial) -> String {
    format!(
        "  run {} {:5} policies: set in {:.0} ms, {} messages for {} entries; read again: {} in \
         the time of {}; found by a new process in {:.0} ms; removed in {:.0} ms",
        trial.run + 1,
        trial.policies,
        trial.apply_ms,
        trial.apply_messages,
        trial.entries,
        trial.reload_messages,
        trial.idle_messages,
        trial.reconcile_ms,
        trial.remove_ms
    )
}

pub fn rows(settings: &Settings, trials: &[Trial]) -> Vec<Row> {
    let of = |policies: &u16| -> Option<Row> {
        let trials = trials.iter().filter(|trial| trial.policies == *policies);
        let trials: Vec<&Trial> = trials.collect();
        let summary = |figure: fn(&Trial) -> f64| {
            Summary::of(&trials.iter().map(|trial| figure(trial)).collect::<Vec<_>>())
        };
        Some(Row {
            policies: *policies,
            entries: trials.first()?.entries,
            apply_ms: summary(|t| t.apply_ms),
            apply_messages: summary(|t| t.apply_messages as f64),
            idle_messages: summary(|t| t.idle_messages as f64),
            reload_messages: summary(|t| t.reload_messages as f64),
            connect_ms: summary(|t| t.connect_ms),
            reconcile_ms: summary(|t| t.reconcile_ms),
            remove_ms: summary(|t| t.remove_ms),
        })
    };
    settings.policies.iter().filter_map(of).collect()
}

/// Whether the claims hold, in every trial.
pub fn checks(settings: &Settings, trials: &[Trial]) -> Vec<Check> {
    let asked = |trial: &Trial| u64::from(trial.policies) * settings.switches as u64;
    let short = trials.iter().filter(|trial| trial.entries != asked(trial));
    let short: Vec<String> = short
        .map(|trial| format!("{} of {}", trial.entries, asked(trial)))
        .collect();
    let resent = trials.iter().map(|trial| {
        let more = trial.reload_messages.saturating_sub(trial.idle_messages);
        more as f64 / asked(trial) as f64
    });
    let resent = resent.fold(0.0, f64::max);
    let missing: u64 = trials.iter().map(|trial| trial.reconcile_missing).sum();
    vec![
        Check {
            what: "confirmed is what the switches have: an entry for each policy on each"
                .to_owned(),
            passed: !trials.is_empty() && short.is_empty(),
            found: match short.is_empty() {
                true => format!("{} trials", trials.len()),
                false => short.join(", "),
            },
        },
        Check {
            what: format!(
                "the same file read again: at most {} messages more for a policy of a switch",
                settings.claims.resent_per_entry_max
            ),
            passed: resent <= settings.claims.resent_per_entry_max,
            found: format!("{resent:.4}"),
        },
        Check {
            what: "a new process removes nothing that is to stay".to_owned(),
            passed: missing == 0,
            found: format!("{missing} missing"),
        },
    ]
}

impl Document {
    /// The last act: files, and the table or the document on standard output.
    pub fn conclude(&self, results: &Results, as_json: bool) -> Result<(), Failure> {
        let json = serde_json::to_string_pretty(self)
            .map_err(|e| Failure::negative(format!("results as JSON: {e}")))?;
        results.write("result.json", (json.clone() + "\n").as_bytes())?;
        results.write("command.txt", (self.command.join(" ") + "\n").as_bytes())?;
        results.write("table.txt", self.text().as_bytes())?;
        results.write("runs.csv", self.run_lines().as_bytes())?;
        results.plot("growth", &self.growth().lines())?;
        match as_json {
            true => say!("{json}"),
            false => say_part!("\n{}", self.text()),
        }
        if self.interrupted {
            return Err(Failure::negative(
                "interrupted: the figures are those until then",
            ));
        }
        match self.checks.iter().filter(|check| !check.passed).count() {
            0 => Ok(()),
            failed => Err(Failure::negative(format!(
                "{failed} of {} claims do not hold",
                self.checks.len()
            ))),
        }
    }

    fn text(&self) -> String {
        let header = [
            "policies",
            "entries",
            "set ms",
            "messages",
            "read again",
            "idle",
            "connected ms",
            "found ms",
            "removed ms",
        ];
        let spread = |s: &Summary| format!("{:.0} ± {:.0}", s.mean, s.sd);
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| {
                let figures = [
                    &row.apply_ms,
                    &row.apply_messages,
                    &row.reload_messages,
                    &row.idle_messages,
                    &row.connect_ms,
                    &row.reconcile_ms,
                    &row.remove_ms,
                ];
                let counts = [row.policies.to_string(), row.entries.to_string()];
                counts.into_iter().chain(figures.map(spread)).collect()
            })
            .collect();
        let mut text = table(&header, &rows);
        text.push('\n');
        for check in &self.checks {
            let verdict = if check.passed { "ok  " } else { "FAIL" };
            let _ = writeln!(text, "{verdict} {}: {}", check.what, check.found);
        }
        text
    }

    fn run_lines(&self) -> String {
        let mut lines = String::from(
            "run,policies,entries,apply_ms,apply_messages,idle_messages,reload_messages,connect_ms,\
             reconcile_ms,reconcile_missing,remove_ms\n",
        );
        for t in &self.trials {
            let _ = writeln!(
                lines,
                "{},{},{},{:.1},{},{},{},{:.1},{:.1},{},{:.1}",
                t.run,
                t.policies,
                t.entries,
                t.apply_ms,
                t.apply_messages,
                t.idle_messages,
                t.reload_messages,
                t.connect_ms,
                t.reconcile_ms,
                t.reconcile_missing,
                t.remove_ms
            );
        }
        lines
    }

    fn growth(&self) -> Plot {
        let series = |name: &str, of: fn(&Row) -> &Summary| Series {
            name: name.to_owned(),
            points: self
                .rows
                .iter()
                .map(|row| (f64::from(row.policies), of(row).mean / 1e3))
                .collect(),
            error: Some(self.rows.iter().map(|row| of(row).sd / 1e3).collect()),
        };
        Plot {
            title: format!("Policies on {} switches", self.settings.switches),
            x_label: "policies".to_owned(),
            y_label: "time (s)".to_owned(),
            series: vec![
                series("set, from none", |row| &row.apply_ms),
                series("found by a new process", |row| &row.reconcile_ms),
                series("removed", |row| &row.remove_ms),
            ],
            ..Plot::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::scale::settings::Claims;

    fn trial(entries: u64, reload_messages: u64, reconcile_missing: u64) -> Trial {
        Trial {
            run: 0,
            policies: 100,
            entries,
            apply_ms: 1.0,
            apply_messages: 1100,
            idle_messages: 50,
            reload_messages,
            connect_ms: 1.0,
            reconcile_ms: 2.0,
            reconcile_missing,
            remove_ms: 1.0,
        }
    }

    #[test]
    fn each_claim_fails_by_itself() {
        let settings = Settings {
            switches: 10,
            policies: vec![100],
            watch_s: 1.0,
            runs: 1,
            claims: Claims {
                resent_per_entry_max: 0.01,
            },
            quick: None,
        };
        let verdicts = |trials: &[Trial]| -> Vec<bool> {
            let checks = checks(&settings, trials);
            checks.iter().map(|check| check.passed).collect()
        };
        assert_eq!(verdicts(&[trial(1000, 60, 0)]), [true; 3]);
        assert_eq!(verdicts(&[]), [false, true, true]);
        assert_eq!(verdicts(&[trial(999, 60, 0)]), [false, true, true]);
        assert_eq!(verdicts(&[trial(1000, 61, 0)]), [true, false, true]);
        assert_eq!(verdicts(&[trial(1000, 40, 1)]), [true, true, false]);
        let rows = rows(&settings, &[trial(1000, 60, 0), trial(1000, 40, 0)]);
        assert_eq!(rows[0].reload_messages.mean, 50.0);
    }
}
