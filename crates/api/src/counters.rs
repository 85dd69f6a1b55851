//! Reads the counters of all ports, or of all queues, from their switches.
//!
//! | what | bound |
//! | --- | --- |
//! | questions at one time | [`BATCHES_MAX`] batches of [`AT_ONCE`] |
//! | switches asked | [`PER_SECOND_MAX`] a second |
//! | time of a switch to answer | [`ANSWER_MAX`] |

use std::sync::Arc;
use std::time::Duration;

use clock::Instant;
use control::clustered::Clustered;
use control::controller::questions::{Answered, QuestionId};
use driver::Driver;
use net::clock::Clock;
use openflow::multipart::{PortStats, QueueStats, ReplyBody, RequestBody};
use openflow::{DatapathId, PortNo, QueueId};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const AT_ONCE: usize = 32;
/// The most batches under way: a few switches that do not answer delay no others.
const BATCHES_MAX: usize = 4;
const PER_SECOND_MAX: u32 = 1000;
/// The time over which the questions of a small network are spread.
const SPREAD: Duration = Duration::from_secs(1);
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// The time between two checks for answers.
const LOOK: Duration = Duration::from_millis(20);
/// The time that the controller's thread has to answer.
const ASK_MAX: Duration = Duration::from_secs(2);

/// A row of a switch's counters.
pub trait Row: Sized + Send + 'static {
    /// The question for all rows of a switch.
    fn question() -> RequestBody;

    /// Returns the rows in one part of the switch's answer.
    fn rows(body: ReplyBody) -> Vec<Self>;
}

impl Row for PortStats {
    fn question() -> RequestBody {
        RequestBody::PortStats(PortNo::ANY)
    }

    fn rows(body: ReplyBody) -> Vec<PortStats> {
        match body {
            ReplyBody::PortStats(rows) => rows,
            _ => Vec::new(),
        }
    }
}

impl Row for QueueStats {
    fn question() -> RequestBody {
        RequestBody::Queue {
            port: PortNo::ANY,
            queue: QueueId::ALL,
        }
    }

    fn rows(body: ReplyBody) -> Vec<QueueStats> {
        match body {
            ReplyBody::Queue(rows) => rows,
            _ => Vec::new(),
        }
    }
}

/// Asks every connected switch once, and gives each answer to `note`.
pub async fn read_all<R: Row>(
    driver: &Arc<Driver<Clustered>>,
    clock: Clock,
    note: impl Fn(Instant, DatapathId, &[R]) + Clone + Send + 'static,
) {
    let asked = driver.ask(|controller| controller.switches());
    let switches = timeout(ASK_MAX, asked).await.ok().flatten();
    let switches = switches.unwrap_or_default().into_iter();
    let up = switches.filter(|switch| switch.connection.is_some());
    let dpids: Vec<DatapathId> = up.map(|switch| switch.dpid).collect();
    let batches = dpids.len().div_ceil(AT_ONCE).max(1) as u32;
    let pause = (SPREAD / batches).max(Duration::from_secs(1) * AT_ONCE as u32 / PER_SECOND_MAX);
    let mut under_way = JoinSet::new();
    for batch in dpids.chunks(AT_ONCE) {
        if under_way.len() >= BATCHES_MAX {
            under_way.join_next().await;
        }
        let (driver, batch, note) = (driver.clone(), batch.to_vec(), note.clone());
        under_way.spawn(async move { read(&driver, clock, batch, note).await });
        if batches > 1 {
            sleep(pause).await;
        }
    }
    under_way.join_all().await;
}

async fn read<R: Row>(
    driver: &Driver<Clustered>,
    clock: Clock,
    dpids: Vec<DatapathId>,
    note: impl Fn(Instant, DatapathId, &[R]),
) {
    let begun = clock.now();
    let asked = driver.ask(move |controller| {
        let ask = |dpid: DatapathId| {
            let asked = controller.ask_switch(begun, dpid, R::question());
            Some((dpid, asked.ok()?))
        };
        dpids.into_iter().filter_map(ask).collect::<Vec<_>>()
    });
    let asked = timeout(ASK_MAX, asked).await.ok().flatten();
    let mut open: Vec<(DatapathId, QuestionId)> = asked.unwrap_or_default();
    while !open.is_empty() && clock.now().since(begun) < ANSWER_MAX {
        sleep(LOOK).await;
        let looked = open.clone();
        let replies = driver.ask(move |controller| {
            let replies = looked.iter().map(|(_, id)| controller.take_reply(*id));
            replies.collect::<Vec<_>>()
        });
        let Ok(Some(replies)) = timeout(ASK_MAX, replies).await else {
            continue;
        };
        let now = clock.now();
        let mut replies = replies.into_iter();
        open.retain(|(dpid, _)| match replies.next().flatten() {
            None => true,
            Some(Answered::Whole(bodies)) => {
                let rows: Vec<R> = bodies.into_iter().flat_map(R::rows).collect();
                note(now, *dpid, &rows);
                false
            }
            Some(_) => false,
        });
    }
    if !open.is_empty() {
        let dropped = driver.ask(move |controller| {
            open.iter()
                .for_each(|(_, id)| controller.drop_question(*id));
        });
        let _ = timeout(ASK_MAX, dropped).await;
    }
}
