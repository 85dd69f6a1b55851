//! The tables as `papers` have them: methods down, conditions across; and the plots.

use super::cell::CellResult;
use super::grid::{Bursts, LONG_RTT_MS, Table};
use super::method::Method;
use super::schedule::CellFailure;
use cli::failure::Failure;
use cli::table::table;
use measure::stats::Summary;
use report::output::Results;
use report::plot::{Plot, Series};

/// The number of lines that a plot can distinguish by colour and dash.
const LINES_MAX: usize = 8;
/// Those that go into the first plot when there are more.
const KNOWN: [&str; 8] = [
    "tcp",
    "tcp-nagle",
    "tls",
    "tls-shared",
    "quic-2s",
    "quic-16s",
    "quic-msg",
    "relay",
];

/// The figures of one method under one condition, over all seeds.
pub struct Figures {
    pub table: Table,
    pub method: &'static Method,
    pub condition: String,
    pub group: Group,
    pub rate_per_s: f64,
    pub loss_percent: f64,
    pub is_short_path: bool,
    pub is_in_bursts: bool,
    pub overhead_bytes: f64,
    /// Half the width of its 95 % confidence interval over seeds; 0 with one.
    pub overhead_ci95: f64,
    pub frames: f64,
    pub mean_ms: f64,
    pub mean_ci95_ms: f64,
    pub p99_ms: f64,
    pub undelivered_percent: f64,
    pub overtaken: f64,
    pub overtaken_in_flow: f64,
    pub messages: f64,
    pub cpu_us: f64,
    pub link_cpu_us: f64,
}

/// The condition that one printed table shares.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub sizes: String,
    pub rtt: String,
    /// Nothing where each frame is lost by itself.
    pub bursts: String,
    pub agents: usize,
}

impl Group {
    /// The loss for a title, where loss comes in bursts.
    fn loss(&self) -> String {
        match &*self.bursts {
            "" => String::new(),
            bursts => format!(", loss{bursts}"),
        }
    }
}

impl Figures {
    /// The figures, in the order in which methods and conditions first appear.
    pub fn of(results: &[CellResult]) -> Vec<Figures> {
        let mut groups: Vec<Vec<&CellResult>> = Vec::new();
        for result in results {
            let same = groups.iter_mut().find(|group| {
                let first = group[0];
                (first.table, first.method, condition(first), first.agents)
                    == (
                        result.table,
                        result.method,
                        condition(result),
                        result.agents,
                    )
            });
            match same {
                Some(group) => group.push(result),
                None => groups.push(vec![result]),
            }
        }
        groups
            .iter()
            .filter_map(|seeds| Figures::of_seeds(seeds))
            .collect()
    }

    pub fn is_under_the_same_condition_as(&self, other: &Figures) -> bool {
        (self.table, &self.condition, self.group.agents)
            == (other.table, &other.condition, other.group.agents)
    }

    fn of_seeds(seeds: &[&CellResult]) -> Option<Figures> {
        let first = seeds.first()?;
        let over = |read: fn(&CellResult) -> f64| {
            Summary::of(
                &seeds
                    .iter()
                    .map(|result| read(result))
                    .collect::<Vec<f64>>(),
            )
        };
        let overhead = over(|r| r.overhead_bytes_per_message);
        let mean = over(|r| r.delay_ms.mean);
        Some(Figures {
            table: first.table,
            method: Method::parse(first.method).ok()?,
            condition: condition(first),
            group: group(first),
            rate_per_s: first.rate_per_s,
            loss_percent: first.loss_percent,
            is_short_path: first.rtt_ms < LONG_RTT_MS,
            is_in_bursts: first.burst_frames > 0.0,
            overhead_bytes: overhead.mean,
            overhead_ci95: overhead.ci95,
            frames: over(|r| r.frames_per_message).mean,
            mean_ms: mean.mean,
            mean_ci95_ms: mean.ci95,
            p99_ms: over(|r| r.delay_ms.p99).mean,
            undelivered_percent: over(|r| 100.0 * r.undelivered as f64 / r.messages as f64).mean,
            overtaken: over(|r| r.overtaken as f64).mean,
            overtaken_in_flow: over(|r| r.overtaken_in_flow as f64).mean,
            messages: over(|r| r.messages as f64).mean,
            cpu_us: over(|r| r.cpu_us_per_message).mean,
            link_cpu_us: over(|r| r.link_cpu_us_per_message).mean,
        })
    }
}

