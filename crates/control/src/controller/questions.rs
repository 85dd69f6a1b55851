//! Statistics that others request from a switch: the request is sent unchanged, and the answer is
//! kept until it is fetched.
//!
//! These requests change nothing, and no decision depends on them. At most [`QUESTIONS_MAX`] may be
//! open, answered or not. An answer that is not fetched within [`KEPT`] makes room for others.

use std::collections::BTreeMap;

use clock::{Duration, Instant};
use openflow::multipart::{MultipartRequest, ReplyBody, RequestBody};
use openflow::{DatapathId, ErrorKind, Message};

use super::Controller;
pub use super::outbox::QuestionId;
use super::outbox::Request;

pub const QUESTIONS_MAX: usize = 256;
/// How long a question is kept.
pub const KEPT: Duration = Duration::from_secs(30);

/// The outcome of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// All parts of the answer, in order of arrival.
    Whole(Vec<ReplyBody>),
    /// The switch refused.
    Refused(ErrorKind),
    /// The switch did not answer in time, or answered too much, or its connection ended.
    Lost,
}

/// The reason that no question was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAsked {
    /// The switch is not connected.
    NoSwitch,
    /// The maximum number of questions is open.
    TooMany,
    /// The switch's version of OpenFlow has no such question.
    NotInVersion,
}

#[derive(Default)]
pub(super) struct Questions {
    next: u64,
    open: BTreeMap<QuestionId, Question>,
}

struct Question {
    asked_at: Instant,
    reply: Option<Answered>,
}

impl Questions {
    fn start(&mut self, now: Instant) -> Option<QuestionId> {
        if self.open.len() >= QUESTIONS_MAX {
            self.open.retain(|_, q| now < q.asked_at + KEPT);
        }
        if self.open.len() >= QUESTIONS_MAX {
            return None;
        }
        let id = QuestionId(self.next);
        self.next += 1;
        let question = Question {
            asked_at: now,
            reply: None,
        };
        self.open.insert(id, question);
        Some(id)
    }

    pub(super) fn answer(&mut self, id: QuestionId, reply: Answered) {
        // The asker may have given up.
        if let Some(question) = self.open.get_mut(&id) {
            question.reply = Some(reply);
        }
    }
}

impl Controller {
    /// Asks a switch for statistics.
    ///
    /// # Errors
    /// The reason that nothing was sent.
    pub fn ask_switch(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        body: RequestBody,
    ) -> Result<QuestionId, NotAsked> {
        if !self.network.is_connected(dpid) {
            return Err(NotAsked::NoSwitch);
        }
        let id = self.questions.start(now).ok_or(NotAsked::TooMany)?;
        let message = Message::MultipartRequest(MultipartRequest { more: false, body });
        if self
            .outbox
            .request(now, dpid, Request::Question(id), &message)
            .is_some()
        {
            return Ok(id);
        }
        self.questions.open.remove(&id);
        match self.outbox.has_requests_max(dpid) {
            true => Err(NotAsked::TooMany),
            false => Err(NotAsked::NotInVersion),
        }
    }

    /// Returns the answer, once; `None` while it has not arrived. An unknown question counts as
    /// lost.
    pub fn take_reply(&mut self, id: QuestionId) -> Option<Answered> {
        match self.questions.open.get(&id) {
            Some(Question { reply: None, .. }) => None,
            Some(_) => self.questions.open.remove(&id)?.reply,
            None => Some(Answered::Lost),
        }
    }

    /// Drops a question whose answer is no longer wanted.
    pub fn drop_question(&mut self, id: QuestionId) {
        self.questions.open.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_s(s: u64) -> Instant {
        Instant::START + Duration::from_secs(s)
    }

    #[test]
    fn so_many_questions_are_open_and_forgotten_ones_make_room() {
        let mut questions = Questions::default();
        let first = questions.start(at_s(0)).expect("room");
        for _ in 1..QUESTIONS_MAX {
            assert!(questions.start(at_s(10)).is_some());
        }
        assert_eq!(questions.start(at_s(29)), None);
        assert!(
            questions.start(at_s(30)).is_some(),
            "the first is forgotten"
        );
        assert!(!questions.open.contains_key(&first));
        questions.answer(first, Answered::Lost);
        assert_eq!(questions.open.len(), QUESTIONS_MAX);
    }
}
