//! Arbitrary messages of OpenFlow 1.3: what is written is read back as it was.

mod common;

use std::collections::BTreeSet;

use openflow::message::{MultipartReply, MultipartRequest};
use openflow::{Message, Version, Xid, decode, encode};
use proptest::prelude::*;

use common::generate::{Rng, message};
use common::{reframed, to_hex};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn what_is_written_is_read_back(seed: u64, xid: u32) {
        let message = message(&mut Rng(seed));
        let frame = encode(Version::V13, Xid(xid), &message).expect("a message of 1.3");
        prop_assert_eq!(frame.xid(), Xid(xid));
        prop_assert_eq!(decode(&frame), Ok(message), "{}", to_hex(frame.bytes()));
    }

    /// Bytes that nobody meant: any answer is right but a panic, and what is read can be written.
    #[test]
    fn noise_is_refused_or_read(version in 0..8u8, ty in 0..35u8, noise: Vec<u8>) {
        let mut bytes = vec![version, ty, 0, 0, 0, 0, 0, 0];
        bytes.extend(noise);
        let frame = reframed(&bytes);
        if let Ok(message) = decode(&frame) {
            let version = frame.version().unwrap_or(Version::V13);
            let written = encode(version, frame.xid(), &message).expect("it was read");
            prop_assert_eq!(decode(&written), Ok(message));
        }
    }
}

/// Otherwise the tests above show less than they say.
#[test]
fn the_generator_makes_every_kind_of_message() {
    let mut seen = BTreeSet::new();
    for seed in 0..5_000 {
        let message = message(&mut Rng(seed));
        seen.insert(match &message {
            Message::MultipartRequest(MultipartRequest { body, .. }) => {
                format!("request {}", variant(body))
            }
            Message::MultipartReply(MultipartReply { body, .. }) => {
                format!("reply {}", variant(body))
            }
            message => variant(message),
        });
    }
    assert_eq!(seen.len(), 28 + 16 + 16, "{seen:#?}");
}

fn variant(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    let end = text.find([' ', '(', '{']).unwrap_or(text.len());
    text[..end].to_string()
}
