//! The figures of one cell of the grid, from its runs.

use serde::Serialize;

use crate::pso::shaper::Traffic;
use crate::pso::trial::{Fate, Trial};
use measure::quantiles::Quantiles;
use measure::stats::Summary;
use testbed::plane::Transport;

/// One run with what was measured around it.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    pub transport: Transport,
    pub algorithm: String,
    pub load: f64,
    pub number: u32,
    #[serde(flatten)]
    pub trial: Trial,
    pub run_s: f64,
    pub frame_bytes: usize,
    /// Out of the switch's end and the controller's end of the link.
    pub link: [Traffic; 2],
}

/// A value per run: their mean, and half the width of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    pub mean: f64,
    pub ci95: f64,
}

impl Estimate {
    fn over(values: impl Iterator<Item = f64>) -> Estimate {
        let summary = Summary::of(&values.collect::<Vec<f64>>());
        Estimate {
            mean: summary.mean,
            ci95: summary.ci95,
        }
    }
}

/// A delay in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Delay {
    /// Over the means of the runs.
    pub mean: Estimate,
    /// Over the 99th percentiles of the runs.
    pub run_p99: Estimate,
    /// Over all messages of all runs.
    pub all: Quantiles,
}

/// PACKET_INs of one kind over all runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Loss {
    pub sent: u64,
    pub asked: u64,
    pub lost: u64,
    /// Lost, in percent of those asked, of the runs.
    pub percent: Estimate,
    /// Packets that the switch let go of before it asked: it, or its connection, was too busy.
    pub unasked: u64,
}

/// A cell: one transport, algorithm and load.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    pub transport: Transport,
    pub algorithm: String,
    pub load: f64,
    pub runs: usize,
    pub target: Loss,
    pub cross: Loss,
    /// From PACKET_IN to PACKET_OUT of the target's packets, beside the switch.
    pub hop_ms: Delay,
    /// The median of the same of cross packets.
    pub cross_hop_p50_ms: Estimate,
    /// From host to host.
    pub end_to_end_ms: Delay,
    /// The target flow's rate at the other host, whole frames.
    pub throughput_kbps: Estimate,
    /// On the wire, from the switch to the controller, headers of Ethernet included. Of the shorter
    /// an OpenFlow message, the more are headers; a backlog makes fewer and fuller packets.
    pub wire_bytes_per_message: Estimate,
    pub link_dropped: u64,
    pub busy_cores: Estimate,
    /// The most that a packet was sent after it was due.
    pub sender_late_ms_max: f64,
    /// Frames and segments that were there and not seen.
    pub unseen: u64,
}

impl Cell {
    /// The cell of these runs, which all belong to it; `None` without runs.
    pub fn of(runs: &[Run]) -> Option<Cell> {
        let first = runs.first()?;
        let targets = || runs.iter().map(|run| &run.trial.target);
        let cross_p50 = |run: &Run| Quantiles::of(run.trial.cross.hop_ms.clone()).p50;
        Some(Cell {
            transport: first.transport,
            algorithm: first.algorithm.clone(),
            load: first.load,
            runs: runs.len(),
            target: loss(targets()),
            cross: loss(runs.iter().map(|run| &run.trial.cross)),
            hop_ms: delay(targets().map(|fate| &fate.hop_ms)),
            cross_hop_p50_ms: Estimate::over(runs.iter().map(cross_p50)),
            end_to_end_ms: delay(targets().map(|fate| &fate.end_to_end_ms)),
            throughput_kbps: Estimate::over(runs.iter().map(|run| {
                let bytes = u64::from(run.trial.target.arrived) * run.frame_bytes as u64;
                bytes as f64 * 8.0 / run.run_s / 1e3
            })),
            wire_bytes_per_message: Estimate::over(runs.iter().map(|run| {
                let messages = run.trial.target.answered + run.trial.cross.answered;
                run.link[0].bytes as f64 / f64::from(messages.max(1))
            })),
            link_dropped: runs
                .iter()
                .flat_map(|run| run.link)
                .map(|t| t.dropped)
                .sum(),
            busy_cores: Estimate::over(runs.iter().map(|run| run.trial.busy_cores)),
            sender_late_ms_max: (runs.iter().map(|run| run.trial.sender_late_ms))
                .fold(0.0, f64::max),
            unseen: runs.iter().map(|run| run.trial.unseen).sum(),
        })
    }
}

fn loss<'a>(fates: impl Iterator<Item = &'a Fate> + Clone) -> Loss {
    let sum = |of: fn(&Fate) -> u32| fates.clone().map(|fate| u64::from(of(fate))).sum();
    let percent = |fate: &Fate| 100.0 * f64::from(fate.lost()) / f64::from(fate.asked.max(1));
    Loss {
        sent: sum(|fate| fate.sent),
        asked: sum(|fate| fate.asked),
        lost: sum(Fate::lost),
        percent: Estimate::over(fates.clone().map(percent)),
        unasked: sum(|fate| fate.sent - fate.asked),
    }
}

fn delay<'a>(runs: impl Iterator<Item = &'a Vec<f64>> + Clone) -> Delay {
    let whole = || runs.clone().filter(|values| !values.is_empty());
    let mean = |values: &Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
    Delay {
        mean: Estimate::over(whole().map(mean)),
        run_p99: Estimate::over(whole().map(|values| Quantiles::of(values.clone()).p99)),
        all: Quantiles::of(whole().flatten().copied().collect()),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A run whose answered target messages took so long.
    pub fn run(algorithm: &str, load: f64, asked: u32, hop_ms: &[f64]) -> Run {
        let target = Fate {
            sent: asked,
            asked,
            answered: hop_ms.len() as u32,
            arrived: hop_ms.len() as u32,
            hop_ms: hop_ms.to_vec(),
            end_to_end_ms: hop_ms.to_vec(),
        };
        let trial = Trial {
            target,
            ..Trial::default()
        };
        let link = Traffic {
            bytes: 900,
            packets: 1,
            dropped: 1,
        };
        Run {
            transport: Transport::Tcp,
            algorithm: algorithm.into(),
            load,
            number: 0,
            trial,
            run_s: 2.0,
            frame_bytes: 100,
            link: [link; 2],
        }
    }

    #[test]
    fn a_cell_counts_all_messages_and_takes_intervals_over_runs() {
        let runs = [
            run("drr", 0.2, 4, &[1.0, 2.0, 3.0]),
            run("drr", 0.2, 4, &[2.0, 2.0, 2.0, 10.0]),
            run("drr", 0.2, 4, &[]),
        ];
        let cell = Cell::of(&runs).unwrap();
        assert_eq!((cell.target.asked, cell.target.lost), (12, 5));
        // 25, 0 and 100 percent.
        assert!((cell.target.percent.mean - 125.0 / 3.0).abs() < 1e-9);
        // Means 2 and 4: a run without an answer has no delay.
        assert_eq!(cell.hop_ms.mean.mean, 3.0);
        assert!((cell.hop_ms.mean.ci95 - 12.706).abs() < 1e-3);
        assert_eq!((cell.hop_ms.all.count, cell.hop_ms.all.p99), (7, 10.0));
        // 7 frames of 100 bytes in 6 seconds.
        assert!((cell.throughput_kbps.mean - 7.0 * 0.8 / 6.0).abs() < 1e-9);
        // 900 bytes of wire by 3, by 4 and by 1 messages.
        assert!((cell.wire_bytes_per_message.mean - (300.0 + 225.0 + 900.0) / 3.0).abs() < 1e-9);
        assert_eq!(cell.link_dropped, 6);
        assert!(Cell::of(&[]).is_none());
    }
}