/// All tables, what is wrong with the figures, and what failed.
pub fn text(results: &[CellResult], failures: &[CellFailure]) -> String {
    let all = Figures::of(results);
    let mut text = String::new();
    for (table, group) in groups(&all) {
        let figures: Vec<&Figures> = all
            .iter()
            .filter(|f| f.table == table && f.group == group)
            .collect();
        let about = format!(
            "{} bytes, RTT {} ms{}, {} agents",
            group.sizes,
            group.rtt,
            group.loss(),
            group.agents
        );
        let mut add = |what: &str, figures: &[&Figures], cell: fn(&Figures) -> String| {
            if !figures.is_empty() {
                text += &format!("{} ({about}): {what}\n", table.title());
                let entries: Vec<Entry> = figures.iter().map(|f| Entry::of(f, cell)).collect();
                text += &(matrix(&entries) + "\n");
            }
        };
        if table != Table::Overhead {
            add("ms, mean / p99", &figures, delay_cell);
        }
        let is_mixed = table.has_claims() || table == Table::Grid;
        if is_mixed || table == Table::Overhead {
            add("bytes/message [frames/message]", &figures, |f| {
                format!("{:.1} [{:.2}]", f.overhead_bytes, f.frames)
            });
        }
        if is_mixed || matches!(table, Table::Overhead | Table::DelayShort) {
            add("CPU us/message, of the ends + of the link", &figures, |f| {
                format!("{:.0} + {:.0}", f.cpu_us, f.link_cpu_us)
            });
        }
        // Only those that have any: in a byte stream there is none.
        let overtakes = |f: &&&Figures| {
            let mut same = figures.iter().filter(|g| g.method == f.method);
            same.any(|g| g.overtaken > 0.0)
        };
        let disordered: Vec<&Figures> = figures.iter().filter(overtakes).copied().collect();
        let what = "messages overtaken by one of their flow / of their agent, of all";
        add(what, &disordered, |f| {
            format!(
                "{:.0} / {:.0} of {:.0}",
                f.overtaken_in_flow, f.overtaken, f.messages
            )
        });
    }
    text + &doubts(results) + &failed(failures)
}

/// Delay over loss, and overhead over rate, where there is more than one of them.
pub fn plot(results: &[CellResult], kept: &Results) -> Result<(), Failure> {
    let all = Figures::of(results);
    for (table, group) in groups(&all) {
        let of_group = |f: &&Figures| f.table == table && f.group == group;
        let name = |what: &str, part: usize| {
            let rtt = group.rtt.replace('±', "+-");
            let sizes = group.sizes.replace('/', "-");
            let more = match part {
                0 => String::new(),
                part => format!("-{}", part + 1),
            };
            let bursts = group.bursts.replace([' ', ':'], "-");
            format!(
                "{what}-{sizes}B-rtt{rtt}ms{bursts}-{}agents{more}",
                group.agents
            )
        };
        for rate in distinct(all.iter().filter(of_group).map(|f| f.rate_per_s)) {
            let of_rate = |f: &&Figures| of_group(f) && f.rate_per_s == rate;
            let lines = series(all.iter().filter(of_rate), |f| {
                (f.loss_percent, f.mean_ms, f.mean_ci95_ms)
            });
            for (part, series) in readable(&lines).into_iter().enumerate() {
                let plot = Plot {
                    title: format!(
                        "Mean delay: {} B, RTT {} ms, {rate} msg/s each way{}",
                        group.sizes,
                        group.rtt,
                        group.loss()
                    ),
                    x_label: "loss (%)".to_owned(),
                    y_label: "delay (ms)".to_owned(),
                    x_log: false,
                    y_log: true,
                    series,
                };
                kept.plot(&name(&format!("delay-{rate}"), part), &plot.lines())?;
            }
        }
        for loss in distinct(all.iter().filter(of_group).map(|f| f.loss_percent)) {
            let of_loss = |f: &&Figures| of_group(f) && f.loss_percent == loss;
            let lines = series(all.iter().filter(of_loss), |f| {
                (f.rate_per_s, f.overhead_bytes, f.overhead_ci95)
            });
            for (part, series) in readable(&lines).into_iter().enumerate() {
                let plot = Plot {
                    title: format!(
                        "Overhead: {} B, RTT {} ms, {loss} % loss{}",
                        group.sizes, group.rtt, group.bursts
                    ),
                    x_label: "messages per second, each way".to_owned(),
                    y_label: "overhead (bytes/message)".to_owned(),
                    x_log: true,
                    y_log: false,
                    series,
                };
                kept.plot(&name(&format!("overhead-loss{loss}"), part), &plot.lines())?;
            }
        }
    }
    Ok(())
}

