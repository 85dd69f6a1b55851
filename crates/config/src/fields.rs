//! Reads a TOML file and reports all mistakes in it at once, each with its line, its field and a
//! correction.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};

use serde_json::{Value as Json, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::record::Record;

mod syntax;

/// Gathers problems while a document is read.
pub struct Fields<'a> {
    text: &'a str,
    /// The ends of the text's lines.
    newlines: Vec<usize>,
    problems: Vec<Problem>,
    /// Doubts, each with its place in the text.
    doubts: Vec<(usize, String)>,
    /// The keys that are asked for, if a record was started.
    record: Option<Record>,
    /// The keys outside of sections.
    outside: Vec<String>,
}

/// A mistake, with its place in the text.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Problem {
    at: usize,
    text: String,
    kind: Kind,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// The text is not TOML here.
    Syntax,
    /// A key or a section is present twice.
    Twice,
    /// One key or value is wrong, whatever else the file has.
    Value,
    /// A key is not known in its section.
    Unknown(String),
    /// A key is not known, and `meant` is the likely key.
    Meant { name: String, meant: String },
    /// A key or value is wrong together with others, or lacks them.
    Other,
}

/// The settings that lack some or all of their values because of mistakes in them.
#[derive(Debug, Default)]
pub struct Mistaken(BTreeSet<String>);

impl Mistaken {
    /// Whether the setting `path`, or one below it, may have been meant to have a value.
    pub fn has(&self, path: &str) -> bool {
        let is_below = |one: &String| {
            let rest = one.strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.0.iter().any(is_below)
    }
}

/// Returns the line and the column of a range in a text, as `LINE:COLUMN`.
pub fn place_of(text: &str, at: &Range<usize>) -> String {
    let before = text.get(..at.start).unwrap_or(text);
    let line = 1 + before.bytes().filter(|byte| *byte == b'\n').count();
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    format!("{line}:{}", 1 + before[start..].chars().count())
}

/// Problems without the columns that follow their lines.
#[cfg(test)]
pub fn without_columns(problems: Vec<String>) -> Vec<String> {
    let bare = |problem: String| {
        let Some((place, text)) = problem.split_once(": ") else {
            return problem;
        };
        let (place, _) = place.rsplit_once(':').unwrap_or((place, ""));
        format!("{place}: {text}")
    };
    problems.into_iter().map(bare).collect()
}

/// Returns the name in `known` that the writer of `name` probably meant, if one is near enough.
pub fn meant<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let name = &*name.to_lowercase();
    let near = known.iter().map(|known| (distance(name, known), *known));
    let near = near.filter(|(distance, known)| {
        let len = known.len().min(name.len());
        *distance <= len.div_ceil(3) && *distance < len
    });
    near.min().map(|(_, known)| known)
}

/// Returns the names near `name`, the nearest first. At least half of their letters are the same.
pub fn nearest<'k>(name: &str, known: &[&'k str], count: usize) -> Vec<&'k str> {
    let name = &*name.to_lowercase();
    let far = |known: &str| distance(name, known) * 2 > name.len().min(known.len());
    let mut all: Vec<&str> = known.iter().copied().filter(|known| !far(known)).collect();
    all.sort_by_key(|known| distance(name, known));
    all.truncate(count);
    all
}

/// Counts the changes between two names; at most one if one name begins with the other.
fn distance(name: &str, known: &str) -> usize {
    let is_part = name.len() > 2 && (known.starts_with(name) || name.starts_with(known));
    let distance = strsim::osa_distance(name, known);
    if is_part { distance.min(1) } else { distance }
}

/// A value, with its place in the text.
pub type Value<'v> = Spanned<DeValue<'v>>;

/// Returns the values of a list, or the single value in its place.
pub fn items<'t, 'v>(table: &'t DeTable<'v>, key: &str) -> Vec<&'t Value<'v>> {
    let Some(value) = table.get(key) else {
        return Vec::new();
    };
    match value.get_ref().as_array() {
        Some(array) => array.iter().collect(),
        None => vec![value],
    }
}

