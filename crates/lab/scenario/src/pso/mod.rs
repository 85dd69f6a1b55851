//! Experiments on priority scheduling of a control channel that shares its link with data.
//!
//! Every packet that is offered bears a label, is a table miss, and is answered by the controller
//! with one PACKET_OUT. Its PACKET_IN and PACKET_OUT are seen beside the switch, where they pass
//! in plain TCP, so that their hop delay is that of relays, control link and controller together
//! and of nothing else.

pub mod channel;
mod in_band;
pub mod packet;
mod sink;
mod source;
mod trial;

use std::path::Path;

use crate::experiment::Args;
use cli::failure::Failure;

/// The most runs of a cell, in a scenario and for `--runs`.
const RUNS_MAX: u32 = 1000;

/// Whether a scenario's file is one of these. Reading it reports its errors.
pub fn is_ours(scenario: &Path) -> bool {
    std::fs::read_to_string(scenario).is_ok_and(|text| in_band::is_ours(&text))
}

/// Reads a scenario without running it.
pub fn read(path: &Path) -> Result<(), Failure> {
    in_band::settings::Scenario::read(path).map(drop)
}

pub fn run(args: &Args) -> Result<(), Failure> {
    if !args.is_auster() {
        return Err(Failure::usage(format!(
            "--controller {}: this scenario brings its own",
            args.controller.join(", ")
        )));
    }
    if args.seconds.is_some() {
        return Err(Failure::usage(
            "--seconds: this scenario says how long a run lasts; --runs says how many there are",
        ));
    }
    if args
        .runs
        .is_some_and(|runs| !(1..=RUNS_MAX).contains(&runs))
    {
        return Err(Failure::usage("--runs: 1 to 1000"));
    }
    in_band::run(args)
}
