//! Plots of rows: a mean over the runs for each value of one axis.

use measure::stats::Summary;
use report::plot::{Bars, Plot, Series};

use crate::engine::matrix::is_meant;
use crate::engine::rows::Row;
use crate::engine::schema::{Cell, Scenario};

/// Columns of a row over one axis. Each combination of the other axes has a picture of its own.
#[derive(Clone, Debug)]
pub struct PlotSpec {
    pub id: String,
    pub title: String,
    /// The quantity of the figures, with its unit.
    pub label: String,
    pub row: String,
    pub columns: Vec<String>,
    pub by: String,
    /// A pattern of the cells that are drawn.
    pub of: String,
    /// An axis of the matrix; points have a line for each of its values.
    pub lines: Option<String>,
    /// Figures are drawn by their logarithms.
    pub log: bool,
    /// Bars for each value, rather than points at it.
    pub is_bars: bool,
    /// Draw the 95 % confidence intervals of the means.
    pub error: bool,
}

/// A cell's values on the axes that a picture is not over.
type Others<'a> = Vec<&'a (String, String)>;

/// All pictures, each with the name of its file.
pub fn draw(scenario: &Scenario, rows: &[Row]) -> Vec<(String, String)> {
    let pictures = scenario.plots.iter().flat_map(|spec| {
        let cells = scenario.cells.iter().enumerate();
        let cells = cells.filter(|(_, cell)| is_meant(&spec.of, &cell.name));
        let is_own = |axis: &String| *axis == spec.by || Some(axis) == spec.lines.as_ref();
        let mut groups: Vec<(Others<'_>, Vec<(usize, &Cell)>)> = Vec::new();
        for (n, cell) in cells {
            let others = cell.parameters.iter().filter(|(axis, _)| !is_own(axis));
            let others = others.collect();
            match groups.iter_mut().find(|(known, _)| *known == others) {
                Some((_, cells)) => cells.push((n, cell)),
                None => groups.push((others, vec![(n, cell)])),
            }
        }
        groups.into_iter().map(|(others, cells)| {
            let (mut file, mut title) = (spec.id.clone(), spec.title.clone());
            for (axis, words) in others {
                let plain = |c: char| {
                    if c.is_alphanumeric() || c == '.' {
                        c
                    } else {
                        '_'
                    }
                };
                file.push('-');
                file.extend(words.chars().map(plain));
                title += &format!(", {axis}={words}");
            }
            (file, picture(spec, title, &cells, rows))
        })
    });
    pictures.collect()
}

fn picture(spec: &PlotSpec, title: String, cells: &[(usize, &Cell)], rows: &[Row]) -> String {
    let value = |cell: &Cell| cell.parameter(&spec.by).unwrap_or_default().to_string();
    let summaries = |column: &str, cells: &[(usize, &Cell)]| -> Vec<Summary> {
        let of_cell = |(n, _): &(usize, &Cell)| {
            let own = rows.iter().filter(|r| r.cell == *n && r.name == spec.row);
            let figures = own.map(|row| row.get(column)).filter(|x| !x.is_nan());
            Summary::of(&figures.collect::<Vec<f64>>())
        };
        cells.iter().map(of_cell).collect()
    };
    let means = |of: &[Summary]| of.iter().map(|s| s.mean).collect::<Vec<f64>>();
    let errors = |of: &[Summary]| of.iter().map(|s| s.ci95).collect::<Vec<f64>>();
    if spec.is_bars {
        let columns = spec.columns.iter();
        let columns = columns.map(|column| (column, summaries(column, cells)));
        let columns: Vec<(&String, Vec<Summary>)> = columns.collect();
        let bars = Bars {
            title,
            y_label: spec.label.clone(),
            groups: cells.iter().map(|(_, cell)| value(cell)).collect(),
            parts: columns
                .iter()
                .map(|(name, of)| (name.to_string(), means(of)))
                .collect(),
            stacked: false,
            error: spec
                .error
                .then(|| columns.iter().map(|(_, of)| errors(of)).collect()),
        };
        return bars.svg();
    }
    let at = |cell: &Cell| value(cell).parse().unwrap_or(f64::NAN);
    let lines = lines(spec, cells);
    let series = lines.iter().flat_map(|(line, cells)| {
        spec.columns.iter().map(move |column| {
            let of = summaries(column, cells);
            Series {
                name: match (*line, spec.columns.len()) {
                    ("", _) => column.clone(),
                    (line, 1) => line.to_string(),
                    (line, _) => format!("{line}, {column}"),
                },
                points: cells
                    .iter()
                    .map(|(_, cell)| at(cell))
                    .zip(means(&of))
                    .collect(),
                error: spec.error.then(|| errors(&of)),
            }
        })
    });
    let plot = Plot {
        title,
        x_label: spec.by.clone(),
        y_label: spec.label.clone(),
        y_log: spec.log,
        series: series.collect(),
        ..Plot::default()
    };
    plot.lines()
}

/// The cells of each line with the line's value; all cells where a column is a line.
fn lines<'a>(
    spec: &PlotSpec,
    cells: &[(usize, &'a Cell)],
) -> Vec<(&'a str, Vec<(usize, &'a Cell)>)> {
    let mut lines: Vec<(&str, Vec<(usize, &Cell)>)> = Vec::new();
    for (n, cell) in cells {
        let axis = spec.lines.as_deref();
        let value = axis.and_then(|axis| cell.parameter(axis)).unwrap_or("");
        match lines.iter_mut().find(|(known, _)| *known == value) {
            Some((_, own)) => own.push((*n, cell)),
            None => lines.push((value, vec![(*n, cell)])),
        }
    }
    lines
}
