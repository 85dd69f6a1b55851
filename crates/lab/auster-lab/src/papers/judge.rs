//! Comparison of the list with the results: each entry's verdict follows from its rules alone.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use crate::papers::figure::{Figure, plain};
use crate::papers::list::{Bound, Entry, List, Operand, Paper, Rule, Said, Source, Value, anchor};
use crate::papers::path::Path;
use crate::papers::store::{Store, Stored};
use crate::papers::template;

/// The contents of a report.
#[derive(Debug)]
pub struct Book<'a> {
    pub chapters: Vec<Chapter<'a>>,
    /// Figures missing from a result that should have them; a quick run has some.
    pub unresolved: Vec<String>,
}

/// A paper.
#[derive(Debug)]
pub struct Chapter<'a> {
    pub paper: &'a Paper,
    pub items: Vec<Item<'a>>,
}

/// An entry with its findings.
#[derive(Debug)]
pub struct Item<'a> {
    pub entry: &'a Entry,
    pub anchor: String,
    pub verdict: Verdict,
    /// The number of figures with a rule that were measured, and the number of figures with a rule.
    pub measured: (usize, usize),
    pub rows: Vec<Row<'a>>,
    pub found: Option<String>,
    pub why: Option<String>,
    /// The available pictures, as SVG.
    pub plots: Vec<String>,
    /// The measurements behind the item, in the order of the entry.
    pub sources: Vec<&'a str>,
}

#[derive(Debug)]
pub struct Row<'a> {
    pub value: &'a Value,
    /// Our figure with unit and spread, or the reason why there is none.
    pub ours: Result<String, String>,
    pub paper: String,
    pub rule: String,
    pub verdict: Option<Verdict>,
    figure: Option<Figure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Exceeded,
    Reproduced,
    Beyond,
    InPart,
    Not,
    Impossible,
    Tested,
    NotMeasured,
}

impl Verdict {
    pub const ALL: [Verdict; 8] = [
        Verdict::Exceeded,
        Verdict::Reproduced,
        Verdict::Beyond,
        Verdict::InPart,
        Verdict::Not,
        Verdict::Impossible,
        Verdict::Tested,
        Verdict::NotMeasured,
    ];

    /// Whether something differs from the paper's claim.
    pub fn asks_why(self) -> bool {
        use Verdict::{Impossible, InPart, Not, Tested};
        matches!(self, InPart | Not | Impossible | Tested)
    }

    pub fn words(self) -> &'static str {
        match self {
            Verdict::Exceeded => "exceeded",
            Verdict::Reproduced => "reproduced",
            Verdict::Beyond => "beyond the paper",
            Verdict::InPart => "in part",
            Verdict::Not => "not reproduced",
            Verdict::Impossible => "not reproducible",
            Verdict::Tested => "held by a test",
            Verdict::NotMeasured => "not measured",
        }
    }
}

impl<'a> Book<'a> {
    pub fn of(list: &'a List, store: &Store) -> Book<'a> {
        let mut unresolved = Vec::new();
        let mut item = |paper: &'a Paper, entry: &'a Entry| {
            let mut rows: Vec<Row> = (entry.values.iter())
                .map(|value| row(value, store, &entry.place, &mut unresolved))
                .collect();
            relate(&mut rows);
            let (verdict, measured) = verdict(entry, &rows);
            let fill =
                |text: &String| template::fill(text, |name, spread| told(&rows, name, spread));
            Item {
                anchor: anchor(&paper.id, &entry.place),
                verdict,
                measured,
                found: entry.found.as_ref().map(fill),
                // Beside a claim that holds, the reason would explain a difference that does not
                // exist.
                why: (entry.why.as_ref().filter(|_| verdict.asks_why())).map(fill),
                plots: pictures(entry, store),
                sources: sources(entry),
                rows,
                entry,
            }
        };
        let chapters = list.papers.iter().map(|paper| {
            let entries = paper.entries.iter();
            Chapter {
                items: entries.map(|entry| item(paper, entry)).collect(),
                paper,
            }
        });
        Book {
            chapters: chapters.collect(),
            unresolved,
        }
    }

    pub fn items(&self) -> impl Iterator<Item = &Item<'a>> {
        self.chapters.iter().flat_map(|chapter| &chapter.items)
    }

    /// The counts in words: `11 reproduced, 2 in part`.
    pub fn counts_in_words(&self) -> String {
        let counts = self.counts().into_iter();
        let words = counts.map(|(words, _, count)| format!("{count} {words}"));
        words.collect::<Vec<_>>().join(", ")
    }

