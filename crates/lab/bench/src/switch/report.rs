//! The figures of `auster bench switch` as a document, as tables, as plots, and as raw data.

use serde::Serialize;

use super::flow_mod::{self, Outcome};
use super::lane::Lane;
use super::packet_in::{self, Parts};
use super::set_up::{self, Ladder};
use super::tables::{Capacity, Read, ReadFigures};
use cli::failure::Failure;
use cli::table::Columns;
use measure::stats::Summary;
use report::output::Results;
use report::plot::{Bars, Plot, Series};

/// A confidence interval of the mean as wide as the paper's, in milliseconds either side.
const CI_MAX_MS: f64 = 0.05;

/// All samples of one lane.
#[derive(Default)]
pub struct Samples {
    pub packet_in: Vec<Option<Parts>>,
    pub flow_mod: Vec<Option<Outcome>>,
    pub set_up: Option<Ladder>,
    pub read_entries: u32,
    pub reads: Vec<Read>,
    pub capacity: Option<Capacity>,
}

/// One transport in the document. Figures that were not measured are null.
#[derive(Debug, Serialize)]
pub struct Figures {
    pub transport: &'static str,
    pub switch: String,
    pub packet_in: Option<packet_in::Figures>,
    pub flow_mod: Option<flow_mod::Figures>,
    pub set_up: Option<set_up::Figures>,
    pub read: Option<ReadFigures>,
    pub capacity: Option<Capacity>,
}

impl Figures {
    pub fn of(lane: &Lane, samples: &Samples) -> Figures {
        let Samples {
            packet_in,
            flow_mod,
            reads,
            ..
        } = samples;
        Figures {
            transport: lane.transport,
            switch: lane.description.clone(),
            packet_in: (!packet_in.is_empty()).then(|| packet_in::Figures::of(packet_in)),
            flow_mod: (!flow_mod.is_empty()).then(|| flow_mod::Figures::of(flow_mod)),
            set_up: samples.set_up.as_ref().map(Ladder::figures),
            read: (!reads.is_empty()).then(|| ReadFigures::of(samples.read_entries, reads)),
            capacity: samples.capacity.clone(),
        }
    }
}

/// All tables, with remarks on them.
pub fn text(all: &[Figures]) -> String {
    let sections = [
        packet_ins(all),
        flow_mods(all),
        set_ups(all),
        reads(all),
        capacities(all),
    ];
    let there: Vec<String> = sections
        .into_iter()
        .filter(|text| !text.is_empty())
        .collect();
    there.join("\n")
}

/// Writes raw samples and plots.
pub fn keep(results: &Results, all: &[Figures], samples: &[Samples]) -> Result<(), Failure> {
    let packet_ins = runs(all, samples, |samples| &samples.packet_in);
    if !packet_ins.is_empty() {
        results.write("packet-in.csv", packet_in::csv(&packet_ins).as_bytes())?;
        results.plot("packet-in", &packet_in_plot(all))?;
    }
    let flow_mods = runs(all, samples, |samples| &samples.flow_mod);
    if !flow_mods.is_empty() {
        results.write("flow-mod.csv", flow_mod::csv(&flow_mods).as_bytes())?;
        results.plot("flow-mod", &flow_mod_plot(all, samples))?;
    }
    let reads = runs(all, samples, |samples| &samples.reads);
    if !reads.is_empty() {
        let columns = columns(&reads).text("entries", |(.., read)| read.entries);
        let csv = columns.number("read_ms", 6, |(.., read)| read.ms).csv();
        results.write("read.csv", csv.as_bytes())?;
    }
    if all.iter().any(|f| f.set_up.is_some()) {
        results.plot("set-up", &set_up_plot(all))?;
    }
    Ok(())
}

/// A run in a file of all runs: its transport, its number, and its result.
pub type Raw<T> = (&'static str, usize, T);

fn runs<T: Copy>(all: &[Figures], samples: &[Samples], of: fn(&Samples) -> &Vec<T>) -> Vec<Raw<T>> {
    let of_lane = |(figures, samples): (&Figures, _)| {
        let (transport, runs) = (figures.transport, of(samples).iter().copied());
        runs.enumerate().map(move |(n, run)| (transport, n, run))
    };
    all.iter().zip(samples).flat_map(of_lane).collect()
}

/// The first columns of a file of all runs.
pub fn columns<T>(runs: &[Raw<T>]) -> Columns<'_, Raw<T>> {
    let columns = Columns::of(runs).text("transport", |(transport, ..)| *transport);
    columns.text("run", |(_, n, _)| *n)
}

