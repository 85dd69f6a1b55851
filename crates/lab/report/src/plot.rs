//! Plots as SVG without a script, which follow the reader's light or dark theme.
//!
//! Series differ by colour, by dash and by marker, so that neither a colour-blind reader nor a
//! black-and-white print loses one. The colours are those of Okabe and Ito, lightened for a dark
//! background. The legend is below the figure and never on the data.

mod axis;
mod canvas;

use axis::{Axis, label};
use canvas::{Anchor, Canvas, TEXT_WIDTH};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 46.0;
/// The number of points above which the line alone is clearer than markers.
const MARKED_POINTS_MAX: usize = 60;

/// One line of a plot.
#[derive(Clone, Debug, Default)]
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// Half the width of an interval about each point's y.
    pub error: Option<Vec<f64>>,
}

impl Series {
    /// A line without intervals.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series {
            name: name.into(),
            points,
            error: None,
        }
    }
}

/// Lines over a numeric x. Labels name their unit: `round trip (ms)`.
#[derive(Clone, Debug, Default)]
pub struct Plot {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    pub x_log: bool,
    pub y_log: bool,
    pub series: Vec<Series>,
}

/// Bars over named groups, one per part, side by side or stacked.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    pub title: String,
    pub y_label: String,
    pub groups: Vec<String>,
    /// A name, and a value per group.
    pub parts: Vec<(String, Vec<f64>)>,
    pub stacked: bool,
    /// Half the width of an interval about the value, by part and group.
    pub error: Option<Vec<Vec<f64>>>,
}

impl Plot {
    /// Lines over linear axes. The first label is for the x axis.
    pub fn new(title: impl Into<String>, labels: [&str; 2], series: Vec<Series>) -> Plot {
        let [x_label, y_label] = labels.map(str::to_string);
        Plot {
            title: title.into(),
            x_label,
            y_label,
            x_log: false,
            y_log: false,
            series,
        }
    }

    #[must_use]
    pub fn log_x(self) -> Plot {
        Plot {
            x_log: true,
            ..self
        }
    }

    #[must_use]
    pub fn log_y(self) -> Plot {
        Plot {
            y_log: true,
            ..self
        }
    }

