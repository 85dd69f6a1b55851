//! The figures of a cell's runs.

use hdrhistogram::Histogram;
use sched::Direction;
use serde::{Deserialize, Serialize};
use sim::channel::{Outcome, Setup};

use super::scenario::{Expectation, TargetEntry, Variant};
use measure::stats::Summary;

/// The longest delay recorded, an hour; longer ones count as this.
const DELAY_MAX_NS: u64 = 3_600_000_000_000;

/// A figure by its name in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Messages of the target lost, of those that its transactions send one way, or both where both
    /// are loaded: nothing is lost where nothing else is sent.
    LossPercent,
    /// The share of lost messages among all that the target sends, both directions and retries
    /// included.
    LossOfSentPercent,
    /// Time from the first packet-in to the packet-out.
    HopMs,
    HopP50Ms,
    HopP99Ms,
    /// Time from the packet-in to its arrival, where the first one arrived.
    OneWayMs,
    OneWayP50Ms,
    /// The throughput of packets whose first packet-in and packet-out came through.
    ThroughputKbit,
    EndToEndMs,
    /// The loss of the messages that load the channel.
    CrossLossPercent,
    /// Transactions done, of those begun.
    DonePercent,
    /// Mean time that a message waits for the wire, to the controller.
    WaitUs,
}

/// One run in figures.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Run {
    pub run: u64,
    pub seed: u64,
    pub loss_percent: f64,
    pub loss_of_sent_percent: f64,
    pub hop_ms: f64,
    pub one_way_ms: f64,
    pub throughput_kbit: f64,
    pub end_to_end_ms: f64,
    pub cross_loss_percent: f64,
    pub done_percent: f64,
    pub wait_us: f64,
    /// Share of the time that the wire to the controller was sending.
    pub busy_percent: f64,
    /// Times that a wire stood still while something waited.
    pub idle_with_work: u64,
}

/// All runs of one variant at one load. Means are of the runs' means; quantiles are of all
/// transactions of all runs.
#[derive(Debug, Serialize)]
pub struct Cell {
    pub variant: String,
    pub load: f64,
    /// Target and cross traffic, of the line's rate.
    pub offered_load: f64,
    pub loss_percent: Summary,
    pub loss_of_sent_percent: Summary,
    pub hop_ms: Summary,
    pub hop_p50_ms: f64,
    pub hop_p99_ms: f64,
    pub one_way_ms: Summary,
    pub one_way_p50_ms: f64,
    pub throughput_kbit: Summary,
    pub end_to_end_ms: Summary,
    pub cross_loss_percent: Summary,
    pub done_percent: Summary,
    pub wait_us: Summary,
    pub busy_percent: Summary,
    pub idle_with_work: u64,
    pub runs: Vec<Run>,
}

/// A figure found elsewhere, beside ours.
#[derive(Debug, Serialize)]
pub struct Verdict {
    pub by: String,
    pub variant: String,
    pub load: f64,
    pub figure: Figure,
    pub theirs: String,
    pub ours: f64,
    /// Half of the 95 % confidence interval; `None` where the figure has none.
    pub ours_ci95: Option<f64>,
    pub holds: bool,
    pub but: Option<String>,
}

/// Outcomes of one cell, as they come in.
pub struct Gathering<'a> {
    variant: &'a Variant,
    load: f64,
    setup: &'a Setup,
    target: &'a TargetEntry,
    runs: Vec<Run>,
    hop_ns: Histogram<u64>,
    one_way_ns: Histogram<u64>,
}

