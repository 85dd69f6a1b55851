//! Reports of an import: mistakes, which prevent the output, and statements left out.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

/// The most lines of one kind. Further lines are counted.
const LINES_MAX: usize = 5_000;
/// The most characters of a key or value in a message.
const SHOWN_MAX: usize = 60;

/// A line of a file, which is given by its index in [`Report::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    pub file: usize,
    pub line: usize,
}

#[derive(Debug, Default)]
pub struct Report {
    /// The files, as messages name them.
    pub files: Vec<String>,
    mistakes: Lines,
    left_out: Lines,
    /// The statements left out, by reason.
    pub reasons: BTreeMap<&'static str, usize>,
}

#[derive(Debug, Default)]
struct Lines {
    first: Vec<(At, String)>,
    others: usize,
}

impl Lines {
    fn push(&mut self, at: At, text: String) {
        match self.first.len() < LINES_MAX {
            true => self.first.push((at, text)),
            false => self.others += 1,
        }
    }
}

impl Report {
    pub fn mistake(&mut self, at: At, problem: impl Display) {
        self.mistakes.push(at, problem.to_string());
    }

    /// Notes that the value of a key, with its whole `path`, is not carried over.
    pub fn left_out(&mut self, at: At, path: &str, reason: &'static str) {
        *self.reasons.entry(reason).or_default() += 1;
        self.left_out.push(at, format!("{path}: {reason}"));
    }

    /// The problem of a key that is stated twice.
    pub fn stated_already(&self, key: &str, before: At) -> String {
        let key = shown(key);
        format!("{key} is stated already, in {}", self.place(before))
    }

    pub fn place(&self, at: At) -> String {
        let file = self.files.get(at.file).map_or("", String::as_str);
        format!("{file}:{}", at.line)
    }

    pub fn is_good(&self) -> bool {
        self.mistakes.first.is_empty()
    }

    /// A line for each mistake, in the order of the files.
    pub fn mistakes(&self) -> Vec<String> {
        self.lines(&self.mistakes)
    }

    /// A line for each statement that is not carried over, in the order of the files.
    pub fn all_left_out(&self) -> Vec<String> {
        self.lines(&self.left_out)
    }

    fn lines(&self, lines: &Lines) -> Vec<String> {
        let mut sorted: Vec<&(At, String)> = lines.first.iter().collect();
        sorted.sort();
        sorted.dedup();
        let line = |(at, text): &(At, String)| format!("{}: {text}", self.place(*at));
        let mut all: Vec<String> = sorted.into_iter().map(line).collect();
        if lines.others > 0 {
            all.push(format!("and {} more", lines.others));
        }
        all
    }
}

/// A key or value from the file, cut to length, and on one line whatever it contains.
pub fn shown(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars().take(SHOWN_MAX) {
        match c {
            '"' | '\'' => shown.push(c),
            _ => drop(write!(shown, "{}", c.escape_debug())),
        }
    }
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    shown
}
