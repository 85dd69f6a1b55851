//! `auster bench`: what controllers, switches, channels and networks do, in figures.
//!
//! Every subcommand measures with its own module and tells with the shared ones: `stats` for
//! summaries, `plot` for pictures, `output` for the table, the document and the directory.

pub mod output;
pub mod plot;
pub mod stats;
