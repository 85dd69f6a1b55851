//! The checks of the fuzz target `policy`, on the stored inputs and on random ones.

#![allow(clippy::disallowed_methods, reason = "a test reads files")]

#[path = "../../../fuzz/checks/policy.rs"]
mod policy;

use proptest::prelude::*;

#[test]
fn policy_holds_for_its_fuzz_corpus() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/policy");
    let mut count = 0;
    for file in std::fs::read_dir(corpus).expect("a corpus") {
        let path = file.expect("a file").path();
        // The last path printed is the one that fails.
        println!("{}", path.display());
        policy::check(&std::fs::read(&path).expect("it can be read"));
        count += 1;
    }
    assert!(count >= 20, "{count} inputs in {corpus}");
}

fn texts() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        "Rule #[1-9]: (traffic_type=[0-5a], )?(ip_proto=[0-9]{1,2}, )?(udp_dst=[0-9]{1,2}, \
         )?action=(queue_id:[0-9]|dscp:(CS[0-8]|copy|EF))",
        "Queue #[0-9]: weight=[0-9], (limit_bytes=[0-9]k, )?deadline=[0-9](ms|s)",
        "Scheduler: algo=(fifo|drr|strict), (hard_bytes=[0-9]m)?",
        "Dscp: CS[0-7]=[0-9]",
        "Default: action=queue_id:[0-3]",
        "[ -~]{0,30}",
    ];
    proptest::collection::vec(line, 0..8).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn policy_holds_for_random_maps_and_messages(
        text in texts(), bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        policy::check(&[text.as_bytes(), &[0], &bytes].concat());
    }
}
