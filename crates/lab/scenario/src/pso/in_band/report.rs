//! The results of an in-band experiment: cells, verdict, tables, files.

use std::collections::BTreeMap;
use std::fmt::Write;

use sched::TrafficType;
use sched::policy::{Action, PolicyMap};
use serde::Serialize;

use crate::pso::in_band::probe::MESSAGES;
use crate::pso::in_band::settings::InBand;
use crate::pso::in_band::stage::{Trial, wire_of};
use crate::pso::in_band::wire::{Counts, What};
use crate::report::Check;
use auster::queues::plan::{control_code_points, reserved_code_points};
use cli::failure::Failure;
use cli::output::say_part;
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
    pub settings: InBand,
    pub passed: bool,
    /// Ended by a signal: the figures are those until then.
    pub interrupted: bool,
    pub checks: Vec<Check>,
    pub cells: Vec<Cell>,
    pub classes: Vec<Classes>,
    pub wire: Vec<WireRow>,
    pub trials: Vec<Trial>,
}

/// All runs of one load, with queues or without. Summaries are over runs, delays in milliseconds
/// from PACKET_IN to PACKET_OUT.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    pub has_queues: bool,
    pub data_load: f64,
    pub runs: usize,
    pub openflow_asked: u32,
    pub openflow_lost: u32,
    pub openflow_loss_percent: Summary,
    pub mean_ms: Summary,
    pub p50_ms: Summary,
    pub p99_ms: Summary,
    /// The longest of all runs.
    pub max_ms: f64,
    pub data_loss_percent: Summary,
}

/// Code points seen while messages of one class were sent on a quiet link.
#[derive(Clone, Debug, Serialize)]
pub struct Classes {
    pub traffic_type: u8,
    /// The code point in the map; `None` if its rules divide messages of this type further.
    pub dscp: Option<u8>,
    /// Packets of the tunnel by code point.
    pub to_controller: BTreeMap<u8, u64>,
    pub to_switch: BTreeMap<u8, u64>,
}

/// Packets of one kind and code point on the shared link, over all runs.
#[derive(Clone, Debug, Serialize)]
pub struct WireRow {
    pub direction: &'static str,
    pub what: What,
    pub dscp: u8,
    pub packets: u64,
    pub bytes: u64,
}

impl Cell {
    /// All cells, sorted by load; with queues comes before without.
    pub fn all(settings: &InBand, trials: &[Trial]) -> Vec<Cell> {
        let mut cells = Vec::new();
        for load in settings.loads() {
            for has_queues in [true, false] {
                let of_cell = |t: &&Trial| t.has_queues == has_queues && t.data_load == load;
                let trials: Vec<&Trial> = trials.iter().filter(of_cell).collect();
                if !trials.is_empty() {
                    cells.push(Cell::of(has_queues, load, &trials));
                }
            }
        }
        cells
    }

    fn of(has_queues: bool, data_load: f64, trials: &[&Trial]) -> Cell {
        let delays: Vec<Summary> = trials.iter().map(|t| Summary::of(&t.hop_ms())).collect();
        let over_runs = |value: fn(&Summary) -> f64| {
            let values: Vec<f64> = delays.iter().map(value).collect();
            Summary::of(&values)
        };
        let percent = |lost: u32, of: u32| f64::from(lost) / f64::from(of.max(1)) * 100.0;
        let losses: Vec<f64> = trials
            .iter()
            .map(|t| percent(t.openflow_lost(), t.openflow_asked()))
            .collect();
        let data: Vec<f64> = trials
            .iter()
            .map(|t| percent(t.data.sent.saturating_sub(t.data.arrived), t.data.sent))
            .collect();
        Cell {
            has_queues,
            data_load,
            runs: trials.len(),
            openflow_asked: trials.iter().map(|t| t.openflow_asked()).sum(),
            openflow_lost: trials.iter().map(|t| t.openflow_lost()).sum(),
            openflow_loss_percent: Summary::of(&losses),
            mean_ms: over_runs(|delay| delay.mean),
            p50_ms: over_runs(|delay| delay.p50),
            p99_ms: over_runs(|delay| delay.p99),
            max_ms: delays.iter().map(|delay| delay.max).fold(0.0, f64::max),
            data_loss_percent: Summary::of(&data),
        }
    }
}

