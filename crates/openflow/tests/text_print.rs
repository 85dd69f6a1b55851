//! Printed messages against `ovs-ofctl ofp-parse`, and read back.
//!
//! Every fixture and some thousand generated messages. Where the two programs differ, it must be
//! by one of the [`RULES`]; everything else must be equal to the byte.

#![allow(clippy::disallowed_methods, reason = "a test runs another program")]

mod common;

use std::collections::BTreeMap;

use clock::SplitMix64;
use common::generate::{Rng, earlier, later, v10, v13};
use openflow::message::{Capabilities, SwitchFeatures};
use openflow::text::{parse_message, print, print_exact};
use openflow::{DatapathId, Frame, Message, Version, Xid, decode, encode};

/// Why a text may differ from Open vSwitch's: name, and whether it holds for `(ours, theirs)`.
type Rule = (&'static str, fn(&str, &str) -> bool);

const RULES: &[Rule] = &[
    (
        "a vendor's message, action or field is kept as bytes",
        |ours, _| {
            ours.contains("_EXPERIMENTER")
                || ours.contains("experimenter(")
                || ours.contains("oxm=")
        },
    ),
    (
        "neither reads it: the header line is ours, the error may differ",
        |ours, theirs| ours.contains("***decode error") && theirs.contains("***decode error"),
    ),
    ("Open vSwitch refuses it for its meaning", |ours, theirs| {
        theirs.contains("***decode error") && !ours.contains("***decode error")
    }),
    (
        "a continuation is the switch's own, and printed as bytes",
        |ours, theirs| ours.contains("\n continuation=") && theirs.contains("\n continuation."),
    ),
    ("properties of vendors are not printed", |_, theirs| {
        theirs.contains("CUSTOM Statistics") || theirs.contains("selection_method=")
    }),
    (
        "Open vSwitch loses the eviction of a TABLE_MOD that says by what",
        |ours, _| ours.starts_with("OFPT_TABLE_MOD") && ours.contains("eviction_flags="),
    ),
    ("table features are listed", |ours, _| {
        ours.starts_with("OFPST_TABLE_FEATURES")
    }),
    (
        "tables of 1.0 to 1.2 have what they can do as a number",
        |ours, _| {
            ours.starts_with("OFPST_TABLE reply")
                && (ours.contains(" wildcards=") || ours.contains(" features="))
        },
    ),
    (
        "an error of Nicira or the ONF is printed as numbers",
        |ours, _| {
            let first = ours.lines().next().unwrap_or("");
            first.starts_with("OFPT_ERROR")
                && (first.ends_with(": type 45250 code 0") || first.contains(": experimenter 0x"))
        },
    ),
    (
        "what a HELLO has beside its bitmap is not kept",
        |_, theirs| theirs.contains("unknown data in hello"),
    ),
    (
        "Open vSwitch prints the TOS and the ports that 1.0 has no meaning for in ARP",
        |ours, theirs| theirs.replace(",nw_tos=0,tp_src=0,tp_dst=0", "") == ours,
    ),
    (
        "Open vSwitch reads nothing of an IP packet with a wrong length",
        |_, theirs| theirs.contains("nw_proto=0,nw_tos=0,nw_ecn=0,nw_ttl=0,nw_frag=no"),
    ),
    (
        "it is refused: codec.rs lists it with the reason",
        |ours, _| {
            let is_request = ours.starts_with("OFPST_AGGREGATE request (OF1.5)");
            ours.contains("***decode error: OFPMMFC_BAD_FLAGS")
                || is_request && ours.contains("***decode error: OFPBRC_BAD_LEN")
        },
    ),
    (
        "Open vSwitch has no copy_ttl_out, copy_ttl_in and PBB",
        |ours, _| ours.contains("copy_ttl") || ours.contains("_pbb"),
    ),
    (
        "1.0 with extensions of Open vSwitch: PORT_DESC, a table in the command",
        |ours, _| {
            ours.starts_with("OFPST_13 ") || ours.contains("***decode error: OFPFMFC_BAD_COMMAND")
        },
    ),
];

/// Prints what differs without a rule, and gives the counts of equal texts and of each rule.
fn compare(frames: &[(String, Frame)]) -> (usize, BTreeMap<&'static str, usize>, Vec<String>) {
    let plain: Vec<&Frame> = frames.iter().map(|(_, frame)| frame).collect();
    let theirs = common::ovs::prints(&plain);
    let mut equal = 0;
    let mut by_rule = BTreeMap::new();
    let mut unexplained = Vec::new();
    for ((title, frame), theirs) in frames.iter().zip(&theirs) {
        let ours = print(frame);
        if ours == *theirs {
            equal += 1;
        } else if let Some((name, _)) = RULES.iter().find(|(_, holds)| holds(&ours, theirs)) {
            *by_rule.entry(*name).or_default() += 1;
        } else {
            unexplained.push(format!("{title}\n ours: {ours}\n ovs:  {theirs}"));
        }
    }
    (equal, by_rule, unexplained)
}

#[test]
fn fixtures_print_as_ovs_ofctl_prints_them() {
    let frames: Vec<(String, Frame)> = common::fixtures()
        .into_iter()
        .map(|f| (f.title(), f.frame))
        .collect();
    let (equal, by_rule, unexplained) = compare(&frames);
    println!("{equal} of {} equal; {by_rule:#?}", frames.len());
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
    // The words are the same where both programs read the message and it has nothing of a vendor.
    let explained: usize = by_rule.values().sum();
    assert!(
        equal > 2_690 && explained < 470,
        "{equal} equal, {explained} by rule"
    );
}

/// Each bit has its name from a version on, or up to one.
#[test]
fn capabilities_print_as_ovs_ofctl_prints_them() {
    for version in Version::ALL.into_iter().filter(|v| *v != Version::V10) {
        let message = Message::FeaturesReply(SwitchFeatures {
            datapath_id: DatapathId(1),
            n_buffers: 0,
            n_tables: 1,
            auxiliary_id: 0,
            capabilities: Capabilities(u32::MAX),
            actions: 0,
            ports: Vec::new(),
        });
        let frame = encode(version, Xid(1), &message).expect("each has it");
        assert_eq!(common::ovs::prints(&[&frame]), [print(&frame)]);
    }
}

fn reads_back(frame: &Frame, message: &Message, title: &str) {
    let text = print_exact(frame);
    let (version, xid, read) =
        parse_message(&text).unwrap_or_else(|error| panic!("{title}: {error}\n{text}"));
    assert_eq!(Some(version), frame.version(), "{title}");
    assert_eq!(xid, frame.xid(), "{title}");
    assert_eq!(read, *message, "{title}\n{text}");
}

#[test]
fn every_fixture_reads_back_from_its_exact_text() {
    let mut read_count = 0;
    for fixture in common::fixtures() {
        let Ok(message) = decode(&fixture.frame) else {
            continue;
        };
        reads_back(&fixture.frame, &message, &fixture.title());
        read_count += 1;
    }
    assert!(read_count > 1_900, "{read_count}");
}

#[test]
fn generated_messages_read_back_from_their_exact_text() {
    generated_reads_back(Version::V10, v10::message);
    generated_reads_back(Version::V11, earlier::v11);
    generated_reads_back(Version::V12, earlier::v12);
    generated_reads_back(Version::V13, v13::message);
    generated_reads_back(Version::V14, later::v14);
    generated_reads_back(Version::V15, later::v15);
}

fn generated_reads_back(version: Version, generate: fn(&mut Rng) -> Message) {
    let mut words_suffice = 0;
    for seed in 0..2_000 {
        let message = generate(&mut Rng(SplitMix64::new(seed)));
        let frame = encode(version, Xid(seed as u32), &message).expect("a message");
        reads_back(&frame, &message, &format!("{version:?}, seed {seed}"));
        words_suffice += usize::from(!print_exact(&frame).contains("\nframe="));
    }
    assert!(words_suffice > 400, "{version:?}: {words_suffice}");
}
