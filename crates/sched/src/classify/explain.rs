//! The rule that matched a message, and the reason why each earlier rule did not.

use openflow::{DatapathId, Field, Frame, PacketFields};

use super::rules::{Context, Subject};
use super::{Classifier, Verdict};
use crate::order::Direction;

/// Reason why a rule does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// It asks for another traffic type.
    Traffic,
    /// It asks for another message type.
    Message,
    /// It asks for the other direction.
    Direction,
    /// It asks for another switch, or the switch is unknown.
    Datapath,
    /// It asks for another transaction id.
    Xid,
    /// It asks for fields, and the message carries neither a packet nor a flow.
    NoPacket,
    /// The packet has another value, or no such field.
    Packet {
        /// Field that does not match.
        field: Field,
        /// Value in the packet; `None` if it has no such field.
        found: Option<u128>,
    },
    /// The flow has packets that the rule does not match.
    Flow {
        /// Field that does not match.
        field: Field,
        /// Value and mask in the flow; `None` if it does not name the field.
        found: Option<(u128, u128)>,
    },
}

/// A verdict with its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Result, as [`Classifier::classify`] gives it.
    pub verdict: Verdict,
    /// Reasons of the rules before the one that matched, or of all rules if none did.
    pub misses: Vec<Miss>,
    /// The packet or flow with which the fields were compared, in words.
    pub subject: String,
}

impl Classifier {
    /// Classifies as [`Classifier::classify`] does, and gives the reasons.
    pub fn explain(
        &self,
        frame: &Frame,
        direction: Direction,
        datapath: Option<DatapathId>,
    ) -> Explanation {
        self.explain_kept(frame, direction, datapath, None)
    }

    /// Classifies as [`Classifier::classify_kept`] does, and gives the reasons.
    pub fn explain_kept(
        &self,
        frame: &Frame,
        direction: Direction,
        datapath: Option<DatapathId>,
        kept: Option<&PacketFields>,
    ) -> Explanation {
        let mut read = Subject::None;
        let reading = self.read(frame, direction, kept, &mut read);
        let context = Context::of_message(frame, direction, datapath, &read);
        let mut misses = Vec::new();
        let mut rule = None;
        for at in 0..self.rules.len() {
            match self.rules.miss(at, reading.traffic, &context) {
                Some(miss) => misses.push(miss),
                None => {
                    rule = Some(at);
                    break;
                }
            }
        }
        let subject = match &read {
            Subject::Packet(fields) => format!("packet {fields:?}"),
            Subject::Flow(_) => "flow".to_owned(),
            Subject::None => "no packet".to_owned(),
        };
        Explanation {
            verdict: self.verdict(frame, direction, 0, &reading, &read, rule),
            misses,
            subject,
        }
    }
}