    /// Draws the picture, without points that an axis cannot show, such as 0 on a logarithmic axis.
    pub fn lines(&self) -> String {
        let shown = |(x, y): &(f64, f64)| {
            (x.is_finite() && (!self.x_log || *x > 0.0))
                && (y.is_finite() && (!self.y_log || *y > 0.0))
        };
        let all = || {
            self.series
                .iter()
                .flat_map(|s| &s.points)
                .filter(|p| shown(p))
        };
        let tops = self.series.iter().flat_map(|series| {
            let errors = series.error.iter().flatten();
            series.points.iter().zip(errors).map(|((_, y), e)| y + e)
        });
        let xs = Axis::over(all().map(|p| p.0), self.x_log, false);
        let ys = Axis::over(all().map(|p| p.1).chain(tops), self.y_log, true);
        let frame = Frame { ys };
        let mut canvas = Canvas::new(&self.title, WIDTH);
        frame.draw(&mut canvas, &self.y_label);
        let x_at = |x: f64| LEFT + xs.share(x) * (WIDTH - LEFT - RIGHT);
        for tick in xs.ticks() {
            let x = x_at(tick);
            canvas.line("grid", (x, TOP), (x, TOP + HEIGHT));
            canvas.text(
                "tick",
                Anchor::Middle,
                (x, TOP + HEIGHT + 18.0),
                &label(tick),
            );
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        canvas.text(
            "label",
            Anchor::Middle,
            (middle, TOP + HEIGHT + 40.0),
            &self.x_label,
        );
        for (n, series) in self.series.iter().enumerate() {
            canvas.open_series(n);
            let points: Vec<(f64, f64)> = (series.points.iter().filter(|p| shown(p)))
                .map(|&(x, y)| (x_at(x), frame.y_at(y)))
                .collect();
            canvas.path(&points);
            for ((x, y), error) in series.points.iter().zip(series.error.iter().flatten()) {
                if shown(&(*x, *y)) && *error > 0.0 {
                    canvas.error_bar(x_at(*x), frame.y_at(y - error), frame.y_at(y + error));
                }
            }
            if points.len() <= MARKED_POINTS_MAX {
                points.iter().for_each(|&at| canvas.marker(n, at));
            }
            canvas.close();
        }
        let names: Vec<&str> = self.series.iter().map(|s| s.name.as_str()).collect();
        legend(
            &mut canvas,
            &names,
            TOP + HEIGHT + 66.0,
            |canvas, n, (x, y)| {
                canvas.open_series(n);
                canvas.path(&[(x, y), (x + 28.0, y)]);
                canvas.marker(n, (x + 14.0, y));
                canvas.close();
            },
        )
    }
}

impl Bars {
    pub fn svg(&self) -> String {
        let value = |part: usize, group: usize| {
            let value = self.parts[part].1.get(group).copied().unwrap_or(0.0);
            if value.is_finite() {
                value.max(0.0)
            } else {
                0.0
            }
        };
        let error = |part: usize, group: usize| {
            let errors = self.error.as_ref().and_then(|e| e.get(part)?.get(group));
            errors.copied().unwrap_or(0.0)
        };
        let (groups, parts) = (self.groups.len(), self.parts.len());
        let base = |part: usize, group: usize| match self.stacked {
            true => (0..part).map(|below| value(below, group)).sum(),
            false => 0.0,
        };
        let tops = (0..groups).flat_map(|group| {
            (0..parts).map(move |part| base(part, group) + value(part, group) + error(part, group))
        });
        let frame = Frame {
            ys: Axis::over(tops.chain([0.0]), false, true),
        };
        let mut canvas = Canvas::new(&self.title, WIDTH);
        frame.draw(&mut canvas, &self.y_label);
        let slot = (WIDTH - LEFT - RIGHT) / groups.max(1) as f64;
        let columns = if self.stacked { 1 } else { parts.max(1) };
        let bar = (slot * 0.76 / columns as f64).min(70.0);
        let names = (self.groups.iter()).map(|name| wrap(name, slot));
        let names: Vec<Vec<String>> = names.collect();
        for (group, name) in names.iter().enumerate() {
            let middle = LEFT + slot * (group as f64 + 0.5);
            for (row, line) in name.iter().enumerate() {
                let y = TOP + HEIGHT + 18.0 + 15.0 * row as f64;
                canvas.text("tick", Anchor::Middle, (middle, y), line);
            }
        }
        for part in 0..parts {
            canvas.open_series(part);
            for group in 0..groups {
                let column = if self.stacked { 0 } else { part };
                let first = LEFT + slot * (group as f64 + 0.5) - bar * columns as f64 / 2.0;
                let x = first + bar * column as f64;
                let (from, to) = (base(part, group), base(part, group) + value(part, group));
                canvas.bar(
                    (x + 1.0, frame.y_at(to)),
                    bar - 2.0,
                    frame.y_at(from) - frame.y_at(to),
                );
                let error = error(part, group);
                if error > 0.0 {
                    let low = (to - error).max(0.0);
                    canvas.error_bar(x + bar / 2.0, frame.y_at(low), frame.y_at(to + error));
                }
            }
            canvas.close();
        }
        let rows = names.iter().map(Vec::len).max().unwrap_or(1);
        let names: Vec<&str> = self.parts.iter().map(|(name, _)| name.as_str()).collect();
        let y = TOP + HEIGHT + 34.0 + 15.0 * rows as f64;
        legend(&mut canvas, &names, y, |canvas, n, (x, y)| {
            canvas.open_series(n);
            canvas.bar((x + 8.0, y - 7.0), 20.0, 13.0);
            canvas.close();
        })
    }
}

/// The common base of both kinds of picture: the y axis with its grid.
struct Frame {
    ys: Axis,
}

impl Frame {
    fn y_at(&self, y: f64) -> f64 {
        TOP + HEIGHT * (1.0 - self.ys.share(y))
    }