impl Classes {
    pub fn new(class: TrafficType, map: &PolicyMap, wire: &[Counts; 2]) -> Classes {
        let of_class = map
            .rules
            .iter()
            .filter(|rule| rule.traffic.is_none_or(|t| t == class));
        let mut dscps: Vec<u8> = of_class
            .filter_map(|rule| match rule.action {
                Action::Dscp(dscp) | Action::Both(_, dscp) => Some(dscp),
                Action::Queue(_) | Action::DscpCopy => None,
            })
            .collect();
        dscps.dedup();
        let [to_controller, to_switch] = [0, 1].map(|direction: usize| {
            let tunnel = wire[direction]
                .iter()
                .filter(|((what, _), _)| *what == What::Tunnel);
            tunnel
                .map(|((_, dscp), count)| (*dscp, count.packets))
                .collect()
        });
        Classes {
            traffic_type: class as u8,
            dscp: dscps.first().copied().filter(|_| dscps.len() == 1),
            to_controller,
            to_switch,
        }
    }
}

pub fn wire_rows(trials: &[Trial]) -> Vec<WireRow> {
    let directions = ["s1 to s2", "s2 to s1"];
    let all = wire_of(trials.iter());
    let rows = directions
        .into_iter()
        .zip(&all)
        .flat_map(|(direction, counts)| {
            counts.iter().map(move |((what, dscp), count)| WireRow {
                direction,
                what: *what,
                dscp: *dscp,
                packets: count.packets,
                bytes: count.bytes,
            })
        });
    rows.collect()
}

/// One line of progress.
pub fn line(run: u32, trial: &Trial) -> String {
    let delay = Summary::of(&trial.hop_ms());
    format!(
        "  run {run}  data {:4.2}  {:7}  OpenFlow lost {:>4} of {:>5}  delay ms {:8.2} {:8.2} \
         {:8.2}  \
         data lost {} of {}",
        trial.data_load,
        with(trial.has_queues),
        trial.openflow_lost(),
        trial.openflow_asked(),
        delay.mean,
        delay.p50,
        delay.p99,
        trial.data.sent.saturating_sub(trial.data.arrived),
        trial.data.sent,
    )
}

fn with(has_queues: bool) -> &'static str {
    if has_queues { "queues" } else { "plain" }
}

/// The claims, each with the value that was measured.
pub fn checks(
    settings: &InBand,
    map: &PolicyMap,
    cells: &[Cell],
    classes: &[Classes],
    trials: &[Trial],
) -> Vec<Check> {
    let mut checks = delay_checks(settings, cells);
    checks.extend(class_checks(settings, classes));
    checks.extend(data_checks(settings, map, trials));
    let unseen: u64 = trials.iter().map(|trial| trial.unseen).sum();
    checks.push(Check {
        what: "every frame was seen by the captures".into(),
        passed: unseen == 0,
        found: format!("{unseen} missed"),
    });
    checks
}

