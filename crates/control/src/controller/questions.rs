//! Statistics that somebody else asks of a switch: sent as they are, and the answer kept until it is
//! fetched.
//!
//! What is asked for here changes nothing, and no decision depends on it. At most
//! [`QUESTIONS_MAX`] may be open, answered or not; an answer that nobody fetches for [`KEPT`] makes
//! room for others.

use std::collections::BTreeMap;

use clock::{Duration, Instant};
use openflow::multipart::{MultipartRequest, ReplyBody, RequestBody};
use openflow::{DatapathId, ErrorKind, Message};

use super::Controller;
use super::switch::Request;

pub const QUESTIONS_MAX: usize = 256;
/// From the question on.
pub const KEPT: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuestionId(u64);

/// What became of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// All parts, in the order they came.
    Whole(Vec<ReplyBody>),
    /// By the switch.
    Refused(ErrorKind),
    /// It did not answer in time, or with more than is taken, or its connection went.
    Lost,
}

/// Why nothing was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAsked {
    /// It is not connected.
    NoSwitch,
    /// As many questions are open as may be.
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
        // Whoever has asked may have given up.
        if let Some(question) = self.open.get_mut(&id) {
            question.reply = Some(reply);
        }
    }
}

impl Controller {
    /// Asks a switch for statistics.
    ///
    /// # Errors
    /// Nothing was sent, and why.
    pub fn ask_switch(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        body: RequestBody,
    ) -> Result<QuestionId, NotAsked> {
        if !self.is_connected(dpid) {
            return Err(NotAsked::NoSwitch);
        }
        let id = self.questions.start(now).ok_or(NotAsked::TooMany)?;
        let message = Message::MultipartRequest(MultipartRequest { more: false, body });
        if self
            .request(now, dpid, Request::Question(id), &message)
            .is_some()
        {
            return Ok(id);
        }
        self.questions.open.remove(&id);
        let requests = self.switches.get(&dpid).map(|switch| &switch.requests);
        match requests.is_some_and(|requests| requests.is_full()) {
            true => Err(NotAsked::TooMany),
            false => Err(NotAsked::NotInVersion),
        }
    }

    /// The answer, once; `None` while it has not come. One that is unknown here is lost.
    pub fn take_reply(&mut self, id: QuestionId) -> Option<Answered> {
        match self.questions.open.get(&id) {
            Some(Question { reply: None, .. }) => None,
            Some(_) => self.questions.open.remove(&id)?.reply,
            None => Some(Answered::Lost),
        }
    }

    /// Nobody waits for it any more.
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
