//! The engine: experiments described by data alone.
//!
//! A scenario names a network, the traffic on it, events in time, and figures of windows between
//! events. Each run of each cell of its matrix gives rows of figures; claims are expressions over
//! rows.

mod command;
mod course;
mod event;
mod expression;
pub mod json_schema;
pub mod lateness;
mod matrix;
#[cfg(test)]
mod mistakes;
mod plot;
mod probe;
mod reader;
mod readiness;
pub mod rows;
pub mod runner;
mod schema;
mod setup;
mod subject;
mod timeline;
mod traffic;
