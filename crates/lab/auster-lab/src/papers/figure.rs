//! A figure with its spread, as it is read out of a document, compared with another, and shown.

use clap::ValueEnum;
use serde_json::Value;

use measure::stats::{Summary, median};

/// Significant digits of a figure, where the list gives no number of decimals.
const DIGITS: i32 = 3;

#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub value: f64,
    pub spread: Option<Spread>,
}

/// The range of values that a figure could equally have had.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Half the width of the 95 % confidence interval.
    Ci95(f64),
    /// The least and the greatest value of the runs.
    Range(f64, f64),
}

/// The statistic of a summary that is the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stat {
    Mean,
    Median,
    P99,
    Min,
    Max,
    Count,
}

/// The figure made of several values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Several {
    /// The mean with its confidence interval.
    Mean,
    /// The median with the least and the greatest.
    Median,
    Sum,
    Least,
    Most,
}

/// How a figure is held against another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Against {
    Ratio,
    /// The percentage by which it is less.
    #[value(name = "saves-percent")]
    Saves,
    /// The percentage by which it is more.
    #[value(name = "adds-percent")]
    Adds,
    Difference,
}

impl Figure {
    /// Returns the figure of the numbers or summaries that a path has found, or `None` where
    /// nothing was measured.
    ///
    /// # Errors
    ///
    /// Names the problem if a value is not a figure.
    pub fn of(
        values: &[&Value],
        stat: Option<Stat>,
        several: Several,
    ) -> Result<Option<Figure>, String> {
        let mut figures = Vec::new();
        for value in values {
            figures.extend(Figure::one(value, stat)?);
        }
        // An incomplete sum would be a wrong one.
        if figures.len() < values.len() {
            return Ok(None);
        }
        if let [one] = figures.as_slice() {
            return Ok(Some(one.clone()));
        }
        let all: Vec<f64> = figures.iter().map(|figure| figure.value).collect();
        let alone = |value| Figure {
            value,
            spread: None,
        };
        let end = |pick: fn(f64, f64) -> f64| all.iter().copied().fold(all[0], pick);
        Ok(Some(match several {
            Several::Sum => alone(all.iter().sum()),
            Several::Least => alone(end(f64::min)),
            Several::Most => alone(end(f64::max)),
            Several::Median => Figure {
                value: median(all.iter().copied()),
                spread: Some(Spread::Range(end(f64::min), end(f64::max))),
            },
            Several::Mean => {
                let summary = Summary::of(all.iter().copied());
                Figure {
                    value: summary.mean,
                    spread: Some(Spread::Ci95(summary.ci95)),
                }
            }
        }))
    }

    fn one(value: &Value, stat: Option<Stat>) -> Result<Option<Figure>, String> {
        if value.is_null() {
            return Ok(None);
        }
        if let Some(value) = value.as_f64() {
            return Ok(Some(Figure {
                value,
                spread: None,
            }));
        }
        let number = |key: &str| value.get(key).and_then(Value::as_f64);
        // A summary of nothing is all zeros.
        if number("count") == Some(0.0) {
            return Ok(None);
        }
        let range = || Some(Spread::Range(number("min")?, number("max")?));
        let ci95 = || number("ci95").map(Spread::Ci95);
        let median = || number("median").or_else(|| number("p50"));
        let (found, spread) = match stat {
            Some(Stat::Mean) => (number("mean"), ci95()),
            Some(Stat::Median) => (median(), range()),
            Some(Stat::P99) => (number("p99"), None),
            Some(Stat::Min) => (number("min"), None),
            Some(Stat::Max) => (number("max"), None),
            Some(Stat::Count) => (number("count"), None),
            None if number("median").is_some() => (median(), range()),
            None if number("mean").is_some() => (number("mean"), ci95()),
            None => (median(), range()),
        };
        let found = found.ok_or("it is neither a number nor a summary with that in it")?;
        // One run has no spread.
        let spread = spread.filter(|_| number("count") != Some(1.0));
        Ok(Some(Figure {
            value: found,
            spread,
        }))
    }

    pub fn times(self, factor: f64) -> Figure {
        Figure {
            value: self.value * factor,
            spread: self.spread.map(|spread| match spread {
                Spread::Ci95(half) => Spread::Ci95(half * factor.abs()),
                Spread::Range(a, b) => ordered(a * factor, b * factor),
            }),
        }
    }

