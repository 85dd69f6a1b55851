//! Any text is a policy map or refused with reasons, and a map reads back from its own text; any
//! message gets a verdict from any map, and its explanation says the same.
//!
//! The input is a text up to its first zero byte, and messages after it, whose versions and lengths
//! are made to fit.

use openflow::Frame;
use sched::{Classifier, Direction, PolicyMap};

pub fn check(data: &[u8]) {
    let at = data
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(data.len());
    let (text, rest) = data.split_at(at);
    let map = match std::str::from_utf8(text).map(PolicyMap::parse) {
        Ok(Ok((map, warnings))) => {
            assert!(warnings.iter().all(|problem| !problem.code.is_error()));
            let canonical = map.to_text();
            let (read, _) = PolicyMap::parse(&canonical).expect("what is written reads");
            assert_eq!(read, map, "{canonical}");
            map
        }
        Ok(Err(problems)) => {
            assert!(problems.iter().any(|problem| problem.code.is_error()));
            PolicyMap::paper()
        }
        Err(_) => PolicyMap::auster(),
    };
    let queues = map.scheduling.queues.len();
    let classifier = Classifier::new(&map);
    let mut rest = rest.get(1..).unwrap_or_default();
    while rest.len() >= 8 {
        let len = usize::from(rest[3]).clamp(8, rest.len());
        let mut bytes = rest[..len].to_vec();
        bytes[0] = bytes[0] % 7 + 1;
        bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        rest = &rest[len..];
        let frame = Frame::new(bytes.into()).expect("the length fits");
        for direction in [Direction::ToSwitch, Direction::ToController] {
            let verdict = classifier.classify(&frame, direction, 0, None);
            assert!(usize::from(verdict.tag.queue) < queues);
            assert!(verdict.tag.dscp.is_none_or(|dscp| dscp < 64));
            let explained = classifier.explain(&frame, direction, None);
            assert_eq!(explained.verdict, verdict);
        }
    }
}
