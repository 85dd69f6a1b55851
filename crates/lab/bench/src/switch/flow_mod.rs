//! The flow-mod delay: until the barrier reply, and until the data plane follows the flow-mod.
//!
//! The ingress host sends packets of one flow at a steady pace. Their old path leads back to the
//! ingress host. Then the bench writes a flow-mod and a barrier request with one call, and the new
//! path leads to the other host. Every packet has a number, so the path of each is known, in
//! particular of those sent after the barrier reply had been read.

use std::time::{Duration, Instant};

use openflow::message::FlowModCommand;
use openflow::{Action, Message};
use serde::Serialize;

use super::lane::{Kind, LOST_AFTER, Lane};
use super::report::{Raw, columns};
use super::tap::{Cars, Seen};
use cli::date::now_ns;
use cli::failure::Failure;
use measure::stats::Summary;

/// Packets that took the old path before the flow-mod is written.
const BEFORE: usize = 10;
/// Packets sent after the barrier reply that took the new path, before the train is stopped.
const AFTER: usize = 20;
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// Time after the previous packet at which a packet still in the switch counts as lost.
const SETTLE_MAX: Duration = Duration::from_millis(100);

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Time from the call that writes the flow-mod to the barrier reply read.
    pub barrier_ms: f64,
    /// Time from the same call to the first packet at the other host.
    pub data_plane_ms: f64,
    /// Packets sent after the barrier reply that took the old path.
    pub stale: usize,
    /// Time from the barrier reply to the sending of the last such packet; 0 if there is none.
    pub stale_ms: f64,
    /// Packets that took neither path.
    pub lost: usize,
    /// Time between sending the last packet on the old path and the first on the new path: the data
    /// plane changed within it.
    pub resolution_ms: f64,
}

/// The times recorded in one run, in nanoseconds of one clock.
#[derive(Debug)]
pub struct Record {
    pub written: u64,
    pub barrier: u64,
    /// Times of sending, by packet number.
    pub sent: Vec<u64>,
    /// Packets seen back at the ingress host, and packets seen at the egress host.
    pub old: Vec<Seen>,
    pub new: Vec<Seen>,
}

impl Record {
    /// `None` when no packet took the new path.
    pub fn outcome(&self) -> Option<Outcome> {
        let ms = |from: u64, to: u64| (to as f64 - from as f64) / 1e6;
        let sent_at = |seen: &Seen| self.sent.get(seen.probe.sequence as usize).copied();
        let arrived = self.new.iter().map(|seen| seen.at_ns).min()?;
        let sent_old = || self.old.iter().filter_map(sent_at);
        let stale: Vec<u64> = sent_old().filter(|at| *at > self.barrier).collect();
        let last_old = sent_old().max().unwrap_or(self.written);
        let first_new = self.new.iter().filter_map(sent_at).min();
        let first_new = first_new.unwrap_or(last_old);
        Some(Outcome {
            barrier_ms: ms(self.written, self.barrier),
            data_plane_ms: ms(self.written, arrived),
            stale: stale.len(),
            stale_ms: stale.iter().max().map_or(0.0, |at| ms(self.barrier, *at)),
            lost: self
                .sent
                .len()
                .saturating_sub(self.old.len() + self.new.len()),
            resolution_ms: ms(last_old, first_new).max(0.0),
        })
    }
}

/// The figures of one transport.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    pub runs: usize,
    /// Runs left out of the figures: no packet took the new path within a second.
    pub lost: usize,
    pub barrier_ms: Summary,
    pub data_plane_ms: Summary,
    /// Data-plane delay minus barrier delay, run by run.
    pub difference_ms: Summary,
    /// Runs in which a packet sent after the barrier reply took the old path.
    pub stale_runs: usize,
    pub stale_packets: usize,
    /// Longest time from a barrier reply to the sending of a packet that took the old path.
    pub stale_ms_max: f64,
    pub lost_packets: usize,
    pub resolution_ms: Summary,
}

impl Figures {
    pub fn of(runs: &[Option<Outcome>]) -> Figures {
        let there: Vec<Outcome> = runs.iter().flatten().copied().collect();
        let of = |part: fn(&Outcome) -> f64| Summary::of(there.iter().map(part));
        Figures {
            runs: runs.len(),
            lost: runs.len() - there.len(),
            barrier_ms: of(|o| o.barrier_ms),
            data_plane_ms: of(|o| o.data_plane_ms),
            difference_ms: of(|o| o.data_plane_ms - o.barrier_ms),
            stale_runs: there.iter().filter(|o| o.stale > 0).count(),
            stale_packets: there.iter().map(|o| o.stale).sum(),
            stale_ms_max: there.iter().map(|o| o.stale_ms).fold(0.0, f64::max),
            lost_packets: there.iter().map(|o| o.lost).sum(),
            resolution_ms: of(|o| o.resolution_ms),
        }
    }
}

/// A CSV file with a line per run; the fields of lost runs are empty.
pub fn csv(runs: &[Raw<Option<Outcome>>]) -> String {
    columns(runs)
        .maybe("barrier_ms", 6, |&(.., run)| Some(run?.barrier_ms))
        .maybe("data_plane_ms", 6, |&(.., run)| Some(run?.data_plane_ms))
        .maybe("stale_packets", 0, |&(.., run)| Some(run?.stale as f64))
        .maybe("stale_ms", 6, |&(.., run)| Some(run?.stale_ms))
        .maybe("lost_packets", 0, |&(.., run)| Some(run?.lost as f64))
        .maybe("resolution_ms", 6, |&(.., run)| Some(run?.resolution_ms))
        .csv()
}

