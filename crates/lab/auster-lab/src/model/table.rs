//! Tables with methods down and conditions across, and plots with few lines.

use cli::table::table;
use measure::distinct;
use report::plot::Series;

/// The number of lines that a plot can distinguish by colour and dash.
const LINES_MAX: usize = 8;
/// Methods in the first plot when one plot cannot show all.
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

/// A cell of a printed table.
pub struct Entry {
    pub method: &'static str,
    pub rate_per_s: f64,
    pub loss_percent: f64,
    pub cell: String,
}

/// Formats a table with methods down, and rates and losses across.
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
    let methods = distinct(entries.iter().map(|entry| entry.method));
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

/// Splits lines into sets that a reader can distinguish. The first set has the best known lines;
/// each other set repeats its first line for comparison.
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

#[cfg(test)]
mod tests {
    use super::*;
    use bench::channel::method::METHODS;

    #[test]
    fn many_lines_are_several_plots_that_share_the_first_line() {
        let line = |name: &str| Series {
            name: name.to_owned(),
            ..Series::default()
        };
        let names: Vec<&str> = METHODS.iter().map(|method| method.name).collect();
        let lines: Vec<Series> = names.iter().map(|name| line(name)).collect();
        let plots = readable(&lines);
        // One plot of the known methods, then the others seven at a time.
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
}
