//! Experiments on real networks, each described by a file in `scenarios/`.

mod engine;
pub mod experiment;
pub mod pso;
pub mod qos;
pub mod reconnect;
pub mod report;
pub mod reroute;
pub mod table;
pub mod timeouts;
