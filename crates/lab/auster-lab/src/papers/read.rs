//! Reads the list from its text. All errors are reported at once, by line and field.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path as FilePath;

use clap::ValueEnum;
use toml::de::DeTable;

use crate::papers::figure::Several;
use crate::papers::list::{
    Bound, Drawing, Entry, Form, List, Measurement, Operand, Paper, Plot, Relation, Rule, Said,
    Source, Value, anchor,
};
use crate::papers::path::Path;
use crate::papers::run::LIST as LIST_FILE;
use crate::papers::template;
use cli::failure::Failure;
use config::fields::Fields;

const LIST: &[&str] = &["title", "measurement", "paper"];
const MEASUREMENT: &[&str] = &[
    "name",
    "command",
    "minutes",
    "quick",
    "quick_minutes",
    "long",
    "long_minutes",
    "by",
];
const PAPER: &[&str] = &["id", "title", "authors", "source", "drawings", "entry"];
const ENTRY: &[&str] = &[
    "place",
    "title",
    "claim",
    "sentence",
    "found",
    "why",
    "beyond",
    "not_reproducible",
    "tests",
    "measurement",
    "value",
    "plots",
];
const VALUE: &[&str] = &[
    "name",
    "label",
    "of",
    "from",
    "stat",
    "several",
    "times",
    "per",
    "against",
    "against_of",
    "as",
    "checks",
    "unit",
    "decimals",
    "paper",
    "within_percent",
    "within",
    "at_most",
    "at_least",
    "more_than",
    "less_than",
    "exceeded_at_most",
    "exceeded_at_least",
];
/// The commands that keep a `result.json`.
const COMMANDS: &[&str] = &["lab", "bench", "sim", "model"];
/// The range of any figure of a paper.
const NUMBERS: std::ops::RangeInclusive<f64> = -1e12..=1e12;
const MINUTES_MAX: f64 = 600.0;

impl List {
    pub fn read(path: &FilePath) -> Result<List, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| match e.kind() {
            ErrorKind::NotFound if path == FilePath::new(LIST_FILE) => {
                let right = "run this in auster's source tree, whose experiments it runs";
                Failure::file(path, format!("it is not here; {right}"))
            }
            _ => Failure::file(path, e),
        })?;
        List::parse(&text, path.display()).map_err(|problems| Failure::usage(problems.join("; ")))
    }

    pub fn parse(text: &str, file: impl Display) -> Result<List, Vec<String>> {
        let (fields, table) = Fields::parse(text);
        let mut reader = Reader {
            fields,
            measurements: BTreeSet::new(),
        };
        let list = reader.list(&table);
        reader.fields.finish(file)?;
        Ok(list)
    }
}

struct Reader<'a> {
    fields: Fields<'a>,
    measurements: BTreeSet<String>,
}

type Table<'a> = DeTable<'a>;

impl<'a> Reader<'a> {
    fn list(&mut self, table: &Table<'a>) -> List {
        self.fields.only(table, "", LIST);
        let title = self.words(&(0..0), table, "title", "Five papers");
        let mut measurements = Vec::new();
        for (at, table) in self.fields.tables_at(table, "measurement") {
            let measurement = self.measurement(&at, table);
            if !self.measurements.insert(measurement.name.clone()) {
                let problem = format!("name: there are two measurements '{}'", measurement.name);
                self.fields.problem(&at, problem);
            }
            measurements.push(measurement);
        }
        let mut papers: Vec<Paper> = Vec::new();
        for (at, table) in self.fields.tables_at(table, "paper") {
            let paper = self.paper(&at, table);
            if papers.iter().any(|known| known.id == paper.id) {
                let problem = format!("id: there are two papers '{}'", paper.id);
                self.fields.problem(&at, problem);
            }
            papers.push(paper);
        }
        if papers.is_empty() {
            self.fields.problem(&(0..0), "there is no [[paper]]");
        }
        List {
            title,
            measurements,
            papers,
        }
    }

