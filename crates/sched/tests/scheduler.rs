//! The scheduler under random operations, beside the slow model that the fuzz target uses.

#![allow(clippy::disallowed_methods, reason = "a test reads files")]

#[path = "../../../fuzz/checks/scheduler.rs"]
mod scheduler;

use proptest::prelude::*;

/// The byte that chooses the discipline and the direction.
fn kinds() -> impl Strategy<Value = u8> {
    (0u8..7, any::<bool>()).prop_map(|(algorithm, to_switch)| algorithm | u8::from(to_switch) << 7)
}

fn operations() -> impl Strategy<Value = Vec<u8>> {
    let op = any::<[u8; 4]>();
    let ops = proptest::collection::vec(op, 1..300).prop_map(|ops| ops.concat());
    (kinds(), any::<u8>(), ops).prop_map(|(kind, limits, ops)| [&[kind, limits][..], &ops].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn whatever_is_done_the_law_holds_and_the_figures_add_up(data in operations()) {
        let done = scheduler::run(&data, |scheduler| scheduler);
        prop_assert_eq!(done, Ok(()));
    }
}

#[test]
fn without_the_layer_of_order_the_law_is_broken_and_seen() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let overtaken = (0..200).filter(|_| {
        let data = operations().new_tree(&mut runner).unwrap().current();
        let done = scheduler::run(&data, |scheduler| scheduler.without_order());
        done.is_err_and(|why| why.contains("overtook"))
    });
    assert!(overtaken.count() > 50);
}

/// Runs the inputs that the fuzzer kept.
#[test]
fn the_fuzzers_corpus_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/scheduler");
    let mut count = 0;
    for file in std::fs::read_dir(corpus).expect("a corpus") {
        let path = file.expect("a file").path();
        println!("{}", path.display());
        scheduler::check(&std::fs::read(&path).expect("it can be read"));
        count += 1;
    }
    assert!(count >= 20, "{count} inputs in {corpus}");
}
