//! The JSON Schema of scenarios, for editors.
//!
//! The readers produce the schema: they run without a document, and [`Record`] records each key
//! that they ask for. The descriptions are from the tables of the manual.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use testbed::impairment::Impairment;

use crate::engine::event::VERBS;
use crate::engine::{probe, schema, traffic};

const MANUAL: &str = include_str!("../../../../../docs/lab-experiment.md");
const KINDS: &str = include_str!("../../../../../docs/lab-experiment-kinds.md");
/// The manual's pages about virtual time.
const SIM: &str = concat!(
    include_str!("../../../../../docs/sim.md"),
    include_str!("../../../../../docs/sim-tables.md")
);

/// The placeholder for keys that a scenario chooses.
pub const ANY_KEY: &str = "*";

/// The section with a verb. It has only the keys of that verb.
const MOMENTS: &str = "at";

/// The keys that readers ask for, by section.
#[derive(Default)]
pub struct Record {
    /// The kind or verb being read, where there are several.
    choice: &'static str,
    sections: RefCell<BTreeMap<String, BTreeMap<String, Key>>>,
    /// Keys whose presence a reader has tested, which makes them optional.
    looked_for: RefCell<BTreeSet<(String, String)>>,
}

struct Key {
    schema: Json,
    is_required: bool,
}

impl Record {
    pub fn new(choice: &'static str) -> Record {
        Record {
            choice,
            ..Record::default()
        }
    }

    pub fn note(&self, section: &str, key: &str, schema: Json) {
        self.change(section, key, |known| {
            // The schema of the first reader counts; later readers read a part or everything.
            if known.schema == any() {
                known.schema = schema;
            }
        });
    }

    pub fn require(&self, section: &str, key: &str) {
        let place = (section.to_string(), key.to_string());
        let is_required = !self.looked_for.borrow().contains(&place);
        self.change(section, key, |known| known.is_required = is_required);
    }

    fn change(&self, section: &str, key: &str, change: impl FnOnce(&mut Key)) {
        let mut sections = self.sections.borrow_mut();
        let keys = sections.entry(section.to_string()).or_default();
        change(keys.entry(key.to_string()).or_insert(Key {
            schema: any(),
            is_required: false,
        }));
    }

    /// Whether a reader finds a key. It finds any key, but only one verb.
    pub fn has(&self, section: &str, key: &str) -> bool {
        let place = (section.to_string(), key.to_string());
        self.looked_for.borrow_mut().insert(place);
        self.is_read(section, key)
    }

    /// The same for a reader that reads the key without testing for it first.
    pub fn is_read(&self, section: &str, key: &str) -> bool {
        section != MOMENTS || key == self.choice
    }