    fn measurement(&mut self, at: &Range<usize>, table: &Table<'a>) -> Measurement {
        self.fields.only(table, "[measurement]", MEASUREMENT);
        let name = self.words(at, table, "name", "table-2");
        let is_path = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '/';
        if !name.chars().all(is_path) || name.starts_with('/') || name.ends_with('/') {
            let problem = format!("name: '{name}' is no directory; letters, digits, '-' and '/'");
            self.fields.problem(at, problem);
        }
        let measurement = Measurement {
            name,
            whole: self.form(at, table, "command", "minutes"),
            quick: self.form(at, table, "quick", "quick_minutes"),
            long: self.form(at, table, "long", "long_minutes"),
            by: self.fields.string(table, "by", "scripts/bench security"),
        };
        let said = ["command", "quick", "long", "by"];
        if said.iter().all(|key| table.get(*key).is_none()) {
            let problem = "it says neither by which command it is measured nor by whom";
            self.fields.problem(at, problem);
        }
        measurement
    }

    fn form(
        &mut self,
        at: &Range<usize>,
        table: &Table<'a>,
        command: &str,
        minutes: &str,
    ) -> Option<Form> {
        let words = self.fields.parsed(table, command, "sim fig10", |text| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            let first = words.first().map_or("", String::as_str);
            match COMMANDS.contains(&first) {
                true => Ok(words),
                false => Err(format!(
                    "'{first}' keeps no results; it begins with one of {}",
                    COMMANDS.join(", ")
                )),
            }
        });
        let minutes_found = self.fields.number(table, minutes, 0.01..=MINUTES_MAX);
        if table.get(command).is_some() != table.get(minutes).is_some() {
            let problem = format!("{command} and {minutes} come together");
            self.fields.problem(at, problem);
        }
        Some(Form {
            words: words?,
            minutes: minutes_found?,
        })
    }

    fn paper(&mut self, at: &Range<usize>, table: &Table<'a>) -> Paper {
        self.fields.only(table, "[paper]", PAPER);
        let id = self.words(at, table, "id", "pso");
        let mut places = BTreeMap::new();
        let mut place = |fields: &mut Fields<'a>, at: &Range<usize>, place: &str| {
            let line = fields.line(at);
            if let Some(before) = places.insert(anchor(&id, place), line) {
                let problem = format!("place: '{place}' is in line {before} already");
                fields.problem(at, problem);
            }
        };
        let drawings = self
            .fields
            .list_at(table, "drawings", "Fig. 1: architecture", |text| {
                let split = text.split_once(": ");
                let (place, about) =
                    split.ok_or_else(|| format!("'{text}' is not as 'Fig. 1: architecture'"))?;
                Ok::<_, String>(Drawing {
                    place: place.to_owned(),
                    about: about.to_owned(),
                })
            });
        for (at, drawing) in &drawings {
            place(&mut self.fields, at, &drawing.place);
        }
        let mut entries = Vec::new();
        for (at, table) in self.fields.tables_at(table, "entry") {
            let entry = self.entry(&at, table);
            place(&mut self.fields, &at, &entry.place);
            entries.push(entry);
        }
        Paper {
            title: self.words(at, table, "title", "Priority-based Scheduling Policy"),
            authors: self.words(at, table, "authors", "Kasabai and others"),
            source: self.words(at, table, "source", "KSII TIIS 13(2), 2019"),
            drawings: drawings.into_iter().map(|(_, drawing)| drawing).collect(),
            entries,
            id,
        }
    }

    fn entry(&mut self, at: &Range<usize>, table: &Table<'a>) -> Entry {
        self.fields.only(table, "[paper.entry]", ENTRY);
        let usual = self.fields.string(table, "measurement", "table-2");
        if let Some(name) = &usual {
            self.known(at, "measurement", name);
        }
        let values: Vec<Value> = (self.fields.tables_at(table, "value").into_iter())
            .map(|(at, table)| self.value(&at, table, usual.as_deref()))
            .collect();
        let plots = self
            .fields
            .list_at(table, "plots", "table-2/jitter-by-rate.svg", plot);
        for (at, plot) in &plots {
            self.known(at, "plots", &plot.measurement);
        }
        let entry = Entry {
            place: self.words(at, table, "place", "Fig. 8.1"),
            title: self.words(at, table, "title", "CPU usage"),
            claim: self.words(at, table, "claim", "what the paper says"),
            sentence: self
                .fields
                .string(table, "sentence", "\"it takes longer\" (4.3)"),
            found: self.fields.string(table, "found", "{p99} ms"),
            why: self.fields.string(table, "why", "its law is not defined"),
            is_beyond: self.fields.bool(table, "beyond").unwrap_or_default(),
            is_impossible: self
                .fields
                .bool(table, "not_reproducible")
                .unwrap_or_default(),
            tests: self
                .fields
                .list(table, "tests", "crates/auster/tests/peers.rs", |text| {
                    Ok::<_, String>(text.to_owned())
                }),
            plots: plots.into_iter().map(|(_, plot)| plot).collect(),
            values,
        };
        self.whole(at, &entry);
        entry
    }

    /// Checks the fields that every entry must have.
    fn whole(&mut self, at: &Range<usize>, entry: &Entry) {
        let place = &entry.place;
        let mut wrong = |problem: &str| self.fields.problem(at, format!("'{place}': {problem}"));
        let is_shown = !entry.values.is_empty() || !entry.tests.is_empty();
        let is_held = !entry.tests.is_empty() || entry.values.iter().any(Value::is_judged);
        match (is_shown, entry.is_impossible) {
            (false, false) => wrong("value, tests or not_reproducible = true is missing"),
            (true, true) if is_held => wrong("not_reproducible has neither rules nor tests"),
            _ => {}
        }
        if entry.sentence.is_none() && !entry.is_beyond {
            wrong("sentence is missing, the paper's own words with their section");
        }
        if entry.is_impossible && entry.why.is_none() {
            wrong("not_reproducible says why");
        }
        let mut names = BTreeSet::new();
        for name in entry.values.iter().filter_map(|value| value.name.as_ref()) {
            if !names.insert(name.as_str()) {
                wrong(&format!("value: there are two of the name '{name}'"));
            }
        }
        for value in &entry.values {
            let other = value
                .relation
                .as_ref()
                .map(|relation| relation.other.as_str());
            if let Some(other) = other.filter(|other| !names.contains(other)) {
                wrong(&format!(
                    "more_than, less_than: no value has the name '{other}'"
                ));
            }
        }
        for (key, text) in [("found", &entry.found), ("why", &entry.why)] {
            for name in text.iter().flat_map(|text| template::names(text)) {
                if !names.contains(name) {
                    wrong(&format!("{key}: no value has the name '{name}'"));
                }
            }
        }
    }

    fn value(&mut self, at: &Range<usize>, table: &Table<'a>, usual: Option<&str>) -> Value {
        self.fields.only(table, "[paper.entry.value]", VALUE);
        let of = self.fields.string(table, "of", "table-2");
        let measurement = match of.as_deref().or(usual) {
            Some(name) => {
                self.known(at, "of", name);
                name.to_owned()
            }
            None => {
                let problem = "of: which measurement it is of is not said, and the entry has none";
                self.fields.problem(at, problem);
                String::new()
            }
        };
        let (rule, exceeds) = self.rules(at, table);
        let relation = self.relation(at, table);
        if relation.is_some() && (rule.is_some() || exceeds.is_some()) {
            let problem = "more_than and less_than take no other rule beside them";
            self.fields.problem(at, problem);
        }
        let value = Value {
            name: self.fields.string(table, "name", "p99"),
            label: self.words(at, table, "label", "p99 of the hop delay"),
            source: self.source(at, table, &measurement),
            unit: self.fields.string(table, "unit", "ms").unwrap_or_default(),
            decimals: (self.fields.integer(table, "decimals", 0..=6)).map(|n| n as usize),
            paper: self.said(table),
            measurement,
            rule,
            relation,
            exceeds,
        };
        let needs_number = matches!(rule, Some(Rule::Within(_) | Rule::WithinPercent(_)));
        if needs_number && !matches!(value.paper, Some(Said::Number(_))) {
            let problem = "within, within_percent: of the paper's number, and paper is none";
            self.fields.problem(at, problem);
        }
        value
    }

    fn source(&mut self, at: &Range<usize>, table: &Table<'a>, measurement: &str) -> Source {
        let checks = self.fields.string(table, "checks", "no entry refused");
        let from = self.paths(table, "from");
        let has_from = table.get("from").is_some();
        if has_from == checks.is_some() {
            self.fields.problem(at, "it takes one of from and checks");
        }
        if let Some(words) = checks {
            return Source::Checks(words);
        }
        let against = self.paths(table, "against");
        let how = self.named(table, "as");
        if table.get("against").is_some() != table.get("as").is_some() {
            self.fields.problem(at, "against and as come together");
        }
        let against_of = self.fields.string(table, "against_of", "table-2");
        if let Some(name) = &against_of {
            self.known(at, "against_of", name);
        }
        let times = self.fields.number(table, "times", NUMBERS).unwrap_or(1.0);
        let per = self.paths(table, "per");
        let stat = self.named(table, "stat");
        let several = self.named(table, "several");
        let operand = |measurement: &str, paths: Vec<Path>| Operand {
            measurement: measurement.to_owned(),
            paths,
            stat,
            several: several.unwrap_or(Several::Mean),
            times,
            per: per.clone(),
        };
        let other = against_of.as_deref().unwrap_or(measurement);
        Source::Figure {
            operand: operand(measurement, from),
            against: how.map(|how| Box::new((operand(other, against), how))),
        }
    }

    /// Reads one path, or a list of alternatives.
    fn paths(&mut self, table: &Table<'a>, key: &str) -> Vec<Path> {
        if let Some(value) = table.get(key)
            && (value.get_ref().as_array()).is_some_and(|list| list.is_empty())
        {
            let problem = format!("{key}: an empty list names no path");
            self.fields.problem(&value.span(), problem);
        }
        self.fields.list(table, key, "runs[0].ms", Path::parse)
    }

    fn rules(&mut self, at: &Range<usize>, table: &Table<'a>) -> (Option<Rule>, Option<Bound>) {
        let mut number = |key: &str| self.fields.number(table, key, NUMBERS);
        let rules = [
            number("within_percent").map(Rule::WithinPercent),
            number("within").map(Rule::Within),
            number("at_most").map(|n| Rule::Bound(Bound::AtMost(n))),
            number("at_least").map(|n| Rule::Bound(Bound::AtLeast(n))),
        ];
        let exceeds = [
            number("exceeded_at_most").map(Bound::AtMost),
            number("exceeded_at_least").map(Bound::AtLeast),
        ];
        let rules: Vec<Rule> = rules.into_iter().flatten().collect();
        let exceeds: Vec<Bound> = exceeds.into_iter().flatten().collect();
        if rules.len() > 1 {
            let problem = "one rule of within_percent, within, at_most, at_least";
            self.fields.problem(at, problem);
        }
        if exceeds.len() > 1 {
            let problem = "one of exceeded_at_most and exceeded_at_least";
            self.fields.problem(at, problem);
        }
        let is_checked = table.get("checks").is_some();
        if is_checked && !(rules.is_empty() && exceeds.is_empty()) {
            let problem = "checks hold or not: no other rule";
            self.fields.problem(at, problem);
        }
        (rules.first().copied(), exceeds.first().copied())
    }

    fn relation(&mut self, at: &Range<usize>, table: &Table<'a>) -> Option<Relation> {
        let more = self.fields.string(table, "more_than", "fifo");
        let less = self.fields.string(table, "less_than", "fifo");
        if more.is_some() && less.is_some() {
            self.fields.problem(at, "one of more_than and less_than");
        }
        if (more.is_some() || less.is_some()) && table.get("checks").is_some() {
            self.fields.problem(at, "checks hold or not: no other rule");
        }
        let relation = |is_more| move |other| Relation { other, is_more };
        (more.map(relation(true))).or(less.map(relation(false)))
    }

    /// Reads `paper`, a number or words.
    fn said(&mut self, table: &Table<'a>) -> Option<Said> {
        let value = table.get("paper")?;
        match value.get_ref().as_str() {
            Some(text) => Some(Said::Words(text.to_owned())),
            None => (self.fields.number(table, "paper", NUMBERS)).map(Said::Number),
        }
    }

    fn named<T: ValueEnum>(&mut self, table: &Table<'a>, key: &str) -> Option<T> {
        let names = T::value_variants().iter().filter_map(T::to_possible_value);
        let names: Vec<String> = names.map(|name| name.get_name().to_owned()).collect();
        self.fields.parsed(table, key, &names[0], |text| {
            let unknown = |_| format!("'{text}' is none of {}", names.join(", "));
            T::from_str(text, false).map_err(unknown)
        })
    }

    fn known(&mut self, at: &Range<usize>, key: &str, name: &str) {
        if !self.measurements.contains(name) {
            let problem = format!("{key}: there is no measurement '{name}'");
            self.fields.problem(at, problem);
        }
    }

    /// Reads a required text.
    fn words(&mut self, at: &Range<usize>, table: &Table<'a>, key: &str, example: &str) -> String {
        if table.get(key).is_none() {
            let problem = format!("{key} is missing, a text such as \"{example}\"");
            self.fields.problem(at, problem);
        }
        self.fields.string(table, key, example).unwrap_or_default()
    }
}

