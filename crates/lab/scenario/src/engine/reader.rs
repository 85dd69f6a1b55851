//! Reads TOML with the place of every value, so that one pass finds all mistakes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use cli::toml_problem;
use serde::Deserialize;
use serde_json::Value as Json;
use sim::link::LinkConfig;
use testbed::impairment::Impairment;
use testbed::plane::Controller;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::engine::json_schema::{self as json, Record};
use crate::engine::matrix::Axis;

/// The shell variable with the scenario's folder, for commands.
const HERE: &str = "HERE";

/// A mistake in a scenario and its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    pub line: usize,
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// The mistakes found so far. Cells of a matrix repeat a mistake; it is kept once.
pub struct Problems<'a> {
    text: &'a str,
    found: RefCell<BTreeSet<Problem>>,
    /// Records the keys that readers ask for. If set, there is no document.
    record: Option<&'a Record>,
}

impl<'a> Problems<'a> {
    pub fn new(text: &'a str) -> Problems<'a> {
        Problems {
            text,
            found: RefCell::default(),
            record: None,
        }
    }

    pub fn recording(record: &'a Record) -> Problems<'a> {
        Problems {
            record: Some(record),
            ..Problems::new("")
        }
    }

    fn add(&self, at: usize, text: String) {
        let line = self.line(at);
        self.found.borrow_mut().insert(Problem { line, text });
    }

    /// Takes back a mistake that follows from another one.
    fn retract(&self, at: usize, beginning: &str) {
        let line = self.line(at);
        let follows =
            |problem: &Problem| problem.line == line && problem.text.starts_with(beginning);
        self.found.borrow_mut().retain(|problem| !follows(problem));
    }

    fn line(&self, at: usize) -> usize {
        self.text[..at].matches('\n').count() + 1
    }

    pub fn is_empty(&self) -> bool {
        self.found.borrow().is_empty()
    }

    /// All mistakes in the order of their lines.
    pub fn into_list(self) -> Vec<Problem> {
        self.found.into_inner().into_iter().collect()
    }
}

/// A TOML value and the byte where it starts.
#[derive(Clone, Debug)]
pub struct Node {
    at: usize,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    Text(String),
    Number(f64),
    Truth(bool),
    List(Vec<Node>),
    Table(Vec<Entry>),
    Date,
}

#[derive(Clone, Debug)]
struct Entry {
    key: String,
    at: usize,
    node: Node,
}

impl Node {
    pub fn empty() -> Node {
        let value = Value::Table(Vec::new());
        Node { at: 0, value }
    }

    /// Reads a document. A mistake in the TOML itself is reported alone: the rest of the text means
    /// nothing.
    pub fn parse(text: &str) -> Result<Node, Problem> {
        let table = DeTable::parse(text).map_err(|e| {
            let before = e.span().map_or(0, |span| span.start);
            let words = toml_problem(text, &e);
            Problem {
                line: text[..before].matches('\n').count() + 1,
                text: words
                    .split_once(": ")
                    .map_or(words.clone(), |(_, rest)| rest.to_string()),
            }
        })?;
        let value = Value::Table(entries(table.get_ref()));
        Ok(Node { at: 0, value })
    }

    fn of(value: &Spanned<DeValue<'_>>) -> Node {
        let number = |text: &str| Value::Number(text.replace('_', "").parse().unwrap_or(f64::NAN));
        let own = match value.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(integer) => {
                let parsed = i64::from_str_radix(integer.as_str(), integer.radix());
                Value::Number(parsed.map_or(f64::NAN, |n| n as f64))
            }
            DeValue::Float(float) => number(float.as_str()),
            DeValue::Boolean(truth) => Value::Truth(*truth),
            DeValue::Array(list) => Value::List(list.iter().map(Node::of).collect()),
            DeValue::Table(table) => Value::Table(entries(table)),
            DeValue::Datetime(_) => Value::Date,
        };
        Node {
            at: value.span().start,
            value: own,
        }
    }

    /// The value as a command receives it.
    fn words(&self) -> String {
        match &self.value {
            Value::Text(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Truth(truth) => truth.to_string(),
            Value::List(_) | Value::Table(_) | Value::Date => self.kind().to_string(),
        }
    }

    /// The value as a cell's name shows it.
    fn name(&self) -> String {
        let words = self.words();
        let named = Controller::named_command(&words).map(|(name, _)| name.to_string());
        named.unwrap_or(words)
    }

    fn kind(&self) -> &'static str {
        match self.value {
            Value::Text(_) => "a string",
            Value::Number(_) => "a number",
            Value::Truth(_) => "true or false",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
            Value::Date => "a date",
        }
    }
}

/// Entries in the order of the file.
fn entries(table: &DeTable<'_>) -> Vec<Entry> {
    let entries = table.iter().map(|(key, node)| Entry {
        key: key.get_ref().to_string(),
        at: key.span().start,
        node: Node::of(node),
    });
    let mut entries: Vec<Entry> = entries.collect();
    entries.sort_by_key(|entry| entry.at);
    entries
}

/// One value of an axis of the matrix: a plain one, or a named table of several.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The value, or the table's name.
    pub words: String,
    pub is_named: bool,
    /// The values for `$names`.
    fields: Vec<(String, Node)>,
}

