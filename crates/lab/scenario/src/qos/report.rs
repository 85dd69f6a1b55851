//! The results of an experiment on queues: rows, verdict, table, files.

use std::fmt::Write;

use serde::Serialize;
use serde_json::Value;

use crate::qos::settings::QosQueues;
use crate::qos::setup::{BIN, QueueMaker, Trial};
use crate::report::Check;
use auster::queues::plan::Class;
use cli::failure::Failure;
use cli::output::{say, say_part};
use cli::table::table;
use measure::stats::Summary;
use report::machine::Machine;
use report::output::Results;
use report::plot::Bars;

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
    pub settings: QosQueues,
    pub checks: Vec<Check>,
    pub rows: Vec<Row>,
    pub trials: Vec<Trial>,
}

/// One queue of a case, one way, over all runs.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub case: String,
    pub way: QueueMaker,
    pub queue: u8,
    pub min_mbps: f64,
    pub max_mbps: f64,
    pub priority: u8,
    /// The flow's rate at its receiver, as Ethernet frames.
    pub rate_mbps: Summary,
    /// The queue's rate, from its counter.
    pub counter_mbps: Summary,
    /// Packets in the window, over all runs.
    pub counted: u64,
    pub dropped: u64,
    /// Runs in which `auster queues verify` said of this queue that it took effect.
    pub took_effect: usize,
}

pub fn line(trial: &Trial) -> String {
    let [a, b] = &trial.flows;
    let in_zero = verified(trial, 0).map_or(0, |zero| zero["packets"].as_u64().unwrap_or(0));
    format!(
        "  run {} {:9} {:24} {:5.1} and {:5.1} Mbit/s; verify: {}, {in_zero} packets in queue 0",
        trial.run + 1,
        trial.case,
        trial.way.name(),
        a.rate_mbps,
        b.rate_mbps,
        match trial.verify_code {
            Some(0) => "took effect",
            _ => "NO EFFECT",
        }
    )
}

/// In the order of the scenario.
pub fn rows(settings: &QosQueues, trials: &[Trial]) -> Vec<Row> {
    let mut rows = Vec::new();
    for case in &settings.cases {
        for way in QueueMaker::ALL {
            let of_it = |t: &&Trial| t.case == case.name && t.way == way;
            let trials: Vec<&Trial> = trials.iter().filter(of_it).collect();
            if trials.is_empty() {
                continue;
            }
            for (place, class) in settings.classes(case).iter().enumerate() {
                rows.push(row(&case.name, way, place, class, &trials));
            }
        }
    }
    rows
}

fn row(case: &str, way: QueueMaker, place: usize, class: &Class, trials: &[&Trial]) -> Row {
    let number = |key: &str| -> Vec<f64> {
        let of_queue = trials.iter().filter_map(|t| verified(t, class.queue));
        of_queue.filter_map(|queue| queue[key].as_f64()).collect()
    };
    let rates: Vec<f64> = trials.iter().map(|t| t.flows[place].rate_mbps).collect();
    let counters: Vec<f64> = number("rate_bps").iter().map(|bps| bps / 1e6).collect();
    let effects = trials.iter().filter_map(|t| verified(t, class.queue));
    Row {
        case: case.to_owned(),
        way,
        queue: class.queue,
        min_mbps: class.rate.0 as f64 / 1e6,
        max_mbps: class.rate_max.0 as f64 / 1e6,
        priority: class.priority,
        rate_mbps: Summary::of(&rates),
        counter_mbps: Summary::of(&counters),
        counted: number("packets").iter().sum::<f64>() as u64,
        dropped: number("dropped").iter().sum::<f64>() as u64,
        took_effect: effects.filter(|queue| queue["effect"] == "yes").count(),
    }
}

/// The result of `auster queues verify` for a queue.
fn verified(trial: &Trial, queue: u8) -> Option<&Value> {
    let queues = trial.verify["queues"].as_array()?;
    queues.iter().find(|known| known["queue"] == queue)
}