impl<'a> Fields<'a> {
    /// Parses `text`. Parts that do not parse become problems; the rest can be read.
    pub fn parse(text: &'a str) -> (Fields<'a>, DeTable<'a>) {
        let (table, errors) = DeTable::parse_recoverable(text);
        let bytes = text.bytes().enumerate();
        let newlines = bytes.filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at);
        let mut fields = Fields {
            text,
            newlines: newlines.collect(),
            problems: Vec::new(),
            doubts: Vec::new(),
            record: None,
            outside: Vec::new(),
        };
        let table = table.into_inner();
        let errors = errors.iter().map(|error| (error.span(), error.message()));
        let errors = errors.map(|(at, text)| (at.map_or(0, |at| at.start), text));
        fields.problems = syntax::problems(text, &table, errors.collect());
        (fields, table)
    }

    pub fn problem(&mut self, at: &Range<usize>, problem: impl Display) {
        self.push(at, problem, Kind::Other);
    }

    fn push(&mut self, at: &Range<usize>, problem: impl Display, kind: Kind) {
        self.problems.push(Problem {
            at: at.start,
            text: problem.to_string(),
            kind,
        });
    }

    /// Whether the text is TOML. Otherwise much of it may not have been read.
    pub fn is_toml(&self) -> bool {
        let is_broken = |problem: &Problem| matches!(problem.kind, Kind::Syntax | Kind::Twice);
        !self.problems.iter().any(is_broken)
    }

    /// Returns the settings of `root` with a mistake, and the settings that a misspelt key stands
    /// for.
    pub fn mistaken(&self, root: &DeTable<'_>) -> Mistaken {
        let mut starts = Vec::new();
        add_starts(root, "", &mut starts);
        starts.sort();
        let path_of = |problem: &Problem| {
            let behind = starts.partition_point(|(start, _)| *start <= problem.at);
            let (_, path) = starts.get(behind.checked_sub(1)?)?;
            let Kind::Meant { meant, .. } = &problem.kind else {
                return Some(path.clone());
            };
            let table = path.rsplit_once('.').map(|(table, _)| format!("{table}."));
            Some(table.unwrap_or_default() + meant)
        };
        Mistaken(self.problems.iter().filter_map(path_of).collect())
    }

    /// Notes a setting that is allowed and probably a mistake.
    pub fn doubt(&mut self, at: &Range<usize>, doubt: impl Display) {
        self.doubts.push((at.start, doubt.to_string()));
    }

    /// One line for each doubt, in the order of the file.
    pub fn doubts(&mut self, file: impl Display) -> Vec<String> {
        self.doubts.sort();
        let doubts = self.doubts.iter();
        let line = |(at, text): &(usize, String)| format!("{file}:{}: {text}", self.place(*at));
        doubts.map(line).collect()
    }

    /// The line and the column of a byte, as `LINE:COLUMN`.
    pub fn place(&self, at: usize) -> String {
        let line = self.line(&(at..at));
        let start = line
            .checked_sub(2)
            .and_then(|before| self.newlines.get(before));
        let start = start.map_or(0, |newline| newline + 1);
        let before = self.text.get(start..at);
        format!(
            "{line}:{}",
            1 + before.map_or(0, |text| text.chars().count())
        )
    }

    /// Returns the line of a range in the text.
    pub fn line(&self, at: &Range<usize>) -> usize {
        1 + self.newlines.partition_point(|newline| *newline < at.start)
    }

    /// Returns `Ok` if there was no problem, else one line for each problem, in the order of the
    /// file.
    pub fn finish(mut self, file: impl Display) -> Result<(), Vec<String>> {
        self.problems.sort();
        let certain = self.problems.iter().filter(|one| self.is_certain(one));
        let line = |one: &Problem| format!("{file}:{}: {}", self.place(one.at), one.text);
        let mut lines: Vec<String> = certain.map(line).collect();
        lines.dedup();
        match lines.is_empty() {
            true => Ok(()),
            false => Err(lines),
        }
    }

    /// Whether a problem stands on its own. It may merely follow from another problem: after a
    /// syntax error, keys belong to other sections, and a misspelt key is not missing.
    fn is_certain(&self, problem: &Problem) -> bool {
        let is_follower = match problem.kind {
            Kind::Syntax | Kind::Twice => false,
            Kind::Value | Kind::Unknown(_) | Kind::Meant { .. } => {
                self.problems.iter().any(|other| match other.kind {
                    Kind::Syntax => other.at <= problem.at,
                    Kind::Twice => {
                        self.line(&(other.at..other.at)) == self.line(&(problem.at..problem.at))
                    }
                    _ => false,
                })
            }
            Kind::Other => !self.is_toml() || self.is_misspelt(problem),
        };
        !is_follower
    }

    /// Whether the key that a problem reports missing is present later in the section, but
    /// misspelt.
    fn is_misspelt(&self, problem: &Problem) -> bool {
        let missing = problem.text.split_once(" is missing");
        let Some((missing, _)) = missing else {
            return false;
        };
        self.problems.iter().any(|other| {
            let section = self.text.get(problem.at + 1..other.at);
            let is_here = section.is_some_and(|section| !section.contains("\n["));
            is_here && matches!(&other.kind, Kind::Meant { meant, .. } if meant == missing)
        })
    }

    /// Starts to record the keys that are asked for.
    pub fn start_record(&mut self) {
        self.record = Some(Record::default());
    }

    /// Returns the recorded keys.
    pub fn take_record(&mut self) -> Record {
        self.record.take().unwrap_or_default()
    }

    fn note(&mut self, table: &DeTable<'_>, key: &str, schema: impl FnOnce() -> Json) {
        if let Some(record) = &mut self.record {
            record.note(table, key, schema());
        }
    }

    /// Adds a problem for every key of `table` that is not in `known`.
    pub fn only(&mut self, table: &DeTable<'_>, section: &str, known: &[&str]) {
        if let Some(record) = &mut self.record {
            record.enter(table, section, known);
        }
        if section.is_empty() {
            self.outside = known.iter().map(|key| (*key).to_owned()).collect();
        }
        for (key, value) in table.iter() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let place = if section.is_empty() {
                    "here".to_owned()
                } else {
                    format!("in [{section}]")
                };
                let all = known.join(", ");
                let problem = format!("'{name}' is not known {place}; known: {all}");
                let is_outside = !section.is_empty() && self.outside.iter().any(|key| key == name);
                match meant(name, known) {
                    None if is_outside && !value.get_ref().is_table() => self.push(
                        &key.span(),
                        format!("{problem}; write {name} above the first section"),
                        Kind::Value,
                    ),
                    Some(meant) => self.push(
                        &key.span(),
                        format!("{problem}; did you mean {meant}?"),
                        Kind::Meant {
                            name: name.to_owned(),
                            meant: meant.to_owned(),
                        },
                    ),
                    None => self.push(&key.span(), problem, Kind::Unknown(name.to_owned())),
                }
            }
        }
    }

    /// Adds to each unknown key the section that knows it, if only one does. `record` returns the
    /// keys of all sections, and is called only if there is an unknown key.
    pub fn show_places(&mut self, record: impl FnOnce() -> Record) {
        let is_unknown = |one: &Problem| matches!(one.kind, Kind::Unknown(_) | Kind::Meant { .. });
        if !self.problems.iter().any(is_unknown) {
            return;
        }
        let record = record();
        for problem in &mut self.problems {
            let (Kind::Unknown(name) | Kind::Meant { name, .. }) = &problem.kind else {
                continue;
            };
            if let Some(section) = record.only_section_of(name) {
                let text = problem.text.split("; did you mean").next();
                let text = text.unwrap_or_default();
                problem.text = format!("{text}; it belongs into {section}");
                problem.kind = Kind::Unknown(name.clone());
            }
        }
    }

    /// Returns a section. Several sections are a mistake, and then the first is returned.
    pub fn table<'t>(&mut self, table: &'t DeTable<'a>, key: &str) -> Option<&'t DeTable<'a>> {
        self.note(table, key, || json!({"type": "object"}));
        let value = table.get(key)?;
        let found = value.get_ref().as_table();
        if found.is_none() {
            self.wrong(value, key, "a section such as", &format!("[{key}]"));
        }
        found.or_else(|| first_table(value))
    }

    /// Returns the sections of one name, each as `[[key]]`. A section as `[key]` is a mistake, but
    /// is returned too.
    pub fn tables<'t>(&mut self, table: &'t DeTable<'a>, key: &str) -> Vec<&'t DeTable<'a>> {
        let located = self.tables_at(table, key);
        located.into_iter().map(|(_, found)| found).collect()
    }

    /// The same, each with where it is in the text.
    pub fn tables_at<'t>(
        &mut self,
        table: &'t DeTable<'a>,
        key: &str,
    ) -> Vec<(Range<usize>, &'t DeTable<'a>)> {
        self.note(
            table,
            key,
            || json!({"type": "array", "items": {"type": "object"}}),
        );
        let Some(value) = table.get(key) else {
            return Vec::new();
        };
        let Some(array) = value.get_ref().as_array() else {
            self.wrong(value, key, "sections such as", &format!("[[{key}]]"));
            let alone = value.get_ref().as_table();
            return alone
                .map(|alone| (value.span(), alone))
                .into_iter()
                .collect();
        };
        let mut found = Vec::new();
        for item in array.iter() {
            match item.get_ref().as_table() {
                Some(table) => found.push((item.span(), table)),
                None => self.wrong(item, key, "sections such as", &format!("[[{key}]]")),
            }
        }
        found
    }

    pub fn string(&mut self, table: &DeTable<'_>, key: &str, example: &str) -> Option<String> {
        self.note(table, key, || text_schema(example));
        let value = table.get(key)?;
        let found = value.get_ref().as_str();
        if found.is_none() {
            self.wrong(value, key, "a text such as", &format!("\"{example}\""));
        }
        found.map(str::to_owned)
    }

    pub fn bool(&mut self, table: &DeTable<'_>, key: &str) -> Option<bool> {
        self.note(table, key, || json!({"type": "boolean"}));
        let value = table.get(key)?;
        let found = value.get_ref().as_bool();
        if found.is_none() {
            self.wrong(value, key, "one of", "true, false");
        }
        found
    }

    /// A number, with a fraction or without.
    pub fn number(
        &mut self,
        table: &DeTable<'_>,
        key: &str,
        range: RangeInclusive<f64>,
    ) -> Option<f64> {
        let (min, max) = (*range.start(), *range.end());
        self.note(
            table,
            key,
            || json!({"type": "number", "minimum": min, "maximum": max}),
        );
        let value = table.get(key)?;
        let words = match value.get_ref() {
            DeValue::Integer(n) => n.as_str().to_owned(),
            DeValue::Float(n) => n.as_str().to_owned(),
            _ => String::new(),
        };
        let number = words.replace('_', "").parse().ok();
        let found = number.filter(|n| range.contains(n));
        if found.is_none() {
            let wanted = format!("{} to {}", range.start(), range.end());
            self.wrong(value, key, "a number from", &wanted);
        }
        found
    }

    pub fn integer(
        &mut self,
        table: &DeTable<'_>,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        self.note(table, key, || integer_schema(&range));
        let value = table.get(key)?;
        self.integer_of(value, key, &range)
    }

    /// The EtherType of a VLAN tag.
    pub fn tag(&mut self, table: &DeTable<'_>, key: &str) -> Option<u16> {
        self.note(table, key, || json!({"enum": [0x8100, 0x88a8]}));
        let value = table.get(key)?;
        let number = value.get_ref().as_integer();
        let number = number.and_then(|n| u16::from_str_radix(n.as_str(), n.radix()).ok());
        let found = number.filter(|tag| [0x8100, 0x88a8].contains(tag));
        if found.is_none() {
            self.wrong(value, key, "one of", "0x88a8, 0x8100");
        }
        found
    }

    /// Reads a list of numbers, or a single number.
    pub fn integers(
        &mut self,
        table: &DeTable<'_>,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Vec<u64> {
        self.note(table, key, || one_or_many(&integer_schema(&range)));
        let numbers = items(table, key).into_iter();
        numbers
            .filter_map(|item| self.integer_of(item, key, &range))
            .collect()
    }

    /// Reads a text that `parse` accepts.
    pub fn parsed<T, E: Display>(
        &mut self,
        table: &DeTable<'_>,
        key: &str,
        example: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        self.note(table, key, || text_schema(example));
        let value = table.get(key)?;
        self.parse_value(value, key, example, &parse)
    }

    /// Reads a list of texts that `parse` accepts, or a single text.
    pub fn list<T, E: Display>(
        &mut self,
        table: &DeTable<'_>,
        key: &str,
        example: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let located = self.list_at(table, key, example, parse);
        located.into_iter().map(|(_, found)| found).collect()
    }

    /// The same, each with where it is in the text.
    pub fn list_at<T, E: Display>(
        &mut self,
        table: &DeTable<'_>,
        key: &str,
        example: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<(Range<usize>, T)> {
        self.note(table, key, || one_or_many(&text_schema(example)));
        let mut found = Vec::new();
        for item in items(table, key) {
            let parsed = self.parse_value(item, key, example, &parse);
            found.extend(parsed.map(|parsed| (item.span(), parsed)));
        }
        found
    }

    /// A number that is the value of `key`, or one of its values.
    pub fn integer_of(
        &mut self,
        value: &Value<'_>,
        key: &str,
        range: &RangeInclusive<u64>,
    ) -> Option<u64> {
        let number = value.get_ref().as_integer();
        let found = number
            .and_then(|n| u64::from_str_radix(&n.as_str().replace('_', ""), n.radix()).ok())
            .filter(|n| range.contains(n));
        if found.is_none() {
            let wanted = format!("{} to {}", range.start(), range.end());
            self.wrong(value, key, "a number from", &wanted);
        }
        found
    }

    fn parse_value<T, E: Display>(
        &mut self,
        value: &Value<'_>,
        key: &str,
        example: &str,
        parse: &impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let Some(text) = value.get_ref().as_str() else {
            self.wrong(value, key, "a text such as", &format!("\"{example}\""));
            return None;
        };
        match parse(text) {
            Ok(parsed) => Some(parsed),
            Err(problem) => {
                self.push(&value.span(), format!("{key}: {problem}"), Kind::Value);
                None
            }
        }
    }

    /// Notes that the value of `key` is not of the wanted kind.
    pub fn wrong(&mut self, value: &Value<'_>, key: &str, wanted: &str, example: &str) {
        let found = &self.text[value.span()];
        let found: String = found
            .lines()
            .next()
            .unwrap_or("")
            .chars()
            .take(40)
            .collect();
        let problem = format!("{key} is {found}; it must be {wanted} {example}");
        self.push(&value.span(), problem, Kind::Value);
    }
}