fn plot(text: &str) -> Result<Plot, String> {
    match text.rsplit_once('/') {
        Some((measurement, files)) if files.split('|').all(|file| file.ends_with(".svg")) => {
            Ok(Plot {
                measurement: measurement.to_owned(),
                files: files.split('|').map(str::to_owned).collect(),
            })
        }
        _ => Err(format!("'{text}' is not as 'MEASUREMENT/FILE.svg'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: &str = r#"
title = "x"
[[measurement]]
name = "table-2"
command = "lab run scenarios/table-2.toml"
minutes = 7
[[paper]]
id = "timeouts"
title = "On timeouts"
authors = "A"
source = "J"
drawings = ["Fig. 1: architecture"]
[[paper.entry]]
place = "Table 2"
title = "Reordering by rate"
claim = "11 at 1 Mbit/s"
sentence = "11 (Table 2)"
measurement = "table-2"
found = "{one} of them"
plots = ["table-2/reordered-by-rate.svg"]
[[paper.entry.value]]
name = "one"
label = "1 Mbit/s"
from = "rows[rate_mbps=1].reordered"
paper = 11
within_percent = 25
"#;

    fn wrong(of: &str, with: &str) -> String {
        assert!(RIGHT.contains(of), "{of}");
        let text = RIGHT.replacen(of, with, 1);
        List::parse(&text, "papers.toml").unwrap_err().join("\n")
    }

    #[test]
    fn a_right_list_is_read() {
        let list = List::parse(RIGHT, "papers.toml").unwrap();
        let entry = &list.papers[0].entries[0];
        assert_eq!(entry.values[0].rule, Some(Rule::WithinPercent(25.0)));
        assert_eq!(entry.values[0].paper, Some(Said::Number(11.0)));
        assert_eq!(list.papers[0].drawings[0].about, "architecture");
        assert_eq!(entry.plots[0].measurement, "table-2");
    }

    #[test]
    fn each_mistake_is_told_by_line_and_field() {
        for (of, with, right) in [
            (
                "title = \"x\"",
                "",
                "papers.toml:1:1: title is missing, a text such as",
            ),
            (
                "title = \"x\"",
                "title = 3",
                ":2:9: title is 3; it must be a text",
            ),
            ("minutes = 7", "", ":3:1: command and minutes come together"),
            (
                "minutes = 7",
                "minutes = 0",
                ":6:11: minutes is 0; it must be a number from 0.01",
            ),
            (
                "\"lab run",
                "\"run",
                ":5:11: command: 'run' keeps no results",
            ),
            (
                "\"table-2\"\ncommand",
                "\"/a b\"\ncommand",
                "name: '/a b' is no directory",
            ),
            (
                "id = \"timeouts\"",
                "id = \"a\"\nyear = 2",
                "'year' is not known in [[paper]]; known: id",
            ),
            (
                "Fig. 1: architecture",
                "Fig. 1",
                ":12:13: drawings: 'Fig. 1' is not as",
            ),
            (
                "Fig. 1: architecture",
                "Table 2: x",
                "place: 'Table 2' is in line 12 already",
            ),
            ("claim = ", "claims = ", "did you mean claim?"),
            ("sentence = ", "sentences = ", "did you mean sentence?"),
            (
                "within_percent = 25",
                "more_than = \"two\"",
                "more_than, less_than: no value has the name 'two'",
            ),
            (
                "within_percent = 25",
                "within_percent = 25\nless_than = \"one\"",
                "take no other rule beside them",
            ),
            (
                "measurement = \"table-2\"",
                "",
                "of: which measurement it is of",
            ),
            (
                "measurement = \"table-2\"",
                "measurement = \"t\"",
                "there is no measurement 't'",
            ),
            ("{one}", "{two}", "found: no value has the name 'two'"),
            (
                "table-2/reordered-by-rate.svg",
                "t/r.svg",
                "plots: there is no measurement 't'",
            ),
            (
                "table-2/reordered-by-rate.svg",
                "r.svg",
                "plots: 'r.svg' is not as",
            ),
            (
                "rows[rate_mbps=1]",
                "rows[rate_mbps]",
                ":24:8: from: 'rows[rate_mbps].reordered' is no path",
            ),
            (
                "\"rows[rate_mbps=1].reordered\"",
                "[\"rows[*].a\", \"rows[b].c\"]",
                ":24:22: from: 'rows[b].c' is no path",
            ),
            (
                "\"rows[rate_mbps=1].reordered\"",
                "[]",
                ":24:8: from: an empty list names no path",
            ),
            (
                "from = ",
                "checks = \"a\"\nfrom = ",
                "it takes one of from and checks",
            ),
            (
                "paper = 11\n",
                "",
                "of the paper's number, and paper is none",
            ),
            (
                "paper = 11",
                "paper = true",
                "paper is true; it must be a number",
            ),
            (
                "within_percent = 25",
                "within_percent = 25\nat_most = 3",
                "one rule of",
            ),
            (
                "within_percent = 25",
                "stat = \"p98\"",
                "stat: 'p98' is none of mean, median",
            ),
            (
                "within_percent = 25",
                "as = \"ratio\"",
                "against and as come together",
            ),
            (
                "[[paper.entry.value]]",
                "[[paper.entry.values]]",
                "value, tests or not_reproducible",
            ),
        ] {
            let found = wrong(of, with);
            assert!(found.contains(right), "{of} -> {with}:\n{found}");
        }
    }

    #[test]
    fn all_mistakes_are_told_together() {
        let text = RIGHT
            .replace("minutes = 7", "minutes = -1")
            .replace("paper = 11", "paper = []");
        let found = List::parse(&text, "papers.toml").unwrap_err();
        assert!(found.len() >= 2, "{found:?}");
        assert!(
            found[0].starts_with("papers.toml:6:11: minutes"),
            "{found:?}"
        );
        assert!(
            found
                .iter()
                .any(|p| p.starts_with("papers.toml:25:9: paper")),
            "{found:?}"
        );
    }

    #[test]
    fn a_figure_of_what_cannot_be_repeated_has_no_rule() {
        let text = RIGHT.replace("found = ", "why = \"w\"\nnot_reproducible = true\nfound = ");
        let found = List::parse(&text, "papers.toml").unwrap_err().join("\n");
        assert!(found.contains("neither rules nor tests"), "{found}");
        List::parse(&text.replace("within_percent = 25", ""), "papers.toml").unwrap();
    }

    #[test]
    fn what_cannot_be_repeated_says_why() {
        let text = RIGHT.split("[[paper.entry.value]]").next().unwrap();
        let text = text.replace("found = \"{one} of them\"", "not_reproducible = true");
        let found = List::parse(&text, "papers.toml").unwrap_err().join("\n");
        assert!(
            found.contains("'Table 2': not_reproducible says why"),
            "{found}"
        );
        let text = text.replace(
            "not_reproducible = true",
            "not_reproducible = true\nwhy = \"w\"",
        );
        List::parse(&text, "papers.toml").unwrap();
    }
}
