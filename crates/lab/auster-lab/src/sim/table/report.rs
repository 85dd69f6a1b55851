//! The tables, the raw data and the plots of flow tables under pressure.

use std::fmt::Write;

use super::scenario::Kind;
use super::{Cell, Verdict};
use cli::failure::Failure;
use cli::table::table;
use measure::stats::Summary;
use report::output::Results;
use report::plot::{Plot, Series};

/// The figures by table, load and policy, and what is demanded.
pub fn text(title: &str, cells: &[Cell], verdicts: &[Verdict]) -> String {
    let header = [
        "table",
        "load",
        "policy",
        "flows/s",
        "alive",
        "entries mean",
        "max",
        "bound",
        "misses/flow",
        "again/flow",
        "packet-ins/s",
        "flow-mods/s",
        "TABLE_FULL",
        "lost",
        "evicted",
        "active",
        "pausing",
        "all in use",
        "coarse",
        "no entry",
        "renewals/s max",
    ];
    let rows: Vec<Vec<String>> = cells.iter().map(row).collect();
    let mut text = format!("{title}\n{}", table(&header, &rows));
    text.push_str(
        "\nMeans of the runs; max, bound and renewals are the highest of all runs. A miss is a \
         packet without an entry, again one of a flow that had an entry before. Active: evicted \
         flows that sent within their last gap before and after. Pausing: evicted where all else \
         was in use.\n",
    );
    if !verdicts.is_empty() {
        let header = ["policy", "demand", "found", "verdict"];
        let row = |v: &Verdict| {
            let judged = if v.holds { "holds" } else { "DOES NOT HOLD" };
            vec![
                v.policy.clone(),
                v.demand.clone(),
                v.found.clone(),
                judged.to_owned(),
            ]
        };
        let rows: Vec<Vec<String>> = verdicts.iter().map(row).collect();
        let _ = write!(text, "\nDemanded:\n{}", table(&header, &rows));
    }
    text
}

/// Every figure of every cell: mean and half its 95 % confidence interval.
pub fn csv(cells: &[Cell]) -> String {
    let mut text = "capacity,load,policy,runs,seconds".to_owned();
    for (name, _) in FIGURES {
        let _ = write!(text, ",{name},{name}_ci95");
    }
    text.push('\n');
    for cell in cells {
        let (capacity, load, policy) = (cell.capacity, cell.load, &cell.policy);
        let (runs, seconds) = (cell.flows.count, cell.seconds);
        let _ = write!(text, "{capacity},{load},\"{policy}\",{runs},{seconds}");
        for (_, figure) in FIGURES {
            let summary = figure(cell);
            let _ = write!(text, ",{:.3},{:.3}", summary.mean, summary.ci95);
        }
        text.push('\n');
    }
    text
}

type FigureOf = fn(&Cell) -> &Summary;

const FIGURES: [(&str, FigureOf); 21] = [
    ("flows", |c| &c.flows),
    ("packets", |c| &c.packets),
    ("alive", |c| &c.alive),
    ("occupancy_mean", |c| &c.occupancy_mean),
    ("occupancy_max", |c| &c.occupancy_max),
    ("occupancy_bound", |c| &c.occupancy_bound),
    ("misses", |c| &c.misses),
    ("misses_again", |c| &c.misses_again),
    ("flow_mods", |c| &c.flow_mods),
    ("table_full", |c| &c.table_full),
    ("lost", |c| &c.lost),
    ("evicted", |c| &c.evicted),
    ("evicted_active", |c| &c.evicted_active),
    ("evicted_pausing", |c| &c.evicted_pausing),
    ("evicted_pausing_active", |c| &c.evicted_pausing_active),
    ("all_in_use", |c| &c.all_in_use),
    ("coarse_entries", |c| &c.coarse_entries),
    ("without_entry", |c| &c.without_entry),
    ("reads", |c| &c.reads),
    ("renewals", |c| &c.renewals),
    ("renewals_per_s_max", |c| &c.renewals_per_s_max),
];

