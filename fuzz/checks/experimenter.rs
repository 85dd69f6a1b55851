//! Every message decodes to one of ours or to an error that names it, every decoded message encodes
//! to the same bytes, and an end that receives it stays within its bounds.
//!
//! The input is bodies of messages, each behind its length and its version.

use openflow::{Frame, Xid};
use relay::experimenter::{ExperimenterMessage, error, error_about};
use relay::{EXPERIMENTER_ID, LineStatus, PolicyTalk, Side, TalkEvent};
use sched::PolicyMap;

pub fn check(data: &[u8]) {
    let mut talk = PolicyTalk::new(Side::Switch, EXPERIMENTER_ID, PolicyMap::auster());
    let mut rest = data;
    while let [len, version, more @ ..] = rest {
        let len = usize::from(*len).min(more.len());
        let (body, more) = more.split_at(len);
        rest = more;
        let mut bytes = vec![version % 7, 4, 0, 12 + len as u8, 0, 0, 0, 7];
        bytes[2..4].copy_from_slice(&(12 + len as u16).to_be_bytes());
        bytes.extend(EXPERIMENTER_ID.to_be_bytes());
        bytes.extend(body);
        let frame = Frame::new(bytes.into()).expect("the length fits");
        let is_read = match ExperimenterMessage::decode(&frame) {
            Ok(message) => {
                let again = message.encode(frame.version_byte(), EXPERIMENTER_ID, Xid(7));
                assert_eq!(ExperimenterMessage::decode(&again), Ok(message));
                true
            }
            Err(kind) => {
                let answer = error(&frame, kind);
                assert_eq!(error_about(EXPERIMENTER_ID, &answer), Some(kind));
                false
            }
        };
        let (faults, generation) = (talk.faults(), talk.active().generation);
        assert!(talk.handle(&frame, LineStatus::default));
        assert!(is_read || talk.faults() == faults + 1);
        assert!(talk.active().generation >= generation);
        let mut answers = 0;
        while let Some(event) = talk.poll_event() {
            answers += 1;
            if let TalkEvent::Send(answer) = event {
                assert_eq!(answer.version_byte(), frame.version_byte());
            }
        }
        // CAP is answered twice, a commit by its confirmation and the map itself.
        assert!(answers <= 3, "{answers} answers to one message");
    }
}
