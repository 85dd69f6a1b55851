//! The codec against the bytes of other programs: whole, cut, broken, hostile.

mod common;

use std::collections::BTreeSet;
use std::fmt::Write;

use bytes::BytesMut;
use openflow::error::EncodeError;
use openflow::match_fields::{Field, Match, MatchField};
use openflow::message::{FlowMod, FlowModFlags};
use openflow::{
    Action, Frame, Instruction, Message, MessageKind, MeterId, PortNo, Version, Xid, decode, encode,
};

use common::{fixtures, from_hex, reframed, to_hex};

/// Fixtures that are not encoded as they were received, with the reason. All others must be.
const NOT_CANONICAL: &[(&str, &str)] = &[
    (
        "os-ken/of10 0005 1-6-ofp_switch_features",
        "port states that 1.0 does not define",
    ),
    (
        "os-ken/of10 0045 flow_mod",
        "the priority of an untagged frame: wild, where Open vSwitch writes 0",
    ),
    (
        "ovs/of11 0008 multipart_reply/flow",
        "matches as OXM, which 1.1 has a form for",
    ),
    (
        "ovs-tests/of10 0052 hello",
        "text in a HELLO, which has no body in 1.0",
    ),
    (
        "ovs-tests/of10 0054 hello",
        "an element of no known type, and text after the last",
    ),
    (
        "ovs-tests/of10 0069 flow_removed",
        "ports and TOS of an ARP packet, which 1.0 says to ignore",
    ),
    (
        "ovs-tests/of10 0073 flow_mod",
        "ports and TOS of an ARP packet, and the priority of one without wildcards",
    ),
    (
        "ovs-tests/of10 0077 multipart_request/flow",
        "a port under its wildcard",
    ),
    (
        "ovs-tests/of10 0078 multipart_reply/flow",
        "ports and TOS of an ARP packet, which 1.0 says to ignore",
    ),
    (
        "ovs-tests/of10 0079 multipart_request/aggregate",
        "a port under its wildcard",
    ),
    ("ovs-tests/of10 0152 packet_in", "padding that is not zero"),
    (
        "ovs-tests/of11 0036 multipart_reply/flow",
        "padding that is not zero",
    ),
    (
        "ovs-tests/of11 0038 multipart_reply/flow",
        "padding that is not zero",
    ),
    (
        "ovs-tests/of11 0044 multipart_reply/flow",
        "padding that is not zero",
    ),
    (
        "ovs-tests/of11 0046 multipart_reply/flow",
        "padding that is not zero",
    ),
    (
        "ovs-tests/of11 0047 multipart_reply/flow",
        "padding that is not zero",
    ),
    (
        "ovs-tests/of13 0035 multipart_reply/table_features",
        "padding of ids of actions and instructions, as 1.3.0 had it",
    ),
    (
        "ovs-tests/of15 0014 multipart_reply/aggregate",
        "statistics with a field of their message, last",
    ),
];

/// Fixtures that are refused, with the error and the reason.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "os-ken/of13 0056 4-59-ofp_packet_in",
        "MATCH_BAD_PREREQ",
        "every field in one match: an IP protocol in an ARP packet",
    ),
    (
        "os-ken/of13 0058 4-60-ofp_flow_mod",
        "MATCH_BAD_PREREQ",
        "every field in one match: an IP protocol in an ARP packet",
    ),
    (
        "os-ken/of14 0054 5-57-ofp_packet_in",
        "MATCH_BAD_PREREQ",
        "every field in one match: an IP protocol in an ARP packet",
    ),
    (
        "os-ken/of14 0055 5-58-ofp_flow_mod",
        "MATCH_BAD_PREREQ",
        "every field in one match: an IP protocol in an ARP packet",
    ),
    (
        "os-ken/of14 0069 5-70-ofp_bundle_add_msg",
        "BUNDLE_MSG_UNSUP",
        "an echo request in a bundle",
    ),
    (
        "os-ken/of15 0023 libofproto-OFP15-flow_desc_reply",
        "INST_BAD_LEN",
        "an instruction of 2,056 bytes in a row of 64",
    ),
    (
        "ovs-ofctl/of10 0026 flow_mod",
        "FLOW_MOD_BAD_COMMAND",
        "a table in the upper byte of the command, by a Nicira extension",
    ),
    (
        "ovs-tests/of14 0021 requestforward",
        "METER_BAD_FLAGS",
        "a flag of a meter that no version names, 0x100",
    ),
    (
        "ovs-tests/of15 0013 multipart_request/aggregate",
        "BAD_LEN",
        "statistics after the match, where a request has none: Open vSwitch passes over them",
    ),
];

