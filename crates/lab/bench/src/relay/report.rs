//! Cells and their measurements, the table, the raw data and the plots.

use std::time::Duration;

use serde::Serialize;

use super::processes::Used;
use cli::failure::Failure;
use cli::table::Columns;
use measure::stats::Summary;
use report::output::Results;
use report::plot::Bars;

/// One row: the number of switches, the number of messages in a write, and a rate or full speed.
#[derive(Clone, Debug)]
pub struct Cell {
    pub switches: u32,
    pub batch: u32,
    pub rate_per_s: Option<u32>,
}

/// One run of a cell.
pub struct Measured {
    pub messages: u64,
    pub elapsed: Duration,
    /// Time from the first connection until the first message of every switch has arrived.
    pub set_up: Duration,
    pub before: Used,
    pub after: Used,
}

#[derive(Serialize)]
pub struct Row {
    pub switches: u32,
    pub batch: u32,
    /// Messages a second of all switches; `None` means full speed.
    rate_per_s: Option<u32>,
    runs: usize,
    set_up_s: Summary,
    messages_per_s: Summary,
    /// CPU time of each end, per message.
    switch_cpu_us: Summary,
    controller_cpu_us: Summary,
    /// The rate at which the end with more CPU time per message fills one core.
    messages_per_s_of_one_core: Summary,
    /// Peak resident memory.
    switch_peak_mib: Summary,
    controller_peak_mib: Summary,
    /// Memory of each switch beyond the first.
    switch_kib_each: Option<f64>,
    controller_kib_each: Option<f64>,
}

impl Cell {
    pub fn name(&self) -> String {
        let speed = self
            .rate_per_s
            .map_or("full speed".to_owned(), |rate| format!("{rate} messages/s"));
        format!(
            "{} switches, {} a write, {speed}",
            self.switches, self.batch
        )
    }
}

impl Measured {
    fn messages_per_s(&self) -> f64 {
        self.messages as f64 / self.elapsed.as_secs_f64()
    }

    fn switch_cpu_us(&self) -> f64 {
        self.us_each(self.before.switch.cpu, self.after.switch.cpu)
    }

    fn controller_cpu_us(&self) -> f64 {
        self.us_each(self.before.controller.cpu, self.after.controller.cpu)
    }

    /// Processor time per message.
    fn us_each(&self, before: Duration, after: Duration) -> f64 {
        1e6 * after.saturating_sub(before).as_secs_f64() / self.messages.max(1) as f64
    }
}

/// A row for each cell; [`Row::switch_kib_each`] is relative to the row of one switch at a rate.
pub fn rows(cells: &[(Cell, Vec<Measured>)]) -> Vec<Row> {
    let mut rows: Vec<Row> = cells
        .iter()
        .map(|(cell, runs)| Row::of(cell, runs))
        .collect();
    charge_switches(&mut rows);
    rows
}

impl Row {
    fn of(cell: &Cell, runs: &[Measured]) -> Row {
        let summary = |of: &dyn Fn(&Measured) -> f64| Summary::of(runs.iter().map(of));
        Row {
            switches: cell.switches,
            batch: cell.batch,
            rate_per_s: cell.rate_per_s,
            runs: runs.len(),
            set_up_s: summary(&|run| run.set_up.as_secs_f64()),
            messages_per_s: summary(&Measured::messages_per_s),
            switch_cpu_us: summary(&Measured::switch_cpu_us),
            controller_cpu_us: summary(&Measured::controller_cpu_us),
            messages_per_s_of_one_core: summary(&|run| {
                1e6 / run.switch_cpu_us().max(run.controller_cpu_us()).max(1e-6)
            }),
            switch_peak_mib: summary(&|run| run.after.switch.memory_peak_mib),
            controller_peak_mib: summary(&|run| run.after.controller.memory_peak_mib),
            switch_kib_each: None,
            controller_kib_each: None,
        }
    }
}

/// Sets the memory of each switch beyond the first.
fn charge_switches(rows: &mut [Row]) {
    let one = rows
        .iter()
        .find(|row| row.switches == 1 && row.rate_per_s.is_some());
    let Some((switch, controller)) =
        one.map(|row| (row.switch_peak_mib.mean, row.controller_peak_mib.mean))
    else {
        return;
    };
    for row in rows.iter_mut().filter(|row| row.switches > 1) {
        let each = |all: f64, one: f64| 1024.0 * (all - one) / f64::from(row.switches - 1);
        row.switch_kib_each = Some(each(row.switch_peak_mib.mean, switch));
        row.controller_kib_each = Some(each(row.controller_peak_mib.mean, controller));
    }
}

