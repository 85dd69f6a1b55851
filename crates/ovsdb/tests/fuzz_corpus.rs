//! The checks of the fuzzing target on the inputs that fuzzing kept: without a fuzzer, and on the
//! stable toolchain.

#![allow(clippy::disallowed_methods, reason = "a test reads files")]

#[path = "../../../fuzz/checks/ovsdb.rs"]
mod checks;

#[test]
fn ovsdb_holds_for_its_corpus() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/ovsdb");
    let mut count = 0;
    for file in std::fs::read_dir(corpus).expect("a corpus") {
        let path = file.expect("a file").path();
        // The last file printed is the one that fails.
        println!("{}", path.display());
        checks::check(&std::fs::read(&path).expect("it can be read"));
        count += 1;
    }
    assert!(count >= 20, "{count} inputs in {corpus}");
}
