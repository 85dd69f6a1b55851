//! The tables, the raw data and the plots of a simulation.

use std::fmt::Write;

use super::figures::{Cell, Figure, Verdict};
use cli::failure::Failure;
use cli::table::table;
use measure::stats::Summary;
use report::output::Results;
use report::plot::{Plot, Series};

/// The figures by load, and what others found.
pub fn text(title: &str, cells: &[Cell], verdicts: &[Verdict]) -> String {
    let header = [
        "variant",
        "load",
        "loss %",
        "hop ms",
        "p50",
        "p99",
        "kbit/s",
        "end to end ms",
        "cross loss %",
        "done %",
    ];
    let rows: Vec<Vec<String>> = cells.iter().map(row).collect();
    let mut text = format!("{title}\n{}", table(&header, &rows));
    if !verdicts.is_empty() {
        let header = [
            "by", "variant", "load", "figure", "theirs", "ours", "verdict",
        ];
        let rows: Vec<Vec<String>> = verdicts.iter().map(verdict_row).collect();
        let _ = write!(
            text,
            "\nBeside what others found:\n{}",
            table(&header, &rows)
        );
    }
    let stood_still: u64 = cells.iter().map(|cell| cell.idle_with_work).sum();
    let _ = writeln!(
        text,
        "\nWork conservation: a wire stood still {stood_still} times while something waited."
    );
    text
}

/// Every run of every cell.
pub fn csv(cells: &[Cell]) -> String {
    let mut text = "variant,load,offered_load,run,seed,loss_percent,loss_of_sent_percent,hop_ms,\
                    one_way_ms,\
                    throughput_kbit,end_to_end_ms,cross_loss_percent,done_percent,wait_us,\
                    busy_percent\n"
        .to_owned();
    for cell in cells {
        for run in &cell.runs {
            let figures = [
                run.loss_percent,
                run.loss_of_sent_percent,
                run.hop_ms,
                run.one_way_ms,
                run.throughput_kbit,
                run.end_to_end_ms,
                run.cross_loss_percent,
                run.done_percent,
                run.wait_us,
                run.busy_percent,
            ];
            let figures = figures.map(|figure| match figure.is_finite() {
                true => format!("{figure:.6}"),
                false => String::new(),
            });
            let (variant, load, offered) = (&cell.variant, cell.load, cell.offered_load);
            let (run, seed, figures) = (run.run, run.seed, figures.join(","));
            let _ = writeln!(
                text,
                "\"{variant}\",{load},{offered:.6},{run},{seed},{figures}"
            );
        }
    }
    text
}

/// A picture per figure, its lines the variants, where there is more than one load.
pub fn plot(title: &str, cells: &[Cell], kept: &Results) -> Result<(), Failure> {
    let pictures = [
        (
            "loss",
            Figure::LossPercent,
            "loss of OpenFlow messages (%)",
            false,
        ),
        (
            "hop-delay",
            Figure::HopMs,
            "hop delay, packet-in to packet-out (ms)",
            true,
        ),
        (
            "throughput",
            Figure::ThroughputKbit,
            "throughput of the target (kbit/s)",
            false,
        ),
        (
            "end-to-end",
            Figure::EndToEndMs,
            "end-to-end delay of the target (ms)",
            true,
        ),
    ];
    for (name, figure, y_label, y_log) in pictures {
        let mut series: Vec<Series> = Vec::new();
        for cell in cells {
            let (y, half) = cell.figure(figure);
            let known = series.iter().position(|s| s.name == cell.variant);
            let at = known.unwrap_or_else(|| {
                series.push(Series {
                    name: cell.variant.clone(),
                    points: Vec::new(),
                    error: Some(Vec::new()),
                });
                series.len() - 1
            });
            series[at].points.push((cell.load, y));
            series[at]
                .error
                .get_or_insert_default()
                .push(half.unwrap_or(0.0));
        }
        if series.iter().all(|line| line.points.len() < 2) {
            return Ok(());
        }
        let plot = Plot {
            title: title.to_owned(),
            x_label: "normalised load".to_owned(),
            y_label: y_label.to_owned(),
            x_log: false,
            y_log,
            series,
        };
        kept.plot(name, &plot.lines())?;
    }
    Ok(())
}

fn row(cell: &Cell) -> Vec<String> {
    vec![
        cell.variant.clone(),
        format!("{}", cell.load),
        interval(&cell.loss_percent, 2),
        interval(&cell.hop_ms, 2),
        number(cell.hop_p50_ms, 2),
        number(cell.hop_p99_ms, 2),
        interval(&cell.throughput_kbit, 0),
        interval(&cell.end_to_end_ms, 1),
        interval(&cell.cross_loss_percent, 2),
        interval(&cell.done_percent, 1),
    ]
}

fn verdict_row(verdict: &Verdict) -> Vec<String> {
    let name = serde_json::to_value(verdict.figure).unwrap_or_default();
    let digits = if verdict.ours.abs() < 10.0 { 4 } else { 2 };
    let mut ours = number(verdict.ours, digits);
    if let Some(half) = verdict.ours_ci95.filter(|half| *half > 0.0) {
        let _ = write!(ours, " ± {half:.digits$}");
    }
    let judged = match (verdict.holds, &verdict.but) {
        (true, _) => "holds".to_owned(),
        (false, Some(why)) => format!("does not hold: {why}"),
        (false, None) => "DOES NOT HOLD".to_owned(),
    };
    vec![
        verdict.by.clone(),
        verdict.variant.clone(),
        format!("{}", verdict.load),
        name.as_str().unwrap_or_default().to_owned(),
        verdict.theirs.clone(),
        ours,
        judged,
    ]
}

/// The mean and half its 95 % confidence interval.
fn interval(summary: &Summary, digits: usize) -> String {
    match summary.count {
        0 => "-".to_owned(),
        _ if summary.ci95 == 0.0 => format!("{:.digits$}", summary.mean),
        _ => format!("{:.digits$} ± {:.digits$}", summary.mean, summary.ci95),
    }
}

fn number(value: f64, digits: usize) -> String {
    match value.is_finite() {
        true => format!("{value:.digits$}"),
        false => "-".to_owned(),
    }
}
