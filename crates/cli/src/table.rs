//! Tables for people: columns of words and numbers.

/// Columns as wide as their widest cell. The first column and columns of words are left-aligned,
/// columns with a number right-aligned.
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

/// A table that is written column by column, each with its name and its cell in a row.
pub struct Columns<'a, R> {
    of: &'a [R],
    header: Vec<&'a str>,
    rows: Vec<Vec<String>>,
}

impl<'a, R> Columns<'a, R> {
    pub fn of(rows: &'a [R]) -> Columns<'a, R> {
        Columns {
            of: rows,
            header: Vec::new(),
            rows: rows.iter().map(|_| Vec::new()).collect(),
        }
    }

    /// Words, or a whole number.
    #[must_use]
    pub fn text<T: ToString>(mut self, name: &'a str, cell: impl Fn(&'a R) -> T) -> Self {
        self.header.push(name);
        for (row, of) in self.rows.iter_mut().zip(self.of) {
            row.push(cell(of).to_string());
        }
        self
    }

    /// A number with this many digits after the point.
    #[must_use]
    pub fn number(self, name: &'a str, digits: usize, cell: impl Fn(&'a R) -> f64) -> Self {
        self.text(name, |of| format!("{:.digits$}", cell(of)))
    }

    /// A number that may be missing.
    #[must_use]
    pub fn maybe(self, name: &'a str, digits: usize, cell: impl Fn(&'a R) -> Option<f64>) -> Self {
        let number = |of| cell(of).map(|number| format!("{number:.digits$}"));
        self.text(name, |of| number(of).unwrap_or_else(|| "-".to_owned()))
    }

    pub fn table(self) -> String {
        table(&self.header, &self.rows)
    }

    /// The same columns for a file, with nothing where a number is missing.
    pub fn csv(self) -> String {
        let mut text = self.header.join(",") + "\n";
        for row in &self.rows {
            let cells = row.iter().map(|cell| if cell == "-" { "" } else { cell });
            text += &(cells.collect::<Vec<_>>().join(",") + "\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_named_beside_their_cells() {
        let rows = [("h1", 1.25, Some(2.0)), ("h2", 10.0, None)];
        let text = Columns::of(&rows)
            .text("name", |row| row.0)
            .number("n", 1, |row| row.1)
            .maybe("of", 0, |row| row.2)
            .table();
        assert_eq!(
            text,
            "  name     n  of\n  h1     1.2   2\n  h2    10.0   -\n"
        );
        let file = Columns::of(&rows).text("name", |row| row.0);
        let file = file.number("n", 1, |row| row.1).maybe("of", 0, |row| row.2);
        assert_eq!(file.csv(), "name,n,of\nh1,1.2,2\nh2,10.0,\n");
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
