//! The checks of the fuzzing targets on the inputs that fuzzing kept: without a fuzzer, and on the
//! stable toolchain.

#![allow(clippy::disallowed_methods, reason = "a test reads files")]

#[path = "../../../fuzz/checks/frame.rs"]
mod frame;
#[path = "../../../fuzz/checks/membership.rs"]
mod membership;
#[path = "../../../fuzz/checks/message.rs"]
mod message;
#[path = "../../../fuzz/checks/text.rs"]
mod text;

#[test]
fn frame_holds_for_its_corpus() {
    replay("frame", frame::check);
}

#[test]
fn membership_holds_for_its_corpus() {
    replay("membership", membership::check);
}

#[test]
fn message_holds_for_its_corpus() {
    replay("message", message::check);
}

#[test]
fn text_holds_for_its_corpus() {
    replay("text", text::check);
}

fn replay(target: &str, check: fn(&[u8])) {
    let corpus = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for file in std::fs::read_dir(&corpus).expect("a corpus of each target") {
        let path = file.expect("a file").path();
        // The last path printed is the one that fails.
        println!("{}", path.display());
        check(&std::fs::read(&path).expect("it can be read"));
        count += 1;
    }
    assert!(count >= 20, "{count} inputs in {corpus}");
}