    /// Compares the figure with `other`. Confidence intervals are combined as for independent
    /// means, to first order; with a range on either side, the ends are combined.
    pub fn against(&self, other: &Figure, how: Against) -> Result<Figure, String> {
        if how != Against::Difference && other.value == 0.0 {
            return Err("it is held against 0".to_owned());
        }
        let of = |a: f64, b: f64| match how {
            Against::Ratio => a / b,
            Against::Saves => 100.0 * (1.0 - a / b),
            Against::Adds => 100.0 * (a / b - 1.0),
            Against::Difference => a - b,
        };
        let value = of(self.value, other.value);
        let spread = match (self.spread, other.spread) {
            (None, None) => None,
            (Some(Spread::Range(..)), _) | (_, Some(Spread::Range(..))) => {
                let [(a, b), (c, d)] = [self.ends(), other.ends()];
                let corners = [of(a, c), of(a, d), of(b, c), of(b, d)];
                let least = corners.iter().copied().fold(f64::INFINITY, f64::min);
                let most = corners.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                (least.is_finite() && most.is_finite()).then_some(Spread::Range(least, most))
            }
            _ => {
                let (a, b) = (self.half_width(), other.half_width());
                let ratio = self.value / other.value;
                let by_ratio =
                    ((a / other.value).powi(2) + (ratio * b / other.value).powi(2)).sqrt();
                Some(Spread::Ci95(match how {
                    Against::Difference => a.hypot(b),
                    Against::Ratio => by_ratio,
                    Against::Saves | Against::Adds => 100.0 * by_ratio,
                }))
            }
        };
        Ok(Figure { value, spread })
    }

    pub fn half_width(&self) -> f64 {
        match self.spread {
            Some(Spread::Ci95(half)) => half,
            _ => 0.0,
        }
    }

    /// Whether the figure exceeds `other` by more than both spreads.
    pub fn is_above(&self, other: &Figure) -> bool {
        self.ends().0 > other.ends().1
    }

    fn ends(&self) -> (f64, f64) {
        match self.spread {
            Some(Spread::Range(low, high)) => (low, high),
            Some(Spread::Ci95(half)) => (self.value - half, self.value + half),
            None => (self.value, self.value),
        }
    }

    /// Formats the figure without its spread.
    pub fn shown(&self, decimals: Option<usize>) -> String {
        show(self.value, self.decimals(decimals))
    }

    /// Formats the figure with its spread: `3.54 ± 0.76`, or `198 (197 to 200)`.
    pub fn with_spread(&self, decimals: Option<usize>) -> String {
        let places = self.decimals(decimals);
        let value = show(self.value, places);
        match self.spread {
            None => value,
            Some(Spread::Ci95(half)) => format!("{value} ± {}", show(half, places)),
            Some(Spread::Range(low, high)) => {
                format!("{value} ({} to {})", show(low, places), show(high, places))
            }
        }
    }

    fn decimals(&self, wanted: Option<usize>) -> usize {
        let (low, high) = self.ends();
        let is_whole = [self.value, low, high].iter().all(|n| n.fract() == 0.0);
        wanted.unwrap_or_else(|| match is_whole {
            true => 0,
            false => decimals(self.value),
        })
    }
}

fn ordered(a: f64, b: f64) -> Spread {
    Spread::Range(a.min(b), a.max(b))
}

/// Returns the number of decimals that shows `DIGITS` digits.
fn decimals(value: f64) -> usize {
    if value == 0.0 {
        return 1;
    }
    let before = value.abs().log10().floor() as i32 + 1;
    (DIGITS - before).clamp(0, 6) as usize
}

/// Formats a number with a comma between thousands.
pub fn show(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (sign, text) = match text.strip_prefix('-') {
        // Zero has no sign.
        Some(rest) if rest.chars().all(|c| c == '0' || c == '.') => ("", rest.to_owned()),
        Some(rest) => ("−", rest.to_owned()),
        None => ("", text),
    };
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (text.as_str(), String::new()),
    };
    let mut grouped = String::new();
    for (n, digit) in whole.chars().enumerate() {
        if n > 0 && (whole.len() - n) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{fraction}")
}

