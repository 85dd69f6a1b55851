//! Asking the controller, and a switch for statistics, and waiting for the answer.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::StatusCode;
use control::clustered::Clustered;
use control::controller::questions::{Answered, NotAsked, QuestionId};
use driver::Driver;
use openflow::DatapathId;
use openflow::multipart::{ReplyBody, RequestBody};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Api;
use super::problem::Problem;

/// The time that the controller's thread has to answer a read.
pub const ASK_MAX: Duration = Duration::from_secs(2);
/// The time that the switch has for its whole answer.
const ANSWER_MAX: Duration = Duration::from_secs(12);
/// The intervals between two checks for the answer: the first one, doubled up to the second.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(50);

/// The most attempts to drop a question, before it is left to time out.
const DROPS_MAX: usize = 8;

/// A question that is dropped with its asker, which may end before there is an answer.
struct Open {
    driver: Arc<Driver<Clustered>>,
    id: Arc<OnceLock<QuestionId>>,
    is_answered: bool,
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(runtime) = Handle::try_current().ok().filter(|_| !self.is_answered) else {
            return;
        };
        let (driver, id) = (self.driver.clone(), self.id.clone());
        runtime.spawn(async move {
            for _ in 0..DROPS_MAX {
                let id = id.clone();
                // Orders are carried out in sequence: by then the question was asked, or never will
                // be.
                let dropped = driver.ask(move |controller| {
                    if let Some(id) = id.get() {
                        controller.drop_question(*id);
                    }
                });
                if dropped.await.is_some() {
                    return;
                }
                sleep(LOOK_MAX).await;
            }
        });
    }
}

impl Api {
    pub async fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Clustered) -> R + Send + 'static,
    ) -> Result<R, Problem> {
        let answer = self.driver.ask(question).await;
        answer.ok_or_else(Problem::busy)
    }

    /// Asks a question that takes long, in parts: switches have their turns between the parts.
    pub async fn ask_in_parts<R: Send + 'static>(
        &self,
        question: impl FnMut(&mut Clustered) -> Option<R> + Send + 'static,
    ) -> Result<R, Problem> {
        let answer = self.driver.ask_in_parts(question).await;
        answer.ok_or_else(Problem::busy)
    }

    /// Asks as [`Api::ask`] does, within [`ASK_MAX`].
    pub async fn ask_soon<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Clustered) -> R + Send + 'static,
    ) -> Result<R, Problem> {
        let answer = timeout(ASK_MAX, self.ask(question)).await;
        answer.map_err(|_| Problem::busy())?
    }

    pub async fn ask_switch(
        &self,
        dpid: DatapathId,
        body: RequestBody,
    ) -> Result<Vec<ReplyBody>, Problem> {
        let until = Instant::now() + ANSWER_MAX;
        let now = self.clock.now();
        let mut open = Open {
            driver: self.driver.clone(),
            id: Arc::default(),
            is_answered: false,
        };
        let noted = open.id.clone();
        let asked = self.driver.ask(move |controller| {
            let asked = controller.ask_switch(now, dpid, body);
            if let Ok(id) = asked {
                let _ = noted.set(id);
            }
            asked
        });
        let asked = timeout_at(until, asked).await;
        let asked = asked.ok().flatten().ok_or_else(Problem::busy)?;
        let id = asked.map_err(|why| not_asked(dpid, why))?;
        let mut look = LOOK_MIN;
        loop {
            sleep(look).await;
            look = (look * 2).min(LOOK_MAX);
            let reply = self.driver.ask(move |controller| controller.take_reply(id));
            match timeout_at(until, reply).await {
                Ok(Some(Some(answered))) => {
                    open.is_answered = true;
                    return answer(dpid, answered);
                }
                Ok(Some(None)) if Instant::now() < until => {}
                // Too many questions wait for the controller's thread: try later.
                Ok(None) if Instant::now() < until => {}
                _ => break,
            }
        }
        Err(no_answer(dpid))
    }
}

fn answer(dpid: DatapathId, answered: Answered) -> Result<Vec<ReplyBody>, Problem> {
    match answered {
        Answered::Whole(bodies) => Ok(bodies),
        Answered::Refused(error) => {
            let detail = format!("switch {dpid} refuses it: {error}");
            Err(Problem::new(StatusCode::NOT_IMPLEMENTED, detail))
        }
        Answered::Lost => Err(no_answer(dpid)),
    }
}

fn no_answer(dpid: DatapathId) -> Problem {
    let detail = format!("switch {dpid} does not answer");
    Problem::new(StatusCode::GATEWAY_TIMEOUT, detail)
}

fn not_asked(dpid: DatapathId, why: NotAsked) -> Problem {
    match why {
        NotAsked::NoSwitch => {
            let detail = format!("switch {dpid} is not connected");
            Problem::new(StatusCode::NOT_FOUND, detail)
        }
        NotAsked::TooMany => Problem::busy(),
        NotAsked::NotInVersion => {
            let detail = format!("the version of OpenFlow that switch {dpid} speaks has none");
            Problem::new(StatusCode::NOT_IMPLEMENTED, detail)
        }
    }
}
