//! The results when a controller was killed: counts, verdict, files.

use std::fmt::Write;

use serde::Serialize;

use crate::qos::killed::found::{Tally, Verdict};
use crate::qos::killed::rounds::{Extent, Kind, Round};
use crate::qos::killed::settings::Settings;
use crate::report::Check;
use cli::failure::Failure;
use cli::output::{say, say_part};
use cli::table::table;
use measure::stats::Spread;
use report::machine::Machine;
use report::output::Results;

#[derive(Debug, Serialize)]
pub struct Document {
    pub title: String,
    pub scenario: String,
    pub command: Vec<String>,
    pub started_unix_s: u64,
    pub machine: Machine,
    pub passed: bool,
    /// Ended by a signal: the rounds are those until then.
    pub interrupted: bool,
    pub settings: Settings,
    pub extent: Option<Extent>,
    pub totals: Totals,
    pub checks: Vec<Check>,
    pub rounds: Vec<Round>,
}

/// Over all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    pub rounds: usize,
    /// Rounds in which some of it was there and not all.
    pub in_the_middle: usize,
    pub found: Verdict,
    pub orphans_killed: usize,
    pub orphans: usize,
    pub foreign_changed: usize,
    pub not_whole: usize,
}

pub fn line(round: &Round) -> String {
    let tally = |tally: &Tally| {
        let Tally {
            whole,
            prepared,
            absent,
            half,
        } = tally;
        format!("{whole}/{prepared}/{absent}/{half}")
    };
    format!(
        "  round {:2}, {} killed after {:6.1} ms: records {}, circuits {}, policies {}; whole {}",
        round.round + 1,
        kind(round.kind),
        round.killed_after_ms,
        tally(&round.verdict.records),
        tally(&round.verdict.circuits),
        tally(&round.verdict.policies),
        match round.whole_ms {
            Some(ms) => format!("{ms:.0} ms after the restart"),
            None => "NEVER".to_owned(),
        }
    )
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Reload => "reload",
        Kind::Start => "start ",
    }
}

pub fn totals(rounds: &[Round]) -> Totals {
    let mut totals = Totals {
        rounds: rounds.len(),
        ..Totals::default()
    };
    for round in rounds {
        let Verdict {
            records,
            circuits,
            policies,
        } = round.verdict;
        let found = &mut totals.found;
        found.records = found.records.plus(records);
        found.circuits = found.circuits.plus(circuits);
        found.policies = found.policies.plus(policies);
        totals.in_the_middle += usize::from(round.verdict.is_in_the_middle());
        totals.orphans_killed += round.orphans_killed;
        totals.orphans += round.orphans;
        totals.foreign_changed += round.foreign_changed.len();
        totals.not_whole += usize::from(round.whole_ms.is_none());
    }
    totals
}

/// Whether the claims hold, in every round.
pub fn checks(settings: &Settings, rounds: &[Round]) -> Vec<Check> {
    let totals = totals(rounds);
    let Verdict {
        records,
        circuits,
        policies,
    } = totals.found;
    let is_any = !rounds.is_empty();
    let mut checks = Vec::new();
    let mut check = |what: &str, holds: bool, found: String| {
        checks.push(Check {
            what: what.to_owned(),
            passed: holds && is_any,
            found,
        });
    };
    let tally = |tally: Tally, prepared: &str| {
        let Tally {
            whole,
            prepared: count,
            absent,
            half,
        } = tally;
        format!("{whole} whole, {count} {prepared}, {absent} absent, {half} half")
    };
    check(
        "no port has half of its records when it is killed",
        records.half == 0,
        tally(records, "without those of circuits"),
    );
    check(
        "no packet is let into half a circuit",
        circuits.half == 0,
        tally(circuits, "prepared and closed"),
    );
    check(
        "no path leads to half of a switch's policies",
        policies.half == 0,
        tally(policies, "prepared and led to by nothing"),
    );
    check(
        "no record is orphaned, when it is killed and after the restart",
        totals.orphans == 0 && totals.orphans_killed == 0,
        format!("{} and {}", totals.orphans_killed, totals.orphans),
    );
    check(
        "entries, meters and records of others are as they were",
        totals.foreign_changed == 0,
        format!("{} changed", totals.foreign_changed),
    );
    let restarts = Spread::of(rounds.iter().filter_map(|round| round.whole_ms));
    check(
        "all of it is there after the restart",
        totals.not_whole == 0,
        format!(
            "in {} of {} rounds, after {:.0} ms ({:.0} to {:.0})",
            totals.rounds - totals.not_whole,
            totals.rounds,
            restarts.median,
            restarts.min,
            restarts.max
        ),
    );
    let min = settings.claims.in_the_middle_min;
    check(
        &format!("at least {min} rounds were killed in the middle"),
        totals.in_the_middle >= min as usize,
        format!("{} of {}", totals.in_the_middle, totals.rounds),
    );
    checks
}