#[test]
fn the_fixtures_hold_every_message_type() {
    let fixtures = fixtures();
    assert!(fixtures.len() > 2_300, "{}", fixtures.len());
    for version in Version::ALL {
        let of_version = fixtures.iter().map(|f| &f.frame);
        let of_version = of_version.filter(|f| f.version() == Some(version));
        let held: BTreeSet<_> = of_version.map(Frame::kind).collect();
        let known = (0..=255).map(|byte| MessageKind::from_wire(version.wire(), byte));
        let known: BTreeSet<_> = known.filter(|k| *k != MessageKind::Unknown).collect();
        assert_eq!(held, known, "OpenFlow {version}");
        let of_version = fixtures
            .iter()
            .filter(|f| f.frame.version() == Some(version));
        assert!(of_version.count() >= 140, "OpenFlow {version}");
    }
}

#[test]
fn every_fixture_is_read_and_written_back_to_the_same_bytes() {
    let mut wrong = String::new();
    for fixture in fixtures() {
        let title = fixture.title();
        let frame = &fixture.frame;
        let refused = REFUSED.iter().find(|(t, ..)| *t == title);
        let message = match (decode(frame), refused) {
            (Ok(message), None) => message,
            (Err(error), Some((_, kind, _))) if error.kind.name() == Some(*kind) => continue,
            (outcome, _) => {
                let _ = writeln!(wrong, "{title}: {outcome:?}\n  {}", to_hex(frame.bytes()));
                continue;
            }
        };
        let version = frame.version().expect("a version of ours");
        let written = encode(version, frame.xid(), &message).expect("what was read can be written");
        let canonical = !NOT_CANONICAL.iter().any(|(t, _)| *t == title);
        let came = with_32_bits_wild(frame);
        if (written == came) != canonical {
            let (came, went) = (to_hex(came.bytes()), to_hex(written.bytes()));
            let _ = writeln!(wrong, "{title}: canonical: {canonical}\n  {came}\n  {went}");
        }
        assert_eq!(decode(&written).as_ref(), Ok(&message), "{title}");
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// `ofp_match` of 1.0 counts the wild bits of an address in 6 bits, where 32 and more mean all. We
/// write 32 as Open vSwitch does, os-ken writes 63.
fn with_32_bits_wild(frame: &Frame) -> Frame {
    let mut bytes = frame.bytes().to_vec();
    let at = match (frame.version(), frame.kind()) {
        (Some(Version::V10), MessageKind::FlowMod | MessageKind::FlowRemoved) => 8,
        // FLOW and AGGREGATE.
        (Some(Version::V10), MessageKind::MultipartRequest) if matches!(bytes[9], 1 | 2) => 12,
        _ => return frame.clone(),
    };
    let mut wildcards = u32::from_be_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    for shift in [8, 14] {
        if wildcards >> shift & 0x3f > 32 {
            wildcards = wildcards & !(0x3f << shift) | 32 << shift;
        }
    }
    bytes[at..at + 4].copy_from_slice(&wildcards.to_be_bytes());
    reframed(&bytes)
}

/// The length in the header is made to fit, so that the cut reaches the decoders of the parts. A
/// message that ends in a list or in free bytes may be whole after a cut: then it is a message.
#[test]
fn a_message_cut_at_any_length_is_refused_or_is_a_shorter_message() {
    let (mut refused, mut read) = (0, 0);
    for fixture in fixtures() {
        let bytes = fixture.frame.bytes();
        for len in 8..bytes.len().min(2000) {
            let frame = reframed(&bytes[..len]);
            match decode(&frame) {
                Err(error) => {
                    assert!(error.offset <= len, "{}: {error}", fixture.title());
                    refused += 1;
                }
                Ok(message) => {
                    let written = reencode(&frame);
                    assert_eq!(decode(&written), Ok(message), "{}", fixture.title());
                    read += 1;
                }
            }
        }
    }
    assert!(refused > 5 * read, "{refused} refused, {read} read");
}

/// A zero, all ones and an off-by-one in every 16 bits: lengths and types are among them.
#[test]
fn a_message_with_any_two_bytes_broken_is_refused_or_still_a_message() {
    for fixture in fixtures() {
        let whole = fixture.frame.bytes();
        // Longer messages are lists of items that shorter ones have too.
        if whole.len() > 2000 {
            continue;
        }
        for at in 8..whole.len().min(600).saturating_sub(1) {
            let old = u16::from_be_bytes([whole[at], whole[at + 1]]);
            for new in [0, 0xffff, old.wrapping_add(1), old.wrapping_sub(1)] {
                let mut bytes = whole.to_vec();
                bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
                let frame = reframed(&bytes);
                if let Ok(message) = decode(&frame) {
                    let written = reencode(&frame);
                    assert_eq!(decode(&written), Ok(message), "{} at {at}", fixture.title());
                }
            }
        }
    }
}

/// Decodes and encodes; the decoded form must be writable.
fn reencode(frame: &Frame) -> Frame {
    let message = decode(frame).expect("it was read before");
    let version = frame.version().unwrap_or(Version::V13);
    encode(version, frame.xid(), &message).expect("what was read can be written")
}

/// Messages that bring other controllers down (8 of them make Ryu and os-ken spin for ever), and
/// messages of 1.4 and 1.5 that are broken in one place each.
#[test]
fn hostile_messages_are_answered_with_the_right_error() {
    let mut outcomes = String::new();
    for line in include_str!("fixtures/malformed.txt").lines() {
        let (name, hex) = line.split_once(' ').expect("a name and hex");
        let _ = writeln!(outcomes, "{name}: {}", outcome(hex));
    }
    insta::assert_snapshot!(outcomes);
}

/// FLOW_MODs with one odd field or action each, and the response of `ovs-ofctl ofp-print` of 3.1.
#[test]
fn odd_fields_and_actions_are_judged_as_open_vswitch_judges_them() {
    for line in include_str!("fixtures/judged-by-ovs.txt").lines() {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("a name, a verdict and hex");
        let (name, verdict, hex) = (word(), word(), word());
        let frame = Frame::new(from_hex(hex)).expect("a whole message");
        let ours = decode(&frame).map_err(|error| error.kind.to_string());
        let ours = ours.map_or_else(|kind| kind, |_| "accepted".to_string());
        assert_eq!(ours, verdict, "{name}");
    }
}

/// The outcome of a stream of bytes, in words. Repetitions are counted.
fn outcome(hex: &str) -> String {
    let mut stream = BytesMut::from(&from_hex(hex)[..]);
    let mut outcomes: Vec<(String, u32)> = Vec::new();
    while !stream.is_empty() {
        let (text, over) = match Frame::split_from(&mut stream) {
            Err(error) => (format!("closed: {error}"), true),
            Ok(None) => ("waits for the rest".to_string(), true),
            Ok(Some(frame)) => match decode(&frame) {
                Ok(message) => (format!("{:?}", message.kind()), false),
                Err(error) => (error.to_string(), false),
            },
        };
        match outcomes.last_mut() {
            Some((last, count)) if *last == text => *count += 1,
            _ => outcomes.push((text, 1)),
        }
        if over {
            break;
        }
    }
    let texts: Vec<String> = outcomes
        .into_iter()
        .map(|(text, count)| {
            if count == 1 {
                text
            } else {
                format!("{text} ×{count}")
            }
        })
        .collect();
    texts.join(", ")
}

#[test]
fn a_flag_that_only_1_0_has_is_not_said_in_1_3() {
    let mut entry = FlowMod::add(1, Match::any(), Vec::new());
    entry.flags = FlowModFlags::EMERG;
    let entry = Message::FlowMod(entry);
    let written = encode(Version::V10, Xid(1), &entry).expect("1.0 has it");
    assert_eq!(decode(&written).as_ref(), Ok(&entry));
    assert_eq!(
        encode(Version::V13, Xid(1), &entry),
        Err(EncodeError::Unsupported {
            version: Version::V13,
            what: "such FLOW_MOD flag"
        })
    );
}

/// TCP_FLAGS has a number in 1.5; in 1.3, where it has none, it stays as received.
#[test]
fn a_field_has_a_name_from_its_version_on() {
    let tcp = || {
        let tcp = Match::any().with(Field::EthType, 0x0800u16);
        tcp.with(Field::IpProto, 6u8)
    };
    let entry = |m: Match| Message::FlowMod(FlowMod::add(1, m, Vec::new()));
    let named = entry(tcp().with(Field::TcpFlags, 2u8));
    let written = encode(Version::V15, Xid(1), &named).expect("1.5 has it");
    assert_eq!(decode(&written).as_ref(), Ok(&named));
    for version in [Version::V13, Version::V14] {
        let error = encode(version, Xid(1), &named).expect_err("no field of that name");
        assert_eq!(
            error.to_string(),
            format!("OpenFlow {version} has no such field")
        );
        let mut bytes = written.bytes().to_vec();
        bytes[0] = version.wire();
        let Ok(Message::FlowMod(read)) = decode(&reframed(&bytes)) else {
            panic!("it is read all the same")
        };
        let mut kept = tcp();
        kept.fields.push(MatchField::Other {
            header: 0x8000_5402,
            payload: vec![0, 2].into(),
        });
        assert_eq!(read.r#match, kept);
    }
}

/// FLOW_MODs of 1.3 under an earlier version byte: the resulting error, and the failure to encode
/// the message in that version.
#[test]
fn what_came_later_is_refused_in_1_1_and_1_2() {
    let entry = |flags: FlowModFlags, instructions: Vec<Instruction>| {
        let mut entry = FlowMod::add(1, Match::any(), Vec::new());
        (entry.flags, entry.instructions) = (flags, instructions);
        Message::FlowMod(entry)
    };
    let flags = |flags: FlowModFlags| entry(flags, Vec::new());
    let action = |action: Action| {
        let apply = Instruction::ApplyActions(vec![action]);
        entry(FlowModFlags::empty(), vec![apply])
    };
    let set = MatchField::exact(Field::Metadata, 1);
    let meter = vec![Instruction::Meter(MeterId(1))];
    let meter = entry(FlowModFlags::empty(), meter);
    let (v11, v12) = (Version::V11, Version::V12);
    for (version, message, error) in [
        (v11, flags(FlowModFlags::RESET_COUNTS), "FLOW_MOD_BAD_FLAGS"),
        (
            v12,
            flags(FlowModFlags::NO_BYT_COUNTS),
            "FLOW_MOD_BAD_FLAGS",
        ),
        (v11, action(Action::PopPbb), "ACTION_BAD_TYPE"),
        (v12, action(Action::PushPbb(0x88e7)), "ACTION_BAD_TYPE"),
        (v11, action(Action::SetField(set)), "ACTION_BAD_TYPE"),
        (v12, meter, "UNKNOWN_INST"),
    ] {
        let later = encode(Version::V13, Xid(1), &message).expect("1.3 has it");
        let read = decode(&in_version(&later, version)).expect_err("not there yet");
        assert_eq!(read.kind.name(), Some(error), "{message:?}");
        let written = encode(version, Xid(1), &message);
        let is_unsupported = matches!(written, Err(EncodeError::Unsupported { .. }));
        assert!(is_unsupported, "{version}: {message:?}");
    }
    assert!(encode(v12, Xid(1), &flags(FlowModFlags::RESET_COUNTS)).is_ok());
    let mpls = Match::any().with(Field::EthType, 0x8847u16);
    let bottom = mpls.with(Field::MplsBos, 1u8);
    let bottom = Message::FlowMod(FlowMod::add(1, bottom, Vec::new()));
    let error = encode(v12, Xid(1), &bottom).expect_err("no field of that name");
    assert_eq!(error.to_string(), "OpenFlow 1.2 has no such field");
}

/// In 1.1 Open vSwitch sends matches as OXM. Matches that the form of 1.1 can express are written
/// in it.
#[test]
fn a_match_of_1_1_may_come_as_oxm() {
    let said = Match::any()
        .with(Field::EthType, 0x0800u16)
        .with_in_port(PortNo(7));
    let unsaid = Match::any()
        .with(Field::EthType, 0x86ddu16)
        .with(Field::IpProto, 6u8);
    for (came, len) in [(said, 56 + 88), (unsaid, 56 + 16)] {
        let entry = Message::FlowMod(FlowMod::add(1, came, Vec::new()));
        let later = encode(Version::V13, Xid(1), &entry).expect("1.3 has it");
        let read = decode(&in_version(&later, Version::V11)).expect("a match as OXM");
        let written = encode(Version::V11, Xid(1), &read).expect("what was read can be written");
        assert_eq!(decode(&written), Ok(read));
        assert_eq!(written.len(), len);
    }
}

fn in_version(frame: &Frame, version: Version) -> Frame {
    let mut bytes = frame.bytes().to_vec();
    bytes[0] = version.wire();
    reframed(&bytes)
}
