//! Cells, what was measured of each, and the table.

use std::time::Duration;

use serde::Serialize;

use super::processes::Used;
use cli::table::Columns;
use measure::stats::Summary;

/// One row: the number of switches, of messages in a write, and a rate or as fast as they go.
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
    /// Time from the first connection until the first message of every switch has come out.
    pub set_up: Duration,
    pub before: Used,
    pub after: Used,
}

#[derive(Serialize)]
pub struct Row {
    pub switches: u32,
    pub batch: u32,
    /// Messages a second of all switches; `None`: as fast as they go.
    rate_per_s: Option<u32>,
    runs: usize,
    set_up_s: Summary,
    messages_per_s: Summary,
    /// CPU time of each end, per message.
    switch_cpu_us: Summary,
    controller_cpu_us: Summary,
    /// The rate at which the end with more CPU time per message fills one core.
    messages_per_s_of_one_core: Summary,
    /// The most that was resident.
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

impl Row {
    /// `None` if nothing was measured.
    pub fn of(cell: Cell, runs: &[Measured]) -> Option<Row> {
        let summary = |of: &dyn Fn(&Measured) -> f64| Summary::of(runs.iter().map(of));
        let us = |before: Duration, after: Duration, run: &Measured| {
            1e6 * after.saturating_sub(before).as_secs_f64() / run.messages.max(1) as f64
        };
        let switch_us = |run: &Measured| us(run.before.switch.cpu, run.after.switch.cpu, run);
        let controller_us =
            |run: &Measured| us(run.before.controller.cpu, run.after.controller.cpu, run);
        (!runs.is_empty()).then(|| Row {
            switches: cell.switches,
            batch: cell.batch,
            rate_per_s: cell.rate_per_s,
            runs: runs.len(),
            set_up_s: summary(&|run| run.set_up.as_secs_f64()),
            messages_per_s: summary(&|run| run.messages as f64 / run.elapsed.as_secs_f64()),
            switch_cpu_us: summary(&switch_us),
            controller_cpu_us: summary(&controller_us),
            messages_per_s_of_one_core: summary(&|run| {
                1e6 / switch_us(run).max(controller_us(run)).max(1e-6)
            }),
            switch_peak_mib: summary(&|run| run.after.switch.memory_peak_mib),
            controller_peak_mib: summary(&|run| run.after.controller.memory_peak_mib),
            switch_kib_each: None,
            controller_kib_each: None,
        })
    }
}

/// Sets the memory of each switch beyond the first, against the row of one switch at a rate.
pub fn charge_switches(rows: &mut [Row]) {
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
