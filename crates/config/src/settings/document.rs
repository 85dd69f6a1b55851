//! The place in a file of settings that a mistake is about.

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::fields::{Value, place_of};

/// A file of settings; empty if it is not TOML.
pub struct Document<'a> {
    text: &'a str,
    file: &'a Path,
    root: DeTable<'a>,
}

impl<'a> Document<'a> {
    pub fn new(text: &'a str, file: &'a Path) -> Document<'a> {
        let root = DeTable::parse(text).map(Spanned::into_inner);
        Document {
            text,
            file,
            root: root.unwrap_or_default(),
        }
    }

    /// Adds a place to a mistake of settings that do not fit each other: that of the first setting
    /// that it names and the file has. A setting from an option has no place in the file.
    pub fn placed(&self, mistake: &str) -> String {
        let file = format!("{}:", self.file.display());
        if let Some(rest) = mistake.strip_prefix(&file) {
            return self
                .with_column(rest)
                .map_or(mistake.to_owned(), |rest| file + &rest);
        }
        match names(mistake).find_map(|name| key_at(&self.root, name)) {
            Some(at) => format!("{}: {mistake}", self.place(&at)),
            None => mistake.to_owned(),
        }
    }

    /// Adds a column to a mistake with only a line: the column at which that line begins.
    fn with_column(&self, mistake: &str) -> Option<String> {
        let (number, said) = mistake.split_once(": ")?;
        let line = self
            .text
            .lines()
            .nth(number.parse::<usize>().ok()?.checked_sub(1)?)?;
        let column = 1 + line.chars().take_while(|c| c.is_whitespace()).count();
        Some(format!("{number}:{column}: {said}"))
    }

    /// The path of a file that a setting names.
    pub fn path(&self, text: impl AsRef<Path>) -> PathBuf {
        let dir = self.file.parent().unwrap_or(Path::new(""));
        dir.join(text)
    }

    fn place(&self, at: &Range<usize>) -> String {
        format!("{}:{}", self.file.display(), place_of(self.text, at))
    }

    /// The place of the text of `setting` for which `is` holds, after the first `skipped` such
    /// texts.
    pub fn place_of_text(
        &self,
        setting: &str,
        skipped: usize,
        is: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let mut values = Vec::new();
        add_values(&self.root, setting, &mut values);
        let mut found = values
            .into_iter()
            .filter(|value| value.get_ref().as_str().is_some_and(&is));
        Some(self.place(&found.nth(skipped)?.span()))
    }
}

/// The words in a mistake that may name settings.
pub fn names(mistake: &str) -> impl Iterator<Item = &str> {
    mistake.split(|c: char| !(c.is_alphanumeric() || "_.".contains(c)))
}

/// The place of a setting in a document, named as `table.key`.
fn key_at(table: &DeTable<'_>, name: &str) -> Option<Range<usize>> {
    let (first, rest) = name.split_once('.').unwrap_or((name, ""));
    let (key, value) = table.get_key_value(first)?;
    if rest.is_empty() {
        return Some(key.span());
    }
    match value.get_ref() {
        DeValue::Table(table) => key_at(table, rest),
        DeValue::Array(all) => {
            let tables = all.iter().filter_map(|one| one.get_ref().as_table());
            tables.filter_map(|table| key_at(table, rest)).next()
        }
        _ => None,
    }
}

/// Adds the values of a setting, named as `table.key`, or the items of its list. `api` may be a
/// value in place of a table.
fn add_values<'t, 'v>(table: &'t DeTable<'v>, name: &str, values: &mut Vec<&'t Value<'v>>) {
    let (first, rest) = name.split_once('.').unwrap_or((name, ""));
    let Some(value) = table.get(first) else {
        return;
    };
    match value.get_ref() {
        DeValue::Table(table) => add_values(table, rest, values),
        DeValue::Array(all) => values.extend(all.iter()),
        _ => values.push(value),
    }
}
