//! The figures of each run, and what is claimed of them.

use std::time::Duration;

use measure::quantiles::Quantiles;
use serde::{Serialize, Serializer};

use crate::engine::expression::{self, Value};
use crate::engine::matrix;
use crate::engine::probe::Series;
use crate::engine::schema::{AGAINST, Cell, Claim, Column, RowSpec, Run, Scenario};
use crate::engine::timeline::{END, START, Window};
use crate::engine::traffic::Record;
use crate::report::Check;

/// The measurements of one run.
pub struct Measured<'a> {
    /// Each moment as it happened.
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
    /// Earlier tries of this run that were not valid; none if every run is valid.
    pub repeats: Option<u64>,
    /// NaN is a missing figure.
    pub figures: Vec<(String, f64)>,
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
        let run = std::iter::once(("run", self.run.into()));
        let repeats = self.repeats.map(|n| ("repeats", n.into()));
        serializer.collect_map(parameters.chain(run).chain(repeats).chain(figures))
    }
}

/// The rows of one run.
pub fn rows(cell: &Cell, run: &Run, measured: &Measured<'_>) -> Vec<Row> {
    let row = |spec: &RowSpec| {
        let figure = |column: &Column| {
            let window = Window::between(measured.times, &column.window);
            let value = window.map(|window| {
                column
                    .value
                    .value(&|name| figure(cell, measured, &window, name))
            });
            match value {
                Some(Value::One(one)) => (column.name.clone(), one),
                _ => (column.name.clone(), f64::NAN),
            }
        };
        Row {
            name: spec.name.clone(),
            cell: run.cell,
            run: run.number,
            parameters: cell.parameters.clone(),
            repeats: None,
            figures: spec.columns.iter().map(figure).collect(),
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

/// A verdict for each claim and each cell it means.
pub fn verdicts(scenario: &Scenario, rows: &[Row]) -> Vec<Check> {
    let cells = scenario.cells.iter().enumerate();
    let pairs = cells.flat_map(|(n, cell)| scenario.claims.iter().map(move |c| (n, cell, c)));
    pairs
        .filter(|(_, cell, claim)| matrix::is_meant(&claim.of, &cell.name))
        // The quick part may lack the other cell.
        .filter(|(n, _, claim)| {
            claim
                .against
                .as_ref()
                .is_none_or(|cells| cells[*n].is_some())
        })
        .map(|(n, cell, claim)| {
            let column = |name: &str| {
                let against = claim.against.as_ref().and_then(|cells| cells[n]);
                let (rows, name) = match (name.strip_prefix(AGAINST), against) {
                    (Some(name), Some(other)) => (rows_of(rows, other, claim), name),
                    _ => (rows_of(rows, n, claim), name),
                };
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

/// A table for each kind of row, with a line for each cell: one figure, or median, least and most.
pub fn tables(scenario: &Scenario, rows: &[Row]) -> String {
    let Some(first) = scenario.cells.first() else {
        return String::new();
    };
    let mut text = String::new();
    for spec in &first.rows {
        let axes = first.parameters.iter().map(|(name, _)| name.as_str());
        let columns = spec.columns.iter().map(|column| column.name.as_str());
        let header: Vec<&str> = axes.chain(["runs"]).chain(columns).collect();
        let line = |(n, cell): (usize, &Cell)| {
            let own = |row: &&Row| row.cell == n && row.name == spec.name;
            let own: Vec<&Row> = rows.iter().filter(own).collect();
            let values = cell.parameters.iter().map(|(_, value)| value.clone());
            let figures = spec.columns.iter();
            let figures = figures.map(|c| spread(own.iter().map(|row| row.get(&c.name))));
            let runs = std::iter::once(own.len().to_string());
            values.chain(runs).chain(figures).collect()
        };
        let lines: Vec<Vec<String>> = scenario.cells.iter().enumerate().map(line).collect();
        text += &format!("\n{}\n{}", spec.name, cli::table::table(&header, &lines));
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