    /// The choice, where it is one of these words.
    pub fn word(&self, section: &str, key: &str, words: &[&'static str]) -> &'static str {
        let found = words.iter().find(|word| **word == self.choice);
        let found = found.unwrap_or(&words[0]);
        let known = match key {
            "kind" => std::slice::from_ref(found),
            _ => words,
        };
        self.note(section, key, in_cells(json!({ "enum": known })));
        found
    }

    fn object(&self, section: &str) -> Json {
        let sections = self.sections.borrow();
        let (mut properties, mut required) = (Map::new(), Vec::new());
        let mut others = json!(false);
        for (key, known) in sections.get(section).into_iter().flatten() {
            let is_verb = section == MOMENTS && VERBS.contains(&key.as_str());
            if is_verb && key != self.choice {
                continue;
            }
            let path = match section {
                "" => key.clone(),
                _ => format!("{section}.{key}"),
            };
            let mut schema = self.whole(&known.schema, &path);
            if key == ANY_KEY {
                others = schema;
                continue;
            }
            if let Some(meaning) = meaning(section, key) {
                let limits = schema["description"].as_str();
                let limits = limits.map(|limits| format!(" ({limits})"));
                let words = format!("{meaning}{}", limits.unwrap_or_default());
                schema["description"] = words.into();
            }
            properties.insert(key.clone(), schema);
            if known.is_required || is_verb {
                required.push(key);
            }
        }
        let mut object = json!({
            "type": "object",
            "properties": properties,
            "additionalProperties": others,
        });
        if !required.is_empty() {
            object["required"] = json!(required);
        }
        if section == MOMENTS {
            // A cell's value used as a key.
            object["patternProperties"] = json!({ VALUE: {} });
        }
        object
    }

    /// A schema with the keys of its sections filled in.
    fn whole(&self, schema: &Json, path: &str) -> Json {
        let mut schema = schema.clone();
        if schema == section() {
            let Some((_, choices)) = kinds().into_iter().find(|(known, _)| *known == path) else {
                return self.object(path);
            };
            let choices = choices.iter().map(|choice| reference(&name(path, choice)));
            return json!({ "anyOf": choices.collect::<Vec<_>>() });
        }
        if let Some(items) = schema.get_mut("items") {
            *items = self.whole(items, path);
        }
        for choice in schema
            .get_mut("anyOf")
            .and_then(Json::as_array_mut)
            .into_iter()
            .flatten()
        {
            *choice = self.whole(choice, path);
        }
        schema
    }
}

/// The sections that have a kind or a verb, each with all its kinds or verbs.
fn kinds() -> [(&'static str, Vec<&'static str>); 3] {
    let verbs = [""].into_iter().chain(VERBS);
    [
        ("traffic", traffic::KINDS.to_vec()),
        ("probe", probe::KINDS.to_vec()),
        (MOMENTS, verbs.collect()),
    ]
}

fn name(section: &str, choice: &str) -> String {
    match choice {
        "" => section.to_string(),
        _ => format!("{section}.{choice}"),
    }
}

/// The schema of scenarios.
pub fn document() -> Json {
    let mut parts = Map::new();
    let value = "`$name`: each cell's value of an axis or field of `[matrix]`";
    let text = json!({ "type": "string", "pattern": VALUE, "description": value });
    parts.insert("value".to_string(), text);
    parts.insert("impairment".to_string(), impairments());
    for (section, choices) in kinds() {
        for choice in choices {
            let mut part = schema::record(choice).object(section);
            if let Some(row) = row(section, choice) {
                part["description"] = row[1..].join("; ").into();
            }
            parts.insert(name(section, choice), part);
        }
    }
    let mut document = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "a scenario of auster lab run and auster sim run",
    });
    let whole = schema::record("").object("");
    let all = document.as_object_mut().expect("an object");
    all.extend(whole.as_object().cloned().unwrap_or_default());
    all.insert("$defs".to_string(), parts.into());
    document
}

/// The keys of an impairment, as serde knows them.
fn impairments() -> Json {
    let read = |key: &str, value: toml::Value| {
        let table = toml::Table::from_iter([(key.to_string(), value)]);
        Impairment::deserialize(table).map_err(|e| e.message().to_string())
    };
    let refused = read("", true.into()).err().unwrap_or_default();
    let keys = quoted(&refused).filter(|key| !key.is_empty());
    let kinds: [(&str, toml::Value); 3] = [
        ("boolean", true.into()),
        ("number", 0.5.into()),
        ("integer", 1.into()),
    ];
    let key = |key: &str| {
        let fits = |(_, value): &&(&str, toml::Value)| read(key, value.clone()).is_ok();
        let kind = kinds.iter().find(fits).map(|(kind, _)| kind);
        (key.to_string(), in_cells(json!({ "type": kind })))
    };
    let properties: Map<String, Json> = keys.map(key).collect();
    in_cells(json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    }))
}

/// The cells of the rows of a page's tables.
fn rows(page: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = page.lines().filter_map(|line| line.strip_prefix('|'));
    lines.map(|line| {
        let cells = line.trim_end_matches('|').split(" | ");
        cells.map(str::trim).collect()
    })
}

/// The row of a kind or verb, in the table with this title.
fn row(section: &str, choice: &str) -> Option<Vec<&'static str>> {
    let title = if section == MOMENTS { "verb" } else { section };
    let mut own = rows(KINDS).skip_while(|row| row[0] != title);
    own.find(|row| !choice.is_empty() && quoted(row[0]).any(|word| word == choice))
}