/// The first section in a list of them.
fn first_table<'t, 'v>(value: &'t Value<'v>) -> Option<&'t DeTable<'v>> {
    let all = value.get_ref().as_array()?;
    all.iter().find_map(|item| item.get_ref().as_table())
}

/// Adds the start of each key and value, with its path from the root.
fn add_starts(table: &DeTable<'_>, within: &str, starts: &mut Vec<(usize, String)>) {
    for (key, value) in table.iter() {
        let path = format!("{within}{}", key.get_ref());
        starts.push((key.span().start, path.clone()));
        let below = format!("{path}.");
        match value.get_ref() {
            DeValue::Table(table) => add_starts(table, &below, starts),
            DeValue::Array(all) => {
                for item in all.iter() {
                    starts.push((item.span().start, path.clone()));
                    if let DeValue::Table(table) = item.get_ref() {
                        add_starts(table, &below, starts);
                    }
                }
            }
            _ => {}
        }
        starts.push((value.span().start, path));
    }
}

fn text_schema(example: &str) -> Json {
    json!({"type": "string", "examples": [example]})
}

fn integer_schema(range: &RangeInclusive<u64>) -> Json {
    json!({"type": "integer", "minimum": range.start(), "maximum": range.end()})
}

/// Returns the schema of a list, or of a single value.
fn one_or_many(one: &Json) -> Json {
    json!({"anyOf": [one, {"type": "array", "items": one}]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_has_its_line_and_its_column() {
        let text = "a = 1\n[t]\nb = [\"x\", \"\u{fc}\", 7]\n";
        let (mut fields, root) = Fields::parse(text);
        let table = fields.table(&root, "t").unwrap();
        let _ = fields.list(table, "b", "x", |text| Ok::<_, String>(text.to_owned()));
        fields.only(&root, "", &["t"]);
        let problems = fields.finish("f.toml").unwrap_err();
        assert_eq!(
            problems,
            [
                "f.toml:1:1: 'a' is not known here; known: t",
                "f.toml:3:16: b is 7; it must be a text such as \"x\"",
            ]
        );
        let bare = without_columns(problems);
        assert_eq!(bare[0], "f.toml:1: 'a' is not known here; known: t");
    }

    #[test]
    fn a_misspelt_key_has_the_likely_one_beside_it() {
        let known = ["listen", "lldp_interval_ms", "allow_dpid", "id"];
        for (wrong, right) in [
            ("lisen", Some("listen")),
            ("lldp_interval", Some("lldp_interval_ms")),
            ("alow_dpids", Some("allow_dpid")),
            ("ud", Some("id")),
            ("LISTEN", Some("listen")),
            ("threads", None),
            ("x", None),
        ] {
            assert_eq!(meant(wrong, &known), right, "{wrong}");
        }
    }
}
