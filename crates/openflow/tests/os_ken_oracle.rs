//! Another codec's opinion: what this one writes, os-ken reads, and writes the same bytes again.
//!
//! Needs Python 3 and, the first time, a package index: os-ken of a pinned version is installed
//! into a venv under the workspace's `target`. Without it the test fails; it does not skip.

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use clock::SplitMix64;
use openflow::message::{BundleFeatureProperty, MeterBand, MeterBandKind, QueueProperty};
use openflow::multipart::{
    FlowUpdate, ReplyBody, RequestBody, TableFeatureProperty, TableFeatures,
};
use openflow::{Instruction, Message, Version, Xid, encode};

use common::generate::{Rng, earlier, later, v10, v13};
use common::to_hex;

const MESSAGES: usize = 10_000;
const SEED: u64 = 20_130_425;

#[test]
fn os_ken_writes_the_same_bytes_of_1_3() {
    compare(Version::V13, v13::message, deviation);
}

#[test]
fn os_ken_writes_the_same_bytes_of_1_2() {
    compare(Version::V12, earlier::v12, deviation_v12);
}

#[test]
fn os_ken_writes_the_same_bytes_of_1_0() {
    compare(Version::V10, v10::message, deviation_v10);
}

#[test]
fn os_ken_writes_the_same_bytes_of_1_4() {
    compare(Version::V14, later::v14, deviation_later);
}

#[test]
fn os_ken_writes_the_same_bytes_of_1_5() {
    compare(Version::V15, later::v15, deviation_later);
}

