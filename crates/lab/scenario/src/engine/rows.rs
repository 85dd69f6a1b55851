//! The figures of each run, and the claims about them.

use std::time::Duration;

use measure::distinct;
use measure::quantiles::Quantiles;
use serde::{Serialize, Serializer};

use crate::engine::expression::{self, Value};
use crate::engine::matrix;
use crate::engine::probe::Series;
use crate::engine::schema::{Cell, Claim, Column, RowSpec, Run, Scenario};
use crate::engine::timeline::{END, START, Window, time_of};
use crate::engine::traffic::Record;
use crate::report::{Check, milliseconds};

/// The figure of every window: the time between its moments.
pub const WINDOW_LENGTH: &str = "window.length_ms";

/// The measurements of one run.
pub struct Measured<'a> {
    /// Each moment, with the time when it happened.
    pub times: &'a [(String, Duration)],
    /// One for each stream.
    pub records: &'a [Box<dyn Record>],
    /// One for each probe.
    pub series: &'a [Series],
}

/// One row of figures.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub cell: usize,
    pub run: u64,
    pub parameters: Vec<(String, String)>,
    /// The number of earlier, invalid tries of this run; none if every run is valid.
    pub repeats: Option<u64>,
    /// NaN is a missing figure.
    pub figures: Vec<(String, f64)>,
    /// The figures of columns with `each`.
    pub lists: Vec<(String, Vec<f64>)>,
}

/// Parameters, the number of the run, and figures, in one object.
impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number = |x: f64| match x.fract() {
            0.0 => (x as i64).into(),
            _ => serde_json::Value::from(x),
        };
        let parameters = self.parameters.iter();
        let parameters = parameters.map(|(name, value)| (name.as_str(), value.clone().into()));
        let figures = self
            .figures
            .iter()
            .map(|(name, x)| (name.as_str(), number(*x)));
        let lists = self.lists.iter();
        let list = |list: &[f64]| list.iter().map(|x| number(*x)).collect::<Vec<_>>();
        let lists = lists.map(|(name, values)| (name.as_str(), list(values).into()));
        let run = std::iter::once(("run", self.run.into()));
        let repeats = self.repeats.map(|n| ("repeats", n.into()));
        serializer.collect_map(
            parameters
                .chain(run)
                .chain(repeats)
                .chain(figures)
                .chain(lists),
        )
    }
}

/// The rows of one run.
pub fn rows(cell: &Cell, run: &Run, measured: &Measured<'_>) -> Vec<Row> {
    let row = |spec: &RowSpec| {
        let one = |column: &Column, window: &Window| {
            let value = |name: &str| figure(cell, measured, window, name);
            match column.value.value(&value) {
                Value::One(one) => one,
                Value::Many(_) => f64::NAN,
            }
        };
        let (mut figures, mut lists) = (Vec::new(), Vec::new());
        for column in &spec.columns {
            let window = Window::between(measured.times, &column.window);
            let (name, end) = (
                column.name.clone(),
                time_of(measured.times, &column.window[1]),
            );
            match (column.each, window, end) {
                (Some(length), Some(window), Some(end)) => {
                    let parts = window.parts(end, length).into_iter();
                    lists.push((name, parts.map(|part| one(column, &part)).collect()));
                }
                (_, window, _) => {
                    figures.push((name, window.map_or(f64::NAN, |w| one(column, &w))));
                }
            }
        }
        Row {
            name: spec.name.clone(),
            cell: run.cell,
            run: run.number,
            parameters: cell.parameters.clone(),
            repeats: None,
            figures,
            lists,
        }
    };
    cell.rows.iter().map(row).collect()
}

/// The figures that make a run invalid.
pub fn flaw(cell: &Cell, measured: &Measured<'_>) -> Option<String> {
    let valid = cell.valid.as_ref()?;
    let whole = [START, END].map(str::to_string);
    let window = Window::between(measured.times, &whole)?;
    let value = |name: &str| figure(cell, measured, &window, name);
    (!valid.that.holds(&value)).then(|| valid.that.found(&value))
}

/// A figure of traffic or of a probe. The schema has checked its name.
fn figure(cell: &Cell, measured: &Measured<'_>, window: &Window, name: &str) -> Value {
    if name == WINDOW_LENGTH {
        let end = time_of(measured.times, END).unwrap_or_default();
        return Value::One(milliseconds(window.length(end)));
    }
    let (id, figure) = name.split_once('.').unwrap_or((name, ""));
    if let Some(n) = cell.traffic.iter().position(|stream| stream.id == id) {
        return measured.records[n].figure(figure, window);
    }
    let n = cell.probes.iter().position(|probe| probe.id == id);
    n.map_or(Value::One(f64::NAN), |n| {
        let probe = &cell.probes[n].kind;
        probe.figure(figure, window, &cell.network.topology, &measured.series[n])
    })
}

