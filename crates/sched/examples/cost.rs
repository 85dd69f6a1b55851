//! Does the work of N messages, for a count of its instructions:
//!
//!     cargo build --release -p auster-sched --example cost
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!         target/release/examples/cost schedule hierarchy 100000
//!
//! The difference between two N, over their difference, is the cost of one message.

#![allow(clippy::disallowed_methods, reason = "a program reads its arguments")]

#[path = "../benches/load/mod.rs"]
mod load;

use std::hint::black_box;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["schedule", algorithm, count] => match count.parse() {
            Ok(count) => return schedule(algorithm, count),
            Err(_) => eprintln!("{count}: not a number of messages"),
        },
        _ => eprintln!("cost schedule fifo|strict|wfq|drr|min-rate|edf|hierarchy N"),
    }
    ExitCode::from(2)
}

fn schedule(name: &str, count: u32) -> ExitCode {
    let Some((_, algorithm)) = load::ALGORITHMS.iter().find(|(n, _)| *n == name) else {
        eprintln!("{name}: no such discipline");
        return ExitCode::from(2);
    };
    let mut load = load::Load::new(*algorithm);
    for _ in 0..count {
        black_box(load.step());
    }
    ExitCode::SUCCESS
}