/// Whether the claims hold: rates in the median over the runs, counters in every run.
pub fn checks(settings: &QosQueues, rows: &[Row], trials: &[Trial]) -> Vec<Check> {
    let within = settings.claims.within_percent / 100.0;
    let mut checks = Vec::new();
    for pair in rows.chunks(2).filter(|pair| pair[0].way.is_auster()) {
        let name = format!("{}, {}", pair[0].case, pair[0].way.name());
        for row in pair {
            let rate = row.rate_mbps.p50;
            checks.push(Check {
                what: format!(
                    "{name}: queue {} is between {} and {} Mbit/s",
                    row.queue, row.min_mbps, row.max_mbps
                ),
                passed: (row.min_mbps * (1.0 - within)..=row.max_mbps * (1.0 + within))
                    .contains(&rate),
                found: spread(&row.rate_mbps),
            });
        }
        checks.extend(precedence(settings, pair, &name, within));
    }
    for way in QueueMaker::ALL.into_iter().filter(|way| way.is_auster()) {
        let of_way: Vec<&Trial> = trials.iter().filter(|t| t.way == way).collect();
        let well = |t: &&&Trial| {
            let effect = |queue| verified(t, queue).map(|queue| &queue["effect"]);
            t.verify_code == Some(0)
                && t.flows
                    .iter()
                    .all(|f| effect(f.queue) == Some(&"yes".into()))
        };
        let count = of_way.iter().filter(well).count();
        checks.push(Check {
            what: format!(
                "{}: verify finds each flow's packets in its queue",
                way.name()
            ),
            passed: count == of_way.len() && count > 0,
            found: format!("in {count} of {} runs", of_way.len()),
        });
    }
    checks.extend(of_plain(settings, trials));
    checks
}

/// Checks that the more urgent queue gets the rate that the other's minimum leaves.
fn precedence(settings: &QosQueues, pair: &[Row], name: &str, within: f64) -> Option<Check> {
    let [a, b] = pair else {
        return None;
    };
    let (first, other) = match a.priority.cmp(&b.priority) {
        std::cmp::Ordering::Less => (a, b),
        std::cmp::Ordering::Greater => (b, a),
        std::cmp::Ordering::Equal => return None,
    };
    let left = settings.rate_mbps() - other.min_mbps;
    let due = left.min(first.max_mbps).min(settings.offered_frames_mbps());
    Some(Check {
        what: format!(
            "{name}: queue {} is served first, with {due:.0} Mbit/s",
            first.queue
        ),
        passed: first.rate_mbps.p50 >= due * (1.0 - within),
        found: spread(&first.rate_mbps),
    })
}

fn of_plain(settings: &QosQueues, trials: &[Trial]) -> [Check; 2] {
    let plain: Vec<&Trial> = trials.iter().filter(|t| !t.way.is_auster()).collect();
    let share = |t: &&Trial| {
        let count = |queue: &Value| {
            let number = |key: &str| queue[key].as_f64().unwrap_or(0.0);
            number("packets") + number("dropped")
        };
        let queues = t.verify["queues"].as_array();
        let all: f64 = queues.into_iter().flatten().map(count).sum();
        let zero = verified(t, 0).map_or(0.0, count);
        100.0 * zero / all.max(1.0)
    };
    let least = plain.iter().map(share).fold(f64::INFINITY, f64::min);
    let refused = |t: &&&Trial| t.verify_code == Some(1) && t.verify_said.contains("queue 0");
    let count = plain.iter().filter(refused).count();
    let min = settings.claims.plain_in_queue_0_percent_min;
    [
        Check {
            what: format!(
                "{}: all packets are in queue 0",
                QueueMaker::OpenVswitch.name()
            ),
            passed: !plain.is_empty() && least >= min,
            found: format!("at least {least:.2} % of a run"),
        },
        Check {
            what: format!(
                "{}: verify says so and exits with 1",
                QueueMaker::OpenVswitch.name()
            ),
            passed: count == plain.len() && count > 0,
            found: format!("in {count} of {} runs", plain.len()),
        },
    ]
}

fn spread(rate: &Summary) -> String {
    format!("{:.1} ({:.1} to {:.1})", rate.p50, rate.min, rate.max)
}