impl Choice {
    /// The `$names` that a scenario must use for the choice to make a difference.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let fields = self.fields.iter().map(|(name, _)| name.as_str());
        fields.skip(usize::from(self.is_named))
    }
}

/// The values that one cell of the matrix gives to `$names`.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    choices: Vec<(String, Choice)>,
    /// The length of the measurement, as `$seconds`.
    seconds: Option<(String, Node)>,
    /// The folder of the scenario.
    here: PathBuf,
    used: RefCell<BTreeSet<String>>,
}

impl Parameters {
    /// Takes the cell's choice for each axis, the folder of the scenario, and the length of the
    /// measurement in seconds.
    pub fn new(choices: Vec<(String, Choice)>, here: PathBuf, seconds: Option<f64>) -> Parameters {
        let node = |seconds| Node {
            at: 0,
            value: Value::Text(format!("{seconds}s")),
        };
        Parameters {
            choices,
            seconds: seconds.map(|seconds| (SECONDS.to_string(), node(seconds))),
            here,
            used: RefCell::default(),
        }
    }

    /// The cell's value on each axis, as its rows show it.
    pub fn axes(&self) -> impl Iterator<Item = (&str, &str)> {
        let choices = self.choices.iter();
        choices.map(|(axis, choice)| (axis.as_str(), choice.words.as_str()))
    }

    /// The cell's name: `planned, rate_mbps=5`.
    pub fn name(&self) -> String {
        name(&self.choices)
    }

    pub fn is_used(&self, name: &str) -> bool {
        self.used.borrow().contains(name)
    }

    /// The values of the `$names` in a command, for its shell.
    pub fn variables(&self, words: &str) -> Vec<(String, String)> {
        let here = (HERE.to_string(), self.here.display().to_string());
        let fields = self.fields();
        let fields = fields.map(|(name, node)| (name.clone(), node.words()));
        let all = fields.chain([here]);
        let named: Vec<_> = all.filter(|(name, _)| names(words, name)).collect();
        let used = named.iter().map(|(name, _)| name.clone());
        self.used.borrow_mut().extend(used);
        named
    }

    /// The length of the measurement.
    pub fn seconds(&self) -> Option<f64> {
        let (name, node) = self.seconds.as_ref()?;
        self.used.borrow_mut().insert(name.clone());
        let Value::Text(text) = &node.value else {
            return None;
        };
        text.strip_suffix('s')?.parse().ok()
    }

