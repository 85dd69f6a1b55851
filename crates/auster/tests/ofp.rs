//! `auster ofp` as a program: what it prints, and how it ends.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn auster(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_auster"))
        .arg("ofp")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its arguments reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn ends(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// A little-endian file of raw IP packets, one per payload, from port 6653.
fn capture(payloads: &[&[u8]]) -> tempfile::NamedTempFile {
    let mut bytes = 0xa1b2_c3d4u32.to_le_bytes().to_vec();
    bytes.extend([0; 16]);
    bytes.extend(101u32.to_le_bytes());
    let mut sequence = 7u32;
    for payload in payloads {
        let len = 40 + payload.len() as u32;
        for field in [1_700_000_000, 250, len, len] {
            bytes.extend(u32::to_le_bytes(field));
        }
        bytes.extend([0x45, 0]);
        bytes.extend((len as u16).to_be_bytes());
        bytes.extend([0, 0, 0, 0, 64, 6, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
        bytes.extend([0x19, 0xfd, 0x9c, 0x40]);
        bytes.extend(sequence.to_be_bytes());
        bytes.extend([0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        bytes.extend(*payload);
        sequence += payload.len() as u32;
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    file
}

const BARRIERS: [u8; 16] = [4, 20, 0, 8, 0, 0, 0, 1, 4, 21, 0, 8, 0, 0, 0, 1];

#[test]
fn hex_is_printed_however_it_is_spaced() {
    let words = "OFPT_BARRIER_REQUEST (OF1.3) (xid=0x1):\n";
    for args in [
        &["print", "0414000800000001"][..],
        &["print", "04 14", "0008 0000", "0001"],
    ] {
        assert_eq!(ends(&auster(args, b"")), (0, words.into(), String::new()));
    }
    let (code, out, _) = ends(&auster(
        &["print", "-"],
        b"0414 0008\n00000001\n041400080000 0001\n",
    ));
    assert_eq!((code, out), (0, words.repeat(2)));
}

#[test]
fn what_is_wrong_ends_with_its_code_and_one_line() {
    let cases: [(&[&str], i32, &str); 6] = [
        (&["print", "04zz"], 2, "'z' is no hex digit (digit 3)"),
        (&["print", "041"], 2, "3 hex digits"),
        (
            &["print", "041400080000"],
            2,
            "announces 8 bytes, 6 are there",
        ),
        (
            &["print", "04ee000800000001"],
            1,
            "1 of 1 messages did not decode",
        ),
        (&["pcap", "/nonexistent.pcap"], 5, "/nonexistent.pcap: "),
        (&["pcap", "Cargo.toml"], 5, "not a classic pcap file"),
    ];
    for (args, expected, words) in cases {
        let (code, _, error) = ends(&auster(args, b""));
        assert_eq!(code, expected, "{args:?}: {error}");
        assert!(error.contains(words), "{args:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{args:?}: {error}");
    }
}

/// The form of `ovs-ofctl ofp-parse-pcap`; the first message is split over two segments.
#[test]
fn a_capture_prints_each_message_under_its_addresses() {
    let file = capture(&[&BARRIERS[..3], &BARRIERS[3..]]);
    let path = file.path().to_str().unwrap();
    let (code, ours, error) = ends(&auster(&["pcap", path], b""));
    assert_eq!((code, error.as_str()), (0, ""));
    let words = "127.0.0.1.6653 > 127.0.0.1.40000:\nOFPT_BARRIER_REQUEST (OF1.3) (xid=0x1):\n\n\
                 127.0.0.1.6653 > 127.0.0.1.40000:\nOFPT_BARRIER_REPLY (OF1.3) (xid=0x1):\n";
    assert_eq!(ours, words);
}

#[test]
fn json_is_one_document_with_messages_and_counts() {
    let unknown = [4, 0xee, 0, 8, 0, 0, 0, 9];
    let file = capture(&[&BARRIERS, &unknown]);
    let path = file.path().to_str().unwrap();
    let (code, out, _) = ends(&auster(&["pcap", "--json", path], b""));
    assert_eq!(code, 1, "one message does not decode");
    let whole: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(whole["messages"][0]["type"], "OFPT_BARRIER_REQUEST");
    assert_eq!(whole["messages"][0]["time"], "1700000000.000250000");
    assert_eq!(whole["messages"][2]["text"], serde_json::Value::Null);
    assert!(whole["messages"][2]["error"].is_string());
    assert_eq!(whole["counts"]["messages"], 3);
    assert_eq!(whole["counts"]["undecoded"], 1);
    assert_eq!(whole["counts"]["types"]["OFPT_BARRIER_REPLY"], 1);
}

#[test]
fn another_port_is_asked_for_by_number() {
    let file = capture(&[&BARRIERS]);
    let path = file.path().to_str().unwrap();
    let (code, _, error) = ends(&auster(&["pcap", "--port", "7000", path], b""));
    assert_eq!(code, 1);
    assert!(error.contains("name another with --port"), "{error}");
}
