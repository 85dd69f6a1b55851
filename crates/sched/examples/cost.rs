//! Does the work of N messages, for a count of its instructions:
//!
//!     cargo build --release -p auster-sched --example cost
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!         target/release/examples/cost schedule hierarchy 100000
//!
//! `classify RULES N` asks a map of that many rules about a packet-in; `both RULES N` also sends it
//! through a scheduler. The difference between two N, over their difference, is the cost of one
//! message.

#![allow(clippy::disallowed_methods, reason = "a program reads its arguments")]

#[path = "../benches/load/mod.rs"]
mod load;
#[path = "../benches/subjects/mod.rs"]
mod subjects;

use std::hint::black_box;
use std::process::ExitCode;

use clock::Instant;
use sched::policy::Algorithm;
use sched::{Classifier, Direction, PolicyMap, Scheduler};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["schedule", algorithm, count] => match count.parse() {
            Ok(count) => return schedule(algorithm, count),
            Err(_) => eprintln!("{count}: not a number of messages"),
        },
        [what @ ("classify" | "both"), rules, count] => match (rules.parse(), count.parse()) {
            (Ok(rules), Ok(count)) => return classify(rules, count, what == "both"),
            _ => eprintln!("{rules} {count}: not a number of rules and one of messages"),
        },
        _ => eprintln!(
            "cost classify|both RULES N, or cost schedule \
             fifo|strict|wfq|drr|min-rate|edf|hierarchy N"
        ),
    }
    ExitCode::from(2)
}

fn schedule(name: &str, count: u32) -> ExitCode {
    let Some(algorithm) = Algorithm::named(name) else {
        eprintln!("{name}: no such discipline");
        return ExitCode::from(2);
    };
    let mut load = load::Load::new(algorithm);
    for _ in 0..count {
        black_box(load.step());
    }
    ExitCode::SUCCESS
}

/// No rule takes the packet-in, so all are looked at; the default queue of the hierarchy does.
fn classify(rules: usize, count: u64, with_scheduler: bool) -> ExitCode {
    let mut map = PolicyMap::auster();
    map.rules = subjects::map(rules, 2).rules;
    let classifier = Classifier::new(&map);
    let direction = Direction::ToController;
    let mut scheduler = Scheduler::new(direction, &map.scheduling);
    let frame = subjects::packet_in(subjects::udp(20000));
    for n in 0..count {
        let verdict = classifier.classify(black_box(&frame), direction, 1, None);
        if with_scheduler {
            scheduler.push(Instant(n), verdict.tag, n);
            black_box(scheduler.pop(Instant(n)));
        }
        black_box(verdict);
    }
    ExitCode::SUCCESS
}
