//! Plots of rows: a mean over the runs for each value of one axis.

use measure::stats::Summary;
use report::plot::{Bars, Plot, Series};

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
        let mut groups: Vec<(Others<'_>, Vec<(usize, &Cell)>)> = Vec::new();
        for (n, cell) in cells {
            let others = cell.parameters.iter().filter(|(axis, _)| *axis != spec.by);
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
    let summaries = |column: &str| -> Vec<Summary> {
        let of_cell = |(n, _): &(usize, &Cell)| {
            let own = rows.iter().filter(|r| r.cell == *n && r.name == spec.row);
            let figures = own.map(|row| row.get(column)).filter(|x| !x.is_nan());
            Summary::of(&figures.collect::<Vec<f64>>())
        };
        cells.iter().map(of_cell).collect()
    };
    let columns: Vec<(&String, Vec<Summary>)> = spec
        .columns
        .iter()
        .map(|column| (column, summaries(column)))
        .collect();
    let means = |of: &[Summary]| of.iter().map(|s| s.mean).collect::<Vec<f64>>();
    let errors = |of: &[Summary]| of.iter().map(|s| s.ci95).collect::<Vec<f64>>();
    if spec.is_bars {
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
    let series = columns.iter().map(|(name, of)| Series {
        name: name.to_string(),
        points: cells
            .iter()
            .map(|(_, cell)| at(cell))
            .zip(means(of))
            .collect(),
        error: spec.error.then(|| errors(of)),
    });
    let plot = Plot {
        title,
        x_label: spec.by.clone(),
        y_label: spec.label.clone(),
        series: series.collect(),
        ..Plot::default()
    };
    plot.lines()
}
