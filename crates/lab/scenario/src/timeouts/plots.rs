//! The plots that a scenario asks for, and their data.

use std::fmt::Write;

use crate::timeouts::cell::StreamRun;
use crate::timeouts::figures::{PingRow, Row, Spread};
use crate::timeouts::load::Busy;
use crate::timeouts::report::Document;
use crate::timeouts::settings::{PlotOf, X, Y};
use crate::timeouts::steps::Found;
use report::plot::{Plot, Series};

/// Means over the runs, with their 95 % intervals where there is a value per run.
pub fn plot(of: &PlotOf, document: &Document, found: &Found) -> Plot {
    let series = match (of.x, of.y) {
        (X::Second, _) => of
            .rows
            .iter()
            .map(|row| by_second(of, row, found))
            .collect(),
        (X::SizeBytes | X::Request, _) => {
            let rows = of.rows.iter();
            rows.map(|row| of_pings(of, row, &document.pings)).collect()
        }
        (X::RateMbps, _) => {
            let rows = of.rows.iter();
            rows.map(|row| by_rate(of, row, &document.rows)).collect()
        }
        (X::At, _) => vec![by_place(of, document)],
    };
    let x_label = match of.x {
        X::RateMbps => "rate (Mbit/s)",
        X::SizeBytes => "data of a request (bytes)",
        X::At => "row",
        X::Second => "time (s)",
        X::Request => "request",
    };
    let y_label = match (of.y, of.x) {
        (Y::Reordered, X::Second) => "reordered packets in a second",
        (Y::Reordered, _) => "reordered packets in a run",
        (Y::JitterMs, _) => "jitter (ms)",
        (Y::DelayP99Ms, _) => "99th percentile of the delay (ms)",
        (Y::RttMs, _) => "round trip (ms)",
        (Y::CoreCpuPercent, _) => "the controller's core (percent)",
        (Y::ControllerCpuPercent, _) => "the controller (percent of a core)",
    };
    Plot {
        title: of.title.clone(),
        x_label: of.x_label.clone().unwrap_or(x_label.to_owned()),
        y_label: y_label.to_owned(),
        y_log: of.y_log,
        series,
        ..Plot::default()
    }
}

/// The data of a plot, as CSV.
pub fn data(plot: &Plot) -> String {
    let mut text = "series,x,y,ci95\n".to_owned();
    for series in &plot.series {
        for (place, (x, y)) in series.points.iter().enumerate() {
            let error = series.error.as_ref().and_then(|errors| errors.get(place));
            let error = error.map_or(String::new(), |error| format!("{error:.4}"));
            let _ = writeln!(text, "\"{}\",{x},{y:.4},{error}", series.name);
        }
    }
    text
}

fn value(of: &PlotOf, row: &Row) -> Spread {
    match of.y {
        Y::JitterMs => row.jitter_ms,
        Y::DelayP99Ms => Spread::of(std::iter::once(row.delay_ms.p99)),
        _ => row.reordered,
    }
}

fn series(name: &str, points: impl Iterator<Item = (f64, Spread)>) -> Series {
    let mut points: Vec<(f64, Spread)> = points.collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Series {
        name: name.to_owned(),
        points: points.iter().map(|(x, spread)| (*x, spread.mean)).collect(),
        error: Some(points.iter().map(|(_, spread)| spread.ci95).collect()),
    }
}

fn by_rate(of: &PlotOf, name: &str, rows: &[Row]) -> Series {
    let rows = rows.iter().filter(|row| row.row == name);
    series(name, rows.map(|row| (row.rate_mbps, value(of, row))))
}

fn by_place(of: &PlotOf, document: &Document) -> Series {
    let places = document.settings.streams.iter().filter_map(|streams| {
        let at = streams.at.filter(|_| of.rows.contains(&streams.name))?;
        let mut rows = document.rows.iter();
        let is_its = |row: &&Row| {
            row.row == streams.name && of.only.is_none_or(|rate| rate == row.rate_mbps)
        };
        Some((at, value(of, rows.find(is_its)?)))
    });
    let rate = of.only.map(|rate| format!("{rate} Mbit/s"));
    series(&rate.unwrap_or("streams".to_owned()), places)
}

