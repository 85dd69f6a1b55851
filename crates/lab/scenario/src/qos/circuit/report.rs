//! The results of an experiment on a circuit: verdict, table, files.

use std::fmt::Write;

use serde::Serialize;

use crate::qos::circuit::settings::Settings;
use crate::qos::circuit::stream::{Bin, Window};
use crate::qos::circuit::trial::{BIN, HopFound, Trial};
use crate::report::Check;
use crate::timeouts::figures::Spread;
use cli::failure::Failure;
use cli::output::{say, say_part};
use cli::table::table;
use report::machine::Machine;
use report::output::Results;
use report::plot::{Plot, Series};

const LINES: [&str; 2] = ["circuit", "background"];
/// The status of an answer that names a wrong field of the body.
const UNPROCESSABLE: u16 = 422;

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
    pub trials: Vec<Trial>,
}

pub fn line(trial: &Trial) -> String {
    let known = |ms: Option<f64>| ms.map_or("never".to_owned(), |ms| format!("{ms:.0} ms"));
    format!(
        "  run {}: {}; loss {:.2} % beside {:.0} %; after the failure {} in {}, its queues in {}, \
         loss {:.2} % beside {:.0} %",
        trial.run + 1,
        way(&trial.way),
        trial.before[0].loss_percent(),
        trial.before[1].loss_percent(),
        way(&trial.moved_way),
        known(trial.moved_ms),
        known(queues_ms(trial)),
        trial.after[0].loss_percent(),
        trial.after[1].loss_percent(),
    )
}

fn way(hops: &[HopFound]) -> String {
    let switch = |hop: &HopFound| format!("s{}", hop.switch.trim_start_matches('0'));
    hops.iter().map(switch).collect::<Vec<_>>().join("-")
}

/// Until the last of the new ports has its queue in effect.
fn queues_ms(trial: &Trial) -> Option<f64> {
    let ports = trial.ports.iter().map(|port| port.in_effect_ms);
    let all: Option<Vec<f64>> = ports.collect();
    let all = all.filter(|all| !all.is_empty())?;
    Some(all.into_iter().fold(0.0, f64::max))
}