    /// Returns the number of entries with each verdict; those measured in part are counted
    /// separately.
    pub fn counts(&self) -> Vec<(String, Verdict, usize)> {
        let mut counts = Vec::new();
        for verdict in Verdict::ALL {
            for is_whole in [true, false] {
                let items = self.items();
                let of_it = |item: &&Item| (item.verdict, item.is_whole()) == (verdict, is_whole);
                let count = items.filter(of_it).count();
                let words = match is_whole {
                    true => verdict.words().to_owned(),
                    false => format!("{}, partly measured", verdict.words()),
                };
                if count > 0 {
                    counts.push((words, verdict, count));
                }
            }
        }
        counts
    }
}

impl Item<'_> {
    /// Whether no part of the item is missing.
    pub fn is_whole(&self) -> bool {
        self.verdict == Verdict::NotMeasured || self.measured.0 == self.measured.1
    }

    /// `reproduced`, or `reproduced, 1 of 4 measured`.
    pub fn badge(&self) -> String {
        let (measured, all) = self.measured;
        match self.is_whole() {
            true => self.verdict.words().to_owned(),
            false => format!("{}, {measured} of {all} measured", self.verdict.words()),
        }
    }
}

fn row<'a>(value: &'a Value, store: &Store, place: &str, unresolved: &mut Vec<String>) -> Row<'a> {
    let (ours, figure, holds) = match &value.source {
        Source::Checks(words) => match checks(words, value, store) {
            Ok((held, all)) => (Ok(format!("{held} of {all} hold")), None, Some(held == all)),
            Err(missing) => (Err(missing), None, None),
        },
        Source::Figure { .. } => match figure(value, store) {
            Ok(figure) => {
                let unit = match value.unit.as_str() {
                    "" => String::new(),
                    unit => format!(" {unit}"),
                };
                let shown = figure.with_spread(value.decimals) + &unit;
                let holds = value.rule.map(|rule| rule.holds(&figure, value));
                (Ok(shown), Some(figure), holds)
            }
            Err(missing) => (Err(missing), None, None),
        },
    };
    let ours = ours.map_err(|missing| {
        if let Missing::Unresolved(problem) = &missing {
            unresolved.push(format!("{place}, '{}': {problem}", value.label));
        }
        missing.words()
    });
    let is_judged = value.is_judged();
    let exceeds = figure.as_ref().zip(value.exceeds);
    let verdict = match (holds, exceeds) {
        (_, Some((figure, bound))) if bound.holds(figure.value) => Some(Verdict::Exceeded),
        (Some(true), _) => Some(Verdict::Reproduced),
        (Some(false), _) => Some(Verdict::Not),
        (None, Some(_)) => Some(Verdict::Not),
        (None, None) if is_judged => Some(Verdict::NotMeasured),
        (None, None) => None,
    };
    Row {
        paper: paper_words(value),
        rule: rule_words(value),
        value,
        ours,
        verdict,
        figure,
    }
}

/// Judges the figures whose rule names another figure of the entry. Both must have been measured.
fn relate(rows: &mut [Row]) {
    for at in 0..rows.len() {
        let value = rows[at].value;
        let Some(relation) = &value.relation else {
            continue;
        };
        let name = relation.other.as_str();
        let other = (rows.iter()).find(|row| row.value.name.as_deref() == Some(name));
        let label = other.map_or(name, |row| row.value.label.as_str());
        let theirs = other.and_then(|row| row.figure.as_ref());
        let both = rows[at].figure.as_ref().zip(theirs);
        let verdict = match (both, relation.is_more) {
            (None, _) => Verdict::NotMeasured,
            (Some((ours, theirs)), true) if ours.is_above(theirs) => Verdict::Reproduced,
            (Some((ours, theirs)), false) if theirs.is_above(ours) => Verdict::Reproduced,
            _ => Verdict::Not,
        };
        let words = if relation.is_more {
            "more than"
        } else {
            "less than"
        };
        rows[at].rule = format!("{words}: {label}");
        rows[at].verdict = Some(verdict);
    }
}

impl Value {
    /// Whether the value counts for the verdict.
    pub fn is_judged(&self) -> bool {
        let is_check = matches!(self.source, Source::Checks(_));
        is_check || self.rule.is_some() || self.exceeds.is_some() || self.relation.is_some()
    }
}

