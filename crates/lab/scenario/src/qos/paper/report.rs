//! The results on the paper's network: table, verdict, files.

use std::fmt::{self, Write};

use serde::Serialize;

use crate::qos::paper::background::Heard;
use crate::qos::paper::figures::{Cell, Figure, Measure, Reduction, Row, Sample, Standing};
use crate::qos::paper::plots;
use crate::qos::paper::settings::{OURS, Settings};
use crate::report::Check;
use cli::failure::Failure;
use cli::output::{say, say_part};
use cli::table::table;
use report::machine::Machine;
use report::output::Results;

#[derive(Debug, Serialize)]
pub struct Document {
    pub title: String,
    pub scenario: String,
    pub command: Vec<String>,
    pub started_unix_s: u64,
    pub took_s: f64,
    pub machine: Machine,
    pub passed: bool,
    /// Ended by a signal: the figures are those until then.
    pub interrupted: bool,
    pub settings: Settings,
    pub left_out: Vec<LeftOut>,
    pub checks: Vec<Check>,
    pub rows: Vec<Row>,
    pub reductions: Vec<Reduction>,
    pub beside: Vec<Beside>,
    #[serde(skip)]
    pub samples: Vec<Sample>,
}

/// A controller that could not be made ready.
#[derive(Debug, Serialize)]
pub struct LeftOut {
    pub controller: String,
    pub why: String,
}

/// The background traffic of a run.
#[derive(Debug, Serialize)]
pub struct Beside {
    pub controller: String,
    pub round: u32,
    pub cell: Cell,
    pub heard: Heard,
    /// From s2 to s3, in the queue of what is measured; nothing where there is none.
    pub service_packets: Option<u64>,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is left out: {}", self.controller, self.why)
    }
}

impl Document {
    pub fn conclude(&self, results: &Results, as_json: bool) -> Result<(), Failure> {
        let json = serde_json::to_string_pretty(self)
            .map_err(|e| Failure::negative(format!("results as JSON: {e}")))?;
        results.write("result.json", (json.clone() + "\n").as_bytes())?;
        results.write("command.txt", (self.command.join(" ") + "\n").as_bytes())?;
        results.write("table.txt", self.text().as_bytes())?;
        results.write("samples.csv", self.sample_lines().as_bytes())?;
        results.write("background.csv", self.beside_lines().as_bytes())?;
        plots::write(results, &self.settings, &self.rows)?;
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
        let mut text = format!(
            "{}\n{}\n{}, {} processors; {} runs: median (least to most)\n",
            self.title,
            self.settings.words(),
            self.machine.cpu,
            self.machine.cpu_count,
            self.settings.runs,
        );
        for left in &self.left_out {
            let _ = writeln!(text, "{left}");
        }
        for measure in Measure::ALL {
            let _ = write!(text, "\n{}\n{}", measure.name(), self.table(measure));
        }
        let _ = write!(text, "\nBackground\n{}", self.beside_table());
        let _ = write!(
            text,
            "\nTransfer time that QoS saves beside the background (%)\n{}\n",
            self.reduction_table()
        );
        for check in &self.checks {
            let verdict = if check.passed { "yes" } else { "NO " };
            let _ = writeln!(text, "  {verdict}  {}: {}", check.what, check.found);
        }
        text + &self.standings()
    }

    fn table(&self, measure: Measure) -> String {
        let names = self.settings.controllers.iter();
        let mut header = vec!["at", "network"];
        header.extend(names.map(|candidate| candidate.name.as_str()));
        header.extend(["first", "auster"]);
        let rows = self.rows.iter().filter(|row| row.measure == measure);
        let cells = rows.map(|row| {
            let mut cells = vec![measure.place(row.at), row.cell.name().to_owned()];
            cells.extend(row.figures.iter().map(|figure| told(measure, figure)));
            cells.push(row.first.clone().unwrap_or_else(|| "-".to_owned()));
            cells.push(standing(row.auster).to_owned());
            cells
        });
        table(&header, &cells.collect::<Vec<_>>())
    }

