//! Occupancy over time, and misses by policy beside the simulator's.

use crate::table::report::{Document, Row};
use crate::table::stage::Run;
use report::plot::{Bars, Plot, Series};

/// Each with the name of its file.
pub fn all(document: &Document, runs: &[Run]) -> Vec<(String, String)> {
    let mut plots = Vec::new();
    for (cells, of_cells) in document.settings.cells.iter().enumerate() {
        let rows: Vec<&Row> = document.rows.iter().filter(|r| r.cells == cells).collect();
        let topology = of_cells.topology.replace(',', "-");
        let of = format!("{}-{topology}", of_cells.entries);
        if of_cells.loads.len() > 1 {
            plots.push((format!("misses-{of}.svg"), by_load(&rows)));
        }
        for load in &of_cells.loads {
            let here: Vec<&Row> = rows.iter().copied().filter(|r| r.load == *load).collect();
            if here.is_empty() {
                continue;
            }
            plots.push((format!("misses-{of}-{load}.svg"), by_policy(&here)));
            let first = |run: &&Run| {
                (run.place.cells, run.place.load, run.place.round) == (cells, *load, 0)
            };
            let first: Vec<&Run> = runs.iter().filter(first).collect();
            let svg = over_time(document, here[0], &first);
            plots.push((format!("occupancy-{of}-{load}.svg"), svg));
        }
    }
    plots
}

/// The greatest occupancy in each quarter of a second, with its beginning.
pub fn quarters(occupancy: &[(f64, u32)]) -> Vec<(f64, u32)> {
    let mut quarters: Vec<(f64, u32)> = Vec::new();
    for (at, entries) in occupancy {
        let quarter = (at * 4.0).floor() / 4.0;
        match quarters.last_mut().filter(|(last, _)| *last == quarter) {
            Some((_, most)) => *most = (*most).max(*entries),
            None => quarters.push((quarter, *entries)),
        }
    }
    quarters
}

fn over_time(document: &Document, row: &Row, runs: &[&Run]) -> String {
    let seconds = document.settings.seconds;
    let policies = &document.settings.policies;
    let mut series: Vec<Series> = (runs.iter())
        .map(|run| Series {
            name: policies[run.place.policy].name.clone(),
            points: (quarters(&run.occupancy).into_iter())
                .map(|(s, entries)| (s, f64::from(entries)))
                .collect(),
            error: None,
        })
        .collect();
    let mark = 0.9 * f64::from(row.entries);
    series.push(Series {
        name: "0.9 of the table".to_owned(),
        points: vec![(0.0, mark), (seconds, mark)],
        error: None,
    });
    let plot = Plot {
        title: format!("Occupancy of Open vSwitch: {}", row.place()),
        x_label: "time (s)".to_owned(),
        y_label: "entries".to_owned(),
        x_log: false,
        y_log: false,
        series,
    };
    plot.lines()
}

fn by_load(rows: &[&Row]) -> String {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let known = series.iter().position(|s| s.name == row.policy);
        let at = known.unwrap_or_else(|| {
            series.push(Series {
                name: row.policy.clone(),
                ..Series::default()
            });
            series.len() - 1
        });
        series[at].points.push((row.load, row.misses_per_flow.mean));
    }
    let plot = Plot {
        title: rows.first().map_or(String::new(), |row| {
            format!(
                "Misses on Open vSwitch: {} entries, {}",
                row.entries, row.topology
            )
        }),
        x_label: "new flows, times what fits".to_owned(),
        y_label: "misses per flow".to_owned(),
        x_log: true,
        y_log: true,
        series,
    };
    plot.lines()
}

fn by_policy(rows: &[&Row]) -> String {
    let values = |read: fn(&Row) -> f64| rows.iter().map(|row| read(row)).collect::<Vec<f64>>();
    let bars = Bars {
        title: format!("Misses: {}", rows[0].place()),
        y_label: "misses per flow".to_owned(),
        groups: rows.iter().map(|row| row.policy.clone()).collect(),
        parts: vec![
            (
                "Open vSwitch".to_owned(),
                values(|row| row.misses_per_flow.mean),
            ),
            (
                "simulated".to_owned(),
                values(|row| row.simulated_misses_per_flow.mean),
            ),
        ],
        stacked: false,
        error: None,
    };
    bars.svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_is_told_by_its_most() {
        let samples = [(0.0, 5), (0.1, 9), (0.24, 7), (0.25, 1), (1.3, 2)];
        assert_eq!(quarters(&samples), [(0.0, 9), (0.25, 1), (1.25, 2)]);
    }
}