/// Sets of lines that a reader can distinguish: what is best known first, and in the others the
/// first line again, to compare with.
pub fn readable(lines: &[Series]) -> Vec<Vec<Series>> {
    if lines.len() <= LINES_MAX {
        return if lines.is_empty() {
            Vec::new()
        } else {
            vec![lines.to_vec()]
        };
    }
    let is_known = |line: &&Series| KNOWN.contains(&line.name.as_str());
    let (mut known, mut others): (Vec<Series>, Vec<Series>) =
        lines.iter().cloned().partition(|line| is_known(&line));
    if known.is_empty() {
        known.push(others.remove(0));
    }
    let reference = known[0].clone();
    let chunks = others.chunks(LINES_MAX - 1);
    let others = chunks.map(|chunk| [std::slice::from_ref(&reference), chunk].concat());
    std::iter::once(known.clone()).chain(others).collect()
}

fn distinct(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    numbers
}

/// A line per method of x, y and half an interval; none where there is but one x.
fn series<'a>(
    figures: impl Iterator<Item = &'a Figures>,
    point: fn(&Figures) -> (f64, f64, f64),
) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for f in figures {
        let (x, y, half) = point(f);
        let name = f.method.name;
        let at = series
            .iter()
            .position(|s| s.name == name)
            .unwrap_or_else(|| {
                series.push(Series {
                    name: name.to_owned(),
                    points: Vec::new(),
                    error: Some(Vec::new()),
                });
                series.len() - 1
            });
        series[at].points.push((x, y));
        series[at].error.get_or_insert_default().push(half);
    }
    series.retain(|s| s.points.len() > 1);
    for line in &mut series {
        let error = line.error.take().unwrap_or_default();
        let mut both: Vec<((f64, f64), f64)> = line.points.drain(..).zip(error).collect();
        both.sort_by(|a, b| a.0.0.total_cmp(&b.0.0));
        let error: Vec<f64>;
        (line.points, error) = both.into_iter().unzip();
        line.error = error.iter().any(|half| *half > 0.0).then_some(error);
    }
    series
}