pub fn text(rows: &[Row]) -> String {
    let each = |kib: Option<f64>| kib.map_or(String::new(), |kib| format!("{kib:.0}"));
    let rate = |rate: Option<u32>| rate.map_or("all".to_owned(), |rate| rate.to_string());
    Columns::of(rows)
        .text("switches", |row| row.switches)
        .text("a write", |row| row.batch)
        .text("offered/s", |row| rate(row.rate_per_s))
        .number("all in s", 2, |row| row.set_up_s.mean)
        .number("messages/s", 0, |row| row.messages_per_s.mean)
        .number("sd", 0, |row| row.messages_per_s.sd)
        .number("switch end µs", 2, |row| row.switch_cpu_us.mean)
        .number("sd", 2, |row| row.switch_cpu_us.sd)
        .number("controller end µs", 2, |row| row.controller_cpu_us.mean)
        .number("sd", 2, |row| row.controller_cpu_us.sd)
        .number("/s of one core", 0, |row| {
            row.messages_per_s_of_one_core.mean
        })
        .number("switch MiB", 1, |row| row.switch_peak_mib.mean)
        .number("controller MiB", 1, |row| row.controller_peak_mib.mean)
        .text("KiB each", |row| each(row.switch_kib_each))
        .text("KiB each", |row| each(row.controller_kib_each))
        .table()
}

/// A name, and the figure of a row that a bar shows.
type Part<'a> = (&'a str, fn(&Row) -> &Summary);

/// Writes every run, and plots of the rows.
pub fn keep(
    results: &Results,
    cells: &[(Cell, Vec<Measured>)],
    rows: &[Row],
) -> Result<(), Failure> {
    results.write("runs.csv", runs_csv(cells).as_bytes())?;
    let groups: Vec<String> = cells.iter().map(|(cell, _)| cell.name()).collect();
    let plot = |name: &str, title: &str, y_label: &str, parts: &[Part<'_>]| {
        let figures = |of: fn(&Summary) -> f64| {
            let each = parts.iter();
            each.map(move |(_, part)| rows.iter().map(|row| of(part(row))).collect())
        };
        let means = figures(|summary| summary.mean);
        let bars = Bars {
            title: title.to_owned(),
            y_label: y_label.to_owned(),
            groups: groups.clone(),
            parts: (parts.iter().map(|(name, _)| (*name).to_owned()))
                .zip(means)
                .collect(),
            stacked: false,
            error: Some(figures(|summary| summary.ci95).collect()),
        };
        results.plot(name, &bars.svg())
    };
    let title = "Messages through a pair of relays";
    plot(
        "messages",
        title,
        "messages a second",
        &[("carried", |row| &row.messages_per_s)],
    )?;
    let title = "Processor time of each end";
    plot(
        "cpu",
        title,
        "µs a message",
        &[
            ("switch end", |row| &row.switch_cpu_us),
            ("controller end", |row| &row.controller_cpu_us),
        ],
    )?;
    let title = "Peak memory of each end";
    plot(
        "memory",
        title,
        "MiB",
        &[
            ("switch end", |row| &row.switch_peak_mib),
            ("controller end", |row| &row.controller_peak_mib),
        ],
    )
}

fn runs_csv(cells: &[(Cell, Vec<Measured>)]) -> String {
    let runs = cells.iter().flat_map(|(cell, runs)| {
        let numbered = (1..).zip(runs);
        numbered.map(move |(number, run)| (cell, number, run))
    });
    let runs: Vec<(&Cell, usize, &Measured)> = runs.collect();
    Columns::of(&runs)
        .text("switches", |(cell, ..)| cell.switches)
        .text("batch", |(cell, ..)| cell.batch)
        .maybe("offered_per_s", 0, |(cell, ..)| {
            cell.rate_per_s.map(f64::from)
        })
        .text("run", |(_, number, _)| *number)
        .number("set_up_s", 3, |(.., run)| run.set_up.as_secs_f64())
        .text("messages", |(.., run)| run.messages)
        .number("messages_per_s", 1, |(.., run)| run.messages_per_s())
        .number("switch_cpu_us", 3, |(.., run)| run.switch_cpu_us())
        .number("controller_cpu_us", 3, |(.., run)| run.controller_cpu_us())
        .number("switch_peak_mib", 1, |(.., run)| {
            run.after.switch.memory_peak_mib
        })
        .number("controller_peak_mib", 1, |(.., run)| {
            run.after.controller.memory_peak_mib
        })
        .csv()
}
