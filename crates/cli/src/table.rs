//! Tables for people: columns of words and numbers.

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