impl<'a> Gathering<'a> {
    pub fn new(
        variant: &'a Variant,
        load: f64,
        setup: &'a Setup,
        target: &'a TargetEntry,
    ) -> Gathering<'a> {
        let histogram =
            || Histogram::new_with_max(DELAY_MAX_NS, 3).expect("three digits are possible");
        Gathering {
            variant,
            load,
            setup,
            target,
            runs: Vec::new(),
            hop_ns: histogram(),
            one_way_ns: histogram(),
        }
    }

    pub fn add(&mut self, run: u64, seed: u64, outcome: &Outcome) {
        for delay in &outcome.delays_ns {
            self.hop_ns.saturating_record(*delay);
        }
        for delay in &outcome.one_way_ns {
            self.one_way_ns.saturating_record(*delay);
        }
        let needed = outcome.begun * loaded_directions(self.setup);
        let hop_ms = mean_ms(&outcome.delays_ns);
        let seconds = self.setup.duration.as_secs_f64();
        let packet_kbit = f64::from(self.target.packet_bytes) * 8.0 / 1000.0;
        let (offered, lost) = (outcome.cross.iter()).fold((0, 0), |(o, l), c| (o + c.0, l + c.1));
        let line = outcome.lines[0];
        self.runs.push(Run {
            run,
            seed,
            loss_percent: percent(outcome.messages_lost, needed),
            loss_of_sent_percent: percent(outcome.messages_lost, outcome.messages),
            hop_ms,
            one_way_ms: mean_ms(&outcome.one_way_ns),
            throughput_kbit: outcome.done_at_once as f64 * packet_kbit / seconds,
            end_to_end_ms: hop_ms + self.variant.beyond_ms,
            cross_loss_percent: percent(lost, offered),
            done_percent: percent(outcome.done, outcome.begun),
            wait_us: line.waited_ns as f64 / 1e3 / (line.sent as f64).max(1.0),
            busy_percent: line.busy_ns as f64 / 1e7 / outcome.virtual_time.as_secs_f64(),
            idle_with_work: outcome.lines.iter().map(|line| line.idle_with_work).sum(),
        });
    }

    pub fn finish(mut self) -> Cell {
        self.runs.sort_by_key(|run| run.run);
        let over = |read: fn(&Run) -> f64| {
            let values: Vec<f64> = self
                .runs
                .iter()
                .map(read)
                .filter(|v| v.is_finite())
                .collect();
            Summary::of(&values)
        };
        let quantile = |histogram: &Histogram<u64>, q| match histogram.len() {
            0 => f64::NAN,
            _ => histogram.value_at_quantile(q) as f64 / 1e6,
        };
        let sources = self
            .setup
            .cross
            .iter()
            .filter(|c| c.direction == Direction::ToController);
        let cross: f64 = sources.map(|c| c.per_second * wire_bytes(c.traffic)).sum();
        let target = self.setup.target.per_second * sim::channel::MESSAGE_BYTES as f64;
        Cell {
            variant: self.variant.name.clone(),
            load: self.load,
            offered_load: (cross + target) * 8.0 / self.setup.line.rate_bps as f64,
            loss_percent: over(|r| r.loss_percent),
            loss_of_sent_percent: over(|r| r.loss_of_sent_percent),
            hop_ms: over(|r| r.hop_ms),
            hop_p50_ms: quantile(&self.hop_ns, 0.5),
            hop_p99_ms: quantile(&self.hop_ns, 0.99),
            one_way_ms: over(|r| r.one_way_ms),
            one_way_p50_ms: quantile(&self.one_way_ns, 0.5),
            throughput_kbit: over(|r| r.throughput_kbit),
            end_to_end_ms: over(|r| r.end_to_end_ms),
            cross_loss_percent: over(|r| r.cross_loss_percent),
            done_percent: over(|r| r.done_percent),
            wait_us: over(|r| r.wait_us),
            busy_percent: over(|r| r.busy_percent),
            idle_with_work: self.runs.iter().map(|run| run.idle_with_work).sum(),
            runs: self.runs,
        }
    }
}

impl Cell {
    /// The figure and half its confidence interval, where it has one.
    pub fn figure(&self, figure: Figure) -> (f64, Option<f64>) {
        let of = |summary: &Summary| match summary.count {
            0 => (f64::NAN, None),
            _ => (summary.mean, Some(summary.ci95)),
        };
        match figure {
            Figure::LossPercent => of(&self.loss_percent),
            Figure::LossOfSentPercent => of(&self.loss_of_sent_percent),
            Figure::HopMs => of(&self.hop_ms),
            Figure::HopP50Ms => (self.hop_p50_ms, None),
            Figure::HopP99Ms => (self.hop_p99_ms, None),
            Figure::OneWayMs => of(&self.one_way_ms),
            Figure::OneWayP50Ms => (self.one_way_p50_ms, None),
            Figure::ThroughputKbit => of(&self.throughput_kbit),
            Figure::EndToEndMs => of(&self.end_to_end_ms),
            Figure::CrossLossPercent => of(&self.cross_loss_percent),
            Figure::DonePercent => of(&self.done_percent),
            Figure::WaitUs => of(&self.wait_us),
        }
    }

    /// Whether what was found elsewhere holds here: two intervals that meet, a bound that is kept.
    pub fn verdict(&self, expect: &Expectation) -> Verdict {
        let (ours, ours_ci95) = self.figure(expect.figure);
        let half = ours_ci95.unwrap_or(0.0);
        let mut theirs = Vec::new();
        let mut holds = ours.is_finite();
        if let Some(value) = expect.value {
            let (tolerance, text) = match (expect.percent, expect.spread) {
                (Some(percent), _) => (
                    percent / 100.0 * value.abs(),
                    format!(" (within {percent} %)"),
                ),
                (None, Some(spread)) => (spread + half, format!(" ± {spread}")),
                (None, None) => (half, String::new()),
            };
            theirs.push(format!("{value}{text}"));
            // Digits as they are written, not as they are kept.
            holds &= (ours - value).abs() <= tolerance + 1e-9;
        }
        if let Some(above) = expect.above {
            theirs.push(format!("above {above}"));
            holds &= ours > above;
        }
        if let Some(below) = expect.below {
            theirs.push(format!("below {below}"));
            holds &= ours < below;
        }
        Verdict {
            by: expect.by.clone(),
            variant: expect.variant.clone(),
            load: expect.load,
            figure: expect.figure,
            theirs: theirs.join(", "),
            ours,
            ours_ci95,
            holds,
            but: expect.but.clone(),
        }
    }
}