/// A verdict for each claim and each cell that it selects.
pub fn verdicts(scenario: &Scenario, rows: &[Row]) -> Vec<Check> {
    let cells = scenario.cells.iter().enumerate();
    let pairs = cells.flat_map(|(n, cell)| scenario.claims.iter().map(move |c| (n, cell, c)));
    let has_row = |cell: &Cell, claim: &Claim| cell.rows.iter().any(|r| r.name == claim.row);
    let is_about = |cell: &Cell, claim: &Claim| {
        matrix::is_meant(&claim.of, &cell.name) && has_row(cell, claim)
    };
    let together = scenario.claims.iter().filter(|claim| claim.together);
    let together = together.map(|claim| {
        let own = rows
            .iter()
            .filter(|row| row.name == claim.row && is_about(&scenario.cells[row.cell], claim));
        let own: Vec<&Row> = own.collect();
        let column = |name: &str| Value::Many(own.iter().map(|row| row.get(name)).collect());
        Check {
            what: format!("{}: {}", claim.row, claim.says),
            passed: claim.that.holds(&column),
            found: claim.that.found(&column),
        }
    });
    pairs
        .filter(|(_, cell, claim)| !claim.together && is_about(cell, claim))
        // A part of the scenario may lack the other cell.
        .filter(|(n, _, claim)| claim.against.iter().all(|(_, cells)| cells[*n].is_some()))
        .map(|(n, cell, claim)| {
            let column = |name: &str| {
                let other = claim.against.iter().find_map(|(other, cells)| {
                    let name = name.strip_prefix(other)?.strip_prefix('.')?;
                    Some((cells[n]?, name))
                });
                let (cell, name) = other.unwrap_or((n, name));
                let rows = rows_of(rows, cell, claim);
                Value::Many(rows.map(|row| row.get(name)).collect())
            };
            let about = match cell.name.as_str() {
                "" => &claim.row,
                name => name,
            };
            Check {
                what: format!("{about}: {}", claim.says),
                passed: claim.that.holds(&column),
                found: claim.that.found(&column),
            }
        })
        .chain(together)
        .collect()
}

/// The rows of a cell that a claim is about.
fn rows_of<'a>(rows: &'a [Row], cell: usize, claim: &'a Claim) -> impl Iterator<Item = &'a Row> {
    rows.iter()
        .filter(move |row| row.cell == cell && row.name == claim.row)
}

impl Row {
    pub fn get(&self, name: &str) -> f64 {
        let found = self.figures.iter().find(|(known, _)| known == name);
        found.map_or(f64::NAN, |(_, figure)| *figure)
    }

    pub fn list(&self, name: &str) -> &[f64] {
        let found = self.lists.iter().find(|(known, _)| known == name);
        found.map_or(&[], |(_, list)| list)
    }
}

/// A row as one line of progress.
pub fn line(row: &Row) -> String {
    let parameters = row
        .parameters
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    let figures = row.figures.iter();
    let figures = figures.map(|(name, x)| format!("{name} {}", expression::figure(*x)));
    let words: Vec<String> = parameters.chain(figures).collect();
    format!("{}: {}", row.name, words.join(", "))
}

/// A table for each kind of row, with a line for each cell: one figure, or the median, minimum and
/// maximum.
pub fn tables(scenario: &Scenario, rows: &[Row]) -> String {
    let mut text = String::new();
    for name in scenario.kinds_of_rows() {
        let spec = |cell: &Cell| cell.rows.iter().find(|row| row.name == name).cloned();
        let cells = scenario.cells.iter().enumerate();
        let cells = cells.filter_map(|(n, cell)| Some((n, cell, spec(cell)?)));
        let cells: Vec<(usize, &Cell, RowSpec)> = cells.collect();
        let parameters = cells.iter().flat_map(|(_, cell, _)| &cell.parameters);
        let axes = distinct(parameters.map(|(axis, _)| axis.as_str()));
        let columns = cells.first().map_or(&[][..], |(_, _, spec)| &spec.columns);
        let columns = columns.iter().filter(|column| column.each.is_none());
        let columns: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
        let line = |(n, cell, _): &(usize, &Cell, RowSpec)| {
            let own = |row: &&Row| row.cell == *n && row.name == name;
            let own: Vec<&Row> = rows.iter().filter(own).collect();
            let values = axes.iter().map(|axis| cell.parameter(axis).unwrap_or("-"));
            let figures = columns.iter();
            let figures = figures.map(|name| spread(own.iter().map(|row| row.get(name))));
            let runs = std::iter::once(own.len().to_string());
            values
                .map(str::to_string)
                .chain(runs)
                .chain(figures)
                .collect()
        };
        let lines: Vec<Vec<String>> = cells.iter().map(line).collect();
        let header: Vec<&str> = axes
            .iter()
            .copied()
            .chain(["runs"])
            .chain(columns.clone())
            .collect();
        text += &format!("\n{name}\n{}", cli::table::table(&header, &lines));
    }
    text
}

fn spread(figures: impl Iterator<Item = f64>) -> String {
    let known: Vec<f64> = figures.filter(|x| !x.is_nan()).collect();
    let q = Quantiles::of(known);
    match q.count {
        0 => "-".to_string(),
        _ if q.min == q.max => expression::figure(q.p50),
        _ => {
            let [p50, min, max] = [q.p50, q.min, q.max].map(expression::figure);
            format!("{p50} ({min} to {max})")
        }
    }
}