fn delay_checks(settings: &InBand, cells: &[Cell]) -> Vec<Check> {
    let with_queues = || cells.iter().filter(|cell| cell.has_queues);
    let lost: u32 = with_queues().map(|cell| cell.openflow_lost).sum();
    let asked: u32 = with_queues().map(|cell| cell.openflow_asked).sum();
    let unloaded = with_queues().find(|cell| cell.data_load == 0.0);
    let unloaded_ms = unloaded.map_or(0.0, |cell| cell.p99_ms.mean);
    let worst = with_queues().max_by(|a, b| a.p99_ms.mean.total_cmp(&b.p99_ms.mean));
    let ratio = worst.map_or(f64::INFINITY, |cell| cell.p99_ms.mean / unloaded_ms);
    let ratio_max = settings.claims.p99_ratio_max;
    let mut checks = vec![
        Check {
            what: "with queues, no OpenFlow message is lost at any load".into(),
            passed: lost == 0 && asked > 0,
            found: format!("{lost} of {asked} lost"),
        },
        Check {
            what: format!(
                "with queues, the 99th percentile of the delay is within {ratio_max} times that \
                 without data"
            ),
            passed: ratio <= ratio_max,
            found: worst.map_or_else(String::new, |cell| {
                format!(
                    "{:.2} ms at data load {}, {ratio:.2} times {unloaded_ms:.2} ms",
                    cell.p99_ms.mean, cell.data_load
                )
            }),
        },
    ];
    // What it is for: a plain link does worse where it is overloaded.
    let overloaded = |cell: &&Cell| cell.data_load >= settings.claims.overloaded;
    let plain = cells
        .iter()
        .filter(|cell| !cell.has_queues)
        .filter(overloaded);
    let plain = plain.max_by(|a, b| a.p99_ms.mean.total_cmp(&b.p99_ms.mean));
    if let Some(plain) = plain {
        checks.push(Check {
            what: "without queues, it is not".into(),
            passed: plain.p99_ms.mean > ratio_max * unloaded_ms,
            found: format!(
                "{:.2} ms at data load {}, {:.1} times; {} of {} lost",
                plain.p99_ms.mean,
                plain.data_load,
                plain.p99_ms.mean / unloaded_ms,
                plain.openflow_lost,
                plain.openflow_asked,
            ),
        });
    }
    checks
}

/// Where switches mark the tunnel as a whole there is one code point; else each class has its own.
fn class_checks(settings: &InBand, classes: &[Classes]) -> Vec<Check> {
    classes
        .iter()
        .map(|class| {
            let dscp = settings.tunnel_dscp.or(class.dscp);
            let seen = dscp.and_then(|dscp| class.to_controller.get(&dscp).copied());
            let seen = seen.unwrap_or(0);
            Check {
                what: format!(
                    "messages of type {} are on the wire with code point {}",
                    class.traffic_type,
                    dscp.map_or_else(|| "?".to_owned(), |dscp| dscp.to_string()),
                ),
                // Messages that wait for the processor share packets.
                passed: seen * 4 >= u64::from(MESSAGES),
                found: format!(
                    "{MESSAGES} messages; packets by code point {:?}, back {:?}",
                    class.to_controller, class.to_switch
                ),
            }
        })
        .collect()
}

fn data_checks(settings: &InBand, map: &PolicyMap, trials: &[Trial]) -> Vec<Check> {
    let [wire, _] = wire_of(trials.iter());
    let packets = |wanted: What, is_right: &dyn Fn(u8) -> bool| -> u64 {
        let of = wire
            .iter()
            .filter(|((what, dscp), _)| *what == wanted && is_right(*dscp));
        of.map(|(_, count)| count.packets).sum()
    };
    let control = match settings.tunnel_dscp {
        Some(dscp) => [dscp].into_iter().collect(),
        None => control_code_points(map),
    };
    let strange = packets(What::Tunnel, &|dscp| !control.contains(dscp));
    let right = packets(What::Tunnel, &|dscp| control.contains(dscp));
    let mut checks = vec![Check {
        what: format!("control bears code points {control} and no other"),
        passed: strange == 0 && right > 0,
        found: format!("{right} packets do, {strange} do not"),
    }];
    let is_reserved = reserved_code_points(map).contains(settings.hostile_dscp);
    if settings.hostile_share > 0.0 && is_reserved {
        let kept = packets(What::Hostile, &|dscp| dscp != 0);
        let lost = packets(What::Hostile, &|dscp| dscp == 0);
        checks.push(Check {
            what: format!(
                "data sent with control's code point {} loses it",
                settings.hostile_dscp
            ),
            passed: kept == 0 && lost > 0,
            found: format!("{lost} packets lost it, {kept} kept it"),
        });
    }
    if settings.marked_share > 0.0 {
        let kept = packets(What::Marked, &|dscp| dscp == settings.marked_dscp);
        let lost = packets(What::Marked, &|dscp| dscp != settings.marked_dscp);
        checks.push(Check {
            what: format!(
                "data sent with code point {} keeps it",
                settings.marked_dscp
            ),
            passed: lost == 0 && kept > 0,
            found: format!("{kept} packets kept it, {lost} lost it"),
        });
    }
    checks
}