impl Document {
    pub fn conclude(&self, results: &Results, as_json: bool) -> Result<(), Failure> {
        let json = serde_json::to_string_pretty(self)
            .map_err(|e| Failure::negative(format!("results as JSON: {e}")))?;
        results.write("result.json", (json.clone() + "\n").as_bytes())?;
        results.write("command.txt", (self.command.join(" ") + "\n").as_bytes())?;
        results.write("table.txt", self.text().as_bytes())?;
        results.write("runs.csv", self.run_lines().as_bytes())?;
        results.write("tenths.csv", self.curve_lines().as_bytes())?;
        results.plot("rates", &self.bars().svg())?;
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
            "case",
            "way",
            "queue",
            "prio",
            "at least",
            "at most",
            "Mbit/s",
            "from-to",
            "counter",
            "packets",
            "dropped",
            "took effect",
        ];
        let cells = self.rows.iter().map(|row| {
            vec![
                row.case.clone(),
                row.way.name().to_owned(),
                row.queue.to_string(),
                row.priority.to_string(),
                format!("{}", row.min_mbps),
                format!("{}", row.max_mbps),
                format!("{:.1}", row.rate_mbps.p50),
                format!("{:.1}-{:.1}", row.rate_mbps.min, row.rate_mbps.max),
                format!("{:.1}", row.counter_mbps.p50),
                row.counted.to_string(),
                row.dropped.to_string(),
                format!("{} of {}", row.took_effect, row.rate_mbps.count),
            ]
        });
        let mut text = table(&header, &cells.collect::<Vec<_>>());
        text.push('\n');
        for check in &self.checks {
            let verdict = if check.passed { "yes" } else { "NO " };
            let _ = writeln!(text, "  {verdict}  {}: {}", check.what, check.found);
        }
        text
    }

    fn run_lines(&self) -> String {
        let mut text = "case,way,run,queue,sent,arrived,rate_mbps,counter_mbps,packets,dropped,\
                        effect,verify_code,sender_late_ms\n"
            .to_owned();
        for trial in &self.trials {
            for flow in &trial.flows {
                let queue = verified(trial, flow.queue).cloned().unwrap_or_default();
                let counter = queue["rate_bps"].as_f64().unwrap_or(0.0) / 1e6;
                let _ = writeln!(
                    text,
                    "{},\"{}\",{},{},{},{},{:.3},{counter:.3},{},{},{},{},{:.3}",
                    trial.case,
                    trial.way.name(),
                    trial.run,
                    flow.queue,
                    flow.sent,
                    flow.arrived,
                    flow.rate_mbps,
                    queue["packets"],
                    queue["dropped"],
                    queue["effect"].as_str().unwrap_or_default(),
                    trial.verify_code.unwrap_or(-1),
                    flow.sender_late_ms,
                );
            }
        }
        text
    }

    /// A line per tenth of a second.
    fn curve_lines(&self) -> String {
        let mut text = "case,way,run,s,mbps_1,mbps_2\n".to_owned();
        for trial in &self.trials {
            let [a, b] = &trial.flows;
            for (n, (x, y)) in a.curve_mbps.iter().zip(&b.curve_mbps).enumerate() {
                let s = n as f64 * BIN.as_secs_f64();
                let (case, way) = (&trial.case, trial.way.name());
                let _ = writeln!(text, "{case},\"{way}\",{},{s:.1},{x:.2},{y:.2}", trial.run);
            }
        }
        text
    }

    /// A group for each queue of each case. Bars are medians, with half of what runs differ by.
    fn bars(&self) -> Bars {
        let of_way = |way: QueueMaker| self.rows.iter().filter(move |row| row.way == way);
        let asked = |row: &Row| {
            let (min, max) = (row.min_mbps.round(), row.max_mbps.round());
            format!(
                "{}: queue {} ({min}-{max}, prio {})",
                row.case, row.queue, row.priority
            )
        };
        let value = |row: &Row| row.rate_mbps.p50;
        let error = |row: &Row| (row.rate_mbps.max - row.rate_mbps.min) / 2.0;
        let parts =
            QueueMaker::ALL.map(|way| (way.name().to_owned(), of_way(way).map(value).collect()));
        let errors = QueueMaker::ALL.map(|way| of_way(way).map(error).collect());
        Bars {
            title: "Two UDP flows into one port, each for a queue".to_owned(),
            y_label: "what arrives (Mbit/s)".to_owned(),
            groups: of_way(QueueMaker::Auster).map(asked).collect(),
            parts: parts.into(),
            stacked: false,
            error: Some(errors.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::settings::Scenario;
    use crate::qos::setup::FlowRun;
    use serde_json::json;

    fn settings() -> QosQueues {
        let text = include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../scenarios/qos-queues.toml"
        ));
        Scenario::parse(text).unwrap().qos_queues
    }

    fn trial(case: &str, way: QueueMaker, rates: [f64; 2]) -> Trial {
        let flow = |n: usize| FlowRun {
            queue: n as u8 + 1,
            rate_mbps: rates[n],
            curve_mbps: vec![rates[n]; 10],
            ..FlowRun::default()
        };
        let packets = match way.is_auster() {
            true => [0, 100, 100],
            false => [200, 0, 0],
        };
        let queue = |n: usize| {
            let effect = if packets[n] > 0 { "yes" } else { "no" };
            json!({"queue": n, "packets": packets[n], "dropped": 0, "rate_bps": 1e6,
                "effect": effect})
        };
        Trial {
            run: 0,
            case: case.to_owned(),
            way,
            flows: [flow(0), flow(1)],
            verify: json!({"queues": [queue(0), queue(1), queue(2)]}),
            verify_code: Some(i32::from(!way.is_auster())),
            verify_said: "all is in queue 0".to_owned(),
        }
    }

    fn all(change: impl Fn(&mut Trial)) -> Vec<bool> {
        let settings = settings();
        let rates = [
            ("minimum", [31.0, 64.0]),
            ("maximum", [29.5, 68.0]),
            ("priority", [78.0, 20.5]),
        ];
        let mut trials: Vec<Trial> = rates
            .iter()
            .flat_map(|(case, rates)| QueueMaker::ALL.map(|way| trial(case, way, *rates)))
            .collect();
        trials.iter_mut().for_each(change);
        let rows = rows(&settings, &trials);
        assert_eq!(rows.len(), 3 * 3 * 2);
        let checks = checks(&settings, &rows, &trials);
        checks.iter().map(|check| check.passed).collect()
    }

    fn failed(change: impl Fn(&mut Trial)) -> usize {
        all(change).iter().filter(|passed| !**passed).count()
    }

    #[test]
    fn each_claim_fails_by_itself() {
        // Two queues in three cases and one precedence, each in two ways; verify in each way; and
        // two of Open vSwitch alone.
        let well = all(|_| ());
        assert_eq!(well, vec![true; (2 * 3 + 1) * 2 + 2 + 2]);
        let of = |t: &Trial, case: &str| t.case == case && t.way == QueueMaker::Auster;
        let set = |case: &'static str, flow: usize, mbps: f64| {
            failed(move |t| {
                if of(t, case) {
                    t.flows[flow].rate_mbps = mbps;
                }
            })
        };
        assert_eq!(set("minimum", 1, 56.0), 1, "below the minimum");
        assert_eq!(set("maximum", 0, 32.0), 1, "above the maximum");
        assert_eq!(set("priority", 0, 75.0), 1, "not served first");
        assert_eq!(
            failed(|t| t.verify_code = Some(0)),
            1,
            "nothing is said of plain"
        );
        let in_zero = |t: &mut Trial| {
            if t.way == QueueMaker::Auster {
                t.verify["queues"][1]["effect"] = "no".into();
            }
        };
        assert_eq!(failed(in_zero), 1, "a queue of auster's got nothing");
        let elsewhere = |t: &mut Trial| {
            if !t.way.is_auster() {
                t.verify["queues"][1]["packets"] = 100.into();
            }
        };
        assert_eq!(failed(elsewhere), 1, "plain has used a queue");
    }
}
