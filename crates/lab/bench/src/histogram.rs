//! Recorded delays: from 1 ns to 1 minute, with three significant digits.

use std::ops::{Deref, DerefMut};

#[derive(Clone)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

impl Default for Histogram {
    fn default() -> Histogram {
        let made = hdrhistogram::Histogram::new_with_bounds(1, 60_000_000_000, 3);
        Histogram(made.expect("bounds that the crate allows"))
    }
}

impl Histogram {
    /// Adds the values that another histogram has recorded.
    pub fn merge(&mut self, other: &Histogram) {
        self.0.add(&other.0).expect("histograms are made alike");
    }
}

impl Deref for Histogram {
    type Target = hdrhistogram::Histogram<u64>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Histogram {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}