/// The transports that have some figures, each with those figures.
fn measured<T>(all: &[Figures], of: impl Fn(&Figures) -> Option<&T>) -> Vec<(&'static str, &T)> {
    let all = all.iter();
    all.filter_map(|f| Some((f.transport, of(f)?))).collect()
}

fn summary_table(rows: &[(&str, &str, &Summary)]) -> String {
    Columns::of(rows)
        .text("transport", |(transport, ..)| *transport)
        .text("part", |(_, part, _)| *part)
        .number("mean ms", 4, |(.., summary)| summary.mean)
        .maybe("± 95 %", 4, |(.., summary)| summary.interval())
        .number("p50", 4, |(.., summary)| summary.p50)
        .number("p90", 4, |(.., summary)| summary.p90)
        .number("p99", 4, |(.., summary)| summary.p99)
        .number("p99.9", 4, |(.., summary)| summary.p999)
        .number("max ms", 4, |(.., summary)| summary.max)
        .table()
}

fn parts(f: &packet_in::Figures) -> [(&'static str, &Summary); 5] {
    [
        ("data path", &f.data_path_ms),
        ("control path", &f.control_path_ms),
        ("controller", &f.controller_ms),
        ("switch", &f.switch_ms),
        ("end to end", &f.end_to_end_ms),
    ]
}

fn packet_ins(all: &[Figures]) -> String {
    let there = measured(all, |f| f.packet_in.as_ref());
    let Some((_, first)) = there.first() else {
        return String::new();
    };
    let mut text = format!(
        "Packet-in delay of the first packet of a flow, {} runs per transport\n",
        first.runs
    );
    let rows = there.iter().flat_map(|(transport, figures)| {
        parts(figures).map(|(part, summary)| (*transport, part, summary))
    });
    text += &summary_table(&rows.collect::<Vec<_>>());
    for (transport, figures) in &there {
        if figures.lost > 0 {
            text += &format!(
                "  {transport}: {} runs lost, not in the figures\n",
                figures.lost
            );
        }
        let widest = parts(figures)
            .into_iter()
            .max_by(|a, b| a.1.ci95.total_cmp(&b.1.ci95));
        if let Some((part, summary)) = widest.filter(|(_, s)| s.ci95 >= CI_MAX_MS) {
            text += &format!(
                "  {transport}: the mean of {part} is known to ± {:.3} ms only; a quieter machine \
                 or more --runs gives less than {CI_MAX_MS}\n",
                summary.ci95
            );
        }
    }
    text
}

fn flow_mods(all: &[Figures]) -> String {
    let there = measured(all, |f| f.flow_mod.as_ref());
    let Some((_, first)) = there.first() else {
        return String::new();
    };
    let mut text = format!("Flow-mod delay, {} runs per transport\n", first.runs);
    let rows = there.iter().flat_map(|(transport, f)| {
        [
            (*transport, "barrier reply", &f.barrier_ms),
            (*transport, "first packet", &f.data_plane_ms),
            (*transport, "difference", &f.difference_ms),
        ]
    });
    text += &summary_table(&rows.collect::<Vec<_>>());
    for (transport, f) in &there {
        text += &format!(
            "  {transport}: in {} of {} runs a packet sent after the barrier reply took the old \
             path, the last {:.3} ms after it\n",
            f.stale_runs,
            f.runs - f.lost,
            f.stale_ms_max
        );
        if f.lost + f.lost_packets > 0 {
            text += &format!(
                "  {transport}: {} runs in which the new path was never taken, {} packets lost\n",
                f.lost, f.lost_packets
            );
        }
    }
    text
}

fn set_ups(all: &[Figures]) -> String {
    let there = measured(all, |f| f.set_up.as_ref());
    if there.is_empty() {
        return String::new();
    }
    let why = |limit| match limit {
        set_up::Limit::FlowsLost => "at more, flows were not all set up",
        set_up::Limit::Sender => "our sender of packets, not the switch",
        set_up::Limit::RateMax => "--rate-max",
        set_up::Limit::Interrupted => "interrupted",
    };
    let table = Columns::of(&there)
        .text("transport", |(transport, _)| *transport)
        .number("flows/s", 0, |(_, f)| f.highest_per_s)
        .text("rates tried", |(_, f)| f.steps.len())
        .text("limit", |(_, f)| why(f.limited_by))
        .table();
    format!("Flow set-up rate, every flow set up\n{table}")
}

fn reads(all: &[Figures]) -> String {
    let there = measured(all, |f| f.read.as_ref());
    let Some((_, first)) = there.first() else {
        return String::new();
    };
    let table = Columns::of(&there)
        .text("transport", |(transport, _)| *transport)
        .text("reads", |(_, f)| f.reads)
        .text("wrong", |(_, f)| f.wrong)
        .number("mean ms", 2, |(_, f)| f.read_ms.mean)
        .number("p50", 2, |(_, f)| f.read_ms.p50)
        .number("max ms", 2, |(_, f)| f.read_ms.max)
        .number("entries/s", 0, |(_, f)| f.entries_per_s.mean)
        .maybe("± 95 %", 0, |(_, f)| f.entries_per_s.interval())
        .table();
    format!("Multipart read of {} entries\n{table}", first.entries)
}

fn capacities(all: &[Figures]) -> String {
    let there = measured(all, |f| f.capacity.as_ref());
    if there.is_empty() {
        return String::new();
    }
    let table = Columns::of(&there)
        .text("transport", |(transport, _)| *transport)
        .text("entries", |(_, f)| f.entries)
        .number("adds/s", 0, |(_, f)| f.adds_per_s)
        .text("ended by", |(_, f)| &f.ended_by)
        .table();
    format!("Table capacity (limit: --capacity-max was taken whole)\n{table}")
}

/// The transport's name as readers of the paper know it.
fn label(transport: &str) -> String {
    match transport {
        "ssl" => "TLS".to_owned(),
        other => other.to_uppercase(),
    }
}

/// The paper's Fig. 2, with the data path as a part of its own.
fn packet_in_plot(all: &[Figures]) -> String {
    let there = measured(all, |f| f.packet_in.as_ref());
    let stack = |value: fn(&Summary) -> f64| -> Vec<Vec<f64>> {
        let part = |n: usize| there.iter().map(|(_, f)| value(parts(f)[n].1)).collect();
        (0..4).map(part).collect()
    };
    let names = ["data path", "control path", "controller", "switch"].map(str::to_owned);
    Bars {
        title: "Delay of the first packet of a flow".to_owned(),
        y_label: "mean (ms), 95 % confidence".to_owned(),
        groups: there
            .iter()
            .map(|(transport, _)| label(transport))
            .collect(),
        parts: names.into_iter().zip(stack(|s| s.mean)).collect(),
        stacked: true,
        error: Some(stack(|s| s.ci95)),
    }
    .svg()
}

fn flow_mod_plot(all: &[Figures], samples: &[Samples]) -> String {
    let mut series = Vec::new();
    for (figures, samples) in all.iter().zip(samples) {
        let runs = || samples.flow_mod.iter().flatten();
        let name = label(figures.transport);
        series.push(distribution(
            format!("{name}, barrier"),
            runs().map(|o| o.barrier_ms).collect(),
        ));
        series.push(distribution(
            format!("{name}, data plane"),
            runs().map(|o| o.data_plane_ms).collect(),
        ));
    }
    let title = "Flow-mod delay, by barrier reply and by data plane";
    let labels = ["from the flow-mod written (ms)", "share of runs"];
    Plot::new(title, labels, series).log_x().lines()
}

fn distribution(name: String, mut values: Vec<f64>) -> Series {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let share = |n: usize| (n + 1) as f64 / count;
    let points = values
        .into_iter()
        .enumerate()
        .map(|(n, value)| (value, share(n)))
        .collect();
    Series::new(name, points)
}

fn set_up_plot(all: &[Figures]) -> String {
    let line = |f: &Figures| {
        let steps = &f.set_up.as_ref()?.steps;
        let mut points: Vec<(f64, f64)> = steps
            .iter()
            .map(|step| {
                let done = step.delivered.min(step.entries);
                (
                    step.sent_per_s,
                    100.0 * f64::from(done) / f64::from(step.flows),
                )
            })
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Some(Series::new(label(f.transport), points))
    };
    let labels = ["new flows sent (1/s)", "set up (%)"];
    let lines = all.iter().filter_map(line).collect();
    Plot::new("Flows set up, by offered rate", labels, lines)
        .log_x()
        .lines()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_rises_to_one() {
        let series = distribution("x".to_owned(), vec![3.0, 1.0, 2.0, 4.0]);
        assert_eq!(
            series.points,
            [(1.0, 0.25), (2.0, 0.5), (3.0, 0.75), (4.0, 1.0)]
        );
    }

    #[test]
    fn what_was_not_measured_has_no_table() {
        assert_eq!(text(&[]), "");
    }
}