/// Why there is no figure.
enum Missing {
    NoResult(String),
    /// The document has a place for the figure, and marks it as not measured.
    Empty,
    Unresolved(String),
}

impl Missing {
    fn words(&self) -> String {
        match self {
            Missing::NoResult(why) => format!("not measured ({why})"),
            Missing::Empty | Missing::Unresolved(_) => "not measured".to_owned(),
        }
    }
}

fn document<'s>(measurement: &str, store: &'s Store) -> Result<&'s Stored, Missing> {
    let stored = store.get(measurement);
    stored.ok_or_else(|| Missing::NoResult(store.why_missing(measurement)))
}

fn figure(value: &Value, store: &Store) -> Result<Figure, Missing> {
    let Source::Figure { operand, against } = &value.source else {
        return Err(Missing::Empty);
    };
    let ours = operand_of(operand, store)?;
    let Some((other, how)) = against.as_deref() else {
        return Ok(ours);
    };
    let other = operand_of(other, store)?;
    ours.against(&other, *how).map_err(Missing::Unresolved)
}

fn operand_of(operand: &Operand, store: &Store) -> Result<Figure, Missing> {
    let stored = document(&operand.measurement, store)?;
    let (path, values) = first_of(&operand.paths, stored)?;
    let figure = Figure::of(&values, operand.stat, operand.several);
    let figure = figure
        .map_err(|problem| Missing::Unresolved(format!("{path}: {problem}")))?
        .ok_or(Missing::Empty)?;
    let per = match operand.per.as_slice() {
        [] => 1.0,
        paths => {
            let (path, found) = first_of(paths, stored)?;
            let number = found.first().and_then(|value| value.as_f64());
            let number = number.filter(|number| *number != 0.0);
            number.ok_or_else(|| Missing::Unresolved(format!("{path}: it is no number above 0")))?
        }
    };
    Ok(figure.times(operand.times / per))
}

/// Returns the first path that finds anything, with the values there.
fn first_of<'p, 'v>(
    paths: &'p [Path],
    stored: &'v Stored,
) -> Result<(&'p Path, Vec<&'v Json>), Missing> {
    let mut problems = Vec::new();
    let found = paths.iter().find_map(|path| {
        let found = path.resolve(&stored.document);
        let found = found.map_err(|problem| problems.push(problem));
        found.ok().map(|values| (path, values))
    });
    found.ok_or_else(|| Missing::Unresolved(problems.join("; ")))
}

/// The number of checks that hold, and the number of checks.
fn checks(words: &str, value: &Value, store: &Store) -> Result<(usize, usize), Missing> {
    let stored = document(&value.measurement, store)?;
    let mut lists = Vec::new();
    gather(&stored.document, &mut lists);
    let of_them = lists.into_iter().filter(|check| {
        let what = check["what"].as_str();
        what.is_some_and(|what| says(what, words))
    });
    let passed: Vec<bool> = of_them.map(|check| check["passed"] == true).collect();
    match passed.len() {
        0 => Err(Missing::Unresolved(format!("no check says '{words}'"))),
        all => Ok((passed.iter().filter(|passed| **passed).count(), all)),
    }
}

/// Whether a check contains these words; `*` between them matches anything.
fn says(what: &str, words: &str) -> bool {
    let mut parts = words.split('*');
    let rest = parts.try_fold(what, |rest, part| Some(rest.split_once(part)?.1));
    rest.is_some()
}

/// Collects the elements of every list called `checks`, at the root or in each network.
fn gather<'d>(document: &'d Json, lists: &mut Vec<&'d Json>) {
    lists.extend(document["checks"].as_array().into_iter().flatten());
    let networks = document["networks"].as_array().into_iter().flatten();
    for network in networks {
        lists.extend(network["checks"].as_array().into_iter().flatten());
    }
}

impl Rule {
    fn holds(self, figure: &Figure, value: &Value) -> bool {
        let paper = match value.paper {
            Some(Said::Number(number)) => number,
            _ => f64::NAN,
        };
        let distance = (figure.value - paper).abs();
        match self {
            Rule::WithinPercent(percent) => distance <= paper.abs() * percent / 100.0,
            Rule::Within(half) => distance <= half + figure.half_width(),
            Rule::Bound(bound) => bound.holds(figure.value),
        }
    }
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Bound::AtMost(most) => value <= most,
            Bound::AtLeast(least) => value >= least,
        }
    }

    fn words(self) -> String {
        match self {
            Bound::AtMost(most) => format!("at most {}", plain(most)),
            Bound::AtLeast(least) => format!("at least {}", plain(least)),
        }
    }
}

