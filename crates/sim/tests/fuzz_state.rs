//! Runs the checks of the fuzz targets `state` and `relay` on the kept inputs and on random ones.

#![allow(
    clippy::disallowed_methods,
    reason = "a test reads files and its environment"
)]

use std::collections::BTreeSet;

use clock::SplitMix64;

#[path = "../../../fuzz/checks/relay.rs"]
mod relay;
#[path = "../../../fuzz/checks/state.rs"]
mod state;

/// Operations of each target's replay in `cargo test`: less than a minute together.
const OPERATIONS: u64 = 20_000;

type Run = fn(&[u8]) -> Result<u64, String>;

struct Random(SplitMix64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.next()
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Arbitrary bytes, or pieces of the kept inputs, cut, repeated and altered.
    fn input(&mut self, kept: &[Vec<u8>]) -> Vec<u8> {
        if kept.is_empty() || self.next().is_multiple_of(2) {
            let len = 16 + self.below(2000);
            return self.bytes(len);
        }
        let mut input = self.bytes(2);
        while input.len() < 1000 {
            let from = &kept[self.below(kept.len())];
            let start = self.below(from.len().max(1));
            let end = (start + 1 + self.below(64)).min(from.len());
            input.extend(from.get(start..end).unwrap_or_default());
            input.extend(self.bytes(1));
        }
        for _ in 0..self.below(8) {
            let at = self.below(input.len());
            input[at] = self.next() as u8;
        }
        input
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let corpus = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> = std::fs::read_dir(corpus)
        .expect("a corpus")
        .map(|file| file.expect("a file").path())
        .collect();
    files.sort();
    let read = |path| std::fs::read(path).expect("it can be read");
    files.into_iter().map(read).collect()
}

/// The number of operations of an input, and its fault. A panic has printed its own location.
fn fault(run: Run, data: &[u8]) -> (u64, Option<String>) {
    match std::panic::catch_unwind(|| run(data)) {
        Ok(Ok(count)) => (count, None),
        Ok(Err(why)) => (0, Some(why)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            (0, Some(format!("panic: {}", text.unwrap_or_default())))
        }
    }
}

/// The same kind of fault with fewer bytes: pieces are left out as long as it stays.
fn smaller(run: Run, mut data: Vec<u8>) -> Vec<u8> {
    let same = fault(run, &data).1.map(|why| kind(&why));
    let mut piece = data.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at < data.len() {
            let end = (at + piece).min(data.len());
            let without: Vec<u8> = [&data[..at], &data[end..]].concat();
            if fault(run, &without).1.map(|why| kind(&why)) == same {
                data = without;
            } else {
                at = end;
            }
        }
        piece /= 2;
    }
    data
}

/// The name of a fault, without its numbers.
fn kind(why: &str) -> String {
    let letters = why.chars().filter(|c| !c.is_ascii_digit());
    letters.take(60).collect()
}

fn hex(data: &[u8]) -> String {
    data.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Runs random inputs from one seed on until `operations` are done. Reports each kind of fault
/// once, with the least input that has it.
fn explore(target: &str, run: Run, seed: u64, operations: u64) -> BTreeSet<String> {
    let (kept, mut random) = (corpus(target), Random(SplitMix64::new(seed)));
    let (mut done, mut inputs) = (0, 0);
    let mut kinds = BTreeSet::new();
    while done < operations {
        let data = random.input(&kept);
        inputs += 1;
        let (count, why) = fault(run, &data);
        done += count;
        if let Some(why) = why
            && kinds.insert(kind(&why))
        {
            println!("after {done} operations, input {inputs}: {why}");
            let least = smaller(run, data);
            println!("the least: FUZZ_TARGET={target} FUZZ_INPUT={}", hex(&least));
        }
    }
    println!("{target}: {done} operations in {inputs} inputs from seed {seed}");
    kinds
}

fn replay(target: &str, check: fn(&[u8])) {
    let corpus = corpus(target);
    for input in &corpus {
        // The last input printed is the one that fails.
        println!("FUZZ_TARGET={target} FUZZ_INPUT={}", hex(input));
        check(input);
    }
    assert!(corpus.len() >= 10, "{} inputs", corpus.len());
}

#[test]
fn state_holds_for_its_fuzz_corpus() {
    replay("state", state::check);
}

#[test]
fn relay_holds_for_its_fuzz_corpus() {
    replay("relay", relay::check);
}

#[test]
fn state_holds_for_random_operations() {
    let kinds = explore("state", state::run, 1, OPERATIONS);
    assert_eq!(kinds, BTreeSet::new());
}

#[test]
fn relay_holds_for_random_operations() {
    let kinds = explore("relay", relay::run, 1, OPERATIONS);
    assert_eq!(kinds, BTreeSet::new());
}

fn asked(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn target() -> (String, Run) {
    match asked("FUZZ_TARGET") {
        Some(relay) if relay == "relay" => (relay, relay::run),
        _ => ("state".to_owned(), state::run),
    }
}

/// Runs for as long as one likes: FUZZ_TARGET, FUZZ_SEED, FUZZ_OPERATIONS.
#[test]
#[ignore = "ten million operations"]
fn a_target_holds_for_many_random_operations() {
    let number = |name, default| match asked(name) {
        Some(text) => text.parse().expect("a number"),
        None => default,
    };
    let (name, run) = target();
    let (seed, operations) = (
        number("FUZZ_SEED", 2),
        number("FUZZ_OPERATIONS", 10_000_000),
    );
    assert_eq!(explore(&name, run, seed, operations), BTreeSet::new());
}

/// One input, as hexadecimal digits: FUZZ_TARGET, FUZZ_INPUT.
#[test]
#[ignore = "asks for an input"]
fn a_target_holds_for_an_input() {
    let text = asked("FUZZ_INPUT").expect("hexadecimal digits");
    let digits = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("two digits");
    let data: Vec<u8> = (0..text.len()).step_by(2).map(digits).collect();
    target().1(&data).unwrap_or_else(|why| panic!("{why}"));
}