/// Formats a number as in the list: all its digits, and no more.
pub fn plain(value: f64) -> String {
    let places = (0..=6).find(|places| {
        let scale = 10f64.powi(*places);
        (value * scale - (value * scale).round()).abs() < 1e-9 * scale.max(1.0)
    });
    show(value, places.unwrap_or(6) as usize)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn figure(value: f64, spread: Option<Spread>) -> Figure {
        Figure { value, spread }
    }

    fn of(values: Value, stat: Option<Stat>, several: Several) -> Option<Figure> {
        let values: Vec<&Value> = values.as_array().unwrap().iter().collect();
        Figure::of(&values, stat, several).unwrap()
    }

    #[test]
    fn every_kind_of_summary_is_read() {
        let mean = json!([{
            "count": 5, "mean": 2.0, "ci95": 0.5, "p50": 1.0, "p99": 9.0, "min": 0.0, "max": 9.5
        }]);
        let one = |stat| of(mean.clone(), stat, Several::Mean).unwrap();
        assert_eq!(one(None), figure(2.0, Some(Spread::Ci95(0.5))));
        assert_eq!(one(Some(Stat::P99)), figure(9.0, None));
        assert_eq!(
            one(Some(Stat::Median)),
            figure(1.0, Some(Spread::Range(0.0, 9.5)))
        );
        assert_eq!(one(Some(Stat::Count)), figure(5.0, None));
        let median =
            json!([{ "median": 198.0, "min": 197.0, "max": 200.0, "mean": 198.3, "ci95": 3.7 }]);
        let found = of(median, None, Several::Mean).unwrap();
        assert_eq!(found, figure(198.0, Some(Spread::Range(197.0, 200.0))));
        assert_eq!(found.with_spread(None), "198 (197 to 200)");
        let single = json!([{ "count": 1, "mean": 7.0, "ci95": 0.0 }]);
        assert_eq!(of(single, None, Several::Mean), Some(figure(7.0, None)));
    }

    #[test]
    fn what_was_not_measured_is_no_zero() {
        assert_eq!(of(json!([null]), None, Several::Mean), None);
        let nothing = json!([{ "count": 0, "min": 0.0, "p50": 0.0, "max": 0.0 }]);
        assert_eq!(of(nothing, None, Several::Mean), None);
        assert_eq!(of(json!([1.0, null]), None, Several::Sum), None);
        let wrong = json!("five");
        assert!(Figure::of(&[&wrong], None, Several::Mean).is_err());
        let wrong = json!({ "mean": 1.0 });
        assert!(Figure::of(&[&wrong], Some(Stat::P99), Several::Mean).is_err());
    }

    #[test]
    fn several_values_are_one_figure() {
        let values = json!([9.0, 2.0, 4.0, 4.0, 5.0, 4.0, 5.0, 7.0]);
        let all = |several| of(values.clone(), None, several).unwrap();
        assert_eq!(all(Several::Sum), figure(40.0, None));
        assert_eq!(all(Several::Most).value, 9.0);
        assert_eq!(all(Several::Least).value, 2.0);
        assert_eq!(
            all(Several::Median),
            figure(4.5, Some(Spread::Range(2.0, 9.0)))
        );
        let mean = all(Several::Mean);
        assert_eq!(mean.value, 5.0);
        assert!((mean.half_width() - 1.788).abs() < 0.001);
    }

    #[test]
    fn a_comparison_has_the_spread_of_both() {
        let (a, b) = (
            figure(20.0, Some(Spread::Ci95(2.0))),
            figure(100.0, Some(Spread::Ci95(10.0))),
        );
        let saved = a.against(&b, Against::Saves).unwrap();
        assert_eq!(saved.value, 80.0);
        assert!((saved.half_width() - 2.828).abs() < 0.001, "{saved:?}");
        let more = a.against(&b, Against::Difference).unwrap();
        assert_eq!(more.value, -80.0);
        assert!((more.half_width() - 10.198).abs() < 0.001);
        let range = figure(10.0, Some(Spread::Range(5.0, 20.0)));
        let ratio = range.against(&figure(10.0, None), Against::Ratio).unwrap();
        assert_eq!(ratio, figure(1.0, Some(Spread::Range(0.5, 2.0))));
        assert!(a.against(&figure(0.0, None), Against::Ratio).is_err());
        let third = figure(10.0, Some(Spread::Ci95(1.0))).times(3.0);
        assert_eq!(third, figure(30.0, Some(Spread::Ci95(3.0))));
    }

    #[test]
    fn figures_whose_spreads_overlap_are_not_apart() {
        let fixed = figure(198.0, Some(Spread::Range(197.0, 200.0)));
        let raised = figure(171.0, Some(Spread::Range(155.0, 183.0)));
        assert!(fixed.is_above(&raised));
        assert!(!raised.is_above(&fixed));
        assert!(!fixed.is_above(&figure(195.0, Some(Spread::Ci95(2.0)))));
        assert!(!figure(1.0, None).is_above(&figure(1.0, None)));
        assert!(figure(1.5, None).is_above(&figure(1.0, Some(Spread::Ci95(0.4)))));
    }

    #[test]
    fn three_digits_are_shown() {
        for (value, right) in [
            (0.0, "0"),
            (0.04612, "0.0461"),
            (3.5426, "3.54"),
            (17.25, "17.2"),
            (228.43, "228"),
            (3_724_480.0, "3,724,480"),
            (-44.96, "−45.0"),
            (1_048_576.5, "1,048,576"),
        ] {
            assert_eq!(figure(value, None).shown(None), right, "{value}");
        }
        let spread = figure(3.5426, Some(Spread::Ci95(0.7589)));
        assert_eq!(spread.with_spread(None), "3.54 ± 0.76");
        assert_eq!(spread.with_spread(Some(0)), "4 ± 1");
        assert_eq!(show(-0.0001, 2), "0.00");
        assert_eq!(plain(27.6), "27.6");
        assert_eq!(plain(1000.0), "1,000");
        assert_eq!(plain(0.05), "0.05");
    }
}
