//! The figures of a cell, from its runs.

use serde::Serialize;

use crate::timeouts::cell::{PingRun, StreamRun};
use crate::timeouts::settings::Settings;
use crate::timeouts::steps::Found;
use bench::network::iperf::Datagrams;
use measure::quantiles::Quantiles;
use measure::stats::{Summary, median};

/// A row of the table: streams of one name at one rate, over all runs.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub row: String,
    pub rate_mbps: f64,
    pub packets_per_s: f64,
    pub runs: usize,
    /// Over all runs.
    pub sent: u64,
    pub lost: u64,
    pub duplicates: u64,
    /// A value per run.
    pub reordered: Spread,
    pub jitter_ms: Spread,
    /// Over all packets of all runs, one way.
    pub delay_ms: Quantiles,
    /// Over all reordered packets: the extent is the number of packets that arrived between the
    /// first overtaking packet and the reordered one; then how much later that one was.
    pub extent: Quantiles,
    pub late_ms: Quantiles,
    pub packet_ins: Spread,
    pub flow_adds: Spread,
    pub detours: Spread,
    /// D.
    pub detour_ms: Spread,
    /// From a detour's first PACKET_IN to the FLOW_MOD that followed.
    pub installed_ms: Spread,
    /// The formula's prediction.
    pub predicted: Spread,
    /// Counted by iperf, in networks of its own.
    pub iperf_reordered: Option<Spread>,
    pub iperf_lost: Option<u64>,
    pub iperf_jitter_ms: Option<Spread>,
    pub sender_late_ms_max: f64,
    pub unseen: u64,
}

/// A value per run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    /// Half the width of the 95 % confidence interval of the mean.
    pub ci95: f64,
}

impl Spread {
    pub fn of(values: impl Iterator<Item = f64>) -> Spread {
        let values: Vec<f64> = values.collect();
        let summary = Summary::of(&values);
        Spread {
            median: median(&values),
            min: summary.min,
            max: summary.max,
            mean: summary.mean,
            ci95: summary.ci95,
        }
    }
}

/// Echo requests of one name and size, over all runs.
#[derive(Clone, Debug, Serialize)]
pub struct PingRow {
    pub row: String,
    pub size_bytes: u16,
    pub runs: usize,
    pub sent: usize,
    pub lost: usize,
    pub rtt_ms: Quantiles,
    pub mean_ms: f64,
    /// The median over the runs, by the number of the request.
    pub by_request_ms: Vec<Option<f64>>,
}

pub fn rows(settings: &Settings, found: &Found) -> Vec<Row> {
    let mut rows = Vec::new();
    for streams in &settings.streams {
        for rate in &streams.rates_mbps {
            let is_of = |name: &str, at: f64| name == streams.name && at == *rate;
            let runs: Vec<&StreamRun> = (found.streams.iter())
                .filter(|run| is_of(&run.row, run.rate_mbps))
                .collect();
            let iperf: Vec<Datagrams> = (found.iperf.iter())
                .filter(|run| is_of(&run.row, run.rate_mbps))
                .filter_map(|run| run.said)
                .collect();
            let per_s = 1.0 / settings.pace(*rate).interval().as_secs_f64();
            rows.extend(row(&runs, &iperf, per_s * f64::from(streams.streams)));
        }
    }
    rows
}

fn row(runs: &[&StreamRun], iperf: &[Datagrams], packets_per_s: f64) -> Option<Row> {
    let first = runs.first()?;
    let spread = |of: fn(&StreamRun) -> f64| Spread::of(runs.iter().map(|run| of(run)));
    let sum = |of: fn(&StreamRun) -> u64| runs.iter().map(|run| of(run)).sum();
    let late = || runs.iter().flat_map(|run| &run.late);
    let has_iperf = !iperf.is_empty();
    Some(Row {
        row: first.row.clone(),
        rate_mbps: first.rate_mbps,
        packets_per_s,
        runs: runs.len(),
        sent: sum(|run| run.sent),
        lost: sum(|run| run.lost),
        duplicates: sum(|run| run.duplicates),
        reordered: spread(|run| run.reordered as f64),
        jitter_ms: spread(|run| run.jitter_ms),
        delay_ms: Quantiles::of(
            runs.iter()
                .flat_map(|run| &run.delays_ms)
                .copied()
                .collect(),
        ),
        extent: Quantiles::of(late().map(|(extent, _)| *extent as f64).collect()),
        late_ms: Quantiles::of(late().map(|(_, ms)| *ms).collect()),
        packet_ins: spread(|run| run.channel.packet_ins as f64),
        flow_adds: spread(|run| run.channel.flow_adds as f64),
        detours: spread(|run| run.channel.detours as f64),
        detour_ms: Spread::of(runs.iter().filter_map(|run| run.channel.detour_ms)),
        installed_ms: Spread::of(runs.iter().filter_map(|run| run.channel.installed_ms)),
        predicted: spread(|run| run.channel.predicted),
        iperf_reordered: has_iperf.then(|| Spread::of(iperf.iter().map(|r| r.reordered as f64))),
        iperf_lost: has_iperf.then(|| iperf.iter().map(|run| run.lost).sum()),
        iperf_jitter_ms: has_iperf.then(|| Spread::of(iperf.iter().map(|run| run.jitter_ms))),
        sender_late_ms_max: runs
            .iter()
            .fold(0.0, |max, run| run.sender_late_ms.max(max)),
        unseen: sum(|run| run.channel.unseen),
    })
}

pub fn ping_rows(settings: &Settings, found: &Found) -> Vec<PingRow> {
    let mut rows = Vec::new();
    for pings in &settings.pings {
        for size in &pings.sizes_bytes {
            let is_of = |run: &&PingRun| run.row == pings.name && run.size_bytes == *size;
            let runs: Vec<&PingRun> = found.pings.iter().filter(is_of).collect();
            rows.extend(ping_row(&runs));
        }
    }
    rows
}

fn ping_row(runs: &[&PingRun]) -> Option<PingRow> {
    let first = runs.first()?;
    let all = || runs.iter().flat_map(|run| &run.rtts_ms);
    let answered: Vec<f64> = all().flatten().copied().collect();
    let nth = |n: usize| -> Option<f64> {
        let of_runs = runs
            .iter()
            .filter_map(|run| run.rtts_ms.get(n).copied().flatten());
        let values: Vec<f64> = of_runs.collect();
        (!values.is_empty()).then(|| median(&values))
    };
    Some(PingRow {
        row: first.row.clone(),
        size_bytes: first.size_bytes,
        runs: runs.len(),
        sent: all().count(),
        lost: all().filter(|rtt| rtt.is_none()).count(),
        mean_ms: Summary::of(&answered).mean,
        rtt_ms: Quantiles::of(answered),
        by_request_ms: (0..first.rtts_ms.len()).map(nth).collect(),
    })
}