/// The manual's description of a key.
fn meaning(section: &str, key: &str) -> Option<&'static str> {
    let top = section.split('.').next().unwrap_or_default();
    let mut current = "";
    let mut own = Vec::new();
    for row in rows(MANUAL).chain(rows(SIM)).filter(|row| row.len() == 3) {
        if !row[0].is_empty() {
            current = row[0].trim_matches(['`', '[', ']']);
        }
        let is_whole = section.is_empty() && current == key && row[1].is_empty();
        let is_table = current == "top" && quoted(row[1]).any(|word| word == top);
        if is_whole || is_table || current == top || (current, top) == ("top", "") {
            own.push((row, is_whole));
        }
    }
    let names = |column: usize| {
        let own = own.iter();
        let mut own = own.filter(|(row, whole)| *whole || quoted(row[column]).any(|w| w == key));
        own.next().map(|(row, _)| row[2])
    };
    names(1).or_else(|| names(2))
}

/// The words between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split('`').skip(1).step_by(2);
    parts.flat_map(|part| part.split(|c: char| !(c.is_ascii_alphanumeric() || "_-".contains(c))))
}

/// A `$name`.
const VALUE: &str = r"^\$";

fn reference(name: &str) -> Json {
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// A value, or the name of a value that each cell has.
pub fn in_cells(schema: Json) -> Json {
    either([schema, reference("value")])
}

pub fn either(choices: [Json; 2]) -> Json {
    json!({ "anyOf": choices })
}

pub fn any() -> Json {
    json!({})
}

pub fn text() -> Json {
    json!({ "type": "string" })
}

pub fn text_or_number() -> Json {
    either([text(), json!({ "type": "number" })])
}

pub fn truth() -> Json {
    in_cells(json!({ "type": "boolean" }))
}

pub fn count(least: u64, most: u64) -> Json {
    in_cells(json!({ "type": "integer", "minimum": least, "maximum": most }))
}

pub fn number(range: &Range<f64>) -> Json {
    let (least, above) = (range.start, range.end);
    in_cells(json!({ "type": "number", "minimum": least, "exclusiveMaximum": above }))
}

pub fn time(range: &RangeInclusive<Duration>) -> Json {
    let limits = format!("{:?} to {:?}", range.start(), range.end());
    let pattern = r"^(\$.*|[0-9.]+ *(us|ms|s|min))$";
    json!({ "type": "string", "pattern": pattern, "description": limits })
}

pub fn list(items: Json) -> Json {
    json!({ "type": "array", "items": items })
}

/// A table whose keys belong to another program.
pub fn table() -> Json {
    in_cells(json!({ "type": "object", "additionalProperties": true }))
}

/// A table whose keys a reader knows.
pub fn section() -> Json {
    json!({ "type": "object" })
}

pub fn impairment() -> Json {
    reference("impairment")
}

#[cfg(test)]
pub mod tests {
    use std::path::Path;

    use super::*;
    use crate::engine::reader::{Node, Parameters, Problems, Section};
    use crate::engine::subject;

    /// Whether a scenario fits the schema.
    pub fn fits(text: &str) -> bool {
        let scenario: toml::Table = toml::from_str(text).unwrap();
        let root = document();
        is_right(&root, &root, &serde_json::to_value(scenario).unwrap())
    }

    fn is_right(root: &Json, schema: &Json, value: &Json) -> bool {
        let inner = |schema: &Json, value: &Json| is_right(root, schema, value);
        let named =
            |key: &String| key.starts_with('$') && schema.get("patternProperties").is_some();
        schema.as_object().is_none_or(|rules| {
            rules.iter().all(|(rule, right)| match rule.as_str() {
                "$ref" => {
                    let name = right.as_str().unwrap().trim_start_matches('#');
                    inner(root.pointer(name).unwrap(), value)
                }
                "anyOf" => right
                    .as_array()
                    .unwrap()
                    .iter()
                    .any(|one| inner(one, value)),
                "enum" => right.as_array().unwrap().contains(value),
                "type" => match right.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "number" => value.is_number(),
                    _ => value.is_u64(),
                },
                "minimum" => value.as_f64() >= right.as_f64(),
                "maximum" => value.as_f64() <= right.as_f64(),
                "exclusiveMaximum" => value.as_f64() < right.as_f64(),
                // A time may also be the name of a time.
                "pattern" => {
                    let first = value.as_str().and_then(|text| text.chars().next());
                    let is_time = right != VALUE && first.is_some_and(|c| c.is_ascii_digit());
                    is_time || first == Some('$')
                }
                "items" => value
                    .as_array()
                    .unwrap()
                    .iter()
                    .all(|item| inner(right, item)),
                "required" => right.as_array().unwrap().iter().all(|key| {
                    let key = key.as_str().unwrap();
                    value.get(key).is_some()
                }),
                "properties" => value.as_object().unwrap().iter().all(|(key, value)| {
                    let known = right.get(key);
                    known.is_none_or(|known| inner(known, value))
                }),
                "additionalProperties" => value.as_object().unwrap().iter().all(|(key, value)| {
                    let is_known = schema["properties"].get(key).is_some() || named(key);
                    is_known || right != &json!(false) && inner(right, value)
                }),
                _ => true,
            })
        })
    }

    #[test]
    fn the_schema_in_docs_is_the_readers() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/schema/scenario.json");
        let printed = format!("{:#}\n", document());
        if std::env::var_os("AUSTER_BLESS").is_some() {
            std::fs::write(&path, &printed).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        let renew = "renew it: AUSTER_BLESS=1 cargo test -p auster-scenario schema";
        assert!(printed == committed, "out of date; {renew}");
    }

    #[test]
    fn the_manual_names_each_key_kind_and_figure() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs");
        let mut missing = BTreeSet::new();
        let plain = schema::record("");
        for (section, keys) in plain.sections.borrow().iter() {
            let is_here = |key: &String| {
                key == ANY_KEY
                    || meaning(section, key).is_some()
                    || section.is_empty()
                        && (rows(MANUAL).chain(rows(SIM))).any(|r| quoted(r[0]).any(|w| w == key))
            };
            let is_kind = |known: &str| section.split('.').next() == Some(known);
            if !kinds().iter().any(|(known, _)| is_kind(known)) {
                let keys = keys.keys().filter(|key| !is_here(key));
                missing.extend(keys.map(|key| format!("{section}.{key}")));
            }
        }
        for (section, choices) in kinds() {
            for choice in choices {
                let record = schema::record(choice);
                let row = row(section, choice).unwrap_or_default().join(" ");
                for (own, keys) in record.sections.borrow().iter() {
                    let is_own = own.split('.').next() == Some(section);
                    let unknown = keys.keys().filter(|key| {
                        let is_verb = VERBS.contains(&key.as_str());
                        is_own
                            && *key != ANY_KEY
                            && (!is_verb || section != MOMENTS || key == &choice)
                            && meaning(section, key).is_none()
                            && !quoted(&row).any(|word| word == *key)
                    });
                    missing.extend(unknown.map(|key| format!("{section} {choice}: {key}")));
                }
                let (none, problems) = (Parameters::default(), Problems::recording(&record));
                let root = Node::empty();
                let read = Section::new(&root, &none, &problems);
                let figures = match section {
                    "traffic" => traffic::read(&read).expect(choice).1,
                    "probe" => probe::read(&read).expect(choice).1,
                    _ => &[],
                };
                // The row may link to a page with the figures.
                let links = row.split("](").skip(1);
                let links = links.filter_map(|link| link.split([')', '#']).next());
                let page = |link| std::fs::read_to_string(docs.join(link)).unwrap_or_default();
                let pages: String = links.map(page).chain([KINDS.to_string()]).collect();
                let unknown = figures.iter().map(|(figure, _)| *figure);
                let unknown = unknown.filter(|figure| !quoted(&pages).any(|word| word == *figure));
                missing.extend(unknown.map(|figure| format!("{section} {choice}: {figure}")));
            }
        }
        for (key, _, figures) in subject::KINDS {
            let unknown = figures.iter().map(|(figure, _)| *figure);
            let unknown = unknown.filter(|figure| !quoted(SIM).any(|word| word == *figure));
            missing.extend(unknown.map(|figure| format!("{key}: {figure}")));
        }
        assert!(missing.is_empty(), "the manual lacks {missing:#?}");
    }
}
