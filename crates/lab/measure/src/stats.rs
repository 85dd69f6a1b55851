//! Summaries of samples.

use std::fmt::Write;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::quantiles::nearest_rank;

/// A summary of samples, in the samples' unit. All fields are zero without samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    pub count: u64,
    pub mean: f64,
    /// Standard deviation of the sample (n - 1); 0 for a single one.
    pub sd: f64,
    /// Half the width of the 95 % confidence interval of the mean, by Student's t. It assumes
    /// independent samples.
    pub ci95: f64,
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Summary {
    /// Half the width of the confidence interval, for two or more samples; one sample has none.
    pub fn interval(&self) -> Option<f64> {
        (self.count > 1).then_some(self.ci95)
    }

    /// Summarises samples. Quantiles use the nearest rank: they are values that occurred.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Summary {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let [Some(&min), Some(&max)] = [sorted.first(), sorted.last()] else {
            return Summary::default();
        };
        let count = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / count;
        let squares: f64 = sorted.iter().map(|x| (x - mean).powi(2)).sum();
        let sd = (squares / (count - 1.0).max(1.0)).sqrt();
        Summary {
            count: sorted.len() as u64,
            mean,
            sd,
            ci95: half_width95(sorted.len() as u64, sd),
            min,
            p50: nearest_rank(&sorted, 0.5),
            p90: nearest_rank(&sorted, 0.9),
            p99: nearest_rank(&sorted, 0.99),
            p999: nearest_rank(&sorted, 0.999),
            max,
        }
    }

    /// Summarises a histogram. `unit_scale` converts recorded values to the summary's unit: 1e-6
    /// from nanoseconds to milliseconds. The result is as exact as the histogram's significant
    /// digits.
    pub fn of_histogram(histogram: &Histogram<u64>, unit_scale: f64) -> Summary {
        let count = histogram.len();
        if count == 0 {
            return Summary::default();
        }
        // The histogram divides by n.
        let bessel = (count as f64 / (count as f64 - 1.0).max(1.0)).sqrt();
        let sd = histogram.stdev() * bessel * unit_scale;
        let at = |q: f64| histogram.value_at_quantile(q) as f64 * unit_scale;
        Summary {
            count,
            mean: histogram.mean() * unit_scale,
            sd,
            ci95: half_width95(count, sd),
            min: histogram.min() as f64 * unit_scale,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() as f64 * unit_scale,
        }
    }
}

/// The median, the ends and the mean of a few values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    /// Half the width of the 95 % confidence interval of the mean.
    pub ci95: f64,
}

impl Spread {
    pub fn of(values: impl Iterator<Item = f64>) -> Spread {
        let values: Vec<f64> = values.collect();
        let summary = Summary::of(values.iter().copied());
        Spread {
            median: median(values),
            min: summary.min,
            max: summary.max,
            mean: summary.mean,
            ci95: summary.ci95,
        }
    }
}

/// The median: the mean of the two middle values when their number is even; 0 without values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// The whole distribution as text, in the form (`.hgrm`) that HdrHistogram's plotters read.
pub fn percentile_lines(histogram: &Histogram<u64>, unit_scale: f64) -> String {
    let mut text = "       Value     Percentile TotalCount 1/(1-Percentile)\n\n".to_string();
    let mut total = 0;
    for step in histogram.iter_quantiles(5) {
        total += step.count_since_last_iteration();
        let q = step.quantile_iterated_to();
        let value = step.value_iterated_to() as f64 * unit_scale;
        let _ = write!(text, "{value:12.6} {q:14.12} {total:10}");
        // The last line has no inverse.
        match q < 1.0 {
            true => text += &format!(" {:14.2}\n", 1.0 / (1.0 - q)),
            false => text.push('\n'),
        }
    }
    text
}

fn half_width95(count: u64, sd: f64) -> f64 {
    match count {
        0 | 1 => 0.0,
        _ => student_t975(count - 1) * sd / (count as f64).sqrt(),
    }
}

/// The 97.5 % quantile of Student's t, right to three places.
fn student_t975(degrees: u64) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    if let Some(t) = TABLE.get(degrees as usize - 1) {
        return *t;
    }
    // The expansion in 1/n about the normal quantile (Abramowitz and Stegun, 26.7.5).
    let (z, n) = (1.959_963_985_f64, degrees as f64);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    z + first / n + second / (n * n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, right: f64) {
        assert!((found - right).abs() < 1e-3, "{found} is not {right}");
    }

    #[test]
    fn a_summary_of_known_samples() {
        // Mean 5, squares 32: sd = sqrt(32 / 7), t(7) = 2.365.
        let s = Summary::of([9.0, 2.0, 4.0, 4.0, 5.0, 4.0, 5.0, 7.0]);
        assert_eq!((s.count, s.mean, s.min, s.max), (8, 5.0, 2.0, 9.0));
        close(s.sd, 2.138);
        close(s.ci95, 2.365 * 2.138_09 / 8f64.sqrt());
        assert_eq!((s.p50, s.p90, s.p99, s.p999), (4.0, 9.0, 9.0, 9.0));

        let thousand: Vec<f64> = (1..=1000).map(f64::from).collect();
        let s = Summary::of(thousand);
        assert_eq!((s.p50, s.p90, s.p99, s.p999), (500.0, 900.0, 990.0, 999.0));
        close(s.sd, 288.8194);
        close(s.ci95, 17.9227); // t(999) = 1.96234
    }

    #[test]
    fn no_sample_and_one() {
        assert_eq!(Summary::of([]), Summary::default());
        let s = Summary::of([3.5]);
        assert_eq!(
            (s.mean, s.sd, s.ci95, s.p50, s.max),
            (3.5, 0.0, 0.0, 3.5, 3.5)
        );
        let empty = Histogram::new(3).unwrap();
        assert_eq!(Summary::of_histogram(&empty, 1.0), Summary::default());
    }

    #[test]
    fn a_histogram_says_what_its_samples_say() {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        let samples: Vec<f64> = (1..=5000).map(|n| f64::from(n * n % 7919)).collect();
        samples
            .iter()
            .for_each(|s| histogram.record(*s as u64).unwrap());
        let (told, right) = (
            Summary::of_histogram(&histogram, 0.001),
            Summary::of(samples),
        );
        let pairs = [
            (told.mean, right.mean),
            (told.sd, right.sd),
            (told.ci95, right.ci95),
            (told.p50, right.p50),
            (told.p99, right.p99),
            (told.max, right.max),
        ];
        for (told, right) in pairs {
            let (told, right) = (told * 1000.0, right);
            assert!(
                (told - right).abs() <= right * 0.002,
                "{told} is not {right}"
            );
        }
        let lines = percentile_lines(&histogram, 0.001);
        assert!(
            lines
                .lines()
                .last()
                .unwrap()
                .contains("1.000000000000       5000"),
            "{lines}"
        );
    }

    #[test]
    fn t_is_that_of_the_tables() {
        for (degrees, t) in [
            (1, 12.706),
            (10, 2.228),
            (30, 2.042),
            (31, 2.0395),
            (60, 2.0003),
            (120, 1.9799),
        ] {
            close(student_t975(degrees), t);
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median([]), 0.0);
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