impl Document {
    /// Files into the directory, and the document or its tables to standard output.
    ///
    /// # Errors
    /// When a check has failed, or the runs were interrupted.
    pub fn conclude(&self, results: &Results, json: bool) -> Result<(), Failure> {
        let document = serde_json::to_string_pretty(self)
            .map_err(|error| Failure::file("standard output", error))?
            + "\n";
        let tables = self.tables();
        results.write("result.json", document.as_bytes())?;
        results.write("command.txt", (self.command.join(" ") + "\n").as_bytes())?;
        results.write("summary.txt", tables.as_bytes())?;
        results.write("runs.csv", self.runs_csv().as_bytes())?;
        results.write("cells.csv", self.cells_csv().as_bytes())?;
        results.write("wire.csv", self.wire_csv().as_bytes())?;
        results.plot("delay", &self.delay_plot())?;
        results.plot("loss", &self.loss_plot())?;
        say_part!("{}", if json { &document } else { &tables });
        if self.interrupted {
            return Err(Failure::negative(
                "interrupted; the figures are those until then",
            ));
        }
        let failed = self.checks.iter().filter(|check| !check.passed).count();
        match failed {
            0 => Ok(()),
            _ => Err(Failure::negative(format!(
                "{failed} of {} checks failed",
                self.checks.len()
            ))),
        }
    }

    fn tables(&self) -> String {
        let spread = |s: &Summary| format!("{:.2} ± {:.2}", s.mean, s.ci95);
        let rows: Vec<Vec<String>> = self
            .cells
            .iter()
            .map(|cell| {
                vec![
                    format!("{:.2}", cell.data_load),
                    with(cell.has_queues).to_owned(),
                    format!("{} of {}", cell.openflow_lost, cell.openflow_asked),
                    spread(&cell.openflow_loss_percent),
                    spread(&cell.mean_ms),
                    spread(&cell.p50_ms),
                    spread(&cell.p99_ms),
                    format!("{:.2}", cell.max_ms),
                    spread(&cell.data_loss_percent),
                ]
            })
            .collect();
        let header = [
            "DATA",
            "LINK",
            "LOST",
            "LOST %",
            "MEAN MS",
            "P50 MS",
            "P99 MS",
            "MAX MS",
            "DATA LOST %",
        ];
        let mut text = format!(
            "\nOpenFlow over a link of {} Mbit/s that data shares; {} runs of {} s, mean of runs ± \
             95 %\n{}",
            self.settings.link_mbps,
            self.settings.runs,
            self.settings.run_s,
            table(&header, &rows)
        );
        let rows: Vec<Vec<String>> = self
            .wire
            .iter()
            .map(|row| {
                vec![
                    row.direction.to_owned(),
                    format!("{:?}", row.what).to_lowercase(),
                    row.dscp.to_string(),
                    row.packets.to_string(),
                    row.bytes.to_string(),
                ]
            })
            .collect();
        let header = ["WIRE", "WHAT", "DSCP", "PACKETS", "BYTES"];
        let _ = write!(text, "\n{}\n", table(&header, &rows));
        for check in &self.checks {
            let verdict = if check.passed { "yes" } else { "NO" };
            let _ = writeln!(text, "  {verdict:3}  {}: {}", check.what, check.found);
        }
        text
    }

