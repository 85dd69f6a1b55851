//! Plots of rows: a mean over the runs for each value of one axis, or over time.

use measure::distinct;
use measure::stats::Summary;
use report::plot::{Bars, Plot, Series};

use crate::engine::matrix;
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
    /// Patterns of the cells; all of them if not given.
    pub of: Option<Vec<String>>,
    pub kind: Kind,
    /// The axis of bars and points.
    pub by: Option<String>,
    /// An axis of the matrix; a picture has a line for each of its values.
    pub lines: Option<String>,
    /// The axis of figures is logarithmic.
    pub log: bool,
    /// The axis of points is logarithmic too.
    pub log_by: bool,
    /// Draw the 95 % confidence intervals of the means.
    pub error: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Bars,
    Points,
    /// Lists from a run, part by part.
    Lists,
}

/// A cell's values on the axes other than those of the picture.
type Others<'a> = Vec<&'a (String, String)>;

/// Cells with their numbers.
type Cells<'a> = Vec<(usize, &'a Cell)>;

/// All pictures, each with the name of its file.
pub fn draw(scenario: &Scenario, rows: &[Row]) -> Vec<(String, String)> {
    let pictures = scenario.plots.iter().flat_map(|spec| {
        let is_meant = |cell: &Cell| {
            let of = spec.of.as_ref();
            of.is_none_or(|of| of.iter().any(|of| matrix::is_meant(of, &cell.name)))
                && cell.rows.iter().any(|row| row.name == spec.row)
        };
        let cells = scenario
            .cells
            .iter()
            .enumerate()
            .filter(|(_, cell)| is_meant(cell));
        let mut groups: Vec<(Others<'_>, Cells<'_>)> = Vec::new();
        for (n, cell) in cells {
            let own = [&spec.by, &spec.lines];
            let is_other = |axis: &String| !own.into_iter().flatten().any(|own| own == axis);
            let others = cell.parameters.iter().filter(|(axis, _)| is_other(axis));
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
    let word = |cell: &Cell, axis: &Option<String>| {
        let word = axis.as_ref().and_then(|axis| cell.parameter(axis));
        word.unwrap_or_default().to_string()
    };
    let of_cell = |cell: usize| {
        let own = move |row: &&Row| row.cell == cell && row.name == spec.row;
        rows.iter().filter(own)
    };
    // A series for each column and each value of the axis of lines.
    let mut series: Vec<(String, &String, Cells<'_>)> = Vec::new();
    for column in &spec.columns {
        for (n, cell) in cells {
            let word = word(cell, &spec.lines);
            let name = match (word.as_str(), spec.columns.len()) {
                ("", _) => column.clone(),
                (_, 1) => word,
                _ => format!("{word}, {column}"),
            };
            match series.iter_mut().find(|(known, ..)| *known == name) {
                Some((.., cells)) => cells.push((*n, *cell)),
                None => series.push((name, column, vec![(*n, *cell)])),
            }
        }
    }
    if spec.kind == Kind::Lists {
        let lists = series.into_iter().map(|(name, column, cells)| {
            let each = (cells.iter().flat_map(|(_, cell)| &cell.rows))
                .find(|row| row.name == spec.row)
                .and_then(|row| row.columns.iter().find(|known| known.name == *column)?.each);
            let rows = cells.iter().flat_map(|(n, _)| of_cell(*n));
            let lists: Vec<&[f64]> = rows.map(|row| row.list(column)).collect();
            let each = each.unwrap_or_default().as_secs_f64();
            Series::new(name, means_by_part(&lists, each))
        });
        return lines(spec, title, "time (s)", lists.collect());
    }
    let summary = |n: usize, column: &str| {
        let figures = of_cell(n).map(|row| row.get(column));
        Summary::of(figures.filter(|x| !x.is_nan()))
    };
    if spec.kind == Kind::Bars {
        let groups = distinct(cells.iter().map(|(_, cell)| word(cell, &spec.by)));
        let parts = series.iter().map(|(name, column, cells)| {
            let of_group = |group: &String| {
                let own = cells
                    .iter()
                    .find(|(_, cell)| word(cell, &spec.by) == *group);
                own.map_or_else(Summary::default, |(n, _)| summary(*n, column))
            };
            (name, groups.iter().map(of_group).collect::<Vec<Summary>>())
        });
        let parts: Vec<(&String, Vec<Summary>)> = parts.collect();
        let means = |of: &[Summary]| of.iter().map(|s| s.mean).collect();
        let errors = |of: &[Summary]| of.iter().map(|s| s.ci95).collect();
        let bars = Bars {
            title,
            y_label: spec.label.clone(),
            parts: parts
                .iter()
                .map(|(name, of)| (name.to_string(), means(of)))
                .collect(),
            stacked: false,
            error: (spec.error).then(|| parts.iter().map(|(_, of)| errors(of)).collect()),
            groups,
        };
        return bars.svg();
    }
    let points = series.into_iter().map(|(name, column, cells)| {
        let at = |cell: &Cell| word(cell, &spec.by).parse().unwrap_or(f64::NAN);
        let found = cells
            .iter()
            .map(|(n, cell)| (at(cell), summary(*n, column)));
        let (points, errors) = found.map(|(x, s)| ((x, s.mean), s.ci95)).unzip();
        Series {
            name,
            points,
            error: spec.error.then_some(errors),
        }
    });
    let by = spec.by.as_deref().unwrap_or_default();
    lines(spec, title, by, points.collect())
}

fn lines(spec: &PlotSpec, title: String, x_label: &str, series: Vec<Series>) -> String {
    let plot = Plot {
        x_log: spec.log_by,
        y_log: spec.log,
        ..Plot::new(title, [x_label, &spec.label], series)
    };
    plot.lines()
}

/// The mean of each part over the runs that have it, at the end of the part.
fn means_by_part(lists: &[&[f64]], each: f64) -> Vec<(f64, f64)> {
    let count = lists.iter().map(|list| list.len()).max().unwrap_or(0);
    let mean = |part: usize| {
        let values = lists.iter().filter_map(|list| list.get(part).copied());
        let values: Vec<f64> = values.filter(|x| !x.is_nan()).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (!values.is_empty()).then_some(((part + 1) as f64 * each, mean))
    };
    (0..count).filter_map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_the_mean_of_the_runs_that_have_it() {
        let lists: [&[f64]; 3] = [&[2.0, 0.0, 4.0], &[0.0, f64::NAN, 2.0], &[4.0]];
        let found = means_by_part(&lists, 0.5);
        assert_eq!(found, [(0.5, 2.0), (1.0, 0.0), (1.5, 3.0)]);
        assert_eq!(means_by_part(&[&[f64::NAN]], 1.0), []);
    }
}
