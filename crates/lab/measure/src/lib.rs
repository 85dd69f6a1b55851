//! Statistics of what was measured.

pub mod quantiles;
pub mod stats;
