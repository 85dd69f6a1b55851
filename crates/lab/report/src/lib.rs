//! The results kept of a measurement: one document, the machine, raw data, plots.

pub mod machine;
pub mod output;
pub mod plot;