/// The median by size: one answer that waited for the machine is not what a size costs.
fn of_pings(of: &PlotOf, name: &str, rows: &[PingRow]) -> Series {
    let is_its = |row: &&PingRow| {
        row.row == name && of.only.is_none_or(|size| size == f64::from(row.size_bytes))
    };
    let rows: Vec<&PingRow> = rows.iter().filter(is_its).collect();
    let points = match (of.x, rows.first()) {
        (X::Request, Some(row)) => {
            let answered = row.by_request_ms.iter().enumerate();
            let points = answered.filter_map(|(n, ms)| Some(((n + 1) as f64, (*ms)?)));
            points.collect()
        }
        _ => rows
            .iter()
            .map(|row| (f64::from(row.size_bytes), row.rtt_ms.p50))
            .collect(),
    };
    Series {
        name: name.to_owned(),
        points,
        error: None,
    }
}

/// The mean over the runs, at the end of each second.
fn by_second(of: &PlotOf, name: &str, found: &Found) -> Series {
    let is_its =
        |run: &&StreamRun| run.row == name && of.only.is_none_or(|rate| rate == run.rate_mbps);
    let runs: Vec<&StreamRun> = found.streams.iter().filter(is_its).collect();
    let at = |run: &StreamRun, second: usize| -> Option<f64> {
        let busy = |share: fn(&Busy) -> f64| run.busy_by_second.get(second).map(share);
        match of.y {
            Y::CoreCpuPercent => busy(|busy| busy.core),
            Y::ControllerCpuPercent => busy(|busy| busy.controller),
            _ => run
                .reordered_by_second
                .get(second)
                .map(|count| *count as f64),
        }
    };
    let seconds = runs.iter().map(|run| run.reordered_by_second.len()).max();
    let points = (0..seconds.unwrap_or(0)).filter_map(|second| {
        let values: Vec<f64> = runs.iter().filter_map(|run| at(run, second)).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (!values.is_empty()).then_some(((second + 1) as f64, mean))
    });
    Series {
        name: name.to_owned(),
        points: points.collect(),
        error: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::quantiles::Quantiles;

    fn run(row: &str, reordered: &[u64], core: &[f64]) -> StreamRun {
        let busy = |core: &f64| Busy {
            core: *core,
            controller: 1.0,
        };
        StreamRun {
            row: row.to_owned(),
            rate_mbps: 5.0,
            reordered_by_second: reordered.to_vec(),
            busy_by_second: core.iter().map(busy).collect(),
            ..StreamRun::default()
        }
    }

    fn of(words: &str) -> PlotOf {
        toml::from_str(&format!("file = 'f'\ntitle = 't'\nrows = ['a']\n{words}")).unwrap()
    }

    #[test]
    fn a_second_is_the_mean_of_the_runs_that_have_it() {
        let found = Found {
            streams: vec![
                run("a", &[2, 0, 4], &[50.0, 60.0]),
                run("a", &[0, 0, 2], &[70.0]),
                run("b", &[9, 9, 9], &[9.0]),
            ],
            ..Found::default()
        };
        let points = |words| by_second(&of(words), "a", &found).points;
        assert_eq!(
            points("x = 'second'\ny = 'reordered'"),
            [(1.0, 1.0), (2.0, 0.0), (3.0, 3.0)]
        );
        assert_eq!(
            points("x = 'second'\ny = 'core_cpu_percent'"),
            [(1.0, 60.0), (2.0, 60.0)]
        );
        assert_eq!(points("x = 'second'\ny = 'reordered'\nonly = 1"), []);
    }

    #[test]
    fn requests_and_sizes_are_told_apart() {
        let row = |size_bytes, p50| PingRow {
            row: "a".to_owned(),
            size_bytes,
            runs: 1,
            sent: 2,
            lost: 1,
            rtt_ms: Quantiles {
                p50,
                ..Quantiles::default()
            },
            mean_ms: 9.0,
            by_request_ms: vec![None, Some(3.0)],
        };
        let rows = [row(64, 1.0), row(1472, 2.0)];
        let points = |words| of_pings(&of(words), "a", &rows).points;
        assert_eq!(
            points("x = 'size_bytes'\ny = 'rtt_ms'"),
            [(64.0, 1.0), (1472.0, 2.0)]
        );
        assert_eq!(
            points("x = 'request'\ny = 'rtt_ms'\nonly = 64"),
            [(2.0, 3.0)]
        );
        let plot = Plot {
            series: vec![of_pings(&of("x = 'request'\ny = 'rtt_ms'"), "a", &rows)],
            ..Plot::default()
        };
        assert_eq!(data(&plot), "series,x,y,ci95\n\"a\",2,3.0000,\n");
    }
}
