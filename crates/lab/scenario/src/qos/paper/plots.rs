//! The paper's Figs. 5 to 16, by their numbers.

use crate::qos::paper::figures::{Cell, Measure, Row, figure};
use crate::qos::paper::settings::Settings;
use cli::failure::Failure;
use measure::stats::Summary;
use report::output::Results;
use report::plot::{Bars, Plot, Series};

/// Number, what it shows and where: by controller before QoS.
const BEFORE: [(u32, Measure, Cell); 8] = [
    (5, Measure::First, Cell::Idle),
    (6, Measure::First, Cell::Background),
    (7, Measure::Later, Cell::Idle),
    (8, Measure::Later, Cell::Background),
    (9, Measure::Tcp, Cell::Idle),
    (10, Measure::Tcp, Cell::Background),
    (11, Measure::Udp, Cell::Idle),
    (12, Measure::Udp, Cell::Background),
];
/// Under one controller, idle, before and after.
const AFTER: [(u32, Measure); 4] = [
    (13, Measure::First),
    (14, Measure::Later),
    (15, Measure::Tcp),
    (16, Measure::Udp),
];

/// The greatest mean divided by the least; above this ratio the axis is logarithmic.
const LINEAR_MAX: f64 = 50.0;

pub fn write(results: &Results, settings: &Settings, rows: &[Row]) -> Result<(), Failure> {
    if !results.are_kept() || rows.is_empty() {
        return Ok(());
    }
    for (number, measure, cell) in BEFORE {
        let lines = settings.controllers.iter();
        let lines = lines.map(|c| (c.name.clone(), c.name.clone(), cell));
        let picture = Picture {
            title: format!("Fig. {number}: {}, {}", what(measure), cell.name()),
            measure,
            lines: lines.collect(),
        };
        let name = format!("fig-{number:02}-{}-{}", measure.word(), cell.word());
        results.plot(&name, &picture.svg(settings, rows))?;
    }
    let judged = settings.judged();
    for (number, measure) in AFTER {
        let lines = Cell::ALL.map(|cell| (cell.name().to_owned(), judged.to_owned(), cell));
        let picture = Picture {
            title: format!("Fig. {number}: {} with QoS, {judged}", what(measure)),
            measure,
            lines: lines.to_vec(),
        };
        let name = format!("fig-{number}-{}-qos", measure.word());
        results.plot(&name, &picture.svg(settings, rows))?;
    }
    Ok(())
}

fn what(measure: Measure) -> &'static str {
    match measure {
        Measure::First => "time of the first packet",
        Measure::Later => "average round trip",
        Measure::Tcp => "TCP transfer time",
        Measure::Udp => "UDP packet loss",
    }
}

struct Picture {
    title: String,
    measure: Measure,
    /// Name, controller and cell of each.
    lines: Vec<(String, String, Cell)>,
}

impl Picture {
    fn svg(&self, settings: &Settings, rows: &[Row]) -> String {
        match self.measure.is_icmp() {
            true => self.bars(settings, rows).svg(),
            false => self.plot(settings, rows).lines(),
        }
    }

    fn summary(&self, rows: &[Row], at: u32, controller: &str, cell: Cell) -> Summary {
        let figure = figure(rows, (self.measure, at, cell), controller);
        figure.map_or(Summary::default(), |figure| figure.of)
    }

    fn y_label(&self) -> String {
        format!("{}, mean with 95 % interval", self.measure.name())
    }

    fn bars(&self, settings: &Settings, rows: &[Row]) -> Bars {
        let places = self.measure.places(settings);
        let of = |(_, controller, cell): &(String, String, Cell)| -> Vec<Summary> {
            let at = places.iter();
            at.map(|at| self.summary(rows, *at, controller, *cell))
                .collect()
        };
        let part = |line: &(String, String, Cell)| {
            let means = of(line).iter().map(|summary| summary.mean).collect();
            (line.0.clone(), means)
        };
        let error = |line| of(line).iter().map(|summary| summary.ci95).collect();
        Bars {
            title: self.title.clone(),
            y_label: self.y_label(),
            groups: places.iter().map(|at| self.measure.place(*at)).collect(),
            parts: self.lines.iter().map(part).collect(),
            stacked: false,
            error: Some(self.lines.iter().map(error).collect()),
        }
    }

    fn plot(&self, settings: &Settings, rows: &[Row]) -> Plot {
        let series = self.lines.iter().map(|(name, controller, cell)| {
            let places = settings.sizes_mb.iter();
            let found: Vec<(u32, Summary)> = places
                .map(|at| (*at, self.summary(rows, *at, controller, *cell)))
                .filter(|(_, summary)| summary.count > 0)
                .collect();
            Series {
                name: name.clone(),
                points: found
                    .iter()
                    .map(|(at, s)| (f64::from(*at), s.mean))
                    .collect(),
                error: Some(found.iter().map(|(_, s)| s.ci95).collect()),
            }
        });
        let series: Vec<Series> = series.collect();
        let means = series.iter().flat_map(|s| &s.points).map(|(_, mean)| *mean);
        let (least, most) = means.fold((f64::INFINITY, 0.0_f64), |(least, most), mean| {
            (least.min(mean), most.max(mean))
        });
        Plot {
            title: self.title.clone(),
            x_label: format!(
                "size (MB of the paper, of which {} are sent)",
                settings.scale
            ),
            y_label: self.y_label(),
            x_log: false,
            // Else one controller that stalls makes a line at 0 of all others.
            y_log: least > 0.0 && most > LINEAR_MAX * least,
            series,
        }
    }
}
