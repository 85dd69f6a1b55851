//! The list of the papers' figures, tables and headline numbers: `scenarios/papers.toml`. It names
//! a paper's claim, the place of our figure, and the rule that compares the two. It contains no
//! results.

use crate::papers::figure::{Against, Several, Stat};
use crate::papers::path::Path;

/// The whole list.
#[derive(Debug)]
pub struct List {
    pub title: String,
    pub measurements: Vec<Measurement>,
    pub papers: Vec<Paper>,
}

/// A command whose results the figures are read from.
#[derive(Debug)]
pub struct Measurement {
    /// Name of its directory: `results/<date>-<name>`, or `<name>` in the directory of a run.
    pub name: String,
    /// The form that `make papers` runs.
    pub whole: Option<Form>,
    /// The form that `make papers QUICK=1` runs.
    pub quick: Option<Form>,
    /// The form that made the stored results, for which an hour is too short.
    pub long: Option<Form>,
    /// The person or program that measures it, if it is no command of this program.
    pub by: Option<String>,
}

/// Arguments after `auster`, and the approximate duration.
#[derive(Clone, Debug)]
pub struct Form {
    pub words: Vec<String>,
    pub minutes: f64,
}

#[derive(Debug)]
pub struct Paper {
    pub id: String,
    pub title: String,
    pub authors: String,
    pub source: String,
    /// Figures and tables that draw or define something, and report no finding.
    pub drawings: Vec<Drawing>,
    pub entries: Vec<Entry>,
}

/// `Fig. 1` and what it draws.
#[derive(Debug)]
pub struct Drawing {
    pub place: String,
    pub about: String,
}

/// A figure, a table or a number.
#[derive(Debug)]
pub struct Entry {
    pub place: String,
    pub title: String,
    /// The paper's claim, in our words.
    pub claim: String,
    /// The paper's own sentence, shortened, with its section. An entry beyond the paper has none.
    pub sentence: Option<String>,
    /// A sentence on what we found, with `{name}` for values.
    pub found: Option<String>,
    /// Why the finding differs from the paper, or cannot agree; also with `{name}` for values.
    pub why: Option<String>,
    /// Whether the claim is our own, and the paper has no such claim.
    pub is_beyond: bool,
    /// Whether the entry cannot be repeated at all.
    pub is_impossible: bool,
    /// Tests that verify the claim where there is nothing to measure.
    pub tests: Vec<String>,
    pub values: Vec<Value>,
    pub plots: Vec<Plot>,
}

#[derive(Debug)]
pub struct Value {
    /// Name in a sentence, as `{name}`.
    pub name: Option<String>,
    pub label: String,
    pub measurement: String,
    pub source: Source,
    pub unit: String,
    pub decimals: Option<usize>,
    pub paper: Option<Said>,
    pub rule: Option<Rule>,
    /// A relation that the paper claims between this figure and another of the entry.
    pub relation: Option<Relation>,
    /// The bound at which the figure is far better than the paper.
    pub exceeds: Option<Bound>,
}

#[derive(Debug)]
pub enum Source {
    Figure {
        operand: Operand,
        against: Option<Box<(Operand, Against)>>,
    },
    /// The verdict's checks that contain these words.
    Checks(String),
}

/// One figure of a document.
#[derive(Debug)]
pub struct Operand {
    pub measurement: String,
    /// Places of the figure in documents of different versions; the first one found counts.
    pub paths: Vec<Path>,
    pub stat: Option<Stat>,
    pub several: Several,
    pub times: f64,
    /// Places of the divisor, if there is one; the first one found counts.
    pub per: Vec<Path>,
}

/// The paper's value or words.
#[derive(Debug, PartialEq)]
pub enum Said {
    Number(f64),
    Words(String),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// The largest difference from the paper's number, in percent.
    WithinPercent(f64),
    /// The largest difference from the paper's number: our interval meets this one.
    Within(f64),
    Bound(Bound),
}

/// A rule against another value of the same entry. The spreads must not overlap.
#[derive(Clone, Debug, PartialEq)]
pub struct Relation {
    /// The name of the other value.
    pub other: String,
    /// Whether this value must be more than the other; otherwise less.
    pub is_more: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// A picture of a measurement.
#[derive(Debug)]
pub struct Plot {
    pub measurement: String,
    /// The picture's names in different versions; the first one found counts.
    pub files: Vec<String>,
}

impl List {
    pub fn measurement(&self, name: &str) -> Option<&Measurement> {
        self.measurements.iter().find(|known| known.name == name)
    }
}

impl Measurement {
    pub fn form(&self, which: Which) -> Option<&Form> {
        match which {
            Which::Whole => self.whole.as_ref(),
            Which::Quick => self.quick.as_ref(),
            Which::Long => self.long.as_ref().or(self.whole.as_ref()),
        }
    }

    /// Describes how the stored results were made.
    pub fn told(&self) -> String {
        match (&self.by, self.form(Which::Long)) {
            (Some(by), _) => by.clone(),
            (None, Some(form)) => format!("auster {}", form.words.join(" ")),
            (None, None) => String::new(),
        }
    }
}

/// Which form of each command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Which {
    Whole,
    Quick,
    Long,
}

impl Which {
    pub const ALL: [Which; 3] = [Which::Whole, Which::Quick, Which::Long];

    pub fn name(self) -> &'static str {
        match self {
            Which::Whole => "whole",
            Which::Quick => "quick",
            Which::Long => "long",
        }
    }

    /// The most minutes that all commands together may take.
    pub fn minutes_max(self) -> Option<f64> {
        match self {
            Which::Whole => Some(60.0),
            Which::Quick => Some(9.0),
            Which::Long => None,
        }
    }
}

/// Returns the anchor of `Fig. 8.1` of `timeouts` in a page: `timeouts-fig-8-1`.
pub fn anchor(paper: &str, place: &str) -> String {
    let mut anchor = paper.to_owned();
    for part in place.split(|c: char| !c.is_ascii_alphanumeric()) {
        if !part.is_empty() {
            anchor += "-";
            anchor += &part.to_ascii_lowercase();
        }
    }
    anchor
}