fn row(cell: &Cell) -> Vec<String> {
    let per_s = |summary: &Summary| format!("{:.0}", summary.mean / cell.seconds);
    let per_flow = |summary: &Summary| {
        let flows = cell.flows.mean.max(1.0);
        format!("{:.3} ± {:.3}", summary.mean / flows, summary.ci95 / flows)
    };
    let mean = |summary: &Summary| format!("{:.0}", summary.mean);
    let max = |summary: &Summary| format!("{:.0}", summary.max);
    vec![
        cell.capacity.to_string(),
        cell.load.to_string(),
        cell.policy.clone(),
        per_s(&cell.flows),
        mean(&cell.alive),
        mean(&cell.occupancy_mean),
        max(&cell.occupancy_max),
        match cell.kind {
            Kind::Lease => max(&cell.occupancy_bound),
            _ => String::new(),
        },
        per_flow(&cell.misses),
        per_flow(&cell.misses_again),
        per_s(&cell.misses),
        per_s(&cell.flow_mods),
        mean(&cell.table_full),
        mean(&cell.lost),
        mean(&cell.evicted),
        mean(&cell.evicted_active),
        mean(&cell.evicted_pausing),
        mean(&cell.all_in_use),
        mean(&cell.coarse_entries),
        mean(&cell.without_entry),
        max(&cell.renewals_per_s_max),
    ]
}

/// Plots for each table the misses by load, the misses against occupancy for each load, and the
/// busiest load's occupancy over time.
pub fn plot(cells: &[Cell], kept: &Results) -> Result<(), Failure> {
    let mut capacities: Vec<u32> = cells.iter().map(|cell| cell.capacity).collect();
    capacities.dedup();
    for capacity in capacities {
        let of: Vec<&Cell> = cells.iter().filter(|c| c.capacity == capacity).collect();
        let mut loads: Vec<f64> = of.iter().map(|cell| cell.load).collect();
        loads.dedup();
        if loads.len() > 1 {
            kept.plot(&format!("misses-{capacity}"), &by_load(capacity, &of))?;
        }
        for load in &loads {
            let at: Vec<&Cell> = of.iter().copied().filter(|c| c.load == *load).collect();
            let name = format!("misses-by-occupancy-{capacity}-{load}");
            kept.plot(&name, &by_occupancy(capacity, *load, &at))?;
        }
        let most = loads.iter().copied().fold(0.0, f64::max);
        let at: Vec<&Cell> = of.iter().copied().filter(|c| c.load == most).collect();
        let name = format!("occupancy-{capacity}-{most}");
        kept.plot(&name, &over_time(capacity, most, &at))?;
    }
    Ok(())
}

fn misses_per_flow(cell: &Cell) -> f64 {
    cell.misses.mean / cell.flows.mean.max(1.0)
}

fn by_load(capacity: u32, cells: &[&Cell]) -> String {
    let mut series: Vec<Series> = Vec::new();
    for cell in cells {
        let at = place(&mut series, &cell.policy);
        series[at].points.push((cell.load, misses_per_flow(cell)));
    }
    let plot = Plot {
        title: format!("Misses of a table of {capacity} entries, by new flows"),
        x_label: "new flows, times what fits".to_owned(),
        y_label: "misses per flow".to_owned(),
        x_log: true,
        y_log: true,
        series,
    };
    plot.lines()
}

/// The policies of one kind are a curve: that of `fixed` is what its timeout can choose from.
fn by_occupancy(capacity: u32, load: f64, cells: &[&Cell]) -> String {
    let mut series: Vec<Series> = Vec::new();
    for cell in cells {
        let name = match cell.kind {
            Kind::Lru => "LRU",
            Kind::Fixed => "fixed",
            Kind::Paper => "paper",
            Kind::Lease => "lease",
        };
        let at = place(&mut series, name);
        let point = (cell.occupancy_mean.mean, misses_per_flow(cell));
        series[at].points.push(point);
    }
    let plot = Plot {
        title: format!("Misses against occupancy: {capacity} entries, {load} times what fits"),
        x_label: "entries, mean".to_owned(),
        y_label: "misses per flow".to_owned(),
        x_log: false,
        y_log: true,
        series,
    };
    plot.lines()
}

fn over_time(capacity: u32, load: f64, cells: &[&Cell]) -> String {
    let line = |cell: &&Cell| Series {
        name: cell.policy.clone(),
        points: (cell.by_second.iter().enumerate())
            .map(|(second, entries)| (second as f64 + 1.0, f64::from(*entries)))
            .collect(),
        error: None,
    };
    let plot = Plot {
        title: format!("Occupancy: {capacity} entries, {load} times what fits"),
        x_label: "time (s)".to_owned(),
        y_label: "entries".to_owned(),
        x_log: false,
        y_log: false,
        series: cells.iter().map(line).collect(),
    };
    plot.lines()
}

fn place(series: &mut Vec<Series>, name: &str) -> usize {
    let known = series.iter().position(|s| s.name == name);
    known.unwrap_or_else(|| {
        series.push(Series {
            name: name.to_owned(),
            ..Series::default()
        });
        series.len() - 1
    })
}