/// Whether the claims hold, in every run.
pub fn checks(settings: &Settings, trials: &[Trial]) -> Vec<Check> {
    let claims = &settings.claims;
    let rate = settings.circuit_rate.parse::<auster::queues::plan::Rate>();
    let rate_bps = rate.map_or(0, |rate| rate.0);
    let mut checks = Vec::new();
    let mut check = |what: String, holds: &dyn Fn(&Trial) -> bool, found: String| {
        let count = trials.iter().filter(|trial| holds(trial)).count();
        checks.push(Check {
            what,
            passed: count == trials.len() && count > 0,
            found: match count == trials.len() {
                true => found,
                false => format!("{found}; in {count} of {} runs", trials.len()),
            },
        });
    };
    let spread = |of: &dyn Fn(&Trial) -> Option<f64>, unit: &str| {
        let found = Spread::of(trials.iter().filter_map(of));
        format!(
            "{:.2} {unit} ({:.2} to {:.2})",
            found.median, found.min, found.max
        )
    };
    let ways = |of: &dyn Fn(&Trial) -> String| {
        let mut ways: Vec<String> = trials.iter().map(of).collect();
        ways.dedup();
        ways.join(", ")
    };
    check(
        format!(
            "a circuit of {} is admitted, with a queue at every port",
            settings.circuit_rate
        ),
        &|trial| trial.way.len() == 3 && has_queues(&trial.way, rate_bps),
        format!(
            "{}; installed after {}, queues after {}",
            ways(&|trial| way(&trial.way)),
            spread(&|trial| Some(trial.installed_ms), "ms"),
            spread(&|trial| Some(trial.queued_ms), "ms"),
        ),
    );
    let refused = trials.first().map(|trial| &trial.refusal);
    check(
        format!(
            "one of {} is refused by field, the full link named",
            settings.too_much
        ),
        &|trial| {
            let refusal = &trial.refusal;
            let names = refusal
                .detail
                .contains(&format!("link {} -> ", refusal.full));
            let is_by_field = refusal.status == UNPROCESSABLE && refusal.pointer == "/rate";
            is_by_field && names && refusal.detail.contains("is full")
        },
        refused.map_or(String::new(), |refusal| {
            format!("{} {}: {}", refusal.status, refusal.pointer, refusal.detail)
        }),
    );
    check(
        "nothing is changed by that".to_owned(),
        &|trial| trial.refusal.changed.is_empty(),
        ways(&|trial| format!("{} differences", trial.refusal.changed.len())),
    );
    for (name, of) in [
        (
            "before the failure",
            (|trial| trial.before) as fn(&Trial) -> [Window; 2],
        ),
        ("after it", |trial| trial.after),
    ] {
        check(
            format!(
                "{name} the circuit loses at most {} %",
                claims.loss_percent_max
            ),
            &|trial| {
                of(trial)[0].sent > 0 && of(trial)[0].loss_percent() <= claims.loss_percent_max
            },
            spread(&|trial| Some(of(trial)[0].loss_percent()), "%"),
        );
        let min = claims.background_loss_percent_min;
        check(
            format!("{name} the background beside it loses at least {min} %"),
            &|trial| of(trial)[1].loss_percent() >= min,
            spread(&|trial| Some(of(trial)[1].loss_percent()), "%"),
        );
    }
    check(
        format!(
            "its packets flow by the other way within {} ms",
            claims.moved_ms_max
        ),
        &|trial| {
            let is_other = !trial.ports.is_empty() && way(&trial.way) != way(&trial.moved_way);
            is_other && trial.moved_ms.is_some_and(|ms| ms <= claims.moved_ms_max)
        },
        format!(
            "{}, {}",
            ways(&|trial| way(&trial.moved_way)),
            spread(&|trial| trial.moved_ms, "ms")
        ),
    );
    check(
        format!(
            "its queues are in effect there within {} ms",
            claims.queues_ms_max
        ),
        &|trial| {
            let is_in_time = queues_ms(trial).is_some_and(|ms| ms <= claims.queues_ms_max);
            is_in_time && has_queues(&trial.moved_way, rate_bps)
        },
        spread(&queues_ms, "ms"),
    );
    check(
        "and are gone from the ports of the first way".to_owned(),
        &|trial| trial.left.is_empty(),
        ways(&|trial| format!("{} left", trial.left.len())),
    );
    checks
}

/// Whether every hop has its queue in the database and its rate in the kernel, which keeps rates in
/// whole bytes.
fn has_queues(way: &[HopFound], rate_bps: u64) -> bool {
    let has_own = |hop: &HopFound| {
        let kept = hop.min_rate_bps.unwrap_or_default();
        hop.queue.is_some() && kept.abs_diff(rate_bps) * 1000 <= rate_bps
    };
    !way.is_empty() && way.iter().all(has_own)
}

impl Document {
    pub fn conclude(&self, results: &Results, as_json: bool) -> Result<(), Failure> {
        let json = serde_json::to_string_pretty(self)
            .map_err(|e| Failure::negative(format!("results as JSON: {e}")))?;
        results.write("result.json", (json.clone() + "\n").as_bytes())?;
        results.write("command.txt", (self.command.join(" ") + "\n").as_bytes())?;
        results.write("table.txt", self.text().as_bytes())?;
        results.write("tenths.csv", self.curve_lines().as_bytes())?;
        results.write("shown.txt", self.shown().as_bytes())?;
        if let Some(trial) = self.trials.first() {
            results.plot(
                "rate",
                &plot(trial, "rate (Mbit/s)", |bin| bin.rate_mbps).lines(),
            )?;
            results.plot(
                "loss",
                &plot(trial, "loss (%)", |bin| bin.loss_percent).lines(),
            )?;
        }
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
        let mut text = time_table(&self.trials);
        text.push('\n');
        text += &window_table(&self.trials);
        text.push('\n');
        for check in &self.checks {
            let verdict = if check.passed { "yes" } else { "NO " };
            let _ = writeln!(text, "  {verdict}  {}: {}", check.what, check.found);
        }
        text
    }

