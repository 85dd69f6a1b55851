//! Checks the same as the fuzz target `experimenter`, on the kept inputs and on random ones.

#![allow(clippy::disallowed_methods, reason = "a test reads files")]

#[path = "../../../fuzz/checks/experimenter.rs"]
mod experimenter;

use proptest::prelude::*;

#[test]
fn experimenter_holds_for_its_fuzz_corpus() {
    let corpus = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fuzz/corpus/experimenter"
    );
    let mut count = 0;
    for file in std::fs::read_dir(corpus).expect("a corpus") {
        let path = file.expect("a file").path();
        // The last name printed is that of the failing one.
        println!("{}", path.display());
        experimenter::check(&std::fs::read(&path).expect("it can be read"));
        count += 1;
    }
    assert!(count >= 10, "{count} inputs in {corpus}");
}

/// Bodies of the right shape and of any shape.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let body = prop_oneof![
        (0u8..12, proptest::collection::vec(any::<u8>(), 0..80))
            .prop_map(|(number, rest)| { [&[0, 0, 0, number], &rest[..]].concat() }),
        // The same name throughout, so that some belong together.
        (0u8..8, 0u8..4, proptest::collection::vec(any::<u8>(), 0..9)).prop_map(
            |(number, generation, rest)| {
                let name = [&[0; 7][..], &[generation], &[5; 32]].concat();
                [&[0, 0, 0, number], &name[..], &rest].concat()
            }
        ),
    ];
    let message = body.prop_map(|body| [&[body.len() as u8, 4], &body[..]].concat());
    proptest::collection::vec(message, 0..12).prop_map(|all| all.concat())
}

proptest! {
    #[test]
    fn experimenter_holds_for_random_messages(data in messages()) {
        experimenter::check(&data);
    }
}