fn groups(all: &[Figures]) -> Vec<(Table, Group)> {
    let mut groups: Vec<(Table, Group)> = Vec::new();
    for f in all {
        let group = (f.table, f.group.clone());
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

/// A cell of a printed table.
pub struct Entry {
    pub method: &'static str,
    pub rate_per_s: f64,
    pub loss_percent: f64,
    pub cell: String,
}

impl Entry {
    fn of(figures: &Figures, cell: fn(&Figures) -> String) -> Entry {
        Entry {
            method: figures.method.name,
            rate_per_s: figures.rate_per_s,
            loss_percent: figures.loss_percent,
            cell: cell(figures),
        }
    }
}

/// Methods down, rates and losses across.
pub fn matrix(entries: &[Entry]) -> String {
    let mut columns: Vec<(f64, f64)> = entries
        .iter()
        .map(|entry| (entry.rate_per_s, entry.loss_percent))
        .collect();
    columns.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    columns.dedup();
    let names = columns
        .iter()
        .map(|(rate, loss)| format!("{rate}/s, {loss} %"));
    let header: Vec<String> = std::iter::once("method".to_owned()).chain(names).collect();
    let mut methods: Vec<&str> = Vec::new();
    for entry in entries {
        if !methods.contains(&entry.method) {
            methods.push(entry.method);
        }
    }
    let rows: Vec<Vec<String>> = methods
        .iter()
        .map(|method| {
            let of = |column: &(f64, f64)| {
                let found = entries.iter().find(|entry| {
                    entry.method == *method && (entry.rate_per_s, entry.loss_percent) == *column
                });
                found.map_or_else(|| "-".to_owned(), |entry| entry.cell.clone())
            };
            let cells = columns.iter().map(of);
            std::iter::once((*method).to_owned()).chain(cells).collect()
        })
        .collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    table(&header, &rows)
}

fn delay_cell(f: &Figures) -> String {
    let undelivered = match f.undelivered_percent {
        0.0 => String::new(),
        percent => format!(" ({percent:.1} % undelivered)"),
    };
    format!("{} / {}{undelivered}", short(f.mean_ms), short(f.p99_ms))
}

/// Three digits or so.
fn short(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.2}"),
        ms if ms < 1000.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

/// Cells whose figures this machine had a part in, or that are not what they should be.
fn doubts(results: &[CellResult]) -> String {
    let links = |result: &CellResult| [result.to_controller.clone(), result.to_switch.clone()];
    let late_us = |result: &CellResult| {
        let late = links(result).map(|link| link.late_mean_us);
        late.into_iter().fold(0.0, f64::max)
    };
    let mut text = String::new();
    let busy = |result: &&CellResult| late_us(result) > (result.rtt_ms * 125.0).max(20.0);
    let busy: Vec<&CellResult> = results.iter().filter(busy).collect();
    if let Some(worst) = busy.iter().max_by(|a, b| late_us(a).total_cmp(&late_us(b))) {
        text += &format!(
            "Note: this machine was busy: in {} of {} cells the link delivered late by more than a \
             quarter of its delay, {:.0} us on average in the worst ({}, {}).\n",
            busy.len(),
            results.len(),
            late_us(worst),
            worst.method,
            condition(worst)
        );
    }
    for result in results {
        let mut doubt = |what: String| {
            let (method, seed) = (result.method, result.seed);
            text += &format!(
                "Note: {method}, {}, seed {seed}: {what}\n",
                condition(result)
            );
        };
        let dropped: u64 = links(result).iter().map(|link| link.dropped).sum();
        if dropped > 0 {
            doubt(format!(
                "{dropped} frames were lost to this machine, besides those of the link"
            ));
        }
        if result.wrong > 0 {
            doubt(format!(
                "{} messages arrived twice or were not ours",
                result.wrong
            ));
        }
        if let Some(broken) = result.broken.as_ref().filter(|_| result.undelivered > 0) {
            doubt(format!("a connection broke: {broken}"));
        }
    }
    text
}

fn failed(failures: &[CellFailure]) -> String {
    failures
        .iter()
        .map(|f| {
            format!(
                "No figures: {}, {}, seed {}: {}\n",
                f.method, f.condition, f.seed, f.problem
            )
        })
        .collect()
}

fn group(result: &CellResult) -> Group {
    let sizes: Vec<String> = result.sizes_bytes.iter().map(usize::to_string).collect();
    let rtt = super::grid::Rtt {
        ms: result.rtt_ms,
        deviation_ms: result.rtt_deviation_ms,
    };
    let bursts = Bursts {
        frames: result.burst_frames,
        loss_percent: result.burst_loss_percent,
    };
    Group {
        sizes: sizes.join("/"),
        rtt: rtt.to_string(),
        bursts: match bursts {
            Bursts::NONE => String::new(),
            bursts => format!(" in bursts of {bursts}"),
        },
        agents: result.agents,
    }
}

fn condition(result: &CellResult) -> String {
    let Group {
        sizes, rtt, bursts, ..
    } = group(result);
    let (rate, loss) = (result.rate_per_s, result.loss_percent);
    format!("{sizes} B, RTT {rtt} ms, {rate} msg/s, {loss} %{bursts}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::cell::tests::result;
    use crate::channel::method::METHODS;

    fn two_methods() -> Vec<CellResult> {
        let mut results = Vec::new();
        for (method, bytes, mean) in [("tcp", 88.0, 50.0), ("quic-2s", 105.0, 51.5)] {
            for (loss, seed) in [(0.0, 1), (0.0, 2), (5.0, 1)] {
                let mut result = result(method, loss, seed);
                result.overhead_bytes_per_message = bytes + seed as f64;
                result.delay_ms.mean = mean * (1.0 + loss);
                results.push(result);
            }
        }
        results
    }

    #[test]
    fn seeds_are_one_figure_with_an_interval() {
        let figures = Figures::of(&two_methods());
        assert_eq!(figures.len(), 4);
        assert_eq!(figures[0].overhead_bytes, 89.5);
        assert!(figures[0].overhead_ci95 > 0.0);
        assert_eq!(figures[1].overhead_ci95, 0.0);
    }

    #[test]
    fn tables_have_methods_down_and_conditions_across() {
        let mut results = two_methods();
        results[3].overtaken = 4;
        results[5].undelivered = results[5].messages / 2;
        let text = text(&results, &[]);
        let line = |word: &str, n: usize| {
            let mut lines = text.lines().filter(|line| line.trim().starts_with(word));
            lines
                .nth(n)
                .unwrap_or_else(|| panic!("{word}: {text}"))
                .to_owned()
        };
        for column in ["100/s, 0 %", "100/s, 5 %"] {
            assert!(line("method", 0).contains(column), "{text}");
        }
        assert!(line("tcp", 0).contains("50.0 / 60.0"), "{text}");
        assert!(line("tcp", 1).contains("89.5 [1.30]"), "{text}");
        assert!(
            line("quic-2s", 0).contains("(50.0 % undelivered)"),
            "{text}"
        );
        // tcp overtakes nothing, so it is not in the table of order.
        let order = text.split("overtaken").nth(1).unwrap();
        assert!(
            order.contains("quic-2s") && !order.contains("tcp"),
            "{text}"
        );
    }

    #[test]
    fn what_the_machine_did_is_said() {
        let mut results = two_methods();
        assert_eq!(doubts(&results), "");
        results[0].to_switch.late_mean_us = 90_000.0;
        results[1].to_switch.dropped = 3;
        results[2].wrong = 1;
        let said = doubts(&results);
        for word in ["in 1 of 6 cells", "3 frames were lost", "arrived twice"] {
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn many_lines_are_several_plots_that_share_the_first_line() {
        let line = |name: &str| Series {
            name: name.to_owned(),
            ..Series::default()
        };
        let names: Vec<&str> = METHODS.iter().map(|method| method.name).collect();
        let lines: Vec<Series> = names.iter().map(|name| line(name)).collect();
        let plots = readable(&lines);
        // The known ones, and seven at a time of the others.
        let others = names.len() - KNOWN.len();
        assert_eq!(plots.len(), 1 + others.div_ceil(LINES_MAX - 1));
        assert!(
            plots
                .iter()
                .all(|plot| plot.len() <= LINES_MAX && plot[0].name == "tcp")
        );
        let shown: usize = plots.iter().map(|plot| plot.len() - 1).sum();
        assert_eq!(shown, names.len() - 1);
        assert_eq!(readable(&lines[..3]).len(), 1);
        assert!(readable(&[]).is_empty());
    }

    #[test]
    fn lines_go_through_points_in_order_and_need_two() {
        let figures = Figures::of(&two_methods());
        let lines = series(figures.iter().rev(), |f| (f.loss_percent, f.mean_ms, 0.0));
        assert_eq!(
            lines[0].points.iter().map(|p| p.0).collect::<Vec<_>>(),
            [0.0, 5.0]
        );
        assert_eq!(lines[0].error, None);
        assert!(series(figures[..1].iter(), |f| (f.loss_percent, f.mean_ms, 0.0)).is_empty());
    }
}