    fn fields(&self) -> impl Iterator<Item = &(String, Node)> {
        let choices = self.choices.iter().flat_map(|(_, choice)| &choice.fields);
        choices.chain(&self.seconds)
    }

    fn get(&self, name: &str) -> Option<&Node> {
        let (_, node) = self.fields().find(|(known, _)| known == name)?;
        self.used.borrow_mut().insert(name.to_string());
        Some(node)
    }
}

const MISSING: &str = "missing";

/// The name of the value that `--seconds` overrides.
pub const SECONDS: &str = "seconds";

/// The name of a cell, from its choices so far.
pub fn name(choices: &[(String, Choice)]) -> String {
    let words = choices.iter().map(|(axis, choice)| match choice {
        named if named.is_named => named.words.clone(),
        plain => format!("{axis}={}", plain.words),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// A table of the scenario. Each read marks its key as known; [`Section::finish`] reports the rest.
pub struct Section<'a> {
    path: String,
    at: usize,
    entries: &'a [Entry],
    parameters: &'a Parameters,
    problems: &'a Problems<'a>,
    known: RefCell<Vec<&'a str>>,
}

impl<'a> Section<'a> {
    pub fn new(root: &'a Node, parameters: &'a Parameters, problems: &'a Problems<'a>) -> Self {
        let entries = match &root.value {
            Value::Table(entries) => entries.as_slice(),
            _ => &[],
        };
        Section {
            path: String::new(),
            at: root.at,
            entries,
            parameters,
            problems,
            known: RefCell::default(),
        }
    }

    /// Reports a mistake in a field, or in the section where the field is missing.
    pub fn problem(&self, key: &str, text: impl fmt::Display) {
        let at = self.entry(key).map_or(self.at, |entry| entry.at);
        self.problems
            .add(at, format!("{}: {text}", self.field(key)));
    }

    fn field(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_string(),
            path => format!("{path}.{key}"),
        }
    }

    fn entry(&self, key: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| self.key(entry) == key)
    }

    /// The key of an entry. A key such as `"$verb"` stands for the cell's word.
    fn key(&self, entry: &'a Entry) -> &'a str {
        let name = entry.key.strip_prefix('$');
        match name.and_then(|name| self.parameters.get(name)) {
            Some(Node {
                value: Value::Text(word),
                ..
            }) => word,
            _ => &entry.key,
        }
    }

    /// The value of a key, with a `$name` replaced by the cell's value. A recording stores the
    /// key's schema.
    fn node(&self, key: &'a str, schema: impl FnOnce() -> Json) -> Option<&'a Node> {
        self.known.borrow_mut().push(key);
        self.note(key, schema);
        self.replaced(key, &self.entry(key)?.node)
    }

    fn note(&self, key: &str, schema: impl FnOnce() -> Json) {
        if let Some(record) = self.problems.record {
            record.note(&self.path, key, schema());
        }
    }

    /// A value that fits, if this is a recording.
    fn recorded<T>(&self, value: T) -> Option<T> {
        self.problems.record.map(|_| value)
    }

    fn replaced(&self, key: &str, node: &'a Node) -> Option<&'a Node> {
        match &node.value {
            Value::Text(text) if text.starts_with('$') => {
                let found = self.parameters.get(&text[1..]);
                if found.is_none() {
                    let names = self.parameters.fields().map(|(name, _)| name.as_str());
                    let right = suggestion(&text[1..], names);
                    self.problem(key, format!("[matrix] has no {}; {right}", &text[1..]));
                }
                found
            }
            _ => Some(node),
        }
    }

    /// A value for serde, with each `$name` in it replaced.
    fn toml(&self, key: &str, node: &'a Node) -> toml::Value {
        let Some(node) = self.replaced(key, node) else {
            return 0.into();
        };
        match &node.value {
            Value::Text(text) => text.clone().into(),
            Value::Number(n) if n.fract() == 0.0 => (*n as i64).into(),
            Value::Number(n) => (*n).into(),
            Value::Truth(truth) => (*truth).into(),
            Value::List(list) => {
                let items = list.iter().map(|item| self.toml(key, item));
                items.collect::<Vec<_>>().into()
            }
            Value::Table(entries) => {
                let entries = entries.iter();
                let entries = entries.map(|e| (e.key.clone(), self.toml(key, &e.node)));
                toml::Value::Table(entries.collect())
            }
            Value::Date => "date".into(),
        }
    }

    /// Reports a value of the wrong kind, and returns none.
    fn wrong<T>(&self, key: &str, wanted: &str, node: &Node) -> Option<T> {
        self.refuse(key, format!("{} is not {wanted}", shown(node)))
    }

    /// Reports a mistake that leaves no value to continue with.
    pub fn refuse<T>(&self, key: &str, text: impl fmt::Display) -> Option<T> {
        self.problem(key, text);
        None
    }

    /// The result of a check; `None` after its problem was reported.
    pub fn checked<T>(&self, key: &str, found: Result<T, impl fmt::Display>) -> Option<T> {
        found.map_err(|problem| self.problem(key, problem)).ok()
    }

    /// The values of this cell of the matrix.
    pub fn parameters(&self) -> &'a Parameters {
        self.parameters
    }

    /// Marks a key that is read elsewhere as known.
    pub fn know(&self, key: &'a str) {
        self.known.borrow_mut().push(key);
        self.note(key, json::any);
    }

    pub fn has(&self, key: &str) -> bool {
        match self.problems.record {
            Some(record) => record.has(&self.path, key),
            None => self.entry(key).is_some(),
        }
    }

    /// Reports a required key if it is missing.
    pub fn missing(&self, key: &str, example: &str) {
        if let Some(record) = self.problems.record {
            record.require(&self.path, key);
        }
        // A `$name` that the matrix lacks is already reported.
        if self.entry(key).is_none() {
            self.problem(key, format!("{MISSING}; write such as {key} = {example}"));
        }
    }

    pub fn text(&self, key: &'a str) -> Option<String> {
        let node = self.node(key, json::text)?;
        match &node.value {
            Value::Text(text) => Some(text.clone()),
            _ => self.wrong(key, "a string", node),
        }
    }

    pub fn required_text(&self, key: &'a str, example: &str) -> Option<String> {
        let text = self.text(key);
        self.missing(key, example);
        text.or_else(|| self.recorded(example.trim_matches('"').to_string()))
    }

    /// One of a few words.
    pub fn word(&self, key: &'a str, words: &[&'static str]) -> Option<&'static str> {
        if let Some(record) = self.problems.record {
            return Some(record.word(&self.path, key, words));
        }
        let text = self.text(key)?;
        let found = words.iter().find(|word| **word == text);
        if found.is_none() {
            let right = suggestion(&text, words.iter().copied());
            self.problem(key, format!("'{text}' is unknown; {right}"));
        }
        found.copied()
    }

    /// One of a few words; the key is required.
    pub fn required_word(&self, key: &'a str, words: &[&'static str]) -> Option<&'static str> {
        let word = self.word(key, words);
        self.missing(key, &format!("\"{}\"", words[0]));
        word
    }

    pub fn truth(&self, key: &'a str) -> Option<bool> {
        let node = self.node(key, json::truth)?;
        match node.value {
            Value::Truth(truth) => Some(truth),
            _ => self.wrong(key, "true or false", node),
        }
    }

    pub fn count(&self, key: &'a str, range: RangeInclusive<u64>) -> Option<u64> {
        let (least, most) = (*range.start(), *range.end());
        let Some(node) = self.node(key, || json::count(least, most)) else {
            return self.recorded(least.max(1));
        };
        match node.value {
            Value::Number(n) if n.fract() == 0.0 && (least as f64..=most as f64).contains(&n) => {
                Some(n as u64)
            }
            _ => self.wrong(key, &format!("a whole number from {least} to {most}"), node),
        }
    }

    /// A number, with or without a fraction.
    pub fn number(&self, key: &'a str, range: Range<f64>) -> Option<f64> {
        let Some(node) = self.node(key, || json::number(&range)) else {
            return self.recorded(range.start);
        };
        match node.value {
            Value::Number(n) if range.contains(&n) => Some(n),
            _ => {
                let limits = format!("from {} to below {}", range.start, range.end);
                self.wrong(key, &format!("a number {limits}"), node)
            }
        }
    }

    pub fn required_number(&self, key: &'a str, range: Range<f64>) -> Option<f64> {
        self.missing(key, "100");
        self.number(key, range)
    }

    /// A string or a number in the notation of the wanted type.
    pub fn parsed<T: FromStr<Err = String>>(&self, key: &'a str) -> Option<T> {
        let node = self.node(key, json::text_or_number)?;
        self.checked(key, node.words().parse())
    }

    pub fn required_parsed<T>(&self, key: &'a str, example: &str) -> Option<T>
    where
        T: FromStr<Err = String>,
    {
        self.missing(key, example);
        let parsed = self.parsed(key);
        parsed.or_else(|| self.recorded(example)?.trim_matches('"').parse().ok())
    }

    pub fn required_count(&self, key: &'a str, range: RangeInclusive<u64>) -> Option<u64> {
        self.missing(key, "100");
        self.count(key, range)
    }

    /// A time with its unit.
    pub fn duration(&self, key: &'a str, range: RangeInclusive<Duration>) -> Option<Duration> {
        let Some(node) = self.node(key, || json::time(&range)) else {
            return self.recorded(*range.start());
        };
        let Value::Text(text) = &node.value else {
            let unit = "a time with its unit, such as \"250ms\" or \"3s\"";
            return self.wrong(key, unit, node);
        };
        let Some(duration) = duration(text) else {
            let unit = "write a number and us, ms, s or min, such as \"250ms\"";
            self.problem(key, format!("'{text}' is not a time; {unit}"));
            return None;
        };
        if !range.contains(&duration) {
            let limits = format!("{:?} to {:?}", range.start(), range.end());
            return self.refuse(key, format!("'{text}' is outside {limits}"));
        }
        Some(duration)
    }

    pub fn required_duration(
        &self,
        key: &'a str,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let duration = self.duration(key, range);
        self.missing(key, "\"250ms\"");
        duration
    }

    /// The minimum and maximum of a time.
    pub fn required_durations(
        &self,
        key: &'a str,
        limits: RangeInclusive<Duration>,
    ) -> Option<RangeInclusive<Duration>> {
        self.missing(key, "[\"100ms\", \"1s\"]");
        self.note(key, || json::in_cells(json::list(json::time(&limits))));
        let texts = self.texts(key)?;
        let times: Option<Vec<Duration>> = texts.iter().map(|text| duration(text)).collect();
        let Some([least, most]) = times.as_deref() else {
            let example = "write the least and the most, such as [\"100ms\", \"1s\"]";
            self.problem(key, format!("{texts:?} is not two times; {example}"));
            return None;
        };
        if least > most || !limits.contains(least) || !limits.contains(most) {
            let limits = format!("rise within {:?} to {:?}", limits.start(), limits.end());
            return self.refuse(key, format!("{texts:?} does not {limits}"));
        }
        Some(*least..=*most)
    }

    /// A time, or the minimum and maximum of a random time.
    pub fn required_time(
        &self,
        key: &'a str,
        limits: RangeInclusive<Duration>,
    ) -> Option<RangeInclusive<Duration>> {
        let time = || json::time(&limits);
        let either = || json::either([time(), json::in_cells(json::list(time()))]);
        match self.node(key, either).map(|node| &node.value) {
            Some(Value::List(_)) => self.required_durations(key, limits),
            _ => self.required_duration(key, limits).map(|time| time..=time),
        }
    }

    /// A list of strings, or one string.
    pub fn one_or_more(&self, key: &'a str) -> Option<Vec<String>> {
        let either = || json::either([json::text(), json::list(json::text())]);
        match self.node(key, either)?.value {
            Value::List(_) => self.texts(key),
            _ => self.text(key).map(|text| vec![text]),
        }
    }

    /// A list of strings.
    pub fn texts(&self, key: &'a str) -> Option<Vec<String>> {
        let node = self.node(key, || json::in_cells(json::list(json::text())))?;
        let text = |item: &Node| match &item.value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        };
        let texts = match &node.value {
            Value::List(list) => list.iter().map(text).collect(),
            _ => None,
        };
        texts.or_else(|| self.wrong(key, "a list of strings", node))
    }

    /// The impairment of a link; none if the key is missing.
    pub fn impairment(&self, key: &'a str) -> LinkConfig {
        let Some(node) = self.node(key, json::impairment) else {
            return LinkConfig::default();
        };
        let read = Impairment::deserialize(self.toml(key, node))
            .map_err(|e| unknown_field(e.message()))
            .and_then(|impairment| impairment.config());
        read.unwrap_or_else(|problem| {
            self.problem(key, problem);
            LinkConfig::default()
        })
    }

    /// A table whose keys belong to another program; empty if the key is missing.
    pub fn table(&self, key: &'a str) -> toml::Table {
        let table = |node| match self.toml(key, node) {
            toml::Value::Table(table) => Some(table),
            _ => self.wrong(key, "a table", node),
        };
        self.node(key, json::table)
            .and_then(table)
            .unwrap_or_default()
    }

    /// A list of plain values, as cells' names show them.
    pub fn words(&self, key: &'a str) -> Option<Vec<String>> {
        let node = self.node(key, || json::in_cells(json::list(json::any())))?;
        match &node.value {
            Value::List(list) => Some(list.iter().map(Node::name).collect()),
            _ => self.wrong(key, "a list of values, such as [1, 2]", node),
        }
    }

    fn inner(&self, key: &str, node: &'a Node) -> Option<Section<'a>> {
        let Value::Table(entries) = &node.value else {
            return self.wrong(key, "a table", node);
        };
        Some(self.within(key, node.at, entries))
    }

    fn within(&self, key: &str, at: usize, entries: &'a [Entry]) -> Section<'a> {
        Section {
            path: self.field(key),
            at,
            entries,
            parameters: self.parameters,
            problems: self.problems,
            known: RefCell::default(),
        }
    }

    pub fn section(&self, key: &'a str) -> Option<Section<'a>> {
        let Some(node) = self.node(key, json::section) else {
            let record = self.problems.record?;
            let is_read = record.is_read(&self.path, key);
            return is_read.then(|| self.within(key, 0, &[]));
        };
        self.inner(key, node)
    }

    /// A table that an axis of the matrix may give.
    pub fn section_of_cell(&self, key: &'a str) -> Option<Section<'a>> {
        self.note(key, || json::in_cells(json::section()));
        self.section(key)
    }

    /// The tables written as `[[key]]`.
    pub fn sections(&self, key: &'a str) -> Vec<Section<'a>> {
        let Some(node) = self.node(key, || json::list(json::section())) else {
            return self
                .recorded(self.within(key, 0, &[]))
                .into_iter()
                .collect();
        };
        let Value::List(list) = &node.value else {
            self.problem(key, format!("write [[{key}]], once for each"));
            return Vec::new();
        };
        list.iter()
            .filter_map(|item| self.inner(key, item))
            .collect()
    }

    /// Each key with its list of values, for the axes of the matrix. A table has a list for each
    /// pattern of cells.
    pub fn axes(&self) -> Vec<(String, Axis<Choice>)> {
        let lists = || json::either([json::list(json::any()), json::table()]);
        self.note(json::ANY_KEY, lists);
        let mut axes: Vec<(String, Axis<Choice>)> = Vec::new();
        for entry in self.entries {
            let key = &entry.key;
            let list = |node: &'a Node| -> Vec<Choice> {
                let choices = match &node.value {
                    Value::List(list) => list.iter().filter_map(|node| self.choice(key, node)),
                    _ => return Vec::new(),
                };
                choices.collect()
            };
            let axis: Axis<Choice> = match &entry.node.value {
                Value::Table(lists) => {
                    self.know(key);
                    let lists = lists.iter();
                    lists.map(|e| (e.key.clone(), list(&e.node))).collect()
                }
                _ => vec![("*".to_string(), self.choices(key))],
            };
            if axis.is_empty() || axis.iter().any(|(_, choices)| choices.is_empty()) {
                if matches!(entry.node.value, Value::Table(_)) {
                    self.wrong::<()>(key, "a list of values, such as [1, 2]", &entry.node);
                }
                continue;
            }
            let choices = |axis: &'_ Axis<Choice>| -> Vec<Choice> {
                axis.iter()
                    .flat_map(|(_, choices)| choices.clone())
                    .collect()
            };
            let earlier: Vec<Choice> = axes.iter().flat_map(|(_, axis)| choices(axis)).collect();
            let earlier: BTreeSet<&str> = earlier.iter().flat_map(Choice::names).collect();
            let is_there = |choice: &Choice| {
                let twice = choice.names().find(|name| earlier.contains(name));
                twice.map(str::to_string)
            };
            if let Some(twice) = choices(&axis).iter().find_map(is_there) {
                self.problem(key, format!("another axis has {twice} too"));
            }
            axes.push((key.clone(), axis));
        }
        axes
    }

    /// The values of an axis.
    pub fn choices(&self, axis: &'a str) -> Vec<Choice> {
        self.know(axis);
        let Some(Entry { node, .. }) = self.entry(axis) else {
            return Vec::new();
        };
        let list = match &node.value {
            Value::List(list) => list.as_slice(),
            _ => &[],
        };
        if list.is_empty() {
            self.wrong::<()>(axis, "a list of values, such as [1, 2]", node);
        }
        let choices = list.iter().filter_map(|node| self.choice(axis, node));
        choices.collect()
    }

    fn choice(&self, axis: &'a str, node: &'a Node) -> Option<Choice> {
        let Value::Table(entries) = &node.value else {
            return Some(Choice {
                words: node.name(),
                is_named: false,
                fields: vec![(axis.to_string(), node.clone())],
            });
        };
        let inner = self.inner(axis, node)?;
        let words = inner.required_text("name", "\"slow\"")?;
        let name = entries.iter().filter(|entry| entry.key == "name");
        let others = entries.iter().filter(|entry| entry.key != "name");
        let name = name.map(|entry| (axis.to_string(), entry.node.clone()));
        let others = others.map(|entry| (entry.key.clone(), entry.node.clone()));
        Some(Choice {
            words,
            is_named: true,
            fields: name.chain(others).collect(),
        })
    }

    /// The keys that nothing has read yet, in the order of the file.
    pub fn other_keys(&self) -> Vec<&'a str> {
        let known = self.known.borrow();
        self.keys().filter(|key| !known.contains(key)).collect()
    }

    /// All keys, in the order of the file. A recording has one placeholder instead.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> {
        let any = self.recorded(json::ANY_KEY).into_iter();
        any.chain(self.entries.iter().map(|entry| self.key(entry)))
    }

    /// A table, or a plain string in its place.
    pub fn text_or_section(&self, key: &'a str) -> Option<Result<String, Section<'a>>> {
        let either = || json::either([json::text(), json::section()]);
        let Some(node) = self.node(key, either) else {
            return self.recorded(Err(self.within(key, 0, &[])));
        };
        match &node.value {
            Value::Text(text) => Some(Ok(text.clone())),
            Value::Table(_) => self.inner(key, node).map(Err),
            _ => self.wrong(key, "an expression in quotes", node),
        }
    }

    /// Ignores the keys that cannot be read while this key is wrong, except a misspelling of this
    /// key.
    pub fn pass_over_all_but(&self, wanted: &'a str) {
        let others = self.other_keys().into_iter();
        let others = others.filter(|key| nearest(key, [wanted].into_iter()).is_none());
        self.known.borrow_mut().extend(others);
    }

    /// Reports keys that no reader has read, each with a similar known key. The similar key then
    /// counts as misspelt, not as missing.
    pub fn finish(self) {
        for key in self.other_keys() {
            let known = self.known.borrow();
            let right = suggestion(key, known.iter().copied());
            self.problem(key, format!("unknown key; {right}"));
            if let Some(right) = nearest(key, known.iter().copied()) {
                let missing = format!("{}: {MISSING};", self.field(right));
                self.problems.retract(self.at, &missing);
            }
        }
    }
}

fn shown(node: &Node) -> String {
    match &node.value {
        Value::Text(text) => format!("'{text}'"),
        Value::Number(number) => number.to_string(),
        _ => node.kind().to_string(),
    }
}

/// Whether a shell command contains `$name` or `${name}`.
fn names(words: &str, name: &str) -> bool {
    let mut places = words.split('$').skip(1);
    places.any(|rest| {
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        let rest = rest.strip_prefix(name);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
    })
}

/// A number directly followed by its unit.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| c != '.' && !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().ok()?;
    let seconds = match unit.trim_start() {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "min" => number * 60.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// Adds a suggestion to serde's message about a misspelt key.
fn unknown_field(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    match (message.starts_with("unknown field"), quoted.next()) {
        (true, Some(key)) => {
            let right = suggestion(key, quoted);
            format!("unknown key {key}; {right}")
        }
        _ => message.trim().replace('\n', " "),
    }
}

/// The known word that a misspelt one may stand for.
fn nearest<'w>(word: &str, known: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let near = known.map(|right| (strsim::levenshtein(word, right), right));
    let near = near.filter(|(far, right)| *far <= 2.min(right.len().saturating_sub(1)));
    near.min().map(|(_, right)| right)
}

/// A suggestion: the closest of the known words, or all of them.
pub fn suggestion<'w>(word: &str, known: impl Iterator<Item = &'w str>) -> String {
    let known: BTreeSet<&str> = known.collect();
    match nearest(word, known.iter().copied()) {
        Some(right) => format!("did you mean {right}?"),
        None if known.is_empty() => "there are none".to_string(),
        None => {
            let known: Vec<&str> = known.into_iter().collect();
            format!("known: {}", known.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_needs_its_unit() {
        assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(duration("1.5 s"), Some(Duration::from_millis(1500)));
        assert_eq!(duration("2min"), Some(Duration::from_secs(120)));
        for wrong in ["250", "ms", "1..2s", "-1s", "3 sec", "1h", ""] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_command_names_a_value_as_a_whole() {
        for words in ["echo $load", "a=${load}b", "$load", "$x $load-1"] {
            assert!(names(words, "load"), "{words}");
        }
        for words in ["load", "$loads", "$load_2", "$lo"] {
            assert!(!names(words, "load"), "{words}");
        }
    }

    #[test]
    fn a_close_word_is_suggested_and_otherwise_all() {
        let known = || ["window", "name"].into_iter();
        assert_eq!(suggestion("widnow", known()), "did you mean window?");
        assert_eq!(
            suggestion("knid", ["id", "kind"].into_iter()),
            "did you mean kind?"
        );
        assert_eq!(suggestion("speed", known()), "known: name, window");
        assert_eq!(suggestion("x", ["y"].into_iter()), "known: y");
        assert_eq!(suggestion("x", [].into_iter()), "there are none");
    }
}