impl Document {
    pub fn conclude(&self, results: &Results, as_json: bool) -> Result<(), Failure> {
        let json = serde_json::to_string_pretty(self)
            .map_err(|e| Failure::negative(format!("results as JSON: {e}")))?;
        results.write("result.json", (json.clone() + "\n").as_bytes())?;
        results.write("command.txt", (self.command.join(" ") + "\n").as_bytes())?;
        results.write("table.txt", self.text().as_bytes())?;
        results.write("rounds.csv", round_lines(&self.rounds).as_bytes())?;
        results.write("found.txt", found_text(&self.rounds).as_bytes())?;
        match as_json {
            true => say!("{json}"),
            false => say_part!("\n{}", self.text()),
        }
        if self.interrupted {
            return Err(Failure::negative(
                "interrupted: the rounds are those until then",
            ));
        }
        match self.checks.iter().filter(|check| !check.passed).count() {
            0 => Ok(()),
            failed => Err(Failure::negative(format!(
                "{failed} of {} claims do not hold; seed {}",
                self.checks.len(),
                self.settings.seed
            ))),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(extent) = &self.extent {
            let _ = writeln!(
                text,
                "Set up: {} ports with {} queues, {} entries of circuits, {} of policies, {} \
                 meters, in \
                 {:.0} ms after a reload (the entries in {:.0}), {:.0} ms after a start; {} things \
                 of others beside it\n",
                extent.ports,
                extent.queues,
                extent.circuit_entries,
                extent.policy_entries,
                extent.meters,
                extent.reload_ms,
                extent.entries_ms,
                extent.start_ms,
                extent.foreign
            );
        }
        let found = &self.totals.found;
        let row = |name: &str, tally: Tally| {
            let counts = [tally.whole, tally.prepared, tally.absent, tally.half];
            let counts = counts.iter().map(u32::to_string);
            std::iter::once(name.to_owned()).chain(counts).collect()
        };
        let rows: [Vec<String>; 3] = [
            row("records, by port", found.records),
            row("circuits, by direction", found.circuits),
            row("policies, by switch", found.policies),
        ];
        let header = ["when it was killed", "whole", "prepared", "absent", "half"];
        text += &table(&header, &rows);
        text.push('\n');
        for check in &self.checks {
            let verdict = if check.passed { "yes" } else { "NO " };
            let _ = writeln!(text, "  {verdict}  {}: {}", check.what, check.found);
        }
        text
    }
}

fn round_lines(rounds: &[Round]) -> String {
    let mut text = "round,kind,killed_after_ms,records_whole,records_prepared,records_absent,\
                    records_half,circuits_whole,circuits_prepared,circuits_absent,circuits_half,\
                    policies_whole,policies_prepared,policies_absent,policies_half,orphans_killed,\
                    orphans,foreign_changed,whole_ms,cleared_ms\n"
        .to_owned();
    for round in rounds {
        let _ = write!(
            text,
            "{},{},{:.1}",
            round.round + 1,
            kind(round.kind).trim(),
            round.killed_after_ms
        );
        let Verdict {
            records,
            circuits,
            policies,
        } = round.verdict;
        for Tally {
            whole,
            prepared,
            absent,
            half,
        } in [records, circuits, policies]
        {
            let _ = write!(text, ",{whole},{prepared},{absent},{half}");
        }
        let known = |ms: Option<f64>| ms.map_or(String::new(), |ms| format!("{ms:.1}"));
        let _ = writeln!(
            text,
            ",{},{},{},{},{}",
            round.orphans_killed,
            round.orphans,
            round.foreign_changed.len(),
            known(round.whole_ms),
            known(round.cleared_ms)
        );
    }
    text
}

/// The state of the rounds in which some of it was there, but not all.
fn found_text(rounds: &[Round]) -> String {
    let mut text = String::new();
    for round in rounds {
        if let Some(found) = &round.text {
            let _ = writeln!(
                text,
                "round {}, {} killed after {:.1} ms\n{found}",
                round.round + 1,
                kind(round.kind).trim(),
                round.killed_after_ms
            );
        }
        for changed in &round.foreign_changed {
            let _ = writeln!(text, "round {}: changed: {changed}", round.round + 1);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::killed::settings::Scenario;

    fn settings() -> Settings {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../scenarios/qos-killed.toml"
        );
        let text = std::fs::read_to_string(path).unwrap();
        let mut settings = Scenario::parse(&text).unwrap().qos_killed;
        settings.claims.in_the_middle_min = 1;
        settings
    }

    fn round() -> Round {
        let tally = Tally {
            whole: 3,
            prepared: 1,
            absent: 2,
            half: 0,
        };
        Round {
            round: 0,
            kind: Kind::Reload,
            killed_after_ms: 12.5,
            verdict: Verdict {
                records: tally,
                circuits: tally,
                policies: tally,
            },
            orphans_killed: 0,
            orphans: 0,
            foreign_changed: Vec::new(),
            whole_ms: Some(1500.0),
            cleared_ms: Some(300.0),
            text: Some("what there was\n".to_owned()),
        }
    }

    /// Places of the claims that fail in one of two rounds.
    fn failed(spoil: impl Fn(&mut Round)) -> Vec<usize> {
        let mut other = round();
        spoil(&mut other);
        let checks = checks(&settings(), &[round(), other]);
        let places = checks.iter().enumerate().filter(|(_, check)| !check.passed);
        places.map(|(place, _)| place).collect()
    }

    #[test]
    fn each_claim_fails_by_itself() {
        assert_eq!(failed(|_| {}), [] as [usize; 0]);
        assert_eq!(failed(|r| r.verdict.records.half = 1), [0]);
        assert_eq!(failed(|r| r.verdict.circuits.half = 1), [1]);
        assert_eq!(failed(|r| r.verdict.policies.half = 1), [2]);
        assert_eq!(failed(|r| r.orphans_killed = 1), [3]);
        assert_eq!(failed(|r| r.orphans = 1), [3]);
        assert_eq!(failed(|r| r.foreign_changed = vec!["x".to_owned()]), [4]);
        assert_eq!(failed(|r| r.whole_ms = None), [5]);
        let mut untried = round();
        untried.verdict = Verdict::default();
        let last = checks(&settings(), &[untried]).pop().unwrap();
        assert!(!last.passed, "nothing was tried");
        assert!(checks(&settings(), &[]).iter().all(|check| !check.passed));
    }

    #[test]
    fn everything_is_written() {
        let rounds = [round(), round()];
        let lines = round_lines(&rounds);
        let columns: Vec<usize> = lines.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [20; 3]);
        assert!(found_text(&rounds).contains("what there was"));
        assert!(line(&round()).contains("records 3/1/2/0"));
        assert_eq!(totals(&rounds).found.records.whole, 6);
    }
}