/// Formats the paper's value: `83 ± 2.7 ms`, where the paper's spread is the rule.
fn paper_words(value: &Value) -> String {
    let spread = match value.rule {
        Some(Rule::Within(half)) => format!(" ± {}", plain(half)),
        _ => String::new(),
    };
    match &value.paper {
        Some(Said::Number(number)) => {
            let words = format!("{}{spread} {}", plain(*number), value.unit);
            words.trim().to_owned()
        }
        Some(Said::Words(words)) => words.clone(),
        None => String::new(),
    }
}

fn rule_words(value: &Value) -> String {
    let rule = value.rule.map(|rule| match rule {
        Rule::WithinPercent(percent) => format!("within {} %", plain(percent)),
        Rule::Within(_) => "intervals meet".to_owned(),
        Rule::Bound(bound) => bound.words(),
    });
    let rule = match &value.source {
        Source::Checks(_) => Some("all hold".to_owned()),
        Source::Figure { .. } => rule,
    };
    let exceeds = value
        .exceeds
        .map(|bound| format!("exceeded: {}", bound.words()));
    let words: Vec<String> = rule.into_iter().chain(exceeds).collect();
    words.join("; ")
}

/// Returns the verdict over all judged rows: far better, all as claimed, some, or none. The counts
/// beside it show missing values.
fn verdict(entry: &Entry, rows: &[Row]) -> (Verdict, (usize, usize)) {
    let judged: Vec<&Row> = rows.iter().filter(|row| row.value.is_judged()).collect();
    let known = || {
        judged
            .iter()
            .filter_map(|row| row.verdict.map(|v| (row, v)))
    };
    let measured = || known().filter(|(_, verdict)| *verdict != Verdict::NotMeasured);
    let counts = (measured().count(), judged.len());
    if entry.is_impossible {
        return (Verdict::Impossible, counts);
    }
    if judged.is_empty() {
        let is_measured = rows.iter().any(|row| row.ours.is_ok());
        return match (entry.tests.is_empty(), entry.is_beyond && is_measured) {
            (false, _) => (Verdict::Tested, counts),
            (true, true) => (Verdict::Beyond, counts),
            _ => (Verdict::NotMeasured, counts),
        };
    }
    let count = |of: Verdict| measured().filter(|(_, verdict)| *verdict == of).count();
    let could_exceed = measured().filter(|(row, _)| row.value.exceeds.is_some());
    let (all, failed, exceeded) = (counts.0, count(Verdict::Not), count(Verdict::Exceeded));
    let verdict = match all {
        0 => Verdict::NotMeasured,
        _ if failed == all => Verdict::Not,
        _ if failed > 0 => Verdict::InPart,
        _ if entry.is_beyond => Verdict::Beyond,
        _ if exceeded > 0 && exceeded == could_exceed.count() => Verdict::Exceeded,
        _ => Verdict::Reproduced,
    };
    (verdict, counts)
}

fn told(rows: &[Row], name: &str, has_spread: bool) -> String {
    let row = rows
        .iter()
        .find(|row| row.value.name.as_deref() == Some(name));
    let Some(row) = row else {
        return format!("{{{name}}}");
    };
    match (&row.figure, &row.ours) {
        (Some(figure), _) if has_spread => figure.with_spread(row.value.decimals),
        (Some(figure), _) => figure.shown(row.value.decimals),
        (None, Ok(words)) => words.clone(),
        (None, Err(_)) => "(not measured)".to_owned(),
    }
}

fn sources(entry: &Entry) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    let values = entry.values.iter().flat_map(|value| {
        let other = match &value.source {
            Source::Figure { against, .. } => against.as_deref(),
            Source::Checks(_) => None,
        };
        let other = other.map(|(operand, _)| operand.measurement.as_str());
        std::iter::once(value.measurement.as_str()).chain(other)
    });
    let plots = entry.plots.iter().map(|plot| plot.measurement.as_str());
    values
        .chain(plots)
        .filter(|name| seen.insert(*name))
        .collect()
}

fn pictures(entry: &Entry, store: &Store) -> Vec<String> {
    let pictures = entry.plots.iter().filter_map(|plot| {
        let dir = &store.get(&plot.measurement)?.dir;
        let mut files = plot.files.iter();
        files.find_map(|file| std::fs::read_to_string(dir.join(file)).ok())
    });
    pictures.collect()
}
