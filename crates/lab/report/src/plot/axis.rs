//! The range of an axis, the places of its ticks, and their labels.

/// Approximate number of ticks on a linear axis.
const TICKS: f64 = 6.0;

pub struct Axis {
    low: f64,
    high: f64,
    ticks: Vec<f64>,
    is_log: bool,
}

impl Axis {
    /// Makes an axis from the least to the greatest value, rounded outwards to a tick. A linear
    /// axis `from_zero` begins at zero, unless a value is less.
    pub fn over(values: impl Iterator<Item = f64>, is_log: bool, from_zero: bool) -> Axis {
        let usable = |v: &f64| v.is_finite() && (!is_log || *v > 0.0);
        let ends = values.filter(usable).fold(None, |ends, v| match ends {
            None => Some((v, v)),
            Some((low, high)) => Some((v.min(low), v.max(high))),
        });
        let (low, high) = ends.unwrap_or(if is_log { (1.0, 10.0) } else { (0.0, 1.0) });
        match is_log {
            true => Axis::logarithmic(low, high),
            false => Axis::linear(if from_zero { low.min(0.0) } else { low }, high),
        }
    }

    fn linear(low: f64, high: f64) -> Axis {
        // A single value gets room on one side.
        let high = if high > low {
            high
        } else {
            low + low.abs().max(1.0)
        };
        // Do not cut off a sliver: an axis from 1 to 20 begins at 0.
        let low = if low > 0.0 && low < high / 3.0 {
            0.0
        } else {
            low
        };
        let step = nice_step((high - low) / TICKS);
        let (first, last) = (
            (low / step).floor() as i64,
            (high / step - 1e-9).ceil() as i64,
        );
        let ticks: Vec<f64> = (first..=last).map(|n| n as f64 * step).collect();
        Axis {
            low: first as f64 * step,
            high: last as f64 * step,
            ticks,
            is_log: false,
        }
    }

    fn logarithmic(low: f64, high: f64) -> Axis {
        let decade = |v: f64| (v.log10() + 1e-9).floor() as i32;
        let (first, last) = (decade(low), decade(high));
        // A few decades need ticks within them; many do not even need one tick each.
        let within: &[f64] = match high / low {
            ratio if ratio < 1e3 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let every = ((last - first) / 8 + 1) as usize;
        let candidates: Vec<f64> = (first..=last + 1)
            .step_by(every)
            .flat_map(|d| within.iter().map(move |m| m * 10f64.powi(d)))
            .collect();
        let below = candidates.iter().rfind(|t| **t <= low * 1.000_001);
        let low = below.copied().unwrap_or(low);
        let above = candidates
            .iter()
            .find(|t| **t >= high * 0.999_999 && **t > low);
        let high = above.copied().unwrap_or(high.max(low * 10.0));
        let ticks = candidates.into_iter().filter(|t| (low..=high).contains(t));
        Axis {
            low,
            high,
            ticks: ticks.collect(),
            is_log: true,
        }
    }

    pub fn ticks(&self) -> impl Iterator<Item = f64> + '_ {
        self.ticks.iter().copied()
    }

    /// The position of a value, from 0 at the low end to 1 at the high end. A value outside the
    /// range is at the nearer end.
    pub fn share(&self, value: f64) -> f64 {
        let share = match self.is_log {
            true => (value.max(self.low) / self.low).log10() / (self.high / self.low).log10(),
            false => (value - self.low) / (self.high - self.low),
        };
        share.clamp(0.0, 1.0)
    }
}

/// 1, 2 or 5 times a power of ten.
fn nice_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|f| f * power >= rough * 0.999);
    factor.unwrap_or(10.0) * power
}

/// The label of a tick, in few characters: `0.25`, `1500`, `20 k`, `1.5 M`.
pub fn label(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, " G"),
        v if v >= 1e6 => (value / 1e6, " M"),
        v if v >= 1e4 => (value / 1e3, " k"),
        v if v > 0.0 && v < 1e-3 => return format!("{value:.0e}"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(values: &[f64], is_log: bool) -> String {
        let axis = Axis::over(values.iter().copied(), is_log, false);
        let labels: Vec<String> = axis.ticks().map(label).collect();
        labels.join(" ")
    }

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        assert_eq!(labels(&[1.0, 5.0, 20.0], false), "0 5 10 15 20");
        assert_eq!(labels(&[0.03, 0.19], false), "0 0.05 0.1 0.15 0.2");
        assert_eq!(
            labels(&[100.0, 103.0], false),
            "100 100.5 101 101.5 102 102.5 103"
        );
        assert_eq!(
            labels(&[0.0, 60_000.0], false),
            "0 10 k 20 k 30 k 40 k 50 k 60 k"
        );
        assert_eq!(
            labels(&[64.0, 10_000.0], true),
            "50 100 200 500 1000 2000 5000 10 k"
        );
        assert_eq!(labels(&[0.02, 900.0], true), "0.01 0.1 1 10 100 1000");
        assert_eq!(labels(&[1.0, 1e12], true).split(' ').next(), Some("1"));
        assert_eq!(labels(&[], false), "0 0.2 0.4 0.6 0.8 1");
    }

    #[test]
    fn values_are_within() {
        for values in [
            vec![],
            vec![0.0],
            vec![7.0],
            vec![-3.0, 4.0],
            vec![1.0, 1e12],
        ] {
            for is_log in [false, true] {
                let axis = Axis::over(values.iter().copied(), is_log, true);
                assert!(axis.low < axis.high, "{values:?}");
                assert!(axis.share(axis.low) < 1e-9 && axis.share(axis.high) > 1.0 - 1e-9);
            }
        }
    }
}