    fn beside_table(&self) -> String {
        let header = [
            "controller",
            "network",
            "TCP Mbit/s",
            "new flows",
            "delivered",
            "in the queue",
        ];
        let mut rows = Vec::new();
        for candidate in &self.settings.controllers {
            for cell in [Cell::Background, Cell::Qos] {
                let (mut sum, mut packets) = (Heard::default(), 0);
                let its = |b: &&Beside| b.controller == candidate.name && b.cell == cell;
                let its = self.beside.iter().filter(its);
                for beside in its {
                    sum.add(beside.heard);
                    packets += beside.service_packets.unwrap_or(0);
                }
                rows.push(vec![
                    candidate.name.clone(),
                    cell.name().to_owned(),
                    format!("{:.1}", sum.tcp_mbps),
                    sum.flows_sent.to_string(),
                    sum.flows_delivered.to_string(),
                    packets.to_string(),
                ]);
            }
        }
        table(&header, &rows)
    }

    fn reduction_table(&self) -> String {
        let names = self.settings.controllers.iter().map(|c| c.name.as_str());
        let mut header = vec!["size", "paper"];
        header.extend(names);
        let rows = self.settings.sizes_mb.iter().map(|size| {
            let its = || self.reductions.iter().filter(|r| r.size_mb == *size);
            let paper = its().find_map(|reduction| reduction.paper_percent);
            let mut cells = vec![
                format!("{size} MB"),
                paper.map_or("-".to_owned(), |percent| format!("{percent:.0}")),
            ];
            for candidate in &self.settings.controllers {
                let found = its().find(|r| r.controller == candidate.name);
                cells.push(found.map_or("-".to_owned(), |r| format!("{:.1}", r.percent)));
            }
            cells
        });
        table(&header, &rows.collect::<Vec<_>>())
    }

    /// In how many rows auster is first or as good as that, and in which it is not.
    fn standings(&self) -> String {
        let compared = |row: &&Row| row.auster != Standing::NotCompared;
        let rows: Vec<&Row> = self.rows.iter().filter(compared).collect();
        if rows.is_empty() {
            return String::new();
        }
        let count = |standing| rows.iter().filter(|row| row.auster == standing).count();
        let mut text = format!(
            "\n{OURS} is first in {} of {} rows, within the spread of the first in {}, behind in \
             {}\n",
            count(Standing::First),
            rows.len(),
            count(Standing::WithinSpread),
            count(Standing::Behind)
        );
        for row in rows.iter().filter(|row| row.auster == Standing::Behind) {
            let first = row.first.as_deref().unwrap_or_default();
            let told = |name| row.of(name).map(|figure| told(row.measure, figure));
            let _ = writeln!(
                text,
                "  behind: {}, {}, {}: {} against {} of {first}",
                row.measure.name(),
                row.measure.place(row.at),
                row.cell.name(),
                told(OURS).unwrap_or_default(),
                told(first).unwrap_or_default(),
            );
        }
        text
    }

    fn sample_lines(&self) -> String {
        let mut text = "controller,repetition,network,measure,at,value,lost\n".to_owned();
        for sample in &self.samples {
            let value = sample
                .value
                .map_or(String::new(), |value| format!("{value:.4}"));
            let _ = writeln!(
                text,
                "\"{}\",{},{},{},{},{value},{}",
                sample.controller,
                sample.round,
                sample.cell.word(),
                sample.measure.word(),
                sample.at,
                sample.lost,
            );
        }
        text
    }

    fn beside_lines(&self) -> String {
        let mut text =
            "controller,repetition,network,tcp_mbps,flows_sent,flows_delivered,queue_packets\n"
                .to_owned();
        for beside in &self.beside {
            let heard = beside.heard;
            let _ = writeln!(
                text,
                "\"{}\",{},{},{:.3},{},{},{}",
                beside.controller,
                beside.round,
                beside.cell.word(),
                heard.tcp_mbps,
                heard.flows_sent,
                heard.flows_delivered,
                beside
                    .service_packets
                    .map_or(String::new(), |count| count.to_string()),
            );
        }
        text
    }
}

fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::First => "first",
        Standing::WithinSpread => "within the spread",
        Standing::Behind => "behind",
        Standing::NotCompared => "-",
    }
}

/// `2.31 (1.98-2.50)`, and what was lost.
fn told(measure: Measure, figure: &Figure) -> String {
    let of = &figure.of;
    let mut text = match (of.count, measure) {
        (0, _) => "none".to_owned(),
        (_, Measure::Tcp) => format!("{:.0} ({:.0}-{:.0})", of.p50, of.min, of.max),
        _ => format!("{:.2} ({:.2}-{:.2})", of.p50, of.min, of.max),
    };
    // Of datagrams it is the figure itself.
    if figure.lost > 0 && measure != Measure::Udp {
        let what = if measure.is_icmp() { "lost" } else { "failed" };
        let _ = write!(text, ", {} {what}", figure.lost);
    }
    text
}