/// Does one run, on a lane prepared with [`super::lane::Otherwise::Back`].
pub async fn run(lane: &mut Lane, spacing: Duration) -> Result<Option<Outcome>, Failure> {
    let flow = lane.take_flows(1);
    let cars = Cars {
        flow,
        each_a_flow: false,
        spacing,
        count_max: cars_max(spacing),
    };
    let train = lane.ends.ingress.start_train(cars)?;
    let mut old = Vec::new();
    let mut new = Vec::new();
    while old.len() < BEFORE && !train.is_over() {
        tokio::time::sleep(LOOK_INTERVAL).await;
        look(lane, flow, &mut old, &mut new)?;
    }
    let rule = lane.rule(
        Kind::Flow,
        flow,
        vec![Action::output(lane.ends.egress_port)],
    );
    let written = now_ns();
    let xid = lane
        .channel
        .send(&[Message::FlowMod(rule.clone()), Message::BarrierRequest])
        .await?;
    let barrier = lane.channel.received(xid).await?.at_ns;
    let sent_before = train.sent();
    while !is_settled(&new, sent_before) && !train.is_over() {
        tokio::time::sleep(LOOK_INTERVAL).await;
        look(lane, flow, &mut old, &mut new)?;
    }
    let sent = train.stop()?;
    let mut accounted = 0;
    let mut progress = Instant::now();
    while accounted < sent.len() && progress.elapsed() < SETTLE_MAX {
        tokio::time::sleep(LOOK_INTERVAL).await;
        look(lane, flow, &mut old, &mut new)?;
        if old.len() + new.len() > accounted {
            accounted = old.len() + new.len();
            progress = Instant::now();
        }
    }
    let mut remove = rule;
    remove.command = FlowModCommand::DeleteStrict;
    lane.channel
        .carry_out(vec![Message::FlowMod(remove)])
        .await?;
    Ok(Record {
        written,
        barrier,
        sent,
        old,
        new,
    }
    .outcome())
}

fn cars_max(spacing: Duration) -> u32 {
    let spacing_ns = spacing.as_nanos().max(1);
    (2 * LOST_AFTER.as_nanos() / spacing_ns) as u32
}

fn is_settled(new: &[Seen], sent_before: u32) -> bool {
    let after = new.iter().filter(|seen| seen.probe.sequence >= sent_before);
    after.count() >= AFTER
}

fn look(lane: &Lane, flow: u32, old: &mut Vec<Seen>, new: &mut Vec<Seen>) -> Result<(), Failure> {
    for (tap, seen) in [(&lane.ends.ingress, old), (&lane.ends.egress, new)] {
        let all = tap.drain()?;
        seen.extend(all.into_iter().filter(|seen| seen.probe.flow == flow));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tap::Probe;
    use super::*;

    fn seen(sequence: u32, at_ns: u64) -> Seen {
        Seen {
            probe: Probe { flow: 1, sequence },
            at_ns,
        }
    }

    /// A packet each millisecond, numbers 0 to 9; each arrives 0.1 ms later.
    fn record(new_from: u32, barrier: u64) -> Record {
        let arrival = |n: u32| u64::from(n) * 1_000_000 + 100_000;
        Record {
            written: 2_500_000,
            barrier,
            sent: (0..10).map(|n| n * 1_000_000).collect(),
            old: (0..new_from).map(|n| seen(n, arrival(n))).collect(),
            new: (new_from..10).map(|n| seen(n, arrival(n))).collect(),
        }
    }

    #[test]
    fn an_honest_barrier_has_no_stale_packet() {
        let outcome = record(3, 3_200_000).outcome().unwrap();
        assert_eq!((outcome.stale, outcome.stale_ms, outcome.lost), (0, 0.0, 0));
        assert!((outcome.barrier_ms - 0.7).abs() < 1e-9);
        assert!((outcome.data_plane_ms - 0.6).abs() < 1e-9);
        assert!((outcome.resolution_ms - 1.0).abs() < 1e-9);
    }

    #[test]
    fn packets_on_the_old_path_after_the_barrier_reply_are_stale() {
        let outcome = record(6, 3_200_000).outcome().unwrap();
        assert_eq!(outcome.stale, 2, "numbers 4 and 5");
        assert!((outcome.stale_ms - 1.8).abs() < 1e-9);
        assert!((outcome.data_plane_ms - 3.6).abs() < 1e-9);
        let figures = Figures::of(&[Some(outcome), None, record(3, 3_200_000).outcome()]);
        assert_eq!((figures.runs, figures.lost, figures.stale_runs), (3, 1, 1));
        assert_eq!(figures.stale_packets, 2);
        assert!((figures.stale_ms_max - 1.8).abs() < 1e-9);
    }

    #[test]
    fn a_packet_on_neither_path_is_lost_and_a_run_without_the_new_path_is_none() {
        let mut lossy = record(4, 3_200_000);
        lossy.new.remove(2);
        assert_eq!(lossy.outcome().unwrap().lost, 1);
        assert_eq!(record(10, 3_200_000).outcome(), None);
    }
}
