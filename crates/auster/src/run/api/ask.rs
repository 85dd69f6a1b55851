//! Asking a switch for statistics, and waiting for the answer.

use std::time::Duration;

use axum::http::StatusCode;
use control::controller::questions::{Answered, NotAsked};
use openflow::DatapathId;
use openflow::multipart::{ReplyBody, RequestBody};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Api;
use super::problem::Problem;

/// The time that the switch has for its whole answer.
const ANSWER_MAX: Duration = Duration::from_secs(12);
/// Between two looks for the answer: at first, and doubled up to the other.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(50);

impl Api {
    pub async fn ask_switch(
        &self,
        dpid: DatapathId,
        body: RequestBody,
    ) -> Result<Vec<ReplyBody>, Problem> {
        let until = Instant::now() + ANSWER_MAX;
        let now = self.clock.now();
        let asked = (self.driver).ask(move |controller| controller.ask_switch(now, dpid, body));
        let asked = timeout_at(until, asked).await;
        let asked = asked.ok().flatten().ok_or_else(Problem::busy)?;
        let id = asked.map_err(|why| not_asked(dpid, why))?;
        let mut look = LOOK_MIN;
        loop {
            sleep(look).await;
            look = (look * 2).min(LOOK_MAX);
            let reply = self.driver.ask(move |controller| controller.take_reply(id));
            match timeout_at(until, reply).await {
                Ok(Some(Some(answered))) => return answer(dpid, answered),
                Ok(Some(None)) if Instant::now() < until => {}
                // Too many questions wait for the controller's thread: later.
                Ok(None) if Instant::now() < until => {}
                _ => break,
            }
        }
        let dropped = self
            .driver
            .ask(move |controller| controller.drop_question(id));
        let _ = timeout(LOOK_MAX, dropped).await;
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