    /// A line per tenth of a second of every stream.
    fn curve_lines(&self) -> String {
        let mut text = "run,stream,at_s,rate_mbps,loss_percent\n".to_owned();
        for trial in &self.trials {
            for (name, bins) in LINES.iter().zip(&trial.bins) {
                for bin in bins {
                    let _ = writeln!(
                        text,
                        "{},{name},{:.1},{:.3},{:.2}",
                        trial.run, bin.at_s, bin.rate_mbps, bin.loss_percent
                    );
                }
            }
        }
        text
    }

    /// The output of `auster qos` in the first run.
    fn shown(&self) -> String {
        let Some(trial) = self.trials.first() else {
            return String::new();
        };
        let [before, after] = &trial.shown;
        format!("Before the failure\n{before}\nAfter it\n{after}")
    }
}

/// The times of each run, in milliseconds.
fn time_table(trials: &[Trial]) -> String {
    let header = [
        "run",
        "installed",
        "queues made",
        "moved",
        "outage",
        "told",
        "queues made",
        "queues in effect",
        "sender late",
        "repeated",
    ];
    let known = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
    let made = |trial: &Trial| {
        let all: Option<Vec<f64>> = trial.ports.iter().map(|port| port.made_ms).collect();
        let all = all.filter(|all| !all.is_empty());
        all.map(|all| all.into_iter().fold(0.0, f64::max))
    };
    let rows = trials.iter().map(|trial| {
        vec![
            (trial.run + 1).to_string(),
            known(Some(trial.installed_ms)),
            known(Some(trial.queued_ms)),
            known(trial.moved_ms),
            known(trial.outage_ms),
            known(trial.told_ms),
            known(made(trial)),
            known(queues_ms(trial)),
            known(Some(trial.sender_late_ms)),
            trial.repeats.to_string(),
        ]
    });
    format!(
        "Milliseconds; from \"moved\" on since the link failed\n{}",
        table(&header, &rows.collect::<Vec<_>>())
    )
}

/// Rates and losses of each run.
fn window_table(trials: &[Trial]) -> String {
    let header = ["run", "stream", "when", "sent", "lost", "loss %", "Mbit/s"];
    let mut rows = Vec::new();
    for trial in trials {
        let windows = [
            ("before", Some(trial.before)),
            ("moved, queues not yet", trial.between),
            ("after", Some(trial.after)),
        ];
        for (when, windows) in windows {
            let Some(windows) = windows else {
                continue;
            };
            for (name, window) in LINES.iter().zip(windows) {
                rows.push(vec![
                    (trial.run + 1).to_string(),
                    (*name).to_owned(),
                    when.to_owned(),
                    window.sent.to_string(),
                    window.lost.to_string(),
                    format!("{:.2}", window.loss_percent()),
                    format!("{:.2}", window.rate_mbps),
                ]);
            }
        }
    }
    table(&header, &rows)
}