    fn runs_csv(&self) -> String {
        let mut text =
            "data_load,queues,openflow_asked,openflow_lost,mean_ms,p50_ms,p99_ms,max_ms,\
                        target_asked,target_lost,target_p99_ms,data_sent,data_arrived,\
                        sender_late_ms,unseen\n"
                .to_owned();
        for trial in &self.trials {
            let delay = Summary::of(&trial.hop_ms());
            let target = Summary::of(&trial.target.hop_ms);
            let _ = writeln!(
                text,
                "{},{},{},{},{:.4},{:.4},{:.4},{:.4},{},{},{:.4},{},{},{:.3},{}",
                trial.data_load,
                trial.has_queues,
                trial.openflow_asked(),
                trial.openflow_lost(),
                delay.mean,
                delay.p50,
                delay.p99,
                delay.max,
                trial.target.asked,
                trial.target.lost(),
                target.p99,
                trial.data.sent,
                trial.data.arrived,
                trial.sender_late_ms,
                trial.unseen,
            );
        }
        text
    }

    fn cells_csv(&self) -> String {
        let mut text = "data_load,queues,runs,openflow_asked,openflow_lost,loss_percent,\
                        loss_percent_ci95,mean_ms,mean_ms_ci95,p50_ms,p50_ms_ci95,p99_ms,\
                        p99_ms_ci95,max_ms,data_loss_percent,data_loss_percent_ci95\n"
            .to_owned();
        for cell in &self.cells {
            let _ = write!(
                text,
                "{},{},{},{},{}",
                cell.data_load, cell.has_queues, cell.runs, cell.openflow_asked, cell.openflow_lost
            );
            for summary in [
                &cell.openflow_loss_percent,
                &cell.mean_ms,
                &cell.p50_ms,
                &cell.p99_ms,
            ] {
                let _ = write!(text, ",{:.4},{:.4}", summary.mean, summary.ci95);
            }
            let data = &cell.data_loss_percent;
            let _ = writeln!(
                text,
                ",{:.4},{:.4},{:.4}",
                cell.max_ms, data.mean, data.ci95
            );
        }
        text
    }

    fn wire_csv(&self) -> String {
        let mut text = "direction,what,dscp,packets,bytes\n".to_owned();
        for row in &self.wire {
            let what = format!("{:?}", row.what).to_lowercase();
            let _ = writeln!(
                text,
                "{},{what},{},{},{}",
                row.direction, row.dscp, row.packets, row.bytes
            );
        }
        text
    }

    fn delay_plot(&self) -> String {
        let series = [true, false].into_iter().flat_map(|has_queues| {
            let name = with(has_queues);
            [
                self.series(&format!("{name}, p99"), has_queues, |cell| &cell.p99_ms),
                self.series(&format!("{name}, mean"), has_queues, |cell| &cell.mean_ms),
            ]
        });
        Plot {
            title: "OpenFlow beside data on one link: delay".into(),
            x_label: "data offered, as a share of the link".into(),
            y_label: "PACKET_IN to PACKET_OUT (ms)".into(),
            x_log: false,
            y_log: true,
            series: series.collect(),
        }
        .lines()
    }

    fn loss_plot(&self) -> String {
        let series = [true, false].map(|has_queues| {
            self.series(with(has_queues), has_queues, |cell| {
                &cell.openflow_loss_percent
            })
        });
        Plot {
            title: "OpenFlow beside data on one link: loss".into(),
            x_label: "data offered, as a share of the link".into(),
            y_label: "OpenFlow messages lost (%)".into(),
            x_log: false,
            y_log: false,
            series: series.into(),
        }
        .lines()
    }

    fn series(&self, name: &str, has_queues: bool, value: fn(&Cell) -> &Summary) -> Series {
        let cells = self
            .cells
            .iter()
            .filter(|cell| cell.has_queues == has_queues);
        let cells: Vec<&Cell> = cells.collect();
        Series {
            name: name.to_owned(),
            points: cells
                .iter()
                .map(|cell| (cell.data_load, value(cell).mean))
                .collect(),
            error: Some(cells.iter().map(|cell| value(cell).ci95).collect()),
        }
    }
}