    fn draw(&self, canvas: &mut Canvas, y_label: &str) {
        for tick in self.ys.ticks() {
            let y = self.y_at(tick);
            canvas.line("grid", (LEFT, y), (WIDTH - RIGHT, y));
            canvas.text("tick", Anchor::End, (LEFT - 8.0, y + 4.0), &label(tick));
        }
        canvas.line("axis", (LEFT, TOP), (LEFT, TOP + HEIGHT));
        canvas.line("axis", (LEFT, TOP + HEIGHT), (WIDTH - RIGHT, TOP + HEIGHT));
        canvas.upright((18.0, TOP + HEIGHT / 2.0), y_label);
    }
}

/// Draws rows of names with their signs, as many in a row as fit, and finishes the picture.
fn legend(
    canvas: &mut Canvas,
    names: &[&str],
    top: f64,
    mut sign: impl FnMut(&mut Canvas, usize, (f64, f64)),
) -> String {
    let (mut x, mut y) = (LEFT, top);
    for (n, name) in names.iter().enumerate() {
        let width = 36.0 + name.chars().count() as f64 * TEXT_WIDTH + 22.0;
        if x > LEFT && x + width > WIDTH {
            (x, y) = (LEFT, y + 22.0);
        }
        sign(canvas, n, (x, y));
        canvas.text("legend", Anchor::Start, (x + 36.0, y + 4.5), name);
        x += width;
    }
    canvas.finish(y + 22.0)
}

/// Breaks a group's name at blanks, for bars that stand close together.
fn wrap(name: &str, width: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in name.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        let length = line.chars().count() + 1 + word.chars().count();
        match line.as_str() {
            "" => line.push_str(word),
            _ if length as f64 * TEXT_WIDTH <= width => *line = format!("{line} {word}"),
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the elements in order; fails unless the text nests, quotes and escapes as XML must.
    fn elements(svg: &str) -> Vec<&str> {
        let (mut open, mut seen, mut rest) = (vec![], vec![], svg);
        while let Some(start) = rest.find('<') {
            let text = &rest[..start];
            assert!(!text.contains('>'), "'>' in text: {text}");
            for entity in text.split('&').skip(1) {
                let known = ["lt;", "gt;", "amp;", "quot;"];
                assert!(known.iter().any(|k| entity.starts_with(k)), "&{entity}");
            }
            let end = start + rest[start..].find('>').expect("a tag is closed");
            let tag = &rest[start + 1..end];
            rest = &rest[end + 1..];
            assert!(
                !tag.contains('<') && tag.matches('"').count() % 2 == 0,
                "{tag}"
            );
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "closes what is open");
                continue;
            }
            let name = tag.split([' ', '/']).next().unwrap();
            seen.push(tag);
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
        assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest}");
        seen
    }

    fn count(svg: &str, start: &str) -> usize {
        elements(svg)
            .iter()
            .filter(|tag| tag.starts_with(start))
            .count()
    }

    fn plot(series: usize) -> Plot {
        let series = (0..series).map(|n| Series {
            name: format!("\"{n}\" <&>"),
            points: (1..=9)
                .map(|x| (f64::from(x), f64::from(x) * (n + 1) as f64))
                .collect(),
            error: Some(vec![0.5; 9]),
        });
        Plot {
            title: "a < b & c".to_string(),
            x_label: "rate (1/s)".to_string(),
            y_label: "round trip (ms)".to_string(),
            series: series.collect(),
            ..Plot::default()
        }
    }

    #[test]
    fn a_plot_is_well_formed_and_has_each_series_twice() {
        for n in [0, 1, 3, 12] {
            let svg = plot(n).lines();
            // Each series has its data, and its sign in the legend.
            assert_eq!(count(&svg, "g class=\"s"), 2 * n, "{svg}");
            assert_eq!(count(&svg, "path class=\"curve\""), 2 * n);
            assert_eq!(count(&svg, "path class=\"error\""), 9 * n);
        }
    }

    #[test]
    fn a_logarithmic_axis_leaves_out_what_it_cannot_show() {
        let mut log = plot(1);
        (log.x_log, log.y_log) = (true, true);
        let markers = |plot: &Plot| count(&plot.lines(), "path class=\"mark\"");
        assert_eq!(markers(&log), 9 + 1);
        log.series[0].points[0].0 = 0.0;
        log.series[0].points[1].1 = -1.0;
        log.series[0].points[2].1 = f64::NAN;
        assert_eq!(markers(&log), 6 + 1);
        assert!(!log.lines().contains("NaN"));
    }

    #[test]
    fn bars_are_well_formed_and_none_is_missing() {
        let mut bars = Bars {
            title: "parts".to_string(),
            y_label: "delay (ms)".to_string(),
            groups: vec!["tcp".into(), "tls 1.3 with client certificates".into()],
            parts: vec![
                ("path".into(), vec![1.0, 2.0]),
                ("switch".into(), vec![3.0, f64::NAN]),
            ],
            stacked: false,
            error: Some(vec![vec![0.1, 0.2], vec![0.3, 0.0]]),
        };
        for stacked in [false, true] {
            bars.stacked = stacked;
            let svg = bars.svg();
            assert_eq!(count(&svg, "rect class=\"bar\""), 4 + 2);
            assert_eq!(count(&svg, "path class=\"error\""), 3);
            assert!(!svg.contains("NaN"));
        }
        assert!(count(&Bars::default().svg(), "svg ") == 1);
    }
}
