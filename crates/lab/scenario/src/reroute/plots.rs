//! The plots of an experiment: counts by row, and arrivals about a change.

use crate::reroute::part::Part;
use crate::reroute::report::Row;
use crate::reroute::settings::{Change, Settings};
use report::plot::{Bars, Plot, Series};

/// In the plots of arrivals.
const TRACE_MS: std::ops::Range<f64> = -10.0..80.0;

/// By the names of their files, without an ending.
pub fn all(settings: &Settings, rows: &[Row], parts: &[Part]) -> Vec<(String, String)> {
    let mut plots = Vec::new();
    for rate in &settings.all_rates() {
        let of_rate: Vec<&Row> = rows.iter().filter(|row| row.rate_mbps == *rate).collect();
        if !of_rate.is_empty() {
            plots.push((format!("counts-{rate}"), counts(*rate, &of_rate).svg()));
        }
        for (number, change) in settings.changes.iter().enumerate() {
            // When the change comes to pass is the stream's affair.
            if change.bursts.is_some() {
                continue;
            }
            for (name, word) in [(&change.there, "there"), (&change.back, "back")] {
                let mut runs = parts.iter();
                let is_its = |part: &&Part| part.row == *name && part.rate_mbps == *rate;
                if let Some(part) = runs.find(is_its) {
                    // With one change there is nothing to tell apart.
                    let of = match settings.changes.len() {
                        1 => String::new(),
                        _ => format!("-{}", number + 1),
                    };
                    let file = format!("arrivals-{rate}{of}-{word}");
                    plots.push((file, arrivals(change, part).lines()));
                }
            }
        }
    }
    plots
}

/// Means over the runs, with their 95 % intervals.
fn counts(rate_mbps: f64, rows: &[&Row]) -> Bars {
    let part = |name: &str, of: fn(&Row) -> f64| {
        let values = rows.iter().map(|row| of(row)).collect();
        (name.to_owned(), values)
    };
    let error = |of: fn(&Row) -> f64| rows.iter().map(|row| of(row)).collect();
    Bars {
        title: format!("Lost and reordered when the way changes, {rate_mbps} Mbit/s"),
        y_label: "packets of a run".to_owned(),
        groups: rows.iter().map(|row| row.row.clone()).collect(),
        parts: vec![
            part("lost", |row| row.lost.mean),
            part("reordered", |row| row.reordered.mean),
        ],
        stacked: false,
        error: Some(vec![
            error(|row| row.lost.ci95),
            error(|row| row.reordered.ci95),
        ]),
    }
}

/// The delay of each packet at the time of its arrival: a hole is loss, and what is overtaken
/// arrives among packets of another delay.
fn arrivals(change: &Change, part: &Part) -> Plot {
    let near = part
        .trace
        .iter()
        .filter(|t| TRACE_MS.contains(&t.received_ms));
    let points = near.map(|t| (t.received_ms, t.received_ms - t.sent_ms));
    Plot {
        title: format!("{}, {} Mbit/s: the first run", part.row, part.rate_mbps),
        x_label: "arrival, from when the change was asked for (ms)".to_owned(),
        y_label: "one way (ms)".to_owned(),
        series: vec![Series {
            name: format!(
                "packets; the ways take {} and {} ms",
                change.from_ms, change.to_ms
            ),
            points: points.collect(),
            error: None,
        }],
        ..Plot::default()
    }
}
