//! What every command that measures shares: the machine it ran on, quantiles, and tables.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// The machine that figures were taken on, as every published document names it.
#[derive(Debug, Serialize)]
pub struct Machine {
    pub kernel: String,
    pub cpu: String,
    pub cpu_count: usize,
    pub auster: String,
    pub open_vswitch: String,
}

impl Machine {
    pub fn here() -> Machine {
        let cpu_info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpu_info
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        Machine {
            kernel: version_line("uname", "-sr"),
            cpu: model
                .map_or("unknown", |m| m.trim_start_matches([' ', '\t', ':']))
                .to_string(),
            cpu_count: std::thread::available_parallelism().map_or(1, usize::from),
            auster: env!("CARGO_PKG_VERSION").to_string(),
            open_vswitch: version_line("ovs-vswitchd", "--version"),
        }
    }
}

/// The first line that a program says, or `unknown`. Some tell their version on standard error.
pub fn version_line(program: &str, argument: &str) -> String {
    let Ok(output) = Command::new(program).arg(argument).output() else {
        return "unknown".to_string();
    };
    let [out, err] =
        [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
    let line = out
        .lines()
        .chain(err.lines())
        .find(|line| !line.trim().is_empty());
    line.unwrap_or("unknown").trim().to_string()
}

/// Of answered packets only; all zero when there are none.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq)]
pub struct Quantiles {
    pub count: usize,
    pub min: f64,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Quantiles {
    /// Nearest rank, of values in milliseconds.
    pub fn of(mut values: Vec<f64>) -> Quantiles {
        values.sort_by(f64::total_cmp);
        let [Some(min), Some(max)] = [values.first(), values.last()] else {
            return Quantiles::default();
        };
        Quantiles {
            count: values.len(),
            min: *min,
            p50: nearest_rank(&values, 0.5),
            p99: nearest_rank(&values, 0.99),
            max: *max,
        }
    }
}

/// The least of the sorted values that a share `q` of them does not exceed. There must be one.
pub fn nearest_rank(sorted: &[f64], q: f64) -> f64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

pub fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The day (UTC) of a time since 1970, as `2026-11-22`. The calendar is counted from March, so that
/// the leap day is a year's last.
pub fn day(unix_s: u64) -> String {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    // Days since 0000-03-01.
    let days = unix_s / 86_400 + 719_468;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = match month {
        0..=9 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    let year = era * 400 + year + next_year;
    format!("{year:04}-{month:02}-{day_of_month:02}")
}

/// Columns as wide as their widest cell. The first one and those of words are left-aligned, those
/// that have a number in them right.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    let width = |column: usize| {
        let widest = cells(column).map(|cell| cell.chars().count()).max();
        widest.unwrap_or(0).max(header[column].chars().count())
    };
    let is_number = |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit());
    let columns: Vec<(usize, bool)> = (0..header.len())
        .map(|column| (width(column), column > 0 && cells(column).any(is_number)))
        .collect();
    let line = |cells: Vec<&str>| {
        let padded = cells
            .iter()
            .zip(&columns)
            .map(|(cell, &(width, is_right))| {
                if is_right {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            });
        let line: Vec<String> = padded.collect();
        format!("  {}\n", line.join("  ").trim_end())
    };
    let mut text = line(header.to_vec());
    for row in rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let q = Quantiles::of((1..=100).rev().map(f64::from).collect());
        assert_eq!(
            (q.count, q.min, q.p50, q.p99, q.max),
            (100, 1.0, 50.0, 99.0, 100.0)
        );
        assert_eq!(Quantiles::of(vec![7.0]).p99, 7.0);
        assert_eq!(Quantiles::of(vec![]), Quantiles::default());
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (unix_s, right) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_795_368_673, "2026-11-22"),
            (4_102_444_800, "2100-01-01"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(day(unix_s), right);
        }
    }

    #[test]
    fn a_table_lines_up_whatever_is_in_it() {
        let row = |cells: &[&str]| cells.iter().map(|c| c.to_string()).collect();
        let rows = [
            row(&["h1", "10", "tcp"]),
            row(&["edge1", "-", "quic"]),
            row(&["x"]),
        ];
        assert_eq!(
            table(&["name", "n", "by"], &rows),
            "  name    n  by\n  h1     10  tcp\n  edge1   -  quic\n  x\n"
        );
    }
}
