//! Quantiles by nearest rank.

use serde::Serialize;

/// Quantiles of the delays of answered packets; all zero when there are none.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq)]
pub struct Quantiles {
    pub count: usize,
    pub min: f64,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Quantiles {
    /// Nearest-rank quantiles of values in milliseconds.
    pub fn of(mut values: Vec<f64>) -> Quantiles {
        values.sort_by(f64::total_cmp);
        let [Some(min), Some(max)] = [values.first(), values.last()] else {
            return Quantiles::default();
        };
        Quantiles {
            count: values.len(),
            min: *min,
            p50: nearest_rank(&values, 0.5),
            p99: nearest_rank(&values, 0.99),
            max: *max,
        }
    }
}

/// The least of the sorted values with a share `q` of all values at or below it. There must be at
/// least one value.
pub fn nearest_rank(sorted: &[f64], q: f64) -> f64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let q = Quantiles::of((1..=100).rev().map(f64::from).collect());
        assert_eq!(
            (q.count, q.min, q.p50, q.p99, q.max),
            (100, 1.0, 50.0, 99.0, 100.0)
        );
        assert_eq!(Quantiles::of(vec![7.0]).p99, 7.0);
        assert_eq!(Quantiles::of(vec![]), Quantiles::default());
    }
}
