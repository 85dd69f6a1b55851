//! Why a rule took a message, and why those before it did not.

use openflow::{DatapathId, Field, Frame, PacketFields};

use super::rules::Subject;
use super::{Classifier, Verdict};
use crate::order::Direction;

/// Why one rule does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// It is about another traffic type.
    Traffic,
    Message,
    Direction,
    Datapath,
    Xid,
    /// It asks for fields, and the message carries neither a packet nor a flow.
    NoPacket,
    /// The packet has another value, or no such field.
    Packet {
        field: Field,
        found: Option<u128>,
    },
    /// The flow has packets that the rule does not mean. Value and mask, if it says anything.
    Flow {
        field: Field,
        found: Option<(u128, u128)>,
    },
}

/// A verdict and how it came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub verdict: Verdict,
    /// The rules before the one that matched, all of them if none did.
    pub misses: Vec<Miss>,
    /// What the fields were held against, as far as it is known.
    pub subject: String,
}

impl Classifier {
    /// As [`Classifier::classify`], with the reasons.
    pub fn explain(
        &self,
        frame: &Frame,
        direction: Direction,
        datapath: Option<DatapathId>,
    ) -> Explanation {
        self.explain_kept(frame, direction, datapath, None)
    }

    /// As [`Classifier::classify_kept`], with the reasons.
    pub fn explain_kept(
        &self,
        frame: &Frame,
        direction: Direction,
        datapath: Option<DatapathId>,
        kept: Option<&PacketFields>,
    ) -> Explanation {
        let reading = self.read(frame, direction, kept);
        let context = reading.context(frame, direction, datapath);
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
        let subject = match &reading.subject {
            Subject::Packet(fields) => format!("packet {fields:?}"),
            Subject::Flow(_) => "flow".to_owned(),
            Subject::None => "no packet".to_owned(),
        };
        Explanation {
            verdict: self.verdict(frame, direction, 0, &reading, rule),
            misses,
            subject,
        }
    }
}