/// Directions in which the target's messages are beside others.
fn loaded_directions(setup: &Setup) -> u64 {
    let is_loaded = |direction| setup.cross.iter().any(|c| c.direction == direction);
    let both = is_loaded(Direction::ToController) && is_loaded(Direction::ToSwitch);
    if both && setup.is_answered { 2 } else { 1 }
}

fn wire_bytes(traffic: sim::channel::Traffic) -> f64 {
    match traffic {
        sim::channel::Traffic::Data { bytes } => f64::from(bytes),
        _ => sim::channel::MESSAGE_BYTES as f64,
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / (whole as f64).max(1.0)
}

/// The mean in milliseconds; not a number when there is none.
fn mean_ms(nanos: &[u64]) -> f64 {
    nanos.iter().map(|n| *n as f64).sum::<f64>() / nanos.len() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::scenario::Scenario;

    const TEXT: &str = include_str!("../../../../../scenarios/pso-fig7-8.toml");

    fn cell(runs: &[(u64, u64)]) -> Cell {
        let scenario = Scenario::parse(TEXT).unwrap();
        let variant = &scenario.variant[0];
        let setup = scenario.setup(variant, 1.05).unwrap();
        let mut gathering = Gathering::new(variant, 1.05, &setup, &scenario.target);
        for (run, (lost, delay_ms)) in runs.iter().enumerate() {
            let outcome = Outcome {
                begun: 100,
                done: 100,
                done_at_once: 90,
                messages: 200 + lost,
                messages_lost: *lost,
                delays_ns: vec![delay_ms * 1_000_000; 100],
                one_way_ns: vec![1_000_000; 100],
                cross: vec![(1000, 50), (1000, 150)],
                virtual_time: setup.duration,
                ..Outcome::default()
            };
            gathering.add(run as u64, 1, &outcome);
        }
        gathering.finish()
    }

    fn expect(value: f64, spread: Option<f64>, percent: Option<f64>) -> Expectation {
        Expectation {
            by: "x".to_owned(),
            variant: "FIFO".to_owned(),
            load: 1.05,
            figure: Figure::HopMs,
            value: Some(value),
            spread,
            percent,
            above: None,
            below: None,
            but: None,
        }
    }

    /// Out-of-band traffic loads both directions, in-band traffic one.
    #[test]
    fn loss_is_of_the_messages_that_go_where_the_load_is() {
        let directions = |text: &str| {
            let scenario = Scenario::parse(text).unwrap();
            loaded_directions(&scenario.setup(&scenario.variant[0], 1.05).unwrap())
        };
        assert_eq!(directions(TEXT), 2);
        assert_eq!(directions(&TEXT.replace("both_ways = true", "")), 1);
        assert_eq!(
            directions(&TEXT.replace("[line]", "[line]\nanswered = false")),
            1
        );
    }

    #[test]
    fn figures_are_means_of_runs_and_quantiles_of_all() {
        let cell = cell(&[(8, 10), (12, 20)]);
        assert!((cell.loss_percent.mean - 5.0).abs() < 1e-9);
        assert!((cell.hop_ms.mean - 15.0).abs() < 1e-9);
        // Two runs: t(1) = 12.706, sd = 7.07.
        assert!((cell.hop_ms.ci95 - 12.706 * 5.0).abs() < 0.01);
        assert!(
            (cell.end_to_end_ms.mean - 35.0).abs() < 1e-9,
            "20 ms beyond"
        );
        assert!((cell.cross_loss_percent.mean - 10.0).abs() < 1e-9);
        // 90 packets of 512 bytes in 10 seconds.
        assert!((cell.throughput_kbit.mean - 36.864).abs() < 1e-6);
        assert!((cell.hop_p50_ms - 10.0).abs() < 0.02 && (cell.hop_p99_ms - 20.0).abs() < 0.02);
        // Of the line, and the target's 0.43 % beside it.
        assert!((cell.offered_load - 1.0543).abs() < 1e-4);
    }

    #[test]
    fn a_verdict_is_whether_intervals_meet_or_a_share_is_kept() {
        let cell = cell(&[(8, 10), (8, 10)]);
        let holds = |expect: Expectation| cell.verdict(&expect).holds;
        assert!(holds(expect(10.4, Some(0.5), None)));
        assert!(!holds(expect(10.6, Some(0.5), None)));
        assert!(holds(expect(10.2, None, Some(3.0))));
        assert!(!holds(expect(10.5, None, Some(3.0))));
        let above = |above| Expectation {
            value: None,
            above: Some(above),
            ..expect(0.0, None, None)
        };
        assert!(holds(above(9.9)) && !holds(above(10.1)));
    }
}