/// Both streams across the failure.
fn plot(trial: &Trial, y_label: &str, of: fn(&Bin) -> f64) -> Plot {
    let series = LINES.iter().zip(&trial.bins).map(|(name, bins)| Series {
        name: (*name).to_owned(),
        points: bins.iter().map(|bin| (bin.at_s, of(bin))).collect(),
        error: None,
    });
    Plot {
        title: format!(
            "A circuit and what is beside it, by {} ms: the first run",
            BIN.as_millis()
        ),
        x_label: "time, from when the link failed (s)".to_owned(),
        y_label: y_label.to_owned(),
        series: series.collect(),
        ..Plot::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::circuit::settings::Scenario;
    use crate::qos::circuit::trial::{PortFound, Refusal};

    fn settings() -> Settings {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../scenarios/qos-circuit.toml"
        );
        let text = std::fs::read_to_string(path).unwrap();
        Scenario::parse(&text).unwrap().qos_circuit
    }

    fn hops(switches: [u32; 3]) -> Vec<HopFound> {
        let hop = |switch: u32| HopFound {
            switch: format!("{switch:016x}"),
            in_port: 1,
            out_port: switch + 1,
            queue: Some(200),
            min_rate_bps: Some(10_000_000),
        };
        switches.map(hop).to_vec()
    }

    fn window(lost: u64) -> Window {
        Window {
            sent: 1000,
            lost,
            rate_mbps: 1.0,
        }
    }

    fn trial() -> Trial {
        Trial {
            run: 0,
            installed_ms: 10.0,
            queued_ms: 300.0,
            way: hops([1, 2, 3]),
            refusal: Refusal {
                status: 422,
                pointer: "/rate".to_owned(),
                detail: "rate: link 0000000000000001:2 -> 0000000000000002:3 is full: ".to_owned(),
                full: "0000000000000001:2".to_owned(),
                changed: Vec::new(),
            },
            before: [window(10), window(400)],
            moved_ms: Some(80.0),
            outage_ms: Some(70.0),
            told_ms: Some(60.0),
            moved_way: hops([1, 4, 3]),
            ports: vec![PortFound {
                port: "0000000000000001:4".to_owned(),
                made_ms: Some(300.0),
                in_effect_ms: Some(320.0),
            }],
            between: Some([window(100), window(400)]),
            after: [window(0), window(400)],
            left: Vec::new(),
            sender_late_ms: 1.0,
            repeats: 0,
            shown: Default::default(),
            bins: [
                vec![Bin {
                    at_s: 0.0,
                    rate_mbps: 9.0,
                    loss_percent: 1.0,
                }],
                Vec::new(),
            ],
        }
    }

    /// Places of the claims that fail in one of two runs.
    fn failed(spoil: impl Fn(&mut Trial)) -> Vec<usize> {
        let mut other = trial();
        spoil(&mut other);
        let checks = checks(&settings(), &[trial(), other]);
        assert_eq!(checks.len(), 10);
        let places = checks.iter().enumerate().filter(|(_, check)| !check.passed);
        places.map(|(place, _)| place).collect()
    }

    #[test]
    fn each_claim_fails_by_itself() {
        assert_eq!(failed(|_| {}), [] as [usize; 0]);
        assert_eq!(failed(|t| t.way[1].min_rate_bps = None), [0]);
        assert_eq!(failed(|t| t.way[1].queue = None), [0]);
        assert_eq!(failed(|t| t.refusal.status = 201), [1]);
        assert_eq!(failed(|t| t.refusal.pointer = "/from".to_owned()), [1]);
        assert_eq!(
            failed(|t| t.refusal.full = "0000000000000001:3".to_owned()),
            [1]
        );
        assert_eq!(failed(|t| t.refusal.changed = vec!["x".to_owned()]), [2]);
        assert_eq!(failed(|t| t.before[0].lost = 11), [3]);
        assert_eq!(failed(|t| t.before[1].lost = 0), [4]);
        assert_eq!(failed(|t| t.after[0].lost = 11), [5]);
        assert_eq!(failed(|t| t.after[1].lost = 0), [6]);
        assert_eq!(failed(|t| t.moved_ms = Some(1001.0)), [7]);
        assert_eq!(failed(|t| t.moved_ms = None), [7]);
        assert_eq!(failed(|t| t.moved_way = t.way.clone()), [7]);
        assert_eq!(failed(|t| t.ports[0].in_effect_ms = None), [8]);
        assert_eq!(failed(|t| t.ports[0].in_effect_ms = Some(1001.0)), [8]);
        assert_eq!(failed(|t| t.moved_way[1].min_rate_bps = Some(1)), [8]);
        assert_eq!(failed(|t| t.left = vec!["x".to_owned()]), [9]);
        assert!(checks(&settings(), &[]).iter().all(|check| !check.passed));
    }

    #[test]
    fn everything_is_written() {
        let trials = [trial()];
        let times = time_table(&trials);
        assert!(times.contains("320.0") && times.contains("80.0"), "{times}");
        assert_eq!(window_table(&trials).lines().count(), 7);
        assert!(line(&trial()).contains("s1-s4-s3 in 80 ms, its queues in 320 ms"));
        let svg = plot(&trials[0], "rate (Mbit/s)", |bin| bin.rate_mbps).lines();
        assert!(svg.contains("background"));
    }
}
