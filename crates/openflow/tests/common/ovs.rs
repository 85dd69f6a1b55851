//! `ovs-ofctl`, the other reader of everything.

#![allow(clippy::disallowed_methods, reason = "a test runs another program")]

use std::io::Write;
use std::process::{Command, Stdio};

use openflow::{Frame, Message, Version, Xid, encode};

/// Standard output of `ovs-ofctl` with `input` on its standard input.
pub fn run(args: &[&str], input: &[u8]) -> String {
    let mut child = Command::new("ovs-ofctl")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("ovs-ofctl runs: apt-get install openvswitch-common");
    let mut stdin = child.stdin.take().expect("piped");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).expect("it reads all"));
        child.wait_with_output().expect("it ends")
    });
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Each frame as `ovs-ofctl ofp-parse` prints it, without the last newline. An echo request
/// between any two shows where one ends.
pub fn prints(frames: &[&Frame]) -> Vec<String> {
    let marker = |n: usize| Xid(0xa5a5_0000 | n as u32);
    let mut input = Vec::new();
    for (n, frame) in frames.iter().enumerate() {
        input.extend_from_slice(frame.bytes());
        let echo = Message::EchoRequest(Default::default());
        let echo = encode(Version::V10, marker(n), &echo).expect("an echo request");
        input.extend_from_slice(echo.bytes());
    }
    let text = run(&["ofp-parse", "-"], &input);
    let mut rest = text.as_str();
    let mut texts = Vec::new();
    for n in 0..frames.len() {
        let line = format!(
            "OFPT_ECHO_REQUEST (xid={:#x}): 0 bytes of payload\n",
            marker(n).0
        );
        let (one, after) = rest
            .split_once(&line)
            .unwrap_or_else(|| panic!("message {n} is there"));
        texts.push(one.strip_suffix('\n').unwrap_or(one).to_owned());
        rest = after;
    }
    assert_eq!(rest, "");
    texts
}