/// Checks that os-ken returns each message unchanged, leaving out messages that it cannot write.
fn compare(
    version: Version,
    generate: fn(&mut Rng) -> Message,
    deviation: fn(&Message) -> Option<&'static str>,
) {
    println!("seed {SEED}");
    let mut deviations: BTreeMap<&str, u32> = BTreeMap::new();
    let mut messages = Vec::new();
    let mut input = String::new();
    for n in 0.. {
        if messages.len() == MESSAGES {
            break;
        }
        let message = generate(&mut Rng(SplitMix64::new(SEED + n)));
        if let Some(reason) = deviation(&message) {
            *deviations.entry(reason).or_default() += 1;
            continue;
        }
        let frame = encode(version, Xid(n as u32), &message).expect("a message of this version");
        input.push_str(&to_hex(frame.bytes()));
        input.push('\n');
        messages.push(message);
    }
    println!("not asked: {deviations:#?}");
    let left_out: u32 = deviations.values().sum();
    assert!(left_out < MESSAGES as u32 / 2, "{left_out} are left out");

    let output = ask_os_ken(&input);
    assert_eq!(output.lines().count(), MESSAGES);
    let mut wrong = Vec::new();
    for ((ours, theirs), message) in input.lines().zip(output.lines()).zip(&messages) {
        if ours != theirs {
            wrong.push(format!("{message:?}\n  {ours}\n  {theirs}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn ask_os_ken(input: &str) -> String {
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    let venv = Command::new("python3")
        .arg(format!("{tests}/fixtures/maker/os_ken_venv.py"))
        .stderr(Stdio::inherit())
        .output()
        .expect("python3 runs");
    assert!(venv.status.success(), "os-ken could not be installed");
    let python = String::from_utf8(venv.stdout).expect("a path");

    let mut child = Command::new(python.trim())
        .arg("-B")
        .arg(format!("{tests}/os_ken_oracle/oracle.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the venv's python runs");
    let mut stdin = child.stdin.take().expect("it is piped");
    let input = input.to_string();
    let writer = std::thread::Builder::new()
        .spawn(move || stdin.write_all(input.as_bytes()))
        .expect("a thread");
    let output = child.wait_with_output().expect("it ends");
    writer
        .join()
        .expect("no panic")
        .expect("it reads everything");
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// The known deviation of os-ken 4.2.2 in 1.3, and the reason why it is no fault of ours.
fn deviation(message: &Message) -> Option<&'static str> {
    match message {
        Message::Hello(hello) if hello.bitmaps.is_some() => Some(HELLO_ELEMENTS),
        Message::Experimenter(message) if message.data.len() < 4 => {
            Some("takes an experimenter's message to have a type of 4 bytes")
        }
        Message::FlowMod(flow_mod) => of_instructions(&flow_mod.instructions),
        Message::MeterMod(meter_mod) => of_bands(&meter_mod.bands),
        Message::QueueGetConfigReply(config) => {
            let properties = config.queues.iter().flat_map(|queue| &queue.properties);
            let odd = |p: &QueueProperty| matches!(p, QueueProperty::Other { .. });
            let any = properties.clone().any(odd);
            any.then_some("spins on a queue property that it does not know")
        }
        Message::MultipartRequest(request) => match &request.body {
            RequestBody::Other { .. } => Some(UNKNOWN_MULTIPART),
            RequestBody::TableFeatures(tables) => of_tables(tables),
            RequestBody::Experimenter { data, .. } if data.len() < 4 => {
                Some("takes an experimenter's multipart to have a type of 4 bytes")
            }
            _ => None,
        },
        Message::MultipartReply(reply) => match &reply.body {
            ReplyBody::Other { .. } => Some(UNKNOWN_MULTIPART),
            ReplyBody::Flow(flows) => flows.iter().find_map(|f| of_instructions(&f.instructions)),
            ReplyBody::MeterConfig(meters) => meters.iter().find_map(|m| of_bands(&m.bands)),
            ReplyBody::TableFeatures(tables) => of_tables(tables),
            ReplyBody::Experimenter { .. } => {
                Some("reads an experimenter's reply as a list of entries of 16 bytes")
            }
            _ => None,
        },
        _ => None,
    }
}

/// The same for 1.0.
fn deviation_v10(message: &Message) -> Option<&'static str> {
    match message {
        Message::Hello(hello) if hello.bitmaps.is_some() => Some(HELLO_ELEMENTS),
        Message::QueueGetConfigReply(config) => {
            let mut properties = config.queues.iter().flat_map(|queue| &queue.properties);
            let any = properties.any(|p| matches!(p, QueueProperty::Other { .. }));
            any.then_some("gives up on a queue property that it does not know")
        }
        Message::MultipartRequest(request) => match &request.body {
            RequestBody::Other { .. } => Some(UNKNOWN_MULTIPART),
            _ => None,
        },
        Message::MultipartReply(reply) => match &reply.body {
            ReplyBody::Other { .. } => Some(UNKNOWN_MULTIPART),
            _ => None,
        },
        _ => None,
    }
}

/// The same for 1.2.
fn deviation_v12(message: &Message) -> Option<&'static str> {
    let has_vendor = format!("{message:?}").contains("Experimenter {");
    match message {
        Message::PacketOut(_) | Message::FlowMod(_) | Message::GroupMod(_) if has_vendor => {
            Some(VENDORS_ACTION)
        }
        Message::MultipartReply(_) if has_vendor => Some(VENDORS_ACTION),
        Message::QueueGetConfigReply(_) if has_vendor => {
            Some("gives up on an experimenter's property of a queue")
        }
        Message::MultipartRequest(request) => match &request.body {
            RequestBody::PortDesc(_) => Some(UNKNOWN_MULTIPART),
            _ => deviation(message),
        },
        Message::MultipartReply(reply) => match &reply.body {
            ReplyBody::PortDesc(_) => Some(UNKNOWN_MULTIPART),
            _ => deviation(message),
        },
        _ => deviation(message),
    }
}

/// The same for 1.4 and 1.5.
fn deviation_later(message: &Message) -> Option<&'static str> {
    if format!("{message:?}").contains("CopyField {") {
        return Some("reads the padding of COPY_FIELD as a field");
    }
    if format!("{message:?}").contains("Other { header: 214762") {
        return Some("has no statistic without a name");
    }
    let is_padded = |p: &BundleFeatureProperty| match p {
        BundleFeatureProperty::Other(p) => p.data.len() % 8 != 4,
        BundleFeatureProperty::Time { .. } => false,
    };
    match message {
        Message::BundleAdd(add) => deviation_later(&add.message),
        Message::RequestForward(forward) => deviation_later(&forward.request),
        Message::MultipartReply(reply) => match &reply.body {
            ReplyBody::FlowMonitor(updates) => updates.iter().find_map(|update| match update {
                FlowUpdate::Entry(entry) => of_instructions(&entry.instructions),
                _ => None,
            }),
            ReplyBody::MeterFeatures(features) if features.features.is_none() => {
                Some("takes the features of 1.5 to be there, which Open vSwitch leaves out")
            }
            ReplyBody::BundleFeatures(features) if features.properties.iter().any(is_padded) => {
                Some("forgets the padding of a vendor's property of bundle features")
            }
            _ => deviation(message),
        },
        _ => deviation(message),
    }
}

const HELLO_ELEMENTS: &str = "forgets the elements of a HELLO, and spins on two bitmaps or none";

const VENDORS_ACTION: &str = "forgets what follows the id in an experimenter's action";

const UNKNOWN_MULTIPART: &str = "has no multipart without a name";

fn of_instructions(instructions: &[Instruction]) -> Option<&'static str> {
    let unknown = |i: &Instruction| matches!(i, Instruction::Experimenter { .. });
    let any = instructions.iter().any(unknown);
    any.then_some("spins on an experimenter's instruction, or gives up")
}

fn of_bands(bands: &[MeterBand]) -> Option<&'static str> {
    let long = |band: &MeterBand| match &band.kind {
        MeterBandKind::Experimenter { data, .. } => !data.is_empty(),
        _ => false,
    };
    let any = bands.iter().any(long);
    any.then_some("takes an experimenter's band to have no data")
}

fn of_tables(tables: &[TableFeatures]) -> Option<&'static str> {
    use TableFeatureProperty as P;
    let mut properties = tables.iter().flat_map(|table| &table.properties);
    properties.find_map(|property| match property {
        P::Fields { headers, .. } if !headers.is_empty() => {
            Some("writes the id of a field with a length of 0")
        }
        P::Instructions { ids, .. } | P::WriteActions { ids, .. } | P::ApplyActions { ids, .. }
            if ids.iter().any(|id| id.experimenter.is_some()) =>
        {
            Some("knows no experimenter's instruction or action as an id")
        }
        P::Other { data, .. } if !data.len().is_multiple_of(4) => {
            Some("takes an experimenter's property to be a list of words")
        }
        _ => None,
    })
}
