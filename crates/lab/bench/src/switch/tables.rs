//! The switch's flow table: its read rate and its capacity.

use std::time::Instant;

use openflow::Message;
use openflow::error::ErrorKind;
use openflow::multipart::{MultipartReply, ReplyBody, RequestBody};
use serde::Serialize;
use tokio::time::timeout;

use super::lane::{Kind, Lane, ask, of_kind};
use auster::channel::ANSWER_MAX;
use cli::date::now_ns;
use cli::failure::Failure;
use measure::stats::Summary;

/// Entries between two barriers.
const BATCH: u32 = 1000;

/// The figures of one transport: FLOW multipart requests for all of our entries.
#[derive(Clone, Debug, Serialize)]
pub struct ReadFigures {
    /// The number of entries in the table.
    pub entries: u32,
    pub reads: usize,
    /// Reads that returned another number of entries.
    pub wrong: usize,
    /// Time from the call that writes the request to the last part of the answer.
    pub read_ms: Summary,
    pub entries_per_s: Summary,
}

/// One read.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    pub entries: u32,
    pub ms: f64,
}

impl ReadFigures {
    pub fn of(entries: u32, reads: &[Read]) -> ReadFigures {
        let right: Vec<&Read> = reads
            .iter()
            .filter(|read| read.entries == entries)
            .collect();
        let rate = |read: &&Read| f64::from(read.entries) * 1e3 / read.ms;
        ReadFigures {
            entries,
            reads: reads.len(),
            wrong: reads.len() - right.len(),
            read_ms: Summary::of(right.iter().map(|read| read.ms)),
            entries_per_s: Summary::of(right.iter().map(rate)),
        }
    }
}

/// Reads all entries of a kind once, to the last part of the answer.
pub async fn read(lane: &mut Lane, kind: Kind) -> Result<Read, Failure> {
    let written = now_ns();
    let xid = lane
        .channel
        .send(&[ask(RequestBody::Flow(of_kind(kind)))])
        .await?;
    let mut entries = 0;
    let parts = async {
        loop {
            let received = lane.channel.received(xid).await?;
            let Message::MultipartReply(MultipartReply {
                more,
                body: ReplyBody::Flow(part),
            }) = received.message
            else {
                let told = "the switch answered a flow request with something else";
                return Err(Failure::network(told));
            };
            entries += part.len() as u32;
            if !more {
                return Ok(received.at_ns);
            }
        }
    };
    let late = |_| Failure::network("the switch did not finish a flow reply in time");
    let at_ns = timeout(ANSWER_MAX, parts).await.map_err(late)??;
    Ok(Read {
        entries,
        ms: at_ns.saturating_sub(written) as f64 / 1e6,
    })
}

/// The number of entries that the table took.
#[derive(Clone, Debug, Serialize)]
pub struct Capacity {
    /// Counted by the switch.
    pub entries: u32,
    /// The error that ended the test, or `limit` if the table took all entries asked for.
    pub ended_by: String,
    /// Flow-mods carried out per second, with a barrier after each thousand.
    pub adds_per_s: f64,
}

/// Adds entries until the switch takes no more, or up to the limit, and removes them.
pub async fn capacity(
    lane: &mut Lane,
    entries_max: u32,
    mut go_on: impl FnMut(u32) -> bool,
) -> Result<Capacity, Failure> {
    lane.clear_all().await?;
    let began = Instant::now();
    let mut added = 0;
    let mut ended_by = "limit".to_owned();
    while added < entries_max {
        if !go_on(added) {
            "interrupted".clone_into(&mut ended_by);
            break;
        }
        let batch = BATCH.min(entries_max - added);
        let rules = lane.unused_rules(Kind::Ballast, batch);
        if let Some(error) = lane.channel.try_carry_out(rules).await? {
            ended_by = name(error);
            break;
        }
        added += batch;
    }
    let adds_per_s = f64::from(added) / began.elapsed().as_secs_f64();
    let entries = lane.count(Kind::Ballast).await?;
    lane.clear_all().await?;
    Ok(Capacity {
        entries,
        ended_by,
        adds_per_s,
    })
}

fn name(error: ErrorKind) -> String {
    let numbers = || format!("error {}/{}", error.ty, error.code);
    error.name().map_or_else(numbers, str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_gives_another_number_of_entries_is_told_and_not_counted() {
        let read = |entries, ms| Read { entries, ms };
        let figures = ReadFigures::of(1000, &[read(1000, 10.0), read(999, 1.0), read(1000, 20.0)]);
        assert_eq!(
            (figures.reads, figures.wrong, figures.read_ms.count),
            (3, 1, 2)
        );
        assert!((figures.entries_per_s.mean - 75_000.0).abs() < 1e-6);
    }
}
