//! Arbitrary messages of each version: what is written is read back as it was.

mod common;

use std::collections::BTreeSet;

use clock::SplitMix64;
use openflow::message::{ErrorMessage, Experimenter, MultipartReply, MultipartRequest};
use openflow::{Frame, Message, MessageKind, Version, Xid, decode, encode};
use proptest::prelude::*;

use common::generate::{Rng, earlier, later, v10, v13};
use common::{reframed, to_hex};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn what_is_written_is_read_back(seed: u64, xid: u32) {
        let message = v13::message(&mut Rng(SplitMix64::new(seed)));
        let frame = encode(Version::V13, Xid(xid), &message).expect("a message of 1.3");
        prop_assert_eq!(frame.xid(), Xid(xid));
        prop_assert_eq!(decode(&frame), Ok(message), "{}", to_hex(frame.bytes()));
    }

    #[test]
    fn what_is_written_in_1_4_is_read_back(seed: u64, xid: u32) {
        reads_back(Version::V14, later::v14(&mut Rng(SplitMix64::new(seed))), Xid(xid))?;
    }

    #[test]
    fn what_is_written_in_1_5_is_read_back(seed: u64, xid: u32) {
        reads_back(Version::V15, later::v15(&mut Rng(SplitMix64::new(seed))), Xid(xid))?;
    }

    /// Nothing is lost silently: an older version encodes all of a message, or refuses it.
    #[test]
    fn a_later_message_is_said_or_refused_in_an_older_version(seed: u64, is_v15: bool) {
        let g = &mut Rng(SplitMix64::new(seed));
        let (older, message) = match is_v15 {
            true => (vec![Version::V13, Version::V14], later::v15(g)),
            false => (vec![Version::V13], later::v14(g)),
        };
        for version in older {
            match encode(version, Xid(1), &message) {
                Ok(frame) => prop_assert_eq!(decode(&frame), Ok(message.clone())),
                Err(error) => {
                    let words = format!("OpenFlow {version} has no ");
                    prop_assert!(error.to_string().starts_with(&words), "{}", error);
                }
            }
        }
        if let Ok(frame) = encode(Version::V12, Xid(1), &message) {
            prop_assert_eq!(decode(&frame), Ok(message.clone()));
        }
        same_words_in_1_1(&message)?;
    }

    #[test]
    fn what_is_written_in_1_2_is_read_back(seed: u64, xid: u32) {
        reads_back(Version::V12, earlier::v12(&mut Rng(SplitMix64::new(seed))), Xid(xid))?;
    }

    #[test]
    fn what_is_written_in_1_1_is_read_back(seed: u64, xid: u32) {
        let g = &mut Rng(SplitMix64::new(seed));
        reads_back(Version::V11, earlier::v11(g), Xid(xid))?;
        same_words_in_1_1(&earlier::unordered_v11(g))?;
    }

    #[test]
    fn an_earlier_message_cut_anywhere_is_read_or_refused(
        seed: u64,
        is_v12: bool,
        cut: prop::sample::Index,
    ) {
        let g = &mut Rng(SplitMix64::new(seed));
        let (version, message) = match is_v12 {
            true => (Version::V12, earlier::v12(g)),
            false => (Version::V11, earlier::v11(g)),
        };
        is_read_or_refused(version, &message, cut)?;
    }

    /// Every cut of a message is refused or a shorter message, and never a panic.
    #[test]
    fn a_later_message_cut_anywhere_is_read_or_refused(
        seed: u64,
        is_v15: bool,
        cut: prop::sample::Index,
    ) {
        let g = &mut Rng(SplitMix64::new(seed));
        let (version, message) = match is_v15 {
            true => (Version::V15, later::v15(g)),
            false => (Version::V14, later::v14(g)),
        };
        is_read_or_refused(version, &message, cut)?;
    }

    /// A message of the ONF for 1.3 has the body of the message of 1.4.
    #[test]
    fn a_bundle_of_1_3_is_read_back(seed: u64, xid: u32) {
        let add = later::bundle_add(false, &mut Rng(SplitMix64::new(seed)));
        let message = Message::BundleAdd(add);
        match encode(Version::V13, Xid(xid), &message) {
            Ok(frame) => {
                prop_assert_eq!(frame.kind(), MessageKind::Experimenter);
                prop_assert_eq!(decode(&frame), Ok(message));
            }
            // 1.4 parts of the inner message cannot be expressed in 1.3.
            Err(error) => prop_assert!(error.to_string().starts_with("OpenFlow 1.3 has no ")),
        }
    }

    /// Random bytes: any answer is right but a panic, and a message that is read can be written.
    #[test]
    fn noise_is_refused_or_read(version in 0..8u8, ty in 0..37u8, noise: Vec<u8>) {
        let mut bytes = vec![version, ty, 0, 0, 0, 0, 0, 0];
        bytes.extend(noise);
        let frame = reframed(&bytes);
        if let Ok(message) = decode(&frame) {
            let version = frame.version().unwrap_or(Version::V13);
            let written = encode(version, frame.xid(), &message).expect("it was read");
            prop_assert_eq!(decode(&written), Ok(message));
        }
    }

    /// The vendor's message that is read: whatever follows its ids, what is read is written alike.
    #[test]
    fn a_role_status_of_noise_is_refused_or_read(
        role in 0..6u32,
        rest in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let ids = [Experimenter::ONF, Experimenter::ONF_ROLE_STATUS, role];
        let mut bytes = vec![4, 4, 0, 0, 0, 0, 0, 0];
        bytes.extend(ids.iter().flat_map(|word| word.to_be_bytes()));
        bytes.extend(&rest);
        let frame = reframed(&bytes);
        let read = decode(&frame);
        prop_assert_eq!(read.is_ok(), (1..=3).contains(&role) && rest.len() == 12);
        if let Ok(message) = read {
            prop_assert_eq!(message.kind(), MessageKind::RoleStatus);
            let written = encode(Version::V13, frame.xid(), &message).expect("it was read");
            prop_assert_eq!(&written.bytes()[..21], &frame.bytes()[..21]);
            prop_assert_eq!(&written.bytes()[24..], &frame.bytes()[24..]);
            for version in [Version::V10, Version::V12] {
                prop_assert!(encode(version, frame.xid(), &message).is_err());
            }
            let later = encode(Version::V14, frame.xid(), &message).expect("a message of 1.4");
            prop_assert_eq!(later.kind(), MessageKind::RoleStatus);
            prop_assert_eq!(decode(&later), Ok(message));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn what_is_written_in_1_0_is_read_back(seed: u64, xid: u32) {
        let (frame, message) = written_in_1_0(seed, Xid(xid));
        prop_assert_eq!(decode(&frame), Ok(message), "{}", to_hex(frame.bytes()));
    }

    #[test]
    fn a_message_of_1_0_cut_anywhere_is_read_or_refused_in_1_0(
        seed: u64,
        cut: prop::sample::Index,
    ) {
        let message = v10::message(&mut Rng(SplitMix64::new(seed)));
        let frame = encode(Version::V10, Xid(1), &message).expect("a message of 1.0");
        let len = 8 + cut.index(frame.len() - 7);
        if let Err(error) = decode(&reframed(&frame.bytes()[..len])) {
            let answer = Message::Error(ErrorMessage::new(error.kind, frame.bytes().clone()));
            prop_assert!(encode(Version::V10, Xid(1), &answer).is_ok(), "{}", error);
        }
    }
}

/// A match of 1.1 is read in an order of its own; nothing of it is lost.
fn same_words_in_1_1(message: &Message) -> Result<(), TestCaseError> {
    let Ok(frame) = encode(Version::V11, Xid(1), message) else {
        return Ok(());
    };
    let read = decode(&frame).map(|message| message.to_string());
    prop_assert_eq!(read, Ok(message.to_string()));
    Ok(())
}

fn is_read_or_refused(
    version: Version,
    message: &Message,
    cut: prop::sample::Index,
) -> Result<(), TestCaseError> {
    let frame = encode(version, Xid(1), message).expect("a message of its version");
    let len = 8 + cut.index(frame.len() - 7);
    match decode(&reframed(&frame.bytes()[..len])) {
        Err(error) => prop_assert!(error.offset <= len, "{}", error),
        Ok(message) => {
            let written = encode(version, Xid(1), &message).expect("it was read");
            prop_assert_eq!(decode(&written), Ok(message));
        }
    }
    Ok(())
}

fn reads_back(version: Version, message: Message, xid: Xid) -> Result<(), TestCaseError> {
    let frame = encode(version, xid, &message).expect("a message of its version");
    prop_assert_eq!(frame.xid(), xid);
    prop_assert_eq!(decode(&frame), Ok(message), "{}", to_hex(frame.bytes()));
    Ok(())
}

/// A frame of 1.0, and the message that it encodes: an entry without wildcards has the highest
/// priority, whatever its message gives (1.0, section 3.4).
fn written_in_1_0(seed: u64, xid: Xid) -> (Frame, Message) {
    let mut message = v10::message(&mut Rng(SplitMix64::new(seed)));
    let frame = encode(Version::V10, xid, &message).expect("a message of 1.0");
    if let Message::FlowMod(flow_mod) = &mut message {
        let wildcards: [u8; 4] = frame.bytes()[8..12].try_into().expect("four bytes");
        if u32::from_be_bytes(wildcards) == 0 {
            flow_mod.priority = u16::MAX;
        }
    }
    (frame, message)
}

/// One seed of 400,000 gives such an entry.
#[test]
fn an_entry_without_wildcards_is_read_back_with_the_highest_priority() {
    let (frame, message) = written_in_1_0(8449755761369915812, Xid(0));
    assert!(matches!(&message, Message::FlowMod(m) if m.priority == u16::MAX));
    assert_eq!(decode(&frame), Ok(message));
}

/// Otherwise the tests above show less than they say.
#[test]
fn the_generators_make_every_kind_of_message() {
    let seen = kinds(v13::message);
    assert_eq!(seen.len(), 29 + 16 + 16, "{seen:#?}");
    let seen = kinds(later::v14);
    assert_eq!(seen.len(), 31 + 19 + 19, "{seen:#?}");
    let seen = kinds(later::v15);
    assert_eq!(seen.len(), 32 + 22 + 22, "{seen:#?}");
    let seen = kinds(earlier::v12);
    assert_eq!(seen.len(), 24 + 12 + 12, "{seen:#?}");
    let seen = kinds(earlier::v11);
    assert_eq!(seen.len(), 22 + 11 + 11, "{seen:#?}");
    let seen = kinds(v10::message);
    assert_eq!(seen.len(), 20 + 8 + 8, "{seen:#?}");
}

fn kinds(message: fn(&mut Rng) -> Message) -> BTreeSet<String> {
    let of_seed = |seed| match &message(&mut Rng(SplitMix64::new(seed))) {
        Message::MultipartRequest(MultipartRequest { body, .. }) => {
            format!("request {}", variant(body))
        }
        Message::MultipartReply(MultipartReply { body, .. }) => {
            format!("reply {}", variant(body))
        }
        message => variant(message),
    };
    (0..5_000).map(of_seed).collect()
}

fn variant(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    let end = text.find([' ', '(', '{']).unwrap_or(text.len());
    text[..end].to_string()
}
